"""TOML is read whole, and what is wrong with it is one sentence that names file, key and remedy."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from drupelet.command.config_check import CONFIG_BYTES_MAX, Table, nearest, parse_toml, read_text
from drupelet.errors import ConfigurationError

FILE = Path("/etc/part.toml")


def table(text: str) -> Table:
    return Table(FILE, "part", parse_toml(text, FILE))


@pytest.mark.parametrize(("name", "near"), [("sorce", "source"), ("batch", None), ("soruces", "source")])
def test_the_nearest_name(name: str, near: str | None) -> None:
    assert nearest(name, ["source", "target"]) == near


@pytest.mark.parametrize(
    ("text", "take", "said"),
    [
        ("", lambda t: t.text("a"), "a is missing: give it as a string."),
        ("a = 1", lambda t: t.text("a"), "a is 1: write a string."),
        ("a = ''", lambda t: t.text("a"), "a is empty"),
        ("a = true", lambda t: t.number("a", 1, 0, 9), "a is True: write a whole number."),
        ("a = 10", lambda t: t.number("a", 1, 0, 9), "a is 10: use 0 to 9."),
        ("a = 'x'", lambda t: t.choice("a", "y", ("y", "z")), 'a is "x": use one of y, z.'),
        ("[a]\nb = 1", lambda t: t.table("a").text("b"), "a.b is 1"),
        ("[[a]]\nb = 1", lambda t: t.tables("a")[0].text("b"), "a[0].b is 1"),
        ("a = [1]", lambda t: t.tables("a"), "a must be tables: start each one with [[a]]."),
        ("ab = 1", lambda t: t.refuse_unknown({"abc": None}), 'ab is not a key of the part: did you mean "abc"?'),
        (
            "[t]\nbc = 1",
            lambda t: t.refuse_unknown({"t": {"abc": None}}),
            't.bc is not a key of the part: did you mean "abc"?',
        ),
        (
            "[[t]]\n[[t]]\nz = 1",
            lambda t: t.refuse_unknown({"t": {"abc": None}}),
            "t[1].z is not a key of the part: known here: abc.",
        ),
        ("x = 1", lambda t: t.refuse_unknown({"a": None}), "x is not a key of the part: known here: a."),
    ],
)
def test_what_is_wrong_is_named(text: str, take: Callable[[Table], object], said: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        take(table(text))
    assert str(caught.value).startswith(f"{FILE}: {said}")
    assert "\n" not in str(caught.value)


def test_a_path_is_absolute_also_where_the_file_is_not(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    read = Table(Path("conf/part.toml"), "part", {"a": "x"})
    assert read.path("a") == tmp_path / "conf" / "x"


def test_paths_are_relative_to_the_file() -> None:
    read = table("a = 'x/y'\nb = '/z'")
    assert (read.path("a"), read.path("b"), read.optional_path("c")) == (Path("/etc/x/y"), Path("/z"), None)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    file = tmp_path / "part.toml"
    with pytest.raises(ConfigurationError, match=r"part\.toml cannot be read: no such file"):
        read_text(file)
    file.write_bytes(b"a = '\xff'")
    with pytest.raises(ConfigurationError, match=r"part\.toml is not UTF-8 at byte 5"):
        read_text(file)
    file.write_bytes(b"#" * (CONFIG_BYTES_MAX + 1))
    with pytest.raises(ConfigurationError, match=r"part\.toml is larger than"):
        read_text(file)
    with pytest.raises(ConfigurationError, match=r"part\.toml is not TOML: "):
        parse_toml("a = ", file)
