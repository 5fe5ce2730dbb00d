"""Describe a board: model, memory, storage, clock. The same fields on any machine, null if it does not report one.

Contains: reading and joining the revision code, the device tree and sysfs. Does not contain: the board's state
(`health`), the tables of codes (`board_data`).
"""

import os
import struct
from datetime import UTC, datetime
from pathlib import Path

from hardware import JSON
from hardware.board_data import Revision, decode_revision
from hardware.network import network_links
from hardware.storage import file_systems, storage_devices
from hardware.system_files import SystemFiles

DEVICE_TREE = "/proc/device-tree"
RTC = "/sys/class/rtc"
TIMESYNC_MARK = "/run/systemd/timesync/synchronized"
WATCHDOG_DEVICE = "/dev/watchdog0"
WATCHDOG = "/sys/class/watchdog/watchdog0"
CPU_FREQUENCY_MAX = "/sys/devices/system/cpu/cpufreq/policy0/cpuinfo_max_freq"
KIB_PER_MB = 1024
MODEL_500_PLUS_MB = 16384  # the 500 was built with 8 GB only


def read_board(root: Path = Path("/")) -> dict[str, JSON]:
    """Describe the board, without root rights; never raise for a missing value."""
    files = SystemFiles(root)
    code = revision_code(files)
    known = Revision() if code is None else decode_revision(code)
    memory, machine = memory_mb(files, known), machine_name(files)
    return {
        "model": model_name(files, known),
        "model_code": model_code(files, known, memory),
        "revision_code": None if code is None else f"{code:06x}",
        "board_revision": known.revision,
        "maker": known.maker or files.text("/sys/class/dmi/id/sys_vendor"),
        "processor": known.processor or processor_name(files),
        "processor_cores": processor_cores(files),
        "processor_mhz_max": processor_mhz_max(files),
        "overvoltage_allowed": known.overvoltage_allowed,
        "otp_program_allowed": known.otp_program_allowed,
        "otp_read_allowed": known.otp_read_allowed,
        "warranty_void": known.warranty_void,
        "serial_number": files.text(f"{DEVICE_TREE}/serial-number") or cpuinfo(files).get("Serial"),
        "memory_mb": memory,
        "bootloader_date": bootloader_date(files),
        "supply_current_max_ma": files.cell(f"{DEVICE_TREE}/chosen/power/max_current"),
        "operating_system": operating_system(files),
        "kernel": files.text("/proc/sys/kernel/osrelease"),
        "machine": machine,
        "kernel_bits": None if machine is None else 64 if "64" in machine else 32,
        "userland_bits": userland_bits(files),
        "page_size_bytes": page_size_bytes(files),
        "cgroup_memory": cgroup_memory(files),
        "rtc_name": rtc_name(files),
        "watchdog": files.exists(WATCHDOG_DEVICE),
        "watchdog_identity": files.text(f"{WATCHDOG}/identity"),
        "watchdog_timeout_s": files.integer(f"{WATCHDOG}/timeout"),
        "watchdog_holder": watchdog_holder(files),
        "storage": list(storage_devices(files)),
        "file_systems": list(file_systems(files)),
        "network": network_links(files),
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


def model_code(files: SystemFiles, known: Revision, memory: int | None) -> str | None:
    """Name the model in short; the 500+ has the 500's code, so its device tree tells, or its memory."""
    named = "500+" in (files.text(f"{DEVICE_TREE}/model") or "")
    if known.model == "500" and (named or memory == MODEL_500_PLUS_MB):
        return "500+"
    return known.model


def processor_name(files: SystemFiles) -> str | None:
    """Name the processor as /proc/cpuinfo does (not its `Hardware` line, which is BCM2835 on every Pi)."""
    return cpuinfo(files).get("model name")


def processor_cores(files: SystemFiles) -> int | None:
    """Count the processors that /proc/cpuinfo lists."""
    lines = (files.text("/proc/cpuinfo") or "").splitlines()
    return sum(line.partition(":")[0].strip() == "processor" for line in lines) or None


def memory_mb(files: SystemFiles, known: Revision) -> int | None:
    """Return the fitted memory: the device tree's size, else the code's, else the kernel's, rounded up."""
    gigabits = files.cell(f"{DEVICE_TREE}/chosen/rpi-sdram-size-gbit")
    if gigabits:
        return gigabits * 128
    return known.memory_mb or kernel_memory_mb(files)


def kernel_memory_mb(files: SystemFiles) -> int | None:
    """Round MemTotal up to a size that is built: the kernel and the firmware keep some for themselves."""
    for line in (files.text("/proc/meminfo") or "").splitlines():
        if line.startswith("MemTotal:"):
            total_mb = int(line.split()[1]) / KIB_PER_MB
            step_mb = 256 if total_mb <= 1024 else 1024
            return -int(-total_mb // step_mb) * step_mb
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


def processor_mhz_max(files: SystemFiles) -> int | None:
    """Return the maximum clock of the processor."""
    khz = files.integer(CPU_FREQUENCY_MAX)
    return None if khz is None else khz // 1000


def bootloader_date(files: SystemFiles) -> str | None:
    """Return the build date of the boot EEPROM's program (Pi 4 and later; others have none)."""
    bootloader = f"{DEVICE_TREE}/chosen/bootloader"  # the documentation and the vendor's scripts spell it differently
    built = files.cell(f"{bootloader}/build-timestamp") or files.cell(f"{bootloader}/build_timestamp")
    return None if built is None else datetime.fromtimestamp(built, UTC).date().isoformat()


def machine_name(files: SystemFiles) -> str | None:
    """Return the kernel's instruction set, such as aarch64; its programs may still be 32-bit."""
    return os.uname().machine if files.live else files.command("uname", "-m")


def userland_bits(files: SystemFiles) -> int | None:
    """Return the width of the programs: a 64-bit kernel under 32-bit Raspberry Pi OS needs 32-bit wheels."""
    return 8 * struct.calcsize("P") if files.live else number(files.command("getconf", "LONG_BIT"))


def page_size_bytes(files: SystemFiles) -> int | None:
    """Return the page size: 16384 on a 64-bit Pi 5, where programs built for 4096 may fail."""
    return os.sysconf("SC_PAGE_SIZE") if files.live else number(files.command("getconf", "PAGESIZE"))


def number(text: str | None) -> int | None:
    """Read a command's output as one number."""
    return int(text) if text is not None and text.isdecimal() else None


def cgroup_memory(files: SystemFiles) -> bool | None:
    """Return whether the kernel can limit a service's memory; Raspberry Pi's firmware switches it off by default.

    Version 2 lists its controllers. /proc/cgroups only counts where version 2 is not mounted: since Linux 6.12 it does
    not list memory any more.
    """
    controllers = files.text("/sys/fs/cgroup/cgroup.controllers")
    if controllers is not None:
        return "memory" in controllers.split()
    rows = [line.split() for line in (files.text("/proc/cgroups") or "").splitlines()]
    return next((row[3] == "1" for row in rows if len(row) == 4 and row[0] == "memory"), None)


def watchdog_state(files: SystemFiles) -> str | None:
    """Return whether a program feeds the hardware watchdog: active or inactive; None if unknown to the kernel."""
    return files.text(f"{WATCHDOG}/state")


def watchdog_holder(files: SystemFiles) -> str | None:
    """Return what feeds the hardware watchdog: systemd, another program or none.

    If the kernel does not report whether it is fed, systemd's own setting counts.
    """
    state = watchdog_state(files)
    if state == "inactive" or not files.exists(WATCHDOG_DEVICE):
        return "nobody" if state == "inactive" else None
    answer = files.command("systemctl", "show", "--property=RuntimeWatchdogUSec") or ""
    interval = answer.partition("=")[2]
    if interval not in {"", "0"}:  # "infinity" is the device's own time
        return "systemd"
    return "another program" if state == "active" and interval else None
