"""A member of a cluster that starts answers nobody before it knows whose its partitions are."""

import shutil
import threading
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from edge_broker.errors import ErrorCode
from edge_broker.network.cluster.previous_session import FILE, Session, end_session, read_session, write_session
from edge_broker.protocol.api import METADATA
from edge_broker.protocol.messages.metadata import MetadataRequest
from edge_broker.protocol.record_batch import build_batch
from edge_broker.storage.files.filesystem import Disk
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


@pytest.mark.timeout(180)
@pytest.mark.parametrize("place", ["this", "another"])
def test_a_broker_that_was_killed_ends_its_former_session_in_the_same_place_alone(place: str, tmp_path: Path) -> None:
    """In another one its directory may be a copy, and the session a living broker's."""
    settings: dict[str, str | int] = {"zookeeper.session.timeout.ms": 10_000}
    with ZooKeeperEnsemble(tmp_path) as ensemble:
        broker = EdgeBroker(tmp_path, settings={**settings, "zookeeper.connect": ensemble.connect})
        with broker:
            create_topic(broker.bootstrap, "t")
            broker.kill()
            file = broker.data_dir / FILE
            kept = read_session(Disk(), str(broker.data_dir))
            assert kept is not None
            if place == "another":
                write_session(Disk(), str(broker.data_dir), kept._replace(place="another"))
            broker.start()
            create_topic(broker.bootstrap, "u")
            ended = f"previous_session_ended session={kept.session_id:x}" in broker.log_path.read_text()
            assert ended == (place == "this")
            broker.stop()
        assert not file.exists(), "a clean stop has closed it"


@pytest.mark.timeout(120)
def test_a_session_that_has_expired_or_has_another_password_is_not_ended(tmp_path: Path) -> None:
    with ZooKeeperEnsemble(tmp_path) as ensemble:
        other = KazooClient(hosts=ensemble.connect, timeout=10)
        other.start()
        try:
            other.create("/alive", ephemeral=True)
            session_id, _ = other.client_id
            end_session(f"{ensemble.connect}/chroot", 10_000, Session("b", session_id, bytes(16)))
            end_session(ensemble.connect, 10_000, Session("b", session_id + 1, bytes(16)))
            assert other.exists("/alive")
            end_session(f"{ensemble.connect}/chroot", 10_000, Session("b", *other.client_id))
            wait_until(lambda: (other.client_id or (0,))[0] != session_id, 20, "its session is over")
        finally:
            other.stop()
            other.close()
    end_session(ensemble.connect, 10_000, Session("b", 1, bytes(16)))  # nobody answers


@pytest.mark.night
@pytest.mark.timeout(120)
def test_a_copy_of_a_living_brokers_directory_ends_nothing(tmp_path: Path) -> None:
    """On one machine, in one boot, with the copy of its session."""
    settings: dict[str, str | int] = {"zookeeper.session.timeout.ms": 2000, "broker.id": 1}
    with ZooKeeperEnsemble(tmp_path) as ensemble:
        settings["zookeeper.connect"] = ensemble.connect
        with EdgeBroker(tmp_path, settings=settings) as broker:
            create_topic(broker.bootstrap, "t")
            twin = EdgeBroker(tmp_path, name="twin", settings=settings)
            shutil.copytree(broker.data_dir, twin.data_dir)
            assert read_session(Disk(), str(twin.data_dir)) is not None
            twin.spawn()
            try:
                waits = lambda: "most likely its former life" in twin.log_path.read_text()  # noqa: E731
                wait_until(waits, 60, "it says that it waits", seen=twin.log_path.read_text)
            finally:
                twin.kill()
            assert "previous_session_ended" not in twin.log_path.read_text()
            assert "what=Expired" not in broker.log_path.read_text()
            create_topic(broker.bootstrap, "u")
