"""The boards of the simulation over a real ensemble: the same core and shell, kazoo in the model's place, real time.

Must never come in: another core.
"""

from __future__ import annotations

import queue
import time
from collections.abc import Callable

from edge_broker.cluster.state.cluster_state import PartitionId, PartitionState
from edge_broker.cluster.znodes.zookeeper import ZooKeeper
from edge_broker.network.cluster.zookeeper_client import KazooSession
from tests.simulation.cluster_world import Process, World
from tests.support.proxy import TcpProxy
from tests.support.waiting import Deadline

REAL_SESSION_MS = 3000


class RealWorld(World):
    """Boards whose processes have real sessions, each through a proxy of its board."""

    def __init__(self, servers: list[str], boards: int, chroot: str) -> None:
        super().__init__(1, boards)
        self._chroot = chroot
        self._arrived: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._passed_s = time.monotonic()
        self._sessions: list[KazooSession] = []
        self.proxies = [TcpProxy(servers[number % len(servers)]).start() for number in range(boards)]

    def advance(self, ms: float) -> None:
        """Do what has arrived, or what is due, within so much real time."""
        until_s = time.monotonic() + ms / 1000
        while True:
            now_s = time.monotonic()
            self.loop.advance((now_s - self._passed_s) * 1000)
            self._passed_s = now_s
            try:
                self._arrived.get(timeout=min(0.005, max(until_s - now_s, 0.001)))()
            except queue.Empty:
                if now_s >= until_s:
                    return

    def wait(self, what: str, condition: Callable[[], bool]) -> None:
        deadline = Deadline(30)
        while not condition():
            deadline.check(what, self.trace[-20:])
            self.advance(20)

    def begin_session(self, process: Process) -> ZooKeeper:
        def deliver(call: Callable[[], None]) -> None:
            self._arrived.put(lambda: process.run(call))

        connect = f"{self.proxies[process.board.number - 1].bootstrap}{self._chroot}"
        session = KazooSession(connect, REAL_SESSION_MS, process, deliver)
        self._sessions.append(session)
        return session

    def drop_session(self, process: Process) -> None:
        """kazoo's connection is closed without the session's end: it expires, as that of a dead process."""
        session = process.client
        assert isinstance(session, KazooSession)
        self.proxies[process.board.number - 1].cut("refuse")
        session.close()
        self._sessions.remove(session)
        self.proxies[process.board.number - 1].restore()

    def has_session(self, process: Process) -> bool:
        return True  # only a model can be asked

    def state(self, partition: PartitionId) -> PartitionState | None:
        leaders = self.leaders(partition)
        return leaders[0].member.partitions[partition].state if leaders else None

    @property
    def topic(self) -> tuple[str, int]:
        return self.processes[0].topic_id(self.partitions[0]), len(self.partitions)

    def close(self) -> None:
        for session in self._sessions:
            session.close()
        for proxy in self.proxies:
            proxy.stop()
