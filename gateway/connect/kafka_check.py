"""Try the Kafka broker and mosquitto, and report the problem of each in one sentence; write nothing to either.

| question about the Kafka broker | how |
|---|---|
| is it reachable, its certificate valid, our authentication accepted? | a connection to each of bootstrap_servers |
| does it speak Kafka, and do its brokers' own addresses lead to them? | Metadata |
| may this client write to the topics? | Produce without records, which brokers refuse after the check of permissions |
| may it create the topic `boot_times`, if it does not exist? | CreateTopics with validate_only |
| do the settings of the gateway's own topics lose records? | DescribeConfigs, if it is permitted |

For mosquitto see mqtt_check.py. Blocking: a peer that does not answer takes TIMEOUT_S.
Source: KIP-98 and Kafka's schema of Produce 8.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import TypeVar

from drupelet.addresses import host_and_port
from drupelet.host.boot_clock import BOOT_TIMES_CONFIG, BOOT_TIMES_TOPIC
from drupelet.kafka.connection import TIMEOUT_S, End, NotConnected, ask, open_connection, try_cluster
from drupelet.kafka.security import Security
from drupelet.ledger import LEDGER_TOPIC
from edge_broker.errors import ProtocolViolation
from edge_broker.protocol.api import CREATE_TOPICS, DESCRIBE_CONFIGS, PRODUCE
from edge_broker.protocol.codec import decode, encode
from edge_broker.protocol.message import Message
from edge_broker.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from edge_broker.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from edge_broker.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from gateway.config import GatewayConfig, KafkaConfig
from gateway.kafka.topic_settings import settings_trouble

# served by Apache Kafka 2.4 to 4.x and by the edge broker
_VERSIONS = {PRODUCE: 8, CREATE_TOPICS: 4, DESCRIBE_CONFIGS: 1}
UNKNOWN_TOPIC, _DENIED, _CLUSTER_DENIED = 3, 29, 31
TOPIC_RESOURCE = 2  # as resource_type of configurations
UNKNOWN_SETTINGS = "its settings are unknown: give this client the right to DESCRIBE_CONFIGS there"
NO_RECORDS = memoryview(b"")  # null would end in a NullPointerException of Apache Kafka 4.3, and no answer
_Answer = TypeVar("_Answer", bound=Message)


def try_all(config: GatewayConfig) -> Iterator[End]:
    """Try every end of a configuration, one after the other."""
    topics = {config.kafka.dead_letter_topic: None, LEDGER_TOPIC: None}
    topics |= {route.topic: None for route in (config.mqtt.routes if config.mqtt else ())}
    topics |= {source.topic: None for source in (*config.files, config.journal, config.board) if source is not None}
    if config.clock_trusted != "true":
        topics[BOOT_TIMES_TOPIC] = None
    yield from try_kafka(config.kafka, sorted(topics))
    if config.mqtt is not None:
        from gateway.connect.mqtt_check import try_mosquitto  # noqa: PLC0415 (paho only where MQTT is read)

        yield from try_mosquitto(config.mqtt)


def try_kafka(config: KafkaConfig, topics: list[str]) -> Iterator[End]:
    """Try each bootstrap server; with the first that answers check the brokers' addresses and the topics, too."""
    yield from try_cluster("kafka", config.security, list(config.bootstrap_servers))
    for server in config.bootstrap_servers:
        try:
            connection = open_connection(config.security, *host_and_port(server))
        except NotConnected:  # reported already
            continue
        with connection:
            try:
                yield from _try_topics(connection, config, topics)
            except NotConnected as trouble:
                yield End(f"kafka {server}", str(trouble))
        return


def _try_topics(connection: socket.socket, config: KafkaConfig, topics: list[str]) -> Iterator[End]:
    security = config.security
    for topic in topics:
        data = [TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=NO_RECORDS)])]
        request = ProduceRequest(acks=-1, timeout_ms=int(TIMEOUT_S * 1000), topic_data=data)
        answer = _ask(connection, security, PRODUCE, request, ProduceResponse)
        codes = {found.error_code for told in answer.responses for found in told.partition_responses}
        trouble = _topic_trouble(topic, codes, is_known=security.shows_who)
        if topic == BOOT_TIMES_TOPIC and trouble is None and UNKNOWN_TOPIC in codes:
            trouble = _creation_trouble(connection, security)
        unknown = None
        if trouble is None and topic in {config.dead_letter_topic, LEDGER_TOPIC, BOOT_TIMES_TOPIC}:
            settings = _settings(connection, security, topic)
            unknown = UNKNOWN_SETTINGS if settings is None else None
            trouble = settings_trouble(topic, config.dead_letter_topic, settings or {})
        yield End(f"kafka topic {topic}", trouble, unknown)


def _topic_trouble(topic: str, codes: set[int], *, is_known: bool) -> str | None:
    """Return the problem of a topic; `is_known`: the client is authenticated, so that ACLs may name it."""
    if not codes & {_DENIED, _CLUSTER_DENIED}:
        return None
    if topic != LEDGER_TOPIC:
        return "may not be written by this client: give it the right to WRITE there"
    if is_known:
        return (
            "may not be written by this client: give it the right to WRITE there; a broker without an authorizer wants "
            "this host's address in edge.ledger.writers"
        )
    return "may not be written by this host: add its address to edge.ledger.writers of the broker"


def _creation_trouble(connection: socket.socket, security: Security) -> str | None:
    """Return why this client cannot create the topic `boot_times`, or None."""
    configs = [CreatableTopicConfig(name=name, value=value) for name, value in BOOT_TIMES_CONFIG.items()]
    wanted = CreatableTopic(name=BOOT_TIMES_TOPIC, num_partitions=1, replication_factor=1, configs=configs)
    request = CreateTopicsRequest(topics=[wanted], timeout_ms=int(TIMEOUT_S * 1000), validate_only=True)
    answer = _ask(connection, security, CREATE_TOPICS, request, CreateTopicsResponse)
    if not {found.error_code for found in answer.topics} & {_DENIED, _CLUSTER_DENIED}:
        return None
    settings = ", ".join(f"{name}={value}" for name, value in BOOT_TIMES_CONFIG.items())
    return (
        f"is not there, and this client may not create it: create it with {settings} and one partition, or give the"
        ' right to CREATE; with a clock that is always set: clock_trusted = "true"'
    )


def _settings(connection: socket.socket, security: Security, topic: str) -> dict[str, str | None] | None:
    """Return the settings of a topic, empty if it does not exist; None if this client may not describe it."""
    resource = DescribeConfigsResource(resource_type=TOPIC_RESOURCE, resource_name=topic)
    request = DescribeConfigsRequest(resources=[resource])
    answer = _ask(connection, security, DESCRIBE_CONFIGS, request, DescribeConfigsResponse)
    if any(found.error_code in {_DENIED, _CLUSTER_DENIED} for found in answer.results):
        return None
    return {setting.name: setting.value for found in answer.results for setting in found.configs}


def _ask(connection: socket.socket, security: Security, key: int, request: Message, kind: type[_Answer]) -> _Answer:
    version = _VERSIONS[key]
    answer = ask(connection, security, key, version, b"".join(encode(request, version)))
    try:
        return decode(kind, version, answer, 0)
    except ProtocolViolation as error:
        raise NotConnected("does not speak the Kafka protocol: does another service listen on that port?") from error
