"""How a segment is closed and the next begun, and what is recorded for the next start.

| file | when it is written |
|---|---|
| index, timeindex, summary of the segment | a roll; the indexes at a stop, too |
| leader-epoch-checkpoint | a roll, a new epoch, a stop, if it says something else |
| snapshot of the producers | a roll, a stop |

Contains: LogRoller. Does not contain: when it is time (log_writer.py), record contents, clocks, threads.
Source: Kafka's UnifiedLog.roll, ProducerStateManager.takeSnapshot.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from edge_broker.errors import ErrorCode, Refusal, StorageFault
from edge_broker.storage.files.atomic_files import OUT_OF_SPACE, encode_state, fault_of, replace
from edge_broker.storage.log.leader_epochs import KIND, Start
from edge_broker.storage.log.producer_state import SnapshotPosition, encode_snapshot
from edge_broker.storage.segment.segment import PutFile, Segment
from edge_broker.thread_checks import runs_in

if TYPE_CHECKING:
    from edge_broker.storage.files.batched_replace import BatchedFiles
    from edge_broker.storage.log.log_writer import LogWriter
    from edge_broker.storage.segment.open_file_cache import OpenFiles

SNAPSHOTS_KEPT = 2
STAY_BYTES = 64 << 10  # written on without space before the next attempt to begin a segment


class LogRoller:
    """Closes what a LogWriter has written."""

    def __init__(self, writer: LogWriter) -> None:
        self._writer = writer
        self._state = writer.state
        self.stays_without_space = False  # True: where no next segment can be made, the old one is written on
        self._epochs_written: tuple[Start, ...] = ()  # what the checkpoint file says
        self._snapshot_offset = 0  # where a durable snapshot lies; an empty log needs none

    @runs_in()
    def roll(self) -> None:
        """Sync the active segment, then begin the next; LogWriter.end_roll must follow.

        Reads and replaces what appends change: they are refused with RollDue until then.

        Without space for the next segment the log stays as it is: the next append is refused, or goes into the old
        segment where `stays_without_space` says so. StorageFault takes it offline.
        """
        state, writer = self._state, self._writer
        if not writer.rolling or state.fault is not None:
            return
        try:
            self._close_active()
            self._write_summary()
            self._begin_segment()
        except StorageFault as failed:
            state.fail(failed)
            raise
        except OSError as error:
            fault = fault_of(error, state.active.path, state.active.size)
            if error.errno not in OUT_OF_SPACE:
                state.fail(fault)
                raise fault from error
            if self.stays_without_space:
                writer.stay_bytes = state.active.size + STAY_BYTES
            else:
                writer.roll_refusal = Refusal(
                    ErrorCode.KAFKA_STORAGE_ERROR, f"{fault}; nothing was written, free space"
                )

    @runs_in()
    def begin_epoch(self) -> None:
        """Begin the next segment, whose first offset begins this leader epoch; nothing else may run.

        StorageFault takes it offline.
        """
        state, writer = self._state, self._writer
        state.epochs.note(state.leader_epoch, state.log_end_offset)
        if state.active.size:
            writer.rolling = True
            self.roll()
            writer.rolling = False
            return
        self.keep_epochs()

    @property
    def epochs_wrong(self) -> bool:
        """Whether the checkpoint has an epoch without a batch, whose place batches of older ones have taken since."""
        return not set(self._epochs_written) <= set(self._state.epochs.starts)

    @runs_in()
    def keep_epochs(self, batch: BatchedFiles | None = None) -> None:
        """Write down where leader epochs began, if the file says something else, synced; no roll may run meanwhile.

        With a `batch` that is done once its `finish` says so. StorageFault takes the log offline.
        """
        state = self._state
        put = (
            partial(replace, state.files.fs, state.directory)
            if batch is None
            else partial(batch.replace, state.directory)
        )
        try:
            self._write_epochs(put)
        except OSError as error:
            fault = fault_of(error, state.directory, 0)
            state.fail(fault)
            raise fault from error

    def _close_active(self, batch: BatchedFiles | None = None) -> None:
        """Sync what is written, write down what the next start needs; the caller syncs the directory, or the batch."""
        state, writer = self._state, self._writer
        active, fs, directory = state.active, state.files.fs, state.directory
        try:
            if state.synced.offset != state.log_end_offset or writer.retreated:
                active.datasync()
                writer.retreated = False
        except OSError as error:
            raise fault_of(error, active.path, active.size) from error
        state.synced = state.end()
        active.pinned = None
        if batch is None:
            active.seal()
            self._write_epochs(partial(replace, fs, directory))
            self._write_snapshot(partial(replace, fs, directory, sync_name=False))
        else:
            active.seal(partial(batch.replace, directory))
            self._write_epochs(partial(batch.replace, directory))
            self._write_snapshot(partial(batch.replace, directory, last=True))  # it vouches for the epochs

    def _write_summary(self) -> None:
        active = self._state.active
        end = (self._state.log_end_offset, active.size, active.max_timestamp)
        active.write_summary(active.tally.summary(active.base_offset, *end))

    def _begin_segment(self) -> None:
        state, sealed = self._state, self._state.active
        assert state.log_end_offset > sealed.base_offset, "the next segment would have the name of this one"
        segment = Segment(state.files, state.directory, state.log_end_offset, 0, state.settings.index_interval_bytes)
        make_segment_file(state.files, segment)
        segment.open_tail()
        segment.begin_bytes = sealed.begin_bytes + sealed.size
        self._writer.begin_segment(segment)
        sealed.indexed_from = sealed.size
        sealed.tail = None

    def _write_snapshot(self, put: PutFile) -> None:
        state = self._state
        active, fs, end_offset = state.active, state.files.fs, state.log_end_offset
        if self._snapshot_offset == end_offset:
            return
        producers = self._writer.producers
        place = SnapshotPosition(
            end_offset,
            active.base_offset,
            active.size,
            active.max_timestamp,
            active.max_timestamp_offset,
            active.born_age_ms,
            active.tally.counts(),
            producers.forgotten_max,
        )
        put(f"{end_offset:020d}.snapshot", encode_snapshot(place, producers.by_id()))
        found = sorted(name for name in fs.names(state.directory) if name.endswith(".snapshot"))
        for name in found[:-SNAPSHOTS_KEPT]:
            with suppress(FileNotFoundError):  # compaction drops those inside the segments that it replaces
                fs.remove(f"{state.directory}/{name}")

    def trust_files(self, epochs_written: tuple[Start, ...], snapshot_offset: int = 0) -> None:
        """Learn what the epoch checkpoint says and where a durable snapshot lies, so as not to write them again."""
        self._epochs_written = epochs_written
        self._snapshot_offset = snapshot_offset

    def _write_epochs(self, put: PutFile) -> None:
        starts = self._state.epochs.starts
        if starts != self._epochs_written:
            put("leader-epoch-checkpoint", encode_state(KIND, 1, self._state.epochs.lines()))
            self._epochs_written = starts

    @property
    def stop_due(self) -> bool:
        """True while `stop` has something to write; what is as its files say needs nothing."""
        state = self._state
        return state.fault is None and (self._snapshot_offset != state.log_end_offset or self._writer.retreated)

    @runs_in()
    def stop(self, batch: BatchedFiles | None = None) -> None:
        """Sync and write down what is not yet; nothing else may run. StorageFault.

        With a `batch` that is done once its `finish` says so.
        """
        if not self.stop_due:
            return
        state = self._state
        try:
            self._close_active(batch)
            if batch is None:
                state.files.fs.sync_directory(state.directory)
        except StorageFault as failed:
            state.fail(failed)
            raise
        except OSError as error:
            fault = fault_of(error, state.active.path, state.active.size)
            state.fail(fault)
            raise fault from error


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
