"""FindCoordinator, OffsetCommit, OffsetFetch, JoinGroup over the shell, InitProducerId."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from edge_broker.broker.context import RequestContext, Session
from edge_broker.broker.effects import Effect
from edge_broker.broker.health import health_problem
from edge_broker.broker.outcomes import Steps
from edge_broker.broker.state.group_registry import Groups
from edge_broker.configuration.settings import LEFT_TO_KERNEL_MS
from edge_broker.coordinator.group_coordinator import GroupCoordinator
from edge_broker.coordinator.offset_records import read_key
from edge_broker.errors import ErrorCode
from edge_broker.handlers import APIS, HANDLERS
from edge_broker.protocol.api import (
    DELETE_TOPICS,
    FIND_COORDINATOR,
    HEARTBEAT,
    INIT_PRODUCER_ID,
    JOIN_GROUP,
    LIST_GROUPS,
    OFFSET_COMMIT,
    OFFSET_FETCH,
    PRODUCE,
    SYNC_GROUP,
)
from edge_broker.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from edge_broker.protocol.messages.find_coordinator import FindCoordinatorRequest
from edge_broker.protocol.messages.heartbeat import HeartbeatRequest
from edge_broker.protocol.messages.init_producer_id import InitProducerIdRequest
from edge_broker.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from edge_broker.protocol.messages.list_groups import ListGroupsRequest
from edge_broker.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from edge_broker.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from edge_broker.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from edge_broker.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from edge_broker.protocol.record_batch import build_batch, records_of
from edge_broker.storage.metadata.producer_ids import PRODUCER_IDS_RESERVED
from edge_broker.testing.client import Client
from edge_broker.testing.site import Site
from tests.support.storage import append, failing, ledgered, names_of, read_all, sync

OFFSETS = "__consumer_offsets"


def find(client: Client, *keys: str, key_type: int = 0, version: int = 6) -> Any:
    request = FindCoordinatorRequest(key=keys[0], coordinator_keys=list(keys), key_type=key_type)
    return client.ask(FIND_COORDINATOR, request, version)


def site_with_groups(**settings: Any) -> Site:
    site = Site({name.replace("_", "."): value for name, value in settings.items()})
    site.topic()
    find(site.client(), "g")
    return site


def commit(offset: int, *places: tuple[str, int], group: str = "g") -> OffsetCommitRequest:
    topics = [
        OffsetCommitRequestTopic(
            name=name,
            partitions=[
                OffsetCommitRequestPartition(
                    partition_index=partition,
                    committed_offset=offset,
                    committed_leader_epoch=0,
                    committed_metadata=f"m{offset}",
                )
            ],
        )
        for name, partition in places or (("t", 0),)
    ]
    return OffsetCommitRequest(group_id=group, generation_id_or_member_epoch=-1, member_id="", topics=topics)


def committed(site: Site, topic: str = "t", group: str = "g") -> tuple[int, str | None]:
    topics = [OffsetFetchRequestTopics(name=topic, partition_indexes=[0])]
    client = site.client()
    wanted = OffsetFetchRequestGroup(group_id=group, topics=topics)
    client.send(OFFSET_FETCH, OffsetFetchRequest(groups=[wanted]))
    (found,) = client.answer().groups
    assert found.error_code == 0
    return found.topics[0].partitions[0].committed_offset, found.topics[0].partitions[0].metadata


def commit_codes(response: Any) -> list[int]:
    return [one.error_code for topic in response.topics for one in topic.partitions]


def test_nothing_is_answered_before_it_is_parked() -> None:
    site = site_with_groups()
    wrong = OffsetCommitRequest(group_id="g", generation_id_or_member_epoch=7, member_id="m", topics=commit(5).topics)
    version = APIS[OFFSET_COMMIT].max_version
    outcome = HANDLERS[OFFSET_COMMIT](
        site.broker, RequestContext(999, version, "test", Session("127.0.0.1:4711")), wrong
    )
    assert isinstance(outcome, Steps)
    for _ in outcome.steps:  # others have their turn at each
        assert not site.broker.effects.left
    ((effect, (token, _)),) = site.broker.effects.left
    assert (effect, token) == (Effect.ANSWER, 999)


def test_a_large_commit_counts_until_it_is_synced() -> None:
    site = site_with_groups()
    client = site.client()
    client.feed(client.frame(OFFSET_COMMIT, commit(5, *[("t", 0)] * 4000)))
    site.loop.run()
    large, pool = site.dispatcher.large, site.server.requests
    assert client.answers() == []
    assert pool.used >= sum(large.parked.values()) > 1_000_000
    site.run_until_idle()
    assert set(commit_codes(client.answer())) == {0}
    assert (large.parked, pool.used) == ({}, 0)


# FindCoordinator


def test_the_first_group_makes_the_offsets_topic_once() -> None:
    site = Site({"offsets.topic.num.partitions": 3})
    clients = [site.client() for _ in range(3)]
    for client in clients:
        client.send(FIND_COORDINATOR, FindCoordinatorRequest(coordinator_keys=["g", "h"], key_type=0))
    site.run_until_idle()
    for client in clients:
        found = client.answer().coordinators
        assert [(one.key, one.node_id, one.host, one.port, one.error_code) for one in found] == [
            (key, 1, "edge.local", 9092, 0) for key in ("g", "h")
        ]
    assert len(site.store.topics[OFFSETS].partitions) == 3
    config = {"cleanup.policy": "compact", "flush.ms": "1000", "segment.bytes": "1048576"}
    assert site.store.topics[OFFSETS].config == config
    assert OFFSETS in site.reopen("cut").store.topics


def test_old_versions_name_one_coordinator() -> None:
    response = find(Site().client(), "g", version=1)
    assert (response.error_code, response.node_id, response.host, response.port) == (0, 1, "edge.local", 9092)


def test_transactions_have_no_coordinator() -> None:
    site, refused = Site(), ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert find(site.client(), "tx", key_type=1).coordinators[0].error_code == refused
    assert find(site.client(), "tx", key_type=1, version=1).error_code == refused
    assert names_of(site.store) == set()


def test_an_offsets_topic_that_cannot_be_made() -> None:
    site = Site()
    site.disk.fault = failing("create", f"/{OFFSETS}-0/")
    response = find(site.client(), "g")
    assert response.coordinators[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
    site.disk.fault = None
    assert find(site.client(), "g").coordinators[0].error_code == 0


def test_groups_are_sent_to_find_their_coordinator_first() -> None:
    site = Site()
    site.topic()
    assert commit_codes(site.client().ask(OFFSET_COMMIT, commit(1))) == [ErrorCode.NOT_COORDINATOR]
    response = site.client().ask(HEARTBEAT, HeartbeatRequest(group_id="g", generation_id=1, member_id="m"))
    assert response.error_code == ErrorCode.NOT_COORDINATOR
    assert site.client().ask(LIST_GROUPS, ListGroupsRequest()).error_code == 0


# OffsetCommit, OffsetFetch


def test_a_commit_is_answered_and_visible_after_its_sync_and_not_before() -> None:
    site = site_with_groups()
    assert committed(site) == (-1, "")
    client = site.client()
    client.send(OFFSET_COMMIT, commit(5))
    site.disk_worker.work()
    assert client.answers() == []
    assert committed(site) == (-1, "")
    site.disk_worker.report()
    assert commit_codes(client.answer()) == [0]
    assert committed(site) == (5, "m5")


@pytest.mark.parametrize("how", ["stop", "kill", "cut"])
def test_an_answered_commit_survives(how: str) -> None:
    site = site_with_groups()
    for offset in (3, 9, 5):
        site.client().ask(OFFSET_COMMIT, commit(offset))
    again = site.reopen(how)
    assert committed(again) == (5, "m5")


@pytest.mark.parametrize("under_way", [False, True])
@pytest.mark.parametrize("how", ["kill", "cut"])
def test_a_deleted_topic_takes_its_commits_with_it(how: str, under_way: bool) -> None:
    """A new topic of the same name is read from its beginning, also after a crash, also if a commit was under way."""
    site = site_with_groups()
    site.topic("other")
    site.client().ask(OFFSET_COMMIT, commit(5))
    site.client().ask(OFFSET_COMMIT, commit(7, ("other", 0)))
    if under_way:
        site.client().send(OFFSET_COMMIT, commit(6))
    deleted = site.client().ask(DELETE_TOPICS, DeleteTopicsRequest(topics=[DeleteTopicState(name="t")]))
    assert [one.error_code for one in deleted.responses] == [0]
    site.topic("t")
    assert committed(site) == (-1, "")
    again = site.reopen(how)
    assert committed(again) == (-1, "")
    assert committed(again, "other") == (7, "m7")


def test_commits_stay_synced_where_other_topics_are_left_to_the_kernel() -> None:
    site = Site({"log.flush.interval.ms": LEFT_TO_KERNEL_MS})
    site.client().ask(FIND_COORDINATOR, FindCoordinatorRequest(coordinator_keys=["g"], key_type=0))
    assert not site.store.topics[OFFSETS].partitions[0].settings.left_to_kernel


def test_commits_of_one_connection_are_answered_in_order_by_one_round() -> None:
    site = site_with_groups()
    client = site.client()
    for offset in range(4):
        client.feed(client.frame(OFFSET_COMMIT, commit(offset)))
    rounds = site.dispatcher.syncer.rounds
    site.run_until_idle()
    assert [commit_codes(one) for one in client.answers()] == [[0]] * 4
    assert committed(site) == (3, "m3")
    assert site.dispatcher.syncer.rounds == rounds + 1


def test_unknown_partitions_are_refused_beside_known_ones() -> None:
    site = site_with_groups()
    response = site.client().ask(OFFSET_COMMIT, commit(2, ("t", 0), ("t", 1), ("gone", 0)))
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert commit_codes(response) == [0, unknown, unknown]
    assert committed(site) == (2, "m2")


def test_a_commit_whose_sync_fails_is_refused_and_never_visible() -> None:
    site = site_with_groups()
    site.disk.fault = failing("datasync", f"/{OFFSETS}-0/")
    assert commit_codes(site.client().ask(OFFSET_COMMIT, commit(5))) != [0]
    assert committed(site) == (-1, "")


def test_a_commit_whose_client_has_gone_is_kept_all_the_same() -> None:
    site = site_with_groups()
    client = site.client()
    client.send(OFFSET_COMMIT, commit(5))
    client.lose()
    site.run_until_idle()
    assert committed(site) == (5, "m5")
    assert site.broker.groups.parked == {}


def test_commits_wait_for_the_roll_in_their_order() -> None:
    site = site_with_groups(offsets_topic_segment_bytes=4096)
    (log,) = site.store.topics[OFFSETS].partitions
    client = site.client()
    for offset in range(60):
        client.feed(client.frame(OFFSET_COMMIT, commit(offset)))
    site.run_until_idle()
    assert [commit_codes(one) for one in client.answers()] == [[0]] * 60
    assert len(log.segments) > 1
    kept = [record for one in read_all(log, 1 << 20) for record in records_of(memoryview(one))]
    assert len(kept) == 60
    assert all(read_key(record.key or b"") is not None for record in kept)
    assert committed(site.reopen("cut")) == (59, "m59")


@pytest.mark.parametrize("how", ["stop", "cut"])
def test_compacted_offsets_stay_small_and_are_loaded_rightly(how: str) -> None:
    site = site_with_groups(offsets_topic_segment_bytes=4096)
    (log,) = site.store.topics[OFFSETS].partitions
    client = site.client()
    for offset in range(400):
        client.feed(client.frame(OFFSET_COMMIT, commit(offset, group=f"g{offset % 3}")))
        if offset % 100 == 99:
            site.run_until_idle()
            while site.broker.cleaner.step(site.broker.time.now(), 500):
                pass
    assert all(commit_codes(one) == [0] for one in client.answers())
    assert site.broker.cleaner.passes == 4
    assert not site.broker.cleaner.notes
    assert log.size < 3 * 4096
    assert log.log_start_offset == 0
    assert log.log_end_offset == 400
    again = site.reopen(how)
    assert [committed(again, group=f"g{number}") for number in range(3)] == [
        (399, "m399"),
        (397, "m397"),
        (398, "m398"),
    ]
    assert again.broker.groups.fault is None


def test_groups_are_refused_until_their_offsets_are_read_back() -> None:
    site = site_with_groups()
    site.client().ask(OFFSET_COMMIT, commit(5))
    site.broker.groups = Groups(site.broker.config, site.store, site.broker.is_connected)
    assert commit_codes(site.client().ask(OFFSET_COMMIT, commit(6))) == [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
    assert health_problem(site.broker) == "committed offsets are still being loaded"


def test_a_start_rebuilds_groups_in_the_reader_and_the_loop_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    site = site_with_groups()
    for number in range(50):
        site.client().ask(OFFSET_COMMIT, commit(number, group=f"g{number}"))
    site.store.close()
    site.disk.unlock("/data/.lock")
    again = Site(disk=site.disk, settled=False)
    again.loop.run()
    again.reader.work()
    assert not again.broker.groups.coordinators, "the loop alone changes what it uses"
    assert not again.broker.groups.are_loaded
    monkeypatch.setattr(GroupCoordinator, "load", None)  # what was rebuilt is taken over as it is
    again.reader.report()
    assert again.broker.groups.are_loaded
    assert [committed(again, group=f"g{number}")[0] for number in (0, 49)] == [0, 49]


def test_that_groups_are_not_ready_is_said_of_each_partition_in_a_step_of_its_own() -> None:
    site = site_with_groups()
    site.broker.groups = Groups(site.broker.config, site.store, site.broker.is_connected)
    asked = OffsetFetchRequest(group_id="g", topics=[OffsetFetchRequestTopic(name="t", partition_indexes=[1] * 5000)])
    steps = HANDLERS[OFFSET_FETCH](site.broker, RequestContext(1, 1, "test", Session("127.0.0.1:4711")), asked)
    assert isinstance(steps, Steps)
    made = []
    for part in steps.steps:
        made.append(part)
        assert len(getattr(part, "partitions", ())) == 0, "to weigh thousands in one step takes 50 ms"
    assert len(made) == 5001
    answer = site.client().ask(OFFSET_FETCH, asked, 1)
    assert [one.error_code for one in answer.topics[0].partitions] == [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] * 5000


def site_with_damaged_offsets(byte: int) -> Site:
    """A site that stopped after a commit; then its first batch was damaged."""
    site = site_with_groups(offsets_topic_segment_bytes=4096)
    (log,) = site.store.topics[OFFSETS].partitions
    for number in range(3):
        append(log, memoryview(bytearray(build_batch([(b"k", bytes(3000))], timestamp_ms=number))))
    sync(log)
    assert commit_codes(site.client().ask(OFFSET_COMMIT, commit(6))) == [ErrorCode.NONE]
    site.store.close()
    site.disk.kill()
    site.disk.flip(f"/data/{OFFSETS}-0/00000000000000000000.log", byte)  # in a closed segment
    return site


@pytest.mark.parametrize("byte", [16, 1000])
def test_damaged_offsets_are_contained_and_the_rest_is_loaded(byte: int) -> None:
    again = Site(disk=site_with_damaged_offsets(byte).disk)
    assert (again.broker.groups.are_loaded, again.broker.groups.fault) == (True, None)
    assert ledgered(again.store) == [("damaged", OFFSETS, 0, 0, 0)]
    assert committed(again) == (6, "m6")


@pytest.mark.leaves("no record batch begins here")
def test_offsets_that_cannot_be_read_back_are_said_and_not_taken_for_none() -> None:
    site = site_with_damaged_offsets(16)

    def broken(kind: str, path: str, size: int) -> None:
        if kind == "read" and path.endswith(f"{OFFSETS}-0/00000000000000000000.log"):
            raise OSError(errno.ENOMEM, "Cannot allocate memory", path)

    site.disk.fault = broken
    again = Site(disk=site.disk)
    assert again.broker.groups.fault is not None
    assert health_problem(again.broker) == again.broker.groups.fault
    assert commit_codes(again.client().ask(OFFSET_COMMIT, commit(6))) == [ErrorCode.COORDINATOR_NOT_AVAILABLE]


# groups over the shell


def join(client: Client, member_id: str = "") -> None:
    request = JoinGroupRequest(
        group_id="g",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )
    client.send(JOIN_GROUP, request, 2)


def test_a_parked_join_of_a_lost_connection_is_forgotten() -> None:
    site = site_with_groups(group_initial_rebalance_delay_ms=3000)
    client = site.client()
    join(client)
    assert site.dispatcher.waiting_requests == 1
    client.lose()
    assert site.dispatcher.waiting_requests == 0
    assert site.broker.groups.parked == {}
    site.loop.advance(20_000)


def test_a_bug_in_the_periodic_work_is_written_down_and_the_next_turn_runs(capsys: pytest.CaptureFixture[str]) -> None:
    site = site_with_groups()

    def broken() -> Any:
        raise RuntimeError("a bug")

    site.dispatcher.start(broken)
    assert site.dispatcher.failures == 1
    assert "a bug" in capsys.readouterr().err
    site.client().ask(OFFSET_COMMIT, commit(5))
    assert committed(site) == (5, "m5")


# InitProducerId


def producer_id(site: Site) -> int:
    response = site.client().ask(INIT_PRODUCER_ID, InitProducerIdRequest(transactional_id=None))
    assert (response.error_code, response.producer_epoch) == (0, 0)
    found: int = response.producer_id
    return found


def test_ids_come_from_blocks_that_are_reserved_on_disk_first() -> None:
    site = Site()
    client = site.client()
    client.send(INIT_PRODUCER_ID, InitProducerIdRequest(transactional_id=None))
    assert client.answers() == []
    site.run_until_idle()
    first = client.answer().producer_id
    client.send(INIT_PRODUCER_ID, InitProducerIdRequest(transactional_id=None))
    assert client.answer().producer_id == first + 1  # without the disk
    found = [producer_id(site) for _ in range(PRODUCER_IDS_RESERVED)]
    assert len({first, first + 1, *found}) == PRODUCER_IDS_RESERVED + 2


@pytest.mark.parametrize("how", ["stop", "kill", "cut"])
def test_no_id_is_given_twice(how: str) -> None:
    site = Site()
    seen: set[int] = set()
    for _ in range(4):
        fresh = {producer_id(site) for _ in range(3)}
        assert len(fresh) == 3
        assert not fresh & seen
        seen |= fresh
        site = site.reopen(how)


def test_many_who_need_a_block_at_once_get_different_ids() -> None:
    site = Site()
    clients = [site.client() for _ in range(5)]
    for client in clients:
        client.send(INIT_PRODUCER_ID, InitProducerIdRequest(transactional_id=None))
    site.run_until_idle()
    assert len({client.answer().producer_id for client in clients}) == 5


def test_a_block_that_cannot_be_reserved_gives_no_id() -> None:
    site = Site()
    site.disk.fault = failing("rename", "producer-ids")
    response = site.client().ask(INIT_PRODUCER_ID, InitProducerIdRequest(transactional_id=None))
    assert (response.error_code, response.producer_id) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)
    site.disk.fault = None
    producer_id(site)


def test_transactional_ids_are_refused() -> None:
    response = Site().client().ask(INIT_PRODUCER_ID, InitProducerIdRequest(transactional_id="tx"))
    assert (response.error_code, response.producer_id) == (ErrorCode.UNSUPPORTED_VERSION, -1)


def test_more_assignments_than_a_group_may_have_members_are_refused() -> None:
    site = site_with_groups()
    for count, error in ((2000, ErrorCode.UNKNOWN_MEMBER_ID), (2001, ErrorCode.INVALID_REQUEST)):
        assignments = [SyncGroupRequestAssignment(member_id=str(one), assignment=b"") for one in range(count)]
        request = SyncGroupRequest(
            group_id="g",
            generation_id=1,
            member_id="m",
            protocol_type="consumer",
            protocol_name="range",
            assignments=assignments,
        )
        assert site.client().ask(SYNC_GROUP, request).error_code == error
    larger = site_with_groups(**{"group.max.size": 2000})
    assert larger.client().ask(SYNC_GROUP, request).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def write_with(site: Site, producer_id: int) -> int:
    """The first record of a producer to t-0; the offset that is answered."""
    data = PartitionProduceData(index=0, records=memoryview(first_batch(producer_id)))
    topics = [TopicProduceData(name="t", partition_data=[data])]
    answer = site.client().ask(PRODUCE, ProduceRequest(acks=-1, timeout_ms=1000, topic_data=topics))
    found = answer.responses[0].partition_responses[0]
    assert found.error_code == ErrorCode.NONE
    offset: int = found.base_offset
    return offset


def first_batch(producer_id: int) -> bytes:
    return build_batch([(None, b"x")], timestamp_ms=1000, producer_id=producer_id, producer_epoch=0, base_sequence=0)


@pytest.mark.parametrize("how", ["running", "stop", "kill"])
def test_an_id_that_a_client_made_up_is_given_to_no_producer(how: str) -> None:
    """Any client may write with any id; who gets that id later would be acked unwritten."""
    site = Site()
    site.topic("t")
    given = producer_id(site)
    for ahead in (1, 2, 1000, 1001):
        write_with(site, given + ahead)
    if how != "running":
        site = site.reopen(how)
    offset = write_with(site, producer_id(site))
    assert offset == 4
    site.run_until_idle()
