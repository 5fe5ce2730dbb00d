"""Produce (key 0): append record batches, answer when they are as safe as the producer asked.

| acks | answered |
|---|---|
| -1 (all) | after the sync that covers them (left-to-kernel topics: after the write) |
| 1 | after the write, once the partition's mark is on the disk (storage/in_use.py) |
| 0 | never; an error closes the connection, as Kafka does; the mark is asked for all the same |

Each batch's records are checked before anything else looks at it (broker/checking.py), so that a refused one uses no
offset and no sequence. To `__edge_ledger` only some may write, and only ledger records: they are checked in a worker
before anything is appended, and answered after the sync, whatever acks says (broker/ledger_access.py).

Must never come in: work per record. Source: Kafka protocol, Produce 3 to 12; KIP-98 for idempotence.
"""

from __future__ import annotations

from weakref import ref

from edge_broker.broker.broker import INTERNAL_TOPICS, Broker, RequestContext
from edge_broker.broker.checking import Checking, CheckUnderWay
from edge_broker.broker.disk_space import check_room, look_soon
from edge_broker.broker.ledger_access import check_writer, ledger_refusal
from edge_broker.broker.outcome import Do, Outcome, Reply, Steps, Taken, Wait
from edge_broker.errors import ErrorCode, ProtocolViolation, Refusal, StorageFault
from edge_broker.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from edge_broker.storage.appending import Appended, Busy, Writing
from edge_broker.storage.ledger import LEDGER_TOPIC
from edge_broker.storage.log import PartitionLog

ACKS = (-1, 0, 1)
PARTITIONS_AT_ONCE = 64
PARTITIONS_MAX = 10_000  # in one request


class _Part:
    """One partition of a request: `response` once it is known, `end_offset` what must be synced first."""

    __slots__ = (
        "__weakref__",
        "checking",
        "data",
        "end_offset",
        "log",
        "records",
        "response",
        "size",
        "topic",
        "writing",
    )

    def __init__(self, topic: str, data: PartitionProduceData) -> None:
        self.topic = topic
        self.data = data
        self.records = data.records
        self.size = len(data.records) if data.records is not None else 0
        self.log: PartitionLog | None = None
        self.end_offset = -1
        self.response: PartitionProduceResponse | None = None
        self.writing: Writing | None = None
        self.checking: Checking | None = None

    @property
    def waits(self) -> bool:
        """True while asking again would change nothing."""
        if self.checking is not None and not self.checking.done:
            return True
        if self.writing is not None:
            return not self.writing.done
        return self.log is not None and self.log.busy

    def answered_unsynced(self, acks: int) -> bool:
        """True when the answer does not wait for the sync; it may then be lost, and the mark says so."""
        log = self.log
        if log is None or self.topic == LEDGER_TOPIC:
            return False
        return acks >= 0 or not log.settings.sync_awaited

    def refuse(self, code: ErrorCode, message: str) -> None:
        self.response = PartitionProduceResponse(
            index=self.data.index, error_code=code, base_offset=-1, error_message=message
        )

    def wait_for(self, checking: Checking) -> None:
        """Leave the records to a check, which goes on as long as this part waits: its request may be forgotten."""
        waiting = ref(self)

        def wanted() -> bool:
            part = waiting()
            return part is not None and part.response is None

        self.checking, self.records, checking.wanted = checking, checking.records, wanted

    def keep_records(self) -> None:
        """Copy the records of a part that is not written yet, and let go of the buffer that the request came in: it is
        used again, or of up to a whole request's size.
        """
        records, self.data.records = self.data.records, None
        if self.checking is not None:
            return
        if self.response is not None or self.writing is not None:
            self.records = None
        elif records is not None:
            self.records = memoryview(bytearray(records))


def produce(broker: Broker, context: RequestContext, request: ProduceRequest) -> Outcome:
    """Append what can be appended; each partition gets its own answer."""
    parts: list[_Part] = []
    for topic in request.topic_data:
        parts += [_Part(topic.name, data) for data in topic.partition_data[: PARTITIONS_MAX + 1]]
        if len(parts) > PARTITIONS_MAX:
            raise ProtocolViolation(f"a produce request for more than {PARTITIONS_MAX} partitions")
    of_ledger = []
    for part in parts:
        if request.acks not in ACKS:
            part.refuse(ErrorCode.INVALID_REQUIRED_ACKS, f"acks is {request.acks}; use -1 (all), 0 or 1")
        elif request.transactional_id is not None:
            part.refuse(ErrorCode.INVALID_TXN_STATE, "transactions are not served; produce without transactional.id")
        elif part.topic == LEDGER_TOPIC:
            _check_writer(broker, context, part)
            if part.response is None:
                of_ledger.append(part)
    return _check_first(broker, request, parts, of_ledger) if of_ledger else _append_all(broker, request, parts)


def _check_writer(broker: Broker, context: RequestContext, part: _Part) -> None:
    try:
        check_writer(broker, context.client_host)
    except Refusal as refusal:
        part.refuse(refusal.code, refusal.message)


def _check_first(broker: Broker, request: ProduceRequest, parts: list[_Part], of_ledger: list[_Part]) -> Do:
    """Look at the records for the ledger in a worker, one request after another; then append all parts."""
    bytes_max = broker.store.topics[LEDGER_TOPIC].settings.message_bytes_max
    for part in parts:
        part.keep_records()

    def check() -> list[Refusal | None]:
        return [ledger_refusal(part.records, bytes_max) for part in of_ledger]

    def go_on(refusals: list[Refusal | None]) -> Outcome:
        for part, refusal in zip(of_ledger, refusals, strict=True):
            if refusal is not None:
                part.refuse(refusal.code, refusal.message)
        return _append_all(broker, request, parts)

    def failed(error: Exception) -> Outcome:
        raise error  # the check refuses by its result

    return Do(check, go_on, failed, "reader")


def _append_all(broker: Broker, request: ProduceRequest, parts: list[_Part]) -> Outcome:
    if len(parts) > PARTITIONS_AT_ONCE:
        for part in parts:
            part.keep_records()  # others use the buffer between the steps
        return Steps(_append_in_steps(broker, request, parts))
    broker.check_bytes = broker.check_bytes_max
    for part in parts:
        if part.response is None:
            _append(broker, part, request.acks)
    return _outcome(broker, request, parts)


def _append_in_steps(broker: Broker, request: ProduceRequest, parts: list[_Part]) -> Taken:
    left = broker.check_bytes_max
    for part in parts:
        yield None
        broker.check_bytes = left
        if part.response is None:
            _append(broker, part, request.acks)
        left = broker.check_bytes
    return _outcome(broker, request, parts)


def _outcome(broker: Broker, request: ProduceRequest, parts: list[_Part]) -> Outcome:
    done = _finished(request, parts)
    if done is not None:
        return done
    for part in parts:
        part.keep_records()
    logs = [part.log for part in parts if part.log is not None]

    def ready() -> Outcome | None:
        broker.check_bytes = broker.check_bytes_max
        for part in parts:
            if part.response is None and not part.waits:
                _append(broker, part, request.acks)
        return _finished(request, parts)

    def too_late() -> Outcome:
        for part in parts:
            if part.response is None or not _safe(part, request.acks):
                part.refuse(ErrorCode.REQUEST_TIMED_OUT, "the disk did not confirm the write in time; retry")
        return _reply(request, parts)

    open_sizes = [part.size for part in parts if part.response is None]
    syncs = request.acks == -1 or any(part.topic == LEDGER_TOPIC for part in parts)
    return Wait(
        logs,
        ready,
        max(request.timeout_ms, 1),
        too_late,
        syncs=syncs,
        holds=bool(open_sizes),
        kept_bytes=sum(open_sizes),
    )


def _append(broker: Broker, part: _Part, acks: int) -> None:
    """Append one partition's batches; leaves `response` open when a roll or a write must end first."""
    try:
        part.log = log = _writable(broker, part)
        appended = part.writing.result() if part.writing is not None else _append_records(broker, part, log)
    except CheckUnderWay as under_way:
        part.wait_for(under_way.checking)
        return
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
        part.records = part.writing = part.checking = None
        part.end_offset = appended.end_offset
        if not log.marked and log.high_watermark < part.end_offset and part.answered_unsynced(acks):
            broker.effects.mark(log)
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
    return broker.append(log, part.records, log.settings.message_bytes_max, checking=part.checking)


def _writable(broker: Broker, part: _Part) -> PartitionLog:
    if part.topic in INTERNAL_TOPICS:
        raise Refusal(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{part.topic} is written by the broker alone")
    return broker.log_of(part.topic, part.data.index)


def _safe(part: _Part, acks: int) -> bool:
    """True when an answer costs nothing that the ledger would not know of.

    acks=1, and acks=all where the clock alone syncs a topic, need what is written and the mark that says so.
    """
    log = part.log
    if log is None or part.end_offset < 0 or not acks:
        return True
    if log.marked and part.answered_unsynced(acks):
        return True
    return log.high_watermark >= part.end_offset


def _finished(request: ProduceRequest, parts: list[_Part]) -> Outcome | None:
    """The reply, once every partition has an answer that may be given."""
    for part in parts:
        if part.response is None:
            return None
        if not _safe(part, request.acks):
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
