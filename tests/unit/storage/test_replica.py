"""A follower's log holds its leader's bytes; what does not fit is not written; elections alone raise its epoch."""

from __future__ import annotations

import errno
import uuid
from collections.abc import Iterable

import pytest

from edge_broker.cluster.state.replica_log_view import last_epoch
from edge_broker.configuration.settings import LogSettings
from edge_broker.errors import ErrorCode, Refusal, StorageFault
from edge_broker.protocol.record_batch import assign_offsets, read_header
from edge_broker.storage.files.batched_replace import BatchedFiles
from edge_broker.storage.log.log_writer import RollDue, WriteUnderWay
from edge_broker.storage.log.partition_log import PartitionLog
from edge_broker.storage.log_store import LogStore
from edge_broker.storage.replica.replica_log import Replica, keep_epochs
from edge_broker.storage.retention.segment_removal import follow_start
from edge_broker.testing.checked import findings
from edge_broker.testing.clock import NOW_MS
from edge_broker.testing.disk import SimulatedDisk
from edge_broker.testing.site import make_topic
from edge_broker.thread_checks import LOOP, running_in
from tests.support.storage import NOW, READING, batch, failing, read_all

SETTINGS = LogSettings(segment_bytes=4096, index_interval_bytes=128)


def member(disk: SimulatedDisk) -> LogStore:
    return LogStore.open(disk, "/data", SETTINGS, READING, uuid.uuid4, "1", in_cluster=True)


def opened(disk: SimulatedDisk | None = None, **config: str) -> Replica:
    config = {key.replace("_", "."): value for key, value in config.items()}
    return Replica(make_topic(member(disk or SimulatedDisk(1)), config=config).partitions[0])


def again(disk: SimulatedDisk) -> Replica:
    return Replica(member(disk).topics["t"].partitions[0])


def of_leader(offset: int, epoch: int, *values: bytes, producer: tuple[int, int, int] = (-1, -1, -1)) -> bytes:
    """A batch as a leader has it."""
    made = batch(*values, timestamp_ms=NOW_MS - 77, producer=producer)
    assign_offsets(made, offset, epoch)
    return bytes(made)


def take(replica: Replica, *batches: bytes) -> None:
    """Append as a follower, rolling where that is due."""
    data = memoryview(b"".join(batches))
    while data:
        try:
            data = data[replica.append(data, NOW) :]
        except RollDue:
            replica.log.roller.roll()
            replica.log.writer.end_roll()


def synced(log: PartitionLog) -> None:
    flush = log.writer.begin_flush()
    if flush is not None:
        flush.run()
        log.writer.finish_flush(flush)


def refused(replica: Replica, data: bytes) -> ErrorCode:
    end, size = replica.log_end_offset, replica.log.state.active.size
    with pytest.raises(Refusal) as refusal:
        replica.append(memoryview(data), NOW)
    assert (replica.log_end_offset, replica.log.state.active.size) == (end, size)
    return refusal.value.code


def shown(replica: Replica) -> list[bytes]:
    return read_all(replica.log)


def starts(replica: Replica) -> Iterable[tuple[int, int]]:
    return replica.epochs.starts


def test_a_follower_keeps_offsets_epochs_times_and_bytes() -> None:
    replica = opened()
    written = [of_leader(0, 3, b"a", b"b"), of_leader(2, 3, b"c"), of_leader(3, 5, b"d")]
    take(replica, *written[:2])
    take(replica, written[2])
    assert (replica.log_start_offset, replica.log_end_offset, replica.synced_offset) == (0, 4, 0)
    synced(replica.log)
    assert replica.synced_offset == 4
    assert replica.online
    assert starts(replica) == ((3, 0), (5, 3))
    assert replica.log.leader_epoch == 5
    replica.show_exactly(4)
    assert shown(replica) == written


def test_nothing_is_shown_before_it_is_told_whatever_the_disk_has() -> None:
    disk = SimulatedDisk(1)
    replica = opened(disk)
    take(replica, of_leader(0, 1, b"a"), of_leader(1, 1, b"b"))
    synced(replica.log)
    assert replica.log.high_watermark == 0
    assert replica.log.reader.read(0, 1000, blocking=True) == b""
    replica.show_exactly(1)
    assert len(shown(replica)) == 1
    assert replica.log.reader.max_timestamp() == (0, NOW_MS - 77)
    disk.crash()
    assert again(disk).log.high_watermark == 0
    assert again(disk).log_end_offset == 2


def test_a_start_raises_no_epoch_of_a_replica() -> None:
    disk = SimulatedDisk(1)
    replica = opened(disk)
    take(replica, of_leader(0, 7, b"a"))
    synced(replica.log)
    for _ in range(3):
        disk.crash()
        replica = again(disk)
        assert replica.log.leader_epoch == 7
        assert starts(replica) == ((7, 0),)


def test_damage_in_a_replica_begins_a_segment_and_no_epoch() -> None:
    disk = SimulatedDisk(1)
    store = member(disk)
    replica = Replica(make_topic(store).partitions[0])
    take(replica, *[of_leader(number, 7, b"%d" % number * 50) for number in range(3)])
    synced(replica.log)
    store.checkpoint()
    disk.flip(replica.log.state.active.path, 200)
    disk.crash()
    replica = again(disk)
    assert len(replica.log.segments) == 2
    assert (replica.log.leader_epoch, starts(replica), replica.log_end_offset) == (7, ((7, 0),), 3)


@pytest.mark.parametrize("change", ["crc", "cut", "gap", "again", "epoch", "none"])
def test_what_does_not_go_on_where_the_log_ends_is_not_written(change: str) -> None:
    replica = opened()
    take(replica, of_leader(0, 4, b"a"))
    right, wrong = of_leader(1, 4, b"b"), bytearray(of_leader(2, 4, b"c" * 40))
    if change == "crc":
        wrong[-1] ^= 1
    elif change == "cut":
        del wrong[-1]
    elif change == "gap":
        wrong[7] += 1
    elif change == "again":
        wrong[7] -= 1
    elif change == "epoch":
        wrong[15] = 3
    else:
        wrong[16] = 1
    assert refused(replica, right + bytes(wrong)) == ErrorCode.CORRUPT_MESSAGE
    take(replica, right)
    assert replica.log_end_offset == 2


def test_a_leader_that_compacts_leaves_gaps_that_are_no_damage() -> None:
    disk = SimulatedDisk(1)
    replica = opened(disk, cleanup_policy="compact")
    written = [of_leader(0, 1, b"a"), of_leader(5, 1, b"b"), of_leader(9, 2, b"c")]
    take(replica, *written)
    synced(replica.log)
    replica.show_exactly(10)
    assert shown(replica) == written
    for _ in range(2):
        disk.crash()
        store = member(disk)
        replica = Replica(store.topics["t"].partitions[0])
        assert replica.log_end_offset == 10
        assert [log for topic in store.topics.values() for log in topic.partitions if log.damages] == []
        replica.show_exactly(10)
        assert shown(replica) == written


def test_a_fetch_may_fill_several_segments() -> None:
    disk = SimulatedDisk(1)
    replica = opened(disk)
    written = [of_leader(number, 1, b"%03d" % number * 100) for number in range(40)]
    take(replica, *written)
    assert len(replica.log.segments) > 3
    assert all(segment.size <= SETTINGS.segment_bytes for segment in replica.log.segments)
    synced(replica.log)
    replica.show_exactly(40)
    assert shown(replica) == written
    replica.log.roller.stop()
    disk.crash()
    replica = again(disk)
    replica.show_exactly(17)
    assert shown(replica) == written[:17]
    replica.show_exactly(40)
    assert shown(replica) == written


def test_producers_are_known_as_the_leader_has_them() -> None:
    replica = opened()
    take(replica, of_leader(0, 1, b"a", b"b", producer=(9, 0, 4)), of_leader(2, 1, b"c", producer=(9, 0, 6)))
    known = replica.log.writer.producers.by_id()[9]
    assert [tuple(one) for one in known.batches] == [(4, 5, 0, 1), (6, 6, 2, 2)]
    replica.begin_epoch(2)
    late = batch(b"a", b"b", producer=(9, 0, 4))
    appended = replica.log.writer.append(late, read_header(late), NOW)
    assert appended.duplicate
    assert appended.base_offset == 0


def test_an_epoch_that_begins_is_on_the_disk_before_it_is_used() -> None:
    disk = SimulatedDisk(1)
    replica = opened(disk)
    take(replica, of_leader(0, 1, b"a"))
    synced(replica.log)
    replica.begin_epoch(2)
    replica.keep_epoch()
    made = batch(b"b")
    replica.log.writer.append(made, read_header(made), NOW)
    replica.batches_appended()
    assert read_header(made).leader_epoch == 2
    synced(replica.log)
    disk.crash()
    assert starts(again(disk)) == ((1, 0), (2, 1))


def test_an_epoch_without_records_gives_way_to_a_batch_of_an_older_one() -> None:
    disk = SimulatedDisk(1)
    replica = opened(disk)
    take(replica, of_leader(0, 1, b"a"))
    synced(replica.log)
    replica.begin_epoch(5)
    replica.keep_epoch()
    take(replica, of_leader(1, 3, b"b"))
    synced(replica.log)
    assert starts(replica) == ((1, 0), (3, 1))
    disk.crash()
    assert starts(again(disk)) == ((1, 0), (3, 1)), "the file had epoch 5, the batches tell otherwise"


@pytest.mark.parametrize("written", ["the file says so", "the batches alone", "the file is lost"])
def test_epochs_of_what_was_removed_give_way_to_the_first_batch(written: str) -> None:
    """All that it had was removed, within a segment; its leader's next record is of an older epoch."""
    disk = SimulatedDisk(1)
    store = member(disk)
    replica = Replica(make_topic(store).partitions[0])
    replica.begin_epoch(3)
    replica.keep_epoch()
    take(replica, of_leader(0, 3, b"a"), of_leader(1, 3, b"b"))
    synced(replica.log)
    store.checkpoint()
    replica.show_exactly(2)
    assert follow_start(replica.log, 2, NOW) == 2
    assert last_epoch(replica) == -1
    take(replica, of_leader(2, 2, b"c"), of_leader(3, 2, b"d"))
    synced(replica.log)
    assert (starts(replica), last_epoch(replica), replica.epoch_due) == (((2, 2),), 2, True)
    if written == "the file says so":
        replica.keep_epoch()
    if "lost" in written:
        disk.remove(f"{replica.log.directory}/leader-epoch-checkpoint")
    for _ in range(2):
        disk.crash()
        replica = again(disk)
        assert (replica.log_start_offset, replica.log_end_offset) == (2, 4), "what was synced is there"
        assert (starts(replica), last_epoch(replica)) == (((2, 2),), 2)
        assert findings(disk) == []
    replica.show_exactly(4)
    assert follow_start(replica.log, 4, NOW) == 4
    assert findings(disk) == []
    disk.crash()
    assert starts(again(disk)) == ((2, 2),), "a follower that has them asks where epoch 2 ended"


def test_a_lower_epoch_behind_a_batch_that_is_held_is_damage() -> None:
    """As the bytes are not those that were synced: the log is cut there, wherever it starts."""
    disk = SimulatedDisk(1)
    store = member(disk)
    replica = Replica(make_topic(store).partitions[0])
    take(replica, of_leader(0, 3, b"a"), of_leader(1, 3, b"b"))
    synced(replica.log)
    store.checkpoint()
    replica.show_exactly(1)
    assert follow_start(replica.log, 1, NOW) == 1
    size, stale = replica.log.state.active.size, of_leader(2, 2, b"c")
    file = disk.open(replica.log.state.active.path)
    file.write(stale, size)
    file.datasync()
    assert any("follows epoch 3" in finding.reason for finding in findings(disk))
    disk.crash()
    replica = again(disk)
    assert (replica.log_end_offset, starts(replica)) == (2, ((3, 0),))


def test_the_file_says_so_too_once_it_is_due() -> None:
    disk = SimulatedDisk(1)
    replica = opened(disk)
    take(replica, of_leader(0, 1, b"a"))
    replica.begin_epoch(5)
    replica.keep_epoch()
    assert not replica.epoch_due
    take(replica, of_leader(1, 3, b"b"))
    assert replica.epoch_due
    replica.keep_epoch()
    assert not replica.epoch_due
    assert b"5 1" not in disk.content(f"{replica.log.directory}/leader-epoch-checkpoint")


def together(disk: SimulatedDisk, count: int = 10) -> tuple[list[Replica], BatchedFiles]:
    """Replicas that begin an epoch."""
    replicas = [Replica(each) for each in make_topic(member(disk), partitions=count).partitions]
    for replica in replicas:
        take(replica, of_leader(0, 1, b"a"))
        synced(replica.log)
        replica.begin_epoch(2)
    return replicas, BatchedFiles(disk, "/data")


def test_epochs_of_many_are_on_the_disk_by_a_few_syncs() -> None:
    disk = SimulatedDisk(1)
    replicas, batch_ = together(disk)
    calls: list[str] = []
    disk.fault = lambda what, _path, _size: calls.append(what)  # type: ignore[func-returns-value]
    keep_epochs(replicas, batch_)
    assert [each for each in calls if "sync" in each] == ["sync_all"] * 3
    disk.fault = None
    disk.crash()
    assert all(b"2 1" in disk.content(f"{each.log.directory}/leader-epoch-checkpoint") for each in replicas)


@pytest.mark.parametrize("bug", [False, True])
def test_an_epoch_that_cannot_be_kept_takes_its_own_replica_offline_alone(bug: bool) -> None:
    disk = SimulatedDisk(1)
    replicas, batch_ = together(disk)

    def fails(_what: str, path: str, _size: int) -> None:
        if f"{replicas[3].log.directory}/" in path:
            raise (ValueError("a bug") if bug else OSError(errno.EIO, "it fails", path))

    disk.fault = fails
    keep_epochs(replicas, batch_)
    assert [each.online for each in replicas] == [number != 3 for number in range(10)]
    disk.fault = None
    disk.crash()
    kept = [b"2 1" in disk.content(f"{each.log.directory}/leader-epoch-checkpoint") for each in replicas if each.online]
    assert kept == [True] * 9


def test_a_failed_write_takes_the_replica_offline() -> None:
    disk = SimulatedDisk(1)
    replica = opened(disk)
    disk.fault = failing("write")
    with pytest.raises(StorageFault):
        replica.append(memoryview(of_leader(0, 1, b"a")), NOW)
    assert not replica.online


def test_the_high_watermark_lies_at_any_batch_and_may_go_back() -> None:
    replica = opened()
    written = [of_leader(number, 1, b"%03d" % number * 80) for number in range(300)]
    take(replica, *written)
    for mark in (300, 5, 0, 12, 299, 13, 300):
        replica.show_exactly(mark)
        assert replica.log.high_watermark == mark
        assert shown(replica) == written[:mark]


def test_a_follower_reads_what_is_written_and_nobody_else_does() -> None:
    replica = opened()
    written = [of_leader(number, 1, b"%03d" % number * 200) for number in range(20)]
    take(replica, *written)
    assert len(replica.log.segments) > 2
    replica.show_exactly(3)
    found, offset = list[bytes](), 0
    while data := replica.read(offset, 1, blocking=True):
        found.append(bytes(data))
        offset = read_header(data).next_offset
    assert found == written
    assert replica.read(20, 100, blocking=True) == b""
    assert replica.log.reader.read(3, 100, blocking=True) == b""
    with pytest.raises(Refusal, match="out of range"):
        replica.read(21, 100, blocking=True)


def test_a_worker_opens_the_file_of_a_replica_that_was_idle() -> None:
    from edge_broker.storage.segment.segment import WouldBlockError

    disk = SimulatedDisk(1)
    opened(disk)
    disk.kill()
    replica = again(disk)
    replica.log.close_files()
    with pytest.raises(WouldBlockError):
        replica.append(memoryview(of_leader(0, 1, b"a")), NOW, opens=False)
    assert replica.log_end_offset == 0
    assert replica.append(memoryview(of_leader(0, 1, b"a")), NOW) > 0


def written_behind(replica: Replica, data: bytes) -> int:
    """Append in a worker's hands as much as the segment takes; how many bytes."""
    writing = replica.begin_append(memoryview(data), NOW)
    writing.run()
    return replica.end_append(writing)


def test_a_worker_writes_several_batches_and_all_are_taken_in() -> None:
    behind, at_once = opened(), opened()
    written = [
        of_leader(0, 3, b"a", b"b", producer=(9, 0, 4)),
        of_leader(2, 3, b"c", producer=(9, 0, 6)),
        of_leader(3, 5, b"d"),
    ]
    data = b"".join(written)
    writing = behind.begin_append(memoryview(data), NOW)
    assert (len(writing.records), behind.log_end_offset, behind.busy) == (len(data), 0, True)
    with pytest.raises(WriteUnderWay):
        behind.append(memoryview(data), NOW)
    with pytest.raises(WriteUnderWay):
        behind.begin_append(memoryview(data), NOW)
    writing.run()
    assert behind.log_end_offset == 0, "until the loop has taken it in"
    assert behind.end_append(writing) == len(data)
    take(at_once, *written)
    assert (behind.log_end_offset, behind.log.leader_epoch, starts(behind)) == (4, 5, ((3, 0), (5, 3)))
    for replica in (behind, at_once):
        synced(replica.log)
        replica.show_exactly(4)
    assert shown(behind) == shown(at_once) == written
    assert behind.log.writer.producers.by_id()[9].batches == at_once.log.writer.producers.by_id()[9].batches
    assert behind.log.reader.max_timestamp() == at_once.log.reader.max_timestamp()


def test_whoever_runs_the_write_may_have_ended_it() -> None:
    replica = opened()
    writing = replica.begin_append(memoryview(of_leader(0, 3, b"a")), NOW)
    writing.run()
    replica.log.writer.end_write()
    assert replica.end_append(writing) == len(writing.records)
    assert (replica.log_end_offset, replica.log.leader_epoch) == (1, 3)


def test_a_worker_writes_what_the_segment_takes_and_the_next_takes_the_rest() -> None:
    disk = SimulatedDisk(1)
    replica = opened(disk)
    written = [of_leader(number, 1 + number // 8, b"%03d" % number * 100) for number in range(20)]
    data, writes = b"".join(written), 0
    while data:
        try:
            data = data[written_behind(replica, data) :]
            writes += 1
        except RollDue:
            replica.log.roller.roll()
            replica.log.writer.end_roll()
    assert writes == len(replica.log.segments) > 1
    synced(replica.log)
    for _ in range(2):
        assert starts(replica) == ((1, 0), (2, 8), (3, 16))
        replica.show_exactly(20)
        assert shown(replica) == written
        disk.crash()
        replica = again(disk)


def test_a_worker_writes_nothing_where_a_batch_is_refused() -> None:
    replica = opened()
    wrong = bytearray(of_leader(1, 3, b"b"))
    wrong[-1] ^= 1
    with pytest.raises(Refusal):
        replica.begin_append(memoryview(of_leader(0, 3, b"a") + bytes(wrong)), NOW)
    assert not replica.busy
    assert written_behind(replica, of_leader(0, 3, b"a")) > 0


def test_a_worker_without_space_leaves_nothing_behind() -> None:
    disk = SimulatedDisk(1)
    replica = opened(disk)
    disk.fault = failing("write", number=errno.ENOSPC)
    writing = replica.begin_append(memoryview(of_leader(0, 3, b"a")), NOW)
    writing.run()
    with pytest.raises(Refusal, match="nothing was written"):
        replica.end_append(writing)
    assert (replica.log_end_offset, replica.online, replica.busy) == (0, True, False)
    disk.fault = None
    assert written_behind(replica, of_leader(0, 3, b"a")) > 0


def test_a_worker_that_fails_takes_the_replica_offline() -> None:
    disk = SimulatedDisk(1)
    replica = opened(disk)
    disk.fault = failing("write")
    writing = replica.begin_append(memoryview(of_leader(0, 3, b"a")), NOW)
    writing.run()
    with pytest.raises(StorageFault):
        replica.end_append(writing)
    assert not replica.online
    assert replica.log_end_offset == 0


@pytest.mark.parametrize(("durability", "counts"), [("sync", 0), ("interval", 2), ("kernel", 2)])
def test_what_counts_as_replicated_goes_by_the_topics_durability(durability: str, counts: int) -> None:
    replica = opened(edge_durability=durability)
    take(replica, of_leader(0, 1, b"a", b"b"))
    assert replica.acknowledged_offset == counts
    synced(replica.log)
    assert replica.acknowledged_offset == 2


def test_what_a_leader_tells_is_shown_up_to_the_last_end_that_is_known() -> None:
    """On the loop, so without a look at the log, which runs_in would refuse there."""
    replica = opened()
    take(replica, of_leader(0, 1, b"a"), of_leader(1, 1, b"b"))
    take(replica, of_leader(2, 1, b"c"))
    take(replica, of_leader(3, 1, b"d", b"e"))
    marks = []
    with running_in(LOOP):
        for mark in (0, 1, 2, 3, 4, 5, 3):
            replica.show(mark)
            marks.append(replica.log.high_watermark)
    assert marks == [0, 0, 2, 3, 3, 5, 5]


def test_however_far_replicas_are_behind_what_is_shown_follows() -> None:
    replica = opened()
    written = [of_leader(number, 1, b"%03d" % number * 80) for number in range(1000)]
    for one in written:
        take(replica, one)
    shown_before = 0
    with running_in(LOOP):
        for mark in range(1, 1001):
            replica.show(mark)
            now = replica.log.high_watermark
            assert shown_before <= now <= mark
            assert mark - now < 64
            shown_before = now
    assert shown_before == 1000
    synced(replica.log)
    assert shown(replica) == written
