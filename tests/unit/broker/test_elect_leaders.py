"""ElectLeaders: the preferred replica leads again when that is answered, or the answer says why it does not."""

from __future__ import annotations

from typing import Any, cast

import pytest

from drupelet.ledger import LEDGER_TOPIC
from edge_broker.cluster.state.cluster_state import PartitionId
from edge_broker.errors import ErrorCode
from edge_broker.protocol.api import ELECT_LEADERS
from edge_broker.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from edge_broker.security.acls import Operation
from edge_broker.testing.site import Site
from tests.support.in_cluster import InCluster
from tests.unit.broker.test_cluster_topics import NONE, NOT_THERE, create, new, topic

PREFERRED, UNCLEAN = 0, 1
NOT_NEEDED = ErrorCode.ELECTION_NOT_NEEDED
Results = dict[tuple[str, int], int]


def request(kind: int, *places: tuple[str, int], timeout_ms: int = 10_000) -> ElectLeadersRequest:
    asked = [TopicPartitions(topic=name, partitions=[number]) for name, number in places] if places else None
    return ElectLeadersRequest(election_type=kind, topic_partitions=asked, timeout_ms=timeout_ms)


def results(answer: Any) -> Results:
    assert answer.error_code == NONE
    found = {}
    for one in answer.replica_election_results:
        for result in one.partition_result:
            found[one.topic, result.partition_id] = result.error_code
            assert bool(result.error_message) == bool(result.error_code)
    return found


def elect(cluster: InCluster, board: int, kind: int, *places: tuple[str, int], timeout_ms: int = 10_000) -> Results:
    return results(cluster.ask(board, ELECT_LEADERS, request(kind, *places, timeout_ms=timeout_ms)))


def led_by_another() -> InCluster:
    """Partition 0 is led by broker 2 and should be by broker 1."""
    cluster = InCluster(3)
    assert create(cluster, 1, new("t", assigned=[[1, 2, 3], [2, 1, 3]])) == [NONE]
    cluster.settle()
    assert cluster.boards[1].member.partitions[PartitionId("t", 0)].hand_over(2)
    cluster.pass_until(lambda: cluster.boards[2].facade.replicas.led_partition("t", 0) is not None)
    cluster.settle()
    assert [one.leader_id for one in topic(cluster, 3).partitions] == [2, 2]
    return cluster


@pytest.mark.parametrize("board", [1, 2, 3])
def test_the_preferred_replica_leads_when_that_is_answered(board: int) -> None:
    cluster = led_by_another()
    asked = [("t", 0), ("t", 1), ("t", 2), ("none", 0), (LEDGER_TOPIC, 0)]
    assert elect(cluster, board, PREFERRED, *asked) == {
        ("t", 0): NONE,
        ("t", 1): NOT_NEEDED,
        ("t", 2): NOT_THERE,
        ("none", 0): NOT_THERE,
        (LEDGER_TOPIC, 0): NOT_NEEDED,
    }
    assert [one.leader_id for one in topic(cluster, board).partitions] == [1, 2]


def test_of_all_partitions_those_are_told_that_an_election_was_for() -> None:
    cluster = led_by_another()
    assert elect(cluster, 1, PREFERRED) == {("t", 0): NONE}
    assert elect(cluster, 1, PREFERRED) == {}


def test_a_preferred_replica_that_is_away_cannot_lead_whether_or_not_another_does() -> None:
    cluster = led_by_another()
    assert create(cluster, 1, new("alone", assigned=[[1]])) == [NONE]
    cluster.settle()
    cluster.boards[1].stop()
    cluster.pass_until(lambda: 1 not in cluster.boards[3].facade.view.broker_ids)
    cluster.settle()
    assert [one.leader_id for name in ("t", "alone") for one in topic(cluster, 3, name).partitions] == [2, 2, -1]
    assert elect(cluster, 3, PREFERRED, ("t", 0), ("alone", 0)) == {
        ("t", 0): ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        ("alone", 0): ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
    }


def test_a_wish_that_nobody_hears_is_answered_in_time() -> None:
    cluster = led_by_another()
    cluster.boards[2].alive = False  # its session lives on
    begin = cluster.loop.time()
    assert elect(cluster, 3, PREFERRED, ("t", 0), timeout_ms=1500) == {("t", 0): ErrorCode.REQUEST_TIMED_OUT}
    assert 1.5 <= cluster.loop.time() - begin < 1.7


def test_no_request_makes_somebody_lead_who_may_lack_something() -> None:
    cluster = InCluster(2)
    assert create(cluster, 1, new("t", assigned=[[2], [1]])) == [NONE]
    cluster.settle()
    cluster.boards[2].stop()
    cluster.pass_until(lambda: 2 not in cluster.boards[1].facade.view.broker_ids)
    assert elect(cluster, 1, UNCLEAN, ("t", 0), ("t", 1), ("t", 2)) == {
        ("t", 0): ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
        ("t", 1): NOT_NEEDED,
        ("t", 2): NOT_THERE,
    }


def test_a_board_that_stands_alone_leads_everything() -> None:
    site = Site()
    site.topic(partitions=2)
    ask = site.client().ask
    assert results(ask(ELECT_LEADERS, request(PREFERRED, ("t", 1), ("t", 2), ("none", 0)))) == {
        ("t", 1): NOT_NEEDED,
        ("t", 2): NOT_THERE,
        ("none", 0): NOT_THERE,
    }
    for kind in (PREFERRED, UNCLEAN):
        assert results(ask(ELECT_LEADERS, request(kind))) == {}
    assert ask(ELECT_LEADERS, request(7)).error_code == ErrorCode.INVALID_REQUEST


def test_a_member_passes_a_wish_on_without_the_right_to_alter() -> None:
    """With an authorizer brokers have CLUSTER_ACTION, and no more is asked of them."""
    cluster = led_by_another()
    board = cluster.boards[2]
    asked: list[Operation] = []

    def may(_context: object, operation: Operation, *_: object, noted: bool = True) -> bool:
        asked.append(operation)
        return operation is Operation.CLUSTER_ACTION

    board.broker.rights.authorizer = cast(Any, object())
    board.broker.rights.may = may  # type: ignore[method-assign]
    answer = cluster.ask(2, ELECT_LEADERS, request(PREFERRED, ("t", 0)))
    assert answer.error_code == NONE
    assert asked == [Operation.CLUSTER_ACTION]
