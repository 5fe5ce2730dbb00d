"""Produce (key 0): append record batches, answer when they are as safe as the producer asked.

| acks | answered |
|---|---|
| -1 (all) | after the sync that covers them (left-to-kernel topics: after the write) |
| 1 | after the write, once the partition's mark is on the disk (storage/recovery/dirty_markers.py) |
| 0 | never; an error closes the connection, as Kafka does; the mark is asked for all the same |

Each batch's records are checked before anything else looks at it (record_checks.py), so that a refused one uses no
offset and no sequence. To `__edge_ledger` only some may write, and only ledger records: they are checked in a worker
before anything is appended, and answered after the sync, whatever acks says (broker/state/ledger_access.py).

Does not contain: work per record. Source: Kafka protocol, Produce 3 to 12; KIP-98 for idempotence.
"""

from __future__ import annotations

from drupelet.ledger import LEDGER_TOPIC
from edge_broker.broker.api import ServedApi
from edge_broker.broker.broker import Broker
from edge_broker.broker.cluster_port import Node
from edge_broker.broker.context import RequestContext
from edge_broker.broker.operations.durable_write import Needs, Write, all_settled, wait_for
from edge_broker.broker.operations.leader_directory import as_endpoints, next_leader
from edge_broker.broker.outcomes import Outcome, Reply, RunInWorker, Steps, Taken
from edge_broker.broker.state.ledger_access import ledger_refusal
from edge_broker.errors import BatchRefusal, ErrorCode, ProtocolViolation, Refusal
from edge_broker.protocol.api import PRODUCE
from edge_broker.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceLeaderIdAndEpoch,
    ProduceNodeEndpoint,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from edge_broker.security.acls import Operation
from edge_broker.storage.log.partition_log import PartitionLog

PARTITIONS_AT_ONCE = 64
PARTITIONS_MAX = 10_000  # in one request
RECORD_ERRORS_MAX = 1000  # in one answer
NEXT_LEADER_FROM = 10
OF_PRODUCERS = frozenset(
    {
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.INVALID_PRODUCER_EPOCH,
    }
)
NEEDS = {-1: Needs.SYNCED, 0: Needs.WRITTEN, 1: Needs.MARKED}
"""By acks."""


class _PartitionAppend(Write):
    """One partition of a request."""

    __slots__ = ("context", "index", "topic")
    waits_for_lease = True

    def __init__(self, context: RequestContext, topic: str, data: PartitionProduceData, needs: Needs) -> None:
        super().__init__(None, data.records, needs)
        self.context = context
        self.topic = topic
        self.index = data.index

    def log_for(self, broker: Broker) -> PartitionLog:
        topic = self.topic
        log = broker.topics.partition(self.context, topic, self.index, Operation.WRITE)
        if self.writing is None:
            space = broker.space
            if space.room_bytes < 0 or space.full_topics:
                space.check_room(topic)
            if self.records is None:
                raise Refusal(ErrorCode.INVALID_RECORD, "the request holds no record batch for this partition")
        settings = log.state.settings
        self.bytes_max = settings.message_bytes_max
        if topic == LEDGER_TOPIC:
            self.needs = Needs.SYNCED
        elif self.needs == Needs.SYNCED and not settings.sync_awaited and broker.cluster is None:
            self.needs = Needs.MARKED
        return log

    def response(self) -> PartitionProduceResponse:
        """Its answer, once it is settled."""
        appended, log = self.appended, self.log
        if appended is not None and log is not None:
            return PartitionProduceResponse(
                index=self.index,
                base_offset=appended.base_offset,
                log_append_time_ms=appended.append_time_ms,
                log_start_offset=log.log_start_offset,
            )
        error = self.error
        assert error is not None
        answer = PartitionProduceResponse(
            index=self.index, error_code=error.code, base_offset=-1, error_message=error.message
        )
        if log is not None and (isinstance(error, BatchRefusal) or error.code in OF_PRODUCERS):
            answer.log_start_offset = log.log_start_offset
        return answer


@ServedApi(
    PRODUCE,
    ProduceRequest,
    ProduceResponse,
    {
        3: "idempotent producers and record batches (KIP-98)",
        4: "KAFKA_STORAGE_ERROR (KIP-112)",
        5: "the log's start in the answer (KIP-107)",
        6: "throttled by the client (KIP-219)",
        7: "zstd (KIP-110)",
        8: "errors per record (KIP-467)",
        9: "compact lengths, tags (KIP-482)",
        10: "a new leader in the answer (KIP-951)",
        11: "transactions' own errors (KIP-890)",
        12: "partitions join transactions by it (KIP-890)",
    },
    advertised_min=0,
    left_out="transactions; record formats before version 2 (magic 0 and 1)",
)
def produce(broker: Broker, context: RequestContext, request: ProduceRequest) -> Outcome:
    """Append what can be appended; each partition gets its own answer."""
    needs = NEEDS.get(request.acks, Needs.WRITTEN)
    parts: list[_PartitionAppend] = []
    of_ledger: list[_PartitionAppend] = []
    for topic in request.topic_data:
        name = topic.name
        for data in topic.partition_data:
            parts.append(_PartitionAppend(context, name, data, needs))
            if len(parts) > PARTITIONS_MAX:
                raise ProtocolViolation(f"a produce request for more than {PARTITIONS_MAX} partitions")
            if name == LEDGER_TOPIC:
                of_ledger.append(parts[-1])
    if request.acks not in NEEDS:
        return _refuse(broker, request, parts)
    if request.forwarder >= 0 and broker.cluster is not None:
        return _take_entries(broker, context, request, parts)
    if of_ledger:
        return _to_ledger(broker, context, request, parts, of_ledger)
    return _append_all(broker, request, parts)


def _to_ledger(
    broker: Broker,
    context: RequestContext,
    request: ProduceRequest,
    parts: list[_PartitionAppend],
    of_ledger: list[_PartitionAppend],
) -> Outcome:
    try:
        broker.topics.authorize(context, LEDGER_TOPIC, Operation.WRITE)
    except Refusal as not_allowed:
        for part in of_ledger:
            part.fail(not_allowed.without_frames())
        return _append_all(broker, request, parts)
    return _check_first(broker, request, parts, of_ledger)


def _take_entries(
    broker: Broker, context: RequestContext, request: ProduceRequest, parts: list[_PartitionAppend]
) -> Outcome:
    """Take what another broker forwards of its journal (broker/cluster/ledger_entries.py)."""
    from edge_broker.broker.cluster.follower_fetch import may_act_for_cluster  # noqa: PLC0415 - for a cluster alone
    from edge_broker.broker.cluster.ledger_entries import take_entries  # noqa: PLC0415 - as above

    part = parts[0] if parts else None
    if part is None or len(parts) > 1 or part.topic != LEDGER_TOPIC or part.index or request.acks != -1:
        raise ProtocolViolation("a broker forwards one batch to the ledger, with acks=all")
    if not may_act_for_cluster(broker, context):
        part.fail(Refusal(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "entries are forwarded by brokers alone"))
        return _reply(broker, request, parts)
    if part.records is None:
        part.fail(Refusal(ErrorCode.INVALID_RECORD, "the request holds no record batch for this partition"))
        return _reply(broker, request, parts)
    _keep_records(request, parts)

    def entries_taken(error: ErrorCode) -> Outcome:
        answer = PartitionProduceResponse(index=part.index, error_code=error, base_offset=-1)
        return Reply(ProduceResponse(responses=[TopicProduceResponse(name=part.topic, partition_responses=[answer])]))

    return take_entries(broker, part.records, entries_taken)


def _refuse(broker: Broker, request: ProduceRequest, parts: list[_PartitionAppend]) -> Reply:
    """Refuse all of it for its acks."""
    refusal = Refusal(ErrorCode.INVALID_REQUIRED_ACKS, f"acks is {request.acks}; use -1 (all), 0 or 1")
    for part in parts:
        part.fail(refusal)
    return _reply(broker, request, parts)


def _check_first(
    broker: Broker, request: ProduceRequest, parts: list[_PartitionAppend], of_ledger: list[_PartitionAppend]
) -> RunInWorker:
    """Look at the records for the ledger in a worker, one request after another; then append all parts."""
    bytes_max = broker.topics.ledger_batch_bytes_max
    _keep_records(request, parts)

    def check() -> list[Refusal | None]:
        return [ledger_refusal(part.records, bytes_max) for part in of_ledger]

    def append_checked(refusals: list[Refusal | None]) -> Outcome:
        for part, refusal in zip(of_ledger, refusals, strict=True):
            if refusal is not None:
                part.fail(refusal)
        return _append_all(broker, request, parts)

    def checking_failed(error: Exception) -> Outcome:
        raise error  # the check refuses by its result

    return RunInWorker(check, append_checked, checking_failed, "reader")


def _keep_records(request: ProduceRequest, parts: list[_PartitionAppend]) -> None:
    """Let go of the buffer that the request came in, also where it is read: others use it meanwhile."""
    for part in parts:
        part.keep_records()
    _let_go_of_records(request)


def _let_go_of_records(request: ProduceRequest) -> None:
    for topic in request.topic_data:
        for data in topic.partition_data:
            data.records = None


def _append_all(broker: Broker, request: ProduceRequest, parts: list[_PartitionAppend]) -> Outcome:
    if len(parts) > PARTITIONS_AT_ONCE:
        _keep_records(request, parts)
        return Steps(_append_in_steps(broker, request, parts))
    broker.check_bytes = broker.check_bytes_max
    for part in parts:
        if part.error is None:
            part.try_append(broker)
    return _outcome(broker, request, parts)


def _append_in_steps(broker: Broker, request: ProduceRequest, parts: list[_PartitionAppend]) -> Taken:
    left = broker.check_bytes_max
    for part in parts:
        yield None
        broker.check_bytes = left
        if part.error is None:
            part.try_append(broker)
        left = broker.check_bytes
    return _outcome(broker, request, parts)


def _outcome(broker: Broker, request: ProduceRequest, parts: list[_PartitionAppend]) -> Outcome:
    if all_settled(parts):
        return _reply(broker, request, parts)
    _let_go_of_records(request)
    syncs = request.acks == -1 or any(part.topic == LEDGER_TOPIC for part in parts)
    return wait_for(broker, parts, lambda: _reply(broker, request, parts), max(request.timeout_ms, 1), syncs=syncs)


def _reply(broker: Broker, request: ProduceRequest, parts: list[_PartitionAppend]) -> Reply:
    if request.acks == 0:
        error = next((part.error for part in parts if part.error is not None), None)
        if error is not None:
            raise ProtocolViolation(f"produce with acks=0 failed, closing is the only answer: {error.message}")
        return Reply(None)
    by_topic: dict[str, TopicProduceResponse] = {}
    listed = 0
    for part in parts:
        topic = by_topic.get(part.topic)
        if topic is None:
            topic = by_topic[part.topic] = TopicProduceResponse(name=part.topic, partition_responses=[])
        answer = part.response()
        topic.partition_responses.append(answer)
        if isinstance(part.error, BatchRefusal):
            answer.record_errors = _record_errors(part.error, RECORD_ERRORS_MAX - listed)
            listed += len(answer.record_errors)
    response = ProduceResponse(responses=list(by_topic.values()))
    if broker.cluster is not None and parts and parts[0].context.api_version >= NEXT_LEADER_FROM:
        _tell_leaders(broker, parts[0].context, response)
    return Reply(response)


def _tell_leaders(broker: Broker, context: RequestContext, response: ProduceResponse) -> None:
    """Name the leader of partitions refused for another leader, so that no client needs metadata first."""
    nodes = dict[int, Node]()
    for topic in response.responses:
        for answer in topic.partition_responses:
            if answer.error_code != ErrorCode.NOT_LEADER_OR_FOLLOWER:
                continue
            found = next_leader(broker, context.session, topic.name, answer.index)
            if found is not None:
                nodes[found.node.broker] = found.node
                answer.current_leader = ProduceLeaderIdAndEpoch(
                    leader_id=found.node.broker, leader_epoch=found.leader_epoch
                )
    response.node_endpoints = as_endpoints(nodes.values(), ProduceNodeEndpoint)


def _record_errors(refusal: BatchRefusal, most: int) -> list[BatchIndexAndErrorMessage]:
    """The bad records of a batch, as far as there is room for them in the answer (KIP-467)."""
    message = refusal.record_message
    return [
        BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=message)
        for index in refusal.records[:most]
    ]
