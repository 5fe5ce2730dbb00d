"""The one seam between the log and the operating system.

Lives here: the small interface that storage needs of files, and the real disk behind it. Must never come in:
knowledge of what the bytes mean. A simulated disk of the tests stands in for it. Source: open(2), preadv2(2),
fdatasync(2), rename(2).

Every method raises OSError as the system does. A name is durable only after `sync_directory` of its directory.
"""

import errno
import fcntl
import os
from typing import Protocol, TypeAlias

Bytes: TypeAlias = bytes | bytearray | memoryview


class File(Protocol):
    """An open file, closed when its last reference goes: no reader ever holds a number that names another file."""

    path: str

    def read(self, size_max: int, position: int) -> Bytes:
        """Up to `size_max` bytes from `position`; fewer only at the end of the file. May block."""

    def read_cached(self, size_max: int, position: int) -> Bytes | None:
        """Like `read` but from memory alone: fewer bytes when only they are there, None when it would block."""

    def write(self, data: Bytes, position: int) -> int:
        """Write at `position`; the number of bytes written may be smaller than asked for."""

    def truncate(self, size: int) -> None:
        """Cut the file to `size` bytes."""

    def datasync(self) -> None:
        """Return when content and size are on the disk."""

    def size(self) -> int:
        """Bytes in the file."""


class FileSystem(Protocol):
    """What storage may do with names; paths are texts with `/`."""

    def open(self, path: str) -> File:
        """Open an existing file for reading and writing."""

    def create(self, path: str) -> File:
        """Make a file, or empty the one that is there."""

    def size(self, path: str) -> int:
        """Bytes in a file."""

    def names(self, directory: str) -> list[str]:
        """The names in a directory, in no order."""

    def exists(self, path: str) -> bool:
        """True when the name is there."""

    def make_directory(self, path: str) -> None:
        """Make a directory; its parent must exist; no error when it is there already."""

    def rename(self, old: str, new: str) -> None:
        """Give a file or directory another name, replacing a file of that name."""

    def remove(self, path: str) -> None:
        """Remove a file."""

    def remove_directory(self, path: str) -> None:
        """Remove an empty directory."""

    def sync_directory(self, path: str) -> None:
        """Return when the names in the directory are on the disk."""

    def lock(self, path: str) -> File | None:
        """Hold a file for this process alone while the result lives; None when another process holds it."""


class DiskFile:
    """A file of the real disk."""

    __slots__ = ("_descriptor", "path")

    def __init__(self, path: str, flags: int) -> None:
        self._descriptor = -1
        self.path = path
        self._descriptor = os.open(path, flags | os.O_CLOEXEC, 0o640)

    def __del__(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)

    def read(self, size_max: int, position: int) -> Bytes:
        """Up to `size_max` bytes from `position`; fewer only at the end of the file."""
        data = os.pread(self._descriptor, size_max, position)
        if len(data) == size_max or not data:
            return data
        parts = [data]
        while data:  # a signal or a large size may cut one call short of the end of the file
            position += len(data)
            size_max -= len(data)
            data = os.pread(self._descriptor, size_max, position) if size_max else b""
            parts.append(data)
        return b"".join(parts)

    def read_cached(self, size_max: int, position: int) -> Bytes | None:
        """Bytes from the page cache, fewer when only they are there; None without any, or when that cannot be told."""
        buffer = bytearray(size_max)
        try:
            size = os.preadv(self._descriptor, [buffer], position, os.RWF_NOWAIT)
        except BlockingIOError:
            return None
        except OSError as error:
            if error.errno == errno.EOPNOTSUPP:
                return None
            raise
        return memoryview(buffer)[:size]

    def write(self, data: Bytes, position: int) -> int:
        """Write at `position`, possibly less than all."""
        return os.pwrite(self._descriptor, data, position)

    def truncate(self, size: int) -> None:
        """Cut the file to `size` bytes."""
        os.ftruncate(self._descriptor, size)

    def datasync(self) -> None:
        """Return when content and size are on the disk."""
        os.fdatasync(self._descriptor)

    def size(self) -> int:
        """Bytes in the file."""
        return os.fstat(self._descriptor).st_size

    def try_lock(self) -> bool:
        """Take the lock that ends with this process; False when another holds it."""
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


class Disk:
    """The real file system."""

    def open(self, path: str) -> File:
        """Open an existing file for reading and writing."""
        return DiskFile(path, os.O_RDWR)

    def create(self, path: str) -> File:
        """Make a file, or empty the one that is there."""
        return DiskFile(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)

    def size(self, path: str) -> int:
        """Bytes in a file."""
        return os.stat(path).st_size

    def names(self, directory: str) -> list[str]:
        """The names in a directory, in no order."""
        return os.listdir(directory)

    def exists(self, path: str) -> bool:
        """True when the name is there."""
        return os.access(path, os.F_OK)

    def make_directory(self, path: str) -> None:
        """Make a directory; no error when it is there already."""
        try:
            os.mkdir(path, 0o750)
        except FileExistsError:
            if not os.path.isdir(path):
                raise

    def rename(self, old: str, new: str) -> None:
        """Give a file or directory another name, replacing a file of that name."""
        os.rename(old, new)

    def remove(self, path: str) -> None:
        """Remove a file."""
        os.unlink(path)

    def remove_directory(self, path: str) -> None:
        """Remove an empty directory."""
        os.rmdir(path)

    def sync_directory(self, path: str) -> None:
        """Return when the names in the directory are on the disk."""
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def lock(self, path: str) -> File | None:
        """Hold a file for this process alone while the result lives; None when another process holds it."""
        file = DiskFile(path, os.O_RDWR | os.O_CREAT)
        return file if file.try_lock() else None
