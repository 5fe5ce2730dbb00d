"""A cluster that 752fe42 left, on the disks of its boards and in ZooKeeper, goes on: nothing acknowledged is missing.

`cluster_752fe42` has the data directories of three boards, of which the third was killed before the last ten records,
and the znodes as bytes: while two boards ran, and after they had stopped.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from edge_broker.cluster.state.cluster_state import PartitionId
from edge_broker.cluster.znodes import znode_codec
from edge_broker.cluster.znodes.zookeeper import Node, Stat
from edge_broker.errors import ErrorCode
from edge_broker.protocol.api import INIT_PRODUCER_ID, METADATA, OFFSET_FETCH, PRODUCE
from edge_broker.protocol.messages.init_producer_id import InitProducerIdRequest
from edge_broker.protocol.messages.metadata import MetadataRequest
from edge_broker.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from edge_broker.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from edge_broker.protocol.record_batch import read_header
from edge_broker.storage.log.log_reader import whole_batches
from edge_broker.storage.replica.replica_log import Replica
from edge_broker.testing.disk import SimulatedDisk
from edge_broker.testing.zookeeper import Ensemble, Put
from tests.support.golden import GOLDEN, expected, unpacked
from tests.support.in_cluster import InCluster
from tests.support.record_batches import records_in
from tests.support.storage import batch

DIRECTORY = GOLDEN / "cluster_752fe42"
ZNODES: dict[str, list[dict[str, Any]]] = expected(DIRECTORY / "znodes.json")
BY_PATH = {one["path"]: one for one in [*ZNODES["running"], *ZNODES["stopped"]]}
SETTINGS = {
    "log.retention.ms": -1,
    "producer.id.expiration.ms": 2_147_483_647,
    "default.replication.factor": 3,
    "replica.lag.time.max.ms": 5000,
}


def disk_of(directory: Path) -> SimulatedDisk:
    """A simulated disk with what is in a directory."""
    disk = SimulatedDisk(1)
    disk.make_directory("/data")
    for path in sorted(directory.rglob("*")):
        place = f"/data/{path.relative_to(directory)}"
        if path.is_dir():
            disk.make_directory(place)
        else:
            disk.put(place, path.read_bytes())
    disk.sync_all("/data")
    return disk


def written(ensemble: Ensemble) -> None:
    """Have the ensemble hold the znodes that were there after all boards had stopped."""
    nodes = [one for one in ZNODES["stopped"] if one["path"] != "/"]
    for zxid in range(1, max(one["mzxid"] for one in nodes) + 1):
        made = [one for one in nodes if one["czxid"] == zxid]
        ensemble.commit(tuple(Put(one["path"], one["data"].encode(), stat_of(one)) for one in made))


def stat_of(one: dict[str, Any]) -> Stat:
    return Stat(one["version"], one["czxid"], one["mzxid"], 0)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> InCluster:
    folder = tmp_path_factory.mktemp("boards")
    disks = {
        number: disk_of(unpacked(DIRECTORY / f"board-{number}.tar.xz", folder / str(number))) for number in (1, 2, 3)
    }
    return InCluster(3, SETTINGS, disks=disks, prepare=written, shares_security=True)


def content(cluster: InCluster, board: int, topic: str, partition: int = 0) -> list[tuple[int, bytes | None, bytes]]:
    """Offset, key and number of each record that a board has."""
    log = cluster.boards[board].log(PartitionId(topic, partition))

    def read() -> list[tuple[int, bytes | None, bytes | None, int]]:
        found: list[tuple[int, bytes | None, bytes | None, int]] = []
        offset = log.log_start_offset
        while offset < log.log_end_offset:
            batches = whole_batches(Replica(log).read(offset, 1 << 20, blocking=True) or b"")
            assert batches, f"nothing at offset {offset}"
            found += records_in(batches)
            offset = read_header(batches[-1]).next_offset
        return found

    found = cluster.boards[board].work(read, "reader")
    return [(offset, key, (value or b"").split()[0]) for offset, key, value, _ in found]


def numbered(count: int) -> list[tuple[int, bytes, bytes]]:
    return [(number, b"k%d" % (number % 3), b"%d" % number) for number in range(count)]


def test_all_boards_have_every_acknowledged_record(cluster: InCluster) -> None:
    for board in (1, 2, 3):
        assert content(cluster, board, "readings", 0)[:70] == numbered(70)
        assert content(cluster, board, "readings", 1) == numbered(60)
        latest = {key: (offset, value) for offset, key, value in content(cluster, board, "state")}
        assert latest == {b"k%d" % (n % 7): (n, b"%d" % n) for n in range(113, 120)}


def test_boards_are_who_they_were_and_all_are_in_sync(cluster: InCluster) -> None:
    state = json.loads(BY_PATH["/topics/readings/0"]["data"])
    assert {member["broker"] for member in state["in_sync"]} == {1, 2}
    directories = {json.loads(BY_PATH[f"/brokers/{n}"]["data"])["directory"] for n in (1, 2)}
    assert {cluster.boards[n].member.identity.directory for n in (1, 2)} == directories
    cluster_id = json.loads(BY_PATH["/format"]["data"])["cluster_id"]
    assert {board.member.identity.cluster for board in cluster.boards.values()} == {cluster_id}
    now = cluster.boards[1].member.state(PartitionId("readings", 0))
    assert now is not None
    assert {member.broker for member in now.in_sync} == {1, 2, 3}
    assert now.leader_epoch > state["leader_epoch"]


def test_topics_are_those_that_there_were(cluster: InCluster) -> None:
    for board in (1, 2, 3):
        topics = cluster.ask(board, METADATA, MetadataRequest(topics=None)).topics
        assert {topic.name for topic in topics} == {"__consumer_offsets", "__edge_ledger", "kept", "readings", "state"}
    assert not cluster.boards[1].facade.view.strays


def test_the_groups_offset_is_known(cluster: InCluster) -> None:
    topics = [OffsetFetchRequestTopics(name="readings", partition_indexes=[0])]
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="mirror", topics=topics)])
    told = [cluster.ask(board, OFFSET_FETCH, request, 8).groups[0] for board in (1, 2, 3)]
    (found,) = [group.topics[0].partitions[0] for group in told if group.error_code == ErrorCode.NONE]
    assert (found.committed_offset, found.metadata) == (30, "so far\0")  # the maker's client adds that byte


def test_the_loss_is_in_the_ledger_of_each_board_and_in_no_journal(cluster: InCluster) -> None:
    for board in (1, 2, 3):
        site = cluster.boards[board].site
        log = cluster.boards[board].log(PartitionId("__edge_ledger", 0))
        data = cluster.boards[board].work(lambda log=log: Replica(log).read(0, 1 << 20, blocking=True), "reader")
        ((_, key, value, _),) = records_in(whole_batches(data or b""))
        loss = json.loads(value or b"")
        assert (loss["cause"], loss["topic"], loss["partition"]) == ("deleted_by_request", "kept", 0)
        assert (loss["first_offset"], loss["last_offset"], loss["records"]) == (0, 4, 5)
        assert (key or b"").decode() == loss["id"]
        assert loss["id"].endswith(f":disk {loss['directory']}")
        assert loss["directory"] in {each.member.identity.directory for each in cluster.boards.values()}
        journal = site.store.ledger_log
        assert journal.log_start_offset == journal.log_end_offset
        kept = content(cluster, board, "kept")
        assert kept[-5:] == numbered(10)[5:]
        log = cluster.boards[board].log(PartitionId("kept", 0))
        cluster.pass_until(lambda log=log: log.log_start_offset == 5)  # a follower's comes after its leader's


def test_users_and_acls_are_the_clusters(cluster: InCluster) -> None:
    then = json.loads(BY_PATH["/security/state"]["data"])
    for board in cluster.boards.values():
        state = board.broker.security.state
        assert set(state.users) == set(then["users"]) == {"gateway"}
        assert [list(acl) for acl in state.acls] == then["acls"]
        assert state.generation == then["generation"]
        assert not board.notes


def test_appends_and_producer_ids_go_on(cluster: InCluster) -> None:
    state = cluster.boards[1].member.state(PartitionId("readings", 0))
    assert state is not None
    data = PartitionProduceData(index=0, records=batch(b"70 more"))
    request = ProduceRequest(
        acks=-1, timeout_ms=5000, topic_data=[TopicProduceData(name="readings", partition_data=[data])]
    )
    answer = cluster.ask(state.leader, PRODUCE, request, 9).responses[0].partition_responses[0]
    assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, 70)
    following = json.loads(BY_PATH["/producer-ids"]["data"])["next"]
    given = cluster.ask(1, INIT_PRODUCER_ID, InitProducerIdRequest(transactional_id=None)).producer_id
    assert given >= following


def node(path: str) -> Node:
    return Node(BY_PATH[path]["data"].encode(), stat_of(BY_PATH[path]))


TOPICS = ("__consumer_offsets", "__edge_ledger", "kept", "readings", "state")
AGAIN: dict[str, Callable[[], bytes]] = {
    "/controller": lambda: znode_codec.encode_controller(znode_codec.decode_controller(node("/controller"))),
    "/producer-ids": lambda: znode_codec.encode_producer_ids(znode_codec.decode_producer_ids(node("/producer-ids"))),
    **{
        f"/topics/{name}": lambda name=name: znode_codec.encode_topic(
            znode_codec.decode_topic(name, node(f"/topics/{name}"))
        )
        for name in TOPICS
    },
    **{
        f"/topics/{name}/0": lambda name=name: znode_codec.encode_state(
            znode_codec.decode_state(PartitionId(name, 0), node(f"/topics/{name}/0"))
        )
        for name in TOPICS
    },
}


@pytest.mark.parametrize("path", AGAIN)
def test_a_znode_is_read_and_written_as_it_was(path: str) -> None:
    assert AGAIN[path]() == BY_PATH[path]["data"].encode()


@pytest.mark.parametrize("path", ["/brokers/1", "/brokers/2"])
def test_a_registration_is_read(path: str) -> None:
    then = json.loads(BY_PATH[path]["data"])
    found = znode_codec.decode_registration(int(path[-1]), node(path))
    assert found.directory == then["directory"]
    assert dict(found.endpoints) == then["endpoints"]
    assert list(found.protocols) == then["protocols"]
    assert json.loads(znode_codec.encode_registration(found)) == then
