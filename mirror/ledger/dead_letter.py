"""PURE. A record that the target refuses for ever, as a record of `__edge_dead_letter` at the source.

Key, value and headers are as they were, the timestamp, too; headers behind them say whose it was, and why it is there:

| header | |
|---|---|
| dead_letter.topic, dead_letter.partition, dead_letter.offset | where it is at the source |
| dead_letter.reason | the name of the target's error |
| dead_letter.detail | what the target said, at most DETAIL_BYTES_MAX bytes; empty where it said nothing |

A mirror that is killed between the two writes it down a second time. The topic is never mirrored, as its name begins
with `__`. No client, no clock and no policy may come in here.
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


class Refused(NamedTuple):
    """What the target refuses for ever: the record at an offset of the source, its piece, how large it is, and why."""

    offset: int
    piece: Piece
    size: int
    reason: str
    said: str


def letter(topic: str, partition: int, refused: Refused) -> bytes:
    """The batch that has the record; ValueError where the piece has none at that offset."""
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
