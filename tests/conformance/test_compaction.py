"""Compacted topics with real clients: what they read, what they may not write, and what Kafka's own tools think.

Batches of every codec, made by librdkafka and by the Java client; idempotent producers, whose last batches leave bare
headers; tombstones, before and after their horizon.
"""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaError as AioKafkaError
from confluent_kafka import KafkaError, Producer
from kafka import KafkaConsumer
from kafka import TopicPartition as KafkaPythonPartition

from tests.support import runtimes
from tests.support.kafka_reading import create_topic, read_topic
from tests.support.processes import EdgeBroker, wait_until
from tests.support.waiting import CALL_S, Deadline

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
KEYS, RECORDS = 200, 12_000
CONFIG = {
    "cleanup.policy": "compact",
    "segment.bytes": str(1 << 20),  # the least that Apache Kafka takes
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": "1000",
}
QUICK_START = ("-Xmx128m", *runtimes.QUICK_JAVA)
QUIET = "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"
Content = list[tuple[int, bytes | None, bytes | None]]


class Site:
    """A broker with one compacted topic, and everything that was ever written to it by offset."""

    def __init__(self, broker) -> None:
        self.broker = broker
        self.bootstrap = broker.bootstrap
        self.written: dict[int, tuple[bytes, bytes | None]] = {}

    def write(self, first: int, records: int, codec: str, gone: set[bytes]) -> None:
        """Write records by a producer of its own; keys in `gone` get a tombstone at the end."""
        settings = {"bootstrap.servers": self.bootstrap, "enable.idempotence": True, "compression.type": codec}
        producer = Producer({**settings, "linger.ms": 5, "batch.num.messages": 50})
        pairs = [
            (b"key-%d" % (number % KEYS), os.urandom(60).hex().encode()) for number in range(first, first + records)
        ]
        for key, value in [*pairs, *((key, None) for key in sorted(gone))]:
            producer.produce("latest", value, key=key, partition=0, on_delivery=self._delivered)
        assert producer.flush(CALL_S) == 0

    def _delivered(self, error, message) -> None:
        assert error is None, error
        self.written[message.offset()] = (message.key(), message.value())

    def settled(self) -> Content:
        """What is there once compaction has done what it can."""
        before: Content = []

        def done() -> bool:
            nonlocal before
            found = self.read()
            same, before = found == before and len(found) < RECORDS // 2, found
            return same

        wait_until(done, 60, "compaction", poll_s=1)
        return before

    def read(self) -> Content:
        return [(read.offset, read.key, read.value) for read in read_topic(self.bootstrap, "latest")]

    def check(self, found: Content) -> None:
        """Nothing is invented or moved, the order holds, and each key's last value is there."""
        offsets = [record[0] for record in found]
        assert offsets == sorted(set(offsets))
        assert all(self.written[offset] == (key, value) for offset, key, value in found)
        latest = {key: offset for offset, (key, value) in sorted(self.written.items())}
        live = {offset for key, offset in latest.items() if self.written[offset][1] is not None}
        assert live <= set(offsets)


GONE = {b"key-%d" % number for number in range(20)}


@pytest.fixture(scope="module")
def site(broker_class, tmp_path_factory) -> Iterator[Site]:
    settings = {"log.cleaner.backoff.ms": 300}
    with broker_class(tmp_path_factory.mktemp("compaction"), settings=settings) as process:
        create_topic(process.bootstrap, "latest", 1, CONFIG)
        site = Site(process)
        for number, codec in enumerate(CODECS):
            site.write(number * 2000, 2000, codec, GONE if number == 2 else set())
        _java_writes(site, 500)
        site.write(10_000, 2000, "none", GONE)
        site.write(15_000, 9000, "none", set())
        yield site


def _java_writes(site: Site, records: int) -> None:
    """The Java client frames snappy in its own way."""
    before = set(site.written)
    lines = [(f"key-{number % KEYS}", f"java {number} " + "." * 60) for number in range(records)]
    options = ("--topic", "latest", "--reader-property", "parse.key=true", "--compression-codec", "snappy")
    text = "".join(f"{key}\t{value}\n" for key, value in lines)
    _tool("org.apache.kafka.tools.ConsoleProducer", site.bootstrap, *options, text=text)
    news = [read for read in site.read() if read[0] not in before]
    assert len(news) == records
    site.written.update({offset: (key, value) for offset, key, value in news})


def _tool(tool: str, bootstrap: str, *options: str, text: str | None = None) -> str:
    command = [*runtimes.kafka_java(*QUICK_START, QUIET), tool, "--bootstrap-server", bootstrap, *options]
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=CALL_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_librdkafka_reads_what_compaction_left(site):
    found = site.settled()
    site.check(found)
    assert len(found) < len(site.written) // 2
    low = [record for record in found if record[0] < max(site.written) - 10_000]
    assert len({record[1] for record in low}) == len(low), "below the closed segments each key is there once"


def test_librdkafka_goes_on_from_offsets_inside_the_gaps(site):
    from confluent_kafka import Consumer
    from confluent_kafka import TopicPartition as Place

    found = site.settled()
    consumer = Consumer({"bootstrap.servers": site.bootstrap, "group.id": "gaps", "enable.auto.commit": False})
    try:
        for offset in range(0, found[-1][0], 1777):
            consumer.assign([Place("latest", 0, offset)])
            message = consumer.poll(CALL_S)
            assert message is not None
            assert not message.error()
            assert message.offset() == next(record[0] for record in found if record[0] >= offset)
    finally:
        consumer.close()


async def test_aiokafka_reads_the_same(site):
    expected = site.settled()
    place = TopicPartition("latest", 0)
    async with AIOKafkaConsumer(bootstrap_servers=site.bootstrap, enable_auto_commit=False) as consumer:
        consumer.assign([place])
        await consumer.seek_to_beginning(place)
        found = []
        while len(found) < len(expected):
            for messages in (await consumer.getmany(timeout_ms=20_000)).values():
                assert messages
                found += [(message.offset, message.key, message.value) for message in messages]
    assert found == expected


def test_kafka_python_reads_the_same(site):
    expected = site.settled()
    consumer = KafkaConsumer(bootstrap_servers=site.bootstrap, enable_auto_commit=False, consumer_timeout_ms=20_000)
    try:
        place = KafkaPythonPartition("latest", 0)
        consumer.assign([place])
        consumer.seek_to_beginning(place)
        found = []
        for message in consumer:
            found.append((message.offset, message.key, message.value))
            if len(found) == len(expected):
                break
    finally:
        consumer.close()
    assert found == expected


def test_the_java_client_reads_the_same(site):
    expected = site.settled()
    shown = ("print.key=true", "print.offset=true", "null.literal=NULL")
    options = [word for setting in shown for word in ("--formatter-property", setting)]
    text = _tool(
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        site.bootstrap,
        *("--topic", "latest", "--from-beginning", "--max-messages", str(len(expected))),
        *options,
    )
    lines = [line for line in text.splitlines() if line.startswith("Offset:")]
    assert lines == [
        f"Offset:{offset}\t{(key or b'').decode()}\t{'NULL' if value is None else value.decode()}"
        for offset, key, value in expected
    ]


def test_kcat_reads_the_same(site):
    expected = site.settled()
    command = [str(runtimes.kcat()), "-C", "-b", site.bootstrap, "-t", "latest", "-p", "0", "-o", "beginning"]
    done = subprocess.run([*command, "-e", "-q", "-f", "%o %k\\n"], capture_output=True, check=True, timeout=CALL_S)
    assert done.stdout.decode().splitlines() == [f"{offset} {(key or b'').decode()}" for offset, key, _ in expected]


def test_tombstones_end_after_their_horizon(site):
    """The tombstones in the middle were followed by values; new ones are seen, and gone once their time is over."""
    site.write(0, 0, "none", {b"key-7"})
    tombstone = max(site.written)
    site.write(30_000, 9000, "lz4", set())
    site.written = {offset: pair for offset, pair in site.written.items() if pair[0] != b"key-7" or offset <= tombstone}
    site.check([record for record in site.settled() if record[1] != b"key-7"])
    deadline = Deadline(60)
    while any(record[0] == tombstone for record in site.read()):
        deadline.check("the tombstone goes", f"it is at {tombstone}")
        site.write(40_000, 9000, "none", set())  # compaction looks again when there is something new
        time.sleep(1)


def test_records_without_a_key_are_refused(site):
    before = len(site.read())
    failed = []
    producer = Producer({"bootstrap.servers": site.bootstrap})
    producer.produce("latest", b"no key", on_delivery=lambda error, _: failed.append(error))
    assert producer.flush(CALL_S) == 0
    assert [error.code() for error in failed] == [KafkaError.INVALID_RECORD]
    assert len(site.read()) >= before - KEYS


async def test_aiokafka_is_told_so_too(site):
    async with AIOKafkaProducer(bootstrap_servers=site.bootstrap, compression_type="gzip") as producer:
        # It has no name for 87, but where the gateway was imported, which gives it one.
        with pytest.raises(AioKafkaError, match=r"UnknownError|InvalidRecordError"):
            await producer.send_and_wait("latest", b"no key")


def test_kafka_dump_log_reads_compacted_segments(site):
    expected = {offset: value for offset, _, value in site.settled()}
    directory = next(Path(site.broker.data_dir).rglob("latest-0"))
    files = sorted(directory.glob("*.log"))[:-1]
    assert files
    command = [
        *runtimes.kafka_java(*runtimes.QUICK_JAVA, "-Xmx256m"),
        "org.apache.kafka.tools.DumpLogSegments",
        "--deep-iteration",
    ]
    command += ["--print-data-log", "--files", ",".join(map(str, files))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=CALL_S, check=True)
    batches = re.findall(r"^baseOffset: .* count: (\d+) .*isvalid: (\w+)", done.stdout, re.MULTILINE)
    assert {valid for _, valid in batches} == {"true"}
    assert "0" in {count for count, _ in batches}, "a producer's last batch left its header"
    records = re.findall(r"^\| offset: (\d+) .* payload: ([0-9a-z. ]+)$", done.stdout, re.MULTILINE)
    assert records
    assert all(expected[int(offset)] == value.encode() for offset, value in records)
    if isinstance(
        site.broker, EdgeBroker
    ):  # a running Kafka keeps room behind the entries of an index, the tool objects
        _indexes_are_sane(directory, files)


def _indexes_are_sane(directory: Path, logs: list[Path]) -> None:
    indexes = [str(path) for path in directory.glob("*index") if path.with_suffix(".log") in logs]
    assert len(indexes) == 2 * len(logs)
    command = [
        *runtimes.kafka_java(*runtimes.QUICK_JAVA, "-Xmx256m"),
        "org.apache.kafka.tools.DumpLogSegments",
        "--index-sanity-check",
    ]
    command += ["--files", ",".join(indexes)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=CALL_S, check=True)
    assert done.stdout.count("passed sanity check") == len(indexes)
