"""Chains of journal files: each is read on from its own position, whatever clocks and other chains do.

tests/support/journal_site.py writes the files; tests/simulation/gateway_journal.py plays random schedules.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gateway.systemd_journal.directory import Directories, Root
from gateway.systemd_journal.positions import EntriesLost, EntryRead, Event, Position, from_json, to_json
from gateway.systemd_journal.reader import JournalReader
from gateway.systemd_journal.selection import Selection
from tests.support.journal_files import JournalFileWriter
from tests.support.journal_site import SimulatedJournald

BOOT, OTHER_BOOT = "b" * 32, "c" * 32
MACHINE, FILE, OTHER_FILE = "1" * 32, "f" * 32, "e" * 32
T = 1_764_000_000_000_000
MakeMachine = Callable[..., SimulatedJournald]


class Follower:
    """A reader with a clock of its own; `read` returns the messages until nothing more is found."""

    def __init__(self, directory: Path) -> None:
        self.roots = [Root(directory, "")]
        self.now_s = 0.0
        self.positions: dict[str, Position] | None = None
        self.losses: list[EntriesLost] = []
        self.problems: list[str] = []

    def read(self) -> list[bytes]:
        """Read with a new reader, as after a restart, and keep its positions."""
        reader = JournalReader(Directories(self.roots), Selection((), None), self.positions, lambda: self.now_s)
        if self.positions is None:
            self.positions = reader.start(at_end=False)
        found: list[bytes] = []
        quiet = 0
        while quiet < 12:
            self.now_s += 0.3
            events = reader.next_events()
            quiet = 0 if events else quiet + 1
            found += self._take(events)
        self.problems = reader.problems()
        reader.close()
        return found

    def _take(self, events: list[Event]) -> Iterator[bytes]:
        assert self.positions is not None
        for event in events:
            if event.position is None:
                self.positions.pop(event.chain, None)
            else:
                self.positions[event.chain] = event.position
            if isinstance(event, EntryRead):
                (value,) = event.fields.get("MESSAGE", [b""])
                assert isinstance(value, bytes)
                yield value
            elif isinstance(event, EntriesLost):
                self.losses.append(event)


@pytest.fixture
def follower(tmp_path: Path) -> Follower:
    return Follower(tmp_path)


@pytest.fixture
def make_machine(tmp_path: Path) -> Iterator[MakeMachine]:
    machines: list[SimulatedJournald] = []

    def make(**options: object) -> SimulatedJournald:
        machines.append(SimulatedJournald(tmp_path, random.Random(len(machines)), **options))  # type: ignore[arg-type]
        return machines[-1]

    yield make
    for machine in machines:
        machine.close()


def a_file(path: Path, messages: list[tuple[int, str, int, str]], file_id: str = FILE, seqnum_id: str = "") -> None:
    """Write a file of entries: sequence number, message, milliseconds of clock and of boot, boot."""
    writer = JournalFileWriter(path, file_id, seqnum_id or file_id, MACHINE)
    for seqnum, message, at_ms, boot in messages:
        writer.append(seqnum, T + at_ms * 1_000, 100_000 + at_ms * 1_000, boot, [("MESSAGE", message.encode())])
    writer.close()


def test_machines_whose_clocks_differ_are_read_whole(follower: Follower, make_machine: MakeMachine) -> None:
    machines = [make_machine() for _ in range(5)]
    for number, machine in enumerate(machines):
        machine.jump(-2.0 * number)
    follower.read()
    for round_number in range(20):
        for machine in machines:
            machine.log(f"{machine.machine_id[:4]} {round_number} a", f"{machine.machine_id[:4]} {round_number} b")
        assert len(follower.read()) == 10
    assert follower.losses == []


def test_a_clock_that_goes_back_within_a_boot_hides_nothing(follower: Follower, make_machine: MakeMachine) -> None:
    machine = make_machine()
    machine.log("before")
    assert follower.read() == [b"before"]
    machine.jump(-86_400)
    machine.log("after", "and after")
    assert follower.read() == [b"after", b"and after"]
    machine.rotate()
    machine.log("in the next file")
    assert follower.read() == [b"in the next file"]
    assert follower.losses == []


def test_a_file_that_arrives_late_with_older_entries_is_read(follower: Follower, tmp_path: Path) -> None:
    a_file(tmp_path / "remote-a.journal", [(1, "new", 60_000, BOOT)])
    assert follower.read() == [b"new"]
    a_file(tmp_path / "remote-b.journal", [(1, "old", 0, BOOT), (2, "older", -60, OTHER_BOOT)], OTHER_FILE)
    assert follower.read() == [b"old", b"older"]
    assert follower.losses == []


def test_two_files_of_one_boot_are_each_read_on(follower: Follower, make_machine: MakeMachine) -> None:
    machine = make_machine(shared_id=True)
    for number in range(3):
        machine.log(f"system {number}")
        machine.log(f"user {number}", kind="user-1000")
        assert sorted(follower.read()) == [b"system %d" % number, b"user %d" % number]
    assert follower.losses == []


def test_an_archived_file_that_comes_after_the_active_one_is_read(follower: Follower, tmp_path: Path) -> None:
    """As rsync copies them: the order of the sequence numbers decides, not the order of arrival."""
    a_file(tmp_path / f"remote-a@{FILE}-1-1.journal", [(1, "1", 1, BOOT), (2, "2", 2, BOOT)])
    a_file(tmp_path / "remote-a.journal", [(3, "3", 3, BOOT)], OTHER_FILE, FILE)
    assert follower.read() == [b"1", b"2", b"3"]
    assert follower.losses == []


@pytest.mark.parametrize("shared_id", [False, True])
def test_entries_that_are_deleted_unread_are_lost_with_count(
    follower: Follower, make_machine: MakeMachine, shared_id: bool
) -> None:
    machine = make_machine(shared_id=shared_id)
    machine.log("read")
    follower.read()
    machine.log(*map(str, range(7)))
    machine.rotate()
    machine.log("later")
    machine.vacuum(0)
    assert follower.read() == [b"later"]
    (loss,) = follower.losses
    assert (loss.count, loss.first_seqnum, loss.last_seqnum) == (7, 2, 8)
    assert loss.reason.endswith(
        "lost 7 entries of machine "
        + machine.machine_id
        + " before they were read, sequence numbers 2 to 8: rotated, vacuumed or volatile"
    )


def test_deleted_entries_show_before_another_entry_is_written(follower: Follower, make_machine: MakeMachine) -> None:
    machine = make_machine()
    machine.log("read")
    follower.read()
    machine.log("lost")
    machine.rotate()
    machine.vacuum(0)
    assert follower.read() == []
    assert [loss.count for loss in follower.losses] == [1]


def test_entries_of_another_kind_are_no_gap(follower: Follower, make_machine: MakeMachine) -> None:
    machine = make_machine(shared_id=True)
    machine.log("1")
    follower.read()
    machine.log("2", "3", kind="user-1000")
    machine.rotate()
    machine.log("4")
    machine.log("5", kind="user-1000")
    assert sorted(follower.read()) == [b"2", b"3", b"4", b"5"]
    assert follower.losses == []


def test_numbers_of_a_chain_without_a_saved_position_are_not_accounted_for(
    follower: Follower, make_machine: MakeMachine
) -> None:
    machine = make_machine(shared_id=True)
    machine.log("1", "2", "3")
    follower.read()
    machine.boot()
    machine.log("lost", "lost too", kind="user-1000")  # numbers 1 and 2 of the boot's id
    machine.log("4")  # counts on from 3, under the boot's id
    reader = JournalReader(Directories(follower.roots), Selection((), None), follower.positions, lambda: 100.0)
    moved = [event for event in reader.next_events() if "|system|" in event.chain]
    reader.close()
    assert list(follower._take(moved)) == [b"4"]  # the gateway is killed before the rest is acknowledged
    machine.rotate()
    for path in (machine.root / machine.machine_id).glob("user-1000@*"):
        path.unlink()
    machine.log("5", kind="user-1000")
    assert follower.read() == [b"5"]
    assert [(loss.first_seqnum, loss.last_seqnum, loss.count) for loss in follower.losses] == [(1, 4, None)]


def test_numbers_read_after_the_last_scan_are_not_accounted_for(follower: Follower, make_machine: MakeMachine) -> None:
    """A chain that began after the scan may have the numbers between."""
    machine = make_machine(shared_id=True)
    machine.log("1")
    assert follower.read() == [b"1"]
    reader = JournalReader(Directories(follower.roots), Selection((), None), follower.positions, lambda: follower.now_s)
    for _ in range(20):
        follower.now_s += 0.3
        assert list(follower._take(reader.next_events())) == []
    while reader._scanned_s != follower.now_s:
        follower.now_s += 0.3
        reader.next_events()
    machine.log("lost", kind="user-1000")
    machine.log("3")
    found: list[bytes] = []
    for _ in range(4):
        follower.now_s += 0.1  # no scan
        found += follower._take(reader.next_events())
    assert found == [b"3"]
    reader.close()
    machine.rotate()
    remove(machine, "user-1000@*")
    machine.log("4", kind="user-1000")
    assert follower.read() == [b"4"]
    assert [loss.count for loss in follower.losses] == [None]


def remove(machine: SimulatedJournald, pattern: str) -> None:
    """Delete files of a machine's journal, as journald does to free space."""
    paths = list((machine.root / machine.machine_id).glob(pattern))
    assert paths
    for path in paths:
        path.unlink()


def spans(follower: Follower) -> list[tuple[int | None, int | None, int | None]]:
    return [(loss.first_seqnum, loss.last_seqnum, loss.count) for loss in follower.losses]


@pytest.mark.parametrize(("power_losses", "clock_s"), [(1, 0.0), (2, 0.0), (2, -60.0)])
def test_a_file_of_a_later_boot_that_ends_with_the_number_before_explains_nothing(
    follower: Follower, make_machine: MakeMachine, power_losses: int, clock_s: float
) -> None:
    machine = make_machine()
    follower.read()
    machine.log(*(f"lost {number}" for number in range(7)))
    machine.rotate()
    machine.log("8")
    remove(machine, "system@*")
    machine.boot(clean=False)
    machine.jump(clock_s)
    machine.log(*(f"later {number}" for number in range(7)))  # its last number is 7, too
    machine.rotate()
    if power_losses == 2:
        machine.log("later 7")
        machine.boot(clean=False)
        machine.log("last")
    assert b"8" in follower.read()
    assert spans(follower) == [(None, 7, None)]


def test_a_file_of_the_boot_before_that_ends_with_the_number_before_explains_nothing(
    follower: Follower, make_machine: MakeMachine
) -> None:
    """journald 252 begins another id after a power loss, and counts on from no file."""
    machine = make_machine()
    machine.log("1", "2")
    assert follower.read() == [b"1", b"2"]
    machine.boot(clean=False)
    follower.read()
    machine.log("lost 1", "lost 2")
    machine.rotate()
    remove(machine, "system@*-0000000000000001-*")
    machine.log("3")
    assert follower.read() == [b"3"]
    assert spans(follower) == [(None, 2, None)]


@pytest.mark.parametrize("clock_s", [0.0, -60.0])
@pytest.mark.parametrize("is_clean", [True, False])
def test_a_file_that_counts_on_under_another_id_lost_nothing(
    follower: Follower, make_machine: MakeMachine, clock_s: float, is_clean: bool
) -> None:
    """Without a clock that a battery keeps, a boot's first entries may be older than the last of the boot before."""
    machine = make_machine(shared_id=True)
    machine.log("1", "2", "3")
    follower.read()
    machine.log("4")
    machine.boot(clean=is_clean)
    machine.jump(clock_s)
    machine.log("another", kind="user-1000")  # the boot's id is the user's
    machine.log("5")
    machine.rotate()
    machine.log("6")
    assert sorted(follower.read()) == [b"4", b"5", b"6", b"another"]
    assert follower.losses == []


@pytest.mark.parametrize("start_again", [SimulatedJournald.boot, SimulatedJournald.restart])
@pytest.mark.parametrize("used_again", [5, 3])
def test_numbers_that_a_later_start_of_journald_used_again_hide_no_loss(
    follower: Follower,
    make_machine: MakeMachine,
    start_again: Callable[[SimulatedJournald], None],
    used_again: int,
) -> None:
    machine = make_machine()
    machine.log("read")
    follower.read()
    machine.log("lost 2", "lost 3", "lost 4", "lost 5")
    start_again(machine)
    machine.log(*(f"user {number}" for number in range(used_again)), kind="user-1000")  # from 1 on
    machine.rotate()
    machine.log("6")
    remove(machine, "system@*")
    assert len(follower.read()) == used_again + 1
    assert spans(follower) == [(2, 5, None)]


@pytest.mark.parametrize("shared_id", [False, True])
@pytest.mark.parametrize("read_again", [[], ["2"]])
def test_numbers_that_another_kind_used_in_the_boot_before_hide_no_loss(
    follower: Follower, make_machine: MakeMachine, shared_id: bool, read_again: list[str]
) -> None:
    machine = make_machine(shared_id=shared_id)
    machine.log("1")
    machine.log(*map(str, range(2, 13)), kind="user-1001")
    assert len(follower.read()) == 12
    machine.boot()
    machine.log(*read_again)  # from 2 on
    assert len(follower.read()) == len(read_again)
    machine.log("lost", "lost too")
    machine.rotate()
    remove(machine, "system@*")
    machine.log("last")
    assert follower.read() == [b"last"]
    first = 2 + len(read_again)
    assert spans(follower) == [(first, first + 1, None)]


def test_numbers_that_a_new_kind_uses_again_are_not_accounted_for(
    follower: Follower, make_machine: MakeMachine
) -> None:
    machine = make_machine(shared_id=True)
    machine.log(*map(str, range(1, 6)), kind="user-1001")
    machine.log(*map(str, range(6, 13)))
    assert len(follower.read()) == 12
    machine.boot()
    machine.log("6", kind="user-1001")
    machine.log("lost 7", "lost 8", kind="user-1000")
    machine.rotate()
    remove(machine, "user-1000@*")
    machine.log("9", kind="user-1000")
    assert sorted(follower.read()) == [b"6", b"9"]
    assert spans(follower) == [(None, 8, None)]


def test_numbers_that_another_kind_used_in_a_later_boot_are_no_loss_where_the_file_before_exists(
    follower: Follower, make_machine: MakeMachine
) -> None:
    machine = make_machine()
    machine.log("1")
    follower.read()
    machine.boot()
    machine.log("2", "3", "4", kind="user-1000")
    machine.rotate()
    machine.log("5")
    assert sorted(follower.read()) == [b"2", b"3", b"4", b"5"]
    assert follower.losses == []


def test_a_count_includes_no_entries_of_a_kind_that_came_and_went(
    follower: Follower, make_machine: MakeMachine
) -> None:
    machine = make_machine()
    machine.log("read")
    follower.read()
    machine.log("lost 2", "lost 3")
    machine.log("unseen", "unseen", "unseen", kind="user-1000")  # 4 to 6
    machine.rotate()
    machine.log("7")
    machine.boot(clean=False)
    remove(machine, "*@*-0000000000000001-*")
    remove(machine, "user-1000@*")
    machine.log("1", kind="user-1001")
    assert sorted(follower.read()) == [b"1", b"7"]
    assert spans(follower) == [(2, 6, None)]


def test_a_file_that_is_missing_between_archived_files_of_another_machine_is_a_loss_with_count(
    follower: Follower, tmp_path: Path
) -> None:
    """No other files take numbers of what systemd-journal-remote receives."""
    a_file(tmp_path / f"remote-a@{FILE}-1-1.journal", [(1, "1", 1, BOOT)])
    assert follower.read() == [b"1"]
    a_file(tmp_path / f"remote-a@{FILE}-5-5.journal", [(5, "5", 5, OTHER_BOOT)], OTHER_FILE, FILE)
    assert follower.read() == [b"5"]
    assert spans(follower) == [(2, 4, 3)]


def test_a_kind_that_took_the_id_later_does_not_begin_the_ids_numbers(
    follower: Follower, make_machine: MakeMachine
) -> None:
    machine = make_machine(shared_id=True)
    machine.log(*map(str, range(9)), kind="user-1001")
    follower.read()
    machine.boot()
    machine.log("lost 1", "lost 2", "lost 3", kind="user-1000")
    machine.rotate()
    remove(machine, "user-1000@*")
    machine.log("4", kind="user-1000")
    machine.log("10", kind="user-1001")  # from 9 on, under the id of the other
    assert sorted(follower.read()) == [b"10", b"4"]
    assert [(loss.last_seqnum, loss.count) for loss in follower.losses] == [(3, None)]


@pytest.mark.parametrize("is_seen", [True, False])
def test_a_power_loss_gives_numbers_of_a_new_kind_to_another(
    follower: Follower, make_machine: MakeMachine, is_seen: bool
) -> None:
    machine = make_machine(shared_id=True)
    if is_seen:
        machine.log("1", "2", "3", "4")
    follower.read()
    if not is_seen:
        machine.log("1", "2", "3", "4")
    machine.log("lost 5", "lost 6", "lost 7", kind="user-1000")
    machine.boot(clean=False)
    machine.log("5", "6", "7")
    remove(machine, "user-1000@*")
    machine.log("8", kind="user-1000")
    assert sorted(follower.read())[-4:] == [b"5", b"6", b"7", b"8"]
    assert [(loss.last_seqnum, loss.count) for loss in follower.losses] == [(7, None)]


def test_a_kind_that_begins_in_a_later_boot_lost_nothing(follower: Follower, make_machine: MakeMachine) -> None:
    machine = make_machine(shared_id=True)
    machine.log("1", "2")
    follower.read()
    machine.log("3")
    machine.boot()
    machine.log("4")
    machine.log("5", kind="user-1000")
    assert follower.read() == [b"3", b"4", b"5"]
    assert follower.losses == []


def test_small_numbers_of_the_next_boot_are_not_accounted_for_by_those_of_the_boot_before(
    follower: Follower, make_machine: MakeMachine
) -> None:
    """journald deletes the least first number first, so files of a later boot can go before a file that is older."""
    machine = make_machine(shared_id=True)
    machine.log("1", kind="user-1000")
    machine.log(*map(str, range(2, 20)))
    machine.rotate()
    machine.log(*map(str, range(20, 31)))
    assert len(follower.read()) == 30
    machine.log(*map(str, range(31, 51)))
    machine.boot()
    machine.log("lost 2", kind="user-1000")
    machine.log(*(f"lost {number}" for number in range(3, 9)), kind="user-1001")
    machine.log(*map(str, range(51, 60)))
    machine.rotate()
    machine.vacuum(1)
    machine.log("60", kind="user-1001")
    assert len(follower.read()) == 30
    assert {loss.chain.split("|")[1] for loss in follower.losses} == {"user-1000", "user-1001"}


def test_numbers_of_a_later_boot_are_no_doubt_where_the_boot_used_them_all(
    follower: Follower, make_machine: MakeMachine
) -> None:
    machine = make_machine(shared_id=True)
    follower.read()
    machine.log("1", kind="user-1000")
    machine.log("2", "3", "4", "5", "6")
    machine.log("7", kind="user-1001")
    machine.boot(clean=False)
    machine.log("2", "3", kind="user-1000")
    assert len(follower.read()) == 9
    assert follower.losses == []


@pytest.mark.parametrize("is_flushed", [True, False])
def test_a_file_deleted_before_an_older_one_is_a_loss_once_journald_writes_another_chain(
    tmp_path: Path, follower: Follower, make_machine: MakeMachine, is_flushed: bool
) -> None:
    """A file that journald set aside has the time of a clock that went back."""
    follower.roots = [Root(tmp_path, "var"), Root(tmp_path / "run", "run", is_volatile=True)]
    machine = make_machine(run=tmp_path / "run")
    machine.flush()
    machine.log("1", "2")
    assert len(follower.read()) == 2
    machine.rotate()
    machine.jump(-60)
    machine.log("lost 3", "lost 4")
    machine.boot(clean=False)
    machine.vacuum(1)
    assert follower.read() == []
    machine.log("1")
    if is_flushed:
        machine.flush()
    assert follower.read() == [b"1"]
    assert spans(follower) == [(3, None, None)]
    remove(machine, "system@*")
    follower.read()
    assert len(follower.losses) == 1


def test_a_file_deleted_before_its_end_was_read_is_a_loss_though_an_older_one_exists(
    follower: Follower, make_machine: MakeMachine
) -> None:
    machine = make_machine()
    machine.log("1", "2")
    machine.rotate()
    machine.jump(-60)
    machine.log("3")
    assert len(follower.read()) == 3
    machine.log("lost 4", "lost 5")
    machine.boot(clean=False)
    machine.vacuum(1)
    machine.log("1")
    assert follower.read() == [b"1"]
    assert spans(follower) == [(4, None, None)]


def test_the_last_file_of_a_boots_id_is_deleted_and_nothing_was_lost(
    follower: Follower, make_machine: MakeMachine
) -> None:
    """journald 254 gives each boot's files another id, and the next file goes on from the number before."""
    machine = make_machine(shared_id=True)
    machine.log("1", "2", "3", "4")
    follower.read()
    for _ in range(3):
        machine.boot()
        machine.log("of the user", "of the user", kind=f"user-{machine.boot_id[:4]}")
        machine.log("more", "more")
        follower.read()
    machine.rotate()
    machine.log("last")
    follower.read()
    machine.vacuum(0)
    follower.read()
    assert follower.losses == []


@pytest.mark.parametrize("at_end", [True, False])
def test_a_chain_that_had_ended_at_the_first_start_lost_nothing(
    follower: Follower, make_machine: MakeMachine, at_end: bool
) -> None:
    machine = make_machine(shared_id=True)
    machine.log("1", kind="user-1000")
    machine.log("2")
    machine.boot()
    machine.log("1", "2", "3", kind="user-1001")
    machine.log("4", "5")
    machine.log("6", kind="user-1000")
    reader = JournalReader(Directories(follower.roots), Selection((), None), None, lambda: 0.0)
    follower.positions = reader.start(at_end=at_end)
    events, found = reader.next_events(), []
    while events:
        found += follower._take(events)
        events = reader.next_events()
    reader.close()
    assert len(found) == (0 if at_end else 8)
    follower.read()
    assert follower.losses == []


def test_a_next_file_that_cannot_be_read_ends_no_chain(
    follower: Follower, make_machine: MakeMachine, tmp_path: Path
) -> None:
    machine = make_machine()
    machine.log("1")
    follower.read()
    machine.rotate()
    machine.log("2")
    machine.boot(clean=False)
    (unread,) = (machine.root / machine.machine_id).glob("*~")
    content = unread.read_bytes()
    unread.write_bytes(b"damaged" + content[7:])
    machine.log("1")
    assert follower.read() == [b"1"]
    assert follower.losses == []
    unread.write_bytes(content)
    assert follower.read() == [b"2"]
    assert follower.losses == []


def test_an_empty_file_that_takes_another_id_before_its_loss_is_confirmed_hides_no_loss(
    follower: Follower, make_machine: MakeMachine
) -> None:
    machine = make_machine(shared_id=True)
    follower.read()
    machine.log("lost 1", "lost 2", kind="user-1000")
    machine.boot(clean=False)
    remove(machine, "user-1000@*")
    reader = JournalReader(Directories(follower.roots), Selection((), None), follower.positions, lambda: follower.now_s)
    assert reader.next_events() == []
    machine.log("1", "2")
    machine.log("3", kind="user-1000")  # under the id of the system's, and 2 is its number before, too
    found: list[bytes] = []
    for _ in range(12):
        follower.now_s += 0.3
        found += follower._take(reader.next_events())
    reader.close()
    assert sorted(found) == [b"1", b"2", b"3"]
    assert [loss.count for loss in follower.losses] == [None]


def test_a_chain_without_files_is_a_loss_of_unknown_size(follower: Follower, make_machine: MakeMachine) -> None:
    machine = make_machine()
    machine.log("read")
    follower.read()
    machine.log("lost")
    machine.boot(clean=False)  # journald 252 begins a new chain
    machine.vacuum(0)
    machine.log("after")
    assert follower.read() == [b"after"]
    assert [loss.count for loss in follower.losses] == [None]


def test_a_file_set_aside_after_a_power_loss_is_read_to_its_end(follower: Follower, make_machine: MakeMachine) -> None:
    machine = make_machine()
    machine.log("1")
    follower.read()
    machine.log("2")
    machine.boot(clean=False)
    machine.log("3")
    assert follower.read() == [b"2", b"3"]
    assert follower.losses == []


def test_entries_copied_from_run_to_var_come_once(
    tmp_path: Path, follower: Follower, make_machine: MakeMachine
) -> None:
    (tmp_path / "var").mkdir()
    (tmp_path / "run").mkdir()
    machine = make_machine(run=tmp_path / "run")
    machine.root = tmp_path / "var"
    follower.roots = [Root(tmp_path / "var", "var"), Root(tmp_path / "run", "run", is_volatile=True)]
    machine.log("1", "2")
    assert follower.read() == [b"1", b"2"]
    machine.log("3")
    machine.flush()
    machine.log("4")
    assert follower.read() == [b"3", b"4"]
    assert follower.losses == []


@pytest.fixture
def flushed(tmp_path: Path, follower: Follower, make_machine: MakeMachine) -> SimulatedJournald:
    """A machine that counts on in /var from /run, of which two of three entries were read before the flush."""
    (tmp_path / "var").mkdir()
    (tmp_path / "run").mkdir()
    machine = make_machine(run=tmp_path / "run", shared_id=True)
    machine.root = tmp_path / "var"
    follower.roots = [Root(tmp_path / "var", "var"), Root(tmp_path / "run", "run", is_volatile=True)]
    machine.log("1", "2")
    assert follower.read() == [b"1", b"2"]
    machine.log("3")
    machine.flush()
    return machine


def test_nothing_is_missing_before_copies_of_entries_that_were_read(
    follower: Follower, flushed: SimulatedJournald
) -> None:
    flushed.log("4")
    assert follower.read() == [b"3", b"4"]
    assert follower.losses == []


def test_copies_that_are_deleted_unread_are_lost(follower: Follower, flushed: SimulatedJournald) -> None:
    flushed.rotate()
    remove(flushed, "system@*")
    flushed.log("4")
    assert follower.read() == [b"4"]
    assert {loss.count for loss in follower.losses} == {None}


def test_a_corrupt_entry_is_lost_and_those_around_it_are_read(follower: Follower, tmp_path: Path) -> None:
    writer = JournalFileWriter(tmp_path / "remote-a.journal", FILE, FILE, MACHINE)
    offsets = [writer.append(n, T + n, n, BOOT, [("MESSAGE", b"%d" % n)]) for n in (1, 2, 3)]
    writer.overwrite(offsets[1], bytes(16))
    writer.close()
    assert follower.read() == [b"1", b"3"]
    (loss,) = follower.losses
    assert loss.count == 1
    assert "entries 2 to 2 of a journal file of remote-a are corrupt (no entry at offset" in loss.reason
    assert follower.read() == []
    assert len(follower.losses) == 1


def test_a_file_whose_end_is_cut_off_is_read_as_far_as_it_goes(follower: Follower, tmp_path: Path) -> None:
    path = tmp_path / f"remote-a@{FILE}-1-1.journal"
    a_file(path, [(n, str(n), n, BOOT) for n in range(1, 9)])
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size * 2 // 3)
    assert follower.read()[:3] == [b"1", b"2", b"3"]
    assert follower.losses
    assert all("are corrupt" in loss.reason for loss in follower.losses)


@pytest.mark.parametrize("where", [8, 100, 272, 288, 1_000])
@pytest.mark.parametrize("raw", [b"\xff" * 64, bytes(64), bytes(range(64))])
def test_bytes_that_lie_end_in_a_loss_or_a_problem_and_in_no_loop(
    follower: Follower, tmp_path: Path, where: int, raw: bytes
) -> None:
    writer = JournalFileWriter(tmp_path / "remote-a.journal", FILE, FILE, MACHINE)
    for n in range(1, 9):
        writer.append(n, T + n, n, BOOT, [("MESSAGE", b"%d" % n)])
    writer.overwrite(where, raw)
    writer.close()
    read = follower.read()
    assert read == [b"%d" % n for n in range(1, 9)] or follower.losses or follower.problems


def test_random_bytes_in_a_file_never_stop_the_others(follower: Follower, tmp_path: Path) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    chance = random.Random(seed)
    for number in range(40):
        path = tmp_path / f"remote-{number}.journal"
        a_file(path, [(n, str(n), n, BOOT) for n in range(1, 9)], f"{number:032x}")
        with path.open("r+b") as file:
            for _ in range(4):
                file.seek(chance.randrange(path.stat().st_size))
                file.write(chance.randbytes(8))
    a_file(tmp_path / "remote-good.journal", [(1, "good", 1, BOOT)])
    assert b"good" in follower.read(), f"seed {seed}"


def test_positions_are_the_same_after_the_state_file(follower: Follower, make_machine: MakeMachine) -> None:
    make_machine().log("1")
    follower.read()
    assert follower.positions
    assert from_json(to_json(follower.positions)) == follower.positions
