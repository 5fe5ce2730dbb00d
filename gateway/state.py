"""Small JSON files that survive a power loss: either the old content or the new, never a mixture.

Write a temporary file, fsync, rename, fsync the directory. Blocking: do not call it on the event loop.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

STATE_BYTES_MAX = 1 << 20


class StateError(Exception):
    """A state file cannot be read; the message names it and the remedy."""


def save(path: Path, content: dict[str, Any]) -> None:
    """Replace the file's content; it is on disk when this returns. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(path.name + ".new")
    descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o640)
    try:
        with open(descriptor, "wb", closefd=False) as file:
            file.write(json.dumps(content).encode() + b"\n")
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    aside.replace(path)
    _sync_directory(path.parent)


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def load(path: Path) -> dict[str, Any] | None:
    """Return what `save` wrote, or None if there is no file; raise StateError for any other content."""
    try:
        with path.open("rb") as file:
            content = json.loads(file.read(STATE_BYTES_MAX))
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise StateError(f"{path} is damaged ({error}): remove it, and the source starts as if it were new") from error
    if not isinstance(content, dict):
        raise StateError(f"{path} is damaged (no JSON object): remove it, and the source starts as if it were new")
    return content
