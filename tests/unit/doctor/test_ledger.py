"""`edge-broker ledger`: what it prints, and the proof: it holds for what storage did, and for nothing less."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_broker.doctor import ledger
from edge_broker.doctor.directory import DataDirectory, PartitionFiles
from edge_broker.doctor.offset_account import Account, KnownLoss, Span, minus, overlaps, union
from edge_broker.protocol.record_batch import build_batch
from edge_broker.storage.files.atomic_files import encode_state
from edge_broker.storage.files.filesystem import Disk
from edge_broker.storage.log.partition_log import PartitionLog
from edge_broker.storage.log_store import LogStore
from edge_broker.storage.metadata.loss_records import CAUSES, Loss
from edge_broker.storage.metadata.topic_record import id_text
from edge_broker.storage.retention.segment_removal import RemovalRange, SegmentRemoval, delete_expired, remove_front
from edge_broker.testing.clock import NOW_MS
from edge_broker.testing.site import make_topic
from gateway.records import records as gateway_records
from mirror.ledger import losses as mirror_ledger
from tests.support.doctor_data.directory import flip, let_go, names
from tests.support.storage import append, batch, fill, ledger_record, open_store, sync, time_at

DAY_MS = 86_400_000


@pytest.fixture
def store(tmp_path) -> Iterator[LogStore]:
    store = open_store(Disk(), str(tmp_path / "data"))
    yield store
    let_go(store)


def log_of(store: LogStore, topic: str = "t", **config: str) -> PartitionLog:
    config = {"segment.bytes": "4096"} | {key.replace("_", "."): value for key, value in config.items()}
    return make_topic(store, topic, 1, config).partitions[0]


def loss(store: LogStore, cause: str, first: int, end: int | None, topic: str = "t", occasion: str = "") -> Loss:
    topic_id = id_text(store.topics[topic].topic_id)
    return Loss(cause, topic, topic_id, 0, first, end, None if end is None else end - first, 99, occasion=occasion)


def evict(log: PartitionLog, segments: int, cause: str = "evicted") -> None:
    going = [
        SegmentRemoval(segment, [RemovalRange(cause, segment.base_offset, following.base_offset)])
        for segment, following in zip(log.segments[:segments], log.segments[1:], strict=False)
    ]
    remove_front(log, going, time_at(NOW_MS))


def accounts(run, store: LogStore, *words: str) -> dict[str, dict[str, object]]:
    ran = run("ledger", "--prove", "--json", "--data-dir", store.data_dir, *words)
    found = {row["partition"]: row for row in ran.rows if row["kind"] == "account"}
    assert ran.status == (1 if any(row["problems"] for row in found.values()) else 0), ran.out
    return found


def test_losses_are_listed_each_once(run, store):
    log_of(store)
    store.ledger.write([loss(store, "evicted", 0, 24), loss(store, "unsynced_cut", 30, None, occasion="3")])
    store.ledger.write([loss(store, "evicted", 0, 24)])
    ran = run("ledger", "--data-dir", store.data_dir)
    assert ran.status == 0
    head, first, second, last = ran.out.splitlines()
    assert head.split()[:5] == ["time", "cause", "where", "first", "last"]
    assert first.split()[1:7] == ["evicted", "t-0", "0", "23", "24", "99"]
    assert "  2  the disk or the topic's budget was full" in first
    assert second.split()[1:6] == ["unsynced_cut", "t-0", "30", "unknown", "unknown"]
    assert last.endswith("2 of 2 losses in __edge_ledger")


@pytest.mark.leaves("no record batch begins here")
@pytest.mark.parametrize(("replaced", "looked"), [(8, 11), (0, ledger.ATTEMPTS), (99, ledger.LOOKS)])
def test_a_look_during_which_compaction_went_on_is_no_attempt(monkeypatch, store, replaced, looked):
    """Ten looks find what does not add up, all do where it never ends; a segment changes during the first of them."""
    log = log_of(store, "c", cleanup_policy="compact")
    fill(log, 100)
    looks = itertools.count(1)

    def look(partition: PartitionFiles, entries: object) -> Account:
        account, number = Account(), next(looks)
        if number <= replaced:
            with open(partition.segments()[0].path, "ab") as file:
                file.write(bytes(1))
        if number <= 10 or replaced == 99:
            account.problems.append("half of it was replaced")
        return account

    monkeypatch.setattr(ledger, "account_of", look)
    run_status = ledger.prove(DataDirectory(Disk(), store.data_dir, holder=1), "c", as_json=True)
    assert (run_status, next(looks) - 1) == (int(looked != 11), looked)


@pytest.mark.parametrize(
    ("words", "causes"),
    [
        ((), ["evicted", "damaged", "evicted"]),
        (("--topic", "t"), ["evicted", "damaged"]),
        (("--cause", "evicted"), ["evicted", "evicted"]),
        (("--cause", "evicted", "--topic", "other"), ["evicted"]),
        (("--topic", "gone"), []),
    ],
)
def test_filters(run, store, words, causes):
    log_of(store)
    log_of(store, "other")
    store.ledger.write([loss(store, "evicted", 0, 24), loss(store, "damaged", 30, 32)])
    store.ledger.write([loss(store, "evicted", 0, 5, "other")])
    rows = run("ledger", "--json", "--data-dir", store.data_dir, *words).rows
    assert [row["cause"] for row in rows] == causes
    assert all(row["times"] == 1 for row in rows)


@pytest.mark.parametrize(
    ("cause", "hint"),
    [("evict", "did you mean evicted?"), ("foo", "there are damaged, "), ("", "there are damaged, ")],
)
def test_a_cause_that_there_is_not_is_refused(run, store, cause, hint):
    """Else `0 of 0` would say that nothing is lost."""
    ran = run("ledger", "--cause", cause, "--data-dir", store.data_dir)
    assert (ran.status, ran.out) == (2, "")
    assert f"nothing is lost by a cause {cause!r}; {hint}" in ran.err


def test_the_proof_holds_for_a_log_that_lost_nothing(run, store):
    fill(log_of(store), 100)
    found = accounts(run, store)["t-0"]
    assert (found["log_end"], found["available"]) == (100, 100)
    text = run("ledger", "--prove", "--data-dir", store.data_dir).out.splitlines()
    assert text[-1].endswith(
        "log end = available + compacted + control + expired + deleted + ledgered for 2 partitions"
    )
    assert text[2].split() == ["t-0", "100", "100", "0", "0", "0", "0", "0", "0", "holds"]


def test_the_proof_holds_for_retention_and_eviction_one_after_the_other(run, store):
    log = log_of(store, retention_ms="1000")
    fill(log, 60)
    delete_expired(log, time_at(NOW_MS + DAY_MS))
    fill(log, 60)
    evict(log, 1)
    delete_expired(log, time_at(NOW_MS + DAY_MS), passed_offset=log.log_start_offset + 5)
    found = accounts(run, store)["t-0"]
    assert found["problems"] == []
    assert found["log_end"] == 120
    assert (found["expired"], found["ledgered"]) == (48 + 5, 24 + 19)
    assert found["available"] == 120 - 48 - 5 - 24 - 19


def test_what_compaction_thinned_out_and_markers_have_rows_of_their_own(run, store):
    log = log_of(store, "c", cleanup_policy="compact")
    fill(log, 10)
    path = Path(log.segments[0].path)
    content = path.read_bytes()
    path.write_bytes(content[:340] + content[680:])  # offsets 2 and 3 are compacted away
    assert accounts(run, store)["c-0"] | {"partition": ""} == {
        "kind": "account",
        "partition": "",
        "log_end": 10,
        "available": 8,
        "compacted": 2,
        "control": 0,
        "expired": 0,
        "deleted": 0,
        "ledgered": 0,
        "unaccounted": 0,
        "problems": [],
        "remarks": [],
    }


def make_corrupt_range(store: LogStore, log: PartitionLog) -> None:
    """Offsets 2 and 3 of the first segment, as they are when the scrubber has met damage."""
    Path(log.directory, f"{0:020d}.holes").write_bytes(encode_state("holes", 1, ["2 4 340 680"]))
    flip(Path(log.segments[0].path), 400)


def test_the_proof_holds_for_a_corrupt_range_that_the_ledger_has(run, store):
    log = log_of(store)
    fill(log, 60)
    store.ledger.write([loss(store, "damaged", 2, 4)])
    store.ledger.write([loss(store, "damaged", 2, 4)])
    make_corrupt_range(store, log)
    found = accounts(run, store)["t-0"]
    assert found["problems"] == []
    assert (found["available"], found["ledgered"]) == (58, 2)


def test_losses_without_end_and_before_anybody_saw_them_are_listed_apart(run, store):
    fill(log_of(store), 10)
    store.ledger.write([loss(store, "unsynced_cut", 5, None, occasion="1"), loss(store, "sync_failed", 7, 9)])
    assert accounts(run, store)["t-0"]["problems"] == []
    text = run("ledger", "--prove", "--data-dir", store.data_dir).out
    assert "lost before anybody was shown it" in text
    assert text.count("unsynced_cut") == text.count("sync_failed") == 1


def test_losses_of_an_earlier_topic_of_that_name_do_not_count(run, store):
    fill(log_of(store), 10)
    store.ledger.write([Loss("evicted", "t", "AAAAAAAAAAAAAAAAAAAAAA", 0, 0, 5, 5, 9)])
    assert accounts(run, store)["t-0"]["problems"] == []


def test_records_of_gateway_and_mirror_are_listed_and_do_not_count(run, store):
    fill(log_of(store), 10)
    ledger = store.topics["__edge_ledger"].partitions[0]
    skipped = ledger_record("x", cause="skipped", topic="t", partition=0, first_offset=1, last_offset=2)
    append(ledger, memoryview(bytearray(build_batch([skipped], timestamp_ms=NOW_MS))))
    sync(ledger)
    assert accounts(run, store)["t-0"]["problems"] == []
    for words in ((), ("--cause", "skipped")):
        assert [row["cause"] for row in run("ledger", "--json", "--data-dir", store.data_dir, *words).rows] == [
            "skipped"
        ]


def test_each_loss_says_why(run, store):
    """What the record says, in a header as the gateway writes it or in a field; else what its cause means."""
    log_of(store)
    causes = [*CAUSES, *mirror_ledger.CAUSES]
    causes += [getattr(gateway_records, name) for name in dir(gateway_records) if name.startswith("CAUSE_")]
    placed = {"partition": 0, "first_offset": 3, "last_offset": 5}
    ledger = store.topics["__edge_ledger"].partitions[0]
    for number, cause in enumerate(causes):
        record = ledger_record(f"x{number}", cause=cause, **(placed if cause in CAUSES else {}))
        append(ledger, memoryview(bytearray(build_batch([record], timestamp_ms=NOW_MS))))
    for name, headers, field in (
        ("header", [("other", b""), ("reason", b"line_too_long \x1b[2J")], {}),
        ("field", [], {"reason": "said in a field"}),
        ("number", [], {"reason": 7, "cause": "of a later version"}),
    ):
        built = build_batch([ledger_record(name, **field)], timestamp_ms=NOW_MS, headers=headers)
        append(ledger, memoryview(bytearray(built)))
    sync(ledger)
    rows = {row["id"]: row for row in run("ledger", "--json", "--data-dir", store.data_dir).rows}
    assert all(rows[f"x{number}"]["reason"] for number in range(len(causes)))
    assert rows["header"]["reason"] == "line_too_long \x1b[2J"
    assert rows["field"]["reason"] == "said in a field"
    assert rows["number"]["reason"] is None
    table = run("ledger", "--data-dir", store.data_dir).out
    assert "None" not in table
    assert "line_too_long \\x1b[2J" in table
    by_cause = {line.split()[1]: line.split() for line in table.splitlines()[1:-1]}
    assert by_cause["mqtt_queue_dropped"][2:6] == ["mqtt:t", "-", "-", "3"]


def corrupt_range_without_record(store, log):
    make_corrupt_range(store, log)
    return "offsets 2 to 3 are lost (damaged) and no ledger record says so"


def record_without_corrupt_range(store, log):
    store.ledger.write([loss(store, "damaged", 2, 4)])
    return "offsets 2 to 3 are in the ledger as damaged, and nothing here was lost for that"


def test_a_removal_that_a_crash_kept_from_its_account_is_remarked_until_it_is_done(run, store):
    log = log_of(store)
    fill(log, 60)
    store.ledger.write([loss(store, "evicted", 0, 24)])
    sentence = "offsets 0 to 23 are in the ledger as evicted, and nothing here was lost for that"
    found = accounts(run, store)["t-0"]
    assert (found["problems"], found["remarks"], found["available"]) == ([], [sentence], 60)
    assert f"t-0: {sentence} (a crash came" in run("ledger", "--prove", "--data-dir", store.data_dir).out
    evict(log, 1)
    found = accounts(run, store)["t-0"]
    assert (found["problems"], found["remarks"], found["ledgered"]) == ([], [], 24)


def two_records_of_one_loss(store, log):
    store.ledger.write([loss(store, "damaged", 2, 4), loss(store, "damaged", 3, 5)])
    make_corrupt_range(store, log)
    return "the ledger counts offsets twice"


def segment_that_vanished(store, log):
    Path(log.segments[1].path).unlink()
    return "offsets 24 to 47 are in no account"


def front_that_vanished(store, log):
    Path(log.segments[0].path).unlink()
    return "offsets 0 to 23 are in no account"


def damage_that_nobody_met(store, log):
    flip(Path(log.segments[0].path), 400)
    return "offsets 2 to 2 are in no account"


def removal_without_record(store, log):
    evict(log, 1)
    names(Path(store.data_dir), "__edge_ledger-0/*.log")[0].write_bytes(b"")
    return "offsets 0 to 23 are lost (evicted) and no ledger record says so"


def account_that_reaches_too_far(store, log):
    line = "retention 0 10 10 0 0 99"
    Path(log.directory, "removed-offsets").write_bytes(
        encode_state("removed-offsets", 1, [line, "retention 5 9 4 0 0 1"])
    )
    return "offsets 5 to 9 are counted twice"


def wrong_cause(store, log):
    evict(log, 1)
    line = "expired_unpassed 0 24 24 0 0 99"
    Path(log.directory, "removed-offsets").write_bytes(encode_state("removed-offsets", 1, [line]))
    return "offsets 0 to 23 are lost (expired_unpassed) and no ledger record says so"


@pytest.mark.leaves(
    "a line begins at offset", "offsets", "says end_offset", "the CRC of a record batch does not match its bytes"
)
@pytest.mark.parametrize(
    "spoil",
    [
        corrupt_range_without_record,
        record_without_corrupt_range,
        two_records_of_one_loss,
        segment_that_vanished,
        front_that_vanished,
        damage_that_nobody_met,
        removal_without_record,
        account_that_reaches_too_far,
        wrong_cause,
    ],
)
def test_what_does_not_add_up_is_named_and_the_status_is_1(run, store, spoil):
    log = log_of(store)
    fill(log, 60)
    sentence = spoil(store, log)
    ran = run("ledger", "--prove", "--data-dir", store.data_dir, "--topic", "t")
    assert ran.status == 1
    assert f"t-0: {sentence}" in ran.out, ran.out
    assert "DOES NOT HOLD" in ran.out


@pytest.mark.leaves("the CRC of a record batch does not match its bytes")
def test_a_ledger_that_cannot_be_read_is_said(run, store):
    log_of(store)
    ledger = store.topics["__edge_ledger"].partitions[0]
    for number in range(30):
        store.ledger.write([loss(store, "evicted", number, number + 1)] * 200)
    assert len(ledger.segments) > 1
    flip(Path(ledger.segments[0].path), 90)
    ran = run("ledger", "--data-dir", store.data_dir)
    assert ran.status == 1
    assert "at byte 0: the CRC of a record batch does not match" in ran.out


# the arithmetic

SPANS = st.lists(
    st.tuples(st.integers(0, 30), st.integers(0, 6)).map(lambda pair: Span(pair[0], sum(pair))), max_size=8
)


def offsets(spans: list[Span]) -> set[int]:
    return {offset for span in spans for offset in range(*span)}


@given(SPANS, SPANS)
def test_sets_of_spans(one, other):
    assert offsets(union(one)) == offsets(one)
    assert all(before.end < after.first for before, after in zip(union(one), union(one)[1:], strict=False))
    assert offsets(minus(union(one), union(other))) == offsets(one) - offsets(other)


@given(SPANS)
def test_overlaps_are_found(spans):
    entries = [KnownLoss("damaged", *span, str(at)) for at, span in enumerate(spans) if span.end > span.first]
    each = [offset for known in entries for offset in range(known.first, known.end)]
    assert bool(overlaps(entries)) == (len(each) != len(set(each)))


PARTS = st.lists(
    st.tuples(st.sampled_from(["live", "control", "gap", "corrupt range", "retention", "evicted"]), st.integers(1, 9)),
    max_size=12,
)


def account_of(parts: list[tuple[str, int]], *, skip: int = -1, unledgered: int = -1) -> tuple[Account, dict[str, int]]:
    account, offset, ledger, counts = (
        Account(),
        0,
        [],
        dict.fromkeys(("live", "control", "gap", "retention", "lost"), 0),
    )
    for at, (what, width) in enumerate(parts):
        span = Span(offset, offset + width)
        offset += width
        counts["lost" if what in ("corrupt range", "evicted") else what] += width
        if what in ("corrupt range", "evicted") and at != unledgered:
            ledger.append(KnownLoss("damaged" if what == "corrupt range" else what, *span, str(at)))
        if at == skip:
            continue
        if what in ("live", "control"):
            account.live(span, width, control=what == "control")
        elif what == "gap":
            account.gap(span)
        elif what == "corrupt range":
            account.corrupt_range(span)
        else:
            account.add_removed(what, span, records=width, control=0, compacted=0, loss=what == "evicted")
    account.close(offset, ledger)
    return account, counts


@pytest.mark.parametrize(
    ("cause", "compacted", "holds"),
    [("retention", 2, True), ("retention", 0, True), ("evicted", 2, True), ("evicted", 0, False)],
)
def test_damage_that_was_removed_later_stays_ledgered(cause, compacted, holds):
    account, loss = Account(), cause == "evicted"
    account.add_removed(cause, Span(0, 10), records=10 - compacted, control=0, compacted=compacted, loss=loss)
    account.live(Span(10, 15), 5, control=False)
    account.close(15, [KnownLoss("damaged", 2, 4, "d"), *([KnownLoss(cause, 0, 10, "e")] if loss else [])])
    assert (account.problems == []) == holds
    if holds:
        assert account.available + account.compacted + account.expired + account.ledgered == 15
        assert account.ledgered == (10 if loss else 2)


def test_damage_that_was_compacted_away_later_stays_ledgered():
    account = Account()
    account.live(Span(0, 5), 5, control=False)
    account.gap(Span(5, 10))
    account.close(10, [KnownLoss("damaged", 6, 8, "d")])
    assert (account.problems, account.compacted, account.ledgered) == ([], 3, 2)


@given(PARTS)
def test_an_account_that_is_whole_holds(parts):
    account, counts = account_of(parts)
    assert account.problems == []
    found = (account.available, account.control, account.compacted, account.expired, account.ledgered)
    assert found == (counts["live"], counts["control"], counts["gap"], counts["retention"], counts["lost"])
    assert sum(found) == account.end_offset


@given(PARTS.filter(bool), st.data())
def test_an_account_that_lacks_anything_does_not_hold(parts, data):
    skip = data.draw(st.integers(0, len(parts) - 1))
    account, _ = account_of(parts, skip=skip)
    assert account.problems
    assert account.unaccounted == parts[skip][1]
    losses = [at for at, part in enumerate(parts) if part[0] in ("corrupt range", "evicted")]
    if losses:
        assert account_of(parts, unledgered=data.draw(st.sampled_from(losses)))[0].problems


def test_a_foreign_record_from_before_is_named_and_breaks_nothing(run, store):
    """Until the ledger was guarded anybody could write there."""
    log = store.topics["__edge_ledger"].partitions[0]
    fill(log_of(store), 100)
    for records in (batch(b"hello"), batch(b"[1]", b'{"id": 3, "cause": "evicted"}')):
        append(log, records)
    made = build_batch([ledger_record(cause="evicted", topic="t", first_offset="x")], timestamp_ms=NOW_MS)
    append(log, memoryview(bytearray(made)))
    sync(log)
    store.ledger.write([loss(store, "unsynced_cut", 30, None, occasion="3")])
    for words in ((), ("--prove",)):
        ran = run("ledger", "--data-dir", store.data_dir, *words)
        assert ran.status == 0, ran.out
        assert ran.out.count("is no ledger record, left out") == 4
        assert "unsynced_cut" in ran.out
        ran = run("ledger", "--json", "--data-dir", store.data_dir, *words)
        assert ran.status == 0
        assert len([row for row in ran.rows if row.get("kind") == "foreign"]) == 4
