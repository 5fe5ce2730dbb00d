"""What Spark should have found, computed again in plain Python from the edge's log, and what it left in Parquet files.

Pure but for `complete_files` and `parquet_rows`, which read the sink's files. Format of the footer: Apache Parquet,
FileMetaData (Thrift compact protocol): field 1 version i32, 2 schema list of structs, 3 num_rows i64; then its length
(4 bytes, little endian) and `PAR1`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

WINDOW_MS = 10_000
MAGIC = b"PAR1"
I64_FIELD, STRUCT, LIST, BINARY = 6, 12, 9, 8


@dataclass(frozen=True)
class WindowAgreement:
    """How many windows Spark should have, and in how many it has the very figures of the log."""

    expected: int
    equal: int


def latest(records: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """The last value per key, as compaction would leave it."""
    return dict(records)


def windows_agree(readings: Iterable[Mapping[str, Any]], windows: Mapping[str, Mapping[str, Any]]) -> WindowAgreement:
    """Compare Spark's windows, by key `DEVICE|START_MS`, with those of the readings on the edge, every copy counted."""
    expected: dict[str, list[float]] = {}
    for reading in readings:
        start_ms = reading["time_ms"] // WINDOW_MS * WINDOW_MS
        expected.setdefault(f"{reading['device']}|{start_ms}", []).append(reading["value"])
    equal = sum(_same(values, windows.get(key)) for key, values in expected.items())
    return WindowAgreement(len(expected), equal)


def _same(values: list[float], window: Mapping[str, Any] | None) -> bool:
    if window is None or (window["count"], window["min"], window["max"]) != (len(values), min(values), max(values)):
        return False
    return math.isclose(window["mean"], math.fsum(values) / len(values), rel_tol=1e-9)


def complete_files(directory: Path) -> list[Path]:
    """The files of the batches that Spark has marked as whole (`_SUCCESS`), by date below each."""
    whole = (mark.parent for mark in directory.glob("batch=*/_SUCCESS"))
    return sorted(path for batch in whole for path in batch.glob("date=*/*.parquet"))


def parquet_rows(path: Path) -> int:
    """The number of rows a Parquet file says it has; raises ValueError when it is no Parquet file."""
    content = path.read_bytes()
    if len(content) < 12 or content[:4] != MAGIC or content[-4:] != MAGIC:
        raise ValueError(f"{path} is not a Parquet file")
    length = int.from_bytes(content[-8:-4], "little")
    return _Compact(content[-8 - length : -8]).rows()


class _Compact:
    """As much of Thrift's compact protocol as leads to field 3 of a struct."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._position = 0

    def rows(self) -> int:
        number = 0
        while head := self._byte():
            number = number + (head >> 4) if head >> 4 else self._zigzag()
            if number == 3 and head & 15 == I64_FIELD:
                return self._zigzag()
            self._skip(head & 15)
        raise ValueError("a Parquet footer without num_rows")

    def _byte(self) -> int:
        self._position += 1
        return self._content[self._position - 1]

    def _varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._byte()
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    def _zigzag(self) -> int:
        value = self._varint()
        return (value >> 1) ^ -(value & 1)

    def _skip(self, kind: int) -> None:
        if kind in (4, 5, 6):
            self._varint()
        elif kind == 3:
            self._position += 1
        elif kind == 7:
            self._position += 8
        elif kind == BINARY:
            length = self._varint()
            self._position += length
        elif kind == LIST:
            self._skip_list()
        elif kind == STRUCT:
            while head := self._byte():
                if not head >> 4:
                    self._zigzag()
                self._skip(head & 15)
        elif kind not in (1, 2):  # 1 and 2 are true and false, told by the kind itself
            raise ValueError(f"a Parquet footer with the Thrift type {kind}")

    def _skip_list(self) -> None:
        head = self._byte()
        count = head >> 4 if head >> 4 != 15 else self._varint()
        for _ in range(count):
            if head & 15 in (1, 2):
                self._position += 1
            else:
                self._skip(head & 15)
