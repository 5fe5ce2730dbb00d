"""The one seam between the log and the operating system.

Contains: the small interface that storage needs of files, and the real disk for it. Does not contain:
knowledge of what the bytes mean. A simulated disk of the tests stands in for it. Source: open(2), preadv2(2),
fdatasync(2), sync_file_range(2), syncfs(2), fallocate(2), rename(2).

Every method raises OSError as the system does. A name is durable only after `sync_directory` of its directory.
"""

import errno
import fcntl
import os
from contextlib import suppress
from resource import RLIMIT_NOFILE, RUSAGE_THREAD, getrlimit, getrusage
from typing import NamedTuple, Protocol, TypeAlias

from drupelet.host.descriptors import as_number
from edge_broker import libc

Bytes: TypeAlias = bytes | bytearray | memoryview
NAMED_IN_SYS = {0xEF53: "ext4", 0x58465342: "xfs", 0xF2F52010: "f2fs"}  # /sys/fs/<name>/<device>
SYNCFS_HOLDS = (0xEF53, 0x58465342, 0x9123683E, 0xF2F52010)  # ext4, XFS, btrfs, F2FS; FUSE, for one, does nothing


class Space(NamedTuple):
    """Bytes of a file system, and those that this process may still take."""

    total: int
    free: int


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

    def start_writeout(self, position: int) -> None:
        """Begin to write what is dirty from `position` on, without waiting; proves nothing by itself."""

    def reserve(self, position: int, size: int) -> bool:
        """Set disk blocks aside for a range, writing nothing, its size unchanged; False where that cannot be done."""

    def read_nothing_ahead(self) -> None:
        """Have reads of this open file bring into memory what they ask for and nothing else."""

    def forget_cached(self, position: int, size: int) -> None:
        """Let memory go that only holds a copy of this range, to the end for `size` 0: the next read asks the disk."""


class FileSystem(Protocol):
    """The operations on names that storage uses; paths are texts with `/`."""

    def files_max(self) -> int:
        """How many files this process may have open, connections included."""

    def open(self, path: str) -> File:
        """Open an existing file for reading and writing."""

    def create(self, path: str) -> File:
        """Make a file, or empty the one that is there."""

    def create_private(self, path: str) -> File:
        """Make a file that only its directory's owner may read; it replaces an existing one."""

    def append(self, path: str) -> File:
        """Open a file whose writes all go to its end; where it is missing it is made, with mode 0640.

        It belongs to its directory's owner, not to its maker, and is never opened through a link.
        """

    def identity(self, path: str) -> str:
        """A word that is another one whenever the file of this name was replaced or written to."""

    def mode(self, path: str) -> int:
        """Permission bits of a file."""

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

    def sync_all(self, path: str) -> None:
        """Return when everything of the file system that holds `path` is on the disk, other programs' data too.

        Tells of every failed write since the last call, or since the lock in `path` was taken. OSError EOPNOTSUPP where
        it would prove nothing.
        """

    def space(self, path: str) -> Space:
        """How large the file system that holds `path` is and what is free of it."""

    def mount(self, path: str) -> str:
        """A word that stays the same while the file system that holds `path` is mounted, and comes only once in a boot.

        Empty where the system tells no such thing.
        """

    def lock(self, path: str, *, private: bool = False) -> File | None:
        """Hold a file for this process alone while the result lives; None when another process holds it.

        A `private` one belongs to its directory's owner, not to its maker, and only that owner may read it.
        """


class DiskFile:
    """A file of the real disk."""

    __slots__ = ("_descriptor", "path")

    def __init__(self, path: str, flags: int, mode: int = 0o640) -> None:
        self._descriptor = -1
        self.path = path
        self._descriptor = os.open(path, flags | os.O_CLOEXEC, mode)

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
        """Bytes from the page cache, fewer when only they are there; None without any, or when that cannot be told.

        RWF_NOWAIT begins to read what is not there, and a quick disk may have done so before the call is back: then the
        bytes are the disk's, and this thread's count of reads has risen.
        """
        buffer = bytearray(size_max)
        reads = getrusage(RUSAGE_THREAD).ru_inblock
        try:
            size = os.preadv(self._descriptor, [buffer], position, os.RWF_NOWAIT)
        except BlockingIOError:
            return None
        except OSError as error:
            if error.errno == errno.EOPNOTSUPP:
                return None
            raise
        return memoryview(buffer)[:size] if getrusage(RUSAGE_THREAD).ru_inblock == reads else None

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

    def start_writeout(self, position: int) -> None:
        """Begin to write what is dirty from `position` on, without waiting."""
        libc.sync_file_range(self._descriptor, position, 0)

    def reserve(self, position: int, size: int) -> bool:
        """Set disk blocks aside for a range; False where the file system cannot."""
        try:
            libc.reserve(self._descriptor, position, size)
        except OSError as error:
            if error.errno in (errno.EOPNOTSUPP, errno.ENOSYS):
                return False
            raise
        return True

    def read_nothing_ahead(self) -> None:
        """Switch the kernel's reading ahead off for this descriptor."""
        os.posix_fadvise(self._descriptor, 0, 0, os.POSIX_FADV_RANDOM)

    def forget_cached(self, position: int, size: int) -> None:
        """Let the page cache drop a range that is clean."""
        os.posix_fadvise(self._descriptor, position, size, os.POSIX_FADV_DONTNEED)

    def sync_all(self) -> None:
        """Return when all of this file's file system is on the disk; EOPNOTSUPP where syncfs is not known to do it."""
        if libc.file_system_type(self._descriptor) not in SYNCFS_HOLDS:
            raise OSError(errno.EOPNOTSUPP, "syncfs proves nothing on this file system", self.path)
        libc.syncfs(self._descriptor)

    def give_to_owner(self) -> None:
        """Give a file that root has made to the owner of its directory; others could not anyway."""
        if os.geteuid() == 0:
            owner = os.stat(os.path.dirname(self.path) or ".")
            os.fchown(self._descriptor, owner.st_uid, owner.st_gid)

    def try_lock(self) -> bool:
        """Take the lock that ends with this process; False when another holds it."""
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


class Disk:
    """The real file system."""

    def __init__(self) -> None:
        self._whole: dict[str, DiskFile] = {}

    def files_max(self) -> int:
        """The soft limit; see `FileSystem`."""
        return as_number(getrlimit(RLIMIT_NOFILE)[0])

    def open(self, path: str) -> File:
        """Open an existing file for reading and writing."""
        return DiskFile(path, os.O_RDWR)

    def create(self, path: str) -> File:
        """Make a file, or empty the one that is there."""
        return DiskFile(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)

    def create_private(self, path: str) -> File:
        """Make a new file, never through a link, for the owner of its directory alone."""
        with suppress(FileNotFoundError):
            os.unlink(path)
        file = DiskFile(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        file.give_to_owner()
        return file

    def append(self, path: str) -> File:
        """Open a file of lines, or make it for the owner of its directory."""
        flags = os.O_RDWR | os.O_APPEND | os.O_NOFOLLOW
        with suppress(FileNotFoundError):
            return DiskFile(path, flags)
        file = DiskFile(path, flags | os.O_CREAT, 0o640)
        file.give_to_owner()
        return file

    def identity(self, path: str) -> str:
        """Inode number, size, and times of the last changes."""
        found = os.stat(path)
        return f"{found.st_ino}/{found.st_size}/{found.st_mtime_ns}/{found.st_ctime_ns}"

    def mode(self, path: str) -> int:
        """Return the mode for owner, group and others, as chmod has it."""
        return os.stat(path).st_mode & 0o7777

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

    def sync_all(self, path: str) -> None:
        """Return when everything of the file system that holds `path` is on the disk."""
        self._syncfs_file(path).sync_all()

    def _syncfs_file(self, path: str) -> "DiskFile":
        """One descriptor for all syncfs calls: each learns of the errors since it was opened, and of each only once."""
        file = self._whole.get(path)
        if file is None:
            file = self._whole[path] = DiskFile(path, os.O_RDONLY | os.O_DIRECTORY)
        return file

    def space(self, path: str) -> Space:
        """How large the file system that holds `path` is and what is free of it, root's reserve left out."""
        found = os.statvfs(path)
        return Space(found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize)

    def mount(self, path: str) -> str:
        """The word that names this mount of a file system, see `mount_of`."""
        return mount_of(path)

    def lock(self, path: str, *, private: bool = False) -> File | None:
        """Hold a file for this process alone while the result lives; None when another process holds it."""
        if private:
            file = DiskFile(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
            file.give_to_owner()
            return file if file.try_lock() else None
        file = DiskFile(path, os.O_RDWR | os.O_CREAT)
        self._syncfs_file(os.path.dirname(path) or ".")
        return file if file.try_lock() else None


class ReadOnlyDisk(Disk):
    """The real file system for tools that must change nothing: files are open for reading, every change is refused."""

    def open(self, path: str) -> File:
        """Open an existing file for reading."""
        return DiskFile(path, os.O_RDONLY)

    def create(self, path: str) -> File:
        """Refuse."""
        raise _read_only_error(path)

    def create_private(self, path: str) -> File:
        """Refuse."""
        raise _read_only_error(path)

    def append(self, path: str) -> File:
        """Refuse."""
        raise _read_only_error(path)

    def make_directory(self, path: str) -> None:
        """Refuse."""
        raise _read_only_error(path)

    def rename(self, old: str, new: str) -> None:
        """Refuse."""
        raise _read_only_error(new)

    def remove(self, path: str) -> None:
        """Refuse."""
        raise _read_only_error(path)

    def remove_directory(self, path: str) -> None:
        """Refuse."""
        raise _read_only_error(path)

    def lock(self, path: str, *, private: bool = False) -> File | None:
        """Refuse."""
        raise _read_only_error(path)


def _read_only_error(path: str) -> OSError:
    return OSError(errno.EROFS, "opened for reading alone", path)


def mount_of(path: str, sys_dir: str = "/sys") -> str:
    """The word that names this mount of the file system that holds `path`; empty when nothing tells. OSError.

    | asked | what it is | serves |
    |---|---|---|
    | inode number of /sys/fs/<type>/<device> | made at each mount of the device, sysfs counts on | ext4, XFS, F2FS |
    | statx(2), STATX_MNT_ID_UNIQUE | the mount as this mount namespace sees it | others, since Linux 6.8 |

    The first one is the same in every mount namespace: a service that has its own, as systemd's sandboxing gives it,
    gets a mount of its own at each start. Mount ids and device numbers alone are given again after an unmount.
    """
    found = os.stat(path)
    device = f"{os.major(found.st_dev)}:{os.minor(found.st_dev)}"
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        kind = NAMED_IN_SYS.get(libc.file_system_type(descriptor))
    finally:
        os.close(descriptor)
    if kind is not None:
        try:
            block = os.path.basename(os.path.realpath(f"{sys_dir}/dev/block/{device}", strict=True))
            return f"{device}/{kind}/{os.stat(f'{sys_dir}/fs/{kind}/{block}').st_ino}"
        except OSError:  # no sysfs here, or none that names it
            pass
    try:
        number = libc.mount_id(path)
    except OSError:  # a sandbox that allows no query
        number = None
    return "" if number is None else f"{device}/mount/{number}"


def lock_holder(path: str) -> int | None:
    """The process that holds the lock of a file (see `FileSystem.lock`), found without a try to take it; None: none.

    A process of another container is not seen.
    """
    try:
        inode = os.stat(path).st_ino
        with open("/proc/locks", encoding="ascii") as locks:
            lines = [line.split() for line in locks]
    except OSError:
        return None
    for words in lines:
        if len(words) >= 8 and words[1:4:2] == ["FLOCK", "WRITE"] and words[5].rpartition(":")[2] == str(inode):
            return int(words[4])
    return None
