"""The security log: lines that are never cut off nor lost in silence, rotated within bounds, of the right mode."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest

from edge_broker.security.acls import AclBinding, Operation, PatternType, Permission, ResourceType
from edge_broker.security.changes import acl_text
from edge_broker.storage.files.filesystem import Disk, ReadOnlyDisk
from edge_broker.storage.metadata import security_log
from edge_broker.storage.metadata.security_log import (
    ADMINS_NAME,
    CHANGES_NAME,
    CHANGES_OLDER,
    FAILED_EVENT,
    KEPT_MAX,
    SecurityLog,
)
from edge_broker.testing.disk import PowerLoss, SimulatedDisk

PATH, ADMINS = f"/data/{CHANGES_NAME}", f"/data/{ADMINS_NAME}"


def disk_of(seed: int = 1) -> SimulatedDisk:
    disk = SimulatedDisk(seed)
    disk.make_directory("/data")
    disk.sync_directory("/")
    return disk


def opened(disk: SimulatedDisk) -> SecurityLog:
    return SecurityLog(disk, "/data", lambda: 1_764_000_000_000)


def added(*names: object) -> list[tuple[str, dict[str, object]]]:
    return [("acl-added", {"acl": name}) for name in names]


def no_space(kind: str, path: str, size: int) -> int:
    if CHANGES_NAME in path:
        raise OSError(errno.ENOSPC, "No space left on device", path)
    return size


def kept(disk: SimulatedDisk, path: str = PATH) -> list[str]:
    return [line.rpartition("acl=")[2] for line in disk.content(path).decode().splitlines()]


def test_what_was_written_outlives_a_power_loss_at_any_step() -> None:
    for seed in range(5):
        for step in range(1, 50):
            disk = disk_of(seed)
            log = opened(disk)
            log.write_changes(added("a"))
            disk.crash_at = disk.steps + step
            try:
                log.write_changes(added("b"))
            except PowerLoss:
                disk.crash()
                assert kept(disk)[0] == "a"
                opened(disk).write_changes(added("c"))
                assert kept(disk)[-1] == "c", "a line that was cut off takes no other along"
                continue
            disk.crash()
            assert kept(disk) == ["a", "b"]
            break
        else:
            pytest.fail("a line takes more than 50 steps")


def test_a_full_file_becomes_an_older_one_and_only_so_many_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(security_log, "_CHANGES", security_log._CHANGES._replace(bytes_max=200))
    disk = disk_of()
    log = opened(disk)
    for number in range(50):
        log.write_changes(added(number))
    names = sorted(name for name in disk.names("/data") if name.startswith(CHANGES_NAME))
    assert names == [CHANGES_NAME, *(f"{CHANGES_NAME}.{number}" for number in range(1, CHANGES_OLDER + 1))]
    numbers = [int(one) for name in [*reversed(names[1:]), names[0]] for one in kept(disk, f"/data/{name}")]
    assert numbers == list(range(numbers[0], 50))
    assert all(disk.size(f"/data/{name}") <= 200 for name in names)


def test_log_ins_of_super_users_push_no_change_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(security_log, "_ADMINS", security_log._ADMINS._replace(bytes_max=200))
    disk = disk_of()
    log = opened(disk)
    log.write_changes(added("a"))
    for _ in range(50):
        log.write_admins([("log-in", {"principal": "User:ops"})])
    assert kept(disk) == ["a"]
    assert disk.size(ADMINS) <= 200


def test_lines_that_the_disk_refuses_are_written_once_it_takes_them_and_no_more_than_a_bound_is_kept() -> None:
    disk = disk_of()
    log = opened(disk)
    said: list[str] = []
    log.echo = lambda _level, event, _fields: said.append(event)
    disk.fault = no_space
    for number in range(KEPT_MAX + 10):
        log.write_changes(added(number))
    assert said.count("acl-added") == KEPT_MAX + 10
    assert said.count(FAILED_EVENT) == 1
    assert f"{PATH} lacks {KEPT_MAX + 10} lines" in log.problem
    log.retry()
    assert log.problem
    disk.fault = None
    log.retry()
    assert not log.problem
    first, *others = disk.content(PATH).decode().splitlines()
    assert "security-log-incomplete lines=10 reason=" in first
    assert [int(line.rpartition("acl=")[2]) for line in others] == list(range(10, KEPT_MAX + 10))


def test_a_write_that_stops_in_the_middle_leaves_whole_lines_behind_it() -> None:
    disk = disk_of()
    log = opened(disk)
    log.write_changes(added("a"))
    left = [10]

    def fault(kind: str, path: str, size: int) -> int:
        if kind != "write":
            return size
        taken, left[0] = min(size, left[0]), 0
        if not taken:
            raise OSError(errno.ENOSPC, "No space left on device", path)
        return taken

    disk.fault = fault
    log.write_changes(added("b"))
    assert log.problem
    disk.fault = None
    log.retry()
    assert (kept(disk)[0], kept(disk)[-1]) == ("a", "b")


def test_it_is_appended_to_for_owner_and_group_and_never_through_a_link(tmp_path: Path) -> None:
    log = SecurityLog(Disk(), str(tmp_path), lambda: 0)
    before = os.umask(0o022)
    try:
        log.write_changes(added("a"))
        log.write_changes(added("b"))
    finally:
        os.umask(before)
    path = tmp_path / CHANGES_NAME
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert path.read_text().count("\n") == 2
    other = tmp_path / "other"
    other.write_text("")
    (tmp_path / ADMINS_NAME).symlink_to(other)
    log.write_admins([("log-in", {"principal": "User:ops"})])
    assert ADMINS_NAME in log.problem
    assert other.read_text() == ""


def test_two_writers_lose_no_line(tmp_path: Path) -> None:
    """A broker and a command have the file open at the same time."""
    one, other = Disk().append(str(tmp_path / "log")), Disk().append(str(tmp_path / "log"))
    one.write(b"one\n", 0)
    other.write(b"other\n", 0)
    assert (tmp_path / "log").read_bytes() == b"one\nother\n"
    with pytest.raises(OSError, match="reading alone"):
        ReadOnlyDisk().append(str(tmp_path / "log"))


def test_a_forged_name_makes_no_line_of_its_own() -> None:
    disk = disk_of()
    acl = AclBinding(
        ResourceType.TOPIC,
        "t\nacl-added acl=x\x1b[2J",
        PatternType.LITERAL,
        "User:a",
        "*",
        Operation.READ,
        Permission.ALLOW,
    )
    opened(disk).write_changes([("acl-added", {"acl": acl_text(acl)})])
    (line,) = disk.content(PATH).splitlines()
    assert b"\x1b" not in line


def test_a_long_part_of_an_acl_hides_no_other() -> None:
    acl = AclBinding(
        ResourceType.CLUSTER,
        "kafka-cluster",
        PatternType.LITERAL,
        "User:" + "x" * 9000,
        "*",
        Operation.ALL,
        Permission.ALLOW,
    )
    assert acl_text(acl).endswith("… (9005 characters) from * on CLUSTER LITERAL kafka-cluster")
