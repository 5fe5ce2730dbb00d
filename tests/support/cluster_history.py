"""What clients were promised and shown by a cluster, what its boards hold in the end, and where the two disagree.

| what must hold | found by |
|---|---|
| a record that acks=all answered is on every in-sync replica, where it was answered | `_unkept` |
| a record that was shown is there for ever, and nobody was shown another one at its offset | `_unshown` |
| no offset is answered twice: at acks=all never, at acks=1 not in one leader epoch | `_answered_twice` |
| a record that acks=1 answered and that is gone is in a board's ledger, by epoch and offset | `_unledgered` |
| a sequence of a producer id and epoch is in a partition once, behind all lower ones, without a gap | `_unsequenced` |
| a record of a producer is there once, and those of one producer in their order | `_misplaced` |
| what a group was answered as committed never goes back | `_gone_back` |
| every replica is in sync, and replicas have the same record at every offset that both hold | `_apart` |
| what has no compaction has the same offsets everywhere | `_uneven` |

Values are text that names a producer and a number, PRODUCER-NUMBER, and no value is produced twice.
Order in time is by `at`: numbers that one process gave out as things happened.

librdkafka answers a gap in one partition with the next producer epoch for all of them, and sends under it what was not
answered, also what another partition's leader has stored: of that no broker can know. So `_misplaced` lets a record be
there once in each epoch of its producer (`sent_anew` tells which are), if what was sent is known.

Lives here: a pure judgement. Must never come in: clients, files, what was done to the cluster.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

ALL = -1
LOSSES = ("truncated", "unsynced_cut")  # of records that acks=1 alone was answered for
Place = tuple[str, int]  # topic and partition


class Acked(NamedTuple):
    """A record that was answered; `epochs` are the first and the last leader epoch in which it may be appended.

    `offset` None, at acks=all alone: answered as a duplicate of one that is stored, without its place.
    """

    place: Place
    offset: int | None
    value: str
    acks: int = ALL
    epochs: tuple[int, int] | None = None


class Shown(NamedTuple):
    """A record that a consumer was given."""

    reader: str
    place: Place
    offset: int
    value: str


class AckedCommit(NamedTuple):
    """A commit that was answered, and when it was begun."""

    begun_at: int
    answered_at: int
    group: str
    place: Place
    offset: int


class FetchedCommit(NamedTuple):
    """What a group was told as committed, and when that was asked."""

    asked_at: int
    group: str
    place: Place
    offset: int


class Sent(NamedTuple):
    """As what an idempotent producer sent a record."""

    producer_id: int
    producer_epoch: int
    sequence: int


class Stored(NamedTuple):
    """A record on a board; `sent` None: as what is not known, or not by an idempotent producer."""

    value: str | None
    leader_epoch: int
    key: str | None = None
    sent: Sent | None = None


class LedgeredLoss(NamedTuple):
    """A loss in a board's ledger; `last_offset` None: whatever was behind the first."""

    board: int
    cause: str
    place: Place
    first_offset: int
    last_offset: int | None
    leader_epoch: int | None

    def covers(self, acked: Acked) -> bool:
        """Whether it says that this record may be gone."""
        low, high = acked.epochs or (0, 1 << 31)
        return (
            acked.offset is not None
            and self.cause in LOSSES
            and self.place == acked.place
            and self.first_offset <= acked.offset
            and (self.last_offset is None or acked.offset <= self.last_offset)
            and (self.leader_epoch is None or low <= self.leader_epoch <= high)
        )


Log = Mapping[int, Stored]


@dataclass
class History:
    """All of one run; `logs` and `in_sync` are by place, and by board."""

    acked: list[Acked] = field(default_factory=list)
    shown: list[Shown] = field(default_factory=list)
    committed: list[AckedCommit] = field(default_factory=list)
    found: list[FetchedCommit] = field(default_factory=list)
    given_up: list[str] = field(default_factory=list)
    logs: dict[Place, dict[int, Log]] = field(default_factory=dict)
    in_sync: dict[Place, set[int]] = field(default_factory=dict)
    ledger: list[LedgeredLoss] = field(default_factory=list)
    compacted: set[str] = field(default_factory=set)  # topics
    boards: frozenset[int] = frozenset({1, 2, 3})


def violations(history: History) -> list[str]:
    """Each a sentence; none: all that the head says holds."""
    judges = (
        _unkept,
        _unshown,
        _answered_twice,
        _unledgered,
        _unsequenced,
        _misplaced,
        _gone_back,
        _apart,
        _uneven,
    )
    return [f"a producer gave up: {each}" for each in history.given_up] + [
        each for judge in judges for each in judge(history)
    ]


def _held(history: History, place: Place, offset: int | None) -> dict[int, str | None]:
    """What the boards hold there, by board; None: nothing."""
    logs = history.logs.get(place, {})
    found = {board: logs.get(board, {}).get(-1 if offset is None else offset) for board in sorted(history.boards)}
    return {board: None if stored is None else stored.value for board, stored in found.items()}


def _unkept(history: History) -> Iterator[str]:
    stored = {
        (place, board): {each.value for each in log.values()}
        for place, logs in history.logs.items()
        for board, log in logs.items()
    }
    for acked in history.acked:
        if acked.offset is None:
            boards = sorted(history.boards)
            lacking = [board for board in boards if acked.value not in stored.get((acked.place, board), ())]
            if lacking:
                topic, partition = acked.place
                where = f"{topic}-{partition}"
                yield f"{acked.value!r} was answered as a duplicate in {where}, and boards {lacking} lack it"
            continue
        held = _held(history, acked.place, acked.offset)
        if acked.acks == ALL and set(held.values()) != {acked.value}:
            where = _at(acked.place, acked.offset)
            yield f"{where} was answered at acks=all as {acked.value!r}, and boards hold {held}"


def _unshown(history: History) -> Iterator[str]:
    first: dict[tuple[Place, int], Shown] = {}
    for shown in history.shown:
        before = first.setdefault((shown.place, shown.offset), shown)
        if before.value != shown.value:
            yield (
                f"{_at(shown.place, shown.offset)} was shown to {before.reader} as {before.value!r}, "
                f"to {shown.reader} as {shown.value!r}"
            )
    for shown in first.values():
        held = _held(history, shown.place, shown.offset)
        if set(held.values()) != {shown.value}:
            yield f"{_at(shown.place, shown.offset)} was shown to {shown.reader} as {shown.value!r}, boards hold {held}"


def _answered_twice(history: History) -> Iterator[str]:
    first: dict[tuple[Place, int, int | None], Acked] = {}
    for acked in history.acked:
        if acked.offset is None:
            continue
        if acked.acks == ALL:
            epoch = None
        elif acked.epochs is not None and acked.epochs[0] == acked.epochs[1]:
            epoch = acked.epochs[0]
        else:
            continue  # another leader may have answered for the offset since
        before = first.setdefault((acked.place, acked.offset, epoch), acked)
        if before.value != acked.value:
            yield f"{_at(acked.place, acked.offset)} was answered for {before.value!r} and for {acked.value!r}"


def _unledgered(history: History) -> Iterator[str]:
    for acked in history.acked:
        if acked.acks == ALL:
            continue
        held = _held(history, acked.place, acked.offset)
        if acked.value not in held.values() and not any(entry.covers(acked) for entry in history.ledger):
            yield (
                f"{_at(acked.place, acked.offset)} was answered at acks={acked.acks} in epochs {acked.epochs} as "
                f"{acked.value!r}; boards hold {held}, and no ledger has it"
            )


def _together(history: History) -> Iterator[tuple[Place, list[tuple[int, Stored]]]]:
    """What all boards hold of each partition that is not compacted, by offset."""
    for place, logs in history.logs.items():
        if place[0] not in history.compacted:
            yield place, sorted({offset: stored for log in logs.values() for offset, stored in log.items()}.items())


def _unsequenced(history: History) -> Iterator[str]:
    for place, log in _together(history):
        due: dict[tuple[int, int], int] = {}
        for offset, (value, _, _, sent) in log:
            if sent is None:
                continue
            producer_id, epoch, sequence = sent
            expected = due.get((producer_id, epoch), sequence)  # a producer that is not known begins anywhere
            if sequence != expected:
                yield (
                    f"{_at(place, offset)} holds {value!r} as sequence {sequence} of producer {producer_id} epoch "
                    f"{epoch}, where {expected} was due"
                )
            due[producer_id, epoch] = sequence + 1


def _misplaced(history: History) -> Iterator[str]:
    at: dict[str, list[tuple[Place, int, Sent | None]]] = defaultdict(list)
    for place, log in _together(history):
        last: dict[str, int] = defaultdict(lambda: -1)
        for offset, (value, _, _, sent) in log:
            if value is None:
                continue
            before = at[value]
            for other, where, as_what in before:
                if other != place or not _is_sent_anew(as_what, sent):
                    yield f"{value!r} is stored twice: {_at(other, where)} and {_at(place, offset)}"
            before.append((place, offset, sent))
            producer, _, number = value.rpartition("-")
            if int(number) < last[producer] and len(before) == 1:
                yield f"{_at(place, offset)} holds {value!r} behind number {last[producer]} of the same producer"
            last[producer] = max(int(number), last[producer])


def _is_sent_anew(before: Sent | None, sent: Sent | None) -> bool:
    if before is None or sent is None:
        return False
    return before.producer_id == sent.producer_id and before.producer_epoch < sent.producer_epoch


def sent_anew(history: History) -> list[str]:
    """What `_misplaced` lets be: records that a producer sent under two of its epochs."""
    found = []
    for place, log in _together(history):
        first: dict[str, tuple[int, Sent]] = {}
        for offset, (value, _, _, sent) in log:
            if value is not None and sent is not None:
                where, before = first.setdefault(value, (offset, sent))
                if where != offset:
                    found.append(f"{value!r} was sent as {before} to {_at(place, where)}, as {sent} to offset {offset}")
    return found


def _gone_back(history: History) -> Iterator[str]:
    answered = sorted(history.committed, key=lambda each: each.answered_at)
    for group, place in sorted({(each.group, each.place) for each in answered}):
        mine = [each for each in answered if (each.group, each.place) == (group, place)]
        asked = [(each.begun_at, each.offset, "committed") for each in mine]
        asked += [(each.asked_at, each.offset, "told") for each in history.found if each[1:3] == (group, place)]
        best, known = 0, iter(mine)
        following = next(known, None)
        for at, offset, word in sorted(asked):
            while following is not None and following.answered_at < at:
                best, following = max(best, following.offset), next(known, None)
            if offset < best:
                yield f"group {group} of {place[0]}-{place[1]} was answered {best} as committed, then {word} {offset}"


def _apart(history: History) -> Iterator[str]:
    for place, logs in sorted(history.logs.items()):
        if history.in_sync.get(place) != set(history.boards):
            yield f"{place[0]}-{place[1]} is in sync on {history.in_sync.get(place)}, not on {set(history.boards)}"
        first, *rest = sorted(logs)
        for board in rest:
            one, other = logs[first], logs[board]
            for offset in sorted(one.keys() & other.keys()):
                if one[offset] != other[offset]:
                    where = _at(place, offset)
                    yield f"{where} is {one[offset]} on board {first}, {other[offset]} on board {board}"
                    break


def _uneven(history: History) -> Iterator[str]:
    for place, logs in sorted(history.logs.items()):
        offsets = {board: logs.get(board, {}).keys() for board in sorted(history.boards)}
        if place[0] not in history.compacted and len({frozenset(each) for each in offsets.values()}) > 1:
            every = set[int]().union(*offsets.values())
            lacking = {board: sorted(every - each)[:5] for board, each in offsets.items() if every - each}
            yield f"{place[0]}-{place[1]}: boards lack offsets that others hold: {lacking}"


def _at(place: Place, offset: int | None) -> str:
    return f"{place[0]}-{place[1]} offset {offset}"
