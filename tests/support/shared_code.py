"""Where tests get shared code from: imports of one test module by another, and classes of one name in tests/support."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path


def _is_test_module(name: str) -> bool:
    last = name.rpartition(".")[2]
    return last.startswith("test_") or last == "conftest"


def _imported(node: ast.AST) -> Iterator[str]:
    """Yield each name that a node imports, with its module."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        yield "." * node.level + (node.module or "")
        yield from (f"{node.module or ''}.{alias.name}" for alias in node.names)


def imports_of_tests(root: Path) -> dict[str, list[str]]:
    """Return the imports of a test module or a conftest below `root`, by folder, each as `path:line`."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in sorted(root.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if any(_is_test_module(name) for name in _imported(node)):
                place = path.relative_to(root)
                found[place.parent.as_posix()].append(f"{place}:{getattr(node, 'lineno', 0)}")
    return dict(found)


def classes_of_one_name(root: Path) -> dict[str, list[str]]:
    """Return each class name that several modules below `root` define at module level, with their paths."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in sorted(root.rglob("*.py")):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef):
                found[node.name].append(path.relative_to(root).as_posix())
    return {name: paths for name, paths in found.items() if len(paths) > 1}
