"""The blocks of commands of a page, and what they print."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

BLOCK = re.compile(r"^```sh\n(.*?)^```\n(?:```text\n(.*?)^```\n)?", re.MULTILINE | re.DOTALL)


class PageBlock(NamedTuple):
    """Commands of the page, its line, and what it says that they print."""

    line: int
    commands: str
    shown: str


def blocks(page: str) -> Iterator[PageBlock]:
    for match in BLOCK.finditer(page):
        yield PageBlock(page.count("\n", 0, match.start()) + 2, match[1], match[2] or "")


def shape(line: str) -> str:
    """A pattern of what a line of the page stands for."""
    parts = re.split(r"(\d+|\s+|…)", line.strip())
    return "".join(
        {"…": ".*"}.get(part, r"[\d,]+" if part.isdigit() else r"\s+" if part.isspace() else re.escape(part))
        for part in parts
    )
