"""Keep the orders of followers of this leader, and their waiting requests: fetch sessions (KIP-227).

A session is one connection of one follower. A fetch names only what has changed; what it does not name stays ordered.

| a fetch names a partition | it means |
|---|---|
| with bytes to be had | send what comes from this offset on: an order |
| with none | the disk has confirmed more; the order stands as it is, if there is one |
| keeping out | the order is over: it takes no records, and is answered at once |

| an answer names a partition | the order |
|---|---|
| with an error, where the logs diverge, or where what comes next is lost | is over |
| with records | is over: the follower orders what comes after them |
| with neither | stands: this is how far the high watermark is, and where the log starts |

| a request | is answered |
|---|---|
| that finds something | at once |
| else | when something comes, the next request does, or its time is over |

So a follower can tell what its disk has confirmed while an earlier request of it waits, and nothing is sent twice.
The epoch 0 of a session starts it again, as after a lost connection. A session does not outlive its connection.

Contains: orders, and requests that wait. Does not contain: who may fetch (follower_fetch.py), what a fetch
counts for (cluster/partition/leader_state.py). Source: KIP-227, KIP-595; Kafka's FetchSession.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from edge_broker.broker.cluster_port import FetchSource, LedPartitions, Order, SessionBroker
from edge_broker.broker.operations.cold_reads import DamageMet, read_through
from edge_broker.broker.outcomes import Outcome, Park, Reply
from edge_broker.cluster.inter_broker_messages import EpochEnd, ReplicaFetched
from edge_broker.cluster.state.cluster_state import PartitionId
from edge_broker.errors import ErrorCode, Refusal, StorageFault
from edge_broker.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchEpochEndOffset,
    FetchLeaderIdAndEpoch,
    FetchResponse,
    PartitionData,
)
from edge_broker.storage.segment.segment import DamageFound

if TYPE_CHECKING:
    from uuid import UUID


ANSWER_BYTES_MAX = 4 << 20


class Waiting(NamedTuple):
    """A request that waits for something to be answered with."""

    token: int
    deadline_ms: float


class FetchSession:
    """One connection of one follower."""

    def __init__(self, broker: SessionBroker, replicas: LedPartitions, source: FetchSource, replica: int) -> None:
        self.replica = replica
        self.orders: dict[PartitionId, Order] = {}
        self._broker, self._replicas, self._source = broker, replicas, source
        self._moved: dict[PartitionId, None] = {}  # orders that may be answered now
        self._marks: dict[PartitionId, None] = {}  # whose high watermark was not told yet
        self._answer: dict[PartitionId, tuple[UUID, PartitionData]] = {}  # what the next answer says
        self._starts: dict[PartitionId, int] = {}  # where logs start, as was said last
        self._waiting: list[Waiting] = []  # in the order of their coming; more than one only while something is read
        self._reading: list[tuple[PartitionId, Order, PartitionData]] = []

    # a request

    def begin(self) -> None:
        """Start the session again: nothing is ordered, and a waiting request is of a connection that is gone."""
        self.orders.clear()
        self._moved.clear()
        self._marks.clear()
        self._starts.clear()
        self._answer.clear()
        self._answer_first(len(self._waiting))

    def take(self, order: Order) -> None:
        """A partition of a request."""
        partition = order.fetch.partition
        fetched = self._source.fetch_from(order.fetch)
        if not fetched.wants_records:
            self._end(partition, order.topic_id, fetched)
        elif order.bytes_max > 0:
            self.orders[partition] = order
            self._moved[partition] = None
        elif self._starts.get(partition, 0) != self._start(partition):
            self._marks[partition] = None

    def refuse(self, topic_id: UUID, index: int, name: str, error: ErrorCode) -> None:
        """A partition of a request that is none of this broker's."""
        self._answer[PartitionId(name, index)] = topic_id, PartitionData(partition_index=index, error_code=error)

    def outcome(self, token: int, wait_ms: float) -> Outcome:
        """Answer the accepted request, or let it wait, and the one before wait no longer."""
        if not self._reading:
            self._answer_first(len(self._waiting))
            self._gather()
            if not self._reading and (self._answer or wait_ms <= 0):
                return Reply(self._response())
            self._read()
        self._waiting.append(Waiting(token, self._source.now_ms + wait_ms))
        return Park()

    # what happens meanwhile

    def log_moved(self, partition: PartitionId) -> None:
        """A log was written, or is led by another broker now."""
        if partition in self.orders:
            self._moved[partition] = None

    def leadership_resigned(self, partition: PartitionId) -> None:
        """This broker does not lead it any more: an order is over before a new topic of that name may be made."""
        order = self.orders.get(partition)
        if order is not None:
            self._end(partition, order.topic_id, order.fetch.answer(ErrorCode.NOT_LEADER_OR_FOLLOWER))

    def high_watermark_advanced(self, partition: PartitionId) -> None:
        """A high watermark has risen: included in the next response."""
        if partition in self.orders:
            self._marks[partition] = None

    def answer_if_due(self, now_ms: float) -> None:
        """Answer the request that waits, if there is something to say or its time is over."""
        if not self._waiting or self._reading:
            return
        if self._moved:
            self._gather()
            self._read()
        if not self._reading and (self._answer or now_ms >= self._waiting[0].deadline_ms):
            self._answer_first(1)

    def give_up(self) -> None:
        """Forget all orders: a waiting follower must come again, by another connection."""
        waiting, self._waiting = self._waiting, []
        self.begin()
        for each in waiting:
            self._broker.effects.answer(each.token, FetchResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR))

    def _answer_first(self, count: int) -> None:
        """Answer the first who wait: one with what there is, the others with nothing."""
        for waiting in self._waiting[:count]:
            self._broker.effects.answer(waiting.token, self._response())
        del self._waiting[:count]

    # answers

    def _gather(self) -> None:
        """Look at what has moved; what must be read from the disk is left in `_reading`."""
        left = ANSWER_BYTES_MAX
        for partition in list(self._moved):
            if left <= 0:
                return  # at the next request, or move
            del self._moved[partition]
            order = self.orders.get(partition)
            if order is not None:
                left -= self._look_at(partition, order, left)

    def _look_at(self, partition: PartitionId, order: Order, left: int) -> int:
        """Answer an order if it can be; how many bytes."""
        replica = self._replicas.replica(partition)
        nothing_new = replica is not None and replica.online and replica.log_end_offset <= order.fetch.fetch_offset
        if nothing_new and self._replicas.leads(partition, order.fetch.leader_epoch):
            return 0
        fetched = self._source.fetch_from(order.fetch, is_new=False)
        if not fetched.wants_records or replica is None:
            self._end(partition, order.topic_id, fetched)
            return 0
        data = self._data(partition, fetched)
        try:
            records = replica.read(order.fetch.fetch_offset, min(order.bytes_max, left), blocking=False)
        except Refusal as refusal:
            data.error_code = refusal.code
        except StorageFault:
            data.error_code = ErrorCode.KAFKA_STORAGE_ERROR
        else:
            if records is None:
                self._reading.append((partition, order, data))
                return order.bytes_max
            if not records:
                return 0
            data.records = records
        self._answer[partition] = order.topic_id, data
        del self.orders[partition]
        return len(data.records or b"")

    def _data(self, partition: PartitionId, fetched: ReplicaFetched) -> PartitionData:
        """An answer, which says to which order: a follower may have another one in progress."""
        start = self._starts[partition] = self._start(partition)
        return PartitionData(
            partition_index=partition.partition,
            high_watermark=fetched.high_watermark,
            log_start_offset=start,
            records=b"",
            aborted_transactions=[],
            current_leader=FetchLeaderIdAndEpoch(leader_epoch=fetched.leader_epoch),
            answers_offset=fetched.fetch_offset,
        )

    def _start(self, partition: PartitionId) -> int:
        replica = self._replicas.replica(partition)
        return -1 if replica is None else replica.log_start_offset

    def _end(self, partition: PartitionId, topic_id: UUID, fetched: ReplicaFetched) -> None:
        """Say why an order is over."""
        self.orders.pop(partition, None)
        data = self._data(partition, fetched)
        data.error_code = fetched.error
        data.diverging_epoch, data.lost = _on_the_wire(fetched.diverging), _on_the_wire(fetched.lost)
        self._answer[partition] = topic_id, data

    def _response(self) -> FetchResponse:
        for partition in self._marks:
            order = self.orders.get(partition)
            led = self._replicas.led_partition(*partition)
            if order is not None and led is not None and partition not in self._answer:
                fetched = order.fetch.answer(high_watermark=led.high_watermark)
                self._answer[partition] = order.topic_id, self._data(partition, fetched)
        self._marks.clear()
        topics: dict[UUID, FetchableTopicResponse] = {}
        for topic_id, data in self._answer.values():
            if topic_id not in topics:
                topics[topic_id] = FetchableTopicResponse(topic_id=topic_id, partitions=[])
            topics[topic_id].partitions.append(data)
        self._answer.clear()
        return FetchResponse(session_id=1, responses=list(topics.values()))

    # what the disk has to be waited for

    def _read(self) -> None:
        if not self._reading:
            return
        left = list(self._reading)

        def work() -> DamageMet | None:
            while left:
                partition, order, data = left[0]
                replica = self._replicas.replica(partition)
                try:
                    found = replica and replica.read(order.fetch.fetch_offset, order.bytes_max, blocking=True)
                    data.records = found or b""
                except DamageFound as met:
                    assert replica is not None
                    return replica.log, met
                except Refusal as refusal:
                    data.error_code = refusal.code
                except StorageFault:
                    data.error_code = ErrorCode.KAFKA_STORAGE_ERROR
                left.pop(0)
            return None

        def quarantine_failed(_met: DamageMet, _fault: StorageFault) -> None:
            left.pop(0)[2].error_code = ErrorCode.KAFKA_STORAGE_ERROR

        self._broker.effects.start(read_through(self._broker.effects, work, self._have_read, quarantine_failed))

    def _have_read(self) -> Outcome:
        reading, self._reading = self._reading, []
        for partition, order, data in reading:
            if self.orders.get(partition) is order:
                del self.orders[partition]
                self._answer[partition] = order.topic_id, data
        self._answer_first(max(1, len(self._waiting) - 1))  # who came meanwhile goes on waiting
        return Reply(None)


class FollowerFetches:
    """The sessions of all followers, by the connection that each has."""

    def __init__(self) -> None:
        self._sessions: dict[str, FetchSession] = {}

    def session(
        self, broker: SessionBroker, replicas: LedPartitions, source: FetchSource, replica: int, peer: str
    ) -> FetchSession:
        """The session of a connection; those of connections that are gone are forgotten when one is made."""
        found = self._sessions.get(peer)
        if found is None:
            self._sessions = {at: one for at, one in self._sessions.items() if broker.is_connected(at)}
            found = self._sessions[peer] = FetchSession(broker, replicas, source, replica)
        return found

    def each(self, act: Callable[[FetchSession], None]) -> None:
        """Do this with every session."""
        for session in list(self._sessions.values()):
            act(session)


def _on_the_wire(end: EpochEnd | None) -> FetchEpochEndOffset | None:
    return None if end is None else FetchEpochEndOffset(epoch=end.epoch, end_offset=end.end_offset)
