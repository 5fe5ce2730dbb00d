"""`edge-broker tail`: what is printed of sound logs, of odd ones, and of what a broker had better not send."""

from __future__ import annotations

import base64
import re

import pytest

from drupelet.errors import ConfigurationError
from edge_broker.protocol.api import FETCH
from edge_broker.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from edge_broker.protocol.record_batch import Record
from edge_broker.tools.tail import REREAD_S, BootTimes, boot_times_topics, parse_begin
from tests.support.record_batches import COMMIT, changed, make_batch, marker
from tests.support.scripted_broker import ScriptedBroker
from tests.support.tools.batches import NOW_MS, batch
from tests.support.tools.one_topic import OneTopic

ESCAPES = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]")


def offsets(ran):
    return [row["offset"] for row in ran.rows]


@pytest.mark.parametrize("codec", range(5))
def test_the_last_records_of_each_codec(run, codec):
    with ScriptedBroker(OneTopic([batch(0, 30, codec=codec), batch(30, 30, codec=codec)], 0, 60).answers) as broker:
        ran = run("tail", "t", "-n", 3, "--json", "--bootstrap", broker.bootstrap)
        assert offsets(ran) == [57, 58, 59]
        assert ran.rows[-1]["key"] == "k59"
        assert ran.rows[-1]["value"] == "v59"
        assert ran.status == 0


def test_gaps_of_compaction_and_markers_do_not_shorten_the_last_ones(run):
    """Offsets 3 to 93 are gone, 94 to 99 are markers: the last five records are further back than five offsets."""
    markers = [(at, at, bytes(marker(COMMIT, base_offset=at, producer_id=7))) for at in range(94, 100)]
    with ScriptedBroker(OneTopic([batch(0, 3), batch(92, 2), *markers], 0, 100).answers) as broker:
        ran = run("tail", "t", "-n", 5, "--json", "--bootstrap", broker.bootstrap)
        assert (ran.status, offsets(ran), ran.err) == (0, [0, 1, 2, 92, 93], "")


def test_a_batch_that_the_answer_cuts_off_is_fetched_again(run):
    batches = [batch(at, 10) for at in range(0, 100, 10)]
    size = len(batches[0][2])
    with ScriptedBroker(OneTopic(batches, 0, 100, cut=size * 3 // 2).answers) as broker:
        ran = run("tail", "t", "--from", 0, "--json", "--bootstrap", broker.bootstrap)
        assert offsets(ran) == list(range(100))


def test_a_batch_larger_than_what_is_asked_for_at_first(run):
    large = batch(0, 2, value=b"x" * 400_000)
    with ScriptedBroker(OneTopic([large, batch(2, 1)], 0, 3).answers) as broker:
        ran = run("tail", "t", "--json", "--bootstrap", broker.bootstrap)
        assert offsets(ran) == [0, 1, 2]
        assert len(ran.rows[0]["value"]) == 400_000


def test_a_value_is_cut_in_the_table(run):
    with ScriptedBroker(OneTopic([batch(0, 1, value=b"x" * 5000)], 0, 1).answers) as broker:
        out = run("tail", "t", "--bootstrap", broker.bootstrap).out
        assert len(out) < 1100
        assert out.endswith("x… (5,000 bytes)\n")


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_no_escape_code_of_a_record_reaches_the_terminal(run, form):
    nasty = "\x1b]0;title\x07\x1b[2J \x9b31m \u202e \x7f\r".encode() + b"\xff\x9b"
    whole = "\x1b[31m\x9b31m\u202e\x7f".encode()
    entries = [(nasty, whole, NOW_MS), (None, None, NOW_MS), (b"", "grüße °C".encode(), NOW_MS)]
    with ScriptedBroker(OneTopic([(0, 2, bytes(make_batch(entries)))], 0, 3).answers) as broker:
        ran = run("tail", "t", *form, "--bootstrap", broker.bootstrap)
        assert not ESCAPES.search(ran.out)
        assert "grüße °C" in ran.out
        if form:
            assert base64.b64decode(ran.rows[0]["key_base64"]) == nasty
            assert ran.rows[0]["value"].encode() == whole
            assert (ran.rows[1]["key"], ran.rows[1]["value"], ran.rows[2]["key"]) == (None, None, "")
        else:
            assert "(null)  (null)" in ran.out


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        (lambda one: changed(one, 70, b"\xff", crc=False), "t-0 offsets 10 to 19: the batch does not match its CRC"),
        (lambda one: changed(one, 61, b"\xff\xff"), "t-0 offsets 10 to 19: the batch cannot be unpacked"),
        (lambda one: changed(one, 22, b"\x07"), "There is no compression codec 7"),
    ],
)
def test_a_batch_that_cannot_be_read_costs_itself_alone(run, broken, said):
    middle = batch(10, 10)
    batches = [batch(0, 10), (10, 19, broken(middle[2])), batch(20, 10)]
    with ScriptedBroker(OneTopic(batches, 0, 30).answers) as broker:
        ran = run("tail", "t", "--from", 0, "--json", "--bootstrap", broker.bootstrap)
        assert {*range(10), *range(20, 30)} <= set(offsets(ran))
        assert said in ran.err
        assert ran.status == 1


def test_what_is_gone_is_said_and_reading_goes_on(run):
    topic = OneTopic([batch(50, 10)], 50, 60)
    with ScriptedBroker(topic.answers) as broker:
        ran = run("tail", "t", "--from", 10, "--json", "--bootstrap", broker.bootstrap)
        assert (ran.status, offsets(ran)) == (0, list(range(50, 60)))
        assert "t-0 offset 10 is not there: it has 50 to 59" in ran.err


def test_an_end_that_is_never_sent_ends_the_command(run):
    with ScriptedBroker(OneTopic([batch(0, 10)], 0, 1000).answers) as broker:
        ran = run("tail", "t", "--from", 0, "--json", "--bootstrap", broker.bootstrap)
        assert (ran.status, offsets(ran)) == (1, list(range(10)))
        assert "offsets 10 to 999 are not sent" in ran.err


def test_bytes_that_are_no_batch(run):
    topic = OneTopic([], 0, 5)
    garbage = PartitionData(partition_index=0, high_watermark=5, records=memoryview(b"\x00" * 100))
    answer = FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[garbage])])
    with ScriptedBroker({**topic.answers, FETCH: lambda _: answer}) as broker:
        ran = run("tail", "t", "--bootstrap", broker.bootstrap)
        assert ran.status == 1
        assert "no batch of version 2" in ran.err


def test_number_bounds_what_is_read_from_an_offset(run):
    with ScriptedBroker(OneTopic([batch(0, 50)], 0, 50).answers) as broker:
        ran = run("tail", "t", "--from", 7, "-n", 2, "--json", "--bootstrap", broker.bootstrap)
        assert offsets(ran) == [7, 8]
        assert run("tail", "t", "-n", 0, "--bootstrap", broker.bootstrap) == (0, "", "")


def test_times_and_offsets():
    assert parse_begin("4711", NOW_MS) == (4711, False)
    assert parse_begin("15m", NOW_MS) == (NOW_MS - 900_000, True)
    assert parse_begin("1970-01-01T00:00:02", NOW_MS) == (2000, True)
    assert parse_begin("1970-01-01T02:00:00+02:00", NOW_MS) == (0, True)
    for wrong in ("", "-5", "10x", "yesterday", "2026-13-01", "١٢", "9" * 30):
        with pytest.raises(ConfigurationError, match="write an offset as 4711"):
            parse_begin(wrong, NOW_MS)


def of_boot(*headers: tuple[str, bytes]) -> Record:
    return Record(0, 5, b"k", b"v", tuple(headers))


MARK = (("boot_id", b"a"), ("boot_time_ms", b"7000"))


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        (MARK, NOW_MS + 7_000),
        ((*MARK, ("time_unit", b"received")), NOW_MS + 7_000),
        ((*MARK, ("time_unit", b"ms")), None),  # the device's own time
        ((*MARK, ("time_unit", b"ms"), ("dead_letter.reason", b"not_json")), NOW_MS + 7_000),  # has the time of receipt
        ((), None),
        (MARK[:1], None),
        ((("boot_id", b"b"), MARK[1]), -1),
        ((MARK[0], ("boot_time_ms", b"-7")), -1),
        ((MARK[0], ("boot_time_ms", b"9" * 400)), -1),
        ((MARK[0], ("boot_time_ms", "\u0663".encode())), -1),
        ((("boot_id", b"\xff"), MARK[1]), -1),
    ],
)
def test_a_time_is_corrected_by_its_boot_and_nothing_else(headers, expected):
    boots = BootTimes("t", lambda _: {"a": NOW_MS})
    assert boots.corrected_ms(of_boot(*headers)) == expected


def test_boot_times_are_read_only_where_a_record_needs_them_and_again_while_its_boot_is_not_known():
    asked: list[str] = []
    known: dict[str, int] = {}
    now_s = [0.0]

    def read(topic: str) -> dict[str, int]:
        asked.append(topic)
        return dict(known)

    boots = BootTimes("plant-7.pi-1.logs", read, lambda: now_s[0])
    boots.corrected_ms(of_boot())
    assert asked == []
    assert [boots.corrected_ms(of_boot(*MARK)) for _ in range(3)] == [-1, -1, -1]
    assert asked == ["plant-7.pi-1.logs"]
    known["a"] = NOW_MS
    assert boots.corrected_ms(of_boot(*MARK)) == -1, "not at every record"
    now_s[0] = REREAD_S
    assert [boots.corrected_ms(of_boot(*MARK)) for _ in range(3)] == [NOW_MS + 7_000] * 3
    assert len(asked) == 2


def test_boot_times_of_a_mirrored_topic_are_those_of_its_site_first():
    assert boot_times_topics("logs") == ["boot_times"]
    assert boot_times_topics("plant-7.pi-1.logs") == ["plant-7.pi-1.boot_times", "plant-7.boot_times", "boot_times"]
