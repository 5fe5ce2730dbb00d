"""The replicator between two ends in memory: gaps, refusals and failures that real brokers do not show on demand."""

from __future__ import annotations

import asyncio
import json
import random
from dataclasses import replace
from functools import partial

import pytest

from edge_broker.errors import ErrorCode
from edge_broker.protocol.crc import crc32c
from edge_broker.protocol.record_batch import CONTROL, TRANSACTIONAL, BatchHeader, build_batch, records_of
from kafka_wire.cluster import Leader
from kafka_wire.connection.errors import ConnectionLost
from mirror.client.clients import Clients, clients_of
from mirror.config import Config
from mirror.errors import PositionsError, SourceError, TargetError, TopicRefusedError
from mirror.partition.source_offsets import Commit, read_commit
from mirror.producer import batch_packer, delivery_resolver, sender
from mirror.producer.batching import pack_all
from mirror.producer.failures import batch_isolation
from mirror.producer.failures.retry_window import YOUNG_S
from mirror.replication import backoffs
from mirror.replication.replicator import Replicator
from mirror.status.metrics import Metrics
from mirror.topics.overrides import rules_from
from tests.support.waiting import CALL_S
from tests.unit.mirror.ends import FENCED, TP, AlwaysWrites, MemoryFencing, MemorySource, MemoryTarget, record

CONFIG = Config(
    source="s:1", target="t:2", topics="readings", site="lab", backoff_max_ms=2, commit_interval_ms=5,
    refresh_interval_ms=5, ledger=False, compression="none",
)  # fmt: skip


@pytest.fixture(autouse=True)
def records_are_new(monkeypatch):
    """Though their timestamps are their offsets; and waits between attempts are short."""
    monkeypatch.setattr(delivery_resolver, "RESEND_S", 0.002)
    monkeypatch.setattr(backoffs, "BACKOFF_FIRST_S", 0.002)
    monkeypatch.setattr(sender, "REMEMBERED_S", 10**10)
    monkeypatch.setattr(batch_isolation, "PAUSE_S_FIRST", 0.002)
    monkeypatch.setattr(batch_isolation, "PAUSE_S_MAX", 0.01)


class Run:
    """Runs a replicator between the two until a condition holds, then stops it cleanly."""

    def __init__(self, source, target, ledger=None, config=CONFIG):
        self.metrics = Metrics()
        self.source, self.target, self.ledger = source, target, ledger or MemoryTarget()
        clients = Clients(source, target, self.ledger, AlwaysWrites(), "mirror@here")
        self.replicator = Replicator(config, self.metrics, lambda _role_changed: clients)

    async def until(self, condition):
        stop = asyncio.Event()
        running = asyncio.create_task(self.replicator.run(stop))
        async with asyncio.timeout(CALL_S):
            while not condition() and not running.done():  # noqa: ASYNC110 - what is waited for has no event
                await asyncio.sleep(0.002)
            stop.set()
            await running

    async def until_safe(self, offset):
        await self.until(lambda: self.acked >= offset)

    @property
    def acked(self):
        lane = self.replicator.registry.streams.get(TP)
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
        if "ledger" in run.replicator.problems and run.acked == 10:
            assert run.offsets == list(range(10))
            away["is"] = False
        return run.acked == 30

    await run.until(ten_then_back)
    assert not away["is"]
    assert len(ledger.written) == 1


def of_transaction(batch, attributes=0):
    made = bytearray(batch)
    made[21:23] = (TRANSACTIONAL | attributes).to_bytes(2, "big")
    made[43:51] = (9).to_bytes(8, "big")
    made[17:21] = crc32c(made[21:]).to_bytes(4, "big")
    return bytes(made)


async def test_markers_and_aborted_batches_are_no_loss():
    data = of_transaction(build_batch([(None, b"aborted")] * 4, timestamp_ms=5, base_offset=10))
    marker = of_transaction(build_batch([(b"\0\0\0\0", b"")], timestamp_ms=5, base_offset=14), CONTROL)
    log = [record(o) for o in [*range(10), *range(15, 30)]]
    run = Run(MemorySource(log, raw=[data, marker], aborted=[(9, 10)]), MemoryTarget())
    await run.until_safe(30)
    assert run.ledger.written == []
    assert run.offsets == [*range(10), *range(15, 30)]


async def test_corrupt_ranges_of_a_compacted_topic_are_no_loss_and_the_target_is_compacted_too():
    run = Run(MemorySource([record(o) for o in (3, 9, 27)], policy="compact,delete"), MemoryTarget())
    await run.until_safe(28)
    assert run.ledger.written == []
    assert run.target.configs == {"cleanup.policy": "compact,delete"}


class Altered(MemorySource):
    """Its cleanup.policy is the next of some each time that it is asked for; it is read once the first is old."""

    def __init__(self, policies, log):
        super().__init__(log)
        self.policies, self.rests = list(policies), 10

    async def settings(self, names):
        self.policy = self.policies.pop(0) if len(self.policies) > 1 else self.policies[0]
        return await super().settings(names)

    async def poll(self, wanted, room_bytes, wait_s, woken):
        if self.rests:
            self.rests -= 1
            await asyncio.sleep(0.001)
            return []
        return await super().poll(wanted, room_bytes, wait_s, woken)


SOON = replace(CONFIG, refresh_interval_ms=1)


async def test_a_gap_of_a_topic_that_compacts_by_now_is_no_loss():
    source = Altered(["delete", "compact"], [record(o) for o in [*range(10), *range(15, 30)]])
    run = Run(source, MemoryTarget(), config=SOON)
    await run.until_safe(30)
    assert run.ledger.written == []


async def test_a_topic_that_compacts_no_more_has_gaps_of_then_and_losses_of_now():
    source = Altered(["compact", "delete"], [record(o) for o in [*range(10), *range(15, 20), *range(25, 30)]])
    run = Run(source, MemoryTarget(), config=SOON)

    def more_behind_a_gap():
        if run.acked == 30 == source.end:
            source.log += [record(o) for o in range(40, 45)]
            source.end = 45
        return run.acked == 45

    await run.until(more_behind_a_gap)
    lost = [(entry["first_offset"], entry["last_offset"]) for _, entry, _ in run.ledger.written]
    assert lost == [(30, 39)]


async def test_a_position_that_does_not_move_is_committed_again_before_it_expires():
    source = MemorySource([record(o) for o in range(10)])
    run = Run(source, MemoryTarget(), config=replace(CONFIG, commit_again_ms=20))
    await run.until(lambda: run.acked == 10 and source.said[-3:] == [source.group.get(TP)] * 3)
    assert source.group[TP].offset == 10


async def test_a_position_that_does_not_move_is_not_committed_all_the_time():
    source = MemorySource([record(o) for o in range(10)])
    run = Run(source, MemoryTarget())
    await run.until_safe(10)
    run = Run(source, MemoryTarget())
    polls = len(source.said) + 4
    await run.until(lambda: source.polls > polls * 20)
    assert len(source.said) < polls


async def test_what_has_nowhere_to_go_is_not_read():
    target = MemoryTarget()
    target.refused = TopicRefusedError("topic lab.readings cannot grow to 4 partitions: not authorized")
    run = Run(MemorySource([record(o) for o in range(10)]), target)
    await run.until(lambda: "readings-0" in run.replicator.problems and run.source.topics_asked > 3)
    assert run.replicator.memory.bytes == 0
    target.refused = None
    run = Run(run.source, target)
    await run.until_safe(10)
    assert run.offsets == list(range(10))


async def test_a_corrupt_range_wider_than_the_window_does_not_hold_the_partition():
    far = 50_000
    run = Run(MemorySource([record(o) for o in (0, far, far + 1)], policy="compact"), MemoryTarget())
    await run.until_safe(far + 2)
    assert run.offsets == [0, far, far + 1]
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


DEAD_LETTER = replace(CONFIG, rules=rules_from({"read.*": {"on_refused": "dead_letter"}}))


async def test_a_record_that_the_target_refuses_is_put_aside_with_why_and_in_the_ledger():
    log = [record(o, size=5000 if o == 11 else 10) for o in range(30)]
    run = Run(MemorySource(log), MemoryTarget(refuse_bytes=1000), config=DEAD_LETTER)
    await run.until_safe(30)
    assert run.offsets == [o for o in range(30) if o != 11]
    [(_, entry, _)] = run.ledger.written
    assert (entry["cause"], entry["first_offset"], entry["last_offset"], entry["records"]) == (
        "record_refused", 11, 11, 1,
    )  # fmt: skip
    assert entry["bytes"] >= 5000
    [(topic, [aside])] = run.ledger.put_aside
    assert topic == "__edge_dead_letter"
    assert (aside.key, aside.value, aside.timestamp) == (b"k", b"x" * 5000, 11)
    assert dict(aside.headers) == {
        "n": b"11", "dead_letter.topic": b"readings", "dead_letter.partition": b"0", "dead_letter.offset": b"11",
        "dead_letter.reason": b"MESSAGE_TOO_LARGE", "dead_letter.detail": b"",
    }  # fmt: skip


class Particular(MemoryTarget):
    """Refuses whatever batch has one of these records."""

    def __init__(self, *unwanted):
        super().__init__()
        self.unwanted = unwanted

    def append(self, data):
        if any(one.timestamp in self.unwanted for one in records_of(data)):
            return ErrorCode.INVALID_RECORD, -1
        return super().append(data)


async def test_records_that_are_refused_for_what_they_are_are_put_aside_alone():
    run = Run(MemorySource([record(o) for o in range(50)]), Particular(0, 20, 21, 49), config=DEAD_LETTER)
    await run.until_safe(50)
    assert run.offsets == [o for o in range(50) if o not in (0, 20, 21, 49)]
    assert [entry["first_offset"] for _, entry, _ in run.ledger.written] == [0, 20, 21, 49]
    assert [aside.timestamp for _, [aside] in run.ledger.put_aside] == [0, 20, 21, 49]


async def test_a_refused_record_stops_its_partition_unless_it_is_said_otherwise_and_nothing_is_lost():
    target = Particular(20)
    run = Run(MemorySource([record(o) for o in range(50)]), target)

    def refused_and_then_taken():
        if "readings-0" in run.replicator.problems and run.acked == 20:
            said.append(run.replicator.trouble())
            target.unwanted = ()
        return run.acked == 50

    said = []
    await run.until(refused_and_then_taken)
    assert "the target refuses the record at offset 20, of " in said[0]
    assert 'INVALID_RECORD; it waits: have the target take it, or set on_refused = "dead_letter"' in said[0]
    assert run.offsets == list(range(50))
    assert run.ledger.written == run.ledger.put_aside == []
    assert run.replicator.period.sender.target is target
    assert run.replicator.registry.streams[TP].batch_bytes_max == CONFIG.batch_bytes_max


@pytest.mark.parametrize(("metered", "level"), [(True, 19), (False, 9)])
async def test_a_link_whose_bytes_cost_money_is_packed_for_as_one(metered, level, monkeypatch):
    levels = []
    monkeypatch.setattr(batch_packer, "pack_all", lambda jobs, at: levels.append(at) or pack_all(jobs, at))
    run = Run(MemorySource([record(0)]), MemoryTarget(), config=replace(CONFIG, metered=metered))
    await run.until_safe(1)
    assert levels == [level]


YOUNG_MS = int(YOUNG_S * 1000)
CHANCES = [None] * 4 + ["lost", "answer lost", int(ErrorCode.NOT_LEADER_OR_FOLLOWER), int(ErrorCode.REQUEST_TIMED_OUT)]


@pytest.mark.parametrize("clock_ms", [None, 200])
@pytest.mark.parametrize("seed", range(20))
async def test_any_run_of_failures_loses_nothing_keeps_order_and_doubles_nothing(seed, clock_ms):
    chance = random.Random(seed)
    target = MemoryTarget(fail=lambda: chance.choice(CHANCES))
    target.clock_ms = clock_ms
    run = Run(MemorySource([record(o) for o in range(200)]), target)
    await run.until_safe(200)
    assert run.offsets == list(range(200))
    assert run.metrics.duplicates._value.get() == 0
    assert run.ledger.written == []


@pytest.mark.parametrize(
    ("clock_ms", "outcomes", "lives"),
    [
        (40, ["answer lost"], 1),
        (40, ["lost"], 1),
        (40, ["answer lost", "answer lost", "lost"], 1),
        (40, [*["lost", "answer lost"] * 4, "lost"], 1),
        (40, [int(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)], 1),
        (40, [int(ErrorCode.REQUEST_TIMED_OUT)] * 3, 1),
        (40, ["answer lost", int(ErrorCode.NOT_ENOUGH_REPLICAS), "lost"], 1),
        (None, [int(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)], 2),
        (40, ["answer lost", int(ErrorCode.NOT_LEADER_OR_FOLLOWER)], 2),
        (40, ["answer lost", int(ErrorCode.MESSAGE_TOO_LARGE)], 2),
        (None, ["answer lost"], 2),
        (YOUNG_MS + 40, ["answer lost"], 2),
    ],
)
async def test_what_the_target_surely_knows_again_is_sent_again_as_it_is(clock_ms, outcomes, lives):
    """All else is looked for, under another epoch, and nothing is taken apart that may be there."""
    left = list(outcomes)
    target = MemoryTarget(fail=lambda: left.pop(0) if left and target.requests > 1 else None)
    target.clock_ms = clock_ms
    target.is_answering = False  # the link breaks: where its connection alone does, see test_suspects.py
    rules = rules_from({"readings": {"on_refused": "dead_letter"}})
    source = MemorySource([record(o) for o in range(40)])
    run = Run(source, target, config=replace(CONFIG, batch_bytes_max=1, rules=rules))
    await run.until_safe(40)
    assert left == []
    assert run.offsets == list(range(40))
    assert target.epoch == lives - 1
    assert run.ledger.put_aside == []


async def test_what_has_waited_to_be_sent_again_until_it_is_old_is_looked_for(monkeypatch):
    target = MemoryTarget()
    left, away = ["answer lost"], []
    monkeypatch.setattr(delivery_resolver, "YOUNG_S", 0.01)

    def fail():
        return left.pop() if left and target.requests > 1 else None

    connection = target.connection

    async def away_until_it_is_old(node, number=0):
        if not left and target.clock_ms == 40:
            away.append(node)
            if len(away) > 3:
                target.clock_ms = YOUNG_MS + 40
            raise ConnectionLost("nobody answers")
        return await connection(node, number)

    target.fail, target.clock_ms, target.connection = fail, 40, away_until_it_is_old
    run = Run(MemorySource([record(o) for o in range(40)]), target, config=replace(CONFIG, batch_bytes_max=600))
    await run.until_safe(40)
    assert run.offsets == list(range(40))
    assert target.epoch == 1


@pytest.mark.parametrize("is_old", [True, False])
@pytest.mark.parametrize("seed", range(8))
async def test_a_target_that_forgets_its_producers_loses_nothing_either(seed, is_old, monkeypatch):
    """Of old records, where Kafka does so, nothing is doubled; where one does so that should not, that is counted."""
    if is_old:
        monkeypatch.setattr(sender, "REMEMBERED_S", 0)
    chance = random.Random(seed)
    target = MemoryTarget(fail=lambda: chance.choice([*CHANCES, int(ErrorCode.NOT_ENOUGH_REPLICAS)]))
    target.forgetful = True
    target.pause_s = 0.001
    run = Run(MemorySource([record(o) for o in range(200)]), target, config=replace(CONFIG, batch_bytes_max=1024))
    await run.until_safe(200)
    assert set(run.offsets) == set(range(200))
    assert len(run.offsets) - 200 <= run.metrics.duplicates._value.get()
    assert not is_old or run.offsets == list(range(200))


def times_of(batch):
    return [one.timestamp for one in records_of(batch)]


NOW_MS = 1_790_000_000_000


class Expiring(MemoryTarget):
    """One that looks at once whom it has to forget, by the age of what it has last of a producer, as Kafka does.

    It refuses the first batch that has the record `refused`, once.
    """

    def __init__(self, refused):
        super().__init__()
        self.refuses, self.is_old, self.pause_s = refused, False, 0.001

    def marker(self):
        super().marker()
        self.is_old = False

    def append(self, data):
        if self.is_old:
            self.remembered.clear()
        if self.refuses in times_of(data):
            self.refuses = None
            return ErrorCode.NOT_ENOUGH_REPLICAS, -1
        code, base = super().append(data)
        if not code:
            self.is_old = BatchHeader(data).max_timestamp < NOW_MS - 86_400_000
        return code, base


@pytest.mark.parametrize("fences", [True, False])
async def test_behind_an_old_record_one_batch_is_under_way_as_the_producer_may_be_forgotten(fences, monkeypatch):
    monkeypatch.setattr(sender, "REMEMBERED_S", 43_200)
    for module in (sender, delivery_resolver):
        monkeypatch.setattr(module, "wall_ms", lambda: NOW_MS)
    source, target = MemorySource([record(o) for o in range(20)]), Expiring(NOW_MS + 20)
    target.fences = fences
    run = Run(source, target, config=replace(CONFIG, batch_bytes_max=300))

    def new_ones_come():
        if run.acked == source.end == 20:
            source.log += [record(o) for o in range(20, 80)]
            for one in source.log[20:]:
                one.timestamp += NOW_MS
            source.end = 80
        return run.acked == 80

    await run.until(new_ones_come)
    assert run.offsets == [*range(20), *range(NOW_MS + 20, NOW_MS + 80)]
    assert target.refuses is None
    assert target.under_way_most > 1


async def test_what_was_refused_is_sent_again_under_another_epoch_where_what_was_behind_it_was_taken():
    """Else, by sequences that go on, what is taken behind it at the second time would prove that it has arrived.

    The target forgets the producer against Kafka's rules and refuses a batch twice. At first it takes the next one
    alone; then the answers are lost, and what was on the way behind it arrives.
    """
    source, target = MemorySource([record(o) for o in range(80)]), MemoryTarget()
    target.fences, target.pause_s, refused = False, 0.001, []
    append = target.append

    def on_the_way():
        return [bytes(data) for topics, _ in target.open._waiting for _, parts in topics for _, data in parts]

    def take(data):
        if 40 in times_of(data) and len(refused) < 2:
            refused.append(data)
            if len(refused) == 1:
                target.remembered.clear()
            else:
                for later in on_the_way()[1:]:
                    append(later)
            return ErrorCode.NOT_ENOUGH_REPLICAS, -1
        if len(refused) == 1 and len(target.log) > min(times_of(refused[0])):
            return ErrorCode.NOT_ENOUGH_REPLICAS, -1
        return append(data)

    def fail():
        waiting = on_the_way() if target.open and not target.open.is_closed else []
        return "answer lost" if len(refused) == 1 and waiting and 40 in times_of(waiting[0]) else None

    target.append, target.fail = take, fail
    run = Run(source, target, config=replace(CONFIG, batch_bytes_max=300))
    await run.until_safe(80)
    assert len(refused) == 2
    assert set(run.offsets) == set(range(80))


async def test_a_state_that_another_mirror_has_written_meanwhile_is_not_overwritten(caplog):
    """It took over while a write of ours was lost: fencing the state topic anew does not make ours the newer one."""
    source, target = MemorySource([]), MemoryTarget()
    heads = []

    class Topic(dict):
        def __setitem__(self, key, value):
            super().__setitem__(key, value)
            if key.startswith(b"head"):
                heads.append(json.loads(value)["producer_epoch"])
                source.log, source.end = [record(o) for o in range(40)], 40  # else the head would wait for a batch

    target.state = Topic()

    def another_takes_over():
        if target.state_writes == 2 and len(heads) == 1:
            target.epoch += 1
            target.marker()
            ((key, value),) = [one for one in target.state.items() if one[0].startswith(b"head")]
            target.state[key] = json.dumps(json.loads(value) | {"producer_epoch": target.epoch}).encode()
            return "lost"
        return None

    target.fail = another_takes_over
    run = Run(source, target)
    await run.until_safe(40)
    assert heads == sorted(heads)
    assert "mirror_fenced" in caplog.text
    assert run.offsets == list(range(40))


class Killed(Run):
    """One that is ended in the middle, as a process that is killed; what it has under way may arrive late.

    Without a fence that is not refused, so nothing of it is left there.
    """

    async def until(self, condition):
        running = asyncio.create_task(self.replicator.run(asyncio.Event()))
        async with asyncio.timeout(CALL_S):
            while not condition() and not running.done():  # noqa: ASYNC110 - what is waited for has no event
                await asyncio.sleep(0)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        if not self.target.fences:
            await self.replicator.period.sender.close()


@pytest.fixture
async def killed():
    """Make runs that are killed; what they left in flight ends with the test."""
    runs = []

    def one(*arguments, **options):
        runs.append(Killed(*arguments, **options))
        return runs[-1]

    yield one
    for run in runs:
        await run.replicator.period.sender.close()


@pytest.mark.parametrize("fences", [True, False])
@pytest.mark.parametrize("seed", range(10))
async def test_kills_and_failures_in_any_order_lose_nothing_and_double_nothing(killed, seed, fences):
    chance = random.Random(seed)
    target = MemoryTarget(fail=lambda: chance.choice(CHANCES))
    target.fences = fences
    gaps = sorted(chance.sample(range(400), 60))
    source = MemorySource([record(o) for o in range(400) if o not in gaps], policy="compact", epochs=[(0, 1), (170, 2)])
    config = replace(CONFIG, batch_bytes_max=600)
    for _ in range(6):
        run = killed(source, target, config=config)
        far = min(len(target.log) + chance.randrange(60), 339)  # of 340: it may have sent all before it is killed
        await run.until(lambda at=far: len(target.log) > at)
        if chance.random() < 0.3:
            source.group.clear()
    run = Run(source, target, config=config)
    await run.until_safe(source.end)
    assert run.offsets == [o for o in range(400) if o not in gaps]
    assert run.ledger.written == []


async def test_a_record_that_others_write_in_between_is_in_the_map():
    source, target = MemorySource([record(o) for o in range(40)]), MemoryTarget()
    await mirrored(source, target, 40)
    target.got = [*target.log, (7, [], b"of another")]
    source.log += [record(o) for o in range(40, 60)]
    source.end = 60
    run = Run(source, target)
    await run.until_safe(60)
    known = run.replicator.registry.streams[TP].state.map
    assert [at for at, one in enumerate(target.log) if one is not None and one[0] == 45] == [known.to_target(45).offset]


async def test_what_the_target_lost_is_sent_again(caplog):
    source, target = MemorySource([record(o) for o in range(40)]), MemoryTarget()
    await Run(source, target, config=replace(CONFIG, batch_bytes_max=300)).until_safe(40)
    del target.log[21:]
    target.bases = {base: batch for base, batch in target.bases.items() if BatchHeader(batch).next_offset <= 21}
    del target.log[max(BatchHeader(batch).next_offset for batch in target.bases.values()) :]
    run = Run(source, target)
    await run.until(lambda: len(target.got) == 40 and run.acked == 40)  # the group has told 40 before
    assert run.offsets == list(range(40))
    assert run.metrics.target_lost._value.get() > 0


@pytest.mark.parametrize("fences", [True, False])
async def test_what_the_target_lost_is_sent_again_though_it_takes_what_comes_next(fences):
    """Its log was cut, with all that it knew of the producer, and another has written where the end was lost."""
    source, target = MemorySource([record(o) for o in range(40)]), MemoryTarget()
    target.fences = fences
    run = Run(source, target, config=replace(CONFIG, batch_bytes_max=300))

    def the_end_is_lost():
        if run.acked == source.end == 40:
            base = sorted(target.bases)[5]
            target.log[base:] = [(7, [], b"of another")]
            target.bases = {at: batch for at, batch in target.bases.items() if at < base}
            target.remembered.clear()
            source.log += [record(o) for o in range(40, 60)]
            source.end = 60
        return run.acked == 60

    await run.until(the_end_is_lost)
    last = {offset: at for at, offset in enumerate(run.offsets) if offset != 7 or at < 10}
    assert sorted(last, key=last.__getitem__) == list(range(60))
    lost, doubled = run.metrics.target_lost._value.get(), run.metrics.duplicates._value.get()
    assert lost > 0
    assert len(run.offsets) <= 60 + 1 + doubled


async def test_a_topic_of_the_target_that_is_deleted_while_nobody_knows_what_arrived_is_made_anew():
    source, target = MemorySource([record(o) for o in range(40)]), MemoryTarget()
    run, deleted, made = Run(source, target), [], []
    ensure, leader = target.ensure_topic, target.leader

    async def ensure_topic(*asked):
        if deleted and not made:
            made.append(True)
            target.topic_ids = "another"
        await ensure(*asked)

    async def leader_of(partition):
        if deleted and not made:
            raise TargetError("lab.readings-0 has no leader")
        return await leader(partition)

    def fail():
        if target.requests == 1 and not deleted:
            deleted.append(True)
            target.log, target.bases, target.remembered = [], {}, {}
            return "lost"
        return None

    target.ensure_topic, target.leader, target.fail = ensure_topic, leader_of, fail
    await run.until(lambda: len(target.got) == 40 and run.acked == 40)
    assert run.offsets == list(range(40))
    assert made


async def test_a_partition_that_has_nothing_to_send_any_more_is_in_no_trouble():
    """Its records arrived, the answers did not: no later answer can tell that it is well again."""
    source, target = MemorySource([record(o) for o in range(40)]), MemoryTarget()
    run, asked, refused, look = Run(source, target), set(), [], target.look_up

    async def refused_at_first(wanted, steps_max):
        if len(target.got) == 40 and len(refused) < 3:
            refused.append("FENCED_LEADER_EPOCH")
            return dict.fromkeys(wanted, refused[-1])
        return await look(wanted, steps_max)

    def fail():
        if target.requests in asked:
            return None  # not one of Produce
        asked.add(target.requests)
        return "answer lost"

    target.look_up, target.fail = refused_at_first, fail
    await run.until(lambda: len(refused) == 3 and run.acked == 40 and not run.replicator.trouble())
    assert run.offsets == list(range(40))


async def test_a_topic_that_can_have_no_name_at_the_target_is_no_trouble_once_it_is_gone():
    source, target = MemorySource([record(o) for o in range(40)]), MemoryTarget()
    run, topics, long, told = Run(source, target, config=replace(CONFIG, topics=".*")), source.topics, "x" * 249, []

    async def with_another(names=None):
        found = await topics(names)
        return found if told else {**found, long: found[TP.topic]}

    def gone():
        if long in run.replicator.trouble() and run.acked == 40:
            told.append(run.replicator.trouble())
        return told and not run.replicator.trouble()

    source.topics = with_another
    await run.until(gone)


async def test_a_transactional_id_that_could_not_be_kept_known_is_no_trouble_once_it_is(monkeypatch):
    monkeypatch.setattr("mirror.session.producer_sessions.LOOK_S", 0.01)
    monkeypatch.setattr("mirror.session.producer_sessions.RENEW_S", 0.0)
    source, target = MemorySource([record(o) for o in range(40)]), MemoryTarget()
    run, extend, told = Run(source, target), MemoryFencing.extend, []

    async def fails_at_first(fencing, partitions):
        if not told:
            raise ConnectionLost("the coordinator's connection was lost")
        return await extend(fencing, partitions)

    def well_again():
        if "coordinator" in run.replicator.trouble() and run.acked == 40:
            told.append(run.replicator.trouble())
        return told and not run.replicator.trouble()

    monkeypatch.setattr(MemoryFencing, "extend", fails_at_first)
    await run.until(well_again)


async def test_what_was_deleted_before_it_was_mirrored_is_in_the_ledger_where_the_target_was_made_anew_too(killed):
    source, target = MemorySource([record(o) for o in range(40)]), MemoryTarget()
    target.fail = lambda: "lost" if target.requests else None
    await killed(source, target).until(lambda: target.requests > 0)
    assert target.got == []
    source.group.clear()
    source.log, source.start = source.log[30:], 30
    target.fail, target.topic_ids = lambda: None, "another"
    run = Run(source, target)
    await run.until(lambda: len(target.got) == 10 and run.acked == 40)
    ((_, entry, _),) = run.ledger.written
    assert (entry["first_offset"], entry["last_offset"]) == (0, 29)


async def test_a_gap_that_is_written_down_while_a_life_begins_elsewhere_moves_nothing():
    source = MemorySource([record(o) for o in [*range(10), *range(20, 30)]], epochs=[(0, 1)])
    target = MemoryTarget()
    away, asked, begun = [], [], []

    def ledger_is_away():
        away.append(True)
        return not begun

    run = Run(source, target, MemoryTarget(fail=ledger_is_away))

    def a_life_begins_elsewhere():
        lane = run.replicator.registry.streams.get(TP)
        if run.acked == 10 and away and not asked:
            asked.append(lane.offsets)
            run.replicator.period.sender.begin_anew(lane)
        elif asked and lane.offsets is not asked[0]:
            begun.append(True)
        return run.acked == 30

    await run.until(a_life_begins_elsewhere)
    assert run.offsets == [*range(10), *range(10), *range(20, 30)]


async def test_a_topic_of_the_target_made_anew_gets_all_again():
    source, target = MemorySource([record(o) for o in range(40)]), MemoryTarget()
    await mirrored(source, target, 40)
    target.log, target.bases, target.remembered, target.topic_ids = [], {}, {}, "another"
    run = Run(source, target)
    await run.until(lambda: len(target.got) == 40 and run.acked == 40)  # the group has told 40 before
    assert run.offsets == list(range(40))


async def test_a_position_that_somebody_has_set_by_hand_is_gone_by(caplog):
    source, target = MemorySource([record(o) for o in range(40)]), MemoryTarget()
    await mirrored(source, target, 40)
    source.group[TP] = read_commit(30, "")
    run = Run(source, target)
    await run.until(lambda: len(target.got) == 50 and run.acked == 40)
    assert run.offsets == [*range(40), *range(30, 40)]
    assert "position_set_by_hand" in caplog.text


@pytest.mark.parametrize(("there", "times"), [(5, 1), (12, 1), (7, 2)])
async def test_what_a_version_without_a_state_has_sent_is_not_sent_again(there, times):
    """It was killed with a position of 20, twice where it was begun twice, each time behind some records more."""
    source, target = MemorySource([record(o) for o in range(40)]), MemoryTarget()
    target.got = [(o, [("n", b"%d" % o)], b"x" * 10) for o in range(20)]
    for _ in range(times):
        target.got = [*target.log, *((o, [("n", b"%d" % o)], b"x" * 10) for o in range(20, 20 + there))]
    source.group[TP] = Commit(20, 35, 20, times)
    run = Run(source, target)
    await run.until_safe(40)
    assert run.offsets == [*range(20), *(list(range(20, 20 + there)) * times), *range(20 + there, 40)]


async def test_a_mirror_that_has_lost_its_state_goes_on_by_the_group_and_what_the_target_has():
    source, target = MemorySource([record(o) for o in range(40)]), MemoryTarget()
    await mirrored(source, target, 40)
    target.state.clear()
    source.group[TP] = Commit(20, 20, 21, 1)
    run = Run(source, target)
    streams = run.replicator.registry.streams
    await run.until(lambda: TP in streams and streams[TP].has_session)
    assert run.offsets == list(range(40))


async def test_another_mirror_that_takes_over_is_let_write(caplog):
    source, target = MemorySource([record(o) for o in range(200)]), MemoryTarget()
    run = Run(source, target)
    taken = []

    def take_over():
        if run.acked > 10 and not taken:
            target.epoch += 1
            target.marker()
            taken.append(run.replicator.period._tasks)
            source.log += [record(o) for o in range(200, 260)]
            source.end = 260
        return "mirror_fenced" in caplog.text

    await run.until(take_over)
    assert run.offsets == list(range(len(run.offsets)))


async def test_several_batches_are_under_way_and_never_more_than_a_broker_remembers():
    target = MemoryTarget()
    target.pause_s = 0.005
    source = MemorySource([record(o, size=2000) for o in range(300)])
    run = Run(source, target, config=replace(CONFIG, batch_bytes_max=4096))
    await run.until_safe(300)
    assert run.offsets == list(range(300))
    assert 1 < target.under_way_most <= 5


async def test_a_broker_that_leads_nothing_any_more_is_no_trouble_for_ever():
    target, leaders = MemoryTarget(), [2]
    connect = target.connection

    async def leader(partition):
        return Leader(leaders[-1], 0)

    async def connection(node, number=0):
        if node == 2:
            await asyncio.sleep(0.001)
            raise ConnectionLost("broker 2 is down")
        return await connect(node, number)

    target.leader, target.connection = leader, connection
    run = Run(MemorySource([record(o) for o in range(10)]), target)
    seen = set()

    def moved():
        seen.add(run.replicator.trouble())
        if any("target broker 2: broker 2 is down" in text for text in seen):
            leaders.append(1)
        return run.acked == 10 and run.replicator.trouble() == ""

    await run.until(moved)
    assert run.offsets == list(range(10))
    assert leaders[-1] == 1


async def test_a_target_that_gives_no_producer_id_yet_is_asked_again_and_well_then():
    target, loading = MemoryTarget(), [True] * 3
    target.fences = False
    give = target.producer

    async def producer():
        if loading and loading.pop():
            raise TargetError("no producer id is given: COORDINATOR_LOAD_IN_PROGRESS")
        return await give()

    target.producer = producer
    run = Run(MemorySource([record(o) for o in range(10)]), target)
    await run.until_safe(10)
    assert run.offsets == list(range(10))
    assert run.replicator.trouble() == ""


async def test_a_producer_that_the_target_does_not_know_any_more_is_replaced():
    target = MemoryTarget()
    source = MemorySource([record(o) for o in range(60)])
    run, spoilt, append = Run(source, target, config=replace(CONFIG, batch_bytes_max=200)), [], target.append

    def forget_once(data):
        if len(target.got) >= 30 and not spoilt:
            spoilt.append(target.remembered[FENCED].epoch)
            target.remembered[FENCED].next_sequence = 700  # so that this batch is out of order
        return append(data)

    target.append = forget_once
    await run.until_safe(60)
    assert run.offsets == list(range(60))
    assert target.remembered[FENCED].epoch == spoilt[0] + 1


async def test_a_batch_that_lies_holds_its_partition_and_is_said():
    good = [record(o) for o in range(10)]
    bad = bytearray(build_batch([(None, b"x")], timestamp_ms=5, base_offset=10))
    bad[-1] ^= 1
    source = MemorySource(good, raw=[bytes(bad)])
    source.end = 11
    run = Run(source, MemoryTarget())
    await run.until(lambda: run.acked == 10 and "CRC" in run.replicator.trouble())
    assert run.ledger.written == []


async def test_a_source_that_fails_now_and_then_is_read_on():
    source = MemorySource([record(o) for o in range(200)])
    chance, poll = random.Random(1), source.poll

    async def flaky(*args):
        answers = await poll(*args)
        if chance.random() < 0.1:
            raise SourceError("away")
        return [one._replace(failed="away") if chance.random() < 0.1 else one for one in answers]

    source.poll = flaky
    run = Run(source, MemoryTarget())
    await run.until_safe(200)
    assert run.offsets == list(range(200))


@pytest.mark.parametrize(("fails", "said"), [(0, []), (1, ["trouble", "well_again"])])
async def test_it_is_well_again_only_after_it_was_ill(caplog, fails, said):
    source = MemorySource([record(o) for o in range(4)])
    topics, left = source.topics, [SourceError("away")] * fails

    async def fail_first():
        if left:
            raise left.pop()
        return await topics()

    source.topics = fail_first
    with caplog.at_level("INFO"):
        await Run(source, MemoryTarget()).until_safe(4)
    assert [one.msg for one in caplog.records if one.msg in ("trouble", "well_again")] == said


async def test_keys_headers_and_timestamps_are_kept():
    run = Run(MemorySource([record(o) for o in range(3)]), MemoryTarget())
    await run.until_safe(3)
    assert run.target.got == [(o, [("n", b"%d" % o)], b"x" * 10) for o in range(3)]


async def mirrored(source, target, offset):
    """Mirror up to an offset and stop cleanly."""
    await Run(source, target).until_safe(offset)


def values(target):
    return [value for _, _, value in target.got]


def other(offset):
    """A record that took an offset anew."""
    return record(offset, size=11)


async def test_what_took_the_offsets_of_lost_records_arrives_and_the_ledger_tells():
    source = MemorySource([record(o) for o in range(1000)], epochs=[(0, 4)], topic_id="a")
    target = MemoryTarget()
    await mirrored(source, target, 1000)
    assert (source.group[TP].topic_id, source.group[TP].epoch) == ("a", (0, 4))
    source.cut(900, [other(o) for o in range(900, 1100)])
    run = Run(source, target)
    await run.until_safe(1100)
    assert run.offsets == [*range(1000), *range(900, 1100)]
    assert values(target)[1000:] == [b"x" * 11] * 200
    [(_, entry, _)] = run.ledger.written
    assert (entry["cause"], entry["first_offset"], entry["last_offset"], entry["records"]) == (
        "source_truncated", 900, 999, 100,
    )  # fmt: skip
    assert run.metrics.duplicates._value.get() == 0
    assert source.group[TP].epoch == (900, 5)


async def test_a_source_that_lost_its_end_while_it_is_read_is_noticed():
    source = MemorySource([record(o) for o in range(100)], epochs=[(0, 4)], topic_id="a")
    run = Run(source, MemoryTarget())

    def lost_its_end():
        if run.acked == 100 and source.leader_epoch == 4:
            source.cut(60, [other(o) for o in range(60, 130)])
        return run.acked == 130

    await run.until(lost_its_end)
    assert run.offsets == [*range(100), *range(60, 130)]
    assert [entry["id"] for _, entry, _ in run.ledger.written] == ["source_truncated:readings:0:60-99:4"]


async def test_a_position_above_the_end_goes_back_to_the_end_where_epochs_tell():
    source = MemorySource([record(o) for o in range(100)], epochs=[(0, 4)], topic_id="a")
    target = MemoryTarget()
    await mirrored(source, target, 100)
    source.cut(60, [])
    run = Run(source, target)
    await run.until(lambda: run.ledger.written and run.acked == 60)  # the group has told 100 before
    assert run.offsets == list(range(100))
    assert [entry["id"] for _, entry, _ in run.ledger.written] == ["source_truncated:readings:0:60-99:4"]


async def test_an_epoch_that_rose_over_nothing_lost_changes_nothing():
    source = MemorySource([record(o) for o in range(100)], epochs=[(0, 4)], topic_id="a")
    target = MemoryTarget()
    await mirrored(source, target, 100)
    source.cut(100, [record(o) for o in range(100, 150)])
    run = Run(source, target)
    await run.until_safe(150)
    assert run.offsets == list(range(150))
    assert run.ledger.written == []
    assert source.asked[-1] == 4


async def test_a_topic_made_anew_is_mirrored_from_its_start():
    source = MemorySource([record(o) for o in range(100)], epochs=[(0, 4)], topic_id="a")
    target = MemoryTarget()
    await mirrored(source, target, 100)
    source.topic_id, source.log, source.end = "b", [other(o) for o in range(300)], 300
    run = Run(source, target)
    await run.until_safe(300)
    assert run.offsets == [*range(100), *range(300)]
    assert run.ledger.written == []
    assert run.metrics.duplicates._value.get() == 0
    assert source.group[TP].topic_id == "b"


async def test_a_topic_made_anew_while_it_is_read_is_mirrored_from_its_start():
    source = MemorySource([record(o) for o in range(100)], epochs=[(0, 4)], topic_id="a")
    run = Run(source, MemoryTarget())

    def made_anew():
        if run.acked == 100 and source.topic_id == "a":
            source.topic_id, source.log, source.end = "b", [other(o) for o in range(200)], 200
        return set(range(200)) <= set(run.offsets[100:])

    await run.until(made_anew)
    assert values(run.target)[100:] == [b"x" * 11] * len(run.offsets[100:])


async def test_what_expires_of_a_topic_made_anew_between_its_begin_and_the_first_read_is_in_the_ledger():
    source = MemorySource([record(o) for o in range(100)], epochs=[(0, 4)], topic_id="a")
    target = MemoryTarget()
    await mirrored(source, target, 100)
    source.topic_id, source.log, source.end = "b", [other(o) for o in range(10, 300)], 300
    source.start, answer = 10, source.bounds

    async def bounds(partitions):
        told = await answer(partitions)
        if list(partitions):
            source.start, source.log = 50, source.log[-250:]
        return told

    source.bounds = bounds
    run = Run(source, target)
    await run.until_safe(300)
    assert run.offsets == [*range(100), *range(50, 300)]
    assert [entry["id"] for _, entry, _ in run.ledger.written] == ["source_offset_out_of_range:readings:0:10-49"]
    assert run.metrics.duplicates._value.get() == 0


async def test_what_expires_of_a_topic_made_anew_that_the_group_knows_and_the_state_does_not_is_in_the_ledger():
    source = MemorySource([record(o) for o in range(100)], epochs=[(0, 4)], topic_id="a")
    target = MemoryTarget()
    await mirrored(source, target, 100)
    source.topic_id, source.log, source.start, source.end = "b", [other(o) for o in range(50, 300)], 50, 300
    source.group[TP] = Commit(0, 0, 100, topic_id="b")  # stopped before its first life with that topic had begun
    run = Run(source, target)
    await run.until_safe(300)
    assert run.offsets == [*range(100), *range(50, 300)]
    assert [entry["id"] for _, entry, _ in run.ledger.written] == ["source_offset_out_of_range:readings:0:0-49"]


async def test_a_topic_made_anew_is_begun_once_though_the_state_is_lost_and_it_is_killed_before_the_first_record(
    killed,
):
    source = MemorySource([record(o) for o in range(100)], epochs=[(0, 4)], topic_id="a")
    target = MemoryTarget()
    await mirrored(source, target, 100)
    target.state.clear()
    source.topic_id, source.log, source.end = "b", [], 0
    await killed(source, target).until(lambda: target.state and source.group[TP].topic_id == "b")
    source.log, source.end = [other(o) for o in range(300)], 300
    run = Run(source, target)
    await run.until_safe(300)
    assert run.offsets == [*range(100), *range(300)]
    assert run.ledger.written == []


async def test_a_topic_made_anew_whose_id_is_told_late_is_mirrored_from_its_start(caplog):
    source = MemorySource([record(o) for o in range(100)], epochs=[(0, 4)], topic_id="a")
    target = MemoryTarget()
    await mirrored(source, target, 100)
    target.state.clear()
    source.topic_id = None
    run = Run(source, target)

    def made_anew():
        lane = run.replicator.registry.streams.get(TP)
        if source.topic_id is None and lane is not None and lane.is_read:
            source.topic_id, source.log, source.end, source.epochs = "b", [other(o) for o in range(300)], 300, [(0, 5)]
        return set(range(300)) <= set(run.offsets[100:])

    await run.until(made_anew)
    assert caplog.text.count("topic_recreated") == 1
    assert run.ledger.written == []
    assert source.group[TP].topic_id == "b"


async def mirrored_by_an_older_version(source, target, offset):
    """As one that had no state at the target, and put nothing else there either."""
    target.fences = False
    await mirrored(source, target, offset)
    target.fences = True
    target.state.clear()
    source.group[TP] = read_commit(offset, replace(source.group[TP], topic_id=None, epoch=None).metadata())


@pytest.mark.parametrize("lost", [False, True])
async def test_an_older_versions_position_is_compared_with_the_target(lost):
    source = MemorySource([record(o) for o in range(100)], epochs=[(0, 4)], topic_id="a")
    target = MemoryTarget()
    target.got = [(0, [], b"somebody else's")] * 7
    await mirrored_by_an_older_version(source, target, 100)
    if lost:
        source.cut(60, [other(o) for o in range(60, 130)])
    else:
        source.cut(100, [record(o) for o in range(100, 130)])
    run = Run(source, target)
    await run.until_safe(130)
    assert run.offsets[107:] == list(range(60 if lost else 100, 130))
    assert [entry["id"] for _, entry, _ in run.ledger.written] == ["source_truncated:readings:0:60-99"] * lost
    assert source.group[TP].epoch == ((60, 5) if lost else (99, 5))


async def test_an_older_versions_position_that_nobody_can_prove_is_believed_once(caplog):
    source = MemorySource([record(o) for o in range(100)], epochs=[(0, 4)], topic_id="a")
    target = MemoryTarget()
    await mirrored_by_an_older_version(source, target, 100)
    target.got = [(0, [], b"of another mirror")] * 100
    source.cut(100, [])
    with caplog.at_level("INFO"):
        await Run(source, target).until(lambda: source.group[TP].epoch is not None)
        assert caplog.text.count("position_accepted") == 1
        assert source.group[TP].epoch == (99, 5)
        source.cut(100, [record(o) for o in range(100, 130)])
        await mirrored(source, target, 130)
    assert caplog.text.count("position_accepted") == 1
    assert [timestamp for timestamp, _, value in target.got if len(value) == 10] == list(range(100, 130))


async def test_a_partition_whose_leader_cannot_judge_it_holds_up_no_other_work():
    source = MemorySource([record(o) for o in range(100)], epochs=[(0, 4)], topic_id="a")
    target = MemoryTarget()
    await mirrored(source, target, 50)
    answer, silent = source.epoch_ends, [True] * 5
    troubles = set()

    async def epoch_ends(asked):
        troubles.add(run.replicator.trouble())  # of the answer before this one
        return dict.fromkeys(asked, "LeaderNotAvailable") if silent and silent.pop() else await answer(asked)

    source.epoch_ends = epoch_ends
    source.cut(100, [record(o) for o in range(100, 130)])
    run = Run(source, target)
    await run.until_safe(130)
    assert any("readings-0 position: its leader cannot judge it: LeaderNotAvailable" in text for text in troubles)
    assert run.replicator.trouble() == ""
    assert run.offsets == list(range(130))


async def test_lost_records_that_were_read_and_not_sent_are_sent_before_it_goes_back():
    source = MemorySource([record(o) for o in range(100)], epochs=[(0, 4)], topic_id="a")
    away = {"is": True}
    target = MemoryTarget()
    target.fail = lambda: "lost" if away["is"] and target.state else None
    run = Run(source, target)

    def lost_its_end():
        lane = run.replicator.registry.streams.get(TP)
        if lane is not None and lane.read_offset == 100 and source.leader_epoch == 4:
            source.cut(60, [other(o) for o in range(60, 130)])
        if lane is not None and lane.go_back_to is not None:
            away["is"] = False
        return run.acked == 130

    await run.until(lost_its_end)
    assert run.offsets == [*range(100), *range(60, 130)]
    assert [entry["id"] for _, entry, _ in run.ledger.written] == ["source_truncated:readings:0:60-99:4"]


async def test_positions_that_cannot_be_told_are_asked_for_until_they_can():
    source = MemorySource([record(o) for o in range(30)], epochs=[(0, 4)], topic_id="a")
    target = MemoryTarget()
    await mirrored(source, target, 30)
    answer, loading = source.commits, [True] * 5

    async def commits(partitions=None):
        if loading and loading.pop():
            raise PositionsError("loading")
        return await answer(partitions)

    source.commits = commits
    run = Run(source, target)
    await run.until_safe(30)
    assert loading == []
    assert run.offsets == list(range(30))


async def test_a_pattern_that_selects_no_topic_is_said_once_with_the_nearest(caplog):
    source = MemorySource([])
    with caplog.at_level("WARNING"):
        await Run(source, MemoryTarget(), config=replace(CONFIG, topics="logs|redings")).until(
            lambda: source.topics_asked > 3
        )
        said = [record for record in caplog.records if record.msg == "no_topic_matched"]
        assert [record.drupelet_fields["did_you_mean"] for record in said] == ["readings"]
        caplog.clear()
        await Run(source, MemoryTarget()).until(lambda: source.topics_asked > 6)
    assert "no_topic_matched" not in caplog.text


async def test_a_mirror_that_has_never_written_tells_how_it_stands():
    assert list(Replicator(CONFIG, Metrics(), partial(clients_of, CONFIG)).report().partitions) == []
