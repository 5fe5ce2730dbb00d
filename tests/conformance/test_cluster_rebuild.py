"""All data of a real ensemble is gone: the znodes are made anew from the disks of three boards, and all is read."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError

from edge_broker.app import CANNOT_BE_MEMBER
from edge_broker.storage.files.filesystem import ReadOnlyDisk
from edge_broker.storage.metadata.cluster_copy import FILE, read_cluster_copy
from tests.support import runtimes
from tests.support.board_cluster import BoardCluster
from tests.support.conformance.cluster_records import AckedWrites, assert_each_once
from tests.support.conformance.rebuild_commands import WAIT_S, described, rebuild
from tests.support.conformance.secured_cluster import OPS, SecuredCluster
from tests.support.processes import EdgeBroker, start_together
from tests.support.waiting import CALL_S, wait_until
from tests.support.zookeeper import ZooKeeperEnsemble


def lose_all(ensemble: ZooKeeperEnsemble) -> None:
    """The servers' data is removed; the servers serve again, and know nothing."""
    for server in ensemble.servers:
        server.kill()
        shutil.rmtree(server.data / "version-2")
    for server in ensemble.servers:
        server.spawn()
    for server in ensemble.servers:
        wait_until(server.serves, server.ready_s, f"{server.name} serves", seen=server.log_tail)


def knows(board: EdgeBroker, deleted: str) -> bool:
    copy = read_cluster_copy(ReadOnlyDisk(), str(board.data_dir))
    return any(each.name == deleted for each in copy.deletions)


def has_copied(board: EdgeBroker, topic: str) -> bool:
    """Whether the copy of a board, which is written within a second of a change, has a topic."""
    if not (board.data_dir / FILE).exists():
        return False
    copy = read_cluster_copy(ReadOnlyDisk(), str(board.data_dir))
    return any(each.name == topic for each in copy.topics)


@pytest.fixture
def ensemble(tmp_path: Path) -> Iterator[ZooKeeperEnsemble]:
    with ZooKeeperEnsemble(tmp_path) as ensemble:
        yield ensemble


def test_the_drill(ensemble: ZooKeeperEnsemble, tmp_path: Path) -> None:
    with BoardCluster(tmp_path, ensemble) as cluster:
        for name in ("readings", "deleted"):
            cluster.make_topic(name, 3, min_insync_replicas="2")
        written = AckedWrites(cluster, "readings")
        written.write(300, "before")
        answered = dict(written.end())
        topic_ids = ids_of(cluster.board(1))
        for gone in cluster.admin.delete_topics(["deleted"]).values():
            gone.result(CALL_S)
        wait_until(lambda: all(knows(each, "deleted") for each in cluster.boards), WAIT_S, "each disk has the deletion")
        for board in cluster.boards:
            board.kill()
        lose_all(ensemble)
        refused = cluster.board(1)
        refused.spawn()
        assert refused.wait(CALL_S) == CANNOT_BE_MEMBER
        assert "make new znodes (`edge-broker cluster rebuild --help`)" in refused.log_path.read_text()
        files = [described(board, tmp_path) for board in cluster.boards]
        planned = rebuild(ensemble, files, "--dry-run")
        assert planned.returncode == 0, planned.stdout
        assert "0 partitions may have lost records" in planned.stdout
        ran = rebuild(ensemble, files)
        assert ran.returncode == 0, ran.stdout + ran.stderr
        assert ran.stdout.splitlines()[-1] == "the znodes are written; start the brokers"
        start_together(cluster.boards)
        wait_until(lambda: cluster.there() == 3, WAIT_S, "all are members")
        cluster.wait_in_sync("readings")
        assert_each_once(cluster, "readings", answered)
        written = AckedWrites(cluster, "readings")
        written.write(100, "after")
        assert_each_once(cluster, "readings", {**answered, **written.end()})
        assert "deleted" not in cluster.admin.list_topics(timeout=CALL_S).topics
        assert ids_of(cluster.board(1)) == topic_ids
        alive = rebuild(ensemble, files)
        assert alive.returncode == 1
        assert "are registered, so the cluster is alive" in alive.stdout


@pytest.mark.night
def test_users_come_back_with_the_newest_copy_and_nobody_else_owns_a_znode(
    ensemble: ZooKeeperEnsemble, tmp_path: Path
) -> None:
    with SecuredCluster(tmp_path, ensemble, "SASL_SSL") as cluster:
        wait_until(lambda: len(cluster.admin(OPS, 3).list_topics(timeout=CALL_S).brokers) == 3, WAIT_S, "three boards")
        cluster.make_topic("readings")
        assert cluster.produced(OPS, "readings") is None
        wait_until(lambda: all(has_copied(each, "readings") for each in cluster.boards), WAIT_S, "each disk has it")
        for board in cluster.boards:
            board.kill()
        lose_all(ensemble)
        files = [described(board, tmp_path) for board in cluster.boards]
        ran = rebuild(ensemble, files, "--set", f"edge.zookeeper.digest.file={tmp_path / 'zookeeper.digest'}")
        assert ran.returncode == 0, ran.stdout + ran.stderr
        (newest,) = re.findall(r"has run beside broker (\d)", ran.stdout)
        assert_barred(ensemble)
        start_together(cluster.boards)
        restored = [runtimes.console_script("edge-broker"), "user", "restore", "--data-dir"]
        subprocess.run([*restored, cluster.boards[int(newest) - 1].data_dir], check=True, timeout=CALL_S)
        for number in (1, 2, 3):
            wait_until(lambda at=number: cluster.gets_in(OPS, at), WAIT_S, f"board {number} lets ops in again")
        wait_until(lambda: cluster.in_sync("readings") == 3, WAIT_S, "all have the topic again")
        assert cluster.produced(OPS, "readings") is None


def assert_barred(ensemble: ZooKeeperEnsemble) -> None:
    """Somebody without the brokers' user reads no znode of the cluster, and writes none."""
    stranger = KazooClient(ensemble.connect)
    stranger.start(CALL_S)
    try:
        for path in ("/format", "/topics/readings", "/topics/readings/0", "/producer-ids", "/lost", "/deleted"):
            with pytest.raises(NoAuthError):
                stranger.get(path)
            with pytest.raises(NoAuthError):
                stranger.set(path, b"{}")
    finally:
        stranger.stop()
        stranger.close()


def ids_of(board: EdgeBroker) -> dict[str, str]:
    """The ids of the topics that stay, by name."""
    files = [json.loads(path.read_text()) for path in (board.data_dir / "topics").glob("*.json")]
    return {each["name"]: each["topic_id"] for each in files if each["name"] == "readings"}
