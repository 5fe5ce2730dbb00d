"""The logs of a member: a failure takes its log offline, and work in a worker ends in exactly one callback."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from edge_broker.broker.effects import Effect, Effects
from edge_broker.cluster.state.cluster_state import PartitionId
from edge_broker.errors import ErrorCode, Refusal, StorageFault
from edge_broker.network.cluster.jobs.replica_logs import ReplicaLogs, with_bugs_as_faults
from edge_broker.network.log_lines import LimitedLog
from edge_broker.testing.loop import Loop

P = PartitionId("t", 0)


class Log:
    """One log of the store."""

    topic, partition, directory = "t", 0, "/data/t-0"

    def __init__(self) -> None:
        self.fault: StorageFault | None = None

    def fail(self, fault: StorageFault) -> None:
        self.fault = fault


class World:
    """A member's logs with one replica, and the calls in their order."""

    def __init__(self) -> None:
        self.calls: list[Any] = []
        self.loop, self.effects, self.found = Loop(), Effects(), Log()
        self.partitions: dict[PartitionId, Any] = {}
        self.store = SimpleNamespace(log=lambda topic, partition: self.found if (topic, partition) == P else None)
        member: Any = self
        dispatcher: Any = SimpleNamespace(apply=lambda: self.calls.append("apply"))
        self.logs = ReplicaLogs(member, dispatcher, member.loop, member, self.turn)
        log: Any = self.found
        self.replica: Any = SimpleNamespace(log=log, show=lambda offset: self.calls.append(("show", offset)))
        self.logs.replicas[log] = self.replica

    def turn(self, call: Callable[[float], None]) -> None:
        call(70.0)

    def log_moved(self, partition: PartitionId, now_ms: float) -> None:
        self.calls.append((partition, now_ms))

    @property
    def kinds(self) -> list[Effect]:
        return [kind for kind, _ in self.effects.left]


@pytest.fixture
def world() -> World:
    return World()


def test_a_replica_is_found_by_its_partition(world: World) -> None:
    assert world.logs.replica(P) is world.replica
    assert world.logs.replica(PartitionId("t", 1)) is None
    world.logs.replicas.clear()
    assert world.logs.replica(P) is None, "the log is not open yet"


def test_a_failure_takes_the_log_offline_and_keeps_its_cause(world: World) -> None:
    world.logs.fail(PartitionId("t", 1), RuntimeError("a bug"))
    assert world.kinds == []
    world.logs.fail(P, RuntimeError("a bug"))
    assert "a bug" in str(world.found.fault)
    assert world.kinds == [Effect.OFFLINE]


def test_a_leader_is_one_whose_member_leads(world: World) -> None:
    assert not world.logs.leads(P)
    world.partitions[P] = SimpleNamespace(leading=None)
    assert not world.logs.leads(P)
    world.partitions[P].leading = object()
    assert world.logs.leads(P)


def test_waiters_see_a_higher_watermark_and_a_new_leader(world: World) -> None:
    world.logs.show(world.replica, 5)
    world.logs.wake_waiters(P)
    world.logs.wake_waiters(PartitionId("t", 1))
    assert world.calls == [("show", 5)]
    assert world.kinds == [Effect.SHOWN] * 2


def test_a_delayed_call_is_a_step_of_its_own(world: World) -> None:
    world.logs.call_later(0.5, world.calls.append, "call")
    world.loop.advance(499)
    assert world.calls == []
    world.loop.advance(1)
    assert world.calls == ["call", "apply"]


@pytest.mark.parametrize("error", [Refusal(ErrorCode.KAFKA_STORAGE_ERROR, "no space"), StorageFault("card", 0, "gone")])
def test_a_refusal_or_a_fault_reaches_the_job_as_it_is(error: Exception) -> None:
    def work() -> None:
        raise error

    with pytest.raises(type(error)) as found:
        with_bugs_as_faults("/data", work)()
    assert found.value is error


def test_a_bug_in_a_worker_is_a_fault_of_its_place() -> None:
    def work() -> None:
        raise KeyError("a bug")

    with pytest.raises(StorageFault, match="a bug") as found:
        with_bugs_as_faults("/data/t-0", work)()
    assert found.value.path == "/data/t-0"
    assert with_bugs_as_faults("/data", lambda: 7)() == 7


def test_work_in_files_ends_in_one_callback(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    def fails() -> None:
        raise RuntimeError("a bug")

    for work in (lambda: 7, fails):
        world.logs.run_in_files(work, world.calls.append, lambda error: world.calls.append("failed"), "a job", "/data")
    for _, job in world.effects.left:
        try:
            result = job.work()
        except StorageFault as fault:
            job.failed(fault)
        else:
            job.then(result)
    assert world.calls == [7, "failed"]
    assert 'cluster_job_failed what="a job"' in capsys.readouterr().err
    assert isinstance(world.logs.log, LimitedLog)
