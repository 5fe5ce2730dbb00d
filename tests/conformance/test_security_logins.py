"""Each client that others wrote logs in by each mechanism, or shows a certificate; whoever may not get in is told so.

The broker is the edge broker with a listener for each way to get in (tests/support/secured_like_kafka.py);
`--broker kafka` holds the same clients against Apache Kafka. All tests of these clients run by TLS and SCRAM with
`--security secured`.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import subprocess
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import KafkaError as AioKafkaError
from confluent_kafka import Consumer, KafkaError, Producer
from kafka import KafkaConsumer, KafkaProducer
from kafka.errors import KafkaError as KafkaPythonError

from edge_broker.security.false_users import KAFKA_SALT, salt_kind
from edge_broker.storage.files.filesystem import Disk
from edge_broker.storage.metadata.security_store import SecurityStore
from tests.support import runtimes
from tests.support.certificates import Authority
from tests.support.conformance.limits import COMMON
from tests.support.entries import Bootstrap, Entry, aiokafka, command_config, kafka_python, kcat, librdkafka
from tests.support.java_tools import CONFIGS, CONSUMER, PRODUCER, QUICK_START, QUIET, TOPICS
from tests.support.kafka_reading import create_topic
from tests.support.secured_kafka import LISTENERS, PASSWORD, USER, SecuredKafka
from tests.support.secured_like_kafka import SecuredLikeKafka
from tests.support.waiting import CALL_S, wait_until

Broker = SecuredLikeKafka | SecuredKafka
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
LINES = [f"line {number}" for number in range(50)]
VALUES = [line.encode() for line in LINES]
TEXT = "".join(f"{line}\n" for line in LINES)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    made = Authority(tmp_path_factory.mktemp("ca"), "site CA")
    made.store("client", "DNS:client")
    return made


@pytest.fixture(scope="module")
def broker(
    request: pytest.FixtureRequest, authority: Authority, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Broker]:
    kind = SecuredKafka if request.config.getoption("--broker") == "kafka" else SecuredLikeKafka
    with kind(tmp_path_factory.mktemp("logins"), authority, settings=COMMON) as process:
        yield process


@pytest.fixture
def at(broker: Broker, authority: Authority, tmp_path: Path) -> Callable[..., Bootstrap]:
    """The broker's address and how to get in there: by the mechanism, or by certificate where none is named."""

    def made(mechanism: str = "", user: str = USER, password: str = PASSWORD, ca: Path | None = None) -> Bootstrap:
        listener = "BOTH" if mechanism else "MUTUAL"
        entry = Entry(LISTENERS[listener], authority=ca or authority.certificate)
        if mechanism:
            entry = entry._replace(mechanism=mechanism, user=user, password=password)
        else:
            entry = entry._replace(client=authority.directory / "client")
        directory = tmp_path / uuid.uuid4().hex[:8]
        directory.mkdir()
        return Bootstrap(broker.at(listener), entry, directory)

    return made


def run(command: list[str | Path], text: str | None = None, *, fails: bool = False) -> str:
    """Run a command to its end; what it printed, of a failure what it said of that, too."""
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=CALL_S, check=False)
    told = done.stdout + done.stderr
    assert (done.returncode != 0) is fails, told
    assert PASSWORD not in told
    return told if fails else done.stdout


def java(tool: str, bootstrap: str, *options: str, text: str | None = None, fails: bool = False) -> str:
    command = [*runtimes.kafka_java(*QUICK_START, QUIET), tool, "--bootstrap-server", bootstrap]
    return run([*command, *command_config(bootstrap), *options], text, fails=fails)


# What comes back of VALUES, sent and read by a group.


def by_confluent_kafka(bootstrap: str, topic: str, group: str) -> list[bytes]:
    producer = Producer({**librdkafka(bootstrap), "acks": "all"})
    for value in VALUES:
        producer.produce(topic, value)
    assert producer.flush(CALL_S) == 0
    consumer = Consumer({**librdkafka(bootstrap), "group.id": group, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    found: list[bytes] = []

    def all_read() -> bool:
        found.extend(message.value() for message in consumer.consume(len(VALUES), 1.0) if message.error() is None)
        return len(found) >= len(VALUES)

    wait_until(all_read, 60, lambda: f"{len(found)} of {len(VALUES)}")
    consumer.close()
    return found


def by_aiokafka(bootstrap: str, topic: str, group: str) -> list[bytes]:
    async def both() -> list[bytes]:
        async with AIOKafkaProducer(**aiokafka(bootstrap), acks="all") as producer:
            for value in VALUES:
                await producer.send_and_wait(topic, value)
        told = {"group_id": group, "auto_offset_reset": "earliest"}
        async with AIOKafkaConsumer(topic, **aiokafka(bootstrap), **told) as consumer:
            return [(await consumer.getone()).value for _ in VALUES]

    async def in_time() -> list[bytes]:
        async with asyncio.timeout(CALL_S):
            return await both()

    return asyncio.run(in_time())


def by_kafka_python(bootstrap: str, topic: str, group: str) -> list[bytes]:
    producer = KafkaProducer(**kafka_python(bootstrap), acks="all")
    for value in VALUES:
        producer.send(topic, value)
    producer.flush(timeout=CALL_S)
    producer.close(timeout=CALL_S)
    consumer = KafkaConsumer(topic, **kafka_python(bootstrap), group_id=group, auto_offset_reset="earliest")
    found: list[bytes] = []

    def all_read() -> bool:
        found.extend(record.value for records in consumer.poll(2000).values() for record in records)
        return len(found) >= len(VALUES)

    wait_until(all_read, 60, lambda: f"{len(found)} of {len(VALUES)}", poll_s=0)
    consumer.close()
    return found


def by_java(bootstrap: str, topic: str, group: str) -> list[bytes]:
    java(PRODUCER, bootstrap, "--topic", topic, text=TEXT)
    wanted = ("--topic", topic, "--group", group, "--from-beginning", "--max-messages", str(len(LINES)))
    return [line.encode() for line in java(CONSUMER, bootstrap, *wanted).splitlines()[: len(LINES)]]


def by_kcat(bootstrap: str, topic: str, group: str) -> list[bytes]:
    run([*kcat(bootstrap), "-P", "-t", topic], TEXT)
    wanted = ["-G", group, "-c", str(len(LINES)), "-q", "-X", "auto.offset.reset=earliest"]
    return [line.encode() for line in run([*kcat(bootstrap), *wanted, topic]).splitlines()]


CLIENTS = {
    "confluent-kafka": by_confluent_kafka,
    "aiokafka": by_aiokafka,
    "kafka-python": by_kafka_python,
    "java": by_java,
    "kcat": by_kcat,
}


@pytest.mark.parametrize("mechanism", ["", *MECHANISMS], ids=["certificate", *MECHANISMS])
@pytest.mark.parametrize("client", CLIENTS)
def test_a_client_gets_in_writes_and_reads(
    broker: Broker, at: Callable[..., Bootstrap], group: str, client: str, mechanism: str
) -> None:
    topic = f"topic-{uuid.uuid4().hex[:8]}"
    create_topic(broker.bootstrap, topic)
    if client == "kcat" and mechanism.startswith("SCRAM") and isinstance(broker, SecuredKafka):
        told = run([*kcat(at(mechanism)), "-L", "-m", "5"], fails=True)
        assert REFUSED.search(told), "librdkafka before 2.6.1 repeats its nonce, which Apache Kafka 4 refuses"
        return
    assert CLIENTS[client](at(mechanism), topic, group) == VALUES


# What a client is told that does not get in.


def told_confluent_kafka(bootstrap: str, _: pytest.LogCaptureFixture) -> str:
    errors: list[KafkaError] = []
    producer = Producer({**librdkafka(bootstrap), "error_cb": errors.append, "log_level": 0})

    def refused() -> bool:
        producer.poll(0.2)
        return any(error.code() in (KafkaError._AUTHENTICATION, KafkaError._SSL) for error in errors)

    wait_until(refused, 30, lambda: str(errors), poll_s=0)
    return str(errors)


def told_aiokafka(bootstrap: str, caplog: pytest.LogCaptureFixture) -> str:
    async def start() -> None:
        producer = AIOKafkaProducer(**aiokafka(bootstrap))
        try:
            await producer.start()
        finally:
            await producer.stop()

    with caplog.at_level(logging.WARNING), pytest.raises(AioKafkaError) as raised:
        asyncio.run(asyncio.wait_for(start(), CALL_S))
    return f"{raised.value!r} {caplog.text}"


def told_kafka_python(bootstrap: str, caplog: pytest.LogCaptureFixture) -> str:
    with caplog.at_level(logging.WARNING), pytest.raises(KafkaPythonError) as raised:
        KafkaProducer(**kafka_python(bootstrap), bootstrap_timeout_ms=2000)
    return f"{raised.value!r} {caplog.text}"


def told_java(bootstrap: str, _: pytest.LogCaptureFixture) -> str:
    return java(TOPICS, bootstrap, "--list", fails=True)


def told_kcat(bootstrap: str, _: pytest.LogCaptureFixture) -> str:
    return run([*kcat(bootstrap), "-L", "-m", "5"], fails=True)


TOLD = {
    "confluent-kafka": told_confluent_kafka,
    "aiokafka": told_aiokafka,
    "kafka-python": told_kafka_python,
    "java": told_java,
    "kcat": told_kcat,
}
REFUSED = re.compile(r"SaslAuthentication|Authentication failed|_AUTHENTICATION|invalid credentials", re.IGNORECASE)
STRANGE = re.compile(r"certificate verify failed|unable to find valid certification path|_SSL|SSL handshake failed")


@pytest.mark.parametrize(
    ("mechanism", "wrong"),
    [
        ("PLAIN", {"password": "wrong"}),
        ("PLAIN", {"user": "nobody"}),
        ("SCRAM-SHA-256", {"password": "wrong"}),
        ("SCRAM-SHA-512", {"user": "nobody"}),
    ],
    ids=lambda value: value if isinstance(value, str) else "-".join(value.values()),
)
@pytest.mark.parametrize("client", TOLD)
def test_a_wrong_password_and_an_unknown_user_are_told(
    at: Callable[..., Bootstrap], caplog: pytest.LogCaptureFixture, client: str, mechanism: str, wrong: dict[str, str]
) -> None:
    told = TOLD[client](at(mechanism, **wrong), caplog)
    # kafka-python 3.0 drops an answer that comes with the end of its connection, from Apache Kafka as well
    dropped = client == "kafka-python" and "KafkaConnectionError: socket disconnected" in told
    assert dropped or REFUSED.search(told), told
    assert PASSWORD not in told


@pytest.mark.parametrize("client", TOLD)
def test_a_broker_of_another_ca_is_not_believed(
    at: Callable[..., Bootstrap], caplog: pytest.LogCaptureFixture, tmp_path: Path, client: str
) -> None:
    other = Authority(tmp_path / "other", "other CA").certificate
    told = TOLD[client](at("SCRAM-SHA-512", ca=other), caplog)
    assert STRANGE.search(told), told


def test_kafka_configs_makes_describes_and_removes_a_user(
    broker: Broker, at: Callable[..., Bootstrap], caplog: pytest.LogCaptureFixture, group: str
) -> None:
    admin, who = at("SCRAM-SHA-512"), ("--entity-type", "users", "--entity-name", "ann")
    java(CONFIGS, admin, "--alter", *who, "--add-config", "SCRAM-SHA-512=[iterations=8192,password=annas]")
    described = java(CONFIGS, admin, "--describe", "--entity-type", "users")
    held = {user: set(each.split(", ")) for user, each in re.findall(r"user-principal '(.*)' are (.*)\n", described)}
    assert held == {
        "ann": {"SCRAM-SHA-512=iterations=8192"},
        USER: {"SCRAM-SHA-256=iterations=4096", "SCRAM-SHA-512=iterations=4096"},
    }
    if isinstance(broker, SecuredLikeKafka):  # so names that do not exist are shown salts of this form too
        made = SecurityStore.open(Disk(), str(broker.data_dir), os.urandom).state.users["ann"]["SCRAM-SHA-512"]
        assert salt_kind(made.salt) == KAFKA_SALT
    ann = at("SCRAM-SHA-512", user="ann", password="annas")
    create_topic(broker.bootstrap, "of-ann")
    assert by_confluent_kafka(ann, "of-ann", group) == VALUES
    java(CONFIGS, admin, "--alter", *who, "--delete-config", "SCRAM-SHA-512")
    assert "SCRAM-SHA-512" not in java(CONFIGS, admin, "--describe", *who)
    assert REFUSED.search(told_confluent_kafka(ann, caplog))
