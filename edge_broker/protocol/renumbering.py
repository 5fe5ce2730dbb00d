"""Renumber the records of several batches as those of one; all else of them is copied as bytes.

| of a record | becomes |
|---|---|
| offset delta | 0, 1, 2 … through all pieces; its offset at the source is reported as runs of offsets |
| timestamp delta | counted from the first record's timestamp; the time itself is the same |
| attributes, key, value, headers | copied, their varints too |

A piece is a batch of magic 2 whose records are unpacked: its header as it was, the records after it. Its records are
walked by the rules of records_walk.py; their offset deltas may have holes, as compaction leaves them, but must ascend
within the batch. No field is believed before it is checked.

Does not contain: unpacking and packing, batches' headers as they are sent, which records are wanted. Source: Kafka's
DefaultRecord; timestamps wrap as Java's do.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from itertools import chain
from struct import Struct
from typing import NamedTuple

from edge_broker.compiled import compiled_renumbering
from edge_broker.protocol.codec import uvarint
from edge_broker.protocol.records_walk import (
    BEYOND_RECORD,
    FEWER_RECORDS,
    HEADER_KEY,
    HEADERS_COUNT,
    MORE_BYTES,
    NEGATIVE_LENGTH,
    OFFSET_DELTA,
    RECORD_LENGTH,
    RECORD_REST,
    VARINT,
)

HEADER_SIZE = 61
LOG_APPEND_TIME = 0x08

_FIELDS = Struct(">q 13x hiqq 14x i")  # base offset, attributes, last delta, base and max timestamp, count
_RUN = Struct("=2q")
_WRAP, _HALF = 1 << 64, 1 << 63
_TEXTS = {
    RECORD_LENGTH: "record {0} has no bytes",
    VARINT: "record {0} has a number that is too long",
    BEYOND_RECORD: "record {0} has a field that reaches beyond its end",
    OFFSET_DELTA: "record {0} has an offset that does not follow on those before, or lies beyond the batch",
    NEGATIVE_LENGTH: "record {0} has a key, value or header of negative length",
    HEADERS_COUNT: "record {0} has an impossible number of headers",
    HEADER_KEY: "record {0} has a header without a key",
    RECORD_REST: "record {0} does not end where it says",
    MORE_BYTES: "bytes follow its {0} records",
    FEWER_RECORDS: "it ends in record {0}",
}


class WantedPiece(NamedTuple):
    """One piece: its bytes, header included, and the source offsets in [first_offset, end_offset) that are wanted."""

    size: int
    first_offset: int
    end_offset: int


class RenumberedBatch(NamedTuple):
    """Renumbered records, after `room` bytes that are left for a header; timestamps in ms, 0 without records."""

    batch: bytearray
    records: int
    runs: tuple[tuple[int, int], ...]  # of source offsets: the first and how many
    base_timestamp: int
    max_timestamp: int


class LyingPiece(Exception):
    """A piece's inside is not what its header says: which piece, by its place, and half a sentence of why."""

    def __init__(self, piece: int, verdict: int, record: int) -> None:
        super().__init__(_TEXTS[verdict].format(record))
        self.piece, self.verdict, self.record = piece, verdict, record


class _Lie(Exception):
    def __init__(self, verdict: int) -> None:
        self.verdict = verdict


class Place(NamedTuple):
    """Where a record's offset, its time and its content lie; the content begins with the length of the key."""

    offset: int
    timestamp: int
    attributes: int
    content: int
    end: int


def renumber(area: bytearray, wanted: Sequence[WantedPiece], room: int) -> RenumberedBatch:
    """Renumber the wanted records of all pieces, which follow each other in the area. Raises LyingPiece."""
    renumbering = compiled_renumbering()
    if renumbering is None:
        return renumber_in_python(area, wanted, room)
    fields = bytearray(array("q", chain.from_iterable(wanted)))
    walk = renumbering()
    verdict = walk.measure(area, fields)
    if verdict:
        raise LyingPiece(walk.piece, verdict, walk.record)
    out = bytearray(room + walk.written)
    runs: list[tuple[int, int]] = []
    if walk.records:
        found = bytearray(16 * walk.runs)
        verdict = walk.write(area, fields, out, room, found)
        assert not verdict, f"the area changed between two walks: {verdict}"
        runs = list(_RUN.iter_unpack(found))
    return RenumberedBatch(out, walk.records, tuple(runs), walk.base_timestamp, walk.max_timestamp)


def renumber_in_python(area: bytearray, wanted: Sequence[WantedPiece], room: int) -> RenumberedBatch:
    """As `renumber`, where there is no compiled one: some 50 times slower."""
    out = bytearray(room)
    runs: list[tuple[int, int]] = []
    records = base = greatest = run_begin = run_end = position = 0
    for number, (size, first_offset, end_offset) in enumerate(wanted):
        for offset, timestamp, attributes, content, end in places(area, position, size, number):
            if not first_offset <= offset < end_offset:
                continue
            if not records:
                base = greatest = timestamp
                run_begin = run_end = offset
            elif offset != run_end:
                runs.append((run_begin, run_end - run_begin))
                run_begin = offset
            run_end = offset + 1
            greatest = max(greatest, timestamp)
            front = _varint(_wrap(timestamp - base)) + _varint(records)
            out += _varint(1 + len(front) + end - content)
            out.append(attributes)
            out += front
            out += area[content:end]
            records += 1
        position += size
    if records:
        runs.append((run_begin, run_end - run_begin))
    return RenumberedBatch(out, records, tuple(runs), base, greatest)


def places(area: bytes | bytearray | memoryview, position: int, size: int, number: int = 0) -> Iterator[Place]:
    """Where the records of the piece lie that begins at `position`, all of them checked by the end. Raises LyingPiece.

    `number` is the piece's own, for the error.
    """
    base_offset, attributes, last_delta, base, greatest, count = _FIELDS.unpack_from(area, position)
    at, end = position + HEADER_SIZE, position + size
    last, record = -1, 0
    try:
        for record in range(count):  # noqa: B007 - the error names it
            stop, at = _read_size(area, at, end)
            flags = area[at]
            time_delta, at = _read_varint(area, at + 1, stop, 63)
            delta, content = _read_varint(area, at, stop, 28)
            if not last < delta <= last_delta:
                raise _Lie(OFFSET_DELTA)
            last = delta
            _check_content(area, content, stop)
            timestamp = greatest if attributes & LOG_APPEND_TIME else _wrap(base + time_delta)
            yield Place(base_offset + delta, timestamp, flags, content, stop)
            at = stop
        if at != end:
            record = max(count, 0)
            raise _Lie(MORE_BYTES)
    except _Lie as lie:
        raise LyingPiece(number, lie.verdict, record) from None


def _read_size(area: bytes | bytearray | memoryview, at: int, end: int) -> tuple[int, int]:
    try:
        size, at = _read_varint(area, at, end, 28)
    except _Lie as lie:
        raise _Lie(FEWER_RECORDS if lie.verdict == BEYOND_RECORD else lie.verdict) from None
    if size < 1:
        raise _Lie(RECORD_LENGTH)
    if size > end - at:
        raise _Lie(FEWER_RECORDS)
    return at + size, at


def content_bytes(area: bytes | bytearray | memoryview, place: Place) -> int:
    """The bytes of a record's key, value and headers, without their lengths."""
    return _check_content(area, place.content, place.end)


def _check_content(area: bytes | bytearray | memoryview, at: int, stop: int) -> int:
    """Walk key, value and headers, which must end at `stop`; the bytes that they hold without their lengths."""
    held = 0
    for _ in range(2):
        length, at = _read_varint(area, at, stop, 28)
        held += _check_length(length, at, stop)
        at += max(length, 0)
    headers, at = _read_varint(area, at, stop, 28)
    if not 0 <= headers <= stop - at:
        raise _Lie(HEADERS_COUNT)
    for _ in range(headers):
        length, at = _read_varint(area, at, stop, 28)
        if length < 0:
            raise _Lie(HEADER_KEY)
        held += _check_length(length, at, stop)
        length, at = _read_varint(area, at + length, stop, 28)
        held += _check_length(length, at, stop)
        at += max(length, 0)
    if at != stop:
        raise _Lie(RECORD_REST)
    return held


def _check_length(length: int, at: int, stop: int) -> int:
    if length < -1:
        raise _Lie(NEGATIVE_LENGTH)
    if length > stop - at:
        raise _Lie(BEYOND_RECORD)
    return max(length, 0)


def _read_varint(area: bytes | bytearray | memoryview, at: int, stop: int, last_shift: int) -> tuple[int, int]:
    """A zigzag varint of at most 32 bits (`last_shift` 28) or 64 (63), and the place after it."""
    raw = shift = 0
    while True:
        if at >= stop:
            raise _Lie(BEYOND_RECORD)
        byte = area[at]
        at += 1
        if shift == last_shift and byte > (1 if last_shift == 63 else 15):
            raise _Lie(VARINT)
        raw |= (byte & 127) << shift
        if byte < 128:
            return (raw >> 1) ^ -(raw & 1), at
        shift += 7


def _varint(number: int) -> bytes:
    raw = (number << 1) ^ (number >> 63)
    return bytes((raw,)) if raw < 128 else uvarint(raw)


def _wrap(number: int) -> int:
    return (number + _HALF) % _WRAP - _HALF
