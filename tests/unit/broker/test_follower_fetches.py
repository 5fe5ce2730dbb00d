"""Fetch sessions of followers: what is ordered, who waits, and what an answer says."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from edge_broker.broker.cluster import follower_fetch
from edge_broker.broker.cluster.follower_fetch_sessions import ANSWER_BYTES_MAX, FetchSession, FollowerFetches
from edge_broker.broker.cluster_port import Order
from edge_broker.broker.effects import Effect, Effects
from edge_broker.broker.outcomes import Park, Reply, RunInWorker
from edge_broker.cluster.inter_broker_messages import EpochEnd, ReplicaFetch, ReplicaFetched
from edge_broker.cluster.state.cluster_state import InSyncReplica, PartitionId
from edge_broker.errors import ErrorCode, StorageFault
from edge_broker.protocol.messages.fetch import FetchPartition, FetchResponse, PartitionData

TOPIC_ID = UUID(int=7)
P0, P1 = PartitionId("t", 0), PartitionId("t", 1)
FOLLOWER = InSyncReplica(2, "disk-2", 9)
WAIT_MS = 500.0


class Log:
    """A replica, as sessions see it: `data` is what lies from each offset on, None: the disk has to be waited for."""

    def __init__(self, end: int) -> None:
        self.log_end_offset, self.log_start_offset, self.online = end, 0, True
        self.data: bytes | None = b"records"
        self.fault: StorageFault | None = None
        self.log = object()

    def read(self, offset: int, bytes_max: int, *, blocking: bool) -> bytes | None:
        if self.fault is not None:
            raise self.fault
        if self.data is None:
            return b"cold" if blocking else None
        return self.data[:bytes_max] if offset < self.log_end_offset else b""


class Led:
    def __init__(self, high_watermark: int) -> None:
        self.high_watermark = high_watermark


class Site:
    """A broker and its cluster, as far as sessions ask them."""

    def __init__(self) -> None:
        self.effects = Effects()
        self.now_ms = 0.0
        self.logs = {P0: Log(10), P1: Log(10)}
        self.error = ErrorCode.NONE
        self.diverging: EpochEnd | None = None
        self.lost: EpochEnd | None = None
        self.fetched: list[ReplicaFetch] = []
        self.evaluated_again = 0
        self.mark = 5
        self.session = FetchSession(self, self, self, 2)  # type: ignore[arg-type]
        self.token = 0

    def fetch_from(self, fetch: ReplicaFetch, *, is_new: bool = True) -> ReplicaFetched:
        self.fetched.append(fetch)
        self.evaluated_again += not is_new
        where = (fetch.partition, fetch.leader_epoch, fetch.fetch_offset, fetch.last_fetched_epoch)
        return ReplicaFetched(*where, self.error, self.diverging, self.mark, keeps_out=fetch.keeps_out, lost=self.lost)

    def replica(self, partition: PartitionId) -> Any:
        return self.logs.get(partition)

    def leads(self, _partition: PartitionId, _epoch: int) -> bool:
        return self.error is ErrorCode.NONE

    def led_partition(self, _topic: str, _partition: int) -> Led:
        return Led(self.mark)

    def is_connected(self, peer: str) -> bool:
        return peer != "gone"

    # what a test does

    def order(self, offset: int, partition: PartitionId = P0, *, bytes_max: int = 1000, synced: int = 0) -> None:
        fetch = ReplicaFetch(partition, FOLLOWER, 3, offset, 2, synced)
        self.session.take(Order(fetch, TOPIC_ID, bytes_max))

    def asks(self, *orders: Callable[[], None]) -> dict[PartitionId, PartitionData] | None:
        """A request; what it is answered at once, None: it waits."""
        for order in orders:
            order()
        self.token += 1
        outcome = self.session.outcome(self.token, WAIT_MS)
        if isinstance(outcome, Park):
            return None
        assert isinstance(outcome, Reply)
        return partitions(outcome.response)

    def answers(self) -> dict[int, dict[PartitionId, PartitionData]]:
        """By token, what was answered meanwhile; work for a worker is done."""
        found = {}
        while self.effects.left:
            kind, about = self.effects.left.popleft()
            if kind is Effect.ANSWER:
                found[about[0]] = partitions(about[1])
            else:
                assert kind is Effect.START
                assert isinstance(about, RunInWorker)
                about.then(about.work())
        return found


def partitions(response: Any) -> dict[PartitionId, PartitionData]:
    assert isinstance(response, FetchResponse)
    return {PartitionId("t", data.partition_index): data for topic in response.responses for data in topic.partitions}


@pytest.fixture
def site() -> Site:
    return Site()


def test_what_is_there_is_answered_at_once(site: Site) -> None:
    found = site.asks(lambda: site.order(4))
    assert found is not None
    assert found[P0].records == b"records"
    assert found[P0].high_watermark == 5
    assert site.session.orders == {}


def test_who_has_everything_waits_for_what_comes(site: Site) -> None:
    assert site.asks(lambda: site.order(10), lambda: site.order(10, P1)) is None
    site.session.answer_if_due(100)
    assert site.answers() == {}
    site.logs[P1].log_end_offset = 11
    site.session.log_moved(P1)
    site.session.answer_if_due(100)
    (answer,) = site.answers().values()
    assert list(answer) == [P1]
    assert list(site.session.orders) == [P0], "it stays ordered"


def test_a_follower_that_has_everything_is_told_that_the_log_starts_later(site: Site) -> None:
    site.asks(lambda: site.order(10))
    site.asks(lambda: site.order(10, bytes_max=0))
    assert site.answers() == {1: {}}
    site.logs[P0].log_start_offset = 7
    site.asks(lambda: site.order(10, bytes_max=0))
    assert site.answers()[2][P0].log_start_offset == 7
    site.asks(lambda: site.order(10, bytes_max=0))
    assert site.answers() == {3: {}}, "it is told once"
    assert list(site.session.orders) == [P0], "what is ordered stands"


def test_an_order_that_waited_is_no_new_report_of_the_follower(site: Site) -> None:
    site.asks(lambda: site.order(10))
    assert (len(site.fetched), site.evaluated_again) == (1, 0)
    site.logs[P0].log_end_offset = 11
    site.session.log_moved(P0)
    site.session.answer_if_due(100)
    assert (len(site.fetched), site.evaluated_again) == (2, 1)


def test_a_wait_that_is_over_is_answered_with_nothing(site: Site) -> None:
    site.asks(lambda: site.order(10))
    site.session.answer_if_due(WAIT_MS - 1)
    assert site.answers() == {}
    site.session.answer_if_due(WAIT_MS)
    assert site.answers() == {1: {}}


def test_the_next_request_ends_the_wait_of_the_one_before(site: Site) -> None:
    site.asks(lambda: site.order(10))
    assert site.asks(lambda: site.order(10, bytes_max=0, synced=10)) is None
    assert site.answers() == {1: {}}
    assert site.fetched[-1].synced_end == 10, "the leader was told what the disk has confirmed"
    site.logs[P0].log_end_offset = 12
    site.session.log_moved(P0)
    site.session.answer_if_due(1)
    assert site.answers()[2][P0].records == b"records", "and the order stood"


def test_what_the_disk_has_confirmed_orders_nothing(site: Site) -> None:
    assert site.asks(lambda: site.order(4, bytes_max=0, synced=4)) is None
    assert site.session.orders == {}


def test_nothing_is_sent_twice(site: Site) -> None:
    assert site.asks(lambda: site.order(4)) is not None
    site.session.log_moved(P0)
    assert site.asks(lambda: site.order(4, bytes_max=0, synced=4)) is None
    site.session.answer_if_due(WAIT_MS)
    assert site.answers() == {2: {}}


def test_a_high_watermark_goes_beside_the_next_answer_and_leaves_the_order(site: Site) -> None:
    site.asks(lambda: site.order(10))
    site.mark = 8
    site.session.high_watermark_advanced(P0)
    site.session.answer_if_due(1)
    assert site.answers() == {}, "nobody is woken for it"
    site.session.answer_if_due(WAIT_MS)
    (answer,) = site.answers().values()
    assert (answer[P0].high_watermark, answer[P0].records) == (8, b"")
    assert P0 in site.session.orders


def test_an_order_ends_where_another_leads(site: Site) -> None:
    site.asks(lambda: site.order(10))
    site.error = ErrorCode.NOT_LEADER_OR_FOLLOWER
    site.session.log_moved(P0)
    site.session.answer_if_due(1)
    (answer,) = site.answers().values()
    assert answer[P0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert site.session.orders == {}


def test_what_waits_from_before_a_beginning_takes_no_answer_of_a_later_request(site: Site) -> None:
    """As of a connection that was lost, and came again from the same port."""
    assert site.asks(lambda: site.order(10)) is None
    site.session.begin()
    site.error = ErrorCode.FENCED_LEADER_EPOCH
    found = site.asks(lambda: site.order(10))
    assert found is not None
    assert found[P0].error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert site.answers() == {1: {}}


def test_an_order_is_over_with_the_lead_though_a_topic_of_that_name_is_led_again(site: Site) -> None:
    """Else what the follower had of the former topic would count as had of the new one."""
    site.asks(lambda: site.order(10, synced=10))
    site.session.leadership_resigned(P0)
    site.logs[P0].log_end_offset = 12
    site.session.log_moved(P0)
    site.session.answer_if_due(1)
    (answer,) = site.answers().values()
    assert answer[P0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (site.session.orders, len(site.fetched)) == ({}, 1)


@pytest.mark.parametrize(
    ("why", "end", "field"), [("diverging", EpochEnd(1, 3), "diverging_epoch"), ("lost", EpochEnd(2, 7), "lost")]
)
def test_a_log_that_diverges_or_comes_to_what_is_lost_is_told_so_and_gets_nothing(
    site: Site, why: str, end: EpochEnd, field: str
) -> None:
    setattr(site, why, end)
    found = site.asks(lambda: site.order(4))
    assert found is not None
    told = getattr(found[P0], field)
    assert told is not None
    assert (told.epoch, told.end_offset, found[P0].records, site.session.orders) == (*end, b"", {})


def test_an_order_that_waits_is_over_where_what_it_waits_for_turns_out_to_be_lost(site: Site) -> None:
    assert site.asks(lambda: site.order(10)) is None
    site.lost, site.logs[P0].log_end_offset = EpochEnd(2, 12), 12
    site.session.log_moved(P0)
    site.session.answer_if_due(site.now_ms)
    ((found,),) = [tuple(answer.values()) for answer in site.answers().values()]
    assert found.lost is not None
    assert site.session.orders == {}


def test_what_lies_on_the_disk_is_read_by_a_worker_and_others_wait_their_turn(site: Site) -> None:
    site.logs[P0].data = None
    assert site.asks(lambda: site.order(4)) is None
    assert site.asks(lambda: site.order(10, P1)) is None
    answers = site.answers()
    assert answers[1][P0].records == b"cold"
    assert 2 not in answers, "it goes on waiting"
    site.session.answer_if_due(WAIT_MS)
    assert site.answers() == {2: {}}


def test_a_log_that_cannot_be_read_costs_its_own_partition_alone(site: Site) -> None:
    site.logs[P0].fault = StorageFault("t-0", 0, "the card fails")
    found = site.asks(lambda: site.order(4), lambda: site.order(4, P1))
    assert found is not None
    assert found[P0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert found[P1].records == b"records"


def test_an_answer_is_bounded_and_what_is_left_comes_with_the_next(site: Site) -> None:
    site.logs[P0].data = site.logs[P1].data = bytes(ANSWER_BYTES_MAX)
    found = site.asks(
        lambda: site.order(4, bytes_max=ANSWER_BYTES_MAX), lambda: site.order(4, P1, bytes_max=ANSWER_BYTES_MAX)
    )
    assert found is not None
    assert list(found) == [P0]
    again = site.asks(lambda: site.order(10))
    assert again is not None
    assert list(again) == [P1]


def test_a_session_that_begins_anew_has_no_orders(site: Site) -> None:
    site.asks(lambda: site.order(10))
    site.session.begin()
    site.logs[P0].log_end_offset = 11
    site.session.log_moved(P0)
    site.session.answer_if_due(1)
    assert site.answers() == {1: {}}


def test_sessions_of_connections_that_are_gone_are_forgotten(site: Site) -> None:
    fetches = FollowerFetches()
    gone = fetches.session(site, site, site, 2, "gone")  # type: ignore[arg-type]
    there = fetches.session(site, site, site, 3, "10.0.0.3:4711")  # type: ignore[arg-type]
    assert fetches.session(site, site, site, 3, "10.0.0.3:4711") is there  # type: ignore[arg-type]
    seen: list[FetchSession] = []
    fetches.each(seen.append)
    assert seen == [there]
    assert gone is not there


def test_an_answer_says_to_which_order_as_the_follower_may_have_another_under_way(site: Site) -> None:
    found = site.asks(lambda: site.order(4))
    assert found is not None
    leader = found[P0].current_leader
    assert leader is not None
    assert (found[P0].answers_offset, leader.leader_epoch) == (4, 3)


def test_a_request_carries_whether_a_followers_disk_is_or_was_full(site: Site) -> None:
    topic: Any = SimpleNamespace(name="t", topic_id=TOPIC_ID, partitions=[None])
    for full in ((True, True), (False, True), (False, False)):
        request = FetchPartition(partition=0, fetch_offset=10, synced_end=10, is_full=full[0], was_full=full[1])
        follower_fetch._take(site.session, topic, TOPIC_ID, request, (2, 9))
        assert (site.fetched[-1].is_full, site.fetched[-1].was_full) == full


def test_who_keeps_out_is_answered_at_once_without_records_and_nothing_stays_ordered(site: Site) -> None:
    site.asks(lambda: site.order(10))
    site.logs[P0].log_end_offset, site.logs[P0].log_start_offset = 12, 3
    fetch = ReplicaFetch(P0, FOLLOWER, 3, 10, 2, 10, keeps_out=True)
    site.asks(lambda: site.session.take(Order(fetch, TOPIC_ID, 0)))
    found = site.answers()[1]
    assert (found[P0].records, found[P0].error_code, found[P0].log_start_offset) == (b"", 0, 3)
    assert site.session.orders == {}
