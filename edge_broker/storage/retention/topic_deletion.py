"""Taking topics and directories out of a data directory, in an order that any start can finish.

| step of a deletion | a crash after it |
|---|---|
| `deleted/<topic id>.json` is written and synced | the next start, or the next CreateTopics of that name, goes on |
| `topics/<topic>.json` is removed, synced | the topic is gone; its directories wait for the same |
| each directory that holds the topic's id is moved to `deleted/<topic id>-<partition>`, synced | its name is free |
| their files are removed, then `deleted/<topic id>.json` | done |

A directory of no topic is erased when it holds no bytes of a log (the making of a topic was interrupted), else put
aside.

Does not contain: which topics there are, logs. Source: Kafka's LogManager, its `-delete`
directories.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from edge_broker.errors import StorageFault
from edge_broker.protocol.message import NO_UUID
from edge_broker.storage.files.atomic_files import drop_leftovers, read_whole
from edge_broker.storage.metadata.topic_record import (
    TOPIC_SUFFIX,
    TopicRecord,
    decode_partition_metadata,
    decode_topic,
    encode_topic,
)
from edge_broker.thread_checks import runs_in

if TYPE_CHECKING:
    from edge_broker.storage.files.filesystem import FileSystem
    from edge_broker.storage.files.spare_blocks import Spare

TOPICS, DELETED, ASIDE = "topics", "deleted", "aside"


class Deletions:
    """Of one data directory; what it cannot finish, or puts aside, is a sentence in `notes`. All methods: OSError."""

    def __init__(self, fs: FileSystem, data_dir: str, spare: Spare, notes: list[str]) -> None:
        self._fs = fs
        self._data_dir = data_dir
        self._spare = spare
        self._notes = notes

    def _path(self, name: str) -> str:
        return f"{self._data_dir}/{name}"

    @runs_in()
    def delete(self, record: TopicRecord) -> None:
        """Delete a topic's name, then its files. StorageFault."""
        self._fs.make_directory(self._path(DELETED))
        self._fs.sync_directory(self._data_dir)
        trace = f"{record.topic_id.hex}{TOPIC_SUFFIX}"
        data = encode_topic(record._replace(config={}))
        self._spare.replace(self._path(DELETED), trace, data)  # a full disk is where topics are deleted
        self._remove_topic_file(record)
        self._erase(record, trace)

    def free_name(self, name: str) -> None:
        """Finish what failed before a name is used again: its file must never speak of another topic's directories."""
        self.finish()
        path = f"{self._path(TOPICS)}/{name}{TOPIC_SUFFIX}"
        if self._fs.exists(path):
            self.delete(decode_topic(path, read_whole(self._fs, path)))

    def finish(self) -> None:
        """Go on where a crash interrupted: a trace in `deleted/` means that the topic is to go."""
        deleted = self._path(DELETED)
        if not self._fs.exists(deleted):
            return
        drop_leftovers(self._fs, deleted, self._fs.names(deleted))
        self._fs.sync_directory(deleted)
        for trace in [name for name in self._fs.names(deleted) if name.endswith(TOPIC_SUFFIX)]:
            path = f"{deleted}/{trace}"
            try:
                record = decode_topic(path, read_whole(self._fs, path))
            except StorageFault as fault:
                self._notes.append(f"an interrupted deletion cannot be finished: {fault}")
                continue
            self._remove_topic_file(record)
            self._erase(record, trace)

    def _remove_topic_file(self, record: TopicRecord) -> None:
        path = f"{self._path(TOPICS)}/{record.name}{TOPIC_SUFFIX}"
        if not self._fs.exists(path):
            return
        try:
            same = decode_topic(path, read_whole(self._fs, path)).topic_id == record.topic_id
        except StorageFault:
            return
        if same:
            self._fs.remove(path)
            self._fs.sync_directory(self._path(TOPICS))

    def _erase(self, record: TopicRecord, trace: str) -> None:
        deleted = self._path(DELETED)
        for partition in range(record.partitions):
            directory = self._path(f"{record.name}-{partition}")
            if self._fs.exists(directory) and id_in(self._fs, directory) == record.topic_id:
                self._fs.rename(directory, f"{deleted}/{record.topic_id.hex}-{partition}")
        self._fs.sync_directory(deleted)
        self._fs.sync_directory(self._data_dir)
        for name in self._fs.names(deleted):
            if name.startswith(f"{record.topic_id.hex}-"):
                self._erase_directory(f"{deleted}/{name}")
        self._fs.sync_directory(deleted)
        self._fs.remove(f"{deleted}/{trace}")

    def _erase_directory(self, path: str) -> None:
        for name in self._fs.names(path):
            self._fs.remove(f"{path}/{name}")
        self._fs.remove_directory(path)

    def clear_way(self, name: str) -> None:
        """Make sure that no directory of this name is there."""
        path, aside = self._path(name), self._path(ASIDE)
        logs = [entry for entry in self._fs.names(path) if entry.endswith(".log") or ".cut-" in entry]
        if not any(self._fs.size(f"{path}/{entry}") for entry in logs):
            self._erase_directory(path)
            return
        topic_id = id_in(self._fs, path) or NO_UUID
        self._fs.make_directory(aside)
        taken = set(self._fs.names(aside))
        target = next(
            free
            for count in range(len(taken) + 1)
            if (free := f"{topic_id.hex}-{name.rpartition('-')[2]}.{count}") not in taken
        )
        self._fs.rename(path, f"{aside}/{target}")
        self._fs.sync_directory(aside)
        self._fs.sync_directory(self._data_dir)
        self._notes.append(
            f"{path} belongs to no topic here and was moved to aside/{target}; delete it when it is not needed"
        )


def id_in(fs: FileSystem, directory: str) -> uuid.UUID | None:
    """The topic id that a partition's directory holds; None when it cannot be read."""
    try:
        return decode_partition_metadata(read_whole(fs, f"{directory}/partition.metadata"))
    except (OSError, StorageFault):
        return None
