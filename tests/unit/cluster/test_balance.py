"""Who should lead, by the controller's wish and at a controlled shutdown."""

from __future__ import annotations

import pytest

from edge_broker.cluster.controller import out_of_balance
from edge_broker.cluster.effects import Ask, ShutdownReady
from edge_broker.cluster.inter_broker_messages import HandOver, ReplicaFetch
from edge_broker.cluster.member import ClusterMember, MembershipState
from edge_broker.cluster.partition.partition import Partition, Role, Settings
from edge_broker.cluster.state.cluster_state import (
    NO_LEADER,
    Identity,
    InSyncReplica,
    OfflineLog,
    PartitionId,
    PartitionState,
    Registration,
    Topic,
)
from edge_broker.cluster.znodes.zookeeper import Done, Suspended
from tests.simulation.cluster_disk import Record, SimLog

A, B = InSyncReplica(1, "one", 5), InSyncReplica(2, "two", 6)
THERE = {each.broker: Registration(each.broker, each.epoch, each.directory) for each in (A, B)}
PARTITIONS = 10


def wishes(led_by_others: int, percent: int, *, leader: int = 2, offline: tuple[OfflineLog, ...] = ()) -> list[int]:
    """Of ten partitions that broker 1 should lead: which it is to be handed."""
    states = {
        PartitionId("t", number): PartitionState(leader if number < led_by_others else 1, 3, (A, B), offline)
        for number in range(PARTITIONS)
    }
    found = list(out_of_balance({"t": Topic("id", ((1, 2),) * PARTITIONS, {})}, states, THERE, percent))
    assert all((to, wish.to) == (2, 1) for to, wish in found)
    return [wish.partition.partition for _, wish in found]


@pytest.mark.parametrize(
    ("led_by_others", "percent", "wished"),
    [(1, 10, []), (2, 10, [0, 1]), (1, 0, [0]), (0, 0, []), (10, 99, list(range(10))), (10, 100, [])],
)
def test_a_broker_is_handed_what_it_should_lead_once_others_lead_too_much_of_it(
    led_by_others: int, percent: int, wished: list[int]
) -> None:
    assert wishes(led_by_others, percent) == wished


def test_nothing_is_wished_of_nobody_nor_for_whose_log_is_offline() -> None:
    assert wishes(5, 10, leader=NO_LEADER) == []
    assert wishes(5, 10, offline=(OfflineLog(1, 5),)) == []
    assert wishes(5, 10, offline=(OfflineLog(1, 4),)) == [0, 1, 2, 3, 4], "it has started again since"


class Leaving:
    """A broker that leads partitions whose only other replica lacks a record."""

    def __init__(self, tries: int, partitions: int = 1) -> None:
        settings = Settings(hand_over_ms_max=1000.0, leave_tries=tries, leave_backoff_ms=3000.0, lag_ms_max=1e9)
        self.member = member = ClusterMember(Identity(1, "one", (5,)), settings)
        member.standing, member.image.is_complete, member.connected = MembershipState.SERVING, True, True
        member.image.registrations.update(THERE)
        member.image.topics["t"] = Topic("id", ((1, 2),) * partitions, {})
        member.topic_changed("t")
        for partition in (PartitionId("t", number) for number in range(partitions)):
            log = SimLog(synced=True)
            log.append((Record(3, 0),))
            log.restart()
            member.log_opened(partition, "id", log, 0.0)
            member.state_read(partition, PartitionState(1, 4, (A, B)), 7)
            member.epoch_begun(partition, 4, 0.0)
        self.partition: Partition = member.partitions[PartitionId("t", 0)]
        assert self.partition.role is Role.LEADING
        member.effects.clear()

    def goes_on(self, to_ms: float, from_ms: float = 0.0) -> list[tuple[float, bool]]:
        """When it begins to hand over (True) or leads on, and ShutdownReady (False, at the end)."""
        found, role = list[tuple[float, bool]](), self.partition.role
        at_ms = from_ms
        while at_ms < to_ms:
            at_ms += 100.0
            self.member.tick(at_ms)
            if self.partition.role is not role:
                role = self.partition.role
                found.append((at_ms, role is Role.HANDING_OVER))
        return found

    def has_left(self) -> bool:
        return any(isinstance(each, ShutdownReady) for each in self.member.effects)


def test_a_broker_that_stops_tries_again_behind_a_pause_in_which_it_leads() -> None:
    leaving = Leaving(tries=2)
    leaving.member.shut_down(0.0)
    assert leaving.partition.role is Role.HANDING_OVER
    assert leaving.goes_on(4000.0) == [(1100.0, False)]
    assert not leaving.has_left()
    assert leaving.goes_on(9000.0, 4000.0) == [(4100.0, True), (5200.0, False)]
    assert leaving.has_left(), "twice is enough"


def test_without_zookeeper_a_broker_that_stops_waits_for_one_try_alone() -> None:
    leaving = Leaving(tries=3)
    leaving.member.event_received(Suspended(), 0.0)
    leaving.member.shut_down(0.0)
    leaving.goes_on(900.0)
    assert not leaving.has_left(), "it may be there again soon"
    leaving.goes_on(1000.0, 900.0)
    assert leaving.has_left(), "nobody can be elected meanwhile"


def test_who_catches_up_in_the_pause_is_handed_the_lead() -> None:
    leaving = Leaving(tries=3)
    leaving.member.shut_down(0.0)
    leaving.goes_on(2000.0)
    leaving.member.fetch_from(ReplicaFetch(PartitionId("t", 0), B, 4, 1, 3, 1), 2000.0)
    leaving.goes_on(4200.0, 2000.0)
    assert leaving.partition._write.pending == PartitionState(2, 5, (B,)), "and the set does not name who stops"


def handing(member: ClusterMember) -> list[PartitionId]:
    return [each.partition for each in member.partitions.values() if each.role is Role.HANDING_OVER]


@pytest.mark.parametrize(("partitions", "at_once"), [(1, 1), (40, 2), (150, 3)])
def test_the_lead_is_handed_over_a_few_partitions_at_once(partitions: int, at_once: int) -> None:
    member = Leaving(tries=3, partitions=partitions).member
    member.shut_down(0.0)
    assert len(handing(member)) == at_once


def test_the_next_is_handed_over_and_clients_are_told_so_as_soon_as_the_write_is_answered() -> None:
    member = Leaving(tries=3, partitions=40).member
    member.shut_down(0.0)
    first, second = handing(member)
    member.effects.clear()
    member.fetch_from(ReplicaFetch(first, B, 4, 1, 3, 1), 1.0)
    (asked,) = [each for each in member.effects if isinstance(each, Ask)]
    member.answer_received(asked.token, Done(), 2.0)
    assert member.state(first) == PartitionState(2, 5, (B,))
    third = PartitionId("t", 2)
    assert handing(member) == [second, third]
    member.state_read(first, PartitionState(1, 4, (A, B)), 7)
    assert member.state(first) == PartitionState(2, 5, (B,)), "what was read before says nothing"


@pytest.mark.parametrize("begun", [True, False])
def test_what_a_broker_is_about_to_lead_as_it_is_stopped_is_handed_on(begun: bool) -> None:
    leaving = Leaving(tries=3)
    member, partition = leaving.member, PartitionId("t", 0)
    member.state_read(partition, PartitionState(2, 5, (A, B)), 8)
    member.state_read(partition, PartitionState(1, 6, (A, B)), 9)
    assert leaving.partition.role is Role.BEGINNING
    member.shut_down(0.0)
    leaving.goes_on(1000.0 - 100.0)
    assert not leaving.has_left()
    if begun:
        member.epoch_begun(partition, 6, 900.0)
    leaving.goes_on(1000.0, 900.0)
    assert (leaving.partition.role, leaving.has_left()) == ((Role.HANDING_OVER if begun else Role.BEGINNING), not begun)


def test_one_that_takes_long_holds_up_no_other() -> None:
    leaving = Leaving(tries=3, partitions=40)
    member = leaving.member
    member.shut_down(0.0)
    stuck = handing(member)
    leaving.goes_on(400.0)
    assert handing(member) == stuck
    leaving.goes_on(500.0, 400.0)
    assert handing(member) == [PartitionId("t", number) for number in range(4)]


def test_who_stops_waits_until_no_in_sync_set_names_it() -> None:
    leaving = Leaving(tries=3)
    member, partition = leaving.member, PartitionId("t", 0)
    member.state_read(partition, PartitionState(2, 5, (A, B)), 8)
    member.shut_down(0.0)
    assert leaving.partition._write.pending == PartitionState(2, 5, (B,))
    assert not leaving.has_left()
    member.state_read(partition, PartitionState(2, 5, (B,)), 9)
    member.tick(100.0)
    assert leaving.has_left()


def test_who_cannot_leave_an_in_sync_set_stops_all_the_same() -> None:
    leaving = Leaving(tries=3)
    leaving.member.state_read(PartitionId("t", 0), PartitionState(2, 5, (A, B)), 8)
    leaving.member.shut_down(0.0)
    leaving.goes_on(900.0)
    assert not leaving.has_left()
    leaving.goes_on(1000.0, 900.0)
    assert leaving.has_left()


def test_no_try_hands_nothing_over() -> None:
    leaving = Leaving(tries=0)
    leaving.member.shut_down(0.0)
    assert (leaving.partition.role, leaving.has_left()) == (Role.LEADING, True)


def test_a_wish_for_a_broker_names_it() -> None:
    states = {PartitionId("t", 0): PartitionState(2, 3, (A, B))}
    found = list(out_of_balance({"t": Topic("id", ((1, 2),), {})}, states, THERE, 10))
    assert found == [(2, HandOver(PartitionId("t", 0), 1))]
