"""A card's files, read by those for whom they are meant: cloud-init, netplan, NetworkManager, sshd, sudo of trixie.

Invariants:
- cloud-init's schemas take user-data and network-config without a word, deprecations included;
- netplan takes what cloud-init hands on, and the profiles of NetworkManager, networkd and wpa_supplicant that come out
  say what was asked: addresses of both families, gateway, name servers, SSID, security, radio country;
- NetworkManager reads our own profiles, those of images without cloud-init, into the same;
- after cloud-init's whole first boot the user gets in by his key alone and sudo asks for nothing.
Each runs in a throw-away copy of a Debian root: tests/support/readers.sh. systemd, the radio and Raspberry Pi's own
packages are not in it; what would be asked of the first two is written down.
"""

from __future__ import annotations

import configparser
import dataclasses
import functools
import ipaddress
import json
import re
import subprocess
from pathlib import Path

import pytest
import yaml

from hardware.flash.first_boot.first_boot import NEEDED_FILES, NEEDED_ROOT_FILES, FirstBoot, Kind, first_boot
from hardware.flash.first_boot.host_key import make_host_key
from hardware.flash.first_boot.settings import Settings, Static, Wifi, wifi_key
from tests.support.card_images import LAYOUTS
from tests.support.first_boot import KEY, SETTINGS, lay_out_card

pytestmark = [pytest.mark.root, pytest.mark.timeout(600)]  # the first one makes the root

DEBIAN = Path(__file__).parents[1] / "support/readers.sh"
READERS = Path(__file__).with_name("readers")
PLAIN = dataclasses.replace(SETTINGS, wifi=None, country=None, static=None, timezone=None)
ODD = Wifi('Werkstatt №1: "Süd" #a', "correct horse, battery")
FOUR = Static(ipaddress.ip_interface("192.0.2.11/24"), ipaddress.ip_address("192.0.2.1"))
SIX = Static(
    ipaddress.ip_interface("2001:db8::11/64"),
    ipaddress.ip_address("fe80::1"),
    (ipaddress.ip_address("2001:db8::53"), ipaddress.ip_address("192.0.2.53")),
)
CASES: dict[str, Settings] = {
    "plain": PLAIN,
    "country": dataclasses.replace(PLAIN, country="GB"),
    "wifi": dataclasses.replace(PLAIN, country="GB", wifi=ODD),
    "wifi-open": dataclasses.replace(PLAIN, country="GB", wifi=Wifi("Guests", None)),
    "wifi-hidden": dataclasses.replace(PLAIN, country="GB", wifi=dataclasses.replace(ODD, hidden=True)),
    "wifi-digits": dataclasses.replace(PLAIN, country="GB", wifi=Wifi("2026", "12345678")),
    "wifi-like-bytes": dataclasses.replace(PLAIN, country="GB", wifi=Wifi("12;7;", "12345678")),
    "static": dataclasses.replace(PLAIN, static=FOUR),
    "static-6": dataclasses.replace(PLAIN, static=SIX),
    "static-end0": dataclasses.replace(PLAIN, static=dataclasses.replace(FOUR, interface="end0")),
    "static-wifi": dataclasses.replace(PLAIN, country="GB", wifi=ODD, static=FOUR),
    "static-wlan0": dataclasses.replace(
        PLAIN, country="GB", wifi=ODD, static=dataclasses.replace(FOUR, interface="wlan0")
    ),
    # Without usb-gadget: `rpi` is a key of cloud-init since 25.2, in Raspberry Pi's own since the first.
    "everything": dataclasses.replace(SETTINGS, keyboard="de", interfaces=("i2c", "spi", "onewire", "serial")),
}
NETWORKS = [name for name, case in CASES.items() if case.wifi or case.static]

Profile = dict[str, dict[str, str]]


def made(kind: Kind, settings: Settings) -> FirstBoot:
    """Give the files of a card of this kind."""
    layout = LAYOUTS[kind]
    present = {name: layout.boot[name] for name in NEEDED_FILES if name in layout.boot}
    in_root = {name: layout.root[name[1:]] for name in NEEDED_ROOT_FILES if name[1:] in layout.root}
    return first_boot(kind, settings, present | in_root)


def read_by(script: str, folder: Path) -> None:
    """Run one of the scripts in a copy of the root, with the card's files."""
    words = [DEBIAN, "run", "trixie", folder, "sh", f"/case/{script}"]
    (folder / script).write_bytes((READERS / script).read_bytes())
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (folder / "said/sshd").exists(), f"{script} did not end: {done.stdout[-2000:]}{done.stderr[-4000:]}"


@functools.cache
def judged(kind: Kind, name: str, folder: Path) -> Path:
    """Give the folder with what the readers made of a case; each is read once."""
    case = folder / f"{kind}-{name}"
    lay_out_card(made(kind, CASES[name]), case)
    if kind is Kind.TRIXIE:  # Raspberry Pi OS says so for all interfaces, Ubuntu Server has networkd
        (case / "renderer").write_text("NetworkManager")
    read_by("judge.sh", case)
    return case


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("readers")


def said(case: Path, name: str) -> str:
    """Give what a reader said; empty if it had nothing to say."""
    place = case / "said" / name
    return place.read_text().strip() if place.exists() else ""


def profiles(case: Path) -> dict[str, Profile]:
    """Give NetworkManager's profiles by interface, in its own words."""
    found = {}
    for path in (case / "profiles").iterdir():
        parser = configparser.RawConfigParser(delimiters=("=",), strict=True)
        parser.read_string(path.read_text())
        profile = {section: dict(parser[section]) for section in parser.sections()}
        found[profile["connection"]["interface-name"]] = profile
    return found


def networkd(case: Path) -> dict[str, list[str]]:
    """Give networkd's files by interface, as lines."""
    paths = (case / "rendered/run/systemd/network").glob("10-netplan-*.network")
    return {path.stem.removeprefix("10-netplan-").split("-")[0]: path.read_text().splitlines() for path in paths}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("kind", [Kind.TRIXIE, Kind.UBUNTU])
def test_cloud_init_and_netplan_take_it_without_a_word(kind: Kind, name: str, folder: Path) -> None:
    case = judged(kind, name, folder)
    assert said(case, "user-data") == "Valid schema user-data"
    assert said(case, "network-config") == ("Valid schema network-config" if name in NETWORKS else "")
    assert said(case, "netplan") == "exit 0"
    assert said(case, "nmcli") == ""


@pytest.mark.parametrize("name", CASES)
def test_network_manager_and_sudo_take_what_lies_in_the_root_file_system(name: str, folder: Path) -> None:
    case = judged(Kind.BOOKWORM, name, folder)
    assert said(case, "nmcli") == ""
    assert [line for line in said(case, "visudo").splitlines() if not line.endswith("parsed OK")] == []


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("kind", [Kind.TRIXIE, Kind.BOOKWORM])
def test_network_manager_gets_the_addresses_that_were_asked_for(kind: Kind, name: str, folder: Path) -> None:
    settings, found = CASES[name], profiles(judged(kind, name, folder))
    static, wanted = settings.static, set()
    if kind is Kind.TRIXIE and name in NETWORKS:
        wanted.add("eth0")  # the file replaces what the image says of it
    wanted |= {static.interface} if static else set()
    wanted |= {"wlan0"} if settings.wifi else set()
    assert found.keys() == wanted
    for interface, profile in found.items():
        fixed = static if static and static.interface == interface else None
        for version in (4, 6):
            check_family(profile[f"ipv{version}"], version, fixed)


def check_family(found: dict[str, str], version: int, static: Static | None) -> None:
    """One family of addresses is manual if it was given, else automatic; never ignored."""
    if static is None:
        assert found["method"] == "auto"
        return
    servers = [str(each) for each in static.name_servers if each.version == version]
    assert [each for each in re.split("[;,]", found.get("dns", "")) if each] == servers
    if static.address.version != version:
        assert found["method"] == "auto"
        assert "address1" not in found
        return
    assert found["method"] == "manual"
    address, _, beside = found["address1"].partition(",")
    assert ipaddress.ip_interface(address) == static.address
    route = found.get("route1", "")
    gateways = {beside, found.get("gateway", ""), route.partition(",")[2]} - {""}
    assert gateways == ({str(static.gateway)} if static.gateway else set())
    assert not route or route.startswith(("0.0.0.0/0,", "::/0,"))


@pytest.mark.parametrize("name", [name for name in CASES if CASES[name].wifi])
@pytest.mark.parametrize("kind", [Kind.TRIXIE, Kind.BOOKWORM])
def test_network_manager_gets_the_wireless_network_that_was_asked_for(kind: Kind, name: str, folder: Path) -> None:
    wifi, profile = CASES[name].wifi, profiles(judged(kind, name, folder))["wlan0"]
    assert wifi is not None
    assert ssid(profile["wifi"]["ssid"]) == wifi.ssid
    assert profile["wifi"].get("hidden", "false") == str(wifi.hidden).lower()
    security = profile.get("wifi-security", {})
    key = wifi_key(wifi)
    assert security.get("psk") == key
    assert security.get("key-mgmt") == ("wpa-psk" if key else None)


def ssid(text: str) -> str:
    """Read an SSID as nm-settings-keyfile(5) says: numbers of bytes, or text with semicolons escaped, once or twice."""
    if re.fullmatch(r"(\d+;)+", text):
        return bytes(int(number) for number in text[:-1].split(";")).decode()
    return text.replace("\\\\;", ";").replace("\\;", ";")


@pytest.mark.parametrize("name", [name for name in CASES if CASES[name].wifi])
def test_netplan_sets_the_country_of_the_radio(name: str, folder: Path) -> None:
    for kind in (Kind.TRIXIE, Kind.UBUNTU):
        unit = judged(kind, name, folder) / "rendered/run/systemd/system/netplan-regdom.service"
        assert "iw reg set GB" in unit.read_text()


@pytest.mark.parametrize("name", NETWORKS)
def test_networkd_gets_the_addresses_that_were_asked_for(name: str, folder: Path) -> None:
    settings, found = CASES[name], networkd(judged(Kind.UBUNTU, name, folder))
    static = settings.static
    assert found.keys() == {"eth0", *([static.interface] if static else []), *(["wlan0"] if settings.wifi else [])}
    for interface, lines in found.items():
        fixed = static if static and static.interface == interface else None
        assert f"DHCP={'yes' if fixed is None else 'ipv6' if fixed.address.version == 4 else 'ipv4'}" in lines
        assert values(lines, "Address") == ([str(fixed.address)] if fixed else [])
        assert values(lines, "Gateway") == ([str(fixed.gateway)] if fixed else [])
        assert set(values(lines, "DNS")) == ({str(each) for each in fixed.name_servers} if fixed else set())


def values(lines: list[str], name: str) -> list[str]:
    """Give the values of a key of networkd's."""
    return [line.partition("=")[2] for line in lines if line.startswith(f"{name}=")]


@pytest.mark.parametrize("name", NETWORKS)
def test_networkd_waits_for_no_cable_and_no_radio(name: str, folder: Path) -> None:
    units = judged(Kind.UBUNTU, name, folder) / "rendered/run/systemd/system"
    waiting = units / "systemd-networkd-wait-online.service.d/10-netplan.conf"
    assert "ConditionPathIsSymbolicLink=/run/systemd/generator/network-online.target.wants" in waiting.read_text()
    assert "ExecStart=" not in waiting.read_text()


@pytest.mark.parametrize("name", [name for name in CASES if CASES[name].wifi])
def test_wpa_supplicant_gets_the_wireless_network_that_was_asked_for(name: str, folder: Path) -> None:
    wifi = CASES[name].wifi
    text = (judged(Kind.UBUNTU, name, folder) / "rendered/run/netplan/wpa-wlan0.conf").read_text()
    assert wifi is not None
    lines = [line.strip() for line in text.splitlines()]
    escaped = wifi.ssid.replace('"', '\\"')
    assert f'ssid=P"{escaped}"' in lines
    assert ("scan_ssid=1" in lines) == wifi.hidden
    key = wifi_key(wifi)
    assert f"psk={key}" in lines if key else "key_mgmt=NONE" in lines


@pytest.fixture(scope="module")
def booted(folder: Path) -> Path:
    """The whole first boot of a card that was told everything."""
    case = folder / "booted"
    settings = dataclasses.replace(CASES["everything"], host_key=make_host_key())
    lay_out_card(made(Kind.TRIXIE, settings), case)
    read_by("first_boot.sh", case)
    return case


def test_the_first_boot_ends_without_an_error(booted: Path) -> None:
    status = json.loads(said(booted, "status"))
    assert (status["extended_status"], status["errors"], status["recoverable_errors"]) == ("done", [], {})
    assert status["datasource"] == "nocloud"


def test_what_the_first_boot_asks_of_others(booted: Path) -> None:
    called = said(booted, "called").splitlines()
    asked = ["systemctl enable --now ssh", "rfkill unblock wifi", "nmcli radio wifi on"]
    assert [line for line in called if line in asked] == asked


def test_the_user_gets_in_by_key_alone(booted: Path) -> None:
    outcome = booted / "outcome"
    assert (outcome / "home/site/.ssh/authorized_keys").read_text().splitlines() == [KEY]
    assert (outcome / "home/site/.ssh/authorized_keys").stat().st_mode & 0o777 == 0o600
    users = {line.split(":")[0]: line.split(":") for line in (outcome / "etc/passwd").read_text().splitlines()}
    hashes = {line.split(":")[0]: line.split(":")[1] for line in (outcome / "etc/shadow").read_text().splitlines()}
    assert users["site"][6] == "/bin/bash"
    assert hashes["site"].startswith("!")
    assert {user for user, value in hashes.items() if value[:1] not in ("!", "*")} == set()
    assert "passwordauthentication no" in said(booted, "sshd").splitlines()
    rules = [path.read_text() for path in (outcome / "etc/sudoers.d").iterdir()]
    assert any("site ALL=(ALL) NOPASSWD:ALL" in text for text in rules)
    assert all(line.endswith("parsed OK") for line in said(booted, "visudo").splitlines())


def test_sshd_offers_the_host_key_of_the_card_alone(booted: Path) -> None:
    public = (booted / "root/etc/ssh/edge_host_ed25519_key.pub").read_text().strip()
    offered = [line for line in said(booted, "keyscan").splitlines() if not line.startswith("#")]
    assert offered == [f"127.0.0.1 {public}"]
    # cloud-init has made others meanwhile, in place of those that it found.
    other = (booted / "outcome/etc/ssh/ssh_host_ed25519_key.pub").read_text()
    assert public.split()[1] not in other


def test_the_board_is_what_the_card_was_told(booted: Path) -> None:
    outcome = booted / "outcome/etc"
    assert (outcome / "hostname").read_text().strip() == "pi-1"
    assert "127.0.1.1\tpi-1" in (outcome / "hosts").read_text().splitlines()
    assert (outcome / "timezone").read_text().strip() == "Europe/London"
    assert 'XKBLAYOUT="de"' in (outcome / "default/keyboard").read_text()
    network = yaml.safe_load((outcome / "netplan/50-cloud-init.yaml").read_text())["network"]
    assert network["ethernets"]["eth0"]["addresses"] == ["192.0.2.11/24"]
