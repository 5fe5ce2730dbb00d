"""The replicator between two ends in memory: gaps, refusals and failures that real brokers do not show on demand."""

from __future__ import annotations

import asyncio
import json
import random
from types import SimpleNamespace

import pytest

from mirror.clients import OutOfRangeError, RecordTooLargeError, SourceError, TargetError, TopicPartition
from mirror.config import Config
from mirror.metrics import Metrics
from mirror.plan import BatchSpan
from mirror.replicator import Replicator

TP = TopicPartition("readings", 0)
CONFIG = Config(
    source="s:1", target="t:2", topics="readings", site="lab", backoff_max_ms=2, commit_interval_ms=5,
    refresh_interval_ms=5, window_records_max=50, ledger=False,
)  # fmt: skip


def record(offset, size=10):
    return SimpleNamespace(
        offset=offset, key=b"k", value=b"x" * size, timestamp=offset, headers=(("n", b"%d" % offset),),
        serialized_key_size=1, serialized_value_size=size,
    )  # fmt: skip


class MemorySource:
    """One partition: the records of `log`, from `start` to `end`, with `holes` for what the raw log shows there."""

    def __init__(self, log, *, start=0, spans=(), policy="delete"):
        self.log, self.start, self.policy = log, start, policy
        self.end = log[-1].offset + 1 if log else start
        self.raw = list(spans)
        self.group = {}
        self.at = {}
        self.passed_over = ()
        self.assigned = frozenset()

    async def open(self): ...

    async def close(self):
        self.assigned = frozenset()

    async def topics(self):
        return {TP.topic: 1, "__consumer_offsets": 1}

    async def cleanup_policies(self, names):
        return dict.fromkeys(names, self.policy)

    async def commits(self, partitions=None):
        return dict(self.group)

    async def bounds(self, partitions):
        return dict.fromkeys(partitions, self.start), dict.fromkeys(partitions, self.end)

    def assign(self, positions):
        self.at = dict(positions)
        self.assigned = frozenset(positions)

    async def poll(self, partitions, wait_ms, records_max):
        await asyncio.sleep(0)
        position = self.at[TP]
        if not self.start <= position <= self.end:
            raise OutOfRangeError({TP: position})
        found = [r for r in self.log if r.offset >= position and r.offset not in self.passed_over][:7]
        self.passed_over = ()
        if not found:
            await asyncio.sleep(0.001)
            return {}
        self.at[TP] = found[-1].offset + 1
        return {TP: found}

    async def position(self, partition):
        return self.at[partition]

    def silent_s(self):
        return 0.0

    def excuse_silence(self): ...

    def end_offset(self, partition):
        return self.end

    async def commit(self, commits, timeout_s):
        self.group.update(commits)

    async def spans(self, partition, first, end):
        held = [BatchSpan(r.offset, r.offset + 1, "data", (r.offset,)) for r in self.log]
        return sorted((s for s in [*self.raw, *held] if s.end_offset > first), key=lambda s: s.base_offset)


class MemoryTarget:
    """Delivers batches unless `fail` says otherwise; `refuse_bytes` is its largest batch."""

    def __init__(self, *, refuse_bytes=10**9, fail=lambda: None):
        self.got, self.written = [], []
        self.refuse_bytes, self.fail = refuse_bytes, fail
        self.configs = None

    async def open(self): ...

    async def close(self): ...

    async def ensure_topic(self, name, partitions, configs):
        self.configs = configs
        return False

    async def end_offset(self, partition):
        return len(self.got)

    def batch(self):
        return MemoryBatch()

    async def deliver(self, batch, topic, partition, timeout_s):
        await asyncio.sleep(0)
        assert (topic, partition) == ("lab.readings", 0)
        if sum(len(value) for _, _, value in batch.records) > self.refuse_bytes:
            raise RecordTooLargeError("too large")
        outcome = self.fail()
        base = len(self.got)
        if outcome != "lost":
            self.got += batch.records
        if outcome:
            raise TargetError(outcome)
        return base

    async def write(self, topic, key, value, timeout_s):
        if self.fail():
            raise TargetError("the ledger is away")
        self.written.append((topic, json.loads(value), len(self.got)))


class MemoryBatch:
    def __init__(self):
        self.records = []

    def append(self, *, timestamp, key, value, headers):
        self.records.append((timestamp, headers, value))
        return True


class Run:
    """Runs a replicator between the two until a condition holds, then stops it cleanly."""

    def __init__(self, source, target, ledger=None):
        self.metrics = Metrics()
        self.replicator = Replicator(CONFIG, self.metrics)
        self.source, self.target, self.ledger = source, target, ledger or MemoryTarget()
        self.replicator.source, self.replicator.target = source, target
        self.replicator._ledger = self.ledger

    async def until(self, condition):
        stop = asyncio.Event()
        running = asyncio.create_task(self.replicator.run(stop))
        async with asyncio.timeout(20):
            while not condition() and not running.done():  # noqa: ASYNC110 - what is waited for has no event
                await asyncio.sleep(0.002)
            stop.set()
            await running

    async def until_safe(self, offset):
        await self.until(lambda: self.acked >= offset)

    @property
    def acked(self):
        lane = self.replicator._lanes.get(TP)
        return lane.offsets.acked if lane else -1

    @property
    def offsets(self):
        return [timestamp for timestamp, _, _ in self.target.got]


async def test_a_missing_range_is_in_the_ledger_before_anything_behind_it_is_sent():
    source = MemorySource([record(o) for o in [*range(10), *range(15, 30)]])
    run = Run(source, MemoryTarget())
    await run.until_safe(30)
    assert run.offsets == [*range(10), *range(15, 30)]
    [(topic, entry, delivered_before)] = run.ledger.written
    assert topic == "__edge_ledger"
    assert (entry["cause"], entry["first_offset"], entry["last_offset"], entry["records"]) == (
        "source_offset_jump", 10, 14, 5,
    )  # fmt: skip
    assert delivered_before <= 10
    assert source.group[TP].offset == source.group[TP].sent_up_to == 30


async def test_while_the_ledger_is_away_nothing_behind_the_gap_is_sent():
    away = {"is": True}
    ledger = MemoryTarget(fail=lambda: "away" if away["is"] else None)
    run = Run(MemorySource([record(o) for o in [*range(10), *range(15, 30)]]), MemoryTarget(), ledger)

    def ten_then_back():
        if "ledger" in run.replicator._troubles and run.acked == 10:
            assert run.offsets == list(range(10))
            away["is"] = False
        return run.acked == 30

    await run.until(ten_then_back)
    assert not away["is"]
    assert len(ledger.written) == 1


async def test_markers_and_aborted_batches_are_no_loss():
    spans = [BatchSpan(10, 14, "aborted"), BatchSpan(14, 15, "control")]
    run = Run(MemorySource([record(o) for o in [*range(10), *range(15, 30)]], spans=spans), MemoryTarget())
    await run.until_safe(30)
    assert run.ledger.written == []
    assert run.offsets == [*range(10), *range(15, 30)]


async def test_holes_of_a_compacted_topic_are_no_loss_and_the_target_is_compacted_too():
    run = Run(MemorySource([record(o) for o in (3, 9, 27)], policy="compact,delete"), MemoryTarget())
    await run.until_safe(28)
    assert run.ledger.written == []
    assert run.target.configs == {"cleanup.policy": "compact,delete"}


async def test_a_hole_wider_than_the_window_does_not_hold_the_partition():
    far = 5 * CONFIG.window_records_max
    run = Run(MemorySource([record(o) for o in (0, far, far + 1)], policy="compact"), MemoryTarget())
    await run.until_safe(far + 2)
    assert run.offsets == [0, far, far + 1]
    assert run.ledger.written == []


async def test_records_that_the_client_passed_over_are_read_again():
    source = MemorySource([record(o) for o in range(30)])
    source.passed_over = (3, 4)
    run = Run(source, MemoryTarget())
    await run.until_safe(30)
    assert run.offsets == list(range(30))
    assert run.ledger.written == []


async def test_a_position_below_the_log_start_is_a_loss_and_reading_goes_on_there():
    source = MemorySource([record(o) for o in range(5)])
    await Run(source, MemoryTarget()).until_safe(5)
    source.log, source.start, source.end = [record(o) for o in range(20, 30)], 20, 30
    run = Run(source, MemoryTarget())
    await run.until_safe(30)
    assert run.offsets == list(range(20, 30))
    [(_, entry, _)] = run.ledger.written
    assert entry["id"] == "source_offset_out_of_range:readings:0:5-19"


async def test_a_source_that_lost_its_tail_is_read_again_from_its_start():
    source = MemorySource([record(o) for o in range(20)])
    target = MemoryTarget()
    await Run(source, target).until_safe(20)
    source.log, source.end = [record(o) for o in range(12)], 12
    run = Run(source, target)
    await run.until(lambda: len(target.got) == 32)
    assert run.offsets == [*range(20), *range(12)]
    [(_, entry, _)] = run.ledger.written
    assert (entry["first_offset"], entry["last_offset"]) == (12, 19)
    assert run.metrics.duplicates._value.get() == 12
    assert source.group[TP].offset == 12


async def test_a_record_that_the_target_refuses_for_its_size_is_in_the_ledger():
    log = [record(o, size=5000 if o == 11 else 10) for o in range(30)]
    run = Run(MemorySource(log), MemoryTarget(refuse_bytes=1000))
    await run.until_safe(30)
    assert run.offsets == [o for o in range(30) if o != 11]
    [(_, entry, _)] = run.ledger.written
    assert (entry["cause"], entry["first_offset"], entry["last_offset"], entry["records"]) == (
        "record_too_large", 11, 11, 1,
    )  # fmt: skip
    assert entry["bytes"] >= 5000


@pytest.mark.parametrize("seed", range(10))
async def test_any_run_of_failures_loses_nothing_keeps_order_and_counts_exactly(seed):
    chance = random.Random(seed)
    target = MemoryTarget(fail=lambda: chance.choice([None, None, "lost", "answer lost"]))
    run = Run(MemorySource([record(o) for o in range(200)]), target)
    await run.until_safe(200)
    assert list(dict.fromkeys(run.offsets)) == list(range(200))
    copies = len(run.offsets) - 200
    assert run.metrics.duplicates._value.get() == copies


async def test_a_source_that_fails_now_and_then_is_read_on():
    source = MemorySource([record(o) for o in range(200)])
    chance, poll = random.Random(1), source.poll

    async def flaky(*args):
        if chance.random() < 0.2:
            raise SourceError("away")
        return await poll(*args)

    source.poll = flaky
    run = Run(source, MemoryTarget())
    await run.until_safe(200)
    assert run.offsets == list(range(200))


async def test_keys_headers_and_timestamps_are_kept():
    run = Run(MemorySource([record(o) for o in range(3)]), MemoryTarget())
    await run.until_safe(3)
    assert run.target.got == [(o, [("n", b"%d" % o)], b"x" * 10) for o in range(3)]
