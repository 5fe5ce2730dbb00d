"""`python -m tests.benchmarks.compaction`: what compaction costs those who produce, and what it gives those who load.

| part | what is measured |
|---|---|
| stall | the time of a single record with acks=all, one every 5 ms, at rest and while compaction runs |
| load | a compacted topic of a million records, read from its start by librdkafka; beside it an equal topic that was
never compacted, and the bare reading of the files |
| writes | bytes rewritten for each byte appended, in a topic of the latest values that is written all the time |
| memory | bytes a key in the map; the broker's greatest resident memory before and after compaction |

Lives here: what is measured, and printing it. Must never come in: levels that fail; benchmarks show, they do not judge.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

from confluent_kafka import Consumer, Producer, TopicPartition

from edge_broker.clock import SystemClock
from edge_broker.configuration.settings import LogSettings
from edge_broker.protocol.record_batch import build_batch, check_batch
from edge_broker.storage.files.filesystem import Disk
from edge_broker.storage.log import single_node_watermark
from edge_broker.storage.log.log_writer import RollDue
from edge_broker.storage.log.partition_log import PartitionLog
from edge_broker.storage.log_store import LogStore
from edge_broker.storage.maintenance.compaction_rules import SLOT_BYTES, OffsetMap
from edge_broker.storage.maintenance.log_cleaner import LogCleaner
from tests.support.kafka_reading import create_topic
from tests.support.processes import EdgeBroker, wait_until
from tests.support.runtimes import kcat

VALUE = b"%0100d"
REST_S = 16
LATEST = {"cleanup.policy": "compact", "segment.bytes": str(16 << 20)}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("part", nargs="*", help="stall, load, writes, memory; all without it")
    parser.add_argument("--records", type=int, default=1_000_000, help="records of the compacted topic in `load`")
    options = parser.parse_args()
    parts = options.part or ["stall", "load", "writes", "memory"]
    with tempfile.TemporaryDirectory(prefix="compaction-") as directory:
        if "memory" in parts:
            memory()
        if "writes" in parts:
            writes(Path(directory) / "writes")
        if "stall" in parts:
            stall(Path(directory) / "stall")
        if "load" in parts:
            load(Path(directory) / "load", options.records)


def say(text: str, *figures: object) -> None:
    """Print one line at once."""
    print(f"{text:58}", *figures, flush=True)


def memory() -> None:
    """What the map takes."""
    for mebibytes in (4, 16, 64):
        keys = OffsetMap(mebibytes << 20).capacity
        say(f"map of {mebibytes} MiB", f"{keys} keys, {(mebibytes << 20) / keys:.1f} bytes a key ({SLOT_BYTES} a slot)")


def fill(bootstrap: str, topic: str, records: int, keys: int) -> None:
    """Produce records of 100 bytes; every key comes again and again."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, "enable.idempotence": True})
    for number in range(records):
        while True:
            try:
                producer.produce(topic, VALUE % number, key=b"sensor-%d" % (number % keys), partition=0)
                break
            except BufferError:
                producer.poll(0.05)
    assert producer.flush(60) == 0


def metric(broker: EdgeBroker, name: str) -> float:
    """One of the broker's figures."""
    with urlopen(broker.metrics_url, timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    return float(next(line for line in lines if line.startswith(f"edge_broker_{name} ")).split()[1])


class Prober:
    """A producer of single records in a thread of its own: when each was sent, and how long its ack took."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.samples: list[tuple[float, float]] = []
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "acks": "all"})
        self._topic = topic
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Prober:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        acked = 0

        def on_delivery(error: object, _message: object) -> None:
            nonlocal acked
            assert error is None, error
            acked += 1

        while not self._stop.wait(0.005):
            begin, want = time.monotonic(), acked + 1
            self._producer.produce(self._topic, b"probe", on_delivery=on_delivery)
            while acked < want:
                self._producer.poll(1)
            self.samples.append((begin, time.monotonic() - begin))

    def figures(self, begin: float, end: float) -> str:
        """p50, p99 and greatest of the records sent in a time, and how many took long."""
        took = sorted(seconds * 1000 for at, seconds in self.samples if begin <= at < end)
        p99 = statistics.quantiles(took, n=100)[98]
        late = sum(ms > 50 for ms in took)
        p50 = took[len(took) // 2]
        return f"p50 {p50:.2f} ms, p99 {p99:.2f} ms, max {took[-1]:.2f} ms, {late} of {len(took)} over 50 ms"


def stall(directory: Path, records: int = 600_000, keys: int = 20_000) -> None:
    """The probe's times at rest and during a compaction."""
    filling = EdgeBroker(directory, name="filling", settings={"log.cleaner.enable": "false"})
    with filling:
        create_topic(filling.bootstrap, "latest", 1, LATEST)
        create_topic(filling.bootstrap, "probe", 1)
        fill(filling.bootstrap, "latest", records, keys)
    settings = {"log.cleaner.backoff.ms": (REST_S + 2) * 1000}
    with EdgeBroker(directory, data_dir=filling.data_dir, settings=settings) as broker:
        started, before = time.monotonic(), _peak_bytes(broker)
        with Prober(broker.bootstrap, "probe") as prober:
            wait_until(lambda: metric(broker, "cleaner_read_bytes_total") > 0, 60, "compaction", poll_s=0.02)
            began = time.monotonic()
            wait_until(lambda: metric(broker, "cleaner_passes_total") >= 1, 300, "compaction's end", poll_s=0.1)
            ended = time.monotonic()
        say("stall: acks=all, at rest", prober.figures(started + 1, started + REST_S))
        say("stall: acks=all, during compaction", prober.figures(began, ended))
        read, removed = metric(broker, "cleaner_read_bytes_total"), metric(broker, "cleaner_removed_records_total")
        written = metric(broker, "cleaner_written_bytes_total")
        say(
            "stall: that compaction",
            f"{ended - began:.1f} s, {read / 1e6:.0f} MB read, {written / 1e6:.1f} MB written,",
            f"{removed:.0f} records removed",
        )
        say("memory: greatest resident, before and after", f"{before >> 10} KiB, {_peak_bytes(broker) >> 10} KiB")


def _peak_bytes(broker: EdgeBroker) -> int:
    status = Path(f"/proc/{broker.pid}/status").read_text(encoding="ascii")
    return int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1]) << 10


def load(directory: Path, records: int) -> None:
    """A compacted topic read from its start."""
    settings = {"log.cleaner.dedupe.buffer.size": 64 << 20, "log.cleaner.backoff.ms": 500}
    with EdgeBroker(directory, settings=settings) as broker:
        create_topic(broker.bootstrap, "latest", 1, LATEST)
        create_topic(broker.bootstrap, "history", 1)
        fill(broker.bootstrap, "latest", records + records // 2, records)
        fill(broker.bootstrap, "history", records, records)
        wait_until(
            lambda: metric(broker, "cleaner_removed_records_total") > records // 4, 300, "compaction", poll_s=0.5
        )
        for topic in ("latest", "history"):
            files = sorted((broker.data_dir / f"{topic}-0").glob("*.log"))
            size = sum(file.stat().st_size for file in files)
            say(f"load {topic}: bare reading, not cached", f"{_bare_s(files):.2f} s for {size / 1e6:.0f} MB")
            say(f"load {topic}: kcat (librdkafka)", _rate(*_kcat(broker.bootstrap, topic)))
            say(f"load {topic}: confluent-kafka in Python", _rate(*_confluent(broker.bootstrap, topic)))


def _rate(count: int, seconds: float) -> str:
    return f"{seconds:.2f} s for {count} records, {count / seconds / 1e6:.2f} million a second"


def _bare_s(files: list[Path]) -> float:
    for path in files:
        with path.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    begin = time.monotonic()
    for path in files:
        with path.open("rb", buffering=0) as file:
            while file.read(1 << 20):
                pass
    return time.monotonic() - begin


def _kcat(bootstrap: str, topic: str) -> tuple[int, float]:
    command = [str(kcat()), "-C", "-b", bootstrap, "-t", topic, "-p", "0", "-o", "beginning", "-e", "-q", "-f", "\\n"]
    begin = time.monotonic()
    done = subprocess.run(command, capture_output=True, check=True, timeout=120)
    return done.stdout.count(b"\n"), time.monotonic() - begin


def _confluent(bootstrap: str, topic: str) -> tuple[int, float]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": uuid.uuid4().hex, "enable.partition.eof": True})
    begin, count = time.monotonic(), 0
    consumer.assign([TopicPartition(topic, 0, 0)])
    try:
        while True:
            for message in consumer.consume(50_000, timeout=1):
                if message.error() is not None:
                    return count, time.monotonic() - begin
                count += 1
    finally:
        consumer.close()


def writes(directory: Path, records: int = 400_000, keys: int = 5_000) -> None:
    """The log and the cleaner alone: a pass whenever one is due."""
    clock = SystemClock("true")
    settings = LogSettings(cleanup_policy="compact", segment_bytes=4 << 20)
    store = LogStore.open(Disk(), str(directory), settings, clock.refresh(), clock.new_uuid)
    topic = store.topic_files.make_topic("latest", 1, {}, clock.new_uuid())
    store.add_topic(topic)
    cleaner = LogCleaner(store, 4 << 20)
    appended, begin = 0, time.process_time()
    for batch in _batches(records, keys):
        appended += len(batch)
        _append(topic.partitions[0], batch, store, clock)
        while cleaner.step(store.directory.age.now(clock.reading()), 100_000):
            pass
    spent = time.process_time() - begin
    rewritten, read = cleaner.bytes_written / appended, cleaner.bytes_read / appended
    left, each = topic.partitions[0].size / 1e6, spent / records * 1e6
    say(
        f"writes: {appended / 1e6:.0f} MB appended to {keys} keys",
        f"{rewritten:.3f} bytes rewritten and {read:.2f} read per byte,",
        f"{cleaner.passes} passes, {left:.1f} MB left, {each:.1f} µs a record, appending included",
    )
    store.close()


def _batches(records: int, keys: int) -> Iterator[bytes]:
    for first in range(0, records, 100):
        pairs = [(b"sensor-%d" % (number % keys), VALUE % number) for number in range(first, first + 100)]
        yield build_batch(pairs, timestamp_ms=1_700_000_000_000 + first)


def _append(log: PartitionLog, batch: bytes, store: LogStore, clock: SystemClock) -> None:
    records = memoryview(bytearray(batch))
    header = check_batch(records, 1 << 20)
    try:
        log.writer.append(records, header, store.directory.age.now(clock.reading()))
    except RollDue:
        log.roller.roll()
        log.writer.end_roll()
        single_node_watermark.advance_high_watermark(log.state)
        log.writer.append(records, header, store.directory.age.now(clock.reading()))


if __name__ == "__main__":
    main()
