"""A real ensemble of ZooKeeper: three small JVMs from jars, on free ports of loopback or of a network namespace.

Lives here: its configuration and processes. Must never come in: clients, the edge broker.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.support import runtimes
from tests.support.ports import free_port
from tests.support.processes import JVM_STOP_STATUSES, Process
from tests.support.waiting import wait_until

HEAP = "48m"
TICK_MS = 200
LOOPBACK = "127.0.0.1"
_JAVA = (
    f"-Xmx{HEAP}",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",  # the second compiler takes processor time and memory from the brokers beside it
    "-Dzookeeper.admin.enableServer=false",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
)
_CONFIGURATION = """\
tickTime={tick_ms}
initLimit=20
syncLimit=5
dataDir={data}
clientPort={port}
clientPortAddress={address}
4lw.commands.whitelist=srvr
standaloneEnabled=false
{servers}
"""


def four_letters(port: int, word: str, address: str = LOOPBACK) -> str:
    """What a server says of itself; empty: nothing."""
    try:
        with socket.create_connection((address, port), timeout=5) as connection:
            connection.sendall(word.encode())
            return b"".join(iter(lambda: connection.recv(4096), b"")).decode()
    except OSError:
        return ""


class ZooKeeperServer(Process):
    """One server of an ensemble."""

    def __init__(
        self, directory: Path, number: int, servers: str, tick_ms: int, jars: Sequence[str], address: str = LOOPBACK
    ) -> None:
        """Describe it; `servers` are the lines of the ensemble, `jars` its class path, `address` where it serves."""
        self.address = address
        self.port = free_port()
        self.bootstrap = f"{address}:{self.port}"
        data = self.data = directory / f"zookeeper-{number}"
        data.mkdir(parents=True, exist_ok=True)
        (data / "myid").write_text(f"{number}\n")
        path = directory / f"zookeeper-{number}.cfg"
        path.write_text(
            _CONFIGURATION.format(tick_ms=tick_ms, data=data, address=address, port=self.port, servers=servers)
        )
        command: list[str | Path] = [runtimes.java(), *_JAVA, "-cp", ":".join(jars)]
        command += ["org.apache.zookeeper.server.quorum.QuorumPeerMain", path]
        super().__init__(
            f"zookeeper-{number}", command, directory, ready=self.serves, ready_s=60, stop_statuses=JVM_STOP_STATUSES
        )

    def serves(self) -> bool:
        """Whether it has a leader, or is it."""
        return "Mode: " in four_letters(self.port, "srvr", self.address)


class ZooKeeperEnsemble:
    """Three servers; a context manager. `tick_ms` bounds the session timeouts: 2 to 20 of them."""

    def __init__(
        self,
        directory: Path,
        *,
        tick_ms: int = TICK_MS,
        jars: Sequence[str] = (),
        addresses: Sequence[str] = (LOOPBACK,) * 3,
        inside: Sequence[str] = (),
    ) -> None:
        """Describe it; `jars` are another class path than that of 3.9.5.

        `addresses` are those of a network namespace that `inside` enters; servers speak to each other over loopback.
        """
        ports = [(free_port(), free_port()) for _ in range(3)]
        servers = "\n".join(f"server.{n}=127.0.0.1:{peer}:{elect}" for n, (peer, elect) in enumerate(ports, 1))
        path = list(jars) or [f"{runtimes.zookeeper_jars()}/*"]
        self.servers = [
            ZooKeeperServer(directory, number, servers, tick_ms, path, address)
            for number, address in enumerate(addresses, 1)
        ]
        for server in self.servers:
            server.command = [*inside, *server.command]

    @property
    def connect(self) -> str:
        """As `zookeeper.connect` has it."""
        return ",".join(server.bootstrap for server in self.servers)

    def __enter__(self) -> Self:
        """Start all, then wait for all: none serves before two are there."""
        try:
            for server in self.servers:
                server.spawn()
            for server in self.servers:
                wait_until(server.serves, server.ready_s, f"{server.name} serves", seen=server.log_tail)
        except BaseException:
            self._kill()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop all."""
        for server in self.servers:
            server.__exit__(kind, error, trace)

    def _kill(self) -> None:
        for server in self.servers:
            server.kill()
