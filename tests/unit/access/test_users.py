"""`edge-broker user`: who is added, listed and removed in a data directory, and where a password comes from."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path

import pytest

from edge_broker.access.user_arguments import ITERATIONS
from edge_broker.cli import main
from edge_broker.security.scram import ITERATIONS_MAX, ITERATIONS_MIN, MECHANISMS, is_password
from edge_broker.storage.files.filesystem import Disk
from edge_broker.storage.metadata.security_store import SecurityStore

PASSWORD = "päss word"


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    return tmp_path / "data"


def user(data_dir: Path, *arguments: str) -> int:
    try:
        return main(["user", *arguments, "--data-dir", str(data_dir)])
    except SystemExit as end:  # the options are wrong
        return int(str(end.code))


def typed(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(text))


def held(data_dir: Path):
    return SecurityStore.open(Disk(), str(data_dir), os.urandom).state.users


def is_of(data_dir: Path, name: str, password: str) -> bool:
    return all(is_password(MECHANISMS[key], password.encode(), one) for key, one in held(data_dir)[name].items())


def test_users_are_added_listed_changed_and_removed(data_dir, capsys, monkeypatch) -> None:
    """In a directory that no broker has served yet; nobody else reads the file, and no password is in it."""
    typed(monkeypatch, f"{PASSWORD}\nanother line\n")
    assert user(data_dir, "add", "gateway") == 0
    said = capsys.readouterr()
    assert said.out == "added: gateway\n"
    assert said.err == f"{data_dir} is new: no broker has served it yet\n"
    assert is_of(data_dir, "gateway", PASSWORD)
    assert set(held(data_dir)["gateway"]) == {"SCRAM-SHA-256", "SCRAM-SHA-512"}
    assert os.stat(data_dir / "security").st_mode & 0o777 == 0o600
    assert PASSWORD.encode() not in (data_dir / "security").read_bytes()
    assert user(data_dir, "list", "--json") == 0
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == [
        {"user": "gateway", "mechanism": name, "iterations": 4096, "first_log_in": "never", "last_log_in": "never"}
        for name in MECHANISMS
    ]
    typed(monkeypatch, "another\r\n")
    assert user(data_dir, "add", "gateway", "--iterations", "8192") == 0
    assert capsys.readouterr().out == "changed: gateway\n"
    assert is_of(data_dir, "gateway", "another")
    assert user(data_dir, "remove", "gateway") == 0
    assert capsys.readouterr().out == "removed: gateway\n"
    assert held(data_dir) == {}
    assert user(data_dir, "list") == 0
    assert capsys.readouterr().out == "no users\n"


def test_a_principal_is_no_user(data_dir, capsys) -> None:
    assert user(data_dir, "add", "User:ann") == 2
    assert "User:ann is a principal, as rights name it; the user is called ann" in capsys.readouterr().err
    assert not data_dir.exists()


@pytest.mark.parametrize("words", [(), ("--password-file", "missing")], ids=["empty", "no file"])
def test_a_refused_password_makes_no_directory(data_dir, monkeypatch, words) -> None:
    typed(monkeypatch, "")
    assert user(data_dir, "add", "ann", *words) == 2
    assert not data_dir.exists()


@pytest.mark.parametrize("words", [(), ("--password-file", "missing")], ids=["empty", "no file"])
def test_a_directory_that_is_none_is_refused_before_a_password_is_read(data_dir, monkeypatch, capsys, words) -> None:
    data_dir.touch()
    typed(monkeypatch, "")
    assert user(data_dir, "add", "ann", *words) == 2
    assert "is no directory: name the one that the broker serves" in capsys.readouterr().err


def test_a_password_file_is_read_unless_others_may(data_dir, tmp_path, capsys) -> None:
    path = tmp_path / "password"
    path.touch(0o600)
    path.write_text(f"{PASSWORD}\n")
    assert user(data_dir, "add", "a", "--password-file", str(path)) == 0
    assert is_of(data_dir, "a", PASSWORD)
    path.chmod(0o644)
    assert user(data_dir, "add", "b", "--password-file", str(path)) == 2
    assert "chmod g-w,o=" in capsys.readouterr().err
    assert set(held(data_dir)) == {"a"}


@pytest.mark.parametrize(("second", "status"), [(PASSWORD, 0), ("other", 1)])
def test_a_person_is_asked_twice(data_dir, monkeypatch, second, status) -> None:
    answers = [PASSWORD, second]
    typed(monkeypatch, "")
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("getpass.getpass", lambda _prompt: answers.pop(0))
    assert user(data_dir, "add", "a") == status
    assert ("a" in held(data_dir)) is (status == 0)


def test_whoever_types_no_password_changes_nothing(data_dir, monkeypatch, capsys) -> None:
    """Ctrl-D at the prompt."""

    def end(_prompt: str) -> str:
        raise EOFError

    typed(monkeypatch, "")
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("getpass.getpass", end)
    assert user(data_dir, "add", "a") == 1
    assert capsys.readouterr().err == "edge-broker: no password was typed; nothing was changed\n"
    assert not data_dir.exists()


def test_a_password_is_no_argument_and_is_not_repeated(data_dir, capsys) -> None:
    assert user(data_dir, "add", "a", "--password", "s3cret") == 2
    said = capsys.readouterr().err
    assert ("--password-file" in said, "s3cret" in said) == (True, False)


@pytest.mark.parametrize("text", ["", "\n", "a\0b\n", "x" * 1025])
def test_what_is_no_password_is_refused(data_dir, monkeypatch, capsys, text) -> None:
    typed(monkeypatch, text)
    assert user(data_dir, "add", "a") == 2
    assert "password" in capsys.readouterr().err


@pytest.mark.parametrize(("name", "iterations"), [("x" * 256, "4096"), ("*", "4096"), ("a", "4095"), ("a", "16385")])
def test_what_is_no_user_is_refused(data_dir, monkeypatch, name, iterations) -> None:
    assert ITERATIONS == (ITERATIONS_MIN, ITERATIONS_MAX)
    typed(monkeypatch, PASSWORD)
    assert user(data_dir, "add", name, "--iterations", iterations) == 2
    assert not data_dir.exists()


def test_a_user_that_is_not_there_cannot_be_removed(data_dir, monkeypatch, capsys) -> None:
    typed(monkeypatch, PASSWORD)
    user(data_dir, "add", "a")
    assert user(data_dir, "remove", "b") == 1
    assert "there is no user b" in capsys.readouterr().err
    assert user(data_dir.parent / "nowhere", "list") == 2


def test_damage_is_said_and_nothing_written(data_dir, monkeypatch, capsys) -> None:
    typed(monkeypatch, PASSWORD)
    user(data_dir, "add", "a")
    (data_dir / "security").write_bytes(b"?")
    for arguments in (["list"], ["remove", "a"], ["add", "b"]):
        assert user(data_dir, *arguments) == 1
        assert "cannot be read" in capsys.readouterr().err
    assert (data_dir / "security").read_bytes() == b"?"
