"""The replicator with transactions, between two ends in memory: losses and refusals at every step of a transaction.

Invariant: whatever is lost or refused, what is committed at the target is each record once, in order; what the group
holds is never beyond it.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace

import pytest

from edge_broker.errors import ErrorCode
from edge_broker.protocol.record_batch import BatchHeader
from kafka_wire.connection.errors import ConnectionLost
from kafka_wire.transactions.fencing import ProducerFenced
from kafka_wire.transactions.transactions import TransactionDescription
from mirror.producer import delivery_resolver
from mirror.producer.failures import batch_isolation
from mirror.replication import backoffs
from mirror.session import marker_partitions
from tests.unit.mirror.ends import TP, MemoryFencing, MemorySource, MemoryStateTopic, MemoryTarget, record
from tests.unit.mirror.test_replicator import CONFIG, Run

RECORDS = 200
IN_TRANSACTIONS = replace(CONFIG, transactions=True, batch_bytes_max=1024)
AT_TARGET = ("lab.readings", 0)


@pytest.fixture(autouse=True)
def waits_are_short(monkeypatch):
    monkeypatch.setattr(delivery_resolver, "RESEND_S", 0.002)
    monkeypatch.setattr(backoffs, "BACKOFF_FIRST_S", 0.002)
    monkeypatch.setattr(batch_isolation, "PAUSE_S_FIRST", 0.002)
    monkeypatch.setattr(batch_isolation, "PAUSE_S_MAX", 0.01)


class TransactionalTarget(MemoryTarget):
    """A target whose records count once they are committed; `age` has the coordinator's clock end what is open."""

    def __init__(self, **more):
        super().__init__(**more)
        self.is_open, self.added, self.open_from, self.aborted = False, set(), None, set()
        self.pending, self.ended, self.commits, self.describes = [], "Empty", 0, True

    @property
    def committed(self):
        """The timestamps of the records that a reader at read_committed finds."""
        stable = len(self.log) if self.open_from is None else self.open_from
        return [
            one[0] for offset, one in enumerate(self.log[:stable]) if one is not None and offset not in self.aborted
        ]

    def transactions(self, name, timeout_ms):
        return MemoryTransactions(self, timeout_ms)

    def state_topic(self, name, transactional_id=None):
        return TransactionalStateTopic(self, name) if transactional_id else MemoryStateTopic(self, name)

    def append(self, data):
        header = BatchHeader(data)
        code, base = super().append(data)
        if not code and header.attributes & 16:
            assert self.is_open, "only what was added may be written to"
            assert AT_TARGET in self.added
            if self.open_from is None:
                self.open_from = base
        return code, base

    def end(self, *, commits):
        if not self.is_open:
            return
        if self.open_from is not None and not commits:
            self.aborted.update(range(self.open_from, len(self.log)))
        if commits:
            for key, value in self.pending:
                self.state.pop(key, None)
                if value is not None:
                    self.state[key] = value
        if AT_TARGET in self.added:
            self.log.append(None)
        self.commits += commits
        self.is_open, self.open_from, self.pending, self.added = False, None, [], set()
        self.ended = "CompleteCommit" if commits else "CompleteAbort"

    def expire(self):
        """End what is open by its timeout."""
        self.end(commits=False)
        self.epoch += 1
        self.remembered.setdefault(self.producer_id, type("Epoch", (), {})).epoch = self.epoch


class MemoryTransactions(MemoryFencing):
    """Its coordinator."""

    def __init__(self, target, timeout_ms):
        super().__init__(target)
        self.transaction_timeout_ms = timeout_ms
        self.epoch = -1

    @property
    def producer(self):
        return self.target.producer_id, self.epoch

    async def begin_with(self, chosen, meanwhile=None):
        self.target.end(commits=False)
        fence = await super().begin_with(chosen, meanwhile)
        self.epoch, self.target.ended = fence.producer_epoch, "Empty"
        return fence

    async def add(self, partitions):
        outcome = await self._asked()
        if outcome != "lost":
            self.target.is_open = True
            self.target.ended = "Ongoing"
            self.target.added |= set(partitions)
        if outcome is not None:
            raise ConnectionLost("the coordinator's connection was lost")
        return {}

    async def commit(self):
        try:
            outcome = await self._asked()
        except ProducerFenced:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if outcome != "lost":
            self.target.end(commits=True)
        if outcome is not None:
            raise ConnectionLost("the coordinator's connection was lost")
        return 0

    async def abort(self):
        try:
            outcome = await self._asked()
        except ProducerFenced:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if outcome != "lost":
            self.target.end(commits=False)
        if outcome is not None:
            raise ConnectionLost("the coordinator's connection was lost")
        return 0

    async def _asked(self):
        await asyncio.sleep(0)
        if self.epoch != self.target.epoch:
            raise ProducerFenced("transactional id is another's now: INVALID_PRODUCER_EPOCH")
        return self.target.fail()

    async def describe(self):
        if not self.target.describes:
            return None
        if self.target.fail():
            raise ConnectionLost("the coordinator's connection was lost")
        return TransactionDescription(self.target.ended, self.target.producer_id, self.target.epoch)


class TransactionalStateTopic(MemoryStateTopic):
    """What is written counts once it is committed."""

    topic_id, written_from = "state", 0

    async def read(self, reading, offset=0):
        await super().read(reading)
        return 0

    async def write(self, groups):
        await asyncio.sleep(0)
        outcome = self.target.fail()
        if not self.target.is_open:  # ended by somebody else
            raise ProducerFenced("topic state is another mirror's now: INVALID_PRODUCER_EPOCH")
        if outcome != "lost":
            self.target.pending += [one for group in groups for one in group]
        if outcome is not None:
            raise ConnectionLost("the connection was lost")


def failing(seed, share):
    """Outcomes by chance."""
    chance = random.Random(seed)
    kinds = ["lost", "answer lost", ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.REQUEST_TIMED_OUT]
    return lambda: chance.choice(kinds) if chance.random() < share else None


def source_of(count=RECORDS):
    return MemorySource([record(offset) for offset in range(count)])


def run_of(source, target, **changes):
    return Run(source, target, config=replace(IN_TRANSACTIONS, **changes))


async def test_records_position_and_map_are_committed_together():
    source, target = source_of(), TransactionalTarget()
    await run_of(source, target).until(lambda: len(target.committed) >= RECORDS)
    assert target.committed == list(range(RECORDS))
    assert not target.aborted
    assert not target.is_open
    assert target.commits > 1
    assert b'"transactional":true' in target.state[b"head:readings:0"]
    assert b'"source_offset":200' in target.state[b"head:readings:0"]
    assert source.group[TP].offset == RECORDS


@pytest.mark.parametrize("seed", range(40))
async def test_whatever_is_lost_or_refused_on_the_way(seed):
    source, target = source_of(), TransactionalTarget(fail=failing(seed, 0.12))
    for part in (0.3, 0.7, 1.0):  # three lives
        run = run_of(source, target)
        await run.until(lambda upto=part: len(target.committed) >= RECORDS * upto)
        assert target.committed == list(range(len(target.committed)))
        assert source.group[TP].offset <= len(target.committed) if TP in source.group else True
        assert run.metrics.duplicates._value.get() == 0
        assert run.metrics.target_lost._value.get() == 0
    assert target.committed == list(range(RECORDS))


async def test_a_commit_whose_answer_is_lost_is_told_again_and_nothing_is_sent_again():
    lost = []

    class Forgets(MemoryTransactions):
        async def commit(self):
            code = await super().commit()
            if self.target.commits == 2 and not lost:
                lost.append(code)
                raise ConnectionLost("the coordinator's connection was lost")
            return code

    target = TransactionalTarget()
    target.transactions = lambda name, timeout_ms: Forgets(target, timeout_ms)
    await run_of(source_of(), target).until(lambda: len(target.committed) >= RECORDS)
    assert lost
    assert target.committed == list(range(RECORDS))
    assert not target.aborted


async def test_a_commit_that_was_answered_and_does_not_hold_is_sent_again(caplog):
    """Its coordinator was killed behind the answer, and ended it without markers: what came next aborted it.

    Seen of Apache Kafka 4.3.1.
    """
    answered = []

    class Forgets(MemoryTransactions):
        async def add(self, partitions):
            if len(answered) == 1:
                answered.append("the next one")
                raise ConnectionLost("the coordinator's connection was lost")
            return await super().add(partitions)

        async def commit(self):
            target = self.target
            if not answered and target.open_from is not None:
                answered.append("this one")
                return 0
            return await super().commit()

    source, target = source_of(RECORDS // 2), TransactionalTarget()
    target.transactions = lambda name, timeout_ms: Forgets(target, timeout_ms)
    run = run_of(source, target)

    def all_there():
        if len(answered) == 1 and source.end < RECORDS:
            source.log, source.end = [record(offset) for offset in range(RECORDS)], RECORDS
        return len(answered) == 2 and len(target.committed) >= RECORDS

    await run.until(all_there)
    assert target.committed == list(range(RECORDS))
    assert run.metrics.target_lost._value.get() > 0
    assert [one.message for one in caplog.records if one.message == "target_lost"]


async def test_a_commit_that_does_not_hold_is_sent_again_by_the_next_process_too():
    answered = []

    class Forgets(MemoryTransactions):
        async def commit(self):
            if self.target.open_from is None:
                return await super().commit()
            answered.append("all that come")
            return 0

    source, target = source_of(RECORDS // 2), TransactionalTarget()
    target.transactions = lambda name, timeout_ms: Forgets(target, timeout_ms)
    run = run_of(source, target)
    await run.until(lambda: run.acked == RECORDS // 2 and TP in source.group and source.group[TP].offset == run.acked)
    assert target.committed == []
    del target.transactions
    run = run_of(source, target)
    await run.until(lambda: len(target.committed) >= RECORDS // 2)
    assert target.committed == list(range(RECORDS // 2))


@pytest.mark.parametrize("describes", [True, False])
async def test_one_that_timed_out_is_told_as_that_and_sent_again(caplog, describes):
    source, target = source_of(), TransactionalTarget()
    target.describes = describes
    expired = []

    def fail():
        if target.open_from is not None and not expired:
            expired.append(True)
            target.expire()

    target.fail = fail
    run = run_of(source, target, transaction_timeout_ms=1)
    await run.until(lambda: len(target.committed) >= RECORDS)
    assert target.committed == list(range(RECORDS))
    assert expired
    assert target.aborted
    assert [one.message for one in caplog.records if one.message == "transaction_timed_out"]
    assert not [one for one in caplog.records if one.message == "mirror_fenced"]


@pytest.mark.parametrize("describes", [True, False])
async def test_another_mirror_that_took_over_is_told_as_that(caplog, describes):
    source, target = source_of(), TransactionalTarget()
    target.describes = describes
    taken = []

    def fail():
        if target.open_from is not None and not taken:
            taken.append(True)
            target.expire()  # as an InitProducerId does, long before the timeout

    target.fail = fail
    run = run_of(source, target)
    await run.until(lambda: any(one.message == "mirror_fenced" for one in caplog.records))
    assert not [one for one in caplog.records if one.message == "transaction_timed_out"]
    assert target.committed == list(range(len(target.committed)))


async def test_from_the_one_mode_to_the_other_and_back():
    source, target = source_of(), TransactionalTarget()
    for number, transactions in enumerate((False, True, False, True)):
        upto = RECORDS * (number + 1) // 4
        source.log = [record(offset) for offset in range(upto)]
        run = run_of(source, target, transactions=transactions)
        await run.until(lambda n=upto: len(target.committed) >= n)
        assert target.committed == list(range(upto))


async def test_without_transactions_nothing_is_sent():
    source, target = source_of(), TransactionalTarget()
    target.fences = False
    run = run_of(source, target)
    await run.until(lambda: "runs none for us" in run.replicator.trouble())
    assert target.log == []


SHORT = "lab.readings-0 has 1 in-sync replicas, and min.insync.replicas=2"


@pytest.mark.parametrize("known_s", [0.0, 3600.0])
async def test_a_partition_that_is_known_to_be_short_of_replicas_is_added_to_no_transaction(monkeypatch, known_s):
    """A marker there would hold up all. Soon after a commit it is only looked at where a connection broke."""
    monkeypatch.setattr(marker_partitions, "KNOWN_S", known_s)
    source, target, seen = source_of(RECORDS // 2), TransactionalTarget(), []

    class Watched(MemoryTransactions):
        async def add(self, partitions):
            assert AT_TARGET not in partitions or not target.short
            return await super().add(partitions)

    target.transactions = lambda name, timeout_ms: Watched(target, timeout_ms)
    run = run_of(source, target)

    def falls_short_then_is_whole():
        committed = len(target.committed)
        if committed == RECORDS // 2 and not seen and run.acked == committed and not target.is_open:
            seen.append("short")
            target.short = SHORT
            if known_s:
                target.open._end()
            source.log, source.end = [record(offset) for offset in range(RECORDS)], RECORDS
        if len(seen) == 1 and SHORT in run.replicator.trouble():
            seen.append("named")
            target.short = ""
        return committed == RECORDS and not run.replicator.trouble()

    await run.until(falls_short_then_is_whole)
    assert seen == ["short", "named"]
    assert target.committed == list(range(RECORDS))
    assert not target.aborted
