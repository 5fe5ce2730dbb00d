"""Schedules of a whole mirror between two ends in memory, in virtual time: a seed decides all of one, and replays it.

Each takes some of the acts below, in any order, at any time; then nothing fails any more, one life of the mirror gets
on until all is mirrored, and both ends are audited (mirror_audit.py). Must never come in: how ends behave.
"""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Callable, Collection, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from random import Random
from types import MappingProxyType
from typing import Any, NamedTuple
from unittest.mock import patch

import drupelet.backoff
from kafka_wire.partitions import TopicPartition
from mirror.config import Config
from mirror.partition.source_offsets import Commit, read_commit
from mirror.partition.stream import PartitionStream
from mirror.partition.target_state import PartitionState
from mirror.producer import batch_packer
from mirror.session.transactional_ids import spare_ids
from mirror.topics.overrides import rules_from
from tests.simulation.mirror_audit import Allowed, ahead, problems_of, torn
from tests.simulation.mirror_coordinator import PREPARED, SPARED, STATE, Coordinator
from tests.simulation.mirror_source import SourceLog
from tests.simulation.mirror_world import TARGET_OF, Life, World
from tests.simulation.virtual_time import Stuck, VirtualLoop, virtual_time

CONFIG = Config(
    source="s:1",
    target="t:2",
    topics="readings|logs",
    site="lab",
    backoff_max_ms=500,
    commit_interval_ms=400,
    refresh_interval_ms=1000,
    batch_bytes_max=600,
    request_timeout_ms=3000,
    ledger=False,
    compression="none",
    rules=rules_from({".*": {"on_refused": "dead_letter"}}),
)
MORE_AT_THE_END = 0.7  # else a partition comes through by what is there, and must be well, too
ENDS_S = 1800.0  # of virtual time, within which all that is left is mirrored
POISON_S = 600.0  # more for each record that breaks its connection: the pauses before it is condemned
TRACE_LINES = 60
OLD_MS = 48 * 3600 * 1000
OTHERS_S = 4.0
TRANSACTIONS = 0.5  # of the schedules with a target that has them


class Result(NamedTuple):
    """What came of one seed; `failure` is empty when everything held."""

    seed: int
    failure: str
    trace: Sequence[str]
    acts: int = 0
    records: int = 0
    doubled: int = 0

    transactions: Mapping[str, int] = MappingProxyType({})

    @property
    def counts(self) -> dict[str, float]:
        """What it did, by the words for it."""
        ends = {f"transactions {outcome}": number for outcome, number in sorted(self.transactions.items())}
        return {"acts": self.acts, "records": self.records, "with transactions": bool(ends), **ends}


class Mode:
    """Which lives of a schedule run transactions, drawn by a generator of its own: all, some, or as most do, none."""

    def __init__(self, seed: int, *, transactions: bool | None = None) -> None:
        """`transactions` has it drawn no more: whether there are any."""
        self.chance = chance = Random(f"mode {seed}")
        self.stalls = Random(f"stalls {seed}")
        drawn = chance.random() < TRANSACTIONS
        self.is_used = drawn if transactions is None else transactions
        self._is_mixed = chance.random() < 0.4
        self._timeout_ms = chance.choice([120_000, 3000, 1000])
        self.markers_s = chance.choice([0.005, 0.1, 1.0])
        self.tells = chance.random() < 0.7

    def of_life(self, config: Config) -> Config:
        """The configuration of the next life."""
        if not self.is_used or (self._is_mixed and self.chance.random() < 0.5):
            return config
        return replace(config, transactions=True, transaction_timeout_ms=self._timeout_ms)


class Schedule:
    """One seed's."""

    def __init__(
        self,
        seed: int,
        loop: VirtualLoop,
        *,
        hard: bool = False,
        transactions: bool | None = None,
        short: bool = False,
    ) -> None:
        self.seed, self.loop = seed, loop
        self.chance = chance = Random(f"mirror {seed}")
        names = [("readings", number) for number in range(chance.randint(1, 3))]
        names += [("logs", 0)] * (chance.random() < 0.3)
        policies = {name: chance.choice(["delete", "delete", "compact"]) for name in ("readings", "logs")}
        logs = [SourceLog(TopicPartition(*at), policies[at[0]], chance) for at in names]
        self.world = World(loop, chance, fenced=chance.random() < 0.7, logs=logs)
        self.world.fault_rate = chance.choice([0.0, 0.02, 0.1, 0.25])
        self.world.slow_s = chance.choice([0.004, 0.02, 0.1])
        self.world.late_s = chance.choice([0.05, 0.5, 5.0])
        self.bad = chance.choice([0.0, 0.0, 0.02])
        self.old = chance.choice([0.0, 0.0, 0.3, 1.0])
        self.config = replace(CONFIG, batch_bytes_max=chance.choice([200, 600, 2000]))
        self.allowed = {log.partition: Allowed() for log in logs}
        self.lives: list[Life] = []
        self.acts_done = 0
        self.foreign = 0
        self.failure = ""
        self.found: list[str] = []  # what did not hold meanwhile
        rare = [act for act in (*RARE, *(HARD if hard else ())) if chance.random() < 0.25]
        self.acts: list[Act] = [*USUAL, *(act for act in OFTEN if chance.random() < 0.5), *rare]
        if not hard and Random(f"log made anew {seed}").random() < 0.25:  # drawn apart: kept seeds mean what they did
            self.acts += [the_source_topic_is_made_anew] * 2 + [the_source_deletes_its_head] * 2
        self.world.cuts_at_bad = Random(f"poison {seed}").random() < 0.3
        if Random(f"breaks {seed}").random() < 0.2:
            self.acts += BREAKS
        self.world.shortage = Random(f"short {seed}")
        if self.world.shortage.random() < 0.2:
            self.acts += [a_partition_of_the_target_lacks_replicas] * 2
        if short:
            self.acts += [partitions_lack_replicas_while_mirrors_come_and_go] * (2 + len(self.acts) // 2)
        self.mode = mode = Mode(seed, transactions=transactions)
        if self.world.fenced and mode.is_used:
            self.world.coordinator = Coordinator(
                self.world, mode.chance, mode.stalls, markers_s=mode.markers_s, tells=mode.tells
            )
            self.world.spares = {
                name: Coordinator(
                    self.world,
                    Random(f"spare {number} {seed}"),
                    mode.stalls,
                    markers_s=mode.markers_s,
                    tells=mode.tells,
                    producer_id=SPARED + number,
                )
                for number, name in enumerate(spare_ids(STATE))
            }
            for one in self.world.coordinators:
                one.ended = self.ended
            self.world.told = self.told

    # the schedule

    async def run(self) -> None:
        self.begin_life()
        for _ in range(self.chance.randint(4, 30)):
            act = self.chance.choice(self.acts)
            self.world.note(act.__name__)
            self.acts_done += 1
            result = act(self)
            if result is not None:
                await result
            await asyncio.sleep(self.chance.choice([0.0, 0.01, 0.1, 1.0]) * self.chance.random())
            await self.revive()
        await self.end()

    @property
    def log(self) -> SourceLog:
        """One of the partitions."""
        return self.chance.choice(list(self.world.logs.values()))

    def at(self, log: SourceLog) -> tuple[str, int]:
        """Where it is mirrored to."""
        return TARGET_OF + log.partition.topic, log.partition.partition

    def timestamp_ms(self) -> int:
        return self.world.now_ms() - (OLD_MS if self.chance.random() < self.old else 0)

    def ended(self, state: str, partitions: Collection[tuple[str, int]]) -> None:
        """Note what does not hold when a transaction has ended."""
        busy = {at for one in self.world.coordinators if one.state in PREPARED for at in one.partitions}
        self.found += torn(self.world, self.allowed, set(partitions) - busy)

    def told(self, positions: Mapping[TopicPartition, Commit]) -> None:
        """Note what does not hold when positions are told to the source."""
        self.found += ahead(self.world, self.allowed, positions)

    # lives

    @property
    def alive(self) -> list[Life]:
        """The processes that run."""
        return [life for life in self.lives if not life.dead]

    def begin_life(self, others_s: float = 0.0) -> Life:
        config = self.config if self.world.coordinator is None else self.mode.of_life(self.config)
        self.world.note("a life" + " with transactions" * config.transactions)
        life = Life(self.world, config)
        self.lives.append(life)
        life.word.give(others_s)
        return life

    async def revive(self) -> None:
        """Begin a life after a kill, soon or later."""
        for life in self.lives:
            if life.task.done() and not life.dead:
                error = None if life.task.cancelled() else life.task.exception()
                if error is not None:
                    raise AssertionError(f"the mirror has ended: {_told(error)}")
        if not self.alive:
            if self.chance.random() < 0.5:
                await asyncio.sleep(self.chance.random() * 3)
            self.between()
            self.begin_life(OTHERS_S if not self.world.fenced else 0.0)

    def between(self) -> None:
        """Do what an operator does while no mirror runs."""
        for act in BETWEEN:
            if act in self.acts and self.chance.random() < 0.5:
                self.world.note(act.__name__)
                act(self)

    async def stop(self, life: Life) -> None:
        """Stop a life cleanly, or kill it where it does not end."""
        life.stop.set()
        try:
            async with asyncio.timeout(60):
                await asyncio.shield(life.task)
        except TimeoutError:
            life.kill()
        life.dead = True

    async def end(self) -> None:
        """Get all through, and audit."""
        world = self.world
        world.note("calm")
        world.is_calm = True
        for life in self.lives:
            life.kill_at = None
        for life in self.alive[:-1]:
            await self.stop(life)
        await self.revive()
        (life,) = self.alive
        life.word.give(0.0)
        for log in world.logs.values():
            if self.chance.random() < MORE_AT_THE_END:
                log.append(1, self.timestamp_ms())
        try:
            async with asyncio.timeout(ENDS_S + POISON_S * self.poison):
                while not self.is_through(life) or life.replicator.trouble() or world.late_due:
                    await asyncio.sleep(0.5)
                    await self.revive()
        except TimeoutError:
            self.failure = f"it does not get on: {life.replicator.trouble()}"
            return
        lanes = dict(life.replicator.registry.streams)
        await self.stop(life)
        while any(one.state in PREPARED for one in world.coordinators):  # noqa: ASYNC110 - virtual time
            await asyncio.sleep(0.1)
        for partition, log in world.logs.items():
            if self.allowed[partition].tail_lost:
                self.allowed[partition].counted = sum(life.doubled for life in self.lives)
            if any(life.doubled for life in self.lives) and any(fate.gone == "cut" for fate in log.fates.values()):
                allowed = self.allowed[partition]  # no epoch told where: all is sent again, and counted (gap_rules.py)
                allowed.doubles = allowed.map_anew = allowed.forgot = True
        self.failure = "; ".join([*self.found[:1], *world.short_added[:1], *problems_of(world, lanes, self.allowed)])

    @property
    def poison(self) -> int:
        """How many records break their connection."""
        if not self.world.cuts_at_bad:
            return 0
        return sum(fate.is_bad for log in self.world.logs.values() for fate in log.fates.values())

    def is_through(self, life: Life) -> bool:
        """Whether all of the source is safe, and committed."""
        for partition, log in self.world.logs.items():
            lane = life.replicator.registry.streams.get(partition)
            commit = self.world.group.get(partition)
            if lane is None or lane.topic_id != log.topic_id or not lane.has_session or not lane.is_read:
                return False
            if lane.offsets.acked != log.end or lane.is_unsure or commit is None or commit.offset != log.end:
                return False
        return True


def _told(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{error!r}, at {last.name}, line {last.lineno}"


# -- acts

Act = Callable[[Schedule], Coroutine[Any, Any, None] | None]


def records_come(run: Schedule) -> None:
    for _ in range(run.chance.randint(1, 12)):
        run.log.append(run.chance.randint(1, 6), run.timestamp_ms(), bad=run.bad)


async def time_passes(run: Schedule) -> None:
    await asyncio.sleep(run.chance.random() * 2)


def offsets_are_missing(run: Schedule) -> None:
    log = run.log
    log.skip(run.chance.randint(1, 5))
    log.append(1, run.timestamp_ms())


def a_transaction_is_aborted(run: Schedule) -> None:
    log = run.log
    log.append(run.chance.randint(1, 3), run.timestamp_ms(), kind="aborted")
    log.append(1, run.timestamp_ms())


def the_source_is_led_anew(run: Schedule) -> None:
    run.log.lead_anew()


def the_source_compacts(run: Schedule) -> None:
    run.log.compact()


def the_source_loses_its_tail(run: Schedule) -> None:
    log = run.log
    log.cut(run.chance.randint(1, 6))
    if run.chance.random() < 0.7:
        log.append(run.chance.randint(1, 5), run.timestamp_ms())


def the_source_deletes_its_head(run: Schedule) -> None:
    run.log.delete_head(run.chance.choice([1, 3, 100]))


def the_source_topic_is_made_anew(run: Schedule) -> None:
    topic = run.log.partition.topic
    for log in run.world.logs.values():
        if log.partition.topic == topic:
            log.make_anew()
            run.allowed[log.partition].map_anew = True


def connections_are_lost(run: Schedule) -> None:
    for connection in list(run.world.connections):
        if run.chance.random() < 0.7:
            connection.cut()


async def a_partition_of_the_target_lacks_replicas(run: Schedule) -> None:
    """Have its leader take nothing, nor a marker, for up to some minutes."""
    world, chance = run.world, run.world.shortage
    log = chance.choice(list(world.logs.values()))
    at = run.at(log)
    if at not in world.targets:
        return
    world.short[at] = world.loop.now
    for _ in range(chance.randint(1, 6)):
        await asyncio.sleep(chance.choice([0.1, 5.0, 120.0]) * chance.random())
        await run.revive()
        if chance.random() < 0.7:
            chance.choice(list(world.logs.values())).append(chance.randint(1, 4), run.timestamp_ms())
    world.short.pop(at, None)


async def partitions_lack_replicas_while_mirrors_come_and_go(run: Schedule) -> None:
    """Have partitions take no marker in the middle of transactions, also after another mirror has begun."""
    world, chance = run.world, run.world.shortage
    records_come(run)
    await asyncio.sleep(chance.choice([0.02, 0.3, 2.0]) * chance.random())
    for log in chance.sample(list(world.logs.values()), chance.randint(1, len(world.logs))):
        if run.at(log) in world.targets:
            world.short[run.at(log)] = world.loop.now
    for _ in range(chance.randint(1, 5)):
        await asyncio.sleep(chance.choice([0.1, 4.0, 10.0, 60.0]) * chance.random())
        await run.revive()
        records_come(run)
        act = chance.choice([the_mirror_is_killed, another_takes_over, another_takes_over, connections_are_lost, None])
        if act is not None and chance.random() < 0.4:
            world.note(act.__name__)
            result = act(run)
            if result is not None:
                await result
            await run.revive()
        if chance.random() < 0.3 and world.short:
            world.short.pop(chance.choice(sorted(world.short)), None)
    world.short.clear()


async def the_link_breaks_every_few_seconds(run: Schedule) -> None:
    """Break all connections at once, again and again, while a request takes as long as they last."""
    world = run.world
    records_come(run)
    world.passing_s = run.chance.uniform(0.5, 4)
    for _ in range(run.chance.randint(8, 24)):
        await asyncio.sleep(run.chance.uniform(0.5, 4))
        for connection in list(world.connections):
            connection.cut()
    world.passing_s = 0.0


async def connections_are_lost_as_the_target_forgets_producers(run: Schedule) -> None:
    """Break all connections while requests are in flight; the target forgets before these can be sent again."""
    records_come(run)
    await asyncio.sleep(run.chance.random())
    for connection in list(run.world.connections):
        connection.cut()
    the_target_forgets_producers(run)


def the_mirror_is_killed(run: Schedule) -> None:
    life = run.chance.choice(run.alive)
    life.kill()
    _end_connections(run, life)


def the_mirror_is_killed_in_a_call(run: Schedule) -> None:
    run.chance.choice(run.alive).kill_at = run.chance.randint(1, 60)


async def the_mirror_is_stopped(run: Schedule) -> None:
    life = run.chance.choice(run.alive)
    if life.kill_at is None:
        await run.stop(life)


async def another_takes_over(run: Schedule) -> None:
    if run.world.fenced:
        run.begin_life()
        await asyncio.sleep(run.chance.random() * run.chance.choice([0.1, 3]))
    for life in run.alive[:-1] if run.world.fenced else run.alive:
        life.word.take()
    if not run.world.fenced:
        run.begin_life(OTHERS_S)


def the_target_is_led_by_another(run: Schedule) -> None:
    log = run.world.targets.get(run.at(run.log))
    if log is not None:
        log.node = 3 - log.node
        log.node_epoch += 1
        log.forget(run.world.now_ms())


def the_target_forgets_producers(run: Schedule) -> None:
    for log in run.world.targets.values():
        log.forget(run.world.now_ms())


def the_target_loses_its_tail(run: Schedule) -> None:
    source = run.log
    log = run.world.targets.get(run.at(source))
    if log is not None:
        log.lose_tail(run.chance.randint(1, 6))
        log.forget(run.world.now_ms())
        run.allowed[source.partition].tail_lost = True


def others_write_to_the_target(run: Schedule) -> None:
    log = run.log
    there = run.world.targets.get(run.at(log))
    if there is not None:
        run.foreign += 1
        there.write_foreign(run.foreign, run.world.now_ms())
        run.allowed[log.partition].map_near = run.world.fault_rate > 0 or len(run.acts) > len(USUAL) + 1


def the_target_topic_is_made_anew(run: Schedule) -> None:
    topic = run.log.partition.topic
    run.world.drop_topic(TARGET_OF + topic)
    for log in run.world.logs.values():
        if log.partition.topic == topic:
            allowed = run.allowed[log.partition]
            allowed.map_anew = allowed.target_anew = allowed.doubles = True


def the_state_topic_is_lost(run: Schedule) -> None:
    run.world.lose_state()
    for partition, allowed in run.allowed.items():
        allowed.map_anew = allowed.forgot = True
        allowed.doubles |= partition not in run.world.group


def the_position_is_set_by_hand(run: Schedule) -> None:
    log = run.log
    if log.partition not in run.world.group or not log.batches:
        return
    allowed, there = run.allowed[log.partition], run.world.targets.get(run.at(log))
    offset = run.chance.choice(log.batches).base
    if there is None or offset > run.world.group[log.partition].offset:
        return
    run.world.group[log.partition] = read_commit(offset, "")
    allowed.doubles = allowed.map_anew = allowed.forgot = True


USUAL: list[Act] = [records_come, records_come, records_come, time_passes]
OFTEN: list[Act] = [
    offsets_are_missing,
    a_transaction_is_aborted,
    the_source_is_led_anew,
    the_source_compacts,
    connections_are_lost,
    the_mirror_is_killed,
    the_mirror_is_killed_in_a_call,
    the_mirror_is_stopped,
    another_takes_over,
    the_target_is_led_by_another,
    the_target_forgets_producers,
]
BREAKS: list[Act] = [the_link_breaks_every_few_seconds, connections_are_lost_as_the_target_forgets_producers]
BETWEEN: list[Act] = [the_state_topic_is_lost, the_position_is_set_by_hand]
RARE: list[Act] = [
    the_source_loses_its_tail,
    the_source_deletes_its_head,
    others_write_to_the_target,
]

HARD: list[Act] = [the_source_topic_is_made_anew, the_target_loses_its_tail, the_target_topic_is_made_anew]
"""Taken with --hard alone, but for the first, which every fourth schedule takes: of the others some are known to fail.

Of a target that loses its end several times, or while others write there, offsets alone do not always tell: its leader
epochs would. Where it loses the marker of a committed transaction, the next fence aborts what is left of that.
"""


def _end_connections(run: Schedule, life: Life) -> None:
    for connection in list(run.world.connections):
        if connection.life is life:
            connection.cut()


# -- one seed


class InlinePacker:
    """Packs at once, as a thread would bring chance in."""

    async def pack(self, work: Callable[..., Any], *given: Any) -> Any:
        await asyncio.sleep(0)
        return work(*given)

    async def close(self) -> None: ...


def _number(one: PartitionStream | PartitionState) -> int:
    topic, partition = one.partition
    return sum(topic.encode()) * 64 + partition


@contextmanager
def replayed(chance: Random) -> Iterator[None]:
    """Have a seed alone decide what the mirror does: no threads, no chance, sets in one order."""
    with (
        patch.object(batch_packer, "Packer", InlinePacker),
        patch.object(drupelet.backoff, "random", chance),
        patch.object(PartitionStream, "__hash__", _number),
        patch.object(PartitionState, "__hash__", _number),
    ):
        yield


def run_seed(seed: int, *, hard: bool = False, transactions: bool | None = None, short: bool = False) -> Result:
    """Run a seed's schedule; `transactions` says whether there are any, where the seed is not to.

    `short` has partitions lack replicas in most schedules, while mirrors are killed and others take over.
    """
    failures: list[str] = []
    with virtual_time(failures.append) as loop, replayed(Random(seed)):
        schedule = Schedule(seed, loop, hard=hard, transactions=transactions, short=short)
        try:
            loop.run_until_complete(schedule.run())
        except (AssertionError, Stuck) as error:
            failures.append(str(error) or repr(error))
    failure = "; ".join([*failures, *([schedule.failure] if schedule.failure else [])])
    records = sum(len(log.fates) for log in schedule.world.logs.values())
    doubled = sum(life.doubled for life in schedule.lives)
    own, spares = schedule.world.coordinator, schedule.world.spares
    ends = {} if own is None else dict(own.outcomes)
    if on_spares := sum(one.outcomes.get("committed", 0) for one in spares.values()):
        ends["on a spare id"] = on_spares
    return Result(seed, failure, schedule.world.trace[-TRACE_LINES:], schedule.acts_done, records, doubled, ends)
