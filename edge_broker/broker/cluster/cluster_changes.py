"""Changes of the cluster that a handler asks for: topics, preferred elections, producer ids.

Any broker changes topics: one Multi holds as a whole or not at all. Each callback runs on the loop, once.

Does not contain: when a change is visible here (change_waits.py), users and ACLs (security_access.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from edge_broker.broker.cluster_port import Told
from edge_broker.cluster.controller import place_topic
from edge_broker.cluster.member import ClusterMember
from edge_broker.cluster.producer_ids import ProducerIds
from edge_broker.cluster.state.cluster_state import PartitionId, Topic
from edge_broker.errors import ErrorCode


class ClusterChanges:
    """Changes that one member asks for; `carry_out` runs the effects that a call leaves."""

    def __init__(self, member: ClusterMember, now_ms: Callable[[], float], carry_out: Callable[[], None]) -> None:
        self._member, self._now_ms, self._carry_out = member, now_ms, carry_out
        self._producer_ids = ProducerIds(member.ask, member.unreadable, lambda: member.image.epoch_base)

    def take_producer_ids(self, told: Callable[[range | None], None], above: int) -> None:
        """Take producer ids that no broker was given before, none below `above`; None: none could be taken, now."""
        self._producer_ids.take(told, above)
        self._carry_out()

    def place(self, topic_id: str, partitions: int, factor: int, config: Mapping[str, str]) -> Topic:
        """Return a topic whose replicas are placed on registered brokers; ValueError: they are fewer than `factor`."""
        return place_topic(topic_id, partitions, factor, config, self._member.registrations, self._member.image.topics)

    def place_more(self, name: str, partitions: int) -> Topic:
        """Return a topic with so many partitions in all, its present ones unchanged; ValueError."""
        topics = self._member.image.topics
        topic = topics[name]
        factor, more = len(topic.replicas[0]), partitions - len(topic.replicas)
        new = place_topic(topic.topic_id, more, factor, topic.config, self._member.registrations, topics)
        return topic._replace(replicas=(*topic.replicas, *new.replicas))

    def make_topic(self, name: str, topic: Topic, told: Told) -> None:
        """Make a topic whose replicas are placed: NONE, TOPIC_ALREADY_EXISTS, REQUEST_TIMED_OUT, NOT_CONTROLLER."""
        self._member.controller.make_topic(name, topic, self._member.registrations, told)
        self._carry_out()

    def change_topic(self, name: str, topic: Topic, told: Told) -> None:
        """Give a topic another configuration or more partitions; NOT_CONTROLLER: another broker changed it first."""
        image, controller = self._member.image, self._member.controller
        have = len(image.topics[name].replicas)
        controller.change_topic(name, topic, image.versions[name], have, self._member.registrations, told)
        self._carry_out()

    def delete_topic(self, name: str, told: Told) -> None:
        """Delete a topic; brokers remove its logs when they see that it is gone."""
        self._member.controller.delete_topic(name, self._member.image.topics[name], told)
        self._carry_out()

    def elect(self, topic: str, partition: int) -> ErrorCode:
        """Request that the preferred leader leads: NONE, ELECTION_NOT_NEEDED, PREFERRED_LEADER_NOT_AVAILABLE, …

        The leader transfers leadership once the other replica has everything; this call only requests it.
        """
        error = self._member.elect_preferred(PartitionId(topic, partition), self._now_ms())
        self._carry_out()
        return error
