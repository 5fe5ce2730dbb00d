"""The log of one partition, and how its segments are closed and begun; reading.py and appending.py are its other parts.

| state | event | next |
|---|---|---|
| open | append finds the segment full or too old | rolling: appends raise RollDue |
| open | begin_write() | writing: appends raise WriteUnderWay |
| writing | the worker has written and the loop knows: end_write() | open |
| rolling | roll() is over and the loop knows: end_roll() | open, in the next segment |
| open, rolling, writing | a write, sync or roll fails | offline: `fault` is set, every method raises it |
| offline | go_on_as() what bring_online.py made of it | open, in the next segment and leader epoch |
| open | the system has no space | open: the append is refused and leaves nothing behind |

| thread | calls |
|---|---|
| loop | append, begin_write, end_write, begin_flush, finish_flush, end_roll, reads that do not block |
| worker `disk` | Flush.run, roll |
| worker `writer` | Writing.run |
| worker `files` | removal, the store's methods |
| worker `reader` | reads that block |

What several threads read is replaced in one assignment and never changed in place: `_segments`, `_synced`,
`_shown_time`. Who replaces `_segments` holds `_layout`, as a roll and a removal may meet.

Must never come in: record contents on the way of append and read, clocks, threads. Source: Kafka's UnifiedLog;
KIP-74, KIP-101.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING

from edge_broker.errors import ErrorCode, Refusal, StorageFault
from edge_broker.storage.appending import Appended, RollDue, WritableLog
from edge_broker.storage.epochs import KIND, Start
from edge_broker.storage.ledger import Ledger, NoLedger
from edge_broker.storage.open_files import OpenFiles
from edge_broker.storage.producers import Producers, SnapshotPosition, encode_snapshot
from edge_broker.storage.reading import LogState, Synced
from edge_broker.storage.removal_account import Removed, removed_end
from edge_broker.storage.segment import PutFile, Segment
from edge_broker.storage.state_files import OUT_OF_SPACE, encode_state, fault_of, replace

if TYPE_CHECKING:
    from edge_broker.storage.batched_files import BatchedFiles
    from edge_broker.storage.spare import Spare

__all__ = ["Appended", "PartitionLog", "RollDue", "make_segment_file"]
SNAPSHOTS_KEPT = 2
STAY_BYTES = 64 << 10  # written on without space before the next attempt to begin a segment


class PartitionLog(WritableLog):
    """One partition; made by recovery or by LogStore.make_topic, not by hand."""

    def __init__(self, state: LogState) -> None:
        super().__init__(state)
        self.may_come_online = True  # False: it never was open, so nothing is known that one could go back to
        self.topic_id = ""  # as `id_text` writes it, and the ledger: the store's too
        self.ledger: Ledger = NoLedger()
        self.spare: Spare | None = None  # the store's
        self.stays_without_space = False  # True: where no next segment can be made, the old one is written on
        self.removed: tuple[Removed, ...] = ()  # everything that ever went from the front
        self._files = state.files
        self._layout = Lock()
        self._epochs_written: tuple[Start, ...] = ()  # what the checkpoint file says
        self._snapshot_offset = 0  # where a durable snapshot lies; an empty log needs none

    def go_on_as(self, fresh: PartitionLog) -> None:
        """Be the log that was made of what is left of this one (bring_online.py); nothing is under way here."""
        for segment in self._segments:
            segment.pinned = None
            self._files.retire(segment)
        fresh.damages += self.damages
        fresh.damage_notes[:0] = self.damage_notes
        own = ("fault", "ledger", "marked", "producer_memory", "spare", "stays_without_space", "topic_id", "_layout")
        vars(self).update({name: value for name, value in vars(fresh).items() if name not in own})
        if self.producer_memory is not None:
            self.producer_memory.join(self._producers)
        self.fault = fresh.fault

    # closing segments

    def roll(self) -> None:
        """Sync the active segment, then begin the next; `end_roll` must follow. [worker]

        Reads and replaces what appends change: they are refused with RollDue until `end_roll`.

        Without space for the next segment the log stays as it is: the next append is refused, or goes into the old
        segment where `stays_without_space` says so. StorageFault takes it offline.
        """
        if not self.rolling or self.fault is not None:
            return
        try:
            self._close_active()
            self._write_summary()
            self._begin_segment()
        except StorageFault as failed:
            self.fail(failed)
            raise
        except OSError as error:
            fault = fault_of(error, self._active.path, self._active.size)
            if error.errno not in OUT_OF_SPACE:
                self.fail(fault)
                raise fault from error
            if self.stays_without_space:
                self._stay_bytes = self._active.size + STAY_BYTES
            else:
                self._roll_refusal = Refusal(ErrorCode.KAFKA_STORAGE_ERROR, f"{fault}; nothing was written, free space")

    def begin_roll(self) -> bool:
        """Have the active segment closed before it is full; False when it is empty, or being closed already. Loop."""
        if self.busy or self.fault is not None or not self._active.size:
            return False
        self.rolling = True
        return True

    def begin_epoch(self) -> None:
        """Begin the next segment, whose first offset begins this leader epoch; nothing else may run. [worker]

        StorageFault takes it offline.
        """
        self._epochs.note(self.leader_epoch, self.log_end_offset)
        if self._active.size:
            self.rolling = True
            self.roll()
            self.end_roll()
            return
        try:
            self._write_epochs(partial(replace, self._files.fs, self.directory))
        except OSError as error:
            fault = fault_of(error, self.directory, 0)
            self.fail(fault)
            raise fault from error

    def end_roll(self) -> None:
        """Let appends go on behind `roll`, once those that wait for it come first."""
        self.rolling = False

    def _close_active(self, batch: BatchedFiles | None = None) -> None:
        """Sync what is written, write down what the next start needs; the caller syncs the directory, or the batch."""
        active = self._active
        try:
            if self._synced.offset != self.log_end_offset or self._retreated:
                active.datasync()
                self._retreated = False
        except OSError as error:
            raise fault_of(error, active.path, active.size) from error
        self._confirm()
        if batch is None:
            active.seal()
            self._write_epochs(partial(replace, self._files.fs, self.directory))
            self._write_snapshot(partial(replace, self._files.fs, self.directory, sync_name=False))
        else:
            active.seal(partial(batch.replace, self.directory))
            self._write_epochs(partial(batch.replace, self.directory))
            self._write_snapshot(partial(batch.replace, self.directory, last=True))  # it vouches for the epochs

    def _write_summary(self) -> None:
        active = self._active
        end = (self.log_end_offset, active.size, active.max_timestamp)
        active.write_summary(active.tally.summary(active.base_offset, *end))

    def _confirm(self) -> None:
        active = self._active
        self._synced = Synced(active, active.size, self.log_end_offset)
        self._shown_time = self._time_now()
        active.pinned = None

    def _begin_segment(self) -> None:
        assert self.log_end_offset > self._active.base_offset, "the next segment would have the name of this one"
        segment = Segment(self._files, self.directory, self.log_end_offset, 0, self.settings.index_interval_bytes)
        make_segment_file(self._files, segment)
        segment.open_tail()
        sealed = self._active
        segment.begin_bytes = sealed.begin_bytes + sealed.size
        self._index_due = self._stay_bytes = 0
        self._active = segment
        with self._layout:
            self._segments = (*self._segments, segment)
        self._synced = Synced(segment, 0, self.log_end_offset)
        self._shown_time = self._time_now()  # the sealed segment speaks for itself, and only as long as it is there
        sealed.indexed_from = sealed.size
        sealed.tail = None

    def _write_snapshot(self, put: PutFile) -> None:
        active, fs = self._active, self._files.fs
        if self._snapshot_offset == self.log_end_offset:
            return
        counts = active.tally.counts()
        end = (self.log_end_offset, active.base_offset, active.size)
        place = SnapshotPosition(*end, *self._time_now(), active.born_age_ms, counts)
        data = encode_snapshot(place, self._producers.known())
        put(f"{self.log_end_offset:020d}.snapshot", data)
        found = sorted(name for name in fs.names(self.directory) if name.endswith(".snapshot"))
        for name in found[:-SNAPSHOTS_KEPT]:
            with suppress(FileNotFoundError):  # compaction drops those inside the segments that it replaces
                fs.remove(f"{self.directory}/{name}")

    def trust_files(self, epochs_written: tuple[Start, ...], snapshot_offset: int = 0) -> None:
        """Learn what the epoch checkpoint says and where a durable snapshot lies, so as not to write them again."""
        self._epochs_written = epochs_written
        self._snapshot_offset = snapshot_offset

    def _write_epochs(self, put: PutFile) -> None:
        starts = self._epochs.starts
        if starts != self._epochs_written:
            put("leader-epoch-checkpoint", encode_state(KIND, 1, self._epochs.lines()))
            self._epochs_written = starts

    @property
    def stop_due(self) -> bool:
        """True while `stop` has something to write; what is as its files say needs nothing."""
        return self.fault is None and (self._snapshot_offset != self.log_end_offset or self._retreated)

    def stop(self, batch: BatchedFiles | None = None) -> None:
        """Sync and write down what is not yet; nothing else may run. StorageFault. [worker]

        With a `batch` that is done once its `finish` says so.
        """
        if not self.stop_due:
            return
        try:
            self._close_active(batch)
            if batch is None:
                self._files.fs.sync_directory(self.directory)
        except StorageFault as failed:
            self.fail(failed)
            raise
        except OSError as error:
            fault = fault_of(error, self._active.path, self._active.size)
            self.fail(fault)
            raise fault from error

    def close_files(self) -> None:
        """Let go of every file; reads under way keep theirs until they end."""
        for segment in self._segments:
            segment.pinned = None
            self._files.forget(segment)

    def retire_files(self) -> None:
        """As `close_files`, for files that are about to be removed: none is kept again. [worker]"""
        for segment in self._segments:
            segment.pinned = None
            self._files.retire(segment)

    # removal (removal.py) and compaction (cleaner.py)

    @property
    def files(self) -> OpenFiles:
        """The open files of all segments."""
        return self._files

    @property
    def segments(self) -> tuple[Segment, ...]:
        """Every segment, oldest first; the last one is appended to."""
        return self._segments

    @property
    def producers(self) -> Producers:
        """What each producer wrote last."""
        return self._producers

    def replace_segments(self, old: Sequence[Segment], new: Segment) -> None:
        """Show a compacted segment in place of those it was made from. [worker]

        A read under way keeps to the segments that it found.
        """
        with self._layout:
            at = self._segments.index(old[0])
            assert self._segments[at : at + len(old)] == tuple(old), "only neighbours are compacted together"
            self._segments = (*self._segments[:at], new, *self._segments[at + len(old) :])

    def take_account(self, removed: tuple[Removed, ...]) -> None:
        """Learn at a start what ever went from the front: the log begins behind it."""
        self.removed = removed
        self._log_start_offset = max(self._log_start_offset, min(removed_end(removed), self.log_end_offset))

    def drop_front(self, count: int, removed: tuple[Removed, ...]) -> tuple[Segment, ...]:
        """Hide the oldest segments, which the durable account says are gone; they are the caller's to remove. [worker]

        A read under way keeps the file it has open. The start moves first: who sees it may still find the segments,
        never the other way round.
        """
        self.removed = removed
        with self._layout:
            self._log_start_offset = removed_end(removed)
            gone, self._segments = self._segments[:count], self._segments[count:]
        return gone


def make_segment_file(files: OpenFiles, segment: Segment) -> None:
    """Make an empty segment whose name is durable; after an OSError no file of that name is left."""
    try:
        file = files.fs.create(segment.path)
        files.fs.sync_directory(segment.directory)
    except OSError:
        if files.fs.exists(segment.path):
            files.fs.remove(segment.path)
        raise
    files.keep_file(segment, file)
