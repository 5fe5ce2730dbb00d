"""PURE. Whether what was read of a log is still there: leader epochs, topic ids, and what a leader says of them.

No client, no clock and no chance may come in here. Source: KIP-320, KIP-279, KIP-516.

A position says: everything below it was read. It is asked about whenever the source was connected anew, and whenever
the partition's leader epoch has changed. First by what can be known without asking; the first row that fits counts:

| topic id | epoch of the last record read | source's epoch | verdict  | then                                          |
|----------|-------------------------------|----------------|----------|-----------------------------------------------|
| another  | any                           | any            | anew     | from the log's start: nothing of it was read  |
| same, ?  | any, and the position is 0    | any            | stands   | nothing that could be gone                    |
| same, ?  | any                           | ?              | stands   | nobody can be asked                           |
| ?        | ?                             | known          | unproved | an older version's: compare with the target   |
| same     | ?                             | known          | stands   | nothing was read yet                          |
| same, ?  | known                         | known          | ask      | OffsetForLeaderEpoch of that epoch            |

Then what the leader answers: the greatest epoch up to ours that its log has, and where that ended there:

| answer                                   | then                                                               |
|------------------------------------------|--------------------------------------------------------------------|
| an end at or above the position          | go on                                                              |
| an end below the position                | back to it, or, if lower, to our first epoch above the answered one |
| none, and its epoch of now is below ours | back to the log's start: what we read was never its own            |
| none                                     | go on: it remembers no epochs, and nobody else can be asked        |

What lies between where the mirror goes back to and its position is at the target, and no longer at the source.

A bound that KIP-320 has, too: a commit remembers one epoch. Where two replicas took turns by several unclean elections
between two lives of the mirror, their logs may part below where it goes back to.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from struct import Struct
from typing import Literal, NamedTuple

_BATCH_FRONT = Struct(">qiib")  # base offset, size of what follows these two, leader epoch, magic
_SIZE_OVERHEAD = 12
_MAGIC_WITH_EPOCH = 2

Standing = Literal["anew", "stands", "unproved", "ask"]


class EpochStart(NamedTuple):
    """An offset from which on records are known to be of a leader epoch."""

    offset: int
    leader_epoch: int


class EpochEnd(NamedTuple):
    """A leader's answer: the greatest epoch up to the one asked about, and its end; -1 and -1 when it knows none."""

    leader_epoch: int
    end_offset: int


class LeaderEpochs:
    """The leader epochs of the records that were read, by where each began; both rise."""

    __slots__ = ("starts",)

    def __init__(self, starts: Iterable[EpochStart] = ()) -> None:
        self.starts: tuple[EpochStart, ...] = tuple(starts)

    def note(self, offset: int, leader_epoch: int) -> None:
        """Note the epoch of what was read from an offset on; what was noted from there on before is forgotten.

        In one log epochs never fall: a greater one that was noted below was the leader's, not the record's.
        """
        if leader_epoch < 0:
            return
        before = [EpochStart(start, min(known, leader_epoch)) for start, known in self.starts if start < offset]
        self.starts = tuple(_rising([*before, EpochStart(offset, leader_epoch)]))

    def below(self, offset: int) -> EpochStart | None:
        """Return the epoch of the last record below an offset, None when it is not known."""
        return next((start for start in reversed(self.starts) if start.offset < offset), None)

    def cut(self, offset: int) -> None:
        """Forget what was read from an offset on."""
        self.starts = tuple(start for start in self.starts if start.offset < offset)

    def first_above(self, leader_epoch: int) -> int | None:
        """Return the first offset that is known to be of a greater epoch than this."""
        return next((start.offset for start in self.starts if start.leader_epoch > leader_epoch), None)


def _rising(starts: Iterable[EpochStart]) -> Iterator[EpochStart]:
    last = -1
    for start in starts:
        if start.leader_epoch > last:
            last = start.leader_epoch
            yield start


def differ(topic_id: str | None, other: str | None) -> bool:
    """Whether two topics of one name are known to be different ones."""
    return topic_id is not None and other is not None and topic_id != other


def judge_standing(
    position: int, topic_id: str | None, epochs: LeaderEpochs, *, source_topic_id: str | None, source_epoch: int
) -> Standing:
    """Return the first table's verdict; no topic id, and a source's epoch of -1, mean that it is not known."""
    if differ(topic_id, source_topic_id):
        return "anew"
    if position == 0 or source_epoch < 0:
        return "stands"
    if epochs.below(position) is None:
        return "unproved" if topic_id is None else "stands"
    return "ask"


def judge_epoch_end(position: int, epochs: LeaderEpochs, answer: EpochEnd, *, source_epoch: int, log_start: int) -> int:
    """Return where to go on by the second table: at the position, or below it."""
    known = epochs.below(position)
    assert known is not None, "only of a position with a leader epoch there is something to ask"
    if answer.end_offset < 0:
        return min(position, log_start) if source_epoch < known.leader_epoch else position
    if answer.end_offset >= position:
        return position
    ours = epochs.first_above(answer.leader_epoch)
    return answer.end_offset if ours is None else min(answer.end_offset, ours)


def search_difference(first_offset: int, different: int) -> Generator[int, bool | None, int | None]:
    """Find from where on two logs differ, knowing an offset at which they do, with as few comparisons as can be.

    Yields the offset whose records are to be compared, takes whether they are the same (None: one is not there), and
    returns the first that differs; None when that cannot be told, as also where not even the first is the same.
    """
    low, high = first_offset, different
    if low >= high or not (yield low):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        same = yield middle
        if same is None:
            return None
        low, high = (middle, high) if same else (low, middle)
    return high


def epoch_starts(batches: bytes | memoryview, offset: int) -> Iterator[EpochStart]:
    """Return from where on batches are of which leader epoch: the first, and each of another than that before it.

    What is missing between the `offset` that was asked for and the first batch was of its epoch at most.
    """
    position, last = 0, None
    while position + _BATCH_FRONT.size <= len(batches):
        base_offset, size, leader_epoch, magic = _BATCH_FRONT.unpack_from(batches, position)
        if magic >= _MAGIC_WITH_EPOCH and leader_epoch != last:
            yield EpochStart(min(base_offset, offset) if last is None else base_offset, leader_epoch)
            last = leader_epoch
        position += _SIZE_OVERHEAD + size
