"""What the makers of golden files share: archives and JSON that are the same for the same content.

A maker runs in the environment of an older checkout. So this module imports the standard library alone.
"""

from __future__ import annotations

import io
import json
import lzma
import tarfile
from pathlib import Path
from typing import Any


def rows(value: Any, depth: int = 0) -> str:
    """JSON with a line for each thing of the third level, so that a difference shows."""
    if not value or depth == 3 or not isinstance(value, dict | list):
        return json.dumps(value, ensure_ascii=False)
    ends = "{}" if isinstance(value, dict) else "[]"
    inner = (
        [f"{json.dumps(key)}: {rows(one, depth + 1)}" for key, one in value.items()]
        if isinstance(value, dict)
        else [rows(one, depth + 1) for one in value]
    )
    return ends[0] + "\n" + ",\n".join(" " * (depth + 1) + one for one in inner) + ends[1]


def pack(directory: Path, archive: Path) -> None:
    """Pack the files of a directory, the same bytes for the same files."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for path in sorted(directory.rglob("*")):
            found = tar.gettarinfo(str(path), str(path.relative_to(directory)))
            found.uid = found.gid = found.mtime = 0
            found.uname = found.gname = ""
            with path.open("rb") if found.isfile() else io.BytesIO() as file:
                tar.addfile(found, file if found.isfile() else None)
    archive.write_bytes(lzma.compress(packed.getvalue(), preset=9 | lzma.PRESET_EXTREME))
