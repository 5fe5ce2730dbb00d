"""A source that follows all files of a pattern."""

from __future__ import annotations

from pathlib import Path

from gateway.app import _file_source
from gateway.metrics import Metrics
from gateway.sources.files.file_pattern import PatternSource
from tests.support.gateway.publisher import FakePublisher, config


def pattern_source(tmp_path: Path, publisher: FakePublisher, path: str = "logs/*.log", more: str = "") -> PatternSource:
    whole = config(tmp_path, f'[[files]]\npath = "{path}"\npoll_interval_ms = 10\nsave_interval_ms = 0\n{more}')
    (file,) = whole.files
    assert _file_source(file) is PatternSource
    return PatternSource(file, publisher.as_publisher(), whole.state_dir, Metrics())


def values(publisher: FakePublisher) -> set[bytes]:
    return {record.value for record, _ in publisher.records}
