"""Check the security keys of a Kafka client, the same in all configurations.

| key | meaning | Kafka's name |
|---|---|---|
| security_protocol | PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL | security.protocol |
| ssl_ca_file | PEM file of the trusted CAs; none: the system's | ssl.truststore.location |
| ssl_cert_file, ssl_key_file | PEM files of the client's certificate and its key | ssl.keystore.location |
| sasl_mechanism | PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512, the default | sasl.mechanism |
| sasl_username | the user | sasl.jaas.config |
| sasl_password_file | a file with the password, that no other user may read | sasl.jaas.config |

Does not contain: clients, connections, ssl at import.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from drupelet.errors import ConfigurationError, sentence
from drupelet.tls.file_reads import AT_ONCE_S
from drupelet.tls.secret_files import Secret, changeable, check_private, first_line

if TYPE_CHECKING:
    from os import PathLike

SECURITY_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS = ("SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN")  # the first is the default
TLS_KEYS = ("ssl_ca_file", "ssl_cert_file", "ssl_key_file")
SASL_KEYS = ("sasl_mechanism", "sasl_username", "sasl_password_file")
SECURITY_KEYS = ("security_protocol", *TLS_KEYS, *SASL_KEYS)


class Security(NamedTuple):
    """A client's credentials, and its requirements of a cluster. `password_name` names the place of the password."""

    protocol: str = "PLAINTEXT"
    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None
    mechanism: str = MECHANISMS[0]
    username: str = ""
    password: Secret | None = None
    password_name: str = ""

    @property
    def has_tls(self) -> bool:
        """Whether the connection is encrypted."""
        return self.protocol in ("SSL", "SASL_SSL")

    @property
    def has_login(self) -> bool:
        """Whether a user logs in."""
        return self.protocol in ("SASL_PLAINTEXT", "SASL_SSL")

    @property
    def shows_who(self) -> bool:
        """Whether the client authenticates, by SASL or a certificate."""
        return self.has_login or self.cert_file is not None

    @property
    def shows_password(self) -> bool:
        """Whether the password crosses the network in clear text."""
        return self.protocol == "SASL_PLAINTEXT" and self.mechanism == "PLAIN"

    def ca_note(self, named: str) -> str:
        """Say that others may change the CAs that are believed (`changeable`), empty: they may not, or there are none.

        `named` is the key of `ca_file`.
        """
        return "" if self.ca_file is None else changeable(self.ca_file, named)

    def context(self) -> Any:
        """Return the ssl.SSLContext, None without TLS; ConfigurationError if a file cannot be used."""
        if not self.has_tls:
            return None
        from drupelet.tls.contexts import client_context  # noqa: PLC0415 - ssl takes 2 MB, for those who use it

        try:
            return client_context(self.ca_file, self.cert_file, self.key_file)
        except (OSError, ValueError) as error:  # SSLError is an OSError
            raise ConfigurationError(self._unusable(getattr(error, "reason", None) or sentence(error))) from error

    def _unusable(self, why: str) -> str:
        if why == "NO_CERTIFICATE_OR_CRL_FOUND":
            return f"{self.ca_file} cannot be used: there is no certificate in PEM in it; name the file with the CA's."
        if why == "KEY_VALUES_MISMATCH":
            return f"{self.key_file or self.cert_file} cannot be used: its key is not that of {self.cert_file}."
        files = " or ".join(file for file in (self.ca_file, self.cert_file, self.key_file) if file)
        return (
            f"{files} cannot be used ({why}): PEM files are wanted, a key that belongs to its certificate and has"
            " no passphrase, and the right to read them."
        )


def security_from(values: Mapping[str, Any], folder: str | PathLike[str], named: Callable[[str], str]) -> Security:
    """Take the keys of SECURITY_KEYS that are in `values`; paths are relative to `folder`.

    `named` says where a key stands, for the ConfigurationError about a value or file that cannot be used.
    """
    for key in SECURITY_KEYS:
        if key in values and not (isinstance(values[key], str) and values[key]):
            raise ConfigurationError(f"{named(key)} is {values[key]!r}: write a string, or leave the key out.")
    protocol = _choice(values, "security_protocol", SECURITY_PROTOCOLS, named)
    mechanism = _choice(values, "sasl_mechanism", MECHANISMS, named)
    _check_used(values, protocol, named)
    base = os.path.abspath(folder)
    paths = {key: os.path.join(base, os.path.expanduser(values[key])) for key in _FILES if key in values}
    for key, path in paths.items():
        if not os.path.isfile(path):
            raise ConfigurationError(f"{named(key)} is {path}, which is not there: put the file there, or mend it.")
        if key in _SECRET_FILES:
            check_private(path, named(key))
    password = paths.get("sasl_password_file")
    name = named("sasl_password_file")
    return Security(
        protocol,
        paths.get("ssl_ca_file"),
        paths.get("ssl_cert_file"),
        paths.get("ssl_key_file"),
        mechanism,
        values.get("sasl_username", ""),
        None if password is None else Secret(lambda: first_line(password, name, AT_ONCE_S)),
        "" if password is None else password,
    )


_FILES = (*TLS_KEYS, "sasl_password_file")
_SECRET_FILES = ("ssl_key_file", "sasl_password_file")
_TOGETHER = (
    ("ssl_cert_file", "ssl_key_file"),
    ("ssl_key_file", "ssl_cert_file"),
)


def _choice(values: Mapping[str, Any], key: str, choices: tuple[str, ...], named: Callable[[str], str]) -> str:
    value: str = values.get(key, choices[0])
    if value not in choices:
        raise ConfigurationError(f'{named(key)} is "{value}": use one of {", ".join(choices)}.')
    return value


def _check_used(values: Mapping[str, Any], protocol: str, named: Callable[[str], str]) -> None:
    """Refuse a key without effect: the operator may believe that the connection is secured."""
    for keys, with_it in ((TLS_KEYS, "SSL or SASL_SSL"), (SASL_KEYS, "SASL_SSL or SASL_PLAINTEXT")):
        unused = next((key for key in keys if key in values), None)
        if unused and protocol not in with_it.split(" or "):
            switch = _short("security_protocol", named)
            raise ConfigurationError(f"{named(unused)} is set, and {switch} is {protocol}: use {with_it} there.")
    needed = list(_TOGETHER)
    if protocol.startswith("SASL"):
        needed += [("security_protocol", "sasl_username"), ("security_protocol", "sasl_password_file")]
    for one, other in needed:
        if one in values and other not in values:
            raise ConfigurationError(f"{named(other)} is missing: {_short(one, named)} needs it.")


def _short(key: str, named: Callable[[str], str]) -> str:
    """Return the place of a key, for a sentence that has named the file."""
    return named(key).rpartition(": ")[2]
