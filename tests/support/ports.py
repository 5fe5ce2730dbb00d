"""Free TCP ports on loopback, and whether something listens there.

A test run claims ports in blocks: each block is one abstract socket name, which the kernel frees when the run ends.
One descriptor stands for 128 ports, so a run of 10,000 tests stays far below descriptor 1024, where select() ends.
"""

from __future__ import annotations

import os
import random
import socket
from collections.abc import Iterator
from pathlib import Path

BLOCK = 128


class PortClaims:
    """The blocks of ports that this process claimed; it hands out each port once."""

    def __init__(self) -> None:
        self._claims: list[socket.socket] = []
        self._ports: Iterator[int] = iter(())
        self._owner = os.getpid()

    def next_port(self) -> int:
        """Return a port of a claimed block that this process did not hand out before; raises OSError without one."""
        if self._owner != os.getpid():  # a forked child: these blocks are its parent's
            self.close()
            self._owner = os.getpid()
        port = next(self._ports, None)
        while port is None:
            block = self._claim_block()
            self._ports = iter(random.sample(block, k=BLOCK))
            port = next(self._ports, None)
        return port

    def _claim_block(self) -> range:
        low = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
        first = max(1024, low // 2)
        starts = range(first, low - BLOCK + 1, BLOCK)
        for start in random.sample(starts, k=len(starts)):
            if self._claim(start):
                return range(start, start + BLOCK)
        raise OSError(f"no unclaimed block of {BLOCK} TCP ports from {first} to {low}; end other test runs")

    def _claim(self, start: int) -> bool:
        claim = socket.socket(socket.AF_UNIX)
        try:
            claim.bind(f"\0drupelet-test-ports-{start}")
        except OSError:
            claim.close()
            return False
        self._claims.append(claim)
        return True

    def descriptors(self) -> list[int]:
        """Return the descriptors that hold the claims."""
        return [claim.fileno() for claim in self._claims]

    def close(self) -> None:
        """Give all blocks back."""
        for claim in self._claims:
            claim.close()
        self._claims, self._ports = [], iter(())


_claims = PortClaims()


def descriptors() -> list[int]:
    """Return the descriptors that hold the claims of this run, as long as it lasts."""
    return _claims.descriptors()


def free_port() -> int:
    """Return a TCP port that is free on loopback now, and that no other test run on this machine receives.

    It lies below the kernel's ephemeral range, since a server must find it free again after a restart, and since
    a client that redials a dead server inside that range can connect to itself.
    """
    while True:
        port = _claims.next_port()
        if _can_bind(port):
            return port


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
