"""A log store on a simulated disk, and the list model beside it: falling, starting, comparing.

Crashes happen in two ways: on the main line, which goes on with what is left, and on branches: at any step of the disk,
reads aside, the disk is forked, crashed, started, perhaps crashed again in that, and used for a while, while the main
line goes on as if nothing had been.

Lives here: crash and start. Must never come in: what is done in between (acts.py, program.py), what must hold
(model.py).
"""

from __future__ import annotations

import errno
import random
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, Literal, TypeAlias, TypeVar, cast

from drupelet.ledger import LEDGER_TOPIC
from edge_broker.broker.operations.groups.group_loading import Loading
from edge_broker.configuration.settings import LogSettings
from edge_broker.coordinator.group_coordinator import GroupCoordinator
from edge_broker.coordinator.group_requests import GroupEffects, GroupSettings
from edge_broker.errors import StorageFault
from edge_broker.protocol.record_batch import read_header
from edge_broker.storage.files.atomic_files import out_of_space
from edge_broker.storage.files.data_age import Now
from edge_broker.storage.files.filesystem import Space
from edge_broker.storage.log.log_reader import whole_batches
from edge_broker.storage.log.partition_log import PartitionLog
from edge_broker.storage.log_store import LogStore
from edge_broker.storage.loss.quarantine import quarantine
from edge_broker.storage.maintenance.disk_watch import DiskWatch
from edge_broker.storage.maintenance.log_cleaner import LogCleaner
from edge_broker.storage.metadata.topic_record import OFFSETS_TOPIC
from edge_broker.storage.segment.segment import DamageFound
from edge_broker.testing.disk import PowerLoss, SimulatedDisk
from tests.simulation.model import Entry, OffsetsKey, Partition, World, ledger_entries

NOW_MS = 1_700_000_000_000
SETTINGS = LogSettings(segment_bytes=4096, index_interval_bytes=128, producer_id_expiration_ms=1 << 60)
COMPACT = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.1"}
CONFIGS = {
    OFFSETS_TOPIC: {**COMPACT, "delete.retention.ms": "0"},
    "latest": {**COMPACT, "delete.retention.ms": "60000"},
    "plain": {"retention.ms": "-1"},
    "wide": {"retention.ms": "-1", "segment.bytes": "20000", "message.timestamp.type": "LogAppendTime"},
    "kernel": {"retention.ms": "-1", "flush.ms": "9223372036854775807"},
    "small": {"retention.ms": "-1", "retention.bytes": "9000"},
    "mirrored": {"retention.ms": "3600000", "edge.required.groups": "mirror", "edge.priority": "3"},
    "budget": {"retention.ms": "-1", "edge.budget.bytes": "9000"},
    "brief": {"retention.ms": "3600000", "segment.ms": "600000"},
}
PARTITIONS = 2
CLEANER_BYTES = 1 << 14
ROOMY = Space(1 << 35, 1 << 34)
TRACE_LINES = 40
Picked: TypeAlias = "tuple[PartitionLog, Partition]"
WorkerName = Literal["disk", "files"]
T = TypeVar("T")


class Deviation(BaseException):
    """What must hold does not; `trace` says what was done before. No code of the broker may catch it."""

    def __init__(self, reason: str, trace: Sequence[str]) -> None:
        super().__init__(reason)
        self.trace = list(trace[-TRACE_LINES:])


class Site(ABC):
    """A store, its disk and its model; `crashes` counts the crash points that it and its branches came back from."""

    def __init__(self, seed: int, *, ordered: bool = False, branch_rate: float = 0.0) -> None:
        self.seed = seed
        self.dice = random.Random(seed)
        self.disk = SimulatedDisk(seed, ordered=ordered)
        self.world = World(NOW_MS)
        self.branch_rate = branch_rate
        self.branch_dice = random.Random(~seed)
        self.crashes = [0]
        self.trace: list[str] = []
        self.values = 0
        self.marks = self.dice.choice(((-1, -1), (0, 0)))
        self.names = self.dice.sample([name for name in CONFIGS if name not in (OFFSETS_TOPIC, "latest")], 2)
        if self.dice.random() < 0.5:
            self.names[1] = "latest"
        self.store: LogStore | None = None
        self.cleaner: LogCleaner | None = None
        self.watch: DiskWatch | None = None
        self.busy: set[WorkerName] = set()
        self.groups = _no_groups()
        self.keeping: list[tuple[GroupEffects, OffsetsKey, int, PartitionLog, int]] = []
        self.unanswered: list[tuple[PartitionLog, Partition, int]] = []  # acks=1 that waits for its mark

    def note(self, text: str) -> None:
        """Add a line to the trace."""
        self.trace.append(text)

    def guarded(self, work: Callable[[], object]) -> None:
        """Do something that a crash may interrupt, and start again if it did."""
        try:
            work()
        except PowerLoss:
            self.fall(power=self.dice.random() < 0.6)
            self.open()

    def fall(self, *, power: bool) -> None:
        """Lose the power, or the process alone."""
        self.note(f"{'crash' if power else 'kill'} at step {self.disk.steps}")
        self.crashes[0] += 1
        self.note_offline(self.world)
        if power:
            self.disk.crash()
            self.world.may_forget = True
            if self.dice.random() < 0.8:  # else the disk alone was gone for a while, and is mounted again
                self.world.boot()
        else:
            self.disk.kill()
        self.disk.meanwhile = None
        self.disk.room = ROOMY
        self.busy.clear()
        self.store = None
        self.keeping.clear()
        self.unanswered.clear()

    def note_offline(self, world: World) -> None:
        """What is offline right now may be marked as `failed`: the next start names it, although nothing is lost."""
        topics = {} if self.store is None else self.store.topics
        for name in world.topics.keys() & topics.keys():
            for log, model in zip(topics[name].partitions, world.topics[name].partitions, strict=True):
                model.marked_failed |= log.fault is not None

    def branch(self, kind: str, path: str) -> None:
        """What if the power goes right now."""
        if self.branch_dice.random() >= self.branch_rate:
            return
        other = self.fork(self.branch_dice.getrandbits(48))
        other.note(f"branch before {kind} {path}")
        try:
            power = other.dice.random() < 0.8
            other.fall(power=power)
            other.open()
            if not power or other.dice.random() < 0.3:
                for _ in range(other.dice.randrange(1, 6)):
                    other.guarded(other.step if other.dice.random() < 0.7 else other.use_all)
                other.fall(power=True)
                other.open()
        except Exception as error:
            raise Deviation(f"{type(error).__name__}: {error}", other.trace) from error

    def fork(self, seed: int) -> Site:
        """A program on a copy of everything, about to fall."""
        other = type(self)(seed)
        other.disk = self.disk.fork(seed)
        other.world = self.world.copy()
        self.note_offline(other.world)
        other.crashes = self.crashes
        other.trace = self.trace[-TRACE_LINES:]
        other.values, other.names, other.marks = self.values, self.names, self.marks
        return other

    def open(self) -> None:
        """Start, again and again while crashes and faults interrupt even that, at last without any."""
        for _ in range(self.dice.choice((0, 0, 0, 1, 2, 4))):
            fate = self.dice.random()
            try:
                if fate < 0.6:
                    self.disk.crash_at = self.disk.steps + self.dice.randrange(1, 40)
                else:
                    self.fail_some_step()
                self._open()
            except PowerLoss:
                self.note("the start was interrupted")
                self.fall(power=self.dice.random() < 0.6)
            except StorageFault as fault:
                self._excuse(fault)
            else:
                if self.disk.fault is None:
                    break
            self.fall(power=False)
        else:
            self._open_at_last()
        self.disk.crash_at = -1
        self.check_started()

    def _open_at_last(self) -> None:
        """Start without faults; on a disk without a block the start waits, as the broker does, until there is space."""
        self.disk.crash_at = -1
        self.disk.fault = None
        try:
            self._open()
        except StorageFault as fault:
            self._excuse(fault)
            self.disk.capacity_bytes = None
            self._open_at_last()

    def _excuse(self, fault: StorageFault) -> None:
        """A start may fail where a step was made to fail, or for want of space; else it needs a hand."""
        self.note(f"the start failed: {fault}")
        full = self.disk.capacity_bytes is not None and out_of_space(fault)
        if not full and self.disk.fault is None:
            raise AssertionError(f"the start needs a hand: {fault}") from fault

    def fail_some_step(self) -> None:
        """Make one of the next steps fail."""
        left = [self.dice.randrange(1, 60)]
        code = self.dice.choice((errno.EIO, errno.ENOSPC))

        def fault(kind: str, path: str, size: int) -> None:
            left[0] -= 1
            if left[0] == 0 and not (kind == "read" and code == errno.ENOSPC):
                self.note(f"{errno.errorcode[code]} at {kind} {path}")
                self.world.may_forget |= kind == "datasync"
                self.world.faulted = True
                raise OSError(code, "this step fails", path)

        self.disk.fault = fault

    def _open(self) -> None:
        self.disk.unlock("/data/.lock")
        self.cleaner = None
        self.store = LogStore.open(self.disk, "/data", SETTINGS, self.world.reading, self.new_uuid)
        self.cleaner = LogCleaner(self.store, CLEANER_BYTES)
        self.watch = DiskWatch(self.store, *self.marks)

    @property
    def now(self) -> Now:
        """The time of an act, as the store counts it."""
        assert self.store is not None
        return self.store.directory.age.now(self.world.reading)

    def new_uuid(self) -> uuid.UUID:
        """An id that the seed decides."""
        return uuid.UUID(int=self.dice.getrandbits(128), version=4)

    def check_started(self) -> None:
        """Compare all that a start has found."""
        store, world = self.store, self.world
        assert store is not None
        self.note(
            f"started in epoch {store.directory.leader_epoch}" + "".join(f"; {note}" for note in store.recovery_notes)
        )
        assert world.stop != "none" or store.directory.leader_epoch > world.epoch, "the leader epoch did not rise"
        assert store.directory.leader_epoch >= world.epoch, "the leader epoch fell"
        assert not world.cluster_id or store.directory.cluster_id == world.cluster_id
        aside = self.disk.exists("/data/aside")
        assert world.faulted or not aside, f"records were put aside: {store.recovery_notes}"
        world.epoch, world.cluster_id = store.directory.leader_epoch, store.directory.cluster_id
        self._resolve()
        topics = set(store.topics) - {LEDGER_TOPIC}
        assert topics == set(world.topics), f"topics {sorted(topics)} for {sorted(world.topics)}"
        ledger = store.topics[LEDGER_TOPIC].partitions[0]
        assert ledger.fault is None, ledger.fault
        losses = ledger_entries(self.read_all(ledger))
        for name, model in world.topics.items():
            topic = store.topics[name]
            assert topic.topic_id == model.topic_id, f"{name} has another id"
            assert topic.config == model.config
            for log, partition in zip(topic.partitions, model.partitions, strict=True):
                told = [loss for loss in losses[world.ledgered :] if loss.is_of(model.topic_id, log.partition)]
                partition.check_lost(log, told, may_forget=world.may_forget)
                partition.check_started(log, self.read_all(log), world.now_ms, may_forget=world.may_forget)
                mine = [loss for loss in losses if loss.is_of(model.topic_id, log.partition)]
                partition.check_account(log, self.losses(log) if partition.flipped else mine, world.now_ms)
        self._check_offsets()
        world.ledgered = len(losses)
        world.stop, world.may_forget = "none", False

    def _resolve(self) -> None:
        """A topic whose making or deleting was interrupted is there whole or not at all."""
        name, self.world.doubtful = self.world.doubtful, None
        if name is None or self.store is None:
            return
        if name not in self.store.topics:
            self.world.topics.pop(name)
            return
        for model in self.world.previous:
            if self.store.topics[name].topic_id == model.topic_id:
                self.world.topics[name] = model  # whose deletion had failed, or whose making was whole

    def _check_offsets(self) -> None:
        assert self.store is not None
        self.groups = _no_groups()
        if OFFSETS_TOPIC in self.store.topics:
            clock = SimpleNamespace(steady_ms=lambda: self.world.now_ms, wall_ms=lambda: self.world.now_ms)
            for log in self.store.topics[OFFSETS_TOPIC].partitions:
                loading = Loading(GroupSettings(), cast(Any, clock), self.now, log)
                assert loading.work() is None
                assert loading.coordinator is not None, loading.fault
                self.groups[log.partition] = loading.coordinator
                assert not loading.coordinator.load_notes, loading.coordinator.load_notes
        self.world.offsets.check(
            ((group, topic, partition), committed.offset)
            for coordinator in self.groups.values()
            for group in coordinator.offsets.groups()
            for topic, found in coordinator.offsets.fetch(group, None)
            for partition, committed in found
            if committed is not None
        )

    def read_all(self, log: PartitionLog) -> list[bytes]:
        """Every batch that is shown, by reads of random sizes."""
        found: list[bytes] = []
        offset = log.log_start_offset
        while offset < log.high_watermark:
            try:
                data = log.reader.read(offset, self.dice.randrange(1, 6000), blocking=True)
            except DamageFound as damage:
                self.quarantine(log, damage)
                continue
            if not data and any(segment.corrupt_ranges for segment in log.segments):
                break  # the rest is a corrupt range
            batches = whole_batches(data or b"")
            assert batches, f"{log!r} shows nothing at {offset}, {log.high_watermark} is the high watermark"
            found.extend(bytes(batch) for batch in batches)
            offset = read_header(batches[-1]).next_offset
        return found

    def quarantine(self, log: PartitionLog, damage: DamageFound) -> None:
        """Fence in what a reader found."""
        corrupt_range = quarantine(log, damage)
        assert corrupt_range is not None, f"{damage}, and nothing is there to quarantine"
        self.note(f"quarantined {corrupt_range} of {log!r}")

    def pick(self, name: str = "", partition: int = -1) -> Picked | None:
        """A partition that is in use, or None."""
        assert self.store is not None
        names = [one for one in self.world.topics if one in self.store.topics and one != OFFSETS_TOPIC]
        if not names or (name and name not in names):
            return None
        name = name or self.dice.choice(names)
        partition = self.dice.randrange(PARTITIONS) if partition < 0 else partition
        log = self.store.topics[name].partitions[partition]
        return None if log.fault is not None else (log, self.world.topics[name].partitions[partition])

    @property
    def failing(self) -> bool:
        """True while steps of the disk may fail."""
        return self.disk.fault is not None or self.disk.capacity_bytes is not None

    def losses(self, log: PartitionLog) -> list[Entry]:
        """What the ledger says of a log."""
        assert self.store is not None
        fault, self.disk.fault = self.disk.fault, None  # this is the test that reads
        entries = ledger_entries(self.read_all(self.store.topics[LEDGER_TOPIC].partitions[0]))
        self.disk.fault = fault
        return [entry for entry in entries if entry.is_of_log(log)]

    def in_use(self) -> list[Picked]:
        """Every partition of the program's topics that is online."""
        assert self.store is not None
        return [
            (log, model)
            for name, topic in self.world.topics.items()
            if name in self.store.topics
            for log, model in zip(self.store.topics[name].partitions, topic.partitions, strict=True)
            if log.fault is None
        ]

    @abstractmethod
    def step(self) -> None:
        """Do one thing, chosen by dice."""

    @abstractmethod
    def use_all(self) -> None:
        """Append to every partition and confirm it."""


def _no_groups() -> dict[int, GroupCoordinator]:
    return {number: GroupCoordinator(GroupSettings(), number) for number in range(PARTITIONS)}
