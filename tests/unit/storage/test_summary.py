"""What a sealed segment says of itself, and retention by it."""

from __future__ import annotations

import errno
import uuid

import pytest

from edge_broker.configuration.settings import LogSettings
from edge_broker.protocol.record_batch import read_header
from edge_broker.storage.files.data_age import Now
from edge_broker.storage.log import single_node_watermark
from edge_broker.storage.log.partition_log import PartitionLog
from edge_broker.storage.log_store import LogStore
from edge_broker.storage.retention.segment_removal import delete_expired
from edge_broker.storage.segment.segment import Segment
from edge_broker.storage.segment.segment_summary import Summary, encode_summary
from edge_broker.testing.clock import NOW_MS
from edge_broker.testing.disk import SimulatedDisk
from edge_broker.testing.site import make_topic
from tests.support.storage import NOW, READING, append, batch, fill, open_store, sync, time_at

YEAR = 365 * 86_400_000
PATH = "/data/t-0/00000000000000000000.summary"


def sealed(disk: SimulatedDisk, **config: str) -> tuple[LogStore, PartitionLog]:
    """A log whose first segment, of three batches and five records, is sealed."""
    store = open_store(disk)
    log = make_topic(store, config={"segment.ms": "60000", **config}).partitions[0]
    append(log, batch(b"a", b"b", timestamp_ms=NOW_MS - 500), NOW_MS)
    append(log, batch(b"c", b"d", timestamp_ms=NOW_MS - 900), NOW_MS + 100)
    append(log, batch(b"e", timestamp_ms=NOW_MS + 50), NOW_MS + 200)
    append(log, batch(b"f", timestamp_ms=NOW_MS + 60_300), NOW_MS + 60_300)
    sync(log)
    assert len(log.segments) == 2
    return store, log


def first_segment(log: PartitionLog) -> Segment:
    return log.segments[0]


def expected(log: PartitionLog) -> Summary:
    size = first_segment(log).size
    return Summary(5, 5, 0, 0, 3, size, NOW_MS - 900, NOW_MS + 50, 50, True, "boot")


def again(disk: SimulatedDisk, store: LogStore) -> PartitionLog:
    store.close()
    disk.kill()
    return open_store(disk).topics["t"].partitions[0]


def test_it_is_written_when_a_segment_is_sealed() -> None:
    disk = SimulatedDisk(1)
    store, log = sealed(disk)
    assert disk.content(PATH) == encode_summary(expected(log))
    reopened = again(disk, store)
    assert first_segment(reopened).stored_summary is None, "a clean start reads no summary"
    assert reopened.summary(first_segment(reopened), NOW) == expected(log)


@pytest.mark.parametrize("clean", [True, False])
def test_it_counts_what_was_there_before_a_restart(clean: bool) -> None:
    disk = SimulatedDisk(1)
    store = open_store(disk)
    log = make_topic(store, config={"segment.bytes": "4096"}).partitions[0]
    append(log, batch(b"a", b"b", timestamp_ms=NOW_MS))
    sync(log)
    if clean:
        store.close()
    disk.kill()
    log = open_store(disk).topics["t"].partitions[0]
    append(log, batch(b"c", timestamp_ms=NOW_MS - 1000))
    append(log, batch(bytes(4000)))
    summary = first_segment(log).stored_summary
    assert summary is not None
    assert (summary.end_offset, summary.records, summary.batches) == (3, 3, 2)
    assert (summary.first_timestamp, summary.max_timestamp) == (NOW_MS - 1000, NOW_MS)


def test_a_segment_sealed_before_anything_came_after_a_restart_is_as_old_as_before() -> None:
    disk = SimulatedDisk(1)
    store = open_store(disk)
    log = make_topic(store, config={"segment.ms": "1000"}).partitions[0]
    append(log, batch(b"a", timestamp_ms=-1), NOW_MS + 700)
    log = again(disk, store)
    append(log, batch(b"b"), NOW_MS + YEAR)
    summary = first_segment(log).stored_summary
    assert summary is not None
    assert (summary.written_age_ms, summary.trusted, summary.boot_id) == (700, True, "boot")


@pytest.mark.parametrize("fate", ["lost", "torn", "flipped", "newer", "of another kind"])
def test_it_is_made_again_from_the_log(fate: str) -> None:
    disk = SimulatedDisk(1)
    store, log = sealed(disk)
    right = disk.content(PATH)
    reopened = again(disk, store)
    if fate == "lost":
        disk.remove(PATH)
    elif fate == "flipped":
        disk.flip(PATH, len(right) - 3)
    else:
        broken = {
            "torn": right[:40],
            "newer": right.replace(b"summary 1", b"summary 2"),
            "of another kind": right.replace(b"summary", b"holes"),
        }
        disk.put(PATH, broken[fate])
    found = expected(log)._replace(written_age_ms=5000)  # as if written now: kept longer, never shorter
    assert reopened.summary(first_segment(reopened), time_at(NOW_MS + 5000)) == found
    assert disk.content(PATH) == encode_summary(found), "kept for the next time"


def test_without_space_it_is_made_again_and_not_kept() -> None:
    disk = SimulatedDisk(1)
    store, log = sealed(disk)
    reopened = again(disk, store)
    disk.remove(PATH)

    def full(kind: str, path: str, size: int) -> int | None:
        if kind in ("write", "create"):
            raise OSError(errno.ENOSPC, "No space left on device", path)
        return None

    disk.fault = full
    found = expected(log)._replace(written_age_ms=5000)
    assert reopened.summary(first_segment(reopened), time_at(NOW_MS + 5000)) == found
    assert not disk.exists(PATH)


@pytest.mark.leaves("no record batch begins here")
def test_damage_is_counted_up_to_and_not_written_down() -> None:
    disk = SimulatedDisk(1)
    store, log = sealed(disk)
    size = read_header(memoryview(disk.content(first_segment(log).path))).size
    reopened = again(disk, store)
    disk.remove(PATH)
    disk.flip(first_segment(log).path, size + 16)  # the magic of the second batch
    assert reopened.summary(first_segment(reopened), NOW)[:5] == (2, 2, 0, 0, 1)
    assert not disk.exists(PATH)


@pytest.mark.leaves("offsets", "the entry speaks of no batch in the log")
def test_batches_that_are_missing_at_the_end_are_not_taken_for_compacted() -> None:
    disk = SimulatedDisk(1)
    store, log = sealed(disk)
    whole = disk.content(first_segment(log).path)
    size = read_header(memoryview(whole)).size
    store.close()
    disk.kill()
    disk.remove(PATH)
    disk.put(first_segment(log).path, whole[:size])
    reopened = open_store(disk).topics["t"].partitions[0]
    assert reopened.summary(first_segment(reopened), NOW)[:5] == (2, 2, 0, 0, 1)
    assert not disk.exists(PATH)


def test_expired_is_older_than_retention_and_never_without() -> None:
    summary = Summary(5, 5, 0, 0, 3, 700, -1, -1, 1_000, False, "boot")
    at = NOW._replace(age_ms=11_000, trusted=False)
    assert not summary.is_expired(at, 10_000)
    assert summary.is_expired(at._replace(age_ms=11_001), 10_000)
    assert summary.is_expired(at, 0)
    assert not summary.is_expired(at, -1)


@pytest.mark.parametrize("timestamp", [-1, 0, NOW_MS + YEAR, NOW_MS - YEAR])
def test_untrusted_records_expire_by_age_whatever_they_say(timestamp: int) -> None:
    store = LogStore.open(SimulatedDisk(1), "/data", LogSettings(), READING._replace(trusted=False), uuid.uuid4)
    log = make_topic(store, config={"segment.ms": "1", "retention.ms": "10000"}).partitions[0]

    def at(age_ms: int, wall_ms: int = NOW_MS) -> Now:
        return Now(wall_ms, age_ms, trusted=False, boot_id="boot")

    for age_ms in (0, 2, 4):
        records = batch(b"x", timestamp_ms=timestamp)
        if age_ms:
            log.writer.rolling = True
            log.roller.roll()
            log.writer.end_roll()
            single_node_watermark.advance_high_watermark(log.state)
        log.writer.append(records, read_header(records), at(age_ms))
    for jump in (YEAR, -YEAR):
        assert delete_expired(log, at(10_000, NOW_MS + jump)) == 0
    assert delete_expired(log, at(10_002, NOW_MS - YEAR)) == 1
    assert delete_expired(log, at(10_003)) == 1
    assert log.log_start_offset == 2


def test_files_of_a_removed_segment_go_with_it() -> None:
    disk = SimulatedDisk(1)
    _, log = sealed(disk, **{"retention.ms": "1000"})
    assert delete_expired(log, time_at(NOW_MS + 100_000)) == 1
    assert [name for name in disk.names("/data/t-0") if name.startswith("00000000000000000000")] == []


def test_filling_and_rolling_agrees_with_the_log() -> None:
    disk = SimulatedDisk(1)
    log = make_topic(open_store(disk), config={"segment.bytes": "4096"}).partitions[0]
    fill(log, 200)
    for segment, following in zip(log.segments, log.segments[1:], strict=False):
        written = segment.stored_summary
        assert written is not None
        disk.remove(f"{segment.directory}/{segment.name('summary')}")
        segment.stored_summary = None
        assert log.summary(segment, NOW) == written
        assert written.end_offset == following.base_offset
        assert written.records == written.batches == written.end_offset - segment.base_offset
