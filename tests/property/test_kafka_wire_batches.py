"""Properties of what kafka_wire does to record batches.

Invariants:
- What is merged is the pieces' records one after another, with their keys, values, headers and timestamps, packed by
  each codec; the runs are the offsets at which they lay, whatever was compacted and wherever one begins to read.
- What may be forwarded holds the same records by that way and by merging.
- The two parts of what is split hold the records of the whole.
- Whatever bytes come, the answer is pieces in ascending order, or one BadBatch; nothing else is raised.
"""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from edge_broker.protocol.crc import crc32c
from edge_broker.protocol.record_batch import check_batch
from kafka_wire.records.batches import (
    BadBatch,
    Piece,
    forward,
    may_be_forwarded,
    merge,
    pieces_of,
    record_bytes,
    split,
    stamp,
)
from tests.support.lying_batches import CODECS
from tests.support.pieces import Kept, batch_of, read_back

content = st.one_of(st.none(), st.binary(max_size=20), st.sampled_from((b"", b"x" * 64, b"y" * 9000)))
times = st.one_of(st.integers(1_700_000_000_000, 1_700_000_100_000), st.integers(-(2**63), 2**63 - 1), st.just(-1))
headers = st.lists(st.tuples(st.binary(max_size=5), content), max_size=3).map(tuple)


@st.composite
def logs(draw):
    """Batches as a log holds them, each with its records."""
    offset = draw(st.sampled_from((0, 17, 2**40)))
    found = []
    for _ in range(draw(st.integers(1, 6))):
        offset += draw(st.sampled_from((0, 0, 0, 1, 9)))
        deltas = sorted(draw(st.sets(st.integers(0, 15), max_size=9)))
        if draw(st.booleans()):
            deltas = list(range(len(deltas)))
        kept = [Kept(offset + delta, draw(times), draw(content), draw(content), draw(headers)) for delta in deltas]
        last = offset + max([*deltas, draw(st.sampled_from((0, 0, 3, 20)))])
        made = batch_of(kept, base_offset=offset, last_offset=last, codec=draw(st.sampled_from(CODECS)))
        found.append((made, kept))
        offset = last + 1
    return found


def expanded(runs):
    return [offset for first, count in runs for offset in range(first, first + count)]


def cut(log, from_offset):
    data = memoryview(b"".join(made for made, _ in log))
    return [piece for piece in pieces_of(data, from_offset, ()) if isinstance(piece, Piece)]


@given(logs(), st.integers(0, 60), st.sampled_from(CODECS))
@settings(max_examples=150, deadline=None)
def test_merged_is_the_records_one_after_another(log, skipped, codec) -> None:
    every = [one for _, kept in log for one in kept]
    from_offset = log[0][1][0].offset + skipped if log[0][1] else 0
    kept = [one for one in every if one.offset >= from_offset]
    pieces = cut(log, from_offset)
    if not pieces:
        assert not kept
        return
    sent = merge(pieces, codec)
    assert expanded(sent.runs) == [one.offset for one in kept]
    assert all(one[0] + one[1] < other[0] for one, other in zip(sent.runs, sent.runs[1:], strict=False))
    assert sent.records == len(kept)
    if not kept:
        return
    stamp(sent.batch, 5, 0, 3)
    header = check_batch(sent.batch, len(sent.batch))
    assert header.max_timestamp == max(one.timestamp for one in kept)
    assert read_back(sent.batch) == [one._replace(offset=place) for place, one in enumerate(kept)]


@given(logs())
@settings(max_examples=150, deadline=None)
def test_forwarded_and_merged_hold_the_same(log) -> None:
    for piece in cut(log, 0):
        if may_be_forwarded(piece):
            sent, other = forward(piece), merge([piece], "none")
            assert read_back(sent.batch) == read_back(other.batch)
            assert sent[1:3] == other[1:3]


@given(logs())
@settings(max_examples=150, deadline=None)
def test_both_parts_hold_the_records_of_the_whole(log) -> None:
    waiting, found = [cut(log, 0)], []
    whole = [one.offset for _, kept in log for one in kept]
    while waiting:
        part = waiting.pop()
        if len(part) > 1 or (part and merge(part, "none").records > 1):
            waiting += reversed(split(part))
        elif part and merge(part, "none").records:
            found += expanded(merge(part, "none").runs)
            assert record_bytes(part[0]) >= 0
    assert found == whole


@given(logs(), st.integers(0, 2**32), st.booleans())
@settings(max_examples=500, deadline=None)
def test_no_bytes_are_too_strange(log, seed, mended) -> None:
    rnd = random.Random(seed)
    data = bytearray(b"".join(made for made, _ in log))
    first = len(log[0][0])
    for _ in range(rnd.randint(1, 4)):
        data[rnd.randrange(first if mended else len(data))] = rnd.randrange(256)
    if mended:
        data[17:21] = crc32c(data[21:first]).to_bytes(4, "big")
    aborted = [(-1, 0), (rnd.randrange(3), rnd.randrange(20))] if rnd.random() < 0.3 else []
    end = 0
    try:
        pieces = []
        for piece in pieces_of(memoryview(data), rnd.choice((0, 0, 20)), aborted):
            assert end <= piece.first_offset < piece.end_offset
            end = piece.end_offset
            pieces += [piece] if isinstance(piece, Piece) else []
        if pieces:
            sent = merge(pieces, "zstd", 1)
            assert not sent.records or len(read_back(sent.batch)) == sent.records
            if len(pieces) > 1:
                split(pieces)
    except BadBatch:
        pass  # which is an answer too
