"""The in-sync set's rules, one by one."""

from __future__ import annotations

from edge_broker.cluster.state.cluster_state import InSyncReplica
from edge_broker.cluster.state.isr_rules import changed_isr, high_watermark, may_join

A, B, C = (InSyncReplica(number, f"disk-{number}", 10 + number) for number in (1, 2, 3))
ENDS = {A: 9, B: 7, C: 5}


def test_the_mark_is_the_least_end_of_the_set() -> None:
    assert high_watermark(ENDS, (A, B), None, 2) == 7
    assert high_watermark(ENDS, (A, B, C), None, 2) == 5


def test_who_is_being_added_counts_and_who_is_being_removed_still_does() -> None:
    assert high_watermark(ENDS, (A, B), (A, B, C), 2) == 5
    assert high_watermark(ENDS, (A, B, C), (A, B), 2) == 5


def test_the_mark_stands_still_while_too_few_are_certain() -> None:
    assert high_watermark(ENDS, (A,), None, 2) == 0
    assert high_watermark(ENDS, (A,), (A, B), 2) == 0, "an addition may never be"
    assert high_watermark(ENDS, (A, B), (A,), 2) == 0, "a removal may have been"


def test_who_said_nothing_in_this_epoch_has_nothing() -> None:
    restarted = B._replace(epoch=99)
    assert high_watermark({A: 9, restarted: 9}, (A, B), None, 2) == 0


def test_who_joins_has_all_that_counts_and_the_epochs_start() -> None:
    assert may_join(8, 5, 8)
    assert not may_join(7, 5, 8)
    assert not may_join(7, 8, 5)


def test_a_restarted_member_takes_its_own_place() -> None:
    again = B._replace(epoch=99)
    assert changed_isr((A, B, C), (A, again), (B,), (), 2) == (A, again, C)


def test_the_set_never_becomes_smaller_than_needed() -> None:
    assert changed_isr((A, B, C), (A,), (B,), (C,), 2) == (A, C)
    assert changed_isr((A, B, C), (A,), (B,), (C,), 1) == (A,)
    assert changed_isr((A, B), (A,), (B,), (), 2) == (A, B)


def test_a_newcomer_lets_an_absent_one_go() -> None:
    assert changed_isr((A, B), (A, C), (B,), (), 2) == (A, C)
