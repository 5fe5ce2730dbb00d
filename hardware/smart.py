"""Read a disk's own report by smartctl: life used, bytes written over its life, predicted failure.

Read only on request: it needs root, it wakes a sleeping disk, and some USB bridges reset when they are probed. A board
that runs from such a disk then loses its root file system. The type of a bridge that smartctl does not know has to be
named, never guessed. SD cards and eMMC have no SMART. Source: smartctl(8), `--json`.
"""

import json
from typing import Any

from hardware import JSON
from hardware.storage import block_devices, kind
from hardware.system_files import SystemFiles

BRIDGE_TYPES = ("auto", "sat", "sntasmedia", "sntjmicron", "sntrealtek")  # auto: smartctl's own table of bridges
DATA_UNIT_BYTES = 512_000  # NVM Express Base Specification, SMART / Health Information
TIMEOUT_S = 15.0  # a disk has to spin up
NOT_READ = 0b11  # exit status bits 0 and 1: bad command line, device not opened
WITHOUT_SMART = ("sd", "emmc", "virtual")


def read_smart(files: SystemFiles, bridge_type: str) -> dict[str, JSON]:
    """Ask each disk that has SMART, by name; `bridge_type` is for those on USB."""
    kinds = {block.rsplit("/", 1)[1]: kind(files, block) for block in block_devices(files)}
    return {
        name: ask(files, name, bridge_type if disk == "usb" else "auto")
        for name, disk in kinds.items()
        if disk not in WITHOUT_SMART
    }


def ask(files: SystemFiles, name: str, bridge_type: str) -> JSON:
    """Ask one disk; if that fails, every value is null and `problems` has the reason."""
    types = () if bridge_type == "auto" else ("-d", bridge_type)
    output = files.command("smartctl", "-j", "-a", *types, f"/dev/{name}", timeout_s=TIMEOUT_S, any_status=True)
    if output is None:
        return report({}, "smartctl is missing or does not end: apt install smartmontools")
    try:
        answer = json.loads(output)
    except ValueError:
        return report({}, "smartctl did not answer in JSON: version 7 or later is needed")
    return report(answer, refusal(answer))


def refusal(answer: dict[str, Any]) -> str | None:
    """Return why smartctl gives no answer, in its own words, and what to do."""
    said = answer.get("smartctl", {})
    if not said.get("exit_status", 0) & NOT_READ:
        return None
    words = "; ".join(message["string"] for message in said.get("messages", [])) or "smartctl could not read it"
    if "Permission denied" in words:
        return f"{words}: run as root"
    if "-d option" in words:
        return f"{words}: name the bridge's type with --smart, one of {', '.join(BRIDGE_TYPES[1:])}"
    return words


def report(answer: dict[str, Any], problem: str | None) -> dict[str, JSON]:
    """Return the relevant values of smartctl's answer, for NVMe and ATA disks."""
    log = answer.get("nvme_smart_health_information_log", {})
    units, warning = log.get("data_units_written"), log.get("critical_warning")
    passed = answer.get("smart_status", {}).get("passed")
    return {
        "failing": None if passed is None and warning is None else passed is False or bool(warning),
        "critical_warning": warning,
        "life_used_percent": log.get("percentage_used", answer.get("endurance_used", {}).get("current_percent")),
        "written_bytes": None if units is None else units * DATA_UNIT_BYTES,
        "media_errors": log.get("media_errors"),
        "unsafe_shutdowns": log.get("unsafe_shutdowns"),
        "powered_on_h": answer.get("power_on_time", {}).get("hours"),
        "temperature_celsius": answer.get("temperature", {}).get("current"),
        "problems": [] if problem is None else [problem],
    }
