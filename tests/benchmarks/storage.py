"""`make bench-storage`: durable produce against the disk's own limit and against Apache Kafka, in turn, as ratios.

| rival | what it does |
|---|---|
| edge-broker | acks=all: each answer after the fdatasync of the round that covers it |
| bare loop | one thread: pwrite of a round's bytes, fdatasync, again; a new file every 64 MB; nothing else |
| Apache Kafka | acks=all with log.flush.interval.messages=1: an fsync before each answer |

The bare loop takes its round size from the edge broker's own run just before: bytes written between two readings of
/metrics, divided by the sync rounds in between (a mean: the broker does not say how rounds vary). With several
partitions a round's bytes are spread over as many files as the round can have had, one fdatasync each. So the ratio
says what protocol, appends and threads cost beside the disk; it may pass 1, as the broker writes while the disk syncs.

A disk of a server takes a GB/s and syncs in 0.2 ms: there the broker's processor is the bound, not the disk. The rows
`card` are held by a control group to what an SD card does, CARD_MB_PER_S and CARD_WRITES_PER_S, broker and bare loop
alike; Kafka is left out of them, it would run for minutes.

`--before DIR` compares acks=1 rates and latencies with another checkout instead.

Lives here: what is measured, the table, the JSON. Must never come in: levels that fail; benchmarks show, they do not
judge.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.benchmarks.broker import cpu_s
from tests.benchmarks.disk import Bounds, bare, latency_figures, slow_disk
from tests.benchmarks.load import BATCH_OVERHEAD, Load, Reader, batch_of, end_to_end, spread
from tests.support.kafka_reading import create_topic
from tests.support.processes import ApacheKafka, EdgeBroker

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "bench-results"
CARD_MB_PER_S = 20.0
CARD_WRITES_PER_S = 500  # application class A1 promises as many
CARD_TIMES = 3  # a card's rounds are long, so the row is
WARM_S = 1.0
BATCH_BYTES = 16_384  # Kafka's default batch.size
IN_FLIGHT = 5  # Kafka's default max.in.flight.requests.per.connection
PROCESSES = 2
Figures = dict[str, dict[str, float]]


class Row(NamedTuple):
    """One load: `records` in each batch, 0 as many as fill 16 KiB."""

    name: str
    record_bytes: int
    producers: int
    partitions: int = 1
    records: int = 0
    in_flight: int = IN_FLIGHT
    card: bool = False

    @property
    def batch_records(self) -> int:
        """Records in each batch."""
        return self.records or max((BATCH_BYTES - BATCH_OVERHEAD) // (self.record_bytes + 8), 1)


ROWS = (
    *(
        Row(f"{text}, {producers} producer{'s' if producers > 1 else ''}, 1 partition", size, producers)
        for text, size in (("100 B", 100), ("1 KB", 1000))
        for producers in (1, 10, 200)
    ),
    Row("100 B, 200 producers, 200 partitions", 100, 200, 200),
    Row("1 KB, 200 producers, 200 partitions", 1000, 200, 200),
    Row("100 B, 200 devices: one record in flight each, 1 partition", 100, 200, 1, 1, 1),
    Row("card: 100 B, 200 producers, 1 partition", 100, 200, card=True),
    Row("card: 1 KB, 200 producers, 1 partition", 1000, 200, card=True),
    Row("card: 100 B, 200 devices: one record in flight each, 1 partition", 100, 200, 1, 1, 1, card=True),
)


class Sizes(NamedTuple):
    """How long and how much; `processes` of load."""

    seconds: float
    requests_max: int
    messages: int


def sizes(scale: float) -> Sizes:
    """The sizes of a run."""
    return Sizes(3.0 * scale, int(400_000 * scale), max(int(1000 * scale), 20))


def sample(broker: EdgeBroker | ApacheKafka) -> dict[str, float]:
    """Processor time by now; of the edge broker sync rounds and the sum of all log ends, too."""
    found = {"at_s": time.perf_counter(), "cpu_s": cpu_s(broker), "rounds": 0.0, "offsets": 0.0}
    if isinstance(broker, ApacheKafka):
        return found
    with urllib.request.urlopen(broker.metrics_url, timeout=60) as answer:
        lines = answer.read().decode().splitlines()
    for line in lines:
        if line.startswith("edge_broker_sync_rounds_total "):
            found["rounds"] = float(line.split()[-1])
        elif line.startswith("edge_broker_log_end_offset{"):
            found["offsets"] += float(line.split()[-1])
    return found


def durable(broker: EdgeBroker | ApacheKafka, row: Row, size: Sizes, topic: str) -> dict[str, float]:
    """Produce with acks=all; rates and latencies, for the edge broker its rounds too."""
    create_topic(broker.bootstrap, topic, row.partitions)
    load = load_of(broker.port, topic, row, size, acks=-1)
    batch_bytes = len(batch_of(load.records, load.record_bytes))
    samples: list[dict[str, float]] = []
    sent = spread(load, PROCESSES, lambda: samples.append(sample(broker)))
    before, after = samples
    figures = {
        "records_per_s": sent.requests * load.records / sent.seconds,
        "mb_per_s": sent.requests * batch_bytes / sent.seconds / 1e6,
        **latency_figures(sent.latencies_ms),
        "broker_cpu_cores": (after["cpu_s"] - before["cpu_s"]) / (after["at_s"] - before["at_s"]),
    }
    if isinstance(broker, EdgeBroker):
        rounds = max(after["rounds"] - before["rounds"], 1)
        figures["round_bytes"] = (after["offsets"] - before["offsets"]) / load.records * batch_bytes / rounds
        figures["batches_per_round"] = figures["round_bytes"] / batch_bytes
    return figures


def load_of(port: int, topic: str, row: Row, size: Sizes, acks: int) -> Load:
    """The load of a row."""
    return Load(
        port,
        topic,
        row.partitions,
        row.producers,
        0,
        row.record_bytes,
        row.batch_records,
        row.in_flight,
        acks,
        min(WARM_S, size.seconds),
        size.seconds,
        size.requests_max,
    )


def measure(row: Row, size: Sizes, kafka: ApacheKafka | None, directory: Path, number: int) -> Figures:
    """One row for every rival, one right after the other."""
    if row.card:
        with slow_disk(directory, CARD_MB_PER_S, CARD_WRITES_PER_S) as bounds:
            longer = size._replace(seconds=size.seconds * CARD_TIMES)
            return _measure(row, longer, None, directory, number, bounds)
    return _measure(row, size, kafka, directory, number, Bounds(None))


def _measure(row: Row, size: Sizes, kafka: ApacheKafka | None, directory: Path, number: int, bounds: Bounds) -> Figures:
    topic = f"bench-{ROWS.index(row)}-{number}"
    with EdgeBroker(directory / f"edge-{topic}") as edge:
        bounds.hold(edge.pid)
        figures = {"edge-broker": durable(edge, row, size, topic)}
    ours = figures["edge-broker"]
    files = min(row.partitions, max(round(ours["batches_per_round"]), 1))
    figures["bare loop"] = bare(directory, round(ours["round_bytes"]), files, size.seconds, bounds)
    ours["ratio_to_bare"] = ours["mb_per_s"] / figures["bare loop"]["mb_per_s"]
    if kafka is not None:
        figures["Apache Kafka"] = durable(kafka, row, size, topic)
        ours["ratio_to_kafka"] = ours["records_per_s"] / figures["Apache Kafka"]["records_per_s"]
    return figures


def measure_latency(size: Sizes, kafka: ApacheKafka | None, directory: Path, number: int) -> Figures:
    """One record at a time until a waiting consumer has it, beside the disk's own sync of as many bytes."""
    figures: Figures = {}
    with EdgeBroker(directory / f"edge-latency-{number}") as edge:
        create_topic(edge.bootstrap, "latency")
        figures["edge-broker"] = latency_figures(end_to_end(edge.port, "latency", size.messages, -1))
    figures["bare loop"] = bare(directory, len(batch_of(1, 100)), 1, size.seconds, Bounds(None))
    if kafka is not None:
        create_topic(kafka.bootstrap, f"latency-{number}")
        figures["Apache Kafka"] = latency_figures(end_to_end(kafka.port, f"latency-{number}", size.messages, -1))
    return figures


def medians(rounds: list[Figures]) -> Figures:
    """The median of every figure over the rounds."""
    return {
        rival: {figure: statistics.median(one[rival][figure] for one in rounds) for figure in rounds[0][rival]}
        for rival in rounds[0]
    }


LATENCY = "end to end, one 100 B record at a time, acks=all"


def table(results: dict[str, Figures]) -> str:
    """The durable rows, then the latencies beside the disk's."""
    lines = [
        "| acks=all, synced | edge-broker rec/s | MB/s | p99 ms | bytes per round | bare loop MB/s | **ratio to bare** "
        "| Kafka rec/s | Kafka p99 ms | ratio to Kafka |",
        "|---|" + "---:|" * 9,
    ]
    for name, figures in results.items():
        if name == LATENCY:
            continue
        ours, bare, kafka = figures["edge-broker"], figures["bare loop"], figures.get("Apache Kafka", {})
        cells = [
            _number(ours["records_per_s"]),
            _number(ours["mb_per_s"]),
            _number(ours["p99_ms"]),
            _number(ours["round_bytes"]),
            _number(bare["mb_per_s"]),
            f"**{ours['ratio_to_bare']:.2f}**",
            _number(kafka.get("records_per_s")),
            _number(kafka.get("p99_ms")),
            f"{ours['ratio_to_kafka']:.2f}" if kafka else "–",
        ]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    if LATENCY in results:
        figures = results[LATENCY]
        ours, bare, kafka = figures["edge-broker"], figures["bare loop"], figures.get("Apache Kafka", {})
        lines += [
            "",
            f"{LATENCY}: edge-broker p50 {ours['p50_ms']:.2f} ms, p99 {ours['p99_ms']:.2f} ms; "
            f"the disk's fdatasync of the same bytes p50 {bare['sync_p50_ms']:.2f} ms, p99 {bare['sync_p99_ms']:.2f} ms"
            + (f"; Apache Kafka p50 {kafka['p50_ms']:.2f} ms, p99 {kafka['p99_ms']:.2f} ms" if kafka else ""),
        ]
    return "\n".join(lines)


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:,.3g}" if value < 100 else f"{value:,.0f}"


# another checkout

COMPARED = (
    Row("produce 100 B, acks=1, 4 producers, batches of 64 KiB", 100, 4, 1, 600),
    Row("produce 1 KB, acks=1, 4 producers, batches of 16 KiB", 1000, 4),
    Row("produce 100 B, acks=1, one record in flight", 100, 1, 1, 1, 1),
)
CONSUME = "consume, one connection, answers of 1 MiB"


def checkout(name: str, code: Path, directory: Path) -> EdgeBroker:
    """The broker of a checkout, run by this interpreter."""
    broker = EdgeBroker(directory, name=name)
    broker.command[:1] = [sys.executable, "-m", "edge_broker"]
    broker.environment |= {"PYTHONPATH": str(code), "PYTHONSAFEPATH": "1"}
    return broker


def compare_once(broker: EdgeBroker, size: Sizes) -> Figures:
    """The rates and latencies that must not get worse."""
    figures: Figures = {}
    for number, row in enumerate(COMPARED):
        topic = f"compare-{number}"
        create_topic(broker.bootstrap, topic)
        cpu: list[float] = []
        sent = spread(load_of(broker.port, topic, row, size, acks=1), 1, lambda cpu=cpu: cpu.append(cpu_s(broker)))  # type: ignore[misc]
        figures[row.name] = {
            "broker_cpu_us_per_request": (cpu[1] - cpu[0]) / max(sent.requests, 1) * 1e6,
            "records_per_s": sent.requests * row.batch_records / sent.seconds,
            **latency_figures(sent.latencies_ms),
        }
    figures[CONSUME] = {"records_per_s": _consume(broker.port, "compare-1")}
    create_topic(broker.bootstrap, "latency")
    figures["end to end, acks=1"] = latency_figures(end_to_end(broker.port, "latency", size.messages, 1))
    return figures


def _consume(port: int, topic: str) -> float:
    reader = Reader(port, topic)
    records, begin = 0, time.perf_counter()
    last = begin
    try:
        while True:
            reader.ask(100)
            arrived, count = reader.take()
            if not count:
                return records / max(last - begin, 1e-9)
            records, last = records + count, arrived
    finally:
        reader.close()


def compare(before: Path, rounds: int, size: Sizes, directory: Path) -> dict[str, list[Figures]]:
    """Both checkouts in turn; who begins changes from round to round."""
    found: dict[str, list[Figures]] = {"before": [], "now": []}
    for number in range(rounds):
        turn = [("before", before), ("now", ROOT)]
        for name, code in turn if number % 2 == 0 else reversed(turn):
            report(f"round {number + 1}/{rounds}  {name}")
            with tempfile.TemporaryDirectory(dir=directory) as place, checkout(name, code, Path(place)) as broker:
                found[name].append(compare_once(broker, size))
    return found


def compare_table(before: Figures, now: Figures) -> str:
    """Each figure of both, and the ratio."""
    lines = ["| measured | before | now | now / before |", "|---|---:|---:|---:|"]
    for row, figures in now.items():
        for figure, value in figures.items():
            was = before[row][figure]
            ratio = f"{value / was:.3f}" if was else "–"
            lines.append(f"| {row}: {figure} | {_number(was)} | {_number(value)} | {ratio} |")
    return "\n".join(lines)


def report(text: str) -> None:
    """Say on stderr where the run is."""
    print(text, file=sys.stderr, flush=True)


@contextmanager
def kafka_of(directory: Path, wanted: bool) -> Iterator[ApacheKafka | None]:
    """Apache Kafka with an fsync for each message, or nothing."""
    if not wanted:
        yield None
        return
    with ApacheKafka(
        directory / "kafka", heap="1g", java_options=(), settings={"log.flush.interval.messages": 1}
    ) as kafka:
        yield kafka


def bench(options: argparse.Namespace, directory: Path) -> dict[str, Figures]:
    """All rows, in rounds."""
    size = sizes(options.scale)
    rows = [row for row in ROWS if options.only in row.name and not (row.card and options.no_card)]
    rounds: dict[str, list[Figures]] = {row.name: [] for row in rows} | {LATENCY: []}
    with kafka_of(directory, not options.no_kafka) as kafka:
        for number in range(options.rounds):
            for row in rows:
                report(f"round {number + 1}/{options.rounds}  {row.name}")
                rounds[row.name].append(measure(row, size, kafka, directory, number))
            report(f"round {number + 1}/{options.rounds}  {LATENCY}")
            rounds[LATENCY].append(measure_latency(size, kafka, directory, number))
    results = {name: medians(figures) for name, figures in rounds.items()}
    _save("storage.json", options, {"medians": results, "all": rounds})
    return results


def _save(name: str, options: argparse.Namespace, content: dict[str, object]) -> None:
    RESULTS.mkdir(exist_ok=True)
    text = json.dumps({"rounds": options.rounds, "scale": options.scale, **content}, indent=1)
    (RESULTS / name).write_text(text)


def main() -> int:
    """Run the comparison; 0 when every row was measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="rounds whose median is shown")
    parser.add_argument("--scale", type=float, default=1.0, help="factor on the time and the number of records")
    parser.add_argument("--only", default="", metavar="TEXT", help="only rows whose name has this text")
    parser.add_argument("--no-kafka", action="store_true", help="leave Apache Kafka out")
    parser.add_argument("--no-card", action="store_true", help="leave the rows of a slow disk out (they need root)")
    parser.add_argument("--before", type=Path, metavar="DIR", help="compare acks=1 with this checkout instead")
    options = parser.parse_args()
    if options.before is not None and not (options.before / "edge_broker").is_dir():
        parser.error(f"--before {options.before} is no checkout: it has no edge_broker/")
    with tempfile.TemporaryDirectory(prefix="drupelet-bench-", dir=ROOT) as place:
        if options.before is None:
            print(table(bench(options, Path(place))))
            print(f"\nJSON: {(RESULTS / 'storage.json').relative_to(ROOT)}")
            return 0
        found = compare(options.before.resolve(), options.rounds, sizes(options.scale), Path(place))
    results = {name: medians(figures) for name, figures in found.items()}
    _save("storage-before.json", options, {"medians": results, "all": found})
    print(compare_table(results["before"], results["now"]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
