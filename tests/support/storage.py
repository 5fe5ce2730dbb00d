"""A log store for tests, on the simulated or the real disk: open, fill, sync, read back."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from edge_broker.protocol.record_batch import build_batch, check_batches, read_header
from edge_broker.storage.log import Appended, PartitionLog, RollDue, whole_batches
from edge_broker.storage.store import LogStore, Topic
from edge_broker.storage.topic_config import LogSettings

if TYPE_CHECKING:
    from edge_broker.storage.filesystem import FileSystem

NOW_MS = 1_700_000_000_000


def open_store(fs: FileSystem, data_dir: str = "/data", settings: LogSettings | None = None) -> LogStore:
    """Open a store with small index intervals unless told otherwise."""
    return LogStore.open(fs, data_dir, settings or LogSettings(index_interval_bytes=128), NOW_MS, uuid.uuid4)


def make_topic(store: LogStore, name: str = "t", partitions: int = 1, config: dict[str, str] | None = None) -> Topic:
    """Make a topic and show it."""
    topic = store.make_topic(name, partitions, config or {}, uuid.uuid4())
    store.add_topic(topic)
    return topic


def batch(*values: bytes, timestamp_ms: int = NOW_MS, producer: tuple[int, int, int] = (-1, -1, -1)) -> memoryview:
    """A writable batch; `producer` is id, epoch and first sequence."""
    producer_id, producer_epoch, base_sequence = producer
    records = [(None, value) for value in values or (b"value",)]
    made = build_batch(
        records,
        timestamp_ms=timestamp_ms,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
    )
    return memoryview(bytearray(made))


def append(log: PartitionLog, records: memoryview, now_ms: int = NOW_MS) -> Appended:
    """Append one batch, rolling first when that is due."""
    headers = check_batches(records, 1 << 30)
    try:
        return log.append(records, headers, now_ms)
    except RollDue:
        log.roll()
        return log.append(records, headers, now_ms)


def sync(log: PartitionLog) -> None:
    """Sync what is written."""
    ticket = log.begin_sync()
    if ticket is not None:
        ticket.run()
        log.finish_sync(ticket)


def fill(log: PartitionLog, batches: int, size: int = 100) -> list[bytes]:
    """Append and sync some batches; their bytes as written."""
    written = []
    for number in range(batches):
        records = batch(number.to_bytes(2, "big") * (size // 2))
        append(log, records)
        written.append(bytes(records))
    sync(log)
    return written


def read_all(log: PartitionLog, bytes_max: int = 1000) -> list[bytes]:
    """Every batch that is shown."""
    found: list[bytes] = []
    offset = log.log_start_offset
    while offset < log.high_watermark:
        batches = whole_batches(log.read(offset, bytes_max, blocking=True) or b"")
        assert batches, f"no batch at offset {offset} of {log!r}"
        found.extend(bytes(one) for one in batches)
        offset = read_header(batches[-1]).next_offset
    return found
