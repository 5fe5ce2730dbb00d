"""The mirror from Apache Kafka to an edge broker: what only a Kafka with transactions and a cleaner can show it.

Invariants: committed records arrive once and in order; aborted ones never; markers, aborted batches and offsets cleaned
away by compaction are not taken for losses; the position passes a marker at the end, so that the lag becomes 0.
"""

from __future__ import annotations

import json
import subprocess

import pytest
from confluent_kafka import Producer

from tests.support import runtimes
from tests.support.mirror_road import EdgeMirror, create_topic, read_all
from tests.support.processes import ApacheKafka, EdgeBroker, wait_until

QUICK_CLEANER = {
    "log.cleaner.backoff.ms": 200,
    "log.initial.task.delay.ms": 100,
    "group.initial.rebalance.delay.ms": 0,
}
TRANSACTIONS = 12


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    with ApacheKafka(tmp_path_factory.mktemp("source"), settings=QUICK_CLEANER) as process:
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
        check=True,
    )
    return [row["lag"] for row in json.loads(done.stdout) if row["topic"] == topic]


def test_transactions(source, target, tmp_path):
    create_topic(source.bootstrap, "readings", 1)
    producer = Producer({"bootstrap.servers": source.bootstrap, "transactional.id": "t", "linger.ms": 0})
    producer.init_transactions(60)
    committed = []
    for number in range(TRANSACTIONS):
        producer.begin_transaction()
        values = [b"%d-%d" % (number, part) for part in range(3)]
        for value in values:
            producer.produce("readings", value, partition=0)
        if number % 3 == 1:
            producer.flush(30)
            producer.abort_transaction(30)
        else:
            producer.commit_transaction(30)
            committed += values
    with EdgeMirror(tmp_path, source.bootstrap, target.bootstrap, site="lab") as mirror:
        wait_until(lambda: lag(source.bootstrap, "readings") == [0], 30, "no lag", poll_s=0.3)
        assert [record.value for record in read_all(target.bootstrap, "lab.readings")] == committed
        assert mirror.metric("edge_mirror_ledger_records_total") == 0
        assert mirror.metric("edge_mirror_duplicate_records_total") == 0


def test_compacted_topic(source, target, tmp_path):
    fast = {"cleanup.policy": "compact", "segment.ms": "200", "min.cleanable.dirty.ratio": "0.0"}
    create_topic(source.bootstrap, "readings_windows", 1, fast)
    producer = Producer({"bootstrap.servers": source.bootstrap, "linger.ms": 0})

    def cleaned():
        producer.produce("readings_windows", b"%d" % len(keys), key=b"k%d" % min(len(keys), 1), partition=0)
        keys.append(producer.flush(30))
        held = read_all(source.bootstrap, "readings_windows")
        return held[-1].offset - held[0].offset + 1 > len(held)

    keys = []
    wait_until(cleaned, 60, "the cleaner at work", poll_s=0.1)
    with EdgeMirror(tmp_path, source.bootstrap, target.bootstrap, topics="readings_windows", site="lab") as mirror:
        wait_until(lambda: lag(source.bootstrap, "readings_windows") == [0], 30, "no lag", poll_s=0.3)
        assert mirror.metric("edge_mirror_ledger_records_total") == 0
        latest = {record.key: record.value for record in read_all(source.bootstrap, "readings_windows")}
        assert {r.key: r.value for r in read_all(target.bootstrap, "lab.readings_windows")} == latest
