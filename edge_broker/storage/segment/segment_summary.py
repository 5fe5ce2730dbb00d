"""Summarise a sealed segment in numbers, once, so that later no read of the segment is needed for them.

| line of `<base offset>.summary` | content |
|---|---|
| `end_offset` | exclusive |
| `records`, `control` | records of producers, control records |
| `compacted` | offsets that compaction, or damage, left without a record |
| `batches`, `bytes` | of the log file |
| `first_timestamp`, `max_timestamp` | smallest base and greatest timestamp of its batches, ms, -1 none |
| `written_age_ms` | age at which its youngest batch was written, see files/data_age.py |
| `clock`, `boot_id` | `trusted` or `untrusted`, the wall clock at the last append, and the boot it was in |

Contains: counting while a segment grows, and that file, pure. Does not contain: files, clocks.
A lost, torn or newer file is made again from the log (Segment.summary_from_log), as if all of it had been written just
then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from edge_broker.protocol.record_batch import CONTROL, BatchHeader
from edge_broker.storage.files.atomic_files import encode_state
from edge_broker.storage.files.data_age import AGE_UNKNOWN, Now, age_written

if TYPE_CHECKING:
    from collections.abc import Sequence

KIND = "summary"
VERSION = 1
_TRUSTED, _UNTRUSTED = "trusted", "untrusted"


class LastWrite(NamedTuple):
    """When a segment got its youngest batch: the age that counts, the clock's quality, and the boot of the last one."""

    age_ms: int
    trusted: bool
    boot_id: str


class Counts(NamedTuple):
    """A tally at one moment."""

    records: int
    control: int
    batches: int
    first_timestamp: int
    written: LastWrite


class Summary(NamedTuple):
    """The numbers of a segment; `records + control + compacted` offsets lie between its first and `end_offset`."""

    end_offset: int
    records: int
    control: int
    compacted: int
    batches: int
    bytes: int
    first_timestamp: int
    max_timestamp: int
    written_age_ms: int
    trusted: bool
    boot_id: str

    def is_expired(self, now: Now, retention_ms: int) -> bool:
        """True when everything in the segment is older than `retention_ms`; -1 keeps it for ever.

        Whatever its records' timestamps say, also none: they count as far as `age_written` believed them.
        """
        age_ms = self.last_write(now).age_ms
        return 0 <= retention_ms < (now.age_ms - age_ms if self.trusted else now.elapsed_ms(age_ms))

    def last_write(self, now: Now) -> LastWrite:
        """Return when the youngest batch was written; a clock that was set back since then does not count."""
        age_ms = self.written_age_ms
        if self.trusted:
            age_ms = now.age_of_write(age_ms, self.boot_id)
        return LastWrite(age_ms, self.trusted, self.boot_id)


UNWRITTEN = LastWrite(AGE_UNKNOWN, trusted=True, boot_id="-")
NO_COUNTS = Counts(0, 0, 0, -1, UNWRITTEN)


class Tally:
    """The counts of a segment while it grows."""

    __slots__ = ("batches", "boot_id", "control", "first_timestamp", "records", "trusted", "written_age_ms")

    def __init__(self, counts: Counts = NO_COUNTS) -> None:
        self.records, self.control, self.batches, self.first_timestamp, written = counts
        self.written_age_ms, self.trusted, self.boot_id = written

    def add(self, batch: BatchHeader, now: Now) -> None:
        """Count a batch that comes now; the youngest one says how old the segment is."""
        self.take(batch)
        self._note_age(age_written(now, batch.max_timestamp), now)

    def find(self, batch: BatchHeader, now: Now) -> None:
        """Count a batch that was found in the log.

        Its timestamp may come from before the clock was right, so it counts as written now: kept longer, never shorter.
        """
        self.take(batch)
        self._note_age(now.age_ms, now)

    def take(self, batch: BatchHeader) -> None:
        """Count a batch, without a word about when it was written."""
        self.batches += 1
        if batch.attributes & CONTROL:
            self.control += batch.records_count
        else:
            self.records += batch.records_count
        first = batch.first_timestamp
        if first >= 0 and not 0 <= self.first_timestamp <= first:
            self.first_timestamp = first

    def _note_age(self, age_ms: int, now: Now) -> None:
        if now.trusted and not self.trusted:  # what was not known when the earlier ones came is known now
            self.written_age_ms = now.age_ms - now.elapsed_ms(self.written_age_ms)
        self.written_age_ms = max(self.written_age_ms, age_ms)
        self.trusted = now.trusted
        self.boot_id = now.boot_id

    def counts(self) -> Counts:
        """Return the present counts."""
        written = LastWrite(self.written_age_ms, self.trusted, self.boot_id)
        return Counts(self.records, self.control, self.batches, self.first_timestamp, written)

    def summary(self, base_offset: int, end_offset: int, size: int, max_timestamp: int) -> Summary:
        """The summary of the segment that was counted; `size` in bytes."""
        compacted = end_offset - base_offset - self.records - self.control
        head = (end_offset, self.records, self.control, compacted, self.batches, size)
        written = (self.written_age_ms, self.trusted, self.boot_id)
        return Summary(*head, self.first_timestamp, max_timestamp, *written)


def encode_summary(summary: Summary) -> bytes:
    """The bytes of a .summary file."""
    *numbers, trusted, boot_id = summary
    lines = [f"{name} {number}" for name, number in zip(Summary._fields, numbers, strict=False)]
    lines += [f"clock {_TRUSTED if trusted else _UNTRUSTED}", f"boot_id {boot_id}"]
    return encode_state(KIND, VERSION, lines)


def summary_of(entries: Sequence[Sequence[str]]) -> Summary:
    """The summary in the entries of its file; ValueError or KeyError when they cannot be right."""
    values = {line[0]: line[-1] for line in entries}
    numbers = [int(values[name]) for name in Summary._fields[:-2]]
    if values["clock"] not in (_TRUSTED, _UNTRUSTED):
        raise ValueError(f"clock {values['clock']!r} is neither {_TRUSTED} nor {_UNTRUSTED}")
    return Summary._make([*numbers, values["clock"] == _TRUSTED, values["boot_id"]])
