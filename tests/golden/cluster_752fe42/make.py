"""Makes the files of this folder: what three boards of a cluster leave on their disks, and in ZooKeeper.

    cd CHECKOUT && .venv/bin/python .../cluster_752fe42/make.py OUT --zookeeper-jars DIR

It uses the checkout's commands, kazoo and the Kafka protocol, and no name of its code. The jars of Apache ZooKeeper are
those that `make install-deps` fetches.
"""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiokafka
from aiokafka.admin import AIOKafkaAdminClient, RecordsToDelete
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kazoo.client import KazooClient
from kazoo.exceptions import KazooException

sys.path.insert(0, str(Path(__file__).parents[3]))  # of this checkout, whichever one is in use

from tests.golden.making import pack

BIN = Path(sys.executable).parent
BEGIN_MS = 1_764_000_000_000
ZOOKEEPER, CHROOT = "127.0.0.1:19780", "/drupelet"
BOARDS = {number: f"127.0.0.1:1978{number}" for number in (1, 2, 3)}
BOOTSTRAP = ",".join(BOARDS.values())
LOGIN = "brokers:coot-moor-hen-17"
COMPACT = {"segment.bytes": "4096", "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}


class Site:
    """The boards, and the one server of ZooKeeper."""

    def __init__(self, scratch: Path) -> None:
        self.scratch = scratch
        self.processes: dict[int, subprocess.Popen[bytes]] = {}
        self.credentials = scratch / "digest"
        self.credentials.write_text(LOGIN + "\n")
        self.credentials.chmod(0o600)

    def data(self, number: int) -> Path:
        return self.scratch / f"board-{number}"

    def start_zookeeper(self, jars: str) -> None:
        java = ["java", "-Xmx64m", "-Dzookeeper.admin.enableServer=false", "-cp", f"{jars}/*"]
        server = "org.apache.zookeeper.server.ZooKeeperServerMain"
        command = [*java, server, ZOOKEEPER.split(":")[1], str(self.scratch / "zookeeper"), "500"]
        self.processes[0] = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def start(self, number: int) -> None:
        keys = {
            "broker.id": number,
            "zookeeper.connect": ZOOKEEPER + CHROOT,
            "zookeeper.session.timeout.ms": 2000,
            "edge.zookeeper.digest.file": self.credentials,
            "default.replication.factor": 3,
            "replica.lag.time.max.ms": 5000,
            "log.retention.ms": -1,
            "log.cleaner.backoff.ms": 100,
            "producer.id.expiration.ms": 2_147_483_647,
        }
        command = [str(BIN / "edge-broker"), "serve", "--data-dir", str(self.data(number)), "--listen", BOARDS[number]]
        for key, value in keys.items():
            command += ["--set", f"{key}={value}"]
        process = self.processes[number] = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert process.stdout is not None
        assert b"edge-broker ready" in process.stdout.readline()

    def end(self, number: int, how: signal.Signals = signal.SIGTERM) -> None:
        process = self.processes.pop(number)
        process.send_signal(how)
        process.wait(60)

    def run(self, number: int, *words: str) -> None:
        command = [str(BIN / "edge-broker"), *words, "--data-dir", str(self.data(number))]
        subprocess.run(command, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)


def wait(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + 90
    while True:
        try:
            if condition():
                return
        except (KafkaException, KazooException, KeyError) as error:  # not there yet
            what = f"{what}: {error}"
        assert time.monotonic() < deadline, what
        time.sleep(0.3)


def admin() -> AdminClient:
    return AdminClient({"bootstrap.servers": BOOTSTRAP})


def in_sync(topic: str, members: int) -> bool:
    found = admin().list_topics(topic, timeout=5).topics[topic].partitions.values()
    return bool(found) and all(one.leader > 0 and len(one.isrs) == members for one in found)


def make_topic(name: str, partitions: int, **config: str) -> None:
    made = NewTopic(name, partitions, 3, config={key.replace("_", "."): value for key, value in config.items()})
    client = admin()
    client.create_topics([made])[name].result(90)
    wait(lambda: in_sync(name, 3), name)


def produce(topic: str, first: int, end: int, partition: int = 0, *, keys: int = 3) -> None:
    settings = {"bootstrap.servers": BOOTSTRAP, "enable.idempotence": True, "linger.ms": 200, "acks": "all"}
    producer = Producer(settings)
    for n in range(first, end):
        value = b"%d " % n + b"." * 60
        producer.produce(topic, value, b"k%d" % (n % keys), partition, timestamp=BEGIN_MS + n)
    assert producer.flush(60) == 0


def commit(group: str, topic: str, offset: int) -> None:
    settings = {"bootstrap.servers": BOOTSTRAP, "group.id": group, "enable.auto.commit": False}
    consumer = Consumer(settings)
    consumer.commit(offsets=[TopicPartition(topic, 0, offset, "so far")], asynchronous=False)
    consumer.close()


def end_of(topic: str) -> int:
    consumer = Consumer({"bootstrap.servers": BOOTSTRAP, "group.id": "maker"})
    try:
        return int(consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=10)[1])
    finally:
        consumer.close()


async def delete_records(topic: str, end: int) -> None:
    client = AIOKafkaAdminClient(bootstrap_servers=BOOTSTRAP)
    await client.start()
    try:
        await client.delete_records(
            {aiokafka.TopicPartition(topic, 0): RecordsToDelete(before_offset=end)}, timeout_ms=30_000
        )
    finally:
        await client.close()


def nodes() -> list[dict[str, Any]]:
    """Every node below the chroot, in the order in which they were made."""
    client = KazooClient(ZOOKEEPER + CHROOT, auth_data=[("digest", LOGIN)])
    client.start()
    found: list[dict[str, Any]] = []

    def take(path: str) -> None:
        data, stat = client.get(path)
        acls = [[each.perms, each.id.scheme, each.id.id] for each in client.get_acls(path)[0]]
        one = {"path": path, "data": data.decode(), "version": stat.version, "czxid": stat.czxid, "mzxid": stat.mzxid}
        found.append({**one, "ephemeral": bool(stat.ephemeralOwner), "acl": acls})
        for name in client.get_children(path):
            take(f"{path.rstrip('/')}/{name}")

    take("/")
    client.stop()
    client.close()
    return sorted(found, key=lambda one: (one["czxid"], one["path"]))


def main(out: Path, jars: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        site = Site(Path(folder))
        try:
            site.start_zookeeper(jars)
            client = KazooClient(ZOOKEEPER)
            client.start(timeout=30)
            client.ensure_path(CHROOT)
            client.stop()
            client.close()
            for number in BOARDS:
                site.start(number)
            wait(lambda: len(admin().list_topics(timeout=5).brokers) == 3, "three members")
            make_topic("readings", 2)
            make_topic("state", 1, **COMPACT)
            make_topic("gone", 1)
            for first in range(0, 60, 20):
                produce("readings", first, first + 20)
                produce("readings", first, first + 20, 1)
            for first in range(0, 120, 20):
                produce("state", first, first + 20, keys=7)
            produce("gone", 0, 3)
            commit("mirror", "readings", 30)
            make_topic("kept", 1, edge_required_groups="nobody")
            produce("kept", 0, 10)
            asyncio.run(delete_records("kept", 5))  # a loss: the group that the topic names has passed nothing
            wait(lambda: end_of("__edge_ledger") > 0, "the loss in the ledger")
            deleting = admin()
            deleting.delete_topics(["gone"])["gone"].result(90)
            password = site.scratch / "password"
            password.write_text("moor-hen-17\n")
            password.chmod(0o600)
            site.run(1, "user", "add", "gateway", "--password-file", str(password))
            site.run(1, "acl", "add", "--allow", "User:gateway", "--operation", "read", "--topic", "readings")
            wait(lambda: any("gateway" in one["data"] for one in nodes()), "users in ZooKeeper")
            site.end(3, signal.SIGKILL)
            wait(lambda: in_sync("readings", 2), "board 3 out of sync")
            produce("readings", 60, 70)
            running = nodes()
            site.end(2)
            site.end(1)
            stopped = nodes()
        finally:
            for number in [*site.processes]:
                site.end(number, signal.SIGKILL)
        for number in BOARDS:
            pack(site.data(number), out / f"board-{number}.tar.xz")
    lines = [",\n".join(f"  {json.dumps(one)}" for one in found) for found in (running, stopped)]
    (out / "znodes.json").write_text(f'{{"running": [\n{lines[0]}],\n "stopped": [\n{lines[1]}]}}\n')


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[sys.argv.index("--zookeeper-jars") + 1])
