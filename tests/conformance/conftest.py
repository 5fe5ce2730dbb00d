"""The brokers that clients are held against, as real processes: one open, one behind a proxy that steals answers.

`--broker kafka` puts Apache Kafka 4.3.1 in their place: a conformance test is only honest if the real thing passes it.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from tests.support.kafka_faults import AnswerThief
from tests.support.kafka_reading import create_topic
from tests.support.ports import free_port
from tests.support.processes import ApacheKafka, EdgeBroker, TcpProxy

MESSAGE_BYTES_MAX = 1_048_588  # Kafka's default message.max.bytes
BROKERS = {"edge": EdgeBroker, "kafka": ApacheKafka}
# Kafka waits 3 s by default for more members of a new group; nothing here tests that.
COMMON = {"group.initial.rebalance.delay.ms": 0}


@pytest.fixture(scope="session")
def broker_class(request):
    return BROKERS[request.config.getoption("--broker")]


@pytest.fixture(scope="session")
def broker(broker_class, tmp_path_factory):
    """A broker that creates topics when a client asks for them."""
    with broker_class(tmp_path_factory.mktemp("broker"), settings=COMMON) as process:
        yield process


@dataclass(frozen=True)
class StolenAnswers:
    """A broker that never creates topics by itself, behind a proxy that can steal its answers."""

    bootstrap: str
    thief: AnswerThief


@pytest.fixture(scope="session")
def strict(broker_class, tmp_path_factory) -> Iterator[StolenAnswers]:
    thief, port = AnswerThief(), free_port()
    settings = {**COMMON, "auto.create.topics.enable": "false"}
    directory = tmp_path_factory.mktemp("strict")
    with (
        broker_class(directory, name="strict", advertise=f"127.0.0.1:{port}", settings=settings) as process,
        TcpProxy(process.bootstrap, port=port, make_filter=thief) as proxy,
    ):
        yield StolenAnswers(proxy.bootstrap, thief)


@pytest.fixture
def new_topic(broker) -> Callable[..., str]:
    """Create a topic on the open broker under a name of its own."""
    return lambda partitions=1: _create(broker.bootstrap, partitions)


@pytest.fixture
def new_strict_topic(strict) -> Callable[..., str]:
    """Create a topic on the strict broker under a name of its own."""
    return lambda partitions=1: _create(strict.bootstrap, partitions)


def _create(bootstrap: str, partitions: int) -> str:
    name = f"topic-{uuid.uuid4().hex[:8]}"
    create_topic(bootstrap, name, partitions)
    return name


@pytest.fixture
def group() -> str:
    return f"group-{uuid.uuid4().hex[:8]}"
