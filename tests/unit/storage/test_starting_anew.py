"""A replica that was away for too long begins anew where its leader's log starts, whatever step the power goes at."""

from __future__ import annotations

import errno
from functools import partial

import pytest

from edge_broker.errors import ErrorCode, Refusal, StorageFault
from edge_broker.protocol.record_batch import read_header
from edge_broker.storage.log_store import LogStore
from edge_broker.storage.replica.reopen_replica import reopen
from edge_broker.storage.replica.replica_log import Replica, begins_before
from edge_broker.storage.replica.replica_truncation import hold, release_log, resume_as
from edge_broker.storage.replica.reset_to_leader_start import begin_amid, start_anew
from edge_broker.storage.retention.segment_removal import delete_records, follow_start
from edge_broker.testing.checked import findings
from edge_broker.testing.disk import SimulatedDisk
from edge_broker.testing.site import make_topic
from tests.support.storage import NOW, cut_off, failing
from tests.unit.storage.test_replica import member, of_leader, synced, take
from tests.unit.storage.test_truncating import again, all_of, cut, entries, filled, of_number


def anew(store: LogStore, replica: Replica, start_offset: int) -> None:
    assert hold(replica.log)
    resume_as(replica.log, start_anew(store, replica.log, start_offset, NOW))


def broken_off(disk: SimulatedDisk, store: LogStore, replica: Replica, start_offset: int, kind: str) -> Replica:
    """What the next start makes of a log that went offline on the way, as a step of this kind failed."""
    assert hold(replica.log)
    disk.fault = failing(kind, "/t-0")
    with pytest.raises(StorageFault):
        start_anew(store, replica.log, start_offset, NOW)
    assert not replica.online
    disk.fault = None
    disk.crash()
    return again(disk)[1]


def check(replica: Replica, start_offset: int) -> None:
    """It is empty, knows nothing of what it had, and its account covers every offset."""
    assert replica.online, replica.log.fault
    ends = (replica.log_start_offset, replica.log_end_offset, replica.synced_offset, replica.log.high_watermark)
    assert ends == (start_offset,) * 4
    assert replica.log.writer.producers.by_id() == {}
    account = replica.log.removed
    assert [one.first_offset for one in account] == [0, *(one.end_offset for one in account[:-1])]
    assert account[-1].end_offset == start_offset
    assert all(one.records + one.control + one.compacted == one.end_offset - one.first_offset for one in account)


@pytest.mark.parametrize("start", [20, 21, 5000])
@pytest.mark.parametrize("unsynced", [False, True])
def test_it_begins_anew_and_goes_on(start: int, unsynced: bool) -> None:
    disk = SimulatedDisk(1)
    store, replica, _ = filled(disk)
    if unsynced:
        start += 1
        take(replica, of_number(20, 6))
    store.checkpoint()
    anew(store, replica, start)
    check(replica, start)
    assert replica.epochs.starts == ()
    assert entries(store) == []
    for _ in range(2):
        disk.crash()
        store, replica = again(disk)
        assert not [note for note in store.recovery_notes if "lost" in note or "offline" in note]
        check(replica, start)
    more = [of_number(number, 9) for number in range(start, start + 9)]
    take(replica, *more)
    synced(replica.log)
    assert all_of(replica) == more
    disk.crash()
    store, replica = again(disk)
    assert replica.log_start_offset == start
    assert all_of(replica) == more
    assert replica.epochs.starts[-1] == (9, start)
    store.close()
    assert all_of(again(disk)[1]) == more


def test_an_empty_log_begins_anew() -> None:
    disk = SimulatedDisk(1)
    store = member(disk)
    replica = Replica(make_topic(store).partitions[0])
    anew(store, replica, 700)
    check(replica, 700)
    disk.crash()
    check(again(disk)[1], 700)


def test_what_had_gone_before_stays_in_the_account() -> None:
    store, replica, _ = filled(SimulatedDisk(1))
    replica.show_exactly(20)
    delete_records(replica.log, 3, NOW)
    anew(store, replica, 100)
    assert [(one.cause, one.first_offset, one.end_offset) for one in replica.log.removed] == [
        ("deleted", 0, 3),
        ("leader", 3, 100),
    ]
    check(replica, 100)


@pytest.mark.parametrize("start", [20, 900])
@pytest.mark.parametrize("ordered", [False, True], ids=["free", "ordered"])
def test_at_each_step_a_power_cut_leaves_it_as_it_was_or_anew(start: int, ordered: bool) -> None:
    step, done = 0, False
    while not done:
        step += 1
        disk = SimulatedDisk(step * 31 + start, ordered=ordered)
        store, replica, written = filled(disk)
        if step % 2:
            store.checkpoint()
        done = not cut_off(disk, step, partial(anew, store, replica, start))
        disk.crash_at = -1
        disk.kill() if step % 3 == 0 else disk.crash()
        store, replica = again(disk)
        assert {one["cause"] for one in entries(store)} == set()
        if replica.log_start_offset == 0 and not done:
            assert all_of(replica) == written
            continue
        check(replica, start)
        more = [of_leader(number, 9, b"%d" % number) for number in range(start, start + 3)]
        take(replica, *more)
        synced(replica.log)
        disk.crash()
        assert all_of(again(disk)[1]) == more
    assert step > 5


@pytest.mark.parametrize("kind", ["datasync", "remove", "sync_directory", "create", "rename", "write"])
def test_a_step_that_fails_takes_it_offline_and_the_next_start_goes_on(kind: str) -> None:
    disk = SimulatedDisk(1)
    store, replica, written = filled(disk)
    replica = broken_off(disk, store, replica, 300, kind)
    if replica.log_start_offset:
        check(replica, 300)
    else:
        assert all_of(replica) == written


def begun_at(disk: SimulatedDisk, start: int) -> tuple[LogStore, Replica]:
    """A log that begins anew far behind what its next leader has."""
    store, replica, _ = filled(disk)
    anew(store, replica, start)
    return store, replica


def check_nothing(replica: Replica) -> None:
    """It is as one that was just made."""
    assert replica.online, replica.log.fault
    ends = (replica.log_start_offset, replica.log_end_offset, replica.synced_offset, replica.log.high_watermark)
    assert (*ends, replica.log.removed, replica.epochs.starts) == (0, 0, 0, 0, (), ())


def test_one_without_a_record_begins_anew_at_0_and_then_where_its_leader_starts() -> None:
    disk = SimulatedDisk(1)
    store, replica = begun_at(disk, 100)
    store.checkpoint()
    anew(store, replica, 0)
    check_nothing(replica)
    disk.crash()
    store, replica = again(disk)
    assert not [note for note in store.recovery_notes if "lost" in note or "offline" in note]
    check_nothing(replica)
    anew(store, replica, 30)
    check(replica, 30)
    more = [of_number(number, 9) for number in range(30, 39)]
    take(replica, *more)
    synced(replica.log)
    store.close()
    assert all_of(again(disk)[1]) == more
    assert entries(store) == []


def test_one_with_records_never_begins_anew_before_its_end() -> None:
    store, replica, _ = filled(SimulatedDisk(1))
    assert hold(replica.log)
    with pytest.raises(AssertionError):
        start_anew(store, replica.log, 0, NOW)
    release_log(replica.log)


@pytest.mark.parametrize("ordered", [False, True], ids=["free", "ordered"])
@pytest.mark.parametrize("checkpointed", [False, True])
def test_at_each_step_a_power_cut_leaves_an_empty_log_as_it_was_or_missing_or_at_0(
    ordered: bool, checkpointed: bool
) -> None:
    step, done, seen = 0, False, set()
    while not done:
        step += 1
        disk = SimulatedDisk(step * 17, ordered=ordered)
        store, replica = begun_at(disk, 100)
        if checkpointed:
            store.checkpoint()
        done = not cut_off(disk, step, partial(anew, store, replica, 0))
        disk.crash_at = -1
        disk.kill() if step % 3 == 0 else disk.crash()
        store, replica = again(disk)
        assert entries(store) == []
        assert not replica.has_missing
        seen.add("missing" if replica.missing else replica.log_start_offset)
        if replica.missing:
            replica.log.go_on_as(reopen(store, replica.log, NOW, led_from=None, may_recreate=True).log)
        check(replica, 100) if replica.log_start_offset else check_nothing(replica)
    assert seen == {100, "missing", 0}


@pytest.mark.leaves("is missing or empty", "names topic id None", "no segment is left")
@pytest.mark.parametrize("kind", ["remove", "sync_directory", "create", "write"])
def test_a_step_that_fails_on_the_way_to_0_takes_it_offline_and_the_next_start_goes_on(kind: str) -> None:
    disk = SimulatedDisk(1)
    store, replica = begun_at(disk, 100)
    replica = broken_off(disk, store, replica, 0, kind)
    assert replica.missing or (replica.online and replica.log_start_offset in (0, 100))


AMID = 22
WHOLE = of_leader(20, 9, b"a", b"b", b"c", b"d", producer=(7, 0, 20))  # the leader's log starts amid it


def amid(store: LogStore, replica: Replica) -> None:
    assert hold(replica.log)
    resume_as(replica.log, begin_amid(store, replica.log, memoryview(WHOLE), NOW))
    replica.batches_appended()


def check_amid(replica: Replica, batches: list[bytes]) -> None:
    """It has the batch and what came behind it, shows nothing before its start, and the account proves the rest."""
    assert replica.online, replica.log.fault
    end = read_header(batches[-1]).next_offset
    ends = (replica.log_start_offset, replica.log_end_offset, replica.log.segments[0].base_offset)
    assert ends == (AMID, end, 20)
    account = replica.log.removed
    assert (account[0].first_offset, account[-1].end_offset, account[-1].cause) == (0, AMID, "leader")
    assert replica.log.high_watermark <= end
    assert all_of(replica) == batches
    for offset in (0, 20, AMID - 1):
        with pytest.raises(Refusal) as refusal:
            replica.log.reader.read(offset, 1000, blocking=True)
        assert refusal.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    assert replica.epochs.starts == ((9, 20),)
    last = replica.log.writer.producers.by_id()[7].batches[-1].last_sequence
    assert last == (read_header(WHOLE).base_sequence + 3 if end == 24 else end - 1)


def test_a_batch_amid_which_the_leaders_log_starts_is_taken_whole() -> None:
    disk = SimulatedDisk(1)
    store, replica, _ = filled(disk)
    store.checkpoint()
    anew(store, replica, AMID)
    amid(store, replica)
    assert (replica.synced_offset, replica.log.high_watermark) == (24, AMID)
    replica.show(24)
    assert replica.log.high_watermark == 24
    check_amid(replica, [WHOLE])
    for _ in range(2):
        disk.crash()
        store, replica = again(disk)
        assert not [note for note in store.recovery_notes if "lost" in note or "offline" in note]
        check_amid(replica, [WHOLE])
    more = [of_number(number, 9) for number in range(24, 44)]
    take(replica, *more)
    synced(replica.log)
    check_amid(replica, [WHOLE, *more])
    store.checkpoint()
    assert findings(disk) == []
    disk.crash()
    store, replica = again(disk)
    check_amid(replica, [WHOLE, *more])
    store.close()
    check_amid(again(disk)[1], [WHOLE, *more])
    assert findings(disk) == []


def emptied(disk: SimulatedDisk) -> tuple[LogStore, Replica]:
    """A log of which the front was removed up to AMID, where the leader has a batch, and the rest was truncated."""
    store, replica, _ = filled(disk)
    take(replica, *(of_number(number, 8, 60) for number in range(20, 24)))
    synced(replica.log)
    replica.show_exactly(24)
    follow_start(replica.log, AMID, NOW)
    cut(store, replica, AMID)
    assert (replica.log_start_offset, replica.log_end_offset) == (AMID, AMID)
    assert replica.log.state.active.size, "removed batches are left"
    return store, replica


@pytest.mark.parametrize("ordered", [False, True])
def test_a_log_that_a_truncation_emptied_amid_a_batch_of_its_leader_takes_that_batch(ordered: bool) -> None:
    step, done = 0, False
    while not done:
        step += 1
        disk = SimulatedDisk(step * 37, ordered=ordered)
        store, replica = emptied(disk)
        lost = entries(store)
        done = not cut_off(disk, step, partial(amid, store, replica))
        disk.crash_at = -1
        disk.kill() if step % 3 == 0 else disk.crash()
        store, replica = again(disk)
        assert entries(store) == lost
        assert replica.online, replica.log.fault
        if replica.log_end_offset == AMID and not done:
            assert begins_before(memoryview(WHOLE), replica.log.state) is not None
            amid(store, replica)
        assert (replica.log_start_offset, replica.log_end_offset, all_of(replica)) == (AMID, 24, [WHOLE])
        assert findings(disk, running=True) == []
    assert step > 3


@pytest.mark.parametrize("start", [19, 20, 24])
def test_only_a_batch_around_the_start_of_an_empty_log_begins_before_it(start: int) -> None:
    store, replica, _ = filled(SimulatedDisk(1))
    if start >= 20:
        anew(store, replica, start)
    assert begins_before(memoryview(WHOLE), replica.log.state) is None


def test_a_batch_that_does_not_match_its_crc_begins_no_log() -> None:
    store, replica, _ = filled(SimulatedDisk(1))
    anew(store, replica, AMID)
    with pytest.raises(Refusal, match="CRC"):
        begins_before(memoryview(WHOLE[:-1] + b"?"), replica.log.state)


@pytest.mark.parametrize(
    ("checkpoint", "ordered"), [("never", False), ("before", True), ("empty", False), ("empty", True)]
)
def test_at_each_step_of_beginning_amid_a_batch_a_power_cut_leaves_it_empty_or_with_the_batch(
    checkpoint: str, ordered: bool
) -> None:
    step, done, seen = 0, False, set[int]()
    while not done:
        step += 1
        disk = SimulatedDisk(step * 37, ordered=ordered)
        store, replica, _ = filled(disk)
        if checkpoint == "before":
            store.checkpoint()
        anew(store, replica, AMID)
        if checkpoint == "empty":
            store.checkpoint()
        done = not cut_off(disk, step, partial(amid, store, replica))
        disk.crash_at = -1
        disk.kill() if step % 3 == 0 else disk.crash()
        store, replica = again(disk)
        assert entries(store) == []
        seen.add(replica.log_end_offset)
        if replica.log_end_offset == AMID and not done:
            check(replica, AMID)
            amid(store, replica)
        check_amid(replica, [WHOLE])
        more = of_number(24, 9)
        take(replica, more)
        synced(replica.log)
        disk.crash()
        store, replica = again(disk)
        check_amid(replica, [WHOLE, more])
        assert findings(disk) == []
    assert step > 5
    assert seen == {AMID, 24}


@pytest.mark.parametrize("checkpoint", [False, True])
def test_a_torn_write_behind_that_batch_is_cut_and_no_damage(checkpoint: bool) -> None:
    """What the positions say of the empty segment says nothing of the one that took its place."""
    for seed in range(8):
        disk = SimulatedDisk(seed)
        store, replica, _ = filled(disk)
        anew(store, replica, AMID)
        if checkpoint:
            store.checkpoint()
        amid(store, replica)
        take(replica, *[of_number(number, 9, 3000) for number in range(24, 27)])
        disk.crash()
        _, replica = again(disk)
        assert replica.online
        assert not replica.has_missing
        assert not [one for one in replica.log.segments if one.corrupt_ranges]
        assert replica.log_end_offset >= 24
        assert replica.log.reader.state.log_start_offset == AMID


@pytest.mark.parametrize("kind", ["datasync", "remove", "sync_directory", "create", "write"])
def test_a_step_of_it_that_fails_takes_it_offline_and_the_next_start_goes_on(kind: str) -> None:
    disk = SimulatedDisk(1)
    store, replica, _ = filled(disk)
    anew(store, replica, AMID)
    assert hold(replica.log)
    disk.fault = failing(kind, "/t-0")
    with pytest.raises(StorageFault):
        begin_amid(store, replica.log, memoryview(WHOLE), NOW)
    assert not replica.online
    disk.fault = None
    disk.crash()
    store, replica = again(disk)
    if replica.log_end_offset == AMID:
        check(replica, AMID)
        amid(store, replica)
    check_amid(replica, [WHOLE])


@pytest.mark.parametrize("kind", ["create", "write"])
def test_where_there_is_no_space_the_log_stays_empty_and_is_asked_for_again(kind: str) -> None:
    disk = SimulatedDisk(1)
    store, replica, _ = filled(disk)
    anew(store, replica, AMID)
    assert hold(replica.log)
    disk.fault = failing(kind, "/t-0", errno.ENOSPC)
    with pytest.raises(Refusal):
        begin_amid(store, replica.log, memoryview(WHOLE), NOW)
    disk.fault = None
    release_log(replica.log)
    check(replica, AMID)
    amid(store, replica)
    check_amid(replica, [WHOLE])
