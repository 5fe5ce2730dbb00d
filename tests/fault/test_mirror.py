"""The mirror between two brokers, all of them real processes, under kills, cuts and lost data.

Invariants:
1. Every record acknowledged at the source is at the target, or its offset is in a ledger record.
2. First occurrences at the target are in the source's order, partition by partition.
3. Partition, key, value, headers and timestamp are kept.
4. There are no superfluous copies.
5. The committed position is never beyond what the target has acknowledged.
6. `edge-mirror audit` proves it from both ends, each record by its digest.
"""

from __future__ import annotations

import json
from contextlib import contextmanager

import pytest

from tests.support.kafka_faults import AnswerThief
from tests.support.mirror_road import (
    FAST,
    EdgeMirror,
    Load,
    audit,
    bounds,
    create_topic,
    numbers,
    partition_count,
    produce,
    read_all,
    standings,
    two_mirrors,
    wait_mirrored,
)
from tests.support.processes import ApacheKafka, EdgeBroker, TcpProxy, free_port, wait_until

KILLS = 5
LOSSES = 6
PARTITIONS = 3


@pytest.fixture
def broker_class(request):
    return {"edge": EdgeBroker, "kafka": ApacheKafka}[request.config.getoption("--broker")]


@pytest.fixture
def source(broker_class, tmp_path):
    with broker_class(tmp_path, name="source") as process:
        yield process


@pytest.fixture
def target(broker_class, tmp_path):
    with broker_class(tmp_path, name="target") as process:
        yield process


def content(records):
    return [(record.timestamp, record.key, record.value, record.headers) for record in records]


def acked(mirror):
    return mirror.metric("edge_mirror_records_total")


def assert_proven(source, target):
    found = audit(source.bootstrap, target.bootstrap)
    assert found.proven, found.text
    return found.partitions


def assert_each_once(load, source, target):
    for partition, acked in load.acked.items():
        found = read_all(target.bootstrap, "lab.readings", partition)
        assert set(acked) <= set(numbers(found))
        assert content(found) == content(read_all(source.bootstrap, "readings", partition))
    assert_proven(source, target)


@pytest.mark.night  # so do the rounds of test_mirror_rounds.py, of which a kill is the most frequent act
def test_kills_under_load_lose_nothing(source, target, tmp_path):
    create_topic(source.bootstrap, "readings", PARTITIONS)
    mirror = EdgeMirror(tmp_path, source.bootstrap, target.bootstrap, site="lab", settings=FAST)
    with Load(source.bootstrap, "readings", PARTITIONS) as load:
        for _ in range(KILLS):
            before = bounds(target.bootstrap, "lab.readings")[1]
            mirror.start()
            wait_until(lambda at=before: bounds(target.bootstrap, "lab.readings")[1] > at + 100, 20, "mirror at work")
            mirror.kill()
    with mirror:
        wait_mirrored(target.bootstrap, "lab.readings", {p: len(acked) for p, acked in load.acked.items()})
        wait_until(lambda: mirror.get("/health")[0] == 200, 10, "healthy")
    assert_each_once(load, source, target)
    assert mirror.events("duplicates") == []
    rows = standings(source.bootstrap)
    assert [(row["partition"], row["lag"]) for row in rows] == [(p, 0) for p in range(PARTITIONS)]


def test_a_kill_repeats_nothing_though_no_position_was_committed(source, target, tmp_path):
    create_topic(source.bootstrap, "readings", 1)
    settings = {**FAST, "commit_interval_ms": 3_600_000, "batch_bytes_max": 4096}
    mirror = EdgeMirror(tmp_path, source.bootstrap, target.bootstrap, site="lab", settings=settings)
    produce(source.bootstrap, "readings", 0, 300)
    mirror.start()
    wait_mirrored(target.bootstrap, "lab.readings", {0: 300})
    mirror.kill()
    produce(source.bootstrap, "readings", 300, 400)
    with mirror:
        wait_mirrored(target.bootstrap, "lab.readings", {0: 400})
        wait_until(lambda: mirror.metric("edge_mirror_records_total") >= 100, 10, "all acknowledged")
    assert numbers(read_all(target.bootstrap, "lab.readings")) == list(range(400))
    assert_proven(source, target)


@pytest.mark.night  # the next shows both with two that share a name, and the rounds kill the one of two that writes
def test_a_second_mirror_of_the_site_stands_by_and_takes_over(source, target, tmp_path):
    create_topic(source.bootstrap, "readings", PARTITIONS)
    first, second = two_mirrors(tmp_path, source.bootstrap, target.bootstrap)
    with Load(source.bootstrap, "readings", PARTITIONS) as load:
        first.start()
        wait_until(lambda: bounds(target.bootstrap, "lab.readings")[1] > 100, 20, "the first at work")
        second.start()
        wait_until(lambda: second.events("standby_role_assigned"), 20, "the second standing by")
        assert not first.events("standby_entered")
        first.kill()
        end = bounds(target.bootstrap, "lab.readings")[1]
        wait_until(lambda: bounds(target.bootstrap, "lab.readings")[1] > end + 100, 20, "the second at work")
        first.start()
        wait_until(lambda: first.events("standby_role_assigned"), 20, "the first standing by")
    with second:
        wait_mirrored(target.bootstrap, "lab.readings", {p: len(acked) for p, acked in load.acked.items()})
    first.stop()
    assert_each_once(load, source, target)


def test_two_mirrors_with_one_name_do_no_harm(source, target, tmp_path):
    create_topic(source.bootstrap, "readings", PARTITIONS)
    both = [EdgeMirror(tmp_path / name, source.bootstrap, target.bootstrap, site="lab", settings=FAST) for name in "ab"]
    with Load(source.bootstrap, "readings", PARTITIONS) as load:
        both[0].start()
        wait_until(lambda: bounds(target.bootstrap, "lab.readings")[1] > 100, 20, "the first at work")
        both[1].start()
        wait_until(lambda: both[0].events("standby_role_assigned"), 20, "the first standing by")
        end = bounds(target.bootstrap, "lab.readings")[1]
        wait_until(lambda: bounds(target.bootstrap, "lab.readings")[1] > end + 100, 20, "the second at work")
    wait_mirrored(target.bootstrap, "lab.readings", {p: len(acked) for p, acked in load.acked.items()})
    for one in both:
        one.stop()
    assert_each_once(load, source, target)


@pytest.mark.night  # test_a_kill_repeats_nothing_… shows it of a harder end, and the rounds of clean ones
def test_clean_stop_and_start_repeats_nothing(source, target, tmp_path):
    create_topic(source.bootstrap, "readings", PARTITIONS)
    mirror = EdgeMirror(tmp_path, source.bootstrap, target.bootstrap, site="lab", settings=FAST)
    with Load(source.bootstrap, "readings", PARTITIONS) as load:
        for _ in range(3):
            before = bounds(target.bootstrap, "lab.readings")[1]
            with mirror:
                wait_until(lambda at=before: bounds(target.bootstrap, "lab.readings")[1] > at, 20, "mirror at work")
    with mirror:
        wait_mirrored(target.bootstrap, "lab.readings", {p: len(acked) for p, acked in load.acked.items()})
    for partition in range(PARTITIONS):
        assert content(read_all(target.bootstrap, "lab.readings", partition)) == content(
            read_all(source.bootstrap, "readings", partition)
        )
    assert_proven(source, target)


@contextmanager
def behind_a_link(broker_class, tmp_path):
    """A proxy, the target behind it, and a source."""
    port = free_port()
    with (
        TcpProxy(f"127.0.0.1:{port}") as link,
        broker_class(tmp_path, name="target", port=port, advertise=link.bootstrap) as target,
        broker_class(tmp_path, name="source") as source,
    ):
        yield link, target, source


def test_link_cut_and_source_killed_meanwhile(broker_class, tmp_path):
    with behind_a_link(broker_class, tmp_path) as (link, target, source):
        create_topic(source.bootstrap, "readings", PARTITIONS)
        mirror = EdgeMirror(tmp_path, source.bootstrap, link.bootstrap, site="lab", settings=FAST)
        with mirror:
            with Load(source.bootstrap, "readings", PARTITIONS) as load:
                wait_until(lambda: bounds(link.bootstrap, "lab.readings")[1] > 200, 20, "mirror at work")
                link.cut("refuse")
                wait_until(lambda: mirror.get("/health")[0] == 503, 20, "the cut noticed", poll_s=0.1)
                source.kill()
                source.start()
                source_end = bounds(source.bootstrap, "readings")[1]
                wait_until(lambda: bounds(source.bootstrap, "readings")[1] > source_end, 20, "load goes on")
                link.restore()
                link.drop_connections()
                wait_until(lambda: bounds(link.bootstrap, "lab.readings")[1] > source_end, 30, "the backlog drained")
            wait_mirrored(link.bootstrap, "lab.readings", {p: len(acked) for p, acked in load.acked.items()})
            wait_until(lambda: mirror.get("/health")[0] == 200, 20, "healthy again")
            assert mirror.metric("edge_mirror_ledger_records_total") == 0
        assert_each_once(load, source, link)
        assert target.running
        assert_proven(source, link)


@pytest.mark.parametrize("is_young", [True, False])
def test_answers_that_are_lost_double_nothing(is_young, tmp_path):
    """What is young is sent again as it is, and no life begins; what is older is fenced and looked for."""
    port, thief = free_port(), AnswerThief()
    with (
        TcpProxy(f"127.0.0.1:{port}", make_filter=thief) as link,
        ApacheKafka(tmp_path, name="target", port=port, advertise=link.bootstrap) as target,
        EdgeBroker(tmp_path, name="source") as source,
        EdgeMirror(tmp_path, source.bootstrap, link.bootstrap, site="lab", settings=FAST) as mirror,
    ):
        create_topic(source.bootstrap, "readings", 1)
        for number in range(LOSSES):
            thief.steal(int(number > 0))  # the first batch waits for the state topic, whose answers are not meant
            produce(source.bootstrap, "readings", 100 * number, 100 * number + 100, is_young=is_young)
            wait_until(lambda end=100 * number + 100: acked(mirror) == end, 40, "acknowledged")
            assert thief.stolen == int(number > 0)
        assert (len(mirror.events("session_started topic=readings")) == 1) == is_young
        wait_until(lambda: mirror.get("/health")[0] == 200, 20, "well")
        assert numbers(read_all(target.bootstrap, "lab.readings")) == list(range(100 * LOSSES))
        assert_proven(source, target)


def test_target_killed_and_blackholed(broker_class, tmp_path):
    with behind_a_link(broker_class, tmp_path) as (link, target, source):
        create_topic(source.bootstrap, "readings", 1)
        settings = {**FAST, "request_timeout_ms": 3000, "delivery_timeout_ms": 4000}
        mirror = EdgeMirror(tmp_path, source.bootstrap, link.bootstrap, site="lab", settings=settings)
        with mirror:
            with Load(source.bootstrap, "readings", 1) as load:
                wait_until(lambda: bounds(link.bootstrap, "lab.readings")[1] > 200, 20, "mirror at work")
                target.kill()
                target.start()
                end = bounds(link.bootstrap, "lab.readings")[1]
                wait_until(lambda: bounds(link.bootstrap, "lab.readings")[1] > end + 100, 30, "at work again")
                restarts = mirror.metric("edge_mirror_restarts_total")
                link.cut("blackhole")
                wait_until(
                    lambda: mirror.metric("edge_mirror_restarts_total") > restarts, 20, "producer given up", poll_s=0.1
                )
                link.restore()
                end = bounds(link.bootstrap, "lab.readings")[1]
                wait_until(lambda: bounds(link.bootstrap, "lab.readings")[1] > end + 500, 30, "at work again")
            wait_mirrored(link.bootstrap, "lab.readings", {0: len(load.acked[0])})
        assert_each_once(load, source, link)


def test_retention_past_the_position_is_written_down(broker_class, tmp_path):
    short = {
        "log.retention.ms": 1500,
        "log.segment.bytes": 1048576,
        "log.retention.check.interval.ms": 200,
        "log.initial.task.delay.ms": 200,
        "log.segment.delete.delay.ms": 100,
    }
    settings = short if broker_class is ApacheKafka else {k: v for k, v in short.items() if "delay" not in k}
    with (
        broker_class(tmp_path, name="source", settings=settings) as source,
        broker_class(tmp_path, name="target") as target,
    ):
        create_topic(source.bootstrap, "readings", 1)
        mirror = EdgeMirror(tmp_path, source.bootstrap, target.bootstrap, site="lab", settings=FAST)
        with mirror:
            wait_until(lambda: mirror.events("session_started"), 30, "the mirror ready to read")
            produce(source.bootstrap, "readings", 0, 10)
            wait_mirrored(target.bootstrap, "lab.readings", {0: 10})
        produce(source.bootstrap, "readings", 10, 3010, padding=1000)
        wait_until(lambda: bounds(source.bootstrap, "readings")[0] > 10, 30, "the source's retention", poll_s=0.1)
        produce(source.bootstrap, "readings", 3010, 3020)
        with mirror:
            wait_until(lambda: read_all(target.bootstrap, "lab.__edge_ledger"), 30, "a ledger record", poll_s=0.2)
            wait_until(lambda: standings(source.bootstrap)[0]["lag"] == 0, 30, "all settled", poll_s=0.5)
            ledger = read_all(target.bootstrap, "lab.__edge_ledger")
            assert mirror.metric("edge_mirror_ledger_records_total") == len(ledger)
        there = set(numbers(read_all(target.bootstrap, "lab.readings")))
        lost = set()
        for record in ledger:
            entry = json.loads(record.value)
            assert list(entry) == [
                "version", "id", "cause", "topic", "partition", "first_offset", "last_offset", "records", "bytes",
                "time_ms", "node",
            ]  # fmt: skip
            assert (entry["version"], entry["topic"], entry["partition"]) == (1, "readings", 0)
            assert entry["cause"] == "source_offset_out_of_range"
            assert record.key.decode() == entry["id"]
            assert entry["records"] == entry["last_offset"] - entry["first_offset"] + 1
            lost |= set(range(entry["first_offset"], entry["last_offset"] + 1))
        assert set(range(10)) <= there
        assert lost
        assert there | lost == set(range(3020))
        assert not there & lost
        [one] = assert_proven(source, target)
        assert one["source"]["ledgered"] == len(lost)


def test_new_topics_and_partition_counts_are_picked_up(source, target, tmp_path):
    settings = {**FAST, "policy": "identity"}
    with EdgeMirror(tmp_path, source.bootstrap, target.bootstrap, topics="read.*", settings=settings):
        create_topic(source.bootstrap, "other", 1)
        create_topic(source.bootstrap, "readings_windows", 4, {"cleanup.policy": "compact"})
        produce(source.bootstrap, "other", 0, 10)
        produce(source.bootstrap, "readings_windows", 0, 10, partition=3)
        wait_mirrored(target.bootstrap, "readings_windows", {3: 10})
    assert partition_count(target.bootstrap, "readings_windows") == 4
    assert partition_count(target.bootstrap, "other") == 0


def test_stops_cleanly_while_neither_side_is_there(tmp_path):
    mirror = EdgeMirror(tmp_path, f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}", site="lab")
    with mirror:
        status, text = mirror.get("/health")
        assert status == 503
        assert "source" in text
    assert mirror.events("stopped")


def test_stops_cleanly_while_the_target_is_silent(source, broker_class, tmp_path):
    port = free_port()
    with (
        TcpProxy(f"127.0.0.1:{port}") as link,
        broker_class(tmp_path, name="target", port=port, advertise=link.bootstrap),
    ):
        create_topic(source.bootstrap, "readings", 1)
        settings = {**FAST, "stop_timeout_ms": 1000}
        mirror = EdgeMirror(tmp_path, source.bootstrap, link.bootstrap, site="lab", settings=settings)
        with mirror, Load(source.bootstrap, "readings", 1) as load:
            wait_until(lambda: bounds(link.bootstrap, "lab.readings")[1] > 200, 20, "mirror at work")
            link.cut("blackhole")
            wait_until(lambda: mirror.metric("edge_mirror_under_way_bytes") > 0, 20, "a batch under way", poll_s=0.1)
        link.restore()
        with mirror:
            wait_mirrored(link.bootstrap, "lab.readings", {0: len(load.acked[0])})
        assert_each_once(load, source, link)
