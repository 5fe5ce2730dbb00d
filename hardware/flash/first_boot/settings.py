"""PURE: check the settings of a first boot once: all kinds of image accept every checked value.

Does not contain: files, clocks, random values, the forms of the settings in an image (`first_boot`).
Raises ConfigurationError, one sentence with the remedy, for a value that would leave a board unreachable.
"""

import base64
import binascii
import hashlib
import ipaddress
import re
from dataclasses import dataclass, field
from typing import TypeAlias

from drupelet.command.config_check import nearest
from drupelet.errors import ConfigurationError
from hardware.flash.first_boot.user_names import TAKEN

Interface: TypeAlias = ipaddress.IPv4Interface | ipaddress.IPv6Interface
Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network

HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?")  # one label of RFC 1123
USER = re.compile(r"[a-z][a-z0-9-]{0,31}")  # what userconf-pi takes, the strictest of them
TIMEZONE = re.compile(r"[A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+){0,2}")
COUNTRY = re.compile(r"[A-Z]{2}")
INTERFACE_NAME = re.compile(r"[a-z][a-z0-9]{1,14}")
KEY_TYPE = re.compile(r"(sk-)?(ssh-ed25519|ssh-rsa|ecdsa-sha2-nistp(256|384|521))(@openssh\.com)?")
PSK = re.compile(r"[0-9a-fA-F]{64}")
SSID_BYTES_MAX = 32
INTERFACES = ("i2c", "spi", "onewire", "serial", "usb-gadget")
KEYBOARD = re.compile(r"[a-z]{2,12}(-[a-z]{2,12})?")  # an XKB layout
WIRELESS = "wlan0"  # its name in every image


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
    """A fixed address instead of DHCP or router advertisements; the other family of addresses stays automatic."""

    address: Interface
    gateway: Address | None = None
    dns: tuple[Address, ...] = ()
    interface: str = "eth0"

    def __post_init__(self) -> None:
        name = INTERFACE_NAME.fullmatch(self.interface) and (self.wireless or not self.interface.startswith("wl"))
        require(
            name,
            f"{self.interface!r} is not an interface that first boot knows: give eth0, another wired one, or wlan0",
        )
        check_address(self.address)
        if self.gateway is not None:
            check_gateway(self.gateway, self.address)
        for server in self.dns:
            require(not unusable(server), f"{server} cannot be the address of a name server: give another --dns")

    @property
    def wireless(self) -> bool:
        """Whether the address is that of the wireless interface."""
        return self.interface == WIRELESS

    @property
    def name_servers(self) -> tuple[Address, ...]:
        """The board's name servers: the given ones, else its gateway, as a site's router mostly answers."""
        return self.dns or ((self.gateway,) if self.gateway and not self.gateway.is_link_local else ())


def check_address(interface: Interface) -> None:
    """Raise ConfigurationError unless a board can have this address.

    Of two addresses (/31, RFC 3021; /127, RFC 6164) both are a board's; a net of one (/32, /128) reaches no other host.
    """
    address, network = interface.ip, interface.network
    require(network.num_addresses > 1, f"{interface} has no network: give the prefix of its net too, as 192.0.2.10/24")
    require(not unusable(address), f"{address} cannot be a board's own address: give one of its network's")
    require(
        not reserved_meaning(address, network),
        f"{address} is the {reserved_meaning(address, network)} of {network}: give another",
    )


def check_gateway(gateway: Address, interface: Interface) -> None:
    """Raise ConfigurationError unless the gateway is another address of the same network; IPv6's may be link-local."""
    network = interface.network
    require(gateway != interface.ip, f"the gateway {gateway} is the board's own address: give the router's")
    link_local = gateway.version == 6 == interface.version and gateway.is_link_local
    require(
        gateway in network or link_local,
        f"the gateway {gateway} is not in the network {network} of the static address: check both, and the prefix",
    )
    require(
        not reserved_meaning(gateway, network),
        f"the gateway {gateway} is the {reserved_meaning(gateway, network)} of {network}",
    )


def unusable(address: Address) -> bool:
    """Return whether no board and no server can have the address."""
    odd = address.is_multicast or address.is_loopback or address.is_unspecified
    return odd or (address.version == 4 and address.is_reserved)


def reserved_meaning(address: Address, network: Network) -> str | None:
    """Return the reserved meaning of an address of the network; None if a board may have it."""
    if network.num_addresses <= 2 or address not in network:
        return None
    if address == network.network_address:
        return "net's own address" if address.version == 4 else "address of all routers"  # RFC 4291, 2.6.1
    return "broadcast address" if address.version == 4 and address == network.broadcast_address else None


@dataclass(frozen=True)
class HostKey:
    """The key pair by which sshd proves which host it is: OpenSSH's private file; type and key of the public one."""

    private: bytes = field(repr=False)
    public: str

    @property
    def kind(self) -> str:
        """Its type in ssh-keygen's output: `ED25519`, `RSA`, `ECDSA`."""
        return self.public.split()[0].removeprefix("ssh-").split("-")[0].upper()

    @property
    def fingerprint(self) -> str:
        """The fingerprint that ssh shows."""
        digest = hashlib.sha256(base64.b64decode(self.public.split()[1])).digest()
        return f"SHA256:{base64.b64encode(digest).decode().rstrip('=')}"


@dataclass(frozen=True)
class Settings:
    """All settings of a card; `instance_id`, `throwaway_password` and `host_key` must be unique to each card."""

    host: str
    user: str
    ssh_keys: tuple[str, ...]
    instance_id: str
    throwaway_password: str = field(repr=False)
    wifi: Wifi | None = None
    country: str | None = None
    static: Static | None = None
    timezone: str | None = None
    keyboard: str | None = None
    interfaces: tuple[str, ...] = ()
    cgroup_memory: bool = True
    watchdog: bool = True
    host_key: HostKey | None = None

    def __post_init__(self) -> None:
        require(
            HOST.fullmatch(self.host), f"{self.host!r} is not a host name: letters, digits and inner hyphens, 1 to 63"
        )
        valid_user = USER.fullmatch(self.user)
        require(
            valid_user,
            f"{self.user!r} is not a user name: a small letter, then small letters, digits, hyphens, 1 to 32",
        )
        require(
            self.user not in TAKEN,
            f"--user {self.user} is {TAKEN.get(self.user)}, so the board could not make it: choose another name",
        )
        require(self.ssh_keys, "there is no SSH key: without one no user could log in, as no password is set")
        for key in self.ssh_keys:
            check_key(key)
        if self.timezone is not None:
            known = TIMEZONE.fullmatch(self.timezone)
            require(known, f"{self.timezone!r} is not a time zone: give a name such as Europe/London")
        if self.country is not None:
            known = COUNTRY.fullmatch(self.country)
            require(known, f"{self.country!r} is not a country: give the two capital letters of ISO 3166, such as GB")
        if self.keyboard is not None:
            known = KEYBOARD.fullmatch(self.keyboard)
            require(known, f"{self.keyboard!r} is not a keyboard layout: give XKB's name for it, such as gb or us")
        for name in self.interfaces:
            near = nearest(name, INTERFACES)
            hint = f"did you mean {near}" if near else f"there are {', '.join(INTERFACES)}"
            require(name in INTERFACES, f"--enable {name!r} is not known: {hint}")
        wireless = self.static is not None and self.static.wireless
        require(
            self.wifi or not wireless, f"a fixed address on {WIRELESS} needs --wifi: it would have no network to join"
        )
        require(self.wifi is None or self.country, "Wi-Fi needs --wifi-country: the radio stays off without one")


def wifi_key(wifi: Wifi) -> str | None:
    """Derive the 64 hex digits that join the network (IEEE 802.11i), so that the passphrase itself is on no card."""
    if wifi.password is None or PSK.fullmatch(wifi.password):
        return wifi.password
    return hashlib.pbkdf2_hmac("sha1", wifi.password.encode(), wifi.ssid.encode(), 4096, 32).hex()


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


def read_keys(text: str, name: str) -> tuple[str, ...]:
    """Take the keys of an authorized_keys or .pub file: one a line, without comments and empty lines."""
    require("PRIVATE KEY" not in text, f"{name} is a private key: give the file that ends in .pub")
    lines = (line.strip() for line in text.splitlines())
    return tuple(line for line in lines if line and not line.startswith("#"))
