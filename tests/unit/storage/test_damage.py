"""Damage in segments: found by CRC, fenced in, written down, and everything around it still read."""

import errno

import pytest

from edge_broker.configuration.settings import LogSettings
from edge_broker.errors import StorageFault
from edge_broker.protocol.record_batch import read_header
from edge_broker.storage.loss.quarantine import quarantine
from edge_broker.storage.segment.batch_scan import CorruptRange
from edge_broker.storage.segment.segment import DamageFound
from edge_broker.testing.clock import NOW_MS
from edge_broker.testing.disk import SimulatedDisk
from edge_broker.testing.site import make_topic
from tests.support.storage import ListLedger, append, batch, fill, open_store, read_through_damage, sync

FIRST = "/data/t-0/" + "0" * 20
LOG = FIRST + ".log"
SETTINGS = LogSettings(segment_bytes=4096, index_interval_bytes=500)


@pytest.fixture
def disk():
    return SimulatedDisk(1)


class Damaged:
    """A log of some sealed segments, opened anew so that nothing counts as checked, with a ledger to look into."""

    def __init__(self, disk, batches=60, size=200, settings=SETTINGS):
        self.disk = disk
        self.settings = settings
        store = open_store(disk, settings=settings)
        log = make_topic(store).partitions[0]
        self.written = fill(log, batches, size)
        self.bases = [segment.base_offset for segment in log.segments]
        store.close()
        disk.kill()
        self.ledger = ListLedger()

    def open(self):
        self.disk.kill()
        self.store = open_store(self.disk, settings=self.settings)
        self.log = self.store.topics["t"].partitions[0]
        self.log.ledger = self.ledger
        return self.log

    def rest(self, *lost):
        return [one for number, one in enumerate(self.written) if number not in lost]


@pytest.fixture
def damaged(disk):
    return Damaged(disk)


def at(damaged, number, byte=0):
    """A byte of a batch of the first segment."""
    return sum(map(len, damaged.written[:number])) + byte


@pytest.mark.parametrize("byte", [0, 7, 8, 11, 16, 17, 21, 23, 27, 43, 57, 61, 90, 150])
@pytest.mark.parametrize("number", [0, 3, 7])
def test_one_flipped_bit_costs_its_batch_and_no_other(damaged, disk, number, byte):
    disk.flip(LOG, at(damaged, number, byte))
    log = damaged.open()
    assert read_through_damage(log) == damaged.rest(number)
    (loss,) = damaged.ledger.losses
    assert (loss.cause, loss.topic, loss.partition, loss.first_offset, loss.end_offset) == (
        "damaged",
        "t",
        0,
        number,
        number + 1,
    )
    assert loss.bytes == len(damaged.written[number])
    assert loss.topic_id == log.topic_id
    assert (log.high_watermark, log.log_end_offset, log.fault) == (60, 60, None)


def test_a_corrupt_range_outlives_the_process_and_is_not_written_down_again(damaged, disk):
    disk.flip(LOG, at(damaged, 3, 70))
    log = damaged.open()
    assert read_through_damage(log) == damaged.rest(3)
    assert log.segments[0].corrupt_ranges == (CorruptRange(3, 4, at(damaged, 3), at(damaged, 4)),)
    log = damaged.open()
    assert read_through_damage(log) == damaged.rest(3)
    assert len(damaged.ledger.losses) == 1
    assert f"{FIRST}.holes" in [f"/data/t-0/{name}" for name in disk.names("/data/t-0")]


def test_records_and_times_are_known_while_headers_are_right(damaged, disk):
    disk.flip(LOG, at(damaged, 3, 70))
    disk.flip(LOG, at(damaged, 4, 70))
    disk.flip(LOG, at(damaged, 9, 16))
    read_through_damage(damaged.open())
    both, lost = damaged.ledger.losses
    assert (both.first_offset, both.end_offset, both.records) == (3, 5, 2)
    assert (both.first_timestamp, both.last_timestamp) == (NOW_MS, NOW_MS)
    assert (lost.first_offset, lost.end_offset, lost.records, lost.first_timestamp) == (9, 10, None, None)


@pytest.mark.parametrize(("start", "end"), [(0, 4096), (1000, 1600), (3000, 4000)])
def test_lost_pages(damaged, disk, start, end):
    content = bytearray(disk.content(LOG))
    content[start:end] = bytes(len(content[start:end]))
    disk.put(LOG, bytes(content))
    log = damaged.open()
    size = len(damaged.written[0])
    first, last = start // size, min((end - 1) // size, damaged.bases[1] - 1)
    assert read_through_damage(log) == damaged.rest(*range(first, last + 1))
    assert damaged.ledger.offsets() == [(first, last + 1)]
    assert log.reader.read(first, 10_000, blocking=True)[:8] == (last + 1).to_bytes(8, "big")  # the next one


@pytest.mark.leaves("the entry speaks of no batch in the log")
@pytest.mark.parametrize("kept", [0, 1, 3, 3.5])
def test_a_closed_segment_that_is_cut_short(damaged, disk, kept):
    size = len(damaged.written[0])
    disk.put(LOG, disk.content(LOG)[: int(kept * size)])
    log = damaged.open()
    lost = range(int(kept), damaged.bases[1])
    assert read_through_damage(log) == damaged.rest(*lost)
    assert damaged.ledger.offsets() == [(lost.start, lost.stop)]
    assert read_through_damage(damaged.open()) == damaged.rest(*lost)
    assert len(damaged.ledger.losses) == 1


def test_a_closed_segment_that_is_missing(damaged, disk):
    disk.remove(f"/data/t-0/{damaged.bases[1]:020d}.log")
    disk.sync_directory("/data/t-0")
    log = damaged.open()
    lost = range(damaged.bases[1], damaged.bases[2])
    assert read_through_damage(log) == damaged.rest(*lost)
    assert damaged.ledger.offsets() == [(lost.start, lost.stop)]
    assert log.reader.read(lost.start + 2, 10_000, blocking=True)[:8] == lost.stop.to_bytes(8, "big")


@pytest.mark.leaves("offsets", "says end_offset")
def test_a_file_that_goes_while_the_broker_runs(damaged, disk):
    log = damaged.open()
    disk.remove(f"/data/t-0/{damaged.bases[1]:020d}.log")
    log.close_files()
    lost = range(damaged.bases[1], damaged.bases[2])
    assert read_through_damage(log) == damaged.rest(*lost)
    assert damaged.ledger.offsets() == [(lost.start, lost.stop)]


def test_pages_that_the_disk_gives_up_on(damaged, disk):
    log = damaged.open()

    def broken(kind, path, size):
        if kind == "read" and path == f"/data/t-0/{damaged.bases[1]:020d}.log":
            raise OSError(errno.EIO, "Input/output error", path)

    disk.fault = broken
    disk.cold = True
    lost = range(damaged.bases[1], damaged.bases[2])
    assert read_through_damage(log) == damaged.rest(*lost)
    assert damaged.ledger.offsets() == [(lost.start, lost.stop)]


@pytest.mark.parametrize("number", [errno.ENOMEM, errno.EMFILE])
def test_a_read_that_fails_for_want_of_something_else_is_no_damage(damaged, disk, number):
    log = damaged.open()
    log.close_files()

    def broken(kind, path, size):
        if kind == "read" and path == LOG:
            raise OSError(number, "not now", path)

    disk.fault = broken
    with pytest.raises(StorageFault, match="not now"):
        log.reader.read(0, 100, blocking=True)
    disk.fault = None
    assert read_through_damage(log) == damaged.written
    assert damaged.ledger.losses == []


def test_two_readers_that_meet_the_same_damage_write_it_down_once(damaged, disk):
    disk.flip(LOG, at(damaged, 3, 70))
    log = damaged.open()
    found = []
    for _ in range(2):
        with pytest.raises(DamageFound) as met:
            log.reader.read(3, 1000, blocking=True)
        found.append(met.value)
    assert quarantine(log, found[0]) == CorruptRange(3, 4, at(damaged, 3), at(damaged, 4))
    assert quarantine(log, found[1]) is None
    assert len(damaged.ledger.losses) == 1


def test_a_crash_between_ledger_and_corrupt_ranges_repeats_the_same_id(damaged, disk):
    disk.flip(LOG, at(damaged, 3, 70))
    log = damaged.open()

    def full(kind, path, size):
        if kind == "create" and path.startswith("/data/t-0/"):
            raise OSError(errno.ENOSPC, "No space left on device", path)

    disk.fault = full
    with pytest.raises(StorageFault, match="No space left"):
        read_through_damage(log)
    assert log.segments[0].corrupt_ranges == ()
    assert read_through_damage(damaged.open()) == damaged.rest(3)
    first, again = damaged.ledger.losses
    assert first.id == again.id


@pytest.mark.leaves("the CRC of a record batch does not match its bytes")
def test_nothing_is_jumped_over_that_the_ledger_does_not_have(damaged, disk):
    disk.flip(LOG, at(damaged, 3, 70))
    log = damaged.open()
    damaged.ledger.fault = StorageFault("ledger", 0, "full")
    with pytest.raises(StorageFault, match="full"):
        read_through_damage(log)
    assert log.segments[0].corrupt_ranges == ()
    assert f"{FIRST}.holes" not in disk.names("/data/t-0")


@pytest.mark.leaves("the entry speaks of no batch in the log")
def test_a_lying_index_is_no_damage(damaged, disk):
    index = bytearray(disk.content(FIRST + ".index"))
    for entry in range(0, len(index), 8):
        index[entry + 7] ^= 0x55  # positions amid batches
    disk.put(FIRST + ".index", bytes(index))
    log = damaged.open()
    assert read_through_damage(log) == damaged.written
    assert damaged.ledger.losses == []


def test_damage_and_a_lost_index(damaged, disk):
    disk.remove(FIRST + ".index")
    disk.flip(LOG, at(damaged, 3, 16))
    disk.flip(LOG, at(damaged, 9, 7))
    assert read_through_damage(damaged.open()) == damaged.rest(3, 9)
    assert damaged.ledger.offsets() == [(3, 4), (9, 10)]


def test_corrupt_ranges_that_were_lost_are_found_again_under_the_same_id(damaged, disk):
    disk.flip(LOG, at(damaged, 3, 70))
    read_through_damage(damaged.open())
    disk.put(FIRST + ".holes", b"damaged")
    log = damaged.open()
    assert any(".holes" in note and "looked for again" in note for note in damaged.store.recovery_notes)
    assert read_through_damage(log) == damaged.rest(3)
    assert len({loss.id for loss in damaged.ledger.losses}) == 1


def test_damage_that_grows_around_a_corrupt_range(damaged, disk):
    disk.flip(LOG, at(damaged, 5, 70))
    read_through_damage(damaged.open())
    disk.flip(LOG, at(damaged, 4, 16))
    disk.flip(LOG, at(damaged, 6, 16))
    assert read_through_damage(damaged.open()) == damaged.rest(4, 5, 6)
    assert damaged.ledger.offsets() == [(4, 5), (5, 6), (6, 7)]
    assert read_through_damage(damaged.open()) == damaged.rest(4, 5, 6)


def test_a_batch_inside_the_payload_of_a_damaged_one_is_not_taken_for_the_next(disk):
    store = open_store(disk, settings=SETTINGS)
    log = make_topic(store).partitions[0]
    inner = bytearray(batch(b"inner"))
    inner[0:8] = (1).to_bytes(8, "big")
    append(log, batch(b"zero"))
    append(log, batch(b"x" * 50 + bytes(inner) + b"y" * 50, b"more"))
    append(log, batch(b"three"))
    sync(log)
    store.checkpoint()
    disk.flip(LOG, len(batch(b"zero")) + 70)
    ledger = log.ledger = ListLedger()
    offsets = [read_header(one).base_offset for one in read_through_damage(log)]
    assert offsets == [0, 3]
    assert ledger.offsets() == [(1, 3)]


def test_lookups_by_time_stop_at_damage_and_go_on_behind_it(damaged, disk):
    disk.flip(LOG, at(damaged, 0, 70))
    log = damaged.open()
    with pytest.raises(DamageFound) as met:
        log.reader.offset_for_timestamp(NOW_MS)
    quarantine(log, met.value)
    assert log.reader.offset_for_timestamp(NOW_MS) == (1, NOW_MS)


@pytest.mark.leaves("the CRC of a record batch does not match its bytes")
@pytest.mark.parametrize("start", ["this process wrote it", "a start found it"])
def test_what_memory_holds_is_checked_at_every_read(disk, start):
    log = make_topic(open_store(disk, settings=SETTINGS)).partitions[0]
    written = fill(log, 60, 200)
    if start == "a start found it":
        disk.crash()
        log = open_store(disk, settings=SETTINGS).topics["t"].partitions[0]
    log.reader.read(0, 1, blocking=True)  # the index of a closed segment may have to be read first
    first, rest = len(written[0]), b"".join(written[: log.segments[1].base_offset])
    for _ in range(2):
        assert log.reader.read(0, 100_000, blocking=False) == rest
    disk.flip(LOG, first * 2 + 100)
    assert log.reader.read(0, 100_000, blocking=False) == rest[: first * 2]
    assert log.reader.read(2, 100_000, blocking=False) is None
    with pytest.raises(DamageFound, match=f"at byte {first * 2}: the CRC"):
        log.reader.read(2, 100_000, blocking=True)


def test_nothing_is_contained_in_a_deleted_topics_directory_which_may_be_another_topics(disk):
    damaged = Damaged(disk)
    log = damaged.open()
    segment = log.segments[0]
    damaged.store.topic_files.erase_topic(damaged.store.remove_topic("t"))
    make_topic(damaged.store)
    names = disk.names("/data/t-0")
    with pytest.raises(StorageFault, match="deleted"):
        quarantine(log, DamageFound(segment, 0, "no record batch begins here"))
    assert damaged.ledger.losses == []
    assert disk.names("/data/t-0") == names
