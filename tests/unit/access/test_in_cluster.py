"""`edge-broker user` and `acl` in the data directory of a cluster's board: what is wanted waits for its broker."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from edge_broker.access import store as access_store
from edge_broker.cli import main
from edge_broker.clock import SystemClock
from edge_broker.security.state import SecurityState, WantedSecurity
from edge_broker.storage.files.filesystem import Disk
from edge_broker.storage.metadata.security_store import SecurityStore
from edge_broker.thread_checks import running_in


def opened(data_dir: Path) -> SecurityStore:
    clock = SystemClock()
    return SecurityStore.open(Disk(), str(data_dir), clock.new_bytes, clock.pause)


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    """The directory of a board that has a copy of its cluster's users, of whom there are none yet."""
    path = tmp_path / "data"
    path.mkdir()
    with running_in("files"):
        store = opened(path)
        store.keep_copy(SecurityState(secret=store.new_secret(), generation=0), SecurityState(), WantedSecurity())
    return path


@pytest.fixture
def password(tmp_path: Path) -> Path:
    path = tmp_path / "password"
    path.touch(0o600)
    path.write_text("secret\n")
    return path


def add(data_dir: Path, password: Path) -> int:
    return main(["user", "add", "ann", "--data-dir", str(data_dir), "--password-file", str(password)])


def test_without_its_broker_a_change_is_only_wanted_and_said_so(
    data_dir: Path, password: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(access_store, "LOOKS_MAX", 1)
    assert add(data_dir, password) == 1
    said = capsys.readouterr()
    assert "does not have the change yet" in said.err
    assert "added" not in said.out
    state = opened(data_dir).state
    assert (set(state.users), set(state.wanted.users), state.generation) == (set(), {"ann"}, 0)
    assert main(["user", "remove", "ann", "--data-dir", str(data_dir)]) == 0, "what is only wanted can be unwanted"
    assert opened(data_dir).state.wanted == WantedSecurity()


def test_it_is_done_once_the_broker_has_had_it_made(
    data_dir: Path, password: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def broker() -> None:
        store, clock = opened(data_dir), SystemClock()
        while store.state.wanted == WantedSecurity():
            clock.pause()
            store.reread()
        wanted = store.state.wanted
        made = wanted.made_to(store.state)._replace(generation=1, wanted=WantedSecurity())
        store.keep_copy(made, SecurityState(), wanted)

    running = threading.Thread(target=broker)
    running.start()
    assert add(data_dir, password) == 0
    running.join()
    assert capsys.readouterr().out == "added: ann\n"
    assert set(opened(data_dir).state.users) == {"ann"}


def test_only_a_copy_can_be_restored(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own = tmp_path / "own"
    own.mkdir()
    assert main(["user", "restore", "--data-dir", str(own)]) == 2
    assert "is no copy of a cluster's users and ACLs" in capsys.readouterr().err
