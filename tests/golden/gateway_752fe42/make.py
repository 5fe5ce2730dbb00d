"""Makes `gateway.json`: what a gateway of a checkout keeps in its state directory, and what it writes to Kafka.

    cd CHECKOUT && .venv/bin/python .../gateway_752fe42/make.py OUT

It uses the checkout's commands, mosquitto, and the protocols alone, no name of its code.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import paho.mqtt.client as paho
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

BIN = Path(sys.executable).parent
BROKER, MQTT_PORT = "127.0.0.1:19791", 19792
BEGIN_MS = 1_764_000_000_000
MOSQUITTO = f"""\
listener {MQTT_PORT} 127.0.0.1
allow_anonymous true
user root
sys_interval 1
max_queued_messages 5
"""
CONFIGURATION = f"""\
state_dir = "state"
[kafka]
bootstrap_servers = "{BROKER}"
[mqtt]
port = {MQTT_PORT}
client_id = "drupelet-golden"
[[mqtt.routes]]
pattern = "sites/{{site}}/devices/{{device}}/readings"
topic = "readings"
key = "{{device}}"
timestamp_field = "time_ms"
headers = {{ site = "{{site}}" }}
[[mqtt.routes]]
pattern = "events/#"
topic = "events"
[[files]]
path = "app.log"
topic = "logs"
continuation = "^[ \\t]"
save_interval_ms = 0
"""
LINES = ["first line", "Traceback:", "  below it", "third line"]


@contextmanager
def running(*command: object) -> Iterator[None]:
    process = subprocess.Popen([*map(str, command)])
    try:
        yield
        process.terminate()
        process.wait(30)
    finally:
        process.kill()
        process.wait()


def wait(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + 40
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.2)


def publish(messages: list[tuple[str, str]]) -> None:
    """Publish with QoS 1, and wait until mosquitto has all."""
    client = paho.Client(paho.CallbackAPIVersion.VERSION2, client_id="device", protocol=paho.MQTTv5)
    client.connect("127.0.0.1", MQTT_PORT)
    client.loop_start()
    for topic, payload in messages:
        client.publish(topic, payload, qos=1).wait_for_publish(10)
    client.disconnect()
    client.loop_stop()


def read(topic: str) -> list[Any]:
    """Each record as key, value, headers, timestamp; nothing where there is no topic."""
    if topic not in AdminClient({"bootstrap.servers": BROKER}).list_topics(timeout=10).topics:
        return []
    consumer = Consumer({"bootstrap.servers": BROKER, "group.id": "maker", "enable.auto.commit": False})
    place = TopicPartition(topic, 0)
    low, high = consumer.get_watermark_offsets(place, timeout=10)
    consumer.assign([TopicPartition(topic, 0, low)])
    found: list[Any] = []
    while len(found) < high - low:
        for one in consumer.consume(100, timeout=0.2):
            headers = [[name, data.decode()] for name, data in one.headers() or []]
            found.append([one.key().decode(), one.value().decode(), headers, one.timestamp()[1]])
    consumer.close()
    return found


def main(out: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        config, log, state = scratch / "gateway.toml", scratch / "app.log", scratch / "state"
        (scratch / "mosquitto.conf").write_text(MOSQUITTO)
        config.write_text(CONFIGURATION)
        log.write_text("".join(f"{line}\n" for line in LINES))
        gateway = (BIN / "edge-gateway", "run", "--config", config)
        messages = [
            ("sites/hall/devices/pump-1/readings", json.dumps({"time_ms": BEGIN_MS, "value": 1.5})),
            ("sites/hall/devices/pump-2/readings", json.dumps({"time_ms": "soon", "value": 2})),
            ("sites/hall/devices/pump-1/readings", "no JSON"),
            ("events/door", "open"),
        ]
        later = ("sites/hall/devices/pump-1/readings", json.dumps({"time_ms": BEGIN_MS + 1, "value": 3}))
        serve = (BIN / "edge-broker", "serve", "--data-dir", scratch / "data", "--listen", BROKER)
        with running(*serve), running("mosquitto", "-c", scratch / "mosquitto.conf"):
            time.sleep(2)
            with running(*gateway):
                wait((state / "mqtt-session.json").exists, "a session")
                time.sleep(3)
                publish(messages)
                wait(lambda: len(read("readings")) == 2 and len(read("logs")) == 3 and read("events"), "all there")
                time.sleep(3)
            publish([later] * 20)
            with running(*gateway):
                wait(lambda: read("__edge_ledger"), "what mosquitto dropped is in the ledger")
                time.sleep(2)
            topics = ("readings", "events", "logs", "dead_letters", "__edge_ledger")
            records = {topic: read(topic) for topic in topics}
        states = {str(path.relative_to(state)): json.loads(path.read_text()) for path in sorted(state.rglob("*.json"))}
        text = json.dumps({"states": states, "messages": messages, "records": records}, indent=1)
        (out / "gateway.json").write_text(text.replace(folder, "FOLDER") + "\n")
        (out / "gateway.toml").write_text(CONFIGURATION)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
