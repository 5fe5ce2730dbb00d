"""What a start finds after a crash or damage, case by case: kept, cut, noted, offline, never silently lost."""

import errno
import uuid

import pytest

from edge_broker.errors import ErrorCode, Refusal, StorageFault
from edge_broker.protocol.record_batch import read_header
from edge_broker.storage.recovery import CUT_FILES_KEPT
from edge_broker.storage.store import LogStore
from edge_broker.storage.topic_config import LogSettings
from tests.simulation.disk import SimulatedDisk
from tests.support.storage import NOW_MS, append, batch, fill, make_topic, open_store, read_all, sync

LOG = "/data/t-0/" + "0" * 20 + ".log"


@pytest.fixture
def disk():
    return SimulatedDisk(1)


def crash_and_open(disk):
    disk.crash()
    store = open_store(disk)
    return store, store.topics["t"].partitions[0]


def stop_and_open(disk, store):
    store.close()
    disk.unlock("/data/.lock")
    again = open_store(disk)
    return again, again.topics["t"].partitions[0]


def test_clean_stop_is_trusted_and_nothing_is_scanned(disk):
    store = open_store(disk)
    log = make_topic(store, config={"segment.bytes": "4096"}).partitions[0]
    written = fill(log, 50)
    append(log, batch(producer=(9, 0, 0)))
    reads = []
    disk.fault = lambda kind, path, size: reads.append(path) if kind == "read" else None
    store, log = stop_and_open(disk, store)
    assert not [path for path in reads if path.endswith((".log", "index"))]
    assert (store.started_unclean, store.leader_epoch, store.recovery_notes) == (False, 0, [])
    assert (log.log_end_offset, log.high_watermark) == (51, 51)
    assert read_all(log)[:50] == written
    assert append(log, batch(producer=(9, 0, 0))).duplicate
    assert append(log, batch()).base_offset == 51
    assert log.max_timestamp() == (0, NOW_MS)


def test_second_clean_stop_without_work_writes_no_snapshot(disk):
    store = open_store(disk)
    make_topic(store)
    store, _ = stop_and_open(disk, store)
    created = []
    disk.fault = lambda kind, path, size: created.append(path) if kind == "create" else None
    store.close()
    assert [path for path in created if "t-0" in path] == []


def test_crash_after_a_clean_stop_keeps_everything(disk):
    store = open_store(disk)
    written = fill(make_topic(store).partitions[0], 20)
    store.close()
    store, log = crash_and_open(disk)
    assert not store.started_unclean
    assert read_all(log) == written


def test_unclean_start_raises_the_epoch_before_anything_is_appended(disk):
    store = open_store(disk)
    fill(make_topic(store).partitions[0], 2)
    store, log = crash_and_open(disk)
    assert (store.started_unclean, store.leader_epoch, log.leader_epoch) == (True, 1, 1)
    records = batch()
    append(log, records)
    sync(log)
    assert read_header(records).leader_epoch == 1
    assert [log.epoch_end(epoch) for epoch in (0, 1, 2)] == [(0, 2), (1, 3), (-1, -1)]
    store, log = crash_and_open(disk)
    assert [log.epoch_end(epoch) for epoch in (0, 1, 2)] == [(0, 2), (1, 3), (2, 3)]


def put_tail(disk, data):
    disk.put(LOG, disk.content(LOG) + data)


@pytest.mark.parametrize(
    "tail",
    [
        b"garbage",
        b"\xff" * 300,
        bytes(batch(b"torn"))[:-1],
        bytes(batch(b"wrong offset")),
    ],
)
def test_invalid_unsynced_tail_is_cut_and_kept_beside(disk, tail):
    store = open_store(disk)
    written = fill(make_topic(store).partitions[0], 5)
    store.checkpoint()
    put_tail(disk, tail)
    store, log = crash_and_open(disk)
    assert read_all(log) == written
    assert disk.content(LOG) == b"".join(written)
    assert disk.content("/data/t-0/" + "0" * 20 + ".cut-1") == tail
    assert "cut off" in store.recovery_notes[-1]
    assert f"{len(tail)} unsynced bytes" in store.recovery_notes[-1]
    assert append(log, batch()).base_offset == 5


def test_zeroes_behind_the_end_are_cut_without_a_copy(disk):
    store = open_store(disk)
    fill(make_topic(store).partitions[0], 5)
    put_tail(disk, bytes(5000))
    store, log = crash_and_open(disk)
    assert log.log_end_offset == 5
    assert not [name for name in disk.names("/data/t-0") if ".cut-" in name]


def test_tail_that_cannot_be_copied_for_lack_of_space_is_cut_all_the_same(disk):
    store = open_store(disk)
    written = fill(make_topic(store).partitions[0], 5)
    put_tail(disk, b"garbage")
    disk.crash()

    def full(kind, path, size):
        if kind == "write" and ".cut-" in path:
            raise OSError(errno.ENOSPC, "No space left on device", path)

    disk.fault = full
    store = open_store(disk)
    assert read_all(store.topics["t"].partitions[0]) == written
    assert any("no space to keep" in note for note in store.recovery_notes)


def test_cut_files_do_not_pile_up(disk):
    store = open_store(disk)
    fill(make_topic(store).partitions[0], 1)
    for _ in range(CUT_FILES_KEPT + 3):
        put_tail(disk, b"garbage")
        crash_and_open(disk)
    assert len([name for name in disk.names("/data/t-0") if ".cut-" in name]) == CUT_FILES_KEPT


def test_flipped_bit_above_the_stored_position_cuts_from_there(disk):
    store = open_store(disk)
    log = make_topic(store).partitions[0]
    first = fill(log, 3)
    store.checkpoint()
    fill(log, 4)
    disk.flip(LOG, len(first[0]) * 5 - 3)
    store, log = crash_and_open(disk)
    assert log.log_end_offset == 4
    assert log.damage is None
    assert "the CRC of a record batch does not match" in store.recovery_notes[0]


def test_damage_below_the_stored_position_is_reported_and_never_cut(disk):
    store = open_store(disk)
    log = make_topic(store).partitions[0]
    written = fill(log, 6)
    store.checkpoint()
    size = len(disk.content(LOG))
    position = len(written[0]) * 2
    disk.flip(LOG, position + 16)  # the magic of the third batch
    for _ in range(2):  # and what was reported once is reported again
        store, log = crash_and_open(disk)
        assert len(disk.content(LOG)) == size
        assert log.fault is None
        assert read_all(log) == written[:2]
        assert any(f"at byte {position}" in note and "appends are refused" in note for note in store.recovery_notes)
        with pytest.raises(Refusal, match="restore the file") as refused:
            append(log, batch())
        assert refused.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    store.close()
    disk.unlock("/data/.lock")
    assert open_store(disk).started_unclean


def test_file_shorter_than_what_was_synced_is_reported_and_not_written_again(disk):
    store = open_store(disk)
    written = fill(make_topic(store).partitions[0], 6)
    store.checkpoint()
    disk.put(LOG, b"".join(written[:4]))
    store, log = crash_and_open(disk)
    assert read_all(log) == written[:4]
    with pytest.raises(Refusal, match="appends are refused"):
        append(log, batch())


def test_missing_last_segment_is_reported_and_not_written_again(disk):
    store = open_store(disk)
    log = make_topic(store, config={"segment.bytes": "4096"}).partitions[0]
    fill(log, 60, 200)
    store.checkpoint()
    last = max(name for name in disk.names("/data/t-0") if name.endswith(".log"))
    disk.remove(f"/data/t-0/{last}")
    disk.sync_directory("/data/t-0")
    store, log = crash_and_open(disk)
    with pytest.raises(Refusal, match="is missing"):
        append(log, batch())
    assert read_all(log)


def test_producers_are_rebuilt_from_the_log_without_any_snapshot(disk):
    store = open_store(disk)
    log = make_topic(store, config={"segment.bytes": "4096"}).partitions[0]
    for sequence in range(60):
        append(log, batch(b"x" * 200, producer=(3, 1, sequence)))
    sync(log)
    for name in disk.names("/data/t-0"):
        if name.endswith(".snapshot"):
            disk.put(f"/data/t-0/{name}", b"damaged")
    store, log = crash_and_open(disk)
    assert append(log, batch(b"x" * 200, producer=(3, 1, 59))) == (59, 60, -1, True)
    assert append(log, batch(producer=(3, 1, 60))).base_offset == 60


def test_producers_of_what_was_cut_are_forgotten(disk):
    store = open_store(disk)
    log = make_topic(store).partitions[0]
    append(log, batch(producer=(3, 0, 0)))
    sync(log)
    store.checkpoint()
    size = len(disk.content(LOG))
    append(log, batch(producer=(3, 0, 1)))
    disk.put(LOG, disk.content(LOG)[: size + 30])
    store, log = crash_and_open(disk)
    assert append(log, batch(producer=(3, 0, 1))) == (1, 2, -1, False)


def test_snapshot_above_what_was_kept_does_not_speak_for_producers(disk):
    store = open_store(disk)
    log = make_topic(store).partitions[0]
    for sequence in range(10):
        append(log, batch(producer=(3, 0, sequence)))
    size = len(disk.content(LOG)) // 10
    store.close()
    disk.remove("/data/clean-shutdown")
    disk.remove("/data/recovery-point-offset-checkpoint")
    disk.sync_directory("/data")
    disk.flip(LOG, size * 6 - 1)
    store, log = crash_and_open(disk)
    assert log.log_end_offset == 5
    assert append(log, batch(producer=(3, 0, 5))) == (5, 6, -1, False)
    assert "0" * 18 + "10.snapshot" not in disk.names("/data/t-0")


def test_damaged_epoch_checkpoint_is_rebuilt_from_the_batches(disk):
    store = open_store(disk)
    fill(make_topic(store, config={"segment.bytes": "4096"}).partitions[0], 60, 200)
    store, log = crash_and_open(disk)
    fill(log, 60, 200)
    disk.put("/data/t-0/leader-epoch-checkpoint", b"damaged")
    store, log = crash_and_open(disk)
    assert [log.epoch_end(epoch) for epoch in (0, 1, 2)] == [(0, 60), (1, 120), (2, 120)]


def test_damaged_positions_file_is_noted_and_the_log_is_kept(disk):
    store = open_store(disk)
    written = fill(make_topic(store).partitions[0], 5)
    store.checkpoint()
    disk.put("/data/recovery-point-offset-checkpoint", b"damaged")
    store, log = crash_and_open(disk)
    assert read_all(log) == written
    assert any("recovery-point-offset-checkpoint" in note for note in store.recovery_notes)


def test_directory_of_another_topic_is_refused_and_not_touched(disk):
    store = open_store(disk)
    written = fill(make_topic(store).partitions[0], 5)
    disk.put("/data/t-0/partition.metadata", b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ\n")
    store, log = crash_and_open(disk)
    assert log.fault is not None
    assert "does not name topic id" in str(log.fault)
    assert disk.content(LOG) == b"".join(written)
    with pytest.raises(StorageFault):
        log.read(0, 10, blocking=True)


def test_missing_directory_takes_the_partition_offline_and_no_other(disk):
    store = open_store(disk)
    topic = make_topic(store, partitions=2)
    fill(topic.partitions[1], 3)
    disk.rename("/data/t-0", "/data/elsewhere")
    disk.sync_directory("/data")
    store, log = crash_and_open(disk)
    assert "directory is missing" in str(log.fault)
    assert store.topics["t"].partitions[1].log_end_offset == 3


def test_positions_of_an_offline_partition_are_kept(disk):
    store = open_store(disk)
    written = fill(make_topic(store).partitions[0], 5)
    store.checkpoint()
    disk.rename("/data/t-0", "/data/elsewhere")
    disk.sync_directory("/data")
    store, log = crash_and_open(disk)
    disk.rename("/data/elsewhere", "/data/t-0")
    disk.sync_directory("/data")
    disk.flip(LOG, len(written[0]) + 16)
    store, log = crash_and_open(disk)
    assert log.damage is not None


def test_unreadable_partition_is_offline_and_noted(disk):
    store = open_store(disk)
    fill(make_topic(store).partitions[0], 5)
    disk.crash()

    def broken(kind, path, size):
        if kind == "read" and path.endswith(".log"):
            raise OSError(errno.EIO, "Input/output error", path)

    disk.fault = broken
    store = open_store(disk)
    log = store.topics["t"].partitions[0]
    assert str(log.fault).startswith(LOG)
    assert "is offline" in store.recovery_notes[0]


def test_segment_that_was_closed_by_a_crash_goes_on_with_its_age(disk):
    store = open_store(disk)
    log = make_topic(store, config={"segment.ms": "1000"}).partitions[0]
    append(log, batch(), NOW_MS)
    sync(log)
    disk.crash()
    store = LogStore.open(disk, "/data", LogSettings(), NOW_MS + 500, uuid.uuid4)
    log = store.topics["t"].partitions[0]
    append(log, batch(), NOW_MS + 1001)
    assert log.segments_count == 2
