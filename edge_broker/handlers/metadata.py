"""Metadata (key 3): brokers and topics; a topic that is asked for and missing is made, and its leader returned at once.

Does not contain: other ways of making topics (topic_creation). Source: Kafka protocol, Metadata 0 to 13; KIP-516 for
topic ids.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING

from drupelet.ledger import LEDGER_TOPIC
from edge_broker.broker.api import ServedApi
from edge_broker.broker.broker import Broker
from edge_broker.broker.context import RequestContext
from edge_broker.broker.operations import leader_directory
from edge_broker.broker.operations.topic_creation import (
    Errors,
    NewTopic,
    automatic_topic,
    check_new_topic,
    create,
    names_in_metrics,
    room_for_partitions,
)
from edge_broker.broker.outcomes import Reply, Steps, Taken, reads_in_steps
from edge_broker.broker.state.topic_registry import OWN_TOPICS
from edge_broker.errors import ErrorCode, Refusal
from edge_broker.protocol.api import METADATA
from edge_broker.protocol.message import NO_UUID
from edge_broker.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from edge_broker.security.acls import Operation, ResourceType
from edge_broker.storage.log.partition_log import PartitionLog
from edge_broker.storage.metadata.topic_record import check_topic_name
from edge_broker.storage.topic import Topic

if TYPE_CHECKING:
    from edge_broker.broker.cluster_port import ClusterReads, DescribedTopic
    from edge_broker.broker.state.topic_registry import AnyTopic

NULL_MEANS_ALL_FROM = 1
AUTO_CREATE_FLAG_FROM = 4
LISTENER_ERROR_FROM = 6
NOT_YET = (ErrorCode.TOPIC_ALREADY_EXISTS, ErrorCode.NOT_CONTROLLER, ErrorCode.REQUEST_TIMED_OUT)
"""Why a topic that was to be made is not known here: it may be soon."""


@ServedApi(
    METADATA,
    MetadataRequest,
    MetadataResponse,
    {
        0: "topics, their partitions and leaders",
        1: "racks, the controller, internal topics",
        2: "the cluster's id (KIP-78)",
        3: "throttle time (KIP-124)",
        4: "creation only where it is allowed",
        5: "offline replicas (KIP-112)",
        6: "throttled by the client (KIP-219)",
        7: "leader epochs (KIP-320)",
        8: "authorized operations (KIP-430)",
        9: "compact lengths, tags (KIP-482)",
        10: "topic ids in the answer (KIP-516)",
        11: "no operations of the cluster (KIP-700)",
        12: "topics by id (KIP-516)",
        13: "an error of the whole answer (KIP-1102)",
    },
)
@reads_in_steps
def metadata(broker: Broker, context: RequestContext, request: MetadataRequest) -> Taken:
    """Answer for the topics asked for, for all when none are named."""
    refused: Errors = {}
    wanted: dict[str, NewTopic] = {}
    room, in_metrics = None, names_in_metrics(broker)
    for name in _missing(broker, context, request):
        yield None
        if name in refused or name in wanted:
            continue
        room = room_for_partitions(broker) if room is None else room
        topic = automatic_topic(broker, name)
        try:
            broker.topics.check_create(context, name)
            check_new_topic(broker, topic, room, in_metrics)
        except Refusal as refusal:
            refused[name] = refusal.without_frames()
        else:
            wanted[name] = topic
            room -= topic.partitions
    if not wanted:
        return _reply(broker, context, request, refused)
    return create(
        broker,
        list(wanted.values()),
        retry=lambda: metadata(broker, context, request),
        then=lambda errors: _reply(broker, context, request, refused | errors),
    )


def _all_asked(context: RequestContext, request: MetadataRequest) -> bool:
    return request.topics is None or (context.api_version < NULL_MEANS_ALL_FROM and not request.topics)


def _missing(broker: Broker, context: RequestContext, request: MetadataRequest) -> Iterator[str]:
    """Names that do not exist and are to be made, as far as the session may see them."""
    allowed = broker.config.boolean("auto.create.topics.enable")
    if context.api_version >= AUTO_CREATE_FLAG_FROM:
        allowed = allowed and request.allow_auto_topic_creation
    if not allowed or _all_asked(context, request):
        return
    for topic in request.topics or []:
        name = topic.name
        if name is None or (name == LEDGER_TOPIC and broker.cluster is not None):  # the controller makes it
            continue
        if not broker.topics.exists(name) and broker.topics.shown_to(context, name):
            yield name


def _reply(broker: Broker, context: RequestContext, request: MetadataRequest, refused: Errors) -> Steps:
    def retry() -> Steps:
        return _reply(broker, context, request, refused)

    return Steps(_answer(broker, context, request, refused), retry)


def _answer(broker: Broker, context: RequestContext, request: MetadataRequest, refused: Errors) -> Taken:
    topics: list[MetadataResponseTopic] = []
    if _all_asked(context, request):
        for topic in broker.topics.all():
            if not broker.topics.shown_to(context, topic.name):
                yield None
                continue
            topics.append(_topic(broker, context, topic))
            yield topics[-1]
    else:
        answered: set[str | uuid.UUID] = set()
        for entry in request.topics or []:
            known = entry.topic_id if entry.name is None else entry.name
            if known in answered:
                yield None
                continue
            answered.add(known)
            topics.append(_requested_topic(broker, context, entry.name, entry.topic_id, refused))
            yield topics[-1]
    if request.include_topic_authorized_operations:
        for answer in topics:
            yield None
            if answer.error_code != ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                answer.topic_authorized_operations = broker.rights.operations(
                    context, ResourceType.TOPIC, answer.name or ""
                )
    return Reply(
        MetadataResponse(
            brokers=leader_directory.as_endpoints(
                leader_directory.brokers(broker, context.session), MetadataResponseBroker
            ),
            cluster_id=broker.store.directory.cluster_id,
            controller_id=leader_directory.controller(broker),
            cluster_authorized_operations=broker.rights.cluster_operations(
                context, told=request.include_cluster_authorized_operations
            ),
            topics=topics,
        )
    )


def _requested_topic(
    broker: Broker, context: RequestContext, name: str | None, topic_id: uuid.UUID, refused: Errors
) -> MetadataResponseTopic:
    if name is None and topic_id == NO_UUID:
        return MetadataResponseTopic(error_code=ErrorCode.INVALID_REQUEST, name="", topic_id=NO_UUID, partitions=[])
    try:
        known = topic_id if name is None else name
        return _topic(broker, context, broker.topics.find_topic(context, known, Operation.DESCRIBE))
    except Refusal as refusal:
        code = refusal.code
    if name is None:
        return MetadataResponseTopic(error_code=code, name=None, topic_id=topic_id, partitions=[])
    if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        code = (refused.get(name) or _absent(name)).code
        if broker.cluster is not None and code in NOT_YET:
            code = ErrorCode.LEADER_NOT_AVAILABLE
    return MetadataResponseTopic(error_code=code, name=name, topic_id=NO_UUID, partitions=[])


def _absent(name: str) -> Refusal:
    """Return the error of a missing topic without creation: its name may be invalid."""
    try:
        check_topic_name(name)
    except Refusal as refusal:
        return refusal.without_frames()
    return Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name!r} does not exist")


def _topic(broker: Broker, context: RequestContext, topic: AnyTopic) -> MetadataResponseTopic:
    if isinstance(topic, Topic):
        partitions = [_partition(broker, log) for log in topic.partitions]
    else:
        assert broker.cluster is not None
        partitions = _partitions(broker.cluster.view, context, topic)
    return MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.name in OWN_TOPICS,
        partitions=partitions,
    )


def _partition(broker: Broker, log: PartitionLog) -> MetadataResponsePartition:
    return MetadataResponsePartition(
        partition_index=log.partition,
        leader_id=broker.node_id,
        leader_epoch=log.leader_epoch,
        replica_nodes=[broker.node_id],
        isr_nodes=[broker.node_id],
    )


def _partitions(view: ClusterReads, context: RequestContext, topic: DescribedTopic) -> list[MetadataResponsePartition]:
    return [
        MetadataResponsePartition(
            error_code=_error(context, shown.error),
            partition_index=shown.partition,
            leader_id=shown.leader,
            leader_epoch=shown.leader_epoch,
            replica_nodes=shown.replicas,
            isr_nodes=shown.in_sync,
            offline_replicas=shown.offline,
        )
        for shown in leader_directory.partitions(view, topic, context.session.listener)
    ]


def _error(context: RequestContext, error: ErrorCode) -> ErrorCode:
    """As older versions tell that a leader has no listener for these clients."""
    if error == ErrorCode.LISTENER_NOT_FOUND and context.api_version < LISTENER_ERROR_FROM:
        return ErrorCode.LEADER_NOT_AVAILABLE
    return error
