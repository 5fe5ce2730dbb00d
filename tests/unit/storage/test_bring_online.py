"""A failed sync or write costs what was not synced, nothing else; and the partition comes back.

Invariants: what was synced is all there, byte for byte, also after a power cut that follows; what was not is gone and
in the ledger, counted; no offset of the new leader epoch is one that anybody was shown before.
"""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import pytest

from drupelet.ledger import LEDGER_TOPIC
from edge_broker.configuration.settings import LEFT_TO_KERNEL_MS
from edge_broker.errors import ErrorCode, Refusal, StorageFault
from edge_broker.protocol.record_batch import check_batch, read_header, records_of
from edge_broker.storage.log.partition_log import PartitionLog
from edge_broker.storage.log_store import LogStore
from edge_broker.storage.replica.resume_failed_log import BroughtOnline, bring_online
from edge_broker.testing.disk import SimulatedDisk
from edge_broker.testing.site import make_topic
from tests.support.storage import NOW, append, batch, cut_off, failing, fill, open_store, read_all, sync


def opened(config: dict[str, str] | None = None) -> tuple[SimulatedDisk, LogStore, PartitionLog]:
    disk = SimulatedDisk(1)
    store = open_store(disk)
    return disk, store, make_topic(store, config=config).partitions[0]


def fail_sync(disk: SimulatedDisk, log: PartitionLog) -> None:
    """Let the disk refuse the sync of what is written."""
    disk.fault = failing("datasync", f"/{log.topic}-{log.partition}/")
    flush = log.writer.begin_flush()
    assert flush is not None
    with pytest.raises(StorageFault) as failed:
        flush.run()
    log.fail(failed.value)
    disk.fault = None


def online_again(store: LogStore, log: PartitionLog) -> BroughtOnline:
    """Bring a log online, as worker and loop do together."""
    back = bring_online(store, log, NOW)
    assert back is not None
    log.go_on_as(back.log)
    return back


def losses(store: LogStore) -> list[dict[str, Any]]:
    """What the ledger says."""
    found = read_all(store.topics[LEDGER_TOPIC].partitions[0])
    return [json.loads(bytes(record.value or b"")) for one in found for record in records_of(memoryview(one))]


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("confirmed", [0, 1, 5])
def test_what_was_synced_stays_and_what_was_not_is_written_down(seed: int, confirmed: int) -> None:
    disk = SimulatedDisk(seed)
    store = open_store(disk)
    log = make_topic(store).partitions[0]
    written = fill(log, confirmed, 700)
    lost = [batch(bytes([number]) * 900, b"second") for number in range(3)]
    for records in lost:
        append(log, records)
    fail_sync(disk, log)
    online_again(store, log)
    assert log.fault is None
    assert (log.leader_epoch, store.directory.leader_epoch) == (1, 1)
    assert (log.log_end_offset, log.high_watermark) == (confirmed, confirmed)
    assert read_all(log) == written
    (loss,) = losses(store)
    assert (loss["cause"], loss["topic"], loss["partition"]) == ("sync_failed", "t", 0)
    assert (loss["first_offset"], loss["last_offset"]) == (confirmed, confirmed + 5)
    assert (loss["records"], loss["bytes"]) == (6, sum(map(len, lost)))
    after = fill(log, 2)
    assert read_header(memoryview(after[0])).base_offset == confirmed
    assert read_header(memoryview(after[0])).leader_epoch == 1
    disk.crash()
    again = open_store(disk).topics["t"].partitions[0]
    assert again.fault is None
    assert read_all(again) == written + after


def test_the_old_segment_is_sealed_and_the_epochs_say_where_the_new_one_begins() -> None:
    disk, store, log = opened()
    fill(log, 4)
    append(log, batch(b"lost"))
    fail_sync(disk, log)
    online_again(store, log)
    assert [segment.base_offset for segment in log.segments] == [0, 4]
    assert log.reader.epoch_end(0) == (0, 4)
    assert log.reader.epoch_end(1) == (1, 4)
    assert b"\n0 0\n1 4\n" in disk.content(f"{log.directory}/leader-epoch-checkpoint")
    assert disk.exists(f"{log.directory}/{'0' * 20}.index")
    store.close()
    disk.kill()
    again = open_store(disk)
    assert (again.directory.started_unclean, again.directory.leader_epoch, again.recovery_notes) == (False, 1, [])
    assert again.topics["t"].partitions[0].log_end_offset == 4


def test_producers_are_as_the_log_has_them() -> None:
    disk, store, log = opened()
    append(log, batch(b"kept", producer=(7, 0, 0)))
    sync(log)
    append(log, batch(b"lost", producer=(7, 0, 1)))
    append(log, batch(b"lost", producer=(8, 0, 0)))
    fail_sync(disk, log)
    online_again(store, log)
    assert append(log, batch(b"kept", producer=(7, 0, 0))).duplicate
    with pytest.raises(Refusal) as refused:
        append(log, batch(b"later", producer=(7, 0, 2)))
    assert refused.value.code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert append(log, batch(b"again", producer=(7, 0, 1)))[:2] == (1, 2)
    assert append(log, batch(b"again", producer=(8, 0, 0)))[:2] == (2, 3)


def test_a_failed_write_is_covered_the_same_way() -> None:
    disk, store, log = opened()
    written = fill(log, 2)
    append(log, batch(b"not yet synced"))
    disk.fault = failing("write", "/t-0/")
    with pytest.raises(StorageFault):
        append(log, batch(b"refused"))
    disk.fault = None
    online_again(store, log)
    assert read_all(log) == written
    assert losses(store)[0]["records"] == 1
    assert append(log, batch(b"x"))[:2] == (2, 3)


@pytest.mark.parametrize("kind", ["datasync", "create", "rename", "sync_directory"])
def test_a_failed_roll_is_covered_the_same_way(kind: str) -> None:
    disk, store, log = opened({"segment.bytes": "4096"})
    append(log, batch(b"x" * 3000))
    disk.fault = failing(kind, "/t-0")
    with pytest.raises(StorageFault):
        append(log, batch(b"y" * 3000))
    disk.fault = None
    online_again(store, log)
    lost = kind == "datasync"
    assert log.log_end_offset == (0 if lost else 1)
    assert len(losses(store)) == lost
    fill(log, 3, 3000)
    assert len(read_all(log, 1 << 20)) == log.log_end_offset


def test_a_disk_that_still_refuses_is_asked_again_and_the_loss_is_one() -> None:
    disk, store, log = opened()
    written = fill(log, 3)
    append(log, batch(b"lost"))
    fail_sync(disk, log)
    for kind, path_part in (
        ("create", "/data/."),
        ("datasync", LEDGER_TOPIC),
        ("truncate", "/t-0/"),
        ("datasync", "/t-0/"),
        ("create", "/t-0/"),
    ):
        disk.fault = failing(kind, path_part)
        with pytest.raises(StorageFault):
            bring_online(store, log, NOW)
        disk.fault = None
        assert log.fault is not None
        ledger = store.topics[LEDGER_TOPIC].partitions[0]
        if ledger.fault is not None:
            online_again(store, ledger)
    online_again(store, log)
    assert read_all(log) == written
    assert len({loss["id"] for loss in losses(store)}) == 1


def test_several_partitions_share_the_next_epoch_and_each_failure_has_its_own() -> None:
    disk = SimulatedDisk(1)
    store = open_store(disk)
    logs = make_topic(store, partitions=3).partitions
    for log in logs[:2]:
        append(log, batch(b"lost"))
        fail_sync(disk, log)
    for log in logs[:2]:
        online_again(store, log)
    assert [log.leader_epoch for log in logs] == [1, 1, 0]
    append(logs[0], batch(b"lost"))
    fail_sync(disk, logs[0])
    online_again(store, logs[0])
    assert [log.leader_epoch for log in logs] == [2, 1, 0]
    assert len({loss["id"] for loss in losses(store)}) == 3


@pytest.mark.parametrize("seed", range(20))
def test_a_topic_left_to_the_kernel_keeps_what_the_disk_has(seed: int) -> None:
    """Consumers may have seen everything; what the disk has whole from the start on is shown again."""
    disk = SimulatedDisk(seed)
    store = open_store(disk)
    config = {"flush.ms": str(LEFT_TO_KERNEL_MS), "segment.bytes": "65536"}
    log = make_topic(store, config=config).partitions[0]
    written = [bytes(records) for records in (batch(bytes([number]) * 3000) for number in range(21))]
    for number, one in enumerate(written):
        records = memoryview(bytearray(one))
        append(log, records)
        written[number] = bytes(records)
    disk.fault = failing("datasync", "/t-0/")
    with pytest.raises(StorageFault):
        append(log, batch(b"z" * 3000))
    disk.fault = None
    online_again(store, log)
    kept = log.log_end_offset
    assert read_all(log) == written[:kept]
    lost = losses(store)
    assert [(one["first_offset"], one["last_offset"], one["records"]) for one in lost] == (
        [(kept, 20, 21 - kept)] if kept < 21 else []
    )
    disk.crash()
    assert read_all(open_store(disk).topics["t"].partitions[0])[:kept] == written[:kept]


def test_the_ledger_itself_comes_back_and_names_its_loss() -> None:
    disk = SimulatedDisk(1)
    store = open_store(disk)
    log = store.topics[LEDGER_TOPIC].partitions[0]
    append(log, batch(b"{}"))
    fail_sync(disk, log)
    back = online_again(store, log)
    assert back.loss is not None
    store.ledger.write([back.loss])
    assert [(one["cause"], one["topic"]) for one in losses(store)] == [("sync_failed", LEDGER_TOPIC)]


def test_a_deleted_topic_does_not_come_back() -> None:
    disk, store, log = opened()
    append(log, batch(b"lost"))
    fail_sync(disk, log)
    store.remove_topic("t")
    make_topic(store, "other")
    assert bring_online(store, log, NOW) is None


def test_a_crash_at_any_step_of_coming_online_loses_nothing_synced() -> None:
    for step in range(1, 200):
        disk = SimulatedDisk(step)
        store = open_store(disk)
        log = make_topic(store).partitions[0]
        written = fill(log, 3, 700)
        store.checkpoint()
        records = batch(b"lost" * 100)
        append(log, records)
        fail_sync(disk, log)
        if not cut_off(disk, step, partial(bring_online, store, log, NOW)):
            return
        disk.crash()
        again = open_store(disk)
        found = again.topics["t"].partitions[0]
        assert found.fault is None, again.recovery_notes
        assert read_all(found)[:3] == written
        assert read_all(found)[3:] in ([], [bytes(records)])
    pytest.fail("coming online has more steps than were tried")


def test_what_waits_for_the_old_log_is_not_confirmed_by_the_new_one() -> None:
    disk, store, log = opened()
    records = batch(b"lost")
    append(log, records)
    fail_sync(disk, log)
    online_again(store, log)
    late = batch(b"x")
    log.writer.append(late, check_batch(late, 1 << 20), NOW)
    assert log.writer.begin_flush() is not None
    assert log.high_watermark == 0
