"""A disk that forgets what was not synced, as a FUSE file system: `python -m tests.fault.fuse_disk MOUNTPOINT …`.

The bytes, what a power cut leaves of them and how much room there is are those of `tests.simulation.disk`: one model of
a disk. Lives here: that model behind the kernel, a card's speed, and a control socket (an abstract one of that name)
that answers one JSON object per line:

| do | with | what |
|---|---|---|
| freeze | steps | hang at the n-th change from now, and everything after it: the instant of the power cut |
| spare | | call that off; false when it has happened |
| frozen | seconds | wait for that; false when it did not come in time |
| off | | the power is gone: hung calls end with EIO, as does all that follows, and nothing changes any more |
| on | keep | lose what was not synced (keep: sync it instead), mount again: the kernel's cache is empty |
| fault | kinds, path, skip, count, error, size | let such calls on paths that match fail, or write `size` bytes |
| hang | kinds, path | block such calls until `release`, or a cut |
| release | | end hangs and faults |
| limit, rate | bytes | room of the disk; bytes per second; null: none |
| state | | steps so far, how many calls hang, how often each fault struck |

What differs from a file system on a block device: RWF_NOWAIT is refused (EOPNOTSUPP), so a broker asks its reader even
for what is in memory; flock is the kernel's own and ends with the mount; each write reaches this process before it
returns, so a slow card slows every writer once its buffer is full, and sync_file_range finds nothing to do; fstat of a
removed file fails (ESTALE); **syncfs succeeds without asking this process: on any FUSE file system it proves nothing.**

Must never come in: knowledge of what the bytes mean. Source: fuse(4), libfuse's high-level API.
"""

from __future__ import annotations

import argparse
import errno
import json
import os
import re
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

os.environ.setdefault("FUSE_LIBRARY_NAME", "fuse3")
import mfusepy

from edge_broker.testing.disk import PowerLoss, SimulatedDisk, SimulatedFile

BLOCK_BYTES = 4096
BUFFER_BYTES = 1 << 20
KEEP_SIZE = 1
STEP_S = 120.0  # for the kernel to end a mount, and to make the next: what bounds a hang on a busy machine
LAST_S = 5.0  # for the kernel to end a mount that nobody has a part in any more
MOUNT = {
    "foreground": True,
    "fsname": "forgetful",
    "hard_remove": True,  # a removed file that is still open gets no other name
    "kernel_cache": True,
}

_Result = TypeVar("_Result")
Request = dict[str, Any]


class Card:
    """How long a card takes: one queue behind a buffer of one MiB; `rate` in bytes per second, None: no time."""

    def __init__(self, rate: int | None) -> None:
        self.rate = rate
        self._idle_at = 0.0
        self._lock = threading.Lock()

    def _queue(self, size: int) -> float:
        """Seconds until the card has done this and all before it."""
        if not self.rate:
            return 0.0
        with self._lock:
            now = time.monotonic()
            self._idle_at = max(now, self._idle_at) + size / self.rate
            return self._idle_at - now

    def write(self, size: int) -> None:
        """Take bytes into the buffer, once there is room."""
        wait_s = self._queue(size)
        if self.rate:
            time.sleep(max(0.0, wait_s - BUFFER_BYTES / self.rate))

    def read(self, size: int) -> None:
        """Fetch bytes, before writes that nobody waits for."""
        if self.rate:
            self._queue(size)
            time.sleep(size / self.rate)

    def drain(self) -> None:
        """Wait for all that was written."""
        time.sleep(self._queue(0))


class Fault:
    """What is to happen to some calls: an error, a short write, or no end."""

    def __init__(self, request: Request) -> None:
        self.struck = 0
        self._kinds: list[str] = request["kinds"]
        self._path = re.compile(request.get("path", ""))
        self._skip: int = request.get("skip", 0)
        self._count: int = request.get("count", 1 << 62)
        self._error: str | None = request.get("error")
        self._size: int | None = request.get("size")

    def matches(self, kind: str, path: str) -> bool:
        """Whether a call is meant."""
        return kind in self._kinds and self._path.search(path) is not None

    def strike(self, path: str) -> int | None:
        """Fail as asked, or the number of bytes that a write may take."""
        if self._skip:
            self._skip -= 1
            return None
        if self.struck >= self._count:
            return None
        self.struck += 1
        if self._error is not None:
            number = getattr(errno, self._error)
            raise OSError(number, os.strerror(number), path)
        return self._size


class Volume(mfusepy.Operations):
    """The simulated disk as libfuse asks for it, from many threads; calls wait for the card outside the lock."""

    use_ns = True

    def __init__(self, disk: SimulatedDisk, card: Card) -> None:
        self.disk = disk
        self.card = card
        self.faults: list[Fault] = []
        self.hangs: list[Fault] = []
        self.frozen = False
        self.hanging = 0
        self.powered = True
        self.mounted = threading.Event()
        self.changed = threading.Condition()
        self._files: dict[int, SimulatedFile] = {}
        self._number = 0
        self._kind = ""  # the call under way; for the model opening is a read, too
        disk.fault = self._fault

    def _fault(self, _kind: str, path: str, size: int) -> int | None:
        for fault in self.faults:
            if fault.matches(self._kind, path):
                accepted = fault.strike(path)
                if accepted is not None:
                    return accepted
        return None

    def _do(self, kind: str, path: str, call: Callable[[], _Result]) -> _Result:
        """Run one call against the disk, alone; it hangs where the power is to be cut and fails where it is gone."""
        with self.changed:
            self._wait_while(lambda: self.frozen or any(hang.matches(kind, path) for hang in self.hangs))
            self._kind = kind
            try:
                return call()
            except PowerLoss:
                self.frozen = True
            self._wait_while(lambda: self.frozen)
            raise AssertionError("a frozen disk thaws by a cut alone")

    def _wait_while(self, held: Callable[[], bool]) -> None:
        if self.powered and held():
            self.hanging += 1
            self.changed.notify_all()
            self.changed.wait_for(lambda: not self.powered or not held())
            self.hanging -= 1
            self.changed.notify_all()
        if not self.powered:
            raise OSError(errno.EIO, "the power is gone")

    # files

    def _keep(self, file: SimulatedFile) -> int:
        self._number += 1
        self._files[self._number] = file
        return self._number

    def init(self, path: str) -> None:
        self.mounted.set()

    def open(self, path: str, flags: int) -> int:
        emptied = flags & os.O_TRUNC  # libfuse hands the flag on and sends no truncation
        return self._do("open", path, lambda: self._keep((self.disk.create if emptied else self.disk.open)(path)))

    def create(self, path: str, mode: int, fi: Any = None) -> int:
        return self._do("create", path, lambda: self._keep(self.disk.create(path)))

    def release(self, path: str, fh: int) -> int:
        with self.changed:
            self._files.pop(fh, None)
        return 0

    def read(self, path: str, size: int, offset: int, fh: int) -> bytes:
        file = self._files[fh]
        data = self._do("read", file.path, lambda: bytes(file.read(size, offset)))
        self.card.read(len(data))
        return data

    def write(self, path: str, data: bytes, offset: int, fh: int) -> int:
        file = self._files[fh]
        taken = self._do("write", file.path, lambda: file.write(data, offset))
        self.card.write(taken)
        return taken

    def truncate(self, path: str, length: int, fh: int | None = None) -> int:
        self._do("truncate", path, lambda: (self._files[fh] if fh else self.disk.open(path)).truncate(length))
        return 0

    def fsync(self, path: str, datasync: int, fh: int) -> int:
        self.card.drain()
        file = self._files[fh]
        self._do("datasync", file.path, file.datasync)
        return 0

    def fallocate(self, path: str, mode: int, offset: int, size: int, fh: int) -> int:
        if mode != KEEP_SIZE:
            raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP), path)
        file = self._files[fh]
        self._do("reserve", file.path, lambda: file.reserve(offset, size))
        return 0

    # names

    def getattr(self, path: str, fh: int | None = None) -> dict[str, Any]:
        def look() -> dict[str, Any]:
            if fh:
                return _attributes(stat.S_IFREG | 0o640, self._files[fh].size())
            try:
                return _attributes(stat.S_IFREG | 0o640, self.disk.size(path))
            except IsADirectoryError:
                return _attributes(stat.S_IFDIR | 0o750, BLOCK_BYTES)

        return self._do("look", path, look)

    def readdir(self, path: str, fh: int) -> list[str]:
        return [".", "..", *self._do("names", path, lambda: self.disk.names(path))]

    def mkdir(self, path: str, mode: int) -> int:
        self._do("make_directory", path, lambda: self.disk.make_directory(path))
        return 0

    def rmdir(self, path: str) -> int:
        self._do("remove_directory", path, lambda: self.disk.remove_directory(path))
        return 0

    def unlink(self, path: str) -> int:
        self._do("remove", path, lambda: self.disk.remove(path))
        return 0

    def rename(self, old: str, new: str) -> int:
        self._do("rename", new, lambda: self.disk.rename(old, new))
        return 0

    def fsyncdir(self, path: str, datasync: int, fh: int) -> int:
        self.card.drain()
        self._do("sync_directory", path, lambda: self.disk.sync_directory(path))
        return 0

    def statfs(self, path: str) -> dict[str, int]:
        with self.changed:
            room = self.disk.space(path)
        free = room.free // BLOCK_BYTES
        sizes = {"f_bsize": BLOCK_BYTES, "f_frsize": BLOCK_BYTES, "f_namemax": 255}
        return {**sizes, "f_blocks": room.total // BLOCK_BYTES, "f_bfree": free, "f_bavail": free}

    def chmod(self, path: str, mode: int) -> int:
        return 0

    def chown(self, path: str, uid: int, gid: int) -> int:
        return 0

    def utimens(self, path: str, times: tuple[int, int] | None = None) -> int:
        return 0

    # the power

    def cut(self) -> None:
        """Whatever hangs ends, and nothing changes from here on."""
        with self.changed:
            self.powered = False
            self.changed.notify_all()

    def restore(self, *, keep: bool) -> None:
        """The disk as the next start finds it; nobody may have it mounted."""
        with self.changed:
            if keep:
                self.disk.fault = None
                self.disk.sync_all("/")
            self.disk.crash()
            self.disk.fault = self._fault
            self.powered, self.frozen = True, False
            self.faults.clear()
            self.hangs.clear()
            self._files.clear()


def _attributes(mode: int, size: int) -> dict[str, Any]:
    owner = {"st_uid": os.getuid(), "st_gid": os.getgid()}
    return {"st_mode": mode, "st_size": size, "st_nlink": 1, "st_blocks": -(-size // BLOCK_BYTES) * 8, **owner}


class Control:
    """Answers on the control socket, and mounts as often as the power comes back."""

    def __init__(self, volume: Volume, mountpoint: Path, name: str) -> None:
        self._volume = volume
        self._mountpoint = mountpoint
        self._ended, self._again = threading.Event(), threading.Event()
        self._ending = True
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(f"\0{name}")
        self._listener.listen()

    def run(self) -> None:
        """Serve until a signal, or until somebody else unmounts."""
        threading.Thread(target=self._accept, daemon=True).start()
        while True:
            with suppress(RuntimeError):  # what libfuse calls an error is the signal that ended it, or the unmounting
                mfusepy.FUSE(self._volume, str(self._mountpoint), **MOUNT)
            if self._ending:
                return
            self._ended.set()
            self._again.wait()
            self._again.clear()

    def _accept(self) -> None:
        self._volume.mounted.wait()
        print("mounted", flush=True)
        while True:
            connection, _ = self._listener.accept()
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rw") as lines:
            for line in lines:
                lines.write(json.dumps(self._answer(json.loads(line))) + "\n")
                lines.flush()

    def _answer(self, request: Request) -> Request:
        work = getattr(self, f"_{request['do']}")
        try:
            return work(request) or {}
        except Exception as error:  # noqa: BLE001 - the test is told
            return {"error": repr(error)}

    def _freeze(self, request: Request) -> None:
        with self._volume.changed:
            self._volume.disk.crash_at = self._volume.disk.steps + request["steps"]

    def _spare(self, _request: Request) -> Request:
        with self._volume.changed:
            self._volume.disk.crash_at = -1
            return {"spared": not self._volume.frozen}

    def _frozen(self, request: Request) -> Request:
        with self._volume.changed:
            return {"frozen": self._volume.changed.wait_for(lambda: self._volume.frozen, request["seconds"])}

    def _off(self, _request: Request) -> None:
        self._volume.cut()

    def _on(self, request: Request) -> None:
        volume = self._volume
        volume.cut()
        volume.mounted.clear()
        self._ended.clear()
        self._ending = False
        connection = connection_of(self._mountpoint)
        unmount(self._mountpoint)
        if not self._ended.wait(LAST_S):  # it lasts as long as anybody has a file open, or a copy of the mount
            abort(connection)
        self._await(self._ended, "unmounted")
        self._ended.clear()
        volume.restore(keep=request["keep"])
        self._again.set()
        self._await(volume.mounted, "mounted again")
        self._ending = True

    def _await(self, event: threading.Event, what: str) -> None:
        if not event.wait(STEP_S):
            mounts = [line for line in Path("/proc/mounts").read_text().splitlines() if str(self._mountpoint) in line]
            state = {**self._state({}), "mounts": mounts}
            raise TimeoutError(f"{self._mountpoint} is not {what} after {STEP_S:g} s: {state}")

    def _fault(self, request: Request) -> None:
        self._volume.faults.append(Fault(request))

    def _hang(self, request: Request) -> None:
        self._volume.hangs.append(Fault(request))

    def _release(self, _request: Request) -> None:
        with self._volume.changed:
            self._volume.hangs.clear()
            self._volume.faults.clear()
            self._volume.changed.notify_all()
            # Else the next to ask would take a call that is still on its way out for one that hangs.
            self._volume.changed.wait_for(lambda: self._volume.frozen or not self._volume.hanging, STEP_S)

    def _limit(self, request: Request) -> None:
        self._volume.disk.capacity_bytes = request["bytes"]

    def _rate(self, request: Request) -> None:
        self._volume.card.rate = request["bytes"]

    def _state(self, _request: Request) -> Request:
        volume = self._volume
        with volume.changed:
            struck = [fault.struck for fault in volume.faults]
            return {"steps": volume.disk.steps, "hanging": volume.hanging, "struck": struck}


def unmount(mountpoint: Path) -> None:
    """Take the file system off its place, whoever still has files open."""
    subprocess.run(["fusermount3", "-u", "-z", "-q", mountpoint], check=True)


def connection_of(mountpoint: Path) -> int:
    """The number of a mount's connection to the kernel: its minor device number; asks nothing of the file system."""
    mounts = [line.split() for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    return next(int(mount[2].split(":")[1]) for mount in mounts if mount[4] == str(mountpoint))


def abort(connection: int) -> None:
    """End a mount that namespaces made meanwhile have a copy of. Source: Documentation/filesystems/fuse.rst."""
    with tempfile.TemporaryDirectory() as connections:
        subprocess.run(["mount", "-t", "fusectl", "fusectl", connections], check=True)
        try:
            (Path(connections) / str(connection) / "abort").write_text("1")
        finally:
            subprocess.run(["umount", connections], check=True)


@contextmanager
def guarded(mountpoint: Path) -> Iterator[None]:
    """Unmount when this process ends, however it ends: a child in a session of its own sees a pipe close."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(writing)
        os.setsid()
        os.read(reading, 1)
        subprocess.run(["fusermount3", "-u", "-z", "-q", mountpoint], check=False, stderr=subprocess.DEVNULL)
        os._exit(0)
    os.close(reading)
    try:
        yield
    finally:
        os.close(writing)
        os.waitpid(child, 0)


def main() -> int:
    """Serve a forgetful disk until SIGTERM."""
    parser = argparse.ArgumentParser(prog="fuse_disk")
    parser.add_argument("mountpoint", type=Path)
    parser.add_argument("--control", required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--ordered", action="store_true", help="names reach the disk in order, as with a journal")
    parser.add_argument("--bytes-max", type=int, default=None)
    parser.add_argument("--rate", type=int, default=None, help="bytes per second")
    options = parser.parse_args()
    disk = SimulatedDisk(options.seed, ordered=options.ordered, capacity_bytes=options.bytes_max)
    with guarded(options.mountpoint):
        Control(Volume(disk, Card(options.rate)), options.mountpoint, options.control).run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
