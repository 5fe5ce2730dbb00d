"""The account of everything that ever went from the front of a log: the file `removed-offsets`.

| cause | meaning |
|---|---|
| retention, retention_bytes | the topic's own policy |
| passed | for space, and every group that the topic names had it |
| deleted | by DeleteRecords, and every group that the topic names had it |
| forwarded | entries of a ledger's journal that the cluster's `__edge_ledger` has (loss/ledger_journal.py) |
| leader | it went from the leader's log while this replica was away (replica/reset_to_leader_start.py) |
| followed | the leader had removed it, and this replica followed its log start (removal.follow_start) |
| a cause of the ledger | a loss |

Contains: its lines, and where a log starts by it. Does not contain: what is removed, and when (segment_removal.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from edge_broker.errors import StorageFault
from edge_broker.storage.files.atomic_files import encode_state, read_state, replace

if TYPE_CHECKING:
    from edge_broker.storage.files.filesystem import FileSystem
    from edge_broker.storage.files.spare_blocks import Spare

KIND = "removed-offsets"
FILE = "removed-offsets"
BY_LEADER = "leader"
FOLLOWED = "followed"
FORWARDED = "forwarded"
POLICY_CAUSES = ("retention", "retention_bytes", "passed", "deleted", BY_LEADER, FOLLOWED, FORWARDED)


class RemovedRange(NamedTuple):
    """Offsets [first_offset, end_offset) that went for one cause: records + control + compacted = end - first."""

    cause: str
    first_offset: int
    end_offset: int
    records: int
    control: int
    compacted: int
    bytes: int


def read_removed(fs: FileSystem, directory: str) -> tuple[RemovedRange, ...]:
    """The account of a partition; FileNotFoundError, StorageFault when it is damaged."""
    path = f"{directory}/{FILE}"
    try:
        entries = tuple(RemovedRange(line[0], *map(int, line[1:])) for line in read_state(fs, path, KIND))
    except (ValueError, TypeError) as error:
        raise StorageFault(path, 0, f"holds a line that is none of {KIND} ({error}); restore it from a copy") from None
    return entries


def write_removed(fs: FileSystem, directory: str, entries: Iterable[RemovedRange], spare: Spare | None = None) -> None:
    """Replace the account, synced; with a spare also where no space is left. OSError."""
    data = encode_state(KIND, 1, [" ".join(map(str, entry)) for entry in entries])
    if spare is None:
        replace(fs, directory, FILE, data)
    else:
        spare.replace(directory, FILE, data)


def removed_end(entries: Sequence[RemovedRange]) -> int:
    """Where the log starts by its account."""
    return entries[-1].end_offset if entries else 0


def with_removed(entries: Sequence[RemovedRange], more: Iterable[RemovedRange]) -> tuple[RemovedRange, ...]:
    """The account with more at its end; neighbours of one cause are one line."""
    merged = list(entries)
    for entry in more:
        last = merged[-1] if merged else None
        if last is not None and last.cause == entry.cause and last.end_offset == entry.first_offset:
            sums = (have + add for have, add in zip(last[3:], entry[3:], strict=True))
            merged[-1] = RemovedRange(last.cause, last.first_offset, entry.end_offset, *sums)
        elif entry.end_offset > entry.first_offset:
            merged.append(entry)
    return tuple(merged)


def oldest_that_stays(bases: Iterable[int], start_offset: int) -> int:
    """Where the oldest segment begins that is not gone: the newest at or below `start_offset`, which holds it."""
    return max((base for base in bases if base <= start_offset), default=start_offset)
