"""OffsetFetch (key 9): committed offsets, of named partitions or all. Source: Kafka protocol, OffsetFetch 1 to 9;
KIP-709.

Without transactions every commit is stable, so require_stable changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from edge_broker.coordinator.offsets import Fetched
from edge_broker.errors import ErrorCode
from edge_broker.handlers.broker import Broker, RequestContext
from edge_broker.handlers.group_work import unready
from edge_broker.handlers.outcome import Outcome, Reply
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

BATCHED_FROM = 8
GROUP_ERROR_FROM = 2
NOTHING = (-1, -1, "")
Asked = Sequence[OffsetFetchRequestTopic] | Sequence[OffsetFetchRequestTopics] | None


def offset_fetch(broker: Broker, context: RequestContext, request: OffsetFetchRequest) -> Outcome:
    """Answer from memory, where only synced commits stand."""
    error = unready(broker)
    if context.api_version >= BATCHED_FROM:
        groups = [
            OffsetFetchResponseGroup(
                group_id=group.group_id,
                error_code=error,
                topics=[] if error else [_topic(found) for found in _fetch(broker, group.group_id, group.topics)],
            )
            for group in request.groups
        ]
        return Reply(OffsetFetchResponse(groups=groups))
    topics = [] if error else [_old_topic(found) for found in _fetch(broker, request.group_id, request.topics)]
    if error and context.api_version < GROUP_ERROR_FROM:
        topics = [_old_error(topic, error) for topic in request.topics or []]
    return Reply(OffsetFetchResponse(error_code=error, topics=topics))


def _fetch(broker: Broker, group_id: str, topics: Asked) -> list[Fetched]:
    asked = None if topics is None else [(topic.name, topic.partition_indexes) for topic in topics]
    return broker.groups.offsets.fetch(group_id, asked)


def _topic(found: Fetched) -> OffsetFetchResponseTopics:
    name, partitions = found
    answers = []
    for partition, committed in partitions:
        offset, epoch, metadata = (
            NOTHING if committed is None else (committed.offset, committed.leader_epoch, committed.metadata)
        )
        answers.append(
            OffsetFetchResponsePartitions(
                partition_index=partition, committed_offset=offset, committed_leader_epoch=epoch, metadata=metadata
            )
        )
    return OffsetFetchResponseTopics(name=name, partitions=answers)


def _old_topic(found: Fetched) -> OffsetFetchResponseTopic:
    new = _topic(found)
    answers = [
        OffsetFetchResponsePartition(
            partition_index=entry.partition_index,
            committed_offset=entry.committed_offset,
            committed_leader_epoch=entry.committed_leader_epoch,
            metadata=entry.metadata,
        )
        for entry in new.partitions
    ]
    return OffsetFetchResponseTopic(name=new.name, partitions=answers)


def _old_error(topic: OffsetFetchRequestTopic, error: ErrorCode) -> OffsetFetchResponseTopic:
    answers = [
        OffsetFetchResponsePartition(partition_index=index, committed_offset=-1, metadata="", error_code=error)
        for index in topic.partition_indexes
    ]
    return OffsetFetchResponseTopic(name=topic.name, partitions=answers)
