"""The view of a cluster: answers follow the image and the registrations, and are cached only while these stay."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from edge_broker.broker.cluster.cluster_view import NOT_YET, ClusterView, endpoint_of
from edge_broker.broker.cluster_port import NOBODY
from edge_broker.cluster.member import MembershipState
from edge_broker.cluster.state.cluster_state import (
    NO_LEADER,
    InSyncReplica,
    OfflineLog,
    PartitionId,
    PartitionState,
    Registration,
    Topic,
)
from edge_broker.configuration.config import Endpoint
from edge_broker.storage.metadata.topic_record import id_of

T_ID, U_ID = "A" * 22, "BAAAAAAAAAAAAAAAAAAAAA"
FIRST, SECOND = InSyncReplica(1, "disk-1", 11), InSyncReplica(2, "disk-2", 22)


class Member:
    """What a view reads of a member."""

    def __init__(self) -> None:
        self.registrations = {
            2: Registration(2, 22, "disk-2", "r2", (("IN", "10.0.0.2:1"), ("OUT", "[fe80::2]:2"))),
            1: Registration(1, 11, "disk-1", None, (("IN", "127.0.0.1:1"),)),
        }
        topics = {"t": Topic(T_ID, ((2, 1), (2, 3)), {}), "u": Topic(U_ID, ((1,),), {})}
        self.image = SimpleNamespace(topics=topics, versions={"t": 4}, changes=1, is_complete=False)
        self.states: dict[PartitionId, PartitionState] = {}
        self.gone: set[InSyncReplica] = set()
        self.standing, self.connected, self.hindrance, self.lease = MembershipState.SERVING, True, "", True
        self.controller = SimpleNamespace(holder=2)

    def state(self, partition: PartitionId) -> PartitionState | None:
        return self.states.get(partition)

    def is_gone(self, entry: InSyncReplica | None) -> bool:
        return entry is None or entry in self.gone

    def lease_holds(self) -> bool:
        return self.lease


@pytest.fixture
def member() -> Member:
    return Member()


@pytest.fixture
def view(member: Member) -> ClusterView:
    shown: Any = member
    return ClusterView(shown, "IN", lambda: 100.0)


def test_brokers_are_those_registered_with_the_listener(view: ClusterView) -> None:
    assert [(each.broker, each.rack) for each in view.brokers("IN")] == [(1, None), (2, "r2")]
    assert [each.endpoint for each in view.brokers("OUT")] == [Endpoint("fe80::2", 2)]
    assert set(view.serving("OUT")) == {2}
    assert set(view.broker_ids) == {1, 2}


def test_an_address_with_colons_has_brackets() -> None:
    assert endpoint_of("edge1.local:9092") == Endpoint("edge1.local", 9092)
    assert endpoint_of("[fe80::2]:9092") == Endpoint("fe80::2", 9092)


def test_a_member_is_known_by_its_address_of_the_brokers_listener(view: ClusterView) -> None:
    assert view.is_member("10.0.0.2")
    assert view.is_member("127.0.0.1")
    assert not view.is_member("fe80::2"), "of another listener"
    assert not view.is_member("10.0.0.9")


def test_complete_images_are_counted_once_each(view: ClusterView, member: Member) -> None:
    seen = []
    for is_complete in (False, True, True, False, True):
        member.image.is_complete = is_complete
        view.update()
        seen.append((view.images, view.knows))
    assert seen == [(0, False), (1, True), (1, True), (1, True), (2, True)]


def test_a_description_is_made_once_for_each_state_of_a_topic(view: ClusterView, member: Member) -> None:
    first = view.describe("t")
    assert first is not None
    assert (first.topic_id, first.partitions) == (id_of(T_ID), ((2, 1), (2, 3)))
    assert view.describe("t") is first
    member.image.topics["t"] = member.image.topics["t"]._replace(config={"a": "b"})
    changed = view.describe("t")
    assert changed is not None
    assert changed.config == {"a": "b"}
    assert view.describe("none") is None


def test_a_topic_is_found_by_its_id_as_of_the_newest_image(view: ClusterView, member: Member) -> None:
    found = view.describe_by_id(id_of(U_ID))
    assert found is not None
    assert found.name == "u"
    del member.image.topics["u"]
    member.image.changes += 1
    assert view.describe_by_id(id_of(U_ID)) is None


def test_descriptions_of_deleted_topics_are_dropped(view: ClusterView, member: Member) -> None:
    view.describe("t")
    view.describe("u")
    del member.image.topics["u"]
    view.update()
    assert set(view._described) == {"t"}


def test_versions_and_the_broker_with_most_partitions(view: ClusterView, member: Member) -> None:
    assert (view.version("t"), view.version("none")) == (4, -1)
    assert view.partitions_at_most == 2
    member.image.topics.clear()
    assert view.partitions_at_most == 0


def test_a_leader_that_is_gone_is_none(view: ClusterView, member: Member) -> None:
    assert view.leader("t", 0) == NO_LEADER, "no state is known"
    member.states[PartitionId("t", 0)] = PartitionState(2, 7, (FIRST, SECOND))
    assert view.leader("t", 0) == 2
    member.gone.add(SECOND)
    assert view.leader("t", 0) == NO_LEADER


def test_clients_are_not_sent_to_a_closed_port(view: ClusterView, member: Member) -> None:
    member.states[PartitionId("t", 0)] = PartitionState(2, 7, (FIRST, SECOND))
    view.closed_ports.port_refused(2, 22, 101.0)
    assert (view.leader("t", 0), view.leader_to_ask("t", 0)) == (2, NO_LEADER)
    member.registrations[2] = member.registrations[2]._replace(epoch=23)
    assert view.leader_to_ask("t", 0) == 2, "it has registered again since"


def test_a_replica_is_there_unless_it_is_gone_or_its_log_is_offline(view: ClusterView, member: Member) -> None:
    state = PartitionState(2, 7, (FIRST, SECOND), (OfflineLog(1, 11),))
    assert (view.is_there(state, 1), view.is_there(state, 2)) == (False, True)
    assert (view.is_offline(state, 1), view.is_offline(state, 2)) == (True, False)
    member.gone.add(SECOND)
    assert not view.is_there(state, 2)


def test_the_controller_is_unknown_while_the_lease_is_unproved(view: ClusterView, member: Member) -> None:
    assert view.controller == 2
    member.lease = False
    assert view.controller == NOBODY


def test_each_reason_for_not_serving(view: ClusterView, member: Member) -> None:
    assert (view.serves, view.not_serving) == (True, None)
    member.connected = False
    assert view.not_serving is None, "the lease holds"
    member.lease = False
    assert "another broker may lead by now" in str(view.not_serving)
    member.standing = MembershipState.READING
    assert "no session with ZooKeeper" in str(view.not_serving)
    member.connected = True
    assert (view.serves, view.not_serving) == (False, NOT_YET[MembershipState.READING])
    member.hindrance = "its disk is another's"
    assert view.not_serving == "not a member of the cluster yet: its disk is another's"
    view.contradiction = "another broker has its id"
    assert view.not_serving == "not a member of the cluster: another broker has its id"
