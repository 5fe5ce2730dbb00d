"""Elect a new leader when the leader is gone.

| question | answer |
|---|---|
| when is a leader gone | the registration that the state names for it has ended |
| who may follow it | a member of the in-sync set that is registered, with the disk that the set names, and has not said that its log is offline |
| who of them does | the first in the order of the topic's replicas, those without a restart since they were caught up before the others; if no broker leads a while later, the next |
| how | it writes itself, by the state's version |
| what it writes | itself, the next epoch, and the set without missing members, of whom `needed` in all stay |
| no member of the set may | no broker leads; if the topic allows an unclean election, the replica with the most records does |

Restarted members come after the others: clients wait for longer and longer between two tries of a port that was
closed. The first may know that its disk is not the one that is named: then it is another's turn. Only one of two
claims of the same version succeeds, so it does not matter that views differ.

A member whose log is offline stays named if the set would become smaller than is needed: the counted records are on its
disk, and may be readable again. It says so in the state itself, under its registration. So an unclean election replaces
the very state in which it has said so: one whose log is back has taken that back, and the election fails. Under a later
registration nothing is said yet: a broker that starts again may lead until it says so again.

Contains: these rules. Does not contain: when they are applied. Source: KIP-101, KIP-595 (who has most), KIP-112.
"""  # noqa: E501

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from edge_broker.cluster.state.cluster_state import NO_LEADER, InSyncReplica, OfflineLog, PartitionState, Registration
from edge_broker.cluster.state.isr_rules import changed_isr

Registrations = Mapping[int, Registration]


def is_there(entry: InSyncReplica, registrations: Registrations) -> bool:
    """Whether the broker of an entry is registered with that disk, be it under a later registration."""
    found = registrations.get(entry.broker)
    return found is not None and found.directory == entry.directory


def is_offline(state: PartitionState, broker: int, registrations: Registrations) -> bool:
    """Whether a broker has said, under the registration that it has now, that its log is offline."""
    found = registrations.get(broker)
    return found is not None and OfflineLog(broker, found.epoch) in state.offline


def may_serve(state: PartitionState, entry: InSyncReplica, registrations: Registrations) -> bool:
    """Whether a member may lead, as far as others can know."""
    return is_there(entry, registrations) and not is_offline(state, entry.broker, registrations)


class LivenessView(Protocol):
    """A broker's knowledge of registered brokers."""

    @property
    def registrations(self) -> Registrations:
        """Of now."""

    def is_gone(self, entry: InSyncReplica | None) -> bool:
        """Whether a registration has ended for certain; None: no broker."""


def may_take_over(state: PartitionState, broker: int, known: LivenessView) -> bool:
    """Whether a member of the in-sync set may be handed the lead: it is not known to be gone, nor that it cannot."""
    return not known.is_gone(state.entry(broker)) and not is_offline(state, broker, known.registrations)


def candidates(state: PartitionState, replicas: Sequence[int], registrations: Registrations) -> tuple[int, ...]:
    """Return the candidates, in the order in which they should claim."""
    entries = [entry for broker in replicas if (entry := state.entry(broker)) is not None]
    may = [entry for entry in entries if may_serve(state, entry, registrations)]
    may.sort(key=lambda entry: registrations[entry.broker].epoch != entry.epoch)
    return tuple(entry.broker for entry in may)


def with_leader(
    state: PartitionState, me: InSyncReplica, registrations: Registrations, needed: int, epoch: int
) -> PartitionState:
    """Return the state in which this broker leads, in `epoch`."""
    others = [each for each in state.in_sync if each.broker != me.broker]
    gone = tuple(each for each in others if not may_serve(state, each, registrations))
    claim = state._replace(leader=me.broker, leader_epoch=epoch)
    return claim.naming(changed_isr(state.in_sync, (me,), gone, (), needed))


def claimed_unclean(state: PartitionState, me: InSyncReplica, epoch: int) -> PartitionState:
    """Return the state in which this broker leads, in `epoch`, though others have, or had, what it lacks."""
    return state._replace(leader=me.broker, leader_epoch=epoch, in_sync=(me,), offline=())


def without_broker(state: PartitionState, broker: int) -> PartitionState:
    """The state without a broker whose disk is not the one that the in-sync set names, or whose log is offline."""
    rest = tuple(each for each in state.in_sync if each.broker != broker)
    return without_leader(state, broker).naming(rest)


def without_leader(state: PartitionState, broker: int) -> PartitionState:
    """The state in which a broker does not lead."""
    return state._replace(leader=NO_LEADER) if state.leader == broker else state


def offline(state: PartitionState, me: InSyncReplica) -> PartitionState:
    """The state in which a member has said that its log is offline; it does not lead."""
    said, before = OfflineLog(me.broker, me.epoch), without_leader(state, me.broker)
    if said in state.offline:
        return before
    return before._replace(offline=(*online(before, me.broker).offline, said))


def online(state: PartitionState, broker: int) -> PartitionState:
    """Return the state without any report that a broker's log is offline."""
    return state._replace(offline=tuple(each for each in state.offline if each.broker != broker))


class LogEnds(NamedTuple):
    """How much a replica has; the greater one has more."""

    last_epoch: int
    end_offset: int


def has_most(me: int, ends: Mapping[int, LogEnds], replicas: Sequence[int]) -> bool:
    """Whether this broker is the one to elect, of those who told their ends; equal ones by the replicas' order."""
    best = max(ends.values())
    return next(broker for broker in replicas if ends.get(broker) == best) == me
