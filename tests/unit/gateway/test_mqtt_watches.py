"""Brokers that are no mosquitto: readings come in whatever they do to a subscription to `$SYS`, and the watches say so.

Invariants: a reading is taken and acknowledged; each watch is unknown, with the reason.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from prometheus_client import generate_latest

from drupelet.observe.watches import WatchState
from gateway.metrics import Metrics
from gateway.sources.mqtt import mqtt
from gateway.sources.mqtt.mosquitto import MosquittoWatch
from gateway.sources.mqtt.mqtt import MqttSource
from gateway.sources.mqtt.mqtt_session import MqttSession
from gateway.sources.mqtt.sys_signals import SysSignals
from tests.support.gateway.publisher import FakePublisher, config
from tests.support.scripted_mqtt import HANG_UP, Answer, ScriptedMqtt, granted
from tests.support.tasks import running_task
from tests.support.waiting import until


def is_sys(filters: list[str]) -> bool:
    return any(text.startswith("$SYS") for text in filters)


def refusing(filters: list[str]) -> bytes | None:
    return b"\x87" * len(filters) if is_sys(filters) else granted(filters)


def hanging_up(filters: list[str]) -> bytes | None:
    return HANG_UP if is_sys(filters) else granted(filters)


def silent(filters: list[str]) -> bytes | None:
    return None if is_sys(filters) else granted(filters)


class Publisher(FakePublisher):
    """Acknowledges nothing, has room always."""

    full = False

    def __init__(self) -> None:
        super().__init__()
        self.metrics = Metrics()


def source_of(tmp_path: Path, port: int, publisher: FakePublisher, keys: str = "") -> MqttSource:
    routes = f'[[mqtt.routes]]\npattern = "a/#"\ntopic = "t"\n{keys}'
    whole = config(tmp_path, f'[mqtt]\nport = {port}\nclient_id = "me"\n{routes}')
    assert whole.mqtt is not None
    signals = SysSignals("h:1")
    metrics = publisher.metrics if isinstance(publisher, Publisher) else Metrics()
    watch = MosquittoWatch(publisher.as_publisher(), tmp_path / "m.json", "me", metrics, signals=signals)
    session = MqttSession(tmp_path, "me")
    return MqttSource(whole.mqtt, publisher.as_publisher(), watch, metrics, session)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (refusing, "refuses $SYS/broker/uptime (Not authorized)"),
        (hanging_up, "refuses $SYS/broker/uptime (it ends the connection for that)"),
        (silent, "refuses $SYS/broker/uptime (it does not answer that)"),
        (granted, "sends no $SYS/broker/uptime"),
    ],
)
async def test_readings_come_in_whatever_becomes_of_sys(
    answer: Answer, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mqtt, "SYS_ANSWER_S", 0.2)
    monkeypatch.setattr("gateway.sources.mqtt.sys_signals.FIRST_S", 0.2)
    publisher = Publisher()
    async with ScriptedMqtt(answer) as broker:
        source = source_of(tmp_path, broker.port, publisher)
        async with running_task(source.run()):
            await until(lambda: all(reason in watch.reason for watch in source.watches()))
            await until(lambda: source.problem() is None)
            broker.publish("a/b", b"1")
            await until(lambda: publisher.records)
            assert [watch.state for watch in source.watches()] == [WatchState.UNKNOWN] * 2
            assert broker.connections <= 3


async def test_a_refused_route_is_still_a_problem(tmp_path: Path) -> None:
    async with ScriptedMqtt(lambda filters: b"\x87" * len(filters)) as broker:
        source = source_of(tmp_path, broker.port, Publisher())
        async with running_task(source.run()):
            await until(lambda: "refuses a subscription (Not authorized)" in str(source.problem()))
            assert not any(is_sys(filters) for filters in broker.subscribed)


async def test_a_time_that_is_there_and_no_time_is_noted_and_counted(tmp_path: Path) -> None:
    publisher = Publisher()
    async with ScriptedMqtt(granted) as broker:
        source = source_of(tmp_path, broker.port, publisher, 'timestamp_field = "t"\n')
        async with running_task(source.run()):
            await until(lambda: source.problem() is None)
            broker.publish("a/b", b'{"t": "15/02/2018 01:00"}')
            await until(lambda: publisher.records)
            assert "a/#: t is there, but no time" in str(source.note())
    text = generate_latest(publisher.metrics.registry).decode()
    assert 'edge_gateway_times_unread_total{route="a/#"} 1.0' in text
