"""The log of one partition: its state, and the parts that read it, append to it, and close its segments.

| part | does | file |
|---|---|---|
| state | what is there: segments, ends | log_state.py |
| reader | reads | log_reader.py |
| writer | appends, flushes | log_writer.py |
| roller | closes a segment and begins the next, stops | log_roller.py |

| state | event | next |
|---|---|---|
| open | append finds the segment full or too old | rolling: appends raise RollDue |
| open | writer.begin_write(), begin_write_as_it_is() | writing: appends raise WriteUnderWay |
| writing | the worker has written and the loop knows: end_write() | open |
| rolling | roller.roll() is over and the loop knows: end_roll() | open, in the next segment |
| open, rolling, writing | a write, sync or roll fails | offline: `fault` is set, every method raises it |
| offline | go_on_as() what replica/resume_failed_log.py made of it | open, in the next segment and leader epoch |
| open | the system has no space | open: the append is rejected and leaves no bytes |

| thread | calls |
|---|---|
| loop | the writer, state.advance, reads that do not block |
| worker `disk` | Flush.run, roller.roll |
| worker `writer` | Writing.run |
| worker `files` | removal, the store's methods |
| worker `reader` | reads that block |

Contains: the whole of them, the account of what went, what is damaged. Does not contain: record contents on the
way of append and read, clocks, threads. Source: Kafka's UnifiedLog.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from edge_broker.errors import StorageFault
from edge_broker.storage.log.log_reader import LogReader
from edge_broker.storage.log.log_roller import LogRoller
from edge_broker.storage.log.log_writer import LogWriter
from edge_broker.storage.log.removed_offsets import RemovedRange, removed_end
from edge_broker.storage.metadata.loss_records import Ledger, NoLedger
from edge_broker.thread_checks import runs_in

if TYPE_CHECKING:
    from edge_broker.configuration.settings import LogSettings
    from edge_broker.storage.files.data_age import Now
    from edge_broker.storage.files.spare_blocks import Spare
    from edge_broker.storage.log.log_state import LogEnd, LogState
    from edge_broker.storage.log.producer_state import Producers
    from edge_broker.storage.segment.batch_scan import CorruptRange
    from edge_broker.storage.segment.open_file_cache import OpenFiles
    from edge_broker.storage.segment.segment import DamageFound, Segment
    from edge_broker.storage.segment.segment_summary import Summary


class PartitionLog:
    """One partition; made by recovery or by TopicFiles.make_topic, not by hand."""

    def __init__(self, state: LogState, producers: Producers) -> None:
        self.topic = state.topic
        self.partition = state.partition
        self.directory = state.directory
        self.state = state
        self.reader = LogReader(state)
        self.writer = LogWriter(state, producers)
        self.roller = LogRoller(self.writer)
        self.may_come_online = True  # False: it never was open, so nothing is known that one could go back to
        self.missing = False  # it never was open, as its directory or all segments are gone
        # On the disk it says that answers may have come before their sync (recovery/dirty_markers.py).
        self.marked = False
        # In a cluster: the newest registration before the last power loss (metadata/broker_registrations.py).
        self.cut_epoch = -1
        self.topic_id = ""  # as `id_text` writes it, and the ledger: the store's too
        self.ledger: Ledger = NoLedger()
        self.spare: Spare | None = None  # the store's
        self.removed: tuple[RemovedRange, ...] = ()  # everything that ever went from the front
        self.replicated = False  # others have replicas of it (store.directory.is_replicated)
        self.missing_ranges: tuple[
            tuple[int, CorruptRange], ...
        ] = ()  # what it lacks and others may have, by segment (replica/missing_ranges.py)
        self.damages = 0  # quarantined since the start
        self.damage_notes: list[str] = []  # a sentence for each, until the event loop has logged them

    def __repr__(self) -> str:
        return f"PartitionLog({self.state!r})"

    def go_on_as(self, fresh: PartitionLog) -> None:
        """Be the log that was made of what is left of this one (resume_failed_log.py); nothing is in progress here."""
        self.retire_files()
        writer, roller = self.writer, self.roller
        self.state, self.reader, self.writer, self.roller = fresh.state, fresh.reader, fresh.writer, fresh.roller
        self.writer.producer_memory = writer.producer_memory
        self.roller.stays_without_space = roller.stays_without_space
        if writer.producer_memory is not None:
            writer.producer_memory.join(self.writer.producers)
        self.removed = fresh.removed
        self.missing_ranges = fresh.missing_ranges
        self.may_come_online, self.missing = True, False
        self.damages += fresh.damages
        self.damage_notes += fresh.damage_notes

    # what is there

    @property
    def settings(self) -> LogSettings:
        """The settings of its topic."""
        return self.state.settings

    @property
    def leader_epoch(self) -> int:
        """The epoch in which batches are appended."""
        return self.state.leader_epoch

    @property
    def fault(self) -> StorageFault | None:
        """Why the partition is offline; None: it is not."""
        return self.state.fault

    def fail(self, fault: StorageFault) -> None:
        """Take the partition offline; the first fault stays."""
        self.state.fail(fault)

    @property
    def is_held(self) -> bool:
        """Whether it is being truncated: its segments stay as they are until it goes on as another one."""
        return self.writer.held

    @property
    def log_start_offset(self) -> int:
        """First offset still held."""
        return self.state.log_start_offset

    @property
    def log_end_offset(self) -> int:
        """End of what the kernel has."""
        return self.state.log_end_offset

    @property
    def high_watermark(self) -> int:
        """End of what may be shown."""
        return self.state.shown.offset

    @property
    def synced_end(self) -> LogEnd:
        """The end that the disk has confirmed, as one value."""
        return self.state.synced

    @property
    def shown_bytes(self) -> int:
        """Bytes that may be shown, counted from the segment that was active at the start on; what goes still counts."""
        shown = self.state.shown
        return shown.segment.begin_bytes + shown.position

    @property
    def segments(self) -> tuple[Segment, ...]:
        """Every segment, oldest first; the last one is appended to."""
        return self.state.segments

    @property
    def size(self) -> int:
        """Bytes in all segments."""
        return sum(segment.size for segment in self.state.segments)

    @property
    def files(self) -> OpenFiles:
        """The open files of all segments."""
        return self.state.files

    def close_files(self) -> None:
        """Let go of every file; reads in progress keep theirs until they end."""
        for segment in self.segments:
            segment.pinned = None
            self.files.forget(segment)

    def retire_files(self) -> None:
        """As `close_files`, for files that are about to be removed: none is kept again. Any thread may ask."""
        for segment in self.segments:
            segment.pinned = None
            self.files.retire(segment)

    # what went, and what is damaged

    def take_account(self, removed: tuple[RemovedRange, ...]) -> None:
        """Learn at a start what was ever removed from the front: the log begins after it."""
        state = self.state
        self.removed = removed
        state.log_start_offset = max(state.log_start_offset, min(removed_end(removed), state.log_end_offset))

    @runs_in()
    def drop_front(self, count: int, removed: tuple[RemovedRange, ...]) -> tuple[Segment, ...]:
        """Hide the oldest segments, which the durable account says are gone; they are the caller's to remove.

        As LogState.drop_front.
        """
        self.removed = removed
        return self.state.drop_front(count, removed_end(removed))

    @runs_in("files")
    def summary(self, segment: Segment, now: Now) -> Summary:
        """The numbers of a sealed segment; made again from the log when they are lost. StorageFault."""
        if segment.stored_summary is None:
            segment.stored_summary = segment.read_summary() or self._count(segment, now)
        return segment.stored_summary

    def _count(self, segment: Segment, now: Now) -> Summary:
        bounds = self.state.bounds(segment)
        if bounds is None:
            raise StorageFault(segment.path, 0, "was removed meanwhile")
        return segment.summary_from_log(now, bounds.end_offset, dense=bounds.dense)

    @property
    def remaining_missing(self) -> list[tuple[int, CorruptRange]]:
        """The missing ranges after its start, as `missing_ranges`."""
        return [place for place in self.missing_ranges if place[1].end_offset > self.log_start_offset]

    @property
    def has_missing(self) -> bool:
        """Whether it lacks anything of that kind."""
        return bool(self.missing_ranges and self.remaining_missing)

    @runs_in("files")
    def note_owed(self, found: DamageFound, corrupt_range: CorruptRange) -> None:
        """Say what a replica was found to lack."""
        lacked = f"offsets {corrupt_range.first_offset} to {corrupt_range.end_offset - 1}"
        self.damage_notes.append(f"{found}; {lacked} are to come from another replica, if one has them")

    @runs_in("files")
    def note_damage(self, found: DamageFound, corrupt_range: CorruptRange) -> None:
        """Count and say what was quarantined."""
        self.damages += 1
        lost = f"offsets {corrupt_range.first_offset} to {corrupt_range.end_offset - 1} are lost and in the ledger"
        self.damage_notes.append(f"{found}; {lost}, readers go on after byte {corrupt_range.end_position}")

    def take_damage_notes(self) -> list[str]:
        """Return the unreported quarantines, a sentence each; the caller reports them."""
        notes = self.damage_notes[:]
        del self.damage_notes[: len(notes)]  # the worker may append meanwhile
        return notes
