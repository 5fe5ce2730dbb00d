"""Where leader epochs ended, asked over the wire after several unclean ends, of both brokers by the same rules.

Each broker has a history of its own: what its batches say. From it the rules of `leader_epochs.py` say
what must be answered; Apache Kafka 4.3.1 is held against them, too, so that they are Kafka's rules and not ours.
"""

from __future__ import annotations

import socket
from typing import Any

import pytest

from edge_broker.errors import ErrorCode
from edge_broker.protocol.api import FETCH, METADATA, OFFSET_FOR_LEADER_EPOCH, PRODUCE
from edge_broker.protocol.message import Message
from edge_broker.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from edge_broker.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from edge_broker.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from edge_broker.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from edge_broker.protocol.record_batch import build_batch, read_header
from edge_broker.storage.log.leader_epochs import LeaderEpochs
from edge_broker.storage.log.log_reader import whole_batches
from tests.support.kafka_reading import create_topic
from tests.support.processes import ApacheKafka, EdgeBroker
from tests.support.waiting import wait_until
from tests.unit.broker.test_process import Wire

TOPIC = "history"
VERSIONS = {FETCH: 12, METADATA: 9, OFFSET_FOR_LEADER_EPOCH: 4, PRODUCE: 9}
LEADER_S = 60.0
pytestmark = pytest.mark.timeout(300)  # Apache Kafka starts four times
STARTS = 4
# Synced at once, as it is killed; a broker that comes back is taken for its dead self until that one's session ends.
KAFKA = {"log.flush.interval.messages": 1, "broker.session.timeout.ms": 1500, "broker.heartbeat.interval.ms": 300}

History = tuple[list[tuple[int, int]], int, int]  # (epoch, first offset) of each epoch, the current epoch, the end


def ask(port: int, key: int, request: Message) -> Any:
    with socket.create_connection(("127.0.0.1", port), LEADER_S) as connection:
        return Wire(connection).ask(key, request, VERSIONS[key])


def current_epoch(port: int) -> int:
    """The leader epoch of now, -1 while nobody leads."""
    topics = [MetadataRequestTopic(name=TOPIC)]
    found = ask(port, METADATA, MetadataRequest(topics=topics, allow_auto_topic_creation=False)).topics[0]
    partition = found.partitions[0] if found.partitions else None
    return partition.leader_epoch if partition is not None and partition.leader_id >= 0 else -1


def leads(port: int) -> bool:
    """Whether the broker leads by its own word, too: what it knows of an election comes before what it does of it."""
    epoch = current_epoch(port)
    return epoch >= 0 and end_of_epoch(port, epoch)[0] == ErrorCode.NONE


def produce(port: int, records: int) -> None:
    """Append one batch, as a client does: a leader that was elected anew meanwhile is asked again."""
    batch = build_batch([(None, b"x" * 50)] * records, timestamp_ms=1_700_000_000_000)
    data = TopicProduceData(name=TOPIC, partition_data=[PartitionProduceData(index=0, records=memoryview(batch))])
    request = ProduceRequest(acks=-1, timeout_ms=20_000, topic_data=[data])

    codes: list[int] = []

    def is_decided() -> bool:
        codes.append(ask(port, PRODUCE, request).responses[0].partition_responses[0].error_code)
        return codes[-1] != ErrorCode.NOT_LEADER_OR_FOLLOWER

    wait_until(is_decided, LEADER_S, f"a leader that takes records of {TOPIC}", seen=lambda: codes[-1])
    assert codes[-1] == ErrorCode.NONE


def fetch(port: int, offset: int, last_epoch: int = -1) -> Any:
    partition = FetchPartition(
        partition=0, fetch_offset=offset, last_fetched_epoch=last_epoch, partition_max_bytes=1 << 20
    )
    topics = [FetchTopic(topic=TOPIC, partitions=[partition])]
    return ask(port, FETCH, FetchRequest(max_wait_ms=0, min_bytes=0, topics=topics)).responses[0].partitions[0]


def end_of_epoch(port: int, epoch: int) -> tuple[int, int, int]:
    wanted = OffsetForLeaderPartition(partition=0, leader_epoch=epoch)
    request = OffsetForLeaderEpochRequest(
        replica_id=-1, topics=[OffsetForLeaderTopic(topic=TOPIC, partitions=[wanted])]
    )
    found = ask(port, OFFSET_FOR_LEADER_EPOCH, request).topics[0].partitions[0]
    return found.error_code, found.leader_epoch, found.end_offset


def history_of(port: int) -> History:
    starts: dict[int, int] = {}
    offset = 0
    while batches := whole_batches(fetch(port, offset).records or b""):
        for header in map(read_header, batches):
            starts.setdefault(header.leader_epoch, header.base_offset)
            offset = header.next_offset
    return list(starts.items()), current_epoch(port), offset


@pytest.fixture(scope="module", params=[EdgeBroker, ApacheKafka], ids=["edge-broker", "apache-kafka"])
def broker(request, tmp_path_factory):
    """A broker that was killed and started again several times, with records of every life but one."""
    process = request.param(
        tmp_path_factory.mktemp("epochs"),
        settings=KAFKA if request.param is ApacheKafka else {},
    )
    try:
        for start in range(STARTS):
            process.start()
            if start == 0:
                create_topic(process.bootstrap, TOPIC)
            wait_until(
                lambda: leads(process.port), LEADER_S, f"a leader of {TOPIC}", seen=lambda: current_epoch(process.port)
            )
            for records in (3, 1) if start != 2 else ():
                produce(process.port, records)
            if start < STARTS - 1:
                process.kill()
        yield process
    finally:
        process.kill()


def test_ends_of_epochs(broker):
    starts, current, end = history_of(broker.port)
    assert len(starts) == STARTS - 1, starts
    assert current >= starts[-1][0]
    rules = LeaderEpochs(starts)
    for epoch in range(-1, current + 2):
        assert end_of_epoch(broker.port, epoch) == (0, *rules.end(epoch, current, end)), epoch


def test_fetch_says_where_logs_diverge(broker):
    starts, current, end = history_of(broker.port)
    rules = LeaderEpochs(starts)
    told = 0
    for epoch in range(current + 1):
        for offset in range(end + 1):
            found, end_offset = rules.end(epoch, current, end)
            answer = fetch(broker.port, offset, epoch)
            diverging = answer.diverging_epoch
            place = (diverging.epoch, diverging.end_offset) if diverging is not None and diverging.epoch >= 0 else None
            if found < epoch or end_offset < offset:
                told += 1
                assert (answer.error_code, place) == (0, (found, end_offset)), (epoch, offset)
                assert not answer.records
            else:
                assert (answer.error_code, place) == (0, None), (epoch, offset)
    assert told > 5
