"""How a message is declared: a class of fields, each with its wire type, versions, tag and default.

Contains: the base class `Message`, the specifiers of lists and structures (`scalars.py` has those of plain values),
and what becomes of a class of them (slots, initialiser).
Does not contain: bytes; `codec.py` reads and writes them. Source: Kafka's message schemas, in our own words
(README.md next to them, KIP-482 for tagged fields).

Versions are written as Kafka writes them: "0+", "4+", "0-12", "3". A field that a version lacks has its default there.
Every field may be left out of the initialiser; what it then is, is the schema's default (0, "", [], the zero UUID).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, cast, dataclass_transform
from uuid import UUID

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

NO_UUID = UUID(int=0)
LAST_VERSION = 0x7FFF
OWN_TAGS = 10_000
"""Tags from here on are of our own, for what brokers of ours tell each other; Kafka's schemas count from 0."""
NEVER = LAST_VERSION + 1

_NEW_LIST: Any = object()  # stands in an initialiser for "a list of its own", as None may be a value


class Versions:
    """An inclusive range of versions, empty when the first lies after the last."""

    __slots__ = ("first", "last")

    def __init__(self, text: str) -> None:
        first, dash, last = text.rstrip("+").partition("-")
        self.first = int(first)
        self.last = LAST_VERSION if text.endswith("+") else int(last if dash else first)

    def __contains__(self, version: int) -> bool:
        return self.first <= version <= self.last


class Field:
    """One declared field: its wire type `kind` and, for arrays and structs, `of` what (a kind or a message).

    `nullable` holds the versions in which null may be sent, None for never; `tag` the number of a tagged field.
    """

    __slots__ = ("default", "kind", "name", "nullable", "of", "tag", "versions")

    def __init__(
        self, kind: str, versions: str, default: Any, tag: int | None, *, nullable: str | None = None, of: Any = None
    ) -> None:
        self.name = ""
        self.kind = kind
        self.versions = Versions(versions)
        self.default = default
        self.tag = tag
        self.nullable = Versions(nullable) if nullable else None
        self.of = of


@dataclass_transform(kw_only_default=True)
class MessageType(type):
    """Makes the fields of a class body its slots and keeps their declarations in `FIELDS`."""

    FIELDS: tuple[Field, ...]

    def __new__(
        cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], *, flexible_from: int = NEVER
    ) -> MessageType:
        """Build the class; `flexible_from` is the first version with compact lengths and tagged fields."""
        fields = {key: value for key, value in namespace.items() if type(value) is Field}
        for key, field in fields.items():
            field.name = key
            del namespace[key]
        namespace["__slots__"] = tuple(fields)
        namespace["FIELDS"] = tuple(fields.values())
        namespace["FLEXIBLE_FROM"] = flexible_from
        return super().__new__(cls, name, bases, namespace)


class Message(metaclass=MessageType):  # noqa: PLW1641 - may change, so has no hash
    """A request, a response, or a structure inside one; all fields are keyword arguments with defaults."""

    FIELDS: ClassVar[tuple[Field, ...]]
    FLEXIBLE_FROM: ClassVar[int]

    def __init__(self, **values: object) -> None:
        cls = type(self)
        type.__setattr__(cls, "__init__", _initialiser(cls))
        cls.__init__(self, **values)

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(getattr(self, field.name) == getattr(other, field.name) for field in self.FIELDS)

    def __repr__(self) -> str:
        shown = ", ".join(f"{field.name}={getattr(self, field.name)!r}" for field in self.FIELDS)
        return f"{type(self).__name__}({shown})"


def _initialiser(cls: type[Message]) -> Callable[..., None]:
    """Compile the initialiser of a class at its first use: straight assignments are four times as fast as a loop."""
    names = {field.name: _NEW_LIST if isinstance(field.default, list) else field.default for field in cls.FIELDS}
    parameters = ", ".join(f"{name}={name}" for name in names)
    lines = [f"def __init__(self{', *, ' if names else ''}{parameters}):"]
    for name, default in names.items():
        value = f"[] if {name} is _new_list else {name}" if default is _NEW_LIST else name
        lines.append(f"    self.{name} = {value}")
    scope = {**names, "_new_list": _NEW_LIST}
    exec("\n".join([*lines, "    return None"]), scope)  # noqa: S102 - made of declared names only
    return cast("Callable[..., None]", scope["__init__"])


def array(of: Callable[..., T], versions: str = "0+", *, tag: int | None = None) -> list[T]:
    """Declare a list of messages (`array(Topic)`) or of a wire type (`array(int32)`)."""
    return cast("list[T]", Field("array", versions, [], tag, of=_element(of)))


def nullable_array(
    of: Callable[..., T], versions: str = "0+", *, nullable: str | None = None, default: list[T] | None = _NEW_LIST
) -> list[T] | None:
    """Declare a list that may be null in the versions `nullable` (all, when not given)."""
    value = [] if default is _NEW_LIST else default
    return cast("list[T] | None", Field("array", versions, value, None, nullable=nullable or versions, of=_element(of)))


def struct(of: type[T], versions: str = "0+", *, tag: int) -> T | None:
    """Declare a tagged structure; None stands for the schema's default, which is not sent."""
    return cast("T | None", Field("struct", versions, None, tag, of=of))


def nullable_struct(of: type[T], versions: str = "0+") -> T | None:
    """Declare a structure that may be null in all its versions, and is by default."""
    return cast("T | None", Field("struct", versions, None, None, nullable=versions, of=of))


def _element(of: Callable[..., object]) -> object:
    """Return the message of an array's elements, or the kind of a wire type given by its specifier."""
    return of if isinstance(of, MessageType) else cast("Field", of()).kind
