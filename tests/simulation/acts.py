"""What is done with a store while nothing fails; other threads' work is done in the middle of a worker's.

Lives here: each act, and what it tells the model. Must never come in: faults and which act comes when (program.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import pytest

from drupelet.ledger import LEDGER_TOPIC
from edge_broker.broker.state.group_registry import partition_for
from edge_broker.coordinator.group_requests import Commit, CommitPartition, CommitResult
from edge_broker.errors import ErrorCode, Refusal
from edge_broker.protocol.crc import crc32c
from edge_broker.protocol.record_batch import (
    CHECKED_POSITION,
    CONTROL,
    CRC_POSITION,
    TRANSACTIONAL,
    build_batch,
    read_header,
    records_of,
)
from edge_broker.storage.files.filesystem import Space
from edge_broker.storage.log import single_node_watermark
from edge_broker.storage.log.group_commit import Flush, Way
from edge_broker.storage.log.log_writer import RollDue
from edge_broker.storage.log.partition_log import PartitionLog
from edge_broker.storage.maintenance.scrubber import Scrubber
from edge_broker.storage.metadata.topic_record import OFFSETS_TOPIC
from edge_broker.storage.retention.segment_removal import OFFSET_MAX, delete_expired, delete_records
from tests.simulation.model import Batch, Partition, TopicModel
from tests.simulation.site import CONFIGS, PARTITIONS, ROOMY, Deviation, Picked, Site, T, WorkerName


class Acts(Site):
    """Appends, commit rounds, reads, and the work of the worker `files`."""

    def worker(self, name: WorkerName, work: Callable[[], T]) -> T:
        """Do a worker's work; the loop and the other worker do something of theirs in the middle of it."""
        assert name not in self.busy
        before, self.disk.meanwhile = self.disk.meanwhile, None if self.failing else self.overlap
        self.busy.add(name)
        try:
            return work()
        finally:
            self.busy.discard(name)
            self.disk.meanwhile = before

    def overlap(self, kind: str, path: str) -> None:
        """What another thread does while this step waits for the disk."""
        if self.dice.random() >= 0.1:
            return
        self.note(f"  meanwhile, at {kind} {path}:")
        choices = [self.append_some, self.append_some]
        if "disk" not in self.busy:
            choices += [self.append, self.sync, self.sync]
        if "files" not in self.busy:
            choices += [
                self.checkpoint,
                self.expire,
                self.delete_records,
                self.squeeze,
                self.reserve,
                self.make_some,
                self.delete,
            ]
        try:
            self.dice.choice(choices)()
        except Exception as error:
            raise Deviation(f"{type(error).__name__}: {error}", self.trace) from error

    def use_all(self) -> None:
        """Append to every partition and confirm it: what a crash left half done must not take it along."""
        self.disk.capacity_bytes = None
        self.commit()
        for name in [name for name in self.world.topics if name != OFFSETS_TOPIC]:
            for partition in range(PARTITIONS):
                picked = self.pick(name, partition)
                if picked is not None:
                    self.write(*picked, self.batch(picked[1]))
                    self.sync(picked)

    def batch(self, model: Partition) -> bytes:
        """A batch that is due next, of a producer or of nobody."""
        sizes = self.dice.choice(((5, 40, 300), (5, 40, 300), (900, 3000)))
        records = [self.record(model, self.dice.choice(sizes)) for _ in range(self.dice.randrange(1, 4))]
        timestamp = self.world.now_ms - self.dice.randrange(1000)
        if self.dice.random() < 0.4:
            return build_batch(records, timestamp_ms=timestamp)
        producer_id = self.dice.randrange(3)
        epoch, written = model.producers().get(producer_id, (0, ()))
        sequence = written[-1][1] + 1 if written else 0
        if self.dice.random() < 0.05:
            epoch, sequence = epoch + 1, 0
        return build_batch(
            records, timestamp_ms=timestamp, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence
        )

    def record(self, model: Partition, size: int) -> tuple[bytes | None, bytes | None]:
        """Key and value; where compaction works, few keys, some that hardly come again, and some tombstones."""
        if not model.compact:
            return None, self.dice.randbytes(size)
        key = b"%d" % self.dice.randrange(1000) if self.dice.random() < 0.1 else self.dice.choice((b"a", b"b", b"c"))
        return key, self.dice.randbytes(size) if self.dice.random() < 0.8 else None

    def append(self) -> None:
        """Append something, or something again, or something wrong."""
        picked = self.pick()
        if picked is None:
            return
        fate = self.dice.random()
        if fate < 0.15:
            self.retry(*picked)
        elif fate < 0.2:
            self.out_of_order(*picked)
        else:
            self.write(*picked, self.batch(picked[1]))

    def append_some(self) -> None:
        """Append without rolling."""
        picked = self.pick()
        if picked is not None:
            self.put(*picked, self.batch(picked[1]))

    def write(self, log: PartitionLog, model: Partition, batch: bytes) -> None:
        """Append, rolling first where that is due."""
        if not self.put(log, model, batch):
            self.roll(log, model)
            assert self.put(log, model, batch), f"{log!r} is to be rolled twice"

    def put(self, log: PartitionLog, model: Partition, batch: bytes) -> bool:
        """Append; False when a roll is due."""
        buffer = memoryview(bytearray(batch))
        model.attempt = buffer
        try:
            appended = log.writer.append(buffer, read_header(buffer), self.now)
            single_node_watermark.advance_high_watermark(log.state)
        except Refusal:
            model.refused.append(buffer)
            raise
        except RollDue:
            assert bytes(buffer) == batch
            return False
        written = Batch.of(bytes(buffer), self.world.now_ms)
        assert appended.base_offset == written.header.base_offset == model.end, f"{appended} where {model.end} was due"
        assert written.header.leader_epoch == log.leader_epoch
        model.batches.append(written)
        model.attempt = None
        assert log.log_end_offset == appended.end_offset == model.end
        self.note(f"append {len(batch)} bytes to {log!r}")
        if self.dice.random() < 0.5:
            self.answer(log, model)
        return True

    def answer(self, log: PartitionLog, model: Partition) -> None:
        """Answer what was appended without its sync, as for acks=1: at once where the mark is there, else with it."""
        assert self.store is not None
        if model.kernel:
            return
        if log.marked:
            model.answered = model.end
            return
        self.store.in_use.ask(log)
        self.unanswered.append((log, model, model.end))

    def roll(self, log: PartitionLog, model: Partition) -> None:
        """Close the active segment."""
        self.note(f"roll {log!r}")
        self.worker("disk", log.roller.roll)
        log.writer.end_roll()
        single_node_watermark.advance_high_watermark(log.state)
        assert log.fault is None, f"{log!r} is offline after a roll: {log.fault}"
        model.confirm(model.end)
        self.settle()

    def retry(self, log: PartitionLog, model: Partition) -> None:
        """Every producer sends one of its last batches again."""
        known = log.writer.producers.by_id()
        for producer_id, (epoch, written) in model.producers().items():
            first, last, offset, last_offset = self.dice.choice(written)
            if producer_id not in known or all(one.base_offset != offset for one in known[producer_id].batches):
                continue  # retention took it, and the start had only the log to go by
            again = build_batch(
                [(None, b"again")] * (last - first + 1),
                timestamp_ms=self.world.now_ms,
                producer_id=producer_id,
                producer_epoch=epoch,
                base_sequence=first,
            )
            buffer = memoryview(bytearray(again))
            appended = log.writer.append(buffer, read_header(buffer), self.now)
            single_node_watermark.advance_high_watermark(log.state)
            assert appended == (offset, last_offset + 1, -1, True)

    def out_of_order(self, log: PartitionLog, model: Partition) -> None:
        """Every producer sends what does not fit; nothing changes."""
        for producer_id, (epoch, written) in model.producers().items():
            if producer_id not in log.writer.producers.by_id():
                continue
            for wrong, sequence, code in (
                (epoch, written[-1][1] + 3, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
                (epoch + 1, 5, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
                (epoch - 1, 0, ErrorCode.INVALID_PRODUCER_EPOCH),
            ):
                if wrong < 0:
                    continue
                batch = build_batch(
                    [(None, b"x")],
                    timestamp_ms=self.world.now_ms,
                    producer_id=producer_id,
                    producer_epoch=wrong,
                    base_sequence=sequence,
                )
                assert self.refusal(log, batch) == code
        assert log.log_end_offset == model.end

    def refusal(self, log: PartitionLog, batch: bytes) -> ErrorCode:
        """The code with which an append is refused."""
        buffer = memoryview(bytearray(batch))
        try:
            log.writer.append(buffer, read_header(buffer), self.now)
            single_node_watermark.advance_high_watermark(log.state)
        except Refusal as refused:
            return refused.code
        return ErrorCode.NONE

    def transact(self) -> None:
        """A transaction: batches of a producer, then the marker that ends it, which some crash may leave out."""
        picked = self.pick()
        if picked is None:
            return
        log, model = picked
        producer_id = 1000 + self.dice.randrange(2)
        for _ in range(self.dice.randrange(1, 3)):
            written = model.producers().get(producer_id, (0, ()))[1]
            sequence = written[-1][1] + 1 if written else 0
            records = [(b"key", self.dice.randbytes(30))]
            batch = build_batch(
                records,
                timestamp_ms=self.world.now_ms,
                producer_id=producer_id,
                producer_epoch=0,
                base_sequence=sequence,
            )
            self.write(log, model, with_attributes(batch, TRANSACTIONAL))
        marker = (self.dice.choice((b"\0\0\0\0", b"\0\0\0\1")), b"\0\0\0\0\0\0")
        batch = build_batch([marker], timestamp_ms=self.world.now_ms, producer_id=producer_id, producer_epoch=0)
        self.write(log, model, with_attributes(batch, TRANSACTIONAL | CONTROL))

    def sync(self, also: Picked | None = None) -> None:
        """A commit round of one or several partitions, while the loop goes on."""
        assert self.store is not None
        picked = [also] if also else [one for _ in range(self.dice.choice((1, 1, 2, 4))) if (one := self.pick())]
        round_: list[tuple[PartitionLog, Partition, Flush, int]] = []
        for log, model in {id(log): (log, model) for log, model in picked}.values():
            flush = log.writer.begin_flush()
            assert (flush is None) == (log.synced_end.offset == model.end)
            if flush is not None:
                round_.append((log, model, flush, model.end))
        marking = self.store.in_use.begin_write()
        if marking is not None:
            self.worker("disk", marking.run)
            self.store.in_use.end_write(marking)
            self.note(f"marks of {marking.logs}: {marking.fault or 'written'}")
            if marking.fault is None:
                for _, model in self.in_use():
                    model.marked_failed = False
        self.answer_marked()
        if not round_:
            return
        if self.dice.random() < 0.3:
            self.append_some()
        way: Way = self.dice.choice(("each", "all"))
        faults = self.worker("disk", partial(self.store.group_commit.run, [flush for _, _, flush, _ in round_], way))
        for (log, _, _, _), fault in zip(round_, faults, strict=True):
            assert fault is None or log.fault is not None, f"{fault}, and {log!r} was not deleted meanwhile"
        if self.dice.randrange(10):  # else a crash comes before anybody learns of it
            self.finish_round(round_)

    def answer_marked(self) -> None:
        """Answer what waited for its mark, as far as it is there."""
        for log, model, end in self.unanswered:
            if log.marked and log.fault is None:
                model.answered = max(model.answered, end)
        self.unanswered = [waiting for waiting in self.unanswered if not waiting[0].marked]

    def finish_round(self, round_: Sequence[tuple[PartitionLog, Partition, Flush, int]]) -> None:
        """Show what a round confirmed."""
        for log, model, flush, covered in round_:
            log.writer.finish_flush(flush)
            single_node_watermark.advance_high_watermark(log.state)
            if not log.writer.rolling and log.fault is None:
                model.confirm(covered)
                # of a topic left to the kernel the start may lie behind: its removal synced what it took away
                assert max(log.synced_end.offset, log.log_start_offset) == model.confirmed
                self.note(f"synced {log!r} up to {model.confirmed}")
        self.settle()

    def commit(self) -> None:
        """Commit an offset for a group, which is answered after the sync."""
        assert self.store is not None
        topic = self.store.topics.get(OFFSETS_TOPIC)
        if topic is None:
            return
        self.values += 1
        key = (self.dice.choice(("red", "green")), "readings", self.dice.randrange(2))
        number = partition_for(key[0], PARTITIONS)
        log, model = topic.partitions[number], self.world.topics[OFFSETS_TOPIC].partitions[number]
        if log.fault is not None:
            return
        part = CommitPartition(key[1], key[2], self.values, -1, None)
        effects = self.groups[number].commit(Commit(token=1, group_id=key[0], partitions=(part,)), self.world.now_ms)
        self.world.offsets.attempt(key, self.values)
        self.note(f"commit {self.values} for {key}")
        try:
            self.write(log, model, build_batch(effects.append, timestamp_ms=self.world.now_ms))
        except Refusal:
            effects.append_failed(ErrorCode.KAFKA_STORAGE_ERROR, self.world.now_ms)
            raise
        self.keeping.append((effects, key, self.values, log, log.log_end_offset))
        if self.dice.random() < 0.7:
            self.sync((log, model))

    def settle(self) -> None:
        """Answer the commits whose records are synced, in order."""
        waiting = self.keeping
        while waiting and waiting[0][3].high_watermark >= waiting[0][4]:
            effects, key, value, _, _ = waiting.pop(0)
            answers = effects.append_synced(self.world.now_ms).answers
            results = [answer.result for answer in answers]
            assert len(results) == 1
            assert isinstance(results[0], CommitResult)
            assert results[0].partitions[0].error == ErrorCode.NONE
            self.world.offsets.acknowledge(key, value)

    def read(self) -> None:
        """Read all, and some, warm and cold, by offset and by time."""
        picked = self.pick()
        if picked is None:
            return
        log, model = picked
        found = self.read_all(log)
        model.check_shown(log, found, self.world.now_ms)
        self.disk.cold = self.dice.random() < 0.5
        if found:
            last = read_header(found[-1])
            wanted = self.dice.randrange(log.log_start_offset, last.next_offset)
            data = log.reader.read(wanted, 500, blocking=False)
            if data:
                header = read_header(data)
                assert wanted <= header.last_offset
                assert model.compact or model.flipped or header.base_offset <= wanted
                assert bytes(data)[: header.size] in found
        self.disk.cold = False
        assert log.reader.read(log.log_end_offset, 500, blocking=True) == b""
        for outside in (log.log_end_offset + 1, log.log_start_offset - 1):
            with pytest.raises(Refusal, match="out of range"):
                log.reader.read(outside, 500, blocking=True)
        if not model.flipped:
            self.read_time(log, found)

    def count(self, log: PartitionLog, model: Partition) -> None:
        """Look at what each closed segment says of itself, then read them as the scrubber does."""
        if model.flipped:
            return
        summaries = self.worker("files", lambda: [log.summary(segment, self.now) for segment in log.segments[:-1]])
        for segment, following, summary in zip(log.segments, log.segments[1:], summaries, strict=False):
            assert summary.end_offset == following.base_offset, f"{segment.path}: {summary}"
            assert summary.records + summary.control + summary.compacted == summary.end_offset - segment.base_offset
            assert model.compact or not summary.compacted, f"{segment.path}: {summary}"
        assert self.store is not None
        damages, scrubber = log.damages, Scrubber(self.store)
        while scrubber.step():
            pass
        assert log.damages == damages, f"{log!r} has damage that nothing did: {scrubber.notes}"

    def read_time(self, log: PartitionLog, found: Sequence[bytes]) -> None:
        """Look for a time."""
        wanted = self.world.now_ms - self.dice.randrange(2000)
        times = [
            (record.offset, record.timestamp)
            for batch in found
            for record in records_of(memoryview(batch))
            if record.offset >= log.log_start_offset
        ]
        expected = next(((offset, timestamp) for offset, timestamp in times if timestamp >= wanted), None)
        assert log.reader.offset_for_timestamp(wanted) == expected
        greatest = max((read_header(batch).max_timestamp for batch in found), default=-1)
        assert log.reader.max_timestamp()[1] == greatest, (
            f"{log!r}: {log.reader.max_timestamp()}, greatest is {greatest}"
        )

    def checkpoint(self) -> None:
        """Write the confirmed ends down."""
        assert self.store is not None
        self.note("checkpoint")
        self.worker("files", self.store.checkpoint)

    def expire(self) -> None:
        """Let retention delete."""
        picked = self.pick()
        if picked is None:
            return
        log, model = picked
        model.removing = True
        model.lossy |= model.names_groups
        size, before = log.size, log.log_start_offset
        self.worker("files", lambda: delete_expired(log, self.now, model.passed if model.names_groups else OFFSET_MAX))
        if log.log_start_offset != before:
            self.note(f"retention left {log!r}")
            assert model.retention_ms >= 0 or size > model.retention_bytes >= 0, f"{log!r} had {size} bytes"
        model.removed(log, self.losses(log), self.world.now_ms)

    def delete_records(self) -> None:
        """Let a log start later, wherever that is."""
        picked = self.pick()
        if picked is None or not picked[0].settings.deletes:
            return
        log, model = picked
        model.removing = True
        model.lossy |= model.names_groups
        offset = self.dice.randrange(log.log_start_offset, log.high_watermark + 1)
        passed = model.passed if model.names_groups else OFFSET_MAX
        self.worker("files", lambda: delete_records(log, offset, self.now, passed))
        self.note(f"{log!r} starts at {offset} by request")
        assert log.log_start_offset == offset
        model.confirmed = max(model.confirmed, offset)
        model.removed(log, self.losses(log), self.world.now_ms)

    def squeeze(self) -> None:
        """Let the disk be low, and eviction take away what has to go."""
        self.disk.room = Space(1 << 20, self.dice.randrange(120_000))
        self.look()
        self.disk.room = ROOMY

    def look(self) -> None:
        """Look at the disk, as the broker does once a second."""
        store, watch = self.store, self.watch
        assert store is not None
        assert watch is not None
        passed = {}
        used = list(self.in_use())
        for log, model in used:
            model.removing = model.lossy = True
            model.passed = max(model.passed, self.dice.randrange(model.confirmed + 1))
            passed[log.topic, log.partition] = model.passed
        look = self.worker("files", lambda: watch.check(passed, self.now))
        if look.notes:
            self.note(f"the disk was low: {'; '.join(look.notes)}")
        for log, model in used:
            if store.holds(log):
                model.removed(log, self.losses(log), self.world.now_ms)
                model.removing = self.failing  # the account that could not be written may be on the disk all the same
        for log in look.rolls:
            if not self.failing and store.holds(log) and log.writer.begin_roll() and "disk" not in self.busy:
                self.roll(log, self.world.topics[log.topic].partitions[log.partition])

    def clean(self) -> None:
        """Let the cleaner go on for some pieces."""
        cleaner = self.cleaner
        assert cleaner is not None
        for _ in range(self.dice.randrange(1, 12)):
            if not self.worker("files", partial(cleaner.step, self.now, self.dice.choice((1, 20, 1000)))):
                break
        wrong = [
            note for note in cleaner.notes if not note.endswith("removed meanwhile")
        ]  # as when a partition came back
        assert self.failing or not (cleaner.failed or wrong), cleaner.notes
        cleaner.failed.clear()
        cleaner.notes.clear()
        for done in cleaner.finished:
            self.note(f"compacted {done}")
        cleaner.finished.clear()

    def overwrite(self) -> None:
        """Write the same few keys again and again, until there is something to compact; then compact it."""
        picked = self.pick("latest")
        if picked is None:
            return
        for _ in range(self.dice.randrange(2, 20)):
            self.write(*picked, self.batch(picked[1]))
        self.sync(picked)
        self.clean()

    def pass_time(self) -> None:
        """Let some time go by."""
        assert self.store is not None
        self.store.in_use.remove_idle_marks(self.world.now_ms / 1000)
        self.world.now_ms += self.dice.choice((1, 1000, 60_000, 1_200_000, 4_000_000))
        self.store.in_use.remove_idle_marks(self.world.now_ms / 1000)
        self.store.directory.advance_age(self.world.reading)

    def reserve(self) -> None:
        """Take a block of producer ids."""
        assert self.store is not None
        block = self.worker("files", self.store.directory.producer_ids.reserve)
        assert block.start >= self.world.producer_ids_end, "a producer id was given twice"
        assert len(block) == 1000
        self.world.producer_ids_end = block.stop

    def make_some(self) -> None:
        """Make a topic that is not there."""
        assert self.store is not None
        missing = [name for name in (OFFSETS_TOPIC, *self.names) if name not in self.store.topics]
        if missing:
            self.make(self.dice.choice(missing))

    def make(self, name: str) -> None:
        """Make a topic, while the loop goes on."""
        store = self.store
        assert store is not None
        if name in store.topics or self.world.doubtful not in (None, name):
            return
        self.note(f"make {name}")
        topic_id = self.new_uuid()
        before = self.world.topics.get(name)
        earlier = self.world.previous if self.world.doubtful == name else ()
        self.world.previous = (*earlier, before) if before is not None else earlier
        self.world.topics[name] = TopicModel.of(topic_id, CONFIGS[name], PARTITIONS)
        self.world.doubtful = name
        topic = self.worker("files", partial(store.topic_files.make_topic, name, PARTITIONS, CONFIGS[name], topic_id))
        store.add_topic(topic)
        self.world.doubtful = None

    def delete(self) -> None:
        """Delete a topic, while the loop goes on."""
        store = self.store
        assert store is not None
        names = [name for name in store.topics if name not in (OFFSETS_TOPIC, LEDGER_TOPIC)]
        names = [name for name in names if not any(log.writer.rolling for log in store.topics[name].partitions)]
        if len(names) < 2 or self.world.doubtful is not None:
            return
        name = self.dice.choice(names)
        self.note(f"delete {name}")
        self.world.doubtful = name
        topic = store.remove_topic(name)
        self.worker("files", partial(store.topic_files.erase_topic, topic))
        self.world.doubtful = None
        del self.world.topics[name]

    def stop(self) -> None:
        """Stop cleanly and start again; the power may go in between."""
        assert self.store is not None
        self.note("stop")
        logs = [log for topic in self.store.topics.values() for log in topic.partitions]
        clean = all(log.fault is None for log in logs)
        if clean:
            self.world.stop = "begun"
        self.store.together_min = self.dice.choice((1, 1 << 30))
        self.store.close()
        for _, model in self.in_use():
            model.confirm(model.end)
        self.world.stop = "done" if clean else "none"
        self.fall(power=self.dice.random() < 0.5)
        epoch = self.world.epoch
        crashes = self.crashes[0]
        self.open()
        assert not clean or crashes != self.crashes[0] or self.world.epoch == epoch, "a clean stop raised the epoch"

    def restart(self) -> None:
        """The process ends in the middle of nothing."""
        self.fall(power=self.dice.random() < 0.5)
        self.open()


def with_attributes(batch: bytes, bits: int) -> bytes:
    """The same batch with attribute bits set, and the CRC made right."""
    changed = bytearray(batch)
    changed[CHECKED_POSITION + 1] |= bits
    changed[CRC_POSITION:CHECKED_POSITION] = crc32c(changed[CHECKED_POSITION:]).to_bytes(4, "big")
    return bytes(changed)
