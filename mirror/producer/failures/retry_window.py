"""PURE. Whether batches without an answer may be sent again as they are: where the target knows again what it has.

A leader remembers the last five batches of a producer, as many as are under way, and answers one that it has with the
offset that it has there. So Kafka's own idempotent producers do after a lost connection, without a look, and none of it
comes twice, whatever arrives late: the bytes and bounds are the same. That holds for as long as the producer is
remembered, which ends `producer.id.expiration.ms` (a day) after what it wrote last: by the *record's* timestamp, or by
the leader's clock where the topic has LogAppendTime. So both have to be young, by the target's clock (STATE.md).

| what is without an answer | then |
|---|---|
| young since it was sent first | it is sent again as it is, how often soever it was lost |
| the same of a suspect that waits while another connection answers (batch_isolation.py) | a new session |
| older | a new life begins with a fence and a look (session/producer_sessions.py) |

Must never come in: what is sent when (sender.py). Source: KIP-98, KIP-360; Apache Kafka's ProducerStateManager.
"""

from __future__ import annotations

from collections.abc import Iterable

from edge_broker.protocol.record_batch import BatchHeader
from mirror.partition.stream import Batch

YOUNG_S = 120.0
"""For so long Kafka's own producers send again (delivery.timeout.ms): the expiration should be no less, by its docs."""


def may_be_sent_again(batches: Iterable[Batch], target_ms: int | None, boot_s: float) -> bool:
    """Whether the target surely knows again those of these that it has.

    `target_ms` is its clock, None when unknown, and `boot_s` the time since boot here.
    """
    lost = [batch for batch in batches if batch.lost]
    return not lost or (
        target_ms is not None
        and all(boot_s - batch.posted_s <= YOUNG_S for batch in lost)
        and all(target_ms - BatchHeader(batch.packed.batch).max_timestamp <= YOUNG_S * 1000 for batch in lost)
    )
