"""Which streams are read, and what becomes of each response of the source."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from edge_broker.errors import ErrorCode
from edge_broker.protocol.record_batch import build_batch
from kafka_wire.partitions import TopicPartition
from kafka_wire.records.batches import SkippedRange
from mirror.client.fetcher import Answer, Place
from mirror.errors import SourceError, UntoldError
from mirror.partition.stream import Memory
from mirror.replication import source_reader
from mirror.replication.backoffs import PartitionBackoffs
from mirror.replication.source_reader import SourceReader
from mirror.status.metrics import Metrics
from tests.unit.mirror.replication.parts import CONFIG, TP, Period, Problems, new_stream

OTHER = TopicPartition("readings", 1)


class Source:
    """A fetcher that gives `answers` once; `busy` are partitions with a fetch in flight."""

    silent_s = 0.0

    def __init__(self, *answers):
        self.answers, self.busy, self.asked = list(answers), frozenset(), []
        self.reader = self

    async def poll(self, wanted, room_bytes, wait_s, woken):
        self.asked.append((wanted, room_bytes))
        return self.answers


class Gaps:
    """A gap resolver that crosses each gap, or raises `error`."""

    def __init__(self):
        self.crossed, self.out_of_range, self.error, self.meanwhile = [], [], None, lambda stream: None

    async def cross_gap(self, stream, end):
        if self.error is not None:
            raise self.error
        self.crossed.append((stream.read_offset, end))
        stream.read_offset = end
        self.meanwhile(stream)

    async def resolve_out_of_range(self, partitions):
        self.out_of_range += partitions


class Setup:
    def __init__(self, *streams, answers=(), admits=True):
        self.source, self.gaps, self.period, self.problems = Source(*answers), Gaps(), Period(), Problems()
        self.memory, self.metrics, self.polled, self.writers = Memory(), Metrics(), 0, []
        admission = SimpleNamespace(turn_to_writer=self.turn_to_writer, screen=self)
        self.admits = admits
        self.registry = SimpleNamespace(streams={one.partition: one for one in streams}, admission=admission)
        self.backoffs = PartitionBackoffs(CONFIG, self.problems.report)
        self.reader = SourceReader(
            self.source, CONFIG, self.registry, self.gaps, self.backoffs, self.period, self.memory, self.metrics,
            self.problems.report,
        )  # fmt: skip

    async def turn_to_writer(self, stream, piece, log_end):
        self.writers.append(piece.header.producer_id)
        return self.admits

    def batches_read(self):
        self.polled += 1


def batches(*offsets):
    made = [build_batch([(b"k", b"v")], timestamp_ms=5, base_offset=offset) for offset in offsets]
    return memoryview(b"".join(made))


def answer(stream, *offsets, error_code=0, log_end=100, **more):
    epoch = -1 if stream.leader_epoch is None else stream.leader_epoch
    place = Place(stream.leader.node, epoch, stream.read_offset, stream.urgent, stream.topic_id)
    return Answer(stream.partition, place, error_code, (), batches(*offsets), log_end, **more)


async def test_batches_wait_in_the_stream_and_the_sender_is_asked_to_send_them():
    stream = new_stream(read_offset=3)
    setup = Setup(stream, answers=[answer(stream, 3, 4, 5)])
    assert not await setup.reader.read_batches()
    assert [piece.first_offset for piece in stream.buffer] == [3, 4, 5]
    assert (stream.read_offset, stream.source_end) == (6, 100)
    assert setup.period.considered == [stream]
    assert setup.polled == 1


async def test_a_gap_is_resolved_before_the_batch_after_it_is_taken():
    stream = new_stream(read_offset=3)
    setup = Setup(stream, answers=[answer(stream, 3, 7)])
    await setup.reader.read_batches()
    assert setup.gaps.crossed == [(4, 7)]
    assert [piece.first_offset for piece in stream.buffer] == [3, 7]


async def test_a_session_that_started_elsewhere_during_a_gap_takes_no_batch_of_this_response():
    stream = new_stream(read_offset=3)
    setup = Setup(stream, answers=[answer(stream, 3, 7)])
    setup.gaps.meanwhile = lambda one: one.read_from(1)
    await setup.reader.read_batches()
    assert [piece.first_offset for piece in stream.buffer] == [3]
    assert stream.read_offset == 1


async def test_a_gap_that_cannot_be_explained_yet_has_the_partition_back_off():
    stream = new_stream(read_offset=3)
    setup = Setup(stream, answers=[answer(stream, 3, 7)])
    setup.gaps.error = UntoldError("topic readings cannot be described")
    await setup.reader.read_batches()
    assert setup.problems == {"readings-0 source": "topic readings cannot be described"}
    assert stream.read_offset == 4


async def test_the_next_response_with_batches_ends_the_backoff():
    stream = new_stream(read_offset=3)
    setup = Setup(stream, answers=[answer(stream, error_code=ErrorCode.CORRUPT_MESSAGE)])
    await setup.reader.read_batches()
    assert setup.problems == {"readings-0 source": "CORRUPT_MESSAGE"}
    assert TP in setup.backoffs.by_partition
    setup.source.answers = [answer(stream, 3)]
    await setup.reader.read_batches()
    assert setup.problems == {}
    assert not setup.backoffs.by_partition


@pytest.mark.parametrize("code", source_reader.FENCED)
async def test_another_leader_has_the_position_checked_again(code):
    stream = new_stream()
    setup = Setup(stream, answers=[answer(stream, error_code=code)])
    assert await setup.reader.read_batches()
    assert stream.leader_epoch is None
    assert setup.problems == {}


async def test_a_broker_that_is_not_reached_is_a_problem_of_the_source():
    stream = new_stream()
    setup = Setup(stream, answers=[answer(stream, failed="connection refused")])
    assert await setup.reader.read_batches()
    assert stream.leader_epoch is None
    assert setup.problems == {"source": "connection refused"}


async def test_out_of_range_is_resolved_after_all_responses():
    first, second = new_stream(), new_stream(OTHER, read_offset=3)
    setup = Setup(first, second, answers=[answer(first, error_code=ErrorCode.OFFSET_OUT_OF_RANGE), answer(second, 3)])
    await setup.reader.read_batches()
    assert setup.gaps.out_of_range == [TP]
    assert second.read_offset == 4


async def test_a_response_to_a_position_of_before_is_left_out():
    stream = new_stream(read_offset=3)
    old = answer(stream, 3, 12)
    stream.read_from(9)
    setup = Setup(stream, answers=[old])
    await setup.reader.read_batches()
    assert not stream.buffer
    assert stream.read_offset == 9


async def test_batches_of_another_producer_wait_until_they_are_admitted():
    stream = new_stream(read_offset=3)
    setup = Setup(stream, answers=[answer(stream, 3)], admits=False)
    stream.writers.producer_id = 77
    await setup.reader.read_batches()
    assert setup.writers == [-1]
    assert not stream.buffer
    assert stream.read_offset == 3


async def test_batches_that_came_from_the_target_move_the_position_and_are_counted():
    stream = new_stream(read_offset=3)
    setup = Setup(stream, answers=[answer(stream, 3, 4)])
    stream.writers.passes_over = True
    await setup.reader.read_batches()
    assert not stream.buffer
    assert stream.read_offset == 5
    assert setup.metrics.passed_over.labels("readings", "0")._value.get() == 2


async def test_a_source_that_is_silent_for_a_minute_is_connected_again():
    stream = new_stream()
    setup = Setup(stream)
    setup.source.silent_s = source_reader.SOURCE_SILENT_REOPEN_S + 1
    with pytest.raises(SourceError, match="no answer for 60 s"):
        await setup.reader.read_batches()


def test_partitions_that_cannot_be_read_now_are_not_chosen():
    checked, resting, leaderless, busy = (new_stream(TopicPartition("readings", n)) for n in range(4))
    checked.leader_epoch = None
    resting.rest_until = 1e12
    leaderless.leader = leaderless.leader._replace(node=-1)
    setup = Setup(checked, resting, leaderless, busy)
    setup.source.busy = frozenset({busy.partition})
    assert setup.reader.choose_places() == {}
    setup.source.busy = frozenset()
    assert list(setup.reader.choose_places()) == [busy.partition]


def test_every_partition_is_the_first_in_its_turn():
    setup = Setup(*(new_stream(TopicPartition("readings", number)) for number in range(3)))
    firsts = [next(iter(setup.reader.choose_places())).partition for _ in range(6)]
    assert sorted(firsts) == [0, 0, 1, 1, 2, 2]


def test_a_skipped_range_moves_the_position_alone():
    stream = new_stream(read_offset=3)
    setup = Setup(stream)
    setup.reader._put(stream, SkippedRange(3, 9, "control"))
    assert stream.read_offset == 9
    assert not stream.buffer
