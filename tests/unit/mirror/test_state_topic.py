"""The state topic's leader is looked for again once it has refused: a broker that was killed leads by another epoch."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from edge_broker.errors import ErrorCode
from edge_broker.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from kafka_wire.cluster import Leader
from kafka_wire.connection.errors import WireError
from mirror.client.state_topic import StateTopic
from mirror.partition.state_records import Reading


class OneBroker:
    """A cluster whose one broker leads the topic, under the epoch `epoch`, on the node `node`."""

    controller = 1
    nodes = (1,)

    def __init__(self) -> None:
        self.node, self.epoch = 1, 1

    async def topics(self, names: list[str]) -> dict[str, Any]:
        topic = SimpleNamespace(error_code=0, leaders={0: Leader(self.node, self.epoch)}, topic_id=None)
        return dict.fromkeys(names, topic)

    async def connection(self, node: int, _number: int) -> OneBroker:
        if node != self.node:
            raise WireError(f"broker {node} is away")
        return self

    async def ask(self, _api: Any, request: Any, timeout_s: float) -> FetchResponse:
        assert timeout_s > 0
        asked = request.topics[0].partitions[0]
        is_old = asked.current_leader_epoch != self.epoch
        code = ErrorCode.FENCED_LEADER_EPOCH if is_old else ErrorCode.NONE
        told = PartitionData(partition_index=0, error_code=code, high_watermark=0, last_stable_offset=0)
        return FetchResponse(responses=[FetchableTopicResponse(topic="state", partitions=[told])])


@pytest.mark.parametrize("node", [1, 2])
def test_a_leader_that_has_changed_is_asked_for_again(node: int) -> None:
    async def run() -> None:
        cluster: Any = OneBroker()
        topic = StateTopic(cluster, "state", timeout_s=1.0)
        assert not await topic.open()
        assert await topic.read(Reading()) == 0
        cluster.node, cluster.epoch = node, 2
        with pytest.raises(WireError):
            await topic.read(Reading())
        assert await topic.read(Reading()) == 0

    asyncio.run(run())
