"""Which files are followed, judged by what exists beside them: rotated names, second names, recursion, other kinds.

Invariants:
- a file is left out only for a reason that `check` and the log name;
- no file is read twice because it has, or gets, a second name.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from gateway import cli, notices
from gateway.sources.file_reading.rotation import source_of
from gateway.sources.files import file_pattern
from gateway.sources.files.file_pattern import PatternSource
from gateway.sources.files.files import state_path
from gateway.sources.files.matches import find_matches, is_match
from tests.support.gateway.pattern import pattern_source, values
from tests.support.gateway.publisher import FakePublisher, config, saved_position
from tests.support.tasks import running_task
from tests.support.waiting import until


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_pattern, "SCAN_S", 0.02)


def names_followed(pattern: Path) -> list[str]:
    return sorted(path.name for path in find_matches(pattern).files)


@pytest.mark.parametrize(
    ("name", "names", "source"),
    [
        ("app.log.1", {"app.log"}, "app.log"),
        ("app.log.1", set(), None),
        ("192.168.1.17.log", {"10.0.0.5.log"}, None),
        ("pi-2024.log", {"pi.log"}, "pi.log"),
        ("app-2026-11-28.log", {"app.log"}, "app.log"),
        ("app-2026-11-28T10-00-00.000.log", {"app.log"}, "app.log"),
        ("access_20261128_1000.log", {"access.log"}, "access.log"),
        ("app.log-20261128.gz", {"app.log"}, "app.log"),
        ("app-20261128.log.1", {"app.log", "app-20261128.log"}, "app.log"),
        ("app.1.log", {"app.log"}, "app.log"),
        ("syslog.2.gz", {"syslog"}, "syslog"),
        ("app.log.bak", {"app.log"}, "app.log"),
        ("app.log~", {"app.log"}, "app.log"),
        ("app-worker.log", {"app.log"}, None),
        ("sensor_2", {"sensor"}, None),
    ],
)
def test_a_name_is_a_rotated_one_only_where_its_source_exists(name: str, names: set[str], source: str | None) -> None:
    assert source_of(name, names) == source


def test_addresses_and_years_in_names_are_no_rotation(tmp_path: Path) -> None:
    names = ["10.0.0.5.log", "192.168.1.17.log", "pi-2024.log", "worker-20261124.log"]
    for name in names:
        (tmp_path / name).touch()
    assert names_followed(tmp_path / "*.log") == names


@pytest.mark.parametrize("name", ["data.old", "notes~", "device-20261128", "export.1", "2026-11-28.log"])
def test_a_name_that_ends_like_a_rotated_one_stands_alone_without_its_source(tmp_path: Path, name: str) -> None:
    (tmp_path / name).touch()
    assert names_followed(tmp_path / "*") == [name]


def test_two_stars_look_through_all_directories(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    for name in ("x.log", "a/y.log", "a/b/z.log", "a/b/z.txt"):
        (tmp_path / name).touch()
    assert names_followed(tmp_path / "**" / "*.log") == ["x.log", "y.log", "z.log"]


@pytest.mark.parametrize(
    ("path", "pattern", "matches"),
    [
        ("/a/x.log", "/a/**/*.log", True),
        ("/a/b/c/x.log", "/a/**/*.log", True),
        ("/b/x.log", "/a/**/*.log", False),
        ("/a/b/x.log", "/a/*.log", False),
        ("/a/b/c", "/a/**", True),
    ],
)
def test_a_path_of_an_earlier_run_is_known_by_its_pattern(path: str, pattern: str, *, matches: bool) -> None:
    assert is_match(Path(path), Path(pattern)) is matches


def test_a_link_that_leads_back_and_a_hard_link_are_second_names(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text("a\n")
    os.link(tmp_path / "a.log", tmp_path / "b.log")
    (tmp_path / "loop").symlink_to(tmp_path)
    matches = find_matches(tmp_path / "**" / "*.log")
    assert list(matches.files) == [tmp_path / "a.log"]
    assert matches.left_out[tmp_path / "b.log"] == f"it is the same file as {tmp_path}/a.log"


def test_check_names_all_that_is_left_out(tmp_path: Path) -> None:
    for name in ("pi.log", "pi-2024.log", "old.gz"):
        (tmp_path / name).touch()
    os.mkfifo(tmp_path / "pipe.log")
    told = list(notices.left_out(config(tmp_path, f'[[files]]\npath = "{tmp_path}/[po]*"\n')))
    assert told == [
        f"files.path {tmp_path}/[po]* leaves {tmp_path}/old.gz out: it is compressed.",
        f"files.path {tmp_path}/[po]* leaves {tmp_path}/pi-2024.log out: its name says that it was rotated or copied "
        "from pi.log.",
        f"files.path {tmp_path}/[po]* leaves {tmp_path}/pipe.log out: it is a FIFO.",
    ]


@pytest.mark.parametrize("kind", ["directory", "FIFO", "socket"])
def test_check_refuses_what_is_no_file_by_its_kind(
    tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "x"
    with socket.socket(socket.AF_UNIX) as bound:
        {"directory": path.mkdir, "FIFO": lambda: os.mkfifo(path), "socket": lambda: bound.bind(str(path))}[kind]()
    (tmp_path / "g.toml").write_text('state_dir = "s"\n[kafka]\nbootstrap_servers = "h:1"\n[[files]]\npath = "x"\n')
    assert cli.main(["check", "--config", str(tmp_path / "g.toml")]) == 2
    assert f"files.path {path} is a {kind}: name " in capsys.readouterr().err


async def test_what_is_left_out_is_in_the_log_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    (tmp_path / "logs").mkdir()
    for name in ("pi.log", "pi-2024.log"):
        (tmp_path / "logs" / name).write_text("a\n")
    publisher = FakePublisher()
    looks: list[int] = []
    source = pattern_source(tmp_path, publisher)
    look = source._find_paths
    source._find_paths = lambda: looks.append(1) or look()  # type: ignore[method-assign]
    async with running_task(source.run()):
        await until(lambda: len(looks) > 3)
    said = [vars(record)["drupelet_fields"] for record in caplog.records if record.message == "file_left_out"]
    reason = "its name says that it was rotated or copied from pi.log"
    assert said == [{"path": tmp_path / "logs" / "pi-2024.log", "reason": reason}]


async def read_and_acked(tmp_path: Path, count: int) -> tuple[FakePublisher, PatternSource]:
    publisher = FakePublisher()
    source = pattern_source(tmp_path, publisher)
    async with running_task(source.run()):
        await until(lambda: len(publisher.records) == count)
        for _, on_acked in publisher.records:
            on_acked()
        log = tmp_path / "logs" / "app.log"
        await until(lambda: saved_position(state_path(tmp_path / "state", log)) == log.stat().st_size)
    return publisher, source


@pytest.mark.parametrize("rotated", ["app-2026-11-28.log", "older.log"])
async def test_a_rotated_file_that_matches_under_its_new_name_is_not_read_again(tmp_path: Path, rotated: str) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / "app.log").write_text("1\n2\n")
    publisher = FakePublisher()
    async with running_task(pattern_source(tmp_path, publisher).run()):
        await until(lambda: len(publisher.records) == 2)
        (logs / "app.log").rename(logs / rotated)
        (logs / "b.log").write_text("b\n")  # it is looked for at least once before the next app.log comes
        await until(lambda: b"b" in values(publisher))
        (logs / "app.log").write_text("3\n")
        await until(lambda: b"3" in values(publisher))
    assert sorted(record.value for record, _ in publisher.records) == [b"1", b"2", b"3", b"b"]


@pytest.mark.parametrize("rotated", ["app-2026-11-28.log", "older.log"])
async def test_a_file_that_was_renamed_while_stopped_is_neither_lost_nor_read_again(
    tmp_path: Path, rotated: str
) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / "app.log").write_text("1\n2\n")
    await read_and_acked(tmp_path, 2)
    with (logs / "app.log").open("a") as file:
        file.write("3\n")
    (logs / "app.log").rename(logs / rotated)
    (logs / "app.log").write_text("4\n")
    publisher = FakePublisher()
    async with running_task(pattern_source(tmp_path, publisher).run()):
        await until(lambda: {b"3", b"4"} <= values(publisher))
    assert (sorted(record.value for record, _ in publisher.records), publisher.losses) == ([b"3", b"4"], [])


async def test_a_renamed_file_without_a_successor_stays_one_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_pattern, "GONE_S", 0.0)
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / "app.log").write_text("1\n")
    publisher = FakePublisher()
    async with running_task(pattern_source(tmp_path, publisher).run()):
        await until(lambda: len(publisher.records) == 1)
        publisher.records[0][1]()
        (logs / "app.log").rename(logs / "other.log")
        (logs / "b.log").write_text("b\n")
        await until(lambda: b"b" in values(publisher))
        with (logs / "other.log").open("a") as file:
            file.write("2\n")
        await until(lambda: b"2" in values(publisher))
    assert sorted(record.value for record, _ in publisher.records) == [b"1", b"2", b"b"]
