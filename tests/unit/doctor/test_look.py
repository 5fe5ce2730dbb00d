"""`edge-broker log ls` and `dump`: what they say of a directory that storage made."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest

from edge_broker.storage.files.filesystem import Disk, ReadOnlyDisk, lock_holder
from edge_broker.testing.clock import NOW_MS
from edge_broker.testing.site import make_topic
from tests.support.doctor_data.directory import content_of, fill_directory, flip, names
from tests.support.storage import append, batch, open_store, sync


def test_ls_names_partitions_with_their_offsets(run, data):
    ran = run("log", "ls", "--data-dir", data)
    assert ran.status == 0
    head, _, _, _ledger, first, second = ran.out.splitlines()
    assert head.startswith(f"{data}: cluster ")
    assert head.endswith("leader epoch 0, stopped cleanly")
    assert first.split()[:7] == ["t-0", "5", "17,000", "0", "100", "100", "0"]
    assert second.split()[:7] == ["t-1", "2", second.split()[2], "0", "60", "60", "0"]


def test_ls_of_a_topic_names_its_segments(run, data):
    rows = [row for row in run("log", "ls", "--json", "--data-dir", data, "t-0").rows if row["kind"] == "segment"]
    assert [row["end_offset"] for row in rows] == [24, 48, 72, 96, 100]
    assert [row["bytes"] for row in rows] == [4080] * 4 + [680]
    assert {row["first_timestamp"] for row in rows} == {NOW_MS}
    assert [row["batches"] for row in rows] == [24, 24, 24, 24, 4]


def test_a_running_broker_is_told_and_its_unsynced_tail_is_no_damage(run, tmp_path):
    path = tmp_path / "data"
    store = open_store(Disk(), str(path))
    log = make_topic(store).partitions[0]
    append(log, batch(b"synced"))
    sync(log)
    store.checkpoint()
    append(log, batch(b"half written"))
    segment = names(path, "t-0/*.log")[0]
    segment.write_bytes(segment.read_bytes()[:-5])
    ran = run("log", "ls", "--data-dir", path)
    assert f"running (process {os.getpid()})" in ran.out
    assert "bytes from byte 74 of the active segment on: being written" in ran.out
    ran = run("log", "check", "--data-dir", path)
    assert ran.status == 0, ran.out
    assert "bytes above the synced end may be half written" in ran.out
    assert lock_holder(str(path / ".lock")) == os.getpid()
    store.directory.unlock()
    assert lock_holder(str(path / ".lock")) is None
    ran = run("log", "check", "--data-dir", path)
    assert ran.status == 0
    assert "the next start cuts them off and keeps a copy" in ran.out


def test_ls_says_what_the_last_start_found_and_did(run, tmp_path):
    path = fill_directory(tmp_path / "data", clean=False)
    segment = names(path, "t-1/*.log")[-1]
    with segment.open("ab") as file:
        file.write(b"torn by a cut")
    store = open_store(Disk(), str(path))
    try:
        lines = run("log", "ls", "--data-dir", path).out.splitlines()
    finally:
        store.close()
    said = [line.removeprefix("last start: ") for line in lines if line.startswith("last start: ")]
    assert ", leader epoch 1, after no clean stop, " in said[0]
    assert any("13 unsynced bytes cut off" in line for line in said), said
    (facts,) = [row for row in run("log", "ls", "--json", "--data-dir", path).rows if row["kind"] == "store"]
    assert facts["last_recovery"] == said


def test_dump_shows_every_batch_and_its_records(run, data):
    rows = run("log", "dump", "--records", "--json", "--data-dir", data, "t-1").rows
    batches = [row for row in rows if row["kind"] == "batch"]
    assert [row["base_offset"] for row in batches] == list(range(0, 60, 2))
    assert {(row["crc"], row["codec"], row["producer_id"], row["leader_epoch"]) for row in batches} == {
        ("ok", "none", 7, 0)
    }
    assert [row["base_sequence"] for row in batches] == list(range(0, 60, 2))
    records = [row for row in rows if row["kind"] == "record"]
    assert [row["value"] for row in records[::2]] == [f"v{number}" for number in range(30)]
    text = run("log", "dump", "--data-dir", data, "t-1").out.splitlines()
    assert len(text) == 30
    assert "offsets 0..1  2 records" in text[0]


def test_dump_shows_producers(run, data):
    rows = run("log", "dump", "--producers", "--json", "--data-dir", data, "t-1").rows
    assert [row["kind"] for row in rows] == ["snapshot", "producer"]
    assert rows[0]["offset"] == 60
    assert rows[1]["producer_id"] == 7
    assert [one["last_offset"] for one in rows[1]["batches"]] == [51, 53, 55, 57, 59]


@pytest.mark.leaves("no record batch begins here", "the CRC of a record batch does not match its bytes")
def test_dump_tells_a_wrong_crc_and_where_no_batch_begins(run, data):
    first, second = names(data, "t-0/*.log")[:2]
    flip(first, 100)
    flip(second, 170 + 16)
    rows = run("log", "dump", "--json", "--data-dir", data, "t-0").rows
    assert [row["position"] for row in rows if row.get("crc") == "wrong"] == [0]
    broken = [row for row in rows if row["kind"] == "no-batch"]
    assert [(row["file"], row["position"], row["bytes"]) for row in broken] == [(second.name, 170, 170)]
    assert [row["base_offset"] for row in rows if row["kind"] == "batch"] == [*range(25), *range(26, 100)]


@pytest.mark.parametrize("action", [("ls",), ("dump",), ("check",)])
def test_looking_changes_no_byte(run, tmp_path, action):
    path = fill_directory(tmp_path / "data", clean=False)
    before = content_of(path)
    assert run("log", *action, "--data-dir", path).status == 0
    assert content_of(path) == before


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (
            ("log", "ls", "--data-dir", "/nowhere/at/all"),
            "--data-dir /nowhere/at/all does not exist: name that of `serve`",
        ),
        (("log", "ls", "--data-dir", "/proc"), "is no data directory of edge-broker"),
        (("log", "ls", "--data-dir", "DATA", "nope"), "nope is no topic and no partition"),
        (("log", "dump", "--data-dir", "DATA", "t-2"), "t-2 is no topic and no partition"),
        (("log", "ls"), "--data-dir"),
        (("log",), "ACTION"),
        (
            ("log", "dump", "--records", "--producers", "--data-dir", "DATA"),
            "--producers and --records exclude each other",
        ),
    ],
)
def test_bad_usage_is_one_sentence_and_status_2(run, data, words, sentence):
    ran = run(*(data if word == "DATA" else word for word in words))
    assert ran.status == 2
    assert sentence in ran.err
    assert len(ran.err.splitlines()) == 1


def test_a_disk_to_read_from_refuses_every_change(data):
    disk = ReadOnlyDisk()
    path = str(data / "x")
    file = disk.open(str(data / "store"))
    for change in (
        lambda: disk.create(path),
        lambda: disk.make_directory(path),
        lambda: disk.rename(path, path),
        lambda: disk.remove(path),
        lambda: disk.remove_directory(path),
        lambda: disk.lock(path),
        lambda: file.write(b"x", 0),
        lambda: file.truncate(0),
    ):
        with pytest.raises(OSError, match=r"Read-only|reading alone|Bad file|Invalid arg"):
            change()


@pytest.mark.leaves("Not a directory")
@pytest.mark.parametrize("words", [("log", "ls"), ("log", "dump"), ("log", "check"), ("ledger", "--prove")])
def test_what_the_system_refuses_is_one_sentence_and_status_1(run, data, words):
    shutil.rmtree(data / "t-0")
    (data / "t-0").write_bytes(b"no directory")
    ran = run(*words, "--data-dir", data)
    assert ran.status == 1
    assert "/t-0" in ran.out + ran.err
    assert "at byte 0: Not a directory" in ran.out + ran.err
    assert "Traceback" not in ran.err


def test_a_reader_that_has_seen_enough_ends_the_command_quietly(data):
    command = [sys.executable, "-m", "edge_broker", "log", "dump", "--records", "--json", "--data-dir", str(data)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        child.stdout.close()
        assert child.stderr.read() == b""
        assert child.wait(30) == 141
