"""The connection on which brokers ask each other for what may take a while: wishes, questions, entries of the journal.

| message | on the wire | its answer |
|---|---|---|
| HandOver | ElectLeaders | no request waits for it |
| AskEnd | OffsetForLeaderEpoch | TellEnd |
| ForwardEntries | Produce, acks=all, with a tag of ours | EntriesTaken |

A message without a connection is lost; for entries the member learns it, and forwards them again.

Contains: the messages on the wire. Does not contain: fetches (replica_fetch_link.py), what answers mean.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from edge_broker.cluster.inter_broker_messages import AskEnd, ForwardEntries, HandOver, Message, TellEnd
from edge_broker.errors import ErrorCode, known_error
from edge_broker.handlers.elect_leaders import PREFERRED
from edge_broker.network.cluster.broker_link import BrokerLink, Owner
from edge_broker.network.log_lines import LimitedLog
from edge_broker.protocol import api
from edge_broker.protocol.api import RequestedApi, requested_api
from edge_broker.protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse, TopicPartitions
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

if TYPE_CHECKING:
    from drupelet.kafka.security import Security
    from edge_broker.protocol import message

ELECT = requested_api(api.ELECT_LEADERS, ElectLeadersRequest, ElectLeadersResponse, 2, 2)
PRODUCE = requested_api(api.PRODUCE, ProduceRequest, ProduceResponse, 12, 12)
EPOCH_ENDS = requested_api(api.OFFSET_FOR_LEADER_EPOCH, OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse, 4, 4)

ANSWER_S = 10.0
FORWARD_S = 25.0  # a leader may wait for replicas, and the forwarder waits longer
ANY_EPOCH = -1
R = TypeVar("R", bound="message.Message")


class AskingLink(BrokerLink):
    """The link to one broker."""

    def __init__(self, owner: Owner, security: Security, log: LimitedLog, to: int) -> None:
        super().__init__(owner, security, log, to, name="request_link", needs=PRODUCE)

    def _say(self, level: str, what: str, error: object) -> None:
        """Bugs alone: the rest the replica link says of the same broker, and here mostly nothing was answered."""
        if level == "error":
            super()._say(level, what, error)

    def send(self, message: Message) -> None:
        """Send a message, if the other broker can be reached; the owner receives the response."""
        if self._connection is None:
            if isinstance(message, ForwardEntries):
                self._loop.call_soon(self._owner.told, message.answer(ErrorCode.LEADER_NOT_AVAILABLE))
        elif isinstance(message, HandOver):
            self._hand_over(message)
        elif isinstance(message, AskEnd):
            self._ask_end(message)
        else:
            assert isinstance(message, ForwardEntries), "all else is fetched, or an answer"
            self._forward(message)

    def _ask(self, what: RequestedApi[R], request: message.Message, then: Callable[[R], None]) -> None:
        assert self._connection is not None
        answer = self._connection.send(what, request, timeout_s=ANSWER_S)

        def response_received(done: asyncio.Future[R]) -> None:
            if not done.cancelled() and done.exception() is None:
                then(done.result())

        answer.add_done_callback(response_received)

    def _hand_over(self, effect: HandOver) -> None:
        """Request that the preferred replica leads; the leader checks whether it can."""
        topic = TopicPartitions(topic=effect.partition.topic, partitions=[effect.partition.partition])
        request = ElectLeadersRequest(
            election_type=PREFERRED, topic_partitions=[topic], timeout_ms=int(ANSWER_S * 1000)
        )
        self._ask(ELECT, request, lambda _: None)

    def _ask_end(self, question: AskEnd) -> None:
        partition = question.partition
        wanted = OffsetForLeaderPartition(
            partition=partition.partition, current_leader_epoch=ANY_EPOCH, leader_epoch=question.epoch
        )
        topic = OffsetForLeaderTopic(topic=partition.topic, partitions=[wanted])

        def end_received(answer: OffsetForLeaderEpochResponse) -> None:
            for found in (each for topic in answer.topics for each in topic.partitions):
                if found.error_code in (ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR):
                    end, online = (found.leader_epoch, found.end_offset), found.error_code == ErrorCode.NONE
                    told = TellEnd(partition, question.version, self.to, *end, online=online, epoch=question.epoch)
                    self._owner.told(told)

        self._ask(EPOCH_ENDS, OffsetForLeaderEpochRequest(replica_id=self._owner.broker, topics=[topic]), end_received)

    def _forward(self, entries: ForwardEntries) -> None:
        """Forward entries of the journal; a lost response is reported as an unknown outcome."""
        data = PartitionProduceData(index=entries.partition.partition, records=memoryview(entries.records))
        request = ProduceRequest(
            acks=-1,
            timeout_ms=int(ANSWER_S * 1000),
            topic_data=[TopicProduceData(name=entries.partition.topic, partition_data=[data])],
            forwarder=entries.sender,
        )
        assert self._connection is not None

        def produce_completed(done: asyncio.Future[ProduceResponse]) -> None:
            if done.cancelled() or done.exception() is not None:
                error = ErrorCode.REQUEST_TIMED_OUT
            else:
                found = [each for topic in done.result().responses for each in topic.partition_responses]
                error = known_error(found[0].error_code) if found else ErrorCode.UNKNOWN_SERVER_ERROR
            self._owner.told(entries.answer(error))

        self._connection.send(PRODUCE, request, timeout_s=FORWARD_S).add_done_callback(produce_completed)
