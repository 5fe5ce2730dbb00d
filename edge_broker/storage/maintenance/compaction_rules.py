"""The rules of compaction: it keeps the latest record of each key, and the other records that Kafka keeps.

| batch or record | what becomes of it |
|---|---|
| offset at or after the end of the map | kept |
| not the latest of its key | dropped |
| the latest of its key, with a value | kept |
| the latest of its key, a tombstone | kept until the batch's delete horizon, then dropped |
| without a key | kept: nothing can supersede it (Produce refuses such records in compact topics) |
| a batch whose records all stay | kept verbatim, unless a horizon is to be set |
| a batch none of whose records stays | dropped; its bare header stays for the last batch of a producer |
| a batch that cannot be unpacked here | kept; tombstones after it are kept too, as it may hold what they delete |
| data of an aborted transaction | dropped |
| a transaction's marker | kept while data of the transaction is there, then until its delete horizon |

The delete horizon is set when a batch with tombstones, or a marker without data, is first cleaned over: now plus
delete.retention.ms, as the batch's base timestamp, marked by attribute bit 6. It is wall time, as in Kafka, since
mirrors and Kafka's tools read it; so only a trusted clock sets one or reaches one.

Contains: the map of keys and these rules, pure. Does not contain: files, segments, when to compact.
Source: Kafka's Cleaner, SkimpyOffsetMap, CleanedTransactionMetadata, MemoryRecords.filterTo; KIP-58, KIP-98, KIP-534.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping
from hashlib import blake2b
from math import isqrt
from struct import Struct
from typing import NamedTuple, TypeAlias

from edge_broker.errors import ErrorCode, Refusal
from edge_broker.protocol.codec import uvarint
from edge_broker.protocol.crc import crc32c
from edge_broker.protocol.record_batch import (
    CODEC_MASK,
    DELETE_HORIZON,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    MAGIC,
    NO_TIMESTAMP,
    BatchHeader,
    pack_records,
    records_of,
    unpack_records,
)

SLOT_BYTES = 24
LOAD_FACTOR = 0.9
BREATH_RECORDS = 0xFF  # a mask: after so many records others may run
_PAIR = Struct("QQ")
_FRONT = Struct(">qiibI")
_CHECKED = Struct(">hiqqqhii")
_CONTROL_KEY = Struct(">hh")
_ABORT, _COMMIT = 0, 1
_INVALID = ErrorCode.INVALID_RECORD
Breathe: TypeAlias = Callable[[], None]


def no_breath() -> None:
    """Let no other work run in between."""


class OffsetMap:
    """The latest offset of each key, in one block of memory: 24 bytes a slot, at most nine slots of ten taken.

    A key is known by its 128 bit BLAKE2b hash alone. Two of n keys share one with a probability of n²/2¹²⁹, for the
    157,000 keys of 4 MiB about 4·10⁻²⁹; none is made on purpose. `end_offset`: whatever is below it was put in.
    """

    __slots__ = ("_slots", "_table", "capacity", "count", "end_offset")

    def __init__(self, bytes_max: int) -> None:
        self._slots = _prime_up_to(max(bytes_max // SLOT_BYTES, 2))
        self._table = memoryview(bytearray(self._slots * SLOT_BYTES)).cast("Q")  # hash, hash, offset + 1
        self.capacity = max(int(self._slots * LOAD_FACTOR), 1)
        self.count = 0
        self.end_offset = 0

    def put(self, key: bytes, offset: int) -> bool:
        """Note the latest offset of a key; False when the map is full and the key new."""
        first, second = _PAIR.unpack(blake2b(key, digest_size=16).digest())
        at = self._find(first, second)
        table = self._table
        if not table[at + 2]:
            if self.count >= self.capacity:
                return False
            self.count += 1
            table[at], table[at + 1] = first, second
        table[at + 2] = offset + 1
        return True

    def latest(self, key: bytes) -> int:
        """The latest offset of a key, -1 when it is not here."""
        first, second = _PAIR.unpack(blake2b(key, digest_size=16).digest())
        return self._table[self._find(first, second) + 2] - 1

    def _find(self, first: int, second: int) -> int:
        """Where the key lies, or the free slot where it belongs. The number of slots is prime, so any step serves."""
        table, slots = self._table, self._slots
        slot = first % slots
        at = slot * 3
        if not table[at + 2] or (table[at] == first and table[at + 1] == second):
            return at
        step = 1 + second % (slots - 1)
        while True:
            slot = (slot + step) % slots
            at = slot * 3
            if not table[at + 2] or (table[at] == first and table[at + 1] == second):
                return at


def _prime_up_to(number: int) -> int:
    while any(number % divisor == 0 for divisor in range(2, isqrt(number) + 1)):
        number -= 1
    return number


class Transactions:
    """Which transactional batches were aborted, from the batches and markers of a stretch of the log, in order."""

    __slots__ = ("_aborted", "_open")

    def __init__(self) -> None:
        self._open: dict[int, int] = {}  # producer id: first offset
        self._aborted: dict[int, list[tuple[int, int]]] = {}  # producer id: first offsets and marker offsets, rising

    def note(self, header: BatchHeader, marker: int | None) -> None:
        """Take in a batch of data, or a control batch with its `marker_of`."""
        if not header.is_control:
            if header.is_transactional:
                self._open.setdefault(header.producer_id, header.base_offset)
        elif marker is not None:
            first = self._open.pop(header.producer_id, None)
            if marker == _ABORT and first is not None:
                self._aborted.setdefault(header.producer_id, []).append((first, header.base_offset))

    @property
    def undecided_offset(self) -> int | None:
        """Where the first transaction begins that is still open; None without one."""
        return min(self._open.values(), default=None)

    def is_aborted(self, header: BatchHeader) -> bool:
        """True for data of a transaction that was aborted."""
        ended = self._aborted.get(header.producer_id, [])
        at = bisect_right(ended, (header.base_offset, 1 << 63))
        return at > 0 and header.base_offset < ended[at - 1][1]


def marker_of(batch: memoryview, header: BatchHeader) -> int | None:
    """Return the type of a control batch: 0 abort, 1 commit; None for an emptied one and other kinds."""
    if not header.records_count:
        return None
    key = next(records_of(batch)).key or b""
    kind = int(_CONTROL_KEY.unpack_from(key)[1]) if len(key) >= _CONTROL_KEY.size else -1
    return kind if kind in (_ABORT, _COMMIT) else None


class _Records(NamedTuple):
    """Which records of an unpacked batch stay: their bytes in runs, and what the header must say of them."""

    runs: list[tuple[int, int]]
    kept: int
    max_delta: int
    tombstones: bool  # among what stays


class Compaction:
    """The rules applied to one partition's batches, in the order of the log; one object for one pass.

    `last_offsets`: of each producer that is known, the last offset of its last batch. `now_ms`: the wall clock, None
    while it is not trusted: no horizon is set then, and none is reached. `breathe` is called amid large batches.
    """

    def __init__(
        self,
        offsets: OffsetMap,
        transactions: Transactions,
        last_offsets: Mapping[int, int],
        now_ms: int | None,
        delete_retention_ms: int,
        breathe: Breathe = no_breath,
    ) -> None:
        self.removed = 0  # records dropped, markers too
        self.not_unpacked: Refusal | None = None  # why the first batch that was kept whole could not be unpacked
        self._offsets = offsets
        self._transactions = transactions
        self._last_offsets = last_offsets
        self._now_ms = now_ms
        self._delete_retention_ms = delete_retention_ms
        self._breathe = breathe
        self._seen: set[int] = set()  # producers of whose open transaction data was met

    def keep(self, batch: memoryview, header: BatchHeader) -> bytes | memoryview | None:
        """Return the rest of a batch: itself, another one of the same offsets, or None. ProtocolViolation."""
        if header.is_control:
            return self._keep_marker(batch, header)
        if header.is_transactional:
            self._seen.add(header.producer_id)
            if self._transactions.is_aborted(header):
                return self._emptied_batch(batch, header)
        if header.base_offset >= self._offsets.end_offset:
            return batch
        try:
            payload = unpack_records(header.codec, batch[HEADER_SIZE : header.size])
            stays = self._select(payload, header)
        except Refusal as reason:
            self.not_unpacked = self.not_unpacked or reason
            return batch
        if not stays.kept:
            return self._emptied_batch(batch, header)
        return self._rebuild(batch, header, payload, stays)

    def _keep_marker(self, batch: memoryview, header: BatchHeader) -> bytes | memoryview | None:
        if not header.records_count:
            return self._emptied_batch(batch, header)
        if marker_of(batch, header) is None:
            return batch
        data_is_there = header.producer_id in self._seen
        self._seen.discard(header.producer_id)
        if data_is_there:
            return batch
        if self._now_ms is None:
            return batch
        if header.attributes & DELETE_HORIZON:
            return batch if self._now_ms < header.base_timestamp else self._emptied_batch(batch, header)
        payload = bytes(batch[HEADER_SIZE : header.size])
        whole = _Records([(0, len(payload))], header.records_count, header.max_timestamp - header.base_timestamp, True)
        return _with_horizon(batch, header, payload, whole, self._now_ms + self._delete_retention_ms)

    def _emptied_batch(self, batch: memoryview, header: BatchHeader) -> bytes | memoryview | None:
        """Nothing, or the bare header where it tells the last sequence of a producer."""
        self.removed += header.records_count
        if header.producer_id < 0 or self._last_offsets.get(header.producer_id) != header.last_offset:
            return None
        return empty_batch(header) if header.records_count else batch

    def _select(self, payload: bytes, header: BatchHeader) -> _Records:
        """Walk the records without making objects of them: this is the cost of a pass."""
        base_offset, latest, end_offset = header.base_offset, self._offsets.latest, self._offsets.end_offset
        expired = (
            bool(header.attributes & DELETE_HORIZON)
            and self._now_ms is not None
            and self._now_ms >= header.base_timestamp
            and self.not_unpacked is None
        )
        runs: list[tuple[int, int]] = []
        count, tombstones, max_delta, run = 0, False, -(1 << 63), -1
        for number, entry in enumerate(entries(payload, header.records_count, self._breathe)):
            if number & BREATH_RECORDS == BREATH_RECORDS:
                self._breathe()
            offset = base_offset + entry[3]
            if entry[4] is None or offset >= end_offset:
                stays = True
            else:
                stays = offset >= latest(entry[4]) and (entry[5] or not expired)
                tombstones = tombstones or (stays and not entry[5])
            if stays:
                count += 1
                max_delta = max(max_delta, entry[2])
                if run < 0:
                    run = entry[0]
            elif run >= 0:
                runs.append((run, entry[0]))
                run = -1
        if run >= 0:
            runs.append((run, len(payload)))
        return _Records(runs, count, max_delta, tombstones)

    def _rebuild(self, batch: memoryview, header: BatchHeader, payload: bytes, stays: _Records) -> bytes | memoryview:
        undated = stays.tombstones and not header.attributes & DELETE_HORIZON
        if stays.kept == header.records_count and (not undated or self._now_ms is None):
            return batch
        self.removed += header.records_count - stays.kept
        if undated and self._now_ms is not None:
            return _with_horizon(batch, header, payload, stays, self._now_ms + self._delete_retention_ms)
        records = b"".join([payload[start:end] for start, end in stays.runs])
        packed = pack_records(header.codec, records, batch[HEADER_SIZE : header.size])
        return _batch(header, header.attributes, header.base_timestamp, stays, packed)


def entries(
    payload: bytes, count: int, breathe: Breathe = no_breath
) -> list[tuple[int, int, int, int, bytes | None, bool]]:
    """Of each record: start, end, timestamp delta, offset delta, key, and whether it has a value. Refusal."""
    found = []
    position = 0
    try:
        for number in range(count):
            if number & BREATH_RECORDS == BREATH_RECORDS:
                breathe()
            start = position
            size, position = _varint_at(payload, position)
            end = position + size
            timestamp_delta, position = _varint_at(payload, position + 1)
            offset_delta, position = _varint_at(payload, position)
            size, position = _varint_at(payload, position)
            key = None
            if size >= 0:
                key = payload[position : position + size]
                position += size
            has_value = payload[position] != 1  # a length of -1 is the one byte 1
            if not start < position < end <= len(payload):
                raise IndexError("a record does not end where it says")
            found.append((start, end, timestamp_delta, offset_delta, key, has_value))
            position = end
        if position != len(payload):
            raise IndexError(f"{len(payload) - position} bytes follow the last record")
    except IndexError as reason:
        raise Refusal(_INVALID, f"a batch's inside is not what its header says: {reason}") from None
    return found


def _varint_at(payload: bytes, position: int) -> tuple[int, int]:
    """Return a zigzag varint and the position after it; IndexError at the end of the payload."""
    byte = payload[position]
    if byte < 128:
        return (byte >> 1) ^ -(byte & 1), position + 1
    value, shift = byte & 127, 7
    while True:
        position += 1
        byte = payload[position]
        value |= (byte & 127) << shift
        if byte < 128:
            return (value >> 1) ^ -(value & 1), position + 1
        shift += 7
        if shift > 63:
            raise IndexError("a varint is longer than 10 bytes")


def _with_horizon(batch: memoryview, header: BatchHeader, payload: bytes, stays: _Records, horizon_ms: int) -> bytes:
    """The batch with its delete horizon as the base timestamp; each record says its own time relative to that."""
    out = bytearray()
    shift = header.base_timestamp - horizon_ms
    for start, run_end in stays.runs:
        position = start
        while position < run_end:
            size, at = _varint_at(payload, position)
            position = at + size
            delta, rest = _varint_at(payload, at + 1)
            stamp = _varint(delta + shift)
            out += _varint(1 + len(stamp) + position - rest) + payload[at : at + 1] + stamp + payload[rest:position]
    packed = pack_records(header.codec, bytes(out), batch[HEADER_SIZE : header.size])
    return _batch(header, header.attributes | DELETE_HORIZON, horizon_ms, stays, packed)


def _varint(value: int) -> bytes:
    return uvarint((value << 1) ^ (value >> 63))


def _batch(header: BatchHeader, attributes: int, base_timestamp: int, stays: _Records, packed: bytes) -> bytes:
    """A batch of the same offsets, producer and leader epoch."""
    max_timestamp = header.base_timestamp + stays.max_delta
    if header.attributes & LOG_APPEND_TIME or not stays.kept:
        max_timestamp = header.max_timestamp
    checked = _CHECKED.pack(
        attributes,
        header.last_offset_delta,
        base_timestamp,
        max_timestamp,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        stays.kept,
    )
    checked += packed
    return _FRONT.pack(header.base_offset, len(checked) + 9, header.leader_epoch, MAGIC, crc32c(checked)) + checked


def empty_batch(header: BatchHeader) -> bytes:
    """The bare header of a batch as Kafka keeps it: offsets and producer as before, no records, codec or horizon."""
    attributes = header.attributes & ~(CODEC_MASK | DELETE_HORIZON)
    return _batch(header, attributes, NO_TIMESTAMP, _Records([], 0, 0, False), b"")
