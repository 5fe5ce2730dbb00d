"""PURE: the read position in each file of a followed path, and its JSON form.

A file and its rotated files are one family, in the order of writing. The state of a family is the place in the file
that is read now, and the places in the others. Versions before `older` and `newer` saved the place alone: this version
reads such a state, and those versions read the place of a new state.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

HEAD_BYTES_MAX = 256
LAST_BYTES_MAX = 256
GONE, UNSEEN = "gone", "unseen"  # parts of a loss's id
OLDER_MAX = 50  # in a saved state; still older files are recognised by their order

_PLACE = ("inode", "position", "head_bytes", "head_crc32", "modified_ns")
_LAST = ("last_bytes", "last_crc32")


@dataclass(frozen=True, slots=True)
class Place:
    """The read position in a file: all before `position` was read; the checksums identify the file.

    The head is the file's first HEAD_BYTES_MAX bytes, or as many as exist, read or not. The last bytes are the known
    ones before `position`. `modified_ns` is the file's modification time when the head was read.
    """

    inode: int
    position: int
    head_bytes: int
    head_crc32: int
    modified_ns: int
    last_bytes: int = 0
    last_crc32: int = 0


@dataclass(frozen=True, slots=True)
class FileState:
    """A file that is not read now: its place, and its size at the last poll."""

    place: Place
    size: int

    @property
    def unread_bytes(self) -> int:
        """Bytes after the place, at least."""
        return max(0, self.size - self.place.position)


@dataclass(frozen=True, slots=True)
class FamilyState:
    """The place in the file that is read now, and the files written before and after it, oldest first."""

    place: Place
    older: tuple[FileState, ...] = ()
    newer: tuple[FileState, ...] = ()
    size: int = 0  # of the file that is read now, at the last poll
    is_whole: bool = True  # False: saved by a version that kept the place alone


def to_json(state: FamilyState) -> dict[str, Any]:
    """Return the JSON form of the state."""
    content: dict[str, Any] = {"place": _fields(state.place, _PLACE), "size": state.size}
    content |= _fields(state.place, _LAST)
    for name, seen in (("older", state.older[-OLDER_MAX:]), ("newer", state.newer)):
        content[name] = [{**_fields(one.place, (*_PLACE, *_LAST)), "size": one.size} for one in seen]
    return content


def from_json(content: Mapping[str, Any]) -> FamilyState:
    """Return a saved state; raises KeyError, TypeError or ValueError for anything else."""
    is_whole = "newer" in content
    older, newer = (tuple(_seen_file(one) for one in content.get(name, [])) for name in ("older", "newer"))
    place = _place(content["place"], content)
    return FamilyState(place, older, newer, _number(content.get("size", 0)), is_whole)


def _fields(place: Place, names: tuple[str, ...]) -> dict[str, int]:
    return {name: getattr(place, name) for name in names}


def _seen_file(content: Mapping[str, Any]) -> FileState:
    return FileState(_place(content, content), _number(content["size"]))


def _place(content: Mapping[str, Any], last: Mapping[str, Any]) -> Place:
    fields = {name: _number(content[name]) for name in _PLACE}
    return Place(**fields, **{name: _number(last.get(name, 0)) for name in _LAST})


def _number(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{value!r} is no whole number")
    return value


@dataclass(frozen=True, slots=True)
class Line:
    """A line without its newline; `position` is its start, `after` the state to save once it is acknowledged."""

    text: bytes
    inode: int
    position: int
    after: FamilyState


@dataclass(frozen=True, slots=True)
class TooLong:
    """A line that is too long, of `bytes` bytes; `beginning` is the kept part."""

    beginning: bytes
    bytes: int
    inode: int
    position: int
    after: FamilyState


@dataclass(frozen=True, slots=True)
class UnreadRest:
    """A loss after `place`: `bytes` of it, None if unknown.

    One place may have a loss of each kind: the rest of the file, GONE, and files that were never seen, UNSEEN.
    """

    place: Place
    bytes: int | None
    why: str
    kind: str = GONE
    after: FamilyState | None = None


Item = Line | TooLong | UnreadRest
