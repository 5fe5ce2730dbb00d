"""Read the network links of a board: wired or wireless, up, speed, signal, changes of the carrier.

Only links of a hardware device: not lo, not bridges, not those of containers. Source: Linux,
Documentation/ABI/testing/sysfs-class-net; the signal from /proc/net/wireless, if the kernel still has that file.
"""

from hardware import JSON
from hardware.system_files import SystemFiles

NET = "/sys/class/net"
UP = {"up": True, "down": False, "lowerlayerdown": False, "notpresent": False, "dormant": False}  # "unknown" is unknown


def link_names(files: SystemFiles) -> list[str]:
    """List the links of hardware devices."""
    return [place.split("/")[4] for place in files.match(f"{NET}/*/device")]


def network_links(files: SystemFiles) -> list[JSON]:
    """Return the links."""
    return [
        {"name": name, "wireless": is_wireless(files, name), "mac_address": files.text(f"{NET}/{name}/address")}
        for name in link_names(files)
    ]


def is_wireless(files: SystemFiles, name: str) -> bool:
    """Return whether a link is a radio."""
    return files.exists(f"{NET}/{name}/phy80211") or files.exists(f"{NET}/{name}/wireless")


def network_health(files: SystemFiles) -> dict[str, JSON]:
    """Return each link's state by name, and how many are up; null unless that is known for all."""
    links = {name: link_health(files, name) for name in link_names(files)}
    states = [link["up"] for link in links.values()]
    return {
        "network_links": {**links},
        "network_links_up": sum(state is True for state in states) if states and None not in states else None,
    }


def link_health(files: SystemFiles, name: str) -> dict[str, JSON]:
    """Return one link's state; a link that is down, or a radio, has no speed."""
    speed, wireless = files.integer(f"{NET}/{name}/speed"), is_wireless(files, name)
    return {
        "up": UP.get(files.text(f"{NET}/{name}/operstate") or ""),
        "wireless": wireless,
        "speed_mbit_s": speed if speed is not None and speed > 0 else None,
        "signal_dbm": signal_dbm(files, name) if wireless else None,
        "carrier_changes": files.integer(f"{NET}/{name}/carrier_changes"),
    }


def signal_dbm(files: SystemFiles, name: str) -> int | None:
    """Read a radio's signal level: -50 is near, -80 hardly works; None while it is not associated."""
    for line in (files.text("/proc/net/wireless") or "").splitlines():
        link, colon, values = line.partition(":")
        if colon and link.strip() == name:
            return level_dbm(values.split())
    return None


def level_dbm(values: list[str]) -> int | None:
    """Read the level out of `status link level noise …`; what is not negative is not in dBm."""
    try:
        level = int(float(values[2]))
    except (IndexError, ValueError):
        return None
    return level if -120 <= level < 0 else None
