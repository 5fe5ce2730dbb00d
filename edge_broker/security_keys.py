"""The broker's keys for listeners and log-ins.

Lives here: names, types, defaults, meanings. Must never come in: what they mean together (listeners.py), reading of
values (config.py). Source: Kafka documentation, "Broker Configs".
"""

from edge_broker.settings import INT_MAX, Key, Kind

PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL = PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")

_OF_ALL = (
    Key(
        "listeners",
        "",
        "Where clients connect, NAME://HOST:PORT with commas between them, each name and port once; port 0 picks a "
        "free one, no host is every address of this machine. --listen is the short form for one of PLAINTEXT.",
        kind=Kind.LIST,
    ),
    Key(
        "advertised.listeners",
        "",
        "The address that clients of each listener are told, NAME://HOST:PORT; unless set, where it listens.",
        kind=Kind.LIST,
    ),
    Key(
        "listener.security.protocol.map",
        ",".join(f"{protocol}:{protocol}" for protocol in PROTOCOLS),
        "The protocol of each listener, NAME:PROTOCOL: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL.",
        kind=Kind.LIST,
    ),
    Key(
        "connection.failed.authentication.delay.ms",
        100,
        "How long a failed log-in waits before its connection is closed.",
        0,
        60_000,
    ),
)
_OF_ONE = (
    Key(
        "sasl.enabled.mechanisms",
        "SCRAM-SHA-512,SCRAM-SHA-256",
        "How clients of a SASL listener may log in.",
        choices=MECHANISMS,
        kind=Kind.LIST,
    ),
    Key(
        "connections.max.reauth.ms",
        0,
        "Time after which a client that logged in must do so again (KIP-368); 0: it need not.",
        0,
        INT_MAX,
        kind=Kind.LONG,
    ),
)
SECURITY_KEYS = _OF_ALL + _OF_ONE
LISTENER_PREFIX = "listener.name."
LISTENER_KEYS = frozenset(key.name for key in _OF_ONE)
"""What one listener may be told alone: `listener.name.<its name in small letters>.<key>`."""
