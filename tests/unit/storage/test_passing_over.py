"""A follower goes on behind what its leader wrote down as lost; a crash at any step leaves it before or behind that."""

from __future__ import annotations

from functools import partial

import pytest

from edge_broker.cluster.state.replica_log_view import last_epoch
from edge_broker.errors import StorageFault
from edge_broker.protocol.record_batch import read_header
from edge_broker.storage.log.log_reader import whole_batches
from edge_broker.storage.log_store import LogStore
from edge_broker.storage.loss.quarantine import quarantine
from edge_broker.storage.replica.missing_ranges import record_missing
from edge_broker.storage.replica.replica_log import Replica
from edge_broker.storage.replica.replica_truncation import enter, hold, resume_as, truncate
from edge_broker.storage.replica.skip_lost_range import pass_over
from edge_broker.testing.disk import SimulatedDisk
from tests.support.storage import NOW, cut_off, failing, ledgered
from tests.unit.storage.test_owed import damaged
from tests.unit.storage.test_replica import synced, take
from tests.unit.storage.test_truncating import again, filled, of_number


def held(replica: Replica) -> list[bytes]:
    """All batches that it shows, whatever is lost between them, or behind them."""
    replica.show_exactly(replica.log_end_offset)
    found, offset = list[bytes](), replica.log_start_offset
    while data := replica.log.reader.read(offset, 1000, blocking=True):
        found += [bytes(one) for one in whole_batches(data)]
        offset = read_header(memoryview(found[-1])).next_offset
    assert replica.lost_until(offset) == replica.log_end_offset
    return found


def passes(store: LogStore, replica: Replica, end_offset: int, epoch: int) -> None:
    assert hold(replica.log)
    resume_as(replica.log, pass_over(store, replica.log, end_offset, epoch, NOW))


def check(replica: Replica, written: list[bytes], lost: range) -> None:
    """The log has what was written, and nothing in the range."""
    assert replica.online, replica.log.fault
    assert not replica.has_missing
    assert [read_header(one).base_offset not in lost for one in written] == [True] * len(written)
    assert held(replica) == written
    for offset in lost:
        assert replica.lost_until(offset) == lost.stop


@pytest.mark.parametrize("first", [0, 1, 6, 7, 19, 20])
@pytest.mark.parametrize("behind", ["kill", "crash", "stop"])
def test_a_follower_goes_on_behind_what_is_lost_and_any_start_knows_it(first: int, behind: str) -> None:
    disk = SimulatedDisk(first)
    store, replica, written = filled(disk, batches=first)
    passes(store, replica, 23, 6)
    assert (replica.log_end_offset, replica.synced_offset, last_epoch(replica)) == (23, 23, 6)
    assert replica.log.high_watermark <= first
    check(replica, written[:first], range(first, 23))
    for _ in range(2):
        store.close() if behind == "stop" else getattr(disk, behind)()
        store, replica = again(disk)
        assert replica.log_end_offset == 23
        assert last_epoch(replica) in (6, *(read_header(memoryview(one)).leader_epoch for one in written[-1:]))
        check(replica, written[:first], range(first, 23))
    more = [of_number(number, 6, sequence=number) for number in range(23, 40)]
    take(replica, *more)
    synced(replica.log)
    check(replica, [*written[:first], *more], range(first, 23))
    disk.crash()
    store, replica = again(disk)
    check(replica, [*written[:first], *more], range(first, 23))
    assert ledgered(store) == [], "the leader has written it down"


def test_at_each_step_a_power_cut_leaves_it_before_or_behind() -> None:
    ends = set()
    for step in range(1, 60):
        disk = SimulatedDisk(step)
        store, replica, written = filled(disk, batches=9)
        replica.append(memoryview(of_number(9, 2)), NOW)  # not synced
        if not cut_off(disk, step, partial(passes, store, replica, 12, 3)):
            break
        disk.crash()
        store, replica = again(disk)
        ends.add(replica.log_end_offset)
        assert held(replica)[:9] == written
        assert ledgered(store) == []
        passes(store, replica, 14, 3)
        assert (replica.log_end_offset, last_epoch(replica)) == (14, 3)
    assert 12 in ends
    assert ends & {9, 10}


def test_what_reaches_over_several_ranges_is_passed_one_after_another() -> None:
    store, replica, written = filled(SimulatedDisk(1), batches=5)
    passes(store, replica, 8, 2)
    passes(store, replica, 11, 4)
    check(replica, written, range(5, 11))
    assert replica.epochs.starts[-1] == (4, 8)


@pytest.mark.parametrize("end", [4, 5, 7])
def test_a_follower_may_be_cut_amid_what_it_has_passed_over_or_before(end: int) -> None:
    disk = SimulatedDisk(end)
    store, replica, written = filled(disk, batches=5)
    passes(store, replica, 9, 2)
    more = [of_number(number, 4) for number in range(9, 14)]
    take(replica, *more)
    synced(replica.log)
    assert hold(replica.log)
    resume_as(replica.log, truncate(store, replica.log, enter(replica.log, end), NOW))
    check(replica, written[:end], range(5, end))
    assert replica.log_end_offset == end
    passes(store, replica, 9, 2) if end >= 5 else None
    disk.crash()
    _, replica = again(disk)
    check(replica, written[:end], range(5, max(end, 9 if end >= 5 else 0)))


def test_a_disk_that_refuses_takes_the_log_offline_and_leaves_it_as_it_was() -> None:
    disk = SimulatedDisk(1)
    store, replica, written = filled(disk, batches=5)
    assert hold(replica.log)
    disk.fault = failing("rename", "/t-0")
    with pytest.raises(StorageFault):
        pass_over(store, replica.log, 9, 2, NOW)
    assert not replica.online
    disk.fault = None
    disk.kill()
    _, replica = again(disk)
    assert (replica.log_end_offset, held(replica)) == (5, written)


def test_a_leader_says_what_is_lost_once_it_is_written_down() -> None:
    disk = SimulatedDisk(1)
    _, replica, _ = filled(disk)
    found = damaged(disk, replica, 7)
    lost = [replica.lost_until(offset) for offset in (6, 7, 8, 20, 21)]
    assert lost == [6, 7, 8, 20, 21]
    with pytest.raises(StorageFault):
        quarantine(replica.log, found)
    assert replica.lost_until(7) == 7, "another may have it"
    record_missing(replica.log)
    assert [replica.lost_until(offset) for offset in (6, 7, 8)] == [6, 8, 8]
    disk.kill()
    _, replica = again(disk)
    assert [replica.lost_until(offset) for offset in (6, 7, 8)] == [6, 8, 8]


def test_a_reader_that_may_see_no_more_than_what_is_lost_meets_no_damage() -> None:
    """What comes behind it in the same segment is not shown yet, and another segment follows."""
    disk = SimulatedDisk(1)
    _, replica, _ = filled(disk)
    at = next(number for number, segment in enumerate(replica.log.segments) if segment.base_offset > 3) - 1
    first = replica.log.segments[at].base_offset + 1
    found = damaged(disk, replica, first)
    with pytest.raises(StorageFault):
        quarantine(replica.log, found)
    record_missing(replica.log)
    replica.show_exactly(first + 1)
    read = partial(replica.log.reader.read, bytes_max=1000, blocking=True)
    assert (read(first), read(first + 1)) == (b"", b"")
