"""ListOffsets (key 2): earliest, latest, by timestamp.

| timestamp | answer |
|---|---|
| -1 | the high watermark: nothing that a power cut could take back is ever shown |
| -2, -4 | the log start |
| -3 | offset and time of the record with the greatest timestamp |
| -5 | none: there is no tiered storage |
| ≥ 0 | the first record at or after that time, -1 when there is none |

Source: Kafka protocol, ListOffsets 1 to 10; KIP-734, KIP-405.
"""

from __future__ import annotations

from edge_broker.errors import ErrorCode, Refusal, StorageFault
from edge_broker.handlers.broker import Broker, RequestContext
from edge_broker.handlers.outcome import Do, Outcome, Reply
from edge_broker.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from edge_broker.storage.log import PartitionLog

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED = -1, -2, -3, -4, -5
Lookup = tuple[PartitionLog, int, ListOffsetsPartitionResponse]


def list_offsets(broker: Broker, context: RequestContext, request: ListOffsetsRequest) -> Outcome:
    """Answer each partition; lookups by time read the disk in the reader thread."""
    topics: list[ListOffsetsTopicResponse] = []
    lookups: list[Lookup] = []
    for topic in request.topics:
        answers = [_partition(broker, topic.name, wanted, lookups) for wanted in topic.partitions]
        topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=answers))
    reply = Reply(ListOffsetsResponse(topics=topics))
    if not lookups:
        return reply
    return Do(lambda: _look_up(lookups), lambda _: reply, lambda _: reply, worker="reader")


def _partition(
    broker: Broker, topic: str, wanted: ListOffsetsPartition, lookups: list[Lookup]
) -> ListOffsetsPartitionResponse:
    answer = ListOffsetsPartitionResponse(partition_index=wanted.partition_index)
    try:
        log = broker.log_of(topic, wanted.partition_index)
        broker.check_leader_epoch(wanted.current_leader_epoch)
        if log.fault is not None:
            raise Refusal(ErrorCode.KAFKA_STORAGE_ERROR, str(log.fault))
        _answer(broker, log, wanted.timestamp, answer, lookups)
    except Refusal as refusal:
        answer.error_code = refusal.code
    return answer


def _answer(
    broker: Broker, log: PartitionLog, timestamp: int, answer: ListOffsetsPartitionResponse, lookups: list[Lookup]
) -> None:
    answer.timestamp = -1
    answer.offset = -1
    if timestamp == LATEST:
        answer.offset = log.high_watermark
        answer.leader_epoch = broker.store.leader_epoch
    elif timestamp in (EARLIEST, EARLIEST_LOCAL):
        answer.offset = log.log_start_offset
        answer.leader_epoch = broker.store.leader_epoch
    elif timestamp == MAX_TIMESTAMP or timestamp >= 0:
        lookups.append((log, timestamp, answer))
    elif timestamp != LATEST_TIERED:
        raise Refusal(ErrorCode.INVALID_REQUEST, f"timestamp {timestamp} has no meaning")


def _look_up(lookups: list[Lookup]) -> None:
    """Fill in the answers of lookups by time. [worker]"""
    for log, timestamp, answer in lookups:
        try:
            found = log.max_timestamp() if timestamp == MAX_TIMESTAMP else log.offset_for_timestamp(timestamp)
        except StorageFault:
            answer.error_code = ErrorCode.KAFKA_STORAGE_ERROR
            continue
        if found is not None:
            answer.offset, answer.timestamp = found
