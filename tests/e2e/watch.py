"""Keeps an eye on the running demo: who died, what each part says of itself, what it costs; a live line per part.

Nothing is started, stopped or judged here.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from tests.e2e import observe, report
from tests.e2e.parts import Road
from tests.e2e.patience import Patience
from tests.e2e.read_back import Tail
from tests.support.processes import EdgeBroker
from tests.support.waiting import Deadline

TICK_S = 1.0
QUERIES = 3  # of the readings job
CPU_STEP_S = 5.0  # of CPU time that a start has used up: it goes on


class Watch:
    """One look per second; `deaths` are the parts that ended by themselves, by name, with a sentence."""

    def __init__(self, road: Road, screen: report.Screen) -> None:
        self._road = road
        self._screen = screen
        self._rates = observe.Rates()
        self._next_s = time.monotonic()
        self._start_s = time.monotonic()
        self.fleet = observe.JournalReader(road.fleet_journal)
        self.log = observe.JournalReader(road.log_journal)
        self.tail: Tail | None = None
        self.link_is_up = True
        self.down: set[str] = set()
        self.deaths: dict[str, str] = {}
        self.usage: dict[str, observe.Usage] = {}
        self.spark = Patience(time.monotonic())

    def elapsed_s(self) -> float:
        """Seconds since the load began."""
        return time.monotonic() - self._start_s

    def begin(self) -> None:
        """Start the clock of the load."""
        self._start_s = self._next_s = time.monotonic()

    def until(self, condition: Callable[[], bool], deadline_s: float) -> bool:
        """Look once a second until the condition holds; False when a part has died or the time ran out."""
        deadline = Deadline(deadline_s)
        while not condition():
            if self.deaths or deadline.passed:
                return False
            self.look()
        return True

    def until_spark(self, condition: Callable[[], bool]) -> str:
        """Look once a second until the condition holds; else why waiting for Spark is over."""
        self.spark.begin(time.monotonic())
        while not condition():
            if self.deaths or (why := self.spark.ran_out(time.monotonic())):
                return ", ".join(self.deaths.values()) or why
            self.look()
        return ""

    def look_quietly(self) -> None:
        """Wait for the next second, then look whether every part lives, and show nothing."""
        time.sleep(max(0.0, self._next_s - time.monotonic()))
        self._next_s = max(self._next_s + TICK_S, time.monotonic())
        self.sample()

    def look(self) -> None:
        """Wait for the next second, then look at every part and show what was seen."""
        self.look_quietly()
        self.spark.saw(self._spark_progress(), time.monotonic())
        self.fleet.read()
        self.log.read()
        self._screen.live(self._lines())

    def sample(self) -> None:
        """Measure every part that lives; note the ones that should and do not."""
        for name, part in self._road.started:
            if part is None or name in self.down or name in self.deaths:
                continue
            if part.running:
                self.usage.setdefault(name, observe.Usage()).sample(part.pid)
            else:
                self.deaths[name] = f"{name} died"
                self._screen.event(f"{name} died\n{part.log_tail(20)}")

    def _lines(self) -> list[str]:
        now_s = time.monotonic()
        edge = self._scrape_edge()
        texts = {
            "fleet": self._fleet_line(now_s),
            "gateway": self._gateway_line(now_s),
            "edge": self._edge_line(edge, now_s),
            "link": self._link_line(now_s),
            "mirror": self._mirror_line(now_s),
            "spark": self._spark_line(edge),
            "central": self._central_line(now_s),
        }
        clock = f"{self.elapsed_s():5.0f} s"
        lines = [f"{name:<9} {self._fate(name) or text}" for name, text in texts.items()]
        return [f"{clock if n == 0 else '':>7}  {line}" for n, line in enumerate(lines)]

    def _fate(self, name: str) -> str | None:
        if name in self.deaths:
            return "DEAD"
        if name in self.down:
            return "KILLED with SIGKILL" if name == "edge" else "stopped"
        return None

    def _rate(self, name: str, value: float, now_s: float) -> str:
        return f"{self._rates.per_second(name, value, now_s):.0f}/s"

    def _fleet_line(self, now_s: float) -> str:
        sent, acked, lines = self.fleet.counts["P"], self.fleet.counts["A"], self.log.counts["W"]
        return (
            f"published {sent} ({self._rate('sent', sent, now_s)}), mosquitto acked {acked}; "
            f"log lines {lines} ({self._rate('lines', lines, now_s)})"
        )

    def _gateway_line(self, now_s: float) -> str:
        metrics = observe.scrape(f"http://127.0.0.1:{self._road.gateway_metrics_port}/metrics")
        if metrics is None:
            return "no answer"
        total = metrics.total("edge_gateway_records_total")
        pending = metrics.total("edge_gateway_pending_records")
        return f"acked by the broker {total:.0f} ({self._rate('gateway', total, now_s)}), pending {pending:.0f}"

    def _scrape_edge(self) -> observe.Metrics | None:
        edge = self._road.edge
        return observe.scrape(edge.metrics_url) if isinstance(edge, EdgeBroker) and edge.running else None

    def _edge_line(self, metrics: observe.Metrics | None, now_s: float) -> str:
        if metrics is None:
            return "no answer" if isinstance(self._road.edge, EdgeBroker) else "Apache Kafka, no metrics here"
        ends = sum(metrics.total("edge_broker_log_end_offset", topic=topic) for topic in ("readings", "logs"))
        bytes_in = metrics.total("edge_broker_bytes_in_total")
        rate = self._rates.per_second("edge bytes", bytes_in, now_s)
        return f"readings and logs {ends:.0f} ({self._rate('edge', ends, now_s)}), in {report.amount(rate)}/s"

    def _link_line(self, now_s: float) -> str:
        state = "up" if self.link_is_up else "CUT"
        if self._road.link is None:
            return f"{'not ours' if self.link_is_up else 'not ours: the MIRROR IS HELD STILL instead'}"
        rate = self._rates.per_second("link", self._road.link_state()["bytes_up"], now_s)
        return f"{state}, {report.amount(rate)}/s to central"

    def _mirror_line(self, now_s: float) -> str:
        if self._road.link is None and not self.link_is_up:
            return "held still"
        metrics = observe.scrape(f"http://127.0.0.1:{self._road.mirror_metrics_port}/metrics")
        if metrics is None:
            return "no answer"
        total = metrics.total("edge_mirror_records_total")
        lag = metrics.total("edge_mirror_lag_records")
        ledgered = metrics.total("edge_mirror_ledger_records_total")
        return (
            f"mirrored {total:.0f} ({self._rate('mirror', total, now_s)}), backlog {lag:.0f}, ledgered {ledgered:.0f}"
        )

    def _spark_line(self, edge: observe.Metrics | None) -> str:
        positions = observe.spark_positions(self._road.checkpoint, "readings")
        if not positions:
            return "starting, no batch yet"
        slowest = min(sum(position.values()) for position in positions.values())
        end = edge.total("edge_broker_log_end_offset", topic="readings") if edge is not None else None
        backlog = "" if end is None else f", backlog {max(0, end - slowest):.0f}"
        return f"{len(positions)} queries, readings taken in {slowest}{backlog}"

    def _spark_progress(self) -> object:
        """What changes while Spark goes on: its batches; until all queries had one, the CPU time of its start."""
        batches = sum(len(observe.spark_batches(query)) for query in observe.spark_queries(self._road.checkpoint))
        positions = observe.spark_positions(self._road.checkpoint, "readings")
        used = self.usage.get("spark")
        starting = len(positions) < QUERIES and used is not None
        return batches, int(used.cpu_s / CPU_STEP_S) if starting and used is not None else None

    def _central_line(self, now_s: float) -> str:
        if self.tail is None or not self.tail.is_alive():
            return "no reader of ours"
        count = self.tail.count
        return f"readable {count} ({self._rate('central', count, now_s)})"
