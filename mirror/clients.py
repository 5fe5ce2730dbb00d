"""The end that is read, through aiokafka, and what both ends share: their errors, and the admin client.

No decision of the mirror may come in here. aiokafka's exceptions are mapped once, at this seam: SourceError and
TargetError mean "try again later", their subclasses say what else there is to do.

Three places reach past aiokafka's documented classes: the source's raw batches (their attributes are the only proof of
why offsets are missing), the commit (aiokafka's own never gives up), and the positions (aiokafka's admin client passes
over the error of a whole group, and takes a coordinator that still loads for a group without positions).
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from base64 import urlsafe_b64encode
from collections.abc import AsyncIterator, Awaitable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from aiokafka import AIOKafkaClient, AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.client import ConnectionGroup, CoordinationType
from aiokafka.conn import AIOKafkaConnection
from aiokafka.errors import (
    AuthenticationFailedError,
    BrokerResponseError,
    IncompatibleBrokerVersion,
    InvalidConfigurationError,
    KafkaConnectionError,
    KafkaError,
    MessageSizeTooLargeError,
    OffsetOutOfRangeError,
    RecordListTooLargeError,
    TopicAlreadyExistsError,
    for_code,
)

from drupelet import kafka_connection
from drupelet.aiokafka_login import log_in_as_ours
from drupelet.errors import ConfigurationError, sentence, without_numbers
from drupelet.kafka_client import ClientSettings, replicas_for
from edge_broker.protocol.message import NO_UUID, Message
from edge_broker.protocol.messages.metadata import MetadataRequest, MetadataResponseTopic
from edge_broker.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from edge_broker.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic, OffsetFetchResponse
from edge_broker.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from mirror import fetching, wire
from mirror.epochs import EpochEnd, EpochStart
from mirror.fetching import Content, EpochTap
from mirror.offsets import Commit, read_commit
from mirror.plan import BatchSpan
from mirror.topics import COPIED_SETTINGS, ConfigSource, copied_settings

__all__ = ["OutOfRangeError", "RecordTooLargeError", "Source", "SourceError", "TargetError", "TopicPartition"]

R = TypeVar("R", bound=Message)

log_in_as_ours(AIOKafkaConnection, AuthenticationFailedError)

NO_BROKER = "no broker answers at"
FETCH_BYTES_MAX = 4 * 1024 * 1024
FETCH_PARTITION_BYTES_MAX = 1024 * 1024
FETCH_WAIT_MS = 500
CONSUMER = -1  # of OffsetForLeaderEpoch: no replica asks
METADATA_AGE_MS = 30_000
TOPIC_CONFIG, DEFAULT_CONFIG = 1, 5  # of DescribeConfigs' config_source: set for the topic, set nowhere


class SourceError(Exception):
    """The source cannot serve now."""


class OutOfRangeError(SourceError):
    """The source no longer has, or never had, the positions asked for."""

    def __init__(self, positions: dict[TopicPartition, int]) -> None:
        super().__init__(f"out of range: {positions}")
        self.positions = positions


class FencedError(SourceError):
    """Another leader leads these partitions, or under another epoch, than their positions were judged under."""

    def __init__(self, partitions: frozenset[TopicPartition]) -> None:
        super().__init__(f"the leader epoch changed: {sorted(partitions)}")
        self.partitions = partitions


class PositionsError(SourceError):
    """The group cannot tell its positions now."""


class Leader(NamedTuple):
    """The node that leads a partition, -1 when there is none, and its leader epoch, -1 when that is not told."""

    node: int
    epoch: int


class SourceTopic(NamedTuple):
    """A topic of the source: its id in Kafka's text form, None where there are none, and its partitions' leaders."""

    topic_id: str | None
    leaders: dict[int, Leader]


class TargetError(Exception):
    """The target cannot take the batch now, or the producer is spent."""


class RecordTooLargeError(TargetError):
    """The target refuses the batch for its size."""


class TopicRefusedError(TargetError):
    """The target is well, but does not let this topic be made, or grow."""


@contextlib.contextmanager
def mapped(kind: type[SourceError] | type[TargetError]) -> Iterator[None]:
    """Turn aiokafka's exceptions into ours."""
    try:
        yield
    except OffsetOutOfRangeError as error:
        raise OutOfRangeError(dict(error.args[0])) from error
    except (MessageSizeTooLargeError, RecordListTooLargeError) as error:
        raise RecordTooLargeError(sentence(error)) from error
    except KafkaConnectionError as error:
        raise kind(unanswered(sentence(error))) from error
    except (KafkaError, ConfigurationError, OSError, TimeoutError) as error:  # a file may be replaced just now
        raise kind(without_numbers(sentence(error))) from error
    except AttributeError as error:  # aiokafka's admin client, while the cluster's controller is unknown
        raise kind(f"not ready: {error}") from error


def unanswered(said: str) -> str:
    """Name the addresses that aiokafka found no broker at, in words that name the remedy; all else stays as it is."""
    addresses = re.findall(r"\('([^']+)', (\d+),", said) if "Unable to bootstrap" in said else []
    if not addresses:
        return without_numbers(said)
    named = ", ".join(f"{host}:{port}" for host, port in addresses)
    return f"{NO_BROKER} {named}: start it, or mend the address or the network"


async def explained(settings: ClientSettings, start: Awaitable[Any]) -> None:
    """Await the start of a client; where TLS or a log-in stand in its way, the error says so, unlike aiokafka's."""
    try:
        await start
    except (KafkaError, OSError) as error:
        if settings.security.protocol == "PLAINTEXT":
            raise
        told = await asyncio.to_thread(kafka_connection.trouble, settings.security, settings.servers)
        if told is None:
            raise
        raise ConnectionError(told) from error


async def _stopped(consumer: Any) -> None:
    """Stop a consumer; aiokafka lets the CancelledError of its own tasks out, which must not end ours."""
    stopping = asyncio.ensure_future(consumer.stop())
    await asyncio.wait([stopping])
    if stopping.cancelled():
        await consumer._client.close()  # what `stop()` did not reach
    else:
        stopping.result()


class Admin:
    """One admin client, made when needed and again after a failure."""

    def __init__(self, settings: ClientSettings) -> None:
        self._settings = settings
        self._client: Any = None

    async def client(self) -> Any:
        """Return the started client."""
        if self._client is None:
            client = AIOKafkaAdminClient(**self._settings.arguments())
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

    async def create(
        self, name: str, partitions: int, replicas: int, choices: Sequence[dict[str, str]]
    ) -> dict[str, str] | None:
        """Create a topic with the first choice of settings that the broker takes; return it, None if it was there."""
        client = await self.client()
        for settings in choices:
            topic = NewTopic(name, partitions, replicas, topic_configs=settings)
            answer = await client.create_topics([topic])
            kind, text = for_code(answer.topic_errors[0][1]), answer.topic_errors[0][-1]
            if kind is not InvalidConfigurationError:
                break
        if kind(text).errno and kind is not TopicAlreadyExistsError:
            raise kind(f"topic {name} cannot be created: {text}")
        return None if kind is TopicAlreadyExistsError else settings

    async def replicas(self, wanted: int) -> int:
        """Return the replication factor for a new topic: what is wanted, or one per broker, three at most."""
        if wanted:
            return wanted
        cluster = await (await self.client()).describe_cluster()
        return replicas_for(len(cluster["brokers"]))

    async def close(self) -> None:
        """Close the client, if there is one."""
        client, self._client = self._client, None
        if client is not None:
            await client.close()


class EpochQuestion(NamedTuple):
    """A leader epoch whose end is asked about, and the leader that is asked."""

    epoch: int
    leader: Leader


class Source:
    """The cluster that is read: topics, records, raw batches, and the group that holds the positions."""

    def __init__(self, settings: ClientSettings, group_id: str) -> None:
        self._settings = settings
        self._group_id = group_id
        self._timeout_ms = settings.request_timeout_ms
        self._admin = Admin(self._settings)
        self._consumer: Any = None
        self._tap: EpochTap | None = None
        self._raw: Any = None
        self._raw_lock = asyncio.Lock()
        self._coordinator: int | None = None
        self._assigned: frozenset[TopicPartition] = frozenset()
        self._polled_at = 0
        self._heard_at = time.monotonic()

    async def open(self) -> None:
        """Connect; raises SourceError."""
        with mapped(SourceError):
            consumer = AIOKafkaConsumer(
                **self._settings.arguments(),
                group_id=None,
                enable_auto_commit=False,
                auto_offset_reset="none",
                isolation_level="read_committed",
                metadata_max_age_ms=METADATA_AGE_MS,
                fetch_max_bytes=FETCH_BYTES_MAX,
                max_partition_fetch_bytes=FETCH_PARTITION_BYTES_MAX,
                fetch_max_wait_ms=FETCH_WAIT_MS,
            )
            try:
                await explained(self._settings, consumer.start())
            except BaseException:
                await _stopped(consumer)
                raise
        self._consumer, self._assigned = consumer, frozenset()
        self._tap = EpochTap(consumer._client)
        self._heard_at = time.monotonic()

    async def close(self) -> None:
        """Close every connection; no error of a dying client matters any more."""
        consumer, self._consumer = self._consumer, None
        self._tap, self._assigned = None, frozenset()
        raw, self._raw, self._coordinator = self._raw, None, None
        with contextlib.suppress(KafkaError, OSError):
            if consumer is not None:
                await _stopped(consumer)
            if raw is not None:
                await raw.close()
            await self._admin.close()

    async def topics(self) -> dict[str, SourceTopic]:
        """Return every topic."""
        request = MetadataRequest(topics=None, allow_auto_topic_creation=False)
        async with self._raw_client() as raw, asyncio.timeout(self._timeout_ms / 1000):
            answer = await wire.ask(raw, raw.get_random_node(), wire.METADATA, request)
        return {topic.name: _source_topic(topic) for topic in answer.topics if topic.name and not topic.error_code}

    async def epoch_ends(self, asked: Mapping[TopicPartition, EpochQuestion]) -> dict[TopicPartition, EpochEnd | str]:
        """Ask the partitions' leaders where the epochs ended; a text says why one cannot tell now."""
        found: dict[TopicPartition, EpochEnd | str] = {}
        by_node: dict[int, dict[TopicPartition, EpochQuestion]] = {}
        for partition, question in asked.items():
            by_node.setdefault(question.leader.node, {})[partition] = question
        for node, questions in by_node.items():
            found |= dict.fromkeys(questions, "it has no leader") if node < 0 else await self._ask_node(node, questions)
        return found

    async def _ask_node(
        self, node: int, asked: Mapping[TopicPartition, EpochQuestion]
    ) -> Mapping[TopicPartition, EpochEnd | str]:
        topics: dict[str, list[OffsetForLeaderPartition]] = {}
        for partition, (epoch, leader) in asked.items():
            topics.setdefault(partition.topic, []).append(
                OffsetForLeaderPartition(
                    partition=partition.partition, current_leader_epoch=leader.epoch, leader_epoch=epoch
                )
            )
        request = OffsetForLeaderEpochRequest(
            replica_id=CONSUMER, topics=[OffsetForLeaderTopic(topic=t, partitions=p) for t, p in topics.items()]
        )
        async with self._raw_client() as raw:
            try:
                answer = await wire.ask(raw, node, wire.OFFSET_FOR_LEADER_EPOCH, request)
            except IncompatibleBrokerVersion:
                return dict.fromkeys(asked, EpochEnd(-1, -1))
            except (KafkaError, OSError, TimeoutError) as error:  # other leaders may answer
                return dict.fromkeys(asked, sentence(error))
        return dict.fromkeys(asked, "not answered") | _epoch_ends(answer)

    async def record_at(self, partition: TopicPartition, offset: int) -> Content | None:
        """Return the record at an offset, None when there is none."""
        async with self._raw_client() as raw, asyncio.timeout(self._timeout_ms / 1000):
            await raw.set_topics([partition.topic])
            return await fetching.record_at(raw, partition, offset)

    async def settings(self, names: Sequence[str]) -> dict[str, dict[str, str]]:
        """Return, for each topic, the settings that its copy is made with; `cleanup.policy` is always among them."""
        if not names:
            return {}
        keys = dict.fromkeys(COPIED_SETTINGS)
        wanted = [ConfigResource(ConfigResourceType.TOPIC, name, keys) for name in names]
        with mapped(SourceError):
            answers = await (await self._admin.client()).describe_configs(wanted)
        found = {}
        for code, text, _, name, entries in (each for answer in answers for each in answer.resources):
            if code:
                raise SourceError(f"topic {name} cannot be described: {text or for_code(code).__name__}")
            found[name] = copied_settings({entry[0]: (entry[1], _config_source(entry[3])) for entry in entries})
        return found

    async def commits(self, partitions: Sequence[TopicPartition] | None = None) -> dict[TopicPartition, Commit]:
        """Return what the group holds for these partitions (None: for all that it knows).

        Raises PositionsError while the group's coordinator is away, elsewhere, or still loads what was committed:
        only an offset of -1, answered for that partition, means that there is no position.
        """
        if partitions is not None and not partitions:
            return {}
        asked: dict[str, list[int]] = {}
        for partition in partitions or ():
            asked.setdefault(partition.topic, []).append(partition.partition)
        topics = [OffsetFetchRequestTopic(name=name, partition_indexes=numbers) for name, numbers in asked.items()]
        request = OffsetFetchRequest(group_id=self._group_id, topics=topics if asked else None)
        async with self._raw_client() as raw, asyncio.timeout(self._timeout_ms / 1000):
            answer = await self._ask_coordinator(raw, wire.OFFSET_FETCH, request)
            found = _positions(answer)
        silent = sorted(set(partitions or ()) - found.keys())
        if silent:
            raise PositionsError(f"that of {silent[0]} was not answered")
        return {partition: commit for partition, commit in found.items() if commit.offset >= 0}

    async def bounds(
        self, partitions: Iterable[TopicPartition]
    ) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
        """Return the first offset and the end offset of each partition."""
        wanted = list(partitions)
        if not wanted:
            return {}, {}
        consumer = self._open_consumer()
        with mapped(SourceError):
            return await consumer.beginning_offsets(wanted), await consumer.end_offsets(wanted)

    def assign(self, positions: Mapping[TopicPartition, tuple[int, int]]) -> None:
        """Read these partitions from these offsets on under these leader epochs (-1: any), and no others."""
        consumer, tap = self._open_consumer(), self._open_tap()
        tap.set({partition: epoch for partition, (_, epoch) in positions.items()})
        if self._assigned != positions.keys():
            self._assigned = frozenset(positions)
            consumer.assign(list(positions)) if positions else consumer.unsubscribe()
        for partition, (offset, _) in positions.items():
            consumer.seek(partition, offset)

    @property
    def assigned(self) -> frozenset[TopicPartition]:
        """The partitions that are read."""
        return self._assigned

    async def poll(
        self, partitions: Sequence[TopicPartition], wait_ms: int, records_max: int
    ) -> dict[TopicPartition, list[Any]]:
        """Return records of some of these partitions, waiting up to `wait_ms`.

        Raises OutOfRangeError, FencedError, SourceError; after that the positions must be set again by `assign`:
        aiokafka may have passed over records.
        """
        consumer, tap = self._open_consumer(), self._open_tap()
        if tap.fenced:
            raise FencedError(frozenset(tap.fenced))
        with mapped(SourceError):
            found: dict[TopicPartition, list[Any]] = await consumer.getmany(
                *partitions, timeout_ms=wait_ms, max_records=records_max
            )
        self._note_contact(consumer, partitions)
        return found

    def _note_contact(self, consumer: Any, partitions: Sequence[TopicPartition]) -> None:
        latest = max((consumer.last_poll_timestamp(tp) or 0 for tp in partitions), default=0)
        if latest != self._polled_at:  # that is the wall clock's; only its change is trusted
            self._polled_at, self._heard_at = latest, time.monotonic()

    def epoch_starts(self) -> list[tuple[TopicPartition, EpochStart]]:
        """Return, once, where leader epochs began in what was fetched since the last call, in that order."""
        tap = self._open_tap()
        starts, tap.starts = tap.starts, []
        return starts

    def silent_s(self) -> float:
        """Return for how many seconds no fetch was answered."""
        return time.monotonic() - self._heard_at

    def excuse_silence(self) -> None:
        """Note that nothing was asked, so that no answer means nothing."""
        self._heard_at = time.monotonic()

    async def position(self, partition: TopicPartition) -> int:
        """Return where the reading stands, control batches passed over included."""
        with mapped(SourceError):
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
        topics: dict[str, list[OffsetCommitRequestPartition]] = {}
        for partition, commit in commits.items():
            topics.setdefault(partition.topic, []).append(
                OffsetCommitRequestPartition(
                    partition_index=partition.partition,
                    committed_offset=commit.offset,
                    committed_leader_epoch=-1 if commit.epoch is None else commit.epoch.leader_epoch,
                    committed_metadata=commit.metadata(),
                )
            )
        request = OffsetCommitRequest(
            group_id=self._group_id,
            topics=[OffsetCommitRequestTopic(name=name, partitions=entries) for name, entries in topics.items()],
        )
        async with self._raw_client() as raw:
            async with asyncio.timeout(timeout_s):
                answer = await self._ask_coordinator(raw, wire.OFFSET_COMMIT, request)
            for topic in answer.topics:
                for entry in topic.partitions:
                    if entry.error_code:
                        raise SourceError(
                            f"{topic.name}-{entry.partition_index} cannot be committed: "
                            f"{wire.error_name(entry.error_code)}"
                        )

    async def _ask_coordinator(self, raw: Any, api: wire.Api[R], request: Message) -> R:
        if self._coordinator is None:
            try:
                self._coordinator = await raw.coordinator_lookup(CoordinationType.GROUP, self._group_id)
            except BrokerResponseError as error:
                raise PositionsError(f"the coordinator is not known: {sentence(error)}") from error
        return await wire.ask(raw, self._coordinator, api, request, group=ConnectionGroup.COORDINATION)

    async def spans(self, partition: TopicPartition, first_offset: int, end_offset: int) -> list[BatchSpan]:
        """Return the batches that the log holds in [first_offset, end_offset), by their raw attributes."""
        spans: list[BatchSpan] = []
        position = first_offset
        async with self._raw_client() as raw:
            while position < end_offset:
                async with asyncio.timeout(self._timeout_ms / 1000):  # the other user of `raw` may have closed it
                    await raw.set_topics([partition.topic])
                    found = await fetching.batch_spans(raw, partition, position, FETCH_PARTITION_BYTES_MAX)
                if not found:  # a record beyond was seen, so an empty answer proves nothing
                    raise SourceError(f"{partition} at {position}: no batch was answered")
                spans += found
                position = max(position + 1, spans[-1].end_offset)
        return spans

    @contextlib.asynccontextmanager
    async def _raw_client(self) -> AsyncIterator[Any]:
        """Lend the connections below aiokafka's consumer; after a failure they are made anew."""
        try:
            with mapped(SourceError):
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
        raw = AIOKafkaClient(**self._settings.arguments())
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

    def _open_tap(self) -> EpochTap:
        if self._tap is None:
            raise SourceError("not connected")
        return self._tap


def _source_topic(topic: MetadataResponseTopic) -> SourceTopic:
    text = None if topic.topic_id == NO_UUID else urlsafe_b64encode(topic.topic_id.bytes).decode().rstrip("=")
    leaders = {entry.partition_index: Leader(entry.leader_id, entry.leader_epoch) for entry in topic.partitions}
    return SourceTopic(text, dict(sorted(leaders.items())))


def _config_source(told: int | bool) -> ConfigSource:
    """Where a setting was set, as DescribeConfigs tells it: a number from version 1 on, before that `is_default`."""
    if isinstance(told, bool):
        return "default" if told else "topic"
    sources: dict[int, ConfigSource] = {TOPIC_CONFIG: "topic", DEFAULT_CONFIG: "default"}
    return sources.get(told, "broker")


def _epoch_ends(answer: OffsetForLeaderEpochResponse) -> dict[TopicPartition, EpochEnd | str]:
    return {
        TopicPartition(topic.topic, entry.partition): (
            wire.error_name(entry.error_code) if entry.error_code else EpochEnd(entry.leader_epoch, entry.end_offset)
        )
        for topic in answer.topics
        for entry in topic.partitions
    }


def _positions(answer: OffsetFetchResponse) -> dict[TopicPartition, Commit]:
    """Return every position answered, those of offset -1 too; raises PositionsError when one was refused."""
    if answer.error_code:
        raise PositionsError(f"cannot be read: {wire.error_name(answer.error_code)}")
    found = {}
    for topic in answer.topics:
        for entry in topic.partitions:
            partition = TopicPartition(topic.name, entry.partition_index)
            if entry.error_code:
                raise PositionsError(f"that of {partition} cannot be read: {wire.error_name(entry.error_code)}")
            found[partition] = read_commit(entry.committed_offset, entry.metadata or "")
    return found
