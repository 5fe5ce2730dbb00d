"""One TLS connection: between the transport of a socket and the broker's connection, which knows nothing of TLS.

| state | bytes come | the worker has made a step | nothing is left to send |
|---|---|---|---|
| handshake | reading stops, the worker makes a step with them | goes on; `open`; or it has failed: `closed` | |
| open | decrypted into the connection's buffer | | |
| closing | dropped | | close_notify, `closed` |

Nothing here holds the loop for long: handshakes run in a worker, decrypting stops a record's size after TURN_S, and
what is written beyond TURN_BYTES is encrypted by turns (`due`), which stop TURN_BYTES after TURN_S, as fast as the
kernel takes it. Unencrypted data stays views of the bytes that were read; undecrypted data is kept
as it came. OpenSSL's buffers are fed and emptied a record's size at a time, as they never shrink.

Contains: bytes in and out, back-pressure on both sides. Does not contain: frames, contexts (tls_contexts.py),
how many handshakes there may be (handshakes.py). Source: asyncio's transports and protocols; ssl.MemoryBIO.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, Protocol, cast

from edge_broker.errors import ProtocolViolation
from edge_broker.network.tls.pending_ciphertext import RECORD_BYTES_MAX, PendingCiphertext
from edge_broker.security.certificates import CertificateId

PIECE_BYTES = 16_384  # what one TLS record carries
TURN_BYTES = 65_536
READ_BYTES = 262_144  # of ciphertext at once: most requests come whole then, and are answered together
TURN_S = 0.001  # of one connection
LARGE_BYTES = 2048  # after a record of that size a query of what is left costs less than the exception
SHORT_BYTES = 20_480  # of ciphertext at once when memory is short: a whole record and its neighbour's head
WRITE_BUFFER_BYTES_MAX = 131_072  # of ciphertext that the kernel does not take yet

NOTHING = memoryview(b"")

Data = bytes | bytearray | memoryview


class ClientIdentity(NamedTuple):
    """Whose certificate a client has shown, and what names it and the CAs by which it is believed; empty: none was."""

    principal: str = ""
    certificates: tuple[CertificateId, ...] = ()


class Step(NamedTuple):
    """The result of a step of a handshake: whether it is complete, and the client's identity."""

    complete: bool
    shown: ClientIdentity = ClientIdentity()


class HandshakeRefused(Exception):
    """A handshake that fails, with the sentence that says why."""


class PlainConnection(Protocol):
    """The connection: what asyncio.BufferedProtocol has, and more."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take this transport."""

    def connection_lost(self, exc: Exception | None) -> None:
        """The socket is gone."""

    def wait_for_more(self, ahead_bytes: int, *, drained: bool) -> None:
        """Nothing more can be handed on; at most so many bytes have come that are not handed on yet."""

    def make_room(self, nbytes: int) -> None:
        """So many bytes are here and about to be handed on."""

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where the next bytes go."""

    def buffer_updated(self, nbytes: int) -> None:
        """So many bytes are in that buffer."""

    def pause_writing(self) -> None:
        """Too much waits to be sent."""

    def resume_writing(self) -> None:
        """Little of it is left."""

    def violate(self, violation: ProtocolViolation) -> None:
        """Received bytes are no TLS: close, as for any other invalid frame."""


class Owner(Protocol):
    """The state that TLS connections of one loop share."""

    cipher_buffer: memoryview
    kept_bytes: int  # of ciphertext, by all connections

    @property
    def short(self) -> bool:
        """Whether memory for requests is short."""

    @property
    def is_crowded(self) -> bool:
        """Whether connections wait for their turn."""

    def seconds(self) -> float:
        """A clock that is fine enough to time a piece of work."""

    def begin(self, transport: TlsTransport) -> bool:
        """A handshake begins; False: there is no room for the connection."""

    def step(self, transport: TlsTransport, work: Callable[[], Step]) -> None:
        """Make a step of a handshake in the worker, then call `step_completed` or `refuse`."""

    def end(self, transport: TlsTransport, why: str = "") -> None:
        """A handshake is over, with a sentence when it has failed."""

    def due(self, transport: TlsTransport) -> None:
        """Call `turn` in a next turn of the loop."""


class TlsTransport(asyncio.BufferedProtocol):
    """A protocol to the socket's transport, a transport to the broker's protocol; owned by the loop.

    `made` makes that protocol once the handshake is complete.
    """

    def __init__(
        self,
        owner: Owner,
        context: ssl.SSLContext,
        check_client: Callable[[ssl.SSLObject], ClientIdentity],
        made: Callable[[], PlainConnection],
    ) -> None:
        self._owner = owner
        self._made = made
        self._check_client = check_client
        self._in, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._in, self._outgoing, server_side=True)
        inner: Any = getattr(self._tls, "_sslobj", self._tls)  # what it hands each call on to, one for each record
        self._read: Callable[[int, memoryview], int] = inner.read
        self._write: Callable[[Data], int] = inner.write
        self._raw: asyncio.Transport | None = None
        self.address: tuple[Any, ...] = ()  # the client's address and port, also once it has left; empty: it has none
        self._connection: PlainConnection | None = None
        self._shown = ClientIdentity()
        self._stepping = False
        self._closing = False
        self._reading = True  # by the broker's protocol
        self._raw_reading = True
        self._room_bytes = 0  # of the buffer for what comes
        self._raw_full = False
        self._unread = False
        self._decrypting = False  # and what is answered meanwhile waits
        self._undecrypted = True  # something may have come that was not wanted yet, or with the last of the handshake
        self._kept = NOTHING  # ciphertext after what OpenSSL has; nothing is read meanwhile
        self._unsent: deque[memoryview] = deque()
        self._unsent_from = 0  # of the first of them
        self._unsent_bytes = 0
        self._due = False
        self._pending = PendingCiphertext()
        self._high = 65_536
        self._behind_full = False

    # the side of the socket

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the socket's transport; the client speaks first."""
        self._raw = cast(asyncio.Transport, transport)
        name = transport.get_extra_info("peername")
        self.address = name if isinstance(name, tuple) else ()
        self._raw.set_write_buffer_limits(high=WRITE_BUFFER_BYTES_MAX)
        if not self._owner.begin(self):
            self._raw.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """The socket is gone."""
        self._raw = None
        self._drop_unsent()
        self._keep(NOTHING)
        behind, self._connection = self._connection, None
        if behind is not None:
            behind.connection_lost(exc)
        else:
            self._owner.end(self, "the client left in the middle of the handshake")

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where ciphertext goes; all of it moves on before the loop reads again."""
        owner = self._owner
        buffer = owner.cipher_buffer
        if self._connection is None or owner.short:
            buffer = buffer[:SHORT_BYTES]
        elif owner.is_crowded:
            buffer = buffer[:TURN_BYTES]
        self._room_bytes = len(buffer)
        return buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Hand on what arrived, decrypted; during a handshake, let the worker look at it."""
        if self._closing:
            return
        data = self._owner.cipher_buffer[:nbytes]
        if self._connection is None:
            self._in.write(data)
            self._step()
            return
        self._decrypt(data, drained=nbytes < self._room_bytes)
        if nbytes == self._room_bytes and not self.is_closing() and self._raw_reading:
            self._stop_reading()  # else the loop reads the next, up to 32 times
            self._have_turn()

    def eof_received(self) -> bool:
        """The client sends no more; half-closed connections are not kept, with TLS or without."""
        return False

    def pause_writing(self) -> None:
        """The kernel takes no more for now."""
        self._raw_full = True

    def resume_writing(self) -> None:
        """The kernel takes more."""
        self._raw_full = self._unread = False
        if self._unsent or self._reading:
            self._have_turn()

    # the handshake

    def _step(self) -> None:
        if not self._stepping:
            self._stepping = True
            self._stop_reading()
            self._owner.step(self, self._handshake)

    def _handshake(self) -> Step:
        """One step; runs in the worker, and no other thread touches the TLS object meanwhile."""
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return Step(complete=False)
        except ssl.SSLError as error:
            raise HandshakeRefused(sentence(error)) from None
        return Step(complete=True, shown=self._check_client(self._tls))

    def step_completed(self, step: Step) -> None:
        """The worker has made a step."""
        self._stepping = False
        if self._raw is None or self._raw.is_closing():
            return
        self._send_out()
        if not step.complete:
            self._read_on()
            return
        self._shown = step.shown
        self._pending.begin(self._tls)
        came = memoryview(self._in.read())
        self._feed(came, len(came))
        self._owner.end(self)
        self._connection = behind = self._made()
        behind.connection_made(cast(asyncio.BaseTransport, self))
        if not self.is_closing():
            self._have_turn()  # what came with the last of the handshake

    def refuse(self, why: str) -> None:
        """The handshake has failed: OpenSSL's alert is sent, then the connection is closed."""
        self._stepping = False
        self._owner.end(self, why)
        if self._raw is not None and not self._raw.is_closing():
            self._closing = True
            self._send_out()
            self._raw.close()

    @property
    def handshaking(self) -> bool:
        """Whether the broker's protocol does not exist yet, and the socket does."""
        return self._connection is None and self._raw is not None

    # bytes in

    def _decrypt(self, data: memoryview, *, drained: bool) -> None:
        """Hand on what can be decrypted within TURN_S, and send together what is answered meanwhile.

        `drained`: nothing more is in the socket.

        Each answer alone would cost a record, and a call of the kernel, which is a third of what small answers take.
        """
        self._decrypting = True
        try:
            self._hand_on(data)
        finally:
            self._decrypting = False
        if self._unsent and not self._due:
            self._send_unsent()
        if self._connection is not None and not self._undecrypted and not self.is_closing():
            self._connection.wait_for_more(self._pending.at_most(), drained=drained)

    def _hand_on(self, data: memoryview) -> None:
        """Hand on what can be decrypted in time, as long as it is wanted: what OpenSSL has, then `data`, of which it
        has a record's size at a time; the rest is kept.
        """
        late_s, ended = self._owner.seconds() + TURN_S, ""
        ask_behind = 1 if len(data) < LARGE_BYTES else LARGE_BYTES
        if not self._in.pending:
            data = self._feed(data, RECORD_BYTES_MAX)
        while not ended and self._reading and not self._closing and (behind := self._connection) is not None:
            behind.make_room(self._in.pending + len(data))
            buffer = behind.get_buffer(-1)
            try:
                filled, records, data, ended = self._fill(buffer, data, ask_behind, late_s)
            except ssl.SSLError as error:
                self._protocol_violated(sentence(error))
                return
            full = filled == len(buffer)
            del buffer  # as the loop lets go of it: what it is a view of may grow
            if filled:
                left = self._tls.pending() if full else 0
                self._pending.plain_bytes += filled
                self._pending.records += records - bool(left)  # the one that is not read to its end counts then
                behind.buffer_updated(filled)
                if full and not (data or self._in.pending or left):
                    ended = "for now"
            if ended == "close_notify":
                self.close()
        if not self._closing:
            self._keep(data)
            self._undecrypted = ended in ("", "late")
            if ended == "late":
                self._stop_reading()
                self._have_turn()
        if self._outgoing.pending:
            self._send_out()
            if self._raw_full:  # who asks for new keys without end, and reads none of them
                self._unread = True
                self._stop_reading()

    def _fill(
        self, buffer: memoryview, data: memoryview, ask_behind: int, late_s: float
    ) -> tuple[int, int, memoryview, str]:
        """Decrypt into a buffer: its bytes that are filled, by how many records; what is left, and why no more can be.

        After a record of `ask_behind` bytes or more it asks OpenSSL what is left.
        """
        read, incoming, seconds = self._read, self._in, self._owner.seconds
        size, filled, records = len(buffer), 0, 0
        while filled < size:
            try:
                got = read(size, buffer[filled:])  # a record at most, and librdkafka's are small
            except ssl.SSLWantReadError:
                if not data:
                    return filled, records, data, "for now"
                if seconds() >= late_s:
                    return filled, records, data, "late"
                data = self._feed(data, RECORD_BYTES_MAX)
                continue
            if not got:
                return filled, records, data, "close_notify"
            filled += got
            records += 1
            if got >= ask_behind and filled < size:
                left = incoming.pending
                if data and left < got and seconds() < late_s:
                    data = self._feed(data, RECORD_BYTES_MAX - left)
                elif not data and not left:
                    return filled, records, data, "for now"
        return filled, records, data, ""

    def _feed(self, data: memoryview, nbytes: int) -> memoryview:
        """Give OpenSSL so many bytes at most; what is left."""
        piece = data[:nbytes]
        self._pending.give(piece)
        self._in.write(piece)
        return data[nbytes:]

    def _keep(self, data: memoryview) -> None:
        """Keep this ciphertext, and no other, in memory that goes with it."""
        if data or self._kept:
            kept = memoryview(bytes(data))
            self._owner.kept_bytes += len(kept) - len(self._kept)
            self._kept = kept

    def _protocol_violated(self, why: str) -> None:
        """Received bytes are no TLS; OpenSSL encrypts nothing more either."""
        self._decrypting = False
        if self._connection is not None:
            self._connection.violate(ProtocolViolation(why))
        else:
            self.abort()

    def pause_reading(self) -> None:
        """Hand on nothing more."""
        self._reading = False
        self._stop_reading()

    def resume_reading(self) -> None:
        """Hand on again, from the next turn of the loop on."""
        self._reading = True
        if not self.is_closing():
            self._have_turn()

    def _stop_reading(self) -> None:
        if self._raw_reading and self._raw is not None and not self._raw.is_closing():
            self._raw_reading = False
            self._raw.pause_reading()

    def _read_on(self) -> None:
        if not self._raw_reading and self._raw is not None and not self._raw.is_closing():
            self._raw_reading = True
            self._raw.resume_reading()

    # bytes out

    def write(self, data: Data) -> None:
        """Encrypt and send, nothing more once it closes; what is more than a turn's work waits."""
        if self._closing:
            return
        size = len(data)
        if self._unsent or size > TURN_BYTES or self._raw_full or self._decrypting:
            self._unsent.append(memoryview(data))
            self._unsent_bytes += size
            if self._unsent_bytes > TURN_BYTES or not self._decrypting:
                self._have_turn()
            self._tell_behind()
        else:
            self._encrypt(data)

    def writelines(self, parts: Sequence[Data]) -> None:
        """Encrypt and send several, which fill records together."""
        size = sum(map(len, parts))
        if not self._unsent and size <= TURN_BYTES:
            self.write(b"".join(parts))
            return
        if self._closing:
            return
        self._unsent.extend(map(memoryview, parts))
        self._unsent_bytes += size
        self._have_turn()
        self._tell_behind()

    def _encrypt(self, data: Data) -> None:
        """Encrypt at most TURN_BYTES and give them to the socket."""
        if self._raw is None:
            return
        try:
            if len(data) <= PIECE_BYTES:
                self._write(data)
                self._raw.write(self._outgoing.read())
            else:
                self._raw.writelines(self._as_records(memoryview(data), 0, len(data)))
        except ssl.SSLError as error:
            self._protocol_violated(sentence(error))

    def _as_records(self, view: memoryview, begin: int, end: int) -> list[bytes]:
        """These bytes as records of TLS, a piece of memory for each."""
        write, read = self._write, self._outgoing.read
        records: list[bytes] = []
        for position in range(begin, end, PIECE_BYTES):
            write(view[position : min(position + PIECE_BYTES, end)])
            records.append(read())
        return records

    def _encrypt_unsent(self) -> None:
        """Encrypt what waits until TURN_S are over, TURN_BYTES at a time, as long as the kernel takes it."""
        raw, seconds = self._raw, self._owner.seconds
        late_s, in_time = seconds() + TURN_S, True
        try:
            while self._unsent and in_time and raw is not None and not self._raw_full:
                raw.writelines(self._as_records(*self._take_unsent()))
                in_time = seconds() < late_s
        except ssl.SSLError as error:
            self._protocol_violated(sentence(error))

    def _take_unsent(self) -> tuple[memoryview, int, int]:
        """The next TURN_BYTES of what waits, as one piece of memory: their first and last position in a view."""
        unsent, begin = self._unsent, self._unsent_from
        first, end = unsent[0], begin + TURN_BYTES
        if end < len(first):
            self._unsent_from = end
            self._unsent_bytes -= TURN_BYTES
            return first, begin, end
        parts: list[memoryview] = []
        room = TURN_BYTES
        while unsent and room:
            part = unsent[0][self._unsent_from : self._unsent_from + room]
            self._unsent_from += len(part)
            if self._unsent_from == len(unsent[0]):
                unsent.popleft()
                self._unsent_from = 0
            parts.append(part)
            room -= len(part)
        taken = parts[0] if len(parts) == 1 else memoryview(b"".join(parts))
        self._unsent_bytes -= len(taken)
        return taken, 0, len(taken)

    def _send_out(self) -> None:
        if self._outgoing.pending and self._raw is not None:
            self._raw.write(self._outgoing.read())

    def _have_turn(self) -> None:
        if not self._due:
            self._due = True
            self._owner.due(self)

    def turn(self) -> None:
        """Encrypt some of what waits, decrypt what has come, and let the socket be read again."""
        self._due = False
        if self._raw is None or self._raw.is_closing():
            return
        self._send_unsent()
        if not self._closing and self._reading and self._connection is not None:
            if self._undecrypted:
                self._decrypt(self._kept, drained=False)
            if self._reading and not self._unread and not self._kept:
                self._read_on()

    def _send_unsent(self) -> None:
        """Encrypt some of the waiting bytes, and close after the last of them if requested."""
        if self._unsent and not self._raw_full:
            self._encrypt_unsent()
            self._tell_behind()
            if self._unsent and not self._raw_full:
                self._have_turn()
        if self._closing:
            self._finish()

    def set_write_buffer_limits(self, high: int) -> None:
        """Set how many bytes may wait before the broker's protocol must pause."""
        self._high = high

    def get_write_buffer_size(self) -> int:
        """Bytes that have not left the process."""
        raw = self._raw
        return self._unsent_bytes + (raw.get_write_buffer_size() if raw is not None else 0)

    def _tell_behind(self) -> None:
        behind, waiting = self._connection, self._unsent_bytes
        if behind is not None and (waiting > self._high if not self._behind_full else waiting <= self._high // 4):
            self._behind_full = not self._behind_full
            (behind.pause_writing if self._behind_full else behind.resume_writing)()

    # the end

    def close(self) -> None:
        """Send what waits, then close_notify, then close."""
        if not self._closing:
            self._closing = True
            self._read_on()  # what comes is dropped: unread bytes would make the kernel reset the connection
            if not self._unsent:
                self._finish()

    def _finish(self) -> None:
        """Say that this is the end, once everything before it is on its way."""
        if self._unsent or self._raw is None or self._raw.is_closing():
            return
        if not self._stepping:
            with suppress(ssl.SSLError):  # the client's own close_notify is not waited for, nor is it missed
                self._tls.unwrap()
            self._send_out()
        self._raw.close()

    def abort(self) -> None:
        """Close at once, after the responses made meanwhile."""
        self._closing = True
        if self._decrypting and not (self._due or self._raw_full):
            self._decrypting = False
            self._encrypt_unsent()
        self._drop_unsent()
        if self._raw is not None:
            self._raw.abort()

    def _drop_unsent(self) -> None:
        self._unsent.clear()
        self._unsent_from = self._unsent_bytes = 0

    def is_closing(self) -> bool:
        """True once nothing more is handed on."""
        return self._closing or self._raw is None or self._raw.is_closing()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """`shown`, `ssl_object` and `peername` are known here, the rest by the socket's transport.

        The socket forgets the address of a client that leaves, also of one that goes on to be served.
        """
        if name == "shown":
            return self._shown
        if name == "peername":
            return self.address or default
        if name == "ssl_object":
            return self._tls
        return self._raw.get_extra_info(name, default) if self._raw is not None else default


SENTENCES = {
    "WRONG_VERSION_NUMBER": "what it sent is no TLS; set the client's security.protocol to SSL or SASL_SSL",
    "HTTP_REQUEST": "it spoke HTTP",
    "HTTPS_PROXY_REQUEST": "it spoke HTTP",
    "UNSUPPORTED_PROTOCOL": "it speaks no version of TLS that ssl.enabled.protocols allows",
    "NO_SHARED_CIPHER": "it shares no cipher suite, or cannot use this broker's kind of key",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "it showed no certificate, and ssl.client.auth is required",
    "TLSV1_ALERT_UNKNOWN_CA": "it does not know the CA of this broker's certificate",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "it does not accept this broker's certificate: its CA or its names",
    "SSLV3_ALERT_BAD_CERTIFICATE": "it does not accept this broker's certificate",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "by its clock this broker's certificate has ended or not begun",
}


def sentence(error: ssl.SSLError) -> str:
    """Why TLS failed, without what only OpenSSL's makers understand where that is known."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not accepted: {error.verify_message}"
    reason = error.reason or "no reason is known"
    return SENTENCES.get(reason, f"TLS failed: {reason.lower().replace('_', ' ')}")
