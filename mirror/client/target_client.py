"""Queries and changes the target: creates topics, fences, opens the state topic, looks up the mirror's last batches.

Does not contain: decisions of the mirror, Produce requests of streams (producer/sender.py).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence

from drupelet.kafka.client import ClientSettings, replicas_for
from drupelet.printable import peer_text
from edge_broker.errors import ErrorCode, error_name
from edge_broker.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from edge_broker.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from edge_broker.protocol.messages.init_producer_id import InitProducerIdRequest
from edge_broker.protocol.messages.metadata import MetadataRequest
from edge_broker.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from edge_broker.protocol.record_batch import build_batch
from kafka_wire.apis import (
    ADD_PARTITIONS_TO_TXN,
    ALL_REPLICAS,
    BROKER_RESOURCE,
    DESCRIBE_CONFIGS,
    INCREMENTAL_ALTER_CONFIGS,
    INIT_PRODUCER_ID,
    METADATA,
    PRODUCE,
    TOPIC_CONFIG,
    TOPIC_RESOURCE,
)
from kafka_wire.cluster import SIDE, Partition, Topic
from kafka_wire.connection.connection import Connection
from kafka_wire.connection.errors import WireError
from kafka_wire.partitions import TopicPartition
from kafka_wire.transactions.fencing import Fencing
from kafka_wire.transactions.granting import denied_operations
from kafka_wire.transactions.last_batch_lookup import LookupRequest, LookupResult, look_up
from kafka_wire.transactions.transactions import Transactions
from mirror.client.log_queries import Asking
from mirror.client.state_topic import StateTopic
from mirror.client.topic_admin import AGAIN, Created, NewTopicChoices, Refusal, create, grow
from mirror.errors import SameClusterError, ShortError, TargetError, TopicRefusedError
from mirror.partition.provenance import same_cluster
from mirror.partition.stream import Producer
from mirror.topics.config_rules import Setting
from mirror.topics.selection import COPIED_SETTINGS

ANY_TIME_AHEAD_MS = str(2**63 - 1)  # boards without a clock write from the future; Kafka 4 refuses more than an hour


REQUEST_BYTES_MAX = "socket.request.max.bytes"
MIN_IN_SYNC = "min.insync.replicas"
ADMIN_S = 60.0  # for brokers to create topics, in addition to a request's own time


class Target(Asking):
    """The cluster that is written to; every method raises TargetError."""

    def __init__(self, settings: ClientSettings, *, replicas: int = 0) -> None:
        super().__init__(settings, TargetError)
        self._timeout_ms = settings.request_timeout_ms
        self.source_cluster_id: Callable[[], str | None] = lambda: None
        """Return the id that this cluster must not have."""
        self._replicas = replicas
        self._partitions: dict[str, int] = {}  # of each queried topic; 0 if it does not exist
        self._topics_lock = asyncio.Lock()
        self._waiting: dict[str, tuple[int, Mapping[str, str]]] = {}  # topics that streams wait for
        self._in_sync_min: dict[str, tuple[Topic, int | None]] = {}  # with the metadata that it was queried for
        self._created: dict[str, Created] = {}  # results of topics created with another, until queried

    async def close(self) -> None:
        """Close at once: requests in flight may arrive or not."""
        self.hang_up()

    async def topics(self, names: Sequence[str] | None = None) -> dict[str, Topic]:
        """Return those of these topics, or of all, that it describes; raises SameClusterError if this is the source."""
        found = await super().topics(names)
        if self.cluster_id is not None and self.cluster_id == self.source_cluster_id():
            raise SameClusterError(same_cluster(self.cluster_id))
        return found

    async def producer(self) -> Producer:
        """Return a new producer id, which no other producer uses."""
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=self._timeout_ms)
        async with self._query() as cluster:
            connection = await cluster.any_connection()
            answer = await connection.ask(INIT_PRODUCER_ID, request, timeout_s=self._timeout_s)
        if answer.error_code:
            raise TargetError(f"no producer id is given: {error_name(answer.error_code)}")
        return Producer(answer.producer_id, answer.producer_epoch)

    async def ensure_topic(
        self, partition: TopicPartition, partitions: int, settings: Mapping[str, str]
    ) -> dict[str, str] | None:
        """Make sure the partition exists; its topic is created with, or grows to, so many partitions.

        Returns the configs of a topic that was created, fewer than `settings` if the target refuses some.
        Raises TopicRefusedError if only this partition has to wait.
        """
        self._waiting[partition.topic] = (partitions, settings)
        async with self._topics_lock:
            try:
                return await self._ensure_topic(partition, partitions, settings)
            except TargetError:
                self._partitions.clear()
                raise
            finally:
                self._waiting.pop(partition.topic, None)

    def look_anew(self, topic: str) -> None:
        """Query again whether a topic exists when that is needed next."""
        self.forget(topic)
        self._partitions.pop(topic, None)

    async def _ensure_topic(
        self, partition: TopicPartition, partitions: int, settings: Mapping[str, str]
    ) -> dict[str, str] | None:
        name = partition.topic
        unknown = sorted({name, *self._waiting} - self._partitions.keys())
        if unknown:
            found = await self.topics(unknown)
            self._partitions |= {topic: len(found[topic].leaders) if topic in found else 0 for topic in unknown}
        had = self._partitions.get(name, 0)
        if not had and name not in self._created:
            self._waiting[name] = (partitions, settings)  # another partition of it may have been refused meanwhile
            await self._create_waiting(self._partitions)
        created = self._created.pop(name, None)
        if isinstance(created, Refusal):
            raise _refusal_error(f"topic {name} cannot be created with {partitions} partitions", created)
        if not had and created is None:
            self.look_anew(name)  # another client was quicker; the next call queries the number of partitions
        elif 0 < had <= partition.partition:  # this partition does not wait for other missing ones
            await self._grow(name, partitions)
            self.forget(name)
            self._partitions[name] = partitions
        return created

    async def _create_waiting(self, there: dict[str, int]) -> None:
        """Create every topic that a stream waits for, in as few requests as possible: each is a round trip.

        First with all configs, then without those that Kafka before 3.6 lacks, then with `cleanup.policy` alone.
        """
        wanted = {}
        for name, (partitions, settings) in self._waiting.items():
            if not there.get(name):
                least = {key: value for key, value in settings.items() if key == "cleanup.policy"}
                choices = ({**settings, "message.timestamp.after.max.ms": ANY_TIME_AHEAD_MS}, dict(settings), least)
                wanted[name] = NewTopicChoices(partitions, choices)
        async with self._query(ADMIN_S + self._timeout_s) as cluster:
            replicas = self._replicas or replicas_for(len(cluster.nodes))
            self._created |= await create(cluster, wanted, replicas, self._timeout_s)
        there |= {name: wanted[name].partitions for name in wanted if isinstance(self._created[name], dict)}

    async def _grow(self, name: str, partitions: int) -> None:
        async with self._query(ADMIN_S + self._timeout_s) as cluster:
            refusal = await grow(cluster, name, partitions, self._timeout_s)
        if refusal is not None:
            raise _refusal_error(f"topic {name} cannot grow to {partitions} partitions", refusal)

    def fencing(self, transactional_id: str) -> Fencing:
        """Return an object that fences partitions of this cluster, under a transactional id of one mirror."""
        return Fencing(self.cluster, transactional_id, timeout_s=self._timeout_s)

    def transactions(self, transactional_id: str, timeout_ms: int) -> Transactions:
        """Return the same with transactions of data under that id, which the target aborts after `timeout_ms`."""
        transactions = Transactions(self.cluster, transactional_id, timeout_s=self._timeout_s)
        transactions.transaction_timeout_ms = timeout_ms
        return transactions

    async def has_fences(self) -> bool:
        """Return whether the target has transactions, so that older mirrors can be fenced if ACLs allow."""
        async with self._query() as cluster:
            connection = await cluster.any_connection()
        return connection.serves(ADD_PARTITIONS_TO_TXN)

    async def denied_operations(self, transactional_ids: Sequence[str]) -> dict[str, list[str]]:
        """Return the operations that the user lacks, of each transactional id that lacks one."""
        async with self._query() as cluster:
            connection = await cluster.any_connection()
            return await denied_operations(connection, transactional_ids, timeout_s=self._timeout_s)

    def state_topic(self, name: str, transactional_id: str | None = None) -> StateTopic:
        """Return the state topic of one mirror; every coroutine of it raises WireError."""
        return StateTopic(self.cluster, name, timeout_s=self._timeout_s, transactional_id=transactional_id)

    def topic_id(self, topic: str) -> str | None:
        """Return the id of a queried topic, by the last metadata."""
        known = self._known.get(topic)
        return None if known is None else known.topic_id

    async def look_up(
        self, wanted: Mapping[Partition, LookupRequest], steps_max: int
    ) -> dict[Partition, LookupResult | str]:
        """Look up the last batches of producers; a text says why a partition cannot be read now."""
        found = await look_up(self.cluster, wanted, timeout_s=self._timeout_s, steps_max=steps_max)
        for (topic, _), told in found.items():
            if isinstance(told, str):
                self.forget(topic)
        return found

    async def topic_settings(self, names: Sequence[str]) -> dict[str, dict[str, Setting] | str]:
        """Return the configs of each topic that the mirror syncs, or why it does not describe them."""
        resources = [
            DescribeConfigsResource(
                resource_type=TOPIC_RESOURCE, resource_name=name, configuration_keys=list(COPIED_SETTINGS)
            )
            for name in names
        ]
        async with self._query() as cluster:
            connection = await cluster.any_connection()
            request = DescribeConfigsRequest(resources=resources)
            answer = await connection.ask(DESCRIBE_CONFIGS, request, timeout_s=self._timeout_s)
        return dict.fromkeys(names, "it was not answered") | {
            result.resource_name: error_name(result.error_code)
            if result.error_code
            else {one.name: Setting(one.value or "", one.config_source == TOPIC_CONFIG) for one in result.configs}
            for result in answer.results
        }

    async def alter_topic(self, name: str, changes: Mapping[str, str | None]) -> str:
        """Set keys of a topic, or delete those with None; return why that is refused, empty if it is not."""
        configs = [
            AlterableConfig(name=key, config_operation=int(value is None), value=value)
            for key, value in changes.items()
        ]
        resource = AlterConfigsResource(resource_type=TOPIC_RESOURCE, resource_name=name, configs=configs)
        request = IncrementalAlterConfigsRequest(resources=[resource])
        async with self._query() as cluster:
            connection = await cluster.any_connection()
            answer = await connection.ask(INCREMENTAL_ALTER_CONFIGS, request, timeout_s=self._timeout_s)
        refused = [one for one in answer.responses if one.error_code]
        return f"{error_name(refused[0].error_code)}: {peer_text(refused[0].error_message)}" if refused else ""

    async def check_in_sync(self, partition: TopicPartition) -> None:
        """Raise ShortError if a partition is known to have fewer in-sync replicas than min.insync.replicas.

        A fence's marker would be written late there, and the coordinator starts no other transaction before.
        """
        topic = self._known.get(partition.topic)
        in_sync = None if topic is None else topic.in_sync.get(partition.partition)
        if topic is None or in_sync is None:
            return
        known, wanted = self._in_sync_min.get(partition.topic, (None, None))
        if known is not topic:
            wanted = await self.in_sync_min(partition.topic)
            self._in_sync_min[partition.topic] = topic, wanted
        if wanted is not None and in_sync < wanted:
            self.forget(partition.topic)
            name = f"{partition.topic}-{partition.partition}"
            raise ShortError(f"{name} has {in_sync} in-sync replicas, and {MIN_IN_SYNC}={wanted}")

    async def in_sync_min(self, topic: str) -> int | None:
        """Return a topic's min.insync.replicas; None if it is not described."""
        request = _of_one_setting(TOPIC_RESOURCE, topic, MIN_IN_SYNC)
        async with self._query() as cluster:
            connection = await cluster.any_connection()
            answer = await connection.ask(DESCRIBE_CONFIGS, request, timeout_s=self._timeout_s)
        return _number(answer, MIN_IN_SYNC)

    async def request_bytes_max(self, node: int) -> int | None:
        """Return a broker's socket.request.max.bytes; None if it is not described."""
        request = _of_one_setting(BROKER_RESOURCE, str(node), REQUEST_BYTES_MAX)
        try:
            async with self._query() as cluster:
                answer = await self._ask(cluster, node, DESCRIBE_CONFIGS, request)
        except TargetError:
            return None
        return _number(answer, REQUEST_BYTES_MAX)

    async def witness(self, node: int) -> Connection | None:
        """Return a connection to a broker for queries, None if there is none now."""
        try:
            return await self.cluster.connection(node, SIDE)
        except WireError:
            return None

    async def answers(self, witness: Connection) -> bool:
        """Return whether this very connection is still open and answers."""
        try:
            await witness.ask(METADATA, MetadataRequest(topics=[]), timeout_s=self._timeout_s)
        except WireError:
            return False
        return True

    async def start_offset(self, partition: TopicPartition) -> int:
        """Return the first offset of a partition."""
        starts, _ = await self.bounds([partition])
        return starts[partition]

    async def write(self, topic: str, key: bytes, value: bytes, timeout_s: float) -> None:
        """Write one record to partition 0 and wait for all replicas."""
        await self.write_batch(topic, build_batch([(key, value)], timestamp_ms=int(time.time() * 1000)), timeout_s)

    async def write_batch(self, topic: str, batch: bytes, timeout_s: float) -> None:
        """Write one batch to partition 0 and wait for all replicas."""
        partition = TopicPartition(topic, 0)
        data = PartitionProduceData(index=0, records=memoryview(batch))
        request = ProduceRequest(
            acks=ALL_REPLICAS,
            timeout_ms=self._timeout_ms,
            topic_data=[TopicProduceData(name=topic, partition_data=[data])],
        )
        leader = await self.leader(partition)
        async with self._query(timeout_s) as cluster:
            answer = await self._ask(cluster, leader.node, PRODUCE, request)
        told = [one for each in answer.responses for one in each.partition_responses]
        code = told[0].error_code if len(told) == 1 else ErrorCode.UNKNOWN_SERVER_ERROR
        if code:
            self.forget(topic)
            raise TargetError(f"{topic} does not take a record: {error_name(code)}")


def _of_one_setting(kind: int, resource: str, name: str) -> DescribeConfigsRequest:
    one = DescribeConfigsResource(resource_type=kind, resource_name=resource, configuration_keys=[name])
    return DescribeConfigsRequest(resources=[one])


def _number(answer: DescribeConfigsResponse, name: str) -> int | None:
    """Return the value of a config; None if it is not described, or no number."""
    values = [one.value or "" for result in answer.results for one in result.configs if one.name == name]
    return int(values[0]) if values and values[0].isdigit() else None


def _refusal_error(what: str, refusal: Refusal) -> TargetError:
    """Return the error of a refusal: TopicRefusedError, unless the same request may succeed a moment later."""
    kind = TargetError if refusal.code in AGAIN else TopicRefusedError
    return kind(f"{what}: {refusal}")
