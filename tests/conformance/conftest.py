"""The brokers that clients are held against, as real processes: one open, one behind a proxy that steals answers.

`--broker kafka` puts Apache Kafka 4.3.1 in their place: a conformance test is only honest if the real thing passes it.
`--security secured` lets nobody in who does not log in: into the open one by TLS and SCRAM-SHA-512, into the one behind
the proxy, which could steal nothing of what is encrypted, by SCRAM-SHA-256. Then the tests of the clients that others
wrote run, and of our tools; the clients of ours have test_security_clients.py.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.conformance.limits import COMMON
from tests.support.entries import moved
from tests.support.kafka_faults import AnswerThief
from tests.support.kafka_reading import create_topic
from tests.support.ports import free_port
from tests.support.processes import ApacheKafka, EdgeBroker, TcpProxy
from tests.support.secured_broker import secured_broker

SECURED = frozenset(f"test_{name}" for name in ("aiokafka", "confluent_kafka", "java", "kafka_python", "kcat", "tools"))
BROKERS = {"edge": EdgeBroker, "kafka": ApacheKafka}


@pytest.fixture(scope="session")
def broker_class(request):
    return BROKERS[request.config.getoption("--broker")]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    """Secured, leave out what would not be another test then."""
    if config.getoption("--security") == "plain":
        return
    here = Path(__file__).parent
    left_out = [item for item in items if item.path.parent == here and item.path.stem not in SECURED]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]


@pytest.fixture(scope="session")
def start(request, broker_class):
    """How to describe a broker with these settings, which lets clients in as the run says."""

    def described(directory, *, protocol, mechanism, **more):
        if request.config.getoption("--security") == "plain":
            return broker_class(directory, **more)
        return secured_broker(broker_class, directory, protocol=protocol, mechanism=mechanism, **more)

    return described


@pytest.fixture(scope="session")
def broker(start, tmp_path_factory):
    """A broker that creates topics when a client asks for them."""
    directory = tmp_path_factory.mktemp("broker")
    with start(directory, protocol="SASL_SSL", mechanism="SCRAM-SHA-512", settings=COMMON) as process:
        yield process


@dataclass(frozen=True)
class StolenAnswers:
    """A broker that never creates topics by itself, behind a proxy that can steal its answers."""

    bootstrap: str
    thief: AnswerThief


@pytest.fixture(scope="session")
def strict(start, tmp_path_factory) -> Iterator[StolenAnswers]:
    thief, port = AnswerThief(), free_port()
    settings = {**COMMON, "auto.create.topics.enable": "false"}
    directory = tmp_path_factory.mktemp("strict")
    told = {"name": "strict", "advertise": f"127.0.0.1:{port}", "settings": settings}
    with (
        start(directory, protocol="SASL_PLAINTEXT", mechanism="SCRAM-SHA-256", **told) as process,
        TcpProxy(process.bootstrap, port=port, make_filter=thief) as proxy,
    ):
        yield StolenAnswers(moved(process.bootstrap, proxy.bootstrap), thief)


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
