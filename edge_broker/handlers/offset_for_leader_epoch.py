"""OffsetForLeaderEpoch (key 23): where an epoch ended here, so that a reader can tell whether its log was cut.

The latest epoch ends where the log ends. On a single node its end is returned once it is synced. A reader that got
an offset by an acks=1 answer must not take the high watermark below it for a cut (synced_end.py).

Source: KIP-101, KIP-279, KIP-320.
"""

from __future__ import annotations

from edge_broker.broker.api import ServedApi
from edge_broker.broker.broker import Broker
from edge_broker.broker.context import RequestContext
from edge_broker.broker.operations.synced_end import after_sync, is_unsynced
from edge_broker.broker.outcomes import Reply, Steps, Taken, reads_in_steps
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
from edge_broker.storage.log.partition_log import PartitionLog


@ServedApi(
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
    ends: dict[PartitionLog, int] = {}
    if broker.cluster is None:
        for topic in request.topics:
            for wanted in topic.partitions:
                yield None
                log = _log(broker, context, topic.topic, wanted)
                if isinstance(log, ErrorCode) or wanted.leader_epoch != log.leader_epoch:
                    continue
                if is_unsynced(broker, log):
                    ends[log] = log.log_end_offset
    return after_sync(broker, ends, lambda: _answer_all(broker, context, request))


def _answer_all(broker: Broker, context: RequestContext, request: OffsetForLeaderEpochRequest) -> Steps:
    return Steps(_answers(broker, context, request), lambda: _answer_all(broker, context, request))


def _answers(broker: Broker, context: RequestContext, request: OffsetForLeaderEpochRequest) -> Taken:
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
    log = _log(broker, context, topic, wanted)
    if isinstance(log, ErrorCode):
        answer.error_code = log
    else:
        answer.leader_epoch, answer.end_offset = broker.epoch_end(log, wanted.leader_epoch)
    return answer


def _log(
    broker: Broker, context: RequestContext, topic: str, wanted: OffsetForLeaderPartition
) -> PartitionLog | ErrorCode:
    epoch = wanted.current_leader_epoch
    try:
        return broker.topics.partition(context, topic, wanted.partition, Operation.DESCRIBE, leader_epoch=epoch)
    except Refusal as refusal:
        return refusal.code
    except StorageFault:
        return ErrorCode.KAFKA_STORAGE_ERROR


def _of_replica(
    broker: Broker, context: RequestContext, topic: str, wanted: OffsetForLeaderPartition, answer: EpochEndOffset
) -> EpochEndOffset:
    """How much is here, for a broker that would be elected though it may lack something, or that lost what it led."""
    from edge_broker.broker.cluster.follower_fetch import may_act_for_cluster  # noqa: PLC0415 - for a cluster alone

    cluster = broker.cluster
    if cluster is None or not may_act_for_cluster(broker, context):
        answer.error_code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        return answer
    try:
        end = cluster.replicas.log_end(topic, wanted.partition, wanted.leader_epoch)
    except Refusal as refusal:
        answer.error_code = refusal.code
        return answer
    if end is None:
        answer.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    else:
        answer.leader_epoch, answer.end_offset = end
    return answer
