"""The cluster as handlers see it: who is there, who leads what, and what may be changed of it.

A broker that stands alone has no such object, and imports nothing of this. What is answered is what this broker knows
of the cluster now; others may know more. All calls come from the loop.

| question | answered by |
|---|---|
| may this partition be read here | `refuse_unless_led`, `latest_offset` |
| may it be written, is it safe | `check_append`, `left_behind`, `late` |
| who leads, who follows | `brokers`, `controller`, `topics`, `state` |
| topics | `make_topic`, `change_topic`, `delete_topic`: any broker's, as one Multi holds as a whole or not at all |

Lives here: those questions. Must never come in: how decisions are made (edge_broker.cluster), messages of the protocol.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from drupelet.ledger import LEDGER_TOPIC
from edge_broker.cluster.controller import placed
from edge_broker.cluster.member import ClusterMember, Standing
from edge_broker.cluster.partition import LEADS, Partition
from edge_broker.cluster.state import NO_LEADER, PartitionId, PartitionState, Topic
from edge_broker.config import Endpoint
from edge_broker.errors import ErrorCode, Refusal

if TYPE_CHECKING:
    from edge_broker.storage.log import PartitionLog

Told = Callable[[ErrorCode], None]


class Node(NamedTuple):
    """A broker that is there, by its address for clients of one listener."""

    broker: int
    endpoint: Endpoint
    rack: str | None


class Cluster:
    """What one member knows; `carry_out` has its effects carried out after each call that may leave some."""

    def __init__(self, member: ClusterMember, now_ms: Callable[[], float], carry_out: Callable[[], None]) -> None:
        self.member = member
        self._now_ms = now_ms
        self._carry_out = carry_out

    # who is there

    @property
    def serves(self) -> bool:
        """Whether this broker is a member now, and knows what there is."""
        return self.member.standing is Standing.SERVING

    @property
    def controller(self) -> int:
        """The broker that holds the office; -1: none that is known."""
        return self.member.controller.holder

    def brokers(self, listener: str) -> list[Node]:
        """Those that are there and serve a listener of this name, by id."""
        found = []
        for registration in sorted(self.member.registrations.values()):
            at = dict(registration.endpoints).get(listener)
            if at is not None:
                found.append(Node(registration.broker, endpoint_of(at), registration.rack))
        return found

    # topics and their partitions, also those that others hold

    @property
    def topics(self) -> Mapping[str, Topic]:
        """By name, all of the cluster's; `replicas` has the brokers of each partition, the preferred leader first."""
        return self.member.image.topics

    def state(self, topic: str, partition: int) -> PartitionState | None:
        """Leader (NO_LEADER: nobody), leader epoch and in-sync set; None: not known yet, or no such partition."""
        return self.member.state(PartitionId(topic, partition))

    def leader(self, topic: str, partition: int) -> int:
        """Who leads and is there; NO_LEADER."""
        state = self.state(topic, partition)
        if state is None or self.member.is_gone(state.entry(state.leader)):
            return NO_LEADER
        return state.leader

    def led(self, topic: str, partition: int) -> Partition | None:
        """The partition, if this broker leads it."""
        found = self.member.partitions.get(PartitionId(topic, partition))
        return found if found is not None and found.role in LEADS else None

    def epoch_led(self, topic: str, partition: int) -> int | None:
        """The leader epoch in which this broker leads a partition; None: it does not."""
        led = self.led(topic, partition)
        return led.leading.epoch if led is not None and led.leading is not None else None

    def refuse_unless_led(self, log: PartitionLog) -> None:
        """Refuse with NOT_LEADER_OR_FOLLOWER what is asked of another broker's partition."""
        if log.topic != LEDGER_TOPIC and self.led(log.topic, log.partition) is None:
            raise self._not_led(log)

    def _not_led(self, log: PartitionLog) -> Refusal:
        return Refusal(
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            f"broker {self.member.identity.broker} does not lead {log.topic}-{log.partition}; refresh the metadata",
        )

    # writes

    def check_append(self, log: PartitionLog, *, all_in_sync: bool) -> None:
        """Refuse what may not be appended now; `all_in_sync`: it comes with acks=all."""
        if log.topic == LEDGER_TOPIC:
            return
        found = self.member.partitions.get(PartitionId(log.topic, log.partition))
        self.member.now_ms = self._now_ms()
        error = ErrorCode.NOT_LEADER_OR_FOLLOWER if found is None else found.append_error(all_in_sync=all_in_sync)
        if error is ErrorCode.NOT_ENOUGH_REPLICAS and found is not None:
            text = f"fewer than min.insync.replicas ({found.topic.min_in_sync}) keep up; nothing was written"
            raise Refusal(error, f"{log.topic}-{log.partition}: {text}")
        if error is not ErrorCode.NONE:
            raise self._not_led(log)

    def left_behind(self, log: PartitionLog, leader_epoch: int) -> Refusal | None:
        """Why what was appended in an epoch will not be answered: another one leads, and may not have it."""
        if log.topic == LEDGER_TOPIC:
            return None
        led = self.led(log.topic, log.partition)
        if led is not None and led.leading is not None and led.leading.epoch == leader_epoch:
            return None
        return self._not_led(log)

    def late(self, log: PartitionLog) -> Refusal | None:
        """NOT_ENOUGH_REPLICAS_AFTER_APPEND where what was appended is not answered in time for want of replicas."""
        try:
            self.check_append(log, all_in_sync=True)
        except Refusal as refusal:
            if refusal.code == ErrorCode.NOT_ENOUGH_REPLICAS:
                text = f"fewer than min.insync.replicas of {log.topic}-{log.partition} have what was written"
                return Refusal(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, text)
        return None

    def log_moved(self, log: PartitionLog) -> None:
        """A log was written, or the disk has confirmed more."""
        self.member.log_moved(PartitionId(log.topic, log.partition), self._now_ms())
        self._carry_out()

    def latest_offset(self, topic: str, partition: int) -> int | None:
        """The end of what is shown; None: OFFSET_NOT_AVAILABLE, as a former leader may have shown more (KIP-207)."""
        found = self.led(topic, partition)
        return found.latest_offset() if found is not None else None

    # changes; `told` is called on the loop, once

    def place(self, topic_id: str, partitions: int, factor: int, config: Mapping[str, str]) -> Topic:
        """A topic whose replicas are placed on who is there; ValueError: there are fewer than `factor`."""
        return placed(topic_id, partitions, factor, config, self.member.registrations, self.topics)

    def place_more(self, name: str, partitions: int) -> Topic:
        """A topic with so many partitions in all, those that it has as they are; ValueError."""
        topic = self.topics[name]
        factor, more = len(topic.replicas[0]), partitions - len(topic.replicas)
        new = placed(topic.topic_id, more, factor, topic.config, self.member.registrations, self.topics)
        return topic._replace(replicas=(*topic.replicas, *new.replicas))

    def make_topic(self, name: str, topic: Topic, told: Told) -> None:
        """Make a topic whose replicas are placed: NONE, TOPIC_ALREADY_EXISTS, REQUEST_TIMED_OUT, NOT_CONTROLLER."""
        self.member.controller.make_topic(name, topic, self.member.registrations, told)
        self._carry_out()

    def change_topic(self, name: str, topic: Topic, told: Told) -> None:
        """Give a topic another configuration or more partitions; NOT_CONTROLLER: somebody else changed it meanwhile."""
        image, controller = self.member.image, self.member.controller
        have = len(image.topics[name].replicas)
        controller.change_topic(name, topic, image.versions[name], have, self.member.registrations, told)
        self._carry_out()

    def delete_topic(self, name: str, told: Told) -> None:
        """Delete a topic; brokers remove its logs when they see that it is gone."""
        self.member.controller.delete_topic(name, self.topics[name], told)
        self._carry_out()

    def elect(self, topic: str, partition: int) -> ErrorCode:
        """Wish that the preferred leader leads: NONE, ELECTION_NOT_NEEDED, PREFERRED_LEADER_NOT_AVAILABLE, …

        It is the leader that hands over, once the other has everything; this only asks for it.
        """
        error = self.member.elect_preferred(PartitionId(topic, partition), self._now_ms())
        self._carry_out()
        return error


def endpoint_of(text: str) -> Endpoint:
    """HOST:PORT of a registration, [HOST]:PORT where the host has colons."""
    host, _, port = text.rpartition(":")
    return Endpoint(host.strip("[]"), int(port))


def replicas_of(topic: Topic, partition: int) -> Sequence[int]:
    """The brokers of a partition, the preferred leader first."""
    return topic.replicas[partition]
