"""PURE. Keeps records at the target without a match, by their digests: their match may come later.

Does not contain: what a record without a match means (account.py).
"""

from __future__ import annotations

REMEMBERED_MAX = 20_000


class Extras:
    """The records of one partition without a match, at most REMEMBERED_MAX: target offset and class of each."""

    def __init__(self) -> None:
        self._found: dict[bytes, list[tuple[int, str]]] = {}
        self._count = 0
        self.foreign = 0
        """The number that count as foreign."""

    def add(self, digest: bytes, offset: int, kind: str) -> None:
        """Keep one that counts as `foreign` or `duplicates`."""
        if self._count < REMEMBERED_MAX:
            self._found.setdefault(digest, []).append((offset, kind))
            self._count += 1
            self.foreign += kind == "foreign"

    def pop(self, digest: bytes) -> tuple[int, str] | None:
        """Forget the first with this digest, and return it."""
        among = self._found.get(digest)
        if not among:
            return None
        offset, kind = among.pop(0)
        if not among:
            del self._found[digest]
        self._count -= 1
        self.foreign -= kind == "foreign"
        return offset, kind

    def pop_foreign(self, digest: bytes) -> list[int]:
        """Forget those with this digest that are counted as foreign, and return their offsets."""
        among = self._found.get(digest, [])
        found = [offset for offset, kind in among if kind == "foreign"]
        if found:
            self._found[digest] = [one for one in among if one[1] != "foreign"]
            self._count -= len(found)
            self.foreign -= len(found)
        return found
