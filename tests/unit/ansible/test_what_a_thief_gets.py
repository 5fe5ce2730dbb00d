"""What is not on a board, and what one service of it has not of another."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

ANSIBLE = Path(__file__).parents[3] / "ansible"
ON_THE_CONTROL_NODE = {"site_certificate", "site_secret"}
"""Actions of this collection that run where Ansible does, and send nothing to a host themselves."""
SENDS = re.compile(r"_execute_module|_transfer_|_low_level_execute|self\._connection")
ONE_OF_SPARK = {"edge-spark-master", "edge-spark-worker", "edge-spark-job@"}


def tasks(found: Any) -> Iterator[dict[str, Any]]:
    """Each mapping of a file of tasks, blocks and what is in them included."""
    if isinstance(found, list):
        for each in found:
            yield from tasks(each)
    elif isinstance(found, dict):
        nested = [
            found[key] for key in ("block", "rescue", "always", "tasks", "pre_tasks", "post_tasks") if key in found
        ]
        if not nested:
            yield found
        for each in nested:
            yield from tasks(each)


def names_the_key(task: dict[str, Any]) -> bool:
    return re.search(r"security_ca_key|\bca\.key\b", str(task)) is not None


def test_the_key_of_the_ca_is_read_on_the_control_node_alone() -> None:
    found = [
        (path.name, task)
        for path in [*ANSIBLE.glob("roles/*/tasks/*.yml"), *ANSIBLE.glob("playbooks/**/*.yml")]
        for task in tasks(yaml.safe_load(path.read_text()))
        if names_the_key(task)
    ]
    assert found, "the certificate is signed by it"
    for name, task in found:
        assert ON_THE_CONTROL_NODE & set(task), f"{name} hands it to a host: {task.get('name')}"
    templates = [path for path in ANSIBLE.glob("roles/*/templates/*") if "ca_key" in path.read_text()]
    assert templates == []
    for action in ON_THE_CONTROL_NODE:
        (plugin,) = ANSIBLE.glob(f"**/action_plugins/{action}.py")
        assert not SENDS.search(plugin.read_text()), plugin


def test_a_task_that_hands_the_key_to_a_host_is_found() -> None:
    copied = yaml.safe_load("- block:\n  - ansible.builtin.copy: {src: '{{ security_ca_key }}', dest: /etc/ca}\n")
    (task,) = tasks(copied)
    assert names_the_key(task)
    assert not ON_THE_CONTROL_NODE & set(task)
    assert SENDS.search("self._execute_module(module_name='copy')")


def users() -> dict[str, str]:
    """The user of each of our units."""
    found = {}
    for unit in ANSIBLE.glob("roles/*/templates/*.service.j2"):
        name = unit.name.removesuffix(".service.j2")
        (user,) = re.findall(r"^User=(\S+)$", unit.read_text(), re.MULTILINE)
        found[name] = user
    return found


def test_each_service_has_a_user_of_its_own() -> None:
    found = users()
    assert {"edge-broker", "edge-gateway", "edge-mirror", *ONE_OF_SPARK} <= set(found)
    assert "root" not in found.values()
    others = {name: user for name, user in found.items() if name not in ONE_OF_SPARK}
    assert len(set(others.values())) == len(others)
    assert {found[name] for name in ONE_OF_SPARK} == {"edge-spark"}
    assert "edge-spark" not in others.values()
