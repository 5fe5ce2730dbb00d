"""Schedules of journals and a gateway hold, and readers that are broken on purpose are found.

`make simulate-journal` plays 2,000 from a new seed on; SEED= replays one.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gateway.systemd_journal.directory import JournalFileInfo
from gateway.systemd_journal.file_format import Entry
from gateway.systemd_journal.positions import EntriesLost, Event, Position
from gateway.systemd_journal.reader import JournalReader
from tests.simulation.gateway_journal import MakeReader, ScheduleError, run_schedule

SEEDS = 120
SEEDS_MAX = 400
FOUND = {
    31: "a chain that took another id in an empty file was taken for its own beginning",
    291: "sequence numbers counted as accounted for while another chain waited to report them",
    485: "the sequence numbers of entries in /run were counted as entries lost",
    706: "entries in a file that existed, and was deleted later, counted as read",
    1959: "numbers that another kind had used in the boot before covered a loss",
    2937: "the same, of the boot after, where the chain's next file has no entries",
    3131: "a file that counted on from another id, which was forgotten, was a loss with a count",
    9000233: "numbers of a chain that no saved position told of yet counted as accounted for, and its file was deleted",
    20001107: "a file of a later boot that ends with the number before a file counted as what that file goes on from",
    20005036: "numbers that another kind used again in the next boot were subtracted from a count",
    31003328: "numbers of a kind that came and went before a power loss were in the count of another",
    31004085: "a kind that took an id later counted as the beginning of the id, and what was before it as nothing",
    32005688: "an empty file took another id before the loss of what was before it was reported",
    34004915: "the same as 20001107, where the clock was set back before the later boot",
    34006644: "the same, of the boot before, which journald 252 never goes on from",
    3332: "a chain in /run was forgotten before its copies in /var were read, which came twice",
}
"""Seeds that have failed without a quiet gateway in between, and what was wrong."""


FOUND_AT_REST = {
    70000306: "the newest file was set aside with a clock that had gone back, deleted first, and not reported",
    70002932: "the same, after several boots",
    81001753: "the same, of a file that was read in part",
}
"""Seeds that have failed with a quiet gateway in between, and what was wrong."""


@pytest.mark.parametrize("first", range(0, SEEDS, 40))
def test_every_entry_is_a_record_once_or_ledgered(first: int, tmp_path: Path) -> None:
    for seed in range(first, first + 40):
        run_schedule(seed, tmp_path / str(seed))


@pytest.mark.parametrize("seed", FOUND)
def test_a_schedule_that_failed_once_holds(seed: int, tmp_path: Path) -> None:
    run_schedule(seed, tmp_path / "run", quiet_share=0.0)


@pytest.mark.parametrize("seed", FOUND_AT_REST)
def test_a_schedule_that_failed_at_rest_holds(seed: int, tmp_path: Path) -> None:
    run_schedule(seed, tmp_path / "run")


class OneOrder(JournalReader):
    """Passes over entries older than the newest that was read, as one cursor over a merged order does."""

    _newest_us = 0

    def next_events(self) -> list[Event]:
        found = []
        for event in super().next_events():
            time_us = getattr(event, "realtime_us", None)
            if time_us is None or time_us >= self._newest_us:
                found.append(event)
                self._newest_us = max(self._newest_us, time_us or 0)
        return found


class NoLosses(JournalReader):
    """Reports no loss."""

    def next_events(self) -> list[Event]:
        return [event for event in super().next_events() if not isinstance(event, EntriesLost)]


class OneTooMany(JournalReader):
    """Counts a deleted entry too many."""

    def next_events(self) -> list[Event]:
        return [
            replace(event, count=event.count + 1) if isinstance(event, EntriesLost) and event.count else event
            for event in super().next_events()
        ]


class Repeats(JournalReader):
    """Goes on two entries before the position that was saved."""

    def _resume(self, chain: Any, position: Position, info: JournalFileInfo) -> None:
        super()._resume(chain, position, info)
        if chain.position.count > 2:
            chain.position = replace(chain.position, count=chain.position.count - 2)


class BlindToFlush(JournalReader):
    """Takes a copy in /var for an entry of its own."""

    def _flushed_from(self, chain: Any, entry: Entry) -> None:
        return None


@pytest.mark.parametrize("broken", [OneOrder, NoLosses, OneTooMany, Repeats, BlindToFlush])
def test_a_reader_that_is_broken_is_found(broken: MakeReader, tmp_path: Path) -> None:
    for seed in range(SEEDS_MAX):
        try:
            run_schedule(seed, tmp_path / str(seed), broken)
        except ScheduleError:
            return
    pytest.fail(f"{SEEDS_MAX} schedules found nothing")
