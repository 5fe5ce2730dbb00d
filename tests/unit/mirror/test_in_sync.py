"""A partition that is short of in-sync replicas gets no fence: its marker would hold all that begin.

Does not contain: batches that such a partition refuses (test_replicator.py).
"""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from drupelet.kafka.client import ClientSettings
from edge_broker.errors import ErrorCode
from edge_broker.protocol.messages.describe_configs import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from edge_broker.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kafka_wire.apis import TOPIC_RESOURCE
from kafka_wire.cluster import Leader, Topic
from kafka_wire.connection.errors import WireError
from kafka_wire.partitions import TopicPartition
from mirror.client.target_client import Target
from mirror.errors import ShortError, TargetError
from mirror.producer import sender
from mirror.replication import backoffs
from mirror.session.marker_partitions import InSync
from tests.support.played_broker import PlayedBroker, listening
from tests.unit.mirror.ends import FENCED, MemoryFencing, MemorySource, MemoryStateTopic, MemoryTarget, record
from tests.unit.mirror.test_replicator import Run

TP = TopicPartition("t", 0)


class Broker(PlayedBroker):
    """A broker of a topic with three replicas, of which `in_sync` are; `wanted` is its min.insync.replicas."""

    def __init__(self):
        super().__init__()
        self.in_sync, self.wanted, self.refusal = [7], "2", 0

    def on_Metadata(self, _):
        one = MetadataResponsePartition(
            partition_index=0, leader_id=7, leader_epoch=3, replica_nodes=[7, 8, 9], isr_nodes=self.in_sync
        )
        return MetadataResponse(brokers=[self.node()], topics=[MetadataResponseTopic(name="t", partitions=[one])])

    def on_DescribeConfigs(self, _):
        one = DescribeConfigsResourceResult(name="min.insync.replicas", value=self.wanted)
        result = DescribeConfigsResult(
            resource_type=TOPIC_RESOURCE,
            resource_name="t",
            error_code=self.refusal,
            configs=[] if self.refusal else [one],
        )
        return DescribeConfigsResponse(results=[result])


@pytest.fixture
async def broker():
    async with listening(Broker()) as played:
        yield played


@pytest.fixture
async def target(broker):
    made = Target(ClientSettings(f"127.0.0.1:{broker.port}", "unit", 30_000))
    yield made
    await made.close()


async def test_a_partition_with_fewer_replicas_in_sync_than_its_topic_wants_is_short_until_it_has_them(broker, target):
    await target.leader(TP)
    with pytest.raises(TargetError, match=r"t-0 has 1 in-sync replicas, and min\.insync\.replicas=2"):
        await target.check_in_sync(TP)
    broker.in_sync = [7, 9]
    await target.leader(TP)  # it was forgotten
    await target.check_in_sync(TP)


@pytest.mark.parametrize(
    ("in_sync", "wanted", "code", "asked"),
    [([7, 8, 9], "3", 0, 0), ([7, 8], "2", 0, 1), ([7], "2", int(ErrorCode.TOPIC_AUTHORIZATION_FAILED), 1)],
)
async def test_a_partition_that_is_not_known_to_be_short_is_fenced(broker, target, in_sync, wanted, code, asked):
    broker.in_sync, broker.wanted, broker.refusal = in_sync, wanted, code
    await target.leader(TP)
    for _ in range(3):
        await target.check_in_sync(TP)
    assert broker.asked.count("DescribeConfigs") == asked


class Described:
    """A target that describes topics; a text is that of an error."""

    def __init__(self, topics, short=""):
        self.told, self.short, self.times = topics, short, 0

    async def topics(self, names):
        self.times += 1
        if self.told is None:
            await asyncio.get_running_loop().create_future()
        if isinstance(self.told, str):
            raise TargetError(self.told)
        return self.told

    async def check_in_sync(self, partition):
        if self.short:
            raise (ShortError if "short" in self.short else TargetError)(self.short)


class Named:
    """What is asked of a partition stream."""

    target_topic, partition, at_target = "t", TP, TP


LED, LEADERLESS = Topic("t", 0, {0: Leader(7, 3)}), Topic("t", 0, {0: Leader(-1, 3)})


@pytest.mark.parametrize(
    ("topics", "short", "problem"),
    [
        ({"t": LED}, "", None),
        ({"t": LED}, "t-0 is short", "t-0 is short"),
        ({"t": LED}, "the settings are not answered", None),
        ({"t": LEADERLESS}, "", "t-0 has no leader"),
        ({}, "", None),
        ("the target is away", "", None),
        (None, "", None),  # nor does it answer
    ],
)
async def test_which_partitions_are_left_out_of_a_transaction(monkeypatch, topics, short, problem):
    monkeypatch.setattr("mirror.session.marker_partitions.LOOK_S", 0.05)
    lane = Named()
    found = await InSync(Described(topics, short)).problems([lane])
    assert list(map(found.get, [lane])) == [problem]


async def test_what_was_committed_a_moment_ago_is_not_looked_at_until_a_connection_is_lost():
    lane = Named()
    target = Described({"t": LED}, "t-0 is short")
    known = InSync(target)
    known.transaction_committed([lane])
    assert await known.problems([lane]) == {}
    assert target.times == 0
    known.forget()
    assert await known.problems([lane]) == {lane: "t-0 is short"}


async def test_no_marker_is_written_while_a_partition_is_short(monkeypatch):
    monkeypatch.setattr(backoffs, "BACKOFF_FIRST_S", 0.002)
    monkeypatch.setattr(sender, "REMEMBERED_S", 10**10)
    target, seen = MemoryTarget(), SimpleNamespace(times=0)
    target.short = "t-0 has 1 in-sync replicas, and min.insync.replicas=2"
    run = Run(MemorySource([record(o) for o in range(30)]), target)

    def named_then_whole():
        if target.short and target.short in run.replicator.trouble():
            seen.times += 1
            assert target.log == []
            target.short = "" if seen.times == 3 else target.short
        return run.acked == 30

    await run.until(named_then_whole)
    assert seen.times == 3
    assert run.offsets == list(range(30))


class StuckFencing(MemoryFencing):
    """Another partition was short of replicas while markers were written: the coordinator takes nothing else."""

    async def begin_with(self, chosen, meanwhile=None):
        if self.target.epoch >= 0:
            raise WireError("a producer id cannot be had: CONCURRENT_TRANSACTIONS")
        fence = (await super().begin_with(chosen, meanwhile))._replace(is_confirmed=False)
        await meanwhile(fence)
        return fence


class StuckStateTopic(MemoryStateTopic):
    """The marker of the state topic itself is there from its second reading on, or never."""

    readings = 0

    async def read(self, reading):
        await super().read(reading)
        self.readings += 1
        self.marked_by = (FENCED, self.target.epoch) if self.target.is_marked and self.readings > 1 else None


@pytest.mark.parametrize("is_marked", [True, False])
async def test_the_others_begin_though_one_marker_is_never_written(is_marked):
    """A broker was killed while a fence was written: where a marker is seen, all older sessions are refused."""
    target = MemoryTarget()
    target.fencing, target.is_marked = lambda transactional_id: StuckFencing(target), is_marked
    target.state_topic = lambda name: StuckStateTopic(target, name)
    run, told = Run(MemorySource([record(o) for o in range(30)]), target), set()

    def has_begun_or_is_named():
        told.add(run.replicator.problems.get("state topic", ""))
        return run.acked == 30 if is_marked else any("CONCURRENT_TRANSACTIONS" in text for text in told)

    await run.until(has_begun_or_is_named)
    assert run.offsets == (list(range(30)) if is_marked else [])
