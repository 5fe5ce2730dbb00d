"""DeleteRecords: what may be deleted, by whom it is seen, and when it is answered."""

from __future__ import annotations

from typing import Any

import pytest

from edge_broker.errors import ErrorCode
from edge_broker.protocol.api import (
    CREATE_TOPICS,
    DELETE_RECORDS,
    DELETE_TOPICS,
    FETCH,
    LIST_OFFSETS,
    OFFSET_COMMIT,
    PRODUCE,
)
from edge_broker.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from edge_broker.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from edge_broker.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from edge_broker.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from edge_broker.testing.site import Site
from tests.support.half_way import HalfWay
from tests.support.storage import append, batch, failing, fill, ledgered
from tests.unit.broker.test_fetch import BY_NAME, fetch
from tests.unit.broker.test_groups_and_ids import commit, find
from tests.unit.broker.test_produce import code, produce

RANGE, UNKNOWN = ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def request(*places: tuple[str, int, int]) -> DeleteRecordsRequest:
    topics = [
        DeleteRecordsTopic(name=name, partitions=[DeleteRecordsPartition(partition_index=index, offset=offset)])
        for name, index, offset in places
    ]
    return DeleteRecordsRequest(topics=topics, timeout_ms=1000)


def results(answer: Any) -> list[tuple[int, int]]:
    return [(one.error_code, one.low_watermark) for topic in answer.topics for one in topic.partitions]


def ask(site: Site, *places: tuple[str, int, int]) -> list[tuple[int, int]]:
    return results(site.client().ask(DELETE_RECORDS, request(*places)))


def earliest(site: Site) -> int:
    asked = ListOffsetsTopic(name="t", partitions=[ListOffsetsPartition(partition_index=0, timestamp=-2)])
    answer = site.client().ask(LIST_OFFSETS, ListOffsetsRequest(replica_id=-1, topics=[asked]))
    return int(answer.topics[0].partitions[0].offset)


@pytest.mark.parametrize("how", ["kill", "cut", "stop"])
def test_a_partition_begins_later_for_everybody_and_after_a_restart(how: str) -> None:
    site = Site()
    (log,) = site.topic()
    fill(log, 5)
    assert ask(site, ("t", 0, 3)) == [(0, 3)]
    assert earliest(site) == 3
    found = site.client().ask(FETCH, fetch(("t", 0, 2)), BY_NAME).responses[0].partitions[0]
    assert found.error_code == RANGE
    found = site.client().ask(FETCH, fetch(("t", 0, 3)), BY_NAME).responses[0].partitions[0]
    assert (found.error_code, found.log_start_offset, found.high_watermark) == (0, 3, 5)
    again = site.reopen(how)
    assert earliest(again) == 3
    assert code(again.client().ask(PRODUCE, produce(("t", 0, batch(b"a"))))) == 0
    assert again.store.topics["t"].partitions[0].log_end_offset == 6


def test_each_partition_has_an_answer_of_its_own() -> None:
    site = Site()
    for name in ("t", "u"):
        fill(site.topic(name)[0], 5)
    site.topic("compact", config={"cleanup.policy": "compact"})
    site.topic("both", config={"cleanup.policy": "compact,delete"})
    site.topic("__consumer_offsets")
    assert ask(
        site,
        ("t", 0, 6),
        ("u", 0, -1),
        ("t", 7, 0),
        ("gone", 0, 0),
        ("compact", 0, 0),
        ("both", 0, 0),
        ("__consumer_offsets", 0, 0),
        ("__edge_ledger", 0, 0),
        ("u", 0, 2),
    ) == [
        (RANGE, -1),
        (0, 2),
        (UNKNOWN, -1),
        (UNKNOWN, -1),
        (ErrorCode.POLICY_VIOLATION, -1),
        (0, 0),
        (ErrorCode.INVALID_TOPIC_EXCEPTION, -1),
        (ErrorCode.INVALID_TOPIC_EXCEPTION, -1),
        (0, 2),
    ], "of a partition that is named twice the last offset counts"
    assert ask(site, ("t", 0, -2)) == [(RANGE, -1)]
    assert ask(site, ("t", 0, 0)) == [(0, 0)]
    assert not site.broker.topics.changing


def test_the_answer_waits_until_the_new_start_is_on_the_disk() -> None:
    site = Site()
    fill(site.topic()[0], 5)
    client = site.client()
    client.send(DELETE_RECORDS, request(("t", 0, 3)))
    assert client.answers() == []
    site.files.step()
    assert results(client.answer()) == [(0, 3)]
    assert earliest(site.reopen("cut")) == 3


def test_a_reader_at_the_end_goes_on() -> None:
    site = Site()
    fill(site.topic()[0], 5)
    reader = site.client()
    reader.send(FETCH, fetch(("t", 0, 5), max_wait_ms=60_000), BY_NAME)
    assert ask(site, ("t", 0, -1)) == [(0, 5)]
    assert code(site.client().ask(PRODUCE, produce(("t", 0, batch(b"a"))))) == 0
    found = reader.answer().responses[0].partitions[0]
    assert (found.error_code, found.log_start_offset, found.high_watermark) == (0, 5, 6)


def test_what_a_required_group_has_not_passed_is_in_the_ledger() -> None:
    site = Site()
    (log,) = site.topic(config={"edge.required.groups": "g"})
    fill(log, 5)
    find(site.client(), "g")
    site.client().ask(OFFSET_COMMIT, commit(2))
    assert ask(site, ("t", 0, 2)) == [(0, 2)]
    assert ledgered(site.store) == []
    assert ask(site, ("t", 0, 4)) == [(0, 4)]
    assert ledgered(site.store) == [("deleted_by_request", "t", 0, 2, 3)]


def test_a_topic_that_was_made_anew_meanwhile_keeps_its_records() -> None:
    site = Site()
    fill(site.topic()[0], 5)
    slow = HalfWay(site, DELETE_RECORDS, request(("t", 0, 5), ("t", 1, 0)), steps=2)
    site.client().ask(DELETE_TOPICS, DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=1000))
    new = CreatableTopic(name="t", num_partitions=1, replication_factor=1)
    site.client().ask(CREATE_TOPICS, CreateTopicsRequest(topics=[new]))
    fill(site.store.topics["t"].partitions[0], 3)
    assert results(slow.answer())[0] == (RANGE, -1)
    assert earliest(site) == 0


def test_a_deletion_and_a_making_wait_for_it() -> None:
    site = Site()
    fill(site.topic()[0], 5)
    client, other = site.client(), site.client()
    client.send(DELETE_RECORDS, request(("t", 0, 5)))
    other.send(DELETE_TOPICS, DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=1000))
    site.run_until_idle()
    assert results(client.answer()) == [(0, 5)]
    assert other.answer().responses[0].error_code == 0
    assert not site.broker.topics.changing


def test_what_cannot_be_written_deletes_nothing() -> None:
    site = Site()
    fill(site.topic()[0], 5)

    site.disk.fault = failing("rename", "removed-offsets")
    assert ask(site, ("t", 0, 3)) == [(ErrorCode.KAFKA_STORAGE_ERROR, -1)]
    site.disk.fault = None
    assert earliest(site) == 0
    assert ask(site, ("t", 0, 3)) == [(0, 3)]


def test_a_partition_that_is_offline_says_so() -> None:
    site = Site()
    for log in site.topic(partitions=2):
        fill(log, 5)

    site.disk.fault = failing("datasync", "/t-0/")
    assert code(site.client().ask(PRODUCE, produce(("t", 0, batch(b"a"))))) != 0
    assert ask(site, ("t", 0, 3), ("t", 1, 3)) == [(ErrorCode.KAFKA_STORAGE_ERROR, -1), (0, 3)]


@pytest.mark.parametrize(("offset", "start"), [(4, 4), (6, 6), (-1, 6)])
def test_what_was_written_before_is_synced_before_it_is_deleted(offset: int, start: int) -> None:
    """Records of acks=1, deleted a moment later, as `kafka-delete-records` does."""
    site = Site()
    (log,) = site.topic()
    fill(log, 2)
    append(log, batch(b"a", b"b", b"c", b"d"))
    client = site.client()
    client.send(DELETE_RECORDS, request(("t", 0, offset)))
    append(log, batch(b"after the request"))
    site.loop.run()
    assert client.answers() == []
    site.run_until_idle()
    assert results(client.answer()) == [(0, start)]
    assert site.reopen("cut").store.topics["t"].partitions[0].log_start_offset == start


def test_an_offset_above_the_unsynced_end_is_refused_at_once() -> None:
    site = Site()
    (log,) = site.topic()
    append(log, batch(b"a", b"b"))
    client = site.client()
    client.send(DELETE_RECORDS, request(("t", 0, 3)))
    assert results(client.answer()) == [(RANGE, -1)]


def test_a_disk_that_does_not_sync_deletes_nothing_and_says_so() -> None:
    """The offsets that are synced already, of the same topic's other partition, go."""
    site = Site()
    first, second = site.topic(partitions=2)
    fill(first, 2)
    fill(second, 2)
    append(first, batch(b"a"))
    client = site.client()
    client.send(DELETE_RECORDS, request(("t", 0, -1), ("t", 1, 1)))
    site.loop.advance(5_000)
    site.files.step()
    assert results(client.answer()) == [(ErrorCode.REQUEST_TIMED_OUT, -1), (0, 1)]
    assert first.log_start_offset == 0


def test_a_topic_that_is_made_again_while_the_sync_is_waited_for_keeps_its_records() -> None:
    site = Site()
    (log,) = site.topic()
    append(log, batch(b"a"))
    client = site.client()
    client.send(DELETE_RECORDS, request(("t", 0, -1)))
    site.loop.run()
    site.client().ask(DELETE_TOPICS, DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=1000))
    new = CreatableTopic(name="t", num_partitions=1, replication_factor=1)
    site.client().ask(CREATE_TOPICS, CreateTopicsRequest(topics=[new]))
    fill(site.store.topics["t"].partitions[0], 3)
    site.run_until_idle()
    assert results(client.answer())[0][0] in (UNKNOWN, RANGE)
    assert earliest(site) == 0
