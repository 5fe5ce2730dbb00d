"""Schedules of several sites and the mirrors between them, in memory and virtual time: one seed replays one of them.

| a schedule draws | |
|---|---|
| clusters | 2 to 5 |
| mirrors | any ways between them, a pair, a ring, a star with commands down; both policies; patterns; ledgers |
| acts | records, topics made, deleted and made again, restarts, new producers, state topics deleted, a target away |
| the last release | one mirror at most, with no way back but the one that faces it; it may be upgraded |

| at the end, when nothing is away, and all is still | holds |
|---|---|
| no record is where it already was | but by a mirror of the last release, once; or of a writer whose state is gone |
| all is still | within ROUNDS_MAX rounds of all mirrors |
| what users wrote is at the target of each mirror | unless its topic is passed over or refused, by name |
| a topic is passed over or refused | only one into which a mirror has written, and whose target leads back to it |

Does not contain: how clusters and mirrors behave.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Coroutine, Iterable, Sequence
from random import Random
from typing import Any, NamedTuple
from unittest.mock import patch

from drupelet.ledger import LEDGER_TOPIC
from mirror.partition import provenance
from mirror.partition.stream import PartitionStream
from mirror.topics.selection import Policy, Selection
from tests.simulation.loops_clusters import Copy, MemoryCluster
from tests.simulation.loops_mirror import OF_OLD, UNTOLD, MemoryMirror, Way
from tests.simulation.virtual_time import Stuck, VirtualLoop, virtual_time

ROUNDS_MAX = 60
STILL_ROUNDS = 3  # as a partition stream may be dropped in one, and made again in the next
MIRRORS_MAX = 6
ACTS_MAX = 60
TRACE_LINES = 80
PATTERNS = [".*", ".*", "t", "u", "t|u", r".*\.t", "t|.*u"]


class Result(NamedTuple):
    """What came of one seed; `failure` is empty when everything held."""

    seed: int
    failure: str
    trace: Sequence[str]
    records: int = 0
    copies: int = 0
    returned: int = 0
    left_out: int = 0

    @property
    def counts(self) -> dict[str, float]:
        """What it did, by the words for it."""
        return {
            "records": self.records,
            "copies": self.copies,
            "returned": self.returned,
            "topics left out": self.left_out,
        }


Act = Callable[["Schedule"], Coroutine[Any, Any, str]]


class Schedule:
    """One seed's."""

    def __init__(self, seed: int, loop: VirtualLoop) -> None:
        self.chance = chance = Random(f"loops {seed}")
        self.seed, self.loop, self.trace = seed, loop, list[str]()
        self.clusters = {name: MemoryCluster(name) for name in "abcde"[: chance.randint(2, 5)]}
        self.users = {name: cluster.new_producer() for name, cluster in self.clusters.items()}
        self.mirrors: dict[str, MemoryMirror] = {}
        self.records = 0
        self.ways = self._ways()
        old = self._that_may_be_old()
        for way in self.ways:
            mirror = MemoryMirror(
                way, self.clusters[way.source], self.clusters[way.target], self._is_told, is_old=way.name == old
            )
            self.mirrors[way.name] = mirror
        self.has_old = old is not None
        acts = [make_topic, produce, produce, produce, discover, discover, read, read, read, read, restart, wait]
        rare = [
            new_producer,
            target_away,
            *([become_new] if self.has_old else [delete_topic, make_again, delete_state]),
        ]
        self.acts = acts + [act for act in rare if chance.random() < 0.4] * chance.choice([1, 1, 1, 4])
        for cluster in self.clusters.values():
            cluster.make(LEDGER_TOPIC, 1)
            for name in ("t", "u"):
                if chance.random() < 0.7:
                    cluster.make(name, chance.randint(1, 2))

    # -- what is drawn

    def _ways(self) -> list[Way]:
        names = list(self.clusters)
        shape = self.chance.choice(["pair", "ring", "star", "any", "any"])
        if shape == "pair":
            edges = [("a", "b"), ("b", "a")]
        elif shape == "ring":
            edges = list(zip(names, names[1:] + names[:1], strict=True))
        elif shape == "star":
            edges = [(name, "a") for name in names[1:]]
            edges += [("a", name) for name in names[1:] if self.chance.random() < 0.5]
        else:
            edges = [(one, other) for one in names for other in names if one != other]
            edges = self.chance.sample(edges, min(len(edges), self.chance.randint(1, MIRRORS_MAX)))
        same = self.chance.choice([None, "prefix", "identity"])
        made = []
        for number, (source, target) in enumerate(edges[:MIRRORS_MAX]):
            policy: Policy = same or self.chance.choice(["prefix", "identity"])  # type: ignore[assignment]
            pattern, ledger = self.chance.choice(PATTERNS), self.chance.random() < 0.5
            made.append(
                Way(f"{source}{target}{number}", source, target, policy, Selection(re.compile(pattern), None, ledger))
            )
        return made

    def _that_may_be_old(self) -> str | None:
        """Return a mirror, sometimes, that is of the last release: no other way leads from its target to its source."""
        if self.chance.random() > 0.3:
            return None
        for way in self.chance.sample(self.ways, len(self.ways)):
            back = [one for one in self.ways if (one.source, one.target) == (way.target, way.source)]
            others = [one for one in self.ways if one not in back and one is not way]
            twins = [one for one in others if (one.source, one.target) == (way.source, way.target)]
            if not twins and way.source not in _reached(way.target, others):
                return way.name
        return None

    def leads_back(self, way: Way) -> bool:
        """Return whether what a mirror sends may come back to its source."""
        return way.source in _reached(way.target, self.ways)

    def _is_told(self, writer: str, lane: PartitionStream, heads: int) -> bool:
        return self.mirrors[writer].tells_of(*lane.partition, heads)

    # -- the run

    async def play(self) -> None:
        """Do the acts, and then have all come to a rest."""
        for mirror in self.mirrors.values():
            if self.chance.random() < 0.8:
                mirror.start()
        for _ in range(self.chance.randint(5, ACTS_MAX)):
            act = self.chance.choice(self.acts)
            done = await act(self)
            self.trace += [f"{self.loop.now:.0f} {done}"] if done else []
        for mirror in self.mirrors.values():
            if not mirror.is_running:
                mirror.start()
            mirror.sides.target.is_away = False
        still = 0
        for _ in range(ROUNDS_MAX):
            still = 0 if await self._round() else still + 1
            if still == STILL_ROUNDS:
                return
        raise AssertionError(f"it does not end within {ROUNDS_MAX} rounds")

    async def _round(self) -> int:
        """Have each mirror read all that is there; return whether anything was."""
        done = 0
        self.loop.now += 61
        for mirror in self.mirrors.values():
            mirror.look_after()
            await mirror.discover()
            for partition in list(mirror.lanes):
                done += await mirror.read(partition, 1000)
        return done

    # -- the audit

    def problems(self) -> Iterable[str]:
        """Return what does not hold at the end."""
        for mirror in self.mirrors.values():
            for copy in mirror.sent:
                if not _may_be(copy):
                    yield f"record {copy.number} came back: {copy.path} by {copy.hops}"
            if not mirror.is_old:
                yield from self._left_out(mirror)
            yield from self._missing(mirror)

    def _left_out(self, mirror: MemoryMirror) -> Iterable[str]:
        for name, verdict in mirror.admission.screen.reasons.items():
            if verdict.kind == "sent" or name not in mirror.source.logs:
                continue
            by_mirrors = {one.writer for log in mirror.source.logs[name] for one in log.written} - {""}
            if not by_mirrors:
                yield f"{mirror.way.name} leaves out {name}, into which no mirror wrote: {verdict.reason}"
            if verdict.kind == "passed_over" and not mirror.source.makers[name]:
                yield f"{mirror.way.name} passes over {name}, which a user made"
            if not self.leads_back(mirror.way):
                yield f"{mirror.way.name} leaves out {name}, and nothing leads back: {verdict.reason}"

    def _missing(self, mirror: MemoryMirror) -> Iterable[str]:
        reasons, ways = mirror.admission.screen.reasons, (mirror.source.name, mirror.target.name)
        sent = {copy.number for copy in mirror.sent if copy.path == ways}  # whether its topic was deleted since, or not
        for name in mirror.way.selection.of(mirror.source.logs):
            if name in reasons and reasons[name].kind != "sent":
                continue
            own = {
                copy.number
                for log in mirror.source.logs[name]
                for one in log.written
                for copy in one.copies
                if not one.writer
            }
            if own - sent:
                yield f"{mirror.way.name} lacks {sorted(own - sent)} of {name}: {mirror.troubles}"


def _reached(start: str, ways: Iterable[Way]) -> set[str]:
    some = list(ways)
    found = {start}
    while more := {way.target for way in some if way.source in found} - found:
        found |= more
    return found


def _may_be(copy: Copy) -> bool:
    """Return whether a copy is where its record was not, or came back as it may: once by the last release."""
    seen, of_old = set(copy.path[:1]), 0
    for cluster, hop in zip(copy.path[1:], copy.hops, strict=True):
        if UNTOLD in hop:
            seen.clear()  # as a record of this cluster's users
        elif cluster in seen:
            of_old += OF_OLD in hop
            if OF_OLD not in hop:
                return False
            seen.clear()
        seen.add(cluster)
    return of_old <= 1


# -- acts


async def produce(run: Schedule) -> str:
    """A user writes a batch, with a producer id or without."""
    cluster = run.clusters[run.chance.choice(list(run.clusters))]
    topic = run.chance.choice([*cluster.logs])
    partition = run.chance.randrange(len(cluster.logs[topic]))
    some = [Copy(run.records + number, (cluster.name,)) for number in range(run.chance.randint(1, 3))]
    run.records += len(some)
    producer_id = run.chance.choice([-1, run.users[cluster.name]])
    cluster.log(topic, partition).append(some, "", producer_id, 0 if producer_id >= 0 else -1)
    return f"records {some[0].number} to {some[-1].number} into {topic}-{partition} at {cluster.name} by {producer_id}"


async def make_topic(run: Schedule) -> str:
    """A user makes a topic, some under a name as mirrors give it."""
    cluster = run.clusters[run.chance.choice(list(run.clusters))]
    name = run.chance.choice(["t", "u", *(f"{other}.t" for other in run.clusters), "own"])
    if name in cluster.logs:
        return ""
    cluster.make(name, run.chance.randint(1, 2))
    return f"{name} made at {cluster.name}"


def _running(run: Schedule) -> MemoryMirror | None:
    some = [mirror for mirror in run.mirrors.values() if mirror.is_running]
    return run.chance.choice(some) if some else None


async def discover(run: Schedule) -> str:
    """A mirror looks for topics."""
    mirror = _running(run)
    if mirror is None:
        return ""
    await mirror.discover()
    return f"{mirror.way.name} has {sorted(mirror.lanes)}; {mirror.troubles}"


async def read(run: Schedule) -> str:
    """A mirror reads a partition."""
    mirror = _running(run)
    if mirror is None or not mirror.lanes:
        return ""
    partition = run.chance.choice(list(mirror.lanes))
    taken = await mirror.read(partition, run.chance.choice([1, 2, 5]))
    return f"{mirror.way.name} reads {taken} of {partition}; {mirror.troubles}" if taken else ""


async def restart(run: Schedule) -> str:
    """A mirror is started or stopped."""
    mirror = run.mirrors[run.chance.choice(list(run.mirrors))]
    if mirror.is_running:
        mirror.stop()
        return f"{mirror.way.name} stops"
    mirror.start()
    return f"{mirror.way.name} starts"


async def wait(run: Schedule) -> str:
    """Time passes."""
    run.loop.now += run.chance.choice([0.1, 5, 61])
    return ""


async def new_producer(run: Schedule) -> str:
    """A coordinator has forgotten a mirror's transactional id; not of one whose heads name one producer alone."""
    mirror = _running(run)
    if mirror is None or mirror.is_old:
        return ""
    mirror.take_new_producer()
    return f"{mirror.way.name} writes as {mirror.producer_id}"


async def target_away(run: Schedule) -> str:
    """A target is reached no more, or again."""
    mirror = _running(run)
    if mirror is None:
        return ""
    mirror.sides.target.is_away = not mirror.sides.target.is_away
    return f"{mirror.way.name} reaches its target: {not mirror.sides.target.is_away}"


async def become_new(run: Schedule) -> str:
    """The mirror of the last release is installed again as one of this."""
    for mirror in run.mirrors.values():
        if mirror.is_old:
            mirror.stop()
            mirror.is_old = False
            mirror.start()
            return f"{mirror.way.name} is of this release"
    return ""


async def delete_topic(run: Schedule) -> str:
    """A user deletes a topic, whoever made it."""
    cluster = run.clusters[run.chance.choice(list(run.clusters))]
    name = run.chance.choice(list(cluster.logs))
    if name == LEDGER_TOPIC:
        return ""
    cluster.delete(name)
    return f"{name} deleted at {cluster.name}"


async def make_again(run: Schedule) -> str:
    """A user deletes a topic that a mirror made, makes one of that name, and writes to it."""
    made = [(one, name) for one in run.clusters.values() for name, maker in one.makers.items() if maker]
    if not made:
        return ""
    cluster, name = run.chance.choice(made)
    cluster.delete(name)
    cluster.make(name, 1)
    cluster.log(name, 0).append([Copy(run.records, (cluster.name,))], "", -1, -1)
    run.records += 1
    return f"{name} made again at {cluster.name}, with record {run.records - 1}"


async def delete_state(run: Schedule) -> str:
    """A state topic is deleted; a mirror that runs writes it again."""
    mirror = run.mirrors[run.chance.choice(list(run.mirrors))]
    if mirror.state_topic not in mirror.target.states:
        return ""
    mirror.target.delete(mirror.state_topic)
    mirror.look_after()
    return f"the state topic of {mirror.way.name} deleted; it runs: {mirror.is_running}"


# -- one seed


def run_seed(seed: int) -> Result:
    """Play one schedule."""
    found: list[str] = []
    with patch.object(provenance, "PRODUCERS_MAX", 2), virtual_time(found.append) as loop:
        run = Schedule(seed, loop)
        try:
            loop.run_until_complete(run.play())
            found += run.problems()
        except (AssertionError, Stuck) as error:
            found.append(str(error) or repr(error))
    copies = [copy for mirror in run.mirrors.values() for copy in mirror.sent]
    returned = sum(len(set(copy.path)) < len(copy.path) for copy in copies)
    left_out = sum(
        verdict.kind != "sent"
        for mirror in run.mirrors.values()
        if mirror.is_running
        for verdict in mirror.admission.screen.reasons.values()
    )
    trace = [f"{way.name}: {way.policy} {way.selection.wanted.pattern} {way.selection.ledger}" for way in run.ways]
    trace += [f"{mirror.way.name} is of the last release" for mirror in run.mirrors.values() if mirror.is_old]
    return Result(
        seed, "\n".join(found[:5]), [*trace, *run.trace[-TRACE_LINES:]], run.records, len(copies), returned, left_out
    )
