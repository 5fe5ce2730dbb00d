"""OffsetCommit (key 8): answered, and visible to OffsetFetch, after the sync.

Source: Kafka protocol, OffsetCommit 0 to 9.
"""

from __future__ import annotations

from collections.abc import Callable

from edge_broker.broker.api import ServedApi
from edge_broker.broker.broker import Broker
from edge_broker.broker.context import RequestContext
from edge_broker.broker.operations.groups.group_log import apply_group_effects
from edge_broker.broker.outcomes import Park, Reply, Steps, Taken, changes_in_steps
from edge_broker.broker.state.group_registry import ParkedRequest
from edge_broker.coordinator.group_requests import Commit, CommitPartition, CommitResult
from edge_broker.coordinator.offsets import commit_result
from edge_broker.errors import ErrorCode
from edge_broker.protocol.api import OFFSET_COMMIT
from edge_broker.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from edge_broker.security.acls import Operation

MISSING_GROUP_FROM = 9
PARTITIONS_AT_ONCE = 256
TOKENS = 1 << 40  # more than there are requests: parts of one have tokens of their own
Found = dict[tuple[str, int], ErrorCode]


@ServedApi(
    OFFSET_COMMIT,
    OffsetCommitRequest,
    OffsetCommitResponse,
    {
        0: "offsets of a group without members",
        1: "generation, member, timestamp",
        2: "a time to keep them",
        3: "throttle time (KIP-124)",
        4: "throttled by the client (KIP-219)",
        5: "no time to keep them (KIP-211)",
        6: "leader epochs (KIP-320)",
        7: "static members (KIP-345)",
        8: "compact lengths, tags (KIP-482)",
        9: "member epochs (KIP-848)",
    },
    left_out="a time to keep offsets of its own: offsets.retention.minutes holds for all",
)
@changes_in_steps
def offset_commit(broker: Broker, context: RequestContext, request: OffsetCommitRequest) -> Taken:
    """Commit what names an existing partition; each of the others gets an error of its own.

    Many partitions are committed PARTITIONS_AT_ONCE at a time, and answered together.
    """
    error = broker.rights.group(context, request.group_id, Operation.READ) or broker.groups.unready(request.group_id)
    if error != ErrorCode.NONE:
        return _refuse(request, error)
    wanted: list[CommitPartition] = []
    errors: Found = {}
    for topic in request.topics:
        yield None
        for entry in topic.partitions:
            yield None
            error = broker.topics.lookup_error(context, topic.name, entry.partition_index, Operation.READ)
            if error != ErrorCode.NONE:
                errors[topic.name, entry.partition_index] = error
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
        return _response(request, errors)
    parts = [wanted[first : first + PARTITIONS_AT_ONCE] for first in range(0, len(wanted), PARTITIONS_AT_ONCE)]
    left = len(parts)

    def come(result: CommitResult) -> None:
        nonlocal left
        left -= 1
        errors.update({(entry.topic, entry.partition): entry.error for entry in result.partitions})
        if not left:
            broker.effects.answer(context.token, _response(request, errors))

    for number, part in enumerate(parts):
        yield None  # not after the last part: the request must be parked before it is answered
        commit = _commit(context, request, part, context.token + number * TOKENS)
        error = broker.groups.unready(request.group_id)
        if error != ErrorCode.NONE:  # another broker leads since
            come(commit_result(commit, {}, error))
            continue
        broker.groups.parked[commit.token] = ParkedRequest(request.group_id, come)
        apply_group_effects(broker, broker.groups.of(request.group_id).commit(commit, broker.clock.steady_ms()))
    return Park(keeps=True)


def _commit(
    context: RequestContext, request: OffsetCommitRequest, partitions: list[CommitPartition], token: int
) -> Commit:
    return Commit(
        token=token,
        group_id=request.group_id,
        generation_id=request.generation_id_or_member_epoch,
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        partitions=tuple(partitions),
        knows_missing_group=context.api_version >= MISSING_GROUP_FROM,
    )


def _refuse(request: OffsetCommitRequest, error: ErrorCode) -> Steps:
    return Steps(_answer(request, lambda topic, partition: error))


def _response(request: OffsetCommitRequest, errors: Found) -> Steps:
    return Steps(_answer(request, lambda topic, partition: errors[topic, partition]))


def _answer(request: OffsetCommitRequest, error_of: Callable[[str, int], ErrorCode]) -> Taken:
    topics: list[OffsetCommitResponseTopic] = []
    for topic in request.topics:
        answers: list[OffsetCommitResponsePartition] = []
        topics.append(OffsetCommitResponseTopic(name=topic.name, partitions=answers))
        yield topics[-1]
        for entry in topic.partitions:
            error = error_of(topic.name, entry.partition_index)
            answers.append(OffsetCommitResponsePartition(partition_index=entry.partition_index, error_code=error))
            yield answers[-1]
    return Reply(OffsetCommitResponse(topics=topics))
