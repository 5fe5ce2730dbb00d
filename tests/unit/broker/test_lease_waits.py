"""Produces while ZooKeeper is silent: they wait in line, and one that is refused takes those behind it along."""

from __future__ import annotations

import pytest

from edge_broker.errors import ErrorCode
from edge_broker.protocol.api import PRODUCE
from edge_broker.protocol.message import Message
from edge_broker.protocol.record_batch import records_of
from edge_broker.testing.client import Client
from tests.support.in_cluster import SESSION_MS, InCluster
from tests.support.storage import batch, read_all
from tests.unit.broker.test_cluster_topics import NONE, create, new
from tests.unit.broker.test_produce import code, produce

NOT_LED, TIMED_OUT = ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.REQUEST_TIMED_OUT
UNPROVED_MS = SESSION_MS * 2 / 3


@pytest.fixture
def cluster() -> InCluster:
    """Board 1 leads, board 2 follows."""
    made = InCluster(2)
    assert create(made, 1, new("t", assigned=[[1, 2]], config={"min.insync.replicas": "1"})) == [NONE]
    made.settle()
    return made


def silent(cluster: InCluster) -> None:
    """ZooKeeper answers nobody, until the lease of the leader is not proved any more."""
    cluster.ensemble.cut(0)
    cluster.pass_until(lambda: not cluster.boards[1].member.lease_holds(), SESSION_MS)


def send(cluster: InCluster, value: bytes, *, acks: int = -1, timeout_ms: int = 30_000) -> Client:
    """A produce on a connection of its own, whose answer is read later."""
    client = cluster.boards[1].site.client()
    client.send(PRODUCE, written(value, acks=acks, timeout_ms=timeout_ms))
    cluster.work()
    return client


def written(value: bytes, *, acks: int = -1, timeout_ms: int = 30_000) -> Message:
    request = produce(("t", 0, batch(value)), acks=acks)
    request.timeout_ms = timeout_ms
    return request


def values(cluster: InCluster) -> list[bytes]:
    """What the log of the leader holds, in order."""
    log = cluster.boards[1].site.store.topics["t"].partitions[0]
    return [bytes(record.value or b"") for each in read_all(log) for record in records_of(each)]


def codes(client: Client) -> list[int]:
    return [code(answer) for answer in client.answers()]


@pytest.mark.parametrize("acks", [-1, 1])
def test_it_waits_until_the_lease_is_proved_and_keeps_its_order(cluster: InCluster, acks: int) -> None:
    """Of one connection, with several requests on their way."""
    silent(cluster)
    client = cluster.boards[1].site.client()
    unread = b"".join(client.frame(PRODUCE, written(value, acks=acks)) for value in (b"1", b"2", b"3"))
    found: list[int] = []

    def settled() -> bool:
        nonlocal unread
        unread = unread[client.arrive(unread) :]
        found.extend(codes(client))
        return len(found) == 3

    settled()
    cluster.pass_for(500)
    assert not settled()
    assert (found, values(cluster)) == ([], [])
    cluster.ensemble.mend(0)
    cluster.pass_until(settled)
    assert found == [0, 0, 0]
    cluster.pass_for(1_000)
    assert values(cluster) == [b"1", b"2", b"3"]


def test_when_the_sessions_time_is_over_all_that_waits_is_sent_on(cluster: InCluster) -> None:
    silent(cluster)
    clients = [send(cluster, value) for value in (b"1", b"2")]
    cluster.pass_for(SESSION_MS - UNPROVED_MS - 500)
    assert [codes(client) for client in clients] == [[], []]
    cluster.pass_for(1_000)
    assert [codes(client) for client in clients] == [[NOT_LED], [NOT_LED]]
    assert codes(send(cluster, b"3")) == [NOT_LED], "nobody waits any more"
    assert values(cluster) == []


def test_one_that_is_not_settled_in_time_takes_along_all_behind_it(cluster: InCluster) -> None:
    """Else its producer would send it again after the others were written."""
    silent(cluster)
    first, second = send(cluster, b"1", timeout_ms=300), send(cluster, b"2")
    cluster.pass_for(600)
    assert codes(first) == [TIMED_OUT]
    assert codes(second) == [NOT_LED]
    assert codes(send(cluster, b"3")) == [NOT_LED], "until the lease holds again"
    cluster.ensemble.mend(0)
    cluster.pass_until(cluster.boards[1].member.lease_holds, SESSION_MS)
    cluster.pass_for(200)
    last = send(cluster, b"4")
    cluster.pass_for(500)
    assert codes(last) == [0]
    assert values(cluster) == [b"4"]


def test_no_answer_is_asked_for_and_the_record_waits_all_the_same(cluster: InCluster) -> None:
    silent(cluster)
    send(cluster, b"1", acks=0)
    assert values(cluster) == []
    cluster.ensemble.mend(0)
    cluster.pass_until(lambda: values(cluster) == [b"1"], SESSION_MS)


def test_a_partition_that_is_led_elsewhere_is_refused_at_once(cluster: InCluster) -> None:
    silent(cluster)
    client = cluster.boards[2].site.client()
    client.send(PRODUCE, written(b"1"))
    cluster.work()
    assert codes(client) == [NOT_LED]
