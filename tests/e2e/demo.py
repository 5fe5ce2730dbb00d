"""The demo: the whole road on this machine, its link cut and its edge broker killed, every record accounted for.

The timeline and the verdict live here; parts.py starts the parts, watch.py looks at them, verify.py reads back.
"""

from __future__ import annotations

import argparse
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import KafkaException

from tests.e2e import closing, observe, read_back, verify
from tests.e2e.accounting import exit_status
from tests.e2e.parts import MIRRORED, Road
from tests.e2e.patience import Patience
from tests.e2e.report import Screen
from tests.e2e.watch import Watch
from tests.support.processes import Process, ProcessError
from tests.support.runtimes import MissingRuntimeError

CUT_S_MAX = 20.0
SECONDS_MIN = 30
STOP_S = 30.0
DRAIN_S_MIN = 120.0
EXAMPLE = "example: python -m tests.e2e.demo --seconds 45 --central kafka"


@dataclass(frozen=True)
class Timeline:
    """When what happens, in seconds after the load began; the kill lies in the cut, the end leaves time to drain."""

    cut_s: float
    kill_s: float
    restore_s: float
    rotate_s: float
    end_s: float

    @classmethod
    def of(cls, seconds: float) -> Timeline:
        """Scale to the length of the demo: 20 s of cut in 120 s, 8 s in 45 s."""
        cut_s = 0.3 * seconds
        length_s = min(CUT_S_MAX, 0.175 * seconds)
        return cls(cut_s, cut_s + 0.4 * length_s, cut_s + length_s, 0.25 * seconds, 0.72 * seconds)


class Demo:
    """One run."""

    def __init__(self, road: Road, screen: Screen, seconds: float) -> None:
        self.road = road
        self.screen = screen
        self.watch = Watch(road, screen)
        self.timeline = Timeline.of(seconds)
        self.drain_s = max(DRAIN_S_MIN, seconds)
        self.faults: list[str] = []
        self.slow: list[str] = []  # waits that ran out: no loss by themselves, as the accounts say what is lost
        self._seen: dict[str, object] = {}
        self.gateway_metrics: observe.Metrics | None = None

    def start(self) -> None:
        """Start every part; the load begins when the road is there, Spark joins as soon as it can."""
        for name, part in self.road.started:
            if part is None:
                continue
            before_s = time.monotonic()
            if name == "spark":
                part.spawn()
                self.watch.spark = Patience(time.monotonic())
            else:
                part.start()
            self.screen.event(f"started {name:<10} pid {part.pid:<7} {time.monotonic() - before_s:5.2f} s")
        names = {self.road.at_central(topic): topic for topic in MIRRORED}
        self.watch.tail = read_back.Tail(self.road.central_bootstrap, names)
        self.watch.tail.start()

    def load(self) -> None:
        """The main part: live data, a cut link, a killed broker."""
        at = self.timeline
        self.watch.begin()
        self._wait(at.cut_s)
        self._cut()
        self._wait(at.kill_s)
        self._kill_edge()
        self._wait(at.restore_s)
        self.road.restore()
        self.watch.link_is_up = True
        self._event("the link is restored" if self.road.link else "the mirror goes on")
        self._wait(at.end_s)

    def _event(self, text: str) -> None:
        self.screen.event(f"{self.watch.elapsed_s():5.0f} s  >>> {text}")

    def _wait(self, until_s: float) -> None:
        while self.watch.elapsed_s() < until_s and not self.watch.deaths:
            self.watch.look()

    def _cut(self) -> None:
        self.road.cut()
        self.watch.link_is_up = False
        length_s = self.timeline.restore_s - self.timeline.cut_s
        if self.road.link:
            self._event(f"the link to central is cut for {length_s:.0f} s")
        else:
            self._event(f"this Kafka's link is not ours to cut: the mirror is held still for {length_s:.0f} s instead")

    def _kill_edge(self) -> None:
        if self.watch.deaths:
            return
        self.watch.sample()
        self.watch.down.add("edge")
        self._event(f"kill -9 of the edge broker (pid {self.road.edge.pid})")
        self.road.edge.kill()
        self.watch.look()
        before_s = time.monotonic()
        self.road.edge.start()
        self.watch.down.discard("edge")
        self._event(f"the edge broker is back after {time.monotonic() - before_s:.2f} s (pid {self.road.edge.pid})")

    def drain(self) -> None:
        """Stop the load and let everything through, from front to back; what does not come through becomes a fault."""
        self._event("the load ends; draining")
        self._stop("fleet", self.road.fleet)
        self._stop("log writer", self.road.log_writer)
        self._await(self._gateway_is_through, "the gateway has not handed over all it took in")
        self.gateway_metrics = observe.scrape(f"http://127.0.0.1:{self.road.gateway_metrics_port}/metrics")
        self._stop("gateway", self.road.gateway)
        self._await_spark()
        self._await(self._mirror_is_through, "the mirror has not reached the end of the edge's topics")
        self._await(self._tail_is_through, "a consumer at central has not read all that the mirror handed over")

    def _await(self, condition: Callable[[], bool], fault: str) -> None:
        before_s = time.monotonic()
        if not self.watch.deaths and not self.watch.until(condition, self.drain_s):
            self.slow.append(f"{fault} (waited {time.monotonic() - before_s:.0f} s)")

    def _await_spark(self) -> None:
        """Wait for Spark as long as it goes on: how long its start and its batches take, this machine has shown."""
        for condition, what in (
            (self._spark_is_through, "Spark has not passed the end of readings"),
            (self._windows_are_finished, "Spark has written no finished window to Parquet"),
        ):
            if not self.watch.deaths and (why := self.watch.until_spark(condition)):
                self.slow.append(f"{what}: {why}")
                return

    def _stop(self, name: str, part: Process) -> None:
        self.watch.sample()
        self.watch.down.add(name)
        try:
            if name not in self.watch.deaths:
                part.stop(STOP_S)
        except ProcessError as error:
            self.faults.append(str(error).partition("\n")[0])
            self.screen.event(str(error))

    def _gateway_is_through(self) -> bool:
        self.watch.fleet.read()
        self.watch.log.read()
        metrics = observe.scrape(f"http://127.0.0.1:{self.road.gateway_metrics_port}/metrics")
        ends = read_back.end_offsets(self.road.edge.bootstrap, ("readings", "logs"))
        stored = {topic: sum(found.values()) for topic, found in ends.items()}
        through = (
            metrics is not None
            and metrics.total("edge_gateway_pending_records") <= 1  # the board goes on
            and stored.get("readings", 0) >= self.watch.fleet.counts["A"]
            and stored.get("logs", 0) >= self.watch.log.counts["W"]
        )
        return self._twice("gateway", stored if through else None)

    def _twice(self, name: str, seen: object) -> bool:
        """Whether the same was seen a second time: copies may hide a straggler the first time."""
        before, self._seen[name] = self._seen.get(name), seen
        return seen is not None and seen == before

    def _spark_is_through(self) -> bool:
        positions = observe.spark_positions(self.road.checkpoint, "readings")
        end = read_back.end_offsets(self.road.edge.bootstrap, ["readings"]).get("readings", {})
        return len(positions) >= 3 and all(observe.behind(found, end) == 0 for found in positions.values())

    def _windows_are_finished(self) -> bool:
        return verify.finished_windows(self.road) > 0  # they follow the batch that moved the watermark

    def _mirror_is_through(self) -> bool:
        ends = read_back.end_offsets(self.road.edge.bootstrap, MIRRORED)
        positions = read_back.committed(self.road.edge.bootstrap, self.road.mirror_group, ends)
        through = all(observe.behind(positions.get(topic, {}), end) == 0 for topic, end in ends.items())
        return self._twice("mirror", ends if through else None)

    def _tail_is_through(self) -> bool:
        assert self.watch.tail is not None
        ends = read_back.end_offsets(self.road.central_bootstrap, map(self.road.at_central, MIRRORED))
        return self.watch.tail.count >= sum(sum(found.values()) for found in ends.values())

    def judge(self) -> verify.Findings:
        """Read both brokers back, whole."""
        assert self.watch.tail is not None
        self.watch.sample()
        self.watch.tail.end()
        self.watch.fleet.read()
        self.watch.log.read()
        self.screen.event("reading both brokers back, whole")
        found = verify.findings(self.road, self.watch.tail, self.watch.fleet, self.watch.log, self.gateway_metrics)
        if not found.windows and not self.slow:
            self.slow.append("Spark left no windows in the topic")
        return found

    def close(self, found: verify.Findings) -> int:
        """Print the closing report and return the exit status."""
        status, sentences = exit_status(found.accounts, [*self.watch.deaths.values(), *self.faults], self.slow)
        self.screen.event(closing.closing_report(self.road, self.watch, found, sentences, self.slow))
        return status

    def keep(self) -> None:
        """Load the road again and leave it running until Ctrl-C."""
        self.road.load_again(self.watch.log.counts["W"])
        for name in ("fleet", "log writer", "gateway"):
            self.watch.down.discard(name)
        self.screen.event(closing.how_to_look(self.road))
        try:
            while not self.watch.deaths:
                self.watch.look_quietly()  # live lines would carry away what was just said
        except KeyboardInterrupt:
            self.screen.event("stopping")

    def stop_all(self) -> None:
        """Stop what still runs, the load first; a part that does not stop cleanly is a fault."""
        for name, part in reversed(self.road.started):
            if part is not None and part.running:
                self._stop(name, part)


def run(options: argparse.Namespace, screen: Screen) -> int:
    """Run the demo once; the exit status."""
    root = options.directory / time.strftime("%Y%m%d-%H%M%S")
    root.mkdir(parents=True)
    ours = options.central in ("edge", "kafka")
    site = "demo" if ours else time.strftime("demo-%Y%m%d-%H%M%S")
    screen.event(f"state, logs and configuration: {root}")
    rotate_s = Timeline.of(options.seconds).rotate_s
    road = Road(root.resolve(), site, edge=options.edge, central=options.central, rotate_after_s=rotate_s)
    demo = Demo(road, screen, options.seconds)
    demo.start()
    demo.load()
    demo.drain()
    found = demo.judge()
    if not options.keep:
        demo.stop_all()
        return demo.close(found)
    status = demo.close(found)
    demo.keep()
    demo.stop_all()
    return status


def arguments(words: Sequence[str] | None) -> argparse.Namespace:
    """The command line of the demo."""
    parser = argparse.ArgumentParser(prog="python -m tests.e2e.demo", description=__doc__, epilog=EXAMPLE)
    parser.add_argument(
        "--seconds", type=int, default=120, help=f"length, at least {SECONDS_MIN} (default: %(default)s)"
    )
    parser.add_argument(
        "--central",
        default="edge",
        metavar="edge|kafka|HOST:PORT",
        help="the datacenter's Kafka (default: %(default)s)",
    )
    parser.add_argument("--edge", default="edge", choices=("edge", "kafka"), help="the site's broker")
    parser.add_argument("--keep", action="store_true", help="leave everything running until Ctrl-C")
    parser.add_argument(
        "--directory", type=Path, default=Path(".demo"), help="where runs are kept (default: %(default)s)"
    )
    options = parser.parse_args(words)
    if options.seconds < SECONDS_MIN:
        parser.error(
            f"--seconds {options.seconds} is too short for a cut, a kill and Spark: give at least {SECONDS_MIN}"
        )
    if options.central not in ("edge", "kafka") and not re.fullmatch(r"[^\s:]+:\d{1,5}", options.central):
        parser.error(f"--central {options.central}: give edge, kafka, or HOST:PORT of a Kafka broker")
    return options


def _end(number: int, _frame: object) -> None:
    raise SystemExit(128 + number)


def main(words: Sequence[str] | None = None) -> int:
    """Run the demo: 0 whole, 1 missing, out of order or dead, 2 bad usage, 3 nothing lost, but not all shown."""
    options, screen = arguments(words), Screen()
    signal.signal(signal.SIGTERM, _end)  # leaves through the exits that reap every child
    try:
        return run(options, screen)
    except KeyboardInterrupt:
        screen.event("interrupted: every part is being stopped")
        return 130
    except MissingRuntimeError as error:
        screen.event(str(error))
    except (ProcessError, read_back.ReadBackError, KafkaException, subprocess.CalledProcessError) as error:
        screen.event(f"the demo failed: {error}")
    return 1


if __name__ == "__main__":
    sys.exit(main())
