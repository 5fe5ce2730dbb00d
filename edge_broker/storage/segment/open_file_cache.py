"""The open files and loaded indexes of a store's segments, as many as it may have.

Contains: which are kept. Does not contain: what they hold.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from array import array

    from edge_broker.storage.files.filesystem import File, FileSystem


FILES_MIN, FILES_MAX = 64, 4096


def files_share(limit: int) -> int:
    """Return how many of `limit` descriptors are for segments' files; connections need some, too."""
    return min(max(limit // 2, FILES_MIN), FILES_MAX)


class Segment(Protocol):
    """A segment as the cache sees it; identity distinguishes two of them."""

    path: str
    retired: bool


class OpenFiles:
    """The open files and loaded indexes of all segments; the least recently used go when there are too many.

    The loop, the disk worker and the reader use it at once: each step is one call of a C method, which no other
    thread can split. A file is closed when its last user lets go of it; of a retired segment nothing is kept, so that
    a removed or replaced file gives its space back once no reader has it open.
    """

    def __init__(self, fs: FileSystem, files_max: int = 0, indexes_max: int = 32) -> None:
        self.fs = fs
        self._files: OrderedDict[Segment, File] = OrderedDict()
        self._indexes: OrderedDict[Segment, array[int]] = OrderedDict()
        self._files_max = files_max or files_share(fs.files_max())
        self._indexes_max = indexes_max

    def file(self, segment: Segment) -> File:
        """The open file of a segment."""
        file = self.cached_file(segment)
        if file is None:
            file = self.fs.open(segment.path)
            self.keep_file(segment, file)
        return file

    def cached_file(self, segment: Segment) -> File | None:
        """The open file of a segment, if it is here."""
        file = self._files.pop(segment, None)
        if file is not None:
            self.keep_file(segment, file)
        return file

    def keep_file(self, segment: Segment, file: File) -> None:
        """Take in a file that was just opened."""
        self._files[segment] = file
        if segment.retired:  # meanwhile, in another thread
            self._files.pop(segment, None)
        if len(self._files) > self._files_max:
            self._files.popitem(last=False)

    def index(self, segment: Segment) -> array[int] | None:
        """The loaded index of a segment, if it is there."""
        index = self._indexes.pop(segment, None)
        if index is not None:
            self._indexes[segment] = index
        return index

    def keep_index(self, segment: Segment, index: array[int]) -> None:
        """Take in an index that was just loaded."""
        self._indexes[segment] = index
        if segment.retired:
            self._indexes.pop(segment, None)
        if len(self._indexes) > self._indexes_max:
            self._indexes.popitem(last=False)

    def forget_index(self, segment: Segment) -> None:
        """Drop the loaded index of a segment: it is loaded or made again."""
        self._indexes.pop(segment, None)

    def forget(self, segment: Segment) -> None:
        """Drop what is held of a segment."""
        self._files.pop(segment, None)
        self._indexes.pop(segment, None)

    def retire(self, segment: Segment) -> None:
        """Hold nothing of a segment any more, now or later: its log has let go of it."""
        segment.retired = True  # first: a thread that keeps something of it now sees it, or is seen here
        self._files.pop(segment, None)
        self._indexes.pop(segment, None)

    def count(self) -> int:
        """Open files held here; files with unsynced bytes are held by their segments besides."""
        return len(self._files)
