"""The positions in log files as the gateway at 752fe42 saved them are taken over: no line twice, no line lost.

Its file source followed each case's files, which then changed while it was stopped. `acknowledged` are the lines whose
position it had saved, `states` its state files, `unread` the other lines in the order of writing. The test makes the
files again and puts their inodes into the states.
"""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path
from typing import Any

import pytest

from gateway import state
from gateway.config import GatewayConfig
from gateway.metrics import Metrics
from gateway.sources.file_reading.places import Line, from_json, to_json
from gateway.sources.files.file_pattern import PatternSource
from gateway.sources.files.files import saved_family, state_path
from tests.support.gateway.followed_file import follow, read_all, texts
from tests.support.gateway.publisher import FakePublisher, config
from tests.support.tasks import running_task
from tests.support.waiting import until

CASES: list[dict[str, Any]] = json.loads(Path(__file__).with_name("gateway_files_752fe42.json").read_text())
FILES = [case for case in CASES if case["pattern"] == "app.log"]
PATTERNS = [case for case in CASES if case["pattern"] != "app.log"]


def make_site(directory: Path, case: dict[str, Any]) -> None:
    """Make the case's files and states."""
    inodes: dict[int, int] = {}
    for file in case["files"]:
        path = directory / file["name"]
        content: str = file["content"]
        path.write_bytes(base64.b64decode(content) if path.suffix == ".gz" else content.encode())
        os.utime(path, ns=(file["modified_ns"], file["modified_ns"]))
        inodes[file["inode"]] = path.stat().st_ino
    for saved in case["states"]:
        path = directory / saved["path"]
        place = {**saved["place"], "inode": inodes[saved["place"]["inode"]]}
        state.save(state_path(directory / "state", path), {"path": str(path), "place": place})


def unread(case: dict[str, Any]) -> list[bytes]:
    return [line.encode() for line in case["unread"]]


def named(case: dict[str, Any]) -> str:
    return str(case["name"])


@pytest.mark.parametrize("case", FILES, ids=named)
def test_reading_goes_on_where_the_former_version_stopped(tmp_path: Path, case: dict[str, Any]) -> None:
    make_site(tmp_path, case)
    family = saved_family(tmp_path / "state", tmp_path / "app.log")
    assert family is not None
    tail = follow(tmp_path / "app.log", family)
    assert texts(read_all(tail)) == unread(case)
    assert tail.state is not None
    assert read_all(follow(tmp_path / "app.log", from_json(to_json(tail.state)))) == []


@pytest.mark.parametrize("case", FILES, ids=named)
def test_a_kill_after_any_line_loses_none_and_repeats_none(tmp_path: Path, case: dict[str, Any]) -> None:
    make_site(tmp_path, case)
    family = saved_family(tmp_path / "state", tmp_path / "app.log")
    for line in unread(case):
        items = read_all(follow(tmp_path / "app.log", family))
        assert texts(items[:1]) == [line]
        assert isinstance(items[0], Line)
        family = from_json(to_json(items[0].after))
    assert read_all(follow(tmp_path / "app.log", family)) == []


async def read_pattern(whole: GatewayConfig, count: int) -> FakePublisher:
    """Read `count` lines, acknowledge them, and wait until all files are idle."""
    publisher = FakePublisher()
    source = PatternSource(whole.files[0], publisher.as_publisher(), whole.state_dir, Metrics())
    async with running_task(source.run()):
        await source.ready.wait()
        await until(lambda: len(publisher.records) >= count)
        for _, acked in publisher.records:
            acked()
        await until(lambda: all(followed.source.is_idle for followed in source._followed.values()))
    return publisher


@pytest.mark.parametrize("case", PATTERNS, ids=named)
async def test_a_pattern_goes_on_where_the_former_version_stopped(tmp_path: Path, case: dict[str, Any]) -> None:
    make_site(tmp_path, case)
    text = f'[[files]]\npath = "{case["pattern"]}"\npoll_interval_ms = 10\nrotate_wait_ms = 40\nsave_interval_ms = 0\n'
    whole = config(tmp_path, text)
    for expected in (unread(case), []):
        publisher = await read_pattern(whole, len(expected))
        assert [record.value for record, _ in publisher.records] == expected
        assert publisher.losses == []
