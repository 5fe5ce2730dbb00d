"""PURE. Builds the record of `__edge_dead_letter` at the source from a record that the target refuses for ever.

Key, value, headers and timestamp are kept. Headers after them say where the record is from, and why it is there:

| header | |
|---|---|
| dead_letter.topic, dead_letter.partition, dead_letter.offset | its place at the source |
| dead_letter.reason | the name of the target's error |
| dead_letter.detail | the target's error message, at most DETAIL_BYTES_MAX bytes; empty if it sent none |

A mirror that is killed between dead letter and ledger writes the record a second time. The topic is never mirrored, as
its name begins with `__`. Does not contain: clients, clocks, the policy `on_refused`.
"""

from __future__ import annotations

from typing import NamedTuple

from edge_broker.protocol.record_batch import build_batch, records_of
from kafka_wire.records.batches import Piece

DEAD_LETTER_TOPIC = "__edge_dead_letter"
DEAD_LETTER_CONFIG = {
    "cleanup.policy": "delete",
    "retention.ms": str(30 * 86_400_000),
    "max.message.bytes": str(100 << 20),  # whatever a topic of the source may have taken
}
DETAIL_BYTES_MAX = 500


class RefusedRecord(NamedTuple):
    """A record that the target refuses for ever: its source offset, its source batch, its size in bytes, and why."""

    offset: int
    piece: Piece
    size: int
    reason: str
    said: str


def letter(topic: str, partition: int, refused: RefusedRecord) -> bytes:
    """Return the batch with the record; raises ValueError if the source batch has none at that offset."""
    for record in records_of(refused.piece.batch):
        if record.offset == refused.offset:
            break
    else:
        raise ValueError(f"{topic}-{partition} has no record at {refused.offset}")
    told = {
        "topic": topic,
        "partition": str(partition),
        "offset": str(refused.offset),
        "reason": refused.reason,
        "detail": refused.said.encode()[:DETAIL_BYTES_MAX].decode(errors="ignore"),
    }
    headers = [*record.headers, *((f"dead_letter.{name}", text.encode()) for name, text in told.items())]
    return build_batch([(record.key, record.value)], timestamp_ms=record.timestamp, headers=headers)
