"""Epochs between those that the mirror was given may have been another mirror's."""

from __future__ import annotations

from mirror.session.foreign_epochs import ForeignEpochs


def given(*producers):
    between = ForeignEpochs()
    for producer in producers:
        between.epoch_given(*producer)
    return between


def test_epochs_that_follow_each_other_leave_nothing_between():
    between = given((7, 4), (7, 5), (7, 6))
    assert not between
    assert (7, 3) not in between  # whatever came before the first is read with the state


def test_what_lies_between_is_another_mirrors():
    between = given((7, 4), (7, 7), (7, 8))
    assert between
    assert [epoch for epoch in range(12) if (7, epoch) in between] == [5, 6]
    assert (9, 5) not in between


def test_of_an_id_that_has_another_behind_it_all_later_epochs_are_anothers():
    between = given((7, 4), (9, 2), (9, 3))
    assert [epoch for epoch in range(7) if (7, epoch) in between] == [5, 6]
    assert [epoch for epoch in range(6) if (9, epoch) in between] == [0, 1]


def test_what_was_read_counts_no_more():
    between = given((7, 4), (7, 7))
    between.clear()
    assert not between
    between.epoch_given(7, 8)
    assert not between
