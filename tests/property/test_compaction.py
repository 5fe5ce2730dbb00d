"""Random programs of a compacted topic on a disk that loses what was not synced, against lists and dictionaries.

Invariants, checked after every cleaning and every crash:
- every key's last value is there, at its offset; a tombstone may be missing once its horizon has passed, never before,
  and no value that it deleted is there then;
- what is there is what was written, in order, at its offset, with its timestamp; nothing is invented;
- below what was cleaned in one pass with room for all keys, no key has two values;
- the log's start, end, high watermark and leader epochs' ends never move;
- producers are known as before, and a retry gets the first write's offset, also when only the log can tell.
"""

from __future__ import annotations

import random
from contextlib import suppress

from hypothesis import given, settings
from hypothesis import strategies as st

from edge_broker.storage.files.data_age import Now
from edge_broker.testing.clock import NOW_MS
from edge_broker.testing.disk import PowerLoss, SimulatedDisk
from edge_broker.testing.site import make_topic
from tests.support.compaction import CONFIG, clean, roll, write
from tests.support.record_batches import records_in
from tests.support.storage import open_store, read_all, sync, time_at

DELETE_RETENTION_MS = 1000


class Program:
    """One partition and what was ever written to it."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.disk = SimulatedDisk(seed)
        self.now_ms = NOW_MS
        self.trusted = True
        self.store = open_store(self.disk)
        config = {**CONFIG, "delete.retention.ms": str(DELETE_RETENTION_MS)}
        self.log = make_topic(self.store, "t", 1, config).partitions[0]
        self.written: dict[int, tuple[bytes, bytes | None, int]] = {}
        self.cleaned_at: dict[int, int] = {}  # tombstone: when it could have got its horizon first
        self.sequences: dict[int, tuple[int, int]] = {}  # producer id: next sequence, offset of its last batch

    @property
    def now(self) -> Now:
        return time_at(self.now_ms)._replace(trusted=self.trusted)

    def run(self, steps: int) -> None:
        choices = [(self.append, 30), (self.clean, 3), (self.crash, 1), (self.pass_time, 2), (self.retry, 2)]
        for _ in range(steps):
            self.random.choices([choice for choice, _ in choices], [weight for _, weight in choices])[0]()
        self.clean()
        self.start_without_snapshots()

    def append(self) -> None:
        for _ in range(self.random.randrange(1, 12)):
            pairs = [
                (b"key-%d" % self.random.randrange(9), self.value()) for _ in range(self.random.choice((1, 2, 5, 30)))
            ]
            producer = self.producer(len(pairs))
            timestamp = self.now_ms - self.random.randrange(5000)
            codec = self.random.choice((0, 0, 0, 1, 2, 3, 4))
            base = write(self.log, *pairs, producer=producer, codec=codec, now=self.now, timestamp=timestamp)
            for at, (key, value) in enumerate(pairs):
                self.written[base.base_offset + at] = (key, value, timestamp)
            if producer[0] >= 0:
                self.sequences[producer[0]] = (producer[2] + len(pairs), base.base_offset)
        if self.random.random() < 0.1:
            roll(self.log)
        sync(self.log)

    def value(self) -> bytes | None:
        return None if self.random.random() < 0.15 else self.random.randbytes(self.random.choice((1, 30, 200)))

    def producer(self, _count: int) -> tuple[int, int, int]:
        if self.random.random() < 0.6:
            return (-1, -1, -1)
        producer_id = self.random.randrange(3)
        return producer_id, 0, self.sequences.get(producer_id, (0, 0))[0]

    def retry(self) -> None:
        for producer_id, (sequence, base_offset) in self.sequences.items():
            last = self.log.writer.producers.by_id()[producer_id].batches[-1]
            assert (last.base_offset, last.last_sequence + 1) == (base_offset, sequence)
            pairs = [(b"again", b"x")] * (last.last_sequence - last.base_sequence + 1)
            again = write(self.log, *pairs, producer=(producer_id, 0, last.base_sequence), now=self.now)
            assert (again.duplicate, again.base_offset) == (True, base_offset)

    def pass_time(self) -> None:
        self.now_ms += self.random.choice((10, 700, 2000))
        self.trusted = self.random.random() < 0.8

    def ends(self) -> tuple[int, int, int]:
        return self.log.log_start_offset, self.log.log_end_offset, self.log.high_watermark

    def clean(self) -> None:
        before, known = self.ends(), self.log.writer.producers.by_id()
        end_offset = self.log.segments[-1].base_offset
        buffer_bytes = self.random.choice((1 << 16, 1 << 16, 24 * 7))
        self.note_tombstones(end_offset)
        work_max = self.random.choice((10, 100, 1 << 30))
        cleaner = clean(self.store, self.now, buffer_bytes, work_max)
        assert not cleaner.notes
        assert self.ends() == before
        assert self.log.writer.producers.by_id() == known
        self.check()
        if buffer_bytes == 1 << 16:
            keys = [key for offset, key, _, _ in self.records() if offset < end_offset]
            assert len(keys) == len(set(keys))

    def note_tombstones(self, end_offset: int) -> None:
        if self.trusted:
            for offset, (_, value, _) in self.written.items():
                if value is None and offset < end_offset:
                    self.cleaned_at.setdefault(offset, self.now_ms)

    def crash(self) -> None:
        before = self.ends()
        self.note_tombstones(self.log.segments[-1].base_offset)
        self.disk.crash_at = self.disk.steps + self.random.randrange(1, 60)
        with suppress(PowerLoss):
            clean(self.store, self.now)
        self.disk.crash_at = -1
        self.disk.crash() if self.random.random() < 0.7 else self.disk.kill()
        self.store = open_store(self.disk)
        (self.log,) = self.store.topics["t"].partitions
        assert self.log.fault is None
        assert self.ends() == before
        self.check()

    def start_without_snapshots(self) -> None:
        self.disk.crash()
        for name in self.disk.names("/data/t-0"):
            if name.endswith(".snapshot"):
                self.disk.remove(f"/data/t-0/{name}")
        self.store = open_store(self.disk)
        (self.log,) = self.store.topics["t"].partitions
        assert self.log.writer.producers.by_id().keys() == self.sequences.keys()
        self.retry()
        self.check()

    def records(self) -> list[tuple[int, bytes | None, bytes | None, int]]:
        return records_in(read_all(self.log, self.random.choice((100, 1000, 1 << 20))))

    def check(self) -> None:
        found = self.records()
        assert [record[0] for record in found] == sorted({record[0] for record in found})
        assert all(self.written[offset] == tuple(rest) for offset, *rest in found)
        there = {record[0] for record in found}
        latest = {key: offset for offset, (key, _, _) in self.written.items()}
        for key, offset in latest.items():
            if offset in there:
                continue
            assert self.written[offset][1] is None, f"the last value of {key!r} at {offset} is missing"
            assert self.now_ms >= self.cleaned_at[offset] + DELETE_RETENTION_MS
            assert key not in [record[1] for record in found], f"{key!r} is back"


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 1 << 32))
def test_compaction_keeps_what_it_must(seed: int) -> None:
    Program(seed).run(25)
