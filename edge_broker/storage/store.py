"""All topics of one data directory, and what must outlive the process beside them.

| name | content |
|---|---|
| `.lock` | held while a broker runs on the directory |
| `store` | cluster id; written last when the directory is made |
| `leader-epoch` | raised and synced at each start that follows no clean stop |
| `producer-ids` | the first producer id that was never reserved |
| `recovery-point-offset-checkpoint` | per partition: log start, and segment, position and offset of the confirmed end |
| `clean-shutdown` | written last at a clean stop, removed first at a start |
| `topics/<topic>.json` | what a topic is |
| `<topic>-<partition>/` | its log |
| `deleted/` | what is being deleted; finished at the next start |
| `aside/` | directories that belong to no topic; never deleted here |

Lives here: those files and the order in which they change. Must never come in: batches, segments. Source: Kafka's
LogManager.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable

from edge_broker.errors import StorageFault
from edge_broker.protocol.message import NO_UUID
from edge_broker.storage.epochs import LeaderEpochs
from edge_broker.storage.filesystem import File, FileSystem
from edge_broker.storage.log import PartitionLog, Synced, make_segment_file
from edge_broker.storage.producers import Producers
from edge_broker.storage.recovery import Opening, Position, offline_partition, open_partition
from edge_broker.storage.segment import OpenFiles, Segment
from edge_broker.storage.state_files import encode_state, fault_of, read_state, read_whole, replace, write_all
from edge_broker.storage.topic_config import LogSettings, topic_settings
from edge_broker.storage.topics import (
    TopicRecord,
    check_topic_name,
    decode_partition_metadata,
    decode_topic,
    encode_partition_metadata,
    encode_topic,
    id_text,
    split_partition_directory,
)

PRODUCER_IDS_RESERVED = 1000
TOPIC_SUFFIX = ".json"
_POSITIONS = "recovery-point-offset-checkpoint"
_CLEAN = "clean-shutdown"
PartitionKey = tuple[uuid.UUID, int]


class Topic:
    """A topic: `config` holds the explicitly set keys only, `settings` what its logs go by."""

    __slots__ = ("config", "name", "partitions", "settings", "topic_id")

    def __init__(
        self,
        name: str,
        topic_id: uuid.UUID,
        partitions: list[PartitionLog],
        config: dict[str, str],
        settings: LogSettings,
    ) -> None:
        self.name = name
        self.topic_id = topic_id
        self.partitions = partitions
        self.config = config
        self.settings = settings

    def __repr__(self) -> str:
        return f"Topic({self.name!r}, {self.topic_id}, {len(self.partitions)} partitions)"


class LogStore:
    """The topics of a data directory; methods marked [worker] run in the disk worker alone, one after another."""

    def __init__(self, fs: FileSystem, data_dir: str, settings: LogSettings) -> None:
        self.fs = fs
        self.data_dir = data_dir
        self.settings = settings
        self.cluster_id = ""
        self.leader_epoch = 0
        self.started_unclean = False
        self.topics: dict[str, Topic] = {}
        self.topics_by_id: dict[uuid.UUID, Topic] = {}
        self.recovery_notes: list[str] = []
        self._files = OpenFiles(fs)
        self._lock: File | None = None
        self._producer_id = 0
        self._stored: dict[PartitionKey, Position] = {}
        self._closed = False

    @classmethod
    def open(
        cls, fs: FileSystem, data_dir: str, settings: LogSettings, now_ms: int, new_uuid: Callable[[], uuid.UUID]
    ) -> LogStore:
        """Open a data directory, making it first if it is not there; recovers what a crash left.

        StorageFault for the store's own files alone; a partition that cannot be opened is offline and noted.
        """
        store = cls(fs, data_dir.rstrip("/") or "/", settings)
        try:
            store._open(now_ms, new_uuid)
        except OSError as error:
            raise fault_of(error, data_dir, 0) from error
        return store

    # opening

    def _open(self, now_ms: int, new_uuid: Callable[[], uuid.UUID]) -> None:
        names = self._take_directory()
        if "store" not in names:
            self._initialise(names, new_uuid)
            names = self.fs.names(self.data_dir)
        self.cluster_id = self._one("store", "store")
        self.leader_epoch = int(self._one("leader-epoch", "leader-epoch"))
        self._producer_id = int(self._one("producer-ids", "producer-ids"))
        self._stored = self._read_positions()
        clean = self._begin_epoch(names)
        if not clean:
            self.fs.sync_directory(self._path("topics"))  # a killed process may leave names that no disk has
        self._finish_deletions()
        opening = Opening(self._files, self.leader_epoch, clean, now_ms, self.recovery_notes)
        for name in sorted(self.fs.names(self._path("topics"))):
            if name.endswith(TOPIC_SUFFIX):
                self.add_topic(self._open_topic(opening, name, names))
        self._put_strangers_aside(self.fs.names(self.data_dir))
        if not clean:
            self._write_positions()

    def _path(self, name: str) -> str:
        return f"{self.data_dir}/{name}"

    def _take_directory(self) -> list[str]:
        if not self.fs.exists(self.data_dir):
            self.fs.make_directory(self.data_dir)
            self.fs.sync_directory(self.data_dir.rpartition("/")[0] or ("/" if self.data_dir.startswith("/") else "."))
        self._lock = self.fs.lock(self._path(".lock"))
        if self._lock is None:
            raise StorageFault(
                self._path(".lock"), 0, "another broker runs on this data directory; stop it or use another one"
            )
        return self.fs.names(self.data_dir)

    def _initialise(self, names: list[str], new_uuid: Callable[[], uuid.UUID]) -> None:
        if any(split_partition_directory(name) for name in names):
            raise StorageFault(
                self._path("store"),
                0,
                "is missing beside partition directories; restore it or use another data directory",
            )
        self.fs.make_directory(self._path("topics"))
        self._write("leader-epoch", "leader-epoch", ["0"])
        self._write("producer-ids", "producer-ids", ["0"])
        self._write(_CLEAN, _CLEAN, ["0"])
        self._write("store", "store", [id_text(new_uuid())])

    def _write(self, name: str, kind: str, lines: list[str]) -> None:
        replace(self.fs, self.data_dir, name, encode_state(kind, 1, lines))

    def _one(self, name: str, kind: str) -> str:
        """The single entry of one of the store's own files."""
        path = self._path(name)
        try:
            lines = read_state(self.fs, path, kind)
        except FileNotFoundError:
            raise StorageFault(path, 0, "is missing; restore it from a copy of the data directory") from None
        if len(lines) != 1 or len(lines[0]) != 1:
            raise StorageFault(
                path, 0, f"has {len(lines)} entries where one belongs; restore it from a copy of the data directory"
            )
        return lines[0][0]

    def _begin_epoch(self, names: list[str]) -> bool:
        """After a clean stop go on in the same epoch, else raise it; on disk before anything is served."""
        clean = _CLEAN in names
        if clean:
            self.fs.remove(self._path(_CLEAN))
            self.fs.sync_directory(self.data_dir)
        else:
            self.started_unclean = True
            self.leader_epoch += 1
            self._write("leader-epoch", "leader-epoch", [str(self.leader_epoch)])
        return clean

    def _read_positions(self) -> dict[PartitionKey, Position]:
        try:
            lines = read_state(self.fs, self._path(_POSITIONS), "positions")
            return {(uuid.UUID(hex=line[0]), int(line[1])): Position(*map(int, line[2:6])) for line in lines}
        except FileNotFoundError:
            return {}
        except (StorageFault, ValueError) as fault:
            self.recovery_notes.append(f"{fault}; every active segment is checked from its start")
            return {}

    def _open_topic(self, opening: Opening, file_name: str, names: list[str]) -> Topic:
        path = f"{self._path('topics')}/{file_name}"
        try:
            record = decode_topic(path, read_whole(self.fs, path))
            settings = topic_settings(self.settings, record.config)
        except (StorageFault, OSError) as error:
            fault = error if isinstance(error, StorageFault) else fault_of(error, path, 0)
            return self._offline_topic(opening, file_name[: -len(TOPIC_SUFFIX)], names, fault)
        partitions = [
            open_partition(
                opening,
                record.name,
                record.topic_id,
                partition,
                self._path(f"{record.name}-{partition}"),
                settings,
                self._stored.get((record.topic_id, partition)),
            )
            for partition in range(record.partitions)
        ]
        return Topic(record.name, record.topic_id, partitions, record.config, settings)

    def _offline_topic(self, opening: Opening, topic: str, names: list[str], fault: StorageFault) -> Topic:
        """A topic whose file is damaged keeps its name and its directories, so that nothing is made in their place."""
        self.recovery_notes.append(f"topic {topic} is offline: {fault}")
        found = [place[1] for name in names if (place := split_partition_directory(name)) and place[0] == topic]
        directories = [self._path(f"{topic}-{partition}") for partition in range(max(found, default=0) + 1)]
        topic_id = self._id_in(directories[0]) or NO_UUID
        logs = [
            offline_partition(opening, topic, partition, directory, self.settings, fault)
            for partition, directory in enumerate(directories)
        ]
        return Topic(topic, topic_id, logs, {}, self.settings)

    def _id_in(self, directory: str) -> uuid.UUID | None:
        try:
            return decode_partition_metadata(read_whole(self.fs, f"{directory}/partition.metadata"))
        except (OSError, StorageFault):
            return None

    def _put_strangers_aside(self, names: list[str]) -> None:
        """Partition directories of no topic: erased without bytes (a creation was interrupted), else put aside."""
        for name in names:
            place = split_partition_directory(name)
            if place is None:
                continue
            topic = self.topics.get(place[0])
            if topic is None or place[1] >= len(topic.partitions):
                self._clear_way(name)

    def _clear_way(self, name: str) -> None:
        """Make sure that no directory of this name is there. OSError."""
        path = self._path(name)
        logs = [entry for entry in self.fs.names(path) if entry.endswith(".log") or ".cut-" in entry]
        if not any(self.fs.size(f"{path}/{entry}") for entry in logs):
            self._erase_directory(path)
            return
        topic_id = self._id_in(path) or NO_UUID
        self.fs.make_directory(self._path("aside"))
        taken = set(self.fs.names(self._path("aside")))
        target = next(
            free
            for count in range(len(taken) + 1)
            if (free := f"{topic_id.hex}-{name.rpartition('-')[2]}.{count}") not in taken
        )
        self.fs.rename(path, self._path(f"aside/{target}"))
        self.fs.sync_directory(self._path("aside"))
        self.fs.sync_directory(self.data_dir)
        self.recovery_notes.append(
            f"{path} belongs to no topic here and was moved to aside/{target}; delete it when it is not needed"
        )

    # topics

    def make_topic(self, name: str, partitions: int, config: dict[str, str], topic_id: uuid.UUID) -> Topic:
        """Make a topic, on disk and synced when this returns; `add_topic` shows it. Reads only the settings. [worker]

        Refusal (INVALID_TOPIC_EXCEPTION, INVALID_CONFIG), StorageFault; what an interruption leaves is cleared at the
        next start.
        """
        check_topic_name(name)
        settings = topic_settings(self.settings, config)
        try:
            logs = [self._make_partition(name, partition, settings, topic_id) for partition in range(partitions)]
            self.fs.sync_directory(self.data_dir)
            replace(
                self.fs, self._path("topics"), f"{name}{TOPIC_SUFFIX}", encode_topic(topic_id, partitions, config, name)
            )
        except OSError as error:
            raise fault_of(error, self._path(name), 0) from error
        return Topic(name, topic_id, logs, dict(config), settings)

    def _make_partition(self, topic: str, partition: int, settings: LogSettings, topic_id: uuid.UUID) -> PartitionLog:
        name = f"{topic}-{partition}"
        directory = self._path(name)
        if self.fs.exists(directory):
            self._clear_way(name)
        self.fs.make_directory(directory)
        metadata = self.fs.create(f"{directory}/partition.metadata")
        write_all(metadata, encode_partition_metadata(topic_id), 0)
        metadata.datasync()
        segment = Segment(self._files, directory, 0, 0, settings.index_interval_bytes)
        make_segment_file(self._files, segment)
        segment.open_tail()
        end = Synced(segment, 0, 0)
        return PartitionLog(
            topic,
            partition,
            directory,
            settings,
            self._files,
            [segment],
            end,
            self.leader_epoch,
            LeaderEpochs(),
            Producers(),
        )

    def add_topic(self, topic: Topic) -> None:
        """Show a topic that was made."""
        for log in topic.partitions:
            log.write_positions = self._write_positions
        self.topics[topic.name] = topic
        if topic.topic_id != NO_UUID:
            self.topics_by_id[topic.topic_id] = topic

    def remove_topic(self, name: str) -> Topic:
        """Hide a topic; whoever still waits for its logs finds them offline. `erase_topic` must follow."""
        topic = self.topics.pop(name)
        self.topics_by_id.pop(topic.topic_id, None)
        for log in topic.partitions:
            log.fail(StorageFault(log.directory, 0, "the topic was deleted"))
        return topic

    def erase_topic(self, topic: Topic) -> None:
        """Delete a hidden topic: its name first, synced, then its files. [worker]

        A crash in between is finished at the next start. StorageFault leaves the rest to the next start.
        """
        try:
            self.fs.make_directory(self._path("deleted"))
            self.fs.sync_directory(self.data_dir)
            record = TopicRecord(topic.name, topic.topic_id, len(topic.partitions), topic.config)
            trace = f"{topic.topic_id.hex}{TOPIC_SUFFIX}"
            replace(
                self.fs, self._path("deleted"), trace, encode_topic(topic.topic_id, record.partitions, {}, topic.name)
            )
            self.fs.remove(f"{self._path('topics')}/{topic.name}{TOPIC_SUFFIX}")
            self.fs.sync_directory(self._path("topics"))
            for log in topic.partitions:
                log.close_files()
            self._erase(record, trace)
        except OSError as error:
            raise fault_of(error, self._path(topic.name), 0) from error

    def _finish_deletions(self) -> None:
        """Go on where a crash interrupted: a trace in `deleted/` means that the topic is to go."""
        if not self.fs.exists(self._path("deleted")):
            return
        self.fs.sync_directory(self._path("deleted"))
        for trace in [name for name in self.fs.names(self._path("deleted")) if name.endswith(TOPIC_SUFFIX)]:
            path = f"{self._path('deleted')}/{trace}"
            try:
                record = decode_topic(path, read_whole(self.fs, path))
            except StorageFault as fault:
                self.recovery_notes.append(f"an interrupted deletion cannot be finished: {fault}")
                continue
            self._remove_topic_file(record)
            self._erase(record, trace)

    def _remove_topic_file(self, record: TopicRecord) -> None:
        path = f"{self._path('topics')}/{record.name}{TOPIC_SUFFIX}"
        if not self.fs.exists(path):
            return
        try:
            same = decode_topic(path, read_whole(self.fs, path)).topic_id == record.topic_id
        except StorageFault:
            return
        if same:
            self.fs.remove(path)
            self.fs.sync_directory(self._path("topics"))

    def _erase(self, record: TopicRecord, trace: str) -> None:
        deleted = self._path("deleted")
        for partition in range(record.partitions):
            directory = self._path(f"{record.name}-{partition}")
            if self.fs.exists(directory) and self._id_in(directory) == record.topic_id:
                self.fs.rename(directory, f"{deleted}/{record.topic_id.hex}-{partition}")
        self.fs.sync_directory(deleted)
        self.fs.sync_directory(self.data_dir)
        for name in self.fs.names(deleted):
            if name.startswith(f"{record.topic_id.hex}-"):
                self._erase_directory(f"{deleted}/{name}")
        self.fs.sync_directory(deleted)
        self.fs.remove(f"{deleted}/{trace}")

    def _erase_directory(self, path: str) -> None:
        for name in self.fs.names(path):
            self.fs.remove(f"{path}/{name}")
        self.fs.remove_directory(path)

    # what outlives the process

    def reserve_producer_ids(self) -> range:
        """A block of 1000 producer ids, never given again; synced when this returns. StorageFault. [worker]"""
        block = range(self._producer_id, self._producer_id + PRODUCER_IDS_RESERVED)
        try:
            self._write("producer-ids", "producer-ids", [str(block.stop)])
        except OSError as error:
            raise fault_of(error, self._path("producer-ids"), 0) from error
        self._producer_id = block.stop
        return block

    def checkpoint(self) -> None:
        """Write down every partition's confirmed end, if one moved. [worker]

        Reads each log's `synced`, which the loop replaces as one value. StorageFault harms no partition: what was
        written down before stays true.
        """
        try:
            self._write_positions()
        except OSError as error:
            raise fault_of(error, self._path(_POSITIONS), 0) from error

    def _write_positions(self) -> None:
        """As `checkpoint`, OSError; a log that is offline or damaged keeps what was written last."""
        positions: dict[PartitionKey, Position] = {}
        for topic in list(self.topics.values()):
            for log in topic.partitions:
                key = (topic.topic_id, log.partition)
                if log.fault is None and log.damage is None:
                    end = log.synced
                    positions[key] = Position(log.log_start_offset, end.segment.base_offset, end.position, end.offset)
                elif key in self._stored:
                    positions[key] = self._stored[key]
        if positions != self._stored:
            lines = [
                f"{topic_id.hex} {partition} {' '.join(map(str, position))}"
                for (topic_id, partition), position in positions.items()
            ]
            self._write(_POSITIONS, "positions", lines)
            self._stored = positions

    def close(self) -> None:
        """Sync all, write everything down, mark the stop clean and let the directory go; nothing else may run. [worker]

        With a partition offline or damaged the stop is not marked clean. StorageFault when something could not be
        written.
        """
        if self._closed:
            return
        self._closed = True
        logs = [log for topic in self.topics.values() for log in topic.partitions]
        faults = []
        for log in logs:
            try:
                log.stop()
            except StorageFault as fault:
                faults.append(fault)
        try:
            self._write_positions()
            if all(log.fault is None and log.damage is None for log in logs):
                self._write(_CLEAN, _CLEAN, [str(self.leader_epoch)])
        except OSError as error:
            faults.append(fault_of(error, self._path(_POSITIONS), 0))
        for log in logs:
            log.close_files()
        self._lock = None
        if faults:
            raise faults[0]
