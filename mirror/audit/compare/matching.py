"""PURE. Matches the records of both ends in order, from the ranges of both as they are read.

Ranges with the same digest are the same records. If the next ranges differ, each end is read on until one range occurs
at both; all before it differs. There records are matched by their own digests: first the same at start and end, then
those that occur once at either end, in the longest order that both have (patience diff), then the others in order.

| bound | memory or requests |
|---|---|
| DETAILED | ranges without a match that are held with the digests of their records, the first and the last of them |
| RANGES_MAX | ranges held at each end; a displaced range counts as missing at one end and foreign at the other |
| EDGES | outermost ranges of a difference whose records' digests are requested if they are not held |
| LATELY | ranges before and after records that only the target has: those are mostly duplicates |
| SEAMS_MAX | ranges next to duplicates: each resend leaves ranges that start in one pass and end in the next |

From a seam the requests go on while they find duplicates.
Does not contain: what a record without a match means (account.py), clients, clocks.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, deque
from collections.abc import Container, Generator, Iterable, Iterator, Sequence
from typing import Literal, NamedTuple, Protocol

from mirror.audit.digest.digests import RANGE_RECORDS, Part, Range, part, range_digest, split

DETAILED = 16
EDGES = DETAILED // 2
LATELY = 48
SEAMS_MAX = 256
RANGES_MAX = 20_000
RUNS_MAX = 100_000  # runs of offsets in ranges that are held; logs with many markers have many

Side = Literal["source", "target"]
SIDES: tuple[Side, Side] = ("source", "target")


class Place(NamedTuple):
    """The place of a gap: the exclusive ends of the match before it, and whether a match precedes or follows it."""

    source: int = 0
    target: int = 0
    is_first: bool = True
    is_last: bool = False


class Sink(Protocol):
    """Classifies what is found; after all that is at the target, no record from `pending_from` on is missing."""

    pending_from: int

    def range_passed(self, side: Side, one: Range) -> None:
        """Note a range that was read."""

    def is_gone(self, side: Side, one: Range) -> bool:
        """Return whether the other end is known to have removed all of this range."""

    def lacks_begin(self, side: Side) -> bool:
        """Return whether an end has removed the start of its log."""

    def has_matched(self, one: Range) -> bool:
        """Return whether a range with the same records was matched before."""

    def same(self, source: Part, target: Part) -> None:
        """Note as many records that are the same ones."""

    def gap(self, source: Sequence[Part], target: Sequence[Part], place: Place, lately: Container[bytes]) -> None:
        """Note records without a match, between two matches.

        `lately` are the digests of records that were matched before and soon after.
        """


class Want(NamedTuple):
    """A request to an end: its next range, or, with offsets, the ranges in [first, end) again with digests."""

    side: Side
    offsets: tuple[int, int] | None = None


Matching = Generator[Want, Sequence[Range], None]


def match(sink: Sink) -> Matching:
    """Match both ends of a partition: yield each request, and take the ranges; none at an end, or if it cannot read."""
    return _Matching(sink).run()


class _Same(NamedTuple):
    source: Part
    target: Part


class _Gap(NamedTuple):
    source: list[Part]
    target: list[Part]


class Lately:
    """The records that were matched lately, as they are at the source: at most about LATELY ranges of them."""

    def __init__(self) -> None:
        self._parts: deque[Part] = deque()
        self._records = 0
        self._digests: set[bytes] | None = None

    def note(self, one: _Same) -> None:
        """Add a match; drop the oldest ones."""
        source, target = one
        self._parts.append(source if source.digests is not None else source._replace(digests=target.digests))
        self._records += source.records
        self._digests = None
        while self._records > LATELY * RANGE_RECORDS:
            self._records -= self._parts.popleft().records

    def unknown_range(self) -> tuple[int, int] | None:
        """Return the source offsets [first, end) that enclose all records whose digests neither end has sent."""
        unknown = [one for one in self._parts if one.digests is None]
        return (unknown[0].first, unknown[-1].end) if unknown else None

    def learn(self, told: Sequence[Range]) -> None:
        """Add digests that were requested."""
        known = {one.runs: part(one) for one in told}
        self._parts = deque(known.get(one.runs, one) if one.digests is None else one for one in self._parts)
        self._digests = None

    def __contains__(self, digest: object) -> bool:
        if self._digests is None:
            self._digests = {one for some in self._parts for one in split(some.digests or b"")}
        return digest in self._digests


class _Matching:
    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._held: dict[Side, list[Range]] = {"source": [], "target": []}
        self._runs: dict[Side, int] = {"source": 0, "target": 0}
        self._ended: set[Side] = set()
        self._last_place = Place()
        self._lately = Lately()
        self._detailed_left = 0

    def run(self) -> Matching:
        source, target = (self._held[side] for side in SIDES)
        while True:
            for side in SIDES:
                yield from self._next(side)
            if source and target and source[0].digest == target[0].digest:
                here, there = self._take("source"), self._take("target")
                if self._detailed_left and here[0].digests is None and there[0].digests is None:
                    yield from self._request_edges("target", there)
                self._detailed_left = max(0, self._detailed_left - 1)
                one = _Same(part(here[0]), part(there[0]))
                self._lately.note(one)
                self._last_place = Place(one.source.end, one.target.end, is_first=False)
                self._sink.same(*one)
            elif source or target:
                common = yield from self._until_common(DETAILED)
                if common is None and (yield from self._partly()):
                    continue
                if common is None:
                    common = yield from self._until_common(RANGES_MAX)
                if common is None and self._let_begin_go():
                    continue
                sources, targets = common or (len(source), len(target))
                if targets and sources < len(source):  # the next range may repeat a record of these
                    sources, targets = sources + 1, targets + 1
                is_last = "target" in self._ended and targets == len(target)
                yield from self._differ(self._take("source", sources), self._take("target", targets), is_last=is_last)
            else:
                return

    def _next(self, side: Side) -> Matching:
        """Hold the next range that the other end may have."""
        held = self._held[side]
        while held or (yield from self._pull(side)):
            if not self._sink.is_gone(side, held[0]):
                return
            gone = [part(one) for one in self._take(side)]
            self._sink.gap(*((gone, []) if side == "source" else ([], gone)), self._last_place, frozenset())

    def _pull(self, side: Side) -> Generator[Want, Sequence[Range], Range | None]:
        """Read one range more; None at the end."""
        if side in self._ended:
            return None
        told = yield Want(side)
        found = told[0] if told else None
        if found is not None:
            self._sink.range_passed(side, found)
        if found is None or not found.records:
            self._ended.add(side)
            return None
        held = self._held[side]
        held.append(found)
        self._runs[side] += len(found.runs)
        middle = len(held) - 1 - DETAILED // 2
        if middle >= DETAILED // 2:
            held[middle] = held[middle]._replace(digests=None, keys=None)
        return found

    def _let_begin_go(self) -> bool:
        """Report half of the held ranges as a gap, if nothing matched yet and the other end lacks its start."""
        for side, other in (SIDES, SIDES[::-1]):
            if self._last_place.is_first and side not in self._ended and self._sink.lacks_begin(other):
                gone = [part(one) for one in self._take(side, len(self._held[side]) // 2)]
                self._sink.gap(*((gone, []) if side == "source" else ([], gone)), self._last_place, frozenset())
                return True
        return False

    def _until_common(self, most: int) -> Generator[Want, Sequence[Range], tuple[int, int] | None]:
        """Read on until both ends have a range; return how many precede it at each, None if none in `most` of each."""
        places: dict[Side, dict[bytes, int]] = {side: _places(self._held[side]) for side in SIDES}
        source, target = places["source"], places["target"]
        common = [(source[digest], target[digest]) for digest in source.keys() & target.keys()]
        if common:
            return min(common, key=sum)
        turn = 0
        while not all(self._is_full(side, most) for side in SIDES):
            turn += 1
            side, other = SIDES[turn % 2], SIDES[turn % 2 - 1]
            if self._is_full(side, most):
                continue
            found = yield from self._pull(side)
            if found is None:
                continue
            here = len(self._held[side]) - 1
            there = places[other].get(found.digest)
            if there is not None and found.is_cut:
                return (here, there) if side == "source" else (there, here)
            if found.is_cut:
                places[side].setdefault(found.digest, here)
        return None

    def _is_full(self, side: Side, most: int) -> bool:
        return side in self._ended or len(self._held[side]) >= most or self._runs[side] >= RUNS_MAX

    def _partly(self) -> Generator[Want, Sequence[Range], bool]:
        """Match the records of the held ranges: if others write between the mirror's all along, no range is the same.

        Ranges after the last match stay held. If less than half is matched, return False and report nothing.
        """
        if not all(self._held[side] for side in SIDES) or len(self._ended) == len(SIDES):
            return False
        for side in SIDES:
            yield from self._request_edges(side, self._held[side])
        found = list(_match(*(_Records(self._held[side]) for side in SIDES)))
        last = max((number for number, one in enumerate(found) if isinstance(one, _Same)), default=-1)
        behind = [one for one in found[last + 1 :] if isinstance(one, _Gap)]  # one, or none
        left: dict[Side, list[Part]] = {
            "source": [some for gap in behind for some in gap.source],
            "target": [some for gap in behind for some in gap.target],
        }
        if last < 0 or all(2 * _count(left[side]) > _count(self._held[side]) for side in SIDES):
            return False
        for side in SIDES:
            self._take(side, len(self._held[side]))
            self._held[side] += [_range(some) for some in left[side]]
            self._runs[side] += sum(len(some.runs) for some in left[side])
        yield from self._pass_on(found[: last + 1], is_last=False)
        return True

    def _take(self, side: Side, count: int = 1) -> list[Range]:
        """Remove and return the first held ranges."""
        held = self._held[side]
        taken = held[:count]
        del held[:count]
        self._runs[side] -= sum(len(one.runs) for one in taken)
        return taken

    def _request_edges(self, side: Side, ranges: list[Range]) -> Generator[Want, Sequence[Range], None]:
        """Request the digests of records that are not held, of the first and the last ranges."""
        count = len(ranges)
        yield from self._request(side, ranges, {*range(min(EDGES, count)), *range(max(0, count - EDGES), count)})

    def _request(
        self, side: Side, ranges: list[Range], numbers: Iterable[int]
    ) -> Generator[Want, Sequence[Range], None]:
        """Request the digests of records that are not held, of the ranges with these numbers."""
        wanted = sorted(number for number in numbers if ranges[number].digests is None)
        while wanted:
            first = last = wanted.pop(0)
            while wanted and wanted[0] == last + 1:
                last = wanted.pop(0)
            told = yield Want(side, (ranges[first].first, ranges[last].last + 1))
            known = {one.runs: one for one in told}
            for number in range(first, last + 1):
                again = known.get(ranges[number].runs)
                if again is not None and again.digest == ranges[number].digest:
                    ranges[number] = again

    def _seams(self, target: list[Range]) -> Generator[Want, Sequence[Range], None]:
        """Request the digests of the target's ranges next to duplicates, a few at a time, while they hold more."""
        yield from self._remember()
        left = SEAMS_MAX
        repeats = [self._repeats(one) for one in target]
        for begin in range(0, len(target), EDGES):
            near = any(repeats[max(0, begin - EDGES) : begin + 2 * EDGES])
            unknown = [
                n for n in range(begin, min(begin + EDGES, len(target))) if not self._sink.has_matched(target[n])
            ]
            if near and len(unknown) <= left:
                left -= len(unknown)
                yield from self._request("target", target, unknown)
                for number in unknown:
                    repeats[number] = self._repeats(target[number])

    def _repeats(self, one: Range) -> bool:
        """Return whether a range at the target holds a record that was matched before, as far as digests are held."""
        return self._sink.has_matched(one) or (
            one.digests is not None and any(digest in self._lately for digest in split(one.digests))
        )

    def _differ(self, source: list[Range], target: list[Range], *, is_last: bool) -> Matching:
        """Match the records of ranges that differ, as far as their digests can be read."""
        if target or not is_last or source[0].first < self._sink.pending_from:
            yield from self._request_edges("source", source)
            yield from self._request_edges("target", target)
            if len(target) > DETAILED:
                yield from self._seams(target)
        yield from self._pass_on(list(_match(_Records(source), _Records(target))), is_last=is_last)

    def _pass_on(self, found: Sequence[_Same | _Gap], *, is_last: bool) -> Matching:
        for one in found:
            if isinstance(one, _Same):
                self._lately.note(one)
        if any(not isinstance(one, _Same) and one.target for one in found):
            self._detailed_left = LATELY
            yield from self._remember()
        for number, one in enumerate(found):
            if isinstance(one, _Same):
                self._last_place = Place(one.source.end, one.target.end, is_first=False)
                self._sink.same(*one)
            else:
                place = self._last_place._replace(is_last=is_last and number == len(found) - 1)
                self._sink.gap(*one, place, self._lately)

    def _remember(self) -> Matching:
        """Request the digests of the records that were matched lately, if neither end has sent them."""
        span = self._lately.unknown_range()
        if span is not None:
            self._lately.learn((yield Want("source", span)))


def _places(ranges: Sequence[Range]) -> dict[bytes, int]:
    places: dict[bytes, int] = {}
    for place, one in enumerate(ranges):
        if one.is_cut:  # the last one may be a record or two, which many a log has elsewhere
            places.setdefault(one.digest, place)
    return places


class _Records:
    """The records of several ranges as one sequence of digests; a range without records' digests is one item."""

    def __init__(self, ranges: Sequence[Range]) -> None:
        self._ranges = ranges
        self._begins: list[int] = []
        self.items: list[bytes | Range] = []
        for one in ranges:
            self._begins.append(len(self.items))
            self.items += [one] if one.digests is None else split(one.digests)

    def parts(self, begin: int, end: int) -> list[Part]:
        """Return the parts between two places in the sequence."""
        found = []
        at = begin
        while at < end:
            number = bisect_right(self._begins, at) - 1
            one, base = self._ranges[number], self._begins[number]
            if one.digests is None:
                found.append(part(one))
                at += 1
            else:
                stop = min(end, base + one.records)
                found.append(part(one, at - base, stop - base))
                at = stop
        return found


def _match(source: _Records, target: _Records) -> Iterator[_Same | _Gap]:
    """Return the matches and the gaps, in order."""
    i = j = 0
    for at, also_at, count in [*align(source.items, target.items), (len(source.items), len(target.items), 0)]:
        if at > i or also_at > j:
            yield _Gap(source.parts(i, at), target.parts(j, also_at))
        yield from _alike(source.parts(at, at + count), target.parts(also_at, also_at + count))
        i, j = at + count, also_at + count


def _count(some: Sequence[Part] | Sequence[Range]) -> int:
    return sum(one.records for one in some)


def _range(some: Part) -> Range:
    """Return the rest of a range as a range of its own."""
    digest = some.whole or range_digest(some.digests or b"")
    return Range(some.records, digest, some.runs, digests=some.digests, keys=some.keys, is_cut=some.whole is not None)


def _alike(source: Sequence[Part], target: Sequence[Part]) -> Iterator[_Same]:
    """Return the same records of both, split where either is."""
    sources, targets = list(source), list(target)
    while sources:
        one, other = sources.pop(0), targets.pop(0)
        count = min(one.records, other.records)
        for rest, whole in ((sources, one), (targets, other)):
            if whole.records > count:
                rest.insert(0, _cut(whole, count, None))
        yield _Same(_cut(one, 0, count), _cut(other, 0, count))


def _cut(whole: Part, begin: int, end: int | None) -> Part:
    return part(Range(whole.records, b"", whole.runs, digests=whole.digests, keys=whole.keys), begin, end)


Items = Sequence[bytes | Range]


def align(source: Items, target: Items) -> list[tuple[int, int, int]]:
    """Match two sequences in order; return runs: the place in each, and how many consecutive items are the same."""
    found: list[tuple[int, int, int]] = []
    _align(source, target, (0, len(source)), (0, len(target)), found)
    return found


def _align(
    source: Items, target: Items, here: tuple[int, int], there: tuple[int, int], found: list[tuple[int, int, int]]
) -> None:
    (i, i_end), (j, j_end) = here, there
    begin = i
    while i < i_end and j < j_end and source[i] == target[j]:
        i, j = i + 1, j + 1
    if i > begin:
        found.append((begin, j - (i - begin), i - begin))
    stop = i_end
    while i < i_end and j < j_end and source[i_end - 1] == target[j_end - 1]:
        i_end, j_end = i_end - 1, j_end - 1
    if i < i_end and j < j_end:
        anchors = _anchors(source, target, (i, i_end), (j, j_end))
        if anchors:
            for (x, y), (x_next, y_next) in zip([(i, j), *anchors], [*anchors, (i_end, j_end)], strict=True):
                _align(source, target, (x, x_next), (y, y_next), found)
        else:
            found += _as_they_come(source, target, (i, i_end), (j, j_end))
    if i_end < stop:
        found.append((i_end, j_end, stop - i_end))


def _anchors(source: Items, target: Items, here: tuple[int, int], there: tuple[int, int]) -> list[tuple[int, int]]:
    """Return the places of items that occur once at either end, in the longest order that both have."""
    once, also = (
        {item for item, count in Counter(items[slice(*span)]).items() if count == 1}
        for items, span in ((source, here), (target, there))
    )
    both = once & also
    places = {target[j]: j for j in range(*there) if target[j] in both}
    pairs = [(i, places[source[i]]) for i in range(*here) if source[i] in both]
    return _longest_ascending(pairs)


def _longest_ascending(pairs: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    tops: list[int] = []  # of each length the lowest second place that ends one
    at: list[int] = []
    before: list[int] = []
    for number, (_, place) in enumerate(pairs):
        length = bisect_left(tops, place)
        if length == len(tops):
            tops.append(place)
            at.append(number)
        else:
            tops[length], at[length] = place, number
        before.append(at[length - 1] if length else -1)
    found = []
    number = at[-1] if at else -1
    while number >= 0:
        found.append(pairs[number])
        number = before[number]
    return found[::-1]


def _as_they_come(
    source: Items, target: Items, here: tuple[int, int], there: tuple[int, int]
) -> list[tuple[int, int, int]]:
    places: dict[bytes | Range, list[int]] = {}
    for i in range(*here):
        places.setdefault(source[i], []).append(i)
    found, next_place = [], here[0]
    for j in range(*there):
        among = places.get(target[j], [])
        at = bisect_left(among, next_place)
        if at < len(among):
            found.append((among[at], j, 1))
            next_place = among[at] + 1
    return found
