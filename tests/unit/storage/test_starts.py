"""What a start reads: counted, not timed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from edge_broker.storage.files.filesystem import Bytes
from edge_broker.storage.log.partition_log import PartitionLog
from edge_broker.storage.log_store import LogStore
from edge_broker.testing.disk import SimulatedDisk
from edge_broker.testing.site import make_topic
from tests.support.storage import append, batch, open_store, read_all, sync

PARTITIONS = 20
CONFIG = {"segment.bytes": "4096"}


class CountedFile:
    """A file whose reads are counted."""

    def __init__(self, file: Any, count: Callable[[int], None]) -> None:
        self._file = file
        self._count = count
        self.path = file.path

    def read(self, size_max: int, position: int) -> Bytes:
        """Read, and count what came."""
        data: Bytes = self._file.read(size_max, position)
        self._count(len(data))
        return data

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


class CountingFileSystem:
    """Another file system's files and names, and what was read of them: bytes by path, opens, listings, sizes."""

    def __init__(self, fs: SimulatedDisk) -> None:
        self._fs = fs
        self.read_bytes: Counter[str] = Counter()
        self.calls: Counter[str] = Counter()

    def open(self, path: str) -> Any:
        """Open a file whose reads count."""
        self.calls["open"] += 1

        def count(size: int) -> None:
            self.read_bytes[path] += size

        return CountedFile(self._fs.open(path), count)

    def names(self, directory: str) -> list[str]:
        """The names in a directory."""
        self.calls["names"] += 1
        return self._fs.names(directory)

    def size(self, path: str) -> int:
        """Bytes in a file."""
        self.calls["size"] += 1
        return self._fs.size(path)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._fs, name)

    def of_logs(self) -> int:
        """Bytes read of log files of the topic."""
        return sum(size for path, size in self.read_bytes.items() if "/t-" in path and path.endswith(".log"))


@pytest.fixture
def disk() -> SimulatedDisk:
    return SimulatedDisk(1)


def filled(disk: SimulatedDisk) -> LogStore:
    """Partitions with three closed segments and an open one."""
    store = open_store(disk)
    for log in make_topic(store, partitions=PARTITIONS, config=CONFIG).partitions:
        for _ in range(14):
            append(log, batch(bytes(1000)))
        sync(log)
        assert len(log.segments) > 3
    return store


def started(disk: SimulatedDisk) -> tuple[LogStore, CountingFileSystem]:
    disk.kill()
    counted = CountingFileSystem(disk)
    return open_store(counted), counted  # type: ignore[arg-type]


def logs_of(store: LogStore) -> list[PartitionLog]:
    return store.topics["t"].partitions


def test_after_a_clean_stop_no_log_is_read(disk: SimulatedDisk) -> None:
    filled(disk).close()
    store, counted = started(disk)
    assert counted.of_logs() == 0
    assert store.recovery_bytes == 0
    assert counted.calls["open"] <= 4 * PARTITIONS + 20, "four small files for each partition"
    assert counted.calls["names"] <= PARTITIONS + 10
    assert not any(path.endswith((".summary", ".index", ".timeindex")) for path in counted.read_bytes)
    assert all(len(read_all(log)) == 14 for log in logs_of(store))


def test_after_a_kill_only_what_came_after_the_clean_stop_is_read(disk: SimulatedDisk) -> None:
    filled(disk).close()
    store, _ = started(disk)
    more = batch(bytes(500))
    for log in logs_of(store)[:3]:
        append(log, batch(bytes(500)))
        sync(log)
    store, counted = started(disk)
    assert counted.of_logs() == store.recovery_bytes == 3 * len(more)
    assert [len(read_all(log)) for log in logs_of(store)] == [15] * 3 + [14] * (PARTITIONS - 3)


def test_after_a_kill_closed_segments_are_not_read(disk: SimulatedDisk) -> None:
    store = filled(disk)
    unsealed = sum(log.segments[-1].size for log in logs_of(store))
    store, counted = started(disk)
    assert 0 < counted.of_logs() <= unsealed
    assert store.recovery_bytes == unsealed
    read = {path for path in counted.read_bytes if "/t-" in path and path.endswith(".log")}
    assert read == {log.segments[-1].path for log in logs_of(store)}
