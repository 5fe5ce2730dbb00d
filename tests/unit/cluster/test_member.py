"""What a member makes of logs that are opened behind a topic's end, and of time that passes over calm partitions."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from edge_broker.cluster.effects import Ask, Broke, Effect, OpenLog, RemoveLog, Send
from edge_broker.cluster.inter_broker_messages import ReplicaFetch
from edge_broker.cluster.member import ClusterMember, MembershipState
from edge_broker.cluster.partition.partition import Partition, Settings
from edge_broker.cluster.state.cluster_state import (
    Identity,
    InSyncReplica,
    PartitionId,
    PartitionState,
    Registration,
    Topic,
)
from edge_broker.cluster.znodes.znode_codec import decode_state, deleted_path, state_path
from edge_broker.cluster.znodes.zookeeper import Connected, Done, Exists, Expired, Multi, Node, SetData, Stat, Sync
from tests.simulation.cluster_disk import SimLog

P = PartitionId("t", 0)
OLD, NEW = Topic("old", ((1, 2),), {}), Topic("new", ((1, 2),), {})


class Serving:
    """A member that serves, whose image a test changes."""

    def __init__(self) -> None:
        self.member = ClusterMember(Identity(1, "one", (5,)), Settings())
        self.member.standing, self.member.image.is_complete = MembershipState.SERVING, True

    def has_topic(self, topic: Topic | None) -> None:
        if topic is None:
            del self.member.image.topics["t"]
        else:
            self.member.image.topics["t"] = topic
        self.member.topic_changed("t")

    def took(self) -> list[Effect]:
        found, self.member.effects = self.member.effects, []
        return found

    def removes(self) -> list[Effect]:
        """What is wanted once ZooKeeper has said that a topic was deleted."""
        (asked,) = [each for each in self.took() if isinstance(each, Ask)]
        assert asked.request == Exists(deleted_path("old"))
        self.member.answer_received(asked.token, Stat(0, 1, 1, 0), 2.0)
        return self.took()


def test_a_log_that_was_made_behind_the_end_of_its_topic_goes() -> None:
    site = Serving()
    site.has_topic(OLD)
    assert OpenLog(P, "old") in site.took()
    site.has_topic(None)
    site.member.log_opened(P, "old", SimLog(synced=True), 1.0)
    assert site.removes() == [RemoveLog(P, "old")]


def test_a_log_of_a_former_topic_goes_out_of_the_way_of_the_new_one() -> None:
    site = Serving()
    site.has_topic(OLD)
    site.has_topic(None)
    site.has_topic(NEW)
    assert OpenLog(P, "new") in site.took()
    site.member.log_opened(P, "old", SimLog(synced=True), 1.0)
    assert site.removes() == [RemoveLog(P, "old")]
    site.member.log_opened(P, "new", SimLog(synced=True), 3.0)
    assert list(site.member.partitions) == [P]


def test_a_log_that_no_topic_wants_here_goes_with_its_topic() -> None:
    """As one of a card that was in another board: it would be in the way of a new topic of the name."""
    site = Serving()
    site.has_topic(OLD._replace(replicas=((2, 3),)))
    site.member.has(P, "old")
    assert not [each for each in site.took() if isinstance(each, Ask | OpenLog)]
    site.has_topic(None)
    assert site.removes() == [RemoveLog(P, "old")]
    site.member.topic_changed("t")
    assert not [each for each in site.took() if isinstance(each, Ask | RemoveLog)], "once"


def test_a_log_that_is_opened_twice_stays() -> None:
    site = Serving()
    site.has_topic(OLD)
    for _ in range(2):
        site.member.log_opened(P, "old", SimLog(synced=True), 1.0)
    assert not [each for each in site.took() if isinstance(each, Ask | RemoveLog)]


def test_a_replica_that_cannot_be_made_here_lets_others_lead_until_it_can() -> None:
    """They would wait for it for ever: it is there, and the state names it."""
    site, me, other = Serving(), InSyncReplica(1, "one", 5), InSyncReplica(2, "two", 6)
    member = site.member
    member.connected = True
    member.image.registrations = {1: Registration(1, 5, "one"), 2: Registration(2, 6, "two")}
    site.has_topic(NEW)
    member.state_read(P, PartitionState(1, 0, (me, other)), 0)
    site.took()
    member.log_obstructed(P, "new", 1.0)
    (written,) = [each.request for each in site.took() if isinstance(each, Ask)]
    assert isinstance(written, Multi)
    assert decode_state(P, Node(written.operations[-1].data, Stat(1, 1, 1, 0))) == PartitionState(-1, 0, (other,))
    member.log_obstructed(P, "new", 2.0)
    assert not [each for each in site.took() if isinstance(each, Ask)], "once"
    member.log_opened(P, "new", SimLog(synced=True), 3.0)
    assert member.partitions[P].log.online
    member.log_obstructed(P, "new", 4.0)
    assert member.partitions[P].log.online


def three_partitions() -> Serving:
    site = Serving()
    site.has_topic(OLD._replace(replicas=((1, 2),) * 3))
    for number in range(2):
        site.member.log_opened(PartitionId("t", number), "old", SimLog(synced=True), 1.0)
    site.member.state_read(PartitionId("t", 1), PartitionState(2, 0, ()), 0)
    site.took()
    return site


def test_a_topic_of_fewer_partitions_stops_those_above_and_gets_them_back() -> None:
    """As where an older copy of ZooKeeper's data was put back."""
    site, above = three_partitions(), PartitionId("t", 1)
    site.has_topic(OLD)
    assert not [each for each in site.took() if isinstance(each, Broke | Ask)]
    assert (list(site.member.partitions), site.member.state(above)) == ([P], None)
    for late in (above, PartitionId("t", 2)):
        site.member.log_opened(late, "old", SimLog(synced=True), 2.0)
        site.member.log_obstructed(late, "old", 2.0)
    assert (list(site.member.partitions), site.took()) == ([P], []), "one that was being opened is not served either"
    site.has_topic(OLD._replace(replicas=((1, 2),) * 2))
    assert [each for each in site.took() if isinstance(each, OpenLog)] == [OpenLog(above, "old")]
    site.member.log_opened(above, "old", SimLog(synced=True), 3.0)
    assert list(site.member.partitions) == [P, above]


def test_a_replica_that_is_anothers_by_now_stops_and_the_replicas_of_others_are_those_of_now() -> None:
    site = three_partitions()
    site.has_topic(OLD._replace(replicas=((1, 2, 3), (2, 3), (2, 3))))
    assert list(site.member.partitions) == [P]
    assert site.member.partitions[P].replicas == (1, 2, 3)
    assert not [each for each in site.took() if isinstance(each, OpenLog)]
    site.has_topic(None)
    assert {each.request for each in site.took() if isinstance(each, Ask)} == {Exists(deleted_path("old"))}


class Ticked:
    """Partitions 0 to 2 of a topic; the first one has a bug in what it does at a tick."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, method: str) -> None:
        self.site, self.done = Serving(), list[int]()
        self.site.has_topic(Topic("id", ((1, 2),) * 3, {}))
        for number in range(3):
            self.site.member.log_opened(PartitionId("t", number), "id", SimLog(synced=True), 1.0)
        self.site.took()

        def broken(partition: Partition, *_: object) -> None:
            if partition.partition.partition == 0:
                raise ZeroDivisionError
            self.done.append(partition.partition.partition)

        monkeypatch.setattr(Partition, method, broken)

    def broke(self) -> list[PartitionId]:
        found = [each for each in self.site.took() if isinstance(each, Broke)]
        assert all(isinstance(each.error, ZeroDivisionError) for each in found)
        return [each.partition for each in found]


def test_a_bug_in_one_partitions_tick_costs_those_behind_it_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    ticked = Ticked(monkeypatch, "tick")
    ticked.site.member.tick(10.0)
    assert (sorted(ticked.done), ticked.broke()) == ([1, 2], [P])
    ticked.site.member.tick(500.0)
    assert (ticked.broke(), set(ticked.done)) == ([], {1, 2}), "it is held"
    ticked.site.member.tick(1500.0)
    assert ticked.broke() == [P], "it is asked again a while later"


@pytest.mark.parametrize(
    ("method", "let_all"),
    [
        ("reconcile", ClusterMember.complete),
        ("fetch_again", lambda member: member.connected_to(2, 10.0)),
        ("stop", lambda member: member.event_received(Expired(), 10.0)),
    ],
)
def test_so_it_is_wherever_all_have_their_turn(
    method: str, let_all: Callable[[ClusterMember], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    ticked = Ticked(monkeypatch, method)
    let_all(ticked.site.member)
    assert (sorted(set(ticked.done)), ticked.broke()) == ([1, 2], [P])


# time

SHARE, TICK_MS = 30, 100.0
CALM = Settings(
    lag_ms_max=30_000.0,
    fetch_wait_ms=12_000.0,
    fetch_timeout_ms=12_000.0,
    ticks_of_calm=SHARE,
    calm_ms=4_500.0,
    fetch_early_ms=3_000.0,
)
ME = InSyncReplica(1, "one", 5)
OTHERS = {number: InSyncReplica(number, f"disk {number}", 5) for number in (2, 3)}


class Idle:
    """A member with partitions in which nothing happens; `leaders` has the leader of each."""

    def __init__(self, leaders: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
        self.member = ClusterMember(Identity(1, "one", (5,)), CALM)
        self.member.standing, self.member.image.is_complete = MembershipState.SERVING, True
        for each in (ME, *OTHERS.values()):
            self.member.image.registrations[each.broker] = Registration(each.broker, each.epoch, each.directory)
        topic = Topic("id", tuple((1, 2, 3) for _ in leaders), {})
        self.member.image.topics["t"] = topic
        self.member.topic_changed("t")
        self.now_ms = 1_000.0
        self.happened(Connected(7, 6_000))
        for number, leader in enumerate(leaders):
            partition = PartitionId("t", number)
            self.member.log_opened(partition, "id", SimLog(synced=True), self.now_ms)
            self.member.state_read(partition, PartitionState(leader, 4, (ME, *OTHERS.values())), 1)
            if leader == ME.broker:
                self.member.epoch_begun(partition, 4, self.now_ms)
        self.ticked: list[int] = []
        self.advanced = 0
        tick, advance = Partition.tick, Partition.advance_high_watermark

        def counted(found: Partition) -> None:
            self.ticked.append(found.partition.partition)
            tick(found)

        def counted_too(found: Partition) -> None:
            self.advanced += 1
            advance(found)

        monkeypatch.setattr(Partition, "tick", counted)
        monkeypatch.setattr(Partition, "advance_high_watermark", counted_too)

    def happened(self, event: Connected) -> None:
        self.member.session_id, self.member.standing = event.session_id, MembershipState.SERVING
        self.member.event_received(event, self.now_ms)
        self.proved()

    def proved(self) -> None:
        """Have the ensemble answer what it was asked."""
        for each in self.took():
            if isinstance(each, Ask) and each.request == Sync():
                self.member.answer_received(each.token, Done(), self.now_ms)

    def took(self) -> list[Effect]:
        found, self.member.effects = self.member.effects, []
        return found

    def pass_ticks(self, count: int) -> list[dict[int, list[int]]]:
        """What was fetched of each leader, tick by tick."""
        found = []
        for _ in range(count):
            self.now_ms += TICK_MS
            self.member.tick(self.now_ms)
            fetched: dict[int, list[int]] = {}
            for each in self.member.effects:
                if isinstance(each, Send) and isinstance(each.message, ReplicaFetch):
                    fetched.setdefault(each.to, []).append(each.message.partition.partition)
            found.append(fetched)
            self.proved()
        return found


def test_a_calm_partition_has_one_tick_in_many(monkeypatch: pytest.MonkeyPatch) -> None:
    idle = Idle([1] * 10 + [2] * 10, monkeypatch)
    idle.pass_ticks(1)
    assert sorted(set(idle.ticked)) == list(range(20)), "a state that was read is followed by a tick"
    idle.ticked.clear()
    idle.pass_ticks(2 * SHARE)
    assert sorted(idle.ticked) == sorted([*range(20)] * 2)


def test_fetches_of_one_leader_that_are_due_at_about_the_same_time_go_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    idle = Idle([2, 2, 2, 3], monkeypatch)
    idle.pass_ticks(1)
    due = {0: 2_000.0, 1: 3_000.0, 2: 9_000.0, 3: 2_500.0}
    for number, later_ms in due.items():
        following = idle.member.partitions[PartitionId("t", number)].following
        assert following is not None
        following.due_ms = idle.now_ms + later_ms
    fetched = [each for each in idle.pass_ticks(90) if each]
    assert fetched == [{2: [0, 1]}, {3: [3]}, {2: [2]}], "one that is due much later waits"
    assert [each for each in idle.pass_ticks(120) if each] == [{2: [0, 1]}, {3: [3]}, {2: [2]}][:3]


@pytest.mark.parametrize("what", ["registrations", "the topic", "the state"])
def test_what_is_told_is_followed_by_a_tick(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    idle = Idle([1, 2], monkeypatch)
    idle.pass_ticks(3)
    idle.ticked.clear()
    if what == "registrations":
        idle.member.brokers_changed()
    elif what == "the topic":
        idle.member.topic_changed("t")
    else:
        for number, leader in enumerate((1, 2)):
            state = PartitionState(leader, 4, (ME, OTHERS[2]))
            idle.member.state_read(PartitionId("t", number), state, 2)
    idle.pass_ticks(1)
    assert {0, 1} <= set(idle.ticked)


def test_a_broker_whose_port_is_closed_leaves_the_in_sync_sets_of_what_is_led_here_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    idle = Idle([1, 3, 1], monkeypatch)
    idle.member.effects.clear()
    idle.member.port_closed(2, OTHERS[2].epoch + 1, idle.now_ms)
    assert not idle.member.effects, "what was found of another life"
    idle.member.port_closed(2, OTHERS[2].epoch, idle.now_ms)
    asked = [each.request for each in idle.took() if isinstance(each, Ask)]
    written = [each.operations[-1] for each in asked if isinstance(each, Multi)]
    assert len(written) == 2
    for each, partition in zip(written, (PartitionId("t", 0), PartitionId("t", 2)), strict=True):
        assert isinstance(each, SetData)
        assert each.path == state_path(partition)
        state = decode_state(partition, Node(each.data, Stat(1, 1, 1, 0)))
        assert state == PartitionState(1, 4, (ME, OTHERS[3]))


@pytest.mark.parametrize("at", range(0, SHARE, 7))
def test_a_follower_that_becomes_slow_is_seen_at_once(at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    idle = Idle([1], monkeypatch)
    idle.member._ticks = at
    asked_ms = 0.0
    for _ in range(400):  # nobody fetches: they are slow 30 s behind the epoch's beginning
        idle.now_ms += TICK_MS
        idle.member.tick(idle.now_ms)
        if any(isinstance(each, Ask) and isinstance(each.request, Multi) for each in idle.member.effects):
            asked_ms = asked_ms or idle.now_ms
        idle.proved()
    assert 31_000.0 < asked_ms <= 31_000.0 + TICK_MS
    assert len(idle.ticked) < 80


def test_a_proof_of_the_session_lets_marks_rise_where_it_was_in_doubt(monkeypatch: pytest.MonkeyPatch) -> None:
    idle = Idle([1] * 3, monkeypatch)
    idle.pass_ticks(2)
    idle.advanced = 0
    idle.member._prove()
    idle.proved()
    assert idle.advanced == 0
    idle.now_ms += 5_000.0
    idle.member.now_ms = idle.now_ms
    assert not idle.member.lease_holds()
    idle.member._prove()
    idle.proved()
    assert idle.advanced == 3
