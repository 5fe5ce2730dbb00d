"""An older copy of a real ensemble's data is put back: nothing acked is truncated, the partition waits and is named.

The copy names all boards as in sync. After it board 3 dies, and boards 1 and 2 take 1,000 records with acks=all.
"""

from __future__ import annotations

import re
import shutil
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaError

from tests.support.board_cluster import BoardCluster
from tests.support.broker_cluster import RECOVERY_S
from tests.support.conformance.cluster_records import AckedWrites, read_all
from tests.support.conformance.cluster_state import health, status
from tests.support.conformance.rebuild_commands import command, described, rebuild
from tests.support.processes import EdgeBroker, start_together
from tests.support.waiting import CALL_S, wait_until
from tests.support.zookeeper import ZooKeeperEnsemble

TOPIC = "readings"
BEFORE, AFTER = 100, 1_000


class Site:
    """Three boards over an ensemble, and copies of what its servers have on their disks."""

    def __init__(self, directory: Path, ensemble: ZooKeeperEnsemble) -> None:
        self.directory, self.ensemble = directory, ensemble
        self.cluster = BoardCluster(directory, ensemble)
        self.offsets: dict[bytes, tuple[int, int]] = {}

    @property
    def boards(self) -> list[EdgeBroker]:
        return self.cluster.boards

    def write(self, count: int, tag: str) -> None:
        written = AckedWrites(self.cluster, TOPIC)
        written.write(count, tag)
        self.offsets |= written.end()

    def copy(self, name: str) -> None:
        """Copy the data of the ensemble, whose servers stop for it."""
        for server in self.ensemble.servers:
            server.kill()
            shutil.copytree(server.data, self.directory / name / server.data.name)

    def put_back(self, name: str) -> None:
        """Have the ensemble, whose servers are stopped, begin with a copy."""
        for server in self.ensemble.servers:
            server.kill()
            shutil.rmtree(server.data)
            shutil.copytree(self.directory / name / server.data.name, server.data)
        self.start_ensemble()

    def start_ensemble(self) -> None:
        for server in self.ensemble.servers:
            server.spawn()
        for server in self.ensemble.servers:
            wait_until(server.serves, server.ready_s, f"{server.name} serves", seen=server.log_tail)

    def log_end(self, board: EdgeBroker) -> int:
        """How many records a board has of the topic."""
        with urllib.request.urlopen(board.metrics_url, timeout=CALL_S) as answer:
            text = answer.read().decode()
        found = re.search(rf'log_end_offset{{topic="{TOPIC}",partition="0"}} (\d+)', text)
        assert found is not None
        return int(found[1])

    def in_sync(self) -> set[int]:
        return set(self.cluster.partitions(TOPIC)[0].isrs)

    def kill_boards(self) -> None:
        for board in self.boards:
            if board.running:
                board.kill()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """The newest data of the ensemble are in `newest`, older ones in `older`, which it has now; no board runs."""
    with ZooKeeperEnsemble(tmp_path) as ensemble:
        site = Site(tmp_path, ensemble)
        with site.cluster as cluster:
            cluster.make_topic(TOPIC, min_insync_replicas="2")
            site.write(BEFORE, "before")
            site.copy("older")
            site.start_ensemble()
            wait_until(lambda: status(site.boards[0])[0] == 0, RECOVERY_S, "all is well again")
            cluster.board(3).kill()
            wait_until(lambda: site.in_sync() == {1, 2}, RECOVERY_S, "board 3 has left the in-sync set")
            site.write(AFTER, "after")
            site.kill_boards()
            site.copy("newest")
            site.put_back("older")
            yield site


def refused(board: EdgeBroker) -> bool:
    return health(board).startswith("503") and "acted by newer states than ZooKeeper has" in health(board)


@pytest.mark.night
@pytest.mark.parametrize("order", [(3, 1, 2), (1, 3, 2), (2, 1, 3)], ids=str)
def test_no_board_truncates_by_an_older_copy_whoever_starts_first(site: Site, order: tuple[int, ...]) -> None:
    for number in order:
        board = site.cluster.board(number)
        board.start()
        if number == 3 and order[0] == 3:
            lone = AckedWrites(site.cluster, TOPIC, acks=1, message_timeout_ms=10_000)
            lone.write(10, "lone")
            lone.producer.flush(CALL_S)
            assert {error.code() for error in lone.errors} <= {KafkaError._MSG_TIMED_OUT}
    for board in site.boards:
        wait_until(lambda at=board: refused(at), RECOVERY_S, f"{board.name} says why it serves nothing of the topic")
    assert [site.log_end(site.cluster.board(number)) for number in (1, 2)] == [BEFORE + AFTER] * 2
    returned, text = status(site.boards[0])
    assert returned == 1
    assert "without a leader" in text
    for number in (1, 2):
        assert "partition_state_refused" in site.cluster.board(number).log_path.read_text()
    restore_newest(site)


def restore_newest(site: Site) -> None:
    """As CLUSTER.md says; board 3 is written off, and others for a partition for which they acted by the copy."""
    site.kill_boards()
    site.put_back("newest")
    write_off(site.cluster.board(3))
    start_together(site.boards)
    wait_until(lambda: is_well(site), RECOVERY_S, "all is well", seen=lambda: status(site.boards[0]))
    found = dict(read_all(site.cluster, TOPIC, 1))
    assert {value: found.get(value) for value in site.offsets} == site.offsets


def write_off(board: EdgeBroker, *options: str) -> None:
    written_off = command("write-off", "--data-dir", board.data_dir, *options)
    assert written_off.returncode == 0, written_off.stderr


def is_well(site: Site) -> bool:
    """Whether all is well; boards that object are written off for the first partition that is named.

    Such a partition had not changed since the copy, so the boards served it by the copy, as `__edge_ledger` at times.
    """
    objects = re.search(r"not served, first (\S+): brokers? ([\d, ]+) acted by newer", health(site.boards[0]))
    if objects is None:
        return status(site.boards[0])[0] == 0
    partition, boards = objects[1], [site.cluster.board(int(number)) for number in objects[2].split(",")]
    assert partition != f"{TOPIC}-0"
    for board in boards:
        board.stop()
        write_off(board, "--partition", partition)
        board.start()
    return False


@pytest.mark.night
def test_boards_that_were_off_and_an_ensemble_that_was_moved_go_on(site: Site) -> None:
    """The newest data on servers that had others before: no board objects, whichever was off while states changed."""
    site.put_back("newest")
    for number in (3, 1, 2):
        site.cluster.board(number).start()
    wait_until(lambda: status(site.boards[0])[0] == 0, RECOVERY_S, "all is well", seen=lambda: status(site.boards[0]))
    found = dict(read_all(site.cluster, TOPIC, 1))
    assert {value: found.get(value) for value in site.offsets} == site.offsets


@pytest.mark.night
def test_a_rebuild_from_the_disks_ends_the_wait_and_no_board_objects_to_it(site: Site, tmp_path: Path) -> None:
    for number in (3, 1, 2):
        site.cluster.board(number).start()
    wait_until(lambda: refused(site.boards[2]), RECOVERY_S, "a board that knows newer states objects")
    site.kill_boards()
    files = [described(board, tmp_path) for board in site.boards]
    ends = RECOVERY_S  # the sessions of boards that were killed end first
    wait_until(lambda: rebuild(site.ensemble, files, "--replace").returncode == 0, ends, "the znodes are written")
    start_together(site.boards)
    wait_until(lambda: status(site.boards[0])[0] == 0, RECOVERY_S, "all is well", seen=lambda: status(site.boards[0]))
    found = dict(read_all(site.cluster, TOPIC, 1))
    assert {value: found.get(value) for value in site.offsets} == site.offsets
