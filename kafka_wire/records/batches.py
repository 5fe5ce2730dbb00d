"""Cut record batches out of a fetch, and forward them unchanged or merge them into one; all as bytes.

| of a fetch's answer                                   | `pieces_of` gives                       |
|-------------------------------------------------------|-----------------------------------------|
| a batch of data with records                          | Piece                                   |
| a transaction marker                                  | SkippedRange, "control"                 |
| data of an aborted transaction                        | SkippedRange, "aborted"                 |
| a batch that was compacted until no record was left   | SkippedRange, "compacted"               |
| a batch wholly below the offset that was asked for    | nothing                                 |
| the last batch, truncated; unless it is the first     | nothing                                 |
| what is damaged, lies, or is older than magic 2       | BadBatch, and what follows is not read  |

Offsets that no batch covers are not told: they lie between one's `end_offset` and the next one's `first_offset`. Those
within a batch that no record holds lie between the runs of what is packed.

Does not contain: sockets, clocks, the choice to forward or merge, the reaction to a bad batch. Source: Kafka's
DefaultRecordBatch, CompletedFetch (aborted transactions), LogValidator, KIP-74 (a first batch comes whole).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from struct import Struct
from typing import NamedTuple

from edge_broker.errors import ErrorCode, ProtocolViolation, Refusal
from edge_broker.protocol.crc import crc32c
from edge_broker.protocol.record_batch import (
    CHECKED_POSITION,
    CODEC_MASK,
    CODEC_NONE,
    CONTROL,
    CRC_POSITION,
    DECOMPRESSED_BYTES_MAX,
    DELETE_HORIZON,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    MAGIC,
    MAGIC_POSITION,
    NO_PRODUCER_ID,
    SIZE_OVERHEAD,
    TRANSACTIONAL,
    BatchHeader,
    records_of,
)
from edge_broker.protocol.renumbering import LyingPiece, Place, WantedPiece, content_bytes, places, renumber
from edge_broker.protocol.unpacking import CODEC_ZSTD, Unpacker
from kafka_wire.records.codecs import codec_number, compress

CONTROL_KIND, ABORTED_KIND, COMPACTED_KIND = "control", "aborted", "compacted"
OFFSET_MAX = 2**63 - 1
SEQUENCES = 2**31  # after 2^31 - 1 comes 0

_FRONT = Struct(">qi")
_HEADER = Struct(">qiibIhiqqqhii")
_PRODUCER = Struct(">qhi")
_PRODUCER_POSITION = 43
_ATTRIBUTES = Struct(">h")
_CRC = Struct(">I")
_ABORT_KEY = b"\x00\x00"  # after the version: an abort marker
_NEVER_FORWARDED = CONTROL | LOG_APPEND_TIME | DELETE_HORIZON
_LEGACY_SIZE_MIN = 26  # a message of magic 0 with neither key nor value


class BadBatch(Exception):
    """A batch that cannot be forwarded: one sentence, and the source offsets that it claims.

    `end_offset` is None if the header is unusable. The CRC does not cover the base offset, and a batch that does not
    match its CRC may have any field wrong. So the offsets are only a claim.
    """

    def __init__(self, sentence: str, first_offset: int, end_offset: int | None) -> None:
        super().__init__(sentence)
        self.first_offset, self.end_offset = first_offset, end_offset


class TooMuchAtOnce(Exception):
    """Several pieces together unpack to more than DECOMPRESSED_BYTES_MAX: `split` them. A single one is BadBatch."""


class Piece(NamedTuple):
    """The part of one fetched batch to send: its records at source offsets in [first_offset, end_offset)."""

    header: BatchHeader
    batch: memoryview
    first_offset: int
    end_offset: int


class SkippedRange(NamedTuple):
    """Source offsets in [first_offset, end_offset) with nothing to send: "control", "aborted" or "compacted"."""

    first_offset: int
    end_offset: int
    kind: str


class PackedBatch(NamedTuple):
    """One batch of magic 2 for a target, without a producer: `stamp` it, or send it without one.

    It has base offset 0, leader epoch -1, no producer, offset deltas 0 to records - 1. `runs` are the source offsets of
    its records in order, as (first offset, count): exact whatever was compacted. `payload_bytes` are the records' bytes
    before compression; for a compressed forwarded batch they are unknown, and the compressed ones count instead.
    Pieces without any record left give 0 records and an empty batch: there is nothing to send.
    """

    batch: bytearray
    records: int
    runs: tuple[tuple[int, int], ...]
    payload_bytes: int


def pieces_of(
    data: memoryview, from_offset: int, aborted: Sequence[tuple[int, int]] = ()
) -> Iterator[Piece | SkippedRange]:
    """Split the batches of one partition's response, in order; the table above has the result for each.

    `aborted` are producer id and first offset of each aborted transaction, as Fetch returns them under read_committed,
    in any order. Pieces are views of `data`. Raises BadBatch.
    """
    position, end, follows = 0, len(data), 0
    transactions = _AbortedTransactions(aborted) if aborted else None
    while end - position > MAGIC_POSITION:
        if end - position < HEADER_SIZE or data[position + MAGIC_POSITION] != MAGIC:
            position = _pass_unreadable(data, position, from_offset)
            continue
        header = BatchHeader(data, position)
        if not (
            follows <= header.base_offset < OFFSET_MAX - header.last_offset_delta
            and 0 <= header.records_count <= header.last_offset_delta + 1
            and header.batch_length >= HEADER_SIZE - SIZE_OVERHEAD
        ):
            raise BadBatch(f"A batch has impossible offsets, length or count: {header}.", header.base_offset, None)
        stop = position + SIZE_OVERHEAD + header.batch_length
        if stop > end:
            _check_cut(data, position)
            return
        follows = header.base_offset + header.last_offset_delta + 1
        if follows > from_offset:
            yield _classify(header, data[position:stop], max(header.base_offset, from_offset), transactions)
        elif transactions is not None:
            transactions.is_aborted(header, data[position:stop])
        position = stop


def last_marker(data: memoryview) -> tuple[int, int] | None:
    """Return producer and epoch of the last marker among the whole batches of a response, as `pieces_of` does."""
    position, found = 0, None
    while len(data) - position >= HEADER_SIZE and data[position + MAGIC_POSITION] == MAGIC:
        header = BatchHeader(data, position)
        position += SIZE_OVERHEAD + header.batch_length
        if header.batch_length <= 0 or position > len(data):
            break
        if header.attributes & CONTROL:
            found = header.producer_id, header.producer_epoch
    return found


def markers_of(data: memoryview) -> dict[int, tuple[int, bool]]:
    """Return the producer of each marker by its offset, and whether it ends an aborted transaction; raises BadBatch."""
    position, found = 0, {}
    while len(data) - position >= HEADER_SIZE and data[position + MAGIC_POSITION] == MAGIC:
        header = BatchHeader(data, position)
        stop = position + SIZE_OVERHEAD + header.batch_length
        if header.batch_length <= 0 or stop > len(data):
            break
        if header.attributes & CONTROL:
            found[header.base_offset] = header.producer_id, _is_abort_marker(data[position:stop])
        position = stop
    return found


def _pass_unreadable(data: memoryview, position: int, from_offset: int) -> int:
    """Return the place after data that is no batch of magic 2, or has no whole header, if none of it was requested."""
    offset, length = _front(data, position)
    magic, stop = data[position + MAGIC_POSITION], position + SIZE_OVERHEAD + length
    if magic > MAGIC:
        raise BadBatch(f"A batch at offset {offset} has magic {magic}, and there is none above 2.", offset, None)
    if stop - position < (HEADER_SIZE if magic == MAGIC else _LEGACY_SIZE_MIN):
        raise BadBatch(f"A batch at offset {offset} says it has {stop - position} bytes.", offset, None)
    if stop > len(data):
        _check_cut(data, position)
        return len(data)
    if offset >= from_offset:
        raise BadBatch(
            f"The messages up to offset {offset} have magic {magic}, the format from before Kafka 0.11: set the "
            "topic's message.format.version to 3.0 and write them again, or let retention remove them.",
            from_offset,
            offset + 1,
        )
    return stop


def _front(data: memoryview, position: int) -> tuple[int, int]:
    offset, length = _FRONT.unpack_from(data, position)
    return offset, length


def _check_cut(data: memoryview, position: int) -> None:
    """Leave out a truncated batch; the first of a response comes whole, however large, or raise BadBatch."""
    if not position:
        offset, length = _front(data, position)
        sentence = f"The batch at offset {offset} says it has {SIZE_OVERHEAD + length} bytes, and {len(data)} came."
        raise BadBatch(sentence, offset, None)


def _classify(
    header: BatchHeader, batch: memoryview, first_offset: int, transactions: _AbortedTransactions | None
) -> Piece | SkippedRange:
    end_offset = header.base_offset + header.last_offset_delta + 1
    if crc32c(batch[CHECKED_POSITION:]) != header.crc:
        sentence = f"The batch at offsets {header.base_offset} to {end_offset - 1} does not match its CRC."
        raise BadBatch(sentence, first_offset, end_offset)
    if transactions is not None and transactions.is_aborted(header, batch):
        return SkippedRange(first_offset, end_offset, ABORTED_KIND)
    if header.attributes & CONTROL:
        return SkippedRange(first_offset, end_offset, CONTROL_KIND)
    if not header.records_count:
        return SkippedRange(first_offset, end_offset, COMPACTED_KIND)
    return Piece(header, batch, first_offset, end_offset)


class _AbortedTransactions:
    """The aborted transactions of a response, for its batches in order: CompletedFetch's own rule.

    A transaction's producer is excluded from the batch that reaches its first offset, until its abort marker.
    """

    def __init__(self, aborted: Sequence[tuple[int, int]]) -> None:
        self._waiting = sorted(((first, producer) for producer, first in aborted), reverse=True)
        self._producers: set[int] = set()

    def is_aborted(self, header: BatchHeader, batch: memoryview) -> bool:
        """Return whether this is an aborted transaction's data; its marker is none."""
        if header.producer_id == NO_PRODUCER_ID:
            return False
        while self._waiting and self._waiting[-1][0] <= header.last_offset:
            self._producers.add(self._waiting.pop()[1])
        if header.attributes & CONTROL:
            if _is_abort_marker(batch):
                self._producers.discard(header.producer_id)
            return False
        return bool(header.attributes & TRANSACTIONAL) and header.producer_id in self._producers


def _is_abort_marker(batch: memoryview) -> bool:
    try:
        key = next((record.key for record in records_of(batch)), None)
    except (Refusal, ProtocolViolation) as error:
        header = BatchHeader(batch)
        sentence = f"The marker at offset {header.base_offset} cannot be read: {error}"
        raise BadBatch(sentence, header.base_offset, header.next_offset) from error
    return key is not None and key[2:4] == _ABORT_KEY


def may_be_forwarded(piece: Piece) -> bool:
    """Return whether a target accepts this batch unchanged, by its header: whole, no holes, nothing only brokers write.

    Its records are not checked: a target refuses a batch whose content contradicts its header; `merge` then says why.
    """
    header = piece.header
    return (
        piece.first_offset == header.base_offset
        and piece.end_offset == header.next_offset
        and header.records_count == header.last_offset_delta + 1
        and not header.attributes & _NEVER_FORWARDED
        and header.attributes & CODEC_MASK <= CODEC_ZSTD
    )


def forward(piece: Piece) -> PackedBatch:
    """Return the batch with its records untouched, without its producer, transaction and offsets.

    Raises ValueError if it may not be forwarded.
    """
    if not may_be_forwarded(piece):
        raise ValueError(f"This batch may not be forwarded as it is: {piece.header}.")
    header, batch = piece.header, bytearray(piece.batch)
    _write_header(batch, header.codec, header.base_timestamp, header.max_timestamp, header.records_count)
    runs = ((header.base_offset, header.records_count),)
    return PackedBatch(batch, header.records_count, runs, len(batch) - HEADER_SIZE)


def merge(pieces: Sequence[Piece], codec: int | str, level: int | None = None) -> PackedBatch:
    """Return one batch of all records of the pieces, with new numbers, compressed by the codec, smaller or not.

    Each keeps its key, value, headers and timestamp; those of a batch with log append time have that time. Raises
    BadBatch for a piece whose content contradicts its header, or that unpacks to more than DECOMPRESSED_BYTES_MAX.
    Raises TooMuchAtOnce if all together do; ValueError for no pieces, or a codec or level that does not exist.
    """
    number = codec_number(codec)
    area, wanted = _unpack(pieces)
    try:
        found = renumber(area, wanted, HEADER_SIZE)
    except LyingPiece as lie:
        raise _lying(pieces[lie.piece], lie) from lie
    area.clear()
    batch, payload = found.batch, len(found.batch) - HEADER_SIZE
    if not found.records:
        return PackedBatch(bytearray(), 0, (), 0)
    if number != CODEC_NONE:
        with memoryview(batch) as view:
            packed = compress(number, level, view[HEADER_SIZE:])
        del batch[HEADER_SIZE:]
        batch += packed
    _write_header(batch, number, found.base_timestamp, found.max_timestamp, found.records)
    return PackedBatch(batch, found.records, found.runs, payload)


def _lying(piece: Piece, lie: LyingPiece) -> BadBatch:
    return _bad(piece, f"is not what its header says: {lie}.")


def _bad(piece: Piece, what: str) -> BadBatch:
    header = piece.header
    sentence = f"The batch at offsets {header.base_offset} to {header.last_offset} {what}"
    return BadBatch(sentence, piece.first_offset, piece.end_offset)


def _too_much(pieces: Sequence[Piece]) -> TooMuchAtOnce:
    return TooMuchAtOnce(f"{len(pieces)} batches unpack to more than {DECOMPRESSED_BYTES_MAX} bytes together.")


def _unpack(pieces: Sequence[Piece]) -> tuple[bytearray, list[WantedPiece]]:
    """Return the concatenated pieces, their records unpacked, headers unchanged."""
    if not pieces:
        raise ValueError("A batch is merged of at least one piece.")
    area, wanted, left = bytearray(), [], DECOMPRESSED_BYTES_MAX
    for piece in pieces:
        begin, batch = len(area), piece.batch
        if not piece.header.attributes & CODEC_MASK:
            area += batch
        else:
            area += batch[:HEADER_SIZE]
            unpacker = Unpacker(piece.header.codec, batch[HEADER_SIZE:])
            unpacker.unpacked_max = left
            try:
                for part in unpacker:
                    area += part
            except Refusal as refusal:
                if begin and refusal.code == ErrorCode.MESSAGE_TOO_LARGE:
                    raise _too_much(pieces) from refusal
                raise _bad(piece, f"cannot be unpacked: {refusal.message}") from refusal
        size = len(area) - begin
        left -= size - HEADER_SIZE
        if left < 0:
            raise _too_much(pieces) if begin else _bad(piece, f"has more than {DECOMPRESSED_BYTES_MAX} bytes.")
        wanted.append(WantedPiece(size, piece.first_offset, piece.end_offset))
    return area, wanted


def _write_header(batch: bytearray, codec: int, base_timestamp: int, max_timestamp: int, records: int) -> None:
    """Write the header of an unstamped batch, CRC included, over the present one."""
    length = len(batch) - SIZE_OVERHEAD
    times = base_timestamp, max_timestamp
    _HEADER.pack_into(batch, 0, 0, length, -1, MAGIC, 0, codec, records - 1, *times, NO_PRODUCER_ID, -1, -1, records)
    _renew_crc(batch)


def _renew_crc(batch: bytearray) -> None:
    _CRC.pack_into(batch, CRC_POSITION, crc32c(memoryview(batch)[CHECKED_POSITION:]))


def stamp(
    batch: bytearray, producer_id: int, producer_epoch: int, base_sequence: int, *, transactional: bool = False
) -> None:
    """Write a producer into a packed batch, in place, and update its CRC; the records are not read."""
    _PRODUCER.pack_into(batch, _PRODUCER_POSITION, producer_id, producer_epoch, base_sequence)
    (attributes,) = _ATTRIBUTES.unpack_from(batch, CHECKED_POSITION)
    attributes = attributes & ~TRANSACTIONAL | (TRANSACTIONAL if transactional else 0)
    _ATTRIBUTES.pack_into(batch, CHECKED_POSITION, attributes)
    _renew_crc(batch)


def split(pieces: Sequence[Piece]) -> tuple[list[Piece], list[Piece]]:
    """Split a batch that a target refused as too large into two parts, about half of the bytes each and in order.

    Pieces stay whole if that is near enough to the half, else one is cut between two of its records. A part may hold no
    record, if compaction has left none in its pieces; each part is less than the whole. Raises ValueError for a single
    record, BadBatch as `merge`.
    """
    sizes = [bytes_about(piece) for piece in pieces]
    half, before, at = sum(sizes) / 2, 0.0, 0
    while before + sizes[at] < half:
        before += sizes[at]
        at += 1
    behind = before + sizes[at]
    near = at if half - before <= behind - half else at + 1
    if min(half - before, behind - half) > half / 2:  # which both ends of the list are
        cut = _cut(pieces[at], (half - before) / sizes[at])
        if cut is not None:
            return [*pieces[:at], cut[0]], [cut[1], *pieces[at + 1 :]]
        near = max(1, min(near, len(pieces) - 1))
    if near == len(pieces):
        raise ValueError("A single record cannot be split.")
    return list(pieces[:near]), list(pieces[near:])


def bytes_about(piece: Piece) -> float:
    """Return the approximate bytes of a piece: its share of the batch, by offsets."""
    header = piece.header
    return header.size * (piece.end_offset - piece.first_offset) / (header.last_offset_delta + 1)


def _cut(piece: Piece, share: float) -> tuple[Piece, Piece] | None:
    """Cut a piece between two of its records, near `share`; return None if it has fewer than two."""
    found = _places(piece)[1]
    if len(found) < 2:
        return None
    begin, bytes_wanted = found[0].content, share * (found[-1].end - found[0].content)
    behind = (place.offset for place in found[1:] if place.content - begin >= bytes_wanted)
    offset = next(behind, found[-1].offset)
    return piece._replace(end_offset=offset), piece._replace(first_offset=offset)


def _places(piece: Piece) -> tuple[bytearray, list[Place]]:
    area, (wanted,) = _unpack([piece])
    try:
        found = list(places(area, 0, wanted.size))
    except LyingPiece as lie:
        raise _lying(piece, lie) from lie
    return area, [place for place in found if piece.first_offset <= place.offset < piece.end_offset]


def record_bytes(piece: Piece) -> int:
    """Return the bytes of key, value and headers of a piece's one record.

    Raises ValueError if it holds none or several, BadBatch as `merge`.
    """
    area, found = _places(piece)
    if len(found) != 1:
        raise ValueError(f"Offsets {piece.first_offset} to {piece.end_offset - 1} hold {len(found)} records, not one.")
    return content_bytes(area, found[0])
