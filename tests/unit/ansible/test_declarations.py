"""What a role declares, what it defaults to, and what its README tells are the same variables.

And no key is twice in a mapping: Ansible warns of it in every run, in the midst of what a reader is to look at.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROLES = Path(__file__).parents[3] / "ansible/roles"
LOAD = """
import sys
from ansible.parsing.dataloader import DataLoader
for path in sys.argv[1:]:
    DataLoader().load_from_file(path)
"""


def declared(role: str) -> dict[str, dict[str, object]]:
    specs = yaml.safe_load((ROLES / role / "meta/argument_specs.yml").read_text())["argument_specs"]
    options: dict[str, dict[str, object]] = specs["main"]["options"]
    return options


@pytest.mark.parametrize("role", sorted(path.name for path in ROLES.iterdir()))
def test_declarations_defaults_and_readme_agree(role):
    options = declared(role)
    defaults = yaml.safe_load((ROLES / role / "defaults/main.yml").read_text())
    assert set(defaults) == {name for name, option in options.items() if not option.get("required")} & set(defaults)
    for name, option in options.items():
        assert option.get("required") or name in defaults, f"{name} has neither a default nor is it required"
        if "default" in option and "{{" not in str(defaults[name]):
            assert defaults[name] == option["default"], name
        assert str(option["description"]).strip(), name


@pytest.mark.parametrize("role", sorted(path.name for path in ROLES.iterdir()))
def test_the_readme_has_each_variable_and_no_other(role):
    text = (ROLES / role / "README.md").read_text()
    told = set(re.findall(r"`([a-z]+_[a-z0-9_]+)`", text))
    assert set(declared(role)) - told == set()
    ours = {name for name in told if name.startswith(f"{role}_")}
    known = set(declared(role)) | set(
        re.findall(rf"\b{role}_\w+", "".join(path.read_text() for path in (ROLES / role).rglob("*.yml")))
    )
    assert ours - known == set()


def test_no_mapping_has_a_key_twice_merged_ones_included():
    files = [path for part in ("roles", "playbooks", "inventories") for path in (ROLES.parent / part).rglob("*.yml")]
    environment = os.environ | {"ANSIBLE_DUPLICATE_YAML_DICT_KEY": "error"}
    command = [sys.executable, "-c", LOAD, *map(str, files)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr[-1000:]
    assert not done.stderr
