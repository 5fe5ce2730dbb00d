"""All files that match a pattern such as `/var/log/myapp/*.log`, each followed by a `FileSource` of its own.

| a path | is |
|---|---|
| matches, and is a regular file | followed, also when it appears later |
| matches, and ends like a rotated file (`.1`, `-20261124`, `.old`, `.gz`) | left to the file it was rotated from |
| matches, and ends like `-1.log` | the same if there is one without `-1`, else followed |
| was followed by an earlier run, and matches | followed, so that what was unread is read or accounted for |
| is gone for GONE_S, and all read | followed no more; its position is forgotten |
| is gone for GONE_S, and was not found again | a ledger record of unknown size, then the same |

At most FILES_MAX are followed; how many are left is said. Source: glob(7); logrotate(8).
"""

from __future__ import annotations

import asyncio
import glob
import re
import time
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path, PurePath

from drupelet.log_tree import Log
from gateway import state
from gateway.config import FileConfig
from gateway.metrics import Metrics
from gateway.publisher import Publisher
from gateway.sources.files import FileSource, state_path

FILES_MAX = 100
CANDIDATES_MAX = 10_000
SCAN_S = 5.0
GONE_S = 60.0
_ROTATED = re.compile(r"[.-](\d[\d.T:_-]*|old|bak)(\.log)?$|\.(gz|bz2|xz|zst|lz4|Z|tmp|swp)$|~$")
_NUMBERED = re.compile(r"-\d{1,3}(?=\.log$)")
_log = Log("gateway.files")


@dataclass(slots=True, eq=False)
class _Followed:
    source: FileSource
    task: asyncio.Task[None]
    gone_s: float | None = None


def matching(pattern: Path) -> list[Path]:
    """Return the files to follow, sorted; rotated ones are left out. Blocking; raises OSError."""
    found = (Path(name) for name in islice(glob.iglob(str(pattern)), CANDIDATES_MAX))
    return sorted(path for path in found if not _is_rotated(path) and path.is_file())


def _is_rotated(path: Path) -> bool:
    if _NUMBERED.search(path.name):
        return path.with_name(_NUMBERED.sub("", path.name)).exists()
    return _ROTATED.search(path.name) is not None


class PatternSource:
    """Follows what matches; `run` goes on until cancelled."""

    def __init__(self, config: FileConfig, publisher: Publisher, state_dir: Path, metrics: Metrics) -> None:
        self.name = f"files {config.path}"
        self._config = config
        self._publisher = publisher
        self._state_dir = state_dir
        self._metrics = metrics
        self._followed: dict[Path, _Followed] = {}
        self._left_out = 0
        self._trouble: str | None = None
        self._stopping = False
        self._told = ""
        self.ready = asyncio.Event()

    def problem(self) -> str | None:
        """Say in one line what is wrong with the pattern, or with a file that matches it, or None."""
        problems = (followed.source.problem() for followed in self._followed.values())
        return self._trouble or next((problem for problem in problems if problem is not None), None)

    def note(self) -> str | None:
        """Say that nothing matches, or not everything is followed, or None."""
        if self._left_out:
            return f"{self._config.path}: {self._left_out} files more match than the {FILES_MAX} that are followed"
        return None if self._followed else f"no file matches {self._config.path}, rotated ones aside"

    def stop_reading(self) -> None:
        """Take no more lines."""
        self._stopping = True
        for followed in self._followed.values():
            followed.source.stop_reading()

    async def run(self) -> None:
        """Look for files regularly and follow them until cancelled."""
        async with asyncio.TaskGroup() as group:
            earlier = await asyncio.to_thread(self._known_before)
            while True:
                try:
                    found = await asyncio.to_thread(matching, self._config.path)
                except OSError as error:
                    found, self._trouble = [], f"{self._config.path} cannot be looked for ({error.strerror})"
                else:
                    self._trouble = self._directory_trouble()
                if not self._stopping:
                    self._follow([*found, *earlier], group)
                    await self._forget_gone(set(found))
                earlier = []
                self._tell()
                self.ready.set()
                await asyncio.sleep(SCAN_S)

    def _known_before(self) -> list[Path]:
        pattern, known = str(self._config.path), []
        for file in (self._state_dir / "files").glob("*.json"):
            path = str((state.load(file) or {}).get("path", ""))
            if PurePath(path).match(pattern):
                known.append(Path(path))
        return sorted(known)

    def _directory_trouble(self) -> str | None:
        directory = self._config.path.parent
        if glob.has_magic(str(directory)) or directory.is_dir():
            return None
        return f"{directory}, where {self._config.path.name} is looked for, is not there: make it, or mend the path"

    def _follow(self, paths: list[Path], group: asyncio.TaskGroup) -> None:
        new = [path for path in dict.fromkeys(paths) if path not in self._followed]
        room = max(0, FILES_MAX - len(self._followed))
        self._left_out = len(new[room:])
        for path in new[:room]:
            source = FileSource(replace(self._config, path=path), self._publisher, self._state_dir, self._metrics)
            self._followed[path] = _Followed(source, group.create_task(source.run()))
            _log.info("file_followed", path=path)

    async def _forget_gone(self, found: set[Path]) -> None:
        now_s = time.monotonic()
        for path, followed in list(self._followed.items()):
            if path in found or path.exists():
                followed.gone_s = None
            elif followed.gone_s is None:
                followed.gone_s = now_s
            elif now_s - followed.gone_s >= GONE_S and await followed.source.finished():
                followed.task.cancel()
                await asyncio.gather(followed.task, return_exceptions=True)
                self._metrics.file_unread_bytes.remove(str(path))
                await asyncio.to_thread(state_path(self._state_dir, path).unlink, missing_ok=True)
                del self._followed[path]
                _log.info("file_forgotten", path=path)

    def _tell(self) -> None:
        """Log once what /health says now."""
        told = self._trouble or self.note() or ""
        if told and told != self._told:
            _log.warning("files_missing", pattern=self._config.path, reason=told)
        self._told = told
