"""`make bench-mirror`: edge-mirror and MirrorMaker 2 in the same cells, over the same links, in one run (root).

Lives here: the command line, the order, the time that is left. A cell whose figures are in the file is not measured
again, so a run that was broken off, or whose minutes were over, is gone on with by the same command.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import time
import tomllib
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path

from confluent_kafka import KafkaException

from tests.benchmarks.mirror.bulk import Figures, bare, bulk
from tests.benchmarks.mirror.cells import BARE, MIRROR, MM2, SIDES, Cell, chosen, every, grid
from tests.benchmarks.mirror.faults import OUTAGE_S, first, kills, outage
from tests.benchmarks.mirror.lab import Lab
from tests.benchmarks.mirror.many import many
from tests.benchmarks.mirror.plot import lag_plot
from tests.benchmarks.mirror.results import Results
from tests.benchmarks.mirror.table import number, table
from tests.benchmarks.mirror.trickle import trickle
from tests.support import runtimes
from tests.support.processes import DeadlineError, ProcessError

ROOT = Path(__file__).resolve().parents[3]
RESULTS = ROOT / "bench-results/mirror.json"
MEASURES = {"bulk": bulk, "tcp": bare, "trickle": trickle, "alarms": trickle}
MEASURES |= {"outage": outage, "kills": kills, "first": first, "many": many}
WHO = {MIRROR: "edge-mirror", MM2: "MirrorMaker 2"}
BROKE = (ProcessError, DeadlineError, KafkaException, TimeoutError)


def say(text: str) -> None:
    """Say how far the run is."""
    print(text, file=sys.stderr, flush=True)


def measured(lab: Lab, cell: Cell, side: str) -> Figures:
    """Figures of a cell; what broke is one of them."""
    lab.use(cell.link)
    try:
        return MEASURES[cell.family](lab, cell, side)
    except BROKE as error:
        say(f"{cell.name} {side}: {error}")
        return {"failed": str(error).splitlines()[0]}


def run(options: argparse.Namespace, cells: list[Cell], results: Results) -> int:
    """Measure what is missing until the minutes are over; how many measurements are left."""
    sides = [*options.side.split(","), BARE]
    wanted = [(cell, side) for cell in cells for side in cell.sides if side in sides]
    left = [(cell, side) for cell, side in wanted if options.again or not results.has(cell.name, side)]
    end = time.monotonic() + 60 * options.minutes
    settings = tomllib.loads("\n".join(options.setting))
    with ExitStack() as stack:
        lab = None
        while left and time.monotonic() + left[0][0].estimate_s < end:
            if lab is None:
                name = stack.enter_context(tempfile.TemporaryDirectory(prefix="drupelet-bench-", dir=options.scratch))
                lab = stack.enter_context(Lab(Path(name), options.mirror, settings, say, options.scale))
            cell, side = left.pop(0)
            began = time.monotonic()
            found = measured(lab, cell, side)
            took_s = time.monotonic() - began
            about = {"took_s": round(took_s, 1), "at": datetime.now(UTC).isoformat(timespec="seconds")}
            about |= {"program": str(options.mirror), "settings": settings} if side == MIRROR else {}
            results.put(cell.name, side, found, **about)
            told = ", ".join(f"{key} {number(value)}" for key, value in found.items() if isinstance(value, int | float))
            say(f"{cell.name:<16} {side:<7} {took_s:4.0f} s  {told}  ({len(left)} left)")
    return len(left)


def draw(results: Results, path: Path) -> None:
    """Draw the lag over each outage that was measured, beside the figures."""
    for cell in grid():
        lags = {WHO[side]: results.figures(cell.name, side).get("lag", []) for side in SIDES}
        if cell.family == "outage" and any(lags.values()):
            title = f"Lag over a minute without the link, in records ({cell.rate:g}/s, {cell.link.name}bit/s)"
            drawn = path.with_name(f"{path.stem}-outage-{cell.link.name}.svg")
            drawn.write_text(lag_plot(title, {who: lag for who, lag in lags.items() if lag}, OUTAGE_S))
            say(f"drawn: {drawn}")


def parser() -> argparse.ArgumentParser:
    """The options."""
    made = argparse.ArgumentParser(prog="python -m tests.benchmarks.mirror", description=__doc__)
    made.add_argument("--only", metavar="CELLS", help="with commas between; `*` as in a shell, say 'bulk-a@*'")
    made.add_argument("--side", default=",".join(SIDES), help="mirror, mm2, or both")
    made.add_argument("--minutes", type=float, default=60, help="no cell is begun that would end later")
    made.add_argument("--again", action="store_true", help="measure also what the file holds already")
    made.add_argument("--mirror", type=Path, metavar="PROGRAM", help="the edge-mirror of another checkout")
    made.add_argument("--setting", action="append", default=[], metavar="KEY=VALUE", help="a line of its TOML file")
    made.add_argument("--results", type=Path, default=RESULTS, metavar="FILE", help="where figures are kept")
    made.add_argument("--scratch", type=Path, default=ROOT, metavar="DIR", help="where 2 GB are free")
    made.add_argument("--scale", type=float, default=1.0, help="factor on backlogs, for a trial")
    made.add_argument("--list", action="store_true", help="name the cells and end")
    return made


def main() -> int:
    """Measure; 0 when no cell is left."""
    options = parser().parse_args()
    try:
        cells = chosen(every(), options.only) if options.only else grid()
        results = Results(options.results)
    except ValueError as error:
        sys.exit(str(error))
    if unknown := set(options.side.split(",")) - set(SIDES):
        sys.exit(f"no side is called {', '.join(sorted(unknown))}: there are {' and '.join(SIDES)}")
    if options.list:
        for cell in cells:
            print(f"{cell.name:<16} {cell.estimate_s * len(cell.sides):4.0f} s")
        return 0
    if os.geteuid() != 0:
        sys.exit("Network namespaces need root: sudo make bench-mirror")
    options.mirror = options.mirror or runtimes.console_script("edge-mirror")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))  # so that what was begun is taken away
    left = run(options, cells, results)
    print(table(cells, results.figures))
    draw(results, options.results)
    if left:
        say(f"{left} cells are left: the same command goes on with them")
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main())
