"""Which routes are named in /health, and how often a refusal is logged."""

from __future__ import annotations

from gateway.routing.route_status import (
    LOG_EVERY_S,
    OVERLOOKED_SHOWN_S,
    QUIET_S,
    REFUSED_MIN,
    OverlookedTimes,
    RouteStatus,
)


def refuse(routes: RouteStatus, times: int, now_s: float, route: str = "a/#") -> None:
    for _ in range(times):
        routes.record_refused(route, "not_json", now_s)


def test_a_route_that_refuses_everything_is_named_until_it_takes_one() -> None:
    routes = RouteStatus()
    refuse(routes, REFUSED_MIN - 1, 1.0)
    assert routes.problem(1.0) is None
    refuse(routes, 1, 1.0)
    assert routes.problem(1.0) == "a/#: none of the last 5 messages can be used (not_json)"
    routes.record_accepted("b", 1.0)
    assert routes.problem(1e9) is not None
    routes.record_accepted("a/#", 1e9)
    assert routes.problem(1e9) is None


def test_one_bad_device_among_good_ones_is_not_a_bad_route() -> None:
    routes = RouteStatus()
    for second in range(0, 300, int(QUIET_S) // 2):
        routes.record_accepted("a/#", second)
        refuse(routes, 100, second)
        assert routes.problem(second + QUIET_S / 2) is None
    assert "none of the last 100 messages" in str(routes.problem(second + QUIET_S))


def test_messages_without_a_route_are_not_a_route() -> None:
    routes = RouteStatus()
    refuse(routes, 100, 1.0, route="")
    assert routes.problem(1.0) is None


def test_a_flood_is_logged_once_in_a_while_for_each_reason_and_counted() -> None:
    routes = RouteStatus()
    told = [routes.record_refused("a", reason, 1.0) for _ in range(50) for reason in ("x", "y")]
    assert told == [1, 1] + [None] * 98
    assert routes.record_refused("a", "x", 1.0 + LOG_EVERY_S) == 50
    assert routes.record_refused("b", "x", 1.0) == 1


def test_an_overlooked_time_is_told_once_for_each_route_and_noted_while_it_goes_on() -> None:
    times = OverlookedTimes()
    assert times.note(0.0) is None
    said = times.note_reading("a/#", "time_ms", "ts", 0.0)
    assert said == (
        'a/#: readings have no time_ms but "ts", so the time of receipt counts: set timestamp_field to it, or have the '
        "devices rename it"
    )
    assert times.note_reading("a/#", "time_ms", "at", 1.0) is None
    assert times.note_reading("b", "t", "x" * 1000, 1.0) is not None
    assert len(str(times.note(1.0))) < 400
    assert '"at"' in str(times.note(OVERLOOKED_SHOWN_S))
    assert times.note(OVERLOOKED_SHOWN_S + 1.0) is None
