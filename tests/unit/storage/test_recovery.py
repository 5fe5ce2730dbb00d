"""What a start finds after a crash or damage, case by case: kept, cut, noted, offline, never silently lost."""

import errno
import json
import uuid

import pytest

from drupelet.ledger import LEDGER_TOPIC
from edge_broker.configuration.settings import LogSettings
from edge_broker.errors import ErrorCode, Refusal, StorageFault
from edge_broker.protocol.record_batch import assign_offsets, read_header, records_of
from edge_broker.storage.files.atomic_files import read_state
from edge_broker.storage.log import single_node_watermark
from edge_broker.storage.log_store import LogStore
from edge_broker.storage.loss.quarantine import add_corrupt_range
from edge_broker.storage.retention.segment_removal import delete_records
from edge_broker.storage.segment.batch_scan import CorruptRange
from edge_broker.storage.segment.truncated_tails import CUT_FILES_KEPT
from edge_broker.testing.clock import NOW_MS, reading_at
from edge_broker.testing.disk import PowerLoss, SimulatedDisk, SimulatedFile
from edge_broker.testing.site import make_topic
from tests.support.storage import (
    NOW,
    append,
    batch,
    fill,
    ledgered,
    open_store,
    read_all,
    read_through_damage,
    sync,
    time_at,
)

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
    assert (store.directory.started_unclean, store.directory.leader_epoch, store.recovery_notes) == (False, 0, [])
    assert (log.log_end_offset, log.high_watermark) == (51, 51)
    assert read_all(log)[:50] == written
    assert append(log, batch(producer=(9, 0, 0))).duplicate
    assert append(log, batch()).base_offset == 51
    assert log.reader.max_timestamp() == (0, NOW_MS)


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
    assert not store.directory.started_unclean
    assert read_all(log) == written


def test_unclean_start_raises_the_epoch_before_anything_is_appended(disk):
    store = open_store(disk)
    fill(make_topic(store).partitions[0], 2)
    store, log = crash_and_open(disk)
    assert (store.directory.started_unclean, store.directory.leader_epoch, log.leader_epoch) == (True, 1, 1)
    records = batch()
    append(log, records)
    sync(log)
    assert read_header(records).leader_epoch == 1
    assert [log.reader.epoch_end(epoch) for epoch in (0, 1, 2)] == [(0, 2), (1, 3), (-1, -1)]
    store, log = crash_and_open(disk)
    assert [log.reader.epoch_end(epoch) for epoch in (0, 1, 2)] == [(0, 2), (1, 3), (2, 3)]


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


@pytest.mark.parametrize("size", [1, 7, 8, 11, 12, 16, 17, 60, 61, -1])
@pytest.mark.parametrize("power", [False, True])
def test_half_of_a_write_is_a_loss_after_a_power_cut_and_none_after_a_kill(disk, size, power):
    """write(2) copies page by page, and a kill ends it between two of them; nobody was answered for what it wrote."""
    store = open_store(disk)
    log = make_topic(store).partitions[0]
    written = fill(log, 5)
    whole = batch(b"torn")
    assign_offsets(whole, 5, 0)
    put_tail(disk, bytes(whole)[:size])
    disk.kill()
    disk.mounts += power
    store = open_store(disk)
    assert read_all(store.topics["t"].partitions[0]) == written
    assert ledgered(store) == ([("unsynced_cut", "t", 0, 5, None)] if power else [])
    assert "cut off" in store.recovery_notes[-1]


@pytest.mark.parametrize(("at", "offset"), [(60, 5), (0, 6), (16, 5)])
def test_a_kill_excuses_nothing_but_half_of_the_batch_that_was_due(disk, at, offset):
    store = open_store(disk)
    fill(make_topic(store).partitions[0], 5)
    whole = bytearray(batch(b"torn"))
    assign_offsets(memoryview(whole), offset, 0)
    whole[at] ^= 1 if at else 0
    put_tail(disk, bytes(whole) if at == 60 else bytes(whole)[:-1])
    disk.kill()
    assert ledgered(open_store(disk)) == [("unsynced_cut", "t", 0, 5, None)]


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


@pytest.mark.parametrize("seed", range(8))
def test_what_a_failed_sync_left_in_memory_alone_is_not_taken_for_synced_by_the_next_process(seed):
    disk = SimulatedDisk(seed)
    log = make_topic(open_store(disk)).partitions[0]
    fill(log, 3)
    for _ in range(80):
        append(log, batch(b"x" * 100))
    disk.fault = fail_datasync
    with pytest.raises(StorageFault):
        sync(log)
    disk.kill()
    log = open_store(disk).topics["t"].partitions[0]
    shown = read_all(log)
    assert len(shown) >= 3
    _, log = crash_and_open(disk)
    assert read_all(log) == shown


def fail_datasync(kind, path, size):
    if kind == "datasync":
        raise OSError(errno.EIO, "Input/output error", path)


def test_flipped_bit_above_the_stored_position_cuts_from_there(disk):
    store = open_store(disk)
    log = make_topic(store).partitions[0]
    first = fill(log, 3)
    store.checkpoint()
    fill(log, 4)
    disk.flip(LOG, len(first[0]) * 5 - 3)
    store, log = crash_and_open(disk)
    assert log.log_end_offset == 4
    assert "the CRC of a record batch does not match" in store.recovery_notes[0]
    assert ledgered(store) == [("unsynced_cut", "t", 0, 4, None)]


def damaged_above_a_checkpoint(disk, batches=6, config=None):
    """A log whose positions are stored, and its batches."""
    store = open_store(disk)
    log = make_topic(store, config=config).partitions[0]
    written = fill(log, batches, 200)
    store.checkpoint()
    return written


def check_it_goes_on(disk, log, rest, end_offset):
    """Appends go on behind what was stored; what is there stays so over another crash."""
    assert (log.fault, log.log_end_offset, log.high_watermark) == (None, end_offset, end_offset)
    assert read_through_damage(log) == rest
    assert append(log, batch()).base_offset == end_offset
    sync(log)
    store, log = crash_and_open(disk)
    assert len(read_through_damage(log)) == len(rest) + 1
    assert append(log, batch()).base_offset == end_offset + 1
    return store


def test_damage_below_the_stored_position_is_contained_and_never_cut(disk):
    written = damaged_above_a_checkpoint(disk)
    size = len(disk.content(LOG))
    position = len(written[0]) * 2
    disk.flip(LOG, position + 16)  # the magic of the third batch
    store, log = crash_and_open(disk)
    assert len(disk.content(LOG)) == size
    assert len(log.segments) == 2  # the damaged one is closed
    assert log.segments[0].corrupt_ranges == (CorruptRange(2, 3, position, position + len(written[2])),)
    assert any(f"at byte {position}" in note and "in the ledger" in note for note in store.recovery_notes)
    store = check_it_goes_on(disk, log, [*written[:2], *written[3:]], 6)
    assert ledgered(store) == [("damaged", "t", 0, 2, 2)]


@pytest.mark.parametrize("kept", [0, 4, 4.5])
def test_a_file_shorter_than_what_was_synced_goes_on_at_the_stored_end(disk, kept):
    written = damaged_above_a_checkpoint(disk)
    disk.put(LOG, b"".join(written)[: int(kept * len(written[0]))])
    store, log = crash_and_open(disk)
    store = check_it_goes_on(disk, log, written[: int(kept)], 6)
    assert ledgered(store) == [("damaged", "t", 0, int(kept), 5)]


def test_lost_bytes_are_counted_by_the_stored_position(disk):
    written = damaged_above_a_checkpoint(disk)
    disk.put(LOG, b"".join(written[:4]))
    store, _ = crash_and_open(disk)
    (record,) = records_of(read_all(store.topics[LEDGER_TOPIC].partitions[0])[0])
    assert json.loads(record.value)["bytes"] == len(b"".join(written[4:]))


def test_a_missing_last_segment_goes_on_at_the_stored_end(disk):
    written = damaged_above_a_checkpoint(disk, 60, {"segment.bytes": "4096"})
    last = max(name for name in disk.names("/data/t-0") if name.endswith(".log"))
    disk.remove(f"/data/t-0/{last}")
    disk.sync_directory("/data/t-0")
    store, log = crash_and_open(disk)
    store = check_it_goes_on(disk, log, written[: int(last[:20])], 60)
    assert ledgered(store) == [("damaged", "t", 0, int(last[:20]), 59)]


def test_without_any_segment_the_next_begins_at_the_stored_end(disk):
    damaged_above_a_checkpoint(disk, 60, {"segment.bytes": "4096"})
    for name in disk.names("/data/t-0"):
        if name.endswith(".log"):
            disk.remove(f"/data/t-0/{name}")
    disk.sync_directory("/data/t-0")
    store, log = crash_and_open(disk)
    store = check_it_goes_on(disk, log, [], 60)
    assert ledgered(store) == [("damaged", "t", 0, 0, 59)]


def test_damage_below_the_stored_position_and_a_torn_tail_above_it(disk):
    written = damaged_above_a_checkpoint(disk)
    disk.flip(LOG, len(written[0]) * 5 + 100)
    put_tail(disk, b"garbage")
    store, log = crash_and_open(disk)
    assert read_through_damage(log) == written[:5]
    assert (log.log_end_offset, append(log, batch()).base_offset) == (6, 6)
    assert ledgered(store) == [("damaged", "t", 0, 5, 5), ("unsynced_cut", "t", 0, 6, None)]


@pytest.mark.leaves("the snapshot is torn or damaged")
def test_a_damaged_closed_segment_that_has_to_be_walked_is_contained(disk):
    written = damaged_above_a_checkpoint(disk, 60, {"segment.bytes": "4096"})
    for name in disk.names("/data/t-0"):
        if name.endswith(".snapshot"):
            disk.put(f"/data/t-0/{name}", b"damaged")
    disk.flip(LOG, len(written[0]) * 3 + 100)
    store, log = crash_and_open(disk)
    assert ledgered(store) == [("damaged", "t", 0, 3, 3)]
    check_it_goes_on(disk, log, [*written[:3], *written[4:]], 60)


@pytest.mark.leaves("the CRC of a record batch does not match its bytes")
def test_a_crash_at_any_step_of_containing_ends_in_one_corrupt_range(disk):
    written = damaged_above_a_checkpoint(disk)
    disk.flip(LOG, len(written[0]) * 2 + 100)
    disk.crash()
    for step in range(1, 200):
        again = disk.fork(step)
        again.crash_at = again.steps + step
        try:
            open_store(again)
            done = True
        except PowerLoss:
            done = False
        again.crash()
        store = open_store(again)
        log = store.topics["t"].partitions[0]
        assert read_through_damage(log) == [*written[:2], *written[3:]]
        assert set(ledgered(store)) == {("damaged", "t", 0, 2, 2)}
        assert append(log, batch()).base_offset == 6
        if done:
            return
    raise AssertionError("the start takes more steps than were tried")


def break_pages(monkeypatch, path, begin, end):
    """Let the disk give up on reads of a range."""
    read = SimulatedFile.read

    def broken(self, size_max, position):
        if self.path == path and position < end and position + size_max > begin:
            raise OSError(errno.EIO, "Input/output error", path)
        return read(self, size_max, position)

    monkeypatch.setattr(SimulatedFile, "read", broken)


def test_unsynced_bytes_that_the_disk_cannot_read_stay_where_they_are(disk, monkeypatch):
    store = open_store(disk)
    log = make_topic(store).partitions[0]
    written = fill(log, 3, 6000)
    store.checkpoint()
    fill(log, 3, 6000)
    disk.crash()
    position = len(written[0]) * 3
    break_pages(monkeypatch, LOG, position + 4096, position + 8192)
    store = open_store(disk)
    log = store.topics["t"].partitions[0]
    assert read_through_damage(log) == written
    assert len(disk.content(LOG)) == position * 2
    assert (log.log_end_offset, append(log, batch()).base_offset) == (3, 3)
    assert ledgered(store) == [("unsynced_cut", "t", 0, 3, None)]


def test_a_segment_of_unsynced_bytes_alone_that_the_disk_cannot_read_makes_way(disk, monkeypatch):
    lost = fill(make_topic(open_store(disk)).partitions[0], 3, 6000)
    disk.crash()
    with monkeypatch.context() as patch:
        break_pages(patch, LOG, 4096, 8192)
        store = open_store(disk)
        log = store.topics["t"].partitions[0]
        assert ledgered(store) == [("unsynced_cut", "t", 0, 0, None)]
        written = fill(log, 3)
        sync(log)
        disk.crash()
    log = open_store(disk).topics["t"].partitions[0]
    assert read_through_damage(log) == written
    assert not log.segments[0].corrupt_ranges
    assert disk.content(LOG.replace(".log", f".cut-{store.directory.leader_epoch}")) == b"".join(lost)


def test_damage_behind_a_corrupt_range_without_offsets_holds_no_start_up(disk):
    store = open_store(disk)
    log = make_topic(store).partitions[0]
    written = fill(log, 3)
    store.checkpoint()
    add_corrupt_range(log.segments[0], CorruptRange(0, 0, 0, len(written[0])))
    store, log = crash_and_open(disk)
    assert read_through_damage(log) == written[2:]
    assert log.log_end_offset == 3


def close_segment(store, log):
    log.writer.rolling = True
    log.roller.roll()
    log.writer.end_roll()
    single_node_watermark.advance_high_watermark(log.state)


@pytest.mark.parametrize("close", [close_segment, lambda store, _: store.close()], ids=["roll", "stop"])
def test_what_was_refused_and_cut_off_does_not_come_back_in_a_closed_segment(close):
    for seed in range(200):
        disk = SimulatedDisk(seed)
        store = open_store(disk)
        log = make_topic(store).partitions[0]
        written = fill(log, 5)
        records = batch(b"refused", b"too")
        taken = iter([len(records) - 1])

        def full(kind, path, size, taken=taken):
            accepted = next(taken, None) if kind == "write" else size
            if accepted is None:
                raise OSError(errno.ENOSPC, "No space left on device", path)
            return accepted

        disk.fault = full
        with pytest.raises(Refusal):
            log.writer.append(records, read_header(records), time_at(NOW_MS))
        disk.fault = None
        close(store, log)
        _, log = crash_and_open(disk)
        assert read_all(log) == written, seed


def test_a_corrupt_range_ends_where_a_power_cut_left_the_file(disk):
    """A start wrote the corrupt range down, for unsynced bytes that it could not read; a power cut took them."""
    store = open_store(disk)
    log = make_topic(store).partitions[0]
    add_corrupt_range(log.segments[0], CorruptRange(0, 0, 0, 87))
    store, log = crash_and_open(disk)
    written = fill(log, 3)
    store, log = crash_and_open(disk)
    assert read_all(log) == written
    assert ledgered(store) == []


def test_the_last_recovery_is_kept_until_another_has_something_to_say(disk):
    written = damaged_above_a_checkpoint(disk)
    disk.flip(LOG, len(written[0]) + 16)
    store, _ = crash_and_open(disk)
    head, *notes = read_state(disk, "/data/last-recovery", "last-recovery")
    assert head[:3] == ["1", str(NOW_MS), "unclean"]
    assert [" ".join(words) for words in notes] == store.recovery_notes
    stop_and_open(disk, store)
    assert read_state(disk, "/data/last-recovery", "last-recovery")[0] == head


@pytest.mark.leaves("the snapshot is torn or damaged")
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


def gap_is_refused(log):
    """Whether one that was never heard of must begin at sequence 0."""
    try:
        append(log, batch(producer=(99, 0, 1)))
    except Refusal as refusal:
        return refusal.code in (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID)
    return False


@pytest.mark.parametrize("clean", [False, True])
def test_a_start_knows_who_never_wrote(disk, clean):
    store = open_store(disk)
    log = make_topic(store).partitions[0]
    assert gap_is_refused(log)
    store, log = stop_and_open(disk, store) if clean else crash_and_open(disk)
    assert gap_is_refused(log)
    append(log, batch(producer=(3, 0, 0)))
    sync(log)
    for _ in range(2):
        store, log = stop_and_open(disk, store) if clean else crash_and_open(disk)
        assert gap_is_refused(log)
    assert append(log, batch(producer=(3, 0, 1))).base_offset == 1


def test_a_start_knows_whom_it_may_have_forgotten(disk):
    store = open_store(disk)
    log = make_topic(store).partitions[0]
    append(log, batch(producer=(100, 0, 0)))
    log.writer.producers.forget(100)
    store, log = stop_and_open(disk, store)
    assert log.writer.producers.forgotten_max == 100
    assert not gap_is_refused(log)


def test_a_start_that_cannot_read_all_that_was_written_refuses_no_gap(disk):
    """By a damaged batch, or by what retention took with the last snapshot lost, anybody may have written."""
    damaged_above_a_checkpoint(disk)
    disk.flip(LOG, len(disk.content(LOG)) // 2)
    _, log = crash_and_open(disk)
    assert not gap_is_refused(log)


@pytest.mark.leaves("the snapshot is torn or damaged")
def test_a_start_behind_what_was_removed_goes_by_the_snapshot_alone(disk):
    store = open_store(disk)
    log = make_topic(store, config={"segment.bytes": "4096"}).partitions[0]
    fill(log, 30, 400)
    delete_records(log, 20, NOW)
    store, log = stop_and_open(disk, store)
    assert gap_is_refused(log)
    store.close()
    disk.remove("/data/clean-shutdown")
    for name in disk.names("/data/t-0"):
        if name.endswith(".snapshot"):
            disk.put(f"/data/t-0/{name}", b"damaged")
    store, log = crash_and_open(disk)
    assert log.log_start_offset == 20
    assert not gap_is_refused(log)


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


@pytest.mark.leaves("the entry speaks of no batch in the log")
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


@pytest.mark.leaves("this is no leader-epochs file")
def test_damaged_epoch_checkpoint_is_rebuilt_from_the_batches(disk):
    store = open_store(disk)
    fill(make_topic(store, config={"segment.bytes": "4096"}).partitions[0], 60, 200)
    store, log = crash_and_open(disk)
    fill(log, 60, 200)
    disk.put("/data/t-0/leader-epoch-checkpoint", b"damaged")
    store, log = crash_and_open(disk)
    assert [log.reader.epoch_end(epoch) for epoch in (0, 1, 2)] == [(0, 60), (1, 120), (2, 120)]


def test_damaged_positions_file_is_noted_and_the_log_is_kept(disk):
    store = open_store(disk)
    written = fill(make_topic(store).partitions[0], 5)
    store.checkpoint()
    disk.put("/data/recovery-point-offset-checkpoint", b"damaged")
    store, log = crash_and_open(disk)
    assert read_all(log) == written
    assert any("recovery-point-offset-checkpoint" in note for note in store.recovery_notes)


@pytest.mark.leaves("names topic id")
def test_directory_of_another_topic_is_refused_and_not_touched(disk):
    store = open_store(disk)
    written = fill(make_topic(store).partitions[0], 5)
    disk.put("/data/t-0/partition.metadata", b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ\n")
    store, log = crash_and_open(disk)
    assert log.fault is not None
    assert "does not name topic id" in str(log.fault)
    assert disk.content(LOG) == b"".join(written)
    with pytest.raises(StorageFault):
        log.reader.read(0, 10, blocking=True)


@pytest.mark.leaves("the partition")
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
    assert log.segments[0].corrupt_ranges[0][:2] == (1, 2)


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
    store = LogStore.open(disk, "/data", LogSettings(), reading_at(NOW_MS + 500), uuid.uuid4)
    log = store.topics["t"].partitions[0]
    append(log, batch(), NOW_MS + 1001)
    assert len(log.segments) == 2
