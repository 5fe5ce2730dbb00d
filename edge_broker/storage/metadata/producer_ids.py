"""Reserves producer ids, so that none is ever given to two producers: the file `producer-ids`.

The file has the first id that was never reserved. It is synced before an id below it is used.

Contains: that file. Does not contain: which producer gets an id, the blocks of a cluster (cluster/producer_ids).
Source: Kafka's ProducerIdManager.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from edge_broker.storage.files.atomic_files import fault_of
from edge_broker.storage.metadata.entry_file import read_entry, write_entry
from edge_broker.thread_checks import runs_in

if TYPE_CHECKING:
    from edge_broker.storage.files.filesystem import FileSystem

FILE = "producer-ids"
PRODUCER_IDS_RESERVED = 1000


class ProducerIds:
    """The producer ids of one data directory; `end` is the first id above all that were reserved here or received."""

    def __init__(self, fs: FileSystem, data_dir: str) -> None:
        self._fs = fs
        self._data_dir = data_dir
        self.end = 0

    def read(self) -> None:
        """Read `end`. OSError; StorageFault: the file is missing or corrupt."""
        self.end = int(read_entry(self._fs, self._data_dir, FILE))

    @runs_in("files")
    def reserve(self) -> range:
        """Return a block of 1000 ids that is never returned again; synced. StorageFault."""
        block = range(self.end, self.end + PRODUCER_IDS_RESERVED)
        self._write(block.stop)
        return block

    @runs_in("files")
    def keep(self, end: int) -> None:
        """Keep that this broker received ids below `end` from its cluster; synced. StorageFault."""
        self._write(max(end, self.end))

    def _write(self, end: int) -> None:
        try:
            write_entry(self._fs, self._data_dir, FILE, end)
        except OSError as error:
            raise fault_of(error, f"{self._data_dir}/{FILE}", 0) from error
        self.end = end
