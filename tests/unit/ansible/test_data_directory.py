"""A broker gets no other data directory as long as its records are in the former one."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.support.ansible_files import ANSIBLE
from tests.support.runtimes import console_script


@pytest.mark.parametrize(
    ("unit_has", "stores", "is_refused"),
    [
        ("", (), False),
        ("former", (), False),
        ("former", ("former",), True),
        ("former", ("former", "wanted"), False),
        ("former", ("wanted",), False),
        ("wanted", ("wanted",), False),
    ],
    ids=["new board", "never started", "not moved", "copied", "moved", "unchanged"],
)
@pytest.mark.parametrize("words", [(), ("--check",)], ids=["run", "check mode"])
def test_another_data_directory_is_refused_until_the_records_are_in_it(tmp_path, unit_has, stores, is_refused, words):
    path = f"{tmp_path}/{unit_has}" if unit_has else ""
    (tmp_path / "systemctl").write_text(f"#!/bin/sh\necho '{path}'\n")
    (tmp_path / "systemctl").chmod(0o755)
    for store in stores:
        (tmp_path / store).mkdir()
        (tmp_path / store / "store").touch()
    task = {"ansible.builtin.include_tasks": str(ANSIBLE / "roles/broker/tasks/data.yml")}
    play = {
        "hosts": "localhost",
        "gather_facts": False,
        "vars": {"broker_data_dir": f"{tmp_path}/wanted"},
        "tasks": [task],
    }
    (tmp_path / "play.yml").write_text(yaml.safe_dump([play]))
    done = subprocess.run(
        [str(console_script("ansible-playbook")), str(tmp_path / "play.yml"), *words],
        cwd=Path(ANSIBLE), env=os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"},
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    said = " ".join((done.stdout + done.stderr).split())
    assert done.returncode == (2 if is_refused else 0), said
    refusal = (
        f"broker_data_dir is {tmp_path}/wanted for localhost, which has no records, and its broker has them in "
        f"{tmp_path}/former: set it back, or stop edge-broker there, move them, and play again."
    )
    assert (refusal in said) == is_refused
