"""How long a session is believed to live."""

from __future__ import annotations

from edge_broker.cluster.session_lease import Lease


def test_it_lasts_two_thirds_of_the_timeout_from_what_was_sent() -> None:
    lease = Lease()
    lease.begin(6000)
    assert not lease.holds(0), "a session that was told of proves nothing yet"
    lease.session_proved(1000)
    assert lease.holds(4999)
    assert not lease.holds(5000)
    lease.session_proved(500)
    assert lease.holds(4999), "an older proof takes nothing back"
    lease.end()
    assert not lease.holds(1000)


def test_the_session_may_live_for_all_of_the_timeout() -> None:
    lease = Lease()
    lease.begin(6000)
    assert not lease.may_live(0)
    lease.session_proved(1000)
    assert lease.may_live(6999)
    assert not lease.may_live(7000)
    lease.end()
    assert not lease.may_live(1000)
