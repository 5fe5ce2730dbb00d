"""A board of a cluster has not a byte left: internal topics that it leads go on elsewhere.

Does not contain: cards that are full up to the broker's own marks (test_cluster_full_card.py).
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from io import FileIO
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.fault.full_disk import MIB, small_device
from tests.support.board_cluster import BoardCluster
from tests.support.waiting import CALL_S, wait_until
from tests.support.zookeeper import ZooKeeperEnsemble

pytestmark = pytest.mark.root("mount")
SMALL, CARD_BYTES = 3, 48 * MIB
METADATA_BYTES = 4000  # of one commit
COMMITS = 300  # more than the space that is set aside for commits takes


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[BoardCluster]:
    with (
        small_device(tmp_path, "tmpfs", CARD_BYTES) as card,
        ZooKeeperEnsemble(tmp_path) as ensemble,
        BoardCluster(tmp_path, ensemble, data_dirs={SMALL: card / "data"}) as cluster,
    ):
        cluster.board(SMALL).stop_statuses = (0, 1)  # it reports what it could not write
        yield cluster


def test_commits_go_on_where_their_coordinators_board_has_not_a_byte_left(
    cluster: BoardCluster, tmp_path: Path
) -> None:
    topic = cluster.make_topic("readings", 1, **{"min.insync.replicas": "2"})
    cluster.wait_in_sync(topic)
    group = a_group_of(cluster, SMALL, topic)
    fill_up(tmp_path / "card" / "filler")
    consumer = member_of(cluster, group)
    for offset in range(COMMITS):
        wait_until(lambda offset=offset: commits(consumer, topic, offset), CALL_S, f"offset {offset} is committed")  # type: ignore[misc]
    (found,) = consumer.committed([TopicPartition(topic, 0)], CALL_S)
    consumer.close()
    assert found.offset == COMMITS - 1
    assert coordinator(cluster, group) != SMALL


def fill_up(path: Path) -> None:
    """Write until nothing more goes."""
    with path.open("wb", buffering=0) as file:
        for size in (MIB, 4096, 1):
            with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
                write_on(file, size)


def write_on(file: FileIO, size: int) -> None:
    """Write without end."""
    while True:
        file.write(os.urandom(size))


def member_of(cluster: BoardCluster, group: str) -> Consumer:
    return Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": group, "enable.auto.commit": False})


def commits(consumer: Consumer, topic: str, offset: int) -> bool:
    """Whether the offset is committed; refused ones are tried again by the caller."""
    try:
        (done,) = consumer.commit(
            offsets=[TopicPartition(topic, 0, offset, "x" * METADATA_BYTES)], asynchronous=False
        ) or [None]
    except KafkaException:
        return False
    return done is not None and done.error is None


def coordinator(cluster: BoardCluster, group: str) -> int:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    found = admin.describe_consumer_groups([group])[group].result(CALL_S)
    return int(found.coordinator.id)


def a_group_of(cluster: BoardCluster, board: int, topic: str) -> str:
    """Return a group that has committed, and whose coordinator is this board."""
    for number in range(50):
        group = f"group-{number}"
        consumer = member_of(cluster, group)
        wait_until(lambda consumer=consumer: commits(consumer, topic, 0), CALL_S, "a first commit")  # type: ignore[misc]
        consumer.close()
        if coordinator(cluster, group) == board:
            return group
    raise AssertionError(f"board {board} coordinates no group")
