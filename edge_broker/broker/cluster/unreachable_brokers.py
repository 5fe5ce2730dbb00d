"""Brokers whose port was found closed: they have a session with ZooKeeper, and no process answers.

A broker that was killed is registered until its session ends, six seconds as a rule, and leads until then, by
ZooKeeper. Metadata reports that no broker leads its partitions: clients ask again soon, instead of trying a port that
refuses them, and records without a key go to other partitions meanwhile.

| broker | reported |
|---|---|
| its port was found closed, under this registration | that it leads nothing, while a dead one may be registered |
| a connection to it was made since | what ZooKeeper says |
| the time is over, and it is still registered, so that it lives | what ZooKeeper says |

Leaders let it leave their in-sync sets meanwhile (leader_state.py), as any leader may, down to min.insync.replicas:
acks=all waits for it no more. It elects no broker: a closed port proves nothing.

Contains: which those are. Does not contain: decisions.
"""

from __future__ import annotations

from typing import NamedTuple


class _ClosedPort(NamedTuple):
    registration: int  # its epoch
    until_ms: float


class ClosedPorts:
    """Which they are; a time begins once for each registration and each connection that was made."""

    def __init__(self) -> None:
        self._closed: dict[int, _ClosedPort] = {}

    def __len__(self) -> int:
        """How many brokers were found so; none, as a rule."""
        return len(self._closed)

    def port_refused(self, broker: int, registration: int, until_ms: float) -> bool:
        """The port of a broker, registered under this epoch, was found closed; it would have no session by then.

        Whether that is news.
        """
        known = self._closed.get(broker)
        if known is not None and known.registration == registration:
            return False
        self._closed[broker] = _ClosedPort(registration, until_ms)
        return True

    def broker_reached(self, broker: int) -> None:
        """A connection to a broker was made."""
        self._closed.pop(broker, None)

    def has(self, broker: int, registration: int, now_ms: float) -> bool:
        """Whether a broker that is registered under this epoch is reported to lead nothing."""
        known = self._closed.get(broker)
        return known is not None and known.registration == registration and now_ms < known.until_ms
