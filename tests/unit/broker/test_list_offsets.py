"""ListOffsets and OffsetForLeaderEpoch: ends, starts, times, epochs; never what a power cut could take back."""

from __future__ import annotations

from typing import Any

import pytest

from edge_broker.errors import ErrorCode, StorageFault
from edge_broker.protocol.api import DELETE_TOPICS, LIST_OFFSETS, METADATA, OFFSET_FOR_LEADER_EPOCH
from edge_broker.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from edge_broker.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from edge_broker.protocol.messages.metadata import MetadataRequest
from edge_broker.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from edge_broker.storage.metadata.loss_records import NoLedger
from edge_broker.storage.retention.segment_removal import delete_expired
from edge_broker.testing.clock import NOW_MS
from edge_broker.testing.site import Site
from tests.support.storage import append, batch, failing, fill, ledgered, sync, time_at

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED = -1, -2, -3, -4, -5


def request(timestamp: int, *places: tuple[str, int], epoch: int = -1) -> ListOffsetsRequest:
    return ListOffsetsRequest(
        replica_id=-1,
        topics=[
            ListOffsetsTopic(
                name=topic,
                partitions=[
                    ListOffsetsPartition(partition_index=partition, current_leader_epoch=epoch, timestamp=timestamp)
                ],
            )
            for topic, partition in places or (("t", 0),)
        ],
    )


def one(response: Any) -> Any:
    return response.topics[0].partitions[0]


def asked(site: Site, timestamp: int, **more: Any) -> Any:
    return one(site.client().ask(LIST_OFFSETS, request(timestamp, **more)))


def test_latest_waits_for_the_sync_of_what_was_written_before() -> None:
    site = Site({"log.flush.interval.ms": 86_400_000})
    (log,) = site.topic()
    append(log, batch(b"a", b"b"))
    client = site.client()
    client.send(LIST_OFFSETS, request(LATEST))
    assert client.answers() == []
    append(log, batch(b"c"))
    site.loop.run()
    site.disk_worker.work()
    assert client.answers() == []
    site.disk_worker.report()
    found = one(client.answer())
    assert (found.offset, found.timestamp, found.leader_epoch) == (log.high_watermark, -1, 0)
    assert found.offset >= 2


def test_latest_of_what_is_synced_is_answered_at_once() -> None:
    site = Site()
    fill(site.topic()[0], 3)
    client = site.client()
    client.send(LIST_OFFSETS, request(LATEST))
    assert one(client.answer()).offset == 3


def test_latest_on_a_disk_that_does_not_answer_says_the_synced_end() -> None:
    site = Site()
    (log,) = site.topic()
    fill(log, 1)
    append(log, batch())
    client = site.client()
    client.send(LIST_OFFSETS, request(LATEST))
    site.loop.advance(4999)
    assert client.answers() == []
    site.loop.advance(1)
    assert one(client.answer()).offset == 1


def test_latest_of_a_partition_that_fails_meanwhile() -> None:
    site = Site()
    (log,) = site.topic()
    append(log, batch())

    site.disk.fault = failing("datasync")
    assert asked(site, LATEST).error_code == ErrorCode.KAFKA_STORAGE_ERROR


def test_latest_of_a_topic_that_goes_meanwhile() -> None:
    site = Site()
    append(site.topic()[0], batch())
    client = site.client()
    client.send(LIST_OFFSETS, request(LATEST))
    site.client().ask(DELETE_TOPICS, DeleteTopicsRequest(topics=[DeleteTopicState(name="t")]))
    assert one(client.answer()).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("timestamp", [EARLIEST, EARLIEST_LOCAL])
def test_earliest_follows_the_log_start_and_waits_for_nothing(timestamp: int) -> None:
    site = Site()
    (log,) = site.topic(config={"segment.bytes": "4096", "retention.ms": "1000"})
    for _ in range(4):
        append(log, batch(bytes(2500)))
    sync(log)
    append(log, batch())
    delete_expired(log, time_at(NOW_MS + 5000))
    client = site.client()
    client.send(LIST_OFFSETS, request(timestamp))
    assert one(client.answer()).offset == log.log_start_offset > 0


def test_by_time_is_the_first_record_at_or_after_it_below_the_high_watermark() -> None:
    site = Site()
    (log,) = site.topic(config={"edge.durability": "interval"})  # nobody waits for a sync
    for at in (10, 30, 20):
        append(log, batch(b"x", timestamp_ms=NOW_MS + at))
    sync(log)
    append(log, batch(b"x", timestamp_ms=NOW_MS + 90))
    for timestamp, expected in ((0, (0, 10)), (10, (0, 10)), (11, (1, 30)), (30, (1, 30))):
        found = asked(site, NOW_MS + timestamp)
        assert (found.offset, found.timestamp - NOW_MS) == expected
    found = asked(site, NOW_MS + 31)  # 90 is written and not synced
    assert (found.error_code, found.offset, found.timestamp) == (0, -1, -1)


def test_by_time_runs_in_the_reader() -> None:
    site = Site()
    fill(site.topic()[0], 1)
    client = site.client()
    client.send(LIST_OFFSETS, request(0))
    assert client.answers() == []
    assert len(site.reader) == 1
    site.reader.step()
    assert one(client.answer()).offset == 0


def test_greatest_timestamp_is_of_what_is_synced() -> None:
    site = Site()
    (log,) = site.topic(config={"edge.durability": "interval"})  # nobody waits for a sync
    empty = asked(site, MAX_TIMESTAMP)
    assert (empty.offset, empty.timestamp) == (-1, -1)
    for at in (10, 30, 20):
        append(log, batch(b"x", timestamp_ms=NOW_MS + at))
    sync(log)
    append(log, batch(b"x", timestamp_ms=NOW_MS + 90))
    found = asked(site, MAX_TIMESTAMP)
    assert (found.offset, found.timestamp) == (1, NOW_MS + 30)


def test_no_tiers_no_other_specials() -> None:
    site = Site()
    fill(site.topic()[0], 1)
    tiered = asked(site, LATEST_TIERED)
    assert (tiered.error_code, tiered.offset) == (0, -1)
    assert asked(site, -6).error_code == ErrorCode.UNSUPPORTED_VERSION


def test_errors_of_their_own() -> None:
    site = Site()
    fill(site.topic()[0], 1)
    response = site.client().ask(LIST_OFFSETS, request(LATEST, ("t", 0), ("t", 1), ("gone", 0), ("t", -1)))
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert [topic.partitions[0].error_code for topic in response.topics] == [0, unknown, unknown, unknown]


def test_another_leader_epoch_is_fenced() -> None:
    site = Site().reopen("kill")
    site.topic()
    assert asked(site, EARLIEST, epoch=1).error_code == 0
    assert asked(site, EARLIEST, epoch=0).error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert asked(site, EARLIEST, epoch=2).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH


def test_each_partition_has_a_leader_epoch_of_its_own() -> None:
    site = Site()
    logs = site.topic(partitions=2)
    logs[1].state.leader_epoch = 7
    response = site.client().ask(METADATA, MetadataRequest(topics=None))
    assert [partition.leader_epoch for partition in response.topics[-1].partitions] == [0, 7]
    places = ("t", 0), ("t", 1)
    response = site.client().ask(LIST_OFFSETS, request(EARLIEST, *places, epoch=0))
    assert [topic.partitions[0].error_code for topic in response.topics] == [0, ErrorCode.FENCED_LEADER_EPOCH]
    response = site.client().ask(LIST_OFFSETS, request(LATEST, *places))
    assert [topic.partitions[0].leader_epoch for topic in response.topics] == [0, 7]
    assert epoch_end(site, 7) == (0, -1, -1)
    assert epoch_end(site, 7, partition=1) == (0, 7, 0)


def test_the_epoch_of_an_offset_is_the_one_it_was_written_in() -> None:
    site = Site()
    fill(site.topic()[0], 2)
    site = site.reopen("kill")
    (log,) = site.store.topics["t"].partitions
    records = batch(b"late", timestamp_ms=NOW_MS + 5)
    append(log, records)
    sync(log)
    for timestamp, epoch in ((EARLIEST, 0), (EARLIEST_LOCAL, 0), (LATEST, 1), (NOW_MS, 0), (NOW_MS + 5, 1)):
        assert asked(site, timestamp).leader_epoch == epoch


def test_an_offline_log_is_answered_at_once() -> None:
    site = Site()
    (log,) = site.topic()
    append(log, batch())
    log.fail(StorageFault("/data/t-0", 0, "broken"))
    client = site.client()
    client.send(LIST_OFFSETS, request(LATEST))
    assert one(client.answer()).error_code == ErrorCode.KAFKA_STORAGE_ERROR


def test_the_epoch_at_the_start_of_an_empty_log_is_the_leaders() -> None:
    site = Site()
    (log,) = site.topic()
    assert (asked(site, EARLIEST).offset, asked(site, EARLIEST).leader_epoch) == (0, log.leader_epoch)


def test_a_lookup_that_meets_damage_goes_on_behind_it() -> None:
    site = Site()
    for log in site.topic(partitions=2):
        fill(log, 1)

    site.disk.fault = failing("read", "/t-0/")
    response = site.client().ask(LIST_OFFSETS, request(0, ("t", 0), ("t", 1)))
    codes = [(topic.partitions[0].error_code, topic.partitions[0].offset) for topic in response.topics]
    assert codes == [(ErrorCode.NONE, -1), (0, 0)]
    assert ledgered(site.store) == [("damaged", "t", 0, 0, 0)]


def test_a_lookup_where_damage_cannot_be_written_down() -> None:
    site = Site()
    (log,) = site.topic()
    fill(log, 1)
    log.ledger = NoLedger()
    site.disk.flip("/data/t-0/00000000000000000000.log", 70)
    response = site.client().ask(LIST_OFFSETS, request(0, ("t", 0)))
    assert response.topics[0].partitions[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR


def epoch_end(site: Site, epoch: int, current: int = -1, partition: int = 0) -> tuple[int, int, int]:
    asked_for = OffsetForLeaderPartition(partition=partition, current_leader_epoch=current, leader_epoch=epoch)
    response = site.client().ask(
        OFFSET_FOR_LEADER_EPOCH,
        OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic="t", partitions=[asked_for])]),
    )
    found = response.topics[0].partitions[0]
    return found.error_code, found.leader_epoch, found.end_offset


def test_where_epochs_ended() -> None:
    site = Site()
    fill(site.topic()[0], 2)
    site = site.reopen("kill")
    (log,) = site.store.topics["t"].partitions
    fill(log, 3)
    append(log, batch())
    assert epoch_end(site, 0) == (0, 0, 2)
    assert epoch_end(site, 1) == (0, 1, 6)
    assert epoch_end(site, 2) == (0, -1, -1)
    assert epoch_end(site, 0, current=0)[0] == ErrorCode.FENCED_LEADER_EPOCH
    assert epoch_end(site, 0, partition=1)[0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_the_end_of_the_latest_epoch_waits_for_the_sync_of_what_was_written_before() -> None:
    site = Site()
    (log,) = site.topic()
    fill(log, 3)
    append(log, batch(b"a", b"b"))
    client = site.client()
    asked_for = OffsetForLeaderPartition(partition=0, leader_epoch=0)
    topics = [OffsetForLeaderTopic(topic="t", partitions=[asked_for])]
    client.send(OFFSET_FOR_LEADER_EPOCH, OffsetForLeaderEpochRequest(topics=topics))
    site.loop.run()
    assert client.answers() == []
    site.disk_worker.work()
    site.disk_worker.report()
    assert client.answer().topics[0].partitions[0].end_offset == 5


def test_the_end_of_the_latest_epoch_on_a_disk_that_does_not_answer_is_the_synced_one() -> None:
    site = Site()
    (log,) = site.topic()
    fill(log, 1)
    append(log, batch())
    client = site.client()
    asked_for = OffsetForLeaderPartition(partition=0, leader_epoch=0)
    topics = [OffsetForLeaderTopic(topic="t", partitions=[asked_for])]
    client.send(OFFSET_FOR_LEADER_EPOCH, OffsetForLeaderEpochRequest(topics=topics))
    site.loop.advance(5_000)
    assert client.answer().topics[0].partitions[0].end_offset == 1


@pytest.mark.parametrize(("timestamp", "expected"), [(MAX_TIMESTAMP, 1), (NOW_MS + 5, 1), (NOW_MS, 0)])
def test_a_time_waits_for_the_sync_of_what_was_written_before(timestamp: int, expected: int) -> None:
    site = Site({"log.flush.interval.ms": 86_400_000})
    (log,) = site.topic()
    append(log, batch(b"a"))
    append(log, batch(b"b", timestamp_ms=NOW_MS + 9))
    client = site.client()
    client.send(LIST_OFFSETS, request(timestamp))
    assert client.answers() == [], "an acked record would be passed over"
    site.run_until_idle()
    assert one(client.answers()[0]).offset == expected


def test_a_partition_that_is_named_twice_is_answered_once_and_refused() -> None:
    site = Site()
    fill(*site.topic(partitions=2)[:1], batches=1)
    answer = site.client().ask(LIST_OFFSETS, request(LATEST, ("t", 0), ("t", 1), ("t", 0)))
    found = [
        (topic.name, part.partition_index, part.error_code) for topic in answer.topics for part in topic.partitions
    ]
    assert found == [("t", 0, ErrorCode.INVALID_REQUEST), ("t", 1, ErrorCode.NONE)]


@pytest.mark.parametrize(
    ("timestamp", "version"), [(MAX_TIMESTAMP, 7), (EARLIEST_LOCAL, 8), (LATEST_TIERED, 9), (-6, 99)]
)
def test_a_timestamp_with_a_meaning_is_served_from_the_version_on_that_gave_it_one(
    timestamp: int, version: int
) -> None:
    site = Site()
    site.topic()
    for asked_version in range(1, 11):
        found = one(site.client().ask(LIST_OFFSETS, request(timestamp), asked_version))
        served = asked_version >= version
        assert found.error_code == (ErrorCode.NONE if served else ErrorCode.UNSUPPORTED_VERSION)
