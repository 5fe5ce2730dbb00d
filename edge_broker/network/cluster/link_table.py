"""The links of a member to other brokers: which exist, which one a message takes, when they end.

| link to a broker | carries | number |
|---|---|---|
| `num.replica.fetchers` fetch links | fetches; those of one partition always take the same link | 0 and up |
| one request link | everything else, so that no request waits for records | REQUESTS |

The request link exists before the first fetch is sent. A broker that is not registered for GONE_S is not expected back:
its links end once they have no connection. If the broker comes back, it gets new ones.

Does not contain: sockets, addresses (peer_links.py), messages' contents.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import Protocol

from edge_broker.cluster.inter_broker_messages import Message, ReplicaFetch
from edge_broker.protocol.crc import crc32c

REQUESTS = -1  # the number of the request link
GONE_S = 60.0


class Link(Protocol):
    """A connection to another broker that is made and remade as messages are sent."""

    @property
    def is_connected(self) -> bool:
        """Whether there is a connection now."""

    def send(self, message: Message) -> None:
        """Send a message, or lose it."""

    def close(self) -> None:
        """End the connection for good."""


class LinkTable:
    """The links by broker and number; owned by the loop."""

    def __init__(
        self,
        fetchers: int,
        open_fetch_link: Callable[[int], Link],
        open_request_link: Callable[[int], Link],
        now_s: Callable[[], float],
    ) -> None:
        """`fetchers`: num.replica.fetchers. Both factories get the id of the other broker."""
        self._fetchers = fetchers
        self._open_fetch_link, self._open_request_link = open_fetch_link, open_request_link
        self._now_s = now_s
        self._links: dict[tuple[int, int], Link] = {}
        self._gone_since: dict[int, float] = {}  # brokers with a link that are not registered

    def __len__(self) -> int:
        """Return how many links there are."""
        return len(self._links)

    @property
    def brokers(self) -> set[int]:
        """The brokers with a link."""
        return {broker for broker, _ in self._links}

    def send(self, to: int, message: Message) -> None:
        """Send a message to a broker by the link that its kind takes."""
        number = self._number(message)
        link = self._links.get((to, number))
        if link is None:
            link = self._open(to, number)
        link.send(message)

    def _number(self, message: Message) -> int:
        if not isinstance(message, ReplicaFetch):
            return REQUESTS
        partition, many = message.partition, self._fetchers > 1
        return (crc32c(partition.topic.encode()) + partition.partition) % self._fetchers if many else 0

    def _open(self, to: int, number: int) -> Link:
        if number == REQUESTS:
            link = self._open_request_link(to)
        else:
            link = self._open_fetch_link(to)
            if (to, REQUESTS) not in self._links:  # a request that is sent before its link is connected is lost
                self._open(to, REQUESTS)
        self._links[to, number] = link
        return link

    def drop_unused(self, registered: Container[int]) -> None:
        """End the links without a connection to brokers that are not registered for GONE_S."""
        now_s = self._now_s()
        self._gone_since = {
            broker: self._gone_since.get(broker, now_s) for broker in self.brokers if broker not in registered
        }
        for which in list(self._links):
            gone_s = now_s - self._gone_since.get(which[0], now_s)
            if gone_s > GONE_S and not self._links[which].is_connected:
                self._links.pop(which).close()

    def close(self) -> None:
        """End all links; for a stop."""
        for link in self._links.values():
            link.close()
