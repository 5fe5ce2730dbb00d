"""Where the cells are measured: an edge broker, a link, Apache Kafka 4.3.1; the backlogs, made when first needed.

Must never come in: what is measured.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Self

from tests.benchmarks.mirror import ends
from tests.benchmarks.mirror.cells import Cell
from tests.benchmarks.mirror.subjects import EdgeMirror, MirrorMaker, Way, subject
from tests.support.certificates import Authority
from tests.support.kafka_reading import create_topic
from tests.support.linked_hosts import CENTER_ADDRESS, EDGE_ADDRESS, Host, Link, LinkedHosts
from tests.support.processes import ApacheKafka, EdgeBroker
from tests.support.secured_kafka import PASSWORD, SCRAM_MODULE, USER

PORT, CONTROLLER_PORT, SECURED_PORT = 9092, 9093, 9094
SOURCE, TARGET = f"{EDGE_ADDRESS}:{PORT}", f"{CENTER_ADDRESS}:{PORT}"
SECURED_TARGET = f"{CENTER_ADDRESS}:{SECURED_PORT}"
BACKLOG_RECORDS = {("a", 4): 3_000_000, ("b", 4): 250_000, ("c", 4): 200_000}
BACKLOG_RECORDS |= {("a", 1): 1_000_000, ("b", 1): 300_000, ("c", 1): 60_000}
EDGE = {"edge.network.trusted": "true"}
LISTENERS = f"CLIENT://{TARGET},SECURED://{SECURED_TARGET},CONTROLLER://127.0.0.1:{CONTROLLER_PORT}"
KAFKA = {
    "listeners": LISTENERS,
    "advertised.listeners": LISTENERS,
    "controller.quorum.bootstrap.servers": f"127.0.0.1:{CONTROLLER_PORT}",
    "sasl.enabled.mechanisms": "SCRAM-SHA-512",
    "listener.name.secured.scram-sha-512.sasl.jaas.config": SCRAM_MODULE,
    "ssl.keystore.type": "PEM",
}


class Lab:
    """Both hosts with their brokers; `program` is the edge-mirror that is measured, `settings` keys of its file."""

    def __init__(
        self,
        directory: Path,
        program: Path,
        settings: Mapping[str, object],
        say: Callable[[str], None],
        scale: float = 1,
    ) -> None:
        """`scale` is a factor on backlogs."""
        self._directory, self._program, self._settings = directory, program, settings
        self._say, self._scale = say, scale
        self.hosts = LinkedHosts(directory / "hosts")
        self._link: Link | None = None
        self._filled: set[str] = set()
        self._stack = ExitStack()
        self._lives = 0
        self._entry: dict[str, str] = {}

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.enter_context(self.hosts)
            edge = EdgeBroker(self._directory, address=EDGE_ADDRESS, port=PORT, settings=EDGE)
            authority = Authority(self._directory / "ca")
            store = authority.store("kafka", f"IP:{CENTER_ADDRESS}")
            self._entry = entry(authority)
            kafka = ApacheKafka(
                self._directory,
                port=PORT,
                java_options=(),
                settings={**KAFKA, "ssl.keystore.location": str(store)},
                listeners={"SECURED": "SASL_SSL"},
                scram={USER: PASSWORD},
            )
            for host, broker in ((self.hosts.edge, edge), (self.hosts.center, kafka)):
                broker.command = [*host.inside, *broker.command]
                stack.callback(broker.kill)
                broker.start()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def use(self, link: Link) -> None:
        """Have this link between the two, from now on."""
        if link != self._link:
            self.hosts.use(link)
            self._link = link

    def backlog(self, data: str, partitions: int) -> str:
        """The source's topic that is full of such data."""
        topic = f"{data}{partitions}"
        if topic not in self._filled:
            records = self.records(topic)
            self._say(f"filling {topic} with {records:,} records")
            self.hosts.edge.call(create_topic, SOURCE, topic, partitions)
            self.hosts.edge.call(ends.fill, SOURCE, topic, data, records, partitions)
            self._filled.add(topic)
        return topic

    def records(self, topic: str) -> int:
        """How many records a backlog has."""
        return int(BACKLOG_RECORDS[topic[0], int(topic[1:])] * self._scale)

    def new_topic(self, name: str, partitions: int) -> str:
        """Make a topic at the source that was never there, and return how it is called."""
        topic = f"{name}-{time.monotonic_ns():x}"
        self.hosts.edge.call(create_topic, SOURCE, topic, partitions)
        return topic

    def host_of(self, cell: Cell) -> Host:
        """Where the mirror stands."""
        return self.hosts.center if cell.is_pull else self.hosts.edge

    def way(self, cell: Cell, side: str, *topics: str) -> Way:
        """A way that was never gone."""
        self._lives += 1
        name = re.sub("[^a-z0-9]", "", f"{side}{cell.name}".lower()) + f"x{self._lives}"
        return Way(name, SOURCE, SECURED_TARGET if cell.is_secured else TARGET, topics)

    @contextmanager
    def running(self, cell: Cell, side: str, way: Way) -> Iterator[EdgeMirror | MirrorMaker]:
        """The mirror of a side, just begun; it is killed at the end, and what it made at the target deleted."""
        settings = {**self._settings, **(self._entry if cell.is_secured else {})}
        if cell.is_metered:
            settings["metered"] = True
        made = subject(side, self.host_of(cell), self._directory / "mirrors", way, self._program, settings)
        made.spawn()
        try:
            yield made
        finally:
            made.kill()
            self.hosts.center.call(ends.delete, TARGET, [way.at_target(topic) for topic in way.topics])

    def target_ends(self, way: Way, topic: str, partitions: int) -> Callable[[], int]:
        """How many offsets a topic has at the target, whenever it is called."""
        found = self.hosts.center.call(ends.Ends, TARGET, way.at_target(topic), partitions)
        return lambda: self.hosts.center.call(found.total)


def entry(authority: Authority) -> dict[str, str]:
    """The mirror's keys for SECURED_TARGET."""
    password = authority.directory / "password"
    password.touch(0o600)
    password.write_text(PASSWORD)
    return {
        "target_security_protocol": "SASL_SSL",
        "target_ssl_ca_file": str(authority.certificate),
        "target_sasl_username": USER,
        "target_sasl_password_file": str(password),
    }


def until(condition: Callable[[], bool], seconds: float, each_s: float = 0.05) -> bool:
    """Whether a condition came true within so many seconds, which are measured ones: nothing stretches them."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() >= end:
            return False
        time.sleep(each_s)
    return True
