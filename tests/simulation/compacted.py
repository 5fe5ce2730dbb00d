"""What compaction may leave out of a log, and what it must keep, record by record.

| a record that was written | may be missing |
|---|---|
| its key was written again later, and not in a transaction that was aborted | yes |
| its transaction was aborted | yes |
| the newest of its key, with a value | no |
| the newest of its key, a tombstone | after delete.retention.ms, together with everything older of the key |
| a control record | yes: what it decided is decided |

Whatever is there has the offset, key, value and timestamp that were written. Lives here: this check. Must never come
in: how it is done. Source: Kafka documentation, "Log Compaction"; KIP-534.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from edge_broker.protocol.record_batch import read_header, records_of

ABORT = b"\0\0\0\0"


class Written(NamedTuple):
    """One record; `at_ms` is when its batch was appended."""

    key: bytes | None
    value: bytes | None
    timestamp: int
    control: bool
    at_ms: int


def records(batches: Iterable[tuple[bytes, int]]) -> tuple[dict[int, Written], set[int]]:
    """Every record by its offset, and the offsets of those whose transaction was aborted."""
    found: dict[int, Written] = {}
    aborted: set[int] = set()
    undecided: dict[int, set[int]] = {}
    for data, at_ms in batches:
        header = read_header(data)
        for record in records_of(memoryview(data)):
            key = None if record.key is None else bytes(record.key)
            value = None if record.value is None else bytes(record.value)
            found[record.offset] = Written(key, value, record.timestamp, header.is_control, at_ms)
            if header.is_control:
                ended = undecided.pop(header.producer_id, set())
                aborted |= ended if key == ABORT else set()
            elif header.is_transactional:
                undecided.setdefault(header.producer_id, set()).add(record.offset)
    return found, aborted


def check(written: Sequence[tuple[bytes, int]], found: Sequence[bytes], retention_ms: int, now_ms: int) -> None:
    """Compare what is found with what was written from the log's start to its end; AssertionError."""
    there, _ = records((data, 0) for data in found)
    all_, aborted = records(written)
    assert list(there) == sorted(there), "offsets are out of order"
    assert set(there) <= set(all_), f"records were invented at {sorted(set(there) - set(all_))}"
    for offset, record in there.items():
        assert record[:4] == all_[offset][:4], f"offset {offset} is {record}, written was {all_[offset]}"
    newest: dict[bytes | None, int] = {}
    for offset, record in all_.items():
        if not record.control and offset not in aborted:
            newest[record.key] = offset
    for key, offset in newest.items():
        if offset in there:
            continue
        record = all_[offset]
        assert record.value is None, f"the newest record of {key!r}, at offset {offset}, is missing"
        assert now_ms - record.at_ms >= retention_ms, f"the tombstone at offset {offset} went too early"
        older = [other for other, kept in there.items() if kept.key == key and other < offset and other not in aborted]
        assert not older, f"{key!r} is back at {older}, its tombstone at offset {offset} is gone"
