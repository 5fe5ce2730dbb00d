"""A board tells a state that comes after the one it kept from a state of another line, whatever the numbers say."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count

import pytest

from edge_broker.cluster.state.lines import (
    AT_LEAVING,
    RECENT,
    UNMARKED_LINE,
    Line,
    Relation,
    kept_by,
    may_act,
    relation,
    successor,
    with_accepted,
)
from edge_broker.storage.metadata.kept_states import KeptState

ALL = (1, 2, 3)


class Ensemble:
    """The states of one partition, one after the other."""

    def __init__(self, name: str = "s") -> None:
        self._name, self._numbers = name, count(1)
        self.line = UNMARKED_LINE
        self.members: tuple[int, ...] = ALL
        self.change()

    def change(self, members: tuple[int, ...] | None = None, times: int = 1) -> Line:
        after = self.members if members is None else members
        for _ in range(times):
            self.line = successor(self.line, f"{self._name}{next(self._numbers)}", self.members, after)
            self.members = after
        return self.line

    def set_back_to(self, line: Line, members: tuple[int, ...], name: str) -> None:
        self.line, self.members, self._name = line, members, name

    def kept(self, board: int) -> KeptState:
        return kept_by(self.line, named=board in self.members)


def acts(kept: KeptState | None, line: Line) -> bool:
    return may_act(relation(kept, line), older_release=False)


def test_a_disk_that_kept_nothing_acts_by_any_state() -> None:
    assert relation(None, Ensemble().line) is Relation.NEW
    assert relation(None, UNMARKED_LINE) is Relation.NEW
    assert acts(None, UNMARKED_LINE)


def test_the_first_marked_state_has_no_ancestors() -> None:
    assert successor(UNMARKED_LINE, "x", ALL, (1, 2)) == Line("x", 1)


@pytest.mark.parametrize("times", [1, 2, RECENT])
def test_a_state_after_the_kept_one_is_its_successor(times: int) -> None:
    ensemble = Ensemble()
    ensemble.change(times=50)
    kept = ensemble.kept(1)
    assert relation(kept, ensemble.line) is Relation.SAME
    assert relation(kept, ensemble.change(times=times)) is Relation.SUCCESSOR


def test_an_older_copy_is_found() -> None:
    ensemble = Ensemble()
    copy = ensemble.change(times=4)
    ensemble.change((1, 2))
    assert relation(ensemble.kept(1), copy) is Relation.OLDER


@pytest.mark.parametrize("writes", [1, 2, 3, 20])
def test_an_older_copy_is_found_however_often_it_was_written_to(writes: int) -> None:
    """K3: the first write to the copy has the version of the state that was lost, and no lower epoch."""
    ensemble = Ensemble()
    copy = ensemble.change(times=4)
    ensemble.change((1, 2))
    kept = ensemble.kept(1)
    ensemble.set_back_to(copy, ALL, "after the copy ")
    line = ensemble.change((3, 2), times=writes)
    assert relation(kept, line) in (Relation.OLDER, Relation.OTHER)
    assert not acts(kept, line)


def test_the_same_height_on_another_line_is_not_the_same() -> None:
    ensemble = Ensemble()
    copy = ensemble.change()
    ensemble.change()
    kept = ensemble.kept(2)
    ensemble.set_back_to(copy, ALL, "other ")
    line = ensemble.change()
    assert line.height == kept.height
    assert relation(kept, line) is Relation.OTHER


def test_a_copy_that_was_written_to_beyond_what_a_line_names_is_not_trusted() -> None:
    ensemble = Ensemble()
    copy = ensemble.change(times=4)
    ensemble.change()
    kept = ensemble.kept(1)
    ensemble.set_back_to(copy, ALL, "after the copy ")
    line = ensemble.change(times=RECENT * 5)
    assert relation(kept, line) is Relation.UNKNOWN
    assert not acts(kept, line)


@pytest.mark.parametrize("changes", [1, RECENT, RECENT * 40])
def test_a_board_that_was_off_for_any_number_of_changes_acts(changes: int) -> None:
    ensemble = Ensemble()
    ensemble.change(times=40)
    kept = ensemble.kept(3)
    ensemble.change(times=3)  # it was off, and the set still named it
    ensemble.change((1, 2))
    line = ensemble.change(times=changes)
    assert relation(kept, line) is Relation.SUCCESSOR


def test_a_board_that_followed_outside_of_the_set_acts() -> None:
    ensemble = Ensemble()
    ensemble.change((1, 2))
    ensemble.change(times=20)
    kept = ensemble.kept(3)
    assert not kept.named
    line = ensemble.change(times=RECENT * 3)
    assert kept.state_id not in set(line.ancestors())
    assert relation(kept, line) is Relation.SUCCESSOR


def test_a_board_that_came_back_and_left_again_acts() -> None:
    ensemble = Ensemble()
    ensemble.change((1, 2))
    ensemble.change(times=RECENT * 2)
    ensemble.change(ALL)
    kept = ensemble.kept(3)
    assert ensemble.line.departures == ()
    ensemble.change((1, 2))
    assert relation(kept, ensemble.change(times=RECENT * 2)) is Relation.SUCCESSOR


def test_two_boards_that_left_are_both_remembered() -> None:
    ensemble = Ensemble()
    first = ensemble.kept(3)
    ensemble.change((1, 2))
    second = ensemble.kept(2)
    ensemble.change((1,))
    line = ensemble.change(times=RECENT * 3)
    assert [relation(kept, line) for kept in (first, second)] == [Relation.SUCCESSOR] * 2


def test_a_state_without_a_line_counts_only_beside_an_older_release() -> None:
    kept = Ensemble().kept(1)
    found = relation(kept, UNMARKED_LINE)
    assert found is Relation.UNMARKED
    assert may_act(found, older_release=True)
    assert not may_act(found, older_release=False)


@pytest.mark.parametrize("found", [Relation.OLDER, Relation.OTHER, Relation.UNKNOWN])
def test_an_older_release_excuses_nothing_else(found: Relation) -> None:
    assert not may_act(found, older_release=True)


def test_a_state_that_was_written_off_hinders_no_more() -> None:
    ensemble = Ensemble()
    copy = ensemble.change(times=4)
    ensemble.change((1, 2))
    kept = ensemble.kept(1)
    ensemble.set_back_to(copy, ALL, "after the copy ")
    ensemble.line = with_accepted(ensemble.change(), (kept.state_id,))
    assert relation(kept, ensemble.line) is Relation.SUCCESSOR
    assert relation(kept, ensemble.change(times=RECENT * 2)) is Relation.SUCCESSOR
    assert not acts(KeptState("of board 2", kept.height, named=True), ensemble.line)


def test_a_line_is_bounded() -> None:
    ensemble = Ensemble()
    sets: Iterable[tuple[int, ...]] = ((1, 2), (1, 3), (2, 3), (1,), ALL, (3,))
    for _ in range(200):
        for members in sets:
            ensemble.change(members)
    assert len(ensemble.line.recent) == RECENT
    assert all(len(each.state_ids) <= AT_LEAVING for each in ensemble.line.departures)
    assert [each.broker for each in ensemble.line.departures] == [1, 2]


def test_after_a_rebuild_of_the_znodes_no_former_state_counts() -> None:
    kept = KeptState("s9", 9, named=True, epoch_base=1_000)
    rebuilt = Line("anew", 1)
    assert relation(kept, rebuilt, 1_000) is Relation.OLDER
    assert relation(kept, rebuilt, 2_000) is Relation.NEW
    assert relation(kept, UNMARKED_LINE, 2_000) is Relation.NEW


@pytest.mark.parametrize("line", [UNMARKED_LINE, Line("s9", 9), Line("s10", 10, ("s9",))])
def test_a_copy_from_before_a_rebuild_is_older_whatever_it_says(line: Line) -> None:
    kept = KeptState("s9", 9, named=True, epoch_base=1_000)
    assert relation(kept, line) is Relation.OLDER
