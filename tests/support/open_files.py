"""What a process keeps open although its name is gone: space that no file system gives back."""

from __future__ import annotations

import os
from pathlib import Path


def deleted_but_open(below: Path, pid: int | str = "self") -> list[str]:
    """The paths below a directory of files that a process holds open and that have no name any more."""
    found = []
    for number in os.listdir(f"/proc/{pid}/fd"):
        try:
            target = os.readlink(f"/proc/{pid}/fd/{number}")
        except FileNotFoundError:  # closed meanwhile, or the listing itself
            continue
        if target.startswith(str(below)) and target.endswith(" (deleted)"):
            found.append(target.removesuffix(" (deleted)"))
    return sorted(found)
