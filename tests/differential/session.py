"""A case's road through one broker: what it asked and, masked, what it was answered.

Lives here: the case's tools (ask, connections, topics of its own) and the register of cases. Must never come in: how
two brokers compare (trees.py, test_differential.py).
"""

from __future__ import annotations

import re
import ssl
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from edge_broker.errors import ErrorCode
from edge_broker.handlers import APIS
from edge_broker.protocol.api import (
    CREATE_TOPICS,
    FIND_COORDINATOR,
    INIT_PRODUCER_ID,
    LIST_OFFSETS,
    METADATA,
    OFFSET_FETCH,
    PRODUCE,
)
from edge_broker.protocol.message import Message
from edge_broker.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from edge_broker.protocol.messages.find_coordinator import FindCoordinatorRequest
from edge_broker.protocol.messages.init_producer_id import InitProducerIdRequest
from edge_broker.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from edge_broker.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from edge_broker.protocol.messages.offset_fetch import OffsetFetchRequest
from edge_broker.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from edge_broker.protocol.record_batch import build_batch
from tests.differential.trees import Masks, Tree
from tests.differential.wire import ClosedError, Connection
from tests.support.waiting import Deadline

CLOSED = "<closed>"
SETTLE_S = 60
NOW_MS = int(time.time() * 1000) - 60_000  # a minute ago: inside everybody's bounds

# The oldest version that Apache Kafka 4.3.1 still answers (KIP-896); what is older goes to 3.9.2.
OLDEST_OF_KAFKA_4 = {"OffsetCommit": 2, "CreateTopics": 2, "DeleteTopics": 1, "DescribeConfigs": 1}


@dataclass(frozen=True)
class Asked:
    """One request and its answer, masked; CLOSED when the connection was closed instead."""

    label: str
    answer: Tree


@dataclass
class Session:
    """One case at one broker."""

    bootstrap: str
    case: str
    asked: list[Asked] = field(default_factory=list)
    context: ssl.SSLContext | None = None

    def __post_init__(self) -> None:
        """Begin with no connection and no ids met."""
        self._masks = Masks()
        self._connections: dict[str, Connection] = {}
        self._versions: dict[str, list[tuple[int, int]]] = {}
        self._stack = ExitStack()

    def close(self) -> None:
        """Close every connection."""
        self._stack.close()

    def name(self, suffix: str) -> str:
        """Name a topic or group that no other case has."""
        return f"{self.case}-{suffix}"

    def on(self, name: str) -> Connection:
        """The connection of this name, opened at first use."""
        if name not in self._connections:
            self._connections[name] = self._stack.enter_context(Connection(self.bootstrap, context=self.context))
        return self._connections[name]

    def ask(self, key: int, request: Message, version: int, *, on: str = "main", label: str = "") -> Any:
        """Send a request, keep its answer for the comparison and return it; ClosedError ends the case."""
        self.send(key, request, version, on=on)
        return self.receive(key, version, on=on, label=label)

    def send(self, key: int, request: Message, version: int, *, on: str = "main") -> None:
        """Send a request whose answer is read later."""
        self.on(on).send(key, request, version)

    def receive(self, key: int, version: int, *, on: str = "main", label: str = "") -> Any:
        """Read the answer to the oldest request of a connection."""
        api = APIS[key]
        title = f"{len(self.asked) + 1} {api.name} v{version}" + (f" {label}" if label else "")
        try:
            answer = self.on(on).receive()
        except ClosedError:
            self.asked.append(Asked(title, CLOSED))
            raise
        self.asked.append(Asked(title, self._masks.tree(answer, version)))
        return answer

    def ask_body(self, key: int, body: bytes, version: int, *, label: str) -> None:
        """Send a body that may be no request; on a connection of its own, as it may cost it."""
        with Connection(self.bootstrap) as connection:
            connection.send_body(key, body, version)
            try:
                answer = self._masks.tree(connection.receive(), version)
            except ClosedError:
                answer = CLOSED
        self.asked.append(Asked(f"{len(self.asked) + 1} {label}", answer))

    def note(self, label: str, value: Tree) -> None:
        """Keep something seen for the comparison that is no answer."""
        self.asked.append(Asked(f"{len(self.asked) + 1} {label}", value))

    def topic(self, suffix: str = "t", partitions: int = 1, configs: dict[str, str] | None = None) -> str:
        """Make a topic of this case and wait for its leaders; not part of the comparison."""
        name = self.name(suffix)
        settings = [CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()]
        wanted = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, configs=settings)
        answer = self.quietly(CREATE_TOPICS, CreateTopicsRequest(topics=[wanted]), 5)
        assert answer.topics[0].error_code == ErrorCode.NONE, answer
        self.wait_for(name, partitions)
        return name

    def wait_for(self, name: str, partitions: int) -> Any:
        """Wait until a topic has leaders; its metadata."""
        wanted = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
        deadline = Deadline(SETTLE_S)
        while True:
            topic = self.quietly(METADATA, wanted, 12).topics[0]
            if len(topic.partitions) == partitions and self._serves(name, partitions):
                return topic
            deadline.check(f"leaders that serve {name}", topic)
            time.sleep(0.02)

    def _serves(self, name: str, partitions: int) -> bool:
        """True once a broker leads these partitions; Kafka's metadata says so a moment before."""
        asked = [ListOffsetsPartition(partition_index=index, timestamp=-1) for index in range(partitions)]
        request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=name, partitions=asked)])
        answer = self.quietly(LIST_OFFSETS, request, 5)
        return all(found.error_code == ErrorCode.NONE for found in answer.topics[0].partitions)

    def coordinator(self, group: str) -> None:
        """Wait until a group has a coordinator, which Kafka makes a topic for; not part of the comparison."""
        deadline = Deadline(SETTLE_S)
        while True:
            found = self.quietly(FIND_COORDINATOR, FindCoordinatorRequest(coordinator_keys=[group]), 4)
            read = self.quietly(OFFSET_FETCH, OffsetFetchRequest(group_id=group, topics=[]), 5)
            if found.coordinators[0].error_code == ErrorCode.NONE == read.error_code:
                return
            deadline.check(f"a coordinator of {group}", (found, read))
            time.sleep(0.02)

    def producer_id(self) -> int:
        """A new producer id, not 0; asked again while Kafka has no block of them. Not part of the comparison."""
        wanted = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
        deadline = Deadline(SETTLE_S)
        while (found := self.quietly(INIT_PRODUCER_ID, wanted, 4)).producer_id <= 0:
            deadline.check("a producer id", found)
            time.sleep(0.02)
        return int(found.producer_id)

    def fill(self, topic: str, values: Iterable[bytes], *, partition: int = 0, timestamps: Iterable[int] = ()) -> None:
        """Produce one batch for each value, a second apart unless told; not part of the comparison."""
        times = list(timestamps)
        for index, value in enumerate(values):
            at = times[index] if times else NOW_MS + 1000 * index
            answer = self.quietly(PRODUCE, produce(topic, build_batch([(b"k", value)], timestamp_ms=at), partition), 9)
            assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE, answer

    def quietly(self, key: int, request: Message, version: int) -> Any:
        """Ask what is no part of the comparison; the answer."""
        connection = self.on("set-up")
        connection.send(key, request, version)
        return connection.receive()


def produce(topic: str, records: bytes | None, partition: int = 0, acks: int = -1) -> ProduceRequest:
    """Ask for one batch to be appended."""
    data = PartitionProduceData(index=partition, records=None if records is None else memoryview(records))
    wanted = TopicProduceData(name=topic, partition_data=[data])
    return ProduceRequest(acks=acks, timeout_ms=30_000, topic_data=[wanted])


@dataclass(frozen=True)
class Case:
    """One program at one version; `old` ones are held against Apache Kafka 3.9.2."""

    name: str
    version: int
    program: Callable[[Session, int], None]
    old: bool

    @property
    def id(self) -> str:
        """What pytest and known.py call it; also a legal topic name."""
        return f"{self.name}-v{self.version}"


CASES: list[Case] = []


def case(key: int, *, versions: Iterable[int] | None = None) -> Callable[[Callable[[Session, int], None]], None]:
    """Register a program for one API, at every version that we serve unless told."""
    api = APIS[key]
    wanted = range(api.min_version, api.max_version + 1) if versions is None else versions

    def register(program: Callable[[Session, int], None]) -> None:
        name = re.sub(r"[^a-z0-9]+", "-", program.__name__)
        oldest = OLDEST_OF_KAFKA_4.get(api.name, 0)
        CASES.extend(Case(name, version, program, version < oldest) for version in wanted)

    return register
