"""The time, in the form that each caller needs.

| who | asks for | which is |
|---|---|---|
| logs, retention, the ledger | `now()` | wall clock, age of the data directory, trust (storage/files/data_age.py) |
| appends | `at()` | the same, read once for all that comes within some milliseconds |
| groups | `clock_lead()` | how far wall clock and age are ahead of the steady clock |

Does not contain: the clocks themselves (edge_broker/clock.py), waiting.
"""

from __future__ import annotations

from edge_broker.clock import Clock
from edge_broker.coordinator.group_requests import ClockLead
from edge_broker.storage.files.data_age import OFF_MS_MAX, Now
from edge_broker.storage.log_store import LogStore

APPENDS_S = 0.01
STAMPS_S = 0.001
DAY_MS = 86_400_000


class Time:
    """The time of one broker; `clock` is the machine's."""

    def __init__(self, clock: Clock, store: LogStore) -> None:
        self.clock = clock
        self._directory = store.directory
        self._at_s, self._at_age, self._at = clock.seconds(), self._directory.age, self.now()

    def now(self) -> Now:
        """The time, as the log wants to know it. Any thread may ask."""
        return self._directory.age.now(self.clock.reading())

    def at(self, seconds: float, *, stamps: bool) -> Now:
        """The time at a reading of `clock.seconds`: at most 10 ms old, or 1 ms where it is stamped on records."""
        if seconds - self._at_s > (STAMPS_S if stamps else APPENDS_S) or self._at_age is not self._directory.age:
            self._at_s, self._at_age, self._at = seconds, self._directory.age, self.now()
        return self._at

    def is_stepped(self) -> bool:
        """Whether the wall clock was set since the last look at it."""
        return self._directory.age.is_stepped(self.clock.reading())

    def note(self) -> str | None:
        """Say in one sentence why the wall clock is in doubt, None where it is not."""
        age = self._directory.age
        off_ms = age.unverified_off_ms(self.clock.reading())
        if off_ms > OFF_MS_MAX:
            return (
                f"by its clock the board was without power for {off_ms // DAY_MS} days, and no time service keeps that "
                "clock: until one does or the clock is set back, records age by their time on disk alone"
            )
        if not age.is_doubted:
            return None
        direction = "forward" if age.stepped_ms > 0 else "back"
        return (
            f"the clock was set {direction} by {abs(age.stepped_ms) / 1000:.0f} s within this boot: "
            "until it is set back or the board is rebooted, records age by their time on disk alone"
        )

    def clock_lead(self) -> ClockLead:
        """How far the clocks that groups' records carry are ahead of the steady one."""
        steady_ms = self.clock.steady_ms()
        return ClockLead(self.clock.wall_ms() - steady_ms, self.now().age_ms - steady_ms)
