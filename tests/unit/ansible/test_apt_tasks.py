"""Each task that installs waits for a lock that apt-daily holds, and tries again where an archive fails."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

ANSIBLE = Path(__file__).parents[3] / "ansible"
FILES = [
    path
    for folder in ("roles", "playbooks")
    for path in sorted((ANSIBLE / folder).rglob("*.yml"))
    if "ansible.builtin.apt:" in path.read_text() or "apt-get" in path.read_text()
]
LOCK_TIMEOUT_S_MIN = 300  # apt-daily on a small board, at its first boot


def tasks(value: Any) -> Iterator[dict[str, Any]]:
    """Return each mapping of a playbook or a list of tasks, those in blocks and plays too."""
    if isinstance(value, dict):
        yield value
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from tasks(inner)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ANSIBLE)))
def test_a_task_that_uses_apt_waits_and_tries_again(path):
    found = 0
    for task in tasks(yaml.safe_load(path.read_text())):
        module = task.get("ansible.builtin.apt")
        if module is None and "apt-get" not in str(task.get("ansible.builtin.shell", "")):
            continue
        found += 1
        if module is not None:
            assert module.get("lock_timeout", 60) >= LOCK_TIMEOUT_S_MIN, task["name"]
        assert task["until"] == f"{task['register']} is succeeded", task["name"]
        assert task["retries"] >= 3, task["name"]
        assert task["delay"] >= 5, task["name"]
    assert found


def test_no_other_module_installs_packages():
    """`package`, `apt_key` or `command: apt-get` would escape the test above."""
    for path in (*(ANSIBLE / "roles").rglob("*.yml"), *(ANSIBLE / "playbooks").rglob("*.yml")):
        for task in tasks(yaml.safe_load(path.read_text())):
            assert "ansible.builtin.package" not in task, path
            for module in ("ansible.builtin.command", "ansible.builtin.raw"):
                assert "apt-get" not in str(task.get(module, "")), path


def test_the_first_boot_is_waited_for_before_anything_of_dpkg_is_looked_at():
    names = [task["name"] for task in yaml.safe_load((ANSIBLE / "roles/packages/tasks/main.yml").read_text())]
    assert names.index("Wait until apt and dpkg are free after the first boot") < names.index(
        "Repair packages after a power loss"
    )


def test_no_task_registers_a_variable_that_a_role_has():
    """A result would replace the role's variable for the rest of the play: `when: base_upgrades` got a mapping."""
    variables = {
        name
        for folder in ("defaults", "vars")
        for path in (ANSIBLE / "roles").glob(f"*/{folder}/*.yml")
        for name in yaml.safe_load(path.read_text()) or {}
    }
    registered = {
        task["register"]: path.name
        for path in sorted((ANSIBLE / "roles").rglob("tasks/*.yml"))
        for task in tasks(yaml.safe_load(path.read_text()))
        if "register" in task
    }
    assert variables
    assert registered
    assert {name: path for name, path in registered.items() if name in variables} == {}
