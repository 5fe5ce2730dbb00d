"""DeleteRecords (key 21): a partition begins later, answered when that is on disk and synced.

| asked for | answered |
|---|---|
| an offset that the log holds, or its high watermark (-1) | the log starts there, amid a segment or a batch too |
| the same, with unsynced records before it | the same, after their sync; REQUEST_TIMED_OUT without one |
| one at or below the log's start | where the log starts |
| one above the log's end (in a cluster: above the high watermark), or below -1 | OFFSET_OUT_OF_RANGE |
| of a topic that is only compacted | POLICY_VIOLATION |

Records that a group of `edge.required.groups` has not passed are recorded as lost before they go.

Source: Kafka protocol, DeleteRecords 0 to 2; KIP-107.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeAlias

from edge_broker.broker.api import ServedApi
from edge_broker.broker.broker import Broker
from edge_broker.broker.context import RequestContext
from edge_broker.broker.operations.local_change import change
from edge_broker.broker.operations.synced_end import after_sync, is_synced_to, is_unsynced
from edge_broker.broker.outcomes import AfterName, Outcome, Reply, Steps, Taken, changes_in_steps
from edge_broker.errors import ErrorCode, Refusal, StorageFault
from edge_broker.protocol.api import DELETE_RECORDS
from edge_broker.protocol.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from edge_broker.security.acls import Operation
from edge_broker.storage.log.partition_log import PartitionLog
from edge_broker.storage.retention.segment_removal import delete_records as remove_before

HIGH_WATERMARK = -1


class _Place(NamedTuple):
    topic: str
    partition: int


class _PartitionAtRequest(NamedTuple):
    """A partition as it was found when the request came; what is written later does not go with it."""

    log: PartitionLog
    offset: int
    """-1: all that may be shown, up to `end`."""
    end: int


class _DeletionTarget(NamedTuple):
    log: PartitionLog
    offset: int
    passed_offset: int


Found: TypeAlias = Mapping[_Place, int | ErrorCode]
"""Where the partition begins, or why it stays as it is."""


@ServedApi(
    DELETE_RECORDS,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    {0: "up to an offset (KIP-107)", 1: "throttled by the client (KIP-219)", 2: "compact lengths, tags (KIP-482)"},
)
@changes_in_steps
def delete_records(broker: Broker, context: RequestContext, request: DeleteRecordsRequest) -> Taken:
    """Delete what may go; each partition gets an answer of its own."""
    errors: dict[_Place, ErrorCode] = {}
    asked: dict[_Place, _PartitionAtRequest] = {}
    for topic in request.topics:
        for partition in topic.partitions:
            yield None
            place = _Place(topic.name, partition.partition_index)
            try:
                asked[place] = _check_partition(broker, context, place, partition.offset)
            except Refusal as refusal:
                errors[place] = refusal.code
            except StorageFault:
                errors[place] = ErrorCode.KAFKA_STORAGE_ERROR
    unsynced = {one.log: one.end for one in asked.values() if is_unsynced(broker, one.log)}
    return after_sync(broker, unsynced, lambda: _carry_out(broker, context, request, asked, errors))


def _check_partition(broker: Broker, context: RequestContext, place: _Place, offset: int) -> _PartitionAtRequest:
    log = broker.topics.partition(context, *place, Operation.DELETE)
    if not log.settings.deletes:
        raise Refusal(ErrorCode.POLICY_VIOLATION, f"cleanup.policy of {place.topic!r} does not delete")
    waits = is_unsynced(broker, log)
    shown = log.log_end_offset if waits else log.high_watermark
    if not HIGH_WATERMARK <= offset <= shown:
        raise Refusal(ErrorCode.OFFSET_OUT_OF_RANGE, f"{log!r} can be deleted up to {shown}, not {offset}")
    return _PartitionAtRequest(log, offset, shown if offset == HIGH_WATERMARK else offset)


def _deletion_target(
    broker: Broker, context: RequestContext, place: _Place, asked: _PartitionAtRequest
) -> _DeletionTarget:
    log = _check_partition(broker, context, place, asked.offset).log
    if log is not asked.log:
        raise Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{place.topic!r} was deleted, and made again")
    if is_unsynced(broker, log) and not is_synced_to(broker, log, asked.end):
        raise Refusal(ErrorCode.REQUEST_TIMED_OUT, f"the disk did not sync {log!r} up to {asked.end}; ask again")
    offset = min(asked.end, log.high_watermark)
    if offset < asked.offset:
        raise Refusal(ErrorCode.OFFSET_OUT_OF_RANGE, f"{log!r} can be deleted up to {offset}, not {asked.offset}")
    return _DeletionTarget(log, offset, broker.space.passed_offset(log))


def _carry_out(
    broker: Broker,
    context: RequestContext,
    request: DeleteRecordsRequest,
    asked: Mapping[_Place, _PartitionAtRequest],
    errors: dict[_Place, ErrorCode],
) -> Outcome:
    """In one step: take the topics' names, so that none is deleted and created again before the worker comes."""
    taken = broker.topics.first_taken(place.topic for place in asked)
    if taken is not None:
        return AfterName(taken, lambda: delete_records(broker, context, request))
    wanted: dict[_Place, _DeletionTarget] = {}
    for place, one in asked.items():
        try:
            wanted[place] = _deletion_target(broker, context, place, one)
        except Refusal as refusal:
            errors[place] = refusal.code
        except StorageFault:
            errors[place] = ErrorCode.KAFKA_STORAGE_ERROR
    if not wanted:
        return Steps(_answer(request, errors))
    now = broker.time.now()

    def piece(one: _DeletionTarget) -> Callable[[], int]:
        return lambda: remove_before(one.log, one.offset, now, one.passed_offset)

    def then(found: dict[_Place, int | Refusal]) -> Outcome:
        results: dict[_Place, int | ErrorCode] = dict(errors)
        for place, start in found.items():
            if isinstance(start, int):
                results[place] = start
            else:
                results[place] = ErrorCode.KAFKA_STORAGE_ERROR
                if wanted[place].log.fault is not None:
                    broker.effects.offline([wanted[place].log])
                broker.effects.note(f"{place.topic}-{place.partition}: its records could not be deleted: {start}")
        return Steps(_answer(request, results))

    names = {place.topic for place in wanted}
    return change(broker, names, {place: piece(one) for place, one in wanted.items()}, then)


def _answer(request: DeleteRecordsRequest, found: Found) -> Taken:
    topics: list[DeleteRecordsTopicResult] = []
    for topic in request.topics:
        answers: list[DeleteRecordsPartitionResult] = []
        topics.append(DeleteRecordsTopicResult(name=topic.name, partitions=answers))
        yield topics[-1]
        for partition in topic.partitions:
            start = found[_Place(topic.name, partition.partition_index)]
            answers.append(
                DeleteRecordsPartitionResult(
                    partition_index=partition.partition_index,
                    low_watermark=-1 if isinstance(start, ErrorCode) else start,
                    error_code=start if isinstance(start, ErrorCode) else ErrorCode.NONE,
                )
            )
            yield answers[-1]
    return Reply(DeleteRecordsResponse(topics=topics))
