"""Record batches of every kind for tests, by aiokafka's encoder; and their records, by its decoder."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

from edge_broker.protocol.crc import crc32c
from edge_broker.protocol.record_batch import CONTROL, TRANSACTIONAL, assign_offsets

NO_PRODUCER = (-1, -1, -1)
ABORT, COMMIT = b"\x00\x00\x00\x00", b"\x00\x00\x00\x01"
Entry = tuple[bytes | None, bytes | None, int]  # key, value, timestamp


def batch_builder(codec: int = 0, producer: tuple[int, int, int] = NO_PRODUCER) -> Any:
    """aiokafka's encoder of one batch."""
    return DefaultRecordBatchBuilder(2, codec, False, *producer, 1 << 24)


def make_batch(
    records: Sequence[Entry],
    *,
    base_offset: int = 0,
    codec: int = 0,
    producer: tuple[int, int, int] = NO_PRODUCER,
    attributes: int = 0,
    leader_epoch: int = 0,
) -> memoryview:
    """One writable batch; `attributes` are set besides the codec's."""
    builder = batch_builder(codec, producer)
    for delta, (key, value, timestamp) in enumerate(records):
        assert builder.append(delta, timestamp, key, value, [("n", b"%d" % delta)]) is not None
    batch = memoryview(bytearray(builder.build()))
    if attributes:
        batch[22] |= attributes
        batch[17:21] = crc32c(batch[21:]).to_bytes(4, "big")
    assign_offsets(batch, base_offset, leader_epoch)
    return batch


def changed(batch: bytes, position: int, content: bytes, *, crc: bool = True) -> bytes:
    """The batch with bytes put in, and a CRC that is right again unless it is to be wrong."""
    other = bytearray(batch)
    other[position : position + len(content)] = content
    if crc:
        other[17:21] = crc32c(bytes(other[21:])).to_bytes(4, "big")
    return bytes(other)


def marker(kind: bytes, *, base_offset: int, producer_id: int, timestamp: int = 0) -> memoryview:
    """A control batch that ends a transaction."""
    value = b"\x00\x00\x00\x00\x00\x00"
    return make_batch(
        [(kind, value, timestamp)],
        base_offset=base_offset,
        producer=(producer_id, 0, -1),
        attributes=CONTROL | TRANSACTIONAL,
    )


def records_in(batches: Iterable[bytes | memoryview]) -> list[tuple[int, bytes | None, bytes | None, int]]:
    """Offset, key, value and timestamp of every record, CRCs checked."""
    found = []
    for data in batches:
        batch: Any = DefaultRecordBatch(bytearray(data))
        assert batch.validate_crc()
        found += [(record.offset, record.key, record.value, record.timestamp) for record in batch]
    return found
