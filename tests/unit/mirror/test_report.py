"""How a mirror stands: what is summed, how it reads, and what comes back from its JSON."""

from __future__ import annotations

import json

import pytest

from kafka_wire.records.batches import pieces_of
from mirror.status.group_report import told_by
from mirror.status.report import (
    TOLD_BY_MIRROR,
    LinkStatus,
    PartitionStatus,
    Report,
    SideStatus,
    beyond,
    read,
    topics_of,
)
from mirror.status.status_text import text
from mirror.text_tables import bytes_text, count_text, duration_text
from tests.unit.mirror.ends import MemorySource, record

PARTITIONS = (
    PartitionStatus("alarms", 0, 5, 5, 0, 0, estimated=False, lag_s=0.0, records_s=0.0, bytes_s=0.0, shrinks_s=0.0),
    PartitionStatus("readings", 0, 90, 30, 60, 6000, True, 12.0, 20.0, 2000.0, 10.0),
    PartitionStatus("readings", 1, 50, 10, 40, 4000, False, 700.0, 5.0, 500.0, 0.0, "not there"),
)


def report(partitions=PARTITIONS, troubles=()):
    return Report(
        told_by=TOLD_BY_MIRROR,
        time_ms=1,
        group="edge-mirror-lab",
        source=SideStatus("s:1", "up", 10, 2_000_000),
        target=SideStatus("t:2", "in trouble", 1_500_000, 900),
        link=LinkStatus(125_000, 300.0, True, 1000, 64_000, 7.0),
        up_s=90.0,
        buffered_bytes=2000,
        troubles=troubles,
        topics=topics_of(partitions, {"readings": "lab.readings", "alarms": "lab.alarms"}),
        partitions=partitions,
    )


def test_a_topic_is_the_sum_of_its_partitions():
    alarms, readings = report().topics
    assert (alarms.lag_records, alarms.drain_s, alarms.troubled) == (0, 0.0, 0)
    assert (readings.partitions, readings.lag_records, readings.lag_bytes, readings.lag_s) == (2, 100, 10_000, 700.0)
    assert (readings.records_s, readings.drain_s, readings.troubled) == (25.0, 10.0, 1)
    assert readings.lag_bytes_estimated
    assert readings.target_name == "lab.readings"


def test_what_nobody_knows_is_none_and_no_zero():
    unknown = PartitionStatus("readings", 0, None, 7, None)
    [topic] = topics_of([unknown], {})
    assert topic[3:] == (None, None, False, None, None, None, None, None, 0)
    [topic] = topics_of([unknown, PartitionStatus("readings", 1, 9, 7, 2)], {})
    assert (topic.lag_records, topic.lag_bytes, topic.lag_bytes_estimated, topic.drain_s) == (2, None, True, None)


def test_what_is_told_is_read_again():
    told = report(troubles=["target: away"])
    again = read(told.as_json(running=True))
    assert again == told._replace(topics=list(told.topics), partitions=list(told.partitions))
    assert json.loads(told.as_json(running=True))["running"] is True


@pytest.mark.parametrize("said", ["", "[]", "{}", '{"version":2}', '{"version":1,"topics":3}', "x" * 100])
def test_what_is_no_report_is_refused(said):
    with pytest.raises(ValueError, match=r"no report|another|version|JSON|Expecting"):
        read(said)


def test_a_table_for_a_person():
    assert text(report(troubles=["target ack: none\x1b[2J for 7 s"])).split("\n") == [
        "edge-mirror-lab, runs for 1 min 30 s",
        "source  s:1, up, 10 B sent to it and 2 MB received",
        "target  t:2, in trouble, 1.5 MB sent to it and 900 B received",
        "link    carries 125 kB/s, round trip 300 ms, loses segments, no acknowledgement for 7 s, "
        "1 kB of at most 64 kB under way, 2 kB read and not yet acknowledged",
        "TROUBLE target ack: none\\x1b[2J for 7 s",
        "",
        "TOPIC     PARTITIONS  LAG   BYTES       OLDEST  RECORDS/S  BYTES/S  DONE IN  IN TROUBLE",
        "alarms             1    0     0 B            -          0      0 B        -           -",
        "readings           2  100  ~10 kB  11 min 40 s         25   2.5 kB     10 s      1 of 2",
    ]


def test_where_there_is_little_room_those_furthest_behind_are_shown():
    shown = text(report(), rows_max=8).split("\n")
    assert len(shown) <= 8
    assert shown[-2].startswith("readings")
    assert shown[-1] == "and 1 more topics with less lag"


@pytest.mark.parametrize(
    ("lag_max", "lag_s_max", "said"),
    [
        (None, None, []),
        (100, 700, []),
        (99, None, ["readings lags by 100 records, more than 99"]),
        (None, 600, ["readings lags by 700 s, more than 600 s"]),
    ],
)
def test_what_is_further_behind_than_it_may_be(lag_max, lag_s_max, said):
    assert beyond(report(), lag_max, lag_s_max) == said


def test_the_first_batch_behind_a_position_tells_age_and_size():
    batches = MemorySource([record(o) for o in range(1000, 1010)]).batches(1004)
    first = next(pieces_of(memoryview(batches), 1004))
    behind = PartitionStatus("readings", 0, 1010, 1004, 6)
    told = told_by(behind, first, 61_004)
    assert (told.lag_s, told.estimated, told.lag_bytes) == (60.0, True, 6 * len(first.batch))
    assert told_by(behind, first, 500).lag_s is None  # it was written by a clock that is ahead
    assert told_by(behind, None, 61_004) == behind


@pytest.mark.parametrize(
    ("shown", "said"),
    [
        (duration_text(None), "-"),
        (duration_text(0.0), "0 s"),
        (duration_text(3.25), "3.2 s"),
        (duration_text(60), "1 min"),
        (duration_text(3601), "1 h"),
        (duration_text(93_784), "1 d 2 h"),
        (bytes_text(999), "999 B"),
        (bytes_text(12_340_000), "12.3 MB"),
        (count_text(12_345.0), "12,345"),
        (count_text(0.25), "0.2"),
    ],
)
def test_figures_for_a_person(shown, said):
    assert shown == said
