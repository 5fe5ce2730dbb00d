"""Opening a partition: trusted after a clean stop, looked at after any other.

| what is found | what is done |
|---|---|
| clean stop, sizes as recorded | trusted; nothing is scanned |
| another stop, the active segment ends where its stored end is | nothing is synced: all was before the end was stored |
| bytes above the stored synced position, every CRC right | kept, synced, then shown |
| bytes above it, invalid from some byte on | copied to `<base offset>.cut-<leader epoch>`, cut off, ledger |
| bytes above it that the disk cannot read | left where they are and skipped, the next segment begins, ledger |
| the same, and nothing else in the segment | `<base offset>.cut-<leader epoch>` is its name now, ledger |
| damage below it in the active segment | never cut: quarantined (loss/quarantine.py), the next segment begins |
| the active segment is shorter than was synced, or missing | the same; no offset is given twice |
| a segment is missing, all that was known to be synced went from the front | what is there counts as unsynced |
| no segment is left | the next one begins at the stored end, the account and the ledger say what is gone |
| any damage of a replica | as here, but owed (replica/missing_ranges.py) instead of in the ledger |
| damage in a sealed segment that is walked | quarantined; others are not looked at here |
| its mark says that it was in use (dirty_markers.py), and there was a cut | ledger: what no sync covered may be gone |
| producer snapshot lost or torn | an older one, or the log itself, tells the producers |
| a truncation that was decided (truncation_file.py) | executed; then as after another stop, its end is the stored one |
| the directory belongs to another topic id, or is missing | offline, noted, not touched |
| the first segments of a replica are missing | another segment begins there, and owes what they held |
| no segment of a replica is left | the same: another replica has it (replica/reopen_replica.py) |

Contains: the decisions for one partition. Does not contain: the store's own files. Source: Kafka's LogLoader;
KIP-101, KIP-516.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from errno import EIO
from typing import TYPE_CHECKING, NamedTuple

from edge_broker.errors import StorageFault
from edge_broker.storage.files.atomic_files import (
    drop_leftovers,
    encode_state,
    fault_of,
    out_of_space,
    read_state,
    read_whole,
    replace,
)
from edge_broker.storage.files.data_age import AGE_UNKNOWN, Now
from edge_broker.storage.log.leader_epochs import KIND, LeaderEpochs
from edge_broker.storage.log.log_roller import make_segment_file
from edge_broker.storage.log.log_state import LogState
from edge_broker.storage.log.partition_log import PartitionLog
from edge_broker.storage.log.producer_state import (
    ANYBODY,
    NOBODY,
    Producers,
    SnapshotPosition,
    decode_snapshot,
    producers_of_snapshot,
)
from edge_broker.storage.log.removed_offsets import (
    BY_LEADER,
    FILE,
    RemovedRange,
    read_removed,
    removed_end,
    with_removed,
    write_removed,
)
from edge_broker.storage.loss.quarantine import KIND as CORRUPT_RANGES
from edge_broker.storage.loss.quarantine import (
    add_corrupt_range,
    damage_from,
    due_behind,
    read_corrupt_ranges,
    up_to_next_corrupt_range,
    write_corrupt_ranges,
)
from edge_broker.storage.metadata.loss_records import Ledger, Loss, NoLedger
from edge_broker.storage.metadata.topic_record import (
    LEDGERS,
    decode_partition_metadata,
    encode_partition_metadata,
    id_text,
)
from edge_broker.storage.recovery.recovery_checkpoint import Position
from edge_broker.storage.recovery.unclean_shutdown import Cut, unsynced_cut
from edge_broker.storage.retention.segment_removal import finish_removal, remove_segments
from edge_broker.storage.segment.batch_scan import Bounds, BrokenBatchError, CorruptRange, batches_in, half_written
from edge_broker.storage.segment.open_file_cache import OpenFiles
from edge_broker.storage.segment.segment import Segment
from edge_broker.storage.segment.segment_summary import Tally
from edge_broker.storage.segment.segment_swap import settle_swap
from edge_broker.storage.segment.truncated_tails import copy_tail, keep_whole

if TYPE_CHECKING:
    from uuid import UUID

    from edge_broker.configuration.settings import LogSettings
    from edge_broker.protocol.record_batch import BatchHeader

PAGE_BYTES = 4096
LOG_SUFFIX = ".log"
TRUNCATION = "truncation"  # as truncation_file.py has it, which is imported where there is one


class LogMissing(StorageFault):
    """Nothing is left of a log where it should lie."""


class RecoveryContext(NamedTuple):
    """The state for opening any partition; `leader_epoch` is the one that the store has from now on."""

    files: OpenFiles
    leader_epoch: int
    clean: bool
    now: Now
    notes: list[str]
    walked: list[int]  # bytes that were read of each segment that had to be looked at
    truncated: list[TruncatedLog]  # to be forgotten by the store, once its positions say where these logs end
    ledger: Ledger = NoLedger()
    cut: Cut | None = None  # None: what was written before this start is still there


class TruncatedLog(NamedTuple):
    """A log that a decided truncation has cut: where it ends now."""

    topic_id: UUID
    partition: int
    directory: str
    end: Position


class OpenRequest(NamedTuple):
    """A partition to open; `stored` is the end that was recorded last."""

    topic: str
    topic_id: UUID
    partition: int
    directory: str
    settings: LogSettings
    stored: Position | None
    replicated: bool = False  # by elections alone its leader epoch rises, and who leads decides what is shown


class _PartitionFiles(NamedTuple):
    """A partition's files as they lie."""

    topic: str
    partition: int
    directory: str
    names: list[str]
    segments: list[Segment]
    removed: tuple[RemovedRange, ...]
    topic_id: str
    stored: Position | None  # as it was wanted, or where a truncation has cut it
    truncated: bool

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def open_partition(opening: RecoveryContext, wanted: OpenRequest) -> PartitionLog:
    """Open one partition; whatever is wrong with it takes it offline and is noted, the others go on.

    OSError, StorageFault: there is no space for what has to be written, which is no reason to be offline for good.
    """
    topic, topic_id, partition, directory, settings, stored, replicated = wanted
    try:
        found = _find_files(opening, wanted)
        stored, as_left = found.stored, opening.clean and not found.truncated
        log = _open_clean(opening, found, settings, stored) if as_left and stored is not None else None
        if log is None:
            log = _Recovery(opening, found, settings, stored, replicated=replicated).run()
        log.take_account(found.removed)
        if replicated:
            log.missing_ranges = tuple(
                (one.base_offset, each) for one in log.segments for each in one.corrupt_ranges if each.owed
            )
            log.state.leader_epoch = log.state.epochs.latest
            log.state.show_nothing()
        if found.truncated and stored is not None:
            opening.truncated.append(TruncatedLog(topic_id, partition, directory, stored))
        return log
    except (OSError, StorageFault) as error:
        if out_of_space(error):
            raise
        fault = error if isinstance(error, StorageFault) else fault_of(error, directory, 0)
    opening.notes.append(f"{topic}-{partition} is offline: {fault}")
    if not (replicated and isinstance(fault, LogMissing)):  # that one comes from others, or the files are put back
        note_cut(opening, topic, id_text(topic_id), partition, settings, stored)
    return offline_partition(opening, topic, partition, directory, settings, fault)


def note_cut(
    opening: RecoveryContext, topic: str, topic_id: str, partition: int, settings: LogSettings, stored: Position | None
) -> None:
    """Record what a power loss may have cost an unreadable partition: all after its stored end."""
    if opening.cut is not None:
        end_offset = stored.offset if stored is not None else 0
        opening.cut.note(unsynced_cut(topic, topic_id, partition, end_offset, opening.leader_epoch), settings)


def offline_partition(
    opening: RecoveryContext, topic: str, partition: int, directory: str, settings: LogSettings, fault: StorageFault
) -> PartitionLog:
    """A partition that answers with its fault alone."""
    segment = Segment(opening.files, directory, 0, 0)
    where = (topic, partition, directory, settings, opening.files)
    log = PartitionLog(LogState(*where, [segment], 0, opening.leader_epoch, LeaderEpochs()), Producers())
    log.fail(fault)
    log.may_come_online, log.missing = False, isinstance(fault, LogMissing)
    return log


def _find_files(opening: RecoveryContext, wanted: OpenRequest) -> _PartitionFiles:
    topic, topic_id, partition, directory, settings, stored, replicated = wanted
    files = opening.files
    try:
        names = files.fs.names(directory)
    except FileNotFoundError:
        raise LogMissing(
            directory, 0, "the partition's directory is missing; put it back, or delete and make the topic again"
        ) from None
    path = f"{directory}/partition.metadata"
    if replicated and not _names_a_topic(files, path) and not _holds_bytes(files, directory, names):
        raise LogMissing(directory, 0, "nothing is left in the partition's directory; put the files back")
    if read_whole(files.fs, path) != encode_partition_metadata(topic_id):
        raise StorageFault(
            path, 0, f"does not name topic id {topic_id}; put the right directory back, or delete the topic"
        )
    names = settle_swap(files.fs, directory, names)
    truncated = TRUNCATION in names
    if truncated:
        names, stored = _carry_out_truncation(opening, wanted)
    removed = _account_of(opening, directory, names)
    names = finish_removal(files.fs, directory, names, removed_end(removed))
    bases = sorted(int(name[: -len(LOG_SUFFIX)]) for name in names if name.endswith(LOG_SUFFIX) and name[:-4].isdigit())
    went = stored is not None and (stored.offset <= removed_end(removed) or not replicated)
    if not bases and went and stored is not None:
        make_segment_file(files, Segment(files, directory, stored.offset, 0))
        bases.append(stored.offset)
    elif not bases:
        raise LogMissing(directory, 0, "no segment is left; put the files back, or delete and make the topic again")
    if bases[0] > removed_end(removed):
        if replicated and not _went_by_retention(removed, stored, bases[0]):
            names = _owe_front(opening, wanted, names, CorruptRange(removed_end(removed), bases[0], 0, 0, owed=1))
            bases.insert(0, removed_end(removed))
        else:
            removed = _account_for_front(opening, wanted, removed, bases[0])
    segments = []
    for base in bases:
        segment = Segment(files, directory, base, 0, settings.index_interval_bytes)
        segment.size = segment.indexed_from = files.fs.size(segment.path)
        segment.corrupt_ranges = _corrupt_ranges_of(opening, segment, names)
        segments.append(segment)
    return _PartitionFiles(topic, partition, directory, names, segments, removed, id_text(topic_id), stored, truncated)


def _names_a_topic(files: OpenFiles, path: str) -> bool:
    try:
        return decode_partition_metadata(read_whole(files.fs, path)) is not None
    except FileNotFoundError:
        return False


def _holds_bytes(files: OpenFiles, directory: str, names: Sequence[str]) -> bool:
    return any(files.fs.size(f"{directory}/{name}") for name in names if name.endswith(LOG_SUFFIX))


def _carry_out_truncation(opening: RecoveryContext, wanted: OpenRequest) -> tuple[list[str], Position]:
    """Carry a truncation out; the names then, and where the log ends: all before that was synced first."""
    from edge_broker.storage.recovery import truncation_file  # noqa: PLC0415 - a single node has none

    decided = truncation_file.read_truncation(opening.files.fs, wanted.directory)
    names = truncation_file.carry_out(opening.files, wanted.directory, decided)
    start_offset = 0 if wanted.stored is None else min(wanted.stored.log_start_offset, decided.end_offset)
    opening.notes.append(f"{wanted.topic}-{wanted.partition}: truncated to offset {decided.end_offset}")
    return names, Position(start_offset, decided.segment_base, decided.position, decided.end_offset)


def _corrupt_ranges_of(opening: RecoveryContext, segment: Segment, names: Sequence[str]) -> tuple[CorruptRange, ...]:
    """The damage that is known of a segment; if its file is damaged itself, readers find it again."""
    if segment.name(CORRUPT_RANGES) not in names:
        return ()
    path = f"{segment.directory}/{segment.name(CORRUPT_RANGES)}"
    try:
        return read_corrupt_ranges(opening.files.fs, path, segment.size)
    except StorageFault as fault:
        opening.notes.append(f"{fault}; the damage that it names is looked for again")
        return ()


def _account_of(opening: RecoveryContext, directory: str, names: Sequence[str]) -> tuple[RemovedRange, ...]:
    """Return what was removed from the front; a damaged account counts as lost, and its offsets as damaged."""
    if FILE not in names:
        return ()
    try:
        return read_removed(opening.files.fs, directory)
    except StorageFault as fault:
        opening.notes.append(f"{fault}; the ledger says what cannot be accounted for")
        return ()


def _went_by_retention(removed: tuple[RemovedRange, ...], stored: Position | None, base_offset: int) -> bool:
    """A broker before this account existed left the start that its retention had reached in the positions alone."""
    return not removed and stored is not None and stored.log_start_offset >= base_offset


def _owe_front(opening: RecoveryContext, wanted: OpenRequest, names: Sequence[str], lacked: CorruptRange) -> list[str]:
    """Remember that a replica lacks its first segments, and begin where they began; the names then."""
    segment = Segment(opening.files, wanted.directory, lacked.first_offset, 0)
    write_corrupt_ranges(segment, (lacked,))
    make_segment_file(opening.files, segment)
    lost = f"offsets {lacked.first_offset} to {lacked.end_offset - 1}"
    where = f"{wanted.topic}-{wanted.partition}"
    opening.notes.append(f"{where}: {lost} are gone, and are to come from another replica, if one has them")
    return [*names, segment.name(CORRUPT_RANGES), segment.name("log")]


def _account_for_front(
    opening: RecoveryContext, wanted: OpenRequest, removed: tuple[RemovedRange, ...], base_offset: int
) -> tuple[RemovedRange, ...]:
    """Offsets are gone from the front and the account does not say why: they are lost, and recorded as that."""
    topic, topic_id, partition, directory, _, stored, _ = wanted
    first = removed_end(removed)
    by_retention = _went_by_retention(removed, stored, base_offset)
    if not by_retention:
        loss = Loss("damaged", topic, id_text(topic_id), partition, first, base_offset, None, None)
        opening.ledger.write([loss])
        opening.notes.append(f"{topic}-{partition}: offsets {first} to {base_offset - 1} are gone; see the ledger")
    cause = "retention" if by_retention else "damaged"
    removed = with_removed(removed, [RemovedRange(cause, first, base_offset, base_offset - first, 0, 0, 0)])
    write_removed(opening.files.fs, directory, removed)
    return removed


def _read_epochs(opening: RecoveryContext, directory: str, names: Sequence[str]) -> LeaderEpochs | None:
    """Return the checkpoint, empty if it was never written, None if it is damaged or lost."""
    try:
        lines = read_state(opening.files.fs, f"{directory}/leader-epoch-checkpoint", KIND)
        return LeaderEpochs((int(epoch), int(offset)) for epoch, offset in lines)
    except FileNotFoundError:
        closed = [name for name in names if name.endswith(".snapshot") and name[:-9].isdigit() and int(name[:-9])]
        return None if closed else LeaderEpochs()  # the epochs of its batches are written before a snapshot
    except (StorageFault, ValueError):
        return None


def _read_snapshot(
    opening: RecoveryContext,
    directory: str,
    names: Sequence[str],
    offset_max: int,
    fits: Callable[[SnapshotPosition], bool] = lambda _: True,
) -> tuple[SnapshotPosition, Producers] | None:
    """The newest snapshot that can be read, fits, and is not above `offset_max`."""
    snapshots = sorted((name for name in names if name.endswith(".snapshot") and name[:-9].isdigit()), reverse=True)
    for name in snapshots:
        if int(name[:-9]) <= offset_max:
            found = decode_snapshot(read_whole(opening.files.fs, f"{directory}/{name}"))
            if found is not None and fits(found[0]):
                return found[0], producers_of_snapshot(found[1], found[0].forgotten_max)
    return None


def _open_clean(
    opening: RecoveryContext, found: _PartitionFiles, settings: LogSettings, stored: Position
) -> PartitionLog | None:
    """Trust what the last stop wrote down; None when the files are not as it left them."""
    active = found.segments[-1]
    snapshot = _read_snapshot(opening, found.directory, found.names, stored.offset)
    if snapshot is None and stored.offset == 0:
        nobody = Producers(forgotten_max=NOBODY)  # nothing was ever written
        snapshot = SnapshotPosition(0, 0, 0, -1, -1, AGE_UNKNOWN), nobody
    epochs = _read_epochs(opening, found.directory, found.names)
    place = (stored.offset, stored.segment_base, stored.position)
    if (
        (active.base_offset, active.size) != (stored.segment_base, stored.position)
        or stored.offset < removed_end(found.removed)
        or snapshot is None
        or epochs is None
    ):
        opening.notes.append(f"{found}: not as the clean stop left it; its end is checked")
        return None
    if snapshot[0].offset == active.base_offset == stored.offset:  # it was taken at the roll before
        snapshot = SnapshotPosition(*place, -1, -1, AGE_UNKNOWN), snapshot[1]
    if snapshot[0][:3] != place:
        opening.notes.append(f"{found}: the producer snapshot of the clean stop is missing; its end is checked")
        return None
    take_place(active, snapshot[0])
    active.open_tail(active.size, stored.offset)
    where = (found.topic, found.partition, found.directory, settings, opening.files)
    state = LogState(*where, found.segments, stored.offset, opening.leader_epoch, epochs)
    log = PartitionLog(state, snapshot[1])
    log.roller.trust_files(epochs.starts, stored.offset)
    return log


def take_place(segment: Segment, place: SnapshotPosition) -> None:
    """Let a segment know what its snapshot says of it."""
    segment.max_timestamp, segment.max_timestamp_offset, segment.born_age_ms = place[3:6]
    segment.tally = Tally(place.counts)


class _Recovery:
    """One partition after a stop that was not clean."""

    def __init__(
        self,
        opening: RecoveryContext,
        found: _PartitionFiles,
        settings: LogSettings,
        stored: Position | None,
        *,
        replicated: bool,
    ) -> None:
        self._opening = opening
        self._replicated = replicated
        self._files = opening.files
        self._found = found
        self._settings = settings
        self._segments = found.segments
        self._drop_empty_strays()
        active = self._segments[-1]
        # A segment is synced before the next accepts data: the start of the last one is synced in any case.
        self._synced = (active.base_offset, 0)
        self._stored_offset = active.base_offset
        went = stored is not None and stored.offset <= removed_end(found.removed)  # all that was known to be synced
        if stored is not None and (
            stored.segment_base == active.base_offset or (stored.segment_base > active.base_offset and not went)
        ):
            self._synced = (stored.segment_base, stored.position)
            self._stored_offset = stored.offset
        self._producers = Producers()
        self._epochs = LeaderEpochs()
        self._epochs_written = self._epochs.starts
        self._epoch_before = -1  # of the batch before, if the log still holds it
        self._start_offset = max(removed_end(found.removed), self._segments[0].base_offset)
        self._stored = stored
        self._snapshot_offset = 0
        self._losses: list[Loss] = []
        self._corrupt_ranges: list[tuple[Segment, CorruptRange]] = []
        self._seals = False

    def run(self) -> PartitionLog:
        """Look, decide, and leave the disk as it is shown from now on. OSError, StorageFault."""
        found, active = self._found, self._segments[-1]
        drop_leftovers(self._files.fs, found.directory, found.names)
        if not self._is_as_synced(active):
            self._files.fs.sync_directory(found.directory)  # a killed process may leave names that no disk has
            self._confirm_synced(active)
        self._clip_corrupt_ranges(active)
        end_offset, end = self._walk()
        active.size = self._leave_whole(active, end_offset, end)
        start_offset = removed_end(found.removed)
        anew = bool(found.removed) and found.removed[-1].cause == BY_LEADER and end_offset <= start_offset
        if end_offset < start_offset or (anew and active.base_offset < start_offset):
            end_offset = self._begin_behind(start_offset)
        if anew:  # it knows nothing of what it had, as replica/reset_to_leader_start.py leaves it
            self._producers, self._epochs = Producers(), LeaderEpochs()
            self._drop_snapshots(-1)
        if self._corrupt_ranges or any(segment.corrupt_ranges for segment in self._segments):
            self._producers.forgotten_max = ANYBODY  # who wrote there is not known
        wrong = not set(self._epochs_written) <= set(self._epochs.starts)
        self._epochs.cut(self._segments[0].base_offset, end_offset)
        if wrong or any(start >= end_offset for _, start in self._epochs_written):
            self._write_epochs()
        self._drop_snapshots(end_offset)
        where = (found.topic, found.partition, found.directory, self._settings, self._files)
        epoch = self._epochs.latest if self._replicated else self._opening.leader_epoch  # no election, no epoch
        state = LogState(*where, self._segments, end_offset, epoch, self._epochs)
        if self._replicated and self._settings.may_have_gaps:
            active.gaps_allowed = True
        log = PartitionLog(state, self._producers)
        snapshot_offset = self._snapshot_offset if self._snapshot_offset == end_offset else 0
        log.roller.trust_files(self._epochs_written, snapshot_offset)
        if self._seals:
            log.roller.begin_epoch()
        return log

    def _begin_behind(self, start_offset: int) -> int:
        """Begin where the account says that the log starts: its card lost what it had synced, all of it deleted.

        No offset below is used again: a later start would take it for deleted.
        """
        found = self._found
        segment = Segment(self._files, found.directory, start_offset, 0, self._settings.index_interval_bytes)
        make_segment_file(self._files, segment)
        segment.open_tail()
        remove_segments(self._files.fs, found.directory, {one.base_offset for one in self._segments})
        self._segments[:] = [segment]
        return start_offset

    def _leave_whole(self, active: Segment, end_offset: int, end: int) -> int:
        """Write down what is lost, then quarantine it or cut it off; the size of the active segment."""
        tail = active.size - end
        lost = unsynced_cut(*self._place(), end_offset, self._opening.leader_epoch, tail or None)
        if tail and not self._was_answered_to_nobody(active, end_offset, end):
            self._losses.append(lost)
        if self._losses:
            self._opening.ledger.write(self._losses)
        for segment, corrupt_range in self._corrupt_ranges:
            add_corrupt_range(segment, corrupt_range)
        if tail:
            return self._cut(active, end_offset, end)
        if self._opening.cut is not None:
            self._opening.cut.note(lost, self._settings)
        return end

    def _was_answered_to_nobody(self, active: Segment, end_offset: int, end: int) -> bool:
        """Whether a tail is no loss: the ledger's, which no act followed, or half of the last write."""
        if self._found.topic in LEDGERS:
            return True
        cut = self._opening.cut
        if cut is None or not cut.kernel_had_all(self._found.topic_id, self._found.partition):
            return False
        return half_written(active.file, end, active.size, end_offset)

    def _place(self) -> tuple[str, str, int]:
        return self._found.topic, self._found.topic_id, self._found.partition

    def _is_as_synced(self, active: Segment) -> bool:
        """True when nothing can have been written since the stored end was confirmed.

        The bytes and the size were synced before that was recorded, and a segment begins once all names before are
        synced. Other changes of a directory are synced on the spot, or done again by the next start.
        """
        stored = self._stored
        return stored is not None and (stored.segment_base, stored.position) == (active.base_offset, active.size)

    def _confirm_synced(self, active: Segment) -> None:
        """See to it that what is read from here on is what the disk has.

        A killed process leaves bytes in memory alone, so they are synced. If a sync had failed before, memory still
        shows what the disk does not have, and this sync says nothing of it: memory lets go, and the disk is read.
        """
        active.file.datasync()
        position = self._synced[1] if self._synced[0] == active.base_offset else 0
        active.file.forget_cached(position // PAGE_BYTES * PAGE_BYTES, 0)

    def _clip_corrupt_ranges(self, active: Segment) -> None:
        """Bytes that a power loss took are no corrupt range any more: what is appended in their place must be read."""
        path = f"{active.directory}/{active.name(CORRUPT_RANGES)}"
        if (
            active.corrupt_ranges
            and read_corrupt_ranges(self._files.fs, path, active.size + 1) != active.corrupt_ranges
        ):
            write_corrupt_ranges(
                active, tuple(corrupt_range for corrupt_range in active.corrupt_ranges if not corrupt_range.is_empty)
            )

    def _drop_empty_strays(self) -> None:
        """Drop empty segments that a roll without space, or a crash in it, left after the active one.

        The first one is no such thing: it was cut short, and the next reader quarantines that.
        """
        first, *others = self._segments
        strays = {segment.base_offset for segment in others[:-1] if not segment.size}
        if strays:
            remove_segments(self._files.fs, self._found.directory, strays)
        self._segments[:] = [first, *(segment for segment in others if segment.base_offset not in strays)]

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
                take_place(segment, start)
            offset = max(offset, segment.base_offset)
            offset, position = self._walk_segment(segment, offset, position)
        if active.size and active.born_age_ms == AGE_UNKNOWN:
            active.born_age_ms = self._born_at_least()
        return offset, position

    def _born_at_least(self) -> int:
        """The age at which the segment before the active one was sealed, else that of the store when it was made.

        The active one may be younger: then it is rolled early, which harms nothing.
        """
        sealed = self._segments[-2].read_summary() if len(self._segments) > 1 else None
        return sealed.written_age_ms if sealed is not None else 0

    def _start(self) -> SnapshotPosition:
        """Where to begin: the newest usable snapshot, or the start of the log when the epochs or producers are lost."""
        first = self._segments[0].base_offset
        epochs = _read_epochs(self._opening, self._found.directory, self._found.names)
        snapshot = None
        if epochs is not None:
            self._epochs = epochs
            self._epochs_written = epochs.starts
            snapshot = _read_snapshot(
                self._opening, self._found.directory, self._found.names, self._stored_offset, self._fits
            )
        if snapshot is None:
            if self._start_offset == 0 and not self._settings.may_have_gaps:
                self._producers.forgotten_max = NOBODY  # each that ever wrote is met
            return SnapshotPosition(first, first, 0, -1, -1, AGE_UNKNOWN)
        self._producers = snapshot[1]
        at = self._go_on_at(snapshot[0])
        active = self._segments[-1]
        if (at.segment_base, at.position) == (active.base_offset, active.size):
            self._snapshot_offset = at.offset  # a stop has nothing to add
        return at

    def _go_on_at(self, place: SnapshotPosition) -> SnapshotPosition:
        """A snapshot that was taken at a roll speaks of the next segment's start."""
        if any(segment.base_offset == place.offset for segment in self._segments):
            return SnapshotPosition(place.offset, place.offset, 0, -1, -1, AGE_UNKNOWN)
        return place

    def _fits(self, place: SnapshotPosition) -> bool:
        """False for a snapshot of bytes that are not there any more."""
        at = self._go_on_at(place)
        return any(one.base_offset == at.segment_base and one.size >= at.position for one in self._segments)

    def _walk_segment(self, segment: Segment, offset: int, position: int) -> tuple[int, int]:
        """Replay a segment past corruption in its synced part; return offset and position after the valid part."""
        begin, bounds = position, self._synced_part(segment)
        while True:
            offset, position, reason = self._replay_sound(segment, offset, position, bounds)
            if position >= bounds.position and (offset >= bounds.end_offset or not bounds.dense):
                break
            offset, position = self._quarantine(segment, offset, position, bounds, reason)
        if segment is self._segments[-1] and self._follower_is_missing(segment):
            offset, position = self._contain_follower(segment, offset, position, bounds)
        self._opening.walked.append(position - begin)
        if reason:
            self._opening.notes.append(f"{segment.path} at byte {position}: {reason}; offset {offset} is the end now")
        return offset, position

    def _synced_part(self, segment: Segment) -> Bounds:
        """Up to where a segment is known to have been synced, and to which offset."""
        at = self._segments.index(segment)
        if at + 1 < len(self._segments):
            return Bounds(segment.size, self._segments[at + 1].base_offset, dense=not self._may_have_gaps(segment))
        if self._follower_is_missing(segment):
            self._seals = True
            return Bounds(segment.size, self._stored_offset, dense=not self._may_have_gaps(segment))
        dense = not (self._replicated and self._settings.may_have_gaps)  # it came from a leader that compacts
        return Bounds(min(self._synced[1], segment.size), self._stored_offset, dense)

    def _follower_is_missing(self, last: Segment) -> bool:
        return self._synced[0] > last.base_offset

    def _contain_follower(self, last: Segment, offset: int, position: int, bounds: Bounds) -> tuple[int, int]:
        """Quarantine the offsets of segments after the last one; compaction may have taken the end of that one."""
        summary = last.read_summary()
        first = max(offset, summary.end_offset) if summary else offset
        if first >= bounds.end_offset:
            return max(offset, bounds.end_offset), position
        return self._quarantine(last, first, position, bounds, "the segment after it is missing")

    def _bytes_of(self, segment: Segment, corrupt_range: CorruptRange) -> int:
        """How many bytes were lost, those of a file that is cut short included."""
        base, position = self._synced
        cut_short = base == segment.base_offset and corrupt_range.end_position == segment.size < position
        return (position if cut_short else corrupt_range.end_position) - corrupt_range.position

    def _may_have_gaps(self, segment: Segment) -> bool:
        return segment.may_have_gaps(topic_compacts=self._settings.may_have_gaps)

    def _replay_sound(self, segment: Segment, offset: int, position: int, bounds: Bounds) -> tuple[int, int, str]:
        """Take the batches for granted up to the first that is not right; offset and position there, and why."""
        due = position
        dense = bounds.dense
        walk = batches_in(
            segment.file,
            position,
            segment.size,
            position,
            corrupt_ranges=segment.corrupt_ranges,
            offset=offset,
            dense=dense,
        )
        try:
            for at, header in walk:
                if at >= bounds.position and header.leader_epoch < self._epoch_before:
                    reason = f"a record batch of leader epoch {header.leader_epoch} follows epoch {self._epoch_before}"
                    return due_behind(segment, at, offset), at, reason
                self._replay(header, first=segment.next_held(offset) <= self._start_offset)
                segment.tally.find(header, self._opening.now)
                segment.note_time(header.max_timestamp, header.last_offset)
                due = segment.note(header.base_offset, header.last_offset, at, due)
                offset, position = header.next_offset, at + header.size
        except BrokenBatchError as broken:
            return due_behind(segment, broken.position, offset), broken.position, broken.reason
        return segment.next_held(offset), segment.size, ""

    def _quarantine(self, segment: Segment, offset: int, position: int, bounds: Bounds, reason: str) -> tuple[int, int]:
        """Quarantine a corrupt range of the synced part; return offset and position after it."""
        damage = damage_from(
            segment.file, position, offset, up_to_next_corrupt_range(segment, position, offset, bounds)
        )
        corrupt_range = damage.corrupt_range
        lost = f"offsets {corrupt_range.first_offset} to {corrupt_range.end_offset - 1}"
        if self._replicated:
            corrupt_range = corrupt_range._replace(owed=int(corrupt_range.first_offset < corrupt_range.end_offset))
            lost += " are to come from another replica, if one has them"
        else:
            lost += " are lost and in the ledger"
        if corrupt_range.first_offset < corrupt_range.end_offset and not corrupt_range.owed:
            self._losses.append(damage.loss(*self._place(), self._bytes_of(segment, corrupt_range)))
        self._corrupt_ranges.append((segment, corrupt_range))
        self._seals = self._seals or segment is self._segments[-1]
        self._opening.notes.append(f"{segment.path} at byte {position}: {reason or 'the file ends'}; {lost}")
        return corrupt_range.end_offset, corrupt_range.end_position

    def _replay(self, header: BatchHeader, *, first: bool) -> None:
        """Take a batch for granted; `first`: the log holds none before it, whatever its file has there."""
        self._producers.replay(header, self._opening.now.age_ms)
        self._epochs.note(header.leader_epoch, header.base_offset, first=first)
        if header.next_offset > self._start_offset:
            self._epoch_before = header.leader_epoch

    def _cut(self, segment: Segment, offset: int, position: int) -> int:
        """Truncate the invalid tail, after a copy was made of it; return the size of the segment then."""
        try:
            kept = copy_tail(segment, position, self._opening.leader_epoch, self._found.names, self._opening.notes)
        except OSError as error:
            if error.errno != EIO:
                raise
            return self._leave_unread(segment, offset, position)
        size = segment.size - position
        segment.file.truncate(position)
        segment.file.datasync()
        self._opening.notes.append(f"{segment.path} at byte {position}: {size} unsynced bytes cut off, {kept}")
        return position

    def _leave_unread(self, segment: Segment, offset: int, position: int) -> int:
        """Leave what the disk cannot read where it is, as it may be read elsewhere; the size of the segment then.

        It follows a corrupt range without offsets, and the next segment begins. If that one would have the same
        name, as nothing else is here, the file gets the name of a copy.
        """
        sentence = f"{segment.path} at byte {position}: {segment.size - position} unsynced bytes cannot be read"
        if offset > segment.base_offset:
            add_corrupt_range(segment, CorruptRange(offset, offset, position, segment.size))
            self._seals = True
            self._opening.notes.append(sentence)
            return segment.size
        name = keep_whole(segment, self._opening.leader_epoch, self._found.names)
        make_segment_file(self._files, segment)
        self._opening.notes.append(f"{sentence}, and are kept in {name}")
        return 0

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
            self._found.names.remove(name)
        if above:
            self._files.fs.sync_directory(self._found.directory)
