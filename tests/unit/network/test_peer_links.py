"""The owner of a link to another broker: its address by its registration, and the member's calls for its news."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from edge_broker.broker.cluster.unreachable_brokers import ClosedPorts
from edge_broker.cluster.inter_broker_messages import HandOver
from edge_broker.cluster.member import FORMER_LIFE
from edge_broker.cluster.state.cluster_state import PartitionId, Registration, Topic
from edge_broker.network.cluster.peer_links import PeerLinks

SESSION_MS = 1000


class World:
    """A member, its links, and the calls in their order."""

    def __init__(self) -> None:
        self.calls: list[Any] = []
        self.registrations: dict[int, Registration] = {}
        self.identity = SimpleNamespace(broker=1, directory="disk-1")
        self.image = SimpleNamespace(topics={"t": Topic("A" * 22, ((1,),), {})})
        self.closed_ports = ClosedPorts()
        member: Any = self
        parts: Any = {"security": None, "bounds": None, "log": None}
        self.peers = PeerLinks(
            member,
            self.turn,
            lambda: 70.0,
            listener="BROKERS",
            closed_ports=self.closed_ports,
            session_ms=SESSION_MS,
            **parts,
        )
        self.owner = self.peers.owner(2)

    def turn(self, call: Callable[[float], None]) -> None:
        call(70.0)

    def register(self, epoch: int, *endpoints: tuple[str, str]) -> None:
        self.registrations[2] = Registration(2, epoch, "disk-2", None, endpoints)

    def message_received(self, message: object, now_ms: float) -> None:
        self.calls.append((message, now_ms))

    def connected_to(self, broker: int, now_ms: float) -> None:
        self.calls.append(("connected", broker, now_ms))

    def port_closed(self, broker: int, epoch: int, now_ms: float) -> None:
        self.calls.append(("closed", broker, epoch, now_ms))


@pytest.fixture
def world() -> World:
    return World()


def test_a_broker_without_the_listener_for_brokers_is_logged_once_for_each_registration(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    assert world.owner.endpoint() is None, "it is not registered"
    assert capsys.readouterr().err == ""
    for epoch in (7, 7, 9):
        world.register(epoch, ("PLAINTEXT", "pi-2:9092"))
        assert world.owner.endpoint() is None
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2
    assert "it has listeners PLAINTEXT, and this broker speaks to others by BROKERS" in lines[0]
    world.register(9, ("BROKERS", "pi-2:9094"))
    assert world.owner.endpoint() == ("pi-2", 9094)


def test_a_link_knows_this_broker_and_the_topics_of_now(world: World) -> None:
    assert (world.owner.broker, world.owner.directory()) == (1, "disk-1")
    world.identity.directory = "disk-9"
    assert world.owner.directory() == "disk-9"
    assert (world.owner.topic_id("t"), world.owner.topic_id("none")) == ("A" * 22, None)


def test_a_message_reaches_the_member(world: World) -> None:
    message = HandOver(PartitionId("t", 0), 2)
    world.owner.told(message)
    assert world.calls == [(message, 70.0)]


def test_a_closed_port_is_news_once_for_each_registration(world: World) -> None:
    world.owner.refused()
    assert world.calls == [], "a broker that is not registered has no port"
    for epoch in (7, 7, 9):
        world.register(epoch)
        world.owner.refused()
    assert world.calls == [("closed", 2, 7, 70.0), ("closed", 2, 9, 70.0)]
    until_ms = 70.0 + FORMER_LIFE * SESSION_MS
    assert world.closed_ports.has(2, 9, until_ms - 1)
    assert not world.closed_ports.has(2, 9, until_ms)


def test_a_connection_opens_the_port_again(world: World) -> None:
    world.register(7)
    world.owner.refused()
    world.owner.connected()
    assert world.calls == [("closed", 2, 7, 70.0), ("connected", 2, 70.0)]
    assert not world.closed_ports
