"""What the client makes of a link that comes back: run in a network namespace of its own.

    unshare --map-root-user --net -- python -m tests.support.link_back LOOP

A broker's address is one that this host does not have yet; where nobody hurries, the next attempt is an hour away, and
three that hang block a fourth. Prints how often the kernel's word was passed on in each case.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path

from drupelet.kafka.client import ClientSettings
from kafka_wire.cluster import SIDE, Cluster
from kafka_wire.connection import reconnecting_connection as line
from kafka_wire.connection import tcp_connect
from kafka_wire.connection.errors import WireError
from kafka_wire.connection.route_watch import RouteWatch
from tests.support.dead_link import play
from tests.support.scripted_wire import playing, until

SYN_SENT = "02"  # the state in /proc/net/tcp
HERE = "192.0.2.1"
AWAY = "192.0.2.9"


def ip(*words: str) -> None:
    """Tell the namespace."""
    subprocess.run(["ip", *words], check=True)


class Count:
    """How often it was called; it hurries a cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster, self.calls = cluster, 0

    def has(self, calls: int) -> bool:
        """Whether it was called so often."""
        return self.calls >= calls

    def __call__(self) -> None:
        """The network has changed."""
        self.calls += 1
        self.cluster.retry_now()


async def ready(cluster: Cluster) -> None:
    """Wait until the broker takes us, whatever the attempts before came to."""
    while True:
        try:
            await cluster.any_connection()
            return
        except WireError:
            continue


def is_connecting(port: int) -> bool:
    """Return whether a socket of this namespace waits for an answer to its connect."""
    sockets = (line.split() for line in Path("/proc/self/net/tcp").read_text().splitlines()[1:])
    return any(one[2].endswith(f":{port:04X}") and one[3] == SYN_SENT for one in sockets)


async def a_link_that_comes() -> int:
    """Without a route each attempt fails at once; the next one waits for the address."""
    async with playing(play, "0.0.0.0") as port:
        cluster = Cluster(ClientSettings(f"{HERE}:{port}", "link", 30_000))
        hurried = Count(cluster)
        with RouteWatch(hurried):
            connecting = asyncio.ensure_future(ready(cluster))
            waiting = cluster._line((HERE, port), SIDE)
            await until(lambda: waiting.next_at > 0 and not waiting._is_dialling, "the first attempt has failed")
            ip("link", "add", "d0", "type", "veth", "peer", "name", "d1")
            ip("link", "set", "dev", "d1", "up")
            ip("address", "add", f"{HERE}/24", "dev", "d0")
            ip("link", "set", "dev", "d0", "up")
            await connecting
        cluster.close()
        return hurried.calls


async def attempts_that_hang() -> int:
    """A host that nobody has: attempts hang on it until it is there."""
    async with playing(play, "0.0.0.0") as port:
        cluster = Cluster(ClientSettings(f"{AWAY}:{port}", "link", 30_000))
        hurried = Count(cluster)
        with RouteWatch(hurried):
            connecting = asyncio.ensure_future(ready(cluster))
            await until(partial(is_connecting, port), "the kernel has sent a SYN, which nothing answers")
            ip("address", "add", f"{AWAY}/32", "dev", "d0")
            await connecting
        cluster.close()
        return hurried.calls


async def carrier() -> int:
    """The link goes down, and up again: told both times."""
    cluster = Cluster(ClientSettings(f"{HERE}:1", "link", 30_000))
    hurried = Count(cluster)
    with RouteWatch(hurried):
        for number, state in enumerate(("down", "up"), 1):
            ip("link", "set", "dev", "d0", state)
            await until(partial(hurried.has, number), state)
    cluster.close()
    return hurried.calls


async def main() -> None:
    """All cases."""
    ip("link", "set", "lo", "up")
    line.LINK_S = tcp_connect.NEXT_S = 3600.0
    found = {"comes": await a_link_that_comes(), "hangs": await attempts_that_hang(), "carrier": await carrier()}
    print(json.dumps(found | {"uid": os.geteuid()}))


if __name__ == "__main__":
    if sys.argv[1] == "uvloop":
        import uvloop

        uvloop.run(main())
    else:
        asyncio.run(main())
