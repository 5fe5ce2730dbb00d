"""One request in progress: its connection, what it waits for, and how its answer is written.

Does not contain: who answers it, and when (dispatcher.py).
"""

from __future__ import annotations

import asyncio

from edge_broker.broker.outcomes import AfterName, Wait
from edge_broker.network.connection.connection import Connection, Exchange
from edge_broker.protocol.api import Api, response_frame
from edge_broker.protocol.message import Message


class Call(Exchange):
    """A request in progress: its connection and how the response is written; neither for our own work."""

    __slots__ = (
        "after_name",
        "api",
        "connection",
        "correlation_id",
        "held",
        "timer",
        "token",
        "version",
        "wait",
        "work_seconds",
    )

    def __init__(
        self, connection: Connection | None, api: Api | None, version: int, correlation_id: int, token: int
    ) -> None:
        self.cost = self.kept_bytes = 0  # what Exchange's own does, in the same step
        self.frame = self.when_first = None
        self.connection = connection
        self.api = api
        self.version = version
        self.correlation_id = correlation_id
        self.token = token
        self.wait: Wait | None = None
        self.after_name: AfterName | None = None
        self.timer: asyncio.TimerHandle | None = None
        self.held = False  # its connection takes no more requests until its job has ended
        self.work_seconds = 0.0

    @property
    def name(self) -> str:
        """The API's name."""
        return "own work" if self.api is None else self.api.name

    def answer(self, response: Message | None) -> None:
        """Send the response, None for none."""
        if self.connection is not None:
            assert self.api is not None
            frame = (
                response_frame(self.api, self.version, self.correlation_id, response) if response is not None else []
            )
            self.connection.answer(self, frame)
