"""Compares a whole journal file, as the gateway's reader reads it, with the entries that it must hold."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from gateway.systemd_journal.compression import KEPT_BYTES_MAX, VALUE_BYTES_MAX, LongValue
from gateway.systemd_journal.file_format import JournalFile
from tests.support.journal_exports import Fields

CODEC_FLAGS = {"XZ": 1, "LZ4": 2, "ZSTD": 8}  # of a file's header


def differences(path: Path, entries: Iterable[Fields]) -> list[str]:
    """Return how a journal file differs from the entries, as the gateway reads it."""
    expected = [sorted(entry) for entry in entries]
    names = {name for entry in expected for name, _ in entry}
    file = JournalFile(path)
    try:
        read = [file.fields(file.entry(index), names) for index in range(file.count)]
    finally:
        file.close()
    found = [] if len(read) == len(expected) else [f"{len(read)} entries, not {len(expected)}"]
    for index, (fields, entry) in enumerate(zip(read, expected, strict=False)):
        values = sorted((name, value) for name, each in fields.items() for value in each if isinstance(value, bytes))
        long = [value for each in fields.values() for value in each if isinstance(value, LongValue)]
        if values != [pair for pair in entry if len(pair[1]) <= VALUE_BYTES_MAX]:
            found.append(f"entry {index}: other values")
        wanted = [value for _, value in entry if len(value) > VALUE_BYTES_MAX]
        if [value.beginning for value in long] != [value[:KEPT_BYTES_MAX] for value in wanted]:
            found.append(f"entry {index}: other long values")
        if any(one.size not in (None, len(other)) for one, other in zip(long, wanted, strict=False)):
            found.append(f"entry {index}: another size")
    return found
