"""A board of a cluster has not a byte left: internal topics that it leads go on elsewhere.

Does not contain: cards that are full up to the broker's own marks (test_cluster_full_card.py).
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import ExitStack
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
BOARDS, CARD_BYTES = (1, 2, 3), 48 * MIB
GROUP = "loggers"
METADATA_BYTES = 4000  # of one commit
COMMITS = 300  # more than the space that is set aside for commits takes


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[BoardCluster]:
    with ExitStack() as stack:
        cards = {
            board: stack.enter_context(small_device(place(tmp_path, board), "tmpfs", CARD_BYTES)) for board in BOARDS
        }
        ensemble = stack.enter_context(ZooKeeperEnsemble(tmp_path))
        data_dirs = {board: card / "data" for board, card in cards.items()}
        yield stack.enter_context(BoardCluster(tmp_path, ensemble, data_dirs=data_dirs))


def place(directory: Path, board: int) -> Path:
    made = directory / f"board-{board}-place"
    made.mkdir(exist_ok=True)
    return made


def test_commits_go_on_where_their_coordinators_board_has_not_a_byte_left(
    cluster: BoardCluster, tmp_path: Path
) -> None:
    topic = cluster.make_topic("readings", 1, **{"min.insync.replicas": "2"})
    cluster.wait_in_sync(topic)
    consumer = member_of(cluster)
    wait_until(lambda: commits(consumer, topic, 0), CALL_S, "a first commit")
    full = coordinator(cluster)
    cluster.board(full).stop_statuses = (0, 1)  # it reports what it could not write
    fill_up(place(tmp_path, full) / "card" / "filler")
    for offset in range(COMMITS):
        wait_until(lambda offset=offset: commits(consumer, topic, offset), CALL_S, f"offset {offset} is committed")  # type: ignore[misc]
    (found,) = consumer.committed([TopicPartition(topic, 0)], CALL_S)
    consumer.close()
    assert found.offset == COMMITS - 1
    assert coordinator(cluster) != full


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


def member_of(cluster: BoardCluster) -> Consumer:
    return Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": GROUP, "enable.auto.commit": False})


def commits(consumer: Consumer, topic: str, offset: int) -> bool:
    """Whether the offset is committed; refused ones are tried again by the caller."""
    try:
        (done,) = consumer.commit(
            offsets=[TopicPartition(topic, 0, offset, "x" * METADATA_BYTES)], asynchronous=False
        ) or [None]
    except KafkaException:
        return False
    return done is not None and done.error is None


def coordinator(cluster: BoardCluster) -> int:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    found = admin.describe_consumer_groups([GROUP])[GROUP].result(CALL_S)
    return int(found.coordinator.id)
