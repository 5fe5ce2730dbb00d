"""Check the settings of one TLS listener: its certificate, trusted CAs, versions and suites, names of its clients.

| refused | instead |
|---|---|
| a key store that is no PEM | the openssl command that makes PEM of it |
| a suite of TLS 1.3, or one without AEAD or forward secrecy | those of TLS 1.2 that are served |
| `ssl.client.auth` without a CA | ssl.truststore.location |

Does not contain: files, sockets, OpenSSL. Source: Kafka documentation, "Broker Configs";
KIP-651 (PEM); RFC 5289, RFC 7905 (suites).
"""

from __future__ import annotations

from typing import NamedTuple

from drupelet.errors import ConfigurationError
from edge_broker.configuration.config import BrokerConfig
from edge_broker.security.principals import Rule, parse_rules

SUITES = {
    f"TLS_ECDHE_{key}_WITH_{cipher}": f"ECDHE-{key}-{name}"
    for key in ("ECDSA", "RSA")
    for cipher, name in (
        ("AES_256_GCM_SHA384", "AES256-GCM-SHA384"),
        ("CHACHA20_POLY1305_SHA256", "CHACHA20-POLY1305"),
        ("AES_128_GCM_SHA256", "AES128-GCM-SHA256"),
    )
}
"""Suites of TLS 1.2: IANA's name and OpenSSL's."""
OF_TLS_1_3 = frozenset({"TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"})
CONVERSIONS = {
    "PKCS12": "openssl pkcs12 -in {file} -nodes -out {file}.pem",
    "JKS": "keytool -importkeystore -srckeystore {file} -destkeystore {file}.p12 -deststoretype PKCS12 && "
    "openssl pkcs12 -in {file}.p12 -nodes -out {file}.pem",
}


class TlsSettings(NamedTuple):
    """Of one listener: files are paths, texts are PEM; one of each pair is empty."""

    listener: str
    keystore: str
    key: str
    chain: str
    password: str
    truststore: str
    certificates: str
    client_auth: str
    versions: tuple[str, ...]
    ciphers: str
    rules: list[Rule]

    def __repr__(self) -> str:
        """Whose they are: a trace in the log must show no key."""
        return f"TlsSettings({self.listener})"


def read_tls_settings(config: BrokerConfig, listener: str, *, logs_in: bool = False) -> TlsSettings:
    """The settings of a listener, by its own keys and those of all; ConfigurationError names what is wrong.

    Where clients log in by SASL, `ssl.client.auth` counts with the listener's prefix alone, as in Kafka (KIP-684).
    """
    own_auth = config.own_of_listener(listener, "ssl.client.auth")

    def text(name: str) -> str:
        return config.of_listener(listener, name)

    for store in ("keystore", "truststore"):
        _check_type(store, text(f"ssl.{store}.type"), text(f"ssl.{store}.location"))
    settings = TlsSettings(
        listener,
        text("ssl.keystore.location"),
        text("ssl.keystore.key"),
        text("ssl.keystore.certificate.chain"),
        text("ssl.key.password"),
        text("ssl.truststore.location"),
        text("ssl.truststore.certificates"),
        own_auth or ("none" if logs_in else text("ssl.client.auth")),
        tuple(filter(None, map(str.strip, text("ssl.enabled.protocols").split(",")))),
        _ciphers(text("ssl.cipher.suites")),
        _rules(text("ssl.principal.mapping.rules")),
    )
    _check(settings)
    return settings


def _check(settings: TlsSettings) -> None:
    listener = settings.listener
    if bool(settings.key) != bool(settings.chain):
        raise ConfigurationError("ssl.keystore.key and ssl.keystore.certificate.chain belong together; set both")
    if settings.keystore and settings.key:
        raise ConfigurationError("ssl.keystore.location and ssl.keystore.key are both given; set one of them")
    if not settings.keystore and not settings.key:
        raise ConfigurationError(
            f"listener {listener} has no certificate; set ssl.keystore.location to a PEM file with key and chain"
        )
    if settings.truststore and settings.certificates:
        raise ConfigurationError("ssl.truststore.location and ssl.truststore.certificates are both given; set one")
    if settings.client_auth != "none" and not settings.truststore and not settings.certificates:
        raise ConfigurationError(
            f"ssl.client.auth of listener {listener} is {settings.client_auth}, and no CA is named that clients' "
            "certificates come from; set ssl.truststore.location to a PEM file with it"
        )


def _check_type(store: str, type_name: str, file: str) -> None:
    name = type_name.upper()
    if name == "PEM":
        return
    command = CONVERSIONS.get(name, CONVERSIONS["PKCS12"]).format(file=file or f"{store}.{name.lower()}")
    raise ConfigurationError(f"ssl.{store}.type is {type_name}, and PEM alone is served; make it by: {command}")


def _ciphers(text: str) -> str:
    """OpenSSL's names of the suites of TLS 1.2, all that are served unless some are named."""
    names = list(filter(None, map(str.strip, text.split(",")))) or list(SUITES)
    for name in names:
        if name in OF_TLS_1_3:
            raise ConfigurationError(
                f"ssl.cipher.suites names {name} of TLS 1.3, whose three suites are always served; name those of "
                "TLS 1.2 alone"
            )
        if name not in SUITES:
            raise ConfigurationError(f"ssl.cipher.suites names {name!r}, which is not served; {', '.join(SUITES)} are")
    return ":".join(SUITES[name] for name in names)


def _rules(text: str) -> list[Rule]:
    try:
        return parse_rules(text)
    except ValueError as error:
        raise ConfigurationError(f"ssl.principal.mapping.rules: {error}") from None
