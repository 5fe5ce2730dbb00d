"""Forms and ranges of role variables that Ansible's types do not check: sizes, ports, networks, times, folders.

| names | form |
|---|---|
| `…_memory_max` | systemd's MemoryMax, at least what the service needs to start |
| `kafka_heap` | Java's -Xmx, below kafka_memory_max |
| `base_journal_…_max` | journald's size |
| `…_port`, `base_open_…_ports` | 1 to 65535 |
| `base_trusted_networks`, `broker_ledger_writers` | addresses and networks |
| `…_oom_score_adjust`, `…_watchdog_s`, `spark_…`, `…_interval_ms` | a range |
| `…_data_dir`, `…_state_dir`, `spark_checkpoint_dir` | an absolute folder of its own |
| `base_hostname`, `base_timezone` | RFC 1123, the time zone database |

PURE, standard library only: the action plugin preflight loads it on the control node.
"""

from __future__ import annotations

import difflib
import ipaddress
import re
import zoneinfo
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

KIB = 1024
UNITS = {"": 1, "K": KIB, "M": KIB**2, "G": KIB**3, "T": KIB**4}
SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?)B?", re.IGNORECASE)
PERCENT = re.compile(r"(\d{1,3})%")
# Below it the kernel kills a service while it starts, or at its first client. Measured on x86-64, resident at most:
#   broker 33 MB, gateway 36, mirror 36: VmHWM 20 s after the start, Python 3.11, no client; half as much again for one
#   Apache Kafka 180 MB after the start (role kafka)
#   Spark: master 158, worker 168 and each executor 410, job 518 (role spark)
MEMORY_MB_MIN = {
    "broker": 48,
    "gateway": 54,
    "mirror": 54,
    "kafka": 200,
    "central": 200,
    "spark_daemon": 160,
    "spark_worker": 580,
    "spark_job": 520,
}
JOURNAL_MB_MIN = 1
NETWORKS = re.compile(r"base_trusted_networks|broker_ledger_writers")
PORT_MAX = 65_535
HOST_NAME = re.compile(
    r"(?=.{1,253}$)[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?)*"
)
SYSTEM_FOLDERS = ("/", "/bin", "/boot", "/dev", "/etc", "/home", "/lib", "/opt", "/proc", "/root", "/run", "/sbin")
MORE_SYSTEM_FOLDERS = ("/srv", "/sys", "/tmp", "/usr", "/var", "/var/lib", "/var/log", "/etc/drupelet", "/opt/drupelet")  # noqa: S108


class Range(NamedTuple):
    """Least and greatest value of the variables whose names match."""

    names: re.Pattern[str]
    low: int
    high: int
    also: tuple[int, ...] = ()


RANGES = (
    Range(re.compile(r".+_oom_score_adjust"), -1000, 1000),
    Range(re.compile(r"base_watchdog_s"), 2, 86_400, (0,)),
    Range(re.compile(r"(broker|gateway|mirror|spark)_watchdog_s"), 10, 86_400, (0,)),
    Range(re.compile(r"gateway_board_interval_ms"), 100, 86_400_000),
    Range(re.compile(r"spark_(driver|executor)_heap_mb"), 472, 1 << 20),
    Range(re.compile(r"spark_daemon_heap_mb"), 16, 1 << 20),
    Range(re.compile(r"spark_(worker_executors|worker_cores|job_cores)"), 1, 1024),
    Range(re.compile(r"(kafka|spark)_memory_mb_min"), 0, 1 << 20),
    Range(re.compile(r"security_rotation|drupelet_releases_kept"), 1, 1_000_000),
)


def problem(name: str, value: Any) -> str:
    """Say how a value is not of its variable's form; empty where it is, and where the variable has none."""
    if value is None or value == "" or (isinstance(value, bool) and not NETWORKS.fullmatch(name)):
        return ""
    for names, check in FORMS:
        if names.fullmatch(name):
            return check(name, value)
    for bounds in RANGES:
        if bounds.names.fullmatch(name):
            return _in_range(value, bounds)
    return ""


def size_bytes(text: str) -> float | None:
    """Return the bytes of a size as systemd and Java write it; `None` where it is none."""
    found = SIZE.fullmatch(text.strip())
    return float(found[1]) * UNITS[found[2].upper()] if found else None


def _memory_max(name: str, value: Any) -> str:
    text = str(value).strip()
    if text == "infinity" or (PERCENT.fullmatch(text) and 0 < int(text[:-1]) <= 100):
        return ""
    size = size_bytes(text)
    if size is None:
        return f"{value} is no size of systemd, such as 256M, 1G, 50% or infinity"
    least = next((mb for role, mb in MEMORY_MB_MIN.items() if name == f"{role}_memory_max"), 16)
    if size < least * KIB**2:
        unit = ", which are bytes" if text.isdigit() else ""
        return f"{value}{unit} is too little: the service is killed before it serves below {least}M"
    return ""


def _heap(_name: str, value: Any) -> str:
    found = re.fullmatch(r"(\d+)([kmgKMG])", str(value))
    if found is None:
        return f"{value} is no heap of Java, such as 256m or 1g"
    size = int(found[1]) * UNITS[found[2].upper()]
    return "" if size >= 64 * KIB**2 else f"{value} is too little for Apache Kafka: write 64m or more"


def _journal(_name: str, value: Any) -> str:
    size = size_bytes(str(value))
    if size is None:
        return f"{value} is no size of journald, such as 64M"
    return "" if size >= JOURNAL_MB_MIN * KIB**2 else f"{value} is too little for a journal: write 1M or more"


def _ports(_name: str, value: Any) -> str:
    for port in value if isinstance(value, list) else [value]:
        if not str(port).isdigit() or not 0 < int(port) <= PORT_MAX:
            return f"{port} is no port: write 1 to {PORT_MAX}"
    return ""


def _networks(_name: str, value: Any) -> str:
    if not isinstance(value, list | tuple):
        return f"{value} is no list: write such as [10.0.0.7, 10.0.0.0/24]"  # its characters would be the networks
    for network in value:
        try:
            ipaddress.ip_network(str(network), strict=False)
        except ValueError:
            return f"{network} is no address and no network: write such as 10.0.0.7, 10.0.0.0/24 or fd00::/64"
    return ""


def _folder(_name: str, value: Any) -> str:
    text = str(value)
    if not text.startswith("/") or ".." in text.split("/"):
        return f"{text} is no absolute path"
    if any(character.isspace() or not character.isprintable() or character in "%$\"'\\" for character in text):
        return f"{text} has a character that a unit of systemd reads otherwise: use letters, digits, - and _"
    shared = (text.rstrip("/") or "/") in (*SYSTEM_FOLDERS, *MORE_SYSTEM_FOLDERS)
    return f"{text} belongs to the system, and the role would give it to a service: name a folder of its own" * shared


def _host_name(_name: str, value: Any) -> str:
    return "" if HOST_NAME.fullmatch(str(value)) else f"{value} is no host name: letters, digits and inner hyphens"


def _time_zone(_name: str, value: Any) -> str:
    known = zoneinfo.available_timezones()
    if not known or str(value) in known:
        return ""
    near = difflib.get_close_matches(str(value), known, n=1)
    return f"{value} is no time zone: write such as {near[0] if near else 'Europe/London'}"


def _in_range(value: Any, bounds: Range) -> str:
    if not re.fullmatch(r"-?\d+", str(value)):
        return ""  # its type is wrong, which the declaration says
    if int(value) in bounds.also or bounds.low <= int(value) <= bounds.high:
        return ""
    also = "".join(f", or {one}" for one in bounds.also)
    return f"{value} must lie between {bounds.low} and {bounds.high}{also}"


FORMS: Iterable[tuple[re.Pattern[str], Callable[[str, Any], str]]] = (
    (re.compile(r".+_memory_max(?<!base_journal_memory_max)"), _memory_max),
    (re.compile(r"kafka_heap"), _heap),
    (re.compile(r"base_journal_(disk|memory)_max"), _journal),
    (re.compile(r".+_port|base_open_ports|base_open_udp_ports"), _ports),
    (NETWORKS, _networks),
    (
        re.compile(
            r"(broker|kafka|central)_data_dir|gateway_state_dir|spark_checkpoint_dir|packages_dir|drupelet_root"
        ),
        _folder,
    ),
    (re.compile(r"base_hostname"), _host_name),
    (re.compile(r"base_timezone"), _time_zone),
)
