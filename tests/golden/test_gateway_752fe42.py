"""What the gateway at 752fe42 knew of mosquitto, and what it wrote, is read and written as it was.

`gateway_752fe42` has its configuration, its state directory after a queue of mosquitto had overflowed, and each record.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gateway.config import load_config
from gateway.metrics import Metrics
from gateway.records.dead_letters import dead_letter
from gateway.records.records import Loss, Record
from gateway.routing.routes import Message, Rejection, route_message
from gateway.sources.mqtt.mosquitto import MosquittoWatch
from gateway.sources.mqtt.mqtt_session import MqttSession
from tests.support.gateway.publisher import FakePublisher
from tests.support.golden import GOLDEN, expected
from tests.support.tasks import running_task
from tests.support.waiting import until

DIRECTORY = GOLDEN / "gateway_752fe42"
THEN: dict[str, Any] = expected(DIRECTORY / "gateway.json")
SUBSCRIPTIONS = [
    "$SYS/broker/log/N",
    "$SYS/broker/publish/messages/dropped",
    "$SYS/broker/uptime",
    "events/#",
    "sites/+/devices/+/readings",
]


@pytest.fixture
def state_dir(tmp_path: Path) -> Path:
    for name, content in THEN["states"].items():
        path = tmp_path / "state" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(content))
    return tmp_path / "state"


@pytest.fixture
def then_config(tmp_path: Path) -> Path:
    path = tmp_path / "gateway.toml"
    path.write_text((DIRECTORY / "gateway.toml").read_text())
    return path


async def test_the_session_in_mosquitto_stays_the_gateways(state_dir: Path) -> None:
    session = MqttSession(state_dir, None)
    assert (session.client_id, session.changes, session.left_behind) == ("drupelet-golden", 0, None)
    assert session.outdated_filters([]) == SUBSCRIPTIONS
    assert MqttSession(state_dir, "another").left_behind == "drupelet-golden"
    await session.save_subscriptions(SUBSCRIPTIONS[:-1])
    now = json.loads((state_dir / "mqtt-session.json").read_text())
    assert now == {**THEN["states"]["mqtt-session.json"], "subscriptions": SUBSCRIPTIONS[:-1]}


async def watched(state_dir: Path, dropped: int, *, session: bool) -> list[Loss]:
    """The losses that are reported once mosquitto, which has run on, tells so many drops."""
    publisher = FakePublisher()
    uptime_s, started_ms = 1000, THEN["states"]["mosquitto.json"]["started_ms"]
    watch = MosquittoWatch(
        publisher.as_publisher(),
        state_dir / "mosquitto.json",
        "drupelet-golden",
        Metrics(),
        now_ms=lambda: started_ms + uptime_s * 1000,
    )
    async with running_task(watch.run()):
        watch.session_started(session)
        watch.message_received("$SYS/broker/publish/messages/dropped", b"%d" % dropped)
        watch.message_received("$SYS/broker/uptime", b"%d seconds" % uptime_s)
        await until(lambda: _saved(state_dir)["dropped"] == dropped and watch.noted.is_set())
    return [loss for loss, _ in publisher.losses]


def _saved(state_dir: Path) -> Any:
    return json.loads((state_dir / "mosquitto.json").read_text())


@pytest.mark.parametrize(("dropped", "session", "told"), [(15, True, []), (18, True, [3]), (15, False, [None])])
async def test_drops_that_were_reported_are_reported_once(
    state_dir: Path, dropped: int, session: bool, told: list[int | None]
) -> None:
    losses = await watched(state_dir, dropped, session=session)
    assert [(loss.cause, loss.records) for loss in losses] == [("mqtt_queue_dropped", records) for records in told]
    assert THEN["states"]["mosquitto.json"].keys() <= _saved(state_dir).keys()


def received_ms(headers: list[list[str]]) -> int:
    return int(dict(headers)["received_ms"])


def as_read(record: Record) -> list[Any]:
    """A record as a consumer has it."""
    headers = [[name, value.decode()] for name, value in record.headers]
    return [record.key.decode(), record.value.decode(), headers, record.timestamp_ms]


def routed(config: Path, topic: str, payload: str, received: int) -> Record | Rejection:
    mqtt = load_config(config).mqtt
    assert mqtt is not None
    return route_message(mqtt.routes, Message(topic, payload.encode(), received, (("mqtt.qos", b"1"),)))


@pytest.mark.parametrize(("at", "topic", "number"), [(0, "readings", 0), (1, "readings", 1), (3, "events", 0)])
def test_a_message_becomes_the_record_that_it_became(then_config: Path, at: int, topic: str, number: int) -> None:
    then = THEN["records"][topic][number]
    record = routed(then_config, *THEN["messages"][at], received_ms(then[2]))
    assert isinstance(record, Record)
    assert (record.topic, as_read(record)) == (topic, then)


def test_a_message_that_cannot_be_used_becomes_the_dead_letter_that_it_became(then_config: Path) -> None:
    (then,) = THEN["records"]["dead_letters"]
    rejected = routed(then_config, *THEN["messages"][2], received_ms(then[2]))
    assert isinstance(rejected, Rejection)
    letter = dead_letter(rejected.record, "dead_letters", rejected.reason, rejected.detail)
    assert as_read(letter) == then


def test_a_loss_is_written_as_it_was() -> None:
    ((key, value, headers, timestamp_ms),) = THEN["records"]["__edge_ledger"]
    fields = json.loads(value)
    loss = Loss(key, fields["cause"], fields["topic"], fields["records"], fields["bytes"], fields["time_ms"])
    record = loss.to_record(fields["node"], dict(headers)["reason"])
    assert (record.topic, as_read(record)) == ("__edge_ledger", [key, value, headers, timestamp_ms])
    assert (fields["cause"], fields["records"]) == ("mqtt_queue_dropped", 15)
