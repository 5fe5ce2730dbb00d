"""Report registered brokers and leaders to clients: in Metadata, DescribeCluster and DescribeTopicPartitions alike.

A broker that does not lead names the leader in its response, in Produce and Fetch (KIP-951).

| of a partition of the cluster | reported |
|---|---|
| leader | who leads, is there, and has no closed port (unreachable_brokers.py); else -1, and LEADER_NOT_AVAILABLE |
| one that has no listener of the name by which the client came | -1, LISTENER_NOT_FOUND |
| in-sync replicas | those of the in-sync set that are there, with a log that is not offline |
| eligible leaders (KIP-966) | those of the set that are not: one of them that comes back may lead |
| offline replicas | those that are not there, have no such listener, or say that their log is offline |

Of a broker that stands alone each topic has one replica, that broker.

Does not contain: messages of the protocol, decisions (edge_broker.cluster).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from edge_broker.broker.broker import Broker
from edge_broker.broker.cluster_port import NOBODY, ClusterReads, Node
from edge_broker.broker.context import Session
from edge_broker.errors import ErrorCode

if TYPE_CHECKING:
    from edge_broker.broker.cluster_port import ClusterReads, DescribedTopic

T = TypeVar("T")


class ShownPartition(NamedTuple):
    """A partition of the cluster; brokers by their ids, replicas in their order: the preferred leader first."""

    error: ErrorCode
    partition: int
    leader: int
    leader_epoch: int
    replicas: list[int]
    in_sync: list[int]
    eligible: list[int]
    offline: list[int]


def brokers(broker: Broker, session: Session) -> list[Node]:
    """Those that are there, by the addresses of the listener that the session came in by."""
    if broker.cluster is None:
        return [Node(broker.node_id, broker.advertised_to(session), None)]
    return broker.cluster.view.brokers(session.listener)


def controller(broker: Broker) -> int:
    """The broker that changes topics; in a cluster any broker does. -1: none now, or unknown."""
    return broker.node_id if broker.cluster is None else broker.cluster.view.controller


def partitions(
    view: ClusterReads, topic: DescribedTopic, listener: str, first: int = 0, limit: int | None = None
) -> Iterator[ShownPartition]:
    """The partitions of a topic of the cluster from `first` on, `limit` at most."""
    there = view.serving(listener)
    end = len(topic.partitions) if limit is None else min(first + limit, len(topic.partitions))
    for number in range(first, end):
        replicas = topic.partitions[number]
        state = view.state(topic.name, number)
        leader = view.leader_to_ask(topic.name, number)
        error = ErrorCode.NONE
        if leader not in there:
            error = ErrorCode.LEADER_NOT_AVAILABLE if leader == NOBODY else ErrorCode.LISTENER_NOT_FOUND
            leader = NOBODY
        in_sync = {each.broker: view.is_there(state, each.broker) for each in state.in_sync} if state else {}
        yield ShownPartition(
            error,
            number,
            leader,
            state.leader_epoch if state is not None else -1,
            list(replicas),
            [each for each in replicas if in_sync.get(each) is True],
            [each for each in replicas if in_sync.get(each) is False],
            [each for each in replicas if each not in there or (state and view.is_offline(state, each))],
        )


def as_endpoints(nodes: Iterable[Node], kind: Callable[..., T]) -> list[T]:
    """Where brokers listen, in a message's own kind of endpoint."""
    return [
        kind(node_id=node.broker, host=node.endpoint.host, port=node.endpoint.port, rack=node.rack) for node in nodes
    ]


class NextLeader(NamedTuple):
    """Another broker that leads a partition."""

    leader_epoch: int
    node: Node


def next_leader(broker: Broker, session: Session, topic: str, partition: int) -> NextLeader | None:
    """The leader instead of this broker, as far as known; None: none that this client could reach."""
    view = broker.cluster.view if broker.cluster is not None else None
    state = view.state(topic, partition) if view is not None else None
    if view is None or state is None or state.leader == broker.node_id:
        return None
    leader = view.leader_to_ask(topic, partition)
    found = next((each for each in view.brokers(session.listener) if each.broker == leader), None)
    return NextLeader(state.leader_epoch, found) if found is not None else None
