"""A connection to another broker of the cluster that is made again and again: what both kinds of links share.

| link | carries | answers |
|---|---|---|
| replica_fetch_link.py | replica fetches | within `replica.fetch.wait.max.ms` |
| broker_request_link.py | wishes, questions, entries of the journal | when what was asked for has come about |

Two connections, as answers keep the order of their requests: an acks=all that waits for this very broker to fetch
would keep back what it has fetched.

Contains: reconnecting. Does not contain: what is said, what answers mean (edge_broker.cluster).
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from drupelet.backoff import Backoff
from edge_broker.cluster.inter_broker_messages import Message
from edge_broker.network.log_lines import LimitedLog
from edge_broker.protocol.api import RequestedApi
from kafka_wire.connection.connection import Connection
from kafka_wire.connection.errors import NobodyListens, WireError

if TYPE_CHECKING:
    from drupelet.kafka.security import Security
    from edge_broker.configuration.config import Endpoint

CONNECT_S = 5.0
SILENT_S_MAX = 5.0
RETRY_S, RETRY_S_MAX = 0.1, 2.0
OF_USE_S = 2.0  # a connection that lasted longer was of use, whatever ended it


class Owner(NamedTuple):
    """The owner of a link: the other broker's address, the known topics, and the receiver of messages."""

    broker: int
    directory: Callable[[], str]
    endpoint: Callable[[], Endpoint | None]
    topic_id: Callable[[str], str | None]
    told: Callable[[Message], None]
    connected: Callable[[], None]
    refused: Callable[[], None]
    """Hears of a port that is closed."""


class BrokerLink(ABC):
    """The link to one broker; `name` is its name in the log, `needs` what the other has to serve."""

    def __init__(
        self, owner: Owner, security: Security, log: LimitedLog, to: int, *, name: str, needs: RequestedApi[Any]
    ) -> None:
        self.to = to
        self._owner, self._security, self._log, self._name, self._needs = owner, security, log, name, needs
        self._loop = asyncio.get_running_loop()
        self._connection: Connection | None = None
        self._task = self._loop.create_task(self._run())

    @property
    def is_connected(self) -> bool:
        """Whether there is a connection now."""
        return self._connection is not None

    def close(self) -> None:
        """End it."""
        self._task.cancel()
        if self._connection is not None:
            self._connection.close()

    @abstractmethod
    def send(self, message: Message) -> None:
        """Send a message, if the other broker can be reached; the owner receives the response."""

    def _connection_lost(self) -> None:  # noqa: B027 - there may be nothing to forget
        """Forget the messages of a connection that is gone."""

    def _say(self, level: str, what: str, error: object) -> None:
        self._log.line(level, f"{self._name}_{what}".rstrip("_"), broker=self.to, error=error)

    async def _run(self) -> None:
        backoff = Backoff(RETRY_S, RETRY_S_MAX)
        while True:
            try:
                endpoint = self._owner.endpoint()
                if endpoint is not None:
                    begin_s = self._loop.time()
                    await self._serve(endpoint)
                    backoff.reset()
                    if self._loop.time() - begin_s > OF_USE_S:
                        continue  # at once: whether its port is closed is what clients want to know
            except WireError as error:
                if isinstance(error, NobodyListens):
                    self._owner.refused()
                self._say("warning", "", error)
            except Exception as error:  # noqa: BLE001 - an address that is none, or a bug: without a link none follows
                self._say("error", "failed", repr(error))
            await asyncio.sleep(backoff.next_s())

    async def _serve(self, endpoint: Endpoint) -> None:
        """Connect, and be of use until the connection ends. WireError: it could not be made."""
        connection = await Connection.open(
            self._security,
            endpoint.host,
            endpoint.port,
            f"broker-{self._owner.broker}-{self._name}",
            timeout_s=CONNECT_S,
            silent_s_max=SILENT_S_MAX,
        )
        try:
            connection.version(self._needs)
            self._connection = connection
            self._owner.connected()
            why = await connection.wait_closed()
            self._say("info", "lost", why)
        finally:
            connection.close()
            self._connection = None
            self._connection_lost()
