"""PURE. Classifies the target's responses to a batch: whether it has arrived, and what was wrong.

| set | a batch with such a response |
|---|---|
| NOT_APPENDED | is not in the log, and will not be |
| APPENDED | is at its leader, whether or not all replicas have it by now |
| TAKEN_APART | is too large, or one record of it is refused for ever |
| FENCED | is refused: another mirror has taken over |
| MOVED | is refused: another broker may lead the partition, or its topic is gone |
| OPEN | may be there, or is; the leader answers the same batch again with its offset (retry_window.py) |
| SHORT | met too few in-sync replicas; earlier batches may be there |

For all other errors, and without any response (LOST), only the log can tell. Does not contain: any reaction.
Source: Apache Kafka's Errors, LogValidator, ReplicaManager.
"""

from __future__ import annotations

from collections.abc import Sequence

from edge_broker.errors import ErrorCode
from mirror.partition.stream import Batch

LOST = -2  # no response, as an outcome in addition to Kafka's codes

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
    """Return whether the responses prove it: the first was refused, and the next ones had to be, or were not sent.

    They prove nothing of batches that were sent before without a response.
    """
    refused = {*NOT_APPENDED, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, None}
    return flight[0].outcome in NOT_APPENDED and all(batch.outcome in refused and not batch.lost for batch in flight)


def first_refused(flight: Sequence[Batch]) -> tuple[int, int] | None:
    """Return the first batch that was refused while a later one was, or may have been, accepted: its place.

    The place is the number of records before it, and its source offset. Kafka forgets a producer whose records are
    older than its producer.id.expiration.ms, and then accepts any sequence.
    """
    for number, batch in enumerate(flight):
        later = {each.outcome for each in flight[number + 1 :]}
        is_refused = not batch.lost and batch.outcome not in (*APPENDED, LOST, None)
        if is_refused and (later & APPENDED or (batch.outcome in NOT_APPENDED and LOST in later)):
            assert batch.sent is not None
            return batch.sent.records_before, batch.packed.runs[0][0]
    return None
