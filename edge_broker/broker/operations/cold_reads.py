"""Reading that waits for the disk, and what happens when it meets damage.

| step | worker | then |
|---|---|---|
| read | reader | done, or damage was met |
| quarantine: ledger, corrupt ranges | files | read on from there; what cannot be quarantined is refused |

Contains: the turns, for every handler that reads. Does not contain: what is read, how damage is quarantined
(storage/loss/quarantine.py).
"""

from __future__ import annotations

from collections.abc import Callable

from edge_broker.broker.effects import Effects
from edge_broker.broker.outcomes import Outcome, RunInWorker
from edge_broker.errors import Refusal, StorageFault
from edge_broker.storage.log.partition_log import PartitionLog
from edge_broker.storage.loss.quarantine import quarantine
from edge_broker.storage.segment.segment import DamageFound
from edge_broker.thread_checks import runs_in

DamageMet = tuple[PartitionLog, DamageFound]


def read_through(
    effects: Effects,
    work: Callable[[], DamageMet | None],
    then: Callable[[], Outcome],
    refused: Callable[[DamageMet, StorageFault], None],
) -> RunInWorker:
    """Call `work` in the reader thread until it has met no damage, then `then` on the loop.

    `work` keeps its own results, goes on where it stopped, and lets no StorageFault or Refusal out. `refused` hears, on
    the loop, of damage that could not be quarantined: `work` must not read there again.
    """
    return _Reading(effects, work, then, refused).read()


class _Reading:
    """One call's turns. Its methods are the steps: functions that know each other would outlive the answer."""

    __slots__ = ("_effects", "_refused", "_then", "_tried", "_work")

    def __init__(
        self,
        effects: Effects,
        work: Callable[[], DamageMet | None],
        then: Callable[[], Outcome],
        refused: Callable[[DamageMet, StorageFault], None],
    ) -> None:
        self._effects = effects
        self._work = work
        self._then = then
        self._refused = refused
        self._tried: set[tuple[str, int]] = set()

    def read(self) -> RunInWorker:
        return RunInWorker(self._work, self._quarantine_or_finish, lambda _: self._then(), worker="reader")

    def _quarantine_or_finish(self, met: DamageMet | None) -> Outcome:
        if met is None:
            return self._then()
        return RunInWorker(
            lambda: _quarantine(*met, self._tried), lambda fault: self._read_again(met, fault), lambda _: self._then()
        )

    def _read_again(self, met: DamageMet, fault: StorageFault | None) -> Outcome:
        self._effects.note(*met[0].take_damage_notes())
        if fault is not None:
            self._refused(met, fault)
        return self.read()


@runs_in("files")
def _quarantine(log: PartitionLog, found: DamageFound, tried: set[tuple[str, int]]) -> StorageFault | None:
    """Why it could not be; what is met again though nothing is wrong there counts as that."""
    place = (found.segment.path, found.position)
    try:
        if quarantine(log, found) is None and place in tried:
            return StorageFault(*place, f"{found.reason}, but not each time it is read; check the card")
    except StorageFault as fault:
        return fault.without_frames()
    except Refusal as refusal:
        return StorageFault(*place, f"{found.reason}; it cannot be written down: {refusal}")
    tried.add(place)
    return None
