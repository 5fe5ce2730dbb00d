"""Spark's transforms, on rows and on streams of files, in one JVM.

Invariants:
- every record is either a sound reading or a malformed record with a reason; no input raises;
- a window holds exactly the readings of its span, in whatever order they came;
- late data within `lateness_max_ms` changes its window again; each reading that is later changes nothing and is a row,
  whatever the batches, and counted for its device;
- a reading is judged by what precedes it in event time, never by itself, however the batches are cut.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from drupelet import reading_schema as reading_declaration
from spark.config import Settings
from spark.jobs import windows
from spark.session import start_session, stop_session
from spark.streams import schemas, sinks, transforms
from tests.support import left_over
from tests.support.command import as_command

RECORDS = "topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, key BINARY, value BINARY, \
headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
READINGS = "partition INT, offset BIGINT, device STRING, seq BIGINT, time_ms BIGINT, event_time TIMESTAMP, value DOUBLE"
START_MS = 1_764_000_000_000
WINDOW_MS = 10_000


@pytest.fixture(scope="module")
def session() -> Iterator[SparkSession]:
    with as_command():  # starting a session sets up logging
        started = start_session(Settings(master="local[1]", spark={"spark.sql.shuffle.partitions": "1"}), "transforms")
        context = started.sparkContext
        assert context._gateway is not None
        assert context._accumulatorServer is not None
        left_over.share_connections(  # opened by the test that needs the first or a further one
            context._gateway.gateway_parameters.port, context._accumulatorServer.server_address[1]
        )
        yield started
        stop_session(started)


def at(time_ms: int) -> datetime:
    return datetime.fromtimestamp(time_ms / 1000, UTC)


def record(
    offset: int, value: bytes | None, key: bytes | None = None, received_ms: int | None = None
) -> tuple[Any, ...]:
    headers = None if received_ms is None else [("source", b"mqtt"), ("received_ms", str(received_ms).encode())]
    return ("readings", 0, offset, at(START_MS), key, value, headers)


def reading(offset: int, device: str, second: float, value: float) -> tuple[Any, ...]:
    time_ms = START_MS + int(second * 1000)
    return (0, offset, device, offset, time_ms, at(time_ms), value)


def rows(found: DataFrame) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in found.collect())


def body(**changes: object) -> bytes:
    return json.dumps({"device": "d1", "seq": 1, "time_ms": START_MS, "value": 1.5} | changes).encode()


BAD = {
    b"": "no `device`, as JSON or as key",
    b'{"device":"d1","val': "no `device`, as JSON or as key",
    b"\xff\xfe\x00": "no `device`, as JSON or as key",
    body(device=""): "no `device`, as JSON or as key",
    body(value="warm"): "no JSON number `value`",
    body(value=float("nan")): "`value` is not finite",
    body(value=float("inf")): "`value` is not finite",
    body(time_ms=None): "no JSON integer `time_ms`",
    body(time_ms=-1): "`time_ms` is out of range",
    body(time_ms=2**62): "`time_ms` is out of range",
    body(time_ms=START_MS + 60_001): "`time_ms` is ahead of the receipt",
}


def test_every_record_is_a_reading_or_malformed_with_its_reason(session: SparkSession) -> None:
    records = [record(offset, value) for offset, value in enumerate(BAD)]
    good = [record(100, body()), record(101, body(time_ms=START_MS + 60_000)), record(102, None)]
    parsed = transforms.parse(session.createDataFrame(records + good, RECORDS), ahead_max_ms=60_000)
    malformed = {row.offset: row.problem for row in transforms.select_malformed(parsed).collect()}
    assert malformed == {**dict(enumerate(BAD.values())), 102: "no `device`, as JSON or as key"}
    readings = transforms.readings(parsed)
    assert rows(readings.select("offset", "device", "value")) == [(100, "d1", 1.5), (101, "d1", 1.5)]
    assert tuple(parsed.columns) == schemas.PARSED_COLUMNS
    assert tuple(readings.columns) == schemas.READING_COLUMNS


def test_key_and_received_header_fill_in(session: SparkSession) -> None:
    nameless = json.dumps({"time_ms": START_MS + 500_000, "value": 2}).encode()
    records = [
        record(0, nameless, key=b"d7", received_ms=START_MS + 500_000),
        record(1, nameless, key=b"d7"),
        ("readings", 0, 2, at(START_MS), b"d7", body(), [("received_ms", b"not a number")]),
    ]
    parsed = transforms.parse(session.createDataFrame(records, RECORDS), ahead_max_ms=60_000)
    assert rows(transforms.readings(parsed).select("offset", "device")) == [(0, "d7"), (2, "d1")]


def test_where_the_gateway_looked_for_the_time_its_timestamp_counts(session: SparkSession) -> None:
    at_receipt = [("time_unit", b"received")]
    records = [
        ("readings", 0, 0, at(START_MS), b"d7", b'{"value": 1}', at_receipt),
        ("readings", 0, 1, at(START_MS), b"d7", b" -20.1e0\n", at_receipt),
        ("readings", 0, 2, at(START_MS), b"d7", b'{"value": 1, "time_ms": 1764000000}', [("time_unit", b"s")]),
        ("readings", 0, 3, at(START_MS), b"d7", b'{"value": 1, "time_ms": "2025-11-24"}', at_receipt),
        ("readings", 0, 4, at(START_MS), b"d7", body(time_ms=START_MS + 7), None),
        ("readings", 0, 5, at(START_MS), b"d7", b"20.1", None),  # nobody says what time that is of
        ("readings", 0, 6, at(START_MS), b"d7", b"0x1p3", at_receipt),
        ("readings", 0, 7, at(START_MS), b"d7", b"1e999", at_receipt),
    ]
    parsed = transforms.parse(session.createDataFrame(records, RECORDS), ahead_max_ms=60_000)
    assert rows(transforms.readings(parsed).select("offset", "device", "time_ms", "value")) == [
        (0, "d7", START_MS, 1.0),
        (1, "d7", START_MS, -20.1),
        (2, "d7", START_MS, 1.0),
        (3, "d7", START_MS, 1.0),
        (4, "d1", START_MS + 7, 1.5),
    ]
    assert rows(transforms.select_malformed(parsed).select("offset", "problem")) == [
        (5, "no JSON integer `time_ms`"),
        (6, "no JSON number `value`"),
        (7, "`value` is not finite"),
    ]


def test_every_example_of_the_declaration_is_a_reading(session: SparkSession) -> None:
    """The one declaration of a reading, drupelet/reading.schema.json, is what Spark reads."""
    by_gateway = [("time_unit", b"ms")]
    given = [json.dumps(example).encode() for example in reading_declaration.schema()["examples"]]
    records = [("readings", 0, number, at(START_MS), b"d7", value, by_gateway) for number, value in enumerate(given)]
    found = transforms.readings(transforms.parse(session.createDataFrame(records, RECORDS), 60_000)).collect()
    assert [row.value for row in found] == [21.5] * len(given)
    assert {row.seq for row in found} == {None, 4711}
    assert {row.device for row in found} == {"thermometer-1", "d7"}


def test_windows_hold_their_span_in_any_order(session: SparkSession) -> None:
    given = [reading(4, "a", 9.999, 4.0), reading(0, "a", 0, 1.0), reading(3, "b", 3, 7.0), reading(2, "a", 10, 100.0)]
    readings = session.createDataFrame(given, READINGS)
    found = transforms.window_statistics(after(session, [], transforms.add_windows(readings, WINDOW_MS)))
    assert tuple(found.columns) == schemas.WINDOW_COLUMNS
    assert rows(found) == [
        ("a", START_MS, START_MS + WINDOW_MS, 1.0, 2.5, 4.0, 2),
        ("a", START_MS + WINDOW_MS, START_MS + 2 * WINDOW_MS, 100.0, 100.0, 100.0, 1),
        ("b", START_MS, START_MS + WINDOW_MS, 7.0, 7.0, 7.0, 1),
    ]
    records = {row.key: json.loads(row.value) for row in transforms.window_records(found).collect()}
    assert list(records[f"a|{START_MS}"]) == list(schemas.WINDOW_COLUMNS)
    assert transforms.window_files(found).where("device = 'b'").first().date == "2025-11-24"


def after(
    session: SparkSession,
    before: list[tuple[Any, ...]],
    arrivals: DataFrame,
    watermark_ms: int = transforms.NO_WATERMARK_MS,
) -> DataFrame:
    return transforms.windows_after(session.createDataFrame(before, schemas.OPEN), arrivals, watermark_ms)


def test_a_window_that_has_ended_takes_nothing_and_each_late_reading_is_a_row(session: SparkSession) -> None:
    before = [("a", START_MS + WINDOW_MS, START_MS + 2 * WINDOW_MS, 1.0, 4.0, 3.0, 2)]
    late = [reading(offset, device, 4, 99.0) for offset, device in enumerate(["a", "a", "b", "a"])]
    open_still = [reading(10, "a", 12, 9.0), reading(11, "b", 25, 5.0)]
    arrivals = transforms.add_windows(session.createDataFrame(late + open_still, READINGS), WINDOW_MS)
    watermark_ms = START_MS + WINDOW_MS
    found = after(session, before, arrivals, watermark_ms)
    assert rows(found.select("device", "window_start_ms", "min", "total", "max", "count", "new")) == [
        ("a", START_MS + WINDOW_MS, 1.0, 13.0, 9.0, 3, 1),
        ("b", START_MS + 2 * WINDOW_MS, 5.0, 5.0, 5.0, 1, 1),
    ]
    records = {row.key: json.loads(row.value) for row in transforms.late_records(arrivals, "r", watermark_ms).collect()}
    assert set(records) == {"r|0|0", "r|0|1", "r|0|2", "r|0|3"}
    assert tuple(records["r|0|2"]) == schemas.LATE_COLUMNS
    assert {key: records["r|0|2"][key] for key in ("device", "offset", "time_ms", "watermark_ms")} == {
        "device": "b",
        "offset": 2,
        "time_ms": START_MS + 4000,
        "watermark_ms": watermark_ms,
    }
    devices = session.createDataFrame([("a", START_MS + 13_000, 7, 0), ("c", 5, 1, 0)], schemas.DEVICES)
    assert rows(transforms.devices_after(devices, arrivals, watermark_ms)) == [
        ("a", START_MS + 13_000, 10),
        ("b", START_MS + 25_000, 1),
        ("c", 5, 1),
    ]


def test_late_readings_of_forgotten_devices_stay_counted(session: SparkSession) -> None:
    devices = session.createDataFrame(
        [("a", 100, 2, 9), ("b", 5, 1, 9), ("c", 6, 3, 9), ("d", 7, 0, 9)], schemas.DEVICES
    )
    kept = transforms.without_silent_devices(devices, 50)
    again = transforms.without_silent_devices(kept, 200)
    assert {tuple(row) for row in kept.collect()} == {("a", 100, 2), (None, 7, 4)}
    assert {tuple(row) for row in again.collect()} == {(None, 100, 6)}


BATCHES = [
    [reading(0, "a", 1, 1.0), reading(1, "a", 3, 3.0), reading(2, "b", 12, 5.0)],
    [reading(3, "a", 2, 8.0)],  # late, yet above the watermark of 2 s
    [reading(4, "b", 45, 6.0)],  # moves the watermark to 35 s
    [reading(5, "a", 4, 99.0), reading(6, "a", 5, 99.0), reading(7, "b", 46, 7.0)],  # the first two are too late
]


def test_a_batch_that_runs_again_takes_the_same_readings_and_finds_the_same_late_ones(
    session: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: dict[str, list[tuple[str, str]]] = {}

    def write(records: DataFrame, _settings: Settings, topic: str) -> None:
        written.setdefault(topic, []).extend((row.key, row.value) for row in records.collect())

    monkeypatch.setattr(sinks, "write_to_kafka", write)
    settings, told = Settings(checkpoint=str(tmp_path), lateness_max_ms=10_000), {}
    for number, batch in enumerate(BATCHES):
        for _ in range(2):  # as after a kill between its last write and Spark's commit
            windows.advance(settings, told.__setitem__, session.createDataFrame(batch, READINGS), number)
    late = written["readings_late"]
    assert late[:2] == late[2:]
    assert [key for key, _ in late[:2]] == ["readings|0|5", "readings|0|6"]
    assert [told[number]["late_records"] for number in range(4)] == [0, 0, 0, 2]
    assert told[3]["late_records_ever"] == 2
    latest = {key: json.loads(value) for key, value in written["readings_windows"]}
    assert {key: (each["mean"], each["count"]) for key, each in latest.items()} == {
        f"a|{START_MS}": (4.0, 3),
        f"b|{START_MS + WINDOW_MS}": (5.0, 1),
        f"b|{START_MS + 4 * WINDOW_MS}": (6.5, 2),
    }
    finished = session.read.parquet(str(tmp_path / "finished_windows"))
    expected = [("a", START_MS, 4.0, 3), ("b", START_MS + WINDOW_MS, 5.0, 1)]
    assert rows(finished.select("device", "window_start_ms", "mean", "count")) == expected
    assert [path.name for path in (tmp_path / "finished_windows").glob("batch=2/date=*")] == ["date=2025-11-24"]
    assert sorted(path.name for path in (tmp_path / "windows_open").iterdir()) == ["batch=2", "batch=3"]


def test_a_longer_lateness_opens_no_window_again(
    session: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sinks, "write_to_kafka", lambda *_: None)
    told: dict[int, dict[str, Any]] = {}
    for number, lateness_max_ms in enumerate([10_000, 600_000, 0, 0]):
        settings = Settings(checkpoint=str(tmp_path), lateness_max_ms=lateness_max_ms)
        batch = session.createDataFrame(
            [reading(0, "a", 45, 1.0), reading(1, "a", 5, 1.0)][: 2 - number // 3], READINGS
        )
        windows.advance(settings, told.__setitem__, batch, number)
    assert [told[number]["late_records"] for number in range(4)] == [0, 1, 1, 0]
    assert told[1]["watermark"] == told[0]["watermark"] < told[2]["watermark"]


STEADY = [reading(number, "a", number, 20.0 + number % 2) for number in range(20)]
SPIKE = reading(20, "a", 20, 60.0)


def judged(session: SparkSession, recent: list[tuple[Any, ...]], new: list[tuple[Any, ...]]) -> DataFrame:
    old = session.createDataFrame(recent, READINGS).select(*schemas.RECENT_COLUMNS)
    return transforms.add_recent_stats(old, session.createDataFrame(new, READINGS), 10)


def alarms(found: DataFrame) -> DataFrame:
    return transforms.alarms(found, recent_readings_min=5, score_min=4.0, deviation_min=0.1)


def test_a_spike_is_an_alarm_and_judged_without_itself(session: SparkSession) -> None:
    (found,) = alarms(judged(session, [], [*STEADY, SPIKE])).collect()
    assert (found.device, found.time_ms, found.value, found["mean"]) == ("a", START_MS + 20_000, 60.0, 20.5)
    assert found.score == pytest.approx(39.5 / found.stddev)


def test_where_the_batches_are_cut_changes_no_alarm(session: SparkSession) -> None:
    everything = [*STEADY, SPIKE, *(reading(21 + number, "a", 21 + number, 20.0) for number in range(5))]
    whole = rows(alarms(judged(session, [], everything)))
    for cut in (1, 7, 20, 21, 25):
        first = judged(session, [], everything[:cut])
        recent = [tuple(row) for row in transforms.most_recent(first, 10).collect()]
        old = session.createDataFrame(recent, schemas.RECENT)
        second = transforms.add_recent_stats(old, session.createDataFrame(everything[cut:], READINGS), 10)
        assert sorted(rows(alarms(first)) + rows(alarms(second))) == whole
    assert len(whole) == 1


def test_a_device_that_is_hardly_known_or_steady_has_no_alarm(session: SparkSession) -> None:
    few = [reading(number, "new", number, 20.0) for number in range(4)] + [reading(4, "new", 4, 99.0)]
    flat = [reading(number, "flat", number, 20.0) for number in range(9)] + [reading(9, "flat", 9, 20.3)]
    assert rows(alarms(judged(session, [], few + flat))) == []


def test_an_out_of_order_reading_is_judged_by_its_own_past(session: SparkSession) -> None:
    future = [reading(30 + number, "a", 100 + number, 60.0) for number in range(10)]
    late = reading(50, "a", 20.5, 20.5)  # usual for its time, though far from the newest readings
    assert rows(alarms(judged(session, STEADY[10:] + future, [late]))) == []


def test_most_recent_keeps_the_newest_per_device(session: SparkSession) -> None:
    kept = transforms.most_recent(judged(session, STEADY, [reading(99, "b", 1, 1.0)]), 3)
    assert [(row.device, row.offset) for row in kept.orderBy("device", "offset").collect()] == [
        ("a", 17),
        ("a", 18),
        ("a", 19),
        ("b", 99),
    ]
