"""Read from certificates when they end, and their issuers.

Does not contain: clocks, files, connections, the check of a signature, which OpenSSL does.
Source: RFC 5280, section 4.1 (the fields) and 4.1.2.5 (the two forms of a time); X.690 for the encoding.
"""

from __future__ import annotations

import binascii
import calendar
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

_PEM = re.compile(rb"-----BEGIN (?:TRUSTED |X509 )?CERTIFICATE-----(.+?)-----END", re.DOTALL)
_INTEGER, _SEQUENCE, _VERSION, _UTC_TIME, _TIME_KINDS = 0x02, 0x30, 0xA0, 0x17, (0x17, 0x18)
_COMMON_NAME = b"\x06\x03\x55\x04\x03"  # the object identifier 2.5.4.3


class Certificate(NamedTuple):
    """One certificate: both names as they are encoded, its last second since 1970, and its serial number."""

    subject: bytes
    issuer: bytes
    end_s: int
    serial: int = 0

    @property
    def name(self) -> str:
        """Its common name, for a person; empty without one."""
        _, found, rest = self.subject.rpartition(_COMMON_NAME)
        return rest[2 : 2 + rest[1]].decode("utf-8", "replace") if found and len(rest) > 1 else ""


def certificates_in(pem: bytes) -> list[Certificate]:
    """Return the certificates of a PEM file, in its order; ValueError where one of them cannot be read."""
    return [certificate(binascii.a2b_base64(found)) for found in _PEM.findall(pem)]


def certificate(der: bytes) -> Certificate:
    """One certificate from its encoding; ValueError where it is none."""
    try:
        return _certificate(der)
    except (IndexError, UnicodeDecodeError) as error:
        raise ValueError("this is no certificate") from error


def _certificate(der: bytes) -> Certificate:
    start, _ = _inside(der, 0, _SEQUENCE)
    at, _ = _inside(der, start, _SEQUENCE)
    if der[at] == _VERSION:
        at = _after(der, at)
    serial_start, serial_end = _inside(der, at, _INTEGER)
    serial = int.from_bytes(der[serial_start:serial_end], "big", signed=True)
    at = _after(der, serial_end)  # after the signature's algorithm
    issuer_end = _after(der, at)
    validity, subject_start = _inside(der, issuer_end, _SEQUENCE)
    subject_end = _after(der, subject_start)
    return Certificate(der[subject_start:subject_end], der[at:issuer_end], _time(der, _after(der, validity)), serial)


def _inside(der: bytes, at: int, kind: int) -> tuple[int, int]:
    """Return where the content of the element at `at` begins and ends."""
    if der[at] != kind:
        raise ValueError("this is no certificate")
    size, start = der[at + 1], at + 2
    if size >= 0x80:
        count = size & 0x7F
        size, start = int.from_bytes(der[start : start + count], "big"), start + count
    if start + size > len(der):
        raise ValueError("this is no certificate")
    return start, start + size


def _after(der: bytes, at: int) -> int:
    return _inside(der, at, der[at])[1]


def _time(der: bytes, at: int) -> int:
    kind = der[at]
    if kind not in _TIME_KINDS:
        raise ValueError("this is no certificate")
    start, end = _inside(der, at, kind)
    text = der[start:end].decode("ascii")
    if kind == _UTC_TIME:
        text = ("19" if text[:2] >= "50" else "20") + text
    if not re.fullmatch(r"\d{14}Z", text):
        raise ValueError("this is no certificate")
    return calendar.timegm((int(text[:4]), *(int(text[i : i + 2]) for i in range(4, 14, 2))))


def find_ended(chain: Sequence[Certificate], authorities: Iterable[Certificate], now_s: float) -> Certificate | None:
    """Return an ended certificate: of a peer's own, its chain of CAs and the trusted one; None if none has ended.

    `chain` begins with the peer's own. A CA that is in `authorities` under one name more than once ends with the last
    of them, and the rest of the chain is not checked.
    """
    known: dict[bytes, Certificate] = {}
    for each in authorities:
        if each.subject not in known or known[each.subject].end_s < each.end_s:
            known[each.subject] = each
    for number, each in enumerate(chain):
        believed = known.get(each.subject) if number else None
        judged = believed or each
        if judged.end_s < now_s:
            return judged
        if believed is not None:
            return None
    signer = known.get(chain[-1].issuer)  # of a session that was resumed, whose chain is the peer's own alone
    return signer if signer is not None and signer.end_s < now_s else None
