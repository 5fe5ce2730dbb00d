"""PURE: the read position of each chain of journal files, its form in the state file, and a reader's events.

A place in a file is a count of entries. A file grows at its end only, so the count stays true after a rename; no clock
and no other machine's entries take part in it. Does not contain: files, publishing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from gateway.systemd_journal.compression import LongValue, Value
from gateway.systemd_journal.file_format import Entry

_CURSOR = re.compile(r"s=([0-9a-f]{32});i=([0-9a-f]+);b=([0-9a-f]{32});m=([0-9a-f]+);t=([0-9a-f]+);x=([0-9a-f]+)")
_NUMBER_MAX = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class Position:
    """How far a chain has been read; the last four fields name the entry that was read last."""

    file_id: str  # the file that is being read
    head_seqnum: int  # its first entry, which orders it among the chain's files
    head_realtime_us: int
    count: int  # entries read of it
    seqnum: int  # of the entry read last
    tail_seqnum: int  # up to this one, each is read, reported as lost, or in a file of another chain
    is_final: bool  # journald appends no more to the file, and all of it is read
    is_ended: bool  # no file of the chain comes after this one
    machine_id: str
    volatile_from_us: int | None  # of a chain in /run: the first entry's monotonic time in its boot
    is_flushed: bool  # of a chain in /run: its entries have appeared in /var
    boot_id: str
    monotonic_us: int
    realtime_us: int
    xor_hash: int

    @property
    def identity(self) -> tuple[str, int, int, int]:
        """Return the identity of the entry, which is unique."""
        return self.boot_id, self.monotonic_us, self.realtime_us, self.xor_hash

    def with_entry(self, entry: Entry, machine_id: str) -> Position:
        """Return the position after the entry; a new boot may use the numbers up to the tail again."""
        is_other_boot = self.boot_id not in ("", entry.boot_id)
        return replace(
            self,
            count=self.count + 1,
            seqnum=entry.seqnum,
            tail_seqnum=min(self.tail_seqnum, self.seqnum) if is_other_boot else self.tail_seqnum,
            machine_id=machine_id,
            boot_id=entry.boot_id,
            monotonic_us=entry.monotonic_us,
            realtime_us=entry.realtime_us,
            xor_hash=entry.xor_hash,
        )


def identity_of(entry: Entry) -> tuple[str, int, int, int]:
    """Return the identity of the entry, which is unique."""
    return entry.boot_id, entry.monotonic_us, entry.realtime_us, entry.xor_hash


Positions = Mapping[str, Position | None]  # of each chain; None: the chain is forgotten


def to_json(positions: Positions) -> dict[str, Any]:
    """Return the state file's content."""
    return {
        "version": 2,
        "positions": {chain: asdict(position) for chain, position in positions.items() if position is not None},
    }


def from_json(content: Mapping[str, Any]) -> dict[str, Position] | None:
    """Return the positions of a state file, None where it holds no sound ones."""
    saved = content.get("positions")
    if content.get("version") != 2 or not isinstance(saved, dict):
        return None
    found = {chain: _position(value) for chain, value in saved.items()}
    return None if None in found.values() else {chain: position for chain, position in found.items() if position}


def _position(value: object) -> Position | None:
    if not isinstance(value, dict) or set(value) != {each.name for each in fields(Position)}:
        return None
    texts = [value["file_id"], value["machine_id"], value["boot_id"]]
    flags = [value["is_final"], value["is_ended"], value["is_flushed"]]
    since = value["volatile_from_us"]
    numbers = [
        item
        for name, item in value.items()
        if name.endswith(("_us", "seqnum", "count", "_hash")) and name != "volatile_from_us"
    ]
    numbers += [] if since is None else [since]
    sound = (
        all(isinstance(text, str) for text in texts)
        and all(isinstance(flag, bool) for flag in flags)
        and all(
            isinstance(number, int) and not isinstance(number, bool) and -1 <= number <= _NUMBER_MAX
            for number in numbers
        )
    )
    return Position(**value) if sound else None


@dataclass(frozen=True, slots=True)
class Cursor:
    """The one cursor over a merged order that version 1 of the state file holds, as journalctl wrote it."""

    text: str
    seqnum_id: str
    seqnum: int
    boot_id: str
    monotonic_us: int
    realtime_us: int
    xor_hash: int

    def is_before(self, entry: Entry, seqnum_id: str) -> bool:
        """Return whether journalctl orders the entry after the cursor."""
        if seqnum_id == self.seqnum_id:
            return entry.seqnum > self.seqnum
        if entry.boot_id == self.boot_id and entry.monotonic_us != self.monotonic_us:
            return entry.monotonic_us > self.monotonic_us
        return (entry.realtime_us, entry.xor_hash) > (self.realtime_us, self.xor_hash)

    def names(self, entry: Entry) -> bool:
        """Return whether the entry is the cursor's, or a copy of it in another file."""
        return identity_of(entry) == (self.boot_id, self.monotonic_us, self.realtime_us, self.xor_hash)


def parse_cursor(text: object) -> Cursor | None:
    """Return the cursor, None where the text is none."""
    match = _CURSOR.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        return None
    seqnum_id, seqnum, boot_id, monotonic, realtime, xor_hash = match.groups()
    return Cursor(
        match[0], seqnum_id, int(seqnum, 16), boot_id, int(monotonic, 16), int(realtime, 16), int(xor_hash, 16)
    )


@dataclass(frozen=True, slots=True)
class TakenOver:
    """Positions made of a cursor; whether its entry exists, and whether none before it can have been passed over."""

    positions: dict[str, Position]
    is_found: bool
    is_certain: bool


@dataclass(frozen=True, slots=True)
class EntryRead:
    """A chosen entry; `position` is the chain's after it."""

    chain: str
    position: Position
    realtime_us: int
    fields: Mapping[str, list[Value]]


@dataclass(frozen=True, slots=True)
class EntriesLost:
    """Entries that are gone unread or cannot be read; `count` and the sequence numbers None: unknown."""

    chain: str
    position: Position | None
    id_parts: tuple[object, ...]  # the same for the same loss
    machine_id: str
    first_seqnum: int | None
    last_seqnum: int | None
    count: int | None
    reason: str


@dataclass(frozen=True, slots=True)
class PositionMoved:
    """A position moved without a record: entries not chosen, a file that ended, a chain that is forgotten."""

    chain: str
    position: Position | None


Event = EntryRead | EntriesLost | PositionMoved


def event_bytes(event: Event) -> int:
    """Return about how much memory an event's values hold."""
    if not isinstance(event, EntryRead):
        return 0
    values = (value for values in event.fields.values() for value in values)
    return sum(len(value.beginning if isinstance(value, LongValue) else value) for value in values)
