"""`make bench-change BEFORE=DIR`: what a change costs: the edge brokers of this checkout and of another one, in pairs.

Both run from wheels, all the time; a load goes to one and then to the other, every other pair in reverse, each time to
a new topic, which is deleted again. A pair gives one ratio, here / before. Shown is the median of a row's ratios with
its 90 % interval (bootstrap). A row whose interval of the rate or of the CPU is wider than WIDTH_MAX gets more pairs,
up to PAIRS_MAX.

The last column is CPU here against 1.2 times what it was before and what the codec's library alone takes to unpack the
same batches: the price of a look into compressed batches.

Lives here: pairs, intervals, the table, the JSON. Must never come in: loads (broker.py), levels that fail.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from aiokafka.admin import AIOKafkaAdminClient

from tests.benchmarks import broker as loads
from tests.benchmarks import clients, load
from tests.benchmarks.broker import LOADS, ROOT, SETTLE_S, Load, cpu_s, edge_broker, install_wheel, rss_mb
from tests.benchmarks.disk import latency_figures
from tests.support.kafka_reading import create_topic
from tests.support.processes import EdgeBroker

RESULTS = ROOT / "bench-results" / "change.json"
PAIRS, PAIRS_MAX = 9, 25
WIDTH_MAX = 0.06
RESAMPLES = 10_000
CODEC_FACTOR = 1.2
CONSUME_FACTOR = 3
RATE, CPU = "records_per_s", "broker_cpu_us_per_record"
LATENCIES = ("mean_ms", "p50_ms", "p99_ms", "start_s")

Figures = dict[str, float]
Pair = dict[str, Figures]


class Row(NamedTuple):
    """What is measured of a broker, and which of its figures are compared."""

    name: str
    measure: Callable[[EdgeBroker, str, float, Path], Figures]
    figures: tuple[str, ...]


def produce(one: Load) -> Row:
    """One producer load."""

    def measure(broker: EdgeBroker, topic: str, scale: float, directory: Path) -> Figures:
        return loads.produce(broker, one, topic, scale, directory)

    return Row(one.name, measure, (RATE, CPU))


def consume(broker: EdgeBroker, topic: str, scale: float, directory: Path) -> Figures:
    """Read back what a producer has just written: enough of it, as the consumer takes 0.7 s for what a load writes."""
    scale *= CONSUME_FACTOR
    loads.produce(broker, LOADS[1], topic, scale, directory)
    return loads.consume(broker, topic, scale, directory)


def end_to_end(broker: EdgeBroker, topic: str, scale: float, directory: Path) -> Figures:
    """One record at a time through Java's producer and consumer, which asks all the time (fetch.max.wait.ms=0).

    So the broker's CPU says how often it was asked: the sooner it answers, the more.
    """
    return clients.end_to_end(broker.bootstrap, topic, int(4000 * scale), "1", directory)


def waited_for(broker: EdgeBroker, topic: str, scale: float, _directory: Path) -> Figures:
    """One record at a time to a consumer that waits for it: one Produce and one Fetch each."""
    create_topic(broker.bootstrap, topic)
    records, before = int(4000 * scale), cpu_s(broker)
    figures = latency_figures(load.end_to_end(broker.port, topic, records, 1))
    figures[CPU] = (cpu_s(broker) - before) / records * 1e6
    return figures


def start(broker: EdgeBroker, _topic: str, _scale: float, directory: Path) -> Figures:
    """A broker of its own from the same environment: its start, and what it takes while nobody uses it."""
    with tempfile.TemporaryDirectory(dir=directory) as place:
        found = loads.measure_start(edge_broker(Path(broker.command[0])), Path(place))
    return {"start_s": found["start to first Metadata"]["s"], "rss_mb": found["idle"]["rss_mb"]}


ROWS = (
    *(produce(one) for one in LOADS if not one.synced),  # to the edge broker a synced one is the same again
    Row("consume 1 KB", consume, (RATE, CPU)),
    Row("end to end, one 100 B record at a time, acks=1", end_to_end, ("mean_ms", "p50_ms", "p99_ms")),
    Row("one 100 B record at a time to one that waits, acks=1", waited_for, ("p50_ms", "p99_ms", CPU)),
    Row("start to first Metadata, then idle", start, ("start_s", "rss_mb")),
)


def interval(ratios: Sequence[float]) -> tuple[float, float]:
    """The 90 % interval of the ratios' median, by bootstrap."""
    rnd = random.Random(12)
    found = sorted(statistics.median(rnd.choices(ratios, k=len(ratios))) for _ in range(RESAMPLES))
    return found[RESAMPLES // 20], found[-RESAMPLES // 20]


def ratios_of(pairs: Sequence[Pair], figure: str) -> list[float]:
    """Here / before, pair by pair; a pair with 0 before (whole milliseconds) has none."""
    return [pair["here"][figure] / pair["before"][figure] for pair in pairs if pair["before"][figure]]


def is_wide(row: Row, pairs: Sequence[Pair]) -> bool:
    """Whether a rate's or CPU's interval says too little."""
    for figure in row.figures:
        if figure not in LATENCIES:
            ratios = ratios_of(pairs, figure)
            if ratios and (width := interval(ratios))[1] - width[0] > WIDTH_MAX:
                return True
    return False


def measure_row(row: Row, brokers: dict[str, EdgeBroker], directory: Path, options: argparse.Namespace) -> list[Pair]:
    """A row's pairs: as many as are wanted, and more while they disagree."""
    pairs: list[Pair] = []
    while len(pairs) < options.pairs or (len(pairs) < options.pairs_max and is_wide(row, pairs)):
        pair: Pair = {}
        for side in list(brokers)[:: -1 if len(pairs) % 2 else 1]:
            topic = f"bench-{ROWS.index(row)}-{len(pairs)}"
            print(f"{row.name}: pair {len(pairs) + 1}, {side}", file=sys.stderr, flush=True)
            pair[side] = row.measure(brokers[side], topic, options.scale, directory)
            asyncio.run(_delete(brokers[side].bootstrap, topic))
        pairs.append(pair)
    return pairs


async def _delete(bootstrap: str, topic: str) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        await admin.delete_topics([topic])
    finally:
        await admin.close()


def table(results: dict[str, list[Pair]], rss: Figures) -> str:
    """Markdown: medians of both sides, the ratios' median and interval, and the level of compressed readings."""
    lines = [
        "| measured | here | before | ratio | 90 % interval | pairs | of its codec level |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for row in ROWS:
        lines += lines_of(row, results.get(row.name, []))
    if rss:
        lines.append(f"| after all: rss_mb | {rss['here']:.1f} | {rss['before']:.1f} | | | | |")
    return "\n".join(lines)


def lines_of(row: Row, pairs: Sequence[Pair]) -> list[str]:
    """A row's lines of the table; none without pairs."""
    lines = []
    for figure in row.figures if pairs else ():
        here, before = (statistics.median(pair[side][figure] for pair in pairs) for side in ("here", "before"))
        values = " | ".join(f"{value:,.3g}" if value < 100 else f"{value:,.0f}" for value in (here, before))
        level = _codec_level(pairs) if figure == CPU else ""
        lines.append(
            f"| {row.name}: {figure} | {values} | {_compared(ratios_of(pairs, figure))} | {len(pairs)} | {level} |"
        )
    return lines


def _compared(ratios: Sequence[float]) -> str:
    """The cells of the ratio and its interval, empty without a ratio."""
    if not ratios:
        return " | "
    low, high = interval(ratios)
    return f"{statistics.median(ratios):.3f} | {low:.3f} to {high:.3f}"


def _codec_level(pairs: Sequence[Pair]) -> str:
    if "codec_library_us_per_record" not in pairs[0]["here"]:
        return ""
    shares = []
    for pair in pairs:
        library = statistics.mean(side["codec_library_us_per_record"] for side in pair.values())
        shares.append(pair["here"][CPU] / (CODEC_FACTOR * (pair["before"][CPU] + library)))
    low, high = interval(shares)
    return f"{statistics.median(shares):.3f} ({low:.3f} to {high:.3f})"


def main() -> int:
    """Run the comparison; 0 when every row was measured, 2 for what is no checkout."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=Path, metavar="DIR", help="the checkout to compare with")
    parser.add_argument("--pairs", type=int, default=PAIRS, help=f"pairs of each row, if they agree ({PAIRS})")
    parser.add_argument("--pairs-max", type=int, default=PAIRS_MAX, help=f"pairs of a row that disagree ({PAIRS_MAX})")
    parser.add_argument("--scale", type=float, default=1.0, help="factor on the number of records")
    parser.add_argument("--rows", default="", metavar="TEXT", help="only rows whose name has this text")
    options = parser.parse_args()
    if not (options.before / "edge_broker").is_dir():
        parser.error(f"{options.before} is no checkout: it has no edge_broker/")
    results: dict[str, list[Pair]] = {}
    rss: Figures = {}
    with tempfile.TemporaryDirectory(prefix="drupelet-bench-", dir=ROOT) as name, ExitStack() as stack:
        directory = Path(name)
        brokers: dict[str, EdgeBroker] = {}
        for side, checkout in (("here", ROOT), ("before", options.before)):
            rival = edge_broker(install_wheel(directory / side, checkout))
            broker = rival.make(directory / f"data-{side}", False)
            assert isinstance(broker, EdgeBroker)
            stack.enter_context(broker)
            brokers[side] = broker
        time.sleep(SETTLE_S)
        for row in ROWS:
            if options.rows in row.name:
                results[row.name] = measure_row(row, brokers, directory, options)
                rss = {side: rss_mb(broker) for side, broker in brokers.items()}
                RESULTS.parent.mkdir(exist_ok=True)
                RESULTS.write_text(json.dumps({"scale": options.scale, "rss_mb": rss, "pairs": results}, indent=1))
                print("\n".join(lines_of(row, results[row.name])), file=sys.stderr, flush=True)
    print(table(results, rss))
    print(f"\nJSON: {RESULTS.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
