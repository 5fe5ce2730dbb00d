from __future__ import annotations

import pytest

from mirror import plan
from mirror.plan import BatchSpan, LinkWindow, Piece, judge_jump, judge_out_of_range


def data(base, end, *offsets):
    return BatchSpan(base, end, "data", offsets)


def test_a_transaction_marker_explains_a_jump():
    assert judge_jump(10, 11, [BatchSpan(10, 11, "control"), data(11, 13, 11, 12)], compacted=False) == [
        Piece(10, 11, "control")
    ]


def test_an_aborted_batch_explains_a_jump():
    spans = [BatchSpan(10, 14, "aborted"), BatchSpan(14, 15, "control")]
    assert judge_jump(10, 15, spans, compacted=False) == [Piece(10, 14, "aborted"), Piece(14, 15, "control")]


def test_records_cleaned_out_of_a_batch_are_compacted():
    assert judge_jump(10, 14, [data(8, 20, 8, 9, 14, 19)], compacted=False) == [Piece(10, 14, "compacted")]


def test_a_corrupt_range_without_compaction_is_missing():
    assert judge_jump(10, 20, [data(8, 12, 8, 9), data(20, 21, 20)], compacted=False) == [
        Piece(10, 12, "compacted"),
        Piece(12, 20, "missing"),
    ]


def test_a_corrupt_range_with_compaction_is_compacted():
    assert judge_jump(10, 20, [data(20, 21, 20)], compacted=True) == [Piece(10, 20, "compacted")]


def test_a_record_that_is_there_was_not_read():
    assert judge_jump(10, 20, [data(10, 15, 10, 11), data(20, 21, 20)], compacted=False) == [
        Piece(10, 15, "unread"),
        Piece(15, 20, "missing"),
    ]


def test_spans_are_judged_in_order_whatever_order_they_come_in():
    spans = [BatchSpan(12, 13, "control"), BatchSpan(10, 11, "control"), BatchSpan(11, 12, "control")]
    assert judge_jump(10, 13, spans, compacted=False) == [Piece(10, 13, "control")]


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
    assert tuple(judge_out_of_range(position, start, end)) == verdict


def test_the_window_grows_while_acks_are_fast_and_shrinks_when_they_are_slow():
    window = LinkWindow(4_000_000)
    first = window.limit_bytes
    window.acked(100_000, 0.1)
    assert window.limit_bytes == first + 100_000
    window.acked(100_000, 5.0)
    assert window.limit_bytes == first + 100_000
    window.acked(100_000, 20.0)
    assert window.limit_bytes < first
    for _ in range(60):
        window.failed()
    assert window.limit_bytes == plan.LINK_WINDOW_BYTES_MIN


def test_something_can_always_be_sent_when_nothing_is_under_way():
    window = LinkWindow(64 * 1024)
    assert window.batch_bytes(0, 10**6) == 64 * 1024
    assert window.batch_bytes(60 * 1024, 10**6) == 0
    assert window.batch_bytes(0, 1) == 1
