"""Bytes to messages and back: straight-line functions, written and compiled per message and version at first use.

Contains: Kafka's wire types and the writer of those functions. Does not contain: knowledge of a particular message.
Source: Kafka protocol guide (types), KIP-482 (compact lengths, tagged fields).

    type        before flexible versions             in flexible versions
    int, bool   big-endian, 1 to 8 bytes             the same
    uuid        16 bytes                             the same
    string      int16 length (-1 null), UTF-8        uvarint length + 1 (0 null), UTF-8
    bytes       int32 length (-1 null), bytes        uvarint length + 1 (0 null), bytes
    array       int32 count (-1 null), elements      uvarint count + 1 (0 null), elements
    struct      its fields                           its fields, tagged section
    nullable    int8 -1 for null, else 1 and the     the same
    struct      struct
    tagged section: uvarint count, then per field uvarint tag, uvarint size, value; unknown tags are skipped

How a decoder stays inside the frame: fixed-size reads raise at its end; a length may lead past it, but the position
never goes back, and a last position past the end raises; a count is compared with the bytes that are left, at the least
size of an element, before anything is made for it. Bytes after a message are ignored, as Kafka does.

One byte on the wire may be a hundred in memory, and milliseconds of work. So there are three kinds of functions:

    whole       decode, encode             at once, whatever the size
    small       decode_small               at once; TooLargeAtOnce when an array has more than SMALL_ARRAY elements
    in steps    decode_steps, encode_steps a generator that pauses every STEP_BYTES of memory or STEP_ELEMENTS
"""

from __future__ import annotations

from functools import lru_cache
from struct import Struct, error, pack, unpack_from
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar
from uuid import UUID

from edge_broker.errors import ProtocolViolation
from edge_broker.protocol.message import NO_UUID, Message, MessageType

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from edge_broker.protocol.message import Field

    Decoder = Callable[[memoryview, int, int], Any]
    Encoder = Callable[[Any], list[bytes | memoryview]]
    DecoderInSteps = Callable[[memoryview, int, int], Generator[int, None, Any]]
    EncoderInSteps = Callable[[Any], Generator[None, None, list[bytes | memoryview]]]

M = TypeVar("M", bound=Message)

STRING_BYTES_MAX = 0x7FFF
SMALL_ARRAY = 64
NUMBERS_AT_ONCE = 4096  # of an array that is read in steps
TAGS_MAX = 1024  # in one tagged section; Kafka has a handful
STEP_BYTES = 16_384
STEP_ELEMENTS = 64
STEP_PIECES = 2048  # joined within a step: those of a whole answer would take 20 ms
OBJECT_BYTES = 56
REFERENCE_BYTES = 8
TEXT_BYTES = 57  # of an object, without its characters
NUMBER_BYTES = 32
COPIED_BYTES_MAX = 1024  # records up to this size are joined with their neighbours: cheaper than a buffer more

_FORMATS = {
    "int8": "b",
    "int16": "h",
    "int32": "i",
    "int64": "q",
    "uint16": "H",
    "uint32": "I",
    "float64": "d",
    "bool": "?",
    "uuid": "16s",
}
_WEIGHED = frozenset({"array", "struct", "string", "bytes"})
_SIZES = {kind: Struct(f">{code}").size for kind, code in _FORMATS.items()}

_decoders: dict[tuple[type[Message], int], Decoder] = {}
_small_decoders: dict[tuple[type[Message], int], Decoder] = {}
_decoders_in_steps: dict[tuple[type[Message], int], DecoderInSteps] = {}
_encoders: dict[tuple[type[Message], int], Encoder] = {}
_encoders_in_steps: dict[tuple[type[Message], int], EncoderInSteps] = {}


class TooLargeAtOnce(Exception):
    """An array has more elements than are read at once."""


def decode(message_type: type[M], version: int, buffer: memoryview, position: int = 0) -> M:
    """Read the message at `position`; records are views into the buffer, bytes after the message are ignored.

    Raises ProtocolViolation when there is no whole message.
    """
    decoder = _decoders.get((message_type, version)) or _compile_decoder(message_type, version)
    try:
        message: M = decoder(buffer, position, len(buffer))
    except (error, IndexError, UnicodeDecodeError) as reason:
        raise ProtocolViolation(f"{message_type.__name__} version {version} cannot be read: {reason}.") from reason
    return message


def decode_small(message_type: type[M], version: int, buffer: memoryview, position: int = 0) -> M:
    """Read the message as `decode` does, or raise TooLargeAtOnce before the first array of more than SMALL_ARRAY."""
    decoder = _small_decoders.get((message_type, version)) or _compile_small_decoder(message_type, version)
    try:
        message: M = decoder(buffer, position, len(buffer))
    except (error, IndexError, UnicodeDecodeError) as reason:
        raise ProtocolViolation(f"{message_type.__name__} version {version} cannot be read: {reason}.") from reason
    return message


def decode_steps(message_type: type[M], version: int, buffer: memoryview, position: int = 0) -> Generator[int, None, M]:
    """Read the message in steps; each yields the bytes of memory that it takes by then, before large arrays are made.

    The memory is an estimate from above: objects, and four bytes for each byte of text. Raises as `decode`.
    """
    decoder = _decoders_in_steps.get((message_type, version)) or _compile_decoder_in_steps(message_type, version)
    try:
        message: M = yield from decoder(buffer, position, len(buffer))
    except (error, IndexError, UnicodeDecodeError) as reason:
        raise ProtocolViolation(f"{message_type.__name__} version {version} cannot be read: {reason}.") from reason
    return message


def encode_steps(message: Message, version: int) -> Generator[None, None, list[bytes | memoryview]]:
    """Write a message as `encode` does, in steps."""
    key = (type(message), version)
    encoder = _encoders_in_steps.get(key) or _compile_encoder_in_steps(*key)
    return encoder(message)


def weight(value: object) -> int:
    """The bytes of memory that a message or a part of one takes, which are more than its bytes on the wire.

    Counted without records: those are buffers of their own.
    """
    if isinstance(value, Message):
        size = OBJECT_BYTES + REFERENCE_BYTES * len(value.FIELDS)
        for field in value.FIELDS:
            if field.kind in _WEIGHED:
                size += weight(getattr(value, field.name))
        return size
    if isinstance(value, list):
        if value and isinstance(value[0], (int, float)):
            return OBJECT_BYTES + (REFERENCE_BYTES + NUMBER_BYTES) * len(value)
        return OBJECT_BYTES + sum(REFERENCE_BYTES + weight(item) for item in value)
    return TEXT_BYTES + len(value) if isinstance(value, (str, bytes)) else REFERENCE_BYTES


def elements(message: Message) -> list[object]:
    """Yield the elements of its arrays, and of theirs if they are few: the whole in slices."""
    found: list[object] = []
    for field in message.FIELDS:
        if field.kind == "array" and (items := getattr(message, field.name)):
            found += items
            if len(items) <= SMALL_ARRAY and isinstance(items[0], Message):
                for item in items:
                    found += elements(item)
    return found


def encode(message: Message, version: int) -> list[bytes | memoryview]:
    """Write a message as parts to be sent one after the other; large records are handed on, not copied.

    A value that its type cannot hold is our own bug and raises struct.error, TypeError or AttributeError.
    """
    encoder = _encoders.get((type(message), version)) or _compile_encoder(type(message), version)
    return encoder(message)


def read_uvarint(buffer: memoryview | bytes, position: int) -> tuple[int, int]:
    """Read an unsigned varint of at most 32 bits; return it and the position after it."""
    value = buffer[position]
    if value > 127:
        value, position = _rest_of_uvarint(buffer, position, value)
    return value, position + 1


def uvarint(value: int) -> bytes:
    """Write an unsigned varint."""
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def skip_tags(buffer: memoryview | bytes, position: int) -> int:
    """Return the position after a tagged section, which may lie past the end of the buffer."""
    count, position = read_uvarint(buffer, position)
    if count > TAGS_MAX:
        _bad("tagged section", count, position)
    for _ in range(count):
        _, position = read_uvarint(buffer, position)
        size, position = read_uvarint(buffer, position)
        position += size
    return position


def _rest_of_uvarint(buffer: memoryview | bytes, position: int, first: int) -> tuple[int, int]:
    """The value of an unsigned varint of several bytes, the first of them at `position`, and where its last one is."""
    position += 1
    second = buffer[position]
    if second < 128:
        return first & 127 | second << 7, position
    value = first & 127 | (second & 127) << 7
    for shift in (14, 21, 28):
        position += 1
        byte = buffer[position]
        value |= (byte & 127) << shift
        if byte < 128:
            break
    else:
        raise ProtocolViolation(f"The varint that ends at byte {position + 1} is longer than 5 bytes.")
    if value > 0xFFFFFFFF:
        raise ProtocolViolation(f"The varint that ends at byte {position + 1} is larger than 32 bits.")
    return value, position


def _bad(what: str, value: int, position: int) -> NoReturn:
    raise ProtocolViolation(f"{what} at byte {position}: {value} is no valid length or end.")


@lru_cache(maxsize=1024)
def _uuid(value: bytes) -> UUID:
    return UUID(bytes=value)


@lru_cache(maxsize=256)
def _struct(codes: str) -> Struct:
    return Struct(">" + codes)


_SCOPE: dict[str, Any] = {
    "bad": _bad,
    "more": _rest_of_uvarint,
    "uv": uvarint,
    "uuid_of": _uuid,
    "skip_tags": skip_tags,
    "pack": pack,
    "unpack_from": unpack_from,
    "new": object.__new__,
    "no_uuid": NO_UUID,
    "byte": [bytes((value,)) for value in range(128)],
    "nothing": b"\0",  # no tagged fields; null where lengths are compact
    "one": b"\1",  # empty there
    "zero_i": bytes(4),
    "null_i": b"\xff" * 4,
    "null_h": b"\xff" * 2,
}


class _Source:
    """Lines of a function being written, and the names its globals need."""

    def __init__(self, message_type: type[Message], version: int) -> None:
        self.name = message_type.__name__
        self.version = version
        self.flexible = version >= message_type.FLEXIBLE_FROM
        self.lines: list[str] = []
        self.depth = 1
        self.scope = dict(_SCOPE)
        self.fixed: list[tuple[str, str]] = []  # format code and expression of neighbours still to be read or written
        self.count = 0

    def line(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    def fresh(self, stem: str) -> str:
        self.count += 1
        return f"{stem}{self.count}"

    def fields(self, of: MessageType) -> tuple[list[Field], list[Field]]:
        """Return the plain and the tagged fields that the version has, in order."""
        present = [field for field in of.FIELDS if self.version in field.versions]
        plain = [field for field in present if field.tag is None]
        return plain, sorted((field for field in present if field.tag is not None), key=lambda field: field.tag or 0)

    def nullable(self, field: Field) -> bool:
        return field.nullable is not None and self.version in field.nullable

    def least_size(self, of: MessageType | str) -> int:
        """Return the fewest bytes that a value can take on the wire, at least 1."""
        if isinstance(of, MessageType):
            size = sum(1 if field.kind == "struct" else self.least_size(field.kind) for field in self.fields(of)[0])
            return max(1, size + self.flexible)
        if of in _SIZES:
            return _SIZES[of]
        return 1 if self.flexible else 2 if of == "string" else 4

    def compile(self, head: str) -> Any:
        """Return the function `head` introduces."""
        code = compile("\n".join([f"def {head}:", *self.lines]), f"<{self.name} version {self.version}>", "exec")
        exec(code, self.scope)  # noqa: S102 - written from our own declarations
        return self.scope[head.partition("(")[0]]


class _DecoderSource(_Source):
    """Writes `decode(b, p, e)`: buffer, position, end; in steps also memory `w` so far and `y` of the next pause."""

    def __init__(self, message_type: type[Message], version: int, *, small: bool = False, steps: bool = False) -> None:
        super().__init__(message_type, version)
        self.small = small
        self.steps = steps

    def weigh(self, size: int | str) -> None:
        """Count memory that was taken."""
        if self.steps:
            self.line(f"w += {size}")

    def pause(self) -> None:
        """Let others go on if there was enough to do."""
        if self.steps:
            self.line("if w >= y:")
            self.line("    yield w")
            self.line(f"    y = w + {STEP_BYTES}")

    def flush(self) -> None:
        """Read the fixed-size neighbours collected so far in one go."""
        if not self.fixed:
            return
        codes = "".join(code for code, _ in self.fixed)
        read = f"read_{codes.replace('?', 'z')}"
        self.scope[read] = _struct(codes).unpack_from
        targets = ", ".join(target for _, target in self.fixed)
        self.line(f"{targets}{',' if len(self.fixed) == 1 else ''} = {read}(b, p)")
        self.line(f"p += {_struct(codes).size}")
        uuids = [target for code, target in self.fixed if code == "16s"]
        self.fixed.clear()
        for target in uuids:
            self.line(f"{target} = uuid_of({target})")

    def length(self, code: str) -> str:
        """Read a length or count; return its name. Null is -1, as before flexible versions."""
        name = self.fresh("n")
        if not self.flexible:
            self.fixed.append((code, name))
            self.flush()
            return name
        self.uvarint(name)
        self.line(f"{name} -= 1")
        return name

    def uvarint(self, name: str) -> None:
        self.flush()
        self.line(f"{name} = b[p]")
        self.line(f"if {name} > 127: {name}, p = more(b, p, {name})")
        self.line("p += 1")

    def message(self, of: MessageType, name: str) -> None:
        """Read the fields of a structure into the object `name`."""
        plain, tagged = self.fields(of)
        for field in of.FIELDS:
            if field not in plain:
                self.line(f"{name}.{field.name} = {_default(field)}")
        for field in plain:
            self.value(field, f"{name}.{field.name}", f"{of.__name__}.{field.name}")
        if self.flexible:
            self.tags(tagged, name, of.__name__)
        self.flush()

    def tags(self, tagged: list[Field], name: str, of: str) -> None:
        """Read the tagged section."""
        self.flush()
        if not tagged:
            self.line("if b[p]: p = skip_tags(b, p)")
            self.line("else: p += 1")
            return
        count, tag, stop = self.fresh("n"), self.fresh("t"), self.fresh("s")
        self.uvarint(count)
        self.line(f"if {count} > {TAGS_MAX}: bad('{of} tags', {count}, p)")
        self.line(f"for _ in range({count}):")
        self.depth += 1
        self.uvarint(tag)
        self.uvarint(stop)
        self.line(f"{stop} += p")
        for index, field in enumerate(tagged):
            self.line(f"{'el' if index else ''}if {tag} == {field.tag}:")
            self.depth += 1
            self.value(field, f"{name}.{field.name}", f"{of}.{field.name}")
            self.flush()
            self.depth -= 1
        self.line(f"else: p = {stop}")
        self.line(f"if p != {stop}: bad('{of} tag', {stop}, p)")
        self.depth -= 1

    def value(self, field: Field, target: str, what: str) -> None:
        """Read one field into `target`; `what` names it in errors."""
        if field.kind in _FORMATS:
            self.fixed.append((_FORMATS[field.kind], target))
        elif field.kind == "array":
            self.array(field, target, what)
        elif field.kind == "struct":
            self.struct(field, target, what)
        else:
            self.blob(field.kind, target, what, nullable=self.nullable(field))

    def blob(self, kind: str, target: str, what: str, *, nullable: bool) -> None:
        """Read a string, bytes or records."""
        if self.flexible:
            length, begin = self.compact_length(kind, target, what, nullable=nullable), "p + 1"
        else:
            length, begin = self.length("h" if kind == "string" else "i"), "p"
            self.null_check(length, target, what, nullable=nullable, unsigned=False)
        self.depth += nullable
        end = self.fresh("q")
        self.line(f"{end} = p + {length}")
        part = f"b[{begin}:{end}]"
        made = {"string": f"str({part}, 'utf-8')", "bytes": f"bytes({part})", "records": part}[kind]
        self.line(f"{target} = {made}")
        if kind != "records":
            self.weigh(f"{TEXT_BYTES} + {length}{' * 4' if kind == 'string' else ''}")
        self.line(f"p = {end}")
        self.depth -= nullable

    def compact_length(self, kind: str, target: str, what: str, *, nullable: bool) -> str:
        """Read a length that was written as one more than it is, 0 for null; `p` stays at its last byte.

        So `p` and what was written make the end, and what follows begins at the byte after `p`.
        """
        length = self.fresh("n")
        self.flush()
        self.line(f"{length} = b[p]")
        self.line(f"if {length} > 127:")
        self.line(f"    {length}, p = more(b, p, {length})")
        if kind == "string":
            self.line(f"    if {length} > {STRING_BYTES_MAX + 1}: bad('{what}', {length} - 1, p + 1)")
        if nullable:
            self.line(f"if not {length}:")
            self.line(f"    {target} = None")
            self.line("    p += 1")
            self.line("else:")
        else:
            self.line(f"if not {length}: bad('{what}', -1, p + 1)")
        return length

    def null_check(self, length: str, target: str, what: str, *, nullable: bool, unsigned: bool) -> None:
        """Refuse negative lengths; for nullable fields what follows is the `else` branch of null.

        An `unsigned` one was written as one more than it is, so that -1 is the least there is.
        """
        if not (nullable and unsigned):
            self.line(f"if {length} < {-1 if nullable else 0}: bad('{what}', {length}, p)")
        if nullable:
            self.line(f"if {length} < 0: {target} = None")
            self.line("else:")

    def array(self, field: Field, target: str, what: str) -> None:
        """Read an array."""
        count, nullable = self.length("i"), self.nullable(field)
        self.null_check(count, target, what, nullable=nullable, unsigned=self.flexible)
        self.depth += nullable
        self.line(f"if {count} * {self.least_size(field.of)} > e - p: bad('{what}', {count}, p)")
        if self.small:
            self.line(f"if {count} > {SMALL_ARRAY}: raise TooLarge")
        self.weigh(f"{OBJECT_BYTES} + {self.element_bytes(field.of)} * {count}")
        if self.steps:
            self.line("yield w")
        if field.of in _FORMATS and field.of != "uuid":
            self.numbers(field.of, count, target)
        else:
            self.elements(field.of, count, target, what)
        self.depth -= nullable

    def numbers(self, of: str, count: str, target: str) -> None:
        """Read the elements of an array of numbers, so many at once."""
        if not self.steps:
            self.line(f"{target} = list(unpack_from(f'>{{{count}}}{_FORMATS[of]}', b, p))")
            self.line(f"p += {count} * {_SIZES[of]}")
            return
        items, first, some = self.fresh("l"), self.fresh("q"), self.fresh("n")
        self.line(f"{items} = {target} = []")
        self.line(f"for {first} in range(0, {count}, {NUMBERS_AT_ONCE}):")
        self.line(f"    {some} = min({NUMBERS_AT_ONCE}, {count} - {first})")
        self.line(f"    {items} += unpack_from(f'>{{{some}}}{_FORMATS[of]}', b, p)")
        self.line(f"    p += {some} * {_SIZES[of]}")
        self.line("    yield w")

    def elements(self, of: MessageType | str, count: str, target: str, what: str) -> None:
        """Read the elements of an array one by one."""
        items, item = self.fresh("l"), self.fresh("x")
        self.line(f"{items} = {target} = []")
        self.line(f"for _ in range({count}):")
        self.depth += 1
        if isinstance(of, MessageType):
            self.scope[of.__name__] = of
            self.line(f"{item} = new({of.__name__})")
            self.weigh(OBJECT_BYTES + (REFERENCE_BYTES + NUMBER_BYTES // 2) * len(of.FIELDS))
            self.message(of, item)
        elif of == "uuid":
            self.fixed.append(("16s", item))
            self.flush()
        else:
            self.blob(of, item, what, nullable=False)
        self.line(f"{items}.append({item})")
        self.pause()
        self.depth -= 1

    def element_bytes(self, of: MessageType | str) -> int:
        """Memory of one element that is known before it is read."""
        if isinstance(of, MessageType):
            return 0  # counted one by one, as most of a large array may never be read
        return REFERENCE_BYTES + NUMBER_BYTES if of in _FORMATS else 0

    def struct(self, field: Field, target: str, what: str) -> None:
        """Read a structure, after its null marker where it is nullable."""
        nullable, item = self.nullable(field), self.fresh("x")
        if nullable:
            marker = self.fresh("n")
            self.fixed.append(("b", marker))
            self.flush()
            self.null_check(marker, target, what, nullable=True, unsigned=False)
        self.depth += nullable
        self.flush()
        self.scope[field.of.__name__] = field.of
        self.line(f"{item} = {target} = new({field.of.__name__})")
        self.message(field.of, item)
        self.depth -= nullable


class _EncoderSource(_Source):
    """Writes `encode(m)`: small pieces go through `a` into the list `o`, finished parts into `out`."""

    def __init__(self, message_type: type[Message], version: int, *, steps: bool = False) -> None:
        super().__init__(message_type, version)
        self.sink = "a"
        self.steps = steps

    def flush(self) -> None:
        """Write the fixed-size neighbours collected so far in one go."""
        if not self.fixed:
            return
        if self.fixed == [("B", "0")]:
            self.fixed.clear()
            self.line(f"{self.sink}(nothing)")
            return
        codes = "".join(code for code, _ in self.fixed)
        write = f"write_{codes.replace('?', 'z')}"
        self.scope[write] = _struct(codes).pack
        self.line(f"{self.sink}({write}({', '.join(value for _, value in self.fixed)}))")
        self.fixed.clear()

    def length(self, code: str, value: str) -> None:
        """Write a length or count, given as an expression."""
        if not self.flexible:
            self.fixed.append((code, value))
            self.flush()
            return
        name = self.fresh("n")
        self.line(f"{name} = {value} + 1")
        self.uvarint(name)

    def null(self, name: str, code: str) -> None:
        """Write null where there is nothing; what follows is the `else` branch."""
        self.flush()
        self.line(f"if {name} is None: {self.sink}({'nothing' if self.flexible else f'null_{code}'})")
        self.line("else:")

    def uvarint(self, name: str) -> None:
        self.flush()
        self.line(f"{self.sink}(byte[{name}] if {name} < 128 else uv({name}))")

    def message(self, of: MessageType, name: str) -> None:
        """Write the fields of the structure `name`."""
        plain, tagged = self.fields(of)
        for field in plain:
            self.value(field, f"{name}.{field.name}")
        if not self.flexible:
            return
        if tagged:
            self.tags(tagged, name)
        else:
            self.fixed.append(("B", "0"))

    def tags(self, tagged: list[Field], name: str) -> None:
        """Write the tagged section: the fields that differ from their defaults."""
        self.flush()
        values = {field: f"{name}.{field.name}" for field in tagged}
        self.line(
            f"if not ({' or '.join(_differs(field, value) for field, value in values.items())}): {self.sink}(nothing)"
        )
        self.line("else:")
        self.depth += 1
        section, outer = self.fresh("k"), self.sink
        self.line(f"{section} = []")
        for field, value in values.items():
            self.line(f"if {_differs(field, value)}:")
            self.depth += 1
            pieces, self.sink = self.fresh("o"), self.fresh("a")
            self.line(f"{pieces} = []")
            self.line(f"{self.sink} = {pieces}.append")
            self.value(field, value)
            self.flush()
            self.line(f"{pieces} = b''.join({pieces})")
            self.line(f"{section}.append(uv({field.tag}) + uv(len({pieces})) + {pieces})")
            self.sink = outer
            self.depth -= 1
        self.line(f"{outer}(uv(len({section})) + b''.join({section}))")
        self.depth -= 1

    def value(self, field: Field, value: str) -> None:
        """Write one field."""
        nullable = self.nullable(field)
        if field.kind in _FORMATS:
            self.fixed.append((_FORMATS[field.kind], f"{value}.bytes" if field.kind == "uuid" else value))
        elif field.kind == "array":
            self.array(field.of, value, nullable=nullable)
        elif field.kind == "struct":
            self.struct(field.of, value, nullable=nullable)
        elif field.kind == "records":
            self.records(value)
        else:
            self.blob(field.kind, value, nullable=nullable)

    def blob(self, kind: str, value: str, *, nullable: bool) -> None:
        """Write a string or bytes."""
        name, encoded = self.fresh("s"), ".encode()" if kind == "string" else ""
        code = "h" if kind == "string" else "i"
        if nullable:
            self.line(f"{name} = {value}")
            self.null(name, code)
            value = name
        self.depth += nullable
        self.line(f"{name} = {value}{encoded}")
        self.length(code, f"len({name})")
        self.line(f"{self.sink}({name})")
        self.depth -= nullable

    def records(self, value: str) -> None:
        """Write record batches: a part of their own when large."""
        name = self.fresh("r")
        self.line(f"{name} = {value}")
        self.null(name, "i")
        self.depth += 1
        self.length("i", f"len({name})")
        self.line(f"if len({name}) <= {COPIED_BYTES_MAX}: {self.sink}({name})")
        self.line("else:")
        self.line("    out.append(b''.join(o))")
        self.line(f"    out.append({name})")
        self.line("    o.clear()")
        self.depth -= 1

    def array(self, of: MessageType | str, value: str, *, nullable: bool) -> None:
        """Write an array."""
        items, item = self.fresh("l"), self.fresh("x")
        empty, null = ("one", "nothing") if self.flexible else ("zero_i", "null_i")
        self.flush()
        self.line(f"{items} = {value}")
        self.line(f"if not {items}: {self.sink}({f'{null} if {items} is None else ' if nullable else ''}{empty})")
        self.line("else:")
        self.depth += 1
        self.length("i", f"len({items})")
        if of in _FORMATS and of != "uuid":
            self.line(f"{self.sink}(pack(f'>{{len({items})}}{_FORMATS[str(of)]}', *{items}))")
            self.depth -= 1
            return
        self.line(f"for {item} in {items}:")
        self.depth += 1
        if isinstance(of, MessageType):
            self.message(of, item)
        elif of == "uuid":
            self.fixed.append(("16s", f"{item}.bytes"))
        else:
            self.blob(of, item, nullable=False)
        self.flush()
        if self.steps:
            self.line("w += 1")
            self.line(f"if not w % {STEP_ELEMENTS}:")
            if self.sink == "a":  # else it is a tagged field, whose size comes first
                self.line(f"    if len(o) > {STEP_PIECES}:")
                self.line("        out.append(b''.join(o))")
                self.line("        o.clear()")
            self.line("    yield")
        else:
            self.line("pass")
        self.depth -= 2

    def struct(self, of: MessageType, value: str, *, nullable: bool) -> None:
        """Write a structure, after its null marker where it is nullable."""
        name = self.fresh("x")
        self.flush()
        self.line(f"{name} = {value}")
        if nullable:
            self.line(f"{self.sink}(b'\\xff' if {name} is None else b'\\x01')")
            self.line(f"if {name} is not None:")
        self.depth += nullable
        self.message(of, name)
        self.flush()
        self.depth -= nullable


def _default(field: Field) -> str:
    return "no_uuid" if field.kind == "uuid" else repr(field.default)


def _differs(field: Field, value: str) -> str:
    """Return the condition under which a tagged field has to be sent."""
    if field.default is None:
        return f"{value} is not None"
    if field.default == []:
        return value
    return f"{value} != {_default(field)}"


def _compile_decoder(message_type: type[Message], version: int) -> Decoder:
    decoder: Decoder = _written_decoder(_DecoderSource(message_type, version), message_type)
    return _decoders.setdefault((message_type, version), decoder)


def _compile_small_decoder(message_type: type[Message], version: int) -> Decoder:
    decoder: Decoder = _written_decoder(_DecoderSource(message_type, version, small=True), message_type)
    return _small_decoders.setdefault((message_type, version), decoder)


def _compile_decoder_in_steps(message_type: type[Message], version: int) -> DecoderInSteps:
    decoder: DecoderInSteps = _written_decoder(_DecoderSource(message_type, version, steps=True), message_type)
    return _decoders_in_steps.setdefault((message_type, version), decoder)


def _written_decoder(source: _DecoderSource, message_type: type[Message]) -> Any:
    source.scope["message_type"] = message_type
    source.scope["TooLarge"] = TooLargeAtOnce
    if source.steps:
        source.line("w = y = 0")
        source.line("if False: yield")  # a message without arrays is a generator too
    source.line("m = new(message_type)")
    source.message(message_type, "m")
    # Bytes may follow, as in Kafka: librdkafka 2.16 sends three too many with Metadata 13.
    source.line(f"if p > e: bad('end of {message_type.__name__}', e, p)")
    source.line("return m")
    return source.compile("decode(b, p, e)")


def _compile_encoder(message_type: type[Message], version: int) -> Encoder:
    encoder: Encoder = _written_encoder(_EncoderSource(message_type, version), message_type)
    return _encoders.setdefault((message_type, version), encoder)


def _compile_encoder_in_steps(message_type: type[Message], version: int) -> EncoderInSteps:
    encoder: EncoderInSteps = _written_encoder(_EncoderSource(message_type, version, steps=True), message_type)
    return _encoders_in_steps.setdefault((message_type, version), encoder)


def _written_encoder(source: _EncoderSource, message_type: type[Message]) -> Any:
    for text in ("out = []", "o = []", "a = o.append"):
        source.line(text)
    if source.steps:
        source.line("w = 0")
        source.line("if False: yield")
    source.message(message_type, "m")
    source.flush()
    source.line("if o: out.append(b''.join(o))")
    source.line("return out")
    return source.compile("encode(m)")
