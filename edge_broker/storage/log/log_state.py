"""The state of a partition's log: its segments, and the ends up to which it is written, synced and shown.

| end | meaning | who moves it |
|---|---|---|
| log_end_offset | what the kernel has | LogWriter |
| synced | what fdatasync has confirmed | LogWriter, LogRoller |
| shown | what clients may see; its offset is the high watermark | `set_visible_end` (single_node_watermark.py) |
| last_stable_offset | what no open transaction lies below | the same |

The parts of a PartitionLog share one of these: what several threads read is replaced in one assignment and never
changed in place (`segments`, `synced`, `shown`). A replacement of `segments` holds `layout`, as a roll and a
removal may meet.

Does not contain: bytes, files, who decides. Source: Kafka's LocalLog, UnifiedLog.
"""

from __future__ import annotations

from collections.abc import Sequence
from threading import Lock
from typing import TYPE_CHECKING, NamedTuple
from weakref import ref

from edge_broker.errors import StorageFault
from edge_broker.storage.segment.batch_scan import Bounds
from edge_broker.storage.segment.segment import Segment
from edge_broker.thread_checks import runs_in

if TYPE_CHECKING:
    from edge_broker.configuration.settings import LogSettings
    from edge_broker.storage.log.leader_epochs import LeaderEpochs
    from edge_broker.storage.segment.open_file_cache import OpenFiles


MARKS_KEPT = 16


class LogEnd(NamedTuple):
    """A place between two batches; `greatest` is the greatest timestamp of its segment before it, and that offset."""

    segment: Segment
    position: int
    offset: int
    greatest: tuple[int, int]


class LogPosition(NamedTuple):
    """Where a batch begins; holds no segment, so that one that was compacted is not kept open for it."""

    segment: ref[Segment]
    position: int


class LogState:
    """The segments of one partition, oldest first, at least one; the last is appended to, and ends with the log."""

    __slots__ = (
        "active",
        "directory",
        "epochs",
        "fault",
        "files",
        "last_stable_offset",
        "layout",
        "leader_epoch",
        "log_end_offset",
        "log_start_offset",
        "marks",
        "partition",
        "segments",
        "settings",
        "shown",
        "synced",
        "topic",
    )

    def __init__(
        self,
        topic: str,
        partition: int,
        directory: str,
        settings: LogSettings,
        files: OpenFiles,
        segments: Sequence[Segment],
        end_offset: int,
        leader_epoch: int,
        epochs: LeaderEpochs,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.directory = directory
        self.settings = settings
        self.files = files
        self.leader_epoch = leader_epoch
        self.epochs = epochs
        self.fault: StorageFault | None = None
        self.layout = Lock()
        self.segments: tuple[Segment, ...] = tuple(segments)
        self.active = self.segments[-1]
        self.log_start_offset = self.segments[0].base_offset
        self.log_end_offset = self.last_stable_offset = end_offset
        self.synced = self.shown = self.end()
        self.marks: dict[int, LogPosition] = {}  # recent synced ends, and where reads ended: readers go on there

    def __repr__(self) -> str:
        return f"{self.topic}-{self.partition}, {self.log_start_offset}..{self.log_end_offset}"

    def end(self) -> LogEnd:
        """The end of what is written."""
        active = self.active
        return LogEnd(active, active.size, self.log_end_offset, (active.max_timestamp, active.max_timestamp_offset))

    @property
    def sealed_segments(self) -> tuple[Segment, ...]:
        """The closed segments that may be shown whole: nothing else expires or is compacted."""
        segments, end_offset = self.segments, self.shown.offset
        count = len(segments) - 1
        while count and segments[count].base_offset > end_offset:
            count -= 1
        return segments[:count]

    def set_visible_end(self, shown: LogEnd, last_stable_offset: int) -> None:
        """Be told what may be shown, and read with isolation.level=read_committed. Loop."""
        self.shown = shown
        self.last_stable_offset = last_stable_offset

    def show_nothing(self) -> None:
        """Forget what may be shown, as of a replica that has not heard yet."""
        self.shown = LogEnd(self.segments[0], 0, self.log_start_offset, (-1, -1))
        self.last_stable_offset = self.log_start_offset

    @runs_in("files")
    def cut(self, end: LogEnd) -> None:
        """End here, in a segment that takes the place of the one with its base; what is before it is synced."""
        with self.layout:
            self.segments = (*[one for one in self.segments if one.base_offset < end.segment.base_offset], end.segment)
        self.active, self.log_end_offset, self.synced = end.segment, end.offset, end
        if self.shown.offset >= end.offset:
            self.shown = end
        elif self.shown.segment.base_offset == end.segment.base_offset:
            self.shown = self.shown._replace(segment=end.segment)
        self.last_stable_offset = min(self.last_stable_offset, end.offset)
        self.epochs.cut(self.log_start_offset, end.offset)
        self.marks.clear()

    def fail(self, fault: StorageFault) -> None:
        """Take the partition offline; the first fault stays."""
        self.fault = self.fault or fault.without_frames()

    def limit(self, segment: Segment) -> int:
        """End of what may be shown of a segment."""
        shown = self.shown
        if segment is shown.segment:
            return shown.position
        return segment.size if segment.base_offset < shown.offset else 0

    @runs_in()
    def may_have_gaps(self, segment: Segment) -> bool:
        """True when compaction took batches out of a segment, so that missing offsets are no loss."""
        if segment is self.active:
            return segment.gaps_allowed
        return segment.may_have_gaps(topic_compacts=self.settings.may_have_gaps)

    @runs_in()
    def bounds(self, segment: Segment) -> Bounds | None:
        """Return the known bounds of a segment; None if it is not one of this log any more."""
        synced = self.synced  # before the segments: a roll replaces them first
        segments = self.segments
        for at, one in enumerate(segments):
            if one is segment:
                dense = not self.may_have_gaps(segment)
                if at + 1 < len(segments):
                    return Bounds(segment.size, segments[at + 1].base_offset, dense)
                return Bounds(synced.position, synced.offset, dense)
        return None

    def confirm(self, end: LogEnd) -> None:
        """The disk has all up to this end."""
        self.synced = end
        self.remember(end.offset, end.segment, end.position)

    def remember(self, offset: int, segment: Segment, position: int) -> None:
        """A reader will ask for the batch of this offset, which begins there. Loop."""
        self.marks[offset] = LogPosition(ref(segment), position)
        if len(self.marks) > MARKS_KEPT:
            del self.marks[next(iter(self.marks))]

    @runs_in()
    def begin(self, segment: Segment) -> None:
        """Append to this segment from now on; what is before it is synced."""
        self.active = segment
        with self.layout:
            self.segments = (*self.segments, segment)
        synced = self.synced = self.end()
        if self.shown.offset == synced.offset:
            self.shown = synced  # shows no more, and keeps nothing of the segment before, which may be compacted

    @runs_in()
    def replace_segments(self, old: Sequence[Segment], new: Segment) -> None:
        """Replace segments by the compacted one that was made from them.

        A read in progress keeps to the segments that it found.
        """
        with self.layout:
            at = self.segments.index(old[0])
            assert self.segments[at : at + len(old)] == tuple(old), "only neighbours are compacted together"
            self.segments = (*self.segments[:at], new, *self.segments[at + len(old) :])

    @runs_in()
    def drop_front(self, count: int, start_offset: int) -> tuple[Segment, ...]:
        """Hide the oldest segments, which the durable account says are gone; they are the caller's to remove.

        A read in progress keeps the file it has open. The start moves first: who sees it may still find the segments,
        never the other way round.
        """
        with self.layout:
            self.log_start_offset = start_offset
            gone, self.segments = self.segments[:count], self.segments[count:]
        return gone
