"""Links to other brokers: which one a message takes, and when a link ends."""

from __future__ import annotations

from collections import Counter

import pytest

from edge_broker.cluster.inter_broker_messages import AskEnd, ForwardEntries, HandOver, Message, ReplicaFetch
from edge_broker.cluster.state.cluster_state import InSyncReplica, PartitionId
from edge_broker.network.cluster.link_table import GONE_S, LinkTable

P0 = PartitionId("t", 0)
ME = InSyncReplica(1, "one", 5)


class Link:
    """A link of the table; `sent` has what it carried."""

    def __init__(self, kind: str, to: int) -> None:
        self.kind, self.to = kind, to
        self.is_connected, self.closed = True, False
        self.sent: list[Message] = []

    def send(self, message: Message) -> None:
        self.sent.append(message)

    def close(self) -> None:
        self.closed = True


class Table:
    """A table, its links in the order of their making, and its clock."""

    def __init__(self, fetchers: int = 1) -> None:
        self.made: list[Link] = []
        self.now_s = 0.0
        self.links = LinkTable(
            fetchers, lambda to: self._made("fetch", to), lambda to: self._made("request", to), lambda: self.now_s
        )

    def _made(self, kind: str, to: int) -> Link:
        self.made.append(Link(kind, to))
        return self.made[-1]

    def drop(self, at_s: float, registered: set[int]) -> set[int]:
        """Drop unused links, and return the brokers that still have one."""
        self.now_s = at_s
        self.links.drop_unused(registered)
        return self.links.brokers


def fetch(partition: PartitionId) -> ReplicaFetch:
    return ReplicaFetch(partition, ME, 4, 0, 4, 0)


def test_a_request_takes_another_link_than_fetches() -> None:
    """Responses keep the order of their requests: entries wait for replicas, of which this broker may be one."""
    table = Table()
    table.links.send(2, fetch(P0))
    assert sorted(link.kind for link in table.made) == ["fetch", "request"], "both exist before a request is sent"
    requests = [HandOver(P0, 2), AskEnd(P0, 1, ME), ForwardEntries(P0, 1, 1, 1, b"")]
    for message in requests:
        table.links.send(2, message)
    assert {link.kind: link.sent for link in table.made} == {"fetch": [fetch(P0)], "request": requests}


def test_a_request_alone_opens_no_fetch_link() -> None:
    table = Table()
    table.links.send(2, HandOver(P0, 2))
    assert [(link.kind, link.to) for link in table.made] == [("request", 2)]


def test_partitions_are_spread_over_the_fetch_links_and_each_keeps_its_own() -> None:
    table = Table(3)
    for _ in range(2):
        for number in range(30):
            table.links.send(2, fetch(PartitionId("t", number)))
    carried = [[message.partition for message in link.sent] for link in table.made if link.kind == "fetch"]
    assert all(each[:10] == each[10:] for each in carried)
    assert Counter(map(len, carried)) == {20: 3}
    assert len(table.links) == 4, "three for fetches, one for requests"


def test_each_broker_has_links_of_its_own() -> None:
    table = Table()
    for to in (2, 3, 2):
        table.links.send(to, HandOver(P0, to))
    assert [(link.to, len(link.sent)) for link in table.made] == [(2, 2), (3, 1)]


def test_links_to_a_broker_that_is_gone_for_good_end_with_their_connection() -> None:
    table = Table()
    for to in (2, 3):
        table.links.send(to, HandOver(P0, to))
    assert table.drop(0.0, {2, 3}) == {2, 3}
    assert table.drop(1.0, {2}) == table.drop(GONE_S, {2}) == {2, 3}, "it may come back"
    assert table.drop(GONE_S + 2, {2, 3}) == {2, 3}
    table.drop(100.0, {2})
    assert table.drop(101.0 + GONE_S, {2}) == {2, 3}, "a response may still come"
    for link in table.made:
        link.is_connected = False
    assert table.drop(102.0 + GONE_S, {2}) == {2}
    assert [(link.to, link.closed) for link in table.made] == [(2, False), (3, True)]
    table.links.send(3, HandOver(P0, 3))
    assert table.drop(103.0 + GONE_S, {2}) == {2, 3}, "its absence is counted from the new link on"


@pytest.mark.parametrize("fetchers", [1, 4])
def test_a_stop_ends_all_links(fetchers: int) -> None:
    table = Table(fetchers)
    for number in range(8):
        table.links.send(2, fetch(PartitionId("t", number)))
    table.links.close()
    assert len(table.made) == fetchers + 1
    assert all(link.closed for link in table.made)
