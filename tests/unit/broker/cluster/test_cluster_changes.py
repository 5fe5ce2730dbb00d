"""Changes of a cluster: each goes to the controller's rules by what is known now, and its effects run at once."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from edge_broker.broker.cluster.cluster_changes import ClusterChanges
from edge_broker.broker.cluster.security_access import SecurityAccess
from edge_broker.cluster.state.cluster_state import PartitionId, Registration, Topic
from edge_broker.cluster.znodes.security_znode import NodeReading, NodeState
from edge_broker.errors import ErrorCode

T = Topic("A" * 22, ((1, 2), (2, 1)), {"a": "b"})


class World:
    """A member, with the calls in their order."""

    def __init__(self) -> None:
        self.calls: list[Any] = []
        self.registrations = {each: Registration(each, 1, f"disk-{each}") for each in (1, 2, 3)}
        self.image = SimpleNamespace(topics={"t": T}, versions={"t": 4}, epoch_base=0)
        self.controller = SimpleNamespace(
            make_topic=lambda *call: self.calls.append(("make", *call)),
            change_topic=lambda *call: self.calls.append(("change", *call)),
            delete_topic=lambda *call: self.calls.append(("delete", *call)),
        )
        member: Any = self
        self.changes = ClusterChanges(member, lambda: 70.0, self.carry_out)
        self.security = SecurityAccess(member, self.carry_out)

    def carry_out(self) -> None:
        self.calls.append("carry out")

    def ask(self, request: object, then: object) -> None:
        self.calls.append(type(request).__name__)

    def unreadable(self, fault: object) -> None:
        self.calls.append(fault)

    def elect_preferred(self, partition: PartitionId, now_ms: float) -> ErrorCode:
        self.calls.append(("elect", partition, now_ms))
        return ErrorCode.ELECTION_NOT_NEEDED

    def share_security(self, on_read: object) -> Any:
        self.calls.append("share")
        return SimpleNamespace(
            make=lambda *call: self.calls.append(("make", *call)),
            make_again=lambda *call: self.calls.append(("make again", *call)),
            write=lambda *call: self.calls.append(("write", *call)),
            retry=lambda: self.calls.append("again"),
        )


@pytest.fixture
def world() -> World:
    return World()


def told(_error: ErrorCode) -> None:
    raise AssertionError("nothing has answered")


def test_a_topic_is_made_with_the_brokers_that_are_registered(world: World) -> None:
    topic = world.changes.place("B" * 22, 2, 3, {})
    assert all(sorted(each) == [1, 2, 3] for each in topic.replicas)
    with pytest.raises(ValueError, match="4"):
        world.changes.place("B" * 22, 2, 4, {})
    world.changes.make_topic("u", topic, told)
    assert world.calls == [("make", "u", topic, world.registrations, told), "carry out"]


def test_more_partitions_leave_the_present_ones_as_they_are(world: World) -> None:
    topic = world.changes.place_more("t", 5)
    assert topic.replicas[:2] == T.replicas
    assert [len(each) for each in topic.replicas] == [2] * 5
    assert topic._replace(replicas=T.replicas) == T


def test_a_change_names_the_version_that_it_is_of(world: World) -> None:
    changed = T._replace(config={})
    world.changes.change_topic("t", changed, told)
    assert world.calls == [("change", "t", changed, 4, 2, world.registrations, told), "carry out"]


def test_a_deletion_names_the_topic_that_is_known(world: World) -> None:
    world.changes.delete_topic("t", told)
    assert world.calls == [("delete", "t", T, told), "carry out"]


def test_an_election_answers_at_once(world: World) -> None:
    assert world.changes.elect("t", 1) is ErrorCode.ELECTION_NOT_NEEDED
    assert world.calls == [("elect", PartitionId("t", 1), 70.0), "carry out"]


def test_a_block_of_producer_ids_is_requested_from_zookeeper(world: World) -> None:
    world.changes.take_producer_ids(lambda block: None, 0)
    assert world.calls[-1] == "carry out"
    assert len(world.calls) == 2, "one request is sent before"


@pytest.mark.parametrize(
    ("standing", "call"),
    [(NodeState.NEVER_MADE, "make"), (NodeState.LOST, "make again"), (NodeState.THERE, "write")],
)
def test_the_znode_of_users_is_made_or_written_by_what_was_found(world: World, standing: NodeState, call: str) -> None:
    def held(_done: bool) -> None:
        raise AssertionError("nothing has answered")

    world.security.share(lambda found: None)
    world.security.write(b"users", NodeReading(standing, b"", 8), held)
    version = (8,) if call == "write" else ()
    assert world.calls == ["share", (call, b"users", *version, held), "carry out"]


def test_users_are_read_again_once_they_are_shared(world: World) -> None:
    with pytest.raises(AssertionError, match="not shared"):
        world.security.read_again()
    world.security.share(lambda found: None)
    world.security.read_again()
    assert world.calls == ["share", "again", "carry out"]
