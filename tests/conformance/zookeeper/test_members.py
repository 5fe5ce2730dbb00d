"""Brokers of a cluster elect, fail over and catch up over a real ensemble, as they do over the model."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest

from edge_broker.cluster.member import MembershipState
from edge_broker.cluster.state.cluster_state import PartitionId
from edge_broker.errors import ErrorCode
from tests.conformance.zookeeper.real_world import RealWorld
from tests.simulation.cluster_disk import Record
from tests.simulation.cluster_world import Process
from tests.support.zookeeper import ZooKeeperEnsemble

PARTITION = PartitionId("readings", 0)


@pytest.fixture
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealWorld]:
    with ZooKeeperEnsemble(tmp_path_factory.mktemp("ensemble")) as ensemble:
        world = RealWorld([server.bootstrap for server in ensemble.servers], 3, "")
        yield world
        world.close()


def in_sync(world: RealWorld) -> bool:
    """One leads, and every replica is named with the registration that its process has."""
    leaders, state = world.leaders(PARTITION), world.state(PARTITION)
    standing = [process.member for process in world.processes if process.member.standing is MembershipState.SERVING]
    return (
        len(leaders) == 1
        and state is not None
        and len(standing) == 3
        and set(state.in_sync) == {member.identity.replica for member in standing}
    )


def leader(world: RealWorld) -> Process:
    return world.leaders(PARTITION)[0]


def produce(world: RealWorld, count: int) -> None:
    """Records that everybody in sync has on its disk before the next step."""
    left: set[int] = set()

    def produce_one(process: Process, value: int) -> None:
        def reply(error: ErrorCode, epoch: int, offset: int) -> None:
            assert error is ErrorCode.NONE
            world.checks.acknowledged(Record(epoch, value), offset)
            left.discard(value)

        left.add(value)
        process.produce(PARTITION, [value], all_in_sync=True, reply=reply)

    for _ in range(count):
        process = leader(world)
        process.run(partial(produce_one, process, world.number()))
    world.wait(f"{count} records are acked", lambda: not left)


def test_a_cluster_over_a_real_ensemble(world: RealWorld) -> None:
    for board in world.boards:
        board.start()
    world.make_topic(1, 3, {"min.insync.replicas": "2"})
    world.wait("all are in sync", lambda: in_sync(world))
    produce(world, 20)

    first = leader(world)
    epoch = first.member.partitions[PARTITION].state.leader_epoch  # type: ignore[union-attr]
    first.board.cut_power()
    world.wait("another one leads", lambda: [each is first for each in world.leaders(PARTITION)] == [False])
    second = leader(world)
    assert second.member.partitions[PARTITION].state.leader_epoch == epoch + 1  # type: ignore[union-attr]
    produce(world, 20)
    first.board.start()
    world.wait("the first is in sync again", lambda: in_sync(world))

    world.proxies[leader(world).board.number - 1].drop_connections()
    produce(world, 20)
    world.wait("a lost connection costs nothing", lambda: in_sync(world))

    third = leader(world)
    third.paused = True
    others = [process for process in world.processes if process is not third]
    world.proxies[third.board.number - 1].cut("refuse")
    world.wait("another replaces it", lambda: any(each in world.leaders(PARTITION) for each in others))
    world.proxies[third.board.number - 1].restore()
    third.go_on()
    world.wait("it follows, and is in sync", lambda: in_sync(world))
    produce(world, 20)
    world.wait("all have all", lambda: len({len(each.log(PARTITION).records) for each in world.processes}) == 1)
    world.checks.audit()
