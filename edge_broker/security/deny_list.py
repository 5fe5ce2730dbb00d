"""Deny clients with a valid certificate or password: one entry per line of a file.

| line | denies |
|---|---|
| `serial=5F3A09` | every certificate of this serial number, and those that a CA of this number signed |
| `serial=5F3A09 issuer=CN=our CA` | the same, of this issuer alone |
| `User:CN=pump-7`, `User:ann` | a principal, as ACLs name it: by certificate, or a user by its log-in |
| empty, or begins with `#` | nothing |

A serial number is written as `openssl x509 -noout -serial` prints it, and an issuer as `-issuer` does.

Contains: the lines, and whom they deny. Does not contain: files (network/background/deny_list_file.py), connections.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from edge_broker.configuration.security_keys import DENY_LIST
from edge_broker.security.certificates import CertificateId
from edge_broker.security.distinguished_names import Name, is_same, parse_name, read_name
from edge_broker.security.principals import ANONYMOUS, USER

SHOWN_CHARACTERS_MAX = 60
_SERIAL = re.compile(r"serial=(-?)([0-9A-Fa-f:]{1,128})(?:\s+issuer=(.*))?", re.DOTALL)
_HINT = (
    "write serial=HEX, as openssl x509 -noout -serial prints it, if need be with a space and issuer=NAME after it; or "
    "User:NAME, as in ACLs"
)


class _OfIssuer(NamedTuple):
    """A line about a serial number; `issuer` is `None` where every issuer counts."""

    issuer: Name | None
    line: int

    def denies(self, certificate: CertificateId) -> bool:
        """Whether the line is about this certificate, whose serial number is the line's."""
        if self.issuer is None:
            return True
        try:
            return is_same(self.issuer, read_name(certificate.issuer))
        except ValueError:  # an issuer that cannot be read is none that could be told from the line's
            return True


class DenyList(NamedTuple):
    """Principals with their lines, and what is denied of each serial number."""

    principals: Mapping[str, int] = {}
    serials: Mapping[int, tuple[_OfIssuer, ...]] = {}

    @property
    def entries(self) -> int:
        """How many principals and certificates are denied; one that is named twice counts once."""
        return len(self.principals) + sum(map(len, self.serials.values()))

    def denial(self, principals: Iterable[str], certificates: Iterable[CertificateId] = ()) -> str:
        """Return in a sentence which line denies one of these, empty: none does."""
        for principal in principals:
            if (line := self.principals.get(principal)) is not None:
                return f"line {line} of {DENY_LIST} denies {principal}"
        for certificate in certificates:
            for entry in self.serials.get(certificate.serial, ()):
                if entry.denies(certificate):
                    return f"line {entry.line} of {DENY_LIST} denies the certificate of serial={certificate.serial:X}"
        return ""


def parse_deny_list(data: bytes) -> DenyList:
    """Return what the lines say; ValueError names the first that says nothing, by its number, and the remedy.

    The last line must have an end: without one it may be half of a written line.
    """
    if data and not data.endswith(b"\n"):
        number = data.count(b"\n") + 1
        raise ValueError(f"line {number} has no end; write it whole, with a newline after it")
    principals: dict[str, int] = {}
    serials: dict[int, dict[Name | None, int]] = {}
    for number, line in enumerate(data.split(b"\n"), 1):
        try:
            text = line.decode().strip()
            if text.startswith("serial="):
                serial, issuer = _serial(text)
                serials.setdefault(serial, {}).setdefault(issuer, number)
            elif text and not text.startswith("#"):
                principals.setdefault(_principal(text), number)
        except UnicodeDecodeError:
            raise ValueError(f"line {number} is not UTF-8; save the file as UTF-8") from None
        except ValueError as error:
            shown = text if len(text) <= SHOWN_CHARACTERS_MAX else f"{text[:SHOWN_CHARACTERS_MAX]}…"
            raise ValueError(f"line {number} is {shown!r}: {error}") from None
    return DenyList(
        principals,
        {serial: tuple(_OfIssuer(issuer, line) for issuer, line in found.items()) for serial, found in serials.items()},
    )


def _serial(text: str) -> tuple[int, Name | None]:
    found = _SERIAL.fullmatch(text)
    digits = found[2].replace(":", "") if found else ""
    if found is None or not digits:
        raise ValueError(_HINT)
    issuer = parse_name(found[3]) if found[3] is not None else None
    return int(found[1] + digits, 16), issuer


def _principal(text: str) -> str:
    if not text.startswith(USER) or text == USER:
        raise ValueError(_HINT)
    if text == ANONYMOUS:
        raise ValueError("it is who has not logged in, and no log-in of it can be refused; leave it out")
    return text
