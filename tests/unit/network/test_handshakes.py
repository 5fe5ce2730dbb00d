"""Handshakes are bounded in number and time, and those of one address cost another's none."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, cast

import pytest

from edge_broker.network.tls.handshakes import HANDSHAKE_S_MAX, HANDSHAKES_MAX, KEPT_BYTES_MAX, SWEEP_S, Handshakes
from edge_broker.network.tls.tls_transport import ClientIdentity, HandshakeRefused, Step, TlsTransport
from edge_broker.testing.loop import Loop
from edge_broker.testing.worker import HandWorker


class Transport:
    def __init__(self, host: str) -> None:
        self.address: tuple[Any, ...] = (host, 4711) if host else ()
        self.aborted = False
        self.came_to: Step | str | None = None

    def abort(self) -> None:
        self.aborted = True

    def turn(self) -> None:
        pass

    def step_completed(self, step: Step) -> None:
        self.came_to = step

    def refuse(self, why: str) -> None:
        self.came_to = why


class Site:
    def __init__(self) -> None:
        self.loop = Loop()
        self.worker = HandWorker(self.loop, "handshakes")
        self.bound = ""
        self.handshakes = Handshakes(
            cast(Any, self.loop), cast(Any, self.worker), lambda _: self.bound, lambda: False, self.loop.time
        )

    def begin(self, host: str = "10.0.0.7") -> Transport:
        transport = Transport(host)
        assert self.handshakes.begin(cast(TlsTransport, transport)) is not bool(self.bound)
        return transport

    def step(self, transport: Transport, work: Callable[[], Step]) -> Step | str | None:
        self.handshakes.step(cast(TlsTransport, transport), work)
        self.worker.step()
        self.loop.run()
        return transport.came_to


def test_one_more_than_the_bound_ends_the_oldest_of_who_has_most() -> None:
    site = Site()
    honest = site.begin("10.0.0.8")
    many = deque(site.begin() for _ in range(HANDSHAKES_MAX - 1))
    assert len(site.handshakes) == HANDSHAKES_MAX
    for _ in range(3):
        site.begin()
        assert many.popleft().aborted
    assert not many[0].aborted
    assert not honest.aborted
    assert len(site.handshakes) == HANDSHAKES_MAX
    assert (site.handshakes.complete, site.handshakes.failed) == (0, 3)


def test_what_takes_too_long_is_ended(capsys: pytest.CaptureFixture[str]) -> None:
    site = Site()
    slow = site.begin()
    site.loop.advance(int((HANDSHAKE_S_MAX - SWEEP_S) * 1000))
    later = site.begin("")
    assert not slow.aborted
    site.loop.advance(int(2 * SWEEP_S * 1000))
    assert slow.aborted
    assert not later.aborted
    assert "was not complete after 10 s" in capsys.readouterr().err
    site.loop.advance(int((HANDSHAKE_S_MAX + SWEEP_S) * 1000))
    assert later.aborted
    assert len(site.handshakes) == 0


def test_a_step_is_made_in_the_worker_and_its_end_told(capsys: pytest.CaptureFixture[str]) -> None:
    site = Site()
    transport = site.begin()
    assert site.step(transport, lambda: Step(complete=True, shown=ClientIdentity("User:x"))) == (
        True,
        ClientIdentity("User:x"),
    )

    def refused() -> Step:
        raise HandshakeRefused("no")

    def broken() -> Step:
        raise ZeroDivisionError("a bug")

    assert site.step(transport, refused) == "no"
    assert site.step(transport, broken) == "a bug"
    site.handshakes.end(cast(TlsTransport, transport))
    site.handshakes.end(cast(TlsTransport, transport), "said again")
    assert (site.handshakes.complete, site.handshakes.failed) == (1, 0)
    assert "handshake_step_failed" in capsys.readouterr().err


def test_a_client_too_many_is_refused_before_anything_is_computed(capsys: pytest.CaptureFixture[str]) -> None:
    site = Site()
    site.bound = "max.connections=5"
    site.begin()
    assert len(site.handshakes) == 0
    assert "connection_refused" in capsys.readouterr().err


def test_a_stop_ends_all() -> None:
    site = Site()
    transports = [site.begin() for _ in range(3)]
    site.handshakes.refuse()
    assert all(transport.aborted for transport in transports)
    assert (len(site.handshakes), site.handshakes.failed) == (0, 0)


def test_much_ciphertext_that_is_kept_counts_as_short_memory() -> None:
    handshakes = Site().handshakes
    assert not handshakes.short
    handshakes.kept_bytes = KEPT_BYTES_MAX + 1
    assert handshakes.short


def test_it_is_crowded_while_a_connection_waits_for_its_turn() -> None:
    site = Site()
    site.handshakes.due(cast(TlsTransport, site.begin()))
    assert site.handshakes.is_crowded
    site.loop.run()
    assert not site.handshakes.is_crowded
