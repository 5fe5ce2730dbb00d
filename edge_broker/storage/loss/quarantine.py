"""Quarantine a corrupt range: record it in the ledger and make readers skip it. The rest stays available.

| step | on the disk | a crash after it leaves |
|---|---|---|
| 1 | the damaged range is found: from the last batch that is right to the next one | nothing |
| 2 | the ledger has it (`damaged`), synced | a record that the next reader makes again, with the same id |
| 3 | `<base>.holes` has it, synced | a corrupt range, known at every start |
| 4 | readers skip it | |

A replica notes it as a missing range first (missing_ranges.py), as another one may have it. No reader skips it until
that is resolved.

The bytes stay in place. Where a range begins is decided by the log alone: from a batch before it whose CRC is right
and whose offset is the one that an index entry says, or from the segment's start, the batches are walked up to the
first corrupt one. The range ends after the length that a corrupt batch claims, if a valid batch
is there, else at the next bytes that are a batch by offset, lengths and CRC.

CRCs do not cover the offset, length, magic and leader epoch of a batch. A wrong offset shows as a gap or a step back, a
wrong length or magic as a broken batch. A wrong leader epoch is not noticed: nothing else says what it was for certain.

Contains: finding the range, quarantining it, the file of corrupt ranges. Does not contain: when to look (reading,
recovery, scrub). Source: Kafka's log recovery; ext4's and ZFS's checksums.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from errno import EIO, ENOENT
from typing import TYPE_CHECKING, NamedTuple

from edge_broker.errors import ProtocolViolation, StorageFault
from edge_broker.protocol.crc import crc32c
from edge_broker.protocol.record_batch import BatchHeader, read_header
from edge_broker.storage.files.atomic_files import encode_state, fault_of, read_state, replace
from edge_broker.storage.metadata.loss_records import Loss
from edge_broker.storage.segment.batch_scan import (
    CHUNK_BYTES,
    CRC_FROM,
    HEADER_BYTES,
    PAGE_BYTES,
    Bounds,
    BrokenBatchError,
    CorruptRange,
    batches_in,
    read_sound,
)
from edge_broker.storage.segment.segment import DamageFound, Segment
from edge_broker.thread_checks import runs_in

if TYPE_CHECKING:
    from edge_broker.storage.files.filesystem import File, FileSystem
    from edge_broker.storage.log.partition_log import PartitionLog

KIND = "holes"
SUFFIX = ".holes"
ANCHORS_MAX = 64
MAGIC_AT = 16
FOLLOWERS_MAX = 3


class Damage(NamedTuple):
    """A damaged range, and what its batches still say of themselves; None where not even that can be read."""

    corrupt_range: CorruptRange
    records: int | None
    first_timestamp: int | None
    last_timestamp: int | None

    def loss(self, topic: str, topic_id: str, partition: int, bytes_lost: int | None = None) -> Loss:
        """The ledger's record of it; `bytes_lost` where the file has fewer bytes than were lost."""
        size = self.corrupt_range.end_position - self.corrupt_range.position if bytes_lost is None else bytes_lost
        return Loss(
            "damaged",
            topic,
            topic_id,
            partition,
            self.corrupt_range.first_offset,
            self.corrupt_range.end_offset,
            self.records,
            size,
            self.first_timestamp,
            self.last_timestamp,
        )


# quarantining


@runs_in("files")
def quarantine(log: PartitionLog, found: DamageFound, *, lost: bool = False) -> CorruptRange | None:
    """Quarantine what a reader found; None when nothing is wrong there (any more).

    Of a replica it is owed, and refused by a StorageFault, unless it is known to be `lost`. Readers that met the same
    damage come one after another, and only the first writes. StorageFault, Refusal: the ledger or the file of corrupt
    ranges could not be written, or the log is offline or deleted, and nothing is skipped.
    """
    if log.fault is not None:
        raise log.fault.without_frames()  # another topic may have its directory now
    segment = found.segment
    bounds = log.state.bounds(segment)
    if bounds is None:
        return None
    try:
        damage = find_damage(segment, found.position, bounds)
    except OSError as error:
        raise fault_of(error, segment.path, found.position) from error
    segment.files.forget_index(segment)  # it may lie, or end where the damage begins
    if damage is None or damage.corrupt_range.is_empty:
        return None
    if log.replicated and not lost and damage.corrupt_range.first_offset < damage.corrupt_range.end_offset:
        mark_missing(log, found, damage.corrupt_range)
    elif damage.corrupt_range.first_offset < damage.corrupt_range.end_offset:
        log.ledger.write([damage.loss(log.topic, log.topic_id, log.partition)])
    add_corrupt_range(segment, damage.corrupt_range)
    log.note_damage(found, damage.corrupt_range)
    return damage.corrupt_range


@runs_in("files")
def mark_missing(log: PartitionLog, found: DamageFound, corrupt_range: CorruptRange) -> None:
    """Remember what a replica lacks, synced; StorageFault always: readers get no further.

    If it cannot be recorded only this process knows it. A part before the log's start is no loss.
    """
    segment, owed = found.segment, corrupt_range._replace(owed=1)
    if corrupt_range.end_offset <= log.log_start_offset:
        return
    place = segment.base_offset, owed
    if place not in log.missing_ranges:
        log.missing_ranges = (*log.missing_ranges, place)
        log.note_owed(found, owed)
        mine = [one for base, one in log.missing_ranges if base == segment.base_offset]
        keep_corrupt_ranges(segment, in_order([*ledgered_ranges(segment.corrupt_ranges), *mine]))
    raise StorageFault(segment.path, found.position, f"{found.reason}; another replica may have what lay there")


def ledgered_ranges(corrupt_ranges: Iterable[CorruptRange]) -> list[CorruptRange]:
    """Those that are in the ledger."""
    return [one for one in corrupt_ranges if not one.owed]


def in_order(corrupt_ranges: Iterable[CorruptRange]) -> tuple[CorruptRange, ...]:
    """By offset, and so by position."""
    return tuple(sorted(corrupt_ranges, key=lambda one: (one.first_offset, one.position)))


@runs_in("files")
def add_corrupt_range(segment: Segment, corrupt_range: CorruptRange) -> None:
    """Record a corrupt range in a file next to its segment, synced, then let readers skip it. StorageFault."""
    write_corrupt_ranges(
        segment,
        tuple(sorted((*segment.corrupt_ranges, corrupt_range), key=lambda one: (one.first_offset, one.position))),
    )


@runs_in("files")
def write_corrupt_ranges(segment: Segment, corrupt_ranges: tuple[CorruptRange, ...]) -> None:
    """Write down all corrupt ranges of a segment, synced, then let readers go by them. StorageFault."""
    keep_corrupt_ranges(segment, corrupt_ranges)
    segment.corrupt_ranges = corrupt_ranges


@runs_in("files")
def keep_corrupt_ranges(segment: Segment, corrupt_ranges: tuple[CorruptRange, ...]) -> None:
    """Write down all corrupt ranges of a segment, synced; readers do not go by them yet. StorageFault."""
    try:
        lines = [" ".join(map(str, one if one.owed else one[:4])) for one in corrupt_ranges]
        data = encode_state(KIND, 1, lines)
        replace(segment.files.fs, segment.directory, segment.name(KIND), data)
    except OSError as error:
        raise fault_of(error, f"{segment.directory}/{segment.name(KIND)}", 0) from error


def read_corrupt_ranges(fs: FileSystem, path: str, size: int) -> tuple[CorruptRange, ...]:
    """The corrupt ranges of a segment as its file has them, in a log of `size` bytes.

    StorageFault when the file is damaged itself; OSError.
    """
    lines = read_state(fs, path, KIND)
    try:
        corrupt_ranges = [CorruptRange(*map(int, line)) for line in lines]
    except (TypeError, ValueError):
        raise StorageFault(
            path, 0, "has entries that are no corrupt ranges; remove it, and they are looked for again"
        ) from None
    return tuple(
        corrupt_range._replace(
            position=min(corrupt_range.position, size), end_position=min(corrupt_range.end_position, size)
        )
        for corrupt_range in corrupt_ranges
    )


# finding


@runs_in()
def find_damage(segment: Segment, position: int, bounds: Bounds) -> Damage | None:
    """The damaged range at or before a position; None when all up to there is right. OSError, StorageFault."""
    file = _file_of(segment)
    if file is None:
        return Damage(_whole(segment, bounds), None, None, None)
    begin, offset = _anchor(segment, file, position, bounds)
    end = begin
    try:
        walk = batches_in(
            file,
            begin,
            bounds.position,
            begin,
            corrupt_ranges=segment.corrupt_ranges,
            offset=offset,
            dense=bounds.dense,
        )
        for at, header in walk:
            if at > position:
                return None
            offset, end = header.next_offset, at + header.size
    except BrokenBatchError as broken:
        end = broken.position
        offset = due_behind(segment, end, offset)
    else:
        offset = segment.next_held(offset)
        if not bounds.dense or offset >= bounds.end_offset:
            return None
        end = bounds.position
    return damage_from(file, end, offset, up_to_next_corrupt_range(segment, end, offset, bounds))


def _file_of(segment: Segment) -> File | None:
    try:
        return segment.file
    except OSError as error:
        if error.errno in (EIO, ENOENT):
            return None
        raise


def _whole(segment: Segment, bounds: Bounds) -> CorruptRange:
    return CorruptRange(segment.base_offset, bounds.end_offset, 0, bounds.position)


def due_behind(segment: Segment, position: int, offset: int) -> int:
    """Return the offset due at a position, if `offset` was due after the last batch; corrupt ranges may be between."""
    for corrupt_range in segment.corrupt_ranges:
        if corrupt_range.end_position <= position:
            offset = max(offset, corrupt_range.end_offset)
    return offset


def up_to_next_corrupt_range(segment: Segment, position: int, offset: int, bounds: Bounds) -> Bounds:
    """The part of a segment from a position and the offset due there on, up to the next corrupt range that is known."""
    for corrupt_range in segment.corrupt_ranges:
        if corrupt_range.position >= position and corrupt_range.first_offset >= offset:
            return bounds._replace(
                position=min(corrupt_range.position, bounds.position), end_offset=corrupt_range.first_offset
            )
    return bounds


def _anchor(segment: Segment, file: File, position: int, bounds: Bounds) -> tuple[int, int]:
    """A position before another one where a batch begins for certain, and the offset due there."""
    known = max(
        (
            (corrupt_range.end_position, corrupt_range.end_offset)
            for corrupt_range in segment.corrupt_ranges
            if corrupt_range.end_position < position
        ),
        default=(0, segment.base_offset),
    )
    entries = [entry for entry in segment.boundaries() if known[0] < entry[0] < position]
    for at, last_offset in entries[: -ANCHORS_MAX - 1 : -1]:
        header = _sound_batch(file, at, bounds.position)
        if header is not None and header.last_offset == last_offset:
            return at, header.base_offset
    return known


def damage_from(file: File, position: int, offset: int, bounds: Bounds) -> Damage:
    """The damaged range that begins at a position, where `offset` was due: up to the next batch that is right.

    OSError.
    """
    found = _next_sound(file, position, offset, bounds)
    end_position, end_offset = found if found is not None else (bounds.position, bounds.end_offset)
    corrupt_range = CorruptRange(offset, end_offset, position, max(end_position, position))
    return Damage(corrupt_range, *_what_headers_say(file, corrupt_range))


def _next_sound(file: File, position: int, offset: int, bounds: Bounds) -> tuple[int, int] | None:
    """Position and offset of the next batch that is right."""
    at = position
    for at, damaged in _follow_headers(file, position, offset, bounds):
        header = _fitting(file, at, offset, bounds, damaged.next_offset)
        if header is not None:
            return at, header.base_offset
    if at == bounds.position > position:
        return None
    for at in _candidates(file, position + 1, offset, bounds):
        header = _fitting(file, at, offset, bounds)
        if header is not None:
            return at, header.base_offset
    return None


def _follow_headers(file: File, position: int, offset: int, bounds: Bounds) -> Iterator[tuple[int, BatchHeader]]:
    """Where one damaged batch after another ends by its header, as long as these follow each other as they should."""
    while position < bounds.position:
        header = _header(file, position)
        if header is None or header.base_offset < offset or (bounds.dense and header.base_offset != offset):
            return
        position, offset = position + header.size, header.next_offset
        if position > bounds.position or offset > bounds.end_offset:
            return
        yield position, header


def _candidates(file: File, position: int, offset: int, bounds: Bounds) -> Iterator[int]:
    """Positions at which the magic of a batch lies where it should, and an offset of the range."""
    end = bounds.position
    while position + HEADER_BYTES <= end:
        window = bytes(read_sound(file, min(CHUNK_BYTES, end - position), position))
        last = len(window) - HEADER_BYTES
        at = window.find(b"\x02", MAGIC_AT) - MAGIC_AT
        while 0 <= at <= last:
            if offset < int.from_bytes(window[at : at + 8], "big") < bounds.end_offset:
                yield position + at
            at = window.find(b"\x02", at + MAGIC_AT + 1) - MAGIC_AT
        if last >= 0:
            position += last + 1
        else:  # a page that cannot be read, or the end of the file
            position += PAGE_BYTES - (position + len(window)) % PAGE_BYTES + len(window)


def _fitting(file: File, position: int, offset: int, bounds: Bounds, claimed: int = -1) -> BatchHeader | None:
    """Return the header of a valid batch that belongs after `offset`, which was lost.

    No CRC covers its own offset, within which a lost page may end: the damaged batch before it, by what it `claimed`,
    or those that follow have to agree.
    """
    header = _header(file, position)
    if header is None or not offset < header.base_offset <= header.last_offset < bounds.end_offset:
        return None
    if _sound_batch(file, position, bounds.position) is None:
        return None
    if not bounds.dense or header.base_offset == claimed:
        return header
    return header if _borne_out(file, position + header.size, header.next_offset, bounds) else None


def _borne_out(file: File, position: int, offset: int, bounds: Bounds) -> bool:
    """Whether what follows agrees with an offset; True when nothing does."""
    for followers in range(FOLLOWERS_MAX):
        header = _sound_batch(file, position, bounds.position)
        if header is None:
            return followers == 0 or (position == bounds.position and offset == bounds.end_offset)
        if header.base_offset == offset:
            return True
        position, offset = position + header.size, offset + header.last_offset_delta + 1
    return False


def _header(file: File, position: int) -> BatchHeader | None:
    try:
        return read_header(read_sound(file, HEADER_BYTES, position))
    except (ProtocolViolation, struct.error):
        return None


def _sound_batch(file: File, position: int, end: int) -> BatchHeader | None:
    """The header of a batch whose bytes can be read and match its CRC."""
    header = _header(file, position)
    if header is None or position + header.size > end:
        return None
    data = read_sound(file, header.size, position)
    if len(data) < header.size or crc32c(memoryview(data)[CRC_FROM:]) != header.crc:
        return None
    return header


@runs_in("files")
def damage_in(segment: Segment, corrupt_range: CorruptRange) -> Damage:
    """A range that is known, with what its batches still say of themselves."""
    try:
        return Damage(corrupt_range, *_what_headers_say(segment.file, corrupt_range))
    except OSError:
        return Damage(corrupt_range, None, None, None)


def _what_headers_say(file: File, corrupt_range: CorruptRange) -> tuple[int | None, int | None, int | None]:
    """Records, first and last timestamp of a damaged range by its headers; None unless they lead from end to end."""
    bounds = Bounds(corrupt_range.end_position, corrupt_range.end_offset, dense=True)
    position, headers = corrupt_range.position, []
    for end, header in _follow_headers(file, corrupt_range.position, corrupt_range.first_offset, bounds):
        headers.append(header)
        position = end
    records = sum(header.records_count for header in headers)
    if (
        position != corrupt_range.end_position
        or records != corrupt_range.end_offset - corrupt_range.first_offset
        or not records
    ):
        return None, None, None
    first = min(header.base_timestamp for header in headers)
    return records, first, max(header.max_timestamp for header in headers)
