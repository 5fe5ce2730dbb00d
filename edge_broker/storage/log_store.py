"""All topics of one data directory (data_directory.py), and their logs.

Contains: the map of topics, the order of a start and of a stop. Does not contain: batches, segments. Source: Kafka's
LogManager.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from drupelet.ledger import LEDGER_CONFIG
from edge_broker.configuration.settings import LogSettings
from edge_broker.errors import StorageFault
from edge_broker.protocol.message import NO_UUID
from edge_broker.storage.data_directory import STORE, DataDirectory
from edge_broker.storage.files.atomic_files import (
    OUT_OF_SPACE,
    drop_leftovers,
    fault_of,
    read_whole,
    replace,
    write_all,
)
from edge_broker.storage.files.batched_replace import BatchedFiles
from edge_broker.storage.files.data_age import Now
from edge_broker.storage.files.filesystem import FileSystem
from edge_broker.storage.log.group_commit import GroupCommit
from edge_broker.storage.log.leader_epochs import NONE, LeaderEpochs
from edge_broker.storage.log.log_roller import make_segment_file
from edge_broker.storage.log.log_state import LogState
from edge_broker.storage.log.partition_log import PartitionLog
from edge_broker.storage.log.producer_state import NOBODY, Producers
from edge_broker.storage.log.producer_state_limit import ProducerMemory
from edge_broker.storage.loss.startup_ledger import DirectLedger, EarlyLedger, ledger_settings
from edge_broker.storage.metadata.broker_id import check_membership
from edge_broker.storage.metadata.loss_records import Ledger, Loss, NoLedger
from edge_broker.storage.metadata.topic_config import topic_settings
from edge_broker.storage.metadata.topic_record import (
    LEDGERS,
    OFFSETS_TOPIC,
    TOPIC_SUFFIX,
    TopicRecord,
    check_topic_name,
    decode_topic,
    encode_partition_metadata,
    encode_topic,
    id_text,
    split_partition_directory,
)
from edge_broker.storage.recovery.dirty_markers import MarkKey, Marks, Session
from edge_broker.storage.recovery.open_partition import (
    RecoveryContext,
    Wanted,
    note_cut,
    offline_partition,
    open_partition,
)
from edge_broker.storage.recovery.recovery_checkpoint import FILES, PartitionKey, Position
from edge_broker.storage.recovery.unclean_shutdown import Cut
from edge_broker.storage.retention.eviction_plan import segment_bytes_max
from edge_broker.storage.retention.topic_deletion import Deletions, id_in
from edge_broker.storage.segment.open_file_cache import OpenFiles
from edge_broker.storage.segment.segment import Segment
from edge_broker.storage.topic import Topic
from edge_broker.thread_checks import runs_in

if TYPE_CHECKING:
    from edge_broker.clock import Reading

TOGETHER_MIN = 8  # logs to be written down at a stop, from which on one syncfs is waited for in place of theirs
WRITTEN_ON = (*LEDGERS, OFFSETS_TOPIC)  # also where there is no space for another segment


class LogStore:
    """The topics of a data directory; methods that run in the worker `files` run one after another."""

    def __init__(self, directory: DataDirectory, settings: LogSettings) -> None:
        self.directory = directory
        self.fs = fs = directory.fs
        self.data_dir = data_dir = directory.path
        self.group_commit = GroupCommit(fs, data_dir)
        self.settings = settings
        self.topics: dict[str, Topic] = {}
        self.topics_by_id: dict[uuid.UUID, Topic] = {}
        self._hidden: dict[str, Topic] = {}  # about to be deleted; what a checkpoint or a stop says covers them
        self.recovery_notes = directory.notes
        self.recovery_bytes = 0  # of logs, read at the start because the stop before was not clean
        self.ledger: Ledger = NoLedger()
        self.spare = directory.spare
        self.producer_memory = ProducerMemory()
        self._deletions = Deletions(fs, data_dir, self.spare, self.recovery_notes)
        self._files = OpenFiles(fs)
        self.in_use = directory.in_use
        self._marks: Marks | None = None  # as the stop before left them
        self._unwritten: list[Loss] = []  # what the ledger did not take at the start
        self.together_min = TOGETHER_MIN
        self._closed = False

    @classmethod
    def open(
        cls,
        fs: FileSystem,
        data_dir: str,
        settings: LogSettings,
        reading: Reading,
        new_uuid: Callable[[], uuid.UUID],
        node: str = "",
        *,
        in_cluster: bool = False,
        broker_id: int | None = None,
    ) -> LogStore:
        """Open a data directory, making it first if it is not there; recovers what a crash left.

        `node` is the broker's id, for the ledger. `in_cluster`: logs are replicas (replica_log.py), but for the
        journal's;
        the directory gets an identity, and is never opened without this again. StorageFault for the store's own files,
        and where a start finds no space for what it has to write; any other partition that cannot be opened is offline
        and noted. With a `broker_id` the directory is that broker's alone (metadata/broker_id.py); ConfigurationError.
        """
        directory = DataDirectory(fs, data_dir.rstrip("/") or "/")
        store = cls(directory, settings)
        try:
            store._open(reading, new_uuid, node, in_cluster=in_cluster, broker_id=broker_id)
        except BaseException as error:
            directory.unlock()  # else the directory stays locked as long as a reference to the error exists
            if isinstance(error, OSError):
                raise fault_of(error, data_dir, 0) from error
            raise
        return store

    # opening

    def _open(
        self,
        reading: Reading,
        new_uuid: Callable[[], uuid.UUID],
        node: str,
        *,
        in_cluster: bool,
        broker_id: int | None,
    ) -> None:
        directory = self.directory
        names = directory.lock()
        check_membership(self.fs, self.data_dir, in_cluster=in_cluster)
        if STORE not in names:
            directory.initialise(names, new_uuid)
            names = self.fs.names(self.data_dir)
        if broker_id is not None:
            directory.keep_broker_id(broker_id, in_cluster=in_cluster)
        if in_cluster:
            directory.open_registrations(names, new_uuid)
        names = self.fs.names(self.data_dir)  # what a crash left of these files is gone by now
        directory.read_ids()
        directory.read_positions()
        self._marks = directory.read_marks()
        self.group_commit.card = directory.read_card()
        directory.read_age(reading)
        clean = directory.begin_epoch(names)
        if not clean:
            topics = directory.path_of("topics")
            drop_leftovers(self.fs, topics, self.fs.names(topics))
            self.fs.sync_directory(topics)  # a killed process may leave names that no disk has
        self._deletions.finish()
        now, walked = directory.age.now(reading), list[int]()
        self.in_use.session = Session(reading.boot_id, self.fs.mount(self.data_dir))
        opening = RecoveryContext(self._files, self.directory.leader_epoch, clean, now, self.recovery_notes, walked, [])
        opening = opening._replace(cut=None if clean else self._cut())
        if self.directory.registrations is not None and opening.cut is not None and not opening.cut.took_nothing:
            directory.keep_registrations(self.directory.registrations.behind_a_cut())
        opening = opening._replace(ledger=self._open_ledger(opening, names, new_uuid, node))
        for name in sorted(self.fs.names(self.directory.path_of("topics"))):
            if name.endswith(TOPIC_SUFFIX) and name != self.directory.own_ledger + TOPIC_SUFFIX:
                self.add_topic(self._open_topic(opening, name, names))
        self.recovery_bytes = sum(walked)
        self._forget_truncations(opening)
        self._put_unknown_files_aside(self.fs.names(self.data_dir))
        self._write_first_files(opening)

    def log(self, topic: str, partition: int) -> PartitionLog | None:
        """What lies here of a partition, whoever leads it; None: nothing. All that a topic has lie where it lies."""
        there = self.topics.get(topic)
        logs = there.partitions if there is not None else []
        return logs[partition] if 0 <= partition < len(logs) else None

    @property
    def orphans(self) -> tuple[str, ...]:
        """Topics with replicas here while the disk does not know its cluster, as without the file `registrations`.

        Not the ledger: a board that stood alone brings its own along.
        """
        if self.directory.registrations is None or self.directory.registrations.cluster:
            return ()
        return tuple(sorted(name for name in self.topics if name not in LEDGERS))

    @property
    def ledger_log(self) -> PartitionLog:
        """That log."""
        return self.topics[self.directory.own_ledger].partitions[0]

    def _cut(self) -> Cut | None:
        """What a stop that was not clean may have cost besides what is found; None when the kernel had it all."""
        session = self.in_use.session
        if self._marks is not None:
            return Cut(self._marks.lost_in(session), kept=self._marks.session.kept(session))
        return None if self.directory.is_same_boot(session.boot_id) else Cut(None)

    def _write_first_files(self, opening: RecoveryContext) -> None:
        """What this start found and did, for the next one; a full disk must not be the end of a start. OSError."""
        try:
            self._write_cut(opening)
            if self._marks != Marks(self.in_use.session, frozenset()):
                self.in_use.clear(self._offline_marks(opening))
            self.directory.write_age()  # the next start asks whether the power was off in between
            if not opening.clean:
                self._write_positions()
            if not opening.clean or self.recovery_notes:
                self.directory.write_last_recovery(opening.now.wall_ms, self.recovery_bytes)
        except StorageFault as fault:
            self.recovery_notes.append(f"{fault}; the next start looks at the same again")
        except OSError as error:
            if error.errno not in OUT_OF_SPACE:
                raise
            path = error.filename or self.data_dir
            self.recovery_notes.append(f"{path}: no space to write it; what was written before stays true")

    def _write_cut(self, opening: RecoveryContext) -> None:
        """The losses of a cut; until the ledger has them the marks stay as they are. StorageFault, Refusal."""
        losses = opening.cut.losses if opening.cut is not None else []
        self.in_use.held, self._unwritten = bool(losses), losses
        if losses:
            self.ledger.write(losses)
        self.in_use.held, self._unwritten = False, []

    def _offline_marks(self, opening: RecoveryContext) -> Iterator[MarkKey]:
        """Marks of partitions that could not be opened, whose losses nobody has written down."""
        if self._marks is not None and not opening.clean:
            unseen = self._marks.keys - self._marks.lost_in(self.in_use.session)
            for topic in self.topics.values():
                for log in topic.partitions:
                    if log.fault is not None and (key := (id_text(topic.topic_id), log.partition)) in unseen:
                        yield key

    def _open_ledger(
        self, opening: RecoveryContext, names: list[str], new_uuid: Callable[[], uuid.UUID], node: str
    ) -> Ledger:
        """Open what losses go to before every other topic, so that they can write into it; made at the first start."""
        early, file_name = EarlyLedger(), self.directory.own_ledger + TOPIC_SUFFIX
        if self.directory.registrations is not None:
            self._take_ledger_over(names)
        if self.fs.exists(f"{self.directory.path_of('topics')}/{file_name}"):
            topic = self._open_topic(opening._replace(ledger=early), file_name, names)
        else:
            topic = self._make_topic(self.directory.own_ledger, 1, LEDGER_CONFIG, new_uuid())
        ledger = DirectLedger(topic.partitions[0], lambda: opening.now, node)
        self.ledger = ledger
        self.add_topic(topic)
        if early.losses:
            ledger.write(early.losses)
        return ledger

    def _take_ledger_over(self, names: list[str]) -> None:
        """Let the ledger of a board that stood alone be the journal of one in a cluster. OSError, StorageFault."""
        from edge_broker.storage.loss.ledger_journal import take_over  # noqa: PLC0415 - for a cluster alone

        take_over(self.fs, self.data_dir)
        names[:] = self.fs.names(self.data_dir)

    def use_ledger(self, ledger: Ledger) -> None:
        """Write losses down this way from now on; who appends to the ledger's log decides."""
        self.ledger = ledger
        for topic in list(self.topics.values()):
            for log in topic.partitions:
                log.ledger = ledger

    def _settings(self, name: str, config: dict[str, str], *, compacted: bool = False) -> LogSettings:
        if name in LEDGERS:
            return ledger_settings(self.settings)
        settings = topic_settings(self.settings, config, compacted=compacted)
        bytes_max = segment_bytes_max(self.fs.space(self.data_dir).total, settings.budget_bytes)
        settings.segment_bytes = min(settings.segment_bytes, bytes_max)
        return settings

    def _open_topic(self, opening: RecoveryContext, file_name: str, names: list[str]) -> Topic:
        path = f"{self.directory.path_of('topics')}/{file_name}"
        try:
            record = decode_topic(path, read_whole(self.fs, path))
            settings = self._settings(record.name, record.config, compacted=record.compacted)
        except (StorageFault, OSError) as error:
            fault = error if isinstance(error, StorageFault) else fault_of(error, path, 0)
            return self._offline_topic(opening, file_name[: -len(TOPIC_SUFFIX)], names, fault)
        partitions: list[PartitionLog] = []
        for partition in range(record.partitions):
            directory = self.directory.path_of(f"{record.name}-{partition}")
            stored = self.directory.positions.stored.get((record.topic_id, partition))
            where = (record.name, record.topic_id, partition, directory)
            wanted = Wanted(*where, settings, stored, self.directory.is_replicated(record.name))
            partitions.append(open_partition(opening, wanted))
            self.producer_memory.join(partitions[-1].writer.producers)
        return Topic(record.name, record.topic_id, partitions, record.config, settings)

    def _offline_topic(self, opening: RecoveryContext, topic: str, names: list[str], fault: StorageFault) -> Topic:
        """A topic whose file is damaged keeps its name and its directories, so that nothing is made in their place."""
        self.recovery_notes.append(f"topic {topic} is offline: {fault}")
        found = [place[1] for name in names if (place := split_partition_directory(name)) and place[0] == topic]
        directories = [self.directory.path_of(f"{topic}-{partition}") for partition in range(max(found, default=0) + 1)]
        topic_id = id_in(self.fs, directories[0]) or NO_UUID
        logs = [
            offline_partition(opening, topic, partition, directory, self.settings, fault)
            for partition, directory in enumerate(directories)
        ]
        for partition in range(len(logs)):
            stored = self.directory.positions.stored.get((topic_id, partition))
            note_cut(opening, topic, id_text(topic_id), partition, self.settings, stored)
        return Topic(topic, topic_id, logs, {}, self.settings)

    def _put_unknown_files_aside(self, names: list[str]) -> None:
        """Partition directories of no topic: erased without bytes (a creation was interrupted), else put aside."""
        for name in names:
            place = split_partition_directory(name)
            if place is None:
                continue
            topic = self.topics.get(place[0])
            if topic is None or place[1] >= len(topic.partitions):
                self._deletions.clear_way(name)

    # topics

    @runs_in("files")
    def make_topic(self, name: str, partitions: int, config: dict[str, str], topic_id: uuid.UUID) -> Topic:
        """Make a topic, on disk and synced when this returns; `add_topic` shows it. Reads only the settings.

        Refusal (INVALID_TOPIC_EXCEPTION, INVALID_CONFIG), StorageFault; what an interruption leaves is cleared at the
        next start.
        """
        check_topic_name(name)
        return self._make_topic(name, partitions, config, topic_id)

    def _make_topic(self, name: str, partitions: int, config: dict[str, str], topic_id: uuid.UUID) -> Topic:
        settings = self._settings(name, config)
        try:
            self._deletions.free_name(name)
            logs = [self._make_partition(name, partition, settings, topic_id) for partition in range(partitions)]
            self.fs.sync_directory(self.data_dir)
            self._write_topic(TopicRecord(name, topic_id, partitions, config))
        except OSError as error:
            raise fault_of(error, self.directory.path_of(name), 0) from error
        return Topic(name, topic_id, logs, dict(config), settings)

    def _make_partition(self, topic: str, partition: int, settings: LogSettings, topic_id: uuid.UUID) -> PartitionLog:
        name = f"{topic}-{partition}"
        directory = self.directory.path_of(name)
        if self.fs.exists(directory):
            self._deletions.clear_way(name)
        self.fs.make_directory(directory)
        metadata = self.fs.create(f"{directory}/partition.metadata")
        write_all(metadata, encode_partition_metadata(topic_id), 0)
        metadata.datasync()
        segment = Segment(self._files, directory, 0, 0, settings.index_interval_bytes)
        make_segment_file(self._files, segment)
        segment.open_tail()
        where = (topic, partition, directory, settings, self._files)
        epoch = NONE if self.directory.is_replicated(topic) else self.directory.leader_epoch
        return PartitionLog(LogState(*where, [segment], 0, epoch, LeaderEpochs()), Producers(forgotten_max=NOBODY))

    @runs_in("files")
    def make_partitions(self, topic: Topic, count: int) -> list[PartitionLog]:
        """Make more partitions, so that there are `count`, on disk and synced when this returns.

        `add_partitions` shows them. StorageFault; what an interruption leaves is cleared at the next start.
        """
        new = range(len(topic.partitions), count)
        try:
            logs = [self._make_partition(topic.name, index, topic.settings, topic.topic_id) for index in new]
            self.fs.sync_directory(self.data_dir)
            self._write_topic(topic.record()._replace(partitions=count))
        except OSError as error:
            raise fault_of(error, self.directory.path_of(topic.name), 0) from error
        return logs

    def _write_topic(self, record: TopicRecord) -> None:
        replace(self.fs, self.directory.path_of("topics"), f"{record.name}{TOPIC_SUFFIX}", encode_topic(record))

    @runs_in("files")
    def write_config(self, topic: Topic, config: dict[str, str]) -> LogSettings:
        """Give a topic another configuration, on disk and synced when this returns; `use_config` goes by it.

        Refusal (INVALID_CONFIG), StorageFault.
        """
        compacted = topic.settings.may_have_gaps
        settings = self._settings(topic.name, config, compacted=compacted)
        if config != topic.config:
            try:
                self._write_topic(topic.record()._replace(config=config, compacted=compacted))
            except OSError as error:
                raise fault_of(error, self.directory.path_of(topic.name), 0) from error
        return settings

    def use_config(self, topic: Topic, config: dict[str, str], settings: LogSettings) -> None:
        """Go by a configuration that was written. Loop."""
        topic.config, topic.settings = config, settings
        for log in topic.partitions:
            log.state.settings = settings

    def add_partitions(self, topic: Topic, logs: Sequence[PartitionLog]) -> None:
        """Show partitions that were made."""
        topic.partitions = [*topic.partitions, *logs]
        self._adopt(topic)

    def add_topic(self, topic: Topic) -> None:
        """Show a topic that was made."""
        self._adopt(topic)
        self.topics[topic.name] = topic
        if topic.topic_id != NO_UUID:
            self.topics_by_id[topic.topic_id] = topic

    def _adopt(self, topic: Topic) -> None:
        for log in topic.partitions:
            log.topic_id = id_text(topic.topic_id)
            log.replicated = self.directory.is_replicated(topic.name)
            if self.directory.registrations is not None:
                log.cut_epoch = self.directory.registrations.cut_epoch
            log.ledger = self.ledger
            log.spare = self.spare
            log.writer.producer_memory = self.producer_memory
            log.writer.producer_memory.join(log.writer.producers)
            log.roller.stays_without_space = topic.name in WRITTEN_ON

    def hide_topic(self, name: str) -> Topic:
        """Hide a topic that is about to be deleted: `show_again` or `remove_topic` must follow."""
        topic = self.topics.pop(name)
        self.topics_by_id.pop(topic.topic_id, None)
        self._hidden[name] = topic
        return topic

    def show_again(self, name: str) -> Topic:
        """Show a hidden topic as it was: it stays."""
        topic = self._hidden.pop(name)
        self.add_topic(topic)
        return topic

    def remove_topic(self, name: str) -> Topic:
        """Hide a topic for good; requests that wait for its logs find them offline.

        `erase_topic` must follow, and `forget_topic` where that came to its end.
        """
        if name not in self._hidden:
            self.hide_topic(name)
        topic = self._hidden.pop(name)
        self.in_use.leave(topic.partitions)
        for log in topic.partitions:
            log.fail(StorageFault(log.directory, 0, "the topic was deleted"))
        return topic

    @runs_in("files")
    def erase_topic(self, topic: Topic) -> None:
        """Delete a hidden topic: its name first, synced, then its files.

        A crash in between is finished at the next start. StorageFault leaves the rest to the next start, or to the next
        CreateTopics of that name.
        """
        for log in topic.partitions:
            log.retire_files()
        try:
            self._deletions.delete(topic.record())
        except OSError as error:
            raise fault_of(error, self.directory.path_of(topic.name), 0) from error

    def forget_topic(self, topic: Topic) -> None:
        """Nothing is left of a topic that was erased."""
        self.in_use.gone(topic.partitions)

    # bringing partitions back (replica/resume_failed_log.py)

    def topic_of(self, log: PartitionLog) -> Topic | None:
        """A log's topic, while it is shown. Any thread may ask."""
        topic = self.topics.get(log.topic)
        return topic if topic is not None and log in topic.partitions else None

    def holds(self, log: PartitionLog) -> bool:
        """True while the log's topic is shown. Any thread may ask."""
        return self.topic_of(log) is not None

    def kept_topic_of(self, log: PartitionLog) -> Topic:
        """A log's topic, for whoever goes on with its files; StorageFault: it was deleted. Any thread may ask."""
        topic = self.topic_of(log)
        if topic is None:
            raise StorageFault(log.directory, 0, "the topic was deleted")
        return topic

    @runs_in("files")
    def reopen(self, topic: Topic, log: PartitionLog, end: Position | None, now: Now, notes: list[str]) -> PartitionLog:
        """What lies in a log's directory, opened as after an unclean stop; `fault` is set if not.

        Nothing else may run on the log, which is offline or to be truncated. OSError, StorageFault.
        """
        opening = RecoveryContext(self._files, self.directory.leader_epoch, False, now, notes, [], [], self.ledger)
        where = (log.topic, topic.topic_id, log.partition, log.directory)
        wanted = Wanted(*where, log.settings, end, self.directory.is_replicated(log.topic))
        log = open_partition(opening, wanted)
        self._forget_truncations(opening)
        return log

    def stored_end(self, topic: Topic, log: PartitionLog) -> Position | None:
        """What was written down last of where a log ends."""
        return self.directory.positions.stored.get((topic.topic_id, log.partition))

    @runs_in("files")
    def make_anew(self, topic: Topic, log: PartitionLog) -> PartitionLog:
        """An empty log in place of one of which nothing is left; what else lies there is put aside. OSError."""
        positions = self.directory.positions
        positions.write({key: at for key, at in positions.stored.items() if key != (topic.topic_id, log.partition)})
        fresh = self._make_partition(log.topic, log.partition, log.settings, topic.topic_id)
        self.fs.sync_directory(self.data_dir)
        return fresh

    def _forget_truncations(self, opening: RecoveryContext) -> None:
        """Write down where truncated logs end, then let them grow. OSError."""
        if not opening.truncated:
            return
        from edge_broker.storage.recovery.truncation_file import forget_truncation  # noqa: PLC0415 - for a cluster alone

        ends = {(one.topic_id, one.partition): one.end for one in opening.truncated}
        self.directory.positions.write({**self.directory.positions.stored, **ends})
        for one in opening.truncated:
            forget_truncation(self.fs, one.directory)

    # what outlives the process

    @runs_in("files")
    def checkpoint(self) -> None:
        """Write down every partition's confirmed end, if one moved, and the age, if it is worth it.

        Reads each log's `synced`, which the loop replaces as one value. StorageFault harms no partition: what was
        written down before stays true.
        """
        try:
            self._write_positions()
            self.directory.write_age()
        except OSError as error:
            raise fault_of(error, self.directory.path_of(FILES[0]), 0) from error
        if self._unwritten:
            self.ledger.write(self._unwritten)
            self.in_use.held, self._unwritten = False, []

    def _write_positions(self) -> None:
        """As `checkpoint`, OSError; a log that is offline keeps what was written last."""
        positions: dict[PartitionKey, Position] = {}
        for topic in self._kept_topics():
            for log in topic.partitions:
                key = (topic.topic_id, log.partition)
                if log.fault is None:
                    end = log.synced
                    positions[key] = Position(log.log_start_offset, end.segment.base_offset, end.position, end.offset)
                elif key in self.directory.positions.stored:
                    positions[key] = self.directory.positions.stored[key]
        self.directory.positions.write(positions)

    def _kept_topics(self) -> list[Topic]:
        """Every topic that a start would find as it is, the hidden ones too."""
        return [*self.topics.values(), *self._hidden.values()]

    def batch_for(self, count: int) -> BatchedFiles | None:
        """Where the files of so many logs are replaced together; None: each on its own is quicker."""
        return BatchedFiles(self.fs, self.data_dir) if count >= self.together_min else None

    def _stop_logs(self, logs: list[PartitionLog]) -> list[StorageFault]:
        """Sync and write down what logs need for the next start, of many together; the faults of those that failed."""
        batch = self.batch_for(len(logs))
        faults = []
        if batch is not None:
            self._sync_together(logs)
        for log in logs:
            try:
                if log.fault is not None:
                    raise log.fault.kept()
                log.roller.stop(batch)
            except StorageFault as fault:
                faults.append(fault)
                if batch is not None:
                    batch.drop(log.directory)
        failed = batch.finish() if batch is not None else {}
        for log in logs:
            if log.directory in failed:
                log.fail(fault_of(failed[log.directory], log.directory, 0))
        return faults + [log.fault for log in logs if log.directory in failed and log.fault is not None]

    def _sync_together(self, logs: list[PartitionLog]) -> None:
        round_ = [(log, flush) for log in logs if (flush := log.writer.begin_flush()) is not None]
        for (log, flush), fault in zip(
            round_, self.group_commit.run([flush for _, flush in round_], "all"), strict=True
        ):
            if fault is None:
                log.writer.finish_flush(flush)
            else:
                log.fail(fault)

    @runs_in("files")
    def close(self) -> None:
        """Sync all, write everything down, mark the stop clean and let the directory go; nothing else may run.

        With a partition offline the stop is not marked clean. StorageFault when something could not be
        written.
        """
        if self._closed:
            return
        self._closed = True
        logs = [log for topic in self._kept_topics() for log in topic.partitions]
        faults = self._stop_logs([log for log in logs if log.roller.stop_due])
        try:
            self._write_positions()
            self.in_use.end()
            self.directory.write_last_age()
            if all(log.fault is None for log in logs):
                self.directory.mark_clean()
        except OSError as error:
            faults.append(fault_of(error, self.directory.path_of(FILES[0]), 0))
        for log in logs:
            log.close_files()
        self.directory.unlock()
        if faults:
            raise faults[0]
