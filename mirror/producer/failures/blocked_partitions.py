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


class BlockedPartitions:
    """The partitions that are blocked or tried; `bytes_max` bounds all read batches."""

    def __init__(self, bytes_max: int) -> None:
        self._kept_max, self._tried_max = bytes_max // KEPT_SHARE, bytes_max // TRIED_SHARE
        self._streams: dict[PartitionStream, None] = {}  # in the order of their last attempts
        self._free_at = 0.0  # when the link's share allows the next attempt

    def __contains__(self, stream: PartitionStream) -> bool:
        return stream in self._streams

    @property
    def bytes(self) -> int:
        """The bytes that they hold."""
        return sum(stream.held_bytes for stream in self._streams)

    @property
    def excess_bytes(self) -> int:
        """The bytes that they hold beyond their shares; these cost the others nothing: a record may exceed a share."""
        return max(0, self.bytes - self._kept_max - self._tried_max) if self._streams else 0

    def block(self, stream: PartitionStream) -> bool:
        """Note that a partition waits; return whether it must release what it holds."""
        self._streams.pop(stream, None)
        stream.blocked = True
        kept = sum(one.held_bytes for one in self._streams if one.blocked)
        self._streams[stream] = None
        return kept + stream.held_bytes > self._kept_max

    def attempt(self, stream: PartitionStream) -> None:
        """Note that its wait is over."""
        stream.blocked = False

    def forget(self, stream: PartitionStream) -> None:
        """Note that one of its batches is safe, or that it is mirrored no more."""
        stream.blocked = False
        self._streams.pop(stream, None)

    def pause_s(self, now: float, link_s: float) -> float:
        """Return how long the next attempt waits, in seconds, after the last one took the link for `link_s`."""
        self._free_at = max(now, self._free_at) + LINK_TIMES * link_s
        return self._free_at - now

    def read_to_the_end(self) -> list[PartitionStream]:
        """Return partitions without a batch left to try: the source, or a client, has deleted it."""
        return [
            stream
            for stream in self._streams
            if stream.is_drained and stream.is_read and not (stream.blocked or stream.is_unsure) and _is_at_end(stream)
        ]

    def readable(self, streams: list[PartitionStream], busy: Collection[object]) -> list[PartitionStream]:
        """Return those of these partitions that may be read; `busy` ones have a fetch in flight."""
        if not self._streams:
            return streams
        tried = [one for one in self._streams if not one.blocked]
        is_full = sum(one.held_bytes for one in tried) >= max(1, self._tried_max)
        if is_full or any(one.partition in busy for one in tried):
            next_one = None
        else:
            wanted = set(streams)
            next_one = next((one for one in tried if one in wanted and not one.held_bytes), None)
        return [stream for stream in streams if stream is next_one or stream not in self._streams]


def _is_at_end(stream: PartitionStream) -> bool:
    return stream.source_end is not None and stream.offsets.acked >= stream.source_end
