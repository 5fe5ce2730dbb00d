"""`edge-broker log dump`: every batch of the segments of a topic or partition, on request its records or producers.

Contains: what is shown of a batch. Does not contain: judgement over more than one batch (check.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from drupelet.printable import printable
from drupelet.quantities import quantity_text
from edge_broker.doctor.directory import DataDirectory, PartitionFiles, Piece, bounds_of, facts_of, pieces
from edge_broker.errors import ProtocolViolation, Refusal, StorageFault
from edge_broker.output import time_text, write_json
from edge_broker.protocol.crc import crc32c
from edge_broker.protocol.record_batch import CHECKED_POSITION, CODEC_NAMES, BatchHeader, records_of
from edge_broker.storage.files.atomic_files import fault_of
from edge_broker.storage.segment.segment import Segment

TEXT_BYTES_MAX = 200


def dump(directory: DataDirectory, name: str | None, *, records: bool, producers: bool, as_json: bool) -> int:
    """Show batches, or the newest snapshot of the producers; 0. ConfigurationError."""
    for partition in directory.partitions(name):
        rows = _producers(partition) if producers else _batches(partition, records)
        for row in rows:
            if as_json:
                write_json({"partition": partition.name, **row})
            else:
                print(f"{partition.name} {_line(row)}")
    return 0


def _batches(partition: PartitionFiles, records: bool) -> Iterator[dict[str, Any]]:
    segments = partition.segments()
    for segment, following in zip(segments, [*segments[1:], None], strict=True):
        bounds = bounds_of(segment, following, compacts=partition.compacts)
        try:
            for piece in pieces(segment, partition.corrupt_ranges(segment.base_offset), verify=False, bounds=bounds):
                yield from _piece(segment, piece, records)
        except FileNotFoundError:
            continue
        except OSError as error:
            yield {"kind": "unreadable", "file": segment.name("log"), "reason": str(fault_of(error, segment.path, 0))}
        except StorageFault as fault:
            yield {"kind": "unreadable", "file": segment.name("log"), "reason": str(fault)}


def _piece(segment: Segment, piece: Piece, records: bool) -> Iterator[dict[str, Any]]:
    place = {"file": segment.name("log"), "position": piece.position}
    if piece.corrupt_range is not None:
        yield {"kind": "corrupt_range", **place, **facts_of(piece.corrupt_range)}
    elif piece.header is None:
        yield {"kind": "no-batch", **place, "bytes": piece.end_position - piece.position, "reason": piece.reason}
    else:
        batch = segment.read(piece.header.size, piece.position, blocking=True)
        sound = crc32c(memoryview(batch)[CHECKED_POSITION:]) == piece.header.crc
        yield {"kind": "batch", **place, **batch_facts(piece.header), "crc": "ok" if sound else "wrong"}
        if records:
            yield from _records(memoryview(batch))


def batch_facts(header: BatchHeader) -> dict[str, Any]:
    """The fields of a header by their names."""
    return {
        "size": header.size,
        "base_offset": header.base_offset,
        "last_offset": header.last_offset,
        "records": header.records_count,
        "base_timestamp": header.base_timestamp,
        "max_timestamp": header.max_timestamp,
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "base_sequence": header.base_sequence,
        "leader_epoch": header.leader_epoch,
        "codec": CODEC_NAMES[header.codec] if header.codec < len(CODEC_NAMES) else str(header.codec),
        "transactional": header.is_transactional,
        "control": header.is_control,
    }


def _records(batch: memoryview) -> Iterator[dict[str, Any]]:
    try:
        for record in records_of(batch):
            yield {
                "kind": "record",
                "offset": record.offset,
                "timestamp": record.timestamp,
                "key": _text(record.key),
                "value": _text(record.value),
                "headers": [[name, _text(value)] for name, value in record.headers],
            }
    except (Refusal, ProtocolViolation) as error:
        yield {"kind": "no-records", "reason": str(error)}


def _text(content: bytes | None) -> str | None:
    return None if content is None else content.decode(errors="backslashreplace")


def _producers(partition: PartitionFiles) -> Iterator[dict[str, Any]]:
    """The producers of the newest snapshot that can be read."""
    for name in reversed([name for name in partition.names() if name.endswith(".snapshot")]):
        found = partition.snapshot(name)
        if found is None:
            yield {"kind": "no-snapshot", "file": name, "reason": "damaged; the one before it, or the log, serves"}
            continue
        place, producers = found
        yield {"kind": "snapshot", "file": name, **place._asdict(), "producers": len(producers)}
        for producer_id, producer in sorted(producers.items()):
            written = [one._asdict() for one in producer.batches]
            yield {"kind": "producer", "producer_id": producer_id, **producer._asdict(), "batches": written}
        return


def _line(row: dict[str, Any]) -> str:
    if row["kind"] == "batch":
        return _batch_line(row)
    if row["kind"] == "record":
        return f"  {row['offset']} {time_text(row['timestamp'])} {_short(row['key'])}: {_short(row['value'])}"
    return " ".join([row["kind"], *(f"{key}={value}" for key, value in row.items() if key != "kind")])


def _batch_line(row: dict[str, Any]) -> str:
    bits = [word for word in ("transactional", "control") if row[word]]
    producer = f"producer {row['producer_id']}/{row['producer_epoch']}/{row['base_sequence']}"
    parts = [
        f"{row['file']}@{row['position']}",
        f"{row['size']} bytes",
        f"offsets {row['base_offset']}..{row['last_offset']}",
        quantity_text(row["records"], "record"),
        f"{time_text(row['base_timestamp'])} to {time_text(row['max_timestamp'])}",
        *([producer] if row["producer_id"] >= 0 else []),
        f"epoch {row['leader_epoch']}",
        row["codec"],
        *bits,
        f"crc {row['crc']}",
    ]
    return "  ".join(parts)


def _short(text: str | None) -> str:
    if text is None:
        return "null"
    shown = printable(text[:TEXT_BYTES_MAX])
    return shown if len(text) <= TEXT_BYTES_MAX else f"{shown}… ({len(text)} characters)"
