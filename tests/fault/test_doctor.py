"""The tools beside a broker that rolls, expires and compacts under load, after kill -9, and after its next start.

Nothing is damaged here, so whatever they call damage or loss is a bug of theirs.
"""

from __future__ import annotations

import itertools
import threading
import time

import pytest
from confluent_kafka import Producer

from edge_broker.cli import main
from tests.support.kafka_reading import create_topic
from tests.support.processes import EdgeBroker, wait_until
from tests.support.waiting import CALL_S, Deadline

LOAD_S = 12.0
RECORDS = 1000
SETTINGS = {
    "log.retention.check.interval.ms": 200,
    "log.cleaner.backoff.ms": 200,
    "log.flush.offset.checkpoint.interval.ms": 500,
}
TOPICS = {
    "expiring": {"segment.bytes": "65536", "retention.bytes": "262144"},
    "latest": {"segment.bytes": "65536", "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.1"},
    "kept": {"segment.bytes": "65536"},
}
TOOLS = (
    ("log", "check"),
    ("ledger", "--prove"),
    ("log", "ls"),
    ("log", "ls", "--json"),
    ("log", "dump", "--records", "expiring-0"),
    ("log", "dump", "--producers"),
    ("ledger",),
)


def load(bootstrap: str, stop: threading.Event, counts: list[int]) -> None:
    """Produce to every topic until told to stop; how many records there are goes into `counts`."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 2, "enable.idempotence": True})
    for number in itertools.count():
        for topic in TOPICS:
            producer.produce(topic, key=b"k%d" % (number % 100), value=b"%d " % number * 30, partition=0)
        if number % 200 == 199:
            assert producer.flush(CALL_S) == 0
            counts.append(number)
            if stop.is_set():
                return


@pytest.mark.timeout(240)
def test_nothing_is_called_damaged_beside_a_running_broker(tmp_path, capsys):
    def run(*words: str) -> str:
        status = main([*words, "--data-dir", str(broker.data_dir)])
        out, err = capsys.readouterr()
        assert (status, err) == (0, ""), f"{words}: {out[-3000:]}{err}"
        return out

    broker = EdgeBroker(tmp_path, settings=SETTINGS)
    stop = threading.Event()
    counts: list[int] = [0]
    try:
        broker.start()
        for name, config in TOPICS.items():
            create_topic(broker.bootstrap, name, config=config)
        loader = threading.Thread(target=load, args=(broker.bootstrap, stop, counts))
        loader.start()
        try:
            begin, deadline = time.monotonic(), Deadline(60)
            for words in itertools.cycle(TOOLS):
                run(*words)
                deadline.check(f"{RECORDS} records beside the tools", counts[-1])
                if time.monotonic() > begin + LOAD_S and counts[-1] > RECORDS:
                    break
        finally:
            stop.set()
            loader.join(CALL_S)
        wait_until(lambda: " 0  " not in removed_of(run("log", "ls")), 30, "retention to have removed something")
        assert "running (process" in run("log", "ls")
        broker.kill()
        for words in TOOLS:
            run(*words)
        broker.start()
        for words in TOOLS:
            run(*words)
        broker.stop()
        for words in TOOLS:
            run(*words)
        assert "stopped cleanly" in run("log", "ls")
    finally:
        broker.kill()


def removed_of(listing: str) -> str:
    """What `ls` says was removed of the expiring topic, with spaces around it."""
    row = next(line for line in listing.splitlines() if line.startswith("expiring-0"))
    return f" {row.split()[8]}  "
