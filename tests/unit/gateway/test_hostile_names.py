"""Files whose names hold escape codes, ends of lines or bytes that are no text: read, and never shown raw.

Invariants: /metrics stays valid UTF-8 and has a series for each file; no name makes a line or passes for another file;
such a file is read like any other.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from drupelet.observe.http import Pages, respond
from gateway.app import _file_source
from gateway.config import FileConfig
from gateway.metrics import Metrics
from gateway.records.records import CAUSE_SOURCE_GONE, Loss, loss_id_for
from gateway.routing.route_status import OverlookedTimes
from gateway.sources.files import file_pattern
from gateway.sources.files.file_pattern import PatternSource
from gateway.sources.files.files import FileSource
from tests.support.gateway.publisher import FakePublisher, config
from tests.support.tasks import running_task
from tests.support.waiting import until

NAMES = [
    b"a\x1b[31m.log",
    rb"a\x1b[31m.log",
    rb"a\u001b[31m.log",
    b'a.log"} 0\nedge_gateway_mqtt_oversize_total 9\n.log',
    b"\xff.log",
    b"a; unknown: mqtt_drops: b.log",
]


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_pattern, "SCAN_S", 0.02)


def only_file(tmp_path: Path) -> tuple[FileConfig, Path]:
    text = f'[[files]]\npath = "{tmp_path}/logs/*.log"\npoll_interval_ms = 10\nsave_interval_ms = 0\n'
    whole = config(tmp_path, text)
    return whole.files[0], whole.state_dir


def write_files(directory: bytes) -> None:
    os.mkdir(directory)
    for number, name in enumerate(NAMES):
        with open(directory + b"/" + name, "w") as file:
            file.write(f"{number}\n")


async def test_metrics_have_a_series_for_each_name_and_none_is_raw(tmp_path: Path) -> None:
    logs = os.fsencode(tmp_path / "logs")
    write_files(logs)
    publisher, metrics = FakePublisher(), Metrics()
    file, state_dir = only_file(tmp_path)
    assert _file_source(file) is PatternSource
    source = PatternSource(file, publisher.as_publisher(), state_dir, metrics)
    async with running_task(source.run()):
        await until(lambda: len(publisher.records) == len(NAMES))
        text = generate_latest(metrics.registry).decode()
    assert text.replace("\n", "").isprintable()
    families = {family.name: family for family in text_string_to_metric_families(text)}
    paths = [sample.labels["path"] for sample in families["edge_gateway_file_unread_bytes"].samples]
    assert len(set(paths)) == len(NAMES)
    assert [sample.value for sample in families["edge_gateway_mqtt_oversize"].samples] == [0]
    keys = {record.key for record, _ in publisher.records}
    assert keys == {logs + b"/" + name for name in NAMES}


@pytest.mark.parametrize("name", NAMES)
def test_health_shows_the_name_of_a_file_in_one_piece(name: bytes, tmp_path: Path) -> None:
    file, state_dir = only_file(tmp_path)
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/" + name))
    path.mkdir()
    source = FileSource(replace(file, path=path), FakePublisher().as_publisher(), state_dir, Metrics())
    source._read()
    problem = source.problem()
    assert problem is not None
    body = respond(b"GET /health HTTP/1.1\r\n\r\n", Pages(lambda: b"", lambda: problem)).partition(b"\r\n\r\n")[2]
    text = body.decode()
    assert text[:-1].isprintable()
    assert "; unknown" not in text.replace(f'"{path}"', "")


def test_a_loss_of_such_a_file_has_an_id_and_a_ledger_record() -> None:
    path = Path(os.fsdecode(b"/\xff\x1b"))
    loss = Loss(loss_id_for(path, 1), CAUSE_SOURCE_GONE, "logs", None, None, 1)
    assert dict(loss.to_record("node", f"{path} was removed").headers)["reason"] == rb"/\udcff\x1b was removed"
    assert loss_id_for(Path("/a"), 1) == loss_id_for("/a", 1)


def test_the_name_of_a_reading_s_field_ends_no_sentence() -> None:
    times = OverlookedTimes()
    said = times.note_reading("r", "t", 'ts" \x1b; ok; "', 0.0)
    assert said is not None
    assert said.isprintable()
    assert 'but "ts\\" \\u001b; ok; \\"", so' in said
