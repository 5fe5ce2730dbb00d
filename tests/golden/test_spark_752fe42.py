"""The checkpoint that the job `readings` at 752fe42 left is gone on with: its identity, its directories, its kept rows.

`spark_752fe42` has the checkpoint, the broker's data directory that it is about, and what the job wrote to topics. What
is Spark's own in it needs a JVM, and has the night.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from drupelet.errors import ConfigurationError
from spark.streams import schemas
from spark.streams.checkpoint import agree
from tests.support import runtimes
from tests.support.golden import GOLDEN, expected, unpacked
from tests.support.mirror_road import read_all
from tests.support.processes import EdgeBroker, Process, wait_until
from tests.support.waiting import CALL_S

DIRECTORY = GOLDEN / "spark_752fe42"
THEN: dict[str, Any] = expected(DIRECTORY / "spark.json")
TYPES = {"string": "STRING", "long": "BIGINT", "integer": "INT", "double": "DOUBLE"}


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return unpacked(DIRECTORY / "checkpoint.tar.xz", tmp_path / "checkpoint")


def test_it_is_known_whose_it_is(checkpoint: Path) -> None:
    before = (checkpoint / "job.json").read_text()
    cluster = json.loads(before)["cluster_id"]
    agree(checkpoint, {"job": "readings", "topic": "readings", "window_ms": 1000})
    agree(checkpoint, {"cluster_id": cluster})
    assert (checkpoint / "job.json").read_text() == before
    with pytest.raises(ConfigurationError, match="window_ms=1000"):
        agree(checkpoint, {"job": "readings", "topic": "readings", "window_ms": 2000})
    with pytest.raises(ConfigurationError, match="cluster_id"):
        agree(checkpoint, {"cluster_id": "another"})


def columns(directory: Path) -> str:
    """The columns of the Parquet file in a directory, as its footer has them, written as DDL."""
    (path,) = directory.glob("*.parquet")
    found = re.search(rb'\{"type":"struct","fields":\[.*?\]\}', path.read_bytes())
    assert found is not None
    fields = json.loads(found.group())["fields"]
    return ", ".join(f"{field['name']} {TYPES[field['type']]}" for field in fields)


KEPT = {"windows_open": schemas.OPEN, "windows_devices": schemas.DEVICES, "alarms_recent": schemas.RECENT}


@pytest.mark.parametrize("name", KEPT)
def test_kept_rows_have_their_columns(checkpoint: Path, name: str) -> None:
    for batch in ("batch=0", "batch=1"):
        assert columns(checkpoint / name / batch) == KEPT[name]


def test_queries_and_kept_rows_have_their_directories(checkpoint: Path) -> None:
    sources = "".join(path.read_text() for path in (GOLDEN.parents[1] / "spark" / "jobs").glob("*.py"))
    there = {path.name for path in checkpoint.iterdir() if (path / "offsets").is_dir()}
    assert there == {"windows_progress", "alarms", "malformed_progress"}
    for name in there | KEPT.keys() | {"finished_windows", "malformed"}:
        assert f'"{name}"' in sources


@pytest.mark.night
@pytest.mark.timeout(240)
def test_the_job_goes_on_in_the_window_that_was_open(tmp_path: Path, checkpoint: Path) -> None:
    data = unpacked(DIRECTORY / "broker.tar.xz", tmp_path / "broker")
    with EdgeBroker(tmp_path, data_dir=data, settings={"log.retention.ms": -1}) as broker:
        command: list[str | Path] = [runtimes.console_script("edge-spark"), "run", "readings"]
        command += ["--bootstrap", broker.bootstrap, "--checkpoint", checkpoint, "--master", "local[1]"]
        command += [f"--set={setting}" for setting in THEN["settings"]]
        before = THEN["records"]["readings_windows"]
        with Process("spark", command, tmp_path, ready="edge-spark ready", ready_s=120):
            time_ms = THEN["begin_ms"] + 8300
            value = {"device": "pump-1", "seq": 43, "time_ms": time_ms, "value": 21.0}
            producer = Producer({"bootstrap.servers": broker.bootstrap})
            producer.produce("readings", json.dumps(value), "pump-1", 0, timestamp=time_ms)
            assert producer.flush(CALL_S) == 0
            wait_until(lambda: len(read_all(broker.bootstrap, "readings_windows")) > len(before), 60, "a window")
        found = [
            [(one.key or b"").decode(), (one.value or b"").decode()]
            for one in read_all(broker.bootstrap, "readings_windows")
        ]
    assert found[: len(before)] == before
    ((key, text),) = found[len(before) :]
    start_ms = THEN["begin_ms"] + 8000
    now = json.loads(text)
    assert key == f"pump-1|{start_ms}"
    assert (now["min"], now["max"], now["count"]) == (20.0, 500.0, 3)
