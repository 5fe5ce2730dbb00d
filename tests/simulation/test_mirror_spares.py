"""A partition that falls short of replicas within a transaction holds no other, and is caught up later.

Invariants: each record arrives once; the other partitions' records are committed within GOES_ON_S; a mirror that starts
meanwhile, in either mode, waits and goes on with all once the replicas are back; one of a released version refuses the
state, or is the only one that writes. Does not contain: faults beside these (test_mirror_runs.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextlib import ExitStack
from random import Random
from typing import Any
from unittest.mock import patch

import pytest

from kafka_wire.transactions.transactions import TransactionDescription, Transactions
from mirror.partition.state_records import StateError
from mirror.replication import active_period
from mirror.session import producer_sessions
from mirror.session.marker_partitions import InSync
from mirror.session.producer_sessions import ProducerSessions
from mirror.session.transactional_ids import MARKERS_S, Id, Ids
from mirror.session.transactional_sessions import TransactionalSessions
from tests.simulation.mirror_broken import no_problems
from tests.simulation.mirror_coordinator import PREPARED
from tests.simulation.mirror_runs import CONFIG, Schedule, replayed, run_seed
from tests.simulation.mirror_world import Life
from tests.simulation.virtual_time import virtual_time

GOES_ON_S = 40.0
SEEDS = range(12)
OWN_IDS = [*range(12), 57]
FENCES = [*range(12), 53, 180]


class Site:
    """A schedule of its own, in which nothing fails but what a test has fail."""

    def __init__(self, schedule: Schedule) -> None:
        self.schedule, self.world = schedule, schedule.world
        self.chance = Random(f"site {schedule.seed}")
        self.short, *self.others = list(self.world.logs.values())
        assert self.others
        assert self.world.coordinator is not None

    def at(self, log: Any) -> tuple[str, int]:
        return self.schedule.at(log)

    def another(self, *, transactions: bool) -> Life:
        """Have another mirror begin, while no one stops those that run."""
        mode = self.schedule.mode
        mode.is_used = transactions
        life = self.schedule.begin_life()
        mode.is_used = True
        return life

    def first_that_waits_long(self) -> Life:
        """Have the first mirror be one whose transactions do not time out."""
        for life in self.schedule.alive:
            life.kill()
        self.schedule.mode._timeout_ms = 120_000
        return self.another(transactions=True)

    def come(self, *logs: Any) -> None:
        for log in logs:
            log.append(self.chance.randint(1, 4), self.world.now_ms())

    def is_there(self, log: Any) -> bool:
        """Whether readers of committed records find all of a partition."""
        there = self.world.targets.get(self.at(log))
        return there is not None and set(log.fates) <= {serial for _, serial in there.serials}

    async def until(self, condition: Callable[[], bool], what: str) -> None:
        end = self.world.loop.now + GOES_ON_S
        while not condition():
            assert self.world.loop.now < end, f"{what}: {[life.replicator.trouble() for life in self.schedule.alive]}"
            await asyncio.sleep(0.1)

    async def mirrored(self, *logs: Any) -> None:
        await self.until(lambda: all(map(self.is_there, logs)), "all committed")

    async def fall_short(self) -> None:
        """Have a partition lack replicas once a transaction has it."""
        coordinator = self.world.coordinator
        assert coordinator is not None
        running = [coordinator, *self.world.spares.values()]
        self.come(self.short, *self.others)
        end, at = self.world.loop.now + GOES_ON_S, self.at(self.short)
        while not any(one.state == "Ongoing" and at in one.partitions for one in running):
            assert self.world.loop.now < end, "no transaction has it"
            await asyncio.sleep(0.001)
        await asyncio.sleep(self.chance.choice([0.0, 0.005, 0.05]) * self.chance.random())
        self.world.short[at] = self.world.loop.now

    async def lack_a_marker(self) -> None:
        """Have it fall short until the own id waits for its marker."""
        coordinator, at = self.world.coordinator, self.at(self.short)
        assert coordinator is not None
        while True:
            await self.fall_short()
            await asyncio.sleep(2.0)
            if coordinator.state in PREPARED and at in coordinator.unmarked:
                return
            self.world.short.clear()
            await self.mirrored(self.short, *self.others)


Part = Callable[[Site], Coroutine[Any, Any, None]]


def play(seed: int, part: Part) -> None:
    """Play it with a seed, then have all get through, and audit both ends."""
    failures: list[str] = []
    number = 1000 * seed
    with virtual_time(failures.append) as loop:
        while True:  # the next one with transactions and several partitions
            schedule = Schedule(number, loop, transactions=True)
            if schedule.world.coordinator is not None and len(schedule.world.logs) > 1 and schedule.mode.tells:
                break
            number += 1
        schedule.world.fault_rate, schedule.bad, schedule.old = 0.0, 0.0, 0.0
        schedule.config = CONFIG
        schedule.mode._is_mixed = False

        async def run() -> None:
            site = Site(schedule)
            schedule.begin_life()
            site.come(site.short, *site.others)
            await site.mirrored(site.short, *site.others)
            await part(site)
            await schedule.end()

        with replayed(Random(seed)):
            loop.run_until_complete(run())
    failure = "; ".join(filter(None, [*failures, schedule.failure]))
    assert not failure, "\n".join([failure, *schedule.world.trace[-60:]])


async def goes_on(site: Site) -> None:
    await site.fall_short()
    for _ in range(8):
        site.come(site.short, *site.others)
        await site.mirrored(*site.others)
        await asyncio.sleep(site.chance.choice([0.1, 1.0, 10.0]))
    assert not site.is_there(site.short)
    site.world.short.clear()
    await site.mirrored(site.short, *site.others)


async def falls_short_in_a_fence(site: Site) -> None:
    """Have all begin again, and a partition lack replicas when it was looked at, but has no marker yet."""
    coordinator, at = site.world.coordinator, site.at(site.short)
    assert coordinator is not None
    ends, left = coordinator._end, site.chance.randint(1, 2)

    def end(state: str, outcome: str) -> None:
        nonlocal left
        if state == "PrepareAbort" and at in coordinator.partitions:
            left -= 1
            if not left:
                site.world.short[at] = site.world.loop.now
                coordinator._markers_s = 2 * MARKERS_S  # some of the others come when no one waits for them any more
        ends(state, outcome)

    with patch.object(coordinator, "_end", end):
        for _ in range(20):
            site.come(site.short, *site.others)
            await asyncio.sleep(site.chance.uniform(0.0, 0.1))
            for connection in list(site.world.connections) if left > 0 else ():
                connection.cut()
            await asyncio.sleep(site.chance.uniform(0.0, 1.0))
    for _ in range(3):
        site.come(site.short, *site.others)
        await site.mirrored(*site.others)
    site.world.short.clear()


@pytest.mark.parametrize("seed", FENCES)
def test_the_others_go_on_where_it_falls_short_in_a_fence(seed: int) -> None:
    play(seed, falls_short_in_a_fence)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_others_go_on(seed: int) -> None:
    play(seed, goes_on)


async def all_but_one_fall_short_one_after_the_other(site: Site) -> None:
    *short, last = site.schedule.world.logs.values()
    for log in short:
        site.short = log
        await site.fall_short()
        await asyncio.sleep(site.chance.uniform(0, 10))
        site.come(*site.world.logs.values())
        await site.mirrored(last)
    site.world.short.clear()
    await site.mirrored(*site.world.logs.values())


async def all_but_one_fall_short_unseen(site: Site) -> None:
    """The target does not show which partitions lack replicas: only the missing markers do."""
    with patch.object(InSync, "problems", no_problems):
        await all_but_one_fall_short_one_after_the_other(site)


@pytest.mark.parametrize("part", [all_but_one_fall_short_one_after_the_other, all_but_one_fall_short_unseen])
@pytest.mark.parametrize("seed", SEEDS)
def test_all_but_one_fall_short_one_after_the_other(seed: int, part: Part) -> None:
    play(seed, part)


async def restarts(site: Site) -> None:
    """Kill the mirror while its own id, or a spare, is in use; another begins before or after the replicas are back."""
    await site.fall_short()
    if site.chance.random() < 0.7:
        site.come(*site.others)
        await site.mirrored(*site.others)
    for life in site.schedule.alive:
        life.kill()
    site.another(transactions=site.chance.random() < 0.6)
    site.come(site.short, *site.others)
    await asyncio.sleep(site.chance.uniform(0, 60))
    site.world.short.clear()
    await site.mirrored(site.short, *site.others)


@pytest.mark.parametrize("seed", SEEDS)
def test_one_that_starts_meanwhile_goes_on_later(seed: int) -> None:
    play(seed, restarts)


async def two_at_once(site: Site) -> None:
    """Another mirror begins while the first one, which no one stops, turns to a spare id, or goes on under it."""
    await site.fall_short()
    await asyncio.sleep(site.chance.choice([4.0, 10.0, 20.0]) * site.chance.random())
    site.another(transactions=site.chance.random() < 0.6)
    await replicas_return(site)


async def another_takes_the_own_id_meanwhile(site: Site) -> None:
    """Another mirror waits for the own id, and is given it while the first one turns to a spare."""
    spare, loop = next(iter(site.world.spares.values())), site.world.loop
    init = spare.init

    def first_epoch(request: Any) -> Any:
        loop.call_later(site.chance.choice([0.0, 0.1, 0.5]) * site.chance.random(), site.world.short.clear)
        return init(request)

    announce, delay_s = TransactionalSessions._announce_spare, site.chance.choice([0.0, 3.0])

    async def announce_late(them: TransactionalSessions) -> None:
        await asyncio.sleep(delay_s)
        await announce(them)

    await site.fall_short()
    site.another(transactions=site.chance.random() < 0.6)
    with (
        patch.object(spare, "init", first_epoch),
        patch.object(TransactionalSessions, "_announce_spare", announce_late),
    ):
        site.come(*site.others)
        await asyncio.sleep(15.0)
    site.world.short.clear()
    for _ in range(8):
        site.come(site.short, *site.others)
        await asyncio.sleep(site.chance.choice([0.01, 0.1, 1.0]))


@pytest.mark.parametrize("seed", OWN_IDS)
def test_another_takes_the_own_id_meanwhile(seed: int) -> None:
    play(seed, another_takes_the_own_id_meanwhile)


async def an_open_announcement_hides_what_another_commits(site: Site) -> None:
    """Kill a mirror whose announcement is open, after another one took the own id and read no announcement.

    What the other one commits lies behind the open transaction in the state topic, so a reader of committed records
    does not see it. A third mirror, in either mode, begins then.
    """
    first = site.first_that_waits_long()
    await site.mirrored(site.short, *site.others)
    goes_on, is_open = asyncio.Event(), asyncio.Event()
    announce, commit = TransactionalSessions._announce_spare, TransactionalSessions.commit

    def is_first(them: TransactionalSessions) -> bool:
        return them.target is first.replicator.clients.target

    async def announce_late(them: TransactionalSessions) -> None:
        if is_first(them):
            await goes_on.wait()
        await announce(them)

    async def not_commit(them: TransactionalSessions) -> None:
        if is_first(them) and goes_on.is_set():
            is_open.set()
            await asyncio.Event().wait()
        await commit(them)

    with (
        patch.object(TransactionalSessions, "_announce_spare", announce_late),
        patch.object(TransactionalSessions, "commit", not_commit),
    ):
        await site.lack_a_marker()
        site.come(*site.others)
        spare = next(iter(site.world.spares.values()))
        await site.until(lambda: spare.state == "CompleteAbort", "the spare is fenced")
        site.world.short.clear()
        second = site.another(transactions=True)
        site.come(*site.others)
        await site.until(lambda: any(map(site.is_there, site.others)), "the second mirrors")
        goes_on.set()
        await site.until(is_open.is_set, "the announcement is open")
        first.kill()
    for _ in range(3):
        site.come(site.short, *site.others)
        await site.mirrored(site.short, *site.others)
    log = site.world.log_at(site.world.state_at)
    assert log is not None
    assert log.stable_end < log.end, "nothing is hidden"
    second.kill()
    third = site.another(transactions=site.chance.random() < 0.6)
    site.come(site.short, *site.others)
    await site.mirrored(site.short, *site.others)
    assert not third.doubled


@pytest.mark.parametrize("seed", SEEDS)
def test_an_open_announcement_hides_what_another_commits(seed: int) -> None:
    play(seed, an_open_announcement_hides_what_another_commits)


async def replicas_return(site: Site) -> None:
    for _ in range(site.chance.randint(0, 4)):
        site.come(site.short, *site.others)
        await asyncio.sleep(site.chance.choice([0.1, 3.0]) * site.chance.random())
    site.world.short.clear()
    await asyncio.sleep(site.chance.choice([0.0, 1.0, 5.0]) * site.chance.random())
    for _ in range(8):
        site.come(site.short, *site.others)
        await asyncio.sleep(site.chance.choice([0.01, 0.1, 1.0]))


async def times_out_while_the_mirror_stands_still(site: Site) -> None:
    """The coordinator aborts a transaction by its timeout, which raises the epoch, and a partition takes no marker."""
    for life in site.schedule.alive:
        life.kill()
    site.schedule.mode._timeout_ms = 1000
    site.another(transactions=True)
    await site.mirrored(site.short, *site.others)
    coordinator, at, store = site.world.coordinator, site.at(site.short), TransactionalSessions.store
    assert coordinator is not None

    async def store_late(them: TransactionalSessions, states: Any) -> Any:
        if not site.world.short and coordinator.state == "Ongoing" and at in coordinator.partitions:
            site.world.short[at] = site.world.loop.now
            await asyncio.sleep(site.chance.uniform(2.0, 8.0))
        return await store(them, states)

    with patch.object(TransactionalSessions, "store", store_late):
        while not site.world.short:
            site.come(site.short, *site.others)
            await asyncio.sleep(site.chance.random())
        for _ in range(5):
            site.come(site.short, *site.others)
            await site.mirrored(*site.others)
    site.world.short.clear()
    await site.mirrored(site.short, *site.others)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_others_go_on_after_a_timeout(seed: int) -> None:
    play(seed, times_out_while_the_mirror_stands_still)


class Released(TransactionalSessions):
    """As of the version before spares."""

    async def _choose_id(self) -> None: ...

    async def _fence_spares(self, found: Any) -> Any:
        return found

    async def _read_state(self) -> Any:
        found = await super()._read_state()
        if self._announced:
            raise StateError("a record is of version 3, and this mirror knows 2")
        return found


async def a_released_one_begins(site: Site) -> None:
    await site.fall_short()
    await asyncio.sleep(site.chance.choice([1.0, 4.0, 20.0]) * site.chance.random())
    with patch.object(active_period, "TransactionalSessions", Released):
        life = site.another(transactions=True)
        await site.until(lambda: life.replicator.period.is_active, "it begins")
    await replicas_return(site)
    life.kill()


@pytest.mark.parametrize("seed", SEEDS)
def test_a_released_version_writes_alone_or_not_at_all(seed: int) -> None:
    play(seed, a_released_one_begins)


@pytest.mark.parametrize("seed", SEEDS)
def test_two_at_once_write_each_record_once(seed: int) -> None:
    play(seed, two_at_once)


async def nothing(*_: Any) -> None: ...


async def true(*_: Any) -> bool:
    return True


async def as_it_was_read(_: Any, found: Any) -> Any:
    return found


def under_our_epoch(them: Transactions, told: TransactionDescription) -> bool:
    return told[1:3] == them.producer


async def own_alone(ids: Ids) -> None:
    ids.current = ids.own


async def extend(them: TransactionalSessions, partitions: Any) -> Any:
    return await them.transactions.extend(partitions)


BROKEN: dict[str, tuple[Sequence[tuple[Any, str, Any]], Part, int]] = {
    "no spare is used": ([(Ids, "choose", own_alone)], goes_on, 0),
    "what is open is aborted by the next epoch": ([(Transactions, "abort", nothing)], falls_short_in_a_fence, 53),
    "a fence without a marker is extended": ([(TransactionalSessions, "_extend", extend)], falls_short_in_a_fence, 3),
    "a spare is not announced": (
        [(TransactionalSessions, "_announce_spare", nothing)], another_takes_the_own_id_meanwhile, 7,
    ),
    "the own id is not looked at after that": ([(Id, "is_ours", true)], another_takes_the_own_id_meanwhile, 7),
    "partitions without a marker are added": (
        [(Ids, "unmarked_partitions", property(lambda _: frozenset()))], all_but_one_fall_short_unseen, 4,
    ),
    "the state is read though an open transaction hides its end": (
        [(producer_sessions, "is_marked_by", lambda *_: True)], an_open_announcement_hides_what_another_commits, 0,
    ),
    "an epoch that a timeout raised is taken for another mirror's": (
        [(Transactions, "is_held", under_our_epoch)], times_out_while_the_mirror_stands_still, 0,
    ),
    "a start takes no spares": (
        [(one, "_fence_spares", as_it_was_read) for one in (TransactionalSessions, ProducerSessions)],
        another_takes_the_own_id_meanwhile, 64,
    ),
}  # fmt: skip
"""Rules, each broken on purpose: what stands for it, and the part and seed that find it."""


@pytest.mark.parametrize("rule", BROKEN)
def test_a_rule_that_is_broken_is_found(rule: str) -> None:
    patches, part, seed = BROKEN[rule]
    play(seed, part)
    with ExitStack() as stack:
        for where, name, broken in patches:
            stack.enter_context(patch.object(where, name, broken))
        with pytest.raises(AssertionError):
            play(seed, part)


# No other suite plays these; the night plays twice as many.
@pytest.mark.parametrize("first", [0, 10, *(pytest.param(first, marks=pytest.mark.night) for first in (20, 30))])
def test_everything_arrives_once_while_partitions_fall_short(first: int) -> None:
    results = [run_seed(seed, transactions=True, short=True) for seed in range(first, first + 10)]
    assert [(one.seed, one.failure) for one in results if one.failure] == []
