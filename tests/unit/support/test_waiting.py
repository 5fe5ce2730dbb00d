"""Waits: what they return, how long they last, and what a failed one says."""

from __future__ import annotations

import time

import pytest

from tests.support import waiting
from tests.support.waiting import Deadline, DeadlineError, until, wait_until


@pytest.fixture(autouse=True)
def _in_a_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "PATIENCE", 1.0)


def test_the_first_true_value_is_returned() -> None:
    values = iter([0, "", 7, 8])
    assert wait_until(lambda: next(values), 5, "a value", poll_s=0) == 7


def test_a_failed_wait_says_what_its_lambda_compared() -> None:
    ends, wanted = [3, 4], 10
    with pytest.raises(DeadlineError) as failed:
        wait_until(lambda: max(ends) > wanted and ends, 0.01, "the end moves on")
    said = str(failed.value)
    assert said == "the end moves on: not within 0.01 s; seen last: False (max(ends) = 4, wanted = 10)"


def test_defaults_of_a_lambda_and_several_on_one_line_are_told_apart() -> None:
    def first(condition, _other):  # type: ignore[no-untyped-def]
        return condition

    number, other = 5, 7
    with pytest.raises(DeadlineError, match=r"seen last: False \(at = 5, number \+ 1 = 6\)"):
        wait_until(first(lambda at=number: at == number + 1, lambda: other == 2), 0.01, "nothing")


def test_a_failed_wait_shows_what_it_was_told_to() -> None:
    with pytest.raises(DeadlineError, match=r"the state: not within 0\.01 s; seen last: busy$"):
        wait_until(lambda: None, 0.01, "the state", seen=lambda: "busy")


def test_what_cannot_be_shown_alone_hides_no_failure() -> None:
    with pytest.raises(DeadlineError, match=r"nothing: not within .* seen last: False"):
        wait_until(lambda: any(number > 3 for number in (1, 2)), 0.01, "nothing")
    with pytest.raises(DeadlineError, match="seen last: 0"):
        wait_until(int, 0.01, "a number")


def test_a_condition_is_looked_at_once_more_after_the_deadline() -> None:
    looks = []

    def slow() -> bool:
        looks.append(time.sleep(0.05))
        return len(looks) == 2

    assert wait_until(slow, 0.01, "the second look")


async def test_coroutines_wait_in_the_same_words() -> None:
    done = []
    with pytest.raises(DeadlineError, match=r"an item: not within 0\.01 s; seen last: False \(len\(done\) = 0\)"):
        await until(lambda: len(done) == 1, 0.01, "an item")
    done.append(1)
    await until(lambda: len(done) == 1, 0.01, "an item")


def test_a_busy_machine_is_given_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "PATIENCE", 4.0)
    deadline = Deadline(10)
    assert deadline.seconds == 40
    assert 30 < deadline.left_s <= 40
    assert not deadline.passed
    deadline.check("nothing", "nothing")
