"""States are kept by one write for all that changed; nothing counts as kept before that write is synced."""

from __future__ import annotations

import pytest

from edge_broker.cluster.state.state_keeper import StateKeeper
from edge_broker.storage.metadata.kept_states import KeptState, LogId

A, B = LogId("a", 0), LogId("b", 3)
ONE, TWO, THREE = (KeptState(f"s{height}", height, named=True) for height in (1, 2, 3))


class Disk:
    """What the keeper wanted to be written."""

    def __init__(self, kept: dict[LogId, KeptState] | None = None) -> None:
        self.writes: list[dict[LogId, KeptState]] = []
        self.keeper = StateKeeper(kept or {}, lambda states, epoch: self.writes.append(dict(states)))


@pytest.fixture
def disk() -> Disk:
    return Disk()


def test_nothing_counts_before_it_is_synced(disk: Disk) -> None:
    assert not disk.keeper.keep(A, ONE)
    assert disk.keeper.kept_state(A) is None
    assert disk.keeper.finish_write() == (A,)
    assert disk.keeper.kept_state(A) == ONE
    assert disk.keeper.keep(A, ONE)
    assert disk.writes == [{A: ONE}]


def test_what_the_disk_has_is_not_written_again() -> None:
    disk = Disk({A: ONE})
    assert disk.keeper.keep(A, ONE)
    assert disk.writes == []


def test_changes_during_a_write_share_the_next_one(disk: Disk) -> None:
    disk.keeper.keep(A, ONE)
    disk.keeper.keep(A, TWO)
    disk.keeper.keep(B, ONE)
    disk.keeper.keep(A, THREE)
    assert len(disk.writes) == 1
    disk.keeper.finish_write()
    assert disk.writes[1:] == [{A: THREE, B: ONE}]
    assert disk.keeper.kept_state(A) == ONE
    assert set(disk.keeper.finish_write()) == {A, B}


def test_a_state_that_is_being_written_is_not_wanted_twice(disk: Disk) -> None:
    assert not disk.keeper.keep(A, ONE)
    assert not disk.keeper.keep(A, ONE)
    disk.keeper.finish_write()
    assert len(disk.writes) == 1


def test_a_kept_state_does_not_count_while_another_replaces_it() -> None:
    """The write in progress may already be on the disk: after a power cut the disk has that one."""
    disk = Disk({A: ONE})
    disk.keeper.keep(A, TWO)
    assert not disk.keeper.keep(A, ONE)
    disk.keeper.finish_write()
    assert disk.writes == [{A: TWO}, {A: ONE}]
    disk.keeper.finish_write()
    assert disk.keeper.keep(A, ONE)


def test_a_write_that_failed_is_repeated_with_what_came_since(disk: Disk) -> None:
    disk.keeper.keep(A, ONE)
    disk.keeper.keep(B, TWO)
    disk.keeper.abandon_write()
    assert disk.keeper.kept_state(A) is None
    disk.keeper.retry()
    assert disk.writes[1:] == [{A: ONE, B: TWO}]


def test_a_newer_state_replaces_one_whose_write_failed(disk: Disk) -> None:
    disk.keeper.keep(A, ONE)
    disk.keeper.keep(A, TWO)
    disk.keeper.abandon_write()
    disk.keeper.retry()
    assert disk.writes[1:] == [{A: TWO}]


def test_a_deleted_topic_is_forgotten() -> None:
    disk = Disk({A: ONE, B: TWO})
    disk.keeper.forget(A)
    disk.keeper.abandon_write()
    disk.keeper.retry()
    disk.keeper.finish_write()
    assert disk.writes == [{B: TWO}, {B: TWO}]
    assert disk.keeper.kept_state(A) is None
    disk.keeper.forget(A)
    assert len(disk.writes) == 2


def test_a_log_that_is_forgotten_during_its_write_is_forgotten(disk: Disk) -> None:
    disk.keeper.keep(A, ONE)
    disk.keeper.forget(A)
    disk.keeper.finish_write()
    disk.keeper.finish_write()
    assert disk.writes == [{A: ONE}, {}]
    assert disk.keeper.kept_state(A) is None
