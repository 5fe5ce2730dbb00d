"""PURE: find which names are rotated files, their source file, and the order in which they were written.

A name is a rotated one only if its source file exists. Does not contain: clocks, file access.

| tool | a rotated `app.log` is named |
|---|---|
| logrotate | `app.log.1` (2 is older), `app.log-20261128`, with `extension .log` `app-20261128.log`, `app.1.log` |
| log4j2, Logback | `app-2026-11-28-1.log`, `app-1.log` (`fileIndex="max"`: 2 is newer), `app.2026-11-28.log` |
| lumberjack | `app-2026-11-28T10-00-00.000.log` |
| Python, Go, cron jobs | `app.log.2026-11-28_10-00`, `app_20261128_1000.log`, `app.log.old`, `app.log.bak` |

Sources: logrotate(8); log4j2 "Rolling file appenders"; lumberjack's README.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from pathlib import PurePath

from gateway.sources.file_reading.links import LinkRule

COMPRESSED = (".gz", ".bz2", ".xz", ".zst", ".lz4", ".lzma", ".zip", ".Z")
NUMBER_MAX = 99_999  # of a rotated file's counter; a larger number is a date or a time
DEPTH_MAX = 3  # `app-20261128.log.1` comes from `app-20261128.log`, which comes from `app.log`
_MARK = re.compile(r"(?:\d[\dTZ.:_+-]*|old|bak)")
_EXTENSION = re.compile(r"\.[A-Za-z]\w*$")
_SCRATCH = re.compile(r"(?:\.tmp|\.swp|~)$")


@dataclass(frozen=True, slots=True)
class Entry:
    """A file of a directory listing; `path` is one of its names."""

    path: str
    device: int
    inode: int
    size: int
    modified_ns: int
    links: LinkRule = field(default=LinkRule(), compare=False, repr=False)  # by which it is opened

    @property
    def id(self) -> tuple[int, int]:
        """Device and inode, unique at one time; a new file may reuse those of a deleted one."""
        return self.device, self.inode


def is_compressed(name: str) -> bool:
    """Return whether the name is that of a compressed file, which is never followed by its name."""
    return name.endswith(COMPRESSED)


def uncompressed_name(name: str) -> str:
    """Return the name that a compressed file had before; any other name as it is."""
    return next((name.removesuffix(ending) for ending in COMPRESSED if name.endswith(ending)), name)


def source_of(name: str, names: Collection[str]) -> str | None:
    """Return the name of the file that `name` was rotated or copied from, among `names`; None: it stands alone."""
    found = None
    while (base := next((base for base in _sources(found or name) if base in names), None)) is not None:
        found = base
    return found


@lru_cache(maxsize=16_384)
def _sources(name: str) -> tuple[str, ...]:
    """Return the names that `name` may have been rotated from, the longest first, whether they exist or not."""
    found: dict[str, None] = {}
    level = [name]
    for _ in range(DEPTH_MAX):
        level = [base for one in level for base in _one_step(one)]
        found |= dict.fromkeys(level)
    return tuple(sorted((base for base in found if base), key=len, reverse=True))


def _one_step(name: str) -> Iterable[str]:
    for plain in (uncompressed_name(name), _SCRATCH.sub("", name)):
        if plain != name:
            yield plain
    extension = match.group() if (match := _EXTENSION.search(name)) else ""
    for ending in dict.fromkeys(("", extension)):
        stem = name[: len(name) - len(ending)]
        separators = "._-" if ending else ".-"
        for at in range(1, len(stem) - 1):
            if stem[at] in separators and _MARK.fullmatch(stem, at + 1):
                yield stem[:at] + ending


def in_order(entries: Iterable[Entry], path: str, *, counts_upwards: bool | None = None) -> list[Entry]:
    """Return the files oldest first: by the counters in their names, else by modification time; `path` is the newest.

    `counts_upwards`: the file with the higher number is the newer one; None: modification times decide.
    """
    live = [entry for entry in entries if entry.path == path]
    rotated = [entry for entry in entries if entry.path != path]
    counts = {entry: _rotation_numbers(entry.path, path) for entry in rotated}
    if rotated and all(len(count) == 1 and count[0] <= NUMBER_MAX for count in counts.values()):
        ordered = sorted(rotated, key=lambda entry: counts[entry], reverse=True)
        upwards = ordered[::-1]
        if counts_upwards is None:  # as log4j2 does with fileIndex="max"
            times = [entry.modified_ns for entry in upwards]
            counts_upwards = len(times) > 1 and all(one < two for one, two in pairwise(times))
        ordered = upwards if counts_upwards else ordered
    elif all((count and max(count) > NUMBER_MAX) or len(count) > 2 for count in counts.values()):
        ordered = sorted(rotated, key=lambda entry: (counts[entry], entry.modified_ns, entry.path))
    else:
        ordered = sorted(rotated, key=lambda entry: (entry.modified_ns, counts[entry], entry.path))
    return ordered + live


def number_of(path: str, base: str) -> int | None:
    """Return the number of a rotated file whose name counts files, not time."""
    counted = _rotation_numbers(path, base)
    return counted[0] if len(counted) == 1 and counted[0] <= NUMBER_MAX else None


def _rotation_numbers(path: str, base: str) -> tuple[int, ...]:
    """Return the numbers in the part of a rotated name that the file's own name lacks."""
    name, own = PurePath(path).name, PurePath(base).name
    common = next((at for at, (one, two) in enumerate(zip(name, own, strict=False)) if one != two), len(own))
    return tuple(int(digits) for digits in re.findall(r"\d+", name[common:]))
