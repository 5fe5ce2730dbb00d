"""Kafka's own kafka-dump-log reads our sealed segments: every record, the offset index and the time index.

Its mismatches do not change its exit status, so every word of complaint that it has is looked for.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.support import runtimes
from tests.support.kafka_reading import create_topic
from tests.support.processes import EdgeBroker
from tests.support.waiting import CALL_S

SEGMENT_BYTES = 65_536
TOPICS = {
    "plain": {"linger.ms": 5},
    "gzip": {"compression.type": "gzip"},
    "snappy": {"compression.type": "snappy"},
    "lz4": {"compression.type": "lz4"},
    "zstd": {"compression.type": "zstd"},
    "idempotent": {"enable.idempotence": True},
}
RECORDS = 3000
COMPLAINTS = re.compile(
    r"mismatch|non-consecutive|out of order|not found|corrupt|invalid|isvalid: false|exception|error", re.IGNORECASE
)
# The tool begins to count at -1 in every file, whatever its first offset: this complaint is about its start alone.
FIRST_OF_FILE = re.compile(r"Non-consecutive offsets in \S+/0*(\d+)\.log\n  -1 is followed by \1\n")


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    """A data directory that a broker filled and left: one topic per kind of batch, several segments each."""
    settings = {"log.segment.bytes": SEGMENT_BYTES, "log.index.interval.bytes": 4096}
    with EdgeBroker(tmp_path_factory.mktemp("dump"), settings=settings) as broker:
        for name, properties in TOPICS.items():
            create_topic(broker.bootstrap, name)
            fill(broker.bootstrap, name, properties)
    return broker.data_dir


def fill(bootstrap: str, topic: str, properties: dict[str, object]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "batch.num.messages": 20, **properties})
    for number in range(RECORDS):
        producer.produce(
            topic,
            key=b"k%d" % (number % 50),
            value=b"%d %s" % (number, os.urandom(40).hex().encode()),
            timestamp=1_700_000_000_000 + number,
        )
        if number % 500 == 499:
            assert producer.flush(CALL_S) == 0
    assert producer.flush(CALL_S) == 0


def dump(files: list[Path], *options: str) -> str:
    """What kafka-dump-log prints; no word of complaint may be in it."""
    command = [
        *runtimes.kafka_java(*runtimes.QUICK_JAVA, "-Xmx256m"),
        "org.apache.kafka.tools.DumpLogSegments",
        *options,
    ]
    command += ["--files", ",".join(map(str, files))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=CALL_S, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    said = FIRST_OF_FILE.sub("", done.stderr) + done.stdout
    complaint = COMPLAINTS.search(said)
    assert complaint is None, said[max(complaint.start() - 500, 0) : complaint.end() + 500]
    return done.stdout


def sealed(data: Path, suffix: str) -> list[Path]:
    """Files of every closed segment."""
    found = [path for name in TOPICS for path in sorted(data.glob(f"{name}-0/*{suffix}"))[:-1]]
    assert len(found) >= len(TOPICS)
    return found


def test_every_record_of_sealed_segments(data):
    files = sealed(data, ".log")
    output = dump(files, "--deep-iteration", "--print-data-log")
    batches = re.findall(r"^baseOffset: (\d+) lastOffset: (\d+) count: (\d+) .*isvalid: (\w+)", output, re.MULTILINE)
    assert batches
    assert {valid for *_, valid in batches} == {"true"}
    records = re.findall(r"^\| offset: (\d+) .* payload: (\d+) ", output, re.MULTILINE)
    assert len(records) == sum(int(count) for *_, count, _ in batches)
    assert all(offset == value for offset, value in records)
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        assert re.search(rf"compresscodec: {codec}\b", output), codec
    assert re.search(r"producerId: [0-9]+ producerEpoch: 0", output)


def test_both_indexes_against_the_log(data):
    indexes, times = sealed(data, ".index"), sealed(data, ".timeindex")
    assert len(re.findall(r"^offset: \d+ position: \d+", dump(indexes), re.MULTILINE)) >= len(indexes)
    assert len(re.findall(r"^timestamp: \d+ offset: \d+", dump(times), re.MULTILINE)) >= len(times)
    passed = dump([*indexes, *times], "--index-sanity-check")
    assert passed.count("passed sanity check") == len(indexes) + len(times)


def test_the_words_of_complaint_are_the_tools_own(data, tmp_path):
    """Damage that Kafka's tool must see: else the tests above would prove nothing."""
    log = sealed(data, ".log")[0]
    broken = tmp_path / log.name
    content = bytearray(log.read_bytes())
    content[100] ^= 1
    broken.write_bytes(content)
    index = log.with_suffix(".index").read_bytes()
    (tmp_path / log.name).with_suffix(".index").write_bytes(index[:3] + bytes([index[3] ^ 1]) + index[4:])
    with pytest.raises(AssertionError, match="isvalid: false"):
        dump([broken], "--deep-iteration")
    with pytest.raises(AssertionError, match=r"[Mm]ismatch"):
        dump([broken.with_suffix(".index")])
