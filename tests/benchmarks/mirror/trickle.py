"""A trickle of records, alone or beside a full backlog: how old a record is when the target shows it, and its bytes.

A record's age begins when the producer at the source is handed it, and ends when a consumer at the target has it; one
that has not come by the end is infinitely old. Must never come in: levels.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager

from tests.benchmarks.mirror import ends
from tests.benchmarks.mirror.bulk import Figures
from tests.benchmarks.mirror.cells import Cell
from tests.benchmarks.mirror.data import mean_bytes
from tests.benchmarks.mirror.lab import SOURCE, TARGET, Lab, until
from tests.benchmarks.mirror.subjects import Way
from tests.benchmarks.mirror.sums import percentile

LATE_S = 15.0


@contextmanager
def flowing(lab: Lab, way: Way, topic: str, cell: Cell) -> Iterator[tuple[ends.Trickle, ends.Arrivals]]:
    """A trickle into a topic, and its reader at the target."""
    trickle = ends.Trickle(SOURCE, topic, cell.data, cell.rate, cell.partitions)
    arrivals = ends.Arrivals(TARGET, way.at_target(topic), cell.partitions)
    running: list[Future[None]] = [lab.hosts.center.submit(arrivals.run), lab.hosts.edge.submit(trickle.run)]
    try:
        yield trickle, arrivals
    finally:
        trickle.stop()
        arrivals.stop()
        for each in running:
            each.result()


def trickle(lab: Lab, cell: Cell, side: str) -> Figures:
    """Age and bytes of a trickle; one of `alarms` has a backlog beside it."""
    topic = lab.new_topic(f"{cell.family}-{side}", cell.partitions)
    topics = [topic] + ([lab.backlog("a", 4)] if cell.family == "alarms" else [])
    way = lab.way(cell, side, *topics)
    backlog = lab.target_ends(way, topics[-1], cell.partitions)
    with lab.running(cell, side, way) as mirror, flowing(lab, way, topic, cell) as (sent, arrived):
        if not until(lambda: backlog() > 0, cell.first_s):
            return {"arrived": len(arrived.read_at), "waited_s": cell.first_s, **mirror.told()}
        time.sleep(cell.warm_s)
        first, before, began = len(sent.sent_at), lab.host_of(cell).counters(), time.monotonic()
        bulk_before = backlog()
        until(lambda: not mirror.running, cell.seconds)
        last, wire = len(sent.sent_at), lab.host_of(cell).counters().since(before).both
        seconds, bulk_moved = time.monotonic() - began, backlog() - bulk_before
        until(lambda: all(number in arrived.read_at for number in range(first, last)), LATE_S)
        ages = [arrived.read_at.get(each, math.inf) - sent.sent_at[each] for each in range(first, last)]
        mirror.check()
        _, peak_mb = mirror.used()
        told = mirror.told()
    found: Figures = {"p50_s": percentile(ages, 50), "p99_s": percentile(ages, 99), "records": len(ages)}
    found |= {"never_came": ages.count(math.inf), "wire_bytes_per_s": wire / seconds, "rss_mb": peak_mb, **told}
    if len(topics) > 1:
        return found | {"backlog_records_per_s": bulk_moved / seconds}
    return found | {"wire_per_payload": wire / (len(ages) * mean_bytes(cell.data))}
