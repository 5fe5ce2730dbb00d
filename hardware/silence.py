"""Find the fields that a board of this kind must report and does not: a silent field is not health.

| field | source | required on |
|---|---|---|
| under_voltage | the kernel's rpi_volt sensor, or vcgencmd | a running Raspberry Pi with a detector |
| throttled | vcgencmd | a running Raspberry Pi |
| temperature_celsius | a thermal zone | a running Raspberry Pi |
| clock_synchronised | adjtimex(2) | every running machine |
| storage_failing | smartctl, of each disk that was asked | every machine, if SMART was requested |

Other fields are unknown on many healthy machines, so their silence has no meaning. A captured tree cannot answer for
the running machine. Does not contain: the reading (`health`), the problems (`problems`).
"""

from collections.abc import Mapping
from pathlib import Path

from hardware import JSON
from hardware.board_data import measures_under_voltage
from hardware.health import board_model
from hardware.system_files import SystemFiles

_VCGENCMD = "vcgencmd does not answer: install it, and give this user the group video"


def silent_fields(health: Mapping[str, JSON], root: Path = Path("/")) -> dict[str, str]:
    """Return the fields that this machine must report and does not, each with the remedy."""
    files = SystemFiles(root)
    return {**(_of_running_machine(health, board_model(files)) if files.live else {}), **_of_disks(health)}


def _of_running_machine(health: Mapping[str, JSON], model: str | None) -> dict[str, str]:
    found = {}
    if model is not None and health["throttled"] is None:
        found["throttled"] = _VCGENCMD
    if measures_under_voltage(model) and health["under_voltage"] is None:
        found["under_voltage"] = _VCGENCMD
    if model is not None and health["temperature_celsius"] is None:
        found["temperature_celsius"] = "no thermal zone names the processor: is /sys readable?"
    if health["clock_synchronised"] is None:
        found["clock_synchronised"] = "the kernel refuses adjtimex: let this service or container ask it"
    return found


def _of_disks(health: Mapping[str, JSON]) -> dict[str, str]:
    """Return `storage_failing` if a disk was asked and did not answer, even if another one did."""
    reports = health["smart"] if isinstance(health["smart"], dict) else {}
    said = [
        f"{name}: {problem}"
        for name, report in reports.items()
        if isinstance(report, dict)
        for problem in (report["problems"] if isinstance(report["problems"], list) else [])
    ]
    return {"storage_failing": "; ".join(said)} if said else {}
