"""Random programs of a log on a disk that loses what was not synced, against a list of batches.

Invariants, checked after every step and every crash:
- nothing synced is missing: the recovered log begins with every batch that a sync, roll or clean stop confirmed;
- nothing shown is changed: a read gives the model's bytes, never above the high watermark, which is what was synced;
- nothing is invented: what recovery keeps beyond the synced end is what was written there, in order, whole;
- producers are known as the recovered batches tell: a retry gets the first write's offset, the next sequence is
  accepted, another one is refused;
- the leader epoch rises at every unclean start, stays at a clean one, and is in every batch appended from then on;
- producer ids are never given twice; topics stay, with their ids and configuration, deleted ones do not come back;
- the start never needs a hand: no partition is offline or damaged after a crash.
One seed makes a whole program; hypothesis prints the one that failed.
"""

from __future__ import annotations

import errno
import random
import uuid

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edge_broker.errors import ErrorCode, Refusal
from edge_broker.protocol.record_batch import build_batch, check_batches, read_header
from edge_broker.storage.log import PartitionLog, RollDue, whole_batches
from edge_broker.storage.store import LogStore
from edge_broker.storage.topic_config import LogSettings
from tests.simulation.disk import Crashed, SimulatedDisk

NOW_MS = 1_700_000_000_000
SETTINGS = LogSettings(segment_bytes=4096, index_interval_bytes=128)
STEPS = 45


class Model:
    """One partition as it must be: batches as written, how many are confirmed, and the one a crash interrupted."""

    def __init__(self) -> None:
        self.batches: list[bytes] = []
        self.synced = 0
        self.interrupted: bytes | None = None

    @property
    def end_offset(self) -> int:
        return read_header(self.batches[-1]).next_offset if self.batches else 0

    @property
    def synced_offset(self) -> int:
        return read_header(self.batches[self.synced - 1]).next_offset if self.synced else 0

    def producers(self) -> dict[int, tuple[int, list[tuple[int, int, int, int]]]]:
        known: dict[int, tuple[int, list[tuple[int, int, int, int]]]] = {}
        for batch in self.batches:
            header = read_header(batch)
            if header.producer_id >= 0:
                epoch, written = known.get(header.producer_id, (header.producer_epoch, []))
                if epoch != header.producer_epoch:
                    written = []
                last = header.base_sequence + header.last_offset_delta
                written = [*written, (header.base_sequence, last, header.base_offset, header.last_offset)][-5:]
                known[header.producer_id] = (header.producer_epoch, written)
        return known


class Program:
    """A random program; `run` does some steps, `check` compares everything."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.disk = SimulatedDisk(seed)
        self.uuids = random.Random(seed + 1)
        self.models: dict[str, list[Model]] = {}
        self.ids: dict[str, uuid.UUID] = {}
        self.doubtful: str | None = None
        self.producer_ids: set[int] = set()
        self.epochs: list[int] = []
        self.closing = False
        self.store: LogStore | None = None

    def new_uuid(self) -> uuid.UUID:
        return uuid.UUID(int=self.uuids.getrandbits(128), version=4)

    def guarded(self, work: object) -> bool:
        """Do something that a crash may interrupt; False when it did."""
        try:
            work()  # type: ignore[operator]
        except Crashed:
            if self.random.random() < 0.4:
                self.disk.kill()
            else:
                self.disk.crash()
            self.store = None
            return False
        return True

    def open(self) -> None:
        """Start, again and again, while crashes interrupt even that."""
        clean = self.closing == "done"
        interrupted = False
        for _ in range(20):
            self.disk.crash_at = self.disk.steps + self.random.randrange(1, 40) if self.random.random() < 0.3 else -1
            if self.guarded(self._open):
                break
            interrupted = True
        else:
            self.disk.crash_at = -1
            self._open()
        self.disk.crash_at = -1
        assert self.store is not None
        self._check_start(clean and not interrupted)
        self.closing = False

    def _open(self) -> None:
        self.disk.unlock("/data/.lock")
        self.store = LogStore.open(self.disk, "/data", SETTINGS, NOW_MS, self.new_uuid)

    def _check_start(self, clean: bool) -> None:
        store = self.store
        assert store is not None
        if self.epochs and not clean and self.closing is False:
            assert store.leader_epoch > self.epochs[-1]
        elif self.epochs and clean:
            assert store.leader_epoch == self.epochs[-1]
        self.epochs.append(store.leader_epoch)
        if self.doubtful is not None:
            self._resolve(self.doubtful)
        assert set(store.topics) == set(self.models)
        for name, models in self.models.items():
            topic = store.topics[name]
            assert topic.topic_id == self.ids[name]
            assert len(topic.partitions) == len(models)
            for log, model in zip(topic.partitions, models, strict=True):
                self._check_recovered(log, model)

    def _resolve(self, name: str) -> None:
        """A topic whose making or deleting was interrupted is there whole or not at all."""
        assert self.store is not None
        self.doubtful = None
        if name not in self.store.topics:
            self.models.pop(name, None)
        else:
            self.models.setdefault(name, [Model(), Model()])

    def _check_recovered(self, log: PartitionLog, model: Model) -> None:
        assert log.fault is None, log.fault
        assert log.damage is None, log.damage
        assert log.high_watermark == log.log_end_offset
        found = self.read_all(log)
        written = [*model.batches, model.interrupted] if model.interrupted is not None else model.batches
        assert len(found) >= model.synced, f"{model.synced - len(found)} synced batches are missing"
        assert found == written[: len(found)]
        model.batches, model.synced, model.interrupted = found, len(found), None
        known = {key: (p.epoch, [tuple(w) for w in p.batches]) for key, p in log._producers.known().items()}
        assert known == model.producers()
        assert log.epoch_end(log.leader_epoch) == (log.leader_epoch, log.log_end_offset)
        self._check_epochs(log, model)

    def _check_epochs(self, log: PartitionLog, model: Model) -> None:
        by_epoch = {header.leader_epoch: header.next_offset for header in map(read_header, model.batches)}
        assert list(by_epoch) == sorted(by_epoch)
        for epoch, end_offset in by_epoch.items():
            if epoch < log.leader_epoch:
                assert log.epoch_end(epoch) == (epoch, end_offset)

    def read_all(self, log: PartitionLog) -> list[bytes]:
        """Every batch that is shown, by reads of random sizes."""
        found: list[bytes] = []
        offset = log.log_start_offset
        while offset < log.high_watermark:
            data = log.read(offset, self.random.randrange(1, 3000), blocking=True)
            assert data
            batches = whole_batches(data)
            assert batches
            found.extend(bytes(batch) for batch in batches)
            offset = read_header(batches[-1]).next_offset
        return found

    # steps

    def step(self) -> None:
        choices = [
            (self.append, 24),
            (self.sync, 8),
            (self.read, 8),
            (self.checkpoint, 2),
            (self.no_space, 1),
            (self.reserve, 1),
            (self.make, 1),
            (self.delete, 1),
            (self.stop, 1),
            (self.crash, 2),
        ]
        self.random.choices([choice for choice, _ in choices], [weight for _, weight in choices])[0]()

    def pick(self) -> tuple[PartitionLog, Model] | None:
        assert self.store is not None
        if not self.models:
            return None
        name = self.random.choice(sorted(self.models))
        partition = self.random.randrange(len(self.models[name]))
        return self.store.topics[name].partitions[partition], self.models[name][partition]

    def batch(self, model: Model) -> bytes:
        records = [
            (None, self.random.randbytes(self.random.choice((5, 40, 300)))) for _ in range(self.random.randrange(1, 4))
        ]
        timestamp = NOW_MS + self.random.randrange(1000)
        if self.random.random() < 0.4:
            return build_batch(records, timestamp_ms=timestamp)
        producer_id = self.random.randrange(3)
        epoch, written = model.producers().get(producer_id, (0, []))
        sequence = written[-1][1] + 1 if written else self.random.choice((0, 7))
        if self.random.random() < 0.05:
            epoch, sequence = epoch + 1, 0
        return build_batch(
            records, timestamp_ms=timestamp, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence
        )

    def append(self) -> None:
        picked = self.pick()
        if picked is None:
            return
        log, model = picked
        if self.random.random() < 0.15:
            self.retry(log, model)
        elif self.random.random() < 0.05:
            self.out_of_order(log, model)
        else:
            self.write(log, model, self.batch(model))

    def write(self, log: PartitionLog, model: Model, batch: bytes) -> None:
        buffer = memoryview(bytearray(batch))
        headers = check_batches(buffer, 1 << 20)
        model.interrupted = None
        try:
            try:
                appended = log.append(buffer, headers, NOW_MS)
            except RollDue:
                assert bytes(buffer) == batch
                log.roll()
                model.synced = len(model.batches)
                appended = log.append(buffer, headers, NOW_MS)
        except Crashed:
            model.interrupted = bytes(buffer)
            raise
        assert appended.base_offset == model.end_offset
        header = read_header(buffer)
        assert header.base_offset == model.end_offset
        assert header.leader_epoch == log.leader_epoch == self.epochs[-1]
        model.batches.append(bytes(buffer))
        assert log.log_end_offset == appended.end_offset == model.end_offset

    def retry(self, log: PartitionLog, model: Model) -> None:
        for producer_id, (epoch, written) in model.producers().items():
            first, last, offset, last_offset = self.random.choice(written)
            records = [(None, b"again")] * (last - first + 1)
            batch = build_batch(
                records, timestamp_ms=NOW_MS, producer_id=producer_id, producer_epoch=epoch, base_sequence=first
            )
            buffer = memoryview(bytearray(batch))
            appended = log.append(buffer, check_batches(buffer, 1 << 20), NOW_MS)
            assert appended == (offset, last_offset + 1, -1, True)

    def out_of_order(self, log: PartitionLog, model: Model) -> None:
        for producer_id, (epoch, written) in model.producers().items():
            for wrong, sequence, code in (
                (epoch, written[-1][1] + 3, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
                (epoch + 1, 5, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
                (epoch - 1, 0, ErrorCode.INVALID_PRODUCER_EPOCH),
            ):
                if wrong < 0:
                    continue
                batch = build_batch(
                    [(None, b"x")],
                    timestamp_ms=NOW_MS,
                    producer_id=producer_id,
                    producer_epoch=wrong,
                    base_sequence=sequence,
                )
                buffer = memoryview(bytearray(batch))
                with pytest.raises(Refusal) as refused:
                    log.append(buffer, check_batches(buffer, 1 << 20), NOW_MS)
                assert refused.value.code == code

    def sync(self) -> None:
        picked = self.pick()
        if picked is None:
            return
        log, model = picked
        ticket = log.begin_sync()
        covered = len(model.batches)
        assert (ticket is None) == (covered == model.synced)
        if ticket is None:
            return
        if self.random.random() < 0.3:
            self.write(log, model, self.batch(model))  # the loop appends while the worker syncs
        ticket.run()
        if not self.random.randrange(10):
            return  # the crash of another thread may come before anybody learns of it
        log.finish_sync(ticket)
        model.synced = max(model.synced, covered)

    def read(self) -> None:
        picked = self.pick()
        if picked is None:
            return
        log, model = picked
        assert log.high_watermark <= log.log_end_offset
        assert self.read_all(log) == model.batches[: model.synced]
        self.disk.cold = self.random.random() < 0.5
        if model.synced:
            wanted = self.random.randrange(model.synced_offset)
            data = log.read(wanted, 500, blocking=False)
            if data:
                header = read_header(data)
                assert header.base_offset <= wanted <= header.last_offset
                assert bytes(data)[: header.size] in model.batches[: model.synced]
        self.disk.cold = False
        assert log.read(log.log_end_offset, 500, blocking=True) == b""
        with pytest.raises(Refusal) as refused:
            log.read(log.log_end_offset + 1, 500, blocking=True)
        assert refused.value.code == ErrorCode.OFFSET_OUT_OF_RANGE
        self.read_time(log, model)

    def read_time(self, log: PartitionLog, model: Model) -> None:
        times = [
            (read_header(batch).max_timestamp, read_header(batch).base_offset)
            for batch in model.batches[: model.synced]
        ]
        wanted = NOW_MS + self.random.randrange(1000)
        expected = next(((offset, timestamp) for timestamp, offset in times if timestamp >= wanted), None)
        assert log.offset_for_timestamp(wanted) == expected
        assert log.max_timestamp()[1] == max((timestamp for timestamp, _ in times), default=-1)

    def checkpoint(self) -> None:
        assert self.store is not None
        self.store.checkpoint()

    def no_space(self) -> None:
        picked = self.pick()
        if picked is None:
            return
        log, model = picked
        accepted = self.random.choice((0, 30))
        calls = []

        def full(kind: str, path: str, size: int) -> int | None:
            if kind in ("write", "create"):
                calls.append(kind)
                if len(calls) > 1 or not accepted or kind == "create":
                    raise OSError(errno.ENOSPC, "No space left on device", path)
                return accepted
            return None

        self.disk.fault = full
        buffer = memoryview(bytearray(build_batch([(None, b"refused")], timestamp_ms=NOW_MS)))
        try:
            with pytest.raises((Refusal, RollDue)):
                log.append(buffer, check_batches(buffer, 1 << 20), NOW_MS)
            if log.rolling:
                log.roll()
                model.synced = len(model.batches)
                with pytest.raises(Refusal, match="free space"):
                    log.append(buffer, [read_header(buffer)], NOW_MS)
        except Crashed:
            model.interrupted = bytes(buffer)
            raise
        finally:
            self.disk.fault = None
        assert log.fault is None
        assert log.log_end_offset == model.end_offset

    def reserve(self) -> None:
        assert self.store is not None
        block = self.store.reserve_producer_ids()
        assert len(block) == 1000
        assert not self.producer_ids.intersection((block.start, block.stop - 1))
        self.producer_ids.update((block.start, block.stop - 1))

    def make(self) -> None:
        assert self.store is not None
        name = self.random.choice("abc")
        if name in self.models:
            return
        self.ids[name] = self.new_uuid()
        self.doubtful = name
        topic = self.store.make_topic(name, 2, {"retention.ms": "-1"}, self.ids[name])
        self.doubtful = None
        self.store.add_topic(topic)
        self.models[name] = [Model(), Model()]

    def delete(self) -> None:
        assert self.store is not None
        if len(self.models) < 2:
            return
        name = self.random.choice(sorted(self.models))
        self.doubtful = name
        self.store.erase_topic(self.store.remove_topic(name))
        self.doubtful = None
        del self.models[name]

    def stop(self) -> None:
        assert self.store is not None
        self.closing = "begun"
        self.store.close()
        for models in self.models.values():
            for model in models:
                model.synced = len(model.batches)
        self.closing = "done"
        self.store = None
        if self.random.random() < 0.5:
            self.disk.crash()  # a power cut after a clean stop
        self.open()

    def crash(self) -> None:
        """Let the power go, or the process be killed, at one of the next steps."""
        self.disk.crash_at = self.disk.steps + self.random.randrange(1, 30)

    def run(self) -> None:
        self.open()
        self.make()
        for _ in range(STEPS):
            if not self.guarded(self.step):
                self.open()
        self.disk.crash()
        self.open()


@settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck), print_blob=True)
@given(st.integers(0, 2**32 - 1))
def test_log_keeps_its_promise_through_crashes(seed: int) -> None:
    Program(seed).run()
