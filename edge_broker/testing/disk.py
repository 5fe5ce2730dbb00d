"""A disk in memory that keeps after a crash only what was synced, and anything else at the whim of one seed.

| what is not synced at a crash | may be |
|---|---|
| pages of a file, and its size | `pages.py`: kept, lost, older, torn, zeroed, each on its own |
| names made, replaced or removed | `names.py`: there or not, each on its own, or in order as a journal keeps them |

| fault | how |
|---|---|
| EIO on any step, short writes, ENOSPC at will | `fault(kind, path, size)` |
| a sync that fails and lets the next one lie | `fault` raises at `datasync`, or `fail_writeout` |
| a full disk | `capacity_bytes`: a write takes what fits, then ENOSPC; with `delayed` the sync says so instead |

Contains: the disk of the tests. Does not contain: what storage means by the bytes.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Callable
from weakref import WeakValueDictionary

from edge_broker.protocol.crc import crc32c
from edge_broker.storage.files.filesystem import Bytes, Space
from edge_broker.testing.names import Directory, NameChange, Names, Node
from edge_broker.testing.pages import PAGE_BYTES, Pages

Fault = Callable[[str, str, int], int | None]


class PowerLoss(BaseException):
    """The power is gone; no code of the broker may catch it."""


class SimulatedFile:
    """An open file of the simulated disk."""

    def __init__(self, disk: SimulatedDisk, path: str, pages: Pages) -> None:
        self.path = path
        self._disk = disk
        self._pages = pages
        self._errors_seen = pages.errors

    def read(self, size_max: int, position: int) -> Bytes:
        """Bytes as the kernel has them."""
        self._disk.step("read", self.path)
        return bytes(self._pages.current[position : position + size_max])

    def read_cached(self, size_max: int, position: int) -> Bytes | None:
        """As `read`, or None while the disk is cold."""
        return None if self._disk.cold else self.read(size_max, position)

    def write(self, data: Bytes, position: int) -> int:
        """Write all, or what the disk's faults and its room let through."""
        content = bytes(data)
        try:
            content = content[: self._disk.step("write", self.path, len(content))]
        except PowerLoss:  # in the middle of the write: the kernel copied some pages; crash() decides what the disk has
            self._pages.write(position, content[: self._disk.copied_bytes(position, len(content))])
            raise
        content = content[: self._disk.admitted_bytes(self._pages, position, len(content))]
        self._pages.write(position, content)
        return len(content)

    def truncate(self, size: int) -> None:
        """Cut or lengthen with zeroes."""
        self._disk.step("truncate", self.path)
        self._pages.truncate(size)

    def datasync(self) -> None:
        """Make the bytes durable, or fail as Linux does: what was dirty is clean afterwards, on the disk or not."""
        try:
            self._disk.step("datasync", self.path)
            if self._pages.errors > self._errors_seen:
                raise OSError(errno.EIO, "Input/output error", self.path)
            if self._disk.is_overdrawn:
                raise OSError(errno.ENOSPC, "No space left on device", self.path)
        except OSError:
            self._errors_seen = self._pages.errors
            self._pages.fail_sync(self._disk.random)
            raise
        self._disk.commit_if_due(self._pages)
        self._pages.sync()

    def size(self) -> int:
        """Bytes as the kernel has them."""
        return len(self._pages.current)

    def start_writeout(self, position: int) -> None:
        """Promise nothing."""

    def reserve(self, position: int, size: int) -> bool:
        """Take blocks for a range, or fail for lack of them."""
        self._disk.step("reserve", self.path, size)
        if self._disk.admitted_bytes(self._pages, position, size) < size:
            raise OSError(errno.ENOSPC, "No space left on device", self.path)
        self._pages.reserved = max(self._pages.reserved, position + size)
        self._pages.changed_size = True
        self._pages.account()
        return True

    def read_nothing_ahead(self) -> None:
        """Nothing is ever read ahead here."""

    def forget_cached(self, position: int, size: int) -> None:
        """Let go of clean pages; only those of a failed sync look different afterwards."""
        self._pages.forget(position, size)


class SimulatedDisk:
    """A FileSystem whose every step may be the last: `crash_at` counts steps that change something.

    `fault(kind, path, size)` may raise OSError, or return how many bytes of a write are accepted. `witness(kind, path)`
    is called before each step; `meanwhile(kind, path)` may do other threads' work there.
    """

    def __init__(self, seed: int, *, ordered: bool = False, capacity_bytes: int | None = None) -> None:
        self.random = random.Random(seed)
        self.cold = False
        self.steps = 0
        self.crash_at = -1
        self.capacity_bytes = capacity_bytes
        self.delayed = False
        self.mounts = 1
        self.modes: dict[str, int] = {}  # of files that are not the owner's alone
        self.loses_all = False  # a crash keeps no byte that was not synced
        self.room = Space(1 << 35, 1 << 34)  # what space() says while there is no capacity
        self.fault: Fault | None = None
        self.witness: Callable[[str, str], None] | None = None
        self.meanwhile: Callable[[str, str], None] | None = None
        self._used = [0]
        self._writeouts_failed = 0
        self._names = Names(ordered=ordered)
        self._locked: WeakValueDictionary[str, SimulatedFile] = WeakValueDictionary()

    def fork(self, seed: int) -> SimulatedDisk:
        """The same disk at the same moment, to be crashed on its own; without its faults and locks."""
        other = SimulatedDisk(seed, capacity_bytes=self.capacity_bytes)
        other.delayed, other.room, other.mounts = self.delayed, self.room, self.mounts
        other._names = self._names.fork(other._used)
        return other

    def step(self, kind: str, path: str, size: int = 0) -> int:
        """Count a step, crash or fail at it; the number of bytes that are accepted."""
        if kind != "read":
            self._overlap(kind, path)
            self.steps += 1
            if self.witness is not None:
                self.witness(kind, path)
            if self.steps == self.crash_at:
                raise PowerLoss
        accepted = self.fault(kind, path, size) if self.fault is not None else None
        return size if accepted is None else accepted

    def _overlap(self, kind: str, path: str) -> None:
        others, self.meanwhile = self.meanwhile, None
        if others is not None:
            try:
                others(kind, path)
            finally:
                self.meanwhile = others

    # space

    @property
    def is_overdrawn(self) -> bool:
        """More was written than there is room for, as only delayed allocation lets happen."""
        return self.capacity_bytes is not None and self._used[0] * PAGE_BYTES > self.capacity_bytes

    def admitted_bytes(self, pages: Pages, position: int, size: int) -> int:
        """How many of so many bytes there is room for; ENOSPC for none."""
        if self.capacity_bytes is None or self.delayed or not pages.growth(position + size):
            return size
        fits = pages.room(position, size, self._free_blocks())
        if fits < size:  # as ext4 does: blocks of removed files come free with a commit, so it is tried once more
            self._names.commit()
            fits = pages.room(position, size, self._free_blocks())
        if not fits:
            raise OSError(errno.ENOSPC, "No space left on device")
        return fits

    def _free_blocks(self) -> int:
        return max((self.capacity_bytes or 0) // PAGE_BYTES - self._used[0], 0)

    def fill(self, free_blocks: int) -> None:
        """Leave so many blocks of 4 KiB free."""
        self.capacity_bytes = (self._used[0] + free_blocks) * PAGE_BYTES

    def space(self, path: str) -> Space:
        """The capacity and what is left of it; without one, whatever a test says."""
        if self.capacity_bytes is None:
            return self.room
        return Space(self.capacity_bytes, max(self.capacity_bytes - self._used[0] * PAGE_BYTES, 0))

    def copied_bytes(self, position: int, size: int) -> int:
        """How much of a write the kernel has copied when a process is killed within it: up to the end of some page."""
        ends: list[int] = [*range(PAGE_BYTES - position % PAGE_BYTES, size, PAGE_BYTES), size]
        return self.random.choice(ends)

    # what tests do to it

    def crash(self) -> None:
        """Lose the power: afterwards the kernel knows what the disk has, and no process holds a lock."""
        self.kill()
        self.mounts += 1
        for pages in self._names.crash(self.random):
            if self.loses_all:
                pages.pending.clear()
            pages.crash(self.random)

    def kill(self) -> None:
        """End the process alone: the kernel still has everything, and a later crash may lose what was never synced."""
        self.crash_at = -1
        self.fault = None
        self._locked.clear()

    def fail_writeout(self, path: str) -> None:
        """Fail the kernel's own write-back: only holders of the open file learn of it, at the next sync."""
        self._writeouts_failed += 1
        pages = self._pages(path)
        pages.errors += 1
        pages.fail_sync(self.random)

    def flip(self, path: str, position: int) -> None:
        """Change one bit of a file, on the disk and in memory."""
        pages = self._pages(path)
        pages.current[position] ^= 1
        if position < len(pages.durable):
            pages.durable[position] ^= 1

    def content(self, path: str) -> bytes:
        """A file's bytes."""
        return bytes(self._pages(path).current)

    def put(self, path: str, data: bytes) -> None:
        """Make a file with durable content and name."""
        directory, name = self._parent(path)
        pages = Pages(self._used)
        pages.current = bytearray(data)
        pages.forget_pending()
        pages.account()
        directory.current[name] = directory.durable[name] = pages

    def commit_if_due(self, pages: Pages) -> None:
        """Sync names with a file: a journal is committed if it holds something of the file."""
        if self._names.ordered and pages.changed_size:
            self._names.commit()

    # FileSystem

    def open(self, path: str) -> SimulatedFile:
        """Open an existing file."""
        self.step("read", path)
        return SimulatedFile(self, path, self._pages(path))

    def create(self, path: str) -> SimulatedFile:
        """Make a file, or empty the one that is there."""
        self.step("create", path)
        directory, name = self._parent(path)
        pages = directory.current.get(name)
        if isinstance(pages, Pages):
            pages.truncate(0)
        else:
            pages = Pages(self._used)
            self._names.change([(directory, name, pages)])
        return SimulatedFile(self, path, pages)

    create_private = create  # no other user exists

    def append(self, path: str) -> SimulatedFile:
        """Open a file whose writes go to its end, which the caller names; made where it is missing."""
        return self.open(path) if self.exists(path) else self.create(path)

    def files_max(self) -> int:
        """As without a limit."""
        return 1024

    def size(self, path: str) -> int:
        """Bytes in a file."""
        return len(self._pages(path).current)

    def names(self, directory: str) -> list[str]:
        """The names in a directory."""
        return list(self._directory(directory).current)

    def exists(self, path: str) -> bool:
        """True when the name is there."""
        try:
            self._node(path)
        except FileNotFoundError:
            return False
        return True

    def make_directory(self, path: str) -> None:
        """Make a directory unless it is there."""
        self.step("make_directory", path)
        directory, name = self._parent(path)
        if name not in directory.current:
            self._names.change([(directory, name, Directory())])

    def rename(self, old: str, new: str) -> None:
        """Give another name, replacing a file of that name."""
        self.step("rename", new)
        source, old_name = self._parent(old)
        target, new_name = self._parent(new)
        if old_name not in source.current:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", old)
        self._names.change([(target, new_name, source.current[old_name]), (source, old_name, None)])
        self.modes.pop(new, None)

    def remove(self, path: str) -> None:
        """Remove a file."""
        self._pages(path)
        self.step("remove", path)
        self._unlink(path)

    def remove_directory(self, path: str) -> None:
        """Remove an empty directory."""
        if self.names(path):
            raise OSError(errno.ENOTEMPTY, "Directory not empty", path)
        self.step("remove_directory", path)
        self._unlink(path)

    def _unlink(self, path: str) -> None:
        directory, name = self._parent(path)
        change: NameChange = [(directory, name, None)]
        self._names.change(change)

    def sync_directory(self, path: str) -> None:
        """Make the names of a directory durable."""
        directory = self._directory(path)
        self.step("sync_directory", path)
        self._names.sync(directory)

    def sync_all(self, path: str) -> None:
        """Make every byte and every name durable; syncfs(2) tells of failures as fsync does."""
        self.step("sync_all", path)
        if self._writeouts_failed:
            self._writeouts_failed = 0
            raise OSError(errno.EIO, "Input/output error", path)
        if self.is_overdrawn:
            raise OSError(errno.ENOSPC, "No space left on device", path)
        self._names.commit()
        for pages in self._names.files():
            pages.sync()

    def mount(self, path: str) -> str:
        """Another word after each crash."""
        return f"mount-{self.mounts}"

    def identity(self, path: str) -> str:
        """Which file it is, and what it holds."""
        self.step("read", path)
        pages = self._pages(path)
        return f"{id(pages)}/{crc32c(pages.current)}/{self.mode(path)}"

    def mode(self, path: str) -> int:
        """Return the mode that a test set in `modes`; else the owner's alone."""
        self._pages(path)
        return self.modes.get(path, 0o600)

    def lock(self, path: str, *, private: bool = False) -> SimulatedFile | None:
        """Hold a file until the crash, or until the result goes."""
        if path in self._locked:
            return None
        file = self._locked[path] = self.open(path) if self.exists(path) else self.create(path)
        return file

    def unlock(self, path: str) -> None:
        """Do what the end of a process does."""
        self._locked.pop(path, None)

    def _node(self, path: str) -> Node:
        node: Node = self._names.root
        for part in path.split("/"):
            if not part:
                continue
            if not isinstance(node, Directory) or part not in node.current:
                raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
            node = node.current[part]
        return node

    def _pages(self, path: str) -> Pages:
        node = self._node(path)
        if not isinstance(node, Pages):
            raise IsADirectoryError(errno.EISDIR, "Is a directory", path)
        return node

    def _directory(self, path: str) -> Directory:
        node = self._node(path)
        if not isinstance(node, Directory):
            raise NotADirectoryError(errno.ENOTDIR, "Not a directory", path)
        return node

    def _parent(self, path: str) -> tuple[Directory, str]:
        parent, _, name = path.rstrip("/").rpartition("/")
        return self._directory(parent), name
