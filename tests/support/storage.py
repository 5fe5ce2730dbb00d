"""A log store for tests, on the simulated or the real disk: open, fill, sync, read back."""

from __future__ import annotations

import errno
import json
import uuid
from typing import TYPE_CHECKING

from drupelet.ledger import LEDGER_TOPIC
from edge_broker.configuration.settings import LogSettings
from edge_broker.protocol.record_batch import build_batch, check_batch, read_header, records_of
from edge_broker.storage.files.data_age import Now
from edge_broker.storage.log import single_node_watermark
from edge_broker.storage.log.log_reader import whole_batches
from edge_broker.storage.log.log_writer import AppendResult, RollDue
from edge_broker.storage.log.partition_log import PartitionLog
from edge_broker.storage.log_store import LogStore
from edge_broker.storage.loss.quarantine import quarantine
from edge_broker.storage.metadata.loss_records import Loss
from edge_broker.storage.segment.segment import DamageFound
from edge_broker.testing.clock import NOW_MS, reading_at
from edge_broker.testing.disk import PowerLoss

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from random import Random

    from edge_broker.errors import StorageFault
    from edge_broker.storage.files.filesystem import FileSystem
    from edge_broker.testing.disk import Fault, SimulatedDisk


def time_at(wall_ms: int) -> Now:
    """The time in a store that was made at NOW_MS."""
    return Now(wall_ms, wall_ms - NOW_MS, trusted=True, boot_id="boot")


READING = reading_at(NOW_MS)
NOW = time_at(NOW_MS)


def open_store(fs: FileSystem, data_dir: str = "/data", settings: LogSettings | None = None) -> LogStore:
    """Open a store with small index intervals unless told otherwise."""
    return LogStore.open(fs, data_dir, settings or LogSettings(index_interval_bytes=128), READING, uuid.uuid4)


def names_of(store: LogStore) -> set[str]:
    """The topics of a store, without the ledger that every store has."""
    return set(store.topics) - {LEDGER_TOPIC}


def failing(kind: str, path_part: str = "", number: int = errno.EIO) -> Fault:
    """A disk's fault: steps of this kind fail where the path has this part."""

    def fault(step: str, path: str, _size: int) -> None:
        if step == kind and path_part in path:
            raise OSError(number, "broken", path)

    return fault


def cut_off(disk: SimulatedDisk, step: int, work: Callable[[], object]) -> bool:
    """Work until so many steps of the disk on; False when the work was done before."""
    disk.crash_at = disk.steps + step
    try:
        work()
    except PowerLoss:
        return True
    return False


def fallen(disk: SimulatedDisk, dice: Random) -> LogStore:
    """The store that is opened after a power cut, or after a kill by chance."""
    disk.kill() if dice.random() < 0.3 else disk.crash()
    return open_store(disk)


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


def append(log: PartitionLog, records: memoryview, now_ms: int = NOW_MS) -> AppendResult:
    """Append one batch, rolling first when that is due."""
    header = check_batch(records, 1 << 30)
    try:
        appended = log.writer.append(records, header, time_at(now_ms))
    except RollDue:
        log.roller.roll()
        log.writer.end_roll()
        appended = log.writer.append(records, header, time_at(now_ms))
    single_node_watermark.advance_high_watermark(log.state)
    return appended


def sync(log: PartitionLog) -> None:
    """Sync what is written."""
    flush = log.writer.begin_flush()
    if flush is not None:
        flush.run()
        log.writer.finish_flush(flush)
        single_node_watermark.advance_high_watermark(log.state)


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
        batches = whole_batches(log.reader.read(offset, bytes_max, blocking=True) or b"")
        assert batches, f"no batch at offset {offset} of {log!r}"
        found.extend(bytes(one) for one in batches)
        offset = read_header(batches[-1]).next_offset
    return found


def read_through_damage(log: PartitionLog, bytes_max: int = 1000) -> list[bytes]:
    """Every batch that is shown, as a consumer gets them: damage that is met is quarantined on the way."""
    found: list[bytes] = []
    offset = log.log_start_offset
    while offset < log.high_watermark:
        try:
            data = log.reader.read(offset, bytes_max, blocking=True)
        except DamageFound as damage:
            quarantine(log, damage)
            continue
        batches = whole_batches(data or b"")
        if not batches:
            break
        found.extend(bytes(one) for one in batches)
        offset = read_header(batches[-1]).next_offset
    return found


class ListLedger:
    """A ledger that keeps what it is told, or refuses."""

    def __init__(self) -> None:
        self.losses: list[Loss] = []
        self.fault: StorageFault | None = None

    def write(self, losses: Sequence[Loss]) -> None:
        """Keep them."""
        if self.fault is not None:
            raise self.fault
        self.losses += losses

    def offsets(self) -> list[tuple[int, int | None]]:
        """What is lost, without the repeats that a crash allows."""
        return sorted({(loss.first_offset, loss.end_offset) for loss in self.losses})


def ledgered(store: LogStore) -> list[tuple[str, str, int, int, int | None]]:
    """Cause, topic, partition, first and last offset of every record in the ledger of a store."""
    found = []
    for one in read_all(store.topics[store.directory.own_ledger].partitions[0]):
        for record in records_of(one):
            loss = json.loads(record.value or b"{}")
            found.append(tuple(loss[name] for name in ("cause", "topic", "partition", "first_offset", "last_offset")))
    return found


def ledger_record(record_id: str = "queue:t:1", **fields: object) -> tuple[bytes, bytes]:
    """Key and value of a ledger record as a gateway writes it; `fields` replace or add."""
    whole = {
        "version": 1,
        "id": record_id,
        "cause": "mqtt_queue_dropped",
        "topic": "mqtt:t",
        "partition": None,
        "first_offset": None,
        "last_offset": None,
        "records": 3,
        "bytes": None,
        "time_ms": NOW_MS,
        "node": "gateway@board",
    }
    return record_id.encode(), json.dumps(whole | fields).encode()
