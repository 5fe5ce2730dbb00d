"""PURE. Reads the entries of `__edge_ledger` for a partition's offsets, and which of them explain a missing record.

| the offsets | causes that explain why they have no record at the target |
|---|---|
| have a record at the source | RECORD_CAUSES: the target refused it |
| have none | all but REUSED_CAUSES, whose offsets other records have taken since |

Entries without a partition or offsets are skipped. So are those of a topic that had the name before: the last part of
the id of the broker's own entries names the topic's id. Does not contain: clients.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise

from mirror.audit.digest.partition_facts import Entry
from mirror.ledger.losses import CAUSES
from mirror.partition.state_records import Partition

DELETED_CAUSE = "deleted_by_request"
RECORD_CAUSES = ("record_too_large", "record_refused")
TRUNCATED_CAUSE = "source_truncated"
REUSED_CAUSES = (TRUNCATED_CAUSE, "unsynced_cut", "sync_failed", "truncated", "unclean_election")

Found = dict[Partition, list[tuple[str, Entry]]]
TOPIC_ID_LENGTH = 22


class LedgerEntries:
    """The entries of one partition."""

    def __init__(self, entries: Iterable[Entry]) -> None:
        self._entries = sorted(entries, key=lambda entry: entry.first)
        self.bounds = [bound for entry in self._entries for bound in entry[1:]]

    def cause_of_gone(self, offset: int) -> str:
        """Return why an offset has no record; empty if no entry explains it."""
        causes = self._causes(offset)
        return next((cause for cause in causes if cause not in REUSED_CAUSES), "")

    def has_record(self, offset: int) -> bool:
        """Return whether an entry says that the target refused the record at this offset of the source."""
        return any(cause in RECORD_CAUSES for cause in self._causes(offset))

    def truncated_at(self, offset: int) -> int:
        """Return how many offsets from this one on the source lost, whose records are at the target."""
        ends = [entry.end for entry in self._entries if entry.cause == TRUNCATED_CAUSE and entry.first == offset]
        return max(ends, default=offset) - offset

    def _causes(self, offset: int) -> list[str]:
        return [entry.cause for entry in self._entries if entry.first <= offset < entry.end]


def cut(first: int, end: int, at: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Return [first, end) split at these offsets."""
    bounds = [first, *sorted({offset for offset in at if first < offset < end}), end]
    return ((low, high) for low, high in pairwise(bounds) if low < high)


def note_entry(value: bytes | None, found: Found) -> None:
    """Note one record of the ledger; skip a value that is none (`edge-broker ledger` reports it)."""
    try:
        fields = json.loads(value or b"")
        topic, partition = fields["topic"], fields["partition"]
        first, last, cause = fields["first_offset"], fields["last_offset"], fields["cause"]
        parts = str(fields["id"]).split(":")
    except (ValueError, TypeError, KeyError, RecursionError):
        return
    if not all(type(number) is int for number in (partition, first, last)):
        return
    topic_id = parts[4] if cause not in CAUSES and len(parts) > 4 and len(parts[4]) == TOPIC_ID_LENGTH else ""
    found.setdefault((topic, partition), []).append((topic_id, Entry(cause, first, last + 1)))


def entries_of(
    found: Mapping[Partition, list[tuple[str, Entry]]], partition: Partition, topic_id: str | None
) -> tuple[Entry, ...]:
    """Return the entries of a partition, sorted by their first offset, each once."""
    entries = {entry for id_, entry in found.get(partition, ()) if not (id_ and topic_id and id_ != topic_id)}
    return tuple(sorted(entries, key=lambda entry: (entry.first, entry.end, entry.cause)))
