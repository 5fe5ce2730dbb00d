"""Opening a partition: trusted after a clean stop, looked at after any other.

| what is found | what is done |
|---|---|
| clean stop, sizes as written down | trusted; nothing is scanned |
| bytes above the stored synced position, every CRC right | kept, synced, then shown |
| bytes above it, invalid from some byte on | copied to `<base offset>.cut-<leader epoch>` (at most 16 MiB), cut off |
| damage below it in the active segment | never cut: readable below the damage, appends refused, noted |
| the active segment is shorter than was synced | the same |
| a sealed segment is damaged | not looked for here; a read that meets it is a StorageFault |
| producer snapshot lost or torn | an older one, or the log itself, tells the producers |
| the directory belongs to another topic id, or is missing | offline, noted, not touched |

Lives here: those decisions for one partition. Must never come in: the store's own files. Source: Kafka's LogLoader;
KIP-101, KIP-516.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from edge_broker.errors import StorageFault
from edge_broker.storage.epochs import KIND, LeaderEpochs
from edge_broker.storage.log import PartitionLog, Synced, remove_segment
from edge_broker.storage.producers import Place, Producers, decode_snapshot
from edge_broker.storage.segment import CHUNK_BYTES, BrokenBatchError, OpenFiles, Segment, batches_in
from edge_broker.storage.state_files import OUT_OF_SPACE, encode_state, read_state, read_whole, replace, write_all
from edge_broker.storage.topics import encode_partition_metadata

if TYPE_CHECKING:
    from uuid import UUID

    from edge_broker.protocol.record_batch import BatchHeader
    from edge_broker.storage.filesystem import File
    from edge_broker.storage.topic_config import LogSettings

CUT_BYTES_MAX = 16 << 20
CUT_FILES_KEPT = 4
LOG_SUFFIX = ".log"


class Position(NamedTuple):
    """What was written down about a partition: its log start and its confirmed end."""

    log_start_offset: int
    segment_base: int
    position: int
    offset: int


class Opening(NamedTuple):
    """What opening any partition needs; `leader_epoch` is the one that the store has from now on."""

    files: OpenFiles
    leader_epoch: int
    clean: bool
    now_ms: int
    notes: list[str]


class _Found(NamedTuple):
    """A partition's files as they lie."""

    topic: str
    partition: int
    directory: str
    names: list[str]
    segments: list[Segment]

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def open_partition(
    opening: Opening,
    topic: str,
    topic_id: UUID,
    partition: int,
    directory: str,
    settings: LogSettings,
    stored: Position | None,
) -> PartitionLog:
    """Open one partition; whatever is wrong with it takes it offline and is noted, the others go on."""
    try:
        found = _look(opening, topic, topic_id, partition, directory, settings)
        if opening.clean and stored is not None:
            log = _open_clean(opening, found, settings, stored)
            if log is not None:
                return log
        return _Recovery(opening, found, settings, stored).run()
    except OSError as error:
        fault = StorageFault(error.filename or directory, 0, error.strerror or repr(error))
    except StorageFault as caught:
        fault = caught
    opening.notes.append(f"{topic}-{partition} is offline: {fault}")
    return offline_partition(opening, topic, partition, directory, settings, fault)


def offline_partition(
    opening: Opening, topic: str, partition: int, directory: str, settings: LogSettings, fault: StorageFault
) -> PartitionLog:
    """A partition that answers with its fault alone."""
    segment = Segment(opening.files, directory, 0, 0)
    end = Synced(segment, 0, 0)
    log = PartitionLog(
        topic,
        partition,
        directory,
        settings,
        opening.files,
        [segment],
        end,
        opening.leader_epoch,
        LeaderEpochs(),
        Producers(),
    )
    log.fail(fault)
    return log


def _look(
    opening: Opening, topic: str, topic_id: UUID, partition: int, directory: str, settings: LogSettings
) -> _Found:
    files = opening.files
    try:
        names = files.fs.names(directory)
    except FileNotFoundError:
        raise StorageFault(
            directory, 0, "the partition's directory is missing; put it back, or delete and make the topic again"
        ) from None
    path = f"{directory}/partition.metadata"
    if read_whole(files.fs, path) != encode_partition_metadata(topic_id):
        raise StorageFault(
            path, 0, f"does not name topic id {topic_id}; put the right directory back, or delete the topic"
        )
    bases = sorted(int(name[: -len(LOG_SUFFIX)]) for name in names if name.endswith(LOG_SUFFIX) and name[:-4].isdigit())
    if not bases:
        raise StorageFault(directory, 0, "no segment is left; put the files back, or delete and make the topic again")
    segments = []
    for base in bases:
        segment = Segment(files, directory, base, 0, settings.index_interval_bytes)
        segment.size = segment.indexed_from = files.fs.size(segment.path)
        segments.append(segment)
    return _Found(topic, partition, directory, names, segments)


def _read_epochs(opening: Opening, directory: str) -> LeaderEpochs | None:
    """What the checkpoint says, nothing if it was never written, None when it is damaged."""
    try:
        lines = read_state(opening.files.fs, f"{directory}/leader-epoch-checkpoint", KIND)
        return LeaderEpochs((int(epoch), int(offset)) for epoch, offset in lines)
    except FileNotFoundError:
        return LeaderEpochs()
    except (StorageFault, ValueError):
        return None


def _read_snapshot(
    opening: Opening, directory: str, names: Sequence[str], offset_max: int
) -> tuple[Place, Producers] | None:
    """The newest snapshot that can be read and is not above `offset_max`."""
    snapshots = sorted((name for name in names if name.endswith(".snapshot") and name[:-9].isdigit()), reverse=True)
    for name in snapshots:
        if int(name[:-9]) <= offset_max:
            found = decode_snapshot(read_whole(opening.files.fs, f"{directory}/{name}"))
            if found is not None:
                return found[0], Producers(found[1])
    return None


def _open_clean(opening: Opening, found: _Found, settings: LogSettings, stored: Position) -> PartitionLog | None:
    """Trust what the last stop wrote down; None when the files are not as it left them."""
    active = found.segments[-1]
    snapshot = _read_snapshot(opening, found.directory, found.names, stored.offset)
    epochs = _read_epochs(opening, found.directory)
    place = (stored.offset, stored.segment_base, stored.position)
    if (
        (active.base_offset, active.size) != (stored.segment_base, stored.position)
        or snapshot is None
        or epochs is None
    ):
        opening.notes.append(f"{found}: not as the clean stop left it; its end is checked")
        return None
    if snapshot[0][:3] != place:
        opening.notes.append(f"{found}: the producer snapshot of the clean stop is missing; its end is checked")
        return None
    active.max_timestamp, active.max_timestamp_offset, active.born_ms = snapshot[0][3:]
    active.open_tail(active.size, stored.offset)
    end = Synced(active, active.size, stored.offset)
    log = PartitionLog(
        found.topic,
        found.partition,
        found.directory,
        settings,
        opening.files,
        found.segments,
        end,
        opening.leader_epoch,
        epochs,
        snapshot[1],
    )
    log.trust_files(epochs.starts, stored.offset)
    return log


class _Recovery:
    """One partition after a stop that was not clean."""

    def __init__(self, opening: Opening, found: _Found, settings: LogSettings, stored: Position | None) -> None:
        self._opening = opening
        self._files = opening.files
        self._found = found
        self._settings = settings
        self._segments = found.segments
        self._drop_empty_strays()
        active = self._segments[-1]
        # A segment is synced before the next accepts data: the start of the last one is synced in any case.
        self._synced = (active.base_offset, 0)
        self._stored_offset = active.base_offset
        if stored is not None and stored.segment_base >= active.base_offset:
            self._synced = (stored.segment_base, stored.position)
            self._stored_offset = stored.offset
        self._producers = Producers()
        self._epochs = LeaderEpochs()
        self._epochs_written = self._epochs.starts
        self._epoch_before = -1
        self._damage: str | None = None

    def run(self) -> PartitionLog:
        """Look, decide, and leave the disk as it is shown from now on. OSError, StorageFault."""
        found, active = self._found, self._segments[-1]
        self._files.fs.sync_directory(found.directory)  # a killed process may leave names that no disk has
        end_offset, end = self._walk()
        if self._damage is None and end < active.size:
            self._cut(active, end)
        if self._damage is not None:
            self._opening.notes.append(f"{found}: {self._damage}")
        else:
            active.file.datasync()  # what is kept counts as synced only now: a killed process leaves it in memory alone
        active.size = end
        self._epochs.cut(self._segments[0].base_offset, end_offset)
        if any(start >= end_offset for _, start in self._epochs_written):
            self._write_epochs()
        self._drop_snapshots(end_offset)
        log = PartitionLog(
            found.topic,
            found.partition,
            found.directory,
            self._settings,
            self._files,
            self._segments,
            Synced(active, end, end_offset),
            self._opening.leader_epoch,
            self._epochs,
            self._producers,
        )
        log.damage = self._damage
        log.trust_files(self._epochs_written)
        return log

    def _drop_empty_strays(self) -> None:
        """Drop empty segments that a roll without space, or a crash in it, left in front of the last one with data."""
        kept: list[Segment] = [segment for segment in self._segments[:-1] if segment.size]
        for segment in self._segments[:-1]:
            if not segment.size:
                remove_segment(self._files, segment)
        self._segments[:] = [*kept, self._segments[-1]]

    def _walk(self) -> tuple[int, int]:
        """Replay what came after the newest snapshot; offset and position up to which the active segment is whole."""
        active = self._segments[-1]
        start = self._start()
        active.open_tail(*((start.position, start.offset) if start.segment_base == active.base_offset else (0, -1)))
        offset, position = start.offset, start.position
        for segment in self._segments:
            if segment.base_offset < start.segment_base:
                continue
            position = 0
            if segment.base_offset == start.segment_base and start.position:
                position = start.position
                segment.max_timestamp, segment.max_timestamp_offset, segment.born_ms = start[3:]
            offset = max(offset, segment.base_offset)
            offset, position = self._walk_segment(segment, offset, position)
        if active.size and active.born_ms < 0:
            active.born_ms = self._opening.now_ms
        return offset, position

    def _start(self) -> Place:
        """Where to begin: the newest usable snapshot, or the start of the log when the epochs or producers are lost."""
        first = self._segments[0].base_offset
        epochs = _read_epochs(self._opening, self._found.directory)
        snapshot = None
        if epochs is not None:
            self._epochs = epochs
            self._epochs_written = epochs.starts
            snapshot = _read_snapshot(self._opening, self._found.directory, self._found.names, self._stored_offset)
        sizes = {segment.base_offset: segment.size for segment in self._segments}
        if snapshot is not None:
            place = snapshot[0]
            if place.offset in sizes:  # taken at a roll: the next segment begins where it was taken
                place = Place(place.offset, place.offset, 0, -1, -1, -1)
            if place.position <= sizes.get(place.segment_base, -1):
                self._producers = snapshot[1]
                return place
        return Place(first, first, 0, -1, -1, -1)

    def _walk_segment(self, segment: Segment, offset: int, position: int) -> tuple[int, int]:
        active = segment is self._segments[-1]
        synced = self._synced[1] if active else segment.size
        due, reason = position, ""
        try:
            for at, header in batches_in(segment.file, position, segment.size, synced if active else None):
                reason = self._implausible(header, offset, at >= synced)
                if reason:
                    break
                if at == 0:
                    segment.born_ms = (
                        header.max_timestamp
                        if 0 < header.max_timestamp <= self._opening.now_ms
                        else self._opening.now_ms
                    )
                self._replay(header)
                segment.note_time(header.max_timestamp, header.last_offset)
                due = segment.note(header.base_offset, header.last_offset, at, due)
                offset, position = header.next_offset, at + header.size
        except BrokenBatchError as broken:
            reason = broken.reason
        if active:
            self._judge(segment, offset, position, reason)
        elif reason:
            self._opening.notes.append(
                f"{segment.path} at byte {position}: {reason}; what lies behind is not cut, restore the file"
            )
        return offset, position

    def _implausible(self, header: BatchHeader, offset: int, unsynced: bool) -> str:
        if header.base_offset < offset or (unsynced and header.base_offset != offset):
            return f"a record batch has offset {header.base_offset} where {offset} was due"
        if unsynced and header.leader_epoch < self._epoch_before:
            return f"a record batch of leader epoch {header.leader_epoch} follows epoch {self._epoch_before}"
        return ""

    def _replay(self, header: BatchHeader) -> None:
        self._producers.replay(header, self._opening.now_ms)
        self._epochs.note(header.leader_epoch, header.base_offset)
        self._epoch_before = header.leader_epoch

    def _judge(self, segment: Segment, offset: int, position: int, reason: str) -> None:
        """Damage below the synced position is never cut away."""
        base, synced = self._synced
        if base > segment.base_offset:
            self._damage = (
                f"the segment that begins at offset {base} is missing, its synced records are lost; restore the file"
            )
        elif position < synced:
            where = f"where synced records were, up to byte {synced} and offset {self._stored_offset}"
            self._damage = (
                f"{segment.path} at byte {position}: {reason or 'the file ends'} {where}; "
                f"offsets up to {offset} are readable, appends are refused; restore the file, "
                "or delete and make the topic again"
            )
        elif reason:
            self._opening.notes.append(f"{segment.path} at byte {position}: {reason}; offset {offset} is the end now")

    def _cut(self, segment: Segment, position: int) -> None:
        """Take the invalid tail off, after a copy was put beside it."""
        size = segment.size - position
        copied = self._copy_tail(segment, position, min(size, CUT_BYTES_MAX))
        where = f"{copied} of them kept in {segment.name(self._cut_suffix)}" if copied else "none of them worth keeping"
        segment.file.truncate(position)
        self._opening.notes.append(f"{segment.path} at byte {position}: {size} unsynced bytes cut off, {where}")

    @property
    def _cut_suffix(self) -> str:
        return f"cut-{self._opening.leader_epoch}"

    def _copy_tail(self, segment: Segment, position: int, size: int) -> int:
        """Copy bytes beside the log, unless they are all zero or there is no space; how many."""
        if _all_zero(segment.file, position, size):
            return 0
        self._drop_old_cuts()
        path = f"{segment.directory}/{segment.name(self._cut_suffix)}"
        fs = self._files.fs
        copied = 0
        try:
            target = fs.create(path)
            while copied < size:
                chunk = segment.file.read(min(CHUNK_BYTES, size - copied), position + copied)
                if not chunk:
                    break
                write_all(target, chunk, copied)
                copied += len(chunk)
            target.datasync()
            fs.sync_directory(segment.directory)
        except OSError as error:
            if error.errno not in OUT_OF_SPACE:
                raise
            fs.remove(path)
            self._opening.notes.append(f"{path}: no space to keep the cut bytes")
            return 0
        return copied

    def _drop_old_cuts(self) -> None:
        cuts = [name for name in self._found.names if ".cut-" in name and name.rpartition("-")[2].isdigit()]
        cuts.sort(key=lambda name: int(name.rpartition("-")[2]))
        for name in cuts[: -CUT_FILES_KEPT + 1]:
            self._files.fs.remove(f"{self._found.directory}/{name}")

    def _write_epochs(self) -> None:
        """Epochs of what was cut must not come back at the next crash."""
        data = encode_state(KIND, 1, self._epochs.lines())
        replace(self._files.fs, self._found.directory, "leader-epoch-checkpoint", data)
        self._epochs_written = self._epochs.starts

    def _drop_snapshots(self, end_offset: int) -> None:
        """Snapshots above the end would speak for producers of what was cut."""
        above = [
            name
            for name in self._found.names
            if name.endswith(".snapshot") and name[:-9].isdigit() and int(name[:-9]) > end_offset
        ]
        for name in above:
            self._files.fs.remove(f"{self._found.directory}/{name}")
        if above:
            self._files.fs.sync_directory(self._found.directory)


def _all_zero(file: File, position: int, size: int) -> bool:
    end = position + size
    while position < end:
        chunk = bytes(file.read(min(CHUNK_BYTES, end - position), position))
        if not chunk or chunk.count(0) != len(chunk):
            return not chunk
        position += len(chunk)
    return True
