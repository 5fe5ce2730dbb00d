"""What is rare: topics made and grown, one request for many of them.

| asked | of whom | round trips |
|---|---|---|
| CreateTopics | any broker, the controller with ZooKeeper | 1; more where it does not know a setting |
| CreatePartitions | the controller, where one is told, else any broker | 1 |

No decision of the mirror may come in here, and no other attempt.
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
SERVED_S = 30.0  # for the brokers to make them
NOT_CONTROLLER = 41  # of Apache Kafka alone
AGAIN = {
    NOT_CONTROLLER,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
}
"""Of these the same request may be taken a moment later."""


class NewTopicChoices(NamedTuple):
    """A topic to be made: with how many partitions, and with which settings, those that are wanted most first."""

    partitions: int
    choices: Sequence[dict[str, str]]


class Refusal(NamedTuple):
    """What a broker answered about one topic."""

    code: int
    said: str

    def __str__(self) -> str:
        return f"{error_name(self.code)}: {self.said}" if self.said else error_name(self.code)


Created = dict[str, str] | Refusal | None
"""The settings that a topic was made with, None where it was there, or what the broker answered."""


async def create(
    cluster: Cluster, wanted: Mapping[str, NewTopicChoices], replicas: int, timeout_s: float
) -> dict[str, Created]:
    """Create topics, each with the first choice of settings that the broker takes; raises WireError.

    Returns that choice, None where the topic was there, or why it cannot be made.
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
    """Have a topic grow to so many partitions; return why it cannot. Raises WireError."""
    topic = CreatePartitionsTopic(name=name, count=partitions, assignments=None)
    request = CreatePartitionsRequest(topics=[topic], timeout_ms=int(SERVED_S * 1000), validate_only=False)
    answer = await (await _controller(cluster)).ask(CREATE_PARTITIONS, request, timeout_s=timeout_s + SERVED_S)
    if len(answer.results) != 1:
        raise WireError(f"{len(answer.results)} topics were answered in place of {name}")
    (told,) = answer.results
    return Refusal(told.error_code, peer_text(told.error_message)) if told.error_code else None


def _topic(name: str, partitions: int, replicas: int, settings: Mapping[str, str]) -> CreatableTopic:
    configs = [CreatableTopicConfig(name=key, value=value) for key, value in settings.items()]
    return CreatableTopic(name=name, num_partitions=partitions, replication_factor=replicas, configs=configs)


async def _controller(cluster: Cluster) -> Connection:
    node = cluster.controller
    return await (cluster.any_connection() if node < 0 else cluster.connection(node, SIDE))
