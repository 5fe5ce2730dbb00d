"""Find the files of a path with `*`, `?`, `[…]` or `**`, and those that are left out, each with its reason.

| a match | is |
|---|---|
| a regular file | followed |
| a rotated or scratch file whose source matches too (`app.log.1`, `app-2026-11-28.log`) | left to its source |
| a compressed file | left out: it never grows |
| a second name of a file (a hard link, a way through a link that is followed) | left to the first name |
| a directory | no match |
| a link, also to a directory, unless the configuration follows links (`links`) | left out |
| a FIFO, a socket, a device, a file of /proc | left out |

`**` stands for any number of directories. Files and directories with a leading dot match only where the pattern names
the dot. Source: glob(7).
"""

from __future__ import annotations

import os
import stat
from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from itertools import islice
from pathlib import Path, PurePath

from drupelet.printable import name_text
from gateway.sources.file_reading.links import LINK, irregular_kind, matching, rule_for
from gateway.sources.file_reading.rotation import is_compressed, source_of

CANDIDATES_MAX = 10_000


@dataclass(slots=True)
class Matches:
    """The files of a pattern, sorted by name, with their status; `left_out` has the reason for each other match."""

    files: dict[Path, os.stat_result] = field(default_factory=dict)
    left_out: dict[Path, str] = field(default_factory=dict)
    refused: dict[Path, str] = field(default_factory=dict)  # the part of `left_out` that is links and irregular files
    beyond_bound: bool = False  # more than CANDIDATES_MAX match, and the rest was not checked


def find_matches(pattern: Path, followed: Collection[Path] = (), *, follow_links: bool = False) -> Matches:
    """Return the present matches; the `followed` are sources of rotated files even while they do not exist.

    Blocking; raises OSError.
    """
    links, matches = rule_for(pattern, follows=follow_links), Matches()
    found = sorted(islice(matching(pattern, links, matches.refused), CANDIDATES_MAX + 1))
    matches.beyond_bound = len(found) > CANDIDATES_MAX
    regular: dict[Path, os.stat_result] = {}
    for path in found[:CANDIDATES_MAX]:
        try:
            status = links.status(path)
        except OSError:  # it is gone, or is a dangling link
            continue
        if not (kind := irregular_kind(status)):
            regular[path] = status
        elif stat.S_ISLNK(status.st_mode):
            matches.refused[path] = LINK
        elif not stat.S_ISDIR(status.st_mode):
            matches.refused[path] = f"it is {kind}"
    matches.left_out |= matches.refused
    _leave_out_rotated(regular, followed, matches)
    _leave_out_second_names(matches)
    return matches


def is_match(path: PurePath, pattern: PurePath) -> bool:
    """Return whether the pattern matches the path, which need not exist."""
    return _parts_match(path.parts, pattern.parts)


def _parts_match(path: tuple[str, ...], pattern: tuple[str, ...]) -> bool:
    if not pattern:
        return not path
    if pattern[0] == "**":
        return any(_parts_match(path[at:], pattern[1:]) for at in range(len(path) + 1))
    return bool(path) and fnmatchcase(path[0], pattern[0]) and _parts_match(path[1:], pattern[1:])


def _leave_out_rotated(regular: dict[Path, os.stat_result], followed: Collection[Path], matches: Matches) -> None:
    names: defaultdict[Path, set[str]] = defaultdict(set)
    for path in (*regular, *followed):
        names[path.parent].add(path.name)
    for path, status in regular.items():
        source = None if path in followed else source_of(path.name, names[path.parent])
        if source is not None:
            matches.left_out[path] = f"its name says that it was rotated or copied from {name_text(source)}"
        elif is_compressed(path.name):
            matches.left_out[path] = "it is compressed"
        else:
            matches.files[path] = status


def _leave_out_second_names(matches: Matches) -> None:
    first: dict[tuple[int, int], Path] = {}
    for path, status in sorted(matches.files.items(), key=lambda item: (len(item[0].parts), item[0])):
        name = first.setdefault((status.st_dev, status.st_ino), path)
        if name != path:
            del matches.files[path]
            matches.left_out[path] = f"it is the same file as {name_text(name)}"
