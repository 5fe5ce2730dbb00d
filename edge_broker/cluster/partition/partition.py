"""One replica of a partition: its leader, its claim of the lead, its work as leader.

| role | event | next |
|---|---|---|
| idle | the state names a leader that is there | following |
| idle, following | the leader is gone, and this one is the candidate | claiming: it writes itself |
| claiming | the state is confirmed | by that |
| any | the state names this broker under its registration of now | beginning: the epoch's entry is synced |
| the same, a write in progress | log_moved | beginning: its epoch begins after the fetched records |
| beginning | epoch_begun | leading |
| leading | a request for another leader | leading, until lead_transfer.py grants or drops it |
| leading | a request is granted, or this broker stops | handing over: no appends, until the other has everything |
| handing over | the other has everything; written | following it, and where it is to stop, out of the in-sync set, which stays large enough |
| handing over | too late | leading |
| leading | its disk is full | as room.py says: handing over to a replica with room, out of the in-sync set, which stays large enough |
| following | the broker is to stop | it leaves the in-sync set by a write, where the set stays large enough; then it fetches no more |
| beginning, leading, handing over | the state names another leader or epoch | as above |
| any | the in-sync set names this broker with another disk, or the log is offline | it leaves the set by a write, or says there that its log is offline, where the set would become too small |
| any | the log is offline | it is retried each `reopen_ms`; a missing one is replaced by an empty one, once the set does not name it |
| any | the log is back | it takes back by a write what it has said |
| any role | the log may miss acknowledged records, and the set has other members | it leaves the set |
| any | the log is damaged | as damaged_replica_rules.py says |
| any | the session ended | idle, and nothing of the old state holds |

Every confirmed state comes in by `take_in`, in the order of the znode's versions; `reconcile` then does what is
due. So it does not matter who changed the state, nor whether the own write or a watch reported it first.

Contains: one partition. Does not contain: how messages travel, other partitions. Source: KIP-101, KIP-966.
"""  # noqa: E501

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from typing import NamedTuple, Protocol

from edge_broker.cluster.effects import (
    AdvanceHighWatermark,
    Append,
    BeginEpoch,
    CutDamage,
    Effect,
    Enter,
    LeadershipResigned,
    Leads,
    LostRange,
    Objects,
    OwnUp,
    PassOver,
    RemoveFront,
    Reopen,
    Send,
    StartAnew,
    Truncate,
)
from edge_broker.cluster.inter_broker_messages import AskEnd, EpochEnd, ReplicaFetch, ReplicaFetched, TellEnd
from edge_broker.cluster.partition import election
from edge_broker.cluster.partition.damaged_replica_rules import steps_back, without_damaged
from edge_broker.cluster.partition.election import LogEnds, Registrations
from edge_broker.cluster.partition.follower_state import (
    KEPT_OUT_MS,
    Cut,
    Cutting,
    Following,
    Step,
    keeps_out,
    lost_by,
    truncation_end,
)
from edge_broker.cluster.partition.lead_transfer import LeadTransfer
from edge_broker.cluster.partition.leader_state import Follower, Leading, epoch_error, is_known, is_removed
from edge_broker.cluster.partition.room import (
    ROOM_KEPT_MS,
    full_followers,
    has_room,
    others_with_room,
    room_offset,
)
from edge_broker.cluster.state.acting import Lines
from edge_broker.cluster.state.cluster_state import (
    Identity,
    InSyncReplica,
    PartitionId,
    PartitionState,
    Topic,
)
from edge_broker.cluster.state.isr_rules import changed_isr, high_watermark
from edge_broker.cluster.state.lines import UNMARKED_LINE, next_epoch
from edge_broker.cluster.state.replica_log_view import NEWEST_EPOCH, ReplicaLog, epoch_end, last_epoch
from edge_broker.cluster.znodes.partition_state_write import AskThen, StateWrite
from edge_broker.errors import ErrorCode
from edge_broker.storage.log.leader_epochs import NONE
from edge_broker.storage.metadata.kept_states import LogId


class Settings(NamedTuple):
    """Times in ms."""

    lag_ms_max: float = 30_000.0  # replica.lag.time.max.ms
    fetch_wait_ms: float = 500.0  # replica.fetch.wait.max.ms
    fetch_timeout_ms: float = 2_000.0
    retry_ms: float = 100.0  # of a fetch that the leader refused
    ticks_of_calm: int = 1  # how many ticks of the member one of a partition takes for which nothing is due soon
    calm_ms: float = 0.0  # how long that is, and what is soon
    ticks_of_fetches: int = 1  # how many until calm ones are asked again whether a fetch is due
    fetch_early_ms: float = 0.0  # by so much a fetch may come before its time, to go with another to the same leader
    hand_over_ms_max: float = 5_000.0
    claim_wait_ms: float = 1_000.0  # between one candidate and the next
    unclean_wait_ms: float = 2_000.0
    refused_ms: float = 500.0  # until a change that ZooKeeper has refused is asked for again, twice as long each time
    refused_ms_max: float = 30_000.0
    reopen_ms: float = 60_000.0  # between tries of a log that is offline
    keep_retry_ms: float = 1_000.0  # until a write of kept states that failed is retried
    held_ms: float = 1_000.0  # in which a partition that met a bug decides nothing
    balance_ms: float = 300_000.0  # leader.imbalance.check.interval.seconds
    imbalance_percent: int = 10  # leader.imbalance.per.broker.percentage
    leave_tries: int = 3  # controlled.shutdown.max.retries
    leave_backoff_ms: float = 5_000.0  # controlled.shutdown.retry.backoff.ms
    hand_over_at_once: int = 2  # partitions of a broker that stops: each waits for its own sync and write alone
    hand_over_turns_max: int = 50  # more at once where it leads so many that this would not do
    hand_over_slow_ms: float = 500.0  # one that takes longer holds up no other
    leave_at_once: int = 16  # in-sync sets in each tick; no client waits for them


class Role(Enum):
    """As above."""

    IDLE = auto()
    FOLLOWING = auto()
    CLAIMING = auto()
    BEGINNING = auto()
    LEADING = auto()
    HANDING_OVER = auto()


NOT_KEPT = "-"  # instead of a state's id, in fetches of a disk that has not kept it
LEADS = (Role.LEADING, Role.HANDING_OVER)
CALM = (Role.LEADING, Role.FOLLOWING)


class MemberContext(Protocol):
    """The member that a partition belongs to."""

    identity: Identity
    settings: Settings
    now_ms: float
    connected: bool
    leaving: bool
    lines: Lines | None  # None: this broker does as a release that knows no lines

    @property
    def registrations(self) -> Registrations:
        """The registered brokers."""

    def is_gone(self, entry: InSyncReplica | None) -> bool:
        """Whether a registration has ended for certain; None: no broker."""

    def lease_holds(self) -> bool:
        """Whether no broker can have learnt that this broker is gone."""

    def emit(self, effect: Effect) -> None:
        """Want something done."""

    def token(self) -> int:
        """A number that was not given before."""

    def tick_until_calm(self, partition: PartitionId) -> None:
        """Give this partition each tick, until it is calm."""

    def state_written(self, partition: PartitionId, state: PartitionState, version: int) -> None:
        """A change of a state has settled: this holds, whatever was read before."""


class Unclean:
    """An unclean election that may come: who of those that are there has most."""

    def __init__(self, version: int, now_ms: float) -> None:
        self.version, self.began_ms = version, now_ms
        self.ends: dict[int, LogEnds | None] = {}  # None: that one's log is offline
        self.token = -1  # of the ledger's entry, once it is written


class Partition:
    """One replica."""

    def __init__(
        self, partition: PartitionId, topic: Topic, log: ReplicaLog, member: MemberContext, ask: AskThen
    ) -> None:
        self.partition, self.topic, self.log, self._member = partition, topic, log, member
        self.replicas = topic.replicas[partition.partition]
        self.needed = topic.disks_needed(partition.partition)
        self.state: PartitionState | None = None
        self.version = -1
        self.role = Role.IDLE
        self.leading: Leading | None = None
        self.following: Following | None = None
        self.high_watermark = log.log_start_offset
        self.cutting: Cutting | None = None
        self._owns_up = False
        self._reopens = False
        self._reopen_due_ms: float | None = None  # None: its log is online, as far as was seen
        self._kept_until: int | None = None  # as of Reopen, once the leader has said so
        self._ask_due_ms = 0.0
        self._counted_epoch = NONE  # the last one in which a fetch of this log may have been counted
        self._write = StateWrite(partition, topic.topic_id, ask, self._write_ended)
        self._refused_until_ms = 0.0
        self._unclean: Unclean | None = None
        self._gone_version = -1  # the state whose leader was seen to be gone, and when
        self._gone_ms = 0.0
        self._transfer = LeadTransfer(member)
        self._full_ms = member.identity.full_ms  # when this disk was seen full last
        self._leaves = False
        self._log_id = LogId(topic.topic_id, partition.partition)
        self._objected_to = ""  # the kept state of the last objection that was reported

    def configure(self, topic: Topic) -> None:
        """The topic has another configuration, or more partitions; it still gives this broker a replica of this one."""
        self.topic = topic
        self.replicas = topic.replicas[self.partition.partition]
        self.needed = topic.disks_needed(self.partition.partition)
        self._member.tick_until_calm(self.partition)

    # what is certain

    def take_in(self, state: PartitionState, version: int) -> None:
        """A state that was read or written; older ones than that of now are ignored."""
        if version > self.version:
            if self.leading is not None and self.state is not None:
                self.leading.leaves(self.state, state)
            self.state, self.version = state, version
            self._member.tick_until_calm(self.partition)
            self.reconcile()

    def _write_ended(self, state: PartitionState | None, version: int) -> None:
        if state is None:
            self.stop()
            return
        self._rest_behind_a_refusal()
        self._member.state_written(self.partition, state, version)
        self.take_in(state, version)
        self._member.tick_until_calm(self.partition)  # a write that had to wait for this one may be due
        self.reconcile()
        self._go_on_handing_over()

    def _rest_behind_a_refusal(self) -> None:
        settings, refusals = self._member.settings, self._write.refusals
        rest_ms = min(settings.refused_ms * 2.0 ** min(refusals - 1, 16), settings.refused_ms_max) if refusals else 0.0
        self._refused_until_ms = self._member.now_ms + rest_ms

    @property
    def _writes(self) -> bool:
        """Whether a change of the state is in progress, or was refused a moment ago."""
        return self._write.busy or self._member.now_ms < self._refused_until_ms

    def stop(self) -> None:
        """The session has ended, or the topic: nothing holds any more."""
        self._write.stop()
        self._refused_until_ms = 0.0
        self.state, self.version = None, -1
        self._enter_role(Role.IDLE)
        if self.cutting is not None and self.cutting.step is Step.ENTERING:
            self.cutting = None

    def _enter_role(self, role: Role) -> None:
        led, leads = self.role in LEADS, role in LEADS
        self.role = role
        if role not in CALM:
            self._member.tick_until_calm(self.partition)
        if leads and not led:
            assert self.leading is not None
            self._member.emit(Leads(self.partition, self.leading.epoch))
        elif led and not leads:
            self._member.emit(LeadershipResigned(self.partition))
        if role not in (Role.BEGINNING, *LEADS):
            self.leading = None
        if role is not Role.FOLLOWING:
            self.following = None

    # what is due

    def reconcile(self) -> None:
        """Do what the state asks for; may be called at any time."""
        state, me = self.state, self._member.identity.broker
        if state is None or not self._member.identity.epochs:
            return
        if self._member.connected:
            self._write.session_connected()
        if not self._may_act(state):
            self._object(state)
            return
        if self.leading is not None and not self._leads_by(state):
            self._enter_role(Role.IDLE)
        if not self._writes and (wished := self._leaving(state)) != state:
            self._change(wished)
        if self._may_lead(state):
            self._begin(state)
        elif self._member.is_gone(state.entry(state.leader)):
            self._without_leader(state)
        elif state.leader != me:
            self._follow(state.leader, state.leader_epoch)

    # by which state

    def _may_act(self, state: PartitionState) -> bool:
        """Whether the state is of the line of the kept one; it is kept, then."""
        lines = self._member.lines
        if lines is None:
            return True
        if not lines.may_act(self._log_id, state):
            return False
        lines.keep(self._log_id, state)
        return True

    def _object(self, state: PartitionState) -> None:
        """Neither lead, follow nor truncate; say so in the state, and tell it once the state has it."""
        lines = self._member.lines
        assert lines is not None
        self._enter_role(Role.IDLE)
        self._unclean = None
        if self.cutting is not None and self.cutting.step is Step.ENTERING:
            self.cutting = None
        mine = next((each for each in state.objections if each.broker == self._member.identity.broker), None)
        wished = lines.with_objection(self._log_id, state)
        if wished != state:
            if not self._writes and self._member.connected:
                self._change(wished)
        elif mine is not None and mine.state_id != self._objected_to:
            self._objected_to = mine.state_id
            self._member.emit(Objects(self.partition, lines.relation(self._log_id, state)))

    @property
    def _is_kept(self) -> bool:
        """Whether the disk has the state by which this replica acts, synced."""
        lines, state = self._member.lines, self.state
        return lines is None or (state is not None and lines.is_kept(self._log_id, state))

    @property
    def _state_id(self) -> str:
        """The id of the state of now, as fetches report it once it is kept; "" where this broker knows no lines."""
        return self.state.line.state_id if self._member.lines is not None and self.state is not None else ""

    def _counts(self, follower: Follower) -> bool:
        """Whether a follower's disk has kept the state by which this leader acts."""
        lines, state_id = self._member.lines, follower.state_id
        return lines is None or state_id == self._state_id or (not state_id and lines.older_release)

    def state_kept(self) -> None:
        """The disk has kept another state of this partition."""
        self._member.tick_until_calm(self.partition)
        self.reconcile()
        self.advance_high_watermark()

    def _change(self, wanted_state: PartitionState) -> None:
        """Replace the state of now."""
        lines, state = self._member.lines, self.state
        assert state is not None
        if lines is not None:
            wanted_state = lines.following(state, wanted_state, self._member.registrations)
        else:
            wanted_state = wanted_state._replace(line=UNMARKED_LINE, objections=())  # as a release that knows neither
        self._write.begin(wanted_state, self.version)

    def _next_epoch(self, leader: int) -> int:
        """Return the next epoch in which a broker may lead; NO_LEADER: in which no broker does."""
        assert self.state is not None
        epoch, own = self.state.leader_epoch, self.log.epochs
        if self._member.lines is None:
            return epoch + 1
        if leader == self._member.identity.broker:
            epoch = max(epoch, own.latest)  # this disk may have led in an epoch that the state does not know
        return next_epoch(epoch, leader, self.replicas)

    def _leads_by(self, state: PartitionState) -> bool:
        epoch = self.leading.epoch if self.leading is not None else None
        led = (state.leader, state.leader_epoch) == (self._member.identity.broker, epoch)
        return led and self._may_serve(state)

    def _may_serve(self, state: PartitionState) -> bool:
        return self.log.online and not steps_back(state, damaged=self.log.has_missing)

    def _leaving(self, state: PartitionState) -> PartitionState:
        """The state as it should be where this broker's disk is not the one that is named, or its log is offline."""
        me = self._member.identity.broker
        entry = state.entry(me)
        if self.log.online and self.log.has_missing and (entry is None or self._is_mine(entry)):
            counted = self._counted_epoch >= state.leader_epoch
            return election.online(without_damaged(state, me, counted=counted, next_epoch=self._next_epoch), me)
        if entry is None:
            return state
        if not self._is_mine(entry):
            # the last one that is named stays: its disk has what counts, and may be put back
            leaves = len(state.in_sync) > 1 or self.topic.may_elect_unclean
            return election.without_broker(state, me) if leaves else election.without_leader(state, me)
        if self.log.online:
            state = election.online(state, me)
            return election.without_broker(state, me) if self._leaves and self.may_leave else state
        if len(state.in_sync) > (1 if self.log.missing else self.needed):
            return election.without_broker(state, me)
        # what counts is on its disk, and may be readable again: it stays named, and says that it cannot serve now
        return election.offline(state, self._member.identity.replica)

    def _is_mine(self, entry: InSyncReplica) -> bool:
        """Whether an entry speaks of this very log; of one that may lack records, only if no other is named."""
        if not self._member.identity.is_named_by(entry):
            return False
        assert self.state is not None
        return not self.log.may_lack(entry.epoch) or self.state.in_sync == (entry,)

    def _may_lead(self, state: PartitionState) -> bool:
        identity = self._member.identity
        named = state.leader == identity.broker and state.entry(identity.broker) == identity.replica
        return named and self._may_serve(state)

    # leading

    def _begin(self, state: PartitionState) -> None:
        if self.log.has_missing and not self._owns_up:
            self._owns_up = True  # no other replica has it
            self._member.emit(OwnUp(self.partition))
        if self.leading is not None:
            return  # it leads this epoch already
        if self.cutting is not None:
            if self.cutting.step is Step.TRUNCATING:
                return  # `log_truncated` comes back here
            self.cutting = None
        if not self._is_kept:
            return  # `state_kept` comes back here
        if self.log.busy or self.log.has_missing:
            return  # `log_moved`, or `owned_up`, comes back here: what is being written is of an epoch before
        self._unclean = None
        self._enter_role(Role.BEGINNING)
        start = self.log.log_end_offset
        self.high_watermark = min(self.high_watermark, start)
        self.leading = Leading(self._member.identity.replica, state.leader_epoch, start, self._member.now_ms)
        self._transfer.begin_epoch()
        self._member.emit(BeginEpoch(self.partition, state.leader_epoch))

    def epoch_begun(self, epoch: int) -> None:
        """The epoch's entry is on the disk."""
        if self.role is Role.BEGINNING and self.leading is not None and self.leading.epoch == epoch:
            self._enter_role(Role.LEADING)
            self.leading.began_ms = self._member.now_ms
            self.advance_high_watermark()

    def owned_up(self) -> None:
        """The missing ranges are in the ledger, or could not be written."""
        self._owns_up = False
        self.reconcile()

    def fetch_from(self, fetch: ReplicaFetch, *, is_new: bool = True) -> ReplicaFetched:
        """Answer a follower; not `is_new`: its fetch waits, and is only evaluated again."""
        follower, me = fetch.replica.broker, self._member.identity.broker
        if self.leading is None or self.role not in LEADS or follower == me or follower not in self.replicas:
            return fetch.answer(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        error = epoch_error(fetch.leader_epoch, self.leading.epoch)
        if error is not ErrorCode.NONE:
            return fetch.answer(error)
        registered = self._member.registrations.get(follower)
        if registered is None or registered.replica != fetch.replica:
            # A false claim of a later registration would otherwise shut the follower out of this epoch. A follower
            # whose registration this broker has not read yet asks again.
            return fetch.answer(ErrorCode.STALE_BROKER_EPOCH)
        in_sync = self._may_be_named(follower)
        diverging = self.leading.fetch_received(fetch, self.log, self._member.now_ms, in_sync=in_sync, is_new=is_new)
        if diverging is not None:
            return fetch.answer()._replace(diverging=diverging)
        if is_removed(self.log, fetch.last_fetched_epoch, fetch.fetch_offset):
            start = self.log.log_start_offset
            differ = None if is_known(self.log, fetch.last_fetched_epoch) else EpochEnd(NONE, start)
            return fetch.answer(ErrorCode.OFFSET_OUT_OF_RANGE)._replace(log_start_offset=start, diverging=differ)
        self.keep_in_sync()
        self.advance_high_watermark()
        if is_new and self.role is Role.LEADING and self._transfer.decide(follower, self.leading.followers):
            self.hand_over(follower, on_request=True)
        self._go_on_handing_over()
        answer = fetch.answer(high_watermark=self.high_watermark)
        return answer._replace(log_start_offset=self.log.log_start_offset, lost=self._lost_at(fetch.fetch_offset))

    def _may_be_named(self, broker: int) -> bool:
        """Whether the in-sync set has this one, or the set that is being written."""
        return any(state is not None and state.entry(broker) is not None for state in (self.state, self._write.pending))

    def _lost_at(self, offset: int) -> EpochEnd | None:
        """The range that a follower has to skip, with the epoch that its last record would have."""
        end = self.log.lost_until(offset)
        return EpochEnd(self.log.epochs.at(end - 1), end) if end > offset else None

    def advance_high_watermark(self) -> None:
        """Let the high watermark go as far as it may."""
        if self.leading is None or self.role not in LEADS or self.state is None or not self._member.lease_holds():
            return
        if not self._is_kept:
            return  # `state_kept` comes back here
        pending = self._write.pending
        mark = high_watermark(
            self.leading.counted_ends(self.log.acknowledged_offset, self._counts),
            self.state.in_sync,
            pending.in_sync if pending is not None else None,
            self.needed,
        )
        if mark > self.high_watermark:
            self.high_watermark = mark
            self._member.emit(AdvanceHighWatermark(self.partition, mark))

    def keep_in_sync(self) -> None:
        """Write the in-sync set that should be, where it is another one; one change at a time."""
        state, leading = self.state, self.leading
        if leading is None or self.role not in LEADS or state is None or self._writes:
            return
        around = self._member
        if not around.connected:
            return
        where = self.topic, self.partition.partition
        joining = leading.joining(*where, around.registrations, self.high_watermark, self._counts)
        gone = leading.gone_members(state, around.registrations)
        slow = leading.slow(state, around.now_ms, around.settings.lag_ms_max)
        wished = changed_isr(state.in_sync, joining, gone, slow, self.needed)
        if wished != state.in_sync:
            self._change(state.naming(wished))

    def port_closed(self, broker: int, epoch: int) -> None:
        """The port of a broker with this registration is closed: most likely it is dead, and is not waited for."""
        if self.leading is not None and self.state is not None:
            members = (each for each in self.state.in_sync if (each.broker, each.epoch) == (broker, epoch))
            self.leading.closed.update(dict.fromkeys(members, self._member.now_ms))
            self.keep_in_sync()

    def leads_unproved(self) -> bool:
        """Whether this broker leads as far as it knows, and cannot know it while its lease is not proved."""
        leads = self.role is Role.LEADING and self.leading is not None and self.state is not None
        return leads and not self._member.lease_holds()

    def append_error(self, *, all_in_sync: bool) -> ErrorCode:
        """Whether a produce may be appended; `all_in_sync`: acks=all."""
        if self.role is not Role.LEADING or self.leading is None or self.state is None:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        around = self._member
        if not around.lease_holds():
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        healthy = self.leading.healthy(self.state, around.registrations, around.now_ms, around.settings.lag_ms_max)
        if all_in_sync and healthy < self.needed:
            return ErrorCode.NOT_ENOUGH_REPLICAS
        return ErrorCode.NONE

    def latest_offset(self) -> int | None:
        """The end of what is shown; None: OFFSET_NOT_AVAILABLE, as a former leader may have shown more (KIP-207)."""
        if self.leading is None or self.role not in LEADS or self.high_watermark < self.leading.epoch_start:
            return None
        return self.high_watermark

    # handing over

    def possible_leaders(self, given: Mapping[int, int]) -> tuple[int, ...]:
        """Return possible leaders: with space and the most records first; of equal ones the one `given` fewest."""
        if self.leading is None or self.state is None:
            return ()
        ends, me = self.leading.ends(0), self._member.identity.broker
        others = [each for each in self.state.in_sync if each.broker != me]
        members = [each for each in others if election.may_take_over(self.state, each.broker, self._member)]
        order = self.replicas.index
        full = {each.replica for each in self.leading.followers.values() if each.keeps_out}
        members.sort(key=lambda each: (each in full, -ends.get(each, 0), given.get(each.broker, 0), order(each.broker)))
        return tuple(each.broker for each in members)

    def hand_over(self, to: int, *, on_request: bool = False) -> bool:
        """Let another in-sync replica lead as soon as it has everything; False: it cannot."""
        if not self._may_hand_over(to):
            return False
        self._enter_role(Role.HANDING_OVER)
        self._transfer.begin(to, self._member.settings.hand_over_ms_max, on_request=on_request)
        self._go_on_handing_over()
        return True

    def _may_hand_over(self, to: int) -> bool:
        state = self.state
        may = self.role is Role.LEADING and to != self._member.identity.broker
        return may and state is not None and election.may_take_over(state, to, self._member)

    def hand_over_on_request(self, to: int) -> bool:
        """Do the same once a new fetch shows that the replica has kept room; False: it cannot, or was full."""
        leading = self.leading
        return leading is not None and self._may_hand_over(to) and self._transfer.request(to, leading.followers)

    def _look_at_room(self) -> None:
        """Keep in mind when this disk was seen full last: a later leader cannot know."""
        if self.log.full:
            self._full_ms = self._member.now_ms

    @property
    def spares_unpassed(self) -> bool:
        """Whether enough other replicas have room, so that nothing that counts is evicted for this disk."""
        leading, around = self.leading, self._member
        if leading is None or self.role not in LEADS:
            return False
        times = around.now_ms, around.settings.lag_ms_max
        return others_with_room(leading, self.replicas, around.registrations, *times) >= self.needed

    @property
    def evicts_below(self) -> int | None:
        """The offset below which this leader evicts for followers whose disks are full; None: nothing."""
        leading, around = self.leading, self._member
        if leading is None or self.role is not Role.LEADING or self.log.full:
            return None
        seen = leading, self.replicas, around.registrations, around.now_ms, around.settings.lag_ms_max
        with_room = 1 + others_with_room(*seen)
        return room_offset(
            full_followers(*seen), with_room, self.needed, self.log.log_start_offset, self.high_watermark
        )

    def _make_way(self) -> None:
        """Let an in-sync replica with room lead, as this disk is full, or does not keep by which state it acts."""
        cannot = self.log.full or (not self._is_kept and self._member.lines is not None and self._member.lines.fails)
        if self.role is Role.LEADING and cannot and self.leading is not None and not self._writes:
            followers = self.leading.followers
            heir = next((each for each in self.possible_leaders({}) if has_room(followers.get(each))), None)
            if heir is not None:
                self.hand_over(heir)

    @property
    def may_leave(self) -> bool:
        """Whether this broker follows, and the in-sync set that names it would be large enough without."""
        state, me = self.state, self._member.identity.broker
        if state is None or state.leader == me or not self.log.online:
            return False
        entry = state.entry(me)
        return entry is not None and self._is_mine(entry) and len(state.in_sync) > self.needed

    def leave(self) -> None:
        """Leave the in-sync set, so that no leader waits for a broker that stops; until it is certain it fetches on."""
        self._leaves = True
        self.reconcile()

    def _go_on_handing_over(self) -> None:
        state, leading = self.state, self.leading
        if self.role is not Role.HANDING_OVER or state is None or leading is None or self._writes:
            return
        to = self._transfer.to
        entry = state.entry(to)
        if entry is None or not self._transfer.may_go_on(state, leading.followers):
            self._enter_role(Role.LEADING)
        elif not self.log.busy and leading.ends(0).get(entry, -1) >= self.log.log_end_offset:
            handed = state._replace(leader=to, leader_epoch=self._next_epoch(to))
            if (self._member.leaving or self.log.full) and len(state.in_sync) > self.needed:
                self._leaves = self._member.leaving
                handed = election.without_broker(handed, self._member.identity.broker)
            self._change(handed)

    # without a leader

    def _without_leader(self, state: PartitionState) -> None:
        around = self._member
        if self._gone_version != self.version:
            self._gone_version, self._gone_ms = self.version, around.now_ms
        if self.role is not Role.CLAIMING:
            self._enter_role(Role.IDLE)
        if self._writes or not around.connected or not self.log.online or around.leaving:
            return
        self._enter_role(Role.IDLE)
        me = around.identity
        order = election.candidates(state, self.replicas, around.registrations)
        entry = state.entry(me.broker)
        if me.broker in order and entry is not None and self._is_mine(entry) and self._may_serve(state):
            turn = len(order) if self.log.full and len(order) > 1 else order.index(me.broker)
            if around.now_ms < self._gone_ms + turn * around.settings.claim_wait_ms:
                return
            self._unclean = None
            self._enter_role(Role.CLAIMING)
            epoch = self._next_epoch(me.broker)
            self._change(election.with_leader(state, me.replica, around.registrations, self.needed, epoch))
        elif not order and self.topic.may_elect_unclean:
            self._elect_unclean()

    def _elect_unclean(self) -> None:
        around, me, state = self._member, self._member.identity.broker, self.state
        assert state is not None
        unclean, there = self._unclean, around.registrations
        others = [each for each in self.replicas if each in there and each != me]
        others = [each for each in others if not election.is_offline(state, each, there)]
        waited = unclean is not None and around.now_ms - unclean.began_ms > around.settings.unclean_wait_ms
        if unclean is None or unclean.version != self.version or waited:
            self._unclean = unclean = Unclean(self.version, around.now_ms)
            for broker in others:
                around.emit(Send(broker, AskEnd(self.partition, self.version, me)))
        unclean.ends[me] = LogEnds(last_epoch(self.log), self.log.log_end_offset)
        told = unclean.ends.keys() >= set(others)
        ends = {broker: end for broker, end in unclean.ends.items() if end is not None}
        if told and unclean.token < 0 and election.has_most(me, ends, self.replicas):
            unclean.token = around.token()
            lost = LostRange(state.leader_epoch, self.log.log_end_offset, None)
            around.emit(Enter(unclean.token, self.partition, "unclean_election", (lost,)))

    def end_told(self, told: TellEnd) -> None:
        """Another replica has so much."""
        if told.epoch != NEWEST_EPOCH:
            self._kept_told(told)
        elif self._unclean is not None and told.version == self._unclean.version:
            self._unclean.ends[told.tells] = LogEnds(told.last_epoch, told.end_offset) if told.online else None
            self.reconcile()

    def tell_end(self, asked: AskEnd) -> None:
        """Say how much is here."""
        me = self._member.identity.broker
        end = epoch_end(self.log, asked.epoch)
        told = TellEnd(self.partition, asked.version, me, *end, online=self.log.online, epoch=asked.epoch)
        self._member.emit(Send(asked.asks, told))

    # following

    def _follow(self, leader: int, leader_epoch: int) -> None:
        following = self.following
        if following is None or (following.leader, following.leader_epoch) != (leader, leader_epoch):
            self._enter_role(Role.FOLLOWING)
            self._unclean = None
            self.following = Following(leader, leader_epoch)
        self.fetch_if_due()

    def fetch_if_due(self) -> None:
        """Send the next fetch, or the synced end if that has moved."""
        following, around = self.following, self._member
        if following is None or self.cutting is not None or not self.log.online or self.log.busy:
            return
        if not (self._is_kept or keeps_out(self.log)):
            return  # `state_kept` comes back here; a full disk cannot keep it before its log's front has gone
        if self._leaves and self.state is not None and self.state.entry(around.identity.broker) is None:
            return  # a fetch would have it join again
        state_id = self._state_id if self._is_kept else NOT_KEPT
        if following.is_due(self.log, around.now_ms, state_id):
            self._look_at_room()
            fetch = following.fetch(
                self.partition,
                around.identity.replica,
                self.log,
                around.now_ms,
                around.settings.fetch_timeout_ms,
                state_id,
                was_full=around.now_ms < self._full_ms + ROOM_KEPT_MS,
            )
            if not fetch.keeps_out:
                self._counted_epoch = max(self._counted_epoch, fetch.leader_epoch)
            around.emit(Send(following.leader, fetch))

    def fetch_again(self, leader: int) -> None:
        """Requests to this leader are lost: another connection to it exists."""
        if self.following is not None and self.following.leader == leader:
            self.following.due_ms = self._member.now_ms
            self.fetch_if_due()

    def fetch_answered(self, answer: ReplicaFetched) -> None:
        """Take in what the leader says."""
        following, around = self.following, self._member
        if following is None or self.cutting is not None or not following.is_answer_to(answer, self.log):
            return
        if self.log.busy:
            following.due_ms = around.now_ms  # the order is over: `log_moved` comes when nothing is under way any more
            return
        following.due_ms = around.now_ms + around.settings.fetch_wait_ms
        if answer.error is ErrorCode.OFFSET_OUT_OF_RANGE and answer.log_start_offset >= self.log.log_end_offset:
            self._start_anew(answer.log_start_offset, differ=answer.diverging is not None)
        if answer.error is not ErrorCode.NONE:
            following.due_ms = around.now_ms + min(around.settings.fetch_wait_ms, around.settings.retry_ms)
            following.refused = True
            around.tick_until_calm(self.partition)
            return
        if answer.diverging is not None:
            if last_epoch(self.log) != NONE:
                self._cut(truncation_end(self.log, answer.diverging))
            elif not self._may_be_named(around.identity.broker):
                self._once_entered(StartAnew(self.partition, 0), self.log.log_end_offset)  # it has nothing to lose
            return  # one that is named waits until the leader's log is as long
        mark = min(answer.high_watermark, self.log.acknowledged_offset)
        if mark > self.high_watermark:
            self.high_watermark = mark
            around.emit(AdvanceHighWatermark(self.partition, mark))
        following.log_start = max(following.log_start, answer.log_start_offset)
        self._follow_start()
        if self.log.has_missing and self._was_never_counted(following):
            self._cut_damage(answer.high_watermark)
        elif keeps_out(self.log):
            following.due_ms = around.now_ms + min(around.settings.fetch_wait_ms, KEPT_OUT_MS)
            self.fetch_if_due()
        elif answer.lost is not None:
            act = PassOver(self.partition, answer.lost.end_offset, answer.lost.epoch)
            self.cutting = Cutting(act, step=Step.TRUNCATING)
            around.emit(act)
        elif answer.records:
            following.due_ms = around.now_ms  # `log_moved` comes when they are appended
            around.emit(Append(self.partition, answer.fetch_offset, answer.records))
        else:
            self.fetch_if_due()

    def _follow_start(self) -> None:
        """Begin where the leader's log does."""
        if self.following is None or self.cutting is not None or not self.log.online:
            return
        start = self.following.removal(self.log, self.high_watermark, self._member.now_ms)
        if start is not None:
            self._member.emit(RemoveFront(self.partition, start))

    def _cut(self, end_offset: int) -> None:
        self._once_entered(Truncate(self.partition, end_offset), end_offset)

    def _once_entered(self, act: Cut, lost_from: int) -> None:
        """Do this to the log, once the ledger has what of it may be lost."""
        self.cutting = Cutting(act, self._member.token(), lost_from)
        self._member.emit(Enter(self.cutting.token, self.partition, "truncated", lost_by(self.log, lost_from)))

    def _was_never_counted(self, following: Following) -> bool:
        state, me = self.state, self._member.identity.broker
        out = state is not None and state.entry(me) is None and not self._write.busy
        return out and self._counted_epoch < following.leader_epoch

    def _cut_damage(self, high_watermark: int) -> None:
        """The leader has all that is here; what it may lose again is recorded."""
        kept = max(min(high_watermark, self.log.log_end_offset), self.log.log_start_offset)
        self._once_entered(CutDamage(self.partition), kept)

    def _start_anew(self, start_offset: int, *, differ: bool) -> None:
        """The leader has removed all that is here; what of it may never have been there is a loss."""
        kept = max(self.high_watermark, self.log.log_start_offset) if differ else self.log.log_end_offset
        self._once_entered(StartAnew(self.partition, start_offset), kept)

    def losses_recorded(self, token: int) -> None:
        """The journal has it: the act may follow."""
        if self.cutting is not None and self.cutting.token == token:
            self.cutting.step, act = Step.TRUNCATING, self.cutting.act
            if isinstance(act, Truncate):
                self.high_watermark = min(self.high_watermark, act.end_offset)
            self._member.emit(act)
        elif self._unclean is not None and self._unclean.token == token:
            self._claim_unclean(self._unclean)

    def _claim_unclean(self, unclean: Unclean) -> None:
        state, around = self.state, self._member
        self._unclean = None
        if state is None or unclean.version != self.version or self._writes or self.role is not Role.IDLE:
            return
        self._enter_role(Role.CLAIMING)
        epoch = self._next_epoch(around.identity.broker)
        self._change(election.claimed_unclean(state, around.identity.replica, epoch))

    def log_truncated(self) -> None:
        """The cut is durable."""
        self.cutting = None
        self.high_watermark = max(min(self.high_watermark, self.log.log_end_offset), self.log.log_start_offset)
        if self.following is not None:
            self.following.due_ms = self._member.now_ms
        self.reconcile()

    # an offline log

    def _reopen_if_due(self) -> None:
        """Try a log again, others having been told; one that is missing was to be in the set for what is gone."""
        state, around, missing = self.state, self._member, self.log.missing
        if self.log.online:
            self._reopen_due_ms = self._kept_until = None
        elif self._reopen_due_ms is None:
            self._reopen_due_ms = around.now_ms + (0.0 if missing else around.settings.reopen_ms)
        elif state is not None and not self._reopens and around.now_ms >= self._reopen_due_ms:
            named = state.entry(around.identity.broker) is not None
            if not (missing and (named or self._write.busy)) and not self._awaits_kept(state, self._reopen_due_ms):
                self._reopens = True
                around.emit(Reopen(self.partition, missing, self._kept_until or 0))

    def _awaits_kept(self, state: PartitionState, due_ms: float) -> bool:
        """Ask the leader what it has of what this replica led unconfirmed; False: it was told, or cannot be.

        Without an answer all of that counts as lost, as no in-sync replica is known to have it.
        """
        around, epoch = self._member, self.log.unconfirmed_epoch
        me, settings = around.identity.broker, around.settings
        if epoch == NONE or self._kept_until is not None or all(each.broker == me for each in state.in_sync):
            return False
        if around.now_ms > due_ms + settings.reopen_ms:
            return False
        led = state.leader != me and not around.is_gone(state.entry(state.leader))
        if led and around.now_ms >= self._ask_due_ms:
            self._ask_due_ms = around.now_ms + settings.fetch_timeout_ms
            around.emit(Send(state.leader, AskEnd(self.partition, self.version, me, epoch)))
        return True

    def _kept_told(self, told: TellEnd) -> None:
        """The leader has of an epoch what is before its end there; what it began later says nothing of that epoch."""
        asked = told.online and told.epoch == self.log.unconfirmed_epoch and self.state is not None
        if asked and self.state is not None and told.tells == self.state.leader and self._kept_until is None:
            self._kept_until = told.end_offset if told.last_epoch == told.epoch else 0
            self._reopen_if_due()

    def log_reopened(self) -> None:
        """The log is online again, or could not be opened yet."""
        self._reopens = False
        if self.log.online:
            self._reopen_due_ms = self._kept_until = None
            self.log_truncated()  # nothing of what was in progress is; it ends elsewhere, perhaps
        else:
            self._reopen_due_ms = self._member.now_ms + self._member.settings.reopen_ms

    def log_moved(self) -> None:
        """More is written or synced, or nothing is in progress any more."""
        if self.leading is None or not self.log.online:
            self.reconcile()  # an epoch may wait for its beginning; a log that is offline leads no more
        self.advance_high_watermark()
        self.fetch_if_due()

    def fetch_with_others(self) -> None:
        """Send the next fetch a little before its time, as another one goes to the same leader."""
        following, around = self.following, self._member
        if following is not None and following.due_ms <= around.now_ms + around.settings.fetch_early_ms:
            following.due_ms = min(following.due_ms, around.now_ms)
            self.fetch_if_due()

    @property
    def calm(self) -> bool:
        """Whether nothing is due soon by time alone but fetches without an error, which the member sends.

        An event of another broker is followed by a tick.
        """
        if self.role not in CALM or self.cutting is not None or self._unclean is not None or self.log.has_missing:
            return False
        if self.leading is not None and (self.log.full or not self._is_kept):
            return False
        if self.following is not None and self.following.refused:
            return False
        leading, state, around = self.leading, self.state, self._member
        return (
            leading is None
            or state is None
            or not leading.slow_soon(state, around.now_ms, around.settings.lag_ms_max, around.settings.calm_ms)
        )

    def tick(self) -> None:
        """Time has passed."""
        self._look_at_room()
        self._reopen_if_due()
        self.reconcile()
        self.keep_in_sync()
        self.advance_high_watermark()
        self._make_way()
        self._go_on_handing_over()
        self._follow_start()
        self.fetch_if_due()
