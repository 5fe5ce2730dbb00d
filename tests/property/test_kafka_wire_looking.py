"""The way back through a partition, against a plain look at all of its log, whatever lies there, however little comes.

Invariants:
1. What is found is our last batch from the floor on, and the highest marker of ours behind it; none is missed.
2. An answer holds one whole batch at least where it is the first of its request; each brings the search on.
3. A look that was cut short by its bound says so.
"""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_broker.errors import ProtocolViolation
from edge_broker.protocol.record_batch import CONTROL, TRANSACTIONAL, BatchHeader
from kafka_wire.cluster import Leader
from kafka_wire.transactions.last_batch_lookup import LookupRequest, LookupResult, Own, Search
from tests.support.record_batches import make_batch

OURS, THEIRS = 7, 8
LEADER = Leader(1, 0)


def batch(kind, offset, size, sequence):
    """One batch; "ours", "theirs", "marker" of ours or "other marker"."""
    producer = THEIRS if kind in ("theirs", "other marker") else OURS
    is_marker = "marker" in kind
    return make_batch(
        [(None, b"v" * 20, 0)] * (1 if is_marker else size),
        base_offset=offset,
        producer=(producer, size, -1 if is_marker else sequence),
        attributes=CONTROL | TRANSACTIONAL if is_marker else 0,
    )


@st.composite
def logs(draw):
    offset, batches = draw(st.integers(0, 20)), []
    for _ in range(draw(st.integers(0, 12))):
        kind = draw(st.sampled_from(["ours", "theirs", "theirs", "marker", "other marker"]))
        size = draw(st.integers(1, 4))
        batches.append(batch(kind, offset, size, 2**31 - 3 + draw(st.integers(0, 2))))
        offset = BatchHeader(batches[-1]).next_offset + draw(st.sampled_from([0, 0, 0, 1, 40]))
    start = draw(st.integers(0, offset))
    end = BatchHeader(batches[-1]).next_offset if batches else offset
    return [one for one in batches if BatchHeader(one).next_offset > start], min(start, end), end


def fetched(batches, offset, room, is_first):
    """As a broker answers: from the batch that holds the offset on, up to so many bytes, a first one whole."""
    data = b"".join(one for one in batches if BatchHeader(one).next_offset > offset)
    whole = BatchHeader(data).size if data and is_first else 0
    return memoryview(data[: max(room, whole)])


def looked(search, batches, rooms, firsts):
    for _ in range(1000):
        if search.is_over:
            return search.result()
        is_first = next(firsts)
        if not search.take(fetched(batches, search.next_offset, next(rooms), is_first), is_first=is_first):
            assert not is_first
    raise AssertionError("the search does not end")


def plain_look(batches, bottom):
    """The last batch of ours and the highest epoch of a marker behind it, with all in sight."""
    marker = -1
    for one in reversed(batches):
        header = BatchHeader(one)
        if header.next_offset <= bottom:
            break
        if header.producer_id == OURS and not header.is_control:
            last = (header.base_sequence + header.last_offset_delta) % 2**31
            own = Own(OURS, header.producer_epoch, header.base_sequence, last, header.base_offset, header.last_offset)
            return own, marker
        if header.producer_id == OURS:
            marker = max(marker, header.producer_epoch)
    return None, marker


def repeated(data, values):
    while True:
        yield data.draw(values)


@settings(max_examples=300)
@given(logs(), st.integers(0, 60), st.integers(0, 60) | st.just(2**63 - 1), st.data())
def test_the_last_batch_of_ours_is_found(log, floor, below, data):
    batches, start, end = log
    search = Search(LookupRequest(LEADER, frozenset([OURS]), floor, below), start, end)
    end = max(start, min(end, below))
    rooms = repeated(data, st.sampled_from([1, 80, 100, 200, 500, 10_000]))
    firsts = repeated(data, st.sampled_from([True, True, False]))
    look = looked(search, batches, rooms, firsts)
    bottom = min(max(start, floor), end)
    batches_below = [one for one in batches if BatchHeader(one).base_offset < end and bottom < end]
    assert (look.last, look.marker_epoch) == plain_look(batches_below, bottom)
    at_floor = [BatchHeader(one) for one in batches_below if BatchHeader(one).next_offset > bottom][:1]
    others = [one for one in at_floor if one.base_offset <= bottom and (one.producer_id != OURS or one.is_control)]
    assert look.last is not None or look.is_taken == bool(others)
    assert look.is_whole
    assert look[:2] == (start, end)
    assert look.last is not None or look.searched_from <= bottom


@given(logs(), st.integers(1, 3))
def test_a_bound_is_kept_and_told(log, steps):
    batches, start, end = log
    search = Search(LookupRequest(LEADER, frozenset([OURS])), start, end, steps)
    asked = 0
    while not search.is_over:
        search.take(fetched(batches, search.next_offset, 1, True))
        asked += 1
    look = search.result()
    assert asked <= steps
    own, _ = plain_look(batches, start)
    assert look.last in (own, None)
    assert look.is_whole == (look.last is not None or look.searched_from <= start)
    assert look.last == own or not look.is_whole


def test_the_usual_look_takes_one_step():
    batches = [batch("ours", 0, 4, 0), batch("ours", 4, 3, 4), batch("marker", 7, 2, 0)]
    search = Search(LookupRequest(LEADER, frozenset([OURS])), 0, 8)
    assert search.wants_more
    assert search.take(fetched(batches, search.next_offset, 65_536, True))
    assert search.is_over
    assert search.result() == LookupResult(0, 8, 4, Own(OURS, 3, 4, 6, 4, 6), 2, True)


def test_what_cannot_be_read_is_not_believed():
    ours = bytearray(batch("ours", 0, 4, 0))
    search = Search(LookupRequest(LEADER, frozenset([OURS])), 0, 4)
    with pytest.raises(ProtocolViolation, match="cut off"):
        search.take(memoryview(ours)[:-1])
    ours[-1] ^= 1
    with pytest.raises(ProtocolViolation, match="offset 0 does not match its CRC"):
        search.take(memoryview(ours))
    ours[16] = 1
    with pytest.raises(ProtocolViolation, match="magic 1"):
        search.take(memoryview(ours))
