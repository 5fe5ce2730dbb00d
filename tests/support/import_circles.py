"""Import circles of packages: modules, and folders side by side, that import each other.

Counts imports at module level, under `TYPE_CHECKING` and inside functions alike. Lists those of the product:
`python -m tests.support.import_circles`.

| circle | found as |
|---|---|
| `p.a` imports `p.b`, which imports `p.a` | `p.a`, `p.b` |
| `p.a.x` imports `p.b.x`, and `p.b.y` imports `p.a.y` | `p.a`, `p.b` |
| `p.a` imports `p`, whose `__init__` imports `p.a` | `p.__init__`, `p.a` |
| `p.a` imports `q.a`, which imports `p.a` | `p.a`, `q.a` |
| `p.a` imports `q.a`, and `q.b` imports `p.b` | none: a matter of the contracts between parts |
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from graphlib import CycleError, TopologicalSorter

import grimp

PRODUCT = ("drupelet", "edge_broker", "gateway", "hardware", "kafka_wire", "mirror", "spark")


def circles(*packages: str) -> list[tuple[str, ...]]:
    """Return the circles in packages, as sorted names of modules and folders; each member imports all others.

    Members of one circle reach each other over any number of imports. The packages must be importable.
    """
    graph = grimp.build_graph(*packages, include_external_packages=False, cache_dir=None)
    modules = {one: graph.find_modules_directly_imported_by(one) for one in sorted(graph.modules)}
    siblings: dict[str, set[str]] = defaultdict(set)
    for importer, found in modules.items():
        for imported in found:
            if _part(importer) == _part(imported):
                one, other = _siblings(importer, imported)
                siblings[one].add(other)
    across = [circle for circle in _strongly_connected(modules) if len(set(map(_part, circle))) > 1]
    return sorted(_strongly_connected(siblings) + across)


def _part(module: str) -> str:
    return module.partition(".")[0]


def _siblings(importer: str, imported: str) -> tuple[str, str]:
    """Return what differs first in two names, from the root on; a folder itself is its `__init__`."""
    names, others = importer.split("."), imported.split(".")
    depth = next((n for n, (a, b) in enumerate(zip(names, others, strict=False)) if a != b), None)
    if depth is None:
        depth = min(len(names), len(others))
    name, other = (".".join([*path, "__init__"][: depth + 1]) for path in (names, others))
    return name, other


def _strongly_connected(graph: Mapping[str, set[str]]) -> list[tuple[str, ...]]:
    """Return the sets of two and more nodes that reach each other: nodes of a cycle are merged until none is left."""
    member_of = {node: node for node in graph} | {node: node for nodes in graph.values() for node in nodes}
    while True:
        merged: dict[str, set[str]] = defaultdict(set)
        for node, nodes in graph.items():
            merged[member_of[node]] |= {member_of[one] for one in nodes} - {member_of[node]}
        try:
            TopologicalSorter(merged).prepare()
        except CycleError as error:
            cycle: Sequence[str] = error.args[1]
            member_of = {node: cycle[0] if one in cycle else one for node, one in member_of.items()}
        else:
            break
    found: dict[str, list[str]] = defaultdict(list)
    for node, one in member_of.items():
        found[one].append(node)
    return sorted(tuple(sorted(nodes)) for nodes in found.values() if len(nodes) > 1)


def main() -> None:
    """Print each circle of the product on a line."""
    for circle in circles(*PRODUCT):
        print(*circle)


if __name__ == "__main__":
    main()
