"""What one commit round costs at 1, 10 and 200 dirty partitions, each way: `python -m tests.benchmarks.rounds DIR`.

Every partition gets one batch of 1 KB, then the round runs; the two ways take turns, so that neither has the better
disk. Prints a table, and the same as JSON with `--json`. DIR lies on the card to be measured; what is made there goes.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from typing import get_args

from edge_broker.storage.files.filesystem import Disk
from edge_broker.storage.files.sync_cost import describe, measure
from edge_broker.storage.log import single_node_watermark
from edge_broker.storage.log.group_commit import Way
from edge_broker.storage.log.partition_log import PartitionLog
from edge_broker.storage.log_store import LogStore
from edge_broker.testing.site import make_topic
from tests.support.storage import append, batch, open_store

PARTITIONS = (1, 10, 200)
Row = dict[str, float | int | str]


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dir", help="where to write")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--json", action="store_true")
    parsed = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=parsed.dir) as folder:
        disk = Disk()
        (card,) = (one for one in measure(disk, folder, time.perf_counter) if one is not None)
        rows = compare(open_store(disk, f"{folder}/data"), parsed.rounds)
    if parsed.json:
        json.dump({"card": card._asdict(), "rounds": rows}, sys.stdout, indent=1)
        return 0
    sys.stdout.write("\n".join(["| partitions | way | p50 ms | greatest ms |", "|---|---|---|---|", *map(line, rows)]))
    sys.stdout.write("\n\n" + "\n".join(describe(card)) + "\n")
    return 0


def compare(store: LogStore, rounds: int) -> list[Row]:
    """One row for each number of partitions and way."""
    rows: list[Row] = []
    for partitions in PARTITIONS:
        logs = make_topic(store, f"t{partitions}", partitions).partitions
        taken: dict[Way, list[float]] = {way: [] for way in get_args(Way)}
        for _ in range(rounds):
            for way, seconds in taken.items():
                seconds.append(one_round(store, logs, way))
        for way, seconds in taken.items():
            p50, greatest = statistics.median(seconds), max(seconds)
            rows.append({"partitions": partitions, "way": way, "p50_ms": p50 * 1e3, "max_ms": greatest * 1e3})
    return rows


def one_round(store: LogStore, logs: list[PartitionLog], way: Way) -> float:
    """Make every partition dirty and sync all of them; seconds of the sync."""
    for log in logs:
        append(log, batch(bytes(1000)))
    flushes = [(log, flush) for log in logs if (flush := log.writer.begin_flush()) is not None]
    begin = time.perf_counter()
    faults = store.group_commit.run([flush for _, flush in flushes], way)
    seconds = time.perf_counter() - begin
    if any(faults):
        raise RuntimeError(f"a sync failed: {faults}")
    for log, flush in flushes:
        log.writer.finish_flush(flush)
        single_node_watermark.advance_high_watermark(log.state)
    return seconds


def line(row: Row) -> str:
    """A row of the table."""
    return f"| {row['partitions']} | {row['way']} | {row['p50_ms']:.2f} | {row['max_ms']:.2f} |"


if __name__ == "__main__":
    sys.exit(main())
