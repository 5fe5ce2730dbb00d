"""Which partitions may have answered what no sync has confirmed: a mark for each, on the disk before the answer.

| a partition's mark | event | next |
|---|---|---|
| none | an answer is due that no sync covers (acks=1, all with `interval`) | asked for; the answer waits |
| none | a record with acks=0 came | requested; no response waits |
| asked for | the commit round that writes it ends | there: answers wait for nothing |
| asked for | it could not be written | none; answers wait until their records are synced |
| there | all is synced and nothing was appended for IDLE_S | none; taken off the disk by the next write |
| there | its topic is being deleted | there, until the deletion is on the disk: a cut before it brings the topic back |
| there | a sync or a write fails, the partition is offline | there, as `failed`: memory does not have it either |
| there, as `failed` | the partition is back | there, by the next write; a kill before it names the partition twice |
| there | a clean stop, or a start that has recorded what it knows | none |

After a cut the partitions with a mark may have lost what was answered, others have not: a sync came first. Whether
there was a cut the session says: only in the same boot, and while the data directory stayed mounted, does the kernel
still have all that was written. A partition that is left to the kernel has no mark.

| line of `in-use` | content |
|---|---|
| 3 | `session`, boot id, mount (`-`: not known, so that every start counts as one after a cut) |
| 4… | topic id, partitions as `0-3,7` |
| after `failed` | the same, of partitions whose disk refused a sync: they lost something, whatever the session |

Contains: the marks and their file (double_buffered_file.py). Does not contain: clocks, threads, what a start
makes of them (open_partition.py).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from edge_broker.errors import StorageFault
from edge_broker.storage.files.atomic_files import fault_of
from edge_broker.storage.files.double_buffered_file import TwinFiles
from edge_broker.thread_checks import runs_in

if TYPE_CHECKING:
    from edge_broker.storage.files.filesystem import FileSystem
    from edge_broker.storage.log.partition_log import PartitionLog

KIND = "in-use"
FILES = ("in-use", "in-use.2")
IDLE_S = 60.0
UNKNOWN = "-"
FAILED = "failed"
MarkKey = tuple[str, int]  # topic id as `id_text` writes it, partition


class Session(NamedTuple):
    """One boot, and one mount of the data directory in it; an empty mount is not known."""

    boot_id: str
    mount: str

    def has_kept_writes_of(self, other: Session) -> bool:
        """True when nothing that was written in the other session can be lost since."""
        return bool(self.mount) and self == other


class Marks(NamedTuple):
    """The contents of the files: the session, and its markers."""

    session: Session
    keys: frozenset[MarkKey]
    failed: frozenset[MarkKey] = frozenset()  # of logs whose disk had refused to sync them

    def lost_in(self, session: Session) -> frozenset[MarkKey]:
        """Return the partitions that may have lost records, as seen from a new session."""
        return self.failed if self.session.has_kept_writes_of(session) else self.keys | self.failed


class _SeenEnd(NamedTuple):
    """Where a marked log ended, since when."""

    end_offset: int
    since_s: float


class Marking:
    """One write of the marks; `fault` says afterwards why it failed."""

    __slots__ = ("_files", "_marks", "fault", "logs")

    def __init__(self, files: TwinFiles, marks: Marks, logs: list[PartitionLog]) -> None:
        self._files = files
        self._marks = marks
        self.logs = logs  # whose marks are new
        self.fault: StorageFault | None = None

    @runs_in("disk")
    def run(self) -> None:
        """Write, synced, or keep in `fault` why not."""
        try:
            self._files.write(list(_lines(self._marks)))
        except OSError as error:
            self.fault = fault_of(error, error.filename or FILES[0], 0)


class InUse:
    """The marks of one data directory; owned by the loop, `Marking.run` aside."""

    def __init__(self, fs: FileSystem, data_dir: str) -> None:
        self.held = False  # True: what the file says is still needed, so it is not written
        self.writes = 0
        self._files = TwinFiles(fs, data_dir, FILES, KIND, 1)
        self._path = f"{data_dir}/{FILES[0]}"
        self.session = Session("", "")
        self._kept: frozenset[MarkKey] = frozenset()  # of partitions that are offline since the start
        self._marked: dict[PartitionLog, _SeenEnd] = {}
        self._asked: dict[PartitionLog, None] = {}
        self._under_way: dict[PartitionLog, None] = {}
        self._leaving: dict[MarkKey, bool] = {}  # of topics that are being deleted; True: as `failed`
        self._failed: frozenset[MarkKey] = frozenset()  # as the file has them
        self._stale = False  # the file has a mark too many, or one that is not `failed` yet

    def __len__(self) -> int:
        return len(self._marked)

    @property
    def due(self) -> bool:
        """True while there is something to write."""
        return (bool(self._asked) or self._stale) and not self.held

    # at a start and a stop; nothing else may run

    def read(self) -> Marks | None:
        """Return the markers of the stop before, None if the file does not exist; StorageFault."""
        try:
            entries = self._files.read()
        except FileNotFoundError:
            return None
        try:
            return _marks(entries)
        except (ValueError, IndexError) as error:
            raise StorageFault(self._path, 0, f"a line cannot be understood ({error})") from None

    def clear(self, kept: Iterable[MarkKey] = ()) -> None:
        """Remove all earlier markers, except those of unreadable partitions. OSError."""
        self._kept = frozenset(kept)
        self._files.write(list(_lines(Marks(self.session, self._kept))))

    def end(self) -> None:
        """Everything is synced: leave marks only where a fault kept that from being done. OSError."""
        if (self._marked or self._under_way or self._stale) and not self.held:
            failed = self._failed_keys()
            self._files.write(list(_lines(Marks(self.session, self._kept.union(self._leaving) - failed, failed))))

    # while the loop runs

    def ask(self, log: PartitionLog) -> None:
        """Mark a log in the next write."""
        if not log.marked and log not in self._under_way:
            self._asked[log] = None

    def begin_write(self) -> Marking | None:
        """The next write, None when there is nothing to write; `end_write` must follow."""
        if not self.due:
            return None
        self._under_way, self._asked, self._stale = self._asked, {}, False
        self._failed = failed = self._failed_keys()
        keys = self._kept.union(self._leaving, map(_key, (*self._marked, *self._under_way))) - failed
        return Marking(self._files, Marks(self.session, keys, failed), list(self._under_way))

    def end_write(self, marking: Marking) -> None:
        """Let answers go by the marks that are on the disk now."""
        logs, self._under_way = self._under_way, {}
        if marking.fault is not None:
            self._stale = bool(self._marked)
            return
        self.writes += 1
        for log in logs:
            log.marked = True
            self._marked[log] = _SeenEnd(-1, 0.0)

    def remove_idle_marks(self, now_s: float) -> None:
        """Take marks off that are not needed any more; every few seconds."""
        idle = []
        for log, seen in self._marked.items():
            end = log.log_end_offset
            if end != seen.end_offset or log.synced_end.offset != end or log.writer.busy or log.fault is not None:
                self._marked[log] = _SeenEnd(end, now_s)
            elif now_s - seen.since_s >= IDLE_S:
                idle.append(log)
        self._take_off(idle)
        self._stale |= self._failed_keys() != self._failed

    def leave(self, logs: Iterable[PartitionLog]) -> None:
        """These logs are about to be deleted: no answer goes by their marks any more. `logs_deleted` must follow."""
        for log in logs:
            self._asked.pop(log, None)
            had = self._marked.pop(log, None) is not None, log in self._under_way
            if any(had):
                self._under_way.pop(log, None)
                self._leaving[_key(log)] = log.fault is not None
            log.marked = False

    def logs_deleted(self, logs: Iterable[PartitionLog]) -> None:
        """These logs are deleted, on the disk too: their marks go with the next write."""
        for log in logs:
            self._stale |= self._leaving.pop(_key(log), None) is not None

    def _take_off(self, logs: Iterable[PartitionLog]) -> None:
        for log in logs:
            log.marked = False
            self._stale |= self._marked.pop(log, None) is not None

    def _failed_keys(self) -> frozenset[MarkKey]:
        offline = (_key(log) for log in (*self._marked, *self._under_way) if log.fault is not None)
        return frozenset((*offline, *(key for key, failed in self._leaving.items() if failed)))


def _key(log: PartitionLog) -> MarkKey:
    return log.topic_id, log.partition


def _lines(marks: Marks) -> Iterator[str]:
    yield f"session {marks.session.boot_id or UNKNOWN} {marks.session.mount or UNKNOWN}"
    yield from _key_lines(marks.keys)
    if marks.failed:
        yield FAILED
        yield from _key_lines(marks.failed)


def _key_lines(keys: Iterable[MarkKey]) -> Iterator[str]:
    by_topic: dict[str, list[int]] = defaultdict(list)
    for topic_id, partition in keys:
        by_topic[topic_id].append(partition)
    for topic_id, partitions in by_topic.items():
        yield f"{topic_id} {','.join(_ranges(sorted(partitions)))}"


def _ranges(numbers: Sequence[int]) -> Iterator[str]:
    first = last = numbers[0]
    for number in (*numbers[1:], None):
        if number is not None and number <= last + 1:
            last = number
            continue
        yield str(first) if first == last else f"{first}-{last}"
        first = last = number or 0


def _marks(entries: Sequence[Sequence[str]]) -> Marks:
    (word, boot_id, mount), *lines = entries
    if word != "session":
        raise ValueError(word)
    at = lines.index([FAILED]) if [FAILED] in lines else len(lines)
    return Marks(Session(boot_id, "" if mount == UNKNOWN else mount), _keys(lines[:at]), _keys(lines[at + 1 :]))


def _keys(lines: Sequence[Sequence[str]]) -> frozenset[MarkKey]:
    return frozenset((topic_id, partition) for topic_id, text in lines for partition in _numbers(text))


def _numbers(text: str) -> Iterator[int]:
    for part in text.split(","):
        first, _, last = part.partition("-")
        yield from range(int(first), int(last or first) + 1)
