"""OffsetDelete (key 47): what a group committed for some partitions goes, answered after the sync.

What a group committed for a topic whose `edge.required.groups` names it stays: it says what may be removed there.

Source: Kafka protocol, OffsetDelete 0; KIP-496.
"""

from __future__ import annotations

from collections.abc import Mapping

from edge_broker.broker.api import Served
from edge_broker.broker.broker import Broker
from edge_broker.broker.context import RequestContext
from edge_broker.broker.groups import Settling, in_pieces, required_topics, unready
from edge_broker.broker.outcome import Park, Reply, Steps, Taken, changes_in_steps
from edge_broker.broker.topics import Operation
from edge_broker.coordinator.offset_records import OffsetKey
from edge_broker.errors import ErrorCode
from edge_broker.protocol.api import OFFSET_DELETE
from edge_broker.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)

Place = tuple[str, int]


@Served(OFFSET_DELETE, OffsetDeleteRequest, OffsetDeleteResponse, {0: "offsets of groups (KIP-496)"})
@changes_in_steps
def offset_delete(broker: Broker, context: RequestContext, request: OffsetDeleteRequest) -> Taken:
    """Delete the offsets that may go; each partition gets an answer of its own."""
    group_id = request.group_id
    error = unready(broker)
    if error == ErrorCode.NONE:
        error = broker.groups.check_offset_delete(group_id)
    if error != ErrorCode.NONE:
        return Reply(OffsetDeleteResponse(error_code=error))
    errors: dict[Place, ErrorCode] = {}
    wanted: list[OffsetKey] = []
    kept: set[str] = set()
    required = required_topics(broker).get(group_id, ())
    subscribed = broker.groups.subscribed_topics(group_id)
    for topic in request.topics:
        for partition in topic.partitions:
            yield None
            if (topic.name, partition.partition_index) in errors:
                continue
            error = broker.topics.known(context, topic.name, partition.partition_index, Operation.READ)
            if error == ErrorCode.NONE and topic.name in subscribed:
                error = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
            elif error == ErrorCode.NONE and topic.name in required:
                error = ErrorCode.POLICY_VIOLATION
                kept.add(topic.name)
            elif error == ErrorCode.NONE:
                wanted.append(OffsetKey(group_id, topic.name, partition.partition_index))
            errors[topic.name, partition.partition_index] = error
    if kept:
        broker.effects.note(
            f"what group {group_id} committed for {', '.join(sorted(kept))} was not deleted: "
            "edge.required.groups there names the group; take it out first"
        )
    settling = Settling(broker)
    for keys in in_pieces(wanted):
        yield None
        settling.add(broker.groups.drop_offsets(group_id, keys, broker.clock.steady_ms()), group_id)

    def answer() -> Steps:
        return Steps(_answer(request, errors, settling.errors.get(group_id, ErrorCode.NONE)))

    return Park(keeps=True) if settling.answer_later(context.token, answer) else answer()


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
