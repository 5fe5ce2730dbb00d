"""Files that an earlier version wrote: unpacked for a test, and what it said of them compared with what is said now.

Must never come in: names of a format, or of anything else, that come from the code under test.
"""

from __future__ import annotations

import json
import tarfile
from collections.abc import Collection
from pathlib import Path
from typing import Any

GOLDEN = Path(__file__).parents[1] / "golden"


def unpacked(archive: Path, directory: Path) -> Path:
    """Unpack an archive into a new directory, with its modes; return the directory."""
    with tarfile.open(archive) as tar:
        tar.extractall(directory, filter="tar")
    return directory


def expected(path: Path, directory: Path | None = None) -> Any:
    """Return what the earlier version said; DATA in it stands for the directory."""
    text = path.read_text(encoding="utf-8")
    return json.loads(text if directory is None else text.replace("DATA", str(directory)))


def differences(then: Any, now: Any, free: Collection[str] = (), where: str = "") -> list[str]:
    """Return how `now` differs from `then`: fields may have been added, those in `free` may have other values.

    Types count: a number is no text, and null neither, but in a field that is free.
    """
    if isinstance(then, dict) and isinstance(now, dict):
        gone = [f"{where}.{name} is gone" for name in then.keys() - now.keys()]
        shared = [name for name in then if name in now]
        return gone + [
            found
            for name in shared
            for found in (
                _types(then[name], now[name], f"{where}.{name}")
                if name in free
                else differences(then[name], now[name], free, f"{where}.{name}")
            )
        ]
    if isinstance(then, list) and isinstance(now, list) and len(then) == len(now):
        pairs = enumerate(zip(then, now, strict=True))
        return [found for at, (one, other) in pairs for found in differences(one, other, free, f"{where}[{at}]")]
    return [] if type(then) is type(now) and then == now else [f"{where}: {then!r}, now {now!r}"]


def _types(then: Any, now: Any, where: str) -> list[str]:
    same = type(then) is type(now) or then is None or now is None or {type(then), type(now)} == {int, float}
    return [] if same else [f"{where}: {type(then).__name__}, now {type(now).__name__}"]
