"""AlterPartitionReassignments (key 45): partitions stay where they were made, and a request for more gets an error.

| asked for | answered |
|---|---|
| anything, by whom may not ALTER the cluster | CLUSTER_AUTHORIZATION_FAILED, of the whole and of each partition |
| a partition that is not there | UNKNOWN_TOPIC_OR_PARTITION |
| null, which ends a reassignment | NO_REASSIGNMENT_IN_PROGRESS |
| the replicas that it has, in their order | NONE: nothing is to be done |
| none, one twice, or a broker that is not there | INVALID_REPLICA_ASSIGNMENT |
| other replicas | UNSUPPORTED_VERSION, in words: reassignments are not there yet |

Without it Kafka's tools break off with a trace of their own, and say less.

Source: Kafka protocol, AlterPartitionReassignments 0 and 1; KIP-455.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from edge_broker.broker.api import ServedApi
from edge_broker.broker.broker import Broker
from edge_broker.broker.context import RequestContext
from edge_broker.broker.operations import leader_directory
from edge_broker.broker.outcomes import Reply, Taken, reads_in_steps
from edge_broker.errors import ErrorCode, Refusal
from edge_broker.protocol.api import ALTER_PARTITION_REASSIGNMENTS
from edge_broker.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from edge_broker.security.acls import Operation
from edge_broker.storage.topic import Topic


@ServedApi(
    ALTER_PARTITION_REASSIGNMENTS,
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    {0: "other replicas (KIP-455)", 1: "whether their number may change (KIP-860)"},
    left_out="reassignment itself: partitions stay where they were made, which is said; the replicas that a partition "
    "has are no change, and there is nothing to cancel",
)
@reads_in_steps
def alter_partition_reassignments(
    broker: Broker, context: RequestContext, request: AlterPartitionReassignmentsRequest
) -> Taken:
    """Answer each partition; none is moved."""
    response = AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change, error_message=None
    )
    response.error_code = broker.rights.cluster(context, Operation.ALTER)
    if response.error_code:
        response.error_message = f"{context.session.principal} has no right to ALTER the cluster"
    there = {node.broker for node in leader_directory.brokers(broker, context.session)}
    for topic in request.topics:
        answers: list[ReassignablePartitionResponse] = []
        response.responses.append(ReassignableTopicResponse(name=topic.name, partitions=answers))
        yield response.responses[-1]
        for partition in topic.partitions:
            answer = ReassignablePartitionResponse(partition_index=partition.partition_index, error_message=None)
            try:
                if response.error_code:
                    raise Refusal(ErrorCode(response.error_code), response.error_message or "")
                _check(_replicas(broker, topic.name, partition.partition_index), partition, there)
            except Refusal as refusal:
                answer.error_code, answer.error_message = refusal.code, refusal.message
            answers.append(answer)
            yield answer
    return Reply(response)


def _replicas(broker: Broker, name: str, partition: int) -> Sequence[int]:
    """The replicas of a partition, the preferred leader first; Refusal."""
    topic = broker.topics.described_there(name)
    if not 0 <= partition < len(topic.partitions):
        raise Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {name}-{partition}")
    return [broker.node_id] if isinstance(topic, Topic) else topic.partitions[partition]


def _check(replicas: Sequence[int], wanted: ReassignablePartition, there: Collection[int]) -> None:
    """Refuse all but the replicas that there are."""
    if wanted.replicas is None:
        raise Refusal(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "it is not being reassigned; there is nothing to cancel")
    if list(wanted.replicas) == list(replicas):
        return
    strange = [broker for broker in wanted.replicas if broker not in there and broker not in replicas]
    if not wanted.replicas or strange or len(set(wanted.replicas)) < len(wanted.replicas):
        text = f"replicas {wanted.replicas} are none, one twice, or not among those that are there: {sorted(there)}"
        raise Refusal(ErrorCode.INVALID_REPLICA_ASSIGNMENT, text)
    raise Refusal(
        ErrorCode.UNSUPPORTED_VERSION,
        f"its replicas stay {list(replicas)}, where the topic was made: reassignment is not served yet; replace a "
        "board by one with its broker.id and an empty disk, or make another topic",
    )
