"""Topics on disk: made, configured and erased without becoming visible, whatever step a cut comes at."""

import errno
import uuid
from functools import partial

import pytest

from drupelet.ledger import LEDGER_TOPIC
from edge_broker.configuration.settings import LogSettings
from edge_broker.errors import ErrorCode, Refusal, StorageFault
from edge_broker.storage.data_directory import DataDirectory
from edge_broker.storage.log.leader_epochs import NONE
from edge_broker.storage.metadata.topic_record import decode_topic
from edge_broker.storage.topic_files import TopicFiles
from edge_broker.testing.disk import SimulatedDisk
from tests.support.storage import cut_off, failing

TOPIC_ID = uuid.UUID(int=7)


def files_on(disk, defaults=None):
    """Return the topics' files of a locked directory, made if it is missing."""
    directory = DataDirectory(disk, "/data")
    if "store" not in (names := directory.lock()):
        directory.initialise(names, uuid.uuid4)
    return TopicFiles(directory, defaults or LogSettings())


def record_of(disk, name="t"):
    path = f"/data/topics/{name}.json"
    return decode_topic(path, disk.content(path))


@pytest.fixture
def disk():
    return SimulatedDisk(1)


def test_made_topic_is_on_the_disk(disk):
    topic = files_on(disk).make_topic("t", 3, {"segment.bytes": "4096"}, TOPIC_ID)
    assert [log.directory for log in topic.partitions] == ["/data/t-0", "/data/t-1", "/data/t-2"]
    assert (topic.config, topic.settings.segment_bytes) == ({"segment.bytes": "4096"}, 4096)
    disk.crash()
    assert record_of(disk) == topic.record()
    assert {"t-0", "t-1", "t-2"} <= set(disk.names("/data"))


def test_a_cut_leaves_no_topic_file_without_its_directories(disk):
    steps = made = 0
    while True:
        disk = SimulatedDisk(steps)
        files = files_on(disk)
        if not cut_off(disk, steps + 1, partial(files.make_topic, "t", 2, {}, TOPIC_ID)):
            break
        steps += 1
        disk.crash()
        if disk.exists("/data/topics/t.json"):
            made += 1
            assert {"t-0", "t-1"} <= set(disk.names("/data"))
    assert steps > 10
    assert made < steps / 2


@pytest.mark.parametrize(
    ("name", "config", "code"),
    [("a/b", {}, ErrorCode.INVALID_TOPIC_EXCEPTION), ("a", {"x": "1"}, ErrorCode.INVALID_CONFIG)],
)
def test_a_refused_topic_touches_no_file(disk, name, config, code):
    files = files_on(disk)
    steps = disk.steps
    with pytest.raises(Refusal) as refused:
        files.make_topic(name, 1, config, TOPIC_ID)
    assert (refused.value.code, disk.steps) == (code, steps)


def test_no_configuration_lets_the_ledger_expire(disk):
    settings = files_on(disk).settings_of(LEDGER_TOPIC, {"retention.ms": "1"})
    assert (settings.retention_ms, settings.cleanup_policy) == (-1, "delete")


def test_a_segment_takes_a_small_part_of_the_disk(disk):
    wanted = LogSettings(segment_bytes=1 << 40)
    assert files_on(disk, wanted).settings_of("t", {}).segment_bytes < disk.space("/data").total


def test_replicas_have_no_epoch_of_their_own(disk):
    files = files_on(disk)
    assert files.make_topic("alone", 1, {}, TOPIC_ID).partitions[0].leader_epoch == 0
    files._directory.open_registrations([], uuid.uuid4)
    assert files.make_topic("t", 1, {}, TOPIC_ID).partitions[0].leader_epoch == NONE


def test_more_partitions_are_counted_in_the_topic_file(disk):
    files = files_on(disk)
    topic = files.make_topic("t", 1, {}, TOPIC_ID)
    logs = files.make_partitions(topic, 3)
    assert [log.partition for log in logs] == [1, 2]
    assert len(topic.partitions) == 1, "they are not visible yet"
    disk.crash()
    assert record_of(disk).partitions == 3


def test_written_config_changes_the_file_alone(disk):
    files = files_on(disk)
    topic = files.make_topic("t", 1, {}, TOPIC_ID)
    settings = files.write_config(topic, {"segment.bytes": "4096"})
    assert (settings.segment_bytes, topic.config) == (4096, {})
    disk.crash()
    assert record_of(disk).config == {"segment.bytes": "4096"}


def test_an_equal_config_is_not_written(disk):
    files = files_on(disk)
    topic = files.make_topic("t", 1, {"segment.bytes": "4096"}, TOPIC_ID)
    steps = disk.steps
    files.write_config(topic, {"segment.bytes": "4096"})
    assert disk.steps == steps


def test_a_topic_that_was_compacted_stays_marked(disk):
    files = files_on(disk)
    topic = files.make_topic("t", 1, {"cleanup.policy": "compact"}, TOPIC_ID)
    files.write_config(topic, {"cleanup.policy": "delete"})
    assert record_of(disk).compacted


def test_erased_topic_leaves_nothing(disk):
    files = files_on(disk)
    files.erase_topic(files.make_topic("t", 2, {}, TOPIC_ID))
    disk.crash()
    assert not {"t-0", "t-1"} & set(disk.names("/data"))
    assert not disk.exists("/data/topics/t.json")


@pytest.mark.parametrize("work", ["make_partitions", "write_config", "erase_topic"])
def test_a_failed_change_names_the_topic(disk, work):
    files = files_on(disk)
    topic = files.make_topic("t", 1, {}, TOPIC_ID)
    arguments = {"make_partitions": (3,), "write_config": ({"segment.bytes": "4096"},), "erase_topic": ()}[work]
    disk.fault = failing("rename", "/data/", errno.EIO)
    with pytest.raises(StorageFault) as failed:
        getattr(files, work)(topic, *arguments)
    assert "/data/t" in str(failed.value) or "/data/deleted" in str(failed.value)
