"""Python files of the product, read and parsed.

Ansible's Python counts as product. Links are left out: the file that they name is counted.
"""

from __future__ import annotations

import ast
import gc
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PARTS = ("ansible", "drupelet", "edge_broker", "gateway", "hardware", "kafka_wire", "mirror", "spark")
GENERATED = "ansible/support/"  # copies that a playbook puts there


class Source(NamedTuple):
    """A Python file: its path below the root, its text and its syntax tree."""

    path: str
    text: str
    tree: ast.Module

    @property
    def part(self) -> str:
        """The top-level package."""
        return self.path.partition("/")[0]

    @property
    def folder(self) -> str:
        """The path of the folder that holds the file."""
        return self.path.rpartition("/")[0]


def sources(root: Path = ROOT, parts: Sequence[str] = PARTS) -> list[Source]:
    """Return the Python files of some parts, sorted by path."""
    files = [(file.relative_to(root).as_posix(), file) for part in parts for file in (root / part).rglob("*.py")]
    # The collector would look through all trees again and again: parsing takes a quarter of the time without it.
    is_collecting = gc.isenabled()
    gc.disable()
    try:
        return [
            _read(path, file)
            for path, file in sorted(files)
            if not file.is_symlink() and not path.startswith(GENERATED)
        ]
    finally:
        if is_collecting:
            gc.enable()


def _read(path: str, file: Path) -> Source:
    text = file.read_text(encoding="utf-8")
    return Source(path, text, ast.parse(text, path))
