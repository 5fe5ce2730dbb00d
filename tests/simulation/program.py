"""Random programs of a log store on a disk that loses what was not synced, checked against lists (model.py).

A program is a seed. Each of its steps has a seed of its own, drawn from it, so that a failing program can be made
shorter by leaving steps out.

Lives here: which act comes when, and the faults. Must never come in: what must hold (model.py), how many programs are
run (crash.py).
"""

from __future__ import annotations

import errno
import random
from collections.abc import Callable, Sequence
from functools import partial

import pytest

from drupelet.ledger import LEDGER_TOPIC
from edge_broker.errors import Refusal, StorageFault
from edge_broker.protocol.record_batch import build_batch, read_header
from edge_broker.storage.log import single_node_watermark
from edge_broker.storage.log.log_writer import RollDue
from edge_broker.storage.log.partition_log import PartitionLog
from edge_broker.storage.metadata.topic_record import OFFSETS_TOPIC
from edge_broker.storage.replica.resume_failed_log import bring_online
from edge_broker.storage.segment.segment import DamageFound
from tests.simulation.acts import Acts
from tests.simulation.model import Partition, covers
from tests.simulation.site import ROOMY, Deviation

STEPS = 60
LEADER_EPOCH_BYTES = range(12, 16)  # in no CRC, and nothing else says what it was


class Program(Acts):
    """One program on one disk: what is done, and what fails meanwhile."""

    def plan(self, steps: int = STEPS) -> list[int]:
        """The seeds of the steps."""
        return [self.dice.getrandbits(48) for _ in range(steps)]

    def run(self, plan: Sequence[int]) -> None:
        """Do the steps, crash once more, start once more; Deviation."""
        try:
            self._run(plan)
        except Exception as error:
            raise Deviation(f"{type(error).__name__}: {error}", self.trace) from error

    def _run(self, plan: Sequence[int]) -> None:
        if self.branch_rate:
            self.disk.witness = self.branch
        self.open()
        for name in (OFFSETS_TOPIC, self.names[0]):
            self.guarded(partial(self.make, name))
        for seed in plan:
            self.dice, self.disk.random = random.Random(seed), random.Random(seed + 1)
            self.guarded(self.step)
        self.fall(power=True)
        self.open()

    def step(self) -> None:
        """Do one thing, chosen by dice."""
        self.disk.capacity_bytes = None
        choices: list[tuple[Callable[[], object], int]] = [
            (self.append, 26),
            (self.sync, 10),
            (self.commit, 6),
            (self.transact, 3),
            (self.read, 6),
            (self.checkpoint, 3),
            (self.expire, 5),
            (self.delete_records, 3),
            (self.clean, 8),
            (self.overwrite, 6),
            (self.squeeze, 2),
            (self.pass_time, 3),
            (self.no_space, 1),
            (self.full_disk, 2),
            (self.fail_sync, 1),
            (self.fail_write, 1),
            (self.bring_some_online, 3),
            (self.fail_files, 3),
            (self.flip, 2),
            (self.lose_file, 3),
            (self.reserve, 1),
            (self.make_some, 3),
            (self.delete, 1),
            (self.stop, 2),
            (self.restart, 1),
            (self.crash_soon, 3),
        ]
        self.dice.choices([choice for choice, _ in choices], [weight for _, weight in choices])[0]()

    def no_space(self) -> None:
        """An append, and perhaps the roll before it, finds no space: nothing is written, nothing is offline."""
        picked = self.pick()
        if picked is None:
            return
        log, model = picked
        batch = build_batch([(None, b"refused" * 9), (None, b"too")], timestamp_ms=self.world.now_ms)
        accepted = self.dice.choice((0, 30, len(batch) - 1))
        calls: list[str] = []

        def full(kind: str, path: str, size: int) -> int | None:
            if kind not in ("write", "create"):
                return None
            calls.append(kind)
            if len(calls) > 1 or not accepted or kind == "create":
                raise OSError(errno.ENOSPC, "No space left on device", path)
            return accepted

        self.note(f"no space for {log!r}")
        self.disk.fault = full
        try:
            self.expect_refusal(log, model, memoryview(bytearray(batch)))
            if log.writer.rolling:
                log.roller.roll()
                log.writer.end_roll()
                single_node_watermark.advance_high_watermark(log.state)
                model.confirm(model.end)
                self.expect_refusal(log, model, memoryview(bytearray(batch)))
        finally:
            self.disk.fault = None
        assert log.fault is None
        assert log.log_end_offset == model.end

    def expect_refusal(self, log: PartitionLog, model: Partition, buffer: memoryview) -> None:
        """Append to a full disk."""
        model.attempt = buffer
        with pytest.raises((Refusal, RollDue)):
            log.writer.append(buffer, read_header(buffer), self.now)
        model.refused.append(buffer)

    def full_disk(self) -> None:
        """Go on for a while on a disk with hardly a block left; starts must work there, too. Then there is space."""
        self.look()
        self.disk.fill(self.dice.choice((0, 0, 1, 3, 12)))
        self.note(f"{self.disk.space('/').free} bytes are free")
        for _ in range(self.dice.randrange(1, 8)):
            works = (self.append, self.append, self.sync, self.commit, self.checkpoint, self.expire, self.squeeze)
            more = (self.clean, self.make_some, self.delete, self.restart)
            try:
                self.guarded(self.dice.choice((*works, *more)))
                self.look()
            except (StorageFault, Refusal) as fault:
                self.note(f"that failed: {fault}")
        self.disk.capacity_bytes = None
        self.recover()
        for log, model in self.in_use():
            if log.topic != OFFSETS_TOPIC and log.fault is None:
                try:
                    self.write(log, model, self.batch(model))
                except Refusal as refusal:  # once, of a roll that found no space
                    self.note(f"{refusal}")

    def fail_sync(self) -> None:
        """A sync fails: nothing that it covered is confirmed, and nobody tries again."""
        picked = self.pick()
        if picked is None:
            return
        log, model = picked
        flush = log.writer.begin_flush()
        if flush is None:
            return
        self.disk.fault = failing("datasync", self.dice.choice((errno.EIO, errno.ENOSPC)))
        model.sync_failed = True
        self.note(f"the sync of {log!r} fails, confirmed is {model.confirmed}")
        try:
            flush.run()
        except StorageFault as fault:
            log.fail(fault)
        finally:
            self.disk.fault = None
        self.expect_offline(log)
        self.bring_some_online()

    def fail_write(self) -> None:
        """A write fails: the partition goes offline."""
        picked = self.pick()
        if picked is None or picked[0].writer.rolling:
            return
        log, model = picked
        self.disk.fault = failing("write", errno.EIO)
        model.attempt = memoryview(bytearray(self.batch(model)))
        try:
            log.writer.append(model.attempt, read_header(model.attempt), self.now)
        except RollDue:
            self.disk.fault = None
            self.roll(log, model)
            return
        except StorageFault:
            model.write_failed = True
            self.note(f"a write to {log!r} fails")
        finally:
            self.disk.fault = None
        self.expect_offline(log)
        self.bring_some_online()

    def fail_files(self) -> None:
        """A step of the worker `files` fails: whoever asked is told, and it is nothing that a start cannot settle."""
        assert self.cleaner is not None
        works = [self.checkpoint, self.expire, self.squeeze, self.clean, self.reserve, self.make_some, self.delete]
        self.fail_some_step()
        try:
            self.dice.choice(works)()
        except (StorageFault, Refusal, DamageFound) as fault:
            self.note(f"that failed: {fault}")
        finally:
            self.disk.fault = None
            self.disk.room = ROOMY
        self.recover()

    def recover(self) -> None:
        """After faults: bring back what is offline; removals that failed have come as far as they have."""
        self.bring_ledger_online()
        for log, model in self.in_use():
            if model.removing:
                model.removed(log, self.losses(log), self.world.now_ms)
                model.removing = True  # the account that could not be written may be on the disk all the same
        self.bring_some_online()

    def bring_ledger_online(self) -> None:
        """Bring the ledger back first: others write into it what they lost."""
        store = self.store
        assert store is not None
        ledger = store.topics[LEDGER_TOPIC].partitions[0]
        if ledger.fault is not None:
            back = bring_online(store, ledger, self.now)
            assert back is not None
            ledger.go_on_as(back.log)
            self.world.epoch = store.directory.leader_epoch
            if back.loss is not None:
                store.ledger.write([back.loss])

    def flip(self) -> None:
        """A bit of a closed segment is another after the next start; its batch is lost, and no other."""
        picked = self.pick()
        if picked is None or picked[1].compact:
            return
        log, model = picked
        last = log.segments[-1].base_offset
        closed = [batch for batch in model.shown if batch.header.base_offset < last]
        if not closed:
            return
        batch = self.dice.choice(closed)
        offset = batch.header.base_offset
        if offset in model.flipped:
            return
        segment = next(one for one in reversed(log.segments) if one.base_offset <= offset)
        before = [len(one.data) for one in model.batches if segment.base_offset <= one.header.base_offset < offset]
        at = self.dice.choice([byte for byte in range(len(batch.data)) if byte not in LEADER_EPOCH_BYTES])
        self.disk.flip(segment.path, sum(before) + at)
        model.flipped.add(offset)
        model.lossy = True
        self.note(f"flipped a bit of byte {at} of the batch at offset {offset} of {log!r}")
        self.restart()

    def lose_file(self) -> None:
        """A file that can be made again from the log is gone at the next start; nothing else is."""
        closed = [(log, model) for log, model in self.in_use() if len(log.segments) > 1]
        if not closed:
            return
        compacted = [one for one in closed if one[1].compact]
        log, _ = self.dice.choice(compacted if compacted and self.dice.random() < 0.7 else closed)
        segment = self.dice.choice(log.segments[:-1])
        path = f"{log.directory}/{segment.name(self.dice.choice(('summary', 'summary', 'index', 'timeindex')))}"
        if self.disk.exists(path):
            self.note(f"{path} is lost")
            self.disk.remove(path)
            self.disk.sync_directory(log.directory)
        self.restart()
        for again, model in self.in_use():
            if (again.topic_id, again.partition) == (log.topic_id, log.partition):
                self.count(again, model)

    def bring_some_online(self) -> None:
        """Bring a partition back that a failure took offline, if the disk lets us."""
        assert self.store is not None
        for name in [name for name in self.world.topics if name in self.store.topics]:
            models = self.world.topics[name].partitions
            for log, model in zip(self.store.topics[name].partitions, models, strict=True):
                if log.fault is not None and self.dice.random() < 0.8:
                    self.bring_online(log, model)

    def bring_online(self, log: PartitionLog, model: Partition) -> None:
        """Go on in the next leader epoch; what was not confirmed is in the ledger."""
        store = self.store
        assert store is not None
        lost = log.log_end_offset
        model.sync_failed = True
        back = self.worker("files", partial(bring_online, store, log, self.now))
        assert back is not None
        log.go_on_as(back.log)
        assert log.leader_epoch > model.epoch, "the partition came back in an epoch that it had"
        self.world.epoch = store.directory.leader_epoch
        self.note(f"{log!r} is online again in epoch {log.leader_epoch}")
        model.back(log)
        mine = [loss for loss in self.losses(log) if loss.cause == "sync_failed"]
        assert covers(mine, log.log_end_offset, lost), f"{log!r}: up to {lost} was written; in the ledger is {mine}"
        self.drop_commits(log)
        self.unanswered = [waiting for waiting in self.unanswered if waiting[0] is not log]  # told when it went offline

    def drop_commits(self, log: PartitionLog) -> None:
        """Commits that were lost with the log's unsynced end are never answered."""
        self.keeping = [
            waiting for waiting in self.keeping if waiting[3] is not log or waiting[4] <= log.log_end_offset
        ]

    def expect_offline(self, log: PartitionLog) -> None:
        """Everything is answered with the fault."""
        assert log.fault is not None, f"{log!r} is online after a failure"
        assert log.writer.begin_flush() is None
        with pytest.raises(StorageFault):
            log.reader.read(log.log_start_offset, 100, blocking=True)

    def crash_soon(self) -> None:
        """Let the power go, or the process be killed, at one of the next steps."""
        self.disk.crash_at = self.disk.steps + self.dice.randrange(1, 30)


def failing(kind: str, code: int) -> Callable[[str, str, int], None]:
    """A fault of every step of a kind."""

    def fault(step: str, path: str, size: int) -> None:
        if step == kind:
            raise OSError(code, "the disk refuses", path)

    return fault
