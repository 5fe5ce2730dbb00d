"""Which device may be written, on mock trees of /proc, /sys and /dev.

Invariants: whatever this machine runs from is never written, also through partitions, LVM, md, dm-crypt, btrfs, loop
devices and swap files; each refusal is one sentence that names the device and the remedy; a card passes.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from drupelet.errors import ConfigurationError
from hardware.flash.device.targets import check_device, check_file, device_name, in_use
from hardware.system_files import SystemFiles

CARD_BYTES = 32 * 1000**3
GIB = 1 << 30


class Machine:
    """A mock tree: disks, partitions, stacked devices, mounts, swap."""

    def __init__(self, root: Path) -> None:
        self.root, self.files, self._mounts = root, SystemFiles(root), 0
        self.put("/proc/self/mountinfo", "22 1 0:21 / /proc rw shared:5 - proc proc rw\n")
        self.put("/proc/swaps", "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n")

    def put(self, name: str, text: str) -> None:
        place = self.files.path(name)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)

    def link(self, name: str, to: str) -> None:
        place = self.files.path(name)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(os.path.relpath(self.files.path(to), place.parent))

    def disk(self, name: str, number: str, *, size: int = CARD_BYTES, removable: int = 1, partitions: int = 0) -> None:
        self.block(f"/sys/devices/{name}", name, number, size)
        self.put(f"/sys/devices/{name}/removable", f"{removable}\n")
        self.put(f"/sys/devices/{name}/ro", "0\n")
        for part in range(1, partitions + 1):
            part_name = f"{name}p{part}" if name[-1].isdigit() else f"{name}{part}"
            major, minor = number.split(":")
            self.block(f"/sys/devices/{name}/{part_name}", part_name, f"{major}:{int(minor) + part}", size // 2)
            self.put(f"/sys/devices/{name}/{part_name}/partition", f"{part}\n")

    def block(self, folder: str, name: str, number: str, size: int) -> None:
        self.put(f"{folder}/size", f"{size // 512}\n")
        self.link(f"/sys/class/block/{name}", folder)
        self.link(f"/sys/dev/block/{number}", folder)

    def stacked(self, name: str, number: str, *below: str) -> None:
        self.block(f"/sys/devices/virtual/block/{name}", name, number, CARD_BYTES)
        for lower in below:
            self.link(f"/sys/devices/virtual/block/{name}/slaves/{lower}", f"/sys/class/block/{lower}")
            place = self.files.path(f"/sys/class/block/{lower}").resolve()
            (place / "holders").mkdir(exist_ok=True)
            (place / "holders" / name).symlink_to(self.files.path(f"/sys/class/block/{name}"))

    def mount(self, point: str, number: str, kind: str = "ext4", source: str = "/dev/root") -> None:
        with self.files.path("/proc/self/mountinfo").open("a") as file:
            file.write(f"30 22 {number} / {point} rw,noatime shared:1 - {kind} {source} rw\n")

    def swap(self, path: str) -> None:
        with self.files.path("/proc/swaps").open("a") as file:
            file.write(f"{path} file 2097148 0 -2\n")

    def refusal(self, name: str, *, image_bytes: int = GIB, forced: str | None = None) -> str:
        with pytest.raises(ConfigurationError) as caught:
            check_device(name, image_bytes, forced, self.files)
        sentence = str(caught.value)
        assert f"{name}" in sentence
        assert sentence.endswith(".")
        return sentence


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """Give a machine that runs from sda and has a card in sdb."""
    found = Machine(tmp_path)
    found.disk("sda", "8:0", removable=0, partitions=2)
    found.disk("sdb", "8:16", partitions=2)
    found.mount("/", "8:2")
    return found


def test_a_card_passes(machine: Machine) -> None:
    machine.put("/sys/devices/sdb/device/vendor", "Generic \n")
    machine.put("/sys/devices/sdb/device/model", "SD/MMC\n")
    device = check_device("sdb", GIB, None, machine.files)
    assert device.words == "/dev/sdb (32.00 GB, Generic SD/MMC)"


def test_links_lead_to_the_device(machine: Machine) -> None:
    machine.link("/dev/disk/by-id/usb-Generic_SD", "/dev/sdb")
    assert device_name("/dev/disk/by-id/usb-Generic_SD", machine.files) == "sdb"


def test_a_device_without_its_folder_is_not_taken_for_a_file(machine: Machine) -> None:
    with pytest.raises(ConfigurationError, match=r"give /dev/sdb, or \./sdb"):
        device_name("sdb", machine.files)
    assert device_name("card.img", machine.files) is None


def test_an_sd_slot_is_removable_and_an_emmc_is_not(machine: Machine) -> None:
    for name, number, kind in (("mmcblk0", "179:0", "SD"), ("mmcblk1", "179:8", "MMC")):
        machine.disk(name, number, removable=0)
        machine.put(f"/sys/devices/{name}/device/type", f"{kind}\n")
    assert check_device("mmcblk0", GIB, None, machine.files).name == "mmcblk0"
    assert "not removable" in machine.refusal("mmcblk1")


def test_an_unknown_name(machine: Machine) -> None:
    assert "no device sdq" in machine.refusal("sdq")


def test_a_partition_names_its_disk(machine: Machine) -> None:
    machine.disk("mmcblk0", "179:0", partitions=2)
    assert "give the whole disk, /dev/sdb." in machine.refusal("sdb1")
    assert "give the whole disk, /dev/mmcblk0." in machine.refusal("mmcblk0p2")


@pytest.mark.parametrize("point", ["/", "/boot", "/boot/firmware", "/boot/efi", "/usr", "/var", "/home/site"])
def test_the_system_is_never_written(machine: Machine, point: str) -> None:
    machine.mount(point, "8:17")
    assert f"holds {point} of this machine" in machine.refusal("sdb", forced="/dev/sdb")


def test_a_device_without_its_number_is_found_by_its_source(machine: Machine) -> None:
    machine.mount("/home", "0:44", kind="btrfs", source="/dev/sdb1")
    assert "holds /home" in machine.refusal("sdb", forced="sdb")


def test_all_devices_of_a_btrfs_are_in_use(machine: Machine) -> None:
    machine.disk("sdc", "8:32", partitions=1)
    for name in ("sdb1", "sdc1"):
        machine.link(f"/sys/fs/btrfs/0123/devices/{name}", f"/sys/class/block/{name}")
    machine.mount("/srv", "0:44", kind="btrfs", source="/dev/sdb1")
    assert "mounted at /srv" in machine.refusal("sdc")


def test_lvm_over_crypt_over_md_leads_to_both_disks(machine: Machine) -> None:
    machine.disk("sdc", "8:32", partitions=1)
    machine.stacked("md0", "9:0", "sdb1", "sdc1")
    machine.stacked("dm-0", "253:0", "md0")
    machine.stacked("dm-1", "253:1", "dm-0")
    machine.mount("/var", "253:1")
    for name in ("sdb", "sdc"):
        assert "holds /var" in machine.refusal(name, forced=name)


def test_a_mapped_swap_and_a_swap_file(machine: Machine) -> None:
    machine.stacked("dm-0", "253:0", "sdb2")
    machine.link("/dev/mapper/vg-swap", "/dev/dm-0")
    machine.swap("/dev/mapper/vg-swap")
    assert "holds swap" in machine.refusal("sdb", forced="sdb")
    machine.disk("sdc", "8:32", partitions=1)
    machine.mount("/media/with\\040blank", "8:33")
    machine.swap("/media/with\\040blank/swapfile")
    assert in_use(machine.files).system["sdc"] == ["swap"]


def test_a_loop_device_leads_to_the_disk_of_its_file(machine: Machine) -> None:
    machine.mount("/media/store", "8:17")
    machine.disk("loop0", "7:0", removable=0)
    machine.put("/sys/devices/loop0/loop/backing_file", "/media/store/root.img\n")
    machine.mount("/usr", "7:0")
    assert "holds /usr" in machine.refusal("sdb", forced="sdb")


def test_what_is_mounted_says_what_to_unmount(machine: Machine) -> None:
    machine.mount("/media/site/bootfs", "8:17")
    machine.mount("/media/site/rootfs", "8:18")
    assert "`sudo umount /media/site/bootfs /media/site/rootfs` first" in machine.refusal("sdb", forced="sdb")


def test_a_place_with_a_blank_is_one_word_of_the_command(machine: Machine) -> None:
    machine.mount("/media/site/my\\040card", "8:17")
    assert "`sudo umount '/media/site/my card'` first" in machine.refusal("sdb", forced="sdb")


def test_a_member_of_something_that_is_not_mounted(machine: Machine) -> None:
    machine.stacked("dm-0", "253:0", "sdb1")
    assert "part of dm-0" in machine.refusal("sdb", forced="sdb")


def test_what_cannot_take_the_image(machine: Machine) -> None:
    machine.disk("sdc", "8:32", size=0)
    assert "no medium" in machine.refusal("sdc")
    assert f"the image at least {CARD_BYTES + 1}" in machine.refusal("sdb", image_bytes=CARD_BYTES + 1, forced="sdb")
    machine.put("/sys/devices/sdb/ro", "1\n")
    assert "lock switch" in machine.refusal("sdb", forced="sdb")


def test_large_and_fixed_disks_must_be_named_twice(machine: Machine) -> None:
    machine.disk("sdc", "8:32", size=2000 * 1000**3)
    machine.disk("sdd", "8:48", removable=0)
    for name, reason in (("sdc", "larger than 512.00 GB"), ("sdd", "not removable")):
        sentence = machine.refusal(name)
        assert reason in sentence
        assert f"add `--yes-really /dev/{name}`" in sentence
        for forced in (name, f"/dev/{name}"):
            assert check_device(name, GIB, forced, machine.files).name == name
    assert "name the same device twice" in machine.refusal("sdd", forced="/dev/sdc")


def test_a_machine_that_tells_nothing_knows_no_device(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="there is no device sdb"):
        check_device("sdb", GIB, None, SystemFiles(tmp_path))


def test_files_are_not_overwritten_by_accident(tmp_path: Path) -> None:
    image, card = tmp_path / "image", tmp_path / "card"
    image.write_bytes(b"image")
    check_file(card, image, None)
    card.write_bytes(b"something of value")
    with pytest.raises(ConfigurationError, match="exists: remove it"):
        check_file(card, image, None)
    check_file(card, image, str(card))
    with pytest.raises(ConfigurationError, match="is the image itself"):
        check_file(image, image, str(image))
    with pytest.raises(ConfigurationError, match="no folder"):
        check_file(tmp_path / "none/card", image, None)
