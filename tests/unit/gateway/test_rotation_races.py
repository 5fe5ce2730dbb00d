"""A rotating tool acts between any two system calls of a read: each line is read once, and nothing is reported as lost.

Each case counts the calls of one read, then repeats the case with the act before the first call, the second, and so on.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest

from gateway.sources.file_reading.places import Item, UnreadRest
from tests.support.gateway.followed_file import append, follow, read_all
from tests.support.gateway.rotated_file import compress, copy_and_truncate, line_texts, rotate

CALLS = ("scandir", "stat", "open", "fstat", "pread", "lseek")
Step = Callable[[Path], None]


class Interleaved:
    """Calls `steps` before the system calls of those numbers, counted from `start` on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._due: dict[int, Callable[[], None]] = {}
        self._count: int | None = None
        for name in CALLS:
            monkeypatch.setattr(os, name, self._counting(getattr(os, name)))

    def start(self, due: dict[int, Callable[[], None]]) -> None:
        self._due, self._count = due, 0

    def stop(self) -> bool:
        """Take the steps that are left; return whether there were any."""
        left, self._due, self._count = self._due, {}, None
        for number in sorted(left):
            left[number]()
        return bool(left)

    def _counting(self, call: Callable[..., object]) -> Callable[..., object]:
        def counted(*args: object, **kwargs: object) -> object:
            if self._count is not None:
                self._count += 1
                if step := self._due.pop(self._count, None):
                    count, self._count = self._count, None  # the step's own calls do not count
                    step()
                    self._count = count
            return call(*args, **kwargs)

        return counted


def copy(log: Path) -> None:
    shutil.copyfile(log, log.with_name("app.log.1"))


def truncate(log: Path) -> None:
    os.truncate(log, 0)


def rotate_away(log: Path) -> None:
    rotate(log, 9)


def rotate_and_compress(log: Path) -> None:
    rotate(log, 9)
    compress(log.with_name("app.log.1"))


def move_aside(log: Path) -> None:
    log.rename(log.with_name("app.log.1"))


def compress_last(log: Path) -> None:
    compress(log.with_name("app.log.1"))


def compress_second(log: Path) -> None:
    compress(log.with_name("app.log.2"))


def rename_copy(log: Path) -> None:
    log.with_name("app.log.1").rename(log.with_name("app.log-20261129"))


ACTS: dict[str, tuple[Step, ...]] = {
    "renamed": (rotate_away,),
    "renamed and compressed": (rotate_and_compress,),
    "renamed, then created": (move_aside, Path.touch),
    "renamed, then compressed": (rotate_away, compress_last),
    "copied and truncated": (copy_and_truncate,),
    "copied, then truncated": (copy, truncate),
    "copied and truncated, then compressed": (copy_and_truncate, compress_last),
    "copied and truncated, then renamed": (copy_and_truncate, rename_copy),
    "copied, truncated, and compressed": (copy, truncate, compress_last),
}
SECOND_ACTS: dict[str, tuple[Step, ...]] = {  # of a file that was rotated by the first of them before
    "renamed, and the one before compressed": (rotate_away, compress_second),
    "copied and truncated, and the one before compressed": (copy_and_truncate, compress_second),
    "copied and truncated twice": (copy_and_truncate, copy_and_truncate),
}


def cases() -> Iterator[tuple[str, bool, int]]:
    for act, steps in (ACTS | SECOND_ACTS).items():
        for is_read in (False, True):
            for distance in (1,) if len(steps) == 1 else (1, 2, 5, 13):
                yield act, is_read, distance


@pytest.mark.parametrize(("act", "is_read", "distance"), list(cases()))
def test_a_rotation_between_any_two_system_calls_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, act: str, is_read: bool, distance: int
) -> None:
    calls, number, was_left = Interleaved(monkeypatch), 1, False
    while not was_left:
        log = tmp_path / str(number) / "app.log"
        log.parent.mkdir()
        log.write_bytes(b"0\n")
        race = Race(log, calls)
        if act in SECOND_ACTS:
            SECOND_ACTS[act][0](log)
        append(log, b"1\n")
        race.read(until_quiet=is_read)
        append(log, b"2\n")
        steps = (ACTS | SECOND_ACTS)[act]
        was_left = race.read_while({number + at * distance: partial(step, log) for at, step in enumerate(steps)})
        append(log, b"3\n")
        race.finish()
        assert line_texts(race.items) == [b"0", b"1", b"2", b"3"], f"before call {number}"
        assert not [item for item in race.items if isinstance(item, UnreadRest)], f"before call {number}"
        number += 1


class Race:
    """A tail that follows a file, and all that it has read."""

    def __init__(self, log: Path, calls: Interleaved) -> None:
        self._calls, self._tail = calls, follow(log)
        self.items: list[Item] = read_all(self._tail)

    def read(self, *, until_quiet: bool) -> None:
        self.items += read_all(self._tail) if until_quiet else self._tail.read()

    def read_while(self, due: dict[int, Callable[[], None]]) -> bool:
        """Read once while the steps are taken; return whether some came after the read."""
        self._calls.start(due)
        self.items += self._tail.read()
        return self._calls.stop()

    def finish(self) -> None:
        self.items += read_all(self._tail)
        self._tail.close()


FINE: dict[str, tuple[str, str, str]] = {  # the names of the rotated files, the oldest first
    "log4j2 counts upwards": ("app-1.log", "app-2.log", "app-3.log"),
    "logrotate counts downwards": ("app.log.3", "app.log.2", "app.log.1"),
}


def rotation(log: Path, names: tuple[str, ...], content: bytes) -> list[Callable[[], None]]:
    """Return one step for each name that the tool changes, and the program's write at the end."""
    steps: list[Callable[[], None]] = [partial(log.with_name(names[0]).unlink, missing_ok=True)]
    for older, newer in pairwise((*names, log.name)):
        steps.append(partial(rename_if_exists, log.with_name(newer), log.with_name(older)))
    return [*steps, log.touch, partial(append, log, content)]


def rename_if_exists(path: Path, target: Path) -> None:
    if path.exists():
        path.rename(target)


@pytest.mark.parametrize("per_call", [1, 2, 4, 7])
@pytest.mark.parametrize("rotations", [1, 2])
@pytest.mark.parametrize("is_read", [False, True])
@pytest.mark.parametrize("names", list(FINE.values()), ids=list(FINE))
def test_a_line_that_is_being_written_stays_whole_through_any_rotation(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    names: tuple[str, ...],
    is_read: bool,
    rotations: int,
    per_call: int,
) -> None:
    """Some files may be deleted before they were seen; the line in the last file is not."""
    calls, number, was_left = Interleaved(monkeypatch), 1, False
    while not was_left:
        log = tmp_path / str(number) / "app.log"
        log.parent.mkdir()
        log.write_bytes(b"0\n")
        race = Race(log, calls)
        for content in (b"1\n", b"2\n", b"3\n"):
            for step in rotation(log, names, content):
                step()
            race.read(until_quiet=is_read)
        contents = [*[b"4\n"] * (rotations - 1), b"9\nbegun"]
        steps = [step for content in contents for step in rotation(log, names, content)]
        due = {
            number + at: partial(take_all, steps[at * per_call : (at + 1) * per_call])
            for at in range(-(-len(steps) // per_call))
        }
        was_left = race.read_while(due)
        race.read(until_quiet=True)
        append(log, b" and ended\n")
        race.finish()
        lines = line_texts(race.items)
        assert lines[-1] == b"begun and ended", f"before call {number}: {lines}"
        assert lines == sorted(set(lines)), f"before call {number}"
        assert not [item for item in race.items if isinstance(item, UnreadRest)] or not is_read, f"before call {number}"
        number += 1


def take_all(steps: Sequence[Callable[[], None]]) -> None:
    for step in steps:
        step()
