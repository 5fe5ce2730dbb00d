"""Names as certificates have them."""

from __future__ import annotations


def encoded_name(common_name: str) -> bytes:
    """A name with this CN alone, in DER; of at most 100 ASCII characters."""
    text = common_name.encode("ascii")
    content = b"\x06\x03\x55\x04\x03\x0c" + bytes([len(text)]) + text
    for tag in (b"\x30", b"\x31", b"\x30"):
        content = tag + bytes([len(content)]) + content
    return content
