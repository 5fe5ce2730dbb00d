"""Compacting partitions: what is read afterwards, what never moves, and what a crash at any step leaves."""

import errno
from contextlib import suppress
from itertools import pairwise

import pytest

from edge_broker.errors import StorageFault
from edge_broker.protocol.record_batch import CONTROL, TRANSACTIONAL, read_header
from edge_broker.storage.files.data_age import Now
from edge_broker.storage.files.filesystem import Space
from edge_broker.storage.maintenance.log_cleaner import FILE, READ_AT_ONCE, LogCleaner, cleanable, groups_of
from edge_broker.storage.maintenance.scrubber import Scrubber
from edge_broker.storage.retention.segment_removal import delete_expired
from edge_broker.storage.segment.batch_scan import batches_in
from edge_broker.testing.clock import NOW_MS
from edge_broker.testing.disk import PowerLoss, SimulatedDisk
from edge_broker.testing.site import make_topic
from tests.support.compaction import BUFFER_BYTES, CONFIG, clean, content, fill_keys, latest_of, put, roll, write
from tests.support.record_batches import ABORT, COMMIT, make_batch, marker
from tests.support.storage import NOW, ledgered, open_store, read_all, sync, time_at

DAY_MS = 86_400_000


@pytest.fixture
def disk():
    return SimulatedDisk(1)


@pytest.fixture
def store(disk):
    return open_store(disk)


def compacted(store, **config):
    return make_topic(store, "t", 1, {**CONFIG, **{name.replace("_", "."): value for name, value in config.items()}})


def ends(log):
    return log.log_start_offset, log.log_end_offset, log.high_watermark, log.leader_epoch, log.state.epochs.starts


def test_the_last_value_of_each_key_stays_where_it_is(store):
    log = compacted(store).partitions[0]
    latest = fill_keys(log, 100)
    active = log.segments[-1].base_offset
    before, known, there = ends(log), log.writer.producers.by_id(), content(log)
    cleaner = clean(store)
    after = content(log)
    assert latest_of(log) == latest
    assert after == [record for record in there if record[0] >= active or record in after]
    assert len([record for record in after if record[0] < active]) == 8
    assert ends(log) == before
    assert log.writer.producers.by_id() == known
    assert cleaner.passes == 1
    assert cleaner.removed == len(there) - len(after)
    assert not clean(store).passes


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("how", ["kill", "crash"])
def test_a_swap_whose_name_finds_no_space_is_taken_back(store, disk, how, times):
    """Else the next start looks for the compacted segment, which is gone. Where that fails, too, it is still there."""
    log = compacted(store).partitions[0]
    latest, failed = fill_keys(log, 100), []

    def full(kind, path, _size):
        if kind == "sync_directory" and (failed or disk.exists(f"{log.directory}/swap")) and len(failed) < times:
            failed.append(path)
            raise OSError(errno.ENOSPC, "full", path)

    disk.fault = full
    with suppress(StorageFault):
        clean(store)
    disk.fault = None
    assert len(failed) == times
    assert (log.fault is None) == (times == 1)
    getattr(disk, how)()
    again = open_store(disk).topics["t"].partitions[0]
    assert again.fault is None
    assert latest_of(again) == latest


@pytest.mark.parametrize("how", ["kill", "crash"])
def test_what_went_is_no_damage_once_the_topic_compacts_no_more(store, disk, how):
    topic = compacted(store)
    fill_keys(topic.partitions[0], 100)
    clean(store)
    there = content(topic.partitions[0])
    config = {**topic.config, "cleanup.policy": "delete"}
    store.use_config(topic, config, store.topic_files.write_config(topic, config))
    assert content(topic.partitions[0]) == there
    for name in disk.names("/data/t-0"):
        if name.endswith(".summary"):
            disk.remove(f"/data/t-0/{name}")  # it would tell
    disk.sync_directory("/data/t-0")
    getattr(disk, how)()
    again = open_store(disk)
    log = again.topics["t"].partitions[0]
    assert content(log) == there
    assert not log.settings.compacts
    assert (log.damages, ledgered(again)) == (0, [])


def test_cleaned_segments_merge_and_are_found_by_offset_and_time(store):
    log = compacted(store).partitions[0]
    fill_keys(log, 400, keys=3)
    segments = len(log.segments)
    assert segments > 10
    clean(store)
    for round_ in range(4):
        latest = fill_keys(log, 30 + round_, keys=3)
        clean(store)
    assert len(log.segments) < 5
    assert latest_of(log).items() >= latest.items()
    for offset in range(log.log_end_offset):
        data = log.reader.read(offset, 200, blocking=True)
        assert read_header(data).last_offset >= offset
    assert log.reader.offset_for_timestamp(NOW_MS) is not None
    assert log.reader.max_timestamp()[1] == NOW_MS


def test_a_restart_finds_the_same(store, disk):
    log = compacted(store).partitions[0]
    fill_keys(log, 100)
    write(log, (b"p", b"1"), producer=(7, 0, 0))
    sync(log)
    clean(store)
    before, there = ends(log), content(log)
    known = log.writer.producers.by_id()
    disk.crash()
    store = open_store(disk)
    (log,) = store.topics["t"].partitions
    assert (ends(log)[:3], content(log)) == (before[:3], there)
    assert log.writer.producers.by_id().keys() == known.keys()
    store.close()
    disk.unlock("/data/.lock")
    store = open_store(disk)
    (log,) = store.topics["t"].partitions
    assert (ends(log)[:3], content(log)) == (before[:3], there)
    assert not clean(store).passes, "the checkpoint says how far the log is clean"
    assert not store.recovery_notes


def test_only_what_is_dirty_is_mapped_and_unchanged_segments_are_not_written(store):
    log = compacted(store).partitions[0]
    for number in range(200):
        write(log, (b"unique-%d" % number, b"v" * 50))
    sync(log)
    cleaner = clean(store, work_max=50)
    assert cleaner.bytes_read > 0
    sealed = log.segments[:-1]
    written = cleaner.bytes_written
    for number in range(60):
        write(log, (b"more-%d" % number, b"v" * 50))
    sync(log)
    clean(store)
    assert written == 0
    assert log.segments[: len(sealed)] == sealed


def test_a_map_that_is_too_small_takes_several_passes(store):
    log = compacted(store).partitions[0]
    latest = {}
    for number in range(300):
        key = b"%d" % (number % 100)
        latest[key] = (write(log, (key, b"%d" % number + b"." * 60)).base_offset, b"%d" % number + b"." * 60)
    sync(log)
    cleaner = clean(store, buffer_bytes=24 * 23)
    assert cleaner.passes > 3
    assert latest_of(log) == latest
    active = log.segments[-1].base_offset
    assert len([record for record in content(log) if record[0] < active]) < 200


def test_tombstones_go_after_their_horizon_and_never_before(store):
    log = compacted(store, delete_retention_ms="1000").partitions[0]
    write(log, (b"a", b"1"), (b"b", b"2"))
    write(log, (b"a", None))
    roll(log)
    write(log, (b"c", b"3"))
    sync(log)
    clean(store)
    assert content(log) == [(1, b"b", b"2"), (2, b"a", None), (3, b"c", b"3")]

    def again(now, expected):
        write(log, (b"c", b"3"), now=now)
        roll(log)
        sync(log)
        clean(store, now)
        assert (2, b"a", None) in content(log) if expected else (2, b"a", None) not in content(log)

    again(time_at(NOW_MS + 999), True)
    again(Now(NOW_MS + 5000, 5000, False, "boot"), True)
    again(time_at(NOW_MS + 1000), False)
    assert latest_of(log)[b"b"] == (1, b"2")


def test_a_producers_last_batch_leaves_its_header_for_a_start_without_snapshots(store, disk):
    log = compacted(store).partitions[0]
    for sequence in range(4):
        write(log, (b"a", b"%d" % sequence), producer=(7, 2, sequence))
    write(log, (b"a", b"last"))
    fill_keys(log, 60)
    clean(store)
    log = reopened_without_snapshots(disk)
    assert log.writer.producers.by_id()[7].batches[-1].last_sequence == 3
    assert log.writer.producers.by_id()[7].batches[-1].last_offset == 3
    again = write(log, (b"a", b"3"), producer=(7, 2, 3))
    assert (again.duplicate, again.base_offset) == (True, 3)
    assert not write(log, (b"a", b"4"), producer=(7, 2, 4)).duplicate


def reopened_without_snapshots(disk):
    disk.crash()
    for name in disk.names("/data/t-0"):
        if name.endswith(".snapshot"):
            disk.remove(f"/data/t-0/{name}")
    disk.sync_directory("/data/t-0")
    (log,) = open_store(disk).topics["t"].partitions
    return log


def test_a_segment_that_loses_every_record_keeps_one_header(store):
    log = compacted(store).partitions[0]
    fill_keys(log, 20)
    roll(log)
    segments = len(log.segments)
    latest = fill_keys(log, 1)
    assert segments == 4
    roll(log)
    write(log, (b"z", b"z"))
    sync(log)
    clean(store)
    assert latest_of(log) == {**latest, b"z": (log.log_end_offset - 1, b"z")}
    assert log.log_start_offset == 0
    assert all(segment.size for segment in log.segments[:-1])


def test_retention_still_deletes_where_the_policy_says_both(store):
    log = compacted(store, cleanup_policy="compact,delete", retention_ms="1000").partitions[0]
    fill_keys(log, 100)
    clean(store)
    sealed = len(log.segments) - 1
    assert delete_expired(log, NOW) == 0
    assert delete_expired(log, time_at(NOW_MS + 2000)) == sealed > 0
    entry = log.removed[0]
    assert entry.records + entry.control + entry.compacted == entry.end_offset - entry.first_offset
    assert entry.compacted > 0


def test_summaries_count_what_is_left_and_keep_the_age(store, disk):
    log = compacted(store).partitions[0]
    fill_keys(log, 20)
    for number in range(60):
        write(log, (b"key-1", b"%d" % number), now=time_at(NOW_MS + 500), timestamp=NOW_MS + 500)
    for number in range(60):
        write(log, (b"key-2", b"%d" % number), now=time_at(NOW_MS + 900), timestamp=NOW_MS + 900)
    sync(log)
    old = [log.summary(segment, NOW) for segment in log.segments[:-1]]
    clean(store, time_at(NOW_MS + 5000))
    found = [log.summary(segment, time_at(NOW_MS + 9000)) for segment in log.segments[:-1]]
    ends = [segment.base_offset for segment in log.segments[1:]]
    assert [summary.end_offset for summary in found] == ends
    for segment, summary in zip(log.segments, found, strict=False):
        assert summary == segment.read_summary()
        assert summary.records + summary.control + summary.compacted == summary.end_offset - segment.base_offset
        assert summary.bytes == segment.size
        inside = [one.written_age_ms for one in old if segment.base_offset < one.end_offset <= summary.end_offset]
        assert summary.written_age_ms == max(inside)
    assert sum(summary.records for summary in found) == len([r for r in content(log) if r[0] < ends[-1]])


def test_what_compaction_took_from_the_end_of_a_segment_is_no_damage_when_its_summary_is_lost(store, disk):
    log = compacted(store).partitions[0]
    write(log, (b"once", b"v"))
    for number in range(100):
        write(log, (b"key", b"%d" % number * 50))
    sync(log)
    clean(store)
    segment, following = log.segments[:2]
    assert read_header(read_all(log)[0]).next_offset == 1 < following.base_offset, "there is a gap at the end alone"
    right = segment.stored_summary
    store.close()
    disk.kill()  # as if between the new segment's name and its summary
    disk.remove(f"{segment.directory}/{segment.name('summary')}")
    store = open_store(disk)
    log = store.topics[log.topic].partitions[0]
    summary = log.summary(log.segments[0], NOW)
    assert summary._replace(written_age_ms=right.written_age_ms) == right
    assert log.reader.read(summary.end_offset - 1, 100, blocking=True), "the next segment answers"
    scrubber = Scrubber(store)
    while scrubber.step():
        pass
    assert (scrubber.notes, log.damages) == ([], 0)


@pytest.mark.leaves("speaks of byte")
def test_a_missing_last_segment_loses_its_own_offsets_and_none_that_compaction_took(store, disk):
    log = compacted(store).partitions[0]
    latest = fill_keys(log, 40)
    write(log, (b"key-1", b"last"))
    roll(log)
    clean(store)
    fill_keys(log, 1, keys=1)
    store.checkpoint()
    compacted_one, active = log.segments[-2:]
    assert compacted_one.stored_summary.compacted > 0
    end_offset, kept = log.log_end_offset, [record for record in content(log) if record[0] < active.base_offset]
    disk.remove(active.path)
    disk.sync_directory(log.directory)
    disk.crash()
    store = open_store(disk)
    (log,) = store.topics["t"].partitions
    assert (log.fault, log.log_end_offset, log.high_watermark) == (None, end_offset, end_offset)
    assert ledgered(store) == [("damaged", "t", 0, active.base_offset, end_offset - 1)]
    write(log, (b"key-1", b"behind"))
    sync(log)
    assert content(log)[:-1] == kept
    assert latest.keys() <= latest_of(log).keys()
    disk.crash()
    store = open_store(disk)
    assert content(store.topics["t"].partitions[0])[:-1] == kept
    assert len(ledgered(store)) == 1


def test_what_compaction_took_is_known_after_one_read_in_the_worker(store, disk):
    log = compacted(store).partitions[0]
    fill_keys(log, 100)
    clean(store)
    offsets = [-1, *(record[0] for record in content(log))]
    gap = next(a + 1 for a, b in pairwise(offsets) if b > a + 1)
    disk.crash()
    (log,) = open_store(disk).topics["t"].partitions
    log.segments[0].load_index()
    assert log.reader.read(gap, 1, blocking=False) is None, "whether anything is missing there is in the summary alone"
    data = log.reader.read(gap, 1, blocking=True)
    assert read_header(data).base_offset > gap
    assert log.reader.read(gap, 1, blocking=False) == data


def test_an_index_made_again_reaches_over_what_compaction_took(store, disk):
    log = compacted(store, segment_bytes="65536").partitions[0]
    for number in range(400):
        write(log, (b"key-%d" % (number * number % 397), b"v" * 100))
    roll(log)
    clean(store)
    segment = log.segments[0]
    assert segment.stored_summary.compacted > 0
    written = segment.boundaries()
    assert len(written) > 1
    store.close()
    disk.unlock("/data/.lock")
    disk.remove(f"{segment.directory}/{segment.name('index')}")
    store = open_store(disk)
    segment = store.topics["t"].partitions[0].segments[0]
    assert segment.boundaries()[-1] == written[-1]


def test_a_log_is_cleaned_when_enough_of_it_is_dirty(store):
    log = compacted(store, min_cleanable_dirty_ratio="0.5").partitions[0]
    for number in range(150):
        write(log, (b"unique-%d" % number, b"v" * 50))
    sync(log)
    assert clean(store).passes == 1
    for number in range(60):
        write(log, (b"unique-%d" % number, b"v" * 50))
    sync(log)
    assert clean(store).passes == 0
    for number in range(200):
        write(log, (b"unique-%d" % number, b"v" * 50))
    sync(log)
    assert clean(store).passes == 1


def test_lags_hold_compaction_back_and_bring_it_about(store):
    held = compacted(store, min_compaction_lag_ms="5000").partitions[0]
    fill_keys(held, 50)
    assert cleanable(held, 0, time_at(NOW_MS + 4999)) is None
    found = cleanable(held, 0, time_at(NOW_MS + 5000))
    assert found is not None
    assert found.end_offset == held.segments[-1].base_offset
    config = {**CONFIG, "min.cleanable.dirty.ratio": "1", "max.compaction.lag.ms": "5000"}
    late = make_topic(store, "late", 1, config).partitions[0]
    fill_keys(late, 50)
    assert not cleanable(late, 0, time_at(NOW_MS + 5000)).due
    assert cleanable(late, 0, time_at(NOW_MS + 5001)).due
    segments = len(late.segments)
    write(late, (b"a", b"1"), now=time_at(NOW_MS + 5001))
    assert len(late.segments) == segments + 1, "a segment is closed in time to be compacted"


def test_only_compacted_topics_with_closed_segments_are_cleaned(store):
    plain = make_topic(store, "plain", 1, {"segment.bytes": "4096"}).partitions[0]
    fill_keys(plain, 50)
    there = content(plain)
    short = compacted(store).partitions[0]
    write(short, (b"a", b"1"), (b"a", b"2"))
    sync(short)
    assert clean(store).passes == 0
    assert content(plain) == there
    assert len(content(short)) == 2


def test_groups_are_neighbours_that_fit_one_segment(store):
    log = compacted(store).partitions[0]
    fill_keys(log, 40)
    segments = log.segments
    active = segments[-1].base_offset
    sizes = [segment.size for segment in segments[:-1]]
    assert [len(group) for group in groups_of(segments, active, 1)] == [1] * len(sizes)
    assert [len(group) for group in groups_of(segments, active, sum(sizes))] == [len(sizes)]
    assert len(groups_of(segments, active, sizes[0] + sizes[1])[0]) == 2
    assert groups_of(segments, segments[1].base_offset, 1 << 30) == [[segments[0]]]


def test_readers_under_way_keep_what_they_read(store):
    log = compacted(store).partitions[0]
    fill_keys(log, 100)
    old = log.segments
    there = [old[1].read(old[1].size, 0, blocking=True), old[1].base_offset]
    places = {
        offset: old[1].locate(offset, old[1].size, blocking=True)
        for offset in range(old[1].base_offset, old[2].base_offset, 3)
    }
    clean(store)
    for segment in old[:-1]:
        log.files.forget(segment)
    assert old[1] not in log.segments
    assert old[1].read(old[1].size, 0, blocking=True) == there[0]
    assert {offset: old[1].locate(offset, old[1].size, blocking=True) for offset in places} == places
    assert old[1].greatest_timestamp()[0] == NOW_MS


@pytest.mark.leaves("the snapshot is torn or damaged")
def test_an_old_snapshot_inside_a_merged_segment_is_not_believed(store, disk):
    log = compacted(store).partitions[0]
    for sequence in range(9):
        write(log, (b"a", b"." * 100), producer=(7, 0, sequence))
    roll(log)
    for sequence in range(9, 22):
        write(log, (b"key-%d" % sequence, b"." * 60), producer=(7, 0, sequence))
    write(log, (b"a", b"last"))
    roll(log)
    write(log, (b"z", b"z"))
    sync(log)
    assert [segment.base_offset for segment in log.segments] == [0, 9, 23]
    there = content(log)[9:]
    clean(store)
    assert len(log.segments) == 2
    disk.crash()
    newest = max(name for name in disk.names("/data/t-0") if name.endswith(".snapshot"))
    disk.flip(f"/data/t-0/{newest}", 30)
    store = open_store(disk)
    (log,) = store.topics["t"].partitions
    assert content(log) == there
    assert not [note for note in store.recovery_notes if "cut" in note]
    assert log.writer.producers.by_id()[7].batches[-1].last_sequence == 21


def test_without_space_it_waits(store, disk):
    log = compacted(store).partitions[0]
    fill_keys(log, 100)
    there = content(log)
    disk.room = Space(1 << 30, 3000)
    cleaner = clean(store)
    assert cleaner.passes == 0
    assert "needs" in cleaner.notes[0]
    assert content(log) == there
    disk.room = Space(1 << 30, 1 << 29)
    while cleaner.step(NOW, 1 << 30):
        pass
    assert cleaner.passes == 1
    assert len(content(log)) < len(there)


@pytest.mark.parametrize("kind", ["create", "reserve", "write", "truncate", "datasync", "sync_directory"])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_a_card_that_refuses_the_new_file_leaves_the_old_ones(store, disk, kind, number):
    log = compacted(store).partitions[0]
    fill_keys(log, 100)
    there = content(log)

    def refuse(step, path, _size):
        if step == kind and (path.endswith(".cleaned") or step == "sync_directory"):
            raise OSError(number, "refused", path)

    disk.fault = refuse
    cleaner = clean(store)
    disk.fault = None
    assert cleaner.passes == 0
    assert len(cleaner.notes) == 1
    if log.fault is None:
        assert content(log) == there
    assert not [name for name in disk.names("/data/t-0") if name.endswith(".cleaned")] or log.fault
    disk.crash()
    assert content(open_store(disk).topics["t"].partitions[0]) == there


def test_damage_is_contained_and_never_rewritten_as_if_it_were_whole(store, disk):
    log = compacted(store).partitions[0]
    for number in range(100):
        write(log, (b"key-%d" % number, b"v" * 60))
    latest = fill_keys(log, 20, keys=1)
    log.ledger = ledger = FakeLedger()
    there = latest_of(log)
    damaged = log.segments[1]
    disk.flip(damaged.path, 300)
    cleaner = clean(store)
    assert cleaner.passes == 1
    (loss,) = ledger.losses
    lost = range(loss.first_offset, loss.end_offset)
    assert (loss.cause, damaged.base_offset <= lost.start < lost.stop < log.segments[-1].base_offset) == (
        "damaged",
        True,
    )
    assert latest_of(log) == {key: place for key, place in there.items() if place[0] not in lost}
    assert latest_of(log).items() >= latest.items()
    assert log.fault is None


class FakeLedger:
    def __init__(self):
        self.losses = []

    def write(self, losses):
        self.losses += losses


def test_corrupt_ranges_end_with_the_rewrite(store, disk):
    log = compacted(store).partitions[0]
    fill_keys(log, 100)
    log.ledger = FakeLedger()
    disk.flip(log.segments[0].path, 300)
    clean(store)
    assert len(log.ledger.losses) == 1
    assert not [name for name in disk.names("/data/t-0") if name.endswith(".holes")]
    assert not any(segment.corrupt_ranges for segment in log.segments)
    disk.crash()
    store = open_store(disk)
    (log,) = store.topics["t"].partitions
    log.ledger = FakeLedger()
    assert len(latest_of(log)) == 8
    assert not log.ledger.losses


def test_a_topic_deleted_meanwhile_is_left_alone(store, disk):
    fill_keys(compacted(store).partitions[0], 100)
    cleaner = LogCleaner(store, BUFFER_BYTES)
    for _ in range(5):
        assert cleaner.step(NOW, 20)
    store.topic_files.erase_topic(store.remove_topic("t"))
    log = compacted(store).partitions[0]  # in the same directory
    write(log, (b"k", b"v"))
    sync(log)
    names = disk.names("/data/t-0")
    while cleaner.step(NOW, 20):
        pass
    assert (cleaner.passes, cleaner.failed, cleaner.notes) == (0, [], [])
    assert disk.names("/data/t-0") == names


def test_a_front_removed_meanwhile_ends_the_pass(store):
    log = compacted(store, cleanup_policy="compact,delete", retention_ms="1000").partitions[0]
    fill_keys(log, 100)
    cleaner = LogCleaner(store, BUFFER_BYTES)
    for _ in range(50):
        assert cleaner.step(NOW, 20)
    assert delete_expired(log, time_at(NOW_MS + 2000)) > 0
    start = log.log_start_offset
    while cleaner.step(NOW, 20):
        pass
    assert log.fault is None
    assert log.log_start_offset == start
    assert content(log)[0][0] >= start


def test_a_damaged_checkpoint_costs_a_pass_and_no_more(store, disk):
    log = compacted(store).partitions[0]
    latest = fill_keys(log, 100)
    clean(store)
    disk.flip(f"/data/{FILE}", 60)
    cleaner = clean(store)
    assert "from their starts" in cleaner.notes[0]
    assert cleaner.passes == 1
    assert latest_of(log) == latest


def test_a_checkpoint_of_another_log_is_not_believed(store):
    log = compacted(store).partitions[0]
    fill_keys(log, 40)
    assert cleanable(log, 1 << 40, NOW).dirty_offset == 0


# transactions: batches and markers as the coordinator will write them


def test_aborted_data_goes_and_open_transactions_hold_compaction_back(store):
    log = compacted(store, delete_retention_ms="1000").partitions[0]
    write(log, (b"a", b"1"))
    put(log, make_batch([(b"a", b"aborted", NOW_MS)], producer=(5, 0, 0), attributes=TRANSACTIONAL))
    put(log, make_batch([(b"b", b"kept", NOW_MS)], producer=(6, 0, 0), attributes=TRANSACTIONAL))
    put(log, marker(ABORT, base_offset=0, producer_id=5))
    roll(log)
    put(log, marker(COMMIT, base_offset=0, producer_id=6))
    put(log, make_batch([(b"a", b"open", NOW_MS)], producer=(5, 0, 1), attributes=TRANSACTIONAL))
    write(log, (b"c", b"behind"))
    write(log, (b"c", b"again"))
    roll(log)
    write(log, (b"d", b"1"))
    sync(log)
    clean(store)
    records = [record for record in content(log) if record[1] and not record[1].startswith(b"\0")]
    assert records == [
        (0, b"a", b"1"),
        (2, b"b", b"kept"),
        (5, b"a", b"open"),
        (6, b"c", b"behind"),
        (7, b"c", b"again"),
        (8, b"d", b"1"),
    ]
    put(log, marker(ABORT, base_offset=0, producer_id=5))
    write(log, (b"d", b"1"))
    roll(log)
    sync(log)
    clean(store, time_at(NOW_MS + 1))
    records = [record for record in content(log) if record[1] and not record[1].startswith(b"\0")]
    assert records == [(0, b"a", b"1"), (2, b"b", b"kept"), (7, b"c", b"again"), (10, b"d", b"1")]
    markers = [
        read_header(found).base_offset
        for found in read_all(log)
        if read_header(found).attributes & CONTROL and read_header(found).records_count
    ]
    assert markers == [3, 4, 9]


# crashes


def check_files_beside(log):
    """What lies beside each sealed segment speaks of its bytes."""
    for segment in log.segments[:-1]:
        summary = segment.read_summary()
        assert summary is None or summary.bytes == segment.size
        try:
            data = log.files.fs.content(f"{log.directory}/{segment.name('index')}")
        except FileNotFoundError:
            continue
        batches = {position: header.last_offset for position, header in batches_in(segment.file, 0, segment.size)}
        for at in range(0, len(data), 8):
            relative, position = int.from_bytes(data[at : at + 4], "big"), int.from_bytes(data[at + 4 : at + 8], "big")
            assert batches[position] == segment.base_offset + relative


def _program(disk):
    """A store with a topic that was cleaned before and has a dirty part again; what must be there."""
    store = open_store(disk)
    log = compacted(store).partitions[0]
    fill_keys(log, 26, keys=5)
    write(log, (b"key-1", None), producer=(7, 0, 0))
    clean(store)
    fill_keys(log, 26, keys=4)
    return store, log, latest_of(log)


def _steps():
    disk = SimulatedDisk(0)
    store, _, _ = _program(disk)
    before = disk.steps
    assert clean(store).bytes_written > 0
    return range(before + 1, disk.steps + 1)


@pytest.mark.parametrize("power", [True, False])
@pytest.mark.parametrize("step", _steps())
def test_a_crash_at_any_step_of_a_pass(step, power):
    disk = SimulatedDisk(step)
    store, log, latest = _program(disk)
    before = ends(log)[:3]
    disk.crash_at = step
    with pytest.raises(PowerLoss):
        clean(store)
    disk.crash() if power else disk.kill()
    for further in range(1, 100):  # and at any step of the starts that follow
        disk.crash_at = disk.steps + further
        try:
            store = open_store(disk)
        except PowerLoss:
            disk.crash()
            continue
        break
    disk.crash_at = -1
    (log,) = store.topics["t"].partitions
    assert log.fault is None
    assert ends(log)[:3] == before
    assert latest_of(log) == latest
    check_files_beside(log)
    clean(store)
    check_files_beside(log)
    assert latest_of(log) == latest
    assert ends(log)[:3] == before
    assert write(log, (b"key-1", None), producer=(7, 0, 0)).duplicate
    assert not [name for name in disk.names("/data/t-0") if name.endswith(".cleaned") or name == "swap"]


def test_a_piece_waits_for_one_sync_or_one_replacement_however_much_it_may_do(store, disk):
    """Whoever waits for the worker waits for one piece: on a slow card a sync takes a second."""
    log = make_topic(store, "t", 1, {**CONFIG, "segment.bytes": str(1 << 20)}).partitions[0]
    for number in range(40):
        write(log, *[(b"%d-%d" % (number, key), bytes(1000)) for key in range(50)], (b"same", b"x"))
    sync(log)
    cleaner, found, replaced = LogCleaner(store, BUFFER_BYTES), [], 0
    more = True
    while more:
        syncs, segments, read = [], log.segments, cleaner.bytes_read
        disk.witness = lambda step, path, syncs=syncs: syncs.append(path) if step == "datasync" else None
        more = cleaner.step(NOW, 1 << 40)
        disk.witness = None
        if log.segments == segments and not any(cleaned in path for path in syncs for cleaned in (FILE,)):
            found.append(len(syncs))
            assert cleaner.bytes_read - read <= READ_AT_ONCE + (256 << 10)
        replaced += log.segments != segments
    assert replaced
    assert sum(found) >= 8, "the test is to see several"
    assert max(found) <= 2, "the last piece of a file's bytes, and the file"
