"""The check of a batch's records, in turns: as much at a time as the caller allows, on the loop or in a worker.

Contains: one batch on its way through Unpacker and walk. Does not contain: who takes turns with whom
(network/dispatch/record_check_jobs.py), the rules (records_walk.py). Source: Kafka's LogValidator.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct

from edge_broker.protocol.crc import crc32c
from edge_broker.protocol.record_batch import CHECKED_POSITION, CRC_POSITION, HEADER_SIZE, BatchHeader
from edge_broker.protocol.records_walk import RecordsWalk, bad_records, begin_walk, refusal_of, walk_whole
from edge_broker.protocol.unpacking import PIECE_BYTES, Unpacker

_MAX_TIMESTAMP = Struct(">q")
_MAX_TIMESTAMP_POSITION = 35


def check_records(batch: memoryview, header: BatchHeader, *, keys_required: bool, times_checked: bool) -> None:
    """Check an uncompressed batch at once, on the loop, and correct its greatest timestamp. Refusal as RecordsCheck."""
    base_timestamp, count = header.base_timestamp, header.records_count
    walk = walk_whole(batch, HEADER_SIZE, base_timestamp, count, keys_required, times_checked)
    if walk.verdict:
        rules = base_timestamp, count, keys_required, times_checked
        raise refusal_of(walk, lambda first: bad_records([batch[HEADER_SIZE:]], rules, first))
    if walk.max_timestamp != header.max_timestamp:
        correct_max_timestamp(batch, header, walk.max_timestamp)


class RecordsCheck:
    """One batch being checked, of which `batch` keeps the bytes until the end.

    Raises Refusal: INVALID_RECORD, INVALID_TIMESTAMP, MESSAGE_TOO_LARGE when it unpacks to more than it may,
    UNSUPPORTED_COMPRESSION_TYPE.
    """

    def __init__(self, batch: memoryview, header: BatchHeader, *, keys_required: bool, times_checked: bool) -> None:
        self._walk: RecordsWalk | None = None
        self._rules = header.base_timestamp, header.records_count, keys_required, times_checked
        self._packed = header.codec, batch[HEADER_SIZE : header.size]
        self._unpacker = Unpacker(*self._packed)
        self._pieces: Iterator[bytes | memoryview] = iter(self._unpacker)

    @property
    def walked_bytes(self) -> int:
        """Bytes of records so far."""
        return 0 if self._walk is None else self._walk.position

    @property
    def max_timestamp(self) -> int:
        """The greatest timestamp so far, -1 for none."""
        return -1 if self._walk is None else self._walk.max_timestamp

    def run(self, bytes_max: int = PIECE_BYTES, *, on_loop: bool = False) -> bool:
        """Walk about `bytes_max` more bytes; True once all of it is checked and right.

        Facts of the walk are valid until the next one `on_loop` begins.
        """
        unpacker, walk = self._unpacker, self._walk
        end = self.walked_bytes + bytes_max
        unpacker.piece_bytes = min(bytes_max, PIECE_BYTES)
        for piece in self._pieces:
            if walk is None and on_loop and unpacker.at_end:
                walk = self._walk = walk_whole(piece, 0, *self._rules)
            else:
                walk = walk or self._begin()
                walk.feed(piece, last=unpacker.at_end)
            if walk.verdict:
                raise refusal_of(walk, self._bad_records)
            if walk.position >= end and not unpacker.at_end:
                return False
        walk = walk or self._begin()
        if not unpacker.at_end and walk.feed(b"", last=True):
            raise refusal_of(walk, self._bad_records)
        return True

    def _bad_records(self, first: int) -> tuple[int, ...]:
        unpacker = Unpacker(*self._packed)
        unpacker.piece_bytes = PIECE_BYTES
        return bad_records(unpacker, self._rules, first)

    def _begin(self) -> RecordsWalk:
        self._walk = begin_walk(*self._rules)
        return self._walk


def correct_max_timestamp(batch: memoryview, header: BatchHeader, max_timestamp: int) -> None:
    """Make a batch's greatest timestamp that of its records, as Kafka does; in place, its CRC too."""
    if header.max_timestamp != max_timestamp:
        _MAX_TIMESTAMP.pack_into(batch, _MAX_TIMESTAMP_POSITION, max_timestamp)
        header.max_timestamp = max_timestamp
        batch[CRC_POSITION:CHECKED_POSITION] = crc32c(batch[CHECKED_POSITION : header.size]).to_bytes(4, "big")
