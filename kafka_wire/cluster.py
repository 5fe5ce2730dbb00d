"""Hold a client's view of a cluster: partition leaders, and connections to brokers, opened on demand.

Does not contain: produce, fetch and commit requests, the retry of a connection (reconnecting_connection.py), the rate
of requests.
"""

from __future__ import annotations

import asyncio
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple
from uuid import UUID

from drupelet.addresses import host_and_port
from drupelet.kafka.client import ClientSettings
from edge_broker.errors import ErrorCode, error_name
from edge_broker.protocol.message import NO_UUID
from edge_broker.protocol.messages.find_coordinator import FindCoordinatorRequest
from edge_broker.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponseTopic
from kafka_wire.apis import FIND_COORDINATOR, METADATA
from kafka_wire.connection.byte_counters import Traffic
from kafka_wire.connection.connection import SILENT_S_MAX, UNSENT_BYTES_MAX, Connection, Served
from kafka_wire.connection.errors import BrokerRefused, ConnectionLost, NoCoordinator
from kafka_wire.connection.reconnecting_connection import Line

SERVER_S = 10.0  # for one of several bootstrap servers, before the next is tried
SIDE = -1  # the number of the connection for short requests, which must not queue after fetches

GROUP, TRANSACTION = 0, 1  # kinds of coordinators

Place = tuple[str, int]  # host and port
Partition = tuple[str, int]  # topic and number


class Leader(NamedTuple):
    """The node that leads a partition, -1 if there is none, and its leader epoch, -1 if unknown."""

    node: int
    epoch: int


class Topic(NamedTuple):
    """A topic: its id in Kafka's text form, None if it has none, its error code, and its partitions' leaders.

    `in_sync` has the number of in-sync replicas of each partition that lacks some.
    """

    topic_id: str | None
    error_code: int
    leaders: dict[int, Leader]
    in_sync: Mapping[int, int] = MappingProxyType({})


class Cluster:
    """The brokers of the cluster of some bootstrap servers; of one event loop. Every coroutine raises WireError.

    `nodes` has the address of each broker, by the last metadata. `controller` is the broker that creates topics;
    without ZooKeeper any other does, too. `cluster_id` is None before the first metadata.
    """

    def __init__(
        self,
        settings: ClientSettings,
        *,
        unsent_bytes_max: int = UNSENT_BYTES_MAX,
        silent_s_max: float = SILENT_S_MAX,
        traffic: Traffic | None = None,
        opened: Callable[[], None] = lambda: None,
    ) -> None:
        """`opened` is called whenever a connection is open, before its waiters continue."""
        self.nodes: dict[int, Place] = {}
        self.controller = -1
        self.cluster_id: str | None = None
        self._settings = settings
        self._unsent_bytes_max = unsent_bytes_max
        self._silent_s_max = silent_s_max
        self._traffic = traffic
        self._opened = opened
        self._timeout_s = settings.request_timeout_ms / 1000
        self._servers = [host_and_port(server) for server in settings.servers]
        self._lines: dict[tuple[Place, int], Line] = {}
        self._served: dict[str, Served] = {}
        self._is_closed = False

    async def topics(self, names: Sequence[str] | None) -> dict[str, Topic]:
        """Return these topics, or all, and learn the brokers' addresses. The query creates no topic."""
        wanted = None if names is None else [MetadataRequestTopic(name=name) for name in names]
        request = MetadataRequest(topics=wanted, allow_auto_topic_creation=False)
        answer = await (await self.any_connection()).ask(METADATA, request, timeout_s=self._timeout_s)
        self.nodes = {broker.node_id: (broker.host, broker.port) for broker in answer.brokers}
        self.controller, self.cluster_id = answer.controller_id, answer.cluster_id
        self._forget_places()
        return {topic.name: _topic(topic) for topic in answer.topics if topic.name}

    async def connection(self, node: int, number: int = 0) -> Connection:
        """Return the connection of this number to a node, opened if there is none.

        A caller waits for the next attempt and gets its outcome; SIDE is the number for short requests.
        """
        if node not in self.nodes:
            await self.topics([])
        if node not in self.nodes:
            at = self._settings.bootstrap_servers
            raise ConnectionLost(f"broker {node} is none of those that the cluster at {at} names")
        return await self._line(self.nodes[node], number).connection()

    def is_connected(self, node: int, number: int = 0) -> bool:
        """Return whether the connection of this number to a node is open."""
        line = self._lines.get((self.nodes[node], number)) if node in self.nodes else None
        return line is not None and line.connection_if_open is not None

    async def any_connection(self) -> Connection:
        """Return a connection with nothing in flight, or one for short requests without a waiting request.

        Without either, return one to the first bootstrap server that accepts the client.
        """
        open_ = [
            (number, line.connection_if_open)
            for (_, number), line in self._lines.items()
            if line.connection_if_open is not None
        ]
        for _, connection in open_:
            if not connection.unanswered_count:
                return connection
        for number, connection in open_:
            if number == SIDE and not connection.is_held_up:
                return connection
        lines = [self._free_line(place) for place in self._servers]
        soonest = min(line.next_at for line in lines)
        now = asyncio.get_running_loop().time()
        failures: list[ConnectionLost] = []
        for line in [line for line in lines if line.next_at <= max(now, soonest)]:
            try:
                return await line.connection(SERVER_S if len(lines) > 1 else None)
            except ConnectionLost as error:
                failures.append(error)
        kind = BrokerRefused if all(isinstance(error, BrokerRefused) for error in failures) else ConnectionLost
        raise kind("; ".join(map(str, failures)))

    async def coordinator(self, group_id: str) -> Connection:
        """Return the connection for short requests to a group's present coordinator; it is looked up each time."""
        return await self.connection(await self.coordinator_node(group_id), SIDE)

    async def coordinator_node(self, key: str, kind: int = GROUP) -> int:
        """Return the node that coordinates a group now, or a transactional id; raises NoCoordinator."""
        request = FindCoordinatorRequest(key=key, key_type=kind)
        answer = await (await self.any_connection()).ask(FIND_COORDINATOR, request, timeout_s=self._timeout_s)
        if answer.error_code != ErrorCode.NONE:
            what = f"the coordinator of {'group' if kind == GROUP else 'transactional id'} {key} is not known"
            raise NoCoordinator(f"{what}: {error_name(answer.error_code)}", answer.error_code)
        self.nodes[answer.node_id] = (answer.host, answer.port)
        return answer.node_id

    def retry_now(self) -> None:
        """Start every waiting attempt at once: the route, or the carrier, has changed."""
        for line in self._lines.values():
            line.retry_now()

    def close(self) -> None:
        """Close every connection at once."""
        self._is_closed = True
        for line in self._lines.values():
            line.close()

    def _line(self, place: Place, number: int) -> Line:
        line = self._lines.get((place, number))
        if line is None:
            line = self._lines[place, number] = Line(lambda limit_s, now: self._open(place, number, limit_s, now))
            if self._is_closed:
                line.close()
        return line

    def _free_line(self, place: Place) -> Line:
        """Return the bootstrap server's line for a node's short requests, unless it is busy.

        So the first requests to the coordinator and to leaders wait for no other connection.
        """
        line = self._line(place, SIDE)
        return line if line.connection_if_open is None else self._line(place, 0)

    def _forget_places(self) -> None:
        known = {*self._servers, *self.nodes.values()}
        self._lines = {key: line for key, line in self._lines.items() if key[0] in known or not line.is_idle}

    async def _open(self, place: Place, number: int, limit_s: float | None, hurried: asyncio.Event) -> Connection:
        settings = self._settings
        timeout_s = min(self._timeout_s, limit_s or self._timeout_s)
        connection = await Connection.open(
            settings.security,
            *place,
            settings.client_id,
            timeout_s=timeout_s,
            unsent_bytes_max=self._unsent_bytes_max,
            silent_s_max=self._silent_s_max,
            traffic=self._traffic,
            known=self._served,
            hurried=hurried,
            reached=lambda: self._broker_reached(place, number),
        )
        self._opened()
        return connection

    def _broker_reached(self, place: Place, number: int) -> None:
        """Let the broker's other connections retry at once: a restored link serves all of them."""
        for (other_place, other), line in self._lines.items():
            if other_place == place and other != number:
                line.broker_reached(is_wanted=other == SIDE)


def uuid_of(topic_id: str | None) -> UUID:
    """Return a topic's id in wire form, by Kafka's text form; zeros if there is none."""
    return NO_UUID if topic_id is None else UUID(bytes=urlsafe_b64decode(topic_id + "=="))


def _topic(topic: MetadataResponseTopic) -> Topic:
    text = None if topic.topic_id == NO_UUID else urlsafe_b64encode(topic.topic_id.bytes).decode().rstrip("=")
    leaders = {entry.partition_index: Leader(entry.leader_id, entry.leader_epoch) for entry in topic.partitions}
    in_sync = {
        one.partition_index: len(one.isr_nodes)
        for one in topic.partitions
        if len(one.isr_nodes) < len(one.replica_nodes)
    }
    return Topic(text, topic.error_code, dict(sorted(leaders.items())), in_sync)
