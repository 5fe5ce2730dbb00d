"""What a role declares, what it defaults to, and what its README tells are the same variables."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

ROLES = Path(__file__).parents[3] / "ansible/roles"


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
