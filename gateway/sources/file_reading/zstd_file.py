"""SYNC: read the content of a zstd file in bounded memory.

| bound | why |
|---|---|
| INPUT_BYTES at a time | a block of 4 bytes may hold 128 KiB: one step returns at most 4 MiB |
| WINDOW_BYTES_MAX | RFC 8878 recommends it; `zstd` needs more with --ultra -20 and above, and with --long |

A file may have several frames and skippable frames. An incomplete frame raises EOFError, as for gzip.
Source: RFC 8878, sections 3.1.1 and 3.1.2; zstd(1).
"""

from __future__ import annotations

from typing import Any

import zstandard

from gateway.sources.file_reading.decompressed_file import DecompressedFile

INPUT_BYTES = 128
WINDOW_BYTES_MAX = 8 << 20


class ZstdFile(DecompressedFile):
    """The content of a file of one or several zstd frames."""

    def _end_stream(self) -> None:
        self._frame: Any = None  # None: the next frame has not begun

    def _fill(self) -> bool:
        self._input = self._read_input(INPUT_BYTES)
        if not self._input:
            if self._frame is not None:
                raise EOFError("the file ends within a frame")
            return False
        if self._frame is None:
            self._frame = zstandard.ZstdDecompressor(max_window_size=WINDOW_BYTES_MAX).decompressobj()
            self._stream_count += 1
        try:
            self._ready = self._frame.decompress(self._input)
        except zstandard.ZstdError as error:
            raise OSError(str(error)) from error
        self._input = self._frame.unused_data if self._frame.eof else b""
        if self._frame.eof:
            self._end_stream()
        return True
