"""The journal source over journal files that the test writes entry by entry.

Invariants:
- a chain's position is saved only when every entry before it is acknowledged, so a kill repeats and never skips;
- entries that are gone unread are a loss with the same id every time;
- a problem is a sentence in `problem`, and passes.
The reader alone is in test_journal_reader.py, a real journald in tests/conformance/test_gateway_journal.py.
"""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

from drupelet.host.boot_clock import BootMoment
from gateway import state
from gateway.config import JournalConfig
from gateway.sources import journal
from gateway.sources.journal import JournalSource, entry_record, roots_of
from gateway.systemd_journal import compression
from gateway.systemd_journal.positions import Position
from tests.support.gateway.publisher import FakePublisher
from tests.support.journal_site import SimulatedJournald
from tests.support.tasks import running_task
from tests.support.waiting import until


@pytest.fixture
def machine(tmp_path: Path):
    simulated = SimulatedJournald(tmp_path / "journal", random.Random(1))
    yield simulated
    simulated.close()


def config_of(tmp_path: Path) -> JournalConfig:
    return JournalConfig("logs", (), "debug", "beginning", tmp_path / "journal", 0)


def source(tmp_path: Path, publisher: FakePublisher, config: JournalConfig | None = None) -> JournalSource:
    return JournalSource(config or config_of(tmp_path), publisher.as_publisher(), tmp_path / "journal.json")


def saved_counts(tmp_path: Path) -> list[int]:
    content = state.load(tmp_path / "journal.json") or {}
    return [position["count"] for position in content.get("positions", {}).values()]


def values(publisher: FakePublisher) -> list[bytes]:
    return [record.value for record, _ in publisher.records]


async def test_a_position_is_saved_when_all_before_it_is_acknowledged(
    tmp_path: Path, machine: SimulatedJournald
) -> None:
    machine.log("1", "2", "3")
    publisher = FakePublisher()
    async with running_task(source(tmp_path, publisher).run()):
        await until(lambda: values(publisher) == [b"1", b"2", b"3"])
        publisher.records[1][1]()
        publisher.records[0][1]()
        await until(lambda: saved_counts(tmp_path) == [2])
        machine.log("4")
        await until(lambda: values(publisher)[3:] == [b"4"])
    again = FakePublisher()  # killed: 3 and 4 were not acknowledged
    async with running_task(source(tmp_path, again).run()):
        await until(lambda: values(again) == [b"3", b"4"])


async def test_the_end_is_where_it_was_first_seen(tmp_path: Path, machine: SimulatedJournald) -> None:
    machine.log("old")
    config = replace(config_of(tmp_path), start="end")
    async with running_task(source(tmp_path, FakePublisher(), config).run()):
        await until(lambda: saved_counts(tmp_path) == [1])
    machine.log("new")
    publisher = FakePublisher()
    async with running_task(source(tmp_path, publisher, config).run()):
        await until(lambda: values(publisher) == [b"new"])


async def test_what_is_deleted_unread_is_a_loss_with_count_and_the_same_id(
    tmp_path: Path, machine: SimulatedJournald
) -> None:
    machine.log("read")
    first = FakePublisher()
    async with running_task(source(tmp_path, first).run()):
        await until(lambda: values(first) == [b"read"])
        first.records[0][1]()
        await until(lambda: saved_counts(tmp_path) == [1])
    machine.log("lost 1", "lost 2", "lost 3")
    machine.rotate()
    machine.log("later")
    machine.vacuum(0)
    losses = []
    for _ in range(2):
        publisher = FakePublisher()
        async with running_task(source(tmp_path, publisher).run()):
            await until(lambda publisher=publisher: values(publisher) == [b"later"])
        ((loss, _),) = publisher.losses
        losses.append(replace(loss, time_ms=0))
        assert (loss.cause, loss.topic, loss.records) == ("source_offset_out_of_range", "logs", 3)
        assert (loss.machine_id, loss.first_seqnum, loss.last_seqnum) == (machine.machine_id, 2, 4)
        assert b'"first_seqnum":2,"last_seqnum":4' in loss.to_record("gateway@h").value
    assert losses[0] == losses[1]


async def test_how_many_of_the_lost_entries_were_chosen_is_unknown(tmp_path: Path, machine: SimulatedJournald) -> None:
    config = replace(config_of(tmp_path), priority="err")
    machine.log("read", more=[("PRIORITY", b"3")])
    first = FakePublisher()
    async with running_task(source(tmp_path, first, config).run()):
        await until(lambda: values(first) == [b"read"])
        first.records[0][1]()
        await until(lambda: saved_counts(tmp_path) == [1])
    machine.log("perhaps chosen")
    machine.rotate()
    machine.log("later", more=[("PRIORITY", b"3")])
    machine.vacuum(0)
    publisher = FakePublisher()
    async with running_task(source(tmp_path, publisher, config).run()):
        await until(lambda: values(publisher) == [b"later"])
    assert [loss.records for loss, _ in publisher.losses] == [None]


async def test_a_directory_without_a_journal_file_is_a_problem_that_passes(
    tmp_path: Path, machine: SimulatedJournald
) -> None:
    publisher = FakePublisher()
    follower = source(tmp_path, publisher)
    async with running_task(follower.run()):
        await until(lambda: f"no journal file is in {tmp_path}/journal" in str(follower.problem()))
        machine.log("1")
        await until(lambda: values(publisher) == [b"1"])
        await until(lambda: follower.problem() is None)
    assert publisher.losses == []


async def test_a_file_of_an_unknown_format_is_named_and_the_others_are_read(
    tmp_path: Path, machine: SimulatedJournald
) -> None:
    machine.log("good")
    newer = tmp_path / "journal/newer.journal"
    newer.write_bytes(b"LPKSHHRH" + (1 << 39).to_bytes(8, "little") + bytes(256))
    (tmp_path / "journal/none.journal").write_bytes(b"text")
    publisher = FakePublisher()
    follower = source(tmp_path, publisher)
    async with running_task(follower.run()):
        await until(lambda: values(publisher) == [b"good"])
        told = f"{newer} cannot be read (its format has features unknown to this version, flags 0x80: upgrade the"
        assert told in str(follower.problem())
        assert str(follower.problem()).endswith("; 1 more")


async def test_a_message_that_is_too_long_is_a_dead_letter_with_its_beginning(
    tmp_path: Path, machine: SimulatedJournald, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compression, "VALUE_BYTES_MAX", 4_096)
    monkeypatch.setattr(compression, "KEPT_BYTES_MAX", 1_000)
    machine.log("x" * 100_000, "good")
    publisher = FakePublisher()
    async with running_task(source(tmp_path, publisher).run()):
        await until(lambda: values(publisher) == [b"good"])
    ((letter, reason, loss),) = publisher.letters
    assert (letter.value, reason) == (b"x" * 1_000, "line_too_long")
    assert loss is not None
    assert loss.bytes == 99_000


async def test_only_chosen_units_and_priorities_are_records(tmp_path: Path, machine: SimulatedJournald) -> None:
    config = replace(config_of(tmp_path), units=("ssh",), priority="warning")
    for name, unit, priority in (("1", b"ssh.service", b"4"), ("2", b"ssh.service", b"5"), ("3", b"a.service", b"0")):
        machine.log(name, more=[("_SYSTEMD_UNIT", unit), ("PRIORITY", priority)])
    machine.log("4", more=[("UNIT", b"ssh.service"), ("_PID", b"1"), ("PRIORITY", b"3")])
    publisher = FakePublisher()
    async with running_task(source(tmp_path, publisher, config).run()):
        await until(lambda: values(publisher) == [b"1", b"4"])


def position_of(boot_id: str = "0123456789abcdef" * 2, machine_id: str = "5" * 32) -> Position:
    """Return the position after an entry."""
    at = Position("f" * 32, 1, 1, 1, 1, 0, False, False, machine_id, None, False, boot_id, 5_123_456, 0, 1)
    return replace(at, realtime_us=1764000000123456)


def test_an_entry_is_its_message_under_headers_that_name_its_source(tmp_path: Path) -> None:
    fields = {
        "MESSAGE": [b"\xff\x00"],
        "_HOSTNAME": [b"pi-1"],
        "_SYSTEMD_UNIT": [b"ssh.service", b"other"],
        "PRIORITY": [b"6"],
    }
    record = entry_record(config_of(tmp_path), fields, position_of(), 7)
    assert (record.key, record.value) == (b"ssh.service", b"\xff\x00")
    assert (record.timestamp_ms, record.received_ms) == (1764000000123, 7)
    headers = {"source": b"journal", "host": b"pi-1", "unit": b"ssh.service", "priority": b"6"}
    assert dict(record.headers) == headers
    assert entry_record(config_of(tmp_path), {}, position_of(), 7).key == b"journal"


def test_an_entry_knows_its_own_boot_and_when_in_it(tmp_path: Path) -> None:
    record = entry_record(config_of(tmp_path), {}, position_of(), 7)
    assert record.moment == BootMoment("01234567-89ab-cdef-0123-456789abcdef", 5_123)
    assert entry_record(config_of(tmp_path), {}, position_of(), 7, "5" * 32).foreign_clock is False
    assert entry_record(config_of(tmp_path), {}, position_of(), 7, "6" * 32).foreign_clock is True
    assert entry_record(config_of(tmp_path), {}, position_of(), 7, None).foreign_clock is False


@pytest.mark.parametrize(
    ("content", "machine_id"),
    [("0123456789abcdef" * 2 + "\n", "0123456789abcdef" * 2), ("uninitialized\n", None), ("", None), (None, None)],
)
def test_of_the_hosts_journal_this_machine_alone_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str | None, machine_id: str | None
) -> None:
    monkeypatch.setattr(journal, "MACHINE_ID", tmp_path / "machine-id")
    if content is not None:
        (tmp_path / "machine-id").write_text(content)
    config = replace(config_of(tmp_path), directory=None)
    assert [(str(root.path), root.only_machine) for root in roots_of(config)] == [
        ("/var/log/journal", machine_id),
        ("/run/log/journal", machine_id),
    ]
    assert [root.only_machine for root in roots_of(config_of(tmp_path))] == [None]


POSITION = {"file_id": "a", "count": -2}


@pytest.mark.parametrize(
    "content",
    [
        {},
        {"cursor": 1},
        {"cursor": ""},
        {"cursor": "s=gone"},
        {"version": 3, "positions": {}},
        {"version": 2, "positions": {"a|b|c": POSITION}},
        {"version": 2, "positions": []},
    ],
)
def test_a_damaged_position_is_named(tmp_path: Path, content: dict[str, object]) -> None:
    state.save(tmp_path / "journal.json", content)
    with pytest.raises(state.StateError, match="holds no position: remove it"):
        source(tmp_path, FakePublisher())
