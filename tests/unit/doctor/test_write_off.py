"""`cluster write-off`: a stopped board forgets its kept states, and the ledger has what other boards may lack."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from edge_broker.cluster.rebuild.disks import Disk, DiskEpoch, DiskLog, encode
from edge_broker.doctor.directory import DataDirectory
from edge_broker.doctor.disk import describe
from edge_broker.storage.files.filesystem import Disk as FileSystemDisk
from edge_broker.storage.files.filesystem import ReadOnlyDisk
from edge_broker.storage.metadata.broker_id import write_broker_id
from edge_broker.storage.metadata.cluster_copy import ClusterCopy, CopiedTopic, write_cluster_copy
from edge_broker.storage.metadata.kept_states import FILE, KeptState, LogId, read_kept_states, write_kept_states
from edge_broker.storage.metadata.topic_record import id_text
from edge_broker.testing.site import make_topic
from tests.support.command import Ran, edge_broker_run
from tests.support.doctor_data.cluster import EPOCH, lead, opened
from tests.support.doctor_data.directory import fill_directory, tree_of
from tests.support.doctor_data.registrations import CLUSTER

NAMED, UNNAMED = KeptState("s9", 9, named=True), KeptState("t4", 4, named=False)


class Board:
    """Board 2, stopped: topic a has offsets 0 and 1 of epoch 3 and 2 of epoch 9, topic b one record of epoch 3."""

    def __init__(self, path: Path) -> None:
        self.path = path
        store = opened(path)
        store.directory.register(EPOCH, CLUSTER)
        for topic in ("a", "b"):
            make_topic(store, topic)
        lead(store, 3, b"1", b"2", topic="a")
        lead(store, 9, b"3", topic="a")
        lead(store, 3, b"1", topic="b")
        self.ids = {topic: id_text(store.topics[topic].topic_id) for topic in ("a", "b")}
        write_broker_id(FileSystemDisk(), str(path), 2)
        store.close()
        self.keep({"a": NAMED, "b": UNNAMED})

    def keep(self, states: dict[str, KeptState]) -> None:
        kept = {LogId(self.ids[topic], 0): state for topic, state in states.items()}
        write_kept_states(FileSystemDisk(), str(self.path), kept, EPOCH)

    @property
    def kept(self) -> dict[LogId, KeptState]:
        return read_kept_states(FileSystemDisk(), str(self.path), (EPOCH,))

    def described(self) -> Disk:
        return describe(DataDirectory(ReadOnlyDisk(), str(self.path), None), None)


@pytest.fixture
def board(tmp_path: Path) -> Board:
    return Board(tmp_path / "data")


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], board: Board) -> Callable[..., Ran]:
    command = edge_broker_run(capsys)
    return lambda *words: command("cluster", "write-off", "--data-dir", board.path, *words)


@pytest.fixture
def ledger(capsys: pytest.CaptureFixture[str], board: Board) -> Callable[[], list[tuple[Any, ...]]]:
    command = edge_broker_run(capsys)
    fields = ("topic", "cause", "first_offset", "last_offset", "leader_epoch", "node")

    def read() -> list[tuple[Any, ...]]:
        rows = command("ledger", "--data-dir", board.path, "--json").rows
        return [tuple(row[field] for field in fields) for row in rows]

    return read


ALL_LOST = [("a", "unclean_election", 0, 1, 3, "2"), ("a", "unclean_election", 2, 2, 9, "2")]


def test_the_ledger_has_by_epoch_what_may_be_lost_and_the_file_is_gone(board: Board, run: Any, ledger: Any) -> None:
    ran = run()
    assert ran.status == 0, ran.err
    lines = ran.out.splitlines()
    assert [line.split() for line in lines if line.startswith("a-0")] == [["a-0", "0", "3", "0", "to", "2"]]
    assert next(line for line in lines if line.startswith("b-0")).endswith(
        "no acknowledged record depends on this disk"
    )
    assert "1 partition may lose records, which are in the ledger" in lines
    assert lines[-1].endswith("written off; the board acts by ZooKeeper's states from its next start on")
    assert not (board.path / FILE).exists()
    assert ledger() == ALL_LOST


def test_a_dry_run_changes_nothing(board: Board, run: Any, ledger: Any) -> None:
    before = {path: path.read_bytes() for path in board.path.rglob("*") if path.is_file()}
    ran = run("--dry-run")
    assert ran.status == 0
    assert "0 to 2" in ran.out
    assert ran.out.splitlines()[-1].endswith("nothing was changed")
    assert {path: path.read_bytes() for path in board.path.rglob("*") if path.is_file()} == before
    assert ledger() == []


def test_after_a_kill_between_ledger_and_file_the_same_run_writes_the_same_losses(
    board: Board, run: Any, ledger: Any
) -> None:
    """The losses have the same ids: a reader has each once."""
    run()
    board.keep({"a": NAMED})
    assert run().status == 0
    assert ledger() == ALL_LOST


def other(log: DiskLog | None) -> Disk:
    return Disk(3, "disk of 3", CLUSTER, 20, "stopped cleanly", 0, -1, None, (), () if log is None else (log,))


@pytest.mark.parametrize(
    ("epochs", "end", "lost"),
    [
        pytest.param((DiskEpoch(3, 0),), 1, [("a", "unclean_election", 1, 1, 3, "2"), ALL_LOST[1]], id="shorter"),
        pytest.param((DiskEpoch(3, 0), DiskEpoch(11, 2)), 5, [ALL_LOST[1]], id="went on by another epoch"),
        pytest.param((DiskEpoch(3, 0), DiskEpoch(9, 2)), 7, [], id="has all of it"),
    ],
)
def test_what_a_board_that_goes_on_has_is_not_lost(
    board: Board, run: Any, ledger: Any, tmp_path: Path, epochs: tuple[DiskEpoch, ...], end: int, lost: list[Any]
) -> None:
    file = tmp_path / "3.json"
    file.write_text(json.dumps(encode(other(DiskLog("a", board.ids["a"], 0, 0, end, epochs)))))
    ran = run("--disk", file, "--json")
    assert ran.status == 0, ran.err
    assert ran.rows[-1] == {"kind": "summary", "partitions": 2, "may_lose": int(bool(lost)), "done": True}
    assert ledger() == lost


@pytest.mark.parametrize("log", [None, DiskLog("a", "ID", 0, 0, 0, problem="no segment")], ids=["none", "unreadable"])
def test_a_board_that_has_no_readable_log_proves_nothing(
    board: Board, run: Any, ledger: Any, tmp_path: Path, log: DiskLog | None
) -> None:
    file = tmp_path / "3.json"
    file.write_text(json.dumps(encode(other(log and log._replace(topic_id=board.ids["a"])))))
    assert run("--disk", file).status == 0
    assert ledger() == ALL_LOST


def test_one_partition_alone(board: Board, run: Any, ledger: Any) -> None:
    board.keep({"a": NAMED, "b": NAMED})
    assert run("--partition", "b-0").status == 0
    assert board.kept == {LogId(board.ids["a"], 0): NAMED}
    assert ledger() == [("b", "unclean_election", 0, 0, 3, "2")]


def test_a_damaged_file_counts_as_if_each_state_had_named_the_board(board: Board, run: Any, ledger: Any) -> None:
    (board.path / FILE).write_bytes(b"damaged")
    refused = run("--partition", "a-0")
    assert refused.status == 2
    assert "leave out --partition" in refused.err
    assert run().status == 0
    assert not (board.path / FILE).exists()
    assert [row for row in ledger() if row[0] in ("a", "b")] == [*ALL_LOST, ("b", "unclean_election", 0, 0, 3, "2")]


def test_a_running_broker_is_left_alone(board: Board, run: Any) -> None:
    store = opened(board.path)
    for words in ((), ("--dry-run",)):
        ran = run(*words)
        assert ran.status == 2
        assert "runs on this data directory; stop it first" in ran.err
    store.close()
    assert board.kept


@pytest.mark.parametrize("is_gone", [True, False], ids=["no file", "of before an older release"])
def test_a_board_without_kept_states_has_nothing_to_write_off(board: Board, run: Any, is_gone: bool) -> None:
    if is_gone:
        (board.path / FILE).unlink()
    else:
        store = opened(board.path)
        store.directory.register(EPOCH + 1, CLUSTER)
        store.close()
    ran = run()
    assert ran.status == 1
    assert "acts by ZooKeeper's states already" in ran.out


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("--partition", "c-0"), "--partition is c-0, of which no state is kept; --dry-run shows them all"),
        (("--partition", "a"), "--partition is 'a'; give TOPIC-PARTITION, as readings-0"),
        (("--disk", "missing.json"), "--disk missing.json cannot be read"),
    ],
)
def test_what_cannot_be_meant_is_refused(board: Board, run: Any, words: tuple[str, ...], text: str) -> None:
    ran = run(*words)
    assert ran.status == 2
    assert text in ran.err
    assert len(board.kept) == 2


def test_its_own_description_is_refused(board: Board, run: Any, tmp_path: Path) -> None:
    (tmp_path / "2.json").write_text(json.dumps(encode(board.described())))
    ran = run("--disk", tmp_path / "2.json")
    assert ran.status == 2
    assert "--disk describes broker 2, which is to be written off" in ran.err


GONE = "g" * 22


@pytest.mark.parametrize(("state", "lost"), [(NAMED, "unknown"), (UNNAMED, "nothing")], ids=["named", "unnamed"])
@pytest.mark.parametrize("is_in_copy", [True, False], ids=["named by the copy", "without a name"])
def test_a_kept_state_without_a_log_has_a_row(
    board: Board, run: Any, ledger: Any, state: KeptState, lost: str, is_in_copy: bool
) -> None:
    """Its topic's files are gone: nothing says which offsets there were."""
    kept = {LogId(GONE, 3): state, LogId(board.ids["b"], 0): UNNAMED}
    write_kept_states(FileSystemDisk(), str(board.path), kept, EPOCH)
    copied = (CopiedTopic("gone", GONE, 5, ((2,),), {}),) if is_in_copy else ()
    write_cluster_copy(FileSystemDisk(), str(board.path), ClusterCopy(9, copied))
    name = "gone-3" if is_in_copy else f"{GONE}-3"
    ran = run("--dry-run")
    assert ran.status == 0, ran.err
    (row,) = [line for line in ran.out.splitlines() if line.startswith(name)]
    assert row.split()[1:4] == ["-", "-", lost]
    assert ("this disk has no log of it; acknowledged records may be lost" in row) is state.named
    assert ("no acknowledged record depends on this disk" in row) is not state.named
    rows = run("--dry-run", "--json").rows
    assert {row["topic_id"] for row in rows if row["kind"] == "partition"} == {GONE, board.ids["b"]}
    assert rows[-1]["partitions"] == 2
    assert run("--partition", name).status == 0
    assert board.kept == {LogId(board.ids["b"], 0): UNNAMED}
    assert ledger() == []


def test_a_board_that_stands_alone_has_nothing_to_write_off(tmp_path: Path, run: Any, capsys: Any) -> None:
    path = fill_directory(tmp_path / "alone")
    ran = edge_broker_run(capsys)("cluster", "write-off", "--data-dir", path)
    assert ran.status == 1
    assert f"{path}: no file `registrations` is in it, so it belongs to no cluster" in ran.out


@pytest.mark.parametrize(
    ("name", "content"),
    [("store", None), ("store", b"{}"), ("topics", None), ("age", b"5 years"), ("node-18", None), (None, None)],
)
@pytest.mark.parametrize(
    "words", [("cluster", "write-off"), ("cluster", "disk"), ("log", "check"), ("log", "repair")], ids=" ".join
)
def test_a_directory_of_another_tool_is_no_data_directory(
    tmp_path: Path, capsys: Any, name: str | None, content: bytes | None, words: tuple[str, ...]
) -> None:
    """Others have files and directories of the same names, as /etc has."""
    path = tmp_path / "etc"
    path.mkdir()
    if name is not None and content is None:
        (path / name).mkdir()
    elif name is not None:
        (path / name).write_bytes(content or b"")
    before = tree_of(path)
    ran = edge_broker_run(capsys)(*words, "--data-dir", path)
    assert ran.status == 2
    assert f"--data-dir {path} is no data directory of edge-broker: no file `store` of a broker is in it" in ran.err
    assert tree_of(path) == before
