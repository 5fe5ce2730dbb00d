"""Preflight's findings about an inventory whose hosts all give the same answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from ansible.inventory.manager import InventoryManager
from ansible.parsing.dataloader import DataLoader
from ansible.vars.hostvars import HostVars
from ansible.vars.manager import VariableManager

from tests.support.ansible_files import load

BOARD = """system debian 12 bookworm Debian GNU/Linux 12 (bookworm)
architecture arm64
python 3.11
systemd running
memory_mb 3700
release
free_mb 20000
listens 0.0.0.0:22 ssh.service sshd
"""
SECRET = "k4Tq9ZbXw2Rm7VdYp3Ls8NfHc6Jg5Ue1"
preflight = load("playbooks/action_plugins/preflight.py")
known = preflight.KnownSettings()


def look(*sources: Path | dict[str, Any], tmp_path: Path, answer: str | None = BOARD, **more: Any) -> list[str]:
    """What is told of an inventory, each of whose hosts gives the same answer."""
    paths = []
    for index, source in enumerate(sources):
        if isinstance(source, dict):
            paths.append(tmp_path / f"{index}.yml")
            paths[-1].write_text(yaml.safe_dump(source))
        else:
            paths.append(source)
    loader = DataLoader()
    inventory = InventoryManager(loader=loader, sources=[str(path) for path in paths])
    manager = VariableManager(loader=loader, inventory=inventory)
    manager._extra_vars = more
    variables = HostVars(inventory=inventory, variable_manager=manager, loader=loader)
    of = {name: preflight.Variables(variables, name, loader) for name in inventory.hosts}
    hosts = [preflight.Host(known, name, of[name]["group_names"], of[name], answer) for name in of]
    told: list[str] = preflight.as_lines(preflight.findings(inventory.get_groups_dict(), hosts))
    return told


def board(groups: str = "broker", **variables: Any) -> dict[str, Any]:
    """An inventory of one board, pi-1, in these groups, whose brokers know nobody."""
    return {
        "all": {
            "hosts": {"pi-1": {"broker_security": "none", "central_security": "none"} | variables},
            "children": {group: {"hosts": {"pi-1": None}} for group in groups.split()},
        }
    }
