"""What the documents say of the code is there: each `file.py: name` and each path that a DESIGN.md names."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef
ROOT = Path(__file__).parents[3]
BROKER, MIRROR = ROOT / "edge_broker", ROOT / "mirror"
PLACES: list[tuple[Path, str]] = []  # a file, and a name that is said to be in it
FILES: list[Path] = []
for part, folders in ((BROKER, "+"), (MIRROR, "*")):
    design = re.sub(r"\n +", " ", (part / "DESIGN.md").read_text())
    for path, name in sorted(set(re.findall(rf"`((?:[a-z_]+/){folders}[a-z_]+\.py): ([\w.]+)`", design))):
        PLACES.append((part / path if (part / path).exists() else ROOT / path, name))
    for path in sorted(set(re.findall(rf"`((?:[a-z_]+/){folders}[a-z_]+\.(?:py|c))\b", design))):
        FILES.append(part / path if (part / path).exists() else ROOT / path)


def shown(value: object) -> str:
    """A path as it is below the project's folder."""
    return str(value.relative_to(ROOT)) if isinstance(value, Path) else str(value)


def names_in(path: Path) -> set[str]:
    """Every function, class and method of a file, methods with and without their class."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, FUNCTIONS | ast.ClassDef):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}.{inner.name}" for inner in node.body if isinstance(inner, FUNCTIONS)}
        if isinstance(node, FUNCTIONS):
            found |= {f"{node.name}.{inner.name}" for inner in node.body if isinstance(inner, FUNCTIONS)}
    return found


def test_the_roads_name_their_steps() -> None:
    assert len({path.parent for path, _ in PLACES}) > 5
    assert len(PLACES) > 35


@pytest.mark.parametrize(("path", "name"), PLACES, ids=shown)
def test_a_step_is_where_the_road_says(path: Path, name: str) -> None:
    assert name in names_in(path)


@pytest.mark.parametrize("path", FILES, ids=shown)
def test_a_file_is_where_the_design_says(path: Path) -> None:
    assert path.exists()


CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text()
NAMED = sorted(set(re.findall(r"`((?:[a-z_]+/)+(?:[a-z_]+\.py)?)`", CONTRIBUTING)))


@pytest.mark.parametrize("path", NAMED)
def test_a_file_is_where_the_newcomers_page_says(path: str) -> None:
    assert (BROKER / path).exists() or (ROOT / path).exists()
