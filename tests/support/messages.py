"""Random messages of any declared class, for tests that send every field through a codec.

Only fields that the version has are filled; the others keep their defaults, as decoding would leave them.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TypeVar, cast
from uuid import UUID

from edge_broker.protocol.message import OWN_TAGS, Field, Message, MessageType

M = TypeVar("M", bound=Message)

TEXTS = ("", "a", "sensor-data", "grüße", "温度", "x" * 126, "y" * 127, "z" * 300)
BLOB_SIZES = (0, 1, 126, 127, 128, 1024, 1025, 20000)
LENGTHS = (0, 0, 1, 1, 2, 3)
PRIMITIVE_LENGTHS = (0, 1, 2, 126, 127, 128)


def random_message(message_type: type[M], version: int, rnd: random.Random, *, own: bool = True) -> M:
    """Return a message with extreme and ordinary values in every field of the version; `own`: also in those of ours."""
    return message_type(**{field.name: _value(field, version, rnd, own) for field in message_type.FIELDS})


def _value(field: Field, version: int, rnd: random.Random, own: bool) -> object:
    foreign = field.tag is not None and field.tag >= OWN_TAGS and not own
    if version not in field.versions or foreign or (field.tag is not None and rnd.random() < 0.4):
        return [] if isinstance(field.default, list) else field.default
    if field.nullable is not None and version in field.nullable and rnd.random() < 0.25:
        return None
    if field.kind == "array":
        lengths = LENGTHS if isinstance(field.of, MessageType) else PRIMITIVE_LENGTHS
        return [_single(field.of, version, rnd, own) for _ in range(rnd.choice(lengths))]
    return _single(field.of if field.kind == "struct" else field.kind, version, rnd, own)


def _single(kind: MessageType | str, version: int, rnd: random.Random, own: bool) -> object:
    if isinstance(kind, MessageType):
        return random_message(cast("type[Message]", kind), version, rnd, own=own)
    if kind.startswith("int"):
        bits = int(kind.removeprefix("int"))
        return rnd.choice((-1, 0, 1, -(2 ** (bits - 1)), 2 ** (bits - 1) - 1, rnd.getrandbits(bits - 1)))
    makers: dict[str, Callable[[], object]] = {
        "bool": lambda: rnd.random() < 0.5,
        "float64": lambda: rnd.choice((0.0, -1.5, 5e-324, 1.7e308, float("inf"), rnd.random())),
        "string": lambda: rnd.choice(TEXTS),
        "bytes": lambda: rnd.randbytes(rnd.choice(BLOB_SIZES)),
        "records": lambda: rnd.randbytes(rnd.choice(BLOB_SIZES)),
        "uuid": lambda: UUID(int=rnd.getrandbits(128)),
    }
    return makers[kind]()
