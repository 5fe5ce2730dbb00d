"""The records of a compressed batch, unpacked slice by slice: at no time whole, and never beyond a bound.

| codec | by | a piece ends | refused, though Kafka acks it |
|---|---|---|---|
| gzip | the standard library | anywhere | bytes after the member, a second member: librdkafka skips it silently |
| snappy | cramjam | after a block; without the Java library's framing it is one | bytes after the last block |
| lz4 | lz4 | anywhere | bytes after the frame, a wrong content checksum: librdkafka stops |
| zstd | zstandard | anywhere, after 128 KiB at most | |

A snappy block unpacks to at most 22 times its size, so the largest piece is that of message.max.bytes. A zstd frame
makes the reader keep its window: up to 8 MiB, or what was unpacked so far where the window is larger (levels 20 to 22);
such a frame may unpack to WIDE_WINDOW_UNPACKED_MAX.

Does not contain: what the pieces mean (records_walk.py). Source: RFC 1952, RFC 8878, the LZ4 frame format, the
framing of xerial's snappy-java.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from edge_broker.errors import ErrorCode, Refusal
from edge_broker.protocol.records_walk import lying

UNPACKED_BYTES_MAX = 256 * 1024 * 1024  # hard bound on what one batch may unpack to
WINDOW_BYTES_MAX = 8 * 1024 * 1024
WIDE_WINDOW_UNPACKED_MAX = 16 * 1024 * 1024
KEPT_WINDOW_BYTES_MAX = 2 * 1024 * 1024  # a decoder keeps its window; level 3 has this one
PIECE_BYTES = 1024 * 1024

CODEC_NONE, CODEC_GZIP, CODEC_SNAPPY, CODEC_LZ4, CODEC_ZSTD = range(5)
CODEC_NAMES = ("none", "gzip", "snappy", "lz4", "zstd")
MODULES = {CODEC_SNAPPY: "cramjam", CODEC_LZ4: "lz4.frame", CODEC_ZSTD: "zstandard"}

SNAPPY_MAGIC = b"\x82SNAPPY\x00"
SNAPPY_HEADER_SIZE = 16
_SNAPPY_RATIO_MAX = 22  # 3 bytes say "64 bytes from there"
_INPUT_BYTES = 64 * 1024
_LZ4_MAGIC = b"\x04\x22\x4d\x18"
_LZ4_INDEPENDENT_BLOCKS = 0x20
_ZSTD_PIECE_BYTES = 128 * 1024  # which stays in the processor's cache
_ZSTD_RLE = 1
_ZSTD_SKIPPED = 0x184D2A5  # and four bits more: a frame that holds nothing for us
_idle_zstd: list[tuple[Any, memoryview]] = []  # between two frames: to make a decoder costs a tenth of a usual batch

Packed = bytes | bytearray | memoryview


class Unpacker:
    """The pieces of one batch's records; `unpacked` counts their bytes so far, `at_end`: nothing follows this piece.

    A piece is good until the next one is asked for; `piece_bytes` may change between two. Iterating raises Refusal:
    INVALID_RECORD when this is not what the codec makes, MESSAGE_TOO_LARGE beyond the bounds,
    UNSUPPORTED_COMPRESSION_TYPE where the codec's library is not installed.
    """

    def __init__(self, codec: int, packed: Packed, piece_bytes: int = PIECE_BYTES) -> None:
        self.codec = codec
        self.packed = packed
        self.piece_bytes = piece_bytes
        self.unpacked = 0
        self.unpacked_max = UNPACKED_BYTES_MAX
        self.at_end = False

    def __iter__(self) -> Iterator[bytes | memoryview]:
        if self.codec > CODEC_ZSTD:
            raise Refusal(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"There is no compression codec {self.codec}.")
        module = library(self.codec) if self.codec in MODULES else None
        pieces = (_plain, _gzip, _snappy, _lz4, _zstd)[self.codec](self, module)
        try:
            for piece in pieces:
                self.take(len(piece))
                yield piece
        except (Refusal, MemoryError):
            raise
        except Exception as reason:
            raise lying(f"{CODEC_NAMES[self.codec]}: {str(reason) or type(reason).__name__}") from reason

    def take(self, size: int) -> None:
        """Count so many bytes more; Refusal MESSAGE_TOO_LARGE beyond the bound."""
        self.unpacked += size
        if self.unpacked > self.unpacked_max:
            reason = f"The batch unpacks to more than {self.unpacked_max} bytes; send smaller batches."
            raise Refusal(ErrorCode.MESSAGE_TOO_LARGE, reason)


def missing_codecs() -> tuple[str, ...]:
    """The codecs whose library is not installed, by name."""
    return tuple(CODEC_NAMES[codec] for codec, module in MODULES.items() if not _is_there(module))


def _is_there(module: str) -> bool:
    return find_spec(module.partition(".")[0]) is not None


def library(codec: int) -> Any:
    """The library of a codec, imported when it is first needed: 1 to 2 MB each. Refusal as an Unpacker."""
    try:
        return import_module(MODULES[codec])
    except ImportError as reason:
        package = MODULES[codec].partition(".")[0]
        message = f"{CODEC_NAMES[codec]} needs the Python package {package}, which is not installed here."
        raise Refusal(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, message) from reason


def _plain(to: Unpacker, _module: Any) -> Iterator[memoryview]:
    view = memoryview(to.packed)
    position = 0
    while position < len(view):
        end = position + to.piece_bytes
        yield view[position:end]
        position = end


def _gzip(to: Unpacker, _module: Any) -> Iterator[bytes]:
    unpacker = zlib.decompressobj(wbits=31)
    view = memoryview(to.packed)
    position = 0
    while not unpacker.eof:
        rest = unpacker.unconsumed_tail
        if not rest:
            rest = bytes(view[position : position + _INPUT_BYTES])
            position += len(rest)
            if not rest:
                raise lying("gzip is cut off")
        piece = unpacker.decompress(rest, to.piece_bytes)
        if piece:
            yield piece
    if unpacker.unused_data or position < len(view):
        raise lying("bytes follow the gzip member")


def _lz4(to: Unpacker, module: Any) -> Iterator[bytes]:
    view = memoryview(to.packed)
    if len(view) < 7 or view[:4] != _LZ4_MAGIC or not view[4] & _LZ4_INDEPENDENT_BLOCKS:
        raise lying("this is no lz4 frame of independent blocks")
    context = module.create_decompression_context()
    position, ended = 0, False
    while not ended:
        given = view[position : position + _INPUT_BYTES]
        piece, read, ended = module.decompress_chunk(context, given, max_length=to.piece_bytes)
        position += read
        if piece:
            to.at_end = ended and position == len(view)
            yield piece
        elif not read and not ended:
            raise lying("lz4 is cut off")
    if position < len(view):
        raise lying("bytes follow the lz4 frame")


def _snappy(to: Unpacker, module: Any) -> Iterator[bytes]:
    """Snappy, plain or in the blocks of the Java library: 16 bytes of header, then int32 size and block."""
    packed = to.packed
    if bytes(packed[: len(SNAPPY_MAGIC)]) != SNAPPY_MAGIC:
        yield _snappy_block(to, module, packed, 0)
        return
    if len(packed) < SNAPPY_HEADER_SIZE:
        raise lying("snappy is cut off")
    position = SNAPPY_HEADER_SIZE
    blocks: list[bytes] = []
    waiting = 0
    while position < len(packed):
        size = int.from_bytes(packed[position : position + 4], "big")
        position += 4
        if not 0 < size <= len(packed) - position:
            raise lying(f"a block of snappy has {size} bytes")
        blocks.append(_snappy_block(to, module, packed[position : position + size], waiting))
        waiting += len(blocks[-1])
        position += size
        if waiting >= to.piece_bytes:
            yield b"".join(blocks)
            blocks, waiting = [], 0
    if blocks:
        yield b"".join(blocks)


def _snappy_block(to: Unpacker, module: Any, block: Packed, waiting: int) -> bytes:
    size = module.snappy.decompress_raw_len(bytes(block[:8]))
    if size > _SNAPPY_RATIO_MAX * len(block):
        raise lying(f"snappy of {len(block)} bytes says that it unpacks to {size}")
    if to.unpacked + waiting + size > to.unpacked_max:
        to.take(waiting + size)
    return bytes(module.snappy.decompress_raw(block))


def _zstd(to: Unpacker, module: Any) -> Iterator[memoryview]:
    """The pieces lie in one buffer, each until the next is asked for: a bytes object for each would be copied twice."""
    rest = memoryview(to.packed)
    if not rest:
        raise lying("zstd is cut off")
    while rest:
        if len(rest) >= 8 and int.from_bytes(rest[:4], "little") >> 4 == _ZSTD_SKIPPED:
            end = 8 + int.from_bytes(rest[4:8], "little")
            if end > len(rest):
                raise lying("zstd is cut off")
            rest = rest[end:]
            continue
        found = module.get_frame_parameters(rest)
        if found.window_size > WINDOW_BYTES_MAX:
            to.unpacked_max = min(to.unpacked_max, WIDE_WINDOW_UNPACKED_MAX)
        end = _zstd_frame_end(rest, module.frame_header_size(rest))
        decoder, buffer = _zstd_decoder(module)
        reader = decoder.stream_reader(rest[:end])
        while size := reader.readinto(buffer[: to.piece_bytes]):
            room = buffer[size : to.piece_bytes]
            if room:
                more = reader.readinto(room)
                size += more
                to.at_end = not more and end == len(rest)
            yield buffer[:size]
        rest = rest[end:]
        if found.window_size <= KEPT_WINDOW_BYTES_MAX and not _idle_zstd:
            _idle_zstd.append((decoder, buffer))


def _zstd_decoder(module: Any) -> tuple[Any, memoryview]:
    try:
        return _idle_zstd.pop()  # by asking first, another thread might have it then
    except IndexError:
        return module.ZstdDecompressor(), memoryview(bytearray(_ZSTD_PIECE_BYTES))


def _zstd_frame_end(frame: memoryview, position: int) -> int:
    """Where a frame ends: its blocks say how long they are packed. The decoder does not tell when one is cut off."""
    last = False
    while not last:
        if position + 3 > len(frame):
            raise lying("zstd is cut off")
        head = int.from_bytes(frame[position : position + 3], "little")
        last = bool(head & 1)
        position += 3 + (1 if head >> 1 & 3 == _ZSTD_RLE else head >> 3)
    position += 4 if frame[4] & 4 else 0  # its checksum
    if position > len(frame):
        raise lying("zstd is cut off")
    return position
