"""Real clients over TLS, with and without certificates of their own: all get in that should, and nobody else.

With `--broker kafka` the same settings and the same clients are held against Apache Kafka.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from tests.support import runtimes
from tests.support.certificates import Authority
from tests.support.conformance.limits import COMMON
from tests.support.conformance.tls_site import NAMES, TlsSite, run
from tests.support.java_tools import CONSUMER, PRODUCER, QUICK_START, QUIET
from tests.support.processes import wait_until
from tests.support.waiting import CALL_S

LARGE = 900_000


@pytest.fixture(scope="module")
def site(broker_class: type, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsSite]:
    directory = tmp_path_factory.mktemp("tls")
    authority, stranger = Authority(directory / "ca"), Authority(directory / "stranger", "stranger")
    for one in (authority, stranger):
        one.store("client", NAMES)
    settings = {
        **COMMON,
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(authority.store("broker", NAMES)),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authority.certificate),
        "ssl.client.auth": "required",
    }
    with broker_class(directory, settings=settings, protocol="SSL") as process:
        yield TlsSite(process, process.bootstrap, authority, stranger)


def test_librdkafka(site: TlsSite) -> None:
    producer = Producer({**site.librdkafka(), "acks": "all"})
    values = [b"%d" % number for number in range(500)] + [b"x" * LARGE]
    for value in values:
        producer.produce("librdkafka", value)
    assert producer.flush(CALL_S) == 0
    assert read_values(site, "librdkafka", len(values)) == values


def read_values(site: TlsSite, topic: str, count: int) -> list[bytes]:
    consumer = Consumer({**site.librdkafka(), "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    found: list[bytes] = []

    def all_read() -> bool:
        found.extend(message.value() for message in consumer.consume(count, 1.0) if message.error() is None)
        return len(found) >= count

    wait_until(all_read, 60, lambda: f"{len(found)} of {count}")
    consumer.close()
    return found


async def test_aiokafka(site: TlsSite) -> None:
    told = {"bootstrap_servers": site.bootstrap, "security_protocol": "SSL", "ssl_context": site.context()}
    async with asyncio.timeout(CALL_S), AIOKafkaProducer(**told, max_request_size=2 * LARGE) as producer:
        for value in (b"first", b"y" * LARGE, b"last"):
            await producer.send_and_wait("aiokafka", value)
    async with asyncio.timeout(CALL_S), AIOKafkaConsumer("aiokafka", **told, auto_offset_reset="earliest") as consumer:
        found = [(await consumer.getone()).value for _ in range(3)]
    assert found == [b"first", b"y" * LARGE, b"last"]


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_java(site: TlsSite, tmp_path: Path, version: str) -> None:
    properties = tmp_path / "client.properties"
    properties.write_text(
        "security.protocol=SSL\nssl.keystore.type=PEM\nssl.truststore.type=PEM\n"
        f"ssl.keystore.location={site.authority.directory / 'client.store'}\n"
        f"ssl.truststore.location={site.authority.certificate}\nssl.enabled.protocols={version}\n"
    )
    topic, lines = f"java-{version}", [f"line {number}" for number in range(50)]
    command = [*runtimes.kafka_java(*QUICK_START, QUIET)]
    to = ["--bootstrap-server", site.bootstrap, "--topic", topic]
    run([*command, PRODUCER, *to, "--command-config", properties], "".join(f"{line}\n" for line in lines))
    shown = run([*command, CONSUMER, *to, "--command-config", properties, "--from-beginning", "--max-messages", "50"])
    assert shown.splitlines()[:50] == lines


@pytest.mark.parametrize("who", ["without a certificate", "with a stranger's", "in plain text"])
def test_a_stranger_gets_nothing(site: TlsSite, who: str) -> None:
    told = site.librdkafka()
    if who == "without a certificate":
        del told["ssl.certificate.location"], told["ssl.key.location"]
    elif who == "with a stranger's":
        told["ssl.certificate.location"] = str(site.stranger.directory / "client.pem")
        told["ssl.key.location"] = str(site.stranger.directory / "client.key")
    else:
        told = {"bootstrap.servers": site.bootstrap}
    with pytest.raises(KafkaException):
        AdminClient({**told, "log_level": 0}).list_topics(timeout=2)


def connect(site: TlsSite, context: ssl.SSLContext) -> None:
    host, _, port = site.bootstrap.rpartition(":")
    with (
        socket.create_connection((host, int(port)), CALL_S) as plain,
        context.wrap_socket(plain, server_hostname=host) as secured,
    ):
        secured.sendall(b"\0\0\0\0")


def test_renegotiation_is_refused(site: TlsSite) -> None:
    """A client that asks for it again and again would have the broker sign for it each time."""
    folder = site.authority.directory
    command = ["openssl", "s_client", "-connect", site.bootstrap, "-tls1_2", "-legacy_renegotiation"]
    command += ["-cert", str(folder / "client.pem"), "-key", str(folder / "client.key")]
    done = subprocess.run(command, input="R\n", capture_output=True, text=True, timeout=CALL_S, check=False)
    assert "Cipher is ECDHE" in done.stdout
    refusals = ("no renegotiation", "unexpected eof", "read:errno=0")  # Kafka closes the connection
    assert any(refusal in (done.stderr + done.stdout).lower() for refusal in refusals), done.stderr


def test_what_happened_can_be_seen(site: TlsSite, request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--broker") == "kafka":
        return
    connect(site, site.context())
    wait_until(lambda: 'principal="User:CN=client"' in site.broker.log_tail(200), 20, site.broker.log_tail)
    metrics_url = site.broker.metrics_url  # type: ignore[attr-defined]
    with urllib.request.urlopen(metrics_url, timeout=CALL_S) as answer:
        text = answer.read().decode()
    assert 'edge_broker_certificate_end_seconds{listener="CLIENT"} 1' in text
    with urllib.request.urlopen(metrics_url.replace("metrics", "health"), timeout=CALL_S) as answer:
        assert b"ok, but the certificate of listener CLIENT ends" in answer.read()
