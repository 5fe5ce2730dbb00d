"""SYNC: which symbolic links lead to a followed file, and the files that a pattern finds without following any other.

Otherwise a user with write access to a watched directory could have the gateway publish any file that it may read.

| a link | `follow_links = false`, the default | `true` |
|---|---|---|
| in the part of a path before its first `*`, `?` or `[` | followed: the configuration names it | followed |
| a directory after that | not entered | followed |
| the file itself, also where the configuration names it | not opened | followed |

Opening goes from directory to directory (openat), so that a name replaced concurrently has no effect.
Source: open(2), O_NOFOLLOW; glob(7); symlink(7).
"""

from __future__ import annotations

import glob
import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path

from drupelet.printable import name_text

_REMEDY = "name what it points to, or set follow_links = true"
LINK = f"it is a link: {_REMEDY}"
LINKED_DIRECTORY = f"{LINK}; nothing in that directory is read"
KERNEL_FILE_SYSTEMS = frozenset(
    ("proc", "sysfs", "cgroup", "cgroup2", "debugfs", "tracefs", "securityfs", "configfs", "efivarfs", "bpf")
)
_KINDS = (
    (stat.S_ISFIFO, "a FIFO"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISDIR, "a directory"),
    (stat.S_ISLNK, "a link"),
)
_TO_DIRECTORY = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class NotRegularError(OSError):
    """The path is no regular file, or is reached only by a link; the message names it and the remedy."""


@dataclass(frozen=True, slots=True)
class LinkRule:
    """Opens and lists files by the rule above; below `roots` no link is followed, unless `follows`.

    A path below no root counts as one whose directory the configuration names.
    """

    roots: tuple[Path, ...] = ()
    follows: bool = False

    def open(self, path: Path, flags: int) -> int:
        """Return a descriptor of the file. Raises OSError, NotRegularError for a link."""
        if self.follows:
            return os.open(path, flags)
        root, names = self._split(path)
        if len(names) == 1:
            return _open_no_link(path, flags, None, path)
        directory = os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        at = root
        try:
            for name in names[:-1]:
                at /= name
                below = _open_no_link(Path(name), _TO_DIRECTORY, directory, at)
                os.close(directory)
                directory = below
            return _open_no_link(Path(names[-1]), flags, directory, path)
        finally:
            os.close(directory)

    def status(self, path: Path) -> os.stat_result:
        """Return the status of the file; of a link that is not followed, the link's own.

        Raises OSError, NotRegularError if a directory of the path is a link.
        """
        if self.follows:
            return path.stat()
        root, names = self._split(path)
        for name in names[:-1]:
            root /= name
            if root.is_symlink():
                raise _is_link(root)
        return path.lstat()

    def _split(self, path: Path) -> tuple[Path, tuple[str, ...]]:
        above = [root for root in self.roots if root in path.parents]
        root = max(above, key=lambda one: len(one.parts), default=path.parent)
        return root, path.parts[len(root.parts) :]


def rule_for(*patterns: Path | None, follows: bool) -> LinkRule:
    """Return the rule for files that these patterns or paths find."""
    return LinkRule(tuple(fixed_part(pattern) for pattern in patterns if pattern is not None), follows)


def fixed_part(pattern: Path) -> Path:
    """Return the directory before the first part of a pattern with a wildcard."""
    parts = pattern.parent.parts
    at = next((at for at, part in enumerate(parts) if glob.has_magic(part)), len(parts))
    return Path(*parts[:at])


def matching(pattern: Path, links: LinkRule, left_out: dict[Path, str] | None = None) -> Iterator[Path]:
    """Return the present matches of the pattern, links to files included; directories may be among them.

    Directories that are links go into `left_out` with the reason. An unreadable directory is skipped, as by glob(7).
    """
    if links.follows:
        yield from map(Path, glob.iglob(str(pattern), recursive=True))
        return
    root = fixed_part(pattern)
    yield from _walk(root, pattern.parts[len(root.parts) :], {} if left_out is None else left_out)


def _walk(directory: Path, parts: tuple[str, ...], left_out: dict[Path, str]) -> Iterator[Path]:
    part, rest = parts[0], parts[1:]
    if part == "**":
        if rest:
            yield from _walk(directory, rest, left_out)
        for name in _names(directory):
            if not name.startswith("."):
                path = directory / name
                if not rest and not path.is_dir():
                    yield path
                elif _may_enter(path, left_out):
                    yield from _walk(path, parts, left_out)
        return
    names = _names(directory) if glob.has_magic(part) else [part]
    for name in names:
        is_hidden = name.startswith(".") and not part.startswith(".")
        if name != part and (is_hidden or not fnmatchcase(name, part)):
            continue
        path = directory / name
        if not rest:
            if os.path.lexists(path):
                yield path
        elif _may_enter(path, left_out):
            yield from _walk(path, rest, left_out)


def _names(directory: Path) -> list[str]:
    with suppress(OSError):
        return sorted(os.listdir(directory))
    return []


def _may_enter(path: Path, left_out: dict[Path, str]) -> bool:
    if not path.is_dir():
        return False
    if path.is_symlink():
        left_out[path] = LINKED_DIRECTORY
        return False
    return True


def _open_no_link(path: Path, flags: int, directory: int | None, whole: Path) -> int:
    try:
        return os.open(path, flags | os.O_NOFOLLOW, dir_fd=directory)
    except OSError as error:
        if whole.is_symlink():  # ELOOP, or ENOTDIR if a directory is required
            raise _is_link(whole) from None
        error.filename = str(whole)
        raise


def _is_link(path: Path) -> NotRegularError:
    return NotRegularError(f"{name_text(path)} is a link: {_REMEDY}")


def kind_of(mode: int) -> str:
    """Return the kind of an irregular file, for a sentence."""
    return next((text for is_kind, text in _KINDS if is_kind(mode)), "a device")


def irregular_kind(status: os.stat_result) -> str:
    """Return why a file cannot be followed, for a sentence; empty for a regular file on a disk."""
    if not stat.S_ISREG(status.st_mode):
        return kind_of(status.st_mode)
    return "a file of the kernel's" if _is_kernel_s(status.st_dev) else ""


@lru_cache(maxsize=256)
def _is_kernel_s(device: int) -> bool:
    """Return whether a device is a virtual file system such as /proc, whose files have no useful size."""
    wanted = f"{os.major(device)}:{os.minor(device)}"
    try:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
            lines = [line.split() for line in file]
    except FileNotFoundError:  # without /proc none of its files exists
        return False
    return any(words[2] == wanted and words[words.index("-") + 1] in KERNEL_FILE_SYSTEMS for words in lines)
