"""A batch of records as a Fetch response carries it."""

from __future__ import annotations

from tests.support.record_batches import make_batch

NOW_MS = 1_795_557_000_000


def batch(base: int, count: int, *, codec: int = 0, value: bytes = b"v%d") -> tuple[int, int, bytes]:
    """Return the first and the last offset of a batch, and its bytes."""
    entries = [(b"k%d" % at, value % at if b"%d" in value else value, NOW_MS + at) for at in range(base, base + count)]
    return base, base + count - 1, bytes(make_batch(entries, base_offset=base, codec=codec))
