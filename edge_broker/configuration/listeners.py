"""The listeners of a broker: bind addresses, protocols, advertised addresses.

| refused | why |
|---|---|
| --listen or --advertise together with `listeners` | one would be meant and the other served |
| a name or a port twice | Kafka's rule; one port for an IPv4 and an IPv6 address is none twice |
| a name without a protocol | `listener.security.protocol.map` says it for any other than the four protocols' own |
| an advertised name without a listener, or a listener without an advertised address | |
| a listener beyond loopback without TLS and a log-in | unless `edge.network.trusted` says that this is meant |
| 0.0.0.0 or :: as an advertised address | it is no address that they could connect to |

Does not contain: sockets, certificates, who may connect.
Source: Kafka documentation, "Broker Configs"; KIP-103; Kafka's SocketServerConfigs and KafkaConfig.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple, TypeVar

from drupelet.addresses import PORT_MAX, endpoint_text, is_loopback
from drupelet.errors import ConfigurationError
from drupelet.observe.metrics_access import open_to_anybody as metrics_open
from edge_broker.configuration.config import BrokerConfig, Endpoint, Refuse, raise_error
from edge_broker.configuration.security_keys import LISTENER_PREFIX, PLAINTEXT, PROTOCOLS, SASL_PLAINTEXT, SASL_SSL, SSL

EVERYWHERE = frozenset({"", "0.0.0.0", "::"})  # noqa: S104 - what is refused as an advertised address
METRICS_TOKEN = "edge.metrics.token.file"  # noqa: S105 - the name of the key
INTER_BROKER_PROTOCOL = "security.inter.broker.protocol"
TRUSTED = "edge.network.trusted"
EXAMPLE = "PLAINTEXT://127.0.0.1:9092"

_NAME = re.compile(r"[A-Za-z0-9_-]+")
_ENTRY = re.compile(r"([^:/]+)://(?:\[([0-9A-Fa-f:.%\w]*)\]|([0-9A-Za-z._%-]*)):([0-9]{1,5})")


class Listener(NamedTuple):
    """One listener: its addresses `bind` and `advertised` (to clients); an advertised port 0 is the bound one."""

    name: str
    protocol: str
    bind: Endpoint
    advertised: Endpoint

    @property
    def is_encrypted(self) -> bool:
        """Whether it speaks TLS."""
        return self.protocol in (SSL, SASL_SSL)

    @property
    def logs_in(self) -> bool:
        """Whether its clients log in by SASL."""
        return self.protocol in (SASL_PLAINTEXT, SASL_SSL)

    def bound(self, port: int) -> Listener:
        """The same listener, on the port that it was given."""
        advertised = self.advertised if self.advertised.port else self.advertised._replace(port=port)
        return self._replace(bind=self.bind._replace(port=port), advertised=advertised)


def plaintext(bind: Endpoint, advertised: Endpoint | None = None) -> Listener:
    """The one listener of the short form."""
    return Listener(PLAINTEXT, PLAINTEXT, bind, advertised or bind)


def read_listeners(
    config: BrokerConfig, listen: Endpoint | None, advertise: Endpoint | None, refuse: Refuse = raise_error
) -> tuple[Listener, ...]:
    """All listeners, by the options of the short form or by the keys; `refuse` receives what is wrong with each."""
    if not config.text("listeners"):
        found = _attempt(refuse, lambda: _short_form(config, listen, advertise))
        return (found,) if found is not None else ()
    if listen is not None or advertise is not None:
        option, key = ("--listen", "listeners") if listen is not None else ("--advertise", "advertised.listeners")
        refuse(ConfigurationError(f"{option} and the key listeners are both given; leave {option} out and set {key}"))
    binds = _attempt(refuse, lambda: dict(_entries("listeners", config.text("listeners")))) or {}
    told = _attempt(refuse, lambda: dict(_entries("advertised.listeners", config.text("advertised.listeners"))))
    protocols = _attempt(refuse, lambda: _protocols(config.text("listener.security.protocol.map")))
    _attempt(refuse, lambda: _check_ports(binds))
    if not binds or told is None or protocols is None:
        return ()
    for name in told:
        if name not in binds:
            refuse(ConfigurationError(f"advertised.listeners names {name}, and listeners does not; add it there"))
    _attempt(refuse, lambda: _check_prefixes(config, binds))
    told = told or binds
    listeners = (_attempt(refuse, partial(_listener, name, bind, told, protocols)) for name, bind in binds.items())
    return tuple(listener for listener in listeners if listener is not None)


_T = TypeVar("_T")


def _attempt(refuse: Refuse, work: Callable[[], _T]) -> _T | None:
    """Return what `work` returns; `None` once `refuse` has received its problem."""
    try:
        return work()
    except ConfigurationError as error:
        refuse(error)
        return None


def _short_form(config: BrokerConfig, listen: Endpoint | None, advertise: Endpoint | None) -> Listener:
    if listen is None:
        raise ConfigurationError("no listener is named; add --listen HOST:PORT, or the key listeners")
    if config.text("advertised.listeners"):
        raise ConfigurationError(
            "advertised.listeners belongs to the key listeners; beside --listen use --advertise HOST:PORT"
        )
    if advertise is None and listen.host in EVERYWHERE:
        raise ConfigurationError(
            f"--listen {endpoint_text(*listen)} is no address that clients could be told; add --advertise HOST:PORT"
        )
    _check_prefixes(config, [PLAINTEXT])
    return plaintext(listen, advertise)


def _listener(name: str, bind: Endpoint, told: Mapping[str, Endpoint], protocols: Mapping[str, str]) -> Listener:
    protocol = protocols.get(name)
    if protocol is None:
        raise ConfigurationError(
            f"listener {name} has no protocol; call it {', '.join(PROTOCOLS[:-1])} or {PROTOCOLS[-1]}, or add such as "
            f"{name}:SSL to listener.security.protocol.map"
        )
    if name not in told:
        raise ConfigurationError(f"advertised.listeners leaves out {name}; add the address for its clients")
    if told[name].host in EVERYWHERE:
        raise ConfigurationError(
            f"clients of listener {name} cannot be told {endpoint_text(*told[name])}; name it in advertised.listeners "
            "with an address that they can reach"
        )
    return Listener(name, protocol, bind, told[name])


def _entries(key: str, text: str) -> Iterable[tuple[str, Endpoint]]:
    found = [_entry(key, word) for word in filter(None, map(str.strip, text.split(",")))]
    for name, times in Counter(name for name, _ in found).items():
        if times > 1:
            raise ConfigurationError(f"{key} names {name} {times} times; each listener needs a name of its own")
    return found


def _entry(key: str, word: str) -> tuple[str, Endpoint]:
    match = _ENTRY.fullmatch(word)
    if match is None or int(match[4]) > PORT_MAX:
        raise ConfigurationError(f"{key} names {word!r}; write NAME://HOST:PORT, for example {EXAMPLE}")
    return _name(key, match[1]), Endpoint(match[2] or match[3] or "", int(match[4]))


def _name(key: str, name: str) -> str:
    """Kafka takes a listener's name in any case, and prefixes of keys in small letters."""
    if not _NAME.fullmatch(name):
        raise ConfigurationError(f"{key} names a listener {name!r}; use letters, digits, - and _")
    return name.upper()


def _check_ports(binds: Mapping[str, Endpoint]) -> None:
    by_port: dict[int, list[str]] = {}
    for name, bind in binds.items():
        if bind.port:
            by_port.setdefault(bind.port, []).append(name)
    for port, names in by_port.items():
        if len(names) > 1 and sorted(_version(binds[name].host) for name in names) != [4, 6]:
            raise ConfigurationError(f"listeners {' and '.join(names)} both have port {port}; give each one of its own")


def _version(host: str) -> int:
    """The version of an address; 0 for a name, and for every address."""
    import ipaddress  # noqa: PLC0415 - 0.25 MB, which most boards do without

    try:
        return ipaddress.ip_address(host.partition("%")[0]).version
    except ValueError:
        return 0


def _protocols(text: str) -> dict[str, str]:
    protocols: dict[str, str] = {}
    for word in filter(None, map(str.strip, text.split(","))):
        name, colon, protocol = map(str.strip, word.partition(":"))
        if not colon or protocol.upper() not in PROTOCOLS:
            raise ConfigurationError(
                f"listener.security.protocol.map says {word!r}; write NAME:PROTOCOL, one of {', '.join(PROTOCOLS)}"
            )
        protocols[_name("listener.security.protocol.map", name)] = protocol.upper()
    return protocols


def _check_prefixes(config: BrokerConfig, names: Iterable[str]) -> None:
    known = {name.lower() for name in names}
    for key in config.explicit:
        if key.startswith(LISTENER_PREFIX):
            name = key.removeprefix(LISTENER_PREFIX).partition(".")[0]
            if name not in known:
                raise ConfigurationError(f"{key} is for listener {name.upper()}, which listeners does not name")


def inter_broker_listener(config: BrokerConfig, listeners: Sequence[Listener]) -> Listener:
    """The listener for other brokers; ConfigurationError."""
    name, protocol = config.text("inter.broker.listener.name"), config.text(INTER_BROKER_PROTOCOL)
    if name and protocol:
        raise ConfigurationError(
            f"inter.broker.listener.name and {INTER_BROKER_PROTOCOL} are both set; leave one of them out"
        )
    if protocol:
        speaking = [each for each in listeners if each.protocol == protocol]
        if len(speaking) != 1:
            raise ConfigurationError(
                f"{INTER_BROKER_PROTOCOL} is {protocol}, which {len(speaking)} listeners speak; set "
                "inter.broker.listener.name"
            )
        return speaking[0]
    found = next((each for each in listeners if each.name == (name or listeners[0].name)), None)
    if found is None:
        names = ", ".join(each.name for each in listeners)
        raise ConfigurationError(f"inter.broker.listener.name is {name}; name one of the listeners, {names}")
    return found


def open_to_anybody(config: BrokerConfig, listeners: Iterable[Listener], metrics: Endpoint | None) -> list[str]:
    """Listeners without TLS and authentication, or metrics without a token, in words for a sentence."""
    found = [
        f"{one.name}://{endpoint_text(*one.bind)}"
        for one in listeners
        if not is_loopback(one.bind.host) and not _knows_clients(config, one)
    ]
    if metrics is not None and metrics_open(metrics.host, config.text(METRICS_TOKEN)):
        found.append(f"--metrics {endpoint_text(*metrics)}")
    return found


def network_problem(config: BrokerConfig, listeners: Iterable[Listener], metrics: Endpoint | None) -> str:
    """Name the listeners of a network that is not trusted; empty: none."""
    found = open_to_anybody(config, listeners, metrics)
    if not found or config.boolean(TRUSTED):
        return ""
    verb = "is" if len(found) == 1 else "are"
    return (
        f"{' and '.join(found)} {verb} open to anybody in the network; set {TRUSTED}=true if all of it is trusted, "
        "else serve TLS and log-ins there (SSL with ssl.client.auth=required, or SASL_SSL; for metrics a token in "
        f"{METRICS_TOKEN}), or listen on 127.0.0.1"
    )


def _knows_clients(config: BrokerConfig, listener: Listener) -> bool:
    required = config.of_listener(listener.name, "ssl.client.auth") == "required"
    return listener.is_encrypted and (listener.logs_in or required)


def listeners_text(listeners: Sequence[Listener], *, advertised: bool = False) -> str:
    """NAME://HOST:PORT of each, as Kafka's key has it."""
    return ",".join(f"{one.name}://{endpoint_text(*(one.advertised if advertised else one.bind))}" for one in listeners)
