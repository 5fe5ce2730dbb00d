"""Groups in several partitions of `__consumer_offsets`: each has a coordinator of its own."""

from __future__ import annotations

import errno

import pytest

from edge_broker.broker.health import health_problem
from edge_broker.broker.state.group_registry import partition_for
from edge_broker.errors import ErrorCode
from edge_broker.protocol.api import DELETE_TOPICS, LIST_GROUPS, OFFSET_COMMIT, OFFSET_FETCH
from edge_broker.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from edge_broker.protocol.messages.list_groups import ListGroupsRequest
from edge_broker.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from edge_broker.testing.site import Site
from tests.unit.broker.test_groups_and_ids import OFFSETS, commit, commit_codes, committed, find

PARTITIONS = 4
GROUPS = [f"g{number}" for number in range(12)]


def site() -> Site:
    made = Site({"offsets.topic.num.partitions": PARTITIONS})
    made.topic(partitions=2)
    find(made.client(), "g")
    for number, group in enumerate(GROUPS):
        assert commit_codes(made.client().ask(OFFSET_COMMIT, commit(number, group=group))) == [0]
    return made


def in_partition(partition: int) -> list[str]:
    return [group for group in GROUPS if partition_for(group, PARTITIONS) == partition]


def listed(at: Site) -> tuple[int, set[str]]:
    answer = at.run(LIST_GROUPS, ListGroupsRequest()).response
    return answer.error_code, {one.group_id for one in answer.groups}


def fetched(at: Site) -> dict[str, int]:
    """What OffsetFetch says of every group in one request: its offset, or the error below zero."""
    topics = [OffsetFetchRequestTopics(name="t", partition_indexes=[0])]
    asked = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=topics) for group in GROUPS])
    answer = at.run(OFFSET_FETCH, asked).response
    return {
        one.group_id: -one.error_code if one.error_code else one.topics[0].partitions[0].committed_offset
        for one in answer.groups
    }


@pytest.mark.parametrize("how", ["stop", "cut"])
def test_every_group_is_found_again_whichever_partition_has_it(how: str) -> None:
    again = site().reopen(how)
    assert {partition_for(group, PARTITIONS) for group in GROUPS} == set(range(PARTITIONS))
    assert fetched(again) == {group: number for number, group in enumerate(GROUPS)}
    assert listed(again) == (0, set(GROUPS))


def test_each_record_is_in_the_partition_of_its_group() -> None:
    here = site()
    ends = [log.log_end_offset for log in here.store.topics[OFFSETS].partitions]
    assert ends == [len(in_partition(number)) for number in range(PARTITIONS)]


def test_a_partition_is_served_once_it_is_loaded_and_the_others_wait() -> None:
    here = site()
    here.store.close()
    here.disk.unlock("/data/.lock")
    again = Site(here.settings, disk=here.disk, settled=False)
    again.loop.run()
    loading = -ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert set(fetched(again).values()) == {loading}
    assert health_problem(again.broker) == "committed offsets are still being loaded"
    again.reader.step()
    again.loop.run()
    found = fetched(again)
    assert {group for group, offset in found.items() if offset != loading} == set(in_partition(0))
    assert listed(again)[0] == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    again.run_until_idle()
    assert fetched(again) == {group: number for number, group in enumerate(GROUPS)}
    assert health_problem(again.broker) is None


def test_a_partition_that_cannot_be_read_costs_its_own_groups_alone() -> None:
    here = site()
    here.store.close()
    here.disk.kill()

    def broken(kind: str, path: str, size: int) -> None:
        if kind == "read" and f"{OFFSETS}-1/" in path and path.endswith(".log"):
            raise OSError(errno.ENOMEM, "Cannot allocate memory", path)

    here.disk.fault = broken
    again = Site(here.settings, disk=here.disk)
    lost = set(in_partition(1))
    assert lost
    for number, group in enumerate(GROUPS):
        expected = ErrorCode.COORDINATOR_NOT_AVAILABLE if group in lost else ErrorCode.NONE
        assert commit_codes(again.client().ask(OFFSET_COMMIT, commit(100 + number, group=group))) == [expected]
    assert again.broker.groups.fault is not None
    assert health_problem(again.broker) == again.broker.groups.fault
    assert listed(again)[0] == ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_a_deleted_topic_is_forgotten_in_every_partition_before_the_answer() -> None:
    here = site()
    client = here.client()
    answer = client.ask(DELETE_TOPICS, DeleteTopicsRequest(topics=[DeleteTopicState(name="t")]))
    assert [one.error_code for one in answer.responses] == [0]
    again = here.reopen("cut")
    assert [committed(again, group=group)[0] for group in GROUPS] == [-1] * len(GROUPS)


def test_a_deletion_whose_tombstones_fail_in_one_partition_leaves_the_topic() -> None:
    here = site()

    def broken(kind: str, path: str, size: int) -> None:
        if kind == "datasync" and f"{OFFSETS}-2/" in path:
            raise OSError(errno.EIO, "Input/output error", path)

    here.disk.fault = broken
    answer = here.client().ask(DELETE_TOPICS, DeleteTopicsRequest(topics=[DeleteTopicState(name="t")]))
    assert [one.error_code for one in answer.responses] == [ErrorCode.KAFKA_STORAGE_ERROR]
    assert "t" in here.store.topics
