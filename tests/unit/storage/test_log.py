"""One partition: what is written, synced and shown, and what happens when the disk fails."""

import errno
import os
import zlib

import pytest

from edge_broker.configuration.settings import LEFT_TO_KERNEL_MS, LogSettings
from edge_broker.errors import ErrorCode, Refusal, StorageFault
from edge_broker.protocol.crc import crc32c
from edge_broker.protocol.record_batch import CHECKED_POSITION, CRC_POSITION, check_batch, read_header, records_of
from edge_broker.storage.files.filesystem import Disk, DiskFile
from edge_broker.storage.log import single_node_watermark
from edge_broker.storage.log.log_writer import RollDue
from edge_broker.storage.retention.segment_removal import active_expired, delete_expired
from edge_broker.storage.segment.segment import DamageFound
from edge_broker.testing.clock import NOW_MS
from edge_broker.testing.disk import SimulatedDisk
from edge_broker.testing.site import make_topic
from tests.support.storage import NOW, append, batch, fill, open_store, read_all, sync, time_at


@pytest.fixture
def disk():
    return SimulatedDisk(1)


def new_log(disk, **config):
    settings = {key.replace("_", "."): str(value) for key, value in config.items()}
    return make_topic(open_store(disk), config=settings).partitions[0]


def fail_on(kind, error=errno.EIO, path_end=""):
    def fault(step, path, size):
        if step == kind and path.endswith(path_end):
            raise OSError(error, os.strerror(error), path)

    return fault


def test_nothing_is_shown_before_it_is_synced(disk):
    log = new_log(disk)
    assert append(log, batch(b"a", b"b")) == (0, 2, -1, False)
    assert (log.log_end_offset, log.synced_end.offset, log.high_watermark) == (2, 0, 0)
    assert log.reader.read(0, 1000, blocking=True) == b""
    assert log.reader.max_timestamp() == (-1, -1)
    flush = log.writer.begin_flush()
    append(log, batch(b"c"))
    flush.run()
    assert log.high_watermark == 0
    log.writer.finish_flush(flush)
    single_node_watermark.advance_high_watermark(log.state)
    assert (log.log_end_offset, log.high_watermark) == (3, 2)
    assert len(read_all(log)) == 1
    assert log.reader.max_timestamp() == (1, NOW_MS)


def test_topic_left_to_the_kernel_shows_what_is_written(disk):
    log = new_log(disk, flush_ms=LEFT_TO_KERNEL_MS)
    append(log, batch(b"a"))
    assert log.high_watermark == 1
    assert len(read_all(log)) == 1
    assert log.reader.max_timestamp() == (0, NOW_MS)


def test_a_reader_that_goes_on_looks_for_nothing(disk, monkeypatch):
    log = new_log(disk)
    for number in range(40):
        append(log, batch(b"%02d" % number * 300))
    sync(log)
    written = read_all(log)
    reads: list[int] = []
    cached = type(log.segments[0].open_file).read_cached

    def counted(file, size_max, position):
        reads.append(size_max)
        return cached(file, size_max, position)

    monkeypatch.setattr(type(log.segments[0].open_file), "read_cached", counted)
    found, offset, reads_each = [], 0, []
    while offset < len(written):
        reads.clear()
        found.append(bytes(log.reader.read(offset, len(written[20]) + 100, blocking=False)))
        offset = read_header(found[-1]).next_offset
        reads_each.append(len(reads))
    assert found == written
    assert set(reads_each[1:]) == {1}


def test_offsets_and_epoch_are_stamped_and_the_bytes_are_kept(disk):
    log = new_log(disk)
    append(log, batch(b"a", b"b"))
    records = batch(b"c")
    append(log, records)
    sync(log)
    assert read_all(log)[1] == bytes(records)
    assert read_header(records).base_offset == 2
    assert check_batch(batch(b"c"), 1000).crc == read_header(records).crc


def test_reads_hold_whole_batches_one_at_least_and_at_most_so_many_bytes(disk):
    log = new_log(disk)
    written = fill(log, 10, 200)
    assert log.reader.read(3, 1, blocking=True) == written[3]
    assert log.reader.read(3, len(written[3]) * 2 + 20, blocking=True) == written[3] + written[4]
    assert log.reader.read(3, 1 << 20, blocking=True) == b"".join(written[3:])
    assert log.reader.read(10, 100, blocking=True) == b""


@pytest.mark.parametrize("offset", [-1, 11])
def test_reads_outside_the_log_are_refused(disk, offset):
    log = new_log(disk)
    fill(log, 10)
    with pytest.raises(Refusal) as refused:
        log.reader.read(offset, 100, blocking=True)
    assert refused.value.code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_cold_data_is_left_to_a_worker(disk):
    log = new_log(disk)
    written = fill(log, 3)
    disk.cold = True
    assert log.reader.read(0, 1 << 20, blocking=False) is None
    assert log.reader.read(0, 1 << 20, blocking=True) == b"".join(written)


def test_full_segment_is_closed_and_synced_before_the_next_takes_data(disk):
    log = new_log(disk, segment_bytes=4096)
    records = batch(b"x" * 3000)
    append(log, records)
    late = batch(b"y" * 3000)
    with pytest.raises(RollDue):
        log.writer.append(late, check_batch(late, 1 << 20), NOW)
    assert log.writer.rolling
    assert read_header(late).base_offset == 0
    log.roller.roll()
    with pytest.raises(RollDue):
        log.writer.append(late, check_batch(late, 1 << 20), NOW_MS)
    log.writer.end_roll()
    single_node_watermark.advance_high_watermark(log.state)
    assert log.high_watermark == log.log_end_offset == 1
    assert append(log, late).base_offset == 1
    sync(log)
    assert read_all(log) == [bytes(records), bytes(late)]
    names = disk.names(log.directory)
    for name in ("0" * 20 + ".index", "0" * 20 + ".timeindex", "0" * 19 + "1.snapshot", "0" * 19 + "1.log"):
        assert name in names


def test_a_roll_that_is_not_due_does_nothing(disk):
    log = new_log(disk)
    fill(log, 1)
    log.roller.roll()
    assert len(log.segments) == 1


def test_old_segment_is_closed_by_the_next_append(disk):
    log = new_log(disk, segment_ms=1000)
    append(log, batch(), NOW_MS)
    append(log, batch(), NOW_MS + 1000)
    assert len(log.segments) == 1
    append(log, batch(), NOW_MS + 1001)
    assert len(log.segments) == 2


def test_a_sync_that_began_before_a_roll_changes_nothing_afterwards(disk):
    log = new_log(disk, segment_bytes=4096)
    append(log, batch(b"x" * 1000))
    flush = log.writer.begin_flush()
    flush.run()
    append(log, batch(b"x" * 2500))
    append(log, batch(b"x" * 1000))
    assert (len(log.segments), log.synced_end.offset) == (2, 2)
    log.writer.finish_flush(flush)
    single_node_watermark.advance_high_watermark(log.state)
    assert log.synced_end.offset == 2


def test_failed_sync_takes_the_partition_offline_and_is_never_retried(disk):
    log = new_log(disk)
    append(log, batch())
    flush = log.writer.begin_flush()
    disk.fault = fail_on("datasync")
    with pytest.raises(StorageFault, match=r"00\.log at byte \d+: Input/output error") as failed:
        flush.run()
    disk.fault = None
    with pytest.raises(StorageFault, match="an earlier sync failed"):
        flush.run()
    log.fail(failed.value)
    log.writer.finish_flush(flush)
    single_node_watermark.advance_high_watermark(log.state)
    assert log.high_watermark == 0
    assert log.writer.begin_flush() is None
    for call in (lambda: append(log, batch()), lambda: log.reader.read(0, 9, blocking=True), log.reader.max_timestamp):
        with pytest.raises(StorageFault):
            call()


def test_failed_sync_of_a_roll_takes_the_partition_offline(disk):
    log = new_log(disk, segment_bytes=4096)
    append(log, batch(b"x" * 3000))
    disk.fault = fail_on("datasync", path_end=".log")
    with pytest.raises(StorageFault):
        append(log, batch(b"x" * 3000))
    assert log.fault is not None
    with pytest.raises(StorageFault):
        append(log, batch())


@pytest.mark.parametrize("accepted", [0, 40])
def test_no_space_leaves_nothing_behind_and_the_partition_online(disk, accepted):
    log = new_log(disk)
    written = fill(log, 2)
    calls = []

    def full(kind, path, size):
        if kind == "write":
            calls.append(path)
            if len(calls) > 1 or not accepted:
                raise OSError(errno.ENOSPC, "No space left on device", path)
            return accepted
        return None

    disk.fault = full
    with pytest.raises(Refusal, match="free space") as refused:
        append(log, batch(b"refused"))
    assert refused.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    disk.fault = None
    assert log.fault is None
    assert len(disk.content(f"{log.directory}/{0:020d}.log")) == sum(map(len, written))
    assert append(log, batch(b"kept")).base_offset == 2


def test_short_write_is_continued(disk):
    log = new_log(disk)
    disk.fault = lambda kind, path, size: min(size, 7) if kind == "write" else None
    records = batch(b"whole")
    append(log, records)
    sync(log)
    assert read_all(log) == [bytes(records)]


def test_failed_write_takes_the_partition_offline(disk):
    log = new_log(disk)
    disk.fault = fail_on("write")
    with pytest.raises(StorageFault):
        append(log, batch())
    assert log.fault is not None


def test_no_space_for_a_roll_refuses_one_append_and_is_tried_again(disk):
    log = new_log(disk, segment_bytes=4096)
    first = batch(b"x" * 3000)
    append(log, first)
    disk.fault = fail_on("create", errno.ENOSPC)
    with pytest.raises(Refusal, match="free space"):
        append(log, batch(b"y" * 3000))
    disk.fault = None
    assert log.fault is None
    second = batch(b"z" * 3000)
    append(log, second)
    sync(log)
    assert read_all(log) == [bytes(first), bytes(second)]


def test_duplicate_is_answered_and_not_written(disk):
    log = new_log(disk)
    append(log, batch(b"a", b"b", producer=(5, 0, 0)))
    assert append(log, batch(b"a", b"b", producer=(5, 0, 0))) == (0, 2, -1, True)
    assert log.log_end_offset == 2


def test_refused_write_does_not_count_for_the_producer(disk):
    log = new_log(disk)
    disk.fault = fail_on("write", errno.ENOSPC)
    with pytest.raises(Refusal, match="free space"):
        append(log, batch(producer=(5, 0, 0)))
    disk.fault = None
    assert append(log, batch(producer=(5, 0, 0))).duplicate is False


def test_log_append_time_is_stamped_with_a_right_crc(disk):
    log = new_log(disk, message_timestamp_type="LogAppendTime")
    appended = append(log, batch(b"a", timestamp_ms=5), NOW_MS + 7)
    assert appended.append_time_ms == NOW_MS + 7
    sync(log)
    data = bytearray(read_all(log)[0])
    assert next(records_of(memoryview(data))).timestamp == NOW_MS + 7
    assert log.reader.offset_for_timestamp(NOW_MS) == (0, NOW_MS + 7)
    data[22] &= ~8
    assert check_batch(bytes(batch(b"a", timestamp_ms=5)), 1000)
    disk.crash()
    assert open_store(disk).topics["t"].partitions[0].log_end_offset == 1  # recovery checks CRCs


def test_offset_for_timestamp_looks_into_sealed_and_active_segments(disk):
    log = new_log(disk, segment_bytes=4096)
    for number in range(40):
        append(log, batch(b"x" * 300, b"y", timestamp_ms=NOW_MS + number * 10))
    sync(log)
    assert len(log.segments) > 2
    for number in (0, 1, 5, 20, 39):
        assert log.reader.offset_for_timestamp(NOW_MS + number * 10) == (number * 2, NOW_MS + number * 10)
        assert log.reader.offset_for_timestamp(NOW_MS + number * 10 - 5) == (number * 2, NOW_MS + number * 10)
    assert log.reader.offset_for_timestamp(NOW_MS + 391) is None
    assert log.reader.max_timestamp() == (79, NOW_MS + 390)


def test_offset_for_timestamp_of_a_batch_that_cannot_be_unpacked(disk):
    log = new_log(disk)
    records = batch(b"x", timestamp_ms=NOW_MS)
    records[22] = 1  # says gzip, is not
    records[CRC_POSITION:CHECKED_POSITION] = crc32c(records[CHECKED_POSITION:]).to_bytes(4, "big")
    append_unchecked(log, records)
    assert log.reader.offset_for_timestamp(NOW_MS - 5) == (0, NOW_MS)


def append_unchecked(log, records):
    log.writer.append(records, read_header(records), NOW)
    sync(log)


def test_retention_deletes_whole_sealed_segments_from_the_start(disk):
    log = new_log(disk, segment_bytes=4096, retention_ms=1000)
    written = fill(log, 60, 200)
    sealed = len(log.segments) - 1
    assert not active_expired(log, time_at(NOW_MS + 1000))
    assert delete_expired(log, time_at(NOW_MS + 1000)) == 0
    assert delete_expired(log, time_at(NOW_MS + 1001)) == sealed
    assert len(log.segments) == 1
    start = log.log_start_offset
    assert read_all(log) == written[start:]
    assert [name for name in disk.names(log.directory) if name.startswith("0" * 20)] == []
    disk.crash()
    again = open_store(disk).topics["t"].partitions[0]
    assert (again.log_start_offset, again.log_end_offset) == (start, 60)


def test_greatest_timestamp_goes_with_the_segment_that_had_it(disk):
    log = new_log(disk, segment_bytes=4096, retention_ms=1000)
    fill(log, 10, 200)
    log.writer.rolling = True
    log.roller.roll()
    log.writer.end_roll()
    single_node_watermark.advance_high_watermark(log.state)
    assert log.reader.max_timestamp() == (0, NOW_MS)
    assert delete_expired(log, time_at(NOW_MS + 1001)) == 1
    assert log.reader.max_timestamp() == (-1, -1)


def test_failed_deletion_is_finished_by_the_next_start(disk):
    log = new_log(disk, segment_bytes=4096, retention_ms=1)
    written = fill(log, 60, 200)
    disk.fault = fail_on("remove")
    with pytest.raises(StorageFault, match="Input/output error"):
        delete_expired(log, time_at(NOW_MS + 1000))
    start = log.log_start_offset
    assert start > 0
    assert log.fault is None
    assert read_all(log) == written[start:]
    disk.crash()
    again = open_store(disk).topics["t"].partitions[0]
    assert (again.log_start_offset, again.log_end_offset, len(again.segments)) == (start, 60, 1)
    assert not [name for name in disk.names(again.directory) if name.startswith("0" * 20)]


def test_retention_by_size_keeps_at_least_so_much(disk):
    log = new_log(disk, segment_bytes=4096, retention_ms=-1, retention_bytes=6000)
    fill(log, 60, 200)
    delete_expired(log, time_at(NOW_MS))
    assert 6000 <= log.size < 6000 + 4096


def test_compacted_topics_are_kept_whole(disk):
    log = new_log(disk, segment_bytes=4096, retention_ms=1, cleanup_policy="compact")
    fill(log, 60, 200)
    assert not active_expired(log, time_at(NOW_MS + 10**10))
    assert delete_expired(log, time_at(NOW_MS + 10**10)) == 0


def test_epoch_end_never_exceeds_the_high_watermark(disk):
    log = new_log(disk)
    append(log, batch())
    assert log.reader.epoch_end(0) == (0, 0)
    sync(log)
    assert log.reader.epoch_end(0) == (0, 1)
    assert log.reader.epoch_end(1) == (-1, -1)


def test_damaged_or_lost_indexes_are_made_again(disk):
    log = new_log(disk, segment_bytes=8192)
    written = fill(log, 100, 300)
    append(log, batch(b"x" * 8000))
    for damage in (b"\xff" * 16, b"\0" * 160, b"\x01"):
        disk.put(f"{log.directory}/{0:020d}.index", damage)
        log.close_files()
        assert log.reader.read(15, 10, blocking=False) is None
        assert log.reader.read(15, 10, blocking=True) == written[15]
    disk.remove(f"{log.directory}/{0:020d}.index")
    log.close_files()
    assert log.reader.read(15, 10, blocking=True) == written[15]


@pytest.mark.leaves("no record batch begins here")
def test_damaged_batch_in_front_of_the_wanted_one_is_found_and_names_the_byte(disk):
    log = new_log(disk, segment_bytes=8192)
    written = fill(log, 60, 300)
    disk.put(f"{log.directory}/{0:020d}.index", b"")
    position = len(written[0]) + 16
    for bit in range(3):
        disk.flip(f"{log.directory}/{0:020d}.log", position - bit * 5)
    log.close_files()
    with pytest.raises(DamageFound, match=f"00.log at byte {len(written[0])}"):
        log.reader.read(1, 10, blocking=True)


def test_open_files_are_bounded_and_readers_keep_theirs(tmp_path):
    store = open_store(Disk(), str(tmp_path), LogSettings(segment_bytes=4096, index_interval_bytes=128))
    log = make_topic(store).partitions[0]
    log.files._files_max = 4
    written = fill(log, 200, 1000)
    held = log.segments[0].file
    assert read_all(log, 4000) == written
    assert log.files.count() <= 4
    assert bytes(held.read(61, 0)) == written[0][:61]
    store.close()


def test_real_disk_answers_cold_reads_with_none_or_bytes(tmp_path):
    file = Disk().create(str(tmp_path / "f"))
    data = zlib.compress(b"x") * 1000
    assert file.write(data, 0) == len(data)
    file.datasync()
    cached = file.read_cached(100, 50)
    assert cached is None or bytes(cached) == data[50:150]
    assert file.read(1 << 20, 10) == data[10:]
    assert file.read(10, len(data)) == b""


def test_what_a_quick_disk_brings_while_memory_is_asked_is_not_taken_for_held(tmp_path, monkeypatch):
    file = Disk().create(str(tmp_path / "f"))
    file.write(bytes(1 << 20), 0)
    file.datasync()
    file.read(4096, 8192)
    without_flags = os.preadv
    monkeypatch.setattr(os, "preadv", lambda number, buffers, position, _: without_flags(number, buffers, position))
    assert file.read_cached(4096, 8192) == bytes(4096)
    file.forget_cached(0, 0)
    assert file.read_cached(4096, 8192) is None, "or this file system keeps everything in memory"


def test_file_systems_that_cannot_tell_leave_reads_to_a_worker(tmp_path, monkeypatch):
    file = Disk().create(str(tmp_path / "f"))

    def refuse(*_):
        raise OSError(errno.EOPNOTSUPP, "Operation not supported")

    monkeypatch.setattr(os, "preadv", refuse)
    assert file.read_cached(10, 0) is None


def test_descriptor_is_closed_with_the_last_reference(tmp_path):
    file = DiskFile(str(tmp_path / "f"), os.O_RDWR | os.O_CREAT)
    number = file._descriptor
    os.fstat(number)
    del file
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(number)
