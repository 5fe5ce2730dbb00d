"""PURE: split the bytes of a file into lines; count lines that are too long, and skip NULs that no program wrote.

A file begins with NULs if a program without O_APPEND continues to write after copytruncate. A block of NULs before a
line is the result of a power loss that kept the file's size and lost the data. Both are skipped and counted.
"""

from __future__ import annotations

from dataclasses import dataclass

KEPT_BYTES_MAX = 65_536  # of a line that is too long
NULS_MIN = 512  # within a file: a sector; a shorter run belongs to the line


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of the file of `size` bytes, with its newline: a line, or NULs, which have no `text`."""

    text: bytes | None
    length: int
    size: int

    @property
    def is_whole(self) -> bool:
        """Whether `text` has all of the line."""
        return self.text is not None and len(self.text) == self.length

    @property
    def content(self) -> bytes:
        """The bytes of a whole line as in the file."""
        return (self.text or b"") + b"\n" * (self.size - self.length)


class LineSplitter:
    """Splits the bytes of `feed`; the caller knows the position of the first byte not yet returned."""

    def __init__(self, line_bytes_max: int) -> None:
        self._line_bytes_max = line_bytes_max
        self.start(0)

    def start(self, position: int) -> None:
        """Discard buffered bytes, and continue at this position of a file."""
        self._at_beginning = position == 0
        self._nuls = 0  # at the beginning of the buffered line, which has no other byte yet
        self._buffer = b""
        self._skipped_bytes = 0  # before the buffer: the beginning of a line that is too long
        self._skipped = b""  # the kept part of that beginning

    @property
    def held_bytes(self) -> int:
        """Bytes that were fed and not yet returned."""
        return self._nuls + self._skipped_bytes + len(self._buffer)

    def skip_hole(self, size: int) -> None:
        """Accept a hole at the beginning of a line as that many NULs."""
        self._nuls += size

    @property
    def at_line_start(self) -> bool:
        """Whether only NULs of a line are buffered."""
        return not self._buffer and not self._skipped_bytes

    def feed(self, chunk: bytes) -> list[Piece]:
        """Return the lines that the bytes complete."""
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
        """Return the buffered line as complete: no byte follows it."""
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
