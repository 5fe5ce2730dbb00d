"""Placement: which connection carries a stream after each event, and in which state the stream is then."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kafka_wire.cluster import Leader
from kafka_wire.partitions import TopicPartition
from mirror.errors import TargetError
from mirror.link.link_model import Link
from mirror.partition.send_state import (
    BACKING_OFF,
    CHANGING_CONNECTION,
    CREATING_TOPIC,
    DRAINING,
    RESOLVING,
    SENDING,
    SendState,
)
from mirror.partition.stream import PartitionStream
from mirror.producer.failures.refusals import Refusals
from mirror.producer.leader_placement import LeaderPlacement


class Connection:
    """A connection to a broker, and the streams that it carries."""

    def __init__(self, node: int) -> None:
        self.node = node
        self.streams: set[PartitionStream] = set()


class Bench:
    """A placement over two brokers; every partition is led by `leader`, or has none that is known."""

    def __init__(self) -> None:
        self.leader: int | None = 2
        self.connections = {1: Connection(1), 2: Connection(2)}
        self.has_another_broker = False
        self.considered: list[PartitionStream] = []
        self.ensured: list[PartitionStream] = []
        self.learnt: list[int] = []
        self.problems: list[tuple[str, str]] = []
        self.refusals = Refusals(Link(1 << 20), SimpleNamespace(), print, batch_bytes_max=1, buffer_bytes_max=1)  # type: ignore[arg-type]
        sender = SimpleNamespace(
            consider=self.considered.append, ensure_topic=self.ensured.append, spawn_task=self.learnt.append
        )
        limits = type("Limits", (), {"__contains__": lambda _, node: node == 2, "learn": lambda _, node: node})()
        assignment: Any = SimpleNamespace(join=self.join, has_another_broker=lambda _: self.has_another_broker)
        target: Any = SimpleNamespace(leader=self.find_leader, topics=self.topics)
        self.placement = LeaderPlacement(
            target, assignment, self.refusals, limits, lambda *problem: self.problems.append(problem), sender
        )

    def stream(self, number: int = 0, state: SendState = SENDING, node: int = 1) -> PartitionStream:
        """Return a stream that the connection to a broker carries."""
        stream = PartitionStream(TopicPartition("t", number), "lab.t", {"cleanup.policy": "delete"})
        stream.send_state = state
        self.join(stream, node)
        return stream

    def join(self, stream: PartitionStream, node: int) -> None:
        if stream.connection is not None:
            stream.connection.streams.discard(stream)
        stream.connection = self.connections[node]
        stream.connection.streams.add(stream)

    async def find_leader(self, _: object) -> Leader:
        if self.leader is None:
            raise TargetError("no leader")
        return Leader(self.leader, 0)

    async def topics(self, names: list[str]) -> dict[str, Any]:
        leader = Leader(-1 if self.leader is None else self.leader, 0)
        return {name: SimpleNamespace(leaders=dict.fromkeys(range(9), leader)) for name in names}


@pytest.fixture
def bench() -> Bench:
    return Bench()


async def test_a_stream_joins_a_connection_to_its_leader(bench: Bench):
    stream = bench.stream()
    await bench.placement.join_leader(stream)
    assert stream.connection is bench.connections[2]


async def test_a_change_of_connection_ends_in_sending(bench: Bench):
    stream = bench.stream(state=CHANGING_CONNECTION)
    await bench.placement.change_connection(stream)
    assert (stream.connection.node, stream.send_state) == (2, SENDING)
    assert bench.considered == [stream]
    assert not bench.ensured


async def test_without_a_leader_the_topic_is_looked_for_again(bench: Bench):
    stream, bench.leader = bench.stream(state=CHANGING_CONNECTION), None
    await bench.placement.change_connection(stream)
    assert stream.send_state is CREATING_TOPIC
    assert bench.ensured == [stream]
    assert bench.problems == [("t-0", "no leader")]


@pytest.mark.parametrize("state", [DRAINING, RESOLVING])
@pytest.mark.parametrize("leader", [2, None])
async def test_a_stream_that_becomes_unsure_while_it_changes_its_connection_stays_so(
    bench: Bench, state: SendState, leader: int | None
):
    stream, bench.leader = bench.stream(state=state), leader
    await bench.placement.change_connection(stream)
    assert stream.send_state is state
    assert not bench.ensured


@pytest.mark.parametrize(
    ("state", "packing", "moves"),
    [
        (SENDING, False, True),
        (CREATING_TOPIC, False, True),
        (SENDING, True, False),
        (BACKING_OFF, False, False),
        (DRAINING, False, False),
        (CHANGING_CONNECTION, False, False),
    ],
)
async def test_streams_leave_a_broker_that_does_not_answer(bench: Bench, state: SendState, packing: bool, moves: bool):
    stream = bench.stream(state=state)
    stream.packing = packing
    await bench.placement.leave_unreachable(bench.connections[1])  # type: ignore[arg-type]
    assert stream.connection.node == (2 if moves else 1)
    assert bench.considered == ([stream] if moves else [])


async def test_a_stream_without_a_leader_keeps_no_other_one_from_moving(bench: Bench):
    stream, bench.leader = bench.stream(), None
    await bench.placement.leave_unreachable(bench.connections[1])  # type: ignore[arg-type]
    assert stream.connection.node == 1


@pytest.mark.parametrize("another", [True, False])
async def test_streams_of_a_broker_that_does_not_answer_are_blocked_if_another_one_does(bench: Bench, another: bool):
    stream, bench.leader, bench.has_another_broker = bench.stream(), None, another
    await bench.placement.leave_unreachable(bench.connections[1])  # type: ignore[arg-type]
    assert (stream in bench.refusals.held) is another


@pytest.mark.parametrize(("node", "learnt"), [(1, []), (2, [2])])
def test_a_broker_that_is_back_is_asked_for_its_limit_again(bench: Bench, node: int, learnt: list[int]):
    stream = bench.stream(node=node)
    bench.refusals.block(stream)
    bench.placement.reassign(bench.connections[node])  # type: ignore[arg-type]
    assert bench.learnt == learnt
    assert bench.considered == [stream]
    assert stream not in bench.refusals.held
