"""Rules of the cluster, each broken on purpose: a simulation that does not find one of them is too weak.

| rule | what is put in its place |
|---|---|
| the keys of BROKEN | a function that does it wrong, as somebody has once done it wrong, or might |

`SEEDS` keeps, for each, a seed that has found it: it is tried first, then others.

Not here, as other rules cover for them, so that 300 schedules found none of them:

| rule | what covers for it |
|---|---|
| Sync before an unknown outcome is read | the leader wishes the same at once, counts it, and the failing write tells |
| fetches of other epochs are fenced | a log is matched by its last epoch at each fetch |
| acknowledgements begin anew with each epoch | a follower that was truncated since is behind for moments |
| an epoch begins when nothing is under way any more | a follower is truncated that need not be |
| a state is written where its topic still is | the next one of the name has another version, or the same in-sync set |
| a deletion names the topic's id | the id's node lies below the topic's, which does not go without it |
| states of a former topic count for nothing | they are read again before the log of the next one is there |
| a damaged log acknowledges nothing | who is named too early has caught up within moments |
| who is damaged begins another epoch | a leader forgets what a member had as it leaves; late fetches are rare |
| a truncation waits for a flush | few flushes are of a segment that goes |
| a full leader hands over to nobody whose card is full | who has room comes first among the heirs |

tests/unit/cluster holds all but the last, tests/unit/storage that one.

Must never come in: what finds them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from edge_broker.cluster.effects import RemoveLog, Reopen, Send, Truncate
from edge_broker.cluster.inter_broker_messages import AskEnd, EpochEnd, TellEnd
from edge_broker.cluster.member import ClusterMember
from edge_broker.cluster.partition import election, lead_transfer, partition, room
from edge_broker.cluster.partition import follower_state as following
from edge_broker.cluster.partition import leader_state as leading
from edge_broker.cluster.partition.follower_state import Following
from edge_broker.cluster.partition.partition import Partition
from edge_broker.cluster.session_lease import Lease
from edge_broker.cluster.state import isr_rules
from edge_broker.cluster.state.cluster_state import Identity, InSyncReplica, PartitionId, PartitionState, Topic
from edge_broker.cluster.state.isr_rules import InSync
from edge_broker.cluster.state.replica_log_view import ReplicaLog
from edge_broker.cluster.znodes.metadata_image import Image
from edge_broker.cluster.znodes.partition_state_write import Stage, StateWrite
from edge_broker.cluster.znodes.znode_codec import decode_topic
from edge_broker.cluster.znodes.zookeeper import ANY_VERSION, Done, Failure, Node, Stat
from edge_broker.protocol.record_batch import read_header
from edge_broker.storage.data_directory import DataDirectory
from edge_broker.storage.log.partition_log import PartitionLog
from edge_broker.storage.log_store import LogStore
from edge_broker.storage.metadata.topic_record import TopicRecord
from edge_broker.storage.recovery.recovery_checkpoint import PositionsFiles
from edge_broker.storage.recovery.truncation_file import forget_truncation
from edge_broker.storage.replica import replica_truncation
from edge_broker.storage.replica.replica_log import Replica
from edge_broker.storage.retention.topic_deletion import Deletions
from edge_broker.testing.disk import SimulatedFile
from tests.simulation import cluster_storage

_follow, _begin, _advance, _claimed = (
    Partition._follow,
    Partition._begin,
    Partition.advance_high_watermark,
    election.with_leader,
)
_tell_end, _leaving = Partition.tell_end, Partition._leaving


def truncate_to_the_high_watermark(self: Partition, leader: int, leader_epoch: int) -> None:
    """As Kafka did before KIP-101."""
    known = self.following
    _follow(self, leader, leader_epoch)
    if self.following is not known and self.cutting is None and self.log.log_end_offset > self.high_watermark:
        self._cut(self.high_watermark)


def begin_at_the_high_watermark(self: Partition, state: PartitionState) -> None:
    """A leader drops what nobody has acknowledged yet."""
    if self.leading is None and self.cutting is None and self.log.log_end_offset > self.high_watermark:
        self._member.emit(Truncate(self.partition, self.high_watermark))
    _begin(self, state)


def look_up_one_step(log: ReplicaLog, epoch: int, last_fetched_epoch: int, fetch_offset: int) -> EpochEnd | None:
    """As KIP-101 did before KIP-279: the end of the follower's last epoch, whether or not the leader had that one."""
    if last_fetched_epoch < 0:
        return None
    _, end = log.epochs.end(last_fetched_epoch, epoch, log.log_end_offset)
    return None if end >= fetch_offset else EpochEnd(last_fetched_epoch, end)


def match_nothing(log: ReplicaLog, epoch: int, last_fetched_epoch: int, fetch_offset: int) -> EpochEnd | None:
    """No log is ever truncated."""
    return None


def acknowledge_what_is_written(log: ReplicaLog) -> int:
    return log.log_end_offset


class Unsynced:
    """A log whose every byte counts as synced."""

    def __init__(self, log: ReplicaLog) -> None:
        self.acknowledged_offset = log.log_end_offset


def advance_over_what_is_written(self: Partition) -> None:
    """A leader counts itself for what it has written."""
    log, self.log = self.log, Unsynced(self.log)  # type: ignore[assignment]
    _advance(self)
    self.log = log


def only_what_is_confirmed(certain: InSync, pending: InSync | None) -> frozenset[InSyncReplica]:
    return frozenset(certain)


def only_what_is_wished(certain: InSync, pending: InSync | None) -> frozenset[InSyncReplica]:
    return frozenset(certain if pending is None else pending)


def write_over_any_version(self: StateWrite, state: PartitionState, version: int) -> None:
    self.stage, self.pending = Stage.SENT, state

    def sent(answer: Any) -> None:
        if answer == Done():
            self._end(self.pending, version + 1)
        else:
            self.resolve()

    self._next(self._change(state, ANY_VERSION), sent)


def join_at_the_mark(synced_end: int, mark: int, epoch_start: int) -> bool:
    return synced_end >= mark


def every_disk_is_the_one(self: Identity, entry: InSyncReplica) -> bool:
    return True


def no_log_lacks_anything(self: Partition, entry: InSyncReplica) -> bool:
    return self._member.identity.is_named_by(entry)


def whoever_is_registered(entry: InSyncReplica, registrations: election.Registrations) -> bool:
    return entry.broker in registrations


def claim_in_the_same_epoch(state: PartitionState, *rest: Any) -> PartitionState:
    return _claimed(state, *rest)._replace(leader_epoch=max(state.leader_epoch, 0))


def one_is_enough(self: Topic, partition: int) -> int:
    return 1


def certainly(self: Lease, now_ms: float) -> bool:
    return True


def remove_what_is_shown(self: Following, log: ReplicaLog, high_watermark: int, now_ms: float) -> int | None:
    """As where each replica evicts by its own disk."""
    return high_watermark if high_watermark > log.log_start_offset else None


def cut_while_named(self: Partition, following: Following) -> bool:
    return True


def begin_anew_while_named(self: Partition) -> None:
    """As a broker that makes a directory wherever one is missing."""
    if self.log.missing and not self._reopens:
        self._reopens = True
        self._member.emit(Reopen(self.partition, may_recreate=True))


def stay_though_missing(self: Partition, state: PartitionState) -> PartitionState:
    return state if self.log.missing else _leaving(self, state)


def stay_where_damaged(state: PartitionState, broker: int, **_: Any) -> PartitionState:
    return state


def remove_nothing(self: Following, log: ReplicaLog, high_watermark: int, now_ms: float) -> None:
    """As where a leader's log start does not travel."""


def write_nothing_down(log: ReplicaLog, end_offset: int) -> tuple[()]:
    return ()


def tell_the_mark(self: Partition) -> int | None:
    return self.high_watermark if self.leading is not None else None


def forget_the_set(state: PartitionState, me: InSyncReplica, *rest: Any) -> PartitionState:
    """Whoever claims names itself alone, and those who are registered, caught up or not."""
    registrations, epoch = rest[0], rest[-1]
    others = tuple(each.replica for broker, each in sorted(registrations.items()) if broker != me.broker)
    return PartitionState(me.broker, epoch, (me, *others))


def say_nothing(state: PartitionState, me: InSyncReplica) -> PartitionState:
    """Whoever must stay named stands in the way, though its log is offline."""
    return election.without_leader(state, me.broker)


def tell_an_end(self: Partition, asked: AskEnd) -> None:
    """Also of a log that is offline, which may have most."""
    told = TellEnd(self.partition, asked.version, self._member.identity.broker, 1 << 30, self.log.log_end_offset)
    _tell_end(self, asked) if self.log.online else self._member.emit(Send(asked.asks, told))


# full cards


def claim_in_turn(self: Partition, state: PartitionState) -> None:
    """As one with room, whose turn comes by the order of the replicas."""
    full, self.log.full = self.log.full, False  # type: ignore[misc]
    _without_leader(self, state)
    self.log.full = full  # type: ignore[misc]


def evict_though_others_have_room(full: Any, with_room: int, needed: int, start: int, mark: int) -> int | None:
    return _room_offset(full, min(with_room, needed - 1), needed, start, mark) if full else None


def evict_all_at_once(full: Any, with_room: int, needed: int, start: int, mark: int) -> int | None:
    """As where a segment of the leader's goes, which may be larger than a follower's card."""
    return None if _room_offset(full, with_room, needed, start, mark) is None else mark


def count_whoever_is_registered(leading: Any, replicas: Any, registrations: Any, *rest: Any) -> int:
    return sum(broker in registrations for broker in replicas) - 1


_without_leader, _room_offset = Partition._without_leader, room.room_offset

# a topic that is deleted, and made anew under its name


def take_the_next_one_for_it(self: Image, name: str, answer: Any) -> None:
    """A topic that is another one is told as a change."""
    if isinstance(answer, Node) and name in self.topics:
        self.topics[name] = decode_topic(name, answer)
        self.versions[name] = answer.stat.version
        self._seen.topic_changed(name)
    _have_topic(self, name, answer)


def remove_what_is_not_known(self: ClusterMember, partition: PartitionId, topic_id: str, answer: Any) -> None:
    """An ensemble that forgot a topic costs its logs."""
    if isinstance(answer, Stat) or answer is Failure.NO_NODE:
        self.emit(RemoveLog(partition, topic_id))
    else:
        self._gone[partition, topic_id] = None


def serve_by_name(self: ClusterMember, name: str) -> None:
    """The log of a topic is that of the next one of its name."""
    topic = self.image.topics.get(name)
    for found in [each for where, each in self.partitions.items() if where.topic == name]:
        if topic is not None and found.partition.partition < len(topic.replicas):
            found.topic = topic
    _topic_changed(self, name)


def look_at_names_alone(self: ClusterMember) -> None:
    """A log whose topic's name is another one's by now stays."""
    if self.image.is_complete:
        for where, topic_id in list(self._gone):
            if where.topic in self.image.topics:
                del self._gone[where, topic_id]
    _look_at_gone(self)


def finish_nothing(self: Deletions) -> None:
    """What a crash has interrupted stays as it is."""


def name_last(self: Deletions, record: TopicRecord) -> None:
    """The files of a topic go first, then its name."""
    for number in range(record.partitions):
        directory = self._path(f"{record.name}-{number}")
        if self._fs.exists(directory):
            self._erase_directory(directory)
    self._remove_topic_file(record)


_topic_changed, _look_at_gone = ClusterMember.topic_changed, ClusterMember._look_at_gone
_have_topic = Image._have_topic


# the storage's own rules, which only disks with the broker's storage on them can break


def append_as_ones_own(self: Replica, records: memoryview, now: Any, *, opens: bool = True) -> int:
    """As a produce is appended: with the epoch of now."""
    header = read_header(records)
    self.log.writer.append(records[: header.size], header, now, opens=opens)
    return header.size


def show_all(self: Replica, high_watermark: int) -> None:
    self.log.state.set_visible_end(self.log.state.end(), self.log.state.log_end_offset)


def sync_no_cut(self: SimulatedFile) -> None:
    cut = self._pages.pending and self._pages.pending[-1][1] is None
    _datasync(self) if not cut else self._disk.step("datasync", self.path)


def write_no_less(self: PositionsFiles, positions: dict[Any, Any]) -> None:
    before = self.stored
    less = {key for key in positions if key in before and positions[key].offset < before[key].offset}
    _write_positions(self, {key: before[key] if key in less else at for key, at in positions.items()})


def forget_first(store: LogStore, log: PartitionLog, now: Any) -> PartitionLog:
    forget_truncation(store.fs, log.directory)
    segment, position, _, _ = log.synced_end
    file = store.fs.open(segment.path)
    file.truncate(position)
    return _reopened(store, log, now)


def begin_in_memory(self: Replica, epoch: int) -> None:
    self.log.state.leader_epoch = epoch - 1


def take_no_batch_from_before(records: memoryview, state: Any) -> None:
    """As a follower that knows offsets alone: what is not due is refused."""


def register_in_memory(self: DataDirectory, epoch: int, cluster: str) -> Any:
    assert self.registrations is not None
    self.registrations = self.registrations.with_epoch(epoch, cluster)
    return self.registrations


_datasync, _write_positions, _reopened = (
    SimulatedFile.datasync,
    PositionsFiles.write,
    replica_truncation.reopen_truncated,
)

Place = tuple[Any, str, Any]
ALWAYS, NEVER = property(lambda self: True), property(lambda self: False)
BROKEN: dict[str, list[Place]] = {
    "a follower truncates to its high watermark": [(Partition, "_follow", truncate_to_the_high_watermark)],
    "a leader truncates to its high watermark": [(Partition, "_begin", begin_at_the_high_watermark)],
    "epochs are looked up in one step": [(leading, "divergence", look_up_one_step)],
    "logs are not matched": [(leading, "divergence", match_nothing)],
    "a follower acknowledges what is written": [(following, "acknowledged_end", acknowledge_what_is_written)],
    "a leader counts what it has written": [(Partition, "advance_high_watermark", advance_over_what_is_written)],
    "who is being added does not count yet": [(isr_rules, "maximal", only_what_is_confirmed)],
    "who is being removed does not count any more": [(isr_rules, "maximal", only_what_is_wished)],
    "a state is written over any version": [(StateWrite, "begin", write_over_any_version)],
    "who joins need not reach the epoch's start": [(leading, "may_join", join_at_the_mark)],
    "a disk is not looked at": [
        (Identity, "is_named_by", every_disk_is_the_one),
        (election, "is_there", whoever_is_registered),
    ],
    "a log that was not synced is believed to be whole": [(Partition, "_is_mine", no_log_lacks_anything)],
    "an election keeps the epoch": [(election, "with_leader", claim_in_the_same_epoch)],
    "an election names everybody in sync": [(election, "with_leader", forget_the_set)],
    "one disk is enough": [(Topic, "disks_needed", one_is_enough)],
    "a session is believed to live": [(Lease, "holds", certainly)],
    "anybody may be elected": [(Topic, "may_elect_unclean", ALWAYS)],
    "a truncation is not written down": [(partition, "lost_by", write_nothing_down)],
    "the end is told before it is known": [(Partition, "latest_offset", tell_the_mark)],
    "a follower evicts by itself": [(Following, "removal", remove_what_is_shown)],
    "a follower does not go behind its leader": [(Following, "removal", remove_nothing)],
    "a damaged log is cut while the in-sync set names it": [
        (partition, "without_damaged", stay_where_damaged),
        (partition, "steps_back", lambda state, *, damaged: False),
        (Partition, "_was_never_counted", cut_while_named),
    ],
    "a missing log is made anew while the set names it": [
        (Partition, "_reopen_if_due", begin_anew_while_named),
        (Partition, "_leaving", stay_though_missing),
    ],
    "what is lost is not passed over": [(Partition, "_lost_at", lambda self, offset: None)],
    "an empty log matches wherever it begins": [(Partition, "_may_be_named", lambda self, broker: True)],
    "who is full stays in sync": [(leading.Leading, "_keeps_out", lambda self, replica: False)],
    "a full leader leads on": [(Partition, "_make_way", lambda self: None)],
    "a board that was full gets the lead back": [(lead_transfer, "has_kept_room", lambda follower, now_ms: True)],
    "a full replica claims in its turn": [(Partition, "_without_leader", claim_in_turn)],
    "a leader evicts for itself though others have room": [(Partition, "spares_unpassed", NEVER)],
    "a leader evicts nothing for others": [(Partition, "evicts_below", property(lambda self: None))],
    "a leader evicts for others though enough have room": [(partition, "room_offset", evict_though_others_have_room)],
    "a leader evicts all at once for others": [(partition, "room_offset", evict_all_at_once)],
    "who is full counts as one with room": [(partition, "others_with_room", count_whoever_is_registered)],
    "a member does not say that its log is offline": [(election, "offline", say_nothing)],
    "a log that is offline counts for what it has": [(Partition, "tell_end", tell_an_end)],
}
SEEDS: dict[str, int] = {
    "a follower truncates to its high watermark": 0,
    "a leader truncates to its high watermark": 1,
    "epochs are looked up in one step": 28,
    "logs are not matched": 1,
    "a follower acknowledges what is written": 126,
    "a leader counts what it has written": 356,
    "who is being added does not count yet": 106,
    "who is being removed does not count any more": 102,
    "a state is written over any version": 6,
    "who joins need not reach the epoch's start": 417,
    "a disk is not looked at": 30,
    "a log that was not synced is believed to be whole": 398,
    "an election keeps the epoch": 0,
    "an election names everybody in sync": 0,
    "one disk is enough": 2,
    "a session is believed to live": 52,
    "anybody may be elected": 1,
    "a truncation is not written down": 1,
    "the end is told before it is known": 1,
    "a follower evicts by itself": 0,
    "a follower does not go behind its leader": 9,
    "a missing log is made anew while the set names it": 117,
    "what is lost is not passed over": 185,
    "an empty log matches wherever it begins": 20030,
    "who is full stays in sync": 2,
    "a full leader leads on": 2,
    "a board that was full gets the lead back": 2,
    "a full replica claims in its turn": 16,
    "a leader evicts for itself though others have room": 2,
    "a leader evicts nothing for others": 7,
    "a leader evicts for others though enough have room": 4,
    "a leader evicts all at once for others": 7,
    "who is full counts as one with room": 5,
    "a member does not say that its log is offline": 33,
    "a log that is offline counts for what it has": 128,
    "a log goes as its ensemble forgot the topic": 51,
    "a log serves the next topic of its name": 15,
    "a log stays as its topic's name is there": 43,
    "a deletion is not finished at a start": 11,
    "the files of a topic go before its name": 19,
    "a damaged log is cut while the in-sync set names it": 29,
}
BROKEN_TOPICS: dict[str, list[Place]] = {
    "a log goes as its ensemble forgot the topic": [(ClusterMember, "_looked_at_gone", remove_what_is_not_known)],
    "a log serves the next topic of its name": [
        (Image, "_have_topic", take_the_next_one_for_it),
        (ClusterMember, "topic_changed", serve_by_name),
    ],
    "a log stays as its topic's name is there": [(ClusterMember, "_look_at_gone", look_at_names_alone)],
}
BROKEN_DELETIONS: dict[str, list[Place]] = {
    "a deletion is not finished at a start": [(Deletions, "finish", finish_nothing)],
    "the files of a topic go before its name": [(Deletions, "delete", name_last)],
}
BROKEN_STORAGE: dict[str, list[Place]] = {
    "a replica calls synced what is written": [
        (Replica, "acknowledged_offset", property(lambda self: self.log_end_offset))
    ],
    "a follower stamps batches as its own": [(Replica, "append", append_as_ones_own)],
    "a replica shows what is written": [(Replica, "show", show_all)],
    "a cut is not synced": [(SimulatedFile, "datasync", sync_no_cut)],
    "positions are not told of a cut": [(PositionsFiles, "write", write_no_less)],
    "a truncation is forgotten before it is done": [(replica_truncation, "reopen_truncated", forget_first)],
    "an epoch that begins is not kept": [(Replica, "begin_epoch", begin_in_memory)],
    "a registration is not kept": [(DataDirectory, "register", register_in_memory)],
    "a log takes no batch that begins before it": [(cluster_storage, "begins_before", take_no_batch_from_before)],
}
SEEDS_OF_STORAGE = {
    "a replica calls synced what is written": 21,
    "a follower stamps batches as its own": 0,
    "a replica shows what is written": 0,
    "a cut is not synced": 74,
    "positions are not told of a cut": 109,
    "a truncation is forgotten before it is done": 0,
    "an epoch that begins is not kept": 0,
    "a registration is not kept": 0,
    "a log takes no batch that begins before it": 9,
}
Patch = Callable[[Any, str, Any], None]


def break_rule(rule: str, patch: Patch) -> None:
    """Put what is wrong in its place."""
    for place in (BROKEN | BROKEN_TOPICS | BROKEN_DELETIONS | BROKEN_STORAGE)[rule]:
        patch(*place)
