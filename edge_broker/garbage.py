"""When Python looks for objects that only hold each other: in calm moments, and never twice at the same ones.

A full collection holds the loop for as long as it takes to look through everything, 80 ms with 5,000 partitions.
References free nearly all; what is left are some hundred objects a day, of exceptions and closed connections.

| generation | looked through |
|---|---|
| young | by Python, after YOUNG_OBJECTS_MAX more objects; a thousand requests in flight hold as many |
| middle | by Python, after MIDDLE_AFTER of those |
| old | by `Garbage.look`, in a calm moment or after LOOKS_MAX others; what lives then is never looked through again |

Lives here: that policy. Must never come in: what makes objects. Source: the gc module, `freeze`.
"""

from __future__ import annotations

import gc

YOUNG_OBJECTS_MAX = 10_000
MIDDLE_AFTER = 4
NEVER = 1 << 30
OLD_AFTER = 10  # collections of the middle generation
LOOKS_MAX = 60


class Garbage:
    """Owned by the loop; from its making on, what is there counts as old and looked through."""

    def __init__(self) -> None:
        self._put_off = 0
        gc.freeze()
        gc.set_threshold(YOUNG_OBJECTS_MAX, MIDDLE_AFTER, NEVER)

    def look(self, *, calm: bool) -> None:
        """Look through what is old since the last time, if there is enough of it."""
        if gc.get_count()[2] < OLD_AFTER:
            return
        if not calm and self._put_off < LOOKS_MAX:
            self._put_off += 1
            return
        self._put_off = 0
        gc.collect()
        gc.freeze()
