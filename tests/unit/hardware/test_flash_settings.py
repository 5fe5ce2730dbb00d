"""What a card may be told: every value that would leave a board unreachable is refused with the remedy.

Invariants: an address that is no board's own, a gateway that cannot be reached, a country without radio rules and a
fixed address without a network to join are refused, one sentence each; what every network allows is taken.
"""

from __future__ import annotations

import dataclasses
import ipaddress
from pathlib import Path

import pytest

from drupelet.errors import ConfigurationError
from hardware.flash.first_boot.countries import CODES, SYSTEM_TABLE, country_names, known_country
from hardware.flash.first_boot.settings import Static
from tests.support.first_boot import SETTINGS


def static(address: str, gateway: str | None = None, *dns: str, interface: str = "eth0") -> Static:
    return Static(
        ipaddress.ip_interface(address),
        ipaddress.ip_address(gateway) if gateway else None,
        tuple(ipaddress.ip_address(each) for each in dns),
        interface,
    )


REFUSED = {
    ("192.0.2.0/24", None): "192.0.2.0 is the net's own address of 192.0.2.0/24: give another",
    ("192.0.2.255/24", None): "192.0.2.255 is the broadcast address of 192.0.2.0/24",
    ("192.0.2.63/26", None): "is the broadcast address of 192.0.2.0/26",
    ("192.0.2.7/24", "192.0.2.7"): "the gateway 192.0.2.7 is the board's own address: give the router's",
    ("192.0.2.7/24", "192.0.3.1"): "the gateway 192.0.3.1 is not in the network 192.0.2.0/24",
    ("192.0.2.7/24", "192.0.2.255"): "the gateway 192.0.2.255 is the broadcast address",
    ("192.0.2.7/24", "192.0.2.0"): "the gateway 192.0.2.0 is the net's own address",
    ("192.0.2.7/24", "2001:db8::1"): "is not in the network",
    ("192.0.2.7/24", "fe80::1"): "is not in the network",
    ("192.0.2.7/32", None): "has no network: give the prefix of its net too",
    ("2001:db8::7/128", None): "has no network",
    ("2001:db8::/64", None): "is the address of all routers of 2001:db8::/64",
    ("127.0.0.7/24", None): "127.0.0.7 cannot be a board's own address",
    ("224.0.0.7/24", None): "cannot be a board's own address",
    ("240.0.0.7/24", None): "cannot be a board's own address",
    ("0.0.0.0/24", None): "cannot be a board's own address",
    ("ff02::7/64", None): "cannot be a board's own address",
    ("::1/64", None): "cannot be a board's own address",
}


@pytest.mark.parametrize("given", REFUSED, ids=[f"{address} {gateway}" for address, gateway in REFUSED])
def test_an_address_that_reaches_nobody_is_refused(given: tuple[str, str | None]) -> None:
    with pytest.raises(ConfigurationError) as refused:
        static(*given)
    assert REFUSED[given] in str(refused.value)


@pytest.mark.parametrize(
    ("address", "gateway"),
    [
        ("192.0.2.7/24", "192.0.2.1"),
        ("192.0.2.0/31", "192.0.2.1"),  # RFC 3021: both are boards'
        ("192.0.2.1/31", "192.0.2.0"),
        ("10.0.0.255/23", "10.0.1.0"),  # in the middle of a larger net
        ("2001:db8::7/64", "2001:db8::1"),
        ("2001:db8::7/64", "fe80::1"),
        ("2001:db8::/127", "2001:db8::1"),  # RFC 6164
        ("2001:db8::ffff:ffff:ffff:ffff/64", None),  # IPv6 has no broadcast
    ],
)
def test_an_address_of_any_network_is_taken(address: str, gateway: str | None) -> None:
    assert str(static(address, gateway).address) == str(ipaddress.ip_interface(address))


def test_who_answers_for_names() -> None:
    assert [str(each) for each in static("192.0.2.7/24", "192.0.2.1").name_servers] == ["192.0.2.1"]
    assert [str(each) for each in static("192.0.2.7/24", "192.0.2.1", "192.0.2.9").name_servers] == ["192.0.2.9"]
    assert static("192.0.2.7/24").name_servers == ()
    assert static("2001:db8::7/64", "fe80::1").name_servers == ()  # it would need the interface's name with it
    with pytest.raises(ConfigurationError, match="cannot be the address of a name server"):
        static("192.0.2.7/24", None, "0.0.0.0")


@pytest.mark.parametrize("name", ["wlan1", "wlp2s0", "ETH0", "eth0:1", ""])
def test_an_interface_that_first_boot_cannot_know_is_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match="is not an interface that first boot knows: give eth0"):
        static("192.0.2.7/24", interface=name)


def test_a_fixed_address_on_the_radio_needs_a_network_to_join() -> None:
    wireless = static("192.0.2.7/24", interface="wlan0")
    assert dataclasses.replace(SETTINGS, static=wireless).static == wireless
    with pytest.raises(ConfigurationError, match="a fixed address on wlan0 needs --wifi"):
        dataclasses.replace(SETTINGS, static=wireless, wifi=None)


COUNTRIES = {
    "UK": "did you mean GB",
    "gb": "did you mean GB",
    "USA": "did you mean US",
    "ZZ": "give two capital letters",
    "": "give two capital letters",
}


@pytest.mark.parametrize("table", [SYSTEM_TABLE, Path("/nowhere")])
@pytest.mark.parametrize("text", COUNTRIES)
def test_a_country_without_radio_rules_is_refused_with_the_nearest(text: str, table: Path) -> None:
    with pytest.raises(ConfigurationError, match=COUNTRIES[text]):
        known_country(text, table)


def test_a_country_is_found_by_its_name() -> None:
    for text in ("Germany", "germany", "Grmany"):
        with pytest.raises(ConfigurationError, match="did you mean DE, Germany"):
            known_country(text)
    assert known_country("DE") == "DE"
    assert known_country(None) is None


def test_the_packaged_countries_are_those_of_the_system() -> None:
    assert set(country_names(SYSTEM_TABLE)) == set(CODES.split())


def test_an_interface_that_is_not_known_is_refused_with_the_nearest() -> None:
    assert dataclasses.replace(SETTINGS, interfaces=("i2c", "onewire")).interfaces == ("i2c", "onewire")
    for name, hint in {
        "onewrie": "did you mean onewire",
        "1-wire": "did you mean onewire",
        "xyz": "there are i2c",
    }.items():
        with pytest.raises(ConfigurationError, match=f"--enable '{name}' is not known: {hint}"):
            dataclasses.replace(SETTINGS, interfaces=(name,))


@pytest.mark.parametrize("layout", ["GB", "g", "gb us", "de_nodeadkeys"])
def test_a_keyboard_that_is_none_is_refused(layout: str) -> None:
    assert dataclasses.replace(SETTINGS, keyboard="gb").keyboard == "gb"
    with pytest.raises(ConfigurationError, match="is not a keyboard layout"):
        dataclasses.replace(SETTINGS, keyboard=layout)


OF_DEBIAN = Path("/usr/share/base-passwd")


@pytest.mark.parametrize(
    "name",
    [
        *("operator", "daemon", "staff", "backup", "nobody", "mail", "games", "users", "sudo", "www-data"),
        *("gpio", "i2c", "netdev", "render", "messagebus", "polkitd", "lightdm", "rpi-first-boot-wizard"),
    ],
)
def test_a_user_name_that_an_image_has_already_is_refused_with_the_reason(name: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"--user {name} is .+ choose another name"):
        dataclasses.replace(SETTINGS, user=name)


def test_every_user_and_group_of_base_passwd_is_refused() -> None:
    """The lists of Debian 12 and 13, and those of this machine where it is a Debian."""
    names = {"operator", "staff", "nogroup", "irc", "list", "proxy", "voice", "floppy", "tape", "src", "sasl"}
    for file in ("passwd.master", "group.master"):
        if (OF_DEBIAN / file).exists():
            names |= {line.split(":")[0] for line in (OF_DEBIAN / file).read_text().splitlines()}
    for name in names - {"root"}:
        with pytest.raises(ConfigurationError):
            dataclasses.replace(SETTINGS, user=name)


def test_every_user_that_a_role_makes_is_refused() -> None:
    """A role would take the log-in shell and the home from the person who logs in, and lock everybody out."""
    made = {
        line.split("name:")[1].strip()
        for file in (Path(__file__).parents[3] / "ansible/roles").rglob("*.yml")
        for task in file.read_text().split("ansible.builtin.user:")[1:]
        for line in task.splitlines()[1:2]
    }
    assert {"edge-broker", "kafka"} <= made
    for name in made:
        with pytest.raises(ConfigurationError, match="the playbooks make"):
            dataclasses.replace(SETTINGS, user=name)


@pytest.mark.parametrize("name", ["pi", "site", "admin", "ann", "operators", "a" * 32, "u-1"])
def test_a_user_name_that_is_free_is_taken(name: str) -> None:
    assert dataclasses.replace(SETTINGS, user=name).user == name


@pytest.mark.parametrize(
    "name", ["", "Pi", "1pi", "-pi", "pi$", "p.i", "a" * 33, "pi\n", "pi:x", "www_data", "bj\xf6rn"]
)
def test_a_user_name_of_another_form_is_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match="is not a user name"):
        dataclasses.replace(SETTINGS, user=name)
