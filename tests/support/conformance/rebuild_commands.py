"""Runs the commands of a rebuild."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.support.processes import EdgeBroker
from tests.support.zookeeper import ZooKeeperEnsemble

WAIT_S = 60


def command(*words: str | Path) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "edge_broker", "cluster", *map(str, words)]
    return subprocess.run(line, capture_output=True, text=True, timeout=WAIT_S, check=False)


def described(board: EdgeBroker, directory: Path) -> Path:
    path = directory / f"{board.name}.json"
    ran = command("disk", "--data-dir", board.data_dir, "--json")
    assert ran.returncode == 0, ran.stderr
    path.write_text(ran.stdout)
    return path


def rebuild(ensemble: ZooKeeperEnsemble, files: Sequence[Path], *more: str) -> subprocess.CompletedProcess[str]:
    disks = [word for path in files for word in ("--disk", path)]
    return command("rebuild", *disks, "--set", f"zookeeper.connect={ensemble.connect}", *more)
