"""Metadata, DescribeCluster, DescribeTopicPartitions, FindCoordinator."""

from __future__ import annotations

from uuid import UUID

from edge_broker.handlers import APIS
from edge_broker.protocol.api import DESCRIBE_CLUSTER, DESCRIBE_TOPIC_PARTITIONS, FIND_COORDINATOR, METADATA
from edge_broker.protocol.messages.describe_cluster import DescribeClusterRequest
from edge_broker.protocol.messages.describe_topic_partitions import Cursor, DescribeTopicPartitionsRequest, TopicRequest
from edge_broker.protocol.messages.find_coordinator import FindCoordinatorRequest
from edge_broker.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.differential.session import Session, case

BAD_NAMES = ("", ".", "..", "with space", "x" * 250, "grüße", "a/b")
UNKNOWN_ID = UUID(int=0x1234)


def _named(*names: str, **more: bool) -> MetadataRequest:
    return MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in names], **more)


@case(METADATA)
def metadata_by_name(s: Session, version: int) -> None:
    topic = s.topic(partitions=3)
    s.ask(METADATA, _named(topic), version)
    s.ask(METADATA, _named(topic, s.name("missing")), version, label="one missing")
    s.ask(METADATA, _named(topic, topic), version, label="twice")


@case(METADATA, versions=(0, 1, 12))
def metadata_of_bad_names(s: Session, version: int) -> None:
    for name in BAD_NAMES:
        s.ask(METADATA, _named(name), version, label=repr(name[:12]))


@case(METADATA, versions=range(1, APIS[METADATA].max_version + 1))
def metadata_of_none(s: Session, version: int) -> None:
    s.ask(METADATA, MetadataRequest(topics=[]), version)


@case(METADATA, versions=(10, 12, 13))
def metadata_by_id(s: Session, version: int) -> None:
    topic = s.topic()
    found = s.wait_for(topic, 1)
    if version >= 12:
        s.ask(METADATA, MetadataRequest(topics=[MetadataRequestTopic(topic_id=found.topic_id, name=None)]), version)
        wanted = [MetadataRequestTopic(topic_id=UNKNOWN_ID, name=None)]
        s.ask(METADATA, MetadataRequest(topics=wanted), version, label="unknown id")
    wanted = [MetadataRequestTopic(name=None)]
    s.ask(METADATA, MetadataRequest(topics=wanted), version, label="neither name nor id", on="neither")


@case(METADATA, versions=(8, 10, 12))
def metadata_with_authorized_operations(s: Session, version: int) -> None:
    topic = s.topic()
    s.ask(METADATA, _named(topic, include_topic_authorized_operations=True), version, label="topic")
    if version <= 10:
        s.ask(METADATA, _named(topic, include_cluster_authorized_operations=True), version, label="cluster")


@case(DESCRIBE_CLUSTER)
def describe_cluster(s: Session, version: int) -> None:
    s.ask(DESCRIBE_CLUSTER, DescribeClusterRequest(), version)
    wanted = DescribeClusterRequest(include_cluster_authorized_operations=True)
    s.ask(DESCRIBE_CLUSTER, wanted, version, label="authorized operations")
    if version >= 1:
        for endpoint_type in (0, 2, 3):
            wanted = DescribeClusterRequest(endpoint_type=endpoint_type)
            s.ask(DESCRIBE_CLUSTER, wanted, version, label=f"endpoint type {endpoint_type}")


@case(DESCRIBE_TOPIC_PARTITIONS)
def describe_topic_partitions(s: Session, version: int) -> None:
    a, b = s.topic("a", 3), s.topic("b", 2)

    def ask(label: str, *names: str, limit: int = 2000, cursor: Cursor | None = None) -> None:
        wanted = [TopicRequest(name=name) for name in names]
        request = DescribeTopicPartitionsRequest(topics=wanted, response_partition_limit=limit, cursor=cursor)
        s.ask(DESCRIBE_TOPIC_PARTITIONS, request, version, label=label, on=label)

    ask("two", a, b)
    ask("missing", a, s.name("missing"))
    ask("bad name", "with space")
    ask("twice", a, a)
    ask("limit 1", a, b, limit=1)
    ask("limit 0", a, limit=0)
    ask("from a cursor", a, b, cursor=Cursor(topic_name=a, partition_index=2))
    ask("cursor at a topic not asked for", b, cursor=Cursor(topic_name=a, partition_index=1))
    ask("cursor outside", a, cursor=Cursor(topic_name=a, partition_index=9))
    ask("cursor negative", a, cursor=Cursor(topic_name=a, partition_index=-1))


@case(FIND_COORDINATOR)
def find_coordinator(s: Session, version: int) -> None:
    group = s.name("g")
    s.coordinator(group)
    if version >= 4:
        s.ask(FIND_COORDINATOR, FindCoordinatorRequest(coordinator_keys=[group]), version)
        s.ask(FIND_COORDINATOR, FindCoordinatorRequest(coordinator_keys=[group, group + "2"]), version, label="two")
        s.ask(FIND_COORDINATOR, FindCoordinatorRequest(coordinator_keys=[]), version, label="none")
        s.ask(FIND_COORDINATOR, FindCoordinatorRequest(coordinator_keys=[""]), version, label="empty")
    else:
        s.ask(FIND_COORDINATOR, FindCoordinatorRequest(key=group), version)
        s.ask(FIND_COORDINATOR, FindCoordinatorRequest(key=""), version, label="empty")


@case(FIND_COORDINATOR, versions=(2, 6))
def find_coordinator_of_other_types(s: Session, version: int) -> None:
    for key_type in (2, 3, -1):
        wanted = FindCoordinatorRequest(key="k", coordinator_keys=["k"], key_type=key_type)
        s.ask(FIND_COORDINATOR, wanted, version, label=f"type {key_type}", on=f"type {key_type}")
