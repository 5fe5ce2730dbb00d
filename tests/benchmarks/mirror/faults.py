"""What goes wrong: a link that is away for a minute, mirrors that are killed; and how soon one that starts is there.

Must never come in: levels.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager

from tests.benchmarks.mirror import ends
from tests.benchmarks.mirror.bulk import Figures
from tests.benchmarks.mirror.cells import Cell
from tests.benchmarks.mirror.lab import SOURCE, TARGET, Lab, until
from tests.benchmarks.mirror.trickle import flowing

BEFORE_S, OUTAGE_S, AFTER_S = 10.0, 60.0, 75.0
EACH_S = 0.05
KEPT_EACH_S = 0.5  # of the lag that is drawn
CAUGHT_UP_S = 2.0  # of records that the target may lack when the outage is about to begin
AS_BEFORE = 1.2  # times the greatest lag before the outage: caught up
KILLS, BETWEEN_S, BACK_S, ALL_S = 5, 3.0, 90.0, 60.0
FIRST_RECORDS = 100


@contextmanager
def _into(lab: Lab, cell: Cell, topic: str) -> Iterator[ends.Trickle]:
    trickle = ends.Trickle(SOURCE, topic, cell.data, cell.rate, cell.partitions, linger_ms=ends.LINGER_MS)
    running = lab.hosts.edge.submit(trickle.run)
    try:
        yield trickle
    finally:
        trickle.stop()
        running.result()


def outage(lab: Lab, cell: Cell, side: str) -> Figures:
    """A minute without the link: first record behind it, all caught up, and how long the link alone would have taken.

    Caught up is a lag as before the outage. The link's own time is that of the bytes that came out at the target's end
    until then, at its rate.
    """
    topic = lab.new_topic(f"outage-{side}", cell.partitions)
    way = lab.way(cell, side, topic)
    offsets = lab.target_ends(way, topic, cell.partitions)
    lags: list[tuple[float, int]] = []
    with lab.running(cell, side, way) as mirror, _into(lab, cell, topic) as sent:
        if not until(lambda: offsets() > cell.rate, cell.first_s):
            return {"records_per_s": 0.0, "waited_s": cell.first_s, **mirror.told()}
        until(lambda: len(sent.acked) - offsets() <= CAUGHT_UP_S * cell.rate, AFTER_S)
        time.sleep(cell.warm_s)
        zero = time.monotonic() + BEFORE_S + OUTAGE_S  # the link is back

        def lag() -> int:
            mirror.check()
            found = len(sent.acked) - offsets()
            lags.append((time.monotonic() - zero, found))
            return found

        until(lambda: lag() is None, BEFORE_S, EACH_S)
        usual = max(found for _, found in lags)
        lab.hosts.cut()
        until(lambda: lag() is None, zero - time.monotonic(), EACH_S)
        lab.hosts.mend()
        before, at_target = lab.hosts.center.counters().received, offsets()
        first_s = caught_s = math.inf
        if until(lambda: lag() is not None and offsets() > at_target, AFTER_S, EACH_S):
            first_s = lags[-1][0]
            if until(lambda: lag() <= AS_BEFORE * usual, AFTER_S - first_s, EACH_S):
                caught_s = lags[-1][0]
        delivered = lab.hosts.center.counters().received - before
        _, peak_mb = mirror.used()
        told = mirror.told()
    own_s = delivered * 8 / cell.link.rate_bps
    found: Figures = {"first_s": first_s, "caught_up_s": caught_s, "own_s": own_s, "of_own_time": caught_s / own_s}
    return found | {"usual_lag": usual, "rss_mb": peak_mb, **told, "lag": thinned(lags)}


def thinned(lags: list[tuple[float, int]]) -> list[tuple[float, int]]:
    """Enough of the lag to draw it."""
    kept: list[tuple[float, int]] = []
    for at, lag in lags:
        if not kept or at - kept[-1][0] >= KEPT_EACH_S:
            kept.append((round(at, 2), lag))
    return kept


def kills(lab: Lab, cell: Cell, side: str) -> Figures:
    """Killed again and again under load: what is lost, what comes twice, how soon what was sent since then arrives."""
    topic = lab.new_topic(f"kills-{side}", cell.partitions)
    way = lab.way(cell, side, topic)
    back: list[float] = []
    with lab.running(cell, side, way) as mirror:
        with flowing(lab, way, topic, cell) as (sent, arrived):
            until(lambda: bool(arrived.read_at), cell.first_s)
            for _ in range(KILLS):
                time.sleep(BETWEEN_S)
                mirror.kill()
                killed, number = time.monotonic(), len(sent.sent_at)
                mirror.spawn()
                is_back = until(lambda number=number: arrived.newest >= number, BACK_S)
                back.append(time.monotonic() - killed if is_back else math.inf)
            time.sleep(BETWEEN_S)
            sent.stop()
            until(lambda: len(arrived.times) >= len(sent.sent_at), ALL_S)
            time.sleep(BETWEEN_S)  # what comes twice may come late
        _, peak_mb = mirror.used()
    lost = sum(number not in arrived.times for number in sent.acked)
    doubled = sum(times - 1 for times in arrived.times.values())
    found: Figures = {"lost": lost, "doubled": doubled, "back_worst_s": max(back), "back_s": back}
    return found | {"records": len(sent.sent_at), "rss_mb": peak_mb}


def first(lab: Lab, cell: Cell, side: str) -> Figures:
    """From the start of the process until its first record can be read at the target, whose topic it has to make."""
    took: list[float] = []
    for _ in range(3 if not cell.link.is_shaped else 1):
        topic = lab.new_topic(f"first-{side}", cell.partitions)
        lab.hosts.edge.call(ends.fill, SOURCE, topic, "a", FIRST_RECORDS, cell.partitions)
        way = lab.way(cell, side, topic)
        arrivals = ends.Arrivals(TARGET, way.at_target(topic), cell.partitions)
        reading = lab.hosts.center.submit(arrivals.run)
        try:
            began = time.monotonic()
            with lab.running(cell, side, way):
                until(lambda arrivals=arrivals: bool(arrivals.read_at), cell.first_s)
        finally:
            arrivals.stop()
            reading.result()
        took.append(min(arrivals.read_at.values(), default=math.inf) - began)
    found: Figures = {"first_s": statistics.median(took), "each_s": took}
    return found | ({"round_trips": found["first_s"] / cell.link.round_trip_s} if cell.link.is_shaped else {})
