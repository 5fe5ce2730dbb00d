"""A small device that gets full, and the clients that fill it: what `test_disk_full` is made of.

Writers note each acked offset, the mirror notes what it was given and what it committed. Nothing here judges.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError as AioKafkaError
from confluent_kafka import Consumer, KafkaException, Message, Producer
from kafka import KafkaProducer
from kafka.errors import KafkaError as PythonKafkaError

from tests.support.root import is_root, own_tmpfs
from tests.support.waiting import CALL_S, Deadline

MIB = 1 << 20
VALUE_BYTES = 4096
TICK_S = 0.05
GIVE_UP_MS = 600_000
PADDING = os.urandom(VALUE_BYTES - 8)


@contextmanager
def small_device(directory: Path, kind: str | None, size_bytes: int) -> Iterator[Path]:
    """A file system of its own: ext4 on a loop device, which root alone may make, or tmpfs; None: what this user may.

    Tests that use it carry the marker `root("mount")`.
    """
    if not is_root():
        assert kind != "loop", "a loop device is for root: `--device tmpfs`"
        with own_tmpfs(directory, size_bytes) as mountpoint:
            yield mountpoint
        return
    mountpoint, image = directory / "card", directory / "card.img"
    mountpoint.mkdir()
    if kind == "tmpfs":
        command = ["mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "tmpfs", str(mountpoint)]
    else:
        with image.open("wb") as file:
            file.truncate(size_bytes)
        subprocess.run(["mkfs.ext4", "-q", "-F", "-m", "0", str(image)], check=True)
        command = ["mount", "-o", "loop", str(image), str(mountpoint)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)} failed: {done.stderr.strip()}; mounting must be allowed here"
    try:
        yield mountpoint
    finally:
        subprocess.run(["umount", "--lazy", str(mountpoint)], check=True)  # a failed test may have files open


def free_bytes(path: Path) -> int:
    """What a process may still take."""
    found = os.statvfs(path)
    return found.f_bavail * found.f_frsize


class Filler(threading.Thread):
    """A foreign program that takes every byte it can get, and takes what comes free, until it is told to give back."""

    def __init__(self, path: Path) -> None:
        super().__init__(name="filler", daemon=True)
        self.path = path
        self.taken = 0
        self.full = threading.Event()
        self.stopping = threading.Event()

    def run(self) -> None:
        with self.path.open("wb", buffering=0) as file:
            while not self.stopping.wait(0 if not self.full.is_set() else 0.1):
                try:
                    self.taken += file.write(bytes(MIB // 4))
                except OSError:
                    self.full.set()

    def give_back(self) -> None:
        """Stop and remove the file; again is no error."""
        self.stopping.set()
        self.join(CALL_S)
        self.path.unlink(missing_ok=True)


class Client(threading.Thread):
    """A client with a topic; `finish` ends it in order and raises what it died of."""

    def __init__(self, name: str, bootstrap: str) -> None:
        super().__init__(name=name, daemon=True)
        self.bootstrap = bootstrap
        self.stopping = threading.Event()
        self._error: BaseException | None = None

    def work(self) -> None:
        raise NotImplementedError

    def run(self) -> None:
        try:
            self.work()
        except BaseException as error:  # noqa: BLE001 - raised again by `check`
            self._error = error

    def check(self) -> None:
        if self._error is not None:
            raise AssertionError(f"{self.name} died") from self._error

    def finish(self, deadline_s: float = 60) -> None:
        self.stopping.set()
        deadline = Deadline(deadline_s)
        self.join(deadline.seconds)
        self.check()
        if self.is_alive():
            raise deadline.error(f"{self.name} ends", "it is at work")


class Writer(Client):
    """Produces records of 4 KiB at a bounded rate; `acked` is each acked offset's number, `refused` counts give-ups."""

    def __init__(self, name: str, bootstrap: str, topic: str, bytes_per_s: int) -> None:
        super().__init__(name, bootstrap)
        self.topic = topic
        self.acked: dict[int, int] = {}
        self.given_up: list[str] = []
        self.sent = 0
        self.waits: Callable[[], bool] = lambda: False  # for others, as a site does that must not outrun its mirror
        self._per_tick = max(1, int(bytes_per_s * TICK_S / VALUE_BYTES))

    def value(self) -> bytes:
        """The next record."""
        self.sent += 1
        return self.sent.to_bytes(8, "big") + PADDING

    def note(self, offset: int, value: bytes) -> None:
        number = int.from_bytes(value[:8], "big")
        assert self.acked.setdefault(offset, number) == number, f"{self.topic}: offset {offset} was acked twice"


class ConfluentWriter(Writer):
    """librdkafka, idempotent."""

    def work(self) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "enable.idempotence": True,
                "delivery.timeout.ms": GIVE_UP_MS,
                "linger.ms": 10,
                "queue.buffering.max.messages": 2000,
                "log_level": 0,
            }
        )
        while not self.stopping.is_set():
            for _ in range(0 if self.waits() else self._per_tick):
                if len(producer) < 1000:
                    producer.produce(self.topic, self.value(), partition=0, on_delivery=self._delivered)
            end = time.monotonic() + TICK_S
            while (left_s := end - time.monotonic()) > 0:
                producer.poll(left_s)
        left = producer.flush(CALL_S)
        assert left == 0, f"{self.name}: {left} records were never answered"

    def _delivered(self, error: object, message: Message) -> None:
        offset, value = message.offset(), message.value()
        if error is None and offset is not None and value is not None:
            self.note(offset, value)
        else:
            self.given_up.append(str(error))


class AiokafkaWriter(Writer):
    """aiokafka, idempotent."""

    def work(self) -> None:
        asyncio.run(self._work())

    async def _work(self) -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=self.bootstrap, enable_idempotence=True, request_timeout_ms=GIVE_UP_MS, linger_ms=10
        )
        await producer.start()
        sending: set[asyncio.Task[None]] = set()
        try:
            while not self.stopping.is_set():
                for _ in range(self._per_tick if len(sending) < 500 and not self.waits() else 0):
                    task = asyncio.ensure_future(self._send(producer, self.value()))
                    sending.add(task)
                    task.add_done_callback(sending.discard)
                await asyncio.sleep(TICK_S)
            async with asyncio.timeout(CALL_S):
                await asyncio.gather(*sending)
        finally:
            await producer.stop()

    async def _send(self, producer: AIOKafkaProducer, value: bytes) -> None:
        try:
            sent = await producer.send_and_wait(self.topic, value, partition=0)
        except AioKafkaError as error:
            self.given_up.append(repr(error))
        else:
            self.note(sent.offset, value)


class KafkaPythonWriter(Writer):
    """kafka-python, idempotent."""

    def work(self) -> None:
        producer = KafkaProducer(
            bootstrap_servers=self.bootstrap,
            enable_idempotence=True,
            delivery_timeout_ms=GIVE_UP_MS,
            max_block_ms=GIVE_UP_MS,
            linger_ms=10,
        )
        sending = 0
        lock = threading.Lock()

        def ended() -> None:
            nonlocal sending
            with lock:
                sending -= 1

        while not self.stopping.is_set():
            for _ in range(self._per_tick if sending < 500 and not self.waits() else 0):
                value = self.value()
                with lock:
                    sending += 1
                future = producer.send(self.topic, value, partition=0)
                future.add_callback(lambda sent, value=value: (self.note(sent.offset, value), ended()))
                future.add_errback(lambda error: (self.given_up.append(repr(error)), ended()))
            time.sleep(TICK_S)
        try:
            producer.flush(timeout=CALL_S)
        except PythonKafkaError as error:
            raise AssertionError(f"{self.name}: {sending} records were never answered") from error
        finally:
            producer.close(timeout=CALL_S)


class Mirror(Client):
    """A group that reads topics and commits; while `link` is clear it does neither."""

    def __init__(self, name: str, bootstrap: str, topics: list[str]) -> None:
        super().__init__(name, bootstrap)
        self.topics = topics
        self.link = threading.Event()
        self.link.set()
        self.seen: dict[str, dict[int, int]] = {topic: {} for topic in topics}
        self.passed = dict.fromkeys(topics, 0)  # records behind the last commit that was answered
        self.commits = 0
        self.commits_failed: list[str] = []

    def work(self) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": self.name,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "max.poll.interval.ms": GIVE_UP_MS,
                "log_level": 0,
            }
        )
        consumer.subscribe(self.topics)
        try:
            committed_s = time.monotonic()
            while not self.stopping.is_set():
                if not self.link.wait(0.1):
                    continue
                for message in consumer.consume(500, timeout=0.2):
                    self._take(message)
                if time.monotonic() - committed_s > 0.5:
                    committed_s = time.monotonic()
                    self._commit(consumer)
            self._commit(consumer)
        finally:
            consumer.close()

    def _take(self, message: Message) -> None:
        topic, offset, value = message.topic(), message.offset(), message.value()
        if message.error() is None and topic is not None and offset is not None and value is not None:
            self.seen[topic][offset] = int.from_bytes(value[:8], "big")

    def _commit(self, consumer: Consumer) -> None:
        seen = {topic: len(offsets) for topic, offsets in self.seen.items()}
        try:
            consumer.commit(asynchronous=False)
            self.passed |= seen
            self.commits += 1
        except KafkaException as error:
            if "NO_OFFSET" not in str(error):
                self.commits_failed.append(str(error))


def copy_of(data_dir: Path, target: Path) -> Path:
    """The data directory as it lies there after a stop, away from the device."""
    return Path(shutil.copytree(data_dir, target))
