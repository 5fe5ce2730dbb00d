"""PURE. Decides whether batches without a response may be sent again as they are, as the target deduplicates them.

A leader remembers the last five batches of a producer, as many as are in flight, and answers one that it has with its
offset there. So Kafka's own idempotent producers retry after a lost connection without a lookup, and no record comes
twice, whatever arrives late: bytes and bounds are the same. That holds while the producer is remembered, until
`producer.id.expiration.ms` (a day) after its last batch: by the *record's* timestamp, or by the leader's clock if the
topic has LogAppendTime. So both must be young, by the target's clock (STATE.md).

| batches without a response | then |
|---|---|
| young since they were sent first | sent again as they are, however often they were lost |
| the same of a suspect that waits while another connection answers (batch_isolation.py) | a new session |
| older | a new session begins with a fence and a lookup (session/producer_sessions.py) |

Does not contain: when a batch is sent (sender.py). Source: KIP-98, KIP-360; Apache Kafka's ProducerStateManager.
"""

from __future__ import annotations

from collections.abc import Iterable

from edge_broker.protocol.record_batch import BatchHeader
from mirror.partition.stream import Batch

YOUNG_S = 120.0
"""Kafka's own producers retry for so long (delivery.timeout.ms): by its docs the expiration should be no less."""


def may_be_sent_again(batches: Iterable[Batch], target_ms: int | None, boot_s: float) -> bool:
    """Return whether the target certainly deduplicates those of these batches that it has.

    `target_ms` is its clock, None if unknown; `boot_s` is this host's time since boot.
    """
    lost = [batch for batch in batches if batch.lost]
    return not lost or (
        target_ms is not None
        and all(boot_s - batch.posted_s <= YOUNG_S for batch in lost)
        and all(target_ms - BatchHeader(batch.packed.batch).max_timestamp <= YOUNG_S * 1000 for batch in lost)
    )
