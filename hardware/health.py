"""Read a board's health: load, memory, disk, network, heat, supply, wear and clock, as one flat JSON object.

Contains: the reading. Does not contain: problems (`problems`), publishing (the gateway), the description (`board`).
The gateway reads it every few seconds on boards of 512 MB, so it is cheap, and flat: only temperatures and links are by
name. Every machine has the same fields; `null` means that this machine does not report one, which is not "healthy".

Bits of `vcgencmd get_throttled` (Raspberry Pi documentation, vcgencmd):
| bit now | bit since boot | field |
|---|---|---|
| 0 | 16 | under_voltage |
| 1 | 17 | frequency_capped |
| 2 | 18 | throttled |
| 3 | 19 | soft_temperature_limit |
"""

import os
import time
from pathlib import Path

import psutil

from drupelet.host import kernel_clock
from hardware import JSON
from hardware.board import DEVICE_TREE, RTC, TIMESYNC_MARK, cgroup_memory, revision_code, watchdog_state
from hardware.board_data import decode_revision, measures_under_voltage
from hardware.network import network_health
from hardware.smart import read_smart
from hardware.storage import highest, storage_health
from hardware.system_files import SystemFiles

CPU_FREQUENCY = "/sys/devices/system/cpu/cpufreq/policy0"  # every Pi has one for all its cores
THROTTLED_FIELDS = ("under_voltage", "frequency_capped", "throttled", "soft_temperature_limit")
ALL_THROTTLED_FIELDS = [name for now in THROTTLED_FIELDS for name in (now, f"{now}_occurred")]
SUPPLY_CURRENT_MA = 5000  # requirement of a Pi 5
PWM_MAX = 255
RTC_CELL_VOLTS_MIN = 1.0  # an empty holder reads some thousandths
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


def read_health(
    root: Path = Path("/"), *, cpu_interval_s: float | None = None, smart: str | None = None
) -> dict[str, JSON]:
    """Read a board's health once, without root rights and without waiting unless `cpu_interval_s` asks for it.

    `cpu_percent` covers the time since the calling thread's last call (0.0 at its first), or `cpu_interval_s` seconds.
    Below another root (a captured tree) the running machine's own figures are null. Disks are asked for SMART only if
    `smart` names a bridge type (`smart.BRIDGE_TYPES`): it needs root, and some USB bridges reset when they are asked.
    """
    files = SystemFiles(root)
    temperatures = temperatures_celsius(files)
    return {
        **(load(cpu_interval_s) if files.live else dict.fromkeys(LOAD_FIELDS)),
        "temperature_celsius": next((temperatures[name] for name in PROCESSOR_SENSORS if name in temperatures), None),
        "temperatures_celsius": {**temperatures},
        **throttling(files),
        **supply(files),
        **fan(files),
        **clocks(files),
        **with_smart(storage_health(files), None if smart is None else read_smart(files, smart)),
        **network_health(files),
        "clock_synchronised": clock_synchronised(files),
        **rtc(files),
        "watchdog_active": {"active": True, "inactive": False}.get(watchdog_state(files) or ""),
        "cgroup_memory": cgroup_memory(files),
    }


LOAD_FIELDS = (
    "cpu_percent",
    "load_average_1_min",
    "memory_available_bytes",
    "memory_total_bytes",
    "swap_used_bytes",
    "disk_free_bytes",
    "disk_total_bytes",
    "network_receive_bytes",
    "network_transmit_bytes",
    "uptime_s",
)


def with_smart(storage: dict[str, JSON], smart: dict[str, JSON] | None) -> dict[str, JSON]:
    """Add the disks' own reports to the kernel's values; `smart` is null if they were not asked."""
    said = [report for report in (smart or {}).values() if isinstance(report, dict)]
    failing = [report["failing"] for report in said if report["failing"] is not None]
    used = [storage["storage_life_used_percent_max"], *(report["life_used_percent"] for report in said)]
    return {
        **storage,
        "storage_life_used_percent_max": highest(used),
        "storage_failing": any(failing) if failing else None,
        "smart": smart,
    }


def load(cpu_interval_s: float | None) -> dict[str, JSON]:
    """Read the running machine's figures; the byte counters of the network count since boot."""
    memory, disk, network = psutil.virtual_memory(), psutil.disk_usage("/"), psutil.net_io_counters()
    return {
        "cpu_percent": psutil.cpu_percent(cpu_interval_s),
        "load_average_1_min": round(os.getloadavg()[0], 2),
        "memory_available_bytes": memory.available,
        "memory_total_bytes": memory.total,
        "swap_used_bytes": psutil.swap_memory().used,
        "disk_free_bytes": disk.free,
        "disk_total_bytes": disk.total,
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


def fan(files: SystemFiles) -> dict[str, JSON]:
    """Read the first fan: its speed and how hard it is driven.

    No verdict: the Pi 5 reports 0 rpm of fans that turn (raspberrypi/linux issue 7556), and two-wire fans report none.
    """
    speeds, drives = (files.match(f"/sys/class/hwmon/hwmon*/{name}") for name in ("fan1_input", "pwm1"))
    pwm = files.integer(drives[0]) if drives else None
    return {
        "fan_rpm": files.integer(speeds[0]) if speeds else None,
        "fan_pwm_percent": None if pwm is None else round(100 * pwm / PWM_MAX),
    }


def clocks(files: SystemFiles) -> dict[str, JSON]:
    """Read the processor's clock; the firmware may hold it lower than the kernel knows (see `frequency_capped`)."""
    now, most = (files.integer(f"{CPU_FREQUENCY}/scaling_{name}_freq") for name in ("cur", "max"))
    return {
        "cpu_frequency_mhz": None if now is None else now // 1000,
        "cpu_frequency_max_mhz": None if most is None else most // 1000,
        "cpu_governor": files.text(f"{CPU_FREQUENCY}/scaling_governor"),
    }


def supply(files: SystemFiles) -> dict[str, JSON]:
    """Return the current that the supply negotiated with a Pi 5; for a compute module the carrier supplies it."""
    current_ma = files.cell(f"{DEVICE_TREE}/chosen/power/max_current")
    carried = (board_model(files) or "").removeprefix("Raspberry Pi ").startswith(("CM", "Compute Module"))
    return {
        "supply_current_max_ma": current_ma,
        "supply_weak": None if current_ma is None or carried else current_ma < SUPPLY_CURRENT_MA,
    }


def rtc(files: SystemFiles) -> dict[str, JSON]:
    """Read the real-time clock's cell, which a Pi 5 does not charge unless told to."""
    battery, charging = (volts(files, f"{RTC}/rtc0/{name}_voltage") for name in ("battery", "charging"))
    known = battery is not None and charging is not None
    return {
        "rtc_present": bool(files.match(f"{RTC}/rtc*")),
        "rtc_battery_volts": battery,
        "rtc_charging_volts": charging,
        "rtc_cell_never_charged": (battery or 0) >= RTC_CELL_VOLTS_MIN and charging == 0 if known else None,
    }


def volts(files: SystemFiles, name: str) -> float | None:
    """Read a file of millionths of a volt."""
    microvolts = files.integer(name)
    return None if microvolts is None else round(microvolts / 1_000_000, 3)


def throttling(files: SystemFiles) -> dict[str, JSON]:
    """Read supply and heat limits: each field now and, as `<name>_occurred`, since boot; None where unknown.

    Boards without a voltage detector never see under-voltage, so it is unknown for them, with any bits.
    """
    model = board_model(files)
    bits = None if model is None else throttled_bits(files)  # no other machine has that firmware
    fields: dict[str, JSON] = decode_throttled(bits) if bits is not None else dict.fromkeys(ALL_THROTTLED_FIELDS)
    if bits is None:
        fields["under_voltage"] = under_voltage_alarm(files)
    if measures_under_voltage(model) is False:
        fields["under_voltage"] = fields["under_voltage_occurred"] = None
    return fields


def board_model(files: SystemFiles) -> str | None:
    """Name the Pi model by its revision code; of a model too new for the tables, as the device tree does."""
    code = revision_code(files)
    return None if code is None else decode_revision(code).model or files.text(f"{DEVICE_TREE}/model")


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


def clock_synchronised(files: SystemFiles) -> bool | None:
    """Return whether the kernel's clock is synchronised; of another root, whether systemd-timesyncd's file exists."""
    if not files.live:
        return files.exists(TIMESYNC_MARK) or None
    try:
        clock = kernel_clock.read()
    except OSError:  # refused, as in some containers
        return files.exists(TIMESYNC_MARK) or None
    return clock.is_synchronised and not clock.has_error
