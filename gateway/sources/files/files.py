"""Publish log files: a position is saved, with fsync, only after the broker acknowledged all before it.

After a crash, lines between the saved position and the crash are sent again. Contains: the steps on the event loop:
backpressure, order, saving. Does not contain: reading the file (`tail`).
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import hashlib
import os
import platform
import threading
import time
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from drupelet.observe.log_tree import Log
from drupelet.printable import label_text, name_text
from gateway.config import FileConfig
from gateway.kafka.publisher import Publisher
from gateway.metrics import Metrics
from gateway.records.dead_letters import REASON_LINE_TOO_LONG
from gateway.records.records import CAUSE_SOURCE_GONE, CAUSE_TOO_LARGE, Loss, Record, loss_id_for
from gateway.sources.acked_position import SafePlace
from gateway.sources.file_reading.decompressed_file import DecodersBusyError
from gateway.sources.file_reading.interruption import InterruptedRead, interrupt_by
from gateway.sources.file_reading.line_joiner import Joiner
from gateway.sources.file_reading.links import NotRegularError, rule_for
from gateway.sources.file_reading.places import FamilyState, Item, Line, TooLong, UnreadRest, from_json, to_json
from gateway.sources.files.tail import Tail
from gateway.state import StateError, load

QUIET_S = 1.0  # then the buffered line counts as complete
HOST = platform.node().encode()
_Result = TypeVar("_Result")
_log = Log("gateway.files")


def state_path(state_dir: Path, path: Path) -> Path:
    """Return the path of a followed file's state."""
    return state_dir / "files" / f"{hashlib.sha256(os.fsencode(path)).hexdigest()[:16]}.json"


def load_family(path: Path) -> FamilyState | None:
    """Return the saved state of a followed file, or None for a new one; raises StateError."""
    saved = load(path)
    if saved is None:
        return None
    try:
        return from_json(saved)
    except (KeyError, TypeError, ValueError) as error:
        raise StateError(f"{path} holds no place: remove it, and the file is read from its beginning.") from error


def saved_family(state_dir: Path, path: Path) -> FamilyState | None:
    """Return the state of a file, also one saved by an older version under its relative path; raises StateError."""
    family = load_family(state_path(state_dir, path))
    if family is not None:
        return family
    for file in (state_dir / "files").glob("*.json"):
        older = Path(str((load(file) or {}).get("path", "")))
        if older.name == path.name and not older.is_absolute() and older.absolute() == path:
            return load_family(file)
    return None


def left_out_note(pattern: Path, left_out: Mapping[Path, str]) -> str | None:
    """Return in one line which links and irregular files are not read, or None."""
    if not left_out:
        return None
    first = min(left_out)
    more = f", and {len(left_out) - 1} more" if len(left_out) > 1 else ""
    return f"files.path {name_text(pattern)} leaves {name_text(first)} out: {left_out[first]}{more}"


def log_left_out(left_out: dict[Path, str], told: Mapping[Path, str]) -> dict[Path, str]:
    """Log the files left out that were not in `told`; return those logged by now."""
    for path, why in left_out.items():
        if told.get(path) != why:
            _log.info("file_left_out", path=path, reason=why)
    return left_out


def _reason(item: TooLong | UnreadRest) -> str:
    if isinstance(item, TooLong):
        return f"a line of {item.bytes} bytes, longer than line_bytes_max, at byte {item.position}"
    size = "unknown many" if item.bytes is None else f"{item.bytes}"
    return f"{item.why}: read up to byte {item.place.position}, {size} bytes are lost"


class FileSource:
    """Publishes one file; `run` works until cancelled."""

    def __init__(
        self,
        config: FileConfig,
        publisher: Publisher,
        state_dir: Path,
        metrics: Metrics,
        is_followed: Callable[[Path], bool] | None = None,
        pattern: Path | None = None,
    ) -> None:
        """Build the source; `is_followed` returns whether another source reads a path, None: there is no other.

        `pattern` has found the path; None: the configuration names it.
        """
        self.name = f"file {config.path}"
        self._config = config
        self._publisher = publisher
        self._metrics = metrics
        name = f"the position in {name_text(config.path)}"
        self._safe = SafePlace[FamilyState](
            state_path(state_dir, config.path), name, self._content, config.save_interval_ms
        )
        self._unread = metrics.file_unread_bytes.labels(label_text(config.path))
        self._tail = Tail(
            config.path,
            saved_family(state_dir, config.path),
            line_bytes_max=config.line_bytes_max,
            quiet_s=config.rotate_wait_ms / 1000,
            start_at_end=config.start == "end",
            rotated=None if config.rotated is None else str(config.rotated),
            is_alone=is_followed is None,
            is_followed=is_followed or (lambda _path: False),
            links=rule_for(pattern or config.path, config.rotated, follows=config.follow_links),
        )
        self._saved_changes = -1
        self._joiner = Joiner(config.continuation, config.line_bytes_max)
        self._quiet_since_s = time.monotonic()
        self._stopping = False
        self._interruption = threading.Event()  # for long steps of the tail
        self._trouble: str | None = None
        self._absent: str | None = None
        self._is_alone = is_followed is None
        self._told_left_out: dict[Path, str] = {}
        self.ready = asyncio.Event()

    def problem(self) -> str | None:
        """Return in one line why the file is not read or its position not saved, or None."""
        return self._trouble or self._safe.trouble

    def note(self) -> str | None:
        """Return that the file does not exist yet, or that a file with its name is not read, or None."""
        return self._absent or left_out_note(self._config.path, self.left_out)

    @property
    def left_out(self) -> dict[Path, str]:
        """Files with a matching name that are not opened, each with the reason."""
        return self._tail.left_out

    def stop_reading(self) -> None:
        """Read no more lines."""
        self._stopping = True
        self._interruption.set()

    async def run(self) -> None:
        """Follow the file and save its position until cancelled; at the end save the acknowledged position."""
        interrupt_by(self._interruption)
        try:
            async with self._safe.keep_saved():
                await self._follow()
        finally:
            self._tail.close()

    async def _follow(self) -> None:
        while True:
            items = [] if self._stopping else await self._in_thread(self._read)
            self.ready.set()
            await self._save_changes(items)
            for item in items:
                await self._room()
                self._take(item)
            if not items:
                await asyncio.sleep(self._config.poll_interval_ms / 1000)

    @property
    def is_idle(self) -> bool:
        """Whether all that was read is acknowledged and saved, and nothing came for a while."""
        is_done = self._safe.all_acked and self._safe.is_saved and not self._joiner.holds
        return is_done and self._tail.state is not None and time.monotonic() - self._quiet_since_s >= QUIET_S

    @property
    def saved_state(self) -> FamilyState:
        """The saved positions of all files, once the source has ended; only for a source that has found its file."""
        assert self._safe.place is not None
        return self._safe.place

    @property
    def is_saved(self) -> bool:
        """Whether the positions of all lines read are saved, once the source has ended."""
        return self._safe.is_saved and self._tail.state is not None and self._tail.state.place == self.saved_state.place

    @property
    def newest_path(self) -> Path | None:
        """The present name of the newest file."""
        return self._tail.newest_path

    def has_read(self, inode: int, size: int) -> bool:
        """Return whether the file with that inode and its rotated files have been read to their ends."""
        return self._tail.has_read(inode, size)

    @property
    def inodes(self) -> set[int]:
        """The inodes of the file and of its rotated files."""
        return self._tail.inodes

    def is_at(self, path: Path) -> bool:
        """Return whether the file, or one rotated from it, has this name, too. Blocking; raises OSError."""
        return self._tail.is_at(path)

    async def _save_changes(self, items: list[Item]) -> None:
        """Save the list of files before their lines are read: after a crash "end" must not mean a later end."""
        unsaved = self._tail.state is not None and self._tail.changes != self._saved_changes
        if unsaved and not items and self._safe.all_acked and not self._joiner.holds:
            self._saved_changes = self._tail.changes
            await self._safe.begin(self._tail.state)

    async def _room(self) -> None:
        """Wait while the publisher is full; meanwhile open new files, so that they outlive their names."""
        while self._publisher.full and not self._stopping:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._config.poll_interval_ms / 1000):
                    await self._publisher.room()
            await self._in_thread(self._find_files)

    async def _in_thread(self, work: Callable[[], _Result]) -> _Result:
        """Run blocking work to its end, also when cancelled: the caller closes its files afterwards."""
        task = asyncio.ensure_future(asyncio.to_thread(work))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            self._interruption.set()
            await asyncio.gather(task, return_exceptions=True)
            raise

    def _find_files(self) -> None:
        try:
            self._tail.find_files()
        except (InterruptedRead, DecodersBusyError):
            return
        except OSError as error:
            self._tell_unreadable(error)

    async def is_finished(self) -> bool:
        """Return whether the file is complete; a file that was not found again is first reported as lost."""
        if not self._safe.all_acked or self._joiner.holds or self._tail.unread_open_bytes():
            return False
        if self._tail.has_unread_copy:
            return False
        gone = self._tail.missing
        if gone is not None:
            reported = asyncio.Event()
            self._publisher.report(self._loss(gone), reported.set, reason=_reason(gone))
            await reported.wait()
        return True

    def _read(self) -> list[Item]:
        try:
            items = self._tail.read()
            self._unread.set(self._tail.unread_bytes())
            self._note_nuls()
        except (InterruptedRead, DecodersBusyError):
            return []
        except OSError as error:
            self._tell_unreadable(error)
            return []
        seen = self._tail.is_open or self._tail.state is not None
        if self._tail.trouble is not None:
            self._tell_unreadable(self._tail.trouble)
        else:
            self._log_problem(None if seen else self._missing_directory())
        self._note_absent(not seen and self._trouble is None)
        if self._is_alone:
            self._told_left_out = log_left_out(self.left_out, self._told_left_out)
        now_s = time.monotonic()
        if items:
            self._quiet_since_s = now_s
            return self._joiner.join(items)
        return self._joiner.flush() if now_s - self._quiet_since_s >= QUIET_S else []

    def _tell_unreadable(self, error: OSError) -> None:
        if isinstance(error, NotRegularError):
            self._log_problem(str(error))
            return
        if error.errno in (errno.EMFILE, errno.ENFILE):
            name = name_text(self._config.path)
            self._log_problem(f"{name} cannot be read ({error.strerror}): raise LimitNOFILE, or lower files_max")
            return
        name = name_text(error.filename or self._config.path)
        self._log_problem(f"{name} cannot be read ({error.strerror or error}): let the gateway's user read it")

    def _note_nuls(self) -> None:
        nul_bytes, self._tail.nul_bytes = self._tail.nul_bytes, 0
        if nul_bytes:
            self._metrics.file_nul_bytes.labels(label_text(self._config.path)).inc(nul_bytes)
            _log.info("file_nuls_skipped", path=self._config.path, bytes=nul_bytes)

    def _missing_directory(self) -> str | None:
        path = self._config.path
        if path.parent.is_dir():
            return None
        directory, name = name_text(path.parent), name_text(path.name)
        return f"{directory}, where {name} is looked for, is not there: make it, or mend the path"

    def _note_absent(self, absent: bool) -> None:
        """Log a file that does not exist; it is no problem, as a program may still write its first line."""
        if absent and self._absent is None:
            self._absent = f"{name_text(self._config.path)} is not there yet"
            _log.warning("file_missing", path=self._config.path)
        elif not absent:
            self._absent = None

    def _log_problem(self, trouble: str | None) -> None:
        if trouble is not None and trouble != self._trouble:
            _log.warning("file_unreadable", path=self._config.path, reason=trouble)
        self._trouble = trouble

    def _take(self, item: Item) -> None:
        on_acked = self._safe.handed_over(None if isinstance(item, UnreadRest) else item.after)
        if isinstance(item, Line):
            self._publisher.offer(self._record(item, item.text), on_acked)
        elif isinstance(item, TooLong):
            beginning, loss = self._record(item, item.beginning), self._loss(item)
            self._publisher.dead_letter(beginning, REASON_LINE_TOO_LONG, _reason(item), on_acked, loss)
        else:
            self._publisher.report(self._loss(item), on_acked, reason=_reason(item))

    def _record(self, line: Line | TooLong, text: bytes) -> Record:
        now_ms = time.time_ns() // 1_000_000
        path, topic = str(self._config.path), self._config.topic
        key = path.encode("utf-8", "surrogateescape")
        place = ("inode", b"%d" % line.inode), ("position", b"%d" % line.position)
        headers = (("source", b"file"), ("host", HOST), ("file", key), *place)
        return Record("file", topic, key, text, headers, now_ms, now_ms, topic, path)

    def _loss(self, item: TooLong | UnreadRest) -> Loss:
        now_ms = time.time_ns() // 1_000_000
        path, topic = self._config.path, self._config.topic
        if isinstance(item, TooLong):
            beginning = zlib.crc32(item.beginning)  # a new file may reuse a removed file's inode
            loss_id = loss_id_for(path, item.inode, item.position, item.bytes, beginning)
            return Loss(loss_id, CAUSE_TOO_LARGE, topic, 1, item.bytes - len(item.beginning), now_ms)
        return Loss(loss_id_for(path, item.kind, item.place), CAUSE_SOURCE_GONE, topic, None, item.bytes, now_ms)

    def _content(self, family: FamilyState) -> dict[str, Any]:
        return {"path": str(self._config.path), **to_json(family)}
