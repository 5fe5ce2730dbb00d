"""Version and commit of a wheel and of a checkout, and the advice where a package is missing."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from drupelet import installation

PROGRAMS = ("edge-broker", "edge-gateway", "edge-mirror", "edge-spark", "edge-board")


@pytest.mark.parametrize("program", PROGRAMS)
def test_every_program_says_version_and_commit_alike(program: str) -> None:
    ran = subprocess.run(
        [Path(sys.executable).parent / program, "--version"], capture_output=True, text=True, check=True
    )
    line = rf"{program} \d+\.\d+\.\d+, commit ([0-9a-f]{{12}}(\+dirty)?|unknown)(, (compiled|python) walker.*)?\n"
    assert re.fullmatch(line, ran.stdout)
    assert ran.stderr == ""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    (tmp_path / "file").write_text("one")
    for words in (["init", "--quiet"], ["add", "file"], ["commit", "--quiet", "--message=one"]):
        git(tmp_path, *words)
    return tmp_path


def git(place: Path, *words: str) -> str:
    who = ["-c", "user.name=n", "-c", "user.email=n@example.org", "-c", "commit.gpgsign=false"]
    return subprocess.run(["git", "-C", place, *who, *words], check=True, capture_output=True, text=True).stdout.strip()


def test_the_commit_of_a_checkout(checkout: Path) -> None:
    commit = git(checkout, "rev-parse", "HEAD")[:12]
    assert installation.commit_of(str(checkout)) == commit
    (checkout / "untracked").touch()
    assert installation.commit_of(str(checkout)) == commit
    (checkout / "file").write_text("two")
    assert installation.commit_of(str(checkout)) == f"{commit}+dirty"


def test_a_folder_in_somebodys_checkout_has_no_commit(checkout: Path) -> None:
    (checkout / "drupelet").mkdir()
    assert installation.commit_of(str(checkout / "drupelet")) == "unknown"


def test_without_git_or_a_commit_it_is_unknown(
    checkout: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    empty = tmp_path_factory.mktemp("empty")
    git(empty, "init", "--quiet")
    assert installation.commit_of(str(empty)) == "unknown"
    monkeypatch.setenv("PATH", str(empty))
    assert installation.commit_of(str(checkout)) == "unknown"


def test_the_date_of_a_checkouts_commit(checkout: Path) -> None:
    assert installation.commit_date(str(checkout)) == int(git(checkout, "log", "-1", "--format=%ct"))
    assert installation.commit_date(str(checkout / "drupelet")) is None


def test_a_wheel_knows_when_it_was_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "commit.txt"
    monkeypatch.setattr(installation, "COMMIT_FILE", str(file))
    assert installation.built_s() == installation.LEAST_S
    for content in (b"0123456789ab\n", b"", b"\xff", b"a b", b"0123456789ab\n1\n"):
        file.write_bytes(content)
        assert installation.built_s() == installation.LEAST_S
    file.write_bytes(b"0123456789ab\n1800000000\n")
    assert installation.built_s() == 1_800_000_000
    assert installation.commit() == "0123456789ab"


def test_a_wheels_commit_is_read_and_git_not_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installation, "COMMIT_FILE", str(tmp_path / "commit.txt"))
    monkeypatch.setenv("PATH", str(tmp_path))
    for content, commit in ((b"0123456789ab\n", "0123456789ab"), (b"", "unknown"), (b"\xff", "unknown")):
        (tmp_path / "commit.txt").write_bytes(content)
        assert installation.commit() == commit


def test_a_board_of_the_role_is_told_of_its_inventory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    assert "pip install '.[gateway]'" in installation.missing_package("paho", "gateway")
    (tmp_path / ".installed").touch()
    assert os.path.basename(installation.MARK_OF_THE_ROLE) == ".installed"
    said = installation.missing_package("psutil", "hardware")
    assert "group `gateway` of the inventory" in said
    assert "pip" not in said
