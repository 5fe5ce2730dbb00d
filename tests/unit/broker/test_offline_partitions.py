"""A partition whose sync or write failed: its clients are told at once, and it comes back by itself."""

from __future__ import annotations

import errno
import json
from typing import Any

import pytest

from drupelet.ledger import LEDGER_TOPIC
from edge_broker.errors import ErrorCode
from edge_broker.network.background.metrics import metrics_text
from edge_broker.protocol.api import DELETE_TOPICS, FETCH, METADATA, OFFSET_FOR_LEADER_EPOCH, PRODUCE
from edge_broker.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from edge_broker.protocol.messages.metadata import MetadataRequest
from edge_broker.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from edge_broker.protocol.record_batch import records_of
from edge_broker.testing.site import Site
from tests.support.storage import batch, read_all
from tests.unit.broker.test_fetch import BY_NAME, fetch
from tests.unit.broker.test_produce import code, part, produce


def refuse(site: Site, kind: str, path_part: str = "/t-0/") -> None:
    """Let the disk refuse one kind of step from now on."""

    def fault(step: str, path: str, _size: int) -> None:
        if step == kind and path_part in path:
            raise OSError(errno.EIO, "broken", path)

    site.disk.fault = fault


def causes(site: Site) -> list[Any]:
    found = read_all(site.store.topics[LEDGER_TOPIC].partitions[0])
    return [json.loads(bytes(record.value or b""))["cause"] for one in found for record in records_of(memoryview(one))]


@pytest.mark.parametrize("kind", ["datasync", "write"])
def test_waiters_are_told_at_once_and_the_next_write_is_safe(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    site = Site()
    (log,) = site.topic()
    client = site.client()
    assert code(client.ask(PRODUCE, produce(("t", 0, batch(b"kept"))))) is ErrorCode.NONE
    refuse(site, kind)
    client.send(PRODUCE, produce(("t", 0, batch(b"refused"))))
    if kind == "datasync":
        site.disk_worker.step()
    assert code(client.answer()) is ErrorCode.KAFKA_STORAGE_ERROR
    assert log.fault is not None
    site.disk.fault = None
    site.run_until_idle()
    assert log.fault is None
    answer = client.ask(PRODUCE, produce(("t", 0, batch(b"again"))))
    assert (code(answer), part(answer).base_offset) == (ErrorCode.NONE, 1)
    found = [record.value for one in read_all(log) for record in records_of(memoryview(one))]
    assert list(map(bytes, found)) == [b"kept", b"again"]
    assert causes(site) == (["sync_failed"] if kind == "datasync" else [])
    assert site.dispatcher.offline_partitions.count == 1
    assert "edge_broker_partition_revivals_total 1\n" in metrics_text(site.broker, site.dispatcher, site.server, 0)
    told = capsys.readouterr().err
    assert told.count("partition_offline") == told.count("partition_online") == 1


@pytest.mark.parametrize("kind", ["datasync", "write"])
@pytest.mark.parametrize("slow", [False, True])
def test_an_offline_partition_holds_nothing_of_those_who_ask(kind: str, slow: bool) -> None:
    """Each raise of one exception adds its frames to it, and with them the records that a client sent."""
    site = Site()
    (log,) = site.topic()
    site.broker.throttle.slow = slow
    refuse(site, kind)
    for _ in range(3):
        client = site.client()
        assert code(client.ask(PRODUCE, produce(("t", 0, batch())))) is ErrorCode.KAFKA_STORAGE_ERROR
        client.ask(FETCH, fetch(("t", 0, 0)), BY_NAME)
        assert log.fault is not None
        assert (log.fault.__traceback__, log.fault.__cause__, log.fault.__context__) == (None, None, None)


def test_clients_learn_the_new_epoch_and_where_the_old_one_ended() -> None:
    site = Site()
    site.topic(partitions=2)
    client = site.client()
    client.ask(PRODUCE, produce(("t", 0, batch(b"kept"))))
    refuse(site, "datasync")
    client.ask(PRODUCE, produce(("t", 0, batch(b"lost"))))
    site.disk.fault = None
    site.loop.advance(1000)
    site.run_until_idle()
    topics = client.ask(METADATA, MetadataRequest(topics=None)).topics
    (partitions,) = (topic.partitions for topic in topics if topic.name == "t")
    assert [partition.leader_epoch for partition in partitions] == [1, 0]
    fenced = client.ask(FETCH, fetch(("t", 0, 1), current_leader_epoch=0), BY_NAME)
    assert fenced.responses[0].partitions[0].error_code == ErrorCode.FENCED_LEADER_EPOCH
    asked = OffsetForLeaderPartition(partition=0, current_leader_epoch=1, leader_epoch=0)
    topic = OffsetForLeaderTopic(topic="t", partitions=[asked])
    found = client.ask(OFFSET_FOR_LEADER_EPOCH, OffsetForLeaderEpochRequest(topics=[topic])).topics[0].partitions[0]
    assert (found.error_code, found.leader_epoch, found.end_offset) == (0, 0, 1)


def test_while_the_disk_refuses_it_is_asked_ever_less_often(capsys: pytest.CaptureFixture[str]) -> None:
    site = Site()
    (log,) = site.topic()
    client = site.client()
    refuse(site, "datasync")
    assert code(client.ask(PRODUCE, produce(("t", 0, batch())))) is ErrorCode.KAFKA_STORAGE_ERROR
    for pause_ms in (1000, 2000, 4000, 8000, 16_000, 32_000, 60_000, 60_000):
        site.loop.advance(pause_ms - 1)
        assert not any(site.workers.values())
        assert code(client.ask(PRODUCE, produce(("t", 0, batch())))) is ErrorCode.KAFKA_STORAGE_ERROR
        site.loop.advance(1)
        assert any(site.workers.values())
        site.run_until_idle()
    site.disk.fault = None
    site.loop.advance(60_000)
    site.run_until_idle()
    assert log.fault is None
    assert capsys.readouterr().err.count("partition_offline") == 1
    assert site.dispatcher.offline_partitions.tries
    assert code(client.ask(PRODUCE, produce(("t", 0, batch())))) is ErrorCode.NONE
    assert not site.dispatcher.offline_partitions.tries


def test_one_that_fails_again_before_it_was_synced_waits() -> None:
    site = Site()
    (log,) = site.topic()
    client = site.client()
    for pause_ms in (0, 1000, 2000):
        refuse(site, "datasync")
        client.send(PRODUCE, produce(("t", 0, batch())))
        site.disk_worker.step()
        assert code(client.answer()) is ErrorCode.KAFKA_STORAGE_ERROR
        site.disk.fault = None
        site.loop.advance(max(pause_ms - 1, 0))
        site.run_until_idle()
        assert (log.fault is None) == (pause_ms == 0)
        site.loop.advance(1)
        site.run_until_idle()
        assert log.fault is None


def test_the_neighbours_go_on_meanwhile() -> None:
    site = Site()
    logs = site.topic(partitions=2)
    client = site.client()
    refuse(site, "datasync")
    client.send(PRODUCE, produce(("t", 0, batch()), ("t", 1, batch())))
    site.run_until_idle()
    answer = client.answer()
    codes = {one.index: one.error_code for topic in answer.responses for one in topic.partition_responses}
    assert codes == {0: ErrorCode.KAFKA_STORAGE_ERROR, 1: ErrorCode.NONE}
    assert [log.fault is None for log in logs] == [False, True]


def test_a_topic_that_is_deleted_while_it_comes_back_stays_deleted() -> None:
    site = Site()
    site.topic()
    client = site.client()
    refuse(site, "datasync")
    client.send(PRODUCE, produce(("t", 0, batch())))
    site.disk_worker.step()
    site.disk.fault = None
    for name in ("disk", "writer", "files"):
        site.workers[name].work()
        if name != "files":
            site.workers[name].report()
    client.send(DELETE_TOPICS, DeleteTopicsRequest(topics=[DeleteTopicState(name="t")]))
    site.run_until_idle()
    assert "t" not in site.store.topics
    assert client.answers()[-1].responses[0].error_code == 0
    assert not site.dispatcher.offline_partitions.tries
    again = site.reopen("kill").store
    assert "t" not in again.topics
    assert again.recovery_notes == []


def test_the_ledger_comes_back_first_and_names_its_own_loss() -> None:
    site = Site()
    (log,) = site.topic()
    client = site.client()
    refuse(site, "datasync", "-0/")
    assert code(client.ask(PRODUCE, produce(("t", 0, batch())))) is ErrorCode.KAFKA_STORAGE_ERROR
    ledger = site.store.topics[LEDGER_TOPIC].partitions[0]
    site.disk.fault = None
    for _ in range(4):
        site.loop.advance(4000)
        site.run_until_idle()
    assert (log.fault, ledger.fault) == (None, None)
    assert causes(site)[-1] == "sync_failed"
    assert code(client.ask(PRODUCE, produce(("t", 0, batch())))) is ErrorCode.NONE


@pytest.mark.leaves("names topic id")
def test_what_could_not_be_opened_at_the_start_is_not_tried() -> None:
    site = Site()
    site.topic()
    site.disk.remove("/data/t-0/partition.metadata")
    site = site.reopen("kill")
    (log,) = site.store.topics["t"].partitions
    assert log.fault is not None
    assert code(site.client().ask(PRODUCE, produce(("t", 0, batch())))) is ErrorCode.KAFKA_STORAGE_ERROR
    site.loop.advance(120_000)
    assert not any(site.workers.values())
