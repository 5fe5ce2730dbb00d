"""Records of `__consumer_offsets`: keys and values to bytes and back, byte for byte as Apache Kafka writes them.

Contains: the formats. Does not contain: what a record means to a group.
Source: OffsetCommitKey/Value, LegacyOffsetCommitKey/Value and GroupMetadataKey/Value of Apache Kafka 4.3.

All integers are big-endian. `string` is an int16 length and UTF-8, `bytes` an int32 length and data, -1 means null.
From value version 4 (flexible) strings, bytes and arrays carry an unsigned varint of length + 1 instead, 0 means null,
and every structure ends in tagged fields. In brackets: the versions that have the field.

| key | bytes |
|---|---|
| committed offset | int16 1 (0 in old logs) · string group · string topic · int32 partition |
| group metadata | int16 2 · string group |

| value of a committed offset | | value of a group | | member of a group | |
|---|---|---|---|---|---|
| version 0 to 4 | int16 | version 0 to 4 | int16 | member_id | string |
| offset | int64 | protocol_type | string | instance_id [3+] | string? |
| leader_epoch [3+] | int32 | generation | int32 | client_id | string |
| metadata | string | protocol | string? | client_host | string |
| commit_ms | int64 | leader | string? | rebalance_timeout_ms [1+] | int32 |
| expire_ms [1] | int64 | state_since_ms [2+] | int64 | session_timeout_ms | int32 |
| topic_id [4, tag 0] | uuid | members | array | subscription, assignment | bytes, bytes |

No value (None) is a tombstone: the key's state is gone. Written are key versions 1 and 2 and value version 3. While
`offsets.retention.minutes` is set a record has the header `edge.age.ms`, int64: the age of the data directory.
"""

import struct
from typing import NamedTuple

AGE_HEADER = "edge.age.ms"
OFFSET_KEY_VERSION = 1
GROUP_KEY_VERSION = 2
VALUE_VERSION = 3
FLEXIBLE_VERSION = 4
STRING_BYTES_MAX = 32767
UNIQUE_ID_BYTES_MAX = 64
NAME_BYTES_MAX = STRING_BYTES_MAX - UNIQUE_ID_BYTES_MAX - 1

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")

Record = tuple[bytes, bytes | None]
"""Key and value of one record; the value None is a tombstone."""


class RecordFormatError(ValueError):
    """A key or value that is no record of `__consumer_offsets` as far as this broker knows them."""


class OffsetKey(NamedTuple):
    """Names one committed offset."""

    group_id: str
    topic: str
    partition: int


class GroupKey(NamedTuple):
    """Names one group's metadata."""

    group_id: str


class CommittedOffset(NamedTuple):
    """A group's committed offset of one partition; leader_epoch -1 means unknown.

    `commit_ms` is the broker's time of day, `age_ms` the age of the data directory, which no value holds.
    """

    offset: int
    leader_epoch: int
    metadata: str
    commit_ms: int
    age_ms: int = 0


class MemberMetadata(NamedTuple):
    """One member as stored: its subscription is the metadata it gave for the selected protocol."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


class GroupMetadata(NamedTuple):
    """A group as stored when a rebalance completed, or when it became empty."""

    protocol_type: str
    generation_id: int
    protocol_name: str | None
    leader_id: str | None
    state_since_ms: int
    members: tuple[MemberMetadata, ...]


def storable(text: str) -> bool:
    """Whether a name can be stored, and still be when a unique id is added to make it a member id."""
    return len(text) <= NAME_BYTES_MAX and len(text.encode()) <= NAME_BYTES_MAX


def offset_key(key: OffsetKey) -> bytes:
    """Encode the key of a committed offset."""
    return _INT16.pack(OFFSET_KEY_VERSION) + _string(key.group_id) + _string(key.topic) + _INT32.pack(key.partition)


def group_key(group_id: str) -> bytes:
    """Encode the key of a group's metadata."""
    return _INT16.pack(GROUP_KEY_VERSION) + _string(group_id)


def offset_value(committed: CommittedOffset) -> bytes:
    """Encode a committed offset."""
    head = struct.pack(">hqi", VALUE_VERSION, committed.offset, committed.leader_epoch)
    return head + _string(committed.metadata) + _INT64.pack(committed.commit_ms)


def group_value(group: GroupMetadata) -> bytes:
    """Encode a group's metadata."""
    parts = [
        _INT16.pack(VALUE_VERSION),
        _string(group.protocol_type),
        _INT32.pack(group.generation_id),
        _string(group.protocol_name),
        _string(group.leader_id),
        _INT64.pack(group.state_since_ms),
        _INT32.pack(len(group.members)),
    ]
    parts.extend(_member(member) for member in group.members)
    return b"".join(parts)


def read_key(data: bytes) -> OffsetKey | GroupKey | None:
    """Decode a key; None for the kinds of newer group protocols, which this broker does not keep.

    Raises RecordFormatError for anything that is cut short or is no text.
    """
    reader = _Reader(data)
    version = reader.int16()
    if version < 0:
        raise RecordFormatError(f"a record key of version {version} is none of __consumer_offsets")
    if version > GROUP_KEY_VERSION:
        return None
    if version == GROUP_KEY_VERSION:
        key: OffsetKey | GroupKey = GroupKey(reader.string())
    else:
        key = OffsetKey(reader.string(), reader.string(), reader.int32())
    reader.end()
    return key


def read_offset_value(data: bytes, age_ms: int = 0) -> CommittedOffset:
    """Decode a committed offset of version 0 to 4; expiry times and topic ids of other writers are passed over."""
    reader = _Reader(data)
    version = reader.value_version()
    offset = reader.int64()
    leader_epoch = reader.int32() if version >= 3 else -1
    metadata = reader.string()
    commit_ms = reader.int64()
    if version == 1:
        reader.int64()
    reader.tags()
    reader.end()
    return CommittedOffset(offset, leader_epoch, metadata, commit_ms, age_ms)


def read_group_value(data: bytes) -> GroupMetadata:
    """Decode a group's metadata of version 0 to 4."""
    reader = _Reader(data)
    version = reader.value_version()
    protocol_type = reader.string()
    generation_id = reader.int32()
    protocol_name = reader.nullable_string()
    leader_id = reader.nullable_string()
    state_since_ms = reader.int64() if version >= 2 else -1
    members = tuple(_read_member(reader, version) for _ in range(reader.array_length()))
    reader.tags()
    reader.end()
    return GroupMetadata(protocol_type, generation_id, protocol_name, leader_id, state_since_ms, members)


def _read_member(reader: "_Reader", version: int) -> MemberMetadata:
    member_id = reader.string()
    instance_id = reader.nullable_string() if version >= 3 else None
    client_id, client_host = reader.string(), reader.string()
    rebalance_timeout_ms = reader.int32() if version >= 1 else -1
    session_timeout_ms = reader.int32()
    subscription, assignment = reader.data(), reader.data()
    reader.tags()
    if rebalance_timeout_ms < 0:  # version 0 had one timeout for both
        rebalance_timeout_ms = session_timeout_ms
    return MemberMetadata(
        member_id,
        instance_id,
        client_id,
        client_host,
        rebalance_timeout_ms,
        session_timeout_ms,
        subscription,
        assignment,
    )


def _string(text: str | None) -> bytes:
    if text is None:
        return b"\xff\xff"
    data = text.encode()
    assert len(data) <= STRING_BYTES_MAX, "callers refuse longer strings before they become records"
    return _INT16.pack(len(data)) + data


def _bytes(data: bytes) -> bytes:
    return _INT32.pack(len(data)) + data


def _member(member: MemberMetadata) -> bytes:
    return b"".join(
        (
            _string(member.member_id),
            _string(member.instance_id),
            _string(member.client_id),
            _string(member.client_host),
            _INT32.pack(member.rebalance_timeout_ms),
            _INT32.pack(member.session_timeout_ms),
            _bytes(member.subscription),
            _bytes(member.assignment),
        )
    )


class _Reader:
    """Reads one key or value from front to back; every read is checked against what is left."""

    def __init__(self, data: bytes) -> None:
        self._data = bytes(data)
        self._position = 0
        self._flexible = False

    def value_version(self) -> int:
        version = self.int16()
        if not 0 <= version <= FLEXIBLE_VERSION:
            raise RecordFormatError(f"value version {version} is unknown, 0 to {FLEXIBLE_VERSION} can be read")
        self._flexible = version >= FLEXIBLE_VERSION
        return version

    def int16(self) -> int:
        return int.from_bytes(self._take(2), "big", signed=True)

    def int32(self) -> int:
        return int.from_bytes(self._take(4), "big", signed=True)

    def int64(self) -> int:
        return int.from_bytes(self._take(8), "big", signed=True)

    def string(self) -> str:
        text = self.nullable_string()
        if text is None:
            raise RecordFormatError(f"null at byte {self._position} where a string must be")
        return text

    def nullable_string(self) -> str | None:
        length = self._varint() - 1 if self._flexible else self.int16()
        if length < 0:
            return None
        try:
            return self._take(length).decode()
        except UnicodeDecodeError as error:
            raise RecordFormatError(f"no UTF-8 text before byte {self._position}") from error

    def data(self) -> bytes:
        length = self._varint() - 1 if self._flexible else self.int32()
        if length < 0:
            raise RecordFormatError(f"null at byte {self._position} where bytes must be")
        return self._take(length)

    def array_length(self) -> int:
        length = self._varint() - 1 if self._flexible else self.int32()
        if not 0 <= length <= len(self._data) - self._position:
            raise RecordFormatError(f"an array of {length} entries at byte {self._position} cannot fit")
        return length

    def tags(self) -> None:
        if not self._flexible:
            return
        for _ in range(self._varint()):
            self._varint()
            self._take(self._varint())

    def end(self) -> None:
        """Nothing may follow: trailing bytes mean that something else was written."""
        if self._position != len(self._data):
            raise RecordFormatError(f"{len(self._data) - self._position} bytes too many at byte {self._position}")

    def _varint(self) -> int:
        value = 0
        for shift in range(0, 35, 7):
            byte = self._take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise RecordFormatError(f"a varint longer than 5 bytes ends at byte {self._position}")

    def _take(self, size: int) -> bytes:
        end = self._position + size
        if end > len(self._data):
            raise RecordFormatError(f"cut short: {size} bytes wanted at byte {self._position} of {len(self._data)}")
        piece = self._data[self._position : end]
        self._position = end
        return piece
