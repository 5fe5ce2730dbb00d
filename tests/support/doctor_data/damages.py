"""Damages to a data directory, each with the finding that names it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

from edge_broker.storage.files.atomic_files import encode_state
from edge_broker.storage.log.leader_epochs import KIND
from tests.support.doctor_data.directory import flip, names


def log(data: Path, number: int = 0) -> Path:
    return names(data, "t-0/*.log")[number]


def cut(path: Path, size: int) -> None:
    path.write_bytes(path.read_bytes()[:size])


def bad_epochs(data: Path) -> None:
    (data / "t-0/leader-epoch-checkpoint").write_bytes(encode_state(KIND, 1, ["0 0", "5 7"]))


def other_topic(data: Path) -> None:
    record = json.loads((data / "topics/t.json").read_text())
    record["partitions"] = 3
    (data / "topics/t.json").write_text(json.dumps(record))


def exchange(first: Path, second: Path) -> None:
    content = first.read_bytes()
    first.write_bytes(second.read_bytes())
    second.write_bytes(content)


def remove_segments(data: Path) -> None:
    for segment in names(data, "t-0/*.log"):
        segment.unlink()


ANY = -1  # the position of a finding that names none
DAMAGES: dict[str, tuple[Callable[[Path], object], str, int, str]] = {
    "a flipped bit in a sealed segment": (lambda data: flip(log(data), 400), "t-0/*000.log", 340, "CRC"),
    "a flipped length": (lambda data: flip(log(data), 340 + 8), "t-0/*000.log", 340, "reaches past the end"),
    "a sealed segment cut short": (lambda data: cut(log(data), 4000), "t-0/*000.log", 3910, "reaches past the end"),
    "a sealed segment cut at a batch": (
        lambda data: cut(log(data), 3910),
        "t-0/*024.log",
        0,
        "offsets 23 to 23 are missing",
    ),
    "a flipped bit in the active segment": (lambda data: flip(log(data, 4), 400), "t-0/*096.log", 340, "CRC"),
    "the active segment cut short": (lambda data: cut(log(data, 4), 510), "t-0/*096.log", 510, "680 bytes were synced"),
    "a missing segment": (lambda data: log(data, 1).unlink(), "t-0/*048.log", 0, "offsets 24 to 47 are missing"),
    "no segment": (remove_segments, "t-0", 0, "no segment"),
    "a missing active segment": (lambda data: log(data, 4).unlink(), "t-0", 0, "begins at offset 96 is missing"),
    "segments exchanged": (lambda data: exchange(log(data, 1), log(data, 2)), "t-0/*024.log", 0, "offsets 24 to 47"),
    "an index entry": (lambda data: flip(names(data, "t-0/*.index")[1], 15), "t-0/*024.index", 8, "no batch"),
    "an index torn": (lambda data: cut(names(data, "t-0/*.index")[1], 20), "t-0/*024.index", 16, "no batch"),
    "a time index entry": (
        lambda data: flip(names(data, "t-0/*.timeindex")[0], 7),
        "t-0/*000.timeindex",
        0,
        "no batch",
    ),
    "a snapshot": (lambda data: flip(names(data, "t-1/*.snapshot")[-1], 30), "t-1/*060.snapshot", 0, "torn or damaged"),
    "a snapshot renamed": (
        lambda data: names(data, "t-1/*.snapshot")[-1].rename(data / "t-1" / f"{58:020d}.snapshot"),
        "t-1/*058.snapshot",
        6,
        "speaks of offset 60",
    ),
    "epochs": (bad_epochs, "t-0/leader-epoch-checkpoint", 0, "says epoch 5 of offset"),
    "epochs torn": (
        lambda data: cut(data / "t-0/leader-epoch-checkpoint", 30),
        "t-0/leader-epoch-checkpoint",
        ANY,
        "CRC does not match",
    ),
    "epochs lost": (
        lambda data: (data / "t-0/leader-epoch-checkpoint").unlink(),
        "t-0/leader-epoch-checkpoint",
        0,
        "says no epoch of offset 0",
    ),
    "another topic's directory": (
        lambda data: (data / "t-0/partition.metadata").write_bytes(b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA\n"),
        "t-0/partition.metadata",
        0,
        "put the right directory back",
    ),
    "no topic id": (
        lambda data: (data / "t-0/partition.metadata").unlink(),
        "t-0/partition.metadata",
        0,
        "names topic id",
    ),
    "a partition's directory": (lambda data: shutil.rmtree(data / "t-1"), "t-1", 0, "missing or empty"),
    "a topic file": (other_topic, "topics/t.json", 0, "the CRC does not match"),
    "the store file": (lambda data: flip(data / "store", 35), "store", ANY, "CRC"),
    "the leader epoch": (lambda data: (data / "leader-epoch").unlink(), "leader-epoch", 0, "is missing"),
    "the marks": (lambda data: flip(data / "in-use", 60), "in-use", ANY, "believed to have been in use"),
    "the positions": (
        lambda data: flip(data / "recovery-point-offset-checkpoint", 60),
        "recovery-point-offset-checkpoint",
        ANY,
        "the next start checks every active segment whole",
    ),
    "removals that do not tile": (
        lambda data: (data / "t-0/removed-offsets").write_bytes(
            encode_state("removed-offsets", 1, ["retention 0 10 10 0 0 99", "retention 12 20 8 0 0 99"])
        ),
        "t-0/removed-offsets",
        0,
        "begins at offset 12 where 10 was due",
    ),
    "removals that do not count": (
        lambda data: (data / "t-0/removed-offsets").write_bytes(
            encode_state("removed-offsets", 1, ["retention 0 10 9 0 0 99"])
        ),
        "t-0/removed-offsets",
        0,
        "counts 9 offsets up to 10",
    ),
    "a summary": (
        lambda data: (data / "t-0" / f"{24:020d}.summary").write_bytes(
            (data / "t-0" / f"{48:020d}.summary").read_bytes()
        ),
        "t-0/*024.summary",
        0,
        "says end_offset 72, not 48",
    ),
    "a summary torn": (
        lambda data: cut(data / "t-0" / f"{24:020d}.summary", 60),
        "t-0/*024.summary",
        ANY,
        "CRC does not match",
    ),
    "corrupt ranges torn": (
        lambda data: (data / "t-0" / f"{24:020d}.holes").write_bytes(b"drupelet holes 1 00000000\n26 28 340 680\n"),
        "t-0/*024.holes",
        ANY,
        "CRC does not match",
    ),
}
