"""One partition used by three real threads on a real disk, as the broker uses it: loop, disk worker, reader.

Invariants:
- a read never gives anything but the batches that were written, in order, whole at its start, however rolls, syncs,
  retention and a cache of two open files come in between;
- nothing is shown above the high watermark, and the high watermark never goes back;
- a descriptor closed under a reader never makes it read another file.
"""

from __future__ import annotations

import random
import threading
from concurrent.futures import Future, ThreadPoolExecutor

from edge_broker.configuration.settings import LogSettings
from edge_broker.errors import ErrorCode, Refusal
from edge_broker.protocol.record_batch import check_batch, read_header
from edge_broker.storage.files.filesystem import Disk
from edge_broker.storage.log import single_node_watermark
from edge_broker.storage.log.log_reader import whole_batches
from edge_broker.storage.log.log_writer import RollDue
from edge_broker.storage.log.partition_log import PartitionLog
from edge_broker.storage.retention.segment_removal import delete_expired
from edge_broker.testing.site import make_topic
from tests.support.storage import NOW, batch, open_store, sync

BATCHES = 3000


def check_read(log: PartitionLog, written: list[bytes], offset: int) -> int:
    """Read at an offset as the reader does; how many batches were right."""
    high_watermark = log.high_watermark
    try:
        batches = whole_batches(log.reader.read(offset, 3000, blocking=True) or b"")
    except Refusal as refused:
        if refused.code != ErrorCode.OFFSET_OUT_OF_RANGE or offset >= log.log_start_offset:
            raise
        return 0
    for number, one in enumerate(batches):
        assert bytes(one) == written[offset + number]
    if batches:
        assert read_header(batches[0]).base_offset == offset
    elif offset < high_watermark:
        assert offset < log.log_start_offset, "data below the high watermark was not shown"
    return len(batches)


def reader(log: PartitionLog, written: list[bytes], stop: threading.Event) -> int:
    chance, right, seen = random.Random(5), 0, 0
    while not stop.is_set():
        high_watermark = log.high_watermark
        assert high_watermark >= seen
        seen = high_watermark
        right += check_read(log, written, chance.randrange(log.log_start_offset, seen + 1))
        log.reader.max_timestamp()
    return right


def test_threads_see_one_log(tmp_path):
    store = open_store(Disk(), str(tmp_path / "d"), LogSettings(segment_bytes=8192, index_interval_bytes=128))
    log = make_topic(store, config={"retention.bytes": "200000"}).partitions[0]
    log.files._files_max = 2
    written: list[bytes] = []
    stop = threading.Event()
    with ThreadPoolExecutor(1) as disk, ThreadPoolExecutor(1) as reading:
        found = reading.submit(reader, log, written, stop)
        syncing: tuple[Future[None], object] | None = None
        try:
            for number in range(BATCHES):
                records = batch(number.to_bytes(4, "big") * 50)
                header = check_batch(records, 1 << 20)
                expected = bytearray(records)
                expected[:8] = number.to_bytes(8, "big")
                written.append(bytes(expected))  # before it is appended: the reader may see it at once after a roll
                try:
                    log.writer.append(records, header, NOW)
                except RollDue:
                    disk.submit(log.roller.roll).result()
                    log.writer.end_roll()
                    single_node_watermark.advance_high_watermark(log.state)
                    log.writer.append(records, header, NOW)
                    disk.submit(delete_expired, log, NOW).result()
                if syncing is not None and syncing[0].done():
                    syncing[0].result()
                    log.writer.finish_flush(syncing[1])
                    single_node_watermark.advance_high_watermark(log.state)
                    syncing = None
                if syncing is None and (flush := log.writer.begin_flush()) is not None:
                    syncing = (disk.submit(flush.run), flush)
        finally:
            stop.set()
        assert found.result() > 0
    sync(log)
    assert log.high_watermark == BATCHES
    assert log.log_start_offset > 0
    offset = log.log_start_offset
    while offset < BATCHES:
        offset += check_read(log, written, offset)
    store.close()
