"""PURE. Decides which blocked partitions keep their read batches, and how long each waits before its next attempt.

A partition is blocked while it waits for its next attempt: the target refuses it, has no leader for it, or cannot be
reached while other brokers can. It is tried until one of its batches is safe at the target.

| partition | is read | holds |
|---|---|---|
| blocked | no | its share of KEPT_SHARE, or nothing: released batches are read again |
| tried, and holds something | no | that |
| tried, and holds nothing | one at a time, the longest waiting first, within TRIED_SHARE | one fetch |
| any other | if there is room | up to the others' limits (replication/source_reader.py) |

Repeated attempts of all of them together take at most one fifth of the link. Does not contain: clocks, sockets.
"""

from __future__ import annotations

from collections.abc import Collection

from mirror.partition.stream import PartitionStream

KEPT_SHARE = TRIED_SHARE = 8  # of buffer_bytes_max, each
LINK_TIMES = 4  # the time that the link needs for an attempt, between two of them


class Held:
    """The partitions that are blocked or tried; `bytes_max` bounds all read batches."""

    def __init__(self, bytes_max: int) -> None:
        self._kept_max, self._tried_max = bytes_max // KEPT_SHARE, bytes_max // TRIED_SHARE
        self._lanes: dict[PartitionStream, None] = {}  # in the order of their last attempts
        self._free_at = 0.0  # when the link's share allows the next attempt

    def __contains__(self, lane: PartitionStream) -> bool:
        return lane in self._lanes

    @property
    def bytes(self) -> int:
        """The bytes that they hold."""
        return sum(lane.held_bytes for lane in self._lanes)

    @property
    def excess_bytes(self) -> int:
        """The bytes that they hold beyond their shares; these cost the others nothing: a record may exceed a share."""
        return max(0, self.bytes - self._kept_max - self._tried_max) if self._lanes else 0

    def block(self, lane: PartitionStream) -> bool:
        """Note that a partition waits; return whether it must release what it holds."""
        self._lanes.pop(lane, None)
        lane.blocked = True
        kept = sum(one.held_bytes for one in self._lanes if one.blocked)
        self._lanes[lane] = None
        return kept + lane.held_bytes > self._kept_max

    def attempt(self, lane: PartitionStream) -> None:
        """Note that its wait is over."""
        lane.blocked = False

    def forget(self, lane: PartitionStream) -> None:
        """Note that one of its batches is safe, or that it is mirrored no more."""
        lane.blocked = False
        self._lanes.pop(lane, None)

    def pause_s(self, now: float, link_s: float) -> float:
        """Return how long the next attempt waits, in seconds, after the last one took the link for `link_s`."""
        self._free_at = max(now, self._free_at) + LINK_TIMES * link_s
        return self._free_at - now

    def read_to_the_end(self) -> list[PartitionStream]:
        """Return partitions without a batch left to try: the source, or a client, has deleted it."""
        return [
            lane
            for lane in self._lanes
            if lane.is_drained and lane.is_read and not (lane.blocked or lane.is_unsure) and _is_at_end(lane)
        ]

    def readable(self, lanes: list[PartitionStream], busy: Collection[object]) -> list[PartitionStream]:
        """Return those of these partitions that may be read; `busy` ones have a fetch in flight."""
        if not self._lanes:
            return lanes
        tried = [one for one in self._lanes if not one.blocked]
        is_full = sum(one.held_bytes for one in tried) >= max(1, self._tried_max)
        if is_full or any(one.partition in busy for one in tried):
            next_one = None
        else:
            wanted = set(lanes)
            next_one = next((one for one in tried if one in wanted and not one.held_bytes), None)
        return [lane for lane in lanes if lane is next_one or lane not in self._lanes]


def _is_at_end(lane: PartitionStream) -> bool:
    return lane.source_end is not None and lane.offsets.acked >= lane.source_end
