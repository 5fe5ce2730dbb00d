"""What a link takes for the answer to an order, and what it says of an order that stands."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from drupelet.kafka.security import Security
from edge_broker.cluster.inter_broker_messages import AskEnd, EpochEnd, Message, ReplicaFetch, ReplicaFetched, TellEnd
from edge_broker.cluster.state.cluster_state import InSyncReplica, PartitionId
from edge_broker.errors import ErrorCode, known_error
from edge_broker.network.cluster import broker_link
from edge_broker.network.cluster.broker_link import Owner
from edge_broker.network.cluster.broker_request_link import AskingLink
from edge_broker.network.cluster.replica_fetch_link import SESSION_EPOCH_MAX, Bounds, ReplicaLink
from edge_broker.network.log_lines import LimitedLog
from edge_broker.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchEpochEndOffset,
    FetchLeaderIdAndEpoch,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from edge_broker.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from edge_broker.storage.metadata.topic_record import id_text
from edge_broker.testing.loop import Loop
from kafka_wire.connection.errors import ConnectionLost, NobodyListens, VersionUnknown

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


def test_what_is_lost_is_told_and_the_order_is_over() -> None:
    link, owner = a_link()
    link._partition(a_fetch(4), UUID(int=1))
    answer = an_answer(4, records=b"")
    answer.lost = FetchEpochEndOffset(epoch=2, end_offset=9)
    link._take(P, answer)
    (told,) = owner.messages
    assert isinstance(told, ReplicaFetched)
    assert (told.lost, told.records) == (EpochEnd(2, 9), None)
    assert link._partition(a_fetch(4), UUID(int=1)).partition_max_bytes == 1000


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


OLD, NEW = UUID(int=21), UUID(int=22)


class Wire:
    """A connection that keeps what is sent on it, for the test to answer."""

    def __init__(self) -> None:
        self.sent: list[FetchRequest] = []
        self.answers: list[asyncio.Future[FetchResponse]] = []
        self.closed = 0

    def send(self, _what: object, request: FetchRequest, *, timeout_s: float) -> asyncio.Future[FetchResponse]:
        self.sent.append(request)
        self.answers.append(asyncio.get_running_loop().create_future())
        return self.answers[-1]

    def version(self, _what: object) -> int:
        raise VersionUnknown("no Fetch 17 is served")

    def close(self) -> None:
        self.closed += 1


class Here(Told):
    """Who has the link; `topic_id` is the one of the only topic now."""

    def __init__(self) -> None:
        super().__init__()
        self.topic_id: UUID | None = OLD
        self.heard: list[str] = []

    def as_owner(self) -> Owner:
        return Owner(
            2,
            lambda: id_text(UUID(int=1)),
            lambda: SimpleNamespace(host="h", port=1),  # type: ignore[arg-type, return-value]
            lambda _name: None if self.topic_id is None else id_text(self.topic_id),
            self.told,
            lambda: self.heard.append("connected"),
            lambda: self.heard.append("refused"),
        )


async def a_connected_link() -> tuple[ReplicaLink, Here, Wire]:
    here, wire = Here(), Wire()
    link = ReplicaLink(here.as_owner(), Security(), Bounds(1000, 500), LimitedLog(Loop()), 1)
    link._task.cancel()
    link._connection = wire  # type: ignore[assignment]
    return link, here, wire


async def turns(count: int = 3) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def topics_of(request: FetchRequest) -> list[tuple[UUID, int, int]]:
    return [
        (topic.topic_id, each.fetch_offset, each.partition_max_bytes)
        for topic in request.topics
        for each in topic.partitions
    ]


async def test_what_a_former_topic_has_is_not_said_of_the_new_one() -> None:
    link, here, wire = await a_connected_link()
    link.send(a_fetch(1000, synced=1000))
    here.topic_id = NEW
    await turns()
    assert [topics_of(request) for request in wire.sent] == [[]]


async def test_an_order_of_a_former_topic_does_not_stand_for_the_new_one() -> None:
    link, here, wire = await a_connected_link()
    link.send(a_fetch(0, epoch=0))
    await turns()
    here.topic_id = NEW
    link.send(a_fetch(0, epoch=0))
    await turns()
    assert [topics_of(request) for request in wire.sent] == [[(OLD, 0, 1000)], [(NEW, 0, 1000)]]


async def test_an_answer_of_a_former_topic_is_none_of_the_new_one() -> None:
    link, here, wire = await a_connected_link()
    link.send(a_fetch(0, epoch=0))
    await turns()
    here.topic_id = NEW
    link.send(a_fetch(0, epoch=0))
    await turns()
    for answer, topic_id in zip(wire.answers, (OLD, NEW), strict=True):
        data = an_answer(0, epoch=0, records=topic_id.bytes)
        answer.set_result(FetchResponse(responses=[FetchableTopicResponse(topic_id=topic_id, partitions=[data])]))
    await turns()
    assert [isinstance(told, ReplicaFetched) and told.records for told in here.messages] == [NEW.bytes]


async def test_what_was_wanted_under_a_former_registration_is_not_said_under_the_next() -> None:
    link, _, wire = await a_connected_link()
    link.send(a_fetch(7))
    again = a_fetch(3)._replace(partition=PartitionId("t", 1), replica=ME._replace(epoch=10))
    link.send(again)
    await turns()
    (request,) = wire.sent
    assert request.replica_state is not None
    assert (request.replica_state.replica_epoch, topics_of(request)) == (10, [(OLD, 3, 1000)])


async def test_a_session_that_was_asked_two_billion_times_is_not_begun_anew() -> None:
    link, _, wire = await a_connected_link()
    link._session_epoch = SESSION_EPOCH_MAX
    for offset in (1, 2):
        link.send(a_fetch(offset))
        await turns()
    assert [request.session_epoch for request in wire.sent] == [SESSION_EPOCH_MAX, 1]


@pytest.mark.parametrize(
    ("error", "level", "text"),
    [
        (ErrorCode.LEADER_NOT_AVAILABLE, "info", "has not read yet what there is"),
        (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "error", "has no right to CLUSTER_ACTION"),
        (ErrorCode.UNSUPPORTED_VERSION, "error", "answers no fetch"),
    ],
)
async def test_who_may_not_fetch_says_why_and_that_it_waits_is_no_error(
    error: ErrorCode, level: str, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    link, _, wire = await a_connected_link()
    link.send(a_fetch(1))
    await turns()
    wire.answers[0].set_result(FetchResponse(error_code=error))
    await turns()
    line = capsys.readouterr().err
    assert f" {level} " in line
    assert text in line
    assert wire.closed == 1, "another connection asks again"


async def test_a_link_goes_on_behind_what_it_cannot_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_link, "RETRY_S", 0.0)
    monkeypatch.setattr(broker_link, "RETRY_S_MAX", 0.0)
    wires: list[Wire] = []
    enough = asyncio.Event()

    async def opened(*_: object, **__: object) -> Wire:
        if len(wires) == 1:
            wires.append(Wire())
            raise ValueError("a bug")
        if len(wires) == 3:
            enough.set()
        wires.append(Wire())
        return wires[-1]

    monkeypatch.setattr(broker_link.Connection, "open", opened)
    link = ReplicaLink(Here().as_owner(), Security(), Bounds(1000, 500), LimitedLog(Loop()), 1)
    async with asyncio.timeout(10):
        await enough.wait()
    link.close()
    assert [wire.closed for wire in wires[:3]] == [1, 0, 1], "what is of no use is closed"


async def test_a_port_that_is_closed_is_told_and_is_tried_at_once_behind_a_connection_that_was_of_use(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    here = Here()
    monkeypatch.setattr(broker_link, "OF_USE_S", -1.0)
    monkeypatch.setattr(broker_link.Connection, "open", opened := Openings([None, NobodyListens("closed")]))
    monkeypatch.setattr(broker_link.Backoff, "next_s", lambda _: 3600.0)  # it is not waited for before the second
    link = ReplicaLink(here.as_owner(), Security(), Bounds(1000, 500), LimitedLog(Loop()), 1)
    await turns(10)
    link.close()
    assert (opened.count, here.heard) == (2, ["connected", "refused"])


async def test_a_connection_that_was_of_no_use_is_not_tried_again_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    here = Here()
    monkeypatch.setattr(broker_link.Connection, "open", opened := Openings([None, None]))
    monkeypatch.setattr(broker_link.Backoff, "next_s", lambda _: 3600.0)
    link = ReplicaLink(here.as_owner(), Security(), Bounds(1000, 500), LimitedLog(Loop()), 1)
    await turns(10)
    link.close()
    assert (opened.count, here.heard) == (1, ["connected"])


async def test_of_the_two_links_one_says_what_becomes_of_connections_and_both_say_bugs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(broker_link.Connection, "open", Openings([NobodyListens("closed"), ValueError("a bug")]))
    monkeypatch.setattr(broker_link.Backoff, "next_s", lambda _: 0.0)
    here = Here()
    link = AskingLink(here.as_owner(), Security(), LimitedLog(Loop()), 1)
    await turns(10)
    link.close()
    said = capsys.readouterr().err
    assert (here.heard, "closed" in said, "request_link_failed" in said) == (["refused"], False, True)


class Openings:
    """Connections that end at once, or errors, one after another."""

    def __init__(self, found: list[Exception | None]) -> None:
        self.count, self._found = 0, found

    async def __call__(self, *_: object, **__: object) -> Any:
        found = self._found[self.count]
        self.count += 1
        if found is not None:
            raise found
        return Ended()


class Ended(Wire):
    def version(self, _what: object) -> int:
        return 17

    async def wait_closed(self) -> Exception:
        return ConnectionLost("the other closed it")


def test_who_keeps_out_wants_no_bytes_and_orders_anew_behind_that() -> None:
    link, _ = a_link()
    link._partition(a_fetch(4), UUID(int=1))
    out = link._partition(a_fetch(4)._replace(keeps_out=True, is_full=True, was_full=True), UUID(int=1))
    assert (out.keeps_out, out.is_full, out.was_full, out.partition_max_bytes) == (True, True, True, 0)
    again = link._partition(a_fetch(4), UUID(int=1))
    assert (again.keeps_out, again.partition_max_bytes) == (False, 1000)


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (EpochEndOffset(leader_epoch=4, end_offset=9), [TellEnd(P, 7, 1, 4, 9)]),
        (EpochEndOffset(error_code=ErrorCode.KAFKA_STORAGE_ERROR), [TellEnd(P, 7, 1, -1, -1, online=False)]),
        (EpochEndOffset(error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), []),
    ],
)
async def test_how_much_another_has_is_told_or_that_its_log_is_offline(
    answer: EpochEndOffset, told: list[TellEnd]
) -> None:
    here, wire = Here(), Wire()
    link = AskingLink(here.as_owner(), Security(), LimitedLog(Loop()), 1)
    link._task.cancel()
    link._connection = wire  # type: ignore[assignment]
    link.send(AskEnd(P, 7, 2))
    found = OffsetForLeaderEpochResponse(topics=[OffsetForLeaderTopicResult(topic="t", partitions=[answer])])
    wire.answers[0].set_result(found)  # type: ignore[arg-type]
    await turns()
    assert here.messages == told


async def test_the_end_of_an_epoch_is_asked_for_and_told_as_that() -> None:
    here, wire = Here(), Wire()
    link = AskingLink(here.as_owner(), Security(), LimitedLog(Loop()), 1)
    link._task.cancel()
    link._connection = wire  # type: ignore[assignment]
    link.send(AskEnd(P, 7, 2, 4))
    (request,) = wire.sent
    assert isinstance(request, OffsetForLeaderEpochRequest)
    assert request.topics[0].partitions[0].leader_epoch == 4
    answer = EpochEndOffset(leader_epoch=3, end_offset=9)
    found = OffsetForLeaderEpochResponse(topics=[OffsetForLeaderTopicResult(topic="t", partitions=[answer])])
    wire.answers[0].set_result(found)  # type: ignore[arg-type]
    await turns()
    assert here.messages == [TellEnd(P, 7, 1, 3, 9, epoch=4)]
