"""How a board is doing right now: load, memory, disk, network, heat, supply, wear and clock, as one flat JSON object.

Here: the reading and its verdict. Never here: who sends it where (the gateway), or what the board is (`board`).
Every machine answers the same fields; `null` means that this machine cannot tell, which is not the same as "fine".

Bits of `vcgencmd get_throttled` (Raspberry Pi documentation, vcgencmd):
| bit now | bit since boot | field |
|---|---|---|
| 0 | 16 | under_voltage |
| 1 | 17 | frequency_capped |
| 2 | 18 | throttled |
| 3 | 19 | soft_temperature_limit |
"""

import ctypes
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from hardware import JSON
from hardware.board import revision_code
from hardware.board_data import decode_revision, measures_under_voltage
from hardware.storage import storage_devices
from hardware.system_files import SystemFiles

THROTTLED_FIELDS = ("under_voltage", "frequency_capped", "throttled", "soft_temperature_limit")
ALL_THROTTLED_FIELDS = [name for now in THROTTLED_FIELDS for name in (now, f"{now}_occurred")]
TEMPERATURE_CELSIUS_MAX = 80.0  # where every Pi begins to slow itself down
DISK_FREE_BYTES_MIN = 64 * 1024 * 1024
PROCESSOR_SENSORS = (
    "cpu-thermal",
    "cpu_thermal",
    "bcm2835_thermal",
    "soc-thermal",
    "x86_pkg_temp",
    "coretemp",
    "k10temp",
    "acpitz",
)
STATUS_UNSYNCHRONISED = 0x0040  # STA_UNSYNC in linux/timex.h
CLOCK_ERROR = 5  # TIME_ERROR, adjtimex(2)


def read_health(root: Path = Path("/"), *, cpu_interval_s: float | None = None) -> dict[str, JSON]:
    """Read a board's health once, without root rights and without waiting unless `cpu_interval_s` asks for it.

    `cpu_percent` covers the time since the calling thread's last call (0.0 at its first), or `cpu_interval_s` seconds.
    Below another root (a captured tree) the running machine's own figures are null.
    """
    files = SystemFiles(root)
    return {
        **(load(cpu_interval_s) if files.live else dict.fromkeys(LOAD_FIELDS)),
        "temperature_celsius": processor_temperature_celsius(files),
        "temperatures_celsius": dict(temperatures_celsius(files)),
        **throttling(files),
        **storage_wear(files),
        "clock_synchronised": clock_synchronised(files),
        "rtc_present": bool(files.match("/sys/class/rtc/rtc*")),
    }


LOAD_FIELDS = (
    "cpu_percent",
    "load_average_1_min",
    "memory_available_bytes",
    "memory_total_bytes",
    "swap_used_bytes",
    "disk_free_bytes",
    "disk_total_bytes",
    "disk_read_bytes",
    "disk_written_bytes",
    "network_receive_bytes",
    "network_transmit_bytes",
    "uptime_s",
)


def storage_wear(files: SystemFiles) -> dict[str, JSON]:
    """Tell the wear of the most worn device, where any tells; ordinary SD cards never do."""
    devices = list(storage_devices(files))
    used = [device["life_used_percent_max"] for device in devices]
    warned = [device["pre_end_of_life"] for device in devices]
    return {
        "storage_life_used_percent_max": max((each for each in used if isinstance(each, int)), default=None),
        "storage_pre_end_of_life": next((level for level in ("urgent", "warning", "normal") if level in warned), None),
    }


def load(cpu_interval_s: float | None) -> dict[str, JSON]:
    """Read the running machine's figures; the byte counters of disk and network count since boot."""
    memory, disk = psutil.virtual_memory(), psutil.disk_usage("/")
    disks, network = psutil.disk_io_counters(), psutil.net_io_counters()
    return {
        "cpu_percent": psutil.cpu_percent(cpu_interval_s),
        "load_average_1_min": round(os.getloadavg()[0], 2),
        "memory_available_bytes": memory.available,
        "memory_total_bytes": memory.total,
        "swap_used_bytes": psutil.swap_memory().used,
        "disk_free_bytes": disk.free,
        "disk_total_bytes": disk.total,
        "disk_read_bytes": disks.read_bytes if disks else None,
        "disk_written_bytes": disks.write_bytes if disks else None,
        "network_receive_bytes": network.bytes_recv if network else None,
        "network_transmit_bytes": network.bytes_sent if network else None,
        "uptime_s": int(uptime_s()),
    }


def uptime_s() -> float:
    """Read the seconds since boot, suspended time included."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def temperatures_celsius(files: SystemFiles) -> dict[str, float]:
    """Read every thermal zone and hwmon sensor by name; a name that repeats gets a number."""
    found: dict[str, float] = {}
    for name, millidegrees in sensor_readings(files):
        unique = name if name not in found else f"{name}-{sum(key.startswith(name) for key in found) + 1}"
        found[unique] = round(millidegrees / 1000, 1)
    return found


def sensor_readings(files: SystemFiles) -> list[tuple[str, int]]:
    """List (sensor name, thousandths of a degree); thermal zones first, then hwmon chips not already seen as a zone."""
    zones = [
        (files.text(f"{z}/type"), files.integer(f"{z}/temp")) for z in files.match("/sys/class/thermal/thermal_zone*")
    ]
    seen = {name.replace("-", "_") for name, _ in zones if name}
    chips = [
        (files.text(str(Path(reading).parent / "name")), files.integer(reading))
        for reading in files.match("/sys/class/hwmon/hwmon*/temp*_input")
    ]
    readings = zones + [(name, value) for name, value in chips if name and name.replace("-", "_") not in seen]
    return [(name, value) for name, value in readings if name and value is not None]


def processor_temperature_celsius(files: SystemFiles) -> float | None:
    """Read the processor's temperature, or None where no sensor is known to be the processor's."""
    found = temperatures_celsius(files)
    return next((found[name] for name in PROCESSOR_SENSORS if name in found), None)


def throttling(files: SystemFiles) -> dict[str, JSON]:
    """Read supply and heat limits: each field now and, as `<name>_occurred`, since boot; None where unknown.

    Boards without a voltage detector never see under-voltage, so there it is unknown whatever the bits say.
    """
    bits = throttled_bits(files)
    fields: dict[str, JSON] = decode_throttled(bits) if bits is not None else dict.fromkeys(ALL_THROTTLED_FIELDS)
    if bits is None:
        fields["under_voltage"] = under_voltage_alarm(files)
    if measures_under_voltage(board_model(files)) is False:
        fields["under_voltage"] = fields["under_voltage_occurred"] = None
    return fields


def board_model(files: SystemFiles) -> str | None:
    """Name the Pi model by its revision code."""
    code = revision_code(files)
    return None if code is None else decode_revision(code).model


def throttled_bits(files: SystemFiles) -> int | None:
    """Ask the firmware for its bits; the kernel's own get_throttled file is deprecated, stale and logs a warning."""
    output = files.command("vcgencmd", "get_throttled")
    try:
        return int((output or "").removeprefix("throttled="), 16)
    except ValueError:
        return None


def decode_throttled(bits: int) -> dict[str, JSON]:
    """Turn the firmware's bits into named fields."""
    fields: dict[str, JSON] = {}
    for bit, name in enumerate(THROTTLED_FIELDS):
        fields[name] = bool(bits >> bit & 1)
        fields[f"{name}_occurred"] = bool(bits >> (16 + bit) & 1)
    return fields


def under_voltage_alarm(files: SystemFiles) -> bool | None:
    """Read the kernel's rpi_volt sensor (polled every 2 s, not sticky); hwmon numbers move, so find it by name."""
    for name in files.match("/sys/class/hwmon/hwmon*/name"):
        if files.text(name) == "rpi_volt":
            alarm = files.integer(str(Path(name).parent / "in0_lcrit_alarm"))
            return None if alarm is None else bool(alarm)
    return None


class Timex(ctypes.Structure):
    """The head of struct timex of adjtimex(2), with room for the rest."""

    _fields_ = (
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("frequency", ctypes.c_long),
        ("max_error_us", ctypes.c_long),
        ("estimated_error_us", ctypes.c_long),
        ("status", ctypes.c_int),
        ("rest", ctypes.c_byte * 256),
    )


def clock_synchronised(files: SystemFiles) -> bool | None:
    """Whether the kernel holds the clock as synchronised; of another root, whether systemd-timesyncd left its mark."""
    if not files.live:
        return files.exists("/run/systemd/timesync/synchronized") or None
    timex = Timex()  # modes 0: read only, no rights needed
    state = ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.byref(timex))
    if state < 0:
        return files.exists("/run/systemd/timesync/synchronized") or None
    return state != CLOCK_ERROR and not timex.status & STATUS_UNSYNCHRONISED


# What is wrong, worst first: the field, the values that are bad, and the sentence. Unknown (None) is never a problem.
PROBLEMS: tuple[tuple[str, Callable[[Any], bool], str], ...] = (
    ("under_voltage", bool, "the supply voltage is too low now: use a stronger supply or a shorter cable"),
    ("throttled", bool, "the processor is throttled now"),
    ("temperature_celsius", lambda value: value >= TEMPERATURE_CELSIUS_MAX, "the processor is too hot"),
    ("storage_pre_end_of_life", lambda value: value == "urgent", "the storage is at the end of its life: replace it"),
    ("storage_life_used_percent_max", lambda value: value > 100, "the storage is past its rated life: replace it"),
    ("disk_free_bytes", lambda value: value < DISK_FREE_BYTES_MIN, "the disk is almost full"),
)


def problems(health: dict[str, JSON]) -> list[str]:
    """Say what is wrong now, one sentence each; empty if the board is healthy as far as it can tell."""
    return [text for field, bad, text in PROBLEMS if health[field] is not None and bad(health[field])]
