"""The connection on which a follower fetches from another broker.

| a fetch that the member wants | on the wire |
|---|---|
| from an offset that is not ordered yet | an order |
| the same order, as the disk has confirmed more, or as time has passed | no bytes wanted: the order stands |

A request is in progress while anything is ordered, so that the leader has something to answer; another one goes as soon
as there is something to say, UNDER_WAY_MAX at most. An order on a lost connection is ordered again on
the next one. A wanted fetch of a topic that was replaced meanwhile is not sent: it says nothing of the new one.

Does not contain: what answers mean (edge_broker.cluster), requests whose answers wait for
anything else (broker_request_link.py). Source: KIP-227.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from edge_broker.cluster.inter_broker_messages import EpochEnd, Message, ReplicaFetch, ReplicaFetched
from edge_broker.cluster.state.cluster_state import PartitionId
from edge_broker.errors import ErrorCode, error_name, known_error
from edge_broker.network.cluster.broker_link import BrokerLink, Owner
from edge_broker.network.log_lines import LimitedLog
from edge_broker.protocol import api
from edge_broker.protocol.api import requested_api
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
from edge_broker.storage.metadata.topic_record import id_of, id_text

if TYPE_CHECKING:
    from uuid import UUID

    from drupelet.kafka.security import Security
    from kafka_wire.connection.connection import Connection

FETCH = requested_api(api.FETCH, FetchRequest, FetchResponse, 17, 17)

UNDER_WAY_MAX = 4
ANSWER_S = 10.0  # beyond what a leader may wait
SESSION_EPOCH_MAX = (1 << 31) - 1
Order = tuple[int, int, int, bool]  # leader epoch, fetch offset, last fetched epoch, whether it keeps out


class Bounds(NamedTuple):
    """The configured limits of a fetch."""

    partition_bytes_max: int
    wait_ms: int


class ReplicaLink(BrokerLink):
    """The link to one broker."""

    def __init__(self, owner: Owner, security: Security, bounds: Bounds, log: LimitedLog, to: int) -> None:
        super().__init__(owner, security, log, to, name="replica_link", needs=FETCH)
        self._bounds = bounds
        self._wanted: dict[PartitionId, tuple[str, ReplicaFetch]] = {}  # with the topic's id
        self._ids: dict[PartitionId, str] = {}  # of the topics as they were asked for last, on this connection
        self._names: dict[UUID, str] = {}  # of topics that were asked for
        self._ordered: dict[PartitionId, ReplicaFetch] = {}
        self._under_way = 0
        self._session_epoch = 0
        self._sending = False

    def send(self, message: Message) -> None:
        """Want this, if the other broker can be reached; the owner receives the response."""
        assert isinstance(message, ReplicaFetch), "all else may wait, and is asked"
        topic_id = self._owner.topic_id(message.partition.topic)
        if self._connection is not None and topic_id is not None:
            self._wanted[message.partition] = topic_id, message
            self._send_soon()

    def _connection_lost(self) -> None:
        self._session_epoch = 0
        self._wanted.clear()
        self._ordered.clear()
        self._ids.clear()
        self._names.clear()

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
        answer.add_done_callback(partial(self._response_received, connection))

    def _of_now(self) -> dict[PartitionId, ReplicaFetch]:
        """The wanted fetches under the newest registration, of topics that still exist."""
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
            is_full=fetch.is_full,
            state_id=fetch.state_id,
            was_full=fetch.was_full,
        )

    def _response_received(self, connection: Connection, answer: asyncio.Future[FetchResponse]) -> None:
        self._under_way -= 1
        if answer.cancelled() or answer.exception() is not None or connection is not self._connection:
            return  # the connection has ended, which is said there
        response = answer.result()
        if response.error_code != ErrorCode.NONE:
            error, waits = error_name(response.error_code), response.error_code == ErrorCode.LEADER_NOT_AVAILABLE
            level = "info" if waits else "error"
            self._log.line(level, "replica_fetch_refused", broker=self.to, error=error, text=self._remedy(response))
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
            "name it in super.users there, or give it CLUSTER_ACTION of the cluster there, with `edge-broker acl add`"
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


def _answers(data: PartitionData, fetch: ReplicaFetch) -> bool:
    """Whether this answers that order, and no earlier one of the same partition; an unknown topic answers all."""
    leader = data.current_leader
    if leader is None:
        return True
    return (data.answers_offset, leader.leader_epoch) == (fetch.fetch_offset, fetch.leader_epoch)


def _order(fetch: ReplicaFetch) -> Order:
    return fetch.leader_epoch, fetch.fetch_offset, fetch.last_fetched_epoch, fetch.keeps_out


def _epoch_of(wanted: Mapping[PartitionId, ReplicaFetch]) -> int:
    """The registration under which they are asked, the same for all of one life; -1 where nothing is."""
    return next((fetch.replica.epoch for fetch in wanted.values()), -1)


def _end(told: FetchEpochEndOffset | None) -> EpochEnd | None:
    return None if told is None else EpochEnd(told.epoch, told.end_offset)
