"""How topics of a cluster are configured, and get more partitions: by any broker, and no change gets lost."""

from __future__ import annotations

from typing import Any

import pytest

from drupelet.ledger import LEDGER_TOPIC
from edge_broker.errors import ErrorCode
from edge_broker.protocol.api import (
    ALTER_CONFIGS,
    CREATE_PARTITIONS,
    DESCRIBE_CLUSTER,
    DESCRIBE_CONFIGS,
    DESCRIBE_TOPIC_PARTITIONS,
    INCREMENTAL_ALTER_CONFIGS,
)
from edge_broker.protocol.messages import alter_configs
from edge_broker.protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from edge_broker.protocol.messages.describe_cluster import DescribeClusterRequest
from edge_broker.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from edge_broker.protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from tests.support.in_cluster import InCluster
from tests.unit.broker.test_alter_configs import APPEND, DELETE, SET, TOPIC, of_topic
from tests.unit.broker.test_alter_configs import request as incremental
from tests.unit.broker.test_cluster_topics import NONE, NOT_THERE, create, new, topic
from tests.unit.broker.test_create_partitions import more

RETENTION, POLICY, MIN_IN_SYNC = "retention.ms", "cleanup.policy", "min.insync.replicas"


def described(cluster: InCluster, board: int, name: str = "t") -> dict[str, tuple[str, int]]:
    """By key: value and source."""
    resource = DescribeConfigsResource(resource_type=TOPIC, resource_name=name)
    (found,) = cluster.ask(board, DESCRIBE_CONFIGS, DescribeConfigsRequest(resources=[resource])).results
    assert found.error_code == NONE, found.error_message
    return {entry.name: (entry.value, entry.config_source) for entry in found.configs}


def alter(cluster: InCluster, board: int, *resources: Any, validate_only: bool = False) -> list[int]:
    request = incremental(*resources, validate_only=validate_only)
    return [one.error_code for one in cluster.ask(board, INCREMENTAL_ALTER_CONFIGS, request).responses]


def grow(cluster: InCluster, board: int, *topics: Any, validate_only: bool = False) -> list[int]:
    request = CreatePartitionsRequest(topics=list(topics), timeout_ms=10_000, validate_only=validate_only)
    return [one.error_code for one in cluster.ask(board, CREATE_PARTITIONS, request).results]


@pytest.fixture
def three() -> InCluster:
    cluster = InCluster(3)
    assert create(cluster, 1, new("t", 2, 2, config={RETENTION: "5000"}), new("u", 1, 3)) == [NONE, NONE]
    cluster.settle()
    return cluster


def test_who_gets_a_new_partition_wrongly_is_told_which_one(three: InCluster) -> None:
    assigned = [CreatePartitionsAssignment(broker_ids=ids) for ids in ([1, 2], [1, 9])]
    asked = CreatePartitionsTopic(name="t", count=4, assignments=assigned)
    (refused,) = three.ask(1, CREATE_PARTITIONS, CreatePartitionsRequest(topics=[asked], timeout_ms=10_000)).results
    assert refused.error_message.startswith("partition 3 is assigned to brokers [1, 9]")


# configurations


def test_a_change_is_told_at_once_where_it_was_asked_for_then_everywhere_and_logs_go_by_it(three: InCluster) -> None:
    assert alter(three, 3, of_topic("t", (RETENTION, SET, "7000"), (POLICY, APPEND, "compact"))) == [NONE]
    assert described(three, 3)[RETENTION] == ("7000", 1)
    assert described(three, 3)[POLICY] == ("delete,compact", 1)
    three.settle()
    for number, board in three.boards.items():
        assert described(three, number) == described(three, 3)
        for replica in board.replicas.values():
            if replica.log.topic == "t":
                assert (replica.log.settings.retention_ms, replica.log.settings.compacts) == (7000, True)
        assert board.broker.topics.changing == set()


def test_what_is_refused_or_only_looked_at_changes_nothing(three: InCluster) -> None:
    before = described(three, 1)
    assert alter(
        three,
        1,
        of_topic("t", (RETENTION, SET, "x")),
        of_topic("none", (RETENTION, SET, "1")),
        of_topic(LEDGER_TOPIC, (RETENTION, SET, "1")),
    ) == [ErrorCode.INVALID_CONFIG, NOT_THERE, ErrorCode.INVALID_TOPIC_EXCEPTION]
    assert alter(three, 1, of_topic("t", (RETENTION, SET, "1")), validate_only=True) == [NONE]
    three.settle()
    assert described(three, 1) == before


def test_less_durability_is_noted_by_who_was_asked_for_it(three: InCluster, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert alter(three, 2, of_topic("t", ("edge.durability", SET, "kernel"))) == [NONE]
    three.settle()
    assert capsys.readouterr().err.count("edge.durability went down") == 1
    assert alter(three, 2, of_topic("t", ("edge.durability", DELETE, None))) == [NONE]
    assert "went down" not in capsys.readouterr().err


def test_a_change_to_what_holds_already_is_answered_without_a_write(three: InCluster) -> None:
    version = three.boards[1].facade.view.version("t")
    assert alter(three, 1, of_topic("t", (RETENTION, SET, "5000"))) == [NONE]
    assert three.boards[1].facade.view.version("t") == version


def test_of_two_who_change_different_keys_at_once_nothing_gets_lost(three: InCluster) -> None:
    three.boards[1].client.send(INCREMENTAL_ALTER_CONFIGS, incremental(of_topic("t", (RETENTION, SET, "1"))))
    three.boards[2].client.send(INCREMENTAL_ALTER_CONFIGS, incremental(of_topic("t", ("segment.ms", SET, "2000"))))
    three.boards[3].client.send(INCREMENTAL_ALTER_CONFIGS, incremental(of_topic("t", (RETENTION, DELETE, None))))
    answers: list[Any] = []

    def all_three() -> bool:
        for board in three.boards.values():
            answers.extend(board.client.answers())
        return len(answers) == 3

    three.pass_until(all_three)
    assert [answer.responses[0].error_code for answer in answers] == [NONE] * 3
    three.settle()
    for number in three.boards:
        assert described(three, number)["segment.ms"] == ("2000", 1)


def test_what_a_topic_says_of_its_replicas_is_not_lost_by_not_being_named(three: InCluster) -> None:
    assert described(three, 1, "u")[MIN_IN_SYNC] == ("2", 1)
    configs = [alter_configs.AlterableConfig(name=RETENTION, value="1")]
    resource = alter_configs.AlterConfigsResource(resource_type=TOPIC, resource_name="u", configs=configs)
    request = alter_configs.AlterConfigsRequest(resources=[resource])
    assert three.ask(1, ALTER_CONFIGS, request).responses[0].error_code == NONE
    assert (described(three, 1, "u")[MIN_IN_SYNC], described(three, 1, "u")[RETENTION]) == (("2", 1), ("1", 1))
    assert alter(three, 1, of_topic("u", (MIN_IN_SYNC, SET, "1"))) == [NONE]
    assert described(three, 1, "u")[MIN_IN_SYNC] == ("1", 1)
    assert alter(three, 1, of_topic("u", (MIN_IN_SYNC, DELETE, None))) == [NONE]
    three.settle()
    assert described(three, 2, "u")[MIN_IN_SYNC] == ("2", 1)
    found = [board.member.partitions for board in three.boards.values()]
    assert {each.needed for partitions in found for name, each in partitions.items() if name.topic == "u"} == {2}


@pytest.mark.parametrize("delay_ms", [0.0, 1.0, 2.0, 4.0])
def test_a_lost_connection_costs_no_change(three: InCluster, delay_ms: float) -> None:
    client = three.boards[1].client
    client.send(INCREMENTAL_ALTER_CONFIGS, incremental(of_topic("t", (POLICY, APPEND, "compact"))))
    three.loop.call_later(delay_ms / 1000, three.ensemble.servers[0].drop_connections)
    found: list[Any] = []
    three.pass_until(lambda: bool(found.extend(client.answers()) or found))
    assert found[0].responses[0].error_code == NONE
    three.settle()
    assert described(three, 2)[POLICY] == ("delete,compact", 1)


# partitions


def test_more_partitions_are_led_by_somebody_when_that_is_answered(three: InCluster) -> None:
    before = topic(three, 3).partitions
    assert grow(three, 3, more("t", 4), more("u", 3, [2, 3, 1], [3, 1, 2])) == [NONE, NONE]
    after = topic(three, 3).partitions
    assert after[:2] == before
    assert [len(one.replica_nodes) for one in after] == [2, 2, 2, 2]
    assert [one.error_code for one in after] == [NONE] * 4
    assert [one.replica_nodes for one in topic(three, 3, "u").partitions[1:]] == [[2, 3, 1], [3, 1, 2]]
    three.settle()
    assert topic(three, 1).partitions[:2] == before
    assert all(one.leader_id == one.replica_nodes[0] for one in topic(three, 1, "u").partitions)


@pytest.mark.parametrize(
    ("asked", "error"),
    [
        (more("t", 2), ErrorCode.INVALID_PARTITIONS),
        (more("t", 1), ErrorCode.INVALID_PARTITIONS),
        (more("t", 5000), ErrorCode.INVALID_PARTITIONS),
        (more("none", 2), NOT_THERE),
        (more("t", 3, [1, 9]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (more("t", 3, [1, 1]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (more("t", 3, [1]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (more("t", 4, [1, 2]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (more(LEDGER_TOPIC, 2), ErrorCode.INVALID_TOPIC_EXCEPTION),
    ],
)
def test_partitions_that_a_topic_cannot_get(three: InCluster, asked: Any, error: ErrorCode) -> None:
    assert grow(three, 2, asked) == [error]
    assert grow(three, 2, more("t", 3), validate_only=True) == [NONE]
    three.settle()
    assert len(topic(three, 1).partitions) == 2


def test_partitions_of_as_many_replicas_as_there_are_no_brokers_for(three: InCluster) -> None:
    three.boards[3].stop()
    three.pass_until(lambda: set(three.boards[1].facade.view.broker_ids) == {1, 2})
    assert grow(three, 1, more("u", 2), more("t", 3)) == [ErrorCode.INVALID_REPLICATION_FACTOR, NONE]
    assert set(topic(three, 1).partitions[2].replica_nodes) == {1, 2}


def test_of_two_who_ask_for_partitions_of_one_topic_both_are_told_the_truth(three: InCluster) -> None:
    for board, count in ((1, 3), (2, 5)):
        request = CreatePartitionsRequest(topics=[more("t", count)], timeout_ms=10_000)
        three.boards[board].client.send(CREATE_PARTITIONS, request)
    answers: dict[int, int] = {}

    def both() -> bool:
        for board in (1, 2):
            answers.update((board, one.results[0].error_code) for one in three.boards[board].client.answers())
        return len(answers) == 2

    three.pass_until(both)
    three.settle()
    assert answers[2] == NONE
    assert answers[1] in (NONE, ErrorCode.INVALID_PARTITIONS)
    assert len(topic(three, 3).partitions) == 5


# who leads, told by others than Metadata


def test_the_other_ways_to_ask_who_leads_say_the_same(three: InCluster) -> None:
    three.boards[3].stop()
    three.pass_until(lambda: set(three.boards[1].facade.view.broker_ids) == {1, 2})
    three.settle()
    found = three.ask(2, DESCRIBE_CLUSTER, DescribeClusterRequest())
    assert [node.broker_id for node in found.brokers] == [1, 2]
    assert [(node.host, node.port) for node in found.brokers] == [("edge1.local", 9092), ("edge2.local", 9092)]
    assert (found.controller_id, found.cluster_id) == (1, "cluster-of-tests")
    request = DescribeTopicPartitionsRequest(topics=[TopicRequest(name="t"), TopicRequest(name="u")])
    shown = three.ask(2, DESCRIBE_TOPIC_PARTITIONS, request).topics
    for one in shown:
        told = topic(three, 2, one.name)
        assert one.topic_id == told.topic_id
        assert len(one.partitions) == len(told.partitions)
        for other, partition in zip(told.partitions, one.partitions, strict=True):
            assert (partition.leader_id, partition.leader_epoch) == (other.leader_id, other.leader_epoch)
            assert (partition.replica_nodes, partition.isr_nodes) == (other.replica_nodes, other.isr_nodes)
            assert partition.offline_replicas == other.offline_replicas
            assert partition.error_code == other.error_code


def test_who_is_named_in_sync_and_is_gone_may_lead_when_it_comes_back() -> None:
    cluster = InCluster(2)
    assert create(cluster, 1, new("t", assigned=[[2, 1]], config={MIN_IN_SYNC: "2"})) == [NONE]
    cluster.settle()
    cluster.boards[2].stop()
    cluster.pass_until(lambda: set(cluster.boards[1].facade.view.broker_ids) == {1})
    cluster.settle()
    (found,) = cluster.ask(1, DESCRIBE_TOPIC_PARTITIONS, DescribeTopicPartitionsRequest(topics=[])).topics[1:]
    partition = found.partitions[0]
    assert (partition.leader_id, partition.isr_nodes, partition.eligible_leader_replicas) == (1, [1], [2])


def test_pages_of_partitions_go_on_where_the_one_before_ended(three: InCluster) -> None:
    first = three.ask(1, DESCRIBE_TOPIC_PARTITIONS, DescribeTopicPartitionsRequest(response_partition_limit=2))
    names = [(one.name, len(one.partitions)) for one in first.topics]
    assert names == [(LEDGER_TOPIC, 1), ("t", 1)]
    assert (first.next_cursor.topic_name, first.next_cursor.partition_index) == ("t", 1)
    request = DescribeTopicPartitionsRequest(response_partition_limit=2, cursor=first.next_cursor)
    second = three.ask(1, DESCRIBE_TOPIC_PARTITIONS, request)
    assert [(one.name, one.partitions[0].partition_index) for one in second.topics] == [("t", 1), ("u", 0)]
    assert second.next_cursor is None
