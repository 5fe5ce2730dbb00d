"""Makes the data directories of this folder, and what the broker that wrote them says of each.

    cd CHECKOUT && .venv/bin/python .../broker_752fe42/make.py OUT

It uses the checkout's commands, signals and the Kafka protocol, and no name of its code, so that it runs at any commit.
Root alone can run it: each start gets a boot id of its own, by a bind mount in a mount namespace.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

sys.path.insert(0, str(Path(__file__).parents[3]))  # of this checkout, whichever one is in use

from tests.golden.making import pack, rows

BIN = Path(sys.executable).parent
BEGIN_MS = 1_764_000_000_000
BOOTSTRAP = "127.0.0.1:19752"
# Nothing goes by its age, however old the files are when they are opened.
SETTINGS = {
    "log.retention.ms": -1,
    "producer.id.expiration.ms": 2_147_483_647,
    "offsets.topic.segment.bytes": 4096,
    "log.cleaner.backoff.ms": 100,
}
SMALL = {"segment.bytes": "4096", "index.interval.bytes": "512"}
COMPACT = {**SMALL, "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}
# Kills the process before it renames or removes a file whose path has the text of the file KILL_AT, once that exists.
KILL_AT = """
import os, signal, sys
armed = os.environ["KILL_AT"]
def hook(event, found):
    if event in ("os.rename", "os.remove") and os.path.exists(armed):
        with open(armed) as file:
            if file.read() in " ".join(map(str, found[:2])):
                os.kill(os.getpid(), signal.SIGKILL)
sys.addaudithook(hook)
"""
IN_A_BOOT = 'mount --bind "$0" /proc/sys/kernel/random/boot_id && exec "$@"'


class Board:
    """A data directory, and the broker on it."""

    def __init__(self, data: Path) -> None:
        self.data, self.scratch = data, data.parent
        self.boots = 0
        (self.scratch / "sitecustomize.py").write_text(KILL_AT)

    @contextmanager
    def serving(self, how: str = "stop") -> Iterator[subprocess.Popen[bytes]]:
        """Serve in a new boot until a clean `stop` or a `kill`; `killed`: by what `kill_at` has armed."""
        self.boots += 1
        boot, armed = self.scratch / "boot_id", self.scratch / "kill-at"
        boot.write_text(f"752fe42c-0000-4000-8000-{self.boots:012d}\n")
        armed.unlink(missing_ok=True)
        command = ["unshare", "--mount", "sh", "-c", IN_A_BOOT, str(boot), str(BIN / "edge-broker"), "serve"]
        command += ["--data-dir", str(self.data), "--listen", BOOTSTRAP]
        for key, value in SETTINGS.items():
            command += ["--set", f"{key}={value}"]
        environment = {**os.environ, "KILL_AT": str(armed), "PYTHONPATH": str(self.scratch)}
        process = subprocess.Popen(command, stdout=subprocess.PIPE, env=environment)
        assert process.stdout is not None
        try:
            assert b"edge-broker ready" in process.stdout.readline()
            yield process
            if how != "killed":
                process.send_signal(signal.SIGTERM if how == "stop" else signal.SIGKILL)
            assert process.wait(30) == (0 if how == "stop" else -9)
        finally:
            process.kill()
            process.wait()

    def kill_at(self, text: str) -> None:
        """Have the process killed before it renames or removes a file of this name."""
        (self.scratch / "kill-at").write_text(text)

    def run(self, *words: str) -> str:
        """Run a command on the directory; its output."""
        command = [str(BIN / "edge-broker"), *words, "--data-dir", str(self.data)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
        assert done.returncode in (0, 1), (command, done.stderr)
        return done.stdout

    def said(self, *commands: str) -> dict[str, list[Any]]:
        """The JSON lines of commands."""
        return {
            words: json_lines(self.run(*words.split(), "--json").replace(str(self.data), "DATA")) for words in commands
        }


def json_lines(text: str) -> list[Any]:
    return [json.loads(line) for line in text.splitlines()]


def asked(*commands: str) -> dict[str, list[Any]]:
    """The JSON lines of commands that ask the broker."""
    found = {}
    for words in commands:
        command = [str(BIN / "edge-broker"), *words.split(), "--bootstrap", BOOTSTRAP, "--json"]
        found[words] = json_lines(subprocess.run(command, capture_output=True, text=True, check=False).stdout)
    return found


def produce(
    topic: str,
    first: int,
    end: int,
    partition: int = 0,
    *,
    keys: int = 0,
    pad: int = 60,
    empty: bool = False,
    **more: Any,
) -> None:
    """Produce numbered records, idempotently, in one batch a call; `keys`: of so many keys, in turn."""
    producer = Producer({"bootstrap.servers": BOOTSTRAP, "enable.idempotence": True, "linger.ms": 200, **more})
    for number in range(first, end):
        producer.produce(
            topic,
            None if empty else b"%d " % number + b"." * pad,
            key=b"k%d" % (number % keys) if keys else b"device-%d" % (number % 3),
            partition=partition,
            timestamp=BEGIN_MS + number,
            headers=[("number", b"%d" % number)],
        )
    assert producer.flush(10) == 0


def read(topic: str, partition: int = 0) -> list[Any]:
    """Each record as offset, timestamp, its type, key, value, headers."""
    consumer = Consumer({"bootstrap.servers": BOOTSTRAP, "group.id": "maker", "enable.auto.commit": False})
    place = TopicPartition(topic, partition)
    low, high = consumer.get_watermark_offsets(place, timeout=10)
    found: list[Any] = []
    consumer.assign([TopicPartition(topic, partition, low)])
    while low < high and consumer.position([place])[0].offset < high:
        for one in consumer.consume(1000, timeout=0.1):
            assert one.error() is None
            kind, time_ms = one.timestamp()
            value = None if one.value() is None else one.value().decode()
            headers = [[name, data.decode()] for name, data in one.headers() or []]
            found.append([one.offset(), time_ms, kind, one.key().decode(), value, headers])
    consumer.close()
    return found


def commit(group: str, topic: str, offsets: dict[int, int], metadata: str = "") -> None:
    """Commit offsets of a group without members."""
    consumer = Consumer({"bootstrap.servers": BOOTSTRAP, "group.id": group, "enable.auto.commit": False})
    partitions = [TopicPartition(topic, p, offset, metadata) for p, offset in offsets.items()]
    consumer.commit(offsets=partitions, asynchronous=False)
    consumer.close()


def make_topics(**topics: dict[str, str]) -> None:
    admin = AdminClient({"bootstrap.servers": BOOTSTRAP})
    made = admin.create_topics(
        [NewTopic(name, 2 if name == "readings" else 1, 1, config=dict(config)) for name, config in topics.items()]
    )
    for one in made.values():
        one.result(10)


def compacted(data: Path) -> None:
    """Wait until closed segments were compacted, and nothing has been for two seconds."""
    path = data / "cleaner-offset-checkpoint"
    deadline = time.monotonic() + 60
    before = ""
    while not before or before != path.read_text():
        assert time.monotonic() < deadline, "no compaction"
        before = path.read_text() if path.exists() else ""
        time.sleep(2.0)


STOPPED = (
    "log ls",
    "log ls readings",
    "log dump readings-0",
    "log dump readings --producers",
    "log check",
    "log repair --dry-run",
    "ledger",
    "ledger --prove",
)


def clean(board: Board) -> dict[str, Any]:
    """A clean stop, with a bit of everything before it."""
    password = board.scratch / "password"
    password.write_text("moor-hen-17\n")
    password.chmod(0o600)
    with board.serving():
        board.run("user", "add", "gateway", "--password-file", str(password))
        board.run("acl", "add", "--allow", "User:gateway", "--producer", "--topic", "readings", "--prefixed")
        board.run("acl", "add", "--deny", "User:guest", "--operation", "all", "--topic", "*", "--host", "10.0.0.9")
        make_topics(
            readings={**SMALL, "edge.required.groups": "mirror"},
            codecs={},
            state=COMPACT,
            arrivals={"message.timestamp.type": "LogAppendTime"},
            interval={"edge.durability": "interval"},
            kernel={"edge.durability": "kernel"},
            gone={},
        )
        for first in range(0, 120, 20):
            produce("readings", first, first + 20)
        produce("readings", 0, 5, 1)
        for at, codec in enumerate(("none", "gzip", "snappy", "lz4", "zstd")):
            produce("codecs", at * 4, at * 4 + 4, pad=200, **{"compression.type": codec})
        for first in range(0, 240, 20):
            produce("state", first, first + 20, keys=7)
        produce("state", 240, 242, keys=7, empty=True)
        for topic in ("arrivals", "interval", "kernel", "gone"):
            produce(topic, 0, 3)
        commit("mirror", "readings", {0: 30, 1: 5}, '{"version":1,"as":"a mirror would"}')
        commit("reader", "readings", {0: 115})
        commit("reader", "codecs", {0: 20}, "all of it")
        # Offsets 0 to 29 may go; 30 to 49 are a loss, as `mirror`, which the topic names, has not passed them.
        admin = AdminClient({"bootstrap.servers": BOOTSTRAP})
        for done in admin.delete_records([TopicPartition("readings", 0, 50)]).values():
            done.result(10)
        admin.delete_topics(["gone"])["gone"].result(10)
        compacted(board.data)
    pack(board.data, OUT / "clean.tar.xz")
    stopped = board.said(*STOPPED, "log dump state-0 --records", "user list", "acl list")
    with board.serving():
        topics = ("readings", "codecs", "state", "arrivals", "interval", "kernel")
        records = {f"{topic}-0": read(topic) for topic in topics} | {"readings-1": read("readings", 1)}
        served = asked(
            "topics",
            "topics readings",
            "tail codecs -n 2",
            "groups",
            "groups mirror",
            "groups reader",
            "cluster status",
        )
    return {"stopped": stopped, "served": served, "records": records}


def cut(board: Board) -> dict[str, Any]:
    """The power goes while a batch is appended that no answer waits for; others were synced, or were not."""
    with board.serving("kill"):
        make_topics(readings=SMALL, interval={"edge.durability": "interval", "flush.ms": "600000"})
        for first in range(0, 80, 20):
            produce("readings", first, first + 20)
        commit("mirror", "readings", {0: 50}, "so far")
        for first in range(0, 15, 5):
            produce("interval", first, first + 5, pad=200)
    active = board.data / "interval-0" / f"{0:020}.log"
    os.truncate(active, active.stat().st_size - 300)
    pack(board.data, OUT / "cut.tar.xz")
    stopped = board.said(*STOPPED)
    with board.serving():
        after = {f"{topic}-0": read(topic) for topic in ("readings", "interval")}
        served = asked("groups mirror")
        ledger = board.said("ledger")["ledger"]
    return {"stopped": stopped, "served": served, "records": after, "ledger after": ledger}


def recovered(board: Board) -> dict[str, Any]:
    """It was started after a cut, and found a closed segment damaged: quarantine, what was cut off, losses."""
    with board.serving("kill"):
        make_topics(readings=SMALL, interval={"edge.durability": "interval", "flush.ms": "600000"})
        for first in range(0, 120, 10):
            produce("readings", first, first + 10)
        for first in range(0, 15, 5):
            produce("interval", first, first + 5, pad=200)
    active = board.data / "interval-0" / f"{0:020}.log"
    os.truncate(active, active.stat().st_size - 300)
    closed = board.data / "readings-0" / f"{0:020}.log"
    damaged = bytearray(closed.read_bytes())
    damaged[1500] ^= 1
    closed.write_bytes(damaged)
    with board.serving():
        read("readings")
        produce("readings", 120, 125)
        produce("interval", 15, 20)
    pack(board.data, OUT / "recovered.tar.xz")
    stopped = board.said(*STOPPED)
    with board.serving():
        records = {f"{topic}-0": read(topic) for topic in ("readings", "interval")}
    return {"stopped": stopped, "records": records}


def swapping(board: Board) -> dict[str, Any]:
    """Killed while a compacted segment takes the place of what it replaces."""
    with board.serving("killed") as process:
        make_topics(state={**COMPACT, "min.cleanable.dirty.ratio": "1"}, readings=SMALL)
        produce("readings", 0, 3)
        for first in range(0, 240, 20):
            produce("state", first, first + 20, keys=7)
        board.kill_at(".cleaned")
        admin = AdminClient({"bootstrap.servers": BOOTSTRAP})
        entry = ConfigEntry("min.cleanable.dirty.ratio", "0.01", incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, "state", incremental_configs=[entry])
        admin.incremental_alter_configs([resource])[resource].exception(5)
        process.wait(30)
    assert [*board.data.rglob("swap")], "no swap is left"
    pack(board.data, OUT / "swapping.tar.xz")
    stopped = board.said("log ls", "log check")
    with board.serving():
        latest = {one[3]: one for one in read("state")}
        records = {"readings-0": read("readings")}
    return {"stopped": stopped, "records": records, "latest": latest}


def deleting(board: Board) -> dict[str, Any]:
    """Killed when a topic's deletion was decided and nothing of it done."""
    with board.serving("killed"):
        make_topics(gone={}, readings=SMALL)
        produce("gone", 0, 3)
        produce("readings", 0, 3)
        board.kill_at("gone-0")
        admin = AdminClient({"bootstrap.servers": BOOTSTRAP})
        admin.delete_topics(["gone"])["gone"].exception(3)
    assert [*(board.data / "deleted").glob("*.json")], "no deletion is left"
    assert (board.data / "gone-0").is_dir()
    pack(board.data, OUT / "deleting.tar.xz")
    stopped = board.said("log ls", "log check")
    with board.serving():
        records = {"readings-0": read("readings")}
        served = asked("topics")
    return {"stopped": stopped, "served": served, "records": records}


OUT = Path(sys.argv[1])

if __name__ == "__main__":
    makers = {"clean": clean, "cut": cut, "recovered": recovered, "swapping": swapping, "deleting": deleting}
    for name in sys.argv[2:] or makers:
        with tempfile.TemporaryDirectory() as scratch:
            expected = makers[name](Board(Path(scratch) / "data"))
            (OUT / f"{name}.json").write_text(rows(expected) + "\n")
