"""Run one connection to one broker with several requests in flight: written at once, answered in order.

| state | begins | requests |
|---|---|---|
| opening | TCP, TLS, ApiVersions, log-in | none but its own |
| open, but unsure | TCP and TLS, if the broker's former versions are known | written after ApiVersions |
| open | `open` returns | written one after another |
| logging in again | the session is nearly over (KIP-368) | wait until the broker has answered, then are written |
| closed | by either side, by silence, by an unreadable answer | those in flight are lost |

Contains: the order of requests and answers, their times, and the sentences about a connection that ends. Does not
contain: the requests, TLS and SASL (authentication.py), another attempt (cluster.py).
"""

from __future__ import annotations

import asyncio
import errno
import random
from collections import deque
from collections.abc import Awaitable, Callable
from operator import attrgetter
from struct import Struct
from typing import Any, NamedTuple, TypeVar

from drupelet.errors import reason, sentence
from drupelet.kafka.connection import NO_KAFKA, WANTS_TLS, NotConnected, answers_in_tls, failure_reason, hung_up
from drupelet.kafka.connection_errors import NOT_FOUND, explain
from drupelet.kafka.security import Security
from edge_broker.errors import ErrorCode, ProtocolViolation, error_name
from edge_broker.protocol.api import API_VERSIONS as API_VERSIONS_KEY
from edge_broker.protocol.api import SASL_AUTHENTICATE as SASL_AUTHENTICATE_KEY
from edge_broker.protocol.api import SASL_HANDSHAKE as SASL_HANDSHAKE_KEY
from edge_broker.protocol.api import Api, RequestedApi
from edge_broker.protocol.codec import decode, encode, skip_tags
from edge_broker.protocol.message import Message
from edge_broker.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from edge_broker.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from edge_broker.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from kafka_wire.apis import API_VERSIONS, SASL_AUTHENTICATE, SASL_HANDSHAKE
from kafka_wire.connection.authentication import apart, log_in, start_tls, tls_context
from kafka_wire.connection.byte_counters import Traffic
from kafka_wire.connection.errors import BrokerRefused, ConnectionLost, NobodyListens, VersionUnknown, WireError
from kafka_wire.connection.frame_reader import Frames, as_transport
from kafka_wire.connection.tcp_connect import (
    THROUGH_LOSS,
    LinkFill,
    Tuning,
    WindowUse,
    congestion_control,
    dial,
    read_link_fill,
    read_window_use,
    read_wire_bytes,
    segments,
    set_congestion_control,
    set_rate_max,
    set_silence,
    set_unsent_max,
    unacked_bytes,
    unsent_bytes,
)

__all__ = ["BrokerRefused", "Connection", "ConnectionLost", "VersionUnknown", "WireError"]

R = TypeVar("R", bound=Message)

UNSENT_BYTES_MAX = 65_536
SILENT_S_MAX = 10.0
REST_S = 1.0  # without a request in flight, after which the kernel probes rarely
JOINED_BYTES_MAX = 16_384  # smaller requests are copied into one buffer: cheaper than writing several
THROTTLED_S_MAX = 3600.0  # of a broker's throttle time, which means seconds
LIFETIME_USED = 0.75, 0.85  # of a session, at random between: the broker needs the reauthentication before its end
LIFETIME_S_MIN = 1.1  # Apache Kafka accepts no other authentication within a second
_HEAD = Struct(">ihhih").pack  # size, key, version, correlation id, length of the client id
_HEAD_BYTES = 10  # without the size
KEPT = frozenset({"Fetch", "Produce", "JoinGroup", "SyncGroup"})
"""Requests that a broker may hold until it has something to answer; it answers one connection's requests in order."""
_IDS = 0x7FFFFFFF
_UNTIL_TOLD = {API_VERSIONS_KEY: (0, 0), SASL_HANDSHAKE_KEY: (1, 1), SASL_AUTHENTICATE_KEY: (1, 1)}
"""The versions of requests that are sent before a broker has returned its versions."""

Served = dict[int, tuple[int, int]]  # the first and last version of each API, by its key


class _UnderWay(NamedTuple):
    """A request that was sent, or waits for the end of authentication, and the deadline of its response."""

    id: int
    asked: RequestedApi[Any]
    version: int
    future: asyncio.Future[Any]
    deadline: float


class Connection:
    """A connection to the broker at `place`, HOST:PORT; made by `open`, of one event loop.

    `heard_at` is the loop's time of the last received byte. Until `throttled_until`, by its last response, the broker
    reads nothing (KIP-219). `bytes_in` and `bytes_out` are counted before encryption.
    """

    def __init__(
        self,
        place: str,
        security: Security,
        client_id: str,
        tuning: Tuning,
        traffic: Traffic,
        known: dict[str, Served],
    ) -> None:
        self.place = place
        self._traffic = traffic
        self._known = known
        self.heard_at = 0.0
        self.throttled_until = 0.0
        self.bytes_in = 0
        self.bytes_out = 0
        self._loop = asyncio.get_running_loop()
        self._security = security
        self._client_id = client_id.encode()
        self._tuning = tuning
        self._frames = Frames(self)
        self._socket: Any = None
        self._raw: asyncio.Transport | None = None  # of the socket
        self._transport: asyncio.Transport | None = None  # for requests: the same, or TLS over it
        self._served: Served = {}
        self._versions: dict[Api, int] = {}
        self._under_way: deque[_UnderWay] = deque()
        self._held: list[tuple[_UnderWay, list[bytes | memoryview], int]] | None = None  # while it logs in again
        self._last_id = 0
        self._timer: asyncio.TimerHandle | None = None
        self._bearing: asyncio.TimerHandle | None = None
        self._is_quiet = False
        self._is_undaunted = False  # whether BBR is requested, which loss does not slow down
        self._rate_max: int | None = None  # the bound that the kernel has
        self._usual = ""  # the kernel's default algorithm, while another is set
        self._is_open = False
        self._is_taken = False  # the broker has answered a request that it answers to authenticated clients only
        self._gone = asyncio.Event()
        self._ended: WireError | None = None
        self._renewing: asyncio.Task[None] | None = None
        self._renewal: asyncio.TimerHandle | None = None

    @classmethod
    async def open(
        cls,
        security: Security,
        host: str,
        port: int,
        client_id: str,
        *,
        timeout_s: float,
        unsent_bytes_max: int = UNSENT_BYTES_MAX,
        silent_s_max: float = SILENT_S_MAX,
        traffic: Traffic | None = None,
        known: dict[str, Served] | None = None,
        hurried: asyncio.Event | None = None,
        reached: Callable[[], None] = lambda: None,
    ) -> Connection:
        """Connect, encrypt, learn the broker's versions and authenticate, all within `timeout_s`.

        The kernel holds `unsent_bytes_max` unsent, and closes a link that acknowledges nothing for `silent_s_max`.
        `known` has brokers' last versions by their places, and is updated. Without authentication, the connection does
        not wait for the versions of a known broker, as a round trip may take a second. It ends if the broker does not
        serve a version any more that was used.
        `traffic` counts the bytes. When `hurried` is set, it starts another connect (tcp_connect.py). `reached` is
        called when TCP is connected.
        Raises ConnectionLost if no broker answers, BrokerRefused if one does.
        """
        place = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        tuning = Tuning(unsent_bytes_max, silent_s_max)
        self = cls(place, security, client_id, tuning, traffic or Traffic(), {} if known is None else known)
        try:
            async with asyncio.timeout(timeout_s):
                await self._open(host, port, timeout_s, hurried, reached)
        except TimeoutError:
            what = explain(TimeoutError()) if self._raw is None else f"was reached, but not ready in {timeout_s:g} s"
            raise ConnectionLost(f"{place} {what}") from None
        except NotConnected as error:
            raise BrokerRefused(f"{place} {error}") from error
        finally:
            if not self._is_open:
                self.close()
        return self

    async def _open(
        self, host: str, port: int, timeout_s: float, hurried: asyncio.Event | None, reached: Callable[[], None]
    ) -> None:
        context = await tls_context(self._security)
        self._socket = await self._dial(host, port, hurried)
        reached()
        self._traffic.begins(self)
        transport, _ = await self._loop.create_connection(lambda: self._frames, sock=self._socket)
        self._raw = self._transport = as_transport(transport)
        if context is not None:
            self._transport = await start_tls(self._raw, self._frames, context, self._security, host)
        self.heard_at = self._loop.time()
        self._served = _UNTIL_TOLD
        versions = self.send(API_VERSIONS, ApiVersionsRequest(), timeout_s=timeout_s)
        known = self._known.get(self.place)
        if known is not None and not self._security.has_login:
            self._served = known
            self._versions.clear()
            self._is_open = True
            versions.add_done_callback(self._compare)
            return
        if self._security.has_login:  # before versions are known, as it needs none that a broker might lack
            await apart(versions, self._security)
            await self._log_in(self._shake_hands(timeout_s), timeout_s)
            self._is_taken = True
        self._learn(await versions)
        self._is_open = True

    async def _dial(self, host: str, port: int, hurried: asyncio.Event | None) -> Any:
        try:
            return await dial(host, port, self._tuning, hurried)
        except TimeoutError:
            raise
        except UnicodeError as error:
            raise NotConnected(NOT_FOUND) from error
        except OSError as error:
            kinds = {errno.ECONNREFUSED: NobodyListens, errno.ECONNRESET: BrokerRefused}
            kind = kinds.get(error.errno or 0, ConnectionLost)
            raise kind(f"{self.place} {explain(error)}") from error

    def _learn(self, answer: ApiVersionsResponse) -> None:
        if answer.error_code not in (ErrorCode.NONE, ErrorCode.UNSUPPORTED_VERSION):
            raise NotConnected(f"does not tell what it serves: {error_name(answer.error_code)}")
        self._served = self._known[self.place] = {
            one.api_key: (one.min_version, one.max_version) for one in answer.api_keys
        }
        self._versions.clear()

    def _compare(self, answered: asyncio.Future[ApiVersionsResponse]) -> None:
        """Continue with the broker's present versions; end if a used one is not served any more."""
        if answered.exception() is not None:
            self._known.pop(self.place, None)  # the next connection waits for its response
            return
        spoken = dict(self._versions)
        try:
            self._learn(answered.result())
        except NotConnected as error:
            self._end(BrokerRefused(f"{self.place} {error}"))
            return
        ranges = {api: self._range(api) for api in spoken}
        if not all(first <= spoken[api] <= last for api, (first, last) in ranges.items()):
            self._end(ConnectionLost(f"{self.place} serves no more the versions that it served before"))

    # requests

    def version(self, asked: RequestedApi[R]) -> int:
        """Return the newest version of an API that both sides speak; raises VersionUnknown if there is none."""
        version = self._versions.get(asked.api)
        if version is None:
            first, last = self._range(asked.api)
            if not self.serves(asked):
                theirs = f"versions {first} to {last}" if last >= first else "none"
                ours = f"{asked.api.min_version} to {asked.api.max_version}"
                raise VersionUnknown(f"{self.place} serves {theirs} of {asked.api.name}, and {ours} are spoken here")
            version = self._versions[asked.api] = min(last, asked.api.max_version)
        return version

    def serves(self, asked: RequestedApi[R]) -> bool:
        """Return whether both sides speak some version of an API."""
        first, last = self._range(asked.api)
        return min(last, asked.api.max_version) >= max(first, asked.api.min_version)

    def _range(self, api: Api) -> tuple[int, int]:
        return self._served.get(api.key, (0, -1))

    def send(self, asked: RequestedApi[R], request: Message, *, timeout_s: float) -> asyncio.Future[R]:
        """Write a request after those that were sent before, and return its future response.

        Records are not copied: they must not change until the response has come. The response's records are views of
        the received bytes. All requests in flight get ConnectionLost when the connection ends, when one has no response
        within `timeout_s`, or when a response cannot be parsed. VersionUnknown is raised at once.
        """
        return self._send(asked, request, timeout_s, hold=self._held is not None)

    async def ask(self, asked: RequestedApi[R], request: Message, *, timeout_s: float) -> R:
        """Send a request and await its response."""
        return await self.send(asked, request, timeout_s=timeout_s)

    def _send(
        self, asked: RequestedApi[R], request: Message, timeout_s: float, *, hold: bool = False
    ) -> asyncio.Future[R]:
        version = self.version(asked)
        future: asyncio.Future[R] = self._loop.create_future()
        if self._ended is not None:
            _fail(future, self._ended)
            return future
        self._last_id = number = (self._last_id + 1) & _IDS
        api, client_id = asked.api, self._client_id
        parts = encode(request, version)
        tags = b"\0" if version >= api.flexible_from else b""
        size = _HEAD_BYTES + len(client_id) + len(tags) + sum(map(len, parts))
        parts.insert(0, _HEAD(size, api.key, version, number, len(client_id)) + client_id + tags)
        deadline = self._loop.time() + timeout_s
        sent = _UnderWay(number, asked, version, future, deadline)
        if hold and self._held is not None:
            self._held.append((sent, parts, size + 4))
        else:
            self._write(sent, parts, size + 4)
        self._watch(deadline)
        return future

    def _write(self, sent: _UnderWay, parts: list[bytes | memoryview], size: int) -> None:
        assert self._transport is not None
        self._under_way.append(sent)
        self.bytes_out += size
        if size <= JOINED_BYTES_MAX:
            self._transport.write(b"".join(parts))
        else:
            self._transport.writelines(parts)

    # responses: the callbacks of the frames' owner

    def bytes_received(self, count: int) -> None:
        """Count received bytes."""
        self.bytes_in += count
        self.heard_at = self._loop.time()

    def take(self, frame: memoryview) -> None:
        """Pass a response to the request that was sent first."""
        if not self._under_way:
            self._end(WireError(f"{self.place} sent a response without a request"))
            return
        asked = self._under_way[0]
        number = int.from_bytes(frame[:4], "big")
        if number != asked.id:
            self._end(WireError(f"{self.place} sent the response to another request: {number} instead of {asked.id}"))
            return
        if not asked.future.done():  # else its caller was cancelled
            api = asked.asked.api
            try:
                flexible = asked.version >= api.flexible_from and api.key != API_VERSIONS_KEY
                answer = decode(asked.asked.response, asked.version, frame, skip_tags(frame, 4) if flexible else 4)
            except (ProtocolViolation, IndexError) as error:
                self._end(WireError(f"{self.place} sent an answer that cannot be read: {str(error).rstrip('.')}"))
                return
            asked.future.set_result(answer)
            self._is_taken |= self._is_open and api.key != API_VERSIONS_KEY
            throttled_ms = getattr(answer, "throttle_time_ms", 0)
            if throttled_ms > 0:
                self._extend_silence_limit(min(throttled_ms / 1000, THROTTLED_S_MAX))
        self._under_way.popleft()
        if not self._under_way and not self._is_quiet:
            self._check_by(self._loop.time() + REST_S)  # a probe without a waiting request costs bytes

    def bad_size(self, first: bytes) -> None:
        """End the connection: the received bytes are no response."""
        if self._security.has_tls or not answers_in_tls(first):
            self._end(BrokerRefused(f"{self.place} {NO_KAFKA}"))
        else:
            self._end(BrokerRefused(f"{self.place} {WANTS_TLS}"))

    def connection_ended(self, error: Exception | None) -> None:
        """End all requests in flight with the reason."""
        self._end(self._why(error))

    def _why(self, error: Exception | None) -> ConnectionLost:
        if error is None and self._is_taken:
            return ConnectionLost(f"{self.place} closed the connection")
        if error is None:
            return BrokerRefused(f"{self.place} {hung_up(self._security)}")
        if isinstance(getattr(error, "reason", None), str) and isinstance(error, OSError):  # ssl.SSLError, a TLS alert
            return BrokerRefused(f"{self.place} {failure_reason(error, self._security)}")
        if isinstance(error, OSError) and error.errno == errno.ETIMEDOUT:
            silent = f"acknowledged nothing for {self._tuning.silent_s_max:g} s"
            return ConnectionLost(f"{self.place} {silent}: is it on, and the link up?")
        if isinstance(error, ConnectionResetError) and not self._is_open:
            return BrokerRefused(f"{self.place} {explain(error)}")
        said = reason(error) if isinstance(error, OSError) else sentence(error)
        return ConnectionLost(f"the connection to {self.place} broke: {said}")

    # time

    def _watch(self, deadline: float) -> None:
        if self._is_quiet:
            self._is_quiet = False
            self._tuning.watch(self._socket)
        self._check_by(deadline)

    def _check_by(self, at: float) -> None:
        if self._timer is None or at < self._timer.when():
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self._loop.call_at(at, self._check)

    def _check(self) -> None:
        """Check the deadlines: the earliest known time has come, or nothing has been in flight for a while."""
        self._timer = None
        waiting = self._unanswered_requests()
        if not waiting and self.throttled_until > self._loop.time():
            self._check_by(self.throttled_until + REST_S)
            return
        if not waiting:
            self._is_quiet = True
            self._tuning.set_idle(self._socket)
            return
        first = min(waiting, key=_deadline)
        if first.deadline > self._loop.time():
            self._timer = self._loop.call_at(first.deadline, self._check)
            return
        heard_s = self._loop.time() - self.heard_at
        name = first.asked.api.name
        self._end(ConnectionLost(f"{self.place} did not answer {name} in time; its last byte came {heard_s:.1f} s ago"))

    def _extend_silence_limit(self, seconds: float) -> None:
        """Allow that a broker reads nothing for its throttle time."""
        self.throttled_until = self._loop.time() + seconds
        set_silence(self._socket, self._tuning.silent_s_max + seconds)
        if self._bearing is not None:
            self._bearing.cancel()
        self._bearing = self._loop.call_later(seconds, self._bear_no_more)

    def _bear_no_more(self) -> None:
        if not self._is_quiet:
            self._tuning.watch(self._socket)

    def _unanswered_requests(self) -> list[_UnderWay]:
        return [*self._under_way, *(sent for sent, _, _ in self._held or ())]

    # authentication

    def _shake_hands(self, timeout_s: float) -> asyncio.Future[SaslHandshakeResponse]:
        return self._send(SASL_HANDSHAKE, SaslHandshakeRequest(mechanism=self._security.mechanism), timeout_s)

    async def _log_in(self, handshake: asyncio.Future[SaslHandshakeResponse], timeout_s: float) -> None:
        def authenticate(token: bytes) -> Awaitable[SaslAuthenticateResponse]:
            return self._send(SASL_AUTHENTICATE, SaslAuthenticateRequest(auth_bytes=token), timeout_s)

        lifetime_s = await log_in(handshake, authenticate, self._security) / 1000
        if lifetime_s > 0 and self._ended is None:
            least, most = LIFETIME_USED
            used = least + (most - least) * random.random()  # noqa: S311 - so that not all come at once
            self._renewal = self._loop.call_later(max(LIFETIME_S_MIN, lifetime_s * used), self._renew, timeout_s)

    def _renew(self, timeout_s: float) -> None:
        self._held = []
        self._renewing = self._loop.create_task(self._log_in_again(timeout_s))

    async def _log_in_again(self, timeout_s: float) -> None:
        """Authenticate again between requests: a request sent meanwhile would be taken for a part of it."""
        try:
            handshake = self._shake_hands(timeout_s)
            await handshake  # alone: a broker may still answer earlier requests
            await self._log_in(handshake, timeout_s)
        except NotConnected as error:
            self._end(BrokerRefused(f"{self.place} {error}"))
            return
        except WireError as error:
            self._end(error)
            return
        held, self._held = self._held, None
        for waited in held or ():
            self._write(*waited)

    # state

    @property
    def unanswered_count(self) -> int:
        """The number of requests without a response."""
        return len(self._under_way) + len(self._held or ())

    @property
    def is_held_up(self) -> bool:
        """Whether the broker may hold one of them for long, and with it all later requests."""
        return any(one.asked.api.name in KEPT for one in self._unanswered_requests())

    @property
    def unsent_bytes(self) -> int:
        """Bytes of requests that have not left this host: in the process, and in the kernel."""
        return 0 if self._ended is not None else self._in_process() + unsent_bytes(self._socket)

    @property
    def unacknowledged_bytes(self) -> int:
        """Bytes of requests that the other end's kernel has not acknowledged, including the unsent ones."""
        return 0 if self._ended is not None else self._in_process() + unacked_bytes(self._socket)

    def send_through_loss(self, *, is_lossy: bool) -> bool:
        """Make the kernel not take a lost segment for a full link, or restore the default; return if it does so."""
        if self._ended is None and is_lossy != bool(self._usual):
            usual = self._usual or congestion_control(self._socket)
            self._usual = usual if is_lossy else ""
            self._is_undaunted = set_congestion_control(self._socket, THROUGH_LOSS if is_lossy else usual) and is_lossy
        return self._is_undaunted

    def link_fill(self) -> LinkFill | None:
        """Return how the kernel fills the link, while it sends through loss."""
        return read_link_fill(self._socket) if self._is_undaunted else None

    def fill_anew(self) -> None:
        """Make the kernel find the link's rate again, while it sends through loss; its rate bound stays.

        It keeps the shortest round trip, as the socket has it.
        """
        if self._ended is None and self._is_undaunted:
            set_congestion_control(self._socket, self._usual)  # setting the same one again has no effect
            self._is_undaunted = set_congestion_control(self._socket, THROUGH_LOSS)

    def limit_rate(self, bytes_s: int | None) -> None:
        """Let the kernel send at most so many bytes per second; None: no bound."""
        if bytes_s != self._rate_max and self._ended is None:
            self._rate_max = bytes_s
            set_rate_max(self._socket, bytes_s)

    def segments(self) -> tuple[int, int]:
        """Return how many segments the kernel has sent, and how many of those again."""
        return segments(self._socket)

    def window_use(self) -> WindowUse | None:
        """Return how its time went, as far as the kernel tells."""
        return read_window_use(self._socket)

    def wire_bytes(self) -> tuple[int, int]:
        """Bytes on the wire, out and in; where the kernel does not tell, those before encryption, without headers."""
        return read_wire_bytes(self._socket) or (self.bytes_out, self.bytes_in)

    def _in_process(self) -> int:
        raw, transport = self._raw, self._transport
        assert raw is not None
        assert transport is not None
        held = sum(size for _, _, size in self._held or ())
        encrypted_bytes = 0 if transport is raw else raw.get_write_buffer_size()
        return held + transport.get_write_buffer_size() + encrypted_bytes

    def limit_unsent(self, size: int) -> None:
        """Have the kernel hold at most so many bytes unsent from now on."""
        set_unsent_max(self._socket, size)

    @property
    def is_closed(self) -> bool:
        """Whether it has ended."""
        return self._ended is not None

    @property
    def end_error(self) -> WireError | None:
        """The reason of its end, None while it is open."""
        return self._ended

    async def wait_closed(self) -> WireError:
        """Wait until it has ended, and return why."""
        await self._gone.wait()
        assert self._ended is not None
        return self._ended

    def close(self) -> None:
        """End it at once; unwritten requests are dropped, those in flight are lost."""
        self._end(ConnectionLost(f"the connection to {self.place} was closed here"))

    def _end(self, why: WireError) -> None:
        if self._ended is not None:
            return
        self._ended = why
        self._traffic.ends(self)
        self._frames.stop()
        if self._transport is not None:
            self._transport.abort()
        if self._raw is not None:
            self._raw.abort()
        elif self._socket is not None:
            self._socket.close()
        for timer in (self._timer, self._renewal, self._bearing):
            if timer is not None:
                timer.cancel()
        lost = self._unanswered_requests()
        self._under_way.clear()
        self._held = None
        for one in lost:
            _fail(one.future, why)
        self._gone.set()


_deadline = attrgetter("deadline")


def _fail(future: asyncio.Future[Any], why: WireError) -> None:
    if not future.done():
        kind = type(why) if isinstance(why, ConnectionLost) else ConnectionLost
        future.set_exception(kind(str(why)))
        future.exception()  # a caller that was cancelled need not read it
