"""Each case to the edge broker and to Apache Kafka: every difference is known, and every known one is still there.

The brokers run side by side for the whole session: ours and Apache Kafka 4.3.1, and 3.9.2 for versions that 4.0
dropped. `-s` prints what differs in each case.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource

from edge_broker.configuration.config import KEYS
from edge_broker.configuration.settings import SHOWN_BROKER_KEYS
from tests.differential import cases as _cases  # noqa: F401 - registers them
from tests.differential.judging import Judge
from tests.differential.known import KNOWN
from tests.differential.session import CASES, CLOSED, Case, Session
from tests.differential.wire import ClosedError
from tests.support import left_over, runtimes
from tests.support.processes import ApacheKafka, EdgeBroker
from tests.support.waiting import CALL_S

SETTINGS = {"group.initial.rebalance.delay.ms": 0, "auto.create.topics.enable": "false"}


class Brokers:
    """The three subjects; Apache Kafka starts when the first case needs it."""

    def __init__(self, directory, stack: ExitStack) -> None:
        self._directory = directory
        self._stack = stack
        self._started: dict[str, str] = {}
        self.judge = Judge(KNOWN)

    def bootstrap(self, name: str) -> str:
        if name not in self._started:
            if name == "edge":
                process = EdgeBroker(self._directory, settings={**SETTINGS, "broker.id": 1})
            else:
                jars = runtimes.old_kafka_jars() if name == "kafka-3.9.2" else None
                process = ApacheKafka(self._directory, name=name, settings=SETTINGS, jars=jars)
            left_over.share(process)
            self._stack.enter_context(process)
            self._started[name] = process.bootstrap
        return self._started[name]

    def run(self, name: str, case: Case) -> Session:
        session = Session(self.bootstrap(name), case.id)
        try:
            case.program(session, case.version)
        except ClosedError:
            assert session.asked[-1].answer == CLOSED
        finally:
            session.close()
        return session


@pytest.fixture(scope="session")
def brokers(tmp_path_factory) -> Iterator[Brokers]:
    with ExitStack() as stack:
        found = Brokers(tmp_path_factory.mktemp("differential"), stack)
        yield found
        print(f"\n{found.judge.requests} requests to each broker, {len(KNOWN)} known differences")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_both_answer_the_same(brokers: Brokers, case: Case) -> None:
    ours = brokers.run("edge", case)
    kafka = brokers.run("kafka-3.9.2" if case.old else "kafka-4.3.1", case)
    brokers.judge.hold(case.id, ours.asked, kafka.asked)


def test_a_key_of_the_broker_without_our_prefix_is_one_of_apache_kafka(brokers: Brokers) -> None:
    """Of 4.3, or of 3.9 where 4.0 dropped it (those of ZooKeeper's clusters); the authorizer's keys are in no list."""
    broker = ConfigResource(ConfigResource.Type.BROKER, "1")
    admins = [AdminClient({"bootstrap.servers": brokers.bootstrap(name)}) for name in ("kafka-4.3.1", "kafka-3.9.2")]
    known = {key for admin in admins for key in admin.describe_configs([broker])[broker].result(CALL_S)}
    ours = {name for name in (*KEYS, *(key.name for key in SHOWN_BROKER_KEYS)) if not name.startswith("edge.")}
    assert ours - known == {"allow.everyone.if.no.acl.found", "super.users"}


def test_every_known_difference_is_still_there(brokers: Brokers) -> None:
    """Of what known.py says about cases that ran; a mended difference goes off the list."""
    mended = brokers.judge.mended(case.id for case in CASES)
    assert not mended, "\n".join(mended)
