"""Rotates a log file as logrotate does, and sorts what a reader returns into lines and losses."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from gateway.sources.file_reading.places import FamilyState, Item, Line, UnreadRest, from_json, to_json
from tests.simulation.rotating_tools import COMPRESSORS


def rotate(log: Path, keep: int, *, create: bool = True) -> None:
    """Rename as logrotate does: app.log.1 is the newest, and `keep` are kept."""
    log.with_name(f"app.log.{keep}").unlink(missing_ok=True)
    for number in range(keep - 1, 0, -1):
        if (older := log.with_name(f"app.log.{number}")).exists():
            older.rename(log.with_name(f"app.log.{number + 1}"))
    log.rename(log.with_name("app.log.1"))
    if create:
        log.touch()


def saved(items: list[Item]) -> FamilyState:
    """Return what is saved once all of the items are acknowledged."""
    last = [item for item in items if not isinstance(item, UnreadRest)][-1]
    return from_json(to_json(last.after))


def lost_bytes(items: list[Item]) -> list[int | None]:
    return [item.bytes for item in items if isinstance(item, UnreadRest)]


def line_texts(items: list[Item]) -> list[bytes]:
    return [item.text for item in items if isinstance(item, Line)]


def compress(path: Path, ending: str = ".gz") -> None:
    """Do as gzip(1) and its kin do, which keep the time of change."""
    compressed = COMPRESSORS[ending]
    target, status = path.with_name(path.name + ending), path.stat()
    target.write_bytes(compressed(path.read_bytes()))
    os.utime(target, ns=(status.st_atime_ns, status.st_mtime_ns))
    path.unlink()


def copy_and_truncate(log: Path) -> None:
    for number in range(8, 0, -1):
        if (older := log.with_name(f"app.log.{number}")).exists():
            older.rename(log.with_name(f"app.log.{number + 1}"))
    shutil.copyfile(log, log.with_name("app.log.1"))
    os.truncate(log, 0)
