"""A disk in memory that keeps after a crash only what was synced, and anything else at the whim of one seed.

| at a crash | may happen |
|---|---|
| a write that no datasync covered | kept, lost, torn at any byte, or its bytes are zero |
| a truncation that no datasync covered | done or not |
| a name made, replaced or removed without a sync of its directory | there or not, each name on its own |

Lives here: the disk of the tests, and faults on demand. Must never come in: what storage means by the bytes.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Callable

from edge_broker.storage.filesystem import Bytes


class Crashed(BaseException):
    """The power is gone; no code of the broker may catch it."""


class _Inode:
    """A file's bytes as the kernel has them, as the disk has them, and what happened in between."""

    def __init__(self) -> None:
        self.current = bytearray()
        self.durable = bytearray()
        self.pending: list[tuple[int, bytes | None]] = []  # (position, data), or (size, None) for a truncation


class _Directory:
    def __init__(self) -> None:
        self.current: dict[str, _Inode | _Directory] = {}
        self.durable: dict[str, _Inode | _Directory] = {}
        self.pending: list[_NameChange] = []


class _NameChange:
    """Names set or removed (None) together; done once any of its directories is synced."""

    def __init__(self, changes: list[tuple[_Directory, str, _Inode | _Directory | None]]) -> None:
        self.changes = changes
        self.done = False

    def apply(self) -> None:
        if not self.done:
            self.done = True
            for directory, name, node in self.changes:
                if node is None:
                    directory.durable.pop(name, None)
                else:
                    directory.durable[name] = node


class SimulatedFile:
    """An open file of the simulated disk."""

    def __init__(self, disk: SimulatedDisk, path: str, inode: _Inode) -> None:
        self.path = path
        self._disk = disk
        self._inode = inode

    def read(self, size_max: int, position: int) -> Bytes:
        """Bytes as the kernel has them."""
        self._disk.step("read", self.path)
        return bytes(self._inode.current[position : position + size_max])

    def read_cached(self, size_max: int, position: int) -> Bytes | None:
        """As `read`, or None while the disk is cold."""
        return None if self._disk.cold else self.read(size_max, position)

    def write(self, data: Bytes, position: int) -> int:
        """Write all, or what the disk's faults let through."""
        content = bytes(data)
        try:
            content = content[: self._disk.step("write", self.path, len(content))]
        except Crashed:  # in the middle of the write: crash() decides how much of it is there
            self._take(content, position)
            raise
        self._take(content, position)
        return len(content)

    def _take(self, content: bytes, position: int) -> None:
        _put(self._inode.current, position, content)
        self._inode.pending.append((position, content))

    def truncate(self, size: int) -> None:
        """Cut or lengthen with zeroes."""
        self._disk.step("truncate", self.path)
        _resize(self._inode.current, size)
        self._inode.pending.append((size, None))

    def datasync(self) -> None:
        """Make the bytes durable."""
        self._disk.step("datasync", self.path)
        self._inode.durable = bytearray(self._inode.current)
        self._inode.pending.clear()

    def size(self) -> int:
        """Bytes as the kernel has them."""
        return len(self._inode.current)


class SimulatedDisk:
    """A FileSystem whose every step may be the last: `crash_at` counts steps that change something.

    `fault(kind, path, size)` may raise OSError, or return how many bytes of a write are accepted.
    """

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.cold = False
        self.steps = 0
        self.crash_at = -1
        self.fault: Callable[[str, str, int], int | None] | None = None
        self._root = _Directory()
        self._locked: set[str] = set()

    def step(self, kind: str, path: str, size: int = 0) -> int:
        """Count a step, crash or fail at it; the number of bytes that are accepted."""
        if kind != "read":
            self.steps += 1
            if self.steps == self.crash_at:
                raise Crashed
        accepted = self.fault(kind, path, size) if self.fault is not None else None
        return size if accepted is None else accepted

    def crash(self) -> None:
        """Lose the power: afterwards the kernel knows what the disk has, and nobody holds a lock."""
        self.kill()
        self._lose(self._root, set())

    def kill(self) -> None:
        """End the process alone: the kernel still has everything, and a later crash may lose what was never synced."""
        self.crash_at = -1
        self.fault = None
        self._locked.clear()

    def flip(self, path: str, position: int) -> None:
        """Change one bit of a file, on the disk and in memory."""
        inode = self._inode(path)
        inode.current[position] ^= 1
        if position < len(inode.durable):
            inode.durable[position] ^= 1

    def content(self, path: str) -> bytes:
        """A file's bytes."""
        return bytes(self._inode(path).current)

    def put(self, path: str, data: bytes) -> None:
        """Make a file with durable content and name."""
        directory, name = self._parent(path)
        inode = _Inode()
        inode.current, inode.durable = bytearray(data), bytearray(data)
        directory.current[name] = directory.durable[name] = inode

    def _lose(self, directory: _Directory, seen: set[int]) -> None:
        seen.add(id(directory))
        for change in directory.pending:
            if not change.done and self.random.random() < 0.5:
                change.apply()
            change.done = True
        directory.pending.clear()
        directory.current = dict(directory.durable)
        for node in list(directory.current.values()):
            if isinstance(node, _Directory):
                self._lose(node, seen)
            elif id(node) not in seen:
                seen.add(id(node))
                self._lose_bytes(node)

    def _lose_bytes(self, inode: _Inode) -> None:
        for position, data in inode.pending:
            if data is None:
                if self.random.random() < 0.5:
                    _resize(inode.durable, position)
                continue
            fate = self.random.randrange(5)
            if fate == 0 or not data:
                continue
            kept = len(data) if fate in (1, 2) else self.random.randrange(len(data) + 1)
            _put(inode.durable, position, bytes(kept) if fate == 4 else data[:kept])
        inode.pending.clear()
        inode.current = bytearray(inode.durable)

    # FileSystem

    def open(self, path: str) -> SimulatedFile:
        """Open an existing file."""
        self.step("read", path)
        return SimulatedFile(self, path, self._inode(path))

    def create(self, path: str) -> SimulatedFile:
        """Make a file, or empty the one that is there."""
        self.step("create", path)
        directory, name = self._parent(path)
        inode = directory.current.get(name)
        if isinstance(inode, _Inode):
            inode.current.clear()
            inode.pending.append((0, None))
        else:
            inode = _Inode()
            self._change([(directory, name, inode)])
        return SimulatedFile(self, path, inode)

    def size(self, path: str) -> int:
        """Bytes in a file."""
        return len(self._inode(path).current)

    def names(self, directory: str) -> list[str]:
        """The names in a directory."""
        node = self._node(directory)
        if not isinstance(node, _Directory):
            raise NotADirectoryError(errno.ENOTDIR, "Not a directory", directory)
        return list(node.current)

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
            self._change([(directory, name, _Directory())])

    def rename(self, old: str, new: str) -> None:
        """Give another name, replacing a file of that name."""
        self.step("rename", new)
        source, old_name = self._parent(old)
        target, new_name = self._parent(new)
        if old_name not in source.current:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", old)
        self._change([(target, new_name, source.current[old_name]), (source, old_name, None)])

    def remove(self, path: str) -> None:
        """Remove a file."""
        self._inode(path)
        self.step("remove", path)
        directory, name = self._parent(path)
        self._change([(directory, name, None)])

    def remove_directory(self, path: str) -> None:
        """Remove an empty directory."""
        if self.names(path):
            raise OSError(errno.ENOTEMPTY, "Directory not empty", path)
        self.step("remove_directory", path)
        directory, name = self._parent(path)
        self._change([(directory, name, None)])

    def sync_directory(self, path: str) -> None:
        """Make the names of a directory durable."""
        self.step("sync_directory", path)
        node = self._node(path)
        assert isinstance(node, _Directory)
        for change in node.pending:
            change.apply()
        node.pending.clear()

    def lock(self, path: str) -> SimulatedFile | None:
        """Hold a file until the crash."""
        if path in self._locked:
            return None
        self._locked.add(path)
        return self.open(path) if self.exists(path) else self.create(path)

    def unlock(self, path: str) -> None:
        """What the end of a process does."""
        self._locked.discard(path)

    def _change(self, changes: list[tuple[_Directory, str, _Inode | _Directory | None]]) -> None:
        change = _NameChange(changes)
        for directory, name, node in changes:
            if node is None:
                directory.current.pop(name, None)
            else:
                directory.current[name] = node
        for directory in {id(directory): directory for directory, _, _ in changes}.values():
            directory.pending.append(change)

    def _node(self, path: str) -> _Inode | _Directory:
        node: _Inode | _Directory = self._root
        for part in path.strip("/").split("/"):
            if not part:
                continue
            if not isinstance(node, _Directory) or part not in node.current:
                raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
            node = node.current[part]
        return node

    def _inode(self, path: str) -> _Inode:
        node = self._node(path)
        if not isinstance(node, _Inode):
            raise IsADirectoryError(errno.EISDIR, "Is a directory", path)
        return node

    def _parent(self, path: str) -> tuple[_Directory, str]:
        parent, _, name = path.rstrip("/").rpartition("/")
        node = self._node(parent)
        assert isinstance(node, _Directory)
        return node, name


def _put(content: bytearray, position: int, data: bytes) -> None:
    if len(content) < position:
        content.extend(bytes(position - len(content)))
    content[position : position + len(data)] = data


def _resize(content: bytearray, size: int) -> None:
    if size < len(content):
        del content[size:]
    else:
        content.extend(bytes(size - len(content)))
