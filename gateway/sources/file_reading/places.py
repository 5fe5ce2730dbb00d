"""PURE: how far each file of a followed path has been read, and the JSON that this is saved as.

A rotated file and the files that it comes from are one family, in the order of writing. The state of a family is the
place in the file that is read now, and the places in the others. Versions before `older` and `newer` saved the place
alone; such a state is taken over, and versions of that time read the place of a new state.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

HEAD_BYTES_MAX = 256
LAST_BYTES_MAX = 256
GONE, UNSEEN = "gone", "unseen"  # parts of a loss's id
OLDER_MAX = 50  # in a saved state; older files than these are told by their order

_PLACE = ("inode", "position", "head_bytes", "head_crc32", "modified_ns")
_LAST = ("last_bytes", "last_crc32")


@dataclass(frozen=True, slots=True)
class Place:
    """Where reading of a file stands: everything before `position` was taken; the checksums tell it from another file.

    The head is as much of the file's first HEAD_BYTES_MAX bytes as was there, whether taken or not. The last bytes are
    those before `position`, as far as they are known. `modified_ns` is the file's change time when the head was read.
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
    """A file that is not read now: where its reading stands, and how many bytes it held when last looked at."""

    place: Place
    size: int

    @property
    def unread_bytes(self) -> int:
        """Bytes past the place, at least."""
        return max(0, self.size - self.place.position)


@dataclass(frozen=True, slots=True)
class FamilyState:
    """The place in the file that is read now, and the files written before and after it, oldest first."""

    place: Place
    older: tuple[FileState, ...] = ()
    newer: tuple[FileState, ...] = ()
    size: int = 0  # of the file that is read now, when last looked at
    is_whole: bool = True  # False: saved by a version that kept the place alone


def to_json(state: FamilyState) -> dict[str, Any]:
    """Return what the state is saved as."""
    content: dict[str, Any] = {"place": _fields(state.place, _PLACE), "size": state.size}
    content |= _fields(state.place, _LAST)
    for name, seen in (("older", state.older[-OLDER_MAX:]), ("newer", state.newer)):
        content[name] = [{**_fields(one.place, (*_PLACE, *_LAST)), "size": one.size} for one in seen]
    return content


def from_json(content: Mapping[str, Any]) -> FamilyState:
    """Return a saved state; raises KeyError, TypeError or ValueError for anything else."""
    is_whole = "newer" in content
    older, newer = (tuple(_seen(one) for one in content.get(name, [])) for name in ("older", "newer"))
    place = _place(content["place"], content)
    return FamilyState(place, older, newer, _number(content.get("size", 0)), is_whole)


def _fields(place: Place, names: tuple[str, ...]) -> dict[str, int]:
    return {name: getattr(place, name) for name in names}


def _seen(content: Mapping[str, Any]) -> FileState:
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
    """A line without its newline; `position` is its start, `after` the state to save once it is safe."""

    text: bytes
    inode: int
    position: int
    after: FamilyState


@dataclass(frozen=True, slots=True)
class TooLong:
    """A line left out because of its length, `bytes`; `beginning` is what was kept of it."""

    beginning: bytes
    bytes: int
    inode: int
    position: int
    after: FamilyState


@dataclass(frozen=True, slots=True)
class UnreadRest:
    """What was written past `place` is lost: `bytes` of it, None where that is unknown.

    One place may have a loss of each kind: of the file, GONE, and of files that came and went after it, UNSEEN.
    """

    place: Place
    bytes: int | None
    why: str
    kind: str = GONE
    after: FamilyState | None = None


Item = Line | TooLong | UnreadRest
