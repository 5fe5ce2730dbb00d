"""The cluster as ZooKeeper's image and the registrations show it to this broker: brokers, topics, partition states.

A single-node broker has no such object and imports nothing of this folder. Answers are what this broker knows now;
other brokers may know more. All calls come from the loop.

| question | answered by |
|---|---|
| which brokers are registered, and where | `brokers`, `serving`, `broker_ids`, `is_member`, `controller` |
| name, id, configuration, replicas of a topic | `topics`, `describe`, `describe_by_id`, `version` |
| leader and ISR of a partition | `state`, `leader`, `leader_to_ask`, `is_there`, `is_offline` |
| why this broker is no member | `not_serving` |

Does not contain: this broker's own replicas (local_replicas.py), changes (cluster_changes.py), Kafka's messages.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from itertools import chain

from drupelet.addresses import is_loopback
from edge_broker.broker.cluster.unreachable_brokers import ClosedPorts
from edge_broker.broker.cluster_port import NOBODY, DescribedTopic, Node
from edge_broker.cluster.member import ClusterMember, MembershipState
from edge_broker.cluster.partition.election import is_offline, may_take_over
from edge_broker.cluster.state.cluster_state import NO_LEADER, PartitionId, PartitionState, Topic
from edge_broker.configuration.config import Endpoint
from edge_broker.storage.metadata.topic_record import id_of

NOT_YET = {
    MembershipState.APART: "not a member of the cluster yet: it is about to register",
    MembershipState.REGISTERING: "not a member of the cluster yet: it registers",
    MembershipState.WAITING: "not a member of the cluster yet: a broker of its id is registered, "
    "most likely its former life",
    MembershipState.RECORDING: "not a member of the cluster yet: its registration is being written to its disk",
    MembershipState.READING: "not a member of the cluster yet: it reads what there is",
}


class ClusterView:
    """The knowledge of one member about its cluster; reads only."""

    def __init__(self, member: ClusterMember, listener: str, now_ms: Callable[[], float]) -> None:
        """`listener` is the one for brokers, `now_ms` the broker's clock since boot."""
        self.member = member
        self.listener = listener
        self.closed_ports = ClosedPorts()
        self.contradiction = ""  # why this broker can never be a member as it is; the process ends then
        self.strays: set[tuple[str, str]] = set()  # topics by name and id on this disk, no deletion of which is known
        self.images = 0  # complete images read so far
        self._was_complete = False
        self._now_ms = now_ms
        self._described: dict[str, DescribedTopic] = {}
        self._names: dict[uuid.UUID, str] = {}  # by id
        self._names_version = -1  # the image's number of changes that `_names` is of

    def update(self) -> None:
        """Count complete images, and drop descriptions of topics that are gone; after each turn of the member."""
        is_complete = self.member.image.is_complete
        if is_complete and not self._was_complete:
            self.images += 1
        self._was_complete = is_complete
        if len(self._described) > len(self.topics):
            self._described = {name: each for name, each in self._described.items() if name in self.topics}

    @property
    def now_ms(self) -> float:
        """The time that decisions go by."""
        return self._now_ms()

    # this broker's membership

    @property
    def serves(self) -> bool:
        """Whether this broker is a member now, and knows the cluster's topics."""
        return self.member.standing is MembershipState.SERVING

    @property
    def knows(self) -> bool:
        """Whether a complete image was read once; until then an unknown topic may exist."""
        return self.images > 0

    @property
    def not_serving(self) -> str | None:
        """Why nothing of the cluster can be served or acknowledged here, for people; None: it can."""
        if self.contradiction:
            return f"not a member of the cluster: {self.contradiction}"
        member = self.member
        if not member.connected:
            if member.standing is not MembershipState.SERVING:
                return "not a member of the cluster: there is no session with ZooKeeper; see zookeeper.connect"
            if not member.lease_holds():
                return "ZooKeeper does not answer, so nothing is acknowledged: another broker may lead by now"
        if member.hindrance:
            return f"not a member of the cluster yet: {member.hindrance}"
        return NOT_YET.get(member.standing)

    # brokers

    @property
    def controller(self) -> int:
        """The id of the controller; NOBODY: none is known, as where ZooKeeper has not answered for long."""
        return self.member.controller.holder if self.member.lease_holds() else NOBODY

    def brokers(self, listener: str) -> list[Node]:
        """Return the registered brokers that serve a listener of this name, by id."""
        found = []
        for broker, registration in sorted(self.member.registrations.items()):
            at = registration.address(listener)
            if at is not None:
                found.append(Node(broker, endpoint_of(at), registration.rack))
        return found

    def serving(self, listener: str) -> Collection[int]:
        """Return the ids of the registered brokers that serve a listener of this name."""
        registrations = self.member.registrations
        return {broker for broker, each in registrations.items() if each.address(listener) is not None}

    @property
    def broker_ids(self) -> Collection[int]:
        """The ids of the registered brokers."""
        return self.member.registrations.keys()

    @property
    def partitions_at_most(self) -> int:
        """The number of partitions of the broker that has most."""
        replicas = chain.from_iterable(topic.replicas for topic in self.topics.values())
        return max(Counter(chain.from_iterable(replicas)).values(), default=0)

    def is_member(self, host: str) -> bool:
        """Return whether a broker is registered with this address; a name in a registration never matches."""
        for registration in self.member.registrations.values():
            at = registration.address(self.listener)
            if at is not None and endpoint_of(at).host in (host, "localhost" if is_loopback(host) else host):
                return True
        return False

    # topics and partitions, also those of other brokers

    @property
    def topics(self) -> Mapping[str, Topic]:
        """All topics by name; `replicas` has the brokers of each partition, the preferred leader first."""
        return self.member.image.topics

    def version(self, name: str) -> int:
        """Return the version of a topic's znode as it was read; -1: none was."""
        return self.member.image.versions.get(name, -1)

    def describe(self, name: str) -> DescribedTopic | None:
        """Return the topic of a name."""
        topic, known = self.topics.get(name), self._described.get(name)
        if topic is None:
            return None
        if known is None or known.topic is not topic:
            known = DescribedTopic(name, id_of(topic.topic_id), topic.replicas, topic.config, topic)
            self._described[name] = known
        return known

    def describe_by_id(self, topic_id: uuid.UUID) -> DescribedTopic | None:
        """Return the topic of an id."""
        if self._names_version != self.member.image.changes:
            self._names_version = self.member.image.changes
            self._names = {id_of(topic.topic_id): name for name, topic in self.topics.items()}
        name = self._names.get(topic_id)
        return self.describe(name) if name is not None else None

    def state(self, topic: str, partition: int) -> PartitionState | None:
        """Return leader (or NO_LEADER), leader epoch and ISR; None: not known yet, or no such partition."""
        return self.member.state(PartitionId(topic, partition))

    def leader(self, topic: str, partition: int) -> int:
        """Return the leader if it is registered, or NO_LEADER."""
        state = self.state(topic, partition)
        if state is None or self.member.is_gone(state.entry(state.leader)):
            return NO_LEADER
        return state.leader

    def leader_to_ask(self, topic: str, partition: int) -> int:
        """Return the leader that clients are sent to, or NO_LEADER, as where its port was found closed."""
        leader = self.leader(topic, partition)
        if not self.closed_ports:
            return leader
        registration = self.member.registrations.get(leader)
        is_closed = registration is not None and self.closed_ports.has(leader, registration.epoch, self._now_ms())
        return NO_LEADER if is_closed else leader

    def is_there(self, state: PartitionState, broker: int) -> bool:
        """Return whether a broker of the ISR is registered as the ISR names it, and can serve."""
        return may_take_over(state, broker, self.member)

    def is_offline(self, state: PartitionState, broker: int) -> bool:
        """Return whether a registered broker has reported that its log is offline."""
        return is_offline(state, broker, self.member.registrations)


def endpoint_of(text: str) -> Endpoint:
    """Return HOST:PORT of a registration, [HOST]:PORT where the host has colons."""
    host, _, port = text.rpartition(":")
    return Endpoint(host.strip("[]"), int(port))
