"""What makes a file another one for those that read it again when it changes."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from drupelet.host.file_identity import MISSING, file_identity

FIELDS = ("st_dev", "st_ino", "st_size", "st_mtime_ns", "st_ctime_ns", "st_mode", "st_uid", "st_gid")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "file"
    file.write_text("something")
    return file


@pytest.mark.parametrize("changed", FIELDS)
def test_each_field_alone_makes_another_file(path: Path, monkeypatch: pytest.MonkeyPatch, changed: str) -> None:
    """One by one, as chown needs root and the kernel sets the time of a change itself."""
    before, status = file_identity(path), os.stat(path)
    fields = {name: getattr(status, name) + (name == changed) for name in FIELDS}
    with monkeypatch.context() as patch:
        patch.setattr(os, "stat", lambda _: SimpleNamespace(**fields))
        after = file_identity(path)
    assert after != before
    assert file_identity(path) == before


def test_a_chmod_makes_another_file(path: Path) -> None:
    path.chmod(0o644)
    before = file_identity(path)
    path.chmod(0o640)
    assert file_identity(path) != before


def test_a_missing_file_and_a_link_to_nothing_are_told_apart_from_files(path: Path) -> None:
    link = path.with_name("link")
    link.symlink_to(path)
    assert file_identity(link) == file_identity(path)
    path.unlink()
    assert file_identity(link) == file_identity(path) == MISSING
