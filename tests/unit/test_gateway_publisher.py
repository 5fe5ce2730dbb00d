"""The publisher against a producer that fails as told: order, resending, refusals, bounds. No broker, no clock.

Invariants:
- `on_acked` is called once per record, and only after the producer acknowledged it (or its ledger record);
- whatever fails, the log's first occurrences are in the order of offering, per topic;
- one record that is refused never keeps its neighbours.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

import gateway.backoff
from gateway.config import KafkaConfig, parse_config
from gateway.metrics import Metrics
from gateway.publisher import KafkaFailure, Publisher, RefusedTimestampError, RefusedTooLargeError
from gateway.records import LEDGER_TOPIC, Loss, Record
from tests.support.tasks import running_task, until

RECEIVED_MS = 1_000
Verdict = Callable[[list[Record]], BaseException | None]


def config(**settings: int) -> KafkaConfig:
    lines = "\n".join(f"{name} = {value}" for name, value in settings.items())
    text = f'state_dir = "s"\n[kafka]\nbootstrap_servers = "h:1"\n{lines}\n[board]\n'
    return parse_config(Path("g.toml"), text).kafka


def record(value: bytes, topic: str = "t", timestamp_ms: int = RECEIVED_MS) -> Record:
    return Record("test", topic, b"k", value, (), timestamp_ms, RECEIVED_MS, f"mqtt:{value.decode()}")


class FakeBroker:
    """Stores what producers deliver, batch by batch, and can refuse batches or be away."""

    def __init__(self) -> None:
        self.log: list[Record] = []
        self.away = False
        self.unknown_topics: set[str] = set()
        self.verdict: Verdict = lambda _batch: None
        self.producers: list[FakeProducer] = []
        self.batches: list[list[bytes]] = []

    async def start_producer(self) -> FakeProducer:
        if self.away:
            raise KafkaFailure("away")
        self.producers.append(FakeProducer(self))
        return self.producers[-1]


class FakeProducer:
    def __init__(self, broker: FakeBroker) -> None:
        self.broker = broker
        self.open: dict[str, list[tuple[Record, asyncio.Future[Any]]]] = {}
        self.discarded = False

    async def send(self, given: Record) -> asyncio.Future[Any]:
        await asyncio.sleep(0)
        if given.topic in self.broker.unknown_topics:
            raise KafkaFailure("unknown topic")
        if given.value.startswith(b"huge"):
            raise RefusedTooLargeError("huge")
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Any] = loop.create_future()
        if given.topic not in self.open:
            self.open[given.topic] = []
            loop.call_later(0.002, self._deliver, given.topic)
        self.open[given.topic].append((given, answer))
        return answer

    def _deliver(self, topic: str) -> None:
        batch = self.open.pop(topic)
        if self.discarded or self.broker.away:
            return  # no answer, ever
        self.broker.batches.append([given.value for given, _ in batch])
        error = self.broker.verdict([given for given, _ in batch])
        if error is None:
            self.broker.log += [given for given, _ in batch]
        for _, answer in batch:
            if error is None:
                answer.set_result(None)
            else:
                answer.set_exception(error)

    async def discard(self) -> None:
        self.discarded = True


@pytest.fixture(autouse=True)
def _quick_backoff(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateway.backoff.Backoff.__init__, "__defaults__", (0.001, 0.01))


@contextlib.asynccontextmanager
async def running(broker: FakeBroker, settings: KafkaConfig | None = None) -> AsyncIterator[Publisher]:
    publisher = Publisher(settings or config(), Metrics(), "gateway@test", broker.start_producer)
    async with running_task(publisher.run()):
        yield publisher


def values(broker: FakeBroker, topic: str = "t") -> list[bytes]:
    return [given.value for given in broker.log if given.topic == topic]


def first_occurrences(found: list[bytes]) -> list[bytes]:
    return list(dict.fromkeys(found))


async def test_records_are_acknowledged_once_and_in_order() -> None:
    broker = FakeBroker()
    acked: list[int] = []
    async with running(broker) as publisher:
        for number in range(500):
            publisher.offer(record(b"%d" % number), lambda number=number: acked.append(number))
        assert acked == []
        await asyncio.wait_for(publisher.drained(), 5)
    assert acked == list(range(500))
    assert values(broker) == [b"%d" % number for number in range(500)]
    assert len(broker.producers) == 1


async def test_while_the_broker_is_away_nothing_is_acknowledged_and_nothing_dropped() -> None:
    broker = FakeBroker()
    broker.away = True
    acked: list[int] = []
    async with running(broker) as publisher:
        for number in range(50):
            publisher.offer(record(b"%d" % number), lambda number=number: acked.append(number))
        await until(lambda: publisher.problem() is not None)
        assert "cannot be reached (away); 50 records wait" in str(publisher.problem())
        assert acked == []
        broker.away = False
        await asyncio.wait_for(publisher.drained(), 5)
        assert publisher.problem() is None
    assert acked == list(range(50))


async def test_a_failed_batch_is_sent_again_before_what_came_later() -> None:
    broker = FakeBroker()
    failures = [None, KafkaFailure("out of order sequence"), None, KafkaFailure("gone"), None, None]
    broker.verdict = lambda _batch: failures.pop(0) if failures else None
    acked: list[int] = []
    async with running(broker) as publisher:
        for number in range(300):
            publisher.offer(record(b"%d" % number, "ab"[number % 2]), lambda number=number: acked.append(number))
            if number % 20 == 0:
                await asyncio.sleep(0.003)
        await asyncio.wait_for(publisher.drained(), 5)
    assert sorted(acked) == list(range(300))
    assert first_occurrences(values(broker, "a")) == [b"%d" % number for number in range(0, 300, 2)]
    assert first_occurrences(values(broker, "b")) == [b"%d" % number for number in range(1, 300, 2)]
    assert len(broker.producers) >= 3


async def test_a_producer_without_answers_is_replaced() -> None:
    broker = FakeBroker()
    async with running(broker, config(request_timeout_ms=1_000)) as publisher:
        publisher._replace_after_s = 0.05
        await until(lambda: bool(broker.producers))
        broker.away = True  # the producer's batch is never answered
        publisher.offer(record(b"1"), lambda: None)
        await until(lambda: broker.producers[0].discarded)
        broker.away = False
        await asyncio.wait_for(publisher.drained(), 5)
    assert values(broker) == [b"1"]


@pytest.mark.parametrize("who", ["client", "broker"])
async def test_a_record_that_is_too_large_is_ledgered_and_its_neighbours_pass(who: str) -> None:
    broker = FakeBroker()
    poison = b"huge" if who == "client" else b"large"
    broker.verdict = lambda batch: RefusedTooLargeError("x") if any(r.value == b"large" for r in batch) else None
    acked: list[bytes] = []
    async with running(broker) as publisher:
        for value in (b"1", b"2", poison, b"3", b"4"):
            publisher.offer(record(value), lambda value=value: acked.append(value))
        await asyncio.wait_for(publisher.drained(), 5)
    assert first_occurrences(values(broker)) == [b"1", b"2", b"3", b"4"]
    assert sorted(acked) == sorted([b"1", b"2", b"3", b"4", poison])
    (ledgered,) = [json.loads(given.value) for given in broker.log if given.topic == LEDGER_TOPIC]
    assert ledgered["cause"] == "record_too_large"
    assert ledgered["topic"] == f"mqtt:{poison.decode()}"
    assert (ledgered["records"], ledgered["bytes"], ledgered["node"]) == (1, len(poison) + 1, "gateway@test")


async def test_a_record_is_acknowledged_only_when_its_ledger_record_is() -> None:
    broker = FakeBroker()
    broker.unknown_topics = {LEDGER_TOPIC}
    acked: list[bytes] = []
    async with running(broker) as publisher:
        publisher.offer(record(b"huge"), lambda: acked.append(b"huge"))
        publisher.offer(record(b"1"), lambda: acked.append(b"1"))
        await until(lambda: b"1" in acked and publisher.problem() is not None)
        assert acked == [b"1"]
        assert f"topic {LEDGER_TOPIC} takes no records" in str(publisher.problem())
        broker.unknown_topics = set()
        await asyncio.wait_for(publisher.drained(), 5)
    assert acked == [b"1", b"huge"]


async def test_a_timestamp_the_broker_refuses_becomes_the_time_of_receipt() -> None:
    broker = FakeBroker()
    broker.verdict = lambda batch: RefusedTimestampError("x") if any(r.timestamp_ms > 5_000 for r in batch) else None
    async with running(broker) as publisher:
        for number, timestamp_ms in enumerate((1_000, 9_000, 1_000)):
            publisher.offer(record(b"%d" % number, timestamp_ms=timestamp_ms), lambda: None)
        await asyncio.wait_for(publisher.drained(), 5)
    assert first_occurrences(values(broker)) == [b"0", b"1", b"2"]
    assert {given.timestamp_ms for given in broker.log} == {RECEIVED_MS}


async def test_a_topic_that_cannot_be_written_does_not_hold_up_another() -> None:
    broker = FakeBroker()
    broker.unknown_topics = {"stuck"}
    async with running(broker) as publisher:
        publisher.offer(record(b"1", "stuck"), lambda: None)
        for number in range(10):
            publisher.offer(record(b"%d" % number, "t"), lambda: None)
        await until(lambda: publisher.pending_records <= 1)
        assert values(broker) == [b"%d" % number for number in range(10)]
        assert publisher.pending_records == 1


async def test_full_is_told_and_room_waited_for() -> None:
    broker = FakeBroker()
    broker.away = True
    async with running(broker, config(pending_records_max=3)) as publisher:
        for number in range(3):
            assert not publisher.full
            publisher.offer(record(b"%d" % number), lambda: None)
        assert publisher.full
        room = asyncio.ensure_future(publisher.room())
        await asyncio.sleep(0.01)
        assert not room.done()
        broker.away = False
        await asyncio.wait_for(room, 5)
        assert not publisher.full


async def test_the_bound_in_bytes_counts_what_records_hold() -> None:
    broker = FakeBroker()
    broker.away = True
    async with running(broker, config(pending_bytes_max=65_536)) as publisher:
        publisher.offer(record(b"x" * 65_000), lambda: None)
        assert not publisher.full
        publisher.offer(record(b"x" * 600), lambda: None)
        assert publisher.full


async def test_a_loss_is_counted_when_it_is_written() -> None:
    broker = FakeBroker()
    metrics = Metrics()
    publisher = Publisher(config(), metrics, "gateway@test", broker.start_producer)
    task = asyncio.ensure_future(publisher.run())
    written = asyncio.Event()
    publisher.report(Loss("id", "mqtt_queue_dropped", "mqtt:x", 3, None, 1), written.set, reason="test")
    name, labels = "edge_gateway_ledger_records_total", {"cause": "mqtt_queue_dropped"}
    assert metrics.registry.get_sample_value(name, labels) is None
    await asyncio.wait_for(written.wait(), 5)
    assert metrics.registry.get_sample_value(name, labels) == 1
    assert metrics.registry.get_sample_value("edge_gateway_pending_records") == 0
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
