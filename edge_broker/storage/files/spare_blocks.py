"""The file `.spare`: blocks for the account of a removal, and for a start, where not one block is free.

Contains: keeping it, and writing into it. Does not contain: what needs it. Source: fallocate(2), rename(2).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from edge_broker.storage.files.atomic_files import OUT_OF_SPACE, replace, temporary_name, write_all
from edge_broker.thread_checks import runs_in

if TYPE_CHECKING:
    from edge_broker.storage.files.filesystem import FileSystem

SPARE = ".spare"
SPARE_BYTES = 256 << 10


class Spare:
    """A file of reserve blocks, which a state file may be written into if no others are free."""

    def __init__(self, fs: FileSystem, data_dir: str) -> None:
        self._fs = fs
        self.path = f"{data_dir}/{SPARE}"
        self._there = False

    @runs_in()
    def renew(self) -> None:
        """Make it, when it was used and there is space again. OSError."""
        if self._there:
            return
        try:
            file = self._fs.create(self.path)
            if not file.reserve(0, SPARE_BYTES):
                write_all(file, bytes(SPARE_BYTES), 0)
        except OSError as error:
            if error.errno not in OUT_OF_SPACE:
                raise
            self.give_up()
            return
        self._there = True

    @runs_in()
    def replace(self, directory: str, name: str, data: bytes) -> None:
        """As state_files.replace; without space into the spare's blocks. OSError: those are gone too."""
        try:
            replace(self._fs, directory, name, data)
        except OSError as error:
            if error.errno not in OUT_OF_SPACE or not self._fs.exists(self.path):
                raise
            self._there = False
            temporary = temporary_name(directory, name)
            self._fs.rename(self.path, temporary)
            file = self._fs.open(temporary)
            write_all(file, data, 0)
            file.truncate(len(data))
            file.datasync()
            self._fs.rename(temporary, f"{directory}/{name}")
            self._fs.sync_directory(directory)

    def give_up(self) -> None:
        """Free its blocks, for the first who needs them. OSError."""
        self._there = False
        if self._fs.exists(self.path):
            self._fs.remove(self.path)
