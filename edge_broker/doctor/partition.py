"""The check of one partition's directory, file by file.

Contains: what must hold of a log, its indexes, snapshots, epochs, corrupt ranges and removals. Does not contain:
the store's own files (check.py), changes (repair.py). Source: FORMATS.md.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from edge_broker.doctor.batch_content_check import lie_in
from edge_broker.doctor.directory import PartitionFiles, Piece, pieces, state_lines
from edge_broker.doctor.findings import REPAIR, Findings, check_other
from edge_broker.doctor.indexes import OffsetEntries, TimeEntries
from edge_broker.errors import StorageFault
from edge_broker.storage.files.atomic_files import NEW_SUFFIX, fault_of
from edge_broker.storage.files.data_age import Now
from edge_broker.storage.log.leader_epochs import LeaderEpochs, Start
from edge_broker.storage.log.producer_state import SnapshotPosition
from edge_broker.storage.recovery import truncation_file
from edge_broker.storage.segment.batch_scan import Bounds, CorruptRange
from edge_broker.storage.segment.segment import Segment
from edge_broker.storage.segment.segment_summary import KIND as SUMMARY
from edge_broker.storage.segment.segment_summary import Tally, summary_of

_NAMES = re.compile(
    r"\d{20}\.(log|index|timeindex|snapshot|holes|summary|cleaned|cut-\d+)"
    r"|partition\.metadata|leader-epoch-checkpoint|removed-offsets"
)
_COUNTED = ("end_offset", "records", "control", "compacted", "batches", "bytes", "first_timestamp")
_NO_TIME = Now(0, 0, trusted=False, boot_id="-")
_BESIDE_LOG = ("index", "timeindex", "holes", "summary")


class PartitionCheck:
    """One partition; `read` gets the number of bytes as they are done."""

    def __init__(
        self, partition: PartitionFiles, findings: Findings, *, clean: bool, running: bool, read: Callable[[int], None]
    ) -> None:
        self._partition = partition
        self._found = findings
        self._clean = clean
        self._running = running
        self._read = read
        self._compacts = partition.compacts
        self._epochs = LeaderEpochs()
        self._lost: list[range] = []  # offsets that no batch has
        self._epoch = -1  # the greatest of the batches that the log still holds
        self._first_held = self._removed_end = 0  # by the account; 0 where that is damaged
        self._places: dict[str, SnapshotPosition] = {}
        self._bases: set[int] = set()

    def run(self) -> None:
        """Check every file of the directory."""
        partition = self._partition
        names = partition.names()
        if not names:
            self._found.damage(
                partition.path, 0, "the partition's directory is missing or empty; put it back, or delete the topic"
            )
            return
        self._metadata()
        if truncation_file.FILE in names and self._truncation():
            return
        segments = partition.segments()
        self._bases = {segment.base_offset for segment in segments}
        self._stray_names(names)
        if not segments:
            self._found.damage(partition.path, 0, "no segment is left; put the files back, or delete the topic")
            return
        self._snapshots(names)
        self._check_removed(segments)
        due = segments[0].base_offset
        for segment, following in zip(segments, [*segments[1:], None], strict=True):
            due = self._segment(segment, due, following.base_offset if following is not None else -1)
        self._checkpoint(segments[-1].base_offset, due)
        self._check_stored(segments)

    def _metadata(self) -> None:
        partition = self._partition
        path = f"{partition.path}/partition.metadata"
        try:
            found = partition.topic_id()
        except StorageFault as fault:
            self._found.fault(fault)
            return
        if found != partition.topic.topic_id:
            self._found.damage(
                path,
                0,
                f"names topic id {found}, not {partition.topic.topic_id}; put the right directory back, "
                "or delete the topic",
            )

    def _truncation(self) -> bool:
        """Whether the log is amid a truncation: nothing of it fits together until a start has carried it out."""
        path = f"{self._partition.path}/{truncation_file.FILE}"
        try:
            end_offset = truncation_file.read_truncation(self._partition.fs, self._partition.path).end_offset
        except FileNotFoundError:
            return False  # it was done meanwhile
        except StorageFault as fault:
            self._found.fault(fault)
            return False
        self._found.note(path, 0, f"the log is being truncated to offset {end_offset}; the next start carries it out")
        return True

    def _stray_names(self, names: list[str]) -> None:
        for name in names:
            path = f"{self._partition.path}/{name}"
            base, _, suffix = name.partition(".")
            if name.endswith(NEW_SUFFIX):
                continue  # a file that was about to replace another
            if not _NAMES.fullmatch(name):
                check_other(self._partition.fs, path, self._found)
            elif suffix in _BESIDE_LOG and int(base) not in self._bases and not self._running:
                self._found.note(path, 0, "belongs to no segment; the broker does not read it")

    # what speaks of the log

    def _snapshots(self, names: list[str]) -> None:
        for name in names:
            if not name.endswith(".snapshot") or not _NAMES.fullmatch(name):
                continue
            path = f"{self._partition.path}/{name}"
            try:
                found = self._partition.snapshot(name)
            except StorageFault as fault:
                self._found.fault(fault)
                continue
            if found is None:
                if name in self._partition.names():
                    self._found.damage(path, 0, f"the snapshot is torn or damaged; the log itself serves, {REPAIR}")
            elif found[0].offset != int(name[:20]):
                self._found.damage(path, 6, f"speaks of offset {found[0].offset}; its name does not; {REPAIR}")
            else:
                self._places[name] = found[0]

    def _check_removed(self, segments: list[Segment]) -> None:
        path = f"{self._partition.path}/removed-offsets"
        try:
            lines = self._partition.removed_ranges()
        except StorageFault as fault:
            self._found.fault(fault)
            return
        due = None
        for line in lines:
            if due is not None and line.first_offset != due:
                self._found.damage(path, 0, f"a line begins at offset {line.first_offset} where {due} was due")
            counted = line.records + line.control + line.compacted
            if counted != line.end_offset - line.first_offset:
                self._found.damage(
                    path, 0, f"the line of offset {line.first_offset} counts {counted} offsets up to {line.end_offset}"
                )
            due = line.end_offset
        first, self._removed_end = segments[0].base_offset, due or 0
        self._first_held = max(first, self._removed_end)
        if due is not None and due < first and not self._compacts:
            self._found.damage(
                segments[0].path,
                0,
                f"the log begins here, and what was removed ended at offset {due}; restore the files",
            )
        if due is None and first > 0:
            self._found.note(path, 0, f"is not there, and the log begins at offset {first}")

    def _checkpoint(self, active_base: int, end: int) -> None:
        path = f"{self._partition.path}/leader-epoch-checkpoint"
        try:
            stored = self._partition.epochs()
        except (StorageFault, IndexError) as error:
            self._found.damage(path, 0, f"{getattr(error, 'reason', error)}; {REPAIR}, the start makes it again")
            return
        found = self._epochs.starts
        offsets = {offset for _, offset in found}
        if not self._compacts:  # else the batches that began an epoch may be gone
            starts = [start for _, start in stored or [] if not any(start in lost for lost in self._lost)]
            offsets |= {start for start in starts if found and found[0][1] <= start < end}
        for offset in sorted(offsets):
            said, epoch = _epoch_at(stored or [], offset), _epoch_at(found, offset)
            late = offset >= active_base and not self._clean and said < epoch  # written when a segment is closed
            if said != epoch and not late:
                self._found.damage(
                    path,
                    0,
                    f"says {f'epoch {said}' if said >= 0 else 'no epoch'} of offset {offset}, "
                    f"and the batches there epoch {epoch}; {REPAIR}",
                )
                return

    def _check_stored(self, segments: list[Segment]) -> None:
        stored, active = self._partition.stored, segments[-1]
        if stored is None:
            return
        if stored.segment_base > active.base_offset:
            if stored.offset <= self._removed_end:
                return  # it held nothing that was to stay: another one took its place (starting_anew.begin_amid)
            self._found.damage(
                self._partition.path,
                0,
                f"the segment that begins at offset {stored.segment_base} is missing, its synced records are lost; "
                "restore the file",
            )
        elif stored.segment_base == active.base_offset and active.size < stored.position:
            self._found.damage(
                active.path, active.size, f"the file ends where {stored.position} bytes were synced; {REPAIR}"
            )
        elif self._clean and (stored.segment_base, stored.position) != (active.base_offset, active.size):
            self._found.note(
                active.path, active.size, "is not as the clean stop left it; the next start looks at its end"
            )

    # the log

    def _segment(self, segment: Segment, due: int, end_offset: int) -> int:
        """Walk a segment up to the next one's first offset, -1 for the active one; the offset due there, -1 unknown."""
        try:
            corrupt_ranges = self._partition.corrupt_ranges(segment.base_offset)
            indexes = self._indexes(segment)
            return self._walk(segment, corrupt_ranges, due, indexes, end_offset)
        except FileNotFoundError:
            return -1  # retention or compaction took it away meanwhile
        except StorageFault as fault:
            self._found.fault(fault)
        except OSError as error:
            self._found.fault(fault_of(error, segment.path, 0))
        return -1

    def _indexes(self, segment: Segment) -> tuple[OffsetEntries, TimeEntries]:
        offsets = self._partition.read(segment.name("index")) or b""
        times = self._partition.read(segment.name("timeindex")) or b""
        return OffsetEntries(offsets, segment.base_offset), TimeEntries(times, segment.base_offset)

    def _walk(
        self,
        segment: Segment,
        corrupt_ranges: list[CorruptRange],
        due: int,
        indexes: tuple[OffsetEntries, TimeEntries],
        end_offset: int,
    ) -> int:
        active = end_offset < 0
        if due >= 0 and segment.base_offset != due and not self._compacts:
            self._gap(segment, 0, due, segment.base_offset)
        offset, position, broken = segment.base_offset, 0, False
        wanted, tally = self._snapshot_positions(segment), Tally()
        bounds = None if active else Bounds(segment.size, end_offset, dense=not self._compacts)
        for piece in pieces(segment, corrupt_ranges, verify=True, bounds=bounds):
            self._read(piece.end_position - piece.position)
            if piece.header is not None:
                tally.find(piece.header, _NO_TIME)
                if broken:  # what lay before it is reported
                    offset = max(offset, piece.header.base_offset)
            elif piece.corrupt_range is None:
                self._report_broken(segment, piece, active)
                indexes[0].corrupt_range(piece.position, piece.end_position)
                broken = True
                continue
            broken = False
            offset = self._piece(segment, piece, offset, indexes)
            wanted.pop(piece.position, None)
            position = piece.end_position
        if broken:
            return -1 if active else end_offset
        self._check_indexes(segment, indexes, whole=tally.batches > 0 and not self._is_damaged(segment))
        if (
            not corrupt_ranges and not active and not self._is_damaged(segment)
        ):  # it was written when nothing was damaged
            self._summary(segment, tally, max(offset, end_offset))
        wanted.pop(position, None)
        for at, name in wanted.items():
            self._found.damage(
                f"{self._partition.path}/{name}",
                22,
                f"speaks of byte {at} of its segment, where no batch begins; {REPAIR}",
            )
        return offset

    def _summary(self, segment: Segment, tally: Tally, end_offset: int) -> None:
        """Compare the summary's counts with the counted ones; its time of writing is taken from it.

        The active segment has one where a crash interrupted a roll, which the next roll writes again.
        """
        path = f"{self._partition.path}/{segment.name(SUMMARY)}"
        try:
            lines = state_lines(self._partition.fs, path, SUMMARY)
            if lines is None:
                return
            said = summary_of(lines)
        except StorageFault as fault:
            self._found.damage(fault.path, fault.position, f"{fault.reason}; {REPAIR}, it is made again from the log")
            return
        except (ValueError, KeyError) as error:
            self._found.damage(path, 0, f"cannot be understood ({error}); {REPAIR}, it is made again from the log")
            return
        counted = tally.summary(segment.base_offset, end_offset, segment.size, said.max_timestamp)
        wrong = [name for name in _COUNTED if getattr(said, name) != getattr(counted, name)]
        if wrong:
            texts = [f"{name} {getattr(said, name)}, not {getattr(counted, name)}" for name in wrong]
            self._found.damage(path, 0, f"says {', '.join(texts)}; {REPAIR}, it is made again from the log")

    def _snapshot_positions(self, segment: Segment) -> dict[int, str]:
        """Positions of this segment at which some snapshot was taken; one of a roll speaks of where the next begins."""
        return {
            place.position: name
            for name, place in self._places.items()
            if place.segment_base == segment.base_offset and place.offset not in self._bases
        }

    def _piece(self, segment: Segment, piece: Piece, offset: int, indexes: tuple[OffsetEntries, TimeEntries]) -> int:
        header, corrupt_range = piece.header, piece.corrupt_range
        if header is None:
            assert corrupt_range is not None
            self._lost.append(range(corrupt_range.first_offset, corrupt_range.end_offset))
            indexes[0].corrupt_range(corrupt_range.position, corrupt_range.end_position)
            indexes[1].corrupt_range(corrupt_range.first_offset, corrupt_range.end_offset)
            if corrupt_range.first_offset > offset and not self._compacts:
                self._gap(segment, piece.position, offset, corrupt_range.first_offset)
            return max(offset, corrupt_range.end_offset)
        if header.base_offset < offset:
            self._found.damage(
                segment.path,
                piece.position,
                f"a batch has offset {header.base_offset} where {offset} was due; {REPAIR}",
            )
        elif header.base_offset > offset and not self._compacts:
            self._gap(segment, piece.position, offset, header.base_offset)
        if header.leader_epoch < self._epoch:
            self._found.damage(
                segment.path,
                piece.position,
                f"a batch of leader epoch {header.leader_epoch} follows epoch {self._epoch}; {REPAIR}",
            )
        if header.next_offset > self._first_held:
            self._epoch = max(self._epoch, header.leader_epoch)
        self._epochs.note(header.leader_epoch, header.base_offset, first=offset <= self._first_held)
        indexes[0].batch(piece.position, header)
        indexes[1].batch(header)
        if lie := lie_in(segment, piece.position, header):
            self._found.note(segment.path, piece.position, lie)
        return header.next_offset

    def _gap(self, segment: Segment, position: int, first: int, end: int) -> None:
        self._found.damage(
            segment.path,
            position,
            f"offsets {first} to {end - 1} are missing here; restore the file, nothing else has them",
        )

    def _is_damaged(self, segment: Segment) -> bool:
        """True when damage was found in a segment: what was counted of it is not all that was written."""
        return any(finding.damage and finding.path == segment.path for finding in self._found)

    def _check_indexes(self, segment: Segment, indexes: tuple[OffsetEntries, TimeEntries], *, whole: bool) -> None:
        for entries, suffix in zip(indexes, ("index", "timeindex"), strict=True):
            entries.end()
            if entries.wrong >= 0 and (whole or suffix == "index"):
                self._found.damage(
                    f"{self._partition.path}/{segment.name(suffix)}",
                    entries.wrong,
                    f"the entry speaks of no batch in the log; {REPAIR}, it is made again from the log",
                )

    def _report_broken(self, segment: Segment, piece: Piece, active: bool) -> None:
        rest = piece.end_position - piece.position
        stored = self._partition.stored
        synced = stored.position if stored is not None and stored.segment_base == segment.base_offset else 0
        if not active or self._clean or piece.position < synced:
            self._found.damage(
                segment.path,
                piece.position,
                f"{piece.reason}; {rest} bytes from here on are lost; {REPAIR}, it enters them in the ledger",
            )
        elif self._running:
            self._found.note(segment.path, piece.position, f"{rest} bytes above the synced end may be half written")
        else:
            self._found.note(
                segment.path,
                piece.position,
                f"{rest} bytes above the synced end are no whole batch; the next start cuts them off and keeps a copy",
            )


def _epoch_at(starts: Sequence[Start], offset: int) -> int:
    return max((epoch for epoch, start in starts if start <= offset), default=-1)
