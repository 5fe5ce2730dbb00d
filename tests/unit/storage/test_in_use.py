"""The marks of partitions in use: what a start makes of them after a cut, a kill, a stop, and of an older directory."""

import errno
import uuid

import pytest

from edge_broker.configuration.settings import LogSettings
from edge_broker.errors import StorageFault
from edge_broker.protocol.record_batch import assign_offsets
from edge_broker.storage.log_store import LogStore
from edge_broker.storage.recovery.dirty_markers import FILES, InUse
from edge_broker.testing.disk import SimulatedDisk
from edge_broker.testing.site import make_topic, mark
from tests.support.storage import READING, append, batch, failing, fill, ledgered, open_store


@pytest.fixture
def disk():
    return SimulatedDisk(1)


CUT = [("unsynced_cut", "t", 0, 5, None)]


def started(disk, boot="boot"):
    return LogStore.open(disk, "/data", LogSettings(), READING._replace(boot_id=boot), uuid.uuid4)


def marked_and_filled(disk, config=None):
    """Two partitions, of which the first is in use; both have five synced batches."""
    store = open_store(disk)
    topic = make_topic(store, partitions=2, config=config)
    mark(store, topic.partitions[0])
    for log in topic.partitions:
        fill(log, 5)
    return store


def started_while_the_ledger_takes_nothing(disk, number):
    marked_and_filled(disk)
    disk.kill()
    disk.fault = failing("write", "/data/__edge_ledger-0/", number)
    store = started(disk, "another")
    disk.fault = None
    return store


@pytest.mark.parametrize(
    ("boot", "mounted_again", "told"), [("boot", 0, []), ("another", 0, CUT), ("boot", 1, CUT), ("another", 1, CUT)]
)
def test_what_a_cut_may_have_taken_is_in_the_ledger(disk, boot, mounted_again, told):
    """Only in the same boot, and while it stayed mounted, nothing is lost."""
    marked_and_filled(disk)
    disk.kill()
    disk.mounts += mounted_again
    assert ledgered(started(disk, boot)) == told
    disk.kill()
    assert ledgered(started(disk, "third")) == told  # nothing was written since


def test_a_clean_stop_leaves_no_mark_and_a_start_in_another_boot_says_nothing(disk):
    marked_and_filled(disk).close()
    disk.kill()
    started(disk)
    disk.kill()
    assert ledgered(started(disk, "another")) == []


@pytest.mark.leaves("names topic id")
def test_of_a_partition_in_use_that_cannot_be_opened_all_behind_the_stored_end_may_be_gone(disk):
    store = marked_and_filled(disk)
    store.checkpoint()
    disk.kill()
    disk.remove("/data/t-0/partition.metadata")
    store = started(disk, "another")
    assert store.topics["t"].partitions[0].fault is not None
    assert ledgered(store) == CUT


@pytest.mark.leaves("this is no topic file")
def test_of_a_topic_in_use_whose_file_is_damaged_too(disk):
    store = marked_and_filled(disk)
    store.checkpoint()
    disk.kill()
    disk.flip("/data/topics/t.json", 20)
    assert ledgered(started(disk, "another")) == CUT


def test_the_mark_of_a_partition_that_cannot_be_opened_stays_until_somebody_can_look_at_it(disk):
    store = marked_and_filled(disk)
    disk.kill()
    metadata = disk.content("/data/t-0/partition.metadata")
    disk.remove("/data/t-0/partition.metadata")
    store = started(disk)  # the same boot: nothing is lost, and nothing of it is synced
    mark(store, store.topics["t"].partitions[1])
    disk.kill()
    disk.put("/data/t-0/partition.metadata", metadata)
    assert ledgered(started(disk, "another")) == [*CUT, ("unsynced_cut", "t", 1, 5, None)]


@pytest.mark.parametrize(("boot", "told"), [("boot", []), ("another", [*CUT, ("unsynced_cut", "t", 1, 5, None)])])
@pytest.mark.parametrize("how", ["an older broker", "damaged"])
def test_without_marks_everything_is_believed_to_have_been_in_use_once(disk, boot, told, how):
    store = marked_and_filled(disk)
    fill(make_topic(store, "k", config={"flush.ms": "9223372036854775807"}).partitions[0], 5)
    disk.kill()
    for name in [name for name in FILES if disk.exists(f"/data/{name}")]:
        (disk.remove if how == "an older broker" else lambda path: disk.flip(path, 60))(f"/data/{name}")
    assert ledgered(started(disk, boot)) == told
    disk.kill()
    assert ledgered(started(disk, "third")) == told


def test_a_directory_of_an_older_broker_that_was_stopped_gets_its_marks_at_the_first_start(disk):
    store = marked_and_filled(disk)
    store.close()
    disk.kill()
    for name in [name for name in FILES if disk.exists(f"/data/{name}")]:
        disk.remove(f"/data/{name}")
    started(disk)
    disk.kill()
    assert ledgered(started(disk, "another")) == []


def test_while_the_ledger_takes_nothing_the_marks_stay_and_no_others_are_made(disk):
    store = started_while_the_ledger_takes_nothing(disk, errno.EIO)
    store.in_use.ask(store.topics["t"].partitions[1])
    assert store.in_use.begin_write() is None
    disk.kill()
    assert ledgered(started(disk, "third")) == CUT


def test_the_ledger_is_told_later_when_it_takes_something_again(disk):
    store = started_while_the_ledger_takes_nothing(disk, errno.ENOSPC)
    store.checkpoint()
    assert ledgered(store) == CUT
    mark(store, store.topics["t"].partitions[1])
    assert store.topics["t"].partitions[1].marked


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_what_a_failed_sync_took_is_in_the_ledger_although_nobody_brought_the_partition_back(disk, how):
    """Memory does not have it either: the same boot and mount prove nothing."""
    store = marked_and_filled(disk)
    log = store.topics["t"].partitions[0]
    append(log, batch(b"answered"))
    flush = log.writer.begin_flush()
    disk.loses_all = True
    disk.fault = failing("datasync", "/data/t-0/", errno.EIO)
    with pytest.raises(StorageFault):
        flush.run()
    disk.fault = None
    log.fail(StorageFault("t-0", 0, "the sync failed"))
    if how == "stop":
        store.close()
    else:
        store.in_use.remove_idle_marks(0.0)
        marking = store.in_use.begin_write()
        marking.run()
        store.in_use.end_write(marking)
    disk.kill()
    store = started(disk)
    end_offset = store.topics["t"].partitions[0].log_end_offset  # 5 or 6, by the dice of the disk
    assert ledgered(store) == [("unsynced_cut", "t", 0, end_offset, None)]
    disk.kill()
    assert len(ledgered(started(disk, "another"))) == 1


def test_a_partition_that_came_back_is_not_failed_any_more(disk):
    store = marked_and_filled(disk)
    log = store.topics["t"].partitions[0]
    log.fail(StorageFault("t-0", 0, "the sync failed"))
    for fault, failed in ((log.fault, 1), (None, 0)):
        log.state.fault = fault
        store.in_use.remove_idle_marks(0.0)
        marking = store.in_use.begin_write()
        marking.run()
        store.in_use.end_write(marking)
        marks = InUse(disk, "/data").read()
        assert (len(marks.keys), len(marks.failed)) == (1 - failed, failed)
    store.in_use.remove_idle_marks(1.0)
    assert not store.in_use.due


@pytest.mark.parametrize("seed", range(20))
def test_whatever_a_cut_does_to_a_write_of_marks_those_that_were_there_are(seed):
    disk = SimulatedDisk(seed)
    store = open_store(disk)
    logs = make_topic(store, partitions=300).partitions
    for count in range(1, 4 + seed % 2):
        mark(store, *logs[: 50 * count])
    for log in logs:
        store.in_use.ask(log)
    disk.fault = failing("datasync", "/data/in-use", errno.EIO)
    marking = store.in_use.begin_write()
    marking.run()
    assert marking.fault is not None
    disk.crash()
    told = {loss[2] for loss in ledgered(started(disk, "another"))}
    assert told >= set(range(50 * (3 + seed % 2)))


def test_a_start_says_its_session_also_where_nobody_was_in_use(disk):
    """Else a kill after it counts as a cut: half of the write that it ended would be a loss."""
    log = make_topic(open_store(disk), config={"flush.ms": "9223372036854775807"}).partitions[0]
    fill(log, 2)
    disk.crash()
    log = started(disk, "another").topics["t"].partitions[0]
    half = batch(b"half")
    assign_offsets(half, log.log_end_offset, 0)
    path = f"{log.directory}/{0:020d}.log"
    disk.put(path, disk.content(path) + bytes(half)[:-1])
    disk.kill()
    assert [cause for cause, *_ in ledgered(started(disk, "another"))] == []
