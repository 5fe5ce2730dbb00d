"""The deny list as the role writes it: what the inventory says is what the broker reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from jinja2 import Environment, StrictUndefined

from edge_broker.cli import main
from edge_broker.configuration.security_keys import DENY_LIST
from edge_broker.network.background.deny_list_file import DenyListFile

ROLE = Path(__file__).parents[3] / "ansible/roles/broker"


def task() -> dict[str, Any]:
    """The role's task that writes the list."""
    tasks = yaml.safe_load((ROLE / "tasks/access.yml").read_text())
    (found,) = [each for each in tasks if each["name"] == "Write the broker's deny list"]
    return dict(found)


def written(lines: list[str], path: Path) -> Path:
    """The file with these lines, as Ansible fills it in."""
    environment = Environment(undefined=StrictUndefined, autoescape=False, keep_trailing_newline=True)
    path.write_text(environment.from_string(task()["ansible.builtin.copy"]["content"]).render(broker_deny_list=lines))
    path.chmod(int(task()["ansible.builtin.copy"]["mode"], 8))
    return path


def test_the_lines_of_the_inventory_are_those_that_the_broker_reads(tmp_path: Path) -> None:
    path = written(["serial=5F3A09 issuer=CN=our CA", "User:ann"], tmp_path / "deny-list")
    found = DenyListFile(str(path)).current
    assert found.entries == 2
    assert found.denial(["User:ann"]) == "line 3 of edge.deny.list.file denies User:ann"
    key = f"{{'{DENY_LIST}': '{task()['ansible.builtin.copy']['dest']}'}} if broker_deny_list"
    assert key in (ROLE / "vars/main.yml").read_text()


@pytest.mark.parametrize(("line", "status"), [("User:ann", 0), ("ann", 2)])
def test_a_line_that_the_broker_would_refuse_is_refused_before_it_is_there(
    tmp_path: Path, line: str, status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written([line], tmp_path / "deny-list")
    command = task()["ansible.builtin.copy"]["validate"] % path
    program, arguments = command.split("/bin/edge-broker ")
    assert program == "{{ drupelet_root }}/current"
    assert main(arguments.split()) == status
    assert (f"{DENY_LIST} is {path}, of which line 2 is 'ann'" in capsys.readouterr().err) == (status != 0)


def test_a_new_list_restarts_nothing() -> None:
    assert "notify" not in task()
