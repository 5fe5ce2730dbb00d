"""CreatePartitions: more of them, on the disk before the answer, and whole or not at all after a crash."""

from __future__ import annotations

import errno
from functools import partial
from typing import Any

import pytest

from edge_broker.errors import ErrorCode
from edge_broker.protocol.api import CREATE_PARTITIONS, DELETE_TOPICS, FETCH, METADATA, PRODUCE
from edge_broker.protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from edge_broker.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from edge_broker.protocol.messages.metadata import MetadataRequest
from edge_broker.storage.log_store import LogStore
from edge_broker.storage.topic import Topic
from edge_broker.testing.disk import SimulatedDisk
from edge_broker.testing.site import Site, make_topic
from tests.support.half_way import HalfWay
from tests.support.storage import batch, cut_off, fill, open_store, read_all
from tests.unit.broker.test_fetch import BY_NAME, fetch
from tests.unit.broker.test_produce import code, part, produce

INVALID, UNKNOWN = ErrorCode.INVALID_PARTITIONS, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def more(name: str, count: int, *brokers: list[int] | None) -> CreatePartitionsTopic:
    assignments = [CreatePartitionsAssignment(broker_ids=ids) for ids in brokers if ids is not None]
    return CreatePartitionsTopic(name=name, count=count, assignments=assignments if brokers else None)


def ask(site: Site, *topics: CreatePartitionsTopic, validate_only: bool = False) -> list[int]:
    request = CreatePartitionsRequest(topics=list(topics), timeout_ms=1000, validate_only=validate_only)
    return [one.error_code for one in site.client().ask(CREATE_PARTITIONS, request).results]


def partitions_of(site: Site, name: str = "t") -> int:
    found: Any = site.client().ask(METADATA, MetadataRequest(topics=None))
    return next(len(topic.partitions) for topic in found.topics if topic.name == name)


@pytest.mark.parametrize("how", ["kill", "close"])
def test_a_topic_has_more_partitions_at_once_and_after_a_restart(how: str) -> None:
    site = Site()
    (log,) = site.topic()
    written = fill(log, 2)
    assert ask(site, more("t", 3)) == [0]
    assert partitions_of(site) == 3
    assert part(site.client().ask(PRODUCE, produce(("t", 2, batch(b"a"))))).base_offset == 0
    assert site.client().ask(FETCH, fetch(("t", 2, 0)), BY_NAME).responses[0].partitions[0].high_watermark == 1
    again = site.reopen(how)
    logs = again.store.topics["t"].partitions
    assert [log.log_end_offset for log in logs] == [2, 0, 1]
    assert read_all(logs[0]) == written
    assert again.store.topics["t"].topic_id == site.store.topics["t"].topic_id
    assert ask(again, more("t", 4)) == [0]


def test_the_answer_waits_until_they_are_on_the_disk() -> None:
    site = Site()
    site.topic()
    client = site.client()
    client.send(CREATE_PARTITIONS, CreatePartitionsRequest(topics=[more("t", 2)], timeout_ms=1000))
    assert client.answers() == []
    site.files.work()
    assert (client.answers(), len(site.store.topics["t"].partitions)) == ([], 1)
    site.files.report()
    assert client.answer().results[0].error_code == 0


def test_each_topic_has_an_answer_of_its_own() -> None:
    site = Site({"edge.topic.partitions.max": 10})
    site.topic("a", partitions=2)
    site.topic("b", partitions=2)
    twice = ErrorCode.INVALID_REQUEST
    assert ask(site, more("a", 1), more("b", 3), more("gone", 3)) == [INVALID, 0, UNKNOWN]
    assert ask(site, more("a", 2), more("b", 0)) == [INVALID, INVALID]
    assert ask(site, more("a", -1), more("b", 11)) == [INVALID, INVALID]
    assert ask(site, more("a", 3), more("a", 4), more("b", 4)) == [twice, 0]
    assert (partitions_of(site, "a"), partitions_of(site, "b")) == (2, 4)


def test_validation_alone_changes_nothing() -> None:
    site = Site()
    site.topic()
    assert ask(site, more("t", 3), validate_only=True) == [0]
    assert ask(site, more("t", 1), validate_only=True) == [INVALID]
    assert partitions_of(site) == 1


def test_assignments_name_this_broker_for_each_new_partition() -> None:
    site = Site()
    site.topic()
    wrong = ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert ask(site, more("t", 3, [1])) == [wrong]
    assert ask(site, more("t", 3, None)) == [wrong], "an empty list is not none"
    assert ask(site, more("t", 3, [1], [2])) == [wrong]
    assert ask(site, more("t", 3, [1], [1, 2])) == [wrong]
    assert ask(site, more("t", 3, [1], [1])) == [0]


@pytest.mark.parametrize("name", ["__edge_ledger", "__consumer_offsets"])
def test_the_brokers_own_topics_stay_as_they_are(name: str) -> None:
    site = Site()
    site.topic("__consumer_offsets")
    before = len(site.store.topics[name].partitions)
    assert ask(site, more(name, 9)) == [ErrorCode.INVALID_TOPIC_EXCEPTION]
    assert len(site.store.topics[name].partitions) == before


def test_all_topics_together_have_their_bound() -> None:
    site = Site({"edge.partitions.max": 6})
    known = sum(len(topic.partitions) for topic in site.store.topics.values())
    site.topic(partitions=2)
    room = 6 - known - 2
    assert ask(site, more("t", 2 + room + 1)) == [ErrorCode.POLICY_VIOLATION]
    assert ask(site, more("t", 2 + room)) == [0]
    assert site.broker.topics.coming == 0


def test_two_requests_for_one_topic_come_one_after_the_other() -> None:
    site = Site()
    site.topic()
    clients = site.client(), site.client()
    for client, count in zip(clients, (3, 5), strict=True):
        client.send(CREATE_PARTITIONS, CreatePartitionsRequest(topics=[more("t", count)], timeout_ms=1000))
    site.run_until_idle()
    assert [client.answer().results[0].error_code for client in clients] == [0, 0]
    assert partitions_of(site) == 5
    assert not site.broker.topics.changing


def test_what_another_request_changed_meanwhile_is_looked_at_again() -> None:
    site = Site({"edge.partitions.max": 20})
    for name in ("grown", "gone", "full", "last"):
        site.topic(name)
    counts = {"grown": 3, "gone": 3, "full": 9, "last": 3}
    request = CreatePartitionsRequest(topics=[more(*one) for one in counts.items()], timeout_ms=1000)
    slow = HalfWay(site, CREATE_PARTITIONS, request, steps=2 * len(counts))
    assert ask(site, more("grown", 12)) == [0]
    site.client().ask(DELETE_TOPICS, DeleteTopicsRequest(topics=[DeleteTopicState(name="gone")], timeout_ms=1000))
    codes = {one.name: one.error_code for one in slow.answer().results}
    assert codes == {"grown": INVALID, "gone": UNKNOWN, "full": ErrorCode.POLICY_VIOLATION, "last": 0}
    assert (site.broker.topics.coming, len(site.broker.topics.changing)) == (0, 0)
    again = site.reopen("kill")
    assert {name: len(again.store.topics[name].partitions) for name in ("grown", "full", "last")} == {
        "grown": 12,
        "full": 1,
        "last": 3,
    }


@pytest.mark.parametrize("others", [0, 1])
def test_a_deletion_waits_for_it(others: int) -> None:
    site = Site()
    site.topic()
    clients = [site.client() for _ in range(2 + others)]
    request = CreatePartitionsRequest(topics=[more("t", 3)], timeout_ms=1000)
    clients[0].send(CREATE_PARTITIONS, request)
    clients[1].send(DELETE_TOPICS, DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=1000))
    for client in clients[2:]:
        client.send(CREATE_PARTITIONS, request)
    site.run_until_idle()
    codes = [client.answer() for client in clients]
    assert codes[0].results[0].error_code == codes[1].responses[0].error_code == 0
    assert [answer.results[0].error_code for answer in codes[2:]] == [UNKNOWN] * others
    assert (list(site.store.topics), len(site.broker.topics.changing)) == (["__edge_ledger"], 0)
    assert site.dispatcher.failures == 0


@pytest.mark.parametrize(("kind", "path"), [("create", "/t-2/"), ("rename", "/topics/t.json"), ("datasync", "/t-1/")])
def test_what_cannot_be_written_leaves_the_topic_as_it_was(kind: str, path: str) -> None:
    site = Site()
    (log,) = site.topic()
    fill(log, 2)

    def broken(step: str, at: str, _size: int) -> None:
        if step == kind and path in at:
            raise OSError(errno.EIO, "broken", at)

    site.disk.fault = broken
    assert ask(site, more("t", 3)) == [ErrorCode.KAFKA_STORAGE_ERROR]
    assert (partitions_of(site), site.broker.topics.coming, len(site.broker.topics.changing)) == (1, 0, 0)
    site.disk.fault = None
    assert code(site.client().ask(PRODUCE, produce(("t", 0, batch(b"a"))))) == 0
    assert ask(site, more("t", 3)) == [0]
    assert partitions_of(site.reopen("kill")) == 3


def make_four(store: LogStore, topic: Topic) -> None:
    store.add_partitions(topic, store.topic_files.make_partitions(topic, 4))


@pytest.mark.parametrize("seed", range(3))
def test_cut_at_any_step_the_new_partitions_are_there_all_or_none(seed: int) -> None:
    for step in range(1, 120):
        disk = SimulatedDisk(1000 * seed + step)
        store = open_store(disk)
        topic = make_topic(store, partitions=2)
        written = fill(topic.partitions[0], 3)
        store.checkpoint()
        if not cut_off(disk, step, partial(make_four, store, topic)):
            return
        disk.crash()
        again = open_store(disk)
        logs = again.topics["t"].partitions
        assert len(logs) in (2, 4)
        assert [log.fault for log in logs] == [None] * len(logs), again.recovery_notes
        assert read_all(logs[0]) == written
        assert not disk.exists("/data/aside"), again.recovery_notes
        assert sorted(name for name in disk.names("/data") if name.startswith("t-")) == [
            f"t-{index}" for index in range(len(logs))
        ]
    pytest.fail("making partitions has more steps than were tried")
