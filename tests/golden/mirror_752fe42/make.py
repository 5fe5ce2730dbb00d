"""Makes the files of this folder: what a mirror of a checkout leaves at both ends, and what it says of itself.

    cd CHECKOUT && .venv/bin/python .../mirror_752fe42/make.py OUT

It uses the checkout's commands and the Kafka protocol alone, no name of its code. With transactions the target is
Apache Kafka, for which the jars that `make install-deps` fetches are taken: --kafka-jars DIR.
"""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from aiokafka.admin import AIOKafkaAdminClient
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

sys.path.insert(0, str(Path(__file__).parents[3]))  # of this checkout, whichever one is in use

from tests.golden.making import pack, rows

BIN = Path(sys.executable).parent
BEGIN_MS = 1_764_000_000_000
SOURCE, TARGET, METRICS = "127.0.0.1:19761", "127.0.0.1:19762", "127.0.0.1:19763"
FOREVER = {"log.retention.ms": -1, "producer.id.expiration.ms": 2_147_483_647, "log.cleaner.backoff.ms": 100}
COMPACT = {"segment.bytes": "4096", "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}
BOTH = ("--source", SOURCE, "--target", TARGET, "--topics", "readings|state|old|big")
GROUP, STATE = "edge-mirror-lab", "__edge-mirror-lab-state"
KAFKA = """\
process.roles=broker,controller
node.id=1
listeners=PLAINTEXT://{target},CONTROLLER://127.0.0.1:19764
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
controller.quorum.bootstrap.servers=127.0.0.1:19764
log.dirs={data}
offsets.topic.num.partitions=1
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
"""


@contextmanager
def running(*command: object, ready: bytes = b"ready") -> Iterator[subprocess.Popen[bytes]]:
    """Run a process until the end of the block, once it has said that it is ready."""
    process = subprocess.Popen([*map(str, command)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        for line in process.stdout:
            if ready in line:
                break
        else:
            raise AssertionError(f"{command[0]} ended")
        threading.Thread(target=process.stdout.read, daemon=True).start()  # else it stands still once the pipe is full
        yield process
        process.terminate()
        assert process.wait(60) in (0, 143)
    finally:
        process.kill()
        process.wait()


def broker(data: Path, address: str) -> Any:
    keys = [word for key, value in FOREVER.items() for word in ("--set", f"{key}={value}")]
    return running(BIN / "edge-broker", "serve", "--data-dir", data, "--listen", address, *keys)


def mirror(config: Path) -> Any:
    return running(
        *(BIN / "edge-mirror", "run", *BOTH, "--site", "lab", "--config", config, "--metrics", METRICS),
        ready=b"edge-mirror ready",
    )


def tell(*words: str) -> Any:
    """What a command of the mirror prints as JSON."""
    command = [str(BIN / "edge-mirror"), *words, "--json", "--site", "lab"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout, done.stderr
    return json.loads(done.stdout)


def both(*words: str) -> Any:
    return tell(*words, *BOTH)


def produce(topic: str, first: int, end: int, partition: int = 0, *, keys: int = 3, pad: int = 20) -> None:
    """Produce numbered records in one batch."""
    producer = Producer({"bootstrap.servers": SOURCE, "enable.idempotence": True, "linger.ms": 200})
    for n in range(first, end):
        padding = b"." * pad if pad < 1000 else random.Random(n).randbytes(pad // 2).hex().encode()  # does not compress
        value, key = b"%d " % n + padding, b"k%d" % (n % keys)
        producer.produce(topic, value, key, partition, timestamp=BEGIN_MS + n, headers=[("number", b"%d" % n)])
    assert producer.flush(20) == 0


def read(bootstrap: str, topic: str, partition: int = 0) -> list[Any]:
    """Each record as offset, timestamp, key, value, headers."""
    settings = {"bootstrap.servers": bootstrap, "group.id": "maker", "enable.auto.commit": False}
    consumer = Consumer({**settings, "enable.partition.eof": True, "auto.offset.reset": "earliest"})
    low, _ = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=20)
    consumer.assign([TopicPartition(topic, partition, low)])
    found: list[Any] = []
    while True:
        one = consumer.poll(20)
        if one is None or one.error() is not None:
            break
        headers = [[name, data.decode()] for name, data in one.headers() or []]
        value = None if one.value() is None else one.value().decode()
        found.append([one.offset(), one.timestamp()[1], one.key().decode(), value, headers])
    consumer.close()
    return found


async def committed() -> dict[str, list[Any]]:
    """What the mirror's group holds: offset and metadata of each partition."""
    admin = AIOKafkaAdminClient(bootstrap_servers=SOURCE)
    await admin.start()
    try:
        held = await admin.list_consumer_group_offsets(GROUP)
        return {f"{place.topic}-{place.partition}": [one.offset, one.metadata] for place, one in sorted(held.items())}
    finally:
        await admin.close()


def wait(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.3)


def get(path: str) -> str:
    try:
        with urllib.request.urlopen(f"http://{METRICS}{path}", timeout=10) as answer:
            return str(answer.read().decode())
    except urllib.error.HTTPError as error:
        return str(error.read().decode())


def all_there() -> bool:
    """Whether all is safe at the target, and committed at the source."""
    ends = {one["topic"]: one for one in json.loads(get("/status"))["topics"]}
    return len(ends) >= 4 and all(one["lag_records"] == 0 for one in ends.values()) and not tell_lag()


def tell_lag() -> int:
    return sum(one["lag_records"] or 0 for one in tell("status", "--source", SOURCE)["topics"])


def make_topics(bootstrap: str, **topics: dict[str, str]) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    made = [NewTopic(name, 2 if name == "readings" else 1, 1, config=config) for name, config in topics.items()]
    for one in admin.create_topics(made).values():
        one.result(20)


def delete_records(topic: str, end: int) -> None:
    admin = AdminClient({"bootstrap.servers": SOURCE})
    for done in admin.delete_records([TopicPartition(topic, 0, end)]).values():
        done.result(20)


def configured(scratch: Path, *more: str) -> Path:
    config = scratch / "mirror.toml"
    fast = ["backoff_max_ms = 500", "refresh_interval_ms = 300", "commit_interval_ms = 200"]
    config.write_text("\n".join([*fast, *more, '[topic."big"]', 'on_refused = "dead_letter"']) + "\n")
    return config


def fill() -> None:
    make_topics(SOURCE, readings={}, state=COMPACT, old={"retention.ms": "-1"}, big={})
    for first in range(0, 60, 20):
        produce("readings", first, first + 20)
    produce("readings", 0, 5, 1)
    for first in range(0, 200, 20):
        produce("state", first, first + 20, keys=7, pad=60)
    produce("old", 0, 10)
    produce("big", 0, 3)
    produce("big", 3, 4, pad=5000)
    produce("big", 4, 6)


def ends(out: Path, scratch: Path) -> dict[str, Any]:
    """Two lives of a mirror between two edge brokers: gaps, a refused record, records that went before it came."""
    config = configured(scratch)
    with broker(scratch / "source", SOURCE), broker(scratch / "target", TARGET):
        make_topics(TARGET, **{"lab.big": {"max.message.bytes": "2000"}})
        fill()
        checkpoint = scratch / "source" / "cleaner-offset-checkpoint"
        wait(checkpoint.exists, "compaction")
        time.sleep(3)
        with mirror(config):
            wait(all_there, "the first life")
        produce("readings", 60, 85)
        produce("old", 10, 20)
        delete_records("old", 15)
        with mirror(config):
            wait(all_there, "the second life")
            told = {"/status": json.loads(get("/status")), "/health": get("/health").splitlines()}
            metrics = [line for line in get("/metrics").splitlines() if line.startswith("# TYPE")]
            asked = tell("status", "--source", SOURCE, "--metrics", METRICS)
        produce("readings", 85, 95)
        said = {
            "status --source": tell("status", "--source", SOURCE),
            "plan": both("plan"),
            "audit": both("audit"),
            "translate readings 0 50": both("translate", "readings", "0", "50"),
            "translate state 0 195": both("translate", "state", "0", "195"),
            "translate readings 0 50 --back": both("translate", "readings", "0", "50", "--back"),
        }
        for end in ("source", "target"):
            digests = [BIN / "edge-mirror", "audit", "--digests-of", end, "--each", "--site", "lab", *BOTH]
            done = subprocess.run([*map(str, digests)], capture_output=True, check=True)
            (out / f"{end}.digests").write_bytes(done.stdout)
        topics = sorted(AdminClient({"bootstrap.servers": TARGET}).list_topics(timeout=10).topics)
        records = {
            f"{topic}-{p}": read(TARGET, topic, p)
            for topic in topics
            if topic not in (STATE, "__consumer_offsets")
            for p in range(1 + (topic == "lab.readings"))
        }
        state = [one[2:4] for one in read(TARGET, STATE)]
        group = asyncio.run(committed())
        ledger = read(SOURCE, "__edge_ledger")
    pack(scratch / "source", out / "source.tar.xz")
    pack(scratch / "target", out / "target.tar.xz")
    own = {"said": said, "asked": {"status --metrics": asked, **told}, "metrics": metrics}
    return own | {"records": records, "state": state, "group": group, "ledger": ledger}


def transactions(out: Path, scratch: Path) -> dict[str, Any]:
    """A mirror with transactions, and Apache Kafka as its target: what both ends hold of it."""
    jars = sys.argv[sys.argv.index("--kafka-jars") + 1]
    properties, data = scratch / "kafka.properties", scratch / "kafka"
    properties.write_text(KAFKA.format(target=TARGET, data=data))
    java = ["java", "-Xmx512m", "-cp", f"{jars}/*", "-Dorg.slf4j.simpleLogger.logFile=System.out"]
    storage = [
        *java,
        "kafka.tools.StorageTool",
        "format",
        "--standalone",
        "-t",
        "ZHJ1cGVsZXQtdGVzdC1jbA",
        "-c",
        str(properties),
    ]
    subprocess.run(storage, check=True, stdout=subprocess.DEVNULL)
    config = configured(scratch, "transactions = true")
    with broker(scratch / "source", SOURCE), running(*java, "kafka.Kafka", properties, ready=b"Kafka Server started"):
        make_topics(SOURCE, readings={}, state=COMPACT, old={}, big={})
        produce("readings", 0, 20)
        produce("state", 0, 20)
        produce("old", 0, 3)
        produce("big", 0, 3)
        with mirror(config):
            wait(all_there, "all mirrored")
            told = json.loads(get("/status"))
        state = [one[2:4] for one in read(TARGET, STATE)]
        group = asyncio.run(committed())
    return {"state": state, "group": group, "asked": {"/status": told}}


if __name__ == "__main__":
    for name, make in (("ends", ends), ("transactions", transactions)):
        if name == "ends" or "--kafka-jars" in sys.argv:
            with tempfile.TemporaryDirectory() as folder:
                made = make(Path(sys.argv[1]), Path(folder))
            (Path(sys.argv[1]) / f"{name}.json").write_text(rows(made) + "\n")
