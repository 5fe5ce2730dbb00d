"""The end that is read, its records through aiokafka, and what both ends share: the admin client.

No decision of the mirror may come in here. aiokafka's exceptions are mapped once, at this seam, to those of errors.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from collections.abc import Awaitable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.conn import AIOKafkaConnection
from aiokafka.errors import (
    AuthenticationFailedError,
    InvalidConfigurationError,
    KafkaConnectionError,
    KafkaError,
    MessageSizeTooLargeError,
    OffsetOutOfRangeError,
    RecordListTooLargeError,
    TopicAlreadyExistsError,
    UnknownError,
    for_code,
)

from drupelet import kafka_connection
from drupelet.aiokafka_login import log_in_as_ours
from drupelet.errors import ConfigurationError, sentence, without_numbers
from drupelet.kafka_client import ClientSettings, replicas_for
from mirror.asking import Asking
from mirror.epochs import EpochStart
from mirror.errors import FencedError, OutOfRangeError, RecordTooLargeError, SourceError, TargetError
from mirror.fetching import EpochTap
from mirror.topics import COPIED_SETTINGS, ConfigSource, copied_settings

log_in_as_ours(AIOKafkaConnection, AuthenticationFailedError)

NO_BROKER = "no broker answers at"
FETCH_BYTES_MAX = 4 * 1024 * 1024
FETCH_PARTITION_BYTES_MAX = 1024 * 1024
FETCH_WAIT_MS = 500
CREATED_AT_ONCE = 100  # topics in a request
METADATA_AGE_MS = 30_000
TOPIC_CONFIG, DEFAULT_CONFIG = 1, 5  # of DescribeConfigs' config_source: set for the topic, set nowhere


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


class NewTopicChoices(NamedTuple):
    """A topic to be made: with how many partitions, and with which settings, those that are wanted most first."""

    partitions: int
    choices: Sequence[dict[str, str]]


Created = dict[str, str] | Exception | None
"""The settings that a topic was made with, None where it was there, or what the broker answered."""


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

    async def create(self, wanted: Mapping[str, NewTopicChoices], replicas: int) -> dict[str, Created]:
        """Create topics, each with the first choice of settings that the broker takes, many in a request.

        Returns that choice, None where the topic was there, or why it cannot be made.
        """
        client = await self.client()
        created: dict[str, Created] = {}
        left = {name: list(choices) for name, (_, choices) in wanted.items()}
        while left:
            some = list(left)[:CREATED_AT_ONCE]
            asked = [NewTopic(name, wanted[name].partitions, replicas, topic_configs=left[name][0]) for name in some]
            answer = await client.create_topics(asked)
            told = {name: (for_code(code), rest[-1] if rest else "") for name, code, *rest in answer.topic_errors}
            for name in some:
                kind, text = told.get(name, (UnknownError, "it was not answered"))
                if kind is InvalidConfigurationError and len(left[name]) > 1:
                    del left[name][0]
                    continue
                settings = left.pop(name)[0]
                if kind is TopicAlreadyExistsError:
                    created[name] = None
                else:
                    created[name] = kind(f"topic {name} cannot be created: {text}") if kind.errno else settings
        return created

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


class Source(Asking):
    """The cluster that is read: what is asked of it, the settings of its topics, and records."""

    def __init__(self, settings: ClientSettings, group_id: str) -> None:
        super().__init__(settings, group_id)
        self._admin = Admin(self._settings)
        self._consumer: Any = None
        self._tap: EpochTap | None = None
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
        self.hang_up()
        with contextlib.suppress(KafkaError, OSError):
            if consumer is not None:
                await _stopped(consumer)
            await self._admin.close()

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

    def _open_consumer(self) -> Any:
        if self._consumer is None:
            raise SourceError("not connected")
        return self._consumer

    def _open_tap(self) -> EpochTap:
        if self._tap is None:
            raise SourceError("not connected")
        return self._tap


def _config_source(told: int | bool) -> ConfigSource:
    """Where a setting was set, as DescribeConfigs tells it: a number from version 1 on, before that `is_default`."""
    if isinstance(told, bool):
        return "default" if told else "topic"
    sources: dict[int, ConfigSource] = {TOPIC_CONFIG: "topic", DEFAULT_CONFIG: "default"}
    return sources.get(told, "broker")
