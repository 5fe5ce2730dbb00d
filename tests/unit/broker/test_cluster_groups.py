"""Coordinators in a cluster: they come and go with the leaders of their partitions of `__consumer_offsets`.

Who leads is said by a stand-in for `broker.cluster`; the logs are replicas on a simulated disk, the rest is the broker.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest

from edge_broker.broker.cluster_port import Node
from edge_broker.broker.operations.groups.deleted_topic_offsets import forget_deleted
from edge_broker.broker.operations.groups.group_expiry import RETRY_MS, expire_members
from edge_broker.broker.operations.groups.group_loading import lead_offsets, resign_offsets
from edge_broker.broker.operations.groups.group_log import required_topics
from edge_broker.broker.operations.groups.offset_retention import OffsetRetention
from edge_broker.broker.state.group_registry import DELETED_KEPT, partition_for
from edge_broker.cluster.state.cluster_state import NO_LEADER, Topic
from edge_broker.cluster.znodes.metadata_image import DeletedTopic
from edge_broker.configuration.config import Endpoint
from edge_broker.coordinator.offset_records import AGE_HEADER, CommittedOffset, OffsetKey, offset_key, offset_value
from edge_broker.errors import ErrorCode, Refusal
from edge_broker.handlers.delete_topics import erase_here
from edge_broker.protocol.api import (
    DELETE_GROUPS,
    FIND_COORDINATOR,
    HEARTBEAT,
    INIT_PRODUCER_ID,
    JOIN_GROUP,
    LIST_GROUPS,
    OFFSET_COMMIT,
    OFFSET_FETCH,
)
from edge_broker.protocol.messages.delete_groups import DeleteGroupsRequest
from edge_broker.protocol.messages.find_coordinator import FindCoordinatorRequest
from edge_broker.protocol.messages.heartbeat import HeartbeatRequest
from edge_broker.protocol.messages.init_producer_id import InitProducerIdRequest
from edge_broker.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from edge_broker.protocol.messages.list_groups import ListGroupsRequest
from edge_broker.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from edge_broker.protocol.record_batch import build_batch
from edge_broker.storage.log.partition_log import PartitionLog
from edge_broker.storage.metadata.broker_registrations import Registrations
from edge_broker.storage.metadata.topic_record import OFFSETS_TOPIC
from edge_broker.storage.replica.replica_log import Replica
from edge_broker.testing.client import Client
from edge_broker.testing.site import Site
from tests.support.groups import group_in
from tests.support.storage import append, failing
from tests.unit.broker.test_groups_and_ids import commit, commit_codes

PARTITIONS = 4
HERE = 0  # the partition that these tests are about
GROUP, OTHER = group_in(HERE, PARTITIONS), group_in(1, PARTITIONS)
ME = 0


class StandIn:
    """What groups ask of a cluster; `epochs` are those in which this broker leads, `others` whether they keep up."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.view = self.replicas = self.gate = self.replication = self.changes = self
        self.epochs: dict[int, int] = {}
        self.leaders: dict[int, int] = {}
        self.there = {ME: "edge.local:9092", 7: "other.local:9099"}
        self.serves = self.sure = True
        self.others_keep_up = True
        self.on_deleted: Callable[[list[DeletedTopic]], None] = lambda topics: None
        self.takers: list[Callable[[range | None], None]] = []
        self.above = 0  # as the last one who took has it on disk
        replicas = tuple((ME, 7) for _ in range(PARTITIONS))
        self.topics = {OFFSETS_TOPIC: Topic("x" * 22, replicas, {}), "t": Topic("y" * 22, ((ME, 7),), {})}

    def log(self, partition: int = HERE) -> PartitionLog:
        return self.site.store.topics[OFFSETS_TOPIC].partitions[partition]

    def lead(self, epoch: int, partition: int = HERE, *, settled: bool = True) -> None:
        """This broker begins to lead."""
        Replica(self.log(partition)).begin_epoch(epoch)
        self.epochs[partition], self.leaders[partition] = epoch, ME
        self.site.dispatcher.start(lambda: lead_offsets(self.site.broker, partition))
        if settled:
            self.site.run_until_idle()

    def resign(self, partition: int = HERE) -> None:
        """Another one leads."""
        del self.epochs[partition]
        self.leaders[partition] = 7
        self.site.dispatcher.start(lambda: resign_offsets(self.site.broker, partition))
        self.site.dispatcher.logs_moved(self.log(partition))

    def give(self, block: range | None) -> None:
        """ZooKeeper has answered."""
        self.takers.pop(0)(block)
        self.site.dispatcher.apply()
        self.site.run_until_idle()

    # as the parts of Cluster

    def take_producer_ids(self, told: Callable[[range | None], None], above: int) -> None:
        self.takers.append(told)
        self.above = above

    def brokers(self, listener: str) -> list[Node]:
        assert listener == "PLAINTEXT"
        return [Node(broker, Endpoint(*_split(at)), None) for broker, at in sorted(self.there.items())]

    def describe(self, name: str) -> Any:
        topic = self.topics.get(name)
        return topic and SimpleNamespace(name=name, partitions=topic.replicas, config=topic.config)

    def leader(self, topic: str, partition: int) -> int:
        assert topic == OFFSETS_TOPIC
        return self.leaders.get(partition, NO_LEADER)

    def epoch_led(self, topic: str, partition: int) -> int | None:
        assert topic == OFFSETS_TOPIC
        return self.epochs.get(partition)

    def surely_leads(self, topic: str, partition: int) -> bool:
        return self.sure and self.epoch_led(topic, partition) is not None

    def check_append(self, log: PartitionLog, *, all_in_sync: bool, waits: bool) -> None:
        assert (log.topic, all_in_sync, waits) == (OFFSETS_TOPIC, True, False)
        if log.partition not in self.epochs:
            raise Refusal(ErrorCode.NOT_LEADER_OR_FOLLOWER, "another one leads")
        if not self.others_keep_up:
            raise Refusal(ErrorCode.NOT_ENOUGH_REPLICAS, "too few keep up")

    def refuse_old_epoch(self, log: PartitionLog, leader_epoch: int) -> Refusal | None:
        led = self.epochs.get(log.partition) == leader_epoch
        return None if led else Refusal(ErrorCode.NOT_LEADER_OR_FOLLOWER, "another one leads")

    def refuse_expired(self, log: PartitionLog) -> Refusal | None:
        return None if self.others_keep_up else Refusal(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, "too few")

    def log_moved(self, log: PartitionLog) -> None:
        if self.others_keep_up:
            Replica(log).show(log.synced_end.offset)


def _split(at: str) -> tuple[str, int]:
    host, _, port = at.rpartition(":")
    return host, int(port)


@pytest.fixture
def site() -> Site:
    made = Site()
    made.store.directory.registrations = Registrations("here")
    made.topic("t")
    made.topic(OFFSETS_TOPIC, PARTITIONS, {"cleanup.policy": "compact"})
    return made


@pytest.fixture
def cluster(site: Site) -> StandIn:
    cluster = StandIn(site)
    site.broker.join(cast(Any, cluster), partial(forget_deleted, site.broker))
    return cluster


def committed(site: Site, group: str = GROUP) -> tuple[int, int]:
    """The error, and the offset that is committed for t-0."""
    topics = [OffsetFetchRequestTopics(name="t", partition_indexes=[0])]
    asked = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=topics)])
    (found,) = site.client().ask(OFFSET_FETCH, asked).groups
    return found.error_code, found.topics[0].partitions[0].committed_offset if found.topics else -1


def commits(site: Site, offset: int, group: str = GROUP) -> list[int]:
    return commit_codes(site.client().ask(OFFSET_COMMIT, commit(offset, group=group)))


def begin_commit(site: Site, offset: int) -> Client:
    client = site.client()
    client.send(OFFSET_COMMIT, commit(offset, group=GROUP))
    site.run_until_idle()
    return client


def write_offset(log: PartitionLog, offset: int) -> None:
    """What another leader wrote, and this one fetched."""
    value = offset_value(CommittedOffset(offset, 0, "", 1000, 1000))
    batch = build_batch([(offset_key(OffsetKey(GROUP, "t", 0)), value)], timestamp_ms=1000)
    append(log, memoryview(bytearray(batch)))


def join(site: Site, protocol: str = "range") -> Client:
    client = site.client()
    request = JoinGroupRequest(
        group_id=GROUP,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        member_id="",
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name=protocol, metadata=b"")],
    )
    client.send(JOIN_GROUP, request, 2)
    return client


# who is the coordinator


def test_groups_of_partitions_that_others_lead_are_sent_there_and_none_is_made(site: Site, cluster: StandIn) -> None:
    cluster.lead(3, partition=1)
    assert commits(site, 5) == [ErrorCode.NOT_COORDINATOR]
    assert committed(site) == (ErrorCode.NOT_COORDINATOR, -1)
    client = join(site)
    assert client.answer().error_code == ErrorCode.NOT_COORDINATOR
    assert [one.partition for one in site.broker.groups.coordinators] == [1]
    assert commits(site, 6, OTHER) == [ErrorCode.NONE]


def find(site: Site, *groups: str) -> list[tuple[int, int, str, int]]:
    answer = site.client().ask(FIND_COORDINATOR, FindCoordinatorRequest(coordinator_keys=list(groups), key_type=0))
    return [(one.error_code, one.node_id, one.host, one.port) for one in answer.coordinators]


def test_the_leader_of_the_groups_partition_is_named_by_its_address(site: Site, cluster: StandIn) -> None:
    cluster.leaders = {HERE: 7, 1: ME}
    assert find(site, GROUP, OTHER) == [(0, 7, "other.local", 9099), (0, ME, "edge.local", 9092)]


def test_without_a_leader_that_is_there_clients_ask_again(site: Site, cluster: StandIn) -> None:
    cluster.leaders = {1: 9}
    assert [one[:2] for one in find(site, GROUP, OTHER)] == [(ErrorCode.COORDINATOR_NOT_AVAILABLE, -1)] * 2


def test_a_groups_partition_follows_from_the_clusters_topic_and_not_from_what_lies_here(
    site: Site, cluster: StandIn
) -> None:
    cluster.topics[OFFSETS_TOPIC] = Topic("x" * 22, ((7,),) * 50, {})
    assert site.broker.groups.partitions == 50
    cluster.leaders = {partition_for(GROUP, 50): 7}
    assert find(site, GROUP)[0][:2] == (0, 7)
    del cluster.topics[OFFSETS_TOPIC]
    assert commits(site, 5) == [ErrorCode.NOT_COORDINATOR]


# loading


def test_a_new_leader_serves_what_the_former_one_wrote_whether_or_not_it_may_be_shown(
    site: Site, cluster: StandIn
) -> None:
    log = cluster.log()
    write_offset(log, 41)
    write_offset(log, 42)
    assert log.high_watermark == 0
    cluster.others_keep_up = False
    cluster.lead(3, settled=False)
    assert commits_while_loading(site) == [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
    assert not site.broker.groups.are_loaded
    site.run_until_idle()
    assert committed(site) == (ErrorCode.NONE, 42)
    assert site.broker.groups.are_loaded


def commits_while_loading(site: Site) -> list[int]:
    client = site.client()
    client.send(OFFSET_COMMIT, commit(1, group=GROUP))
    return commit_codes(client.answer())


def test_loading_that_ends_when_another_leads_is_served_to_nobody(site: Site, cluster: StandIn) -> None:
    write_offset(cluster.log(), 41)
    cluster.lead(3, settled=False)
    cluster.resign()
    site.run_until_idle()
    assert committed(site) == (ErrorCode.NOT_COORDINATOR, -1)
    assert site.broker.groups.coordinators == []


def test_loading_for_an_epoch_is_not_served_in_a_later_one(site: Site, cluster: StandIn) -> None:
    log = cluster.log()
    write_offset(log, 41)
    cluster.lead(3, settled=False)
    site.loop.run()
    site.reader.work()  # it has read epoch 3's log; the loop does not know yet
    cluster.resign()
    write_offset(log, 57)  # of the one that led meanwhile
    cluster.lead(5, settled=False)
    site.reader.report()
    assert site.broker.groups.coordinators == []
    assert commits_while_loading(site) == [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
    site.run_until_idle()
    assert committed(site) == (ErrorCode.NONE, 57)
    assert [one.epoch for one in site.broker.groups.coordinators] == [5]


def test_an_epoch_that_the_shell_has_not_told_yet_is_not_served_by_the_one_before(site: Site, cluster: StandIn) -> None:
    cluster.lead(3)
    assert commits(site, 5) == [ErrorCode.NONE]
    cluster.epochs[HERE] = 4
    assert committed(site) == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, -1)
    cluster.lead(4)
    assert committed(site) == (ErrorCode.NONE, 5)


def test_to_be_told_twice_changes_nothing(site: Site, cluster: StandIn) -> None:
    cluster.lead(3)
    (before,) = site.broker.groups.coordinators
    cluster.lead(3)
    assert site.broker.groups.coordinators == [before]
    cluster.resign()
    site.dispatcher.start(lambda: resign_offsets(site.broker, HERE))
    assert site.broker.groups.coordinators == []


def test_who_may_have_been_replaced_does_not_tell_what_was_committed(site: Site, cluster: StandIn) -> None:
    cluster.lead(3)
    assert commits(site, 5) == [ErrorCode.NONE]
    cluster.sure = False
    assert committed(site) == (ErrorCode.NOT_COORDINATOR, -1)
    assert listed(site) == (ErrorCode.NONE, {GROUP})
    cluster.sure = True
    assert committed(site) == (ErrorCode.NONE, 5)


def test_what_could_not_be_loaded_is_loaded_when_it_can_be_read_again(site: Site, cluster: StandIn) -> None:
    write_offset(cluster.log(), 41)
    write_offset(cluster.log(1), 42)

    def broken(kind: str, path: str, size: int) -> None:
        if kind == "read" and f"{OFFSETS_TOPIC}-{HERE}/" in path:
            raise OSError(errno.ENOMEM, "Cannot allocate memory", path)

    site.disk.fault = broken
    cluster.log().close_files()
    cluster.lead(3)
    cluster.lead(3, partition=1)
    assert committed(site) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1)
    assert committed(site, OTHER)[0] == ErrorCode.NONE
    assert site.broker.groups.fault is not None
    tick(site)
    assert committed(site) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1)
    site.disk.fault = None
    tick(site)
    assert committed(site) == (ErrorCode.NONE, 41)
    assert (site.broker.groups.are_loaded, site.broker.groups.fault) == (True, None)


# resigning


def test_who_waits_for_a_group_is_sent_to_the_new_leader(site: Site, cluster: StandIn) -> None:
    cluster.lead(3)
    client = join(site)
    site.run_until_idle()
    first = client.answer()
    assert first.error_code == ErrorCode.NONE
    second = join(site)  # waits for the first to come again
    site.run_until_idle()
    assert second.answers() == []
    cluster.resign()
    assert second.answer().error_code == ErrorCode.NOT_COORDINATOR
    beat = HeartbeatRequest(group_id=GROUP, generation_id=first.generation_id, member_id=first.member_id)
    assert client.ask(HEARTBEAT, beat).error_code == ErrorCode.NOT_COORDINATOR
    assert site.broker.groups.parked == {}


def test_a_commit_that_others_do_not_have_yet_is_no_commit_of_a_leader_that_resigns(
    site: Site, cluster: StandIn
) -> None:
    cluster.lead(3)
    cluster.log_moved = lambda log: None  # type: ignore[method-assign] # nobody has fetched it
    client = begin_commit(site, 5)
    assert client.answers() == []
    cluster.resign()
    assert commit_codes(client.answer()) == [ErrorCode.NOT_COORDINATOR]


def test_too_few_replicas_mean_no_coordinator_and_nothing_is_written(site: Site, cluster: StandIn) -> None:
    cluster.lead(3)
    cluster.others_keep_up = False
    assert commits(site, 5) == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    assert cluster.log().log_end_offset == 0
    cluster.others_keep_up = True
    assert committed(site) == (ErrorCode.NONE, -1)
    assert commits(site, 6) == [ErrorCode.NONE]


def test_too_few_replicas_behind_the_append_are_said_when_the_time_is_over(site: Site, cluster: StandIn) -> None:
    cluster.lead(3)
    cluster.log_moved = lambda log: setattr(cluster, "others_keep_up", False)  # type: ignore[method-assign]
    client = begin_commit(site, 5)
    assert client.answers() == []
    site.loop.advance(60_000)
    assert commit_codes(client.answer()) == [ErrorCode.COORDINATOR_NOT_AVAILABLE]


def test_what_a_former_coordinator_wanted_to_write_is_not_written_in_a_later_epoch(
    site: Site, cluster: StandIn
) -> None:
    cluster.lead(3)
    log = cluster.log()
    log.writer.rolling = True
    late = begin_commit(site, 5)
    assert late.answers() == []
    cluster.resign()
    log.writer.rolling = False
    end = log.log_end_offset
    cluster.lead(4)
    site.dispatcher.logs_moved(log)  # the roll is over
    assert commit_codes(late.answer()) == [ErrorCode.NOT_COORDINATOR]
    assert log.log_end_offset == end
    assert committed(site) == (ErrorCode.NONE, -1)


# lists


def listed(site: Site) -> tuple[int, set[str]]:
    answer = site.run(LIST_GROUPS, ListGroupsRequest()).response
    return answer.error_code, {one.group_id for one in answer.groups}


def test_each_broker_lists_the_groups_of_what_it_leads(site: Site, cluster: StandIn) -> None:
    cluster.lead(3)
    cluster.lead(2, partition=1)
    assert commits(site, 5) == commits(site, 5, OTHER) == [ErrorCode.NONE]
    assert listed(site) == (ErrorCode.NONE, {GROUP, OTHER})
    cluster.resign()
    assert listed(site) == (ErrorCode.NONE, {OTHER})
    cluster.lead(4, settled=False)
    assert listed(site) == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, set())
    site.run_until_idle()
    cluster.serves = False
    assert listed(site) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, set())


# producer ids


def ask_id(site: Site) -> Client:
    client = site.client()
    client.send(INIT_PRODUCER_ID, InitProducerIdRequest(transactional_id=None))
    return client


def test_all_who_wait_for_a_block_share_it(site: Site, cluster: StandIn) -> None:
    waiting = [ask_id(site) for _ in range(3)]
    gone = ask_id(site)
    gone.lose()
    assert len(cluster.takers) == 1
    assert [client.answers() for client in waiting] == [[]] * 3
    cluster.give(range(5000, 6000))
    assert [client.answer().producer_id for client in waiting] == [5000, 5001, 5002]
    assert ask_id(site).answer().producer_id == 5004, "what was given to one that is gone is nobody's"
    assert cluster.takers == []


def test_the_next_block_is_taken_when_one_is_used_up(site: Site, cluster: StandIn) -> None:
    waiting = [ask_id(site) for _ in range(3)]
    cluster.give(range(5000, 5002))
    answers = [client.answer() for client in waiting]
    assert [one.error_code for one in answers] == [0, 0, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
    client = ask_id(site)
    cluster.give(range(8000, 9000))
    assert client.answer().producer_id == 8000


@pytest.mark.parametrize("how", ["stop", "kill", "cut"])
def test_what_was_given_is_on_the_disk_before_a_client_has_an_id_of_it(how: str, site: Site, cluster: StandIn) -> None:
    """So an ensemble that is set back gives none of them to a board that was started again."""
    client = ask_id(site)
    assert cluster.above == 0
    cluster.give(range(5000, 6000))
    assert client.answer().producer_id == 5000
    assert site.reopen(how).store.directory.producer_ids.end == 6000


def test_a_block_that_the_disk_does_not_keep_gives_no_id(site: Site, cluster: StandIn) -> None:
    client = ask_id(site)
    site.disk.fault = failing("rename", "producer-ids")
    cluster.give(range(5000, 6000))
    assert client.answer().error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    site.disk.fault = None
    client = ask_id(site)
    cluster.give(range(6000, 7000))
    assert client.answer().producer_id == 6000
    site.broker.producer_ids = range(0)
    ask_id(site)
    assert cluster.above == 7000


def test_without_a_block_clients_are_told_to_ask_again(site: Site, cluster: StandIn) -> None:
    client = ask_id(site)
    cluster.give(None)
    answer = client.answer()
    assert (answer.error_code, answer.producer_id) == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, -1)
    client = ask_id(site)
    cluster.give(range(1000))
    assert client.answer().producer_id == 0


# topics that are gone


def delete(site: Site, cluster: StandIn, *, was_seen: bool = True, made_again: bool = False) -> None:
    """The image shows that t is gone, or another one."""
    topic = cluster.topics.pop("t")
    if made_again:
        cluster.topics["t"] = topic._replace(topic_id="z" * 22)
    cluster.on_deleted([DeletedTopic("t", was_seen)])
    site.dispatcher.apply()
    if not made_again:
        cluster.topics["t"] = topic._replace(topic_id="z" * 22)  # a new one, for OffsetFetch to be asked of


def loaded_again(site: Site, cluster: StandIn, epoch: int) -> tuple[int, int]:
    """What the log says."""
    cluster.resign()
    site.broker.groups._deleted.clear()
    cluster.lead(epoch)
    return committed(site)


def test_what_was_committed_for_a_deleted_topic_is_not_there_for_the_next_one(site: Site, cluster: StandIn) -> None:
    cluster.lead(3)
    assert commits(site, 5) == [ErrorCode.NONE]
    cluster.log_moved = lambda log: None  # type: ignore[method-assign] # nobody has fetched the tombstone yet
    delete(site, cluster, made_again=True)
    assert committed(site) == (ErrorCode.NONE, -1)
    del cluster.log_moved
    site.dispatcher.logs_moved(cluster.log())
    assert loaded_again(site, cluster, 4) == (ErrorCode.NONE, -1)


def test_a_deletion_counts_for_a_partition_that_is_being_loaded(site: Site, cluster: StandIn) -> None:
    write_offset(cluster.log(), 41)
    cluster.lead(3, settled=False)
    delete(site, cluster, was_seen=False, made_again=True)
    site.run_until_idle()
    assert committed(site) == (ErrorCode.NONE, -1)
    assert loaded_again(site, cluster, 4) == (ErrorCode.NONE, -1)


@pytest.mark.parametrize(
    ("was_seen", "made_again", "offset"), [(True, False, -1), (True, True, 41), (False, False, 41)]
)
def test_a_deletion_that_was_seen_counts_for_what_is_led_later_unless_the_topic_may_be_meant_that_has_the_name_now(
    site: Site, cluster: StandIn, was_seen: bool, made_again: bool, offset: int
) -> None:
    write_offset(cluster.log(), 41)
    again = cluster.topics["t"]
    delete(site, cluster, was_seen=was_seen, made_again=made_again)
    if not made_again:
        del cluster.topics["t"]
    cluster.lead(3)
    cluster.topics["t"] = again
    assert committed(site) == (ErrorCode.NONE, offset)


def tick(site: Site) -> None:
    site.loop.advance(RETRY_MS)
    site.dispatcher.start(lambda: expire_members(site.broker))
    site.run_until_idle()


def test_a_log_that_did_not_keep_a_deletion_is_told_again(site: Site, cluster: StandIn) -> None:
    cluster.lead(3)
    assert commits(site, 5) == [ErrorCode.NONE]
    cluster.others_keep_up = False
    delete(site, cluster)
    assert cluster.log().log_end_offset == 1, "too few replicas"
    tick(site)
    assert site.broker.groups.unburied
    cluster.others_keep_up = True
    tick(site)
    assert not site.broker.groups.unburied
    assert cluster.log().log_end_offset == 2
    assert loaded_again(site, cluster, 4) == (ErrorCode.NONE, -1)


def test_what_was_committed_for_the_next_topic_meanwhile_stays(site: Site, cluster: StandIn) -> None:
    cluster.lead(3)
    assert commits(site, 5) == [ErrorCode.NONE]
    cluster.others_keep_up = False
    delete(site, cluster)
    cluster.others_keep_up = True
    assert commits(site, 2) == [ErrorCode.NONE]
    tick(site)
    assert not site.broker.groups.unburied
    assert committed(site) == (ErrorCode.NONE, 2)
    assert loaded_again(site, cluster, 4) == (ErrorCode.NONE, 2)


def test_what_was_committed_for_the_next_topic_stays_when_the_logs_of_the_former_are_erased(
    site: Site, cluster: StandIn
) -> None:
    """As of a broker that was away when the topic was deleted; the replicas of the offsets do not matter."""
    cluster.lead(3)
    assert commits(site, 5) == [ErrorCode.NONE]
    delete(site, cluster)
    assert commits(site, 2) == [ErrorCode.NONE]
    cluster.others_keep_up = False
    ended: list[Mapping[str, str]] = []
    site.dispatcher.start(lambda: erase_here(site.broker, "t", ended.append))
    site.run_until_idle()
    cluster.others_keep_up = True
    assert ended == [{}]
    assert "t" not in site.store.topics
    assert loaded_again(site, cluster, 4) == (ErrorCode.NONE, 2)


def test_names_of_deleted_topics_are_kept_within_a_bound(site: Site, cluster: StandIn) -> None:
    groups = site.broker.groups
    for number in range(3 * DELETED_KEPT):
        groups.note_deleted([f"n{number}"], [f"n{number}"])
    assert groups.take_deleted(HERE) == {f"n{number}" for number in range(2 * DELETED_KEPT, 3 * DELETED_KEPT)}


# groups that a topic needs, and ages


def test_a_group_that_a_topic_of_the_cluster_needs_is_not_deleted(site: Site, cluster: StandIn) -> None:
    cluster.lead(3)
    assert commits(site, 5) == [ErrorCode.NONE]
    cluster.topics["far"] = Topic("w" * 22, ((7,),), {"edge.required.groups": f"mirror, {GROUP}"})
    assert required_topics(site.broker) == {GROUP: ["far"], "mirror": ["far"]}
    asked = DeleteGroupsRequest(groups_names=[GROUP, OTHER])
    answer = site.client().ask(DELETE_GROUPS, asked)
    assert {one.group_id: one.error_code for one in answer.results} == {
        GROUP: ErrorCode.POLICY_VIOLATION,
        OTHER: ErrorCode.NOT_COORDINATOR,
    }
    del cluster.topics["far"]
    assert [one.error_code for one in site.client().ask(DELETE_GROUPS, asked).results] == [0, ErrorCode.NOT_COORDINATOR]


def test_an_offset_is_as_old_as_it_is_led_here_and_not_as_another_brokers_directory_says(
    site: Site, cluster: StandIn
) -> None:
    value = offset_value(CommittedOffset(41, 0, "", 1000, 1000))
    young = [(AGE_HEADER, (5).to_bytes(8, signed=True))]
    batch = build_batch([(offset_key(OffsetKey(GROUP, "t", 0)), value)], timestamp_ms=1000, headers=young)
    append(cluster.log(), memoryview(bytearray(batch)))
    site.loop.advance(3_600_000)
    site.broker.offsets_retention_ms = 1_800_000
    cluster.lead(3)
    retention = OffsetRetention(site.broker, 1_800_000)

    def look() -> tuple[int, int]:
        site.dispatcher.start(retention.start)
        site.run_until_idle()
        return committed(site)

    assert look() == (ErrorCode.NONE, 41)
    site.loop.advance(1_900_000)
    assert look() == (ErrorCode.NONE, -1)
