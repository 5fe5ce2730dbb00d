"""OffsetCommit (key 8): answered, and visible to OffsetFetch, after the sync.

Source: Kafka protocol, OffsetCommit 0 to 9.
"""

from __future__ import annotations

from collections.abc import Callable

from edge_broker.coordinator.calls import Commit, CommitPartition, CommitResult
from edge_broker.errors import ErrorCode
from edge_broker.handlers.broker import Broker, RequestContext
from edge_broker.handlers.group_work import park, unready
from edge_broker.handlers.outcome import Outcome, Reply
from edge_broker.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

MISSING_GROUP_FROM = 9


def offset_commit(broker: Broker, context: RequestContext, request: OffsetCommitRequest) -> Outcome:
    """Commit what names an existing partition; the others are answered UNKNOWN_TOPIC_OR_PARTITION."""
    error = unready(broker)
    if error != ErrorCode.NONE:
        return Reply(_refused(request, error))
    wanted = []
    unknown: set[tuple[str, int]] = set()
    for topic in request.topics:
        known = broker.store.topics.get(topic.name)
        for entry in topic.partitions:
            if known is None or not 0 <= entry.partition_index < len(known.partitions):
                unknown.add((topic.name, entry.partition_index))
            else:
                wanted.append(
                    CommitPartition(
                        topic.name,
                        entry.partition_index,
                        entry.committed_offset,
                        entry.committed_leader_epoch,
                        entry.committed_metadata,
                    )
                )
    if not wanted:
        return Reply(_refused(request, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
    commit = Commit(
        token=context.token,
        group_id=request.group_id,
        generation_id=request.generation_id_or_member_epoch,
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        partitions=tuple(wanted),
        knows_missing_group=context.api_version >= MISSING_GROUP_FROM,
    )
    effects = broker.groups.commit(commit, broker.clock.steady_ms())
    return park(broker, context, effects, lambda result: _response(request, result, unknown))


def _refused(request: OffsetCommitRequest, error: ErrorCode) -> OffsetCommitResponse:
    return _answer(request, lambda topic, partition: error)


def _response(
    request: OffsetCommitRequest, result: CommitResult, unknown: set[tuple[str, int]]
) -> OffsetCommitResponse:
    errors = {(entry.topic, entry.partition): entry.error for entry in result.partitions}
    errors |= dict.fromkeys(unknown, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return _answer(request, lambda topic, partition: errors[topic, partition])


def _answer(request: OffsetCommitRequest, error_of: Callable[[str, int], ErrorCode]) -> OffsetCommitResponse:
    topics = [
        OffsetCommitResponseTopic(
            name=topic.name,
            partitions=[
                OffsetCommitResponsePartition(
                    partition_index=entry.partition_index, error_code=error_of(topic.name, entry.partition_index)
                )
                for entry in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    return OffsetCommitResponse(topics=topics)
