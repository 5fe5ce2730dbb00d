"""The forgetful disk itself: what it keeps, what it loses, how it fails, and that no mount outlives it."""

import errno
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.fault.disk import FuseDisk
from tests.support.processes import Process, wait_until

pytestmark = pytest.mark.root("fuse")


@pytest.fixture(params=[False, True], ids=["free", "ordered"])
def disk(request, tmp_path):
    with FuseDisk(tmp_path, seed=7, ordered=request.param) as disk:
        yield disk


def _cut(disk, **how):
    """A cut of a disk that no process of the test still uses."""
    idle = Process("idle", ["sleep", "60"], disk.directory)
    disk.cut(idle.start(), **how)


def _write(path, data, *, sync=False):
    with path.open("r+b" if path.exists() else "wb", buffering=0) as file:
        file.seek(0, os.SEEK_END)
        file.write(data)
        if sync:
            os.fdatasync(file.fileno())


def _sync_directory(path):
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)


def test_what_was_synced_outlives_a_cut_and_nothing_else_is_certain(disk):
    kept, lost = disk.mountpoint / "kept", 0
    _write(kept, b"synced", sync=True)
    _sync_directory(disk.mountpoint)
    for _ in range(20):
        _write(kept, b"x" * 9000)
        _write(disk.mountpoint / "stranger", b"y")
        _cut(disk)
        assert kept.read_bytes()[:6] == b"synced"
        lost += len(kept.read_bytes()) < 9006 or not (disk.mountpoint / "stranger").exists()
        os.truncate(kept, 6)
        _write(kept, b"", sync=True)
    assert lost > 0, "20 cuts lost nothing"


def test_a_copy_of_the_mount_in_another_namespace_holds_up_no_cut(disk):
    """A container that starts beside a test takes along every mount that is there."""
    command = ["unshare", "--mount", "sh", "-c", "echo copied; sleep 600"]
    container = Process("container", command, disk.directory, ready="copied").start()
    try:
        _cut(disk)
        _write(disk.mountpoint / "a", b"x", sync=True)
    finally:
        container.kill()


def test_opening_a_file_to_write_it_anew_empties_it(disk):
    _write(disk.mountpoint / "a", b"long before", sync=True)
    (disk.mountpoint / "a").write_bytes(b"short")
    _cut(disk, keep=True)
    assert (disk.mountpoint / "a").read_bytes() == b"short"


def test_a_cut_after_a_sync_of_everything_loses_nothing(disk):
    _write(disk.mountpoint / "a", b"x" * 300_000)
    _cut(disk, keep=True)
    assert (disk.mountpoint / "a").read_bytes() == b"x" * 300_000


def test_a_frozen_disk_hangs_and_knows_nothing_of_what_came_later(disk):
    command = (
        "import os, sys; a = open(sys.argv[1], 'wb', 0); [(a.write(b'x'), os.fsync(a.fileno())) for _ in range(9)]"
    )
    disk.freeze(8)  # create, write, sync, write, sync, write, sync, write
    writer = Process("writer", [sys.executable, "-c", command, disk.mountpoint / "a"], disk.directory).start()
    wait_until(lambda: disk.wait_frozen(1), 10, "the disk is frozen", seen=disk.state)
    assert disk.state()["hanging"] == 1
    disk.cut(writer)
    if (disk.mountpoint / "a").exists():
        assert len((disk.mountpoint / "a").read_bytes()) in (3, 4)


def test_faults_strike_as_often_as_asked(disk):
    path = disk.mountpoint / "a"
    _write(path, b"", sync=True)
    disk.fault(["datasync"], "^/a$", error="EIO", count=1)
    with pytest.raises(OSError, match="Input/output") as failed:
        _write(path, b"x" * 8192, sync=True)
    assert failed.value.errno == errno.EIO
    _write(path, b"", sync=True)  # and the next sync says yes, as Linux does
    disk.release()
    disk.fault(["write"], error="ENOSPC", skip=1, count=1)
    _write(path, b"1")
    with pytest.raises(OSError, match="No space left"):
        _write(path, b"2")
    _write(path, b"3")
    assert path.read_bytes()[-2:] == b"13"
    assert disk.state()["struck"] == [1]
    disk.release()
    disk.fault(["write"], size=5, count=1)
    with path.open("r+b", buffering=0) as file:
        assert file.write(b"0123456789") == 5


def test_a_bounded_disk_takes_what_fits(disk):
    disk.limit(64 << 10)
    assert os.statvfs(disk.mountpoint).f_blocks * 4096 == 64 << 10
    for number in range(4):
        _write(disk.mountpoint / str(number), b"x" * 16384)
    with pytest.raises(OSError, match="No space left"):
        _write(disk.mountpoint / "4", b"x")
    assert os.statvfs(disk.mountpoint).f_bavail == 0
    (disk.mountpoint / "0").unlink()
    _sync_directory(disk.mountpoint)
    wait_until(lambda: os.statvfs(disk.mountpoint).f_bavail == 4, 5, "the room of a removed file is free")


def test_calls_hang_until_they_are_released(disk):
    disk.hang(["write"], "^/slow$")
    command = "import sys; open(sys.argv[1], 'wb', 0).write(b'x')"
    with Process("writer", [sys.executable, "-c", command, disk.mountpoint / "slow"], disk.directory) as writer:
        wait_until(lambda: disk.state()["hanging"] == 1, 10, "the write hangs")
        _write(disk.mountpoint / "quick", b"x", sync=True)
        disk.release()
        assert disk.state()["hanging"] == 0
        assert writer.wait(10) == 0


def test_nothing_hangs_any_more_once_it_is_released(disk):
    """Else a test that waits for the next hang would find this one."""
    paths = [disk.mountpoint / f"slow-{number}" for number in range(8)]
    with ThreadPoolExecutor(len(paths)) as threads:
        for _ in range(20):
            disk.hang(["write"], "^/slow-")
            writing = [threads.submit(_write, path, b"x") for path in paths]
            wait_until(lambda: disk.state()["hanging"] == len(paths), 10, "all writes hang", seen=disk.state)
            disk.release()
            assert disk.state()["hanging"] == 0
            for one in writing:
                one.result(10)


def test_a_slow_card_takes_its_time(tmp_path):
    with FuseDisk(tmp_path, rate=2 << 20) as disk:
        begin = time.monotonic()
        _write(disk.mountpoint / "a", b"x" * (1 << 20), sync=True)
        assert time.monotonic() - begin >= 0.5


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_no_mount_outlives_the_disk(tmp_path, how):
    disk = FuseDisk(tmp_path).start()
    assert "forgetful" in _mounts(disk)
    getattr(disk, how)()
    wait_until(lambda: not _mounts(disk), 10, "the file system is unmounted")


def _mounts(disk):
    found = subprocess.run(["findmnt", "-n", disk.mountpoint], capture_output=True, text=True, check=False)
    return found.stdout
