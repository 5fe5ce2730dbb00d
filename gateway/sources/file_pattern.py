"""All files that match a pattern such as `/var/log/myapp/*.log`, each followed by a `FileSource` of its own.

| a path | is |
|---|---|
| matches (`matches.find_matches`) | followed, also when it appears later |
| matches, and is left out | named in the log once |
| is a new name of a file that is followed already | left to its source |
| was followed by an earlier run, and matches | followed, so that what was unread is read or accounted for |
| is gone for GONE_S, and all read | followed no more; its position is forgotten |
| is gone for GONE_S, and was not found again | a ledger record of unknown size, then the same |

At most FILES_MAX are followed; how many are left is said. Source: glob(7); logrotate(8).
"""

from __future__ import annotations

import asyncio
import glob
import time
from collections import defaultdict
from dataclasses import dataclass, replace
from pathlib import Path

from drupelet.log_tree import Log
from gateway import state
from gateway.config import FileConfig
from gateway.metrics import Metrics
from gateway.publisher import Publisher
from gateway.sources.files import FileSource, state_path
from gateway.sources.matches import Matches, find_matches, is_match

FILES_MAX = 100
SCAN_S = 5.0
GONE_S = 60.0
_log = Log("gateway.files")


@dataclass(slots=True, eq=False)
class _Followed:
    source: FileSource
    task: asyncio.Task[None]
    gone_s: float | None = None


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
        self._beyond_bound = False
        self._told_left_out: dict[Path, str] = {}
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
            self._follow(await asyncio.to_thread(self._known_before), group)
            while True:
                try:
                    found = await asyncio.to_thread(self._look)
                except OSError as error:
                    found, self._trouble = [], f"{self._config.path} cannot be looked for ({error.strerror})"
                else:
                    self._trouble = self._directory_trouble()
                if not self._stopping:
                    self._follow(found, group)
                    await self._forget_gone(set(found))
                self._tell()
                self.ready.set()
                await asyncio.sleep(SCAN_S)

    def _look(self) -> list[Path]:
        """Return the matches that are followed or are to be."""
        matches = find_matches(self._config.path, list(self._followed))
        self._log_left_out(matches)
        self._beyond_bound = matches.beyond_bound
        inodes: defaultdict[int, list[Path]] = defaultdict(list)
        for path, followed in list(self._followed.items()):
            for inode in followed.source.inodes:
                inodes[inode].append(path)
        found = set()
        for path, status in matches.files.items():
            earlier = [name for name in inodes.get(status.st_ino, ()) if self._followed[name].source.is_at(path)]
            found.add(path if path in self._followed or not earlier else earlier[0])
        return sorted(found)

    def _log_left_out(self, matches: Matches) -> None:
        for path, why in matches.left_out.items():
            if self._told_left_out.get(path) != why:
                _log.info("file_left_out", path=path, reason=why)
        self._told_left_out = matches.left_out

    def _known_before(self) -> list[Path]:
        pattern, known = self._config.path, []
        for file in (self._state_dir / "files").glob("*.json"):
            path = str((state.load(file) or {}).get("path", ""))
            if is_match(Path(path), pattern):
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
            source = FileSource(
                replace(self._config, path=path),
                self._publisher,
                self._state_dir,
                self._metrics,
                self._followed.__contains__,
            )
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
