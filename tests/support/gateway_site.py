"""One site as the gateway sees it: mosquitto with our configuration, the gateway, a device that publishes.

The Kafka broker is the test's; nothing of the gateway is imported here.
"""

from __future__ import annotations

import copy
import getpass
import json
import re
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import paho.mqtt.client as paho
from confluent_kafka import Consumer, KafkaException, Message, TopicPartition
from paho.mqtt.enums import CallbackAPIVersion

from tests.support import runtimes
from tests.support.processes import Mosquitto, Process, free_port, wait_until
from tests.support.waiting import CALL_S, Deadline

_TOML = """\
state_dir = "{root}/state"
metrics = "127.0.0.1:{metrics_port}"
stop_timeout_ms = 3000
clock_trusted = "true"

[kafka]
bootstrap_servers = "{bootstrap}"
dead_letter_topic = "{dead_letter_topic}"
record_bytes_max = 4096
request_timeout_ms = 5000
pending_records_max = {pending_records_max}

[mqtt]
port = {mqtt_port}
keepalive_s = 5

[[mqtt.routes]]
pattern = "sites/+/devices/{{device}}/readings"
topic = "{topic}"
key = "{{device}}"
timestamp_field = "time_ms"

[[files]]
path = "{root}/app.log"
topic = "{topic}-logs"
poll_interval_ms = 20
rotate_wait_ms = 100
save_interval_ms = 50

[board]
topic = "{topic}-health"
interval_ms = 200

[mosquitto]
listeners = ["127.0.0.1:{mqtt_port}"]
persistence_dir = "{root}/mosquitto"
user = "{user}"
sys_interval_s = 1
queued_bytes_max = {queued_bytes_max}
"""


class GatewaySite:
    """mosquitto and the gateway, not yet started, with everything they keep below `root`."""

    def __init__(
        self,
        root: Path,
        bootstrap: str,
        topic: str,
        *,
        queued_bytes_max: int = 64 << 20,
        pending_records_max: int = 10_000,
        dead_letter_topic: str = "dead_letters",
    ) -> None:
        self.root = root
        self.topic = topic
        self.log_path = root / "app.log"
        self.metrics_url = f"http://127.0.0.1:{(metrics_port := free_port())}"
        config = self.config_path = root / "gateway.toml"
        config.write_text(
            _TOML.format(
                root=root,
                bootstrap=bootstrap,
                topic=topic,
                metrics_port=metrics_port,
                mqtt_port=free_port(),
                user=getpass.getuser(),
                queued_bytes_max=queued_bytes_max,
                pending_records_max=pending_records_max,
                dead_letter_topic=dead_letter_topic,
            )
        )
        (root / "mosquitto").mkdir()
        program = runtimes.console_script("edge-gateway")
        written = subprocess.run(
            [program, "mosquitto-conf", "--config", config], check=True, stdout=subprocess.PIPE, text=True
        )
        (root / "mosquitto.conf").write_text(written.stdout)
        self.mosquitto = Mosquitto(root, config=root / "mosquitto.conf")
        self.gateway = Process("gateway", [program, "run", "--config", config], root, ready="edge-gateway ready")

    def change(self, old: str, new: str) -> None:
        """Change the gateway's configuration; it has it from its next start on."""
        text = self.config_path.read_text()
        assert old in text, old
        self.config_path.write_text(text.replace(old, new))

    def twin(self, root: Path) -> GatewaySite:
        """Another gateway with the same configuration, but a directory and a port of its own; it shares mosquitto."""
        root.mkdir()
        (root / "app.log").touch()
        other = copy.copy(self)
        other.root, other.log_path, other.config_path = root, root / "app.log", root / "gateway.toml"
        other.metrics_url = f"http://127.0.0.1:{(port := free_port())}"
        text = self.config_path.read_text().replace(f'"{self.root}/', f'"{root}/')
        other.config_path.write_text(text.replace(self.metrics_url.removeprefix("http://"), f"127.0.0.1:{port}"))
        program = runtimes.console_script("edge-gateway")
        command: list[str | Path] = [program, "run", "--config", other.config_path]
        other.gateway = Process("gateway", command, root, ready="edge-gateway ready")
        return other

    def log(self) -> str:
        """Return what the gateway has logged so far."""
        return self.gateway.log_path.read_text()

    def metric(self, name: str, labels: str = "") -> float:
        """Return the value of `edge_gateway_NAME{LABELS}`, 0 where there is none."""
        with urllib.request.urlopen(f"{self.metrics_url}/metrics", timeout=CALL_S) as answer:
            lines = answer.read().decode().splitlines()
        wanted = f"edge_gateway_{name}{{{labels}}} " if labels else f"edge_gateway_{name} "
        return sum(float(line.split()[-1]) for line in lines if line.startswith(wanted))

    def acked(self) -> int:
        """Return how many MQTT messages the Kafka broker has acknowledged to this run of the gateway."""
        return int(self.metric("records_total", f'source="mqtt",topic="{self.topic}"'))

    def dead_letters(self) -> dict[str, int]:
        """Return how many dead letters the Kafka broker has acknowledged to this run of the gateway, by reason."""
        with urllib.request.urlopen(f"{self.metrics_url}/metrics", timeout=CALL_S) as answer:
            found = re.findall(r'(?m)^edge_gateway_dead_letters_total\{reason="(\w+)".* (\S+)$', answer.read().decode())
        return {reason: int(float(count)) for reason, count in found}

    def health(self) -> tuple[int, str]:
        """Return the status and the text of /health."""
        try:
            with urllib.request.urlopen(f"{self.metrics_url}/health", timeout=CALL_S) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def wait_idle(self, deadline_s: float = 30.0) -> None:
        """Wait until nothing waits in the gateway for the broker but what the board adds by itself."""
        wait_until(lambda: self.metric("pending_records") <= 1, deadline_s, "the gateway has nothing pending")


class Device:
    """A device that numbers its readings and remembers which of them mosquitto acknowledged; a context manager."""

    def __init__(self, port: int, name: str) -> None:
        self.name = name
        self.seq = 0
        self.acked: list[int] = []
        self.qos_of: dict[int, int] = {}
        self._seq_of: dict[int, int] = {}
        self._lock = threading.Lock()
        self._early: set[int] = set()
        self.client = paho.Client(CallbackAPIVersion.VERSION2, client_id=name)
        self.client.reconnect_delay_set(min_delay=0, max_delay=1)
        self.client.on_publish = self._published
        self._port = port

    def _published(self, _client: paho.Client, _data: Any, mid: int, _reason: Any, _properties: Any) -> None:
        with self._lock:
            if mid in self._seq_of:
                self.acked.append(self._seq_of.pop(mid))
            else:
                self._early.add(mid)  # the answer came before publish() returned the id

    def publish(self, qos: int = 1, padding: int = 0) -> int:
        """Publish the next reading and return its sequence number."""
        seq, self.seq = self.seq, self.seq + 1
        self.qos_of[seq] = qos
        payload = {"device": self.name, "seq": seq, "time_ms": time.time_ns() // 1_000_000, "value": 1.5}
        self.publish_raw(json.dumps({**payload, "padding": "x" * padding}).encode(), qos, seq)
        return seq

    def publish_raw(self, payload: bytes, qos: int = 1, seq: int = -1) -> None:
        """Publish any payload."""
        info = self.client.publish(f"sites/a/devices/{self.name}/readings", payload, qos)
        with self._lock:
            if info.mid in self._early:
                self._early.discard(info.mid)
                self.acked.append(seq)
            else:
                self._seq_of[info.mid] = seq

    def wait_acked(self, deadline_s: float = 20.0) -> None:
        """Wait until mosquitto has answered everything published."""
        wait_until(lambda: not self._seq_of, deadline_s, f"mosquitto answers {self.name}")

    def __enter__(self) -> Self:
        self.client.connect("127.0.0.1", self._port)
        self.client.loop_start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.client.disconnect()
        self.client.loop_stop()


def read_whole(bootstrap: str, topic: str, deadline_s: float = 20.0) -> list[Message]:
    """Read every record of a topic with headers and timestamps, in order within each partition; [] where it is not."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "-", "enable.auto.commit": False})
    try:
        found = consumer.list_topics(topic, timeout=CALL_S).topics[topic]
        places, left = [], 0
        for partition in found.partitions:
            low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=CALL_S)
            places.append(TopicPartition(topic, partition, low))
            left += high - low
        consumer.assign(places)
        return _consume(consumer, left, Deadline(deadline_s))
    finally:
        consumer.close()


def _consume(consumer: Consumer, left: int, deadline: Deadline) -> list[Message]:
    read: list[Message] = []
    while len(read) < left:
        deadline.check(f"{left} records", f"{len(read)}")
        for message in consumer.consume(left - len(read), timeout=0.2):
            if message.error():
                raise KafkaException(message.error())
            read.append(message)
    return read


def sequences(messages: Iterable[Message]) -> dict[str, list[int]]:
    """Return the sequence numbers per device, in the order in which they stand in the log."""
    found: dict[str, list[int]] = {}
    for message in messages:
        value = json.loads(message.value() or b"null")
        found.setdefault(value["device"], []).append(value["seq"])
    return found
