"""MQTT through mosquitto: a message is acknowledged to mosquitto after the Kafka broker's acks=all, never before.

| what | how |
|---|---|
| session | MQTT 5, fixed client id, clean start off, never expires: mosquitto keeps what arrives while we are away |
| QoS | subscribed at QoS 1: at QoS 2 mosquitto forgets a message at PUBREC, which paho sends before it is safe |
| memory | at most `receive_maximum` unacknowledged messages; while the publisher is full, the socket is not read |
| reconnect | a fresh paho client each time: an answer that belongs to an old connection dies with its client |
| redelivery | what is known inside is not taken in twice: it is acknowledged on the new connection, once safe |

paho runs on the asyncio loop (its external-loop interface), without its thread. Only connecting, which blocks, happens
in a worker thread. Source: MQTT 5.0, sections 4.3 and 4.4.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode
from paho.mqtt.subscribeoptions import SubscribeOptions

from drupelet.backoff import Backoff
from drupelet.errors import ConfigurationError, sentence
from drupelet.log_tree import Log
from gateway import dead_letters
from gateway.config import MqttConfig
from gateway.metrics import Metrics
from gateway.publisher import Publisher
from gateway.records import Record
from gateway.routing import reject, route_message, subscriptions
from gateway.sources.mosquitto import SYS_TOPICS, MosquittoWatch

SESSION_NEVER_EXPIRES = 0xFFFFFFFF
PACKETS_PER_TURN = 20
CONNECT_TIMEOUT_S = 10.0
PASSWORD_BYTES_MAX = 4_096
_log = Log("gateway.mqtt")


@dataclass(slots=True, eq=False)
class _Unacked:
    topic: str
    payload: bytes
    client: paho.Client
    safe: bool = False  # on disk, but the connection to say so was gone


class MqttSource:
    """Reads mosquitto into the publisher; `run` reconnects for ever until cancelled."""

    name = "mqtt"

    def __init__(self, config: MqttConfig, publisher: Publisher, watch: MosquittoWatch, metrics: Metrics) -> None:
        self._config = config
        self._publisher = publisher
        self._watch = watch
        self._metrics = metrics
        self._unacked: dict[int, _Unacked] = {}
        self._connection: _Connection | None = None
        self._trouble: str | None = "not connected yet"
        self._stopping = False
        read_password(config)  # say now, not at the first connection, that it cannot be read
        self.ready = asyncio.Event()

    def problem(self) -> str | None:
        """Say in one line why nothing is read from mosquitto, or None."""
        if self._trouble is None:
            return self._watch.trouble
        return f"mosquitto at {self._config.host}:{self._config.port}: {self._trouble}"

    async def run(self) -> None:
        """Connect, read, and connect again when the connection ends; mosquitto's losses are reported beside it."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._watch.run())
            group.create_task(self._read())

    async def _read(self) -> None:
        backoff = Backoff()
        while True:
            try:
                await self._run_connection(backoff)
            except (OSError, MqttFailure, ConfigurationError) as error:
                self._trouble = sentence(error)
            _log.warning("disconnected", host=self._config.host, port=self._config.port, reason=self._trouble)
            await asyncio.sleep(backoff.next_s())

    def stop_reading(self) -> None:
        """Read no more; acknowledgements still go out."""
        self._stopping = True
        if self._connection is not None:
            self._connection.pause()

    async def _run_connection(self, backoff: Backoff) -> None:
        connection = _Connection(self._config, partial(self._subscribed, backoff), self._received)
        try:
            await connection.open()
            self._connection = connection
            self._metrics.mqtt_connections.inc()
            keeper = asyncio.ensure_future(self._resume_with_room(connection))
            try:
                self._trouble = await connection.ended()
            finally:
                keeper.cancel()
                await asyncio.gather(keeper, return_exceptions=True)
        finally:
            self._connection = None
            self._metrics.mqtt_connected.set(0)
            await connection.close()

    async def _resume_with_room(self, connection: _Connection) -> None:
        while not self._stopping:
            await connection.paused.wait()
            await self._publisher.room()
            if not self._stopping:
                connection.resume()

    def _subscribed(self, backoff: Backoff, session_present: bool) -> None:
        backoff.reset()
        if not session_present:
            self._unacked.clear()  # packet ids start anew: what waits inside will be acknowledged to nobody
        self._watch.session_started(session_present)
        self._trouble = None
        self._metrics.mqtt_connected.set(1)
        _log.info("subscribed", host=self._config.host, port=self._config.port, session_present=session_present)
        self.ready.set()

    def _received(self, connection: _Connection, message: paho.MQTTMessage) -> None:
        topic, payload = _topic_of(message), bytes(message.payload)
        if topic in SYS_TOPICS:
            self._watch.received(topic, payload)
            return
        on_acked: Callable[[], None] = _nothing
        if message.qos > 0:
            if self._is_waiting(connection.client, message, topic):
                return
            unacked = self._unacked[message.mid] = _Unacked(topic, payload, connection.client)
            on_acked = partial(self._acknowledge, message.mid, message.qos, unacked)
        self._take(topic, payload, on_acked, sound=_is_utf8(message))
        if self._publisher.full:
            connection.pause()

    def _is_waiting(self, client: paho.Client, message: paho.MQTTMessage, topic: str) -> bool:
        """Whether this is a redelivery of what still waits for the broker; then it is acknowledged here when safe."""
        if not message.dup:
            return False
        self._metrics.mqtt_redelivered.inc()
        unacked = self._unacked.get(message.mid)
        if unacked is None or (unacked.topic, unacked.payload) != (topic, message.payload):
            return False
        unacked.client = client
        if unacked.safe:
            self._acknowledge(message.mid, message.qos, unacked)
        return True

    def _take(self, topic: str, payload: bytes, on_acked: Callable[[], None], *, sound: bool) -> None:
        now_ms = time.time_ns() // 1_000_000
        if sound:
            routed = route_message(self._config.routes, topic, payload, now_ms)
        else:
            detail = "the MQTT topic is not UTF-8"
            routed = reject(topic, payload, now_ms, dead_letters.REASON_TOPIC_NOT_UTF8, detail)
        if isinstance(routed, Record):
            self._publisher.offer(routed, on_acked)
        else:
            self._publisher.dead_letter(routed.record, routed.reason, routed.detail, on_acked)

    def _acknowledge(self, mid: int, qos: int, unacked: _Unacked) -> None:
        if self._unacked.get(mid) is not unacked:
            return  # of a session that is no more
        # Not in the order of receipt across Kafka topics: a topic that is stuck must not hold the others' PUBACKs
        unacked.safe = True
        if self._connection is not None and self._connection.client is unacked.client:
            del self._unacked[mid]
            unacked.client.ack(mid, qos)


def _topic_of(message: paho.MQTTMessage) -> str:
    """Return the topic; bytes that are no UTF-8, which paho lets through and raises for here, are written as \\xNN."""
    return message.topic if _is_utf8(message) else message._topic.decode("utf-8", "backslashreplace")


def _is_utf8(message: paho.MQTTMessage) -> bool:
    try:
        return message.topic is not None
    except UnicodeDecodeError:
        return False


def _nothing() -> None:
    """QoS 0: nobody waits for an answer."""


class MqttFailure(Exception):
    """mosquitto refused the connection or a subscription."""


class _Connection:
    """One paho client on the asyncio loop, from connecting to the end of its connection."""

    def __init__(
        self,
        config: MqttConfig,
        on_subscribed: Callable[[bool], None],
        on_message: Callable[[_Connection, paho.MQTTMessage], None],
    ) -> None:
        self._config = config
        self._loop = asyncio.get_running_loop()
        self._on_subscribed = on_subscribed
        self._on_message = on_message
        self._socket: socket.socket | None = None
        self._end: asyncio.Future[str] = self._loop.create_future()
        self._misc: asyncio.Task[None] | None = None
        self._session_present = False
        self.paused = asyncio.Event()
        self.client = paho.Client(
            CallbackAPIVersion.VERSION2,
            client_id=config.client_id,
            protocol=MQTTProtocolVersion.MQTTv5,
            manual_ack=True,
            reconnect_on_failure=False,
        )
        self.client.connect_timeout = CONNECT_TIMEOUT_S
        self.client.on_connect = self._connected
        self.client.on_subscribe = self._subscribe_answered
        self.client.on_message = self._message
        self.client.on_disconnect = self._disconnected

    async def open(self) -> None:
        """Connect; raises OSError. CONNACK and SUBACK follow on the loop."""
        if self._config.username is not None:
            self.client.username_pw_set(self._config.username, read_password(self._config))
        untyped: Any = Properties  # paho leaves its constructor without types
        properties = untyped(PacketTypes.CONNECT)
        properties.SessionExpiryInterval = SESSION_NEVER_EXPIRES
        properties.ReceiveMaximum = self._config.receive_maximum
        connect = partial(
            self.client.connect,
            self._config.host,
            self._config.port,
            self._config.keepalive_s,
            clean_start=False,
            properties=properties,
        )
        await asyncio.to_thread(connect)
        sock = self.client.socket()
        if not isinstance(sock, socket.socket):
            raise MqttFailure("the connection ended at once")
        self._socket = sock
        self.client.on_socket_register_write = lambda *_: self._loop.add_writer(sock, self.client.loop_write)
        self.client.on_socket_unregister_write = lambda *_: self._remove_writer(sock)
        self.client.on_socket_close = lambda *_: self._forget_socket()
        if self.client.want_write():
            self._loop.add_writer(sock, self.client.loop_write)
        self._loop.add_reader(sock, self._readable)
        self._misc = asyncio.ensure_future(self._run_misc())

    async def ended(self) -> str:
        """Wait for the end of the connection and return why it ended; raises MqttFailure when it was refused."""
        return await self._end

    async def close(self) -> None:
        """Say goodbye where that is still possible, keeping the session, and let go of the socket."""
        if self._misc is not None:
            self._misc.cancel()
            await asyncio.gather(self._misc, return_exceptions=True)
        if self._socket is not None and self.client.disconnect() == MQTTErrorCode.MQTT_ERR_SUCCESS:
            with contextlib.suppress(TimeoutError):  # a peer that takes nothing gets no goodbye
                await asyncio.wait_for(asyncio.shield(self._end), 1.0)
        self._forget_socket()
        self.client.on_socket_close = None
        self.client._sock_close()  # paho closes its socket only at the end of a clean goodbye
        if self._end.done() and not self._end.cancelled():
            self._end.exception()

    def pause(self) -> None:
        """Read no more until `resume`."""
        if self._socket is not None:
            self._loop.remove_reader(self._socket)
            self.paused.set()

    def resume(self) -> None:
        """Read on."""
        self.paused.clear()
        if self._socket is not None:
            self._loop.add_reader(self._socket, self._readable)
            self._readable()  # at once, so that paho hears the peer before it next asks how long it was silent

    def _remove_writer(self, sock: socket.socket) -> None:
        self._loop.remove_writer(sock)

    def _forget_socket(self) -> None:
        if self._socket is not None:
            self._loop.remove_reader(self._socket)
            self._loop.remove_writer(self._socket)
            self._socket = None

    def _readable(self) -> None:
        for _ in range(PACKETS_PER_TURN):
            if self._socket is None or self.paused.is_set():
                return
            self.client.loop_read()
            if not _has_more(self._socket):
                return

    async def _run_misc(self) -> None:
        pinged_s = self._loop.time()
        while True:
            await asyncio.sleep(1)
            # While paused no PINGRESP is read, and paho would take the silence for a dead connection. mosquitto must
            # hear from us all the same, or it hangs up, and what waits inside would be delivered and sent twice
            if not self.paused.is_set():
                self.client.loop_misc()
            elif self._loop.time() - pinged_s >= self._config.keepalive_s / 2:
                self.client._send_pingreq()
                pinged_s = self._loop.time()

    def _finish(self, reason: str) -> None:
        if not self._end.done():
            self._end.set_result(reason)

    def _refuse(self, sentence: str) -> None:
        if not self._end.done():
            self._end.set_exception(MqttFailure(sentence))

    def _connected(
        self, client: paho.Client, _data: Any, flags: paho.ConnectFlags, reason: ReasonCode, _properties: Any
    ) -> None:
        if reason.is_failure:
            self._refuse(f"it refuses the connection: {reason}")
            return
        self._session_present = flags.session_present
        wanted = SubscribeOptions(qos=1, retainHandling=SubscribeOptions.RETAIN_SEND_IF_NEW_SUB)
        topics = [(topic_filter, wanted) for topic_filter in subscriptions(self._config.routes)]
        if self._config.watch_drops:
            topics += [(topic, SubscribeOptions(qos=0)) for topic in SYS_TOPICS]
        client.subscribe(topics)

    def _subscribe_answered(
        self, _client: paho.Client, _data: Any, _mid: int, reasons: list[ReasonCode], _properties: Any
    ) -> None:
        refused = [str(reason) for reason in reasons if reason.is_failure]
        if refused:
            self._refuse(f"it refuses a subscription: {refused[0]}")
            return
        self._on_subscribed(self._session_present)

    def _message(self, _client: paho.Client, _data: Any, message: paho.MQTTMessage) -> None:
        self._on_message(self, message)

    def _disconnected(
        self, _client: paho.Client, _data: Any, _flags: Any, reason: ReasonCode, _properties: Any
    ) -> None:
        self._finish(str(reason))


def _has_more(sock: socket.socket | None) -> bool:
    if sock is None:  # closed by what was just read
        return False
    try:
        return len(sock.recv(1, socket.MSG_PEEK)) > 0
    except OSError:
        return False  # nothing there now, or broken, which the next read event tells paho


def read_password(config: MqttConfig) -> str | None:
    """Return the first line of the password file; raises ConfigurationError when it cannot be read."""
    if config.password_file is None:
        return None
    try:
        with config.password_file.open(encoding="utf-8") as file:
            return file.read(PASSWORD_BYTES_MAX).split("\n", 1)[0]
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"mqtt.password_file {config.password_file} cannot be read: {error}.") from error
