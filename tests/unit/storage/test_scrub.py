"""The scrubber: finds damage where nobody reads, disturbs nobody, gets round."""

import ctypes
import errno
import mmap
import os

import pytest

from edge_broker.configuration.settings import LogSettings
from edge_broker.storage.files.filesystem import Disk
from edge_broker.storage.maintenance.scrubber import PIECE_BYTES, Scrubber
from edge_broker.storage.metadata.loss_records import NoLedger
from edge_broker.testing.disk import SimulatedDisk
from edge_broker.testing.site import make_topic
from tests.support.storage import append, batch, fill, ledgered, open_store, read_through_damage, sync

SETTINGS = LogSettings(segment_bytes=4096, index_interval_bytes=500)
LOG = "/data/t-0/" + "0" * 20 + ".log"


@pytest.fixture
def disk():
    return SimulatedDisk(1)


def one_round(scrubber):
    """Bytes of one whole round, and how many pieces it took."""
    sizes = list(iter(scrubber.step, 0))
    return sum(sizes), len(sizes)


def test_a_round_reads_every_closed_segment_and_no_other(disk):
    store = open_store(disk, settings=SETTINGS)
    logs = make_topic(store, partitions=3).partitions
    for log in logs:
        fill(log, 60, 200)
    disk.cold = True
    scrubber = Scrubber(store)
    closed = sum(segment.size for log in logs for segment in log.segments[:-1])
    for number in (1, 2):
        assert one_round(scrubber)[0] == closed
        assert (scrubber.rounds, scrubber.bytes_read, scrubber.bytes_checked) == (
            number,
            closed * number,
            closed * number,
        )
    assert ledgered(store) == []


@pytest.mark.leaves("the entry speaks of no batch in the log")
def test_damage_that_nobody_reads_is_found_and_contained(disk):
    store = open_store(disk, settings=SETTINGS)
    log = make_topic(store).partitions[0]
    written = fill(log, 60, 200)
    size = len(written[0])
    for number in (2, 3, 9):
        disk.flip(LOG, number * size + 100)
    disk.put(log.segments[1].path, b"")
    log.close_files()
    disk.cold = True
    scrubber = Scrubber(store)
    one_round(scrubber)
    first, end = log.segments[1].base_offset, log.segments[2].base_offset
    assert ledgered(store) == [
        ("damaged", "t", 0, 2, 3),
        ("damaged", "t", 0, 9, 9),
        ("damaged", "t", 0, first, end - 1),
    ]
    assert len(scrubber.notes) == log.damages == 3
    assert read_through_damage(log) == [
        one for number, one in enumerate(written) if number not in (2, 3, 9, *range(first, end))
    ]
    one_round(scrubber)
    assert len(ledgered(store)) == 3


@pytest.mark.leaves("the CRC of a record batch does not match its bytes")
def test_what_cannot_be_written_down_is_said_and_left_alone(disk):
    store = open_store(disk, settings=SETTINGS)
    log = make_topic(store).partitions[0]
    fill(log, 60, 200)
    log.ledger = NoLedger()
    disk.flip(LOG, 100)
    scrubber = Scrubber(store)
    one_round(scrubber)
    assert log.segments[0].corrupt_ranges == ()
    assert [note for note in scrubber.notes if "cannot be written down" in note]


def test_a_read_that_fails_for_want_of_memory_is_no_damage(disk):
    store = open_store(disk, settings=SETTINGS)
    fill(make_topic(store).partitions[0], 60, 200)

    def broken(kind, path, size):
        if kind == "read" and path == LOG:
            raise OSError(errno.ENOMEM, "Cannot allocate memory", path)

    disk.fault = broken
    scrubber = Scrubber(store)
    one_round(scrubber)
    disk.fault = None
    assert ledgered(store) == []
    assert len(scrubber.notes) == 1


def test_a_batch_larger_than_a_piece_is_one_piece(disk):
    store = open_store(disk, settings=LogSettings(segment_bytes=4 * PIECE_BYTES))
    log = make_topic(store).partitions[0]
    for _ in range(5):
        append(log, batch(bytes(2 * PIECE_BYTES)))
    sync(log)
    assert one_round(Scrubber(store)) == (sum(segment.size for segment in log.segments[:-1]), len(log.segments) - 1)


def test_segments_that_go_while_it_is_their_turn_are_left_behind(disk):
    store = open_store(disk, settings=SETTINGS)
    topic = make_topic(store)
    fill(topic.partitions[0], 60, 200)
    scrubber = Scrubber(store)
    assert scrubber.step() > 0
    store.topic_files.erase_topic(store.remove_topic("t"))
    one_round(scrubber)
    assert (ledgered(store), scrubber.notes) == ([], [])


def test_each_start_begins_elsewhere(disk):
    store = open_store(disk, settings=SETTINGS)
    log = make_topic(store).partitions[0]
    fill(log, 100, 200)
    reads = []
    disk.fault = lambda kind, path, size: reads.append((store.directory.leader_epoch, path)) if kind == "read" else None
    for epoch in range(3):
        store.directory.leader_epoch = epoch
        Scrubber(store).step()
    assert len({path for _, path in reads}) == len(dict(reads)) == 3


def cached_bytes(path):
    """How much of a file is in the page cache, by mincore(2): a read would change it."""
    libc = ctypes.CDLL(None, use_errno=True)
    with open(path, "r+b") as file, mmap.mmap(file.fileno(), 0) as memory:
        pages = (ctypes.c_ubyte * (-(-len(memory) // mmap.PAGESIZE)))()
        start = ctypes.c_char.from_buffer(memory)
        failed = libc.mincore(ctypes.c_void_p(ctypes.addressof(start)), ctypes.c_size_t(len(memory)), pages)
        del start
    assert not failed, os.strerror(ctypes.get_errno())
    return sum(page & 1 for page in pages) * mmap.PAGESIZE


def test_memory_keeps_what_it_held_and_nothing_else(tmp_path):
    store = open_store(Disk(), str(tmp_path / "data"), LogSettings(segment_bytes=1 << 20))
    log = make_topic(store).partitions[0]
    fill(log, 40, 100_000)
    hot, cold = log.segments[0], log.segments[1]
    file = Disk().open(cold.path)
    file.forget_cached(0, 0)
    assert cached_bytes(cold.path) == 0, "this file system keeps everything in memory, so nothing can be told"
    before = cached_bytes(hot.path)
    assert before >= hot.size
    scrubber = Scrubber(store)
    one_round(scrubber)
    assert cached_bytes(hot.path) == before
    assert cached_bytes(cold.path) <= 2 * mmap.PAGESIZE
    assert cold.size <= scrubber.bytes_read <= cold.size * 2
