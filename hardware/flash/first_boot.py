"""Settings -> the files and the kernel options by which an image configures itself at its first boot.

PURE: values in, values out. Never here: what the image is (`images`), or any reading and writing.

| kind | files on the boot partition | source |
|---|---|---|
| trixie | user-data, meta-data, network-config, ssh | cloud-init: NoCloud, netplan v2; rpi-imager's format notes |
| ubuntu | user-data, meta-data, network-config | the same, found by the label system-boot |
| bookworm | custom.toml | raspberrypi-sys-mods: `init_config` |
| preseed | rpi-preseed.toml | rpi-preseed's schema; Raspberry Pi calls it a prototype |
| debian | sysconf.txt | raspi.debian.net: `rpi-set-sysconf` |
All: cmdline.txt (one line) and config.txt. What a kind cannot be told is listed, never dropped in silence.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import yaml

from hardware.flash.settings import PSK, Settings, Static, Wifi

# As Raspberry Pi OS itself sets it; 15 s, the hardware's own limit, has reset small boards while they were booting.
WATCHDOG_S = 60
COMMAND_LINES = ("cmdline.txt", "current/cmdline.txt")  # the second: Ubuntu since 25.10
NEEDED_FILES = (*COMMAND_LINES, "config.txt", "sysconf.txt")
NM_CONNECTION = "/etc/NetworkManager/system-connections/edge-static.nmconnection"


class Kind(StrEnum):
    """The first-boot mechanism of an image, by the name that `--as` takes."""

    TRIXIE = "trixie"
    BOOKWORM = "bookworm"
    PRESEED = "preseed"
    DEBIAN = "debian"
    UBUNTU = "ubuntu"


@dataclass(frozen=True)
class FirstBoot:
    """What to write: names on the boot partition, (content, mode) in the root file system, and what cannot be told."""

    boot_files: dict[str, bytes]
    root_files: dict[str, tuple[bytes, int]] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()


def first_boot(kind: Kind, settings: Settings, present: Mapping[str, str]) -> FirstBoot:
    """Give everything to write for an image of this kind, whose NEEDED_FILES are `present` (those that exist)."""
    made = MAKERS[kind](settings, present)
    lines = {name: present[name] for name in COMMAND_LINES if name in present}
    options = {name: command_line(kind, settings, text).encode() for name, text in lines.items()}
    config = {"config.txt": config_text(present["config.txt"]).encode()} if watched(settings, present) else {}
    missing = () if lines else ("kernel options (cgroup memory, watchdog, Wi-Fi country): it has no cmdline.txt",)
    return FirstBoot({**made.boot_files, **options, **config}, made.root_files, made.left_out + missing)


def watched(settings: Settings, present: Mapping[str, str]) -> bool:
    """Whether config.txt is to switch the watchdog on."""
    return settings.watchdog and "config.txt" in present


def command_line(kind: Kind, settings: Settings, text: str) -> str:
    """Add our options to the kernel's command line, in place of other values; it stays one line."""
    options: dict[str, str] = {}
    if settings.cgroup_memory:  # the device tree of a Pi disables it; the later of the two options wins
        options["cgroup_enable"] = "memory"
    if settings.watchdog:
        options["systemd.watchdog_sec"] = str(WATCHDOG_S)
    if settings.country:
        options["cfg80211.ieee80211_regdom"] = settings.country
    if kind is Kind.TRIXIE or (kind is Kind.UBUNTU and "ds=nocloud;i=" in text):
        # An id here outranks the one in meta-data, and lets cloud-init see at each boot that nothing is new.
        options["ds"] = f"nocloud;i={settings.instance_id}"
    dropped = {"cgroup_disable=memory"} if settings.cgroup_memory else set()
    kept = [word for word in text.split() if word.partition("=")[0] not in options and word not in dropped]
    return " ".join(kept + [f"{name}={value}" for name, value in options.items()]) + "\n"


def config_text(text: str) -> str:
    """Switch the hardware watchdog on, in the section for all boards and not twice."""
    added = "dtparam=watchdog=on"
    if added in text.splitlines():
        return text
    return f"{text.rstrip()}\n\n[all]\n{added}\n"


def cloud_init(settings: Settings, *, ubuntu: bool) -> dict[str, bytes]:
    """Make cloud-init's three seed files; the first two must both be there, or none is read."""
    return {
        "user-data": b"#cloud-config\n" + as_yaml(user_data(settings, ubuntu=ubuntu)),
        "meta-data": as_yaml({"instance-id": settings.instance_id, "local-hostname": settings.host}),
        "network-config": as_yaml({"network": network_config(settings, ubuntu=ubuntu)}),
    }


def user_data(settings: Settings, *, ubuntu: bool) -> dict[str, Any]:
    """Describe host, user and access.

    The singular `user` keeps the groups of the image's own first user; `manage_etc_hosts` would undo every later change
    of the host's name, so /etc/hosts is set once. sudo asks for no password as there is none.
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
    return {**fields, "runcmd": commands(settings, ubuntu=ubuntu)}


def commands(settings: Settings, *, ubuntu: bool) -> list[list[str]]:
    """List what runs at the end of the first boot."""
    name = f"127.0.1.1\t{settings.host}"
    hosts = f"sed -i '/^127\\.0\\.1\\.1[[:space:]]/d' /etc/hosts && echo '{name}' >> /etc/hosts"
    found = [["sh", "-c", hosts]]
    if not ubuntu:
        found.append(["systemctl", "enable", "--now", "ssh"])
    if settings.wifi and not ubuntu:  # the radio of Raspberry Pi OS is off until someone switches it on
        found += [["rfkill", "unblock", "wifi"], ["nmcli", "radio", "wifi", "on"]]
    return found


def network_config(settings: Settings, *, ubuntu: bool) -> dict[str, Any]:
    """Describe the network as netplan does. eth0 is always there: this file replaces the image's own wired set-up."""
    static = settings.static
    wired = static.interface if static and static.interface != "wlan0" else "eth0"
    found: dict[str, Any] = {"version": 2}
    if static and ubuntu:
        found["renderer"] = "networkd"  # without it a static address may be overridden there
    found["ethernets"] = {wired: addressing(static, wired)}
    if settings.wifi:
        found["wifis"] = {
            "wlan0": {
                **addressing(static, "wlan0"),
                "regulatory-domain": settings.country,
                "access-points": {settings.wifi.ssid: access_point(settings.wifi)},
            }
        }
    return found


def addressing(static: Static | None, interface: str) -> dict[str, Any]:
    """Describe how an interface gets its address; a board must not wait for one that is not connected."""
    if static is None or static.interface != interface:
        return {"dhcp4": True, "optional": True}
    found: dict[str, Any] = {"dhcp4": False, "addresses": [str(static.address)]}
    if static.gateway:
        found["routes"] = [{"to": "default", "via": str(static.gateway)}]
    if static.dns:
        found["nameservers"] = {"addresses": [str(address) for address in static.dns]}
    return {**found, "optional": True}


def access_point(wifi: Wifi) -> dict[str, Any]:
    """Describe how to join a network."""
    hidden: dict[str, Any] = {"hidden": True} if wifi.hidden else {}
    key = wifi_key(wifi)
    return {**hidden, **({"password": key} if key else {"auth": {"key-management": "none"}})}


def wifi_key(wifi: Wifi) -> str | None:
    """Derive the 64 hex digits that join the network (IEEE 802.11i), so that the passphrase itself is on no card."""
    if wifi.password is None or PSK.fullmatch(wifi.password):
        return wifi.password
    return hashlib.pbkdf2_hmac("sha1", wifi.password.encode(), wifi.ssid.encode(), 4096, 32).hex()


def as_yaml(value: dict[str, Any]) -> bytes:
    """Write YAML as the library writes it that cloud-init reads it with; odd characters are escaped."""
    text: str = yaml.safe_dump(value, sort_keys=False, default_flow_style=False, width=1 << 20)
    return text.encode()


def trixie(settings: Settings, _present: Mapping[str, str]) -> FirstBoot:
    """Configure Raspberry Pi OS trixie; the empty `ssh` switches the server on even where user-data came too late."""
    return FirstBoot({**cloud_init(settings, ubuntu=False), "ssh": b""}, left_out=root_refused(settings))


def ubuntu(settings: Settings, _present: Mapping[str, str]) -> FirstBoot:
    """Configure Ubuntu."""
    return FirstBoot(cloud_init(settings, ubuntu=True), left_out=root_refused(settings))


def bookworm(settings: Settings, _present: Mapping[str, str]) -> FirstBoot:
    """Configure Raspberry Pi OS bookworm."""
    return by_toml("custom.toml", toml(1, sections(settings)), settings)


def preseed(settings: Settings, _present: Mapping[str, str]) -> FirstBoot:
    """Configure an image with rpi-preseed, whose keys are those of custom.toml and more."""
    told = sections(settings)
    told["user"]["passwordless_sudo"] = True  # there is no password to ask for
    return by_toml("rpi-preseed.toml", toml("1.0", told), settings)


def by_toml(name: str, text: str, settings: Settings) -> FirstBoot:
    """Give the TOML file; a fixed address, IPv6 too, is a file of NetworkManager's, which both kinds of image run."""
    root_files = {NM_CONNECTION: (connection(settings.static).encode(), 0o600)} if settings.static else {}
    left_out = root_refused(settings)
    if settings.static and settings.static.interface == "wlan0":
        root_files = {}
        left_out += (f"the static address on wlan0: {name} cannot say it, use a wired interface",)
    return FirstBoot({name: text.encode()}, root_files, left_out)


def sections(settings: Settings) -> dict[str, dict[str, object]]:
    """Give the sections of both; a password would be taken for a hash unless marked: only the derived key is given."""
    found: dict[str, dict[str, object]] = {
        "system": {"hostname": settings.host},
        "user": {"name": settings.user},
        "ssh": {"enabled": True, "password_authentication": False, "authorized_keys": list(settings.ssh_keys)},
    }
    if settings.wifi:
        key = wifi_key(settings.wifi)
        secret: dict[str, object] = {"password": key, "password_encrypted": True} if key else {}
        found["wlan"] = {"ssid": settings.wifi.ssid, **secret, "hidden": settings.wifi.hidden}
    if settings.country:
        found.setdefault("wlan", {})["country"] = settings.country
    if settings.timezone:
        found["locale"] = {"timezone": settings.timezone}
    return found


def toml(version: object, told: Mapping[str, Mapping[str, object]]) -> str:
    """Write sections as TOML."""
    parts = [f"[{name}]\n" + "".join(toml_lines(values)) for name, values in told.items()]
    return f"config_version = {toml_value(version)}\n\n" + "\n".join(parts)


def toml_lines(values: Mapping[str, object]) -> Iterable[str]:
    """Write keys and values: strings, booleans and lists of strings look in TOML as they do in JSON."""
    return (f"{name} = {toml_value(value)}\n" for name, value in values.items())


def toml_value(value: object) -> str:
    """Write one value; JSON's escapes for characters above U+FFFF are not TOML's, so those stay as they are."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def connection(static: Static) -> str:
    """Write NetworkManager's keyfile for a wired interface with a fixed address."""
    family, other = ("ipv4", "ipv6") if static.address.version == 4 else ("ipv6", "ipv4")
    lines = ["[connection]", "id=edge-static", "type=ethernet", f"interface-name={static.interface}"]
    lines += ["autoconnect-priority=100", "", f"[{family}]", "method=manual", f"address1={static.address}"]
    lines += [f"gateway={static.gateway}"] if static.gateway else []
    servers = [str(address) for address in static.dns if address.version == static.address.version]
    lines += [f"dns={';'.join(servers)};"] if servers else []
    return "\n".join([*lines, "", f"[{other}]", "method=auto", ""])


def debian(settings: Settings, present: Mapping[str, str]) -> FirstBoot:
    """Configure Debian's own image: it knows one key, for root, and a name; root's empty password is replaced."""
    key = settings.ssh_keys[0].split()
    values = {
        "root_pw": settings.throwaway_password,  # nobody knows it: without one, root's password is empty
        "root_authorized_key": " ".join(key[:2]),  # without its comment, in which a # would cut the line
        "hostname": settings.host,
    }
    told = {
        f"the user {settings.user}: log in as root": settings.user != "root",
        "all SSH keys but the first": len(settings.ssh_keys) > 1,
        "Wi-Fi": settings.wifi is not None,
        "the static address": settings.static is not None,
        "the time zone": settings.timezone is not None,
    }
    left_out = tuple(text for text, missing in told.items() if missing)
    return FirstBoot({"sysconf.txt": sysconf(present.get("sysconf.txt", ""), values).encode()}, left_out=left_out)


def sysconf(text: str, values: Mapping[str, str]) -> str:
    """Set keys in sysconf.txt, keeping its comments and other keys."""
    kept = [line for line in text.splitlines() if line.partition("=")[0].strip() not in values]
    return "\n".join([*kept, *(f"{name}={value}" for name, value in values.items())]) + "\n"


def root_refused(settings: Settings) -> tuple[str, ...]:
    """Only Debian's own image is entered as root."""
    return ("the user root: give another --user, its sudo asks for no password",) if settings.user == "root" else ()


MAKERS: dict[Kind, Callable[[Settings, Mapping[str, str]], FirstBoot]] = {
    Kind.TRIXIE: trixie,
    Kind.BOOKWORM: bookworm,
    Kind.PRESEED: preseed,
    Kind.DEBIAN: debian,
    Kind.UBUNTU: ubuntu,
}
