"""A restarted member of a cluster is waited for until every replica is in sync, before the next board changes."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.ansible_files import ANSIBLE
from tests.support.http_answers import answering
from tests.support.runtimes import console_script

# Answers as `edge-broker cluster status`: not well as often as the file `short` has lines, then well.
PROGRAM = """#!/bin/sh
echo "$@" >>{folder}/asked
if [ -s {folder}/short ]; then
    sed -i 1d {folder}/short
    echo "broker  address"
    echo "not well: 2 partitions under-replicated"
    exit 1
fi
echo "well: 3 brokers"
"""


class Healthy(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"ok\n")

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def address() -> Iterator[str]:
    with answering(Healthy) as address:
        yield address


def wait(folder: Path, address: str, short: int, **more: Any) -> tuple[int, str, list[str]]:
    """Play the wait of the role; return its exit status, what it said, and the commands that it ran."""
    program = folder / "current/bin/edge-broker"
    program.parent.mkdir(parents=True)
    program.write_text(PROGRAM.format(folder=folder))
    program.chmod(0o755)
    (folder / "short").write_text("x\n" * short)
    given = {
        "role_path": str(ANSIBLE / "roles/broker"),
        "drupelet_root": str(folder),
        "broker_metrics": address,
        "broker_metrics_is_open": False,
        "broker_mode": "none",
        "broker_listen": "0.0.0.0:9092",
        "broker_advertise": "",
        "broker_settings": {"zookeeper.connect": "10.0.0.1:2181"},
        "broker_started": {"changed": False},
        "broker_cluster_patience_s": 3,
    }
    task = {
        "ansible.builtin.include_tasks": str(ANSIBLE / "roles/broker/tasks/edge_healthy.yml"),
        "vars": given | more,
    }
    (folder / "play.yml").write_text(yaml.safe_dump([{"hosts": "localhost", "gather_facts": False, "tasks": [task]}]))
    done = subprocess.run(
        [str(console_script("ansible-playbook")), str(folder / "play.yml")],
        cwd=ANSIBLE, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    asked = folder / "asked"
    commands = asked.read_text().splitlines() if asked.exists() else []
    return done.returncode, " ".join((done.stdout + done.stderr).split()), commands


def test_replicas_that_come_back_into_sync_are_waited_for(tmp_path, address):
    status, said, asked = wait(tmp_path, address, 2)
    assert status == 0, said
    assert asked == ["cluster status --bootstrap-server 127.0.0.1:9092"] * 3


def test_a_cluster_that_stays_short_of_replicas_ends_the_play_with_what_it_lacks(tmp_path, address):
    status, said, _ = wait(tmp_path, address, 100)
    assert status == 2
    assert (
        "edge-broker on localhost is healthy, and its cluster is not: not well: 2 partitions under-replicated." in said
    )


def test_a_secured_member_is_asked_as_root_of_the_board_at_the_address_of_its_certificate(tmp_path, address):
    secured = {"broker_mode": "secured", "broker_secured_told": "pi-1.local:9092"}
    status, said, asked = wait(tmp_path, address, 0, **secured)
    assert status == 0, said
    assert asked == [
        "cluster status --bootstrap-server pi-1.local:9092 --command-config /etc/drupelet/admin.properties"
    ]


@pytest.mark.parametrize(
    "alone", [{"broker_settings": {}}, {"broker_started": {"changed": True}}], ids=["no member", "new member"]
)
def test_a_broker_by_itself_and_a_new_member_are_not_asked(tmp_path, address, alone):
    status, said, asked = wait(tmp_path, address, 100, **alone)
    assert (status, asked) == (0, []), said
