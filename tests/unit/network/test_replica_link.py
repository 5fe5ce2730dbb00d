"""What a link takes for the answer to an order, and what it says of an order that stands."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from edge_broker.cluster.messages import Message, ReplicaFetch, ReplicaFetched
from edge_broker.cluster.state import InSyncReplica, PartitionId
from edge_broker.errors import ErrorCode
from edge_broker.network.replica_link import Bounds, ReplicaLink, known_error
from edge_broker.protocol.messages.fetch import FetchLeaderIdAndEpoch, PartitionData

P = PartitionId("t", 0)
ME = InSyncReplica(2, "disk-2", 9)


class Told:
    """Who has the link, as far as answers go."""

    def __init__(self) -> None:
        self.messages: list[Message] = []

    def told(self, message: Message) -> None:
        self.messages.append(message)


def a_link() -> tuple[Any, Told]:
    """A link without a connection: what it says and hears is tried alone."""
    link, owner = ReplicaLink.__new__(ReplicaLink), Told()
    link._owner, link._bounds, link._ordered = owner, Bounds(1000, 500), {}  # type: ignore[assignment]
    return link, owner


def a_fetch(offset: int, epoch: int = 3, synced: int = 0) -> ReplicaFetch:
    return ReplicaFetch(P, ME, epoch, offset, 2, synced)


def an_answer(offset: int, epoch: int = 3, records: bytes = b"records", error: int = 0) -> PartitionData:
    leader = FetchLeaderIdAndEpoch(leader_epoch=epoch)
    return PartitionData(
        error_code=error, records=records, high_watermark=7, current_leader=leader, answers_offset=offset
    )


def test_the_same_order_again_wants_no_bytes() -> None:
    link, _ = a_link()
    assert link._partition(a_fetch(4), UUID(int=1)).partition_max_bytes == 1000
    again = link._partition(a_fetch(4, synced=4), UUID(int=1))
    assert (again.partition_max_bytes, again.synced_end) == (0, 4)
    assert link._partition(a_fetch(5), UUID(int=1)).partition_max_bytes == 1000


def test_records_are_told_with_the_order_that_they_are_for() -> None:
    link, owner = a_link()
    link._partition(a_fetch(4), UUID(int=1))
    link._take(P, an_answer(4))
    (told,) = owner.messages
    assert isinstance(told, ReplicaFetched)
    assert (told.leader_epoch, told.fetch_offset, told.high_watermark, told.records) == (3, 4, 7, b"records")
    link._take(P, an_answer(4))
    assert len(owner.messages) == 1, "the order is over"


def test_an_answer_to_an_earlier_order_is_dropped_and_the_later_one_stands() -> None:
    link, owner = a_link()
    link._partition(a_fetch(4), UUID(int=1))
    link._partition(a_fetch(6), UUID(int=1))
    link._take(P, an_answer(4))
    assert owner.messages == []
    link._take(P, an_answer(6))
    assert len(owner.messages) == 1


def test_an_answer_of_another_leader_epoch_is_dropped() -> None:
    link, owner = a_link()
    link._partition(a_fetch(4, epoch=3), UUID(int=1))
    link._partition(a_fetch(4, epoch=5), UUID(int=1))
    link._take(P, an_answer(4, epoch=3))
    assert owner.messages == []


def test_a_high_watermark_alone_leaves_the_order() -> None:
    link, owner = a_link()
    link._partition(a_fetch(4), UUID(int=1))
    link._take(P, an_answer(4, records=b""))
    link._take(P, an_answer(4))
    assert [isinstance(told, ReplicaFetched) and told.records for told in owner.messages] == [None, b"records"]


def test_what_is_not_known_here_is_an_error_all_the_same() -> None:
    assert known_error(6) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert known_error(31_000) is ErrorCode.UNKNOWN_SERVER_ERROR


def test_where_the_leaders_log_begins_is_told() -> None:
    link, owner = a_link()
    link._partition(a_fetch(4), UUID(int=1))
    answer = an_answer(4, records=b"", error=int(ErrorCode.OFFSET_OUT_OF_RANGE))
    answer.log_start_offset = 9
    link._take(P, answer)
    (told,) = owner.messages
    assert isinstance(told, ReplicaFetched)
    assert (told.error, told.log_start_offset) == (ErrorCode.OFFSET_OUT_OF_RANGE, 9)
