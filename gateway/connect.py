"""Tries the Kafka broker and mosquitto, and says of each end in one sentence what is wrong; nothing is written there.

| asked of the Kafka broker | how |
|---|---|
| is it there, and whom does it say to be? | a connection, TLS where configured, to each of bootstrap_servers |
| does it speak Kafka, and do its brokers' own addresses lead to them? | Metadata |
| may this client write to the topics? | Produce without records, which brokers refuse, after the rights |

Of mosquitto: connection, TLS, user and password, by a session of its own that ends with it. Blocking: an end
that does not answer costs TIMEOUT_S. Source: KIP-98 and Kafka's schemas (Metadata 8, Produce 8); MQTT 5.0, section 3.2.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from typing import NamedTuple, TypeVar

from drupelet.addresses import host_and_port
from drupelet.connection_errors import explained
from drupelet.errors import ConfigurationError, sentence
from drupelet.ledger import LEDGER_TOPIC
from edge_broker.errors import ProtocolViolation
from edge_broker.protocol.api import METADATA, PRODUCE
from edge_broker.protocol.codec import decode, encode
from edge_broker.protocol.message import Message
from edge_broker.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from edge_broker.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from gateway.config import GatewayConfig, KafkaConfig, MqttConfig

TIMEOUT_S = 10.0
ANSWER_BYTES_MAX = 16 << 20
_VERSION = 8  # of both, served by Apache Kafka 2.4 to 4.x and by the edge broker
_DENIED, _CLUSTER_DENIED = 29, 31
_CORRELATION_ID = 5
_Answer = TypeVar("_Answer", bound=Message)


class End(NamedTuple):
    """One thing that was tried; `trouble` is None where all is well, else what goes after the name."""

    name: str
    trouble: str | None


class _Trouble(Exception):
    """What is wrong with an end, as a predicate."""


def try_all(config: GatewayConfig) -> Iterator[End]:
    """Try every end of a configuration, one after the other."""
    topics = {config.kafka.dead_letter_topic: None, LEDGER_TOPIC: None}
    topics |= {route.topic: None for route in (config.mqtt.routes if config.mqtt else ())}
    topics |= {source.topic: None for source in (*config.files, config.journal, config.board) if source is not None}
    yield from try_kafka(config.kafka, config.node, sorted(topics))
    if config.mqtt is not None:
        yield try_mosquitto(config.mqtt)


def try_kafka(config: KafkaConfig, node: str, topics: list[str]) -> Iterator[End]:
    """Try each bootstrap server; of the first that answers also what it says of its brokers and the topics."""
    asked = False
    for server in config.bootstrap_servers:
        name = f"kafka {server}"
        try:
            with _connected(config, node, *host_and_port(server)) as connection:
                metadata = _metadata(connection, topics)
                yield End(name, None)
                if not asked:
                    asked = True
                    yield from _try_brokers(config, node, metadata)
                    yield from _try_topics(connection, topics)
        except _Trouble as trouble:
            yield End(name, str(trouble))


def kafka_trouble(config: KafkaConfig, node: str) -> str | None:
    """Say why none of the bootstrap servers can be connected to; None when one can."""
    troubles = []
    for server in config.bootstrap_servers:
        try:
            _connected(config, node, *host_and_port(server)).close()
        except _Trouble as trouble:
            troubles.append(f"{server} {trouble}")
        else:
            return None
    return "; ".join(troubles)


def _connected(config: KafkaConfig, node: str, host: str, port: int) -> socket.socket:
    try:
        context = config.clients(node).arguments()["ssl_context"]
    except (OSError, ValueError) as error:
        why = getattr(error, "reason", None) or sentence(error)
        raise _Trouble(f"is not tried, as ssl_ca_file {config.ssl_ca_file} holds no PEM certificate ({why})") from error
    plain = None
    try:
        plain = socket.create_connection((host, port), TIMEOUT_S)
        connection: socket.socket = plain if context is None else context.wrap_socket(plain, server_hostname=host)
    except OSError as error:
        if plain is not None:
            plain.close()
        raise _Trouble(explained(error)) from error
    return connection


def _metadata(connection: socket.socket, topics: list[str]) -> MetadataResponse:
    names = [MetadataRequestTopic(name=topic) for topic in topics]
    request = MetadataRequest(topics=names, allow_auto_topic_creation=False)
    return _ask(connection, METADATA, request, MetadataResponse)


def _try_brokers(config: KafkaConfig, node: str, metadata: MetadataResponse) -> Iterator[End]:
    given = {host_and_port(server) for server in config.bootstrap_servers}
    for broker in metadata.brokers:
        if (broker.host, broker.port) in given:
            continue
        name = f"kafka broker {broker.node_id} at {broker.host}:{broker.port}, the address that it advertises,"
        try:
            _connected(config, node, broker.host, broker.port).close()
            yield End(name, None)
        except _Trouble as trouble:
            yield End(name, str(trouble))


def _try_topics(connection: socket.socket, topics: list[str]) -> Iterator[End]:
    for topic in topics:
        data = [TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=None)])]
        request = ProduceRequest(acks=-1, timeout_ms=int(TIMEOUT_S * 1000), topic_data=data)
        answer = _ask(connection, PRODUCE, request, ProduceResponse)
        codes = {found.error_code for told in answer.responses for found in told.partition_responses}
        yield End(f"kafka topic {topic}", _topic_trouble(topic, codes))


def _topic_trouble(topic: str, codes: set[int]) -> str | None:
    if not codes & {_DENIED, _CLUSTER_DENIED}:
        return None
    if topic == LEDGER_TOPIC:
        return "may not be written by this host: add its address to edge.ledger.writers of the broker"
    return "may not be written by this client: give it the right to WRITE there"


def _ask(connection: socket.socket, key: int, request: Message, kind: type[_Answer]) -> _Answer:
    head = key.to_bytes(2, "big") + _VERSION.to_bytes(2, "big") + _CORRELATION_ID.to_bytes(4, "big") + b"\0\x05check"
    frame = head + b"".join(encode(request, _VERSION))
    try:
        connection.sendall(len(frame).to_bytes(4, "big") + frame)
        size = int.from_bytes(_exactly(connection, 4), "big")
        if not 4 <= size <= ANSWER_BYTES_MAX:
            raise _Trouble("does not speak the Kafka protocol: does another service listen on that port?")
        return decode(kind, _VERSION, memoryview(_exactly(connection, size)), 4)
    except OSError as error:
        raise _Trouble(explained(error)) from error
    except ProtocolViolation as error:
        raise _Trouble("does not speak the Kafka protocol: does another service listen on that port?") from error


def _exactly(connection: socket.socket, size: int) -> bytes:
    got = bytearray()
    while len(got) < size:
        part = connection.recv(min(size - len(got), 65_536))
        if not part:
            raise _Trouble("hung up without an answer: does it want TLS, or a log-in that the gateway does not have?")
        got += part
    return bytes(got)


def try_mosquitto(config: MqttConfig) -> End:
    """Try to log in at mosquitto."""
    name = f"mqtt {config.host}:{config.port}"
    try:
        _log_in(config)
    except _Trouble as trouble:
        return End(name, str(trouble))
    except ConfigurationError as error:
        return End(name, f"is not tried, as {error}")
    except OSError as error:
        return End(name, explained(error))
    return End(name, None)


def _log_in(config: MqttConfig) -> None:
    import paho.mqtt.client as paho  # noqa: PLC0415 (where MQTT is read)
    from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion  # noqa: PLC0415

    from gateway.sources.mqtt import hung_up, read_password, said, tls_context  # noqa: PLC0415

    answers: list[str] = []
    client = paho.Client(CallbackAPIVersion.VERSION2, protocol=MQTTProtocolVersion.MQTTv5, reconnect_on_failure=False)
    client.connect_timeout = TIMEOUT_S
    client.on_connect = lambda _client, _data, _flags, reason, _properties: answers.append(
        said(str(reason), config) if reason.is_failure else ""
    )
    if config.username is not None:
        client.username_pw_set(config.username, read_password(config))
    if config.tls:
        client.tls_set_context(tls_context(config))
    client.connect(config.host, config.port, keepalive=config.keepalive_s, clean_start=True)
    until_s = time.monotonic() + TIMEOUT_S
    while not answers and time.monotonic() < until_s and client.loop(0.2) == paho.MQTT_ERR_SUCCESS:
        pass
    client.disconnect()
    if not answers:
        raise _Trouble(hung_up(config))
    if answers[0]:
        raise _Trouble(f"was reached, but {answers[0]}")
