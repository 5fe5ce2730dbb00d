"""Waiting for a log's end to be what may be shown: an answer that names the end first has it synced.

An append with acks=1 is answered before its sync, so the high watermark lies below the log's end for a moment. Nothing
unsynced is shown; who asks for the end waits for this broker's own disk, `SYNC_MS_MAX` at most. In a cluster the
followers are not waited for: they may be away for long, and Apache Kafka's high watermark is below the end too.

| topic | the end is what may be shown |
|---|---|
| synced when someone waits | after a sync of what was written before the request |
| synced by the clock alone (`edge.durability=interval`) | at the clock's next sync: no request waits |
| left to the kernel | at once |

Does not contain: handlers, messages.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from edge_broker.broker.broker import Broker
from edge_broker.broker.outcomes import Outcome, Wait
from edge_broker.storage.log.partition_log import PartitionLog

SYNC_MS_MAX = 5_000


def is_unsynced(broker: Broker, log: PartitionLog) -> bool:
    """Whether a sync of this broker would let more of the log be shown, and is made for a request that waits."""
    return log.settings.sync_awaited and not is_synced_to(broker, log, log.log_end_offset)


def is_synced_to(broker: Broker, log: PartitionLog, end: int) -> bool:
    """Whether this broker's disk keeps nothing below `end` from being shown any more; true of a log that has failed."""
    if log.high_watermark >= end or log.fault is not None:
        return True
    return broker.cluster is not None and log.synced_end.offset >= end


def after_sync(broker: Broker, ends: Mapping[PartitionLog, int], answer: Callable[[], Outcome]) -> Outcome:
    """Answer once each log is synced to its end given here, has failed, or `SYNC_MS_MAX` are over."""

    def ready() -> Outcome | None:
        return answer() if all(is_synced_to(broker, log, end) for log, end in ends.items()) else None

    return ready() or Wait(list(ends), ready, SYNC_MS_MAX, answer)
