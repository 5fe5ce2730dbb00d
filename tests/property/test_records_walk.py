"""Properties of the two walkers of records.

Invariants:
- Both give the same verdict, at the same record, with the same greatest timestamp, for the catalogue of lies, for what
  is made by changing honest and lying areas, and for random bytes.
- Where a piece is cut changes nothing.
- Every lie of the catalogue has a verdict, no honest area has one.
- What has no verdict can be read by aiokafka's decoder, which returns as many records as the header claims.
"""

from __future__ import annotations

import pytest
from aiokafka.record.default_records import DefaultRecordBatch
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_broker.compiled import compiled_walk
from edge_broker.protocol import records_walk
from edge_broker.protocol.records_walk import GOES_ON, KEYLESS, TIMESTAMP, PythonWalk
from tests.support.lying_batches import HONEST_AREAS, LYING_AREAS, LYING_TIMES, NOW_MS, batch
from tests.support.records_walk import AREAS, of_seed, outcome

AREAS += list(LYING_TIMES.values())
seeds = st.integers(0, 2**32)
flags = st.booleans()


def walked(kind, area, count, base=NOW_MS, keys=False, times=True, cuts=()):
    """The outcome of a walk whose area is cut at these places."""
    walk = kind(base, count, keys, times)
    begin = 0
    for cut in sorted(cuts):
        walk.feed(memoryview(area)[begin:cut], last=False)
        begin = cut
    walk.feed(memoryview(area)[begin:], last=True)
    return outcome(walk)


@pytest.fixture(scope="module")
def compiled():
    found = compiled_walk()
    assert found is not None, "these tests need the compiled walker: `make install-test` builds it with cc"
    return found


@given(seeds)
@settings(max_examples=3000, deadline=None)
def test_both_walkers_give_the_same_verdict(compiled, seed: int) -> None:
    area, count, base, keys, times = of_seed(seed)
    ours = walked(PythonWalk, area, count, base, keys, times)
    assert walked(compiled.begin, area, count, base, keys, times) == ours
    assert outcome(compiled.whole(memoryview(bytearray(area)), 0, base, count, keys, times)) == ours
    assert outcome(compiled.whole(memoryview(b"header" + area), 6, base, count, keys, times)) == ours


@given(seeds, st.lists(st.integers(0, 400), max_size=6), st.sampled_from(("python", "compiled")))
@settings(max_examples=1500, deadline=None)
def test_where_pieces_are_cut_changes_nothing(compiled, seed: int, cuts: list[int], name: str) -> None:
    area, count, base, keys, times = of_seed(seed)
    kind = PythonWalk if name == "python" else compiled.begin
    cuts = [min(cut, len(area)) for cut in cuts]
    assert walked(kind, area, count, base, keys, times, cuts) == walked(kind, area, count, base, keys, times)


@pytest.mark.parametrize("area", [*range(len(AREAS))])
def test_every_cut_of_the_catalogue_gives_one_verdict(compiled, area: int) -> None:
    content, count, base = AREAS[area]
    content = content if len(content) < 500 else content[:300]
    for kind in (PythonWalk, compiled.begin):
        whole = walked(kind, content, count, base)
        assert walked(kind, content, count, base, cuts=range(len(content))) == whole
        for cut in range(len(content)):
            assert walked(kind, content, count, base, cuts=[cut]) == whole


@pytest.mark.parametrize("kind", [PythonWalk, "compiled"], ids=["python", "compiled"])
def test_lies_have_a_verdict_and_honest_areas_have_none(compiled, kind) -> None:
    begin = compiled.begin if kind == "compiled" else kind
    lies = {name: walked(begin, area, count)[0] for name, (area, count) in LYING_AREAS.items()}
    assert [name for name, verdict in lies.items() if verdict == GOES_ON] == []
    assert set(lies.values()) == set(range(1, 12)), "the catalogue has an example of each verdict"
    assert {walked(begin, *times)[0] for times in LYING_TIMES.values()} == {TIMESTAMP}
    assert {walked(begin, *times, False, False)[0] for times in LYING_TIMES.values()} == {GOES_ON}
    assert [name for name, (area, count) in HONEST_AREAS.items() if walked(begin, area, count)[0]] == []
    assert walked(begin, *HONEST_AREAS["null key, null value"], keys=True)[:4] == (KEYLESS, 1, -1, 0)


@given(seeds)
@settings(max_examples=1000, deadline=None)
def test_what_is_taken_can_be_read(seed: int) -> None:
    area, count, base, _, _ = of_seed(seed)
    walk = records_walk.walk_whole(memoryview(area), 0, base, count, False, True)
    if walk.verdict:
        assert records_walk.refusal_of(walk).message
        return
    try:
        read = list(DefaultRecordBatch(bytearray(batch(area, count=count, base_timestamp=base))))
    except UnicodeDecodeError:
        return  # a header key is bytes to Kafka and most clients, text to aiokafka
    assert [found.offset for found in read] == list(range(count))
    assert max([-1, *(found.timestamp for found in read)]) == walk.max_timestamp
