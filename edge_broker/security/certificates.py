"""Whose an X.509 certificate is, as Kafka's Java writes it: a principal must be the same here and there.

| in the subject | as text |
|---|---|
| parts | the last first, commas between them, `+` between those of one part |
| CN, C, L, ST, O, OU, STREET, DC, UID, of a text type | `CN=text`, a backslash before `,=+<>#;"\\` and outer spaces |
| any other | `1.2.3=#` and the value's bytes as hexadecimal digits |

Contains: the text of a subject. Does not contain: trust, clocks, other fields (drupelet/tls/certificates.py).
Source: RFC 5280, RFC 2253, X.690; Java's X500Principal.getName.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from drupelet.tls.certificates import certificate

KEYWORDS = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "2.5.4.9": "STREET",
    "0.9.2342.19200300.100.1.25": "DC",
    "0.9.2342.19200300.100.1.1": "UID",
}
CHARSETS = {
    0x0C: "utf-8",
    0x13: "ascii",
    0x14: "latin-1",
    0x16: "ascii",
    0x1B: "ascii",
    0x1C: "utf-32-be",
    0x1E: "utf-16-be",
}
ESCAPED = frozenset(',=+<>#;"\\')


class Certificate(NamedTuple):
    """The subject by RFC 2253, and the last second at which the certificate holds, of Unix time."""

    subject: str
    not_after_s: int


class CertificateId(NamedTuple):
    """The name of a certificate: its serial number, and its issuer's name as it is encoded."""

    serial: int
    issuer: bytes


class Value(NamedTuple):
    """A value of an encoding: its tag, its content, and all of it."""

    tag: int
    content: memoryview
    whole: memoryview


def read_certificate(der: bytes) -> Certificate:
    """Read a certificate; ValueError when the bytes are none."""
    read = certificate(der)
    (name,) = values(memoryview(read.subject))
    return Certificate(_subject(name.content), read.end_s)


def certificate_id(der: bytes) -> CertificateId:
    """Return what names a certificate; ValueError when the bytes are none."""
    read = certificate(der)
    return CertificateId(read.serial, read.issuer)


def values(data: memoryview) -> Iterator[Value]:
    """Return the values that follow each other in `data`; ValueError where it is cut short."""
    position = 0
    while position < len(data):
        begin, tag = position, data[position]
        size, position = _size(data, position + 1)
        if position + size > len(data):
            raise ValueError(f"a value of {size} bytes ends outside of what it is in")
        yield Value(tag, data[position : position + size], data[begin : position + size])
        position += size


def _size(data: memoryview, position: int) -> tuple[int, int]:
    """The size at `position`, and the position after it."""
    if position >= len(data):
        raise ValueError("a value without a size")
    size = data[position]
    position += 1
    if size < 0x80:
        return size, position
    digits = size & 0x7F
    if not 0 < digits <= 4 or position + digits > len(data):
        raise ValueError("a size that cannot be read")
    return int.from_bytes(data[position : position + digits], "big"), position + digits


def _subject(name: memoryview) -> str:
    parts = ["+".join(_attribute(one.content) for one in values(part.content)) for part in values(name)]
    return ",".join(reversed(parts))


def _attribute(data: memoryview) -> str:
    number, value = values(data)
    name = identifier(number.content)
    charset, keyword = CHARSETS.get(value.tag), KEYWORDS.get(name)
    if charset is None or keyword is None:
        return f"{name}=#{value.whole.hex()}"
    return f"{keyword}={_escape(str(value.content, charset))}"


def _escape(text: str) -> str:
    begin, end = len(text) - len(text.lstrip(" \r")), len(text.rstrip(" \r"))
    return "".join(
        "\\00" if char == "\0" else f"\\{char}" if char in ESCAPED or not begin <= at < end else char
        for at, char in enumerate(text)
    )


def identifier(data: memoryview) -> str:
    """Return an object identifier as numbers with dots between them; ValueError where it has none."""
    numbers, number = [], 0
    for byte in data:
        number = number << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(number)
            number = 0
    if not numbers:
        raise ValueError("an object identifier without numbers")
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))
