"""Sources against a publisher that acknowledges when told: what is saved when, and what is reported as lost.

Invariants:
- a file's position is saved only when every line before it is acknowledged;
- each drop that mosquitto counted is reported once, whatever crashes between reporting and saving;
- a board that cannot be read is a problem, not an end.
"""

from __future__ import annotations

import asyncio
import json
import threading
from pathlib import Path

import pytest

from gateway import state
from gateway.metrics import Metrics, pages_of, serve_metrics
from gateway.records.records import Loss
from gateway.sources.board import BoardSource
from gateway.sources.file_reading.line_splitter import KEPT_BYTES_MAX
from gateway.sources.files.files import FileSource, state_path
from gateway.sources.mqtt.mosquitto import DROPPED_TOPIC, UPTIME_TOPIC, MosquittoWatch, dropped_since, is_restart
from gateway.state import load as load_state
from tests.support.gateway.publisher import FakePublisher, config, saved_position
from tests.support.tasks import running_task
from tests.support.waiting import until

START_MS = 1_764_000_000_000


def file_source(tmp_path: Path, publisher: FakePublisher, start: str = "beginning") -> tuple[FileSource, Path]:
    text = f'[[files]]\npath = "app.log"\nstart = "{start}"\npoll_interval_ms = 10\nsave_interval_ms = 0\n'
    whole = config(tmp_path, text + "line_bytes_max = 64\n")
    source = FileSource(whole.files[0], publisher.as_publisher(), whole.state_dir, Metrics())
    return source, state_path(whole.state_dir, whole.files[0].path)


def lines_followed(tmp_path: Path, lines: str) -> tuple[FakePublisher, FileSource, Path]:
    (tmp_path / "app.log").write_text(lines)
    publisher = FakePublisher()
    return publisher, *file_source(tmp_path, publisher)


async def test_a_position_is_saved_only_when_all_before_it_is_acknowledged(tmp_path: Path) -> None:
    publisher, source, state = lines_followed(tmp_path, "1\n22\n333\n")
    async with running_task(source.run()):
        await until(lambda: len(publisher.records) == 3)
        record, _ = publisher.records[1]
        assert (record.value, record.key, record.topic) == (b"22", str(tmp_path / "app.log").encode(), "logs")
        assert dict(record.headers)["position"] == b"2"
        assert saved_position(state) == 0
        publisher.records[2][1]()
        publisher.records[0][1]()
        await until(lambda: saved_position(state) == 2)
        publisher.records[1][1]()
        await until(lambda: saved_position(state) == 9)


async def test_what_is_acknowledged_is_saved_at_the_end(tmp_path: Path) -> None:
    publisher, source, state = lines_followed(tmp_path, "1\n22\n")
    async with running_task(source.run()):
        await until(lambda: len(publisher.records) == 2)
        publisher.records[0][1]()
    assert saved_position(state) == 2


async def test_the_end_is_where_it_was_first_seen_even_after_a_crash(tmp_path: Path) -> None:
    log = tmp_path / "app.log"
    log.write_text("old\n")
    publisher = FakePublisher()
    source, state = file_source(tmp_path, publisher, "end")
    async with running_task(source.run()):
        await until(lambda: saved_position(state) == 4)
    log.write_text("old\nnew\n")
    source, _ = file_source(tmp_path, publisher, "end")
    async with running_task(source.run()):
        await until(lambda: len(publisher.records) == 1)
    assert publisher.records[0][0].value == b"new"


async def test_a_line_too_long_is_a_dead_letter_and_a_loss_with_the_same_id_every_time(tmp_path: Path) -> None:
    (tmp_path / "app.log").write_text("x" * (KEPT_BYTES_MAX + 100) + "\nshort\n")
    publisher = FakePublisher()
    for _ in range(2):  # not acknowledged, so the second run finds it again
        source, state = file_source(tmp_path, publisher)
        async with running_task(source.run()):
            await until(lambda: publisher.records[-1:] != [] and publisher.records[-1][0].value == b"short")
        publisher.records.clear()
    (letter, reason, first), (_, _, second) = publisher.letters
    assert first is not None
    assert second is not None
    assert first.id == second.id
    assert (letter.value, letter.topic, reason) == (b"x" * KEPT_BYTES_MAX, "logs", "line_too_long")
    assert dict(letter.headers)["position"] == b"0"
    assert (first.cause, first.topic, first.records, first.bytes) == ("record_too_large", "logs", 1, 100)
    assert saved_position(state) == 0


async def test_a_position_that_cannot_be_saved_is_a_problem_and_tried_again(tmp_path: Path) -> None:
    (tmp_path / "app.log").write_text("1\n22\n")
    (tmp_path / "state").write_text("a file in the way of the directory")
    publisher = FakePublisher()
    source, state = file_source_blocked(tmp_path, publisher)
    async with running_task(source.run()):
        await until(lambda: len(publisher.records) == 2)
        publisher.records[0][1]()
        await until(lambda: "cannot be saved" in str(source.problem()))
        (tmp_path / "state").unlink()
        await until(lambda: source.problem() is None)
        assert saved_position(state) == 2


def file_source_blocked(tmp_path: Path, publisher: FakePublisher) -> tuple[FileSource, Path]:
    """Build the source while its state can be looked for, and put the obstacle back."""
    text = (tmp_path / "state").read_text()
    (tmp_path / "state").unlink()
    built = file_source(tmp_path, publisher)
    (tmp_path / "state").write_text(text)
    return built


async def test_an_unreadable_file_is_a_problem_that_passes(tmp_path: Path) -> None:
    log = tmp_path / "app.log"
    log.mkdir()
    source, _ = file_source(tmp_path, FakePublisher())
    async with running_task(source.run()):
        await until(lambda: "app.log is a directory: name a regular file" in str(source.problem()))
        log.rmdir()
        log.write_text("")
        await until(lambda: source.problem() is None)


class Mosquitto:
    """A `$SYS` publisher under the test's control, and the watch that reads it."""

    def __init__(self, tmp_path: Path) -> None:
        self.path = tmp_path / "mosquitto.json"
        self.now_ms = START_MS
        self.started_ms = START_MS
        self.reported: list[Loss] = []
        self.dropped = 0
        self.watch = self.new_watch()

    def new_watch(self) -> MosquittoWatch:
        self.publisher = FakePublisher()
        self.watch = MosquittoWatch(
            self.publisher.as_publisher(), self.path, "me", Metrics(), now_ms=lambda: self.now_ms
        )
        return self.watch

    def connect(self, dropped: int, *, session: bool = True) -> None:
        self.watch.session_started(session)
        self.drop(dropped)
        self.watch.message_received(UPTIME_TOPIC, b"%d seconds" % ((self.now_ms - self.started_ms) // 1000))

    def drop(self, dropped: int) -> None:
        self.dropped = dropped
        self.watch.message_received(DROPPED_TOPIC, b"%d" % dropped)

    async def settle(self) -> None:
        """Let the watch report and save until all is reported and saved; then it is as if killed."""
        async with running_task(self.watch.run()):
            await until(self._settled)

    def _settled(self) -> bool:
        while self.publisher.losses:
            loss, on_acked = self.publisher.losses.pop()
            self.reported.append(loss)
            on_acked()
        saved = load_state(self.path) or {}
        return self.watch.noted.is_set() and (saved.get("dropped"), saved.get("pending")) == (self.dropped, [])

    async def crash_reporting(self) -> None:
        """Let the watch report, and be killed before that is acknowledged."""
        async with running_task(self.watch.run()):
            await until(lambda: self.publisher.losses)

    @property
    def total(self) -> int:
        return sum({loss.id: loss.records or 0 for loss in self.reported}.values())


async def test_drops_are_reported_once_over_restarts_of_both(tmp_path: Path) -> None:
    mosquitto = Mosquitto(tmp_path)
    mosquitto.connect(0, session=False)
    await mosquitto.settle()
    assert mosquitto.reported == []
    mosquitto.drop(5)
    await mosquitto.settle()
    assert mosquitto.total == 5
    mosquitto.new_watch()  # the gateway restarts; mosquitto goes on
    mosquitto.now_ms += 3_600_000
    mosquitto.connect(7)
    await mosquitto.settle()
    assert mosquitto.total == 7
    mosquitto.new_watch()  # mosquitto restarts meanwhile and counts from 0 again, past what was reported
    mosquitto.now_ms += 3_600_000
    mosquitto.started_ms = mosquitto.now_ms - 600_000
    mosquitto.connect(9)
    await mosquitto.settle()
    assert mosquitto.total == 16
    mosquitto.connect(2)  # and once more, within the slack of the clocks: only the smaller counter tells
    await mosquitto.settle()
    assert mosquitto.total == 18
    assert {loss.topic for loss in mosquitto.reported} == {f"mqtt:{DROPPED_TOPIC}"}


@pytest.mark.parametrize(
    ("is_stopped", "away_ms", "noted"), [(True, 50_000, False), (True, 3_600_000, True), (False, 50_000, True)]
)
async def test_a_mosquitto_that_starts_again_while_nobody_hears_it_is_noted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, is_stopped: bool, away_ms: int, noted: bool
) -> None:
    """It counts from 0 again: what it dropped between the last word and its end is in no counter any more."""
    mosquitto = Mosquitto(tmp_path)
    mosquitto.connect(0, session=False)
    await mosquitto.settle()
    if not is_stopped:  # a kill saves nothing
        content = load_state(mosquitto.path) or {}
        content.pop("heard_ms")
        state.save(mosquitto.path, content)
    mosquitto.new_watch()
    mosquitto.now_ms += away_ms
    mosquitto.started_ms = mosquitto.now_ms - 1_000
    mosquitto.connect(0)
    assert ("is not known" in str(mosquitto.watch.note())) is noted
    assert ("drops_not_heard" in caplog.text) is noted
    await mosquitto.settle()
    mosquitto.new_watch()
    mosquitto.now_ms += 5_000
    mosquitto.connect(0)
    assert mosquitto.watch.note() is None
    assert mosquitto.reported == [], "nothing is known to be lost"


async def test_a_mosquitto_that_starts_again_under_a_gateway_that_hears_it_is_no_note(tmp_path: Path) -> None:
    mosquitto = Mosquitto(tmp_path)
    mosquitto.connect(0, session=False)
    mosquitto.now_ms += 3_600_000
    mosquitto.watch.message_received(UPTIME_TOPIC, b"3600 seconds")
    mosquitto.watch.connection_lost()
    mosquitto.now_ms += 40_000
    mosquitto.started_ms = mosquitto.now_ms
    mosquitto.connect(0)
    assert mosquitto.watch.note() is None


async def test_a_report_cut_short_by_a_crash_is_repeated_with_the_same_id(tmp_path: Path) -> None:
    mosquitto = Mosquitto(tmp_path)
    mosquitto.connect(5, session=False)
    await mosquitto.crash_reporting()
    (unsure, _) = mosquitto.publisher.losses[0]
    mosquitto.new_watch()
    mosquitto.connect(5)
    await mosquitto.settle()
    assert [loss.id for loss in mosquitto.reported] == [unsure.id]
    assert mosquitto.total == 5


async def test_a_lost_session_is_a_loss_of_unknown_size(tmp_path: Path) -> None:
    mosquitto = Mosquitto(tmp_path)
    mosquitto.connect(0, session=False)
    await mosquitto.settle()
    mosquitto.new_watch()
    mosquitto.connect(0, session=False)
    await mosquitto.settle()
    (loss,) = mosquitto.reported
    assert (loss.cause, loss.topic, loss.records) == ("mqtt_queue_dropped", "mqtt:session/me", None)


LOSS = {"id": "1", "cause": "mqtt_queue_dropped", "topic": "mqtt:x", "records": 1, "bytes": None, "time_ms": 1}


@pytest.mark.parametrize(
    "damaged",
    [
        {"session": "yes"},
        {"started_ms": "soon"},
        {"started_ms": 1.5},
        {"dropped": None},
        {"dropped": "many"},
        {"dropped": -1},
        {"dropped": True},
        {"pending": None},
        {"pending": 3},
        {"pending": "none"},
        {"pending": [None]},
        {"pending": [{}]},
        {"pending": [LOSS | {"more": 1}]},
        {"pending": [LOSS | {"topic": 1}]},
        {"pending": [LOSS | {"records": "1"}]},
        {"pending": [LOSS | {"partition": 0}]},
        {"pending": {"id": 1}},
    ],
)
def test_a_state_file_of_another_kind_is_named_with_the_remedy(damaged: dict[str, object], tmp_path: Path) -> None:
    (tmp_path / "mosquitto.json").write_text(json.dumps({"session": True, "pending": [LOSS]} | damaged))
    with pytest.raises(
        state.StateError, match=r"mosquitto\.json is damaged .*: remove it, and mosquitto's drops are counted"
    ):
        Mosquitto(tmp_path)


async def test_a_value_that_is_no_number_is_left(tmp_path: Path) -> None:
    mosquitto = Mosquitto(tmp_path)
    mosquitto.connect(0, session=False)
    for payload in (b"", b"many", b"\xff"):
        mosquitto.watch.message_received(DROPPED_TOPIC, payload)
    await mosquitto.settle()
    assert mosquitto.reported == []


@pytest.mark.parametrize(("reported", "dropped", "lost"), [(0, 0, 0), (3, 5, 2), (5, 5, 0), (5, 2, 2)])
def test_counters(reported: int, dropped: int, lost: int) -> None:
    assert dropped_since(reported, dropped) == lost


def test_a_late_figure_is_no_restart() -> None:
    assert not is_restart(None, 1, START_MS)
    assert not is_restart(START_MS, 100, START_MS + 120_000)
    assert is_restart(START_MS, 100, START_MS + 140_000)


async def test_the_board_is_read_every_interval_and_trouble_is_told(tmp_path: Path) -> None:
    sensor: dict[str, float] | OSError = {"cpu_percent": 1.5}
    publisher = FakePublisher()

    def read_health() -> dict[str, float]:
        if isinstance(sensor, OSError):
            raise sensor
        return sensor

    board = config(tmp_path, '[board]\nname = "pi"\ninterval_ms = 100\n').board
    assert board is not None
    source = BoardSource(board, publisher.as_publisher(), read_health)
    async with running_task(source.run()):
        await until(lambda: len(publisher.records) >= 2)  # one more is due every 100 ms
        assert source.problem() is None
        sensor = OSError("no such sensor")
        await until(lambda: "no such sensor" in str(source.problem()))
        sensor = {"cpu_percent": 2.5}
        await until(lambda: source.problem() is None)
    record, _ = publisher.records[0]
    value = json.loads(record.value)
    assert value == {"cpu_percent": 1.5, "board": "pi", "time_ms": record.timestamp_ms}
    assert (record.key, record.headers) == (b"pi", (("source", b"board"),))


async def test_a_reading_of_the_board_that_hangs_is_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.sources.board.READ_S_MAX", 0.05)
    goes_on = threading.Event()
    publisher = FakePublisher()

    def read_health() -> dict[str, float]:
        if publisher.records:
            goes_on.wait(30)
        return {}

    board = config(tmp_path, '[board]\nname = "pi"\ninterval_ms = 100\n').board
    assert board is not None
    source = BoardSource(board, publisher.as_publisher(), read_health)
    assert [watch.state.value for watch in source.watches()] == ["unknown"]
    async with running_task(source.run()):
        await until(lambda: source.watches()[0].state.value == "ok")
        await until(lambda: "does not end" in source.watches()[0].reason)
        assert source.problem() is None
        goes_on.set()
        await until(lambda: source.watches()[0].state.value == "ok")


async def test_metrics_and_health_over_http() -> None:
    problems: list[str | None] = [None, "the broker is away"]
    metrics = Metrics()
    metrics.records.labels("mqtt", "readings").inc(3)
    pages = pages_of(metrics, lambda: problems.pop(0), lambda: "ok", b"t0ken")
    server = await serve_metrics("127.0.0.1", 0, pages)
    port = server.sockets[0].getsockname()[1]

    async def get(request: bytes) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /" + request + b"\r\n\r\n")
        answer = await reader.read()
        writer.close()
        return answer

    shown = b" HTTP/1.1\r\nAuthorization: Bearer t0ken"
    assert b'edge_gateway_records_total{source="mqtt",topic="readings"} 3.0' in await get(b"metrics" + shown)
    assert (await get(b"metrics HTTP/1.1")).startswith(b"HTTP/1.1 401 ")
    assert (await get(b"health" + shown)).endswith(b"\r\n\r\nok\n")
    unwell = await get(b"health" + shown)
    assert unwell.startswith(b"HTTP/1.1 503 ")
    assert unwell.endswith(b"\r\n\r\nthe broker is away\n")
    server.close()
