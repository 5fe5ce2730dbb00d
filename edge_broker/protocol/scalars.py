"""The fields of a message that hold one value each: a number, a text, bytes.

Contains: their specifiers, a line each. Does not contain: what is made of fields, which `message.py` has.
"""

from __future__ import annotations

from typing import Any, cast
from uuid import UUID

from edge_broker.protocol.message import NO_UUID, Field


def int8(versions: str = "0+", *, default: int = 0, tag: int | None = None) -> int:
    """Declare a signed byte."""
    return cast("int", Field("int8", versions, default, tag))


def int16(versions: str = "0+", *, default: int = 0, tag: int | None = None) -> int:
    """Declare a signed integer of two bytes."""
    return cast("int", Field("int16", versions, default, tag))


def int32(versions: str = "0+", *, default: int = 0, tag: int | None = None) -> int:
    """Declare a signed integer of four bytes."""
    return cast("int", Field("int32", versions, default, tag))


def int64(versions: str = "0+", *, default: int = 0, tag: int | None = None) -> int:
    """Declare a signed integer of eight bytes."""
    return cast("int", Field("int64", versions, default, tag))


def uint16(versions: str = "0+", *, default: int = 0, tag: int | None = None) -> int:
    """Declare an unsigned integer of two bytes."""
    return cast("int", Field("uint16", versions, default, tag))


def uint32(versions: str = "0+", *, default: int = 0, tag: int | None = None) -> int:
    """Declare an unsigned integer of four bytes."""
    return cast("int", Field("uint32", versions, default, tag))


def float64(versions: str = "0+", *, default: float = 0.0, tag: int | None = None) -> float:
    """Declare a floating point number of eight bytes."""
    return cast("float", Field("float64", versions, default, tag))


def boolean(versions: str = "0+", *, default: bool = False, tag: int | None = None) -> bool:
    """Declare a truth value, one byte."""
    return cast("bool", Field("bool", versions, default, tag))


def uuid_(versions: str = "0+", *, tag: int | None = None) -> UUID:
    """Declare a UUID; `NO_UUID` stands for none."""
    return cast("UUID", Field("uuid", versions, NO_UUID, tag))


def string(versions: str = "0+", *, default: str = "", tag: int | None = None) -> str:
    """Declare a text that is never null, at most 32767 bytes of UTF-8."""
    return cast("str", Field("string", versions, default, tag))


def nullable_string(
    versions: str = "0+", *, nullable: str | None = None, default: str | None = "", tag: int | None = None
) -> str | None:
    """Declare a text that may be null in the versions `nullable` (all, when not given)."""
    return cast("str | None", Field("string", versions, default, tag, nullable=nullable or versions))


def bytes_(versions: str = "0+", *, tag: int | None = None) -> bytes:
    """Declare bytes that are never null; decoding copies them, as they are kept for longer than the frame."""
    return cast("bytes", Field("bytes", versions, b"", tag))


def nullable_bytes(
    versions: str = "0+", *, nullable: str | None = None, default: bytes | None = b"", tag: int | None = None
) -> bytes | None:
    """Declare bytes that may be null in the versions `nullable` (all, when not given); decoding copies them."""
    return cast("bytes | None", Field("bytes", versions, default, tag, nullable=nullable or versions))


def records(versions: str = "0+") -> Any:
    """Declare record batches, null allowed; decoding gives a view into the frame, encoding does not copy large ones.

    The annotation says which buffers are meant: requests hold views, responses whatever storage reads into.
    """
    return Field("records", versions, None, None, nullable=versions)
