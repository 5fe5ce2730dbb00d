"""PURE: find the problems of a board in one reading of its health, with severity and remedy.

An unknown value (None) is never a problem. The check's statuses and its line follow the Monitoring Plugins development
guidelines. Does not contain: the reading (`health`).
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from enum import IntEnum
from types import MappingProxyType
from typing import Any

from hardware import JSON

TEMPERATURE_CELSIUS_WARNING = 80  # from here every Pi reduces its clock
TEMPERATURE_CELSIUS_CRITICAL = 85
LIFE_USED_PERCENT_WARNING = 90
LIFE_USED_PERCENT_CRITICAL = 100
DISK_FREE_BYTES_MIN = 64 * 1024 * 1024


class Status(IntEnum):
    """The exit statuses of a monitoring plugin."""

    OK = 0
    WARNING = 1
    CRITICAL = 2
    UNKNOWN = 3


Bad = Callable[[Any], bool]


def never(_: Any) -> bool:
    """Return False: no value is a problem."""
    return False


@dataclass(frozen=True)
class Rule:
    """When a field of the health is a problem, and the sentence with the remedy."""

    field: str
    text: str
    warning: Bad = never
    critical: Bad = never

    def status(self, health: Mapping[str, JSON]) -> Status:
        """Return the status of one reading: UNKNOWN if the machine does not report it."""
        value = health[self.field]
        if value is None:
            return Status.UNKNOWN
        return Status.CRITICAL if self.critical(value) else Status.WARNING if self.warning(value) else Status.OK


def is_false(value: bool) -> bool:
    """Return whether a value that must be true is false."""
    return not value


RULES = (
    Rule(
        "under_voltage",
        "the supply voltage is too low now: use a stronger supply or a shorter cable",
        critical=bool,
    ),
    Rule(
        "under_voltage_occurred",
        "the supply voltage has been too low since boot: use a stronger supply or a shorter cable",
        warning=bool,
    ),
    Rule(
        "supply_weak",
        "the supply gives less than 5 A: use one that does, or attach little to USB",
        warning=bool,
    ),
    Rule("throttled", "the processor is throttled now: cool the board, check its supply", warning=bool),
    Rule(
        "temperature_celsius",
        "the processor is too hot: add a heat sink or a fan, or let air in",
        warning=lambda value: value >= TEMPERATURE_CELSIUS_WARNING,
        critical=lambda value: value >= TEMPERATURE_CELSIUS_CRITICAL,
    ),
    Rule(
        "storage_failing",
        "a disk says that it is failing: replace it now",
        critical=bool,
    ),
    Rule(
        "storage_pre_end_of_life",
        "the storage has few spare blocks left: replace it",
        warning=lambda value: value == "warning",
        critical=lambda value: value == "urgent",
    ),
    Rule(
        "storage_life_used_percent_max",
        "the storage is near or past its rated life: replace it",
        warning=lambda value: value > LIFE_USED_PERCENT_WARNING,
        critical=lambda value: value > LIFE_USED_PERCENT_CRITICAL,
    ),
    Rule(
        "file_system_errors",
        "a file system has recorded errors: check it with e2fsck -f, and doubt the card",
        critical=lambda value: value > 0,
    ),
    Rule("disk_free_bytes", "the disk is almost full: make room", critical=lambda value: value < DISK_FREE_BYTES_MIN),
    Rule("network_links_up", "no network link is up: check cable or radio", critical=lambda value: value == 0),
    Rule(
        "clock_synchronised",
        "the clock is not synchronised: check chrony or systemd-timesyncd",
        warning=is_false,
    ),
    Rule(
        "rtc_cell_never_charged",
        "the clock's cell is never charged: if it is rechargeable, add dtparam=rtc_bbat_vchg=3000000 to config.txt",
        warning=bool,
    ),
    Rule(
        "watchdog_active",
        "nobody feeds the hardware watchdog, so a board that hangs stays so: set systemd's RuntimeWatchdogSec=60",
        warning=is_false,
    ),
    Rule(
        "cgroup_memory",
        "the kernel keeps no memory limits for services: add cgroup_enable=memory to cmdline.txt and reboot",
        warning=is_false,
    ),
)
FIELDS = tuple(rule.field for rule in RULES)


@dataclass(frozen=True)
class Problem:
    """One problem of the board."""

    field: str
    status: Status
    text: str


def find_problems(health: Mapping[str, JSON], ignored: Collection[str] = ()) -> list[Problem]:
    """Return the problems, worst first; empty if the board is healthy as far as known."""
    judged = [Problem(rule.field, rule.status(health), rule.text) for rule in RULES if rule.field not in ignored]
    wrong = [problem for problem in judged if problem.status in {Status.WARNING, Status.CRITICAL}]
    return sorted(wrong, key=lambda problem: -problem.status)


def unknown_fields(health: Mapping[str, JSON], ignored: Collection[str] = ()) -> list[str]:
    """Return the unknown fields that have a rule."""
    return [rule.field for rule in RULES if health[rule.field] is None and rule.field not in ignored]


def unknown_texts(silent: Mapping[str, str], ignored: Collection[str] = ()) -> list[str]:
    """Return a sentence for each silent field: the field is unknown, and what to do."""
    return [f"{field} is unknown: {remedy}" for field, remedy in silent.items() if field not in ignored]


def check(
    health: Mapping[str, JSON], ignored: Collection[str] = (), silent: Mapping[str, str] = MappingProxyType({})
) -> tuple[Status, str]:
    """Return the exit status and the line of a monitoring plugin, with performance data.

    UNKNOWN without a problem, if no field is known or a field is `silent` that this machine must report.
    """
    found = find_problems(health, ignored)
    known = [rule.field for rule in RULES if health[rule.field] is not None and rule.field not in ignored]
    deaf = unknown_texts(silent, ignored)
    status = found[0].status if found else Status.OK if known and not deaf else Status.UNKNOWN
    said = [*(problem.text for problem in found), *deaf]
    text = "; ".join(said) or f"{len(known)} of {len(RULES)} things known, none wrong"
    measured = performance_data(health)
    return status, f"{status.name}: {text}" + (f" | {measured}" if measured else "")


def performance_data(health: Mapping[str, JSON]) -> str:
    """Write the figures as `label=value[unit];warning;critical`; omit unknown ones."""
    hot = f"{TEMPERATURE_CELSIUS_WARNING};{TEMPERATURE_CELSIUS_CRITICAL}"
    worn = f"{LIFE_USED_PERCENT_WARNING};{LIFE_USED_PERCENT_CRITICAL}"
    figures = (
        ("temp", "temperature_celsius", "", hot),
        ("cpu", "cpu_percent", "%", ""),
        ("memory_available", "memory_available_bytes", "B", ""),
        ("disk_free", "disk_free_bytes", "B", f";{DISK_FREE_BYTES_MIN}:"),
        ("disk_written_bytes", "disk_written_bytes", "c", ""),
        ("life_used", "storage_life_used_percent_max", "%", worn),
        ("fan_rpm", "fan_rpm", "", ""),
        ("uptime", "uptime_s", "s", ""),
    )
    known = [
        (label, health[field], unit, limits) for label, field, unit, limits in figures if health[field] is not None
    ]
    return " ".join(f"{label}={value}{unit};{limits}".rstrip(";") for label, value, unit, limits in known)
