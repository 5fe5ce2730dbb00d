"""What a host is asked by preflight: a POSIX shell tells it without Python, also of parts that are not there."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[3] / "ansible/playbooks/files/preflight.sh"
CGROUPS = {
    "version 2": "0::/system.slice/mosquitto.service\n",
    "version 1": "9:name=systemd:/system.slice/mosquitto.service\n4:memory:/\n0::/system.slice/mosquitto.service\n",
    "below a container": "0::/machine/system.slice/mosquitto.service\n",
    "with a cgroup of its own": "0::/system.slice/mosquitto.service/worker\n",
}
SS = """#!/bin/sh
echo 'LISTEN 0 100 127.0.0.1:1883 0.0.0.0:* users:(("mosquitto",pid=39,fd=5))'
echo 'LISTEN 0 100 *:9092 *:* users:(("java",pid=40,fd=5),("java",pid=41,fd=5))'
echo 'LISTEN 0 100 [::]:53 [::]:*'
"""


def run(tmp_path: Path, **more: str) -> list[str]:
    done = subprocess.run(
        ["sh"], input=SCRIPT.read_text(), env=os.environ | {"PROC": str(tmp_path / "proc")} | more, text=True,
        capture_output=True, check=True, timeout=60,
    )  # fmt: skip
    assert done.stderr == ""
    return done.stdout.splitlines()


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    for pid, name in ((39, "mosquitto"), (40, "java")):
        folder = tmp_path / f"proc/{pid}"
        folder.mkdir(parents=True)
        (folder / "comm").write_text(f"{name}\n")
        (folder / "cgroup").write_text("0::/user.slice/session-1.scope\n")
    (tmp_path / "proc/meminfo").write_text("MemTotal:        3881200 kB\nMemFree:  12 kB\n")
    (tmp_path / "ss").write_text(SS)
    (tmp_path / "ss").chmod(0o755)
    return tmp_path / "proc"


@pytest.mark.parametrize("cgroup", CGROUPS.values(), ids=CGROUPS)
def test_who_listens_is_named_with_its_unit(proc, tmp_path, cgroup):
    (proc / "39/cgroup").write_text(cgroup)
    said = run(tmp_path, PATH=f"{tmp_path}:{os.environ['PATH']}")
    assert [line for line in said if line.startswith("listens")] == [
        "listens 127.0.0.1:1883 mosquitto.service mosquitto",
        "listens *:9092 - java",
        "listens [::]:53 - ",
    ]
    assert "memory_mb 3790" in said


def test_the_release_in_use_and_free_space_are_told_where_the_folder_is_there_and_where_not(proc, tmp_path):
    root = tmp_path / "opt/drupelet"
    before = run(tmp_path, DRUPELET_ROOT=str(root))
    root.mkdir(parents=True)
    (root / "current").symlink_to("0.2.0-0123abcd")
    after = run(tmp_path, DRUPELET_ROOT=str(root))
    assert "release " in before
    assert "release 0.2.0-0123abcd" in after
    for said in (before, after):
        (free,) = [line.split()[1] for line in said if line.startswith("free_mb ")]
        assert int(free) > 0


def test_a_host_without_any_of_it_still_answers(tmp_path):
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/meminfo").touch()
    said = subprocess.run(
        ["/bin/sh"], input=SCRIPT.read_text(), env={"PATH": "/nonexistent", "PROC": str(tmp_path / "proc")}, text=True,
        capture_output=True, check=False, timeout=60,
    ).stdout  # fmt: skip
    assert said.startswith("system ")
    assert "\nrelease" in said


def test_log_ins_of_the_broker_are_told_with_their_derivation(proc, tmp_path):
    def told() -> list[str]:
        return [line for line in run(tmp_path, DRUPELET_ETC=str(tmp_path)) if line.startswith("log_in")]

    assert told() == []
    (tmp_path / "broker-log-ins").write_text("admin\ngateway-pi-1\ngateway-pi-1~2\n")
    assert told() == ["log_in admin hmac", "log_in gateway-pi-1 hmac", "log_in gateway-pi-1~2 hmac"]
    (tmp_path / "broker-scrypt-log-ins").write_text("gateway-pi-1~2\n")
    assert told() == ["log_in admin hmac", "log_in gateway-pi-1 hmac", "log_in gateway-pi-1~2 scrypt"]
