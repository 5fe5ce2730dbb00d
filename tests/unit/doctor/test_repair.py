"""`edge-broker log repair`: sound again, nothing deleted, everything lost in the ledger; and what it must leave."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from edge_broker.storage.files.filesystem import Disk
from edge_broker.storage.metadata.broker_registrations import Registrations, write_registrations
from edge_broker.testing.site import make_topic
from tests.support.doctor_data.cluster import EPOCH, opened
from tests.support.doctor_data.damages import DAMAGES
from tests.support.doctor_data.directory import content_of, flip, let_go, names, tree_of
from tests.support.doctor_data.registrations import CLUSTER
from tests.support.storage import fill, open_store, read_all

NOBODY_KNOWS = {
    "another topic's directory",
    "no topic id",
    "a partition's directory",
    "a topic file",
    "the store file",
    "the leader epoch",
}


def repair(run, data: Path, *words: str):
    return run("log", "repair", "--json", "--data-dir", data, *words)


@pytest.mark.parametrize("damage", sorted(set(DAMAGES) - NOBODY_KNOWS))
def test_what_can_be_repaired_is_sound_then_and_all_of_it_accounted_for(run, data, damage):
    DAMAGES[damage][0](data)
    before = content_of(data)
    ran = repair(run, data)
    assert ran.status == 0, ran.out
    assert any(row["kind"] in ("moved", "quarantined", "noted") for row in ran.rows)
    checked = run("log", "check", "--data-dir", data)
    assert checked.status == 0, checked.out
    proved = run("ledger", "--prove", "--data-dir", data)
    assert proved.status == 0, proved.out
    for row in ran.rows:
        if row["kind"] == "moved":
            assert Path(row["text"].removeprefix("to ")).read_bytes() == before[os.path.relpath(row["path"], data)]
    assert repair(run, data).rows == [{"kind": "summary", "steps": 0, "left": 0}]


@pytest.mark.leaves(
    "is missing", "names topic id", "the CRC does not match the content", "the partition", "this is no topic file"
)
@pytest.mark.parametrize("damage", sorted(NOBODY_KNOWS))
def test_what_nobody_knows_is_left_as_it_is_and_said(run, data, damage):
    DAMAGES[damage][0](data)
    logs = {name: content for name, content in content_of(data).items() if name.endswith(".log")}
    ran = repair(run, data)
    assert ran.status == 1
    assert "left" in ran.out or ran.err
    assert {
        name: content for name, content in content_of(data).items() if name.endswith(".log")
    }.items() >= logs.items()


def test_a_broker_opens_what_was_repaired_and_has_all_the_rest(run, data):
    flip(names(data, "t-0/*.log")[0], 400)
    flip(names(data, "t-0/*.index")[2], 5)
    ran = run("log", "repair", "--data-dir", data)
    assert ran.status == 0
    moved, quarantined, verdict = ran.out.splitlines()
    assert moved.startswith(f"moved: {data}/t-0/{48:020d}.index to {data}/aside/repair.0/t-0/")
    assert "bytes 340 to 510: offsets 2 to 2 are lost and in the ledger, readers jump over them" in quarantined
    assert verdict == f"{data}: sound now"
    losses = run("ledger", "--json", "--data-dir", data).rows
    assert [(row["cause"], row["first_offset"], row["last_offset"]) for row in losses] == [("damaged", 2, 2)]
    store = open_store(Disk(), str(data))
    try:
        log = store.topics["t"].partitions[0]
        assert len(read_all(log, 1 << 20)) == 99
        assert fill(log, 3)
        assert log.log_end_offset == 103
    finally:
        store.close()
    assert run("log", "check", "--data-dir", data).status == 0


@pytest.mark.leaves(
    "names topic id", "the CRC of a record batch does not match its bytes", "the entry speaks of no batch in the log"
)
def test_a_dry_run_changes_nothing(run, data):
    flip(names(data, "t-0/*.log")[0], 400)
    flip(names(data, "t-0/*.index")[2], 5)
    (data / "t-1/partition.metadata").unlink()
    before = content_of(data)
    ran = run("log", "repair", "--dry-run", "--data-dir", data)
    assert content_of(data) == before
    assert ran.status == 1
    kinds = [line.split(": ")[0] for line in ran.out.splitlines()]
    assert kinds[:3] == ["would be moved", "would be quarantined", "left"]


def test_a_sound_directory_is_not_touched(run, data):
    before = content_of(data)
    ran = run("log", "repair", "--data-dir", data)
    assert (ran.status, ran.out) == (0, f"{data}: nothing was damaged\n")
    assert content_of(data) == before


def test_the_second_repair_has_a_place_of_its_own(run, data):
    for number in range(2):
        flip(names(data, "t-0/*.index")[number], 5)
        assert repair(run, data).status == 0
    assert {path.name for path in (data / "aside").iterdir()} == {"repair.0", "repair.1"}


def test_a_directory_in_use_is_refused(run, tmp_path):
    path = tmp_path / "data"
    store = open_store(Disk(), str(path))
    fill(make_topic(store).partitions[0], 3)
    before = content_of(path)
    for words in ((), ("--dry-run",)):
        ran = run("log", "repair", "--data-dir", path, *words)
        assert ran.status == 1
        assert f"a broker (process {os.getpid()}) runs on this data directory; stop it first" in ran.err
    assert content_of(path) == before
    let_go(store)


WORDS = pytest.mark.parametrize("words", [(), ("--dry-run",), ("t-0",)], ids=["all", "dry run", "one partition"])


def damaged_everywhere(data: Path) -> None:
    flip(data / "in-use", 60)
    flip(data / "recovery-point-offset-checkpoint", 60)
    flip(names(data, "t-0/*.log")[0], 400)
    flip(names(data, "t-0/*.index")[2], 5)


@pytest.mark.leaves(".")
@WORDS
def test_the_directory_of_a_clusters_board_is_refused_before_anything_is_changed(run, data, words):
    """Its file in-use says what may have been answered without a sync, and a start asks the other boards."""
    damaged_everywhere(data)
    write_registrations(Disk(), str(data), Registrations("disk of 2", (17,), "a cluster"))
    before = tree_of(data)
    ran = repair(run, data, *words)
    assert tree_of(data) == before
    assert ran.status == 1
    assert "belongs to a cluster, so nothing was changed; start its broker, which mends the damaged" in ran.err
    assert "unclean.leader.election.enable=true" in ran.err
    assert not ran.out


@pytest.mark.leaves(".")
def test_the_directory_of_a_board_that_lost_its_registrations_is_refused_too(run, tmp_path):
    path = tmp_path / "data"
    store = opened(path)
    store.directory.register(EPOCH, CLUSTER)
    fill(make_topic(store).partitions[0], 3)
    store.close()
    (path / "registrations").unlink()
    flip(path / "recovery-point-offset-checkpoint", 60)
    before = tree_of(path)
    ran = repair(run, path)
    assert tree_of(path) == before
    assert ran.status == 1
    assert "belongs to a cluster" in ran.err


@pytest.mark.leaves(".")
@WORDS
@pytest.mark.parametrize("name", ["store", "leader-epoch", "producer-ids"])
@pytest.mark.parametrize("is_gone", [True, False], ids=["missing", "damaged"])
def test_a_directory_that_no_start_opens_is_refused_before_anything_is_changed(run, data, name, is_gone, words):
    damaged_everywhere(data)
    if is_gone:
        (data / name).unlink()
    else:
        flip(data / name, (data / name).stat().st_size - 2)
    before = tree_of(data)
    ran = repair(run, data, *words)
    assert tree_of(data) == before
    assert ran.status == 1
    assert f"{data}/{name} at byte" in ran.err
    assert "nothing was changed" in ran.err
    assert not ran.out


@pytest.mark.leaves(".")
def test_a_check_of_a_clusters_board_advises_no_repair(run, data):
    damaged_everywhere(data)
    assert "log repair" in run("log", "check", "--data-dir", data).out
    write_registrations(Disk(), str(data), Registrations("disk of 2", (17,), "a cluster"))
    checked = run("log", "check", "--data-dir", data)
    assert checked.status == 1
    assert "log repair" not in checked.out
    assert "the board fetches the partition from the others" in checked.out
