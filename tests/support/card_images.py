"""Tiny card images laid out as the real ones are: partition table, FAT boot partition, ext4 root. Nothing is mounted.

Each has what tells its kind (see `hardware.flash.image.images`) and nothing more. Made by Debian's fdisk,
dosfstools, mtools and e2fsprogs.
"""

from __future__ import annotations

import struct
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.support import runtimes

MIB = 1 << 20
BOOT_START = 4 * MIB
BOOT_BYTES = 34 * MIB  # FAT32 has at least 65,525 clusters
ROOT_START = BOOT_START + BOOT_BYTES
ROOT_BYTES = 6 * MIB
IMAGE_BYTES = ROOT_START + ROOT_BYTES + MIB  # the last MiB is for GPT's copy
CONSOLE = "console=serial0,115200 console=tty1 root=PARTUUID=3a5b7c9d-02 rootfstype=ext4 fsck.repair=yes rootwait"
CONFIG = "# For more options see the documentation\ndtparam=audio=on\n\n[cm4]\notg_mode=1\n"


@dataclass(frozen=True)
class Layout:
    """What an image holds."""

    label: str = "bootfs"
    boot: Mapping[str, str] = field(default_factory=dict)
    root: Mapping[str, str] = field(default_factory=dict)
    table: str = "dos"


def os_release(name: str, identity: str, codename: str) -> dict[str, str]:
    """Give the file that names a distribution."""
    return {"usr/lib/os-release": f'PRETTY_NAME="{name}"\nVERSION_CODENAME={codename}\nID={identity}\n'}


TEMPLATES = {"user-data": "#cloud-config\n# hostname: raspberrypi\n", "meta-data": "instance_id: rpios-image\n"}
TRIXIE_ROOT = {
    **os_release("Debian GNU/Linux 13 (trixie)", "debian", "trixie"),
    "usr/bin/cloud-init": "#!/usr/bin/python3\n",
    "etc/cloud/cloud.cfg.d/99_raspberry-pi.cfg": (
        "datasource_list: [NoCloud, None]\ndatasource:\n  NoCloud:\n    seedfrom: file:///boot/firmware\n"
    ),
}
BOOKWORM_INIT = "quiet init=/usr/lib/raspberrypi-sys-mods/firstboot"
FIRST_USER = {
    "etc/passwd": "root:x:0:0:root:/root:/bin/bash\npi:x:1000:1000:,,,:/home/pi:/bin/bash\n",
    "home/pi/.profile": "# ~/.profile\n",
}
SYSCONF = "# This file is read at every boot\n#hostname=rpi\nsome_key=kept\n"

LAYOUTS = {
    "trixie": Layout(
        boot={**TEMPLATES, "network-config": "# nothing\n", "cmdline.txt": f"{CONSOLE} resize\n", "config.txt": CONFIG},
        root=TRIXIE_ROOT,
    ),
    "bookworm": Layout(
        boot={"cmdline.txt": f"{CONSOLE} {BOOKWORM_INIT}\n", "config.txt": CONFIG},
        root={**os_release("Debian GNU/Linux 12 (bookworm)", "debian", "bookworm"), **FIRST_USER},
    ),
    "bullseye": Layout(
        boot={"cmdline.txt": f"{CONSOLE} {BOOKWORM_INIT}\n", "config.txt": CONFIG},
        root={
            **os_release("Raspbian GNU/Linux 11 (bullseye)", "raspbian", "bullseye"),
            **FIRST_USER,
            "etc/sudoers.d/010_pi-nopasswd": "pi ALL=(ALL) NOPASSWD: ALL\n",
            "etc/dhcpcd.conf": "# A sample configuration for dhcpcd.\nhostname\nslaac private\n",
        },
    ),
    "preseed": Layout(
        boot={"cmdline.txt": f"{CONSOLE} resize\n", "config.txt": CONFIG},
        root={
            **os_release("Debian GNU/Linux 13 (trixie)", "debian", "trixie"),
            **FIRST_USER,
            "usr/lib/systemd/system/rpi-preseed.service": "[Unit]\nDescription=rpi-preseed\n",
        },
    ),
    "debian": Layout(
        label="RASPIFIRM",
        boot={"sysconf.txt": SYSCONF, "cmdline.txt": f"{CONSOLE}\n", "config.txt": CONFIG},
        root=os_release("Debian GNU/Linux 13 (trixie)", "debian", "trixie"),
    ),
    "ubuntu": Layout(
        label="system-boot",
        boot={
            "user-data": "#cloud-config\nchpasswd:\n  users: [{name: ubuntu, password: ubuntu, type: text}]\n",
            "meta-data": "instance_id: cloud-image\n",
            "cmdline.txt": f"{CONSOLE} cfg80211.ieee80211_regdom=US\n",
            "config.txt": CONFIG,
        },
        root=os_release("Ubuntu 24.04.3 LTS", "ubuntu", "noble"),
    ),
}


def boot_sector(end: int) -> bytes:
    """Make a first sector whose only partition, from 1 MiB on, ends at that byte."""
    entry = struct.pack("<B3xB3xII", 0, 0x83, MIB // 512, (end - MIB) // 512)
    return bytes(446) + entry.ljust(64, b"\0") + b"\x55\xaa"


def make_image(path: Path, layout: Layout) -> Path:
    """Make an image file of IMAGE_BYTES in about a quarter of a second."""
    with path.open("wb") as file:
        file.truncate(IMAGE_BYTES)
    kinds = {
        "dos": ("c", "83"),
        "gpt": ("EBD0A0A2-B9E5-4433-87C0-68B6B72699C7", "0FC63DAF-8483-4772-8E79-3D69D8477DE4"),
    }
    boot_type, root_type = kinds[layout.table]
    table = (
        f"label: {layout.table}\n"
        f"start={BOOT_START // 512}, size={BOOT_BYTES // 512}, type={boot_type}\n"
        f"start={ROOT_START // 512}, size={ROOT_BYTES // 512}, type={root_type}\n"
    )
    run(runtimes.sfdisk(), "--quiet", path, given=table)
    run(
        runtimes.mkfs_vfat(),
        "-F32",
        "-s1",
        "-n",
        layout.label,
        f"--offset={BOOT_START // 512}",
        path,
        BOOT_BYTES // 1024,
    )
    for name, text in layout.boot.items():
        run(runtimes.mcopy(), "-o", "-i", f"{path}@@{BOOT_START}", "-", f"::{name}", given=text)
    make_root(path, layout.root)
    return path


def make_root(path: Path, files: Mapping[str, str]) -> None:
    """Make the ext4 root file system in its place."""
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder)
        for name, text in {"etc/hostname": "raspberrypi\n", **files}.items():
            place = tree / name
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text)
        fill_root(path, tree)


def fill_root(path: Path, tree: Path) -> None:
    """Make the file system of a tree."""
    run(
        runtimes.mke2fs(), "-q", "-F", "-t", "ext4", "-L", "rootfs", "-d", tree, "-E", f"offset={ROOT_START}",
        path, f"{ROOT_BYTES // 1024}k",
    )  # fmt: skip


def run(*words: object, given: str = "") -> None:
    """Run one of the makers; raises with what it said."""
    done = subprocess.run([str(word) for word in words], input=given, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{words[0]}: {done.stderr or done.stdout}")


def debugfs(path: Path, request: str, start: int = ROOT_START) -> str:
    """Ask debugfs about the root file system."""
    program = runtimes.mke2fs().with_name("debugfs")
    return subprocess.run(
        [program, "-R", request, f"{path}?offset={start}"], capture_output=True, text=True, check=True
    ).stdout
