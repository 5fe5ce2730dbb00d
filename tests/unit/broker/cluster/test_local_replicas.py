"""This broker's replicas: what it leads, in which epoch, and where its logs end."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from edge_broker.broker.cluster.local_replicas import LocalReplicas
from edge_broker.cluster.partition.partition import Role
from edge_broker.cluster.state.cluster_state import PartitionId
from edge_broker.cluster.state.replica_log_view import NoLog
from edge_broker.errors import ErrorCode, Refusal
from edge_broker.storage.log.leader_epochs import LeaderEpochs

T0, T1 = PartitionId("t", 0), PartitionId("t", 1)


class Member:
    """A member that leads t-0 in epoch 5 and follows t-1."""

    def __init__(self) -> None:
        self.lease, self.now_ms = True, 0.0
        self.identity = SimpleNamespace(broker=3)
        self.partitions: dict[PartitionId, Any] = {
            T0: partition(Role.LEADING, SimpleNamespace(epoch=5)),
            T1: partition(Role.FOLLOWING, None),
        }

    def lease_holds(self) -> bool:
        return self.lease


def partition(role: Role, leading: Any) -> Any:
    epochs = LeaderEpochs()
    epochs.note(3, 0)
    epochs.note(5, 6)
    log = SimpleNamespace(log_start_offset=0, log_end_offset=10, acknowledged_offset=8, online=True, epochs=epochs)
    return SimpleNamespace(role=role, leading=leading, log=log, latest_offset=lambda: 7)


@pytest.fixture
def member() -> Member:
    return Member()


@pytest.fixture
def replicas(member: Member) -> LocalReplicas:
    shown: Any = member
    return LocalReplicas(shown, lambda: 70.0)


def test_a_follower_leads_nothing(replicas: LocalReplicas, member: Member) -> None:
    assert replicas.led_partition("t", 0) is member.partitions[T0]
    assert [replicas.led_partition("t", number) for number in (1, 2)] == [None, None]
    assert [replicas.epoch_led("t", number) for number in (0, 1, 2)] == [5, None, None]
    assert (replicas.leads(T0, 5), replicas.leads(T0, 4), replicas.leads(T1, 5)) == (True, False, False)


def test_a_leader_without_a_proved_lease_may_have_been_replaced(replicas: LocalReplicas, member: Member) -> None:
    assert (replicas.surely_leads("t", 0), replicas.surely_leads("t", 1)) == (True, False)
    assert member.now_ms == 70.0
    member.lease = False
    assert not replicas.surely_leads("t", 0)
    assert replicas.epoch_led("t", 0) == 5


def test_the_end_of_a_log_by_epoch(replicas: LocalReplicas) -> None:
    assert replicas.log_end("t", 1) == (5, 10)
    assert replicas.log_end("t", 1, 4) == (3, 6)
    assert replicas.end_here("t", 1) == (8, 5)
    assert replicas.log_end("t", 2) is None


def test_a_log_that_is_offline_or_missing_has_no_end(replicas: LocalReplicas, member: Member) -> None:
    member.partitions[T1].log.online = False
    for ask in (replicas.log_end, replicas.end_here):
        with pytest.raises(Refusal) as offline:
            ask("t", 1)
        assert offline.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    with pytest.raises(Refusal) as missing:
        replicas.end_here("t", 2)
    assert missing.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_only_a_log_that_could_be_made_is_a_replica(replicas: LocalReplicas, member: Member) -> None:
    assert replicas.replica(T1) is member.partitions[T1].log
    member.partitions[T1].log = NoLog()
    assert (replicas.replica(T1), replicas.replica(PartitionId("t", 2))) == (None, None)


def test_the_latest_offset_is_the_leaders_to_say(replicas: LocalReplicas) -> None:
    assert (replicas.latest_offset("t", 0), replicas.latest_offset("t", 1)) == (7, None)
