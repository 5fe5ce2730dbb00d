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
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from drupelet.backoff import Backoff
from drupelet.host.boot_clock import BootMoment
from drupelet.ledger import LEDGER_TOPIC
from gateway.config import KafkaConfig, parse_config
from gateway.kafka.publisher import (
    REFUSAL_KEPT_S,
    DeniedTopicError,
    KafkaFailure,
    Publisher,
    RefusedRecordError,
    RefusedTimestampError,
    RefusedTooLargeError,
)
from gateway.metrics import Metrics
from gateway.records.records import Loss, Record
from tests.support.tasks import running_task
from tests.support.waiting import until

RECEIVED_MS = 1_000
DEAD_LETTERS = "dead_letters"
Verdict = Callable[[list[Record]], BaseException | None]


def config(**settings: int) -> KafkaConfig:
    lines = "\n".join(f"{name} = {value}" for name, value in settings.items())
    text = f'state_dir = "s"\n[kafka]\nbootstrap_servers = "h:1"\n{lines}\n[board]\n'
    return parse_config(Path("g.toml"), text).kafka


def record(value: bytes, topic: str = "t", timestamp_ms: int = RECEIVED_MS) -> Record:
    headers = (("time_unit", b"ms"),)
    return Record("test", topic, b"k", value, headers, timestamp_ms, RECEIVED_MS, f"mqtt:{value[:9].decode()}")


class FakeBroker:
    """Stores what producers deliver, batch by batch, and can refuse batches or be away."""

    def __init__(self) -> None:
        self.log: list[Record] = []
        self.away = False
        self.lost = ""
        self.lost_after_s = 0.0
        self.unknown_topics: set[str] = set()
        self.request_bytes_max = 0
        self.verdict: Verdict = lambda _batch: None
        self.producers: list[FakeProducer] = []
        self.batches: list[list[bytes]] = []
        self.late: list[bytes] = []  # given to a producer that had told of a failure

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
        self.failed = False
        self.halted = False

    async def send(self, given: Record) -> asyncio.Future[Any]:
        if self.failed:
            self.broker.late.append(given.value)
        await asyncio.sleep(0)
        if given.topic in self.broker.unknown_topics:
            raise KafkaFailure("unknown topic")
        if given.value.startswith(b"huge") and len(given.value) > self.broker.request_bytes_max:
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
        if self.halted or self.discarded or self.broker.away:
            return  # no answer, ever
        self.broker.batches.append([given.value for given, _ in batch])
        error = self.broker.verdict([given for given, _ in batch])
        if error is None:
            self.broker.log += [given for given, _ in batch]
        for _, answer in batch:
            if error is None:
                answer.set_result(None)
            else:
                self.failed = True
                answer.set_exception(error)

    async def connection_problem(self) -> str:
        await asyncio.sleep(self.broker.lost_after_s)
        return self.broker.lost

    def halt(self) -> None:
        self.halted = True

    async def discard(self) -> None:
        self.discarded = True


@pytest.fixture(autouse=True)
def _quick_backoff(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Backoff.__init__, "__defaults__", (0.001, 0.01))


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
        await asyncio.wait_for(publisher.wait_drained(), 30)
    assert acked == list(range(500))
    assert values(broker) == [b"%d" % number for number in range(500)]
    assert len(broker.producers) == 1


async def test_a_producer_that_failed_is_given_nothing_more() -> None:
    """What it took after its failure would be sent again by the next one, and be in the log twice."""
    broker = FakeBroker()
    broker.verdict = lambda batch: (
        RefusedTooLargeError("large") if any(len(given.value) > 70_000 for given in batch) else None
    )
    async with running(broker) as publisher:
        for _ in range(3):
            publisher.offer(record(b"L" * 200_000), lambda: None)
            publisher.offer(record(b"s"), lambda: None)
        await asyncio.wait_for(publisher.wait_drained(), 30)
    assert broker.late == []


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
        await asyncio.wait_for(publisher.wait_drained(), 30)
        assert publisher.problem() is None
    assert acked == list(range(50))


async def test_a_topic_for_which_nothing_waits_any_more_is_no_problem() -> None:
    """Its record was refused at last: no acknowledgement will tell that the topic takes records again."""
    broker = FakeBroker()
    broker.unknown_topics = {"t"}
    async with running(broker) as publisher:
        publisher.offer(record(b"huge record"), lambda: None)
        await until(lambda: publisher.problem() is not None)
        assert "topic t takes no records" in str(publisher.problem())
        broker.unknown_topics = set()
        await asyncio.wait_for(publisher.wait_drained(), 30)
        assert publisher.problem() is None


async def test_a_lost_connection_is_told_once_though_nothing_waits_and_so_is_the_next_one(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("gateway.kafka.publisher.LOOK_S", 0.002)
    broker = FakeBroker()
    with caplog.at_level("INFO", "gateway"):
        async with running(broker) as publisher:
            await publisher.connected.wait()
            broker.lost = "h:1 refuses"
            await until(lambda: publisher.problem() is not None)
            assert publisher.problem() == "the connection to the broker is lost (h:1 refuses); 0 records wait"
            broker.lost = ""
            await until(lambda: publisher.problem() is None)
    assert [one.msg for one in caplog.records] == ["broker_connected", "broker_lost", "broker_connected"]


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
        await asyncio.wait_for(publisher.wait_drained(), 30)
    assert sorted(acked) == list(range(300))
    assert first_occurrences(values(broker, "a")) == [b"%d" % number for number in range(0, 300, 2)]
    assert first_occurrences(values(broker, "b")) == [b"%d" % number for number in range(1, 300, 2)]
    assert len(broker.producers) >= 3


@pytest.mark.parametrize("failed_batch", [0, 3])
async def test_a_producer_that_failed_delivers_nothing_more(failed_batch: int) -> None:
    """A record that was being queued meanwhile must not come before those of the failed batch."""
    broker = FakeBroker()
    broker.lost_after_s = 0.05  # a broker that does not answer
    broker.verdict = lambda _batch: KafkaFailure("no leader") if len(broker.batches) == failed_batch + 1 else None
    async with running(broker) as publisher:
        for number in range(2_000):
            publisher.offer(record(b"%d" % number), lambda: None)
        await asyncio.wait_for(publisher.wait_drained(), 30)
    assert first_occurrences(values(broker)) == [b"%d" % number for number in range(2_000)]
    assert len(broker.producers) == 2


async def test_a_producer_without_answers_is_replaced() -> None:
    broker = FakeBroker()
    async with running(broker, config(request_timeout_ms=1_000)) as publisher:
        publisher._replace_after_s = 0.05
        await until(lambda: bool(broker.producers))
        broker.away = True  # the producer's batch is never answered
        publisher.offer(record(b"1"), lambda: None)
        await until(lambda: broker.producers[0].discarded)
        broker.away = False
        await asyncio.wait_for(publisher.wait_drained(), 30)
    assert values(broker) == [b"1"]


@pytest.mark.parametrize(
    ("who", "reason"),
    [("gateway", "record_too_large"), ("broker", "record_too_large"), ("checks", "invalid_record")],
)
async def test_a_record_refused_for_good_is_a_dead_letter_and_its_neighbours_pass(who: str, reason: str) -> None:
    broker = FakeBroker()
    poison = b"large" + b"x" * 2_000 if who == "gateway" else b"large"
    error = RefusedRecordError("x") if who == "checks" else RefusedTooLargeError("x")
    broker.verdict = lambda batch: error if any(r.value == b"large" and r.topic == "t" for r in batch) else None
    acked: list[bytes] = []
    async with running(broker, config(record_bytes_max=1_024)) as publisher:
        for value in (b"1", b"2", poison, b"3", b"4"):
            publisher.offer(record(value), lambda value=value: acked.append(value))
        await asyncio.wait_for(publisher.wait_drained(), 30)
    assert first_occurrences(values(broker)) == [b"1", b"2", b"3", b"4"]
    assert sorted(acked) == sorted([b"1", b"2", b"3", b"4", poison])
    (letter,) = [given for given in broker.log if given.topic == DEAD_LETTERS]
    assert (letter.value, letter.key, letter.timestamp_ms) == (poison, b"k", RECEIVED_MS)
    headers = dict(letter.headers)
    assert (headers["dead_letter.reason"], headers["dead_letter.topic"]) == (reason.encode(), b"t")
    assert headers["dead_letter.detail"].startswith(b"t does not take it")
    assert LEDGER_TOPIC not in {given.topic for given in broker.log}


def rejected(payload: bytes) -> Record:
    return Record("mqtt", "t", b"a", payload, (("source", b"mqtt"),), RECEIVED_MS, RECEIVED_MS, "mqtt:a", "a/#")


@pytest.mark.parametrize("kept", [65_536, 1_024, 0])
@pytest.mark.parametrize("who", ["client", "broker"])
async def test_a_dead_letter_too_large_is_cut_marked_and_ledgered(who: str, kept: int) -> None:
    broker = FakeBroker()
    payload = (b"huge" if who == "client" else b"large") + b"x" * 70_000
    broker.request_bytes_max = kept
    if who == "broker":
        broker.verdict = lambda batch: (
            RefusedTooLargeError("x") if any(len(r.value) > kept for r in lettered(batch)) else None
        )
    acked: list[list[str]] = []
    async with running(broker) as publisher:
        publisher.dead_letter(rejected(payload), "not_json", "x", lambda: acked.append([r.topic for r in broker.log]))
        await asyncio.wait_for(publisher.wait_drained(), 30)
    (letter,) = lettered(broker.log)
    assert letter.value == payload[:kept]
    assert dict(letter.headers)["dead_letter.payload_bytes"] == str(len(payload)).encode()
    assert acked == [[DEAD_LETTERS, LEDGER_TOPIC]]
    ledgered = json.loads(broker.log[-1].value)
    assert (ledgered["cause"], ledgered["topic"], ledgered["records"]) == ("record_too_large", "mqtt:a", 1)
    assert ledgered["bytes"] == len(payload) - kept
    assert dict(broker.log[-1].headers) == {"reason": b"not_json"}


def lettered(records: list[Record]) -> list[Record]:
    return [given for given in records if given.topic == DEAD_LETTERS]


@pytest.mark.parametrize("error", [RefusedTooLargeError("x"), RefusedRecordError("x")])
async def test_where_no_dead_letter_can_be_written_the_ledger_says_so(error: RefusedRecordError) -> None:
    broker = FakeBroker()
    broker.verdict = lambda batch: error if lettered(batch) else None
    acked: list[str] = []
    async with running(broker) as publisher:
        publisher.dead_letter(rejected(b"x" * 2_000), "not_json", "x", lambda: acked.append("x"))
        publisher.offer(record(b"1"), lambda: acked.append("1"))
        await asyncio.wait_for(publisher.wait_drained(), 30)
    assert sorted(acked) == ["1", "x"]
    (written,) = [given for given in broker.log if given.topic == LEDGER_TOPIC]
    ledgered = json.loads(written.value)
    assert (ledgered["records"], ledgered["bytes"]) == (1, 2_000)
    assert dict(written.headers)["reason"].startswith(b"not_json, and no dead letter")


async def test_a_rejected_message_is_acknowledged_only_when_its_dead_letter_is() -> None:
    broker = FakeBroker()
    broker.unknown_topics = {DEAD_LETTERS}
    acked: list[bytes] = []
    async with running(broker, config(record_bytes_max=1_024)) as publisher:
        publisher.dead_letter(rejected(b"bad"), "not_json", "x", lambda: acked.append(b"bad"))
        publisher.offer(record(b"x" * 2_000), lambda: acked.append(b"large"))
        publisher.offer(record(b"1"), lambda: acked.append(b"1"))
        await until(lambda: b"1" in acked and publisher.problem() is not None)
        assert acked == [b"1"]
        assert f"topic {DEAD_LETTERS} takes no records" in str(publisher.problem())
        broker.unknown_topics = set()
        await asyncio.wait_for(publisher.wait_drained(), 30)
    assert acked == [b"1", b"bad", b"large"]


async def test_what_is_cut_is_acknowledged_only_when_the_ledger_says_so() -> None:
    broker = FakeBroker()
    broker.unknown_topics = {LEDGER_TOPIC}
    acked: list[bytes] = []
    loss = Loss("id", "record_too_large", "logs", 1, 500, RECEIVED_MS)
    async with running(broker) as publisher:
        publisher.dead_letter(rejected(b"beginning"), "line_too_long", "x", lambda: acked.append(b""), loss)
        await until(lambda: bool(lettered(broker.log)) and publisher.problem() is not None)
        assert acked == []
        broker.unknown_topics = set()
        await asyncio.wait_for(publisher.wait_drained(), 30)
    assert acked == [b""]
    assert dict(lettered(broker.log)[0].headers)["dead_letter.payload_bytes"] == b"509"
    assert json.loads(broker.log[-1].value)["id"] == "id"


async def test_routes_count_what_they_take_and_refuse() -> None:
    broker = FakeBroker()
    metrics = Metrics()
    publisher = Publisher(config(), metrics, "gateway@test", broker.start_producer)
    async with running_task(publisher.run()):
        for number in range(5):
            publisher.dead_letter(rejected(b"%d" % number), "not_json", "x", lambda: None)
        await asyncio.wait_for(publisher.wait_drained(), 30)
        assert publisher.routes.problem(time.monotonic()) == ("a/#: none of the last 5 messages can be used (not_json)")
        publisher.offer(rejected(b"good"), lambda: None)
        await asyncio.wait_for(publisher.wait_drained(), 30)
        assert publisher.routes.problem(time.monotonic()) is None
    sample = metrics.registry.get_sample_value
    assert sample("edge_gateway_dead_letters_total", {"route": "a/#", "reason": "not_json"}) == 5
    assert sample("edge_gateway_accepted_total", {"route": "a/#", "time_unit": "received"}) == 1


async def test_a_timestamp_the_broker_refuses_becomes_the_time_of_receipt() -> None:
    broker = FakeBroker()
    broker.verdict = lambda batch: RefusedTimestampError("x") if any(r.timestamp_ms > 5_000 for r in batch) else None
    async with running(broker) as publisher:
        for number, timestamp_ms in enumerate((1_000, 9_000, 1_000)):
            publisher.offer(record(b"%d" % number, timestamp_ms=timestamp_ms), lambda: None)
        await asyncio.wait_for(publisher.wait_drained(), 30)
    assert first_occurrences(values(broker)) == [b"0", b"1", b"2"]
    assert {given.timestamp_ms for given in broker.log} == {RECEIVED_MS}
    assert [dict(given.headers)["time_unit"] for given in broker.log if given.value == b"1"][-1] == b"received"


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


async def test_a_denied_topic_waits_alone_and_costs_no_producer() -> None:
    broker = FakeBroker()
    broker.verdict = lambda batch: DeniedTopicError("denied") if batch[0].topic == LEDGER_TOPIC else None
    acked: list[int] = []
    async with running(broker) as publisher:
        for number in range(3):
            loss = Loss(f"{number}", "record_too_large", "mqtt:x", 1, 1, 1)
            publisher.report(loss, lambda number=number: acked.append(-number), reason="test")
        for number in range(100):
            publisher.offer(record(b"%d" % number), lambda number=number: acked.append(number))
            await asyncio.sleep(0.001)
        await until(lambda: publisher.pending_records == 3)
        assert acked == list(range(100))
        assert f"topic {LEDGER_TOPIC} takes no records (denied)" in str(publisher.problem())
        assert len(broker.producers) == 1
        broker.verdict = lambda _batch: None
        await asyncio.wait_for(publisher.wait_drained(), 30)
        assert publisher.problem() is None
    assert acked[100:] == [0, -1, -2]
    assert values(broker) == [b"%d" % number for number in range(100)]
    assert [json.loads(given.value)["id"] for given in broker.log if given.topic == LEDGER_TOPIC] == ["0", "1", "2"]
    assert len(broker.producers) == 1


async def test_a_flood_of_records_too_large_costs_two_producers_not_two_each() -> None:
    broker = FakeBroker()
    broker.verdict = partial(broker_bound, 99)
    async with running(broker) as publisher:
        for number in range(30):
            publisher.offer(record(b"x" * 100), lambda: None)
            publisher.offer(record(b"%d" % number), lambda: None)
        await asyncio.wait_for(publisher.wait_drained(), 30)
        assert len(broker.producers) <= 4
        bound = publisher._topic_queues["t"].refused_bytes
        assert bound is not None
        publisher._topic_queues["t"].refused_s -= REFUSAL_KEPT_S + 1  # the bound is tried again
        broker.verdict = lambda _batch: None
        publisher.offer(record(b"y" * 100), lambda: None)
        await asyncio.wait_for(publisher.wait_drained(), 30)
    assert values(broker)[-1] == b"y" * 100
    assert len(lettered(broker.log)) == 30


def broker_bound(bytes_max: int, batch: list[Record]) -> BaseException | None:
    too_large = any(given.topic == "t" and len(given.value) > bytes_max for given in batch)
    return RefusedTooLargeError("x") if too_large else None


def marked(value: bytes) -> Record:
    return replace(record(value), boot=BootMoment("boot-a", 7))


async def test_the_mark_of_an_unset_clock_makes_no_dead_letter_of_a_record_within_the_bound() -> None:
    broker = FakeBroker()
    size = record(b"x" * 1_100).payload_bytes
    async with running(broker, config(record_bytes_max=size)) as publisher:
        publisher.offer(marked(b"x" * 1_100), lambda: None)
        publisher.offer(marked(b"x" * 1_101), lambda: None)
        await asyncio.wait_for(publisher.wait_drained(), 30)
    (kept,), (letter,) = [one for one in broker.log if one.topic == "t"], lettered(broker.log)
    assert (kept.value, kept.boot) == (b"x" * 1_100, BootMoment("boot-a", 7))
    assert letter.boot == BootMoment("boot-a", 7)


async def test_a_broker_without_room_for_the_mark_takes_the_record_without_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    broker = FakeBroker()
    bound = marked(b"x" * 100).sent_bytes
    broker.verdict = lambda batch: RefusedTooLargeError("x") if any(one.sent_bytes >= bound for one in batch) else None
    acked: list[int] = []
    async with running(broker) as publisher:
        for number in range(20):
            publisher.offer(marked(b"x" * 100), lambda number=number: acked.append(number))
            publisher.offer(marked(b"y"), lambda: None)
        await asyncio.wait_for(publisher.wait_drained(), 30)
    assert acked == list(range(20))
    assert lettered(broker.log) == []
    assert {(one.value[:1], one.boot is None) for one in broker.log} == {(b"x", True), (b"y", False)}
    assert len(broker.producers) <= 4, "the bound is learnt"
    assert "boot_mark_left_out" in caplog.text


async def test_a_record_too_large_without_its_mark_too_is_a_dead_letter_with_it() -> None:
    broker = FakeBroker()
    broker.verdict = partial(broker_bound, 99)
    async with running(broker) as publisher:
        publisher.offer(marked(b"x" * 100), lambda: None)
        await asyncio.wait_for(publisher.wait_drained(), 30)
    (letter,) = lettered(broker.log)
    assert letter.boot == BootMoment("boot-a", 7) or letter.moment == BootMoment("boot-a", 7)


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
