"""Names and directories: what processes see, what the disk has, and which name changes may be lost in between.

| model | a crash keeps | a directory's sync keeps | a file's datasync keeps |
|---|---|---|---|
| free | any of the changes, each on its own | the changes of that directory | no name |
| ordered | the changes up to some moment, as a journal does | every change so far | every change so far, see below |

In the ordered model a file's datasync commits the journal if the file is new or its size changed since its last sync,
else no name: ext4 with data=ordered commits the running transaction only if it holds something of the inode that
reading the data back needs.

A rename is one change: never both names, never neither. POSIX promises no more than `free`; `ordered` makes the likely
states of a card with ext4 come up more often, and no state that `free` does not have.

Does not contain: bytes. Source: ALICE, "All File Systems Are Not Created Equal" (Pillai et al.,
2014); fs/ext4/fsync.c.
"""

from __future__ import annotations

import random
from typing import TypeAlias

from edge_broker.testing.pages import Pages


class Directory:
    """Names as processes see them, and as the disk has them."""

    __slots__ = ("current", "durable")

    def __init__(self) -> None:
        self.current: dict[str, Node] = {}
        self.durable: dict[str, Node] = {}


Node: TypeAlias = Pages | Directory
NameChange: TypeAlias = list[tuple[Directory, str, Node | None]]  # set together; None removes the name


class Names:
    """A tree of directories and the name changes that are not durable yet, oldest first."""

    def __init__(self, *, ordered: bool) -> None:
        self.root = Directory()
        self.ordered = ordered
        self._pending: list[NameChange] = []

    def change(self, change: NameChange) -> None:
        """Set or remove names together."""
        for directory, name, node in change:
            if node is None:
                directory.current.pop(name, None)
            else:
                directory.current[name] = node
        self._pending.append(change)

    def sync(self, directory: Directory) -> None:
        """Make the names of a directory durable."""
        if self.ordered:
            self.commit()
            return
        pending, self._pending = self._pending, []
        for change in pending:
            if any(touched is directory for touched, _, _ in change):
                _apply(change)
            else:
                self._pending.append(change)

    def commit(self) -> None:
        """Make every change so far durable."""
        for change in self._pending:
            _apply(change)
        self._pending.clear()

    def crash(self, dice: random.Random) -> list[Pages]:
        """Keep what the model says; the files that are left."""
        if self.ordered:
            kept = self._pending[: dice.randrange(len(self._pending) + 1)]
        else:
            kept = [change for change in self._pending if dice.random() < 0.5]
        for change in kept:
            _apply(change)
        self._pending.clear()
        files: dict[int, Pages] = {}
        _restore(self.root, files)
        return list(files.values())

    def files(self) -> list[Pages]:
        """Every file that has a name now."""
        files: dict[int, Pages] = {}
        _collect(self.root, files)
        return list(files.values())

    def fork(self, used: list[int]) -> Names:
        """The same tree with the same changes pending, for another disk."""
        other = Names(ordered=self.ordered)
        twins: dict[int, Node] = {id(self.root): other.root}

        def twin(node: Node) -> Node:
            found = twins.get(id(node))
            if found is None:
                found = node.fork(used) if isinstance(node, Pages) else Directory()
                twins[id(node)] = found
                if isinstance(node, Directory):
                    fill(node)
            return found

        def fill(directory: Directory) -> None:
            made = twins[id(directory)]
            assert isinstance(made, Directory)
            made.current = {name: twin(node) for name, node in directory.current.items()}
            made.durable = {name: twin(node) for name, node in directory.durable.items()}

        fill(self.root)
        for change in self._pending:
            copied: NameChange = []
            for directory, name, node in change:
                place = twin(directory)
                assert isinstance(place, Directory)
                copied.append((place, name, None if node is None else twin(node)))
            other._pending.append(copied)
        return other


def _apply(change: NameChange) -> None:
    for directory, name, node in change:
        if node is None:
            directory.durable.pop(name, None)
        else:
            directory.durable[name] = node


def _restore(directory: Directory, files: dict[int, Pages]) -> None:
    directory.current = dict(directory.durable)
    for node in directory.current.values():
        if isinstance(node, Directory):
            _restore(node, files)
        else:
            files[id(node)] = node


def _collect(directory: Directory, files: dict[int, Pages]) -> None:
    for node in directory.current.values():
        if isinstance(node, Directory):
            _collect(node, files)
        else:
            files[id(node)] = node
