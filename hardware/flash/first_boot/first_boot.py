"""PURE: make all files by which an image of a kind configures itself at its first boot, from settings.

Does not contain: the recognition of the image (`images`), reading, writing.

| kind | on the boot partition | in the root file system | source |
|---|---|---|---|
| trixie | user-data, meta-data, network-config, ssh | radio on | cloud-init (NoCloud), netplan, rpi-imager's notes |
| ubuntu | user-data, meta-data, network-config | | the same, found by the label system-boot |
| bookworm | custom.toml | network, sudo | raspberrypi-sys-mods: `init_config` |
| bullseye | custom.toml | fixed address (dhcpcd), sudo | the same, since 2022-09 |
| preseed | rpi-preseed.toml | network, SSH keys | rpi-preseed's schema; Raspberry Pi calls it a prototype |
| debian | sysconf.txt | | raspi.debian.net: `rpi-set-sysconf` |
All: cmdline.txt, config.txt, and the ssh host key in the root file system.
Settings that a kind does not support are listed, never dropped silently.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from hardware.flash.first_boot.cloud_init import cloud_init
from hardware.flash.first_boot.firmware import COMMAND_LINES, CONFIG_LINES, command_line, config_text
from hardware.flash.first_boot.networks import DHCPCD, RADIO_ON, RADIO_STATE, connections, dhcpcd
from hardware.flash.first_boot.settings import Settings, wifi_key

NEEDED_FILES = (*COMMAND_LINES, "config.txt", "sysconf.txt")
SUDOERS = "/etc/sudoers.d/010_pi-nopasswd"
USERS = "/etc/passwd"
NEEDED_ROOT_FILES = (USERS, SUDOERS, DHCPCD)
GADGET = "usb-gadget"
HOST_KEY = "/etc/ssh/edge_host_ed25519_key"  # no ssh_host_*: those are removed by the first boot
HOST_KEY_CONFIG = "/etc/ssh/sshd_config.d/05-edge-host-key.conf"
FIRST_USER = "1000"  # renamed by the first boot of Raspberry Pi's images, home and all


class Kind(StrEnum):
    """The first-boot mechanism of an image, by the name that `--as` takes."""

    TRIXIE = "trixie"
    BOOKWORM = "bookworm"
    BULLSEYE = "bullseye"
    PRESEED = "preseed"
    DEBIAN = "debian"
    UBUNTU = "ubuntu"


class RootFile(NamedTuple):
    """A file of the root file system; the folders that it needs are made for the same owner (user and group)."""

    content: bytes
    mode: int
    owner: int = 0
    folder_mode: int = 0o755


@dataclass(frozen=True)
class FirstBoot:
    """The files by name on the boot partition, and by absolute name in the root file system; unsupported settings."""

    boot_files: dict[str, bytes]
    root_files: dict[str, RootFile] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()


def first_boot(kind: Kind, settings: Settings, present: Mapping[str, str]) -> FirstBoot:
    """Return the files to write for an image of this kind; `present`: the needed files that it has."""
    made, more = MAKERS[kind](settings, present), firmware(kind, settings, present)
    return FirstBoot(
        {**made.boot_files, **more.boot_files},
        {**made.root_files, **more.root_files, **host_key_files(settings)},
        made.left_out + more.left_out,
    )


def host_key_files(settings: Settings) -> dict[str, RootFile]:
    """Return the board's host key, and the configuration by which sshd offers only it."""
    if settings.host_key is None:
        return {}
    config = f"# Written by edge-board flash.\nHostKey {HOST_KEY}\n"
    return {
        HOST_KEY: RootFile(settings.host_key.private, 0o600),
        f"{HOST_KEY}.pub": RootFile(f"{settings.host_key.public}\n".encode(), 0o644),
        HOST_KEY_CONFIG: RootFile(config.encode(), 0o644),
    }


def firmware(kind: Kind, settings: Settings, present: Mapping[str, str]) -> FirstBoot:
    """Return cmdline.txt and config.txt, and the files of the interfaces that they switch on."""
    lines = {name: present[name] for name in COMMAND_LINES if name in present}
    seeded = kind is Kind.TRIXIE
    files = {name: as_read(command_line(settings, text, seeded=seeded)) for name, text in lines.items()}
    left_out = [] if lines else ["kernel options (cgroup memory, watchdog, Wi-Fi country): it has no cmdline.txt"]
    if "config.txt" in present:
        files["config.txt"] = as_read(config_text(settings, present["config.txt"]))
    in_config = [name for name in settings.interfaces if name in CONFIG_LINES]
    if in_config and ("config.txt" not in present or kind is Kind.DEBIAN):
        why = "its device trees do not know them by name" if "config.txt" in present else "it has no config.txt"
        left_out.append(f"{', '.join(in_config)}: {why}")
    if GADGET in settings.interfaces and kind not in {Kind.TRIXIE, Kind.PRESEED}:
        left_out.append(f"{GADGET}: it has no rpi-usb-gadget")
    modules = (
        {"/etc/modules-load.d/edge-i2c.conf": RootFile(b"i2c-dev\n", 0o644)} if "i2c" in settings.interfaces else {}
    )
    return FirstBoot(files, modules, tuple(left_out))


def trixie(settings: Settings, _present: Mapping[str, str]) -> FirstBoot:
    """Configure Raspberry Pi OS trixie; the empty `ssh` switches the server on even where user-data came too late."""
    files = network_files({RADIO_STATE: RADIO_ON}) if settings.country else {}
    return FirstBoot({**cloud_init(settings, ubuntu=False), "ssh": b""}, files)


def ubuntu(settings: Settings, _present: Mapping[str, str]) -> FirstBoot:
    """Configure Ubuntu."""
    return FirstBoot(cloud_init(settings, ubuntu=True))


def bookworm(settings: Settings, present: Mapping[str, str]) -> FirstBoot:
    """Configure Raspberry Pi OS bookworm, whose network is NetworkManager's."""
    text = toml(1, sections(settings))
    return FirstBoot(
        {"custom.toml": text.encode()}, {**network_files(connections(settings)), **sudo_file(settings, present)}
    )


def bullseye(settings: Settings, present: Mapping[str, str]) -> FirstBoot:
    """Configure Raspberry Pi OS bullseye, whose network is dhcpcd's and wpa_supplicant's."""
    told = sections(settings)
    if settings.wifi:
        key = wifi_key(settings.wifi)
        secret: dict[str, object] = {"password": key, "password_encrypted": True} if key else {}
        told["wlan"] = {"ssid": settings.wifi.ssid, **secret, "hidden": settings.wifi.hidden}
    if settings.country:
        told.setdefault("wlan", {})["country"] = settings.country
    fixed = dhcpcd(settings.static, present.get(DHCPCD, "")) if settings.static else None
    files = {DHCPCD: RootFile(as_read(fixed[0]), 0o644)} if fixed else {}
    left_out = fixed[1] if fixed else ()
    return FirstBoot({"custom.toml": toml(1, told).encode()}, {**sudo_file(settings, present), **files}, left_out)


def preseed(settings: Settings, present: Mapping[str, str]) -> FirstBoot:
    """Configure an image with rpi-preseed, whose keys are those of custom.toml and more.

    It loses SSH keys (they are collected in a subshell), so they are in the first user's home, which is renamed with
    it. A version that is mended writes them there a second time, which does no harm.
    """
    told = sections(settings)
    told["user"] |= {"groups": ["sudo"], "passwordless_sudo": True}  # there is no password to ask for
    if GADGET in settings.interfaces:
        told["interfaces"] = {"usb_gadget": True}
    files, home = network_files(connections(settings)), first_home(present.get(USERS, ""))
    if home:
        keys = "".join(f"{key}\n" for key in settings.ssh_keys).encode()
        files[f"{home}/.ssh/authorized_keys"] = RootFile(keys, 0o600, int(FIRST_USER), 0o700)
    left_out = () if home else ("the SSH keys: it has no first user (1000) with a home to put them into",)
    return FirstBoot({"rpi-preseed.toml": toml("1.0", told).encode()}, files, left_out)


def first_home(passwd: str) -> str | None:
    """Find the home of the user that the first boot renames."""
    users = (line.split(":") for line in passwd.splitlines())
    return next(
        (user[5] for user in users if len(user) > 6 and user[2] == FIRST_USER and user[5].startswith("/")), None
    )


def network_files(texts: Mapping[str, str]) -> dict[str, RootFile]:
    """Return NetworkManager's files, which it reads only if no other user can."""
    return {name: RootFile(text.encode(), 0o600) for name, text in texts.items()}


def sudo_file(settings: Settings, present: Mapping[str, str]) -> dict[str, RootFile]:
    """Let the user's sudo ask for no password, as there is none; a file of the image's that says so is kept."""
    if SUDOERS in present:
        return {}
    return {"/etc/sudoers.d/010_edge-nopasswd": RootFile(f"{settings.user} ALL=(ALL) NOPASSWD: ALL\n".encode(), 0o440)}


def sections(settings: Settings) -> dict[str, dict[str, object]]:
    """Give the sections that both TOML files have."""
    found: dict[str, dict[str, object]] = {
        "system": {"hostname": settings.host},
        "user": {"name": settings.user},
        "ssh": {"enabled": True, "password_authentication": False, "authorized_keys": list(settings.ssh_keys)},
    }
    locale: dict[str, object] = {"keymap": settings.keyboard, "timezone": settings.timezone}
    if any(locale.values()):
        found["locale"] = {name: value for name, value in locale.items() if value}
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


def debian(settings: Settings, present: Mapping[str, str]) -> FirstBoot:
    """Configure Debian's own image: it knows one key, for root, and a name; root's empty password is replaced."""
    key = settings.ssh_keys[0].split()
    values = {
        "root_pw": settings.throwaway_password,  # a random password: without one, root's password is empty
        "root_authorized_key": " ".join(key[:2]),  # without its comment, in which a # would cut the line
        "hostname": settings.host,
    }
    told = {
        f"the user {settings.user}: log in as root": settings.user != "root",
        "all SSH keys but the first": len(settings.ssh_keys) > 1,
        "Wi-Fi": settings.wifi is not None,
        "the static address": settings.static is not None,
        "the time zone": settings.timezone is not None,
        "the keyboard": settings.keyboard is not None,
    }
    left_out = tuple(text for text, missing in told.items() if missing)
    return FirstBoot({"sysconf.txt": as_read(sysconf(present.get("sysconf.txt", ""), values))}, left_out=left_out)


def sysconf(text: str, values: Mapping[str, str]) -> str:
    """Set keys in sysconf.txt, keeping its comments and other keys."""
    kept = [line for line in text.splitlines() if line.partition("=")[0].strip() not in values]
    return "\n".join([*kept, *(f"{name}={value}" for name, value in values.items())]) + "\n"


def as_read(text: str) -> bytes:
    """Give the bytes of a text that holds one of the image's, whatever encoding a comment in it has."""
    return text.encode("utf-8", "surrogateescape")


MAKERS: dict[Kind, Callable[[Settings, Mapping[str, str]], FirstBoot]] = {
    Kind.TRIXIE: trixie,
    Kind.BOOKWORM: bookworm,
    Kind.BULLSEYE: bullseye,
    Kind.PRESEED: preseed,
    Kind.DEBIAN: debian,
    Kind.UBUNTU: ubuntu,
}
