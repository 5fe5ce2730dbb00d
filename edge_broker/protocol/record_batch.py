"""Record batches of magic 2: their header read, checked and stamped in place; records only where they are asked for.

Contains: the header's layout, the checks of a produced batch, the codec of single records for what is no hot path.
Does not contain: files, offsets' meaning. Source: Kafka protocol guide (record batch), KIP-98, LogValidator's rules.

    byte  size
      0    8   base_offset             outside the CRC: the broker sets it
      8    4   batch_length            bytes after this field
     12    4   leader_epoch            outside the CRC: the broker sets it
     16    1   magic                   2
     17    4   crc                     CRC-32C of all that follows
     21    2   attributes              bits 0-2 codec, 3 log append time, 4 transactional, 5 control, 6 delete horizon
     23    4   last_offset_delta
     27    8   base_timestamp          ms
     35    8   max_timestamp           ms
     43    8   producer_id             -1 none
     51    2   producer_epoch
     53    4   base_sequence
     57    4   records_count
     61        records, compressed together

    record: varint size of the rest | int8 attributes (0) | varint timestamp delta | varint offset delta | varint key
            length (-1 null) | key | varint value length | value | varint headers count | headers
    header: varint key length | key, UTF-8 | varint value length (-1 null) | value            varints are zigzag
"""

from __future__ import annotations

import zlib
from struct import Struct
from typing import TYPE_CHECKING

from edge_broker.errors import BatchRefusal, ErrorCode, ProtocolViolation, Refusal
from edge_broker.protocol.codec import uvarint
from edge_broker.protocol.crc import crc32c
from edge_broker.protocol.records_walk import lying
from edge_broker.protocol.unpacking import (
    CODEC_GZIP,
    CODEC_LZ4,
    CODEC_NAMES,
    CODEC_NONE,
    CODEC_SNAPPY,
    CODEC_ZSTD,
    SNAPPY_HEADER_SIZE,
    SNAPPY_MAGIC,
    Unpacker,
    library,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["CODEC_GZIP", "CODEC_LZ4", "CODEC_NAMES", "CODEC_NONE", "CODEC_SNAPPY", "CODEC_ZSTD"]

HEADER_SIZE = 61
SIZE_OVERHEAD = 12  # what batch_length leaves out
MAGIC_POSITION = 16
CRC_POSITION = 17
CHECKED_POSITION = 21
MAGIC = 2

CODEC_MASK = 0x07
LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20
DELETE_HORIZON = 0x40  # the base timestamp says until when tombstones and markers stay (KIP-534)

NO_PRODUCER_ID = -1
NO_TIMESTAMP = -1

DECOMPRESSED_BYTES_MAX = (
    64 * 1024 * 1024
)  # hard bound on what is unpacked whole; batches beyond it are left as they are

_HEADER = Struct(">qiibIhiqqqhii")
_BASE_OFFSET = Struct(">q")
_LEADER_EPOCH = Struct(">i")
_FRONT = Struct(">qiibI")
_CHECKED = Struct(">hiqqqhii")
_SNAPPY_BLOCK = 32 * 1024


class BatchHeader:
    """The fixed part of a batch, field by field; `last_offset` is inclusive, `next_offset` what follows."""

    __slots__ = (
        "attributes",
        "base_offset",
        "base_sequence",
        "base_timestamp",
        "batch_length",
        "crc",
        "last_offset_delta",
        "leader_epoch",
        "magic",
        "max_timestamp",
        "producer_epoch",
        "producer_id",
        "records_count",
    )

    def __init__(self, buffer: bytes | bytearray | memoryview, position: int = 0) -> None:
        """Read the fields as they are; struct.error when fewer than 61 bytes are left."""
        self.base_offset: int
        self.batch_length: int
        self.leader_epoch: int
        self.magic: int
        self.crc: int
        self.attributes: int
        self.last_offset_delta: int
        self.base_timestamp: int
        self.max_timestamp: int
        self.producer_id: int
        self.producer_epoch: int
        self.base_sequence: int
        self.records_count: int
        (
            self.base_offset,
            self.batch_length,
            self.leader_epoch,
            self.magic,
            self.crc,
            self.attributes,
            self.last_offset_delta,
            self.base_timestamp,
            self.max_timestamp,
            self.producer_id,
            self.producer_epoch,
            self.base_sequence,
            self.records_count,
        ) = _HEADER.unpack_from(buffer, position)

    def __repr__(self) -> str:
        return f"BatchHeader({', '.join(f'{name}={getattr(self, name)}' for name in self.__slots__)})"

    @property
    def size(self) -> int:
        """Bytes of the whole batch, this header included."""
        return SIZE_OVERHEAD + self.batch_length

    @property
    def last_offset(self) -> int:
        """Offset of the last record."""
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """Offset after the last record."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def first_timestamp(self) -> int:
        """The first record's timestamp; the greatest one where a delete horizon has taken its place."""
        return self.max_timestamp if self.attributes & DELETE_HORIZON else self.base_timestamp

    @property
    def codec(self) -> int:
        """Number of the compression codec, an index of CODEC_NAMES when it is a known one."""
        return self.attributes & CODEC_MASK

    @property
    def is_control(self) -> bool:
        """Whether it holds a transaction marker."""
        return bool(self.attributes & CONTROL)

    @property
    def is_transactional(self) -> bool:
        """Whether it is part of a transaction."""
        return bool(self.attributes & TRANSACTIONAL)


def read_header(buffer: bytes | bytearray | memoryview, position: int = 0) -> BatchHeader:
    """Read a batch's header without a look at its CRC; ProtocolViolation when these bytes cannot be one.

    The batch itself may end beyond the buffer.
    """
    if position < 0 or len(buffer) - position < HEADER_SIZE:
        raise ProtocolViolation(f"{len(buffer) - position} bytes at {position} are fewer than a batch header's 61.")
    header = BatchHeader(buffer, position)
    if header.magic != MAGIC:
        raise ProtocolViolation(f"The batch at byte {position} has magic {header.magic}, not 2.")
    if header.size < HEADER_SIZE:
        raise ProtocolViolation(f"The batch at byte {position} has length {header.batch_length}, too little to be one.")
    if header.base_offset < 0 or not 0 <= header.records_count <= header.last_offset_delta + 1:
        raise ProtocolViolation(f"The batch at byte {position} has impossible offsets or count: {header}.")
    return header


def check_batch(records: bytes | bytearray | memoryview | None, batch_bytes_max: int) -> BatchHeader:
    """Check what a producer sent for one partition, by Kafka's rules exactly one batch, and return its header.

    Raises Refusal: CORRUPT_MESSAGE (wrong CRC or magic), MESSAGE_TOO_LARGE (over `batch_bytes_max`, a hard bound),
    INVALID_PRODUCER_EPOCH, TRANSACTIONAL_ID_AUTHORIZATION_FAILED, INVALID_TIMESTAMP, INVALID_RECORD (all else, a
    missing batch too). Whether the records inside are what the header says is for RecordsCheck to find out.
    """
    if not records:
        raise Refusal(ErrorCode.INVALID_RECORD, "A produce request must have a record batch for each partition.")
    header = _whole_batch(records, batch_bytes_max)
    if crc32c(records[CHECKED_POSITION:]) != header.crc:
        raise Refusal(ErrorCode.CORRUPT_MESSAGE, f"The batch of {header.size} bytes does not match its CRC.")
    _check_header(header)
    return header


def _whole_batch(records: bytes | bytearray | memoryview, batch_bytes_max: int) -> BatchHeader:
    """Return the header when the bytes are one batch by their lengths."""
    size = len(records)
    if size > MAGIC_POSITION and records[MAGIC_POSITION] in {0, 1}:
        raise Refusal(ErrorCode.INVALID_RECORD, "Only record batches of magic 2 are taken, these are older messages.")
    if size < HEADER_SIZE:
        raise Refusal(ErrorCode.INVALID_RECORD, f"{size} bytes are fewer than the 61 of a batch header.")
    header = BatchHeader(records)
    if header.magic != MAGIC:
        raise Refusal(ErrorCode.CORRUPT_MESSAGE, f"There is no record batch of magic {header.magic}.")
    claimed = SIZE_OVERHEAD + header.batch_length
    if claimed > batch_bytes_max:
        reason = f"The batch has {claimed} bytes, more than the {batch_bytes_max} that the topic takes."
        raise Refusal(ErrorCode.MESSAGE_TOO_LARGE, reason)
    if claimed < HEADER_SIZE:
        raise Refusal(ErrorCode.CORRUPT_MESSAGE, f"The batch says it has {claimed} bytes, fewer than its header's 61.")
    if claimed > size:
        raise Refusal(ErrorCode.INVALID_RECORD, f"The batch says it has {claimed} bytes, and {size} have come.")
    if claimed < size:
        reason = "A produce request must have exactly one record batch for each partition; more bytes follow it."
        raise Refusal(ErrorCode.INVALID_RECORD, reason)
    return header


def _check_header(header: BatchHeader) -> None:
    """Refuse what only a broker may write, and counts and sequences that cannot be."""
    count, codec = header.records_count, header.attributes & CODEC_MASK
    if count < 1 or header.last_offset_delta != count - 1:
        reason = f"The batch counts {count} records and offsets 0 to {header.last_offset_delta}."
    elif header.base_offset != 0:
        reason = f"The batch's base offset must be 0 and is {header.base_offset}."
    elif header.attributes & CONTROL:
        reason = "Producers may not write control batches."
    elif codec > CODEC_ZSTD:
        reason = f"There is no compression codec {codec}."
    elif header.producer_id < NO_PRODUCER_ID:
        reason = f"There is no producer id {header.producer_id}."
    elif header.producer_id >= 0 and header.base_sequence < 0:
        reason = f"Producer {header.producer_id} sent epoch {header.producer_epoch}, sequence {header.base_sequence}."
    else:
        _check_producer(header)
        return
    raise BatchRefusal(ErrorCode.INVALID_RECORD, reason)


def _check_producer(header: BatchHeader) -> None:
    """Refuse with codes of their own what a producer says of itself."""
    if header.producer_id >= 0 and header.producer_epoch < 0:
        reason = f"Producer {header.producer_id} sent epoch {header.producer_epoch}; epochs begin at 0."
        raise BatchRefusal(ErrorCode.INVALID_PRODUCER_EPOCH, reason)
    if header.attributes & TRANSACTIONAL and header.producer_id < 0:
        reason = "A transactional batch needs a producer id."
        raise Refusal(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, reason)
    if header.attributes & LOG_APPEND_TIME:
        reason = "Producers may not set the timestamp type to log append time."
        raise BatchRefusal(ErrorCode.INVALID_TIMESTAMP, reason)


def assign_offsets(batch: bytearray | memoryview, base_offset: int, leader_epoch: int) -> None:
    """Write base offset and leader epoch into a batch, in place; its CRC does not cover them."""
    _BASE_OFFSET.pack_into(batch, 0, base_offset)
    _LEADER_EPOCH.pack_into(batch, SIZE_OVERHEAD, leader_epoch)


class Record:
    """One record of a batch; `timestamp` in ms since 1970."""

    __slots__ = ("headers", "key", "offset", "timestamp", "value")

    def __init__(
        self,
        offset: int,
        timestamp: int,
        key: bytes | None,
        value: bytes | None,
        headers: list[tuple[str, bytes | None]],
    ) -> None:
        self.offset = offset
        self.timestamp = timestamp
        self.key = key
        self.value = value
        self.headers = headers

    def __repr__(self) -> str:
        return f"Record({self.offset}, {self.timestamp}, {self.key!r}, {self.value!r}, {self.headers!r})"


def records_of(batch: bytes | bytearray | memoryview) -> Iterator[Record]:
    """Yield the records of one batch, unpacked when it is compressed; its CRC is not looked at.

    Raises ProtocolViolation when there is no whole batch, Refusal INVALID_RECORD when its inside is not what the header
    says, UNSUPPORTED_COMPRESSION_TYPE where the codec's library is not installed, MESSAGE_TOO_LARGE when it unpacks to
    more than DECOMPRESSED_BYTES_MAX.
    """
    header = read_header(batch)
    if len(batch) < header.size:
        raise ProtocolViolation(f"A batch of {header.size} bytes is cut off after {len(batch)}.")
    payload = unpack_records(header.codec, batch[HEADER_SIZE : header.size])
    position = 0
    for _ in range(header.records_count):
        try:
            record, position = _read_record(header, payload, position)
        except (IndexError, UnicodeDecodeError) as reason:
            raise lying(f"{reason}") from reason
        yield record
    if position != len(payload):
        raise lying(f"{len(payload) - position} bytes follow the last record")


def _read_record(header: BatchHeader, payload: bytes, position: int) -> tuple[Record, int]:
    size, position = _read_varint(payload, position)
    end = position + size
    if not position < end <= len(payload):
        raise lying(f"a record has {size} bytes")
    timestamp_delta, position = _read_varint(payload, position + 1)
    offset_delta, position = _read_varint(payload, position)
    key, position = _read_bytes(payload, position, end)
    value, position = _read_bytes(payload, position, end)
    count, position = _read_varint(payload, position)
    if not 0 <= count <= end - position:
        raise lying(f"a record has {count} headers")
    headers = []
    for _ in range(count):
        name, position = _read_bytes(payload, position, end)
        if name is None:
            raise lying("a header has no key")
        content, position = _read_bytes(payload, position, end)
        headers.append((name.decode(), content))
    if position != end:
        raise lying("a record does not end where it says")
    stamp = header.max_timestamp if header.attributes & LOG_APPEND_TIME else header.base_timestamp + timestamp_delta
    return Record(header.base_offset + offset_delta, stamp, key, value, headers), end


def _read_varint(payload: bytes, position: int) -> tuple[int, int]:
    """Read a zigzag varint of at most 64 bits; IndexError at the end of the payload."""
    value = shift = 0
    while True:
        byte = payload[position]
        position += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return (value >> 1) ^ -(value & 1), position
        shift += 7
        if shift > 63:
            raise lying("a varint is longer than 10 bytes")


def _read_bytes(payload: bytes, position: int, end: int) -> tuple[bytes | None, int]:
    size, position = _read_varint(payload, position)
    if size == -1:
        return None, position
    if not 0 <= size <= end - position:
        raise lying(f"a key, value or header has {size} bytes")
    return payload[position : position + size], position + size


def unpack_records(codec: int, payload: bytes | bytearray | memoryview) -> bytes:
    """The records after a batch's header, unpacked whole. Refusal as `records_of`."""
    if codec == CODEC_NONE:
        return bytes(payload)
    unpacker = Unpacker(codec, payload)
    unpacker.unpacked_max = DECOMPRESSED_BYTES_MAX
    return b"".join(map(bytes, unpacker))


def pack_records(codec: int, records: bytes, like: bytes | bytearray | memoryview) -> bytes:
    """Pack records with a codec, as clients of all kinds read it; `like` is what they were unpacked from.

    Snappy keeps the framing that it had. Refusal UNSUPPORTED_COMPRESSION_TYPE as `records_of`.
    """
    if codec == CODEC_NONE:
        return records
    if codec == CODEC_GZIP:
        packer = zlib.compressobj(wbits=31)
        return packer.compress(records) + packer.flush()
    module = library(codec)
    if codec == CODEC_ZSTD:
        return bytes(module.ZstdCompressor().compress(records))
    if codec == CODEC_LZ4:  # the Java client takes independent blocks alone
        return bytes(module.compress(records, block_linked=False, store_size=False))
    if bytes(like[: len(SNAPPY_MAGIC)]) != SNAPPY_MAGIC:
        return bytes(module.snappy.compress_raw(records))
    out = bytearray(like[:SNAPPY_HEADER_SIZE])
    for position in range(0, len(records), _SNAPPY_BLOCK):
        block = bytes(module.snappy.compress_raw(records[position : position + _SNAPPY_BLOCK]))
        out += len(block).to_bytes(4, "big") + block
    return bytes(out)


def build_batch(
    records: Sequence[tuple[bytes | None, bytes | None]],
    *,
    timestamp_ms: int,
    base_offset: int = 0,
    leader_epoch: int = 0,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    headers: Sequence[tuple[str, bytes | None]] = (),
) -> bytes:
    """Make one uncompressed batch of keys and values, all with the same timestamp and headers."""
    if not records:
        raise ValueError("A record batch needs at least one record.")
    tail = _varint(len(headers)) + b"".join(_varint_bytes(name.encode()) + _varint_bytes(one) for name, one in headers)
    payload = b"".join(_record(offset_delta, key, value, tail) for offset_delta, (key, value) in enumerate(records))
    last = len(records) - 1
    checked = _CHECKED.pack(
        0, last, timestamp_ms, timestamp_ms, producer_id, producer_epoch, base_sequence, len(records)
    )
    checked += payload
    front = _FRONT.pack(base_offset, len(checked) + 9, leader_epoch, MAGIC, crc32c(checked))
    return front + checked


def _record(offset_delta: int, key: bytes | None, value: bytes | None, headers: bytes) -> bytes:
    body = b"\x00\x00" + _varint(offset_delta) + _varint_bytes(key) + _varint_bytes(value) + headers
    return _varint(len(body)) + body


def _varint_bytes(content: bytes | None) -> bytes:
    return _varint(-1) if content is None else _varint(len(content)) + content


def _varint(value: int) -> bytes:
    return uvarint((value << 1) ^ (value >> 63))
