"""SYNC: track the files of one followed path: which exist, their order of writing, which are open.

Device and inode identify a file, checked by its first bytes, under any name. Each poll of the directory does this:

| found | then |
|---|---|
| a known file, under any name | it keeps its place; if it grew after its end was read, reading continues |
| an open file without the bytes that were read | truncated: reading continues in its copy, and the path is a new file |
| a new file | opened at once if it has unread bytes, as an open file outlives its last name |
| a copy of a known file that exists | ignored: lines are read once, even if one of the two is truncated or removed |
| a copy of a known file that is gone, compressed or not | inherits that file's place |
| no name of an open file | read to its end |
| no name of a closed file | lost, after two polls without it, once a newer file exists |
| no known file, and new rotated ones | files between may have been deleted: a loss of unknown size |

At most HELD_MAX unread files and FINISHED_HELD_MAX finished ones are open. Files that exist when a path is first seen
count as read, except the path itself. Does not contain: reading (`tail`). Source: logrotate(8), rename(2), open(2).
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from drupelet.printable import name_text
from gateway.sources.file_reading.decompressed_file import DecodersBusyError
from gateway.sources.file_reading.interruption import InterruptedRead
from gateway.sources.file_reading.links import LINK, LinkRule, irregular_kind, matching
from gateway.sources.file_reading.open_file import NO_LINKS, OpenFile, can_read
from gateway.sources.file_reading.places import GONE, HEAD_BYTES_MAX, OLDER_MAX, UNSEEN, FamilyState, FileState, Place
from gateway.sources.file_reading.rotation import Entry, in_order, is_compressed, number_of, source_of
from gateway.sources.files.copies import has_size, holds_place, is_being_compressed, is_copy, last_line_start, opening
from gateway.sources.files.denied_files import MISSED_LOOKS_MIN, DeniedFiles
from gateway.sources.files.directory import directory_time, entry_of, refuse_irregular
from gateway.sources.files.family_file import (
    FamilyFile,
    count_as_read,
    from_entry,
    from_seen,
    id_of,
    is_intact,
    may_be_at,
    note_head,
    note_head_of,
    note_last,
)

HELD_MAX = 16
FINISHED_HELD_MAX = 2  # of finished files, to which a program may still write
ANY_TIME = -1
SCANS_MAX = 5  # for a copy that is renamed or compressed between two scans
WHOLE_LOOK_S = 5.0  # growth of a finished file does not change its directory
LOOKS_AFTER_CHANGE = 2  # a directory's time may be too coarse for the next change


@dataclass(frozen=True, slots=True)
class LostFile:
    """A file that is gone with `bytes` unread, None if unknown; or, UNSEEN, files that followed `place`."""

    place: Place
    bytes: int | None
    why: str
    kind: str = GONE


class Family:
    """The files of `path`; `update` updates them."""

    def __init__(
        self,
        path: Path,
        state: FamilyState | None,
        *,
        rotated: str | None = None,
        is_alone: bool = True,
        is_followed: Callable[[Path], bool] = lambda _path: False,
        start_at_end: bool = False,
        links: LinkRule = NO_LINKS,
    ) -> None:
        """Start from a saved state; `rotated` is a pattern of further files, all of this path if it `is_alone`.

        `is_followed` returns whether another source reads a path.
        """
        self.path = path
        self.files: list[FamilyFile] = []
        self.lost: list[LostFile] = []
        self._unopened: OSError | None = None  # why a file with unread bytes cannot be opened
        self._denied = DeniedFiles()
        self._by_inode_alone: set[str] = set()  # paths that belong to this one only if a known file is found there
        self._copies: set[tuple[int, int]] = set()  # new names that were copies of the path at the last poll
        self.changes = 0
        self._rotated = rotated
        self._is_alone = is_alone
        self._is_followed = is_followed
        self._start_at_end = start_at_end
        self._links = links
        self.left_out: dict[Path, str] = {}  # files with a matching name that are not opened, each with the reason
        self._signature: object = None
        self._whole_looks_due = 0
        self._whole_look_s = 0.0
        self._taken_over = state
        self._read_last: FamilyFile | None = None  # of an earlier run; a copy may inherit its place
        if state is not None:
            older = [from_seen(seen, links, is_finished=not seen.unread_bytes) for seen in state.older]
            newer = [from_seen(seen, links) for seen in state.newer]
            self._read_last = FamilyFile(state.place, max(state.size, state.place.position), links=links)
            self.files = [*older, self._read_last, *newer]
            for file in self.files[:-1]:
                file.may_grow = False

    def close(self) -> None:
        """Close all files."""
        for file in self.files:
            file.close()

    @property
    def trouble(self) -> OSError | None:
        """The reason why a file is not read now."""
        return self._unopened or self._denied.error

    @property
    def newest(self) -> FamilyFile | None:
        """The newest file by order of writing."""
        return self.files[-1] if self.files else None

    def has(self, file: FamilyFile) -> bool:
        """Return whether the file still belongs to the family."""
        return file in self.files

    def newer_than(self, file: FamilyFile) -> int:
        """Return how many files were written after it."""
        return len(self.files) - 1 - self.files.index(file)

    def next_to_read(self) -> FamilyFile | None:
        """Return the oldest unfinished file; None until a poll has found it, or missed it."""
        for file in self.files:
            if file.opened is not None and not file.is_finished:
                return file
            if file.path is None and not file.is_finished:
                return None
        return None

    def state(self, current: FamilyFile, place: Place) -> FamilyState:
        """Return the state with `place` in the `current` file."""
        at = self.files.index(current)
        older, newer = (
            tuple(FileState(file.place, max(file.size, file.place.position)) for file in files)
            for files in (self.files[:at], self.files[at + 1 :])
        )
        return FamilyState(place, older, newer, size=current.size)

    def finish(self, file: FamilyFile) -> None:
        """Note that the file's end has been read; the newest finished files stay open for late lines."""
        file.is_finished = True
        held = [one for one in self.files if one.is_finished and one.opened is not None]
        for one in held:
            if one.path is None or is_compressed(str(one.path)) or one not in held[-FINISHED_HELD_MAX:]:
                one.close()
        self.changes += 1

    def restart(self, file: FamilyFile, read_bytes: int) -> None:
        """Note that the open file, read up to `read_bytes`, was truncated: reading continues in its copy.

        The path is another file of the family from now on. Without a copy, `file` leaves the family as lost.
        """
        self._move_to_copy(file, read_bytes)

    def is_at(self, path: Path) -> bool:
        """Return whether one of the files has that name now. Raises OSError."""
        entry = entry_of(str(path), self._links)
        return entry is not None and any(self._find(file, {entry.id: entry}) is not None for file in list(self.files))

    # Looking

    def update(self) -> None:
        """Update sizes, and all else if the directory has changed. Raises OSError."""
        now_s = time.monotonic()
        signature = self._present_signature()
        if signature != self._signature:
            self._signature = signature
            self._whole_looks_due = 1 + LOOKS_AFTER_CHANGE
        waits = any(file.path is None and file.opened is None for file in self.files)
        if self._whole_looks_due or waits or now_s - self._whole_look_s >= WHOLE_LOOK_S:
            self._whole_looks_due = max(0, self._whole_looks_due - 1)
            self._whole_look_s = now_s
            try:
                self._look_whole()
            except (OSError, InterruptedRead, DecodersBusyError):
                self._whole_looks_due += 1
                raise
        self._open_unread()
        for file in self.files:
            if file.opened is not None and not file.opened.is_compressed:
                file.size = file.opened.status().st_size
                if file.size and not file.place.head_bytes:
                    note_head(file)  # it identifies copies
                self._note_late_lines(file)

    def _note_late_lines(self, file: FamilyFile) -> None:
        if file.is_finished and file.size > file.place.position:
            if is_intact(file):
                file.is_finished, file.was_finished = False, True
                self.changes += 1
            else:
                self._whole_looks_due += 1

    def _present_signature(self) -> object:
        try:
            own = self._links.status(self.path)
        except FileNotFoundError:
            return directory_time(self.path.parent), None
        return directory_time(self.path.parent), own.st_dev, own.st_ino

    def _look_whole(self) -> None:
        for file in list(self.files):
            if not is_intact(file):  # before newer copies are added
                self._move_to_copy(file, file.size)
        entries = {entry.id: entry for entry in self._entries()}
        if not self.files:
            self._begin(entries)
        else:
            self._compare(entries)

    def _begin(self, entries: dict[tuple[int, int], Entry]) -> None:
        """Start to read the path at its start position; files rotated before count as read."""
        if all(entry.path != str(self.path) for entry in entries.values()):
            return
        for entry in in_order(entries.values(), str(self.path)):
            file = from_entry(entry)
            self.files.append(file)
            if entry.path == str(self.path):
                self._open(file)
                if file.opened is None:
                    self.close()
                    self.files = []
                    return
                if self._start_at_end:
                    file.place = replace(file.place, position=last_line_start(file.opened))
                    note_last(file)
            else:
                count_as_read(file)
        self.changes += 1

    def _compare(self, entries: dict[tuple[int, int], Entry]) -> None:
        before = [file for file in self.files if file.device is not None]
        empty = [file for file in self.files if not file.size and not file.place.head_bytes]
        ranks = {entry.id: rank for rank, entry in enumerate(in_order(entries.values(), str(self.path)))}
        strangers = dict(entries)
        for file in self.files:
            entry = self._find(file, strangers)
            if entry is None:
                file.missed_looks += 1
                self.changes += file.path is not None
                file.path = None
            else:
                del strangers[entry.id]
                self._file_found(file, entry)
        strangers = {key: entry for key, entry in strangers.items() if entry.path not in self._by_inode_alone}
        self._put_path_last()
        ordered = in_order(
            strangers.values(), str(self.path), counts_upwards=self._counts_upwards(strangers.values(), empty)
        )
        ordered = [entry for entry in ordered if not is_being_compressed(entry, entries.values())]
        ordered = self._set_aside_denied(ordered, entries.values())
        for file in self.files:
            if file.opened is not None and not file.place.head_bytes:
                note_head(file)  # it identifies copies
        copied = self._adopt_copies(ordered)
        self._copies &= strangers.keys()
        unknown = [entry for entry in ordered if not self._is_copy(entry)]
        if unknown and not all(map(is_intact, self.files)):  # they may be copies of a file truncated since
            self._whole_looks_due += 1
            return
        unseen = [entry for entry in ordered if not entry.size or entry in unknown]
        rotated = any(entry.path != str(self.path) and can_read(Path(entry.path)) for entry in unseen)
        if rotated and before and all(file.path is None and file not in copied for file in self.files):
            why = "all files seen before are gone, and others may have been"
            self.lost.append(LostFile(before[-1].place, None, why, UNSEEN))
        self._note_unreadable(unknown)
        for entry in unknown:
            self._add(entry, ranks, empty)
        self._drop_gone()
        self._taken_over = None

    def _set_aside_denied(self, ordered: list[Entry], entries: Collection[Entry]) -> list[Entry]:
        for gone in self._denied.take_gone(entries):
            size = None if is_compressed(gone.path) else gone.size or None
            why = "the file was removed before the gateway could read it"
            self.lost.append(LostFile(Place(gone.inode, 0, 0, 0, gone.modified_ns), size, why))
        return self._denied.set_aside(ordered)

    def _entries(self) -> Iterator[Entry]:
        """Return the files of the family, and possible new names of known files. Raises OSError."""
        known = {file.place.inode for file in self.files}
        own = self.path.name
        self._by_inode_alone.clear()
        left_out: dict[Path, str] = {}
        try:
            directory = list(os.scandir(self.path.parent))
        except (FileNotFoundError, NotADirectoryError):
            directory = []
        for found in directory:
            is_own = found.name == own
            is_named = is_own or source_of(found.name, (own,)) is not None
            if not (is_named or found.inode() in known) or (not is_own and self._is_followed(Path(found.path))):
                continue
            if not is_named:
                self._by_inode_alone.add(found.path)
            entry = entry_of(found.path, self._links)
            if entry is None:
                if is_own:
                    refuse_irregular(self.path, self._links)
                self._leave_out(Path(found.path), left_out)
                continue
            yield entry
        yield from self._entries_elsewhere(known, left_out)
        self.left_out = left_out

    def _leave_out(self, path: Path, left_out: dict[Path, str]) -> None:
        """Note why a file with a name of this family is not opened; a directory is none of its files."""
        try:
            status = self._links.status(path)
        except OSError:  # it is gone, or a link of its path is named itself
            return
        kind = irregular_kind(status)
        if kind and not stat.S_ISDIR(status.st_mode):
            left_out[path] = LINK if stat.S_ISLNK(status.st_mode) else f"it is {kind}"

    def _entries_elsewhere(self, known: set[int], left_out: dict[Path, str]) -> Iterator[Entry]:
        if self._rotated is None:
            return
        for path in matching(Path(self._rotated), self._links, left_out):
            if path == self.path or self._is_followed(path):
                continue
            is_named = self._is_alone or source_of(path.name, (self.path.name,)) is not None
            entry = entry_of(str(path), self._links)
            if entry is None and is_named:
                self._leave_out(path, left_out)
            if entry is None or not (is_named or entry.inode in known):
                continue
            if is_named:
                self._by_inode_alone.discard(entry.path)
            else:
                self._by_inode_alone.add(entry.path)
            yield entry

    def _find(self, file: FamilyFile, entries: dict[tuple[int, int], Entry]) -> Entry | None:
        if file.device is not None:
            entry = entries.get((file.device, file.place.inode))
            found = [] if entry is None else [entry]
            if entry is None or file.opened is not None:
                return entry
        else:
            found = [entry for entry in entries.values() if entry.inode == file.place.inode]
        if not file.place.head_bytes and file is not self.files[-1]:  # a later file with its inode looks the same
            found = [entry for entry in found if entry.path != str(self.path)]
        return next((entry for entry in found if may_be_at(entry, file)), None)

    def _file_found(self, file: FamilyFile, entry: Entry) -> None:
        path = Path(entry.path)
        self.changes += file.path != path
        file.device, file.path, file.missed_looks = entry.device, path, 0
        file.modified_ns = entry.modified_ns
        file.may_grow = path == self.path
        if is_compressed(entry.path):
            return
        has_grown, file.size = entry.size > file.size, entry.size
        if has_grown and file.opened is None and file.place.head_bytes < HEAD_BYTES_MAX and not file.is_finished:
            note_head_of(file)
        if file.is_finished and file.size > file.place.position:
            file.is_finished, file.was_finished = False, True
            self.changes += 1

    def _put_path_last(self) -> None:
        """Make the file with the path the newest: a poll may have missed it while other files appeared."""
        at = next((at for at, file in enumerate(self.files[:-1]) if file.path == self.path), None)
        if at is not None:
            self.files.append(self.files.pop(at))
            self.changes += 1

    # Copies

    def _adopt_copies(self, strangers: list[Entry]) -> list[FamilyFile]:
        """Let copies inherit the places of files that no longer exist; return these files."""
        copied = []
        for file in self.files:
            if file.path is not None:
                continue
            copy = next((entry for entry in strangers if self._may_be(entry, file)), None)
            if copy is None:
                continue
            strangers.remove(copy)
            copied.append(file)
            if file.holds_unread:
                continue  # the copy is checked again once the open file has been read
            file.close()
            is_read = file.is_finished and file.device is not None
            file.place = replace(file.place, inode=copy.inode)
            file.device, file.path, file.missed_looks = copy.device, Path(copy.path), 0
            file.modified_ns = copy.modified_ns
            file.is_finished = is_read
            if not is_compressed(copy.path):
                file.size = copy.size
                file.is_finished = copy.size <= file.place.position
            file.was_finished = True  # a copy does not grow
            self.changes += 1
        return copied

    def _may_be(self, entry: Entry, file: FamilyFile) -> bool:
        if not file.place.head_bytes:  # compressors keep the modification time
            is_same = is_compressed(entry.path) and entry.modified_ns == file.modified_ns
            return is_same and bool(file.size) and can_read(Path(entry.path))
        return entry.path != str(self.path) and holds_place(entry, file.place)

    def _is_copy(self, entry: Entry) -> bool:
        """Return whether a new name is empty, or a copy of an existing file."""
        if entry.path == str(self.path):
            return False
        live = next((file for file in self.files if file.path == self.path), None)
        if entry.size and not (live and live.opened and is_copy(entry, live.opened, live.place)):
            self._copies.discard(entry.id)
            return False
        self._copies.add(entry.id)
        return True

    def _move_to_copy(self, file: FamilyFile, size: int) -> None:
        assert file.opened is not None
        copy = self._copy_of_truncated(file, size)
        is_short = copy is None and (copy := self._short_copy(file)) is not None
        at, status = self.files.index(file), file.opened.status()
        truncated = FamilyFile(
            Place(file.opened.inode, 0, 0, 0, status.st_mtime_ns),
            status.st_size,
            file.device,
            file.path,
            links=self._links,
        )
        truncated.opened, truncated.modified_ns, truncated.may_grow = file.opened, status.st_mtime_ns, file.may_grow
        file.opened = None
        if (copy is None or is_short) and not file.is_finished:
            self.lost.append(LostFile(file.place, None, f"the file was truncated{' after it was copied' * is_short}"))
        if copy is None:
            self.files[at] = truncated
        else:
            file.place = replace(file.place, inode=copy.inode)
            file.device, file.path, file.missed_looks = copy.device, Path(copy.path), 0
            file.size, file.modified_ns = copy.size, copy.modified_ns
            file.may_grow, file.was_finished = False, True  # a copy does not grow
            self.files.insert(at + 1, truncated)
            self._open(file)
            if is_short and file.opened is not None:
                file.place = replace(file.place, position=min(file.place.position, copy.size))
                note_last(file)
        self.changes += 1

    def _copy_of_truncated(self, file: FamilyFile, size: int) -> Entry | None:
        """Return the newest new file with all known bytes of the truncated one. Raises OSError.

        A copy is older than the truncation, so a later scan finds it. A tool may compress or rename the copy at any
        moment, so a scan without a copy counts only if the next scan finds the same files.
        """
        entries: list[Entry] = []
        for _ in range(SCANS_MAX):
            before, entries = entries, list(self._entries())
            if before and {(one.path, one.id) for one in before} == {(one.path, one.id) for one in entries}:
                return None
            copy = self._newest_copy(file, entries, size)
            if copy is not None:
                return copy
        return None

    def _newest_copy(self, file: FamilyFile, entries: Collection[Entry], size: int) -> Entry | None:
        known = {id_of(one) for one in self.files if one.path is not None}
        new = [entry for entry in entries if entry.id not in known and not is_being_compressed(entry, entries)]
        copies = (entry for entry in reversed(in_order(new, str(self.path))) if self._may_be(entry, file))
        return next((entry for entry in copies if file.place.head_bytes and has_size(entry, size)), None)

    def _short_copy(self, file: FamilyFile) -> Entry | None:
        """Return the copy of the file that lacks the lines written while it was made."""
        place = file.place
        for entry in reversed(in_order(list(self._entries()), str(self.path))):
            if entry.id in self._copies and place.head_bytes and not is_compressed(entry.path):
                with opening(entry) as found:
                    if found is not None and found.begins_with(place.head_bytes, place.head_crc32):
                        return entry
        return None

    # New files, and gone ones

    def _counts_upwards(self, strangers: Collection[Entry], empty: Collection[FamilyFile]) -> bool | None:
        """Return whether new files have higher numbers than the newest known one; None if no numbers show it.

        A file that was last seen `empty` shows nothing: its copies are older than its present content.
        """
        own = str(self.path)
        known = (file.path for file in self.files if file not in empty)
        rotated = [path for path in known if path is not None and path != self.path]
        anchor = number_of(str(rotated[-1]), own) if rotated else None
        numbers = [number for entry in strangers if (number := number_of(entry.path, own)) is not None]
        return None if anchor is None or not numbers else min(numbers) > anchor

    def _add(self, entry: Entry, ranks: dict[tuple[int, int], int], empty: Collection[FamilyFile]) -> None:
        """Add a new file: it is newer than all known ones except a path that stays.

        A known file that was last seen `empty` may have lines from after a copy of it.
        """
        file = from_entry(entry)
        file.may_grow = file.path == self.path
        at = len(self.files) - (bool(self.files) and self.files[-1].path == self.path)
        while at and (known := self.files[at - 1]) in empty and self._is_numbered_older(entry, known, ranks):
            at -= 1
        if self._taken_over is not None:
            at = self._place_by_rank(entry, ranks, at)
        if not can_read(Path(entry.path)) or self._was_read_before(entry, at):
            count_as_read(file)
        else:
            note_head_of(file)
        self.files.insert(at, file)
        self.changes += 1

    def _is_numbered_older(self, entry: Entry, file: FamilyFile, ranks: dict[tuple[int, int], int]) -> bool:
        paths = [entry.path, str(file.path)]
        has_numbers = all(number_of(path, str(self.path)) is not None for path in paths)
        return has_numbers and file.path is not None and ranks[entry.id] < ranks[id_of(file)]

    def _place_by_rank(self, entry: Entry, ranks: dict[tuple[int, int], int], newest: int) -> int:
        """Return the rank of a file that an earlier run may have read, though the saved state does not name it."""
        state = self._taken_over
        assert state is not None
        if state.is_whole and len(state.older) < OLDER_MAX:
            return newest
        higher = [at for at, one in enumerate(self.files) if one.path and ranks[id_of(one)] > ranks[entry.id]]
        return min([*higher, newest])

    def _note_unreadable(self, strangers: list[Entry]) -> None:
        """Record as lost each file that was only seen in an unsupported compressed format."""
        gone = [file for file in self.files if file.path is None]
        vanished = [file.last_modified_ns if file.device is not None else ANY_TIME for file in gone]
        for entry in strangers:
            if can_read(Path(entry.path)):
                continue
            if entry.modified_ns in vanished:  # compressors keep the modification time
                vanished.remove(entry.modified_ns)
                continue
            if ANY_TIME in vanished:  # written to between two polls
                vanished.remove(ANY_TIME)
                continue
            if entry.path.endswith(".zip") and vanished:  # Java's do not
                vanished.pop()
                continue
            place = Place(entry.inode, 0, 0, 0, entry.modified_ns)
            self.lost.append(
                LostFile(place, None, f"{name_text(entry.path)} is compressed in a format that is not read")
            )

    def _was_read_before(self, entry: Entry, at: int) -> bool:
        """Return whether an earlier run has read a file that its state does not name: it is older than all named."""
        state = self._taken_over
        if state is None:
            return False
        if state.is_whole:
            return at == 0 and len(state.older) >= OLDER_MAX
        current = self._read_last
        if current is None or current.path is None:
            return entry.modified_ns <= state.place.modified_ns
        return at <= self.files.index(current)

    def _drop_gone(self) -> None:
        for file in list(self.files):
            if file.path is not None or file.holds_unread or file.missed_looks < MISSED_LOOKS_MIN:
                continue
            file.close()
            if not file.is_finished and (self._denied or not self._is_succeeded(file)):
                continue  # it may be in a rename, and no other file waits; or have an unreadable name
            holds_more = file.unread_bytes or file.may_grow or file.place.head_bytes
            if holds_more and not file.is_finished and not self._is_among_new(file):
                unread = None if file.may_grow else file.unread_bytes or None
                self.lost.append(LostFile(file.place, unread, "the file was removed before its end was read"))
            self.files.remove(file)
            self.changes += 1

    def _is_among_new(self, file: FamilyFile) -> bool:
        """Return whether a file without read or noted bytes exists under a name that does not identify it.

        Tools delete the oldest files first: if an older one exists, this one does, too.
        """
        older = self.files[: self.files.index(file)]
        is_unknown = not file.place.head_bytes and not file.place.position
        return is_unknown and any(one.path is not None for one in older)

    def _is_succeeded(self, file: FamilyFile) -> bool:
        return any(one.path is not None for one in self.files[self.files.index(file) + 1 :])

    # Opening

    def _open_unread(self) -> None:
        self._unopened = None
        room = HELD_MAX - sum(file.opened is not None and not file.is_finished for file in self.files)
        for file in self.files:
            if file.opened is None and file.path is not None and not file.is_finished and room > 0:
                self._open(file)
                room -= file.opened is not None

    def _open(self, file: FamilyFile) -> None:
        assert file.path is not None
        try:
            found = OpenFile(file.path, links=self._links)
        except FileNotFoundError:
            return
        except OSError as error:
            error.filename = str(file.path)
            self._unopened = error
            return
        if (found.device, found.inode) != (file.device, file.place.inode):
            found.close()  # renamed since: the next poll finds it
            self._whole_looks_due += 1
            return
        file.opened = found
        if not file.place.head_bytes:
            note_head(file)
