"""Decide which device or file may be written: resolve each name, and each disk in use, to a whole disk.

Contains: reading /proc and /sys below a root that may be a mock tree, and refusals, one sentence each with the remedy.
Does not contain: writes, opening the device (`writer`, which also opens it exclusively).

| protected | from | resolved by |
|---|---|---|
| mounts | /proc/self/mountinfo: device number, else source; btrfs: all its devices | /sys/dev/block |
| swap | /proc/swaps: a partition, or a file on a mount | its mount |
| partition | | its folder's parent in /sys |
| LVM, md, dm-crypt | | /sys/class/block/NAME/slaves, recursively |
| loop device | /sys/class/block/NAME/loop/backing_file | its mount |
"""

import os
import re
import stat
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from drupelet.errors import ConfigurationError
from drupelet.printable import shell_word
from hardware.flash.device.progress import amount
from hardware.system_files import SystemFiles

SECTOR_BYTES = 512  # what /sys/class/block/*/size counts
LARGE_BYTES = 512 * 1000**3  # above what cards have, up to what backup disks have
SYSTEM = re.compile(r"/|/(boot|usr|var|home|nix|etc|opt)(/.*)?")
ESCAPE = re.compile(r"\\([0-7]{3})")
DEPTH_MAX = 16
BLOCK = "/sys/class/block"


@dataclass(frozen=True)
class Mount:
    """One line of mountinfo."""

    number: str
    point: str
    kind: str
    source: str


@dataclass
class InUse:
    """Whole disks by the reasons for which they may not be written."""

    system: dict[str, list[str]] = field(default_factory=dict)
    mounted: dict[str, list[str]] = field(default_factory=dict)


@dataclass(frozen=True)
class Device:
    """A whole disk with the words by which a person recognises it."""

    name: str
    size: int
    words: str
    removable: bool


def device_name(target: str, files: SystemFiles) -> str | None:
    """Name the block device that a path leads to, through links such as /dev/disk/by-id; None for an ordinary file."""
    if "/" not in target and files.exists(f"{BLOCK}/{target}"):
        raise ConfigurationError(
            f"{target} is a device here: give /dev/{target}, or ./{target} for a file of that name."
        )
    if files.live:
        try:
            mode = os.stat(target).st_mode
        except OSError:
            mode = 0
        name = Path(target).resolve().name
        if stat.S_ISBLK(mode):
            return name
        if mode and not stat.S_ISREG(mode):
            raise ConfigurationError(f"{target} is neither a block device nor a file: give a card such as /dev/sdb.")
        return name if target.startswith("/dev/") and Path(target).parent.name != "shm" else None
    return files.path(target).resolve().name if target.startswith("/dev/") else None


def check_device(name: str, image_bytes: int, forced: str | None, files: SystemFiles) -> Device:
    """Return the disk if it may be written; raises ConfigurationError, one sentence with the remedy, if not.

    `forced` is the name of the device that a person has typed twice: a large or fixed disk passes, nothing else.
    """
    if not files.exists(f"{BLOCK}/{name}"):
        raise ConfigurationError(f"there is no device {name}: see `lsblk`, and plug the card in again.")
    whole = whole_disk(name, files)
    if whole != name:
        raise ConfigurationError(f"/dev/{name} is a partition: give the whole disk, /dev/{whole}.")
    device = describe(name, files)
    refuse_used(device, files)
    refuse_unfit(device, image_bytes, files)
    if forced is not None and forced != name and device_name(forced, files) != name:
        raise ConfigurationError(f"--yes-really names {forced}, the target is /dev/{name}: name the same device twice.")
    if forced is None:
        refuse_unlikely(device)
    return device


def refuse_used(device: Device, files: SystemFiles) -> None:
    """Refuse a disk that this machine runs from or uses."""
    used = in_use(files)
    if device.name in used.system:
        raise ConfigurationError(
            f"/dev/{device.name} holds {join_words(used.system[device.name])} of this machine: "
            "it is never written, give another device."
        )
    if device.name in used.mounted:
        places = used.mounted[device.name]
        remedy = f"`sudo umount {' '.join(map(shell_word, places))}`"
        raise ConfigurationError(f"/dev/{device.name} is mounted at {join_words(places)}: {remedy} first.")
    holders = [holder for part in parts(device.name, files) for holder in children(f"{BLOCK}/{part}/holders", files)]
    if holders:
        raise ConfigurationError(
            f"/dev/{device.name} is part of {join_words(holders)}: "
            "stop that first (vgchange -an, mdadm --stop, cryptsetup close)."
        )


def refuse_unfit(device: Device, image_bytes: int, files: SystemFiles) -> None:
    """Refuse a disk that cannot take the image."""
    if device.size == 0:
        raise ConfigurationError(f"/dev/{device.name} has no medium: put a card into the reader.")
    if files.integer(f"{BLOCK}/{device.name}/ro") == 1:
        raise ConfigurationError(f"/dev/{device.name} is read-only: move the card's lock switch.")
    if device.size < image_bytes:
        raise ConfigurationError(
            f"/dev/{device.name} has {device.size} bytes, the image at least {image_bytes}: use a larger card."
        )


def refuse_unlikely(device: Device) -> None:
    """Refuse a disk that is hardly a card, unless it was named twice."""
    remedy = f"if you mean it, add `--yes-really /dev/{device.name}`"
    if device.size > LARGE_BYTES:
        raise ConfigurationError(f"{device.words} is larger than {amount(LARGE_BYTES)}, cards are not: {remedy}.")
    if not device.removable:
        raise ConfigurationError(f"{device.words} is not removable, cards are: {remedy}.")


def check_file(path: Path, image: Path, forced: str | None) -> None:
    """Raise ConfigurationError unless the image may be written into this file."""
    if not path.parent.is_dir():
        raise ConfigurationError(f"there is no folder {path.parent} for {path.name}: make it first.")
    if path.exists() and path.samefile(image):
        raise ConfigurationError(f"{path} is the image itself: give another file for the card.")
    if path.exists() and forced != str(path):
        raise ConfigurationError(f"{path} exists: remove it, or add `--yes-really {path}` to overwrite it.")


def describe(name: str, files: SystemFiles) -> Device:
    """Describe a disk by path, size, maker, model and serial number."""
    size = (files.integer(f"{BLOCK}/{name}/size") or 0) * SECTOR_BYTES
    facts = [files.text(f"{BLOCK}/{name}/device/{fact}") for fact in ("vendor", "model", "name", "serial")]
    label = " ".join(fact for fact in facts if fact)
    words = f"/dev/{name} ({amount(size)}{', ' if label else ''}{label})"
    return Device(name, size, words, is_removable(name, files))


def is_removable(name: str, files: SystemFiles) -> bool:
    """Return whether it is an SD card or reports a removable medium; a soldered eMMC and a USB disk do not."""
    if name.startswith("mmcblk"):
        return files.text(f"{BLOCK}/{name}/device/type") == "SD"
    return files.integer(f"{BLOCK}/{name}/removable") == 1


def in_use(files: SystemFiles) -> InUse:
    """Find the whole disks of every mount and every swap area."""
    found, all_mounts = InUse(), mounts(files)
    for mount in all_mounts:
        system = bool(SYSTEM.fullmatch(mount.point))
        for disk in disks_of_mount(mount, all_mounts, files):
            (found.system if system else found.mounted).setdefault(disk, []).append(mount.point)
    for area in swap_areas(files):
        for disk in disks_of_path(area, all_mounts, files):
            found.system.setdefault(disk, []).append("swap")
    return found


def mounts(files: SystemFiles) -> list[Mount]:
    """Read mountinfo, whole: a container host's can be long."""
    try:
        lines = files.path("/proc/self/mountinfo").read_text("utf-8", "surrogateescape").splitlines()
    except FileNotFoundError:
        return []
    found = []
    for line in lines:
        fields, _, rest = line.partition(" - ")
        words, tail = fields.split(" "), rest.split(" ")
        if len(words) > 4 and len(tail) > 1:
            found.append(Mount(words[2], unescape(words[4]), tail[0], unescape(tail[1])))
    return found


def unescape(text: str) -> str:
    """Undo the kernel's octal escapes of blanks and backslashes."""
    return ESCAPE.sub(lambda match: chr(int(match[1], 8)), text)


def swap_areas(files: SystemFiles) -> list[str]:
    """List the paths of swap partitions and swap files."""
    lines = (files.text("/proc/swaps") or "").splitlines()[1:]
    return [unescape(line.split()[0]) for line in lines if line.split()]


def disks_of_mount(mount: Mount, all_mounts: list[Mount], files: SystemFiles, depth: int = 0) -> set[str]:
    """Resolve a mount to whole disks; none for proc, tmpfs, network and the like."""
    names = {link.name for link in [files.path(f"/sys/dev/block/{mount.number}").resolve()] if link.exists()}
    if not names and mount.source.startswith("/dev/"):
        names = {files.path(mount.source).resolve().name}
    if mount.kind == "btrfs":
        names |= btrfs_members(names, files)
    return {disk for name in names for disk in disks_of_device(name, all_mounts, files, depth)}


def btrfs_members(names: set[str], files: SystemFiles) -> set[str]:
    """List all devices of the btrfs file systems of which these are some."""
    pools = [set(children(pool, files)) for pool in files.match("/sys/fs/btrfs/*/devices")]
    return {member for pool in pools if pool & names for member in pool}


def disks_of_path(path: str, all_mounts: list[Mount], files: SystemFiles, depth: int = 0) -> set[str]:
    """Resolve a device or a file to whole disks; a file lies on the mount with the longest matching point."""
    if path.startswith("/dev/"):
        return disks_of_device(files.path(path).resolve().name, all_mounts, files, depth)
    under = [mount for mount in all_mounts if PurePosixPath(path).is_relative_to(mount.point)]
    if not under or depth > DEPTH_MAX:
        return set()
    longest = max(under, key=lambda mount: len(mount.point))
    return disks_of_mount(longest, all_mounts, files, depth + 1)


def disks_of_device(name: str, all_mounts: list[Mount], files: SystemFiles, depth: int = 0) -> set[str]:
    """Resolve a partition, an LVM, md, dm or loop device to the whole disks below it, and itself if it is whole."""
    if not files.exists(f"{BLOCK}/{name}") or depth > DEPTH_MAX:
        return set()
    whole = whole_disk(name, files)
    found = {whole}
    for lower in {*children(f"{BLOCK}/{name}/slaves", files), *children(f"{BLOCK}/{whole}/slaves", files)}:
        found |= disks_of_device(lower, all_mounts, files, depth + 1)
    backing = files.text(f"{BLOCK}/{whole}/loop/backing_file")
    if backing:
        found |= disks_of_path(backing, all_mounts, files, depth + 1)
    return found


def whole_disk(name: str, files: SystemFiles) -> str:
    """Name the disk of a partition; a whole disk is its own."""
    if not files.exists(f"{BLOCK}/{name}/partition"):
        return name
    return files.path(f"{BLOCK}/{name}").resolve().parent.name


def parts(name: str, files: SystemFiles) -> list[str]:
    """List a disk and its partitions."""
    return [
        name,
        *(child for child in children(f"{BLOCK}/{name}", files) if files.exists(f"{BLOCK}/{child}/partition")),
    ]


def children(folder: str, files: SystemFiles) -> list[str]:
    """List the names in a folder; none if it is absent."""
    return [path.rsplit("/", 1)[1] for path in files.match(f"{folder}/*")]


def join_words(words: list[str]) -> str:
    """Join words for a sentence, each once."""
    return ", ".join(dict.fromkeys(words))
