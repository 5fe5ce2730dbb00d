"""Checks whether `serve` could listen on an address of this host.

A port is bound for a moment and never listened on; no connection is opened.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterator

from drupelet.errors import reason
from edge_broker.configuration.config import Endpoint

PORT_PRIVILEGED = 1024


def port_problems(name: str, endpoint: Endpoint) -> Iterator[tuple[str, bool]]:
    """Bind to an address for a moment; yield a sentence, and whether `serve` would refuse it whatever runs now."""
    host, port = endpoint
    try:
        found = socket.getaddrinfo(host or "0.0.0.0", port, type=socket.SOCK_STREAM)  # noqa: S104 - as serve does
    except OSError as error:
        yield f"{name}, and {host} has no address on this host: {reason(error)}", True
        return
    for family, kind, protocol, _, address in found:
        try:
            with socket.socket(family, kind, protocol) as one:
                one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                one.bind(address)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                yield f"{name}, where something listens now: the running broker, or another program", False
            elif error.errno == errno.EADDRNOTAVAIL:
                yield f"{name}, which is no address of this host: take one of `ip address`, or 0.0.0.0", True
            elif error.errno == errno.EACCES and port < PORT_PRIVILEGED:
                yield f"{name}, and this user may not listen below {PORT_PRIVILEGED}: choose another port", False
            else:
                yield f"{name}, which cannot be listened on: {reason(error)}", True
            return
