"""Log-ins on a SASL listener: who gets in and who does not, when a connection ends, and what the log says of it."""

import base64
import random
from collections import Counter

import pytest

from edge_broker.broker.outcomes import Reply
from edge_broker.configuration.config import Endpoint
from edge_broker.configuration.listeners import Listener
from edge_broker.errors import ErrorCode
from edge_broker.network.background.metrics import metrics_text
from edge_broker.network.connection.connection import LOGIN_BYTES_MAX
from edge_broker.network.dispatch.unauthenticated_connections import LOGIN_S
from edge_broker.protocol.api import API_VERSIONS, METADATA, SASL_AUTHENTICATE, SASL_HANDSHAKE
from edge_broker.protocol.messages.api_versions import ApiVersionsRequest
from edge_broker.protocol.messages.metadata import MetadataRequest
from edge_broker.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from edge_broker.protocol.messages.sasl_handshake import SaslHandshakeRequest
from edge_broker.security import scram
from edge_broker.security.false_users import KAFKA_SALT, FalseUsers, salt_kind
from edge_broker.security.scram import MECHANISMS, new_credential
from edge_broker.storage.metadata.security_store import SecurityStore
from edge_broker.testing.site import Site
from tests.support.scram import ScramClient, plain

NAME = "LOGIN"
ALL = "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512"
DELAY_MS = 100
NAMED = ApiVersionsRequest(client_software_name="test", client_software_version="1")
CREDENTIALS = {name: new_credential(one, "secret", name.encode(), 4096) for name, one in MECHANISMS.items()}


def edited(site, edit):
    """A change of users, once it holds."""
    site.dispatcher.start(lambda: site.broker.security.change(edit, lambda: Reply(None), lambda _: Reply(None)))
    site.run_until_idle()


def replaced(site, credentials):
    """The change of alice's credentials, to be carried out."""
    edit = lambda state: state.with_user("alice", credentials)  # noqa: E731
    return site.broker.security.change(edit, lambda: Reply(None), lambda _: Reply(None))


def secured(settings=None, users=("alice",)):
    site = Site({"sasl.enabled.mechanisms": ALL, **(settings or {})})
    endpoint = Endpoint("edge.local", 9093)
    site.broker.listeners[NAME] = Listener(NAME, "SASL_PLAINTEXT", endpoint, endpoint)
    for user in users:
        edited(site, lambda state, user=user: state.with_user(user, CREDENTIALS))
    return site


def handshake(client, mechanism, version=1):
    return client.ask(SASL_HANDSHAKE, SaslHandshakeRequest(mechanism=mechanism), version)


def authenticate(client, data):
    return client.ask(SASL_AUTHENTICATE, SaslAuthenticateRequest(auth_bytes=data))


def logged_in(site, mechanism="SCRAM-SHA-256", user="alice", password="secret", client=None):
    """A client that has logged in, and the answer to its last message."""
    client = client or site.client(NAME)
    assert handshake(client, mechanism).error_code == ErrorCode.NONE
    if mechanism == "PLAIN":
        return client, authenticate(client, plain(user, password))
    scram = ScramClient(mechanism, user, password)
    answer = authenticate(client, scram.final(authenticate(client, scram.first).auth_bytes))
    assert scram.verifies(answer.auth_bytes)
    return client, answer


def failed(site, client, data):
    """The answer to a log-in that fails: late, and then the connection is closed."""
    client.send(SASL_AUTHENTICATE, SaslAuthenticateRequest(auth_bytes=data))
    site.run_until_idle()
    site.loop.advance(DELAY_MS - 1)
    assert client.answers() == []
    assert not client.transport.closed
    site.loop.advance(1)
    answer = client.answer()
    assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert client.transport.closed
    return answer.error_message


@pytest.mark.parametrize("mechanism", ALL.split(","))
def test_whoever_knows_the_password_is_that_user_from_then_on(mechanism, capsys):
    site = secured()
    client, answer = logged_in(site, mechanism)
    assert (answer.error_code, answer.error_message, answer.session_lifetime_ms) == (0, "", 0)
    assert client.connection.session.principal == "User:alice"
    assert client.ask(METADATA, MetadataRequest(topics=None)).brokers
    assert site.broker.log_ins.succeeded == {(NAME, mechanism): 1}
    assert "secret" not in capsys.readouterr().err


@pytest.mark.parametrize("mechanism", ALL.split(","))
@pytest.mark.parametrize(("user", "password"), [("alice", "wrong"), ("mallory", "secret")])
def test_a_wrong_password_and_an_unknown_user_are_answered_alike_and_late(mechanism, user, password, capsys):
    site = secured()
    client = site.client(NAME)
    handshake(client, mechanism)
    if mechanism == "PLAIN":
        told, message = "Authentication failed: Invalid username or password", plain(user, password)
    else:
        scram = ScramClient(mechanism, user, password)
        message = scram.final(authenticate(client, scram.first).auth_bytes)
        told = f"Authentication failed during authentication due to invalid credentials with SASL mechanism {mechanism}"
    assert failed(site, client, message) == told
    assert site.broker.log_ins.failed == {(NAME, mechanism): 1}
    assert f'failed_authentication_total{{listener="{NAME}",mechanism="{mechanism}"}} 1' in metrics_text(
        site.broker, site.dispatcher, site.server, 0
    )
    log = capsys.readouterr().err
    assert "log-in-failed" in log
    assert user in log
    assert password not in log.replace("wrong password", "")


def test_a_delay_holds_nobody_else():
    site = secured()
    slow, quick = site.client(NAME), site.client(NAME)
    handshake(slow, "PLAIN")
    slow.send(SASL_AUTHENTICATE, SaslAuthenticateRequest(auth_bytes=plain("alice", "wrong")))
    site.run_until_idle()
    logged_in(site, client=quick)
    assert not slow.transport.closed


def test_the_delay_counts_from_the_message_whatever_was_wrong():
    site = secured()
    client = site.client(NAME)
    handshake(client, "PLAIN")
    client.send(SASL_AUTHENTICATE, SaslAuthenticateRequest(auth_bytes=plain("alice", "wrong")))
    site.loop.advance(DELAY_MS - 10)  # the worker takes its time
    site.run_until_idle()
    site.loop.advance(10)
    assert client.answer().error_code == ErrorCode.SASL_AUTHENTICATION_FAILED


def test_a_salt_of_a_user_that_is_not_there_stays_the_same_after_a_start_too():
    def salts(site):
        client = site.client(NAME)
        handshake(client, "SCRAM-SHA-512")
        answer = authenticate(client, ScramClient("SCRAM-SHA-512", "nobody", "x").first).auth_bytes
        return answer.split(b",")[1:]

    site = secured()
    first = salts(site)
    assert salts(site) == first
    again = site.reopen("stop")
    again.broker.listeners.update(site.broker.listeners)
    assert salts(again) == first


@pytest.mark.parametrize("before", [[], [(API_VERSIONS, NAMED)]], ids=["at once", "behind ApiVersions"])
def test_nothing_else_is_served_before_the_log_in(before):
    site = secured()
    client = site.client(NAME)
    for key, request in before:
        assert client.ask(key, request).api_keys
    client.send(METADATA, MetadataRequest(topics=None))
    site.run_until_idle()
    assert client.transport.closed
    assert client.answers() == []


def test_nothing_but_tokens_is_served_within_the_log_in():
    site = secured()
    client = site.client(NAME)
    handshake(client, "SCRAM-SHA-256")
    client.send(METADATA, MetadataRequest(topics=None))
    assert client.transport.closed


def test_a_handshake_within_the_log_in_is_answered_and_ends_it():
    site = secured()
    client = site.client(NAME)
    handshake(client, "SCRAM-SHA-256")
    authenticate(client, ScramClient("SCRAM-SHA-256", "alice", "secret").first)
    assert handshake(client, "SCRAM-SHA-256").error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert client.transport.closed


def test_what_is_sent_behind_a_token_waits_for_the_log_in():
    site = secured()
    client = site.client(NAME)
    handshake(client, "PLAIN")
    token = client.frame(SASL_AUTHENTICATE, SaslAuthenticateRequest(auth_bytes=plain("alice", "secret")))
    client.feed(token + client.frame(METADATA, MetadataRequest(topics=None)))
    site.run_until_idle()
    answers = client.answers()
    assert [answer.__class__.__name__ for answer in answers] == ["SaslAuthenticateResponse", "MetadataResponse"]


def test_what_is_sent_behind_a_wrong_token_is_never_served():
    site = secured()
    client = site.client(NAME)
    handshake(client, "PLAIN")
    token = client.frame(SASL_AUTHENTICATE, SaslAuthenticateRequest(auth_bytes=plain("alice", "wrong")))
    client.feed(token + client.frame(METADATA, MetadataRequest(topics=None)))
    site.run_until_idle()
    site.loop.advance(DELAY_MS * 2)
    assert client.answer().error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert client.transport.closed


def test_one_password_is_tried_at_a_time_however_large_the_requests_are():
    """A long client id makes a request one that is worked on in steps."""
    site = secured()
    client = site.client(NAME)
    handshake(client, "PLAIN")
    for password in ("wrong", "secret"):
        token = client.frame(SASL_AUTHENTICATE, SaslAuthenticateRequest(auth_bytes=plain("alice", password)))
        long = token[4:12] + b"\x7f\xff" + b"x" * 0x7FFF + token[18:]  # instead of the client id "test"
        client.feed(len(long).to_bytes(4, "big") + long)
    site.run_until_idle()
    assert client.connection.session.principal == "User:ANONYMOUS"
    assert (site.broker.log_ins.failed, site.broker.log_ins.succeeded) == ({(NAME, "PLAIN"): 1}, {})
    site.loop.advance(DELAY_MS)
    assert client.answer().error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert client.transport.closed


def test_a_mechanism_that_is_not_enabled_is_told_which_are():
    site = secured({f"listener.name.{NAME.lower()}.sasl.enabled.mechanisms": "SCRAM-SHA-512"})
    client = site.client(NAME)
    answer = handshake(client, "PLAIN")
    assert answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert answer.mechanisms == ["SCRAM-SHA-512"]
    assert client.transport.closed


def test_tokens_without_a_request_around_them_are_refused():
    site = secured()
    client = site.client(NAME)
    assert handshake(client, "PLAIN", version=0).mechanisms == ALL.split(",")
    client.feed(b"\0\0\0\x0d" + plain("alice", "secret"))
    assert client.transport.closed


@pytest.mark.parametrize("user", ["alice", "mallory"])
def test_a_false_salt_is_made_whoever_the_user_is(user, monkeypatch):
    """Else an answer that comes sooner would tell that he is there."""
    made = []
    real = FalseUsers.credential
    monkeypatch.setattr(FalseUsers, "credential", lambda *given: made.append(given) or real(*given))
    site = secured()
    client = site.client(NAME)
    handshake(client, "SCRAM-SHA-256")
    authenticate(client, ScramClient("SCRAM-SHA-256", user, "secret").first)
    assert len(made) == 1


def test_a_listener_without_log_ins_answers_as_kafka():
    client = Site().client()
    assert handshake(client, "PLAIN").error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert authenticate(client, b"").error_code == ErrorCode.ILLEGAL_SASL_STATE


def test_whoever_is_in_may_not_log_in_again_unless_sessions_end():
    site = secured()
    client, _ = logged_in(site)
    assert handshake(client, "SCRAM-SHA-256").error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert authenticate(client, b"").error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert client.ask(METADATA, MetadataRequest(topics=None)).brokers


def with_iterations(name, iterations):
    return {name: new_credential(MECHANISMS[name], "secret", b"salt", iterations)}


ONLY_256, ONLY_512 = with_iterations("SCRAM-SHA-256", 8192), with_iterations("SCRAM-SHA-512", 4096)


@pytest.mark.parametrize(
    ("held", "work"),
    [
        ({}, {"sha256": 4096}),
        ({"alice": CREDENTIALS}, {"sha256": 4096}),
        ({"alice": CREDENTIALS, "bob": ONLY_256}, {"sha256": 8192}),
        ({"alice": CREDENTIALS, "bob": ONLY_512}, {"sha512": 4096}),
        ({"alice": CREDENTIALS, "bob": ONLY_512, "carol": ONLY_256}, {"sha256": 8192, "sha512": 4096}),
    ],
)
def test_a_password_is_hashed_as_often_whoever_the_user_is(held, work, monkeypatch):
    site = secured(users=())
    for user, credentials in held.items():
        edited(site, lambda state, user=user, held=credentials: state.with_user(user, held))
    hashed = Counter()
    real = scram.pbkdf2_hmac

    def counted(name, password, salt, iterations):
        hashed[name] += iterations
        return real(name, password, salt, iterations)

    monkeypatch.setattr(scram, "pbkdf2_hmac", counted)
    for user in (*held, "mallory"):
        for password in ("secret", "wrong"):
            client = site.client(NAME)
            handshake(client, "PLAIN")
            client.send(SASL_AUTHENTICATE, SaslAuthenticateRequest(auth_bytes=plain(user, password)))
            site.run_until_idle()
            assert hashed == work, user
            hashed.clear()
            site.loop.advance(DELAY_MS)
            assert (client.answer().error_code == ErrorCode.NONE) is (password == "secret" and user in held)


REAUTH = {"connections.max.reauth.ms": 60_000}


def test_a_session_ends_unless_the_client_logs_in_again():
    site = secured(REAUTH)
    client, answer = logged_in(site)
    assert answer.session_lifetime_ms == 60_000
    site.loop.advance(59_000)
    _, answer = logged_in(site, client=client)
    assert answer.session_lifetime_ms == 60_000
    site.loop.advance(59_000)
    assert client.ask(METADATA, MetadataRequest(topics=None)).brokers
    site.loop.advance(1_001)
    client.send(METADATA, MetadataRequest(topics=None))
    assert client.transport.closed
    assert site.broker.log_ins.expired == 1


def test_sessions_of_a_listener_and_of_a_mechanism_last_as_long_as_each_is_told():
    prefix = f"listener.name.{NAME.lower()}."
    site = secured(
        {
            "connections.max.reauth.ms": 60_000,
            f"{prefix}connections.max.reauth.ms": 50_000,
            f"{prefix}scram-sha-512.connections.max.reauth.ms": 40_000,
            f"{prefix}plain.connections.max.reauth.ms": 0,
        }
    )
    last = {mechanism: logged_in(site, mechanism)[1].session_lifetime_ms for mechanism in ALL.split(",")}
    assert last == {"PLAIN": 0, "SCRAM-SHA-256": 50_000, "SCRAM-SHA-512": 40_000}


def test_behind_its_end_a_session_may_still_be_begun_again():
    site = secured(REAUTH)
    client, _ = logged_in(site)
    site.loop.advance(61_000)
    logged_in(site, client=client)
    assert client.ask(METADATA, MetadataRequest(topics=None)).brokers


def test_nobody_becomes_another_by_logging_in_again():
    site = secured(REAUTH, users=("alice", "bob"))
    client, _ = logged_in(site)
    handshake(client, "SCRAM-SHA-256")
    scram = ScramClient("SCRAM-SHA-256", "bob", "secret")
    message = scram.final(authenticate(client, scram.first).auth_bytes)
    assert "Cannot change principals during re-authentication" in failed(site, client, message)


def test_the_mechanism_stays_when_a_client_logs_in_again():
    site = secured(REAUTH)
    client, _ = logged_in(site)
    assert handshake(client, "SCRAM-SHA-512").error_code == ErrorCode.NONE
    told = failed(site, client, ScramClient("SCRAM-SHA-512", "alice", "secret").first)
    assert told == (
        "SASL mechanism 'SCRAM-SHA-512' requested by client is not supported for re-authentication of mechanism "
        "'SCRAM-SHA-256'"
    )


def test_a_client_that_does_not_log_in_is_closed_in_time():
    site = secured()
    silent, slow = site.client(NAME), site.client(NAME)
    inside, _ = logged_in(site)
    site.loop.advance(LOGIN_S * 1000 - 1)
    slow.ask(API_VERSIONS, NAMED)
    assert not silent.transport.closed
    site.loop.advance(1)
    assert silent.transport.closed
    assert slow.transport.closed
    assert not inside.transport.closed


def test_before_the_log_in_requests_are_small():
    site = secured()
    outside = site.client(NAME)
    inside, _ = logged_in(site)
    head = (LOGIN_BYTES_MAX + 1).to_bytes(4, "big")
    outside.feed(head)
    assert outside.transport.closed
    inside.feed(head)
    assert not inside.transport.closed


def test_a_user_that_is_removed_is_out():
    site = secured(users=("alice", "bob"))
    alice, _ = logged_in(site)
    bob, _ = logged_in(site, user="bob")
    edited(site, lambda state: state.with_user("alice", {}))
    assert alice.transport.closed
    assert not bob.transport.closed


def test_who_is_added_anew_before_the_broker_looks_is_another_user():
    """Two commands within a second; else the removal would look like a new password, which ends nothing."""
    site = secured(users=("alice", "bob"))
    alice, _ = logged_in(site)
    bob, _ = logged_in(site, user="bob")
    command = SecurityStore.open(site.disk, "/data", random.Random(1).randbytes)
    held = command.state.users["alice"]
    command.change(lambda state: state.with_user("alice", {}))
    command.change(lambda state: state.with_user("alice", held))
    site.dispatcher.start(site.broker.security.check_file)
    site.run_until_idle()
    assert alice.transport.closed
    assert not bob.transport.closed
    logged_in(site)


def test_a_user_that_is_removed_within_its_log_in_does_not_get_in():
    site = secured()
    client = site.client(NAME)
    handshake(client, "SCRAM-SHA-256")
    scram = ScramClient("SCRAM-SHA-256", "alice", "secret")
    message = scram.final(authenticate(client, scram.first).auth_bytes)
    edited(site, lambda state: state.with_user("alice", {}))
    failed(site, client, message)


@pytest.mark.parametrize("mechanism", ALL.split(","))
def test_a_password_that_is_replaced_within_a_log_in_lets_nobody_in(mechanism):
    """A client may leave a log-in half made for as long as its connection lasts, once it has logged in before."""
    site = secured({"connections.max.reauth.ms": 60_000})
    client, _ = logged_in(site, mechanism)
    handshake(client, mechanism)
    if mechanism == "PLAIN":
        message = plain("alice", "secret")
    else:
        scram = ScramClient(mechanism, "alice", "secret")
        message = scram.final(authenticate(client, scram.first).auth_bytes)
    others = {name: new_credential(one, "other", b"salt", 4096) for name, one in MECHANISMS.items()}
    if mechanism == "PLAIN":  # while the worker tries it
        client.send(SASL_AUTHENTICATE, SaslAuthenticateRequest(auth_bytes=message))
        site.dispatcher.start(lambda: replaced(site, others))
        while site.broker.security.state.users["alice"] != others:
            site.files.step()
            site.loop.run()
        site.run_until_idle()
        site.loop.advance(DELAY_MS)
        assert client.answer().error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert client.transport.closed
    else:
        edited(site, lambda state: state.with_user("alice", others))
        failed(site, client, message)


def test_a_new_password_ends_nothing_and_holds_from_the_next_log_in_on():
    site = secured()
    client, _ = logged_in(site)
    mechanism = MECHANISMS["SCRAM-SHA-256"]
    other = {"SCRAM-SHA-256": new_credential(mechanism, "other", b"salt", 4096)}
    edited(site, lambda state: state.with_user("alice", other))
    assert client.ask(METADATA, MetadataRequest(topics=None)).brokers
    logged_in(site, password="other")
    late = site.client(NAME)
    handshake(late, "PLAIN")
    failed(site, late, plain("alice", "secret"))


def test_damage_lets_nobody_in_and_ends_what_was():
    site = secured()
    client, _ = logged_in(site)
    site.disk.put("/data/security", b"?")
    site.dispatcher.start(site.broker.security.check_file)
    site.run_until_idle()
    assert client.transport.closed
    late = site.client(NAME)
    handshake(late, "PLAIN")
    failed(site, late, plain("alice", "secret"))


def with_passwords(site, *hosts):
    """Clients of these addresses, whose passwords wait to be verified."""
    clients = [site.client(NAME) for _ in hosts]
    for client, host in zip(clients, hosts, strict=True):
        client.connection.session.host = host
        handshake(client, "PLAIN")
    for client in clients:
        client.send(SASL_AUTHENTICATE, SaslAuthenticateRequest(auth_bytes=plain("alice", "secret")))
    return clients


def test_passwords_of_one_address_make_those_of_another_wait_for_one_each():
    site = secured()
    many, honest = ["10.0.0.8"] * 5, ["10.0.0.9", "10.0.0.10"]
    clients = with_passwords(site, *many, *honest)
    for _ in range(4):
        site.workers["logins"].step()
    assert [one.connection.session.principal for one in clients[-2:]] == ["User:alice"] * 2
    assert site.broker.log_ins.succeeded.total() < 5
    site.run_until_idle()
    assert site.broker.log_ins.succeeded.total() == 7


def test_a_password_of_who_has_gone_is_not_verified():
    site = secured()
    *gone, late = with_passwords(site, *["10.0.0.8"] * 6)
    for client in gone:
        client.lose()
    assert site.dispatcher.waiting_requests == 2
    site.run_until_idle()
    assert site.workers["logins"].submitted == 2, "the one under way, and the one that is still there"
    assert late.connection.session.principal == "User:alice"
    assert site.dispatcher.waiting_requests == 0


def test_the_first_answer_shows_a_user_of_kafkas_tools_and_one_that_is_not_there_alike():
    """Their salts are text of 130 bits in base 36; of a user of two mechanisms both are."""
    site = secured(users=())
    salts = {"ann": b"2jk4h5k3jh45kjh34k5jh3k45", "bob": b"1ax9c8v7b6n5m4q3w2e1r0t9yu"}
    for user, salt in salts.items():
        held = {name: new_credential(one, "secret", salt, 8192) for name, one in MECHANISMS.items()}
        edited(site, lambda state, user=user, held=held: state.with_user(user, held))
    shown = {}
    for user in ("ann", "bob", "mallory", "ops", "root"):
        for mechanism in MECHANISMS:
            client = site.client(NAME)
            handshake(client, mechanism)
            answer = authenticate(client, ScramClient(mechanism, user, "x").first).auth_bytes.decode()
            parts = dict(part.split("=", 1) for part in answer.split(","))
            shown[user, mechanism] = salt_kind(base64.b64decode(parts["s"])), parts["i"]
    assert set(shown.values()) == {(KAFKA_SALT, "8192")}
