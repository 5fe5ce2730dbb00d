"""Makes, configures and erases topics on disk: their files in `topics/`, their partitions' directories.

| step of a creation | a crash after it |
|---|---|
| each partition's directory with its first files is made | the next start erases it, as it has no bytes of a log |
| the names of the directories are synced | the same |
| `topics/<topic>.json` is written, synced | the topic exists |

Contains: that order, and the settings that a topic's configuration gives. Does not contain: which topics are visible
(log_store.py), the order of a deletion (topic_deletion.py). Source: Kafka's LogManager.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from edge_broker.storage.files.atomic_files import fault_of, replace, write_all
from edge_broker.storage.log.leader_epochs import NONE, LeaderEpochs
from edge_broker.storage.log.log_roller import make_segment_file
from edge_broker.storage.log.log_state import LogState
from edge_broker.storage.log.partition_log import PartitionLog
from edge_broker.storage.log.producer_state import NOBODY, Producers
from edge_broker.storage.loss.startup_ledger import ledger_settings
from edge_broker.storage.metadata.topic_config import topic_settings
from edge_broker.storage.metadata.topic_record import (
    LEDGERS,
    TOPIC_SUFFIX,
    TopicRecord,
    check_topic_name,
    encode_partition_metadata,
    encode_topic,
)
from edge_broker.storage.retention.eviction_plan import segment_bytes_max
from edge_broker.storage.retention.topic_deletion import Deletions
from edge_broker.storage.segment.open_file_cache import OpenFiles
from edge_broker.storage.segment.segment import Segment
from edge_broker.storage.topic import Topic
from edge_broker.thread_checks import runs_in

if TYPE_CHECKING:
    import uuid

    from edge_broker.configuration.settings import LogSettings
    from edge_broker.storage.data_directory import DataDirectory


class TopicFiles:
    """The topics' files of one data directory; `defaults` are the settings of a topic without configuration.

    Nothing becomes visible by it. The worker `files`; a start and a stop.
    """

    def __init__(self, directory: DataDirectory, defaults: LogSettings) -> None:
        self.defaults = defaults
        self.open_files = OpenFiles(directory.fs)
        self.deletions = Deletions(directory.fs, directory.path, directory.spare, directory.notes)
        self._directory = directory
        self._fs = directory.fs

    def settings_of(self, name: str, config: dict[str, str], *, compacted: bool = False) -> LogSettings:
        """Return the settings of a topic; `compacted`: it was once. Refusal (INVALID_CONFIG), OSError."""
        if name in LEDGERS:
            return ledger_settings(self.defaults)
        settings = topic_settings(self.defaults, config, compacted=compacted)
        bytes_max = segment_bytes_max(self._fs.space(self._directory.path).total, settings.budget_bytes)
        settings.segment_bytes = min(settings.segment_bytes, bytes_max)
        return settings

    @runs_in("files")
    def make_topic(self, name: str, partitions: int, config: dict[str, str], topic_id: uuid.UUID) -> Topic:
        """Return a topic that was made, on disk and synced. Of this object it reads the settings alone.

        Refusal (INVALID_TOPIC_EXCEPTION, INVALID_CONFIG), StorageFault; the next start clears the rest of an
        interrupted creation.
        """
        check_topic_name(name)
        return self.make_own_topic(name, partitions, config, topic_id)

    def make_own_topic(self, name: str, partitions: int, config: dict[str, str], topic_id: uuid.UUID) -> Topic:
        """Make a topic as `make_topic` does, with a name that clients may not choose."""
        settings = self.settings_of(name, config)
        try:
            self.deletions.free_name(name)
            logs = [self.make_partition(name, partition, settings, topic_id) for partition in range(partitions)]
            self._fs.sync_directory(self._directory.path)
            self._write_topic(TopicRecord(name, topic_id, partitions, config))
        except OSError as error:
            raise fault_of(error, self._directory.path_of(name), 0) from error
        return Topic(name, topic_id, logs, dict(config), settings)

    def make_partition(self, topic: str, partition: int, settings: LogSettings, topic_id: uuid.UUID) -> PartitionLog:
        """Return an empty log in a new directory. The caller syncs the name of the directory. OSError."""
        name = f"{topic}-{partition}"
        path = self._directory.path_of(name)
        if self._fs.exists(path):
            self.deletions.clear_way(name)
        self._fs.make_directory(path)
        metadata = self._fs.create(f"{path}/partition.metadata")
        write_all(metadata, encode_partition_metadata(topic_id), 0)
        metadata.datasync()
        segment = Segment(self.open_files, path, 0, 0, settings.index_interval_bytes)
        make_segment_file(self.open_files, segment)
        segment.open_tail()
        where = (topic, partition, path, settings, self.open_files)
        epoch = NONE if self._directory.is_replicated(topic) else self._directory.leader_epoch
        return PartitionLog(LogState(*where, [segment], 0, epoch, LeaderEpochs()), Producers(forgotten_max=NOBODY))

    @runs_in("files")
    def make_partitions(self, topic: Topic, count: int) -> list[PartitionLog]:
        """Return the partitions that a topic needs to have `count`, on disk and synced.

        StorageFault; the next start clears the rest of an interruption.
        """
        missing = range(len(topic.partitions), count)
        try:
            logs = [self.make_partition(topic.name, index, topic.settings, topic.topic_id) for index in missing]
            self._fs.sync_directory(self._directory.path)
            self._write_topic(topic.record()._replace(partitions=count))
        except OSError as error:
            raise fault_of(error, self._directory.path_of(topic.name), 0) from error
        return logs

    @runs_in("files")
    def write_config(self, topic: Topic, config: dict[str, str]) -> LogSettings:
        """Write another configuration of a topic, synced, and return its settings; the topic stays as it is.

        Refusal (INVALID_CONFIG), StorageFault.
        """
        compacted = topic.settings.may_have_gaps
        settings = self.settings_of(topic.name, config, compacted=compacted)
        if config != topic.config:
            try:
                self._write_topic(topic.record()._replace(config=config, compacted=compacted))
            except OSError as error:
                raise fault_of(error, self._directory.path_of(topic.name), 0) from error
        return settings

    @runs_in("files")
    def erase_topic(self, topic: Topic) -> None:
        """Delete a topic that is not visible: its name first, synced, then its files.

        The next start completes an interrupted deletion. StorageFault leaves the rest to the next start, or to the
        next CreateTopics of that name.
        """
        for log in topic.partitions:
            log.retire_files()
        try:
            self.deletions.delete(topic.record())
        except OSError as error:
            raise fault_of(error, self._directory.path_of(topic.name), 0) from error

    def _write_topic(self, record: TopicRecord) -> None:
        replace(self._fs, self._directory.path_of("topics"), f"{record.name}{TOPIC_SUFFIX}", encode_topic(record))
