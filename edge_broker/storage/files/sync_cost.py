"""Measure the cost of a sync on the data directory's storage device, once, and keep it.

| line of the file `card` | content |
|---|---|
| `write <bytes> <samples> <p50> <p99> <greatest>` | µs of so many bytes written at a file's end and their fdatasync |
| `each <files> <µs>` | so many files, 4 KiB more in each: write-out begun for all, then fdatasync of each |
| `all <files> <µs>` | the same with one syncfs; -1 where syncfs proves nothing |

Measured at the first start, while the broker serves: a figure holds what it does meanwhile. At most BYTES_MAX are
written, and no stage begins another sample once its share of SECONDS_MAX is used up; a card that needs longer for one
sync is measured by that one. Delete the file to measure again.

Contains: the measurement, in steps, and its file. Does not contain: clocks, what follows from it (group_commit.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from edge_broker.storage.files.atomic_files import NEW_SUFFIX, encode_state, read_state, replace, write_all

if TYPE_CHECKING:
    from edge_broker.storage.files.filesystem import File, FileSystem

NAME = KIND = "card"
BYTES_MAX = 4 << 20
SECONDS_MAX = 2.0
STAGES = ((4096, 64), (65536, 16), (1 << 20, 2))  # bytes of a write, samples at most
FILES = 10
FILES_ROUNDS = 4


class Cost(NamedTuple):
    """The time of one write of `size` bytes and its fdatasync, µs; with few samples p99 is the greatest."""

    size: int
    samples: int
    p50_us: int
    p99_us: int
    max_us: int


class Card(NamedTuple):
    """The measurement; `files_us`: `files` files synced one by one, `all_us`: by one syncfs, -1: proves nothing."""

    costs: tuple[Cost, ...]
    files: int
    files_us: int
    all_us: int

    def each_us(self, files: int) -> float:
        """Return the time to sync so many files one by one."""
        return self.files_us * files / self.files


def read_card(fs: FileSystem, data_dir: str) -> Card | None:
    """Return the kept measurement; None without one. StorageFault for a damaged file, OSError."""
    try:
        lines = read_state(fs, f"{data_dir}/{NAME}", KIND)
    except FileNotFoundError:
        return None
    costs = tuple(Cost(*map(int, line[1:])) for line in lines if line[0] == "write")
    ways = {line[0]: (int(line[1]), int(line[2])) for line in lines if line[0] in ("each", "all")}
    return Card(costs, *ways["each"], ways["all"][1])


def write_card(fs: FileSystem, data_dir: str, card: Card) -> None:
    """Keep what was measured; synced. OSError."""
    lines = [f"write {' '.join(map(str, cost))}" for cost in card.costs]
    lines += [f"each {card.files} {card.files_us}", f"all {card.files} {card.all_us}"]
    replace(fs, data_dir, NAME, encode_state(KIND, 1, lines))


def describe(card: Card) -> list[str]:
    """One line per figure, for people."""
    lines = [
        f"write and fdatasync of {cost.size // 1024} KiB: p50 {_ms(cost.p50_us)}, p99 {_ms(cost.p99_us)}, "
        f"greatest {_ms(cost.max_us)} ({cost.samples} samples)"
        for cost in card.costs
    ]
    whole = _ms(card.all_us) if card.all_us >= 0 else "proves nothing on this file system"
    return [*lines, f"{card.files} files: {_ms(card.files_us)} by fdatasync of each; one syncfs: {whole}"]


def _ms(microseconds: int) -> str:
    return f"{microseconds / 1000:.2f} ms"


def measure(fs: FileSystem, data_dir: str, seconds: Callable[[], float]) -> Iterator[Card | None]:
    """Measure in steps: None after each sample, then the card. The caller runs other jobs between them. OSError.

    Its files go at the end; those of a measurement that was broken off are dropped by the next unclean start, or
    written over by the next measurement.
    """
    paths = [f"{data_dir}/.card-{number}{NEW_SUFFIX}" for number in range(FILES)]
    try:
        costs = []
        for size, samples_max in STAGES:
            taken: list[float] = []
            for took in _writes(fs.create(paths[0]), size, seconds):
                taken.append(took)
                yield None
                if len(taken) >= samples_max or sum(taken) > SECONDS_MAX / 4:
                    break
            costs.append(_cost(size, taken))
        files = [fs.create(path) for path in paths]
        files_us: dict[str, list[float]] = {"each": [], "all": []}
        for number in range(FILES_ROUNDS):
            for way, taken in files_us.items():
                if sum(taken) <= SECONDS_MAX / 8:
                    taken.append(_round(fs, data_dir, files, number * 2 + (way == "all"), seconds, way == "all"))
                    yield None
        each, whole = (min(files_us[way]) for way in ("each", "all"))
        yield Card(tuple(costs), FILES, _us(each), _us(whole) if whole >= 0 else -1)
    finally:
        for path in paths:
            with suppress(FileNotFoundError):
                fs.remove(path)


def _writes(file: File, size: int, seconds: Callable[[], float]) -> Iterator[float]:
    data, position = bytes(size), 0
    while True:
        begin = seconds()
        write_all(file, data, position)
        file.datasync()
        position += size
        yield seconds() - begin


def _round(
    fs: FileSystem, data_dir: str, files: Sequence[File], page: int, seconds: Callable[[], float], whole: bool
) -> float:
    """One more page in each file, synced; seconds, or -1 where syncfs proves nothing."""
    begin = seconds()
    for file in files:
        write_all(file, bytes(4096), page * 4096)
    for file in files:
        file.start_writeout(page * 4096)
    if whole:
        try:
            fs.sync_all(data_dir)
        except OSError:
            return -1.0
    else:
        for file in files:
            file.datasync()
    return seconds() - begin


def _cost(size: int, taken: Sequence[float]) -> Cost:
    ordered = sorted(taken)
    p50, p99 = (ordered[min(len(ordered) * percent // 100, len(ordered) - 1)] for percent in (50, 99))
    return Cost(size, len(ordered), _us(p50), _us(p99), _us(ordered[-1]))


def _us(seconds: float) -> int:
    return round(seconds * 1e6)
