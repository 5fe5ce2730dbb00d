"""Bulk: how fast a full backlog goes over, in which direction the mirror asks for it, and what it costs.

Shaped links are sampled for a while behind a warm-up: rates are slopes. An unshaped one takes the whole backlog, from
the first records on. Wire bytes are those of the mirror's own interface, both ways; the link's use is what came out at
the target's end of it. Must never come in: levels.
"""

from __future__ import annotations

import time
from typing import Any

from tests.benchmarks.mirror import ends
from tests.benchmarks.mirror.cells import Cell
from tests.benchmarks.mirror.data import mean_bytes
from tests.benchmarks.mirror.lab import Lab, until
from tests.benchmarks.mirror.subjects import EdgeMirror, MirrorMaker
from tests.benchmarks.mirror.sums import Sample, slope
from tests.support.linked_hosts import Host

EACH_S = 0.1
BEGUN_OFFSETS = 10  # more than markers of the mirror's own
ALL = 0.999  # of a backlog: a mirror may put a marker of its own into a partition, or none
DRAIN_S = 180.0
Figures = dict[str, Any]  # numbers, a sentence, lists of numbers


def bulk(lab: Lab, cell: Cell, side: str) -> Figures:
    """Rates, bytes on the wire, the link's use, CPU and memory."""
    topic = lab.backlog(cell.data, cell.partitions)
    way = lab.way(cell, side, topic)
    offsets = lab.target_ends(way, topic, cell.partitions)
    began = time.monotonic()
    with lab.running(cell, side, way) as mirror:
        if not until(lambda: offsets() >= BEGUN_OFFSETS, cell.first_s):
            return {"records_per_s": 0.0, "waited_s": time.monotonic() - began, **mirror.told()}
        first_s = time.monotonic() - began
        time.sleep(cell.warm_s)
        cpu_s, _ = mirror.used()
        watch = _sampled if cell.link.is_shaped else _drained
        samples = watch(lab, cell, mirror, offsets, lab.records(topic))
        cpu_end_s, peak_mb = mirror.used()
        told = mirror.told()
    found = figures(samples, mean_bytes(cell.data), cell.link.rate_bps)
    records = samples[-1].offsets - samples[0].offsets
    found |= {"first_s": first_s, "rss_mb": peak_mb, **told}
    found["records_per_cpu_s"] = records / max(cpu_end_s - cpu_s, 0.01)
    return found


def figures(samples: list[Sample], record_bytes: float, rate_bps: int) -> Figures:
    """What samples say."""
    per_s = slope([(each.at, each.offsets) for each in samples])
    per_wire = slope([(each.wire, each.offsets) for each in samples]) * record_bytes
    delivered = slope([(each.at, each.delivered) for each in samples])
    found: Figures = {"records_per_s": per_s, "payload_mb_per_s": per_s * record_bytes / 1e6}
    found |= {"wire_per_payload": 1 / per_wire if per_wire > 0 else 0.0, "delivered_bytes_per_s": delivered}
    return found | ({"link_used": delivered * 8 / rate_bps} if rate_bps else {})


def _sample(lab: Lab, cell: Cell, offsets: int) -> Sample:
    wire = lab.host_of(cell).counters().both
    return Sample(time.monotonic(), offsets, wire, lab.hosts.center.counters().received)


def _sampled(lab: Lab, cell: Cell, mirror: EdgeMirror | MirrorMaker, offsets: ends.Count, records: int) -> list[Sample]:
    """Until the cell's time is over, or the backlog, which was too small then."""
    samples: list[Sample] = []
    end = time.monotonic() + cell.seconds
    while time.monotonic() < end and not (samples and samples[-1].offsets >= ALL * records):
        mirror.check()
        samples.append(_sample(lab, cell, offsets()))
        time.sleep(EACH_S)
    return samples


def _drained(lab: Lab, cell: Cell, mirror: EdgeMirror | MirrorMaker, offsets: ends.Count, records: int) -> list[Sample]:
    samples = [_sample(lab, cell, offsets())]

    def done() -> bool:
        mirror.check()
        samples.append(_sample(lab, cell, offsets()))
        return samples[-1].offsets >= ALL * records

    until(done, DRAIN_S)
    return samples


def bare(lab: Lab, cell: Cell, _side: str) -> Figures:
    """What one plain TCP connection carries there."""
    total_s = cell.warm_s + cell.seconds + 2
    taken = lab.hosts.center.submit(ends.take_bare)
    sent = lab.hosts.edge.submit(ends.send_bare, total_s)
    time.sleep(cell.warm_s)
    center: Host = lab.hosts.center
    before, began = center.counters().received, time.monotonic()
    time.sleep(cell.seconds)
    delivered = (center.counters().received - before) / (time.monotonic() - began)
    sent.result()
    taken.result()
    return {"delivered_bytes_per_s": delivered, "link_used": delivered * 8 / cell.link.rate_bps}
