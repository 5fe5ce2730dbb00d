"""A bundle brings the Debian packages that the roles install: the list and the roles say the same."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

ANSIBLE = Path(__file__).parents[3] / "ansible"
NOT_BY_A_TASK = {"python3-apt"}  # Ansible's module needs it before it can install anything


def tasks(parts: Any) -> Iterator[dict[str, Any]]:
    for task in parts or []:
        yield task
        for nested in ("block", "rescue", "always"):
            yield from tasks(task.get(nested))


def test_the_list_has_what_the_roles_install() -> None:
    installed: set[str] = set()
    for path in ANSIBLE.glob("roles/*/tasks/*.yml"):
        for task in tasks(yaml.safe_load(path.read_text())):
            packages = task.get("ansible.builtin.apt", {}).get("name", [])
            installed |= {packages} if isinstance(packages, str) else set(packages)
    assert not [name for name in installed if "{" in name], (
        "name packages as they are: the bundle cannot read a template"
    )
    listed = yaml.safe_load((ANSIBLE / "playbooks/bundle/packages.yml").read_text())["bundle_packages"]
    assert installed | NOT_BY_A_TASK == set(listed)
    assert len(listed) == len(set(listed))
