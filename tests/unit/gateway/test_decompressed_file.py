"""Compressed log files of gzip, bzip2, xz and lzma: any streams, any damage, little memory, and a stop in between.

Invariants:
- a position has the same content, whatever was read before it;
- a file that is cut off or damaged gives all that is before the damage, and then an error;
- no file makes a decoder hold more than is stated, and no length of content delays a stop.
"""

from __future__ import annotations

import asyncio
import binascii
import bz2
import gzip
import io
import lzma
import os
import threading
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import zstandard

from gateway.metrics import Metrics
from gateway.sources.file_reading import decompressed_file
from gateway.sources.file_reading.decompressed_file import (
    CHECKING,
    OUTPUT_BYTES,
    READERS_MAX,
    READING,
    DecodersBusyError,
    DecompressedFile,
    bzip2_file,
    gzip_file,
    xz_file,
)
from gateway.sources.file_reading.interruption import InterruptedRead, interrupt_by, raise_if_interrupted
from gateway.sources.file_reading.open_file import OpenFile, UnreadableError
from gateway.sources.file_reading.places import Item, UnreadRest, to_json
from gateway.sources.files.files import FileSource, saved_family, state_path
from gateway.sources.files.tail import Tail
from gateway.state import save
from tests.support.gateway.followed_file import append, follow, read_all, texts
from tests.support.gateway.publisher import FakePublisher, config
from tests.support.gateway.rotated_file import compress, line_texts, rotate, saved
from tests.support.tasks import running_task
from tests.support.waiting import until

Pack = Callable[[bytes], bytes]
Reader = Callable[[io.BytesIO], DecompressedFile]
FORMATS: dict[str, tuple[Pack, Reader]] = {
    "gz": (gzip.compress, gzip_file),
    "bz2": (bz2.compress, bzip2_file),
    "xz": (lzma.compress, xz_file),
    "lzma": (lambda content: lzma.compress(content, lzma.FORMAT_ALONE), xz_file),
}
EACH = pytest.mark.parametrize(("pack", "reader"), list(FORMATS.values()), ids=list(FORMATS))
NUMBERS = b"".join(b"%d\n" % number for number in range(100_000))
MEMBER_BYTES = 16 << 20
PACKERS: dict[str, Pack] = {".zst": zstandard.compress, **{f".{name}": pack for name, (pack, _) in FORMATS.items()}}


def read_whole(file: DecompressedFile, count: int = 1_000) -> bytes:
    return b"".join(iter(lambda: file.read(count), b""))


@EACH
@pytest.mark.parametrize("count", [1_000, 65_536, 1 << 20])
def test_all_streams_are_read_with_padding_between_them(pack: Pack, reader: Reader, count: int) -> None:
    stored = pack(b"") + pack(b"one") + bytes(8) + pack(b"two") + pack(NUMBERS) + bytes(20_000)
    assert read_whole(reader(io.BytesIO(stored)), count) == b"onetwo" + NUMBERS


@EACH
def test_any_position_is_found(pack: Pack, reader: Reader) -> None:
    file = reader(io.BytesIO(pack(NUMBERS[:400_000]) + pack(NUMBERS[400_000:])))
    end = len(NUMBERS)
    for position in (0, 500_000, 7, 7, 131_072, 399_999, end - 1, end, end + 5, 131_071):
        file.seek(position)
        assert file.tell() == min(position, end)
        assert file.read(10) == NUMBERS[position : position + 10]


@EACH
@pytest.mark.parametrize("cut", [1, 5, 12])
def test_a_file_that_is_cut_off_gives_what_it_holds_and_then_an_error(pack: Pack, reader: Reader, cut: int) -> None:
    first, second = NUMBERS, NUMBERS[::-1]
    file = reader(io.BytesIO(pack(first) + pack(second)[:-cut]))
    assert b"".join(file.read(1_000) for _ in range(len(first) // 1_000)) == first[: len(first) // 1_000 * 1_000]
    with pytest.raises((EOFError, OSError)):
        read_whole(file)
    with pytest.raises((EOFError, OSError)):
        file.read(1)


@EACH
@pytest.mark.parametrize("stranger", [b"no stream", b"\0no stream", b"\x1f\x8bno", b"\xfd7zXZ\0no", b"BZhno"])
def test_what_follows_a_stream_and_is_none_is_damage(pack: Pack, reader: Reader, stranger: bytes) -> None:
    """It may have been another stream, whose lines would be lost without a word."""
    file = reader(io.BytesIO(pack(b"one\n") + stranger + pack(b"two\n")))
    assert file.read(4) == b"one\n"
    with pytest.raises((EOFError, OSError)):
        read_whole(file)


@EACH
@pytest.mark.parametrize("stored", [b"", b"\0", bytes(50_000), b"x"])
def test_a_file_without_a_stream_is_damage(pack: Pack, reader: Reader, stored: bytes) -> None:
    with pytest.raises((EOFError, OSError)):
        reader(io.BytesIO(stored)).read(1)


@pytest.mark.parametrize("ending", [".gz", ".bz2", ".xz", ".lzma", ".zst"])
def test_a_rotated_copy_that_a_power_loss_left_empty_is_a_loss(tmp_path: Path, ending: str) -> None:
    log = tmp_path / "app.log"
    log.write_bytes(b"1\n")
    state = saved(read_all(follow(log)))
    append(log, b"2\n")
    rotate(log, 9)
    log.with_name("app.log.1").unlink()
    log.with_name(f"app.log.1{ending}").touch()
    append(log, b"3\n")
    items = read_all(follow(log, state))
    assert line_texts(items) == [b"3"]
    assert [item.bytes for item in items if isinstance(item, UnreadRest)] == [None]


# Memory


def with_dictionary(stored: bytes, size_code: int) -> bytes:
    """Return an xz file whose header claims another dictionary: 30 is 128 MiB, 40 is 4 GiB."""
    header_bytes = (stored[12] + 1) * 4
    header = bytearray(stored[12 : 12 + header_bytes - 4])
    assert header[2] == 0x21, "an LZMA2 filter"
    header[4] = size_code
    return stored[:12] + bytes(header) + binascii.crc32(header).to_bytes(4, "little") + stored[12 + header_bytes :]


def claiming_much() -> dict[str, bytes]:
    xz, alone = lzma.compress(b"1\n2\n"), lzma.compress(b"1\n2\n", lzma.FORMAT_ALONE)
    return {
        "128-mib.xz": with_dictionary(xz, 30),
        "4-gib.xz": with_dictionary(xz, 40),
        "second.xz": lzma.compress(b"") + with_dictionary(xz, 40),
        "4-gib.lzma": alone[:1] + b"\xff" * 4 + alone[5:],
    }


@pytest.mark.parametrize("name", claiming_much())
def test_a_file_that_claims_a_large_dictionary_is_not_read_and_named(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(claiming_much()[name])
    with pytest.raises(UnreadableError, match=f"{name}.*more than 66 MiB of memory"):
        OpenFile(path).read(1, 0)


def test_the_files_of_each_preset_of_xz_are_read(tmp_path: Path) -> None:
    for preset in (0, 6, 9, 9 | lzma.PRESET_EXTREME):
        path = tmp_path / f"{preset}.xz"
        path.write_bytes(lzma.compress(b"1\n", preset=preset))
        assert OpenFile(path).read(2, 0) == b"1\n"


def with_window(content: bytes, window_log: int) -> bytes:
    parameters = zstandard.ZstdCompressionParameters.from_level(1, window_log=window_log)
    compressor = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    return compressor.compress(content) + compressor.flush()


@pytest.mark.parametrize(
    ("ending", "stored", "reason"),
    [
        (".xz", with_dictionary(lzma.compress(b"1\n2\n"), 40), "it needs more than 66 MiB of memory"),
        (".zst", with_window(b"1\n2\n", 27), "Frame requires too much memory"),
    ],
)
def test_files_after_one_that_needs_much_memory_are_read(
    tmp_path: Path, ending: str, stored: bytes, reason: str
) -> None:
    log = tmp_path / "app.log"
    log.write_bytes(b"1\n")
    state = saved(read_all(follow(log)))
    append(log, b"2\n")
    rotate(log, 9)
    compress(log.with_name("app.log.1"), ending)
    path = log.with_name(f"app.log.1{ending}")
    path.write_bytes(stored)
    append(log, b"3\n")
    items = read_all(follow(log, state))
    assert line_texts(items) == [b"3"]
    assert any(
        f"{path} cannot be decompressed" in item.why and reason in item.why
        for item in items
        if isinstance(item, UnreadRest)
    )


@pytest.mark.parametrize("ending", PACKERS)
def test_a_small_file_that_holds_very_much_is_read_in_little_memory(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"bomb{ending}"
    path.write_bytes(PACKERS[ending](bytes(4 * MEMBER_BYTES)))
    assert path.stat().st_size < 1 << 17
    tracemalloc.start()
    try:
        file = OpenFile(path)
        assert file.read(10, 3 * MEMBER_BYTES) == bytes(10)
        assert tracemalloc.get_traced_memory()[1] < 20 << 20
    finally:
        tracemalloc.stop()
        file.close()


# Many files

CONTENT = b"".join(b"%059d\n" % number for number in range(4_000))


def waiting_copies(directory: Path, count: int, ending: str = ".xz") -> list[Tail]:
    """Return tails of paths whose rotated files were compressed while they were not followed."""
    tails = []
    for number in range(count):
        log = directory / f"{number}.log"
        log.write_bytes(b"first\n")
        state = saved(read_all(follow(log)))
        append(log, CONTENT)
        log.rename(f"{log}.1")
        log.write_bytes(b"last\n")
        compress(Path(f"{log}.1"), ending)
        tails.append(follow(log, state))
    return tails


def read_or_wait(tail: Tail) -> list[Item]:
    try:
        return tail.read()
    except DecodersBusyError:
        return []


@pytest.mark.parametrize("ending", [".gz", ".bz2", ".xz", ".zst"])
def test_copies_of_many_paths_are_read_one_after_another(tmp_path: Path, ending: str) -> None:
    tails = waiting_copies(tmp_path, 6, ending)
    found: list[list[bytes]] = [[] for _ in tails]
    most = 0
    while any(lines[-1:] != [b"last"] for lines in found):
        for tail, lines in zip(tails, found, strict=True):
            lines.extend(texts(read_or_wait(tail)))
            most = max(most, len(READING._holders))
    assert [lines[:-1] for lines in found] == [CONTENT.splitlines()] * len(tails)
    assert most <= READERS_MAX
    for tail in tails:
        tail.close()
    assert not len(READING._holders) + len(CHECKING._holders)


def test_two_copies_of_one_path_are_read_one_after_another(tmp_path: Path) -> None:
    (tail,) = waiting_copies(tmp_path, 1)
    items: list[Item] = []
    while len(items) < 2_000:
        items += tail.read()
    assert len(READING._holders) == 1
    (tmp_path / "0.log.2.xz").write_bytes(lzma.compress(CONTENT))
    os.utime(tmp_path / "0.log.2.xz", (1, 1))
    items += read_all(tail)
    assert sorted(texts(items)) == sorted([*CONTENT.splitlines() * 2, b"last"])
    tail.close()


def test_a_copy_that_cannot_be_compared_yet_is_neither_new_nor_lost(tmp_path: Path) -> None:
    log = tmp_path / "app.log"
    log.write_bytes(CONTENT)
    state = saved(read_all(follow(log)))
    append(log, b"more\n")
    rotate(log, 9)
    append(log, b"last\n")
    compress(log.with_name("app.log.1"), ".xz")
    tail = follow(log, state)
    other = gzip_file(io.BytesIO(gzip.compress(CONTENT)), CHECKING)
    CHECKING.take(other)
    for _ in range(6):
        with pytest.raises(DecodersBusyError):
            tail.read()
    other.close()
    assert texts(read_all(tail)) == [b"more", b"last"]
    tail.close()


async def test_a_path_with_a_copy_that_waits_is_not_finished(tmp_path: Path) -> None:
    (tail,) = waiting_copies(tmp_path, 1)
    tail.close()
    log = tmp_path / "0.log"
    place_file = state_path(tmp_path, log)
    place_file.parent.mkdir(parents=True)
    assert tail.state is not None
    save(place_file, {"path": str(log), **to_json(tail.state)})
    log.unlink()
    other = gzip_file(io.BytesIO(gzip.compress(CONTENT)), READING)
    READING.take(other)
    publisher = FakePublisher()
    settings = config(tmp_path, f'[[files]]\npath = "{log}"\npoll_interval_ms = 10\n').files[0]
    source = FileSource(settings, publisher.as_publisher(), tmp_path, Metrics())
    async with running_task(source.run()):
        await until(lambda: source._tail._current is not None and source._tail.missing is None)
        for _, acked in publisher.records:
            acked()
        assert not await source.is_finished()
        other.close()
        await until(lambda: len(publisher.records) == len(CONTENT.splitlines()))


# A stop


def bomb(path: Path, members: int = 640) -> None:
    """Write a file that holds 10 GiB of lines."""
    path.write_bytes(PACKERS[path.suffix](b"0\n" * (MEMBER_BYTES // 2)) * members)


STEPS_OF_BOMB = 640 * MEMBER_BYTES // OUTPUT_BYTES


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[None]:
    """Return a list that grows by each step of a seek."""
    found: list[None] = []

    def counted() -> None:
        found.append(None)
        raise_if_interrupted()

    monkeypatch.setattr(decompressed_file, "raise_if_interrupted", counted)
    return found


@pytest.mark.parametrize("ending", PACKERS)
def test_a_long_seek_is_interrupted(tmp_path: Path, ending: str, steps: list[None]) -> None:
    bomb(tmp_path / f"bomb{ending}")
    file = OpenFile(tmp_path / f"bomb{ending}")
    interruption = threading.Event()

    async def seek() -> None:
        interrupt_by(interruption)
        await asyncio.to_thread(file.read, 1, 639 * MEMBER_BYTES)

    async def stop_it() -> None:
        task = asyncio.create_task(seek())
        await until(lambda: bool(steps))
        interruption.set()
        with pytest.raises(InterruptedRead):
            await task

    asyncio.run(stop_it())
    assert len(steps) < STEPS_OF_BOMB / 2, "it went on after the stop"
    file.close()


@pytest.mark.parametrize("ending", [".gz", ".xz"])
async def test_a_stop_does_not_wait_for_the_place_in_a_long_copy(
    tmp_path: Path, ending: str, steps: list[None]
) -> None:
    log, copy = tmp_path / "app.log", tmp_path / f"app.log.1{ending}"
    log.write_bytes(b"0\n" * 200)
    state = saved(read_all(follow(log)))
    bomb(copy)
    log.write_bytes(b"1\n")
    far = replace(state.place, position=639 * MEMBER_BYTES)
    place_file = state_path(tmp_path, log)
    place_file.parent.mkdir(parents=True)
    save(place_file, {"path": str(log), **to_json(replace(state, place=far, size=far.position))})
    publisher = FakePublisher()
    settings = config(tmp_path, f'[[files]]\npath = "{log}"\npoll_interval_ms = 10\n').files[0]
    source = FileSource(settings, publisher.as_publisher(), tmp_path, Metrics())

    async with running_task(source.run()):
        await until(lambda: bool(steps))
    assert len(steps) < STEPS_OF_BOMB / 2, "it went on after the stop"
    assert not publisher.records
    assert not publisher.losses
    saved_after = saved_family(tmp_path, log)
    assert saved_after is not None
    assert saved_after.place.position == far.position
