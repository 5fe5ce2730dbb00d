"""The order of an ensemble's first start, with servers that a test plays."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.e2e.cluster import run_directory
from tests.support.first_start import start_servers, sync_files


class Played:
    """A server that serves at the second look, and writes down what is done with it."""

    ready_s = 5.0

    def __init__(self, directory: Path, number: int, done: list[str]) -> None:
        self.name, self.data, self._done, self._looks = f"server-{number}", directory / f"data-{number}", done, 0

    def spawn(self) -> None:
        self._done.append(f"{self.name} started")
        (self.data / "version-2").mkdir(parents=True)
        (self.data / "version-2" / "snapshot.0").write_bytes(b"first")

    def serves(self) -> bool:
        self._looks += 1
        if self._looks == 2:
            self._done.append(f"{self.name} serves")
        return self._looks > 1

    def log_tail(self) -> str:
        return ""


def test_nothing_is_synced_before_every_server_serves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda _: done.append("synced"))
    servers = [Played(tmp_path, number, done) for number in (1, 2, 3)]
    synced = start_servers(servers)
    assert done[:6] == [f"server-{number} {what}" for what in ("started", "serves") for number in (1, 2, 3)]
    assert done[6:] == ["synced"] * 12, "of each: the snapshot, its directory, the data directory, and that one's name"
    assert synced == {server.data / "version-2" / "snapshot.0" for server in servers}


def test_a_file_that_goes_meanwhile_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "gone").symlink_to(tmp_path / "nothing")
    (tmp_path / "data" / "kept").touch()
    assert sync_files(tmp_path / "data") == {tmp_path / "data" / "kept"}


def test_the_newest_run_goes_on(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="leave out --resume"):
        run_directory(tmp_path, resume=True)
    new = run_directory(tmp_path, resume=False)
    (tmp_path / "cluster-20200101-000000").mkdir()
    assert run_directory(tmp_path, resume=True) == new
