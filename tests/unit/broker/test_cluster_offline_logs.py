"""What clients are told of a partition whose logs go offline, and what brokers tell each other."""

from __future__ import annotations

import json
from typing import Any

import pytest

from edge_broker.broker.cluster import follower_fetch
from edge_broker.broker.cluster.cluster_metrics import figures, health
from edge_broker.cluster.inter_broker_messages import ReplicaFetched
from edge_broker.cluster.state.cluster_state import PartitionId
from edge_broker.errors import ErrorCode, StorageFault
from edge_broker.protocol.api import DESCRIBE_TOPIC_PARTITIONS, OFFSET_FOR_LEADER_EPOCH
from edge_broker.protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from edge_broker.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from edge_broker.protocol.record_batch import records_of
from edge_broker.storage.metadata.topic_record import LEDGERS
from tests.support.in_cluster import InCluster
from tests.support.storage import failing, read_all
from tests.unit.broker.test_cluster_offsets import write
from tests.unit.broker.test_cluster_topics import NONE, create, new, topic

P = PartitionId("t", 0)
NEWEST = (1 << 31) - 1


def a_topic(*replicas: int) -> InCluster:
    """A topic whose every acknowledged record is on two disks, so that no member may leave the set of two."""
    cluster = InCluster(3)
    assert create(cluster, 1, new("t", assigned=[list(replicas)], config={"min.insync.replicas": "2"})) == [NONE]
    cluster.settle()
    return cluster


def card_fails(cluster: InCluster, board: int) -> None:
    found = cluster.boards[board]
    found.log(P).fail(StorageFault("the card", 0, "no answer"))
    found.facade.replication.log_moved(found.log(P))
    cluster.settle()


def shown(cluster: InCluster, board: int) -> Any:
    (partition,) = topic(cluster, board, "t").partitions
    request = DescribeTopicPartitionsRequest(topics=[TopicRequest(name="t")])
    (described,) = cluster.ask(board, DESCRIBE_TOPIC_PARTITIONS, request).topics[0].partitions
    assert partition.isr_nodes == described.isr_nodes
    assert partition.offline_replicas == described.offline_replicas
    return described


def test_a_replica_whose_log_is_offline_is_told_to_be_so_on_every_broker() -> None:
    cluster = a_topic(2, 1)
    card_fails(cluster, 2)
    for board in cluster.boards:
        found = shown(cluster, board)
        assert (found.leader_id, found.isr_nodes, found.offline_replicas) == (1, [1], [2])
        assert found.eligible_leader_replicas == [2]
    leader, journal = cluster.boards[1].facade.view, cluster.boards[1].site.store.ledger_log
    assert [few.in_sync for few in figures(leader, journal).under_replicated] == [1]
    assert "1 of 2 are in sync, and acks=all needs 2" in str(health(leader))


def test_a_partition_stays_offline_where_unclean_elections_are_off_until_a_log_is_back() -> None:
    cluster = a_topic(2, 1)
    card_fails(cluster, 1)
    card_fails(cluster, 2)
    cluster.settle()
    for board in cluster.boards:
        found = shown(cluster, board)
        assert (found.error_code, found.leader_id) == (ErrorCode.LEADER_NOT_AVAILABLE, -1)
        assert (found.isr_nodes, found.offline_replicas, found.eligible_leader_replicas) == ([], [2, 1], [2, 1])
    found = [figures(each.facade.view, each.site.store.ledger_log) for each in cluster.boards.values()]
    assert [one.offline for one in found if one.is_controller] == [1]


def test_another_broker_is_told_that_a_log_has_no_end_to_elect_by(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follower_fetch, "may_act_for_cluster", lambda *_: True)
    cluster = a_topic(2, 1)
    wanted = OffsetForLeaderPartition(partition=0, current_leader_epoch=-1, leader_epoch=NEWEST)
    request = OffsetForLeaderEpochRequest(replica_id=1, topics=[OffsetForLeaderTopic(topic="t", partitions=[wanted])])

    def told() -> tuple[int, int]:
        (found,) = cluster.ask(2, OFFSET_FOR_LEADER_EPOCH, request).topics[0].partitions
        return found.error_code, found.end_offset

    assert told() == (NONE, 0)
    card_fails(cluster, 2)
    assert told() == (ErrorCode.KAFKA_STORAGE_ERROR, -1)


def test_another_broker_is_told_where_an_epoch_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follower_fetch, "may_act_for_cluster", lambda *_: True)
    cluster = a_topic(2, 1)
    wanted = OffsetForLeaderPartition(partition=0, current_leader_epoch=-1, leader_epoch=0)
    request = OffsetForLeaderEpochRequest(replica_id=1, topics=[OffsetForLeaderTopic(topic="t", partitions=[wanted])])
    assert write(cluster, 2, b"a") == NONE
    cluster.boards[2].log(P).state.epochs.note(7, 1)
    (found,) = cluster.ask(2, OFFSET_FOR_LEADER_EPOCH, request).topics[0].partitions
    assert (found.leader_epoch, found.end_offset) == (0, 1)


def entered(cluster: InCluster) -> set[tuple[str, int, int]]:
    """Cause, first and last offset of what the ledger has of the topic."""
    found = set()
    for board in cluster.boards.values():
        for name in LEDGERS:
            topic = board.site.store.topics.get(name)
            for one in read_all(topic.partitions[0]) if topic is not None else ():
                losses = [json.loads(record.value or b"{}") for record in records_of(one)]
                found |= {(each["cause"], each["first_offset"], each["last_offset"]) for each in losses}
    return found


@pytest.mark.parametrize("fetched", [2, 1, 0])
def test_what_a_leader_could_not_sync_is_a_loss_only_where_no_in_sync_board_has_it(fetched: int) -> None:
    """The former leader asks the next one before its log is opened again."""
    cluster = InCluster(2)
    assert create(cluster, 1, new("t", assigned=[[1, 2]])) == [NONE]
    cluster.settle()
    leader, follower = cluster.boards[1], cluster.boards[2]
    leader.site.disk.fault = failing("datasync", "/t-0")
    with_records = lambda message: isinstance(message, ReplicaFetched) and bool(message.records)  # noqa: E731
    for number in range(2):
        if number == fetched:
            cluster.drop(with_records, 1 << 30)
        assert write(cluster, 1, b"%d" % number, acks=1) == NONE
        cluster.pass_for(200)
    cluster.pass_until(lambda: follower.facade.replicas.led_partition("t", 0) is not None)
    assert leader.log(P).fault is not None
    leader.site.disk.fault = None
    cluster.drop(with_records, 0)
    assert write(cluster, 2, b"next") == NONE
    cluster.pass_until(lambda: leader.log(P).fault is None, 200_000)
    cluster.settle()
    assert entered(cluster) == ({("sync_failed", fetched, 1)} if fetched < 2 else set())
    assert [board.log(P).log_end_offset for board in (leader, follower)] == [fetched + 1] * 2
