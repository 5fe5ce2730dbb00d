"""OffsetDelete (key 47): what a group committed for some partitions goes, answered after the sync.

A group's offsets of a topic whose `edge.required.groups` names it stay: they bound what may be removed there.

Source: Kafka protocol, OffsetDelete 0; KIP-496.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from edge_broker.broker.api import ServedApi
from edge_broker.broker.broker import Broker
from edge_broker.broker.context import RequestContext
from edge_broker.broker.operations.groups.group_log import Settling, in_pieces, required_topics, some_of
from edge_broker.broker.outcomes import Park, Reply, Steps, Taken, changes_in_steps
from edge_broker.coordinator.offset_records import OffsetKey
from edge_broker.errors import ErrorCode
from edge_broker.protocol.api import OFFSET_DELETE
from edge_broker.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from edge_broker.security.acls import Operation

Place = tuple[str, int]


@ServedApi(OFFSET_DELETE, OffsetDeleteRequest, OffsetDeleteResponse, {0: "offsets of groups (KIP-496)"})
@changes_in_steps
def offset_delete(broker: Broker, context: RequestContext, request: OffsetDeleteRequest) -> Taken:
    """Delete the offsets that may go; each partition gets an answer of its own."""
    group_id = request.group_id
    error = broker.rights.group(context, group_id, Operation.DELETE) or broker.groups.unready(group_id)
    if error == ErrorCode.NONE:
        error = broker.groups.of(group_id).check_offset_delete(group_id)
    if error != ErrorCode.NONE:
        return Reply(OffsetDeleteResponse(error_code=error))
    errors: dict[Place, ErrorCode] = {}
    wanted: list[OffsetKey] = []
    kept: set[str] = set()
    required = set(required_topics(broker).get(group_id, ()))
    for topic in request.topics:
        for partition in topic.partitions:
            yield None
            place = topic.name, partition.partition_index
            if place in errors:
                continue
            errors[place] = broker.topics.lookup_error(context, *place, Operation.READ)
            if errors[place] == ErrorCode.NONE and topic.name in required:
                errors[place] = ErrorCode.POLICY_VIOLATION
                kept.add(topic.name)
            elif errors[place] == ErrorCode.NONE:
                wanted.append(OffsetKey(group_id, *place))
    if kept:
        broker.effects.audit(
            "offsets_kept",
            group=group_id[:256],
            reason=f"edge.required.groups of {some_of(sorted(kept))} names the group; take it out first",
        )
    settling = Settling(broker)
    for keys in in_pieces(wanted):
        yield None
        refused = _in_use(broker, group_id, keys)
        errors.update(((key.topic, key.partition), error) for key, error in refused.items())
        free = [key for key in keys if key not in refused]
        if not free:
            continue
        settling.add(broker.groups.of(group_id).drop_offsets(group_id, free, broker.clock.steady_ms()), group_id)

    def answer() -> Steps:
        return Steps(_answer(request, errors, settling.errors.get(group_id, ErrorCode.NONE)))

    return Park(keeps=True) if settling.answer_later(context.token, answer) else answer()


def _in_use(broker: Broker, group_id: str, keys: Sequence[OffsetKey]) -> dict[OffsetKey, ErrorCode]:
    """Which offsets may not go, and why; members, and the coordinator, come and go between the steps of a request."""
    error = broker.groups.unready(group_id)
    if error != ErrorCode.NONE:
        return dict.fromkeys(keys, error)
    coordinator = broker.groups.of(group_id)
    error = coordinator.check_offset_delete(group_id)
    if error == ErrorCode.GROUP_ID_NOT_FOUND:
        return {}  # its offsets went with it
    if error != ErrorCode.NONE:
        return dict.fromkeys(keys, error)
    subscribed = coordinator.subscribed_topics(group_id)
    return dict.fromkeys((key for key in keys if key.topic in subscribed), ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC)


def _answer(request: OffsetDeleteRequest, errors: Mapping[Place, ErrorCode], unkept: ErrorCode) -> Taken:
    topics: list[OffsetDeleteResponseTopic] = []
    for topic in request.topics:
        answers: list[OffsetDeleteResponsePartition] = []
        topics.append(OffsetDeleteResponseTopic(name=topic.name, partitions=answers))
        yield topics[-1]
        for partition in topic.partitions:
            error = errors[topic.name, partition.partition_index] or unkept
            answers.append(OffsetDeleteResponsePartition(partition_index=partition.partition_index, error_code=error))
            yield answers[-1]
    return Reply(OffsetDeleteResponse(topics=topics))
