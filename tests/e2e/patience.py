"""How long the demo waits for what is slow: as long as it goes on, with pauses no longer than this machine makes.

Pure: what was seen and when are arguments. No part's name, no clock, no file here.
"""

from __future__ import annotations

PAUSE_S_MIN = 120.0
PAUSES = 3.0  # times the longest pause that ended by itself, the start among them
WHOLE_S_MAX = 1_800.0


class Patience:
    """Learns from the moment a part was started; runs out when the part stands still for far longer than it ever did.

    `began_s`: when it was started. In any case it runs out WHOLE_S_MAX after `begin`.
    """

    def __init__(self, began_s: float) -> None:
        self._moved_s = began_s
        self._longest_s = 0.0
        self._seen: object = None
        self._begun_s: float | None = None

    @property
    def pause_s(self) -> float:
        """How long it may stand still."""
        return max(PAUSE_S_MIN, PAUSES * self._longest_s)

    def begin(self, now_s: float) -> None:
        """From now on somebody waits."""
        self._begun_s = now_s
        self._moved_s = now_s

    def saw(self, seen: object, now_s: float) -> None:
        """Look at something that changes while the part goes on."""
        if seen != self._seen:
            self._longest_s = max(self._longest_s, now_s - self._moved_s)
            self._seen, self._moved_s = seen, now_s

    def ran_out(self, now_s: float) -> str:
        """Why waiting is over; empty while it is not."""
        if now_s - self._moved_s > self.pause_s:
            still_s = now_s - self._moved_s
            return f"it stood still for {still_s:.0f} s; its longest pause before was {self._longest_s:.0f} s"
        if self._begun_s is not None and now_s - self._begun_s > WHOLE_S_MAX:
            return f"it still goes on after {now_s - self._begun_s:.0f} s: this machine is too slow for it"
        return ""
