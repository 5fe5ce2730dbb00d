"""Topics of a cluster: told alike by every broker, made and deleted by any of them."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from drupelet.ledger import LEDGER_TOPIC
from edge_broker.broker.context import RequestContext, Session
from edge_broker.broker.operations.leader_directory import next_leader
from edge_broker.cluster.state.cluster_state import PartitionId
from edge_broker.configuration.config import STANDARD_AUTHORIZER
from edge_broker.errors import ErrorCode
from edge_broker.handlers import HANDLERS
from edge_broker.protocol.api import (
    ALTER_PARTITION_REASSIGNMENTS,
    CREATE_TOPICS,
    DELETE_TOPICS,
    DESCRIBE_LOG_DIRS,
    ELECT_LEADERS,
    FETCH,
    LIST_PARTITION_REASSIGNMENTS,
    METADATA,
    PRODUCE,
)
from edge_broker.protocol.message import NO_UUID
from edge_broker.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from edge_broker.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from edge_broker.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from edge_broker.protocol.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from edge_broker.protocol.messages.elect_leaders import ElectLeadersRequest
from edge_broker.protocol.messages.fetch import (
    FetchLeaderIdAndEpoch,
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ReplicaState,
)
from edge_broker.protocol.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from edge_broker.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from edge_broker.protocol.messages.produce import (
    PartitionProduceData,
    ProduceLeaderIdAndEpoch,
    ProduceRequest,
    TopicProduceData,
)
from edge_broker.security.acls import Operation
from edge_broker.storage.metadata.topic_record import JOURNAL_TOPIC, OFFSETS_TOPIC, id_text
from edge_broker.testing.steps import carried_out
from tests.support.in_cluster import SESSION_MS, InCluster
from tests.support.storage import batch

NONE, NOT_THERE = ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
BAD_FACTOR, BAD_ASSIGNMENT = ErrorCode.INVALID_REPLICATION_FACTOR, ErrorCode.INVALID_REPLICA_ASSIGNMENT


def new(
    name: str = "t",
    partitions: int = 1,
    factor: int = -1,
    assigned: list[list[int]] | None = None,
    config: dict[str, str] | None = None,
) -> CreatableTopic:
    assignments = [
        CreatableReplicaAssignment(partition_index=number, broker_ids=ids) for number, ids in enumerate(assigned or [])
    ]
    configs = [CreatableTopicConfig(name=key, value=value) for key, value in (config or {}).items()]
    partitions = -1 if assigned else partitions
    return CreatableTopic(
        name=name, num_partitions=partitions, replication_factor=factor, assignments=assignments, configs=configs
    )


def request(*topics: CreatableTopic, timeout_ms: int = 10_000, validate_only: bool = False) -> CreateTopicsRequest:
    return CreateTopicsRequest(topics=list(topics), timeout_ms=timeout_ms, validate_only=validate_only)


def create(cluster: InCluster, board: int, *topics: CreatableTopic, **how: Any) -> list[int]:
    answer = cluster.ask(board, CREATE_TOPICS, request(*topics, **how))
    for one in answer.topics:
        assert bool(one.error_code) == bool(one.error_message)
    return [one.error_code for one in answer.topics]


def delete(cluster: InCluster, board: int, *names: str, timeout_ms: int = 10_000) -> list[int]:
    asked = [DeleteTopicState(name=name) for name in names]
    answer = cluster.ask(board, DELETE_TOPICS, DeleteTopicsRequest(topics=asked, timeout_ms=timeout_ms))
    return [one.error_code for one in answer.responses]


def metadata(cluster: InCluster, board: int, *names: str, auto: bool = False, version: int = -1) -> Any:
    topics = [MetadataRequestTopic(name=name) for name in names] if names else None
    return cluster.ask(board, METADATA, MetadataRequest(topics=topics, allow_auto_topic_creation=auto), version)


def topic(cluster: InCluster, board: int, name: str = "t", *, auto: bool = False) -> Any:
    return metadata(cluster, board, name, auto=auto).topics[0]


def names_of(cluster: InCluster, board: int) -> set[str]:
    return {one.name for one in metadata(cluster, board).topics}


@pytest.fixture
def three() -> InCluster:
    return InCluster(3, racks={1: "a", 2: "b"})


# Metadata


@pytest.mark.parametrize("version", range(14))
def test_every_broker_tells_all_brokers_and_topics_and_the_same_leader_of_the_ledger(
    three: InCluster, version: int
) -> None:
    assert create(three, 2, new("t", 4, 2)) == [NONE]
    three.settle()
    seen = []
    for board in (1, 2, 3):
        found = metadata(three, board, version=version)
        if version >= 1:
            assert [node.rack for node in found.brokers] == ["a", "b", None]
            assert found.controller_id == 1
        topics = {one.name: one for one in found.topics}
        ledger = topics.pop(LEDGER_TOPIC).partitions[0]
        assert (ledger.leader_id, ledger.replica_nodes, ledger.isr_nodes) == (1, [1], [1])
        seen.append(([(node.node_id, node.host, node.port) for node in found.brokers], topics))
    assert seen[0] == seen[1] == seen[2]
    brokers, topics = seen[0]
    assert brokers == [(number, f"edge{number}.local", 9092) for number in (1, 2, 3)]
    partitions = topics["t"].partitions
    assert [one.partition_index for one in partitions] == [0, 1, 2, 3]
    for one in partitions:
        state = three.boards[1].facade.view.state("t", one.partition_index)
        assert state is not None
        assert (one.error_code, one.leader_id) == (NONE, one.replica_nodes[0])
        assert len(one.replica_nodes) == 2
        assert set(one.isr_nodes) == set(one.replica_nodes) == {each.broker for each in state.in_sync}
        if version >= 7:
            assert one.leader_epoch == state.leader_epoch


def test_a_topic_is_told_by_its_id_wherever_it_lies(three: InCluster) -> None:
    assert create(three, 1, new("t", assigned=[[2]])) == [NONE]
    three.settle()
    topic_id = topic(three, 1).topic_id
    for board in (1, 2, 3):
        asked = MetadataRequest(topics=[MetadataRequestTopic(name=None, topic_id=topic_id)])
        (found,) = three.ask(board, METADATA, asked).topics
        assert (found.error_code, found.name, found.partitions[0].leader_id) == (NONE, "t", 2)
    other = MetadataRequest(topics=[MetadataRequestTopic(name=None, topic_id=uuid.UUID(int=77))])
    assert three.ask(1, METADATA, other).topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_a_broker_that_goes_is_an_offline_replica_and_leads_nothing(three: InCluster) -> None:
    assert create(three, 1, new("t", assigned=[[3, 1, 2]]), new("alone", assigned=[[3]])) == [NONE, NONE]
    three.settle()
    before = topic(three, 1).partitions[0]
    assert (before.leader_id, before.isr_nodes, before.offline_replicas) == (3, [3, 1, 2], [])
    three.boards[3].stop()
    three.pass_until(lambda: set(three.boards[1].facade.view.broker_ids) == {1, 2})
    three.settle()
    found = metadata(three, 1, "t", "alone")
    assert [node.node_id for node in found.brokers] == [1, 2]
    after, alone = found.topics[0].partitions[0], found.topics[1].partitions[0]
    assert after.leader_id in (1, 2)
    assert (after.error_code, after.replica_nodes, after.isr_nodes, after.offline_replicas) == (
        NONE,
        [3, 1, 2],
        [1, 2],
        [3],
    )
    assert after.leader_epoch == before.leader_epoch + 1
    assert (alone.error_code, alone.leader_id) == (ErrorCode.LEADER_NOT_AVAILABLE, -1)
    assert (alone.replica_nodes, alone.isr_nodes, alone.offline_replicas) == ([3], [], [3])


def test_a_leader_whose_port_is_closed_is_told_to_be_none(three: InCluster) -> None:
    assert create(three, 1, new("t", assigned=[[3, 1, 2]])) == [NONE]
    three.settle()
    here = three.boards[1].facade.view
    now_ms = here.now_ms
    registration = here.member.registrations[3].epoch
    assert topic(three, 1).partitions[0].leader_id == 3

    here.closed_ports.port_refused(3, registration, now_ms + 100)
    shut = topic(three, 1).partitions[0]
    assert (shut.error_code, shut.leader_id) == (ErrorCode.LEADER_NOT_AVAILABLE, -1)
    assert (shut.isr_nodes, shut.offline_replicas) == ([3, 1, 2], []), "nothing else goes by it"
    assert here.leader("t", 0) == 3
    assert next_leader(three.boards[1].broker, Session("127.0.0.1:1"), "t", 0) is None
    assert topic(three, 2).partitions[0].leader_id == 3, "the others tell what they have found"

    here.closed_ports.broker_reached(3)
    assert topic(three, 1).partitions[0].leader_id == 3
    found = next_leader(three.boards[1].broker, Session("127.0.0.1:1"), "t", 0)
    assert found is not None
    assert found.node.broker == 3


def test_a_closed_port_is_told_for_so_long_as_the_dead_are_registered(three: InCluster) -> None:
    assert create(three, 1, new("t", assigned=[[3, 1, 2]])) == [NONE]
    three.settle()
    here = three.boards[1].facade.view
    registration, until_ms = here.member.registrations[3].epoch, here.now_ms + 500
    here.closed_ports.port_refused(3, registration, until_ms)
    three.pass_for(400)
    here.closed_ports.port_refused(3, registration, here.now_ms + 500)
    assert topic(three, 1).partitions[0].leader_id == -1
    three.pass_for(200)
    here.closed_ports.port_refused(3, registration, here.now_ms + 500)
    assert topic(three, 1).partitions[0].leader_id == 3, (
        "it is registered still: it lives, behind a port that is closed"
    )
    here.closed_ports.port_refused(3, registration + 1, here.now_ms + 500)
    assert topic(three, 1).partitions[0].leader_id == 3, "what was found of another life"


def test_the_door_knows_who_leads(three: InCluster) -> None:
    assert create(three, 1, new("t", assigned=[[2, 1]])) == [NONE]
    three.settle()
    context = RequestContext(1, 0, "", Session("127.0.0.1:1"))
    for board, there in ((1, False), (2, True), (3, False)):
        topics = three.boards[board].broker.topics
        assert topics.lookup_error(context, "t", 0, Operation.READ) == NONE
        assert topics.lookup_error(context, "t", 1, Operation.READ) == NOT_THERE
        if there:
            log = topics.partition(context, "t", 0, Operation.READ)
            assert log is three.boards[board].replicas[PartitionId("t", 0)].log
            continue
        with pytest.raises(Exception, match="does not lead t-0") as refused:
            topics.partition(context, "t", 0, Operation.READ)
        assert refused.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER  # type: ignore[attr-defined]


@pytest.mark.parametrize(("version", "error"), [(5, ErrorCode.LEADER_NOT_AVAILABLE), (6, ErrorCode.LISTENER_NOT_FOUND)])
def test_a_leader_without_a_listener_of_the_clients_is_none_for_them(
    three: InCluster, version: int, error: ErrorCode
) -> None:
    assert create(three, 1, new("t", assigned=[[2, 1]])) == [NONE]
    three.settle()
    context = RequestContext(1, version, "", Session("127.0.0.1:1", listener="OUTSIDE"))
    asked = MetadataRequest(topics=[MetadataRequestTopic(name="t")])
    answer = carried_out(HANDLERS[METADATA](three.boards[1].broker, context, asked)).response
    assert answer.brokers == []
    partition = answer.topics[0].partitions[0]
    assert (partition.error_code, partition.leader_id, partition.offline_replicas) == (error, -1, [2, 1])


def test_before_anything_was_read_nothing_is_said_to_be_missing() -> None:
    cluster = InCluster(1)
    assert create(cluster, 1, new("t")) == [NONE]
    cluster.settle()
    cluster.ensemble.cut(0)
    cluster.add(2)
    cluster.loop.advance(1000)
    topics = cluster.boards[2].broker.topics
    assert not topics.exists(LEDGER_TOPIC)
    assert topic(cluster, 2, auto=True).error_code == ErrorCode.LEADER_NOT_AVAILABLE
    assert create(cluster, 2, new("u")) == [ErrorCode.NOT_CONTROLLER]
    assert delete(cluster, 2, "t") == [ErrorCode.LEADER_NOT_AVAILABLE]
    assert names_of(cluster, 2) == set()
    of_broker = FetchRequest(replica_state=ReplicaState(replica_id=1, replica_epoch=1))
    assert cluster.ask(2, FETCH, of_broker).error_code == ErrorCode.LEADER_NOT_AVAILABLE, "who is one is not known"
    cluster.ensemble.mend(0)
    cluster.pass_until(lambda: cluster.boards[2].facade.view.knows)
    cluster.settle()
    assert topic(cluster, 2).partitions[0].leader_id == 1


# rights


def test_what_a_session_may_not_do_alone_it_may_not_do_in_a_cluster() -> None:
    keys = {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:admin"}
    cluster = InCluster(2, keys)
    facade = cluster.boards[1].facade
    told: list[ErrorCode] = []
    facade.changes.make_topic("t", facade.changes.place(id_text(uuid.UUID(int=5)), 1, 2, {}), told.append)
    cluster.settle()
    assert told == [NONE]
    assert cluster.boards[2].broker.topics.exists("t")
    denied, of_cluster = ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    for board in (1, 2):
        assert metadata(cluster, board).topics == []
        assert topic(cluster, board).error_code == topic(cluster, board, "none", auto=True).error_code == denied
        assert topic(cluster, board).partitions == []
        assert create(cluster, board, new("u")) == [denied]
        assert delete(cluster, board, "t", "none") == [denied, denied]
        assert cluster.ask(board, ELECT_LEADERS, ElectLeadersRequest()).error_code == of_cluster
        asked = MetadataRequest(topics=[MetadataRequestTopic(name=None, topic_id=uuid.UUID(int=5))])
        by_id = cluster.ask(board, METADATA, asked).topics[0]
        assert (by_id.error_code, by_id.name) == (denied, None)
    assert facade.view.topics.keys() == {"t", LEDGER_TOPIC}


# made by Metadata


def test_a_topic_is_made_by_who_asks_for_it_with_the_brokers_defaults() -> None:
    cluster = InCluster(3, {"default.replication.factor": 3, "num.partitions": 2})
    found = topic(cluster, 2, auto=True)
    assert (found.error_code, len(found.partitions)) == (NONE, 2)
    assert all(len(one.replica_nodes) == 3 and one.leader_id > 0 for one in found.partitions)
    cluster.settle()
    assert topic(cluster, 3).topic_id == found.topic_id
    assert cluster.boards[1].facade.view.topics["t"].config == {"min.insync.replicas": "2"}


def test_more_replicas_than_brokers_are_an_error() -> None:
    cluster = InCluster(2, {"default.replication.factor": 3})
    assert topic(cluster, 1, auto=True).error_code == BAD_FACTOR
    assert create(cluster, 1, new("u")) == [BAD_FACTOR]
    assert topic(cluster, 1, OFFSETS_TOPIC, auto=True).error_code == BAD_FACTOR, "it keeps what it is made with"
    assert names_of(cluster, 1) == set(), "the ledger waits for as many boards as it is to have replicas"
    assert topic(cluster, 1, LEDGER_TOPIC, auto=True).error_code == NOT_THERE
    assert create(cluster, 1, new(LEDGER_TOPIC)) == [ErrorCode.INVALID_TOPIC_EXCEPTION], "nor does a client make it"


# CreateTopics


@pytest.mark.parametrize(
    ("asked", "error"),
    [
        (new(factor=4), BAD_FACTOR),
        (new(factor=0), BAD_FACTOR),
        (new(factor=-2), BAD_FACTOR),
        (new(partitions=0), ErrorCode.INVALID_PARTITIONS),
        (new(assigned=[[1, 2], [4, 1]]), BAD_ASSIGNMENT),
        (new(assigned=[[1, 2], [1]]), BAD_ASSIGNMENT),
        (new(assigned=[[1, 1]]), BAD_ASSIGNMENT),
        (new(assigned=[[]]), BAD_ASSIGNMENT),
        (new(config={"min.insync.replicas": "x"}), ErrorCode.INVALID_CONFIG),
        (new(LEDGER_TOPIC), ErrorCode.TOPIC_ALREADY_EXISTS),
        (new("there"), ErrorCode.TOPIC_ALREADY_EXISTS),
        (new("the.re"), NONE),
        (new(OFFSETS_TOPIC), ErrorCode.INVALID_TOPIC_EXCEPTION),
    ],
)
@pytest.mark.parametrize("validate_only", [False, True])
def test_what_is_refused_leaves_nothing(
    three: InCluster, asked: CreatableTopic, error: ErrorCode, validate_only: bool
) -> None:
    assert create(three, 1, new("there")) == [NONE]
    three.settle()
    before = names_of(three, 3)
    assert create(three, 2, asked, validate_only=validate_only) == [error]
    three.settle()
    made = {asked.name} if not error and not validate_only else set()
    assert names_of(three, 3) == before | made


def test_what_was_made_is_known_at_once_where_it_was_asked_for(three: InCluster) -> None:
    for number in range(6):
        board, name = number % 3 + 1, f"t{number}"
        answer = three.ask(board, CREATE_TOPICS, request(new(name, 2, 2))).topics[0]
        assert (answer.num_partitions, answer.replication_factor) == (2, 2)
        found = topic(three, board, name)
        assert answer.topic_id == found.topic_id != NO_UUID
        assert [one.error_code for one in found.partitions] == [NONE, NONE]
        assert three.boards[board].broker.topics.changing == set()


def test_assignments_are_carried_out_as_they_are(three: InCluster) -> None:
    assert create(three, 1, new(assigned=[[3, 1], [2, 3]])) == [NONE]
    assert [one.replica_nodes for one in topic(three, 1).partitions] == [[3, 1], [2, 3]]


@pytest.mark.parametrize(
    ("keys", "own", "factor", "expected"),
    [
        ({}, {}, 3, {"min.insync.replicas": "2"}),
        ({}, {}, 2, {}),
        ({}, {"min.insync.replicas": "1"}, 3, {"min.insync.replicas": "1"}),
        ({"min.insync.replicas": 1}, {}, 3, {}),
        ({"min.insync.replicas": 2}, {}, 2, {"min.insync.replicas": "2"}),
        (
            {"unclean.leader.election.enable": True},
            {},
            3,
            {"min.insync.replicas": "2", "unclean.leader.election.enable": "true"},
        ),
        (
            {"unclean.leader.election.enable": True},
            {"unclean.leader.election.enable": "false"},
            1,
            {"unclean.leader.election.enable": "false"},
        ),
    ],
)
def test_a_topic_says_itself_what_holds_for_its_replicas(
    keys: dict[str, Any], own: dict[str, str], factor: int, expected: dict[str, str]
) -> None:
    cluster = InCluster(3, keys)
    answer = cluster.ask(1, CREATE_TOPICS, request(new(factor=factor, config=own))).topics[0]
    assert answer.error_code == NONE
    cluster.settle()
    for board in cluster.boards.values():
        assert board.facade.view.topics["t"].config == expected
    told = {entry.name: entry.value for entry in answer.configs}
    assert told | expected == told


def test_of_two_who_make_the_same_topic_one_is_told_that_it_is_there(three: InCluster) -> None:
    for board in (1, 2):
        three.boards[board].client.send(CREATE_TOPICS, request(new()))
    answers: dict[int, Any] = {}

    def both() -> bool:
        for board in (1, 2):
            for found in three.boards[board].client.answers():
                answers[board] = found.topics[0]
        return len(answers) == 2

    three.pass_until(both)
    assert sorted(one.error_code for one in answers.values()) == [NONE, ErrorCode.TOPIC_ALREADY_EXISTS]
    three.settle()
    (winner,) = [one for one in answers.values() if not one.error_code]
    assert {topic(three, board).topic_id for board in (1, 2, 3)} == {winner.topic_id}


@pytest.mark.parametrize("delay_ms", [0.0, 0.5, 1.0, 2.0, 3.0, 5.0])
def test_a_lost_connection_to_zookeeper_costs_no_topic_and_makes_none_twice(three: InCluster, delay_ms: float) -> None:
    client = three.boards[1].client
    client.send(CREATE_TOPICS, request(new(), timeout_ms=30_000))
    three.loop.call_later(delay_ms / 1000, three.ensemble.servers[0].drop_connections)
    found: list[Any] = []
    three.pass_until(lambda: bool(found.extend(client.answers()) or found))
    (answer,) = found
    assert answer.topics[0].error_code == NONE
    three.settle()
    assert {topic(three, board).topic_id for board in (1, 2, 3)} == {answer.topics[0].topic_id}


def test_without_zookeeper_the_time_of_the_request_is_kept_and_the_name_is_free_then(three: InCluster) -> None:
    three.ensemble.cut(0)
    begin = three.loop.time()
    assert create(three, 1, new(), timeout_ms=1500) == [ErrorCode.REQUEST_TIMED_OUT]
    assert 1.5 <= three.loop.time() - begin < 1.7
    assert three.boards[1].broker.topics.changing == set()
    three.ensemble.mend(0)
    three.pass_until(lambda: three.boards[1].facade.view.images > 1)
    three.settle()
    assert create(three, 1, new()) in ([NONE], [ErrorCode.TOPIC_ALREADY_EXISTS])


def test_who_asks_for_a_topic_that_is_being_made_has_its_answer_behind_it(three: InCluster) -> None:
    board = three.boards[1]
    board.client.send(CREATE_TOPICS, request(new()))
    other = board.site.client()
    other.send(METADATA, MetadataRequest(topics=[MetadataRequestTopic(name="t")], allow_auto_topic_creation=True))
    found: list[Any] = []
    three.pass_until(lambda: bool(found.extend(other.answers()) or found))
    assert found[0].topics[0].error_code == NONE
    assert board.client.answer().topics[0].topic_id == found[0].topics[0].topic_id


def test_a_client_that_goes_leaves_a_change_that_comes_to_its_end(three: InCluster) -> None:
    board = three.boards[1]
    other = board.site.client()
    other.send(CREATE_TOPICS, request(new()))
    other.lose()
    three.settle()
    assert topic(three, 1).error_code == NONE
    assert board.broker.topics.changing == set()


# DeleteTopics


def test_a_deleted_topic_is_gone_where_that_was_asked_and_then_everywhere(three: InCluster) -> None:
    assert create(three, 1, new("t", 2, 2), new("u", assigned=[[2]])) == [NONE, NONE]
    three.settle()
    before = topic(three, 3).topic_id
    assert delete(three, 3, "t", "u", "none") == [NONE, NONE, NOT_THERE]
    assert names_of(three, 3) == {LEDGER_TOPIC}
    three.settle()
    for board in three.boards.values():
        assert set(board.site.store.topics) - {JOURNAL_TOPIC} <= {LEDGER_TOPIC}
        assert board.broker.topics.changing == set()
    assert create(three, 1, new("t", 1, 3)) == [NONE]
    three.settle()
    assert {topic(three, board).topic_id for board in (1, 2, 3)} == {topic(three, 2).topic_id}
    assert topic(three, 1).topic_id != before


def test_a_topic_is_deleted_by_its_id(three: InCluster) -> None:
    assert create(three, 1, new(assigned=[[2]])) == [NONE]
    three.settle()
    asked = DeleteTopicState(name=None, topic_id=topic(three, 1).topic_id)
    (found,) = three.ask(1, DELETE_TOPICS, DeleteTopicsRequest(topics=[asked], timeout_ms=5000)).responses
    assert (found.error_code, found.name) == (NONE, "t")
    assert names_of(three, 1) == {LEDGER_TOPIC}
    (again,) = three.ask(1, DELETE_TOPICS, DeleteTopicsRequest(topics=[asked], timeout_ms=5000)).responses
    assert again.error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_what_belongs_to_the_brokers_stays(three: InCluster) -> None:
    assert topic(three, 1, OFFSETS_TOPIC, auto=True).error_code == NONE
    assert delete(three, 1, LEDGER_TOPIC, OFFSETS_TOPIC) == [ErrorCode.INVALID_TOPIC_EXCEPTION] * 2


@pytest.mark.parametrize("delay_ms", [0.0, 0.5, 1.0, 2.0, 3.0, 5.0])
def test_a_lost_connection_costs_no_deletion(three: InCluster, delay_ms: float) -> None:
    assert create(three, 1, new("t", 2, 3)) == [NONE]
    three.settle()
    client = three.boards[2].client
    asked = DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=30_000)
    client.send(DELETE_TOPICS, asked)
    three.loop.call_later(delay_ms / 1000, three.ensemble.servers[0].drop_connections)
    found: list[Any] = []
    three.pass_until(lambda: bool(found.extend(client.answers()) or found))
    assert found[0].responses[0].error_code == NONE
    three.settle()
    assert all(names_of(three, board) == {LEDGER_TOPIC} for board in (1, 2, 3))


def test_a_session_that_has_ended_meanwhile_is_followed_by_another_that_does_it(three: InCluster) -> None:
    board = three.boards[1]
    three.ensemble.cut(0)
    board.client.send(CREATE_TOPICS, request(new(), timeout_ms=60_000))
    three.loop.advance(SESSION_MS * 1.5)
    three.ensemble.expire(board.session.session_id)
    three.ensemble.mend(0)
    found: list[Any] = []
    three.pass_until(lambda: bool(found.extend(board.client.answers()) or found), 90_000)
    assert found[0].topics[0].error_code == NONE


def test_a_consumer_that_says_that_it_is_no_broker_is_none() -> None:
    """Most leave it out; who writes every field of the protocol does not."""
    cluster = InCluster(1)
    assert create(cluster, 1, new()) == [NONE]
    topic_id = topic(cluster, 1).topic_id
    wanted = FetchTopic(topic_id=topic_id, partitions=[FetchPartition(partition=0, partition_max_bytes=1000)])
    answer = cluster.ask(1, FETCH, FetchRequest(replica_state=ReplicaState(), topics=[wanted], max_bytes=1000))
    assert answer.error_code == NONE
    assert [each.error_code for each in answer.responses[0].partitions] == [NONE]


@pytest.mark.parametrize("version", [9, 10])
def test_a_producer_that_asks_another_broker_is_told_who_leads(three: InCluster, version: int) -> None:
    assert create(three, 1, new("t", assigned=[[2, 1], [1, 2]])) == [NONE]
    three.settle()
    data = [PartitionProduceData(index=number, records=memoryview(batch(b"a"))) for number in (0, 1)]
    asked = ProduceRequest(acks=-1, timeout_ms=5000, topic_data=[TopicProduceData(name="t", partition_data=data)])
    answer = three.ask(1, PRODUCE, asked, version)
    refused, taken = answer.responses[0].partition_responses
    assert (refused.error_code, taken.error_code) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, NONE)
    assert taken.current_leader is None
    state = three.boards[1].facade.view.state("t", 0)
    if version < 10:
        assert (refused.current_leader, answer.node_endpoints) == (None, [])
        return
    assert refused.current_leader == ProduceLeaderIdAndEpoch(leader_id=2, leader_epoch=state.leader_epoch)
    (node,) = answer.node_endpoints
    assert (node.node_id, node.host, node.port) == told_of(three, 2)


@pytest.mark.parametrize("version", [15, 16])
@pytest.mark.parametrize("session_epoch", [-1, 0])
def test_a_consumer_that_asks_another_broker_is_told_who_leads(
    three: InCluster, version: int, session_epoch: int
) -> None:
    assert create(three, 1, new("t", assigned=[[2, 1], [1, 2]])) == [NONE]
    three.settle()
    wanted = [FetchPartition(partition=number, partition_max_bytes=1000) for number in (0, 1)]
    topics = [FetchTopic(topic_id=topic(three, 1).topic_id, partitions=wanted)]
    asked = FetchRequest(max_bytes=1000, session_epoch=session_epoch, topics=topics)
    answer = three.ask(1, FETCH, asked, version)
    refused, read = answer.responses[0].partitions
    assert (refused.error_code, read.error_code) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, NONE)
    assert read.current_leader is None
    if version < 16:
        assert (refused.current_leader, answer.node_endpoints) == (None, [])
        return
    assert refused.current_leader == FetchLeaderIdAndEpoch(leader_id=2, leader_epoch=0)
    (node,) = answer.node_endpoints
    assert (node.node_id, node.host, node.port) == told_of(three, 2)


def told_of(cluster: InCluster, board: int) -> tuple[int, str, int]:
    """As Metadata tells it."""
    return next((each.node_id, each.host, each.port) for each in metadata(cluster, 1).brokers if each.node_id == board)


def test_a_broker_that_knows_of_no_other_leader_names_none(three: InCluster) -> None:
    assert create(three, 1, new("t", assigned=[[2, 1]])) == [NONE]
    three.settle()
    broker, session = three.boards[1].broker, Session("127.0.0.1:1")
    assert next_leader(broker, session, "t", 0) is not None
    assert next_leader(broker, session, "t", 1) is None
    assert next_leader(broker, session, "u", 0) is None
    assert next_leader(three.boards[2].broker, session, "t", 0) is None, "it is itself, by what it knows"
    assert next_leader(broker, Session("127.0.0.1:1", listener="OUTSIDE"), "t", 0) is None


def test_a_topic_is_known_by_its_id_until_another_has_its_name() -> None:
    cluster = InCluster(1)
    assert create(cluster, 1, new()) == [NONE]
    former, facade = topic(cluster, 1).topic_id, cluster.boards[1].facade
    assert (found := facade.view.describe_by_id(former)) is not None
    assert found.name == "t"
    assert delete(cluster, 1, "t") == [NONE]
    assert create(cluster, 1, new()) == [NONE]
    assert facade.view.describe_by_id(former) is None
    assert (found := facade.view.describe_by_id(topic(cluster, 1).topic_id)) is not None
    assert found.name == "t"


# where partitions lie


def log_dirs(cluster: InCluster, board: int, version: int = 4, **topics: list[int]) -> dict[str, dict[int, int]]:
    """Bytes by topic and partition, as one board tells them."""
    wanted = [DescribableLogDirTopic(topic=name, partitions=numbers) for name, numbers in topics.items()]
    (found,) = cluster.ask(board, DESCRIBE_LOG_DIRS, DescribeLogDirsRequest(topics=wanted or None), version).results
    assert (found.error_code, found.log_dir) == (NONE, cluster.boards[board].broker.store.data_dir)
    assert all((one.offset_lag, one.is_future_key) == (0, False) for each in found.topics for one in each.partitions)
    return {one.name: {each.partition_index: each.partition_size for each in one.partitions} for one in found.topics}


@pytest.mark.parametrize("version", [1, 2, 3, 4])
def test_each_board_tells_what_lies_on_its_own_disk(three: InCluster, version: int) -> None:
    assert create(three, 3, new("t", assigned=[[2, 1], [3, 2]])) == [NONE]
    three.settle()
    assert [log_dirs(three, board, version, t=[0, 1, 1, 7], none=[0]) for board in (1, 2, 3)] == [
        {"t": {0: 0}},
        {"t": {0: 0, 1: 0}},
        {"t": {1: 0}},
    ]
    assert [sorted(log_dirs(three, board, version)) for board in (1, 3)] == [[LEDGER_TOPIC, "t"], ["t"]]
    assert log_dirs(three, 2, version, **{JOURNAL_TOPIC: [0]}) == {}, "the journal is nobody's to ask for"


def test_no_partition_is_moved_and_who_asks_for_that_is_told_so(three: InCluster) -> None:
    assert create(three, 1, new("t", assigned=[[2, 1]])) == [NONE]
    three.settle()
    for board in (1, 2, 3):
        told = three.ask(board, LIST_PARTITION_REASSIGNMENTS, ListPartitionReassignmentsRequest())
        assert (told.error_code, told.topics) == (NONE, [])
    wishes: list[tuple[str, int, list[int] | None, int]] = [
        ("t", 0, [2, 1], NONE),
        ("t", 0, None, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS),
        ("t", 0, [1, 2], ErrorCode.UNSUPPORTED_VERSION),
        ("t", 0, [3], ErrorCode.UNSUPPORTED_VERSION),
        ("t", 0, [], BAD_ASSIGNMENT),
        ("t", 0, [1, 1], BAD_ASSIGNMENT),
        ("t", 0, [1, 7], BAD_ASSIGNMENT),
        ("t", 1, [1], NOT_THERE),
        ("t", -1, None, NOT_THERE),
        ("none", 0, [1], NOT_THERE),
    ]
    asked = [
        ReassignableTopic(name=name, partitions=[ReassignablePartition(partition_index=index, replicas=replicas)])
        for name, index, replicas, _ in wishes
    ]
    for version in (0, 1):
        answer = three.ask(3, ALTER_PARTITION_REASSIGNMENTS, AlterPartitionReassignmentsRequest(topics=asked), version)
        found = [(one.name, *one.partitions) for one in answer.responses]
        assert answer.error_code == NONE
        assert [(name, one.partition_index, one.error_code) for name, one in found] == [
            (name, index, code) for name, index, _, code in wishes
        ]
        assert all(bool(one.error_message) == bool(one.error_code) for _, one in found)
    assert topic(three, 3).partitions[0].replica_nodes == [2, 1]
