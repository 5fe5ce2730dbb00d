"""Fetch by a follower: who may, and what it names; answered by its session (follower_fetch_sessions.py).

| refused | with |
|---|---|
| on another listener than that for brokers, or of whom may not CLUSTER_ACTION | CLUSTER_AUTHORIZATION_FAILED |
| without an authorizer: from an address that no broker of the cluster is registered with | the same |
| before version 17, which has no replica's directory | UNSUPPORTED_VERSION |
| by a client that is no follower of ours: without the tag of what its disk has confirmed | the same |
| of a topic, or a partition, that is not here | UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION, for it alone |

Does not contain: consumers' fetches (fetch.py). Source: Kafka protocol, Fetch 17; KIP-853, KIP-903.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from edge_broker.broker.cluster.follower_fetch_sessions import ANSWER_BYTES_MAX
from edge_broker.broker.cluster_port import Order
from edge_broker.broker.outcomes import Outcome, Reply
from edge_broker.cluster.inter_broker_messages import ReplicaFetch
from edge_broker.cluster.state.cluster_state import InSyncReplica, PartitionId
from edge_broker.errors import ErrorCode
from edge_broker.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse
from edge_broker.security.acls import Operation, ResourceType
from edge_broker.storage.metadata.topic_record import id_text

if TYPE_CHECKING:
    from uuid import UUID

    from edge_broker.broker.broker import Broker
    from edge_broker.broker.cluster_port import FollowerSession
    from edge_broker.broker.context import RequestContext
    from edge_broker.storage.topic import Topic

SINCE = 17
BEGINS = 0  # the epoch of a session's first request


def follower_fetch(broker: Broker, context: RequestContext, request: FetchRequest) -> Outcome:
    """Take what a follower says, and answer when there is something for it."""
    cluster, state = broker.cluster, request.replica_state
    assert cluster is not None
    if context.session.listener == cluster.view.listener and not cluster.view.knows:
        return Reply(FetchResponse(error_code=ErrorCode.LEADER_NOT_AVAILABLE))  # nor is it known yet who is a broker
    if not may_act_for_cluster(broker, context):
        return Reply(FetchResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
    if context.api_version < SINCE or state is None or not _is_ours(request):
        return Reply(FetchResponse(error_code=ErrorCode.UNSUPPORTED_VERSION))
    replication = cluster.replication
    session = replication.fetches.session(broker, cluster.replicas, replication, state.replica_id, context.session.peer)
    if request.session_epoch == BEGINS:
        session.begin()
    for wanted in request.topics:
        topic = broker.store.topics_by_id.get(wanted.topic_id)
        for partition in wanted.partitions:
            _take(session, topic, wanted.topic_id, partition, (state.replica_id, state.replica_epoch))
    return session.outcome(context.token, request.max_wait_ms)


def may_act_for_cluster(broker: Broker, context: RequestContext, *, noted: bool = True) -> bool:
    """Whether a session may do what brokers of the cluster do to each other."""
    cluster = broker.cluster
    if cluster is None or context.session.listener != cluster.view.listener:
        return False
    if broker.rights.authorizer is not None:
        return broker.rights.may(context, Operation.CLUSTER_ACTION, ResourceType.CLUSTER, noted=noted)
    return cluster.view.is_member(context.session.host)


def _is_ours(request: FetchRequest) -> bool:
    return all(partition.synced_end >= 0 for topic in request.topics for partition in topic.partitions)


def _take(
    session: FollowerSession, topic: Topic | None, topic_id: UUID, wanted: FetchPartition, replica: tuple[int, int]
) -> None:
    if topic is None:
        session.refuse(topic_id, wanted.partition, str(topic_id), ErrorCode.UNKNOWN_TOPIC_ID)
        return
    if not 0 <= wanted.partition < len(topic.partitions):
        session.refuse(topic.topic_id, wanted.partition, topic.name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return
    broker, epoch = replica
    fetch = ReplicaFetch(
        PartitionId(topic.name, wanted.partition),
        InSyncReplica(broker, id_text(wanted.replica_directory_id), epoch),
        wanted.current_leader_epoch,
        wanted.fetch_offset,
        wanted.last_fetched_epoch,
        wanted.synced_end,
        wanted.keeps_out,
        wanted.is_full,
        wanted.state_id,
        was_full=wanted.was_full,
    )
    session.take(Order(fetch, topic.topic_id, min(wanted.partition_max_bytes, ANSWER_BYTES_MAX)))
