"""SCRAM: what is kept of a password, and the server's side of a log-in.

| state | message | next | answer |
|---|---|---|---|
| FIRST | client-first | FINAL | salt, iterations, both nonces; false ones for a user that is not there |
| FINAL | client-final, its proof is right | OVER | the proof that the server knows the keys too |
| any | anything else | OVER | none: LogInFailed |

librdkafka before 2.6.1, so kcat of Debian 12, puts the client's nonce before both nonces once more. That is let in,
unlike by RFC 5802 and Apache Kafka 4: the server's own nonce stands there whole, and the proof is of what was sent.

Contains: credentials and that exchange. Does not contain: chance (salts and nonces are arguments), who may log in.
Source: RFC 5802, RFC 7677, Kafka's ScramSaslServer and ScramFormatter; names and passwords are UTF-8 as it comes, as
Kafka takes them, without SASLprep.
"""

from __future__ import annotations

import binascii
import hmac
import re
from collections.abc import Callable
from enum import IntEnum
from hashlib import new, pbkdf2_hmac
from typing import NamedTuple, TypeAlias

MESSAGE_BYTES_MAX = 4096
ITERATIONS_MIN, ITERATIONS_MAX = 4096, 16384  # as Kafka
SALT_BYTES = 20

_NONCE, _EXTENSIONS = r"([\x21-\x2b\x2d-\x7e]+)", r"(?:,[A-Za-z]+=[^,\0]+)*"
_FIRST = re.compile(rf"([ny],(?:a=([^,\0]+))?,)(n=([^,\0]+),r={_NONCE}{_EXTENSIONS})")
_FINAL = re.compile(rf"(c=([A-Za-z0-9+/=]+),r={_NONCE}{_EXTENSIONS}),p=([A-Za-z0-9+/=]+)")


class Mechanism(NamedTuple):
    """A SCRAM mechanism: its name, Kafka's number for it, the hash by Python's name, and the size of its keys."""

    name: str
    number: int
    hash_name: str
    key_bytes: int


MECHANISMS = {
    one.name: one for one in (Mechanism("SCRAM-SHA-256", 1, "sha256", 32), Mechanism("SCRAM-SHA-512", 2, "sha512", 64))
}


class LogInFailed(Exception):
    """A log-in ends here; `told` is what the client hears of it, None: no more than that its credentials are wrong."""

    def __init__(self, reason: str, told: str | None = None) -> None:
        super().__init__(reason)
        self.told = told


class ScramCredential(NamedTuple):
    """The stored credential for one mechanism: neither the password nor a client's proof follows from it."""

    salt: bytes
    iterations: int
    stored_key: bytes
    server_key: bytes


class CredentialLookup(NamedTuple):
    """The credential of a user; a false one where he is not `known`."""

    credential: ScramCredential
    known: bool


Find: TypeAlias = Callable[[str], CredentialLookup]


class Challenge(NamedTuple):
    """The log-in goes on with this answer."""

    data: bytes


class Success(NamedTuple):
    """The client is this user."""

    user: str
    data: bytes


def salt_password(mechanism: Mechanism, password: bytes, salt: bytes, iterations: int) -> bytes:
    """RFC 5802's SaltedPassword: takes milliseconds by intent, and so belongs into a worker."""
    return pbkdf2_hmac(mechanism.hash_name, password, salt, iterations)


def credential_of(mechanism: Mechanism, salted_password: bytes, salt: bytes, iterations: int) -> ScramCredential:
    """Return the stored credential of a salted password."""
    client_key = hmac.digest(salted_password, b"Client Key", mechanism.hash_name)
    return ScramCredential(
        salt,
        iterations,
        new(mechanism.hash_name, client_key).digest(),
        hmac.digest(salted_password, b"Server Key", mechanism.hash_name),
    )


def new_credential(mechanism: Mechanism, password: str, salt: bytes, iterations: int) -> ScramCredential:
    """Return the stored credential of a password; as slow as `salt_password`."""
    return credential_of(mechanism, salt_password(mechanism, password.encode(), salt, iterations), salt, iterations)


def is_password(mechanism: Mechanism, password: bytes, credential: ScramCredential) -> bool:
    """Whether a password is the one that a credential was made of; as slow as `salt_password`."""
    made = credential_of(
        mechanism,
        salt_password(mechanism, password, credential.salt, credential.iterations),
        credential.salt,
        credential.iterations,
    )
    return hmac.compare_digest(made.stored_key, credential.stored_key)


class ScramState(IntEnum):
    """How far an exchange is."""

    FIRST = 0
    FINAL = 1
    OVER = 2


class ScramExchange:
    """The server's side of one log-in; `nonce` is fresh and unguessable."""

    __slots__ = (
        "_binding",
        "_first_bare",
        "_found",
        "_mechanism",
        "_nonce",
        "_server_first",
        "_whole_nonce",
        "state",
        "user",
    )  # fmt: skip

    def __init__(self, mechanism: Mechanism, nonce: str) -> None:
        self.state = ScramState.FIRST
        self._mechanism = mechanism
        self._nonce = nonce
        self.user = ""  # who the client says it is

    def shows_proof(self, message: bytes) -> bool:
        """Whether this next message may have the client's proof, by which a password can be tried."""
        return self.state == ScramState.FINAL and len(message) <= MESSAGE_BYTES_MAX

    def step(self, message: bytes, find: Find) -> Challenge | Success:
        """Take the client's next message; LogInFailed ends the exchange."""
        state, self.state = self.state, ScramState.OVER
        if state == ScramState.OVER or len(message) > MESSAGE_BYTES_MAX:
            raise LogInFailed("a message too many, or too long a one")
        try:
            text = message.decode()
        except UnicodeDecodeError:
            raise LogInFailed("a message that is no UTF-8") from None
        return self._take_first(text, find) if state == ScramState.FIRST else self._take_final(text, find)

    def _take_first(self, text: str, find: Find) -> Challenge:
        match = _FIRST.fullmatch(text)
        if match is None:
            raise LogInFailed("the first message is none of SCRAM's")
        header, authorization_id, self._first_bare, name, client_nonce = match.groups()
        self.user = user_of(name)
        if authorization_id and user_of(authorization_id) != self.user:
            raise LogInFailed("another authorization id", AUTHORIZATION_ID)
        self._found = find(self.user)
        self._binding = header.encode()
        self._nonce = client_nonce + self._nonce
        self._whole_nonce = client_nonce + self._nonce
        credential = self._found.credential
        salt = binascii.b2a_base64(credential.salt, newline=False).decode()
        self._server_first = f"r={self._nonce},s={salt},i={credential.iterations}"
        self.state = ScramState.FINAL
        return Challenge(self._server_first.encode())

    def _take_final(self, text: str, find: Find) -> Success:
        match = _FINAL.fullmatch(text)
        if match is None:
            raise LogInFailed("the final message is none of SCRAM's")
        without_proof, binding, nonce, proof_text = match.groups()
        try:
            bound, proof = _decode(binding), _decode(proof_text)
        except ValueError:
            raise LogInFailed("the final message has no base64") from None
        if bound != self._binding:
            raise LogInFailed("the final message repeats another header")
        if not (hmac.compare_digest(nonce, self._nonce) or hmac.compare_digest(nonce, self._whole_nonce)):
            raise LogInFailed("the final message has another nonce")
        message = f"{self._first_bare},{self._server_first},{without_proof}".encode()
        hash_name, credential = self._mechanism.hash_name, self._found.credential
        signature = hmac.digest(credential.stored_key, message, hash_name)
        if len(proof) != len(signature):
            raise LogInFailed("the proof has another size")
        client_key = bytes(one ^ other for one, other in zip(proof, signature, strict=True))
        right = hmac.compare_digest(new(hash_name, client_key).digest(), credential.stored_key)
        if not (right and self._found.known):
            raise LogInFailed("wrong password" if self._found.known else "no such user")
        if find(self.user) != self._found:  # a log-in may be left half made for hours
            raise LogInFailed(REPLACED)
        verifier = binascii.b2a_base64(hmac.digest(credential.server_key, message, hash_name), newline=False)
        return Success(self.user, b"v=" + verifier)


REPLACED = "the password was replaced meanwhile"
AUTHORIZATION_ID = "Authentication failed: Client requested an authorization id that is different from username"


def user_of(name: str) -> str:
    """The user that a SCRAM message names: `=2C` is a comma and `=3D` an equals sign; LogInFailed for any other."""
    if re.search(r"=(?!2C|3D)", name):
        raise LogInFailed("the name of the user has a lone =")
    return name.replace("=2C", ",").replace("=3D", "=")


def _decode(text: str) -> bytes:
    return binascii.a2b_base64(text, strict_mode=True)
