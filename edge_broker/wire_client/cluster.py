"""A cluster as a client sees it: topics and where their partitions are led, offsets, settings, bytes on disk.

Contains: which broker is asked what, in requests of bounded size. Does not contain: groups (groups.py), records
(reading.py), text for people. Every function raises WireFailure.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar

from drupelet.command.config_check import nearest
from drupelet.kafka.security import Security
from edge_broker.errors import ErrorCode, error_name
from edge_broker.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from edge_broker.protocol.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from edge_broker.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from edge_broker.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from edge_broker.wire_client import apis
from edge_broker.wire_client.connection import Connection, NotThere, WireFailure

LATEST, EARLIEST = -1, -2
CONSUMER, ANY_REPLICA = -1, -2  # replica ids that ListOffsets is asked with; Kafka calls the latter a debugger's
TOPIC_RESOURCE, BROKER_RESOURCE = 2, 4
SET_FOR = {1: "topic", 5: ""}  # by the source of a setting; the others are brokers' (KIP-226)
PARTITIONS_AT_ONCE = 1000
TOPICS_AT_ONCE = 200

Place = tuple[str, int]  # a topic and the number of one of its partitions
T = TypeVar("T")


class Node(NamedTuple):
    """A broker that is there, by the address that it gives to clients."""

    host: str
    port: int
    rack: str | None


class Partition(NamedTuple):
    """A partition, its leader, -1 for none, and the brokers that have it: the preferred leader first."""

    number: int
    leader: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]
    error_code: int


class Topic(NamedTuple):
    """A topic and its partitions in order; `error_code` when it cannot be told."""

    name: str
    is_internal: bool
    partitions: list[Partition]
    error_code: int


class PartitionAnswer(NamedTuple):
    """The answer for one partition, or its error code."""

    offset: int
    timestamp: int
    error_code: int


class Setting(NamedTuple):
    """One key of a topic and its value; `set_for` is "topic" or "brokers", empty where it is the default."""

    key: str
    value: str | None
    set_for: str


class BoardProblem(NamedTuple):
    """One thing that is wrong with a broker of ours, in its words; `for_ms` is how long, -1 if unknown."""

    kind: str
    text: str
    for_ms: int


class BrokerDisk(NamedTuple):
    """Bytes of a broker's disks, -1 if unknown, and what is wrong with the broker."""

    total_bytes: int
    free_bytes: int
    problems: tuple[BoardProblem, ...]
    error_code: int


class Cluster:
    """The brokers of one address, and a connection to each that was needed."""

    def __init__(self, host: str, port: int, timeout_s: float, security: Security) -> None:
        self._timeout_s = timeout_s
        self._security = security
        self.bootstrap = Connection(host, port, timeout_s, security)
        self.brokers: dict[int, Node] = {}  # as Metadata told last, and the next two
        self.controller = -1
        self.cluster_id: str | None = None
        self._connections: dict[int, Connection] = {}

    def close(self) -> None:
        """Let every connection go."""
        for connection in (self.bootstrap, *self._connections.values()):
            connection.close()

    def nodes(self) -> list[int]:
        """The ids of the brokers."""
        if not self.brokers:
            self.topics([])
        return sorted(self.brokers)

    def at(self, node: int) -> Connection:
        """The connection to a broker; the only one of a cluster is where the command was pointed to."""
        if len(self.brokers) <= 1:
            return self.bootstrap
        if node not in self._connections:
            host, port, _ = self.brokers[node]
            what = f"broker {node} cannot be reached at {host}:{port}, the address that it gives to clients"
            self._connections[node] = Connection(host, port, self._timeout_s, self._security, what)
        return self._connections[node]

    def topics(self, names: Sequence[str] | None = None) -> dict[str, Topic]:
        """These topics, or all; nothing is created by asking."""
        wanted = None if names is None else [MetadataRequestTopic(name=name) for name in names]
        request = MetadataRequest(topics=wanted, allow_auto_topic_creation=False)
        answer = self.bootstrap.ask(apis.METADATA, request)
        self.brokers = {each.node_id: Node(each.host, each.port, each.rack) for each in answer.brokers}
        self.controller, self.cluster_id = answer.controller_id, answer.cluster_id
        topics = {}
        for topic in sorted(answer.topics, key=lambda topic: topic.name or ""):
            partitions = [
                Partition(
                    one.partition_index, one.leader_id, tuple(one.replica_nodes), tuple(one.isr_nodes), one.error_code
                )
                for one in sorted(topic.partitions, key=lambda one: one.partition_index)
            ]
            topics[topic.name or ""] = Topic(topic.name or "", topic.is_internal, partitions, topic.error_code)
        return topics

    def topic(self, name: str) -> Topic:
        """One topic; the sentence about an unknown one names the nearest."""
        found = self.topics([name]).get(name) if name else None
        if found is None or found.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise not_there("topic", name, self.topics(), self.bootstrap.place)
        if found.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION:
            raise NotThere(f"no topic can have the name {name!r}: use letters, digits, '.', '_' and '-'")
        if found.error_code not in (ErrorCode.NONE, ErrorCode.LEADER_NOT_AVAILABLE):
            raise WireFailure(f"the broker does not tell about topic {name!r}: {error_name(found.error_code)}")
        return found

    def offsets(self, topics: Iterable[Topic], timestamp: int) -> dict[Place, PartitionAnswer]:
        """The offset of each partition that is led: LATEST, EARLIEST, or the first at or after a time (-1: none)."""
        by_leader: dict[int, list[Place]] = defaultdict(list)
        for topic in topics:
            for partition in topic.partitions:
                if partition.leader in self.brokers:
                    by_leader[partition.leader].append((topic.name, partition.number))
        found: dict[Place, PartitionAnswer] = {}
        for leader, places in by_leader.items():
            found |= self._offsets_at(leader, places, timestamp)
        return found

    def ends_at(self, node: int, places: Sequence[Place]) -> dict[Place, PartitionAnswer]:
        """Return a broker's ends of partitions, with any leader; the error code if it returns none."""
        return self._offsets_at(node, places, LATEST, ANY_REPLICA)

    def _offsets_at(
        self, node: int, places: Sequence[Place], timestamp: int, replica: int = CONSUMER
    ) -> dict[Place, PartitionAnswer]:
        found: dict[Place, PartitionAnswer] = {}
        for some in chunks(places, PARTITIONS_AT_ONCE):
            found |= self._some_offsets_at(node, some, timestamp, replica)
        return found

    def _some_offsets_at(
        self, node: int, places: Sequence[Place], timestamp: int, replica: int
    ) -> dict[Place, PartitionAnswer]:
        topics = [
            ListOffsetsTopic(
                name=name,
                partitions=[ListOffsetsPartition(partition_index=number, timestamp=timestamp) for number in numbers],
            )
            for name, numbers in by_topic(places).items()
        ]
        answer = self.at(node).ask(apis.LIST_OFFSETS, ListOffsetsRequest(replica_id=replica, topics=topics))
        asked = frozenset(places)  # what else an answer may hold was not asked for
        return {
            (topic.name, one.partition_index): PartitionAnswer(one.offset, one.timestamp, one.error_code)
            for topic in answer.topics
            for one in topic.partitions
            if (topic.name, one.partition_index) in asked
        }

    def settings(self, names: Sequence[str], keys: Sequence[str] | None = None) -> dict[str, list[Setting]]:
        """The settings of topics by name, all or these keys; a topic that cannot be told is left out."""
        found = {}
        for some in chunks(names, TOPICS_AT_ONCE):
            wanted = None if keys is None else list(keys)
            resources = [
                DescribeConfigsResource(resource_type=TOPIC_RESOURCE, resource_name=name, configuration_keys=wanted)
                for name in some
            ]
            answer = self.bootstrap.ask(apis.DESCRIBE_CONFIGS, DescribeConfigsRequest(resources=resources))
            for one in answer.results:
                if not one.error_code:
                    found[one.resource_name] = [
                        Setting(entry.name, entry.value, SET_FOR.get(entry.config_source, "brokers"))
                        for entry in one.configs
                    ]
        return found

    def broker_setting(self, node: int, key: str) -> str:
        """Return a broker's own value of one key; empty if it has none, or does not tell."""
        resource = DescribeConfigsResource(
            resource_type=BROKER_RESOURCE, resource_name=str(node), configuration_keys=[key]
        )
        answer = self.at(node).ask(apis.DESCRIBE_CONFIGS, DescribeConfigsRequest(resources=[resource]))
        values = [entry.value for one in answer.results for entry in one.configs if entry.name == key]
        return values[0] or "" if values else ""

    def disk(self, node: int) -> BrokerDisk | None:
        """Return the size of a broker's disks and its problems; None if it does not serve the request."""
        connection = self.at(node)
        if not connection.serves(apis.DESCRIBE_LOG_DIRS):
            return None
        answer = connection.ask(apis.DESCRIBE_LOG_DIRS, DescribeLogDirsRequest(topics=[]))
        codes = [answer.error_code, *(one.error_code for one in answer.results)]
        problems = tuple(BoardProblem(one.kind, one.text, one.for_ms) for one in answer.problems)
        total = [one.total_bytes for one in answer.results]
        free = [one.usable_bytes for one in answer.results]
        known = bool(total) and min(*total, *free) >= 0
        code = next(filter(None, codes), 0)
        return BrokerDisk(sum(total) if known else -1, sum(free) if known else -1, problems, code)

    def sizes(self, topic: Topic | None = None) -> dict[Place, int] | None:
        """Bytes of the partitions of one topic or of all, replicas counted each; None where a broker does not tell."""
        wanted = None
        if topic is not None:
            numbers = [partition.number for partition in topic.partitions]
            wanted = [DescribableLogDirTopic(topic=topic.name, partitions=numbers)]
        sizes: dict[Place, int] = defaultdict(int)
        for node in self.nodes():
            connection = self.at(node)
            if not connection.serves(apis.DESCRIBE_LOG_DIRS):
                return None
            answer = connection.ask(apis.DESCRIBE_LOG_DIRS, DescribeLogDirsRequest(topics=wanted))
            if answer.error_code:
                return None
            for result in answer.results:
                for one in result.topics:
                    for partition in one.partitions:
                        sizes[one.name, partition.partition_index] += partition.partition_size
        return dict(sizes)


def not_there(kind: str, name: str, known: Iterable[str], place: str) -> NotThere:
    """Return the error for a topic or group that does not exist."""
    near = nearest(name, known)
    hint = f"; did you mean {near!r}?" if near else f"; `edge-broker {kind}s` lists them"
    return NotThere(f"there is no {kind} {name!r} at {place}{hint}")


def by_topic(places: Iterable[Place]) -> Mapping[str, list[int]]:
    """The partitions of each topic."""
    found: dict[str, list[int]] = defaultdict(list)
    for name, number in places:
        found[name].append(number)
    return found


def chunks(things: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """The same in slices of at most `size`."""
    for at in range(0, len(things), size):
        yield things[at : at + size]
