"""A batch that has its connection closed goes alone; only what proves something against it condemns it."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace
from types import SimpleNamespace

import pytest

from kafka_wire.partitions import TopicPartition
from mirror.partition.send_state import SENDING
from mirror.partition.stream import PartitionStream
from mirror.producer.failures import batch_isolation
from mirror.producer.failures.suspects import CUTS_CONDEMNED, QUICK_S, is_proof, note_acked, note_alone, note_cut
from mirror.producer.sender import Sender
from mirror.producer.target_connection import SendQueue, TargetConnection
from mirror.producer.transactional_sender import TransactionalSender, chosen_together
from mirror.replication import backoffs
from mirror.topics.overrides import rules_from
from tests.unit.mirror.ends import TP, MemorySource, MemoryTarget, record
from tests.unit.mirror.test_replicator import CONFIG, Run

DEAD_LETTER = replace(CONFIG, rules=rules_from({".*": {"on_refused": "dead_letter"}}))
POISON = 12


@pytest.fixture(autouse=True)
def waits_are_short(monkeypatch):
    monkeypatch.setattr("mirror.producer.delivery_resolver.RESEND_S", 0.002)
    monkeypatch.setattr(backoffs, "BACKOFF_FIRST_S", 0.002)
    monkeypatch.setattr("mirror.producer.sender.REMEMBERED_S", 10**10)
    monkeypatch.setattr(batch_isolation, "PAUSE_S_FIRST", 0.002)
    monkeypatch.setattr(batch_isolation, "PAUSE_S_MAX", 0.004)


def lane(number=0):
    return PartitionStream(TopicPartition("readings", number), "lab.readings", {"cleanup.policy": "delete"})


def test_batches_in_flight_at_two_breaks_are_suspect_until_all_of_them_are_safe():
    one = lane()
    assert not note_cut(one, 10, 30)
    assert not note_cut(one, 20, 30), "some were safe meanwhile"
    assert not one.is_alone
    assert note_cut(one, 20, 30)
    assert one.is_alone
    assert not note_cut(one, 20, 30)
    assert not note_acked(one, 25)
    assert not note_cut(one, 25, 30)
    assert one.is_alone
    assert note_acked(one, 30)
    assert not one.is_alone
    assert not note_cut(one, 30, 40), "others are in flight now"


def test_what_goes_on_between_two_breaks_is_not_suspect():
    one = lane()
    for first in range(100):
        assert not note_cut(one, first, first + 50)
    assert not one.is_alone


def test_a_break_with_other_batches_in_flight_is_the_first_one_of_theirs():
    one = lane()
    for first in range(0, 100, 10):
        assert not note_cut(one, first, first + 10)


def test_breaks_that_prove_something_condemn_in_a_row_only():
    one = lane()
    note_cut(one, 0, 10)
    note_cut(one, 0, 10)
    proofs = [True] * (CUTS_CONDEMNED - 1) + [False] + [True] * CUTS_CONDEMNED
    told = [note_alone(one.suspicion, is_proof=proof) for proof in proofs]
    assert told == [False] * (len(proofs) - 1) + [True]
    note_acked(one, 5)
    assert not any(note_alone(one.suspicion, is_proof=True) for _ in range(CUTS_CONDEMNED - 1))


@pytest.mark.parametrize(
    ("took_s", "round_trip_s", "others_broke", "another_answers", "proves"),
    [
        (0.1, None, False, True, True),
        (0.1, None, True, True, False),
        (0.1, None, False, False, False),
        (QUICK_S + 0.1, 0.1, False, True, False),
        (QUICK_S + 0.1, 2.0, False, True, True),
    ],
)
def test_a_break_proves_something_where_it_was_quick_and_the_only_one(
    took_s, round_trip_s, others_broke, another_answers, proves
):
    assert is_proof(took_s, round_trip_s, others_broke=others_broke, another_answers=another_answers) is proves


def test_a_suspect_has_a_transaction_of_its_own():
    plain, suspect, other = lane(0), lane(1), lane(2)
    suspect.is_alone = other.is_alone = True
    assert chosen_together([suspect, plain], []) == [plain]
    assert chosen_together([suspect, other], []) == [suspect]
    assert chosen_together([suspect], [plain]) == []
    assert chosen_together([plain, other], [suspect]) == []


@pytest.mark.parametrize(
    ("flight", "uncommitted", "asks"),
    [([None], [], False), ([], [], False), (["posted"], [], True), ([None], ["acked"], True)],
)
def test_a_batch_that_waits_to_be_sent_again_goes_in_the_transaction_that_its_partition_is_in(
    flight, uncommitted, asks, monkeypatch
):
    """It asked for another one without end, after a refusal: NOT_LEADER_OR_FOLLOWER."""
    suspect, batch = lane(), object()
    suspect.send_state = SENDING
    suspect.is_alone, suspect.suspicion = True, SimpleNamespace(times=1)
    suspect.flight = [SimpleNamespace(mark=mark) for mark in flight]
    suspect.uncommitted = uncommitted
    monkeypatch.setattr(Sender, "take", lambda *_: SimpleNamespace(it=batch, size=1, pieces=[]))
    sender = TransactionalSender.__new__(TransactionalSender)
    sender._transaction = SimpleNamespace(has_room=True, take=lambda *_: None)
    sender._in, sender._asking, sender._wake, sender.step = {suspect}, {}, asyncio.Event(), asyncio.Event()
    sender._is_left_behind = lambda _: False
    taken = sender.take(suspect, 1)
    assert (taken is None) is asks
    assert (suspect in sender._asking) is asks


def has_poison(data):
    return b"n\x04%d" % POISON in bytes(data)


async def test_a_record_that_alone_has_its_connection_closed_is_put_aside_and_the_others_arrive():
    target = MemoryTarget()
    target.cuts_at = has_poison
    run = Run(MemorySource([record(o) for o in range(30)]), target, config=DEAD_LETTER)
    await run.until_safe(30)
    assert run.offsets == [o for o in range(30) if o != POISON]
    [(_, [letter])] = run.ledger.put_aside
    headers = dict(letter.headers)
    assert headers["dead_letter.offset"] == b"%d" % POISON
    assert headers["dead_letter.reason"] == b"CONNECTION_CLOSED"


async def test_a_known_limit_condemns_without_another_break():
    target = MemoryTarget()
    target.request_limit = 2000
    target.cuts_at = lambda data: len(data) > 1500
    log = [record(o, size=3000 if o == POISON else 10) for o in range(30)]
    run = Run(MemorySource(log), target, config=DEAD_LETTER)
    await run.until_safe(30)
    assert run.offsets == [o for o in range(30) if o != POISON]
    assert len(run.ledger.put_aside) == 1
    assert run.metrics.restarts.labels("target")._value.get() <= 3


@pytest.mark.parametrize("cause", ["no other connection answers", "others break"])
async def test_breaks_that_prove_nothing_hold_a_batch_and_name_it(cause):
    target, seen = MemoryTarget(), set()
    run = Run(MemorySource([record(o) for o in range(30)]), target, config=replace(DEAD_LETTER, batch_bytes_max=1))
    target.is_answering = cause != "no other connection answers"

    def cuts_at(data):
        if has_poison(data) and target.is_answering:
            run.replicator.period.sender.isolation.connection_lost(SimpleNamespace(number=0, node=1))
        return has_poison(data)

    target.cuts_at = cuts_at

    def held_long_enough():
        one = run.replicator.registry.streams.get(TP)
        seen.add(run.replicator.trouble())
        if one is not None and one.suspicion is not None and one.suspicion.times > 3 * CUTS_CONDEMNED:
            target.cuts_at = lambda data: False
        return run.acked == 30

    await run.until(held_long_enough)
    assert run.offsets == list(range(30))
    assert run.ledger.put_aside == []
    assert any(f"the batch at offset {POISON}, of" in text for text in seen)


async def test_a_link_that_breaks_all_the_time_puts_nothing_aside():
    seed = random.randrange(10**6)
    chance = random.Random(seed)
    target = MemoryTarget(fail=lambda: "lost" if chance.random() < 0.5 else None)
    target.is_answering = False
    run = Run(MemorySource([record(o) for o in range(60)]), target, config=DEAD_LETTER)
    await run.until_safe(60)
    assert run.offsets == list(range(60)), f"seed {seed}"
    assert run.ledger.put_aside == [], f"seed {seed}"


@pytest.mark.parametrize("another_answers", [True, False])
async def test_only_where_another_connection_answers_the_log_tells_what_became_of_a_suspect(another_answers):
    """There it is let go while it waits, which may be for long; where the link breaks it is sent again as it is."""
    left = ["answer lost", "answer lost", "lost"]
    target = MemoryTarget(fail=lambda: left.pop(0) if left and target.requests > 1 else None)
    target.clock_ms, target.is_answering = 40, another_answers
    run = Run(MemorySource([record(o) for o in range(40)]), target, config=replace(DEAD_LETTER, batch_bytes_max=1))
    await run.until_safe(40)
    assert left == []
    assert run.offsets == list(range(40))
    assert (target.epoch > 0) is another_answers
    assert run.ledger.put_aside == []


def test_a_suspect_goes_in_batches_as_large_as_any_others():
    """It went record by record: a link that broke every 3 s carried a fifth of what it had carried."""
    taken = []

    def take(lane, bytes_max):
        taken.append((lane, bytes_max))
        return SimpleNamespace(size=100)

    pipe, first, other = TargetConnection.__new__(TargetConnection), lane(0), lane(1)
    pipe.under_way_bytes, pipe.sparse, pipe.ready = 0, SendQueue(), SendQueue()
    for one in (first, other):
        pipe.ready.add(one)
    pipe._source, pipe._link = SimpleNamespace(take=take), SimpleNamespace(batch_bytes=5000)
    assert len(pipe._load_alone()) == 1
    assert taken == [(first, 5000)]
    pipe.under_way_bytes = 100
    assert pipe._load_alone() == []
