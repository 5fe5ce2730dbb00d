"""OffsetFetch (key 9): committed offsets, of named partitions or all. Source: Kafka protocol, OffsetFetch 1 to 9;
KIP-709.

Without transactions every commit is stable, so require_stable changes nothing.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence

from edge_broker.broker.api import ServedApi
from edge_broker.broker.broker import Broker
from edge_broker.broker.context import RequestContext
from edge_broker.broker.outcomes import Reply, Taken, reads_in_steps
from edge_broker.coordinator.offsets import CommittedOffsets, Fetched
from edge_broker.errors import ErrorCode
from edge_broker.protocol.api import OFFSET_FETCH
from edge_broker.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from edge_broker.security.acls import Operation, ResourceType

BATCHED_FROM = 8
GROUP_ERROR_FROM = 2
NOTHING = (-1, -1, "")
Asked = Sequence[OffsetFetchRequestTopic] | Sequence[OffsetFetchRequestTopics] | None


@ServedApi(
    OFFSET_FETCH,
    OffsetFetchRequest,
    OffsetFetchResponse,
    {
        1: "offsets kept in Kafka",
        2: "all of a group, an error of the whole answer (KIP-88)",
        3: "throttle time (KIP-124)",
        4: "throttled by the client (KIP-219)",
        5: "leader epochs (KIP-320)",
        6: "compact lengths, tags (KIP-482)",
        7: "stable offsets only (KIP-447)",
        8: "several groups (KIP-709)",
        9: "member epochs (KIP-848)",
    },
)
@reads_in_steps
def offset_fetch(broker: Broker, context: RequestContext, request: OffsetFetchRequest) -> Taken:
    """Answer from memory, where only synced commits stand."""
    if context.api_version >= BATCHED_FROM:
        groups: list[OffsetFetchResponseGroup] = []
        for group in request.groups:
            error = _error(broker, context, group.group_id)
            answer = OffsetFetchResponseGroup(group_id=group.group_id, error_code=error, topics=[])
            groups.append(answer)
            committed = _fetch(broker, context, group.group_id, [] if error else group.topics)
            yield answer
            for found, denied in committed:
                if found is None:
                    yield None
                    continue
                answer.topics.append(OffsetFetchResponseTopics(name=found[0], partitions=[]))
                yield answer.topics[-1]
                yield from _partitions(found, answer.topics[-1].partitions, denied)
        return Reply(OffsetFetchResponse(groups=groups))
    topics: list[OffsetFetchResponseTopic] = []
    error = _error(broker, context, request.group_id)
    if error and context.api_version < GROUP_ERROR_FROM:
        for topic in request.topics or []:
            topics.append(OffsetFetchResponseTopic(name=topic.name, partitions=[]))
            yield topics[-1]
            nothing = (topic.name, ((index, None) for index in topic.partition_indexes))
            yield from _old_partitions(nothing, topics[-1].partitions, error)
    for found, denied in _fetch(broker, context, request.group_id, [] if error else request.topics):
        if found is None:
            yield None
            continue
        topics.append(OffsetFetchResponseTopic(name=found[0], partitions=[]))
        yield topics[-1]
        yield from _old_partitions(found, topics[-1].partitions, denied)
    return Reply(OffsetFetchResponse(error_code=error, topics=topics))


def _error(broker: Broker, context: RequestContext, group_id: str) -> ErrorCode:
    return broker.rights.group(context, group_id, Operation.DESCRIBE) or broker.groups.unready_to_tell(group_id)


def _fetch(
    broker: Broker, context: RequestContext, group_id: str, topics: Asked
) -> Iterator[tuple[Fetched | None, ErrorCode]]:
    """Yield committed offsets, a topic at a time; None for one that the session may not describe, empty if it is named.

    It is what the coordinator of this step has: in a cluster there may be none in the next.
    """
    return iter(()) if topics == [] else _look_up(broker, context, group_id, topics, broker.groups.of(group_id).offsets)


def _look_up(
    broker: Broker, context: RequestContext, group_id: str, topics: Asked, offsets: CommittedOffsets
) -> Iterator[tuple[Fetched | None, ErrorCode]]:
    if topics is None:
        for found in offsets.fetch(group_id, None):
            yield found if broker.topics.shown_to(context, found[0]) else None, ErrorCode.NONE
        return
    for topic in topics:
        if not broker.rights.may(context, Operation.DESCRIBE, ResourceType.TOPIC, topic.name):
            nothing: Fetched = (topic.name, ((index, None) for index in topic.partition_indexes))
            yield nothing, ErrorCode.TOPIC_AUTHORIZATION_FAILED
            continue
        for found in offsets.fetch(group_id, [(topic.name, topic.partition_indexes)]):
            yield found, ErrorCode.NONE


def _partitions(
    found: Fetched, answers: list[OffsetFetchResponsePartitions], error: ErrorCode = ErrorCode.NONE
) -> Generator[OffsetFetchResponsePartitions, None, None]:
    for partition, committed in found[1]:
        offset, epoch, metadata = (
            NOTHING if committed is None else (committed.offset, committed.leader_epoch, committed.metadata)
        )
        answers.append(
            OffsetFetchResponsePartitions(
                partition_index=partition,
                committed_offset=offset,
                committed_leader_epoch=epoch,
                metadata=metadata,
                error_code=error,
            )
        )
        yield answers[-1]


def _old_partitions(
    found: Fetched, answers: list[OffsetFetchResponsePartition], error: ErrorCode = ErrorCode.NONE
) -> Generator[OffsetFetchResponsePartition, None, None]:
    for entry in _partitions(found, []):
        answers.append(
            OffsetFetchResponsePartition(
                partition_index=entry.partition_index,
                committed_offset=entry.committed_offset,
                committed_leader_epoch=entry.committed_leader_epoch,
                metadata=entry.metadata,
                error_code=error,
            )
        )
        yield answers[-1]
