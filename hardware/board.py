"""What a board is: model, memory, storage, clock. The same fields on any machine, null where it cannot tell.

Here: reading and joining what the revision code, the device tree and sysfs say. Never here: how the board is doing
(`health`), or the code tables (`board_data`).
"""

import platform
from pathlib import Path

from hardware import JSON
from hardware.board_data import Revision, decode_revision
from hardware.storage import storage_devices
from hardware.system_files import SystemFiles

DEVICE_TREE = "/proc/device-tree"
RTC = "/sys/class/rtc"
TIMESYNC_MARK = "/run/systemd/timesync/synchronized"
MB = 1024 * 1024
MEMORY_STEP_MB = 256


def read_board(root: Path = Path("/")) -> dict[str, JSON]:
    """Describe the board, without root rights; never raises for what a machine lacks."""
    files = SystemFiles(root)
    code = revision_code(files)
    known = Revision(None, None, None, None, None) if code is None else decode_revision(code)
    return {
        "model": model_name(files, known),
        "model_code": known.model,
        "revision_code": None if code is None else f"{code:06x}",
        "board_revision": known.revision,
        "maker": known.maker or files.text("/sys/class/dmi/id/sys_vendor"),
        "processor": known.processor or processor_name(files),
        "processor_cores": processor_cores(files),
        "serial_number": files.text(f"{DEVICE_TREE}/serial-number"),
        "memory_mb": memory_mb(files, known),
        "operating_system": operating_system(files),
        "kernel": files.text("/proc/sys/kernel/osrelease"),
        "machine": platform.machine() if files.live else None,
        "storage": list(storage_devices(files)),
        "rtc_name": rtc_name(files),
        "watchdog": files.exists("/dev/watchdog0"),
        "supply_current_max_ma": files.cell(f"{DEVICE_TREE}/chosen/power/max_current"),
    }


def revision_code(files: SystemFiles) -> int | None:
    """Find the revision code: the device tree's, else the `Revision` line of /proc/cpuinfo; None on other machines."""
    from_tree = files.cell(f"{DEVICE_TREE}/system/linux,revision")
    if from_tree is not None:
        return from_tree
    if "raspberrypi" not in (files.text(f"{DEVICE_TREE}/compatible") or "raspberrypi"):
        return None  # other ARM boards have a Revision line of their own kind
    try:
        return int(cpuinfo(files).get("Revision", ""), 16) & 0xFFFF_FFFF
    except ValueError:
        return None


def cpuinfo(files: SystemFiles) -> dict[str, str]:
    """Read /proc/cpuinfo as keys and last values."""
    lines = (files.text("/proc/cpuinfo") or "").splitlines()
    return {key.strip(): value.strip() for key, colon, value in (line.partition(":") for line in lines) if colon}


def model_name(files: SystemFiles, known: Revision) -> str | None:
    """Name the model: the device tree's own words, else the code's, else what a PC's firmware says."""
    coded = f"Raspberry Pi {known.model}" if known.model else None
    return files.text(f"{DEVICE_TREE}/model") or coded or files.text("/sys/class/dmi/id/product_name")


def processor_name(files: SystemFiles) -> str | None:
    """Name the processor as /proc/cpuinfo does (not its `Hardware` line, which is BCM2835 on every Pi)."""
    return cpuinfo(files).get("model name")


def processor_cores(files: SystemFiles) -> int | None:
    """Count the processors that /proc/cpuinfo lists."""
    lines = (files.text("/proc/cpuinfo") or "").splitlines()
    return sum(line.partition(":")[0].strip() == "processor" for line in lines) or None


def memory_mb(files: SystemFiles, known: Revision) -> int | None:
    """Tell the fitted memory: the device tree's size, else the code's, else what the kernel has, rounded up."""
    gigabits = files.cell(f"{DEVICE_TREE}/chosen/rpi-sdram-size-gbit")
    if gigabits:
        return gigabits * 128
    return known.memory_mb or kernel_memory_mb(files)


def kernel_memory_mb(files: SystemFiles) -> int | None:
    """Round MemTotal up to the next 256 MB: the kernel and the firmware keep some for themselves."""
    for line in (files.text("/proc/meminfo") or "").splitlines():
        if line.startswith("MemTotal:"):
            return -(-int(line.split()[1]) * 1024 // (MEMORY_STEP_MB * MB)) * MEMORY_STEP_MB
    return None


def operating_system(files: SystemFiles) -> str | None:
    """Name the distribution as /etc/os-release does."""
    for line in (files.text("/etc/os-release") or "").splitlines():
        if line.startswith("PRETTY_NAME="):
            return line.partition("=")[2].strip('"')
    return None


def rtc_name(files: SystemFiles) -> str | None:
    """Name the first real-time clock; without one a board wakes with a wrong clock until the network corrects it."""
    return next((name for rtc in files.match(f"{RTC}/rtc*") if (name := files.text(f"{rtc}/name"))), None)
