"""Replicas on a full disk: ordinary topics by the disk's marks, internal topics by a write of their own that failed."""

from __future__ import annotations

import errno
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from edge_broker.cluster.state.cluster_state import PartitionId
from edge_broker.network.cluster.jobs.replica_space import INTERNAL_ROOM_BYTES, ReplicaSpace, mark_full_disk
from edge_broker.storage.files.data_age import Now
from edge_broker.storage.metadata.topic_record import OFFSETS_TOPIC
from edge_broker.testing.disk import SimulatedDisk

P, INTERNAL = PartitionId("t", 0), PartitionId(OFFSETS_TOPIC, 0)


class Log:
    """A log's name, and whether a write of it found no space."""

    def __init__(self, name: PartitionId) -> None:
        self.topic, self.partition = name
        self.writer = SimpleNamespace(out_of_space=False)


class World:
    """A broker's disk with one replica of an ordinary topic and one of an internal topic."""

    def __init__(self) -> None:
        self.hurried: list[PartitionId] = []
        self.disk = SimpleNamespace(refusing=False, tight=False, status=None)
        self.logs = {each: Log(each) for each in (P, INTERNAL)}
        self.replicas = {each: SimpleNamespace(full=False) for each in (P, INTERNAL)}
        partitions = {each: SimpleNamespace(leading=None, log=self.replicas[each]) for each in (P, INTERNAL)}
        broker: Any = SimpleNamespace(space=self.disk)
        self.member: Any = SimpleNamespace(partitions=partitions, tick_until_calm=self.hurried.append)
        replicas: Any = {self.logs[each]: self.replicas[each] for each in (P, INTERNAL)}
        self.space = ReplicaSpace(broker, self.member, replicas)

    def look(self) -> tuple[bool, bool]:
        """Return which of the two replicas take nothing."""
        self.space.look_at_room()
        return self.replicas[P].full, self.replicas[INTERNAL].full


@pytest.fixture
def world() -> World:
    return World()


@pytest.mark.parametrize("mark", ["refusing", "tight"])
def test_a_full_disk_stops_ordinary_replicas_until_it_has_room(
    world: World, mark: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert world.look() == (False, False)
    setattr(world.disk, mark, True)
    assert world.look() == world.look() == (True, False)
    assert (world.space.full, world.space.kept_out, world.hurried) == (True, 1, [P])
    setattr(world.disk, mark, False)
    assert world.look() == (False, False)
    assert (world.space.full, world.hurried) == (False, [P, P])
    events = [line.split()[3] for line in capsys.readouterr().err.splitlines()]
    assert events == ["replicas_blocked", "replicas_unblocked"], "each change is logged once"


def test_a_marker_of_a_full_disk_that_cannot_be_made_is_logged_once_on_the_loop(
    capsys: pytest.CaptureFixture[str],
) -> None:
    disk, calls = SimulatedDisk(1), list[Callable[[], None]]()
    disk.make_directory("/data")
    watch = SimpleNamespace(full_disk_marker=None)
    store = SimpleNamespace(fs=disk, data_dir="/data")
    broker: Any = SimpleNamespace(store=store, space=SimpleNamespace(watch=watch))
    loop: Any = SimpleNamespace(call_soon_threadsafe=calls.append)
    marker = mark_full_disk(broker, loop)
    assert (watch.full_disk_marker, marker.was_full) == (marker, False)

    def no_space(step: str, path: str, _size: int) -> None:
        if step == "create":
            raise OSError(errno.ENOSPC, "No space left on device", path)

    disk.fault = no_space
    for age_ms in (0, 1000):
        marker.update(Now(0, age_ms, trusted=True, boot_id="boot"), is_full=True)
    (call,) = calls
    call()
    logged = capsys.readouterr().err
    assert "full_disk_marker_write_failed" in logged
    assert "No space left on device" in logged
    disk.fault = None
    marker.update(Now(0, 2000, trusted=True, boot_id="boot"), is_full=True)
    assert mark_full_disk(broker, loop).was_full


def test_a_leader_on_a_full_disk_is_no_follower_that_takes_nothing(world: World) -> None:
    world.disk.refusing = True
    world.member.partitions[P].leading = object()
    world.look()
    assert world.space.kept_out == 0


def test_an_internal_replica_stops_once_a_write_found_no_space_and_waits_for_room(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    world.disk.refusing = True
    world.look()
    world.logs[INTERNAL].writer.out_of_space = True
    assert world.look() == (True, True)
    assert world.hurried == [P, INTERNAL]
    world.disk.status = SimpleNamespace(free=INTERNAL_ROOM_BYTES - 1)
    assert world.look() == (True, True)
    world.disk.status = SimpleNamespace(free=INTERNAL_ROOM_BYTES)
    assert world.look() == (True, False)
    assert not world.logs[INTERNAL].writer.out_of_space
    text = capsys.readouterr().err
    assert [text.count(event) for event in ("internal_replica_blocked", "internal_replica_unblocked")] == [1, 1]


def test_a_disk_with_room_again_lets_internal_replicas_go_on(world: World) -> None:
    world.disk.refusing = True
    world.logs[INTERNAL].writer.out_of_space = True
    assert world.look() == (True, True)
    world.disk.refusing = False
    assert world.look() == (False, False)
