"""`zookeeper.connect`: the servers of an ensemble, and the path that a cluster has for itself.

    HOST[:PORT] , HOST[:PORT] … [/PATH]         the path after the last server, for all of them

Contains: whether it is that. Does not contain: looking a name up, kazoo. Source: ZooKeeper's Programmer's Guide,
"ZooKeeper Sessions" (connect strings) and "The ZooKeeper Data Model" (paths).
"""

from __future__ import annotations

from drupelet.addresses import host_and_port
from drupelet.errors import ConfigurationError
from edge_broker.configuration.config import BrokerConfig

KEY = "zookeeper.connect"
PORT = 2181


def check_ensemble(config: BrokerConfig) -> None:
    """Refuse what names no ensemble; ConfigurationError."""
    text = config.text(KEY)
    if not text:
        return
    servers, slash, path = text.partition("/")
    for server in servers.split(","):
        if not _is_server(server.strip()):
            raise ConfigurationError(
                f"{KEY} is {text!r}, and {server.strip()!r} is no server; write HOST:PORT,HOST:PORT, and /PATH after "
                "the last one"
            )
    if slash and not _is_path(path):
        raise ConfigurationError(
            f"{KEY} is {text!r}, and {slash + path!r} is no path; write it once, after the last server, as /drupelet"
        )


def _is_server(text: str) -> bool:
    bracketed = text.startswith("[")
    has_port = ":" in text.rpartition("]")[2] if bracketed else ":" in text
    try:
        host, port = host_and_port(text if has_port else f"{text}:{PORT}")
    except ValueError:
        return False
    return port > 0 and (bracketed or ":" not in host) and not any(map(str.isspace, host))


def _is_path(text: str) -> bool:
    """Names with slashes between them; none has a comma, as in a path that is written after each server."""
    names = text.split("/")
    return all(name not in ("", ".", "..") and name.isprintable() and not set(name) & set(", ") for name in names)
