"""The data directory: what outlives the process, and topics that come and go."""

import errno
import uuid
from functools import partial

import pytest

from edge_broker.configuration.settings import LogSettings
from edge_broker.errors import ErrorCode, Refusal, StorageFault
from edge_broker.storage.files.atomic_files import encode_state
from edge_broker.storage.files.filesystem import Disk
from edge_broker.storage.log_store import LogStore
from edge_broker.testing.clock import NOW_MS, reading_at
from edge_broker.testing.disk import SimulatedDisk
from edge_broker.testing.site import make_topic
from tests.support.storage import append, batch, cut_off, fill, names_of, open_store, read_all


@pytest.fixture
def disk():
    return SimulatedDisk(1)


def test_first_start_is_clean_and_the_cluster_id_stays(disk):
    store = open_store(disk)
    assert (store.directory.started_unclean, store.directory.leader_epoch, names_of(store)) == (False, 0, set())
    assert len(store.directory.cluster_id) == 22
    disk.crash()
    assert open_store(disk).directory.cluster_id == store.directory.cluster_id


def first_starts_cut():
    """A disk for each step of the first start, which ended there."""
    for step in range(1, 80):
        disk = SimulatedDisk(step)
        if not cut_off(disk, step, partial(open_store, disk)):
            return
        yield disk
    pytest.fail("the first start has more steps than were tried")


def test_first_start_cut_at_any_step_starts_again():
    for disk in first_starts_cut():
        disk.crash()
        open_store(disk)


def test_first_process_killed_at_any_step_leaves_no_directory_that_a_power_cut_takes_back():
    for disk in first_starts_cut():
        disk.kill()
        fill(make_topic(open_store(disk)).partitions[0], 1)
        disk.crash()
        assert len(read_all(open_store(disk).topics["t"].partitions[0])) == 1


def test_two_brokers_on_one_directory_are_refused(disk, tmp_path):
    first = open_store(disk)
    with pytest.raises(StorageFault, match="another broker runs"):
        open_store(disk)
    first.close()
    real = open_store(Disk(), str(tmp_path / "d"))
    with pytest.raises(StorageFault, match="another broker runs"):
        open_store(Disk(), str(tmp_path / "d"))
    real.close()
    open_store(Disk(), str(tmp_path / "d")).close()


def test_topic_on_the_real_disk_comes_back(tmp_path):
    store = open_store(Disk(), str(tmp_path / "d"))
    topic = make_topic(store, "readings", 2, {"segment.bytes": "4096"})
    written = fill(topic.partitions[1], 80)
    store.close()
    again = open_store(Disk(), str(tmp_path / "d"))
    found = again.topics["readings"]
    assert again.topics_by_id[topic.topic_id] is found
    assert (found.config, found.settings.segment_bytes) == ({"segment.bytes": "4096"}, 4096)
    assert read_all(found.partitions[1]) == written
    again.close()


@pytest.mark.parametrize(
    ("name", "config", "code"),
    [
        ("a/b", {}, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("a", {"x": "1"}, ErrorCode.INVALID_CONFIG),
    ],
)
def test_wrong_topics_are_refused_before_the_disk_is_touched(disk, name, config, code):
    store = open_store(disk)
    before = disk.steps
    with pytest.raises(Refusal) as refused:
        store.topic_files.make_topic(name, 1, config, uuid.uuid4())
    assert refused.value.code == code
    assert disk.steps == before


def test_longest_name_works_on_the_real_disk(tmp_path):
    store = open_store(Disk(), str(tmp_path / "d"))
    topic = make_topic(store, "n" * 249)
    append(topic.partitions[0], batch())
    store.topic_files.erase_topic(store.remove_topic(topic.name))
    store.close()


def test_deleted_topic_is_gone_and_its_name_is_free(disk):
    store = open_store(disk)
    topic = make_topic(store)
    fill(topic.partitions[0], 3)
    removed = store.remove_topic("t")
    assert removed is topic
    assert topic.topic_id not in store.topics_by_id
    with pytest.raises(StorageFault, match="was deleted"):
        append(topic.partitions[0], batch())
    store.topic_files.erase_topic(topic)
    assert "t-0" not in disk.names("/data")
    again = make_topic(store)
    assert again.topic_id != topic.topic_id
    assert again.partitions[0].log_end_offset == 0
    disk.crash()
    store = open_store(disk)
    assert store.topics["t"].topic_id == again.topic_id
    assert disk.names("/data/deleted") == []


def test_deletion_cut_at_any_step_is_not_there_or_finished():
    for step in range(1, 60):
        disk = SimulatedDisk(step)
        store = open_store(disk)
        topic = make_topic(store, partitions=2)
        fill(topic.partitions[0], 3)
        store.checkpoint()
        store.remove_topic("t")
        if not cut_off(disk, step, partial(store.topic_files.erase_topic, topic)):
            return
        disk.crash()
        store = open_store(disk)
        if "t" in store.topics:
            assert store.topics["t"].partitions[0].log_end_offset == 3
        else:
            assert [name for name in disk.names("/data") if name.startswith("t-")] == []
            assert disk.names("/data/deleted") == []
        assert "aside" not in disk.names("/data"), store.recovery_notes
    pytest.fail("a deletion has more steps than were tried")


def test_name_of_a_deletion_that_failed_is_used_again_and_cut_at_any_step():
    for step in range(1, 120):
        disk = SimulatedDisk(step)
        store = open_store(disk)
        fill(make_topic(store, "t", 2).partitions[0], 3)
        disk.fault = no_space_for_a_trace
        with pytest.raises(StorageFault, match="No space"):
            store.topic_files.erase_topic(store.remove_topic("t"))
        disk.fault = None
        if not cut_off(disk, step, partial(topic_of_five, store)):
            return
        disk.crash()
        store = open_store(disk)
        for log in store.topics["t"].partitions if "t" in store.topics else ():
            assert log.fault is None, (step, store.recovery_notes)
        assert not disk.exists("/data/aside"), step
    pytest.fail("making a topic has more steps than were tried")


def topic_of_five(store):
    fill(make_topic(store, "t", 2).partitions[0], 5)


def no_space_for_a_trace(kind, path, size):
    if kind == "write" and "/deleted/" in path:
        raise OSError(errno.ENOSPC, "No space left on device", path)


def test_creation_cut_at_any_step_is_there_whole_or_not_at_all():
    for step in range(1, 60):
        disk = SimulatedDisk(step)
        store = open_store(disk)
        if not cut_off(disk, step, partial(make_topic, store, partitions=2)):
            return
        disk.crash()
        store = open_store(disk)
        if "t" in store.topics:
            assert all(log.fault is None for log in store.topics["t"].partitions)
        else:
            assert [name for name in disk.names("/data") if name.startswith("t-")] == []
            make_topic(store)
    pytest.fail("a creation has more steps than were tried")


def test_stray_directories_with_data_are_put_aside_and_never_deleted(disk):
    store = open_store(disk)
    written = fill(make_topic(store).partitions[0], 3)
    disk.remove("/data/topics/t.json")
    disk.sync_directory("/data/topics")
    disk.crash()
    store = open_store(disk)
    assert names_of(store) == set()
    (name,) = disk.names("/data/aside")
    assert disk.content(f"/data/aside/{name}/{0:020d}.log") == b"".join(written)
    assert any("moved to aside" in note for note in store.recovery_notes)
    assert make_topic(store).partitions[0].log_end_offset == 0


@pytest.mark.leaves("this is no topic file")
def test_damaged_topic_file_takes_the_topic_offline_and_keeps_its_name(disk):
    store = open_store(disk)
    written = fill(make_topic(store, partitions=2).partitions[0], 3)
    disk.put("/data/topics/t.json", b"{}")
    disk.crash()
    store = open_store(disk)
    logs = store.topics["t"].partitions
    assert len(logs) == 2
    assert all("topics/t.json" in str(log.fault) for log in logs)
    assert disk.content(f"/data/t-0/{0:020d}.log") == b"".join(written)


def test_producer_ids_are_never_given_twice(disk):
    store = open_store(disk)
    blocks = [store.directory.producer_ids.reserve(), store.directory.producer_ids.reserve()]
    disk.crash()
    blocks.append(open_store(disk).directory.producer_ids.reserve())
    assert blocks == [range(0, 1000), range(1000, 2000), range(2000, 3000)]


@pytest.mark.leaves(
    "format version",
    "is missing",
    "this is no leader-epoch file",
    "this is no producer-ids file",
    "this is no store file",
)
@pytest.mark.parametrize("name", ["store", "leader-epoch", "producer-ids"])
@pytest.mark.parametrize("damage", ["missing", "damaged", "newer"])
def test_own_files_that_are_lost_damaged_or_newer_stop_the_start_with_a_remedy(disk, name, damage):
    store = open_store(disk)
    make_topic(store)
    if damage == "missing":
        disk.remove(f"/data/{name}")
        disk.sync_directory("/data")
    else:
        disk.put(f"/data/{name}", b"x" if damage == "damaged" else encode_state(name, 2, ["1"]))
    disk.crash()
    with pytest.raises(StorageFault, match=r"restore|use the newer broker") as failed:
        open_store(disk)
    assert failed.value.path == f"/data/{name}"


def test_checkpoint_writes_only_when_something_moved(disk):
    store = open_store(disk)
    log = make_topic(store).partitions[0]
    store.checkpoint()
    before = disk.steps
    store.checkpoint()
    assert disk.steps == before
    append(log, batch())
    store.checkpoint()
    assert disk.steps == before + 1  # the append itself: nothing is synced yet


def test_close_marks_no_clean_stop_while_a_partition_is_offline(disk):
    store = open_store(disk)
    make_topic(store).partitions[0].fail(StorageFault("p", 0, "broken"))
    store.close()
    disk.unlock("/data/.lock")
    assert open_store(disk).directory.started_unclean


def test_close_syncs_what_is_written(disk):
    store = open_store(disk)
    append(make_topic(store).partitions[0], batch())
    store.close()
    store.close()
    disk.crash()
    store = open_store(disk)
    assert not store.directory.started_unclean
    assert store.topics["t"].partitions[0].log_end_offset == 1


def test_fifty_clean_partitions_open_quickly(tmp_path):
    store = open_store(Disk(), str(tmp_path / "d"))
    for log in make_topic(store, partitions=50).partitions:
        append(log, batch())
    store.close()
    disk = CountingDisk()
    again = LogStore.open(disk, str(tmp_path / "d"), LogSettings(), reading_at(NOW_MS), uuid.uuid4)
    assert disk.opened <= 50 * 4 + 10, "metadata, snapshot and epochs of each partition, and the store's own files"
    again.close()


class CountingDisk(Disk):
    def __init__(self):
        super().__init__()
        self.opened = 0

    def open(self, path):
        self.opened += 1
        return super().open(path)
