"""This broker's image of the cluster: a copy of the znodes, kept by one-shot watches.

| event | what is asked |
|---|---|
| the session is served, also again | Sync, then the names below /brokers and /topics, and each node, all watched |
| a watch on names | the names again; what is not there any more goes, what is new is read |
| a watch on a node | the node again |
| a state names a registration that was never seen | that registration, before anybody counts as gone |
| a state is younger than the last change of its topic that was read | nothing: it is of the next topic of that name, of which the watch on the topic tells |

Answers of a session come in order and are never older than those before, so the last answer for a path is the newest.
Data from before a lost connection stays, until it is read again.

Does not contain: what follows from it. Source: ZooKeeper's Programmer's Guide, "Watches".
"""  # noqa: E501

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

from edge_broker.cluster.state.cluster_state import InSyncReplica, PartitionId, PartitionState, Registration, Topic
from edge_broker.cluster.znodes.partition_state_write import AskThen
from edge_broker.cluster.znodes.znode_codec import (
    BROKERS,
    TOPICS,
    LayoutFault,
    broker_path,
    decode_registration,
    decode_state,
    decode_topic,
    is_number,
    state_path,
    topic_path,
)
from edge_broker.cluster.znodes.zookeeper import Answer, Children, Failure, Get, Names, Node, Sync, WatchFired


class ImageListener(Protocol):
    """A user of the image."""

    def brokers_changed(self) -> None:
        """A broker registered, or its registration ended."""

    def topic_changed(self, name: str) -> None:
        """A topic was made, or is gone."""

    def state_read(self, partition: PartitionId, state: PartitionState, version: int) -> None:
        """A partition's state."""

    def complete(self) -> None:
        """All that there was when the session was served has been read."""

    def unreadable(self, fault: LayoutFault) -> None:
        """A znode that this broker does not understand."""


class DeletedTopic(NamedTuple):
    """A name whose topic is gone, or another one by now.

    `was_seen`: it went while the image was whole; else it may have been gone since before the session.
    """

    name: str
    was_seen: bool


class Image:
    """The copy."""

    def __init__(self, ask: AskThen, seen: ImageListener) -> None:
        self._ask, self._seen = ask, seen
        self.registrations: dict[int, Registration] = {}
        self.topics: dict[str, Topic] = {}
        self.versions: dict[str, int] = {}  # of the topics' nodes
        self.epoch_base = 0  # what this ensemble's zxids lack to be epochs, see layout.decode_format
        self.topic_epochs: dict[str, int] = {}  # of the changes that made the topics' nodes
        self.is_complete = False
        self.changes = 0  # of topics: so many came, went, or became others
        self.deleted: list[DeletedTopic] = []  # until the caller takes it
        self._changed_at: dict[str, int] = {}  # the zxid of each topic's last change: its states are made with one
        self._newest: dict[int, int] = {}  # broker to the newest registration that was ever seen
        self._asked = 0
        self._turn = 0

    @property
    def is_settled(self) -> bool:
        """Whether no answer is open, so that it is of one moment."""
        return self.is_complete and not self._asked

    def begin(self) -> None:
        """The session is served: read everything."""
        self._turn += 1
        self._asked, self.is_complete = 0, False
        self._read(Sync(), lambda _: self._begin_reading())

    def end(self) -> None:
        """The session is over, or its connection: watches are gone."""
        self._turn += 1
        self.is_complete = False

    def _begin_reading(self) -> None:
        self._read_names(BROKERS)
        self._read_names(TOPICS)

    def _read(self, request: Sync | Get | Children, then: Callable[[Answer], None]) -> None:
        turn = self._turn
        self._asked += 1

        def answer_received(answer: Answer) -> None:
            if turn != self._turn or answer in (Failure.CONNECTION_LOSS, Failure.SESSION_EXPIRED):
                return
            self._asked -= 1
            try:
                then(answer)
            except LayoutFault as fault:
                self._seen.unreadable(fault)
            if not self._asked and not self.is_complete:
                self.is_complete = True
                self._seen.complete()

        self._ask(request, answer_received)

    # names

    def _read_names(self, path: str) -> None:
        self._read(Children(path, watch=True), lambda answer: self._have_names(path, answer))

    def _have_names(self, path: str, answer: Answer) -> None:
        if not isinstance(answer, Names) and answer is not Failure.NO_NODE:
            return  # foreign: what was known before stays
        names = answer.names if isinstance(answer, Names) else ()
        if path == BROKERS:
            self._have_brokers({int(name) for name in names if is_number(name)})
        else:
            self._have_topics(set(names))

    def _have_brokers(self, brokers: set[int]) -> None:
        for broker in sorted(set(self.registrations) - brokers):
            self._broker_gone(broker)
        for broker in sorted(brokers):
            self._read_broker(broker)

    def _read_broker(self, broker: int) -> None:
        self._read(Get(broker_path(broker), watch=True), lambda answer: self._have_broker(broker, answer))

    def _have_broker(self, broker: int, answer: Answer) -> None:
        if not isinstance(answer, Node):
            self._broker_gone(broker)
            return
        registration = decode_registration(broker, answer, self.epoch_base)
        self._newest[broker] = max(self._newest.get(broker, 0), registration.epoch)
        if self.registrations.get(broker) != registration:
            self.registrations[broker] = registration
            self._seen.brokers_changed()

    def _broker_gone(self, broker: int) -> None:
        if self.registrations.pop(broker, None) is not None:
            self._seen.brokers_changed()

    def is_gone(self, entry: InSyncReplica) -> bool:
        """Whether the registration of an entry has certainly ended."""
        registration = self.registrations.get(entry.broker)
        if registration is not None and registration.epoch == entry.epoch:
            return False
        return entry.epoch <= self._newest.get(entry.broker, 0)

    # topics

    def _have_topics(self, names: set[str]) -> None:
        for name in sorted(set(self.topics) - names):
            self._remove_topic(name)
        for name in sorted(names):
            self._read_topic(name)

    def _read_topic(self, name: str) -> None:
        self._read(Get(topic_path(name), watch=True), lambda answer: self._have_topic(name, answer))

    def _have_topic(self, name: str, answer: Answer) -> None:
        if answer is Failure.NO_AUTH and name in self.topics:
            return  # foreign: it was not deleted, and nothing of it is believed
        if not isinstance(answer, Node):
            self._remove_topic(name)
            return
        topic = decode_topic(name, answer)
        before = self.topics.get(name)
        if before is not None and before.topic_id != topic.topic_id:
            self._remove_topic(name)  # with its states, which are none of the new one's
        self.versions[name], self._changed_at[name] = answer.stat.version, answer.stat.mzxid
        self.topic_epochs[name] = self.epoch_base + answer.stat.czxid
        if before != topic:
            self.topics[name] = topic
            self.changes += 1
            self._seen.topic_changed(name)
        for number in range(len(topic.replicas)):
            self._read_state(PartitionId(name, number))

    def _remove_topic(self, name: str) -> None:
        if self.topics.pop(name, None) is not None:
            del self.versions[name], self._changed_at[name], self.topic_epochs[name]
            self.changes += 1
            self._topic_deleted(name)
            self._seen.topic_changed(name)

    def _topic_deleted(self, name: str) -> None:
        self.deleted.append(DeletedTopic(name, self.is_complete))

    def _read_state(self, partition: PartitionId) -> None:
        self._read(Get(state_path(partition), watch=True), lambda answer: self._have_state(partition, answer))

    def _have_state(self, partition: PartitionId, answer: Answer) -> None:
        if not isinstance(answer, Node) or answer.stat.czxid > self._changed_at.get(partition.topic, -1):
            return  # the topic is gone, or another one by now, which its own watch tells
        if partition.partition >= len(self.topics[partition.topic].replicas):
            return  # a watch of when the topic had this partition
        state = decode_state(partition, answer)
        for entry in state.in_sync:
            if entry.epoch > self._newest.get(entry.broker, 0):
                self._look_for(entry)
        self._seen.state_read(partition, state, answer.stat.version)

    def _look_for(self, entry: InSyncReplica) -> None:
        """A registration that a state knows is there or was; what is read now is not older than that state."""

        def have(answer: Answer) -> None:
            self._newest[entry.broker] = max(self._newest.get(entry.broker, 0), entry.epoch)
            self._have_broker(entry.broker, answer)
            self._seen.brokers_changed()

        self._read(Get(broker_path(entry.broker), watch=True), have)

    # watches

    def watch_fired(self, event: WatchFired) -> None:
        """Ask again for what has changed."""
        if event.path in (BROKERS, TOPICS):
            self._read_names(event.path)
            return
        root, *names = event.path.strip("/").split("/")
        if f"/{root}" == BROKERS and is_number(names[0]):
            self._read_broker(int(names[0]))
        elif f"/{root}" == TOPICS and len(names) == 1:
            self._read_topic(names[0])
        elif f"/{root}" == TOPICS and len(names) == 2 and is_number(names[1]):
            self._read_state(PartitionId(names[0], int(names[1])))
