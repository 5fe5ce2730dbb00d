"""The block devices of a board: what kind each is, and how worn where the card tells.

Only eMMC reports wear (EXT_CSD 267 to 269, as the kernel's mmc driver shows them). SD cards have no such counter, and
a USB reader hides even the card's identity: there the fields are null.
"""

from collections.abc import Iterator

from hardware import JSON
from hardware.system_files import SystemFiles

SECTOR_BYTES = 512  # /sys/block/*/{size,stat} count these whatever the device's own sector is
SKIPPED = ("loop", "ram", "zram", "dm-", "md", "sr", "fd", "nbd")
PRE_END_OF_LIFE = {1: "normal", 2: "warning", 3: "urgent"}  # 80 % and 90 % of the spare blocks used


def storage_devices(files: SystemFiles) -> Iterator[dict[str, JSON]]:
    """Describe each disk and card, not partitions and not what is only in memory."""
    for block in files.match("/sys/block/*"):
        name = block.rsplit("/", 1)[1]
        if not name.startswith(SKIPPED) and "boot" not in name:  # mmcblk0boot0: an eMMC's boot areas
            yield describe(files, name, block)


def describe(files: SystemFiles, name: str, block: str) -> dict[str, JSON]:
    """Describe one device; bytes written count since boot."""
    size, stat = files.integer(f"{block}/size"), (files.text(f"{block}/stat") or "").split()
    life_time = files.text(f"{block}/device/life_time")
    return {
        "name": name,
        "kind": kind(files, name, block),
        "model": files.text(f"{block}/device/name") or files.text(f"{block}/device/model"),
        "manufactured": files.text(f"{block}/device/date"),
        "size_bytes": None if size is None else size * SECTOR_BYTES,
        "written_bytes": int(stat[6]) * SECTOR_BYTES if len(stat) > 6 else None,
        "life_used_percent_max": life_used_percent_max(life_time),
        "pre_end_of_life": PRE_END_OF_LIFE.get(files.integer(f"{block}/device/pre_eol_info", 16) or 0),
    }


def kind(files: SystemFiles, name: str, block: str) -> str:
    """Tell sd, emmc, nvme, virtual, rotating or solid_state."""
    if name.startswith("mmcblk"):
        return "emmc" if files.text(f"{block}/device/type") == "MMC" else "sd"
    if name.startswith("nvme"):
        return "nvme"
    if name.startswith(("vd", "xvd")):
        return "virtual"
    return "rotating" if files.text(f"{block}/queue/rotational") == "1" else "solid_state"


def life_used_percent_max(life_time: str | None) -> int | None:
    """Decode an eMMC's `0xAA 0xBB` to the upper bound of the more worn area, in steps of 10; 110 is past its life.

    1 to 10 are tenths of the life used, 11 says exceeded, 0 says nothing.
    """
    try:
        levels = [int(word, 16) for word in (life_time or "").split()]
    except ValueError:
        return None
    return max((level * 10 for level in levels if 1 <= level <= 11), default=None)
