"""A cluster in one process, in virtual time: boards, their disks and processes, the network, ZooKeeper's model.

The core under test is `edge_broker.cluster`; `Process` is its shell. Must never come in: which faults happen
(cluster_runs.py), what must hold (cluster_checks.py).
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from random import Random
from typing import Any, NamedTuple

from edge_broker.cluster import effects
from edge_broker.cluster.controller import place_topic
from edge_broker.cluster.effects import Effect
from edge_broker.cluster.inter_broker_messages import Message, ReplicaFetch, ReplicaFetched
from edge_broker.cluster.member import ClusterMember
from edge_broker.cluster.partition.partition import LEADS, Partition, Settings
from edge_broker.cluster.partition.room import ROOM_KEPT_MS
from edge_broker.cluster.state.cluster_state import NEVER_FULL_MS, Identity, PartitionId, PartitionState
from edge_broker.cluster.znodes.ownership import Users
from edge_broker.cluster.znodes.znode_codec import decode_state, decode_topic, state_path, topic_path
from edge_broker.cluster.znodes.zookeeper import Answer, Event, Multi, Node, Request, SetData, ZooKeeper
from edge_broker.errors import ErrorCode, StorageFault
from edge_broker.storage.files.data_age import Now
from edge_broker.storage.maintenance.full_disk_marker import FullDiskMarker
from edge_broker.storage.metadata.topic_record import OFFSETS_TOPIC, id_text
from edge_broker.testing.disk import PowerLoss
from edge_broker.testing.loop import Loop
from edge_broker.testing.zookeeper import Client, Ensemble, Put, Step, name_of
from edge_broker.thread_checks import running_in
from tests.simulation.cluster_checks import Checks, Where
from tests.simulation.cluster_disk import Disk, SimLog
from tests.simulation.cluster_room import InternalRoom
from tests.simulation.cluster_storage import RealDisk, RealLog, hash_of

SESSION_MS = 1000
TICK_MS = 40.0
FETCH_RECORDS = 40
FEW_RECORDS = 5
WRITTEN_AT_ONCE = 0.7
UNSYNCED_LATE = 300
OPEN_AGAIN_MS = 50.0
FOUND_MS, FINDS_NOT = 20.0, 0.3  # a port that is closed
OWN_UP_RETRY_MS = 500.0
REFUSED_MS = 500.0  # until what found no space is fetched again
SETTINGS = Settings(
    lag_ms_max=900.0,
    fetch_wait_ms=60.0,
    fetch_timeout_ms=250.0,
    hand_over_ms_max=600.0,
    claim_wait_ms=400.0,
    unclean_wait_ms=300.0,
    balance_ms=2000.0,
    leave_backoff_ms=500.0,
    reopen_ms=1500.0,
)
# As brokers have it.
CALM = SETTINGS._replace(ticks_of_calm=8, calm_ms=12 * TICK_MS, ticks_of_fetches=3, fetch_early_ms=60.0)
TOPIC = "readings"
CLUSTER = "site"
TRACE_LINES = 400
Reply = Callable[[ErrorCode, int, int], None]
ChangesLog = (
    effects.Append
    | effects.BeginEpoch
    | effects.Truncate
    | effects.StartAnew
    | effects.CutDamage
    | effects.PassOver
    | effects.OwnUp
    | effects.Reopen
    | effects.RemoveFront
    | effects.AdvanceHighWatermark
)


class Waiting(NamedTuple):
    """A batch that a client waits for."""

    epoch: int
    offset: int
    end_offset: int
    reply: Reply


def writes(request: Request) -> bool:
    """Whether it changes a state."""
    return isinstance(request, Multi) and isinstance(request.operations[-1], SetData)


class Links:
    """A board's way to the servers of the ensemble."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.cut_up: set[int] = set()
        self.cut_down: set[int] = set()
        self.stall_ms = 0.0  # of the next message, and of those behind it

    def up(self, server: int) -> bool:
        return server not in self.cut_up

    def down(self, server: int) -> bool:
        return server not in self.cut_down

    def delay_ms(self) -> float:
        stall_ms, self.stall_ms = self.stall_ms, 0.0
        return stall_ms + self._world.delay_ms()


class Process:
    """One life of a broker on a board."""

    def __init__(self, board: Board) -> None:
        self.board, self.world = board, board.world
        self.alive, self.paused = True, False
        self._held: list[Callable[[], None]] = []
        disk = board.disk
        disk.start()
        cluster = CLUSTER if disk.epochs else ""
        marker_files: Any = disk.marker_files
        self._full_disk_marker = FullDiskMarker(marker_files, "/data", ROOM_KEPT_MS)
        full_ms = self.now_ms if self._full_disk_marker.was_full else NEVER_FULL_MS
        identity = Identity(board.number, disk.directory, disk.epochs, cluster, full_ms)
        self.member = ClusterMember(
            identity,
            self.world.settings,
            rack=board.rack,
            new_cluster=CLUSTER,
            users=self.world.users,
            chroot="/model",
            kept=disk.kept_states,
            new_state_id=None if board.number in self.world.older else self.world.new_state_id,
        )
        self.room = InternalRoom(board, self.member)
        self.waiting: dict[Where, list[Waiting]] = {}
        self.left = False
        self._full: dict[PartitionId, bool] = {}
        for partition, topic_id in disk.held:
            self.member.has(partition, topic_id)
        self.client = self.world.begin_session(self)
        self._tick()

    # how it runs

    def run(self, call: Callable[[], None]) -> None:
        """Do this now, or when the process goes on; never if it is dead."""
        if not self.alive:
            return
        if self.paused:
            self._held.append(call)
            return
        try:
            call()
            self._drain()
        except PowerLoss:
            self.board.died()

    def go_on(self) -> None:
        """SIGCONT."""
        self.paused = False
        held, self._held = self._held, []
        for call in held:
            self.run(call)

    def later(self, delay_ms: float, call: Callable[[], None]) -> None:
        self.world.later(delay_ms, lambda: self.run(call))

    @property
    def now_ms(self) -> float:
        return self.board.now_ms

    def _tick(self) -> None:
        if self.alive:
            self.world.later(TICK_MS, self._tick)
            if not self.paused:
                self.run(self._look_at_room)
                self.run(lambda: self.member.tick(self.now_ms))

    def _look_at_room(self) -> None:
        """As the product does, which says so to the member."""
        with running_in("files"):
            self._full_disk_marker.update(
                Now(0, int(self.now_ms), trusted=True, boot_id=""), is_full=self.board.disk.is_full
            )
        self.room.look()
        full = {partition: found.log.full for partition, found in self.member.partitions.items()}
        if full == self._full:
            return
        for partition in sorted(full.keys() | self._full.keys()):
            if full.get(partition) != self._full.get(partition):
                self.member.tick_until_calm(partition)
        self._full = full

    def answer_received(self, token: int, answer: Answer) -> None:
        self.member.answer_received(token, answer, self.now_ms)

    def event_received(self, event: Event) -> None:
        self.world.note(f"board {self.board.number}: {event}") if type(event).__name__ != "WatchFired" else None
        self.member.event_received(event, self.now_ms)

    # what it does

    def _drain(self) -> None:
        while self.member.effects and self.alive:
            effect = self.member.effects.pop(0)
            self._do(effect)

    def _do(self, effect: Effect) -> None:
        member, disk = self.member, self.board.disk
        if isinstance(effect, effects.Ask):
            self.world.before_asking(self, effect.request)
            self.client.ask(effect.token, effect.request)
            if writes(effect.request):
                self.world.bad_luck(self)
        elif isinstance(effect, effects.Send):
            self._send(effect.to, effect.message)
        elif isinstance(effect, effects.Record):
            epoch = effect.epoch
            assert effect.cluster == CLUSTER

            def recorded() -> None:
                disk.register(epoch)
                member.epoch_recorded(epoch, self.now_ms)

            self.later(self.world.dice.random() * 20, recorded)
        elif isinstance(effect, effects.KeepStates):
            self._keep_states(effect)
        elif isinstance(effect, effects.Objects):
            self.world.objected(self, effect)
        elif isinstance(effect, effects.OpenLog):
            self.world.before_opening(self)
            self.later(self.world.dice.random() * 5, partial(self._open, *effect))
        elif isinstance(effect, effects.RemoveLog):
            self.world.note(f"board {self.board.number}: removes {effect.partition} of {effect.topic_id}")
            self.world.checks.log_removed(self, effect.topic_id)
            self.later(self.board.sync_ms(), partial(self._remove, *effect))
        elif isinstance(effect, effects.Contradicts) and "broker.id" in effect.sentence:
            self.board.refused(effect.sentence)
        elif isinstance(effect, effects.Contradicts | effects.Forward | effects.Forget | effects.KeepCopy) or (
            isinstance(effect, effects.Stray) and effect.topic_id not in self.world.forgotten
        ):
            raise AssertionError(f"board {self.board.number}: {effect}")
        elif isinstance(effect, effects.Configure | effects.Leads | effects.LeadershipResigned | effects.Stray):
            pass
        elif isinstance(effect, effects.Broke):
            raise effect.error
        elif isinstance(effect, effects.Enter):
            self._enter(effect)
        elif isinstance(effect, effects.ShutdownReady):
            self.left = True
        else:
            self._change_log(effect)

    def _keep_states(self, effect: effects.KeepStates) -> None:
        """Now and then the card refuses it, and now and then the power goes after the write and before its outcome."""

        def kept() -> None:
            done = self.world.dice.random() > 0.02 or not self.world.disturbed
            if done:
                self.board.disk.keep_states(*effect)
            self.member.states_kept(self.now_ms, done=done)

        late_ms = self.world.keeps_late_ms
        self.later(self.board.sync_ms() + (self.world.dice.random() * late_ms if late_ms else 0.0), kept)

    # topics

    def _open(self, partition: PartitionId, topic_id: str) -> None:
        """Once no other topic of the name is in the way, if it is wanted then."""
        member, disk = self.member, self.board.disk
        wanted = member.image.topics.get(partition.topic)
        if wanted is None or wanted.topic_id != topic_id:
            return
        if not disk.has_room(partition, topic_id):
            self.later(OPEN_AGAIN_MS, lambda: self._open(partition, topic_id))
            return
        log = disk.open(partition, topic_id, synced=self.world.synced)
        if self.world.deletes:  # it is made in a worker, and much may happen meanwhile
            self.later(self.board.sync_ms(), lambda: member.log_opened(partition, topic_id, log, self.now_ms))
        else:
            member.log_opened(partition, topic_id, log, self.now_ms)

    def _remove(self, partition: PartitionId, topic_id: str) -> None:
        """All logs of a topic with the first, behind what is under way."""
        logs = self.board.disk.logs.items()
        if any(log.works or log.syncing for (_, one), log in logs if one == topic_id):
            self.later(1.0, lambda: self._remove(partition, topic_id))
        else:
            self.board.disk.remove(partition, topic_id)

    def work(self, log: SimLog | RealLog, delay_ms: float, call: Callable[[], None]) -> None:
        """Do something to a log later; its topic is not removed before."""
        log.works += 1

        def do() -> None:
            log.works -= 1
            call()

        self.later(delay_ms, do)

    def _has(self, partition: PartitionId, log: SimLog | RealLog) -> bool:
        """Whether this is the log of the partition still."""
        found = self.member.partitions.get(partition)
        return found is not None and found.log is log

    def _enter(self, effect: effects.Enter) -> None:
        disk, where = self.board.disk, (effect.partition, self.topic_id(effect.partition))

        def entered() -> None:
            disk.enter(*where, effect.cause, effect.losses)
            self.member.losses_recorded(effect.partition, effect.token, self.now_ms)

        self.work(self.log(effect.partition), self.board.sync_ms(), entered)

    def _change_log(self, effect: ChangesLog) -> None:
        partition, member = effect.partition, self.member
        log = self.log(partition)
        if isinstance(effect, effects.Append):
            self._append(partition, log, effect)
        elif isinstance(effect, effects.BeginEpoch):
            epoch = effect.epoch
            self.world.note(
                f"board {self.board.number}: begins epoch {epoch} of {partition.partition} at {log.log_end_offset}"
            )
            start = log.begin_epoch(epoch)

            def begun() -> None:
                log.epoch_begun(epoch, start)
                member.epoch_begun(partition, epoch, self.now_ms)

            self.work(log, self.board.sync_ms(), begun)
        elif isinstance(effect, effects.Truncate):
            end, before = effect.end_offset, log.log_end_offset
            self.world.note(f"board {self.board.number}: truncates {partition.partition} from {before} to {end}")
            log.begin_truncation(end)

            def cut() -> None:
                log.truncated(end)
                member.log_truncated(partition, self.now_ms)

            self._once_held(log, cut)
        elif isinstance(effect, effects.StartAnew):
            self._start_anew(partition, log, effect.start_offset)
        elif isinstance(effect, effects.CutDamage):
            self._cut_damage(partition, log)
        elif isinstance(effect, effects.PassOver):
            self._pass_over(partition, log, effect)
        elif isinstance(effect, effects.OwnUp):
            self._own_up(partition, log)
        elif isinstance(effect, effects.Reopen):
            self._reopen(partition, log, effect)
        elif isinstance(effect, effects.RemoveFront):
            self._follow_start(partition, log, effect.start_offset)
        else:
            self.world.checks.advanced(self, partition, effect.high_watermark)
            log.shown(effect.high_watermark)
            self._wake(partition)

    def _start_anew(self, partition: PartitionId, log: SimLog | RealLog, offset: int) -> None:
        self.world.note(f"board {self.board.number}: begins {partition.partition} anew at {offset}")

        def anew() -> None:
            log.start_anew(offset)
            self.member.log_truncated(partition, self.now_ms)

        self._once_held(log, anew)

    def rot(self, partition: PartitionId, offset: int) -> None:
        """A record is not what was written any more, and somebody has found that."""
        log = self.log(partition)
        self.world.note(f"board {self.board.number}: {partition.partition} is damaged at {offset}")
        self.world.checks.rotten(self.board, log.lost_with(offset))
        log.rot(offset)

    def _cut_damage(self, partition: PartitionId, log: SimLog | RealLog) -> None:
        def cut() -> None:
            before = log.log_end_offset
            log.cut_damage()
            end = log.log_end_offset
            self.world.note(f"board {self.board.number}: cuts {partition.partition} from {before} to {end}, damaged")
            self.member.log_truncated(partition, self.now_ms)

        self._once_held(log, cut)

    def _pass_over(self, partition: PartitionId, log: SimLog | RealLog, effect: effects.PassOver) -> None:
        def passed() -> None:
            end = effect.end_offset
            self.world.note(f"board {self.board.number}: passes over {log.log_end_offset} to {end} of {partition}")
            log.pass_over(end, effect.epoch)
            self.member.log_truncated(partition, self.now_ms)

        self._once_held(log, passed)

    def _reopen(self, partition: PartitionId, log: SimLog | RealLog, effect: effects.Reopen) -> None:
        """Behind all that was under way."""
        if log.refuses:
            self.later(1.0, lambda: self.member.log_reopened(partition, self.now_ms))
            return
        if log.works or log.syncing:
            self.later(1.0, lambda: self._reopen(partition, log, effect))
            return
        where = partition, self.topic_id(partition)

        def reopened() -> None:
            if self._has(partition, log):
                self.board.disk.reopen(*where, may_recreate=effect.may_recreate, kept_until=effect.kept_until)
                online = "online" if log.online else "offline"
                self.world.note(
                    f"board {self.board.number}: {partition.partition} is {online}, ends at {log.log_end_offset}"
                )
                self.member.log_reopened(partition, self.now_ms)

        self.work(log, self.board.sync_ms(), reopened)

    def _own_up(self, partition: PartitionId, log: SimLog | RealLog) -> None:
        where = partition, self.topic_id(partition)

        def owned_up() -> None:
            if not log.online:  # the card has failed meanwhile: as of whatever cannot be written down now
                self.later(OWN_UP_RETRY_MS, lambda: self.member.owned_up(partition, self.now_ms))
                return
            self.world.note(f"board {self.board.number}: owns up to what {partition.partition} lacks")
            self.board.disk.own_up(*where)
            self.member.owned_up(partition, self.now_ms)

        self.work(log, self.board.sync_ms(), owned_up)

    def _follow_start(self, partition: PartitionId, log: SimLog | RealLog, offset: int) -> None:
        where = Where(self.topic_id(partition), partition)  # now: the topic may be deleted before the disk has done it

        def remove() -> None:
            start = log.log_start_offset
            if log.online and not log.busy and start < offset <= log.acknowledged_offset:
                self.world.checks.follows(self, where, start, log.records[start:offset])
                self.world.note(f"board {self.board.number}: removes {partition.partition} up to {offset}, too")
                log.follow_start(offset)

        self.later(self.board.sync_ms(), remove)

    def _once_held(self, log: SimLog | RealLog, then: Callable[[], None]) -> None:
        """Do this on the disk once the log can be held."""
        if log.hold():
            self.work(log, self.board.sync_ms(), then)
        else:
            self.work(log, 1.0, lambda: self._once_held(log, then))

    def remove_front(self, partition: PartitionId, part: float) -> None:
        """A leader's retention takes a part of what is shown; nothing, if the topic went while the process stood."""
        if partition not in self.member.partitions:
            return
        found, log = self.member.partitions[partition], self.log(partition)
        self.remove_below(partition, log.log_start_offset + int((found.high_watermark - log.log_start_offset) * part))

    def remove_below(self, partition: PartitionId, offset: int) -> None:
        """A leader removes what lies before an offset, as far as it is shown."""
        found, log = self.member.partitions[partition], self.log(partition)
        if log.online and not log.busy and offset > log.log_start_offset:
            log.shown(found.high_watermark)
            offset = max(log.log_start_offset, min(offset, log.removable(found.high_watermark)))
            self.world.checks.removed(log.records[log.log_start_offset : offset])
            self.world.note(f"board {self.board.number}: removes {partition.partition} up to {offset}")
            log.remove_front(offset)

    def _append(self, partition: PartitionId, log: SimLog | RealLog, effect: effects.Append) -> None:
        """At once, or behind: what is under way then ends later, whatever has happened meanwhile."""
        if log.full:
            raise AssertionError(f"board {self.board.number} takes records of {partition} though its disk is full")
        if not log.online or log.busy or effect.offset != log.log_end_offset:
            return
        if self.room.refuses(partition):
            self.later(REFUSED_MS, lambda: self.member.log_moved(partition, self.now_ms))
            return
        if self.world.dice.random() < WRITTEN_AT_ONCE or log.begins_amid(effect.records):  # type: ignore[arg-type]
            log.append(effect.records)  # type: ignore[arg-type]
            self.moved(partition)
            return
        under_way = log.begin_append(effect.records)  # type: ignore[arg-type]

        def write() -> None:
            under_way.run()
            self.work(log, self.board.sync_ms(), written)

        def written() -> None:
            log.end_append(under_way)  # type: ignore[arg-type]
            if self._has(partition, log):
                self.moved(partition)

        self.work(log, self.board.sync_ms(), write)

    def _send(self, to: int, message: Message) -> None:
        if isinstance(message, ReplicaFetched) and message.wants_records:
            log = self.log(message.partition)
            message = message._replace(records=log.fetched(message.fetch_offset, self.world.fetch_records))
        topic = self.member.image.topics.get(message.partition.topic)
        if topic is not None:
            self.world.send(self.board, to, message, topic.topic_id)

    def received(self, message: Message, topic_id: str) -> None:
        """Fetches and their answers name a topic by its id; what is of another topic than there is says nothing."""
        topic = self.member.image.topics.get(message.partition.topic)
        found = self.member.partitions.get(message.partition)
        if isinstance(message, ReplicaFetch) and (found is None or found.topic.topic_id != topic_id):
            answer = message.answer(ErrorCode.UNKNOWN_TOPIC_ID)
            self.world.send(self.board, message.replica.broker, answer, topic_id)
        elif not isinstance(message, ReplicaFetched) or (topic is not None and topic.topic_id == topic_id):
            self.member.message_received(message, self.now_ms)

    def log(self, partition: PartitionId) -> SimLog | RealLog:
        log = self.member.partitions[partition].log
        assert isinstance(log, SimLog | RealLog)
        return log

    def topic_id(self, partition: PartitionId) -> str:
        return self.member.partitions[partition].topic.topic_id

    def moved(self, partition: PartitionId) -> None:
        """Something was written: the member knows, and a sync follows."""
        self.member.log_moved(partition, self.now_ms)
        self._sync(partition, self.log(partition))

    def _sync(self, partition: PartitionId, log: SimLog | RealLog) -> None:
        if log.syncing or log.synced_offset == log.log_end_offset:
            return
        log.syncing = True

        def begin() -> None:
            writing = log.begin_sync()

            def end() -> None:
                log.syncing = False
                if log.online:
                    log.end_sync(writing)  # type: ignore[arg-type]
                    self.member.log_moved(partition, self.now_ms)
                    self._sync(partition, log)

            self.later(self.board.sync_ms(), end)

        late = 1 if self.world.synced else UNSYNCED_LATE
        self.later(self.world.dice.random() * 10 * late, begin)

    # clients

    def produce(self, partition: PartitionId, values: Sequence[int], *, all_in_sync: bool, reply: Reply) -> None:
        """One batch; its base offset is told, and epoch."""
        found = self.member.partitions.get(partition)
        self.member.now_ms = self.now_ms
        error = found.append_error(all_in_sync=all_in_sync) if found is not None else ErrorCode.NOT_LEADER_OR_FOLLOWER
        if error is not ErrorCode.NONE:
            reply(error, -1, -1)
            return
        assert found is not None
        assert found.leading is not None
        log, epoch = self.log(partition), found.leading.epoch
        if log.full or self.room.refuses(partition):
            reply(ErrorCode.KAFKA_STORAGE_ERROR, -1, -1)
            return
        offset = log.log_end_offset
        try:
            log.lead(epoch, values)
        except StorageFault:
            reply(ErrorCode.KAFKA_STORAGE_ERROR, -1, -1)
            return
        self.world.checks.appended(self, partition, epoch, offset, values)
        if all_in_sync:
            where = Where(self.topic_id(partition), partition)
            self.waiting.setdefault(where, []).append(Waiting(epoch, offset, log.log_end_offset, reply))
        else:
            reply(ErrorCode.NONE, epoch, offset)
        self.moved(partition)

    def _wake(self, partition: PartitionId) -> None:
        found = self.member.partitions[partition]
        if found.leading is None:
            return
        left, where = [], Where(self.topic_id(partition), partition)
        for one in self.waiting.pop(where, []):
            if one.epoch == found.leading.epoch and one.end_offset <= found.high_watermark:
                self.world.checks.acknowledges(self, partition)
                one.reply(ErrorCode.NONE, one.epoch, one.offset)
            elif one.epoch == found.leading.epoch:
                left.append(one)
        self.waiting[where] = left

    def consume(self, partition: PartitionId) -> None:
        """Show a consumer what may be shown."""
        found = self.member.partitions.get(partition)
        if found is not None and found.role in LEADS and found.leading is not None and not found.log.has_missing:
            mark = found.high_watermark
            self.world.checks.shown(self, partition, found.leading.epoch, self.log(partition).shown(mark), mark)
            self.world.checks.latest(self, partition, found.leading.epoch, found.latest_offset())


class Board:
    """A machine with a card, a clock and at most one process."""

    def __init__(self, world: World, number: int) -> None:
        self.world, self.number = world, number
        self.rack = f"rack-{number % 2}" if world.dice.random() < 0.5 else None
        self.disk = world.new_disk()
        self.links = Links(world)
        self.process: Process | None = None
        self.rate = 1 + (world.dice.random() - 0.5) * 0.06
        self._offset_ms = world.dice.random() * 1e6
        self.slow = 1.0
        self.no_byte_left = False  # on its card, not even for internal topics
        self.images: list[Disk | RealDisk] = []

    @property
    def now_ms(self) -> float:
        return self._offset_ms + self.world.now_ms * self.rate

    def sync_ms(self) -> float:
        return self.world.dice.random() * 15 * self.slow

    def start(self) -> None:
        if self.process is None:
            self.process = Process(self)

    def kill(self) -> None:
        """kill -9: what was written is there."""
        if self.process is not None:
            self.process.alive = False
            self.world.drop_session(self.process)
            self.process = None
            for other in self.world.boards:
                self.world.tell_closed(other, self)

    def refused(self, sentence: str) -> None:
        """Its process ends: the session of the card that was here before has not; it is started again."""
        self.world.note(f"board {self.number}: {sentence}")
        self.kill()
        self.world.later(self.world.dice.random() * 500, self.start)

    def cut_power(self) -> None:
        """What was not synced is gone."""
        self.kill()
        self.world.checks.cut(self, self.disk.cut_power(self.world.dice))

    def died(self) -> None:
        """It has lost power amid an act of its storage."""
        self.world.note(f"board {self.number}: loses power amid an act")
        self.cut_power()
        self.world.later(self.world.dice.random() * 500, self.start)

    def replace_disk(self, disk: Disk | RealDisk) -> None:
        """The card is lost for good; another one is put in."""
        assert self.process is None
        self.world.checks.lost_for_good(self.disk)
        self.disk = disk


class World:
    """All of it."""

    users: Users | None = None  # the brokers' in ZooKeeper

    def __init__(self, seed: int, boards: int, *, real: bool = False) -> None:
        self._seed, self.real = seed, real
        self.synced = True  # False: the topic's answers wait for no sync
        self.disturbed = False  # real disks: the power may go amid an act
        self.older: set[int] = set()  # boards whose next life is of a release that knows no lines of states
        self.keeps_late_ms = 0.0  # until a file of kept states is synced, at most, beside the sync itself
        self.dice = Random(f"cluster {seed}")
        self.ports = Random(f"ports {seed}")  # which are found closed
        self.loop = Loop()
        self.trace: list[str] = []
        self.ended: set[int] = set()  # sessions that an act has ended
        self._numbers = 0
        self.checks = Checks(self)
        self.ensemble = Ensemble(self.loop, self.dice)
        self._commit = self.ensemble.commit
        self.ensemble.commit = self._commit_looking  # type: ignore[method-assign]
        self.boards = [Board(self, number) for number in range(1, boards + 1)]
        self.blocked: set[tuple[int, int]] = set()
        self.bad_luck: Callable[[Process], None] = lambda _: None  # while a state is written
        self.before_asking: Callable[[Process, Request], None] = lambda *_: None
        self.before_opening: Callable[[Process], None] = lambda _: None
        self.loss = self.late = 0.0
        self.fetch_records = FETCH_RECORDS if seed % 3 else FEW_RECORDS  # with few, who was away is behind for long
        self.settings = SETTINGS if seed % 4 < 3 else CALM
        self.slow_ms = 3.0
        self.partitions: list[PartitionId] = []  # that the topic has had
        self.config: dict[str, str] = {}
        self.internal_id = ""  # of the internal topic, once there is one
        self.deletes = False  # the topic is deleted, and made again
        self.forgotten: set[str] = set()  # ids of topics that the ensemble does not know for now, as if it were older
        self._read: tuple[bytes, str, int] = (b"", "", 0)  # of the topic's node, as it was decoded last
        self._states: dict[PartitionId, tuple[bytes, PartitionState]] = {}  # of nodes, likewise

    def new_state_id(self) -> str:
        return f"{self.dice.getrandbits(72):018x}"

    def objected(self, process: Process, effect: effects.Objects) -> None:
        """A board found another line: only where the ensemble was set back."""
        raise AssertionError(f"board {process.board.number}: {effect}, and nobody set the ensemble back")

    def new_disk(self) -> Disk | RealDisk:
        """An empty card."""
        number = self.number()
        if not self.real:
            return Disk(f"disk-{number}")
        return RealDisk(hash_of(self._seed, number), lambda: self.disturbed)

    # time and chance

    @property
    def now_ms(self) -> float:
        return self.loop.time() * 1000

    def later(self, delay_ms: float, call: Callable[[], None]) -> None:
        self.loop.call_later(delay_ms / 1000, call)

    def number(self) -> int:
        self._numbers += 1
        return self._numbers

    def delay_ms(self) -> float:
        return self.dice.expovariate(1 / self.slow_ms)

    def note(self, line: str) -> None:
        self.trace.append(f"{self.now_ms:8.0f} {line}")
        del self.trace[:-TRACE_LINES]

    def advance(self, ms: float) -> None:
        """Let time pass."""
        self.loop.advance(ms)

    # ZooKeeper

    def _commit_looking(self, steps: tuple[Step, ...]) -> None:
        """Look at each state that is replaced."""
        for step in steps:
            before = self.ensemble.tree.nodes.get(step.path)
            name = OFFSETS_TOPIC if step.path.startswith(topic_path(OFFSETS_TOPIC) + "/") else TOPIC
            is_state = step.path.startswith(topic_path(name) + "/") and name_of(step.path).isdigit()
            if before is not None and isinstance(step, Put) and is_state:
                partition = PartitionId(name, int(name_of(step.path)))
                states = [decode_state(partition, Node(each.data, each.stat)) for each in (before, step)]
                self.checks.state_replaced(partition, *states)
        self._commit(steps)

    def begin_session(self, process: Process) -> ZooKeeper:
        """The session of a process."""
        identities = self.users.accepted_users if self.users is not None else ()
        return self.ensemble.client(process, SESSION_MS, process.board.links, process.run, identities)

    def client_of(self, process: Process) -> Client:
        """Its end in the model."""
        assert isinstance(process.client, Client)
        return process.client

    def drop_session(self, process: Process) -> None:
        """The process has died: its connection breaks, its session ends when it has expired."""
        client = self.client_of(process)
        client.closed = True
        if client.connection is not None:
            client.connection.close()

    def tell_closed(self, to: Board, of: Board) -> None:
        """A board finds the port of another one closed, as one that has died, or one that cannot be reached."""
        process = to.process
        if process is None or to is of or self.ports.random() < FINDS_NOT:
            return

        def found() -> None:
            registration = process.member.registrations.get(of.number)
            if registration is not None:
                process.member.port_closed(of.number, registration.epoch, process.now_ms)

        self.later(self.ports.random() * FOUND_MS, lambda: process.run(found))

    def has_session(self, process: Process) -> bool:
        """Whether the ensemble has not ended it, or an act has."""
        session_id = self.client_of(process).session_id
        return session_id in self.ensemble.sessions or session_id in self.ended

    # the network

    def send(self, board: Board, to: int, message: Message, topic_id: str) -> None:
        """Bring it there, or not, with the id of the topic that it speaks of."""
        sender = board.number
        for _ in range(2 if self.dice.random() < 0.02 else 1):

            def arrive() -> None:
                if (sender, to) in self.blocked or self.dice.random() < self.loss:
                    return
                process = self.board(to).process
                if process is not None:
                    process.run(lambda: process.received(message, topic_id))

            late_ms = self.dice.random() * 3000 if self.dice.random() < self.late else 0.0
            self.later(self.delay_ms() + late_ms, arrive)

    def board(self, number: int) -> Board:
        return self.boards[number - 1]

    # what there is

    @property
    def processes(self) -> list[Process]:
        return [board.process for board in self.boards if board.process is not None]

    def replicas_of(self, partition: PartitionId) -> Iterator[tuple[Process, Partition]]:
        for process in self.processes:
            found = process.member.partitions.get(partition)
            if found is not None:
                yield process, found

    def leaders(self, partition: PartitionId) -> list[Process]:
        """Who believes that it leads."""
        return [process for process, found in self.replicas_of(partition) if found.role in LEADS]

    def state(self, partition: PartitionId) -> PartitionState | None:
        """What the ensemble's leader has."""
        node = self.ensemble.tree.nodes.get(state_path(partition))
        if node is None:
            return None
        data, state = self._states.get(partition, (b"", None))
        if state is None or data is not node.data:
            state = decode_state(partition, Node(node.data, node.stat))
            self._states[partition] = node.data, state
        return state

    @property
    def topic(self) -> tuple[str, int]:
        """The id of the topic that the ensemble's leader has, and how many partitions; an empty one: there is none."""
        node = self.ensemble.tree.nodes.get(topic_path(TOPIC))
        if node is None:
            return "", 0
        if node.data is not self._read[0]:
            topic = decode_topic(TOPIC, Node(node.data, node.stat))
            self._read = node.data, topic.topic_id, len(topic.replicas)
        return self._read[1:]

    def replicas(self, partition: PartitionId) -> tuple[int, ...]:
        """Which boards have a partition of the topic that the ensemble's leader has."""
        node = self.ensemble.tree.nodes[topic_path(partition.topic)]
        return decode_topic(partition.topic, Node(node.data, node.stat)).replicas[partition.partition]

    @property
    def current(self) -> list[Where]:
        """Its partitions, and the internal topic's, once there is one."""
        topic_id, partitions = self.topic
        internal = [Where(self.internal_id, PartitionId(OFFSETS_TOPIC, 0))] if self.internal_id else []
        return [Where(topic_id, PartitionId(TOPIC, number)) for number in range(partitions)] + internal

    def new_topic_id(self) -> str:
        """One that no topic had."""
        return id_text(uuid.UUID(int=hash_of(self._seed, self.number()) << 64 | 1))

    def make_topic(self, partitions: int, factor: int, config: dict[str, str]) -> None:
        """By the controller, once there is one and enough boards are there."""
        self.config = config
        self._make(TOPIC, self.new_topic_id(), partitions, factor, config)
        self.partitions = [PartitionId(TOPIC, number) for number in range(partitions)]

    def make_internal_topic(self, needed: int) -> None:
        """Committed offsets, on three boards."""
        topic_id = self.new_topic_id()
        self._make(OFFSETS_TOPIC, topic_id, 1, 3, {"cleanup.policy": "compact", "min.insync.replicas": str(needed)})
        self.internal_id = topic_id
        self.partitions.append(PartitionId(OFFSETS_TOPIC, 0))

    def _make(self, name: str, topic_id: str, partitions: int, factor: int, config: dict[str, str]) -> None:
        made: list[ErrorCode] = []
        for _ in range(600):
            self.advance(50)
            office = [process.member for process in self.processes if process.member.controller.holds]
            if office and len(office[0].registrations) == len(self.boards):
                member = office[0]
                topic = place_topic(topic_id, partitions, factor, config, member.registrations, member.image.topics)
                member.controller.make_topic(name, topic, member.registrations, made.append)
                process = next(each for each in self.processes if each.member is member)
                process.run(lambda: None)
                break
        for _ in range(600):
            if made:
                break
            self.advance(20)
        assert made == [ErrorCode.NONE], f"the topic {name} is not made: {made}"
