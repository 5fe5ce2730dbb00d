"""A producer of kafka_wire's, for tests that send batches of their own.

No assertion about what is sent may live here.
"""

from __future__ import annotations

import asyncio

from edge_broker.errors import ErrorCode
from edge_broker.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kafka_wire import apis
from kafka_wire.connection.connection import Connection
from tests.support.waiting import CALL_S, Deadline


async def producer_at(connection: Connection) -> InitProducerIdResponse:
    """A new producer id, once a new cluster gives one."""
    deadline = Deadline(30)
    while True:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
        producer = await connection.ask(apis.INIT_PRODUCER_ID, request, timeout_s=CALL_S)
        if producer.error_code == ErrorCode.NONE:
            return producer
        assert producer.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        deadline.check("a producer id", producer)
        await asyncio.sleep(0.1)
