"""The structs of walk.c as Python objects.

Contains: the layout of `struct walk` and `struct renumbering`, and the two ways to call the library. Does not contain:
rules, and a choice between walkers (records_walk.py, renumbering.py).

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
        """A walk that is fed slice by slice; other threads run meanwhile."""
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


class CompiledRenumbering(ctypes.Structure):
    """The records of several pieces, numbered as those of one; field for field `struct renumbering` of walk.c.

    Each is called twice, other threads run meanwhile: `measure` gives the verdict and how much room is needed, `write`
    fills that room. `area` must be writable and stay as it is between the two; `wanted` is three int64 for each piece.
    """

    _fields_ = (
        ("_area", ctypes.c_void_p),
        ("_area_size", ctypes.c_int64),
        ("_wanted", ctypes.c_void_p),
        ("_pieces", ctypes.c_int64),
        ("_out", ctypes.c_void_p),
        ("_out_size", ctypes.c_int64),
        ("_run", ctypes.c_void_p),
        ("_runs_max", ctypes.c_int64),
        ("written", ctypes.c_int64),
        ("records", ctypes.c_int64),
        ("runs", ctypes.c_int64),
        ("_run_end", ctypes.c_int64),
        ("base_timestamp", ctypes.c_int64),
        ("max_timestamp", ctypes.c_int64),
        ("piece", ctypes.c_int64),
        ("record", ctypes.c_int64),
    )

    def measure(self, area: bytearray, wanted: bytearray) -> int:
        """Check all pieces: a verdict of records_walk.py; `written`, `records` and `runs` say what there will be."""
        held = _byte_of(area), _byte_of(wanted)  # neither can be resized meanwhile
        self._area, self._area_size = _addressof(held[0]), len(area)
        self._wanted, self._pieces = _addressof(held[1]), len(wanted) // 24
        self._out = self._run = 0
        return int(_library.renumber(ctypes.byref(self)))

    def write(self, area: bytearray, wanted: bytearray, out: bytearray, room: int, runs: bytearray) -> int:
        """Write the measured records after `room` bytes, and the runs, two int64 each; 0 when it is done."""
        held = _byte_of(area), _byte_of(wanted), _byte_of(out, room), _byte_of(runs)
        self._area, self._wanted, self._out, self._run = (_addressof(each) for each in held)
        self._out_size, self._runs_max = len(out) - room, len(runs) // 16
        return int(_library.renumber(ctypes.byref(self)))


class _Library:
    """The functions of the library, once it is open."""

    def __init__(self) -> None:
        self.begin: Any = None
        self.feed: Any = None
        self.whole: Any = None
        self.renumber: Any = None
        self.once = CompiledWalk()
        self.place = ctypes.addressof(self.once)


_library = _Library()
_addressof, _byte_of = ctypes.addressof, ctypes.c_char.from_buffer  # each lookup would be a part of the cost


def _address(content: bytes | bytearray | memoryview, position: int = 0) -> Any:
    """Return the content from there on as a pointer for ctypes; content that cannot be written to is copied."""
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


def open_renumbering(path: str) -> None:
    """Load the one function of the renumbering; OSError and AttributeError as `open_library`."""
    _library.renumber = ctypes.CDLL(path).records_renumber
    _library.renumber.argtypes = (ctypes.c_void_p,)
