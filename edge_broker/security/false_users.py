"""Makes credentials for users that do not exist, of the kinds that the real users have.

| tool | salt |
|---|---|
| `edge-broker user` and the playbooks | 20 random bytes |
| Kafka's tools (ScramFormatter) | a number of 130 random bits in base 36, as text: mostly 25 or 26 characters |
| librdkafka's clients | 64 random bytes |
| others | any 1 to 128 bytes: random ones, or text of some alphabet |

A profile is the kind of salt and the iterations of each mechanism that a real user has. Each name that does not exist
gets one of the real users' profiles, about as often as they have it, by weighted rendezvous hashing of the name with
the store's secret: it stays the same after a restart, on each board of a cluster, and for most names when users come
and go. So neither a salt's form, nor its length, nor the iterations say whether a user exists.

Source: RFC 5802 section 9, Kafka's ScramFormatter.secureRandomString. Does not contain: chance, who may log in.
"""

from __future__ import annotations

import hmac
import math
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from functools import lru_cache
from hashlib import sha256, shake_256
from typing import NamedTuple, TypeAlias, TypeVar

from edge_broker.security.scram import ITERATIONS_MIN, MECHANISMS, SALT_BYTES, Mechanism, ScramCredential

PROFILES_MAX = 16  # each costs a log-in some 2 us on a server; rarer ones are left out
SEED_BYTES = 64
_BASE_36 = b"0123456789abcdefghijklmnopqrstuvwxyz"
_LETTERS = _BASE_36 + b"ABCDEFGHIJKLMNOPQRSTUVWXYZ"
ANY_BYTES = bytes(range(256))
ALPHABETS = (
    b"0123456789",
    b"0123456789abcdef",
    _BASE_36,
    _LETTERS,
    _LETTERS + b"+/",
    _LETTERS + b"-_",
    bytes(range(0x20, 0x7F)),
    ANY_BYTES,
)
KAFKA_BITS = 130
KAFKA_CHARACTERS = range(22, 27)  # fewer in one of 3 million salts
KINDS_CACHED = 4096  # two mechanisms of 2000 users, who are looked through after each change, on the loop
_MIX, _64_BITS = 0x9E3779B97F4A7C15, (1 << 64) - 1
T = TypeVar("T", bound=Hashable)


class SaltKind(NamedTuple):
    """The form of a salt: the smallest of ALPHABETS that has all its bytes, their number, and `=` signs after them.

    A `size` of 0 is Kafka's number, whose length varies.
    """

    alphabet: bytes
    size: int
    padding: int = 0


class CredentialKind(NamedTuple):
    """The parts of a credential that a log-in's first answer shows."""

    salt: SaltKind
    iterations: int


Profile: TypeAlias = tuple[CredentialKind | None, ...]
"""The kinds of a user's credentials in the order of MECHANISMS; None for a mechanism that he has no credential of."""

KAFKA_SALT = SaltKind(_BASE_36, 0)
OWN_SALT = SaltKind(ANY_BYTES, SALT_BYTES)
OWN = CredentialKind(OWN_SALT, ITERATIONS_MIN)


@lru_cache(maxsize=KINDS_CACHED)
def salt_kind(salt: bytes) -> SaltKind:
    """Return the form of a salt."""
    if not salt.isascii():
        return SaltKind(ANY_BYTES, len(salt))
    text = salt.rstrip(b"=")
    alphabet = next(each for each in ALPHABETS if not text.translate(None, each))
    if alphabet == _BASE_36 and len(salt) in KAFKA_CHARACTERS and _is_kafka_number(salt):
        return KAFKA_SALT
    return SaltKind(alphabet, len(text), len(salt) - len(text))


def _is_kafka_number(salt: bytes) -> bool:
    return not salt.startswith(b"0") and int(salt, 36) < 1 << KAFKA_BITS


def false_credential(mechanism: Mechanism, user: str, secret: bytes, kind: CredentialKind) -> ScramCredential:
    """Return a credential of a kind that no password opens, the same for the same user, mechanism, secret and kind."""
    seed = hmac.digest(secret, f"{mechanism.name} {user}".encode(errors="replace"), "sha512")
    return ScramCredential(
        _salt(kind.salt, seed),
        kind.iterations,
        seed[: mechanism.key_bytes],
        hmac.digest(secret, seed, mechanism.hash_name),
    )


def _salt(kind: SaltKind, seed: bytes) -> bytes:
    if kind.alphabet == ANY_BYTES and kind.size <= SALT_BYTES:
        return seed[: kind.size]  # as before there were kinds, so that an upgrade changes no salt
    chance = shake_256(b"salt" + seed).digest(max(2 * kind.size, SEED_BYTES))
    if kind == KAFKA_SALT:
        return _in_base_36(int.from_bytes(chance) >> (8 * len(chance) - KAFKA_BITS))
    if kind.alphabet == ANY_BYTES:
        return chance[: kind.size]
    count = len(kind.alphabet)
    text = bytes(kind.alphabet[int.from_bytes(chance[2 * at : 2 * at + 2]) % count] for at in range(kind.size))
    return text + b"=" * kind.padding


def _in_base_36(number: int) -> bytes:
    digits = bytearray()
    while number:
        number, digit = divmod(number, 36)
        digits.append(_BASE_36[digit])
    return bytes(reversed(digits)) or b"0"


class FalseUsers:
    """The credentials of names that do not exist, similar to these real users'."""

    def __init__(self, users: Iterable[Mapping[str, ScramCredential]]) -> None:
        profiles = Counter(_profile(held) for held in users)
        self._profiles = _commonest(profiles)
        self._kinds = {name: _commonest(_kinds_at(place, profiles)) for place, name in enumerate(MECHANISMS)}

    def credential(
        self, mechanism: Mechanism, user: str, secret: bytes, held: Mapping[str, ScramCredential]
    ) -> ScramCredential:
        """Return the false credential of a name for a mechanism; `held` is what a user of that name really has.

        The work is the same for each name. A real user without a credential for this mechanism gets one as a false
        user does whose profile has none.
        """
        place = list(MECHANISMS).index(mechanism.name)
        name = user.encode(errors="replace")
        profile = _choose(self._profiles, secret, name) or (OWN,) * len(MECHANISMS)
        kind = _choose(self._kinds[mechanism.name], secret, mechanism.name.encode() + b" " + name) or OWN
        return false_credential(mechanism, user, secret, kind if held else profile[place] or kind)


def _profile(held: Mapping[str, ScramCredential]) -> Profile:
    found = (held.get(name) for name in MECHANISMS)
    return tuple(None if one is None else CredentialKind(salt_kind(one.salt), one.iterations) for one in found)


def _kinds_at(place: int, profiles: Counter[Profile]) -> Counter[CredentialKind]:
    kinds: Counter[CredentialKind] = Counter()
    for profile, count in profiles.items():
        kind = profile[place]
        if kind is not None:
            kinds[kind] += count
    return kinds


def _commonest(counts: Counter[T]) -> dict[T, tuple[int, int]]:
    """Return up to PROFILES_MAX of them, each with a number of its own and its weight: its count, down to a power of 2.

    A weight that changes moves names to another profile, and a name whose salt changes while no password does is false.
    """
    most = sorted(counts.items(), key=lambda one: (-one[1], repr(one[0])))[:PROFILES_MAX]
    return {one: (_number(sha256(repr(one).encode()).digest()), 1 << (count.bit_length() - 1)) for one, count in most}


def _number(digest: bytes) -> int:
    return int.from_bytes(digest[:8])


def _choose(weights: Mapping[T, tuple[int, int]], secret: bytes, name: bytes) -> T | None:
    """Return the one that rendezvous hashing gives a name, in proportion to the weights; None: there is none."""
    if len(weights) < 2:
        return next(iter(weights), None)

    hashed = _number(hmac.digest(secret, name, "sha256"))

    def distance(one: T) -> float:
        number, weight = weights[one]
        mixed = ((hashed ^ number) * _MIX) & _64_BITS  # as splitmix64 ends, of a number that is secret
        mixed = ((mixed ^ mixed >> 29) * _MIX) & _64_BITS
        return -math.log(((mixed ^ mixed >> 32) + 1) / (1 << 64)) / weight

    return min(weights, key=distance)
