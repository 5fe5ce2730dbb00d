"""`make bench-writes`: bytes on the device for each byte of payload, at one record a second, 100, and full speed.

| subject | what its answer means |
|---|---|
| edge-broker | acks=all: synced |
| edge-broker, acks=1 | the kernel has it, and the mark that the partition is in use is synced |
| Apache Kafka, flush.messages=1 | acks=all: synced |
| Apache Kafka as shipped | acks=all: in the page cache |
| mosquitto, persistence | PUBACK from memory; its database is written at the load's end, else every 30 minutes |
| mosquitto, each change | the same, written within a second of each change |

Each subject has a disk of its own: a loop device with ext4, whole from the start, so that the journal and all metadata
count, and nothing else. What is counted are the sectors of that device's own statistics, from a syncfs before the load
to one after it. The slow loads run side by side, full speed in turn. Records have 100 bytes at a pace, 1000 at full
speed; their keys none.

At one record a second no batching can help, so the rows `append` are what ext4 itself takes for 170 bytes and an
fdatasync each second: the page, and the journal's descriptor, inode and commit. `overwrite` is the same into bytes that
were written before, which needs no journal: a log that appends cannot reach it. `marks` is one write of the marks of
partitions in use each second, as the broker does it before the first acks=1 answer to a partition and once more when it
was idle for a minute: a record that comes alone costs two of them beside its own row, a stream none.

Needs root, for the loop devices. Lives here: the loads, the table, the JSON. Must never come in: levels that fail.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import paho.mqtt.client as mqtt
from confluent_kafka import Producer

from edge_broker import libc
from edge_broker.storage.files.double_buffered_file import TwinFiles
from edge_broker.storage.files.filesystem import Disk
from edge_broker.storage.recovery.dirty_markers import FILES, KIND
from tests.support.kafka_reading import create_topic
from tests.support.processes import ApacheKafka, EdgeBroker, Mosquitto, Process, wait_until

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "bench-results"
DEVICE_BYTES = 1 << 30
SECTOR_BYTES = 512
TOPIC = "writes"
PACED_BYTES, FULL_BYTES = 100, 1000
BATCH_BYTES = 170  # a batch of one record of 100 bytes on disk
FULL_RECORDS, FULL_MQTT_RECORDS, FULL_CHANGES = 100_000, 10_000, 200
MQTT_IN_FLIGHT = 20
MARKED = 50
Send = Callable[[int, int, float], None]  # records, bytes of each, records/s; returns when all are answered


class Device:
    """A loop device with ext4, mounted; `written` says what its own statistics say."""

    def __init__(self, directory: Path, name: str) -> None:
        self.directory = directory / f"{name}-mount"
        self._image = directory / f"{name}.img"
        self._loop = ""

    def __enter__(self) -> Device:
        self.directory.mkdir()
        with self._image.open("wb") as image:
            image.truncate(DEVICE_BYTES)
        self._loop = _run("losetup", "--find", "--show", str(self._image))
        try:
            _run("mkfs.ext4", "-q", "-E", "lazy_itable_init=0,lazy_journal_init=0", self._loop)
            _run("mount", self._loop, str(self.directory))
        except BaseException:
            _run("losetup", "--detach", self._loop)
            raise
        return self

    def __exit__(self, *_: object) -> None:
        _run("umount", str(self.directory))
        _run("losetup", "--detach", self._loop)
        self._image.unlink()

    def written(self) -> int:
        """Bytes written to it since it was made, everything that is dirty now included."""
        descriptor = os.open(self.directory, os.O_RDONLY)
        try:
            libc.syncfs(descriptor)
        finally:
            os.close(descriptor)
        stat = Path(f"/sys/block/{Path(self._loop).name}/stat").read_text(encoding="ascii")
        return int(stat.split()[6]) * SECTOR_BYTES


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command)}: {done.stderr.strip()}; loop devices need root and util-linux")
    return done.stdout.strip()


class Subject:
    """A server on a device, and how records are sent to it."""

    def __init__(self, name: str, device: Device, server: Process | None, send: Send, full_records: int) -> None:
        self.name = name
        self.device = device
        self.server = server
        self.send = send
        self.full_records = full_records

    def settle(self) -> None:
        """Let a server that keeps all in memory write it now."""
        if isinstance(self.server, Mosquitto):
            self.server.send_signal(signal.SIGUSR1)
            time.sleep(1.0)  # it says nothing when it is done; what comes later is counted with the next load

    def ratio(self, records: int, record_bytes: int, rate: float) -> dict[str, float]:
        """Send a load; bytes on the device, for each byte of payload and for each record."""
        before, began = self.device.written(), time.monotonic()
        self.send(records, record_bytes, rate)
        seconds = time.monotonic() - began
        self.settle()
        written = self.device.written() - before
        return {
            "records": records,
            "record_bytes": record_bytes,
            "seconds": seconds,
            "device_bytes": written,
            "device_bytes_per_payload_byte": written / (records * record_bytes),
            "device_bytes_per_record": written / records,
        }


def paced(rate: float, records: int) -> Iterator[None]:
    """Turn after turn, at a rate, or as fast as it goes for 0."""
    due = time.monotonic()
    for _ in range(records):
        yield
        if rate:
            due += 1 / rate
            time.sleep(max(0.0, due - time.monotonic()))


def kafka_sender(bootstrap: str, acks: str = "all") -> Send:
    """Records through librdkafka."""

    def send(records: int, record_bytes: int, rate: float) -> None:
        failed: list[object] = []
        settings = {"bootstrap.servers": bootstrap, "acks": acks, "linger.ms": 0 if rate else 20}
        producer = Producer({**settings, "batch.size": 1_000_000, "queue.buffering.max.kbytes": 65_536})
        value = os.urandom(record_bytes)
        for _ in paced(rate, records):
            while True:
                try:
                    producer.produce(TOPIC, value, on_delivery=lambda error, _: error and failed.append(error))
                    break
                except BufferError:
                    producer.poll(0.1)
            producer.poll(0)
        if producer.flush(120) or failed:
            sys.exit(f"{bootstrap} did not take every record: {failed[:1]}")

    return send


def mqtt_sender(port: int) -> Send:
    """Messages of QoS 1 into the queue of a session that is not there."""

    def client(name: str, clean: bool) -> mqtt.Client:
        made = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, client_id=name, clean_session=clean)
        made.max_inflight_messages_set(MQTT_IN_FLIGHT)
        made.connect("127.0.0.1", port)
        made.loop_start()
        return made

    def send(records: int, record_bytes: int, rate: float) -> None:
        reader = client("reader", clean=False)
        reader.subscribe(TOPIC, qos=1)
        reader.disconnect()
        reader.loop_stop()
        writer = client("writer", clean=True)
        value = os.urandom(record_bytes)
        waiting = [writer.publish(TOPIC, value, qos=1) for _ in paced(rate, records)]
        for message in waiting:
            message.wait_for_publish(120)
        writer.disconnect()
        writer.loop_stop()

    return send


def file_sender(path: Path, *, overwrite: bool) -> Send:
    """What the file system alone takes for a write and an fdatasync."""

    def send(records: int, _record_bytes: int, rate: float) -> None:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o640)
        position = 0 if overwrite else os.fstat(descriptor).st_size
        for _ in paced(rate, records):
            os.pwrite(descriptor, os.urandom(BATCH_BYTES), position)
            os.fdatasync(descriptor)
            position += BATCH_BYTES
        os.close(descriptor)

    if overwrite:
        path.write_bytes(bytes(1 << 20))
    return send


def marks_sender(directory: Path) -> Send:
    """What a write of the marks takes, here of MARKED partitions."""

    def send(records: int, _record_bytes: int, rate: float) -> None:
        files = TwinFiles(Disk(), str(directory), FILES, KIND, 1)
        for _ in paced(rate, records):
            files.write(["session 00000000-0000-0000-0000-000000000000 7:0/ext4/1", f"{'x' * 22} 0-{MARKED - 1}"])

    send(2, 0, 0)  # both files are there
    return send


@contextmanager
def subjects(directory: Path) -> Iterator[list[Subject]]:
    """Every subject, started, on a device of its own."""
    persistence = "persistence true\npersistence_location {}/\nmax_queued_messages 0\n"
    with ExitStack() as stack:

        def device(name: str) -> Device:
            return stack.enter_context(Device(directory, name))

        found = []
        at = device("edge")
        edge = stack.enter_context(EdgeBroker(directory / "edge", data_dir=at.directory / "data"))
        found.append(Subject("edge-broker", at, edge, kafka_sender(edge.bootstrap), FULL_RECORDS))
        at = device("edge-1")
        edge = stack.enter_context(EdgeBroker(directory / "edge-1", data_dir=at.directory / "data"))
        found.append(Subject("edge-broker, acks=1", at, edge, kafka_sender(edge.bootstrap, "1"), FULL_RECORDS))
        for name, settings in (
            ("Apache Kafka, flush.messages=1", {"log.flush.interval.messages": 1}),
            ("Apache Kafka as shipped", {}),
        ):
            key = f"kafka-{len(found)}"
            at = device(key)
            kafka = stack.enter_context(
                ApacheKafka(directory / key, data_dir=at.directory / "data", settings=settings, java_options=())
            )
            found.append(Subject(name, at, kafka, kafka_sender(kafka.bootstrap), FULL_RECORDS))
        for name, more, full_records in (
            ("mosquitto, persistence", "", FULL_MQTT_RECORDS),
            ("mosquitto, each change", "autosave_on_changes true\nautosave_interval 1\n", FULL_CHANGES),
        ):
            key = f"mosquitto-{len(found)}"
            at = device(key)
            config = persistence.format(at.directory) + more
            mosquitto = stack.enter_context(Mosquitto(directory / key, config=config))
            found.append(Subject(name, at, mosquitto, mqtt_sender(mosquitto.port), full_records))
        for subject in found[:4]:
            assert isinstance(subject.server, (EdgeBroker, ApacheKafka))
            create_topic(subject.server.bootstrap, TOPIC)
        for overwrite in (False, True):
            name = "overwrite" if overwrite else "append"
            at = device(name)
            found.append(Subject(name, at, None, file_sender(at.directory / "file", overwrite=overwrite), 0))
        at = device("marks")
        found.append(Subject("marks", at, None, marks_sender(at.directory), 0))
        yield found


def measure(directory: Path, slow_s: int, medium_s: int) -> dict[str, dict[str, dict[str, float]]]:
    """Figures by load and subject."""
    loads: dict[str, dict[str, dict[str, float]]] = {}
    with subjects(directory) as found:
        for subject in found:
            if subject.server is not None:
                subject.send(10, PACED_BYTES, 0)  # first files, first segments
        for subject in found[:2]:
            card = subject.device.directory / "data" / "card"
            wait_until(card.exists, 60, "the card's measurement, which writes 4 MiB")
        time.sleep(2)
        for name, rate, seconds in (("1 record/s", 1, slow_s), ("100 records/s", 100, medium_s)):
            with ThreadPoolExecutor(len(found)) as threads:
                running = {
                    subject.name: threads.submit(subject.ratio, rate * seconds, PACED_BYTES, rate) for subject in found
                }
                loads[name] = {subject: figures.result() for subject, figures in running.items()}
        loads["full speed"] = {
            subject.name: subject.ratio(subject.full_records, FULL_BYTES, 0)
            for subject in found
            if subject.full_records
        }
    return loads


def table(loads: dict[str, dict[str, dict[str, float]]]) -> str:
    """Bytes on the device for each byte of payload, and for each record."""
    lines = []
    for load, figures in loads.items():
        lines.append(f"\n{load:<34}{'device/payload':>15}{'bytes/record':>14}{'records/s':>11}")
        for name, figure in figures.items():
            ratio, each = figure["device_bytes_per_payload_byte"], figure["device_bytes_per_record"]
            lines.append(f"  {name:<32}{ratio:>15.2f}{each:>14.0f}{figure['records'] / figure['seconds']:>11.0f}")
    return "\n".join(lines)


def main() -> int:
    """Measure, print, write bench-results/writes.json."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--slow-s", type=int, default=60, help="seconds at one record a second")
    parser.add_argument("--medium-s", type=int, default=20, help="seconds at 100 records a second")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="edge-writes-") as directory:
        loads = measure(Path(directory), options.slow_s, options.medium_s)
    print(table(loads))
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "writes.json").write_text(json.dumps(loads, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
