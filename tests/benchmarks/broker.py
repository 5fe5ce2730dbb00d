"""`make bench`: the edge broker and Apache Kafka 4.3.1 in turn, on this machine, in one run, as ratios.

Three rivals take turns for several rounds, every other one in reverse, as whoever comes later finds another disk; every
figure is the median of its rounds. The edge broker runs from a wheel that pip installed, as on a board. Apache Kafka
runs with its stock heap and options, and tuned as small as it starts.

| row's durability | edge broker | Apache Kafka |
|---|---|---|
| page cache | acks=1: answered after the write | acks=1: the same |
| as shipped, acks=all | fdatasync before the answer | acks=all: page cache, nothing fsynced |
| synced, acks=all | fdatasync before the answer | acks=all with log.flush.interval.messages=1 |
| page cache, to a consumer | edge.durability=kernel: consumers see what is not synced | the same |

Lives here: what is measured, the table, the JSON. Must never come in: levels that fail; benchmarks show, they do not
judge.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NamedTuple

import psutil

from tests.benchmarks import clients
from tests.benchmarks.disk import latency_figures
from tests.benchmarks.figures import Figures, Rounds, table
from tests.benchmarks.load import end_to_end, wait_in_vain, woken
from tests.benchmarks.readings import unpacking_s, write_readings
from tests.support.kafka_reading import create_topic
from tests.support.processes import ApacheKafka, EdgeBroker, Process

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "bench-results" / "broker.json"
STOCK = ("-Xms1g", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35")
SMALLEST = ("-Xms96m", "-XX:+UseSerialGC", "-Xss256k", "-XX:ReservedCodeCacheSize=40m", "-XX:TieredStopAtLevel=1")
SETTLE_S = 8  # the edge broker measures its card in the first seconds of its life; the loads are about those after
FLUSH_EACH = {"log.flush.interval.messages": 1}
CONSUMERS, POLL_MS, POLLS_S = 200, 500, 10
SMALL_SETTINGS = {"log.cleaner.dedupe.buffer.size": 4_194_304, "offsets.topic.num.partitions": 1}

Broker = EdgeBroker | ApacheKafka
Part = Callable[[str], AbstractContextManager[None]]
"""Begins a part of the measurement, which may fail without the others."""


class Rival(NamedTuple):
    """A broker to measure: `make(directory, synced)` describes a fresh one."""

    name: str
    make: Callable[[Path, bool], Broker]


class Load(NamedTuple):
    """One producer row; `synced` starts Apache Kafka with an fsync per message; `size` 0 stands for JSON readings."""

    name: str
    size: int
    records: int
    properties: tuple[str, ...]
    synced: bool = False


LOADS = (
    Load("produce 100 B, acks=1, page cache", 100, 3_000_000, ("acks=1", "batch.size=65536", "linger.ms=5")),
    Load("produce 1 KB, acks=1, page cache", 1000, 600_000, ("acks=1", "batch.size=16384", "linger.ms=5")),
    Load(
        "produce 1 KB lz4, acks=1, page cache",
        1000,
        600_000,
        ("acks=1", "batch.size=65536", "linger.ms=5", "compression.type=lz4"),
    ),
    *(
        Load(
            f"produce JSON readings {codec}, acks=1, page cache",
            0,
            2_000_000,
            ("acks=1", "batch.size=65536", "linger.ms=5", f"compression.type={codec}"),
        )
        for codec in ("lz4", "zstd")
    ),
    Load(
        "produce 1 KB, acks=all, as shipped (edge: synced, Kafka: page cache)",
        1000,
        300_000,
        ("acks=all", "batch.size=65536"),
    ),
    Load("produce 1 KB, acks=all, synced on both sides", 1000, 100_000, ("acks=all", "batch.size=65536"), synced=True),
)


def edge_broker(wheel_python: Path, name: str = "edge-broker") -> Rival:
    """The edge broker of an environment into which pip installed our wheel."""

    def make(directory: Path, _synced: bool) -> Broker:
        broker = EdgeBroker(directory)
        broker.command[0] = str(wheel_python.with_name("edge-broker"))
        return broker

    return Rival(name, make)


def apache_kafka(name: str, heap: str, options: tuple[str, ...], settings: dict[str, int]) -> Rival:
    """Apache Kafka with the given heap, options and settings."""

    def make(directory: Path, synced: bool) -> Broker:
        return ApacheKafka(
            directory, heap=heap, java_options=options, settings=settings | (FLUSH_EACH if synced else {})
        )

    return Rival(name, make)


def install_wheel(directory: Path, checkout: Path = ROOT, extra: str = "") -> Path:
    """Build a checkout's wheel, install it with its dependencies into a fresh environment; that one's Python.

    `extra` is one of its extras, in brackets.
    """
    wheels = directory / "wheels"
    python = directory / "venv" / "bin" / "python"
    for command in (
        [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(wheels), str(checkout)],
        [sys.executable, "-m", "venv", str(directory / "venv")],
    ):
        subprocess.run(command, check=True)
    wheel = next(wheels.glob("drupelet-*.whl"))
    subprocess.run([str(python), "-m", "pip", "install", "-q", "--compile", f"{wheel}{extra}"], check=True)
    return python


def cpu_s(broker: Process) -> float:
    """CPU seconds that a process has used, user and system."""
    times = psutil.Process(broker.pid).cpu_times()
    return float(times.user + times.system)


def rss_mb(broker: Process) -> float:
    """Resident memory of a process in MB (10^6 bytes)."""
    return float(psutil.Process(broker.pid).memory_info().rss) / 1e6


def measure_start(rival: Rival, directory: Path) -> Figures:
    """Start a broker on an existing data directory until its first Metadata answer, then look at it idle."""
    broker = rival.make(directory / "start", False)
    broker.start()  # the first start makes the data directory, and the edge broker measures its card
    time.sleep(SETTLE_S)
    broker.stop()
    begin = time.perf_counter()
    broker.spawn()
    clients.first_metadata(broker.port)
    start_s = time.perf_counter() - begin
    with broker:
        broker.wait_ready()
        time.sleep(3)  # let the start settle; what is measured next is idleness itself
        before = cpu_s(broker)
        time.sleep(3)
        idle = (cpu_s(broker) - before) / 3 * 100
        return {"start to first Metadata": {"s": start_s}, "idle": {"rss_mb": rss_mb(broker), "cpu_percent": idle}}


def measure_loads(rival: Rival, directory: Path, scale: float, figures: Figures, part: Part) -> None:
    """Every load against one broker, the consumer and the latency test, then the synced load against a second one."""
    for synced in (False, True):
        with rival.make(directory / f"load-{synced}", synced) as broker:
            time.sleep(SETTLE_S)
            for load in (load for load in LOADS if load.synced == synced):
                with part(load.name):
                    figures[load.name] = produce(broker, load, topic_of(load), scale, directory)
            if synced:
                continue
            with part("consume 1 KB"):
                figures["consume 1 KB"] = consume(broker, topic_of(LOADS[1]), scale, directory)
            with part("end to end, one 100 B record at a time, acks=1"):
                figures["end to end, one 100 B record at a time, acks=1"] = clients.end_to_end(
                    broker.bootstrap, "latency", int(4000 * scale), "1", directory
                )
            with part("long polls"):
                figures |= measure_polls(broker, int(2000 * scale))
            figures["after load"] = {"rss_mb": rss_mb(broker)}


def measure_polls(broker: Broker, messages: int) -> Figures:
    """What a record takes to a consumer that waits, what it takes to many, and what they cost while nothing comes.

    Nobody waits for a sync, on either side.
    """
    for topic in ("one", "many"):
        create_topic(broker.bootstrap, topic, config={"edge.durability": "kernel"} if is_edge(broker) else {})
    create_topic(broker.bootstrap, "silent")
    figures: Figures = {
        "end to end, one 100 B record at a time, acks=1, page cache on both sides": latency_figures(
            end_to_end(broker.port, "one", messages, 1)
        )
    }
    before, deliveries = cpu_s(broker), messages // 20 * CONSUMERS
    figures[f"a record to {CONSUMERS} consumers that wait, acks=1, page cache on both sides"] = {
        **latency_figures(woken(broker.port, "many", messages // 20, CONSUMERS)),
        "broker_cpu_us_per_delivery": (cpu_s(broker) - before) / deliveries * 1e6,
    }
    before, begin = cpu_s(broker), time.perf_counter()
    answers = wait_in_vain(broker.port, "silent", CONSUMERS, POLL_MS, POLLS_S)
    figures[f"{CONSUMERS} consumers wait {POLL_MS} ms each, nothing comes"] = {
        "cpu_percent": (cpu_s(broker) - before) / (time.perf_counter() - begin) * 100,
        "broker_cpu_us_per_answer": (cpu_s(broker) - before) / answers * 1e6,
    }
    return figures


def is_edge(broker: Broker) -> bool:
    """True for the edge broker: it alone knows its own settings."""
    return isinstance(broker, EdgeBroker)


def produce(broker: Broker, load: Load, topic: str, scale: float, directory: Path) -> dict[str, float]:
    """Put a load on a topic: the producer's figures, and the broker's CPU for each record."""
    records = int(load.records * scale)
    content: int | Path = load.size
    if not load.size:
        content = directory / "readings.json"
        write_readings(content)
    before = cpu_s(broker)
    figures = clients.produce(broker.bootstrap, topic, records, content, load.properties, directory)
    figures["broker_cpu_us_per_record"] = (cpu_s(broker) - before) / records * 1e6
    if not load.size:  # what a broker that looks inside cannot do without
        took, _ = unpacking_s(broker.data_dir / f"{topic}-0")
        figures["codec_library_us_per_record"] = took / records * 1e6
    return figures


def consume(broker: Broker, topic: str, scale: float, directory: Path) -> dict[str, float]:
    """Read back what the load of 1 KB records has written to a topic."""
    records = int(LOADS[1].records * scale)
    before = cpu_s(broker)
    figures = clients.consume(broker.bootstrap, topic, records, directory)
    figures["broker_cpu_us_per_record"] = (cpu_s(broker) - before) / records * 1e6
    return figures


def topic_of(load: Load) -> str:
    """The topic of a load."""
    return f"bench-{LOADS.index(load)}"


def main() -> int:
    """Run the comparison; 0 when every row was measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="rounds whose median is shown")
    parser.add_argument("--scale", type=float, default=1.0, help="factor on the number of records")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="drupelet-bench-", dir=ROOT) as name:
        directory = Path(name)
        rivals = [edge_broker(install_wheel(directory / "here"))]
        rivals.append(apache_kafka("Kafka, stock", "1g", STOCK, {}))
        rivals.append(apache_kafka("Kafka, smallest", "96m", SMALLEST, SMALL_SETTINGS))
        rounds = Rounds(rival.name for rival in rivals)
        for number in range(options.rounds):
            for rival in rivals[:: -1 if number % 2 else 1]:
                with tempfile.TemporaryDirectory(dir=directory) as place:

                    def part(what: str, rival: Rival = rival, number: int = number) -> AbstractContextManager[None]:
                        head = f"round {number + 1}/{options.rounds}  {rival.name:16}"
                        print(head, what, file=sys.stderr, flush=True)
                        return rounds.part(rival.name, what)

                    figures = rounds.begin(rival.name)
                    with part("start, idle"):
                        figures |= measure_start(rival, Path(place))
                    with part("loads"):
                        measure_loads(rival, Path(place), options.scale, figures, part)
    results = rounds.medians()
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(
        json.dumps(
            {"rounds": options.rounds, "scale": options.scale, "medians": results, "all": rounds.by_name}, indent=1
        )
    )
    print(table(results))
    print(f"\nJSON: {RESULTS.relative_to(ROOT)}")
    return rounds.finish()


if __name__ == "__main__":
    sys.exit(main())
