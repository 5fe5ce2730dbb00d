"""Many topics: how long until all are made and begun, and what they cost, idle and while the target is away.

Each has a record in each partition when the mirror starts. A link that can be cut is cut, and all topics get more. Must
never come in: levels.
"""

from __future__ import annotations

import time

from tests.benchmarks.mirror import ends
from tests.benchmarks.mirror.bulk import Figures
from tests.benchmarks.mirror.cells import Cell
from tests.benchmarks.mirror.lab import SOURCE, Lab, until
from tests.benchmarks.mirror.subjects import EdgeMirror
from tests.benchmarks.mirror.trickle import flowing

TOPICS = 500
EACH_S = 0.5
AWAY_RECORDS = 400  # for each topic while the target is away: some 20 MB
AWAY_S = 15.0  # behind those


def many(lab: Lab, cell: Cell, side: str) -> Figures:
    """Seconds until all is at the target; CPU, wire bytes and memory when idle; memory in an outage."""
    topics = [lab.new_topic("m", cell.partitions) for _ in range(TOPICS)]
    _fill(lab, cell, topics, cell.partitions)
    way = lab.way(cell, side, *topics)
    began = time.monotonic()
    with lab.running(cell, side, way) as mirror:
        assert isinstance(mirror, EdgeMirror)
        if not until(lambda: mirror.mirrored() >= TOPICS * cell.partitions, cell.first_s, EACH_S):
            return {"waited_s": cell.first_s, **mirror.told()}
        found: Figures = {"begun_s": time.monotonic() - began}
        with flowing(lab, way, topics[0], cell):
            time.sleep(cell.warm_s)
            (cpu_s, _), before, since = mirror.used(), lab.host_of(cell).counters(), time.monotonic()
            until(lambda: not mirror.running, cell.seconds)
            (cpu_end_s, peak_mb), seconds = mirror.used(), time.monotonic() - since
            wire = lab.host_of(cell).counters().since(before).both
        found |= {"idle_cpu_percent": 100 * (cpu_end_s - cpu_s) / seconds, "wire_bytes_per_s": wire / seconds}
        found["rss_mb"] = peak_mb
        if cell.link.is_shaped:
            lab.hosts.cut()
            _fill(lab, cell, topics, AWAY_RECORDS)
            time.sleep(AWAY_S)
            _, found["away_rss_mb"] = mirror.used()
            lab.hosts.mend()
        mirror.check()
        return found | mirror.told()


def _fill(lab: Lab, cell: Cell, topics: list[str], records: int) -> None:
    for topic in topics:
        lab.hosts.edge.call(ends.fill, SOURCE, topic, cell.data, records, cell.partitions)
