"""Where a partition's state comes from: the rules that find another line of states.

An older copy of ZooKeeper's data may repeat every version, epoch and zxid. So each state has a random id, and names the
ids of the states before it. A board compares the state that it reads with the one that its disk has kept.

| the state that is read | relation |
|---|---|
| the disk has kept none, or one of before the znodes were rebuilt | NEW |
| the disk has kept one of a rebuilt ensemble, which this is not | OLDER |
| has no line, as older releases write it | UNMARKED |
| is the kept one | SAME |
| names the kept one as an ancestor | SUCCESSOR |
| has forgotten older ancestors, and the kept state did not name this broker | SUCCESSOR: no acked record needs it |
| has forgotten older ancestors, and the kept state named this broker | UNKNOWN |
| does not name the kept one, and has a smaller height | OLDER |
| does not name the kept one | OTHER |

A state names its last `RECENT` ancestors. For each broker that left the in-sync set, or whose registration ended while
the set named it, it also names the last `AT_LEAVING` ancestors of that moment, until it is in sync under its new
registration. A board that was off for any number of changes finds its own there.

UNKNOWN remains only where a board was registered and missed more than `AT_LEAVING` changes that named it. Such a board
does not act: it cannot tell this from an older copy that was written to since. An old image of its card differs from
both (`is_older_disk`): its broker acted by later states of this line, with another disk.

No two brokers lead in the same epoch, in whatever lines: an epoch belongs to the replica at its remainder by the number
of replicas. One broker never leads twice in an epoch, as its disk has kept a state of the first. So a log that was
written by another line is never taken for a prefix.

Contains: these rules, without bytes and writes. Does not contain: what a board does about another line.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from enum import Enum, auto
from typing import NamedTuple

from edge_broker.storage.metadata.kept_states import KeptState

RECENT = 32
AT_LEAVING = 16
NO_ID = ""


class Departure(NamedTuple):
    """A broker that left the in-sync set or was off, and the last states before that, the newest last."""

    broker: int
    state_ids: tuple[str, ...]
    height: int = 0  # of the newest of them


class Line(NamedTuple):
    """The id of a state, and the ids of those before it."""

    state_id: str = NO_ID
    height: int = 0  # how many states the line has had, this one included
    recent: tuple[str, ...] = ()  # ancestors, the newest last
    departures: tuple[Departure, ...] = ()
    accepted: tuple[str, ...] = ()  # states of other lines that a person has written off, the newest last

    @property
    def is_marked(self) -> bool:
        """Whether the state has an id; those that an older release wrote have none."""
        return self.state_id != NO_ID

    @property
    def has_forgotten(self) -> bool:
        """Whether older ancestors are named no more."""
        return self.height > len(self.recent) + 1

    def ancestors(self) -> Iterator[str]:
        """Yield all ancestors that the line still names; an id may come twice."""
        yield from self.recent
        yield from self.accepted
        for departure in self.departures:
            yield from departure.state_ids


UNMARKED_LINE = Line()


class Relation(Enum):
    """How a state that is read relates to the kept one, as above."""

    NEW = auto()
    UNMARKED = auto()
    SAME = auto()
    SUCCESSOR = auto()
    UNKNOWN = auto()
    OLDER = auto()
    OTHER = auto()


_ACTS = frozenset({Relation.NEW, Relation.SAME, Relation.SUCCESSOR})


def may_act(relation: Relation, *, older_release: bool) -> bool:
    """Return whether a board may lead, follow and truncate by a state.

    `older_release`: a registered broker writes states without lines, so that an unmarked one says nothing.
    """
    return relation in _ACTS or (relation is Relation.UNMARKED and older_release)


def relation(kept: KeptState | None, line: Line, epoch_base: int = 0) -> Relation:
    """Return how a state that was read relates to the one that the disk has kept; `epoch_base` is the ensemble's."""
    if kept is None or kept.epoch_base < epoch_base:
        return Relation.NEW
    if kept.epoch_base > epoch_base:
        return Relation.OLDER
    if not line.is_marked:
        return Relation.UNMARKED
    if line.state_id == kept.state_id:
        return Relation.SAME
    if kept.state_id in line.ancestors():
        return Relation.SUCCESSOR
    if line.height <= kept.height:
        return Relation.OLDER if line.height < kept.height else Relation.OTHER
    if not line.has_forgotten:
        return Relation.OTHER
    return Relation.UNKNOWN if kept.named else Relation.SUCCESSOR


def is_older_disk(kept: KeptState, line: Line, broker: int) -> bool:
    """Return whether a broker acted by this line after what this disk of it has kept, as far as its departure tells."""
    left = next((each for each in line.departures if each.broker == broker), None)
    return left is not None and kept.height <= left.height - len(left.state_ids)


def next_epoch(epoch: int, leader: int, replicas: Sequence[int]) -> int:
    """Return the first epoch after this one that belongs to a leader; of none, the one that follows."""
    if leader not in replicas:
        return epoch + 1
    return epoch + 1 + (replicas.index(leader) - epoch - 1) % len(replicas)


def successor(line: Line, state_id: str, before: Collection[int], after: Collection[int]) -> Line:
    """Return the line of the state that replaces the state of `line`.

    `before` has the brokers that the replaced state's in-sync set names. `after` has those that the new one's names and
    that are registered as it says. `state_id` is new and random.
    """
    if not line.is_marked:
        return Line(state_id, 1)
    passed = (*line.recent, line.state_id)
    departures = {each.broker: each for each in line.departures if each.broker not in after}
    for broker in before:
        if broker not in after:
            departures.setdefault(broker, Departure(broker, passed[-AT_LEAVING:], line.height))
    accepted = line.accepted[-AT_LEAVING:]
    return Line(
        state_id, line.height + 1, passed[-RECENT:], tuple(departures[each] for each in sorted(departures)), accepted
    )


def with_accepted(line: Line, kept_ids: Collection[str]) -> Line:
    """Return a line that names these states of other lines, so that the disks which have kept them act by it."""
    rest = tuple(each for each in line.accepted if each not in kept_ids)
    return line._replace(accepted=(*rest, *kept_ids))


def kept_by(line: Line, epoch_base: int = 0, *, named: bool) -> KeptState:
    """Return what a disk keeps of a marked state by which its board acts."""
    assert line.is_marked
    return KeptState(line.state_id, line.height, named, epoch_base)
