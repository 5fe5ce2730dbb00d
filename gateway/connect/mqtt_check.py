"""Try mosquitto for `check --connect`: authentication, then whether the watches of its losses receive a signal.

Each check has sessions of its own, which end with it. The watch of oversized packets needs a client that connects, so
the check opens a second connection. It publishes nothing. Source: MQTT 5.0, section 3.2; sys_signals.py.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode, MQTTProtocolVersion

from drupelet.errors import ConfigurationError
from drupelet.kafka.connection import TIMEOUT_S, End, NotConnected
from drupelet.kafka.connection_errors import explain
from drupelet.observe.watches import Watch, WatchState
from gateway.config import MqttConfig
from gateway.sources.mqtt.mqtt import explain_reason, hung_up, read_password, tls_context
from gateway.sources.mqtt.sys_signals import (
    DROPPED_TOPIC,
    FIRST_S,
    LOG_TOPIC,
    UPTIME_TOPIC,
    SysSignals,
    watched_topics,
)


def try_mosquitto(config: MqttConfig) -> Iterator[End]:
    """Authenticate at mosquitto, and wait for the signals that the gateway's watches need."""
    name = f"mqtt {config.host}:{config.port}"
    try:
        client = _logged_in(config)
    except NotConnected as trouble:
        yield End(name, str(trouble))
    except ConfigurationError as error:
        yield End(name, f"is not tried, as {error}")
    except OSError as error:
        yield End(name, explain(error))
    else:
        yield End(name, None)
        try:
            yield from (End(f"watch {watch.name}", _silence(watch)) for watch in _watches(client, config))
        finally:
            client.disconnect()


def _silence(watch: Watch) -> str | None:
    return None if watch.state is WatchState.OK else f"is unknown: {watch.reason or 'nothing arrived'}"


def _watches(client: paho.Client, config: MqttConfig) -> list[Watch]:
    """Subscribe to `$SYS` and return the watches, once all are ok or FIRST_S have passed."""
    signals = SysSignals(f"{config.host}:{config.port}", drops=config.watch_drops, oversize=config.watch_oversize)
    topics = watched_topics(drops=config.watch_drops, oversize=config.watch_oversize)
    if not topics:
        return []
    asked: list[tuple[str, dict[str, str]]] = []
    client.on_message = lambda _client, _data, message: _hear(signals, message.topic)
    client.on_subscribe = lambda _client, _data, _mid, reasons, _properties: asked.append(
        ("", {topic: str(code) for topic, code in zip(topics, reasons, strict=False) if code.is_failure})
    )
    client.subscribe([(topic, 0) for topic in topics])
    began_s = time.monotonic()
    _loop(client, lambda: bool(asked), TIMEOUT_S)
    refused = asked[0][1] if asked else dict.fromkeys(topics, "it ends the connection, or does not answer")
    signals.suback_received(began_s, refused)
    if config.watch_oversize and not refused:
        signals.expect_notice()
        with suppress(OSError, NotConnected, ConfigurationError):
            _logged_in(config).disconnect()
    _loop(client, lambda: all(watch.state is WatchState.OK for watch in signals.watches(began_s)), FIRST_S)
    return signals.watches(began_s + FIRST_S)


def _hear(signals: SysSignals, topic: str) -> None:
    if topic == LOG_TOPIC:
        signals.notice()
    elif topic == UPTIME_TOPIC:
        signals.uptime(0, time.monotonic())
    elif topic == DROPPED_TOPIC:
        signals.drops_received()
    else:
        signals.connections(0.0, retained=True)


def _loop(client: paho.Client, done: Callable[[], bool], timeout_s: float) -> None:
    until_s = time.monotonic() + timeout_s
    while not done() and time.monotonic() < until_s and client.loop(0.1) == MQTTErrorCode.MQTT_ERR_SUCCESS:
        pass


def _logged_in(config: MqttConfig) -> paho.Client:
    """Return an authenticated client; raises NotConnected, ConfigurationError or OSError."""
    answers: list[str] = []
    client = paho.Client(CallbackAPIVersion.VERSION2, protocol=MQTTProtocolVersion.MQTTv5, reconnect_on_failure=False)
    client.connect_timeout = TIMEOUT_S
    client.on_connect = lambda _client, _data, _flags, reason, _properties: answers.append(
        explain_reason(str(reason), config) if reason.is_failure else ""
    )
    if config.username is not None:
        client.username_pw_set(config.username, read_password(config))
    if config.tls:
        client.tls_set_context(tls_context(config))
    client.connect(config.host, config.port, keepalive=config.keepalive_s, clean_start=True)
    _loop(client, lambda: bool(answers), TIMEOUT_S)
    if answers == [""]:
        return client
    client.disconnect()
    raise NotConnected(f"was reached, but {answers[0]}" if answers else hung_up(config))
