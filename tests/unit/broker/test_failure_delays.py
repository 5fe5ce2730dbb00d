"""Repeated failures on a SASL listener: whose next log-in waits, and whose does not."""

from __future__ import annotations

import pytest

from edge_broker.protocol.api import METADATA, SASL_AUTHENTICATE
from edge_broker.protocol.messages.metadata import MetadataRequest
from edge_broker.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from edge_broker.security.failure_delays import FREE_FAILURES, STEP_MS_MAX, WAIT_MS_MAX, FailureDelays
from edge_broker.testing.client import Client
from edge_broker.testing.site import Site
from tests.support.scram import ScramClient, plain
from tests.unit.broker.test_logins import ALL, NAME, authenticate, handshake, secured

HOST, OTHER = "10.0.0.9", "10.0.0.10"
WRONG, RIGHT = "wrong", "secret"


def sent(site: Site, mechanism: str, user: str, password: str, host: str = HOST) -> Client:
    """A client that has sent its last message."""
    client = site.client(NAME)
    client.connection.session.host = host
    handshake(client, mechanism)
    if mechanism == "PLAIN":
        message = plain(user, password)
    else:
        scram = ScramClient(mechanism, user, password)
        message = scram.final(authenticate(client, scram.first).auth_bytes)
    client.send(SASL_AUTHENTICATE, SaslAuthenticateRequest(auth_bytes=message))
    site.run_until_idle()
    return client


def is_in(client: Client) -> bool:
    answers = client.answers()
    return bool(answers) and not answers[-1].error_code and not client.transport.closed


def guessed(site: Site, mechanism: str, user: str, times: int) -> None:
    """Failed log-ins, one after the other."""
    for _ in range(times):
        client = sent(site, mechanism, user, WRONG)
        while not client.transport.closed:
            site.loop.advance(100)
            site.run_until_idle()


@pytest.mark.parametrize("mechanism", ALL.split(","))
def test_after_many_failures_the_right_password_waits_and_gets_in(mechanism: str) -> None:
    """And from then on at once: a success ends the delays."""
    site = secured()
    guessed(site, mechanism, "alice", FREE_FAILURES + 4)
    client = sent(site, mechanism, "alice", RIGHT)
    assert not is_in(client)
    site.loop.advance(WAIT_MS_MAX)
    site.run_until_idle()
    assert is_in(client)
    assert is_in(sent(site, mechanism, "alice", RIGHT))


@pytest.mark.parametrize("mechanism", ALL.split(","))
def test_a_stranger_who_guesses_at_a_user_keeps_neither_its_owner_nor_others_out(mechanism: str) -> None:
    """The owner elsewhere, and another user at the stranger's own address."""
    site = secured(users=("alice", "bob"))
    guessed(site, mechanism, "alice", FREE_FAILURES + 6)
    waiting = sent(site, mechanism, "alice", WRONG)
    assert is_in(sent(site, mechanism, "alice", RIGHT, OTHER))
    assert is_in(sent(site, mechanism, "bob", RIGHT))
    assert not waiting.answers()


def test_delays_grow_alike_for_a_name_that_is_no_user() -> None:
    def steps(user: str) -> list[float]:
        site, found = secured(), []
        for _ in range(FREE_FAILURES + 8):
            begin = site.loop.time()
            guessed(site, "SCRAM-SHA-256", user, 1)
            found.append(round(site.loop.time() - begin, 1))
        return found

    assert steps("alice") == steps("nobody")
    assert steps("alice")[:FREE_FAILURES] == [0.1] * FREE_FAILURES
    assert max(steps("alice")) > STEP_MS_MAX / 2000


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
def test_closing_a_connection_that_waits_gives_no_guess(mechanism: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stranger who does not wait for his answers tries no more passwords than one who does."""
    site = secured()
    guessed(site, mechanism, "alice", FREE_FAILURES + 6)
    tried: list[str] = []
    real = FailureDelays.login_failed
    monkeypatch.setattr(FailureDelays, "login_failed", lambda *given: tried.append(given[1]) or real(*given))
    for _ in range(50):
        sent(site, mechanism, "alice", WRONG).transport.abort()
        site.run_until_idle()
    assert len(tried) <= 1
    last = sent(site, mechanism, "alice", WRONG)
    site.loop.advance(WAIT_MS_MAX)
    site.run_until_idle()
    assert last.transport.closed
    assert len(tried) <= 3


def test_one_too_many_is_closed_without_an_answer_and_may_come_again(capsys: pytest.CaptureFixture[str]) -> None:
    """Clients take a failed log-in for final, and try again after a lost connection."""
    site = secured()
    guessed(site, "SCRAM-SHA-256", "alice", FREE_FAILURES + 6)
    waiting = [sent(site, "SCRAM-SHA-256", "alice", RIGHT) for _ in range(5)]
    closed = [client for client in waiting if client.transport.closed]
    assert 1 <= len(closed) < 5
    assert not any(client.answers() for client in closed)
    said = capsys.readouterr().err
    assert "too many log-ins as one user from this address wait" in said
    assert "log-in-delayed user=alice" in said
    site.loop.advance(WAIT_MS_MAX)
    site.run_until_idle()
    assert all(is_in(client) for client in waiting if client not in closed)
    assert is_in(sent(site, "SCRAM-SHA-256", "alice", RIGHT))


def test_messages_that_try_no_password_are_not_counted() -> None:
    site = secured()
    for _ in range(FREE_FAILURES + 6):
        client = site.client(NAME)
        client.connection.session.host = HOST
        handshake(client, "PLAIN")
        client.send(SASL_AUTHENTICATE, SaslAuthenticateRequest(auth_bytes=b"no token"))
        site.run_until_idle()
    assert len(site.broker.log_ins.delays) == 0
    assert is_in(sent(site, "PLAIN", "alice", RIGHT))


def test_who_is_in_is_served_while_others_wait() -> None:
    site = secured()
    inside = sent(site, "SCRAM-SHA-256", "alice", RIGHT)
    assert is_in(inside)
    guessed(site, "SCRAM-SHA-256", "alice", FREE_FAILURES + 6)
    sent(site, "SCRAM-SHA-256", "alice", WRONG)
    assert inside.ask(METADATA, MetadataRequest(topics=None)).brokers
