"""The two ends, through aiokafka: a Source that is read and committed to, a Target that is written to.

No decision of the mirror may come in here. aiokafka's exceptions are mapped once, at this seam: SourceError and
TargetError mean "try again later", their subclasses say what else there is to do.

Three places reach past aiokafka's documented classes: the source's raw batches (their attributes are the only proof of
why offsets are missing), the commit (aiokafka's own never gives up), and the end of a producer whose broker is away
(its `stop()` waits for deliveries for ever).
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from typing import Any

from aiokafka import AIOKafkaClient, AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.client import ConnectionGroup, CoordinationType
from aiokafka.errors import (
    InvalidConfigurationError,
    KafkaError,
    MessageSizeTooLargeError,
    OffsetOutOfRangeError,
    RecordListTooLargeError,
    TopicAlreadyExistsError,
    for_code,
)
from aiokafka.protocol.commit import OffsetCommitRequest
from aiokafka.protocol.fetch import FetchRequest
from aiokafka.protocol.offset import OffsetRequest
from aiokafka.record.memory_records import MemoryRecords

from mirror.offsets import Commit, read_commit
from mirror.plan import BatchSpan

__all__ = ["OutOfRangeError", "RecordTooLargeError", "Source", "SourceError", "Target", "TargetError", "TopicPartition"]

CLIENT_ID = "edge-mirror"
FETCH_BYTES_MAX = 4 * 1024 * 1024
FETCH_PARTITION_BYTES_MAX = 1024 * 1024
FETCH_WAIT_MS = 500
READ_UNCOMMITTED, READ_COMMITTED = 0, 1
LATEST = -1  # of ListOffsets: the end
METADATA_AGE_MS = 30_000
REPLICAS_MAX = 3
ABANDON_S = 0.5
ANY_TIME_AHEAD_MS = str(2**63 - 1)  # boards without a clock write from the future; Kafka 4 refuses more than an hour


class SourceError(Exception):
    """The source cannot serve now."""


class OutOfRangeError(SourceError):
    """The source no longer has, or never had, the positions asked for."""

    def __init__(self, positions: dict[TopicPartition, int]) -> None:
        super().__init__(f"out of range: {positions}")
        self.positions = positions


class TargetError(Exception):
    """The target cannot take the batch now, or the producer is spent."""


class RecordTooLargeError(TargetError):
    """The target refuses the batch for its size."""


@contextlib.contextmanager
def _mapped(kind: type[SourceError] | type[TargetError]) -> Iterator[None]:
    try:
        yield
    except OffsetOutOfRangeError as error:
        raise OutOfRangeError(dict(error.args[0])) from error
    except (MessageSizeTooLargeError, RecordListTooLargeError) as error:
        raise RecordTooLargeError(_sentence(error)) from error
    except (KafkaError, OSError, TimeoutError) as error:
        raise kind(_sentence(error)) from error
    except AttributeError as error:  # aiokafka's admin client, while the cluster's controller is unknown
        raise kind(f"not ready: {error}") from error


def _sentence(error: BaseException) -> str:
    return str(error) or type(error).__name__


async def _stopped(consumer: Any) -> None:
    """Stop a consumer; aiokafka lets the CancelledError of its own tasks out, which must not end ours."""
    stopping = asyncio.ensure_future(consumer.stop())
    await asyncio.wait([stopping])
    if stopping.cancelled():
        await consumer._client.close()  # what `stop()` did not reach
    else:
        stopping.result()


class _Admin:
    """One admin client, made when needed and again after a failure."""

    def __init__(self, bootstrap: str, request_timeout_ms: int) -> None:
        self._bootstrap = bootstrap
        self._timeout_ms = request_timeout_ms
        self._client: Any = None

    async def client(self) -> Any:
        """Return the started client."""
        if self._client is None:
            client = AIOKafkaAdminClient(
                bootstrap_servers=self._bootstrap, client_id=CLIENT_ID, request_timeout_ms=self._timeout_ms
            )
            try:
                await client.start()
            except BaseException:
                await client.close()
                raise
            self._client = client
        return self._client

    async def topics(self) -> dict[str, int]:
        """Return every topic with its number of partitions."""
        found = await (await self.client()).describe_topics()
        return {topic["topic"]: len(topic["partitions"]) for topic in found if topic["error_code"] == 0}

    async def create(self, name: str, partitions: int, replicas: int, configs: dict[str, str]) -> bool:
        """Create a topic and tell whether it was not there; configs that the broker does not know are left out."""
        client = await self.client()
        for attempt in (configs, {key: value for key, value in configs.items() if key == "cleanup.policy"}):
            topic = NewTopic(name, partitions, replicas, topic_configs=attempt)
            answer = await client.create_topics([topic])
            kind, text = for_code(answer.topic_errors[0][1]), answer.topic_errors[0][-1]
            if kind is not InvalidConfigurationError:
                break
        if kind(text).errno and kind is not TopicAlreadyExistsError:
            raise kind(f"topic {name} cannot be created: {text}")
        return kind is not TopicAlreadyExistsError

    async def replicas(self, wanted: int) -> int:
        """Return the replication factor for a new topic: what is wanted, or one per broker, three at most."""
        if wanted:
            return wanted
        cluster = await (await self.client()).describe_cluster()
        return max(1, min(REPLICAS_MAX, len(cluster["brokers"])))

    async def close(self) -> None:
        """Close the client, if there is one."""
        client, self._client = self._client, None
        if client is not None:
            await client.close()


class Source:
    """The cluster that is read: topics, records, raw batches, and the group that holds the positions."""

    def __init__(self, bootstrap: str, group_id: str, request_timeout_ms: int) -> None:
        self._bootstrap = bootstrap
        self._group_id = group_id
        self._timeout_ms = request_timeout_ms
        self._admin = _Admin(bootstrap, request_timeout_ms)
        self._consumer: Any = None
        self._raw: Any = None
        self._raw_lock = asyncio.Lock()
        self._coordinator: int | None = None
        self._assigned: frozenset[TopicPartition] = frozenset()
        self._polled_at = 0
        self._heard_at = time.monotonic()

    async def open(self) -> None:
        """Connect; raises SourceError."""
        consumer = AIOKafkaConsumer(
            bootstrap_servers=self._bootstrap,
            client_id=CLIENT_ID,
            group_id=None,
            enable_auto_commit=False,
            auto_offset_reset="none",
            isolation_level="read_committed",
            request_timeout_ms=self._timeout_ms,
            metadata_max_age_ms=METADATA_AGE_MS,
            fetch_max_bytes=FETCH_BYTES_MAX,
            max_partition_fetch_bytes=FETCH_PARTITION_BYTES_MAX,
            fetch_max_wait_ms=FETCH_WAIT_MS,
        )
        with _mapped(SourceError):
            try:
                await consumer.start()
            except BaseException:
                await _stopped(consumer)
                raise
        self._consumer, self._assigned = consumer, frozenset()
        self._heard_at = time.monotonic()

    async def close(self) -> None:
        """Close every connection; no error of a dying client matters any more."""
        consumer, self._consumer = self._consumer, None
        raw, self._raw, self._coordinator = self._raw, None, None
        with contextlib.suppress(KafkaError, OSError):
            if consumer is not None:
                await _stopped(consumer)
            if raw is not None:
                await raw.close()
            await self._admin.close()

    async def topics(self) -> dict[str, int]:
        """Return every topic with its number of partitions."""
        with _mapped(SourceError):
            return await self._admin.topics()

    async def cleanup_policies(self, names: Sequence[str]) -> dict[str, str]:
        """Return the cleanup.policy of each topic."""
        if not names:
            return {}
        wanted = [ConfigResource(ConfigResourceType.TOPIC, name, {"cleanup.policy": None}) for name in names]
        with _mapped(SourceError):
            answers = await (await self._admin.client()).describe_configs(wanted)
        policies = {}
        for code, text, _, name, entries in (found for answer in answers for found in answer.resources):
            if code:
                raise SourceError(f"topic {name} cannot be described: {text or for_code(code).__name__}")
            policies[name] = next((entry[1] for entry in entries if entry[0] == "cleanup.policy"), "delete")
        return policies

    async def commits(self, partitions: Sequence[TopicPartition] | None = None) -> dict[TopicPartition, Commit]:
        """Return what the group holds for these partitions (None: for all that it knows)."""
        if partitions is not None and not partitions:
            return {}
        with _mapped(SourceError):
            found = await (await self._admin.client()).list_consumer_group_offsets(
                self._group_id, partitions=partitions
            )
        return {tp: read_commit(at.offset, at.metadata or "") for tp, at in found.items() if at.offset >= 0}

    async def bounds(
        self, partitions: Iterable[TopicPartition]
    ) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
        """Return the first offset and the end offset of each partition."""
        wanted = list(partitions)
        if not wanted:
            return {}, {}
        consumer = self._open_consumer()
        with _mapped(SourceError):
            return await consumer.beginning_offsets(wanted), await consumer.end_offsets(wanted)

    def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        """Read these partitions from these positions on, and no others."""
        consumer = self._open_consumer()
        if self._assigned != positions.keys():
            self._assigned = frozenset(positions)
            consumer.assign(list(positions)) if positions else consumer.unsubscribe()
        for partition, offset in positions.items():
            consumer.seek(partition, offset)

    @property
    def assigned(self) -> frozenset[TopicPartition]:
        """The partitions that are read."""
        return self._assigned

    async def poll(
        self, partitions: Sequence[TopicPartition], wait_ms: int, records_max: int
    ) -> dict[TopicPartition, list[Any]]:
        """Return records of some of these partitions, waiting up to `wait_ms`; raises OutOfRangeError, SourceError.

        After an exception the positions must be set again by `assign`: aiokafka may have passed over records.
        """
        consumer = self._open_consumer()
        with _mapped(SourceError):
            found: dict[TopicPartition, list[Any]] = await consumer.getmany(
                *partitions, timeout_ms=wait_ms, max_records=records_max
            )
        self._note_contact(consumer, partitions)
        return found

    def _note_contact(self, consumer: Any, partitions: Sequence[TopicPartition]) -> None:
        latest = max((consumer.last_poll_timestamp(tp) or 0 for tp in partitions), default=0)
        if latest != self._polled_at:  # that is the wall clock's; only its change is trusted
            self._polled_at, self._heard_at = latest, time.monotonic()

    def silent_s(self) -> float:
        """Return for how many seconds no fetch was answered."""
        return time.monotonic() - self._heard_at

    def excuse_silence(self) -> None:
        """Note that nothing was asked, so that no answer means nothing."""
        self._heard_at = time.monotonic()

    async def position(self, partition: TopicPartition) -> int:
        """Return where the reading stands, control batches passed over included."""
        with _mapped(SourceError):
            position: int = await self._open_consumer().position(partition)
        return position

    def end_offset(self, partition: TopicPartition) -> int | None:
        """Return the high watermark as of the last fetch."""
        if self._consumer is None or partition not in self._assigned:
            return None
        end: int | None = self._consumer.highwater(partition)
        return end

    async def commit(self, commits: Mapping[TopicPartition, Commit], timeout_s: float) -> None:
        """Store these positions in the group; raises SourceError, after which they may be stored or not.

        One request, no retries: aiokafka's own commit tries for ever, and its consumer cannot be closed meanwhile.
        """
        topics: dict[str, list[tuple[int, int, str]]] = {}
        for partition, commit in commits.items():
            topics.setdefault(partition.topic, []).append((partition.partition, commit.offset, commit.metadata()))
        async with self._raw_client() as raw:
            async with asyncio.timeout(timeout_s):
                if self._coordinator is None:
                    self._coordinator = await raw.coordinator_lookup(CoordinationType.GROUP, self._group_id)
                request = OffsetCommitRequest(self._group_id, -1, "", -1, list(topics.items()))
                answer = await raw.send(self._coordinator, request, group=ConnectionGroup.COORDINATION)
            for topic, partitions in answer.topics:
                for partition, code in partitions:
                    if code:
                        raise SourceError(f"{topic}-{partition} cannot be committed: {for_code(code).__name__}")

    async def spans(self, partition: TopicPartition, first_offset: int, end_offset: int) -> list[BatchSpan]:
        """Return the batches that the log holds in [first_offset, end_offset), by their raw attributes."""
        spans: list[BatchSpan] = []
        position = first_offset
        async with self._raw_client() as raw:
            while position < end_offset:
                async with asyncio.timeout(self._timeout_ms / 1000):  # the other user of `raw` may have closed it
                    spans += await _raw_batches(raw, partition, position)
                position = max(position + 1, spans[-1].end_offset)
        return spans

    @contextlib.asynccontextmanager
    async def _raw_client(self) -> AsyncIterator[Any]:
        """Lend the connections below aiokafka's consumer; after a failure they are made anew."""
        try:
            with _mapped(SourceError):
                async with self._raw_lock:
                    if self._raw is None:
                        self._raw = await self._open_raw()
                    raw = self._raw
                yield raw
        except SourceError:
            raw, self._raw, self._coordinator = self._raw, None, None
            if raw is not None:
                await raw.close()
            raise

    async def _open_raw(self) -> Any:
        raw = AIOKafkaClient(
            bootstrap_servers=self._bootstrap, client_id=CLIENT_ID, request_timeout_ms=self._timeout_ms
        )
        try:
            await raw.bootstrap()
        except BaseException:
            await raw.close()
            raise
        return raw

    def _open_consumer(self) -> Any:
        if self._consumer is None:
            raise SourceError("not connected")
        return self._consumer


async def _raw_batches(raw: Any, partition: TopicPartition, offset: int) -> list[BatchSpan]:
    await raw.set_topics([partition.topic])
    leader = raw.cluster.leader_for_partition(partition)
    if leader in (None, -1):
        raise SourceError(f"{partition} has no leader")
    asked = [(partition.topic, [(partition.partition, offset, FETCH_PARTITION_BYTES_MAX)])]
    answer = await raw.send(leader, FetchRequest(0, 1, FETCH_PARTITION_BYTES_MAX, READ_COMMITTED, asked))
    _, code, *rest = answer.topics[0][1][0]
    if code:
        raise SourceError(f"{partition} at {offset}: {for_code(code).__name__}")
    aborted = next((field for field in rest[:-1] if isinstance(field, list)), [])
    spans = list(_read_spans(rest[-1], offset, aborted))
    if not spans:  # a record beyond was seen, so an empty answer proves nothing
        raise SourceError(f"{partition} at {offset}: no batch was answered")
    return spans


def _read_spans(data: bytes, first_offset: int, aborted: Sequence[tuple[int, int]]) -> Iterator[BatchSpan]:
    records = MemoryRecords(data)
    while records.has_next():
        batch = records.next_batch()
        if batch.next_offset <= first_offset:
            continue
        if batch.is_control_batch:
            yield BatchSpan(batch.base_offset, batch.next_offset, "control")
        elif batch.is_transactional and any(
            pid == batch.producer_id and first <= batch.base_offset for pid, first in aborted
        ):
            yield BatchSpan(batch.base_offset, batch.next_offset, "aborted")
        else:
            held = tuple(record.offset for record in batch)
            yield BatchSpan(batch.base_offset, batch.next_offset, "data", held)


class Target:
    """The cluster that is written to: topics made to order, batches acknowledged by all replicas, in order."""

    def __init__(
        self, bootstrap: str, *, compression: str, batch_bytes_max: int, request_timeout_ms: int, replicas: int = 0
    ) -> None:
        self._bootstrap = bootstrap
        self._compression = None if compression == "none" else compression
        self._batch_bytes_max = batch_bytes_max
        self._timeout_ms = request_timeout_ms
        self._replicas = replicas
        self._admin = _Admin(bootstrap, request_timeout_ms)
        self._producer: Any = None
        self._topics: dict[str, int] | None = None
        self._let_go: asyncio.Future[None] | None = None
        self._topics_lock = asyncio.Lock()

    async def open(self) -> None:
        """Connect and take a new producer id; raises TargetError."""
        producer = AIOKafkaProducer(
            bootstrap_servers=self._bootstrap,
            client_id=CLIENT_ID,
            enable_idempotence=True,
            acks="all",
            compression_type=self._compression,
            max_batch_size=self._batch_bytes_max,
            request_timeout_ms=self._timeout_ms,
            metadata_max_age_ms=METADATA_AGE_MS,
        )
        with _mapped(TargetError):
            try:
                async with asyncio.timeout(self._timeout_ms / 1000):
                    await producer.start()
            except BaseException:
                await _abandon(producer)
                raise
        self._producer, self._topics = producer, None
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

    async def ensure_topic(self, name: str, partitions: int, configs: Mapping[str, str]) -> bool:
        """Make sure the topic has at least so many partitions; return whether it was created, with these configs.

        Raises TargetError.
        """
        async with self._topics_lock:
            try:
                with _mapped(TargetError):
                    async with asyncio.timeout(2 * self._timeout_ms / 1000):
                        return await self._ensure_topic(name, partitions, configs)
            except TargetError:
                self._topics = None
                await self._admin.close()
                raise

    async def _ensure_topic(self, name: str, partitions: int, configs: Mapping[str, str]) -> bool:
        if self._topics is None:
            self._topics = await self._admin.topics()
        had = self._topics.get(name, 0)
        if had >= partitions:
            return False
        if had:
            await self._grow(name, partitions)
            self._topics[name] = partitions
            return False
        created = await self._create(name, partitions, configs)
        if created:
            self._topics[name] = partitions
        else:
            self._topics = None  # someone else was quicker; how many partitions they made is asked next time
        return created

    async def _create(self, name: str, partitions: int, configs: Mapping[str, str]) -> bool:
        configs = {**configs, "message.timestamp.after.max.ms": ANY_TIME_AHEAD_MS}
        return await self._admin.create(name, partitions, await self._admin.replicas(self._replicas), configs)

    async def _grow(self, name: str, partitions: int) -> None:
        client = await self._admin.client()
        answer = await client.create_partitions({name: NewPartitions(partitions)})
        for _, code, text in answer.topic_errors:
            if code:
                raise TargetError(f"topic {name} cannot grow to {partitions} partitions: {text}")

    async def end_offset(self, partition: TopicPartition) -> int:
        """Return the end offset of a partition at the target; raises TargetError."""
        if self._producer is None:
            raise TargetError("not connected")
        with _mapped(TargetError):
            async with asyncio.timeout(self._timeout_ms / 1000):
                end = await _end_offset(self._producer, partition)
        return end

    def batch(self) -> Any:
        """Return an empty batch; its `append(timestamp=, key=, value=, headers=)` returns None when it is full."""
        if self._producer is None:
            raise TargetError("not connected")
        return self._producer.create_batch()

    async def deliver(self, batch: Any, topic: str, partition: int, timeout_s: float) -> int | None:
        """Send a batch and return its first offset at the target once all replicas have it (None: not told).

        Raises TargetError (it may arrive or not: this producer must be closed), RecordTooLargeError (it did not).
        """
        producer, let_go = self._producer, self._let_go
        if producer is None or let_go is None:
            raise TargetError("not connected")
        with _mapped(TargetError):
            async with asyncio.timeout(timeout_s):
                if partition not in await producer.partitions_for(topic):
                    await producer.client.force_metadata_update()
                if partition not in await producer.partitions_for(topic):
                    raise TargetError(f"{topic}-{partition} is not there")
                sent = await producer.send_batch(batch, topic, partition=partition)
                await asyncio.wait({sent, let_go}, return_when=asyncio.FIRST_COMPLETED)
                if not sent.done():
                    raise TargetError("the producer was closed")
                told = await sent
        return told.offset if told is not None and told.offset >= 0 else None

    async def write(self, topic: str, key: bytes, value: bytes, timeout_s: float) -> None:
        """Send one record to partition 0 and wait for all replicas; raises TargetError."""
        batch = self.batch()
        batch.append(timestamp=None, key=key, value=value, headers=[])
        await self.deliver(batch, topic, 0, timeout_s)


async def _end_offset(producer: Any, partition: TopicPartition) -> int:
    await producer.partitions_for(partition.topic)
    leader = producer.client.cluster.leader_for_partition(partition)
    if leader in (None, -1):
        await producer.client.force_metadata_update()
        raise TargetError(f"{partition} has no leader")
    asked = [(partition.topic, [(partition.partition, LATEST)])]
    answer = await producer.client.send(leader, OffsetRequest(-1, READ_UNCOMMITTED, asked))
    _, code, *rest = answer.topics[0][1][0]
    if code:
        raise TargetError(f"the end of {partition} was not told: {for_code(code).__name__}")
    end: int = rest[-1]
    return end


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
