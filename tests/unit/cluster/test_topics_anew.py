"""A topic that is deleted and made anew under its name, over the model of ZooKeeper: what was meant for one never meets
the other."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from edge_broker.cluster.controller import Controller
from edge_broker.cluster.state.cluster_state import InSyncReplica, PartitionId, PartitionState, Registration, Topic
from edge_broker.cluster.znodes.metadata_image import Image
from edge_broker.cluster.znodes.partition_state_write import StateWrite
from edge_broker.cluster.znodes.znode_codec import (
    ROOTS,
    LayoutFault,
    decode_state,
    decode_topic,
    deleted_path,
    state_path,
    topic_path,
)
from edge_broker.cluster.znodes.zookeeper import Answer, Change, Create, Failure, Node, Request, WatchFired
from edge_broker.errors import ErrorCode
from edge_broker.testing.zookeeper import Ensemble, Tree

P = PartitionId("t", 0)
ME = InSyncReplica(1, "one", 5)
OLD, NEW = Topic("old", ((1,),), {}), Topic("new", ((1,),), {})
LATE = PartitionState(1, 7, (ME,))


class Site:
    """The leader of an ensemble; what is asked is done at once, or later."""

    def __init__(self) -> None:
        self.ensemble = ensemble = Ensemble.__new__(Ensemble)
        self.tree = ensemble.tree = Tree()
        ensemble.changes, ensemble.servers = [], []
        self.late: list[Callable[[], None]] = []
        self.holds_back = False
        self.told: list[ErrorCode] = []
        self.settled: list[tuple[PartitionState | None, int]] = []
        self.controller = Controller(1, self.ask)
        for root in ROOTS:
            self.ask(Create(root), lambda answer: None)

    def ask(self, request: Request, then: Callable[[Answer], None]) -> None:
        def do() -> None:
            then(self.ensemble.decide(request, 0))  # type: ignore[arg-type]

        if self.holds_back:
            self.late.append(do)
        else:
            do()

    def make(self, topic: Topic) -> None:
        self.controller.make_topic("t", topic, {1: Registration(1, 5, "one")}, self.told.append)

    def anew(self) -> None:
        """The topic is another one by now."""
        self.controller.delete_topic("t", OLD, self.told.append)
        self.make(NEW)

    def arrive(self) -> None:
        """What was held back is done."""
        for do in self.late:
            do()

    @property
    def topic(self) -> str:
        node = self.tree.nodes[topic_path("t")]
        return decode_topic("t", Node(node.data, node.stat)).topic_id

    @property
    def state(self) -> PartitionState:
        node = self.tree.nodes[state_path(P)]
        return decode_state(P, Node(node.data, node.stat))


@pytest.fixture
def site() -> Site:
    site = Site()
    site.make(OLD)
    return site


def held_back(site: Site, ask: Callable[[], None]) -> None:
    site.holds_back = True
    ask()
    site.holds_back = False
    site.anew()
    site.told.clear()
    site.arrive()


def test_a_late_write_of_a_state_is_none_of_the_next_topics(site: Site) -> None:
    write = StateWrite(P, "old", site.ask, lambda state, version: site.settled.append((state, version)))
    held_back(site, lambda: write.begin(LATE, 0))
    assert (site.state.leader_epoch, site.settled) == (0, [(None, -1)])


def test_a_late_change_of_a_topic_is_none_of_the_next_ones(site: Site) -> None:
    changed = OLD._replace(config={"retention.ms": "1"})
    held_back(site, lambda: site.controller.change_topic("t", changed, 0, 1, {}, site.told.append))
    assert (site.topic, site.told) == ("new", [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION])


def test_a_late_deletion_is_none_of_the_next_topics(site: Site) -> None:
    held_back(site, lambda: site.controller.delete_topic("t", OLD, site.told.append))
    assert (site.topic, site.told) == ("new", [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION])
    assert deleted_path("new") not in site.tree.nodes


class Seen:
    """What an image tells, in its order."""

    def __init__(self) -> None:
        self.topics: list[str | None] = []
        self.states: list[str | None] = []  # the topic that was known when one was told
        self.image: Image

    def brokers_changed(self) -> None: ...

    def topic_changed(self, name: str) -> None:
        topic = self.image.topics.get(name)
        self.topics.append(topic and topic.topic_id)

    def state_read(self, partition: PartitionId, state: PartitionState, version: int) -> None:
        self.states.append(self.image.topics[partition.topic].topic_id)

    def complete(self) -> None: ...

    def unreadable(self, fault: LayoutFault) -> None:
        raise fault


def test_a_topic_that_is_another_one_was_gone_in_between() -> None:
    """So nothing that was known of the first, as its states, is believed of the next."""
    site, seen = Site(), Seen()
    seen.image = Image(site_read(site), seen)
    site.make(OLD)
    seen.image.begin()
    site.anew()
    seen.image.watch_fired(WatchFired(topic_path("t"), Change.DELETED))
    assert seen.topics == ["old", None, "new"]
    assert [each.name for each in seen.image.deleted] == ["t"]


def test_a_state_that_is_read_before_its_topic_is_known_is_not_the_former_ones() -> None:
    """A deletion's watches come one by one: the state's may come first, when the next topic is there already."""
    site, seen = Site(), Seen()
    seen.image = Image(site_read(site), seen)
    site.make(OLD)
    seen.image.begin()
    assert seen.states == ["old"]
    site.anew()
    seen.image.watch_fired(WatchFired(state_path(P), Change.DELETED))
    assert seen.states == ["old"]
    seen.image.watch_fired(WatchFired(topic_path("t"), Change.DELETED))
    assert seen.states == ["old", "new"]


def test_a_state_of_a_partition_that_a_topic_got_later_is_told() -> None:
    site, seen = Site(), Seen()
    seen.image = Image(site_read(site), seen)
    site.make(OLD)
    seen.image.begin()
    more = OLD._replace(replicas=((1,), (1,)))
    there = {1: Registration(1, 5, "one")}
    site.controller.change_topic("t", more, 0, 1, there, site.told.append)
    seen.image.watch_fired(WatchFired(topic_path("t"), Change.CHANGED))
    seen.image.watch_fired(WatchFired(state_path(PartitionId("t", 1)), Change.CHANGED))
    assert seen.states == ["old"] * 4


def site_read(site: Site) -> Callable[[Request, Callable[[Answer], None]], None]:
    def ask(request: Request, then: Callable[[Answer], None]) -> None:
        then(site.tree.read(request) if hasattr(request, "watch") else Failure.REFUSED)  # type: ignore[arg-type]

    return ask
