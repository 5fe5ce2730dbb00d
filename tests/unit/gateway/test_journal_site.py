"""The simulated journald deletes the archived files that journalctl --vacuum-files deletes."""

from __future__ import annotations

import os
import random
import shutil
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.journal_site import SimulatedJournald

CREATED = "user.crtime_usec"  # journald gives each file its time of creation


def numbers_before_times(machine: SimulatedJournald) -> None:
    machine.log("1")
    machine.jump(-1.0)
    machine.log("2", kind="user-1000")
    machine.rotate()


def numbers_of_two_boots(machine: SimulatedJournald) -> None:
    machine.log("1", kind="user-1000")
    machine.log("2", "3", "4", "5")
    machine.rotate()
    machine.log("6", "7")
    machine.boot()
    machine.log("2", kind="user-1000")
    machine.log("3", kind="user-1001")
    machine.log("8")
    machine.rotate()


def set_aside_after_the_clock_went_back(machine: SimulatedJournald) -> None:
    machine.log("1", "2")
    machine.rotate()
    machine.jump(-1.0)
    machine.log("3")
    machine.boot(clean=False)
    machine.log("1")


def set_aside_without_entries(machine: SimulatedJournald) -> None:
    machine.log("1")
    machine.log("2", kind="user-1000")
    machine.rotate()
    machine.boot(clean=False)
    machine.log("1")


@pytest.mark.parametrize("keep", [0, 1, 2])
@pytest.mark.parametrize("shared_id", [True, False])
@pytest.mark.parametrize(
    "play",
    [numbers_before_times, numbers_of_two_boots, set_aside_after_the_clock_went_back, set_aside_without_entries],
)
def test_the_files_that_journalctl_deletes_are_deleted(
    tmp_path: Path, play: Callable[[SimulatedJournald], None], shared_id: bool, keep: int
) -> None:
    machine = SimulatedJournald(tmp_path / "site", random.Random(1), shared_id)
    play(machine)
    directory, copy = machine.root / machine.machine_id, tmp_path / "copy"
    shutil.copytree(directory, copy)
    for path, content in machine._contents.items():
        os.setxattr(copy / path.name, CREATED, struct.pack("<Q", content.oldest_us))
    active_count = sum("@" not in path.name for path in directory.iterdir())
    words = ["journalctl", "--directory", copy, f"--vacuum-files={active_count + keep}"]
    subprocess.run(words, check=True, capture_output=True)
    machine.vacuum(keep)
    machine.close()
    assert sorted(os.listdir(directory)) == sorted(os.listdir(copy))
