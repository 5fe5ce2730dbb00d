"""The mirror as a process between two brokers, and what goes in and comes out at either end.

No assertion may live here.
"""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Self

from aiokafka import AIOKafkaConsumer
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.structs import OffsetAndMetadata
from aiokafka.structs import TopicPartition as StructTopicPartition
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.support import runtimes
from tests.support.processes import Process, free_port, wait_until
from tests.support.waiting import CALL_S, Deadline

READ_S = 30.0
GROUP = "edge-mirror-lab"  # of a mirror whose site is `lab`
FAST = {"backoff_max_ms": 500, "refresh_interval_ms": 300, "commit_interval_ms": 200}
"""Settings with which a test does not wait for the mirror's own patience."""
FIRST_TIMESTAMP_MS = int(time.time() * 1000) - 3_600_000  # inside every retention


class EdgeMirror(Process):
    """edge-mirror run, with its metrics on a free port; `settings` are configuration keys, `tables` follow them."""

    def __init__(
        self,
        directory: Path,
        source: str,
        target: str,
        *,
        topics: str = "readings",
        site: str = "",
        settings: Mapping[str, str | int | bool] | None = None,
        tables: str = "",
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        config = directory / "mirror.toml"
        flat = "".join(f"{key} = {json.dumps(value)}\n" for key, value in (settings or {}).items())
        config.write_text(flat + tables)
        self.metrics_port = free_port()
        command: list[str | Path] = [runtimes.console_script("edge-mirror"), "run", "--source", source]
        command += ["--target", target, "--topics", topics, "--config", config]
        command += ["--metrics", f"127.0.0.1:{self.metrics_port}", *(["--site", site] if site else [])]
        super().__init__("edge-mirror", command, directory, ready="edge-mirror ready")

    def metric(self, name: str) -> float:
        """Return the sum of a metric over its labels."""
        text = self.get("/metrics")[1]
        return sum(float(value) for value in re.findall(rf"^{name}(?:{{.*}})? (\S+)$", text, re.MULTILINE))

    def get(self, path: str) -> tuple[int, str]:
        """Return status and body of an HTTP request to the metrics port."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.metrics_port}{path}", timeout=CALL_S) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def events(self, name: str) -> list[str]:
        """Return the log lines of one event, over all lives."""
        return [line for line in self.log_path.read_text().splitlines() if f" mirror {name}" in line]


def two_mirrors(
    directory: Path, source: str, target: str, settings: Mapping[str, str | int | bool] | None = None
) -> tuple[EdgeMirror, EdgeMirror]:
    """Two mirrors of the site `lab`, of which one writes and one stands by; `settings` are beside FAST."""
    more = {**FAST, **(settings or {})}
    first, second = (
        EdgeMirror(directory / name, source, target, site="lab", settings={**more, "group_instance_id": name})
        for name in ("board-1", "board-2")
    )
    return first, second


def standings(source: str, *, check: bool = True) -> list[dict[str, Any]]:
    """What `edge-mirror status` tells of each partition of `readings`; with `check` it has to end with status 0."""
    command: list[str | Path] = [
        runtimes.console_script("edge-mirror"),
        "status",
        "--source",
        source,
        "--site",
        "lab",
        "--json",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=check)
    rows = json.loads(done.stdout)["partitions"] if done.stdout else []
    return [row for row in rows if row["topic"] == "readings"]


@dataclass(frozen=True)
class Found:
    """A record as it was read at one end."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


def create_topic(bootstrap: str, topic: str, partitions: int, configs: Mapping[str, str] | None = None) -> None:
    """Create a topic and wait until it is there."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    created = admin.create_topics([NewTopic(topic, partitions, 1, config=dict(configs or {}))])
    created[topic].result(CALL_S)


def delete_topic(bootstrap: str, topic: str) -> None:
    """Delete a topic and wait until it is gone."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.delete_topics([topic])[topic].result(READ_S)
    wait_until(lambda: topic not in admin.list_topics(timeout=READ_S).topics, READ_S, f"{topic} gone")


class Committed(NamedTuple):
    """What the mirror's group holds for a partition."""

    topic: str
    offset: int
    metadata: str


class Audited(NamedTuple):
    """What `edge-mirror audit` told: whether all is proven, each partition's account, and all that it printed."""

    proven: bool
    partitions: list[dict[str, Any]]
    text: str


def audit(source: str, target: str, *, topics: str = "readings", may_double: bool = False) -> Audited:
    """Audit what a mirror whose site is `lab` has done; the partitions of `topics` are told."""
    command: list[str | Path] = [runtimes.console_script("edge-mirror"), "audit", "--json", "--site", "lab"]
    command += ["--source", source, "--target", target, "--topics", topics]
    command += ["--allow-duplicates"] if may_double else []
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if not done.stdout:
        raise RuntimeError(f"edge-mirror audit told nothing: {done.stderr}")
    told = json.loads(done.stdout)
    return Audited(done.returncode == 0, [one for one in told["partitions"] if one["topic"] == topics], done.stdout)


def committed(bootstrap: str, topic: str = "readings") -> Committed:
    """Return what the mirror's group holds for partition 0; confluent-kafka gives metadata a byte too long."""
    return asyncio.run(_committed(bootstrap, topic))


async def _committed(bootstrap: str, topic: str) -> Committed:
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        partition = StructTopicPartition(topic, 0)
        found = await admin.list_consumer_group_offsets(GROUP, partitions=[partition])
        return Committed(topic, found[partition].offset, found[partition].metadata)
    finally:
        await admin.close()


def commit(bootstrap: str, entry: Committed) -> None:
    """Let the mirror's group, which must not be at work, hold this."""
    asyncio.run(_commit(bootstrap, entry))


async def _commit(bootstrap: str, entry: Committed) -> None:
    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, group_id=GROUP, enable_auto_commit=False)
    await consumer.start()
    try:
        partition = StructTopicPartition(entry.topic, 0)
        consumer.assign([partition])
        await consumer.commit({partition: OffsetAndMetadata(entry.offset, entry.metadata)})
    finally:
        await consumer.stop()


def rewrite_commit(bootstrap: str, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Change the metadata that the mirror's group holds for partition 0 of `readings`."""
    entry = committed(bootstrap)
    text = json.dumps(change(json.loads(entry.metadata)), separators=(",", ":"))
    commit(bootstrap, entry._replace(metadata=text))


def partition_count(bootstrap: str, topic: str) -> int:
    """Return how many partitions a topic has; 0 when it is not there."""
    known = AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=CALL_S).topics
    return len(known[topic].partitions) if topic in known else 0


def bounds(bootstrap: str, topic: str, partition: int = 0) -> tuple[int, int]:
    """Return log start and end of a partition, (0, 0) when it is not there."""
    consumer = _consumer(bootstrap)
    try:
        return consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=CALL_S)
    except KafkaException:
        return 0, 0
    finally:
        consumer.close()


def _consumer(bootstrap: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "test-reader",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "allow.auto.create.topics": False,
            "isolation.level": "read_committed",
        }
    )


def read_all(bootstrap: str, topic: str, partition: int = 0) -> list[Found]:
    """Return every record that a partition holds now; empty when it is not there."""
    if partition_count(bootstrap, topic) <= partition:
        return []
    start, end = bounds(bootstrap, topic, partition)
    consumer = _consumer(bootstrap)
    found: list[Found] = []
    try:
        consumer.assign([TopicPartition(topic, partition, start)])
        deadline = Deadline(READ_S)
        while consumer.position([TopicPartition(topic, partition)])[0].offset < end and start < end:
            found += [_found(message) for message in consumer.consume(5000, timeout=0.2) if message.error() is None]
            deadline.check(f"{topic}-{partition} of {bootstrap} read to {end}", f"{len(found)} records")
    finally:
        consumer.close()
    return found


def _found(message: Any) -> Found:
    headers = tuple((key, value) for key, value in message.headers() or [])
    return Found(message.offset(), message.timestamp()[1], message.key(), message.value(), headers)


def numbers(records: list[Found]) -> list[int]:
    """Return the numbers that Load wrote into the values."""
    return [int(record.value.split(b" ", 1)[0]) for record in records if record.value]


def first_occurrences(found: list[int]) -> list[int]:
    """Return the numbers without repeats, in order of first occurrence."""
    return list(dict.fromkeys(found))


@dataclass
class Load:
    """Produces numbered records to each partition of a topic, from a thread, until stopped; `acked[p]` counts.

    They are an hour old, or of now where it `is_young`: of those a target remembers who wrote them for long.
    """

    bootstrap: str
    topic: str
    partitions: int
    per_second: int = 2000
    padding: int = 80
    is_young: bool = False
    acked: dict[int, list[int]] = field(default_factory=dict)
    _stop: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> Self:
        self.acked = {partition: [] for partition in range(self.partitions)}
        self._producer = Producer({"bootstrap.servers": self.bootstrap, "acks": "all", "enable.idempotence": True})
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        return self

    def _run(self) -> None:
        number, started = 0, time.monotonic()
        while not self._stop.is_set():
            due = int((time.monotonic() - started) * self.per_second / self.partitions)
            while number < due:
                for partition in range(self.partitions):
                    self.send(partition, number)
                number += 1
            self._producer.poll(0.005)

    def send(self, partition: int, number: int) -> None:
        """Produce one numbered record."""
        value = b"%d " % number + b"x" * self.padding
        timestamp_ms = int(time.time() * 1000) if self.is_young else FIRST_TIMESTAMP_MS + number
        while True:
            try:
                self._producer.produce(
                    self.topic,
                    value,
                    key=b"device-%d" % (number % 7),
                    partition=partition,
                    timestamp=timestamp_ms,
                    headers=[("number", b"%d" % number)],
                    on_delivery=lambda error, _: None if error else self.acked[partition].append(number),
                )
                return
            except BufferError:
                self._producer.poll(0.01)

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        if self._producer.flush(CALL_S):
            raise TimeoutError("the load could not be produced")


def produce(
    bootstrap: str,
    topic: str,
    first: int,
    end: int,
    *,
    partition: int = 0,
    padding: int = 80,
    is_young: bool = False,
) -> None:
    """Produce the numbers [first, end) to one partition and wait for acks=all."""
    load = Load(bootstrap, topic, partition + 1, padding=padding, is_young=is_young)
    load.acked = {partition: []}
    load._producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "enable.idempotence": True})
    for number in range(first, end):
        load.send(partition, number)
    if load._producer.flush(CALL_S):
        raise TimeoutError(f"{topic} could not be produced to {bootstrap}")


def wait_mirrored(bootstrap: str, topic: str, counts: Mapping[int, int], deadline_s: float = 40.0) -> None:
    """Wait until each partition of a target topic holds so many different numbers."""

    def complete() -> bool:
        return all(bounds(bootstrap, topic, partition)[1] >= count for partition, count in counts.items())

    wait_until(complete, deadline_s, f"{topic} mirrored: {dict(counts)}", poll_s=0.1)
    wait_until(
        lambda: all(len(set(numbers(read_all(bootstrap, topic, p)))) >= n for p, n in counts.items()),
        deadline_s,
        f"{topic} mirrored whole",
        poll_s=0.3,
    )
