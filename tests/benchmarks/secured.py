"""`make bench-secured`: the edge broker and Apache Kafka 4.3.1 with TLS, log-ins and rights, in one run, as ratios.

Both have the same certificate (ECDSA P-256), the same listeners, users and ACLs, and StandardAuthorizer.

| measured | how |
|---|---|
| rates, handshakes, an honest client beside them | both run all the time, a load goes to one, then to the other |
| memory | fresh brokers, one after the other |
| rates without TLS and log-ins (`open`) | as the rates |
| the least that TLS can cost (`floor`) | processes that do nothing else (secured_floor.py) |
| single steps of the edge broker | in this process (secured_steps.py) |

With --root DIR (as root) both brokers, and the processes of `floor`, run a second time on the Python, OpenSSL and Java
of the Debian root there, beside the ones on this machine's; clients stay the same. With --link RATE (as root) brokers
and clients are in a network whose loopback carries packets of 1,500 bytes at that rate, as a board's cable does.

Every other pair is in reverse; the first pair of loads warms the JVM up and does not count.
Shown are medians of pairs. CPU is that of the broker's process alone, so that a load generator on the same cores does
not count. Lives here: what is measured, the table, the JSON. Must never come in: levels that fail.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from tests.benchmarks import clients, librdkafka, shaped_loopback
from tests.benchmarks.broker import ROOT, SETTLE_S, cpu_s, install_wheel, rss_mb
from tests.benchmarks.debian import JAVA, DebianRoot
from tests.benchmarks.disk import percentile
from tests.benchmarks.figures import Figures, medians, table
from tests.benchmarks.secured_clients import Crowd, Door, Flood, flooding, honest
from tests.benchmarks.secured_floor import floors
from tests.benchmarks.secured_steps import steps
from tests.support import runtimes
from tests.support.certificates import Authority
from tests.support.entries import Entry, write_properties
from tests.support.kafka_reading import create_topic
from tests.support.processes import ApacheKafka, EdgeBroker
from tests.support.secured_kafka import PASSWORD, USER, SecuredKafka
from tests.support.secured_like_kafka import SecuredLikeKafka
from tests.support.waiting import CALL_S

RESULTS = ROOT / "bench-results" / "secured.json"
EDGE, KAFKA = "edge-broker", "Kafka, stock"
THERE = ", in the root"
NAMES = "DNS:localhost,IP:127.0.0.1"
RIGHTS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",  # the listener without a log-in, which this benchmark itself uses
}
HEAP = "1g"
STOCK = ("-Xms1g", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35")
CROWD = 500
FLOOD_S, HONEST_S, HONEST_EACH_S, FLOOD_PER_S = 4.0, 10.0, 0.01, 200.0
PRODUCER = {"acks": "1", "linger.ms": "5", "batch.size": "65536"}


class Rate(NamedTuple):
    """A producer's load, and the fetch of what it wrote where that is measured."""

    name: str
    size: int
    records: int
    fetched: bool = False


RATES = (Rate("100 B", 100, 2_000_000), Rate("1 KB", 1000, 600_000, fetched=True))


class Site(NamedTuple):
    """A broker with every listener of secured_kafka.LISTENERS, and how to get in."""

    broker: EdgeBroker | ApacheKafka
    bootstrap: str
    ports: dict[str, int]
    authority: Authority

    def door(self, listener: str, mechanism: str = "") -> Door:
        """A way in; a certificate is shown where the listener wants one."""
        door = Door(self.ports[listener], str(self.authority.certificate))
        if listener == "MUTUAL":
            folder = self.authority.directory
            door = door._replace(certificate=str(folder / "client.pem"), key=str(folder / "client.key"))
        return door._replace(mechanism=mechanism, user=USER, password=PASSWORD) if mechanism else door

    @property
    def at(self) -> str:
        """HOST:PORT of the listener with TLS and log-ins."""
        return f"localhost:{self.ports['BOTH']}"

    @property
    def directory(self) -> Path:
        """Where clients may leave files."""
        return self.broker.directory

    @property
    def entry(self) -> Entry:
        """How USER gets in there by SCRAM-SHA-512."""
        return Entry("SASL_SSL", "SCRAM-SHA-512", USER, PASSWORD, self.authority.certificate)

    def java(self) -> Path | None:
        """A file that lets Java's client in by TLS and SCRAM-SHA-512."""
        return write_properties(self.directory / "client.properties", self.entry.java())

    def librdkafka(self) -> dict[str, str]:
        """The same for librdkafka."""
        return {"bootstrap.servers": self.at, **self.entry.librdkafka()}


class OpenSite(Site):
    """The same, entered without TLS and without a log-in."""

    @property
    def at(self) -> str:
        """HOST:PORT of that listener."""
        return self.bootstrap

    def java(self) -> Path | None:
        """Nothing more is needed."""
        return None

    def librdkafka(self) -> dict[str, str]:
        """The same for librdkafka."""
        return {"bootstrap.servers": self.at}


def edge(python: Path, directory: Path, authority: Authority, root: DebianRoot | None = None) -> Site:
    """The edge broker of an environment that pip made, with the same listeners as Apache Kafka."""
    directory.mkdir(parents=True, exist_ok=True)
    broker = SecuredLikeKafka(directory, authority, settings=RIGHTS)
    broker.command[0] = str(python.with_name("edge-broker"))
    if root is not None:
        broker.command = root.command(*broker.command)
    return Site(broker, broker.bootstrap, broker.ports, authority)


def kafka(directory: Path, authority: Authority, root: DebianRoot | None = None) -> Site:
    """Apache Kafka with its stock heap and options."""
    broker = SecuredKafka(directory, authority, settings=RIGHTS, heap=HEAP, java_options=STOCK)
    if root is not None:
        broker.command = root.command(JAVA, *broker.command[1:])
    return Site(broker, broker.bootstrap, broker.ports, authority)


def allow(site: Site) -> None:
    """Let USER do anything with this benchmark's topics and with groups."""
    admin = AdminClient({"bootstrap.servers": site.bootstrap})
    whose = f"User:{USER}", "*", AclOperation.ALL, AclPermissionType.ALLOW
    topics = AclBinding(ResourceType.TOPIC, "bench", ResourcePatternType.PREFIXED, *whose)
    groups = AclBinding(ResourceType.GROUP, "*", ResourcePatternType.LITERAL, *whose)
    for done in admin.create_acls([topics, groups], request_timeout=CALL_S).values():
        done.result(CALL_S)


def measure_rates(site: Site, topic: str, scale: float) -> Figures:
    """Produce with acks=1, and fetch, over TLS and logged in by SCRAM-SHA-512, with both clients."""
    figures: Figures = {}
    admin = AdminClient({"bootstrap.servers": site.bootstrap})
    for client, (produce, consume) in CLIENTS.items():
        for number, rate in enumerate(RATES):
            name, records = f"{topic}-{client}-{number}", int(rate.records * scale)
            create_topic(site.bootstrap, name)
            figures[f"produce {rate.name}, {client}"] = _with_cpu(site, records, produce, name, rate.size)
            if rate.fetched:
                figures[f"fetch {rate.name}, {client}"] = _with_cpu(site, records, consume, name, rate.size)
            admin.delete_topics([name])[name].result(CALL_S)
    return figures


def measure_open(site: Site, topic: str, scale: float) -> Figures:
    """The same without TLS and log-ins."""
    return {f"{name}, no TLS": found for name, found in measure_rates(OpenSite(*site), topic, scale).items()}


Work = Callable[[Site, str, int, int], dict[str, float]]


def _with_cpu(site: Site, records: int, work: Work, topic: str, size: int) -> dict[str, float]:
    before = cpu_s(site.broker)
    figures = work(site, topic, records, size)
    return {
        "records_per_s": figures["records_per_s"],
        "broker_cpu_us_per_record": (cpu_s(site.broker) - before) / records * 1e6,
    }


def _librdkafka_produces(site: Site, topic: str, records: int, size: int) -> dict[str, float]:
    return librdkafka.run(librdkafka.Task("produce", {**site.librdkafka(), **PRODUCER}, topic, records, size))


def _librdkafka_consumes(site: Site, topic: str, records: int, size: int) -> dict[str, float]:
    return librdkafka.run(librdkafka.Task("consume", site.librdkafka(), topic, records, size))


def _java_produces(site: Site, topic: str, records: int, size: int) -> dict[str, float]:
    properties = [f"{key}={value}" for key, value in PRODUCER.items()]
    return clients.produce(site.at, topic, records, size, properties, site.directory, site.java())


def _java_consumes(site: Site, topic: str, records: int, _size: int) -> dict[str, float]:
    return clients.consume(site.at, topic, records, site.directory, site.java())


CLIENTS = {"Java": (_java_produces, _java_consumes), "librdkafka": (_librdkafka_produces, _librdkafka_consumes)}


DOORS = {
    "full handshakes, TLS 1.3": ("TLS", ""),
    "the same, client certificates": ("MUTUAL", ""),
    "the same, log-in by SCRAM-SHA-512": ("BOTH", "SCRAM-SHA-512"),
    "the same, log-in by PLAIN": ("BOTH", "PLAIN"),
}


def measure_handshakes(site: Site, _topic: str, scale: float) -> Figures:
    """Connections that come in, ask for ApiVersions and go."""
    figures: Figures = {}
    for name, (listener, mechanism) in DOORS.items():
        before = cpu_s(site.broker)
        with flooding(site.door(listener, mechanism), Flood(FLOOD_S * scale)) as one:
            one.begin()
            found = one.result()
        used = cpu_s(site.broker) - before
        figures[name] = {"per_s_and_core": found.entered / used, "per_s": found.entered / found.seconds}
    return figures


def measure_honest(site: Site, topic: str, scale: float) -> Figures:
    """An honest client alone, then beside FLOOD_PER_S handshakes a second."""
    seconds = HONEST_S * scale
    create_topic(site.bootstrap, topic)
    door = site.door("BOTH", "SCRAM-SHA-512")
    floor = percentile(honest(door, topic, seconds, HONEST_EACH_S), 99)
    with flooding(site.door("TLS"), Flood(seconds + 1, FLOOD_PER_S)) as one:
        one.begin()
        beside = percentile(honest(door, topic, seconds, HONEST_EACH_S), 99)
        found = one.result()
    figures = {"floor_p99_ms": floor, "p99_ms": beside, "above_floor_ms": beside - floor}
    return {
        f"an honest client beside {FLOOD_PER_S:g} handshakes/s": figures
        | {"handshakes_per_s": found.entered / found.seconds}
    }


def measure_memory(site: Site, scale: float) -> Figures:
    """RSS of a fresh broker without clients, with CROWD idle ones, and once each of them has moved its bytes."""
    create_topic(site.bootstrap, "bench-memory")
    door, clients = site.door("BOTH", "SCRAM-SHA-512"), int(CROWD * scale)
    found = {"no clients": rss_mb(site.broker)}
    with ExitStack() as stack:
        crowd = Crowd(door, clients, stack)
        time.sleep(SETTLE_S)  # what is free goes back to the system each 10 s
        found[f"{clients} idle TLS connections"] = rss_mb(site.broker)
        crowd.move("bench-memory")
        found["each has moved 1 MB both ways"] = rss_mb(site.broker)
        time.sleep(2 * SETTLE_S)
        found["the same, 16 s later"] = rss_mb(site.broker)
    return {f"RSS, {what}": {"rss_mb": value} for what, value in found.items()}


Measure = Callable[[Site, str, float], Figures]
PAIRED: dict[str, Measure] = {
    "rates": measure_rates,
    "open": measure_open,
    "handshakes": measure_handshakes,
    "honest": measure_honest,
}


ONCE = ("memory", "floor", "steps")


def report(what: str) -> None:
    """Say how far the run is."""
    print(what, file=sys.stderr, flush=True)


def main() -> int:
    """Run the comparison; 0 when every row was measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=3, help="pairs whose median is shown, behind one that is dropped")
    parser.add_argument("--scale", type=float, default=1.0, help="factor on records, seconds and clients")
    parser.add_argument("--only", default=",".join((*PAIRED, *ONCE)), help="what to measure, with commas")
    parser.add_argument(
        "--root", type=Path, help="a Debian root, as `lab.sh root trixie` of ansible/molecule/lab prints it"
    )
    parser.add_argument("--link", default="", help="a rate in tc's units, such as 100mbit; best with --scale 0.1")
    options = parser.parse_args()
    only = options.only.split(",")
    with tempfile.TemporaryDirectory(prefix="drupelet-bench-", dir=ROOT) as name:
        directory = Path(name)
        authority = Authority(directory / "ca")
        authority.sign("client", NAMES)
        python = install_wheel(directory / "here")
        sites: dict[str, Make] = {
            EDGE: lambda place: edge(python, place, authority),
            KAFKA: lambda place: kafka(place, authority),
        }
        pythons = {"": [sys.executable]}
        if options.root is not None:
            root = DebianRoot(options.root, (ROOT, runtimes.kafka_jars()))
            wheel = next((directory / "here" / "wheels").glob("drupelet-*.whl"))
            there = root.install(wheel, directory / "there", ["psutil"])
            report(root.says(there))
            sites = {
                EDGE + THERE: lambda place: edge(there, place, authority, root),
                **sites,
                KAFKA + THERE: lambda place: kafka(place, authority, root),
            }
            pythons[THERE] = root.command("env", f"PYTHONPATH={ROOT}", there)
        if options.link:
            shaped_loopback.enter(options.link)
        rounds = measure_pairs(sites, directory, options.pairs, options.scale, only)
        if "memory" in only:
            for number in range(options.pairs):
                for who, make in list(sites.items())[:: -1 if number % 2 else 1]:
                    report(f"memory {number + 1}/{options.pairs}  {who}")
                    with tempfile.TemporaryDirectory(dir=directory) as place:
                        site = make(Path(place))
                        with site.broker:
                            allow(site)
                            time.sleep(SETTLE_S)
                            rounds[who][number] |= measure_memory(site, options.scale)
        found_floors = floors(authority, options.scale, pythons) if "floor" in only else {}
    results = {who: medians(found) for who, found in rounds.items()}
    found_steps = steps() if "steps" in only else {}
    RESULTS.parent.mkdir(exist_ok=True)
    told = {"pairs": options.pairs, "scale": options.scale, "link": options.link, "medians": results, "all": rounds}
    told |= {"floors": found_floors, "steps": found_steps}
    RESULTS.write_text(json.dumps(told, indent=1))
    print(table(results))
    for title, rows in (("the least CPU for a record", found_floors), ("one step of the edge broker", found_steps)):
        print(f"\n| {title} | us |\n|---|---:|")
        for row, took in rows.items():
            print(f"| {row} | {took:,.3g} |")
    print(f"\nJSON: {RESULTS.relative_to(ROOT)}")
    return 0


Make = Callable[[Path], Site]


def measure_pairs(
    sites: dict[str, Make], directory: Path, pairs: int, scale: float, only: list[str]
) -> dict[str, list[Figures]]:
    """What both brokers are measured by in turn."""
    rounds: dict[str, list[Figures]] = {who: [{} for _ in range(pairs)] for who in sites}
    if not set(only) & set(PAIRED):
        return rounds
    with ExitStack() as stack:
        made = {who: make(directory / f"pairs-{number}") for number, (who, make) in enumerate(sites.items())}
        for site in made.values():
            stack.enter_context(site.broker)
            allow(site)
        time.sleep(SETTLE_S)
        for number in range(-1, pairs):
            for what in (one for one in PAIRED if one in only):
                for who, site in list(made.items())[:: -1 if number % 2 else 1]:
                    report(f"{what} {number + 1}/{pairs}  {who}")
                    found = PAIRED[what](site, f"bench-{what}-{number + 1}", scale)
                    if number >= 0:
                        rounds[who][number] |= found
    return rounds


if __name__ == "__main__":
    sys.exit(main())
