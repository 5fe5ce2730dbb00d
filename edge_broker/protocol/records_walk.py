"""The walk through a batch's records: whether its inside is what its header says, field by field, nothing kept.

| verdict | is given when | Apache Kafka 4.3.1 | answered |
|---|---|---|---|
| RECORD_LENGTH | a record has less than 1 byte | 87; acked when compressed | 87 |
| ATTRIBUTES | the byte of a record's attributes, which means nothing, is above 127 | acked | 87 |
| VARINT | a number is longer than 5 bytes (timestamp 10), or than 32 (64) bits | 87; too many bits: acked, cut | 87 |
| BEYOND_RECORD | a field reaches beyond its record | 87; acked when compressed and the sum is right | 87 |
| OFFSET_DELTA | offset deltas are not 0, 1, 2 … | acked; -1 when compressed | 87 |
| NEGATIVE_LENGTH | a key, value or header value has a length below -1 | acked, as null | 87 |
| HEADERS_COUNT | a record cannot have so many headers | 87; too many: acked when compressed and the sum is right | 87 |
| HEADER_KEY | a header has no key | 87 | 87 |
| RECORD_REST | a record is longer than its fields | 87; acked when compressed and the sum is right | 87 |
| MORE_BYTES | bytes follow the last record | 87 | 87 |
| FEWER_RECORDS | the records end too early | 87 | 87 |
| TIMESTAMP | a timestamp, the base too, is beyond ±TIMESTAMP_MAX; -1 is none | 32, more than 1 h ahead too | 32 |
| KEYLESS | a record of a compacted topic has no key | 87 | 87 |

Where Kafka acks what we refuse, one of the clients stops at it or reads other offsets than reported; no client
writes such batches. The last two are reported after the whole walk: a false structure goes before them. Kafka also
refuses times more than an hour ahead of its clock; a board's clock may be wrong, so that is not done here.

Two walkers give the same verdicts: walk.c, where a library for this machine is there (edge_broker.compiled), and
PythonWalk. Both take pieces cut at any byte.

Does not contain: unpacking, headers of batches, which batches are walked. Source: Kafka's DefaultRecord and
LogValidator, measured by tests/conformance/test_lying_batches.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol, TypeAlias

from edge_broker.compiled import compiled_walk
from edge_broker.errors import BatchRefusal, ErrorCode

# numbered as walk.c's are
GOES_ON, RECORD_LENGTH, ATTRIBUTES, VARINT, BEYOND_RECORD, OFFSET_DELTA, NEGATIVE_LENGTH = range(7)
HEADERS_COUNT, HEADER_KEY, RECORD_REST, MORE_BYTES, FEWER_RECORDS, TIMESTAMP, KEYLESS = range(7, 14)

TIMESTAMP_MAX = 253_402_300_799_999  # ms; the end of the year 9999, the last that Python, Spark and SQL can write down

LISTED_RECORDS, LISTED_BYTES, _LISTED_PIECE = 300, 65_536, 1024

_TEXTS = {
    RECORD_LENGTH: "record {0} has no bytes",
    ATTRIBUTES: "record {0} has attributes that nobody knows",
    VARINT: "record {0} has a number that is too long",
    BEYOND_RECORD: "record {0} has a field that reaches beyond its end",
    OFFSET_DELTA: "record {0} does not have offset delta {0}",
    NEGATIVE_LENGTH: "record {0} has a key, value or header of negative length",
    HEADERS_COUNT: "record {0} has an impossible number of headers",
    HEADER_KEY: "record {0} has a header without a key",
    RECORD_REST: "record {0} does not end where it says",
    MORE_BYTES: "bytes follow its {0} records",
    FEWER_RECORDS: "it ends in record {0} of {1}",
}

_SIZE, _FLAGS, _TIME, _OFFSET, _KEY, _VALUE, _HEADERS, _NAME, _CONTENT = range(9)
_WRAP = 1 << 64

Area: TypeAlias = bytes | bytearray | memoryview


class RecordsWalk(Protocol):
    """One walk; records are counted from 0, `bad_time` and `keyless` are the first such record or -1."""

    verdict: int
    records: int
    position: int
    max_timestamp: int
    bad_time: int
    keyless: int
    count: int

    def feed(self, piece: Area, *, last: bool) -> int:
        """Walk the next piece, the last one if `last`; the verdict so far, GOES_ON while nothing is wrong."""


class PythonWalk:
    """The walker where there is no compiled one: some 20 times slower."""

    __slots__ = (
        "_field",
        "_headers",
        "_left",
        "_shift",
        "_skip",
        "_value",
        "bad_time",
        "base_timestamp",
        "count",
        "keyless",
        "keys_required",
        "max_timestamp",
        "position",
        "records",
        "times_checked",
        "verdict",
    )

    def __init__(self, base_timestamp: int, count: int, keys_required: bool, times_checked: bool) -> None:
        self.base_timestamp = base_timestamp
        self.count = count
        self.keys_required = keys_required
        self.times_checked = times_checked
        self.max_timestamp = self.keyless = -1
        self.bad_time = 0 if times_checked and not -TIMESTAMP_MAX <= base_timestamp <= TIMESTAMP_MAX else -1
        self.verdict = self.records = self.position = 0
        self._left = self._skip = self._headers = self._value = self._shift = 0
        self._field = _SIZE

    def feed(self, piece: Area, *, last: bool) -> int:
        """Walk the next piece, the last one if `last`; the verdict so far, GOES_ON while nothing is wrong."""
        if not self.verdict:
            self.verdict = self._walk(piece)
            self.position += len(piece)
            if not self.verdict and last:
                self.verdict = self._end()
        return self.verdict

    def _walk(self, piece: Area) -> int:
        at, end = 0, len(piece)
        while at < end:
            if self._skip:
                step = min(end - at, self._skip)
                at += step
                self._skip -= step
                continue
            byte = piece[at]
            at += 1
            field, shift = self._field, self._shift
            if field != _SIZE:
                self._left -= 1
                if self._left < 0:
                    return BEYOND_RECORD
            elif self.records == self.count:
                return MORE_BYTES
            if byte < 128 and not shift:
                raw = byte
            elif field == _FLAGS:
                return ATTRIBUTES
            else:
                raw = self._value | (byte & 127) << shift
                if shift == (63 if field == _TIME else 28) and byte > (1 if field == _TIME else 15):
                    return VARINT
                if byte > 127:
                    self._value, self._shift = raw, shift + 7
                    continue
                self._value = self._shift = 0
            verdict = self._take(field, (raw >> 1) ^ -(raw & 1))
            if verdict:
                return verdict
        return GOES_ON

    def _take(self, field: int, number: int) -> int:
        """Handle a whole number of the current field; a verdict, or GOES_ON with the next field set."""
        verdict = GOES_ON
        if field == _SIZE:
            if number < 1:
                return RECORD_LENGTH
            self._left = number
        elif field == _FLAGS:
            pass  # one byte, which means nothing
        elif field == _TIME:
            self._take_time(number)
        elif field == _OFFSET:
            if number != self.records:
                return OFFSET_DELTA
        elif field == _HEADERS:
            if not 0 <= number <= self._left:
                return HEADERS_COUNT
            self._headers = number
            if not number:
                return self._end_record()
        else:
            if number < 0 and field == _NAME:
                return HEADER_KEY
            if number == -1 and field == _KEY and self.keys_required and self.keyless < 0:
                self.keyless = self.records
            verdict = self._take_length(number)
            if field == _CONTENT and not verdict:
                return self._end_header()
        self._field = field + 1
        return verdict

    def _take_time(self, delta: int) -> None:
        time = (self.base_timestamp + delta + _WRAP // 2) % _WRAP - _WRAP // 2
        if self.times_checked and not -TIMESTAMP_MAX <= time <= TIMESTAMP_MAX and self.bad_time < 0:
            self.bad_time = self.records
        self.max_timestamp = max(self.max_timestamp, time)

    def _take_length(self, length: int) -> int:
        if length < -1:
            return NEGATIVE_LENGTH
        if length > self._left:
            return BEYOND_RECORD
        if length > 0:
            self._left -= length
            self._skip = length
        return GOES_ON

    def _end_header(self) -> int:
        self._headers -= 1
        self._field = _NAME
        return GOES_ON if self._headers else self._end_record()

    def _end_record(self) -> int:
        if self._left:
            return RECORD_REST
        self.records += 1
        self._field = _SIZE
        return GOES_ON

    def _end(self) -> int:
        if self._field != _SIZE or self._skip or self._shift or self.records != self.count:
            return FEWER_RECORDS
        if self.bad_time >= 0:
            return TIMESTAMP
        return KEYLESS if self.keyless >= 0 else GOES_ON


def begin_walk(base_timestamp: int, count: int, keys_required: bool, times_checked: bool) -> RecordsWalk:
    """A walk that is fed slice by slice, in any thread; the compiled one lets others run meanwhile."""
    compiled = compiled_walk()
    if compiled is not None:
        return compiled.begin(base_timestamp, count, keys_required, times_checked)
    return PythonWalk(base_timestamp, count, keys_required, times_checked)


def walk_whole(
    batch: bytes | memoryview, position: int, base_timestamp: int, count: int, keys_required: bool, times_checked: bool
) -> RecordsWalk:
    """The walk through all records, from `position` on, on the loop; what it returns is good until the next call."""
    compiled = compiled_walk()
    if compiled is not None:
        return compiled.whole(batch, position, base_timestamp, count, keys_required, times_checked)
    walk = PythonWalk(base_timestamp, count, keys_required, times_checked)
    walk.feed(batch[position:], last=True)
    return walk


class _BadRecords(PythonWalk):
    """Finds every bad record of a batch whose structure is right."""

    __slots__ = ("found",)

    def __init__(self, base_timestamp: int, count: int, keys_required: bool, times_checked: bool) -> None:
        super().__init__(base_timestamp, count, keys_required, times_checked)
        self.found: dict[int, None] = {}

    def _end_record(self) -> int:
        if self.bad_time >= 0 or self.keyless >= 0:
            self.found[self.records] = None
            self.bad_time = self.keyless = -1
        return super()._end_record()


def bad_records(pieces: Iterable[Area], rules: tuple[int, int, bool, bool], first: int) -> tuple[int, ...]:
    """The bad records among the first ones of a batch that was walked, and the `first` that the walk told of.

    LISTED_RECORDS and LISTED_BYTES bound it to 3 ms of a PC, however the batch is made.
    """
    walk = _BadRecords(*rules)
    for piece in pieces:
        for at in range(0, len(piece), _LISTED_PIECE):
            walk.feed(piece[at : at + _LISTED_PIECE], last=False)
            if walk.records >= LISTED_RECORDS or walk.position >= LISTED_BYTES:
                return tuple(sorted({first, *walk.found}))
    return tuple(sorted({first, *walk.found}))


def refusal_of(walk: RecordsWalk, records: Callable[[int], tuple[int, ...]] | None = None) -> BatchRefusal:
    """The answer to a batch whose walk ended with a verdict; `records` finds all that are as bad as the first."""
    if walk.verdict == TIMESTAMP:
        code, first = ErrorCode.INVALID_TIMESTAMP, walk.bad_time
        reason = f"Record {first} of the batch has a timestamp beyond the year 9999; send ms since 1970."
        each = "The timestamp lies beyond the year 9999; send ms since 1970."
    elif walk.verdict == KEYLESS:
        code, first = ErrorCode.INVALID_RECORD, walk.keyless
        reason = f"A compacted topic takes no record without a key, and record {first} has none."
        each = "A compacted topic takes no record without a key."
    else:
        return lying(_TEXTS[walk.verdict].format(walk.records, walk.count))
    return BatchRefusal(code, reason, (first,) if records is None else records(first), each)


def lying(reason: str) -> BatchRefusal:
    """The answer to a batch whose inside is not what its header says."""
    return BatchRefusal(ErrorCode.INVALID_RECORD, f"The batch's inside is not what its header says: {reason}.")
