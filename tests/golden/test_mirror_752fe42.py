"""What the mirror at 752fe42 left at both ends is gone on with: nothing comes twice, nothing is left out.

`mirror_752fe42` has the data directories of a source and a target, what the mirror wrote there, and what it said.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from mirror.cli import main
from mirror.ledger.losses import encode, loss
from mirror.partition.source_offsets import read_commit
from mirror.partition.state_records import Reading, head_record, steps_record
from mirror.status.report import read as read_report
from tests.support.command import in_process
from tests.support.golden import GOLDEN, differences, expected, unpacked
from tests.support.mirror_road import FAST, EdgeMirror, bounds, read_all
from tests.support.processes import EdgeBroker, all_stopped, start_together, wait_until

DIRECTORY = GOLDEN / "mirror_752fe42"
ENDS, TRANSACTIONS = (expected(DIRECTORY / f"{name}.json") for name in ("ends", "transactions"))
FOREVER = {"log.retention.ms": -1, "producer.id.expiration.ms": 2_147_483_647}
TOPICS = "readings|state|old|big"
OF_NOW = {"time_ms", "servers", "lag_s", "lag_bytes", "rate_bytes_s", "round_trip_ms", "silent_s", "up_s"}


def heads(records: list[list[str]]) -> dict[tuple[str, int], dict[str, Any]]:
    """The last head of each partition, as JSON has it."""
    found = {}
    for key, value in records:
        if key.startswith("head:"):
            topic, partition = key.removeprefix("head:").rsplit(":", 1)
            found[topic, int(partition)] = json.loads(value)
    return found


def expanded(rows: list[list[int]]) -> list[tuple[int, int, int, int]]:
    """Steps as mirror/STATE.md describes them."""
    steps = [tuple(row) for row in rows[:1]]
    for records, source, epoch, target in rows[1:]:
        last = steps[-1]
        steps.append((last[0] + records, last[1] + records + source, last[2] + epoch, last[3] + records + target))
    return steps


@pytest.mark.parametrize("records", [ENDS["state"], TRANSACTIONS["state"]], ids=["fenced", "transactional"])
def test_the_state_topic_is_read_and_written_as_it_was(records: list[list[str]]) -> None:
    reading, written, chunks = Reading(None), dict(records), {}
    for key, value in records:
        reading.take(key.encode(), value.encode())
        if key.startswith("steps:"):
            _, topic, partition, chunk = key.split(":")
            chunks[topic, int(partition), int(chunk)] = json.loads(value)["steps"]
    stored = reading.partitions()
    assert {partition for partition, _ in stored.items()} == heads(records).keys() != set()
    for (topic, partition), then in heads(records).items():
        head, _, steps = stored[topic, partition]
        assert list(head.topics) == [then["target"], then["source_id"], then["target_id"]]
        assert (head.producer_id, head.producer_epoch, head.life) == tuple(
            then[name] for name in ("producer_id", "producer_epoch", "life")
        )
        assert list(head.end) == [then["records"], then["source_offset"], then["target_end"]]
        assert head.is_transactional == then.get("transactional", False)
        rows = chunks[topic, partition, then["chunks"][1]][: then["steps"]]
        assert [tuple(step) for step in steps] == expanded(rows)
        assert head_record((topic, partition), head) == _as_bytes(f"head:{topic}:{partition}", written)
        key, value = steps_record((topic, partition), then["chunks"][1], steps)
        assert key.decode() == f"steps:{topic}:{partition}:{then['chunks'][1]}"
        assert json.loads(value or b"") == {"version": 1, "steps": rows}


def _as_bytes(key: str, written: dict[str, str]) -> tuple[bytes, bytes]:
    return key.encode(), written[key].encode()


def test_some_state_is_of_each_kind() -> None:
    assert {head["version"] for head in heads(TRANSACTIONS["state"]).values()} == {2}
    assert {head["version"] for head in heads(ENDS["state"]).values()} == {1}
    assert {head["life"] for head in heads(ENDS["state"]).values()} > {0}
    assert any(head["steps"] > 1 for head in heads(ENDS["state"]).values())


@pytest.mark.parametrize("made", [ENDS, TRANSACTIONS], ids=["fenced", "transactional"])
def test_positions_in_the_group_are_read_and_written_as_they_were(made: dict[str, Any]) -> None:
    assert made["group"]
    for offset, metadata in made["group"].values():
        commit, then = read_commit(offset, metadata), json.loads(metadata)
        assert not commit.by_hand
        assert (commit.offset, commit.target_end, commit.topic_id) == (offset, then["target_end"], then["topic_id"])
        assert commit.metadata() == metadata


def test_losses_are_written_as_they_were() -> None:
    causes = set()
    for _, _, key, value, _ in ENDS["ledger"]:
        then = json.loads(value)
        causes.add(then["cause"])
        made = loss(
            then["cause"],
            then["topic"],
            then["partition"],
            then["first_offset"],
            then["last_offset"] + 1,
            records=then["records"],
            size_bytes=then["bytes"],
            time_ms=then["time_ms"],
            node=then["node"],
            occasion=key.split(":")[4] if key.count(":") > 3 else "",
        )
        assert encode(made) == (key.encode(), value.encode())
    assert causes == {"record_refused", "source_offset_out_of_range"}


@pytest.mark.parametrize(
    "then", [ENDS["asked"]["/status"], TRANSACTIONS["asked"]["/status"]], ids=["fenced", "transactional"]
)
def test_a_report_is_read_and_told_as_it_was(then: dict[str, Any]) -> None:
    report = read_report(json.dumps(then))
    assert differences(then, json.loads(report.as_json())) == []


class Ends(NamedTuple):
    """Both brokers, and where the mirror keeps what it writes."""

    source: EdgeBroker
    target: EdgeBroker
    directory: Path


@contextmanager
def served(tmp_path: Path) -> Iterator[Ends]:
    source, target = (
        EdgeBroker(
            tmp_path, name=name, data_dir=unpacked(DIRECTORY / f"{name}.tar.xz", tmp_path / name), settings=FOREVER
        )
        for name in ("source", "target")
    )
    with all_stopped(source, target):
        start_together([source, target])
        yield Ends(source, target, tmp_path)


def found(bootstrap: str, name: str) -> list[Any]:
    """Each record as offset, timestamp, key, value, headers."""
    topic, _, partition = name.rpartition("-")
    return [
        [
            one.offset,
            one.timestamp,
            (one.key or b"").decode(),
            None if one.value is None else one.value.decode(),
            [[key, (data or b"").decode()] for key, data in one.headers],
        ]
        for one in read_all(bootstrap, topic, int(partition))
    ]


def test_the_next_mirror_goes_on_where_it_stopped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def asked(*words: str) -> Any:
        in_process(main)([*words, "--json", "--site", "lab"])
        return json.loads(capsys.readouterr().out)

    with served(tmp_path) as ends:
        both = ["--source", ends.source.bootstrap, "--target", ends.target.bootstrap, "--topics", TOPICS]
        for words, then in ENDS["said"].items():
            if not words.startswith("status"):
                assert differences(then, asked(*words.split(), *both), OF_NOW) == [], words
        for end in ("source", "target"):
            told = asked("audit", *both, f"--{end}-digests", str(DIRECTORY / f"{end}.digests"))
            assert told["proven"], told
        then, now = ENDS["said"]["status --source"], asked("status", "--source", ends.source.bootstrap)
        assert differences(then, now, OF_NOW) == []
        with EdgeMirror(
            tmp_path / "mirror", ends.source.bootstrap, ends.target.bootstrap, topics=TOPICS, site="lab", settings=FAST
        ) as mirror:
            wait_until(lambda: bounds(ends.target.bootstrap, "lab.readings")[1] >= 95, 30, "all mirrored")
            status = json.loads(mirror.get("/status")[1])
            metrics = mirror.get("/metrics")[1]
        target = ends.target.bootstrap
        expected_then: dict[str, list[Any]] = ENDS["records"]
        for name, then in expected_then.items():
            now = found(target, name)
            assert now[: len(then)] == then, name
            more = [json.loads(one[3]) if "ledger" in name else one[3].split()[0] for one in now[len(then) :]]
            assert more == ([str(n) for n in range(85, 95)] if name == "lab.readings-0" else []), name
        told = [[one[2], one[3]] for one in found(ends.source.bootstrap, "__edge_ledger-0")]
        assert told == [one[2:4] for one in ENDS["ledger"]]
        assert asked("audit", *both)["proven"]
    of_now = OF_NOW | {"position", "source_end", "wire_out_bytes", "wire_in_bytes", "topics", "partitions", "state"}
    of_now |= {"under_way_bytes", "under_way_bytes_max", "link"}
    then = ENDS["asked"]["/status"]
    assert differences(then, status, of_now) == []
    assert then["topics"][0].keys() <= status["topics"][0].keys()
    assert then["partitions"][0].keys() <= status["partitions"][0].keys()
    assert {line.split()[2] for line in ENDS["metrics"]} <= {
        line.split()[2] for line in metrics.splitlines() if line.startswith("# TYPE")
    }
