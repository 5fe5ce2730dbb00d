"""PURE. What the target's answers to a batch mean: whether it has arrived, and what was wrong.

| set | of a batch with such an answer |
|---|---|
| NOT_APPENDED | nothing of it is in the log, and nothing will be |
| APPENDED | its leader has it, whether or not all replicas do by now |
| TAKEN_APART | it is too large, or one record of it is refused for ever |
| FENCED | another mirror has taken over |
| MOVED | another may lead the partition, or its topic is gone |
| OPEN | it may be there, or is; the leader answers the same batch again with its offset (retry_window.py) |
| SHORT | too few replicas are in sync; what was sent before may be there |

Of all others, and of none at all (LOST), the log alone can tell. Must never come in: what is done about it.
Source: Apache Kafka's Errors, LogValidator, ReplicaManager.
"""

from __future__ import annotations

from collections.abc import Sequence

from edge_broker.errors import ErrorCode
from mirror.partition.stream import Batch

LOST = -2  # no answer, as an outcome beside Kafka's codes

NOT_APPENDED = frozenset(
    {
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.INVALID_TIMESTAMP,
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
        ErrorCode.POLICY_VIOLATION,
        ErrorCode.INVALID_RECORD,
    }
)
APPENDED = frozenset({ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND})
TAKEN_APART = frozenset(
    {
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.INVALID_RECORD,
        ErrorCode.INVALID_TIMESTAMP,
    }
)
FENCED = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED})
OPEN = frozenset({LOST, *APPENDED})
SHORT = frozenset({ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND})
MOVED = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)


def nothing_arrived(flight: Sequence[Batch]) -> bool:
    """Whether the answers tell so: the first was refused, those behind it had to be, or were not sent at all.

    Of what was sent before without an answer they tell nothing.
    """
    refused = {*NOT_APPENDED, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, None}
    return flight[0].outcome in NOT_APPENDED and all(batch.outcome in refused and not batch.lost for batch in flight)


def first_refused(flight: Sequence[Batch]) -> tuple[int, int] | None:
    """The records before the first batch that was refused while one behind it was, or may have been, taken; its offset.

    Kafka forgets a producer whose records are older than its producer.id.expiration.ms, and then takes any sequence.
    """
    for number, batch in enumerate(flight):
        later = {each.outcome for each in flight[number + 1 :]}
        is_refused = not batch.lost and batch.outcome not in (*APPENDED, LOST, None)
        if is_refused and (later & APPENDED or (batch.outcome in NOT_APPENDED and LOST in later)):
            assert batch.sent is not None
            return batch.sent.records_before, batch.packed.runs[0][0]
    return None
