"""SYNC: list the regular files of a directory. Source: stat(2)."""

from __future__ import annotations

from pathlib import Path

from gateway.sources.file_reading.links import LinkRule, irregular_kind
from gateway.sources.file_reading.open_file import OpenFile
from gateway.sources.file_reading.rotation import Entry


def entry_of(path: str, links: LinkRule) -> Entry | None:
    """Return the regular file of that name, or None."""
    try:
        status = links.status(Path(path))
    except OSError:
        return None
    if irregular_kind(status):
        return None
    return Entry(path, status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, links)


def refuse_irregular(path: Path, links: LinkRule) -> None:
    """Raise NotRegularError for an existing path that is no regular file."""
    try:
        OpenFile(path, links=links).close()
    except FileNotFoundError:
        return


def directory_time(directory: Path) -> int | None:
    """Return when a name in the directory last changed, None if that is unknown."""
    try:
        return directory.stat().st_mtime_ns
    except OSError:
        return None
