"""Adapt aiokafka's producer to the publisher, and map its exceptions.

No other module of the gateway imports aiokafka. The producer is idempotent with acks=all. Batches never expire, so it
retries while the broker is unreachable; a final error arrives by the record's future.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Any

from aiokafka import AIOKafkaProducer
from aiokafka import errors as kafka_errors
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.conn import AIOKafkaConnection

from drupelet.errors import ConfigurationError, sentence
from drupelet.host.boot_clock import BOOT_TIMES_CONFIG, BOOT_TIMES_TOPIC
from drupelet.kafka import connection as kafka_connection
from drupelet.kafka.aiokafka_login import log_in_as_ours
from drupelet.kafka.client import replicas_for
from drupelet.observe.log_tree import Log
from gateway.config import KafkaConfig
from gateway.kafka.publisher import (
    DeniedTopicError,
    KafkaFailure,
    RefusedRecordError,
    RefusedTimestampError,
    RefusedTooLargeError,
)
from gateway.kafka.topic_settings import settings_trouble
from gateway.records import dead_letters
from gateway.records.records import MARK_BYTES_MAX, Record

_START_TIMEOUT_S = 30.0
_DISCARD_TIMEOUT_S = 5.0
_REASON_TIMEOUT_S = 1.0
_LETTER_BYTES_MAX = 4 << 20  # the publisher bounds records by record_bytes_max; a dead letter may be larger
_log = Log("gateway.kafka")


class InvalidRecordError(kafka_errors.BrokerResponseError):  # type: ignore[misc] # aiokafka ships no types
    """Error code 87, which aiokafka does not define: the broker never accepts this record."""

    errno = 87
    message = "INVALID_RECORD"
    description = "the broker's checks refuse the record"


kafka_errors.kafka_errors.setdefault(InvalidRecordError.errno, InvalidRecordError)
log_in_as_ours(AIOKafkaConnection, kafka_errors.AuthenticationFailedError)

_DENIED = (kafka_errors.TopicAuthorizationFailedError, kafka_errors.ClusterAuthorizationFailedError)
_TOO_LARGE = (
    kafka_errors.MessageSizeTooLargeError,
    kafka_errors.RecordListTooLargeError,
    kafka_errors.RecordTooLargeError,
)


class KafkaProducer:
    """An aiokafka producer; build it with `start`."""

    def __init__(self, producer: AIOKafkaProducer, config: KafkaConfig) -> None:
        self._producer = producer
        self._config = config
        self._unconnected = False
        self._lost = ""

    @classmethod
    async def start(cls, config: KafkaConfig, node: str) -> KafkaProducer:
        """Connect and get a producer id; raise KafkaFailure if that fails or takes too long."""
        try:
            arguments = config.clients(node).producer_arguments(config.compression_type, config.batch_bytes_max)
        except ConfigurationError as error:  # a file that is being replaced: the gateway read it at its start
            raise KafkaFailure(sentence(error)) from error
        client = AIOKafkaProducer(
            **arguments,
            linger_ms=config.linger_ms,
            max_request_size=max(config.record_bytes_max, _LETTER_BYTES_MAX) + MARK_BYTES_MAX,
        )
        producer = cls(client, config)
        try:
            async with asyncio.timeout(_START_TIMEOUT_S):
                await client.start()
        except BaseException as error:
            await producer.discard()
            if isinstance(error, (kafka_errors.KafkaError, OSError)):  # TimeoutError is an OSError
                raise KafkaFailure(await _trouble(config) or sentence(error)) from error
            raise
        return producer

    async def send(self, record: Record) -> asyncio.Future[Any]:
        """Queue a record; the future fails with a Refused… error, or a KafkaFailure."""
        try:
            queued: asyncio.Future[Any] = await self._producer.send(
                record.topic,
                value=record.value,
                key=record.key,
                timestamp_ms=record.timestamp_ms,
                headers=list(record.sent_headers),
            )
        except (kafka_errors.KafkaError, OSError) as error:
            raise _map_error(error) from error
        answer: asyncio.Future[Any] = queued.get_loop().create_future()
        queued.add_done_callback(lambda done: _pass_on(done, answer))
        return answer

    async def connection_problem(self) -> str:
        """Return in one line why no broker is connected, if none was at the previous call either; else empty.

        Each call without a connection requests one; an idle client alone would do so only after minutes.
        """
        client = self._producer.client
        if any(connection.connected() for connection in client._conns.values()):
            self._unconnected, self._lost = False, ""
            return ""
        client.force_metadata_update()
        if not self._unconnected:  # an idle connection, or one to a broker that restarts, returns at once
            self._unconnected = True
        elif not self._lost:
            self._lost = await self._reason()
        return self._lost

    async def _reason(self) -> str:
        servers = ",".join(self._config.bootstrap_servers)
        try:
            async with asyncio.timeout(_REASON_TIMEOUT_S):
                return await _trouble(self._config) or ""
        except TimeoutError:
            return f"{servers} does not answer"

    def halt(self) -> None:
        """Send nothing more; requests in flight may still be answered."""
        sender = self._producer._sender.sender_task
        if sender is not None:
            sender.cancel()

    async def discard(self) -> None:
        """Close without flushing: cancel the sender, whose flush would wait for an unreachable broker."""
        client = self._producer
        client._closed = True  # aiokafka has no close without flush
        self.halt()
        with contextlib.suppress(TimeoutError, kafka_errors.KafkaError, OSError):  # discarded in any case
            async with asyncio.timeout(_DISCARD_TIMEOUT_S):
                await client.client.close()
        if (sender := client._sender.sender_task) is not None:
            await asyncio.wait([sender], timeout=_DISCARD_TIMEOUT_S)


class OwnTopic:
    """Creates a topic of the gateway's own once, before the first write; tries each of `settings`."""

    def __init__(self, config: KafkaConfig, node: str, name: str, settings: Sequence[dict[str, str]]) -> None:
        self._config = config
        self._node = node
        self._name = name
        self._settings = settings
        self._made = False

    async def make(self) -> None:
        """Create the topic if it does not exist; log a failure, and retry with the next producer."""
        if error := await self.create():
            _log.warning("dead_letter_topic_unfit", topic=self._name, error=error)

    async def create(self) -> str:
        """Create the topic if it does not exist; return in one line why that failed, or why it loses records."""
        if self._made:
            return ""
        try:
            async with asyncio.timeout(_START_TIMEOUT_S):
                trouble = await self._make()
        except (kafka_errors.KafkaError, ConfigurationError, OSError, AttributeError) as error:
            # AttributeError: the controller is not known yet
            return sentence(error)
        self._made = not trouble
        return trouble

    async def _make(self) -> str:
        config = self._config
        admin = AIOKafkaAdminClient(**config.clients(self._node).arguments())
        try:
            await admin.start()
            replicas = replicas_for(len((await admin.describe_cluster())["brokers"]))
            for settings in self._settings:
                topic = NewTopic(self._name, dead_letters.PARTITIONS, replicas, topic_configs=settings)
                answer = (await admin.create_topics([topic])).topic_errors[0]
                kind = kafka_errors.for_code(answer[1])
                if kind is kafka_errors.NoError:
                    return ""
                if kind is not kafka_errors.InvalidConfigurationError:
                    break
            exists = kind is kafka_errors.TopicAlreadyExistsError
            if exists or (kind in _DENIED and self._name in await admin.list_topics()):
                # the broker denies a client that may only write before it checks whether the topic exists
                return await self._trouble_of_existing(admin)
            raise kind(answer[-1])
        finally:
            await admin.close()

    async def _trouble_of_existing(self, admin: AIOKafkaAdminClient) -> str:
        """Return why an existing topic loses records; empty also if this client may not describe it."""
        answers = await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, self._name)])
        found = {entry[0]: entry[1] for answer in answers for resource in answer.resources for entry in resource[4]}
        return settings_trouble(self._name, self._config.dead_letter_topic, found) or ""


def dead_letter_topic(config: KafkaConfig, node: str) -> OwnTopic:
    """Return the dead-letter topic, with the edge broker's settings, else with Apache Kafka's."""
    settings = dead_letters.TOPIC_SETTINGS, dead_letters.KAFKA_TOPIC_SETTINGS
    return OwnTopic(config, node, config.dead_letter_topic, settings)


def boot_times_topic(config: KafkaConfig, node: str) -> OwnTopic:
    """Return the topic `boot_times`."""
    return OwnTopic(config, node, BOOT_TIMES_TOPIC, (BOOT_TIMES_CONFIG,))


async def _trouble(config: KafkaConfig) -> str | None:
    return await asyncio.to_thread(kafka_connection.trouble, config.security, list(config.bootstrap_servers))


def _pass_on(done: asyncio.Future[Any], answer: asyncio.Future[Any]) -> None:
    if answer.done():
        return
    if done.cancelled():
        answer.cancel()
    elif (error := done.exception()) is not None:
        answer.set_exception(_map_error(error))
    else:
        answer.set_result(done.result())


def _map_error(error: BaseException) -> Exception:
    text = sentence(error)
    if isinstance(error, _TOO_LARGE):
        return RefusedTooLargeError(text)
    if isinstance(error, kafka_errors.TopicAuthorizationFailedError):
        return DeniedTopicError(text)
    if isinstance(error, InvalidRecordError):
        return RefusedRecordError(text)
    if isinstance(error, kafka_errors.InvalidTimestampError):
        return RefusedTimestampError(text)
    return KafkaFailure(text)
