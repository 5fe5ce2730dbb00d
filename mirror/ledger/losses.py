"""Builds the mirror's records of `__edge_ledger` at the source: one per loss, with its cause.

Does not contain: what a loss is (replication/gap_rules.py), the record's form (drupelet/ledger.py), the write
(replication/loss_writer.py).
"""

from __future__ import annotations

from typing import Literal, NamedTuple, get_args

from drupelet import ledger

Cause = Literal["source_offset_out_of_range", "source_offset_jump", "source_truncated", "record_refused"]
CAUSES: tuple[Cause, ...] = get_args(Cause)


class Loss(NamedTuple):
    """Offsets [first_offset, end_offset) of a partition that are lost; records and bytes None: unknown."""

    id: str
    cause: Cause
    topic: str
    partition: int
    first_offset: int
    end_offset: int
    records: int | None
    bytes: int | None
    time_ms: int
    node: str


def encode(loss: Loss) -> tuple[bytes, bytes]:
    """Return the Kafka record's key (the id, the same for the same loss) and value (JSON), both UTF-8."""
    return ledger.encode(loss, loss.time_ms, loss.node)


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
) -> Loss:
    """Return the loss of the offsets [first_offset, end_offset) of a partition.

    `occasion` ends the id if the same offsets can be lost more than once.
    """
    place = [cause, topic, str(partition), f"{first_offset}-{end_offset - 1}", *([occasion] if occasion else [])]
    return Loss(":".join(place), cause, topic, partition, first_offset, end_offset, records, size_bytes, time_ms, node)
