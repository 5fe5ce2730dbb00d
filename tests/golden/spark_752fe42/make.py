"""Makes the files of this folder: the checkpoint of the job `readings`, and what the job wrote to its topics.

    cd CHECKOUT && .venv/bin/python .../spark_752fe42/make.py OUT

It uses the checkout's commands and the Kafka protocol alone, no name of its code. Java and the connector's jars are
those that `make install-deps` brings.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

sys.path.insert(0, str(Path(__file__).parents[3]))  # of this checkout, whichever one is in use

from tests.golden.making import pack

BIN = Path(sys.executable).parent
BROKER = "127.0.0.1:19795"
SETTINGS = (
    "trigger_ms=500",
    "window_ms=1000",
    "lateness_max_ms=2000",
    "recent_readings_min=3",
    "malformed_trigger_ms=500",
)
TOPICS = ("readings_windows", "readings_late", "readings_alarms")


def produce(messages: list[tuple[int, str]]) -> None:
    producer = Producer({"bootstrap.servers": BROKER, "enable.idempotence": True})
    for time_ms, text in messages:
        producer.produce("readings", text.encode(), b"pump-1", 0, timestamp=time_ms)
    assert producer.flush(20) == 0


def reading(seq: int, time_ms: int, value: float) -> tuple[int, str]:
    return time_ms, json.dumps({"device": "pump-1", "seq": seq, "time_ms": time_ms, "value": value})


def read(topic: str) -> list[Any]:
    """Key and value of each record; nothing where there is no topic."""
    if topic not in AdminClient({"bootstrap.servers": BROKER}).list_topics(timeout=10).topics:
        return []
    consumer = Consumer({"bootstrap.servers": BROKER, "group.id": "maker", "enable.auto.commit": False})
    low, high = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=10)
    consumer.assign([TopicPartition(topic, 0, low)])
    found: list[Any] = []
    while len(found) < high - low:
        for one in consumer.consume(1000, timeout=0.2):
            found.append([one.key() and one.key().decode(), one.value().decode()])
    consumer.close()
    return found


def main(out: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        scratch, checkpoint = Path(folder), Path(folder) / "checkpoint"
        serve = [BIN / "edge-broker", "serve", "--data-dir", scratch / "data", "--listen", BROKER]
        job = [
            BIN / "edge-spark",
            "run",
            "readings",
            "--bootstrap",
            BROKER,
            "--checkpoint",
            checkpoint,
            "--master",
            "local[1]",
        ]
        job += [word for setting in SETTINGS for word in ("--set", setting)]
        processes = [subprocess.Popen([*map(str, serve)])]
        try:
            time.sleep(3)
            now_ms = int(time.time() * 1000) // 1000 * 1000 - 60_000
            messages = [reading(n, now_ms + n * 200, 20.0 + n % 3) for n in range(40)]
            messages += [(now_ms, "no JSON"), reading(40, now_ms + 8000, 500.0)]
            produce(messages)
            processes.append(subprocess.Popen([*map(str, job)]))
            deadline = time.monotonic() + 200
            while not (read("readings_alarms") and len(read("readings_windows")) >= 5):
                assert time.monotonic() < deadline, "no results"
                time.sleep(1)
            produce([reading(41, now_ms, 20.0), reading(42, now_ms + 8200, 20.0)])
            while not read("readings_late"):
                assert time.monotonic() < deadline, "no late reading"
                time.sleep(1)
            time.sleep(3)
            processes[1].terminate()
            assert processes[1].wait(60) == 0
            records = {topic: read(topic) for topic in TOPICS}
        finally:
            for process in processes:
                process.terminate()
                process.wait(60)
        pack(checkpoint, out / "checkpoint.tar.xz")
        pack(scratch / "data", out / "broker.tar.xz")
    made = {"settings": SETTINGS, "begin_ms": now_ms, "records": records}
    (out / "spark.json").write_text(json.dumps(made, indent=1) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
