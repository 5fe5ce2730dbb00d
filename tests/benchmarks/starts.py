"""`make bench-starts`: how long a start with 20 GB in 200 partitions takes, and what it reads, after three stops.

| part of the directory | content |
|---|---|
| closed segments, 99 MB of each partition | sparse: the names, sizes, indexes and summaries of real ones, no content |
| the open segment, 1 MB of each partition | real batches of 16 KB, every byte |

| stop before | what is real of what a start reads |
|---|---|
| kill -9, never a clean stop | everything: the open segments, whole |
| clean | everything: small files; no content of logs |
| clean, then 64 KB to each partition, then kill -9 | everything: what came after the clean stop |

Times are those of a process: from its start to its ready line, and the part that the store took, as its log says. The
page cache is dropped before each start where that is allowed (root). Lives here: the directory, the starts, the table.
Must never come in: levels that fail; tests/unit/storage/test_starts.py asserts what is read.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
import uuid
from pathlib import Path

from edge_broker.clock import Reading, SystemClock
from edge_broker.configuration.settings import LogSettings
from edge_broker.protocol.record_batch import build_batch, check_batch
from edge_broker.storage.files.filesystem import Disk
from edge_broker.storage.log import single_node_watermark
from edge_broker.storage.log.partition_log import PartitionLog
from edge_broker.storage.log_store import LogStore
from tests.support.processes import EdgeBroker
from tests.support.storage import sync

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "bench-results"
SEGMENT_BYTES = 33 << 20
SEALED = 3
OPEN_BYTES = 1 << 20
RECORDS, RECORD_BYTES = 16, 1000
AFTER_BATCHES = 4


def append(log: PartitionLog, reading: Reading, store: LogStore) -> int:
    """One batch of 16 KB; its bytes."""
    value = os.urandom(RECORD_BYTES)
    made = build_batch([(None, value)] * RECORDS, timestamp_ms=reading.wall_ms)
    records = memoryview(bytearray(made))
    log.writer.append(records, check_batch(records, 1 << 20), store.directory.age.now(reading))
    return len(records)


def fill(data_dir: Path, partitions: int) -> None:
    """Make the directory, as a broker leaves it that is killed."""
    clock = SystemClock()
    store = LogStore.open(Disk(), str(data_dir), LogSettings(), clock.refresh(), uuid.uuid4)
    topic = store.topic_files.make_topic("load", partitions, {}, uuid.uuid4())
    store.add_topic(topic)
    for log in topic.partitions:
        for _ in range(SEALED):
            append(log, clock.reading(), store)
            log.writer.rolling = True
            log.roller.roll()
            log.writer.end_roll()
            single_node_watermark.advance_high_watermark(log.state)
        written = 0
        while written < OPEN_BYTES:
            written += append(log, clock.reading(), store)
        sync(log)
        for segment in log.segments[:-1]:
            os.truncate(segment.path, SEGMENT_BYTES)  # its content is never read: no disk for it
    store.checkpoint()


def more(data_dir: Path) -> None:
    """A broker that starts, takes 64 KB for each partition, and is killed."""
    clock = SystemClock()
    store = LogStore.open(Disk(), str(data_dir), LogSettings(), clock.refresh(), uuid.uuid4)
    for log in store.topics["load"].partitions:
        for _ in range(AFTER_BATCHES):
            append(log, clock.reading(), store)
        sync(log)
    store.checkpoint()


def drop_caches() -> None:
    """Let the page cache go, so that every read is one of the disk."""
    os.sync()
    if os.geteuid() == 0:
        Path("/proc/sys/vm/drop_caches").write_text("3\n", encoding="ascii")


def start(directory: Path, data_dir: Path) -> dict[str, float]:
    """One start of the broker as it is run, stopped cleanly afterwards."""
    drop_caches()
    broker = EdgeBroker(directory, data_dir=data_dir)
    broker.ready_s = 300
    broker.log_path.unlink(missing_ok=True)
    begin = time.monotonic()
    broker.start()
    ready_s = time.monotonic() - begin
    line = next(line for line in broker.log_path.read_text().splitlines() if "store_opened" in line)
    broker.stop()
    words = dict(word.split("=", 1) for word in line.split() if "=" in word)
    return {"ready_s": ready_s, "store_s": int(words["took_ms"]) / 1000, "read_bytes": int(words["read_bytes"])}


def main() -> int:
    """Measure, print, write bench-results/starts.json."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--partitions", type=int, default=200)
    parser.add_argument("--times", type=int, default=3)
    options = parser.parse_args()
    figures: dict[str, list[dict[str, float]]] = {}
    with tempfile.TemporaryDirectory(prefix="edge-starts-") as name:
        directory, data_dir = Path(name), Path(name) / "data"
        fill(data_dir, options.partitions)
        size = sum(path.stat().st_size for path in data_dir.rglob("*.log"))
        print(f"{size / 1e9:.1f} GB in {options.partitions} partitions")
        figures["1 MB each, then kill"] = [start(directory, data_dir)]
        figures["clean stop"] = [start(directory, data_dir) for _ in range(options.times)]
        more(data_dir)
        figures["64 KB each, then kill"] = [start(directory, data_dir)]
    print(f"{'stop before':<28}{'ready s':>9}{'store s':>9}{'read of logs, MB':>18}")
    for stop, rounds in figures.items():
        best = min(rounds, key=lambda one: one["ready_s"])
        print(f"{stop:<28}{best['ready_s']:>9.2f}{best['store_s']:>9.2f}{best['read_bytes'] / 1e6:>18.1f}")
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "starts.json").write_text(json.dumps(figures, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
