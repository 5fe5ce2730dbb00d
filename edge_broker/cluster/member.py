"""One broker as a member of a cluster: its session, its registration, its replicas.

| standing | event | next |
|---|---|---|
| apart | Connected | registering: the ephemeral node of its id |
| registering | Stat | recording: the data directory keeps the epoch |
| registering | NODE_EXISTS, another session's | waiting: somebody with this id is there, or was a moment ago |
| waiting | the node is gone | registering |
| recording | recorded | reading: the image, behind a Sync |
| reading | all is read | serving |
| registering to serving | Connected again | the same, and everything is read anew |
| serving | Suspended | serving: its lease decides how long it acks |
| any | Expired | apart: nothing holds, and a new registration comes with a new epoch |
| serving | shut_down | leaving: others lead first; then Left |

All inputs come with the time of the broker's own clock since boot, ms, and leave effects (effects.py). Nothing here
waits. Calls come from one thread, and none from within an effect.

Lives here: who is told what. Must never come in: how partitions decide (partition.py), sockets, a clock.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto
from itertools import count

from edge_broker.cluster.controller import Controller, out_of_balance
from edge_broker.cluster.effects import Ask, Effect, Left, OpenLog, Record, RemoveLog, Send
from edge_broker.cluster.image import Image
from edge_broker.cluster.layout import (
    CONTROLLER,
    ROOTS,
    LayoutFault,
    broker_path,
    encode,
    encode_registration,
)
from edge_broker.cluster.lease import Lease
from edge_broker.cluster.log import ReplicaLog
from edge_broker.cluster.messages import AskEnd, HandOver, Message, ReplicaFetch, ReplicaFetched, TellEnd
from edge_broker.cluster.partition import LEADS, Partition, Settings
from edge_broker.cluster.state import Identity, InSyncReplica, PartitionId, PartitionState, Registration, Topic
from edge_broker.cluster.zookeeper import (
    Answer,
    Connected,
    Create,
    Done,
    Event,
    Exists,
    Expired,
    Failure,
    Request,
    Stat,
    Suspended,
    Sync,
)
from edge_broker.errors import ErrorCode


class Standing(Enum):
    """As above; `leaving` is a wish, not a standing."""

    APART = auto()
    REGISTERING = auto()
    WAITING = auto()
    RECORDING = auto()
    READING = auto()
    SERVING = auto()


class ClusterMember:
    """One broker; `effects` are the shell's to take, in order, after each input."""

    def __init__(
        self,
        identity: Identity,
        settings: Settings,
        rack: str | None = None,
        endpoints: tuple[tuple[str, str], ...] = (),
    ) -> None:
        self.identity = identity
        self.settings = settings
        self._rack, self._endpoints = rack, endpoints
        self.effects: list[Effect] = []
        self.faults: list[LayoutFault] = []  # znodes that cannot be read, until the shell has said so
        self.now_ms = 0.0
        self.connected = False
        self.leaving = False
        self.standing = Standing.APART
        self.session_id = 0
        self.partitions: dict[PartitionId, Partition] = {}
        self.image = Image(self.ask, self)
        self.controller = Controller(identity.broker, self.ask)
        self._lease = Lease()
        self._timeout_ms = 0
        self._tokens = count(1)
        self._waiting: dict[int, Callable[[Answer], None]] = {}
        self._opening: dict[PartitionId, str] = {}
        self._states: dict[PartitionId, tuple[PartitionState, int]] = {}
        self._proof_due_ms = self._balance_due_ms = 0.0
        self._proving = False

    # what partitions ask of their member

    @property
    def registrations(self) -> dict[int, Registration]:
        """Who is there."""
        return self.image.registrations

    def is_gone(self, entry: InSyncReplica | None) -> bool:
        """As Surroundings."""
        return entry is None or self.image.is_gone(entry)

    def lease_holds(self) -> bool:
        """As Surroundings."""
        return self._lease.holds(self.now_ms)

    def out(self, effect: Effect) -> None:
        """As Surroundings."""
        self.effects.append(effect)

    def token(self) -> int:
        """As Surroundings."""
        return next(self._tokens)

    def ask(self, request: Request, then: Callable[[Answer], None]) -> None:
        """Ask ZooKeeper."""
        token = self.token()
        self._waiting[token] = then
        self.out(Ask(token, request))

    # ZooKeeper

    def answered(self, token: int, answer: Answer, now_ms: float) -> None:
        """An answer to an Ask."""
        self.now_ms = now_ms
        self._waiting.pop(token)(answer)

    def happened(self, event: Event, now_ms: float) -> None:
        """The session, or a watch."""
        self.now_ms = now_ms
        if isinstance(event, Connected):
            self._connected(event)
        elif isinstance(event, Suspended):
            self.connected = False
            self.image.end()
            self.controller.end()
        elif isinstance(event, Expired):
            self._expired()
        elif event.path == CONTROLLER:
            self.controller.watched()
        elif event.path == broker_path(self.identity.broker) and self.standing is Standing.WAITING:
            self._register()
        else:
            self.image.watched(event)

    def _connected(self, event: Connected) -> None:
        self.connected = True
        self._timeout_ms = event.timeout_ms
        self._lease.begin(event.timeout_ms)
        if event.session_id != self.session_id:
            self.session_id = event.session_id
            self.standing = Standing.REGISTERING
        self._proving = False
        self._prove()
        self._go_on()

    def _go_on(self) -> None:
        """Take up what a lost connection has interrupted."""
        if self.standing in (Standing.APART, Standing.REGISTERING, Standing.WAITING):
            self._register()
        elif self.standing in (Standing.READING, Standing.SERVING):
            self.image.begin()
            self.controller.connected(self.session_id)

    def _expired(self) -> None:
        self.connected, self.standing, self.session_id = False, Standing.APART, 0
        self._lease.end()
        self.image.end()
        self.controller.end()
        self._states.clear()
        for partition in self.partitions.values():
            partition.stop()

    def _prove(self) -> None:
        """Let the ensemble's leader answer something, for the lease."""
        if self._proving or not self.connected:
            return
        sent_ms, session_id = self.now_ms, self.session_id
        self._proving, self._proof_due_ms = True, sent_ms + self._timeout_ms / 6

        def answered(answer: Answer) -> None:
            self._proving = False
            if answer == Done() and session_id == self.session_id:
                self._lease.proved(sent_ms)
                for partition in list(self.partitions.values()):
                    partition.advance()

        self.ask(Sync(), answered)

    # the registration

    def _register(self) -> None:
        self.standing = Standing.REGISTERING
        for root in ROOTS:
            self.ask(Create(root, encode({})), lambda answer: None)
        registration = Registration(self.identity.broker, 0, self.identity.directory, self._rack, self._endpoints)
        node = Create(broker_path(self.identity.broker), encode_registration(registration), ephemeral=True)
        self.ask(node, self._registered)

    def _registered(self, answer: Answer) -> None:
        if self.standing is not Standing.REGISTERING:
            return
        if isinstance(answer, Stat):
            self._has_epoch(answer)
        elif answer is Failure.NODE_EXISTS:
            self.standing = Standing.WAITING
            self.ask(Exists(broker_path(self.identity.broker), watch=True), self._found)

    def _found(self, answer: Answer) -> None:
        """Whose registration it is: its own, if the answer to its making was lost."""
        if self.standing is not Standing.WAITING:
            return
        if isinstance(answer, Stat) and answer.ephemeral_owner == self.session_id:
            self._has_epoch(answer)
        elif answer is Failure.NO_NODE:
            self._register()

    def _has_epoch(self, stat: Stat) -> None:
        self.standing = Standing.RECORDING
        self.out(Record(stat.czxid))

    def recorded(self, epoch: int, now_ms: float) -> None:
        """The data directory has the epoch, synced: from now on entries that name it speak of this disk."""
        self.now_ms = now_ms
        if self.standing is Standing.RECORDING:
            self.identity = self.identity.registered(epoch)
            self.standing = Standing.READING
            if self.connected:
                self._go_on()

    # the image

    def complete(self) -> None:
        """As Seen."""
        if self.standing is Standing.READING:
            self.standing = Standing.SERVING
        self._reconcile()

    def brokers_changed(self) -> None:
        """As Seen."""
        self._reconcile()

    def topic_changed(self, name: str) -> None:
        """As Seen."""
        topic = self.image.topics.get(name)
        for partition in [each for each in self.partitions if each.topic == name]:
            if topic is None or topic.topic_id != self.partitions[partition].topic.topic_id:
                gone = self.partitions.pop(partition)
                gone.stop()
                self.out(RemoveLog(partition, gone.topic.topic_id))
        for partition in [each for each in self._states if each.topic == name]:
            del self._states[partition]
        for number, replicas in enumerate(topic.replicas if topic is not None else ()):
            if self.identity.broker in replicas:
                self._open(PartitionId(name, number), topic)

    def _open(self, partition: PartitionId, topic: Topic | None) -> None:
        assert topic is not None
        if partition not in self.partitions and self._opening.get(partition) != topic.topic_id:
            self._opening[partition] = topic.topic_id
            self.out(OpenLog(partition, topic.topic_id))

    def opened(self, partition: PartitionId, topic_id: str, log: ReplicaLog, now_ms: float) -> None:
        """The log of a partition is open."""
        self.now_ms = now_ms
        topic = self.image.topics.get(partition.topic)
        if self._opening.get(partition) != topic_id or topic is None or topic.topic_id != topic_id:
            return
        del self._opening[partition]
        self.partitions[partition] = made = Partition(partition, topic, log, self, self.ask)
        if partition in self._states and self.standing is Standing.SERVING:
            made.take_in(*self._states[partition])

    def state_read(self, partition: PartitionId, state: PartitionState, version: int) -> None:
        """As Seen."""
        self._states[partition] = state, version
        found = self.partitions.get(partition)
        if found is not None and self.standing is Standing.SERVING:
            found.take_in(state, version)

    def unreadable(self, fault: LayoutFault) -> None:
        """As Seen."""
        self.faults.append(fault)

    def _reconcile(self) -> None:
        if self.standing is not Standing.SERVING:
            return
        for partition in list(self.partitions.values()):
            if partition.partition in self._states:
                partition.take_in(*self._states[partition.partition])
            partition.reconcile()

    # others

    def received(self, message: Message, now_ms: float) -> None:
        """What another broker says."""
        self.now_ms = now_ms
        found = self.partitions.get(message.partition)
        if isinstance(message, ReplicaFetch):
            answer = (
                found.fetch_from(message)
                if found is not None
                else ReplicaFetched(
                    message.partition,
                    message.leader_epoch,
                    message.fetch_offset,
                    message.last_fetched_epoch,
                    ErrorCode.NOT_LEADER_OR_FOLLOWER,
                )
            )
            self.out(Send(message.replica.broker, answer))
        elif found is None:
            return
        elif isinstance(message, ReplicaFetched):
            found.fetched(message)
        elif isinstance(message, HandOver):
            found.hand_over(message.to)
        elif isinstance(message, AskEnd):
            found.tell_end(message)
        else:
            assert isinstance(message, TellEnd)
            found.end_told(message)

    # the log

    def log_moved(self, partition: PartitionId, now_ms: float) -> None:
        """More is written, or the disk has confirmed more."""
        self.now_ms = now_ms
        if partition in self.partitions:
            self.partitions[partition].log_moved()

    def epoch_begun(self, partition: PartitionId, epoch: int, now_ms: float) -> None:
        """As BeginEpoch."""
        self.now_ms = now_ms
        if partition in self.partitions:
            self.partitions[partition].epoch_begun(epoch)

    def entered(self, partition: PartitionId, token: int, now_ms: float) -> None:
        """As Enter."""
        self.now_ms = now_ms
        if partition in self.partitions:
            self.partitions[partition].entered(token)

    def truncated(self, partition: PartitionId, now_ms: float) -> None:
        """As Truncate."""
        self.now_ms = now_ms
        if partition in self.partitions:
            self.partitions[partition].truncated()

    # time

    def tick(self, now_ms: float) -> None:
        """Time has passed: call it several times within a session timeout."""
        self.now_ms = now_ms
        if now_ms >= self._proof_due_ms:
            self._prove()
        if self.standing is not Standing.SERVING:
            return
        for partition in list(self.partitions.values()):
            partition.tick()
        if self.leaving:
            self._hand_over_all()
        elif self.controller.holds and now_ms >= self._balance_due_ms:
            self._balance_due_ms = now_ms + self.settings.balance_ms
            self._balance()

    def _balance(self) -> None:
        states = {partition: state for partition, (state, _) in self._states.items()}
        for leader, wish in out_of_balance(self.image.topics, states, self.registrations):
            mine = self.partitions.get(wish.partition)
            if leader != self.identity.broker:
                self.out(Send(leader, wish))
            elif mine is not None:
                mine.hand_over(wish.to)

    def shut_down(self, now_ms: float) -> None:
        """Let others lead; Left comes when none of them is needed any more. The caller bounds the wait."""
        self.now_ms, self.leaving = now_ms, True
        self._hand_over_all()

    def _hand_over_all(self) -> None:
        led = [each for each in self.partitions.values() if each.role in LEADS]
        for partition in led:
            any(partition.hand_over(heir) for heir in partition.heirs())
        if not led:
            self.out(Left())
