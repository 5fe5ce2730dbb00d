"""The journal against a journalctl of the test's own, whose journal is a file of JSON lines.

Invariants:
- the cursor is saved only when every entry before it is acknowledged, so a kill repeats and never skips;
- an entry that was read last and is no more is a loss with the same id every time;
- whatever journalctl says or lacks is a sentence in `problem`, and passes.
The real journald is in tests/conformance/test_gateway_journal.py.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from drupelet.boot_clock import BootMoment
from gateway import state
from gateway.config import JournalConfig
from gateway.sources import journal
from gateway.sources.journal import JournalSource, arguments, entry_record
from tests.support.tasks import running_task
from tests.support.waiting import until
from tests.unit.gateway.test_sources import FakePublisher

CONFIG = JournalConfig("logs", (), "debug", "beginning", None, 0)
JOURNALCTL = """\
#!{python}
import json, sys, time
options = dict(word[2:].partition("=")[::2] for word in sys.argv[1:])
json.dump(sys.argv, open("{directory}/asked", "w"))
said = open("{directory}/said").read()
sys.stderr.write(said)
if said:
    sys.exit(1)
lines = open("{directory}/journal").readlines()
cursors = [json.loads(line).get("__CURSOR") if line.startswith("{{") else None for line in lines]
if "follow" not in options:
    start = cursors.index(options["cursor"]) if options.get("cursor") in cursors else 0
    sys.stdout.writelines(lines[start : start + 1] if "cursor" in options else lines[-1:])
    sys.exit()
shown = cursors.index(options["cursor"]) if options.get("cursor", "-") in cursors else 0
while not open("{directory}/end").read():
    lines = open("{directory}/journal").readlines()
    sys.stdout.writelines(lines[shown:])
    sys.stdout.flush()
    shown = len(lines)
    time.sleep(0.02)
"""


class Journal:
    """A journal that the test writes."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        for name in ("journal", "said", "end", "asked"):
            (directory / name).touch()
        program = directory / "journalctl"
        program.write_text(JOURNALCTL.format(python=sys.executable, directory=directory))
        program.chmod(0o755)

    def write(self, *messages: str, **fields: Any) -> None:
        with (self.directory / "journal").open("a") as file:
            for message in messages:
                entry = {"__CURSOR": f"s={message}", "__REALTIME_TIMESTAMP": "1764000000123456", "MESSAGE": message}
                file.write(json.dumps({**entry, **fields}) + "\n")

    def asked(self) -> list[str]:
        """The words of the last journalctl."""
        return json.loads((self.directory / "asked").read_text() or "[]")

    def vacuum(self) -> None:
        (self.directory / "journal").write_text("")


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Journal:
    monkeypatch.setenv("PATH", str(tmp_path))
    return Journal(tmp_path)


def source(tmp_path: Path, publisher: FakePublisher, config: JournalConfig = CONFIG) -> JournalSource:
    return JournalSource(config, publisher.as_publisher(), tmp_path / "journal.json")


def saved(tmp_path: Path) -> object:
    return (state.load(tmp_path / "journal.json") or {}).get("cursor")


def values(publisher: FakePublisher) -> list[bytes]:
    return [record.value for record, _ in publisher.records]


async def test_the_cursor_is_saved_when_all_before_it_is_acknowledged(tmp_path: Path, written: Journal) -> None:
    written.write("1", "2", "3")
    publisher = FakePublisher()
    async with running_task(source(tmp_path, publisher).run()):
        await until(lambda: values(publisher) == [b"1", b"2", b"3"])
        publisher.records[1][1]()
        publisher.records[0][1]()
        await until(lambda: saved(tmp_path) == "s=2")
        written.write("4")
        await until(lambda: values(publisher)[3:] == [b"4"])
    again = FakePublisher()  # killed: 3 and 4 were not acknowledged
    async with running_task(source(tmp_path, again).run()):
        await until(lambda: values(again) == [b"3", b"4"])


async def test_the_end_is_where_it_was_first_seen(tmp_path: Path, written: Journal) -> None:
    written.write("old")
    config = JournalConfig("logs", (), "debug", "end", None, 0)
    async with running_task(source(tmp_path, FakePublisher(), config).run()):
        await until(lambda: saved(tmp_path) == "s=old")
    written.write("new")
    publisher = FakePublisher()
    async with running_task(source(tmp_path, publisher, config).run()):
        await until(lambda: values(publisher) == [b"new"])


async def test_an_entry_that_is_no_more_is_a_loss_with_the_same_id(tmp_path: Path, written: Journal) -> None:
    state.save(tmp_path / "journal.json", {"cursor": "s=gone"})
    written.write("later")
    ids = set()
    for _ in range(2):
        publisher = FakePublisher()
        async with running_task(source(tmp_path, publisher).run()):
            await until(lambda publisher=publisher: values(publisher) == [b"later"])
        ((loss, _),) = publisher.losses
        ids.add(loss.id)
        assert (loss.cause, loss.topic, loss.records) == ("source_offset_out_of_range", "logs", None)
        assert saved(tmp_path) == "s=gone"
    assert len(ids) == 1


async def test_journalctl_is_started_again_where_it_ended(tmp_path: Path, written: Journal) -> None:
    written.write("1")
    publisher = FakePublisher()
    follower = source(tmp_path, publisher)
    async with running_task(follower.run()):
        await until(lambda: values(publisher) == [b"1"])
        (tmp_path / "end").write_text("now")
        await until(lambda: "journalctl ended" in str(follower.problem()))
        written.write("2")
        (tmp_path / "end").write_text("")
        await until(lambda: values(publisher) == [b"1", b"2"])
        assert follower.problem() is None
    assert publisher.losses == []


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("No journal files were opened due to insufficient permissions.\n", "add it to the group systemd-journal"),
        ("Hint: You are currently not seeing messages from other users and the system.\n", "add it to the group"),
        ("Failed to open /var/log/journal: No such file or directory\n", "journalctl finds no journal"),
        ("Failed to seek to cursor: Invalid argument\n", "remove journal.json in state_dir"),
        ("Something else\n", "journalctl failed (Something else)"),
    ],
)
async def test_what_journalctl_complains_of_is_a_sentence_that_passes(
    tmp_path: Path, written: Journal, said: str, told: str
) -> None:
    (tmp_path / "said").write_text(said)
    follower = source(tmp_path, FakePublisher())
    async with running_task(follower.run()):
        await until(lambda: told in str(follower.problem()))
        (tmp_path / "said").write_text("")
        await until(lambda: follower.problem() is None)


async def test_without_journalctl_the_remedy_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    follower = source(tmp_path, FakePublisher())
    async with running_task(follower.run()):
        await until(lambda: "journalctl is not installed: [journal] needs systemd" in str(follower.problem()))


async def test_what_cannot_be_used_is_a_dead_letter_and_its_neighbours_pass(
    tmp_path: Path, written: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "LINE_BYTES_MAX", 4_096)
    written.write("x" * 100_000)
    with (tmp_path / "journal").open("a") as file:
        file.write("no json\n[1]\n")
    written.write("good")
    publisher = FakePublisher()
    async with running_task(source(tmp_path, publisher).run()):
        await until(lambda: values(publisher) == [b"good"])
    (cut, reason, loss), *others = publisher.letters
    assert (reason, [reason for _, reason, _ in others]) == ("line_too_long", ["not_json", "not_json"])
    assert loss is not None
    assert loss.bytes is not None
    assert len(cut.value) + loss.bytes > 100_000


def test_an_entry_is_its_message_under_headers_that_say_whose() -> None:
    entry = {
        "MESSAGE": [255, 0],
        "_HOSTNAME": "pi-1",
        "_SYSTEMD_UNIT": ["ssh.service", "other"],
        "PRIORITY": "6",
        "__REALTIME_TIMESTAMP": "1764000000123456",
    }
    record = entry_record(CONFIG, entry, 7)
    assert (record.key, record.value, record.timestamp_ms, record.received_ms) == (
        b"ssh.service",
        b"\xff\x00",
        1764000000123,
        7,
    )
    assert dict(record.headers) == {
        "source": b"journal",
        "host": b"pi-1",
        "unit": b"ssh.service",
        "priority": b"6",
    }
    assert entry_record(CONFIG, {"__REALTIME_TIMESTAMP": "soon", "MESSAGE": None}, 7).timestamp_ms == 7


BOOT = {"_BOOT_ID": "0123456789abcdef" * 2, "__MONOTONIC_TIMESTAMP": "5123456"}


def test_an_entry_knows_its_own_boot_and_when_in_it() -> None:
    moment = BootMoment("01234567-89ab-cdef-0123-456789abcdef", 5_123)
    assert entry_record(CONFIG, BOOT, 7).moment == moment
    assert entry_record(CONFIG, BOOT | {"_MACHINE_ID": "5" * 32}, 7, "5" * 32).foreign_clock is False
    assert entry_record(CONFIG, BOOT | {"_MACHINE_ID": "6" * 32}, 7, "5" * 32).foreign_clock is True
    assert entry_record(CONFIG, BOOT | {"_MACHINE_ID": "6" * 32}, 7, None).foreign_clock is False


@pytest.mark.parametrize(
    "wrong",
    [
        {"_BOOT_ID": None},
        {"_BOOT_ID": "0" * 31},
        {"_BOOT_ID": ["0" * 32]},
        {"__MONOTONIC_TIMESTAMP": "-1"},
        {"__MONOTONIC_TIMESTAMP": "9" * 30},
        {"__MONOTONIC_TIMESTAMP": "\u0663"},
        {"__MONOTONIC_TIMESTAMP": 7},
    ],
)
def test_an_entry_without_a_boot_has_no_moment(wrong: dict[str, object]) -> None:
    assert entry_record(CONFIG, BOOT | wrong, 7).moment is None


def test_units_and_priority_are_arguments_of_their_own() -> None:
    config = JournalConfig("logs", ("ssh.service",), "warning", "end", Path("/j"), 0)
    command = arguments(config, "s=1", "5" * 32)
    assert {"--unit=ssh.service", "--priority=warning", "--directory=/j", "--cursor=s=1"} <= set(command)


def test_every_boot_of_this_machine_is_followed_and_no_other_machine() -> None:
    command = arguments(CONFIG, None, "5" * 32)
    assert {"--merge", "--lines=all", f"_MACHINE_ID={'5' * 32}"} <= set(command)
    assert not [word for word in command if word.startswith(("--boot", "--cursor"))]
    assert not [word for word in arguments(CONFIG, None, None) if word.startswith("_MACHINE_ID")]
    of_a_directory = arguments(replace(CONFIG, directory=Path("/j")), None, "5" * 32)
    assert not [word for word in of_a_directory if word.startswith("_MACHINE_ID")]


@pytest.mark.parametrize(
    ("content", "named"),
    [("0123456789abcdef" * 2 + "\n", True), ("uninitialized\n", False), ("", False), (None, False)],
)
async def test_the_machine_is_named_when_it_has_a_name(
    tmp_path: Path, written: Journal, monkeypatch: pytest.MonkeyPatch, content: str | None, named: bool
) -> None:
    monkeypatch.setattr(journal, "MACHINE_ID", tmp_path / "machine-id")
    if content is not None:
        (tmp_path / "machine-id").write_text(content)
    async with running_task(source(tmp_path, FakePublisher()).run()):
        await until(lambda: "--follow" in written.asked())
    assert (f"_MACHINE_ID={'0123456789abcdef' * 2}" in written.asked()) is named


@pytest.mark.parametrize("content", [{}, {"cursor": 1}, {"cursor": ""}, {"cursor": "a\nb"}])
def test_a_damaged_cursor_is_named(tmp_path: Path, content: dict[str, object]) -> None:
    state.save(tmp_path / "journal.json", content)
    with pytest.raises(state.StateError, match="holds no cursor: remove it"):
        source(tmp_path, FakePublisher())
