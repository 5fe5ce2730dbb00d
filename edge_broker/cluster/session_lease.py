"""How long a broker may believe that its session lives, by its own clock.

A broker without a session may be replaced. So a leader acks only while the ensemble cannot have ended the session,
for two thirds of the timeout from the moment on when a request was sent that the ensemble's leader has answered. Sync
is such a request; a read proves nothing, as a server that lost its leader answers reads. The rest of the timeout is
for clocks that run at different rates. The clock is elapsed time since boot, which counts a suspended machine.

Left open: a deposed leader of the ensemble that does not know it yet may answer a Sync (ZooKeeper does not make it a
vote). Where the in-sync set has a second member that does not matter: it would have to fetch in the old epoch.

Does not contain: a clock, requests. Source: Gray and Cheriton, "Leases", 1989.
"""

from __future__ import annotations

NEVER = float("-inf")


class Lease:
    """The session of one broker; all times are of its own clock, in ms."""

    def __init__(self) -> None:
        self._proved_ms = NEVER
        self._timeout_ms = 0

    def begin(self, timeout_ms: int) -> None:
        """A session was told of; nothing is proved by that, but how long it lasts."""
        self._timeout_ms = timeout_ms

    def session_proved(self, sent_ms: float) -> None:
        """The ensemble's leader has answered what was sent then."""
        self._proved_ms = max(self._proved_ms, sent_ms)

    def end(self) -> None:
        """The session has ended."""
        self._proved_ms = NEVER

    def may_live(self, now_ms: float) -> bool:
        """Whether the session may not have ended yet, by this clock."""
        return now_ms < self._proved_ms + self._timeout_ms

    def holds(self, now_ms: float) -> bool:
        """Whether no broker can have learnt that this broker is gone."""
        return now_ms < self._proved_ms + self._timeout_ms * 2 / 3
