"""One connection to another broker of the cluster: a follower's fetches, and what else brokers ask each other.

| a fetch that the member wants | on the wire |
|---|---|
| from an offset that is not ordered yet | an order |
| the same order, as the disk has confirmed more, or as time has passed | no bytes wanted: the order stands |

A request is under way while anything is ordered, so that the leader has something to answer; another one goes as soon
as there is something to say, UNDER_WAY_MAX at most. What was ordered on a connection that is lost is ordered again on
the next one. What is wanted of a topic that was made anew meanwhile is not sent: it says nothing of the new one.

Lives here: that, and its reconnecting. Must never come in: what answers mean (edge_broker.cluster). Source: KIP-227.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from drupelet.backoff import Backoff
from edge_broker.cluster.following import NEWEST_EPOCH
from edge_broker.cluster.messages import (
    AskEnd,
    EpochEnd,
    ForwardEntries,
    HandOver,
    Message,
    ReplicaFetch,
    ReplicaFetched,
    TellEnd,
)
from edge_broker.cluster.state import PartitionId
from edge_broker.errors import ErrorCode, error_name
from edge_broker.handlers.elect_leaders import PREFERRED
from edge_broker.network.log_lines import LimitedLog
from edge_broker.protocol import api
from edge_broker.protocol.api import Asked, asked
from edge_broker.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    TopicPartitions,
)
from edge_broker.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchEpochEndOffset,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
    ReplicaState,
)
from edge_broker.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from edge_broker.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from edge_broker.storage.topics import id_of, id_text
from kafka_wire.connection import Connection
from kafka_wire.errors import NobodyListens, WireError

if TYPE_CHECKING:
    from uuid import UUID

    from drupelet.kafka_security import Security
    from edge_broker.config import Endpoint
    from edge_broker.protocol import message

FETCH = asked(api.FETCH, FetchRequest, FetchResponse, 17, 17)
ELECT = asked(api.ELECT_LEADERS, ElectLeadersRequest, ElectLeadersResponse, 2, 2)
PRODUCE = asked(api.PRODUCE, ProduceRequest, ProduceResponse, 12, 12)
EPOCH_ENDS = asked(api.OFFSET_FOR_LEADER_EPOCH, OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse, 4, 4)

UNDER_WAY_MAX = 4
CONNECT_S = 5.0
ANSWER_S = 10.0  # beyond what a leader may wait
FORWARD_S = 25.0  # a leader may wait for replicas, and the forwarder waits longer
SILENT_S_MAX = 5.0
RETRY_S, RETRY_S_MAX = 0.1, 2.0
OF_USE_S = 2.0  # behind which what a connection's end says is not that it was good for nothing
ANY_EPOCH = -1
SESSION_EPOCH_MAX = (1 << 31) - 1
Order = tuple[int, int, int, bool]  # leader epoch, fetch offset, last fetched epoch, whether it keeps out
R = TypeVar("R", bound="message.Message")


class Bounds(NamedTuple):
    """What a fetch asks for, as configured."""

    partition_bytes_max: int
    wait_ms: int


class Owner(NamedTuple):
    """Who has a link: where the other broker is, which topics there are, and who is told."""

    broker: int
    directory: Callable[[], str]
    endpoint: Callable[[], Endpoint | None]
    topic_id: Callable[[str], str | None]
    told: Callable[[Message], None]
    connected: Callable[[], None]
    refused: Callable[[], None]
    """Hears of a port that is closed."""


class ReplicaLink:
    """The link to one broker."""

    def __init__(self, owner: Owner, security: Security, bounds: Bounds, log: LimitedLog, to: int) -> None:
        self.to = to
        self._owner, self._security, self._bounds, self._log = owner, security, bounds, log
        self._loop = asyncio.get_running_loop()
        self._connection: Connection | None = None
        self._wanted: dict[PartitionId, tuple[str, ReplicaFetch]] = {}  # with the topic's id
        self._ids: dict[PartitionId, str] = {}  # of the topics as they were asked for last, on this connection
        self._names: dict[UUID, str] = {}  # of topics that were asked for
        self._ordered: dict[PartitionId, ReplicaFetch] = {}
        self._under_way = 0
        self._session_epoch = 0
        self._sending = False
        self._task = self._loop.create_task(self._run())

    @property
    def connected(self) -> bool:
        """Whether there is a connection now."""
        return self._connection is not None

    def close(self) -> None:
        """End it."""
        self._task.cancel()
        if self._connection is not None:
            self._connection.close()

    def send(self, message: Message) -> None:
        """Say something, if the other can be reached; what it answers is told to the owner."""
        if self._connection is None:
            if isinstance(message, ForwardEntries):
                self._loop.call_soon(self._owner.told, message.answer(ErrorCode.LEADER_NOT_AVAILABLE))
            return  # the member asks again
        if isinstance(message, ReplicaFetch):
            topic_id = self._owner.topic_id(message.partition.topic)
            if topic_id is not None:
                self._wanted[message.partition] = topic_id, message
                self._send_soon()
        elif isinstance(message, HandOver):
            self._hand_over(message)
        elif isinstance(message, AskEnd):
            self._ask_end(message)
        elif isinstance(message, ForwardEntries):
            self._forward(message)

    # the connection

    async def _run(self) -> None:
        backoff = Backoff(RETRY_S, RETRY_S_MAX)
        while True:
            try:
                endpoint = self._owner.endpoint()
                if endpoint is not None:
                    begin_s = self._loop.time()
                    await self._serve(endpoint)
                    backoff.reset()
                    if self._loop.time() - begin_s > OF_USE_S:
                        continue  # at once: whether its port is closed is what clients want to know
            except NobodyListens as error:
                self._owner.refused()
                self._log.line("warning", "replica-link", broker=self.to, error=error)
            except WireError as error:
                self._log.line("warning", "replica-link", broker=self.to, error=error)
            except Exception as error:  # noqa: BLE001 - an address that is none, or a bug: without a link none follows
                self._log.line("error", "replica-link-failed", broker=self.to, error=repr(error))
            await asyncio.sleep(backoff.next_s())

    async def _serve(self, endpoint: Endpoint) -> None:
        """Connect, and be of use until the connection ends. WireError: it could not be made."""
        connection = await Connection.open(
            self._security,
            endpoint.host,
            endpoint.port,
            f"broker-{self._owner.broker}-replica",
            timeout_s=CONNECT_S,
            silent_s_max=SILENT_S_MAX,
        )
        try:
            connection.version(FETCH)
            self._connection, self._session_epoch = connection, 0
            self._owner.connected()
            why = await connection.wait_closed()
            self._log.line("info", "replica-link-lost", broker=self.to, error=why)
        finally:
            connection.close()
            self._connection = None
            self._wanted.clear()
            self._ordered.clear()
            self._ids.clear()
            self._names.clear()

    # fetches

    def _send_soon(self) -> None:
        if not self._sending:
            self._sending = True
            self._loop.call_soon(self._send)

    def _send(self) -> None:
        """Say what is to be said, or only give the leader a request to answer."""
        self._sending = False
        connection = self._connection
        if connection is None or self._under_way >= UNDER_WAY_MAX:
            return
        if not self._wanted and (self._under_way or not self._ordered):
            return
        wanted, self._wanted = self._of_now(), {}
        request = FetchRequest(
            replica_state=ReplicaState(replica_id=self._owner.broker, replica_epoch=_epoch_of(wanted)),
            max_wait_ms=self._bounds.wait_ms,
            min_bytes=1,
            session_id=1,
            session_epoch=self._session_epoch,
            topics=self._topics(wanted),
        )
        answer = connection.send(FETCH, request, timeout_s=self._bounds.wait_ms / 1000 + ANSWER_S)
        self._session_epoch = 1 if self._session_epoch == SESSION_EPOCH_MAX else self._session_epoch + 1  # 0: begins
        self._under_way += 1
        answer.add_done_callback(partial(self._answered, connection))

    def _of_now(self) -> dict[PartitionId, ReplicaFetch]:
        """What is wanted under the newest registration, of topics that are still there."""
        newest = max((fetch.replica.epoch for _, fetch in self._wanted.values()), default=-1)
        found = {}
        for partition, (topic_id, fetch) in self._wanted.items():
            if fetch.replica.epoch == newest and self._owner.topic_id(partition.topic) == topic_id:
                if self._ids.get(partition) != topic_id:  # an order of the former topic is none of this one's
                    self._ordered.pop(partition, None)
                    self._ids[partition] = topic_id
                found[partition] = fetch
        return found

    def _topics(self, wanted: dict[PartitionId, ReplicaFetch]) -> list[FetchTopic]:
        directory = id_of(self._owner.directory())
        topics: dict[str, FetchTopic] = {}
        for partition, fetch in wanted.items():
            if partition.topic not in topics:
                topics[partition.topic] = FetchTopic(topic_id=id_of(self._ids[partition]), partitions=[])
            topics[partition.topic].partitions.append(self._partition(fetch, directory))
        self._names.update((topic.topic_id, name) for name, topic in topics.items())
        return list(topics.values())

    def _partition(self, fetch: ReplicaFetch, directory: UUID) -> FetchPartition:
        before = self._ordered.get(fetch.partition)
        stands = before is not None and _order(before) == _order(fetch)
        self._ordered[fetch.partition] = fetch
        return FetchPartition(
            partition=fetch.partition.partition,
            current_leader_epoch=fetch.leader_epoch,
            fetch_offset=fetch.fetch_offset,
            last_fetched_epoch=fetch.last_fetched_epoch,
            partition_max_bytes=0 if stands or fetch.keeps_out else self._bounds.partition_bytes_max,
            replica_directory_id=directory,
            synced_end=fetch.synced_end,
            keeps_out=fetch.keeps_out,
        )

    def _answered(self, connection: Connection, answer: asyncio.Future[FetchResponse]) -> None:
        self._under_way -= 1
        if answer.cancelled() or answer.exception() is not None or connection is not self._connection:
            return  # the connection has ended, which is said there
        response = answer.result()
        if response.error_code != ErrorCode.NONE:
            error, waits = error_name(response.error_code), response.error_code == ErrorCode.LEADER_NOT_AVAILABLE
            level = "info" if waits else "error"
            self._log.line(level, "replica-fetch-refused", broker=self.to, error=error, text=self._remedy(response))
            connection.close()
            return
        for topic in response.responses:
            self._take_topic(topic)
        self._send_soon()

    def _remedy(self, refusal: FetchResponse) -> str:
        """Why a leader lets this broker not fetch at all, and what to do, for people."""
        if refusal.error_code == ErrorCode.LEADER_NOT_AVAILABLE:
            return f"broker {self.to} has not read yet what there is: it is asked again"
        if refusal.error_code != ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
            return f"broker {self.to} answers no fetch of this broker"
        security = self._security
        user = f"User:{security.username}" if security.has_login else "User: and the subject of its certificate"
        remedy = (
            f"name it in super.users there, or edge-broker acl add --allow {user} --operation cluster_action --cluster"
            if security.shows_who
            else "inter.broker.listener.name and the addresses in advertised.listeners say where brokers come from"
        )
        who = user if security.shows_who else "this broker's address"
        return f"broker {self.to} lets this one replicate nothing, as {who} has no right to CLUSTER_ACTION: {remedy}"

    def _take_topic(self, topic: FetchableTopicResponse) -> None:
        name, topic_id = self._names.get(topic.topic_id), id_text(topic.topic_id)
        if name is not None and self._owner.topic_id(name) != topic_id:
            del self._names[topic.topic_id]  # it is deleted
            return
        for data in topic.partitions:
            partition = PartitionId(name or "", data.partition_index)
            if self._ids.get(partition) == topic_id:
                self._take(partition, data)

    def _take(self, partition: PartitionId, data: PartitionData) -> None:
        fetch = self._ordered.get(partition)
        if fetch is None or not _answers(data, fetch):
            return
        error, diverging, lost = known_error(data.error_code), _end(data.diverging_epoch), _end(data.lost)
        if error is not ErrorCode.NONE or diverging is not None or lost is not None or data.records:
            del self._ordered[partition]
        self._owner.told(
            ReplicaFetched(
                partition,
                fetch.leader_epoch,
                fetch.fetch_offset,
                fetch.last_fetched_epoch,
                error,
                diverging,
                max(data.high_watermark, 0),
                data.records or None,
                data.log_start_offset,
                lost=lost,
            )
        )

    # what else brokers ask each other

    def _ask(self, what: Asked[R], request: message.Message, then: Callable[[R], None]) -> None:
        assert self._connection is not None
        answer = self._connection.send(what, request, timeout_s=ANSWER_S)

        def answered(done: asyncio.Future[R]) -> None:
            if not done.cancelled() and done.exception() is None:
                then(done.result())

        answer.add_done_callback(answered)

    def _hand_over(self, wish: HandOver) -> None:
        """Wish that the preferred replica leads; whoever leads finds out whether it can."""
        topic = TopicPartitions(topic=wish.partition.topic, partitions=[wish.partition.partition])
        request = ElectLeadersRequest(
            election_type=PREFERRED, topic_partitions=[topic], timeout_ms=int(ANSWER_S * 1000)
        )
        self._ask(ELECT, request, lambda _: None)

    def _ask_end(self, question: AskEnd) -> None:
        partition = question.partition
        wanted = OffsetForLeaderPartition(
            partition=partition.partition, current_leader_epoch=ANY_EPOCH, leader_epoch=NEWEST_EPOCH
        )
        topic = OffsetForLeaderTopic(topic=partition.topic, partitions=[wanted])

        def told(answer: OffsetForLeaderEpochResponse) -> None:
            for found in (each for topic in answer.topics for each in topic.partitions):
                if found.error_code in (ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR):
                    end, online = (found.leader_epoch, found.end_offset), found.error_code == ErrorCode.NONE
                    self._owner.told(TellEnd(partition, question.version, self.to, *end, online=online))

        self._ask(EPOCH_ENDS, OffsetForLeaderEpochRequest(replica_id=self._owner.broker, topics=[topic]), told)

    def _forward(self, entries: ForwardEntries) -> None:
        """Forward entries of the journal; of a lost answer is told that nobody knows."""
        data = PartitionProduceData(index=entries.partition.partition, records=memoryview(entries.records))
        request = ProduceRequest(
            acks=-1,
            timeout_ms=int(ANSWER_S * 1000),
            topic_data=[TopicProduceData(name=entries.partition.topic, partition_data=[data])],
            forwarder=entries.sender,
        )
        assert self._connection is not None

        def told(done: asyncio.Future[ProduceResponse]) -> None:
            if done.cancelled() or done.exception() is not None:
                error = ErrorCode.REQUEST_TIMED_OUT
            else:
                found = [each for topic in done.result().responses for each in topic.partition_responses]
                error = known_error(found[0].error_code) if found else ErrorCode.UNKNOWN_SERVER_ERROR
            self._owner.told(entries.answer(error))

        self._connection.send(PRODUCE, request, timeout_s=FORWARD_S).add_done_callback(told)


def _answers(data: PartitionData, fetch: ReplicaFetch) -> bool:
    """Whether this answers that order, and no earlier one of the same partition; an unknown topic answers all."""
    leader = data.current_leader
    if leader is None:
        return True
    return (data.answers_offset, leader.leader_epoch) == (fetch.fetch_offset, fetch.leader_epoch)


def known_error(code: int) -> ErrorCode:
    """What another broker says, UNKNOWN_SERVER_ERROR where it says what is not known here."""
    try:
        return ErrorCode(code)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR


def _order(fetch: ReplicaFetch) -> Order:
    return fetch.leader_epoch, fetch.fetch_offset, fetch.last_fetched_epoch, fetch.keeps_out


def _epoch_of(wanted: Mapping[PartitionId, ReplicaFetch]) -> int:
    """The registration under which they are asked, the same for all of one life; -1 where nothing is."""
    return next((fetch.replica.epoch for fetch in wanted.values()), -1)


def _end(told: FetchEpochEndOffset | None) -> EpochEnd | None:
    return None if told is None else EpochEnd(told.epoch, told.end_offset)
