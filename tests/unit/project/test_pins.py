"""The pins of what boards install: they are those of pyproject.toml, each with hashes, and name no index.

Asks no index. `make pins` writes them.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from tests.support.ansible_files import load

ROOT = Path(__file__).parents[3]
PINS = ROOT / "drupelet/pins"
RUNTIME = ("compression", "gateway", "hardware", "mirror", "cluster", "spark")
release = load("roles/drupelet/files/release.py")


def project() -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return found


def pinned(extra: str) -> dict[str, Requirement]:
    """Return what is installed for an extra, by name."""
    found = {}
    for name in dict.fromkeys(("broker", extra)):
        for line in release.pins_of((PINS / f"{name}.txt").read_text()).values():
            requirement = Requirement(release.HASH.sub("", line).strip())
            found[canonicalize_name(requirement.name)] = requirement
    return found


def outdated(of: Mapping[str, Any]) -> Iterator[str]:
    """Yield what pyproject.toml asks for and no pin fits."""
    asked = {"broker": of["dependencies"], **{extra: of["optional-dependencies"][extra] for extra in RUNTIME}}
    for extra, lines in asked.items():
        there = pinned(extra)
        for wanted in map(Requirement, lines):
            pin = there.get(canonicalize_name(wanted.name))
            version = next(iter(pin.specifier)).version if pin else ""
            if not pin or Version(version) not in wanted.specifier:
                yield f"{wanted} of {extra} is pinned to {version or 'nothing'}: run `make pins`"


def test_every_requirement_is_pinned_as_pyproject_asks() -> None:
    assert list(outdated(project())) == []


def test_the_extras_with_pins_are_those_that_boards_may_have() -> None:
    assert {path.stem for path in PINS.glob("*.txt")} == {"broker", "build", *RUNTIME}
    (every,) = project()["optional-dependencies"]["all"]
    assert Requirement(every).extras <= set(RUNTIME)


@pytest.mark.parametrize(
    ("extra", "line", "says"),
    [
        ("gateway", "aiokafka>=9", "aiokafka>=9 of gateway is pinned to "),
        ("mirror", "something-new>=1", "something-new>=1 of mirror is pinned to nothing: run `make pins`"),
        ("spark", "pyspark>=4.1,<4.2", "pyspark<4.2,>=4.1 of spark is pinned to 4.0."),
    ],
)
def test_a_pin_that_pyproject_no_longer_matches_is_found(extra: str, line: str, says: str) -> None:
    of = project()
    of["optional-dependencies"][extra] = [line]
    (found,) = outdated(of)
    assert found.startswith(says)


def test_a_new_need_of_the_broker_is_found_too() -> None:
    of = project()
    of["dependencies"].append("msgpack>=1")
    assert list(outdated(of)) == ["msgpack>=1 of broker is pinned to nothing: run `make pins`"]


@pytest.mark.parametrize("extra", ["broker", "build", *RUNTIME])
def test_each_pin_has_a_version_and_hashes_and_nothing_else(extra: str) -> None:
    text = (PINS / f"{extra}.txt").read_text()
    lines = [line for line in text.replace("\\\n", " ").splitlines() if line and not line.startswith("#")]
    for line in lines:
        assert re.fullmatch(r"[a-z0-9.-]+==[0-9a-z.]+( ; [a-z_= '0-9]+?)?( +--hash=sha256:[0-9a-f]{64})+", line), line
    assert len(release.pins_of(text)) == len(lines)
    assert "://" not in text


def test_a_package_has_one_version_in_all_extras() -> None:
    versions: dict[str, set[str]] = {}
    for extra in RUNTIME:
        for name, requirement in pinned(extra).items():
            versions.setdefault(name, set()).add(str(requirement.specifier))
    assert {name: found for name, found in versions.items() if len(found) > 1} == {}


def test_codecs_and_loop_have_wheels_for_both_machines() -> None:
    """A hash for each Python and machine; one file alone would be the source."""
    pins = release.pins_of((PINS / "broker.txt").read_text())
    assert all(len(release.HASH.findall(line)) > 10 for line in pins.values())
