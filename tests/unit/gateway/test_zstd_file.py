"""Compressed log files that zstd wrote: any frames, any damage, and never more than some megabytes of memory."""

from __future__ import annotations

import io
import tracemalloc
from pathlib import Path

import pytest
import zstandard

from gateway.sources.file_reading.open_file import OpenFile, UnreadableError
from gateway.sources.file_reading.zstd_file import ZstdFile

SKIPPABLE = b"\x50\x2a\x4d\x18" + (5).to_bytes(4, "little") + b"hello"


def read_whole(file: ZstdFile, count: int = 1_000) -> bytes:
    return b"".join(iter(lambda: file.read(count), b""))


@pytest.mark.parametrize(
    ("compressed", "content"),
    [
        (zstandard.compress(b""), b""),
        (zstandard.compress(b"one") + zstandard.compress(b"two"), b"onetwo"),
        (SKIPPABLE + zstandard.compress(b"one") + SKIPPABLE * 50 + zstandard.compress(b"two") + SKIPPABLE, b"onetwo"),
        (zstandard.compress(bytes(range(256)) * 5_000, 19), bytes(range(256)) * 5_000),
        (zstandard.ZstdCompressor(write_content_size=False, write_checksum=True).compress(b"x" * 999), b"x" * 999),
    ],
)
def test_all_frames_are_read(compressed: bytes, content: bytes) -> None:
    assert read_whole(ZstdFile(io.BytesIO(compressed))) == content


def test_any_position_is_found() -> None:
    content = b"".join(b"%d\n" % number for number in range(100_000))
    file = ZstdFile(io.BytesIO(zstandard.compress(content)))
    for position in (0, 500_000, 7, 7, 131_072, len(content) - 1, len(content), len(content) + 5, 131_071):
        file.seek(position)
        assert file.tell() == min(position, len(content))
        assert file.read(10) == content[position : position + 10]


def test_a_small_file_that_holds_very_much_is_read_in_little_memory() -> None:
    bomb = zstandard.compress(bytes(256 << 20))
    assert len(bomb) < 100_000
    tracemalloc.start()
    try:
        file = ZstdFile(io.BytesIO(bomb))
        file.seek(200 << 20)
        assert file.read(10) == bytes(10)
        assert tracemalloc.get_traced_memory()[1] < 20 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("cut", [1, 4, 5, 15])
def test_a_frame_that_is_cut_off_is_an_error_after_what_it_holds(cut: int) -> None:
    content = bytes(200_000) + b"end"
    file = ZstdFile(io.BytesIO(zstandard.compress(content) + zstandard.compress(content)[:-cut]))
    assert len(b"".join(file.read(1_000) for _ in range(200))) == 200_000
    with pytest.raises(EOFError, match="within a frame"):
        read_whole(file)


def test_damage_is_an_error() -> None:
    damaged = bytearray(zstandard.ZstdCompressor(write_checksum=True).compress(b"0123456789" * 1_000))
    damaged[-1] ^= 1
    with pytest.raises(OSError, match="checksum"):
        read_whole(ZstdFile(io.BytesIO(bytes(damaged))))
    with pytest.raises(OSError, match="frame"):
        read_whole(ZstdFile(io.BytesIO(b"zst" * 100)))


def test_a_file_without_a_frame_is_an_error() -> None:
    with pytest.raises(EOFError, match="empty"):
        ZstdFile(io.BytesIO(b"")).read(1)


def test_a_window_that_is_too_large_is_unreadable(tmp_path: Path) -> None:
    for window_log in (23, 24):
        parameters = zstandard.ZstdCompressionParameters.from_level(3, window_log=window_log)
        compressor = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
        content = compressor.compress(b"0\n" * 6_000_000) + compressor.flush()
        (tmp_path / f"{window_log}.zst").write_bytes(content)
    assert OpenFile(tmp_path / "23.zst").read(2, 0) == b"0\n"
    with pytest.raises(UnreadableError, match="memory"):
        OpenFile(tmp_path / "24.zst").read(2, 0)
