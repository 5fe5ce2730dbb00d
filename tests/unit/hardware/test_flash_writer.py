"""Writing and reading back, on files; sizes around every boundary.

Invariants: the file is the image, byte by byte; block 0 is zero until `finish`; a byte that changed on the way is found
and placed; a target that is full or that ends early is an error.
"""

from __future__ import annotations

import hashlib
import io
import os
import random
import resource
from collections.abc import Callable
from pathlib import Path

import pytest

from hardware.flash.device.progress import Progress, describe, duration
from hardware.flash.device.writer import BLOCK_BYTES, CHUNK_BYTES, Target
from hardware.flash.errors import FlashError

SIZES = [
    1,
    511,
    BLOCK_BYTES,
    BLOCK_BYTES + 1,
    CHUNK_BYTES - 1,
    CHUNK_BYTES,
    CHUNK_BYTES + BLOCK_BYTES,
    2 * CHUNK_BYTES + 77,
]


def ignore(_done: int) -> None:
    """Take progress."""


def filler(content: bytes) -> Callable[[memoryview], int]:
    file = io.BytesIO(content)
    return file.readinto


def image(size: int, seed: int = 4) -> bytes:
    return random.Random(seed).randbytes(size)


@pytest.mark.parametrize("size", SIZES)
def test_the_file_is_the_image(size: int, tmp_path: Path) -> None:
    content, path = image(size), tmp_path / "card"
    with Target(path, create=True) as target:
        written = target.copy(filler(content), ignore)
        assert written.size == size
        assert not any(path.read_bytes()[:BLOCK_BYTES])
        assert target.check(written, ignore) == hashlib.sha256(content).hexdigest()
        target.finish(written.head)
    assert path.read_bytes() == content
    assert path.stat().st_mode & 0o777 == 0o600


def test_zeros_are_corrupt_ranges_and_old_content_is_gone(tmp_path: Path) -> None:
    path = tmp_path / "card"
    path.write_bytes(image(3 * CHUNK_BYTES))
    content = image(100) + bytes(2 * CHUNK_BYTES)
    with Target(path, create=True) as target:
        written = target.copy(filler(content), ignore)
        target.check(written, ignore)
        target.finish(written.head)
    assert path.read_bytes() == content
    assert path.stat().st_blocks * 512 < CHUNK_BYTES + BLOCK_BYTES


@pytest.mark.parametrize("position", [BLOCK_BYTES, CHUNK_BYTES - 1, CHUNK_BYTES, 2 * CHUNK_BYTES + 76])
def test_a_changed_byte_is_found_and_placed(position: int, tmp_path: Path) -> None:
    path = tmp_path / "card"
    with Target(path, create=True) as target:
        written = target.copy(filler(image(2 * CHUNK_BYTES + 77)), ignore)
        with path.open("r+b") as file:
            byte = os.pread(file.fileno(), 1, position)[0]
            os.pwrite(file.fileno(), bytes([byte ^ 1]), position)
        start = position // CHUNK_BYTES * CHUNK_BYTES
        with pytest.raises(FlashError, match=f"differently between byte {start} and"):
            target.check(written, ignore)


def test_a_target_that_ends_early_is_found(tmp_path: Path) -> None:
    path = tmp_path / "card"
    with Target(path, create=True) as target:
        written = target.copy(filler(image(CHUNK_BYTES + 5000)), ignore)
        os.truncate(path, CHUNK_BYTES)
        with pytest.raises(FlashError, match="smaller than it says"):
            target.check(written, ignore)


def test_a_write_that_fails_is_placed_and_leaves_block_0_zero(tmp_path: Path) -> None:
    path = tmp_path / "card"
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    with Target(path, create=True) as target:
        resource.setrlimit(resource.RLIMIT_FSIZE, (CHUNK_BYTES, before[1]))
        try:
            with pytest.raises(FlashError, match=f"cannot be written at byte {CHUNK_BYTES}"):
                target.copy(filler(image(3 * CHUNK_BYTES)), ignore)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert path.read_bytes()[:BLOCK_BYTES] == bytes(BLOCK_BYTES)


def test_a_source_that_fails_ends_the_copy(tmp_path: Path) -> None:
    def fail(_buffer: memoryview) -> int:
        raise FlashError("the image is damaged.")

    with Target(tmp_path / "card", create=True) as target, pytest.raises(FlashError, match="damaged"):
        target.copy(fail, ignore)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_says_share_rate_and_time_left() -> None:
    now, out = [0.0], Terminal()
    progress = Progress("writing", out, lambda: now[0])
    progress.at(0, 0)
    now[0] = 10.0
    progress.at(200_000_000, 0.25)
    assert out.getvalue().strip() == "writing: 25%, 200.0 MB, 20.0 MB/s, 30 s left"
    now[0] = 40.0
    progress.done(1_500_000_000)
    assert out.getvalue().rstrip().endswith("writing: 1.50 GB in 40 s, 37.5 MB/s")


def test_a_log_gets_few_lines_and_no_carriage_returns() -> None:
    now, out = [0.0], io.StringIO()
    progress = Progress("writing", out, lambda: now[0])
    for second in range(60):
        now[0] = float(second)
        progress.at(second, second / 60)
    assert len(out.getvalue().splitlines()) == 3
    assert "\r" not in out.getvalue()


def test_times_as_a_person_says_them() -> None:
    assert [duration(each) for each in (0.2, 59, 61, 3700)] == ["0 s", "59 s", "1 min 1 s", "1 h 1 min"]
    assert describe("writing", 0, 0, 0) == "writing: 0%, 0.0 MB, 0.0 MB/s"
