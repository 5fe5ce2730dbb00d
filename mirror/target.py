"""The end that is written to, through aiokafka: topics made to order, batches acknowledged by all replicas.

No decision of the mirror may come in here. One place reaches past aiokafka's documented classes: the end of a producer
whose broker is away (its `stop()` waits for deliveries for ever).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any

from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.admin import NewPartitions
from aiokafka.errors import BrokerResponseError, KafkaError, for_code
from aiokafka.protocol.offset import OffsetRequest

from drupelet.errors import sentence
from drupelet.kafka_client import ClientSettings
from mirror import fetching
from mirror.clients import METADATA_AGE_MS, Admin, Created, NewTopicChoices, explained, mapped
from mirror.errors import TargetError, TopicRefusedError
from mirror.fetching import READ_UNCOMMITTED, Content

LATEST, EARLIEST = -1, -2  # of ListOffsets: the end, the start
ABANDON_S = 0.5
ANY_TIME_AHEAD_MS = str(2**63 - 1)  # boards without a clock write from the future; Kafka 4 refuses more than an hour


class Target:
    """The cluster that is written to: topics made to order, batches acknowledged by all replicas, in order."""

    def __init__(self, settings: ClientSettings, *, compression: str, batch_bytes_max: int, replicas: int = 0) -> None:
        self._settings = settings
        self._compression = compression
        self._batch_bytes_max = batch_bytes_max
        self._timeout_ms = settings.request_timeout_ms
        self._replicas = replicas
        self._admin = Admin(self._settings)
        self._producer: Any = None
        self._topics: dict[str, int] | None = None
        self._let_go: asyncio.Future[None] | None = None
        self._topics_lock = asyncio.Lock()
        self._waiting: dict[str, tuple[int, Mapping[str, str]]] = {}  # topics that lanes wait for
        self._created: dict[str, Created] = {}  # what became of those made with another, until they are asked for

    async def open(self) -> None:
        """Connect and take a new producer id; raises TargetError."""
        with mapped(TargetError):
            producer = AIOKafkaProducer(
                **self._settings.producer_arguments(self._compression, self._batch_bytes_max),
                metadata_max_age_ms=METADATA_AGE_MS,
            )
            try:
                async with asyncio.timeout(self._timeout_ms / 1000):
                    await explained(self._settings, producer.start())
            except BaseException:
                await _abandon(producer)
                raise
        self._producer, self._topics = producer, None
        self._created.clear()
        self._let_go = asyncio.get_running_loop().create_future()

    async def close(self) -> None:
        """Let go at once: what is under way may or may not arrive."""
        producer, self._producer = self._producer, None
        if self._let_go is not None and not self._let_go.done():
            self._let_go.set_result(None)
        with contextlib.suppress(KafkaError, OSError):
            await self._admin.close()
            if producer is not None:
                await _abandon(producer)

    async def topics(self) -> dict[str, int]:
        """Return every topic with its number of partitions; raises TargetError."""
        with mapped(TargetError):
            async with asyncio.timeout(self._timeout_ms / 1000):
                return await self._admin.topics()

    async def ensure_topic(
        self, partition: TopicPartition, partitions: int, settings: Mapping[str, str]
    ) -> dict[str, str] | None:
        """Make sure the partition is there; its topic is created with, or grows to, so many partitions.

        Returns the settings of a topic that was created, fewer than asked for where the target does not take them all.
        Raises TargetError; TopicRefusedError where only this partition has to wait.
        """
        self._waiting[partition.topic] = (partitions, settings)
        async with self._topics_lock:
            try:
                with mapped(TargetError):
                    async with asyncio.timeout(2 * self._timeout_ms / 1000):
                        return await self._ensure_topic(partition, partitions, settings)
            except TargetError as error:
                self._topics = None
                if not isinstance(error, TopicRefusedError):
                    await self._admin.close()
                raise
            finally:
                self._waiting.pop(partition.topic, None)

    async def _ensure_topic(
        self, partition: TopicPartition, partitions: int, settings: Mapping[str, str]
    ) -> dict[str, str] | None:
        if self._topics is None:
            self._topics = await self._admin.topics()
        name, had = partition.topic, self._topics.get(partition.topic, 0)
        if not had and name not in self._created:
            self._waiting[name] = (partitions, settings)  # another partition of it may have been refused meanwhile
            await self._create_waiting(self._topics)
        created = self._created.pop(name, None)
        if isinstance(created, Exception):
            with _refusals(f"topic {name} cannot be created with {partitions} partitions"):
                raise created
        if not had and created is None:
            self._topics = None  # someone else was quicker; how many partitions they made is asked next time
        elif 0 < had <= partition.partition:  # that others are missing is no matter of this one
            await self._grow(name, partitions)
            self._topics[name] = partitions
        return created

    async def _create_waiting(self, there: dict[str, int]) -> None:
        """Create every topic that is waited for, in as few requests as that takes: each is a round trip.

        With all settings, or without what Kafka before 3.6 does not know, or with what cannot be left out.
        """
        wanted = {}
        for name, (partitions, settings) in self._waiting.items():
            if not there.get(name):
                least = {key: value for key, value in settings.items() if key == "cleanup.policy"}
                choices = ({**settings, "message.timestamp.after.max.ms": ANY_TIME_AHEAD_MS}, dict(settings), least)
                wanted[name] = NewTopicChoices(partitions, choices)
        self._created |= await self._admin.create(wanted, await self._admin.replicas(self._replicas))
        there |= {name: wanted[name].partitions for name in wanted if isinstance(self._created[name], dict)}

    async def _grow(self, name: str, partitions: int) -> None:
        client = await self._admin.client()
        with _refusals(f"topic {name} cannot grow to {partitions} partitions"):
            await client.create_partitions({name: NewPartitions(partitions)})

    async def end_offset(self, partition: TopicPartition) -> int:
        """Return the end offset of a partition at the target; raises TargetError."""
        return await self._bound(partition, LATEST)

    async def _bound(self, partition: TopicPartition, which: int) -> int:
        async with self._asking() as producer:
            return await _bound(producer, partition, which)

    async def record_at(self, partition: TopicPartition, offset: int) -> Content | None:
        """Return the record at an offset, None when there is none; raises TargetError."""
        async with self._asking() as producer:
            await producer.partitions_for(partition.topic)
            return await fetching.record_at(producer.client, partition, offset)

    @contextlib.asynccontextmanager
    async def _asking(self) -> AsyncIterator[Any]:
        """The producer, and `request_timeout_ms` to ask it; raises TargetError."""
        if self._producer is None:
            raise TargetError("not connected")
        with mapped(TargetError):
            async with asyncio.timeout(self._timeout_ms / 1000):
                yield self._producer

    async def start_offset(self, partition: TopicPartition) -> int:
        """Return the first offset of a partition at the target; raises TargetError."""
        return await self._bound(partition, EARLIEST)

    def batch(self) -> Any:
        """Return an empty batch; its `append(timestamp=, key=, value=, headers=)` returns None when it is full."""
        if self._producer is None:
            raise TargetError("not connected")
        return self._producer.create_batch()

    async def deliver(self, batch: Any, to: TopicPartition, timeout_s: float) -> int | None:
        """Send a batch and return its first offset at the target once all replicas have it (None: not told).

        Raises TargetError (it may arrive or not: this producer must be closed), RecordTooLargeError (it did not).
        """
        producer, let_go = self._producer, self._let_go
        if producer is None or let_go is None:
            raise TargetError("not connected")
        with mapped(TargetError):
            async with asyncio.timeout(timeout_s):
                if to.partition not in await producer.partitions_for(to.topic):
                    await producer.client.force_metadata_update()
                if to.partition not in await producer.partitions_for(to.topic):
                    raise TargetError(f"{to.topic}-{to.partition} is not there")
                sent = await producer.send_batch(batch, to.topic, partition=to.partition)
                await asyncio.wait({sent, let_go}, return_when=asyncio.FIRST_COMPLETED)
                if not sent.done():
                    raise TargetError("the producer was closed")
                told = await sent
        return told.offset if told is not None and told.offset >= 0 else None

    async def write(self, topic: str, key: bytes, value: bytes, timeout_s: float) -> None:
        """Send one record to partition 0 and wait for all replicas; raises TargetError."""
        batch = self.batch()
        batch.append(timestamp=None, key=key, value=value, headers=[])
        await self.deliver(batch, TopicPartition(topic, 0), timeout_s)


@contextlib.contextmanager
def _refusals(what: str) -> Iterator[None]:
    """Tell what a broker answered about one topic from what is wrong with the broker."""
    try:
        yield
    except BrokerResponseError as error:
        if error.retriable:
            raise
        raise TopicRefusedError(f"{what}: {sentence(error)}") from error


async def _bound(producer: Any, partition: TopicPartition, which: int) -> int:
    await producer.partitions_for(partition.topic)
    leader = producer.client.cluster.leader_for_partition(partition)
    if leader in (None, -1):
        await producer.client.force_metadata_update()
        raise TargetError(f"{partition} has no leader")
    asked = [(partition.topic, [(partition.partition, which)])]
    answer = await producer.client.send(leader, OffsetRequest(-1, READ_UNCOMMITTED, asked))
    _, code, *rest = answer.topics[0][1][0]
    if code:
        raise TargetError(f"the bounds of {partition} were not told: {for_code(code).__name__}")
    offset: int = rest[-1]
    return offset


async def _abandon(producer: Any) -> None:
    """Close a producer without waiting for its deliveries: first its task, then its connections."""
    task = producer._sender.sender_task
    if task is not None:
        task.cancel()
    await producer.client.close()  # fails the requests under way, for which the cancelled task waits
    while task is not None and not task.done():
        await asyncio.wait([task], timeout=ABANDON_S)
        task.cancel()  # it may wait for metadata, which nobody brings any more
    producer._closed = True  # else it complains when it is collected that nobody called `stop()`
