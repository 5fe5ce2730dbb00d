"""Too few descriptors: the limit is raised to what the files need, and a lack of them is no evidence of a loss."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from drupelet.host.descriptors import raise_limit
from gateway.metrics import Metrics
from gateway.open_files import EACH_MAX, OTHERS_MAX, limit_notices, open_files_max
from gateway.sources.file_reading.decompressed_file import DecoderSlots
from gateway.sources.file_reading.open_file import OpenFile
from gateway.sources.files import copies, family, family_file
from gateway.sources.files.files import FileSource
from gateway.sources.files.tail import Tail
from tests.support.gateway.followed_file import append, follow, read_all, texts
from tests.support.gateway.publisher import FakePublisher, config
from tests.support.gateway.rotated_file import compress, rotate, saved
from tests.support.tasks import running_task
from tests.support.waiting import until


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "app.log"


@pytest.fixture(autouse=True)
def _limit_as_before() -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def read_without_descriptors(tail: Tail, error_number: int) -> None:
    """Read while no file can be opened; a scan of the directory still can."""

    def refuse(_path: Path, *_slots: DecoderSlots) -> OpenFile:
        raise OSError(error_number, os.strerror(error_number))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(copies, "OpenFile", refuse)
        patch.setattr(family, "OpenFile", refuse)
        patch.setattr(family_file, "OpenFile", refuse)
        for _ in range(6):
            with contextlib.suppress(OSError):
                assert tail.read() == []


WANTS = pytest.mark.parametrize("error_number", [errno.EMFILE, errno.ENFILE, errno.EIO])


@WANTS
def test_a_file_that_cannot_be_opened_now_is_no_other_file(log: Path, error_number: int) -> None:
    log.write_bytes(b"1\n")
    state = saved(read_all(follow(log)))
    append(log, b"2\n")
    tail = follow(log, state)
    read_without_descriptors(tail, error_number)
    assert texts(read_all(tail)) == [b"2"]


@WANTS
def test_a_copy_that_cannot_be_opened_now_is_no_new_file(log: Path, error_number: int) -> None:
    log.write_bytes(b"1\n2\n")
    tail = follow(log)
    assert texts(read_all(tail)) == [b"1", b"2"]
    shutil.copy(log, log.with_name("app.log.1"))
    read_without_descriptors(tail, error_number)
    os.truncate(log, 0)
    append(log, b"3\n")
    assert texts(read_all(tail)) == [b"3"]


@WANTS
def test_a_compressed_file_that_cannot_be_opened_now_is_no_loss(log: Path, error_number: int) -> None:
    log.write_bytes(b"1\n")
    state = saved(read_all(follow(log)))
    append(log, b"2\n")
    rotate(log, 9)
    compress(log.with_name("app.log.1"))
    append(log, b"3\n")
    tail = follow(log, state)
    read_without_descriptors(tail, error_number)
    assert texts(read_all(tail)) == [b"2", b"3"]


async def test_the_want_of_descriptors_is_named_with_its_remedy(tmp_path: Path) -> None:
    (tmp_path / "app.log").write_text("1\n")
    (file,) = config(tmp_path, '[[files]]\npath = "app.log"\npoll_interval_ms = 10\n').files
    publisher = FakePublisher()
    source = FileSource(file, publisher.as_publisher(), tmp_path / "state", Metrics())
    source._tell_unreadable(OSError(errno.EMFILE, os.strerror(errno.EMFILE), "app.log"))
    assert "raise LimitNOFILE, or lower files_max" in str(source.problem())
    async with running_task(source.run()):
        await until(lambda: len(publisher.records) == 1 and source.problem() is None)


def test_the_limit_is_raised_to_what_the_files_may_need(tmp_path: Path) -> None:
    text = '[[files]]\npath = "a.log"\n[[files]]\npath = "*.txt"\nfiles_max = 9\n'
    files = config(tmp_path, text).files
    assert open_files_max(files) == OTHERS_MAX + 10 * EACH_MAX
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    raise_limit(open_files_max(files))
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (open_files_max(files), hard)
    raise_limit(300)
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (open_files_max(files), hard)
    assert limit_notices(files) == []


def test_a_hard_limit_that_is_too_low_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _which: (1024, 4096))
    limits: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "setrlimit", lambda _which, limit: limits.append(limit))
    files = config(tmp_path, '[[files]]\npath = "*.log"\nfiles_max = 1000\n').files
    (notice,) = limit_notices(files)
    assert f"set LimitNOFILE={open_files_max(files)}" in notice
    raise_limit(open_files_max(files))
    assert limits == [(4096, 4096)]
