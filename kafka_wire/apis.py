"""List the requested APIs and versions: those that Apache Kafka 3.9, 4.3 and the edge broker all serve.

| API | versions | why no others |
|---|---|---|
| ApiVersions | 0 | every broker answers it, whatever else it speaks |
| Metadata | 4 to 12 | from 4 on nothing is created by asking |
| Produce | 3 to 11 | below 3 no batches of version 2; 12 begins transactions, from 13 on topics have ids |
| Fetch | 4 to 12, by topic id 13 | below 4 no batches of version 2; from 13 on topics have ids |
| ListOffsets | 1 to 7 | 0 has another form |
| FindCoordinator | 1 to 3 | from 4 on another form, of several keys |
| OffsetCommit | 2 to 8 | below 2 not in Apache Kafka 4; 9 is for the groups of KIP-848 |
| OffsetFetch | 2 to 7 | from 2 on it has an error of the whole group; from 8 on another form, of several groups |
| OffsetForLeaderEpoch | 2 to 4 | below 2 not in Apache Kafka 4 |
| InitProducerId | 0 to 5 | all |
| DescribeConfigs | 1 to 4 | 0 does not tell where a value was set |
| IncrementalAlterConfigs | 0 to 1 | all |
| CreateTopics, CreatePartitions | 2 to 7, 0 to 3 | below 2 not in Apache Kafka 4 |
| AddPartitionsToTxn | 0 to 3 | from 4 on brokers ask each other; not served by the edge broker |
| EndTxn | 0 to 4 | 5 raises the epoch with each transaction (KIP-890); not served by the edge broker |
| DescribeProducers | 0 | all; not served by the edge broker |
| DescribeTransactions | 0 | all; not served by the edge broker |
| JoinGroup, SyncGroup | 5 to 9, 3 to 5 | below no static members (KIP-345) |
| Heartbeat, LeaveGroup | 3 to 4, 3 to 5 | the same |
| DescribeGroups | 0 to 5 | from 6 on an unknown group is an error |
| SaslHandshake | 1 | 0 is followed by tokens without frames |
| SaslAuthenticate | 1 to 2 | 0 does not tell a session's lifetime; 1 is sent before versions are known |

Contains: one line per API, and the constants of every client. Does not contain: sockets, requests.
"""

from __future__ import annotations

from edge_broker.protocol import api
from edge_broker.protocol.api import requested_api
from edge_broker.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse
from edge_broker.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from edge_broker.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse
from edge_broker.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from edge_broker.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse
from edge_broker.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from edge_broker.protocol.messages.describe_producers import DescribeProducersRequest, DescribeProducersResponse
from edge_broker.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from edge_broker.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from edge_broker.protocol.messages.fetch import FetchRequest, FetchResponse
from edge_broker.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from edge_broker.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from edge_broker.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from edge_broker.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from edge_broker.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from edge_broker.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from edge_broker.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from edge_broker.protocol.messages.metadata import MetadataRequest, MetadataResponse
from edge_broker.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from edge_broker.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from edge_broker.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)
from edge_broker.protocol.messages.produce import ProduceRequest, ProduceResponse
from edge_broker.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from edge_broker.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from edge_broker.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

TOPIC_RESOURCE, BROKER_RESOURCE = 2, 4  # as resource_type of configurations
TOPIC_CONFIG = 1  # as config_source: set for the topic itself
CONSUMER = -1  # as replica_id: no replica asks
READ_COMMITTED = 1  # as isolation_level
ALL_REPLICAS = -1  # as acks
LATEST, EARLIEST = -1, -2  # as timestamp of ListOffsets: the end, the start

API_VERSIONS = requested_api(api.API_VERSIONS, ApiVersionsRequest, ApiVersionsResponse, 0, 0)
METADATA = requested_api(api.METADATA, MetadataRequest, MetadataResponse, 4, 12)
PRODUCE = requested_api(api.PRODUCE, ProduceRequest, ProduceResponse, 3, 11)
FETCH = requested_api(api.FETCH, FetchRequest, FetchResponse, 4, 12)
FETCH_BY_ID = requested_api(api.FETCH, FetchRequest, FetchResponse, 13, 13)  # of brokers that know the topic's id
LIST_OFFSETS = requested_api(api.LIST_OFFSETS, ListOffsetsRequest, ListOffsetsResponse, 1, 7)
FIND_COORDINATOR = requested_api(api.FIND_COORDINATOR, FindCoordinatorRequest, FindCoordinatorResponse, 1, 3)
OFFSET_COMMIT = requested_api(api.OFFSET_COMMIT, OffsetCommitRequest, OffsetCommitResponse, 2, 8)
OFFSET_FETCH = requested_api(api.OFFSET_FETCH, OffsetFetchRequest, OffsetFetchResponse, 2, 7)
OFFSET_FOR_LEADER_EPOCH = requested_api(
    api.OFFSET_FOR_LEADER_EPOCH, OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse, 2, 4
)
INIT_PRODUCER_ID = requested_api(api.INIT_PRODUCER_ID, InitProducerIdRequest, InitProducerIdResponse, 0, 5)
DESCRIBE_CONFIGS = requested_api(api.DESCRIBE_CONFIGS, DescribeConfigsRequest, DescribeConfigsResponse, 1, 4)
INCREMENTAL_ALTER_CONFIGS = requested_api(
    api.INCREMENTAL_ALTER_CONFIGS, IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse, 0, 1
)
CREATE_TOPICS = requested_api(api.CREATE_TOPICS, CreateTopicsRequest, CreateTopicsResponse, 2, 7)
CREATE_PARTITIONS = requested_api(api.CREATE_PARTITIONS, CreatePartitionsRequest, CreatePartitionsResponse, 0, 3)
ADD_PARTITIONS_TO_TXN = requested_api(
    api.ADD_PARTITIONS_TO_TXN, AddPartitionsToTxnRequest, AddPartitionsToTxnResponse, 0, 3
)
END_TXN = requested_api(api.END_TXN, EndTxnRequest, EndTxnResponse, 0, 4)
DESCRIBE_PRODUCERS = requested_api(api.DESCRIBE_PRODUCERS, DescribeProducersRequest, DescribeProducersResponse, 0, 0)
DESCRIBE_TRANSACTIONS = requested_api(
    api.DESCRIBE_TRANSACTIONS, DescribeTransactionsRequest, DescribeTransactionsResponse, 0, 0
)
JOIN_GROUP = requested_api(api.JOIN_GROUP, JoinGroupRequest, JoinGroupResponse, 5, 9)
SYNC_GROUP = requested_api(api.SYNC_GROUP, SyncGroupRequest, SyncGroupResponse, 3, 5)
HEARTBEAT = requested_api(api.HEARTBEAT, HeartbeatRequest, HeartbeatResponse, 3, 4)
LEAVE_GROUP = requested_api(api.LEAVE_GROUP, LeaveGroupRequest, LeaveGroupResponse, 3, 5)
DESCRIBE_GROUPS = requested_api(api.DESCRIBE_GROUPS, DescribeGroupsRequest, DescribeGroupsResponse, 0, 5)
SASL_HANDSHAKE = requested_api(api.SASL_HANDSHAKE, SaslHandshakeRequest, SaslHandshakeResponse, 1, 1)
SASL_AUTHENTICATE = requested_api(api.SASL_AUTHENTICATE, SaslAuthenticateRequest, SaslAuthenticateResponse, 1, 2)

ALL = (
    API_VERSIONS,
    METADATA,
    PRODUCE,
    FETCH,
    LIST_OFFSETS,
    FIND_COORDINATOR,
    OFFSET_COMMIT,
    OFFSET_FETCH,
    OFFSET_FOR_LEADER_EPOCH,
    INIT_PRODUCER_ID,
    DESCRIBE_CONFIGS,
    INCREMENTAL_ALTER_CONFIGS,
    CREATE_TOPICS,
    CREATE_PARTITIONS,
    ADD_PARTITIONS_TO_TXN,
    END_TXN,
    DESCRIBE_PRODUCERS,
    DESCRIBE_TRANSACTIONS,
    JOIN_GROUP,
    SYNC_GROUP,
    HEARTBEAT,
    LEAVE_GROUP,
    DESCRIBE_GROUPS,
    SASL_HANDSHAKE,
    SASL_AUTHENTICATE,
)
