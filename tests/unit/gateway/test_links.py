"""Links, FIFOs and files of /proc in watched directories: what another user may put there is not published.

Invariants:
- without `follow_links` no link below a path's fixed part is followed, whenever it appears;
- what is left out for that is named by `check`, once in the log, and by /health;
- opening never waits.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from gateway import cli, notices
from gateway.app import _file_source
from gateway.config import GatewayConfig
from gateway.metrics import Metrics
from gateway.sources.file_reading.links import LinkRule, NotRegularError, fixed_part, matching, rule_for
from gateway.sources.file_reading.open_file import OpenFile
from gateway.sources.files import family, file_pattern
from gateway.sources.files.file_pattern import PatternSource
from gateway.sources.files.files import FileSource
from gateway.sources.files.matches import find_matches
from tests.support.gateway.publisher import FakePublisher, config
from tests.support.tasks import running_task
from tests.support.waiting import until

SECRET = "s3cret-of-mqtt"
LINK = "it is a link: name what it points to, or set follow_links = true"


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_pattern, "SCAN_S", 0.02)
    monkeypatch.setattr(family, "WHOLE_LOOK_S", 0.02)


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "private" / "mqtt.password"
    path.parent.mkdir()
    path.write_text(f"{SECRET}\n")
    (tmp_path / "logs").mkdir()
    return path


def sources(tmp_path: Path, publisher: FakePublisher, keys: str) -> tuple[GatewayConfig, FileSource | PatternSource]:
    whole = config(tmp_path, f"[[files]]\npoll_interval_ms = 10\nsave_interval_ms = 0\nrotate_wait_ms = 0\n{keys}\n")
    kind = _file_source(whole.files[0])
    return whole, kind(whole.files[0], publisher.as_publisher(), whole.state_dir, Metrics())


def lines(publisher: FakePublisher) -> list[str]:
    for _, on_acked in publisher.records:
        on_acked()
    return [record.value.decode() for record, _ in publisher.records]


def told(caplog: pytest.LogCaptureFixture, event: str) -> list[dict[str, object]]:
    return [vars(record)["drupelet_fields"] for record in caplog.records if record.message == event]


def link(path: Path, target: Path) -> Path:
    path.symlink_to(target)
    return path


async def test_a_link_in_a_watched_directory_publishes_nothing_and_is_named(
    tmp_path: Path, secret: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    (tmp_path / "logs" / "a.log").write_text("a\n")
    bad = link(tmp_path / "logs" / "b.log", secret)
    publisher = FakePublisher()
    whole, source = sources(tmp_path, publisher, 'path = "logs/*.log"')
    pattern = whole.files[0].path
    async with running_task(source.run()):
        await until(lambda: lines(publisher) == ["a"])
        assert source.note() == f"files.path {pattern} leaves {bad} out: {LINK}"
        assert source.problem() is None
        later = link(tmp_path / "logs" / "c.log", secret)
        await until(lambda: "and 1 more" in str(source.note()))
    assert lines(publisher) == ["a"]
    assert told(caplog, "file_left_out") == [{"path": bad, "reason": LINK}, {"path": later, "reason": LINK}]
    assert next(iter(notices.left_out(whole))) == f"files.path {pattern} leaves {bad} out: {LINK}."


@pytest.mark.parametrize("pattern", ["logs/*/x.log", "logs/**/*.log", "logs/**", "logs/d*/x.log"])
async def test_a_link_to_a_directory_is_not_entered(tmp_path: Path, secret: Path, pattern: str) -> None:
    (secret.parent / "x.log").write_text(f"{SECRET}\n")
    (tmp_path / "logs" / "ok").mkdir()
    link(tmp_path / "logs" / "dir", secret.parent)
    publisher = FakePublisher()
    _, source = sources(tmp_path, publisher, f'path = "{pattern}"')
    async with running_task(source.run()):
        await until(lambda: f"{tmp_path}/logs/dir out: it is a link" in str(source.note()))
        (tmp_path / "logs" / "da").mkdir()
        (tmp_path / "logs" / "da" / "x.log").write_text("a\n")
        await until(lambda: "a" in lines(publisher))
    assert lines(publisher) == ["a"]


async def test_a_rotated_file_that_is_a_link_is_not_read(
    tmp_path: Path, secret: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    log = tmp_path / "logs" / "app.log"
    log.write_text("a\n")
    publisher = FakePublisher()
    _, source = sources(tmp_path, publisher, 'path = "logs/app.log"\nrotated = "old/*"')
    async with running_task(source.run()):
        await until(lambda: lines(publisher) == ["a"])
        (tmp_path / "old").mkdir()
        bad = [link(tmp_path / "logs" / "app.log.1", secret), link(tmp_path / "old" / "app.log.2", secret)]
        await until(lambda: "and 1 more" in str(source.note()))
        with log.open("a") as file:
            file.write("b\n")
        await until(lambda: lines(publisher) == ["a", "b"])
    assert publisher.losses == []
    assert [fields["path"] for fields in told(caplog, "file_left_out")] == bad


async def test_a_log_that_becomes_a_link_is_a_problem_and_publishes_nothing(tmp_path: Path, secret: Path) -> None:
    log = tmp_path / "logs" / "app.log"
    log.write_text("a\n")
    publisher = FakePublisher()
    _, source = sources(tmp_path, publisher, 'path = "logs/app.log"')
    async with running_task(source.run()):
        await until(lambda: lines(publisher) == ["a"])
        log.unlink()
        link(log, secret)
        await until(lambda: f"{log} is a link" in str(source.problem()))
        log.unlink()
        log.write_text("b\n")
        await until(lambda: lines(publisher) == ["a", "b"])
        await until(lambda: source.problem() is None)
    assert publisher.losses == []


def test_a_named_link_is_refused_by_check(tmp_path: Path, secret: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = link(tmp_path / "current.log", secret)
    text = f'state_dir = "s"\n[kafka]\nbootstrap_servers = "h:1"\n[[files]]\npath = "{path}"\n'
    (tmp_path / "g.toml").write_text(text)
    assert cli.main(["check", "--config", str(tmp_path / "g.toml")]) == 2
    assert (
        f"files.path {path} is a link: name what it points to, or set follow_links = true." in capsys.readouterr().err
    )
    (tmp_path / "g.toml").write_text(f"{text}follow_links = true\n")
    assert cli.main(["check", "--config", str(tmp_path / "g.toml")]) == 0


@pytest.mark.parametrize("path", ["logs/*.log", "logs/b.log", "logs/**/*.log"])
async def test_the_key_follows_links(tmp_path: Path, secret: Path, path: str) -> None:
    link(tmp_path / "logs" / "b.log", secret)
    publisher = FakePublisher()
    _, source = sources(tmp_path, publisher, f'path = "{path}"\nfollow_links = true')
    async with running_task(source.run()):
        await until(lambda: lines(publisher) == [SECRET])
        assert source.note() is None


@pytest.mark.parametrize("path", ["var/*.log", "var/a.log"])
async def test_links_in_the_fixed_part_of_a_path_are_followed(tmp_path: Path, secret: Path, path: str) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "disk" / "a.log").write_text("a\n")
    link(tmp_path / "var", tmp_path / "disk")
    publisher = FakePublisher()
    _, source = sources(tmp_path, publisher, f'path = "{path}"')
    async with running_task(source.run()):
        await until(lambda: lines(publisher) == ["a"])


@pytest.mark.parametrize("follows", [False, True])
def test_files_of_proc_are_never_taken(tmp_path: Path, follows: bool) -> None:
    links = LinkRule(follows=follows)
    with pytest.raises(NotRegularError, match="/proc/self/environ is a file of the kernel's"):
        OpenFile(Path("/proc/self/environ"), links=links)
    link(tmp_path / "p.log", Path("/proc/self/environ"))
    found = find_matches(tmp_path / "*.log", follow_links=follows)
    assert (list(found.files), list(found.refused)) == ([], [tmp_path / "p.log"])
    assert "/proc/version" in str(next(iter(find_matches(Path("/proc/versio[n]")).refused)))


async def test_a_followed_link_to_proc_writes_no_loss(tmp_path: Path, secret: Path) -> None:
    link(tmp_path / "logs" / "p.log", Path("/proc/self/environ"))
    publisher = FakePublisher()
    _, source = sources(tmp_path, publisher, 'path = "logs/*.log"\nfollow_links = true')
    async with running_task(source.run()):
        await until(lambda: "it is a file of the kernel's" in str(source.note()))
    assert (publisher.records, publisher.losses) == ([], [])


def test_opening_never_waits_for_a_fifo(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.log")
    with pytest.raises(NotRegularError, match=r"a\.log is a FIFO"):
        OpenFile(tmp_path / "a.log")
    assert find_matches(tmp_path / "*").refused == {tmp_path / "a.log": "it is a FIFO"}


def exchange_directory(root: Path) -> None:
    (root / "w" / "d").rename(root / "w" / "was")
    link(root / "w" / "d", root / "private")


def exchange_file(root: Path) -> None:
    (root / "w" / "d" / "mqtt.password").unlink()
    link(root / "w" / "d" / "mqtt.password", root / "private" / "mqtt.password")


@pytest.mark.parametrize("exchange", [exchange_directory, exchange_file])
def test_a_name_exchanged_between_the_look_and_the_opening_opens_nothing(
    tmp_path: Path, secret: Path, exchange: Callable[[Path], None]
) -> None:
    path = tmp_path / "w" / "d" / secret.name
    path.parent.mkdir(parents=True)
    path.write_text("a\n")
    links = rule_for(tmp_path / "w" / "*" / "*", follows=False)
    assert list(find_matches(tmp_path / "w" / "*" / "*").files) == [path]
    exchange(tmp_path)
    with pytest.raises(NotRegularError, match="is a link"):
        OpenFile(path, links=links)


@pytest.mark.parametrize(
    ("pattern", "fixed"),
    [("/a/b/*.log", "/a/b"), ("/a/*/b/*.log", "/a"), ("/a/**/x", "/a"), ("/a/b.log", "/a"), ("/*/x", "/")],
)
def test_the_fixed_part_of_a_pattern(pattern: str, fixed: str) -> None:
    assert fixed_part(Path(pattern)) == Path(fixed)


@pytest.mark.parametrize(
    "pattern",
    ["*", "*.log", "**", "**/*", "**/*.log", "a/*", "*/x.log", "a/**/x.log", ".*", ".h/*", "[ab]/?.log", "a/x.log"],
)
def test_without_links_a_pattern_finds_what_glob_finds(tmp_path: Path, pattern: str) -> None:
    for name in ("x.log", "y.txt", ".z.log", "a/x.log", "a/b/x.log", "b/y.log", ".h/x.log", "a/.h/x.log"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    ours = {path for path in matching(tmp_path / pattern, LinkRule()) if path.is_file()}
    assert ours == {path for path in matching(tmp_path / pattern, LinkRule(follows=True)) if path.is_file()}
