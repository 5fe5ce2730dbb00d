"""One commit round: every file with unsynced data, made durable together.

| files in the round | way |
|---|---|
| 1, or no measured card, or a file system whose syncfs proves nothing | each: fdatasync of every file |
| more, and the card's figures say that one syncfs costs less | all: one syncfs |
| more, and the last syncfs took much longer than the files alone would have | each, for EACH_ROUNDS rounds |

syncfs(2) waits for everything of the file system, other programs' data too, so a measured advantage can be gone for a
while. Before either way the write-out of all files is begun, so that the card works on the last one while the first
is waited for. When syncfs fails, fdatasync of each file says whose failure it was: each descriptor learns of the
errors of its own file, once.

Contains: the choice, pure, and the run. Does not contain: threads, clocks, when a round begins (syncer.py).
Source: fdatasync(2), syncfs(2), sync_file_range(2); PostgreSQL's group commit.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Literal

from edge_broker.errors import StorageFault
from edge_broker.storage.files.atomic_files import fault_of, synced_all
from edge_broker.thread_checks import runs_in

if TYPE_CHECKING:
    from edge_broker.storage.files.filesystem import FileSystem
    from edge_broker.storage.files.sync_cost import Card
    from edge_broker.storage.log.log_state import LogEnd

Way = Literal["each", "all"]
EACH_ROUNDS = 64
SLOW = 3


class Flush:
    """The data that one sync will confirm: all written when it began, from byte `begin` of its segment on."""

    __slots__ = ("begin", "end")

    def __init__(self, begin: int, end: LogEnd) -> None:
        self.begin = begin
        self.end = end

    @runs_in()
    def start(self) -> None:
        """Begin to write what the sync will wait for."""
        with suppress(OSError):  # the sync says what came of it
            self.end.segment.file.start_writeout(self.begin)

    @runs_in()
    def run(self) -> None:
        """Wait for the disk; StorageFault. Reads only this flush; the loop may append meanwhile."""
        try:
            self.end.segment.datasync()
        except OSError as error:
            raise fault_of(error, self.end.segment.path, self.end.position) from error


class GroupCommit:
    """How the rounds of one data directory are run; `card` None: not measured."""

    def __init__(self, fs: FileSystem, data_dir: str, card: Card | None = None) -> None:
        self.card = card
        self._fs = fs
        self._data_dir = data_dir
        self._each_left = 0

    def way(self, files: int) -> Way:
        """The way that costs less for so many files, as far as is known."""
        if files < 2 or self.card is None or self.card.all_us < 0:
            return "each"
        if self._each_left:
            self._each_left -= 1
            return "each"
        return "all" if self.card.all_us < self.card.each_us(files) else "each"

    def round_completed(self, way: Way, files: int, seconds: float) -> None:
        """Learn what a round cost."""
        if way == "all" and self.card is not None and seconds * 1e6 > SLOW * self.card.each_us(files):
            self._each_left = EACH_ROUNDS

    @runs_in()
    def run(self, flushes: Sequence[Flush], way: Way) -> list[StorageFault | None]:
        """Run every flush; what each came to. One failure costs no other."""
        if len(flushes) > 1:
            for flush in flushes:
                flush.start()
        if way == "all" and synced_all(self._fs, self._data_dir):
            return [None] * len(flushes)
        return [_run(flush) for flush in flushes]


def _run(flush: Flush) -> StorageFault | None:
    try:
        flush.run()
    except StorageFault as fault:
        return fault.without_frames()
    except Exception as error:  # noqa: BLE001 - a bug: what it left unsynced is unknown, and the others go on
        return StorageFault(flush.end.segment.path, flush.end.position, f"the sync failed: {error!r}")
    return None
