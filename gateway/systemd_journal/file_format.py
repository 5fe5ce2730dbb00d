"""Read one journal file: header, entries in the order of their arrival, the fields of an entry.

Every offset and size in the file is a claim, which a power loss or a faulty storage device may break. Each is checked
against the file's size before use; a broken one raises `CorruptionError`. Reads are `pread`: a file that another
process truncates would kill a process that maps it. journald writes an entry before it counts it in `n_entries`.
Source: systemd's JOURNAL_FILE_FORMAT and journal-def.h, versions 187 to 258. Does not contain: the order of files.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from gateway.systemd_journal.compression import CODECS, CorruptionError, Value, beginning, field_value

SIGNATURE = b"LPKSHHRH"
STATE_ARCHIVED = 2
COMPACT = 1 << 4
SHARED_ID_HEADER_BYTES = 272  # journald 254 added a field when it began to count the files of a boot under one id
SUPPORTED_FLAGS = 0b11111  # compressed by xz or lz4, keyed hash, compressed by zstd, compact
_DATA, _ENTRY, _ENTRY_ARRAY = 1, 3, 6
_HEADER = struct.Struct("<8sII B7x 16s16s16s16s 15Q")
_OBJECT = struct.Struct("<BB6xQ")
_ENTRY_HEAD = struct.Struct("<BB6xQ QQQ16sQ")
_ARRAY_HEAD = struct.Struct("<BB6xQ Q")
_LEAST_ENTRY_BYTES = _ENTRY_HEAD.size
_ITEMS_MAX = 1_024 * 8  # fields of an entry; journald takes 1,024
_FIRST_READ_BYTES = 512
_NAME_BYTES_MAX = 64  # of a field
_CACHED_OBJECTS_MAX = 4_096
_CACHED_VALUE_BYTES_MAX = 256


class UnsupportedFileError(Exception):
    """The file is no journal file, or of a format that this version cannot read."""


class UnreachableError(CorruptionError):
    """No entry array leads to an entry, nor to those after it."""


@dataclass(frozen=True, slots=True)
class Header:
    """The header's fields that readers need; times in microseconds."""

    incompatible_flags: int
    state: int
    file_id: str
    machine_id: str
    seqnum_id: str
    header_bytes: int
    n_entries: int
    tail_seqnum: int
    head_seqnum: int
    entry_array_offset: int
    head_realtime_us: int

    @property
    def is_archived(self) -> bool:
        """Whether journald appends nothing more."""
        return self.state == STATE_ARCHIVED

    @property
    def may_share_id(self) -> bool:
        """Whether the version of journald that made the file gives the files of a boot one sequence number id."""
        return self.header_bytes >= SHARED_ID_HEADER_BYTES


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry; `items` are the offsets of its data objects."""

    seqnum: int
    realtime_us: int
    monotonic_us: int
    boot_id: str
    xor_hash: int
    items: tuple[int, ...]


def parse_header(raw: bytes) -> Header:
    """Return the header; raises UnsupportedFileError."""
    if len(raw) < _HEADER.size or raw[:8] != SIGNATURE:
        raise UnsupportedFileError("it has no header of a journal file: move it elsewhere")
    fields = _HEADER.unpack_from(raw)
    _, _, flags, state, file_id, machine_id, _, seqnum_id = fields[:8]
    numbers = fields[8:]
    if flags & ~SUPPORTED_FLAGS:
        raise UnsupportedFileError(
            f"its format has features unknown to this version, flags {flags:#x}: upgrade the gateway"
        )
    if not numbers[8] and numbers[11]:
        raise UnsupportedFileError("its header counts no entries and names some: move it elsewhere")
    return Header(
        flags,
        state,
        file_id.hex(),
        machine_id.hex(),
        seqnum_id.hex(),
        header_bytes=numbers[0],
        n_entries=numbers[8],
        tail_seqnum=numbers[9],
        head_seqnum=numbers[10],
        entry_array_offset=numbers[11],
        head_realtime_us=numbers[12],
    )


def read_header(path: Path) -> tuple[Header, os.stat_result]:
    """Return a file's header and status; raises OSError, UnsupportedFileError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        return parse_header(os.pread(descriptor, _HEADER.size, 0)), os.fstat(descriptor)
    finally:
        os.close(descriptor)


class JournalFile:
    """An open journal file; it stays readable when journald renames or deletes it."""

    def __init__(self, path: Path) -> None:
        """Open the file; raises OSError, UnsupportedFileError."""
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            self.inode = os.fstat(self._descriptor).st_ino
            self.refresh()
        except BaseException:
            self.close()
            raise
        compact = bool(self.header.incompatible_flags & COMPACT)
        self._pointer = struct.Struct("<I" if compact else "<Q")
        self._item = struct.Struct("<I" if compact else "<Q8x")
        self._payload_offset = 72 if compact else 64
        self._arrays: list[tuple[int, int, int]] = []  # offset, index of the first entry, capacity
        self._offsets: tuple[int, list[int]] = (0, [])  # entry offsets of one array, from an index on
        self._objects: dict[int, tuple[str, bytes] | None] = {}

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)

    def refresh(self) -> None:
        """Read the header again; raises OSError, UnsupportedFileError."""
        self.header = parse_header(os.pread(self._descriptor, _HEADER.size, 0))
        status = os.fstat(self._descriptor)
        self._size = status.st_size
        self.is_deleted = status.st_nlink == 0

    @property
    def count(self) -> int:
        """Return the number of entries, never more than the file's size allows."""
        return min(self.header.n_entries, self._size // _LEAST_ENTRY_BYTES)

    def entry(self, index: int) -> Entry:
        """Return the entry that arrived as number `index`, from 0 on; raises CorruptionError, OSError."""
        offset = self._entry_offset(index)
        kind, _, size, seqnum, realtime, monotonic, boot_id, xor_hash = self._unpack(_ENTRY_HEAD, offset)
        count = (size - _ENTRY_HEAD.size) // self._item.size
        if kind != _ENTRY or not 0 <= count <= _ITEMS_MAX or offset + size > self._size or not realtime:
            raise CorruptionError(f"no entry at offset {offset}")
        raw = self._read(offset + _ENTRY_HEAD.size, count * self._item.size)
        items = tuple(item for (item,) in self._item.iter_unpack(raw))
        return Entry(seqnum, realtime, monotonic, boot_id.hex(), xor_hash, items)

    def first_after(self, is_after: Callable[[Entry], bool]) -> int:
        """Return the index of the first entry for which `is_after` holds, by bisection; raises OSError.

        A corrupt entry counts as the first readable one after it.
        """
        low, high = 0, self.count
        while low < high:
            middle = (low + high) // 2
            entry = self._first_readable(middle, high)
            if entry is None or is_after(entry):
                high = middle
            else:
                low = middle + 1
        return low

    def _first_readable(self, index: int, end: int) -> Entry | None:
        for candidate in range(index, end):
            try:
                return self.entry(candidate)
            except CorruptionError:
                continue
        return None

    def fields(self, entry: Entry, wanted: Collection[str]) -> dict[str, list[Value]]:
        """Return the values of the wanted fields in their order; raises CorruptionError, OSError."""
        found: dict[str, list[Value]] = {}
        for offset in entry.items:
            data = self._objects[offset] if offset in self._objects else self._data(offset, wanted)
            if data is not None:
                found.setdefault(data[0], []).append(data[1])
        return found

    def _data(self, offset: int, wanted: Collection[str]) -> tuple[str, Value] | None:
        head = self._read(offset, min(_FIRST_READ_BYTES, max(self._size - offset, 0)))
        if len(head) < self._payload_offset:
            raise CorruptionError(f"no data object at offset {offset}")
        kind, flags, size = _OBJECT.unpack_from(head)
        payload_size = size - self._payload_offset
        if kind != _DATA or payload_size <= 0 or offset + size > self._size:
            raise CorruptionError(f"no data object at offset {offset}")
        read = partial(
            self._read_payload, offset + self._payload_offset, payload_size, head[self._payload_offset : size]
        )
        codec = flags & CODECS
        name, separator, _ = beginning(codec, read, _NAME_BYTES_MAX + 1).partition(b"=")
        text = name.decode("ascii", "replace")
        if not separator or text not in wanted:
            self._remember(offset, None)
            return None
        value = field_value(codec, read, payload_size, len(name) + 1)
        if isinstance(value, bytes) and len(value) <= _CACHED_VALUE_BYTES_MAX and text != "MESSAGE":
            self._remember(offset, (text, value))
        return text, value

    def _read_payload(self, offset: int, size: int, head: bytes, count: int) -> bytes:
        """Return the first `count` bytes of a payload as stored."""
        count = min(count, size)
        return head[:count] if count <= len(head) else self._read(offset, count)

    def _remember(self, offset: int, data: tuple[str, bytes] | None) -> None:
        if len(self._objects) >= _CACHED_OBJECTS_MAX:
            self._objects.clear()
        self._objects[offset] = data

    def _entry_offset(self, index: int) -> int:
        first, offsets = self._offsets
        if not first <= index < first + len(offsets):
            first, offsets = self._offsets = index, self._load_offsets(index)
        offset = offsets[index - first]
        if not offset:
            self._offsets = (0, [])  # journald may be about to write it
            raise CorruptionError(f"entry {index} has no offset")
        return offset

    def _load_offsets(self, index: int) -> list[int]:
        """Return the offsets of up to 1,024 entries of one array, from `index` on."""
        if not 0 <= index < self.count:
            raise CorruptionError(f"the file has no entry {index}")
        while not self._arrays or index >= self._arrays[-1][1] + self._arrays[-1][2]:
            self._load_next_array()
        offset, first, capacity = next(array for array in reversed(self._arrays) if array[1] <= index)
        count = min(first + capacity, self.count, index + 1_024) - index
        raw = self._read(offset + _ARRAY_HEAD.size + (index - first) * self._pointer.size, count * self._pointer.size)
        return [pointer for (pointer,) in self._pointer.iter_unpack(raw)]

    def _load_next_array(self) -> None:
        first = after = 0
        try:
            if self._arrays:
                after, begin, capacity = self._arrays[-1]
                first = begin + capacity
                offset = self._unpack(_ARRAY_HEAD, after)[3]
            else:
                offset = self.header.entry_array_offset
            kind, _, size, _ = self._unpack(_ARRAY_HEAD, offset)
        except CorruptionError as error:
            raise UnreachableError(str(error)) from error
        capacity = (size - _ARRAY_HEAD.size) // self._pointer.size
        # journald appends arrays: one that points back would make a reader run in circles
        if offset <= after or kind != _ENTRY_ARRAY or capacity <= 0 or offset + size > self._size:
            raise UnreachableError(f"no entry array at offset {offset}")
        self._arrays.append((offset, first, capacity))

    def _unpack(self, form: struct.Struct, offset: int) -> tuple[Any, ...]:
        return form.unpack(self._read(offset, form.size))

    def _read(self, offset: int, size: int) -> bytes:
        if not 0 < offset <= self._size - size:
            raise CorruptionError(f"offset {offset} is outside the file")
        raw = os.pread(self._descriptor, size, offset)
        if len(raw) < size:
            raise CorruptionError(f"the file ends before offset {offset + size}")
        return raw
