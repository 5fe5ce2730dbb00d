"""Credentials of users that do not exist: nothing that a first answer shows tells them from real ones."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping

import pytest

from edge_broker.security.false_users import (
    KAFKA_SALT,
    OWN,
    OWN_SALT,
    PROFILES_MAX,
    CredentialKind,
    FalseUsers,
    false_credential,
    salt_kind,
)
from edge_broker.security.scram import MECHANISMS, SALT_BYTES, Mechanism, ScramCredential, is_password

SHA_256, SHA_512 = MECHANISMS.values()
SECRET = b"secret" * 5
CHANCE = random.Random(1)
BASE_36 = "0123456789abcdefghijklmnopqrstuvwxyz"


def kafka_salt() -> bytes:
    """As ScramFormatter makes one: 130 random bits in base 36."""
    number, text = CHANCE.getrandbits(130), ""
    while number:
        number, digit = divmod(number, 36)
        text = BASE_36[digit] + text
    return text.encode()


def own_salt() -> bytes:
    return CHANCE.randbytes(SALT_BYTES)


def librdkafka_salt() -> bytes:
    return CHANCE.randbytes(64)


def hex_salt() -> bytes:
    return CHANCE.randbytes(12).hex().encode()


def user(
    salt: Callable[[], bytes] = own_salt, iterations: int = 4096, mechanisms: tuple[Mechanism, ...] = (SHA_256, SHA_512)
) -> Mapping[str, ScramCredential]:
    return {one.name: ScramCredential(salt(), iterations, b"", b"") for one in mechanisms}


def shown(
    users: FalseUsers, name: str, mechanism: Mechanism = SHA_256, held: Mapping[str, ScramCredential] | None = None
) -> CredentialKind:
    found = users.credential(mechanism, name, SECRET, held or {})
    return CredentialKind(salt_kind(found.salt), found.iterations)


NAMES = [f"name {number}" for number in range(2000)]


@pytest.mark.parametrize("mechanism", MECHANISMS.values(), ids=MECHANISMS)
@pytest.mark.parametrize("salt", [own_salt, kafka_salt, librdkafka_salt, hex_salt])
def test_a_false_credential_stays_the_same_and_depends_on_user_and_mechanism(
    mechanism: Mechanism, salt: Callable[[], bytes]
) -> None:
    kind = CredentialKind(salt_kind(salt()), 4096)
    one = false_credential(mechanism, "a", b"secret", kind)
    assert one == false_credential(mechanism, "a", b"secret", kind)
    assert one.salt != false_credential(mechanism, "b", b"secret", kind).salt
    assert one.salt != false_credential(mechanism, "a", b"another", kind).salt
    assert len({false_credential(other, "a", b"secret", kind).salt for other in MECHANISMS.values()}) == 2
    assert len(one.stored_key) == len(one.server_key) == mechanism.key_bytes
    assert not is_password(mechanism, b"", one)


def test_salts_of_kafkas_tools_are_told_as_such_and_false_ones_are_spread_alike() -> None:
    """Length and first character, whatever the real ones were."""
    real = [kafka_salt() for _ in range(4000)]
    assert Counter(map(salt_kind, real))[KAFKA_SALT] == 4000
    users = FalseUsers([user(kafka_salt)])
    false = [users.credential(SHA_256, name, SECRET, {}).salt for name in [*NAMES, *(f"{one}x" for one in NAMES)]]
    lengths, expected = Counter(map(len, false)), Counter(map(len, real))
    assert all(abs(lengths[size] - expected[size]) < 200 for size in (24, 25, 26)), (lengths, expected)
    assert all(one.startswith(b"1") for one in false if len(one) == 26)
    assert len(set(false)) == len(false)


@pytest.mark.parametrize("salt", [own_salt, kafka_salt, librdkafka_salt, hex_salt, lambda: b"c2FsdCBvZiBTb21lIFRvb2w="])
def test_where_all_users_are_of_one_kind_each_false_one_is(salt: Callable[[], bytes]) -> None:
    users = FalseUsers([user(salt, 8192) for _ in range(5)])
    kinds = {shown(users, name, mechanism) for name in NAMES[:200] for mechanism in MECHANISMS.values()}
    assert kinds == {CredentialKind(salt_kind(salt()), 8192)}


def test_where_users_are_of_two_kinds_false_ones_are_in_the_same_proportion() -> None:
    users = FalseUsers([*(user() for _ in range(8)), *(user(kafka_salt, 8192) for _ in range(4))])
    counts = Counter(shown(users, name) for name in NAMES)
    assert set(counts) == {OWN, CredentialKind(KAFKA_SALT, 8192)}
    assert 1200 < counts[OWN] < 1460


def test_both_mechanisms_of_a_false_user_are_of_one_real_user_s_kinds() -> None:
    """Else asking for both would tell: a user of Kafka's tools has Kafka's salts for both."""
    users = FalseUsers([user(), user(kafka_salt, 8192), user(hex_salt, 4096, (SHA_256,))])
    pairs = {(shown(users, name), shown(users, name, SHA_512)) for name in NAMES}
    own, kafka = OWN, CredentialKind(KAFKA_SALT, 8192)
    hexed = CredentialKind(salt_kind(hex_salt()), 4096)
    assert pairs == {(own, own), (kafka, kafka), (hexed, own), (hexed, kafka)}
    held = user(hex_salt, 4096, (SHA_256,))
    assert {shown(users, name, SHA_512, held) for name in NAMES} == {own, kafka}


def test_names_keep_their_salts_while_users_come_and_go() -> None:
    """All of them while the kinds and their powers of two stay, and most when a kind comes."""
    own, kafka = [user() for _ in range(9)], [user(kafka_salt) for _ in range(4)]

    def salts(*held: Mapping[str, ScramCredential]) -> list[bytes]:
        users = FalseUsers(held)
        return [users.credential(SHA_256, name, SECRET, {}).salt for name in NAMES]

    first = salts(*own, *kafka)
    assert salts(*own, user(), user(), *kafka, user(kafka_salt)) == first
    assert salts(*kafka, *own[1:]) == first
    changed = sum(one != other for one, other in zip(first, salts(*own, *kafka, user(librdkafka_salt)), strict=True))
    assert changed < len(NAMES) / 8


def test_without_users_false_ones_are_of_the_own_kind_and_as_before_there_were_kinds() -> None:
    """An upgrade changes no salt: one that changes while no password does would be false."""
    assert {shown(FalseUsers([]), name) for name in NAMES[:50]} == {OWN}
    seen = FalseUsers([user()]).credential(SHA_512, "nobody", b"s" * 32, {}).salt
    assert seen.hex() == "ba9ec0d48aea232315c2a27ac3ab7a08fa1bd63c"


def test_many_kinds_cost_no_more_than_a_bound() -> None:
    users = FalseUsers([user(own_salt, 4096 + number) for number in range(10 * PROFILES_MAX)])
    kinds = {shown(users, name) for name in NAMES}
    assert 1 < len(kinds) <= PROFILES_MAX


@pytest.mark.parametrize("salt", [b"\x00", b"=", b"===", b"0", b" ~", b"Z" * 128, b"z" * 26, b"0" * 25])
def test_any_salt_has_a_kind_of_its_own_size(salt: bytes) -> None:
    kind = salt_kind(salt)
    assert kind != KAFKA_SALT
    assert kind.size + kind.padding == len(salt)
    assert len(false_credential(SHA_256, "a", SECRET, CredentialKind(kind, 4096)).salt) == len(salt)


def test_kafkas_salts_are_no_own_ones() -> None:
    assert salt_kind(own_salt()) == OWN_SALT != KAFKA_SALT
