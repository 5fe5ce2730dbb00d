"""Replication: a log's progress reaches the replica, the member and the sessions; evictions spare internal topics."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from edge_broker.broker.cluster.local_replicas import LocalReplicas
from edge_broker.broker.cluster.replication import Replication
from edge_broker.cluster.state.cluster_state import PartitionId
from edge_broker.cluster.state.replica_log_view import NoLog
from edge_broker.storage.metadata.topic_record import LEDGER_TOPIC

P0, LEDGER = PartitionId("t", 0), PartitionId(LEDGER_TOPIC, 0)


class Log:
    """A log's name."""

    def __init__(self, name: PartitionId) -> None:
        self.topic, self.partition = name


class World:
    """A member and its partitions, with the calls in their order."""

    def __init__(self) -> None:
        self.calls: list[Any] = []
        self.lease, self.now_ms = True, 0.0
        self.logs = {each: Log(each) for each in (P0, LEDGER)}
        self.partitions: dict[PartitionId, Any] = {
            each: SimpleNamespace(
                log=SimpleNamespace(log=self.logs[each], batches_appended=lambda: self.calls.append("wrote")),
                spares_unpassed=each == LEDGER,
                evicts_below=9,
            )
            for each in (P0, LEDGER)
        }
        member: Any = self
        replicas = LocalReplicas(member, lambda: 70.0)
        self.replication = Replication(member, replicas, lambda: 70.0, lambda: self.calls.append("carry out"))
        fetches: Any = {"peer": SimpleNamespace(log_moved=lambda partition: self.calls.append(("session", partition)))}
        self.replication.fetches._sessions = fetches

    def log_moved(self, partition: PartitionId, now_ms: float) -> None:
        self.calls.append(("member", partition, now_ms))

    def fetch_from(self, fetch: object, now_ms: float, *, is_new: bool) -> tuple[object, float, bool]:
        self.calls.append("fetch")
        return fetch, now_ms, is_new

    def lease_holds(self) -> bool:
        return self.lease


@pytest.fixture
def world() -> World:
    return World()


def test_progress_of_a_log_is_known_to_all_before_effects_run(world: World) -> None:
    log: Any = world.logs[P0]
    world.replication.log_moved(log)
    assert world.calls == ["wrote", ("member", P0, 70.0), ("session", P0), "carry out"]


def test_a_log_that_could_not_be_made_has_no_progress_of_its_own(world: World) -> None:
    world.partitions[P0].log = NoLog()
    log: Any = world.logs[P0]
    world.replication.log_moved(log)
    assert world.calls == [("member", P0, 70.0), ("session", P0), "carry out"]


@pytest.mark.parametrize("is_new", [True, False])
def test_effects_of_a_fetch_run_after_it(world: World, is_new: bool) -> None:
    fetch: Any = "a fetch"
    answer: Any = world.replication.fetch_from(fetch, is_new=is_new)
    assert answer == ("a fetch", 70.0, is_new)
    assert world.calls == ["fetch", "carry out"]


def test_an_internal_topic_is_no_spare(world: World) -> None:
    assert not world.replication.has_spare_replicas()
    world.partitions[P0].spares_unpassed = True
    assert world.replication.has_spare_replicas()
    assert world.now_ms == 70.0


def test_only_other_topics_are_evicted_for_followers_and_only_by_a_proved_leader(world: World) -> None:
    log: Any = world.logs[P0]
    assert world.replication.eviction_offsets() == {log: 9}
    world.lease = False
    assert world.replication.eviction_offsets() == {}
