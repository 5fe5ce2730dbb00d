"""A machine with a journald whose steps a test chooses: entries, rotations, deletions, boots, power losses, clocks.

| journald | sequence numbers |
|---|---|
| 252 (`shared_id` false) | one counter for all files, from 0 at each start; each chain has an id of its own |
| 254 and later (`shared_id` true) | one counter and one id for all files |
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cmp_to_key
from pathlib import Path

from tests.support.journal_files import HEADER_BYTES, OFFLINE, OLD_HEADER_BYTES, ONLINE, JournalFileWriter


@dataclass(slots=True)
class Written:
    """An entry that a program wrote."""

    message: bytes
    machine_id: str
    chains: set[str] = field(default_factory=set)  # of the files that hold it
    file_count: int = 0  # that hold it now


@dataclass(slots=True)
class _Content:
    """The entries of a file, and what journald orders archived files by when it deletes the oldest."""

    oldest_us: int  # the least of the times that the file has: of its creation, its changes, and its name
    entries: list[Written] = field(default_factory=list)
    seqnum_id: str = ""  # of its name; empty after a power loss, when the name has a time alone
    head_seqnum: int = 0


def _compare(one: _Content, other: _Content) -> int:
    """Compare as journald does: by first sequence numbers where both names have one id, else by time, then by id."""
    if one.seqnum_id and one.seqnum_id == other.seqnum_id:
        return one.head_seqnum - other.head_seqnum
    if one.oldest_us == other.oldest_us and one.seqnum_id and other.seqnum_id:
        return 1 if one.seqnum_id > other.seqnum_id else -1
    return one.oldest_us - other.oldest_us


@dataclass(slots=True)
class SimulatedJournald:
    """journald of one machine; `root` is /var/log/journal, `run` /run/log/journal or None."""

    root: Path
    chance: random.Random
    shared_id: bool = False
    clock_us: int = 1_764_000_000_000_000
    run: Path | None = None
    machine_id: str = ""
    boot_id: str = ""
    monotonic_us: int = 1_000
    written: list[Written] = field(default_factory=list)
    _counter: int = 0
    _server_id: str = ""
    _files: dict[tuple[bool, str], JournalFileWriter] = field(default_factory=dict)  # active, by volatile and kind
    _contents: dict[Path, _Content] = field(default_factory=dict)
    _volatile: list[tuple[int, int, str, list[tuple[str, bytes]]]] = field(default_factory=list)
    _set_aside: set[str] = field(default_factory=set)  # kinds without an active file since a power loss
    is_volatile: bool = False
    has_deleted: bool = False  # a file with entries
    has_booted: bool = False  # again

    def __post_init__(self) -> None:
        self.machine_id = self.machine_id or self._id()
        self.boot_id = self._id()
        self.is_volatile = self.run is not None

    def close(self) -> None:
        for file in self._files.values():
            file.close()
        self._files.clear()

    def log(self, *messages: str, kind: str = "system", more: Sequence[tuple[str, bytes]] = ()) -> None:
        """Write entries with `more` fields; the clock goes on by a millisecond for each."""
        for message in messages:
            self.clock_us += 1_000
            self.monotonic_us += 1_000
            fields = [("MESSAGE", message.encode()), *more]
            entry = (self.clock_us, self.monotonic_us, self.boot_id, fields)
            if self.is_volatile:
                self._volatile.append(entry)
            self.written.append(Written(message.encode(), self.machine_id))
            self._append(self.written[-1], self.is_volatile, "system" if self.is_volatile else kind, *entry)

    def rotate(self) -> None:
        """Archive the active files."""
        for (is_volatile, kind), file in list(self._files.items()):
            if file.n_entries:
                self._rotate(is_volatile, kind, file)

    def _rotate(self, is_volatile: bool, kind: str, file: JournalFileWriter) -> JournalFileWriter:
        name = f"{kind}@{file.seqnum_id}-{file.head[0]:016x}-{file.head[1]:016x}.journal"
        content = self._contents[file.path]
        content.seqnum_id, content.head_seqnum = file.seqnum_id, file.head[0]
        content.oldest_us = min(content.oldest_us, file.head[1])
        self._archive(file, name)
        del self._files[is_volatile, kind]
        return self._open(is_volatile, kind, file)

    def vacuum(self, keep: int) -> None:
        """Delete archived files as journal-vacuum.c does: those without entries, and the oldest of the others."""
        directory = self.root / self.machine_id
        archived = sorted(directory.glob("*@*"))
        for path in archived:
            if not self._contents[path].entries:
                self._delete(path)
        contents = [(self._contents[path], path) for path in archived if path in self._contents]
        order = cmp_to_key(_compare)
        contents.sort(key=lambda each: order(each[0]))
        for _, path in contents[: max(len(contents) - keep, 0)]:
            self._delete(path)

    def boot(self, *, clean: bool = True) -> None:
        """Start again; after a power loss journald sets the open files aside."""
        self.boot_id, self.monotonic_us = self._id(), 1_000 + self.chance.randrange(1_000)
        self._counter, self._server_id = 0, ""
        self.has_booted = True
        for (is_volatile, kind), file in list(self._files.items()):
            if is_volatile:
                file.close()
                self._delete(file.path)
                del self._files[is_volatile, kind]
            elif not clean:
                stamp = f"{self.clock_us:016x}-{self.chance.getrandbits(64):016x}"
                self._archive(file, f"{kind}@{stamp}.journal~", clean=False)
                del self._files[is_volatile, kind]
                if self.shared_id:
                    self._open(is_volatile, kind, file)
                else:
                    self._set_aside.add(kind)
        if self.run is not None:
            for path in (self.run / self.machine_id).glob("*"):
                self._delete(path)
            self._volatile.clear()
        self.is_volatile = self.run is not None

    def write_to_all(self) -> None:
        """Write an entry of each kind whose file was set aside: journald does that when it writes the next one."""
        for kind in sorted(self._set_aside):
            self.log(f"{self.machine_id[:8]} {len(self.written)} after a power loss", kind=kind)

    def restart(self) -> None:
        """Start journald again in the same boot: 252 counts from 0, 254 goes on."""
        if not self.shared_id:
            self._counter = 0

    def flush(self) -> None:
        """Copy /run to /var and delete it, as systemd-journal-flush does."""
        if not self.is_volatile or self.run is None:
            return
        self.is_volatile = False
        for entry, written in zip(self._volatile, self.written[len(self.written) - len(self._volatile) :], strict=True):
            self._append(written, False, "system", *entry)
        self._volatile.clear()
        for key in [key for key in self._files if key[0]]:
            self._files.pop(key).close()
        for path in (self.run / self.machine_id).glob("*"):
            self._delete(path)
        if (self.run / self.machine_id).exists():
            (self.run / self.machine_id).rmdir()

    def jump(self, seconds: float) -> None:
        """Set the clock."""
        self.clock_us += int(seconds * 1_000_000)

    def _archive(self, file: JournalFileWriter, name: str, *, clean: bool = True) -> None:
        content = self._contents.pop(file.path)
        file.archive(file.path.with_name(name), clean=clean)
        content.oldest_us = min(content.oldest_us, self.clock_us)
        self._contents[file.path] = content

    def _delete(self, path: Path) -> None:
        path.unlink()
        for entry in self._contents.pop(path).entries:
            entry.file_count -= 1
            self.has_deleted = True

    def _append(
        self,
        written: Written,
        is_volatile: bool,
        kind: str,
        realtime: int,
        monotonic: int,
        boot: str,
        fields: list[tuple[str, bytes]],
    ) -> None:
        file = self._files.get((is_volatile, kind)) or self._open(is_volatile, kind, None)
        if self.shared_id:
            self._server_id = self._server_id or file.seqnum_id
            if file.seqnum_id != self._server_id:
                if file.n_entries:
                    file = self._rotate(is_volatile, kind, file)
                file.seqnum_id = self._server_id
        if not is_volatile:
            self._set_aside.discard(kind)
        seqnum = max(file.tail[0], self._counter) + 1
        self._counter = seqnum
        file.append(seqnum, realtime, monotonic, boot, fields)
        content = self._contents[file.path]
        content.entries.append(written)
        content.oldest_us = min(content.oldest_us, self.clock_us)
        written.file_count += 1
        written.chains.add(f"{'run' if is_volatile else 'var'}/{self.machine_id}|{kind}|{file.seqnum_id}")

    def _open(self, is_volatile: bool, kind: str, template: JournalFileWriter | None) -> JournalFileWriter:
        root = self.run if is_volatile else self.root
        assert root is not None
        directory = root / self.machine_id
        directory.mkdir(parents=True, exist_ok=True)
        file_id = self._id()
        own = (self.shared_id and self._server_id) or file_id
        seqnum_id = own if template is None else template.seqnum_id
        compact = self.chance.random() < 0.5
        file = JournalFileWriter(
            directory / f"{kind}.journal",
            file_id,
            seqnum_id,
            self.machine_id,
            compact,
            ONLINE,
            header_bytes=HEADER_BYTES if self.shared_id else OLD_HEADER_BYTES,
        )
        self._contents[file.path] = _Content(self.clock_us)
        if template is not None:
            file.inherit(template.tail[0])
        self._files[is_volatile, kind] = file
        return file

    def _id(self) -> str:
        return f"{self.chance.getrandbits(128):032x}"


__all__ = ["OFFLINE", "SimulatedJournald", "Written"]
