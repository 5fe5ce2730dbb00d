"""`edge-board flash` onto real block devices: loop devices, which only root may make.

Invariants: what the kernel or this machine uses is refused and keeps every byte; a device that passes is written whole,
block 0 last, through an exclusive handle, to its last sector.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hardware.cli import main
from hardware.flash.image.fat import FatPartition
from tests.support.card_images import BOOT_START, IMAGE_BYTES, LAYOUTS, MIB, debugfs, make_image, run
from tests.support.first_boot import KEY, check_user_data
from tests.support.processes import wait_until

# What mkfs leaves to the kernel is written while a test compares the bytes.
MKFS = ("mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0")

pytestmark = pytest.mark.root


@contextmanager
def loop_device(file: Path, *options: str) -> Iterator[Path]:
    """Make a block device of a file."""
    words = ["losetup", "--find", "--show", *options, str(file)]
    device = subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()
    try:
        yield Path(device)
    finally:
        run("losetup", "--detach", device)
        backing = Path("/sys/block", Path(device).name, "loop/backing_file")
        wait_until(lambda: not backing.exists(), 20, f"the end of {device}")  # the kernel takes its time


@contextmanager
def mounted(device: Path, place: Path) -> Iterator[None]:
    """Mount a device with an ext4 at a new folder; the kernel does not go on making it in the background."""
    place.mkdir()
    run("mount", "-o", "noinit_itable", device, place)
    run("sync", "-f", place)
    try:
        yield
    finally:
        run("umount", place)


def blank(path: Path, size: int) -> Path:
    """Make a file that is a disk with old content at both ends."""
    with path.open("wb") as file:
        file.write(b"old" * MIB)
        file.truncate(size)
        file.seek(size - MIB)
        file.write(b"o" * MIB)
    return path


@pytest.fixture
def image(tmp_path: Path) -> Path:
    return make_image(tmp_path / "image", LAYOUTS["bookworm"])


def flash(image: Path, device: Path, *more: str) -> int:
    (image.parent / "keys.pub").write_text(KEY + "\n")
    settings = ["--host", "pi-7", "--user", "site", "--ssh-key", str(image.parent / "keys.pub"), "--quiet"]
    return main(["flash", str(image), "--to", str(device), *settings, *more])


def test_a_device_is_written_whole(image: Path, tmp_path: Path) -> None:
    """Larger than the image by an odd number of sectors: its end must be clean too."""
    disk = blank(tmp_path / "disk", IMAGE_BYTES + 16 * MIB + 3 * 512)
    own = tmp_path / "own"
    own.write_text("own = 1\n")
    with loop_device(disk) as device:
        assert flash(image, device, "--yes-really", str(device), "--file", f"{own}:/etc/own.conf") == 0
        toml = FatPartition(device, BOOT_START).read("custom.toml")
        assert toml is not None
        assert b'hostname = "pi-7"' in toml
        assert debugfs(device, "cat /etc/own.conf") == "own = 1\n"
    content, wanted = disk.read_bytes(), image.read_bytes()
    assert content[:BOOT_START] == wanted[:BOOT_START]
    assert not any(content[-MIB + 4096 :])


def test_a_trixie_card_on_a_device(tmp_path: Path) -> None:
    trixie = make_image(tmp_path / "image", LAYOUTS["trixie"])
    with loop_device(blank(tmp_path / "disk", IMAGE_BYTES)) as device:
        assert flash(trixie, device, "--yes-really", str(device)) == 0
        assert check_user_data(FatPartition(device, BOOT_START).read("user-data") or b"")["hostname"] == "pi-7"


def refusal(image: Path, device: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """Flash although it must be refused, named twice even; the disk must keep its bytes."""
    before = device.read_bytes()
    assert flash(image, device, "--yes-really", str(device)) == 2
    said = capsys.readouterr().err
    assert len(said.splitlines()) == 1
    assert device.read_bytes() == before
    return said


def test_a_fixed_device_must_be_named_twice(image: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with loop_device(blank(tmp_path / "disk", IMAGE_BYTES)) as device:
        assert flash(image, device) == 2
        assert f"is not removable, cards are: if you mean it, add `--yes-really {device}`" in capsys.readouterr().err


def test_a_small_device(image: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with loop_device(blank(tmp_path / "disk", IMAGE_BYTES - 4096)) as device:
        assert f"has {IMAGE_BYTES - 4096} bytes, the image at least" in refusal(image, device, capsys)


def test_a_read_only_device(image: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with loop_device(blank(tmp_path / "disk", IMAGE_BYTES), "--read-only") as device:
        assert "is read-only: move the card's lock switch" in refusal(image, device, capsys)


def test_a_mounted_device(image: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    disk, place = blank(tmp_path / "disk", IMAGE_BYTES), tmp_path / "mounted"
    run(*MKFS, disk)
    with loop_device(disk) as device, mounted(device, place):
        assert f"is mounted at {place}: `sudo umount {place}` first" in refusal(image, device, capsys)


def test_the_disk_below_a_mounted_loop_device(image: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    disk, lower, upper = blank(tmp_path / "disk", IMAGE_BYTES), tmp_path / "lower", tmp_path / "upper"
    run(*MKFS, disk)
    with loop_device(disk) as device, mounted(device, lower):
        run(*MKFS, lower / "file", "8M")
        with loop_device(lower / "file") as above, mounted(above, upper):
            said = refusal(image, device, capsys)
    assert f"`sudo umount {lower} {upper}` first" in said


def test_a_device_that_another_program_holds(image: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with loop_device(blank(tmp_path / "disk", IMAGE_BYTES)) as device:
        held = os.open(device, os.O_RDWR | os.O_EXCL)
        try:
            assert "is in use by the kernel" in refusal(image, device, capsys)
        finally:
            os.close(held)


def test_the_disk_of_the_root_file_system(image: Path, capsys: pytest.CaptureFixture[str]) -> None:
    number = os.stat("/").st_dev
    name = Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}").resolve().name
    device = Path("/dev") / name
    assert flash(image, device, "--yes-really", str(device)) == 2
    said = capsys.readouterr().err
    assert "of this machine: it is never written" in said or "is a partition: give the whole disk" in said
