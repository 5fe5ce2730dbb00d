"""Names that the product gives up: no part has more of them than its bounds allow, and bounds only fall.

The names, and the command that lowers the bounds, are in tests/support/names.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.support.names import (
    RIGHT,
    RULES,
    TABLE,
    Bounds,
    Definition,
    Findings,
    as_text,
    definitions,
    findings,
    lowered,
    problems,
    read_bounds,
)
from tests.support.product_sources import Source, sources

COMMAND = "python -m tests.support.names"
PLANTED = {  # code of the mirror, and the names that are found
    "def told(): pass": ["told"],
    "def _taken(): pass": ["taken"],
    "async def made_(): pass": ["made"],
    "class Wanted: pass": ["wanted"],
    "class _Told: pass": ["told"],
    "class A:\n    def settled(self): pass": ["settled"],
    "class A:\n    @property\n    def behind(self): pass": ["behind"],
    "def run():\n    def took(): pass": ["took"],
    "if True:\n    def took(): pass": ["took"],
    "try:\n    run()\nexcept OSError:\n    class Lost: pass": ["lost"],
    "match run():\n    case 1:\n        def took(): pass": ["took"],
    "class A:\n    class Seen: pass": ["seen"],
    "def run(between): pass": ["between"],
    "def run(*, ours): pass": ["ours"],
    "def run(*others, **nobody): pass": ["nobody", "others"],
    "class A:\n    beside: int": ["beside"],
    "class A:\n    __slots__ = ('ours',)": ["ours"],
    "class A:\n    def run(self):\n        self._others = self._others = 0": ["others"],
    "def begin_reign(): pass": ["reign"],
    "class NewHeir: pass": ["heir"],
    "class HTTPJudge: pass": ["judge"],
    "def run(wish_of_door): pass": ["door", "wish"],
    "class Lane: pass": ["lane"],
    "def let_go(): pass": ["let_go"],
    "def hold(): pass": ["hold"],
    "def is_weak(): pass": ["is_weak"],
    "def tell(tell): pass": ["tell", "tell"],
    "def dealt(): pass": ["dealt"],
    "def connection_lost(): pass": [],
    "class LoginFailed: pass": [],
    "def seed(speed, need): pass": [],
    "def run(told, taken): pass": [],
    "class A:\n    def run(self):\n        self.closed = behind = ours = 0": [],
    "told = ours = nobody": [],
    "def wishful(doorway, relive): pass": [],
    "def lead_in(hold): pass": [],
}


@pytest.fixture(scope="module")
def every(product: list[Source]) -> list[Definition]:
    return list(definitions(product))


def planted(root: Path, files: Mapping[str, str]) -> Findings:
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    return findings(definitions(sources(root)))


def test_no_part_exceeds_its_bounds(every: list[Definition]) -> None:
    assert problems(read_bounds(TABLE.read_text()), findings(every)) == []


@pytest.mark.parametrize("code", PLANTED)
def test_a_name_is_found(tmp_path: Path, code: str) -> None:
    found = planted(tmp_path, {"mirror/a.py": code})
    assert sorted(name for (_, name), some in found.items() for _ in some) == PLANTED[code]


def test_names_of_modules_and_folders_are_found(tmp_path: Path) -> None:
    found = planted(
        tmp_path, {"mirror/between.py": "", "mirror/lives/a.py": "", "mirror/lives/b.py": "", "mirror/c.py": ""}
    )
    assert sorted(found) == [("mirror", "between"), ("mirror", "lives")]
    assert [len(some) for some in found.values()] == [1, 1]


@pytest.mark.parametrize(("part", "found"), [("mirror", 0), ("edge_broker", 2)])
def test_a_name_may_be_given_up_by_one_part(tmp_path: Path, part: str, found: int) -> None:
    assert len(planted(tmp_path, {f"{part}/a.py": "def advance(out): pass"})) == found


@pytest.mark.parametrize("name", RIGHT)
def test_a_name_is_right_in_some_places(tmp_path: Path, name: str) -> None:
    for place in RIGHT[name]:
        path = place if place.endswith(".py") else f"{place}a.py"
        assert planted(tmp_path / "there", {path: f"def {name}(): pass"}) == {}
        part, _, rest = place.partition("/")
        if rest:
            found = planted(tmp_path / "elsewhere", {f"{part}/elsewhere/a.py": f"def {name}(): pass"})
            assert list(found) == [(part, name)]


def test_each_place_where_a_name_is_right_has_it(every: list[Definition]) -> None:
    for name, places in RIGHT.items():
        for place in places:
            assert any(one.path.startswith(place) and name in one.name.lower() for one in every), (name, place)


TOLD = "def told(): pass\n"


@pytest.mark.parametrize(
    ("bounds", "problem"),
    [
        ("mirror told 2", ""),
        (
            "mirror told 1",
            f"mirror: 2 definitions of 'told', the bound is 1: write {RULES['participle']}: "
            "mirror/a.py:1 (function told), mirror/b.py:1 (function told)",
        ),
        ("mirror told 3", f"mirror: 2 definitions of 'told', the bound is 3: lower it: {COMMAND}"),
        ("mirror told 2\nmirror took 1", f"mirror: 0 definitions of 'took', the bound is 1: lower it: {COMMAND}"),
        ("gateway told 2\nmirror told 2", f"gateway: 0 definitions of 'told', the bound is 2: lower it: {COMMAND}"),
        ("", "mirror: 2 definitions of 'told', the bound is 0: write a verb"),
    ],
)
def test_a_bound_is_the_present_count(tmp_path: Path, bounds: str, problem: str) -> None:
    found = problems(read_bounds(bounds), planted(tmp_path, {"mirror/a.py": TOLD, "mirror/b.py": TOLD}))
    assert len(found) == bool(problem)
    assert "".join(found).startswith(problem)


def test_a_long_list_of_places_is_cut(tmp_path: Path) -> None:
    (problem,) = problems({}, planted(tmp_path, {"mirror/a.py": TOLD * 20}))
    assert problem.endswith("mirror/a.py:12 (function told), 8 more")


LOWERED: dict[str, tuple[Bounds, Bounds]] = {
    "fewer": ({("mirror", "told"): 3}, {("mirror", "told"): 2}),
    "more": ({("mirror", "told"): 1}, {("mirror", "told"): 1}),
    "none": ({("mirror", "took"): 1}, {}),
    "new": ({}, {}),
    "another part": ({("gateway", "told"): 2}, {}),
}


@pytest.mark.parametrize("case", LOWERED)
def test_the_command_lowers_and_never_raises(tmp_path: Path, case: str) -> None:
    before, after = LOWERED[case]
    assert lowered(before, planted(tmp_path, {"mirror/a.py": TOLD, "mirror/b/c.py": TOLD})) == after
    assert read_bounds(as_text(after)) == after


def test_the_lower_of_two_bounds_counts() -> None:
    assert read_bounds("# head\nmirror told 2\nmirror told 1\nmirror told 3\n") == {("mirror", "told"): 1}
