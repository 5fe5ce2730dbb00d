"""Open one connection on demand, and retry it by this table.

| a connect | the next begins |
|---|---|
| no answer, the link is down, no listener (yet) | a second after this one |
| refused: TLS, the log-in, what is no Kafka | after a wait that grows to BACKOFF_MAX_S |
| was made, and lost | at once, a second after this one at the earliest |
| was made, and the first request, or a later log-in, refused | as refused |

All callers share its attempts. Does not contain: the choice of the peer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from drupelet.backoff import FIRST_S, Backoff
from kafka_wire.connection.connection import Connection
from kafka_wire.connection.errors import BrokerRefused, ConnectionLost, NobodyListens

LINK_S = 1.0
BACKOFF_MAX_S = 60.0


class Line:
    """A connection by its number. `open_` makes it, within the given seconds or its own limit.

    `open_` retries at once when its event is set. `next_at` is the loop's time before which no attempt begins.
    """

    def __init__(self, open_: Callable[[float | None, asyncio.Event], Awaitable[Connection]]) -> None:
        self.next_at = 0.0
        self._open = open_
        self._made: Connection | None = None
        self._backoff = Backoff(FIRST_S, BACKOFF_MAX_S)
        self._attempt: asyncio.Task[Connection] | None = None
        self._result: asyncio.Future[Connection] | None = None
        self._now = asyncio.Event()
        self._was_made = self._is_dialling = False
        self._is_closed = False

    @property
    def connection_if_open(self) -> Connection | None:
        """Return the connection if it is open."""
        return None if self._made is None or self._made.is_closed else self._made

    @property
    def is_idle(self) -> bool:
        """Whether it is neither open nor being opened."""
        return self.connection_if_open is None and self._attempt is None

    async def connection(self, limit_s: float | None = None) -> Connection:
        """Return the connection, after the next attempt if it is not open. Raises WireError."""
        made = self.connection_if_open
        if made is not None:
            return made
        if self._is_closed:
            raise ConnectionLost("the connections were closed here")
        if self._result is None:
            self._begin(limit_s)
        assert self._result is not None
        return await asyncio.shield(self._result)

    def _begin(self, limit_s: float | None) -> None:
        self._result = asyncio.get_running_loop().create_future()
        self._attempt = asyncio.ensure_future(self._try(limit_s))
        self._attempt.add_done_callback(self._attempt_ended)

    def broker_reached(self, *, is_wanted: bool) -> None:
        """Dial at once if an attempt is in progress, as another connection has just reached the broker.

        If `is_wanted`, a lost connection is opened again though no caller waits for it, unless it was refused.
        """
        if self._is_dialling:
            self._now.set()
        elif is_wanted and self._was_made and self.is_idle and not self._is_closed:
            self._begin(None)

    def retry_now(self) -> None:
        """Begin the next attempt at once, with a short wait after it."""
        self._backoff.reset()
        self.next_at = 0.0
        self._now.set()

    def close(self) -> None:
        """Close it, and open it never again."""
        self._is_closed = True
        if self._attempt is not None:
            self._attempt.cancel()
        if self._made is not None:
            self._made.close()

    async def _try(self, limit_s: float | None) -> Connection:
        loop = asyncio.get_running_loop()
        self._classify_last(loop.time())
        self._now.clear()
        while (wait_s := self.next_at - loop.time()) > 0:
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._now.wait()
        self.next_at = loop.time() + LINK_S
        self._now.clear()
        self._is_dialling = True
        try:
            return await self._open(limit_s, self._now)
        except NobodyListens:
            raise
        except BrokerRefused:
            self._was_made = False
            self.next_at = loop.time() + self._backoff.next_s()
            raise
        finally:
            self._is_dialling = False

    def _classify_last(self, now: float) -> None:
        """Count a connection that was made and then refused as one that was never made."""
        made, self._made = self._made, None
        if made is not None and isinstance(made.end_error, BrokerRefused):
            self.next_at, self._was_made = max(self.next_at, now + self._backoff.next_s()), False
        elif made is not None:
            self._backoff.reset()

    def _attempt_ended(self, attempt: asyncio.Task[Connection]) -> None:
        result, self._result, self._attempt = self._result, None, None
        assert result is not None
        if attempt.cancelled():
            result.set_exception(ConnectionLost("the connections were closed here"))
        elif (error := attempt.exception()) is not None:
            result.set_exception(error)
        else:
            self._made, self._was_made = attempt.result(), True
            if self._is_closed:
                self._made.close()
            result.set_result(self._made)
        result.exception()  # a cancelled caller does not read it
