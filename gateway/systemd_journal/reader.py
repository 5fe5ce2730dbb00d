"""Read chains of journal files, each from its own position, and find entries that were deleted unread.

A chain is read file by file. journalctl merges files by time or sequence number, and never shows an entry that it
orders before the last one shown: entries of a machine whose clock is late never appear. The order of arrival exists
only within a file, so each chain has a position. The files are read here because a process of journalctl per chain
costs memory, and neither journalctl nor libsystemd tells a file's id, its count of entries, or that it was deleted.

| state of a chain's file | condition | next |
|---|---|---|
| unread | it is the first of the chain, or the one after the last final one | open it |
| open | entries are unread | read them |
| open, at its end | journald may append | wait |
| open, at its end | archived, or deleted, or a later file exists | final: open the next |
| final, archived | journald writes another chain of the kind | ended, or a later file is lost |
| gone, not final | a later file exists | the sequence numbers between are missing |
| gone, not final | no other file of the chain exists | flushed to /var, or lost |

Missing sequence numbers between two files of a chain are lost (missing.py) once two scans CONFIRM_S apart show them: a
rename during a scan hides a file. A file that the gateway may not read is named, and the chain waits for it.

| entry | then |
|---|---|
| corrupt, in a file that journald writes | wait SETTLE_S: journald may be writing it |
| corrupt, else | lost; the entries around it are read |
| in /var, of the boot and time that a chain in /run covers | a copy by the flush: read once |
| the same as the last of the file before it | journald 252 repeats it when the file was full |

Blocking: run it in a thread. Does not contain: publishing, the state file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from gateway.systemd_journal.chain import Chain
from gateway.systemd_journal.compression import CorruptionError
from gateway.systemd_journal.directory import Directories, JournalFileInfo, Scan
from gateway.systemd_journal.file_format import Entry, JournalFile, UnreachableError, UnsupportedFileError
from gateway.systemd_journal.lookups import OpenedFile, first_entry, is_local, is_named, readable, short_values, text_of
from gateway.systemd_journal.missing import MissingEntries
from gateway.systemd_journal.positions import (
    Cursor,
    EntriesLost,
    EntryRead,
    Event,
    Position,
    PositionMoved,
    TakenOver,
    event_bytes,
    identity_of,
)
from gateway.systemd_journal.selection import Selection

SCAN_S = 1.0  # a scan costs 1 ms of CPU for each 100 files on x86
CONFIRM_S = 1.0
SETTLE_S = 2.0
CHAIN_ENTRIES_MAX = 64  # of one chain, before the next has its turn
EVENTS_MAX = 256
EVENT_BYTES_MAX = 1 << 20
RECORD_FIELDS = ("MESSAGE", "_HOSTNAME", "_SYSTEMD_UNIT", "SYSLOG_IDENTIFIER", "PRIORITY")
MACHINE_FIELD = "_MACHINE_ID"


class JournalReader:
    """Reads on in all chains; `next_events` returns what it finds, in the order of each chain."""

    def __init__(
        self,
        directories: Directories,
        selection: Selection,
        positions: Mapping[str, Position] | None,
        clock: Callable[[], float],
    ) -> None:
        """Go on from the positions; None: nothing was ever read."""
        self._directories = directories
        self._selection = selection
        self._clock = clock
        self._wanted = frozenset({*RECORD_FIELDS, MACHINE_FIELD, *selection.fields})
        self._chains: dict[str, Chain] = {}
        self._scan = Scan()
        self._scanned_s: float | None = None
        self._turn = 0
        self._missing = MissingEntries(
            self._chains, is_first_start=positions is None, has_volatile=directories.has_volatile
        )
        self._unreadable: dict[str, str] = {}  # by chain: why its next file cannot be opened
        self._ended_before: frozenset[str] = frozenset()  # chains that had ended at the first start: nothing is missing
        for name, position in (positions or {}).items():
            self._chain(name, position.volatile_from_us is not None).position = position

    def close(self) -> None:
        """Close all files."""
        for chain in self._chains.values():
            chain.close()

    @property
    def has_files(self) -> bool:
        """Return whether the last scan found a journal file, also one without entries."""
        return self._scan.file_count > 0

    def problems(self) -> list[str]:
        """Return one sentence for each directory or file that cannot be read."""
        return [*self._scan.problems, *(file.reason for file in self._scan.unreadable), *self._unreadable.values()]

    # --- the first positions

    def start(self, *, at_end: bool) -> dict[str, Position]:
        """Put every chain that exists at its end or its beginning, and return the positions."""
        self._look_first()
        for name, files in self._scan.chains.items():
            info = files[-1 if at_end else 0]
            with OpenedFile(info) as file:
                if file is not None:
                    self._place(name, files, info, file, file.count if at_end else 0)
        return self._chain_positions()

    def take_over(self, cursor: Cursor) -> TakenOver:
        """Put every chain where a reader of the merged order was."""
        self._look_first()
        is_found = False
        for name, files in self._scan.chains.items():
            found = self._after_cursor(cursor, name, files)
            is_found = is_found or found
        is_certain = not any(self._may_be_passed_over(cursor, chain) for chain in self._chains.values())
        return TakenOver(self._chain_positions(), is_found, is_certain)

    def _may_be_passed_over(self, cursor: Cursor, chain: Chain) -> bool:
        """Return whether another machine wrote the entries that the cursor is after: its clock alone ordered them."""
        position = chain.position
        if position is None or not position.count or position.boot_id == cursor.boot_id:
            return False
        own = [each for each in self._chains.values() if each.name.endswith(f"|{cursor.seqnum_id}")]
        return chain not in own and not (
            is_local(chain.kind) and any(is_local(each.kind) and each.machine == chain.machine for each in own)
        )

    def _after_cursor(self, cursor: Cursor, name: str, files: list[JournalFileInfo]) -> bool:
        """Put a chain after the cursor's entry; return whether the chain holds it, or shows what is missing."""
        seqnum_id, is_found = files[0].header.seqnum_id, False
        chosen: tuple[JournalFileInfo, int] | None = None
        for info in files:
            with OpenedFile(info) as file:
                if file is None:
                    continue
                count = file.first_after(lambda entry: cursor.is_before(entry, seqnum_id))
                is_found = is_found or (count > 0 and is_named(cursor, file, count - 1))
                if chosen is None or count:
                    chosen = (info, count)
                if count < file.count:
                    break
        if chosen is None:
            return False
        with OpenedFile(chosen[0]) as file:
            if file is None:
                return is_found
            self._place(name, files, chosen[0], file, chosen[1])
        chain = self._chains[name]
        if seqnum_id != cursor.seqnum_id or chosen[1] or chain.position is None:
            return is_found
        # what the cursor names is gone, and perhaps entries after it: the gap shows when the first file is opened
        gone = replace(chain.position, file_id="", head_seqnum=-1, seqnum=cursor.seqnum, tail_seqnum=cursor.seqnum)
        gone = replace(gone, monotonic_us=cursor.monotonic_us, realtime_us=cursor.realtime_us)
        chain.position = replace(gone, boot_id=cursor.boot_id)
        return True

    def _place(
        self, name: str, files: list[JournalFileInfo], info: JournalFileInfo, file: JournalFile, count: int
    ) -> None:
        """Put a chain after the first `count` entries of a file."""
        chain = self._chain(name, info.is_volatile)
        position = replace(self._before(chain, info, files[0]), count=count)
        entry = None if count == 0 else readable(file, count - 1)
        if entry is not None:
            position = replace(position.with_entry(entry, info.header.machine_id), count=count)
        chain.position = position

    def _chain_positions(self) -> dict[str, Position]:
        return {name: chain.position for name, chain in self._chains.items() if chain.position is not None}

    # --- reading on

    def next_events(self) -> list[Event]:
        """Return the next events; empty if all is read."""
        now_s = self._clock()
        is_fresh = self._scanned_s is None or not 0 <= now_s - self._scanned_s < SCAN_S
        if is_fresh:
            self._scan_directories()
        before = [chain.position for chain in self._chains.values()]
        self._unreadable.clear()
        events: list[Event] = []
        bytes_left = EVENT_BYTES_MAX
        for chain in self._in_turn():
            if not chain.is_volatile and self._volatile_is_unread(chain):
                continue
            for event in self._read_chain(chain, now_s):
                events.append(event)
                bytes_left -= event_bytes(event)
                if bytes_left <= 0:
                    break
            if len(events) >= EVENTS_MAX or bytes_left <= 0:
                break
        self._turn += 1
        if not events:
            # a chain that began after the scan may have entries before those that were read since
            is_unmoved = before == [chain.position for chain in self._chains.values()]
            events += self._found_at_rest(now_s, may_raise_tails=is_fresh and is_unmoved)
        return events

    def _scan_directories(self) -> None:
        self._scan = self._missing.scan = self._directories.scan()
        self._scanned_s = self._clock()
        for name, files in self._scan.chains.items():
            self._chain(name, files[0].is_volatile).seen = files[-1]

    def _look_first(self) -> None:
        self._scan_directories()
        self._missing.is_first_start = False
        self._ended_before = frozenset(
            chain.name for chain in self._chains.values() if self._missing.is_superseded(chain)
        )

    def _chain(self, name: str, is_volatile: bool) -> Chain:
        chain = self._chains.get(name)
        if chain is None:
            label, kind, _ = name.split("|", 2)
            chain = self._chains[name] = Chain(name, label, kind, is_volatile)
        return chain

    def _in_turn(self) -> list[Chain]:
        """Return all chains, those in /run first; the first of the others changes from turn to turn."""
        chains = list(self._chains.values())
        volatile = [chain for chain in chains if chain.is_volatile]
        lasting = [chain for chain in chains if not chain.is_volatile]
        start = self._turn % len(lasting) if lasting else 0
        return [*volatile, *lasting[start:], *lasting[:start]]

    def _read_chain(self, chain: Chain, now_s: float) -> Iterator[Event]:
        try:
            if chain.file is None:
                yield from self._open_next(chain, now_s)
            if chain.file is not None:
                yield from self._read_file(chain, chain.file, now_s)
        except (OSError, UnsupportedFileError) as error:
            chain.close()
            self._unreadable[chain.name] = (
                f"a journal file of {chain.label or 'the directory'} cannot be read ({error})"
            )

    def _read_file(self, chain: Chain, file: JournalFile, now_s: float) -> Iterator[Event]:
        file.refresh()
        if not chain.name.endswith(f"|{file.header.seqnum_id}"):
            yield self._end_renumbered(chain)
            return
        for _ in range(CHAIN_ENTRIES_MAX):
            position = chain.position
            assert position is not None
            if position.count >= file.count:
                break
            try:
                entry = file.entry(position.count)
                fields = file.fields(entry, self._wanted)
            except CorruptionError as error:
                if not self._is_complete(chain, file) and not chain.is_confirmed(position.count, now_s, SETTLE_S):
                    return
                yield self._corrupt(chain, file, position, error)
                continue
            if not chain.is_volatile and self._volatile_is_unread(chain, entry):
                return
            source = None if chain.is_volatile else self._flushed_from(chain, entry)
            if source is not None and source.is_dirty:  # before the copies: what proves the flush is saved first
                source.is_dirty = False
                yield PositionMoved(source.name, source.position)
            is_copy = source is not None or identity_of(entry) == position.identity
            machine_id = text_of(fields.get(MACHINE_FIELD)) or file.header.machine_id
            chain.position = position = position.with_entry(entry, machine_id)
            if is_copy or not self._selection.chooses(short_values(fields)):
                chain.is_dirty = True
                continue
            chain.is_dirty = False
            yield EntryRead(chain.name, position, entry.realtime_us, fields)
        else:
            return
        yield from self._end_file(chain, file)

    def _end_renumbered(self, chain: Chain) -> Event:
        """End a chain whose last file journald gave another sequence number id, as it may before the first entry."""
        assert chain.position is not None
        chain.close()
        chain.position = replace(chain.position, is_final=True, is_ended=True)
        chain.is_dirty = False
        return PositionMoved(chain.name, chain.position)

    def _corrupt(self, chain: Chain, file: JournalFile, position: Position, error: CorruptionError) -> Event:
        """Skip the corrupt entries from the position on."""
        end, count = position.count + 1, file.count
        while end < count and not isinstance(error, UnreachableError):
            try:
                file.fields(file.entry(end), self._wanted)
                break
            except UnreachableError:
                break
            except CorruptionError:
                end += 1
        if isinstance(error, UnreachableError):
            end = count
        lost = None if isinstance(error, UnreachableError) and file.header.n_entries > count else end - position.count
        chain.position = replace(position, count=end)
        chain.is_dirty = False
        return EntriesLost(
            chain.name,
            chain.position,
            ("corrupt", chain.name, position.file_id, position.count),
            position.machine_id or file.header.machine_id,
            None,
            None,
            lost,
            f"entries {position.count + 1} to {end} of a journal file of {chain.label or chain.kind} are corrupt"
            f" ({error})",
        )

    def _end_file(self, chain: Chain, file: JournalFile) -> Iterator[Event]:
        """Close a file that is read to its end, where journald appends no more to it."""
        position = chain.position
        assert position is not None
        if not self._is_complete(chain, file):
            newest = self._info_of(chain, position)
            if newest is not None and newest.inode != file.inode and newest.header.n_entries > position.count:
                chain.close()  # a copy that grew replaces the file
            return
        later = self._later(chain)
        tail = min(file.header.tail_seqnum, later[0].head_seqnum - 1 if later else position.seqnum + 1)
        chain.close()
        # journald 252 set it aside after a power loss
        is_ended = not later and (not file.header.is_archived or chain.name in self._ended_before)
        chain.position = replace(position, is_final=True, is_ended=is_ended, seqnum=max(position.seqnum, tail))
        chain.is_dirty = False
        yield PositionMoved(chain.name, chain.position)

    def _is_complete(self, chain: Chain, file: JournalFile) -> bool:
        """Return whether journald appends no more to the open file, as the last scan and the header show."""
        position = chain.position
        assert position is not None
        info = self._info_of(chain, position)
        if info is None:
            return file.is_deleted or file.header.is_archived
        if info.inode != file.inode and info.header.n_entries > position.count:
            return False
        return info.is_archived or bool(self._later(chain))

    # --- from file to file

    def _open_next(self, chain: Chain, now_s: float) -> Iterator[Event]:
        position = chain.position
        if position is not None:
            info = self._info_of(chain, position)
            if info is not None and (not position.is_final or info.header.n_entries > position.count):
                self._resume(chain, position, info)
                return
        later = self._later(chain)
        if not later or self._is_held(chain, later[0]):
            return
        info = later[0]
        before = self._before(chain, info, info if position is None else None)
        lost = self._missing.lost_before(chain, info, before)
        if lost is not None and not chain.is_confirmed(lost.id_parts, now_s, CONFIRM_S):
            self._scanned_s = None
            return
        file = JournalFile(info.path)
        if file.header.file_id != info.header.file_id:  # renamed since the scan
            file.close()
            self._scanned_s = None
            return
        chain.file, chain.position, chain.suspicion = file, before, None
        if lost is not None:
            chain.position = lost.position
            yield lost
        elif position is None:  # saved before its first record: a chain that is lost soon after shows
            yield PositionMoved(chain.name, before)

    def _resume(self, chain: Chain, position: Position, info: JournalFileInfo) -> None:
        file = JournalFile(info.path)
        if file.header.file_id != position.file_id:  # renamed since the scan
            file.close()
            self._scanned_s = None
            return
        chain.file = file
        entry = readable(file, position.count - 1) if 0 < position.count <= file.count else None
        if entry is not None and identity_of(entry) != position.identity and position.seqnum >= position.head_seqnum:
            count = file.first_after(lambda each: each.seqnum > position.seqnum)
            chain.position = replace(position, count=count)

    def _before(self, chain: Chain, info: JournalFileInfo, first: JournalFileInfo | None) -> Position:
        """Return the position before a file's first entry; `first` is the chain's first file if it had none."""
        header, position = info.header, chain.position
        if position is not None and first is None:
            return replace(
                position,
                file_id=header.file_id,
                head_seqnum=info.head_seqnum,
                head_realtime_us=header.head_realtime_us,
                count=0,
                seqnum=info.head_seqnum - 1,
                is_final=False,
                is_ended=False,
            )
        since = None
        if info.is_volatile:
            entry = first_entry(first or info)
            since = 0 if entry is None else entry.monotonic_us
        before, tail = info.head_seqnum - 1, self._missing.tail_before(chain, info)
        return Position(
            file_id=header.file_id,
            head_seqnum=info.head_seqnum,
            head_realtime_us=header.head_realtime_us,
            count=0,
            seqnum=before,
            tail_seqnum=tail,
            is_final=False,
            is_ended=False,
            machine_id=header.machine_id,
            volatile_from_us=since,
            is_flushed=False,
            boot_id="",
            monotonic_us=0,
            realtime_us=0,
            xor_hash=0,
        )

    def _later(self, chain: Chain) -> list[JournalFileInfo]:
        return chain.later(self._scan.chains.get(chain.name, []))

    def _info_of(self, chain: Chain, position: Position) -> JournalFileInfo | None:
        """Return the file that the position names; of copies the one with the most entries."""
        found = [info for info in self._scan.chains.get(chain.name, ()) if info.header.file_id == position.file_id]
        return max(found, key=lambda info: info.header.n_entries, default=None)

    def _is_held(self, chain: Chain, info: JournalFileInfo) -> bool:
        """Return whether a file that the gateway may not read belongs before this one."""
        head = -1 if chain.position is None else chain.position.head_seqnum
        return any(
            file.is_denied
            and (file.label, file.kind) == (chain.label, chain.kind)
            and file.seqnum_id == info.header.seqnum_id
            and file.head_seqnum is not None
            and head < file.head_seqnum < info.head_seqnum
            for file in self._scan.unreadable
        )

    # --- /run and /var

    def _covering(self, chain: Chain, entry: Entry | None = None) -> Iterator[tuple[Chain, Position]]:
        """Yield the chains in /run of the same machine, and of the entry's boot."""
        for each in self._chains.values():
            position = each.position
            if not each.is_volatile or each.machine != chain.machine or position is None:
                continue
            if entry is None or position.boot_id == entry.boot_id:
                yield each, position

    def _volatile_is_unread(self, chain: Chain, entry: Entry | None = None) -> bool:
        """Return whether a chain in /run has entries that are read before those in /var."""
        for each, position in self._covering(chain, entry):
            if entry is not None and entry.monotonic_us <= position.monotonic_us:
                continue
            if each.file is not None:
                each.file.refresh()
                if position.count < each.file.count:
                    return True
        return False

    def _flushed_from(self, chain: Chain, entry: Entry) -> Chain | None:
        """Return the chain in /run from which journald copied the entry, where it was read there."""
        for each, position in self._covering(chain, entry):
            since = position.volatile_from_us or 0
            is_last = (entry.monotonic_us, entry.xor_hash) == (position.monotonic_us, position.xor_hash)
            if since <= entry.monotonic_us < position.monotonic_us or is_last:
                if not position.is_flushed:
                    each.position = replace(position, is_flushed=True)
                    each.is_dirty = True
                return each
        return None

    # --- what shows when nothing is left to read

    def _found_at_rest(self, now_s: float, *, may_raise_tails: bool) -> list[Event]:
        events: list[Event] = []
        for chain in list(self._chains.values()):
            if chain.file is not None or self._has_unreadable(chain):
                continue
            find = self._end_superseded if self._scan.chains.get(chain.name) else self._check_vanished
            event = find(chain, chain.position, now_s)
            if event is not None:
                events.append(event)
        if may_raise_tails:
            self._missing.raise_tails()
        for chain in self._chains.values():
            if chain.tail_moved and not events:
                chain.tail_moved = False
                events.append(PositionMoved(chain.name, chain.position))
        return events

    def moved_positions(self) -> list[PositionMoved]:
        """Return the positions that have moved since the last event of their chain."""
        found = [PositionMoved(chain.name, chain.position) for chain in self._chains.values() if chain.is_dirty]
        for chain in self._chains.values():
            chain.is_dirty = False
        return found

    def _has_unreadable(self, chain: Chain) -> bool:
        return any(file.label == chain.label and file.kind == chain.kind for file in self._scan.unreadable)

    def _check_vanished(self, chain: Chain, position: Position | None, now_s: float) -> Event | None:
        """Return the event for a chain without files."""
        if position is None:
            return self._vanished_unread(chain, now_s)
        if position.is_ended or position.is_flushed:
            return None if self._is_needed(chain, position) else self._forget(chain)
        if self._has_another_id(position):
            return self._end_renumbered(chain)
        if chain.label not in self._scan.labels and not chain.is_volatile:
            return None  # not mounted, perhaps
        if not chain.is_confirmed(("vanished", position.count), now_s, CONFIRM_S):
            return None
        if chain.is_volatile:  # kept for the copies in /var that may still come
            after = chain.position = replace(position, is_final=True, is_ended=True)
        else:
            after = None
        lost = self._lost_after(chain, position, after)
        if after is None:
            self._forget(chain)
        return lost

    def _has_another_id(self, position: Position) -> bool:
        """Return whether the position's file had no entry yet when journald gave it another sequence number id."""
        infos = (info for files in self._scan.chains.values() for info in files)
        return position.count == 0 and any(info.header.file_id == position.file_id for info in infos)

    def _end_superseded(self, chain: Chain, position: Position | None, now_s: float) -> Event | None:
        """End a chain that is read whole once journald writes another one of its kind.

        journald made a file after an archived one. Where no chain goes on from its number, that file may be lost.
        """
        if position is None or position.is_ended or self._later(chain) or not self._missing.is_superseded(chain):
            return None
        if not position.is_final and (self._info_of(chain, position) or self._has_another_id(position)):
            return None
        if not chain.is_confirmed(("superseded", position.seqnum), now_s, CONFIRM_S):
            return None
        ended = chain.position = replace(position, is_ended=True)
        if self._missing.is_continued(chain):
            return PositionMoved(chain.name, ended)
        return self._lost_after(chain, position, ended)

    def _lost_after(self, chain: Chain, position: Position, after: Position | None) -> EntriesLost:
        """Return the loss of what the chain may have had after the entry that was read last."""
        parts = ("vanished", chain.name, position.seqnum)
        return self._missing.loss_of(chain, after, parts, position.seqnum + 1, None, None)

    def _vanished_unread(self, chain: Chain, now_s: float) -> Event | None:
        """Return the event for a chain whose files were seen but never opened."""
        files = {info.header.file_id for files in self._scan.chains.values() for info in files}
        seen = chain.seen
        if seen is not None and seen.header.file_id in files:  # it has another sequence number id
            lost = self._missing.lost_before(chain, seen, None)
            if lost is None:
                return self._forget(chain)
            if not chain.is_confirmed(lost.id_parts, now_s, CONFIRM_S):
                return None
            self._forget(chain)
            return lost
        if chain.label not in self._scan.labels and not chain.is_volatile:
            return None
        if not chain.is_confirmed("vanished unread", now_s, CONFIRM_S):
            return None
        self._forget(chain)
        return self._missing.loss_of(chain, None, ("vanished", chain.name), None, None, None)

    def _is_needed(self, chain: Chain, position: Position) -> bool:
        """Return whether a chain in /run still tells copies in /var apart."""
        if not chain.is_volatile:
            return False
        lasting = [each for each in self._chains.values() if not each.is_volatile and each.machine == chain.machine]
        return not lasting or any(
            each.position is None or each.position.boot_id == position.boot_id or self._has_unread(each)
            for each in lasting
        )

    def _has_unread(self, chain: Chain) -> bool:
        """Return whether the chain's open file, or one after it, has entries to read."""
        if chain.file is None or chain.position is None:
            return bool(self._scan.chains.get(chain.name))
        return chain.position.count < chain.file.count or bool(self._later(chain))

    def _forget(self, chain: Chain) -> PositionMoved:
        del self._chains[chain.name]
        return PositionMoved(chain.name, None)
