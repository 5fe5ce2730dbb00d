"""Reading closed segments slowly, so that damage is found while others still have what it took.

| bytes | what is done |
|---|---|
| not in memory | read from the disk, checked, and let go of again: what consumers use stays in memory |
| in memory | checked there and left there; that proves nothing of the disk, a later round may |
| damaged | quarantined (loss/quarantine.py); the round goes on after it |

A round takes every closed segment in turn. It begins at another one after each start, so that a board that is switched
off each night gets round in the end. Where it is stands in memory alone: nothing is written for it.

Contains: the round, in small pieces. Does not contain: how fast it goes (scrub_loop.py), the active
segment: recovery and its readers see to that.
"""

from __future__ import annotations

from collections.abc import Iterator
from errno import EIO, ENOENT
from typing import TYPE_CHECKING

from edge_broker.errors import Refusal, StorageFault
from edge_broker.storage.files.atomic_files import fault_of
from edge_broker.storage.loss.quarantine import quarantine
from edge_broker.storage.segment.batch_scan import HEADER_BYTES, PAGE_BYTES, read_sound, sound_bytes
from edge_broker.storage.segment.segment import DamageFound, Segment
from edge_broker.thread_checks import runs_in

if TYPE_CHECKING:
    from edge_broker.storage.files.filesystem import File
    from edge_broker.storage.log.partition_log import PartitionLog
    from edge_broker.storage.log_store import LogStore

PIECE_BYTES = 131_072


class Scrubber:
    """Checks the closed segments of a store, round after round; its methods run in the worker `files`."""

    def __init__(self, store: LogStore) -> None:
        self.bytes_checked = 0
        self.bytes_read = 0  # of them from the disk; the others were in memory
        self.rounds = 0
        self.notes: list[str] = []  # what was found, until the event loop has logged it
        self._store = store
        self._pieces = self._round()

    @runs_in()
    def step(self) -> int:
        """Check the next piece, 128 KiB or one batch; its bytes, 0 when a round is over."""
        for size in self._pieces:
            self.bytes_checked += size
            return size
        self.rounds += 1
        self._pieces = self._round()
        return 0

    def _round(self) -> Iterator[int]:
        logs = [log for topic in list(self._store.topics.values()) for log in topic.partitions]
        places = [(log, segment.base_offset) for log in logs if log.fault is None for segment in log.segments[:-1]]
        first = self._store.directory.leader_epoch + self._store.directory.age.age_ms // 1000 if not self.rounds else 0
        for at in range(len(places)):
            log, base_offset = places[(first + at) % len(places)]
            segment = _closed_segment(log, base_offset)
            if segment is not None:
                yield from self._segment(log, segment)

    def _segment(self, log: PartitionLog, segment: Segment) -> Iterator[int]:
        position, offset, tried = 0, segment.base_offset, -1
        while True:
            try:
                for size, cold, position, offset in _pieces(log, segment, position, offset):  # noqa: B007, B020 - goes on there
                    self.bytes_read += cold
                    yield size
                return
            except DamageFound as found:
                if found.position == tried or not self._quarantine(log, found):
                    return
                tried = found.position
            except StorageFault as fault:
                self.notes.append(f"{fault}; it was not scrubbed")
                return

    def _quarantine(self, log: PartitionLog, found: DamageFound) -> bool:
        try:
            quarantine(log, found)
        except (StorageFault, Refusal) as error:
            self.notes += log.take_damage_notes()
            if not log.has_missing:  # else it is to come from another replica
                self.notes.append(f"{found}; it cannot be written down: {error}")
            return False
        self.notes += log.take_damage_notes()
        return True


def _closed_segment(log: PartitionLog, base_offset: int) -> Segment | None:
    """The segment that begins there now: a round holds none, as one that compaction replaces would stay on disk."""
    if log.fault is not None:
        return None
    return next((segment for segment in log.segments[:-1] if segment.base_offset == base_offset), None)


def _pieces(log: PartitionLog, segment: Segment, position: int, offset: int) -> Iterator[tuple[int, int, int, int]]:
    """Yield size, bytes from the disk, end position and end offset of each slice; DamageFound, StorageFault."""
    bounds = log.state.bounds(segment)
    if bounds is None:
        return
    file = _open(segment)
    while True:
        position, end = segment.stretch(position, bounds.position)
        offset = segment.next_held(offset)
        if position >= bounds.position:
            break
        data, cold = _read(segment, file, position, min(PIECE_BYTES, end - position), end)
        sound, offset, reason = sound_bytes(data, offset, dense=bounds.dense)
        if sound == 0:
            raise DamageFound(segment, position, reason or "a record batch is cut short here")
        position += sound
        yield sound, cold, position, offset
        if segment.retired:
            return
    if bounds.dense and offset < bounds.end_offset:
        raise DamageFound(segment, bounds.position, f"offset {offset} and all after it are missing")


def _open(segment: Segment) -> File:
    """A file of our own: those that readers use stay open, and it reads nothing ahead."""
    try:
        file = segment.files.fs.open(segment.path)
    except OSError as error:
        if error.errno in (EIO, ENOENT):
            raise DamageFound(segment, 0, f"cannot be read: {error.strerror}") from error
        raise fault_of(error, segment.path, 0) from error
    file.read_nothing_ahead()
    return file


def _read(segment: Segment, file: File, position: int, size: int, end: int) -> tuple[bytes, int]:
    """A whole batch at least, if one begins there, and how many bytes came from the disk."""
    try:
        data, cold = _read_and_forget(file, position, size)
        if len(data) >= HEADER_BYTES:
            whole = int.from_bytes(data[8:12], "big", signed=True) + 12
            if len(data) < whole <= end - position:
                data, more = _read_and_forget(file, position, whole)
                cold += more
    except OSError as error:
        raise fault_of(error, segment.path, position) from error
    return data, cold


def _read_and_forget(file: File, position: int, size: int) -> tuple[bytes, int]:
    """Read, and let memory go of the pages that it did not hold before."""
    known = file.read_cached(size, position)
    held = bytes(known) if known is not None else b""
    if len(held) == size:
        return held, 0
    cold = position + len(held)
    rest = bytes(read_sound(file, position + size - cold, cold))
    begin = cold // PAGE_BYTES * PAGE_BYTES
    file.forget_cached(begin, -(-(position + size) // PAGE_BYTES) * PAGE_BYTES - begin)
    return held + rest, len(rest)
