"""When Python looks for objects that only hold each other: in calm moments, and not at the same ones again.

By itself it looks whenever there are some thousand more, in the middle of whatever the loop does, for 20 to 90 ms when
large requests are in progress. References free all that requests make; what is left over comes from exceptions now and
then. So the collector is off, and asked each LOOK_S:

| there are more objects than the last time by | and | then |
|---|---|---|
| OBJECTS_MIN | the loop is calm | it looks through those, and never again at the ones that are alive |
| OBJECTS_MAX | | the same, as something may have leaked |
| | the loop is calm, WHOLE_S have passed | it looks through everything |

Does not contain: what makes objects. Source: the gc module, which counts on when it is off.
"""

from __future__ import annotations

import gc

LOOK_S = 1.0
WHOLE_S = 86_400.0
OBJECTS_MIN = 10_000
OBJECTS_MAX = 1_000_000


class Garbage:
    """Owned by the loop; from its making on, what is there is not looked through again."""

    def __init__(self) -> None:
        self._looks = 0
        gc.disable()
        gc.freeze()

    def collect_if_due(self, *, calm: bool) -> None:
        """Look for garbage if it is time to."""
        self._looks += 1
        objects = gc.get_count()[0]
        whole = calm and self._looks * LOOK_S >= WHOLE_S
        if whole:
            self._looks = 0
            gc.unfreeze()
        if whole or objects >= (OBJECTS_MIN if calm else OBJECTS_MAX):
            gc.collect()
            gc.freeze()
