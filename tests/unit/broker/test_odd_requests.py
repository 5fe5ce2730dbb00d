"""Odd requests that clients send all the same, answered as Apache Kafka answers them."""

from __future__ import annotations

import pytest

from edge_broker.errors import ErrorCode
from edge_broker.protocol.api import (
    CREATE_TOPICS,
    DELETE_TOPICS,
    DESCRIBE_CLUSTER,
    DESCRIBE_CONFIGS,
    DESCRIBE_TOPIC_PARTITIONS,
    FETCH,
    FIND_COORDINATOR,
    INIT_PRODUCER_ID,
    METADATA,
    SYNC_GROUP,
)
from edge_broker.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from edge_broker.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from edge_broker.protocol.messages.describe_cluster import DescribeClusterRequest
from edge_broker.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from edge_broker.protocol.messages.describe_topic_partitions import Cursor, DescribeTopicPartitionsRequest, TopicRequest
from edge_broker.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from edge_broker.protocol.messages.find_coordinator import FindCoordinatorRequest
from edge_broker.protocol.messages.init_producer_id import InitProducerIdRequest
from edge_broker.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from edge_broker.protocol.messages.sync_group import SyncGroupRequest
from edge_broker.testing.site import Site
from tests.support.storage import fill
from tests.unit.broker.test_groups_and_ids import OFFSETS, find


def create(at: Site, name: str, **configs: str | None) -> tuple[int, str | None]:
    entries = [CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()]
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1, configs=entries)
    answer = at.client().ask(CREATE_TOPICS, CreateTopicsRequest(topics=[topic])).topics[0]
    return answer.error_code, answer.error_message


def test_a_topic_that_was_made_has_no_error_message() -> None:
    assert create(Site(), "a") == (0, None)


def test_a_key_without_a_value_is_refused() -> None:
    code, message = create(Site(), "a", retention_ms=None)
    assert code == ErrorCode.INVALID_CONFIG
    assert message is not None
    assert "retention.ms" in message


def test_a_name_that_metrics_would_take_for_another_is_refused() -> None:
    here = Site({"auto.create.topics.enable": True})
    assert create(here, "a.b_c")[0] == 0
    for other in ("a_b.c", "a.b.c", "a_b_c"):
        code, message = create(here, other)
        assert code == ErrorCode.INVALID_TOPIC_EXCEPTION
        assert message is not None
        assert "'a.b_c'" in message
    assert create(here, "ab_c")[0] == 0
    answer = here.client().ask(METADATA, MetadataRequest(topics=[MetadataRequestTopic(name="a_b_c")]))
    assert answer.topics[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_of_two_such_names_in_one_request_or_in_two_at_once_the_first_is_made() -> None:
    here = Site()
    both = [CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in ("a.b", "a_b")]
    answer = here.client().ask(CREATE_TOPICS, CreateTopicsRequest(topics=both))
    assert {one.name: one.error_code for one in answer.topics} == {"a.b": 0, "a_b": ErrorCode.INVALID_TOPIC_EXCEPTION}
    clients = []
    for name in ("c.d", "c_d"):
        asked = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
        clients.append(here.client())
        clients[-1].send(CREATE_TOPICS, CreateTopicsRequest(topics=[asked]))
    here.run_until_idle()
    assert [client.answers()[0].topics[0].error_code for client in clients] == [0, ErrorCode.INVALID_TOPIC_EXCEPTION]


def test_the_topic_of_offsets_exists_once_it_does() -> None:
    here = Site()
    assert create(here, OFFSETS)[0] == ErrorCode.INVALID_TOPIC_EXCEPTION
    find(here.client(), "g")
    assert create(here, OFFSETS)[0] == ErrorCode.TOPIC_ALREADY_EXISTS


@pytest.mark.parametrize("by_id", [False, True])
def test_a_topic_that_is_named_twice_in_a_deletion_stays_and_its_neighbour_goes(by_id: bool) -> None:
    here = Site()
    here.topic("a")
    here.topic("b")
    topic_id = here.store.topics["a"].topic_id
    again = DeleteTopicState(name=None, topic_id=topic_id) if by_id else DeleteTopicState(name="a")
    asked = [DeleteTopicState(name="a"), DeleteTopicState(name="b"), again]
    answer = here.client().ask(DELETE_TOPICS, DeleteTopicsRequest(topics=asked))
    codes = {(one.name, one.topic_id): one.error_code for one in answer.responses}
    assert sorted(codes.values()) == ([0, 42, 42] if by_id else [0, 42])
    assert set(here.store.topics) >= {"a"}
    assert "b" not in here.store.topics


def test_what_may_be_done_is_told_when_it_is_asked_for() -> None:
    here = Site()
    here.topic("t")
    wanted = [MetadataRequestTopic(name="t"), MetadataRequestTopic(name="t")]
    request = MetadataRequest(
        topics=wanted, include_topic_authorized_operations=True, include_cluster_authorized_operations=True
    )
    answer = here.client().ask(METADATA, request, 10)
    assert [one.topic_authorized_operations for one in answer.topics] == [3576], "and a name twice is answered once"
    assert answer.cluster_authorized_operations == 8096
    answer = here.client().ask(METADATA, MetadataRequest(topics=wanted), 10)
    assert (answer.topics[0].topic_authorized_operations, answer.cluster_authorized_operations) == (-1 << 31, -1 << 31)


@pytest.mark.parametrize(("kind", "code"), [(1, 0), (2, 114), (3, 115)])
def test_endpoints_that_are_no_brokers(kind: int, code: int) -> None:
    answer = Site().client().ask(DESCRIBE_CLUSTER, DescribeClusterRequest(endpoint_type=kind))
    assert answer.error_code == code


def test_a_cursor_stands_at_a_topic_that_was_asked_for() -> None:
    here = Site()
    here.topic("t")
    for name, code in (("t", 0), ("u", 42)):
        cursor = Cursor(topic_name=name, partition_index=0)
        asked = DescribeTopicPartitionsRequest(topics=[TopicRequest(name="t")], cursor=cursor)
        assert here.client().ask(DESCRIBE_TOPIC_PARTITIONS, asked).topics[0].error_code == code
    asked = DescribeTopicPartitionsRequest(topics=[TopicRequest(name="no good")])
    assert here.client().ask(DESCRIBE_TOPIC_PARTITIONS, asked).topics[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


@pytest.mark.parametrize(("kind", "code"), [(0, 0), (1, 53), (2, 42), (7, 42)])
def test_coordinators_of_other_kinds_end_a_clients_call_at_once(kind: int, code: int) -> None:
    answer = Site().client().ask(FIND_COORDINATOR, FindCoordinatorRequest(key_type=kind, coordinator_keys=["k"]))
    assert answer.coordinators[0].error_code == code


@pytest.mark.parametrize(
    ("session_id", "epoch", "code"),
    [(0, -1, 0), (9, -1, 0), (0, 5, 70), (9, 1, 70), (9, -2, 70), (-9, 1, 70), (-9, -1, 0)],
)
def test_a_fetch_session_that_is_none(session_id: int, epoch: int, code: int) -> None:
    answer = (
        Site().client().ask(FETCH, FetchRequest(session_id=session_id, session_epoch=epoch, max_wait_ms=0, topics=[]))
    )
    assert (answer.error_code, answer.session_id) == (code, 0)


def test_a_sync_without_its_protocol() -> None:
    here = Site()
    find(here.client(), "g")
    asked = SyncGroupRequest(group_id="g", generation_id=1, member_id="m", protocol_type="consumer")
    assert here.client().ask(SYNC_GROUP, asked).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert here.client().ask(SYNC_GROUP, asked, 4).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_no_keys_are_all_keys() -> None:
    here = Site()
    here.topic("t")
    found = []
    for keys in (None, [], ["retention.ms"]):
        resource = DescribeConfigsResource(resource_type=2, resource_name="t", configuration_keys=keys)
        answer = here.client().ask(DESCRIBE_CONFIGS, DescribeConfigsRequest(resources=[resource]))
        found.append(len(answer.results[0].configs))
    assert found[0] == found[1] > found[2] == 1


@pytest.mark.parametrize(("producer_id", "epoch", "code"), [(5, -1, 42), (-1, 5, 42), (-1, -1, 0), (5, 0, 0)])
def test_a_producer_id_without_its_epoch_is_refused(producer_id: int, epoch: int, code: int) -> None:
    asked = InitProducerIdRequest(transactional_id=None, producer_id=producer_id, producer_epoch=epoch)
    assert Site().client().ask(INIT_PRODUCER_ID, asked).error_code == code


def test_a_found_coordinator_says_so_in_kafkas_words() -> None:
    here = Site()
    assert find(here.client(), "g").coordinators[0].error_message == ""
    assert here.client().ask(FIND_COORDINATOR, FindCoordinatorRequest(key="g"), 3).error_message == "NONE"


def test_a_topic_that_is_neither_named_nor_given_by_id_is_a_bad_request() -> None:
    here = Site()
    deleted = here.client().ask(DELETE_TOPICS, DeleteTopicsRequest(topics=[DeleteTopicState()]))
    assert deleted.responses[0].error_code == ErrorCode.INVALID_REQUEST
    for version in (10, 12):
        asked = MetadataRequest(topics=[MetadataRequestTopic(name=None)])
        (told,) = here.client().ask(METADATA, asked, version).topics
        assert (told.error_code, told.name) == (ErrorCode.INVALID_REQUEST, "")


def test_a_fetch_that_failed_tells_no_offsets() -> None:
    here = Site()
    (log,) = here.topic()
    fill(log, 1)
    for offset, epoch in ((7, -1), (-1, -1), (1, 99)):
        part = FetchPartition(partition=0, fetch_offset=offset, last_fetched_epoch=epoch, partition_max_bytes=1000)
        topic = FetchTopic(topic="t", partitions=[part])
        answer = here.client().ask(FETCH, FetchRequest(max_wait_ms=0, topics=[topic]), 12).responses[0].partitions[0]
        assert (answer.high_watermark, answer.last_stable_offset, answer.log_start_offset) == (-1, -1, -1)
