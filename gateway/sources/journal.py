"""The host's journal into the publisher, through `journalctl --follow`; its cursor is saved after acks=all.

| what | how |
|---|---|
| place | the cursor of the last entry before which all are acknowledged, in a state file, written with fsync |
| first start | `start = "end"`: the cursor of the newest entry is saved before anything is read |
| the saved entry is in the journal no more (vacuumed, or volatile and rebooted) | a ledger record of unknown size |
| journalctl ends | started again, after the last entry that was taken |
| no room for BLOCKED_S | journalctl is ended; the next one starts at the place, and looks whether it is still there |
| memory | one line, LINE_BYTES_MAX; a longer one is a dead letter with its beginning, the rest a ledger record |

journalctl is asked, not libsystemd: it comes with every systemd and needs no C binding. Its options have reasons:
- `--merge`: else `--follow` shows this boot alone, `--boot=all` or not. What a reboot left unread would be lost, and
  everything where /proc tells another boot id than journald's, as in a unit's own /proc inside systemd-nspawn;
- `_MACHINE_ID=`: else `--merge` shows containers, and what systemd-journal-remote received, too;
- `--lines=all`: else `--follow` shows 10, and the others not before something new is logged;
- `--cursor=`, and the entry read last is passed over here: `--after-cursor=` of systemd 252 passes over the first entry
  that it would show, also when the cursor's is none of those.

Source: journalctl(1), systemd.journal-fields(7), the Journal JSON Format; journalctl.c of systemd 252 and 257.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import time
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from drupelet.backoff import Backoff
from drupelet.boot_clock import BootMoment
from drupelet.log_tree import Log
from gateway import state
from gateway.config import JournalConfig
from gateway.dead_letters import REASON_LINE_TOO_LONG, REASON_NOT_JSON
from gateway.publisher import Publisher
from gateway.records import CAUSE_SOURCE_GONE, CAUSE_TOO_LARGE, Loss, Record, loss_id_for, new_loss_id
from gateway.sources.safe_place import SafePlace

LINE_BYTES_MAX = 2 << 20
KEPT_BYTES_MAX = 65_536  # of a line that is too long
BLOCKED_S = 5.0
ASK_TIMEOUT_S = 60.0  # a cold journal on a card
MACHINE_ID = Path("/etc/machine-id")
_FIELDS = {"_HOSTNAME": "host", "_SYSTEMD_UNIT": "unit", "SYSLOG_IDENTIFIER": "identifier", "PRIORITY": "priority"}
_OUTPUT = ["--output=json", "--all", f"--output-fields=MESSAGE,_MACHINE_ID,{','.join(_FIELDS)}"]
_BOOT_ID = re.compile("[0-9a-f]{32}")
_log = Log("gateway.journal")


class JournalFailure(Exception):
    """The journal cannot be read now; the message says why and what helps."""


@dataclass(frozen=True, slots=True)
class _Cut:
    """A line that is too long: its beginning, and how long it was."""

    beginning: bytes
    bytes: int


def arguments(config: JournalConfig, cursor: str | None, machine_id: str | None) -> list[str]:
    """Return what follows the journal from a cursor on, or from its beginning; `machine_id` is this machine's."""
    chosen = [f"--unit={unit}" for unit in config.units]
    chosen += [] if config.priority == "debug" else [f"--priority={config.priority}"]
    chosen += [] if cursor is None else [f"--cursor={cursor}"]
    return [*_journalctl(config, machine_id), "--follow", "--lines=all", *_OUTPUT, *chosen]


def _journalctl(config: JournalConfig, machine_id: str | None) -> list[str]:
    """A directory that was named may be any machine's."""
    whose = [] if machine_id is None else [f"_MACHINE_ID={machine_id}"]
    where = whose if config.directory is None else [f"--directory={config.directory}"]
    return ["journalctl", "--no-pager", "--merge", *where]


def _machine_id() -> str | None:
    """This machine's id, as machine-id(5) has it; None before systemd has given one."""
    try:
        text = MACHINE_ID.read_text(errors="replace").strip()
    except OSError:
        return None
    return text if len(text) == 32 and text.isalnum() else None


def entry_record(config: JournalConfig, entry: dict[str, Any], now_ms: int, machine_id: str | None = None) -> Record:
    """Return the record of an entry: its message, at its own time, under headers that say who wrote it.

    An entry of another machine than `machine_id` has that machine's time.
    """
    found = [(header, _bytes(entry.get(name))) for name, header in _FIELDS.items() if entry.get(name) is not None]
    headers = (("source", b"journal"), *found)
    told = dict(found)
    key = told.get("unit") or told.get("identifier") or told.get("host") or b"journal"
    stamp = entry.get("__REALTIME_TIMESTAMP")
    timestamp_ms = int(stamp) // 1000 if isinstance(stamp, str) and stamp.isdecimal() and len(stamp) < 18 else now_ms
    message = _bytes(entry.get("MESSAGE"))
    record = Record("journal", config.topic, key, message, headers, timestamp_ms, now_ms, config.topic, "journal")
    is_foreign = machine_id is not None and entry.get("_MACHINE_ID", machine_id) != machine_id
    return replace(record, moment=_moment(entry), foreign_clock=is_foreign)


def _moment(entry: dict[str, Any]) -> BootMoment | None:
    """Return the boot and the time in it at which an entry was written; the id as /proc spells it."""
    boot_id, stamp = entry.get("_BOOT_ID"), entry.get("__MONOTONIC_TIMESTAMP")
    if not isinstance(boot_id, str) or not _BOOT_ID.fullmatch(boot_id):
        return None
    if not isinstance(stamp, str) or not (stamp.isascii() and stamp.isdecimal()) or len(stamp) >= 18:
        return None
    return BootMoment(str(uuid.UUID(boot_id)), int(stamp) // 1000)


def _bytes(value: object) -> bytes:
    """A field of the Journal JSON Format: text, the numbers of its bytes, or several of either, of which the first."""
    if isinstance(value, list):
        if all(isinstance(number, int) and 0 <= number < 256 for number in value):
            return bytes(value)
        return _bytes(value[0])
    return value.encode("utf-8", "surrogateescape") if isinstance(value, str) else b""


class JournalSource:
    """Follows the journal into the publisher; `run` goes on until cancelled."""

    name = "journal"

    def __init__(self, config: JournalConfig, publisher: Publisher, path: Path) -> None:
        """Read the saved cursor; raises StateError."""
        self._config = config
        self._publisher = publisher
        self._read_up_to = _load(path)
        self._machine_id: str | None = None
        name = "the place in the journal"
        self._safe = SafePlace(path, name, _content, config.save_interval_ms, self._read_up_to)
        self._from_end = config.start == "end"  # at the first start alone
        self._stopping = False
        self._trouble: str | None = None
        self.ready = asyncio.Event()

    def problem(self) -> str | None:
        """Say in one line why the journal is not read or its cursor not saved, or None."""
        return self._trouble or self._safe.trouble

    def note(self) -> str | None:
        """Nothing but trouble is worth a word."""
        return None

    def stop_reading(self) -> None:
        """Take no more entries."""
        self._stopping = True

    async def run(self) -> None:
        """Follow the journal until cancelled; what is acknowledged until then is saved."""
        async with self._safe.kept():
            await self._keep_following()

    async def _keep_following(self) -> None:
        backoff = Backoff()
        while True:
            try:
                await self._begin()
                await self._follow(backoff)
            except JournalFailure as failure:
                if self._trouble is None:
                    _log.warning("journal_unreadable", reason=failure)
                self._trouble = str(failure)
                self.ready.set()
            await asyncio.sleep(backoff.next_s())

    async def _begin(self) -> None:
        """Find the place to read from; what was lost between it and the journal's first entry is reported."""
        if self._read_up_to is None:
            if self._from_end:
                self._read_up_to = await self._ask("--lines=1")
                await self._safe.begin(self._read_up_to)
                self._from_end = False
            return
        if await self._ask(f"--cursor={self._read_up_to}", "--lines=1") != self._read_up_to:
            self._lose(self._read_up_to)
            self._read_up_to = None

    async def _ask(self, *options: str) -> str | None:
        """Return the cursor of the entry that the options choose, None when there is none."""
        command = [*_journalctl(self._config, _machine_id()), "--output=json", "--output-fields=PRIORITY", *options]
        async with _running(command) as process:
            try:
                output, errors = await asyncio.wait_for(process.communicate(), ASK_TIMEOUT_S)
            except TimeoutError:
                raise JournalFailure("journalctl does not answer: is the disk that slow?") from None
        lines, said = output.splitlines(), errors.decode(errors="replace")
        _check_rights(said)
        if not lines:
            _check_said(said, process.returncode)
            return None
        entry = _entry(lines[-1] if options == ("--lines=1",) else lines[0])
        return None if entry is None else str(entry.get("__CURSOR"))

    def _lose(self, cursor: str) -> None:
        """Report that the entry last read is no more, and with it perhaps others that were not."""
        now_ms = time.time_ns() // 1_000_000
        loss = Loss(loss_id_for("journal", cursor), CAUSE_SOURCE_GONE, self._config.topic, None, None, now_ms)
        reason = f"the journal no longer holds the entry that was read last ({cursor}): rotated, vacuumed or volatile"
        self._publisher.report(loss, self._safe.handed_over(None), reason=reason)

    async def _follow(self, backoff: Backoff) -> None:
        self._machine_id = _machine_id()
        async with _running(arguments(self._config, self._read_up_to, self._machine_id)) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            said = _Said()
            listening = asyncio.ensure_future(said.listen(process.stderr))
            try:
                self._trouble = None
                self.ready.set()
                async for line in _lines(process.stdout):
                    if not await self._has_room():
                        return
                    if self._take(line):
                        backoff.reset()
            finally:
                listening.cancel()
                await asyncio.gather(listening, return_exceptions=True)
            await process.wait()
        _check_said(said.text, process.returncode)
        raise JournalFailure(f"journalctl ended ({said.text or process.returncode})")

    async def _has_room(self) -> bool:
        """Wait for room; False when it took so long that the journal may have moved on meanwhile."""
        began_s = time.monotonic()
        if self._stopping:
            await asyncio.Event().wait()  # until cancelled
        await self._publisher.room()
        return time.monotonic() - began_s < BLOCKED_S

    def _take(self, line: bytes | _Cut) -> bool:
        """Whether it was new, and not the entry read last, with which journalctl begins."""
        now_ms = time.time_ns() // 1_000_000
        entry = None if isinstance(line, _Cut) else _entry(line)
        cursor = None if entry is None else entry.get("__CURSOR")
        if cursor is not None and cursor == self._read_up_to:
            return False
        after = cursor if isinstance(cursor, str) else None
        on_acked = self._safe.handed_over(after)
        if entry is not None:
            self._read_up_to = after or self._read_up_to
            self._publisher.offer(entry_record(self._config, entry, now_ms, self._machine_id), on_acked)
            return True
        beginning = entry_record(self._config, {}, now_ms)
        if isinstance(line, _Cut):
            letter = replace(beginning, value=line.beginning)
            loss = Loss(new_loss_id(), CAUSE_TOO_LARGE, self._config.topic, 1, line.bytes - len(line.beginning), now_ms)
            detail = f"a journal entry of {line.bytes} bytes as JSON"
            self._publisher.dead_letter(letter, REASON_LINE_TOO_LONG, detail, on_acked, loss)
        else:
            letter = replace(beginning, value=line)
            self._publisher.dead_letter(letter, REASON_NOT_JSON, "journalctl wrote no JSON object", on_acked)
        return True


def _content(cursor: str) -> dict[str, Any]:
    return {"cursor": cursor}


def _load(path: Path) -> str | None:
    saved = state.load(path)
    if saved is None:
        return None
    cursor = saved.get("cursor")
    if not isinstance(cursor, str) or not cursor.isprintable() or not 0 < len(cursor) < 1_000:
        raise state.StateError(f"{path} holds no cursor: remove it, and the journal is read as if it were new.")
    return cursor


def _entry(line: bytes) -> dict[str, Any] | None:
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return entry if isinstance(entry, dict) else None


def _check_said(errors: str, status: int | None) -> None:
    """Raise what journalctl means by its warnings, in words that name the remedy."""
    _check_rights(errors)
    if "Failed to open" in errors or "No such file" in errors:
        raise JournalFailure(f"journalctl finds no journal ({errors.strip().splitlines()[-1]})")
    if "Failed to seek to cursor" in errors:
        raise JournalFailure("journalctl does not know the saved place: remove journal.json in state_dir")
    if status:
        raise JournalFailure(f"journalctl failed ({(errors.strip() or _ending(status)).splitlines()[-1][:200]})")


def _ending(status: int) -> str:
    return f"ended by signal {-status}" if status < 0 else f"status {status}"


def _check_rights(errors: str) -> None:
    if "insufficient permissions" in errors or "not seeing messages from other users" in errors:
        raise JournalFailure(
            "the gateway's user may not read the journal: add it to the group systemd-journal, and start it again"
        )


class _Said:
    """The last of what journalctl writes to stderr."""

    text = ""

    async def listen(self, stderr: asyncio.StreamReader) -> None:
        """Keep the last KiB until the end."""
        while chunk := await stderr.read(1_024):
            self.text = (self.text + chunk.decode(errors="replace"))[-1_024:]


@contextlib.asynccontextmanager
async def _running(command: list[str]) -> AsyncIterator[asyncio.subprocess.Process]:
    """A journalctl that ends with the block; raises JournalFailure where there is none."""
    pipe = asyncio.subprocess.PIPE
    environment = {**os.environ, "LC_ALL": "C.UTF-8", "SYSTEMD_COLORS": "0"}
    try:
        process = await asyncio.create_subprocess_exec(
            *command, stdin=asyncio.subprocess.DEVNULL, stdout=pipe, stderr=pipe, env=environment, limit=LINE_BYTES_MAX
        )
    except FileNotFoundError:
        raise JournalFailure("journalctl is not installed: [journal] needs systemd, else follow [[files]]") from None
    except OSError as error:
        raise JournalFailure(f"journalctl cannot be started ({error.strerror})") from error
    try:
        yield process
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
        await process.wait()


async def _lines(stdout: asyncio.StreamReader) -> AsyncIterator[bytes | _Cut]:
    """The lines without their end; of one that is too long the beginning. A last one without its end is left."""
    beginning, cut_bytes = b"", 0
    while True:
        try:
            line = await stdout.readuntil(b"\n")
        except asyncio.LimitOverrunError as overrun:
            chunk = await stdout.readexactly(overrun.consumed or 1)
            beginning = (beginning + chunk)[:KEPT_BYTES_MAX]
            cut_bytes += len(chunk)
            continue
        except asyncio.IncompleteReadError:
            return
        if cut_bytes:
            yield _Cut(beginning, cut_bytes + len(line) - 1)
            beginning, cut_bytes = b"", 0
        else:
            yield line[:-1]
