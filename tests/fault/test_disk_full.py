"""A disk of 64 MB under several real producers, a mirror whose link goes down, and a foreign program that takes space.

| phase | share of the time | what happens | what must be seen |
|---|---|---|---|
| link up | 30 % | four producers fill the disk, the mirror commits | expired and passed data goes, no loss |
| link down | 30 % | the mirror stands still | losses in the ledger, the lowest priority first |
| disk taken | 20 % | a foreign file takes every byte that comes free | writes are refused; fetches and commits go on |
| given back | 20 % | the foreign file is gone | every producer goes on by itself |

In the end every acked record is readable, or was given to the mirror before it went, or stands in the ledger.
`--seconds` makes it last longer. The disk is ext4 on a loop device for root, else a tmpfs (`--device`).
"""

from __future__ import annotations

import json
import random
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from edge_broker.storage.files.filesystem import Disk
from edge_broker.storage.log.removed_offsets import POLICY_CAUSES, RemovedRange, read_removed
from tests.fault.full_disk import (
    MIB,
    VALUE_BYTES,
    AiokafkaWriter,
    ConfluentWriter,
    Filler,
    KafkaPythonWriter,
    Mirror,
    Writer,
    free_bytes,
    small_device,
)
from tests.support import runtimes
from tests.support.kafka_reading import read_topic
from tests.support.processes import EdgeBroker, wait_until
from tests.support.waiting import CALL_S

DEVICE_BYTES = 64 * MIB
SECONDS = 50
BYTES_PER_S = MIB * 3 // 2
AHEAD_RECORDS = 1500  # 6 MB
KILLS = 6
pytestmark = pytest.mark.root("mount")
LEDGER = "__edge_ledger"
MIRRORED = {"alarms": 9, "readings": 5, "debug": 1}
EXPIRING = "local"


@pytest.fixture
def seconds(request: pytest.FixtureRequest) -> float:
    return request.config.getoption("--seconds") or SECONDS


@pytest.fixture
def broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[EdgeBroker]:
    with small_device(tmp_path, request.config.getoption("--device"), DEVICE_BYTES) as mountpoint:
        settings = {"group.initial.rebalance.delay.ms": 0, "auto.create.topics.enable": "false"}
        with EdgeBroker(tmp_path, data_dir=mountpoint / "data", settings=settings) as process:
            yield process


def make_topics(bootstrap: str) -> None:
    topics = [
        NewTopic(name, 1, 1, config={"edge.priority": str(priority), "edge.required.groups": "mirror"})
        for name, priority in MIRRORED.items()
    ]
    topics.append(NewTopic(EXPIRING, 1, 1, config={"retention.ms": "3000"}))
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for made in admin.create_topics(topics).values():
        made.result(CALL_S)


def writers_of(bootstrap: str) -> list[Writer]:
    return [
        AiokafkaWriter("aiokafka", bootstrap, "alarms", BYTES_PER_S),
        ConfluentWriter("librdkafka", bootstrap, "readings", BYTES_PER_S),
        KafkaPythonWriter("kafka-python", bootstrap, "debug", BYTES_PER_S),
        ConfluentWriter("librdkafka-2", bootstrap, EXPIRING, BYTES_PER_S),
    ]


class Run:
    """One run: the clients, and what is asked of them while it lasts."""

    def __init__(self, broker: EdgeBroker, seconds: float) -> None:
        self.broker = broker
        self.seconds = seconds
        make_topics(broker.bootstrap)
        self.writers = writers_of(broker.bootstrap)
        self.mirror = Mirror("mirror", broker.bootstrap, list(MIRRORED))
        self.paced = True
        for writer in self.writers:
            if writer.topic in MIRRORED:
                writer.waits = partial(self._is_far_ahead, writer)
        self.pid = broker.pid
        self.ledger_seen: list[dict[str, object]] = []
        self.progress: list[str] = []

    def _is_far_ahead(self, writer: Writer) -> bool:
        """Whether the mirror is behind by so much that the disk could fill with that alone."""
        return self.paced and writer.sent - self.mirror.passed[writer.topic] > AHEAD_RECORDS

    def written_bytes(self) -> int:
        """What was acked so far."""
        return sum(len(writer.acked) for writer in self.writers) * VALUE_BYTES

    def during(self, share: float) -> None:
        """Let that share of the time pass, with everybody alive."""
        end = time.monotonic() + self.seconds * share
        while time.monotonic() < end:
            time.sleep(0.2)
            self.alive()

    def note_progress(self, phase: str) -> None:
        acked = [f"{writer.name} {len(writer.acked)}" for writer in self.writers]
        self.progress.append(f"{phase}: {', '.join(acked)}")

    def alive(self) -> None:
        self.broker.check()
        assert self.broker.pid == self.pid
        for client in (*self.writers, self.mirror):
            client.check()

    def ledger(self) -> list[dict[str, object]]:
        return [json.loads(read.value or b"") for read in read_topic(self.broker.bootstrap, LEDGER)]

    def reads(self, topic: str) -> int:
        """Records of one fetch at the log's start: reading goes on."""
        consumer = Consumer({"bootstrap.servers": self.broker.bootstrap, "group.id": "-", "enable.auto.commit": False})
        try:
            consumer.assign([TopicPartition(topic, 0, 0)])
            found = wait_until(lambda: consumer.consume(1, timeout=0.5), 20, f"a read of {topic}")
            return len(found)
        finally:
            consumer.close()

    def log(self) -> str:
        return run_log(self.broker)


@pytest.mark.timeout(900)
def test_a_full_disk_loses_nothing_that_is_not_written_down(broker: EdgeBroker, seconds: float) -> None:
    run = Run(broker, seconds)
    clients = [*run.writers, run.mirror]
    for client in clients:
        client.start()
    try:
        for phase in (link_up, link_down, disk_taken, given_back):
            phase(run)
            run.note_progress(phase.__name__)
    finally:
        for client in clients:
            client.stopping.set()
    run.mirror.link.set()
    for client in clients:
        client.finish()
    broker.stop()
    judge(run)


@pytest.mark.timeout(180)
def test_a_broker_killed_on_a_full_disk_starts_on_it_and_goes_on(broker: EdgeBroker) -> None:
    make_topics(broker.bootstrap)
    writer = ConfluentWriter("librdkafka", broker.bootstrap, "readings", BYTES_PER_S)
    filler = Filler(broker.data_dir.parent / "foreign")
    writer.start()
    try:
        wait_until(lambda: len(writer.acked) > 1000, 30, "a thousand acks")
        filler.start()
        assert filler.full.wait(30)
        for number in (1, 2, 3):  # the filler takes even what a start gives up, so the later ones may have to wait
            broker.kill()
            broker.spawn()
            wait_until(lambda number=number: starts(broker) > number, 30, f"start {number}")  # type: ignore[misc]
        filler.give_back()
        broker.wait_ready()
        acked = len(writer.acked)
        wait_until(lambda: len(writer.acked) > acked + 100, 60, "the producer going on by itself")
    finally:
        filler.give_back()
        writer.stopping.set()
    writer.finish()
    broker.stop()
    print(proof(broker.data_dir))


@pytest.mark.timeout(300)
def test_kills_amid_evictions_lose_nothing_that_is_not_written_down(broker: EdgeBroker, chance: random.Random) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    topics = [NewTopic(name, 1, 1, config={"edge.priority": str(priority)}) for name, priority in MIRRORED.items()]
    for made in admin.create_topics(topics).values():
        made.result(CALL_S)
    writers = [ConfluentWriter(name, broker.bootstrap, name, 4 * MIB) for name in MIRRORED]
    for writer in writers:
        writer.start()
    try:
        for _ in range(KILLS):
            evictions = run_log(broker).count("(evicted,")
            wait_until(lambda: run_log(broker).count("(evicted,") > evictions, 60, "an eviction")  # noqa: B023
            time.sleep(chance.random())
            broker.kill()
            broker.start()
    finally:
        for writer in writers:
            writer.stopping.set()
    for writer in writers:
        writer.finish()
    wait_until(lambda: "edge_broker_disk_ladder_rung 0\n" in metrics(broker), 30, "nothing that has to go")
    shown = {topic: {read.offset for read in read_topic(broker.bootstrap, topic)} for topic in MIRRORED}
    lost = spans([json.loads(read.value or b"") for read in read_topic(broker.bootstrap, LEDGER)])
    for writer in writers:
        there = shown[writer.topic]
        gone = set(writer.acked) - there - {offset for span in lost[writer.topic] for offset in span}
        assert not gone, f"{writer.topic}: {len(gone)} acked records are neither there nor in the ledger"
    broker.stop()
    print(proof(broker.data_dir))


def metrics(broker: EdgeBroker) -> str:
    with urllib.request.urlopen(broker.metrics_url, timeout=CALL_S) as response:
        return str(response.read().decode())


def proof(data_dir: Path) -> str:
    """The broker's own account of every offset, which must hold."""
    command = [runtimes.console_script("edge-broker"), "ledger", "--data-dir", data_dir, "--prove"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def starts(broker: EdgeBroker) -> int:
    """How often a broker has started, or has begun to wait for space to start."""
    return run_log(broker).count(" started ") + run_log(broker).count("start_refused_disk_full")


def run_log(broker: EdgeBroker) -> str:
    return broker.log_path.read_text()


def link_up(run: Run) -> None:
    run.during(0.3)
    wait_until(lambda: run.written_bytes() > 1.5 * DEVICE_BYTES, 60, "the disk is written over")
    wait_until(lambda: "(passed," in run.log(), 20, "data goes that was passed")
    wait_until(lambda: "(retention," in run.log(), 20, "data goes that has expired")
    assert "(evicted," not in run.log(), "data was lost while there was data that was safe to go"


def link_down(run: Run) -> None:
    run.paced = False
    run.mirror.link.clear()
    run.during(0.3)
    wait_until(lambda: "(evicted," in run.log(), 60, "the first eviction")
    first = next(entry for entry in run.ledger() if entry["cause"] == "evicted")
    assert first["topic"] == "debug", f"the first loss is {first}, not of the lowest priority"


def disk_taken(run: Run) -> None:
    run.mirror.link.set()
    filler = Filler(run.broker.data_dir.parent / "foreign")
    filler.start()
    try:
        wait_until(lambda: "writes are refused" in run.log(), 60, "the refusal of writes")
        commits = run.mirror.commits
        run.during(0.2)
        wait_until(lambda: free_bytes(run.broker.data_dir) < 0.04 * DEVICE_BYTES, 20, "the disk is taken")
        wait_until(lambda: run.mirror.commits > commits, 20, "a commit on a full disk")
        assert run.reads(LEDGER) > 0
    finally:
        filler.give_back()


def given_back(run: Run) -> None:
    acked = {writer.name: len(writer.acked) for writer in run.writers}
    for writer in run.writers:
        wait_until(
            lambda writer=writer: len(writer.acked) > acked[writer.name],  # type: ignore[misc]
            60,
            f"{writer.name} going on by itself",
        )
    run.during(0.2)
    wait_until(lambda: "writes are taken again" in run.log(), 20, "the broker says that it takes writes again")


def judge(run: Run) -> None:
    """Every acked record is readable, or was given to the mirror, or is in the ledger."""
    data_dir = run.broker.data_dir
    print(proof(data_dir))
    with run.broker:
        run.ledger_seen = run.ledger()
        lost = spans(run.ledger_seen)
        shown = {
            writer.topic: {read.offset: read.value for read in read_topic(run.broker.bootstrap, writer.topic)}
            for writer in run.writers
        }
    for writer in run.writers:
        topic = writer.topic
        removed = read_removed(Disk(), f"{data_dir}/{topic}-0")
        start = removed[-1].end_offset if removed else 0
        for offset, number in sorted(writer.acked.items()):
            if offset >= start:
                value = shown[topic].get(offset)
                assert value is not None, f"{topic}: acked offset {offset} is not there"
                assert int.from_bytes(value[:8], "big") == number
            else:
                judge_gone(run, topic, offset, number, cause_at(removed, offset), lost[topic])
        print(report(writer, removed, len(shown[topic]), run.mirror))
    assert not [writer.given_up for writer in run.writers if writer.given_up], "a producer gave records up"
    log = run.log()
    refused, taken = log.count("writes are refused"), log.count("writes are taken again")
    print(f"{run.seconds:.0f} s; writes refused {refused} times, taken again {taken} times")
    print(f"{len(run.ledger_seen)} records in the ledger; acked by each: {'; '.join(run.progress)}")
    print(f"mirror: {run.mirror.commits} commits, {len(run.mirror.commits_failed)} failed and were repeated")


def judge_gone(run: Run, topic: str, offset: int, number: int, cause: str, lost: list[range]) -> None:
    if cause not in POLICY_CAUSES:
        assert any(offset in span for span in lost), f"{topic}: offset {offset} went as {cause}, not in the ledger"
    elif topic in MIRRORED:
        assert run.mirror.seen[topic].get(offset) == number, f"{topic}: {offset} went as {cause}, the mirror lacks it"
    else:
        assert cause == "retention", f"{topic}: offset {offset} went as {cause}"


def cause_at(removed: tuple[RemovedRange, ...], offset: int) -> str:
    return next(entry.cause for entry in removed if entry.first_offset <= offset < entry.end_offset)


def spans(ledger: list[dict[str, object]]) -> dict[str, list[range]]:
    """The offsets that the ledger excuses; a write that a kill tore was not acked yet, so it excuses nothing."""
    found: dict[str, list[range]] = {topic: [] for topic in (*MIRRORED, EXPIRING)}
    for entry in ledger:
        if entry["cause"] == "unsynced_cut":
            continue
        first, last = entry["first_offset"], entry["last_offset"]
        assert isinstance(first, int)
        assert isinstance(last, int)
        found[str(entry["topic"])].append(range(first, last + 1))
    return found


def report(writer: Writer, removed: tuple[RemovedRange, ...], shown: int, mirror: Mirror) -> str:
    by_cause: dict[str, int] = {}
    for entry in removed:
        by_cause[entry.cause] = by_cause.get(entry.cause, 0) + entry.records
    gone = ", ".join(f"{count} {cause}" for cause, count in by_cause.items()) or "none"
    seen = len(mirror.seen.get(writer.topic, {}))
    return f"{writer.topic} ({writer.name}): {len(writer.acked)} acked, {shown} readable, {seen} mirrored; gone: {gone}"
