"""Whether the records of a stored batch are what its header says: older versions acked batches whose inside lies.

Contains: the look into one batch. Does not contain: what is said of it. A lie is no damage: the file is as it was
produced, nothing can repair it, and consumers stop there until they seek past it.
"""

from __future__ import annotations

from edge_broker.errors import ErrorCode, ProtocolViolation, Refusal
from edge_broker.protocol.record_batch import BatchHeader, records_of
from edge_broker.protocol.records_check import RecordsCheck
from edge_broker.storage.segment.segment import Segment

_UNKNOWN = (ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, ErrorCode.MESSAGE_TOO_LARGE)


def lie_in(segment: Segment, position: int, header: BatchHeader) -> str | None:
    """Return the problem inside a batch whose CRC is right, and the remedy of consumers; None: no problem. OSError."""
    if not header.records_count:
        return None  # compaction left nothing but the header
    batch = memoryview(segment.read(header.size, position, blocking=True))
    try:
        if header.records_count == header.last_offset_delta + 1:
            check = RecordsCheck(batch, header, keys_required=False, times_checked=False)
            while not check.run():
                pass
        else:
            _check_compacted(batch, header)
    except Refusal as refusal:
        if refusal.code in _UNKNOWN:
            return None
        return _sentence(header, refusal.message)
    except ProtocolViolation as violation:
        return _sentence(header, str(violation))
    return None


def _check_compacted(batch: memoryview, header: BatchHeader) -> None:
    """Compaction keeps some records of a batch: their offsets rise and stay within the header's."""
    due = header.base_offset
    for record in records_of(batch):
        if not due <= record.offset <= header.last_offset:
            raise ProtocolViolation(f"A record has offset {record.offset} where {due} to {header.last_offset} was due.")
        due = record.offset + 1


def _sentence(header: BatchHeader, reason: str) -> str:
    return (
        f"offsets {header.base_offset} to {header.last_offset} were acked by an older version and cannot be read. "
        f"{reason} Consumers that stop there can seek to offset {header.next_offset}."
    )
