"""Schedules are played seed after seed, alone or several at once, and say the same."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.simulation import schedules
from tests.support.waiting import CALL_S, wait_until


class Played(NamedTuple):
    seed: int
    failure: str
    trace: tuple[str, ...] = ("a line",)
    counts: dict[str, float] = {"acts": 2.0}  # noqa: RUF012  nobody changes it


def play(bad: int, seed: int) -> Played:
    return Played(seed, "it does not hold" if seed % bad == bad - 1 else "")


def note_process(directory: Path, seed: int) -> Played:
    """Wait until a second process plays, too."""
    (directory / str(os.getpid())).touch()
    wait_until(lambda: len(list(directory.iterdir())) > 1, CALL_S, "two processes play")
    return Played(seed, "")


def run(*arguments: str, bad: int) -> int:
    return schedules.run(schedules.parser("").parse_args(arguments), partial(play, bad), "simulate")


@pytest.mark.parametrize("processes", ["1", "2"])
def test_all_seeds_are_played_in_their_order_and_counted(processes: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--seed", "7", "--schedules", "50", "--processes", processes, bad=1000) == 0
    assert capsys.readouterr().out.startswith("from seed 7 on\n50 schedules, 100.0 acts, ")


@pytest.mark.parametrize("processes", ["1", "2"])
def test_the_first_failure_ends_it_with_what_was_done(processes: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--seed", "0", "--schedules", "50", "--processes", processes, bad=20) == 1
    said = capsys.readouterr().out.splitlines()[1:]
    assert said == ["  a line", "FAILED seed 19: it does not hold", "replay it alone: make simulate SEED=19"]


@pytest.mark.parametrize("processes", ["1", "2"])
def test_it_may_go_on_behind_failures(processes: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--seed", "0", "--schedules", "50", "--go-on", "--processes", processes, bad=20) == 1
    said = capsys.readouterr().out.splitlines()[1:]
    assert [line for line in said if line.startswith("FAILED")] == [
        "FAILED seed 19: it does not hold",
        "FAILED seed 39: it does not hold",
    ]
    assert said[-1].startswith("50 schedules, 2 failed, 100.0 acts, ")


def test_it_ends_when_its_time_is_over() -> None:
    assert run("--seconds", "0.01", "--processes", "2", bad=1 << 50) == 0


def test_several_play_at_once(tmp_path: Path) -> None:
    options = schedules.parser("").parse_args(["--seed", "0", "--schedules", "4", "--processes", "2"])
    assert schedules.run(options, partial(note_process, tmp_path), "simulate") == 0
