"""Offsets of a cluster's partitions: told by who leads, and only as far as that one can know."""

from __future__ import annotations

from typing import Any

import pytest

from drupelet.ledger import LEDGER_TOPIC
from edge_broker.cluster.state.cluster_state import PartitionId
from edge_broker.errors import ErrorCode, StorageFault
from edge_broker.protocol.api import DELETE_RECORDS, LIST_OFFSETS, OFFSET_FOR_LEADER_EPOCH, PRODUCE
from edge_broker.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from edge_broker.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from edge_broker.storage.metadata.topic_record import JOURNAL_TOPIC
from edge_broker.testing.clock import NOW_MS
from tests.support.in_cluster import InCluster
from tests.support.storage import batch, read_all
from tests.unit.broker.test_cluster_topics import NONE, create, new
from tests.unit.broker.test_list_offsets import EARLIEST, LATEST, MAX_TIMESTAMP, one, request
from tests.unit.broker.test_produce import code, produce

NOT_LED = ErrorCode.NOT_LEADER_OR_FOLLOWER
PLACE = PartitionId("t", 0)


def offsets(cluster: InCluster, board: int, timestamp: int = LATEST, version: int = -1, epoch: int = -1) -> Any:
    return one(cluster.ask(board, LIST_OFFSETS, request(timestamp, epoch=epoch), version))


def write(cluster: InCluster, board: int, *values: bytes, acks: int = -1) -> ErrorCode:
    return code(cluster.ask(board, PRODUCE, produce(("t", 0, batch(*values)), acks=acks)))


@pytest.fixture
def two() -> InCluster:
    """Board 1 leads, board 2 follows, and both must have what acks=all is answered for."""
    cluster = InCluster(2)
    assert create(cluster, 1, new("t", assigned=[[1, 2]], config={"min.insync.replicas": "2"})) == [NONE]
    cluster.settle()
    return cluster


def test_the_leader_alone_says_where_a_log_begins_and_ends(two: InCluster) -> None:
    assert write(two, 1, b"a", b"b") == NONE
    for timestamp, expected in ((LATEST, 2), (EARLIEST, 0), (MAX_TIMESTAMP, 0), (NOW_MS - 1, 0)):
        found = offsets(two, 1, timestamp)
        assert (found.error_code, found.offset) == (NONE, expected)
        assert found.leader_epoch == 0
        assert offsets(two, 2, timestamp).error_code == NOT_LED
    assert write(two, 2, b"c") == NOT_LED


def test_where_more_replicas_are_to_be_in_sync_than_there_are_all_of_them_are_needed() -> None:
    """As in Kafka: with all of them in sync acks=all is taken, with one less it is refused."""
    cluster = InCluster(2)
    assert create(cluster, 1, new("t", assigned=[[1, 2]], config={"min.insync.replicas": "3"})) == [NONE]
    cluster.settle()
    assert write(cluster, 1, b"a") == NONE
    cluster.boards[2].stop()
    cluster.pass_until(lambda: 2 not in cluster.boards[1].facade.view.broker_ids)
    assert write(cluster, 1, b"b") == ErrorCode.NOT_ENOUGH_REPLICAS


def test_who_leads_the_ledger_tells_of_it(two: InCluster) -> None:
    for board, expected in ((1, (NONE, 0)), (2, (NOT_LED, -1))):
        found = one(two.ask(board, LIST_OFFSETS, request(LATEST, (LEDGER_TOPIC, 0))))
        assert (found.error_code, found.offset) == expected


def test_a_journal_is_nobodys_to_ask_for(two: InCluster) -> None:
    found = one(two.ask(1, LIST_OFFSETS, request(LATEST, (JOURNAL_TOPIC, 0))))
    assert found.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_any_replica_says_how_much_it_has_where_a_debugger_asks(two: InCluster) -> None:
    """Replica id -2 compares replicas: whoever leads, and whatever may be shown."""

    def has(board: int, topic: str = "t", *, number: int = 0) -> Any:
        asked = request(LATEST, (topic, number))
        asked.replica_id = -2
        return one(two.ask(board, LIST_OFFSETS, asked))

    assert write(two, 1, b"a", b"b") == NONE
    assert [(has(board).offset, has(board).leader_epoch) for board in (1, 2)] == [(2, 0), (2, 0)]
    two.boards[2].stop()
    assert write(two, 1, b"c", acks=1) == NONE
    two.pass_until(lambda: two.boards[1].log(PLACE).synced_end.offset == 3)
    assert has(1).offset == 3, "what is shown ends at 2"
    assert has(1, number=1).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert has(1, "none").error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (has(1, LEDGER_TOPIC).error_code, has(1, LEDGER_TOPIC).offset) == (NONE, 0)
    two.boards[1].log(PLACE).fail(StorageFault("t-0", 0, "gone"))
    assert has(1).error_code == ErrorCode.KAFKA_STORAGE_ERROR


def test_another_epoch_than_the_leaders_is_fenced(two: InCluster) -> None:
    assert offsets(two, 1, epoch=0).error_code == NONE
    assert offsets(two, 1, epoch=1).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    two.boards[1].stop()
    two.pass_until(lambda: two.boards[2].facade.replicas.led_partition("t", 0) is not None)
    assert offsets(two, 2, EARLIEST, epoch=0).error_code == ErrorCode.FENCED_LEADER_EPOCH


def test_nobody_waits_for_replicas_that_are_away(two: InCluster) -> None:
    assert write(two, 1, b"a") == NONE
    two.boards[2].stop()
    assert write(two, 1, b"b", acks=1) == NONE
    begin = two.loop.time()
    found = offsets(two, 1)
    assert (found.error_code, found.offset) == (NONE, 1)
    assert two.loop.time() - begin < 0.1
    assert two.boards[1].log(PLACE).synced_end.offset == 2


def test_a_leader_that_has_just_begun_says_no_end_that_goes_back(two: InCluster) -> None:
    """Its follower had everything, and had not heard yet that it may be shown."""
    for number, board in two.boards.items():
        assert (board.facade.replicas.led_partition("t", 0) is not None) == (number == 1)
    assert write(two, 1, b"a") == NONE
    two.boards[1].client.send(PRODUCE, produce(("t", 0, batch(b"b")), acks=1))
    follower = two.boards[2]
    while follower.log(PLACE).synced_end.offset < 2:
        two.loop.advance(0.25)
        two.work()
    two.boards[1].stop()
    assert follower.member.partitions[PLACE].high_watermark < 2
    two.pass_until(lambda: follower.facade.replicas.led_partition("t", 0) is not None)
    for timestamp in (LATEST, MAX_TIMESTAMP, NOW_MS - 1):
        assert offsets(two, 2, timestamp, 7).error_code == ErrorCode.OFFSET_NOT_AVAILABLE
    assert offsets(two, 2, LATEST, 4).error_code == ErrorCode.LEADER_NOT_AVAILABLE
    found = offsets(two, 2, EARLIEST)
    assert (found.error_code, found.offset) == (NONE, 0)


def test_the_ends_of_epochs_are_the_leaders_to_tell(two: InCluster) -> None:
    assert write(two, 1, b"a") == NONE
    two.settle()
    wanted = OffsetForLeaderPartition(partition=0, current_leader_epoch=-1, leader_epoch=0)
    asked = OffsetForLeaderEpochRequest(replica_id=-1, topics=[OffsetForLeaderTopic(topic="t", partitions=[wanted])])
    found = [two.ask(board, OFFSET_FOR_LEADER_EPOCH, asked).topics[0].partitions[0] for board in (1, 2)]
    assert [each.error_code for each in found] == [NONE, NOT_LED]
    assert (found[0].leader_epoch, found[0].end_offset) == (0, 1)


def test_records_are_deleted_by_the_leader(two: InCluster) -> None:
    assert write(two, 1, b"a") == NONE
    assert write(two, 1, b"b") == NONE
    wanted = DeleteRecordsPartition(partition_index=0, offset=1)
    asked = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name="t", partitions=[wanted])], timeout_ms=1000)
    assert two.ask(2, DELETE_RECORDS, asked).topics[0].partitions[0].error_code == NOT_LED
    found = two.ask(1, DELETE_RECORDS, asked).topics[0].partitions[0]
    assert (found.error_code, found.low_watermark) == (NONE, 1)
    assert offsets(two, 1, EARLIEST).offset == 1
    assert offsets(two, 1, LATEST).offset == 2


def test_who_was_away_while_records_amid_a_batch_were_deleted_catches_up() -> None:
    two = InCluster(2)
    assert create(two, 1, new("t", assigned=[[1, 2]])) == [NONE]
    two.settle()
    for value in (b"a", b"b"):
        assert write(two, 1, value) == NONE
    two.settle()
    two.boards[2].stop()
    two.settle()
    client = two.boards[1].client
    for values in ((b"c", b"d", b"e"), (b"f", b"g", b"h"), (b"i",)):
        client.send(PRODUCE, produce(("t", 0, batch(*values)), acks=1))
        two.settle()
    client.answers()
    assert offsets(two, 1, LATEST).offset == 9
    wanted = DeleteRecordsPartition(partition_index=0, offset=6)
    asked = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name="t", partitions=[wanted])], timeout_ms=1000)
    assert two.ask(1, DELETE_RECORDS, asked).topics[0].partitions[0].low_watermark == 6
    two.restart(2)
    two.pass_until(lambda: PLACE in two.boards[2].replicas and two.boards[2].log(PLACE).synced_end.offset == 9)
    two.settle()
    logs = [two.boards[number].log(PLACE) for number in (1, 2)]
    assert [(log.log_start_offset, log.log_end_offset, log.high_watermark) for log in logs] == [(6, 9, 9)] * 2
    assert read_all(logs[0]) == read_all(logs[1])
    two.boards[1].stop()
    two.pass_until(lambda: two.boards[2].facade.replicas.led_partition("t", 0) is not None)
    two.settle()
    assert (offsets(two, 2, EARLIEST).offset, offsets(two, 2, LATEST).offset) == (6, 9)
