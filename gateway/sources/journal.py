"""Publish journal entries; each chain of journal files has its own position, saved after acks=all.

| state | condition | next |
|---|---|---|
| new | no state file | `start = "end"`: save the ends of all chains, then read; `"beginning"`: read |
| version 1 | the state file has one cursor of journalctl | convert it once journal files exist |
| reading | | read each chain; save acknowledged positions |
| idle | nothing is unread | poll after POLL_S |
| empty | no journal file exists | `problem` reports it; poll again |

The gateway reads the files itself, without a process. journalctl and libsystemd merge all files into one order. They
skip entries that sort before the last one shown: those of a machine whose clock is late.
Source: systemd.journal-fields(7); gateway/systemd_journal reads the files.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

from drupelet.host.boot_clock import BootMoment
from drupelet.observe.log_tree import Log
from gateway import state
from gateway.config import PRIORITIES, JournalConfig
from gateway.kafka.publisher import Publisher
from gateway.records.dead_letters import REASON_LINE_TOO_LONG
from gateway.records.records import CAUSE_SOURCE_GONE, CAUSE_TOO_LARGE, Loss, Record, loss_id_for
from gateway.sources.acked_position import SafePlace
from gateway.systemd_journal.compression import LongValue, Value
from gateway.systemd_journal.directory import PERSISTENT, VOLATILE, Directories, Root
from gateway.systemd_journal.positions import (
    Cursor,
    EntriesLost,
    EntryRead,
    Event,
    Position,
    Positions,
    from_json,
    parse_cursor,
    to_json,
)
from gateway.systemd_journal.reader import JournalReader
from gateway.systemd_journal.selection import Selection

POLL_S = 0.25
MOVED_SAVE_S = 60.0  # entries that are not selected move a position; a write for each would wear the storage device
MACHINE_ID = Path("/etc/machine-id")
_HEADERS = {"_HOSTNAME": "host", "_SYSTEMD_UNIT": "unit", "SYSLOG_IDENTIFIER": "identifier", "PRIORITY": "priority"}
_log = Log("gateway.journal")

ResultT = TypeVar("ResultT")


def entry_record(
    config: JournalConfig,
    fields: Mapping[str, Sequence[Value]],
    position: Position,
    now_ms: int,
    machine_id: str | None = None,
) -> Record:
    """Return the record of an entry: its message, at its own time, under headers that name host and unit.

    `position` is the one after the entry. An entry of another machine than `machine_id` has that machine's time.
    """
    found = [(header, _first(fields[name])) for name, header in _HEADERS.items() if fields.get(name)]
    by_name = dict(found)
    key = by_name.get("unit") or by_name.get("identifier") or by_name.get("host") or b"journal"
    return Record(
        source="journal",
        topic=config.topic,
        key=key,
        value=_first(fields.get("MESSAGE", ())),
        headers=(("source", b"journal"), *found),
        timestamp_ms=position.realtime_us // 1000,
        received_ms=now_ms,
        origin=config.topic,
        route="journal",
        moment=BootMoment(str(uuid.UUID(position.boot_id)), position.monotonic_us // 1000),
        foreign_clock=machine_id is not None and position.machine_id != machine_id,
    )


def _first(values: Sequence[Value]) -> bytes:
    value = values[0] if values else b""
    return value.beginning if isinstance(value, LongValue) else value


def roots_of(config: JournalConfig) -> list[Root]:
    """Return the directories of the configured journal: those of this machine, or of the configured `directory`."""
    if config.directory is not None:
        return [Root(config.directory, "")]
    machine_id = _machine_id()
    return [
        Root(PERSISTENT, "var", only_machine=machine_id),
        Root(VOLATILE, "run", is_volatile=True, only_machine=machine_id),
    ]


def _machine_id() -> str | None:
    """Return this machine's id, see machine-id(5); None before systemd has set one."""
    try:
        text = MACHINE_ID.read_text(errors="replace").strip()
    except OSError:
        return None
    return text if len(text) == 32 and text.isalnum() else None


class JournalSource:
    """Publishes the journal's entries; `run` works until cancelled."""

    name = "journal"

    def __init__(self, config: JournalConfig, publisher: Publisher, path: Path) -> None:
        """Read the saved positions; raises StateError."""
        self._config = config
        self._publisher = publisher
        self._saved = _load(path)
        positions = self._saved if isinstance(self._saved, dict) else None
        name = "the position in the journal"
        self._safe: SafePlace[Positions] = SafePlace(
            path, name, to_json, config.save_interval_ms, positions, merge=_merge
        )
        priority_max = None if config.priority == "debug" else PRIORITIES.index(config.priority)
        self._selection = Selection(config.units, priority_max)
        self._reader = JournalReader(Directories(roots_of(config)), self._selection, positions, time.monotonic)
        self._machine_id = _machine_id()
        self._stopping = False
        self._problem: str | None = None
        self.ready = asyncio.Event()

    def problem(self) -> str | None:
        """Return in one line why the journal is not read or its position not saved, or None."""
        return self._problem or self._safe.trouble

    def note(self) -> str | None:
        """Return None: the source has no note."""
        return None

    def stop_reading(self) -> None:
        """Read no more entries."""
        self._stopping = True

    async def run(self) -> None:
        """Publish entries until cancelled; then save the acknowledged positions."""
        async with self._safe.keep_saved():
            try:
                await self._read()
            finally:
                self._reader.close()

    async def _read(self) -> None:
        await self._find_start()
        moved_s = time.monotonic()
        while True:
            events = await _in_thread(self._reader.next_events)
            self._note_problems()
            self.ready.set()
            for event in events:
                await self._room()
                self._take(event)
            if events:
                continue
            if self._stopping or time.monotonic() - moved_s >= MOVED_SAVE_S:
                moved_s = time.monotonic()
                for moved in self._reader.moved_positions():
                    self._safe.handed_over({moved.chain: moved.position})()
            await asyncio.sleep(POLL_S)

    async def _find_start(self) -> None:
        """Set the chains to their positions from a new state file, or from the cursor of version 1."""
        if self._saved is None:
            at_end = self._config.start == "end"
            await self._safe.begin(await _in_thread(partial(self._reader.start, at_end=at_end)))
        elif isinstance(self._saved, Cursor):
            await self._take_over(self._saved)

    async def _take_over(self, cursor: Cursor) -> None:
        while True:
            taken = await _in_thread(partial(self._reader.take_over, cursor))
            if taken.positions:
                break
            self._note_problems()
            self.ready.set()
            await asyncio.sleep(POLL_S)
        if taken.is_found and taken.is_certain:
            await self._safe.begin(taken.positions)
            return
        loss = Loss(loss_id_for("journal", cursor.text), CAUSE_SOURCE_GONE, self._config.topic, None, None, _now_ms())
        reason = "before the upgrade, entries of machines whose clock was late were perhaps passed over"
        if not taken.is_found:
            reason = "the journal no longer holds the entry that was read last: rotated, vacuumed or volatile"
        self._publisher.report(loss, self._safe.handed_over(taken.positions), reason=f"{reason} ({cursor.text})")

    async def _room(self) -> None:
        if self._stopping:
            await asyncio.Event().wait()  # until cancelled
        await self._publisher.room()

    def _take(self, event: Event) -> None:
        on_acked = self._safe.handed_over({event.chain: event.position})
        if isinstance(event, EntryRead):
            self._publish(event, on_acked)
        elif isinstance(event, EntriesLost):
            self._report(event, on_acked)
        else:
            on_acked()

    def _publish(self, entry: EntryRead, on_acked: Callable[[], None]) -> None:
        now_ms = _now_ms()
        record = entry_record(self._config, entry.fields, entry.position, now_ms, self._machine_id)
        message = entry.fields.get("MESSAGE", [b""])[0]
        if not isinstance(message, LongValue):
            self._publisher.offer(record, on_acked)
            return
        loss_id = loss_id_for("journal", entry.chain, *entry.position.identity)
        lost_bytes = None if message.size is None else message.size - len(message.beginning)
        loss = Loss(loss_id, CAUSE_TOO_LARGE, self._config.topic, 1, lost_bytes, now_ms)
        detail = f"a message of {'unknown size' if message.size is None else f'{message.size} bytes'}"
        self._publisher.dead_letter(record, REASON_LINE_TOO_LONG, detail, on_acked, loss)

    def _report(self, lost: EntriesLost, on_acked: Callable[[], None]) -> None:
        records = lost.count if self._selection.chooses_all else None  # the number of selected ones is unknown
        loss = Loss(
            loss_id_for("journal", *lost.id_parts),
            CAUSE_SOURCE_GONE,
            self._config.topic,
            records,
            None,
            _now_ms(),
            machine_id=lost.machine_id,
            first_seqnum=lost.first_seqnum,
            last_seqnum=lost.last_seqnum,
        )
        self._publisher.report(loss, on_acked, reason=lost.reason)

    def _note_problems(self) -> None:
        found = self._reader.problems()
        if not found and not self._reader.has_files:
            found = [f"no journal file is in {self._places()}: whether entries are lost is unknown"]
        problem = None if not found else found[0] if len(found) == 1 else f"{found[0]}; {len(found) - 1} more"
        if problem is not None and self._problem is None:
            _log.warning("journal_unreadable", reason=problem)
        self._problem = problem

    def _places(self) -> str:
        return " or ".join(str(root.path) for root in roots_of(self._config))


async def _in_thread(work: Callable[[], ResultT]) -> ResultT:
    """Run blocking work to its end, also when cancelled: the caller then closes the reader's files."""
    task = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        with contextlib.suppress(Exception):
            await task
        raise


def _merge(before: Positions, moved: Positions) -> Positions:
    return {chain: position for chain, position in {**before, **moved}.items() if position is not None}


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _load(path: Path) -> dict[str, Position] | Cursor | None:
    saved = state.load(path)
    if saved is None:
        return None
    found = from_json(saved) if "version" in saved else parse_cursor(saved.get("cursor"))
    if found is None:
        raise state.StateError(f"{path} holds no position: remove it, and the journal is read as if it were new.")
    return found
