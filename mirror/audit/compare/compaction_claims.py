"""PURE. Topics that compact: what one end has let go of since there are newer records of its key.

A record that only one end has is supposed to have given way at the other; that is a claim, settled by a record of the
same key that comes later, at either end. A claim that nothing settles was wrong. A null value settles itself: it goes
after delete.retention.ms, and a log that lost it by fault looks the same.

Must never come in: what a claim that was wrong means.
"""

from __future__ import annotations

from collections.abc import Iterator

from mirror.audit.compare.matching import Side
from mirror.audit.digest.digests import KEY_BYTES, NO_KEY, Part, split

CLAIMS_MAX = 200_000


class Claims:
    """The claims of one partition: for each key the last record without a match, and from where on others settle it."""

    def __init__(self) -> None:
        self._open: dict[Side, dict[bytes, tuple[int, int]]] = {"source": {}, "target": {}}

    def make(self, side: Side, key: bytes, offset: int, other_from: int) -> bool:
        """Claim that a record of this end gave way at the other, whose later ones lie from `other_from` on.

        False where that cannot be: it has no key, or there are too many claims.
        """
        claims = self._open[side]
        if key == NO_KEY or len(claims) >= CLAIMS_MAX:
            return False
        claims.pop(_keyed(key), None)  # that one gave way to this one, at the least
        if not key[-1] & 1:
            claims[_keyed(key)] = offset, other_from
        return True

    def settle(self, side: Side, some: Part) -> None:
        """Settle claims by these records of an end."""
        other: Side = "target" if side == "source" else "source"
        own, others = self._open[side], self._open[other]
        if some.keys is None or not (own or others):
            return
        for offset, key in zip(_offsets(some), map(_keyed, split(some.keys, KEY_BYTES)), strict=True):
            if key in own and offset > own[key][0]:
                del own[key]
            if key in others and offset >= others[key][1]:
                del others[key]

    def wrong(self, side: Side) -> list[int]:
        """The offsets of records whose claims nothing has settled."""
        return sorted(offset for offset, _ in self._open[side].values())


def _keyed(key: bytes) -> bytes:
    return key[:-1] + bytes([key[-1] | 1])


def _offsets(some: Part) -> Iterator[int]:
    return (offset for first, count in some.runs for offset in range(first, first + count))
