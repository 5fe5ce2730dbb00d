"""Read the block devices and file systems of a board: kind, bytes written, and wear if the device reports it.

Only eMMC reports wear (EXT_CSD 267 to 269, as the kernel's mmc driver shows them). SD cards have no such counter, and
a USB reader hides even the card's identity: there the fields are null. Does not contain: a disk's own report (`smart`).

The SD status register (`ssr`, 64 bytes, SD Physical Layer Specification 4.10.2) tells the classes printed on a card:
| byte | bits | class |
|---|---|---|
| 8 | all | speed: code 0 to 4 for C0, C2, C4, C6, C10 |
| 14 | high four | UHS grade: U1, U3 |
| 15 | all | video: V6 to V90 |
| 21 | low four | application performance: A1, A2 |
"""

from collections.abc import Iterator

from hardware import JSON
from hardware.system_files import SystemFiles

SECTOR_BYTES = 512  # /sys/block/*/{size,stat} count these with any sector size of the device
SECTORS_READ, SECTORS_WRITTEN = 2, 6  # fields of /sys/block/*/stat, which restarts at boot
SKIPPED = ("loop", "ram", "zram", "dm-", "md", "sr", "fd", "nbd")
PRE_END_OF_LIFE = {1: "normal", 2: "warning", 3: "urgent"}  # 80 % and 90 % of the spare blocks used
SPEED_CLASSES = {0: 0, 1: 2, 2: 4, 3: 6, 4: 10}
EXT4 = "/sys/fs/ext4"
KIB = 1024


def block_devices(files: SystemFiles) -> list[str]:
    """List each disk and card in /sys/block, without partitions and devices in memory."""
    blocks = files.match("/sys/block/*")
    names = [(block, block.rsplit("/", 1)[1]) for block in blocks]
    return [block for block, name in names if not name.startswith(SKIPPED) and "boot" not in name]  # mmcblk0boot0


def storage_devices(files: SystemFiles) -> Iterator[dict[str, JSON]]:
    """Describe each disk and card; bytes written count since boot."""
    for block in block_devices(files):
        yield describe(files, block)


def describe(files: SystemFiles, block: str) -> dict[str, JSON]:
    """Describe one device."""
    device, size = f"{block}/device", files.integer(f"{block}/size")
    rotational = files.integer(f"{block}/queue/rotational")
    return {
        "name": block.rsplit("/", 1)[1],
        "kind": kind(files, block),
        "model": files.text(f"{device}/name") or files.text(f"{device}/model"),
        "manufacturer_id": files.text(f"{device}/manfid"),
        "serial_number": files.text(f"{device}/serial"),
        "manufactured": files.text(f"{device}/date"),
        "size_bytes": None if size is None else size * SECTOR_BYTES,
        "rotating": None if rotational is None else bool(rotational),
        "sd_classes": sd_classes(files.text(f"{device}/ssr")),
        "usb_bridge": usb_bridge(files, block),
        "written_bytes": transferred_bytes(files, block)[1],
        **wear(files, block),
    }


def kind(files: SystemFiles, block: str) -> str:
    """Tell sd, emmc, nvme, usb, virtual, rotating or solid_state."""
    name = block.rsplit("/", 1)[1]
    if name.startswith("mmcblk"):
        return "emmc" if files.text(f"{block}/device/type") == "MMC" else "sd"
    if name.startswith("nvme"):
        return "nvme"
    if name.startswith(("vd", "xvd")):
        return "virtual"
    if "/usb" in files.resolve(block):
        return "usb"
    return "rotating" if files.text(f"{block}/queue/rotational") == "1" else "solid_state"


def usb_bridge(files: SystemFiles, block: str) -> str | None:
    """Return the USB device of a disk as `VENDOR:PRODUCT`; None for a disk without USB."""
    place = files.resolve(block)
    while "/usb" in place:
        vendor, product = files.text(f"{place}/idVendor"), files.text(f"{place}/idProduct")
        if vendor and product:
            return f"{vendor}:{product}"
        place = place.rsplit("/", 1)[0]
    return None


def sd_classes(register: str | None) -> list[JSON] | None:
    """Decode an SD card's status register to the classes printed on it, such as C10, U3, V30, A2."""
    try:
        status = bytes.fromhex(register or "")
    except ValueError:
        return None
    if len(status) != 64:
        return None
    found = {"C": SPEED_CLASSES.get(status[8], 0), "U": status[14] >> 4, "V": status[15], "A": status[21] & 0xF}
    return [f"{letter}{number}" for letter, number in found.items() if number]


def transferred_bytes(files: SystemFiles, block: str) -> tuple[int | None, int | None]:
    """Count the bytes read from and written to a device since boot."""
    stat = (files.text(f"{block}/stat") or "").split()
    if len(stat) <= SECTORS_WRITTEN:
        return None, None
    return int(stat[SECTORS_READ]) * SECTOR_BYTES, int(stat[SECTORS_WRITTEN]) * SECTOR_BYTES


def wear(files: SystemFiles, block: str) -> dict[str, JSON]:
    """Return an eMMC's wear."""
    return {
        "life_used_percent_max": life_used_percent_max(files.text(f"{block}/device/life_time")),
        "pre_end_of_life": PRE_END_OF_LIFE.get(files.integer(f"{block}/device/pre_eol_info", 16) or 0),
    }


def life_used_percent_max(life_time: str | None) -> int | None:
    """Decode an eMMC's `0xAA 0xBB` to the upper bound of the more worn area, in steps of 10; 110 is past its life.

    1 to 10 are tenths of the life used, 11 says exceeded, 0 says nothing.
    """
    try:
        levels = [int(word, 16) for word in (life_time or "").split()]
    except ValueError:
        return None
    return max((level * 10 for level in levels if 1 <= level <= 11), default=None)


def file_systems(files: SystemFiles) -> Iterator[dict[str, JSON]]:
    """Describe each mounted ext4 file system: bytes written since its creation, errors since its last check."""
    for place in files.match(f"{EXT4}/*/lifetime_write_kbytes"):
        written, directory = files.integer(place), place.rsplit("/", 1)[0]
        yield {
            "name": directory.rsplit("/", 1)[1],
            "written_bytes": None if written is None else written * KIB,
            "errors": files.integer(f"{directory}/errors_count"),
        }


def storage_health(files: SystemFiles) -> dict[str, JSON]:
    """Return the sums over all devices and file systems, and the highest wear; null if none reports it."""
    blocks = block_devices(files)
    transferred = [transferred_bytes(files, block) for block in blocks]
    worn, systems = [wear(files, block) for block in blocks], list(file_systems(files))
    warned = [each["pre_end_of_life"] for each in worn]
    return {
        "disk_read_bytes": total([read for read, _ in transferred]),
        "disk_written_bytes": total([written for _, written in transferred]),
        "file_system_written_bytes": total([system["written_bytes"] for system in systems]),
        "file_system_errors": total([system["errors"] for system in systems]),
        "storage_life_used_percent_max": highest([each["life_used_percent_max"] for each in worn]),
        "storage_pre_end_of_life": next((level for level in ("urgent", "warning", "normal") if level in warned), None),
    }


def total(values: list[JSON]) -> int | None:
    """Add up the known values; None if none is known."""
    known = [value for value in values if isinstance(value, int)]
    return sum(known) if known else None


def highest(values: list[JSON]) -> int | None:
    """Return the highest known value; None if none is known."""
    return max((value for value in values if isinstance(value, int)), default=None)
