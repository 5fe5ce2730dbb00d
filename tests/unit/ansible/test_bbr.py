"""How the role mirror has the kernel let the mirror have BBR, by Ansible on this machine; files in check mode.

`modprobe` and `systemd-detect-virt` are programs of the test's own, which write down how they were called.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml

from kafka_wire.connection.tcp_connect import THROUGH_LOSS
from tests.support.runtimes import console_script

ROLE = Path(__file__).parents[3] / "ansible/roles/mirror"
MODULES, SYSCTL = "/etc/modules-load.d/edge-mirror.conf", "/etc/sysctl.d/60-edge-mirror.conf"
ALL = {"ansible.builtin.import_tasks": str(ROLE / "tasks/bbr.yml")}


class Board:
    """A machine that is a container or not, and whose kernel has the module or not."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.program("systemd-detect-virt", 1)
        self.program("modprobe", 0)

    def program(self, name: str, status: int) -> None:
        path = self.root / name
        path.write_text(f'#!/bin/sh\necho {name} "$@" >>{self.root}/calls\nexit {status}\n')
        path.chmod(0o755)

    def calls(self) -> list[str]:
        return (self.root / "calls").read_text().splitlines()

    def run(self, task: Mapping[str, object], *words: str) -> str:
        """What Ansible says of a task, and which lines it would change."""
        play = {
            "hosts": "localhost",
            "connection": "local",
            "gather_facts": False,
            "tasks": [task],
            "handlers": yaml.safe_load((ROLE / "handlers/main.yml").read_text()),
        }
        playbook = self.root / "playbook.yml"
        playbook.write_text(yaml.safe_dump([play]))
        command = [str(console_script("ansible-playbook")), "--diff", str(playbook), *words]
        environment = os.environ | {"PATH": f"{self.root}:{os.environ['PATH']}", "ANSIBLE_NOCOLOR": "1"}
        done = subprocess.run(
            command, env=environment, cwd=self.root, capture_output=True, text=True, check=False, timeout=120
        )
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-1000:]
        return done.stdout


@pytest.fixture
def board(tmp_path: Path) -> Board:
    return Board(tmp_path)


def test_the_kernel_has_the_module_so_it_is_loaded_at_boot_and_allowed(board):
    said = board.run(ALL, "--check")
    assert board.calls()[-1].split() == ["modprobe", "--quiet", "--dry-run", f"tcp_{THROUGH_LOSS}"], "nothing is loaded"
    assert "No BBR" not in said
    for path in (MODULES, SYSCTL):
        assert not Path(path).exists()
        assert f"+++ after: {path}" in said
    assert f"\n+tcp_{THROUGH_LOSS}\n" in said
    assert f"\n+-net.ipv4.tcp_allowed_congestion_control = reno cubic {THROUGH_LOSS}\n" in said


@pytest.mark.parametrize(
    ("program", "status", "why"),
    [
        ("systemd-detect-virt", 0, "a container has its host's kernel"),
        ("modprobe", 1, "the kernel has no module tcp_bbr"),
    ],
)
def test_who_cannot_have_it_is_told_why_and_nothing_is_written(board, program, status, why):
    board.program(program, status)
    said = board.run(ALL, "--check")
    assert f"No BBR for the mirror: {why}" in said
    assert MODULES not in said
    assert SYSCTL not in said


def test_a_real_run_loads_what_check_mode_only_looks_for(board):
    load = yaml.safe_load((ROLE / "tasks/bbr.yml").read_text())[0]
    board.run(load)
    assert board.calls()[-1].split() == ["modprobe", "--quiet", f"tcp_{THROUGH_LOSS}"]
