"""A follower that is cut off at any step holds a prefix of its leader's bytes, and all that its disk has confirmed;
also where leaders change and its log must be truncated, be it unsynced, amid power cuts. What went is in the ledger.
"""

from __future__ import annotations

import json
import random
import uuid
from collections.abc import Sequence
from typing import Any

import pytest

from edge_broker.configuration.settings import LogSettings
from edge_broker.protocol.record_batch import assign_offsets, build_batch, read_header, records_of
from edge_broker.storage.log.log_writer import RollDue
from edge_broker.storage.log_store import LogStore
from edge_broker.storage.replica.replica_log import Replica
from edge_broker.storage.replica.replica_truncation import enter, hold, resume_as, truncate
from edge_broker.testing.disk import PowerLoss, SimulatedDisk
from edge_broker.testing.site import make_topic
from tests.support.storage import NOW, READING, read_all

SETTINGS = LogSettings(segment_bytes=3000, index_interval_bytes=128)


def member(disk: SimulatedDisk) -> LogStore:
    return LogStore.open(disk, "/data", SETTINGS, READING, uuid.uuid4, "1", in_cluster=True)


def leaders(
    dice: random.Random, gaps: bool, before: Sequence[bytes] = (), epoch: int | None = None, batches: int = 50
) -> list[bytes]:
    """What leaders of several epochs have written, behind what others had."""
    epoch = dice.randrange(3) if epoch is None else epoch
    offset = read_header(before[-1]).next_offset if before else 0
    last, found = last_sequences(before), list(before)
    sequences = [last.get(who, -1) + 1 for who in range(2)]
    for _ in range(dice.randrange(batches // 5, batches)):
        epoch += dice.choice((0, 0, 0, 1, 3))
        count = dice.randrange(1, 4)
        records: list[tuple[bytes | None, bytes | None]] = [(b"k", dice.randbytes(dice.randrange(200)))] * count
        who = dice.randrange(3)
        producer = {"producer_id": who, "producer_epoch": 0, "base_sequence": sequences[who]} if who < 2 else {}
        if who < 2:
            sequences[who] += count
        made = bytearray(build_batch(records, timestamp_ms=dice.randrange(1 << 40), **producer))
        offset += dice.choice((0, 0, 7)) if gaps else 0
        assign_offsets(made, offset, epoch)
        offset += count
        found.append(bytes(made))
    return found


class Follower:
    """A replica whose power goes now and then; `confirmed` is what its disk has said that it has."""

    def __init__(self, seed: int, *, gaps: bool) -> None:
        self.dice = random.Random(seed)
        self.disk = SimulatedDisk(seed, ordered=bool(seed % 2))
        self.store = member(self.disk)
        config = {"cleanup.policy": "compact"} if gaps else {}
        make_topic(self.store, config=config)
        self.confirmed, self.cuts = 0, 0

    @property
    def replica(self) -> Replica:
        return Replica(self.store.topics["t"].partitions[0])

    def fetch(self, replica: Replica, written: list[bytes]) -> None:
        data = b"".join([one for one in written if read_header(one).base_offset >= replica.log_end_offset][:9])
        view = memoryview(bytearray(data))[: self.dice.randrange(1, 4000)]
        view = view[: whole(view)]
        while view:
            try:
                view = view[replica.append(view, NOW) :]
            except RollDue:
                replica.log.roller.roll()
                replica.log.writer.end_roll()
                self.confirmed = max(self.confirmed, replica.synced_offset)

    def sync(self, replica: Replica) -> None:
        flush = replica.log.writer.begin_flush()
        if flush is not None:
            flush.run()
            replica.log.writer.finish_flush(flush)
        self.confirmed = replica.synced_offset

    def run(self, written: list[bytes]) -> None:
        end = read_header(written[-1]).next_offset
        while self.confirmed < end:
            self.disk.crash_at = self.disk.steps + self.dice.randrange(1, 40)
            try:
                replica = self.replica
                while self.confirmed < end:
                    self.dice.choice((self.fetch, self.fetch, self.some))(replica, written)
            except PowerLoss:
                self.cuts += 1
                self.fall(written)

    def some(self, replica: Replica, written: list[bytes]) -> None:
        self.sync(replica)
        if self.dice.random() < 0.3:
            self.store.checkpoint()

    def fall(self, written: list[bytes]) -> None:
        self.disk.kill() if self.dice.random() < 0.3 else self.disk.crash()
        self.store = member(self.disk)
        self.check(written)
        self.confirmed = self.replica.synced_offset

    def check(self, written: list[bytes]) -> None:
        replica = self.replica
        assert replica.online, replica.log.fault
        assert replica.log_end_offset >= self.confirmed
        replica.show_exactly(replica.log_end_offset)
        held = [one for one in written if read_header(one).base_offset < replica.log_end_offset]
        assert everything(replica) == held
        starts: dict[int, int] = {}
        for one in held:
            starts.setdefault(read_header(one).leader_epoch, read_header(one).base_offset)
        assert dict(replica.epochs.starts) == starts
        known = {number: one.batches[-1].last_sequence for number, one in replica.log.writer.producers.by_id().items()}
        assert known == last_sequences(held)


def whole(view: memoryview) -> int:
    """Bytes of the whole batches at the front."""
    at = 0
    while len(view) - at >= 61 and at + read_header(view, at).size <= len(view):
        at += read_header(view, at).size
    return at


def everything(replica: Replica) -> list[bytes]:
    found, offset = list[bytes](), replica.log_start_offset
    while offset < replica.log.high_watermark:
        data = replica.log.reader.read(offset, 1, blocking=True)
        assert data
        found.append(bytes(data))
        offset = read_header(data).next_offset
    return found


def last_sequences(held: Sequence[bytes]) -> dict[int, int]:
    headers = [read_header(one) for one in held]
    return {one.producer_id: one.base_sequence + one.last_offset_delta for one in headers if one.producer_id >= 0}


class Diverging(Follower):
    """A follower whose leaders change, each of whom lacks something of what it has; `history` is what it may hold."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed, gaps=False)
        self.history = leaders(self.dice, False)
        self.truncations = 0
        self.going: tuple[int, list[bytes]] | None = None  # where it is being cut, and what the disk surely had

    def lead_anew(self) -> list[bytes]:
        """Another leader, who has a part of the log, and goes on in a later epoch."""
        kept = self.history[: self.dice.randrange(len(self.history) + 1)]
        epoch = max((read_header(one).leader_epoch for one in self.history), default=0) + self.dice.choice((1, 2))
        return leaders(self.dice, False, kept, epoch, batches=20)

    def match(self, written: list[bytes]) -> None:
        """Cut off what the leader has not, if there is something."""
        replica = self.replica
        same = [one for one, other in zip(self.history, written, strict=False) if one == other]
        end = min(replica.log_end_offset, end_of(same))
        if end < replica.log_end_offset:
            self.going = (end, [one for one in self.history if read_header(one).next_offset <= self.confirmed])
            assert hold(replica.log)
            resume_as(replica.log, truncate(self.store, replica.log, enter(replica.log, end), NOW))
            assert replica.synced_offset == replica.log_end_offset == end
            self.confirmed, self.truncations = end, self.truncations + 1
            self.went()
        self.history = written

    def went(self) -> None:
        """What the disk had, and lacks now, is in the ledger."""
        assert self.going is not None
        (_, had), self.going = self.going, None
        gone = [one for one in map(read_header, had) if one.base_offset >= self.replica.log_end_offset]
        lost = {
            (one["leader_epoch"], offset)
            for one in self.told()
            for offset in range(one["first_offset"], one["last_offset"] + 1)
        }
        assert lost >= {(one.leader_epoch, at) for one in gone for at in range(one.base_offset, one.next_offset)}

    def told(self) -> list[dict[str, Any]]:
        found = read_all(self.store.ledger_log)
        records = [json.loads(record.value or b"") for one in found for record in records_of(memoryview(one))]
        return [record for record in records if record["cause"] == "truncated"]

    def check(self, written: list[bytes]) -> None:
        if self.going is not None:
            self.confirmed = min(self.confirmed, self.going[0])
            self.went()
        super().check(written)

    def follow(self, written: list[bytes], fetches: int) -> None:
        """Match the log, then fetch for a while, whatever cuts come in between."""
        while True:
            self.disk.crash_at = self.disk.steps + self.dice.randrange(1, 60)
            try:
                self.match(written)
                for _ in range(fetches):
                    self.dice.choice((self.fetch, self.fetch, self.some))(self.replica, written)
            except PowerLoss:
                self.cuts += 1
                self.fall(self.history)
            else:
                self.disk.crash_at = -1
                return


def end_of(batches: Sequence[bytes]) -> int:
    return read_header(batches[-1]).next_offset if batches else 0


@pytest.mark.parametrize("gaps", [False, True], ids=["dense", "compacted"])
@pytest.mark.parametrize("first", range(0, 60, 20))
def test_a_follower_has_what_its_leader_has(first: int, gaps: bool) -> None:
    cuts = 0
    for seed in range(first, first + 20):
        follower = Follower(seed, gaps=gaps)
        written = leaders(random.Random(~seed), gaps)
        follower.run(written)
        follower.fall(written)
        cuts += follower.cuts
    assert cuts > 60


@pytest.mark.parametrize("first", range(0, 80, 20))
def test_a_follower_of_changing_leaders_has_what_the_last_one_has(first: int) -> None:
    cuts = truncations = 0
    for seed in range(first, first + 20):
        follower = Diverging(seed)
        for _ in range(8):
            follower.follow(follower.lead_anew(), follower.dice.randrange(12))
        follower.run(follower.history)
        follower.fall(follower.history)
        assert follower.replica.log_end_offset == end_of(follower.history)
        cuts, truncations = cuts + follower.cuts, truncations + follower.truncations
    assert cuts > 100
    assert truncations > 30
