"""PURE. Digests the log of one end: each record, and ranges of records.

A record's digest is BLAKE2b, 16 bytes, over its timestamp (8 bytes, big-endian) and its content as it lies in a batch:
key, value and headers with their lengths. Offsets, batches, compression, producers and leader epochs are left out, so
it is the same at both ends. In a batch with log append time each record has the batch's own time.

Ranges are cut by content: after each record whose digest is below CUT, one in RANGE_RECORDS, at the latest after
RECORDS_MAX. So both ends cut at the same records without any exchange, whatever is missing, doubled or foreign around
them, and a difference touches only the ranges that hold it. A range's digest is BLAKE2b over its records' digests.
Does not contain: clients, clocks, which end it is, what a difference means.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from hashlib import blake2b
from struct import Struct
from typing import Literal, NamedTuple

from kafka_wire.records.batches import Piece, merge

DIGEST_BYTES = 16
KEY_BYTES = 8
RANGE_RECORDS = 1024  # of which one starts a new range; with this, VERSION in audit/endpoints/digest_lines.py changes
RECORDS_MAX = 16 * RANGE_RECORDS
CUT = (65_536 // RANGE_RECORDS).to_bytes(2, "big")
NO_KEY = bytes(KEY_BYTES)

_HEADER_SIZE = 61
_BASE_TIMESTAMP = Struct(">27xq")
_TIME = Struct(">q")
_WRAP, _HALF = 1 << 64, 1 << 63

Kind = Literal["control", "aborted", "compacted", "from_target", "jump", "gone", "open"]
"""The kind of offsets without a record. The first three are those of kafka_wire.records.batches.

`from_target`: the mirror passes them over. `jump`: no batch covers them. `gone`: the log removed them while it was
read. `open`: after the last stable offset, of transactions that have not ended.
"""

COUNTED: tuple[Kind, ...] = ("control", "aborted", "compacted", "from_target")

Run = tuple[int, int]  # the first offset, and the number of consecutive ones


class Hole(NamedTuple):
    """Offsets in [first, end) without a record, of a kind that is not only counted."""

    first: int
    end: int
    kind: Kind


class Range(NamedTuple):
    """Consecutive records, and the offsets without a record between them and since the range before.

    `counts` are offsets of the kinds COUNTED. `digests` and `keys` are those of each record, concatenated; None if they
    were not sent. The last range is not cut, it ends with the log, and may have no records.
    """

    records: int
    digest: bytes
    runs: tuple[Run, ...]
    counts: tuple[int, int, int, int] = (0, 0, 0, 0)
    holes: tuple[Hole, ...] = ()
    digests: bytes | None = None
    keys: bytes | None = None
    is_cut: bool = True

    @property
    def first(self) -> int:
        """The first record's offset; only of a range with records."""
        return self.runs[0][0]

    @property
    def last(self) -> int:
        """The last record's offset; only of a range with records."""
        return sum(self.runs[-1]) - 1


class Part(NamedTuple):
    """Some consecutive records of a range; `digests` and `keys` as there, `whole` the range's digest if it is all."""

    runs: tuple[Run, ...]
    digests: bytes | None
    keys: bytes | None
    whole: bytes | None = None

    @property
    def records(self) -> int:
        """The number of records."""
        return sum(count for _, count in self.runs)

    @property
    def first(self) -> int:
        """The first record's offset."""
        return self.runs[0][0]

    @property
    def end(self) -> int:
        """The offset after the last record's."""
        return sum(self.runs[-1])


def part(of: Range, begin: int = 0, end: int | None = None) -> Part:
    """Return the records [begin, end) of a range, by their places in it."""
    stop = of.records if end is None else end
    runs, at = [], 0
    for offset, count in of.runs:
        low, high = max(begin - at, 0), min(stop - at, count)
        if low < high:
            runs.append((offset + low, high - low))
        at += count
    digests = None if of.digests is None else of.digests[begin * DIGEST_BYTES : stop * DIGEST_BYTES]
    keys = None if of.keys is None else of.keys[begin * KEY_BYTES : stop * KEY_BYTES]
    return Part(tuple(runs), digests, keys, of.digest if stop - begin == of.records else None)


class Parts(NamedTuple):
    """The parts of one record: its timestamp, and a digest of each other part."""

    timestamp: int
    key: str
    value: str
    headers: str


def parts_of(
    timestamp: int, key: bytes | None, value: bytes | None, headers: Sequence[tuple[str, bytes | None]]
) -> Parts:
    """Digest each part of a record."""
    named = [one for name, content in headers for one in (name.encode(), content)]
    return Parts(timestamp, _digest_text(key), _digest_text(value), _digest_text(*named))


def _digest_text(*contents: bytes | None) -> str:
    digest = blake2b(digest_size=KEY_BYTES)
    for content in contents:
        digest.update(b"-" if content is None else b"%d:" % len(content) + content)
    return digest.hexdigest()


class Digests(NamedTuple):
    """The records of a source batch: their offsets, their digests in order, and their keys' if they were requested."""

    runs: tuple[Run, ...]
    digests: list[bytes]
    keys: list[bytes]


def digests_of(piece: Piece, *, keyed: bool = False) -> Digests:
    """Digest the records of a source batch. Raises BadBatch if its content contradicts its header.

    A key's digest has 8 bytes, whose last bit says that the value is null; NO_KEY if there is no key.
    """
    packed = merge([piece], "none")
    batch = bytes(packed.batch)
    if not packed.records:
        return Digests((), [], [])
    (base,) = _BASE_TIMESTAMP.unpack_from(batch)
    digests, keys = [], []
    for timestamp, content in _contents(batch, base):
        digests.append(blake2b(_TIME.pack(timestamp) + content, digest_size=DIGEST_BYTES).digest())
        if keyed:
            keys.append(_key_digest(content))
    return Digests(packed.runs, digests, keys)


def _contents(batch: bytes, base: int) -> Iterator[tuple[int, bytes]]:
    """Return timestamp and content of each record of a batch that `merged` made, and which is well formed therefore."""
    at, end = _HEADER_SIZE, len(batch)
    while at < end:
        size, at = _varint(batch, at)
        stop = at + (size >> 1)
        delta, at = _varint(batch, at + 1)
        while batch[at] & 0x80:  # the offset delta
            at += 1
        timestamp = base + ((delta >> 1) ^ -(delta & 1))
        if not -_HALF <= timestamp < _HALF:  # as Java's numbers do
            timestamp = (timestamp + _HALF) % _WRAP - _HALF
        yield timestamp, batch[at + 1 : stop]
        at = stop


def _varint(batch: bytes, at: int) -> tuple[int, int]:
    """Return the bits of a zigzag varint, and the place after it."""
    bits = batch[at]
    at += 1
    if bits < 0x80:
        return bits, at
    bits &= 0x7F
    shift = 7
    while True:
        more = batch[at]
        at += 1
        bits |= (more & 0x7F) << shift
        if more < 0x80:
            return bits, at
        shift += 7


def _key_digest(content: bytes) -> bytes:
    size, at = _varint(content, 0)
    if size & 1:
        return NO_KEY
    end = at + (size >> 1)
    is_null = content[end] & 1
    digest = blake2b(content[at:end], digest_size=KEY_BYTES).digest()
    return digest[:-1] + bytes([digest[-1] & 0xFE | is_null])


class Chunker:
    """Cuts the records of one partition, in order, into ranges; `keeps` the digests of each record."""

    def __init__(self, *, keeps: bool = True) -> None:
        self._keeps = keeps
        self._begin()

    def _begin(self) -> None:
        self._digests: list[bytes] = []
        self._keys: list[bytes] = []
        self._runs: list[Run] = []
        self._counts = dict.fromkeys(COUNTED, 0)
        self._holes: list[Hole] = []

    def skip(self, first: int, end: int, kind: Kind) -> None:
        """Note offsets in [first, end) without a record."""
        if kind in COUNTED:
            self._counts[kind] += end - first
        else:
            self._holes.append(Hole(first, end, kind))

    def add(self, found: Digests) -> Iterator[Range]:
        """Add the records of a source batch, and return each range that they end."""
        begin = 0
        runs = list(found.runs)
        for end in self._ends(found.digests):
            self._take(found, begin, end, runs)
            yield self._range()
            begin = end
        self._take(found, begin, len(found.digests), runs)

    def _ends(self, digests: Sequence[bytes]) -> list[int]:
        """Return the places after which a range ends."""
        ends, last = [], -len(self._digests)
        cuts = [index + 1 for index, digest in enumerate(digests) if digest < CUT]
        for cut in [*cuts, len(digests)]:
            while cut - last > RECORDS_MAX:
                last += RECORDS_MAX
                ends.append(last)
            if cut != last and cuts and cut <= cuts[-1]:
                ends.append(cut)
                last = cut
        return ends

    def _take(self, found: Digests, begin: int, end: int, runs: list[Run]) -> None:
        self._digests += found.digests[begin:end]
        self._keys += found.keys[begin:end]
        left = end - begin
        while left:
            offset, count = runs.pop(0)
            if count > left:
                runs.insert(0, (offset + left, count - left))
                count = left
            self._append(offset, count)
            left -= count

    def _append(self, offset: int, count: int) -> None:
        if self._runs and sum(self._runs[-1]) == offset:
            self._runs[-1] = (self._runs[-1][0], self._runs[-1][1] + count)
        else:
            self._runs.append((offset, count))

    def _range(self) -> Range:
        digests = b"".join(self._digests)
        found = Range(
            len(self._digests),
            range_digest(digests),
            tuple(self._runs),
            (
                self._counts["control"],
                self._counts["aborted"],
                self._counts["compacted"],
                self._counts["from_target"],
            ),
            tuple(self._holes),
            digests if self._keeps else None,
            b"".join(self._keys) if self._keys else None,
        )
        self._begin()
        return found

    def last_range(self) -> Range:
        """Return the last range, with all since the one before."""
        return self._range()._replace(is_cut=False)


def range_digest(digests: bytes) -> bytes:
    """Return the digest of a range, from those of its records."""
    return blake2b(digests, digest_size=DIGEST_BYTES).digest()


def split(digests: bytes, size: int = DIGEST_BYTES) -> list[bytes]:
    """Split concatenated digests."""
    return [digests[at : at + size] for at in range(0, len(digests), size)]
