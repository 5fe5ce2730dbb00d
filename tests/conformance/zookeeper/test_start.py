"""A member of a cluster that starts answers nobody before it knows whose its partitions are."""

import threading
from pathlib import Path

import pytest

from edge_broker.errors import ErrorCode
from edge_broker.protocol.api import METADATA
from edge_broker.protocol.messages.metadata import MetadataRequest
from edge_broker.protocol.record_batch import build_batch
from tests.support.kafka_reading import create_topic
from tests.support.processes import EdgeBroker
from tests.support.raw_client import connected
from tests.support.waiting import wait_until
from tests.support.zookeeper import ZooKeeperEnsemble

ANSWERS = 200
KNOCK_S = 0.0005


class Knocking(threading.Thread):
    """Asks a broker again and again, from before its start on."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(daemon=True)
        self.bootstrap = bootstrap
        self.stopping = threading.Event()
        self.answers = 0
        self.leads: list[object] = []
        self.appended: list[int] = []

    def run(self) -> None:
        while not self.stopping.is_set():
            try:
                self._knock()
            except OSError:
                self.stopping.wait(KNOCK_S)  # it is not there yet

    def _knock(self) -> None:
        with connected(self.bootstrap, 10) as client:
            while not self.stopping.is_set():
                answer = client.ask(METADATA, MetadataRequest(topics=None))
                self.answers += 1
                for topic in answer.topics:
                    self.leads += [topic.name for each in topic.partitions if topic.name == "t" and each.leader_id >= 0]
                batch = build_batch([(None, b"x")], timestamp_ms=1)
                code = client.produce("t", batch).error_code
                if code == ErrorCode.NONE:
                    self.appended.append(code)


@pytest.mark.timeout(120)
def test_a_member_that_starts_without_the_ensemble_answers_for_no_partition(tmp_path: Path) -> None:
    settings: dict[str, str | int] = {"zookeeper.session.timeout.ms": 2000}
    with ZooKeeperEnsemble(tmp_path) as ensemble:
        broker = EdgeBroker(tmp_path, settings={**settings, "zookeeper.connect": ensemble.connect})
        with broker:
            create_topic(broker.bootstrap, "t")
    knocking = Knocking(broker.bootstrap)
    knocking.start()
    broker.spawn()
    try:
        wait_until(lambda: knocking.answers >= ANSWERS, 30, "answers of a broker that has no ensemble")
    finally:
        knocking.stopping.set()
        knocking.join()
        broker.kill()
    assert (knocking.leads, knocking.appended) == ([], [])
