"""A start alone: which topics it opens, what it notes and writes, without the store that is made of it."""

import uuid

import pytest

from drupelet.ledger import LEDGER_TOPIC
from edge_broker.configuration.settings import LogSettings
from edge_broker.errors import StorageFault
from edge_broker.storage.data_directory import DataDirectory
from edge_broker.storage.log_store import LogStore
from edge_broker.storage.loss.startup_ledger import DirectLedger
from edge_broker.storage.metadata.loss_records import NoLedger
from edge_broker.storage.metadata.topic_record import JOURNAL_TOPIC
from edge_broker.storage.opening import Opening
from edge_broker.storage.shared_log_parts import SharedLogParts
from edge_broker.storage.topic_files import TopicFiles
from edge_broker.testing.disk import SimulatedDisk
from edge_broker.testing.site import make_topic, mark
from tests.support.storage import READING, append, batch, failing, fill, open_store, read_all


class Start:
    """One start and the objects that it works with."""

    def __init__(self, disk, *, boot="boot", in_cluster=False):
        self.directory = DataDirectory(disk, "/data")
        self.shared = SharedLogParts(self.directory)
        self.opening = Opening(self.directory, TopicFiles(self.directory, LogSettings()), self.shared)
        reading = READING._replace(boot_id=boot)
        self.opening.open(reading, uuid.uuid4, "1", in_cluster=in_cluster, broker_id=None)

    def log(self, topic, partition=0):
        return self.opening.topics[topic].partitions[partition]


@pytest.fixture
def disk():
    return SimulatedDisk(1)


@pytest.mark.parametrize(("in_cluster", "name"), [(False, LEDGER_TOPIC), (True, JOURNAL_TOPIC)])
def test_first_start_makes_the_ledger_alone(disk, in_cluster, name):
    start = Start(disk, in_cluster=in_cluster)
    assert set(start.opening.topics) == {name}
    assert isinstance(start.shared.ledger, DirectLedger)
    assert start.log(name).ledger is not None
    assert (start.opening.recovery_bytes, start.opening.unwritten, start.directory.notes) == (0, [], [])


def test_every_log_gets_the_shared_parts_before_the_start_ends(disk):
    store = open_store(disk)
    make_topic(store, partitions=2)
    disk.kill()
    start = Start(disk)
    for topic in start.opening.topics.values():
        for log in topic.partitions:
            assert log.ledger is (start.shared.ledger if topic.name != LEDGER_TOPIC else log.ledger)
            assert log.spare is start.directory.spare
            assert log.writer.producer_memory is start.shared.producer_memory
            assert log.roller.stays_without_space == (topic.name == LEDGER_TOPIC)


def test_unsynced_records_after_a_kill_are_read_and_kept(disk):
    store = open_store(disk)
    written = fill(make_topic(store).partitions[0], 3)
    append(store.topics["t"].partitions[0], batch(b"unsynced"))
    disk.kill()
    start = Start(disk)
    assert start.opening.recovery_bytes > 0
    assert read_all(start.log("t"))[:3] == written
    assert start.log("t").log_end_offset == 4
    assert disk.exists("/data/last-recovery")


def test_a_power_loss_writes_the_losses_of_marked_partitions_and_clears_the_markers(disk):
    store = open_store(disk)
    log = make_topic(store).partitions[0]
    append(log, batch(b"answered"))
    mark(store, log)
    disk.crash()
    start = Start(disk, boot="another")
    assert start.log(LEDGER_TOPIC).log_end_offset == 1
    assert start.opening.unwritten == []
    assert start.directory.in_use.read().keys == frozenset()


def test_losses_that_the_ledger_refuses_wait_with_their_markers(disk):
    store = open_store(disk)
    log = make_topic(store).partitions[0]
    append(log, batch(b"answered"))
    mark(store, log)
    disk.crash()
    disk.fault = failing("write", LEDGER_TOPIC)
    start = Start(disk, boot="another")
    assert [loss.topic for loss in start.opening.unwritten] == ["t"]
    assert start.directory.in_use.held
    assert start.directory.in_use.read().keys, "the markers stay as they were"
    assert any("the next start looks at the same again" in note for note in start.directory.notes)


def test_a_directory_of_no_topic_is_cleared(disk):
    open_store(disk).close()
    disk.kill()
    disk.make_directory("/data/gone-0")
    Start(disk)
    assert "gone-0" not in disk.names("/data")


@pytest.mark.leaves("this is no store file")
def test_a_failed_start_unlocks_the_directory_while_its_error_is_held(disk):
    open_store(disk).close()
    disk.kill()
    disk.put("/data/store", b"x")
    errors = []
    for _ in range(2):
        with pytest.raises(StorageFault, match="this is no store file") as failed:
            LogStore.open(disk, "/data", LogSettings(), READING, uuid.uuid4)
        errors.append(failed)


def test_logs_have_no_ledger_before_a_start(disk):
    assert isinstance(SharedLogParts(DataDirectory(disk, "/data")).ledger, NoLedger)
