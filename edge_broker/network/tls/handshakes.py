"""Handshakes in progress, and turns of the TLS connections that have more to do than one turn of the loop allows.

| a handshake is ended | when |
|---|---|
| the oldest of the address that has most | HANDSHAKES_MAX are in progress and one more begins |
| any | it is not complete after HANDSHAKE_S_MAX |
| a new one | the connection would be one too many (server/listener_server.py) |

Each step, which is signing and checking of signatures, runs in a worker: a large RSA key or a slow board blocks no
other client. Contains: their number and their time. Does not contain: bytes (tls_transport.py), contexts
(tls_contexts.py).
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable
from typing import Any

from edge_broker.network.audit_log import AuditLog
from edge_broker.network.log_lines import log_line
from edge_broker.network.tls.tls_transport import READ_BYTES, HandshakeRefused, Step, TlsTransport
from edge_broker.network.worker import Worker

HANDSHAKES_MAX = 64
HANDSHAKE_S_MAX = 10.0
SWEEP_S = 1.0
TURN_S = 0.002  # of all connections together
KEPT_BYTES_MAX = 8 << 20  # of ciphertext that is not wanted yet; beyond it less is read at once


class Handshakes:
    """All TLS connections of a server; owned by the loop.

    `room` says why a client of an address may not come in, empty: it may. `is_short` says whether memory is short,
    `seconds` is fine enough to time a piece of work.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        worker: Worker,
        room: Callable[[str], str],
        is_short: Callable[[], bool],
        seconds: Callable[[], float],
    ) -> None:
        self.cipher_buffer = memoryview(bytearray(READ_BYTES))
        self.kept_bytes = 0
        self.complete = 0
        self.failed = 0
        self._loop = loop
        self._worker = worker
        self._room = room
        self._is_short = is_short
        self.seconds = seconds
        self._log = AuditLog(loop)
        self._begun: dict[TlsTransport, tuple[str, float]] = {}
        self._ring: deque[TlsTransport] = deque()
        self._sweeping = False

    def __len__(self) -> int:
        return len(self._begun)

    @property
    def short(self) -> bool:
        """Whether memory for requests is short, or for what comes in."""
        return self.kept_bytes > KEPT_BYTES_MAX or self._is_short()

    @property
    def is_crowded(self) -> bool:
        """Whether connections wait for their turn."""
        return bool(self._ring)

    def begin(self, transport: TlsTransport) -> bool:
        """A handshake begins; False: there is no room for the connection."""
        host = str(transport.address[0]) if transport.address else ""
        bound = self._room(host)
        if bound:
            self._log.line("warning", "connection_refused", client=_client(transport), bound=bound)
            return False
        if len(self._begun) >= HANDSHAKES_MAX:
            self._make_room()
        self._begun[transport] = host, self._loop.time()
        if not self._sweeping:
            self._sweeping = True
            self._loop.call_later(SWEEP_S, self._sweep)
        return True

    def _make_room(self) -> None:
        """End the oldest handshake of the address that has most: a stranger's many cost an honest client's none."""
        ((host, _),) = Counter(host for host, _ in self._begun.values()).most_common(1)
        oldest = next(transport for transport, (of, _) in self._begun.items() if of == host)
        self.end(oldest, f"more than {HANDSHAKES_MAX} handshakes were under way")
        oldest.abort()

    def step(self, transport: TlsTransport, work: Callable[[], Step]) -> None:
        """Make a step of a handshake in the worker, then call `step_completed` or `refuse`."""

        def done(step: Any, error: Exception | None) -> None:
            if error is None:
                transport.step_completed(step)
                return
            if not isinstance(error, HandshakeRefused):
                log_line("error", "handshake_step_failed", error=repr(error))
            transport.refuse(str(error))

        self._worker.submit(work, done)

    def end(self, transport: TlsTransport, why: str = "") -> None:
        """A handshake is over, with a sentence when it has failed; said again, nothing."""
        if self._begun.pop(transport, None) is None:
            return
        if why:
            self.failed += 1
            self._log.line("warning", "handshake_failed", client=_client(transport), reason=why)
            return
        self.complete += 1

    def refuse(self) -> None:
        """End all that are in progress, and say what was only counted: the broker stops."""
        self._log.end_window()
        for transport in list(self._begun):
            self._begun.pop(transport)
            transport.abort()

    def due(self, transport: TlsTransport) -> None:
        """Let a connection go on in a next turn of the loop, when those before have had theirs."""
        if not self._ring:
            self._loop.call_soon(self._turn)
        self._ring.append(transport)

    def _turn(self) -> None:
        """Let connections go on, each once, until the time of this turn is up."""
        end = self.seconds() + TURN_S
        for _ in range(len(self._ring)):
            self._ring.popleft().turn()
            if self.seconds() >= end:
                break
        if self._ring:
            self._loop.call_soon(self._turn)

    def _sweep(self) -> None:
        oldest = self._loop.time() - HANDSHAKE_S_MAX
        for transport, (_, begun) in list(self._begun.items()):
            if begun > oldest:
                break
            self.end(transport, f"the handshake was not complete after {HANDSHAKE_S_MAX:.0f} s")
            transport.abort()
        self._sweeping = bool(self._begun)
        if self._sweeping:
            self._loop.call_later(SWEEP_S, self._sweep)


def _client(transport: TlsTransport) -> str:
    address = transport.address
    return f"{address[0]}:{address[1]}" if address else "local"
