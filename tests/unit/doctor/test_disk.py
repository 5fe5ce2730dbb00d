"""What `cluster disk` tells of a data directory is what its broker would go by, stopped or killed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from edge_broker.cluster.rebuild.disks import (
    NEVER_REGISTERED,
    NO_BROKER,
    NO_GENERATION,
    Disk,
    DiskEpoch,
    DiskFault,
    DiskLog,
    DiskTopic,
    decode,
    encode,
)
from edge_broker.doctor.directory import DataDirectory
from edge_broker.doctor.disk import describe
from edge_broker.output import json
from edge_broker.storage.files.filesystem import Disk as RealDisk
from edge_broker.storage.metadata.broker_id import write_broker_id
from edge_broker.storage.metadata.cluster_copy import ClusterCopy, CopiedDeletion, CopiedTopic, write_cluster_copy
from edge_broker.testing.disk import SimulatedDisk
from edge_broker.testing.site import make_topic
from tests.support.doctor_data.cluster import lead
from tests.support.doctor_data.directory import fill_directory
from tests.support.doctor_data.registrations import CLUSTER, member
from tests.support.storage import cut_off

T = CopiedTopic("t", "id-t", 20, ((1, 2),), {"retention.ms": "5"})
COPY = ClusterCopy(70, (T,), (), (CopiedDeletion("old", "id-old", 60),))


def described(disk: SimulatedDisk, broker: int | None = None) -> Disk:
    return describe(DataDirectory(disk, "/data", None), broker)


def test_a_board_is_described_as_it_would_go_on() -> None:
    disk = SimulatedDisk(1)
    store = member(disk)
    store.directory.register(17, CLUSTER)
    store.directory.producer_ids.keep(5000)
    make_topic(store, "t")
    lead(store, 3, b"a", b"b")
    lead(store, 9, b"c")
    lead(store, 12)
    write_cluster_copy(disk, "/data", COPY)
    write_broker_id(disk, "/data", 2)
    for end in (disk.kill, disk.crash):
        end()
        found = described(disk)
        assert (found.broker, found.cluster, found.epoch) == (2, CLUSTER, 17)
        assert (found.producer_ids, found.security_generation) == (5000, NO_GENERATION)
        assert found.copy == COPY
        assert [each.name for each in found.topics] == ["t"]
        (log,) = found.logs
        assert (log.start_offset, log.end_offset, log.last_epoch) == (0, 3, 9), "epoch 12 has no record"
        assert [(each.epoch, each.offset) for each in log.epochs] == [(3, 0), (9, 2)]
        assert all(each.crc is not None for each in log.epochs)
        assert not log.problem
        assert not found.problems


def test_two_leaders_of_one_epoch_are_told_apart_by_its_first_batch() -> None:
    crcs = set()
    for seed, value in ((1, b"a"), (2, b"b"), (3, b"a")):
        disk = SimulatedDisk(seed)
        store = member(disk)
        make_topic(store, "t")
        lead(store, 3, value)
        disk.kill()
        crcs.add(described(disk).logs[0].epochs[0].crc)
    assert len(crcs) == 2


def test_what_a_start_would_cut_off_does_not_count() -> None:
    disk = SimulatedDisk(1)
    store = member(disk)
    make_topic(store, "t")
    replica = lead(store, 3, b"a", b"b")
    cut_off(disk, 1, lambda: lead(store, 4, b"c" * 20_000))
    disk.kill()
    path = replica.log.synced_end.segment.path
    file = disk.open(path)
    file.write(bytes(file.read(100, 0)), file.size())  # a torn batch
    (log,) = described(disk).logs
    assert log.end_offset == 2
    assert [(each.epoch, each.offset) for each in log.epochs] == [(3, 0)]


def test_an_interrupted_truncation_ends_the_log() -> None:
    from edge_broker.storage.recovery.truncation_file import Truncation, encode_truncation

    disk = SimulatedDisk(1)
    store = member(disk)
    make_topic(store, "t")
    lead(store, 3, b"a", b"b")
    lead(store, 5, b"c")
    disk.kill()
    disk.put("/data/t-0/truncation", encode_truncation(Truncation(2, 0, 0)))
    (log,) = described(disk).logs
    assert (log.end_offset, log.last_epoch) == (2, 3)


@pytest.mark.leaves("this is no")
def test_what_cannot_be_read_is_named_and_the_rest_is_told() -> None:
    disk = SimulatedDisk(1)
    store = member(disk)
    store.directory.register(17, CLUSTER)
    make_topic(store, "t")
    lead(store, 3, b"a")
    for name in ("registrations", "cluster-copy", "producer-ids", "security", "t-0/leader-epoch-checkpoint"):
        disk.put(f"/data/{name}", b"nonsense\n")
    disk.kill()
    found = described(disk, 7)
    assert (found.broker, found.directory, found.epoch, found.copy) == (7, "", NEVER_REGISTERED, None)
    assert {problem.split(" ")[0].split(":")[0].rpartition("/")[2] for problem in found.problems} >= {"registrations"}
    assert len(found.problems) == 4
    assert "leader-epoch-checkpoint" in found.logs[0].problem


def test_a_board_of_an_earlier_release_has_no_copy_and_its_id_is_asked_for() -> None:
    disk = SimulatedDisk(1)
    member(disk).directory.register(17, CLUSTER)
    disk.kill()
    found = described(disk)
    assert (found.broker, found.copy) == (NO_BROKER, None)
    assert set(found.problems) == {
        "no file broker-id: the board was not started since it keeps one",
        "no file cluster-copy: the broker was no member since it keeps one",
    }
    assert described(disk, 3).broker == 3


@pytest.mark.leaves("names topic id")
def test_a_directory_of_another_topic_is_a_problem() -> None:
    disk = SimulatedDisk(1)
    store = member(disk)
    make_topic(store, "t")
    disk.put("/data/t-0/partition.metadata", b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA\n")
    disk.kill()
    assert described(disk).logs[0].problem == "its directory is missing, or is of another topic"


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("broker",), "1"),
        (("broker",), None),
        (("broker",), 1 << 70),
        (("epoch",), "x"),
        (("producer_ids",), 1.5),
        (("cluster",), None),
        (("copy", "topics", 0, "name"), "../x"),
        (("copy", "topics", 0, "topic_id"), 7),
        (("copy", "topics", 0, "config"), {"retention.ms": 5}),
        (("copy", "topics", 0, "replicas"), []),
        (("copy", "topics", 0, "replicas"), [[]]),
        (("copy", "topics", 0, "replicas"), [[1, 1]]),
        (("copy", "topics", 0, "replicas"), [["1"]]),
        (("copy", "topics", 0, "replicas"), [[-1]]),
        (("logs", 0, "partition"), -1),
        (("logs", 0, "end_offset"), -3),
        (("logs", 0, "end_offset"), "9"),
        (("logs", 0, "epochs"), [["a", 0, 1]]),
        (("logs", 0, "epochs"), [[1 << 40, 0, 1]]),
        (("logs", 0, "problem"), 3),
    ],
)
def test_a_description_with_a_value_that_no_disk_has_is_refused(path: tuple[str | int, ...], value: object) -> None:
    log = DiskLog("t", "id-t", 0, 5, 9, (DiskEpoch(3, 5, 77), DiskEpoch(4, 7)))
    fields = json.loads(json.dumps(encode(Disk(2, "dir", "site", 17, "running", 5000, 3, COPY, (), (log,)))))
    decode(json.dumps(fields))
    place = fields
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    with pytest.raises(DiskFault, match="is no output of `edge-broker cluster disk --json`"):
        decode(json.dumps(fields))


@pytest.mark.parametrize(
    ("path", "name"),
    [
        (("version",), None),
        (("broker",), "broker"),
        (("epoch",), "epoch"),
        (("producer_ids",), "producer_ids"),
        (("security_generation",), "security_generation"),
        (("copy", "as_of"), "as_of of the copy"),
        (("copy", "topics", 0, "epoch"), "epoch of topic "),
        (("copy", "topics", 0, "replicas"), "replica of topic "),
        (("copy", "deletions", 0, "epoch"), "epoch of the deletion of "),
        (("topics", 0, "partitions"), "partitions of topic t"),
        (("logs", 0, "partition"), "partition of topic t"),
        (("logs", 0, "start_offset"), "start_offset of t-0"),
        (("logs", 0, "end_offset"), "end_offset of t-0"),
        (("logs", 0, "epochs", 0, 0), "epoch of t-0"),
        (("logs", 0, "epochs", 0, 1), "offset of an epoch of t-0"),
        (("logs", 0, "epochs", 0, 2), "CRC of an epoch of t-0"),
    ],
)
@pytest.mark.parametrize("value", [True, False])
def test_true_and_false_are_no_numbers_of_a_description(
    path: tuple[str | int, ...], name: str | None, value: bool
) -> None:
    """Python counts them as 1 and 0, so the rebuild would plan by them."""
    log = DiskLog("t", "id-t", 0, 0, 9, (DiskEpoch(0, 0, 1), DiskEpoch(4, 7)))
    topics = (DiskTopic("t", "id-t", 1, {}),)
    fields = json.loads(json.dumps(encode(Disk(2, "dir", "site", 17, "running", 5000, 3, COPY, topics, (log,)))))
    decode(json.dumps(fields))
    place = fields
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = [[value]] if path[-1] == "replicas" else value
    said = "is of kind" if name is None else f"disk --json`: {name}"
    with pytest.raises(DiskFault, match=re.escape(said)) as refused:
        decode(json.dumps(fields))
    assert name is None or f" is {json.dumps(value)}, no whole number from " in str(refused.value)


def test_a_number_is_not_whether_a_log_is_damaged() -> None:
    text = encode(Disk(2, "dir", "site", 17, "running", 5000, 3, None, (), (DiskLog("t", "id-t", 0, 5, 9),)))
    text["logs"][0]["damaged"] = 1
    with pytest.raises(DiskFault, match="damaged of t-0 is 1, not true or false"):
        decode(json.dumps(text))


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"start_offset": 10}, "the log of t-0 starts at offset 10, after its end 9; describe the disk again"),
        ({"start_offset": 1, "end_offset": 0, "epochs": []}, "the log of t-0 starts at offset 1, after its end 0"),
        ({"epochs": [[3, 5, 77], [4, 9, None]]}, "epoch 4 of t-0 begins at offset 9, where the log ended at 9"),
        ({"epochs": [[4, 5, 77], [3, 7, None]]}, "epochs of t-0 out of order (4 at offset 5, 3 at 7)"),
        ({"epochs": [[3, 7, 77], [4, 5, None]]}, "epochs of t-0 out of order (3 at offset 7, 4 at 5)"),
        ({"epochs": [[3, 5, 77], [3, 7, None]]}, "epochs of t-0 out of order (3 at offset 5, 3 at 7)"),
    ],
)
def test_offsets_of_a_log_that_contradict_each_other_are_refused_by_name(
    fields: dict[str, object], sentence: str
) -> None:
    """The log would lead by an end or an epoch that it has not, and the others would truncate for it."""
    log = DiskLog("t", "id-t", 0, 5, 9, (DiskEpoch(3, 5, 77), DiskEpoch(4, 7)))
    text = encode(Disk(2, "dir", "site", 17, "stopped cleanly", 5000, 3, COPY, (), (log,)))
    text["logs"][0] |= fields
    with pytest.raises(DiskFault, match=re.escape(sentence)):
        decode(json.dumps(text))


def test_a_log_of_removed_records_and_two_epochs_from_one_offset_are_of_a_disk() -> None:
    """All records went by retention; a checkpoint may still name an epoch whose records were truncated."""
    log = DiskLog("t", "id-t", 0, 9, 9, (DiskEpoch(3, 5, 77), DiskEpoch(4, 5)))
    disk = Disk(2, "dir", "site", 17, "stopped cleanly", 5000, 3, COPY, (), (log,))
    assert decode(json.dumps(encode(disk))) == disk


def test_a_deep_text_is_no_description() -> None:
    with pytest.raises(DiskFault, match="is no output"):
        decode("[" * 100_000)


def test_a_description_is_carried_as_json_and_nothing_else_is_taken_for_one() -> None:
    log = DiskLog("t", "id-t", 0, 5, 9, (DiskEpoch(3, 5, 77), DiskEpoch(4, 7)), problem="x")
    disk = Disk(2, "dir", "site", 17, "running", 5000, 3, COPY, (), (log,), ("y",))
    assert decode(json.dumps(encode(disk))) == disk
    bare = disk._replace(copy=None)
    assert decode(json.dumps(encode(bare))) == bare
    for text in ("", "[]", "{}", "{", json.dumps(encode(disk) | {"more": 1}), json.dumps(encode(disk) | {"logs": 1})):
        with pytest.raises(DiskFault, match="is no output of `edge-broker cluster disk --json`"):
            decode(text)
    with pytest.raises(DiskFault, match="version 2, and this release knows cluster-disk 1"):
        decode(json.dumps(encode(disk) | {"version": 2}))


def test_the_command_prints_json_or_a_table(run, tmp_path: Path) -> None:
    data = fill_directory(tmp_path / "data")
    write_cluster_copy(RealDisk(), str(data), COPY)
    write_broker_id(RealDisk(), str(data), 2)
    ran = run("cluster", "disk", "--data-dir", data)
    assert ran.status == 0
    assert "broker 2, stopped cleanly, cluster -" in ran.out
    assert "deleted: old (id-old), epoch 60" in ran.out
    assert "0@0" in ran.out
    carried = decode(run("cluster", "disk", "--data-dir", data, "--json").out)
    assert carried.broker == 2
    assert {log.end_offset for log in carried.logs if log.topic == "t"} == {100, 60}
    assert decode(run("cluster", "disk", "--data-dir", data, "--broker-id", 5, "--json").out).broker == 5
    assert run("cluster", "disk", "--data-dir", "/nowhere/at/all").status == 2
