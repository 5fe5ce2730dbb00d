"""What is rare, through aiokafka's admin client: topics made, and their settings told.

No decision of the mirror may come in here. aiokafka's exceptions are mapped once, at this seam, to those of errors.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Awaitable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.conn import AIOKafkaConnection
from aiokafka.errors import (
    AuthenticationFailedError,
    InvalidConfigurationError,
    KafkaConnectionError,
    KafkaError,
    TopicAlreadyExistsError,
    UnknownError,
    for_code,
)

from drupelet import kafka_connection
from drupelet.aiokafka_login import log_in_as_ours
from drupelet.errors import ConfigurationError, sentence, without_numbers
from drupelet.kafka_client import ClientSettings, replicas_for
from mirror.errors import SourceError, TargetError

log_in_as_ours(AIOKafkaConnection, AuthenticationFailedError)

NO_BROKER = "no broker answers at"
CREATED_AT_ONCE = 100  # topics in a request


@contextlib.contextmanager
def mapped(kind: type[SourceError] | type[TargetError]) -> Iterator[None]:
    """Turn aiokafka's exceptions into ours."""
    try:
        yield
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
                await explained(self._settings, client.start())
            except BaseException:
                await client.close()
                raise
            self._client = client
        return self._client

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
