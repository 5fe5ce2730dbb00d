"""SCRAM credentials, as a store keeps them.

Lives here: the mechanisms and what is kept of a password. Must never come in: chance (salts and nonces are arguments),
who may log in. Source: RFC 5802, RFC 7677, Kafka's ScramMechanism and ScramFormatter.
"""

from __future__ import annotations

from typing import NamedTuple


class Mechanism(NamedTuple):
    """A SCRAM mechanism: its name, Kafka's number for it, the hash by Python's name, and the size of its keys."""

    name: str
    number: int
    hash_name: str
    key_bytes: int


ITERATIONS_MIN, ITERATIONS_MAX = 4096, 16384  # as Kafka
SALT_BYTES = 20
MECHANISMS = {
    one.name: one for one in (Mechanism("SCRAM-SHA-256", 1, "sha256", 32), Mechanism("SCRAM-SHA-512", 2, "sha512", 64))
}


class ScramCredential(NamedTuple):
    """What is kept of a password for one mechanism: neither the password nor what a client sends can be had from it."""

    salt: bytes
    iterations: int
    stored_key: bytes
    server_key: bytes
