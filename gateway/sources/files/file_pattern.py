"""Follow all files that match a pattern such as `/var/log/myapp/*.log`, each by its own `FileSource`.

| a path | is |
|---|---|
| matches (`matches.find_matches`) | followed, also when it appears later |
| matches, and is excluded | named in the log once |
| is a new name of a file that is followed already | left to its source |
| was followed by an earlier run, and matches | followed, so that its unread lines are read or recorded as lost |
| is read to its end, while others wait | not followed until it changes; its state stays |
| is gone for GONE_S, and all read | not followed; its position is removed |
| is gone for GONE_S, and was not found again | a ledger record of unknown size, then the same |

At most `files_max` are followed at a time, those that changed last first. Source: glob(7); logrotate(8).
"""

from __future__ import annotations

import asyncio
import glob
import os
import time
from collections import defaultdict
from dataclasses import dataclass, replace
from pathlib import Path

from drupelet.observe.log_tree import Log
from drupelet.printable import label_text
from gateway import state
from gateway.config import FileConfig
from gateway.kafka.publisher import Publisher
from gateway.metrics import Metrics
from gateway.sources.file_reading.links import rule_for
from gateway.sources.file_reading.places import FamilyState
from gateway.sources.files.files import FileSource, left_out_note, load_family, log_left_out, state_path
from gateway.sources.files.matches import CANDIDATES_MAX, find_matches, is_match

SCAN_S = 5.0
DIFFERS = -1  # a time of change that no file has
WAITING_SCAN_S = 1.0  # while files wait for others to be closed
GONE_S = 60.0
_log = Log("gateway.files")


@dataclass(slots=True, eq=False)
class _FollowedFile:
    source: FileSource
    task: asyncio.Task[None]
    gone_s: float | None = None


@dataclass(frozen=True, slots=True)
class _Signature:
    """The state of an idle file; a different one means that it was replaced, or has changed."""

    inode: int
    size: int
    modified_ns: int


@dataclass(frozen=True, slots=True)
class _Idle:
    """A path that is not followed now: its file and its rotated files, all read."""

    newest: _Signature
    older: frozenset[_Signature]


class PatternSource:
    """Follows the matching files; `run` works until cancelled."""

    def __init__(self, config: FileConfig, publisher: Publisher, state_dir: Path, metrics: Metrics) -> None:
        self.name = f"files {config.path}"
        self._config = config
        self._publisher = publisher
        self._state_dir = state_dir
        self._metrics = metrics
        self._followed: dict[Path, _FollowedFile] = {}
        self._idle: dict[Path, _Idle] = {}  # followed before: each is followed again once it differs
        self._links = rule_for(config.path, config.rotated, follows=config.follow_links)
        self._waiting = 0
        self._beyond_bound = False
        self._told_left_out: dict[Path, str] = {}
        self._refused: dict[Path, str] = {}
        self._trouble: str | None = None
        self._stopping = False
        self._told = ""
        self.ready = asyncio.Event()

    def problem(self) -> str | None:
        """Return in one line the problem of the pattern, or of a file that matches it, or None."""
        problems = (followed.source.problem() for followed in self._followed.values())
        return self._trouble or self._bound_note() or next((found for found in problems if found is not None), None)

    def note(self) -> str | None:
        """Return that no file matches, or which matches are links or irregular files, or None."""
        told = left_out_note(self._config.path, {**self._left_out_beside(), **self._refused})
        if self._followed or self._idle:
            return told
        return told or f"no file matches {self._config.path}, rotated ones aside"

    def _bound_note(self) -> str | None:
        """Return that some files are not read, or None."""
        if self._beyond_bound:
            return f"{self._config.path} matches more than {CANDIDATES_MAX} files: the rest is not read; narrow it"
        if self._waiting:
            bound = self._config.files_max
            return f"{self._config.path}: {self._waiting} files wait while {bound} are read (files_max): raise it"
        return None

    def stop_reading(self) -> None:
        """Read no more lines."""
        self._stopping = True
        for followed in self._followed.values():
            followed.source.stop_reading()

    async def run(self) -> None:
        """Find files at intervals and follow them until cancelled."""
        async with asyncio.TaskGroup() as group:
            self._idle = await asyncio.to_thread(self._known_before)
            while True:
                try:
                    found = await asyncio.to_thread(self._find_paths)
                except OSError as error:
                    found, self._trouble = {}, f"{self._config.path} cannot be looked for ({error.strerror})"
                else:
                    self._trouble = self._directory_trouble()
                if not self._stopping:
                    await self._follow(found, group)
                    await self._forget_gone(set(found))
                self._log_problem()
                self.ready.set()
                await asyncio.sleep(min(SCAN_S, WAITING_SCAN_S) if self._waiting else SCAN_S)

    def _find_paths(self) -> dict[Path, float]:
        """Return the paths to follow, each with its modification time."""
        known = {*self._followed, *self._idle}
        matches = find_matches(self._config.path, known, follow_links=self._config.follow_links)
        self._refused = matches.refused
        self._told_left_out = log_left_out({**self._left_out_beside(), **matches.left_out}, self._told_left_out)
        self._beyond_bound = matches.beyond_bound
        inodes = self._known_inodes()
        read_before = {signature for idle in self._idle.values() for signature in idle.older}
        found: dict[Path, float] = {}
        present: set[Path] = set()
        for match, status in matches.files.items():
            path = match if match in known else self._earlier_name(match, status, inodes)
            idle = self._idle.get(path)
            present.add(path)
            if (idle is not None and idle.newest == _signature(status)) or _signature(status) in read_before:
                continue
            found[path] = max(found.get(path, 0.0), status.st_mtime)
        for path in self._idle:
            if path not in present:
                found[path] = 0.0
        return found

    def _known_inodes(self) -> dict[int, list[Path]]:
        inodes: defaultdict[int, list[Path]] = defaultdict(list)
        for path, followed in list(self._followed.items()):
            for inode in followed.source.inodes:
                inodes[inode].append(path)
        for path, idle in self._idle.items():
            inodes[idle.newest.inode].append(path)
        return inodes

    def _earlier_name(self, path: Path, status: os.stat_result, inodes: dict[int, list[Path]]) -> Path:
        """Return the name under which the file is followed already, or its own."""
        for name in inodes.get(status.st_ino, ()):
            if name in self._followed:
                if self._followed[name].source.is_at(path):
                    return name
            elif status.st_size >= self._idle[name].newest.size and not self._is_inode_of(name, status.st_ino):
                return name
        return path

    def _left_out_beside(self) -> dict[Path, str]:
        """Return files with the name of a followed file's rotated one that are not opened."""
        sources = [followed.source for followed in list(self._followed.values())]
        return {path: why for source in sources for path, why in source.left_out.items()}

    def _known_before(self) -> dict[Path, _Idle]:
        """Return the paths of earlier runs."""
        pattern, known = self._config.path, {}
        for file in (self._state_dir / "files").glob("*.json"):
            path = Path(str((state.load(file) or {}).get("path", "")))
            if is_match(path, pattern) and (family := load_family(file)) is not None:
                known[path] = _idle(family)
        return known

    def _directory_trouble(self) -> str | None:
        directory = self._config.path.parent
        if glob.has_magic(str(directory)) or directory.is_dir():
            return None
        return f"{directory}, where {self._config.path.name} is looked for, is not there: make it, or mend the path"

    async def _follow(self, found: dict[Path, float], group: asyncio.TaskGroup) -> None:
        new = sorted((path for path in found if path not in self._followed), key=lambda path: (-found[path], path))
        room = self._config.files_max - len(self._followed)
        if len(new) > room:
            room += await self._close_idle(len(new) - room, found)
        self._waiting = max(0, len(new) - room)
        for path in new[: max(0, room)]:
            source = FileSource(
                replace(self._config, path=path),
                self._publisher,
                self._state_dir,
                self._metrics,
                self._followed.__contains__,
                self._config.path,
            )
            self._idle.pop(path, None)
            self._followed[path] = _FollowedFile(source, group.create_task(source.run()))
            _log.info("file_followed", path=path)

    async def _close_idle(self, count: int, found: dict[Path, float]) -> int:
        """Close at most `count` finished files, those unchanged for the longest time first."""
        idle = sorted(
            (path for path, followed in self._followed.items() if followed.source.is_idle),
            key=lambda path: found.get(path, 0.0),
        )
        closed = 0
        for path in idle[:count]:
            source = self._followed[path].source
            signature = await asyncio.to_thread(self._signature_of, source.newest_path or path)
            if signature is None or not source.has_read(signature.inode, signature.size):
                continue
            await self._end(path)
            self._idle[path] = _idle(source.saved_state, signature if source.is_saved else None)
            closed += 1
        return closed

    def _signature_of(self, path: Path) -> _Signature | None:
        try:
            return _signature(self._links.status(path))
        except OSError:
            return None

    def _is_inode_of(self, path: Path, inode: int) -> bool:
        signature = self._signature_of(path)
        return signature is not None and signature.inode == inode

    async def _end(self, path: Path, *, forget: bool = False) -> None:
        task = self._followed[path].task
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        self._metrics.file_unread_bytes.remove(label_text(path))
        if forget:
            await asyncio.to_thread(state_path(self._state_dir, path).unlink, missing_ok=True)
        del self._followed[path]

    async def _forget_gone(self, found: set[Path]) -> None:
        now_s = time.monotonic()
        for path, followed in list(self._followed.items()):
            if path in found or path.exists():
                followed.gone_s = None
            elif followed.gone_s is None:
                followed.gone_s = now_s
            elif now_s - followed.gone_s >= GONE_S and await followed.source.is_finished():
                await self._end(path, forget=True)
                _log.info("file_forgotten", path=path)

    def _log_problem(self) -> None:
        """Log the present text of /health once."""
        told = self._trouble or self._bound_note() or self.note() or ""
        if told and told != self._told:
            _log.warning("files_missing", pattern=self._config.path, reason=told)
        self._told = told


def _signature(status: os.stat_result) -> _Signature:
    return _Signature(status.st_ino, status.st_size, status.st_mtime_ns)


def _idle(family: FamilyState, newest: _Signature | None = None) -> _Idle:
    """Return the idle form of a state, to detect a later change; `newest` is its newest file, if known."""
    place, others = family.place, (*family.older, *family.newer)
    if newest is None:
        is_read = family.is_whole and not any(seen.unread_bytes for seen in others)
        newest = _Signature(place.inode, place.position, place.modified_ns if is_read else DIFFERS)
    older = (_Signature(seen.place.inode, seen.size, seen.place.modified_ns) for seen in family.older)
    return _Idle(newest, frozenset(older))
