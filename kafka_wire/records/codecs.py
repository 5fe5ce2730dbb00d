"""Pack and unpack record batches by Kafka's codecs, in a worker thread.

| codec  | level        | output |
|--------|--------------|--------------|
| gzip   | 0 to 9 (6)   | one member |
| snappy | none         | the framing of xerial's snappy-java, blocks of 32 KiB |
| lz4    | 0 to 12 (0)  | one frame of independent blocks, as the Java client takes no other |
| zstd   | 1 to 22 (3)  | one frame with its size, a window of ZSTD_WINDOW_LOG at most |

Each thread keeps the zstd context that it used last: for 1 MiB of JSON readings 1 MB at level 3, 2.7 MB at 9, 5 MB at
19 and 22, however large the input; with the levels' own windows they take 10 and 17 MB and pack no better.

Does not contain: headers of batches, the use of packing. Source: Kafka's KIP-390 for levels, CompressionType.
"""

from __future__ import annotations

import asyncio
import threading
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from edge_broker.protocol.unpacking import (
    CODEC_GZIP,
    CODEC_LZ4,
    CODEC_NAMES,
    CODEC_NONE,
    CODEC_SNAPPY,
    CODEC_ZSTD,
    SNAPPY_MAGIC,
    library,
)

ZSTD_WINDOW_LOG = 18
LEVELS = {CODEC_GZIP: (0, 9), CODEC_LZ4: (0, 12), CODEC_ZSTD: (1, 22)}
_DEFAULT_LEVELS = {CODEC_GZIP: -1, CODEC_LZ4: 0, CODEC_ZSTD: 3}
_SNAPPY_HEADER = SNAPPY_MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"  # version, and the oldest one that reads it
_SNAPPY_BLOCK = 32 * 1024

T = TypeVar("T")
Content = bytes | bytearray | memoryview


class _Contexts(threading.local):
    """The zstd context that this thread used last, with its level."""

    level = 0
    zstd: Any = None


_contexts = _Contexts()


def codec_number(codec: int | str) -> int:
    """Return the number of a codec by its name or number; raises ValueError if there is none."""
    if isinstance(codec, str):
        if codec not in CODEC_NAMES:
            raise ValueError(f"There is no codec {codec!r}; Kafka knows {', '.join(CODEC_NAMES)}.")
        return CODEC_NAMES.index(codec)
    if not 0 <= codec < len(CODEC_NAMES):
        raise ValueError(f"There is no codec {codec}; Kafka knows 0 to {len(CODEC_NAMES) - 1}.")
    return codec


def check_level(codec: int | str, level: int | None) -> None:
    """Raise ValueError if the codec has no such level; None is its own default."""
    number = codec_number(codec)
    if level is None:
        return
    if number not in LEVELS:
        raise ValueError(f"The codec {CODEC_NAMES[number]} has no levels.")
    least, most = LEVELS[number]
    if not least <= level <= most:
        raise ValueError(f"{CODEC_NAMES[number]} has the levels {least} to {most}, not {level}.")


def compress(codec: int | str, level: int | None, content: Content) -> Content:
    """Compress the bytes after a batch's header; `none` returns the content itself.

    Raises ValueError for a codec or level that does not exist, Refusal UNSUPPORTED_COMPRESSION_TYPE if its library is
    not installed. Other threads run meanwhile.
    """
    number = codec_number(codec)
    check_level(number, level)
    if number == CODEC_NONE:
        return content
    if number == CODEC_SNAPPY:
        return _snappy(content)
    chosen = _DEFAULT_LEVELS[number] if level is None else level
    return _WITH_LEVELS[number](chosen, content)


def _gzip(level: int, content: Content) -> Content:
    packer = zlib.compressobj(level, wbits=31)
    return packer.compress(content) + packer.flush()


def _lz4(level: int, content: Content) -> Content:
    packed: bytes = library(CODEC_LZ4).compress(content, compression_level=level, block_linked=False, store_size=False)
    return packed


def _zstd(level: int, content: Content) -> Content:
    if _contexts.level != level:
        module = library(CODEC_ZSTD)
        _contexts.zstd = None  # freed before the next one is made
        window = module.ZstdCompressionParameters.from_level(level, window_log=ZSTD_WINDOW_LOG)
        _contexts.zstd, _contexts.level = module.ZstdCompressor(compression_params=window), level
    packed: bytes = _contexts.zstd.compress(content)
    return packed


def _snappy(content: Content) -> Content:
    pack = library(CODEC_SNAPPY).snappy.compress_raw
    view = memoryview(content)
    packed = bytearray(_SNAPPY_HEADER)
    for position in range(0, len(view), _SNAPPY_BLOCK):
        block = pack(view[position : position + _SNAPPY_BLOCK])
        packed += len(block).to_bytes(4, "big")
        packed += block
    return packed


_WITH_LEVELS: dict[int, Callable[[int, Content], Content]] = {CODEC_GZIP: _gzip, CODEC_LZ4: _lz4, CODEC_ZSTD: _zstd}


class Packer:
    """One worker thread that packs for a loop, one job after another in the order of the calls.

    `await packer.pack(merged, pieces, CODEC_ZSTD, 9)`. The arguments must not change until the result is there. A
    cancelled caller gets no result; work that has begun goes on to its end.
    """

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="pack")

    async def pack(self, work: Callable[..., T], *given: Any) -> T:
        """Run `work` in the worker, and return or raise its result; raises RuntimeError once it is closed."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, work, *given)

    async def close(self) -> None:
        """Drop jobs that have not begun, and wait for the running one."""
        self._thread.shutdown(wait=False, cancel_futures=True)
        await asyncio.to_thread(self._thread.shutdown)
