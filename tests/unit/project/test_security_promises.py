"""Each row of SECURITY.md's tables names the tests that prove it, in its text or in a comment, and each is run.

| named | must be |
|---|---|
| `test_some_thing` | a test of this name that pytest collects, not skipped and not expected to fail |
| `test_some_file.py` | a file with tests |
| make target | a target of the Makefile |
| scenario | a folder of ansible/molecule |

That every folder with tests is in a suite or in the night is tests/unit/project/test_suites.py's to prove.
"""

from __future__ import annotations

import ast
import functools
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.waiting import CALL_S

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "SECURITY.md").read_text()
RULE = re.compile(r"\|[-:| ]+\|")
TEST = re.compile(r"\btest_\w+(?:\.py)?")
MAKE, SCENARIO = re.compile(r"`make ([\w-]+)`"), re.compile(r"scenario `(\w+)`")
NOT_RUN = re.compile(r"\bmark\.(skip|xfail)\b(?!if)")


class Row(NamedTuple):
    """A row of a table, and its line in the page."""

    line: int
    text: str

    @property
    def tests(self) -> list[str]:
        """The tests that it names."""
        return TEST.findall(self.text)


def rows(page: str) -> Iterator[Row]:
    """Return the rows of a page's tables, without their heads."""
    lines = page.splitlines()
    in_body = False
    for number, line in enumerate(lines, 1):
        in_body = line.startswith("|") and (in_body or RULE.fullmatch(lines[number - 2]) is not None)
        if in_body:
            yield Row(number, line)


def without_a_test(page: str) -> list[int]:
    """Return the lines of the rows that name no test."""
    return [row.line for row in rows(page) if not row.tests]


class KnownTests:
    """All tests of the project, by name and by file."""

    def __init__(self) -> None:
        self.files = {path.name: path for path in (ROOT / "tests").rglob("test_*.py")}

    @functools.cached_property
    def _of_name(self) -> dict[str, list[Path]]:
        found: dict[str, list[Path]] = {}
        for path in (ROOT / "tests").rglob("test_*.py"):
            for name in set(re.findall(r"^(?:async )?def (test_\w+)", path.read_text(), re.MULTILINE)):
                found.setdefault(name, []).append(path)
        return found

    def holding(self, name: str) -> list[Path]:
        """Return the files that have the test or file of this name."""
        return [self.files[name]] if name in self.files else self._of_name.get(name, [])

    def not_run(self, name: str) -> list[str]:
        """Return the reasons why a test is not run wherever it is collected."""
        return [
            f"{path.relative_to(ROOT)}: {name} is marked {found[1]}"
            for path in self._of_name.get(name, [])
            for function in ast.parse(path.read_text()).body
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef) and function.name == name
            for decorator in function.decorator_list
            if (found := NOT_RUN.search(ast.unparse(decorator)))
        ]


def problems(page: str, tests: KnownTests) -> list[str]:
    """Return a sentence for each thing of the page that is not there, or that runs nowhere."""
    makefile = (ROOT / "Makefile").read_text()
    found = [f"{name} is no test" for name in TEST.findall(page) if not tests.holding(name)]
    found += [reason for name in TEST.findall(page) for reason in tests.not_run(name)]
    found += [
        f"make {target} is no target"
        for target in MAKE.findall(page)
        if not re.search(rf"^{target}:", makefile, re.MULTILINE)
    ]
    found += [
        f"scenario {name} is not there"
        for name in SCENARIO.findall(page)
        if not (ROOT / "ansible/molecule" / name / "molecule.yml").is_file()
    ]
    return found


def test_each_row_names_a_test() -> None:
    assert len(list(rows(PAGE))) >= 8
    assert without_a_test(PAGE) == []


def test_each_test_that_is_named_is_there() -> None:
    assert problems(PAGE, KnownTests()) == []


def test_each_test_that_is_named_is_collected() -> None:
    tests, names = KnownTests(), set(TEST.findall(PAGE))
    files = sorted({str(path) for name in names for path in tests.holding(name)})
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", *files]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=CALL_S, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    collected = {re.sub(r"\[.*", "", line).rpartition("::")[2] for line in done.stdout.splitlines() if "::" in line}
    collected |= {Path(line.partition("::")[0]).name for line in done.stdout.splitlines() if "::" in line}
    assert sorted(names - collected) == []


DOCTORED = """
| who | what |
|---|---|
| a stranger | nothing (`test_a_stranger_gets_nothing`) |
| a thief | all |
| a guest | little <!-- test_no_such_thing --> |

| no | table |
"""


def test_a_row_without_a_test_and_a_name_of_none_are_found() -> None:
    assert [row.line for row in rows(DOCTORED)] == [4, 5, 6]
    assert without_a_test(DOCTORED) == [5]
    assert problems(DOCTORED, KnownTests()) == ["test_no_such_thing is no test"]
    assert problems("`make nonsense` and scenario `nowhere`", KnownTests()) == [
        "make nonsense is no target",
        "scenario nowhere is not there",
    ]


@pytest.mark.parametrize(
    ("mark", "is_found"), [("skip(reason='x')", True), ("xfail", True), ("skipif(False)", False), ("night", False)]
)
def test_a_test_that_never_runs_proves_nothing(mark: str, is_found: bool) -> None:
    assert bool(NOT_RUN.search(f"pytest.mark.{mark}")) is is_found
