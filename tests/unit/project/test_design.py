"""What the documents say of the code is there: each `file.py: name` and each path that DESIGN.md names."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
BROKER = ROOT / "edge_broker"
DESIGN = re.sub(r"\n +", " ", (BROKER / "DESIGN.md").read_text())
PLACES = sorted(set(re.findall(r"`([a-z_]+/[a-z_]+\.py): ([\w.]+)`", DESIGN)))
FILES = sorted(set(re.findall(r"`((?:[a-z_]+/)+[a-z_]+\.(?:py|c))\b", DESIGN)))


def names_in(path: Path) -> set[str]:
    """Every function, class and method of a file, methods with and without their class."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}.{inner.name}" for inner in node.body if isinstance(inner, ast.FunctionDef)}
        if isinstance(node, ast.FunctionDef):
            found |= {f"{node.name}.{inner.name}" for inner in node.body if isinstance(inner, ast.FunctionDef)}
    return found


def test_the_roads_name_their_steps() -> None:
    assert len(PLACES) > 20


@pytest.mark.parametrize(("path", "name"), PLACES)
def test_a_step_is_where_the_road_says(path: str, name: str) -> None:
    assert name in names_in(BROKER / path)


@pytest.mark.parametrize("path", FILES)
def test_a_file_is_where_the_design_says(path: str) -> None:
    assert (BROKER / path).exists() or (ROOT / path).exists()


CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text()
NAMED = sorted(set(re.findall(r"`((?:[a-z_]+/)+(?:[a-z_]+\.py)?)`", CONTRIBUTING)))


@pytest.mark.parametrize("path", NAMED)
def test_a_file_is_where_the_newcomers_page_says(path: str) -> None:
    assert (BROKER / path).exists() or (ROOT / path).exists()
