"""How roles wait for a service: what /health says is said while they wait, and when they give up."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest
import yaml

from tests.support.ansible_files import copy_role, load
from tests.support.http_answers import answering
from tests.support.runtimes import console_script

ANSIBLE = Path(__file__).parents[3] / "ansible"
REASON = "broker 127.0.0.1:9092 does not answer"


class Health(BaseHTTPRequestHandler):
    """503 with a reason, until `asked` requests were answered so."""

    unhealthy = 0
    well = b"ok"

    def do_GET(self) -> None:
        assert self.path == "/health"
        is_well = type(self).unhealthy <= 0
        type(self).unhealthy -= 1
        self.send_response(200 if is_well else 503)
        self.end_headers()
        self.wfile.write(self.well + b"\n" if is_well else REASON.encode() + b"\n")

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def address() -> Iterator[str]:
    with answering(Health) as address:
        yield address


def wait(tmp_path: Path, address: str, **more: object) -> subprocess.CompletedProcess[str]:
    given = {"drupelet_service": "edge-gateway", "drupelet_health": address, "drupelet_patience_s": 2} | more
    role = tmp_path / "roles/drupelet"
    if not role.exists():
        copy_role("drupelet", tmp_path)
    given["role_path"] = str(role)  # it is included by roles
    task = {"ansible.builtin.include_tasks": str(role / "tasks/healthy.yml"), "vars": given}
    playbook = tmp_path / "playbook.yml"
    playbook.write_text(yaml.safe_dump([{"hosts": "localhost", "gather_facts": False, "tasks": [task]}]))
    command = [str(console_script("ansible-playbook")), str(playbook)]
    return subprocess.run(command, cwd=ANSIBLE, capture_output=True, text=True, check=False, timeout=300)


@pytest.mark.parametrize(
    ("unhealthy", "is_told"), [(0, False), (1, False), pytest.param(12, True, marks=pytest.mark.night)]
)
def test_a_service_that_gets_healthy_is_waited_for(tmp_path, address, unhealthy, is_told):
    Health.unhealthy = unhealthy
    done = wait(tmp_path, address)
    assert done.returncode == 0, done.stdout
    assert (f"edge-gateway on localhost is not healthy yet: {REASON}. It gets 2 s more." in done.stdout) == is_told


def test_a_service_whose_watch_hears_nothing_passes_and_is_not_taken_for_well(tmp_path, address, monkeypatch):
    Health.unhealthy = 0
    done = wait(tmp_path, address)
    assert "cannot tell whether all is well" not in done.stdout
    monkeypatch.setattr(Health, "well", b"unknown: mqtt_drops: no $SYS")
    done = wait(tmp_path, address)
    assert done.returncode == 0, done.stdout
    assert "runs, and cannot tell whether all is well: unknown: mqtt_drops: no $SYS" in done.stdout


def test_verify_shows_a_watch_that_hears_nothing_as_unknown(address, monkeypatch):
    verify = load("playbooks/files/verify.py")
    order = verify.Order(device="d", timeout_s=5.0, health={"gateway": address})
    Health.unhealthy = 0
    (step,) = asyncio.run(verify.verify(order))
    assert step.result == "ok"
    monkeypatch.setattr(Health, "well", b"unknown: mqtt_drops: no $SYS")
    (step,) = steps = asyncio.run(verify.verify(order))
    assert (step.result, step.detail) == ("unknown", "mqtt_drops: no $SYS")
    assert verify.have_passed(steps)


def test_a_service_that_does_not_is_refused_with_what_it_says(tmp_path, address):
    Health.unhealthy = 1000
    done = wait(tmp_path, address)
    said = " ".join((done.stdout + done.stderr).split())
    assert done.returncode == 2
    assert f"edge-gateway on localhost is not healthy: {REASON} (systemd: " in said
    assert "`journalctl -u edge-gateway` there says more." in said


@pytest.mark.night
def test_a_service_that_does_not_answer_at_all_is_refused_too(tmp_path):
    done = wait(tmp_path, "127.0.0.1:1")
    assert done.returncode == 2
    assert "is not healthy: http://127.0.0.1:1/health does not answer (systemd: " in done.stdout + done.stderr


def test_a_service_that_fails_with_a_changed_file_gets_the_former_one_and_the_sentence_names_it(
    tmp_path, address, monkeypatch
):
    programs = {"systemctl": '[ "$1" != show ] || echo active', "journalctl": "echo gateway: no such topic"}
    for name, line in programs.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{line}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    toml, root = tmp_path / "gateway.toml", tmp_path / "opt"
    toml.write_text("kind = 'good'\n")
    former = [sys.executable, str(ANSIBLE / "roles/drupelet/files/former.py")]
    subprocess.run([*former, "keep", str(root), "edge-gateway", str(toml)], check=True, timeout=60)
    toml.write_text("kind = 'bad'\n")
    Health.unhealthy = 1000
    done = wait(tmp_path, address, drupelet_root=str(root))
    said = " ".join((done.stdout + done.stderr).split())
    assert done.returncode == 2
    assert f"edge-gateway on localhost is not healthy: {REASON} (systemd: " in said
    assert f"It wrote last: gateway: no such topic. The former {toml} is back, and it is healthy again. `jour" in said
    assert toml.read_text() == "kind = 'good'\n"
    assert not list((root / "former").iterdir())


def test_a_service_that_is_healthy_with_a_changed_file_keeps_it(tmp_path, address):
    former = tmp_path / "opt/former/edge-gateway.json"
    former.parent.mkdir(parents=True)
    former.write_text("{}")
    Health.unhealthy = 0
    kept = {"drupelet_root": str(tmp_path / "opt"), "drupelet_before_change": {"edge-gateway": {"kept": True}}}
    done = wait(tmp_path, address, **kept)
    assert done.returncode == 0, done.stdout
    assert not former.exists()


def test_a_service_that_only_has_to_answer_may_say_what_it_lacks(tmp_path, address):
    Health.unhealthy = 1000
    done = wait(tmp_path, address, drupelet_accepted=[200, 503])
    assert done.returncode == 0, done.stdout
