"""Admission of writes: each verdict of a partition, the lease, and the journal, which is not replicated."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from edge_broker.broker.cluster.lease_waits import LeaseUnproved
from edge_broker.broker.cluster.local_replicas import LocalReplicas
from edge_broker.broker.cluster.replica_gate import ReplicaGate
from edge_broker.cluster.partition.partition import Role
from edge_broker.cluster.state.cluster_state import PartitionId
from edge_broker.errors import ErrorCode, Refusal
from edge_broker.storage.metadata.topic_record import JOURNAL_TOPIC

NOT_LED, FEW = ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_ENOUGH_REPLICAS


class Log:
    """A log's name."""

    def __init__(self, topic: str) -> None:
        self.topic, self.partition = topic, 0


LOG: Any = Log("t")
JOURNAL: Any = Log(JOURNAL_TOPIC)


class Led:
    """A partition that this broker leads in epoch 5, until a test says otherwise."""

    def __init__(self) -> None:
        self.role, self.needed = Role.LEADING, 2
        self.leading: Any = SimpleNamespace(epoch=5)
        self.error = ErrorCode.NONE
        self.asked: list[bool] = []

    def append_error(self, *, all_in_sync: bool) -> ErrorCode:
        self.asked.append(all_in_sync)
        return self.error

    def leads_unproved(self) -> bool:
        return self.error is NOT_LED


class Member:
    """What the gate reads of a member."""

    def __init__(self) -> None:
        self.led = Led()
        self.partitions = {PartitionId("t", 0): self.led}
        self.now_ms, self.lease, self.may_live = 0.0, True, True
        self.identity = SimpleNamespace(broker=3)

    def lease_holds(self) -> bool:
        return self.lease

    def session_may_live(self) -> bool:
        return self.may_live


@pytest.fixture
def member() -> Member:
    return Member()


@pytest.fixture
def gate(member: Member) -> ReplicaGate:
    shown: Any = member
    return ReplicaGate(shown, LocalReplicas(shown, lambda: 70.0), lambda: 70.0)


def refused(gate: ReplicaGate, *, all_in_sync: bool = True, waits: bool = False) -> Refusal:
    with pytest.raises(Refusal) as found:
        gate.check_append(LOG, all_in_sync=all_in_sync, waits=waits)
    return found.value


@pytest.mark.parametrize("all_in_sync", [True, False])
def test_the_leader_appends_by_the_time_of_now(gate: ReplicaGate, member: Member, all_in_sync: bool) -> None:
    gate.check_append(LOG, all_in_sync=all_in_sync)
    assert (member.led.asked, member.now_ms) == ([all_in_sync], 70.0)


def test_a_partition_that_is_not_here_or_not_led_is_refused(gate: ReplicaGate, member: Member) -> None:
    member.led.error = NOT_LED
    assert refused(gate).code == NOT_LED
    member.partitions.clear()
    refusal = refused(gate)
    assert (refusal.code, str(refusal)) == (NOT_LED, "broker 3 does not lead t-0; refresh the metadata")


def test_too_small_an_isr_is_refused_with_the_number_that_is_needed(gate: ReplicaGate, member: Member) -> None:
    member.led.error = FEW
    refusal = refused(gate)
    assert refusal.code == FEW
    assert "min.insync.replicas (2)" in str(refusal)


def test_a_write_waits_for_an_unproved_lease_until_one_was_refused(gate: ReplicaGate, member: Member) -> None:
    member.led.error, member.lease = NOT_LED, False
    assert refused(gate).code == NOT_LED, "it does not wait"
    with pytest.raises(LeaseUnproved):
        gate.check_append(LOG, all_in_sync=True, waits=True)
    assert gate.take_retries() == []
    refusal = gate.refuse_unproved(LOG)
    assert refusal is not None
    assert refusal.code == ErrorCode.REQUEST_TIMED_OUT
    assert gate.take_retries() == [LOG], "those that wait are refused now"
    assert refused(gate, waits=True).code == NOT_LED
    member.led.error, member.lease = ErrorCode.NONE, True
    assert gate.take_retries() == []
    gate.check_append(LOG, all_in_sync=True, waits=True)


def test_writes_that_waited_are_tried_again_once_the_lease_holds(gate: ReplicaGate, member: Member) -> None:
    member.led.error, member.lease = NOT_LED, False
    with pytest.raises(LeaseUnproved):
        gate.check_append(LOG, all_in_sync=True, waits=True)
    member.lease = True
    assert (gate.take_retries(), gate.take_retries()) == ([LOG], [])


def test_a_proved_lease_refuses_no_expired_write(gate: ReplicaGate) -> None:
    assert gate.refuse_unproved(LOG) is None


def test_a_write_of_another_epoch_is_not_acknowledged(gate: ReplicaGate, member: Member) -> None:
    assert gate.refuse_old_epoch(LOG, 5) is None
    refusal = gate.refuse_old_epoch(LOG, 4)
    assert refusal is not None
    assert refusal.code == NOT_LED
    member.led.role = Role.FOLLOWING
    assert gate.refuse_old_epoch(LOG, 5) is not None


@pytest.mark.parametrize(("error", "is_refused"), [(FEW, True), (NOT_LED, False), (ErrorCode.NONE, False)])
def test_only_a_small_isr_explains_an_expired_append(
    gate: ReplicaGate, member: Member, error: ErrorCode, is_refused: bool
) -> None:
    member.led.error = error
    refusal = gate.refuse_expired(LOG)
    assert (refusal is not None) == is_refused
    assert refusal is None or refusal.code == ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND


def test_the_journal_passes_on_every_broker(gate: ReplicaGate, member: Member) -> None:
    member.partitions.clear()
    gate.check_append(JOURNAL, all_in_sync=True)
    assert gate.refuse_old_epoch(JOURNAL, 1) is None
    assert gate.refuse_expired(JOURNAL) is None
