"""`make bench-cluster`: three edge brokers beside three of Apache Kafka, 4.3.1 with KRaft and 3.9.2 on ZooKeeper.

All on this machine, factor 3, min.insync.replicas 2, sessions of 6 s, one cluster after the other, in rounds, every
other one in reverse; every figure is the median of its rounds. Three brokers, the ensemble and the clients share the
cores: rates say little by themselves, ratios more.

| measured | how |
|---|---|
| produce, acks=all | Java's producer over 12 partitions; ours is answered when it is synced on two disks at least |
| the same, flush.messages=1 | a topic that has Apache Kafka sync each batch, too; ours is the same row as above |
| CPU of a record | the three brokers together; ZooKeeper's apart |
| idle | 300 partitions more, each broker leads 100 and follows 200: CPU of a broker, RSS |
| leader killed | kill -9 of a broker, each of 20 partitions that it leads gets 10 records a second: the longest pause |
| controlled | the same with SIGTERM |
| catching up | a broker is away for 300 MB; how fast it writes them from its first tenth to its last |
| a card that stalls | edge broker alone: the syncs of one of three take 2 s each (FUSE; root) |

Lives here: what is measured, the table, the JSON. Must never come in: levels that fail; benchmarks show, they do not
judge.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka import ElectionType, TopicPartition

from tests.benchmarks import clients
from tests.benchmarks.broker import ROOT, STOCK, Part, cpu_s, install_wheel, rss_mb
from tests.benchmarks.disk import percentile
from tests.benchmarks.figures import Figures, Rounds, table
from tests.benchmarks.pauses import Pauses
from tests.fault.disk import FuseDisk
from tests.support.apache_cluster import kraft_cluster, zookeeper_cluster
from tests.support.board_cluster import BoardCluster
from tests.support.broker_cluster import BrokerCluster
from tests.support.processes import EdgeBroker, Process
from tests.support.waiting import wait_until
from tests.support.zookeeper import ZooKeeperEnsemble

RESULTS = ROOT / "bench-results" / "cluster.json"
EDGE, KRAFT, ON_ZOOKEEPER = "edge-broker", "Kafka 4.3", "Kafka 3.9"
SESSION_MS = 6_000
ZOOKEEPER_TICK_MS = 500  # ZooKeeper ends sessions by ticks: its 2 s would come on top of any timeout
COMMON: dict[str, str | int] = {"default.replication.factor": 3, "min.insync.replicas": 2}
PARTITIONS, MANY = 12, 300
ASKED, EACH_PER_S = 20, 10
SETTLE_S, IDLE_S = 10, 20
AWAY_BYTES, AWAY_RECORD = 300_000_000, 10_000
STALL_S, STALLS_S = 2.0, 20.0
ASK_AGAIN_S, EVENLY_S = 10.0, 240


class Side(NamedTuple):
    """A cluster that runs, and what it needs beside its brokers."""

    brokers: BrokerCluster[Any]
    ensemble: list[Process]

    def cpu_s(self) -> float:
        """CPU seconds of all its brokers."""
        return sum(map(cpu_s, self.brokers.boards))


class Load(NamedTuple):
    """One producer row."""

    name: str
    size: int
    records: int
    config: dict[str, str]


LOADS = (
    Load("produce 1 KB, acks=all", 1000, 200_000, {}),
    Load("produce 100 B, acks=all", 100, 1_000_000, {}),
    Load("produce 1 KB, acks=all, flush.messages=1", 1000, 60_000, {"flush_messages": "1"}),
)


@contextmanager
def edge(directory: Path, python: Path | None = None) -> Iterator[Side]:
    """Three edge brokers, of an environment with the wheel, and their ensemble."""
    with ZooKeeperEnsemble(directory, tick_ms=ZOOKEEPER_TICK_MS) as ensemble:
        settings: dict[str, str | int] = {
            **COMMON,
            "zookeeper.session.timeout.ms": SESSION_MS,
            "replica.lag.time.max.ms": 30_000,
        }
        boards = BoardCluster(directory, ensemble, settings=settings)
        for board in boards.boards:
            if python is not None:
                board.command[0] = str(python.with_name("edge-broker"))
        with boards:
            yield Side(boards, list(ensemble.servers))


@contextmanager
def kraft(directory: Path) -> Iterator[Side]:
    """Three nodes of Apache Kafka 4.3.1, stock heap and options."""
    settings = {**COMMON, "broker.session.timeout.ms": SESSION_MS}
    with kraft_cluster(directory, settings=settings, java_options=("-Xmx1g", *STOCK)) as brokers:
        yield Side(brokers, [])


@contextmanager
def on_zookeeper(directory: Path) -> Iterator[Side]:
    """Three brokers of Apache Kafka 3.9.2 and their ensemble, stock heap and options."""
    settings = {**COMMON, "zookeeper.session.timeout.ms": SESSION_MS}
    with (
        ZooKeeperEnsemble(directory, tick_ms=ZOOKEEPER_TICK_MS) as ensemble,
        zookeeper_cluster(directory, ensemble, settings=settings, java_options=("-Xmx1g", *STOCK)) as brokers,
    ):
        yield Side(brokers, list(ensemble.servers))


def measure_idle(side: Side) -> Figures:
    """CPU of a broker that has MANY partitions and nothing to do, and memory."""
    side.brokers.make_topic("many", MANY)
    time.sleep(SETTLE_S)  # what is measured is idleness itself
    before, begin = side.cpu_s(), time.perf_counter()
    ensemble_before = sum(map(cpu_s, side.ensemble))
    time.sleep(IDLE_S)
    took = time.perf_counter() - begin
    figures = {
        "cpu_percent_of_a_broker": (side.cpu_s() - before) / took / len(side.brokers.boards) * 100,
        "rss_mb_of_a_broker": max(map(rss_mb, side.brokers.boards)),
    }
    if side.ensemble:
        spent = sum(map(cpu_s, side.ensemble)) - ensemble_before
        figures["cpu_percent_of_a_zookeeper"] = spent / took / len(side.ensemble) * 100
        figures["rss_mb_of_a_zookeeper"] = max(map(rss_mb, side.ensemble))
    return {f"idle, {MANY} partitions": figures}


def measure_load(side: Side, number: int, directory: Path, scale: float) -> Figures:
    """One of the loads, on a topic of its own."""
    load = LOADS[number]
    topic = side.brokers.make_topic(f"load-{number}", PARTITIONS, **load.config)
    records = int(load.records * scale)
    before = side.cpu_s()
    properties = ("acks=all", "batch.size=65536", "linger.ms=5")
    found = clients.produce(side.brokers.bootstrap, topic, records, load.size, properties, directory)
    found["brokers_cpu_us_per_record"] = (side.cpu_s() - before) / records * 1e6
    return {load.name: found}


def measure_memory(side: Side) -> Figures:
    """What the loads leave."""
    as_they_end = max(map(rss_mb, side.brokers.boards))
    time.sleep(SETTLE_S)  # the heap's free pages are given back now and then
    after = max(map(rss_mb, side.brokers.boards))
    return {"after the loads": {"rss_mb_of_a_broker": after, "rss_mb_as_they_end": as_they_end}}


ENDS: dict[str, tuple[int, Callable[[Process], None]]] = {
    "controlled shutdown": (1, lambda broker: broker.stop(120)),
    f"a leader killed, sessions of {SESSION_MS / 1000:g} s": (2, lambda broker: broker.kill()),
}
"""How a broker of this number goes, by row."""


def measure_pause(side: Side, row: str) -> Figures:
    """What producers wait while a broker is killed, or stopped in peace."""
    number, end = ENDS[row]
    wait_led_evenly(side.brokers)
    broker = side.brokers.board(number)
    led = [n for n, found in side.brokers.partitions("many").items() if found.leader == number]
    with Pauses(side.brokers.bootstrap, "many", led[:: max(1, len(led) // ASKED)], EACH_PER_S) as pauses:
        pauses.wait_answers(3 * EACH_PER_S)
        floor = max(pauses.longest_ms.values())
        pauses.begin()
        end(broker)
        pauses.wait_answers()
    waited = sorted(pauses.longest_ms.values())
    broker.start()
    side.brokers.wait_in_sync("many")
    return {
        row: {
            "partitions_led": len(led),
            "median_ms": statistics.median(waited),
            "p99_ms": percentile(waited, 99),
            "longest_ms": waited[-1],
            "longest_before_ms": floor,
        }
    }


def wait_led_evenly(brokers: BrokerCluster[Any]) -> None:
    """Wait until each broker leads its share: a cluster gives the lead back once in a while; this asks for it.

    It asks again now and then: a controller that does not know yet that a broker is back refuses some.
    """
    brokers.wait_in_sync("many")
    asked = [TopicPartition("many", number) for number in range(MANY)]
    due_s = time.monotonic()

    def evenly() -> bool:
        nonlocal due_s
        led = [each.leader for each in brokers.partitions("many").values()]
        if all(led.count(number) == MANY // 3 for number in (1, 2, 3)):
            return True
        if time.monotonic() >= due_s:
            brokers.admin.elect_leaders(ElectionType.PREFERRED, asked).result(60)
            due_s = time.monotonic() + ASK_AGAIN_S
        return False

    wait_until(evenly, EVENLY_S, "each broker leads its share")


def measure_catching_up(side: Side, directory: Path) -> Figures:
    """A broker is away while much is written; how fast it writes the middle of that once it is back."""
    topic = side.brokers.make_topic("away", PARTITIONS)
    broker = side.brokers.board(3)
    broker.stop(120)
    records = AWAY_BYTES // AWAY_RECORD
    properties = ("acks=all", "batch.size=262144", "linger.ms=5")
    clients.produce(side.brokers.bootstrap, topic, records, AWAY_RECORD, properties, directory)

    def has(part: float) -> bool:
        logs = broker.data_dir.glob(f"{topic}-*/*.log")
        return sum(path.stat().st_size for path in logs) >= AWAY_BYTES * part

    broker.start()
    wait_until(lambda: has(0.1), 120, "a tenth of it is there")
    begin = time.perf_counter()
    wait_until(lambda: has(0.9), 120, "nine tenths of it are there")
    took = time.perf_counter() - begin
    side.brokers.wait_in_sync(topic)
    return {"catching up": {"mb_per_s": AWAY_BYTES / 1e6 * 0.8 / took}}


def measure_disk(directory: Path) -> float:
    """What the disk takes in order, synced once a MiB, MB/s."""
    block = os.urandom(1 << 20)
    path = directory / "disk"
    begin = time.perf_counter()
    with path.open("wb", buffering=0) as file:
        for _ in range(AWAY_BYTES >> 20):
            file.write(block)
            os.fdatasync(file.fileno())
    took = time.perf_counter() - begin
    path.unlink()
    return AWAY_BYTES / 1e6 / took


def measure_side(make: Callable[[Path], Any], directory: Path, scale: float, figures: Figures, part: Part) -> None:
    """All of a cluster, part by part, into `figures`."""
    with part("start"), make(directory) as side:
        with part("idle"):
            figures |= measure_idle(side)
        for number, load in enumerate(LOADS):
            with part(load.name):
                figures |= measure_load(side, number, directory, scale)
        with part("memory"):
            figures |= measure_memory(side)
        for row in ENDS:
            with part(row):
                figures |= measure_pause(side, row)
        with part("catching up"):
            figures |= measure_catching_up(side, directory)


def measure_stalls(directory: Path, report: Callable[[str], None]) -> Figures:
    """Three edge brokers of which one has a card whose syncs take STALL_S; what acks=all waits, and for how long."""
    report(f"a card that stalls for {STALL_S:g} s")
    with ZooKeeperEnsemble(directory, tick_ms=ZOOKEEPER_TICK_MS) as ensemble, FuseDisk(directory) as disk:
        boards = BoardCluster(directory, ensemble, settings={**COMMON, "zookeeper.session.timeout.ms": SESSION_MS})
        last: EdgeBroker = boards.boards[-1]
        at = last.command.index("--data-dir") + 1
        last.command[at] = str(disk.mountpoint / "data")
        with boards:
            topic = boards.make_topic("stalled", PARTITIONS)
            with Pauses(boards.bootstrap, topic, range(PARTITIONS), 20) as pauses:
                end = time.perf_counter() + STALLS_S
                while time.perf_counter() < end:
                    disk.hang(["datasync"])
                    time.sleep(STALL_S)
                    disk.release()
                    time.sleep(0.1)
                in_sync = [len(each.isrs) for each in boards.partitions(topic).values()]
                pauses.wait_answers()
            waited = sorted(pauses.longest_ms.values())
    return {
        f"one card's syncs take {STALL_S:g} s": {
            "longest_pause_median_ms": statistics.median(waited),
            "longest_pause_ms": waited[-1],
            "partitions_with_all_in_sync": sum(each == len(boards.boards) for each in in_sync),
        }
    }


def catch_up_alone(directory: Path) -> int:
    """The row `catching up` of the edge brokers, of the network that this process is in."""
    with edge(directory) as side:
        found = measure_catching_up(side, directory)["catching up"]
        print(json.dumps({**found, "disk_mb_per_s": measure_disk(directory)}))
    return 0


def catch_up_over(link: str) -> int:
    """The same in a network namespace whose loopback carries so much, in tc's words; root."""
    shaped = 'ip link set lo up && tc qdisc add dev lo root tbf rate "$0" burst 256kb latency 50ms && exec "$@"'
    again = [sys.executable, "-m", "tests.benchmarks.cluster", "--catching-up"]
    return subprocess.run(["unshare", "--net", "--", "sh", "-c", shaped, link, *again], check=False).returncode


SIDES: dict[str, Callable[[Path], Any]] = {EDGE: edge, KRAFT: kraft, ON_ZOOKEEPER: on_zookeeper}


def main() -> int:
    """Run the comparison; 0 when every row was measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="rounds whose median is shown")
    parser.add_argument("--scale", type=float, default=1.0, help="factor on the number of records")
    parser.add_argument("--side", action="append", choices=list(SIDES), help="that one alone; may be repeated")
    parser.add_argument("--catching-up", action="store_true", help="that row alone, of this checkout and its disk")
    parser.add_argument("--link", metavar="RATE", help="the same by a link of so much, as tc has it: 1gbit; needs root")
    options = parser.parse_args()
    if options.link:
        return catch_up_over(options.link)
    names = options.side or list(SIDES)
    with tempfile.TemporaryDirectory(prefix="drupelet-bench-", dir=ROOT) as name:
        directory = Path(name)
        if options.catching_up:
            return catch_up_alone(directory)
        python = install_wheel(directory / "here", extra="[cluster]")
        sides = {**SIDES, EDGE: lambda place: edge(place, python)}
        rounds = Rounds(names)
        disk = []
        for number in range(options.rounds):
            for each in names[:: -1 if number % 2 else 1]:
                with tempfile.TemporaryDirectory(dir=directory) as place:

                    def part(what: str, each: str = each, number: int = number) -> AbstractContextManager[None]:
                        head = f"round {number + 1}/{options.rounds}  {each:12}"
                        print(head, what, file=sys.stderr, flush=True)
                        return rounds.part(each, what)

                    disk.append(measure_disk(Path(place)))
                    figures = rounds.begin(each)
                    measure_side(sides[each], Path(place), options.scale, figures, part)
                    print(json.dumps(figures), file=sys.stderr, flush=True)  # should the whole run be ended
        results = rounds.medians()
        stalls = None
        if EDGE in names and os.geteuid() == 0:
            with tempfile.TemporaryDirectory(dir=directory) as place, rounds.part(EDGE, "a card that stalls"):
                stalls = measure_stalls(Path(place), lambda what: print(what, file=sys.stderr, flush=True))
    found = {"rounds": options.rounds, "scale": options.scale, "medians": results, "all": rounds.by_name}
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps({**found, "disk_mb_per_s": disk, "stalls": stalls}, indent=1))
    print(table(results))
    print(f"\nThe disk takes {statistics.median(disk):.0f} MB/s, synced once a MiB.")
    for row, figures in (stalls or {}).items():
        print(f"{row}: " + ", ".join(f"{figure} {value:,.0f}" for figure, value in figures.items()))
    print(f"\nJSON: {RESULTS.relative_to(ROOT)}")
    return rounds.finish()


if __name__ == "__main__":
    sys.exit(main())
