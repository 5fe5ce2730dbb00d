"""A filter that makes the hash which mosquitto's password file holds, without a program that takes passwords in argv.

Source: mosquitto 2.0, mosquitto_passwd: `$7$ITERATIONS$SALT$HASH`, PBKDF2 with SHA-512, salt of 12 bytes, hash of 64.
"""

from __future__ import annotations

import hashlib
from base64 import b64encode
from collections.abc import Callable

ITERATIONS = 10_000


def mosquitto_password(password: str, salt_text: str) -> str:
    """Return the hash of a password; the same `salt_text` (host and user) gives the same hash each time."""
    salt = hashlib.sha256(salt_text.encode()).digest()[:12]
    digest = hashlib.pbkdf2_hmac("sha512", password.encode(), salt, ITERATIONS, 64)
    return f"$7${ITERATIONS}${b64encode(salt).decode()}${b64encode(digest).decode()}"


class FilterModule:
    """The filter plugin."""

    def filters(self) -> dict[str, Callable[[str, str], str]]:
        """Return the filters by name."""
        return {"mosquitto_password": mosquitto_password}
