"""All that lies around a mirror in its simulation: both ends, the network between, who writes, and what is lost.

Must never come in: what is done when (mirror_runs.py), what must hold (mirror_audit.py).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from random import Random
from typing import Any, cast

from edge_broker.errors import ErrorCode
from edge_broker.protocol.record_batch import TRANSACTIONAL, BatchHeader, records_of
from kafka_wire.cluster import Leader, Partition, Topic
from kafka_wire.partitions import TopicPartition
from kafka_wire.transactions.fencing import BOUND_S
from mirror.client.active_election import Member, Standby
from mirror.client.clients import Clients
from mirror.client.source_client import Source
from mirror.client.target_client import Target
from mirror.errors import TargetError
from mirror.partition.source_offsets import Commit
from mirror.partition.state_records import Record
from mirror.replication.replicator import Replicator
from mirror.session.marker_partitions import KNOWN_S
from mirror.status.metrics import Metrics
from tests.simulation.mirror_coordinator import STATE, Coordinator, SideConnection
from tests.simulation.mirror_source import SourceEnd, SourceLog, serial_of
from tests.simulation.mirror_target import (
    APPENDED_THOUGH,
    IN_SYNC_MIN,
    REFUSALS,
    Connection,
    StateLog,
    TargetEnd,
    TargetLog,
    Witness,
)
from tests.simulation.virtual_time import WALL_S, VirtualLoop

TARGET_OF = "lab."
KNOWN_SHORT_S = KNOWN_S + BOUND_S + 15.0  # since when a request that still adds a partition could have been decided


class Word:
    """A mirror's place among those of its site, in place of a group: `writes` is given and taken by the schedule."""

    trouble, member = "", Member()

    def __init__(self) -> None:
        self.writes = False
        self.others_until = 0.0
        self._given = asyncio.Event()

    def give(self, others_s: float) -> None:
        """Have it write, while others may still, for so long."""
        self.writes = True
        self.others_until = asyncio.get_running_loop().time() + others_s
        self._given.set()

    def take(self) -> None:
        """Have it stand by."""
        self.writes = False
        self._given.clear()

    @property
    def others_s(self) -> float:
        return max(0.0, self.others_until - asyncio.get_running_loop().time())

    async def run(self) -> None: ...

    async def until_writes(self) -> None:
        await self._given.wait()

    async def leave(self) -> None: ...


class Life:
    """One process of a mirror; `dead` once it is killed: nothing of it happens then, but for what is on the wire."""

    def __init__(self, world: World, config: Any) -> None:
        self.dead = False
        self.kill_at: int | None = None  # steps that are left to it
        self.metrics = Metrics()
        self.word = Word()
        source, ledger = cast(Source, SourceEnd(world, self)), cast(Target, LedgerEnd(world, self))
        clients = Clients(source, TargetEnd(world, self), ledger, cast(Standby, self.word), "mirror@here")
        self.replicator = replicator = Replicator(config, self.metrics, lambda _role_changed: clients)
        self.stop = asyncio.Event()
        self.task = asyncio.ensure_future(replicator.run(self.stop))

    @property
    def writes(self) -> bool:
        return self.word.writes

    def kill(self) -> None:
        """End it in the middle of what it does."""
        self.dead = True
        self.task.cancel()

    @property
    def doubled(self) -> int:
        """Records that it has counted as sent again."""
        return int(self.metrics.duplicates._value.get())


class LedgerEnd:
    """The ledger and the dead letters, at the source; a write may have arrived though nobody hears of it."""

    def __init__(self, world: World, life: Life) -> None:
        self._world, self._life = world, life

    async def close(self) -> None: ...

    async def ensure_topic(self, partition: TopicPartition, partitions: int, settings: Mapping[str, str]) -> None: ...

    async def write(self, topic: str, key: bytes, value: bytes, timeout_s: float) -> None:
        async with self._world.call(self._life, TargetError):
            self._world.ledger.append(json.loads(value))

    async def write_batch(self, topic: str, batch: bytes, timeout_s: float) -> None:
        async with self._world.call(self._life, TargetError):
            ...


class World:
    """Both ends of one schedule and what is between; `chance` is what its seed decides."""

    def __init__(self, loop: VirtualLoop, chance: Random, *, fenced: bool, logs: Iterable[SourceLog]) -> None:
        self.loop, self.chance, self.fenced = loop, chance, fenced
        self.logs = {log.partition: log for log in logs}
        self.group: dict[TopicPartition, Commit] = {}
        self.ledger: list[dict[str, Any]] = []
        self.state: dict[bytes, bytes] = {}
        self.state_at, self.state_epoch = (STATE, 0), -1
        self.epoch, self.producers, self.markers_due = -1, 0, 0
        self.marking: set[asyncio.Future[None]] = set()  # of fences whose markers are being written
        self.coordinator: Coordinator | None = None  # where some life runs transactions
        self.spares: dict[str, Coordinator] = {}  # of the spare ids, there
        self.state_log: StateLog | None = None  # there
        self.state_number = 0
        self.targets: dict[Partition, TargetLog] = {}
        self.seen: dict[Partition, set[int]] = {}  # serials that ever were at the target
        self.target_ids: dict[str, str] = {}
        self.target_number = 0
        self.short: dict[Partition, float] = {}  # that lack in-sync replicas, and since when
        self.short_added: list[str] = []
        self.shortage = Random(0)  # decides what happens to these
        self.connections: dict[Connection | SideConnection | Witness, None] = {}
        self.cuts_at_bad = False  # records end their connection, instead of being refused
        self.fault_rate, self.slow_s, self.late_s = 0.0, 0.02, 1.0
        self.passing_s = 0.0  # that the link needs for a request with batches
        self.is_calm = False
        self.late_due = 0
        self.told: Callable[[Mapping[TopicPartition, Commit]], None] = lambda _positions: None
        self.trace: list[str] = []

    def now_ms(self) -> int:
        return int((WALL_S + self.loop.now) * 1000)

    def note(self, text: str) -> None:
        """Remember for people what was done."""
        self.trace.append(f"{self.loop.now - 1000:9.3f}  {text}")

    # what fails

    def faults(self) -> bool:
        """Whether anything may fail now."""
        return not self.is_calm and self.fault_rate > 0

    def delay_s(self) -> float:
        """How long something takes on its way."""
        return self.chance.uniform(0.001, self.slow_s)

    def step(self, life: Life) -> None:
        """Note that a life does something, which may be its last."""
        if life.kill_at is not None and not life.dead:
            life.kill_at -= 1
            if life.kill_at <= 0:
                self.note("kill, in the middle of a call")
                self.loop.call_soon(life.kill)
                life.dead = True

    async def reaches(self, life: Life) -> None:
        """Wait for as long as something is on its way; for ever where the life ends meanwhile."""
        self.step(life)
        await asyncio.sleep(self.delay_s())
        if life.dead:
            await self.loop.create_future()

    @asynccontextmanager
    async def call(
        self, life: Life, error: type[Exception], late: Callable[[], None] | None = None
    ) -> AsyncIterator[None]:
        """Do something at an end: what is within may not happen, or happen though `error` is raised, or be late."""
        await self.reaches(life)
        outcome = self.chance.random() / self.fault_rate if self.faults() else 9.0
        if outcome < 0.4:
            if late is not None and self.fenced and self.chance.random() < 0.5:
                self.loop.call_later(self.chance.uniform(0, self.late_s), late)
            raise error("the connection was lost, and what was asked")
        yield
        await self.reaches(life)
        if outcome < 1:
            raise error("the connection was lost, and the answer")

    # the target

    def target_topics(self) -> dict[str, Topic]:
        found: dict[str, Topic] = {}
        for (name, index), log in self.targets.items():
            topic = found.setdefault(name, Topic(self.target_ids[name], 0, {}))
            topic.leaders[index] = Leader(log.node, log.node_epoch)
        for name, index in self.short.keys() & self.targets.keys():
            found[name] = found[name]._replace(in_sync={**found[name].in_sync, index: IN_SYNC_MIN - 1})
        return found

    def add(self, partitions: Iterable[Partition]) -> None:
        """Note partitions that a fence or a transaction takes though it was known that they take no marker."""
        for at in partitions:
            is_known = self.loop.now - self.short.get(at, self.loop.now) > KNOWN_SHORT_S
            if is_known and not self.faults():  # else the answers may be lost that say so
                self.short_added.append(f"{at} lacks replicas, and a marker of it was wanted")

    def make_topic(self, name: str) -> None:
        self.target_number += 1
        self.target_ids[name] = f"t{self.target_number}"
        for topic, index in self.logs:
            if TARGET_OF + topic == name:
                self.targets[name, index] = TargetLog(self.seen.setdefault((name, index), set()))

    def drop_topic(self, name: str) -> None:
        self.target_ids.pop(name, None)
        for at in [at for at in self.targets if at[0] == name]:
            self.short.pop(at, None)
            self.targets.pop(at).generation += 1

    def is_poison(self, data: bytes) -> bool:
        """Whether a request with this batch has its connection closed."""
        return self.cuts_at_bad and any((one.value or b"")[8:11] == b"bad" for one in records_of(data))

    def produce(self, at: Partition, data: bytes, node: int | None = None) -> tuple[int, int]:
        """Serve one partition of a request; the code and the base offset."""
        log = self.targets.get(at)
        if log is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1
        if node is not None and log.node != node:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER, -1
        if any((one.value or b"")[8:11] == b"bad" for one in records_of(data)):
            return ErrorCode.INVALID_RECORD, -1
        if at in self.short and self.shortage.random() < 0.7:
            return ErrorCode.NOT_ENOUGH_REPLICAS, -1
        if at in self.short:
            refused, _ = self.append(at, data)
            return refused or ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, -1
        code = self.chance.choice(REFUSALS) if self.faults() and self.chance.random() < self.fault_rate else 0
        if code and code not in APPENDED_THOUGH:
            return code, -1
        refused, base = self.append(at, data)
        return (refused, -1) if refused else (code, -1 if code else base)

    @property
    def coordinators(self) -> list[Coordinator]:
        """Those of all ids."""
        return [*([] if self.coordinator is None else [self.coordinator]), *self.spares.values()]

    def coordinator_of(self, transactional_id: str) -> Coordinator:
        """Return that of an id, of the mirror's own by default."""
        found = self.spares.get(transactional_id, self.coordinator)
        assert found is not None
        return found

    def log_at(self, at: Partition) -> TargetLog | None:
        """The log of a partition, of the state topic too."""
        return self.state_log if at == self.state_at else self.targets.get(at)

    def append(self, at: Partition, data: bytes) -> tuple[int, int]:
        """Have the leader take a batch, which asks the coordinator where it begins a transaction; code and offset."""
        log, header = self.log_at(at), BatchHeader(data)
        if log is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1
        writer = header.producer_id
        if header.attributes & TRANSACTIONAL and writer not in {one.producer_id for one in log.open}:
            for coordinator in self.coordinators:
                if coordinator.producer_id == writer and (refused := coordinator.verified(at, header.producer_epoch)):
                    return refused, -1
        return log.append(data)

    def arrive_late(self, requests: Sequence[Sequence[tuple[str, int, bytes]]]) -> None:
        """Have what a lost connection still had under way arrive, in its order."""
        at_s = self.loop.now
        for parts in requests:
            at_s += self.chance.uniform(0, self.late_s) if self.fenced else 0.0
            known = {(topic, index): self._generation((topic, index)) for topic, index, _ in parts}
            if self.fenced:
                self.late_due += 1
                self.loop.call_at(at_s, self._late, parts, known)
            else:
                self._late(parts, known)

    def _late(self, parts: Sequence[tuple[str, int, bytes]], known: Mapping[Partition, int]) -> None:
        self.late_due -= self.fenced
        for topic, index, data in parts:
            if known[topic, index] == self._generation((topic, index)):
                self.produce((topic, index), data)

    def _generation(self, at: Partition) -> int:
        return self.targets[at].generation if at in self.targets else -1

    def mark_later(self, at: Partition, epoch: int) -> None:
        """Have a marker be written some time later."""
        self.markers_due += 1

        def mark() -> None:
            self.markers_due -= 1
            if at in self.targets:
                self.targets[at].mark(epoch, self.now_ms())

        self.loop.call_later(self.chance.uniform(0, 1), mark)

    def take_state(self, records: Collection[Record], epoch: int) -> None:
        """Take records into the state topic, unless they are an older life's."""
        if self.fenced and epoch < self.state_epoch:
            return
        self.keep_state(records)

    def keep_state(self, records: Iterable[tuple[bytes, bytes | None]]) -> None:
        """Have these be what the state topic tells."""
        for key, value in records:
            self.state.pop(key, None)
            if value is not None:
                self.state[key] = value

    def decided(self, at: Partition) -> set[int]:
        """Serials in a partition's open transaction that will be committed whatever comes."""
        log = self.targets[at]
        ids = {one.producer_id for one in self.coordinators if one.is_decided(at)}
        return {serial_of(one.value or b"") for one in log.of([one for one in log.open if one.producer_id in ids])}

    def make_state(self) -> None:
        """Make the state topic, where it is a log."""
        self.state_number += 1
        self.state_log = StateLog(self)

    def lose_state(self) -> None:
        """Have the state topic deleted."""
        self.state.clear()
        self.state_log = None

    def is_begun(self, partition: TopicPartition) -> bool:
        """Whether anybody remembers that a partition was begun, of the topic that has its name now."""
        ids = (None, self.logs[partition].topic_id)
        head = self.state.get(f"head:{partition.topic}:{partition.partition}".encode())
        in_group = partition in self.group and self.group[partition].topic_id in ids
        return in_group or (head is not None and json.loads(head)["source_id"] in ids)
