"""The grid: which cells there are, on which link, with which data, for how long. Pure.

A cell's name is `KIND@LINK`, by which it is asked for and kept; kinds carry their data: `bulk-a`, `bulk-a-1p` (one
partition), `bulk-a-metered` (bytes cost money), `first-secured` (by TLS and SCRAM), `pull-bulk-a` (the mirror at the
target's side). Must never come in: how a cell is measured, what it should come to (levels.py).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from tests.support.linked_hosts import Link

LAN = Link("lan")
GOOD = Link("10M", 0.050, 0.0, 10_000_000)
LOSSY = Link("1M", 0.150, 0.02, 1_000_000)
THIN = Link("256k", 0.300, 0.0, 256_000, queue_bytes=64 * 1024)  # 2 s wait in it at most, as in LOSSY's
LINKS = {link.name: link for link in (LAN, GOOD, LOSSY, THIN)}
SHAPED = (GOOD, LOSSY, THIN)

PULL = "pull-"
MIRROR, MM2, BARE = "mirror", "mm2", "bare"  # BARE: no mirror at all, the link alone
SIDES = (MIRROR, MM2)


@dataclass(frozen=True, slots=True)
class Cell:
    """One measurement: `first_s` bounds the wait for its begin, `warm_s` pass behind that, then it lasts `seconds`."""

    kind: str
    link: Link
    seconds: float
    warm_s: float = 0.0
    first_s: float = 60.0
    data: str = "a"
    partitions: int = 4
    rate: float = 0.0
    is_pull: bool = False
    is_secured: bool = False
    is_metered: bool = False

    @property
    def name(self) -> str:
        """What it is asked for by."""
        return f"{self.kind}@{self.link.name}"

    @property
    def family(self) -> str:
        """Which way it is measured: bulk, pull, trickle, alarms …"""
        return self.kind.removeprefix(PULL).partition("-")[0]

    @property
    def sides(self) -> tuple[str, ...]:
        """Whom it is measured with."""
        is_alone = self.family == "many" or self.is_secured or self.is_metered
        return (BARE,) if self.family == "tcp" else (MIRROR,) if is_alone else SIDES

    @property
    def estimate_s(self) -> float:
        """About how long it takes, starts included."""
        return 8.0 + self.warm_s + self.seconds + (MANY_S if self.family == "many" else 0.0)


MANY_S = 60.0  # until many topics are there, and begun
OUTAGE_S = 125.0  # of which the link is away for a minute
WINDOWS = {GOOD: (4.0, 12.0), LOSSY: (10.0, 30.0), THIN: (10.0, 30.0)}  # to warm up, to measure


def one_partition(link: Link) -> str:
    """Which data are moved in one partition alone, too."""
    return "abc" if link == GOOD else "a"


def _bulks(link: Link) -> list[Cell]:
    if not link.is_shaped:
        return [Cell(f"bulk-{data}", link, 20.0, data=data) for data in "abc"] + [
            Cell("bulk-a-1p", link, 20.0, partitions=1),
            Cell("pull-bulk-a", link, 20.0, is_pull=True),
        ]
    warm_s, seconds = WINDOWS[link]
    times = {"seconds": seconds, "warm_s": warm_s}
    found = [Cell(f"bulk-{data}", link, data=data, **times) for data in "abc"]
    found.append(Cell("tcp", link, partitions=1, **times))
    found += [Cell(f"bulk-{data}-1p", link, data=data, partitions=1, **times) for data in one_partition(link)]
    found.append(Cell("bulk-a-metered", link, is_metered=True, **times))
    return [*found, Cell("pull-bulk-a", link, is_pull=True, **times)]


def grid() -> list[Cell]:
    """Every cell, those of one link together."""
    trickle = {"rate": 500.0, "warm_s": 5.0}
    alarms = {"rate": 5.0, "warm_s": 5.0, "seconds": 40.0}
    outage = {"data": "b", "seconds": OUTAGE_S, "warm_s": 5.0}
    many = {"rate": 0.1, "warm_s": 20.0}
    return [
        *_bulks(LAN),
        Cell("first", LAN, 4.0),
        Cell("many", LAN, 20.0, **many),
        *_bulks(GOOD),
        Cell("first", GOOD, 4.0),
        Cell("first-secured", GOOD, 4.0, is_secured=True),
        Cell("trickle-500", GOOD, 25.0, **trickle),
        Cell("trickle-0.1", GOOD, 60.0, rate=0.1, warm_s=20.0, partitions=1),
        Cell("alarms", GOOD, **alarms),
        Cell("kills", GOOD, 40.0, rate=300.0),
        Cell("outage", GOOD, rate=1500.0, **outage),
        Cell("many", GOOD, 60.0, **many),
        *_bulks(LOSSY),
        Cell("first", LOSSY, 10.0),
        Cell("first-secured", LOSSY, 10.0, is_secured=True),
        Cell("trickle-500", LOSSY, 40.0, **trickle),
        Cell("alarms", LOSSY, **alarms),
        Cell("outage", LOSSY, rate=200.0, **outage),
        *_bulks(THIN),
        Cell("first", THIN, 15.0),
        Cell("first-secured", THIN, 15.0, is_secured=True),
        Cell("alarms", THIN, **alarms),
    ]


def every() -> list[Cell]:
    """The grid, and behind it all others with the mirror at the target's side, measured when they are asked for."""
    found = grid()
    pushed = [cell for cell in found if not cell.is_pull and cell.family != "tcp"]
    pulls = [replace(cell, kind=PULL + cell.kind, is_pull=True) for cell in pushed]
    names = {cell.name for cell in found}
    return [*found, *(cell for cell in pulls if cell.name not in names)]


def chosen(cells: list[Cell], patterns: str) -> list[Cell]:
    """Those that match one of the patterns, with commas between (`*` as in a shell); ValueError: one matches none."""
    found: list[Cell] = []
    for pattern in patterns.split(","):
        matching = [cell for cell in cells if fnmatchcase(cell.name, pattern)]
        if not matching:
            raise ValueError(f"no cell is called {pattern!r}: `--list` names them")
        found += matching
    return [cell for cell in cells if cell in found]
