"""A test imports shared code from tests/support, never from another test; a class name occurs once in tests/support."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.product_sources import ROOT
from tests.support.shared_code import classes_of_one_name, imports_of_tests

TESTS = ROOT / "tests"
# Imports of another test that remain, by folder. A number may only fall, and a folder without any leaves the table.
REMAINING = {
    "conformance": 1,
    "fault": 3,
    "property": 1,
    "unit/broker": 91,
    "unit/mirror": 14,
    "unit/network": 3,
    "unit/storage": 11,
}


def test_no_test_imports_another() -> None:
    more = {
        folder: places for folder, places in imports_of_tests(TESTS).items() if len(places) > REMAINING.get(folder, 0)
    }
    assert more == {}, "move what is shared to tests/support"


def test_a_class_name_occurs_once_in_the_support_code() -> None:
    assert classes_of_one_name(TESTS / "support") == {}, "name each class after what it does"


@pytest.mark.parametrize(
    "text",
    [
        "from tests.unit.test_a import name\n",
        "from tests.unit import test_a\n",
        "from tests.unit.conftest import name\n",
        "from .test_a import name\n",
        "from . import conftest\n",
        "import tests.unit.test_a\n",
        "def test_b():\n    from tests.unit.test_a import name\n",
    ],
)
def test_an_import_of_a_test_is_found(tmp_path: Path, text: str) -> None:
    (tmp_path / "unit").mkdir()
    (tmp_path / "unit/test_b.py").write_text(f"import os\nfrom tests.support import names\n{text}")
    line = 4 if text.startswith("def") else 3
    assert imports_of_tests(tmp_path) == {"unit": [f"unit/test_b.py:{line}"]}


def test_a_class_of_two_modules_is_found(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.py").write_text(
            f"class Site:\n    pass\n\n\nclass Of{name}:\n    class Site:\n        pass\n"
        )
    assert classes_of_one_name(tmp_path) == {"Site": ["a.py", "b.py"]}
