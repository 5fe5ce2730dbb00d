"""Retention of the segment that is written to: a topic that nobody writes to any more goes too, as in Apache Kafka."""

from __future__ import annotations

import pytest

from edge_broker import app
from edge_broker.errors import StorageFault
from edge_broker.protocol.api import DELETE_RECORDS, PRODUCE
from edge_broker.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from edge_broker.storage.log.partition_log import PartitionLog
from edge_broker.testing.clock import NOW_MS
from edge_broker.testing.site import Site
from tests.support.storage import append, batch, failing, fill, ledgered
from tests.unit.broker.test_produce import code, produce


def look(site: Site, after_ms: int = 0) -> None:
    """One round of retention, so much later."""
    site.loop.advance(after_ms)
    site.dispatcher.start(app._Retention(site.broker).start)
    site.run_until_idle()


def spread(log: PartitionLog) -> tuple[int, int, int]:
    """Where a log starts and ends, and the bytes of its files."""
    return log.log_start_offset, log.log_end_offset, log.size


def test_a_topic_that_nobody_writes_to_any_more_goes_once_all_of_it_is_too_old() -> None:
    site = Site({"log.retention.ms": 10_000})
    (log,) = site.topic()
    fill(log, 5)
    look(site, 10_000)
    assert spread(log)[:2] == (0, 5)
    look(site, 1)
    assert spread(log) == (5, 5, 0)
    again = site.reopen("cut")
    assert spread(again.store.topics["t"].partitions[0]) == (5, 5, 0)
    assert code(again.client().ask(PRODUCE, produce(("t", 0, batch(b"a"))))) == 0
    assert again.store.topics["t"].partitions[0].log_end_offset == 6


def test_sealed_segments_that_stay_keep_the_last_one() -> None:
    """Records with old times of their own come last: nothing goes out of order."""
    site = Site({"log.retention.ms": 10_000})
    (log,) = site.topic(config={"segment.bytes": "4096"})
    fill(log, 3, 2500)
    append(log, batch(b"old", timestamp_ms=NOW_MS - 3_600_000))
    site.run_until_idle()
    look(site)
    assert log.log_start_offset == 0


def test_what_a_later_record_keeps_stays() -> None:
    site = Site({"log.retention.ms": 10_000})
    (log,) = site.topic()
    fill(log, 5)
    site.loop.advance(9_000)
    code(site.client().ask(PRODUCE, produce(("t", 0, batch(b"a", timestamp_ms=site.clock.wall_ms())))))
    look(site, 9_000)
    assert log.log_start_offset == 0


def test_the_files_of_records_that_were_all_deleted_by_request_go() -> None:
    site = Site({"log.retention.ms": -1})
    (log,) = site.topic()
    fill(log, 5)
    part = DeleteRecordsPartition(partition_index=0, offset=-1)
    request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name="t", partitions=[part])], timeout_ms=1000)
    site.client().ask(DELETE_RECORDS, request)
    assert spread(log)[:2] == (5, 5)
    assert log.size > 0
    look(site)
    assert spread(log) == (5, 5, 0)


def test_retention_bytes_of_zero_keeps_nothing() -> None:
    site = Site({"log.retention.ms": -1})
    (log,) = site.topic(config={"retention.bytes": "0"})
    fill(log, 5)
    look(site)
    assert spread(log) == (5, 5, 0)


def test_what_no_group_has_read_is_in_the_ledger_before_it_goes() -> None:
    site = Site({"log.retention.ms": 10_000})
    (log,) = site.topic(config={"edge.required.groups": "g"})
    fill(log, 5)
    look(site, 10_001)
    assert spread(log) == (5, 5, 0)
    assert ledgered(site.store) == [("expired_unpassed", "t", 0, 0, 4)]


@pytest.mark.parametrize("config", [{"retention.ms": "-1"}, {"cleanup.policy": "compact", "retention.ms": "1"}])
def test_topics_without_an_end_are_kept(config: dict[str, str]) -> None:
    site = Site()
    (log,) = site.topic(config=config)
    fill(log, 5)
    look(site, 10_000_000)
    assert len(log.segments) == 1
    assert log.log_start_offset == 0


def test_what_is_not_shown_yet_stays() -> None:
    """Its own time makes it too old while no sync has confirmed it."""
    site = Site({"log.retention.ms": 10_000})
    (log,) = site.topic()
    append(log, batch(b"old", timestamp_ms=NOW_MS - 3_600_000))
    site.dispatcher.start(app._Retention(site.broker).start)
    site.files.work()
    assert log.log_start_offset == 0
    assert len(log.segments) == 1


def test_an_empty_topic_is_left_alone() -> None:
    site = Site({"log.retention.ms": 10_000})
    (log,) = site.topic()
    files = site.disk.names(log.directory)
    look(site, 100_000)
    assert site.disk.names(log.directory) == files


def test_a_segment_that_cannot_be_closed_costs_no_neighbour(capsys: pytest.CaptureFixture[str]) -> None:
    site = Site({"log.retention.ms": 10_000})
    first, second = site.topic(partitions=2)
    fill(first, 5)
    fill(second, 5)
    site.disk.fault = failing("create", "/t-0/")
    look(site, 10_001)
    site.disk.fault = None
    assert isinstance(first.fault, StorageFault)
    assert spread(second) == (5, 5, 0)
    assert "partition=0" in capsys.readouterr().err
