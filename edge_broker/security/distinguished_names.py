"""Compares a distinguished name that a person wrote with one in a certificate.

| written | read as |
|---|---|
| `CN=our CA,O=plant` | RFC 2253, as `openssl x509 -nameopt RFC2253` prints it: the last part first |
| `O = plant, CN = our CA` | as `openssl x509` prints it without that: the first part first |
| `1.2.3=#0c0161` | a type by its number, a value by its encoding |
| `O=a\\, b`, `O="a, b"`, `CN=M\\C3\\BCller` | text with characters that are escaped or quoted |

Both orders are accepted, as nothing tells them apart. Contains: reading and comparing of names. Does not contain: what
a principal is called (certificates.py). Source: RFC 2253, X.690, OpenSSL's X509_NAME_print_ex.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from edge_broker.security.certificates import CHARSETS, KEYWORDS, Value, identifier, values

Part = frozenset[tuple[str, str]]
Name = tuple[Part, ...]
"""Parts in the order of the certificate; each holds pairs of type and value. A value that is no text begins with #."""

OF_OPENSSL = {
    "2.5.4.4": "SN",
    "2.5.4.5": "serialNumber",
    "2.5.4.12": "title",
    "2.5.4.13": "description",
    "2.5.4.15": "businessCategory",
    "2.5.4.17": "postalCode",
    "2.5.4.41": "name",
    "2.5.4.42": "GN",
    "2.5.4.43": "initials",
    "2.5.4.44": "generationQualifier",
    "2.5.4.46": "dnQualifier",
    "2.5.4.65": "pseudonym",
    "2.5.4.97": "organizationIdentifier",
    "1.2.840.113549.1.9.1": "emailAddress",
}
"""Names of types that OpenSSL prints in addition to those of Java."""
_NUMBERS = {name.lower(): number for number, name in {**KEYWORDS, **OF_OPENSSL}.items()}
_TYPE = re.compile(r"\s*([^=,+\"\\]+?)\s*=\s*")
_PIECE = re.compile(r'\\([0-9A-Fa-f]{2})|\\(.)|"((?:[^"\\]|\\.)*)"|([^\\",+])', re.DOTALL)
_DOTTED = re.compile(r"[0-2](\.\d+)+")


def read_name(der: bytes) -> Name:
    """Return the name that a certificate has; ValueError where the bytes are none."""
    (whole,) = values(memoryview(der))
    return tuple(frozenset(_pair(one) for one in values(part.content)) for part in values(whole.content))


def parse_name(text: str) -> Name:
    """Return the name that a person wrote; ValueError says in words what is wrong."""
    parts: list[Part] = []
    pairs: list[tuple[str, str]] = []
    position, text = 0, text.strip()
    while True:
        found = _TYPE.match(text, position)
        if found is None:
            raise ValueError(f"{text[position:]!r} begins with no TYPE=VALUE")
        value, position = _value(text, found.end())
        pairs.append((_number(found[1]), value))
        if text[position : position + 1] != "+":
            parts.append(frozenset(pairs))
            pairs = []
        if position == len(text):
            return tuple(parts)
        position += 1


def is_same(written: Name, read: Name) -> bool:
    """Return whether a written name, in either order, is the one that was read."""
    return written in (read, read[::-1])


def _pair(attribute: Value) -> tuple[str, str]:
    number, value = values(attribute.content)
    return identifier(number.content), _text(value)


def _text(value: Value) -> str:
    charset = CHARSETS.get(value.tag)
    return f"#{value.whole.hex()}" if charset is None else str(value.content, charset)


def _number(word: str) -> str:
    number = _NUMBERS.get(word.lower(), word)
    if not _DOTTED.fullmatch(number):
        raise ValueError(f"{word!r} is no type that is known; write its number, as 2.5.4.3 for CN")
    return number


def _value(text: str, position: int) -> tuple[str, int]:
    """The value at `position`, and the position of the separator that ends it, or of the end."""
    pieces: list[tuple[bytes, bool]] = []
    start = position
    while position < len(text) and text[position] not in ",+":
        found = _PIECE.match(text, position)
        if found is None:
            raise ValueError(f"{text[position:]!r} begins with a quote or a backslash that nothing follows")
        pieces += _unescape(found)
        position = found.end()
    plain = b"".join(data for data, _ in _strip(pieces))
    if text[start : start + 1] == "#":
        return _decode_hex(plain[1:].decode("ascii", "replace")), position
    return plain.decode("utf-8", "replace"), position


def _unescape(found: re.Match[str]) -> Iterator[tuple[bytes, bool]]:
    """Bytes of a value, and whether they may be spaces that do not count."""
    pair, escaped, quoted, plain = found.groups()
    if pair is not None:
        yield bytes.fromhex(pair), False
    elif escaped is not None:
        yield escaped.encode(), False
    elif quoted is not None:
        yield re.sub(r"\\(.)", r"\1", quoted).encode(), False
    else:
        yield plain.encode(), plain.isspace()


def _strip(pieces: list[tuple[bytes, bool]]) -> list[tuple[bytes, bool]]:
    begin, end = 0, len(pieces)
    while begin < end and pieces[begin][1]:
        begin += 1
    while end > begin and pieces[end - 1][1]:
        end -= 1
    return pieces[begin:end]


def _decode_hex(digits: str) -> str:
    try:
        (value,) = values(memoryview(bytes.fromhex(digits)))
    except ValueError:
        raise ValueError(f"#{digits} is no value in hexadecimal digits") from None
    return _text(value)
