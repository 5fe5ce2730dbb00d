"""What a board is told at its first boot, checked once, here: every value is one that all kinds of image can take.

PURE: no file, clock or chance. Never here: how an image is told (`first_boot`).
Raises ConfigurationError, one sentence with the remedy, for a value that would leave a board unreachable.
"""

import base64
import binascii
import ipaddress
import re
from dataclasses import dataclass, field
from typing import TypeAlias

from drupelet.errors import ConfigurationError

Interface: TypeAlias = ipaddress.IPv4Interface | ipaddress.IPv6Interface
Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address

HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?")  # one label of RFC 1123
USER = re.compile(r"[a-z][a-z0-9-]{0,31}")  # what userconf-pi takes, the strictest of them
TIMEZONE = re.compile(r"[A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+){0,2}")
COUNTRY = re.compile(r"[A-Z]{2}")
INTERFACE_NAME = re.compile(r"[a-z][a-z0-9]{1,14}")
KEY_TYPE = re.compile(r"(sk-)?(ssh-ed25519|ssh-rsa|ecdsa-sha2-nistp(256|384|521))(@openssh\.com)?")
PSK = re.compile(r"[0-9a-fA-F]{64}")
SSID_BYTES_MAX = 32


@dataclass(frozen=True)
class Wifi:
    """A wireless network; `password` is a passphrase or 64 hex digits, None for an open network."""

    ssid: str
    password: str | None = field(repr=False)
    hidden: bool = False

    def __post_init__(self) -> None:
        size = len(self.ssid.encode("utf-8", "surrogateescape"))
        require(0 < size <= SSID_BYTES_MAX, f"the SSID has {size} bytes, it may have 1 to {SSID_BYTES_MAX}")
        require(
            self.ssid.isprintable(), "the SSID holds a control character or is not UTF-8: first boot cannot take it"
        )
        if self.password is not None and not PSK.fullmatch(self.password):
            plain = self.password.isascii() and self.password.isprintable()
            require(plain and 8 <= len(self.password) <= 63, "a Wi-Fi password has 8 to 63 printable ASCII characters")


@dataclass(frozen=True)
class Static:
    """A fixed address in place of DHCP."""

    address: Interface
    gateway: Address | None = None
    dns: tuple[Address, ...] = ()
    interface: str = "eth0"

    def __post_init__(self) -> None:
        name = bool(INTERFACE_NAME.fullmatch(self.interface))
        require(name, f"{self.interface!r} is not an interface's name: give eth0 or wlan0")
        network = self.address.network
        require(network.num_addresses > 1, f"{self.address} has no network: give the prefix too, as 192.0.2.10/24")
        if self.gateway is not None:
            inside = self.gateway in network or self.gateway.is_link_local
            require(inside, f"the gateway {self.gateway} is not in the network {network} of the static address")


@dataclass(frozen=True)
class Settings:
    """Everything a card is told; `instance_id` and `throwaway_password` must be fresh for each card."""

    host: str
    user: str
    ssh_keys: tuple[str, ...]
    instance_id: str
    throwaway_password: str = field(repr=False)
    wifi: Wifi | None = None
    country: str | None = None
    static: Static | None = None
    timezone: str | None = None
    cgroup_memory: bool = True
    watchdog: bool = True

    def __post_init__(self) -> None:
        require(
            HOST.fullmatch(self.host), f"{self.host!r} is not a host name: letters, digits and inner hyphens, 1 to 63"
        )
        valid_user = USER.fullmatch(self.user)
        require(
            valid_user,
            f"{self.user!r} is not a user name: a small letter, then small letters, digits, hyphens, 1 to 32",
        )
        require(self.ssh_keys, "there is no SSH key: without one nobody could log in, as no password is set")
        for key in self.ssh_keys:
            check_key(key)
        if self.timezone is not None:
            known = TIMEZONE.fullmatch(self.timezone)
            require(known, f"{self.timezone!r} is not a time zone: give a name such as Europe/London")
        if self.country is not None:
            known = COUNTRY.fullmatch(self.country)
            require(known, f"{self.country!r} is not a country: give the two capital letters of ISO 3166, such as GB")
        require(self.wifi is None or self.country, "Wi-Fi needs --wifi-country: the radio stays off without one")


def require(condition: object, sentence: str) -> None:
    """Raise ConfigurationError with the sentence unless the condition holds."""
    if not condition:
        raise ConfigurationError(f"{sentence}.")


def check_key(key: str) -> None:
    """Raise ConfigurationError unless the line is one public key as OpenSSH writes it, without options before it."""
    require("PRIVATE KEY" not in key, "this is a private key: give the file that ends in .pub")
    words = key.split(None, 2)
    shape = len(words) >= 2 and KEY_TYPE.fullmatch(words[0]) and key.isprintable()
    require(shape, "an SSH key does not begin with its type, such as ssh-ed25519: give the file that ends in .pub")
    try:
        content = base64.b64decode(words[1], validate=True)
    except binascii.Error:
        content = b""
    name = words[0].encode()
    require(content[: 4 + len(name)] == len(name).to_bytes(4, "big") + name, f"the {words[0]} key is cut or damaged")


def read_keys(text: str) -> tuple[str, ...]:
    """Take the keys of an authorized_keys or .pub file: one a line, without comments and empty lines."""
    require("PRIVATE KEY" not in text, "this is a private key: give the file that ends in .pub")
    lines = (line.strip() for line in text.splitlines())
    return tuple(line for line in lines if line and not line.startswith("#"))
