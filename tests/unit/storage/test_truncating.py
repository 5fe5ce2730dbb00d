"""A replica is cut where it is told, after it was written down; at each step a power cut leaves it whole or cut.

Invariants: what lies below the cut is there, byte for byte; what lay above never comes back, under whatever epoch; the
ledger has it before; producers, epochs and indexes are those of what is left; no damage is seen where nothing did any.
"""

from __future__ import annotations

import json
import random
from functools import partial
from typing import Any

import pytest

from edge_broker.errors import StorageFault
from edge_broker.protocol.record_batch import read_header, records_of
from edge_broker.storage.log.partition_log import PartitionLog
from edge_broker.storage.log_store import LogStore
from edge_broker.storage.maintenance.disk_watch import DiskWatch
from edge_broker.storage.maintenance.log_cleaner import cleanable
from edge_broker.storage.recovery.truncation_file import FILE
from edge_broker.storage.replica.replica_log import Replica
from edge_broker.storage.replica.replica_truncation import enter, enter_unknown, hold, release_log, resume_as, truncate
from edge_broker.storage.replica.resume_failed_log import bring_online
from edge_broker.storage.retention.segment_removal import delete_expired, delete_records
from edge_broker.testing.checked import findings
from edge_broker.testing.clock import NOW_MS
from edge_broker.testing.disk import SimulatedDisk
from edge_broker.testing.site import make_topic
from tests.support.storage import NOW, ListLedger, cut_off, failing, ledgered, read_all, time_at
from tests.unit.storage.test_replica import member, of_leader, synced, take

EPOCHS = (1, 1, 2, 2, 2, 4, 4, 4, 4, 6)


def of_number(number: int, epoch: int, size: int = 700, sequence: int | None = None) -> bytes:
    producer = (7, 0, number if sequence is None else sequence)
    return of_leader(number, epoch, b"%d/%d " % (epoch, number) * (size // 6), producer=producer)


def filled(disk: SimulatedDisk, *, batches: int = 20) -> tuple[LogStore, Replica, list[bytes]]:
    """A replica of several segments, all synced, one record a batch."""
    store = member(disk)
    replica = Replica(make_topic(store).partitions[0])
    written = [of_number(number, EPOCHS[min(number // 2, len(EPOCHS) - 1)]) for number in range(batches)]
    take(replica, *written)
    synced(replica.log)
    return store, replica, written


def cut(store: LogStore, replica: Replica, end_offset: int) -> None:
    log = replica.log
    assert hold(log)
    resume_as(log, truncate(store, log, enter(log, end_offset), NOW))


def all_of(replica: Replica) -> list[bytes]:
    replica.show_exactly(replica.log_end_offset)
    return read_all(replica.log)


def again(disk: SimulatedDisk) -> tuple[LogStore, Replica]:
    store = member(disk)
    return store, Replica(store.topics["t"].partitions[0])


def entries(store: LogStore) -> list[dict[str, Any]]:
    found = read_all(store.ledger_log)
    return [json.loads(bytes(record.value or b"")) for one in found for record in records_of(memoryview(one))]


def check(replica: Replica, written: list[bytes]) -> None:
    """The log is this, and everything that it knows beside its bytes is of this."""
    assert replica.online, replica.log.fault
    assert replica.log_end_offset == len(written)
    assert all_of(replica) == written
    headers = [read_header(one) for one in written]
    assert [epoch for epoch, _ in replica.epochs.starts] == sorted({header.leader_epoch for header in headers})
    for epoch, start in replica.epochs.starts:
        assert start == min(header.base_offset for header in headers if header.leader_epoch == epoch)
    known = replica.log.writer.producers.by_id()
    last = {header.producer_id: header.base_sequence for header in headers}
    assert {number: one.batches[-1].last_sequence for number, one in known.items()} == last
    for offset in range(len(written)):
        assert replica.log.reader.read(offset, 1, blocking=True) == written[offset]


@pytest.mark.parametrize("end", range(21))
def test_a_log_is_cut_at_any_batch_and_goes_on(end: int) -> None:
    disk = SimulatedDisk(1)
    store, replica, written = filled(disk)
    assert len(replica.log.segments) > 3
    store.checkpoint()
    cut(store, replica, end)
    check(replica, written[:end])
    assert replica.synced_offset == end
    for _ in range(2):
        disk.crash()
        store, replica = again(disk)
        assert not [note for note in store.recovery_notes if "lost" in note or "checked" in note]
        check(replica, written[:end])
    more = [of_number(number, 9, sequence=number + 100) for number in range(end, end + 9)]
    take(replica, *more)
    synced(replica.log)
    disk.crash()
    check(again(disk)[1], [*written[:end], *more])


@pytest.mark.parametrize("policy", ["delete", "compact"])
def test_nothing_else_takes_segments_of_a_log_that_is_cut_and_does_not_go_on_yet(policy: str) -> None:
    """What was made of it was opened before, and would look for what is gone, or find other bytes in its place."""
    disk = SimulatedDisk(1)
    config = {"cleanup.policy": policy, "retention.ms": "1000", "min.cleanable.dirty.ratio": "0"}
    store = member(disk)
    replica = Replica(make_topic(store, config=config).partitions[0])
    written = [of_number(number, 1) for number in range(20)]
    take(replica, *written)
    synced(replica.log)
    replica.show_exactly(18)
    log, later = replica.log, time_at(NOW_MS + 100_000)
    assert len(log.state.sealed_segments) > 1
    assert hold(log)
    fresh = truncate(store, log, enter(log, 19), NOW)
    assert delete_expired(log, later) == 0
    assert cleanable(log, 0, later) is None
    assert DiskWatch(store)._views([store.topics["t"]], {}, later) == []
    resume_as(log, fresh)
    check(replica, written[:19])
    assert (delete_expired(log, later) > 0, cleanable(log, 0, later) is not None) == (
        policy == "delete",
        policy == "compact",
    )


def test_what_goes_is_in_the_ledger_by_epoch_and_offset() -> None:
    disk = SimulatedDisk(1)
    store, replica, written = filled(disk)
    cut(store, replica, 9)
    told = entries(store)
    assert [
        (one["cause"], one["leader_epoch"], one["first_offset"], one["last_offset"], one["records"]) for one in told
    ] == [
        ("truncated", 2, 9, 9, 1),
        ("truncated", 4, 10, 17, 8),
        ("truncated", 6, 18, 19, 2),
    ]
    assert sum(one["bytes"] for one in told) == sum(map(len, written[9:]))
    assert len({one["id"] for one in told}) == 3
    assert told[0]["first_timestamp"] == read_header(written[9]).base_timestamp


def test_nothing_is_cut_unless_the_ledger_has_it() -> None:
    disk = SimulatedDisk(1)
    _, replica, written = filled(disk)
    ledger = replica.log.ledger = ListLedger()
    ledger.fault = StorageFault("/ledger", 0, "no space")
    with pytest.raises(StorageFault, match="no space"):
        enter(replica.log, 9)
    check(replica, written)
    ledger.fault = None
    enter(replica.log, 9)
    assert ledger.offsets() == [(9, 10), (10, 18), (18, 20)]
    disk.crash()
    check(again(disk)[1], written)


def test_what_a_leader_may_lack_is_entered_without_an_end() -> None:
    store, replica, _ = filled(SimulatedDisk(1))
    enter_unknown(replica.log, 6)
    enter(replica.log, 19, "unclean_election")
    assert [(*one[:2], *one[3:]) for one in ledgered(store)] == [
        ("unclean_election", "t", 20, None),
        ("unclean_election", "t", 19, 19),
    ]


def test_epochs_at_the_end_without_records_go_too() -> None:
    disk = SimulatedDisk(1)
    store, replica, written = filled(disk)
    replica.begin_epoch(11)
    replica.keep_epoch()
    cut(store, replica, 20)
    check(replica, written)
    assert entries(store) == []
    assert replica.log.leader_epoch == 6
    disk.crash()
    check(again(disk)[1], written)


def test_a_truncation_holds_for_the_log_that_was_entered() -> None:
    store, replica, written = filled(SimulatedDisk(1))
    assert hold(replica.log)
    assert not hold(replica.log)
    entered = enter(replica.log, 9)
    release_log(replica.log)
    take(replica, of_number(20, 6))
    assert hold(replica.log)
    with pytest.raises(AssertionError, match="another one than was entered"):
        truncate(store, replica.log, entered, NOW)
    release_log(replica.log)
    with pytest.raises(AssertionError, match="takes appends"):
        truncate(store, replica.log, enter(replica.log, 9), NOW)
    check(replica, [*written, of_number(20, 6)])


def test_what_was_shown_and_stays_is_shown() -> None:
    store, replica, _ = filled(SimulatedDisk(1))
    replica.show_exactly(5)
    cut(store, replica, 9)
    assert replica.log.high_watermark == 5
    cut(store, replica, 3)
    assert replica.log.high_watermark == 3


def test_a_flush_under_way_is_waited_for_and_none_begins_while_the_log_is_held() -> None:
    """What it speaks of would be gone, perhaps the very file that it has to open."""
    store, replica, written = filled(SimulatedDisk(1))
    writer = replica.log.writer
    take(replica, of_number(20, 6, 60))
    flush = writer.begin_flush()
    assert flush is not None
    assert not hold(replica.log)
    flush.run()
    writer.finish_flush(flush)
    take(replica, of_number(21, 6, 60))
    assert hold(replica.log)
    assert writer.begin_flush() is None
    release_log(replica.log)
    synced(replica.log)
    assert replica.synced_offset == 22
    cut(store, replica, 18)
    check(replica, written[:18])


def test_a_flush_that_failed_holds_nothing_up_and_nothing_is_truncated() -> None:
    store, replica, _ = filled(SimulatedDisk(1))
    take(replica, of_number(20, 6, 60))
    entered = enter(replica.log, 18)
    assert replica.log.writer.begin_flush() is not None
    replica.log.fail(StorageFault(replica.log.directory, 0, "the card fails"))
    assert hold(replica.log)
    with pytest.raises(StorageFault, match="the card fails"):
        truncate(store, replica.log, entered, NOW)


def test_a_write_under_way_is_waited_for() -> None:
    store, replica, written = filled(SimulatedDisk(1))
    writing = replica.begin_append(memoryview(of_number(20, 6, 60)), NOW)
    assert replica.busy
    assert not hold(replica.log)
    writing.run()
    replica.end_append(writing)
    assert not replica.busy
    cut(store, replica, 20)
    check(replica, written)


def test_a_cut_amid_a_batch_takes_the_batch() -> None:
    disk = SimulatedDisk(1)
    store = member(disk)
    replica = Replica(make_topic(store).partitions[0])
    written = [of_leader(0, 1, b"a", b"b"), of_leader(2, 1, b"c", b"d", b"e"), of_leader(5, 1, b"f")]
    take(replica, *written)
    synced(replica.log)
    cut(store, replica, 3)
    assert replica.log_end_offset == 2
    assert [(one["first_offset"], one["last_offset"]) for one in entries(store)] == [(2, 5)]
    assert all_of(replica) == written[:1]


@pytest.mark.parametrize("end", [3, 4])
def test_a_log_that_starts_amid_a_batch_is_emptied_there(end: int) -> None:
    disk = SimulatedDisk(1)
    store = member(disk)
    replica = Replica(make_topic(store).partitions[0])
    take(replica, of_leader(0, 1, b"a", b"b"), of_leader(2, 1, b"c", b"d", b"e"), of_leader(5, 1, b"f"))
    synced(replica.log)
    replica.show_exactly(6)
    delete_records(replica.log, 3, NOW)
    store.checkpoint()
    cut(store, replica, end)
    for _ in range(3):
        assert (replica.log_start_offset, replica.log_end_offset, replica.synced_offset) == (3, 3, 3)
        disk.crash()
        store, replica = again(disk)
    take(replica, of_leader(3, 2, b"x"))
    synced(replica.log)
    disk.crash()
    assert all_of(again(disk)[1]) == [of_leader(3, 2, b"x")]


@pytest.mark.parametrize("end", [0, 9, 19])
@pytest.mark.parametrize("stored", [False, True], ids=["walked", "stored"])
@pytest.mark.parametrize("ordered", [False, True], ids=["free", "ordered"])
def test_at_each_step_a_power_cut_leaves_it_whole_or_cut(end: int, stored: bool, ordered: bool) -> None:
    step, done = 0, False
    while not done:
        step += 1
        disk = SimulatedDisk(step * 31 + end, ordered=ordered)
        store, replica, written = filled(disk)
        if stored:
            store.checkpoint()
        dice = random.Random(step * 100 + end)
        done = not cut_off(disk, step, partial(cut, store, replica, end))
        disk.crash_at = -1
        disk.kill() if dice.random() < 0.3 else disk.crash()
        store, replica = again(disk)
        assert not disk.exists(f"{replica.log.directory}/{FILE}")
        assert replica.log_end_offset in ((end,) if done else (end, 20))
        left = written[: replica.log_end_offset]
        told = {(one["first_offset"], one["last_offset"]) for one in entries(store) if one["cause"] == "truncated"}
        assert replica.log_end_offset == 20 or {last for _, last in told} >= {19}
        assert {one["cause"] for one in entries(store)} <= {"truncated"}
        check(replica, left)
        more = [of_number(number, 9, sequence=number + 50) for number in range(len(left), len(left) + 5)]
        take(replica, *more)
        synced(replica.log)
        disk.crash()
        check(again(disk)[1], [*left, *more])
    assert step > 15


@pytest.mark.parametrize("seed", range(8))
def test_power_cuts_within_the_start_that_goes_on_lose_nothing(seed: int) -> None:
    dice = random.Random(seed)
    disk = SimulatedDisk(seed, ordered=bool(seed % 2))
    store, replica, written = filled(disk)
    store.checkpoint()
    assert cut_off(disk, 12 + seed, lambda: cut(store, replica, 9))
    for _ in range(30):
        disk.kill() if dice.random() < 0.3 else disk.crash()
        if not cut_off(disk, dice.randrange(1, 60), lambda: again(disk)):
            break
    disk.crash_at = -1
    disk.crash()
    _, replica = again(disk)
    assert replica.log_end_offset in (9, 20)
    check(replica, written[: replica.log_end_offset])


@pytest.mark.parametrize("kind", ["datasync", "truncate", "remove", "sync_directory", "create", "rename", "write"])
def test_a_step_that_fails_takes_it_offline_and_it_comes_back_cut_or_whole(kind: str) -> None:
    disk = SimulatedDisk(1)
    store, replica, written = filled(disk)
    store.checkpoint()
    log: PartitionLog = replica.log
    assert hold(log)
    entered = enter(log, 9)
    disk.fault = failing(kind, "/t-0")
    with pytest.raises(StorageFault):
        truncate(store, log, entered, NOW)
    assert not replica.online
    disk.fault = None
    back = bring_online(store, log, NOW)
    assert back is not None
    log.go_on_as(back.log)
    assert replica.log_end_offset in (9, 20)
    check(replica, written[: replica.log_end_offset])
    assert not disk.exists(f"{log.directory}/{FILE}")
    disk.crash()
    check(again(disk)[1], written[: replica.log_end_offset])


def test_the_doctor_finds_no_damage_amid_a_truncation() -> None:
    for step in range(8, 30, 3):
        disk = SimulatedDisk(step)
        store, replica, _ = filled(disk)
        store.checkpoint()
        cut_off(disk, step, partial(cut, store, replica, 9))
        disk.crash_at = -1
        disk.kill()
        found = findings(disk, "/data", running=False)
        assert [one for one in found if one.damage] == []
        if disk.exists(f"{replica.log.directory}/{FILE}"):
            assert any("being truncated to offset 9" in str(one) for one in found)


@pytest.mark.leaves("truncation")
def test_a_decision_that_cannot_be_read_is_not_guessed() -> None:
    disk = SimulatedDisk(1)
    store, replica, _ = filled(disk)
    disk.put(f"{replica.log.directory}/{FILE}", b"drupelet truncation 1 00000000\n9 9 0\n")
    disk.kill()
    _, replica = again(disk)
    assert not replica.online
    assert store is not None


def test_ends_of_what_was_truncated_are_not_shown() -> None:
    store, replica, written = filled(SimulatedDisk(1))
    cut(store, replica, 9)
    take(replica, *[of_number(number, 9) for number in (9, 10)])
    for mark, end in ((8, 0), (9, 9), (10, 9), (11, 11), (15, 11)):
        replica.show(mark)
        assert replica.log.high_watermark == end
    more = [of_number(number, 9) for number in (11, 12)]
    for one in more:
        take(replica, one)
    replica.show(12)
    assert read_all(replica.log) == [*written[:9], of_number(9, 9), of_number(10, 9), more[0]]
