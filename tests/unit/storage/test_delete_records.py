"""DeleteRecords in the log: it starts later, amid a segment or a batch too, and every offset stays accounted for."""

from __future__ import annotations

import random
from functools import partial

import pytest

from edge_broker.doctor.directory import DataDirectory
from edge_broker.doctor.ledger import account_of, read_ledger
from edge_broker.errors import Refusal, StorageFault
from edge_broker.protocol.record_batch import read_header, records_of
from edge_broker.storage.log.partition_log import PartitionLog
from edge_broker.storage.log_store import LogStore
from edge_broker.storage.loss.quarantine import add_corrupt_range
from edge_broker.storage.replica.replica_truncation import hold
from edge_broker.storage.retention.segment_removal import delete_expired, delete_records, follow_start
from edge_broker.storage.segment.batch_scan import CorruptRange
from edge_broker.testing.clock import NOW_MS
from edge_broker.testing.disk import SimulatedDisk
from edge_broker.testing.site import make_topic
from tests.support.storage import NOW, append, batch, cut_off, fallen, ledgered, open_store, read_all, sync, time_at

CONFIG = {"segment.bytes": "4096", "retention.ms": "1000"}
LATER = time_at(NOW_MS + 1_000_000)
BATCH_RECORDS = 3


def filled(store: LogStore, batches: int = 40, **config: str) -> PartitionLog:
    """A log of segments of some ten batches, three records each, a millisecond apart."""
    topic = make_topic(store, config={**CONFIG, **{key.replace("_", "."): value for key, value in config.items()}})
    log = topic.partitions[0]
    for number in range(batches):
        append(log, batch(*[bytes(100)] * BATCH_RECORDS, timestamp_ms=NOW_MS + number), NOW_MS + number)
    sync(log)
    assert batches < 20 or len(log.segments) > 2
    return log


def proved(
    store: LogStore, *, deleted: int = 0, expired: int | None = None, ledgered: int = 0, remarks: int = 0
) -> None:
    """Every offset is accounted for, so many as deleted, by the files alone."""
    directory = DataDirectory(store.fs, "/data", None)
    (partition,) = directory.partitions("t")
    account = account_of(partition, read_ledger(directory).entries)
    assert account.problems == []
    assert (account.deleted, account.ledgered, len(account.remarks)) == (deleted, ledgered, remarks)
    assert expired in (None, account.expired)


def offsets_of(log: PartitionLog) -> list[int]:
    return [record.offset for found in read_all(log) for record in records_of(memoryview(found))]


@pytest.mark.parametrize("step", [4, 5, 6])
def test_where_a_start_after_a_kill_lets_a_log_begin_it_begins_after_a_power_cut_too(step: int) -> None:
    for seed in range(5):
        disk = SimulatedDisk(seed)
        store = open_store(disk)
        log = filled(store, batches=3)
        store.checkpoint()
        cut_off(disk, step, lambda log=log: delete_records(log, 5, NOW))
        disk.kill()
        shown = open_store(disk).topics["t"].partitions[0].log_start_offset
        disk.crash()
        assert open_store(disk).topics["t"].partitions[0].log_start_offset == shown, f"seed {seed}"


@pytest.mark.parametrize("how", ["stay", "close", "kill", "crash"])
@pytest.mark.parametrize("offset", [0, 1, 3, 25, 26, 31, 60, 118, 119, 120])
def test_the_log_starts_at_the_offset(offset: int, how: str) -> None:
    disk = SimulatedDisk(offset)
    store = open_store(disk)
    log = filled(store)
    borders = [segment.base_offset for segment in log.segments]
    assert delete_records(log, offset, NOW) == offset
    if how != "stay":
        store.close() if how == "close" else None
        (disk.crash if how == "crash" else disk.kill)()
        store = open_store(disk)
        log = store.topics["t"].partitions[0]
    assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (offset, 120, 120)
    assert log.segments[0].base_offset == max(border for border in borders if border <= offset)
    first = offset - offset % BATCH_RECORDS
    assert offsets_of(log) == list(range(first, 120)), "of a batch that was cut its reader leaves the front out"
    with pytest.raises(Refusal, match="out of range"):
        log.reader.read(offset - 1, 100, blocking=True)
    proved(store, deleted=offset)
    assert ledgered(store) == []
    appended = append(log, batch(b"new"), NOW_MS + 500)
    assert appended.base_offset == 120


def test_what_is_deleted_already_stays_so() -> None:
    log = filled(open_store(SimulatedDisk(1)))
    assert [delete_records(log, offset, NOW) for offset in (50, 20, 50, 51)] == [50, 50, 50, 51]
    assert [entry[:3] for entry in log.removed] == [("deleted", 0, 51)]


def test_times_are_looked_for_behind_the_start() -> None:
    log = filled(open_store(SimulatedDisk(1)))
    for offset in (1, 31, 118):
        delete_records(log, offset, NOW)
        assert log.reader.offset_for_timestamp(0) == (offset, NOW_MS + offset // BATCH_RECORDS)
        assert log.reader.offset_for_timestamp(NOW_MS + 39) == (max(offset, 117), NOW_MS + 39)
        assert log.reader.max_timestamp() == (119, NOW_MS + 39)
    delete_records(log, 120, NOW)
    assert log.reader.offset_for_timestamp(0) is None
    assert log.reader.max_timestamp() == (-1, -1)
    append(log, batch(b"new", timestamp_ms=NOW_MS), NOW_MS)
    sync(log)
    assert log.reader.max_timestamp() == log.reader.offset_for_timestamp(0) == (120, NOW_MS)


@pytest.mark.parametrize("offset", [26, 100, 120])
def test_retention_takes_the_rest_of_a_segment_and_counts_that_alone(offset: int) -> None:
    disk = SimulatedDisk(1)
    store = open_store(disk)
    log = filled(store)
    delete_records(log, offset, NOW)
    for _ in range(40):
        append(log, batch(bytes(100), timestamp_ms=NOW_MS + 50), NOW_MS + 50)
    sync(log)
    delete_expired(log, LATER)
    start = log.log_start_offset
    assert start == log.segments[0].base_offset > offset
    assert [entry[:3] for entry in log.removed] == [("deleted", 0, offset), ("retention", offset, start)]
    proved(store, deleted=offset, expired=start - offset)
    disk.crash()
    proved(open_store(disk), deleted=offset, expired=start - offset)


def test_a_segment_of_which_everything_is_deleted_goes_once_another_is_begun() -> None:
    store = open_store(SimulatedDisk(1))
    log = filled(store, retention_ms="-1")
    delete_records(log, 120, NOW)
    assert len(log.segments) == 1
    for _ in range(40):
        append(log, batch(bytes(200)), NOW_MS)
    sync(log)
    before = len(log.segments)
    delete_expired(log, NOW)
    assert (len(log.segments), log.log_start_offset) == (before - 1, 120)
    assert [entry[:3] for entry in log.removed] == [("deleted", 0, 120)]
    proved(store, deleted=120)


@pytest.mark.parametrize("passed", [0, 1, 40, 59])
def test_what_no_group_has_passed_is_a_loss(passed: int) -> None:
    store = open_store(SimulatedDisk(1))
    log = filled(store)
    delete_records(log, 60, NOW, passed)
    losses = ledgered(store)
    assert {cause for cause, *_ in losses} == {"deleted_by_request"}
    assert [entry[:3] for entry in log.removed if entry.cause == "deleted"] == (
        [("deleted", 0, passed)] if passed else []
    )
    proved(store, deleted=passed, ledgered=60 - passed)


def test_damage_in_what_is_deleted_counts_once() -> None:
    store = open_store(SimulatedDisk(1))
    log = filled(store)
    segment = log.segments[0]
    headers = [read_header(found) for found in read_all(log)[:4]]
    corrupt_range = CorruptRange(headers[1].base_offset, headers[2].next_offset, headers[0].size, headers[0].size * 3)
    from edge_broker.storage.metadata.loss_records import Loss

    loss = Loss("damaged", "t", log.topic_id, 0, corrupt_range.first_offset, corrupt_range.end_offset, None, None)
    store.ledger.write([loss])
    add_corrupt_range(segment, corrupt_range)
    delete_records(log, 5, NOW)
    proved(store, deleted=3, ledgered=6)
    delete_records(log, 11, NOW)
    proved(store, deleted=5, ledgered=6)


def test_without_a_ledger_or_an_account_nothing_goes() -> None:
    for kind, path in (("write", "__edge_ledger"), ("rename", "removed-offsets")):
        disk = SimulatedDisk(1)
        log = filled(open_store(disk))

        def broken(step: str, at: str, _size: int, kind: str = kind, path: str = path) -> None:
            if step == kind and path in at:
                raise OSError(5, "broken", at)

        disk.fault = broken
        with pytest.raises(StorageFault):
            delete_records(log, 60, NOW, 0)
        assert (log.log_start_offset, log.removed, log.fault) == (0, (), None)
        assert offsets_of(log) == list(range(120))


@pytest.mark.parametrize("passed", [0, 1 << 62])
@pytest.mark.parametrize("offset", [31, 60, 120])
def test_a_crash_at_any_step_leaves_all_or_less_and_the_account_right(offset: int, passed: int) -> None:
    for step in range(1, 100):
        disk = SimulatedDisk(step)
        log = filled(open_store(disk))
        if not cut_off(disk, step, partial(delete_records, log, offset, NOW, passed)):
            assert step > 4
            return
        store = fallen(disk, random.Random(step))
        again = store.topics["t"].partitions[0]
        start = again.log_start_offset
        assert (again.fault, again.log_end_offset) == (None, 120)
        assert start in (0, offset)
        assert offsets_of(again) == list(range(start - start % BATCH_RECORDS, 120))
        assert delete_records(again, offset, NOW, passed) == offset
        proved(store, deleted=0 if passed == 0 else offset, ledgered=offset if passed == 0 else 0)
    pytest.fail("the removal has more steps than were tried")


@pytest.mark.parametrize("seed", range(20))
def test_what_the_kernel_has_is_synced_before_the_account_says_that_it_went(seed: int) -> None:
    """Else a power cut leaves a log that ends below its start, and offsets are used again that count as deleted."""
    disk = SimulatedDisk(seed)
    store = open_store(disk)
    log = make_topic(store, config={**CONFIG, "edge.durability": "kernel"}).partitions[0]
    for _ in range(5):
        append(log, batch(b"a", b"b"), NOW_MS)
    delete_records(log, 7, NOW)
    disk.crash()
    again = open_store(disk).topics["t"].partitions[0]
    assert again.log_start_offset == 7
    assert again.log_end_offset == 10


def test_a_card_that_loses_what_it_synced_makes_no_offset_come_again() -> None:
    disk = SimulatedDisk(1)
    store = open_store(disk)
    log = filled(store, batches=4)
    path, size = log.segments[-1].path, log.segments[-1].size
    delete_records(log, log.log_end_offset, NOW)
    end = log.log_end_offset
    store.close()
    disk.kill()
    file = disk.open(path)
    file.truncate(size // 2)
    file.datasync()
    for _ in range(2):
        store = open_store(disk)
        again = store.topics["t"].partitions[0]
        assert (again.fault, again.log_start_offset) == (None, end)
        assert append(again, batch(b"new"), NOW_MS).base_offset == again.log_end_offset - 1 >= end
        sync(again)
        disk.crash()
    assert open_store(disk).topics["t"].partitions[0].log_end_offset == end + 2


@pytest.mark.parametrize("how", ["stay", "kill", "crash"])
def test_what_the_leader_has_removed_goes_from_a_replica_and_is_no_loss_here(how: str) -> None:
    disk = SimulatedDisk(4)
    store = open_store(disk)
    log = filled(store, edge_required_groups="mirror")
    assert follow_start(log, 31, NOW) == 31
    assert follow_start(log, 7, NOW) == 31
    if how != "stay":
        (disk.crash if how == "crash" else disk.kill)()
        store = open_store(disk)
        log = store.topics["t"].partitions[0]
    assert (log.log_start_offset, log.log_end_offset) == (31, 120)
    assert [entry[:3] for entry in log.removed] == [("followed", 0, 31)]
    proved(store, expired=31)
    assert ledgered(store) == []


def test_a_replica_that_is_being_truncated_keeps_its_front() -> None:
    log = filled(open_store(SimulatedDisk(1)))
    assert hold(log)
    assert follow_start(log, 31, NOW) == 0
