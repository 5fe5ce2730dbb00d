"""The cluster as handlers see it: who is there, who leads what, and what may be changed of it.

A broker that stands alone has no such object, and imports nothing of this. What is answered is what this broker knows
of the cluster now; others may know more. All calls come from the loop.

| question | answered by |
|---|---|
| may this partition be read here | `led`, `latest_offset` |
| may it be written, is it safe | `check_append`, `left_behind`, `late` |
| who leads, who follows | `brokers`, `controller`, `topics`, `state` |
| what is a topic's name, id, configuration | `described`, `described_by_id` |
| producer ids | `take_producer_ids` |
| users and ACLs | `share_security`, `write_security` and its siblings |
| topics | `make_topic`, `change_topic`, `delete_topic`: any broker's, as one Multi holds as a whole or not at all |
| why is this broker no member, what is not as it should be | `not_serving`, cluster_metrics.py |
| when is something known here | `until`: looked at again at each `changed`, until its time is over by `tick` |

Lives here: those questions. Must never come in: how decisions are made (edge_broker.cluster), messages of the protocol.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple, cast

from drupelet.addresses import is_loopback
from edge_broker.broker.cluster.follower_fetch_sessions import FollowerFetches
from edge_broker.broker.cluster.lease_waits import LeaseUnproved, LeaseWaits
from edge_broker.broker.cluster.unreachable_brokers import ClosedPorts
from edge_broker.broker.cluster_port import NOBODY, DescribedTopic, Node, Told
from edge_broker.broker.known_entries import LedgerEntries
from edge_broker.broker.state.disk_space import ALWAYS_WRITTEN
from edge_broker.cluster.controller import placed
from edge_broker.cluster.member import ClusterMember, Standing
from edge_broker.cluster.partition.election import is_offline, may_take_over
from edge_broker.cluster.partition.partition import LEADS, Partition
from edge_broker.cluster.producer_ids import ProducerIds
from edge_broker.cluster.state.cluster_state import NO_LEADER, PartitionId, PartitionState, Topic
from edge_broker.cluster.state.replica_log_view import NEWEST_EPOCH, NoLog, epoch_end, last_epoch
from edge_broker.cluster.znodes.metadata_image import DeletedTopic
from edge_broker.cluster.znodes.security_znode import Found, SecurityNode
from edge_broker.cluster.znodes.security_znode import Standing as NodeStanding
from edge_broker.configuration.config import Endpoint
from edge_broker.errors import ErrorCode, Refusal
from edge_broker.storage.metadata.topic_record import JOURNAL_TOPIC, id_of

if TYPE_CHECKING:
    from edge_broker.cluster.inter_broker_messages import ReplicaFetch, ReplicaFetched
    from edge_broker.storage.log.partition_log import PartitionLog
    from edge_broker.storage.replica.replica_log import Replica

NOT_YET = {
    Standing.APART: "not a member of the cluster yet: it is about to register",
    Standing.REGISTERING: "not a member of the cluster yet: it registers",
    Standing.WAITING: "not a member of the cluster yet: a broker of its id is registered, most likely its former life",
    Standing.RECORDING: "not a member of the cluster yet: its registration is being written to its disk",
    Standing.READING: "not a member of the cluster yet: it reads what there is",
}


class _Waiter(NamedTuple):
    look: Callable[[], bool]
    until_ms: float
    late: Callable[[], None]


class Cluster:
    """What one member knows; `carry_out` has its effects carried out after each call that may leave some."""

    def __init__(
        self, member: ClusterMember, listener: str, now_ms: Callable[[], float], carry_out: Callable[[], None]
    ) -> None:
        """`listener` is the one for brokers, `now_ms` the broker's clock since boot."""
        self.member = member
        self.listener = listener
        self.fetches = FollowerFetches()
        self.entries = LedgerEntries()
        self.closed = ClosedPorts()
        self._now_ms = now_ms
        self._carry_out = carry_out
        self.contradiction = ""  # why this broker can never be a member as it is; it is about to end then
        self.strays: set[tuple[str, str]] = set()  # topics by name and id on this disk, no deletion of which is known
        self.images = 0  # so many times everything was read, the times before included
        self._complete = False
        self._waiters: list[_Waiter] = []
        self._described: dict[str, DescribedTopic] = {}
        self._names: dict[uuid.UUID, str] = {}  # by id
        self._names_of = -1  # which of the image's changes they are of
        self.on_deleted: Callable[[Sequence[DeletedTopic]], None] = lambda topics: None
        """Hears of topics that are gone before any request does."""
        self.on_moved: Callable[[PartitionLog], None] = lambda log: None
        """Has those that wait for a log ask again; what it leaves is the caller's to apply."""
        self._lease_waits = LeaseWaits(member)
        self._producer_ids = ProducerIds(member.ask, member.unreadable, lambda: member.image.epoch_base)
        self._security: SecurityNode | None = None

    # what is known changes

    def changed(self) -> None:
        """Look again for whoever waits: once behind each turn in which effects were carried out.

        What they leave is among the broker's effects, for the caller to apply; so it is with `tick`, and with what is
        `told`.
        """
        complete = self.member.image.is_complete
        if complete and not self._complete:
            self.images += 1
        self._complete = complete
        if self.member.image.deleted:
            deleted, self.member.image.deleted = self.member.image.deleted, []
            self.on_deleted(deleted)
        if len(self._described) > len(self.topics):
            self._described = {name: each for name, each in self._described.items() if name in self.topics}
        if self._waiters:
            waiters, self._waiters = self._waiters, []
            self._waiters += [each for each in waiters if not each.look()]
        self._look_at_lease()

    def _look_at_lease(self) -> None:
        for log in self._lease_waits.look():
            self.on_moved(log)

    def tick(self, now_ms: float) -> None:
        """Time has passed."""
        self._look_at_lease()
        if any(now_ms >= each.until_ms for each in self._waiters):
            waiters, self._waiters = self._waiters, []
            for each in waiters:
                if now_ms >= each.until_ms:
                    each.late()
                else:
                    self._waiters.append(each)

    def until(self, look: Callable[[], bool], wait_ms: float, late: Callable[[], None]) -> None:
        """Ask `look` at each change until it says True; `late` is called where it has not behind so many ms."""
        self._waiters.append(_Waiter(look, self._now_ms() + wait_ms, late))

    @property
    def now_ms(self) -> float:
        """The time that decisions go by."""
        return self._now_ms()

    # who is there

    @property
    def serves(self) -> bool:
        """Whether this broker is a member now, and knows what there is."""
        return self.member.standing is Standing.SERVING

    @property
    def knows(self) -> bool:
        """Whether all that there was has been read once; until then nothing can be said of what is not known."""
        return self.images > 0

    @property
    def not_serving(self) -> str | None:
        """Why nothing of the cluster can be served or acknowledged here, for people; None: it can."""
        if self.contradiction:
            return f"not a member of the cluster: {self.contradiction}"
        member = self.member
        if not member.connected:
            if member.standing is not Standing.SERVING:
                return "not a member of the cluster: there is no session with ZooKeeper; see zookeeper.connect"
            if not member.lease_holds():
                return "ZooKeeper does not answer, so nothing is acknowledged: another broker may lead by now"
        if member.hindrance:
            return f"not a member of the cluster yet: {member.hindrance}"
        return NOT_YET.get(member.standing)

    @property
    def controller(self) -> int:
        """The broker that holds the office; -1: none that is known, as where ZooKeeper has not answered for long."""
        return self.member.controller.holder if self.member.lease_holds() else NOBODY

    def brokers(self, listener: str) -> list[Node]:
        """Those that are there and serve a listener of this name, by id."""
        found = []
        for broker, registration in sorted(self.member.registrations.items()):
            at = registration.address(listener)
            if at is not None:
                found.append(Node(broker, endpoint_of(at), registration.rack))
        return found

    def serving(self, listener: str) -> Collection[int]:
        """The ids of those that are there and serve a listener of this name."""
        there = self.member.registrations
        return {broker for broker, registration in there.items() if registration.address(listener) is not None}

    @property
    def there(self) -> Collection[int]:
        """The ids of those that are there."""
        return self.member.registrations.keys()

    @property
    def partitions_at_most(self) -> int:
        """How many partitions the broker has that has most."""
        replicas = chain.from_iterable(topic.replicas for topic in self.topics.values())
        return max(Counter(chain.from_iterable(replicas)).values(), default=0)

    def is_member(self, host: str) -> bool:
        """Whether a broker is registered with this address, which a name in its registration never is."""
        for registration in self.member.registrations.values():
            at = registration.address(self.listener)
            if at is not None and endpoint_of(at).host in (host, "localhost" if is_loopback(host) else host):
                return True
        return False

    # topics and their partitions, also those that others hold

    @property
    def topics(self) -> Mapping[str, Topic]:
        """By name, all of the cluster's; `replicas` has the brokers of each partition, the preferred leader first."""
        return self.member.image.topics

    def version(self, name: str) -> int:
        """Of what is known of a topic; -1: nothing."""
        return self.member.image.versions.get(name, -1)

    def described(self, name: str) -> DescribedTopic | None:
        """The topic of a name."""
        topic, known = self.topics.get(name), self._described.get(name)
        if topic is None:
            return None
        if known is None or known.topic is not topic:
            known = DescribedTopic(name, id_of(topic.topic_id), topic.replicas, topic.config, topic)
            self._described[name] = known
        return known

    def described_by_id(self, topic_id: uuid.UUID) -> DescribedTopic | None:
        """The topic of an id."""
        if self._names_of != self.member.image.changes:
            self._names_of = self.member.image.changes
            self._names = {id_of(topic.topic_id): name for name, topic in self.topics.items()}
        name = self._names.get(topic_id)
        return self.described(name) if name is not None else None

    def state(self, topic: str, partition: int) -> PartitionState | None:
        """Leader (NO_LEADER: nobody), leader epoch and in-sync set; None: not known yet, or no such partition."""
        return self.member.state(PartitionId(topic, partition))

    def leader(self, topic: str, partition: int) -> int:
        """Who leads and is there; NO_LEADER."""
        state = self.state(topic, partition)
        if state is None or self.member.is_gone(state.entry(state.leader)):
            return NO_LEADER
        return state.leader

    def leader_to_ask(self, topic: str, partition: int) -> int:
        """Who leads and is there, as clients are told: not one whose port was found closed; NO_LEADER."""
        leader = self.leader(topic, partition)
        if not self.closed:
            return leader
        registration = self.member.registrations.get(leader)
        closed = registration is not None and self.closed.has(leader, registration.epoch, self._now_ms())
        return NO_LEADER if closed else leader

    def is_there(self, state: PartitionState, broker: int) -> bool:
        """Whether a broker of the in-sync set is there under the registration that the set names, and can serve."""
        return may_take_over(state, broker, self.member)

    def is_offline(self, state: PartitionState, broker: int) -> bool:
        """Whether a broker is there and has said that its log is offline."""
        return is_offline(state, broker, self.member.registrations)

    def led(self, topic: str, partition: int) -> Partition | None:
        """The partition, if this broker leads it."""
        found = self.member.partitions.get(PartitionId(topic, partition))
        return found if found is not None and found.role in LEADS else None

    def epoch_led(self, topic: str, partition: int) -> int | None:
        """The leader epoch in which this broker leads a partition; None: it does not."""
        led = self.led(topic, partition)
        return led.leading.epoch if led is not None and led.leading is not None else None

    def surely_leads(self, topic: str, partition: int) -> bool:
        """Whether this broker leads a partition, and nobody can have been elected that it has not heard of."""
        self.member.now_ms = self._now_ms()
        return self.led(topic, partition) is not None and self.member.lease_holds()

    def spares(self) -> bool:
        """Return whether enough other replicas of some partition led here have room; see cluster/partition/room.py."""
        self.member.now_ms = self._now_ms()
        found = self.member.partitions.items()
        return any(each.spares_unpassed for name, each in found if name.topic not in ALWAYS_WRITTEN)

    def evicts_below(self) -> dict[PartitionLog, int]:
        """Return below which offset each log led here is evicted for followers on full disks; see room.py."""
        self.member.now_ms = self._now_ms()
        if not self.member.lease_holds():
            return {}
        found = {}
        for name, each in self.member.partitions.items():
            offset = each.evicts_below if name.topic not in ALWAYS_WRITTEN else None
            replica = self.replica(name) if offset is not None else None
            if replica is not None and offset is not None:
                found[replica.log] = offset
        return found

    def leads(self, partition: PartitionId, leader_epoch: int) -> bool:
        """Whether this broker leads a partition in this epoch."""
        return self.epoch_led(*partition) == leader_epoch

    def replica(self, partition: PartitionId) -> Replica | None:
        """The log of a partition that is held here."""
        found = self.member.partitions.get(partition)
        return cast("Replica", found.log) if found is not None and not isinstance(found.log, NoLog) else None

    def log_end(self, topic: str, partition: int, epoch: int = NEWEST_EPOCH) -> tuple[int, int] | None:
        """The epoch of the last record here, and the log's end; None: no replica of it is open here. Refusal.

        Of another `epoch`: the greatest known one not above it, and where that ended.
        """
        found = self.member.partitions.get(PartitionId(topic, partition))
        if found is not None and not found.log.online:
            raise Refusal(ErrorCode.KAFKA_STORAGE_ERROR, f"the log of {topic}-{partition} is offline here")
        return None if found is None else epoch_end(found.log, epoch)

    def end_here(self, topic: str, partition: int) -> tuple[int, int]:
        """The end of what counts as replicated in this broker's replica, and its log's last epoch; Refusal."""
        found = self.member.partitions.get(PartitionId(topic, partition))
        if found is None:
            raise Refusal(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"no replica of {topic}-{partition} is open here")
        if not found.log.online:
            raise Refusal(ErrorCode.KAFKA_STORAGE_ERROR, f"the log of {topic}-{partition} is offline here")
        return found.log.acknowledged_offset, last_epoch(found.log)

    def fetch_from(self, fetch: ReplicaFetch) -> ReplicaFetched:
        """What a follower is answered, without the records."""
        answer = self.member.fetch_from(fetch, self._now_ms())
        self._carry_out()
        return answer

    def not_led(self, topic: str, partition: int) -> Refusal:
        """What is answered where another broker leads, or none."""
        return Refusal(
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            f"broker {self.member.identity.broker} does not lead {topic}-{partition}; refresh the metadata",
        )

    # writes

    def check_append(self, log: PartitionLog, *, all_in_sync: bool, waits: bool = False) -> None:
        """Refuse what may not be appended now; `all_in_sync`: it comes with acks=all.

        LeaseUnproved where it `waits` until that is known (lease_waits.py).
        """
        if log.topic == JOURNAL_TOPIC:
            return
        found = self.member.partitions.get(PartitionId(log.topic, log.partition))
        self.member.now_ms = self._now_ms()
        error = ErrorCode.NOT_LEADER_OR_FOLLOWER if found is None else found.append_error(all_in_sync=all_in_sync)
        if error is ErrorCode.NOT_ENOUGH_REPLICAS and found is not None:
            text = f"fewer than min.insync.replicas ({found.needed}) keep up; nothing was written"
            raise Refusal(error, f"{log.topic}-{log.partition}: {text}")
        if error is not ErrorCode.NONE:
            if waits and self._lease_waits.waits(log):
                raise LeaseUnproved
            raise self.not_led(log.topic, log.partition)

    def left_behind(self, log: PartitionLog, leader_epoch: int) -> Refusal | None:
        """Why what was appended in an epoch will not be answered: another one leads, and may not have it."""
        if log.topic == JOURNAL_TOPIC:
            return None
        if self.epoch_led(log.topic, log.partition) == leader_epoch:
            return None
        return self.not_led(log.topic, log.partition)

    def late(self, log: PartitionLog) -> Refusal | None:
        """NOT_ENOUGH_REPLICAS_AFTER_APPEND where what was appended is not answered in time for want of replicas."""
        try:
            self.check_append(log, all_in_sync=True)
        except Refusal as refusal:
            if refusal.code == ErrorCode.NOT_ENOUGH_REPLICAS:
                text = f"fewer than min.insync.replicas of {log.topic}-{log.partition} have what was written"
                return Refusal(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, text)
        return None

    def waited_in_vain(self, log: PartitionLog) -> Refusal | None:
        """Why what was not appended is refused in time; where the lease is unproved all behind it is refused, too."""
        self.member.now_ms = self._now_ms()
        if self.member.lease_holds():
            return None
        self._lease_waits.refuse(log)
        text = f"ZooKeeper did not say in time who leads {log.topic}-{log.partition}; nothing was written, retry"
        return Refusal(ErrorCode.REQUEST_TIMED_OUT, text)

    def log_moved(self, log: PartitionLog) -> None:
        """A log was written, or the disk has confirmed more."""
        partition = PartitionId(log.topic, log.partition)
        replica = self.replica(partition)
        if replica is not None:
            replica.wrote()
        self.member.log_moved(partition, self._now_ms())
        self.fetches.each(lambda session: session.moved(partition))
        self._carry_out()

    def latest_offset(self, topic: str, partition: int) -> int | None:
        """The end of what is shown; None: OFFSET_NOT_AVAILABLE, as a former leader may have shown more (KIP-207)."""
        found = self.led(topic, partition)
        return found.latest_offset() if found is not None else None

    # changes; `told` is called on the loop, once

    def take_producer_ids(self, told: Callable[[range | None], None], above: int) -> None:
        """Take producer ids that no broker was given before, none below `above`; None: none could be taken, now."""
        self._producer_ids.take(told, above)
        self._carry_out()

    def share_security(self, told: Callable[[Found], None]) -> None:
        """Have users and ACLs be the cluster's; `told` hears of them whenever they are read."""
        self._security = self.member.share_security(told)

    def write_security(self, data: bytes, found: Found, held: Callable[[bool], None]) -> None:
        """Put this in place of what was found; `held` is called once it is certain whether it holds."""
        if found.standing is NodeStanding.NEVER_MADE:
            self._node().make(data, held)
        elif found.standing is NodeStanding.LOST:
            self._node().make_again(data, held)
        else:
            self._node().write(data, found.version, held)
        self._carry_out()

    def read_security_again(self) -> None:
        """Time has passed: what could not be read is asked for again."""
        self._node().again()
        self._carry_out()

    def _node(self) -> SecurityNode:
        assert self._security is not None, "users and ACLs are not shared"
        return self._security

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
