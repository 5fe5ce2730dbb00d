"""PURE: make cloud-init's seed files from settings: Raspberry Pi OS trixie and Ubuntu.

Does not contain: the files of other kinds of image, the kernel's options (`firmware`).
Sources: cloud-init (NoCloud, module schemas), netplan version 2, rpi-imager's format notes.
"""

import re
from typing import Any

import yaml

from hardware.flash.first_boot.networks import byte_numbers
from hardware.flash.first_boot.settings import WIRELESS, Settings, Static, Wifi, wifi_key

LIKE_NUMBERS = re.compile(r"\s*([0-9]{1,3}\s*;\s*)+[0-9]{0,3}\s*")  # NetworkManager would read such an SSID as bytes


def cloud_init(settings: Settings, *, ubuntu: bool) -> dict[str, bytes]:
    """Make the seed files; cloud-init reads none unless the first two exist.

    Without Wi-Fi and a fixed address the image's own network set-up stays: any wired interface, by whatever name.
    """
    network = {"network-config": as_yaml({"network": network_config(settings, ubuntu=ubuntu)})}
    return {
        "user-data": b"#cloud-config\n" + as_yaml(user_data(settings, ubuntu=ubuntu)),
        "meta-data": as_yaml({"instance-id": settings.instance_id, "local-hostname": settings.host}),
        **(network if settings.wifi or settings.static else {}),
    }


def user_data(settings: Settings, *, ubuntu: bool) -> dict[str, Any]:
    """Describe host, user and access.

    The singular `user` keeps the groups of the image's own first user; `manage_etc_hosts` would undo every later change
    of the host's name, so /etc/hosts is set once. sudo asks for no password as there is none. No package is installed:
    first boot needs no internet, and apt does not run before the clock is set.
    """
    fields: dict[str, Any] = {
        "hostname": settings.host,
        "manage_resolv_conf": False,
        "user": {
            "name": settings.user,
            "shell": "/bin/bash",
            "lock_passwd": True,
            "sudo": "ALL=(ALL) NOPASSWD:ALL",
            "ssh_authorized_keys": list(settings.ssh_keys),
        },
        "ssh_pwauth": False,
    }
    if settings.timezone:
        fields["timezone"] = settings.timezone
    if settings.keyboard:
        fields["keyboard"] = {"layout": settings.keyboard}
    if "usb-gadget" in settings.interfaces and not ubuntu:
        fields["rpi"] = {"enable_usb_gadget": True}
    return {**fields, "runcmd": commands(settings, ubuntu=ubuntu)}


def commands(settings: Settings, *, ubuntu: bool) -> list[list[str]]:
    """List the commands at the end of the first boot."""
    name = f"127.0.1.1\t{settings.host}"
    hosts = f"sed -i '/^127\\.0\\.1\\.1[[:space:]]/d' /etc/hosts && echo '{name}' >> /etc/hosts"
    found = [["sh", "-c", hosts]]
    if not ubuntu:
        found.append(["systemctl", "enable", "--now", "ssh"])
    if settings.country and not ubuntu:  # the radio of Raspberry Pi OS is off until a command switches it on
        found += [["rfkill", "unblock", "wifi"], ["nmcli", "radio", "wifi", "on"]]
    return found


def network_config(settings: Settings, *, ubuntu: bool) -> dict[str, Any]:
    """Describe the network for netplan, always with eth0: this file replaces the image's own wired set-up."""
    static = settings.static
    wired = {"eth0"} | ({static.interface} if static and not static.wireless else set())
    found: dict[str, Any] = {"version": 2}
    if static and ubuntu:
        found["renderer"] = "networkd"  # without it the image may override a static address
    found["ethernets"] = {name: addressing(static, name) for name in sorted(wired)}
    if settings.wifi:
        odd = not ubuntu and LIKE_NUMBERS.fullmatch(settings.wifi.ssid)
        found["wifis"] = {
            WIRELESS: {
                **({"renderer": "NetworkManager"} if odd else {}),  # without it netplan refuses words for it alone
                **addressing(static, WIRELESS),
                "regulatory-domain": settings.country,
                "access-points": {
                    settings.wifi.ssid: access_point(settings.wifi) | (as_bytes(settings.wifi) if odd else {})
                },
            }
        }
    return found


def addressing(static: Static | None, interface: str) -> dict[str, Any]:
    """Describe how an interface gets its address; a board must not wait for one that is not connected.

    `dhcp6` stands for router announcements too: without it netplan tells NetworkManager to ignore IPv6.
    """
    if static is None or static.interface != interface:
        return {"dhcp4": True, "dhcp6": True, "optional": True}
    version = static.address.version
    found: dict[str, Any] = {"dhcp4": version == 6, "dhcp6": version == 4, "addresses": [str(static.address)]}
    if static.gateway:
        found["routes"] = [{"to": "default", "via": str(static.gateway)}]
    if static.name_servers:
        found["nameservers"] = {"addresses": [str(address) for address in static.name_servers]}
    return {**found, "optional": True}


def access_point(wifi: Wifi) -> dict[str, Any]:
    """Describe how to join a network."""
    hidden: dict[str, Any] = {"hidden": True} if wifi.hidden else {}
    key = wifi_key(wifi)
    return {**hidden, **({"password": key} if key else {"auth": {"key-management": "none"}})}


def as_bytes(wifi: Wifi) -> dict[str, Any]:
    """Return the SSID once more: netplan hands it on as it is, and NetworkManager would take `12;` for one byte."""
    return {"networkmanager": {"passthrough": {"wifi.ssid": byte_numbers(wifi.ssid)}}}


def as_yaml(value: dict[str, Any]) -> bytes:
    """Write YAML as the library writes it that cloud-init reads it with; odd characters are escaped."""
    text: str = yaml.safe_dump(value, sort_keys=False, default_flow_style=False, width=1 << 20)
    return text.encode()
