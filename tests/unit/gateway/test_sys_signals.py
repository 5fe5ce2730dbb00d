"""Whether the gateway can hear what mosquitto says of its losses; times and messages are the test's.

Invariants:
- `ok` only while every signal that the watch needs has been heard, and not too long ago;
- silence has a bound, which follows mosquitto's own interval;
- no client, however often it connects, makes the watch of notices deaf while its notices arrive, nor an absent one.
"""

from __future__ import annotations

import math

from hypothesis import given, settings
from hypothesis import strategies as st

from drupelet.observe.watches import Watch, WatchState, health_text
from gateway.sources.mqtt.sys_signals import (
    DROPPED_TOPIC,
    DROPS,
    FIRST_S,
    OVERSIZE,
    UPTIME_TOPIC,
    SysSignals,
    watched_topics,
)


class Mosquitto:
    """What mosquitto 2.0 publishes in `$SYS`, every `interval_s`, into the signals."""

    def __init__(self, interval_s: int = 10, *, publishes_log: bool = True) -> None:
        self.signals = SysSignals("h:1")
        self.interval_s = interval_s
        self.publishes_log = publishes_log
        self.now_s = 1000.0
        self.uptime_s = 0
        self.load = self.shown = 0.0
        self.connected = 0

    def subscribe(self, refused: dict[str, str] | None = None) -> None:
        self.signals.suback_received(self.now_s, refused or {})
        self.connected += 1

    def send_retained(self) -> None:
        self.signals.uptime(self.uptime_s, self.now_s)
        self.signals.drops_received()
        self.signals.connections(self.shown, retained=True)

    def connect(self, clients: int = 1) -> None:
        self.connected += clients
        for _ in range(clients if self.publishes_log else 0):
            self.signals.notice()

    def tick(self) -> None:
        self.now_s += self.interval_s
        self.uptime_s += self.interval_s
        count = self.connected / self.interval_s * 60
        load = count + math.exp(-self.interval_s / 60) * (self.load - count)
        self.signals.uptime(self.uptime_s, self.now_s)
        if abs(load - self.load) >= 0.01:
            self.shown = round(load, 2)
            self.signals.connections(self.shown, retained=False)
        self.load, self.connected = load, 0

    def watch(self, name: str) -> Watch:
        return next(watch for watch in self.signals.watches(self.now_s) if watch.name == name)

    def states(self) -> list[str]:
        return [watch.state.value for watch in self.signals.watches(self.now_s)]


def test_unknown_until_it_is_heard_and_named_after_a_while() -> None:
    mosquitto = Mosquitto()
    assert mosquitto.states() == ["unknown", "unknown"]
    mosquitto.subscribe()
    assert mosquitto.states() == ["unknown"] * 2
    assert health_text(mosquitto.signals.watches(mosquitto.now_s)) == (
        "unknown: mqtt_drops, mqtt_oversize: nothing heard yet of mosquitto at h:1, which has 5 s for it"
    )
    assert all(watch.is_early for watch in mosquitto.signals.watches(mosquitto.now_s)), "no line in the log yet"
    mosquitto.now_s += FIRST_S
    assert health_text(mosquitto.signals.watches(mosquitto.now_s)) == (
        "unknown: mqtt_drops, mqtt_oversize: mosquitto at h:1 sends no $SYS/broker/uptime: let this user read $SYS/#, "
        "set sys_interval in mosquitto.conf, or accept that by mqtt.watch_drops and mqtt.watch_oversize = false"
    )
    mosquitto.send_retained()
    assert mosquitto.states() == ["ok", "ok"]
    mosquitto.signals.connection_ended()
    assert mosquitto.states() == ["unknown", "unknown"]


def test_the_count_without_the_uptime_is_not_enough() -> None:
    mosquitto = Mosquitto()
    mosquitto.subscribe()
    mosquitto.signals.drops_received()
    mosquitto.now_s += FIRST_S
    assert UPTIME_TOPIC in mosquitto.watch(DROPS).reason
    mosquitto.signals.uptime(1, mosquitto.now_s)
    assert mosquitto.states() == ["ok", "unknown"]


def test_a_refused_subscription_is_named() -> None:
    mosquitto = Mosquitto()
    mosquitto.subscribe({DROPPED_TOPIC: "Not authorized"})
    mosquitto.send_retained()
    assert mosquitto.states() == ["unknown", "ok"]
    assert "refuses $SYS/broker/publish/messages/dropped (Not authorized)" in mosquitto.watch(DROPS).reason


def test_silence_is_told_from_well_by_mosquitto_s_own_interval() -> None:
    mosquitto = Mosquitto(interval_s=60)
    mosquitto.subscribe()
    mosquitto.send_retained()
    mosquitto.tick()
    for _ in range(3):
        mosquitto.now_s += 60
        assert mosquitto.states() == ["ok", "ok"]
    mosquitto.now_s += FIRST_S + 1
    assert "has sent no $SYS/broker/uptime for 186 s" in mosquitto.watch(DROPS).reason
    assert mosquitto.states() == ["unknown", "unknown"]
    mosquitto.signals.reading_resumed(mosquitto.now_s)  # it was the gateway that did not read
    assert mosquitto.states() == ["ok", "ok"]


def test_notices_that_do_not_arrive_while_clients_connect() -> None:
    mosquitto = Mosquitto(publishes_log=False)
    mosquitto.subscribe()
    mosquitto.send_retained()
    for _ in range(20):  # the gateway's own connection is no proof
        mosquitto.tick()
        assert mosquitto.states() == ["ok", "ok"]
    mosquitto.connect()
    mosquitto.tick()
    assert mosquitto.states() == ["ok", "unknown"]
    assert "log_dest topic" in mosquitto.watch(OVERSIZE).reason
    mosquitto.publishes_log = True  # its configuration was mended
    mosquitto.connect()
    assert mosquitto.states() == ["ok", "ok"]


def test_clients_that_connect_evenly_are_noticed_too() -> None:
    mosquitto = Mosquitto(publishes_log=False)
    for _ in range(100):  # the figure stands still
        mosquitto.connect(10)
        mosquitto.tick()
    mosquitto.signals.connection_ended()
    mosquitto.subscribe()
    mosquitto.send_retained()
    for _ in range(12):
        mosquitto.connect(10)
        mosquitto.tick()
    mosquitto.connect(11)
    mosquitto.tick()
    assert mosquitto.watch(OVERSIZE).state is WatchState.UNKNOWN


@settings(deadline=None)
@given(st.integers(1, 60), st.lists(st.sampled_from([0, 0, 0, 1, 2, 50]), max_size=60), st.booleans())
def test_no_false_alarm_and_no_silence(interval_s: int, clients: list[int], publishes_log: bool) -> None:
    mosquitto = Mosquitto(interval_s, publishes_log=publishes_log)
    mosquitto.subscribe()
    mosquitto.send_retained()
    mosquitto.tick()
    for count in clients:
        mosquitto.connect(count)
        mosquitto.tick()
        if publishes_log:
            assert mosquitto.states() == ["ok", "ok"]
    if not publishes_log and not any(clients):
        assert mosquitto.states() == ["ok", "ok"]
    if not publishes_log and any(clients):
        assert mosquitto.states() == ["ok", "unknown"]


def test_only_the_watches_that_are_wanted_subscribe() -> None:
    assert watched_topics(drops=False, oversize=False) == []
    assert watched_topics(drops=True, oversize=False) == [UPTIME_TOPIC, DROPPED_TOPIC]
    assert [watch.name for watch in SysSignals("h:1", drops=False).watches(0.0)] == [OVERSIZE]
