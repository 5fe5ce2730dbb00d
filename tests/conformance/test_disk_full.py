"""What clients do with the error that refuses a write on a full disk, beside codes that might stand in its place.

The broker's disk is a small file system of its own, filled from beside the broker. It refuses with
KAFKA_STORAGE_ERROR; a proxy puts other codes in its place. A client that suits retries by itself, within its delivery
timeout, and once there is space each record is there once, in order. The table in edge_broker/DESIGN.md says what came
out; `ANSWERS` is what this test holds clients to.
"""

from __future__ import annotations

import asyncio
import json
import os
import struct
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka import Producer

from edge_broker.errors import ErrorCode
from edge_broker.handlers import APIS
from edge_broker.protocol.api import METADATA, PRODUCE
from edge_broker.protocol.codec import decode, encode
from tests.fault.full_disk import MIB, free_bytes, small_device
from tests.support import runtimes
from tests.support.java_tools import QUICK_START, QUIET, VERIFIABLE_PRODUCER
from tests.support.kafka_faults import Frames
from tests.support.kafka_reading import create_topic, read_topic
from tests.support.ports import free_port
from tests.support.processes import JVM_STOP_STATUSES, EdgeBroker, Process, TcpProxy, wait_until
from tests.support.waiting import CALL_S

pytestmark = pytest.mark.root("mount")
RECORDS = 200
REFUSED_S = 2.0
DELIVERY_MS = 60_000
STORAGE, REPLICAS, TIMED_OUT, QUOTA, POLICY = (
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    ErrorCode.POLICY_VIOLATION,
)
GIVES_UP = {("librdkafka", QUOTA), ("librdkafka", POLICY), ("aiokafka", QUOTA), ("aiokafka", POLICY), ("java", POLICY)}


class CodeChanger:
    """Makes the filters of a TcpProxy that put `code` in the place of each refusal, and count."""

    def __init__(self) -> None:
        self.code = STORAGE
        self.asked: Counter[int] = Counter()
        self.refused = 0

    def __call__(self) -> _Link:
        return _Link(self)


class _Link:
    def __init__(self, changer: CodeChanger) -> None:
        self._changer = changer
        self._requests, self._answers = Frames(), Frames()
        self._versions: dict[int, int] = {}

    def upstream(self, data: bytes) -> bytes | None:
        for frame in self._requests.feed(data):
            key, version, correlation_id = struct.unpack_from(">hhi", frame)
            self._changer.asked[key] += 1
            if key == PRODUCE:
                self._versions[correlation_id] = version
        return data

    def downstream(self, data: bytes) -> bytes | None:
        passed = bytearray()
        for frame in self._answers.feed(data):
            version = self._versions.pop(struct.unpack_from(">i", frame)[0], None)
            changed = frame if version is None else self._changed(frame, version)
            passed += struct.pack(">i", len(changed)) + changed
        return bytes(passed)

    def _changed(self, frame: bytes, version: int) -> bytes:
        api = APIS[PRODUCE]
        begin = 5 if version >= api.flexible_from else 4
        response = decode(api.response, version, memoryview(frame), begin)
        for topic in response.responses:
            for part in topic.partition_responses:
                if part.error_code == STORAGE:
                    self._changer.refused += 1
                    part.error_code = self._changer.code
        return frame[:begin] + b"".join(encode(response, version))


class FullDisk:
    """A broker whose disk can be filled and freed, behind a proxy."""

    def __init__(self, broker: EdgeBroker, bootstrap: str, changer: CodeChanger) -> None:
        self.broker, self.bootstrap, self.changer = broker, bootstrap, changer
        self._foreign = broker.data_dir.parent / "foreign"

    def fill(self) -> None:
        """Leave 1 MiB, and return once writes are refused."""
        with self._foreign.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, free_bytes(self._foreign.parent) - MIB)
        wait_until(lambda: self._rung() == 4, 20, "the refusal of writes")

    def free(self) -> None:
        """Give the space back; the broker takes writes again within its next look."""
        self._foreign.unlink()

    def wait_free(self) -> None:
        """Return once the broker has seen it."""
        wait_until(lambda: self._rung() < 4, 20, "writes taken again")

    def _rung(self) -> int:
        with urllib.request.urlopen(self.broker.metrics_url, timeout=CALL_S) as response:
            lines = response.read().decode().splitlines()
        return next((int(line.split()[1]) for line in lines if line.startswith("edge_broker_disk_ladder_rung ")), -1)


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FullDisk]:
    directory, changer, port = tmp_path_factory.mktemp("full"), CodeChanger(), free_port()
    with (
        small_device(directory, "tmpfs", 64 * MIB) as mountpoint,
        EdgeBroker(directory, data_dir=mountpoint / "data", advertise=f"127.0.0.1:{port}") as broker,
        TcpProxy(broker.bootstrap, port=port, make_filter=changer) as proxy,
    ):
        yield FullDisk(broker, proxy.bootstrap, changer)


class Sending:
    """A client that sends numbered records in a thread; `acked` and `failed` grow."""

    def __init__(self, bootstrap: str, topic: str, directory: Path) -> None:
        self.bootstrap, self.topic, self.directory = bootstrap, topic, directory
        self.acked: list[int] = []
        self.failed: list[str] = []
        self._thread = threading.Thread(target=self.run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def run(self) -> None:
        raise NotImplementedError

    def done(self) -> bool:
        return len(self.acked) + len(self.failed) >= RECORDS

    def end(self) -> None:
        self._thread.join(CALL_S)
        assert not self._thread.is_alive()


class Librdkafka(Sending):
    """confluent-kafka, idempotent."""

    def run(self) -> None:
        settings = {"enable.idempotence": True, "delivery.timeout.ms": DELIVERY_MS, "log_level": 0}
        producer = Producer({"bootstrap.servers": self.bootstrap, **settings})
        for number in range(RECORDS):
            producer.produce(
                self.topic,
                b"%d" % number,
                on_delivery=lambda error, _, number=number: (
                    self.failed.append(str(error)) if error else self.acked.append(number)
                ),
            )
        producer.flush(DELIVERY_MS / 1000)


class Aiokafka(Sending):
    """aiokafka, idempotent; its request timeout bounds a delivery."""

    def run(self) -> None:
        asyncio.run(self._run())

    async def _run(self) -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=self.bootstrap, enable_idempotence=True, request_timeout_ms=DELIVERY_MS
        )
        await producer.start()
        try:
            sent = [await producer.send(self.topic, b"%d" % number) for number in range(RECORDS)]
            for number, result in enumerate(await asyncio.gather(*sent, return_exceptions=True)):
                self.failed.append(repr(result)) if isinstance(result, BaseException) else self.acked.append(number)
        finally:
            await producer.stop()


class Java(Sending):
    """The Java producer of kafka-clients 4.3.1, by its own VerifiableProducer, with the client's default retries."""

    def start(self) -> None:
        path = self.directory / "producer.properties"
        path.write_text(
            f"enable.idempotence=true\nacks=all\nretries=2147483647\ndelivery.timeout.ms={DELIVERY_MS}\n"
            "request.timeout.ms=10000\nlinger.ms=0\n"
        )
        command = [*runtimes.kafka_java(*QUICK_START, QUIET), VERIFIABLE_PRODUCER, "--bootstrap-server", self.bootstrap]
        command += ["--topic", self.topic, "--max-messages", str(RECORDS), "--command-config", str(path)]
        self._process = Process("java", command, self.directory, stop_statuses=JVM_STOP_STATUSES)
        self._process.spawn()

    def done(self) -> bool:
        events = [json.loads(line) for line in self._process.output().splitlines() if line.endswith("}")]
        self.acked = [int(event["value"]) for event in events if event["name"] == "producer_send_success"]
        self.failed = [event["message"] for event in events if event["name"] == "producer_send_error"]
        return super().done()

    def end(self) -> None:
        assert self._process.wait(30) in (0, 1)


CLIENTS: dict[str, Callable[[str, str, Path], Sending]] = {"librdkafka": Librdkafka, "aiokafka": Aiokafka, "java": Java}


@pytest.mark.parametrize("code", [STORAGE, REPLICAS, TIMED_OUT, QUOTA, POLICY], ids=lambda code: code.name)
@pytest.mark.parametrize("client", CLIENTS)
def test_a_refused_write_is_retried_until_there_is_space(
    full: FullDisk, client: str, code: ErrorCode, tmp_path: Path
) -> None:
    topic = f"{client}-{code.name}"
    create_topic(full.broker.bootstrap, topic)
    changer = full.changer
    changer.code, changer.refused = code, 0
    full.fill()
    sending = CLIENTS[client](full.bootstrap, topic, tmp_path)
    sending.start()
    try:
        wait_until(lambda: changer.refused, 30, "the first refusal")
        changer.refused = 0
        changer.asked.clear()
        time.sleep(REFUSED_S)
        attempts, looks = changer.refused / REFUSED_S, changer.asked[METADATA] / REFUSED_S
    finally:
        full.free()
    wait_until(sending.done, 60, "every record answered")
    full.wait_free()
    sending.end()
    print(
        f"{client}, {code.name}: {len(sending.acked)} delivered, {len(sending.failed)} given up; "
        f"while refused {attempts:.1f} attempts and {looks:.1f} looks at the metadata per second"
        + (f"; {sending.failed[0]}" if sending.failed else "")
    )
    if (client, code) in GIVES_UP:
        assert sending.failed
        return
    assert not sending.failed
    values = [int(read.value or b"") for read in read_topic(full.broker.bootstrap, topic)]
    assert values == sorted(sending.acked) == list(range(RECORDS))
