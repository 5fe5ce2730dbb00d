"""Files that match a pattern, files that are not there, and lines that belong together.

Invariants:
- every matching file is read once, also one that comes later; rotated ones are left to the file they come from;
- what is missing is said, and the gateway goes on;
- a record of several lines moves the position only as a whole.
"""

from __future__ import annotations

import asyncio
import os
import platform
from collections.abc import Callable
from pathlib import Path

import pytest

from gateway import state
from gateway.app import _file_source
from gateway.metrics import Metrics
from gateway.records.records import Record
from gateway.sources.file_reading.line_joiner import Joiner
from gateway.sources.file_reading.places import FamilyState, Line, Place, TooLong, UnreadRest
from gateway.sources.files import file_pattern, files, matches
from gateway.sources.files.files import FileSource, state_path
from gateway.sources.files.matches import find_matches
from tests.support.gateway.pattern import pattern_source, values
from tests.support.gateway.publisher import FakePublisher, config, saved_position
from tests.support.tasks import running_task
from tests.support.waiting import until


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_pattern, "SCAN_S", 0.02)


async def test_all_that_matches_is_followed_also_what_comes_later(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / "a.log").write_text("a\n")
    (logs / "b.txt").write_text("no\n")
    publisher = FakePublisher()
    source = pattern_source(tmp_path, publisher)
    async with running_task(source.run()):
        await until(lambda: values(publisher) == {b"a"})
        (logs / "c.log").write_text("c\n")
        await until(lambda: values(publisher) == {b"a", b"c"})
        assert (source.problem(), source.note()) == (None, None)
    headers = {record.value: dict(record.headers) for record, _ in publisher.records}
    assert headers[b"c"]["file"] == str(logs / "c.log").encode()
    assert headers[b"c"]["host"] == platform.node().encode()


async def test_what_is_not_there_is_said_and_passes(tmp_path: Path) -> None:
    publisher = FakePublisher()
    source = pattern_source(tmp_path, publisher)
    async with running_task(source.run()):
        await until(lambda: f"{tmp_path}/logs, where *.log is looked for, is not there" in str(source.problem()))
        (tmp_path / "logs").mkdir()
        await until(lambda: source.problem() is None)
        assert source.note() == f"no file matches {tmp_path}/logs/*.log, rotated ones aside"
        (tmp_path / "logs" / "a.log").touch()
        await until(lambda: source.note() is None)


def test_rotated_files_are_left_to_the_file_they_come_from(tmp_path: Path) -> None:
    for name in ("app", "app.1", "app.2.gz", "app-20261124", "app.old", "app-worker", "app.log.1", "app~"):
        (tmp_path / name).touch()
    (tmp_path / "app-directory").mkdir()
    assert [path.name for path in find_matches(tmp_path / "app*").files] == ["app", "app-worker", "app.log.1"]


def test_a_numbered_file_is_followed_unless_it_comes_from_another(tmp_path: Path) -> None:
    for name in ("worker-1.log", "worker-12.log", "worker-20261124.log", "app.log", "app-1.log", "app.2.log"):
        (tmp_path / name).touch()
    names = ["app.log", "worker-1.log", "worker-12.log", "worker-20261124.log"]
    assert [path.name for path in find_matches(tmp_path / "*.log").files] == names


async def test_a_file_that_is_gone_is_forgotten_once_all_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_pattern, "GONE_S", 0.0)
    (tmp_path / "logs").mkdir()
    log = tmp_path / "logs" / "a.log"
    log.write_text("a\n")
    publisher = FakePublisher()
    source = pattern_source(tmp_path, publisher)
    async with running_task(source.run()):
        await until(lambda: values(publisher) == {b"a"})
        log.unlink()
        await until(lambda: source.note() is None)
        publisher.records[0][1]()
        await until(lambda: source.note() is not None)
    assert not state_path(tmp_path / "state", log).exists()
    assert publisher.losses == []


async def test_a_file_that_went_while_we_were_away_is_a_loss(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_pattern, "GONE_S", 0.0)
    (tmp_path / "logs").mkdir()
    log = tmp_path / "logs" / "a.log"
    log.write_text("a\nb\n")
    publisher = FakePublisher()
    async with running_task(pattern_source(tmp_path, publisher).run()):
        await until(lambda: len(publisher.records) == 2)
        publisher.records[0][1]()
        await until(lambda: saved_position(state_path(tmp_path / "state", log)) == 2)
    log.unlink()
    source = pattern_source(tmp_path, publisher)
    async with running_task(source.run()):
        await until(lambda: len(publisher.losses) == 1)
        loss, on_acked = publisher.losses[0]
        assert (loss.cause, loss.records) == ("source_offset_out_of_range", None)
        assert state_path(tmp_path / "state", log).exists()
        on_acked()
        await until(lambda: source.note() is not None)
    assert not state_path(tmp_path / "state", log).exists()


class ReadyPublisher(FakePublisher):
    """A publisher that acknowledges at once."""

    def offer(self, record: Record, on_acked: Callable[[], None]) -> None:
        super().offer(record, on_acked)
        on_acked()


def many_files(tmp_path: Path, count: int) -> Path:
    logs = tmp_path / "logs"
    logs.mkdir()
    for number in range(count):
        (logs / f"n{number}.log").write_text(f"{number}\n")
        os.utime(logs / f"n{number}.log", (1_000 + number, 1_000 + number))
    return logs


async def test_files_that_wait_are_a_problem_and_those_changed_last_come_first(tmp_path: Path) -> None:
    many_files(tmp_path, 5)
    publisher = FakePublisher()
    source = pattern_source(tmp_path, publisher, more="files_max = 2\nrotate_wait_ms = 50\n")
    async with running_task(source.run()):
        await until(lambda: "3 files wait while 2 are read (files_max): raise it" in str(source.problem()))
        await until(lambda: values(publisher) == {b"4", b"3"})


async def test_finished_files_make_room_and_are_read_on_when_they_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "QUIET_S", 0.02)
    logs = many_files(tmp_path, 7)
    publisher = ReadyPublisher()
    source = pattern_source(tmp_path, publisher, more="files_max = 2\nrotate_wait_ms = 50\n")
    async with running_task(source.run()):
        await until(lambda: len(values(publisher)) == 7 and source.problem() is None)
        for number in range(7):
            with (logs / f"n{number}.log").open("a") as file:
                file.write(f"more {number}\n")
        (logs / "n3.log").rename(logs / "n3.log.1")
        (logs / "n3.log").write_text("next 3\n")
        await until(lambda: len(values(publisher)) == 15)
    again = ReadyPublisher()
    source = pattern_source(tmp_path, again, more="files_max = 2\nrotate_wait_ms = 50\n")
    (logs / "new.log").write_text("new\n")
    async with running_task(source.run()):
        await until(lambda: values(again) == {b"new"})
        await until(lambda: source.problem() is None)
    assert (len(publisher.records), len(again.records)) == (15, 1)
    assert publisher.losses == again.losses == []


async def test_a_closed_file_that_is_renamed_is_the_same_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "QUIET_S", 0.02)
    logs = many_files(tmp_path, 3)
    publisher = ReadyPublisher()
    source = pattern_source(tmp_path, publisher, more="files_max = 1\n")
    async with running_task(source.run()):
        await until(lambda: len(values(publisher)) == 3 and source.problem() is None)
        for number in range(3):
            (logs / f"n{number}.log").rename(logs / f"other{number}.log")
            with (logs / f"other{number}.log").open("a") as file:
                file.write(f"more {number}\n")
        await until(lambda: len(values(publisher)) == 6)
    assert len(publisher.records) == 6


async def test_more_matches_than_can_be_looked_at_are_a_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(matches, "CANDIDATES_MAX", 3)
    many_files(tmp_path, 5)
    source = pattern_source(tmp_path, FakePublisher())
    async with running_task(source.run()):
        await until(lambda: "the rest is not read; narrow it" in str(source.problem()))


async def test_a_file_whose_name_has_a_star_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "a*.log").touch()
    (file,) = config(tmp_path, '[[files]]\npath = "a*.log"\n').files
    assert _file_source(file) is FileSource


async def test_a_file_that_is_not_there_is_said_and_its_directory_is_a_problem(tmp_path: Path) -> None:
    whole = config(tmp_path, '[[files]]\npath = "no/x.log"\npoll_interval_ms = 10\n')
    source = FileSource(whole.files[0], FakePublisher().as_publisher(), whole.state_dir, Metrics())
    async with running_task(source.run()):
        await until(lambda: f"{tmp_path}/no, where x.log is looked for, is not there" in str(source.problem()))
        (tmp_path / "no").mkdir()
        await until(lambda: source.problem() is None)
        await until(lambda: source.note() == f"{tmp_path}/no/x.log is not there yet")
        (tmp_path / "no/x.log").touch()
        await until(lambda: source.note() is None)


async def test_a_place_saved_by_its_relative_path_is_taken_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    log = tmp_path / "app.log"
    log.write_text("read\nnew\n")
    whole = config(tmp_path, '[[files]]\npath = "app.log"\npoll_interval_ms = 10\nsave_interval_ms = 0\n')
    place = {"inode": log.stat().st_ino, "position": 5, "head_bytes": 0, "head_crc32": 0, "modified_ns": 0}
    state.save(state_path(whole.state_dir, Path("app.log")), {"path": "app.log", "place": place})
    publisher = FakePublisher()
    async with running_task(FileSource(whole.files[0], publisher.as_publisher(), whole.state_dir, Metrics()).run()):
        await until(lambda: values(publisher) == {b"new"})


PLACE = Place(1, 0, 0, 0, 0)


def line(text: bytes, position: int = 0) -> Line:
    return Line(text, 1, position, FamilyState(Place(1, position + len(text) + 1, 0, 0, 0)))


def test_lines_that_match_belong_to_the_one_before() -> None:
    joiner = Joiner(r"^\s", 100)
    assert joiner.join([line(b"Error", 0), line(b"  at x", 6), line(b"  at y", 13)]) == []
    (joined, alone) = joiner.join([line(b"next", 20), line(b"last", 25)])
    assert isinstance(joined, Line)
    assert (joined.text, joined.position, joined.after.place.position) == (b"Error\n  at x\n  at y", 0, 20)
    assert alone == line(b"next", 20)
    assert joiner.holds
    assert joiner.flush() == [line(b"last", 25)]
    assert not joiner.holds


def test_a_joined_record_is_bounded_and_never_crosses_what_is_lost() -> None:
    joiner = Joiner(r"^\s", 8)
    assert joiner.join([line(b"Error"), line(b" at")]) == [line(b"Error")]  # 9 bytes would be too many
    gone = UnreadRest(PLACE, None, "gone")
    assert joiner.join([gone]) == [line(b" at"), gone]
    too_long = TooLong(b"x", 99, 1, 0, FamilyState(PLACE))
    assert joiner.join([line(b"a"), too_long, line(b" b")]) == [line(b"a"), too_long]


def test_without_a_pattern_nothing_is_held() -> None:
    joiner = Joiner(None, 100)
    assert joiner.join([line(b"a"), line(b" b")]) == [line(b"a"), line(b" b")]
    assert not joiner.holds


async def test_a_record_of_several_lines_is_sent_once_the_file_is_quiet(tmp_path: Path) -> None:
    (tmp_path / "app.log").write_text("Error\n  at x\n")
    text = '[[files]]\npath = "app.log"\npoll_interval_ms = 10\nsave_interval_ms = 0\ncontinuation = "^ "\n'
    whole = config(tmp_path, text)
    publisher = FakePublisher()
    source = FileSource(whole.files[0], publisher.as_publisher(), whole.state_dir, Metrics())
    async with running_task(source.run()):
        await until(lambda: values(publisher) == {b"Error\n  at x"})
        assert saved_position(state_path(whole.state_dir, tmp_path / "app.log")) == 0
        publisher.records[0][1]()
        await until(lambda: saved_position(state_path(whole.state_dir, tmp_path / "app.log")) == 13)


class FullPublisher(FakePublisher):
    """A publisher that has no room until the test makes some."""

    def __init__(self) -> None:
        super().__init__()
        self.full = True
        self.has_room = asyncio.Event()

    async def room(self) -> None:
        await self.has_room.wait()


async def test_files_that_rotate_while_the_broker_is_away_are_read_though_they_are_deleted(tmp_path: Path) -> None:
    log = tmp_path / "app.log"
    log.write_text("0\n")
    (file,) = config(tmp_path, '[[files]]\npath = "app.log"\npoll_interval_ms = 10\n').files
    publisher = FullPublisher()
    source = FileSource(file, publisher.as_publisher(), tmp_path / "state", Metrics())
    async with running_task(source.run()):
        await until(lambda: log.stat().st_ino in source.inodes)
        for number in range(1, 8):
            log.rename(tmp_path / "app.log.1")
            log.write_text(f"{number}\n")
            await until(lambda: log.stat().st_ino in source.inodes)
        publisher.full = False
        publisher.has_room.set()
        await until(lambda: len(publisher.records) == 8)
    assert [record.value for record, _ in publisher.records] == [b"%d" % number for number in range(8)]
    assert publisher.losses == []


async def test_the_states_of_an_upgrade_name_all_files_and_the_place_is_as_before(tmp_path: Path) -> None:
    log = tmp_path / "app.log"
    (tmp_path / "app.log.1").write_text("old\n")
    log.write_text("1\n")
    whole = config(tmp_path, '[[files]]\npath = "app.log"\npoll_interval_ms = 10\nsave_interval_ms = 0\n')
    publisher = FakePublisher()
    async with running_task(FileSource(whole.files[0], publisher.as_publisher(), whole.state_dir, Metrics()).run()):
        await until(lambda: len(publisher.records) == 1)
        publisher.records[0][1]()
        await until(lambda: saved_position(state_path(whole.state_dir, log)) == 2)
    saved = state.load(state_path(whole.state_dir, log))
    assert saved is not None
    assert set(saved["place"]) == {"inode", "position", "head_bytes", "head_crc32", "modified_ns"}
    assert [older["inode"] for older in saved["older"]] == [(tmp_path / "app.log.1").stat().st_ino]


async def test_a_poll_interval_longer_than_the_wait_after_a_rotation_waits_once(tmp_path: Path) -> None:
    log, late = tmp_path / "app.log", tmp_path / "app.log.1"
    log.write_text("one\npar")
    (file,) = config(tmp_path, '[[files]]\npath = "app.log"\npoll_interval_ms = 1000\nrotate_wait_ms = 900\n').files
    publisher = FakePublisher()
    source = FileSource(file, publisher.as_publisher(), tmp_path / "state", Metrics())
    async with running_task(source.run()):
        await until(lambda: len(publisher.records) == 1)
        log.rename(late)
        log.write_text("two\n")
        await until(lambda: log.stat().st_ino in source.inodes)
        with late.open("a") as writer:
            writer.write("tial\n")
        await until(lambda: len(publisher.records) == 3)
    assert [record.value for record, _ in publisher.records] == [b"one", b"partial", b"two"]
