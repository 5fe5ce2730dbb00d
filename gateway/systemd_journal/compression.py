"""Unpack a data object's payload in bounded memory: the beginning with a field's name, and the value.

| codec | payload as stored |
|---|---|
| none | NAME=value |
| xz | one xz stream |
| lz4 | size of the whole, 8 bytes little-endian; one LZ4 block |
| zstd | one frame |

A payload of 20 KB may unpack to gigabytes: of a value above VALUE_BYTES_MAX only the beginning is unpacked.
Source: systemd's JOURNAL_FILE_FORMAT, compress.c; the LZ4 block format. A codec's library is imported at the first
payload that needs it: it costs memory.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import IO, cast

VALUE_BYTES_MAX = 2 << 20
KEPT_BYTES_MAX = 65_536  # of a longer value
XZ, LZ4, ZSTD = 1, 2, 4
CODECS = XZ | LZ4 | ZSTD
_STEP_BYTES = 65_536
_ZSTD_HEADER_BYTES_MAX = 18
_LENGTH_BYTES_MAX = 4 << 20  # of a run of 1 GiB, more than journald stores
_XZ_MEMORY_MAX = 96 << 20

ReadPayload = Callable[[int], bytes]  # the first n bytes as stored


class CorruptionError(Exception):
    """A part of a journal file is corrupt."""


@dataclass(frozen=True, slots=True)
class LongValue:
    """A value above VALUE_BYTES_MAX: its beginning, and its size; None: unknown."""

    beginning: bytes
    size: int | None


Value = bytes | LongValue


def beginning(codec: int, read: ReadPayload, count: int) -> bytes:
    """Return the first `count` bytes of the unpacked payload, fewer where it is shorter; raises CorruptionError."""
    return read(count) if codec == 0 else _unpack(codec, read, count)


def field_value(codec: int, read: ReadPayload, stored_bytes: int, name_bytes: int) -> Value:
    """Return what follows the first `name_bytes` of the unpacked payload; raises CorruptionError."""
    if codec == 0:
        if stored_bytes - name_bytes <= VALUE_BYTES_MAX:
            return read(stored_bytes)[name_bytes:]
        return LongValue(read(name_bytes + KEPT_BYTES_MAX)[name_bytes:], stored_bytes - name_bytes)
    whole = _unpack(codec, read, name_bytes + VALUE_BYTES_MAX + 1)
    if len(whole) <= name_bytes + VALUE_BYTES_MAX:
        return whole[name_bytes:]
    size = _declared_bytes(codec, read)
    return LongValue(whole[name_bytes : name_bytes + KEPT_BYTES_MAX], None if size is None else size - name_bytes)


def _declared_bytes(codec: int, read: ReadPayload) -> int | None:
    """Return the size of the unpacked payload as the payload gives it, None where it does not; raises ZstdError."""
    if codec == LZ4:
        return int.from_bytes(read(8), "little")
    if codec == ZSTD:
        import zstandard  # noqa: PLC0415

        size = zstandard.frame_content_size(read(_ZSTD_HEADER_BYTES_MAX))
        return size if size >= 0 else None
    return None


def _unpack(codec: int, read: ReadPayload, count: int) -> bytes:
    unpack = {XZ: _unpacked_xz, LZ4: _unpacked_lz4, ZSTD: _unpacked_zstd}.get(codec)
    if unpack is None:
        raise CorruptionError("a data object names several compressions")
    return unpack(read, count)


def _unpacked_zstd(read: ReadPayload, count: int) -> bytes:
    import zstandard  # noqa: PLC0415 (only where a payload needs it)

    source = _StoredPayload(read)
    try:
        with zstandard.ZstdDecompressor(max_window_size=8 << 20).stream_reader(cast(IO[bytes], source)) as reader:
            found = _read_up_to(reader.read, count)
        declared = _declared_bytes(ZSTD, read)
    except zstandard.ZstdError as error:
        raise CorruptionError(f"a data object is no zstd frame ({error})") from error
    if declared is not None and len(found) != min(declared, count):  # the reader takes the end of input for the end
        raise CorruptionError("a data object's zstd frame ends early")
    return found


def _unpacked_xz(read: ReadPayload, count: int) -> bytes:
    import lzma  # noqa: PLC0415

    source, unpacker = _StoredPayload(read), lzma.LZMADecompressor(memlimit=_XZ_MEMORY_MAX)
    found = b""
    try:
        while len(found) < count and not unpacker.eof:
            packed = source.read(_STEP_BYTES) if unpacker.needs_input else b""
            more = unpacker.decompress(packed, count - len(found))
            if not more and not packed and unpacker.needs_input:
                raise CorruptionError("a data object's xz stream ends early")
            found += more
    except lzma.LZMAError as error:
        raise CorruptionError(f"a data object is no xz stream ({error})") from error
    return found


def _unpacked_lz4(read: ReadPayload, count: int) -> bytes:
    size = int.from_bytes(read(8), "little")
    if size > count:
        return _lz4_beginning(read, count, size)
    import lz4.block  # noqa: PLC0415

    try:
        found = bytes(lz4.block.decompress(_StoredPayload(read, 8).read(-1), uncompressed_size=size))
    except (lz4.block.LZ4BlockError, ValueError, MemoryError) as error:
        raise CorruptionError(f"a data object is no LZ4 block ({error})") from error
    if len(found) != size:
        raise CorruptionError(f"a data object's LZ4 block holds {len(found)} bytes, not {size}")
    return found


def _lz4_beginning(read: ReadPayload, count: int, size: int) -> bytes:
    """Unpack the first `count` bytes of a block, which the library unpacks only whole.

    A run of literals or a match of n bytes has its length in n / 255 bytes before it.
    """
    block = read(8 + 2 * count + 64 + min(size // 255, _LENGTH_BYTES_MAX))[8:]
    found, at = bytearray(), 0
    try:
        while len(found) < count:
            token = block[at]
            literals, at = _lz4_length(block, at + 1, token >> 4)
            found += block[at : at + literals]
            at += literals
            if at >= len(block):
                break
            distance = block[at] | block[at + 1] << 8
            length, at = _lz4_length(block, at + 2, token & 15)
            start = len(found) - distance
            if distance == 0 or start < 0:
                raise CorruptionError("a data object is no LZ4 block")
            pattern = bytes(found[start:])
            wanted = min(length + 4, count - len(found))
            found += (pattern * (wanted // len(pattern) + 1))[:wanted]
    except IndexError:
        raise CorruptionError("a data object's LZ4 block ends early") from None
    if len(found) < count:
        raise CorruptionError("a data object's LZ4 block ends early")
    return bytes(found[:count])


def _lz4_length(block: bytes, at: int, length: int) -> tuple[int, int]:
    if length == 15:
        while True:
            length += block[at]
            at += 1
            if block[at - 1] != 255:
                break
    return length, at


def _read_up_to(read: Callable[[int], bytes], count: int) -> bytes:
    found = bytearray()
    while len(found) < count and (more := read(count - len(found))):
        found += more
    return bytes(found)


class _StoredPayload:
    """The stored payload as a file; it grows by steps, since most payloads are wanted at their beginning only."""

    def __init__(self, read: ReadPayload, at: int = 0) -> None:
        self._read_payload = read
        self._at = at

    def read(self, size: int = -1) -> bytes:
        """Return the next `size` bytes, or all."""
        end = 1 << 40 if size < 0 else self._at + size
        more = self._read_payload(end)[self._at :]
        self._at += len(more)
        return more
