"""Conditions that requests wait for: each is checked until it is met or expires, and never after."""

from __future__ import annotations

from edge_broker.broker.cluster.change_waits import ChangeWaits


class Clock:
    """Milliseconds, set by the test."""

    def __init__(self) -> None:
        self.ms = 100.0

    def __call__(self) -> float:
        return self.ms


def never() -> bool:
    return False


def test_a_condition_that_is_met_is_not_checked_again_and_does_not_expire() -> None:
    waits, results, checked = ChangeWaits(Clock()), [False, True], list[bool]()
    expired: list[str] = []

    def is_met() -> bool:
        checked.append(results[len(checked)])
        return checked[-1]

    waits.until(is_met, 50, lambda: expired.append("condition"))
    for _ in range(3):
        waits.check()
    waits.expire(1_000)
    assert (checked, expired) == ([False, True], [])


def test_a_wait_expires_once_at_its_own_time() -> None:
    clock = Clock()
    waits, expired = ChangeWaits(clock), list[int]()
    for wait_ms in (50, 80):
        waits.until(never, wait_ms, lambda wait_ms=wait_ms: expired.append(wait_ms))  # type: ignore[misc]
    waits.expire(149)
    assert expired == []
    waits.expire(150)
    assert expired == [50]
    waits.expire(200)
    waits.expire(300)
    assert expired == [50, 80]


def test_a_condition_may_add_another_which_waits_for_the_next_change() -> None:
    waits, checked = ChangeWaits(Clock()), list[str]()

    def second() -> bool:
        checked.append("second")
        return True

    def first() -> bool:
        checked.append("first")
        waits.until(second, 50, never)
        return True

    waits.until(first, 50, never)
    waits.check()
    assert checked == ["first"]
    waits.check()
    assert checked == ["first", "second"]


def test_a_wait_that_expires_may_begin_another() -> None:
    waits, expired = ChangeWaits(Clock()), list[str]()

    def again() -> None:
        expired.append("first")
        waits.until(never, 50, lambda: expired.append("second"))

    waits.until(never, 0, again)
    waits.expire(100)
    assert expired == ["first"]
    waits.expire(150)
    assert expired == ["first", "second"]
