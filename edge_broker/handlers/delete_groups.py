"""DeleteGroups (key 42): empty groups and what they committed go, answered after the sync.

A group that a topic's `edge.required.groups` names stays: its offset says what may be removed from that topic.

Source: Kafka protocol, DeleteGroups 0 to 2; KIP-229.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence

from edge_broker.broker.api import ServedApi
from edge_broker.broker.broker import Broker
from edge_broker.broker.context import RequestContext
from edge_broker.broker.operations.groups.group_log import Settling, in_pieces, required_topics, some_of
from edge_broker.broker.outcomes import Park, Reply, Steps, Taken, changes_in_steps
from edge_broker.errors import ErrorCode
from edge_broker.protocol.api import DELETE_GROUPS
from edge_broker.protocol.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from edge_broker.security.acls import Operation


@ServedApi(
    DELETE_GROUPS,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    {0: "empty groups (KIP-229)", 1: "throttled by the client (KIP-219)", 2: "compact lengths, tags (KIP-482)"},
)
@changes_in_steps
def delete_groups(broker: Broker, context: RequestContext, request: DeleteGroupsRequest) -> Taken:
    """Delete each group that may go; a group that is named twice is deleted, and answered, once."""
    errors: dict[str, ErrorCode] = {}
    settling, required = Settling(broker), required_topics(broker)
    for group_id in request.groups_names:
        yield None
        if group_id in errors:
            continue
        error = broker.rights.group(context, group_id, Operation.DELETE) or broker.groups.unready(group_id)
        errors[group_id] = error if error != ErrorCode.NONE else _refusal(broker, group_id, required)
        if errors[group_id] == ErrorCode.NONE:
            yield from _delete(broker, group_id, settling)

    def answer() -> Steps:
        return Steps(_answer(errors, settling.errors))

    return Park(keeps=True) if settling.answer_later(context.token, answer) else answer()


def _delete(broker: Broker, group_id: str, settling: Settling) -> Generator[None, None, None]:
    """Delete a group. A check holds in the same step; after a pause it is repeated."""
    for number, keys in enumerate(in_pieces(broker.groups.of(group_id).offsets.keys_of(group_id))):
        if number:
            yield None
            error = broker.groups.unready(group_id) or broker.groups.of(group_id).check_delete(group_id)
            if error != ErrorCode.NONE:
                settling.errors[group_id] = error
                return
        settling.add(broker.groups.of(group_id).drop_offsets(group_id, keys, broker.clock.steady_ms()), group_id)
    settling.add(broker.groups.of(group_id).drop_group(group_id, broker.clock.steady_ms()), group_id)


def _refusal(broker: Broker, group_id: str, required: Mapping[str, Sequence[str]]) -> ErrorCode:
    topics = required.get(group_id)
    error = broker.groups.of(group_id).check_delete(group_id)
    if topics and error == ErrorCode.NONE:
        broker.effects.audit(
            "group_kept",
            group=group_id[:256],
            reason=f"edge.required.groups of {some_of(topics)} names it; take it out first",
        )
        return ErrorCode.POLICY_VIOLATION
    return error


def _answer(errors: Mapping[str, ErrorCode], unkept: Mapping[str, ErrorCode]) -> Taken:
    results = []
    for group_id, refused in errors.items():
        error = unkept.get(group_id, refused)
        results.append(DeletableGroupResult(group_id=group_id, error_code=error))
        yield results[-1]
    return Reply(DeleteGroupsResponse(results=results))
