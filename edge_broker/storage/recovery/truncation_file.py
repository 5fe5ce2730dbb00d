"""Cutting a log's end off, so that a crash leaves it whole or cut: the file `truncation` of a partition.

| step | a crash after it |
|---|---|
| what goes is synced in the ledger (replica/replica_truncation.py) | the log is whole; the ledger may name too much |
| what stays is synced | the same |
| `truncation` is written and synced: the log ends there | the next start goes on from here |
| later segments, snapshots and indexes go, durably; corrupt ranges and the segment's file are cut, synced | the same |
| the log is opened as after an unclean stop, which cuts its epochs and producers | the same |
| the store's positions say its new end, synced | the same |
| `truncation` is removed, durably: now the log may grow | done |

While the file is there nothing is appended, as the next start would take it away. The positions come before its end, as
a log that is shorter than they say would count as damaged.

Contains: the file, and what is done by it. Does not contain: what is truncated, and why (replica_truncation.py).
Source: Kafka's UnifiedLog.truncateTo; KIP-101.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from edge_broker.errors import StorageFault
from edge_broker.storage.files.atomic_files import encode_state, read_state
from edge_broker.storage.loss.quarantine import KIND as CORRUPT_RANGES
from edge_broker.storage.loss.quarantine import read_corrupt_ranges, write_corrupt_ranges
from edge_broker.storage.segment.segment import Segment

if TYPE_CHECKING:
    from edge_broker.storage.files.filesystem import FileSystem
    from edge_broker.storage.segment.batch_scan import CorruptRange
    from edge_broker.storage.segment.open_file_cache import OpenFiles

KIND = "truncation"
FILE = "truncation"
_OF_BYTES = ("index", "timeindex", "summary")  # of the segment that is cut: they speak of more than there is


class Truncation(NamedTuple):
    """A log ends at an offset: in the segment of that base, at that byte; everything after it goes."""

    end_offset: int
    segment_base: int
    position: int


def encode_truncation(truncation: Truncation) -> bytes:
    """The bytes of the file."""
    return encode_state(KIND, 1, [" ".join(map(str, truncation))])


def read_truncation(fs: FileSystem, directory: str) -> Truncation:
    """Return the decided truncation; FileNotFoundError, StorageFault if it is unreadable: do not guess."""
    path = f"{directory}/{FILE}"
    try:
        ((end_offset, segment_base, position),) = read_state(fs, path, KIND)
        return Truncation(int(end_offset), int(segment_base), int(position))
    except ValueError as error:
        raise StorageFault(path, 0, f"is no {KIND} file ({error}); restore it from a copy") from None


def carry_out(files: OpenFiles, directory: str, truncation: Truncation) -> list[str]:
    """Remove everything after the end that still exists, durably; return the remaining names.

    OSError, StorageFault.
    """
    fs = files.fs
    fs.sync_directory(directory)  # a killed process may leave a decision that no disk has
    names = fs.names(directory)
    for name in sorted(_names_after(names, truncation)):
        fs.remove(f"{directory}/{name}")
    segment = Segment(files, directory, truncation.segment_base, truncation.position)
    if fs.exists(segment.path):
        _cut_ranges(fs, segment, names, truncation.end_offset)
        file = fs.open(segment.path)
        if file.size() > truncation.position:  # a shorter one is damaged: the open that follows handles it
            file.truncate(truncation.position)
            file.datasync()
    elif truncation.position == 0:
        fs.create(segment.path)
    fs.sync_directory(directory)
    return fs.names(directory)


def _names_after(names: Sequence[str], truncation: Truncation) -> Iterable[str]:
    for name in names:
        base, _, suffix = name.partition(".")
        if not base.isdigit() or suffix.startswith("cut-"):
            continue
        offset = int(base)
        if suffix == "snapshot":
            goes = offset > truncation.end_offset
        else:
            goes = offset > truncation.segment_base or (offset == truncation.segment_base and suffix in _OF_BYTES)
        if goes:
            yield name


def _cut_ranges(fs: FileSystem, segment: Segment, names: Sequence[str], end_offset: int) -> None:
    name = segment.name(CORRUPT_RANGES)
    if name not in names:
        return
    try:
        ranges = read_corrupt_ranges(fs, f"{segment.directory}/{name}", fs.size(segment.path))
    except StorageFault:  # the open that follows looks for its ranges again
        fs.remove(f"{segment.directory}/{name}")
        return
    left = ranges_before(ranges, end_offset)
    if left != ranges:
        write_corrupt_ranges(segment, left)


def ranges_before(ranges: Iterable[CorruptRange], end_offset: int) -> tuple[CorruptRange, ...]:
    """Return the rest of corrupt ranges if a log ends at an offset; one around it keeps its bytes."""
    kept = [one for one in ranges if one.first_offset < end_offset]
    return tuple(one._replace(end_offset=min(one.end_offset, end_offset)) for one in kept)


def forget_truncation(fs: FileSystem, directory: str) -> None:
    """It is done, and the store's positions say so: from now on the log may grow. OSError."""
    fs.remove(f"{directory}/{FILE}")
    fs.sync_directory(directory)
