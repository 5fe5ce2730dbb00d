"""The struct of walk.c as a Python object.

Lives here: the layout of `struct walk` and the two ways to call the library. Must never come in: rules, and a choice
between walkers (records_walk.py).

| called | the interpreter's lock | used |
|---|---|---|
| PyDLL | is kept: letting go of it costs more than a small batch; a busy thread may keep it for 1 ms | on the loop |
| CDLL | is let go of | in a worker |
"""

from __future__ import annotations

import ctypes
from typing import Any


class CompiledWalk(ctypes.Structure):
    """One walk through a batch's records; field for field `struct walk` of walk.c, and as records_walk.PythonWalk."""

    _fields_ = (
        ("base_timestamp", ctypes.c_int64),
        ("count", ctypes.c_int64),
        ("keys_required", ctypes.c_int32),
        ("times_checked", ctypes.c_int32),
        ("max_timestamp", ctypes.c_int64),
        ("bad_time", ctypes.c_int64),
        ("keyless", ctypes.c_int64),
        ("records", ctypes.c_int64),
        ("position", ctypes.c_int64),
        ("_left", ctypes.c_int64),
        ("_skip", ctypes.c_int64),
        ("_headers", ctypes.c_int64),
        ("_value", ctypes.c_uint64),
        ("_shift", ctypes.c_int32),
        ("_field", ctypes.c_int32),
        ("verdict", ctypes.c_int32),
    )

    @classmethod
    def begin(cls, base_timestamp: int, count: int, keys_required: bool, times_checked: bool) -> CompiledWalk:
        """A walk that is fed piece by piece; other threads run meanwhile."""
        walk = cls()
        _library.begin(ctypes.byref(walk), base_timestamp, count, keys_required, times_checked)
        return walk

    def feed(self, piece: bytes | bytearray | memoryview, *, last: bool) -> int:
        """Walk the next piece, the last one if `last`; the verdict so far, 0 while nothing is wrong."""
        return int(_library.feed(ctypes.byref(self), _address(piece), len(piece), last))

    @classmethod
    def whole(
        cls,
        batch: bytes | memoryview,
        position: int,
        base_timestamp: int,
        count: int,
        keys_required: bool,
        times_checked: bool,
    ) -> CompiledWalk:
        """The walk through all records, from `position` on, on the loop: the next call uses the same object again."""
        library, size = _library, len(batch) - position
        area = _address(batch, position)
        library.whole(library.place, base_timestamp, count, keys_required, times_checked, area, size)
        return library.once


class _Library:
    """The functions of the library, once it is open."""

    def __init__(self) -> None:
        self.begin: Any = None
        self.feed: Any = None
        self.whole: Any = None
        self.once = CompiledWalk()
        self.place = ctypes.addressof(self.once)


_library = _Library()
_addressof, _byte_of = ctypes.addressof, ctypes.c_char.from_buffer  # each lookup would be a part of the cost


def _address(content: bytes | bytearray | memoryview, position: int = 0) -> Any:
    """What ctypes hands on as a pointer to the content from there on, which is copied where it cannot be written to."""
    if isinstance(content, bytes):
        return content[position:]  # itself, from 0 on
    try:
        return _addressof(_byte_of(content, position))
    except (TypeError, ValueError):  # not writable, or empty
        return bytes(content[position:])


def open_library(path: str) -> None:
    """Load the library; OSError when it is none for this machine, AttributeError when it is another one."""
    keeping, letting_go = ctypes.PyDLL(path), ctypes.CDLL(path)
    pointer, number, flag = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int
    _library.begin, _library.feed, _library.whole = (
        keeping.records_walk_begin,
        letting_go.records_walk_feed,
        keeping.records_walk,
    )
    _library.begin.argtypes = (pointer, number, number, flag, flag)
    _library.begin.restype = None
    _library.feed.argtypes = (pointer, pointer, ctypes.c_size_t, flag)
    _library.whole.argtypes = (pointer, number, number, flag, flag, pointer, ctypes.c_size_t)
