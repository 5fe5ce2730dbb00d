"""Free TCP ports on loopback, and whether something listens there."""

from __future__ import annotations

import random
import socket
from pathlib import Path

_claims: dict[int, socket.socket] = {}


def free_port() -> int:
    """Return a TCP port that is free on loopback now, and that no other test run on this machine is given.

    It lies below the kernel's ephemeral range, since a server must find it free again after a restart, and since
    a client that redials a dead server inside that range can connect to itself.
    """
    low = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    for port in random.sample(range(max(1024, low // 2), low), k=min(500, low - max(1024, low // 2))):
        if port not in _claims and _can_bind(port) and _claim(port):
            return port
    raise OSError(f"no free TCP port found below {low}")


def _claim(port: int) -> bool:
    """Take a name that stands for the port until this process ends, also while a server of ours is away from it."""
    claim = socket.socket(socket.AF_UNIX)
    try:
        claim.bind(f"\0drupelet-test-port-{port}")
    except OSError:
        claim.close()
        return False
    _claims[port] = claim
    return True


def _can_bind(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def can_connect(port: int) -> bool:
    """Tell whether something accepts TCP connections on this loopback port."""
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0
