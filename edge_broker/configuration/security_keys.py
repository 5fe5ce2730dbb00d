"""The broker's keys for listeners and log-ins.

Contains: names, types, defaults, meanings. Does not contain: what they mean together (listeners.py), reading of
values (config.py). Source: Kafka documentation, "Broker Configs".
"""

from edge_broker.configuration.settings import INT_MAX, Key, Kind

PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL = PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
TLS_1_2, TLS_1_3 = TLS_VERSIONS = ("TLSv1.2", "TLSv1.3")
CLIENT_AUTH = ("none", "requested", "required")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
DENY_LIST = "edge.deny.list.file"
REAUTH = "connections.max.reauth.ms"

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
        "The address that each listener's clients use, NAME://HOST:PORT; unless set, where it listens.",
        kind=Kind.LIST,
    ),
    Key(
        "listener.security.protocol.map",
        ",".join(f"{protocol}:{protocol}" for protocol in PROTOCOLS),
        "The protocol of each listener, NAME:PROTOCOL: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL.",
        kind=Kind.LIST,
    ),
    Key(
        "edge.network.trusted",
        False,
        "Whether everybody who reaches this broker over the network may do everything: without true, a listener beyond "
        "loopback needs TLS and a log-in (SSL with ssl.client.auth=required, or SASL_SSL), and --metrics there needs "
        "edge.metrics.token.file.",
    ),
    Key(
        "edge.metrics.token.file",
        "",
        "A file whose first line is a token: /metrics and /health are for who shows it, as Authorization: Bearer. "
        "Only owner and group may read it. It is read at the start.",
    ),
    Key(
        DENY_LIST,
        "",
        "A file with the certificates and users that are denied, a line each: serial=HEX as openssl x509 -noout "
        "-serial prints it, if need be with a space and issuer=NAME after it; or User:NAME. Connections of theirs end, "
        "no new one begins. Nobody but its owner may change it. It is read again when it changes.",
    ),
    Key(
        "connection.failed.authentication.delay.ms",
        100,
        "How long a failed log-in waits before its connection is closed. "
        "After 10 failures as a user from an address, also the first step of the delays there; 0: no delays.",
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
        REAUTH,
        0,
        "Time after which a client that logged in must do so again (KIP-368); 0: it need not. Of one mechanism: "
        "listener.name.<listener>.<mechanism>.connections.max.reauth.ms, both in small letters.",
        0,
        INT_MAX,
        kind=Kind.LONG,
    ),
)
_TLS = (
    Key("ssl.keystore.type", "PEM", "How key and certificate are written: PEM alone is served."),
    Key(
        "ssl.keystore.location",
        "",
        "A PEM file with the private key and the certificate chain, this broker's own first; only owner and "
        "group may read it. It is read again when it changes.",
    ),
    Key("ssl.keystore.key", "", "The private key in PEM, instead of a file.", kind=Kind.PASSWORD),
    Key(
        "ssl.keystore.certificate.chain",
        "",
        "The certificate chain in PEM, with ssl.keystore.key.",
        kind=Kind.PASSWORD,
    ),
    Key("ssl.key.password", "", "The password of an encrypted private key.", kind=Kind.PASSWORD),
    Key("ssl.truststore.type", "PEM", "How the CAs of clients are written: PEM alone is served."),
    Key(
        "ssl.truststore.location",
        "",
        "A PEM file with the CAs that client certificates must come from. It is read again when it changes.",
    ),
    Key("ssl.truststore.certificates", "", "Those CAs in PEM, instead of a file.", kind=Kind.PASSWORD),
    Key(
        "ssl.client.auth",
        "none",
        "Whether clients show a certificate: required, requested (they may), none.",
        choices=CLIENT_AUTH,
    ),
    Key("ssl.enabled.protocols", "TLSv1.2,TLSv1.3", "Versions of TLS.", choices=TLS_VERSIONS, kind=Kind.LIST),
    Key(
        "ssl.cipher.suites",
        "",
        "Suites of TLS 1.2 by their IANA names, all of those with AEAD and forward secrecy unless set; the three of "
        "TLS 1.3 are always served.",
        kind=Kind.LIST,
    ),
)
_RULES = Key(
    "ssl.principal.mapping.rules",
    "DEFAULT",
    "The principal of a client's certificate: DEFAULT, which is the subject, or RULE:pattern/replacement/[LU], with "
    "commas between them; the first that fits counts.",
)
SECURITY_KEYS = (*_OF_ALL, _RULES, *_OF_ONE, *_TLS)
LISTENER_PREFIX = "listener.name."
LISTENER_KEYS = frozenset(key.name for key in (*_OF_ONE, *_TLS, _RULES))
"""Keys of one listener alone: `listener.name.<its name in small letters>.<key>`."""
MECHANISM_KEYS = {f"{mechanism.lower()}.{REAUTH}": REAUTH for mechanism in MECHANISMS}
"""Keys of one mechanism alone, after a listener's prefix, and the key that each stands for."""
