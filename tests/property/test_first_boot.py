"""Whatever valid settings a card is given, the readers at the other end take them and read the same.

Invariants:
- user-data and network-config are valid by cloud-init's own schemas, the two TOML files are TOML, for any settings;
- host, user, keys and SSID are read back as they were given, whatever characters they have;
- the passphrase itself is in none of the files;
- cmdline.txt stays one line, keeps every foreign option, and applying it twice changes nothing more.
"""

from __future__ import annotations

import base64
import configparser
import dataclasses
import ipaddress
import tomllib

import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from hardware.flash.first_boot.firmware import CONFIG_LINES, command_line, config_text, holds, lines_for_all
from hardware.flash.first_boot.first_boot import Kind, first_boot
from hardware.flash.first_boot.networks import DHCPCD, WIFI_CONNECTION
from hardware.flash.first_boot.settings import Settings, Static, Wifi, wifi_key
from tests.support.first_boot import check_network_config, check_user_data

hosts = st.from_regex(r"[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?", fullmatch=True)
users = st.from_regex(r"[a-z][a-z0-9-]{0,31}", fullmatch=True)
printable = st.text(st.characters(exclude_categories=["C", "Z"]) | st.just(" "), min_size=1, max_size=8)
ascii_text = st.text(st.characters(min_codepoint=32, max_codepoint=126), min_size=1, max_size=32)
ssids = st.one_of(  # 32 bytes at most, and a character has up to 4
    printable,
    ascii_text,
    st.sampled_from(["12;", "1 ; 2", "yes", "null", "0x10", "1e3", "~", "- a", "a: b", "#", "'", '"\\', "{}", "😀"]),
)
passphrases = st.text(st.characters(min_codepoint=32, max_codepoint=126), min_size=8, max_size=63)


@st.composite
def keys(draw: st.DrawFn) -> str:
    content = b"\0\0\0\x0bssh-ed25519\0\0\0 " + draw(st.binary(min_size=32, max_size=32))
    comment = draw(st.text(st.characters(exclude_categories=["C", "Z"]), max_size=20))
    return f"ssh-ed25519 {base64.b64encode(content).decode()} {comment}".strip()


@st.composite
def statics(draw: st.DrawFn) -> Static:
    network = draw(st.sampled_from([ipaddress.ip_network("192.0.2.0/24"), ipaddress.ip_network("2001:db8::/64")]))
    numbers = draw(st.lists(st.integers(1, 254), min_size=3, max_size=3, unique=True))
    addresses = [network[number] for number in numbers]
    interface = ipaddress.ip_interface(f"{addresses[0]}/{network.prefixlen}")
    gateway = draw(st.sampled_from([None, addresses[1]]))
    return Static(
        interface, gateway, draw(st.sampled_from([(), (addresses[2],)])), draw(st.sampled_from(["eth0", "wlan0"]))
    )


@st.composite
def all_settings(draw: st.DrawFn) -> Settings:
    wifi = draw(st.sampled_from([None, Wifi(draw(ssids), draw(st.none() | passphrases), draw(st.booleans()))]))
    static = draw(st.none() | statics())
    return Settings(
        host=draw(hosts),
        user=draw(users),
        ssh_keys=tuple(draw(st.lists(keys(), min_size=1, max_size=3))),
        instance_id=f"edge-board-{draw(st.uuids())}",
        throwaway_password="0123456789abcdef",
        wifi=wifi,
        country="GB",
        static=static if wifi or not (static and static.wireless) else None,
        timezone=draw(st.sampled_from([None, "Etc/GMT+1", "America/Argentina/Buenos_Aires"])),
        interfaces=tuple(draw(st.lists(st.sampled_from(list(CONFIG_LINES)), unique=True))),
        cgroup_memory=draw(st.booleans()),
        watchdog=draw(st.booleans()),
    )


@settings(max_examples=60, deadline=None)
@given(all_settings(), st.sampled_from([Kind.TRIXIE, Kind.UBUNTU]))
def test_cloud_init_takes_any_settings(chosen: Settings, kind: Kind) -> None:
    found = first_boot(kind, chosen, {}).boot_files
    user = check_user_data(found["user-data"])
    assert (user["hostname"], user["user"]["name"]) == (chosen.host, chosen.user)
    assert tuple(user["user"]["ssh_authorized_keys"]) == chosen.ssh_keys
    assert ("network-config" in found) == bool(chosen.wifi or chosen.static)
    if chosen.wifi:
        network = check_network_config(found["network-config"])["network"]
        points = network["wifis"]["wlan0"]["access-points"]
        assert list(points) == [chosen.wifi.ssid]
        assert points[chosen.wifi.ssid].get("password") == wifi_key(chosen.wifi)
    assert yaml.safe_load(found["meta-data"]) == {"instance-id": chosen.instance_id, "local-hostname": chosen.host}


@settings(max_examples=100, deadline=None)
@given(
    all_settings(),
    st.sampled_from(
        [
            (Kind.BOOKWORM, "custom.toml", 1),
            (Kind.BULLSEYE, "custom.toml", 1),
            (Kind.PRESEED, "rpi-preseed.toml", "1.0"),
        ]
    ),
)
def test_toml_takes_any_settings(chosen: Settings, reader: tuple[Kind, str, object]) -> None:
    kind, name, version = reader
    made = first_boot(kind, chosen, {})
    value = tomllib.loads(made.boot_files[name].decode())
    assert value["config_version"] == version
    assert (value["system"]["hostname"], value["user"]["name"]) == (chosen.host, chosen.user)
    assert tuple(value["ssh"]["authorized_keys"]) == chosen.ssh_keys
    if chosen.wifi and kind is Kind.BULLSEYE:
        assert value["wlan"]["ssid"] == chosen.wifi.ssid
        assert value["wlan"].get("password") == wifi_key(chosen.wifi)
    elif chosen.wifi:
        connection = read_keyfile(made.root_files[WIFI_CONNECTION].content)
        assert ssid_of(connection["wifi"]["ssid"]) == chosen.wifi.ssid
        assert connection.get("wifi-security", {}).get("psk") == wifi_key(chosen.wifi)


def read_keyfile(content: bytes) -> dict[str, dict[str, str]]:
    """Read NetworkManager's file as GLib does: `key=value`, and a backslash would escape."""
    reader = configparser.RawConfigParser(delimiters="=", comment_prefixes="#", strict=True)
    reader.read_string(content.decode())
    assert b"\\" not in content
    return {name: dict(reader[name]) for name in reader.sections()}


def ssid_of(value: str) -> str:
    """Read an SSID as NetworkManager does: numbers of bytes, else as it is."""
    return bytes(int(word) for word in value.split(";")[:-1]).decode() if ";" in value else value


@settings(max_examples=40, deadline=None)
@given(all_settings(), ssids, st.booleans(), st.sampled_from(list(Kind)))
def test_the_passphrase_is_nowhere(chosen: Settings, ssid: str, hidden: bool, kind: Kind) -> None:
    secret = Wifi(ssid, "never on a card 4711", hidden)
    made = first_boot(kind, dataclasses.replace(chosen, wifi=secret), {"cmdline.txt": "", "config.txt": ""})
    contents = [*made.boot_files.values(), *(file.content for file in made.root_files.values())]
    assert all(b"never on a card" not in content for content in contents)
    assert "never on a card" not in repr(secret)


@settings(max_examples=100, deadline=None)
@given(
    all_settings(),
    st.sampled_from(list(Kind)),
    st.lists(st.sampled_from(["ab=1", "ds=nocloud;i=old", "cgroup_disable=memory", "x"])),
)
def test_the_command_line_stays_one_line(chosen: Settings, kind: Kind, words: list[str]) -> None:
    once = command_line(chosen, " ".join(words) + "\n", seeded=kind is Kind.TRIXIE)
    assert once.count("\n") == 1
    assert once.endswith("\n")
    assert command_line(chosen, once, seeded=kind is Kind.TRIXIE) == once
    assert [word for word in once.split() if word in {"ab=1", "x"}] == [word for word in words if word in {"ab=1", "x"}]
    assert not (chosen.cgroup_memory and "cgroup_disable=memory" in once)
    assert once.count("ds=nocloud") <= 1


CONFIG_WORDS = st.sampled_from(
    ["[cm4]", "[all]", "[pi5]", "dtparam=spi=on", "#dtparam=i2c_arm=on", "dtparam=spi=off", ""]
)


@given(
    st.text(st.characters(codec="ascii", exclude_characters="\r\x0b\x0c\x1c\x1d\x1e"), max_size=60)
    | st.lists(CONFIG_WORDS).map("\n".join),
    all_settings(),
)
def test_config_txt_is_changed_once(text: str, chosen: Settings) -> None:
    once = config_text(chosen, text)
    assert config_text(chosen, once) == once
    assert once.startswith(text.rstrip())
    for_all = list(lines_for_all(once.splitlines()))
    assert all(holds(CONFIG_LINES[name], for_all) for name in chosen.interfaces)
    assert "spi" not in chosen.interfaces or [line for line in for_all if "spi=" in line][-1] == "dtparam=spi=on"


@settings(max_examples=30, deadline=None)
@given(all_settings(), st.sampled_from(list(Kind)), st.binary(max_size=20))
def test_what_an_image_says_in_another_encoding_is_kept(chosen: Settings, kind: Kind, comment: bytes) -> None:
    line = b"# gr\xf6\xdfe " + bytes(byte | 0xA0 for byte in comment) + b"x"
    text = line.decode("utf-8", "surrogateescape")
    made = first_boot(kind, chosen, dict.fromkeys(("config.txt", "sysconf.txt", DHCPCD), text))
    assert made.boot_files["config.txt"].startswith(line)
    if kind is Kind.DEBIAN:
        assert made.boot_files["sysconf.txt"].startswith(line + b"\n")
    if kind is Kind.BULLSEYE and chosen.static:
        assert made.root_files[DHCPCD].content.startswith(line + b"\n")
