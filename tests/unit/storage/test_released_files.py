"""Files whose name is gone are closed when nobody reads them, so that the disk has its space back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from edge_broker.storage.files.filesystem import Disk
from edge_broker.storage.log.partition_log import PartitionLog
from edge_broker.storage.log_store import LogStore
from edge_broker.storage.maintenance.log_cleaner import LogCleaner
from edge_broker.storage.maintenance.scrubber import Scrubber
from edge_broker.storage.retention.segment_removal import delete_expired
from edge_broker.testing.clock import NOW_MS
from edge_broker.testing.site import make_topic
from tests.support.compaction import BUFFER_BYTES, CONFIG, clean, fill_keys, latest_of, write
from tests.support.open_files import deleted_but_open
from tests.support.storage import NOW, open_store, read_all, sync, time_at


@pytest.fixture
def store(tmp_path: Path) -> Iterator[LogStore]:
    opened = open_store(Disk(), str(tmp_path / "data"))
    yield opened
    opened.close()


def compacted(store: LogStore) -> PartitionLog:
    (log,) = make_topic(store, config=CONFIG).partitions
    return log


def fill_and_sync(log: PartitionLog, rounds: int) -> None:
    """Every batch has a commit round of its own, as at acks=all."""
    for number in range(rounds):
        write(log, *[(b"key-%d" % key, b"%d" % number + b"." * 60) for key in range(8)])
        sync(log)


def test_compaction_gives_its_space_back(store: LogStore, tmp_path: Path) -> None:
    log = compacted(store)
    for _ in range(3):
        fill_and_sync(log, 40)
        assert clean(store).passes == 1
        assert deleted_but_open(tmp_path) == []


def test_a_pass_gives_space_back_as_it_goes(store: LogStore, tmp_path: Path) -> None:
    """A pass over a large log takes hours: what it has replaced must not wait for its end."""
    log = compacted(store)
    for number in range(120):
        write(log, *[(b"key-%d-%d" % (number, key), b"." * 60) for key in range(8)])
        if number % 2:
            write(log, *[(b"key-%d-%d" % (number, key), b"." * 60) for key in range(4)])
    sync(log)
    read_all(log)
    cleaner = LogCleaner(store, BUFFER_BYTES)
    sizes = {segment.size for segment in log.segments}
    replacing = 0
    while cleaner.step(NOW, 1):
        assert deleted_but_open(tmp_path) == []
        now = {segment.size for segment in log.segments}
        replacing += now != sizes
        sizes = now
    assert replacing > 4


def test_a_read_under_way_keeps_its_file_until_it_ends(store: LogStore, tmp_path: Path) -> None:
    log = compacted(store)
    fill_keys(log, 60)
    reading = log.segments[0]
    there = bytes(reading.read(reading.size, 0, blocking=True))
    clean(store)
    assert deleted_but_open(tmp_path) == [reading.path]
    assert bytes(reading.read(reading.size, 0, blocking=True)) == there
    del reading
    assert deleted_but_open(tmp_path) == []


def test_a_scrubber_amid_its_round_holds_one_segment_at_most(store: LogStore, tmp_path: Path) -> None:
    log = compacted(store)
    fill_keys(log, 100)
    scrubber = Scrubber(store)
    for _ in range(3):
        assert scrubber.step()
    latest = latest_of(log)
    clean(store)
    assert len(set(deleted_but_open(tmp_path))) <= 1
    while scrubber.step():
        pass
    assert deleted_but_open(tmp_path) == []
    assert (scrubber.notes, latest_of(log)) == ([], latest)


def test_a_scrubber_lets_go_of_a_segment_that_was_replaced(tmp_path: Path) -> None:
    """Amid a large one: reading it to its end at the scrubber's pace would keep its space for minutes."""
    store = open_store(Disk(), str(tmp_path / "data"))
    (log,) = make_topic(store, config={**CONFIG, "segment.bytes": str(1 << 20)}).partitions
    while len(log.segments) < 2:
        write(log, (b"key", b"." * 8000))
    sync(log)
    scrubber = Scrubber(store)
    assert scrubber.step()
    clean(store)
    assert scrubber.bytes_checked < 200_000
    for _ in range(2):
        scrubber.step()
    assert deleted_but_open(tmp_path) == []
    store.close()


def test_what_a_reader_opens_while_it_is_replaced_is_not_kept(store: LogStore, tmp_path: Path) -> None:
    """Between the look whether a file is open and the opening, another thread may replace or remove it."""
    log = compacted(store)
    fill_keys(log, 60)
    segment = log.segments[0]
    files = log.files
    clean(store)
    files.keep_file(segment, segment.file)
    files.keep_index(segment, segment._index(blocking=True))
    assert files.index(segment) is None
    del segment
    assert deleted_but_open(tmp_path) == []


def test_removal_and_deletion_give_their_space_back(store: LogStore, tmp_path: Path) -> None:
    (log,) = make_topic(store, config={"segment.bytes": "4096", "retention.ms": "1000"}).partitions
    fill_and_sync(log, 60)
    read_all(log)
    assert delete_expired(log, time_at(NOW_MS + 5000)) > 3
    assert deleted_but_open(tmp_path) == []
    fill_and_sync(log, 60)
    read_all(log)
    store.topic_files.erase_topic(store.remove_topic("t"))
    assert deleted_but_open(tmp_path) == []
