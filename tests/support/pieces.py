"""Batches as a fetch of any broker may hold them, with holes and all, and what a reader sees of them.

Lives here: a batch of records at any offsets, the records of batches by a decoder of our own that keeps header keys as
bytes. Must never come in: what is under test in kafka_wire.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

from edge_broker.protocol.crc import crc32c
from edge_broker.protocol.record_batch import BatchHeader, unpack_records
from tests.support.lying_batches import packed, record

_WRAP, _HALF = 1 << 64, 1 << 63


class Kept(NamedTuple):
    """A record, and its offset at the source or the target."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[bytes, bytes | None], ...] = ()


def wrapped(number: int) -> int:
    """As Java's long wraps."""
    return (number + _HALF) % _WRAP - _HALF


def batch_of(
    records: Sequence[Kept],
    *,
    base_offset: int | None = None,
    last_offset: int | None = None,
    codec: str = "none",
    base_timestamp: int | None = None,
    max_timestamp: int | None = None,
    attributes: int = 0,
    producer: tuple[int, int, int] = (-1, -1, -1),
    leader_epoch: int = 5,
) -> bytes:
    """One batch that holds these records at their offsets; bounds beyond them are holes."""
    base = records[0].offset if base_offset is None else base_offset
    last = records[-1].offset if last_offset is None else last_offset
    base_time = (records[0].timestamp if records else 0) if base_timestamp is None else base_timestamp
    greatest = max([one.timestamp for one in records], default=0) if max_timestamp is None else max_timestamp
    area = b"".join(
        record(
            one.offset - base,
            time=wrapped(one.timestamp - base_time),
            key=one.key,
            value=one.value,
            headers=one.headers,
        )
        for one in records
    )
    made = bytearray(
        packed(
            area,
            count=len(records),
            codec=codec,
            base_timestamp=base_time,
            max_timestamp=greatest,
            attributes=attributes,
            last_offset_delta=last - base,
            producer=producer,  # type: ignore[arg-type]
        )
    )
    struct.pack_into(">q", made, 0, base)
    struct.pack_into(">i", made, 12, leader_epoch)
    return bytes(made)


def read_back(batch: bytes | bytearray | memoryview) -> list[Kept]:
    """The records of one batch whose CRC and lengths must be right."""
    header = BatchHeader(batch)
    assert header.size == len(batch)
    assert crc32c(batch[21:]) == header.crc
    area = unpack_records(header.codec, batch[61:])
    found, at = [], 0
    for _ in range(header.records_count):
        size, at = _varint(area, at)
        end = at + size
        delta, at = _varint(area, at + 1)
        offset, at = _varint(area, at)
        key, at = _bytes(area, at)
        value, at = _bytes(area, at)
        count, at = _varint(area, at)
        headers = []
        for _ in range(count):
            name, at = _bytes(area, at)
            content, at = _bytes(area, at)
            headers.append((name or b"", content))
        assert at == end
        time = header.max_timestamp if header.attributes & 8 else wrapped(header.base_timestamp + delta)
        found.append(Kept(header.base_offset + offset, time, key, value, tuple(headers)))
    assert at == len(area)
    return found


def _varint(area: bytes, at: int) -> tuple[int, int]:
    raw = shift = 0
    while True:
        raw |= (area[at] & 127) << shift
        at += 1
        if area[at - 1] < 128:
            return (raw >> 1) ^ -(raw & 1), at
        shift += 7


def _bytes(area: bytes, at: int) -> tuple[bytes | None, int]:
    size, at = _varint(area, at)
    return (None, at) if size < 0 else (area[at : at + size], at + size)
