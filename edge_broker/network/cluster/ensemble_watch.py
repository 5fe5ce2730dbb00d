"""Looks whether each server of the ensemble answers, for /health and `edge-broker cluster status`.

| event | look |
|---|---|
| LOOK_S have passed since the last look, SILENT_LOOK_S where a server was silent | yes |
| a session began, ended, or lost its connection | yes, CALM_S after the last look at the earliest |

A look runs in a thread of the loop's executor and takes SILENT_S at most, names aside. `notes["zookeeper"]` of the
broker then names each silent server. Nothing else depends on it: the session finds living servers by itself.

Does not contain: connections (configuration/ensemble_servers.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from edge_broker.configuration.ensemble_servers import Server, servers_of, silent_servers
from edge_broker.network.log_lines import log_line

LOOK_S = 30.0  # each look is a line in each server's log
SILENT_LOOK_S = 10.0
CALM_S = 2.0
NOTE = "zookeeper"


class EnsembleWatch:
    """The watch of one broker; `notes` are `Broker.notes`."""

    def __init__(self, connect: str, loop: asyncio.AbstractEventLoop, notes: dict[str, list[str]]) -> None:
        self._servers, self._loop, self._notes = servers_of(connect), loop, notes
        self._looking: asyncio.Future[dict[Server, str]] | None = None
        self._due_s = self._looked_s = loop.time()
        self._silent: Mapping[Server, str] = {}

    def look_soon(self) -> None:
        """Look with the next tick."""
        self._due_s = min(self._due_s, self._looked_s + CALM_S)

    def tick(self) -> None:
        """Begin a look where one is due. Call it repeatedly, on the loop."""
        now_s = self._loop.time()
        if self._looking is not None or now_s < self._due_s:
            return
        self._due_s, self._looked_s = now_s + LOOK_S, now_s
        self._looking = self._loop.run_in_executor(None, silent_servers, self._servers)
        self._looking.add_done_callback(self._servers_checked)

    def _servers_checked(self, looking: asyncio.Future[dict[Server, str]]) -> None:
        self._looking = None
        if looking.cancelled():
            return
        if (error := looking.exception()) is not None:
            log_line("error", "zookeeper_servers_not_asked", error=repr(error))
            return
        self._take(looking.result())

    def _take(self, silent: Mapping[Server, str]) -> None:
        for server in silent.keys() - self._silent.keys():
            log_line("warning", "zookeeper_server_silent", server=server.text, reason=silent[server])
        for server in self._silent.keys() - silent.keys():
            log_line("info", "zookeeper_server_answered", server=server.text)
        self._silent = silent
        if silent:
            self._due_s = min(self._due_s, self._looked_s + SILENT_LOOK_S)
        self._notes[NOTE] = [f"ZooKeeper server {server.text} does not answer: {why}" for server, why in silent.items()]
