"""The word that names one mount of a file system: the same while it lasts, then another; none where nothing tells."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from edge_broker import libc
from edge_broker.storage.files.filesystem import Disk, mount_of

EXT4 = 0xEF53


def sysfs(directory: Path, of: Path) -> Path:
    """A /sys that knows the device of `of`; its directory for the mount."""
    device = os.stat(of).st_dev
    (directory / "devices/mmcblk0p2").mkdir(parents=True)
    (directory / "dev/block").mkdir(parents=True)
    (directory / f"dev/block/{os.major(device)}:{os.minor(device)}").symlink_to("../../devices/mmcblk0p2")
    mounted = directory / "fs/ext4/mmcblk0p2"
    mounted.mkdir(parents=True)
    return mounted


def test_it_is_the_same_for_every_process(tmp_path: Path) -> None:
    code = "import sys; from edge_broker.storage.files.filesystem import mount_of; print(mount_of(sys.argv[1]))"
    told = subprocess.run([sys.executable, "-c", code, tmp_path], capture_output=True, text=True, check=True).stdout
    assert told.strip() == Disk().mount(str(tmp_path))
    assert " " not in told


def test_of_a_file_system_that_sysfs_names_it_is_what_the_kernel_made_at_the_mount(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(libc, "file_system_type", lambda _: EXT4)
    monkeypatch.setattr(libc, "mount_id", lambda _: 7)
    mounted = sysfs(tmp_path / "sys", tmp_path)
    first = mount_of(str(tmp_path), str(tmp_path / "sys"))
    assert first.endswith(f"/ext4/{mounted.stat().st_ino}")
    mounted.rename(tmp_path / "unmounted")
    mounted.mkdir()
    assert mount_of(str(tmp_path), str(tmp_path / "sys")) not in ("", first)


def test_elsewhere_it_is_the_unique_mount_id_and_without_one_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(libc, "mount_id", lambda _: 7)
    assert mount_of(str(tmp_path), str(tmp_path / "no-sys")).endswith("/mount/7")
    monkeypatch.setattr(libc, "mount_id", lambda _: None)
    assert mount_of(str(tmp_path), str(tmp_path / "no-sys")) == ""

    def refused(_: str) -> int:
        raise PermissionError("a sandbox")

    monkeypatch.setattr(libc, "mount_id", refused)
    assert mount_of(str(tmp_path), str(tmp_path / "no-sys")) == ""
