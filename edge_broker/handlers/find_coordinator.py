"""FindCoordinator (key 10): who leads the partition of `__consumer_offsets` that has a group; it is made when needed.

A board that stands alone coordinates every group.

Source: Kafka protocol, FindCoordinator 0 to 6; KIP-699 for batched keys.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import TYPE_CHECKING

from edge_broker.broker.api import ServedApi
from edge_broker.broker.broker import Broker
from edge_broker.broker.cluster_port import NOBODY, TopicDirectory
from edge_broker.broker.context import RequestContext
from edge_broker.broker.operations.topic_creation import Errors, create, offsets_topic
from edge_broker.broker.outcomes import Outcome, Reply, Steps, Taken, reads_in_steps
from edge_broker.broker.state.group_registry import partition_for
from edge_broker.configuration.config import Endpoint
from edge_broker.errors import ErrorCode, Refusal
from edge_broker.protocol.api import FIND_COORDINATOR
from edge_broker.protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from edge_broker.security.acls import Operation, ResourceType
from edge_broker.storage.metadata.topic_record import OFFSETS_TOPIC

if TYPE_CHECKING:
    from edge_broker.broker.cluster_port import TopicDirectory

GROUP, TRANSACTION = 0, 1
BATCHED_FROM = 4


@ServedApi(
    FIND_COORDINATOR,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    {
        0: "of groups",
        1: "of transactions, an error message (KIP-98)",
        2: "throttled by the client (KIP-219)",
        3: "compact lengths, tags (KIP-482)",
        4: "several keys (KIP-699)",
        5: "transactions' own errors (KIP-890)",
        6: "share groups (KIP-932)",
    },
    left_out="transactions and share groups",
)
@reads_in_steps
def find_coordinator(broker: Broker, context: RequestContext, request: FindCoordinatorRequest) -> Taken:
    """Name the coordinators; transactions have none here yet."""
    if request.key_type != GROUP:
        return (yield from _answer(broker, context, request, _other_type(request.key_type)))
    if broker.groups.partitions or not (yield from _any_shown(broker, context, request)):
        return (yield from _answer(broker, context, request, None))

    def topic_created(errors: Errors) -> Outcome:
        return Steps(_answer(broker, context, request, _creation_refusal(broker, errors.get(OFFSETS_TOPIC))))

    return create(
        broker, [offsets_topic(broker)], retry=lambda: find_coordinator(broker, context, request), then=topic_created
    )


def _any_shown(broker: Broker, context: RequestContext, request: FindCoordinatorRequest) -> Generator[None, None, bool]:
    """Whether the session may describe one of the groups; for others no topic is made."""
    for key in _keys(context, request):
        yield None
        if broker.rights.may(context, Operation.DESCRIBE, ResourceType.GROUP, key, noted=False):
            return True
    return False


def _keys(context: RequestContext, request: FindCoordinatorRequest) -> list[str]:
    return request.coordinator_keys if context.api_version >= BATCHED_FROM else [request.key]


def _answer(broker: Broker, context: RequestContext, request: FindCoordinatorRequest, refusal: Refusal | None) -> Taken:
    nodes = _nodes(broker, context)
    found: list[Coordinator] = []
    for key in _keys(context, request):
        denied = _denial(broker, context, key) if request.key_type == GROUP else None
        found.append(_coordinator(broker, nodes, key, denied or refusal))
        yield found[-1]
    if context.api_version >= BATCHED_FROM:
        return Reply(FindCoordinatorResponse(coordinators=found))
    one = found[0]
    return Reply(
        FindCoordinatorResponse(
            error_code=one.error_code,
            error_message=one.error_message or ErrorCode.NONE.name,  # Kafka's word for it before version 4
            node_id=one.node_id,
            host=one.host,
            port=one.port,
        )
    )


def _other_type(key_type: int) -> Refusal:
    """Codes that end a client's call at once; any that it may try again would let it wait for its whole timeout."""
    if key_type == TRANSACTION:
        text = "transactions are not served; leave transactional.id out"
        return Refusal(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, text)
    return Refusal(ErrorCode.INVALID_REQUEST, f"key type {key_type} is not served; ask for groups (0)")


def _denial(broker: Broker, context: RequestContext, group_id: str) -> Refusal | None:
    code = broker.rights.group(context, group_id, Operation.DESCRIBE)
    return Refusal(code, f"no right to describe group {group_id!r}") if code else None


def _creation_refusal(broker: Broker, refusal: Refusal | None) -> Refusal | None:
    """Why there are no coordinators; in a cluster another broker may have made the topic, or will."""
    if broker.cluster is None or refusal is None:
        return refusal
    if broker.groups.partitions:
        return None
    return Refusal(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{OFFSETS_TOPIC} could not be made: {refusal.message}")


def _nodes(broker: Broker, context: RequestContext) -> dict[int, Endpoint]:
    """The brokers that are there, by their addresses for clients that come the way this one came."""
    if broker.cluster is None:
        return {broker.node_id: broker.advertised_to(context.session)}
    return {node.broker: node.endpoint for node in broker.cluster.view.brokers(context.session.listener)}


def _coordinator(broker: Broker, nodes: Mapping[int, Endpoint], key: str, refusal: Refusal | None) -> Coordinator:
    leader = broker.node_id if broker.cluster is None else _leader(broker.cluster.view, broker.groups.partitions, key)
    if refusal is None and leader not in nodes:
        text = f"nobody who is there leads the partition of {OFFSETS_TOPIC} that has the group; ask again"
        refusal = Refusal(ErrorCode.COORDINATOR_NOT_AVAILABLE, text)
    if refusal is not None:
        return Coordinator(key=key, node_id=-1, port=-1, error_code=refusal.code, error_message=refusal.message)
    return Coordinator(key=key, node_id=leader, host=nodes[leader].host, port=nodes[leader].port, error_message="")


def _leader(topics: TopicDirectory, partitions: int, key: str) -> int:
    return topics.leader(OFFSETS_TOPIC, partition_for(key, partitions)) if partitions else NOBODY
