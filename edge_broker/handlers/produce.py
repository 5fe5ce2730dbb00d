"""Produce (key 0): append record batches, answer when they are as safe as the producer asked.

| acks | answered |
|---|---|
| -1 (all) | after the sync that covers them (left-to-kernel topics: after the write) |
| 1 | after the write |
| 0 | never; an error closes the connection, as Kafka does |

Must never come in: work per record. Source: Kafka protocol, Produce 3 to 12; KIP-98 for idempotence.
"""

from __future__ import annotations

from edge_broker.errors import ErrorCode, ProtocolViolation, Refusal, StorageFault
from edge_broker.handlers.broker import INTERNAL_TOPICS, Broker, RequestContext
from edge_broker.handlers.outcome import Outcome, Reply, Wait
from edge_broker.handlers.space_work import check_room, look_soon
from edge_broker.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from edge_broker.storage.appending import Appended, Busy, Writing
from edge_broker.storage.log import PartitionLog

ACKS = (-1, 0, 1)


class _Part:
    """One partition of a request: `response` once it is known, `end_offset` what must be synced first."""

    __slots__ = ("data", "end_offset", "log", "records", "response", "size", "topic", "writing")

    def __init__(self, topic: str, data: PartitionProduceData) -> None:
        self.topic = topic
        self.data = data
        self.records = data.records
        self.size = len(data.records) if data.records is not None else 0
        self.log: PartitionLog | None = None
        self.end_offset = -1
        self.response: PartitionProduceResponse | None = None
        self.writing: Writing | None = None

    @property
    def waits(self) -> bool:
        """True while asking again would change nothing."""
        if self.writing is not None:
            return not self.writing.done
        return self.log is not None and self.log.busy

    def refuse(self, code: ErrorCode, message: str) -> None:
        self.response = PartitionProduceResponse(
            index=self.data.index, error_code=code, base_offset=-1, error_message=message
        )

    def keep_records(self) -> None:
        """Copy the records of a part that is not written yet, and let go of the buffer that the request came in: it is
        used again, or of up to a whole request's size.
        """
        records = self.data.records
        self.data.records = None
        left = self.response is None and self.writing is None
        self.records = memoryview(bytearray(records)) if left and records is not None else None


def produce(broker: Broker, context: RequestContext, request: ProduceRequest) -> Outcome:
    """Append what can be appended; each partition gets its own answer."""
    parts = [_Part(topic.name, data) for topic in request.topic_data for data in topic.partition_data]
    for part in parts:
        if request.acks not in ACKS:
            part.refuse(ErrorCode.INVALID_REQUIRED_ACKS, f"acks is {request.acks}; use -1 (all), 0 or 1")
        elif request.transactional_id is not None:
            part.refuse(ErrorCode.INVALID_TXN_STATE, "transactions are not served; produce without transactional.id")
        else:
            _append(broker, part)
    return _outcome(broker, request, parts)


def _outcome(broker: Broker, request: ProduceRequest, parts: list[_Part]) -> Outcome:
    done = _finished(request, parts)
    if done is not None:
        return done
    for part in parts:
        part.keep_records()
    logs = [part.log for part in parts if part.log is not None]

    def ready() -> Outcome | None:
        for part in parts:
            if part.response is None and not part.waits:
                _append(broker, part)
        return _finished(request, parts)

    def too_late() -> Outcome:
        for part in parts:
            if part.response is None or (request.acks == -1 and not _safe(part)):
                part.refuse(ErrorCode.REQUEST_TIMED_OUT, "the disk did not confirm the write in time; retry")
        return _reply(request, parts)

    held = any(part.response is None for part in parts)
    return Wait(logs, ready, max(request.timeout_ms, 1), too_late, syncs=request.acks == -1, holds=held)


def _append(broker: Broker, part: _Part) -> None:
    """Append one partition's batches; leaves `response` open when a roll or a write must end first."""
    try:
        part.log = log = _writable(broker, part)
        appended = part.writing.result() if part.writing is not None else _append_records(broker, part, log)
    except Busy as busy:
        part.writing = busy.writing
        return
    except Refusal as refusal:
        part.refuse(refusal.code, refusal.message)
        if refusal.code == ErrorCode.KAFKA_STORAGE_ERROR and not broker.space_refused:
            look_soon(broker)
    except StorageFault as fault:
        part.refuse(ErrorCode.KAFKA_STORAGE_ERROR, str(fault))
    else:
        broker.room_bytes -= part.size
        part.records = part.writing = None
        part.end_offset = appended.end_offset
        part.response = PartitionProduceResponse(
            index=part.data.index,
            base_offset=appended.base_offset,
            log_append_time_ms=appended.append_time_ms,
            log_start_offset=log.log_start_offset,
        )


def _append_records(broker: Broker, part: _Part, log: PartitionLog) -> Appended:
    if broker.room_bytes < 0 or broker.full_topics:
        check_room(broker, part.topic)
    if part.records is None:
        raise Refusal(ErrorCode.INVALID_RECORD, "the request holds no record batch for this partition")
    return broker.append(log, part.records, log.settings.message_bytes_max)


def _writable(broker: Broker, part: _Part) -> PartitionLog:
    if part.topic in INTERNAL_TOPICS:
        raise Refusal(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{part.topic} is written by the broker alone")
    return broker.log_of(part.topic, part.data.index)


def _safe(part: _Part) -> bool:
    """True when acks=all may be answered; a topic whose data the clock syncs answers what is written."""
    log = part.log
    return log is None or part.end_offset < 0 or log.high_watermark >= part.end_offset or not log.settings.sync_awaited


def _finished(request: ProduceRequest, parts: list[_Part]) -> Outcome | None:
    """The reply, once every partition has an answer that may be given."""
    for part in parts:
        if part.response is None:
            return None
        if request.acks == -1 and not _safe(part):
            if part.log is None or part.log.fault is None:
                return None
            part.refuse(ErrorCode.KAFKA_STORAGE_ERROR, str(part.log.fault))
            part.end_offset = -1
    return _reply(request, parts)


def _reply(request: ProduceRequest, parts: list[_Part]) -> Reply:
    if request.acks == 0:
        refused = next(
            (part.response for part in parts if part.response is not None and part.response.error_code), None
        )
        if refused is not None:
            raise ProtocolViolation(f"produce with acks=0 failed, closing is the only answer: {refused.error_message}")
        return Reply(None)
    by_topic: dict[str, TopicProduceResponse] = {}
    for part in parts:
        topic = by_topic.get(part.topic)
        if topic is None:
            topic = by_topic[part.topic] = TopicProduceResponse(name=part.topic, partition_responses=[])
        assert part.response is not None
        topic.partition_responses.append(part.response)
    return Reply(ProduceResponse(responses=list(by_topic.values())))
