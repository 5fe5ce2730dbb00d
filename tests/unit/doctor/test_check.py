"""`edge-broker log check`: each kind of damage is found, with file and byte, and nothing in a sound directory."""

from __future__ import annotations

import os
import uuid
from pathlib import Path

import pytest

from edge_broker.doctor.check import _store
from edge_broker.doctor.directory import DataDirectory
from edge_broker.doctor.findings import Findings
from edge_broker.output import Progress
from edge_broker.storage.files.atomic_files import encode_state
from edge_broker.storage.files.filesystem import Disk, File, ReadOnlyDisk
from edge_broker.storage.maintenance.full_disk_marker import FILE as MARKER
from edge_broker.storage.maintenance.full_disk_marker import FullDiskMarker
from edge_broker.storage.recovery.recovery_checkpoint import FILES, Position, PositionsFiles
from tests.support.doctor_data.damages import ANY, DAMAGES, log
from tests.support.doctor_data.directory import fill_directory, flip, names
from tests.support.storage import NOW, fill, open_store


@pytest.mark.leaves(".")  # each case says which
@pytest.mark.parametrize("damage", DAMAGES, ids=str)
def test_damage_is_found_with_file_and_byte(run, data, damage):
    spoil, pattern, byte, reason = DAMAGES[damage]
    spoil(data)
    ran = run("log", "check", "--json", "--data-dir", data)
    assert ran.status == 1, ran.out
    found = [row for row in ran.rows if row["kind"] == "damage"]
    matching = [row for row in found if Path(row["file"]).match(f"{data}/{pattern}") and reason in row["reason"]]
    assert matching, found
    assert byte in (ANY, matching[0]["byte"])
    assert ran.rows[-1]["damages"] == len(found)


@pytest.mark.parametrize("gone", [0, 24, 48])
def test_a_removal_that_is_not_over_is_no_damage(run, data, gone):
    """The files go in no order: a look, or a kill, between two of them finds whichever are left."""
    (data / "t-0/removed-offsets").write_bytes(encode_state("removed-offsets", 1, ["retention 0 72 72 0 0 99"]))
    for path in names(data, f"t-0/{gone:020d}.*"):
        path.unlink()
    ran = run("log", "check", "--json", "--data-dir", data)
    assert ran.status == 0, ran.out
    assert open_store(Disk(), str(data)).topics["t"].partitions[0].log_start_offset == 72


@pytest.mark.parametrize("clean", [True, False])
def test_sound_directories_are_sound(run, tmp_path, clean):
    path = fill_directory(tmp_path / "data", clean=clean)
    ran = run("log", "check", "--data-dir", path)
    assert (ran.status, ran.out) == (0, f"{path}: sound; 3 partitions, 0.0 MB checked\n")


def test_sound_after_unclean_starts_with_more_epochs(run, tmp_path):
    path = fill_directory(tmp_path / "data", clean=False)
    for _ in range(3):
        store = open_store(Disk(), str(path))
        fill(store.topics["t"].partitions[0], 30)
        store.checkpoint()
        store.directory.unlock()
    ran = run("log", "check", "--json", "--data-dir", path)
    assert ran.status == 0, ran.out
    rows = run("log", "ls", "--json", "--data-dir", path, "t-0").rows
    assert [row["leader_epoch"] for row in rows if row["kind"] == "partition"] == [3]


def test_a_known_corrupt_range_is_no_damage_and_its_batches_are_not_looked_at(run, data):
    flip(log(data, 1), 400)
    (data / "t-0" / f"{24:020d}.holes").write_bytes(encode_state("holes", 1, ["26 28 340 680"]))
    ran = run("log", "check", "--data-dir", data)
    assert ran.status == 0, ran.out
    dumped = run("log", "dump", "--json", "--data-dir", data, "t-0").rows
    assert [row for row in dumped if row["kind"] == "corrupt_range"] == [
        {
            "partition": "t-0",
            "kind": "corrupt_range",
            "file": f"{24:020d}.log",
            "position": 340,
            "first_offset": 26,
            "end_offset": 28,
            "end_position": 680,
        }
    ]
    assert not [row for row in dumped if row.get("base_offset") in (26, 27)]


def test_stray_names_are_noted_and_no_damage(run, data):
    (data / "lost+found").mkdir()
    (data / "notes.txt").write_text("hello")
    (data / "t-0" / "notes.txt").write_text("hello")
    (data / "gone-0").mkdir()
    ran = run("log", "check", "--json", "--data-dir", data)
    assert ran.status == 0
    noted = {Path(row["file"]).relative_to(data).as_posix() for row in ran.rows if row["kind"] == "note"}
    assert noted == {"notes.txt", "t-0/notes.txt", "gone-0"}


def test_the_marker_of_a_full_disk_is_the_brokers_own_file(run, data):
    FullDiskMarker(Disk(), str(data), 60_000).update(NOW, is_full=True)
    ran = run("log", "check", "--json", "--data-dir", data)
    assert (ran.status, (data / MARKER).exists()) == (0, True)
    assert [row for row in ran.rows if row["kind"] == "note"] == []


@pytest.mark.leaves("the CRC of a record batch does not match its bytes")
def test_only_the_named_partition_is_checked(run, data):
    flip(log(data), 400)
    assert run("log", "check", "--data-dir", data, "t-1").status == 0
    assert run("log", "check", "--data-dir", data, "t-0").status == 1
    assert run("log", "check", "--data-dir", data, "t").status == 1


def test_progress_is_told_every_two_seconds_and_not_before():
    said: list[str] = []
    progress = Progress("check", 10_000_000, said.append)
    progress.add(1_000_000, "t-0")
    assert not said
    progress._next_ms -= 2000
    progress.add(1_000_000, "t-0")
    progress.add(1_000_000, "t-0")
    assert said == ["check: 2 of 10 MB (20 %), t-0\n"]


@pytest.mark.leaves("the CRC does not match the content")
def test_every_file_of_state_is_checked_whatever_it_says(run, data):
    for place in ("newer-file", "t-0/newer-file"):
        (data / place).write_bytes(encode_state("newer-file", 1, ["1 2 3"]))
    assert run("log", "check", "--data-dir", data).out.startswith(f"{data}: sound;")
    for place in ("newer-file", "t-0/newer-file", "age"):
        flip(data / place, -2)
    rows = run("log", "check", "--json", "--data-dir", data).rows
    assert {row["file"] for row in rows[:-1]} == {f"{data}/newer-file", f"{data}/t-0/newer-file", f"{data}/age"}


class BeingWritten(ReadOnlyDisk):
    """Positions files that a broker overwrites: the first looks at them find them empty, or half written."""

    def __init__(self, bytes_there: int, looks: int) -> None:
        super().__init__()
        self.bytes_there = bytes_there
        self.looks = looks

    def open(self, path: str) -> File:
        if path.endswith(FILES) and self.looks > 0:
            self.looks -= 1
            torn = Path(path).with_name("torn")
            torn.write_bytes(Path(path).read_bytes()[: self.bytes_there])
            path = str(torn)
        return super().open(path)


@pytest.mark.leaves("format version")
@pytest.mark.parametrize("bytes_there", [0, 30, 200])
def test_positions_that_are_being_written_are_looked_at_again(data, bytes_there):
    fs = BeingWritten(bytes_there, looks=5)
    findings = _store_findings(DataDirectory(fs, str(data), holder=1))
    assert not findings
    assert fs.looks == 0


def test_positions_that_stay_damaged_are_damaged_and_the_looking_ends(data):
    (finding,) = _store_findings(DataDirectory(BeingWritten(0, looks=1 << 30), str(data), holder=1))
    assert finding.damage
    assert "no positions file" in finding.reason


def _store_findings(found: DataDirectory) -> Findings:
    findings = Findings()
    _store(found, findings)
    return findings


def test_no_positions_file_is_ever_there_without_its_content(tmp_path):
    """Whoever reads beside a running broker finds nothing or all of a file, from the first one on."""

    class Watched(Disk):
        def create(self, path: str) -> File:
            file = super().create(path)
            assert not [name for name in os.listdir(tmp_path) if name in FILES and not (tmp_path / name).stat().st_size]
            return file

    files = PositionsFiles(Watched(), str(tmp_path))
    for offset in (1, 2):
        files.write({(uuid.UUID(int=7), 0): Position(0, 0, 0, offset)})
    assert sorted(os.listdir(tmp_path)) == sorted(FILES)
