"""PURE. Resolves records of a compacted topic that only one end has: a newer record of the same key must follow.

The other end is assumed to have compacted such a record: that is a claim. A later record of the same key, at either
end, resolves it. A claim that nothing resolves was wrong. A null value resolves itself: it goes after
delete.retention.ms, and a log that lost it by a fault looks the same.
Does not contain: what a wrong claim means (account.py).
"""

from __future__ import annotations

from collections.abc import Iterator

from mirror.audit.compare.matching import Side
from mirror.audit.digest.digests import KEY_BYTES, NO_KEY, Part, split

CLAIMS_MAX = 200_000


class Claims:
    """The claims of one partition: per key the last record without a match, and from which offset others resolve it."""

    def __init__(self) -> None:
        self._open: dict[Side, dict[bytes, tuple[int, int]]] = {"source": {}, "target": {}}

    def make(self, side: Side, key: bytes, offset: int, other_from: int) -> bool:
        """Claim that the other end compacted a record of this end; its later records lie from `other_from` on.

        Return False if the record has no key, or there are too many claims.
        """
        claims = self._open[side]
        if key == NO_KEY or len(claims) >= CLAIMS_MAX:
            return False
        claims.pop(_comparable_key(key), None)  # this record is newer, and resolves it
        if not key[-1] & 1:
            claims[_comparable_key(key)] = offset, other_from
        return True

    def resolve(self, side: Side, some: Part) -> None:
        """Resolve claims by these records of an end."""
        other: Side = "target" if side == "source" else "source"
        own, others = self._open[side], self._open[other]
        if some.keys is None or not (own or others):
            return
        for offset, key in zip(_offsets(some), map(_comparable_key, split(some.keys, KEY_BYTES)), strict=True):
            if key in own and offset > own[key][0]:
                del own[key]
            if key in others and offset >= others[key][1]:
                del others[key]

    def wrong(self, side: Side) -> list[int]:
        """Return the offsets of records whose claims nothing has resolved."""
        return sorted(offset for offset, _ in self._open[side].values())


def _comparable_key(key: bytes) -> bytes:
    return key[:-1] + bytes([key[-1] | 1])


def _offsets(some: Part) -> Iterator[int]:
    return (offset for first, count in some.runs for offset in range(first, first + count))
