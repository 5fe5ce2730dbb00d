"""Digests of records and ranges, the lines that tell them, and what an audit says to a person.

Invariants: a digest is the same however records are batched, packed and numbered, and another one for another key,
value, header or timestamp. Ranges are cut at the same records wherever a log begins. No line that is none is believed.
"""

from __future__ import annotations

import json

import pytest

from edge_broker.protocol.crc import crc32c
from edge_broker.protocol.record_batch import LOG_APPEND_TIME, build_batch
from kafka_wire.records.batches import Piece, merge, pieces_of
from mirror.audit.compare.account import Account, AuditResult
from mirror.audit.compare.ledger_entries import entries_of, note_entry
from mirror.audit.compare.matching import match
from mirror.audit.digest.digests import NO_KEY, RECORDS_MAX, Chunker, Digests, Range, digests_of, part, parts_of, split
from mirror.audit.digest.partition_facts import Entry, Facts
from mirror.audit.endpoints.digest_lines import (
    BadLine,
    Begin,
    begin_line,
    facts_line,
    parts_line,
    range_line,
    read_line,
)
from mirror.audit.report import as_json, sentences, tables
from mirror.partition.offset_map import End, Step
from mirror.partition.state_records import Head, StoredState, Topics

TIME = 1_700_000_000_000


def pieces(*batches):
    return [one for batch in batches for one in pieces_of(memoryview(batch), 0) if isinstance(one, Piece)]


def batch(*records, base_offset=0, timestamp=TIME, headers=()):
    return build_batch(list(records), timestamp_ms=timestamp, base_offset=base_offset, headers=headers)


def digests(*found):
    return [digest for piece in found for digest in digests_of(piece).digests]


def test_a_digest_is_the_same_however_records_lie():
    records = [(b"k%d" % number, b"v%d" % number) for number in range(5)]
    alone = digests(*pieces(*(batch(one, base_offset=100 + at) for at, one in enumerate(records))))
    assert len(set(alone)) == 5
    assert digests(*pieces(batch(*records))) == alone
    for codec in ("gzip", "snappy", "lz4", "zstd"):
        assert digests(*pieces(merge(pieces(batch(*records)), codec).batch)) == alone


def test_a_digest_is_of_one_record():
    one = {"key": b"k", "value": b"v", "timestamp": TIME, "headers": (("a", b"b"),)}
    others = [
        one, one | {"key": None}, one | {"key": b""}, one | {"key": b"kv", "value": b""}, one | {"value": None},
        one | {"timestamp": TIME + 1}, one | {"timestamp": -1}, one | {"headers": ()},
        one | {"headers": (("a", None),)}, one | {"headers": (("ab", b""),)},
    ]  # fmt: skip
    made = [
        digests(*pieces(batch((o["key"], o["value"]), timestamp=o["timestamp"], headers=o["headers"]))) for o in others
    ]
    assert len({found[0] for found in made}) == len(others)


def test_which_part_of_a_record_differs():
    one = parts_of(5, b"k", b"v", [("a", b"b"), ("c", None)])
    others = [
        parts_of(6, b"k", b"v", [("a", b"b"), ("c", None)]),
        parts_of(5, None, b"v", [("a", b"b"), ("c", None)]),
        parts_of(5, b"k", b"", [("a", b"b"), ("c", None)]),
        parts_of(5, b"k", b"v", [("a", b"bc"), ("", None)]),
    ]
    differ = [[name for name in one._fields if getattr(one, name) != getattr(other, name)] for other in others]
    assert differ == [["timestamp"], ["key"], ["value"], ["headers"]]
    assert read_line(parts_line(one)) == one


def test_the_brokers_time_is_each_records():
    """Of a batch with log append time the greatest timestamp is that of every record."""
    made = bytearray(batch((b"k", b"v"), timestamp=TIME))
    [piece] = pieces(made)
    header = piece.header
    header.attributes |= LOG_APPEND_TIME
    made[21:23] = header.attributes.to_bytes(2, "big")
    made[35:43] = (TIME + 5).to_bytes(8, "big")
    made[17:21] = crc32c(memoryview(made)[21:]).to_bytes(4, "big")
    assert digests(*pieces(made)) == digests(*pieces(batch((b"k", b"v"), timestamp=TIME + 5)))


def test_a_part_of_a_batch():
    [piece] = pieces(batch(*((b"k", b"%d" % number) for number in range(6)), base_offset=10))
    whole = digests_of(piece)
    some = digests_of(piece._replace(first_offset=12, end_offset=15))
    assert some == Digests(((12, 3),), whole.digests[2:5], [])


def test_digests_of_keys():
    [piece] = pieces(batch((b"k", b"1"), (b"k", None), (None, b"1"), (b"other", b"1")))
    keys = digests_of(piece, keyed=True).keys
    assert keys[0][:-1] == keys[1][:-1]
    assert (keys[0][-1] & 1, keys[1][-1] & 1) == (0, 1)
    assert keys[2] == NO_KEY
    assert keys[3][:7] != keys[0][:7]


def numbered(first, end):
    """Records whose digests end a range once in 16."""
    fronts = [bytes(2) if number % 16 == 0 else b"\xff\xff" for number in range(first, end)]
    return Digests(((first, end - first),), [front + b"%14d" % at for at, front in enumerate(fronts, first)], [])


def test_ranges_are_cut_by_content_alone():
    one, other = Chunker(), Chunker()
    by_sevens = [found for start in range(0, 200, 7) for found in one.add(numbered(start, min(start + 7, 200)))]
    at_once = list(other.add(numbered(0, 200)))
    assert by_sevens == at_once
    assert one.last_range() == other.last_range()
    later = Chunker()
    assert list(later.add(numbered(40, 200)))[1:] == at_once[4:]


def test_a_range_has_an_end():
    same = Digests(((0, 3 * RECORDS_MAX + 5),), [b"\xff" * 16] * (3 * RECORDS_MAX + 5), [])
    chunker = Chunker()
    assert [one.records for one in chunker.add(same)] == [RECORDS_MAX] * 3
    assert chunker.last_range().records == 5


def test_a_part_of_a_range():
    one = Range(5, b"r", ((10, 2), (20, 3)), digests=bytes(range(80)))
    assert part(one, 1, 4).runs == ((11, 1), (20, 2))
    assert part(one, 1, 4).digests == bytes(range(16, 64))
    assert (part(one).whole, part(one, 1).whole) == (b"r", None)
    assert split(bytes(range(32)))[1] == bytes(range(16, 32))


FACTS = Facts("readings", 0, "lab.readings", 5, 90, True, "t", 60, (Entry("evicted", 0, 5),))
STATE = StoredState(Head(Topics("lab.readings", "s", "t"), 7, 1, 0, 0, 0, 2, End(9, 20, 30)), 0, [Step(0, 5, 0, 6)])


@pytest.mark.parametrize(
    "facts",
    [
        FACTS,
        FACTS._replace(state=STATE),
        FACTS._replace(is_compacted=None, position=None),
        FACTS._replace(reason="is passed over"),
    ],
)
def test_lines_say_what_an_end_told(facts):
    assert read_line(facts_line(facts)) == facts
    for begin in (Begin("target", 5, ""), Begin("target", 5, "t:0", "cluster")):
        assert read_line(begin_line(begin)) == begin


@pytest.mark.parametrize(
    "line",
    [
        "", "no json", "[]", "1", '{"digests":2,"of":"source","at_ms":1,"asked":""}', '{"all":"4"}', '{"all":true}',
        '{"digests":1,"of":"both","at_ms":1,"asked":""}', '{"r":"AAAA","runs":[[0,1]]}', '{"runs":[[0,1]]}',
        '{"r":"AAAAAAAAAAAAAAAAAAAAAA","runs":[[0,-1]]}', '{"r":"AAAAAAAAAAAAAAAAAAAAAA","runs":[[0,1]],"each":"AA"}',
        '{"holes":[[0,1,"strange"]]}', '{"partition":["a"]}', "[" * 100_000,
    ],
)  # fmt: skip
def test_a_line_that_is_none(line):
    with pytest.raises(BadLine):
        read_line(line)


@pytest.mark.parametrize("from_target", [0, 4])
def test_a_range_tells_what_came_from_the_target(from_target):
    """A line without such offsets is read by the release before."""
    chunker = Chunker()
    chunker.skip(0, 3, "control")
    chunker.skip(3, 3 + from_target, "from_target")
    one = chunker.last_range()
    line = range_line(one, each=False)
    assert json.loads(line)["n"] == [3, 0, 0, *([4] if from_target else [])]
    assert read_line(line)._replace(digests=b"", digest=one.digest) == one
    account = Account(Facts("t", 0, "t", 0, 3 + from_target, False, position=0), Facts("t", 0, "", 0, 0, False))
    account.range_passed("source", one)
    account.close()
    assert account.is_proven()
    assert account.counts["source"]["from_target"] == from_target


def entry(**fields):
    made = {
        "id": "evicted:readings:0:5-9:" + "x" * 22,
        "cause": "evicted",
        "topic": "readings",
        "partition": 0,
        "first_offset": 5,
        "last_offset": 9,
    }
    return json.dumps(made | fields).encode()


def test_entries_of_the_ledger():
    found = {}
    for value in (
        entry(), entry(), entry(id="a:b", cause="record_too_large", last_offset=5), entry(last_offset=None),
        entry(partition=None), b"no json", None, b"[]", entry(partition=1),
    ):  # fmt: skip
        note_entry(value, found)
    mine = (Entry("record_too_large", 5, 6), Entry("evicted", 5, 10))
    assert entries_of(found, ("readings", 0), "x" * 22) == mine
    assert entries_of(found, ("readings", 0), "y" * 22) == mine[:1]  # the topic is another one now
    assert entries_of(found, ("readings", 2), None) == ()


def audited(source, target, **more):
    here = Facts("readings", 0, "readings", 0, len(source), False, position=len(source))
    there = Facts("readings", 0, "lab.readings", 0, len(target), False)
    logs = {}
    for side, log in (("source", source), ("target", target)):
        chunker = Chunker()
        found = Digests(((0, len(log)),) if log else (), [b"%16d" % number for number in log], [])
        logs[side] = [*chunker.add(found), chunker.last_range()]
    account = Account(here, there, **more)
    matching = match(account)
    told = None
    while True:
        try:
            side, _ = matching.send(told)
        except StopIteration:
            break
        told = [logs[side].pop(0)] if logs[side] else []
    account.close()
    return account


FIRST = "readings-0: first difference:"
LOST = f"{FIRST} the record at source offset 2 is lost: the target does not have it"


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ([0, 1, 3, 4], f"{LOST}."),
        ([0, 4], f"{FIRST} each of 3 records at source offset 1 is lost: the target does not have it."),
        ([0, 1, 9, 3, 4], f"{FIRST} the record at source offset 2 is another at target offset 2."),
        ([0, 1, 1, 3, 4], f"{LOST} (1 more differs)."),
        ([0, 1, 2, 3, 4, 9], "lab.readings-0: 1 at the target is of others, the first at 5."),
    ],
)  # fmt: skip
def test_what_is_said(target, said):
    account = audited(range(5), target)
    lines = sentences(AuditResult([account], [], [], []), may_double=False)
    assert lines[0] == said
    assert lines[-1].startswith("PROVEN" if len(target) == 6 else "NOT PROVEN")
    assert ("LOST" in tables([account])) == ("lost" in said)
    told = as_json(AuditResult([account], [], [], []), may_double=False)
    assert json.loads(json.dumps(told))["proven"] == (len(target) == 6)


@pytest.mark.parametrize(
    ("parts", "said"), [(("value",), "whose value differs"), (("key", "headers"), "whose key and headers differ")]
)
def test_the_parts_that_differ_are_said(parts, said):
    account = audited(range(5), [0, 1, 9, 3, 4])
    account.differences.told[0] = account.differences.told[0]._replace(parts=parts)
    assert said in sentences(AuditResult([account], [], [], []), may_double=False)[0]


def test_doubles_may_be_let_be():
    account = audited(range(5), [0, 1, 1, 2, 3, 4])
    assert not account.is_proven()
    assert account.is_proven(may_double=True)
    assert len(sentences(AuditResult([account], [], [], []), may_double=False)) == 2
    assert len(sentences(AuditResult([account], [FACTS], [], []), may_double=True)) == 2


def test_many_partitions_that_differ_are_not_all_said():
    accounts = [audited([0, 1], [0]) for _ in range(15)]
    lines = sentences(AuditResult(accounts, [], [], []), may_double=False)
    assert len(lines) == 12
    assert lines[10] == "5 more partitions differ; --json has them all."
