"""The credentials of a member, from the configuration: for other brokers' listeners, and for ZooKeeper.

A configuration that other brokers or ZooKeeper would refuse, or that leaves users and ACLs open, does not start.

Does not contain: listeners' own TLS and users (configuration/listeners.py, broker/state/authentication.py).
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from drupelet.errors import ConfigurationError
from drupelet.kafka.security import Security
from drupelet.tls.secret_files import check_private, lines_of
from edge_broker.network.cluster.zookeeper_client import Credentials

if TYPE_CHECKING:
    from edge_broker.configuration.config import BrokerConfig
    from edge_broker.configuration.listeners import Listener

MECHANISM = "sasl.mechanism.inter.broker.protocol"
DIGEST_FILE = "edge.zookeeper.digest.file"
USERS_MAX = 2


def peers_ca(config: BrokerConfig, shown: Security) -> tuple[str, str] | None:
    """Return the file of the CAs that sign other brokers' certificates, and its key; None: there is none."""
    if shown.ca_file is None:
        return None
    return shown.ca_file, f"{config.text('edge.inter.broker.config.file')}: ssl.truststore.location"


def link_security(config: BrokerConfig, listener: Listener) -> Security:
    """Return how this broker connects to other brokers' listeners; ConfigurationError."""
    path = config.text("edge.inter.broker.config.file")
    if path:
        from drupelet.kafka.properties import security_of  # noqa: PLC0415 - for secured clusters alone

        found = security_of(Path(path))
        _check_shown(config, listener, path, found)
        return found
    if listener.is_encrypted or listener.logs_in:
        raise ConfigurationError(
            f"listener {listener.name} for brokers speaks {listener.protocol}, and this broker has nothing to show "
            "there; name a file of client properties in edge.inter.broker.config.file"
        )
    return Security()


def _check_shown(config: BrokerConfig, listener: Listener, path: str, shown: Security) -> None:
    """Refuse credentials that no broker of the same configuration would accept; ConfigurationError."""
    if shown.protocol != listener.protocol:
        raise ConfigurationError(
            f"{path}: security.protocol is {shown.protocol}, and the listener for brokers, {listener.name}, speaks "
            f"{listener.protocol}; they have to be the same"
        )
    mechanism = config.text(MECHANISM)
    if shown.has_login and mechanism and mechanism != shown.mechanism:
        raise ConfigurationError(f"{path}: sasl.mechanism is {shown.mechanism}, and {MECHANISM} is {mechanism}")
    enabled = config.of_listener(listener.name, "sasl.enabled.mechanisms").replace(" ", "").split(",")
    if shown.has_login and shown.mechanism not in enabled:
        raise ConfigurationError(
            f"{path}: sasl.mechanism is {shown.mechanism}, and listener {listener.name} takes {', '.join(enabled)} "
            "(sasl.enabled.mechanisms)"
        )


def check_nothing_is_secured(config: BrokerConfig, listeners: Iterable[Listener]) -> None:
    """Refuse users and permissions that every client of ZooKeeper could change; ConfigurationError."""
    listener = next((each for each in listeners if each.logs_in), None)
    if listener is not None or config.text("authorizer.class.name"):
        what = f"listener {listener.name} has log-ins" if listener is not None else "authorizer.class.name is set"
        raise ConfigurationError(
            f"{what}, and the users and ACLs of a cluster are in its znodes, which are everybody's who reaches "
            f"ZooKeeper; name a file with USER:PASSWORD in {DIGEST_FILE}, the same on every board"
        )


def credentials(config: BrokerConfig) -> tuple[Credentials, ...]:
    """Return the brokers' users of ZooKeeper: none, one, or two while one replaces the other; the first owns znodes.

    ConfigurationError.
    """
    key = DIGEST_FILE
    path = config.text(key)
    if not path:
        return ()
    check_private(path, key)
    lines = [line for line in lines_of(path, key) if line]
    if len(lines) > USERS_MAX:
        raise ConfigurationError(
            f"{key} is {path}, which has {len(lines)} lines; write one user, or two while they change"
        )
    found = []
    for which, line in zip(("first", "second"), lines, strict=False):
        user, colon, password = line.partition(":")
        if not (user and colon and password):
            raise ConfigurationError(f"{key} is {path}, and its {which} line is not USER:PASSWORD; write it so")
        found.append(Credentials(user, password))
    return tuple(dict.fromkeys(found))
