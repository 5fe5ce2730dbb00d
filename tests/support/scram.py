"""The client's side of PLAIN and SCRAM, written from the RFCs with nothing of the broker's."""

from __future__ import annotations

import base64
import hashlib
import hmac
from functools import lru_cache

HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}


def plain(user: str, password: str, authorization_id: str = "") -> bytes:
    return f"{authorization_id}\0{user}\0{password}".encode()


@lru_cache(maxsize=64)  # as clients keep it that log in again and again
def _salted(name: str, password: bytes, salt: bytes, iterations: int) -> bytes:
    return hashlib.pbkdf2_hmac(name, password, salt, iterations)


class ScramClient:
    """One log-in: `first`, then `final` with the server's answer, then `verifies` with its last one."""

    def __init__(
        self,
        mechanism: str,
        user: str,
        password: str,
        nonce: str = "nonce",
        *,
        header: str = "n,,",
        extension: str = "",
        before_nonce: str = "",
    ) -> None:
        self._hash = HASHES[mechanism]
        self._password = password
        self._nonce = nonce
        self._header = header
        self._before_nonce = before_nonce
        name = user.replace("=", "=3D").replace(",", "=2C")
        self._bare = f"n={name},r={nonce}{extension}"
        self._message = ""
        self._salted = b""

    @property
    def first(self) -> bytes:
        return (self._header + self._bare).encode()

    def final(self, server_first: bytes, *, extension: str = "") -> bytes:
        parts = dict(part.split("=", 1) for part in server_first.decode().split(","))
        assert parts["r"].startswith(self._nonce)
        assert len(parts["r"]) >= len(self._nonce) + 16
        salt, iterations = base64.b64decode(parts["s"]), int(parts["i"])
        self._salted = _salted(self._hash, self._password.encode(), salt, iterations)
        without_proof = (
            f"c={base64.b64encode(self._header.encode()).decode()},r={self._before_nonce}{parts['r']}{extension}"
        )
        self._message = f"{self._bare},{server_first.decode()},{without_proof}"
        client_key = hmac.digest(self._salted, b"Client Key", self._hash)
        signature = hmac.digest(hashlib.new(self._hash, client_key).digest(), self._message.encode(), self._hash)
        proof = bytes(one ^ other for one, other in zip(client_key, signature, strict=True))
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()

    def verifies(self, server_final: bytes) -> bool:
        server_key = hmac.digest(self._salted, b"Server Key", self._hash)
        signature = hmac.digest(server_key, self._message.encode(), self._hash)
        return server_final == b"v=" + base64.b64encode(signature)
