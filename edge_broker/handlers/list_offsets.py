"""ListOffsets (key 2): earliest, latest, by timestamp.

| timestamp | answer |
|---|---|
| -1 | the high watermark, after a sync of what was written before the request (not where the clock decides on syncs) |
| -2, -4 | the log start |
| -3 | offset and time of the first record with the greatest timestamp |
| -5 | none: there is no tiered storage |
| ≥ 0 | the first record at or after that time, -1 when there is none |

In a cluster the leader alone answers. A new one has to hear from its followers before it can say where what is shown
ends: until then -1, -3 and times are OFFSET_NOT_AVAILABLE, LEADER_NOT_AVAILABLE before version 5 (KIP-207). It
waits only for this broker's own disk: others may be away for long.

Replica id -2, Kafka's DEBUGGING_REPLICA_ID, asks any replica, in a cluster, for the end of what counts as replicated
there (timestamp -1); `edge-broker cluster status` compares replicas by it. It says where a log ends, and shows nothing.

Nothing that a power loss could take back is ever shown: the end and times wait for a sync (synced_end.py).
Source: Kafka protocol, ListOffsets 1 to 10; KIP-734, KIP-405; Kafka's ReplicaManager.fetchOffset for replica id -2.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

from edge_broker.broker.api import ServedApi
from edge_broker.broker.broker import Broker
from edge_broker.broker.context import RequestContext
from edge_broker.broker.operations.cold_reads import DamageMet, read_through
from edge_broker.broker.operations.synced_end import after_sync, is_unsynced
from edge_broker.broker.outcomes import Reply, Steps, Taken, reads_in_steps
from edge_broker.errors import ErrorCode, Refusal, StorageFault
from edge_broker.protocol.api import LIST_OFFSETS
from edge_broker.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from edge_broker.security.acls import Operation
from edge_broker.storage.log.partition_log import PartitionLog
from edge_broker.storage.segment.segment import DamageFound
from edge_broker.thread_checks import runs_in

if TYPE_CHECKING:
    from edge_broker.broker.cluster_port import LedPartitions

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED = -1, -2, -3, -4, -5
SINCE = {LATEST: 0, EARLIEST: 0, MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9}
NEVER = 1 << 15
ANY_REPLICA = -2
OFFSET_NOT_AVAILABLE_FROM = 5
Lookup = tuple[PartitionLog, int, ListOffsetsPartitionResponse]


@ServedApi(
    LIST_OFFSETS,
    ListOffsetsRequest,
    ListOffsetsResponse,
    {
        1: "one offset per partition (KIP-79)",
        2: "isolation level (KIP-98)",
        3: "throttled by the client (KIP-219)",
        4: "leader epochs (KIP-320)",
        5: "OFFSET_NOT_AVAILABLE (KIP-207)",
        6: "compact lengths, tags (KIP-482)",
        7: "the greatest timestamp (KIP-734)",
        8: "the local log's start (KIP-405)",
        9: "the tiered log's end (KIP-1005)",
        10: "a timeout (KIP-1075)",
    },
    left_out="tiered storage: -5 finds nothing",
)
@reads_in_steps
def list_offsets(broker: Broker, context: RequestContext, request: ListOffsetsRequest) -> Taken:
    """Answer each partition, once what is asked for is synced."""
    ends: dict[PartitionLog, int] = {}
    for log in _asked_for_end(broker, context, request):
        yield None
        if log is not None:
            ends[log] = log.log_end_offset
    return after_sync(broker, ends, lambda: _answer_all(broker, context, request))


def _of_any_replica(broker: Broker, request: ListOffsetsRequest) -> bool:
    return broker.cluster is not None and request.replica_id == ANY_REPLICA


def _asked_for_end(
    broker: Broker, context: RequestContext, request: ListOffsetsRequest
) -> Iterator[PartitionLog | None]:
    """The logs whose end, or a time, is asked for, and None for each topic and each other partition."""
    any_replica = _of_any_replica(broker, request)
    for topic in request.topics:
        yield None
        for wanted in topic.partitions:
            log = None
            if not any_replica and (wanted.timestamp in (LATEST, MAX_TIMESTAMP) or wanted.timestamp >= 0):
                with suppress(Refusal, StorageFault):  # said when it is answered
                    log = broker.topics.partition(context, topic.name, wanted.partition_index, Operation.DESCRIBE)
            yield log if log is not None and is_unsynced(broker, log) else None


def _answer_all(broker: Broker, context: RequestContext, request: ListOffsetsRequest) -> Steps:
    return Steps(_answers(broker, context, request), lambda: _answer_all(broker, context, request))


def _answers(broker: Broker, context: RequestContext, request: ListOffsetsRequest) -> Taken:
    """Lookups by time read the disk in the reader thread."""
    topics: list[ListOffsetsTopicResponse] = []
    lookups: list[Lookup] = []
    any_replica = _of_any_replica(broker, request)
    named: Counter[tuple[str, int]] = Counter()
    answered: set[tuple[str, int]] = set()
    for topic in request.topics:
        yield None
        for wanted in topic.partitions:
            yield None
            named[topic.name, wanted.partition_index] += 1
    for topic in request.topics:
        answers: list[ListOffsetsPartitionResponse] = []
        topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=answers))
        yield topics[-1]
        for wanted in topic.partitions:
            place = topic.name, wanted.partition_index
            if place in answered:
                yield None
                continue
            answered.add(place)
            once = named[place] == 1
            if any_replica and wanted.timestamp == LATEST:
                answers.append(_end_here(broker, context, topic.name, wanted, named_once=once))
            else:
                answers.append(_partition(broker, context, topic.name, wanted, lookups, named_once=once))
            yield answers[-1]
    reply = Reply(ListOffsetsResponse(topics=topics))
    if not lookups:
        return reply
    faults: list[tuple[PartitionLog, StorageFault]] = []

    def quarantine_failed(met: DamageMet, fault: StorageFault) -> None:
        lookups.pop(0)[2].error_code = ErrorCode.KAFKA_STORAGE_ERROR
        faults.append((met[0], fault))

    def then() -> Reply:
        for log, fault in faults:
            broker.note_fault(log, fault)
        return reply

    return read_through(broker.effects, lambda: _look_up(lookups, faults), then, quarantine_failed)


def _partition(
    broker: Broker,
    context: RequestContext,
    topic: str,
    wanted: ListOffsetsPartition,
    lookups: list[Lookup],
    *,
    named_once: bool,
) -> ListOffsetsPartitionResponse:
    answer = ListOffsetsPartitionResponse(partition_index=wanted.partition_index)
    try:
        _check_named(topic, wanted, once=named_once)
        if wanted.timestamp < 0 and context.api_version < SINCE.get(wanted.timestamp, NEVER):
            raise Refusal(ErrorCode.UNSUPPORTED_VERSION, f"timestamp {wanted.timestamp} has no meaning in this version")
        log = broker.topics.partition(
            context, topic, wanted.partition_index, Operation.DESCRIBE, leader_epoch=wanted.current_leader_epoch
        )
        if broker.cluster is not None and wanted.timestamp not in (EARLIEST, EARLIEST_LOCAL, LATEST_TIERED):
            _check_end(broker.cluster.replicas, log)
        _answer(log, wanted.timestamp, answer, lookups)
    except Refusal as refusal:
        answer.error_code = refusal.code
        if refusal.code == ErrorCode.OFFSET_NOT_AVAILABLE and context.api_version < OFFSET_NOT_AVAILABLE_FROM:
            answer.error_code = ErrorCode.LEADER_NOT_AVAILABLE
    except StorageFault:
        answer.error_code = ErrorCode.KAFKA_STORAGE_ERROR
    return answer


def _check_named(topic: str, wanted: ListOffsetsPartition, *, once: bool) -> None:
    if not once:
        raise Refusal(ErrorCode.INVALID_REQUEST, f"{topic}-{wanted.partition_index} is named twice; name it once")


def _end_here(
    broker: Broker, context: RequestContext, topic: str, wanted: ListOffsetsPartition, *, named_once: bool
) -> ListOffsetsPartitionResponse:
    """Return how much this broker has of a partition, with any leader."""
    answer = ListOffsetsPartitionResponse(partition_index=wanted.partition_index)
    try:
        _check_named(topic, wanted, once=named_once)
        answer.error_code = broker.topics.lookup_error(context, topic, wanted.partition_index, Operation.DESCRIBE)
        if answer.error_code == ErrorCode.NONE:
            assert broker.cluster is not None
            answer.offset, answer.leader_epoch = broker.cluster.replicas.end_here(topic, wanted.partition_index)
            answer.timestamp = -1
    except Refusal as refusal:
        answer.error_code = refusal.code
    return answer


def _check_end(replicas: LedPartitions, log: PartitionLog) -> None:
    """Refuse to say where what is shown ends while a former leader may have shown more."""
    if replicas.latest_offset(log.topic, log.partition) is None:
        text = f"a leader of {log.topic}-{log.partition} has just begun, and hears from its followers first"
        raise Refusal(ErrorCode.OFFSET_NOT_AVAILABLE, text)


def _answer(log: PartitionLog, timestamp: int, answer: ListOffsetsPartitionResponse, lookups: list[Lookup]) -> None:
    answer.timestamp = -1
    answer.offset = -1
    if timestamp == LATEST:
        answer.offset = log.high_watermark
        answer.leader_epoch = log.leader_epoch
    elif timestamp in (EARLIEST, EARLIEST_LOCAL):
        answer.offset = log.log_start_offset
        empty = answer.offset == log.log_end_offset
        answer.leader_epoch = log.leader_epoch if empty else log.reader.epoch_at(answer.offset)
    elif timestamp == MAX_TIMESTAMP or timestamp >= 0:
        lookups.append((log, timestamp, answer))


@runs_in()
def _latest(log: PartitionLog) -> tuple[int, int] | None:
    """The first record with the greatest time, which its batch's header tells; offset and time."""
    offset, time = log.reader.max_timestamp()
    return (offset, time) if time < 0 else log.reader.offset_for_timestamp(time)


@runs_in()
def _look_up(lookups: list[Lookup], faults: list[tuple[PartitionLog, StorageFault]]) -> DamageMet | None:
    """Fill in the answers of lookups by time, and what could not be read; stops at damage."""
    while lookups:
        log, timestamp, answer = lookups[0]
        try:
            found = _latest(log) if timestamp == MAX_TIMESTAMP else log.reader.offset_for_timestamp(timestamp)
            if found is not None:
                answer.offset, answer.timestamp = found
                answer.leader_epoch = log.reader.epoch_at(answer.offset)
        except DamageFound as damage:
            return log, damage
        except StorageFault as fault:
            answer.error_code = ErrorCode.KAFKA_STORAGE_ERROR
            faults.append((log, fault))
        lookups.pop(0)
    return None
