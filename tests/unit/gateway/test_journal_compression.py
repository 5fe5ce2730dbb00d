"""Compressed fields of journal files: each codec, whole, cut off, damaged, and larger than memory should hold.

Invariants:
- a value is whole, or a `LongValue` with its beginning, or the object is corrupt: never shorter without a sign;
- no payload makes the reader hold more than a few times VALUE_BYTES_MAX.
"""

from __future__ import annotations

import contextlib
import lzma
import random
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import lz4.block
import pytest
import zstandard

from gateway.systemd_journal.compression import (
    KEPT_BYTES_MAX,
    LZ4,
    VALUE_BYTES_MAX,
    XZ,
    ZSTD,
    CorruptionError,
    LongValue,
    ReadPayload,
    Value,
    beginning,
    field_value,
)
from gateway.systemd_journal.file_format import JournalFile
from tests.support.journal_files import JournalFileWriter

Pack = Callable[[bytes], bytes]
CODECS: dict[int, Pack] = {
    XZ: lambda data: lzma.compress(data, preset=0),
    LZ4: lambda data: len(data).to_bytes(8, "little") + lz4.block.compress(data, store_size=False),
    ZSTD: zstandard.compress,
}
EACH_CODEC = pytest.mark.parametrize(("codec", "pack"), list(CODECS.items()), ids=["xz", "lz4", "zstd"])
NAME = b"MESSAGE="


def payload(stored: bytes) -> ReadPayload:
    return lambda count: stored[:count]


def value_of(codec: int, stored: bytes) -> Value:
    return field_value(codec, payload(stored), len(stored), len(NAME))


def texts() -> list[bytes]:
    """Return contents of every kind: empty, one byte, runs, text, noise, and the bounds."""
    chance = random.Random(39)
    noise = chance.randbytes(200_000)
    lines = b"".join(b"%d error %s\n" % (number, noise[number : number + 3]) for number in range(20_000))
    return [b"", b"x", b"ab" * 7, b"\0" * 70_000, lines, noise, lines[:65_535], lines[:65_536], lines[:65_537]]


@EACH_CODEC
@pytest.mark.parametrize("number", range(len(texts())))
def test_a_value_comes_whole_and_its_name_comes_first(codec: int, pack: Pack, number: int) -> None:
    text = texts()[number]
    stored = pack(NAME + text)
    assert beginning(codec, payload(stored), 65) == (NAME + text)[:65]
    assert value_of(codec, stored) == text


@EACH_CODEC
@pytest.mark.parametrize("more", [0, 1, 5_000_000])
def test_a_value_above_the_bound_keeps_its_beginning(codec: int, pack: Pack, more: int) -> None:
    text = b"".join(b"%d\n" % number for number in range(1_000_000))[: VALUE_BYTES_MAX + more]
    value = value_of(codec, pack(NAME + text))
    if more == 0:
        assert value == text
        return
    assert isinstance(value, LongValue)
    assert value.beginning == text[:KEPT_BYTES_MAX]
    assert value.size in ((len(text),) if codec != XZ else (None,))


@EACH_CODEC
@pytest.mark.parametrize("size", [1_000, 300_000, VALUE_BYTES_MAX + 1_000_000])
def test_a_payload_that_is_cut_off_is_corrupt(codec: int, pack: Pack, size: int) -> None:
    text = random.Random(39).randbytes(size)
    stored = pack(NAME + text)
    for length in (1, 7, 8, 9, 20, len(stored) // 3, min(len(stored), VALUE_BYTES_MAX) - 5):
        with pytest.raises(CorruptionError):
            value_of(codec, stored[:length])


@pytest.mark.parametrize("declared", [12, 100, 1 << 20, VALUE_BYTES_MAX + 100, 1 << 40, (1 << 64) - 1])
def test_a_block_of_lz4_that_holds_less_than_it_declares_is_corrupt(declared: int) -> None:
    stored = declared.to_bytes(8, "little") + lz4.block.compress(NAME + b"x", store_size=False)
    with pytest.raises(CorruptionError):
        value_of(LZ4, stored)


@EACH_CODEC
def test_random_damage_is_corrupt_or_found_by_no_one_but_ends(codec: int, pack: Pack) -> None:
    chance = random.Random(39)
    stored = pack(NAME + texts()[4])
    for _ in range(300):
        damaged = bytearray(stored)
        for _ in range(chance.randint(1, 4)):
            damaged[chance.randrange(len(damaged))] = chance.randrange(256)
        try:
            value_of(codec, bytes(damaged))
        except CorruptionError:
            continue


@EACH_CODEC
def test_a_small_payload_that_holds_very_much_is_read_in_little_memory(codec: int, pack: Pack) -> None:
    stored = pack(NAME + bytes(64 << 20))
    tracemalloc.start()
    try:
        value = value_of(codec, stored)
        assert tracemalloc.get_traced_memory()[1] < 12 * VALUE_BYTES_MAX
    finally:
        tracemalloc.stop()
    assert isinstance(value, LongValue)


@EACH_CODEC
def test_fields_of_a_file_are_unpacked(tmp_path: Path, codec: int, pack: Pack) -> None:
    text = b"a message that repeats itself " * 100
    writer = JournalFileWriter(tmp_path / "system.journal", "f" * 32, "f" * 32, "1" * 32)
    writer.append(1, 1_000, 1, "b" * 32, [("MESSAGE", pack(NAME + text)), ("UNIT", pack(b"UNIT=" + text))], codec)
    writer.close()
    with contextlib.closing(JournalFile(tmp_path / "system.journal")) as file:
        assert file.fields(file.entry(0), {"MESSAGE", "UNIT"}) == {"MESSAGE": [text], "UNIT": [text]}
