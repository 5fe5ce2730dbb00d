"""PURE: make the network files of the root file system from settings: NetworkManager's, and dhcpcd's of bullseye.

For images whose first boot does not read a fixed address, or any SSID, from the boot partition. Then only root can
read the key of the wireless network, and it is not on the boot partition.
Sources: nm-settings-keyfile(5), NetworkManager.state(5) as pi-gen writes it, dhcpcd.conf(5).
"""

import re

from hardware.flash.first_boot.settings import WIRELESS, Address, Settings, Static, Wifi, wifi_key

CONNECTIONS = "/etc/NetworkManager/system-connections"
STATIC_CONNECTION = f"{CONNECTIONS}/edge-static.nmconnection"
WIFI_CONNECTION = f"{CONNECTIONS}/edge-wifi.nmconnection"
RADIO_STATE = "/var/lib/NetworkManager/NetworkManager.state"
RADIO_ON = "[main]\nWirelessEnabled=true\n"
DHCPCD = "/etc/dhcpcd.conf"
PLAIN_SSID = re.compile(r"(?=.*[A-Za-z])[A-Za-z0-9_.-]([A-Za-z0-9_. -]*[A-Za-z0-9_.-])?")


def connections(settings: Settings) -> dict[str, str]:
    """Make NetworkManager's files: the fixed address, the wireless network, and the radio switched on.

    pi-gen's images since 2024-11 switch the radio off; only this file or a person changes that.
    """
    found, static = {}, settings.static
    if static and not static.wireless:
        found[STATIC_CONNECTION] = wired_keyfile(static)
    if settings.wifi:
        found[WIFI_CONNECTION] = wireless(settings.wifi, static if static and static.wireless else None)
    if settings.country:
        found[RADIO_STATE] = RADIO_ON
    return found


def wired_keyfile(static: Static) -> str:
    """Write the keyfile of a wired interface with a fixed address; it is preferred to what the image has."""
    head = ["[connection]", "id=edge-static", "type=ethernet", f"interface-name={static.interface}"]
    return text([*head, "autoconnect-priority=100", "", *families(static)])


def wireless(wifi: Wifi, static: Static | None) -> str:
    """Write the keyfile of a wireless network."""
    head = ["[connection]", "id=edge-wifi", "type=wifi", f"interface-name={WIRELESS}", ""]
    network = [
        "[wifi]",
        "mode=infrastructure",
        f"ssid={ssid(wifi.ssid)}",
        *(["hidden=true"] if wifi.hidden else []),
        "",
    ]
    key = wifi_key(wifi)
    secret = ["[wifi-security]", "key-mgmt=wpa-psk", f"psk={key}", ""] if key else []
    return text([*head, *network, *secret, *families(static)])


def ssid(name: str) -> str:
    """Write an SSID unchanged if it is unambiguous, else as the numbers of its bytes."""
    return name if PLAIN_SSID.fullmatch(name) else byte_numbers(name)


def byte_numbers(name: str) -> str:
    """Write an SSID as the numbers of its bytes, which nm-settings-keyfile(5) allows for any."""
    return "".join(f"{byte};" for byte in name.encode())


def families(static: Static | None) -> list[str]:
    """Write both families of addresses: the fixed one as it was given, the other automatic."""
    found = []
    for version in (4, 6):
        fixed = static if static and static.address.version == version else None
        servers = [str(each) for each in (static.name_servers if static else ()) if each.version == version]
        found += [f"[ipv{version}]", f"method={'manual' if fixed else 'auto'}"]
        found += [f"address1={fixed.address}"] if fixed else []
        found += [f"gateway={fixed.gateway}"] if fixed and fixed.gateway else []
        found += [f"dns={';'.join(servers)};"] if servers else []
        found.append("")
    return found[:-1]


def dhcpcd(static: Static, present: str) -> tuple[str, tuple[str, ...]]:
    """Append a fixed address to dhcpcd.conf; also return the settings that dhcpcd does not support."""
    lines = ["# edge-board flash", f"interface {static.interface}"]
    lines += [f"static ip{'6' if static.address.version == 6 else ''}_address={static.address}"]
    lines += [f"static routers={static.gateway}"] if version4(static.gateway) else []
    servers = " ".join(str(each) for each in static.name_servers)
    lines += [f"static domain_name_servers={servers}"] if servers else []
    told = static.gateway is None or version4(static.gateway)
    left_out = (
        () if told else (f"the gateway {static.gateway}: its dhcpcd takes IPv6 routers from announcements alone",)
    )
    return f"{present.rstrip()}\n\n" + text(lines), left_out


def version4(address: Address | None) -> bool:
    """Return whether it is an IPv4 address."""
    return address is not None and address.version == 4


def text(lines: list[str]) -> str:
    """Join lines."""
    return "\n".join([*lines, ""])
