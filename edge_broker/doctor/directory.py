"""A data directory as it lies, stopped or under a running broker: the store's own files, topics, partitions, segments.

Contains: finding and reading files through storage's own functions. Does not contain: what to think of them, any
change to them. A name that vanishes under a running broker is no error: it is as if it had never been listed.
Source: FORMATS.md.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator
from operator import attrgetter
from typing import NamedTuple, TypeVar

from drupelet.errors import ConfigurationError, reason
from edge_broker.configuration.settings import LogSettings
from edge_broker.errors import Refusal, StorageFault
from edge_broker.protocol.record_batch import BatchHeader
from edge_broker.storage.files.atomic_files import fault_of, read_state, read_whole
from edge_broker.storage.files.filesystem import FileSystem
from edge_broker.storage.log.leader_epochs import KIND, Start
from edge_broker.storage.log.producer_state import Producer, SnapshotPosition, decode_snapshot
from edge_broker.storage.log.removed_offsets import FILE, RemovedRange, oldest_that_stays, read_removed, removed_end
from edge_broker.storage.loss.quarantine import SUFFIX, damage_from, read_corrupt_ranges
from edge_broker.storage.metadata.topic_config import topic_settings
from edge_broker.storage.metadata.topic_record import (
    TopicRecord,
    decode_partition_metadata,
    decode_topic,
    split_partition_directory,
)
from edge_broker.storage.recovery.dirty_markers import InUse, Marks
from edge_broker.storage.recovery.recovery_checkpoint import PartitionKey, Position, read_positions
from edge_broker.storage.retention.segment_removal import OFFSET_MAX
from edge_broker.storage.segment.batch_scan import Bounds, BrokenBatchError, CorruptRange, batches_in
from edge_broker.storage.segment.open_file_cache import OpenFiles
from edge_broker.storage.segment.segment import Segment

HEAD = b"drupelet "
OWN_FILES = {"store", "leader-epoch", "producer-ids", "secured", "age", "registrations", "kept-states", "disk-was-full"}
LOOKS = 100
T = TypeVar("T")
_position = attrgetter("position")


class Piece(NamedTuple):
    """A part of a segment, in the order of the file: a batch, a known corrupt range, or neither (`reason`)."""

    position: int
    end_position: int
    header: BatchHeader | None
    corrupt_range: CorruptRange | None
    reason: str


class PartitionFiles:
    """The directory of one partition; `stored` is what the last checkpoint says of it."""

    def __init__(
        self, fs: FileSystem, topic: TopicRecord, partition: int, data_dir: str, stored: Position | None
    ) -> None:
        self.fs = fs
        self.topic = topic
        self.partition = partition
        self.name = f"{topic.name}-{partition}"
        self.path = f"{data_dir}/{self.name}"
        self.stored = stored
        self.compacts = settings_of(topic).may_have_gaps
        self.files = OpenFiles(fs, files_max=4, indexes_max=1)

    def names(self) -> list[str]:
        """The names in the directory, sorted; none when it is gone."""
        try:
            return sorted(self.fs.names(self.path))
        except FileNotFoundError:
            return []

    def read(self, name: str) -> bytes | None:
        """A small file, None when it is not there; StorageFault."""
        path = f"{self.path}/{name}"
        try:
            return read_whole(self.fs, path)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise fault_of(error, path, 0) from error

    def segments(self) -> list[Segment]:
        """The segments with their sizes of now, by offset; the last one is the active one.

        Offsets that the account has as removed are left out: their files go in no order. The account is read last, as
        it is written before the first of them goes.
        """
        segments = segments_of(self.files, self.path, self.names())
        try:
            start_offset = removed_end(self.removed_ranges())
        except StorageFault:  # check says so
            return segments
        stay = oldest_that_stays((segment.base_offset for segment in segments), start_offset)
        return [segment for segment in segments if segment.base_offset >= stay]

    def sealed_segments(self) -> list[tuple[int, int]]:
        """The first offsets and sizes of the segments but the active one: what compaction and retention change."""
        return [(segment.base_offset, segment.size) for segment in self.segments()[:-1]]

    def topic_id(self) -> uuid.UUID | None:
        """The topic id that the directory itself names; None: it names none that can be read. StorageFault."""
        data = self.read("partition.metadata")
        return decode_partition_metadata(data) if data is not None else None

    def epochs(self) -> list[Start] | None:
        """The leader epoch checkpoint, None when there is none; StorageFault."""
        lines = state_lines(self.fs, f"{self.path}/leader-epoch-checkpoint", KIND)
        return None if lines is None else [(line[0], line[1]) for line in numbers(lines)]

    def snapshot(self, name: str) -> tuple[SnapshotPosition, dict[int, Producer]] | None:
        """A snapshot of the producers, None when it is damaged or gone; StorageFault."""
        data = self.read(name)
        found = decode_snapshot(data) if data is not None else None
        return (found[0], dict(found[1])) if found is not None else None

    def corrupt_ranges(self, base_offset: int) -> list[CorruptRange]:
        """The known corrupt ranges of a segment, by position; StorageFault."""
        path = f"{self.path}/{base_offset:020d}{SUFFIX}"
        try:
            return sorted(
                read_corrupt_ranges(self.fs, path, self.fs.size(path[: -len(SUFFIX)] + ".log")), key=_position
            )
        except FileNotFoundError:
            return []
        except OSError as error:
            raise fault_of(error, path, 0) from error

    def removed_ranges(self) -> list[RemovedRange]:
        """Return what was removed from the log's front; StorageFault."""
        try:
            return list(read_removed(self.fs, self.path))
        except FileNotFoundError:
            return []
        except OSError as error:
            raise fault_of(error, f"{self.path}/{FILE}", 0) from error


class DataDirectory:
    """A data directory; `holder` is the process that has it in use, None when it is stopped."""

    def __init__(self, fs: FileSystem, path: str, holder: int | None) -> None:
        self.fs = fs
        self.path = path.rstrip("/") or "/"
        self.holder = holder
        names = self.names()
        if not any(map(self._is_own_file, sorted(names & OWN_FILES))) and not any(map(self._is_partition, names)):
            raise ConfigurationError(
                f"--data-dir {path} is no data directory of edge-broker: no file `store` of a broker is in it, nor a "
                "partition's directory with the file `partition.metadata`"
            )
        self.clean = holder is None and "clean-shutdown" in names

    def _is_own_file(self, name: str) -> bool:
        """Whether a file begins as the broker's own do: other tools have files and directories of these names, too."""
        try:
            return bytes(self.fs.open(f"{self.path}/{name}").read(len(HEAD), 0)) == HEAD
        except PermissionError:  # who reads it says so
            return True
        except OSError:
            return False

    def _is_partition(self, name: str) -> bool:
        return split_partition_directory(name) is not None and "partition.metadata" in self._names_below(name)

    def _names_below(self, name: str) -> set[str]:
        try:
            return set(self.fs.names(f"{self.path}/{name}"))
        except OSError:
            return set()

    def names(self, directory: str = "") -> set[str]:
        """The names in the directory or one below it; ConfigurationError when it cannot be read."""
        try:
            return set(self.fs.names(f"{self.path}/{directory}" if directory else self.path))
        except FileNotFoundError:
            if directory:
                return set()
            raise ConfigurationError(f"--data-dir {self.path} does not exist: name that of `serve`") from None
        except OSError as error:
            raise ConfigurationError(f"--data-dir {self.path} cannot be read: {reason(error)}") from None

    def state(self, name: str, kind: str) -> list[list[str]] | None:
        """The entries of one of the store's files, None when it is not there; StorageFault."""
        return state_lines(self.fs, f"{self.path}/{name}", kind)

    def one(self, name: str) -> str:
        """The single entry of one of the store's files, `-` when it cannot be had: check says why."""
        try:
            lines = self.state(name, name)
        except StorageFault:
            return "-"
        return lines[0][0] if lines and lines[0] else "-"

    def positions(self) -> dict[PartitionKey, Position]:
        """Return the last checkpoint, nothing without one; StorageFault.

        A running broker overwrites the files in place, perhaps just now: what looks damaged is looked at again, LOOKS
        times at most, and others run in between.
        """
        return self._looked_at_again(self._positions)

    def marks(self) -> Marks | None:
        """Which partitions are in use, None when nothing says so; StorageFault. Looked at again as positions are."""
        return self._looked_at_again(InUse(self.fs, self.path).read)

    def _looked_at_again(self, read: Callable[[], T]) -> T:
        for _ in range(LOOKS - 1):
            try:
                return read()
            except StorageFault:
                os.sched_yield()
        return read()

    def _positions(self) -> dict[PartitionKey, Position]:
        path = f"{self.path}/recovery-point-offset-checkpoint"
        try:
            return read_positions(self.fs, self.path)
        except (ValueError, TypeError) as error:
            raise StorageFault(path, 0, f"a line cannot be understood ({error})") from None

    def topics(self) -> Iterator[TopicRecord | StorageFault]:
        """Every topic by name, or why its file cannot be used."""
        for name in sorted(self.names("topics")):
            if not name.endswith(".json"):
                continue
            path = f"{self.path}/topics/{name}"
            try:
                yield decode_topic(path, read_whole(self.fs, path))
            except FileNotFoundError:
                continue
            except OSError as error:
                yield fault_of(error, path, 0)
            except StorageFault as fault:
                yield fault

    def partitions(self, name: str | None = None) -> Iterator[PartitionFiles]:
        """The partitions of every topic, or those of topic NAME and that of directory NAME; ConfigurationError."""
        try:
            positions = self.positions()
        except StorageFault:
            positions = {}
        found = False
        for topic in self.topics():
            if isinstance(topic, StorageFault):
                continue
            for partition in range(topic.partitions):
                if name in (None, topic.name, f"{topic.name}-{partition}"):
                    found = True
                    stored = positions.get((topic.topic_id, partition))
                    yield PartitionFiles(self.fs, topic, partition, self.path, stored)
        if name is not None and not found:
            raise ConfigurationError(
                f"{name} is no topic and no partition in {self.path}; `edge-broker log ls` lists them"
            )


def settings_of(topic: TopicRecord) -> LogSettings:
    """Return the settings of a topic's logs, as far as its own file has them."""
    try:
        return topic_settings(LogSettings(), topic.config, compacted=topic.compacted)
    except Refusal:  # written by a newer broker: check says so
        return LogSettings()


def state_lines(fs: FileSystem, path: str, kind: str) -> list[list[str]] | None:
    """The entries of a file of state, None when it is not there; StorageFault."""
    try:
        return read_state(fs, path, kind)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise fault_of(error, path, 0) from error
    except UnicodeDecodeError:
        raise StorageFault(path, 0, "holds bytes that are no text; restore the file from a copy") from None


def numbers(lines: list[list[str]]) -> list[tuple[int, ...]]:
    """Lines of whole numbers; their CRC was right, so what is no number is a bug of the broker."""
    return [tuple(map(int, line)) for line in lines]


def segments_of(files: OpenFiles, path: str, names: list[str]) -> list[Segment]:
    """The segments of a directory with their sizes of now."""
    segments = []
    for name in names:
        if name.endswith(".log") and name[:-4].isdigit():
            segment = Segment(files, path, int(name[:-4]), 0)
            try:
                segment.size = files.fs.size(segment.path)
            except FileNotFoundError:
                continue
            segments.append(segment)
    return sorted(segments, key=lambda segment: segment.base_offset)


def bounds_of(segment: Segment, following: Segment | None, *, compacts: bool) -> Bounds:
    """Return the known bounds of a segment; `following` is the next one, None after the active one."""
    end_offset = OFFSET_MAX if following is None else following.base_offset
    return Bounds(segment.size, end_offset, dense=not compacts)


def facts_of(corrupt_range: CorruptRange) -> dict[str, int]:
    """A corrupt range as JSON; `owed` of a replica alone."""
    facts = corrupt_range._asdict()
    return facts if corrupt_range.owed else {name: value for name, value in facts.items() if name != "owed"}


def pieces(
    segment: Segment, corrupt_ranges: list[CorruptRange], *, start: int = 0, verify: bool, bounds: Bounds | None = None
) -> Iterator[Piece]:
    """Walk a segment: batches (with `verify` their CRCs are right), known corrupt ranges, and bytes that are neither.

    With `bounds` the walk continues after those at the next valid batch, else it ends there. OSError.
    """
    position, offset = start, segment.base_offset
    for corrupt_range in (
        *(corrupt_range for corrupt_range in corrupt_ranges if corrupt_range.position >= start),
        None,
    ):
        end = segment.size if corrupt_range is None else min(corrupt_range.position, segment.size)
        for piece in _batches(segment, position, end, offset, verify, bounds):
            yield piece
            if piece.header is not None:
                offset = piece.header.next_offset
            elif bounds is None:
                return
        if corrupt_range is not None:
            yield Piece(corrupt_range.position, corrupt_range.end_position, None, corrupt_range, "")
            position, offset = max(position, corrupt_range.end_position), max(offset, corrupt_range.end_offset)


def _batches(
    segment: Segment, position: int, end: int, offset: int, verify: bool, bounds: Bounds | None
) -> Iterator[Piece]:
    while position < end:
        try:
            for at, header in batches_in(segment.file, position, end, position if verify else None):
                offset, position = header.next_offset, at + header.size
                yield Piece(at, position, header, None, "")
        except BrokenBatchError as broken:
            behind = end
            if bounds is not None:
                behind = min(damage_from(segment.file, broken.position, offset, bounds).corrupt_range.end_position, end)
            yield Piece(broken.position, behind, None, None, broken.reason)
            position = behind
