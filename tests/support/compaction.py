"""Compacted topics for tests: filling them with keyed records, cleaning them, and what must be in them afterwards."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edge_broker.protocol.record_batch import check_batch
from edge_broker.storage.log import single_node_watermark
from edge_broker.storage.log.log_writer import AppendResult, RollDue
from edge_broker.storage.log.partition_log import PartitionLog
from edge_broker.storage.maintenance.log_cleaner import LogCleaner
from edge_broker.testing.clock import NOW_MS
from tests.support.record_batches import NO_PRODUCER, make_batch, records_in
from tests.support.storage import NOW, read_all, sync

if TYPE_CHECKING:
    from edge_broker.storage.files.data_age import Now
    from edge_broker.storage.log_store import LogStore

CONFIG = {"cleanup.policy": "compact", "segment.bytes": "4096", "min.cleanable.dirty.ratio": "0"}
BUFFER_BYTES = 64 << 10
Latest = dict[bytes, tuple[int, bytes | None]]


def write(
    log: PartitionLog,
    *pairs: tuple[bytes | None, bytes | None],
    producer: tuple[int, int, int] = NO_PRODUCER,
    codec: int = 0,
    now: Now = NOW,
    timestamp: int = NOW_MS,
) -> AppendResult:
    """Append one batch of keys and values, rolling first when that is due."""
    records = make_batch([(key, value, timestamp) for key, value in pairs], producer=producer, codec=codec)
    return put(log, records, now)


def put(log: PartitionLog, records: memoryview, now: Now = NOW) -> AppendResult:
    """Append a batch that is made already; a control or a thinned out one, too."""
    header = check_batch(records, 1 << 30) if not records[22] & 0x20 else _header(records)
    try:
        return log.writer.append(records, header, now)
    except RollDue:
        roll(log)
        return log.writer.append(records, header, now)


def _header(records: memoryview):  # type: ignore[no-untyped-def]
    from edge_broker.protocol.record_batch import read_header

    return read_header(records)


def roll(log: PartitionLog) -> None:
    """Close the active segment."""
    log.writer.rolling = True
    log.roller.roll()
    log.writer.end_roll()
    single_node_watermark.advance_high_watermark(log.state)


def fill_keys(log: PartitionLog, rounds: int, keys: int = 8, size: int = 40) -> Latest:
    """Write every key in each round, some of them several times; what must stay."""
    latest: Latest = {}
    for number in range(rounds):
        pairs = [(b"key-%d" % key, b"%d-%d" % (number, key) + b"." * size) for key in range(keys)]
        base = write(log, *pairs).base_offset
        latest.update({key: (base + at, value) for at, (key, value) in enumerate(pairs)})
    sync(log)
    return latest


def clean(store: LogStore, now: Now = NOW, buffer_bytes: int = BUFFER_BYTES, work_max: int = 1 << 40) -> LogCleaner:
    """Clean until nothing is left to clean."""
    cleaner = LogCleaner(store, buffer_bytes)
    while cleaner.step(now, work_max):
        pass
    return cleaner


def content(log: PartitionLog) -> list[tuple[int, bytes | None, bytes | None]]:
    """Offset, key and value of every record that is shown."""
    return [record[:3] for record in records_in(read_all(log, 700))]


def latest_of(log: PartitionLog) -> Latest:
    """The last value of each key and where it lies."""
    return {key: (offset, value) for offset, key, value in content(log) if key is not None}
