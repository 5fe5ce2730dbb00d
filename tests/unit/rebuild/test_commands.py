"""The command `cluster rebuild`: its plan for people and programs, and what it refuses before ZooKeeper is asked."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from edge_broker.cluster.rebuild.disks import Disk, encode
from edge_broker.cluster.rebuild.rebuild import RebuildRefused
from edge_broker.rebuild import session
from edge_broker.storage.metadata.cluster_copy import ClusterCopy, CopiedDeletion
from tests.support.command import Ran, edge_broker_run
from tests.support.rebuild_disks import T, disk, log


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., Ran]:
    return edge_broker_run(capsys)


@pytest.fixture
def files(tmp_path: Path) -> Callable[..., list[str]]:
    """Options that name files of these disks."""

    def write(*disks: Disk) -> list[str]:
        options = []
        for number, each in enumerate(disks):
            path = tmp_path / f"{number}.json"
            path.write_text(json.dumps(encode(each)))
            options += ["--disk", str(path)]
        return options

    return write


DELETED = ClusterCopy(100, (T,), (), (CopiedDeletion("old", "id-old", 60),))


def test_a_dry_run_shows_the_plan_as_a_table(run: Any, files: Any) -> None:
    disks = files(disk(1, log(10), copy=DELETED), disk(2, log(12), copy=DELETED))
    ran = run("cluster", "rebuild", *disks, "--written-off", "3", "--dry-run")
    assert ran.status == 0
    lines = ran.out.splitlines()
    assert lines[0] == "cluster site: 1 topic, 1 partition"
    (row,) = [line for line in lines if line.startswith("t-0")]
    assert row.split()[1:4] == ["2", "2", "12"]
    assert lines[-1] == "0 partitions may have lost records; it can be written"


def test_what_may_be_lost_and_what_is_left_out_is_said(run: Any, files: Any) -> None:
    gone = ClusterCopy(100, (), (), (CopiedDeletion("t", "id-t", 60),))
    ran = run("cluster", "rebuild", *files(disk(1, log(10))), "--written-off", "2", "--written-off", "3", "--dry-run")
    assert ran.status == 0
    assert "from 10 on" in ran.out
    assert ran.out.splitlines()[-1].startswith("1 partition may have lost records")
    ran = run("cluster", "rebuild", *files(disk(1, log(10)), disk(2, copy=gone)), "--dry-run")
    assert "left out: topic t (id-t): it was deleted" in ran.out


def test_a_refused_plan_ends_with_1_and_zookeeper_is_not_asked(run: Any, files: Any) -> None:
    ran = run("cluster", "rebuild", *files(disk(1, log(10))), "--set", "zookeeper.connect=127.0.0.1:1")
    assert ran.status == 1
    assert "refused: broker 2 has replicas of 1 partition; give --disk with its file, or --written-off 2" in ran.out
    assert ran.out.splitlines()[-1].endswith("nothing is written")


def test_a_disk_whose_log_starts_after_its_end_is_named_with_its_file(run: Any, files: Any) -> None:
    words = files(disk(1, log(10)), disk(2, log(10, start=11)), disk(3, log(10)))
    ran = run("cluster", "rebuild", *words, "--dry-run")
    assert ran.status == 2
    assert f"--disk {words[3]} says that the log of t-0 starts at offset 11, after its end 10" in ran.err


def test_programs_read_json(run: Any, files: Any) -> None:
    words = ("cluster", "rebuild", *files(disk(1, log(10)), disk(2, log(10))), "--dry-run", "--json")
    rows = run(*words, "--written-off", "3").rows
    assert [row["kind"] for row in rows] == ["cluster", "partition"]
    assert (rows[1]["leader"], rows[1]["in_sync"], rows[1]["missing"]) == (1, [1, 2], [3])
    assert [row["kind"] for row in run(*words).rows] == ["cluster", "partition", "refusal"]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--disk", "/nowhere", "--dry-run"], "--disk /nowhere cannot be read"),
        (["--dry-run", "--prefer", "t"], "--prefer is 't'; give TOPIC-PARTITION=ID"),
        (["--dry-run", "--prefer", "t-x=1"], "give TOPIC-PARTITION=ID"),
        (["--dry-run", "--keep-topic", "t", "--drop-topic", "t"], "t is kept and dropped"),
        (["--dry-run", "--written-off", "x"], "--written-off"),
        ([], "give --config FILE.toml or --set zookeeper.connect=HOST:PORT, or --dry-run"),
        (["--set", "broker.id=1"], "zookeeper.connect is not set"),
        (["--config", "/nowhere.toml"], "--config /nowhere.toml cannot be read"),
        (["--dry-run", "--config", "/nowhere.toml"], "--config /nowhere.toml cannot be read"),
        (["--set", "zookeeper.connect=pi-1:x"], "'pi-1:x' is no server"),
        (["--dry-run", "--set", "zookeeper.connect=pi-1:x"], "'pi-1:x' is no server"),
        (["--dry-run", "--set", "zookeper.connect=pi-1:2181"], "did you mean 'zookeeper.connect'?"),
        (["--dry-run", "--set", "zookeeper.connect"], "has no '='; write --set key=value"),
        (["--dry-run", "--set", "zookeeper.session.timeout.ms=soon"], "zookeeper.session.timeout.ms"),
    ],
)
def test_bad_usage_is_one_sentence_and_status_2(run: Any, words: list[str], sentence: str) -> None:
    ran = run("cluster", "rebuild", *words)
    assert ran.status == 2
    assert sentence in ran.err
    assert len(ran.err.splitlines()) == 1


def test_a_dry_run_refuses_a_misspelt_key_of_its_configuration(run: Any, files: Any, tmp_path: Path) -> None:
    """The same options are used without --dry-run next; a key that is ignored now would be refused then."""
    path = tmp_path / "broker.toml"
    path.write_text('[zookeeper]\nconect = "127.0.0.1:1"\n')
    disks = files(*(disk(number, log(10)) for number in (1, 2, 3)))
    ran = run("cluster", "rebuild", *disks, "--dry-run", "--config", path)
    assert ran.status == 2
    assert f"unknown configuration key 'zookeeper.conect' in {path}; did you mean 'zookeeper.connect'?" in ran.err
    path.write_text('[zookeeper]\nconnect = "127.0.0.1:1"\n')
    assert run("cluster", "rebuild", *disks, "--dry-run", "--config", path).status == 0
    assert run("cluster", "rebuild", *disks, "--dry-run", "--set", "broker.id=1").status == 0


def test_a_file_of_another_kind_is_named(run: Any, tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text("{}")
    ran = run("cluster", "rebuild", "--disk", path, "--dry-run")
    assert ran.status == 2
    assert f"--disk {path} is no output of `edge-broker cluster disk --json`" in ran.err
    path.write_bytes(b"\xff")
    assert "is not UTF-8 at byte 0" in run("cluster", "rebuild", "--disk", path, "--dry-run").err


class PlayedSession:
    """As KazooSession, for an ensemble that never answers, or refuses everything."""

    def __init__(self, _connect: str, _ms: int, listener: Any, deliver: Any, _credentials: Any) -> None:
        self.closed = False
        PlayedSession.made = self

    made: PlayedSession

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def silent(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(session, "KazooSession", PlayedSession)
    monkeypatch.setattr(session, "ANSWER_S", 0.01)
    yield
    assert PlayedSession.made.closed


@pytest.mark.usefixtures("silent")
def test_an_ensemble_that_does_not_answer_is_named_and_ends_with_2(run: Any, files: Any) -> None:
    disks = files(*(disk(number, log(10)) for number in (1, 2, 3)))
    ran = run("cluster", "rebuild", *disks, "--set", "zookeeper.connect=127.0.0.1:1")
    assert ran.status == 2
    assert "ZooKeeper at 127.0.0.1:1 does not answer" in ran.err
    assert "Traceback" not in ran.err


def test_what_the_ensemble_refuses_ends_with_1(run: Any, files: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise RebuildRefused("brokers 1 of cluster site are registered")

    monkeypatch.setattr(session, "write", refuse)
    disks = files(*(disk(number, log(10)) for number in (1, 2, 3)))
    ran = run("cluster", "rebuild", *disks, "--set", "zookeeper.connect=127.0.0.1:1")
    assert ran.status == 1
    assert ran.out.splitlines()[-1] == "refused: brokers 1 of cluster site are registered"
