"""Reading that waits for the disk, and what happens when it meets damage.

| step | worker | then |
|---|---|---|
| read | reader | done, or damage was met |
| contain: ledger, holes | files | read on from there; what cannot be contained is refused |

Lives here: those turns, for every handler that reads. Must never come in: what is read, how damage is contained
(storage/damage.py).
"""

from __future__ import annotations

from collections.abc import Callable

from edge_broker.errors import Refusal, StorageFault
from edge_broker.handlers.broker import Broker
from edge_broker.handlers.outcome import Do, Outcome
from edge_broker.storage.damage import contain
from edge_broker.storage.log import PartitionLog
from edge_broker.storage.segment import DamageFound

Met = tuple[PartitionLog, DamageFound]


def read_through(
    broker: Broker,
    work: Callable[[], Met | None],
    then: Callable[[], Outcome],
    refused: Callable[[Met, StorageFault], None],
) -> Do:
    """Call `work` in the reader thread until it has met no damage, then `then` on the loop.

    `work` keeps its own results, goes on where it stopped, and lets no StorageFault or Refusal out. `refused` hears, on
    the loop, of damage that could not be contained: `work` must not read there again.
    """
    tried: set[tuple[str, int]] = set()

    def read() -> Do:
        return Do(work, go_on, lambda _: then(), worker="reader")

    def go_on(met: Met | None) -> Outcome:
        return (
            then()
            if met is None
            else Do(lambda: _contain(*met, tried), lambda fault: again(met, fault), lambda _: then())
        )

    def again(met: Met, fault: StorageFault | None) -> Outcome:
        broker.notes += met[0].take_damage_notes()
        if fault is not None:
            refused(met, fault)
        return read()

    return read()


def _contain(log: PartitionLog, found: DamageFound, tried: set[tuple[str, int]]) -> StorageFault | None:
    """Why it could not be contained; what is met again though nothing is wrong there counts as that. [worker: files]"""
    place = (found.segment.path, found.position)
    try:
        if contain(log, found) is None and place in tried:
            return StorageFault(*place, f"{found.reason}, but not each time it is read; check the card")
    except StorageFault as fault:
        return fault
    except Refusal as refusal:
        return StorageFault(*place, f"{found.reason}; it cannot be written down: {refusal}")
    tried.add(place)
    return None
