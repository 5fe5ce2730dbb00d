"""Whom the deny list denies: connections end, also idle ones, and log-ins fail as with a wrong password."""

import pytest

from edge_broker.network.tls.tls_transport import ClientIdentity
from edge_broker.protocol.api import METADATA
from edge_broker.protocol.messages.metadata import MetadataRequest
from edge_broker.security.certificates import CertificateId
from edge_broker.security.deny_list import parse_deny_list
from tests.support.scram import ScramClient, plain
from tests.unit.broker.test_logins import NAME, authenticate, failed, handshake, logged_in, secured
from tests.unit.security.names import encoded_name

PUMP = ClientIdentity(
    "User:CN=pump-7", (CertificateId(0x5F, encoded_name("our CA")), CertificateId(0x01, encoded_name("root")))
)
OTHER = ClientIdentity(
    "User:CN=pump-8", (CertificateId(0x60, encoded_name("our CA")), CertificateId(0x01, encoded_name("top")))
)


def deny(site, text):
    """Have a list hold; how many connections it has ended."""
    site.broker.log_ins.deny_list = parse_deny_list(text.encode())
    ended = site.dispatcher.logins.end_denied()
    site.dispatcher.apply()
    site.run_until_idle()
    return ended


def by_certificate(site, monkeypatch, shown, listener=None):
    """A client that has shown a certificate."""
    with monkeypatch.context() as patch:
        kind = type(site.client().transport)
        plain_info = kind.get_extra_info
        patch.setattr(kind, "get_extra_info", lambda self, name: shown if name == "shown" else plain_info(self, name))
        client = site.client(*([listener] if listener else []))
    own = client.transport
    own.get_extra_info = lambda name: shown if name == "shown" else plain_info(own, name)
    return client


def test_the_idle_connections_of_a_denied_user_end_and_no_others(capsys):
    site = secured(users=("alice", "bob"))
    alice, _ = logged_in(site)
    second, _ = logged_in(site, "PLAIN")
    bob, _ = logged_in(site, user="bob")
    stranger = site.client(NAME)
    assert deny(site, "User:alice\n") == 2
    assert (alice.transport.closed, second.transport.closed) == (True, True)
    assert (bob.transport.closed, stranger.transport.closed) == (False, False)
    assert bob.ask(METADATA, MetadataRequest(topics=None)).brokers
    log = capsys.readouterr().err
    assert log.count("connection_denied principal=User:alice") == 2
    assert 'reason="line 1 of edge.deny.list.file denies User:alice"' in log


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_denied_user_does_not_get_in_and_hears_what_a_wrong_password_hears(mechanism, capsys):
    site = secured()
    deny(site, "User:alice\n")
    told = set()
    for password in ("secret", "wrong"):
        client = site.client(NAME)
        handshake(client, mechanism)
        if mechanism == "PLAIN":
            message = plain("alice", password)
        else:
            scram = ScramClient(mechanism, "alice", password)
            message = scram.final(authenticate(client, scram.first).auth_bytes)
        told.add(failed(site, client, message))
    assert len(told) == 1
    log = capsys.readouterr().err
    assert "log-in-failed user=alice" in log
    assert 'reason="line 1 of edge.deny.list.file denies User:alice"' in log
    deny(site, "# nobody\n")
    logged_in(site)


def test_who_is_denied_within_its_log_in_does_not_get_in():
    site = secured()
    client = site.client(NAME)
    handshake(client, "SCRAM-SHA-256")
    scram = ScramClient("SCRAM-SHA-256", "alice", "secret")
    message = scram.final(authenticate(client, scram.first).auth_bytes)
    assert deny(site, "User:alice\n") == 0, "nobody has logged in yet"
    failed(site, client, message)


@pytest.mark.parametrize(
    "line", ["serial=5F", "serial=5f issuer=CN=our CA", "serial=01 issuer=CN=root", "User:CN=pump-7"]
)
def test_connections_of_a_denied_certificate_end_by_serial_ca_or_principal(monkeypatch, line):
    site = secured()
    pump, other = (by_certificate(site, monkeypatch, shown) for shown in (PUMP, OTHER))
    assert pump.connection.session.principal == "User:CN=pump-7"
    assert deny(site, f"{line}\n") == 1
    assert (pump.transport.closed, other.transport.closed) == (True, False)
    late = by_certificate(site, monkeypatch, PUMP)
    assert late.transport.closed, "its handshake was complete before the list held"
    assert late.connection not in site.server.connections


def test_who_logs_in_behind_a_denied_certificate_is_ended_too(monkeypatch):
    site = secured()
    pump = by_certificate(site, monkeypatch, PUMP, NAME)
    logged_in(site, client=pump)
    assert pump.connection.session.principal == "User:alice"
    assert deny(site, "User:CN=pump-7\n") == 1
    assert pump.transport.closed
