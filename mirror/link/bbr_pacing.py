"""PURE. What the kernel is told each second of a connection that fills a link by BBR, through its losses.

| BBR | which costs | so a connection |
|---|---|---|
| takes the fastest of ten round trips for the link's rate | a queue of up to a round trip | is bounded |
| sends next to nothing in each tenth second | 3 to 5 % of a long link | begins anew before |
| tries a quarter more in each eight round trips | seconds until it has twice its share | that is alone begins anew |

Bounded by so much that all that waits is gone in DRAIN_S. BBR sends next to nothing to see the shortest round trip,
which the socket knows: begun anew it takes that, and finds the rate again under a bound of what it had found, or, where
the others have nothing left, of what the link has carried. One look in a minute is enough, and where packets seem to
wait for long, as on a link that has become longer, it looks. While it begins, each round trip up to three times as
fast (STARTUP), it is let be unless much waits already: a bound below what there is would be all that it finds. But
beside what trickles it is bounded at once: an alarm would wait behind all that is too much.

Must never come in: sockets, clocks: time is an argument, in seconds.
Source: draft-cardwell-iccrg-bbr-congestion-control-00, 4.3; Linux's tcp_bbr.c.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import NamedTuple

from kafka_wire.connection.tcp_connect import Filled

WAITS_S = 0.05  # of packets on the link, which is full then
DRAIN_S = 2.0  # until all that waits is gone
RATE_SHARE_MIN = 0.5
ANEW_S = 8.0  # and a second until it is noticed: BBR looks 10 s after it has begun, or has looked
LOOK_S = 12.0  # behind which it has looked
SPARED = 6  # looks, before there is one
FULL_TIMES = 0.5  # of the shortest round trip, that packets wait: it has found more than there is
WAITS_TIMES = 2.0  # of the shortest round trip, beyond which the link itself may have become longer
LONELY = 0.75  # of what the link has carried, below which a connection that is alone begins anew
AHEAD = 1.1  # of payload: headers, and what is sent again


class Beside(Enum):
    """What goes beside a connection with a backlog: nothing, other backlogs, or something that is to be young."""

    NOTHING = auto()
    BACKLOGS = auto()
    TRICKLES = auto()


class Told(NamedTuple):
    """Bytes per second that it may send at most, None: as it likes; and whether it begins anew."""

    rate_max: int | None
    begins_anew: bool = False


class Filling:
    """One connection's, which begins `now`; `tick` each second."""

    def __init__(self, now: float) -> None:
        self._since = now
        self._spared = 0
        self._was_alone = False

    def tick(self, now: float, filled: Filled | None, beside: Beside, alone_bytes_s: float | None) -> Told | None:
        """What the kernel is to be told; None: nothing.

        `filled` is None without a backlog: of what trickles BBR finds no more than it is given, and bound by that, it
        could send no burst. `alone_bytes_s` is what the link carries where all others have none.
        """
        began_alone, self._was_alone = alone_bytes_s is not None and not self._was_alone, alone_bytes_s is not None
        if filled is None:
            self._since = now
            return Told(None)
        if filled.begins:
            self._was_alone &= not began_alone
            is_full = beside is Beside.TRICKLES or filled.waits_s > FULL_TIMES * filled.shortest_s
            bound = rate_max(filled) if is_full and beside is not Beside.NOTHING else None
            return None if bound is None else Told(bound)  # what bounded its beginning is not lifted by it
        if began_alone and alone_bytes_s is not None and filled.bytes_s < LONELY * alone_bytes_s:
            self._since = now
            return Told(int(alone_bytes_s * AHEAD), begins_anew=True)
        if self._spares_look(now, filled):
            bound = rate_max(filled) if beside is Beside.TRICKLES else None
            return Told(bound or filled.bytes_s, begins_anew=True)
        return Told(None if beside is Beside.NOTHING else rate_max(filled))

    def _spares_look(self, now: float, filled: Filled) -> bool:
        past_s = now - self._since
        if self._spared >= SPARED or filled.waits_s > WAITS_TIMES * filled.shortest_s:
            if past_s >= LOOK_S:
                self._since, self._spared = now, 0
            return False
        if past_s < ANEW_S:
            return False
        self._since, self._spared = now, self._spared + 1
        return True


def rate_max(filled: Filled) -> int | None:
    """How many bytes per second a connection of BBR may send, while packets wait so long.

    BBR takes the fastest of ten round trips for what the link carries. Where that is too much, what it sends too fast
    waits on the link until there is a round trip more on it than it holds, and all that comes next waits as long.
    None: as it likes, as only who tries more finds out that there is more.
    """
    if filled.waits_s <= WAITS_S:
        return None
    return int(filled.bytes_s * max(RATE_SHARE_MIN, 1 - filled.waits_s / DRAIN_S))
