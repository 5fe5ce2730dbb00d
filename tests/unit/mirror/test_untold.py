"""One topic or partition that the source tells nothing of holds itself alone, and is named.

Does not contain: how it is asked (test_asking.py).
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from kafka_wire.cluster import Leader, Topic
from kafka_wire.partitions import TopicPartition
from mirror.errors import UntoldError
from mirror.partition.source_offsets import Commit
from mirror.producer import delivery_resolver, sender
from mirror.replication import backoffs
from tests.unit.mirror.ends import TP, MemorySource, MemoryTarget, record
from tests.unit.mirror.test_replicator import CONFIG, Altered, Run

OTHER = TopicPartition("readings", 1)
SECRETS = TopicPartition("secrets", 0)


@pytest.fixture(autouse=True)
def waits_are_short(monkeypatch):
    monkeypatch.setattr(delivery_resolver, "RESEND_S", 0.002)
    monkeypatch.setattr(backoffs, "BACKOFF_FIRST_S", 0.002)
    monkeypatch.setattr(sender, "REMEMBERED_S", 10**10)


class Half(MemorySource):
    """It has another partition without a leader, or another topic that it does not describe."""

    def __init__(self, log, other):
        super().__init__(log)
        self.other = other

    async def topics(self, names=None):
        found = await super().topics(names)
        leaders = {**found[TP.topic].leaders} if self.other == OTHER else {}
        node = -1 if self.other == OTHER else 1
        return {**found, self.other.topic: Topic(None, 0, {**leaders, self.other.partition: Leader(node, -1)})}

    async def known_bounds(self, partitions):
        starts, ends, _ = await super().known_bounds([tp for tp in partitions if tp != OTHER])
        return starts, ends, {tp: "it has no leader" for tp in partitions if tp == OTHER}

    async def known_settings(self, names):
        denied = {name: "topic secrets cannot be described: DENIED" for name in names if name == SECRETS.topic}
        return await super().known_settings([name for name in names if name not in denied]) | denied

    async def bounds(self, partitions):
        if OTHER in partitions:
            raise UntoldError("the bounds of readings-1 were not told: it has no leader")
        return await super().bounds(partitions)

    async def settings(self, names):
        if SECRETS.topic in names:
            raise UntoldError("topic secrets cannot be described: DENIED")
        return await super().settings(names)


@pytest.mark.parametrize(("other", "why"), [(OTHER, "it has no leader"), (SECRETS, "cannot be described")])
async def test_the_others_begin_where_the_source_does_not_tell_of_one_at_the_start(other, why):
    source, named = Half([record(o) for o in range(30)], other), set()
    run = Run(source, MemoryTarget(), config=replace(CONFIG, topics="readings|secrets"))

    def all_and_named():
        named.add(run.replicator.problems.get(f"{other.topic}-{other.partition} source", ""))
        return run.acked == 30 and any(why in text for text in named)

    await run.until(all_and_named)
    assert run.offsets == list(range(30))
    assert run.metrics.restarts.labels("source")._value.get() == 0


async def test_a_partition_out_of_range_waits_until_its_bounds_are_known():
    source = MemorySource([record(o) for o in range(10, 30)], start=10)
    source.group[TP] = Commit(5, 5)
    answer, left = source.known_bounds, [1, 1]

    async def known_bounds(partitions):
        if list(partitions) and left:
            left.pop()
            return {}, {}, dict.fromkeys(partitions, "LEADER_NOT_AVAILABLE")
        return await answer(partitions)

    source.known_bounds = known_bounds
    run = Run(source, MemoryTarget())
    await run.until_safe(30)
    assert left == []
    assert run.offsets == list(range(10, 30))
    assert [entry["id"] for _, entry, _ in run.ledger.written] == ["source_offset_out_of_range:readings:0:5-9"]
    assert run.metrics.restarts.labels("source")._value.get() == 0


async def test_a_gap_waits_until_the_topic_is_described_again():
    source = Altered(["delete", "delete"], [record(o) for o in [*range(10), *range(15, 30)]])
    answer, left = source.settings, [1, 1]

    async def settings(names):
        if source.rests == 0 and left:
            left.pop()
            raise UntoldError("topic readings cannot be described: DENIED")
        return await answer(names)

    async def known_settings(names):
        return await answer(names)

    source.settings, source.known_settings = settings, known_settings
    run = Run(source, MemoryTarget(), config=replace(CONFIG, refresh_interval_ms=1))
    await run.until_safe(30)
    assert left == []
    assert [entry["id"] for _, entry, _ in run.ledger.written] == ["source_offset_jump:readings:0:10-14"]
    assert run.metrics.restarts.labels("source")._value.get() == 0
