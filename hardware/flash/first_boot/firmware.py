"""PURE: make the kernel's options (cmdline.txt) and the firmware's (config.txt) from settings, equal for all images.

Does not contain: files that the first boot reads.
Sources: Raspberry Pi's documentation of config.txt; `raspi-config nonint do_i2c, do_spi, do_onewire, do_serial_hw,
do_serial_cons`, of which each interface here is the outcome. cloud-init's `rpi:` block calls the same and reboots in
the middle of the first boot; on the card they are there from its start, for images without cloud-init too.

| interface | config.txt | else |
|---|---|---|
| i2c | dtparam=i2c_arm=on | the module i2c-dev is loaded: /dev/i2c-1 |
| spi | dtparam=spi=on | |
| onewire | dtoverlay=w1-gpio | |
| serial | enable_uart=1, on a Pi 5 dtparam=uart0=on | no console on it |
"""

import re
from collections.abc import Iterable

from hardware.flash.first_boot.settings import Settings

# As Raspberry Pi OS itself sets it; 15 s, the hardware's own limit, has reset small boards while they were booting.
WATCHDOG_S = 60
COMMAND_LINES = ("cmdline.txt", "current/cmdline.txt")  # the second: Ubuntu since 25.10
SERIAL_CONSOLE = re.compile(r"console=(serial0|ttyAMA0|ttyS0)(,.*)?")
CONFIG_LINES = {
    "i2c": "dtparam=i2c_arm=on",
    "spi": "dtparam=spi=on",
    "onewire": "dtoverlay=w1-gpio",
    "serial": "enable_uart=1",
}
SERIAL_PI_5 = (
    "[pi5]\ndtparam=uart0=on\n"  # there enable_uart is the debug connector's; earlier boards' uart0 is Bluetooth's
)


def command_line(settings: Settings, text: str, *, seeded: bool) -> str:
    """Add the options to the kernel's command line; they replace other values, and it stays one line.

    `seeded`: it names cloud-init's instance. An id here outranks the one in meta-data, and lets cloud-init see at each
    boot that nothing is new.
    """
    options: dict[str, str] = {}
    if settings.cgroup_memory:  # the device tree of a Pi disables it; the later of the two options wins
        options["cgroup_enable"] = "memory"
    if settings.watchdog:
        options["systemd.watchdog_sec"] = str(WATCHDOG_S)
    if settings.country:
        options["cfg80211.ieee80211_regdom"] = settings.country
    if seeded or "ds=nocloud;i=" in text:
        options["ds"] = f"nocloud;i={settings.instance_id}"
    kept = [word for word in text.split() if word.partition("=")[0] not in options and not is_dropped(settings, word)]
    return " ".join(kept + [f"{name}={value}" for name, value in options.items()]) + "\n"


def is_dropped(settings: Settings, word: str) -> bool:
    """Return whether an option of the image conflicts with the settings."""
    console = "serial" in settings.interfaces and SERIAL_CONSOLE.fullmatch(word)
    return bool(console) or (settings.cgroup_memory and word == "cgroup_disable=memory")


def config_text(settings: Settings, text: str) -> str:
    """Switch watchdog and interfaces on for all boards, each once, at the end: the last value counts."""
    wanted = [line for name, line in CONFIG_LINES.items() if name in settings.interfaces]
    wanted += ["dtparam=watchdog=on"] if settings.watchdog else []
    present = list(lines_for_all(text.splitlines()))
    added = [line for line in wanted if not holds(line, present)]
    pi_5 = SERIAL_PI_5 if "serial" in settings.interfaces and SERIAL_PI_5 not in text else ""
    return f"{text.rstrip()}\n\n{pi_5}" + "\n".join(["[all]", *added, ""]) if added or pi_5 else text


def holds(line: str, present: list[str]) -> bool:
    """Return whether a line is effective: an overlay in any place, a value only in its last line."""
    name = line.rpartition("=")[0]
    if name == "dtoverlay":
        return line in present
    return line in [each for each in present if each.startswith(f"{name}=")][-1:]


def lines_for_all(lines: Iterable[str]) -> Iterable[str]:
    """Give the lines of config.txt that hold for every board: those before any section, and those of [all]."""
    section = "[all]"
    for line in lines:
        section = line.strip() if line.startswith("[") else section
        if section == "[all]":
            yield line.strip()
