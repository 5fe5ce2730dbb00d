"""DescribeLogDirs (key 35): how many bytes of which partitions lie on this broker's disk, in its one data directory.

A broker answers for itself alone, so clients ask each. A partition that is asked for and does not lie here is left
out, as is a board's journal of the ledger, which no client may request.

| field | value |
|---|---|
| partition_size | bytes of all segments |
| offset_lag | how far a replica's log ends below what it knows to be replicated: 0, as none does |
| total_bytes, usable_bytes | of the disk, at the last look, which is a second old at most; -1 before the first |
| problems, a tag of ours | what is wrong with this broker (broker/health.py), at most PROBLEMS_MAX |

Source: Kafka protocol, DescribeLogDirs 1 to 4; KIP-113, KIP-827.
"""

from __future__ import annotations

from collections.abc import Iterator

from drupelet.quantities import quantity_text
from edge_broker.broker.api import ServedApi
from edge_broker.broker.broker import Broker
from edge_broker.broker.context import RequestContext
from edge_broker.broker.health import Problem, cluster_problems
from edge_broker.broker.outcomes import Reply, Taken, reads_in_steps
from edge_broker.errors import ErrorCode
from edge_broker.protocol.api import DESCRIBE_LOG_DIRS
from edge_broker.protocol.messages.describe_log_dirs import (
    BrokerProblem,
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from edge_broker.security.acls import Operation
from edge_broker.storage.log.partition_log import PartitionLog

PROBLEMS_MAX = 100
"""Named in one answer; one more says how many there are."""


@ServedApi(
    DESCRIBE_LOG_DIRS,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    {
        1: "bytes of partitions (KIP-113)",
        2: "compact lengths, tags (KIP-482)",
        3: "an error of the whole answer",
        4: "the disk's size, and what is free of it (KIP-827)",
    },
    left_out="directories to choose from: there is one",
)
@reads_in_steps
def describe_log_dirs(broker: Broker, context: RequestContext, request: DescribeLogDirsRequest) -> Taken:
    """Tell the bytes of each partition that is asked for and lies here."""
    code = broker.rights.cluster(context, Operation.DESCRIBE)
    if code:
        return Reply(DescribeLogDirsResponse(error_code=code))
    look = broker.space.status
    result = DescribeLogDirsResult(
        error_code=ErrorCode.NONE,
        log_dir=broker.store.data_dir,
        total_bytes=-1 if look is None else look.total,
        usable_bytes=-1 if look is None else look.free,
    )
    topics: dict[str, DescribeLogDirsTopic] = {}
    seen: set[PartitionLog] = set()
    for log in _requested_logs(broker, request):
        if log is None or log in seen:
            yield None
            continue
        seen.add(log)
        topic = topics.get(log.topic)
        if topic is None:
            topic = topics[log.topic] = DescribeLogDirsTopic(name=log.topic, partitions=[])
            yield topic
        topic.partitions.append(DescribeLogDirsPartition(partition_index=log.partition, partition_size=log.size))
        yield topic.partitions[-1]
    result.topics = list(topics.values())
    return Reply(DescribeLogDirsResponse(results=[result], problems=_problems(cluster_problems(broker))))


def _problems(found: list[Problem]) -> list[BrokerProblem]:
    rest = len(found) - PROBLEMS_MAX
    more = (
        [Problem(found[-1].kind, f"and {quantity_text(rest, 'problem')} more, which /health names")] if rest > 0 else []
    )
    return [
        BrokerProblem(kind=kind, text=text, for_ms=-1 if for_ms is None else for_ms)
        for kind, text, for_ms in (*found[:PROBLEMS_MAX], *more)
    ]


def _requested_logs(broker: Broker, request: DescribeLogDirsRequest) -> Iterator[PartitionLog | None]:
    """The logs that are asked for, None where there is none."""
    if request.topics is None:
        yield from broker.topics.logs_here()
        return
    for asked in request.topics:
        yield None
        for index in asked.partitions:
            yield broker.topics.log_here(asked.topic, index)
