"""No import circles in the product, and a planted one is found."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.import_circles import PRODUCT, circles


def test_the_product_has_no_circles() -> None:
    assert circles(*PRODUCT) == []


IMPORTS = {
    "module level": ("from {0} import {1}\n", "from {0} import {1}\n"),
    "TYPE_CHECKING": (
        "from {0} import {1}\n",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from {0} import {1}\n",
    ),
    "inside a function": ("import {0}.{1}\n", "def work():\n    from {0}.{1} import name\n"),
}
PLANTED = {  # importer and imported one way, importer and imported back, the circle
    "modules": (("p.a", "p.b"), ("p.b", "p.a"), ("p.a", "p.b")),
    "folders": (("p.a.x", "p.b.x"), ("p.b.y", "p.a.y"), ("p.a", "p.b")),
    "deep": (("p.q.a", "p.q.b"), ("p.q.b", "p.q.a"), ("p.q.a", "p.q.b")),
    "parts": (("p.a", "r.a"), ("r.a", "p.a"), ("p.a", "r.a")),
}


def plant(root: Path, module: str, text: str) -> None:
    path = root.joinpath(*module.split(".")).with_suffix(".py")
    path.parent.mkdir(parents=True, exist_ok=True)
    for folder in path.relative_to(root).parents[:-1]:
        (root / folder / "__init__.py").touch()
    with path.open("a") as file:
        file.write(text)


def found_in(root: Path, monkeypatch: pytest.MonkeyPatch, *modules: str) -> list[tuple[str, ...]]:
    for module in sorted({*modules}):
        plant(root, module, "name = 1\n")
    monkeypatch.syspath_prepend(root)
    return circles(*sorted({module.partition(".")[0] for module in modules}))


@pytest.mark.parametrize("kind", IMPORTS)
@pytest.mark.parametrize("shape", PLANTED)
def test_a_planted_circle_is_found(shape: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    there, back, circle = PLANTED[shape]
    for (importer, imported), text in zip((there, back), IMPORTS[kind], strict=True):
        plant(tmp_path, importer, text.format(*imported.rsplit(".", 1)))
    assert found_in(tmp_path, monkeypatch, *there, *back) == [circle]


def test_a_circle_of_three_modules_is_found_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for importer, imported in (("p.a", "p.b"), ("p.b", "p.c"), ("p.c", "p.a"), ("p.d", "p.a"), ("p.a", "p.e")):
        plant(tmp_path, importer, f"import {imported}\n")
    assert found_in(tmp_path, monkeypatch, "p.a", "p.b", "p.c", "p.d", "p.e") == [("p.a", "p.b", "p.c")]


def test_circles_that_share_a_module_are_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for importer, imported in (("p.a", "p.b"), ("p.b", "p.a"), ("p.b", "p.c"), ("p.c", "p.b")):
        plant(tmp_path, importer, f"import {imported}\n")
    assert found_in(tmp_path, monkeypatch, "p.a", "p.b", "p.c") == [("p.a", "p.b", "p.c")]


def test_a_folder_that_imports_what_imports_it_is_a_circle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(tmp_path, "p.a", "from p import name\n")
    plant(tmp_path, "p.__init__", "from p import a\n")
    assert found_in(tmp_path, monkeypatch, "p.a", "p.__init__") == [("p.__init__", "p.a")]


def test_imports_one_way_are_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for importer, imported in (("p.a.x", "p.b.x"), ("p.a.y", "p.b.x"), ("p.b.x", "p.b.y"), ("p.a.x", "p.c")):
        plant(tmp_path, importer, f"import {imported}\n")
    assert found_in(tmp_path, monkeypatch, "p.a.x", "p.a.y", "p.b.x", "p.b.y", "p.c") == []
