"""A full disk as clients see it: who is refused, who is not, and that it ends by itself."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from drupelet.ledger import LEDGER_TOPIC
from edge_broker.app import delete_expired
from edge_broker.broker.health import health_problem
from edge_broker.errors import ErrorCode, StorageFault
from edge_broker.network.background.metrics import metrics_text
from edge_broker.protocol.api import (
    CREATE_TOPICS,
    DELETE_TOPICS,
    DESCRIBE_LOG_DIRS,
    FETCH,
    METADATA,
    OFFSET_COMMIT,
    PRODUCE,
)
from edge_broker.protocol.messages.create_topics import CreateTopicsRequest
from edge_broker.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from edge_broker.protocol.messages.describe_log_dirs import BrokerProblem, DescribeLogDirsRequest
from edge_broker.storage.files.filesystem import Space
from edge_broker.testing.disk import SimulatedDisk
from edge_broker.testing.site import Site
from tests.support.storage import batch, failing, fill
from tests.unit.broker.test_fetch import batches, fetch, parts
from tests.unit.broker.test_groups_and_ids import commit, commit_codes, find
from tests.unit.broker.test_ledger_access import ledger_batch
from tests.unit.broker.test_produce import code, produce
from tests.unit.broker.test_topics import metadata, new

TOTAL, LOW, MIN = 1 << 30, 50_000, 20_000
SETTINGS = {"edge.disk.free.low.bytes": LOW, "edge.disk.free.min.bytes": MIN}


def look_at(site: Site, free: int) -> None:
    """Let the broker find so many bytes free."""
    site.disk.room = Space(TOTAL, free)
    site.dispatcher.start(site.broker.space.check)
    site.run_until_idle()


def site_with(config: dict[str, str] | None = None) -> Site:
    site = Site(SETTINGS)
    site.topic(config={"segment.bytes": "4096", "cleanup.policy": "delete", **(config or {})})
    return site


def test_writes_are_refused_below_the_mark_and_taken_again_above_it() -> None:
    site = site_with()
    client = site.client()
    look_at(site, MIN - 1)
    assert code(client.ask(PRODUCE, produce(("t", 0, batch())))) is ErrorCode.KAFKA_STORAGE_ERROR
    assert "the disk is full" in (health_problem(site.broker) or "")
    look_at(site, LOW - 1)
    assert code(client.ask(PRODUCE, produce(("t", 0, batch())))) is ErrorCode.NONE
    assert health_problem(site.broker) is None


def test_reading_committing_and_the_ledger_go_on() -> None:
    site = site_with({"cleanup.policy": "compact"})
    client = site.client()
    fill(site.store.topics["t"].partitions[0], 1)
    look_at(site, MIN - 1)
    find(client, "g")
    assert commit_codes(client.ask(OFFSET_COMMIT, commit(1))) == [0]
    assert code(client.ask(PRODUCE, produce((LEDGER_TOPIC, 0, ledger_batch())))) is ErrorCode.NONE
    assert len(batches(parts(client.ask(FETCH, fetch(("t", 0, 0)), 12))[0])) == 1


def test_no_topic_is_made_meanwhile() -> None:
    site = site_with()
    look_at(site, MIN - 1)
    (made,) = site.client().ask(CREATE_TOPICS, CreateTopicsRequest(topics=[new("x")])).topics
    assert made.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    (asked,) = site.client().ask(METADATA, metadata("y")).topics
    assert asked.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    look_at(site, TOTAL)
    (made,) = site.client().ask(CREATE_TOPICS, CreateTopicsRequest(topics=[new("x")])).topics
    assert made.error_code == 0


def test_what_lies_below_the_mark_is_kept_between_two_looks() -> None:
    site = site_with({"max.message.bytes": "100000"})
    look_at(site, MIN + 30_000)
    site.disk.room = Space(TOTAL, 0)
    client = site.client()
    assert code(client.ask(PRODUCE, produce(("t", 0, batch(bytes(29_000)))))) is ErrorCode.NONE
    assert code(client.ask(PRODUCE, produce(("t", 0, batch(bytes(5_000)))))) is ErrorCode.NONE
    client.send(PRODUCE, produce(("t", 0, batch())))
    site.run_until_idle()
    assert code(client.answer()) is ErrorCode.KAFKA_STORAGE_ERROR
    assert site.broker.space.refusing  # the look came without a second having passed


def test_a_write_without_space_is_refused_and_the_disk_is_looked_at_at_once() -> None:
    site = site_with()
    site.disk.fault = failing("write", "/t-0/", errno.ENOSPC)
    site.disk.room = Space(TOTAL, 0)
    assert code(site.client().ask(PRODUCE, produce(("t", 0, batch())))) is ErrorCode.KAFKA_STORAGE_ERROR
    assert site.broker.space.refusing
    site.disk.fault = None
    look_at(site, TOTAL)
    assert code(site.client().ask(PRODUCE, produce(("t", 0, batch())))) is ErrorCode.NONE
    assert all(log.fault is None for log in site.store.topics["t"].partitions)


def test_an_active_segment_that_has_to_go_is_closed_first() -> None:
    site = site_with()
    (log,) = site.store.topics["t"].partitions
    fill(log, 3, 100)
    look_at(site, LOW - 1)
    assert log.log_start_offset == 3
    assert [entry[:3] for entry in log.removed] == [("evicted", 0, 3)]


def test_without_space_to_close_a_segment_the_disk_is_not_looked_at_without_end() -> None:
    site = site_with()
    (log,) = site.store.topics["t"].partitions
    fill(log, 3, 100)
    site.disk.fault = failing("create", "/t-0/", errno.ENOSPC)
    look_at(site, MIN - 1)
    assert (log.log_start_offset, log.fault, site.broker.space.looking) == (0, None, False)
    site.disk.fault = None
    look_at(site, LOW - 1)
    assert log.log_start_offset == 3


def test_passed_is_what_every_named_group_has_committed() -> None:
    site = Site(SETTINGS)
    site.topic("t", config={"edge.required.groups": "g, h"})
    site.topic("free")
    assert site.broker.space.passed_offsets() == {("t", 0): 0}
    find(site.client(), "g")
    site.client().ask(OFFSET_COMMIT, commit(7, group="g"))
    assert site.broker.space.passed_offsets() == {("t", 0): 0}
    site.client().ask(OFFSET_COMMIT, commit(5, group="h"))
    assert site.broker.space.passed_offsets() == {("t", 0): 5}


def test_groups_of_the_broker_hold_for_topics_that_name_none() -> None:
    site = Site({**SETTINGS, "edge.required.groups": "mirror"})
    site.topic("t")
    site.topic("own", config={"edge.required.groups": ""})
    site.topic("__consumer_offsets", config={"cleanup.policy": "compact"})
    assert {topic for topic, _ in site.broker.space.passed_offsets()} >= {"t"}
    assert ("own", 0) not in site.broker.space.passed_offsets()
    assert (LEDGER_TOPIC, 0) not in site.broker.space.passed_offsets()


@pytest.mark.parametrize(("groups", "cause"), [("", "retention"), ("g", "expired_unpassed")])
def test_retention_writes_down_what_was_not_passed(groups: str, cause: str) -> None:
    site = Site({"log.retention.ms": 1000})
    (log,) = site.topic(config={"segment.bytes": "4096", "edge.required.groups": groups})
    fill(log, 3, 2500)
    site.loop.advance(10_000)
    delete_expired(site.broker, site.broker.space.passed_offsets())
    assert [entry.cause for entry in log.removed] == [cause]
    assert site.store.topics[LEDGER_TOPIC].partitions[0].log_end_offset == (2 if groups else 0)


def test_a_topic_over_its_budget_is_refused_alone() -> None:
    site = site_with({"edge.budget.bytes": "0", "cleanup.policy": "compact"})
    site.topic("other")
    client = site.client()
    look_at(site, TOTAL)
    keyed: Any = batch()
    fill(site.store.topics["t"].partitions[0], 1)
    look_at(site, TOTAL)
    answer = client.ask(PRODUCE, produce(("t", 0, keyed), ("other", 0, batch())))
    assert [code(answer, 0), code(answer, 1)] == [ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NONE]


def test_metrics_say_what_the_look_found() -> None:
    site = site_with()
    fill(site.store.topics["t"].partitions[0], 3, 100)
    look_at(site, LOW - 1)
    text = metrics_text(site.broker, site.dispatcher, site.server, 0)
    for line in (
        f"edge_broker_disk_free_bytes {LOW - 1}",
        f'edge_broker_disk_mark_bytes{{mark="low"}} {LOW}',
        'edge_broker_lost_records_total{topic="t"} 3',
        "edge_broker_disk_ladder_rung 0",
    ):
        assert line in text, line


def test_the_ledger_cannot_be_deleted_or_made() -> None:
    site = Site()
    (gone,) = (
        site.client().ask(DELETE_TOPICS, DeleteTopicsRequest(topics=[DeleteTopicState(name=LEDGER_TOPIC)])).responses
    )
    (made,) = site.client().ask(CREATE_TOPICS, CreateTopicsRequest(topics=[new(LEDGER_TOPIC)])).topics
    assert gone.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert made.error_code == ErrorCode.TOPIC_ALREADY_EXISTS


def test_segments_are_small_on_a_small_disk_whatever_the_topic_says() -> None:
    disk = SimulatedDisk(1)
    disk.room = Space(64 << 20, 60 << 20)
    site = Site(disk=disk)
    assert site.topic()[0].settings.segment_bytes == 2 << 20
    assert site.topic("tight", config={"edge.budget.bytes": str(4 << 20)})[0].settings.segment_bytes == 512 << 10
    assert site.topic("own", config={"segment.bytes": "4096"})[0].settings.segment_bytes == 4096
    assert site.reopen("stop").store.topics["t"].partitions[0].settings.segment_bytes == 2 << 20


@pytest.mark.parametrize(
    ("key", "value"), [("edge.priority", "10"), ("edge.priority", "-1"), ("edge.budget.bytes", "-2")]
)
def test_keys_of_eviction_have_bounds(key: str, value: str) -> None:
    (made,) = Site().client().ask(CREATE_TOPICS, CreateTopicsRequest(topics=[new("x", config={key: value})])).topics
    assert made.error_code == ErrorCode.INVALID_CONFIG


def problems(site: Site, version: int = 4) -> list[BrokerProblem]:
    """What the broker says of itself to `edge-broker cluster status`."""
    return list(site.client().ask(DESCRIBE_LOG_DIRS, DescribeLogDirsRequest(topics=[]), version).problems)


def test_a_full_disk_is_told_with_how_long_it_has_been_full() -> None:
    site = site_with()
    assert problems(site) == []
    look_at(site, MIN - 1)
    site.loop.advance(90_000)
    look_at(site, MIN - 1)
    (said,) = problems(site)
    assert (said.kind, said.text) == ("disk", health_problem(site.broker))
    assert 90_000 <= said.for_ms < 95_000, "since it was full first"
    look_at(site, LOW * 2)
    assert problems(site) == []
    look_at(site, MIN - 1)
    assert problems(site)[0].for_ms < 5_000, "another time"


def test_every_problem_is_told_and_not_the_first_alone() -> None:
    site = site_with()
    look_at(site, MIN - 1)
    site.store.topics["t"].partitions[0].fail(StorageFault("t-0/1.log", 7, "input/output error"))
    site.broker.notes["strays"] = ["topic x is on this disk and not in the cluster"]
    site.broker.notes["zookeeper"] = ["ZooKeeper server a:1 does not answer: connection refused"]
    site.broker.notes["certificates"] = ["a certificate ends soon"]  # of one board, and no trouble of the cluster
    assert [said.kind for said in problems(site)] == ["broker", "disk", "stray", "zookeeper"]
    assert problems(site, 1) == [], "there are no tags"


def test_an_answer_stays_small_whatever_is_wrong() -> None:
    site = site_with()
    site.broker.notes["strays"] = [f"topic {number} is on this disk" for number in range(5000)]
    said = problems(site)
    assert len(said) == 101
    assert said[-1].text == "and 4900 problems more, which /health names"
