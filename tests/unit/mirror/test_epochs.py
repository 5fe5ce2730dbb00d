from __future__ import annotations

import pytest

from edge_broker.protocol.record_batch import build_batch
from mirror.partition.leader_epochs import (
    EpochEnd,
    EpochStart,
    LeaderEpochs,
    classify_standing,
    epoch_starts,
    resume_offset,
    search_difference,
)

NONE = LeaderEpochs()
THIRD = LeaderEpochs([EpochStart(900, 3)])


@pytest.mark.parametrize(
    ("position", "topic_id", "epochs", "source_topic_id", "source_epoch", "verdict"),
    [
        (1000, "a", THIRD, "b", 3, "anew"),
        (0, "a", NONE, "b", -1, "anew"),
        (0, None, NONE, "b", 3, "stands"),
        (0, "b", NONE, "b", 3, "stands"),
        (1000, "b", THIRD, "b", -1, "stands"),
        (1000, None, NONE, None, -1, "stands"),
        (1000, None, NONE, "b", 3, "unproved"),
        (1000, None, NONE, None, 0, "unproved"),
        (1000, "b", NONE, "b", 3, "stands"),
        (900, "b", THIRD, "b", 3, "stands"),  # the epoch is of what comes behind the position
        (1000, "b", THIRD, "b", 3, "ask"),
        (1000, None, THIRD, "b", 3, "ask"),
        (1000, "b", THIRD, None, 7, "ask"),
    ],
)
def test_what_can_be_known_without_asking(position, topic_id, epochs, source_topic_id, source_epoch, verdict):
    assert (
        classify_standing(position, topic_id, epochs, source_topic_id=source_topic_id, source_epoch=source_epoch)
        == verdict
    )


@pytest.mark.parametrize(
    ("position", "epochs", "answer", "source_epoch", "go_on_at"),
    [
        (1000, [(900, 3)], (3, 1000), 3, 1000),  # read to its end
        (1000, [(900, 3)], (3, 5000), 3, 1000),  # far behind
        (1000, [(900, 3)], (3, 1000), 4, 1000),  # a new epoch began right there
        (1000, [(900, 3)], (3, 950), 4, 950),  # the end of epoch 3 was lost
        (1000, [(900, 3)], (2, 850), 4, 850),  # all of epoch 3 was lost, and the end of epoch 2
        (1000, [(900, 3)], (2, 950), 4, 900),  # another log: its epoch 2 went on where ours was 3 already
        (1000, [(100, 1), (500, 2), (900, 3)], (1, 950), 4, 500),
        (1000, [(900, 3)], (3, 0), 4, 0),
        (1000, [(900, 3)], (-1, -1), 3, 1000),  # it remembers nothing
        (1000, [(900, 3)], (-1, -1), 2, 40),  # it was never in our epoch
        (30, [(20, 3)], (-1, -1), 2, 30),  # the same, but the position is below its log: out of range will tell
    ],
)
def test_what_a_leader_answers(position, epochs, answer, source_epoch, go_on_at):
    known = LeaderEpochs([EpochStart(*start) for start in epochs])
    found = resume_offset(position, known, EpochEnd(*answer), source_epoch=source_epoch, log_start=40)
    assert found == go_on_at


def test_epochs_are_kept_by_where_they_began():
    epochs = LeaderEpochs()
    for offset, epoch in ((0, 1), (10, 1), (20, 3), (30, 3), (40, 4)):
        epochs.note(offset, epoch)
    assert epochs.starts == ((0, 1), (20, 3), (40, 4))
    assert [epochs.below(offset) for offset in (0, 1, 20, 21, 40, 41)] == [
        None, (0, 1), (0, 1), (20, 3), (20, 3), (40, 4),
    ]  # fmt: skip


def test_what_is_read_again_counts_from_there_on():
    epochs = LeaderEpochs([EpochStart(0, 1), EpochStart(20, 3), EpochStart(40, 4)])
    epochs.note(30, 3)
    assert epochs.starts == ((0, 1), (20, 3))
    epochs.cut(20)
    epochs.note(20, 5)
    assert epochs.starts == ((0, 1), (20, 5))


def test_a_record_of_a_lower_epoch_shows_that_those_below_it_are_none_of_a_greater():
    epochs = LeaderEpochs([EpochStart(99, 7)])  # the leader's, noted when the position was believed
    epochs.note(100, 2)
    assert epochs.starts == ((99, 2),)


def test_no_epoch_is_noted_where_none_is_told():
    epochs = LeaderEpochs()
    epochs.note(5, -1)
    assert epochs.starts == ()


def found_by(search, differs_from, *, missing=()):
    asked = []
    try:
        offset = next(search)
        while True:
            asked.append(offset)
            offset = search.send(None if offset in missing else offset < differs_from)
    except StopIteration as stop:
        return stop.value, asked


@pytest.mark.parametrize("differs_from", [1, 2, 57, 998, 999])
def test_where_two_logs_part_is_found_by_few_comparisons(differs_from):
    found, asked = found_by(search_difference(0, 999), differs_from)
    assert found == differs_from
    assert len(asked) <= 11


def test_logs_that_share_nothing_cannot_be_compared():
    assert found_by(search_difference(0, 999), 0) == (None, [0])
    assert found_by(search_difference(999, 999), 0) == (None, [])


def test_a_record_that_is_not_there_ends_the_search():
    assert found_by(search_difference(0, 999), 600, missing=range(400, 600))[0] is None


def batch(base_offset, leader_epoch):
    return bytes(build_batch([(None, b"x")] * 10, timestamp_ms=1, base_offset=base_offset, leader_epoch=leader_epoch))


def test_where_epochs_begin_is_told_by_the_batches():
    whole, old = batch(40, 2), bytearray(batch(30, 1))
    old[16] = 1  # its magic: these bytes are no epoch then
    assert list(epoch_starts(bytes(old) + whole + batch(50, 3)[:10], 40)) == [(40, 2)]
    assert list(epoch_starts(batch(40, 2) + batch(50, 2) + batch(60, 3), 45)) == [(40, 2), (60, 3)]
    assert list(epoch_starts(b"", 40)) == []


def test_what_is_missing_before_the_first_batch_was_of_its_epoch_at_most():
    assert list(epoch_starts(batch(40, 2) + batch(60, 3), 35)) == [(35, 2), (60, 3)]
