"""SCRAM as the RFCs have it: their own examples, and everything that must not log anybody in."""

import base64

import pytest

from edge_broker.security.sasl import WRONG_PASSWORD, read_plain
from edge_broker.security.scram import (
    MECHANISMS,
    MESSAGE_BYTES_MAX,
    CredentialLookup,
    LogInFailed,
    ScramExchange,
    Success,
    is_password,
    new_credential,
    user_of,
)
from tests.support.scram import ScramClient

SHA_256, SHA_512 = MECHANISMS.values()
SALT = b"0123456789abcdefghij"


def finder(mechanism, password="secret", known=True, iterations=4096):
    credential = new_credential(mechanism, password, SALT, iterations)
    return lambda _user: CredentialLookup(credential, known)


def log_in(client, exchange, find):
    challenge = exchange.step(client.first, find)
    return exchange.step(client.final(challenge.data), find)


def test_the_example_of_rfc_7677():
    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    credential = new_credential(SHA_256, "pencil", salt, 4096)
    exchange = ScramExchange(SHA_256, "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0")
    find = lambda user: CredentialLookup(credential, user == "user")  # noqa: E731
    first = exchange.step(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO", find)
    assert first.data == (b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096")
    done = exchange.step(
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
        find,
    )
    assert done == Success("user", b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")


def test_the_keys_of_rfc_5802_s_example_in_its_own_hash():
    """Its example is SHA-1, which is not served; the formulas are the same."""
    sha_1 = SHA_256._replace(hash_name="sha1", key_bytes=20)
    credential = new_credential(sha_1, "pencil", base64.b64decode("QSXCR+Q6sek8bf92"), 4096)
    exchange = ScramExchange(sha_1, "3rfcNHYJY1ZVvWVs7j")
    find = lambda _user: CredentialLookup(credential, True)  # noqa: E731
    first = exchange.step(b"n,,n=user,r=fyko+d2lbbFgONRv9qkxdawL", find)
    assert first.data == b"r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,s=QSXCR+Q6sek8bf92,i=4096"
    done = exchange.step(b"c=biws,r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,p=v0X8v3Bz2T0CJGbJQyF0X+HI4Ts=", find)
    assert done.data == b"v=rmF9pqV8S7suAoZWja4dJRkFsKQ="


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("user", ["user", "a,b=c", "Zoë", "a b", "x" * 255])
@pytest.mark.parametrize("header", ["n,,", "y,,"])
def test_whoever_knows_the_password_gets_in(mechanism, user, header):
    client = ScramClient(mechanism, user, "secret", header=header, extension=",x=y")
    done = log_in(client, ScramExchange(MECHANISMS[mechanism], "s" * 32), finder(MECHANISMS[mechanism]))
    assert done.user == user
    assert client.verifies(done.data)


def test_a_client_that_repeats_its_nonce_gets_in():
    """librdkafka before 2.6.1 does."""
    client = ScramClient("SCRAM-SHA-256", "user", "secret", "nonce", before_nonce="nonce")
    done = log_in(client, ScramExchange(SHA_256, "s" * 32), finder(SHA_256))
    assert (done.user, client.verifies(done.data)) == ("user", True)


@pytest.mark.parametrize("before", ["x", "noncenonce", "s" * 32])
def test_whatever_else_stands_before_the_nonces_is_refused(before):
    client = ScramClient("SCRAM-SHA-256", "user", "secret", "nonce", before_nonce=before)
    with pytest.raises(LogInFailed, match="another nonce"):
        log_in(client, ScramExchange(SHA_256, "s" * 32), finder(SHA_256))


def test_his_own_authorization_id_is_no_other():
    client = ScramClient("SCRAM-SHA-256", "a,b", "secret", header="n,a=a=2Cb,")
    assert log_in(client, ScramExchange(SHA_256, "s" * 32), finder(SHA_256)).user == "a,b"


def test_another_authorization_id_is_told_as_kafka_does():
    exchange = ScramExchange(SHA_256, "s" * 32)
    with pytest.raises(LogInFailed) as failure:
        exchange.step(ScramClient("SCRAM-SHA-256", "a", "secret", header="n,a=b,").first, finder(SHA_256))
    assert failure.value.told == (
        "Authentication failed: Client requested an authorization id that is different from username"
    )


@pytest.mark.parametrize(("password", "known"), [("wrong", True), ("secret", False)])
def test_a_wrong_password_and_a_user_that_is_not_there_are_the_same(password, known):
    client, exchange = ScramClient("SCRAM-SHA-256", "user", password), ScramExchange(SHA_256, "s" * 32)
    with pytest.raises(LogInFailed) as failure:
        log_in(client, exchange, finder(SHA_256, known=known))
    assert failure.value.told is None


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\xff",
        b"n,,",
        b"n,,n=user",
        b"n,,r=nonce,n=user",
        b"n,,n=,r=nonce",
        b"n,,n=user,r=",
        b"n,,n=user,r=a b",
        b"n,,n=us=er,r=nonce",
        b"n,,n=us\0er,r=nonce",
        b"n,a=,n=user,r=nonce",
        b"n,,m=ext,n=user,r=nonce",
        b"n,,n=user,r=nonce,",
        b"n,,n=user,r=nonce,x",
        b"n,,n=user,r=nonce,x=",
        b"n,,n=user,r=nonce,1=y",
        b"n,,n=user,r=nonce,,x=y",
        b"p=tls-unique,,n=user,r=nonce",
        b"n,,n=user,r=" + b"x" * MESSAGE_BYTES_MAX,
    ],
)
def test_no_first_message(message):
    exchange = ScramExchange(SHA_256, "s" * 32)
    with pytest.raises(LogInFailed):
        exchange.step(message, finder(SHA_256))
    with pytest.raises(LogInFailed):
        exchange.step(ScramClient("SCRAM-SHA-256", "user", "secret").first, finder(SHA_256))


def changed(change):
    client, exchange, find = ScramClient("SCRAM-SHA-256", "user", "secret"), ScramExchange(SHA_256, "s" * 32), None
    find = finder(SHA_256)
    final = client.final(exchange.step(client.first, find).data)
    with pytest.raises(LogInFailed):
        exchange.step(change(final), find)


@pytest.mark.parametrize(
    "change",
    [
        lambda final: final.replace(b"c=biws", b"c=eSws"),  # as if the header had been y,,
        lambda final: final.replace(b"c=biws", b"c=b"),
        lambda final: final.replace(b"r=nonce", b"r=other"),
        lambda final: final.replace(b"ss,p=", b"sst,p="),
        lambda final: final[: final.index(b",p=")],
        lambda final: final.replace(b",p=", b",p=AAAA"),
        lambda final: final[:-4] + b"AAA=",
        lambda final: final.replace(b",p=", b",x=y,p="),  # not what was signed
        lambda final: b"",
        lambda final: final + b"\0",
    ],
)
def test_no_final_message(change):
    changed(change)


def test_a_message_after_the_last_one_fails():
    exchange, find = ScramExchange(SHA_256, "s" * 32), finder(SHA_256)
    client = ScramClient("SCRAM-SHA-256", "user", "secret")
    log_in(client, exchange, find)
    with pytest.raises(LogInFailed):
        exchange.step(client.first, find)


def test_passwords_are_bytes_of_utf_8():
    credential = new_credential(SHA_512, "pässword", SALT, 4096)
    assert is_password(SHA_512, "pässword".encode(), credential)
    assert not is_password(SHA_512, b"password", credential)


@pytest.mark.parametrize("name", ["=", "=2", "=2c", "a=3d", "=3"])
def test_a_name_with_a_lone_equals_sign_is_none(name):
    with pytest.raises(LogInFailed):
        user_of(name)


@pytest.mark.parametrize("message", [b"", b"user", b"\0user", b"\0user\0", b"\0\0password", b"\0user\0pass\0word"])
def test_no_message_of_plain(message):
    with pytest.raises(LogInFailed):
        read_plain(message)


def test_the_parts_of_plain_s_message():
    assert read_plain("a\0b\0päss".encode()) == ("a", "b", "päss".encode())
    assert read_plain(b"\xff\0\xfe\0\xfd") == ("\ufffd", "\ufffd", b"\xfd")  # nobody's names, as in Kafka


def test_a_password_that_is_too_long_is_a_wrong_one():
    with pytest.raises(LogInFailed) as failure:
        read_plain(b"\0user\0" + bytes(MESSAGE_BYTES_MAX).replace(b"\0", b"x"))
    assert failure.value.told == WRONG_PASSWORD
