"""Entries in the Journal Export Format: writes them for systemd-journal-remote, and reads those of journalctl.

Source: systemd's JOURNAL_EXPORT_FORMATS. Does not contain: journal files.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Iterable, Iterator

MACHINE_ID, BOOT_ID = f"{1:032x}", f"{101:032x}"
Fields = list[tuple[str, bytes]]


def exported(entries: Iterable[Fields]) -> bytes:
    """Return the entries, a second apart, of one machine and one boot."""
    found = b""
    for number, fields in enumerate(entries):
        found += b"__REALTIME_TIMESTAMP=%d\n" % (1_764_000_000_000_000 + number * 1_000_000)
        found += b"__MONOTONIC_TIMESTAMP=%d\n" % ((number + 1) * 1_000_000)
        found += f"_BOOT_ID={BOOT_ID}\n_MACHINE_ID={MACHINE_ID}\n".encode()
        found += b"".join(_field(name.encode(), value) for name, value in fields) + b"\n"
    return found


def _field(name: bytes, value: bytes) -> bytes:
    if min(value, default=32) >= 32:
        return name + b"=" + value + b"\n"
    return name + b"\n" + struct.pack("<Q", len(value)) + value + b"\n"


def parsed(export: bytes) -> Iterator[Fields]:
    """Yield the fields of each entry in their order, without the addresses and the boot."""
    entry: Fields = []
    at = 0
    while at < len(export):
        end = export.index(b"\n", at)
        name, is_text, value = export[at:end].partition(b"=")
        if not name:
            yield entry
            entry = []
        elif not is_text:
            (size,) = struct.unpack_from("<Q", export, end + 1)
            value = export[end + 9 : end + 9 + size]
            end += 9 + size
        at = end + 1
        if name and not name.startswith(b"__") and name != b"_BOOT_ID":
            entry.append((name.decode(), value))
    if entry:
        yield entry


def long_values() -> list[bytes]:
    """Return values of every size at which journald, a codec or the reader behaves otherwise; always the same."""
    chance = random.Random(39)
    noise = chance.randbytes(3_000)
    text = b"".join(b"GET /sensors/%d temperature=%d ok; " % (each, each * 7 % 40) for each in range(3_000))
    found = [text[:size] for size in (5, 80, 495, 504, 511, 512, 513, 600, 5_000, 65_535, 65_537)]
    found += [noise[:600], noise, noise * 30, bytes(70_000), text[:1_000] + b"\n\xff\xfe" + text[1_000:2_000]]
    return found + [(text[:100] * 30_000)[:size] for size in (2 << 20, (2 << 20) + 1, 3_000_000)]


def long_entries() -> list[Fields]:
    """Return one entry for each long value, which is in two fields; the name of one has the most bytes."""
    return [
        [("SYSLOG_IDENTIFIER", b"trial"), ("MESSAGE", value), ("A" * 64, value[:9_000][::-1])]
        for value in long_values()
    ]
