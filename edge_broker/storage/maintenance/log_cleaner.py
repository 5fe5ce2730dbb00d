"""Compacting the sealed segments of one partition after another, in small pieces.

| pass over a log | what is read | what is written |
|---|---|---|
| map | from the first dirty offset to what may be cleaned, or until the map is full | nothing |
| rewrite, group by group from the log's start | every segment up to the map's end | groups that change, or that merge |
| checkpoint | | the first dirty offset, which is now the map's end |

Damage that is met is quarantined as by any reader; its corrupt ranges end with the segment that is rewritten. A pass
takes no space below the mark at which writes are refused. A group is neighbours that fit one segment together. A single
segment that would stay as it is is only read. Offsets, the log's start and end, epochs and producers stay as they are;
readers in progress keep the old files.

Contains: what is cleaned when, and the passes. Does not contain: what stays (compaction_rules.py), the order of the
file changes (segment_swap.py), threads, clocks. Source: Kafka's LogCleaner and LogCleanerManager; KIP-58, KIP-354.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from edge_broker.configuration.settings import LONG_MAX
from edge_broker.errors import ProtocolViolation, Refusal, StorageFault
from edge_broker.protocol.crc import crc32c
from edge_broker.protocol.record_batch import CHECKED_POSITION, HEADER_SIZE, read_header, unpack_records
from edge_broker.storage.files.atomic_files import OUT_OF_SPACE, encode_state, fault_of, read_state, replace, write_all
from edge_broker.storage.files.data_age import Now, age_written
from edge_broker.storage.log.log_reader import whole_batches
from edge_broker.storage.loss.quarantine import quarantine
from edge_broker.storage.maintenance.compaction_rules import (
    BREATH_RECORDS,
    Breathe,
    Compaction,
    OffsetMap,
    Transactions,
    empty_batch,
    entries,
    marker_of,
    no_breath,
)
from edge_broker.storage.retention.eviction_plan import marks_of
from edge_broker.storage.segment.segment import OFFSETS_MAX, DamageFound, Segment
from edge_broker.storage.segment.segment_summary import LastWrite, Summary, Tally
from edge_broker.storage.segment.segment_swap import (
    CLEANED_SUFFIX,
    Swap,
    begin_swap,
    carry_out_swap,
    end_swap,
    take_back_swap,
)
from edge_broker.thread_checks import runs_in

if TYPE_CHECKING:
    from edge_broker.protocol.record_batch import BatchHeader
    from edge_broker.storage.log.partition_log import PartitionLog
    from edge_broker.storage.log_store import LogStore

KIND = "cleaner-offsets"
FILE = "cleaner-offset-checkpoint"
READ_BYTES = 256 << 10
WRITE_BYTES = 128 << 10  # synced each time: few dirty bytes, so that the syncs that producers wait for stay short
READ_AT_ONCE = 1 << 20  # in one piece
_BYTES_PER_WORK = 1024

PartitionKey = tuple[str, int]


class PutOffError(Exception):
    """This partition cannot be cleaned now; the sentence says why. Nothing is lost, and it is retried."""


class Cleanable(NamedTuple):
    """The dirty part of a log: offsets [dirty_offset, end_offset), and how much of its bytes that is."""

    log: PartitionLog
    dirty_offset: int
    end_offset: int
    dirty_ratio: float
    overdue: bool  # by max.compaction.lag.ms

    @property
    def due(self) -> bool:
        """True when it is worth a pass."""
        return self.overdue or self.dirty_ratio > self.log.settings.min_cleanable_dirty_ratio


@runs_in()
def cleanable(log: PartitionLog, dirty_offset: int, now: Now) -> Cleanable | None:
    """Return the dirty part of a log; None: it has none. StorageFault."""
    segments = log.segments
    sealed = segments[:-1]
    if log.fault is not None or log.is_held or log.missing_ranges or not log.settings.compacts or not sealed:
        return None
    if not log.log_start_offset <= dirty_offset <= segments[-1].base_offset:
        dirty_offset = log.log_start_offset  # the checkpoint speaks of another state of this log
    end_offset = _end_offset(log, dirty_offset, now)
    ends = [segment.base_offset for segment in segments[1:]]
    clean = sum(segment.size for segment, end in zip(sealed, ends, strict=True) if end <= dirty_offset)
    dirty = sum(segment.size for segment, end in zip(sealed, ends, strict=True) if dirty_offset < end <= end_offset)
    if not dirty:
        return None
    return Cleanable(log, dirty_offset, end_offset, dirty / (clean + dirty), _overdue(log, dirty_offset, now))


def _end_offset(log: PartitionLog, dirty_offset: int, now: Now) -> int:
    """Where the first segment begins that is not to be cleaned yet."""
    lag_ms = log.settings.min_compaction_lag_ms
    segments = log.segments
    for segment, after in pairwise(segments):
        if after.base_offset > log.high_watermark:
            return segment.base_offset
        if lag_ms and after.base_offset > dirty_offset and not log.summary(segment, now).is_expired(now, lag_ms - 1):
            return segment.base_offset
    return segments[-1].base_offset


def _overdue(log: PartitionLog, dirty_offset: int, now: Now) -> bool:
    lag_ms = log.settings.max_compaction_lag_ms
    if lag_ms >= LONG_MAX:
        return False
    first = next(segment for segment, end in pairwise(log.segments) if end.base_offset > dirty_offset)
    if log.summary(first, now).is_expired(now, lag_ms):
        return True
    try:
        batches = whole_batches(log.reader.read(dirty_offset, HEADER_SIZE, blocking=True) or b"")
    except DamageFound as found:
        quarantine(log, found)
        return True  # the next pass begins after it
    return bool(batches) and now.age_ms - age_written(now, read_header(batches[0]).first_timestamp) > lag_ms


def groups_of(segments: Sequence[Segment], end_offset: int, segment_bytes: int) -> list[list[Segment]]:
    """Sealed segments that begin below `end_offset`, neighbours together as long as they fit one segment."""
    groups: list[list[Segment]] = []
    size = 0
    for segment, following in pairwise(segments):
        if segment.base_offset >= end_offset:
            break
        size += segment.size
        fits = groups and size <= segment_bytes and following.base_offset - groups[-1][0].base_offset <= OFFSETS_MAX
        if fits:
            groups[-1].append(segment)
        else:
            groups.append([segment])
            size = segment.size
    return groups


class CleaningResult(NamedTuple):
    """A pass that is over: bytes read and written, records removed."""

    topic: str
    partition: int
    read_bytes: int
    written_bytes: int
    removed: int


class Cleaning:
    """One pass over one log, done in slices by `step`."""

    def __init__(
        self, what: Cleanable, now: Now, buffer_bytes: int, free_min_bytes: int = -1, breathe: Breathe = no_breath
    ) -> None:
        self.log = what.log
        self.clean_offset = what.dirty_offset  # once it is over: the first dirty offset
        self.map_was_full = False
        self.bytes_read = self.bytes_written = self.removed = 0
        self.not_unpacked: Refusal | None = None
        self._what = what
        self._now = now
        self._breathe = breathe
        self._free_min_bytes = free_min_bytes
        self._offsets = OffsetMap(buffer_bytes)
        self._transactions = Transactions()
        self._syncs = 0
        self._quarantined: set[tuple[str, int]] = set()  # damage that was met
        self._work = self._run()

    @runs_in()
    def step(self, work_max: int) -> bool:
        """Go on for about `work_max` records or KiB, or READ_AT_ONCE bytes, or one sync; False when the pass is over.

        Others wait for the disk that long, however little a piece computes. PutOffError;
        StorageFault when the partition is offline now.
        """
        read_max, syncs = self.bytes_read + READ_AT_ONCE, self._syncs
        try:
            for work in self._work:
                work_max -= work
                if work_max <= 0 or self.bytes_read >= read_max or self._syncs != syncs:
                    return True
        except Refusal as refusal:  # the front of the log was removed meanwhile
            raise PutOffError(str(refusal)) from refusal
        except ProtocolViolation as violation:
            raise PutOffError(f"{self.log.directory} holds what is no record batch: {violation}") from violation
        return False

    def _run(self) -> Iterator[int]:
        yield from self._map()
        if self._offsets.end_offset <= self._what.dirty_offset:
            return
        log = self.log
        known = log.writer.producers.by_id()
        now_ms = self._now.wall_ms if self._now.trusted else None
        last_offsets = {producer_id: producer.batches[-1].last_offset for producer_id, producer in known.items()}
        delete_retention_ms = log.settings.delete_retention_ms
        rules = Compaction(self._offsets, self._transactions, last_offsets, now_ms, delete_retention_ms, self._breathe)
        groups = groups_of(log.segments, self._offsets.end_offset, log.settings.segment_bytes)[::-1]
        while groups:
            yield from self._rewrite(groups.pop(), rules)  # held here no longer: what was replaced may be closed
        self.removed = rules.removed
        self.not_unpacked = rules.not_unpacked
        self.clean_offset = self._offsets.end_offset

    def _batches(self, offset: int, end_offset: int) -> Iterator[tuple[memoryview, BatchHeader]]:
        """The batches from the one that holds `offset` on; damage among them is quarantined and skipped."""
        while offset < end_offset:
            batches = self._read(offset)
            if not batches:
                return
            for batch in batches:
                header = read_header(batch)
                if header.base_offset >= end_offset:
                    return
                if crc32c(batch[CHECKED_POSITION:]) != header.crc:
                    self._quarantine(self._damage_at(header.base_offset))
                    break
                self.bytes_read += header.size
                yield batch, header
                offset = header.next_offset

    def _read(self, offset: int) -> list[memoryview]:
        while True:
            try:
                return whole_batches(self.log.reader.read(offset, READ_BYTES, blocking=True) or b"")
            except DamageFound as found:
                self._quarantine(found)

    def _damage_at(self, offset: int) -> DamageFound:
        segments = self.log.segments
        segment = segments[bisect_right(segments, offset, key=lambda one: one.base_offset) - 1]
        position = segment.locate(offset, segment.size, blocking=True)
        return DamageFound(segment, position, "the CRC of a record batch does not match its bytes")

    def _quarantine(self, found: DamageFound) -> None:
        """End the pass, as a range cannot be quarantined, or not for good."""
        place = (found.segment.path, found.position)
        if place in self._quarantined:
            raise PutOffError(f"{found}, but not each time it is read; check the card")
        self._quarantined.add(place)
        quarantine(self.log, found)

    # the map

    def _map(self) -> Iterator[int]:
        offset, end_offset, offsets = self._what.dirty_offset, self._what.end_offset, self._offsets
        scanned = False
        for batch, header in self._batches(offset, end_offset):
            yield _work_of(header)
            if header.is_transactional or header.is_control:
                if not scanned:
                    yield from self._scan(header.base_offset)
                    scanned = True
                    undecided = self._transactions.undecided_offset
                    end_offset = end_offset if undecided is None else min(end_offset, undecided)
                if header.base_offset >= end_offset:
                    break
                if header.is_control or self._transactions.is_aborted(header):
                    continue
            full_at = self._put(batch, header)
            if full_at is not None:
                self.map_was_full = True
                offsets.end_offset = full_at
                return
        offsets.end_offset = end_offset

    def _put(self, batch: memoryview, header: BatchHeader) -> int | None:
        """Note a batch's keys; the offset for which there is no room any more."""
        try:
            payload = unpack_records(header.codec, batch[HEADER_SIZE : header.size])
            found = entries(payload, header.records_count, self._breathe)
        except Refusal:
            return None  # kept whole when it is rewritten
        put, base_offset, dirty_offset = self._offsets.put, header.base_offset, self._what.dirty_offset
        for number, entry in enumerate(found):
            if number & BREATH_RECORDS == BREATH_RECORDS:
                self._breathe()
            offset = base_offset + entry[3]
            if entry[4] is not None and offset >= dirty_offset and not put(entry[4], offset):
                return offset
        return None

    def _scan(self, offset: int) -> Iterator[int]:
        """Learn how the transactions ended that begin below the end of the cleaned part, with markers anywhere."""
        transactions, end_offset = self._transactions, self._what.end_offset
        for batch, header in self._batches(offset, self.log.high_watermark):
            yield 1
            undecided = transactions.undecided_offset
            if header.base_offset >= end_offset and (undecided is None or undecided >= end_offset):
                return
            transactions.note(header, marker_of(batch, header) if header.is_control else None)

    # rewriting

    def _rewrite(self, group: list[Segment], rules: Compaction) -> Iterator[int]:
        begin, end_offset = max(group[0].base_offset, self.log.log_start_offset), self._end_of(group)
        summaries = [self.log.summary(segment, self._now) for segment in group]
        output: _Output | None = None
        last: BatchHeader | None = None
        try:
            if len(group) > 1:
                output = self._output(group)
            for batch, header in self._batches(begin, end_offset):
                last = header
                kept = rules.keep(batch, header)
                if kept is not batch and output is None:
                    output = self._output(group)
                    yield from self._copy(output, begin, header.base_offset)
                if kept is not None and output is not None:
                    output.add(kept)
                yield _work_of(header)
            if output is None:
                return
            if not output.size:
                if last is None:
                    raise PutOffError(f"{group[0].path} holds no batch that can be read")
                output.add(empty_batch(last))  # no segment is ever empty: the next one begins where this one ends
            output.finish()
        except (OSError, PutOffError, Refusal, StorageFault, ProtocolViolation) as reason:
            raise self._given_up(output, reason) from reason
        self.bytes_written += output.size
        yield output.size // _BYTES_PER_WORK
        swap = Swap(group[0].base_offset, end_offset, output.size)
        self._swap(group, swap, output, youngest(summaries, self._now))

    def _end_of(self, group: list[Segment]) -> int:
        segments = self.log.segments
        if group[-1] not in segments[:-1]:
            raise PutOffError(f"{group[-1].path} was removed meanwhile")
        return segments[segments.index(group[-1]) + 1].base_offset

    def _output(self, group: list[Segment]) -> _Output:
        fs, need = self.log.files.fs, sum(segment.size for segment in group)
        space = fs.space(self.log.directory)
        left = marks_of(space.total, min_bytes=self._free_min_bytes).min
        if space.free < need + left:
            where = f"{self.log.directory} needs {need} bytes to be compacted"
            raise PutOffError(f"{where}, {space.free} are free and {left} must stay so")
        return _Output(self.log, group[0].base_offset, need, self._count_sync)

    def _count_sync(self) -> None:
        self._syncs += 1

    def _copy(self, output: _Output, offset: int, end_offset: int) -> Iterator[int]:
        """Return the unchanged part, up to the first batch that changed."""
        for batch, header in self._batches(offset, end_offset):
            output.add(batch)
            yield header.size // _BYTES_PER_WORK

    def _given_up(self, output: _Output | None, reason: Exception) -> Exception:
        """The old segments are as they were; only a card that fails even at this takes the partition offline."""
        try:
            if output is not None:
                output.discard()
        except OSError as second:
            return self._fail_log(second)
        return reason if isinstance(reason, PutOffError) else PutOffError(f"{self.log.directory}: {reason}")

    def _fail_log(self, error: OSError) -> StorageFault:
        fault = fault_of(error, self.log.directory, 0)
        self.log.fail(fault)
        return fault

    @runs_in()
    def _swap(self, group: list[Segment], swap: Swap, output: _Output, written: LastWrite) -> None:
        """Put the new segment in the group's place, on the disk and for readers."""
        log, fs = self.log, self.log.files.fs
        if log.fault is not None or log.is_held or not set(group) <= set(log.segments):
            output.discard()
            raise PutOffError(f"{group[0].path} {'is truncated just now' if log.is_held else 'was removed meanwhile'}")
        try:
            begin_swap(fs, log.directory, swap)
        except OSError as error:
            if error.errno not in OUT_OF_SPACE:
                raise self._fail_log(error) from error
            try:
                take_back_swap(fs, log.directory)
            except OSError as second:
                raise self._fail_log(second) from error
            raise self._given_up(output, error) from error
        try:
            for segment in group:
                segment.detach()
            carry_out_swap(fs, log.directory, swap)
            cleaned = output.seal(swap.end_offset, written)
            end_swap(fs, log.directory)
        except OSError as error:
            raise self._fail_log(error) from error
        except StorageFault as fault:
            log.fail(fault)
            raise
        log.state.replace_segments(group, cleaned)


def _work_of(header: BatchHeader) -> int:
    return 1 + header.records_count + header.size // _BYTES_PER_WORK


class _Output:
    """The file `<base>.cleaned` while it grows, and what its indexes will say.

    Its blocks are reserved first: then no space can be lacking midway, and ext4, which writes the data of files that
    have just grown before it commits its journal, does not make producers' syncs wait for this one's.
    """

    def __init__(self, log: PartitionLog, base_offset: int, size_max: int, synced: Callable[[], None]) -> None:
        self._synced = synced  # called after each sync
        self._fs = log.files.fs
        self._segment = Segment(log.files, log.directory, base_offset, 0, log.settings.index_interval_bytes)
        self._segment.open_tail()
        self._path = f"{log.directory}/{base_offset:020d}{CLEANED_SUFFIX}"
        self._file = self._fs.create(self._path)
        try:
            self._reserved = self._file.reserve(0, size_max)
        except OSError:
            self.discard()
            raise
        self._buffer = bytearray()
        self._written = 0
        self._index_due = 0
        self._tally = Tally()

    @property
    def size(self) -> int:
        """Bytes taken in so far."""
        return self._segment.size

    def add(self, batch: bytes | memoryview) -> None:
        """Take in a batch. OSError."""
        header, segment = read_header(batch), self._segment
        self._tally.take(header)
        segment.note_time(header.max_timestamp, header.last_offset)
        self._index_due = segment.note(header.base_offset, header.last_offset, segment.size, self._index_due)
        segment.size += len(batch)
        self._buffer += batch
        if len(self._buffer) >= WRITE_BYTES:
            self._write()

    def _write(self) -> None:
        view = memoryview(self._buffer)
        for at in range(0, len(view), WRITE_BYTES):
            piece = view[at : at + WRITE_BYTES]
            write_all(self._file, piece, self._written)
            self._file.datasync()
            self._synced()
            self._written += len(piece)
        self._buffer = bytearray()

    def finish(self) -> None:
        """Sync bytes and name. OSError."""
        self._write()
        if self._reserved:
            self._file.truncate(self._segment.size)  # gives back what was not needed
        self._file.datasync()
        self._fs.sync_directory(self._segment.directory)
        self._synced()

    def discard(self) -> None:
        """Remove the file. OSError."""
        if self._fs.exists(self._path):
            self._fs.remove(self._path)

    def seal(self, end_offset: int, written: LastWrite) -> Segment:
        """The segment once it has its name, with its other files as far as there is space. OSError."""
        made = self._segment
        tally = Tally(self._tally.counts()._replace(written=written))
        summary = tally.summary(made.base_offset, end_offset, made.size, made.max_timestamp)
        segment = Segment(made.files, made.directory, made.base_offset, made.size, made.index_interval_bytes)
        segment.max_timestamp, segment.max_timestamp_offset = made.max_timestamp, made.max_timestamp_offset
        segment.stored_summary = summary
        segment.gaps_allowed = summary.compacted > 0
        try:
            segment.write_summary(summary)
            made.seal()
        except OSError as error:
            if error.errno not in OUT_OF_SPACE:
                raise
        return segment


def youngest(summaries: Sequence[Summary], now: Now) -> LastWrite:
    """Return when the youngest of some segments was written, as far as is known now."""
    return max(summary.last_write(now) for summary in summaries)


class LogCleaner:
    """Chooses the log with the most to clean, cleans it slice by slice, then the next; all of it in one worker."""

    def __init__(self, store: LogStore, buffer_bytes: int, free_min_bytes: int = -1) -> None:
        self.breathe: Breathe = no_breath  # called amid large batches, for others to run
        self.passes = self.removed = 0  # of passes that are over
        self.bytes_read = self.bytes_written = 0
        self.finished: list[CleaningResult] = []  # for the log
        self.notes: list[str] = []  # sentences to log
        self.failed: list[PartitionLog] = []  # logs that are offline since a step
        self._store = store
        self._buffer_bytes = buffer_bytes
        self._free_min_bytes = free_min_bytes
        self._under_way: Cleaning | None = None
        self._checkpoint: dict[PartitionKey, int] | None = None
        self._put_off: set[PartitionLog] = set()
        self._noted: dict[PartitionLog, str] = {}

    @runs_in()
    def step(self, now: Now, work_max: int) -> bool:
        """Clean for about `work_max` records or KiB; False when there is nothing to clean now."""
        if self._under_way is None:
            chosen = self._choose(now)
            if chosen is None:
                self._put_off.clear()
                self._noted = {log: text for log, text in self._noted.items() if log.fault is None}
                return False
            self._under_way = Cleaning(chosen, now, self._buffer_bytes, self._free_min_bytes, self.breathe)
        cleaning = self._under_way
        if cleaning.log.fault is not None:  # offline, or deleted: then another topic may have its directory now
            self._under_way = None
            return True
        before = cleaning.bytes_read, cleaning.bytes_written
        try:
            if not cleaning.step(work_max):
                self._finish(cleaning)
        except (PutOffError, StorageFault) as reason:
            self._under_way = None
            self._put_off.add(cleaning.log)
            self._note(cleaning.log, f"not compacted for now: {reason}")
            if cleaning.log.fault is not None:
                self.failed.append(cleaning.log)
        self.notes += cleaning.log.take_damage_notes()
        self.bytes_read += cleaning.bytes_read - before[0]
        self.bytes_written += cleaning.bytes_written - before[1]
        return True

    @runs_in()
    def give_up(self) -> None:
        """Leave the log that is being cleaned for later."""
        if self._under_way is not None:
            self._put_off.add(self._under_way.log)
        self._under_way = None

    def _choose(self, now: Now) -> Cleanable | None:
        best: Cleanable | None = None
        for topic in list(self._store.topics.values()):
            for log in topic.partitions if topic.settings.compacts else ():
                found = self._find_cleanable(log, topic.topic_id.hex, now)
                if found is not None and found.due and (best is None or found.dirty_ratio > best.dirty_ratio):
                    best = found
        return best

    def _find_cleanable(self, log: PartitionLog, topic_id: str, now: Now) -> Cleanable | None:
        if log in self._put_off:
            return None
        try:
            return cleanable(log, self._read_checkpoint().get((topic_id, log.partition), 0), now)
        except (StorageFault, Refusal, DamageFound, OSError) as reason:
            self._put_off.add(log)
            self._note(log, f"cannot be looked at: {reason}")
            return None

    def _finish(self, cleaning: Cleaning) -> None:
        self._under_way = None
        self.passes += 1
        self.removed += cleaning.removed
        log = cleaning.log
        self.finished.append(
            CleaningResult(log.topic, log.partition, cleaning.bytes_read, cleaning.bytes_written, cleaning.removed)
        )
        if cleaning.not_unpacked is not None:
            self._note(log, f"batches that cannot be unpacked are kept whole: {cleaning.not_unpacked}")
        if not cleaning.map_was_full:
            self._put_off.add(log)  # until every other one had its turn
        self._write_checkpoint(log, cleaning.clean_offset)

    def _note(self, log: PartitionLog, text: str) -> None:
        if self._noted.get(log) != text:
            self._noted[log] = text
            self.notes.append(f"{log.topic}-{log.partition}: {text}")

    def _read_checkpoint(self) -> dict[PartitionKey, int]:
        if self._checkpoint is None:
            self._checkpoint = {}
            try:
                lines = read_state(self._store.fs, f"{self._store.data_dir}/{FILE}", KIND)
                self._checkpoint = {(line[0], int(line[1])): int(line[2]) for line in lines}
            except FileNotFoundError:
                pass
            except (StorageFault, ValueError, IndexError) as reason:
                self.notes.append(f"{reason}; compacted topics are gone through from their starts")
        return self._checkpoint

    def _write_checkpoint(self, log: PartitionLog, clean_offset: int) -> None:
        """Write down how far the log is clean; a failure costs another pass over it."""
        topics = self._store.topics
        ids = {topic.topic_id.hex for topic in list(topics.values())}
        checkpoint = {key: offset for key, offset in self._read_checkpoint().items() if key[0] in ids}
        topic = topics.get(log.topic)
        if topic is None or log not in topic.partitions:
            return
        checkpoint[(topic.topic_id.hex, log.partition)] = clean_offset
        self._checkpoint = checkpoint
        lines = [f"{topic_id} {partition} {offset}" for (topic_id, partition), offset in checkpoint.items()]
        try:
            replace(self._store.fs, self._store.data_dir, FILE, encode_state(KIND, 1, lines))
        except OSError as error:
            self.notes.append(f"{FILE} cannot be written: {error}")
