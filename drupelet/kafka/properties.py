"""Read a client's security from a Java properties file, as Kafka's own tools do with `--command-config`.

| key | taken |
|---|---|
| security.protocol | PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL |
| ssl.truststore.location | a PEM file; a relative path is relative to the current folder, as for Kafka's tools |
| ssl.keystore.location | a PEM file with the key, without a passphrase, and its certificate |
| ssl.truststore.type, ssl.keystore.type | PEM |
| ssl.endpoint.identification.algorithm | https: names are always checked |
| sasl.mechanism | PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 |
| sasl.jaas.config | PlainLoginModule or ScramLoginModule with username and password |

Every other key of ssl, sasl and security is refused, as ignoring it would weaken the configured security. All further
keys belong to other tools. The file is UTF-8. Does not contain: connections.
Source: java.util.Properties.load, JaasConfig.java of kafka-clients.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from drupelet.command.config_check import nearest, read_text
from drupelet.errors import ConfigurationError
from drupelet.kafka.security import Security, security_from
from drupelet.tls.secret_files import Secret, check_private

if TYPE_CHECKING:
    from pathlib import Path

KEYS = (
    "security.protocol",
    "ssl.truststore.location",
    "ssl.truststore.type",
    "ssl.keystore.location",
    "ssl.keystore.type",
    "ssl.endpoint.identification.algorithm",
    "sasl.mechanism",
    "sasl.jaas.config",
)
_OURS = {
    "security_protocol": "security.protocol",
    "ssl_ca_file": "ssl.truststore.location",
    "ssl_cert_file": "ssl.keystore.location",
    "ssl_key_file": "ssl.keystore.location",
    "sasl_mechanism": "sasl.mechanism",
    "sasl_username": "sasl.jaas.config",
    "sasl_password_file": "sasl.jaas.config",
}
_MODULES = {"plain.PlainLoginModule": ("PLAIN",), "scram.ScramLoginModule": ("SCRAM-SHA-256", "SCRAM-SHA-512")}
_JAAS = re.compile(r"\s*org\.apache\.kafka\.common\.security\.(\w+\.\w+)\s+required\b(.*);\s*", re.DOTALL)
_JAAS_OPTION = re.compile(r'(\w+)\s*=\s*(?:"((?:[^"\\\n]|\\.)*)"|\'((?:[^\'\\\n]|\\.)*)\'|([\w.$-]+))')
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def security_of(path: Path) -> Security:
    """Return the security that a properties file describes. ConfigurationError."""
    values = properties(read_text(path), str(path))
    for key in values:
        if key.startswith(("ssl.", "sasl.", "security.")) and key not in KEYS:
            near = nearest(key, KEYS)
            remedy = f"did you mean {near}?" if near else f"known are {', '.join(KEYS)}."
            raise ConfigurationError(f"{path}: {key} is not taken here: {remedy}")
    for key, only in (("ssl.truststore.type", "PEM"), ("ssl.keystore.type", "PEM")):
        if values.get(key, only).upper() != only:
            raise ConfigurationError(f"{path}: {key} is {values[key]}: PEM files alone are read here.")
    if values.get("ssl.endpoint.identification.algorithm", "https").lower() != "https":
        raise ConfigurationError(
            f"{path}: ssl.endpoint.identification.algorithm is not https: names are always checked here."
        )
    return _security(path, values)


def _security(path: Path, values: dict[str, str]) -> Security:
    ours = {name: values[key] for name, key in _OURS.items() if key in values and not key.startswith("sasl.jaas")}
    with_login = values.get("security.protocol", "").startswith("SASL")
    if with_login and "sasl.mechanism" not in values:
        raise ConfigurationError(f"{path}: sasl.mechanism is missing: write PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512.")
    if "sasl.jaas.config" in values:
        check_private(path, "--command-config")
        ours |= {"sasl_username": "x", "sasl_password_file": str(path)}  # checked as ours are; then the real ones
    found = security_from(ours, os.getcwd(), lambda key: f"{path}: {_OURS[key]}")
    if "sasl.jaas.config" not in values:
        return found
    module, options = _jaas(path, values["sasl.jaas.config"])
    if found.mechanism not in module:
        raise ConfigurationError(f"{path}: sasl.jaas.config is for {' or '.join(module)}, not for {found.mechanism}.")
    password = options["password"]
    return found._replace(
        username=options["username"], password=Secret(lambda: password), password_name=f"sasl.jaas.config of {path}"
    )


def _jaas(path: Path, text: str) -> tuple[tuple[str, ...], dict[str, str]]:
    whole = _JAAS.fullmatch(text)
    module = _MODULES.get(whole[1]) if whole else None
    options = {
        each[1]: re.sub(r"\\(.)", r"\1", next(one for one in each.groups()[1:] if one is not None))
        for each in _JAAS_OPTION.finditer(whole[2] if whole else "")
    }
    if module is None or not options.get("username") or not options.get("password"):
        raise ConfigurationError(
            f"{path}: sasl.jaas.config is not taken: write org.apache.kafka.common.security.scram.ScramLoginModule (or"
            ' plain.PlainLoginModule) required username="…" password="…";'
        )
    return module, options


def in_kafkas_names(sentence: str) -> str:
    """Return a sentence about our keys, with the names that a properties file has for them."""
    said = sentence.replace("ssl_cert_file and ssl_key_file", _OURS["ssl_cert_file"])
    return re.sub("|".join(_OURS), lambda found: _OURS[found[0]], said)


def properties(text: str, name: str) -> dict[str, str]:
    """Return the keys and values of a properties file; ConfigurationError for an escape that is none."""
    found = {}
    for line in _logical_lines(text):
        parts = re.match(r"((?:[^\\=:\s]|\\.)+)\s*[=:]?\s*(.*)", line, re.DOTALL)
        if parts:
            try:
                found[_plain(parts[1])] = _plain(parts[2])
            except ValueError:
                raise ConfigurationError(f"{name}: {parts[1]} has a \\u without four hexadecimal digits.") from None
    return found


def _logical_lines(text: str) -> Iterator[str]:
    """Lines without comments, those that end in a backslash joined with the next."""
    pending = ""
    for line in re.split(r"\r\n|\r|\n", text):
        if not pending and line.lstrip()[:1] in ("#", "!", ""):
            continue
        pending += line.lstrip()
        slashes = len(pending) - len(pending.rstrip("\\"))
        if slashes % 2:
            pending = pending[:-1]
            continue
        yield pending
        pending = ""
    if pending:
        yield pending


def _plain(text: str) -> str:
    halves = re.sub(r"\\(u.{0,4}|.)", _unescape, text, flags=re.DOTALL)
    return halves.encode("utf-16", "surrogatepass").decode("utf-16", "replace")  # Java writes some as two halves


def _unescape(found: re.Match[str]) -> str:
    mark = found[1]
    if mark[0] != "u":
        return _ESCAPES.get(mark, mark)
    if not re.fullmatch(r"u[0-9a-fA-F]{4}", mark):
        raise ValueError(mark)
    return chr(int(mark[1:], 16))
