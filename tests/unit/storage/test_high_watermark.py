"""A log shows what it is told it may show, wherever its own disk is; here it is told every end that it ever had."""

from __future__ import annotations

import pytest

from edge_broker.protocol.record_batch import check_batch
from edge_broker.storage.log import single_node_watermark
from edge_broker.storage.log.log_reader import whole_batches
from edge_broker.storage.log.log_state import LogEnd
from edge_broker.storage.log.log_writer import RollDue
from edge_broker.storage.log.partition_log import PartitionLog
from edge_broker.storage.maintenance.log_cleaner import cleanable
from edge_broker.storage.retention.segment_removal import delete_expired
from edge_broker.testing.clock import NOW_MS
from edge_broker.testing.disk import SimulatedDisk
from edge_broker.testing.site import make_topic
from tests.support.storage import batch, open_store, read_all, sync, time_at

BATCHES = 40
LATER = time_at(NOW_MS + 10_000_000)


def filled(**config: str) -> tuple[PartitionLog, list[LogEnd]]:
    """A log of several segments, all of it synced, and its ends: before the first batch, and behind each."""
    log = make_topic(open_store(SimulatedDisk(1)), config={"segment.bytes": "4096", **config}).partitions[0]
    ends = [log.state.end()]
    for number in range(BATCHES):
        made = batch(bytes(500), timestamp_ms=NOW_MS + number)
        header = check_batch(made, 1 << 20)
        try:
            log.writer.append(made, header, time_at(NOW_MS))
        except RollDue:
            log.roller.roll()
            log.writer.end_roll()
            log.writer.append(made, header, time_at(NOW_MS))
        ends.append(log.state.end())
    flush = log.writer.begin_flush()
    assert flush is not None
    flush.run()
    log.writer.finish_flush(flush)
    assert len(log.segments) > 4
    return log, ends


def tell(log: PartitionLog, end: LogEnd) -> None:
    log.state.set_visible_end(end, end.offset)


def test_a_sync_alone_shows_nothing() -> None:
    log, _ = filled()
    assert (log.synced_end.offset, log.high_watermark, log.shown_bytes) == (BATCHES, 0, 0)
    assert log.reader.read(0, 1000, blocking=True) == b""
    assert log.reader.max_timestamp() == (-1, -1)
    single_node_watermark.advance_high_watermark(log.state)
    assert log.high_watermark == log.state.last_stable_offset == BATCHES
    assert len(read_all(log)) == BATCHES


def test_reads_end_where_it_was_told() -> None:
    log, ends = filled()
    bytes_before = 0
    for end in ends[1:]:
        tell(log, end)
        assert log.high_watermark == end.offset
        data = log.reader.read(end.offset - 1, 1 << 20, blocking=True)
        assert data is not None
        assert len(whole_batches(data)) == 1
        assert log.reader.read(end.offset, 1 << 20, blocking=True) == b""
        assert log.reader.max_timestamp() == (end.offset - 1, NOW_MS + end.offset - 1)
        assert log.reader.epoch_end(log.leader_epoch)[1] == end.offset
        assert log.shown_bytes > bytes_before
        bytes_before = log.shown_bytes
    assert len(read_all(log)) == BATCHES


def test_what_may_not_be_shown_is_not_found_by_its_time() -> None:
    log, ends = filled()
    tell(log, ends[10])
    assert log.reader.offset_for_timestamp(NOW_MS + 9) == (9, NOW_MS + 9)
    assert log.reader.offset_for_timestamp(NOW_MS + 10) is None


@pytest.mark.parametrize("told", range(0, BATCHES + 1, 3))
def test_nothing_expires_before_it_may_be_shown(told: int) -> None:
    log, ends = filled(**{"retention.ms": "1"})
    tell(log, ends[told])
    delete_expired(log, LATER)
    assert log.log_start_offset <= told
    assert log.log_start_offset == max(segment.base_offset for segment in log.segments if segment.base_offset <= told)


@pytest.mark.parametrize("told", range(0, BATCHES + 1, 3))
def test_nothing_is_compacted_before_it_may_be_shown(told: int) -> None:
    log, ends = filled(**{"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"})
    tell(log, ends[told])
    found = cleanable(log, 0, LATER)
    assert (found.end_offset if found else 0) == max(
        segment.base_offset for segment in log.segments if segment.base_offset <= told
    )


def test_a_roll_shows_no_more_and_holds_no_segment_that_is_behind() -> None:
    log, ends = filled()
    tell(log, ends[-1])
    assert log.writer.begin_roll()
    log.roller.roll()
    log.writer.end_roll()
    assert (log.high_watermark, log.state.shown.segment) == (BATCHES, log.segments[-1])
    sync(log)
    assert len(read_all(log)) == BATCHES
