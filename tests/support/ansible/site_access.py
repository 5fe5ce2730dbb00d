"""The rights of a site, as the plugin derives them from an inventory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from ansible.inventory.manager import InventoryManager
from ansible.parsing.dataloader import DataLoader
from ansible.vars.hostvars import HostVars
from ansible.vars.manager import VariableManager

from tests.support.ansible_files import load

site_access = load("plugins/action/site_access.py")
SECRET = "a secret of 24 characters"
VAULT = dict.fromkeys(
    ("vault_gateway_mqtt_password", "vault_verify_mqtt_password", "vault_thermometer_1_password", "vault_spark_secret"),
    "x" * 24,
)


def site_of(source: Path, removed: str = "", **more: Any) -> Any:  # the plugin's `Site`
    loader = DataLoader()
    inventory = InventoryManager(loader=loader, sources=[str(source)])
    manager = VariableManager(loader=loader, inventory=inventory)
    manager._extra_vars = VAULT | {"vault_security_secret": SECRET} | more
    hostvars = HostVars(inventory=inventory, variable_manager=manager, loader=loader)
    hosts = {name: site_access.Variables(hostvars.raw_get(name), hostvars, loader) for name in inventory.hosts}
    return site_access.Site(hosts, inventory.get_groups_dict(), removed)


def made(tmp_path: Path, inventory: dict[str, Any], removed: str = "", **more: Any) -> Any:  # the plugin's `Site`
    path = tmp_path / "hosts.yml"
    path.write_text(yaml.safe_dump(inventory))
    return site_of(path, removed, **more)


def told(acls: list[Any]) -> set[str]:
    """The rights of each resource in one line."""
    of: dict[tuple[str, ...], set[str]] = {}
    for acl in acls:
        of.setdefault((acl.user, acl.kind, acl.pattern, acl.name), set()).add(acl.operation)
    return {f"{' '.join(what)}: {' '.join(sorted(operations))}" for what, operations in of.items()}
