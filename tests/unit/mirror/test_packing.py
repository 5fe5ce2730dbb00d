"""Out of what a batch is made: large ones of the source's are cut, so that they do not hold up all others."""

from __future__ import annotations

import random

import pytest

from edge_broker.protocol.record_batch import build_batch
from kafka_wire.partitions import TopicPartition
from kafka_wire.records.batches import pieces_of
from mirror.link.link_model import Link
from mirror.partition.stream import PartitionStream
from mirror.producer.batching import PLAIN_BATCHES, Job, learn, next_job, pack_all

CODEC = 4  # zstd, so that nothing of the source's goes on as it is
RECORDS, SIZE = 64, 1000
CHANCE = random.Random(16)


def lane_with(*batches, is_noise=False):
    made = PartitionStream(TopicPartition("noise", 0), "lab.noise", {"cleanup.policy": "delete"})
    made.codec, made.batch_bytes_max = CODEC, 512 * 1024
    for base, records in batches:
        content = build_batch(
            [(None, CHANCE.randbytes(SIZE) if is_noise else b"x" * SIZE) for _ in range(records)],
            timestamp_ms=1,
            base_offset=base,
        )
        for piece in pieces_of(memoryview(content), base):
            made.put(piece, 0.0)
    return made


def link_of(bytes_per_s):
    made = Link(10**9)
    made.request_acked(1.0, made.request_sent(0.0, bytes_per_s))
    return made


def sent(lane, link):
    """Whether what the lane sends next goes on as the source has it."""
    job = next_job(lane, link, CODEC, 64 * 1024)
    (packed,) = pack_all([job], 1)
    learn(lane, job.pieces, packed, was_forwarded=job.forward)
    lane.packing = False
    return job.forward


@pytest.mark.parametrize(
    ("is_noise", "bytes_per_s", "as_they_are"),
    [(True, 20_000_000, PLAIN_BATCHES), (True, 100_000, 0), (False, 20_000_000, 0)],
)
def test_what_packing_makes_no_smaller_goes_on_as_it_is_on_a_fast_link_and_is_tried_again(
    is_noise, bytes_per_s, as_they_are
):
    lane = lane_with(*((number * 20, 20) for number in range(PLAIN_BATCHES + 3)), is_noise=is_noise)
    lane.batch_bytes_max = 24_000  # one of the source's in each
    link = link_of(bytes_per_s)
    went = [sent(lane, link) for _ in range(PLAIN_BATCHES + 2)]
    assert went == [False, *[bool(as_they_are)] * PLAIN_BATCHES, False]


def test_small_batches_are_merged_though_packing_makes_them_no_smaller():
    lane = lane_with(*((number, 1) for number in range(80)), is_noise=True)
    lane.plain_left = PLAIN_BATCHES
    assert not sent(lane, link_of(20_000_000))


def taken(lane, bytes_max):
    """The offsets that the next batch is made of."""
    job = next_job(lane, Link(10**6), CODEC, bytes_max)
    assert isinstance(job, Job)
    assert not job.forward
    return [(piece.first_offset, piece.end_offset) for piece in job.pieces]


@pytest.mark.parametrize(("bytes_max", "records"), [(8192, 8), (1500, 1), (900, 1), (49, 1), (1, 1)])
def test_of_a_large_batch_as_much_is_taken_as_there_is_room_for_one_record_at_least(bytes_max, records):
    lane = lane_with((100, RECORDS))
    assert taken(lane, bytes_max) == [(100, 100 + records)]
    assert lane.next_offset == 100 + records


def test_of_two_records_that_are_too_large_one_is_taken_and_of_one_the_whole():
    lane = lane_with((0, 2))
    assert taken(lane, 10) == [(0, 1)]
    assert taken(lane, 10) == [(1, 2)]


def test_small_ones_are_taken_together_as_far_as_they_fit():
    lane = lane_with(*((number, 1) for number in range(5)))
    assert taken(lane, 3 * (SIZE + 100)) == [(0, 1), (1, 2), (2, 3)]
    assert taken(lane, 10) == [(3, 4)]


def test_what_was_cut_is_whole_again_at_the_end():
    lane = lane_with((100, RECORDS))
    jobs = []
    while lane.buffer:
        job = next_job(lane, Link(10**6), CODEC, 8192)
        assert job is not None
        jobs.append(job)
    packed = pack_all(jobs, 1)
    assert [run for one in packed for run in one.runs] == [
        (job.pieces[0].first_offset, job.pieces[-1].end_offset - job.pieces[0].first_offset) for job in jobs
    ]
    assert sum(one.records for one in packed) == RECORDS
