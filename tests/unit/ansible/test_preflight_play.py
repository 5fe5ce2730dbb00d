"""The play preflight, run by Ansible on this machine: what it says, and what comes after it."""

from __future__ import annotations

import subprocess
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.runtimes import console_script

ANSIBLE = Path(__file__).parents[3] / "ansible"
HERE = {"ansible_connection": "local", "ansible_become": False, "preflight_accept": "systemd,distribution,python"}
NOBODY = {"ansible_host": "192.0.2.1", "preflight_accept": ["systemd"]}


class Site:
    """An inventory, and a playbook with preflight and one play after it, which leaves a file."""

    def __init__(self, path: Path) -> None:
        self.path, self.mark = path, path / "changed"
        ssh = path / "ssh"
        ssh.write_text("#!/bin/sh\necho nobody there >&2\nexit 255\n")
        ssh.chmod(0o755)
        self.variables: dict[str, Any] = {"ansible_ssh_executable": str(ssh)}

    def run(
        self, hosts: dict[str, dict[str, Any]], *words: str, group: str = "base"
    ) -> subprocess.CompletedProcess[str]:
        inventory, playbook = self.path / "hosts.yml", self.path / "playbook.yml"
        site = {"all": {"vars": self.variables, "hosts": hosts}, group: {"hosts": dict.fromkeys(hosts)}}
        inventory.write_text(yaml.safe_dump(site))
        mark = {"ansible.builtin.file": {"path": str(self.mark), "state": "touch"}}
        plays = [
            {"import_playbook": str(ANSIBLE / "playbooks/preflight.yml")},
            {"hosts": "all", "gather_facts": False, "tasks": [mark]},
        ]
        playbook.write_text(yaml.safe_dump(plays))
        command = [str(console_script("ansible-playbook")), "-i", str(inventory), str(playbook), *words]
        return subprocess.run(command, cwd=ANSIBLE, capture_output=True, text=True, check=False, timeout=120)


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


@pytest.mark.parametrize("words", [(), ("--check",), ("--limit", "b")])
def test_a_finding_of_one_host_stops_all_before_anything_is_changed(site, words):
    done = site.run({"a": HERE, "b": HERE | {"base_firewal": True}}, *words)
    assert "b: no role takes the variable base_firewal. Is it base_firewall? [base_firewal]\n" in done.stdout
    assert "1 finding, listed above; nothing was changed on any host." in done.stdout + done.stderr
    assert done.returncode == 2
    assert not site.mark.exists()


def test_without_a_finding_the_next_play_begins(site):
    done = site.run(
        {"a": HERE, "b": HERE | {"base_firewal": True, "preflight_accept": "systemd,base_firewal,python distribution"}}
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert site.mark.exists()


def test_a_host_that_is_not_reached_is_left_out_and_the_others_go_on(site):
    done = site.run({"a": NOBODY, "b": HERE})
    assert "listed above" not in done.stdout + done.stderr
    assert "\na: not reached, so left out: " in done.stdout
    assert "nobody there. Is it on, and is ansible_host right?\n" in done.stdout
    assert done.returncode == 4, done.stdout + done.stderr
    assert site.mark.exists()


def test_the_list_of_findings_names_the_host_that_is_not_reached(site):
    done = site.run({"a": NOBODY, "b": HERE | {"base_firewal": True}})
    assert "b: no role takes the variable base_firewal." in done.stdout
    assert "\na: not reached, so left out: " in done.stdout
    assert "1 finding, listed above; nothing was changed on any host." in done.stdout + done.stderr
    assert done.returncode == 2


@pytest.mark.parametrize("text", [None, "site\n  hosts:\n    pi-1:\n"])
def test_an_inventory_that_is_not_there_or_no_yaml_fails(text, tmp_path):
    inventory = tmp_path / "hosts.yml"
    if text is not None:
        inventory.write_text(text)
    command = [console_script("ansible-playbook"), "-i", inventory, "playbooks/preflight.yml"]
    done = subprocess.run(command, cwd=ANSIBLE, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode != 0
    assert str(inventory) in done.stdout + done.stderr


def test_a_host_that_gives_no_answer_as_root_says_why(site):
    done = site.run(
        {
            "a": HERE
            | {"ansible_become": True, "ansible_become_user": "nobody", "ansible_become_exe": "/nonexistent/sudo"}
        }
    )
    assert "a: no answer as root: " in done.stdout
    assert done.returncode == 2
    assert not site.mark.exists()


@pytest.mark.parametrize(
    ("modules", "why"),
    [
        ({"edge_broker/__init__.py": ""}, "is of a release that has no rules to ask"),
        ({}, "is of a release that has no rules to ask"),
        (
            {"edge_broker/__init__.py": "", "edge_broker/configuration_check.py": "raise ValueError('torn')"},
            "has rules that fail: ValueError: torn",
        ),
    ],
    ids=["old release", "another project", "broken"],
)
def test_a_wheel_whose_rules_cannot_be_asked_is_noted_and_nothing_stops(site, tmp_path, modules, why):
    wheel = tmp_path / "drupelet-0.2.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("drupelet-0.2.0.dist-info/METADATA", "")
        for name, text in modules.items():
            archive.writestr(name, text)
    host = HERE | {
        "broker_security": "none",
        "broker_listen": "127.0.0.1:39092",
        "broker_metrics": "127.0.0.1:39101",
        "broker_settings": {"log.retention.mss": 1},
        "drupelet_wheel": str(wheel),
        "drupelet_root": str(tmp_path),
    }
    host["preflight_accept"] += ",broker_security,space,ports"
    done = site.run({"a": host}, group="broker")
    assert f"a: broker_settings is not checked before the run: {wheel.name} {why}. The role checks it" in done.stdout
    assert done.returncode == 0, done.stdout + done.stderr
    assert site.mark.exists()
