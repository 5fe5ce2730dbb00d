"""The journal of a board in a cluster: what it holds, what of it is forwarded, and what any crash leaves of it."""

from __future__ import annotations

import json
import random
import uuid
from typing import Any

import pytest

from drupelet.ledger import LEDGER_CONFIG, LEDGER_TOPIC
from edge_broker.configuration.settings import LogSettings
from edge_broker.doctor.directory import DataDirectory
from edge_broker.doctor.ledger import account_of, read_ledger
from edge_broker.errors import StorageFault
from edge_broker.protocol.record_batch import build_batch, records_of
from edge_broker.storage.log_store import LogStore
from edge_broker.storage.loss import ledger_journal
from edge_broker.storage.loss.ledger_journal import (
    EntryId,
    JournalLedger,
    forget,
    id_of_entry,
    is_full,
    read_entries,
    waiting,
)
from edge_broker.storage.metadata.loss_records import Loss
from edge_broker.storage.metadata.topic_record import JOURNAL_TOPIC
from edge_broker.testing.disk import SimulatedDisk
from tests.support.storage import NOW, READING, append, cut_off, open_store, sync

CLUSTER_ID = "kUSr1o3mSvqPpNq5u4Cq5A"


def member(disk: SimulatedDisk) -> LogStore:
    return LogStore.open(disk, "/data", LogSettings(), READING, uuid.uuid4, "1", in_cluster=True)


def directory_of(store: LogStore) -> str:
    assert store.directory.registrations is not None
    return store.directory.registrations.directory


def lost(*offsets: int) -> list[Loss]:
    return [Loss("evicted", "t", CLUSTER_ID, 0, offset, offset + 10, 10, 700) for offset in offsets]


def told(store: LogStore) -> list[dict[str, Any]]:
    """The entries that would be forwarded now."""
    batch = read_entries(store.ledger_log, directory_of(store)).batch
    return [json.loads(record.value or b"") for record in records_of(memoryview(batch))] if batch else []


def firsts(store: LogStore) -> list[int]:
    return [entry["first_offset"] for entry in told(store)]


def test_a_board_of_a_cluster_has_its_losses_in_a_journal_and_one_that_stands_alone_in_its_ledger() -> None:
    alone, board = open_store(SimulatedDisk(1)), member(SimulatedDisk(1))
    assert set(alone.topics) == {LEDGER_TOPIC} == {alone.directory.own_ledger}
    assert set(board.topics) == {JOURNAL_TOPIC} == {board.directory.own_ledger}
    assert not board.directory.is_replicated(JOURNAL_TOPIC)
    assert board.directory.is_replicated(LEDGER_TOPIC)


def test_an_entry_says_by_which_journal_it_came_and_its_id_names_the_loss_and_the_disk() -> None:
    store = member(SimulatedDisk(1))
    store.ledger.write(lost(0, 10))
    directory = directory_of(store)
    (first, second) = told(store)
    assert first["id"] == f"{lost(0)[0].id}:disk {directory}"
    assert [(each["directory"], each["sequence"], each["node"]) for each in (first, second)] == [
        (directory, 0, "1"),
        (directory, 1, "1"),
    ]
    records = list(records_of(memoryview(read_entries(store.ledger_log, directory).batch)))
    assert records[1].key == second["id"].encode()
    assert id_of_entry(records[1].key, records[1].value) == EntryId(directory, 1, second["id"].encode())


def test_the_same_loss_on_two_disks_is_two_entries_and_on_one_disk_one() -> None:
    one, other = member(SimulatedDisk(1)), member(SimulatedDisk(2))
    one.ledger.write(lost(0))
    one.ledger.write(lost(0))
    other.ledger.write(lost(0))
    assert len({entry["id"] for entry in told(one)}) == 1
    assert not {entry["id"] for entry in told(one)} & {entry["id"] for entry in told(other)}


def test_what_was_forwarded_goes_and_its_numbers_never_come_again() -> None:
    disk = SimulatedDisk(1)
    store = member(disk)
    store.ledger.write(lost(0, 10, 20))
    forget(store.ledger_log, 2, NOW)
    assert firsts(store) == [20]
    forget(store.ledger_log, 3, NOW)
    assert read_entries(store.ledger_log, directory_of(store)) == (b"", 3, 0)
    disk.crash()
    store = member(disk)
    store.ledger.write(lost(30))
    assert [(each["first_offset"], each["sequence"]) for each in told(store)] == [(30, 3)]
    assert waiting(store.ledger_log) == 1


def test_forwarded_entries_are_accounted_for_and_no_loss() -> None:
    disk = SimulatedDisk(1)
    store = member(disk)
    store.ledger.write(lost(0, 10, 20))
    forget(store.ledger_log, 2, NOW)
    (files,) = DataDirectory(disk, "/data", None).partitions(JOURNAL_TOPIC)
    account = account_of(files, [])
    assert (account.problems, account.deleted, account.available) == ([], 2, 1)


def test_a_journal_that_was_forwarded_gives_its_bytes_back() -> None:
    store = member(SimulatedDisk(1))
    log = store.ledger_log
    while len(log.segments) < 4:
        store.ledger.write([loss for first in range(200) for loss in lost(first)])
    while (entries := read_entries(log, directory_of(store))).batch:
        forget(log, entries.end_offset, NOW)
    assert len(log.segments) == 1
    assert log.size < log.settings.segment_bytes


def test_a_full_journal_takes_nothing_and_takes_again_what_comes_once_it_is_forwarded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ledger_journal, "JOURNAL_BYTES_MAX", 3 << 20)
    store = member(SimulatedDisk(1))
    log, many = store.ledger_log, [loss for first in range(200) for loss in lost(first)]
    ledger = JournalLedger(store.ledger, log)
    while not is_full(log):
        ledger.write(many)
    assert log.size < (3 << 20) + 200_000
    end = log.log_end_offset
    with pytest.raises(StorageFault, match=r"journal is full: \d+ losses wait"):
        ledger.write(lost(7))
    assert log.log_end_offset == end
    store.ledger.write(lost(8))  # as a start does: it is lost already
    forget(log, end, NOW)
    ledger.write(lost(9))
    assert firsts(store) == [8, 9]


def test_a_batch_is_cut_where_it_would_be_larger_than_a_leader_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger_journal, "ENTRY_BYTES_MAX", 2000)
    store, found = member(SimulatedDisk(1)), list[int]()
    store.ledger.write(lost(*range(0, 200, 10)))
    while entries := firsts(store):
        assert len(entries) < 6
        found += entries
        forget(store.ledger_log, read_entries(store.ledger_log, directory_of(store)).end_offset, NOW)
    assert found == list(range(0, 200, 10))


def test_records_of_others_are_left_out_and_hold_nothing_up() -> None:
    store = member(SimulatedDisk(1))
    log = store.ledger_log
    gateway = {"version": 1, "id": "g-1", "cause": "mqtt_queue_dropped", "topic": "q", "node": "gw", "time_ms": 1}
    append(log, memoryview(bytearray(build_batch([(b"k", b"no ledger record")], timestamp_ms=1))))
    append(log, memoryview(bytearray(build_batch([(b"g-1", json.dumps(gateway).encode())], timestamp_ms=1))))
    sync(log)
    entries = read_entries(log, directory_of(store))
    assert (entries.end_offset, entries.left_out) == (2, 1)
    assert [entry["id"] for entry in told(store)] == ["g-1"]


# a board that stood alone, or whose release kept a ledger on each board


def test_the_ledger_of_a_board_that_stood_alone_becomes_its_journal() -> None:
    disk = SimulatedDisk(1)
    store = open_store(disk)
    store.ledger.write(lost(0, 10))
    store.close()
    store = member(disk)
    assert set(store.topics) == {JOURNAL_TOPIC}
    assert firsts(store) == [0, 10]
    assert not disk.exists(f"/data/{LEDGER_TOPIC}-0")


def test_a_replica_of_the_ledger_stays_one() -> None:
    disk = SimulatedDisk(1)
    store = member(disk)
    store.ledger.write(lost(0))
    store.add_topic(store.topic_files.make_topic(LEDGER_TOPIC, 1, LEDGER_CONFIG, uuid.UUID(int=9)))
    disk.crash()
    store = member(disk)
    assert set(store.topics) == {JOURNAL_TOPIC, LEDGER_TOPIC}
    assert store.topics[LEDGER_TOPIC].topic_id == uuid.UUID(int=9)
    assert firsts(store) == [0]


@pytest.mark.parametrize("seed", range(6))
def test_whatever_step_of_taking_over_a_crash_comes_after_the_next_start_has_every_entry(seed: int) -> None:
    dice, step = random.Random(seed), 1
    while True:
        disk = SimulatedDisk(seed, ordered=bool(seed % 2))
        store = open_store(disk)
        store.ledger.write(lost(0, 10))
        store.close()
        cut = cut_off(disk, step, lambda disk=disk: member(disk))  # type: ignore[misc]
        disk.crash_at = -1
        disk.kill() if dice.random() < 0.3 else disk.crash()
        store = member(disk)
        assert firsts(store) == [0, 10], f"cut behind step {step}"
        assert set(store.topics) == {JOURNAL_TOPIC}
        store.ledger.write(lost(20))
        if not cut:
            break
        step += dice.randrange(1, 6)


@pytest.mark.parametrize("seed", range(10))
def test_a_crash_amid_writing_and_forgetting_loses_no_entry_that_was_written_and_brings_none_back_twice(
    seed: int,
) -> None:
    """What was synced and not forgotten is forwarded; what was forgotten may be forwarded again under the same id."""
    dice, disk = random.Random(seed), SimulatedDisk(seed, ordered=bool(seed % 2))
    store = member(disk)
    seen: dict[tuple[str, int], str] = {}  # directory and sequence to id
    written, forgotten, next_loss = list[int](), set[int](), 0
    for _ in range(25):
        done: list[int] = []
        going: list[int] = []

        def work(store: LogStore = store, done: list[int] = done, going: list[int] = going) -> None:
            nonlocal next_loss
            for _ in range(dice.randrange(1, 4)):
                next_loss += 1
                store.ledger.write(lost(next_loss))
                done.append(next_loss)
            entries = read_entries(store.ledger_log, directory_of(store))
            for entry in told(store):
                assert seen.setdefault((entry["directory"], entry["sequence"]), entry["id"]) == entry["id"]
            if dice.random() < 0.7:
                going += firsts(store)
                forget(store.ledger_log, entries.end_offset, NOW)

        cut = cut_off(disk, dice.randrange(1, 60), work)
        disk.crash_at = -1
        written += done
        if cut:
            disk.kill() if dice.random() < 0.3 else disk.crash()
            store = member(disk)
        left = firsts(store)
        assert left == sorted(set(left))
        forgotten |= set(going) - set(left)  # by forget, or by the account that a crash came behind
        assert set(written) - forgotten <= set(left)
        assert not forgotten & set(left)


def test_the_tool_lists_what_waits_and_says_what_was_forwarded_and_is_elsewhere() -> None:
    disk = SimulatedDisk(1)
    store = member(disk)
    store.ledger.write(lost(0, 10, 20))
    directory = DataDirectory(disk, "/data", None)
    assert [(entry.get("first_offset"), entry.times) for entry in read_ledger(directory).entries] == [
        (0, 1),
        (10, 1),
        (20, 1),
    ]
    forget(store.ledger_log, 2, NOW)
    read = read_ledger(directory)
    assert [entry.get("sequence") for entry in read.own] == [2]
    assert [problem[:42] for problem in read.problems] == ["2 of this board's losses were forwarded to"]
