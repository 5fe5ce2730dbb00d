"""The mirror, and a source that forgets: a power cut behind its back, groups that are not loaded yet.

The source's data lies on the forgetful disk of `tests/fault/fuse_disk.py`.
"""

from __future__ import annotations

import json
import subprocess

import pytest

from tests.fault.disk import FuseDisk
from tests.support import mirror_road as road
from tests.support import runtimes
from tests.support.processes import EdgeBroker, wait_until

pytestmark = pytest.mark.root("fuse")
FAST = {"backoff_max_ms": 500, "refresh_interval_ms": 300, "commit_interval_ms": 200}


@pytest.fixture
def disk(tmp_path):
    with FuseDisk(tmp_path) as mounted:
        yield mounted


@pytest.fixture
def source(disk, tmp_path):
    # Else aiokafka's clients, the mirror's too, make a topic again that was deleted while they know it
    settings = {"auto.create.topics.enable": "false"}
    with EdgeBroker(tmp_path, name="source", data_dir=disk.mountpoint / "data", settings=settings) as process:
        yield process


@pytest.fixture
def target(tmp_path):
    with EdgeBroker(tmp_path, name="target") as process:
        yield process


@pytest.fixture
def mirror(source, target, tmp_path):
    return road.EdgeMirror(tmp_path, source.bootstrap, target.bootstrap, site="lab", settings=FAST)


OLD_KEYS = ("version", "sent_up_to", "target_end", "sent_times")


def position(source, topic="readings"):
    """Where the mirror's group stands, None while nobody knows."""
    command = [runtimes.console_script("edge-mirror"), "status", "--source", source, "--site", "lab", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    rows = json.loads(done.stdout)["partitions"] if done.returncode == 0 else []
    return next((row["position"] for row in rows if row["topic"] == topic), None)


def truncated(target):
    """What the mirror wrote down as lost at the source; the broker's own records tell of the same."""
    entries = [json.loads(record.value) for record in road.read_all(target.bootstrap, "lab.__edge_ledger")]
    return [entry for entry in entries if entry["cause"] == "source_truncated"]


def forget_a_tail(disk, source, first_lost):
    """Cut the power, and return where the log ends then; what was produced before the last clean stop is there."""
    disk.cut(source)
    source.start()
    end = road.bounds(source.bootstrap, "readings")[1]
    assert first_lost <= end < 1000, "the cut took nothing of what was not synced"
    return end


def fill(source, synced):
    """Produce 1,000 records, of which the disk has `synced` for sure."""
    road.create_topic(source.bootstrap, "readings", 1, {"edge.durability": "kernel"})
    road.produce(source.bootstrap, "readings", 0, synced)
    source.stop()
    source.start()
    for first in range(synced, 1000, 10):
        road.produce(source.bootstrap, "readings", first, first + 10)


def assert_all_there_and_written_down(source, target, end):
    """Whatever was acknowledged is at the target; the ledger names what only the target has, and an audit both."""
    assert road.numbers(road.read_all(target.bootstrap, "lab.readings")) == list(range(1200))
    [entry] = truncated(target)
    assert (entry["topic"], entry["partition"]) == ("readings", 0)
    assert (entry["first_offset"], entry["last_offset"], entry["records"]) == (end, 999, 1000 - end)
    proven = road.audit(source.bootstrap, target.bootstrap)
    assert proven.proven, proven.text
    assert [one["target"]["target_only"] for one in proven.partitions] == [1000 - end]


@pytest.mark.parametrize("older", [False, True], ids=["", "position of an older version"])
def test_records_that_took_the_place_of_lost_ones_arrive(disk, source, target, mirror, older):
    fill(source, 900)
    with mirror:
        road.wait_mirrored(target.bootstrap, "lab.readings", {0: 1000})
        wait_until(lambda: position(source.bootstrap) == 1000, 20, "the position committed", poll_s=0.2)
    if older:
        road.rewrite_commit(source.bootstrap, lambda fields: {key: fields[key] for key in OLD_KEYS})
    end = forget_a_tail(disk, source, 900)
    road.produce(source.bootstrap, "readings", 1000, 1200)
    assert road.bounds(source.bootstrap, "readings")[1] > 1000, "the new end tells nothing"
    with mirror:
        wait_until(lambda: position(source.bootstrap) == end + 200, 30, "all read again", poll_s=0.2)
        wait_until(lambda: truncated(target), 20, "the ledger mirrored", poll_s=0.2)
        assert mirror.metric("edge_mirror_duplicate_records_total") == 0
    assert_all_there_and_written_down(source, target, end)


def test_a_source_that_loses_its_end_under_a_running_mirror(disk, source, target, mirror):
    fill(source, 900)
    with mirror:
        road.wait_mirrored(target.bootstrap, "lab.readings", {0: 1000})
        end = forget_a_tail(disk, source, 900)
        road.produce(source.bootstrap, "readings", 1000, 1200)
        road.wait_mirrored(target.bootstrap, "lab.readings", {0: 1200})
        wait_until(lambda: truncated(target), 20, "the ledger mirrored", poll_s=0.2)
        wait_until(lambda: mirror.get("/health")[0] == 200, 20, "well again")
    assert_all_there_and_written_down(source, target, end)


def test_a_topic_made_anew_is_mirrored_from_its_start(source, target, mirror):
    road.create_topic(source.bootstrap, "readings", 1)
    road.produce(source.bootstrap, "readings", 0, 500)
    with mirror:
        road.wait_mirrored(target.bootstrap, "lab.readings", {0: 500})
    kept = road.committed(source.bootstrap)
    road.delete_topic(source.bootstrap, "readings")
    road.create_topic(source.bootstrap, "readings", 1)
    road.produce(source.bootstrap, "readings", 500, 1200)
    road.commit(source.bootstrap, kept)  # as a broker would tell it that kept a deleted topic's positions
    with mirror:
        road.wait_mirrored(target.bootstrap, "lab.readings", {0: 1200})
        assert mirror.metric("edge_mirror_ledger_records_total") == 0
        assert mirror.metric("edge_mirror_duplicate_records_total") == 0
        road.delete_topic(source.bootstrap, "readings")
        road.create_topic(source.bootstrap, "readings", 1)
        road.produce(source.bootstrap, "readings", 1200, 2200)
        wait_until(
            lambda: set(road.numbers(road.read_all(target.bootstrap, "lab.readings"))) == set(range(2200)),
            30,
            "the third topic of that name mirrored",
            poll_s=0.5,
        )


def test_positions_that_are_still_loaded_are_waited_for(disk, source, target, mirror):
    road.create_topic(source.bootstrap, "readings", 1)
    road.produce(source.bootstrap, "readings", 0, 500)
    with mirror:
        road.wait_mirrored(target.bootstrap, "lab.readings", {0: 500})
        wait_until(lambda: position(source.bootstrap) == 500, 20, "the position committed", poll_s=0.2)
        source.stop()
        disk.cut(mirror, keep=True)  # also the kernel's cache is empty now
    disk.hang(["read"], r"/__consumer_offsets-\d+/\d+\.log$")
    try:
        source.start()
        mirror.start()
        wait_until(lambda: disk.state()["hanging"], 20, "the groups are being loaded")
        wait_until(
            lambda: "COORDINATOR_LOAD_IN_PROGRESS" in mirror.get("/health")[1], 20, "the mirror says what it waits for"
        )
    finally:
        disk.release()
    with mirror:
        wait_until(lambda: mirror.get("/health")[0] == 200, 20, "well again")
        road.produce(source.bootstrap, "readings", 500, 510)
        road.wait_mirrored(target.bootstrap, "lab.readings", {0: 510})
        assert mirror.metric("edge_mirror_duplicate_records_total") == 0
    assert road.bounds(target.bootstrap, "lab.readings") == (0, 510)
    assert road.numbers(road.read_all(target.bootstrap, "lab.readings")) == list(range(510))
