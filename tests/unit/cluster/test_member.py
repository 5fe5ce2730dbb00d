"""What a member makes of logs that are opened behind a topic's end."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from edge_broker.cluster.effects import Ask, Broke, Effect, OpenLog, RemoveLog
from edge_broker.cluster.layout import deleted_path
from edge_broker.cluster.member import ClusterMember, Standing
from edge_broker.cluster.partition import Partition, Settings
from edge_broker.cluster.state import Identity, PartitionId, Topic
from edge_broker.cluster.zookeeper import Exists, Expired, Stat
from tests.simulation.cluster_disk import SimLog

P = PartitionId("t", 0)
OLD, NEW = Topic("old", ((1, 2),), {}), Topic("new", ((1, 2),), {})


class Serving:
    """A member that serves, whose image a test changes."""

    def __init__(self) -> None:
        self.member = ClusterMember(Identity(1, "one", (5,)), Settings())
        self.member.standing, self.member.image.is_complete = Standing.SERVING, True

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
        self.member.answered(asked.token, Stat(0, 1, 1, 0), 2.0)
        return self.took()


def test_a_log_that_was_made_behind_the_end_of_its_topic_goes() -> None:
    site = Serving()
    site.has_topic(OLD)
    assert OpenLog(P, "old") in site.took()
    site.has_topic(None)
    site.member.opened(P, "old", SimLog(synced=True), 1.0)
    assert site.removes() == [RemoveLog(P, "old")]


def test_a_log_of_a_former_topic_goes_out_of_the_way_of_the_new_one() -> None:
    site = Serving()
    site.has_topic(OLD)
    site.has_topic(None)
    site.has_topic(NEW)
    assert OpenLog(P, "new") in site.took()
    site.member.opened(P, "old", SimLog(synced=True), 1.0)
    assert site.removes() == [RemoveLog(P, "old")]
    site.member.opened(P, "new", SimLog(synced=True), 3.0)
    assert list(site.member.partitions) == [P]


def test_a_log_that_is_opened_twice_stays() -> None:
    site = Serving()
    site.has_topic(OLD)
    for _ in range(2):
        site.member.opened(P, "old", SimLog(synced=True), 1.0)
    assert not [each for each in site.took() if isinstance(each, Ask | RemoveLog)]


class Ticked:
    """Partitions 0 to 2 of a topic; the first one has a bug in what it does at a tick."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, method: str) -> None:
        self.site, self.done = Serving(), list[int]()
        self.site.has_topic(Topic("id", ((1, 2),) * 3, {}))
        for number in range(3):
            self.site.member.opened(PartitionId("t", number), "id", SimLog(synced=True), 1.0)
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
        ("stop", lambda member: member.happened(Expired(), 10.0)),
    ],
)
def test_so_it_is_wherever_all_have_their_turn(
    method: str, let_all: Callable[[ClusterMember], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    ticked = Ticked(monkeypatch, method)
    let_all(ticked.site.member)
    assert (sorted(set(ticked.done)), ticked.broke()) == ([1, 2], [P])
