"""Lines are the same, however the bytes of a file come; of a too long line the beginning is kept up to a bound."""

from __future__ import annotations

import random

import pytest

from gateway.sources.file_reading.line_splitter import KEPT_BYTES_MAX, LineSplitter, Piece

LINE_BYTES_MAX = 100


def split(content: bytes, ends: list[int]) -> list[Piece]:
    """Feed the content in chunks with these ends."""
    splitter, pieces = LineSplitter(LINE_BYTES_MAX), []
    for start, end in zip([0, *ends], [*ends, len(content)], strict=True):
        pieces += splitter.feed(content[start:end])
    return pieces + splitter.finish()


@pytest.mark.parametrize("end", [150, 250, 299, 300])
@pytest.mark.parametrize("newline", [b"\n", b""])
def test_a_long_line_that_comes_in_two_reads_is_kept_whole(end: int, newline: bytes) -> None:
    line = bytes(range(11, 211)) + b"x" * 100
    assert split(line + newline, [end]) == [Piece(line, len(line), len(line + newline))]


def test_a_line_that_comes_in_many_reads_is_kept_up_to_the_bound() -> None:
    line = random.Random(1).randbytes(3 * KEPT_BYTES_MAX).replace(b"\n", b" ").replace(b"\0", b" ")
    pieces = split(line + b"\n", list(range(1_000, len(line), 1_000)))
    assert pieces == [Piece(line[:KEPT_BYTES_MAX], len(line), len(line) + 1)]


@pytest.mark.parametrize("seed", range(40))
def test_the_sizes_of_the_reads_change_no_line(seed: int) -> None:
    chance = random.Random(seed)
    lengths = [chance.choice((0, 5, 99, 100, 101, 102, 300, 70_000)) for _ in range(8)]
    content = b"\n".join(bytes(chance.randint(32, 126) for _ in range(length)) for length in lengths)
    ends = sorted(chance.sample(range(len(content) + 1), k=chance.randint(1, 12))) if len(content) > 12 else []
    assert split(content, ends) == split(content, []), f"seed {seed}"
