"""The topics of one data directory and their logs: which are visible, checkpoints, the order of a stop.

| object that it owns | has |
|---|---|
| `directory` (data_directory.py) | the lock, and the files that belong to no topic |
| `topic_files` (topic_files.py) | the files of topics: make, configure, erase |
| shared_log_parts.py | the parts that all logs share |
| opening.py | a start; it is thrown away after it |

Contains: the map of topics and the stop. Does not contain: batches, segments. Source: Kafka's LogManager.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from edge_broker.configuration.settings import LogSettings
from edge_broker.errors import StorageFault
from edge_broker.protocol.message import NO_UUID
from edge_broker.storage.data_directory import DataDirectory
from edge_broker.storage.files.atomic_files import fault_of
from edge_broker.storage.files.batched_replace import BatchedFiles
from edge_broker.storage.files.data_age import Now
from edge_broker.storage.files.filesystem import FileSystem
from edge_broker.storage.log.group_commit import GroupCommit
from edge_broker.storage.log.partition_log import PartitionLog
from edge_broker.storage.metadata.loss_records import Ledger
from edge_broker.storage.metadata.topic_record import LEDGERS
from edge_broker.storage.opening import Opening
from edge_broker.storage.recovery.open_partition import OpenRequest, RecoveryContext, open_partition
from edge_broker.storage.recovery.recovery_checkpoint import FILES, Position
from edge_broker.storage.shared_log_parts import SharedLogParts
from edge_broker.storage.topic import Topic, confirmed_ends
from edge_broker.storage.topic_files import TopicFiles
from edge_broker.thread_checks import runs_in

if TYPE_CHECKING:
    from edge_broker.clock import Reading

TOGETHER_MIN = 8  # logs at a stop; from this number on, one syncfs replaces the syncs of each


class LogStore:
    """The topics of a data directory; methods that run in the worker `files` run one after another."""

    def __init__(
        self, directory: DataDirectory, topic_files: TopicFiles, shared: SharedLogParts, opening: Opening
    ) -> None:
        self.directory = directory
        self.topic_files = topic_files
        self.fs = directory.fs
        self.data_dir = directory.path
        self.settings = topic_files.defaults
        self.spare = directory.spare
        self.in_use = directory.in_use
        self.producer_memory = shared.producer_memory
        self.group_commit = GroupCommit(directory.fs, directory.path)
        self.group_commit.card = opening.card
        self.topics = opening.topics
        self.topics_by_id = {one.topic_id: one for one in opening.topics.values() if one.topic_id != NO_UUID}
        self._hidden: dict[str, Topic] = {}  # their deletion is in progress; a checkpoint and a stop cover them
        self.recovery_notes = directory.notes
        self.recovery_bytes = opening.recovery_bytes
        self.together_min = TOGETHER_MIN
        self._shared = shared
        self._unwritten = opening.unwritten  # losses that the ledger did not accept at the start
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
        """Open a data directory, made if it is missing, and recover from a crash (opening.py).

        `node` is the broker's id, for the ledger. `in_cluster`: logs are replicas (replica_log.py), except the
        journal's. The directory gets an identity then, and is never opened without this again. With a `broker_id` the
        directory belongs to that broker alone (metadata/broker_id.py).
        StorageFault: a file of the directory itself is corrupt, or there is no space for a start. A partition that
        cannot be opened is offline and noted. ConfigurationError: another broker's directory.
        """
        directory = DataDirectory(fs, data_dir.rstrip("/") or "/")
        topic_files, shared = TopicFiles(directory, settings), SharedLogParts(directory)
        opening = Opening(directory, topic_files, shared)
        try:
            opening.open(reading, new_uuid, node, in_cluster=in_cluster, broker_id=broker_id)
        except BaseException as error:
            directory.unlock()  # else the directory stays locked as long as a reference to the error exists
            if isinstance(error, OSError):
                raise fault_of(error, data_dir, 0) from error
            raise
        return cls(directory, topic_files, shared, opening)

    # logs

    def log(self, topic: str, partition: int) -> PartitionLog | None:
        """Return the log of a partition, leader or not; None if there is none. A topic has the logs up to its last."""
        there = self.topics.get(topic)
        logs = there.partitions if there is not None else []
        return logs[partition] if 0 <= partition < len(logs) else None

    @property
    def orphans(self) -> tuple[str, ...]:
        """Topics with replicas on a disk that has no cluster id, as without the file `registrations`.

        Not the ledger: a single-node broker keeps its own when it joins a cluster.
        """
        if self.directory.registrations is None or self.directory.registrations.cluster:
            return ()
        return tuple(sorted(name for name in self.topics if name not in LEDGERS))

    @property
    def ledger_log(self) -> PartitionLog:
        """The log of this disk's losses (`DataDirectory.own_ledger`)."""
        return self.topics[self.directory.own_ledger].partitions[0]

    @property
    def ledger(self) -> Ledger:
        """The present way of a loss into the ledger."""
        return self._shared.ledger

    def use_ledger(self, ledger: Ledger) -> None:
        """Write losses this way from now on. The owner of the ledger's log decides."""
        self._shared.ledger = ledger
        for topic in list(self.topics.values()):
            for log in topic.partitions:
                log.ledger = ledger

    def use_config(self, topic: Topic, config: dict[str, str], settings: LogSettings) -> None:
        """Use a configuration that `TopicFiles.write_config` wrote. Loop."""
        topic.config, topic.settings = config, settings
        for log in topic.partitions:
            log.state.settings = settings

    def add_partitions(self, topic: Topic, logs: Sequence[PartitionLog]) -> None:
        """Show partitions that were made."""
        topic.partitions = [*topic.partitions, *logs]
        self._shared.give_to(topic)

    def add_topic(self, topic: Topic) -> None:
        """Show a topic that was made."""
        self._shared.give_to(topic)
        self.topics[topic.name] = topic
        if topic.topic_id != NO_UUID:
            self.topics_by_id[topic.topic_id] = topic

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

        `TopicFiles.erase_topic` must follow, then `forget_topic` if it succeeded.
        """
        if name not in self._hidden:
            self.hide_topic(name)
        topic = self._hidden.pop(name)
        self.in_use.leave(topic.partitions)
        for log in topic.partitions:
            log.fail(StorageFault(log.directory, 0, "the topic was deleted"))
        return topic

    def forget_topic(self, topic: Topic) -> None:
        """Drop the dirty markers of a topic that was erased."""
        self.in_use.logs_deleted(topic.partitions)

    # of one log, for replica/

    def topic_of(self, log: PartitionLog) -> Topic | None:
        """Return a log's topic, None if it is not visible. Any thread."""
        topic = self.topics.get(log.topic)
        return topic if topic is not None and log in topic.partitions else None

    def holds(self, log: PartitionLog) -> bool:
        """Return whether a log's topic is visible. Any thread."""
        return self.topic_of(log) is not None

    def kept_topic_of(self, log: PartitionLog) -> Topic:
        """Return the topic of a log whose files are to be changed. StorageFault: it was deleted. Any thread."""
        topic = self.topic_of(log)
        if topic is None:
            raise StorageFault(log.directory, 0, "the topic was deleted")
        return topic

    @runs_in("files")
    def reopen(self, topic: Topic, log: PartitionLog, end: Position | None, now: Now, notes: list[str]) -> PartitionLog:
        """Return the log of a directory, opened as after an unclean stop; `fault` is set if that failed.

        Nothing else may run on the log, which is offline or to be truncated. OSError, StorageFault.
        """
        opening = RecoveryContext(
            self.topic_files.open_files, self.directory.leader_epoch, False, now, notes, [], [], self.ledger
        )
        where = (log.topic, topic.topic_id, log.partition, log.directory)
        wanted = OpenRequest(*where, log.settings, end, self.directory.is_replicated(log.topic))
        log = open_partition(opening, wanted)
        self.directory.keep_truncated_ends(opening.truncated)
        return log

    def stored_end(self, topic: Topic, log: PartitionLog) -> Position | None:
        """Return the end of a log at the last checkpoint."""
        return self.directory.positions.stored.get((topic.topic_id, log.partition))

    @runs_in("files")
    def make_anew(self, topic: Topic, log: PartitionLog) -> PartitionLog:
        """Return an empty log instead of one of which nothing is left; other files are moved to `aside/`. OSError."""
        positions = self.directory.positions
        positions.write({key: at for key, at in positions.stored.items() if key != (topic.topic_id, log.partition)})
        fresh = self.topic_files.make_partition(log.topic, log.partition, log.settings, topic.topic_id)
        self.fs.sync_directory(self.data_dir)
        return fresh

    # checkpoint and stop

    @runs_in("files")
    def checkpoint(self) -> None:
        """Write each log's confirmed end, if one moved, and the age, if it is worth it; then losses of the start.

        StorageFault harms no partition: the previous checkpoint stays true.
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
        self.directory.positions.write(confirmed_ends(self._kept_topics(), self.directory.positions.stored))

    def _kept_topics(self) -> list[Topic]:
        """Return all topics that a start would find, the hidden ones too."""
        return [*self.topics.values(), *self._hidden.values()]

    def batch_for(self, count: int) -> BatchedFiles | None:
        """Return the batch that replaces files of so many logs together; None: each on its own is faster."""
        return BatchedFiles(self.fs, self.data_dir) if count >= self.together_min else None

    def _stop_logs(self, logs: list[PartitionLog]) -> list[StorageFault]:
        """Sync logs and write their files for the next start, many together; return the faults of failed ones."""
        batch = self.batch_for(len(logs))
        faults = []
        if batch is not None:
            self._sync_together(logs)
        for log in logs:
            try:
                if log.fault is not None:
                    raise log.fault.without_frames()
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
        """Sync and write everything, mark the stop clean, and unlock the directory. Nothing else may run.

        If a partition is offline, the stop is not marked clean. StorageFault: something could not be written.
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
