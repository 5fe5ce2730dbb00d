"""Describe- and AlterUserScramCredentials: Kafka's checks, and that a change holds once it is answered."""

import hashlib

import pytest

from edge_broker.broker.outcomes import Reply
from edge_broker.configuration.config import STANDARD_AUTHORIZER
from edge_broker.errors import ErrorCode
from edge_broker.protocol.api import ALTER_USER_SCRAM_CREDENTIALS, DESCRIBE_USER_SCRAM_CREDENTIALS
from edge_broker.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from edge_broker.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    UserName,
)
from edge_broker.security.scram import MECHANISMS, credential_of, is_password
from edge_broker.security.state import USER_NAME_CHARACTERS_MAX, USERS_MAX
from edge_broker.testing.site import Site

SHA_256, SHA_512 = 1, 2
SALT = b"0123456789"


def upsertion(name, mechanism=SHA_256, iterations=4096, salt=SALT):
    salted = hashlib.pbkdf2_hmac("sha256" if mechanism == SHA_256 else "sha512", b"secret", salt or b"x", 4096)
    return ScramCredentialUpsertion(
        name=name, mechanism=mechanism, iterations=iterations, salt=salt, salted_password=salted
    )


def salted(name, size):
    return ScramCredentialUpsertion(
        name=name, mechanism=SHA_256, iterations=4096, salt=SALT, salted_password=b"x" * size
    )


def deletion(name, mechanism=SHA_256):
    return ScramCredentialDeletion(name=name, mechanism=mechanism)


def altered(site, *alterations):
    """Code and message by user."""
    request = AlterUserScramCredentialsRequest(
        deletions=[one for one in alterations if isinstance(one, ScramCredentialDeletion)],
        upsertions=[one for one in alterations if isinstance(one, ScramCredentialUpsertion)],
    )
    results = site.client().ask(ALTER_USER_SCRAM_CREDENTIALS, request).results
    return {one.user: (one.error_code, one.error_message) for one in results}


def described(site, *names):
    users = [UserName(name=name) for name in names] if names else None
    answer = site.client().ask(DESCRIBE_USER_SCRAM_CREDENTIALS, DescribeUserScramCredentialsRequest(users=users))
    assert answer.error_code == ErrorCode.NONE
    return {
        one.user: (one.error_code, [(info.mechanism, info.iterations) for info in one.credential_infos])
        for one in answer.results
    }


def test_what_is_set_is_described_and_holds_after_a_cut():
    site = Site()
    assert altered(site, upsertion("a"), upsertion("b", SHA_512, 8192)) == {"a": (0, None), "b": (0, None)}
    assert described(site) == {"a": (0, [(SHA_256, 4096)]), "b": (0, [(SHA_512, 8192)])}
    assert described(site.reopen("cut"), "b") == {"b": (0, [(SHA_512, 8192)])}
    credential = site.broker.security.state.users["a"]["SCRAM-SHA-256"]
    assert is_password(MECHANISMS["SCRAM-SHA-256"], b"secret", credential)


def test_one_mechanism_goes_and_the_user_with_the_last_one():
    site = Site()
    altered(site, upsertion("a"))
    altered(site, upsertion("a", SHA_512))
    assert altered(site, deletion("a")) == {"a": (0, None)}
    assert described(site) == {"a": (0, [(SHA_512, 4096)])}
    altered(site, deletion("a", SHA_512))
    assert described(site) == {}
    assert site.broker.security.state.users == {}


@pytest.mark.parametrize(
    ("alterations", "code"),
    [
        ([upsertion("")], ErrorCode.UNACCEPTABLE_CREDENTIAL),
        ([upsertion("x" * (USER_NAME_CHARACTERS_MAX + 1))], ErrorCode.UNACCEPTABLE_CREDENTIAL),
        ([upsertion("a", iterations=4095)], ErrorCode.UNACCEPTABLE_CREDENTIAL),
        ([upsertion("a", iterations=16385)], ErrorCode.UNACCEPTABLE_CREDENTIAL),
        ([upsertion("a", salt=b"")], ErrorCode.UNACCEPTABLE_CREDENTIAL),
        ([upsertion("a", salt=b"x" * 129)], ErrorCode.UNACCEPTABLE_CREDENTIAL),
        ([salted("a", 0)], ErrorCode.UNACCEPTABLE_CREDENTIAL),
        ([salted("a", 33)], ErrorCode.UNACCEPTABLE_CREDENTIAL),
        ([upsertion("a", mechanism=3)], ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        ([deletion("a", mechanism=0)], ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        ([deletion("a")], ErrorCode.RESOURCE_NOT_FOUND),
        ([upsertion("a"), upsertion("a")], ErrorCode.DUPLICATE_RESOURCE),
        ([upsertion("a"), upsertion("a"), upsertion("a")], ErrorCode.DUPLICATE_RESOURCE),
        ([deletion("a"), upsertion("a")], ErrorCode.DUPLICATE_RESOURCE),
    ],
)
def test_what_kafka_refuses_is_refused_and_its_neighbours_are_not(alterations, code):
    site = Site()
    answers = altered(site, *alterations, upsertion("good"))
    assert answers.pop("good") == (0, None)
    ((found, message),) = answers.values()
    assert found == code
    assert message
    assert set(site.broker.security.state.users) == {"good"}


def test_nobody_new_is_named_like_everybody():
    """Kafka takes him; a user of that name that is there already can be removed."""
    site = Site()
    code, message = altered(site, upsertion("*"))["*"]
    assert code == ErrorCode.UNACCEPTABLE_CREDENTIAL
    assert "rights of User:* are everybody's; choose another name" in message
    held = {"SCRAM-SHA-256": credential_of(MECHANISMS["SCRAM-SHA-256"], b"x" * 32, SALT, 4096)}
    site.dispatcher.start(
        lambda: site.broker.security.change(
            lambda state: state.with_user("*", held), lambda: Reply(None), lambda _: Reply(None)
        )
    )
    site.run_until_idle()
    assert altered(site, deletion("*")) == {"*": (0, None)}
    assert described(site) == {}


def test_there_are_only_so_many_users(monkeypatch):
    site = Site()
    many = [upsertion(f"user-{number}") for number in range(USERS_MAX + 1)]
    assert {code for code, _ in altered(site, *many).values()} == {ErrorCode.POLICY_VIOLATION}
    assert site.broker.security.state.users == {}


def test_users_that_are_not_there_or_asked_for_twice_are_no_users():
    site = Site()
    altered(site, upsertion("a"), upsertion("b"))
    assert described(site, "a", "c", "b", "b") == {
        "a": (0, [(SHA_256, 4096)]),
        "b": (ErrorCode.DUPLICATE_RESOURCE, []),
        "c": (ErrorCode.RESOURCE_NOT_FOUND, []),
    }


def test_a_disk_that_refuses_is_told():
    site = Site()

    def fault(kind, path, _size):
        if kind == "rename" and path.endswith("/security"):
            raise OSError(5, "Input/output error", path)

    site.disk.fault = fault
    assert altered(site, upsertion("a"))["a"][0] == ErrorCode.KAFKA_STORAGE_ERROR
    assert described(site) == {}


def test_whoever_has_no_right_to_the_cluster_neither_sees_nor_changes_users():
    site = Site({"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:admin"})
    assert altered(site, upsertion("a"), deletion("b")).keys() == {"a", "b"}
    assert {code for code, _ in altered(site, upsertion("a")).values()} == {ErrorCode.CLUSTER_AUTHORIZATION_FAILED}
    answer = site.client().ask(DESCRIBE_USER_SCRAM_CREDENTIALS, DescribeUserScramCredentialsRequest(users=None))
    assert answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert answer.results == []
    assert site.broker.security.state.users == {}
