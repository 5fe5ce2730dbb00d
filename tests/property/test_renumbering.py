"""Properties of the two ways to number records anew, walk.c and Python.

Invariants:
- Both give the same records, runs and timestamps, or the same verdict for the same record, whatever the pieces hold.
- The compiled one writes as many bytes as it measured.
- What the walk of produced batches takes, renumbering takes; it takes no more but holes and attributes above 127.
"""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_broker.compiled import compiled_renumbering
from edge_broker.protocol.records_walk import ATTRIBUTES, OFFSET_DELTA, PythonWalk
from edge_broker.protocol.renumbering import LyingPiece, WantedPiece, renumber, renumber_in_python
from tests.support.lying_batches import batch
from tests.support.records_walk import of_seed, pieces_of_seed

ROOM = 7
seeds = st.integers(0, 2**32)


@pytest.fixture(scope="module", autouse=True)
def compiled():
    assert compiled_renumbering() is not None, (
        "these tests need the compiled renumbering: `make install-test` builds it with cc"
    )


def outcome(way, area, wanted):
    """What a caller may see."""
    try:
        return way(area, wanted, ROOM)
    except LyingPiece as lie:
        return lie.piece, lie.verdict, lie.record, str(lie)


@given(seeds)
@settings(max_examples=3000, deadline=None)
def test_both_ways_give_the_same(seed: int) -> None:
    area, wanted = pieces_of_seed(seed)
    before = bytes(area)
    assert outcome(renumber, area, wanted) == outcome(renumber_in_python, area, wanted)
    assert area == before


@given(seeds)
@settings(max_examples=2000, deadline=None)
def test_what_producers_may_send_is_taken_and_little_more(seed: int) -> None:
    area, count, base, _, _ = of_seed(seed)
    walk = PythonWalk(base, count, False, False)
    walk.feed(area, last=True)
    made = bytearray(batch(area, count=count, base_timestamp=base, last_offset_delta=2**31 - 1))
    found = outcome(renumber, made, [WantedPiece(len(made), 0, 2**63 - 1)])
    if walk.verdict == 0:
        assert found.records == count
        assert found.max_timestamp == walk.max_timestamp or found.max_timestamp < -1 or not count
    elif walk.verdict not in (OFFSET_DELTA, ATTRIBUTES):
        assert len(found) == 4
        assert found[1], "a verdict"
