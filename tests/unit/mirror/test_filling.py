"""What the kernel is told of a connection that fills a link by BBR, second by second."""

from __future__ import annotations

from itertools import pairwise

import pytest

from kafka_wire.connection.tcp_connect import LinkFill
from mirror.link.bbr_pacing import (
    ANEW_S,
    LOOK_S,
    RATE_SHARE_MIN,
    SPARED,
    WAITS_S,
    Filling,
    OtherTraffic,
    PacingOptions,
    rate_max,
)

SHORTEST_S = 0.3
BBR_LOOKS_S = 10


def found(bytes_s: int = 50_000, waits_s: float = 0.0, *, begins: bool = False) -> LinkFill:
    return LinkFill(bytes_s, waits_s, SHORTEST_S, begins)


@pytest.mark.parametrize(
    ("waits_s", "bytes_s"),
    [(0.0, None), (WAITS_S, None), (0.1, 95_000), (0.2, 90_000), (1.0, 100_000 * RATE_SHARE_MIN)],
)
def test_a_connection_sends_the_slower_the_longer_packets_wait_on_the_link(
    waits_s: float, bytes_s: float | None
) -> None:
    assert rate_max(found(100_000, waits_s)) == bytes_s


@pytest.mark.parametrize("too_much", [1.02, 1.05, 1.1])
@pytest.mark.parametrize("begins_s", [0.0, 0.8])
def test_what_is_found_too_much_waits_on_the_link_for_a_moment_only(too_much: float, begins_s: float) -> None:
    """A link that carries 1, its rate found too high; what is seen waited a moment ago."""
    waits, shares = [begins_s, begins_s], []
    for _ in range(60):
        bytes_s = int(too_much * 1000)
        share = (rate_max(found(bytes_s, waits[-2])) or bytes_s) / 1000
        waits.append(max(0.0, waits[-1] + share - 1))
        shares.append(min(share, 1.0) if waits[-1] == 0 else 1.0)
    assert max(waits[20:]) <= 0.3
    assert sum(shares[20:]) / 40 >= 0.97


def ticks(
    filling: Filling,
    seconds: range,
    filled: LinkFill | None,
    alone: float | None = None,
    beside: OtherTraffic = OtherTraffic.BACKLOGS,
) -> list[PacingOptions | None]:
    return [filling.tick(float(second), filled, beside, alone) for second in seconds]


def test_bbr_looks_once_a_minute_in_place_of_each_ten_seconds() -> None:
    """It looks ten seconds after it began, or has looked, which itself takes a moment."""
    filling, began, looks = Filling(0.0), 0, []
    for second in range(300):
        (told,) = ticks(filling, range(second, second + 1), found())
        if told is not None and told.begins_anew:
            assert told.rate_max == 50_000
            began = second
        if second - began > BBR_LOOKS_S:
            looks.append(second)
            began = second
    between = [later - sooner for sooner, later in pairwise(looks)]
    assert len(looks) == 5
    assert all(SPARED * ANEW_S <= each <= 70 for each in between)


def test_a_link_that_may_have_become_longer_is_looked_at() -> None:
    """The shortest round trip is another: all that is sent seems to wait."""
    told = ticks(Filling(0.0), range(40), found(waits_s=2 * SHORTEST_S + 0.1))
    assert not any(one is not None and one.begins_anew for one in told)


def test_what_has_just_looked_is_let_be_until_the_next_is_due() -> None:
    filling = Filling(0.0)
    ticks(filling, range(int(LOOK_S) + 1), found(waits_s=1.0))
    told = ticks(filling, range(int(LOOK_S) + 1, int(LOOK_S + ANEW_S) + 1), found())
    assert [one is not None and one.begins_anew for one in told] == [False] * (int(ANEW_S) - 1) + [True]


def test_while_it_looks_for_the_rate_it_is_told_nothing() -> None:
    assert ticks(Filling(0.0), range(3), found(waits_s=SHORTEST_S / 2, begins=True)) == [None] * 3
    too_much = found(waits_s=0.2, begins=True)
    assert ticks(Filling(0.0), range(1), too_much) == [PacingOptions(rate_max(too_much))]


def test_without_a_backlog_it_sends_as_it_likes_and_the_time_does_not_count() -> None:
    filling = Filling(0.0)
    assert ticks(filling, range(30), None) == [PacingOptions(None)] * 30
    assert ticks(filling, range(30, 30 + int(ANEW_S) - 1), found()) == [PacingOptions(None)] * (int(ANEW_S) - 1)


@pytest.mark.parametrize(
    ("beside", "told"), [(OtherTraffic.BACKLOGS, 45_000), (OtherTraffic.TRICKLES, 45_000), (OtherTraffic.NOTHING, None)]
)
def test_it_leaves_little_waiting_where_something_goes_beside_it(beside: OtherTraffic, told: int | None) -> None:
    assert ticks(Filling(0.0), range(1), found(waits_s=0.2), beside=beside) == [PacingOptions(told)]


@pytest.mark.parametrize(
    ("beside", "told"),
    [(OtherTraffic.BACKLOGS, None), (OtherTraffic.TRICKLES, PacingOptions(47_500)), (OtherTraffic.NOTHING, None)],
)
def test_beside_what_trickles_it_is_bounded_from_its_beginning_on(
    beside: OtherTraffic, told: PacingOptions | None
) -> None:
    assert ticks(Filling(0.0), range(1), found(waits_s=0.1, begins=True), beside=beside) == [told]


def test_what_bounds_a_beginning_stays_until_the_rate_is_found() -> None:
    for beside in OtherTraffic:
        assert ticks(Filling(0.0), range(1), found(waits_s=WAITS_S, begins=True), beside=beside) == [None]


@pytest.mark.parametrize(("beside", "bytes_s"), [(OtherTraffic.BACKLOGS, 50_000), (OtherTraffic.TRICKLES, 47_500)])
def test_begun_anew_beside_what_trickles_nothing_more_waits(beside: OtherTraffic, bytes_s: int) -> None:
    told = ticks(Filling(0.0), range(int(ANEW_S) + 1), found(waits_s=0.1), beside=beside)
    assert told[-1] == PacingOptions(bytes_s, begins_anew=True)


def test_who_is_alone_takes_the_whole_link_at_once() -> None:
    filling = Filling(0.0)
    assert ticks(filling, range(2), found(50_000), alone=None) == [PacingOptions(None)] * 2
    assert ticks(filling, range(2, 4), found(50_000), alone=100_000) == [
        PacingOptions(110_000, begins_anew=True),
        PacingOptions(None),
    ]
    assert ticks(filling, range(4, 5), found(80_000), alone=None) == [PacingOptions(None)]
    assert ticks(filling, range(5, 6), found(80_000), alone=100_000) == [PacingOptions(None)]


def test_who_is_alone_while_it_looks_for_the_rate_takes_it_thereafter() -> None:
    filling = Filling(0.0)
    assert ticks(filling, range(2), found(10_000, begins=True), alone=100_000) == [None, None]
    assert ticks(filling, range(2, 3), found(10_000), alone=100_000) == [PacingOptions(110_000, begins_anew=True)]
