"""The file that has the session of a broker's former life."""

from __future__ import annotations

import logging
import os
import shutil
import stat
from pathlib import Path

import pytest

from edge_broker.network.cluster import previous_session
from edge_broker.network.cluster.previous_session import (
    FILE,
    Session,
    end_session,
    forget_session,
    place_of,
    read_session,
    write_session,
)
from edge_broker.storage.files.filesystem import Disk
from tests.support.ports import free_port

SESSION = Session("0b49cbf5-7d0e-4d8a-8d2b-2a7a4f7c1e55/b302/7", -(1 << 62) + 7, bytes(range(16)))


def test_what_is_kept_is_read_by_the_owner_alone(tmp_path: Path) -> None:
    write_session(Disk(), str(tmp_path), Session("x", 1, b""))
    write_session(Disk(), str(tmp_path), SESSION)
    assert read_session(Disk(), str(tmp_path)) == SESSION
    assert stat.S_IMODE((tmp_path / FILE).stat().st_mode) == 0o600
    assert os.listdir(tmp_path) == [FILE]


def test_where_there_is_none_nothing_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    forget_session(Disk(), str(tmp_path))
    write_session(Disk(), str(tmp_path), SESSION)
    forget_session(Disk(), str(tmp_path))
    assert read_session(Disk(), str(tmp_path)) is None
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff" * 100,
        b"drupelet store 1 00000000\n",
        b"drupelet zookeeper-session 1 00000000\na 1 00\n",
        b"drupelet zookeeper-session 1 7a2a5e44\na b\n",
    ],
)
def test_a_damaged_file_is_said_and_costs_nothing(
    data: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / FILE).write_bytes(data)
    assert read_session(Disk(), str(tmp_path)) is None
    assert "previous_session_unknown" in capsys.readouterr().err


def test_a_disk_that_takes_nothing_costs_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_session(Disk(), str(tmp_path / "away"), SESSION)
    assert "session_not_stored" in capsys.readouterr().err


def test_a_copy_is_another_place_and_a_directory_that_was_moved_is_not(tmp_path: Path) -> None:
    first = tmp_path / "data"
    first.mkdir()
    place = place_of(str(first), "boot")
    shutil.copytree(first, tmp_path / "copy")
    first.rename(tmp_path / "moved")
    assert place_of(str(tmp_path / "copy"), "boot") != place == place_of(str(tmp_path / "moved"), "boot")
    assert place_of(str(tmp_path / "moved"), "next boot") != place


def test_an_ensemble_that_does_not_answer_is_one_line_and_changes_no_logger(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(previous_session, "TRY_S", 0.2)
    before = {name: logging.getLogger(name).level for name in list(logging.root.manager.loggerDict)}
    end_session(f"127.0.0.1:{free_port()}", 2000, SESSION)
    (line,) = capsys.readouterr().err.splitlines()
    assert "previous_session_not_ended" in line
    assert not [record for record in caplog.records if "Connection" in record.getMessage()]
    assert {name: one.level for name, one in _loggers().items() if one.level != before.get(name, 0)} == {}


def _loggers() -> dict[str, logging.Logger]:
    return {name: one for name, one in logging.root.manager.loggerDict.items() if isinstance(one, logging.Logger)}
