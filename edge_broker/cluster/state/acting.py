"""By which states a broker acts: compares each state with the kept one, has it kept, and gives new states their line.

| state that is read | the broker |
|---|---|
| has objections, and so no leader | does not act |
| of another line than the kept one (lines.py) | does not act, and adds its objection to the state |
| without a line, a registered broker knows none | acts, and its disk forgets what it kept: a new line begins |
| else | has it kept; leads, fetches and acknowledges by it once that is synced |

An objection is written once for each broker and kept state, so two brokers that object do not write in turn. The write
replaces the version that was read: a broker that read a stale state finds the newer one.

Contains: these decisions for all partitions of a broker. Does not contain: roles, writes (partition/partition.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from edge_broker.cluster.state.cluster_state import NO_LEADER, Identity, Objection, PartitionState, Registration
from edge_broker.cluster.state.lines import (
    UNMARKED_LINE,
    Line,
    Relation,
    is_older_disk,
    kept_by,
    may_act,
    relation,
    successor,
)
from edge_broker.cluster.state.state_keeper import StateKeeper
from edge_broker.storage.metadata.kept_states import KeptState, LogId


class Lines:
    """The states by which one broker acts; `new_id` returns a random id."""

    def __init__(self, identity: Identity, keeper: StateKeeper, new_id: Callable[[], str]) -> None:
        self.identity, self._keeper, self._new_id = identity, keeper, new_id
        self.fails = False  # the last write of kept states
        self.epoch_base = 0  # of the ensemble; a rebuilt one has a greater one
        self.older_release = True  # a registered broker writes states without lines, or nothing is known of any yet

    def relation(self, log: LogId, state: PartitionState) -> Relation:
        """Return how a state relates to the one that the disk has kept, or is about to."""
        kept = self._keeper.newest(log)
        found = relation(kept, state.line, self.epoch_base)
        if found is Relation.UNKNOWN and kept is not None and self._is_older_disk(kept, state):
            return Relation.SUCCESSOR
        return found

    def _is_older_disk(self, kept: KeptState, state: PartitionState) -> bool:
        """Return whether this disk is an old one of its broker, which acted by this line with a newer one."""
        entry = state.entry(self.identity.broker)
        if entry is not None:
            return not self.identity.is_named_by(entry)
        return is_older_disk(kept, state.line, self.identity.broker)

    def may_act(self, log: LogId, state: PartitionState) -> bool:
        """Return whether this broker may act by a state."""
        return not state.objections and may_act(self.relation(log, state), older_release=self.older_release)

    def keep(self, log: LogId, state: PartitionState) -> None:
        """Have the disk keep a state by which this broker may act."""
        if state.line.is_marked:
            self._keeper.keep(log, self._kept_by(state))
        else:
            self._keeper.forget(log)

    def is_kept(self, log: LogId, state: PartitionState) -> bool:
        """Return whether the disk has a state, synced; one without a line needs not be."""
        return not state.line.is_marked or self._keeper.kept_state(log) == self._kept_by(state)

    def _kept_by(self, state: PartitionState) -> KeptState:
        return kept_by(state.line, self.epoch_base, named=state.entry(self.identity.broker) is not None)

    def following(
        self, before: PartitionState, after: PartitionState, registrations: Mapping[int, Registration]
    ) -> PartitionState:
        """Return `after`, which is to replace `before`, with its line."""
        if not before.line.is_marked and self.older_release:
            return after
        named = [each.broker for each in before.in_sync]
        present = [
            each.broker
            for each in after.in_sync
            if (found := registrations.get(each.broker)) is not None and found.replica == each
        ]
        return after._replace(line=successor(before.line, self._new_id(), named, present))

    def first(self) -> Line:
        """Return the line of a new partition's state."""
        return UNMARKED_LINE if self.older_release else Line(self._new_id(), 1)

    def forget(self, log: LogId) -> None:
        """Have the disk keep nothing of a log that is removed."""
        self._keeper.forget(log)

    def with_objection(self, log: LogId, state: PartitionState) -> PartitionState:
        """Return a state that has this broker's objection if it objects, and none of this broker's if it does not.

        The state has no leader then, so the first one after all objections begins a new epoch.
        """
        kept = self._keeper.newest(log)
        others = tuple(each for each in state.objections if each.broker != self.identity.broker)
        if kept is None or may_act(self.relation(log, state), older_release=self.older_release):
            return state._replace(objections=others)  # a person has written off what this disk had kept
        mine = Objection(self.identity.broker, kept.state_id)
        if mine in state.objections:
            return state
        return state._replace(leader=NO_LEADER, objections=(*others, mine))
