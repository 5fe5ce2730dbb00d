"""PURE. Decides each second the kernel options of a connection that fills a lossy link by BBR.

| BBR | cost | so the mirror |
|---|---|---|
| takes the fastest of ten round trips for the link's rate | a queue of up to a round trip | bounds the rate |
| sends next to nothing in each tenth second, to measure | 3 to 5 % of a long link | restarts BBR before |
| tries a quarter more in each eight round trips | seconds until it has twice its share | restarts a lone connection |

The bound is so much lower that all waiting packets drain in DRAIN_S. A restarted BBR takes the shortest round trip from
the socket. It finds the rate again under a bound: the rate that it had found, or, if no other connection has a backlog,
the link's. One measurement in a minute is enough; if packets seem to wait for long, as on a link that has become
longer, BBR measures. While it starts, each round trip up to three times as fast (STARTUP), no bound applies unless much
waits already: BBR would find no more than a bound. But if a low-volume stream shares the link, a bound applies at once,
as an alarm would wait after all excess packets.
Does not contain: sockets, clocks: time is an argument, in seconds.
Source: draft-cardwell-iccrg-bbr-congestion-control-00, 4.3; Linux's tcp_bbr.c.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import NamedTuple

from kafka_wire.connection.tcp_connect import LinkFill

WAITS_S = 0.05  # that packets wait on the link, which is full then
DRAIN_S = 2.0  # until all waiting packets are gone
RATE_SHARE_MIN = 0.5
ANEW_S = 8.0  # and a second until it is noticed: BBR measures 10 s after it has started, or has measured
LOOK_S = 12.0  # after which BBR has measured
SPARED = 6  # measurements, before there is one
FULL_TIMES = 0.5  # of the shortest round trip, that packets wait: BBR has found more than the link carries
WAITS_TIMES = 2.0  # of the shortest round trip, beyond which the link itself may have become longer
LONELY = 0.75  # of the link's rate, below which a lone connection restarts
AHEAD = 1.1  # of payload: headers, and segments sent again


class OtherTraffic(Enum):
    """The traffic in addition to a connection's backlog: none, other backlogs, or streams that must stay young."""

    NOTHING = auto()
    BACKLOGS = auto()
    TRICKLES = auto()


class PacingOptions(NamedTuple):
    """The bound in bytes per second, None: no bound; and whether BBR restarts."""

    rate_max: int | None
    begins_anew: bool = False


class Filling:
    """The pacing of one connection, which starts `now`; `tick` each second."""

    def __init__(self, now: float) -> None:
        self._since = now
        self._spared = 0
        self._was_alone = False

    def tick(
        self, now: float, filled: LinkFill | None, other_traffic: OtherTraffic, alone_bytes_s: float | None
    ) -> PacingOptions | None:
        """Return the options to set; None: none.

        `filled` is None without a backlog: for a low-volume stream BBR finds no more rate than the stream sends. Bound
        by that, it could send no burst. `alone_bytes_s` is the link's rate if no other connection has a backlog.
        """
        began_alone, self._was_alone = alone_bytes_s is not None and not self._was_alone, alone_bytes_s is not None
        if filled is None:
            self._since = now
            return PacingOptions(None)
        if filled.begins:
            self._was_alone &= not began_alone
            is_full = other_traffic is OtherTraffic.TRICKLES or filled.waits_s > FULL_TIMES * filled.shortest_s
            bound = rate_max(filled) if is_full and other_traffic is not OtherTraffic.NOTHING else None
            return None if bound is None else PacingOptions(bound)  # a bound of its start stays
        if began_alone and alone_bytes_s is not None and filled.bytes_s < LONELY * alone_bytes_s:
            self._since = now
            return PacingOptions(int(alone_bytes_s * AHEAD), begins_anew=True)
        if self._spares_look(now, filled):
            bound = rate_max(filled) if other_traffic is OtherTraffic.TRICKLES else None
            return PacingOptions(bound or filled.bytes_s, begins_anew=True)
        return PacingOptions(None if other_traffic is OtherTraffic.NOTHING else rate_max(filled))

    def _spares_look(self, now: float, filled: LinkFill) -> bool:
        past_s = now - self._since
        if self._spared >= SPARED or filled.waits_s > WAITS_TIMES * filled.shortest_s:
            if past_s >= LOOK_S:
                self._since, self._spared = now, 0
            return False
        if past_s < ANEW_S:
            return False
        self._since, self._spared = now, self._spared + 1
        return True


def rate_max(filled: LinkFill) -> int | None:
    """Return the bytes per second that a connection of BBR may send, while packets wait so long.

    BBR takes the fastest of ten round trips for the link's rate. If that is too high, the excess waits on the link, up
    to a round trip more than it holds, and all later packets wait as long.
    None: no bound, as BBR must try more to find out that the link carries more.
    """
    if filled.waits_s <= WAITS_S:
        return None
    return int(filled.bytes_s * max(RATE_SHARE_MIN, 1 - filled.waits_s / DRAIN_S))
