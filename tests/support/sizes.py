"""Sizes of the product's classes, files and folders, and the list of those that exceed a bound.

`python -m tests.support.sizes` lowers the list to the present sizes. It never raises a figure.

| measure | counts |
|---|---|
| methods of a class | functions in its body by name: a property and its setter are one |
| lines of a class | from `class` to its last line, with comments and blank lines |
| attributes of a class | names that methods assign on `self`, names in `__slots__`, annotated names except `ClassVar` |
| lines of a file | all |
| modules of a folder | Python files except `__init__.py`, without those of its subfolders |

A class is named by part and qualified name, so that a module may move.
If classes share a name, the largest figure counts.
"""

from __future__ import annotations

import ast
import json
import tomllib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tests.support.product_sources import ROOT, Source, sources

COMMAND = "python -m tests.support.sizes"
TABLE = ROOT / "tests/unit/project/sizes.toml"
BOUNDS = {
    "classes": {"methods": 30, "lines": 450, "attributes": 20},
    "files": {"lines": 600},
    "folders": {"modules": 15},
}
ADVICE = {
    "classes": "move a second reason to change into a class that it owns",
    "files": "split it by reason to change",
    "folders": "put modules of one idea into a subfolder",
}
FLAT = ("edge_broker/handlers", "edge_broker/protocol/messages")  # one file for each Kafka API
HEAD = f"""\
# Classes, files and folders that exceed a bound. tests/support/sizes.py has the bounds and says what is counted.
# This list may only shrink. `{COMMAND}` lowers it to the present sizes; it raises nothing.
# After a merge conflict, take either side and run the command.
"""

Figures = dict[str, int]
Sizes = dict[str, dict[str, Figures]]  # kind, then key
Table = dict[str, dict[str, dict[str, int | str]]]  # the same, and a reason for each

FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef


def measure(files: Sequence[Source]) -> Sizes:
    """Return the figures of all classes, files and folders in some files, also of those within the bounds."""
    found: Sizes = {kind: {} for kind in BOUNDS}
    modules: dict[str, int] = defaultdict(int)
    for source in files:
        found["files"][source.path] = {"lines": source.text.count("\n")}
        modules[source.folder] += not source.path.endswith("/__init__.py")
        for name, node in _classes(source.tree):
            figures = _figures(node)
            known = found["classes"].setdefault(f"{source.part} {name}", figures)
            known.update({measured: max(known[measured], figure) for measured, figure in figures.items()})
    found["folders"] = {folder: {"modules": count} for folder, count in modules.items() if folder not in FLAT}
    return found


def _classes(node: ast.AST, outer: str = "") -> Iterator[tuple[str, ast.ClassDef]]:
    for child in ast.iter_child_nodes(node):
        name = outer
        if isinstance(child, ast.ClassDef | FUNCTIONS):
            name = f"{outer}.{child.name}".lstrip(".")
        if isinstance(child, ast.ClassDef):
            yield name, child
        yield from _classes(child, name)


def _figures(node: ast.ClassDef) -> Figures:
    assert node.end_lineno is not None
    methods = {child.name for child in node.body if isinstance(child, FUNCTIONS)}
    lines = node.end_lineno - node.lineno + 1
    return {"methods": len(methods), "lines": lines, "attributes": len(attributes(node))}


def attributes(node: ast.ClassDef) -> dict[str, int]:
    """Return a class's instance attributes, each with its first line; inherited ones are not known."""
    found: dict[str, int] = {}
    for child in node.body:
        if isinstance(child, ast.AnnAssign) and isinstance(child.target, ast.Name):
            if "ClassVar" not in ast.unparse(child.annotation):
                found.setdefault(child.target.id, child.lineno)
        elif isinstance(child, ast.Assign):
            if any(isinstance(target, ast.Name) and target.id == "__slots__" for target in child.targets):
                for part in ast.walk(child.value):
                    if isinstance(part, ast.Constant):
                        found.setdefault(str(part.value), part.lineno)
        elif isinstance(child, FUNCTIONS):
            for part in ast.walk(child):
                if isinstance(part, ast.Attribute) and _is_assigned_on_self(part):
                    found.setdefault(part.attr, part.lineno)
    return found


def _is_assigned_on_self(node: ast.Attribute) -> bool:
    return isinstance(node.ctx, ast.Store) and isinstance(node.value, ast.Name) and node.value.id == "self"


def read_table(path: Path = TABLE) -> Table:
    """Return the list of exceptions."""
    table = tomllib.loads(path.read_text(encoding="utf-8"))
    return {kind: table.get(kind, {}) for kind in BOUNDS}


def problems(table: Table, sizes: Sizes) -> list[str]:
    """Return a sentence for each size that exceeds its bound and the list, and for each entry that is out of date."""
    found = []
    for kind, bounds in BOUNDS.items():
        for key in sorted(sizes[kind].keys() | table[kind].keys()):
            listed, present = table[kind].get(key, {}), sizes[kind].get(key)
            if present is None:
                found.append(f"{key}: there is none by this name: take it off the list ({COMMAND})")
                continue
            for measured, bound in bounds.items():
                problem = _problem(present[measured], listed.get(measured), bound, kind)
                if problem:
                    found.append(f"{key}: {present[measured]} {measured}, {problem}")
            if listed and not str(listed.get("reason", "")).strip():
                found.append(f"{key}: give a reason")
    return found


def _problem(present: int, listed: int | str | None, bound: int, kind: str) -> str:
    if listed is None:
        return f"the bound is {bound}: {ADVICE[kind]}" if present > bound else ""
    if present <= bound:
        return f"within the bound of {bound}: take it off the list ({COMMAND})"
    if present < int(listed):
        return f"the list says {listed}: lower it to {present} ({COMMAND})"
    return f"the list allows {listed}: {ADVICE[kind]}" if present > int(listed) else ""


def lowered(table: Table, sizes: Sizes) -> Table:
    """Return the list with present figures, where they are lower, without what is within its bounds.

    A name that is gone passes its entry on to a new name of its part that exceeds no figure of it.
    """
    return {kind: _lowered(table[kind], sizes[kind], bounds) for kind, bounds in BOUNDS.items()}


def _lowered(
    entries: Mapping[str, dict[str, int | str]], sizes: Mapping[str, Figures], bounds: Figures
) -> dict[str, dict[str, int | str]]:
    entries = dict(entries)
    gone = sorted(entries.keys() - sizes.keys())
    for key in sorted(sizes.keys() - entries.keys()):
        exceeded = {
            measured: sizes[key][measured] for measured, bound in bounds.items() if sizes[key][measured] > bound
        }
        for former in gone if exceeded else ():
            if _part(former) == _part(key) and all(
                figure <= int(entries[former].get(measured, 0)) for measured, figure in exceeded.items()
            ):
                entries[key] = entries.pop(former)
                gone.remove(former)
                break
    found: dict[str, dict[str, int | str]] = {}
    for key in sorted(entries.keys() - set(gone)):
        figures: dict[str, int | str] = {
            measured: min(int(entries[key][measured]), sizes[key][measured])
            for measured, bound in bounds.items()
            if measured in entries[key] and sizes[key][measured] > bound
        }
        if figures:
            found[key] = figures | {"reason": entries[key].get("reason", "")}
    return found


def _part(key: str) -> str:
    return key.replace("/", " ").partition(" ")[0]


def as_toml(table: Table) -> str:
    """Return the list's text."""
    lines = [HEAD]
    for kind, entries in table.items():
        for key, entry in sorted(entries.items()):
            lines.append(f"[{kind}.{json.dumps(key)}]\n")
            lines += [f"{name} = {json.dumps(value, ensure_ascii=False)}\n" for name, value in entry.items()]
            lines.append("\n")
    return "".join(lines).rstrip("\n") + "\n"


def main() -> None:
    """Lower the list, then print what still exceeds it."""
    sizes = measure(sources())
    table = lowered(read_table(), sizes)
    TABLE.write_text(as_toml(table), encoding="utf-8")
    for problem in problems(table, sizes):
        print(problem)


if __name__ == "__main__":
    main()
