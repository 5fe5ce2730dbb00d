"""One sentence per trouble whatever the number of partitions that have it, and few log lines."""

from __future__ import annotations

import logging

import pytest

from mirror.status.problems import KINDS_MAX, LOG_S, Troubles


@pytest.fixture
def lines(caplog):
    caplog.set_level(logging.INFO, "mirror")

    def taken():
        said = [(record.msg, record.drupelet_fields) for record in caplog.records]
        caplog.clear()
        return said

    return taken


def test_partitions_with_the_same_trouble_are_one_sentence_and_a_side_goes_first():
    troubles = Troubles()
    for number in (11, 2, *range(20, 500)):
        troubles.note(f"t-{number}", "10.0.0.1:9092 refuses the connection", 0.0)
    troubles.note("target broker 1", "10.0.0.1:9092 refuses the connection", 0.0)
    troubles.note("target broker 2", "10.0.0.2:9092 refuses the connection", 0.0)
    troubles.note("t-7", "topic lab.t cannot grow to 12 partitions: no", 0.0)
    troubles.note("a-7", "topic lab.a cannot grow to 9 partitions: no", 0.0)
    troubles.note("t-9 source", "t-9 at 4711: a batch is damaged", 0.0)
    troubles.note("t-8 source", "t-8 at 12: a batch is damaged", 0.0)
    assert troubles.sentences() == [
        "target broker 1, t-2, t-11 and 480 more: 10.0.0.1:9092 refuses the connection",
        "target broker 2: 10.0.0.2:9092 refuses the connection",
        "a-7, t-7: topic lab.a cannot grow to 9 partitions: no",
        "t-8 source, t-9 source: t-8 at 12: a batch is damaged",
    ]


def test_of_many_with_one_trouble_one_line_is_written_and_then_how_many(lines):
    troubles = Troubles()
    for number in range(500):
        troubles.note(f"t-{number}", f"topic lab.t-{number} may not be written", 0.0)
    assert lines() == [("trouble", {"where": "t-0", "error": "topic lab.t-0 may not be written"})]
    troubles.tick(LOG_S - 1)
    assert lines() == []
    troubles.tick(LOG_S)
    ((event, fields),) = lines()
    assert (event, fields["times"], fields["where"]) == ("trouble", 499, "t-499")
    for number in range(500):
        troubles.note(f"t-{number}", "", LOG_S + 1)
    troubles.tick(3 * LOG_S)
    assert [(event, fields.get("times")) for event, fields in lines()] == [("well_again", None), ("well_again", 499)]
    assert not troubles
    troubles.tick(5 * LOG_S)
    assert not troubles._told


def test_what_comes_and_goes_all_the_time_is_told_twice_a_minute(lines):
    troubles = Troubles()
    for second in range(600):
        troubles.note("t-1", f"its last byte came {second}.3 s ago", float(second))
        troubles.note("t-1", "", second + 0.5)
        troubles.tick(second + 0.6)
    assert len(lines()) <= 2 * (600 / LOG_S + 1)


def test_troubles_of_ever_new_kinds_are_bounded(lines):
    troubles = Troubles()
    for number in range(1000):
        troubles.note(f"t-{number}", f"said {'x' * number}", 0.0)
    assert len(lines()) == KINDS_MAX + 1
    assert len(troubles) == 1000


def test_a_side_that_was_never_reached_is_no_news_until_it_is_in_trouble(lines):
    troubles = Troubles()
    troubles.start("target")
    assert troubles.sentences() == ["target: not reached yet"]
    troubles.note("source", "", 0.0)
    troubles.note("target", "away", 1.0)
    troubles.note("target", "away still", 2.0)
    assert [event for event, _ in lines()] == ["trouble"]
    troubles.note("target", "", 3.0)
    assert [event for event, _ in lines()] == ["well_again"]
