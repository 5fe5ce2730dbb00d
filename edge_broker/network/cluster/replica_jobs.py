"""What a member of a cluster wants done to logs, carried out by the broker's workers, one thing of a log at a time.

| wish | how | then |
|---|---|---|
| OpenLog | the topic's logs are made in `files`, all of them with the first that is wanted | `opened` |
| Configure | the topic's file is written, more partitions are made | its logs go by it |
| RemoveLog | the topic is erased as DeleteTopics does it | |
| Append | on the loop, or by `writer` where the disk would make it wait | `log_moved`, a sync |
| the same, of a batch amid which an empty log starts | in `files` | the same |
| BeginEpoch | on the loop, then the entry's sync in `disk`, of many together | `epoch_begun` |
| Enter | behind rolls and writes, none begins before the end: the ledger, in `files` | `entered` |
| Truncate, StartAnew, CutDamage, PassOver | in `files` | `truncated` |
| OwnUp | in `files` | `owned_up` |
| Reopen | in `files`, behind all that was under way | `reopened` |
| RemoveFront | in `files`, as far as it is shown | |
| Advance | the log shows more | who waits is asked |

What a worker cannot do takes the log offline, which the member sees. What the ledger or the disk refuses for now, as
where it is full, is asked for again a while later, if it is still wanted: nothing is held meanwhile, and whatever else
is wanted of the topic has its turn.

Lives here: those works. Must never come in: what is wanted and when (edge_broker.cluster), sockets.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from edge_broker.broker.outcomes import Do, Outcome, Reply
from edge_broker.broker.state.disk_space import ALWAYS_WRITTEN
from edge_broker.cluster.effects import (
    Advance,
    Append,
    BeginEpoch,
    Configure,
    CutDamage,
    Enter,
    OpenLog,
    OwnUp,
    PassOver,
    RemoveFront,
    RemoveLog,
    Reopen,
    StartAnew,
    Truncate,
)
from edge_broker.cluster.state.cluster_state import PartitionId
from edge_broker.errors import ErrorCode, Refusal, StorageFault
from edge_broker.handlers.delete_topics import erase_here
from edge_broker.network.dispatch.partition_reopener import behind
from edge_broker.network.log_lines import LimitedLog, log_line
from edge_broker.storage.log.log_writer import RollDue, WriteUnderWay
from edge_broker.storage.loss.quarantine import quarantine
from edge_broker.storage.metadata.topic_record import TOPIC_SUFFIX, id_of, id_text
from edge_broker.storage.replica.missing_ranges import own_up
from edge_broker.storage.replica.reopen_replica import Reopened, reopen
from edge_broker.storage.replica.replica_log import Replica, as_fault, begins_before, keep_epochs
from edge_broker.storage.replica.replica_truncation import (
    Entered,
    cut_damage,
    enter,
    enter_unknown,
    go_on,
    hold,
    let_go,
    truncate,
)
from edge_broker.storage.replica.reset_to_leader_start import begin_amid, start_anew
from edge_broker.storage.replica.skip_lost_range import pass_over
from edge_broker.storage.retention.segment_removal import follow_start
from edge_broker.storage.segment.segment import DamageFound, WouldBlockError
from edge_broker.thread_checks import runs_in

if TYPE_CHECKING:
    import asyncio

    from edge_broker.broker.broker import Broker
    from edge_broker.cluster.member import ClusterMember
    from edge_broker.network.dispatch.dispatcher import Dispatcher
    from edge_broker.storage.log.partition_log import PartitionLog
    from edge_broker.storage.log_store import Topic

RETRY_S = 0.5
FREE_SPACE = "free space on this disk; another board leads this partition if one has room"
INTERNAL_ROOM_BYTES = 1 << 19  # free, from which a replica of an internal topic takes records again
BUSY_S = 0.005
T = TypeVar("T")
Work = Callable[[Callable[[], None]], None]
"""Begins something, and calls what it is given once that is over."""


class Replicas:
    """The logs of one member; `turn` runs a call on the member and carries out what it wants."""

    def __init__(
        self,
        broker: Broker,
        dispatcher: Dispatcher,
        loop: asyncio.AbstractEventLoop,
        member: ClusterMember,
        turn: Callable[[Callable[[float], None]], None],
    ) -> None:
        self._broker, self._dispatcher, self._loop = broker, dispatcher, loop
        self._member, self._turn = member, turn
        self._replicas: dict[PartitionLog, Replica] = {}
        self._works: dict[str, deque[Work]] = {}  # of a topic, one after another
        self._held: dict[PartitionId, Entered] = {}
        self._strays: set[tuple[str, str]] = set()  # topics by name and id that stay here, and are not the cluster's
        self._full = False
        self._epochs: list[tuple[PartitionId, Replica, Callable[[], None]]] = []  # whose files are to be written next
        self._keeping = False
        self._log = LimitedLog(loop)

    def end_log_window(self) -> None:
        """Write the sums of lines that were left out; for a stop."""
        self._log.end_window()

    def stays(self, topic: str, topic_id: str) -> None:
        """A topic that lies here, and that the cluster does not know."""
        self._strays.add((topic, topic_id))

    def _obstructed(self, wish: OpenLog) -> None:
        """What stays has the name of a topic of the cluster, of which nothing can be here then."""
        name, notes = wish.partition.topic, self._broker.notes.setdefault("strays", [])
        file = f"{self._broker.store.data_dir}/topics/{name}{TOPIC_SUFFIX}"
        note = (
            f"the cluster's topic {name} has no replica here, as another topic of its name is on this disk; stop this "
            f"broker, move {file} away and start it again: what the other holds is put aside then"
        )
        if note not in notes:
            notes.append(note)
            log_line("error", "no-replica", topic=name, text=note)
        self._turn(lambda now_ms: self._member.obstructed(*wish, now_ms))

    def found(self) -> None:
        """Tell the member which logs lie here from before."""
        for topic in self._broker.store.topics.values():
            if self._broker.store.is_replicated(topic.name):
                for log in topic.partitions:
                    self._member.has(PartitionId(topic.name, log.partition), id_text(topic.topic_id))

    def _later(self, delay_s: float, call: Callable[..., object], *arguments: Any) -> None:
        """Go on after a while, outside of whatever step this is."""

        def go_on() -> None:
            call(*arguments)
            self._dispatcher.apply()

        self._loop.call_later(delay_s, go_on)

    # topics, one work of each at a time

    def _queue(self, name: str, work: Work) -> None:
        waiting = self._works.get(name)
        if waiting is not None:
            waiting.append(work)
            return
        self._works[name] = deque()
        self._begin(name, work)

    def _begin(self, name: str, work: Work) -> None:
        self._later(0, work, partial(self._over, name))

    def _over(self, name: str) -> None:
        waiting = self._works[name]
        if waiting:
            self._begin(name, waiting.popleft())
        else:
            del self._works[name]

    def _in_files(
        self,
        work: Callable[[], Any],
        then: Callable[[Any], None],
        failed: Callable[[Exception], None],
        what: str,
        where: str,
    ) -> None:
        """Have something done by the worker `files`; a bug in it counts as a fault of `where`."""

        def done(result: Any) -> Outcome:
            then(result)
            return Reply(None)

        def cannot(error: Exception) -> Outcome:
            self._log.line("error", "cluster-work-failed", what=what, error=error)
            failed(error)
            return Reply(None)

        self._broker.effects.start(Do(faulted(where, work), done, cannot))

    def _of_topic(
        self,
        work: Callable[[], Any],
        then: Callable[[Any], None],
        over: Callable[[], None],
        again: Callable[[], None],
        what: str,
    ) -> None:
        """Do one work of a topic, and let the next one begin; what cannot be done comes again behind the others."""

        def done(result: Any) -> None:
            try:
                then(result)
            finally:
                over()

        def failed(_: Exception) -> None:
            over()
            self._later(RETRY_S, again)

        self._in_files(work, done, failed, what, self._broker.store.data_dir)

    def open(self, wish: OpenLog) -> None:
        """As the table says."""
        self._queue(wish.partition.topic, partial(self._open, wish))

    def _open(self, wish: OpenLog, over: Callable[[], None]) -> None:
        partition, topic_id = wish
        wanted = self._member.image.topics.get(partition.topic)
        topic = self._broker.store.topics.get(partition.topic)
        if wanted is None or wanted.topic_id != topic_id:
            over()
        elif topic is None:
            config, count = dict(wanted.config), len(wanted.replicas)

            def shown(made: Topic) -> None:
                self._broker.store.add_topic(made)
                self._opened(wish, made)

            make = partial(self._broker.store.make_topic, partition.topic, count, config, id_of(topic_id))
            self._of_topic(make, shown, over, partial(self.open, wish), f"making topic {partition.topic}")
        elif id_text(topic.topic_id) != topic_id or partition.partition >= len(topic.partitions):
            over()  # another topic of this name is on its way out, or gets partitions: it goes on behind that
            if (partition.topic, id_text(topic.topic_id)) in self._strays:
                self._obstructed(wish)
            self._later(RETRY_S, self.open, wish)
        else:
            self._opened(wish, topic)
            over()

    def _opened(self, wish: OpenLog, topic: Topic) -> None:
        log = topic.partitions[wish.partition.partition]
        replica = self._replicas.get(log)
        if replica is None:
            replica = self._replicas[log] = Replica(log)
            replica.full = self._full and log.topic not in ALWAYS_WRITTEN
        self._turn(lambda now_ms: self._member.opened(wish.partition, wish.topic_id, replica, now_ms))

    def configure(self, wish: Configure) -> None:
        """As the table says."""
        self._queue(wish.topic, partial(self._configure, wish))

    def _configure(self, wish: Configure, over: Callable[[], None]) -> None:
        store, config = self._broker.store, dict(wish.config)
        topic = store.topics.get(wish.topic)
        wanted = self._member.image.topics.get(wish.topic)
        if topic is None or (topic.config == config and len(topic.partitions) >= wish.partitions):
            over()
            return
        if wanted is None or wanted.topic_id != id_text(topic.topic_id):
            over()  # what is here is another topic of the name
            return

        def work() -> Callable[[], None]:
            settings = store.write_config(topic, config)
            more = store.make_partitions(topic, wish.partitions) if wish.partitions > len(topic.partitions) else []

            def show() -> None:
                store.use_config(topic, config, settings)
                if more:
                    store.add_partitions(topic, more)

            return show

        def again() -> None:
            """By what is known then."""
            wanted = self._member.image.topics.get(wish.topic)
            if wanted is not None:
                self.configure(Configure(wish.topic, wanted.config, len(wanted.replicas)))

        self._of_topic(work, lambda show: show(), over, again, f"changing topic {wish.topic}")

    def remove(self, wish: RemoveLog) -> None:
        """As the table says; the first partition of a topic takes all of it."""
        self._queue(wish.partition.topic, partial(self._remove, wish))

    def _remove(self, wish: RemoveLog, over: Callable[[], None]) -> None:
        name = wish.partition.topic
        topic = self._broker.store.topics.get(name)
        if topic is None or id_text(topic.topic_id) != wish.topic_id:
            over()
            return
        for log in topic.partitions:
            self._replicas.pop(log, None)
            self._held.pop(PartitionId(name, log.partition), None)

        def ended(failures: Mapping[str, str]) -> None:
            for reason in failures.values():
                log_line("error", "topic-not-removed", topic=name, error=reason)
                self._later(RETRY_S, self.remove, wish)
            over()

        self._broker.effects.start(erase_here(self._broker, name, ended))

    # logs

    def fail(self, partition: PartitionId, error: Exception) -> None:
        """Take a log offline of which nobody knows any more what was done to it: other replicas go on."""
        replica = self.replica(partition)
        if replica is not None:
            self._take_offline(replica.log, error)

    def _take_offline(self, log: PartitionLog, error: Exception) -> None:
        log.fail(as_fault(log, error))
        self._broker.effects.offline([log])

    def replica(self, partition: PartitionId) -> Replica | None:
        """The log of a partition."""
        log = self._broker.store.log(*partition)
        return self._replicas.get(log) if log is not None else None

    def append(self, wish: Append) -> None:
        """As the table says."""
        replica = self.replica(wish.partition)
        if replica is not None and isinstance(wish.records, memoryview) and len(wish.records):
            self._append(wish.partition, replica, wish.records, wish.offset)

    def _append(self, partition: PartitionId, replica: Replica, records: memoryview, offset: int) -> None:
        log = replica.log
        stale = replica.log_end_offset != offset or self._leads(partition)  # it was truncated meanwhile, or leads
        if log.fault is not None or replica.full or stale:
            self._moved(partition)  # the member asks anew
            return
        if self._broker.space.room_bytes < 0 and log.topic not in ALWAYS_WRITTEN:
            self._refused(partition, replica, Refusal(ErrorCode.KAFKA_STORAGE_ERROR, "there may be no room left"))
            return
        if log.writer.busy:
            self._later(BUSY_S, self._append, partition, replica, records, offset)
            return
        try:
            first = begins_before(records, log.state)
            if first is not None:
                self._begin_amid(partition, replica, records, first.size)
                return
            if self._broker.throttle.slow:
                raise WouldBlockError
            begin = self._broker.clock.seconds()
            taken = replica.append(records, self._broker.time.now(), opens=False)
            self._broker.took(self._broker.clock.seconds() - begin, taken)
        except WouldBlockError:
            self._append_behind(partition, replica, records, offset)
            return
        except RollDue:
            self._broker.effects.roll(log)
            self._later(BUSY_S, self._append, partition, replica, records, offset)
        except WriteUnderWay:
            self._later(BUSY_S, self._append, partition, replica, records, offset)
        except Refusal as refusal:
            self._refused(partition, replica, refusal)
        except StorageFault as fault:
            self._take_offline(log, fault)
            self._moved(partition)
        else:
            self._appended(partition, replica, records, taken)

    def _begin_amid(self, partition: PartitionId, replica: Replica, records: memoryview, size: int) -> None:
        """Begin an empty log with a batch that it starts amid; whatever else came is appended then."""
        log, offset = replica.log, replica.log_end_offset
        if not hold(log):
            self._later(BUSY_S, self._append, partition, replica, records, offset)
            return
        log_line("info", "begins-amid-a-batch", topic=log.topic, partition=log.partition, log_start_offset=offset)

        def began(fresh: PartitionLog) -> Outcome:
            go_on(log, fresh)
            replica.wrote()
            self._appended(partition, replica, records, size)
            return Reply(None)

        def failed(error: Exception) -> Outcome:
            self._let_go(log)
            if isinstance(error, Refusal):
                self._refused(partition, replica, error)
            else:
                self._take_offline(log, error)
                self._moved(partition)
            return Reply(None)

        work = partial(begin_amid, self._broker.store, log, records[:size], self._broker.time.now())
        self._broker.effects.start(behind("disk", behind("writer", Do(faulted(log.directory, work), began, failed))))

    def _append_behind(self, partition: PartitionId, replica: Replica, records: memoryview, offset: int) -> None:
        """Leave it to the worker `writer`, which waits for the disk."""
        log = replica.log
        try:
            writing = replica.begin_append(records, self._broker.time.now())
        except RollDue:
            self._broker.effects.roll(log)
            self._later(BUSY_S, self._append, partition, replica, records, offset)
            return
        except (Refusal, StorageFault) as error:
            self._refused(partition, replica, error)
            return

        seconds, throttle, size = self._broker.clock.seconds, self._broker.throttle, len(writing.records)

        def work() -> float:
            begin = seconds()
            writing.run()
            return seconds() - begin

        def done(took: float) -> Outcome:
            throttle.unsynced_bytes += 0 if log.settings.left_to_kernel else size
            throttle.wrote_behind(took, size)
            try:
                taken = replica.end_append(writing)
            except StorageFault:
                self._broker.effects.offline([log])
                self._moved(partition)
            except Refusal as refusal:
                self._refused(partition, replica, refusal)
            else:
                self._appended(partition, replica, records, taken)
            return Reply(None)

        def failed(error: Exception) -> Outcome:
            log.fail(as_fault(log, error))
            return done(0.0)

        self._broker.effects.start(Do(faulted(log.directory, work), done, failed, "writer"))

    def _refused(self, partition: PartitionId, replica: Replica, error: Exception) -> None:
        """What a leader sent cannot be appended, or there is no space: it is fetched again a while later."""
        log = replica.log
        self._log.line("error", "replica-append-refused", topic=log.topic, partition=log.partition, error=error)
        replica.pauses = True
        if isinstance(error, Refusal) and error.code == ErrorCode.KAFKA_STORAGE_ERROR and not self._full:
            self._broker.space.look_soon()

        def go_on() -> None:
            replica.pauses = False
            self._moved(partition)

        self._later(RETRY_S, go_on)

    def _appended(self, partition: PartitionId, replica: Replica, records: memoryview, taken: int) -> None:
        log = replica.log
        self._broker.space.room_bytes -= taken
        if replica.epoch_due:
            self._keep_epoch(partition, replica, lambda: None)
        if log.settings.sync_awaited:
            self._dispatcher.syncer.sync_soon(log)
        else:
            self._dispatcher.syncer.sync_later(log)
        if taken < len(records):
            self._later(0, self._append, partition, replica, records[taken:], replica.log_end_offset)
        else:
            self._moved(partition)

    def look_at_room(self) -> None:
        """Where the disk is full, replicas take nothing more and leave the in-sync set; others lead.

        Those of internal topics do so once no byte was left for one of their writes.
        """
        full = self._broker.space.refusing or self._broker.space.tight
        if full or self._full:
            self._look_at_internal(full=full)
        if full == self._full:
            return
        self._full = full
        for log, replica in self._replicas.items():
            if log.topic not in ALWAYS_WRITTEN:
                replica.full = full
                self._member.hurry(PartitionId(log.topic, log.partition))
        if full:
            log_line("warning", "replicas-keep-out", reason="the disk is full", followed=self.kept_out)
        else:
            log_line("info", "replicas-follow-again", reason="there is room")

    def _look_at_internal(self, *, full: bool) -> None:
        status = self._broker.space.status
        has_room = not full or (status is not None and status.free >= INTERNAL_ROOM_BYTES)
        for log, replica in self._replicas.items():
            if log.topic in ALWAYS_WRITTEN:
                log.writer.out_of_space = log.writer.out_of_space and not has_room
                if replica.full != log.writer.out_of_space:
                    self._block_internal(log, replica, blocked=log.writer.out_of_space)

    def _block_internal(self, log: PartitionLog, replica: Replica, *, blocked: bool) -> None:
        replica.full = blocked
        self._member.hurry(PartitionId(log.topic, log.partition))
        where = {"topic": log.topic, "partition": log.partition}
        if blocked:
            log_line("error", "internal_replica_blocked", **where, reason="no space is left", action=FREE_SPACE)
        else:
            log_line("info", "internal_replica_unblocked", **where, reason="there is room")

    @property
    def kept_out(self) -> int:
        """How many replicas that do not lead take nothing, as the disk is full."""
        followed = [each for each in self._member.partitions.values() if each.leading is None]
        return sum(each.log.full for each in followed)

    def _leads(self, partition: PartitionId) -> bool:
        found = self._member.partitions.get(partition)
        return found is not None and found.leading is not None

    def _moved(self, partition: PartitionId) -> None:
        self._turn(lambda now_ms: self._member.log_moved(partition, now_ms))

    def begin_epoch(self, wish: BeginEpoch) -> None:
        """As the table says."""
        partition, epoch = wish
        replica = self.replica(partition)
        if replica is None or replica.log.fault is not None:
            return
        found = self._member.partitions.get(partition)
        if found is None or found.leading is None or found.leading.epoch != epoch:
            return
        replica.begin_epoch(epoch)
        self._show(replica, found.high_watermark)

        def begun() -> None:
            self._turn(lambda now_ms: self._member.epoch_begun(partition, epoch, now_ms))

        self._keep_epoch(partition, replica, begun)

    def _keep_epoch(self, partition: PartitionId, replica: Replica, then: Callable[[], None]) -> None:
        """Have on the disk where epochs begin; behind rolls, which run in the same worker.

        What is due while others are being written is written together: whoever takes over from a board that stops
        begins many epochs at once.
        """
        self._epochs.append((partition, replica, then))
        if not self._keeping:
            self._keep_epochs()

    def _keep_epochs(self) -> None:
        due, self._epochs, self._keeping = self._epochs, [], True
        replicas = list(dict.fromkeys(replica for _, replica, _ in due))
        batch = self._broker.store.batch_for(len(replicas))

        def kept(_: object) -> Outcome:
            for partition, replica, then in due:
                if replica.log.fault is None:
                    then()
                else:
                    self._broker.effects.offline([replica.log])
                    self._moved(partition)
            return Reply(None)

        def over() -> None:
            self._keeping = False
            if self._epochs:
                self._keep_epochs()

        def failed(error: Exception) -> Outcome:
            raise error  # it leaves its faults with the logs

        self._broker.effects.start(Do(partial(keep_epochs, replicas, batch), kept, failed, "disk", over))

    # truncation

    def enter(self, wish: Enter) -> None:
        """As the table says."""
        replica = self.replica(wish.partition)
        if replica is None or replica.log.fault is not None:
            return
        log, what = replica.log, f"writing {wish.cause} down"

        def again(_: Exception) -> None:
            self._later(RETRY_S, self.enter, wish)

        lost = wish.losses[0].end_offset if wish.losses else 0
        if lost is None:
            unknown = partial(enter_unknown, log, wish.losses[0].epoch, wish.cause)
            self._in_files(unknown, lambda _: self._entered(wish), again, what, log.directory)
            return
        if not self._is_wanted(wish):
            return
        if wish.partition not in self._held and not hold(log):
            self._later(BUSY_S, self.enter, wish)
            return
        found = self._member.partitions[wish.partition]
        assert found.cutting is not None

        def entered(end: Entered) -> None:
            if self._is_wanted(wish):
                self._held[wish.partition] = end
                self._entered(wish)
            else:
                self._let_go(log)
                self._moved(wish.partition)

        def failed(error: Exception) -> None:
            """The ledger may take it later; a log that cannot be read, nobody can truncate."""
            if isinstance(error, StorageFault) and f"{error.path}/".startswith(f"{log.directory}/"):
                self.fail(wish.partition, error)
            self._let_go(log)
            self._moved(wish.partition)  # it may have been elected meanwhile, and wait for that
            again(error)

        work = partial(_enter_around_damage, log, found.cutting.lost_from)
        self._in_files(work, entered, failed, what, log.directory)

    def _let_go(self, log: PartitionLog) -> None:
        """Go on as before it was held; a sync that was wanted meanwhile was none."""
        let_go(log)
        if log.state.synced.offset < log.log_end_offset:
            self._broker.effects.sync(log)

    def _is_wanted(self, wish: Enter) -> bool:
        found = self._member.partitions.get(wish.partition)
        return found is not None and found.cutting is not None and found.cutting.token == wish.token

    def _entered(self, wish: Enter) -> None:
        self._turn(lambda now_ms: self._member.entered(wish.partition, wish.token, now_ms))

    def truncate(self, wish: Truncate) -> None:
        """As the table says."""
        replica, entered = self.replica(wish.partition), self._held.pop(wish.partition, None)
        if replica is None or entered is None:
            return
        log = replica.log
        log_line("warning", "truncates", topic=log.topic, partition=log.partition, log_end_offset=wish.end_offset)
        self._cut(wish.partition, log, partial(truncate, self._broker.store, log, entered, self._broker.time.now()))

    def start_anew(self, wish: StartAnew) -> None:
        """As the table says."""
        self._remake(wish, "starts-anew", start_anew, log_start_offset=wish.start_offset)

    def cut_damage(self, wish: CutDamage) -> None:
        """As the table says."""
        self._remake(wish, "cuts-damage", cut_damage)

    def pass_over(self, wish: PassOver) -> None:
        """As the table says."""
        self._remake(wish, "passes-over-lost", pass_over, up_to=wish.end_offset)

    def _remake(
        self, wish: StartAnew | CutDamage | PassOver, event: str, make: Callable[..., PartitionLog], **facts: object
    ) -> None:
        """Hold a log, and have another one made of it; not one that is offline, or of a topic that was made anew."""
        partition = wish.partition
        replica, found = self.replica(partition), self._member.partitions.get(partition)
        if replica is None or replica.log.fault is not None or found is None or found.log is not replica:
            return
        log = replica.log
        if self._held.pop(partition, None) is None and not hold(log):
            self._later(BUSY_S, partial(self._remake, wish, event, make, **facts))
            return
        where = {"topic": log.topic, "partition": log.partition, "log_end_offset": log.log_end_offset}
        log_line("warning", event, **where, **facts)
        self._cut(partition, log, partial(make, self._broker.store, log, *wish[1:], self._broker.time.now()))

    def _cut(self, partition: PartitionId, log: PartitionLog, work: Callable[[], PartitionLog]) -> None:
        """Go on as what is made of a log that is held."""

        def cut(fresh: PartitionLog) -> Outcome:
            go_on(log, fresh)
            self._turn(lambda now_ms: self._member.truncated(partition, now_ms))
            return Reply(None)

        def failed(error: Exception) -> Outcome:
            self._let_go(log)
            self._take_offline(log, error)
            self._moved(partition)
            return Reply(None)

        work = faulted(log.directory, work)
        self._broker.effects.start(behind("disk", behind("writer", Do(work, cut, failed))))

    def own_up(self, wish: OwnUp) -> None:
        """As the table says; what cannot be written down now is wanted again."""
        replica = self.replica(wish.partition)
        if replica is None:
            return
        log = replica.log

        def over(_: object) -> None:
            self._broker.effects.note(*log.take_damage_notes())
            self._turn(lambda now_ms: self._member.owned_up(wish.partition, now_ms))

        what = "writing down what no replica has"
        self._in_files(partial(own_up, log), over, lambda error: self._later(RETRY_S, over, error), what, log.directory)

    def reopen(self, wish: Reopen) -> None:
        """As the table says; that it cannot be done yet is said each time, which is not often."""
        partition, anew, kept_until = wish
        replica, known = self.replica(partition), self._member.partitions.get(partition)

        def over() -> None:
            self._turn(lambda now_ms: self._member.reopened(partition, now_ms))

        if replica is None or replica.log.fault is None or known is None or known.log is not replica:
            over()
            return
        log = replica.log
        where = {"topic": log.topic, "partition": log.partition}

        def opened(found: Reopened) -> Outcome:
            if self._broker.store.holds(log):  # else it was deleted meanwhile
                before, fault = log.log_end_offset, log.fault
                self._held.pop(partition, None)
                log.go_on_as(found.log)
                replica.led_from = None
                self._dispatcher.is_back(log)
                for note in found.notes:
                    log_line("warning", "reopened", note=note)
                ends = {"log_end_offset": log.log_end_offset, "before": before}
                log_line("warning", "partition-back", **where, **ends, fault=fault)
            over()
            return Reply(None)

        def refused(error: Exception) -> Outcome:
            log_line("warning", "partition-still-offline", **where, error=error)
            over()
            return Reply(None)

        opens = partial(reopen, self._broker.store, log, self._broker.time.now(), anew=anew, kept_until=kept_until)
        work = partial(opens, led_from=replica.led_from)
        works = Do(faulted(log.directory, work), opened, refused)
        self._broker.effects.start(behind("disk", behind("writer", works)))

    def remove_front(self, wish: RemoveFront) -> None:
        """As the table says."""
        replica = self.replica(wish.partition)
        if replica is None or replica.log.fault is not None or self._leads(wish.partition):
            return
        log, now = replica.log, self._broker.time.now()
        offset = min(wish.start_offset, log.high_watermark)

        def failed(_: Exception) -> None:
            if log.fault is not None:
                self._broker.effects.offline([log])
                self._moved(wish.partition)

        what = "removing what the leader has removed"
        self._in_files(partial(follow_start, log, offset, now), lambda _: None, failed, what, log.directory)

    # what may be shown

    def advance(self, wish: Advance) -> None:
        """As the table says."""
        replica = self.replica(wish.partition)
        if replica is not None and replica.log.fault is None:
            self._show(replica, wish.high_watermark)

    def _show(self, replica: Replica, high_watermark: int) -> None:
        replica.show(high_watermark)
        self._broker.effects.shown(replica.log)

    def tell(self, partition: PartitionId) -> None:
        """Who waits for a log finds that another broker leads it now, or this one."""
        replica = self.replica(partition)
        if replica is not None:
            self._broker.effects.shown(replica.log)


def faulted(where: str, work: Callable[[], T]) -> Callable[[], T]:
    """The same work, of which a bug, too, is a fault: nobody knows what it left behind, and it is not tried again."""

    def run() -> T:
        try:
            return work()
        except (StorageFault, Refusal):
            raise
        except Exception as error:
            raise StorageFault(where, 0, f"this failed: {error!r}") from error

    return run


@runs_in("files")
def _enter_around_damage(log: PartitionLog, end_offset: int) -> Entered:
    """As `enter`; what is damaged of that which goes is quarantined first, and so in the ledger as that."""
    tried = set[tuple[str, int]]()
    while True:
        try:
            return enter(log, end_offset)
        except DamageFound as found:
            place = found.segment.path, found.position
            if place in tried or quarantine(log, found, lost=True) is None:
                raise StorageFault(*place, found.reason) from found
            tried.add(place)
