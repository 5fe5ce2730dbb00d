"""Coordinators of a cluster with real members: found by any broker, moved by an election with all that was answered."""

from __future__ import annotations

from typing import Any

import pytest

from edge_broker.cluster.znodes.zookeeper import Suspended
from edge_broker.errors import ErrorCode
from edge_broker.protocol.api import (
    CREATE_TOPICS,
    DELETE_TOPICS,
    FIND_COORDINATOR,
    INIT_PRODUCER_ID,
    JOIN_GROUP,
    LIST_GROUPS,
    OFFSET_COMMIT,
    OFFSET_FETCH,
)
from edge_broker.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from edge_broker.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from edge_broker.protocol.messages.find_coordinator import FindCoordinatorRequest
from edge_broker.protocol.messages.init_producer_id import InitProducerIdRequest
from edge_broker.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from edge_broker.protocol.messages.list_groups import ListGroupsRequest
from edge_broker.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from edge_broker.storage.metadata.topic_record import OFFSETS_TOPIC
from edge_broker.testing.client import Client
from tests.support.groups import group_in
from tests.support.in_cluster import SESSION_MS, InCluster
from tests.unit.broker.test_groups_and_ids import commit, commit_codes

PARTITIONS = 3
GROUPS = [group_in(partition, PARTITIONS) for partition in range(PARTITIONS)]
GROUP = GROUPS[0]


@pytest.fixture
def three() -> InCluster:
    cluster = InCluster(3, {"offsets.topic.num.partitions": PARTITIONS, "auto.create.topics.enable": True})
    make(cluster, "t")
    return cluster


def make(cluster: InCluster, name: str) -> None:
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=3, assignments=[], configs=[])
    answer = cluster.ask(1, CREATE_TOPICS, CreateTopicsRequest(topics=[topic], timeout_ms=10_000))
    assert [one.error_code for one in answer.topics] == [0]
    cluster.settle()


def found(cluster: InCluster, board: int, *groups: str) -> list[tuple[int, int]]:
    request = FindCoordinatorRequest(coordinator_keys=list(groups or (GROUP,)), key_type=0)
    return [(one.error_code, one.node_id) for one in cluster.ask(board, FIND_COORDINATOR, request).coordinators]


def coordinator(cluster: InCluster, board: int, group: str = GROUP) -> int:
    """Who coordinates a group, as soon as somebody does, by what a board says."""
    answers: list[tuple[int, int]] = []

    def named() -> bool:
        answers[:] = found(cluster, board, group)
        return answers[0][0] == 0

    cluster.pass_until(named)
    cluster.settle()
    return answers[0][1]


def commits(cluster: InCluster, board: int, offset: int, group: str = GROUP) -> list[int]:
    return commit_codes(cluster.ask(board, OFFSET_COMMIT, commit(offset, group=group)))


def committed(cluster: InCluster, board: int, group: str = GROUP) -> tuple[int, int]:
    topics = [OffsetFetchRequestTopics(name="t", partition_indexes=[0])]
    asked = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=topics)])
    (one,) = cluster.ask(board, OFFSET_FETCH, asked).groups
    return one.error_code, one.topics[0].partitions[0].committed_offset if one.topics else -1


def others(board: int) -> list[int]:
    return [each for each in (1, 2, 3) if each != board]


def stop(cluster: InCluster, board: int) -> None:
    cluster.boards[board].stop()
    cluster.pass_until(lambda: all(board not in cluster.boards[each].facade.view.broker_ids for each in others(board)))


def test_any_broker_has_the_topic_made_and_names_the_same_coordinators(three: InCluster) -> None:
    assert OFFSETS_TOPIC not in three.boards[1].facade.view.topics
    first = found(three, 2, *GROUPS)
    assert [code for code, _ in first] == [0] * PARTITIONS
    three.settle()
    assert found(three, 1, *GROUPS) == found(three, 3, *GROUPS) == first
    assert len({board for _, board in first}) > 1, "the lead is dealt out"
    assert len(three.boards[1].facade.view.topics[OFFSETS_TOPIC].replicas) == PARTITIONS


@pytest.mark.parametrize(
    ("settings", "replicas"),
    [
        ({"default.replication.factor": 3}, None),
        ({"offsets.topic.replication.factor": 3}, None),
        ({"offsets.topic.replication.factor": 2}, 2),
        ({"default.replication.factor": 3, "offsets.topic.replication.factor": 2}, 2),
        ({"default.replication.factor": 2}, 2),
        ({}, 2),
    ],
)
def test_the_board_that_starts_first_does_not_have_what_groups_commit_alone_for_ever(
    settings: dict[str, int], replicas: int | None
) -> None:
    """No replica is ever added, so the offsets would go with that board's card; as Kafka (KIP-115)."""
    cluster = InCluster(2, settings)
    ((code, _),) = found(cluster, 1)
    if replicas is None:
        assert code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        cluster.add(3)
        cluster.settle()
        replicas = 3
    coordinator(cluster, 2)
    assert {len(each) for each in cluster.boards[1].facade.view.topics[OFFSETS_TOPIC].replicas} == {replicas}


def test_what_was_answered_is_there_with_the_next_coordinator(three: InCluster) -> None:
    here = coordinator(three, 1)
    assert commits(three, here, 5) == [0]
    for board in others(here):
        assert commits(three, board, 6) == [ErrorCode.NOT_COORDINATOR]
        assert committed(three, board) == (ErrorCode.NOT_COORDINATOR, -1)
    stop(three, here)
    one, other = others(here)
    there = coordinator(three, one)
    assert there == coordinator(three, other) != here
    assert committed(three, there) == (0, 5)
    assert commits(three, there, 7) == [0]
    assert committed(three, there) == (0, 7)


def join(client: Client) -> None:
    request = JoinGroupRequest(
        group_id=GROUP,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        member_id="",
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )
    client.send(JOIN_GROUP, request, 2)


def test_who_waits_for_a_group_looks_for_the_one_that_leads_now(three: InCluster) -> None:
    here = coordinator(three, 1)
    board = three.boards[here]
    first, second = board.site.client(), board.site.client()
    join(first)
    three.settle()
    assert [one.error_code for one in first.answers()] == [0]
    join(second)
    three.settle()
    assert second.answers() == []
    board.member.shut_down(board.now_ms())  # it hands over
    board.carry_out()
    answers: list[Any] = []

    def answered() -> bool:
        answers.extend(second.answers())
        return bool(answers)

    three.pass_until(answered, 5000)
    assert [one.error_code for one in answers] == [ErrorCode.NOT_COORDINATOR]
    assert coordinator(three, here) != here


def listed(cluster: InCluster, board: int) -> set[str]:
    answer = cluster.ask(board, LIST_GROUPS, ListGroupsRequest())
    assert answer.error_code == 0
    return {one.group_id for one in answer.groups}


def test_all_brokers_together_list_each_group_once(three: InCluster) -> None:
    at = {group: coordinator(three, 1, group) for group in GROUPS}
    for group, board in at.items():
        assert commits(three, board, 1, group) == [0]
    for board in (1, 2, 3):
        assert listed(three, board) == {group for group, where in at.items() if where == board}


def delete(cluster: InCluster, board: int) -> None:
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=10_000)
    assert [one.error_code for one in cluster.ask(board, DELETE_TOPICS, request).responses] == [0]
    cluster.settle()


def test_a_new_topic_of_the_name_of_a_deleted_one_begins_without_offsets(three: InCluster) -> None:
    at = {group: coordinator(three, 1, group) for group in GROUPS}
    for group, board in at.items():
        assert commits(three, board, 5, group) == [0]
    delete(three, 2)
    make(three, "t")
    assert [committed(three, board, group) for group, board in at.items()] == [(0, -1)] * PARTITIONS
    stop(three, at[GROUP])
    there = coordinator(three, others(at[GROUP])[0])
    assert committed(three, there) == (0, -1), "it is in the log, too"


def test_who_leads_later_and_saw_a_deletion_forgets_what_the_former_leader_could_not(three: InCluster) -> None:
    here = coordinator(three, 1)
    assert commits(three, here, 5) == [0]
    three.boards[here].facade.on_deleted = lambda topics: None  # it dies before it has written that
    delete(three, others(here)[0])
    stop(three, here)
    there = coordinator(three, others(here)[0])
    assert committed(three, there) == (0, -1)
    assert three.boards[there].broker.groups.committed_offset(GROUP, "t", 0) is None


def test_no_two_brokers_give_the_same_producer_id(three: InCluster) -> None:
    found = []
    for _ in range(3):
        for board in (1, 2, 3):
            answer = three.ask(board, INIT_PRODUCER_ID, InitProducerIdRequest(transactional_id=None))
            assert answer.error_code == 0
            found.append(answer.producer_id)
    one, other, third = found[:3]
    assert one + 1000 <= other <= third - 1000, "each has a block of its own"
    assert found == [start + given for given in range(3) for start in (one, other, third)]


def test_a_board_that_is_cut_off_does_not_tell_what_may_be_old(three: InCluster) -> None:
    here = coordinator(three, 1)
    assert commits(three, here, 5) == [0]
    assert committed(three, here) == (0, 5)
    three.boards[here].event_received(Suspended())
    three.loop.advance(SESSION_MS)
    assert three.boards[here].facade.replicas.epoch_led(OFFSETS_TOPIC, 0) is not None, (
        "it has not heard of any election"
    )
    assert committed(three, here) == (ErrorCode.NOT_COORDINATOR, -1)
    assert commits(three, here, 6) == [ErrorCode.NOT_COORDINATOR]
