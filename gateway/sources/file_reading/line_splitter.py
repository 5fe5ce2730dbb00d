"""PURE: lines out of the bytes of a file; lines that are too long are counted, and NULs that nobody wrote are skipped.

NULs at the beginning of a file stand where a program without O_APPEND wrote on after copytruncate; a block of them
before a line stands where a power cut took the data and left the file's size. Both are skipped and counted.
"""

from __future__ import annotations

from dataclasses import dataclass

KEPT_BYTES_MAX = 65_536  # of a line that is too long
NULS_MIN = 512  # within a file: a sector; fewer are the line's own


@dataclass(frozen=True, slots=True)
class Piece:
    """What takes `size` bytes of the file, its newline included: a line, or NULs, which have no `text`."""

    text: bytes | None
    length: int
    size: int

    @property
    def is_whole(self) -> bool:
        """Whether `text` has all of the line."""
        return self.text is not None and len(self.text) == self.length

    @property
    def content(self) -> bytes:
        """The bytes of a whole line as the file has them."""
        return (self.text or b"") + b"\n" * (self.size - self.length)


class LineSplitter:
    """Splits what `feed` brings; what it has not given out yet begins at the position that the caller knows."""

    def __init__(self, line_bytes_max: int) -> None:
        self._line_bytes_max = line_bytes_max
        self.start(0)

    def start(self, position: int) -> None:
        """Forget what is held, and go on at this position of a file."""
        self._at_beginning = position == 0
        self._nuls = 0  # at the beginning of the line in hand, and nothing else of it yet
        self._buffer = b""
        self._skipped_bytes = 0  # in front of the buffer: the beginning of a line that is too long
        self._skipped = b""  # of that beginning, what is kept

    @property
    def held_bytes(self) -> int:
        """Bytes that were fed and not given out."""
        return self._nuls + self._skipped_bytes + len(self._buffer)

    def skip_hole(self, size: int) -> None:
        """Take a hole at the beginning of a line: it reads as that many NULs."""
        self._nuls += size

    @property
    def at_line_start(self) -> bool:
        """Whether nothing of a line but NULs is held."""
        return not self._buffer and not self._skipped_bytes

    def feed(self, chunk: bytes) -> list[Piece]:
        """Return what the bytes complete."""
        if self.at_line_start:
            chunk = self._take_nuls(chunk)
        lines = (self._buffer + chunk).split(b"\n")
        self._buffer = lines.pop()
        pieces: list[Piece] = []
        for at, text in enumerate(lines):
            pieces += self._line(text, 1)
            if at + 1 == len(lines):
                self._buffer = self._take_nuls(self._buffer)
            else:
                lines[at + 1] = self._take_nuls(lines[at + 1])
        if len(self._buffer) > self._line_bytes_max:
            self._skipped += self._buffer[: KEPT_BYTES_MAX - len(self._skipped)]
            self._skipped_bytes += len(self._buffer)
            self._buffer = b""
        return pieces

    def finish(self) -> list[Piece]:
        """Return what is held: nothing follows it."""
        if not self.held_bytes:
            return []
        if self.at_line_start:
            nuls, self._nuls = self._nuls, 0
            return [Piece(None, nuls, nuls)]
        text, self._buffer = self._buffer, b""
        return self._line(text, 0)

    def _take_nuls(self, text: bytes) -> bytes:
        rest = text.lstrip(b"\0") if text[:1] == b"\0" else text
        self._nuls += len(text) - len(rest)
        return rest

    def _line(self, text: bytes, newline_bytes: int) -> list[Piece]:
        pieces = []
        if self._nuls >= NULS_MIN or (self._nuls and self._at_beginning):
            pieces.append(Piece(None, self._nuls, self._nuls))
        elif self._skipped_bytes:
            self._skipped = b"\0" * self._nuls + self._skipped
            self._skipped_bytes += self._nuls
        else:
            text = b"\0" * self._nuls + text
        length = self._skipped_bytes + len(text)
        kept = (self._skipped + text)[:KEPT_BYTES_MAX] if length > self._line_bytes_max else text
        pieces.append(Piece(kept, length, length + newline_bytes))
        self._nuls = self._skipped_bytes = 0
        self._skipped = b""
        self._at_beginning = False
        return pieces
