"""`make cluster` as a person has it: what it says is there, what dies comes back, and Ctrl-C leaves nothing."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

from tests.support import runtimes
from tests.support.processes import Process
from tests.support.waiting import CALL_S, wait_until

PART = re.compile(r"^((?:broker|zookeeper)-\d) +(\S+) +pid (\d+)", re.MULTILINE)
BACK = re.compile(r"^(\S+) is back after .*, pid (\d+)$", re.MULTILINE)


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def status(bootstrap: str) -> tuple[int, str]:
    command = [runtimes.console_script("edge-broker"), "cluster", "status", "--bootstrap-server", bootstrap]
    done = subprocess.run(command, capture_output=True, text=True, timeout=CALL_S, check=False)
    return done.returncode, done.stdout


def test_what_dies_comes_back_and_nothing_is_left(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.e2e.cluster", "--directory", str(tmp_path), "--restart-after", "1"]
    with Process("trial", command, tmp_path, ready="Ctrl-C ends all of it.", ready_s=120) as trial:
        parts = {name: (place, int(pid)) for name, place, pid in PART.findall(trial.output())}
        assert sorted(parts) == [f"{kind}-{number}" for kind in ("broker", "zookeeper") for number in (1, 2, 3)]
        bootstrap = parts["broker-1"][0]
        well = "well: 3 brokers, 7 partitions, every replica in sync"  # the ledger's is one of them
        wait_until(lambda: well in status(bootstrap)[1], 60, "all is well", seen=lambda: status(bootstrap))
        for name in ("broker-2", "zookeeper-3"):
            os.kill(parts[name][1], signal.SIGKILL)
            wait_until(lambda name=name: name in dict(BACK.findall(trial.output())), 60, f"{name} is back")
        back = {name: int(pid) for name, pid in BACK.findall(trial.output())}
        os.kill(parts["broker-3"][1], signal.SIGSTOP)  # one that hangs is ended, too
        trial.send_signal(signal.SIGINT)
        assert trial.wait(120) == 0
        assert trial.output().endswith("everything is stopped\n")
    assert [pid for pid in (*back.values(), *(pid for _, pid in parts.values())) if alive(pid)] == []
