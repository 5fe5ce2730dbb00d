"""The loss ledger's record, version 1, and its writer: a record per loss in `__edge_ledger` at the source.

No judgement of what a loss is may come in here (that is plan.py's). A record is written with acks=all before the mirror
reads on, and again and again until that is done: what is lost is written down, or nothing moves.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Literal

VERSION = 1
TOPIC_CONFIGS = {"cleanup.policy": "delete", "retention.ms": "-1"}

Cause = Literal["source_offset_out_of_range", "source_offset_jump", "source_truncated", "record_too_large"]
CAUSES: tuple[Cause, ...] = (
    "source_offset_out_of_range", "source_offset_jump", "source_truncated", "record_too_large",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class LedgerRecord:
    """One loss: offsets are inclusive, None means unknown; the fields are the JSON's keys, in this order."""

    version: int
    id: str
    cause: Cause
    topic: str
    partition: int
    first_offset: int
    last_offset: int
    records: int | None
    bytes: int | None
    time_ms: int
    node: str


def encode(record: LedgerRecord) -> tuple[bytes, bytes]:
    """Return the Kafka record's key (the id, the same for the same loss) and value (JSON), both UTF-8."""
    return record.id.encode(), json.dumps(asdict(record), separators=(",", ":"), ensure_ascii=False).encode()


def loss(
    cause: Cause,
    topic: str,
    partition: int,
    first_offset: int,
    end_offset: int,
    *,
    records: int | None,
    size_bytes: int | None = None,
    time_ms: int,
    node: str,
    occasion: str = "",
) -> LedgerRecord:
    """Return the ledger record for the offsets [first_offset, end_offset) of a partition.

    `occasion` ends the id where the same offsets can be lost more than once.
    """
    last_offset = end_offset - 1
    record_id = ":".join(
        [cause, topic, str(partition), f"{first_offset}-{last_offset}", *([occasion] if occasion else [])]
    )
    return LedgerRecord(
        VERSION, record_id, cause, topic, partition, first_offset, last_offset, records, size_bytes, time_ms, node
    )
