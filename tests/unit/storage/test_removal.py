"""What goes from the front of a log: in which order, what is written down about it, and what a crash leaves to do."""

import errno
import json
import os
import random
import uuid
from functools import partial
from itertools import pairwise

import pytest

from drupelet.ledger import LEDGER_TOPIC
from edge_broker.errors import StorageFault
from edge_broker.protocol.record_batch import records_of
from edge_broker.storage.files.atomic_files import temporary_name
from edge_broker.storage.files.filesystem import Space
from edge_broker.storage.log.removed_offsets import RemovedRange, read_removed, removed_end, with_removed
from edge_broker.storage.loss.quarantine import add_corrupt_range
from edge_broker.storage.maintenance.preallocation import Reserve
from edge_broker.storage.metadata.loss_records import Loss
from edge_broker.storage.recovery.recovery_checkpoint import FILES as POSITIONS
from edge_broker.storage.retention.segment_removal import (
    RemovalRange,
    SegmentRemoval,
    active_expired,
    around_corrupt_ranges,
    count_parts,
    delete_expired,
    follow_start,
    remove_front,
    split_at,
)
from edge_broker.storage.segment.batch_scan import CorruptRange
from edge_broker.testing.clock import NOW_MS
from edge_broker.testing.disk import PowerLoss, SimulatedDisk
from edge_broker.testing.site import make_topic
from tests.support.storage import (
    NOW,
    append,
    batch,
    cut_off,
    failing,
    fallen,
    fill,
    open_store,
    read_all,
    sync,
    time_at,
)

CONFIG = {"segment.bytes": "4096", "retention.ms": "1000"}
LATER = time_at(NOW_MS + 1001)


@pytest.fixture
def disk():
    return SimulatedDisk(1)


def ledgered(store):
    """The ledger's records, as they are read back."""
    log = store.topics[LEDGER_TOPIC].partitions[0]
    return [json.loads(bytes(one.value)) for found in read_all(log, 1 << 20) for one in records_of(memoryview(found))]


def filled(store, batches=60):
    log = make_topic(store, config=CONFIG).partitions[0]
    return log, fill(log, batches, 200)


def test_the_account_says_what_retention_took(disk):
    store = open_store(disk)
    log, _ = filled(store)
    size = log.size
    assert delete_expired(log, LATER) > 1
    start = log.log_start_offset
    account = (RemovedRange("retention", 0, start, start, 0, 0, size - log.size),)
    assert log.removed == account == read_removed(disk, log.directory)
    assert ledgered(store) == []
    disk.crash()
    again = open_store(disk).topics["t"].partitions[0]
    assert (again.removed, again.log_start_offset) == (account, start)


def test_each_cause_is_named(disk):
    log = make_topic(open_store(disk), config={**CONFIG, "retention.bytes": "6000"}).partitions[0]
    for number in range(60):
        at_ms = NOW_MS + (0 if number < 20 else 500)
        append(log, batch(bytes(200), timestamp_ms=at_ms), at_ms)
    sync(log)
    delete_expired(log, LATER)
    assert [entry.cause for entry in log.removed] == ["retention", "retention_bytes"]
    assert removed_end(log.removed) == log.log_start_offset


def test_what_no_group_passed_is_in_the_ledger_before_it_goes(disk):
    store = open_store(disk)
    log, _ = filled(store)
    passed = log.segments[1].base_offset + 3
    before = log.segments
    disk.fault = failing("remove")
    with pytest.raises(StorageFault):
        delete_expired(log, LATER, passed)
    start = log.log_start_offset
    found = ledgered(store)
    assert [(one["cause"], one["first_offset"]) for one in found][:1] == [("expired_unpassed", passed)]
    assert [one["last_offset"] + 1 for one in found[:-1]] == [one["first_offset"] for one in found[1:]]
    assert found[-1]["last_offset"] == start - 1
    assert sum(one["records"] for one in found) == start - passed
    assert found[0]["first_timestamp"] == found[0]["last_timestamp"] == NOW_MS
    assert [entry[:3] for entry in log.removed] == [("retention", 0, passed), ("expired_unpassed", passed, start)]
    assert sum(entry.bytes for entry in log.removed) == sum(segment.size for segment in before[:-1])


def test_without_a_ledger_nothing_goes(disk):
    store = open_store(disk)
    log, written = filled(store)
    disk.fault = failing("write", LEDGER_TOPIC)
    with pytest.raises(StorageFault):
        delete_expired(log, LATER, 0)
    assert (log.log_start_offset, log.removed, log.fault) == (0, (), None)
    assert read_all(log) == written


@pytest.mark.parametrize("unpassed", [False, True])
def test_a_crash_at_any_step_leaves_all_or_less_and_the_account_right(unpassed):
    for step in range(1, 200):
        disk = SimulatedDisk(step)
        log, written = filled(open_store(disk))
        if not cut_off(disk, step, partial(delete_expired, log, LATER, 0 if unpassed else 1 << 62)):
            assert step > 8
            return
        store = fallen(disk, random.Random(step))
        again = store.topics["t"].partitions[0]
        start = again.log_start_offset
        assert again.fault is None
        assert read_all(again) == written[start:]
        assert start == again.segments[0].base_offset == removed_end(again.removed)
        assert sum(entry.records for entry in again.removed) == start
        lost = {offset for one in ledgered(store) for offset in range(one["first_offset"], one["last_offset"] + 1)}
        assert not unpassed or lost >= set(range(start))
        delete_expired(again, LATER, 0 if unpassed else 1 << 62)
        spans = sorted({one["id"]: (one["first_offset"], one["last_offset"]) for one in ledgered(store)}.values())
        assert all(last < first for (_, last), (first, _) in pairwise(spans)), "one loss, two ids"
        assert {entry.cause for entry in again.removed} == {"expired_unpassed" if unpassed else "retention"}
    pytest.fail("the removal has more steps than were tried")


def test_a_start_that_retention_reached_before_there_was_an_account_is_taken_over(disk):
    store = open_store(disk)
    log, _ = filled(store)
    delete_expired(log, LATER)
    start = log.log_start_offset
    store.close()
    disk.remove(f"{log.directory}/removed-offsets")
    disk.kill()
    store = open_store(disk)
    again = store.topics["t"].partitions[0]
    assert [entry[:3] for entry in again.removed] == [("retention", 0, start)]
    assert ledgered(store) == []


def test_segments_that_are_gone_without_an_account_are_a_loss(disk):
    store = open_store(disk)
    log, written = filled(store)
    base = log.segments[1].base_offset
    store.close()
    disk.remove(log.segments[0].path)
    disk.kill()
    store = open_store(disk)
    again = store.topics["t"].partitions[0]
    assert read_all(again) == written[base:]
    assert [entry[:3] for entry in again.removed] == [("damaged", 0, base)]
    (loss,) = ledgered(store)
    assert (loss["cause"], loss["first_offset"], loss["last_offset"], loss["records"]) == ("damaged", 0, base - 1, None)
    assert any("see the ledger" in note for note in store.recovery_notes)
    store.close()
    disk.kill()
    assert len(ledgered(open_store(disk))) == 1


def test_a_damaged_account_is_made_again_from_what_is_there(disk):
    store = open_store(disk)
    log, written = filled(store)
    delete_expired(log, LATER)
    start = log.log_start_offset
    disk.flip(f"{log.directory}/removed-offsets", 60)
    disk.kill()
    store = open_store(disk)
    again = store.topics["t"].partitions[0]
    assert (again.log_start_offset, again.fault) == (start, None)
    assert read_all(again) == written[start:]
    assert [one["cause"] for one in ledgered(store)] == ["damaged"]


def test_neighbours_of_one_cause_are_one_line():
    first, second = RemovedRange("retention", 0, 5, 3, 1, 1, 50), RemovedRange("retention", 5, 9, 4, 0, 0, 40)
    other = RemovedRange("evicted", 9, 12, 3, 0, 0, 30)
    merged = with_removed((first,), [second, other, RemovedRange("evicted", 12, 12, 0, 0, 0, 0)])
    assert merged == (RemovedRange("retention", 0, 9, 7, 1, 1, 90), other)


@pytest.mark.parametrize(
    ("passed", "expected"),
    [
        (0, [("b", 10, 20)]),
        (10, [("b", 10, 20)]),
        (13, [("a", 10, 13), ("b", 13, 20)]),
        (20, [("a", 10, 20)]),
        (99, [("a", 10, 20)]),
    ],
)
def test_a_segment_is_split_where_the_groups_have_come_to(passed, expected):
    assert split_at(10, 20, passed, "a", "b") == [RemovalRange(*one) for one in expected]


def test_a_batch_that_two_parts_share_gives_each_its_records(disk):
    log = make_topic(open_store(disk)).partitions[0]
    append(log, batch(b"a", b"b", b"c"))
    append(log, batch(b"d", b"e"))
    sync(log)
    first, second = count_parts(log.segments[0], [RemovalRange("passed", 0, 2), RemovalRange("evicted", 2, 5)])
    assert first.entry() == RemovedRange("passed", 0, 2, 2, 0, 0, 0)
    assert second.entry() == RemovedRange("evicted", 2, 5, 3, 0, 0, log.size)


def test_offsets_without_a_record_were_compacted_away(disk):
    log = make_topic(open_store(disk)).partitions[0]
    append(log, batch(b"a", b"b"))
    assert count_parts(log.segments[0], [RemovalRange("retention", 0, 7)])[0].entry()[3:6] == (2, 0, 5)


def test_damage_in_what_goes_leaves_counts_unknown_and_the_sum_right(disk):
    store = open_store(disk)
    log, _ = filled(store)
    segment, following = log.segments[:2]
    disk.flip(segment.path, 16 + 3 * (segment.size // following.base_offset))
    remove_front(
        log,
        [SegmentRemoval(segment, [RemovalRange("passed", 0, 2), RemovalRange("evicted", 2, following.base_offset)])],
        NOW,
    )
    passed, entry = log.removed
    assert (passed.records, entry.records + entry.control + entry.compacted) == (2, following.base_offset - 2)
    assert ledgered(store)[0]["records"] is None


def test_corrupt_ranges_go_as_damage_and_are_not_lost_a_second_time(disk):
    store = open_store(disk)
    log, _ = filled(store)
    segment, following = log.segments[:2]
    size = segment.size // following.base_offset
    add_corrupt_range(segment, CorruptRange(3, 5, 3 * size, 5 * size))
    remove_front(log, [SegmentRemoval(segment, [RemovalRange("evicted", 0, following.base_offset)])], NOW)
    assert [entry[:4] for entry in log.removed] == [
        ("evicted", 0, 3, 3),
        ("damaged", 3, 5, 2),
        ("evicted", 5, following.base_offset, following.base_offset - 5),
    ]
    assert [(one["cause"], one["first_offset"], one["records"]) for one in ledgered(store)] == [
        ("evicted", 0, 3),
        ("evicted", 5, following.base_offset - 5),
    ]


def test_a_corrupt_range_over_the_border_of_two_parts_is_one_piece_of_each(disk):
    log, _ = filled(open_store(disk))
    segment = log.segments[0]
    segment.corrupt_ranges = (CorruptRange(2, 6, 0, 0),)
    assert around_corrupt_ranges(
        SegmentRemoval(segment, [RemovalRange("passed", 0, 4), RemovalRange("evicted", 4, 9)])
    ).parts == [
        RemovalRange("passed", 0, 2),
        RemovalRange("damaged", 2, 4),
        RemovalRange("damaged", 4, 6),
        RemovalRange("evicted", 6, 9),
    ]


# the ledger


def test_the_ledger_is_there_from_the_first_start_on(disk):
    store = open_store(disk)
    log = store.topics[LEDGER_TOPIC].partitions[0]
    store.ledger.write([Loss("evicted", "t", "id", 0, 3, 8, 5, 50, 1, 2)])
    assert log.high_watermark == 1
    assert log.ledger is store.ledger is make_topic(store).partitions[0].ledger
    disk.crash()
    (record,) = ledgered(open_store(disk))
    assert (record["id"], record["last_offset"]) == ("evicted:t:0:3-7:id", 7)


def test_a_ledger_that_somebody_else_made_is_never_left_to_expire_or_to_the_kernel(disk):
    store = open_store(disk)
    store.topic_files.erase_topic(store.remove_topic(LEDGER_TOPIC))
    config = {"retention.ms": "1", "cleanup.policy": "compact", "flush.ms": "9223372036854775807"}
    made = store.topic_files.make_topic(LEDGER_TOPIC, 2, config, uuid.uuid4())
    assert made.config == config
    disk.crash()
    settings = open_store(disk).topics[LEDGER_TOPIC].partitions[1].settings
    assert (settings.retention_ms, settings.deletes, settings.left_to_kernel) == (-1, True, False)
    assert settings.segment_bytes == 1 << 20


def test_without_space_for_another_segment_the_ledger_goes_on_in_the_old_one(disk):
    store = open_store(disk)
    log = store.topics[LEDGER_TOPIC].partitions[0]
    log.settings.segment_bytes = 4096
    disk.fault = failing("create", LEDGER_TOPIC, errno.ENOSPC)
    for offset in range(300):
        store.ledger.write([Loss("evicted", "t", "id", 0, offset, offset + 1, 1, 70)])
    assert (len(log.segments), log.fault) == (1, None)
    disk.fault = None
    for offset in range(300, 600):
        store.ledger.write([Loss("evicted", "t", "id", 0, offset, offset + 1, 1, 70)])
    assert len(log.segments) > 1
    disk.crash()
    assert [one["first_offset"] for one in ledgered(open_store(disk))] == list(range(600))


# what is set aside


def test_the_reserve_is_renewed_when_half_of_it_is_used(disk):
    store = open_store(disk)
    log = make_topic(store, config={"segment.bytes": "1000000"}).partitions[0]
    asked = []

    def count(step, _path, size):
        if step == "reserve":
            asked.append(size)

    disk.fault = count
    reserve = Reserve(log)
    for _ in range(40):
        append(log, batch(bytes(10_000)))
        reserve.renew()
    assert asked == [256 << 10] * 3


def test_a_full_disk_leaves_what_was_set_aside(disk):
    log = make_topic(open_store(disk)).partitions[0]
    reserve = Reserve(log)
    disk.fault = failing("reserve", "", errno.ENOSPC)
    reserve.renew()
    assert reserve.possible
    disk.fault = failing("reserve")
    with pytest.raises(OSError, match="broken"):
        reserve.renew()


@pytest.mark.parametrize("crash_at", [*range(1, 12), None])
def test_the_account_is_written_into_the_spare_where_no_block_is_free(crash_at):
    disk = SimulatedDisk(3)
    store = open_store(disk)
    log, written = filled(store)
    store.spare.renew()

    def full(step, path, _size):
        if step == "write" and path.endswith(".new") and not spent:
            spent.append(path)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)

    spent: list[str] = []
    disk.fault = full
    if crash_at is not None:
        disk.crash_at = disk.steps + crash_at
        with pytest.raises(PowerLoss):
            delete_expired(log, LATER)
        disk.crash()
    else:
        delete_expired(log, LATER)
        assert spent
        assert not disk.exists("/data/.spare")
        disk.fault = None
        store.spare.renew()
        assert disk.exists("/data/.spare")
        disk.crash()
    again = open_store(disk).topics["t"].partitions[0]
    assert again.fault is None
    assert read_all(again) == written[again.log_start_offset :]
    assert removed_end(again.removed) == again.log_start_offset


def test_a_start_without_space_for_positions_goes_on_with_the_old_ones(disk):
    store = open_store(disk)
    filled(store)
    disk.kill()
    disk.fault = failing("create", temporary_name("/data", POSITIONS[0]), errno.ENOSPC)
    store = open_store(disk)
    assert any("no space to write it" in note for note in store.recovery_notes)
    assert store.topics["t"].partitions[0].fault is None


def test_a_start_on_a_full_disk_takes_the_spare(disk):
    store = open_store(disk)
    store.spare.renew()
    disk.room = Space(1 << 26, 0)
    disk.kill()
    assert open_store(disk).directory.started_unclean
    assert not disk.exists("/data/.spare")


def test_a_replica_that_follows_decides_nothing_and_frees_what_lies_before_its_start(disk):
    """The leader's request deleted all of it while it was in the segment that is written to."""
    log = make_topic(open_store(disk), config=CONFIG).partitions[0]
    fill(log, 3, 2500)
    assert delete_expired(log, LATER, leads=False) == 0
    assert not active_expired(log, LATER, leads=False)
    follow_start(log, 3, NOW)
    assert active_expired(log, NOW, leads=False)
    log.writer.rolling = True
    log.roller.roll()
    log.writer.end_roll()
    assert delete_expired(log, NOW, leads=False) == 1
    assert (log.log_start_offset, log.log_end_offset, log.size) == (3, 3, 0)


def test_what_followers_may_lack_is_not_too_old_yet(disk):
    """Its own times make it old; a leader that let go of it would begin above its high watermark."""
    log = make_topic(open_store(disk), config=CONFIG).partitions[0]
    nothing = log.state.shown
    fill(log, 3, 2500)
    shown, log.state.shown = log.state.shown, nothing
    assert delete_expired(log, LATER) == 0
    log.state.shown = shown
    assert delete_expired(log, LATER) == 2
