"""Read single entries and count entries of files that are not open, for decisions between files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from gateway.systemd_journal.compression import CorruptionError, LongValue
from gateway.systemd_journal.directory import JournalFileInfo
from gateway.systemd_journal.file_format import Entry, JournalFile, UnsupportedFileError
from gateway.systemd_journal.positions import Cursor, Position

COUNTED_MAX = 1_000_000


class OpenedFile:
    """An open file, or None where it cannot be opened any more."""

    def __init__(self, info: JournalFileInfo) -> None:
        self._info = info
        self._file: JournalFile | None = None

    def __enter__(self) -> JournalFile | None:
        try:
            self._file = JournalFile(self._info.path)
        except (OSError, UnsupportedFileError):
            return None
        return self._file

    def __exit__(self, *error: object) -> None:
        if self._file is not None:
            self._file.close()


def readable(file: JournalFile, index: int) -> Entry | None:
    """Return an entry, None where it is corrupt."""
    try:
        return file.entry(index)
    except CorruptionError:
        return None


def first_entry(info: JournalFileInfo) -> Entry | None:
    """Return a file's first entry, None where it has none, or a corrupt one."""
    with OpenedFile(info) as file:
        return None if file is None else readable(file, 0)


def is_named(cursor: Cursor, file: JournalFile, index: int) -> bool:
    """Return whether the cursor's entry stands at an index."""
    entry = readable(file, index)
    return entry is not None and cursor.names(entry)


def is_local(kind: str) -> bool:
    """Return whether journald writes the file, which counts the entries of all its files together."""
    return kind == "system" or kind.startswith("user-")


def entries_of(info: JournalFileInfo, first: int, last: int) -> Iterator[Entry]:
    """Yield a file's readable entries with these sequence numbers."""
    with OpenedFile(info) as file:
        if file is None:
            return
        start = file.first_after(lambda entry: entry.seqnum >= first)
        for index in range(start, min(file.count, start + COUNTED_MAX)):
            entry = readable(file, index)
            if entry is None:
                continue
            if entry.seqnum > last:
                return
            yield entry


def is_between(begin: Position, end: Entry | None, entry: Entry) -> bool:
    """Return whether the entry was written after a position and before the entry `end`, None: now."""
    if entry.boot_id == begin.boot_id:
        is_after = entry.monotonic_us >= begin.monotonic_us
    else:
        is_after = entry.realtime_us >= (begin.realtime_us or begin.head_realtime_us)
    if end is None or not is_after:
        return is_after
    if entry.boot_id == end.boot_id:
        return entry.monotonic_us <= end.monotonic_us
    return entry.realtime_us <= end.realtime_us


def text_of(values: list[bytes | LongValue] | None) -> str:
    """Return a field's first value as text."""
    return "" if not values or isinstance(values[0], LongValue) else values[0].decode("utf-8", "replace")


def short_values(fields: Mapping[str, list[bytes | LongValue]]) -> dict[str, list[bytes]]:
    """Return the fields without values that are too long to be compared."""
    return {name: [value for value in values if isinstance(value, bytes)] for name, values in fields.items()}
