"""InitProducerId (key 22): a producer id that was never given out before, also not before a crash.

Ids come from blocks whose reservation is synced before the first one is used; a crash skips the rest of its block. In a
cluster brokers take blocks of one znode (cluster/producer_ids.py), and all who wait for a block share it. An id that a
log of this broker knows is skipped: any client may write with any id, and an ensemble may be set back.
Source: KIP-98, KIP-360. Transactional ids are refused until transactions exist.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from edge_broker.broker.api import ServedApi
from edge_broker.broker.broker import Broker
from edge_broker.broker.context import RequestContext
from edge_broker.broker.outcomes import Outcome, Park, Reply, RunInWorker
from edge_broker.errors import ErrorCode
from edge_broker.protocol.api import INIT_PRODUCER_ID
from edge_broker.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from edge_broker.security.acls import Operation, ResourceType

if TYPE_CHECKING:
    from edge_broker.broker.cluster_port import ProducerIdBlocks


@ServedApi(
    INIT_PRODUCER_ID,
    InitProducerIdRequest,
    InitProducerIdResponse,
    {
        0: "an id for an idempotent producer (KIP-98)",
        1: "throttled by the client (KIP-219)",
        2: "compact lengths, tags (KIP-482)",
        3: "a new epoch for a known id (KIP-360)",
        4: "PRODUCER_FENCED (KIP-588)",
        5: "transactions' own errors (KIP-890)",
    },
    left_out="transactional ids",
)
def init_producer_id(broker: Broker, context: RequestContext, request: InitProducerIdRequest) -> Outcome:
    """Give the next id, after reserving a block when the last one is used up."""
    denied = _denial(broker, context, request)
    if denied != ErrorCode.NONE:
        return _refuse(denied)
    if request.transactional_id is not None:
        return _refuse(ErrorCode.UNSUPPORTED_VERSION if request.transactional_id else ErrorCode.INVALID_REQUEST)
    if (request.producer_id < 0) != (request.producer_epoch < 0):
        return _refuse(ErrorCode.INVALID_REQUEST)  # one without the other
    if (given := _next(broker)) is not None:
        return Reply(given)
    if broker.cluster is not None:
        return _from_cluster(broker, broker.cluster.changes, context.token)

    def block_reserved(block: range) -> Outcome:
        if not broker.producer_ids:
            broker.producer_ids = block
        return init_producer_id(broker, context, request)

    return RunInWorker(
        broker.store.directory.producer_ids.reserve, block_reserved, lambda _: _refuse(ErrorCode.KAFKA_STORAGE_ERROR)
    )


def _next(broker: Broker) -> InitProducerIdResponse | None:
    """The next id of the block that no log knows; None: the block is used up."""
    while broker.producer_ids:
        producer_id, broker.producer_ids = broker.producer_ids[0], broker.producer_ids[1:]
        if not broker.store.producer_memory.knows(producer_id):
            return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)
    return None


def _from_cluster(broker: Broker, blocks: ProducerIdBlocks, token: int) -> Park:
    broker.waiting_for_ids.append(token)
    if len(broker.waiting_for_ids) == 1:
        blocks.take_producer_ids(partial(_store_block, broker), broker.store.directory.producer_ids.end)
    return Park()


def _store_block(broker: Broker, block: range | None) -> None:
    """Write down the end of a block that the cluster gave, then answer all who wait."""
    if block is None:
        _answer_waiting(broker, range(0))
        return
    given = block

    def block_stored(_: None) -> Reply:
        _answer_waiting(broker, given)
        return Reply(None)

    def storing_failed(_: BaseException) -> Reply:
        _answer_waiting(broker, range(0))
        return Reply(None)

    broker.effects.start(
        RunInWorker(partial(broker.store.directory.producer_ids.keep, given.stop), block_stored, storing_failed)
    )


def _answer_waiting(broker: Broker, block: range) -> None:
    """Answer all waiting requests; one without an id must ask again, by Kafka's error for it."""
    waiting, broker.waiting_for_ids = broker.waiting_for_ids, []
    broker.producer_ids = block
    for token in waiting:
        broker.effects.answer(token, _next(broker) or _refusal(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))


def _denial(broker: Broker, context: RequestContext, request: InitProducerIdRequest) -> ErrorCode:
    """Why the session may have no producer id; for an idempotent producer the right to write to any topic is enough."""
    rights = broker.rights
    if request.transactional_id is not None:
        allowed = rights.may(context, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id)
        return ErrorCode.NONE if allowed else ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    if rights.may(context, Operation.IDEMPOTENT_WRITE, ResourceType.CLUSTER, noted=False):
        return ErrorCode.NONE
    if rights.may_any(context, Operation.WRITE, ResourceType.TOPIC):
        return ErrorCode.NONE
    return rights.cluster(context, Operation.IDEMPOTENT_WRITE)


def _refuse(code: ErrorCode) -> Reply:
    return Reply(_refusal(code))


def _refusal(code: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)
