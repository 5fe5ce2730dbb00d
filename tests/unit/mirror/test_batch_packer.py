"""Packing: each outcome of the worker, in each state of the stream."""

from collections.abc import AsyncIterator

import pytest

from edge_broker.protocol.record_batch import BatchHeader, build_batch
from kafka_wire.partitions import TopicPartition
from kafka_wire.records.batches import PackedBatch, Piece, TooMuchAtOnce, pieces_of
from mirror.link.link_model import Link
from mirror.partition.resume_rules import ResumePoint
from mirror.partition.send_state import DRAINING, GONE, RESOLVING, SENDING
from mirror.partition.state_records import Topics
from mirror.partition.stream import PartitionStream
from mirror.partition.target_state import Contradiction, PartitionState
from mirror.producer.batch_packer import BatchPacker
from mirror.producer.batching import Job, next_job

TP = TopicPartition("t", 0)
TOPICS = Topics("lab.t", "source-id", "target-id")


class Events:
    """Notes what the packer reports."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def back_off(self, stream: PartitionStream, problem: str) -> None:
        self.seen.append(f"backs off: {problem}")

    def mark_unsure(self, stream: PartitionStream) -> None:
        self.seen.append("unsure")

    def start_resolving(self, stream: PartitionStream) -> None:
        self.seen.append("resolve")


class Bench:
    """A packer, and one stream with a source batch of two records."""

    def __init__(self) -> None:
        self.events = Events()
        self.packer = BatchPacker(Link(1 << 20), self.events)
        self.stream = PartitionStream(TP, "lab.t", {"cleanup.policy": "delete"})
        self.stream.send_state, self.stream.batch_bytes_max = SENDING, 1 << 20
        self.stream.state = PartitionState(TP, TOPICS, None)
        self.stream.state.begin(TOPICS, 7, 3, ResumePoint("source_anew", 0), 0)
        self.piece = self.read(0)

    def read(self, offset: int) -> Piece:
        """Put a source batch of two records into the stream."""
        content = build_batch([(None, b"one"), (None, b"two")], timestamp_ms=1, base_offset=offset)
        (piece,) = pieces_of(memoryview(content), offset)
        assert isinstance(piece, Piece)
        self.stream.put(piece, 0.0)
        return piece

    def job(self) -> Job:
        job = next_job(self.stream, Link(1 << 20), self.stream.codec, 1 << 20)
        assert job is not None
        return job

    def has_returned(self) -> bool:
        return list(self.stream.buffer) == [self.piece] and not self.stream.packing


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    bench = Bench()
    yield bench
    await bench.packer.close()


async def packed(
    bench: Bench, job: Job, result: PackedBatch | Exception, monkeypatch: pytest.MonkeyPatch
) -> list[object]:
    """Pack one job, of which the worker returns this."""
    monkeypatch.setattr("mirror.producer.batch_packer.pack_all", lambda jobs, level: [result])
    return [*await bench.packer.pack([job])]


async def test_nothing_to_pack_costs_no_job(bench: Bench):
    assert await bench.packer.pack([]) == []
    assert bench.events.seen == []


async def test_a_batch_gets_the_next_sequences_of_its_session(bench: Bench):
    (first,) = await bench.packer.pack([bench.job()])
    bench.read(2)
    (second,) = await bench.packer.pack([bench.job()])
    headers = [BatchHeader(batch.packed.batch) for batch in (first, second)]
    assert [(one.producer_id, one.producer_epoch, one.base_sequence) for one in headers] == [(7, 3, 0), (7, 3, 2)]
    assert not bench.stream.packing
    assert bench.events.seen == []


async def test_a_batch_that_compaction_has_emptied_gets_no_sequences(bench: Bench, monkeypatch: pytest.MonkeyPatch):
    job = bench.job()
    (real,) = await bench.packer.pack([job])
    assert bench.stream.state is not None
    monkeypatch.setattr(bench.stream.state, "send", lambda *_: pytest.fail("it was given sequences"))
    (batch,) = await packed(bench, job, real.packed._replace(records=0), monkeypatch)
    assert batch.sent is None  # type: ignore[attr-defined]


async def test_a_batch_that_cannot_be_packed_returns_and_its_stream_backs_off(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
):
    assert await packed(bench, bench.job(), ValueError("bad records"), monkeypatch) == []
    assert bench.has_returned()
    assert bench.events.seen == ["backs off: bad records", "resolve"]


async def test_source_batches_that_were_too_much_at_once_return_and_the_next_batch_is_smaller(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
):
    growth = bench.stream.growth
    assert await packed(bench, bench.job(), TooMuchAtOnce("too much"), monkeypatch) == []
    assert bench.has_returned()
    assert bench.stream.growth == 2 * growth
    assert bench.events.seen == ["resolve"]


@pytest.mark.parametrize("state", [DRAINING, RESOLVING])
async def test_a_stream_that_became_unsure_has_its_source_batches_back(bench: Bench, state):
    job = bench.job()
    bench.stream.send_state = state
    assert await bench.packer.pack([job]) == []
    assert bench.has_returned()
    assert bench.events.seen == ["resolve"]


async def test_after_a_stop_nothing_that_was_packed_is_sent(bench: Bench):
    job = bench.job()
    bench.packer.stopping = True
    assert await bench.packer.pack([job]) == []
    assert bench.has_returned()


async def test_a_stream_that_was_dropped_releases_its_memory(bench: Bench):
    job = bench.job()
    bench.stream.send_state = GONE
    assert await bench.packer.pack([job]) == []
    assert (bench.stream.memory.bytes, list(bench.stream.buffer)) == (0, [])
    assert bench.events.seen == []


async def test_a_sequence_that_would_mean_another_record_ends_the_session(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
):
    def contradicts(*_: object) -> None:
        raise Contradiction

    assert bench.stream.state is not None
    monkeypatch.setattr(bench.stream.state, "send", contradicts)
    assert await bench.packer.pack([bench.job()]) == []
    assert bench.has_returned()
    assert bench.stream.contradicts
    assert bench.events.seen == ["unsure"]
