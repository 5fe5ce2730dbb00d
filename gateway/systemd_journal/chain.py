"""One chain of journal files: its read position, and its open file."""

from __future__ import annotations

from dataclasses import dataclass

from gateway.systemd_journal.directory import JournalFileInfo
from gateway.systemd_journal.file_format import JournalFile
from gateway.systemd_journal.positions import Position


@dataclass(slots=True, eq=False)
class Chain:
    """A chain of journal files: its position, and its file that is open."""

    name: str
    label: str
    kind: str
    is_volatile: bool
    position: Position | None = None
    file: JournalFile | None = None
    seen: JournalFileInfo | None = None  # its last file in the last scan that found one
    suspicion: tuple[object, float] | None = None  # the suspected state, and since when
    is_dirty: bool = False  # the position has moved without an event
    tail_moved: bool = False

    @property
    def place(self) -> tuple[str, str]:
        """Return the key that chains of one kind in one directory share."""
        return self.label, self.kind

    @property
    def machine(self) -> str:
        """Return the directory's name, by which chains in /run and /var belong together."""
        return self.label.partition("/")[2]

    def later(self, files: list[JournalFileInfo]) -> list[JournalFileInfo]:
        """Return the chain's files after the one that is read; all files before the first read."""
        position = self.position
        if position is None:
            return files
        order = (position.head_seqnum, position.head_realtime_us)
        return [info for info in files if info.order > order and info.header.file_id != position.file_id]

    def close(self) -> None:
        """Close the file."""
        if self.file is not None:
            self.file.close()
            self.file = None

    def is_confirmed(self, suspected: object, now_s: float, after_s: float) -> bool:
        """Return whether the same suspicion has lasted for `after_s`."""
        if self.suspicion is None or self.suspicion[0] != suspected:
            self.suspicion = (suspected, now_s)
        return now_s - self.suspicion[1] >= after_s
