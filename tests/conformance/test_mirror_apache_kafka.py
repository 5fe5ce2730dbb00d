"""The mirror from Apache Kafka to an edge broker: what only a Kafka with transactions and a cleaner can show it.

Invariants: committed records arrive once and in order; aborted ones never; markers, aborted batches and offsets cleaned
away by compaction are not taken for losses; the position passes a marker at the end, so that the lag becomes 0.
By Kafka's leader epochs and topic ids a restart changes nothing; a log that lost its end and went on is noticed, and a
topic made anew is, too.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from confluent_kafka import Producer

from edge_broker.protocol.record_batch import read_header
from tests.support import runtimes
from tests.support.mirror_road import (
    EdgeMirror,
    bounds,
    commit,
    committed,
    create_topic,
    delete_topic,
    numbers,
    produce,
    read_all,
    wait_mirrored,
)
from tests.support.processes import ApacheKafka, EdgeBroker, wait_until
from tests.support.waiting import CALL_S

QUICK = {
    "broker.session.timeout.ms": 1500,  # until it ends, a broker that was killed is taken for its dead self
    "broker.heartbeat.interval.ms": 300,
    "log.cleaner.backoff.ms": 200,
    "log.initial.task.delay.ms": 100,
    "group.initial.rebalance.delay.ms": 0,
}
TRANSACTIONS = 12


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    with ApacheKafka(tmp_path_factory.mktemp("source"), settings=QUICK) as process:
        yield process


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    with EdgeBroker(tmp_path_factory.mktemp("target")) as process:
        yield process


def lag(source, topic):
    done = subprocess.run(
        [
            runtimes.console_script("edge-mirror"),
            "status",
            "--source",
            source,
            "--site",
            "lab",
            "--topics",
            topic,
            "--json",
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        return done.stderr  # Kafka has no coordinator for a moment after its start
    return [row["lag"] for row in json.loads(done.stdout)["partitions"] if row["topic"] == topic]


def test_transactions(source, target, tmp_path):
    create_topic(source.bootstrap, "readings", 1)
    producer = Producer({"bootstrap.servers": source.bootstrap, "transactional.id": "t", "linger.ms": 0})
    producer.init_transactions(CALL_S)
    committed = []
    for number in range(TRANSACTIONS):
        producer.begin_transaction()
        values = [b"%d-%d" % (number, part) for part in range(3)]
        for value in values:
            producer.produce("readings", value, partition=0)
        if number % 3 == 1:
            producer.flush(CALL_S)
            producer.abort_transaction(CALL_S)
        else:
            producer.commit_transaction(CALL_S)
            committed += values
    with EdgeMirror(tmp_path, source.bootstrap, target.bootstrap, site="lab") as mirror:
        wait_until(lambda: lag(source.bootstrap, "readings") == [0], 30, "no lag", poll_s=0.3)
        assert [record.value for record in read_all(target.bootstrap, "lab.readings")] == committed
        assert mirror.metric("edge_mirror_ledger_records_total") == 0
        assert mirror.metric("edge_mirror_duplicate_records_total") == 0
        mirror.kill()  # its position is not stored: a look tells it
    here = {record.value: record.offset for record in read_all(source.bootstrap, "readings")}
    there = {record.value: record.offset for record in read_all(target.bootstrap, "lab.readings")}
    for value in (committed[0], committed[4], committed[-1]):
        assert translated(target, here[value]) == (there[value], True)
        assert translated(target, there[value], "--back") == (here[value], True)
    assert translated(target, here[committed[2]] + 1) == (there[committed[3]], False), "a marker: what follows it"
    assert "beyond what is mirrored" in translated(target, 10**6)


def translated(target, offset, *options):
    """Where it lies and whether a record does; the sentence where it lies nowhere."""
    command = [runtimes.console_script("edge-mirror"), "translate", "--target", target.bootstrap, "--site", "lab"]
    done = subprocess.run(
        [*command, "--json", *options, "readings", "0", str(offset)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        return done.stderr
    told = json.loads(done.stdout)
    return told["source_offset" if options else "target_offset"], told["is_record"]


def test_compacted_topic(source, target, tmp_path):
    fast = {"cleanup.policy": "compact", "segment.ms": "200", "min.cleanable.dirty.ratio": "0.0"}
    create_topic(source.bootstrap, "readings_windows", 1, fast)
    producer = Producer({"bootstrap.servers": source.bootstrap, "linger.ms": 0})

    def cleaned():
        producer.produce("readings_windows", b"%d" % len(keys), key=b"k%d" % min(len(keys), 1), partition=0)
        keys.append(producer.flush(CALL_S))
        held = read_all(source.bootstrap, "readings_windows")
        return held[-1].offset - held[0].offset + 1 > len(held)

    keys = []
    wait_until(cleaned, 60, "the cleaner at work", poll_s=0.1)
    with EdgeMirror(tmp_path, source.bootstrap, target.bootstrap, topics="readings_windows", site="lab") as mirror:
        wait_until(lambda: lag(source.bootstrap, "readings_windows") == [0], 30, "no lag", poll_s=0.3)
        assert mirror.metric("edge_mirror_ledger_records_total") == 0
        latest = {record.key: record.value for record in read_all(source.bootstrap, "readings_windows")}
        assert {r.key: r.value for r in read_all(target.bootstrap, "lab.readings_windows")} == latest


@pytest.fixture
def mirror(source, target, tmp_path):
    settings = {"backoff_max_ms": 500, "refresh_interval_ms": 300, "commit_interval_ms": 200}

    def make(topic):
        return EdgeMirror(tmp_path, source.bootstrap, target.bootstrap, topics=topic, site="lab", settings=settings)

    return make


def wait_numbers(target, topic, expected):
    wait_until(lambda: numbers(read_all(target.bootstrap, topic)) == expected, 40, f"{topic} mirrored", poll_s=0.5)


def restart_without(source, topic, first_lost):
    """Kill the source, take away its batches from an offset on, and start it again."""
    source.kill()
    [segment] = Path(source.data_dir, f"{topic}-0").glob("*.log")
    data, position = segment.read_bytes(), 0
    while read_header(data, position).base_offset < first_lost:
        position += read_header(data, position).size
    segment.write_bytes(data[:position])
    source.start()
    wait_until(lambda: bounds(source.bootstrap, topic)[1] == first_lost, 60, "the source leads again", poll_s=0.5)


@pytest.mark.timeout(300)  # Apache Kafka starts twice more
def test_a_log_that_lost_its_end_and_went_on(source, target, mirror):
    create_topic(source.bootstrap, "cut", 1)
    produce(source.bootstrap, "cut", 0, 900)
    produce(source.bootstrap, "cut", 900, 1000)
    with mirror("cut") as at_work:
        wait_mirrored(target.bootstrap, "lab.cut", {0: 1000})
        source.stop()
        source.start()
        produce(source.bootstrap, "cut", 1000, 1010)
        wait_mirrored(target.bootstrap, "lab.cut", {0: 1010})
        wait_until(lambda: at_work.get("/health")[0] == 200, 30, "well again")
        assert at_work.metric("edge_mirror_ledger_records_total") == 0
    assert json.loads(committed(source.bootstrap, "cut").metadata)["leader_epoch"] > 0
    restart_without(source, "cut", 900)
    produce(source.bootstrap, "cut", 1010, 1200)
    with mirror("cut") as at_work:
        wait_numbers(target, "lab.cut", list(range(1200)))
        wait_until(lambda: at_work.get("/health")[0] == 200, 30, "well")
        assert at_work.metric("edge_mirror_duplicate_records_total") == 0
    [entry] = [json.loads(record.value) for record in read_all(source.bootstrap, "__edge_ledger")]
    assert entry["id"].startswith("source_truncated:cut:0:900-1009:")


def test_a_topic_made_anew(source, target, mirror):
    create_topic(source.bootstrap, "anew", 1)
    produce(source.bootstrap, "anew", 0, 500)
    with mirror("anew"):
        wait_mirrored(target.bootstrap, "lab.anew", {0: 500})
    kept = committed(source.bootstrap, "anew")
    delete_topic(source.bootstrap, "anew")
    create_topic(source.bootstrap, "anew", 1)
    produce(source.bootstrap, "anew", 500, 1200)
    commit(source.bootstrap, kept)
    with mirror("anew"):
        wait_numbers(target, "lab.anew", list(range(1200)))
