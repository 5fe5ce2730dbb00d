"""The client side of SASL: make the tokens, and check the answers.

| mechanism | tokens | source |
|---|---|---|
| PLAIN | one: NUL user NUL password | RFC 4616 |
| SCRAM-SHA-256, SCRAM-SHA-512 | client-first, client-final; both answers are checked | RFC 5802, RFC 7677 |

As in Kafka's own clients, names and passwords are UTF-8 and are not prepared by SASLprep, and there is no channel
binding. Does not contain: sockets, randomness (the nonce is an argument), a text with the password.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Generator

ITERATIONS_MIN = 4096  # RFC 7677; fewer would let a false broker learn too much
ITERATIONS_MAX = 1 << 20  # a board is busy for a second; more would be an attack on it


class LogInError(Exception):
    """The problem of an authentication, as a predicate of the broker."""


def tokens(mechanism: str, username: str, password: str, nonce: str) -> Generator[bytes, bytes, None]:
    """Yield the tokens, receive the answers; end when the client accepts the broker. LogInError.

    `nonce` is fresh printable ASCII without a comma, for SCRAM.
    """
    if mechanism == "PLAIN":
        yield b"\0".join((b"", username.encode(), password.encode()))
        return
    yield from _scram(mechanism.removeprefix("SCRAM-").replace("-", "").lower(), username, password, nonce)


def _scram(hashed_by: str, username: str, password: str, nonce: str) -> Generator[bytes, bytes, None]:
    name = username.replace("=", "=3D").replace(",", "=2C")
    first_bare = f"n={name},r={nonce}".encode()
    server_first = yield b"n,," + first_bare
    salt, iterations, whole_nonce = _challenge(server_first, nonce)
    salted = hashlib.pbkdf2_hmac(hashed_by, password.encode(), salt, iterations)
    client_key = hmac.digest(salted, b"Client Key", hashed_by)
    final_bare = b"c=biws,r=" + whole_nonce  # biws: base64 of "n,,"
    said = b",".join((first_bare, server_first, final_bare))
    signature = hmac.digest(hashlib.new(hashed_by, client_key).digest(), said, hashed_by)
    proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    server_final = yield final_bare + b",p=" + base64.b64encode(proof)
    expected = hmac.digest(hmac.digest(salted, b"Server Key", hashed_by), said, hashed_by)
    if not hmac.compare_digest(server_final.partition(b",")[0], b"v=" + base64.b64encode(expected)):
        raise LogInError("does not know this user's password itself: is it the broker that it says to be?")


def _challenge(server_first: bytes, nonce: str) -> tuple[bytes, int, bytes]:
    """Return the salt, the iterations and the whole nonce of server-first."""
    fields = {part[:2]: part[2:] for part in server_first.split(b",")}
    try:
        whole_nonce, iterations = fields[b"r="], int(fields[b"i="])
        salt = base64.b64decode(fields[b"s="], validate=True)
    except (KeyError, ValueError, binascii.Error) as error:
        raise LogInError("answers a log-in with something else than SCRAM") from error
    if not whole_nonce.startswith(nonce.encode()) or len(whole_nonce) <= len(nonce):
        raise LogInError("answers another log-in than this one: does something stand between it and this host?")
    if not ITERATIONS_MIN <= iterations <= ITERATIONS_MAX:
        raise LogInError(f"asks for {iterations} iterations: {ITERATIONS_MIN} to {ITERATIONS_MAX} are done here")
    return salt, iterations, whole_nonce
