"""An audit against a model of both logs: what was done to the target is found, named and counted, and nothing else.

Invariants, whatever lies between the records, wherever the logs begin and end, and however ranges are cut:
1. Where nothing was done, all is proven: each offset of either end has its class, and as many as the model says.
2. What is lost, changed, doubled, out of order or of others is told as such, at its offsets, and nothing else is.
3. It makes no difference whether each record's digest was told at once, or only when it was asked for.
4. Of topics that compact either end may lack what has a newer record of its key, and nothing else.
5. Below the source's start nothing is silent: it was mirrored, or is in the ledger, or differs.
6. With a map, each end's own offsets decide: what vanished at the source is told from what others wrote.
"""

from __future__ import annotations

from hashlib import blake2b

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mirror.audit.compare.account import Account
from mirror.audit.compare.matching import DETAILED, align, match
from mirror.audit.digest.digests import CUT, Chunker, Digests, Range
from mirror.audit.digest.partition_facts import Entry, Facts
from mirror.audit.endpoints.digest_lines import range_line, read_line
from mirror.partition.offset_map import End, Step
from mirror.partition.state_records import Head, StoredState, Topics

CONTROL, ABORTED, COMPACTED = -1, -2, -3  # offsets without a record, by their kinds
KINDS = {CONTROL: "control", ABORTED: "aborted", COMPACTED: "compacted"}
FOREIGN = 10**6  # what others wrote has numbers from here on


def digest(number):
    """That of a record; every fourth ends a range."""
    front = bytes(2) if number % 4 == 0 else b"\xff\xff"
    assert (front < CUT) == (number % 4 == 0)
    return front + blake2b(b"%d" % number, digest_size=14).digest()


def key(number):
    """That of a record's key; a null value in every seventh record."""
    return b"key%d...." % (number % 3) + bytes([1 if number % 7 == 0 else 0])


def ranges_of(log, start, end, keyed=False):
    """The ranges of [start, end) of a log: a list of record numbers and kinds by offset."""
    chunker, found = Chunker(), []
    for offset in range(start, end):
        number = log[offset]
        if number < 0:
            chunker.skip(offset, offset + 1, KINDS[number])
        else:
            keys = [key(number)[-8:]] if keyed else []
            found += chunker.add(Digests(((offset, 1),), [digest(number)], keys))
    return [*found, chunker.last_range()]


def audit(
    source, target, *, position=0, starts=(0, 0), told=True, state=None, compacted=False, ledger=(), requested=None
):
    """Audit two logs as they lie; `requested` receives the ranges whose digests were requested."""
    ends = len(source), len(target)
    here = Facts("readings", 0, "readings", starts[0], ends[0], compacted, "s", position, tuple(ledger))
    there = Facts("readings", 0, "lab.readings", starts[1], ends[1], compacted, "t", state=state)
    logs = {
        "source": ranges_of(source, starts[0], ends[0], compacted),
        "target": ranges_of(target, starts[1], ends[1], compacted),
    }
    queues = {side: [read_line(range_line(one, each=told)) for one in ranges] for side, ranges in logs.items()}
    account = Account(here, there)
    matching = match(account)
    want = next(matching, None)
    while want is not None:
        side, offsets = want
        if offsets is None:
            answer = [queues[side].pop(0)] if queues[side] else []
        else:
            answer = [one for one in logs[side] if one.records and offsets[0] <= one.first < offsets[1]]
            if requested is not None:
                requested += answer
        try:
            want = matching.send(answer)
        except StopIteration:
            want = None
    account.close()
    for side in ("source", "target"):
        assert sum(account.counts[side].values()) == account.facts[side].end, side
    return account


def differences(account, kind):
    """Each record of a kind, by the offsets at both ends."""
    return [
        tuple(None if offset is None else offset + number for offset in (one.source_offset, one.target_offset))
        for one in account.differences.told
        if one.kind == kind
        for number in range(one.records)
    ]


holes = st.sampled_from([CONTROL, ABORTED, COMPACTED])


@st.composite
def logs(draw, repeats=False):
    """A source's log, what of it is mirrored, and the target's log as it should be."""
    size = draw(st.integers(0, 60))
    numbers = draw(st.lists(st.integers(0, 3), min_size=size, max_size=size)) if repeats else range(size)
    source, records = [], []
    for number in numbers:
        source += draw(st.lists(holes, max_size=2)) if draw(st.integers(0, 5)) == 0 else []
        source.append(number)
    mirrored = draw(st.integers(0, len(source)))
    records = [number for number in source[:mirrored] if number >= 0]
    target = []
    for number in records:
        target += [CONTROL] if draw(st.integers(0, 9)) == 0 else []
        target.append(number)
    return source, mirrored, target


@given(logs(repeats=True), st.booleans(), st.integers(0, 60))
def test_what_is_whole_is_proven(made, told, committed):
    source, mirrored, target = made
    account = audit(source, target, position=min(committed, mirrored), told=told)
    assert account.is_proven(), account.differences.told
    here, there = account.counts["source"], account.counts["target"]
    assert here["mirrored"] == there["mirrored"] == sum(number >= 0 for number in target)
    assert here["pending"] == sum(number >= 0 for number in source[mirrored:])
    for hole, kind in KINDS.items():
        assert here[kind] == source.count(hole)
    assert there["control"] == target.count(CONTROL)
    assert not there["foreign"]


@given(logs(), st.booleans(), st.data())
def test_what_either_end_has_let_go_of(made, told, data):
    source, mirrored, target = made
    starts = data.draw(st.integers(0, mirrored)), data.draw(st.integers(0, len(target)))
    account = audit(source, target, position=mirrored, starts=starts, told=told)
    assert account.is_proven(), account.differences.told
    assert account.counts["source"]["expired"] == starts[0]
    assert account.counts["target"]["expired"] == starts[1]
    kept = {number for number in source[starts[0] : mirrored] if number >= 0}
    assert account.compared == sum(number in kept for number in target[starts[1] :])


@given(logs(), st.booleans(), st.data())
@settings(max_examples=300)
def test_what_was_done_to_the_target_is_found(made, told, data):
    source, mirrored, target = made
    places = [offset for offset, number in enumerate(target) if number >= 0]
    wrong = data.draw(st.lists(st.sampled_from(places), unique=True, max_size=4)) if places else []
    wrong = [place for place in wrong if not {place - 1, place + 1, place - 2, place + 2} & set(wrong)]
    acts = {place: data.draw(st.sampled_from(["lost", "changed", "doubled", "foreign"])) for place in wrong}
    forged, expected = [], {"lost": [], "changed": [], "doubled": [], "foreign": []}
    where = {number: offset for offset, number in enumerate(source) if number >= 0}
    for place, number in enumerate(target):
        act = acts.get(place)
        if act == "lost":
            expected["lost"].append((where[number], None))
            continue
        if act == "changed":
            expected["changed"].append((where[number], len(forged)))
            forged.append(FOREIGN + place)
            continue
        forged.append(number)
        if act == "doubled":
            expected["doubled"].append(number)
            forged.append(number)
        if act == "foreign":
            expected["foreign"].append(len(forged))
            forged.append(FOREIGN + place)
    account = audit(source, forged, position=mirrored, told=told)
    assert differences(account, "lost") == expected["lost"]
    assert differences(account, "changed") == expected["changed"]
    doubled = [forged[offset] for _, offset in differences(account, "doubled")]
    assert doubled == expected["doubled"]
    assert account.counts["target"]["foreign"] == len(expected["foreign"])
    assert account.foreign_from == (expected["foreign"][0] if expected["foreign"] else None)
    assert account.is_proven() == (not any(expected[kind] for kind in ("lost", "changed", "doubled")))
    assert not account.differences.counts["unaccounted"]


@given(logs(), st.booleans(), st.data())
def test_what_is_out_of_order_is_found(made, told, data):
    source, mirrored, target = made
    places = [offset for offset, number in enumerate(target) if number >= 0]
    if len(places) < 3:
        return
    one, other = sorted(data.draw(st.lists(st.sampled_from(places), unique=True, min_size=2, max_size=2)))
    moved = target[:one] + target[one + 1 : other + 1] + [target[one]] + target[other + 1 :]
    account = audit(source, moved, position=mirrored, told=told)
    if moved == target or not any(number >= 0 for number in target[one + 1 : other + 1]):
        assert account.is_proven()
        return
    assert account.differences.counts.keys() <= {"moved", "lost", "doubled"}
    assert account.differences.counts["moved"]
    assert account.counts["source"]["mirrored"] == account.counts["target"]["mirrored"] == len(places)
    assert not account.is_proven()


@given(logs(), st.booleans(), st.data())
def test_a_part_that_was_sent_twice(made, told, data):
    source, mirrored, target = made
    first = data.draw(st.integers(0, len(target)))
    end = data.draw(st.integers(first, len(target)))
    again = [number for number in target[first:end] if number >= 0]
    forged = target[:end] + again + target[end:]
    account = audit(source, forged, position=mirrored, told=told)
    assert account.counts["target"]["duplicates"] == len(again)
    assert account.counts["source"]["mirrored"] == sum(number >= 0 for number in target)
    assert account.is_proven() == (not again)
    assert account.is_proven(may_double=True)


@given(logs(), st.booleans(), st.data())
@settings(max_examples=300)
def test_lives_that_each_sent_something_again(made, told, data):
    source, mirrored, _ = made
    records = [number for number in source[:mirrored] if number >= 0]
    target, sent = [], 0
    for _ in range(data.draw(st.integers(1, 6))):
        again = data.draw(st.integers(0, min(sent, 25)))
        more = data.draw(st.integers(0, len(records) - sent))
        target += [CONTROL] * data.draw(st.integers(0, 1)) + records[sent - again : sent + more]
        sent += more
    target += records[sent:]
    account = audit(source, target, position=mirrored, told=told)
    assert account.is_proven(may_double=True), account.differences.told
    doubled = sum(number >= 0 for number in target) - len(records)
    assert account.counts["target"]["duplicates"] == doubled
    assert account.counts["target"]["mirrored"] == len(records)


def test_what_is_pending_does_not_hide_that_the_end_was_sent_again_and_again():
    """More ranges than are looked into, beside a record that is not mirrored yet: they were unresolved."""
    records = list(range(33))
    source = [*records[:27], CONTROL, *records[27:32], CONTROL, 32, 33]
    target = [*records, *records[-25:], *records[-17:], *records[-17:]]
    account = audit(source, target, position=35, told=False)
    assert account.is_proven(may_double=True), account.differences.told
    assert (account.counts["target"]["duplicates"], account.counts["source"]["pending"]) == (59, 1)


SEAMS = {
    "as Hypothesis found it": (29, [17, 9, 13, 17], []),  # one of 56 counted as foreign, in the middle of 17 ranges
    "shorter than a range, many times": (200, [6] * 60, []),
    "before records that follow": (200, [6] * 60, [300, 301]),
    "of changing lengths": (120, [90, 3, 50, 2, 1, 77, 5, 5, 5, 90], [200]),
}


@pytest.mark.parametrize(("records", "resent", "after"), SEAMS.values(), ids=SEAMS)
def test_each_record_of_many_resends_counts_as_a_duplicate(records, resent, after):
    """A range that begins in one resend and ends in the next matches no range of the source."""
    source = list(range(records))
    target = [*source, *(number for count in resent for number in source[-count:]), *after]
    account = audit(source + after, target, position=records + len(after), told=False)
    assert account.is_proven(may_double=True), account.differences.told
    there = account.counts["target"]
    assert (there["duplicates"], there["foreign"], there["mirrored"]) == (sum(resent), 0, records + len(after))


def test_foreign_records_after_a_resend_cost_no_digests_of_each():
    source = list(range(100))
    target = [*source, *source[-40:], *(FOREIGN + number for number in range(4000)), *source[-40:]]
    requested = []
    account = audit(source, target, position=100, told=False, requested=requested)
    there = account.counts["target"]
    assert (there["duplicates"], there["foreign"]) == (80, 4000)
    assert sum(one.records for one in requested) < 500


def state_of(steps, end, ids=("s", "t")):
    """A map as the state topic has it."""
    return StoredState(Head(Topics("lab.readings", *ids), 1, 0, 0, 0, 0, len(steps), end), 0, list(steps))


@st.composite
def mapped(draw):
    """Logs with the map of what is mirrored; the target has records of others and markers in between."""
    source, mirrored, _ = draw(logs())
    target, steps, records, expected = [], [], 0, None
    for offset, number in enumerate(source[:mirrored]):
        if number < 0:
            continue
        strange = draw(st.integers(0, 7))
        target += {0: [CONTROL], 1: [FOREIGN + offset]}.get(strange, [])
        if expected != (offset, len(target)):
            steps.append(Step(records, offset, 0, len(target)))
        target.append(number)
        records += 1
        expected = offset + 1, len(target)
    return source, mirrored, target, state_of(steps, End(records, mirrored, len(target)))


@given(mapped(), st.booleans(), st.data())
def test_by_a_map(made, told, data):
    source, mirrored, target, state = made
    starts = data.draw(st.integers(0, mirrored)), data.draw(st.integers(0, len(target)))
    account = audit(source, target, starts=starts, told=told, state=state)
    assert account.is_proven(), account.differences.told
    assert account.counts["target"]["foreign"] == sum(number >= FOREIGN for number in target[starts[1] :])
    began = state.steps[0].source_offset if state.steps else 0
    assert account.counts["source"]["deleted"] == min(began, starts[0])
    assert account.counts["source"]["expired"] == max(0, starts[0] - began)


@given(mapped(), st.booleans(), st.data())
def test_a_map_that_is_wrong_is_found(made, told, data):
    source, _, target, state = made
    if not state.steps:
        return
    number = data.draw(st.integers(0, len(state.steps) - 1))
    steps = [
        step._replace(target_offset=step.target_offset + 1) if at >= number else step
        for at, step in enumerate(state.steps)
    ]
    end = state.head.end._replace(target_offset=state.head.end.target_offset + 1)
    account = audit(source, target, told=told, state=state_of(steps, end))
    assert account.differences.counts["misplaced"]
    first = state.steps[number].source_offset
    assert min(offset for offset, _ in differences(account, "misplaced")) <= first


@pytest.mark.parametrize("count", [100, 1000])
def test_what_vanished_is_told_from_what_is_foreign_also_where_digests_are_held_no_more(count):
    """Of many ranges without a match the middle ones have none."""
    target, steps = [], []
    for number in range(count):
        target.append(FOREIGN + number if number % 7 == 3 else CONTROL)
        steps.append(Step(number, number, 0, len(target)))
        target.append(number)
    account = audit([], target, told=False, state=state_of(steps, End(count, 0, len(target))))
    assert account.is_proven(), account.differences.told
    strange = sum(number >= FOREIGN for number in target)
    assert (account.counts["target"]["target_only"], account.counts["target"]["foreign"]) == (count, strange)


@given(mapped(), st.booleans(), st.data())
def test_what_vanished_at_the_source_is_at_the_target_only(made, told, data):
    source, mirrored, target, state = made
    left = data.draw(st.integers(0, mirrored))
    others = [2 * FOREIGN + number for number in range(data.draw(st.integers(0, 3)))]  # that took their offsets
    again = data.draw(st.integers(0, len(others)))
    vanished = sum(number >= 0 for number in source[left:mirrored])
    strange = sum(number >= FOREIGN for number in target)
    steps, end = list(state.steps), state.head.end._replace(source_offset=left)
    if again:
        steps.append(Step(end.records, left, 1, len(target)))
        end = End(end.records + again, left + again, len(target) + again)
    account = audit(source[:left] + others, target + others[:again], told=told, state=state_of(steps, end))
    assert account.is_proven(), account.differences.told
    there = account.counts["target"]
    assert there["target_only"] == vanished
    assert there["foreign"] == strange
    assert account.counts["source"]["pending"] == len(others) - again


@st.composite
def compacted(draw, log, mirrored):
    """A log of which any records went that have newer ones of their key, and null values once they were mirrored."""
    kept = list(log)
    for offset, number in enumerate(log):
        same = [at for at, other in enumerate(log) if other >= 0 and other % 3 == number % 3]
        gives_way = offset < max(same, default=0)
        older = [at for at in same if at < offset and kept[at] != COMPACTED]
        may_go = number % 7 == 0 and offset < mirrored and not older
        if number >= 0 and (may_go or (gives_way and number % 7)) and draw(st.booleans()):
            kept[offset] = COMPACTED
    return kept


@given(logs(), st.data())
def test_what_gave_way_to_newer_records(made, data):
    source, mirrored, target = made
    here, there = data.draw(compacted(source, mirrored)), data.draw(compacted(target, len(target)))
    account = audit(here, there, position=mirrored, compacted=True)
    assert account.is_proven(), account.differences.told
    assert not account.counts["target"]["foreign"]
    assert account.counts["source"]["mirrored"] == sum(number >= 0 for number in here[:mirrored])
    assert account.counts["target"]["mirrored"] == sum(number >= 0 for number in there)


@given(logs(), st.data())
def test_what_gave_way_to_nothing_is_lost(made, data):
    source, mirrored, target = made
    newest = {number % 3: number for number in target if number >= 0}
    lost = [number for number in newest.values() if number % 7]
    if not lost or source.index(lost[0]) >= mirrored:
        return
    there = [COMPACTED if number == lost[0] else number for number in data.draw(compacted(target, len(target)))]
    account = audit(data.draw(compacted(source[:mirrored], 0)), there, position=mirrored, compacted=True)
    assert differences(account, "lost") == [(source.index(lost[0]), None)]


CAUSES = st.sampled_from(["source_offset_out_of_range", "evicted", "deleted_by_request", "record_too_large"])


@given(logs(), st.integers(0, 80), st.lists(st.tuples(CAUSES, st.integers(0, 80), st.integers(1, 30)), max_size=4))
def test_what_is_gone_at_the_source_is_in_the_ledger_or_differs(made, start, entries):
    source, mirrored, target = made
    start = min(start, len(source))
    ledger = [Entry(cause, first, first + size) for cause, first, size in entries]
    account = audit(source, target, position=mirrored, starts=(start, 0), ledger=ledger)
    written = {offset for entry in ledger for offset in range(entry.first, entry.end)}
    silent = [offset for offset in range(mirrored, start) if offset not in written]
    assert [offset for offset, _ in differences(account, "unaccounted")] == silent
    counts = account.counts["source"]
    assert counts["expired"] + counts["deleted"] + counts["ledgered"] + counts["unaccounted"] >= start
    asked = [entry for entry in ledger if entry.cause == "deleted_by_request"]
    assert asked or not counts["deleted"]


def test_a_record_that_the_target_refused_is_in_the_ledger():
    source = list(range(20))
    target = [number for number in source if number not in (7, 8)]
    account = audit(source, target, position=20, ledger=[Entry("record_too_large", 7, 8), Entry("evicted", 8, 9)])
    assert differences(account, "lost") == [(8, None)]
    assert account.counts["source"]["ledgered"] == 1


MANY = 4 * DETAILED * 12  # records, of which each fourth ends a range


@pytest.mark.parametrize("told", [True, False])
def test_others_write_between_ours_all_along(told):
    source = list(range(MANY))
    target = [one for number in source for one in ([number, FOREIGN + number] if number % 3 == 0 else [number])]
    del target[700]
    lost = [number for number in source if number not in target]
    account = audit(source, target, position=MANY, told=told)
    found = [offset for kind in ("lost", "changed") for offset, _ in differences(account, kind)]
    assert found == lost
    assert account.compared == MANY - len(lost)
    foreign = account.counts["target"]["foreign"] + account.counts["target"]["changed"]
    assert foreign == sum(number >= FOREIGN for number in target)


@pytest.mark.parametrize("told", [True, False])
def test_much_that_is_at_one_end_alone(told):
    source, gone = list(range(MANY)), range(MANY // 4 + 1, 3 * MANY // 4)
    lost = audit(source, [number for number in source if number not in gone], position=MANY, told=told)
    assert lost.counts["source"]["lost"] == len(gone)
    assert lost.differences.told[0].source_offset == gone[0]
    strange = [number if number in gone else number + FOREIGN for number in source]
    foreign = audit(list(gone), strange, position=MANY, told=told)
    assert foreign.is_proven()
    assert foreign.counts["target"]["foreign"] == MANY - len(gone)


@pytest.mark.parametrize("starts", [(3 * MANY // 4, 0), (0, 3 * MANY // 4)])
def test_much_that_an_end_has_let_go_of(starts, monkeypatch):
    monkeypatch.setattr("mirror.audit.compare.matching.RANGES_MAX", 3 * DETAILED)
    account = audit(list(range(MANY)), list(range(MANY)), position=MANY, starts=starts)
    assert account.is_proven()
    assert account.compared == MANY - max(starts)


@given(
    st.lists(st.integers(0, 5).map(lambda n: b"%d" % n), max_size=12),
    st.lists(st.integers(0, 5).map(lambda n: b"%d" % n), max_size=12),
)
def test_an_alignment_is_one(source, target):
    places, last = [], (0, 0)
    for i, j, count in align(source, target):
        assert i >= last[0]
        assert j >= last[1]
        assert source[i : i + count] == target[j : j + count]
        assert count
        places.append(count)
        last = i + count, j + count
    assert align(source, source) == ([(0, 0, len(source))] if source else [])


@given(logs(), st.integers(0, 5))
def test_lines_say_what_was_read(made, start):
    source, _, _ = made
    for one in ranges_of(source, min(start, len(source)), len(source)):
        assert read_line(range_line(one, each=True)) == (one if one.records else one._replace(digest=b"", digests=None))
        told = read_line(range_line(one, each=False))
        assert isinstance(told, Range)
        assert told.digests is None
