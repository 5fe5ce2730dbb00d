"""Derives the passwords of a site's services from `security_secret`, by HMAC or by scrypt.

| derivation | password |
|---|---|
| `hmac` | HMAC-SHA-256 of its purpose, with the secret as key |
| `scrypt` | HMAC-SHA-256 of its purpose, with the host's key: scrypt of the secret, salted by the host's name |

The purpose is `drupelet`, host, user and rotation, separated by NUL. The password is the first 32 letters of the
result's base32 text: 160 bits. A thief with one card has one password, and tries secrets against it; by scrypt each try
costs him 128 MiB and 0.3 s of a core.

`Sources` has the secret and the derivation of each rotation of a host: an old log-in keeps its own while it overlaps
with the new one. Source: RFC 7914 (scrypt), RFC 2104 (HMAC), OWASP Password Storage Cheat Sheet (the cost).
"""

from __future__ import annotations

import base64
import fcntl
import hashlib
import hmac
import mmap
import re
import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from ansible import constants
from ansible.errors import AnsibleError

HMAC, SCRYPT = DERIVATIONS = ("hmac", "scrypt")
SECRET_CHARACTERS_MIN = 16
# OWASP's least cost of scrypt: N = 2^17, r = 8, p = 1. One key took 0.34 s of an x86-64 core, and 128 MiB.
# They are part of each password: another number here would lock out every running site.
SCRYPT_N, SCRYPT_R, SCRYPT_P = 1 << 17, 8, 1
SCRYPT_BYTES_MAX = 160 << 20  # 128 * N * r, and OpenSSL's own memory
KEY_BYTES = 32
NUMBER = re.compile(r"[1-9]\d{0,6}", re.ASCII)
SLOTS = 1024  # hosts and former secrets of a site; the keys of more are derived by each task again


class Source(NamedTuple):
    """The secret and the derivation that the passwords of a rotation come from."""

    secret: str
    derivation: str


class Sources(NamedTuple):
    """The source of each rotation of a host: `present`, and `former` with the last rotation of each, in their order."""

    present: Source
    former: tuple[tuple[int, Source], ...] = ()

    def of(self, rotation: int) -> Source:
        """Return the source of a rotation."""
        return next((source for through, source in self.former if rotation <= through), self.present)

    def other_sources(self, rotation: int) -> list[Source]:
        """Return every other source that the inventory could give to a rotation."""
        found = dict.fromkeys(source.secret for source in (self.present, *(source for _, source in self.former)))
        derivations = DERIVATIONS if has_scrypt() else (HMAC,)
        all_of_them = [Source(secret, derivation) for secret in found for derivation in derivations]
        return [source for source in all_of_them if source != self.of(rotation)]


def problems(derivation: Any, rotation: int, former: Any) -> Iterator[tuple[str, str]]:
    """Yield the variable and the sentence of each value that no site can have."""
    if derivation not in DERIVATIONS:
        yield "security_derivation", f"security_derivation is {_as_text(derivation)}: write hmac or scrypt."
    elif derivation == SCRYPT and not has_scrypt():
        yield (
            "security_derivation",
            "security_derivation is scrypt, which this machine's Python lacks, as its OpenSSL has none: run Ansible by "
            "another Python.",
        )
    if not isinstance(former, list | tuple) or not all(isinstance(entry, Mapping) for entry in former):
        yield "security_former", "security_former is no list of entries: write [{through: 1, derivation: hmac}]."
        return  # without its value, which may hold a secret
    numbers = [str(entry.get("through")) for entry in former]
    for number, entry in zip(numbers, former, strict=True):
        if wrong := _problem_of(number, entry, rotation):
            yield "security_former", f"security_former has an entry {wrong}"
    for number in sorted({number for number in numbers if numbers.count(number) > 1}):
        yield "security_former", f"security_former has through: {number} twice: give each rotation one entry."


def _problem_of(number: str, entry: Mapping[str, Any], rotation: int) -> str:
    unknown = sorted(set(entry) - {"through", "derivation", "secret"})
    if unknown:
        return f"with {', '.join(map(str, unknown))}: it takes through, derivation and secret."
    if not NUMBER.fullmatch(number):
        return f"through {_as_text(entry.get('through'))}: write the last rotation that it is for, from 1 on."
    if int(number) >= rotation:
        return (
            f"through {number}, and security_rotation is {rotation}: it is for rotations before the present one, so "
            f"set security_rotation to {int(number) + 1} or more."
        )
    if entry.get("derivation") not in DERIVATIONS:
        return f"through {number} whose derivation is {_as_text(entry.get('derivation'))}: write hmac or scrypt."
    if "secret" in entry and len(str(entry["secret"] or "")) < SECRET_CHARACTERS_MIN:
        return f"through {number} whose secret has fewer than {SECRET_CHARACTERS_MIN} characters."
    return ""


def _as_text(value: Any) -> str:
    return "empty" if value is None or value == "" else str(value)


def sources(secret: str, derivation: Any, rotation: int, former: Any) -> Sources:
    """Return the sources of a host's passwords; AnsibleError: a value that no site can have."""
    for _, text in problems(derivation, rotation, former):
        raise AnsibleError(text)
    found = {int(one["through"]): Source(str(one.get("secret") or secret), str(one["derivation"])) for one in former}
    return Sources(Source(secret, str(derivation)), tuple(sorted(found.items())))


def password(source: Source, host: str, user: str, rotation: int) -> str:
    """Return the password of a user of a host, 32 letters and digits; `user` is its first generation's name."""
    key = source.secret.encode() if source.derivation == HMAC else KEYS.get(source.secret, host, host_key)
    purpose = "\0".join(("drupelet", host, user, str(rotation)))
    return base64.b32encode(hmac.digest(key, purpose.encode(), "sha256"))[:32].decode().lower()


def host_key(secret: str, host: str) -> bytes:
    """Return what the passwords of a host come from by scrypt; AnsibleError: this Python has none."""
    if not has_scrypt():
        raise AnsibleError(next(text for _, text in problems(SCRYPT, 1, ())))
    return scrypt(secret.encode(), f"drupelet\0scrypt\0{host}".encode(), SCRYPT_N, SCRYPT_R, SCRYPT_P, KEY_BYTES)


def scrypt(secret: bytes, salt: bytes, n: int, r: int, p: int, size: int) -> bytes:
    """Return `size` bytes of scrypt (RFC 7914), with room for its memory, which OpenSSL bounds at 32 MiB otherwise."""
    return hashlib.scrypt(secret, salt=salt, n=n, r=r, p=p, maxmem=max(SCRYPT_BYTES_MAX, 2 * 128 * n * r), dklen=size)


@cache
def has_scrypt() -> bool:
    """Return whether this Python can do it: some builds of OpenSSL leave it out, or forbid it."""
    try:
        hashlib.scrypt(b"", salt=b"", n=2, r=1, p=1)
    except (AttributeError, ValueError):
        return False
    return True


def refusal(user: str, owner: str, made: tuple[int, str], wanted: str, rotation: int) -> str:
    """Return why a log-in cannot change its derivation as it is; `made` has its rotation and derivation."""
    number, derivation = made
    remedy = f"let security_former of {owner} say {{through: {number}, derivation: {derivation}}}"
    if number >= rotation:
        remedy = f"set security_rotation of {owner} to {number + 1}, and {remedy}"
    source = f"by {derivation}" if derivation != wanted else f"by {derivation} from another secret"
    return (
        f"The password of {user} comes {source}, and the inventory has rotation {number} of {owner} come by {wanted}: "
        f"the services that use {user} would be locked out until they are played. A derivation changes with the "
        f"rotation alone, so that both log-ins hold: {remedy}."
    )


class Keys:
    """Keys that were derived, in memory that this process shares with all that it forks.

    Ansible forks a process for each host and task. It loads an action before that, so all forks of a run see the keys
    of each other, and each is derived once. The memory is anonymous: it is in no file and ends with the run. One
    process derives at a time, as all at once would need 128 MiB each.
    """

    _TAG = hashlib.sha256().digest_size

    def __init__(self, slots: int = SLOTS) -> None:
        """`slots` is how many keys are shared."""
        self._size = self._TAG + KEY_BYTES
        self._shared = mmap.mmap(-1, slots * self._size)
        self._mark = secrets.token_bytes(32)  # with the memory alone, a tag tells nothing of a secret
        self._own: dict[bytes, bytes] = {}

    def get(self, secret: str, host: str, derive: Callable[[str, str], bytes]) -> bytes:
        """Return the key of a host, which is derived if no process of this run has done so."""
        tag = hmac.digest(self._mark, f"{host}\0{secret}".encode(), "sha256")
        if tag not in self._own:
            with self._alone():
                self._own[tag] = self._find(tag) or self._add(tag, derive(secret, host))
        return self._own[tag]

    def _find(self, tag: bytes) -> bytes:
        for start in range(0, len(self._shared), self._size):
            if self._shared[start : start + self._TAG] == tag:
                return self._shared[start + self._TAG : start + self._size]
        return b""

    def _add(self, tag: bytes, key: bytes) -> bytes:
        for start in range(0, len(self._shared), self._size):
            if not any(self._shared[start : start + self._TAG]):
                # The tag comes last: a process that is killed before it has left no key that another one could find.
                self._shared[start + self._TAG : start + self._size] = key
                self._shared[start : start + self._TAG] = tag
                break
        return key

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Hold the lock of this run, which ends with its process; its file is empty, in Ansible's folder of the run."""
        with (Path(constants.DEFAULT_LOCAL_TMP) / "drupelet-keys.lock").open("ab") as lock:
            fcntl.lockf(lock, fcntl.LOCK_EX)
            yield


KEYS = Keys()
