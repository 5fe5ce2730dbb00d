"""One request for each API, and the rights that Kafka wants for it: what tests of rights ask with and without them.

No request changes what a later one is answered. Lives here: that table, and what an answer says about rights. Must
never come in: who is asked, and how ACLs get there. Source: Kafka documentation, "Authorization and ACLs".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple
from uuid import UUID

from edge_broker.errors import ErrorCode
from edge_broker.protocol import api
from edge_broker.protocol.message import NO_UUID, Message
from edge_broker.protocol.messages import alter_configs, incremental_alter_configs
from edge_broker.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from edge_broker.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
)
from edge_broker.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from edge_broker.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from edge_broker.protocol.messages.delete_groups import DeleteGroupsRequest
from edge_broker.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from edge_broker.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from edge_broker.protocol.messages.describe_client_quotas import DescribeClientQuotasRequest
from edge_broker.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from edge_broker.protocol.messages.describe_groups import DescribeGroupsRequest
from edge_broker.protocol.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from edge_broker.protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from edge_broker.protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest, UserName
from edge_broker.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from edge_broker.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from edge_broker.protocol.messages.find_coordinator import FindCoordinatorRequest
from edge_broker.protocol.messages.heartbeat import HeartbeatRequest
from edge_broker.protocol.messages.init_producer_id import InitProducerIdRequest
from edge_broker.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from edge_broker.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from edge_broker.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from edge_broker.protocol.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from edge_broker.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from edge_broker.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from edge_broker.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from edge_broker.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from edge_broker.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from edge_broker.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from edge_broker.protocol.messages.sync_group import SyncGroupRequest
from edge_broker.protocol.record_batch import build_batch
from edge_broker.security.acls import CLUSTER_NAME, Operation, ResourceType

TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
TRANSACTIONAL_ID = ResourceType.TRANSACTIONAL_ID
DENIALS = frozenset(code for code in ErrorCode if code.name.endswith("_AUTHORIZATION_FAILED"))


class Names(NamedTuple):
    """What is there: a topic with its id; `absent` is none, `no_group` no group."""

    topic: str
    topic_id: UUID
    absent: str
    group: str
    no_group: str


class Right(NamedTuple):
    """What an ACL allows; a name that Names has stands for what is there."""

    resource_type: ResourceType
    name: str
    operation: Operation

    def of(self, names: Names) -> Right:
        """With the names that are there."""
        return self._replace(name=getattr(names, self.name, self.name))


class Asked(NamedTuple):
    """A request; of each of `needs` one right is needed, and without it the answer has the code `denied`."""

    title: str
    key: int
    version: int
    request: Callable[[Names], Message]
    needs: tuple[tuple[Right, ...], ...]
    denied: tuple[ErrorCode, ...]


def denials(answer: Any) -> set[ErrorCode]:
    """The codes of an answer that say that a right is missing."""
    return {ErrorCode(code) for code in _codes(answer) if code in DENIALS}


def _codes(value: Any) -> Iterator[int]:
    if isinstance(value, Message):
        for field in type(value).FIELDS:
            found = getattr(value, field.name)
            if field.name == "error_code":
                yield found
            elif isinstance(found, (list, Message)):
                yield from _codes(found)
    elif isinstance(value, list):
        for one in value:
            yield from _codes(one)


def _topic(operation: Operation, name: str = "topic") -> tuple[Right, ...]:
    return (Right(TOPIC, name, operation),)


def _group(operation: Operation) -> tuple[Right, ...]:
    return (Right(GROUP, "group", operation),)


def _cluster(operation: Operation) -> tuple[Right, ...]:
    return (Right(CLUSTER, CLUSTER_NAME, operation),)


OF_TOPIC, OF_GROUP = (ErrorCode.TOPIC_AUTHORIZATION_FAILED,), (ErrorCode.GROUP_AUTHORIZATION_FAILED,)
OF_CLUSTER = (ErrorCode.CLUSTER_AUTHORIZATION_FAILED,)


def _produce(names: Names) -> Message:
    records = memoryview(bytearray(build_batch([(b"k", b"v")], timestamp_ms=1_700_000_000_000)))
    data = PartitionProduceData(index=0, records=records)
    topic = TopicProduceData(name=names.topic, partition_data=[data])
    return ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[topic])


def _fetch(*, by_id: bool) -> Callable[[Names], Message]:
    def request(names: Names) -> Message:
        partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
        topic = FetchTopic(
            topic="" if by_id else names.topic, topic_id=names.topic_id if by_id else NO_UUID, partitions=[partition]
        )
        return FetchRequest(max_wait_ms=0, min_bytes=0, session_id=0, session_epoch=-1, topics=[topic])

    return request


def _metadata(name: str = "topic", *, makes: bool = False) -> Callable[[Names], Message]:
    def request(names: Names) -> Message:
        topic = MetadataRequestTopic(name=getattr(names, name))
        return MetadataRequest(
            topics=[topic], allow_auto_topic_creation=makes, include_topic_authorized_operations=True
        )

    return request


def _metadata_by_id(names: Names) -> Message:
    topic = MetadataRequestTopic(name=None, topic_id=names.topic_id)
    return MetadataRequest(topics=[topic], allow_auto_topic_creation=False, include_topic_authorized_operations=True)


def _create_topics(names: Names) -> Message:
    topic = CreatableTopic(name=names.absent, num_partitions=1, replication_factor=1)
    return CreateTopicsRequest(topics=[topic], timeout_ms=30_000, validate_only=True)


def _configs(resource_type: int) -> Callable[[Names], Message]:
    def request(names: Names) -> Message:
        resource = DescribeConfigsResource(
            resource_type=resource_type,
            resource_name=names.topic if resource_type == 2 else "1",
            configuration_keys=["retention.ms"],
        )
        return DescribeConfigsRequest(resources=[resource])

    return request


def _alter(names: Names) -> Message:
    config = alter_configs.AlterableConfig(name="retention.ms", value="1000")
    resource = alter_configs.AlterConfigsResource(resource_type=2, resource_name=names.topic, configs=[config])
    return alter_configs.AlterConfigsRequest(resources=[resource], validate_only=True)


def _alter_incrementally(resource_type: int) -> Callable[[Names], Message]:
    def request(names: Names) -> Message:
        config = incremental_alter_configs.AlterableConfig(name="retention.ms", config_operation=0, value="1000")
        resource = incremental_alter_configs.AlterConfigsResource(
            resource_type=resource_type, resource_name=names.topic if resource_type == 2 else "1", configs=[config]
        )
        return incremental_alter_configs.IncrementalAlterConfigsRequest(resources=[resource], validate_only=True)

    return request


def _cancel(names: Names) -> Message:
    topic = ReassignableTopic(name=names.topic, partitions=[ReassignablePartition(partition_index=0, replicas=None)])
    return AlterPartitionReassignmentsRequest(topics=[topic])


def _join(names: Names) -> Message:
    return JoinGroupRequest(
        group_id=names.group,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        member_id="nobody",
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )


def _commit(names: Names) -> Message:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=0, committed_metadata="")
    topic = OffsetCommitRequestTopic(name=names.topic, partitions=[partition])
    return OffsetCommitRequest(group_id=names.group, topics=[topic])


def _offset_fetch(*, everything: bool) -> Callable[[Names], Message]:
    def request(names: Names) -> Message:
        topics = [OffsetFetchRequestTopics(name=names.topic, partition_indexes=[0])]
        group = OffsetFetchRequestGroup(group_id=names.group, topics=None if everything else topics)
        return OffsetFetchRequest(groups=[group])

    return request


def _offset_delete(names: Names) -> Message:
    topic = OffsetDeleteRequestTopic(name=names.topic, partitions=[OffsetDeleteRequestPartition(partition_index=0)])
    return OffsetDeleteRequest(group_id=names.group, topics=[topic])


ASKED = (
    Asked("produce", api.PRODUCE, 9, _produce, (_topic(Operation.WRITE),), OF_TOPIC),
    Asked("fetch by name", api.FETCH, 11, _fetch(by_id=False), (_topic(Operation.READ),), OF_TOPIC),
    Asked("fetch by id", api.FETCH, 16, _fetch(by_id=True), (_topic(Operation.READ),), OF_TOPIC),
    Asked(
        "list offsets",
        api.LIST_OFFSETS,
        7,
        lambda names: ListOffsetsRequest(
            replica_id=-1,
            topics=[
                ListOffsetsTopic(name=names.topic, partitions=[ListOffsetsPartition(partition_index=0, timestamp=-2)])
            ],
        ),
        (_topic(Operation.DESCRIBE),),
        OF_TOPIC,
    ),
    Asked("metadata", api.METADATA, 12, _metadata(), (_topic(Operation.DESCRIBE),), OF_TOPIC),
    Asked("metadata of none", api.METADATA, 12, _metadata("absent"), (_topic(Operation.DESCRIBE, "absent"),), OF_TOPIC),
    Asked("metadata by id", api.METADATA, 12, _metadata_by_id, (_topic(Operation.DESCRIBE),), OF_TOPIC),
    Asked(
        "create topics",
        api.CREATE_TOPICS,
        7,
        _create_topics,
        (_cluster(Operation.CREATE) + _topic(Operation.CREATE, "absent"),),
        OF_TOPIC,
    ),
    Asked(
        "delete a topic that is not there",
        api.DELETE_TOPICS,
        6,
        lambda names: DeleteTopicsRequest(topics=[DeleteTopicState(name=names.absent)], timeout_ms=30_000),
        (_topic(Operation.DESCRIBE, "absent"),),
        OF_TOPIC,
    ),
    Asked(
        "delete records",
        api.DELETE_RECORDS,
        2,
        lambda names: DeleteRecordsRequest(
            topics=[
                DeleteRecordsTopic(name=names.topic, partitions=[DeleteRecordsPartition(partition_index=0, offset=0)])
            ],
            timeout_ms=10_000,
        ),
        (_topic(Operation.DELETE),),
        OF_TOPIC,
    ),
    Asked(
        "create partitions",
        api.CREATE_PARTITIONS,
        3,
        lambda names: CreatePartitionsRequest(
            topics=[CreatePartitionsTopic(name=names.topic, count=5, assignments=None)],
            timeout_ms=30_000,
            validate_only=True,
        ),
        (_topic(Operation.ALTER),),
        OF_TOPIC,
    ),
    Asked(
        "describe log dirs",
        api.DESCRIBE_LOG_DIRS,
        4,
        lambda names: DescribeLogDirsRequest(topics=[DescribableLogDirTopic(topic=names.absent, partitions=[0])]),
        (_cluster(Operation.DESCRIBE),),
        OF_CLUSTER,
    ),
    Asked(
        "list reassignments",
        api.LIST_PARTITION_REASSIGNMENTS,
        0,
        lambda names: ListPartitionReassignmentsRequest(),
        (_cluster(Operation.DESCRIBE),),
        OF_CLUSTER,
    ),
    Asked(
        "alter reassignments", api.ALTER_PARTITION_REASSIGNMENTS, 0, _cancel, (_cluster(Operation.ALTER),), OF_CLUSTER
    ),
    Asked(
        "elect leaders",
        api.ELECT_LEADERS,
        2,
        lambda names: ElectLeadersRequest(topic_partitions=[TopicPartitions(topic=names.topic, partitions=[0])]),
        (_cluster(Operation.ALTER),),
        OF_CLUSTER,
    ),
    Asked(
        "describe configs of a topic",
        api.DESCRIBE_CONFIGS,
        4,
        _configs(2),
        (_topic(Operation.DESCRIBE_CONFIGS),),
        OF_TOPIC,
    ),
    Asked(
        "describe configs of a broker",
        api.DESCRIBE_CONFIGS,
        4,
        _configs(4),
        (_cluster(Operation.DESCRIBE_CONFIGS),),
        OF_CLUSTER,
    ),
    Asked("alter configs", api.ALTER_CONFIGS, 2, _alter, (_topic(Operation.ALTER_CONFIGS),), OF_TOPIC),
    Asked(
        "alter configs incrementally",
        api.INCREMENTAL_ALTER_CONFIGS,
        1,
        _alter_incrementally(2),
        (_topic(Operation.ALTER_CONFIGS),),
        OF_TOPIC,
    ),
    Asked(
        "alter configs of a broker",
        api.INCREMENTAL_ALTER_CONFIGS,
        1,
        _alter_incrementally(4),
        (_cluster(Operation.ALTER_CONFIGS),),
        OF_CLUSTER,
    ),
    Asked(
        "find coordinator",
        api.FIND_COORDINATOR,
        4,
        lambda names: FindCoordinatorRequest(key_type=0, coordinator_keys=[names.group]),
        (_group(Operation.DESCRIBE),),
        OF_GROUP,
    ),
    Asked("join group", api.JOIN_GROUP, 9, _join, (_group(Operation.READ),), OF_GROUP),
    Asked(
        "sync group",
        api.SYNC_GROUP,
        5,
        lambda names: SyncGroupRequest(
            group_id=names.group, generation_id=1, member_id="nobody", protocol_type="consumer", protocol_name="range"
        ),
        (_group(Operation.READ),),
        OF_GROUP,
    ),
    Asked(
        "heartbeat",
        api.HEARTBEAT,
        4,
        lambda names: HeartbeatRequest(group_id=names.group, generation_id=1, member_id="nobody"),
        (_group(Operation.READ),),
        OF_GROUP,
    ),
    Asked(
        "leave group",
        api.LEAVE_GROUP,
        5,
        lambda names: LeaveGroupRequest(group_id=names.group, members=[MemberIdentity(member_id="nobody")]),
        (_group(Operation.READ),),
        OF_GROUP,
    ),
    Asked(
        "commit offsets",
        api.OFFSET_COMMIT,
        8,
        _commit,
        (_group(Operation.READ), _topic(Operation.READ)),
        OF_GROUP + OF_TOPIC,
    ),
    Asked(
        "fetch offsets",
        api.OFFSET_FETCH,
        8,
        _offset_fetch(everything=False),
        (_group(Operation.DESCRIBE), _topic(Operation.DESCRIBE)),
        OF_GROUP + OF_TOPIC,
    ),
    Asked(
        "fetch all offsets",
        api.OFFSET_FETCH,
        8,
        _offset_fetch(everything=True),
        (_group(Operation.DESCRIBE),),
        OF_GROUP,
    ),
    Asked(
        "delete offsets",
        api.OFFSET_DELETE,
        0,
        _offset_delete,
        (_group(Operation.DELETE), _topic(Operation.READ)),
        OF_GROUP + OF_TOPIC,
    ),
    Asked(
        "describe groups",
        api.DESCRIBE_GROUPS,
        5,
        lambda names: DescribeGroupsRequest(groups=[names.group], include_authorized_operations=True),
        (_group(Operation.DESCRIBE),),
        OF_GROUP,
    ),
    Asked(
        "delete groups",
        api.DELETE_GROUPS,
        2,
        lambda names: DeleteGroupsRequest(groups_names=[names.no_group]),
        ((Right(GROUP, "no_group", Operation.DELETE),),),
        OF_GROUP,
    ),
    Asked(
        "a producer id",
        api.INIT_PRODUCER_ID,
        4,
        lambda names: InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000),
        (_cluster(Operation.IDEMPOTENT_WRITE) + _topic(Operation.WRITE),),
        OF_CLUSTER,
    ),
    Asked(
        "describe quotas",
        api.DESCRIBE_CLIENT_QUOTAS,
        1,
        lambda names: DescribeClientQuotasRequest(),
        (_cluster(Operation.DESCRIBE_CONFIGS),),
        OF_CLUSTER,
    ),
    Asked(
        "describe users",
        api.DESCRIBE_USER_SCRAM_CREDENTIALS,
        0,
        lambda names: DescribeUserScramCredentialsRequest(users=[UserName(name="nobody")]),
        (_cluster(Operation.DESCRIBE),),
        OF_CLUSTER,
    ),
    Asked(
        "alter users",
        api.ALTER_USER_SCRAM_CREDENTIALS,
        0,
        lambda names: AlterUserScramCredentialsRequest(
            deletions=[ScramCredentialDeletion(name="nobody", mechanism=1)], upsertions=[]
        ),
        (_cluster(Operation.ALTER),),
        OF_CLUSTER,
    ),
    Asked(
        "epochs",
        api.OFFSET_FOR_LEADER_EPOCH,
        4,
        lambda names: OffsetForLeaderEpochRequest(
            replica_id=-1,
            topics=[
                OffsetForLeaderTopic(
                    topic=names.topic, partitions=[OffsetForLeaderPartition(partition=0, leader_epoch=0)]
                )
            ],
        ),
        (_topic(Operation.DESCRIBE),),
        OF_TOPIC,
    ),
    Asked(
        "describe topic partitions",
        api.DESCRIBE_TOPIC_PARTITIONS,
        0,
        lambda names: DescribeTopicPartitionsRequest(topics=[TopicRequest(name=names.topic)]),
        (_topic(Operation.DESCRIBE),),
        OF_TOPIC,
    ),
)
