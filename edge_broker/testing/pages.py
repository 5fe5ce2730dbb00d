"""The bytes of one file: as the kernel has them, as the disk has them, and what may be left of the difference.

| at a crash, each page of 4 KiB that was written since the last sync | each on its own, in any order |
|---|---|
| kept | as it was last written |
| lost | as it was at the last sync; zeroes where the file had none |
| older | as it was after any write in between, since the kernel writes back when it likes |
| torn | one version up to any byte, an older one after it |
| zeroed | what was written since the last sync is zeroes; what was synced, or written again as it was, stays |

The size is on its own too: any size that the file had since the last sync, or the end of any page in between, as ext4
does with delayed allocation. A failed sync marks pages clean that are not on the disk: the next sync succeeds without
them, as Linux does; they are there until memory lets go of them.

Does not contain: names, what the bytes mean. Source: ext4's delayed allocation; fsync(2), Errors;
"Can applications recover from fsync failures?" (Rebello et al., 2020).
"""

from __future__ import annotations

import random

PAGE_BYTES = 4096
Change = tuple[int, bytes | None]  # (position, data), or (size, None) for a truncation


class Pages:
    """One file's content; `current` is what any process reads, `durable` what a crash leaves at the least."""

    __slots__ = ("_blocks", "changed_size", "current", "durable", "errors", "lost", "pending", "reserved", "used")

    def __init__(self, used: list[int]) -> None:
        self.current = bytearray()
        self.durable = bytearray()
        self.pending: list[Change] = []
        self.lost: set[int] = set()  # clean for the kernel, not on the disk
        self.errors = 0  # failed write-outs that a descriptor open at the time must learn of
        self.reserved = 0
        self.changed_size = True  # a new file's first sync commits its inode
        self.used = used  # blocks taken by all files, shared
        self._blocks = 0

    def __del__(self) -> None:
        self.used[0] -= self._blocks

    def fork(self, used: list[int]) -> Pages:
        """The same content and history on another disk."""
        other = Pages(used)
        other.current, other.durable = bytearray(self.current), bytearray(self.durable)
        other.pending, other.lost = list(self.pending), set(self.lost)
        other.errors, other.reserved, other.changed_size = self.errors, self.reserved, self.changed_size
        other.account()
        return other

    def account(self) -> None:
        """Count the blocks that the file takes."""
        blocks = -(-max(len(self.current), self.reserved) // PAGE_BYTES)
        self.used[0] += blocks - self._blocks
        self._blocks = blocks

    def growth(self, end: int) -> int:
        """Blocks that a file of `end` bytes would take beyond those it has."""
        return max(-(-end // PAGE_BYTES) - self._blocks, 0)

    def room(self, position: int, size: int, free_blocks: int) -> int:
        """How many of `size` bytes at `position` fit into what the file has and `free_blocks`."""
        return max(min(size, (self._blocks + free_blocks) * PAGE_BYTES - position), 0)

    # what the kernel does

    def write(self, position: int, content: bytes) -> None:
        """Write, in memory; a page that was lost is dirty again as a whole."""
        for page in self.lost.intersection(_touched_pages(position, content)):
            start = page * PAGE_BYTES
            self.pending.append((start, bytes(self.current[start : start + PAGE_BYTES])))
            self.lost.discard(page)
        self.changed_size |= position + len(content) > len(self.current)
        _put(self.current, position, content)
        self.pending.append((position, content))
        self.account()

    def truncate(self, size: int) -> None:
        """Cut or lengthen with zeroes; blocks reserved after the end go."""
        self.changed_size = True
        _resize(self.current, size)
        self.pending.append((size, None))
        self.lost = {page for page in self.lost if page * PAGE_BYTES < size}
        self.reserved = 0
        self.account()

    def sync(self) -> None:
        """Everything dirty is on the disk, and the size; pages lost before are not."""
        for position, content in self.pending:
            if content is None:
                _resize(self.durable, position)
            else:
                _put(self.durable, position, content)
        _resize(self.durable, len(self.current))
        self.pending.clear()
        self.changed_size = False

    def fail_sync(self, dice: random.Random) -> None:
        """Any of the dirty pages did not reach the disk, and all are clean now."""
        dirty = sorted({page for at, content in self.pending if content for page in _touched_pages(at, content)})
        sizes = [len(self.durable), len(self.current)]
        _resize(self.durable, dice.choice(sizes))
        for page in dirty:
            start = page * PAGE_BYTES
            kept = bytes(self.current[start : start + PAGE_BYTES])
            if dice.random() < 0.5:
                _put(self.durable, start, kept[: max(len(self.durable) - start, 0)])
            if bytes(self.durable[start : start + PAGE_BYTES]) != kept:
                self.lost.add(page)
        self.pending.clear()

    def forget(self, position: int, size: int) -> None:
        """Drop clean pages from memory: the next read of them reads the disk. `size` 0: to the end."""
        end = position + size if size else max(len(self.current), position)
        for page in sorted(self.lost):
            start = page * PAGE_BYTES
            if start < end and start + PAGE_BYTES > position:
                on_disk = bytes(self.durable[start : start + PAGE_BYTES]).ljust(PAGE_BYTES, b"\0")
                stop = min(start + PAGE_BYTES, len(self.current))
                self.current[start:stop] = on_disk[: stop - start]
                self.lost.discard(page)

    def forget_pending(self) -> None:
        """Forget what could be lost: what the kernel has is on the disk, as for a file made by the test."""
        self.durable = bytearray(self.current)
        self.pending.clear()
        self.lost.clear()

    # what a crash leaves

    def crash(self, dice: random.Random) -> None:
        """Keep any part of what was not synced; afterwards the kernel knows what the disk has."""
        if self.pending:
            self.durable = self._remains(dice)
            self.pending.clear()
        self.lost.clear()
        self.errors = 0
        self.reserved = 0 if self.changed_size and dice.random() < 0.5 else self.reserved
        self.changed_size = False
        self.current = bytearray(self.durable)
        self.account()

    def _remains(self, dice: random.Random) -> bytearray:
        versions, spans, sizes = self._history()
        whole = dice.randrange(5)  # often all pages share one fate, as when all or nothing was written back
        remains = bytearray(self.durable)
        for page, kept in versions.items():
            fate = (1, 0)[whole] if whole < 2 else dice.randrange(6)
            _put(remains, page * PAGE_BYTES, _version_by_fate(kept, spans.get(page, (0, 0)), fate, dice))
        _resize(remains, sizes[-1] if whole == 0 else _any_size(sizes, dice))
        return remains

    def _history(self) -> tuple[dict[int, list[bytes]], dict[int, tuple[int, int]], list[int]]:
        """Every version of each page that changed, the bytes of it that were written, and every size."""
        image, sizes = bytearray(self.durable), [len(self.durable)]
        versions: dict[int, list[bytes]] = {}
        spans: dict[int, tuple[int, int]] = {}
        for position, content in self.pending:
            if content is None:
                low, high = sorted((position, len(image)))
                touched = range(low // PAGE_BYTES, -(-high // PAGE_BYTES))
            else:
                touched = _touched_pages(position, content)
            for page in touched:
                versions.setdefault(page, [_page(image, page)])
            if content is None:
                _resize(image, position)
            else:
                _put(image, position, content)
                for page in touched:
                    start = page * PAGE_BYTES
                    low, high = max(position - start, 0), min(position + len(content) - start, PAGE_BYTES)
                    before = spans.get(page, (low, high))
                    spans[page] = (min(low, before[0]), max(high, before[1]))
            for page in touched:
                versions[page].append(_page(image, page))
            sizes.append(len(image))
        return versions, spans, sizes


def _version_by_fate(versions: list[bytes], span: tuple[int, int], fate: int, dice: random.Random) -> bytes:
    if fate == 0:
        return versions[0]
    if fate in (1, 2):
        return versions[-1]
    if fate == 3:
        return dice.choice(versions)
    if fate == 4:
        newer = dice.randrange(1, len(versions))
        cut = dice.randrange(PAGE_BYTES) if span[0] == span[1] else dice.randrange(span[0], span[1] + 1)
        return versions[newer][:cut] + versions[dice.randrange(newer)][cut:]
    first, last = versions[0], versions[-1]
    span = (next((at for at in range(*span) if first[at] != last[at]), span[1]), span[1])
    return last[: span[0]] + bytes(span[1] - span[0]) + last[span[1] :]


def _any_size(sizes: list[int], dice: random.Random) -> int:
    if dice.random() < 0.6:
        return dice.choice(sizes) if dice.random() < 0.5 else sizes[-1]
    between = [at * PAGE_BYTES for at in range(-(-min(sizes) // PAGE_BYTES), max(sizes) // PAGE_BYTES + 1)]
    return dice.choice([*sizes, *between])


def _touched_pages(position: int, content: bytes) -> range:
    return range(position // PAGE_BYTES, -(-(position + len(content)) // PAGE_BYTES) if content else 0)


def _page(image: bytearray, page: int) -> bytes:
    return bytes(image[page * PAGE_BYTES : (page + 1) * PAGE_BYTES]).ljust(PAGE_BYTES, b"\0")


def _put(content: bytearray, position: int, data: bytes) -> None:
    if len(content) < position:
        content.extend(bytes(position - len(content)))
    content[position : position + len(data)] = data


def _resize(content: bytearray, size: int) -> None:
    if size < len(content):
        del content[size:]
    else:
        content.extend(bytes(size - len(content)))
