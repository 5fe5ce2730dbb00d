from __future__ import annotations

import pytest

from mirror.replication.gap_rules import classify_jump, classify_out_of_range


@pytest.mark.parametrize(("compacted", "verdict"), [(True, "compacted"), (False, "missing")])
def test_offsets_that_no_batch_covers_are_judged_by_the_policy(compacted, verdict):
    assert classify_jump(compacted=compacted) == verdict


@pytest.mark.parametrize(
    ("position", "start", "end", "verdict"),
    [
        (5, 10, 20, (10, 5, 10)),
        (25, 10, 20, (10, 20, 25)),
        (10, 10, 20, (10, 10, 10)),
        (20, 10, 20, (20, 20, 20)),
    ],
)
def test_out_of_range_is_judged_by_the_ends_of_the_log(position, start, end, verdict):
    assert tuple(classify_out_of_range(position, start, end)) == verdict
