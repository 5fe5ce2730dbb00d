"""A service of others, without /health: it must start with a changed file, or gets the former one back."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.support.ansible_files import ANSIBLE, copy_role
from tests.support.runtimes import console_script

SYSTEMCTL = """#!/bin/sh
case $1 in
is-active) if grep -q good {file}; then echo active; else echo failed; exit 3; fi ;;
show) if grep -q good {file}; then echo active; else echo failed; fi ;;
esac
"""


@pytest.mark.parametrize("word", ["good enough", "bad"])
def test_a_service_that_does_not_start_with_a_changed_file_gets_the_former_one(tmp_path, monkeypatch, word):
    file, root = tmp_path / "mosquitto.conf", tmp_path / "opt"
    file.write_text("listener good\n")
    for name, text in (
        ("systemctl", SYSTEMCTL.format(file=file)),
        ("journalctl", "#!/bin/sh\necho Error: no address\n"),
    ):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    former = [sys.executable, str(ANSIBLE / "roles/drupelet/files/former.py")]
    subprocess.run([*former, "keep", str(root), "mosquitto", str(file)], check=True, timeout=60)
    file.write_text(f"listener {word}\n")
    status, said = wait(tmp_path, root)
    if word == "bad":
        assert status == 2
        assert (
            "mosquitto on localhost does not start, systemd says failed. It wrote last: Error: no address. "
            f"The former {file} is back, and it is healthy again. `journalctl -u mosquitto` there says more." in said
        )
        assert file.read_text() == "listener good\n"
    else:
        assert status == 0, said
        assert file.read_text() == "listener good enough\n"
    assert not list((root / "former").iterdir())


def wait(tmp_path: Path, root: Path) -> tuple[int, str]:
    role = copy_role("drupelet", tmp_path)
    given = {
        "role_path": str(role),  # it is included by roles
        "drupelet_service": "mosquitto",
        "drupelet_root": str(root),
        "drupelet_before_change": {"mosquitto": {"kept": True}},
    }
    task = {"ansible.builtin.include_tasks": str(role / "tasks/active.yml"), "vars": given}
    (tmp_path / "play.yml").write_text(yaml.safe_dump([{"hosts": "localhost", "gather_facts": False, "tasks": [task]}]))
    done = subprocess.run(
        [str(console_script("ansible-playbook")), str(tmp_path / "play.yml")],
        cwd=ANSIBLE, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    return done.returncode, " ".join((done.stdout + done.stderr).split())
