"""DescribeTopicPartitions (key 75): partitions of topics, page by page. Source: KIP-966.

| limit | value |
|---|---|
| partitions in one response | the request's response_partition_limit, at most 2000 |
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from heapq import merge
from itertools import groupby
from typing import TYPE_CHECKING

from edge_broker.broker.api import ServedApi
from edge_broker.broker.broker import Broker
from edge_broker.broker.context import RequestContext
from edge_broker.broker.operations import leader_directory
from edge_broker.broker.outcomes import Reply, Taken, reads_in_steps
from edge_broker.broker.state.topic_registry import OWN_TOPICS
from edge_broker.errors import ErrorCode, Refusal
from edge_broker.protocol.api import DESCRIBE_TOPIC_PARTITIONS
from edge_broker.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from edge_broker.security.acls import Operation, ResourceType
from edge_broker.storage.log.partition_log import PartitionLog
from edge_broker.storage.metadata.topic_record import is_topic_name
from edge_broker.storage.topic import Topic

if TYPE_CHECKING:
    from edge_broker.broker.cluster_port import ClusterReads, DescribedTopic
    from edge_broker.broker.state.topic_registry import AnyTopic

PARTITIONS_MAX = 2000
SORTED_AT_ONCE = 4096


@ServedApi(
    DESCRIBE_TOPIC_PARTITIONS,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    {
        0: "page by page (KIP-966)",
    },
)
@reads_in_steps
def describe_topic_partitions(
    broker: Broker, context: RequestContext, request: DescribeTopicPartitionsRequest
) -> Taken:
    """Topics in order of their names, from the cursor on, until the limit is reached."""
    asked = request.topics or broker.topics.all()
    names = yield from _in_order([topic.name for topic in asked])
    left = min(max(request.response_partition_limit, 1), PARTITIONS_MAX)
    cursor = request.cursor
    if cursor is not None and not (yield from _is_possible(cursor, request)):
        return (yield from _refuse(request))
    response = DescribeTopicPartitionsResponse(topics=[])
    denied: list[DescribeTopicPartitionsResponseTopic] = []
    for name in names:
        yield response.topics[-1] if response.topics else None
        if cursor is not None and name < cursor.topic_name:
            continue
        if not request.topics and not broker.topics.shown_to(context, name):
            continue
        first = cursor.partition_index if cursor is not None and name == cursor.topic_name else 0
        try:
            found = broker.topics.find_topic(context, name, Operation.DESCRIBE)
        except Refusal as refusal:
            missing = _missing(name, refusal.code)
            if refusal.code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                denied.append(missing)
            else:
                missing.topic_authorized_operations = broker.rights.operations(context, ResourceType.TOPIC, name)
                response.topics.append(missing)
            continue
        if left == 0:
            response.next_cursor = Cursor(topic_name=name, partition_index=first)
            break
        shown = _topic(broker, context, found, max(first, 0), left)
        shown.topic_authorized_operations = broker.rights.operations(context, ResourceType.TOPIC, name)
        response.topics.append(shown)
        left -= len(shown.partitions)
        if max(first, 0) + len(shown.partitions) < len(found.partitions):
            response.next_cursor = Cursor(topic_name=name, partition_index=max(first, 0) + len(shown.partitions))
            break
    for refused in denied:  # after the others, as Kafka
        response.topics.append(refused)
        yield refused
    return Reply(response)


def _is_possible(cursor: Cursor, request: DescribeTopicPartitionsRequest) -> Generator[None, None, bool]:
    """Whether the cursor stands at a topic that was asked for."""
    asked = not request.topics
    for topic in request.topics:
        yield None
        asked |= topic.name == cursor.topic_name
    return asked and cursor.partition_index >= 0


def _refuse(request: DescribeTopicPartitionsRequest) -> Taken:
    response = DescribeTopicPartitionsResponse(topics=[])
    for topic in request.topics:
        response.topics.append(_missing(topic.name, ErrorCode.INVALID_REQUEST))
        yield response.topics[-1]
    return Reply(response)


def _missing(name: str, code: ErrorCode) -> DescribeTopicPartitionsResponseTopic:
    if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and not is_topic_name(name):
        code = ErrorCode.INVALID_TOPIC_EXCEPTION
    return DescribeTopicPartitionsResponseTopic(error_code=code, name=name, partitions=[])


def _in_order(names: list[str]) -> Generator[None, None, Iterator[str]]:
    """Each name once, sorted: in slices, as a request has room for 55,000 names, which are 30 ms of work."""
    pieces = []
    for first in range(0, len(names), SORTED_AT_ONCE):
        pieces.append(sorted(names[first : first + SORTED_AT_ONCE]))
        yield None
    return (name for name, _ in groupby(merge(*pieces)))


def _topic(
    broker: Broker, context: RequestContext, topic: AnyTopic, first: int, limit: int
) -> DescribeTopicPartitionsResponseTopic:
    if isinstance(topic, Topic):
        partitions = [_partition(broker, log) for log in topic.partitions[first : first + limit]]
    else:
        assert broker.cluster is not None
        partitions = _partitions(broker.cluster.view, context, topic, first, limit)
    return DescribeTopicPartitionsResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.name in OWN_TOPICS,
        partitions=partitions,
    )


def _partition(broker: Broker, log: PartitionLog) -> DescribeTopicPartitionsResponsePartition:
    return DescribeTopicPartitionsResponsePartition(
        partition_index=log.partition,
        leader_id=broker.node_id,
        leader_epoch=log.leader_epoch,
        replica_nodes=[broker.node_id],
        isr_nodes=[broker.node_id],
        eligible_leader_replicas=[],  # the Java client takes the stream of these unasked; null ends its call
        last_known_elr=[],
    )


def _partitions(
    view: ClusterReads, context: RequestContext, topic: DescribedTopic, first: int, limit: int
) -> list[DescribeTopicPartitionsResponsePartition]:
    return [
        DescribeTopicPartitionsResponsePartition(
            error_code=shown.error,
            partition_index=shown.partition,
            leader_id=shown.leader,
            leader_epoch=shown.leader_epoch,
            replica_nodes=shown.replicas,
            isr_nodes=shown.in_sync,
            eligible_leader_replicas=shown.eligible,
            last_known_elr=[],
            offline_replicas=shown.offline,
        )
        for shown in leader_directory.partitions(view, topic, context.session.listener, first, limit)
    ]
