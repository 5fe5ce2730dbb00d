"""Three brokers of Apache Kafka as one cluster, from jars, on loopback: 4.x with KRaft, or 3.9 on ZooKeeper.

Lives here: how such brokers are configured and started. Must never come in: what is measured or demanded of them.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

from tests.support import runtimes
from tests.support.broker_cluster import BrokerCluster
from tests.support.ports import can_connect, free_port
from tests.support.processes import JVM_STOP_STATUSES, Process, format_kafka
from tests.support.zookeeper import ZooKeeperEnsemble

IDS = (1, 2, 3)
JAVA_OPTIONS = (*runtimes.QUICK_JAVA, "-Xmx384m")
_LOGGING = ("-Dorg.slf4j.simpleLogger.showDateTime=true", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn")
_INTERNAL_TOPICS = {
    "offsets.topic.num.partitions": 4,
    "offsets.topic.replication.factor": 3,
    "transaction.state.log.num.partitions": 4,
    "transaction.state.log.replication.factor": 3,
}


class ApacheBroker(Process):
    """One of them; its storage is formatted at the first start where KRaft wants that."""

    def __init__(
        self,
        directory: Path,
        name: str,
        port: int,
        settings: Mapping[str, str | int],
        java: Sequence[str],
    ) -> None:
        """Describe a broker; `settings` are all of server.properties, `java` starts a class of the right jars."""
        self.port, self.bootstrap = port, f"127.0.0.1:{port}"
        self.data_dir = directory / f"{name}-data"
        self._java, self._needs_format = list(java), "process.roles" in settings
        self._properties = directory / f"{name}.properties"
        directory.mkdir(parents=True, exist_ok=True)
        all_settings = {"log.dirs": self.data_dir, **settings}
        self._properties.write_text("".join(f"{key}={value}\n" for key, value in all_settings.items()))
        super().__init__(
            name,
            [*java, "kafka.Kafka", self._properties],
            directory,
            ready=lambda: can_connect(port),
            ready_s=90,
            stop_statuses=JVM_STOP_STATUSES,
        )

    def spawn(self) -> None:
        """Format the storage where that was not done, then start the server."""
        if self._needs_format:
            format_kafka(self.name, self._java, self._properties, self.data_dir)
        super().spawn()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        """End it at once: the last ones of a cluster without a majority would wait for minutes."""
        if kind is not None:
            print(self.log_tail(), file=sys.stderr)
        self.kill()


def kraft_cluster(
    directory: Path, *, settings: Mapping[str, str | int] = {}, java_options: Sequence[str] = JAVA_OPTIONS
) -> BrokerCluster[ApacheBroker]:
    """Apache Kafka 4.3.1: each node is broker and controller. `settings` are keys of all."""
    ports = {number: (free_port(), free_port()) for number in IDS}
    voters = ",".join(f"{number}@127.0.0.1:{controller}" for number, (_, controller) in ports.items())
    java = runtimes.kafka_java(*_LOGGING, *java_options)

    def broker(number: int) -> ApacheBroker:
        port, controller = ports[number]
        own: dict[str, str | int] = {
            "process.roles": "broker,controller",
            "node.id": number,
            "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": voters,
        }
        return ApacheBroker(directory, f"kafka-{number}", port, {**own, **_INTERNAL_TOPICS, **settings}, java)

    return BrokerCluster([broker(number) for number in IDS])


def zookeeper_cluster(
    directory: Path,
    ensemble: ZooKeeperEnsemble,
    *,
    settings: Mapping[str, str | int] = {},
    java_options: Sequence[str] = JAVA_OPTIONS,
) -> BrokerCluster[ApacheBroker]:
    """Apache Kafka 3.9.2 on an ensemble of ZooKeeper. `settings` are keys of all."""
    java = runtimes.kafka_java(*_LOGGING, *java_options, folder=runtimes.old_kafka_jars())

    def broker(number: int) -> ApacheBroker:
        port = free_port()
        own: dict[str, str | int] = {
            "broker.id": number,
            "listeners": f"PLAINTEXT://127.0.0.1:{port}",
            "zookeeper.connect": ensemble.connect,
        }
        return ApacheBroker(directory, f"kafka-{number}", port, {**own, **_INTERNAL_TOPICS, **settings}, java)

    return BrokerCluster([broker(number) for number in IDS])
