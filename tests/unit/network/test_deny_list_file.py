"""The deny list's file: what is refused, what holds meanwhile, and what is noticed."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from drupelet.errors import ConfigurationError
from drupelet.tls import secret_files
from edge_broker.network.background.deny_list_file import BYTES_MAX, DenyListFile

HOLDS = "; until then the list from before holds"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "denied"
    file.write_text("User:ann\n")
    file.chmod(0o644)
    return file


def denies(file: DenyListFile, *users: str) -> bool:
    """Whether the list denies these, and nobody else."""
    return set(file.current.principals) == {f"User:{user}" for user in users}


def test_a_new_list_holds_once_it_is_there(path: Path) -> None:
    file = DenyListFile(str(path))
    assert denies(file, "ann")
    assert not file.read_if_changed()
    path.write_text("User:bob\n")
    assert file.read_if_changed()
    assert denies(file, "bob")
    assert not file.read_if_changed()


def unreadable(path: Path) -> None:
    path.write_text("User:bob\nann\n")


def half(path: Path) -> None:
    path.write_text("User:bob")


def large(path: Path) -> None:
    path.write_bytes(b"User:bob\n" + b"#" * BYTES_MAX + b"\n")


def changeable(path: Path) -> None:
    path.write_text("User:bob\n")
    path.chmod(0o664)


def missing(path: Path) -> None:
    path.unlink()


def directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


def pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path, 0o644)


REFUSED = [
    (unreadable, "line 2 is 'ann': write serial=HEX"),
    (half, "line 1 has no end; write it whole"),
    (large, f"has more than {BYTES_MAX} bytes"),
    (changeable, "which other users of this host may change: `chmod go-w "),
    (missing, "which cannot be read: no such file"),
    (directory, "which is no file: name the file"),
    (pipe, "which is no file: name the file"),
]


@pytest.mark.parametrize(("spoil", "said"), REFUSED)
def test_what_is_refused_leaves_the_list_from_before(path: Path, spoil: Callable[[Path], None], said: str) -> None:
    file = DenyListFile(str(path))
    spoil(path)
    assert file.read_if_changed()
    assert not file.read_if_changed(), "said once"
    assert denies(file, "ann")
    assert file.problem.startswith(f"edge.deny.list.file is {path}, ")
    assert said.lower() in file.problem.lower()
    assert file.problem.endswith(HOLDS)
    assert f".{HOLDS}" not in file.problem
    if path.is_dir():
        path.rmdir()
    path.unlink(missing_ok=True)
    path.write_text("User:carol\n")
    assert file.read_if_changed()
    assert not file.problem
    assert denies(file, "carol")


@pytest.mark.parametrize(("spoil", "said"), REFUSED)
def test_what_is_refused_at_the_start_ends_it(path: Path, spoil: Callable[[Path], None], said: str) -> None:
    spoil(path)
    with pytest.raises(ConfigurationError) as caught:
        DenyListFile(str(path))
    assert said.lower() in str(caught.value).lower()
    assert str(caught.value).startswith(f"edge.deny.list.file is {path}, ")


def test_the_advised_chmod_is_noticed(path: Path) -> None:
    file = DenyListFile(str(path))
    changeable(path)
    assert file.read_if_changed()
    path.chmod(path.stat().st_mode & ~0o022)
    assert file.read_if_changed()
    assert not file.problem
    assert denies(file, "bob")


def test_an_owner_who_may_change_the_list_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = DenyListFile(str(path))
    path.write_text("User:bob\n")
    with monkeypatch.context() as patch:
        patch.setattr(secret_files, "_owners", lambda: {path.stat().st_uid + 1})
        assert file.read_if_changed()
        assert "belongs to another user" in file.problem
        assert denies(file, "ann")
    assert file.read_if_changed(), "a file that could not be had is tried at each look"
    assert denies(file, "bob")


def test_a_link_that_is_switched_is_noticed(path: Path) -> None:
    link, other = path.with_name("link"), path.with_name("other")
    link.symlink_to(path)
    file = DenyListFile(str(link))
    other.write_text("User:bob\n")
    link.unlink()
    link.symlink_to(other)
    assert file.read_if_changed()
    assert denies(file, "bob")
