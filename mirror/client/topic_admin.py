"""Creates and grows topics, one request for many of them.

| request | to | round trips |
|---|---|---|
| CreateTopics | any broker, the controller with ZooKeeper | 1; more if it refuses a config |
| CreatePartitions | the controller if it is known, else any broker | 1 |

Does not contain: decisions of the mirror, retries.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from drupelet.printable import peer_text
from edge_broker.errors import ErrorCode, error_name
from edge_broker.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from edge_broker.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from kafka_wire.apis import CREATE_PARTITIONS, CREATE_TOPICS
from kafka_wire.cluster import SIDE, Cluster
from kafka_wire.connection.connection import Connection
from kafka_wire.connection.errors import WireError

CREATED_AT_ONCE = 100  # topics in a request
SERVED_S = 30.0  # for the brokers to create them
NOT_CONTROLLER = 41  # of Apache Kafka alone
AGAIN = {
    NOT_CONTROLLER,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
}
"""After one of these errors, the same request may succeed a moment later."""


class NewTopicChoices(NamedTuple):
    """A topic to create: the number of partitions, and choices of its configs, the preferred ones first."""

    partitions: int
    choices: Sequence[dict[str, str]]


class Refusal(NamedTuple):
    """A broker's refusal of one topic."""

    code: int
    said: str

    def __str__(self) -> str:
        return f"{error_name(self.code)}: {self.said}" if self.said else error_name(self.code)


Created = dict[str, str] | Refusal | None
"""The configs that a topic was created with, None if it existed, or the broker's refusal."""


async def create(
    cluster: Cluster, wanted: Mapping[str, NewTopicChoices], replicas: int, timeout_s: float
) -> dict[str, Created]:
    """Create topics, each with the first choice of configs that the broker accepts; raises WireError.

    Returns that choice, None if the topic existed, or the refusal.
    """
    created: dict[str, Created] = {}
    left = {name: list(choices) for name, (_, choices) in wanted.items()}
    while left:
        some = list(left)[:CREATED_AT_ONCE]
        topics = [_topic(name, wanted[name].partitions, replicas, left[name][0]) for name in some]
        request = CreateTopicsRequest(topics=topics, timeout_ms=int(SERVED_S * 1000))
        answer = await (await cluster.any_connection()).ask(CREATE_TOPICS, request, timeout_s=timeout_s + SERVED_S)
        if any(one.error_code == NOT_CONTROLLER for one in answer.topics):
            answer = await (await _controller(cluster)).ask(CREATE_TOPICS, request, timeout_s=timeout_s + SERVED_S)
        told = {one.name: Refusal(one.error_code, peer_text(one.error_message)) for one in answer.topics}
        for name in some:
            said = told.get(name, Refusal(ErrorCode.UNKNOWN_SERVER_ERROR, "it was not answered"))
            if said.code == ErrorCode.INVALID_CONFIG and len(left[name]) > 1:
                del left[name][0]
                continue
            settings = left.pop(name)[0]
            created[name] = settings if not said.code else said
            if said.code == ErrorCode.TOPIC_ALREADY_EXISTS:
                created[name] = None
    return created


async def grow(cluster: Cluster, name: str, partitions: int, timeout_s: float) -> Refusal | None:
    """Grow a topic to so many partitions; return the refusal, None if it has grown. Raises WireError."""
    topic = CreatePartitionsTopic(name=name, count=partitions, assignments=None)
    request = CreatePartitionsRequest(topics=[topic], timeout_ms=int(SERVED_S * 1000), validate_only=False)
    answer = await (await _controller(cluster)).ask(CREATE_PARTITIONS, request, timeout_s=timeout_s + SERVED_S)
    if len(answer.results) != 1:
        raise WireError(f"{len(answer.results)} topics were answered instead of {name}")
    (told,) = answer.results
    return Refusal(told.error_code, peer_text(told.error_message)) if told.error_code else None


def _topic(name: str, partitions: int, replicas: int, settings: Mapping[str, str]) -> CreatableTopic:
    configs = [CreatableTopicConfig(name=key, value=value) for key, value in settings.items()]
    return CreatableTopic(name=name, num_partitions=partitions, replication_factor=replicas, configs=configs)


async def _controller(cluster: Cluster) -> Connection:
    node = cluster.controller
    return await (cluster.any_connection() if node < 0 else cluster.connection(node, SIDE))
