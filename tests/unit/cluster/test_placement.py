"""Replicas are spread over racks and brokers, and the lead with them."""

from __future__ import annotations

from collections import Counter

import pytest

from edge_broker.cluster.state.placement import place


def test_replicas_and_leads_are_even() -> None:
    placed = place(dict.fromkeys((1, 2, 3)), 9, 2)
    assert Counter(broker for replicas in placed for broker in replicas) == {1: 6, 2: 6, 3: 6}
    assert Counter(replicas[0] for replicas in placed) == {1: 3, 2: 3, 3: 3}


def test_no_two_replicas_share_a_rack_that_need_not() -> None:
    racks: dict[int, str | None] = {1: "a", 2: "a", 3: "a", 4: "b", 5: None}
    for replicas in place(racks, 20, 3):
        assert sum(broker <= 3 for broker in replicas) == 1


def test_more_replicas_than_racks_are_as_even_as_can_be() -> None:
    racks: dict[int, str | None] = {1: "a", 2: "a", 3: "b", 4: "b"}
    for replicas in place(racks, 10, 3):
        assert sorted(Counter(racks[broker] for broker in replicas).values()) == [1, 2]


def test_what_is_there_counts() -> None:
    assert place(dict.fromkeys((1, 2, 3)), 1, 2, there=[(1, 2), (1, 2), (2, 1)])[0][0] == 3


@pytest.mark.parametrize("factor", [0, 4])
def test_too_few_brokers(factor: int) -> None:
    with pytest.raises(ValueError, match="with 3 brokers"):
        place(dict.fromkeys((1, 2, 3)), 1, factor)
