"""CreatePartitions (key 37): a topic gets more partitions, answered when they are on disk and synced.

In a cluster it is answered when the cluster has agreed, and this broker knows who leads each of them.

Source: Kafka protocol, CreatePartitions 0 to 3; KIP-195, KIP-599 (quotas).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

from edge_broker.broker.api import ServedApi
from edge_broker.broker.broker import Broker
from edge_broker.broker.context import RequestContext
from edge_broker.broker.operations.topic_creation import (
    Errors,
    MorePartitions,
    add_partitions,
    check_more_partitions,
    check_replicas,
)
from edge_broker.broker.outcomes import Outcome, Reply, Steps, Taken, changes_in_steps
from edge_broker.errors import ErrorCode, Refusal
from edge_broker.protocol.api import CREATE_PARTITIONS
from edge_broker.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from edge_broker.security.acls import Operation
from edge_broker.storage.topic import Topic

if TYPE_CHECKING:
    from edge_broker.broker.state.topic_registry import AnyTopic


@ServedApi(
    CREATE_PARTITIONS,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    {
        0: "more partitions (KIP-195)",
        1: "throttled by the client (KIP-219)",
        2: "compact lengths, tags (KIP-482)",
        3: "quotas (KIP-599)",
    },
)
@changes_in_steps
def create_partitions(broker: Broker, context: RequestContext, request: CreatePartitionsRequest) -> Taken:
    """Give each topic the partitions that it may have; the others get an error of their own."""
    named: Counter[str] = Counter()
    for asked in request.topics:
        yield None
        named[asked.name] += 1
    errors: Errors = {}
    wanted: dict[str, MorePartitions] = {}
    for asked in request.topics:
        yield None
        try:
            if named[asked.name] > 1:
                raise Refusal(ErrorCode.INVALID_REQUEST, f"topic {asked.name!r} is named twice in one request")
            topic = broker.topics.find_topic(context, asked.name, Operation.ALTER)
            wanted[asked.name] = _check(broker, topic, asked)
        except Refusal as refusal:
            errors[asked.name] = refusal.without_frames()

    def reply(failed: Errors) -> Outcome:
        return Steps(_answer(named, errors, failed))

    if request.validate_only or not wanted:
        return reply({})
    return add_partitions(
        broker,
        wanted,
        retry=lambda: create_partitions(broker, context, request),
        then=reply,
        timeout_ms=request.timeout_ms,
    )


def _check(broker: Broker, topic: AnyTopic, asked: CreatePartitionsTopic) -> MorePartitions:
    check_more_partitions(broker, topic, asked.count)
    more = asked.count - len(topic.partitions)
    assignments = asked.assignments
    if assignments is not None and len(assignments) != more:
        raise Refusal(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"{more} partitions more, {len(assignments)} are assigned",
        )
    assigned = tuple(tuple(one.broker_ids) for one in assignments or ())
    if broker.cluster is None and any(ids != (broker.node_id,) for ids in assigned):
        raise Refusal(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"assign each to broker {broker.node_id}, the only one here"
        )
    if not isinstance(topic, Topic):
        check_replicas(broker, len(topic.partitions[0]), assigned, first=len(topic.partitions))
    return MorePartitions(asked.count, assigned)


def _answer(names: Iterable[str], errors: Errors, failed: Errors) -> Taken:
    results: list[CreatePartitionsTopicResult] = []
    for name in names:
        error = failed.get(name) or errors.get(name)
        results.append(
            CreatePartitionsTopicResult(name=name, error_code=error.code, error_message=error.message)
            if error is not None
            else CreatePartitionsTopicResult(name=name)
        )
        yield results[-1]
    return Reply(CreatePartitionsResponse(results=results))
