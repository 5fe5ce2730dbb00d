"""Data directories for the tests of the doctor: filled, damaged, and read back."""

from __future__ import annotations

import os
from pathlib import Path

from edge_broker.storage.files.filesystem import Disk
from edge_broker.storage.log_store import LogStore
from edge_broker.testing.site import make_topic
from tests.support.storage import append, batch, fill, open_store, sync

SEGMENT_BYTES = 4096


def fill_directory(path: Path, *, clean: bool = True) -> Path:
    store = open_store(Disk(), str(path))
    topic = make_topic(store, "t", 2, {"segment.bytes": str(SEGMENT_BYTES)})
    fill(topic.partitions[0], 100)
    for number in range(30):
        append(topic.partitions[1], batch(b"v%d" % number, b"w" * 90, producer=(7, 0, 2 * number)))
    sync(topic.partitions[1])
    if clean:
        store.close()
    else:
        store.checkpoint()
        let_go(store)
    return path


def let_go(store: LogStore) -> None:
    """End as a killed process does: nothing more is written, the lock is free."""
    for topic in store.topics.values():
        for log in topic.partitions:
            log.close_files()
    store.directory.unlock()


def names(directory: Path, pattern: str) -> list[Path]:
    return sorted(directory.glob(pattern))


def flip(path: Path, position: int) -> None:
    """Change one bit of a file."""
    content = bytearray(path.read_bytes())
    content[position] ^= 1
    path.write_bytes(content)


def content_of(path: Path) -> dict[str, bytes]:
    """Every file below a directory."""
    return {str(file.relative_to(path)): file.read_bytes() for file in path.rglob("*") if file.is_file()}


def tree_of(path: Path) -> dict[str, bytes | str | None]:
    """Everything below a directory: a file's content, a link's target, None of a directory."""
    return {
        str(each.relative_to(path)): os.readlink(each)
        if each.is_symlink()
        else each.read_bytes()
        if each.is_file()
        else None
        for each in path.rglob("*")
    }
