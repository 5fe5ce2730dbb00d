"""Classes, files and folders of the product stay within their bounds; the list of exceptions only shrinks.

The bounds and the command that lowers the list are in tests/support/sizes.py.
"""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.support.product_sources import PARTS, ROOT, Source, sources
from tests.support.sizes import BOUNDS, Sizes, Table, as_toml, attributes, lowered, measure, problems, read_table

CLASS = '[classes."mirror Sender"]\n{}\nreason = "one idea"\n'
COMMAND = "(python -m tests.support.sizes)"


def test_sizes_are_within_bounds_or_listed(product: list[Source]) -> None:
    assert problems(read_table(), measure(product)) == []


def test_every_part_is_measured(product: list[Source]) -> None:
    """A part that is missing would be within all bounds."""
    assert {source.part for source in product} == set(PARTS)
    assert {path.parent.name for path in ROOT.glob("*/__init__.py")} == set(PARTS) - {"ansible"} | {"tests"}


def test_the_list_is_as_the_command_writes_it() -> None:
    table = read_table()
    assert tomllib.loads(as_toml(table)) == {kind: entries for kind, entries in table.items() if entries}


def measured(root: Path, files: Mapping[str, str]) -> Sizes:
    """Return the sizes of planted files."""
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return measure(sources(root, ("edge_broker", "mirror")))


def table_of(text: str) -> Table:
    return {kind: tomllib.loads(text).get(kind, {}) for kind in BOUNDS}


def class_of(methods: int = 0, lines: int = 0, attributes: int = 0, *, name: str = "Sender") -> str:
    """Return a class of some sizes; 0 stands for one that is within its bound."""
    parts = [f"class {name}:", "    __slots__ = (" + "".join(f"'a{n}', " for n in range(attributes)) + ")"]
    parts += [f"    def m{n}(self): pass" for n in range(methods)]
    parts += ["    # one more line"] * (lines - len(parts) - 1)
    return "\n".join([*parts, "    pass", ""])


LONGEST = {"methods": 30, "lines": 450, "attributes": 20}


@pytest.mark.parametrize("measure_name", LONGEST)
def test_a_class_above_a_bound_is_found(tmp_path: Path, measure_name: str) -> None:
    within, above = LONGEST, LONGEST | {measure_name: LONGEST[measure_name] + 1}
    assert problems(table_of(""), measured(tmp_path / "within", {"mirror/a.py": class_of(*within.values())})) == []
    (problem,) = problems(table_of(""), measured(tmp_path / "above", {"mirror/a.py": class_of(*above.values())}))
    assert problem.startswith(f"mirror Sender: {LONGEST[measure_name] + 1} {measure_name}, the bound is ")


def test_a_file_above_its_bound_is_found(tmp_path: Path) -> None:
    sizes = measured(tmp_path, {"mirror/long.py": "pass\n" * 601, "mirror/short.py": "pass\n" * 600})
    (problem,) = problems(table_of(""), sizes)
    assert problem.startswith("mirror/long.py: 601 lines, the bound is 600: split it")


def test_a_folder_above_its_bound_is_found(tmp_path: Path) -> None:
    full = {f"mirror/full/{name}.py": "" for name in ("__init__", *map(str, range(15)))}
    crowded = {f"mirror/crowded/{n}.py": "" for n in range(16)}
    flat = {f"edge_broker/handlers/{n}.py": "" for n in range(16)}
    sizes = measured(tmp_path, full | crowded | flat)
    (problem,) = problems(table_of(""), sizes)
    assert problem.startswith("mirror/crowded: 16 modules, the bound is 15: put modules")


@pytest.mark.parametrize(
    ("listed", "problem"),
    [
        ("methods = 33", ""),
        ("methods = 32", "mirror Sender: 33 methods, the list allows 32: move a second reason to change"),
        ("methods = 34", f"mirror Sender: 33 methods, the list says 34: lower it to 33 {COMMAND}"),
        (
            "methods = 33\nlines = 460",
            f"mirror Sender: 450 lines, within the bound of 450: take it off the list {COMMAND}",
        ),
    ],
)
def test_a_listed_figure_is_the_present_one(tmp_path: Path, listed: str, problem: str) -> None:
    found = problems(table_of(CLASS.format(listed)), measured(tmp_path, {"mirror/a.py": class_of(33, 450)}))
    assert len(found) == bool(problem)
    assert "".join(found).startswith(problem)


def test_an_entry_without_its_class_is_found(tmp_path: Path) -> None:
    found = problems(table_of(CLASS.format("methods = 33")), measured(tmp_path, {"mirror/a.py": "pass\n"}))
    assert found == [f"mirror Sender: there is none by this name: take it off the list {COMMAND}"]


def test_an_entry_without_a_reason_is_found(tmp_path: Path) -> None:
    table = table_of('[classes."mirror Sender"]\nmethods = 33\nreason = " "\n')
    assert problems(table, measured(tmp_path, {"mirror/a.py": class_of(33)})) == ["mirror Sender: give a reason"]


def test_a_class_may_move_inside_its_part(tmp_path: Path) -> None:
    table = table_of(CLASS.format("methods = 33"))
    assert problems(table, measured(tmp_path, {"mirror/producer/sender.py": class_of(33)})) == []
    assert len(problems(table, measured(tmp_path / "other", {"edge_broker/sender.py": class_of(33)}))) == 2


LOWERED = [  # what is listed, the present class, what is listed then
    ("methods = 40", class_of(33), CLASS.format("methods = 33")),
    ("methods = 32", class_of(33), CLASS.format("methods = 32")),
    ("methods = 40", class_of(30), ""),
    ("methods = 40", "pass\n", ""),
    ("methods = 40\nlines = 500", class_of(33, 450), CLASS.format("methods = 33")),
    ("methods = 40", class_of(33, 460), CLASS.format("methods = 33")),
    ("methods = 40", class_of(33, name="BatchSender"), CLASS.format("methods = 33").replace("Sender", "BatchSender")),
    ("methods = 32", class_of(33, name="BatchSender"), ""),
]


@pytest.mark.parametrize(("listed", "present", "then"), LOWERED)
def test_the_command_lowers_and_never_raises(tmp_path: Path, listed: str, present: str, then: str) -> None:
    table = lowered(table_of(CLASS.format(listed)), measured(tmp_path, {"mirror/a.py": present}))
    assert table == table_of(then)
    assert table_of(as_toml(table)) == table


def test_a_moved_file_keeps_its_entry(tmp_path: Path) -> None:
    table = table_of('[files."mirror/a.py"]\nlines = 700\nreason = "one table"\n')
    sizes = measured(tmp_path, {"mirror/link/b.py": "pass\n" * 690, "edge_broker/c.py": "pass\n" * 650})
    assert lowered(table, sizes) == table_of('[files."mirror/link/b.py"]\nlines = 690\nreason = "one table"\n')


def test_instance_attributes_are_counted_once() -> None:
    text = """
class Lane(Base):
    __slots__ = ("a", "b")
    c: int = 0
    d: ClassVar[int] = 0
    e = 0

    def __init__(self, other):
        self.a = self.f = 0
        other.g = 0
        self.h: int = 0
        self.i, self.j = 0, 0
        self.k.l = 0
        with open("m") as self.m:
            pass

    def n(self):
        self.a += 1
        return self.o
"""
    (node,) = ast.parse(text).body
    assert isinstance(node, ast.ClassDef)
    assert set(attributes(node)) == {"a", "b", "c", "f", "h", "i", "j", "m"}


def test_classes_with_one_name_count_as_the_largest(tmp_path: Path) -> None:
    sizes = measured(tmp_path, {"mirror/a.py": class_of(31), "mirror/b.py": class_of(3, attributes=21)})
    assert sizes["classes"]["mirror Sender"] == {"methods": 31, "lines": 34, "attributes": 21}


def test_a_class_inside_another_one_has_its_own_figures(tmp_path: Path) -> None:
    inner = "class Outer:\n" + "".join(f"    {line}\n" for line in class_of(2).splitlines())
    assert measured(tmp_path, {"mirror/a.py": inner})["classes"]["mirror Outer.Sender"]["methods"] == 2
    assert measured(tmp_path, {"mirror/a.py": inner})["classes"]["mirror Outer"]["methods"] == 0
