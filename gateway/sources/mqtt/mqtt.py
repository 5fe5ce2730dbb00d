"""Read MQTT from mosquitto: acknowledge a message after the Kafka broker's acks=all, never before.

| topic | rule |
|---|---|
| session | MQTT 5, fixed client id, clean start off, never expires: mosquitto queues for an absent gateway |
| QoS | subscribed at QoS 1: at QoS 2 mosquitto forgets a message at PUBREC, which paho sends before it is safe |
| memory | at most `receive_maximum` unacknowledged messages; while the publisher is full, the socket is not read |
| subscriptions | the gateway ends those that the configuration no longer names, see `mqtt_session` |
| reconnect | a new paho client each time: it never sees an answer of an old connection |
| redelivery | a pending message is not accepted twice: it is acknowledged on the new connection, once on disk |

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
from typing import TYPE_CHECKING, Any

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode
from paho.mqtt.subscribeoptions import SubscribeOptions

from drupelet.backoff import Backoff
from drupelet.errors import ConfigurationError, sentence
from drupelet.kafka.connection_errors import explain
from drupelet.observe.log_tree import Log
from drupelet.observe.watches import Watch
from drupelet.tls.file_reads import AT_ONCE_S
from drupelet.tls.secret_files import first_line
from gateway.config import MqttConfig
from gateway.kafka.publisher import Publisher
from gateway.metrics import Metrics
from gateway.records import dead_letters
from gateway.records.records import NO_TIME, Record
from gateway.routing.route_status import OverlookedTimes
from gateway.routing.routes import Message, reject, route_message, subscriptions
from gateway.sources.mqtt.mosquitto import SYS_TOPICS, MosquittoWatch
from gateway.sources.mqtt.mqtt_messages import headers_of, is_utf8, topic_of
from gateway.sources.mqtt.mqtt_session import ConnectionEnds, MqttSession
from gateway.sources.mqtt.sys_signals import watched_topics
from gateway.times.timestamps import RECEIVED

if TYPE_CHECKING:
    import ssl

SESSION_NEVER_EXPIRES = 0xFFFFFFFF
PACKETS_PER_TURN = 20
CONNECT_TIMEOUT_S = 10.0
SYS_ANSWER_S = 10.0
SYS_RETRY_S = 600.0  # delay of the next subscription to $SYS if mosquitto closes the connection on it
_log = Log("gateway.mqtt")


@dataclass(slots=True, eq=False)
class _UnackedMessage:
    topic: str
    payload: bytes
    client: paho.Client
    safe: bool = False  # on disk, but the connection for its PUBACK was gone


class MqttSource:
    """Publishes messages from mosquitto; `run` reconnects until cancelled."""

    name = "mqtt"

    def __init__(
        self,
        config: MqttConfig,
        publisher: Publisher,
        watch: MosquittoWatch,
        metrics: Metrics,
        session: MqttSession,
    ) -> None:
        self._config = config
        self._publisher = publisher
        self._watch = watch
        self._session = session
        self._ends = ConnectionEnds(session.client_id)
        self._sys_refused_s: float | None = None  # when mosquitto ended a connection for its subscription to $SYS
        self._subscribed_s: float | None = None
        self._metrics = metrics
        self._time_fields = {route.pattern: route.timestamp_field for route in config.routes}
        self._overlooked = OverlookedTimes()
        self._unacked: dict[int, _UnackedMessage] = {}
        self._connection: _Connection | None = None
        self._trouble: str | None = "not connected yet"
        self._stopping = False
        read_password(config)  # report an unreadable file now, not at the first connection
        self.ready = asyncio.Event()

    def problem(self) -> str | None:
        """Return in one line why nothing is read from mosquitto, or None."""
        trouble = self._ends.problem(time.monotonic()) or self._trouble
        if trouble is None:
            return self._watch.trouble
        return f"mosquitto at {self._config.host}:{self._config.port}: {trouble}"

    async def run(self) -> None:
        """Connect, read, and connect again after the connection ends; report mosquitto's losses concurrently."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._watch.run())
            group.create_task(self._read())

    async def _read(self) -> None:
        backoff = Backoff()
        await self._watch.noted.wait()  # record the loss of the former session before its name is removed
        while True:
            self._subscribed_s = None
            try:
                reason = await self._run_connection()
                self._trouble = explain_reason(reason, self._config)
                if self._subscribed_s is None:
                    self._trouble = f"it {hung_up(self._config)}"
                else:
                    self._note_end(reason, time.monotonic() - self._subscribed_s, backoff)
            except ConfigurationError as error:
                self._trouble = sentence(error)
            except MqttFailure as error:
                self._trouble = explain_reason(str(error), self._config)
            except OSError as error:
                self._trouble = f"it {explain(error)}"
            fight = self._ends.problem(time.monotonic())
            host, port = self._config.host, self._config.port
            _log.warning("disconnected", host=host, port=port, reason=fight or self._trouble)
            await asyncio.sleep(backoff.next_s())

    def _note_end(self, reason: str, lasted_s: float, backoff: Backoff) -> None:
        """Wait longer each time if two clients compete for the session: a takeover loses both their work in flight."""
        now_s = time.monotonic()
        self._ends.connection_ended(reason, lasted_s, now_s)
        if self._ends.problem(now_s) is None:
            backoff.reset()

    def note(self) -> str | None:
        """Return in one line a note for the operator although there is no problem, or None."""
        notes = (self._watch.note(), self._overlooked.note(time.monotonic()))
        return "; ".join(note for note in notes if note is not None) or None

    def watches(self) -> list[Watch]:
        """Return whether mosquitto's count of drops and its notices arrive."""
        return self._watch.signals.watches(time.monotonic())

    def stop_reading(self) -> None:
        """Read no more; acknowledgements still go out."""
        self._stopping = True
        if self._connection is not None:
            self._connection.pause()

    async def _run_connection(self) -> str:
        refused_s = self._sys_refused_s
        hangs_up = refused_s is not None and time.monotonic() - refused_s < SYS_RETRY_S
        connection = _Connection(
            self._config, self._session, self._session_subscribed, self._message_received, sys_topics=not hangs_up
        )
        try:
            await connection.open()
            self._connection = connection
            self._metrics.mqtt_connections.inc()
            keeper = asyncio.ensure_future(self._resume_with_room(connection))
            watching = asyncio.ensure_future(self._watch_sys(connection, hangs_up=hangs_up))
            try:
                return await connection.wait_ended()
            finally:
                if connection.sys_asked.is_set() and not connection.sys_answered.done():
                    self._sys_refused_s = time.monotonic()
                watching.cancel()
                await asyncio.gather(watching, return_exceptions=True)
                keeper.cancel()
                await asyncio.gather(keeper, return_exceptions=True)
        finally:
            self._connection = None
            self._watch.connection_lost()
            self._metrics.mqtt_connected.set(0)
            await connection.close()

    async def _watch_sys(self, connection: _Connection, *, hangs_up: bool) -> None:
        """Note the topics of `$SYS` that mosquitto refuses."""
        if hangs_up:
            refused = dict.fromkeys(connection.watched, "it ends the connection for that")
        else:
            await connection.sys_asked.wait()
            try:
                async with asyncio.timeout(SYS_ANSWER_S):
                    refused = await asyncio.shield(connection.sys_answered)
            except TimeoutError:
                refused = dict.fromkeys(connection.watched, "it does not answer that")
        self._watch.signals.suback_received(time.monotonic(), refused)

    async def _resume_with_room(self, connection: _Connection) -> None:
        while not self._stopping:
            await connection.paused.wait()
            await self._publisher.room()
            if not self._stopping:
                self._watch.signals.reading_resumed(time.monotonic())
                connection.resume()

    def _session_subscribed(self, session_present: bool) -> None:
        self._subscribed_s = time.monotonic()
        if not session_present:
            self._unacked.clear()  # packet ids restart: pending messages get no PUBACK by their old ids
        self._watch.session_started(session_present)
        self._trouble = None
        self._metrics.mqtt_connected.set(1)
        host, port, client_id = self._config.host, self._config.port, self._session.client_id
        _log.info("subscribed", host=host, port=port, client_id=client_id, session_present=session_present)
        self.ready.set()

    def _message_received(self, connection: _Connection, message: paho.MQTTMessage) -> None:
        topic, payload = topic_of(message), bytes(message.payload)
        if topic in SYS_TOPICS:
            self._watch.message_received(topic, payload, retained=message.retain)
            return
        on_acked: Callable[[], None] = _nothing
        if message.qos > 0:
            if self._is_waiting(connection.client, message, topic):
                return
            unacked = self._unacked[message.mid] = _UnackedMessage(topic, payload, connection.client)
            on_acked = partial(self._acknowledge, message.mid, message.qos, unacked)
        self._take(message, topic, on_acked)
        if self._publisher.full:
            connection.pause()

    def _is_waiting(self, client: paho.Client, message: paho.MQTTMessage, topic: str) -> bool:
        """Return whether this redelivers a message that waits for the broker; it then gets its PUBACK when on disk."""
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

    def _take(self, message: paho.MQTTMessage, topic: str, on_acked: Callable[[], None]) -> None:
        received = Message(topic, bytes(message.payload), time.time_ns() // 1_000_000, headers_of(message))
        if is_utf8(message):
            routed = route_message(self._config.routes, received)
        else:
            routed = reject(received, dead_letters.REASON_TOPIC_NOT_UTF8, "the MQTT topic is not UTF-8")
        if isinstance(routed, Record):
            self._note_time(routed)
            self._publisher.offer(routed, on_acked)
        else:
            self._publisher.dead_letter(routed.record, routed.reason, routed.detail, on_acked)

    def _note_time(self, record: Record) -> None:
        """Note whether the route reads the time of a reading."""
        field = self._time_fields.get(record.route)
        if field is None:
            return
        if record.time_unit != RECEIVED:
            self._overlooked.read(record.route)
            return
        now_s = time.monotonic()
        if record.overlooked:
            said = self._overlooked.note_reading(record.route, field, record.overlooked, now_s)
        elif record.unread == NO_TIME:
            said = self._overlooked.missing(record.route, field, now_s)
        elif record.unread:
            self._metrics.times_unread.labels(record.route).inc()
            said = self._overlooked.unread(record.route, field, record.unread, now_s)
        else:
            return
        if said is not None:
            _log.warning("time_overlooked", topic=record.origin.removeprefix("mqtt:"), reason=said)

    def _acknowledge(self, mid: int, qos: int, unacked: _UnackedMessage) -> None:
        if self._unacked.get(mid) is not unacked:
            return  # of a session that has ended
        # Across Kafka topics not in the order of receipt: a blocked topic must not delay the PUBACKs of the others
        unacked.safe = True
        if self._connection is not None and self._connection.client is unacked.client:
            del self._unacked[mid]
            unacked.client.ack(mid, qos)


def _nothing() -> None:
    """Do nothing: QoS 0 has no acknowledgement."""


class MqttFailure(Exception):
    """mosquitto refused the connection or a subscription; the message is a reason's name, or a sentence."""


_REASONS = {
    "Session taken over": "another client took the session over",
    "Unspecified error": "the connection broke",
    "Keep alive timeout": "it was silent for longer than keepalive_s",
    "Normal disconnection": "it closed the connection",
    "Server shutting down": "it is shutting down",
    "Packet too large": "it closed the connection because a packet was too large",
    "Unsupported protocol version": "it does not speak MQTT 5: use mosquitto 1.6 or later",
}
_REFUSED_USER = ("Not authorized", "Bad user name or password")


def explain_reason(reason: str, config: MqttConfig) -> str:
    """Return the meaning of a reason code with its remedy."""
    if reason in _REFUSED_USER and config.username is None:
        return "it refuses clients without a password: set mqtt.username and mqtt.password_file"
    if reason in _REFUSED_USER:
        return f'it refuses the user "{config.username}": is the password in {config.password_file} right?'
    return _REASONS.get(reason, reason)


def hung_up(config: MqttConfig) -> str:
    """Return the likely cause of a connection that ended before any answer, as a predicate."""
    if not config.tls:
        return "hung up without an answer: does it want TLS on that port, or is it another service?"
    if config.ssl_cert_file is None:
        return "hung up after the TLS handshake: does it want a client certificate, ssl_cert_file and ssl_key_file?"
    return "hung up after the TLS handshake: is the client certificate one that it believes?"


def tls_context(config: MqttConfig) -> ssl.SSLContext:
    """Return the TLS context with our certificate; raise ConfigurationError for a file that cannot be used.

    The name in the certificate is always checked against `host`.
    """
    from drupelet.tls.contexts import client_context  # noqa: PLC0415 (ssl takes 2 MB, for those who use it)

    files = [str(path) for path in (config.ssl_ca_file, config.ssl_cert_file, config.ssl_key_file) if path]
    try:
        return client_context(config.ssl_ca_file, config.ssl_cert_file, config.ssl_key_file)
    except (OSError, ValueError) as error:  # SSLError is an OSError
        why = getattr(error, "reason", None) or sentence(error)
        raise ConfigurationError(
            f"mqtt: {' or '.join(files)} cannot be used ({why}): PEM files are wanted, a key that belongs to its"
            " certificate and has no passphrase, and the right to read them."
        ) from error


class _Connection:
    """One paho client on the asyncio loop, from connecting to the end of its connection."""

    def __init__(
        self,
        config: MqttConfig,
        session: MqttSession,
        on_subscribed: Callable[[bool], None],
        on_message: Callable[[_Connection, paho.MQTTMessage], None],
        *,
        sys_topics: bool,
    ) -> None:
        self._config = config
        self.watched = watched_topics(drops=config.watch_drops, oversize=config.watch_oversize)
        self._asks_sys = sys_topics
        self.sys_asked = asyncio.Event()
        self._session = session
        self._loop = asyncio.get_running_loop()
        self._on_subscribed = on_subscribed
        self._on_message = on_message
        self._socket: socket.socket | None = None
        self._end: asyncio.Future[str] = self._loop.create_future()
        self._misc: asyncio.Task[None] | None = None
        self._answers: dict[int, asyncio.Future[list[ReasonCode]]] = {}  # of SUBSCRIBE and UNSUBSCRIBE, by packet id
        self._settling: asyncio.Task[None] | None = None
        self.sys_answered: asyncio.Future[dict[str, str]] = self._loop.create_future()
        self.paused = asyncio.Event()
        self.client = paho.Client(
            CallbackAPIVersion.VERSION2,
            client_id=session.client_id,
            protocol=MQTTProtocolVersion.MQTTv5,
            manual_ack=True,
            reconnect_on_failure=False,
        )
        self.client.connect_timeout = CONNECT_TIMEOUT_S
        self.client.on_connect = self._connection_accepted
        self.client.on_subscribe = self._answer_received
        self.client.on_unsubscribe = self._answer_received
        self.client.on_message = self._message
        self.client.on_disconnect = self._connection_ended

    async def open(self) -> None:
        """Connect; raises OSError. CONNACK and SUBACK follow on the loop."""
        if self._config.username is not None:
            self.client.username_pw_set(self._config.username, read_password(self._config))
        if self._config.tls:
            self.client.tls_set_context(tls_context(self._config))
        untyped: Any = Properties  # paho's constructor has no types
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

    async def wait_ended(self) -> str:
        """Wait for the end of the connection and return its reason; raise MqttFailure if it was refused."""
        return await self._end

    async def close(self) -> None:
        """Send DISCONNECT if that is still possible, keep the session, and close the socket."""
        for task in (self._misc, self._settling):
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        if self._socket is not None and self.client.disconnect() == MQTTErrorCode.MQTT_ERR_SUCCESS:
            with contextlib.suppress(TimeoutError):  # a peer that reads nothing gets no DISCONNECT
                await asyncio.wait_for(asyncio.shield(self._end), 1.0)
        self._forget_socket()
        self.client.on_socket_close = None
        self.client._sock_close()  # paho closes its socket only after a clean DISCONNECT
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
            self._readable()  # at once, so that paho reads from the peer before its next check of the silence

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
        if _is_decrypted(self._socket):  # bytes that neither the kernel nor the loop reports
            self._loop.call_soon(self._readable)

    async def _run_misc(self) -> None:
        pinged_s = self._loop.time()
        while True:
            await asyncio.sleep(1)
            # While paused no PINGRESP is read, and paho would take the silence for a dead connection. mosquitto still
            # needs packets from the gateway, or it closes the connection and delivers pending messages twice
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

    def _connection_accepted(
        self, client: paho.Client, _data: Any, flags: paho.ConnectFlags, reason: ReasonCode, _properties: Any
    ) -> None:
        if reason.is_failure:
            self._refuse(str(reason))
            return
        self._settling = asyncio.ensure_future(self._align_subscriptions(flags.session_present))
        self._settling.add_done_callback(self._subscriptions_aligned)

    async def _align_subscriptions(self, session_present: bool) -> None:
        """Make the session's subscriptions those of the configuration."""
        wanted = subscriptions(self._config.routes)
        watched = self.watched
        await self._session.about_to_subscribe([*wanted, *watched])
        outdated = self._session.outdated_filters([*wanted, *watched])
        if outdated and session_present:
            refused = _refusals(await self._ask(lambda: self.client.unsubscribe(outdated)))
            if refused:
                raise MqttFailure(f"it refuses to end a subscription ({refused[0]}): does its acl_file allow that?")
            _log.info("unsubscribed", filters=" ".join(outdated), client_id=self._session.client_id)
        options = SubscribeOptions(
            qos=1, retainAsPublished=True, retainHandling=SubscribeOptions.RETAIN_SEND_IF_NEW_SUB
        )
        topics = [(topic_filter, options) for topic_filter in wanted]
        refused = _refusals(await self._ask(lambda: self.client.subscribe(topics)))
        if refused:
            raise MqttFailure(f"it refuses a subscription ({refused[0]}): does its acl_file let this user read it?")
        self._on_subscribed(session_present)
        self.sys_answered.set_result(await self._subscribe_sys(watched))
        await self._session.save_subscriptions([*wanted, *watched])

    async def _subscribe_sys(self, watched: list[str]) -> dict[str, str]:
        """Subscribe to `$SYS` and return the refusals; separately, as a refusal must not stop readings."""
        if not watched or not self._asks_sys:
            return {}
        self.sys_asked.set()
        topics = [(topic, SubscribeOptions(qos=0)) for topic in watched]
        reasons = await self._ask(lambda: self.client.subscribe(topics))
        return {topic: str(reason) for topic, reason in zip(watched, reasons, strict=False) if reason.is_failure}

    async def _ask(self, send: Callable[[], tuple[MQTTErrorCode, int | None]]) -> list[ReasonCode]:
        """Send and return the answer; raise MqttFailure if the connection broke."""
        result, mid = send()
        if result != MQTTErrorCode.MQTT_ERR_SUCCESS or mid is None:
            raise MqttFailure("the connection broke")
        answer = self._answers[mid] = self._loop.create_future()
        reasons: list[ReasonCode] = await answer
        return reasons

    def _subscriptions_aligned(self, task: asyncio.Task[None]) -> None:
        if task.cancelled() or (error := task.exception()) is None:
            return
        if isinstance(error, OSError):
            self._refuse(f"what is subscribed cannot be noted in state_dir ({sentence(error)})")
        elif isinstance(error, MqttFailure):
            self._refuse(str(error))
        elif not self._end.done():
            self._end.set_exception(error)

    def _answer_received(
        self, _client: paho.Client, _data: Any, mid: int, reasons: list[ReasonCode], _properties: Any
    ) -> None:
        answer = self._answers.pop(mid, None)
        if answer is not None and not answer.done():
            answer.set_result(reasons)

    def _message(self, _client: paho.Client, _data: Any, message: paho.MQTTMessage) -> None:
        self._on_message(self, message)

    def _connection_ended(
        self, _client: paho.Client, _data: Any, _flags: Any, reason: ReasonCode, _properties: Any
    ) -> None:
        self._finish(str(reason))


def _refusals(reasons: list[ReasonCode]) -> list[str]:
    return [str(reason) for reason in reasons if reason.is_failure]


def _has_more(sock: socket.socket | None) -> bool:
    if sock is None:  # closed by the bytes just read
        return False
    if hasattr(sock, "pending"):  # TLS cannot be peeked into
        return _is_decrypted(sock)
    try:
        return len(sock.recv(1, socket.MSG_PEEK)) > 0
    except OSError:
        return False  # no byte now, or broken: the next read event tells paho


def _is_decrypted(sock: socket.socket | None) -> bool:
    pending = getattr(sock, "pending", None)
    try:
        return pending is not None and pending() > 0
    except (OSError, ValueError):  # closed meanwhile
        return False


def read_password(config: MqttConfig) -> str | None:
    """Return the first line of the password file.

    Raises ConfigurationError if it cannot be read, is empty, or other users of this host may use it.
    """
    return None if config.password_file is None else first_line(config.password_file, "mqtt.password_file", AT_ONCE_S)
