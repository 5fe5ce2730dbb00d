"""PURE. Decides whether the records that were read still exist in the log: leader epochs, topic ids, leaders' answers.

Source: KIP-320, KIP-279, KIP-516.

A position says: everything below it was read. It is checked whenever the source was connected again, and whenever the
partition's leader epoch has changed. First without the leader; the first row that fits counts:

| topic id | epoch of the last record read | source's epoch | verdict  | then                                          |
|----------|-------------------------------|----------------|----------|-----------------------------------------------|
| another  | any                           | any            | anew     | from the log's start: nothing of it was read  |
| same, ?  | any, and the position is 0    | any            | stands   | nothing can be gone                           |
| same, ?  | any                           | ?              | stands   | no leader can be queried                      |
| ?        | ?                             | known          | unproved | an older version's: compare with the target   |
| same     | ?                             | known          | stands   | nothing was read yet                          |
| same, ?  | known                         | known          | ask      | OffsetForLeaderEpoch of that epoch            |

Then the leader answers with the greatest epoch of its log up to the mirror's, and that epoch's end:

| answer                                   | then                                                               |
|------------------------------------------|--------------------------------------------------------------------|
| an end at or above the position          | go on                                                              |
| an end below the position                | back to it, or, if lower, to the first epoch read above that       |
| none, and its present epoch is lower     | back to the log's start: what was read was never its own           |
| none                                     | go on: it remembers no epochs, and no other broker can be queried  |

Records between the place where the mirror goes back to and its position are at the target, and not at the source any
more. KIP-320 has the same bound: a commit remembers one epoch. If two replicas alternated by several unclean elections
between two starts of the mirror, their logs may part below the place where it goes back to.
Does not contain: clients, clocks, chance.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from struct import Struct
from typing import Literal, NamedTuple

_BATCH_FRONT = Struct(">qiib")  # base offset, size of the rest, leader epoch, magic
_SIZE_OVERHEAD = 12
_MAGIC_WITH_EPOCH = 2

Standing = Literal["anew", "stands", "unproved", "ask"]


class EpochStart(NamedTuple):
    """An offset from which on records are known to be of a leader epoch."""

    offset: int
    leader_epoch: int


class EpochEnd(NamedTuple):
    """A leader's answer: its greatest epoch up to the requested one, and that one's end; -1 and -1 if it has none."""

    leader_epoch: int
    end_offset: int


class LeaderEpochs:
    """The leader epochs of the records that were read, by the offset where each began; both rise."""

    __slots__ = ("starts",)

    def __init__(self, starts: Iterable[EpochStart] = ()) -> None:
        self.starts: tuple[EpochStart, ...] = tuple(starts)

    def note(self, offset: int, leader_epoch: int) -> None:
        """Note the epoch of the records read from an offset on, instead of all that was noted from there on before.

        In one log epochs never fall: a greater one that was noted below was the leader's, not the record's.
        """
        if leader_epoch < 0:
            return
        before = [EpochStart(start, min(known, leader_epoch)) for start, known in self.starts if start < offset]
        self.starts = tuple(_rising([*before, EpochStart(offset, leader_epoch)]))

    def below(self, offset: int) -> EpochStart | None:
        """Return the epoch of the last record below an offset, None if it is not known."""
        return next((start for start in reversed(self.starts) if start.offset < offset), None)

    def cut(self, offset: int) -> None:
        """Forget the epochs from an offset on."""
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
    """Return whether two topics of one name are known to be different ones."""
    return topic_id is not None and other is not None and topic_id != other


def classify_standing(
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


def resume_offset(position: int, epochs: LeaderEpochs, answer: EpochEnd, *, source_epoch: int, log_start: int) -> int:
    """Return the offset to go on at, by the second table: the position, or one below it."""
    known = epochs.below(position)
    assert known is not None, "only of a position with a leader epoch there is something to ask"
    if answer.end_offset < 0:
        return min(position, log_start) if source_epoch < known.leader_epoch else position
    if answer.end_offset >= position:
        return position
    ours = epochs.first_above(answer.leader_epoch)
    return answer.end_offset if ours is None else min(answer.end_offset, ours)


def search_difference(first_offset: int, different: int) -> Generator[int, bool | None, int | None]:
    """Find the first offset from which two logs differ, by few comparisons; they are known to differ at `different`.

    Yields the offset of two records to compare, and takes whether they are the same (None: one does not exist). Returns
    the first offset that differs. None if that cannot be told, also if not even the first record is the same.
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
    """Return the offset and leader epoch of the first batch, and of each whose epoch is another than the one before.

    Records missing between the requested `offset` and the first batch were of its epoch at most.
    """
    position, last = 0, None
    while position + _BATCH_FRONT.size <= len(batches):
        base_offset, size, leader_epoch, magic = _BATCH_FRONT.unpack_from(batches, position)
        if magic >= _MAGIC_WITH_EPOCH and leader_epoch != last:
            yield EpochStart(min(base_offset, offset) if last is None else base_offset, leader_epoch)
            last = leader_epoch
        position += _SIZE_OVERHEAD + size
