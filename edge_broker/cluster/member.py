"""One broker as a member of a cluster: its session, its registration, its replicas.

| standing | event | next |
|---|---|---|
| apart | Connected | registering: znodes/protection.py, whose ensemble it is, then the ephemeral node of its id |
| registering | the ensemble has another cluster than the disk, or none | Contradicts |
| registering | Stat | recording: the data directory keeps the epoch |
| registering | NODE_EXISTS, another session's | waiting: a broker with this id is registered, or was a moment ago |
| waiting | the node is gone | registering |
| waiting | it is of another disk, and still there after a session's time and a half | Contradicts |
| waiting | it is of this disk, in an epoch that was not recorded, and still there after five | Contradicts: a copy |
| recording | recorded | reading: the image, after a Sync |
| reading | all is read | serving, or Contradicts where a broker speaks no version that this one does |
| reading | all is read, and address_conflict.py finds an earlier broker | reading, until that one is gone |
| reading | so for a session's time and a half | Contradicts |
| registering to serving | Connected again | the same, and everything is read again |
| serving | Suspended | serving: its lease decides how long it acks |
| any | Expired | apart: nothing holds, and a new registration comes with a new epoch |
| serving | shut_down | leaving: others lead first, and the in-sync sets do not name it; then ShutdownReady |

All inputs come with the time of the broker's own clock since boot, ms, and leave effects (effects.py). Nothing here
waits. Calls come from one thread, and none from within an effect.

Where all partitions have their turn, a bug in one of them costs that one alone: an effect reports it, and it is kept.

Contains: which part receives what. Does not contain: how partitions decide (partition/partition.py), sockets, a clock.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from enum import Enum, auto
from functools import partial
from itertools import count
from typing import Any

from drupelet.ledger import LEDGER_TOPIC
from edge_broker.cluster.address_conflict import contradiction
from edge_broker.cluster.controller import Controller, ControllerState, out_of_balance
from edge_broker.cluster.effects import (
    Ask,
    Broke,
    Configure,
    Contradicts,
    Effect,
    KeepStates,
    OpenLog,
    Record,
    RemoveLog,
    Send,
    ShutdownReady,
    Stray,
)
from edge_broker.cluster.inter_broker_messages import (
    AskEnd,
    EntriesTaken,
    HandOver,
    Message,
    ReplicaFetch,
    ReplicaFetched,
    TellEnd,
)
from edge_broker.cluster.ledger_forwarding import Forwarding
from edge_broker.cluster.partition.election import may_take_over
from edge_broker.cluster.partition.partition import LEADS, Partition, Role, Settings
from edge_broker.cluster.rebuild.copy_keeper import CopyKeeper
from edge_broker.cluster.rebuild.rebuilt_losses import RebuiltLosses
from edge_broker.cluster.session_lease import Lease
from edge_broker.cluster.state.acting import Lines
from edge_broker.cluster.state.cluster_state import (
    LINES_SINCE,
    PROTOCOLS,
    Identity,
    InSyncReplica,
    PartitionId,
    PartitionState,
    Registration,
    Topic,
)
from edge_broker.cluster.state.lines import UNMARKED_LINE, Line
from edge_broker.cluster.state.replica_log_view import NoLog, ReplicaLog
from edge_broker.cluster.state.state_keeper import NEVER_REGISTERED, StateKeeper
from edge_broker.cluster.znodes.metadata_image import Image
from edge_broker.cluster.znodes.ownership import Users
from edge_broker.cluster.znodes.protection import Protection
from edge_broker.cluster.znodes.security_znode import NodeReading, SecurityNode
from edge_broker.cluster.znodes.trusted_reads import TrustedReads
from edge_broker.cluster.znodes.znode_codec import (
    CONTROLLER,
    FORMAT,
    ROOTS,
    SECURITY_STATE,
    LayoutFault,
    broker_path,
    decode_format,
    decode_registration,
    deleted_path,
    encode,
    encode_format,
    encode_registration,
)
from edge_broker.cluster.znodes.zookeeper import (
    Answer,
    Children,
    Connected,
    Create,
    Done,
    Event,
    Exists,
    Expired,
    Failure,
    Get,
    Node,
    Request,
    Stat,
    Suspended,
    Sync,
)
from edge_broker.errors import ErrorCode
from edge_broker.storage.metadata.cluster_copy import ClusterCopy
from edge_broker.storage.metadata.kept_states import KeptStates, LogId

FORMER_LIFE = 1.5  # sessions' times, after which a registration is not of an ended process
PROTECT_AGAIN_MS = 1000.0
CLAIM_AGAIN_MS = 5000.0
CHECK_AGAIN_MS = 10_000.0
UNRECORDED_LIFE = 5.0  # the same of what is most likely a copy, or a life that ended before its epoch was recorded
LEDGER = PartitionId(LEDGER_TOPIC, 0)
ORPHANS_NAMED = 5


class MembershipState(Enum):
    """As above; `leaving` is a wish, not a standing."""

    APART = auto()
    REGISTERING = auto()
    WAITING = auto()
    RECORDING = auto()
    READING = auto()
    SERVING = auto()


class Former(Enum):
    """Whose a registration of this broker's id is, which is there before its own."""

    OWN_LIFE = auto()
    COPYS = auto()  # of this data directory's identity, under an epoch that this one does not know
    OTHERS = auto()


class ClusterMember:
    """One broker; `effects` are the event loop's to take, in order, after each input."""

    def __init__(
        self,
        identity: Identity,
        settings: Settings,
        rack: str | None = None,
        endpoints: tuple[tuple[str, str], ...] = (),
        new_cluster: str = "",
        orphans: tuple[str, ...] = (),
        users: Users | None = None,
        chroot: str = "",
        kept: KeptStates | None = None,
        new_state_id: Callable[[], str] | None = None,
    ) -> None:
        """`new_cluster` is the id of the cluster that this broker begins, where it is the first of all.

        `users` are the brokers' in ZooKeeper, to whom all znodes belong; None: to everybody. `chroot` is the path of
        zookeeper.connect.

        `orphans` are topics that the disk has replicas of, though it does not know its cluster: a broker that has
        some begins no cluster. `kept` are the states that its disk has kept, and `new_state_id` returns a random id;
        without it this broker does as a release that knows no lines of states.
        """
        self.identity = identity
        self.settings = settings
        self._rack, self._endpoints, self._new_cluster = rack, endpoints, new_cluster
        self._orphans = orphans
        self._cluster = identity.cluster
        self._waiting_since_ms = 0.0
        self._former = Former.OWN_LIFE  # whose registration is waited for, as far as is known
        self._contradicts = False
        self.effects: list[Effect] = []
        self.faults: list[LayoutFault] = []  # znodes that cannot be read, until the event loop has said so
        self.now_ms = 0.0
        self.connected = False
        self.leaving = False
        self.standing = MembershipState.APART
        self.hindrance = ""  # why this broker does not serve yet, though everything is read
        self._hindered_since_ms = 0.0
        self.session_id = 0
        self.partitions: dict[PartitionId, Partition] = {}
        self.image = Image(self.ask, self)
        self.security: SecurityNode | None = None
        self.copy: CopyKeeper | None = None
        self.protection: Protection | None = None
        self._trusted: TrustedReads | None = None
        if users is not None:
            self.protection = Protection(self._ask, users, chroot)
            self._trusted = TrustedReads(self._ask, users, self.protection.refuse, self.protection.accept)
        self._believes_all = True  # until the first protection is done
        self._protect_due_ms = self._check_due_ms = 0.0
        self.losses = RebuiltLosses(self.ask, self.emit, self.token, self.unreadable)
        self.forwarding = Forwarding(self.emit)
        self._keeper = StateKeeper(kept or {}, lambda *kept: self.emit(KeepStates(*kept)))
        self._epoch_to_record = NEVER_REGISTERED
        self._keep_due_ms = 0.0  # after a write that failed
        self.lines = Lines(identity, self._keeper, new_state_id) if new_state_id is not None else None
        self.controller = Controller(identity.broker, self.ask, self._first_line)
        self._lease = Lease()
        self._timeout_ms = 0
        self._tokens = count(1)
        self._waiting: dict[int, Callable[[Answer], None]] = {}
        self._opening: dict[PartitionId, str] = {}
        self._states: dict[PartitionId, tuple[PartitionState, int]] = {}
        self._gone: dict[tuple[PartitionId, str], None] = {}  # logs that lie here, and go with their topics
        self._strays: dict[tuple[PartitionId, str], None] = {}  # logs that stay, as no deletion of theirs is known
        self._proof_due_ms = self._balance_due_ms = self._leave_due_ms = 0.0
        self._leave_tries = 0  # that are left
        self._hand_over_at_once = 0
        self._leave_began_ms = self._leave_until_ms = 0.0
        self._given: dict[PartitionId, int] = {}  # what was to be handed over in this try, and to whom
        self._handing: dict[Partition, float] = {}  # of these, those that were not handed over yet, and since when
        self._proving = False
        self._hurried: dict[PartitionId, None] = {}
        self._held: dict[PartitionId, float] = {}  # that met a bug, until then
        self._ticks = 0

    # what partitions ask of their member

    @property
    def registrations(self) -> dict[int, Registration]:
        """The registered brokers."""
        return self.image.registrations

    def is_gone(self, entry: InSyncReplica | None) -> bool:
        """As MemberContext."""
        return entry is None or self.image.is_gone(entry)

    def lease_holds(self) -> bool:
        """As MemberContext."""
        return self._lease.holds(self.now_ms)

    def session_may_live(self) -> bool:
        """Whether the ensemble may still hold the session, by this broker's clock."""
        return self._lease.may_live(self.now_ms)

    def emit(self, effect: Effect) -> None:
        """As MemberContext."""
        self.effects.append(effect)

    def token(self) -> int:
        """As MemberContext."""
        return next(self._tokens)

    def _first_line(self) -> Line:
        return UNMARKED_LINE if self.lines is None else self.lines.first()

    def share_security(self, told: Callable[[NodeReading], None]) -> SecurityNode:
        """Have users and ACLs be the cluster's; `told` hears of them whenever they are read."""
        self.security = SecurityNode(self.ask, told)
        return self.security

    def keep_copy(self, written: ClusterCopy) -> CopyKeeper:
        """Keep what only ZooKeeper knows of the topics on this disk, which has `written` now."""
        self.copy = CopyKeeper(self.ask, self.image, self.emit, written)
        return self.copy

    def copy_kept(self, now_ms: float, *, done: bool) -> None:
        """As KeepCopy; not `done`: the disk refused it."""
        self.now_ms = now_ms
        if self.copy is not None:
            self.copy.copy_written(now_ms, done=done)

    def ask(self, request: Request, then: Callable[[Answer], None]) -> None:
        """Ask ZooKeeper; a foreign znode is answered NO_AUTH."""
        if self._trusted is not None and not self._believes_all and isinstance(request, Get | Exists | Children):
            self._trusted.read(request, then)
        elif self.protection is not None and isinstance(request, Create) and request.path in self.protection.refused:
            self._ask(request, partial(self._znode_created, request.path, then))
        else:
            self._ask(request, then)

    def _znode_created(self, path: str, then: Callable[[Answer], None], answer: Answer) -> None:
        """A znode that was foreign is this broker's, if it could be created."""
        if isinstance(answer, Stat) and self.protection is not None:
            self.protection.accept(path)
        then(answer)

    def _ask(self, request: Request, then: Callable[[Answer], None]) -> None:
        token = self.token()
        self._waiting[token] = then
        self.emit(Ask(token, request))

    # ZooKeeper

    def answer_received(self, token: int, answer: Answer, now_ms: float) -> None:
        """An answer to an Ask."""
        self.now_ms = now_ms
        self._waiting.pop(token)(answer)
        if self.standing is MembershipState.SERVING and any(one.role is not Role.HANDING_OVER for one in self._handing):
            self._go_on_leaving()  # others have their turn, without waiting for a tick

    def event_received(self, event: Event, now_ms: float) -> None:
        """The session, or a watch."""
        self.now_ms = now_ms
        if isinstance(event, Connected):
            self._session_connected(event)
        elif isinstance(event, Suspended):
            self.connected = False
            self.image.end()
            self.controller.end()
            self._end_security()
            self._end_protection()
        elif isinstance(event, Expired):
            self._session_expired()
        elif event.path == CONTROLLER:
            self.controller.znode_changed()
        elif event.path == SECURITY_STATE:
            if self.security is not None:
                self.security.node_changed()
        elif event.path == broker_path(self.identity.broker) and self.standing is MembershipState.WAITING:
            self._register()
        else:
            self.image.watch_fired(event)

    def _session_connected(self, event: Connected) -> None:
        self.connected = True
        self._timeout_ms = event.timeout_ms
        self._lease.begin(event.timeout_ms)
        if event.session_id != self.session_id:
            self.session_id = event.session_id
            self.standing, self.hindrance = MembershipState.REGISTERING, ""
        self._proving = False
        self._prove()
        self._resume()

    def _resume(self) -> None:
        """Take up what a lost connection has interrupted."""
        if self.standing in (MembershipState.APART, MembershipState.REGISTERING, MembershipState.WAITING):
            self._register()
        elif self.standing in (MembershipState.READING, MembershipState.SERVING):
            self.image.begin()
            self.controller.session_connected(self.session_id)
            if self.security is not None:
                self.security.begin()

    def _end_security(self) -> None:
        if self.security is not None:
            self.security.end()

    def _end_protection(self) -> None:
        if self.protection is not None:
            self.protection.end()

    def _session_expired(self) -> None:
        self.connected, self.standing, self.session_id, self.hindrance = False, MembershipState.APART, 0, ""
        self._lease.end()
        self.image.end()
        self.controller.end()
        self._end_security()
        self._end_protection()
        self._states.clear()
        for partition in list(self.partitions.values()):
            self._guard_call(partition, partition.stop)

    def _prove(self) -> None:
        """Let the ensemble's leader answer something, for the lease."""
        if self._proving or not self.connected:
            return
        sent_ms, session_id = self.now_ms, self.session_id
        self._proving, self._proof_due_ms = True, sent_ms + self._timeout_ms / 6

        def proof_answered(answer: Answer) -> None:
            self._proving = False
            if answer == Done() and session_id == self.session_id:
                held = self._lease.holds(self.now_ms)
                self._lease.session_proved(sent_ms)
                for partition in list(self.partitions.values()) if not held else ():
                    self._guard_call(partition, partition.advance_high_watermark)  # it could not meanwhile

        self.ask(Sync(), proof_answered)

    # the registration

    def _contradict(self, sentence: str) -> None:
        if not self._contradicts:
            self._contradicts = True
            self.emit(Contradicts(sentence))

    def _register(self) -> None:
        self.standing = MembershipState.REGISTERING
        if not (self.identity.cluster or self._orphans):
            self.ask(Create(FORMAT, encode_format(self._new_cluster)), lambda answer: None)
        if self.protection is None:
            self.ask(Get(FORMAT), self._have_format)
        else:
            self.protection.begin(self.identity.cluster, self.identity.broker, self._protection_ended)

    def _protection_ended(self, problem: str) -> None:
        if self.standing is not MembershipState.REGISTERING:
            return
        if problem:
            self._hinder(problem)
            self._protect_due_ms = self.now_ms + PROTECT_AGAIN_MS
            return
        self.hindrance = ""
        if self.protection is not None and self.protection.is_done:
            self._believes_all = False
            self.ask(Get(FORMAT), self._have_format)
        else:
            self._ask(Get(FORMAT), self._have_format)  # it says why this broker cannot join

    def _have_format(self, answer: Answer) -> None:
        if self.standing is not MembershipState.REGISTERING or not isinstance(answer, Node | Failure):
            return
        mine = self.identity.cluster
        if isinstance(answer, Node):
            try:
                found = decode_format(answer)
            except LayoutFault as fault:
                self._contradict(f"{fault}; upgrade this broker, or correct zookeeper.connect")
                return
            self._cluster, self.image.epoch_base = found.cluster, found.epoch_base
            if self.lines is not None:
                self.lines.epoch_base = found.epoch_base
            if found.rebuilding:
                self._contradict(
                    "the znodes of the ensemble at zookeeper.connect are being rebuilt; let `edge-broker cluster "
                    "rebuild` come to its end first: nothing here was touched"
                )
                return
            if mine and mine != self._cluster:
                self._contradict(
                    f"the ensemble at zookeeper.connect has cluster {self._cluster}, and this data directory belongs "
                    f"to cluster {mine}; correct zookeeper.connect, or use another data directory"
                )
                return
            self._register_there()
        elif answer is Failure.NO_NODE and mine:
            self._contradict(
                f"the ensemble at zookeeper.connect knows no cluster, and this data directory belongs to cluster "
                f"{mine}; correct zookeeper.connect, restore the ensemble's data, or make new znodes "
                "(`edge-broker cluster rebuild --help`): nothing here was touched"
            )
        elif answer is Failure.NO_NODE and self._orphans:
            shown = ", ".join(self._orphans[:ORPHANS_NAMED]) + ", …" * (len(self._orphans) > ORPHANS_NAMED)
            self._contradict(
                f"the ensemble at zookeeper.connect knows no cluster, and this data directory has replicas ({shown}) "
                "of one whose id went with the file registrations: a new cluster would serve none of them; correct "
                "zookeeper.connect, restore the ensemble's data and that file, make new znodes from the boards "
                "that have theirs (`edge-broker cluster rebuild --help`), or use another data directory: nothing here "
                "was touched"
            )
        elif answer is Failure.NO_AUTH and self.protection is not None and FORMAT in self.protection.refused:
            self._contradict(
                f"znode {FORMAT} of the ensemble at zookeeper.connect is not the brokers' alone, so it is not "
                "believed; correct edge.zookeeper.digest.file or zookeeper.connect, or restore the ensemble's data"
            )
        elif answer in (Failure.NO_AUTH, Failure.REFUSED, Failure.NO_NODE):
            self._contradict(
                "the ensemble at zookeeper.connect does not let this broker read or make its nodes; check the chroot, "
                "which must be there, and zookeeper's user and password"
            )

    def _register_there(self) -> None:
        for root in ROOTS:
            self.ask(Create(root, encode({})), lambda answer: None)
        protocols = PROTOCOLS if self.lines is not None else (PROTOCOLS[0], LINES_SINCE - 1)
        where = (self.identity.directory, self._rack, self._endpoints, protocols)
        node = encode_registration(Registration(self.identity.broker, 0, *where))
        self.ask(Create(broker_path(self.identity.broker), node, ephemeral=True), self._registration_answered)

    def _registration_answered(self, answer: Answer) -> None:
        if self.standing is not MembershipState.REGISTERING:
            return
        if isinstance(answer, Stat):
            self._has_epoch(answer)
        elif answer is Failure.NODE_EXISTS:
            self.standing = MembershipState.WAITING
            self._waiting_since_ms, self._former = self._waiting_since_ms or self.now_ms, Former.OWN_LIFE
            self.ask(Get(broker_path(self.identity.broker), watch=True), self._registration_read)

    def _registration_read(self, answer: Answer) -> None:
        """Whose registration it is: its own, if the answer to its making was lost."""
        if self.standing is not MembershipState.WAITING:
            return
        if isinstance(answer, Node) and answer.stat.ephemeral_owner == self.session_id:
            self._has_epoch(answer.stat)
        elif isinstance(answer, Node):
            found = decode_registration(self.identity.broker, answer, self.image.epoch_base)
            self._former = _former(self.identity, found)
        elif answer is Failure.NO_NODE:
            self._register()

    def _wait_for_previous_session(self) -> None:
        """Its own session ends some time, however long elections of the ensemble put that off; another's does not."""
        waited, me = self.now_ms - self._waiting_since_ms, self.identity.broker
        if self._former is Former.OTHERS and waited > self._timeout_ms * FORMER_LIFE:
            self._contradict(f"another broker has broker.id {me} and is alive; give one of the two another broker.id")
        elif self._former is Former.COPYS and waited > self._timeout_ms * UNRECORDED_LIFE:
            self._contradict(
                f"another broker has broker.id {me} and a copy of this data directory, and is alive; stop one of the "
                "two, or give it another broker.id and an empty data directory"
            )

    def _has_epoch(self, stat: Stat) -> None:
        self.standing, self._waiting_since_ms = MembershipState.RECORDING, 0.0
        self._epoch_to_record = self.image.epoch_base + stat.czxid
        if self.lines is None or self._keeper.registered_epoch == self._epoch_to_record:
            self.emit(Record(self._epoch_to_record, self._cluster))
        else:
            self._keeper.register(self._epoch_to_record)  # `states_kept` goes on

    def epoch_recorded(self, epoch: int, now_ms: float) -> None:
        """The data directory has the epoch, synced: from now on entries that name it speak of this disk."""
        self.now_ms = now_ms
        if self.standing is MembershipState.RECORDING:
            self.identity = self.identity.with_registration(epoch, self._cluster)
            if self.lines is not None:
                self.lines.identity = self.identity
            self.standing = MembershipState.READING
            if self.connected:
                self._resume()

    def states_kept(self, now_ms: float, *, done: bool) -> None:
        """As KeepStates; not `done`: the disk refused it, and `tick` asks again."""
        self.now_ms = now_ms
        if self.lines is not None:
            self.lines.fails = not done
        if not done:
            self._keeper.abandon_write()
            self._keep_due_ms = now_ms + self.settings.keep_retry_ms
            return
        is_registered = self._keeper.registered_epoch
        changed = set(self._keeper.finish_write())
        if self._keeper.registered_epoch not in (is_registered, NEVER_REGISTERED):
            self._kept_registration()
        for partition in list(self.partitions.values()):
            if LogId(partition.topic.topic_id, partition.partition.partition) in changed:
                self._guard_call(partition, partition.state_kept)

    def _kept_registration(self) -> None:
        if self.standing is MembershipState.RECORDING and self._keeper.registered_epoch == self._epoch_to_record:
            self.emit(Record(self._epoch_to_record, self._cluster))

    # the image

    def complete(self) -> None:
        """As ImageListener."""
        if self.standing is MembershipState.READING:
            if self._is_hindered():
                return  # until brokers change
            self.standing = MembershipState.SERVING
            self._look_at_protocols()
        if self.copy is not None:
            self.copy.read_again()
        if self.image.epoch_base:
            self.losses.read_again(self.identity)
        self._gone |= self._strays  # the ensemble may have other data than before
        self._strays.clear()
        self._look_at_gone()
        self._reconcile()

    def brokers_changed(self) -> None:
        """As ImageListener."""
        if self.standing is MembershipState.READING and self.image.is_complete:
            self.complete()
            return
        self._look_at_protocols()
        self._reconcile()

    def _is_hindered(self) -> bool:
        mine = self.registrations.get(self.identity.broker)
        self._hinder(contradiction(mine, self.registrations.values()) if mine is not None else "")
        return bool(self.hindrance)

    def _hinder(self, sentence: str) -> None:
        before, self.hindrance = self.hindrance, sentence
        if sentence and not before:
            self._hindered_since_ms = self.now_ms

    def _look_at_protocols(self) -> None:
        """Give way to a registered broker that this one cannot talk to."""
        if self.lines is not None:
            self.lines.older_release = any(each.protocols[1] < LINES_SINCE for each in self.registrations.values())
        for other in self.registrations.values():
            oldest, newest = other.protocols
            shared = oldest <= PROTOCOLS[1] and PROTOCOLS[0] <= newest
            if not shared and self.identity.epochs and other.epoch < self.identity.epochs[-1]:
                self._contradict(
                    f"broker {other.broker} speaks versions {oldest} to {newest} of what brokers say to each other, "
                    f"and this one {PROTOCOLS[0]} to {PROTOCOLS[1]}; upgrade by way of a release between the two"
                )

    def topic_changed(self, name: str) -> None:
        """As ImageListener."""
        topic = self.image.topics.get(name)
        if self.copy is not None:
            self.copy.topic_changed(name)
        for partition in [each for each in self.partitions if each.topic == name]:
            found = self.partitions[partition]
            if topic is not None and self._has_replica(topic, found.topic.topic_id, partition):
                self._guard_call(found, found.configure, topic)
            else:  # the log stays: an older copy of the ensemble's data has fewer partitions than the disks
                del self.partitions[partition]
                self._guard_call(found, found.stop)
                self._held.pop(partition, None)
                self._gone[partition, found.topic.topic_id] = None
        self._look_at_gone()
        for partition in [each for each in self._opening if each.topic == name]:
            if topic is None or not self._has_replica(topic, self._opening[partition], partition):
                del self._opening[partition]
        for partition in [each for each in self._states if each.topic == name]:
            if topic is None or partition.partition >= len(topic.replicas):
                del self._states[partition]
        if topic is not None and self.standing is not MembershipState.APART:
            self.emit(Configure(name, topic.config, len(topic.replicas)))
        for number, replicas in enumerate(topic.replicas if topic is not None else ()):
            if self.identity.broker in replicas:
                self._open(PartitionId(name, number), topic)

    def _has_replica(self, topic: Topic, topic_id: str, partition: PartitionId) -> bool:
        """Return whether a topic is the one of this id, and gives this broker a replica of a partition."""
        return topic.topic_id == topic_id and topic.gives(partition.partition, self.identity.broker)

    def has(self, partition: PartitionId, topic_id: str) -> None:
        """A log that the disk had before this life, and that the cluster may not know any more."""
        self._gone[partition, topic_id] = None
        self._look_at_gone()

    def _look_at_gone(self) -> None:
        """Remove logs of topics that were deleted; others that are not known stay: the ensemble may be an old copy."""
        if not self.image.is_complete:
            return
        for partition, topic_id in list(self._gone):
            topic = self.image.topics.get(partition.topic)
            if topic is None or topic.topic_id != topic_id:  # else it may be deleted yet, by any broker with replicas
                del self._gone[partition, topic_id]
                self.ask(Exists(deleted_path(topic_id)), partial(self._looked_at_gone, partition, topic_id))

    def _looked_at_gone(self, partition: PartitionId, topic_id: str, answer: Answer) -> None:
        if isinstance(answer, Stat):
            if self.lines is not None:
                self.lines.forget(LogId(topic_id, partition.partition))
            self.emit(RemoveLog(partition, topic_id))
        elif answer is Failure.NO_NODE:
            self._strays[partition, topic_id] = None
            self.emit(Stray(partition.topic, topic_id))
        else:
            self._gone[partition, topic_id] = None  # asked again when everything was read again

    def _open(self, partition: PartitionId, topic: Topic | None) -> None:
        assert topic is not None
        if partition not in self.partitions and self._opening.get(partition) != topic.topic_id:
            self._opening[partition] = topic.topic_id
            self.emit(OpenLog(partition, topic.topic_id))

    def log_opened(self, partition: PartitionId, topic_id: str, log: ReplicaLog, now_ms: float) -> None:
        """The log of a partition is open; one whose topic went meanwhile goes, too, and may be in a new one's way."""
        self.now_ms = now_ms
        topic = self.image.topics.get(partition.topic)
        if self._opening.get(partition) != topic_id or topic is None or topic.topic_id != topic_id:
            found = self.partitions.get(partition)
            if found is None or found.topic.topic_id != topic_id:
                self.has(partition, topic_id)
            return
        del self._opening[partition]
        before = self.partitions.get(partition)
        if before is not None:
            self._guard_call(before, before.stop)  # it had no log
        self._begin(Partition(partition, topic, log, self, self.ask))

    def log_obstructed(self, partition: PartitionId, topic_id: str, now_ms: float) -> None:
        """Files that stay on the disk block a log: let others lead, who would wait for this one."""
        self.now_ms = now_ms
        topic = self.image.topics.get(partition.topic)
        if self._opening.get(partition) == topic_id and topic is not None and partition not in self.partitions:
            self._begin(Partition(partition, topic, NoLog(), self, self.ask))

    def _begin(self, made: Partition) -> None:
        self.partitions[made.partition] = made
        if made.partition in self._states and self.standing is MembershipState.SERVING:
            made.take_in(*self._states[made.partition])

    def state_read(self, partition: PartitionId, state: PartitionState, version: int) -> None:
        """As ImageListener."""
        self.state_written(partition, state, version)
        found = self.partitions.get(partition)
        if found is not None and self.standing is MembershipState.SERVING:
            found.take_in(state, version)

    def state_written(self, partition: PartitionId, state: PartitionState, version: int) -> None:
        """As MemberContext: from now on clients see this state, though the image has yet to read it."""
        if version >= self._states.get(partition, (state, -1))[1]:
            self._states[partition] = state, version

    def unreadable(self, fault: LayoutFault) -> None:
        """As ImageListener."""
        self.faults.append(fault)

    def _reconcile(self) -> None:
        if self.standing is not MembershipState.SERVING:
            return
        for partition in list(self.partitions.values()):
            if partition.partition in self._states:
                self._guard_call(partition, partition.take_in, *self._states[partition.partition])
            self.tick_until_calm(partition.partition)
            self._guard_call(partition, partition.reconcile)

    def state(self, partition: PartitionId) -> PartitionState | None:
        """Return what is known of a partition, on this broker or another."""
        found = self._states.get(partition)
        return found[0] if found is not None else None

    # others

    def message_received(self, message: Message, now_ms: float) -> None:
        """Receive a message of another broker."""
        self.now_ms = now_ms
        found = self.partitions.get(message.partition)
        if isinstance(message, ReplicaFetch):
            self.emit(Send(message.replica.broker, self.fetch_from(message, now_ms)))
        elif isinstance(message, EntriesTaken):
            self.forwarding.answer_received(message.turn, message.error, message.end_offset, now_ms)
        elif found is None:
            return
        elif isinstance(message, ReplicaFetched):
            found.fetch_answered(message)
        elif isinstance(message, HandOver):
            found.hand_over_on_request(message.to)
        elif isinstance(message, AskEnd):
            found.tell_end(message)
        else:
            assert isinstance(message, TellEnd), "entries are taken by the shell, which has logs"
            found.end_told(message)

    def fetch_from(self, fetch: ReplicaFetch, now_ms: float, *, is_new: bool = True) -> ReplicaFetched:
        """The answer to a follower, without the records; not `is_new`: its fetch waits, and is evaluated again."""
        self.now_ms = now_ms
        found = self.partitions.get(fetch.partition)
        return found.fetch_from(fetch, is_new=is_new) if found else fetch.answer(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def connected_to(self, leader: int, now_ms: float) -> None:
        """A connection to a broker is there, on which nothing was asked."""
        self.now_ms = now_ms
        for partition in list(self.partitions.values()):
            self._guard_call(partition, partition.fetch_again, leader)

    def port_closed(self, broker: int, epoch: int, now_ms: float) -> None:
        """The port of a broker with this registration was found closed: it leaves in-sync sets until it fetches."""
        self.now_ms = now_ms
        for partition in list(self.partitions.values()):
            self._guard_call(partition, partition.port_closed, broker, epoch)

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

    def losses_recorded(self, partition: PartitionId, token: int, now_ms: float) -> None:
        """As Enter."""
        self.now_ms = now_ms
        if not self.losses.losses_recorded(token) and partition in self.partitions:
            self.partitions[partition].losses_recorded(token)

    def owned_up(self, partition: PartitionId, now_ms: float) -> None:
        """As OwnUp."""
        self.now_ms = now_ms
        if partition in self.partitions:
            self.partitions[partition].owned_up()

    def log_reopened(self, partition: PartitionId, now_ms: float) -> None:
        """As Reopen."""
        self.now_ms = now_ms
        if partition in self.partitions:
            self.partitions[partition].log_reopened()

    def log_truncated(self, partition: PartitionId, now_ms: float) -> None:
        """As Truncate, StartAnew, CutDamage, PassOver."""
        self.now_ms = now_ms
        if partition in self.partitions:
            self.partitions[partition].log_truncated()

    # the journal of what this board lost

    def entries_forgotten(self, now_ms: float, *, done: bool) -> None:
        """As Forget; not `done`: the disk refused it."""
        self.now_ms = now_ms
        self.forwarding.entries_forgotten(now_ms, done=done)

    @property
    def ledger_leader(self) -> int | None:
        """The registered leader of `__edge_ledger`; None: none, as far as is known."""
        state = self.state(LEDGER)
        return None if state is None or self.is_gone(state.entry(state.leader)) else state.leader

    # time

    def tick(self, now_ms: float) -> None:
        """Time has passed: call it several times within a session timeout."""
        self.now_ms = now_ms
        if now_ms >= self._keep_due_ms:
            self._keeper.retry()
        if now_ms >= self._proof_due_ms:
            self._prove()
        if self.standing is MembershipState.WAITING:
            self._wait_for_previous_session()
        if self.hindrance and self.now_ms > self._hindered_since_ms + self._timeout_ms * FORMER_LIFE:
            self._contradict(self.hindrance)
        elif self.hindrance and self.standing is MembershipState.REGISTERING and now_ms >= self._protect_due_ms:
            self._protect_due_ms = now_ms + PROTECT_AGAIN_MS
            self._register()
        if self.leaving and not self.connected and now_ms >= self._leave_began_ms + self.settings.hand_over_ms_max:
            self.emit(ShutdownReady())  # without ZooKeeper no other broker can lead
        if self.standing is not MembershipState.SERVING:
            return
        self._check_shared_root()
        self._tick_partitions()
        self.losses.tick(self.partitions)
        if self.copy is not None:
            self.copy.tick(self.identity.epochs[-1], now_ms)
        self.forwarding.tick(now_ms, self.ledger_leader)
        if self.leaving:
            if now_ms >= self._leave_due_ms:
                self._go_on_leaving()
        elif self.controller.state is ControllerState.BARRED and now_ms >= self._protect_due_ms:
            self._protect_due_ms = now_ms + CLAIM_AGAIN_MS
            self.controller.claim_again()
        elif self.controller.holds and now_ms >= self._balance_due_ms:
            self._balance_due_ms = now_ms + self.settings.balance_ms
            self._balance()

    def _check_shared_root(self) -> None:
        """Where a stranger can replace /controller, its holder hears of that by no watch, as it created the znode."""
        if self.protection is None or self.protection.is_complete or self.now_ms < self._check_due_ms:
            return
        self._check_due_ms = self.now_ms + CHECK_AGAIN_MS
        self.protection.check_again()
        self.controller.znode_changed()

    def _tick_partitions(self) -> None:
        """All that are in a hurry, and a share of the others; fetches are sent when they are due."""
        for partition in list(self._hurried):
            found = self.partitions.get(partition)
            if found is not None:
                self._tick_one(found)
            if found is None or found.calm:
                del self._hurried[partition]
        if self._ticks % self.settings.ticks_of_fetches == 0:
            self._fetch_what_is_due()
        self._ticks += 1
        share = self.settings.ticks_of_calm
        for found in list(self.partitions.values())[self._ticks % share :: share]:
            self._tick_one(found)
            if not found.calm:
                self._hurried[found.partition] = None

    def _fetch_what_is_due(self) -> None:
        """One request for all partitions of a leader that are due at about the same time; else each has its own."""
        now_ms, leaders = self.now_ms, set()
        for found in self.partitions.values():
            following = found.following
            if following is not None and following.due_ms <= now_ms:
                leaders.add(following.leader)
        for found in list(self.partitions.values()) if leaders else ():
            following = found.following
            if following is not None and following.leader in leaders and found.partition not in self._held:
                self._guard_call(found, found.fetch_with_others)

    def _tick_one(self, partition: Partition) -> None:
        if self.now_ms >= self._held.get(partition.partition, self.now_ms):
            self._held.pop(partition.partition, None)
            self._guard_call(partition, partition.tick)

    def _guard_call(self, partition: Partition, call: Callable[..., object], *arguments: Any) -> None:
        """Let a partition decide; a bug in that stops it alone, and the next ones have their turn."""
        try:
            call(*arguments)
        except Exception as error:  # noqa: BLE001 - a bug; the event loop says so
            self._held[partition.partition] = self.now_ms + self.settings.held_ms
            self.emit(Broke(partition.partition, error))

    def tick_until_calm(self, partition: PartitionId) -> None:
        """As MemberContext."""
        self._hurried[partition] = None

    def _balance(self) -> None:
        states = {partition: state for partition, (state, _) in self._states.items()}
        for leader, wish in out_of_balance(
            self.image.topics, states, self.registrations, self.settings.imbalance_percent
        ):
            mine = self.partitions.get(wish.partition)
            if leader != self.identity.broker:
                self.emit(Send(leader, wish))
            elif mine is not None:
                mine.hand_over_on_request(wish.to)

    def elect_preferred(self, partition: PartitionId, now_ms: float) -> ErrorCode:
        """Ask the leader to hand over to the preferred one; NONE: it was asked."""
        self.now_ms = now_ms
        topic, state = self.image.topics.get(partition.topic), self.state(partition)
        if topic is None or not 0 <= partition.partition < len(topic.replicas):
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        preferred = topic.replicas[partition.partition][0]
        led = state is not None and not self.is_gone(state.entry(state.leader))
        if led and state is not None and state.leader == preferred:
            return ErrorCode.ELECTION_NOT_NEEDED
        if state is not None and not may_take_over(state, preferred, self):
            return ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
        if state is None or not led:
            return ErrorCode.LEADER_NOT_AVAILABLE
        if state.leader != self.identity.broker:
            self.emit(Send(state.leader, HandOver(partition, preferred)))
        elif partition in self.partitions:
            self.partitions[partition].hand_over_on_request(preferred)
        return ErrorCode.NONE

    def shut_down(self, now_ms: float) -> None:
        """Let others lead, and leave the in-sync sets; ShutdownReady comes when none of them needs it any more.

        The caller bounds the wait.
        """
        self.now_ms, self.leaving = now_ms, True
        self._leave_began_ms = now_ms
        self._leave_tries, self._leave_due_ms = self.settings.leave_tries, now_ms
        led = sum(each.role in LEADS for each in self.partitions.values())
        self._hand_over_at_once = max(self.settings.hand_over_at_once, led // self.settings.hand_over_turns_max)
        self._given.clear()
        self._go_on_leaving()

    def _go_on_leaving(self) -> None:
        """First the lead: one try for each partition, a few at once; one that took too long is led on for a while."""
        self._handing = {each: at_ms for each, at_ms in self._handing.items() if each.role is Role.HANDING_OVER}
        haste_ms = self.now_ms - self.settings.hand_over_slow_ms
        room = self._hand_over_at_once - sum(at_ms > haste_ms for at_ms in self._handing.values())
        led = [each for each in self.partitions.values() if each.role in LEADS]
        for partition in led if self._leave_tries > 0 else ():
            if room > 0 and partition.partition not in self._given and self._give(partition):
                room -= 1
        if self._handing or self._begins():
            return
        late = [partition for partition in led if partition.partition in self._given and partition.possible_leaders({})]
        if self._leave_tries > 0:
            self._given.clear()
            self._leave_tries = self._leave_tries - 1 if late else 0
            if self._leave_tries > 0:
                self._leave_due_ms = self.now_ms + self.settings.leave_backoff_ms
                return
            self._leave_until_ms = self.now_ms + self.settings.hand_over_ms_max
        self._leave_in_sync_sets()

    def _begins(self) -> bool:
        """Whether this broker is about to lead something, as where another one has just stopped: that goes on, too."""
        if self.now_ms >= self._leave_began_ms + self.settings.hand_over_ms_max:
            return False
        return any(each.role is Role.BEGINNING for each in self.partitions.values())

    def _give(self, partition: Partition) -> bool:
        """Give each new leader about as many: each has to write where its epochs begin."""
        for heir in partition.possible_leaders(Counter(self._given.values())):
            if partition.hand_over(heir):
                self._given[partition.partition], self._handing[partition] = heir, self.now_ms
                return True
        return False

    def _leave_in_sync_sets(self) -> None:
        """A few at once; who waits for all in sync does not wait for this broker, then."""
        named = [each for each in self.partitions.values() if each.may_leave] if self.connected else []
        if named and self.now_ms < self._leave_until_ms:
            for partition in named[: self.settings.leave_at_once]:
                partition.leave()
        else:
            self.emit(ShutdownReady())


def _former(identity: Identity, found: Registration) -> Former:
    if identity.is_named_by(found.replica):
        return Former.OWN_LIFE
    return Former.COPYS if found.directory == identity.directory else Former.OTHERS
