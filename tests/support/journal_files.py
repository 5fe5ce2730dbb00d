"""Writes journal files as journald does, entry by entry: tests choose machines, boots, clocks and sequence numbers.

Hashes are not those of journald: journalctl checks them only with `--verify`, and reads these files by their entries.
"""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path

HEADER_BYTES, OLD_HEADER_BYTES = 272, 264  # of journald 254 and later, and 252
COMPACT, ARCHIVED, ONLINE, OFFLINE = 16, 2, 1, 0
_HASH_TABLE_BYTES = 16 * 16


@dataclass(slots=True)
class JournalFileWriter:
    """One journal file; `append` writes an entry and then counts it."""

    path: Path
    file_id: str
    seqnum_id: str
    machine_id: str
    compact: bool = True
    state: int = ONLINE
    n_entries: int = 0
    n_objects: int = 0
    head: tuple[int, int] = (0, 0)  # sequence number and time of the first entry
    tail: tuple[int, int, int, str] = (0, 0, 0, "0" * 32)
    first_array: int = 0
    header_bytes: int = HEADER_BYTES
    _arrays: list[tuple[int, int, int]] = field(default_factory=list)  # offset, capacity, used
    _end: int = 0
    _last_object: int = 0
    _descriptor: int = -1

    def __post_init__(self) -> None:
        self._descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o640)
        self._end = self.header_bytes
        self._data_table = self._object(4, b"\0" * _HASH_TABLE_BYTES) + 16
        self._field_table = self._object(5, b"\0" * _HASH_TABLE_BYTES) + 16
        self._write_header()

    _data_table: int = 0
    _field_table: int = 0

    def close(self) -> None:
        os.close(self._descriptor)

    def append(
        self,
        seqnum: int,
        realtime_us: int,
        monotonic_us: int,
        boot_id: str,
        fields: list[tuple[str, bytes]],
        flags: int = 0,
    ) -> int:
        """Append an entry, and return its offset; `flags` says how the values are compressed."""
        items = [self._data(f"{name}=".encode() + value if not flags else value, flags) for name, value in fields]
        form = "<I" if self.compact else "<QQ"
        raw = b"".join(struct.pack(form, *((item,) if self.compact else (item, 1))) for item in items)
        xor_hash = 0  # of the fields alone, as journald's: a copy in another file has the same
        for name, value in fields:
            xor_hash ^= int.from_bytes(blake2b(name.encode() + b"=" + value, digest_size=8).digest(), "little")
        body = struct.pack("<QQQ16sQ", seqnum, realtime_us, monotonic_us, bytes.fromhex(boot_id), xor_hash)
        offset = self._object(3, body + raw)
        self._link(offset)
        self.n_entries += 1
        if self.n_entries == 1:
            self.head = (seqnum, realtime_us)
        self.tail = (seqnum, realtime_us, monotonic_us, boot_id)
        self._write_header()
        return offset

    def inherit(self, tail_seqnum: int) -> None:
        """Count on from the file that this one replaces."""
        self.tail = (tail_seqnum, 0, 0, "0" * 32)
        self._write_header()

    def archive(self, path: Path, *, clean: bool = True) -> None:
        """Mark the file as archived, unless the power failed, and rename it."""
        if clean:
            self.state = ARCHIVED
            self._write_header()
        self.path = self.path.rename(path)
        self.close()

    def overwrite(self, offset: int, raw: bytes) -> None:
        """Write bytes where a faulty storage device would."""
        os.pwrite(self._descriptor, raw, offset)

    def _data(self, payload: bytes, flags: int) -> int:
        hashed = sum(payload) + len(payload) or 1
        body = struct.pack("<QQQQQQ", hashed, 0, 0, self._end, 0, 1) + (b"\0" * 8 if self.compact else b"")
        return self._object(1, body + payload, flags)

    def _object(self, kind: int, body: bytes, flags: int = 0) -> int:
        offset = self._last_object = self._end
        size = 16 + len(body)
        os.pwrite(self._descriptor, struct.pack("<BB6xQ", kind, flags, size) + body + b"\0" * (-size % 8), offset)
        self._end = offset + size + -size % 8
        self.n_objects += 1
        return offset

    def _link(self, entry: int) -> None:
        width, form = (4, "<I") if self.compact else (8, "<Q")
        if not self._arrays or self._arrays[-1][1] == self._arrays[-1][2]:
            capacity = 4 if not self._arrays else 2 * self._arrays[-1][1]
            array = self._object(6, b"\0" * (8 + width * capacity))
            if self._arrays:
                os.pwrite(self._descriptor, struct.pack("<Q", array), self._arrays[-1][0] + 16)
            else:
                self.first_array = array
            self._arrays.append((array, capacity, 0))
        offset, capacity, used = self._arrays[-1]
        os.pwrite(self._descriptor, struct.pack(form, entry), offset + 24 + width * used)
        self._arrays[-1] = (offset, capacity, used + 1)

    def _write_header(self) -> None:
        ids = b"".join(bytes.fromhex(each) for each in (self.file_id, self.machine_id, self.tail[3], self.seqnum_id))
        sizes = (self.header_bytes, self._end - self.header_bytes)
        tables = (self._data_table, _HASH_TABLE_BYTES, self._field_table, _HASH_TABLE_BYTES)
        counts = (self._last_object, self.n_objects, self.n_entries, self.tail[0], self.head[0], self.first_array)
        times = (self.head[1], self.tail[1], self.tail[2])
        numbers = (*sizes, *tables, *counts, *times, self.n_objects, 0, 0, len(self._arrays), 0, 0)
        last = self._arrays[-1] if self._arrays else (0, 0, 0)
        raw = struct.pack("<8sIIB7x", b"LPKSHHRH", 0, COMPACT if self.compact else 0, self.state) + ids
        raw += struct.pack("<21QIIQ", *numbers, last[0], last[2], 0)
        os.pwrite(self._descriptor, raw[: self.header_bytes], 0)
