"""ansible/playbooks/files/verify.py against one board's real parts and a central broker: it must be able to fail.

Invariants:
- with every part there each step passes, and a second run too; Spark's result is known by the reading's own number;
- without the mirror, the gateway or a way through mosquitto exactly the step that does not work says so, in words;
- what the ledger holds is told once as new, and fails nothing.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.ansible_files import load
from tests.support.gateway_site import GatewaySite, read_whole
from tests.support.mirror_road import EdgeMirror
from tests.support.processes import EdgeBroker, all_stopped, wait_until

TIMEOUT_S = 80.0

verify = load("playbooks/files/verify.py")


class Board:
    """A board with every part running but the mirror, and the central broker."""

    def __init__(self, root: Path) -> None:
        settings = {"auto.create.topics.enable": "true"}
        self.broker = EdgeBroker(root, settings=settings)
        self.central = EdgeBroker(root, name="central", settings=settings)
        self.site = GatewaySite(root, self.broker.bootstrap, "readings")
        self.site.log_path.write_text("")
        refresh = {"refresh_interval_ms": 500}
        self.mirror = EdgeMirror(
            root / "mirror",
            self.broker.bootstrap,
            self.central.bootstrap,
            topics="readings|readings-health",
            site="plant",
            settings=refresh,
        )
        (root / "mirror.toml").write_text(
            f'target = "{self.central.bootstrap}"\nsite = "plant"\ntopics = "readings|readings-health"\n'
            f'metrics = "127.0.0.1:{self.mirror.metrics_port}"\n'
        )
        self.parts = (self.broker, self.central, self.site.mosquitto, self.site.gateway, self.mirror)

    def verify(self, **given: Any) -> dict[str, SimpleNamespace]:
        health = {
            "broker": f"127.0.0.1:{self.broker.metrics_port}",
            "gateway": self.site.metrics_url.removeprefix("http://"),
        }
        order = {"device": "verify-pi", "timeout_s": TIMEOUT_S, "health": health}
        order["mqtt_topic"] = "sites/verify/devices/verify-pi/readings"
        steps = asyncio.run(verify.verify(verify.Order(**{**order, **given})))
        return {step.step: step for step in steps}


@pytest.fixture
def board(tmp_path, monkeypatch):
    monkeypatch.setattr(verify, "CONFIGURATION", tmp_path)
    board = Board(tmp_path)
    with all_stopped(*board.parts):
        for part in board.parts[:-1]:
            part.start()
        yield board


def results(steps: dict[str, SimpleNamespace]) -> dict[str, str]:
    return {name: step.result for name, step in steps.items()}


def test_each_step_passes_twice_and_the_reading_is_there_once_per_run(board):
    board.mirror.start()
    for _ in range(2):
        steps = board.verify()
        assert set(results(steps).values()) == {"ok"}, steps
        assert list(steps) == [
            *("broker health", "gateway health", "MQTT"),
            *("reading on the board", "reading in central", "health in central", "ledger"),
        ]
    runs = [json.loads(message.value())["run"] for message in read_whole(board.central.bootstrap, "plant.readings")]
    assert len(runs) == len(set(runs)) == 2


def test_a_mirror_that_is_away_is_named(board):
    steps = board.verify(timeout_s=3.0)
    assert results(steps) == {
        "broker health": "ok",
        "gateway health": "ok",
        "MQTT": "ok",
        "reading on the board": "ok",
        "reading in central": "failed",
        "health in central": "failed",
        "ledger": "ok",
    }
    assert "nothing in plant.readings within 3 s" in steps["reading in central"].detail


def test_a_central_broker_that_is_away_is_named_and_nothing_is_published(board):
    board.central.stop()
    steps = board.verify(timeout_s=3.0)
    assert steps["reading in central"].result == "failed"
    assert board.central.bootstrap.split(":")[1] in steps["reading in central"].detail
    assert "MQTT" not in steps
    assert "readings" not in {message.topic() for message in read_whole(board.broker.bootstrap, "readings")}


def test_a_gateway_that_is_away_is_named_and_nothing_is_tried(board):
    board.site.gateway.stop()
    steps = board.verify(timeout_s=1.0)
    assert results(steps) == {"broker health": "ok", "gateway health": "failed"}


def test_a_topic_that_nobody_reads_is_named(board):
    steps = board.verify(mqtt_topic="nobody/reads/this")
    assert steps["MQTT"].result == "failed"
    assert "No matching subscribers" in steps["MQTT"].detail
    assert steps["reading in central"].result == "not tried"


def test_a_loss_is_told_once_and_fails_nothing(board):
    board.mirror.start()
    board.site.log_path.write_text("x" * 300_000 + "\n")  # above line_bytes_max: what no dead letter keeps is a loss
    wait_until(lambda: len(read_whole(board.broker.bootstrap, "__edge_ledger")) == 1, 20, "the ledger has it")
    first, second = board.verify(), board.verify()
    assert first["ledger"].result == "loss"
    assert "record_too_large 1 (1 records)" in first["ledger"].detail
    assert second["ledger"].result == "ok"
    assert second["ledger"].detail == "nothing new since the last verify; in all: record_too_large 1 (1 records)"
    assert verify.have_passed(first.values())


def test_a_result_is_known_by_device_window_and_number():
    reading = verify.Reading("verify-pi", "abcdefabcdef", 1_700_000_012_345)
    window = {"min": reading.value, "mean": reading.value, "max": reading.value, "count": 1}

    def known(key: str, **changes: float) -> bool:
        record = SimpleNamespace(key=key.encode(), value=json.dumps({**window, **changes}).encode())
        return verify.Reading.is_in_window(reading, record, 10_000)

    assert known("verify-pi|1700000010000")
    assert known("verify-pi|1700000010000", min=0.0, max=0.1, count=3)
    assert not known("verify-pi|1700000010000", max=reading.value / 2, min=0.0)
    assert not known("verify-pi|1700000020000")
    assert not known("verify-p|1700000010000")
    assert 0 <= reading.value < 0.1
