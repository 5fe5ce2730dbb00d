"""The journal's state file as the gateway at 752fe42 wrote it, with one cursor for all machines, is taken over.

systemd-journal-remote 252 wrote the files: 25 entries of each of three machines, a second apart. The clock of `b` is
30 s late, `c` boots after entry 19. The gateway was stopped after `a 13`, which journalctl ordered before `c 13`;
entries 20 to 24 were written after that.

systemd-journal-remote 254 wrote the files compressed by xz and lz4, with SYSTEMD_JOURNAL_COMPRESS.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import zstandard

from gateway import state
from gateway.config import JournalConfig
from gateway.sources.journal import JournalSource
from gateway.systemd_journal.file_format import read_header
from tests.support.gateway.publisher import FakePublisher
from tests.support.journal_exports import long_entries
from tests.support.journal_reading import CODEC_FLAGS, differences
from tests.support.tasks import running_task
from tests.support.waiting import until

GOLDEN = Path(__file__).parent / "gateway_journal"


def unpacked(directory: Path, *machines: str) -> JournalConfig:
    for name in machines:
        with zstandard.open(GOLDEN / f"remote-{name}.journal.zst", "rb") as packed:
            (directory / f"remote-{name}.journal").write_bytes(packed.read())
    shutil.copy(GOLDEN / "journal.json", directory / "journal.json")
    return JournalConfig("logs", (), "debug", "beginning", directory, 0)


def numbers(publisher: FakePublisher, machine: bytes) -> list[int]:
    values = (record.value.split() for record, _ in publisher.records)
    return [int(number) for name, number in values if name == machine]


async def test_entries_after_the_cursor_come_once_and_those_in_doubt_are_ledgered(tmp_path: Path) -> None:
    config = unpacked(tmp_path, "a", "b", "c")
    publisher = FakePublisher()
    source = JournalSource(config, publisher.as_publisher(), tmp_path / "journal.json")
    async with running_task(source.run()):
        await until(lambda: len(publisher.records) >= 23)
        publisher.losses[0][1]()
        for _, acked in publisher.records:
            acked()
        await until(lambda: (state.load(tmp_path / "journal.json") or {}).get("version") == 2)
    assert numbers(publisher, b"a") == list(range(14, 25))
    assert numbers(publisher, b"c") == list(range(13, 25))
    assert numbers(publisher, b"b") == []  # 20 to 24 are before the cursor, as those that were read
    assert [loss.records for loss, _ in publisher.losses] == [None]
    again = FakePublisher()
    source = JournalSource(config, again.as_publisher(), tmp_path / "journal.json")
    async with running_task(source.run()):
        await until(source.ready.is_set)
    assert (again.records, again.losses) == ([], [])


async def test_one_machine_goes_on_after_the_cursor_and_nothing_is_ledgered(tmp_path: Path) -> None:
    config = unpacked(tmp_path, "a")
    publisher = FakePublisher()
    source = JournalSource(config, publisher.as_publisher(), tmp_path / "journal.json")
    async with running_task(source.run()):
        await until(lambda: len(publisher.records) >= 11)
    assert numbers(publisher, b"a") == list(range(14, 25))
    assert publisher.losses == []


@pytest.mark.parametrize("machines", [("b",), ("b", "c")])
async def test_where_the_cursors_entry_is_gone_the_loss_is_ledgered(tmp_path: Path, machines: tuple[str, ...]) -> None:
    config = unpacked(tmp_path, *machines)
    publisher = FakePublisher()
    source = JournalSource(config, publisher.as_publisher(), tmp_path / "journal.json")
    async with running_task(source.run()):
        await until(lambda: bool(publisher.losses))
        await until(source.ready.is_set)
        await until(lambda: numbers(publisher, b"c") == (list(range(13, 25)) if "c" in machines else []))
    assert [loss.records for loss, _ in publisher.losses] == [None]


@pytest.mark.parametrize(
    ("name", "codec"),
    [
        ("xz-compact-keyed", "XZ"),
        ("xz-regular-plain", "XZ"),
        ("lz4-compact-plain", "LZ4"),
        ("lz4-regular-keyed", "LZ4"),
    ],
)
def test_long_fields_that_systemd_compressed_are_read(tmp_path: Path, name: str, codec: str) -> None:
    path = tmp_path / "remote.journal"
    with zstandard.open(GOLDEN / f"compressed-{name}.journal.zst", "rb") as packed:
        path.write_bytes(packed.read())
    header = read_header(path)[0]
    assert header.incompatible_flags & sum(CODEC_FLAGS.values()) == CODEC_FLAGS[codec]
    assert header.may_share_id  # 254 counts the files of a boot under one id
    assert differences(path, long_entries()) == []
    other = [[(field, value[:-1]) for field, value in entry] for entry in long_entries()]
    assert len(differences(path, other)) >= len(other)
