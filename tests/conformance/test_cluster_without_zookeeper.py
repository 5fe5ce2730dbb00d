"""Two of three ZooKeeper servers die: nothing more is acked, what is led is still read, and brokers say so."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaError

from tests.support.board_cluster import BoardCluster
from tests.support.broker_cluster import RECOVERY_S
from tests.support.conformance.cluster_records import AckedWrites, assert_each_once, read_all
from tests.support.conformance.cluster_state import health, status
from tests.support.processes import EdgeBroker
from tests.support.waiting import CALL_S, wait_until
from tests.support.zookeeper import ZooKeeperEnsemble

SESSION_MS = 6_000
ATTEMPTS = 5


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[BoardCluster]:
    with ZooKeeperEnsemble(tmp_path) as ensemble, BoardCluster(tmp_path, ensemble) as cluster:
        yield cluster


def test_a_zookeeper_that_is_silent_for_a_moment_keeps_the_order_of_writes(tmp_path: Path) -> None:
    """The producer is not idempotent and has several requests on their way."""
    settings = {"zookeeper.session.timeout.ms": SESSION_MS}
    with ZooKeeperEnsemble(tmp_path) as ensemble, BoardCluster(tmp_path, ensemble, settings=settings) as cluster:
        for number in range(ATTEMPTS):
            topic = cluster.make_topic(f"t{number}")
            if silence(cluster, topic):
                return
        pytest.fail(f"in {ATTEMPTS} attempts the session ended before ZooKeeper answered again")


def sessions_ended(board: EdgeBroker) -> int:
    return board.log_path.read_text().count("what=Expired")


def silence(cluster: BoardCluster, topic: str) -> bool:
    """Stop ZooKeeper until a lease is not proved, and compare the order; False where the session ended meanwhile."""
    wait_until(lambda: all("ok" in health(each)[:2] for each in cluster.boards), RECOVERY_S, "all is well")
    leader = cluster.leader(topic)
    ended = sessions_ended(leader)
    written = AckedWrites(cluster, topic, linger_ms=0, max_in_flight_requests_per_connection=5, batch_num_messages=1)
    for server in cluster.ensemble.servers:
        server.send_signal(signal.SIGSTOP)
    try:
        count = 0

        def is_silent() -> bool:
            nonlocal count
            written.write(1, f"{count:05}")
            count += 1
            return health(leader).startswith("503 ZooKeeper does not answer")

        wait_until(is_silent, RECOVERY_S, "the leader's lease is not proved any more")
        for _ in range(20):
            written.write(1, f"{count:05}")
            count += 1
    finally:
        for server in cluster.ensemble.servers:
            server.send_signal(signal.SIGCONT)
    answered = written.end()
    if sessions_ended(leader) != ended or cluster.leader(topic) is not leader:
        return False
    values = [value for value, _ in read_all(cluster, topic, 1)]
    assert values == sorted(answered), "each once, in the order in which they were sent"
    return True


def test_nothing_is_acked_until_there_is_a_majority_again(cluster: BoardCluster) -> None:
    topic = cluster.make_topic("t", 3)
    written = AckedWrites(cluster, topic)
    written.write(100, "before")
    answered = dict(written.end())
    board = cluster.board(1)
    well = (0, "well: 3 brokers, 4 partitions, every replica in sync")  # the ledger's is one of them
    wait_until(lambda: status(board) == well, RECOVERY_S, "all is well", seen=lambda: status(board))
    gone = cluster.ensemble.servers[:2]
    for server in gone:
        server.kill()
    nobody = "not well: no controller is known: ZooKeeper may not answer, then nothing is acked; "

    def knows_no_controller(board: EdgeBroker) -> bool:
        code, text = status(board)
        return code == 1 and text.startswith(nobody) and all(server.bootstrap in text for server in gone)

    for each in cluster.boards:
        wait_until(lambda each=each: knows_no_controller(each), RECOVERY_S, f"{each.name} knows no controller")
        assert health(each).startswith("503 ZooKeeper does not answer, so nothing is acknowledged"), health(each)
    late = AckedWrites(cluster, topic, message_timeout_ms=3_000)
    late.write(10, "late")
    assert late.producer.flush(CALL_S) == 0
    assert late.offsets == {}
    assert {error.code() for error in late.errors} == {KafkaError._MSG_TIMED_OUT}
    assert_each_once(cluster, topic, answered)
    gone[0].start()
    one_gone = (1, f"not well: ZooKeeper server {gone[1].bootstrap} does not answer: connection refused")
    wait_until(lambda: status(board) == one_gone, RECOVERY_S, "one is missing", seen=lambda: status(board))
    written.write(100, "after")
    assert len(written.end()) == 200
    assert_each_once(cluster, topic, written.offsets)
    gone[1].start()
    wait_until(lambda: status(board)[0] == 0, RECOVERY_S, "all is well again", seen=lambda: status(board))
