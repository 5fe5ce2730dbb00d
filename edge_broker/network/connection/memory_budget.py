"""Bound the memory that clients can make the broker hold: two pools, and each connection's share of them.

| pool | what counts | at the bound |
|---|---|---|
| requests | what has not arrived whole, was put back, or is not answered yet | is not read on; one request at a time |
| answers | what an earlier answer holds back, or the client does not read | Fetch answers with less; large ones wait |

Each connection has ALLOWANCE_BYTES of either pool to itself, so that small requests never wait for what others hold.
Requests that un-park others may use `urgent_bytes` more. Some may go ahead of the bound to their end, one at least
and as many as `spare_bytes` take in all, so that one client proceeds even if others never end. A share that went
ahead counts there until it holds no more than its allowance: a request that has arrived is held until it is answered.

Contains: sums, and who waits for them. Does not contain: sockets, timers, what a request means.
"""

from __future__ import annotations

from collections.abc import Callable

ALLOWANCE_BYTES = 4096


class Pool:
    """Bytes of one kind over all connections; `soon` calls in the next turn of the loop."""

    __slots__ = (
        "_waiting_after",
        "_waking",
        "ahead_bytes",
        "bytes_max",
        "on_shortage",
        "short",
        "soon",
        "spare_bytes",
        "urgent_bytes",
        "used",
        "waiting",
    )

    def __init__(
        self,
        bytes_max: int,
        soon: Callable[[Callable[[], None]], None],
        *,
        spare_bytes: int,
        urgent_bytes: int = 0,
    ) -> None:
        self.bytes_max = bytes_max
        self.spare_bytes = spare_bytes
        self.urgent_bytes = urgent_bytes
        self.used = 0
        self.short = False  # when nothing but what is urgent may be added; kept, as it is asked for each frame
        self.ahead_bytes: dict[Share, int] = {}  # with how many bytes
        self.waiting: dict[object, Callable[[], None]] = {}
        self.on_shortage: Callable[[], None] = lambda: None
        self.soon = soon
        self._waking = False
        self._waiting_after: dict[Share, tuple[object, Callable[[], None]]] = {}

    def add(self, size: int) -> None:
        """Count `size` bytes, which need not fit: callers that can wait ask `Share.fits` first."""
        self.used += size
        self.short = self.used >= self.bytes_max

    def remove(self, size: int) -> None:
        """Count `size` bytes less, and let those who wait try again."""
        self.used -= size
        self.short = self.used >= self.bytes_max
        if self.waiting:
            self.wake()

    def wait(self, who: object, resume: Callable[[], None]) -> None:
        """Call `resume` once there is room; each holder waits once."""
        self.waiting[who] = resume
        self.on_shortage()

    def wait_behind(self, share: Share, who: object, resume: Callable[[], None]) -> None:
        """The same once `share`, which went ahead, has come to its end: until then `who` blocks no other.

        One waits after a share; `resume` must know by then whether `who` is gone.
        """
        self._waiting_after[share] = who, resume

    def forget(self, who: object) -> None:
        """`who` waits no more."""
        self.waiting.pop(who, None)

    def go_ahead(self, share: Share, size: int) -> bool:
        """Let `share` take `size` bytes beyond the bound if others left room there; granted once, it stays."""
        if share not in self.ahead_bytes:
            if self.ahead_bytes and sum(self.ahead_bytes.values()) + size > self.spare_bytes:
                return False
            self.ahead_bytes[share] = size
        return True

    def end(self, share: Share) -> None:
        """`share` has come to its end, if it went ahead."""
        if self.ahead_bytes.pop(share, None) is not None:
            if share in self._waiting_after:
                who, again = self._waiting_after.pop(share)
                self.waiting[who] = again
            self.wake()

    def wake(self) -> None:
        """Let those who wait try again in the next turn, one after the other, until one has to wait on."""
        if not self._waking and self.waiting:
            self._waking = True
            self.soon(self._wake)

    def _wake(self) -> None:
        self._waking = False
        for who in list(self.waiting):
            again = self.waiting.pop(who, None)
            if again is not None:
                again()
            if who in self.waiting:
                return


class Share:
    """One connection's share of a pool; the first ALLOWANCE_BYTES are its own."""

    __slots__ = ("held", "pool")

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.held = 0

    def fits(self, size: int, *, urgent: bool = False) -> bool:
        """True when `size` bytes more are within the allowance or within the pool."""
        if self.held + size <= ALLOWANCE_BYTES:
            return True
        bytes_max = self.pool.bytes_max + (self.pool.urgent_bytes if urgent else 0)
        return self.pool.used + size <= bytes_max

    def take(self, size: int) -> None:
        """Hold `size` bytes more."""
        held = self.held = self.held + size
        if held > ALLOWANCE_BYTES:
            over = held - ALLOWANCE_BYTES
            self.pool.add(over if over < size else size)

    def give(self, size: int) -> None:
        """Hold `size` bytes less."""
        over = self.held - ALLOWANCE_BYTES
        self.held -= size
        if over > 0:
            self.pool.remove(over if over < size else size)
        if self.pool.ahead_bytes and self.held <= ALLOWANCE_BYTES:
            self.pool.end(self)

    def give_all(self) -> None:
        """Hold nothing any more."""
        self.give(self.held)
