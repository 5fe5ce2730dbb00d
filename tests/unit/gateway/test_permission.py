"""Files that the gateway's user may not read for a while: named in /health, nothing is lost, and reading goes on."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from gateway.metrics import Metrics
from gateway.sources.file_reading.decompressed_file import READING, DecoderSlots
from gateway.sources.file_reading.links import LinkRule
from gateway.sources.file_reading.open_file import NO_LINKS, OpenFile
from gateway.sources.files import copies, family, family_file
from gateway.sources.files.files import FileSource
from gateway.sources.files.tail import Tail
from tests.support.gateway.followed_file import append, follow, read_all, texts
from tests.support.gateway.publisher import FakePublisher, config
from tests.support.gateway.rotated_file import compress, line_texts, lost_bytes, rotate, saved
from tests.support.tasks import running_task
from tests.support.waiting import until


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "app.log"


class Denied:
    """The files that may not be opened, by their inodes, as chmod(1) would have it; root may open all."""

    def __init__(self) -> None:
        self.inodes: set[int] = set()

    def deny(self, path: Path) -> None:
        self.inodes.add(path.stat().st_ino)

    def open(self, path: Path, slots: DecoderSlots = READING, links: LinkRule = NO_LINKS) -> OpenFile:
        file = OpenFile(path, slots, links)
        if file.inode in self.inodes:
            file.close()
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return file


@pytest.fixture
def denied() -> Iterator[Denied]:
    files = Denied()
    with pytest.MonkeyPatch.context() as patch:
        for module in (copies, family, family_file):
            patch.setattr(module, "OpenFile", files.open)
        yield files


def look_often(tail: Tail) -> list[bytes]:
    """Read as often as a missing file is waited for, each time with a whole look."""
    found: list[bytes] = []
    for _ in range(6):
        tail._family._signature = None
        try:
            found += line_texts(tail.read())
        except PermissionError:
            continue
        assert isinstance(tail.trouble, PermissionError)
    return found


def test_a_known_file_that_may_not_be_read_after_a_restart_goes_on_where_it_was(log: Path, denied: Denied) -> None:
    log.write_bytes(b"1\n")
    state = saved(read_all(follow(log)))
    append(log, b"2\n")
    denied.deny(log)
    tail = follow(log, state)
    assert look_often(tail) == []
    denied.inodes.clear()
    assert texts(read_all(tail)) == [b"2"]
    assert tail.trouble is None


def test_a_known_rotated_file_that_may_not_be_read_is_read_later(log: Path, denied: Denied) -> None:
    log.write_bytes(b"1\n")
    state = saved(read_all(follow(log)))
    append(log, b"2\n")
    rotate(log, 9)
    append(log, b"3\n")
    denied.deny(log.with_name("app.log.1"))
    tail = follow(log, state)
    found = look_often(tail)
    append(log, b"4\n")
    found += look_often(tail)
    denied.inodes.clear()
    tail._family._signature = None
    assert sorted(found + texts(read_all(tail))) == [b"2", b"3", b"4"]


@pytest.mark.parametrize("ending", [".gz", ".zst"])
def test_a_compressed_copy_that_may_not_be_read_is_no_loss_and_goes_on_where_it_was(
    log: Path, denied: Denied, ending: str
) -> None:
    log.write_bytes(b"1\n")
    state = saved(read_all(follow(log)))
    append(log, b"2\n")
    rotate(log, 9)
    compress(log.with_name("app.log.1"), ending)
    denied.deny(log.with_name(f"app.log.1{ending}"))
    append(log, b"3\n")
    tail = follow(log, state)
    found = look_often(tail)
    denied.inodes.clear()
    tail._family._signature = None
    assert sorted(found + texts(read_all(tail))) == [b"2", b"3"]


def test_the_copy_of_a_truncated_file_that_may_not_be_read_is_no_loss(log: Path, denied: Denied) -> None:
    log.write_bytes(b"1\n")
    tail = follow(log)
    assert texts(read_all(tail)) == [b"1"]
    append(log, b"2\n")
    shutil.copy(log, log.with_name("app.log.1"))
    denied.deny(log.with_name("app.log.1"))
    os.truncate(log, 0)
    append(log, b"3\n")
    assert look_often(tail) == []
    denied.inodes.clear()
    tail._family._signature = None
    assert texts(read_all(tail)) == [b"2", b"3"]


def test_a_rotated_file_that_is_deleted_before_it_may_be_read_is_a_loss_of_its_size(log: Path, denied: Denied) -> None:
    log.write_bytes(b"1\n")
    tail = follow(log)
    items = read_all(tail)
    rotate(log, 9)
    append(log, b"22\n")
    denied.deny(log)
    tail.find_files()
    rotate(log, 9)
    append(log, b"3\n")
    look_often(tail)
    log.with_name("app.log.1").unlink()
    items = read_all(tail)
    assert lost_bytes(items) == [3]
    assert tail.trouble is None


def has_records(publisher: FakePublisher, count: int) -> bool:
    return len(publisher.records) >= count


async def test_health_names_the_file_while_others_are_read(tmp_path: Path, denied: Denied) -> None:
    log = tmp_path / "app.log"
    log.write_bytes(b"1\n")
    state = tmp_path / "state"
    (file,) = config(tmp_path, '[[files]]\npath = "app.log"\npoll_interval_ms = 10\nrotate_wait_ms = 10\n').files
    publisher = FakePublisher()
    async with running_task(FileSource(file, publisher.as_publisher(), state, Metrics()).run()):
        await until(lambda: len(publisher.records) == 1)
    append(log, b"2\n")
    rotate(log, 9)
    denied.deny(log.with_name("app.log.1"))
    append(log, b"3\n")
    source = FileSource(file, publisher.as_publisher(), state, Metrics())
    async with running_task(source.run()):
        for count in (2, 3, 4):
            append(log, b"more\n")
            await until(partial(has_records, publisher, count))
            problem = source.problem()
            assert problem is not None
            assert "app.log.1 cannot be read (Permission denied): let the gateway's user read it" in problem
        denied.inodes.clear()
        await until(lambda: source.problem() is None and b"2" in [record.value for record, _ in publisher.records])
