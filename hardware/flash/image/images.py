"""Recognise an image by its contents: partition table, FAT label and files, ext4 files; never by its name or date.

Contains: the tests below. Does not contain: writes, the files for each kind (`first_boot`).
Sources: pi-gen, rpi-imager's format notes.

The tests, in this order; the first that holds decides:
| test | kind |
|---|---|
| FAT label RASPIFIRM, or sysconf.txt | Debian's own image: sysconf.txt |
| FAT label system-boot | Ubuntu: cloud-init |
| rpi-preseed in the root file system | preseed: rpi-preseed.toml |
| cloud-init there, seeded from /boot/firmware, and user-data and meta-data on the FAT | trixie: cloud-init |
| `init=…/raspberrypi-sys-mods/firstboot` in cmdline.txt | bookworm, or by os-release bullseye: custom.toml |
| `resize` in cmdline.txt without seed files, or `init=…/init_resize.sh` | recognised, not customised |
"""

import io
import re
from dataclasses import dataclass
from pathlib import Path

from hardware.flash.first_boot.first_boot import Kind
from hardware.flash.image.ext import ExtPartition
from hardware.flash.image.fat import FatPartition
from hardware.flash.image.tables import fat_label, is_ext, partitions

SEED_FROM_BOOT = re.compile(r"seedfrom:\s*[\"']?file:///boot/firmware")
NO_BOOT = "it has no FAT boot partition"
CLOUD_CONFIG = "/etc/cloud/cloud.cfg.d"


@dataclass(frozen=True)
class Image:
    """The recognised image; `kind` is None if it is not customised, and `why` gives the reason."""

    kind: Kind | None
    why: str
    boot: FatPartition | None
    root: ExtPartition | None
    system: str | None = None  # PRETTY_NAME of os-release


@dataclass(frozen=True)
class Disk:
    """The bytes of an image file or a device; the first ones may still be in memory, not yet written."""

    path: Path
    head: bytes = b""

    def read(self, start: int, size: int) -> bytes:
        """Read bytes, those of the head from memory; short at the end, and empty far past it."""
        from_head = self.head[start : start + size]
        position = start + len(from_head)
        with self.path.open("rb", buffering=0) as file:
            if position >= file.seek(0, io.SEEK_END):  # a damaged table may name a place that no seek takes
                return from_head
            file.seek(position)
            return from_head + (file.read(size - len(from_head)) or b"")


def identify(disk: Disk) -> Image:
    """Return the recognised image; raises FlashError only for a damaged file system."""
    starts = [partition.start for partition in partitions(disk.read)]
    fats = [(start, label) for start in starts if (label := fat_label(disk.read, start)) is not None]
    exts = [start for start in starts if is_ext(disk.read, start)]
    if not fats:
        return Image(None, NO_BOOT, None, ExtPartition(disk.path, exts[0]) if exts else None)
    boot = FatPartition(disk.path, fats[0][0])
    root = ExtPartition(disk.path, exts[0]) if exts else None
    kind, why = kind_of(boot, root, fats[0][1])
    return Image(kind, why, boot, root, os_release(root, "PRETTY_NAME"))


def kind_of(boot: FatPartition, root: ExtPartition | None, label: str) -> tuple[Kind | None, str]:
    """Apply the tests of the table above: the kind and the reason in words."""
    options = (boot.read("cmdline.txt") or b"").decode("utf-8", "replace").split()
    if label == "RASPIFIRM" or boot.read("sysconf.txt") is not None:
        return Kind.DEBIAN, "it has Debian's sysconf.txt or its label"
    if label.lower() == "system-boot":
        return Kind.UBUNTU, "its boot partition is called system-boot"
    if root is not None and root.exists("/usr/lib/systemd/system/rpi-preseed.service"):
        return Kind.PRESEED, "its first boot reads rpi-preseed.toml"
    if root is not None and seeded_from_boot(boot, root):
        return Kind.TRIXIE, "its cloud-init is seeded from the boot partition"
    if "init=/usr/lib/raspberrypi-sys-mods/firstboot" in options:
        kind = Kind.BULLSEYE if os_release(root, "VERSION_CODENAME") == "bullseye" else Kind.BOOKWORM
        return kind, "its first boot reads custom.toml"
    if "init=/usr/lib/raspi-config/init_resize.sh" in options:
        return None, "it is a Raspberry Pi OS from before custom.toml (2022-09): take a newer one"
    if "resize" in options:
        return None, "it is a Raspberry Pi OS trixie from before cloud-init (2025-11-24): take a newer one"
    return None, "nothing in it is known"


def seeded_from_boot(boot: FatPartition, root: ExtPartition) -> bool:
    """Return whether cloud-init exists and reads the boot partition, with the two files that it needs."""
    if not root.exists("/usr/bin/cloud-init") or None in (boot.read("user-data"), boot.read("meta-data")):
        return False
    names = [name for name in root.names(CLOUD_CONFIG) if name.endswith(".cfg")]
    texts = [(root.read(f"{CLOUD_CONFIG}/{name}") or b"").decode("utf-8", "replace") for name in names]
    return any(SEED_FROM_BOOT.search(text) for text in texts)


def os_release(root: ExtPartition | None, key: str) -> str | None:
    """Read a value that names the distribution; /etc/os-release is mostly a link, which debugfs does not follow."""
    if root is None:
        return None
    text = root.read("/usr/lib/os-release") or root.read("/etc/os-release") or b""
    found = re.search(rf'^{key}="?([^"\n]+)', text.decode("utf-8", "replace"), re.MULTILINE)
    return found[1] if found else None
