"""What the role `broker` does to a data directory: users and rights as the inventory has them, others untouched."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from edge_broker.cli import main
from tests.support.ansible_files import ANSIBLE

SCRIPT = ANSIBLE / "roles/broker/files/access.py"
GATEWAY = [["gateway-pi-1", "TOPIC", "LITERAL", "readings", "WRITE"]]
MIRROR = [["mirror-pi-1", "TOPIC", "PREFIXED", "plant-7.", "CREATE"]]


def made(
    data_dir: Path,
    users: dict[str, str],
    acls: list[list[str]],
    known: list[str] | None = None,
    kept: list[str] | None = None,
) -> list[str]:
    """What it says of an order."""
    changed: list[str] = ordered(
        {"data_dir": str(data_dir), "users": users, "acls": acls, "known": known or [], "kept": kept or []}
    )["changed"]
    return changed


def ordered(order: dict[str, Any]) -> dict[str, Any]:
    """What the script answers."""
    command = [sys.executable, str(SCRIPT)]
    done = subprocess.run(command, input=json.dumps(order), capture_output=True, text=True, check=True, timeout=120)
    assert done.stderr == ""
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def listed(command: str, data_dir: Path, capsys: pytest.CaptureFixture[str]) -> list[tuple[str, ...]]:
    capsys.readouterr()
    assert main([command, "list", "--json", "--data-dir", str(data_dir)]) == 0
    return [tuple(map(str, json.loads(line).values())) for line in capsys.readouterr().out.splitlines()]


def users(data_dir: Path, capsys: pytest.CaptureFixture[str]) -> set[str]:
    return {row[0] for row in listed("user", data_dir, capsys)}


def test_a_second_run_changes_nothing_and_writes_nothing(tmp_path, capsys):
    given = {"gateway-pi-1": "password 1", "mirror-pi-1": "password 2"}
    assert len(made(tmp_path, given, GATEWAY + MIRROR)) == 4
    assert users(tmp_path, capsys) == set(given)
    before = (tmp_path / "security").stat()
    assert made(tmp_path, given, GATEWAY + MIRROR) == []
    after = (tmp_path / "security").stat()
    assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)


def test_a_new_password_changes_its_user_alone_and_is_nowhere_in_what_is_said(tmp_path):
    made(tmp_path, {"gateway-pi-1": "password 1", "mirror-pi-1": "password 2"}, GATEWAY)
    assert made(tmp_path, {"gateway-pi-1": "another", "mirror-pi-1": "password 2"}, GATEWAY) == ["user gateway-pi-1"]


def test_who_is_no_longer_ours_goes_with_his_rights_and_others_stay(tmp_path, capsys):
    made(tmp_path, {"gateway-pi-1": "p", "mirror-pi-1": "q"}, GATEWAY + MIRROR)
    assert (
        main(["acl", "add", "--data-dir", str(tmp_path), "--allow", "User:ops", "--operation", "all", "--cluster"]) == 0
    )
    changed = made(tmp_path, {"gateway-pi-1": "p"}, GATEWAY, known=["gateway-pi-1", "mirror-pi-1"])
    assert changed == [
        "user mirror-pi-1",
        "removed: ALLOW CREATE by User:mirror-pi-1 from * on TOPIC PREFIXED plant-7.",
    ]
    assert users(tmp_path, capsys) == {"gateway-pi-1"}
    assert {row[1] for row in listed("acl", tmp_path, capsys)} == {"User:gateway-pi-1", "User:ops"}


def test_a_right_that_is_no_longer_meant_goes(tmp_path, capsys):
    made(tmp_path, {"gateway-pi-1": "p"}, [*GATEWAY, ["gateway-pi-1", "TOPIC", "LITERAL", "*", "READ"]])
    made(tmp_path, {"gateway-pi-1": "p"}, GATEWAY, known=["gateway-pi-1"])
    assert [row[2] for row in listed("acl", tmp_path, capsys)] == ["WRITE"]


@pytest.mark.root
def test_the_files_belong_to_whom_the_directory_does(tmp_path):
    os.chown(tmp_path, 12345, 12345)
    made(tmp_path, {"gateway-pi-1": "p"}, GATEWAY)
    names = "security", "security.lock", "security-changes.log"
    assert {(tmp_path / name).stat().st_uid for name in names} == {12345}


def test_what_a_playbook_changes_is_in_the_security_log_with_who_ran_it(tmp_path):
    made(tmp_path, {"gateway-pi-1": "p"}, GATEWAY)
    made(tmp_path, {}, [], known=["gateway-pi-1"])
    lines = (tmp_path / "security-changes.log").read_text().splitlines()
    assert all(f"by=command uid={os.getuid()} " in line or " changed-by-command uid=" in line for line in lines)
    assert sum("credential-removed" in line and "user=gateway-pi-1" in line for line in lines) == 2
