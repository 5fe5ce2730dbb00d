"""OffsetForLeaderEpoch (key 23): where an epoch ended here, so that a reader can tell whether its log was cut.

Source: KIP-101, KIP-279, KIP-320.
"""

from __future__ import annotations

from edge_broker.broker.api import Served
from edge_broker.broker.broker import Broker
from edge_broker.broker.context import RequestContext
from edge_broker.broker.outcome import Reply, Taken, reads_in_steps
from edge_broker.errors import ErrorCode, Refusal, StorageFault
from edge_broker.protocol.api import OFFSET_FOR_LEADER_EPOCH
from edge_broker.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)
from edge_broker.security.acls import Operation


@Served(
    OFFSET_FOR_LEADER_EPOCH,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    {
        2: "the current leader epoch (KIP-320)",
        3: "a replica's id (KIP-320)",
        4: "compact lengths, tags (KIP-482)",
    },
)
@reads_in_steps
def offset_for_leader_epoch(broker: Broker, context: RequestContext, request: OffsetForLeaderEpochRequest) -> Taken:
    """The greatest epoch not above the one asked for, and its end offset."""
    topics: list[OffsetForLeaderTopicResult] = []
    for topic in request.topics:
        partitions: list[EpochEndOffset] = []
        topics.append(OffsetForLeaderTopicResult(topic=topic.topic, partitions=partitions))
        yield topics[-1]
        for wanted in topic.partitions:
            partitions.append(_partition(broker, context, topic.topic, wanted, request.replica_id))
            yield partitions[-1]
    return Reply(OffsetForLeaderEpochResponse(topics=topics))


def _partition(
    broker: Broker, context: RequestContext, topic: str, wanted: OffsetForLeaderPartition, replica_id: int
) -> EpochEndOffset:
    answer = EpochEndOffset(partition=wanted.partition)
    if broker.cluster is not None and replica_id >= 0:
        return _of_replica(broker, context, topic, wanted, answer)
    try:
        log = broker.topics.partition(
            context, topic, wanted.partition, Operation.DESCRIBE, leader_epoch=wanted.current_leader_epoch
        )
        answer.leader_epoch, answer.end_offset = broker.epoch_end(log, wanted.leader_epoch)
    except Refusal as refusal:
        answer.error_code = refusal.code
    except StorageFault:
        answer.error_code = ErrorCode.KAFKA_STORAGE_ERROR
    return answer


def _of_replica(
    broker: Broker, context: RequestContext, topic: str, wanted: OffsetForLeaderPartition, answer: EpochEndOffset
) -> EpochEndOffset:
    """How much is here, for another broker that would be elected though it may lack something."""
    from edge_broker.broker.follower_fetch import may_act_for_cluster  # noqa: PLC0415 - for a cluster alone

    cluster = broker.cluster
    if cluster is None or not may_act_for_cluster(broker, context):
        answer.error_code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        return answer
    try:
        end = cluster.log_end(topic, wanted.partition)
    except Refusal as refusal:
        answer.error_code = refusal.code
        return answer
    if end is None:
        answer.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    else:
        answer.leader_epoch, answer.end_offset = end
    return answer
