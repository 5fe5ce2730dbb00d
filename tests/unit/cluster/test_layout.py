"""Znodes are read as they were written, and what is not ours is said so."""

from __future__ import annotations

import pytest

from edge_broker.cluster.state.cluster_state import (
    InSyncReplica,
    OfflineLog,
    PartitionId,
    PartitionState,
    Registration,
    Topic,
)
from edge_broker.cluster.znodes.znode_codec import (
    LayoutFault,
    broker_path,
    decode_registration,
    decode_state,
    decode_topic,
    encode_registration,
    encode_state,
    encode_topic,
    state_path,
    topic_path,
)
from edge_broker.cluster.znodes.zookeeper import Node, Stat

PARTITION = PartitionId("readings", 3)
STATE = PartitionState(1, 3, (InSyncReplica(1, "a9", 12), InSyncReplica(2, "7c", 9)))


def node(data: bytes) -> Node:
    return Node(data, Stat(0, 77, 78, 5))


def test_paths() -> None:
    assert (broker_path(2), topic_path("t"), state_path(PARTITION)) == ("/brokers/2", "/topics/t", "/topics/readings/3")


def test_a_state_is_as_formats_says() -> None:
    assert encode_state(STATE) == (
        b'{"in_sync":[{"broker":1,"directory":"a9","epoch":12},{"broker":2,"directory":"7c","epoch":9}],'
        b'"leader":1,"leader_epoch":3,"version":1}'
    )
    assert decode_state(PARTITION, node(encode_state(STATE))) == STATE


def test_a_state_says_whose_log_is_offline() -> None:
    state = STATE._replace(offline=(OfflineLog(2, 14),))
    assert encode_state(state) == encode_state(STATE).replace(
        b'"leader_epoch":3,', b'"leader_epoch":3,"offline":[{"broker":2,"epoch":14}],'
    )
    assert decode_state(PARTITION, node(encode_state(state))) == state


def test_a_registrations_epoch_is_the_zxid_that_made_it() -> None:
    here = Registration(2, 0, "7c", "shelf", (("CLIENT", "h:1"), ("REPLICATION", "h:2")))
    assert decode_registration(2, node(encode_registration(here))) == here._replace(epoch=77)
    bare = Registration(2, 0, "7c")
    assert decode_registration(2, node(encode_registration(bare))) == bare._replace(epoch=77)


def test_a_topic() -> None:
    topic = Topic("id", ((1, 2, 3), (2, 3, 1)), {"min.insync.replicas": "2"})
    assert decode_topic("t", node(encode_topic(topic))) == topic
    assert (topic.min_in_sync, topic.disks_needed(0), topic.may_elect_unclean) == (2, 2, False)
    assert Topic("id", ((1,),), {"min.insync.replicas": "2"}).disks_needed(0) == 1


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b'{"version":2}', "has version 2, and this broker knows 1"),
        (b"", "is not one of ours"),
        (b"[]", "is not one of ours"),
        (b'{"leader":1}', "is not one of ours"),
        (b'{"version":1,"leader":1}', "lacks a field"),
        (b'{"version":1,"leader":1,"leader_epoch":0,"in_sync":[1]}', "lacks a field"),
        (b'{"version":1,"leader":true,"leader_epoch":0,"in_sync":[]}', "True is no whole number"),
        (b'{"version":1,"leader":1,"leader_epoch":false,"in_sync":[]}', "False is no whole number"),
        (b'{"version":1,"leader":1,"leader_epoch":1.5,"in_sync":[]}', "1.5 is no whole number"),
    ],
)
def test_what_is_not_ours_is_said(data: bytes, said: str) -> None:
    with pytest.raises(LayoutFault, match=said):
        decode_state(PARTITION, node(data))


@pytest.mark.parametrize("replicas", [(), ((),), ((1, 2), ()), ((1, 1),), ((True, 2),)])
def test_a_topic_without_partitions_or_replicas_is_none_of_ours(replicas: tuple[tuple[int, ...], ...]) -> None:
    """What goes by the first replica of each partition relies on that."""
    with pytest.raises(LayoutFault, match="/topics/t"):
        decode_topic("t", node(encode_topic(Topic("id", replicas, {}))))


@pytest.mark.parametrize("at", ["", "h", "h:", ":1", "h:x", "h:²", "h:-1"])
def test_an_address_that_nobody_can_connect_to_is_refused(at: str) -> None:
    """Else every answer that names the brokers would fail."""
    with pytest.raises(LayoutFault, match="/brokers/2"):
        decode_registration(2, node(encode_registration(Registration(2, 0, "7c", None, (("CLIENT", at),)))))
