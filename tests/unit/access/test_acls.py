"""`edge-broker acl`: what is added, listed and removed in a data directory, and that a start lets somebody in."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path

import pytest

from edge_broker.cli import main
from edge_broker.configuration.config import STANDARD_AUTHORIZER


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    return tmp_path / "data"


def acl(data_dir: Path, *arguments: str) -> int:
    try:
        return main(["acl", arguments[0], "--data-dir", str(data_dir), *arguments[1:]])
    except SystemExit as end:  # the options are wrong
        return int(str(end.code))


def listed(data_dir: Path, capsys: pytest.CaptureFixture[str], *arguments: str) -> list[tuple[str, ...]]:
    capsys.readouterr()
    assert acl(data_dir, "list", "--json", *arguments) == 0
    rows = map(json.loads, capsys.readouterr().out.splitlines())
    return [tuple(row.values()) for row in rows]


def test_rights_are_added_listed_and_removed(data_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In a directory that no broker has served yet; nobody else reads the file."""
    assert acl(data_dir, "add", "--allow", "User:gateway", "--operation", "write", "--topic", "readings") == 0
    assert acl(data_dir, "add", "--deny", "User:*", "--operation", "ALL", "--topic", "*", "--host", "10.0.0.9") == 0
    assert listed(data_dir, capsys) == [
        ("DENY", "User:*", "ALL", "TOPIC", "LITERAL", "*", "10.0.0.9"),
        ("ALLOW", "User:gateway", "WRITE", "TOPIC", "LITERAL", "readings", "*"),
    ]
    assert os.stat(data_dir / "security").st_mode & 0o777 == 0o600
    assert len(listed(data_dir, capsys, "--principal", "User:gateway")) == 1
    assert acl(data_dir, "remove", "--principal", "User:gateway") == 0
    assert "User:gateway" in capsys.readouterr().out
    assert len(listed(data_dir, capsys)) == 1
    assert acl(data_dir, "remove", "--all") == 0
    assert listed(data_dir, capsys) == []
    assert acl(data_dir, "remove", "--all") == acl(data_dir, "list") == 0
    assert capsys.readouterr().out == "no ACL is like that\nno ACLs\n"


def test_addresses_are_written_as_clients_have_them(data_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    acl(data_dir, "add", "--deny", "User:*", "--operation", "all", "--topic", "t", "--host", "2001:DB8::0:1")
    assert listed(data_dir, capsys)[0][-1] == "2001:db8::1"


def test_what_a_producer_and_a_consumer_need_has_a_word(data_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As kafka-acls has."""
    acl(data_dir, "add", "--allow", "User:g", "--producer", "--topic", "a", "--topic", "b", "--prefixed")
    assert {row[2:6] for row in listed(data_dir, capsys)} == {
        (operation, "TOPIC", "PREFIXED", name) for operation in ("WRITE", "DESCRIBE", "CREATE") for name in "ab"
    }
    acl(data_dir, "remove", "--all")
    acl(data_dir, "add", "--allow", "User:m", "--consumer", "--topic", "*", "--group", "g", "--prefixed")
    assert {row[2:6] for row in listed(data_dir, capsys)} == {
        ("READ", "TOPIC", "LITERAL", "*"),
        ("DESCRIBE", "TOPIC", "LITERAL", "*"),
        ("READ", "GROUP", "PREFIXED", "g"),
    }


def test_what_is_there_already_is_said(data_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """And is no failure: a playbook runs again."""
    for said in ("added: ALLOW ALTER by User:ops from * on CLUSTER LITERAL kafka-cluster", "there already: ALLOW"):
        assert acl(data_dir, "add", "--allow", "User:ops", "--operation", "alter", "--cluster") == 0
        assert said in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["add", "--allow", "User:a", "--operation", "read"], "--topic, --group or --cluster"),
        (["add", "--operation", "read", "--topic", "t"], "--allow"),
        (["add", "--allow", "User:a", "--topic", "t"], "--operation"),
        (["add", "--allow", "ann", "--operation", "read", "--topic", "t"], "--allow is 'ann': write User:NAME"),
        (["add", "--deny", "user:ann", "--operation", "read", "--topic", "t"], "--deny is 'user:ann': write User:"),
        (["add", "--deny", "User:*", "--host", "guest", "--topic", "t"], "--host is 'guest': write an address"),
        (["remove", "--principal", "ann"], "--principal is 'ann': write User:NAME"),
        (["add", "--allow", "User:a", "--consumer", "--topic", "t", "--cluster"], "to a cluster"),
        (
            ["add", "--allow", "User:a", "--operation", "read", "--cluster"],
            "read is nothing that is done to a cluster; it",
        ),
        (
            ["add", "--allow", "User:a", "--operation", "alter", "--topic", "t", "--group", "g"],
            "done to a group; it can",
        ),
        (
            ["add", "--allow", "User:gate*", "--operation", "read", "--topic", "t"],
            "User:gate* would be the one user of",
        ),
        (
            ["add", "--deny", "User:*-old", "--operation", "read", "--topic", "t"],
            "only User:* is a wildcard; name each",
        ),
        (["add", "--allow", "User:a", "--producer", "--topic", "read*"], "write --topic read with --prefixed"),
        (["add", "--allow", "User:a", "--consumer", "--group", "*-x", "--topic", "t"], "write --group '*' for all, or"),
        (
            ["add", "--allow", "User:a", "--producer", "--topic", "read*", "--prefixed"],
            "--topic read* would be the one",
        ),
        (["remove"], "--all"),
        (["list"], "is no directory"),
    ],
)
def test_wrong_usage_names_the_remedy(
    data_dir: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    """With status 2, and nothing is changed."""
    assert acl(data_dir, *arguments) == 2
    assert said in capsys.readouterr().err
    assert not (data_dir / "security").exists()


def test_a_star_is_part_of_a_name_where_that_is_one(
    data_dir: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The subject of a certificate, a user that is there, and what kafka-acls gave, which has to go again."""
    right = ["--operation", "read", "--topic", "t"]
    assert acl(data_dir, "add", "--allow", "User:CN=*.example.org,O=x", *right) == 0
    assert acl(data_dir, "add", "--allow", "User:gate*", *right) == 2
    monkeypatch.setattr("sys.stdin", io.StringIO("pencil\n"))
    assert main(["user", "add", "gate*", "--data-dir", str(data_dir)]) == 0
    assert acl(data_dir, "add", "--allow", "User:gate*", *right) == 0
    assert acl(data_dir, "remove", "--principal", "User:gate*", "--topic", "t*") == 0
    assert "no ACL is like that" in capsys.readouterr().out
    assert acl(data_dir, "remove", "--principal", "User:gate*") == 0
    assert len(listed(data_dir, capsys)) == 1


def test_a_damaged_file_is_left_alone(data_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Status 1, and what is wrong."""
    acl(data_dir, "add", "--allow", "User:ops", "--operation", "alter", "--cluster")
    (data_dir / "security").write_bytes(b"?")
    assert acl(data_dir, "add", "--allow", "User:a", "--operation", "read", "--topic", "t") == 1
    assert "cannot be read" in capsys.readouterr().err
    assert (data_dir / "security").read_bytes() == b"?"


def test_an_authorizer_that_lets_nobody_in_ends_the_start(data_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With status 2 and both remedies."""
    serve = ["serve", "--data-dir", str(data_dir), "--listen", "127.0.0.1:0"]
    assert main([*serve, "--set", f"authorizer.class.name={STANDARD_AUTHORIZER}"]) == 2
    said = capsys.readouterr().err
    assert "super.users" in said
    assert f"edge-broker acl add --data-dir {data_dir}" in said


def test_the_security_log_names_each_right_and_who_ran_the_command(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By uid and the user of sudo, though no broker runs."""
    monkeypatch.setenv("SUDO_USER", "pi\nacl-removed")
    topics = [part for number in range(30) for part in ("--topic", f"t{number}")]
    assert acl(data_dir, "add", "--allow", "User:bob", "--operation", "all", *topics) == 0
    assert acl(data_dir, "remove", "--all") == 0
    lines = (data_dir / "security-changes.log").read_text().splitlines()
    assert sum(" acl-added " in line for line in lines) == sum(" acl-removed " in line for line in lines) == 30
    assert all(f"uid={os.getuid()} " in line and r'sudo_user="pi\nacl-removed"' in line for line in lines)
    assert "acls_added=30 acls_removed=0" in lines[0]


def test_a_command_whose_line_cannot_be_written_prints_it(data_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data_dir.mkdir()
    (data_dir / "security-changes.log").mkdir()
    assert acl(data_dir, "add", "--allow", "User:bob", "--operation", "all", "--cluster") == 0
    said = capsys.readouterr().err
    assert "edge-broker: acl-added by=command" in said
    assert "security-log-failed file=security-changes.log" in said
