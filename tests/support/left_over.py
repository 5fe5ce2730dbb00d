"""Threads, children and descriptors of this process that a test started or opened, and did not end.

Read from `threading` and /proc/self alone, so that a look costs less than a millisecond.
"""

from __future__ import annotations

import gc
import os
import signal
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from multiprocessing import resource_tracker
from pathlib import Path
from typing import NamedTuple, TypeVar
from weakref import WeakSet

from tests.support import ports, processes

GRACE_S = 10.0  # for what was told to end; spent only on what does not
POLL_S = 0.002
STANDARD = 2  # the highest descriptor of standard streams
LISTENING = "0A"  # the state of a socket in /proc/net/tcp

_One = TypeVar("_One")

# Threads that outlive the test that starts them: the start of a name, and the reason.
LASTING_THREADS: Mapping[str, str] = {}


class Started(NamedTuple):
    """The threads, children and descriptors that exist."""

    threads: frozenset[threading.Thread]
    children: frozenset[int]
    descriptors: frozenset[tuple[str, str]]
    """Each with the object that it refers to, so that a number that is used again is another descriptor."""

    def including(self, before: Started) -> Started:
        """Return these, and those that were started or opened since `before`."""
        now = started()
        return Started(
            self.threads | now.threads - before.threads,
            self.children | now.children - before.children,
            self.descriptors | now.descriptors - before.descriptors,
        )


# Processes that fixtures of several tests own, and those of the whole run. A test may start one of them again.
_shared: WeakSet[processes.Process] = WeakSet()
_of_run: WeakSet[processes.Process] = WeakSet()


def share(*owned: processes.Process) -> None:
    """Declare that a fixture of the whole run owns these processes, which one of the tests starts."""
    own(*owned, of_run=True)


def own(*owned: processes.Process, of_run: bool = False) -> None:
    """Note that fixtures of several tests own these processes: of a module, or of the whole run."""
    _shared.update(owned)
    if of_run:
        _of_run.update(owned)


# TCP ports on which fixtures of several tests listen, and those of the whole run. A test may listen there again.
_listening: set[int] = set()
_listening_of_run: set[int] = set()


def own_listeners(before: Started, *, of_run: bool = False) -> None:
    """Note that a fixture of several tests listens on the ports that were opened since `before`."""
    opened = (_tcp_socket(target) for _, target in set(_descriptors()) - before.descriptors)
    found = {one.port for one in opened if one is not None and one.listens}
    _listening.update(found)
    if of_run:
        _listening_of_run.update(found)


# TCP ports whose connections belong to a fixture of several tests, at either end.
_shared_ports: set[int] = set()


def share_connections(*tcp_ports: int) -> None:
    """Declare that a fixture of several tests owns all connections from and to these ports."""
    _shared_ports.update(tcp_ports)


# How to end what a fixture of several tests opens when a test first asks it.
_ends: list[Callable[[], object]] = []


def end_with_test(end: Callable[[], object]) -> None:
    """Call `end` when this test is over: for a client that a fixture of several tests opens for it."""
    _ends.append(end)


def end_all() -> None:
    """End what was opened for the test that is over."""
    while _ends:
        _ends.pop()()


def started() -> Started:
    """Return the threads, children and descriptors that exist now."""
    return Started(frozenset(threading.enumerate()), frozenset(_children()), frozenset(_descriptors()))


def left_over(before: Started, *, of_module: bool = False, failed: bool = False) -> Iterator[str]:
    """Yield a sentence for each thread, child and descriptor that did not exist before; kill and reap the children.

    Processes and listeners of fixtures of several tests are none of a test, also where it has started them again; those
    of the run are none of a module. Descriptors are left out where a test `failed`: the traceback holds its objects.
    """
    shared = _of_run if of_module else _shared
    listening = _listening_of_run if of_module else _listening
    for thread in _after_grace(lambda: _threads(before)):
        yield f"thread {thread.name!r} still runs; join it before the test ends"
    for pid in _after_grace(lambda: set(_children()) - before.children - _lasting_children(shared)):
        yield f"child {pid} ({_command(pid)}) {_end(pid)}; stop it and wait for it before the test ends"
    if failed:
        return
    if _open_since(before, listening):
        gc.collect()  # a client that a cycle holds closes its sockets when it is collected
    # A proxy or server that several tests share closes its end soon after its client.
    for number, target in _after_grace(lambda: _open_since(before, listening)):
        yield f"descriptor {number} ({_described(target)}) is still open; close it before the test ends"


def _after_grace(look: Callable[[], set[_One]]) -> list[_One]:
    end = time.monotonic() + GRACE_S
    while (found := look()) and time.monotonic() < end:
        time.sleep(POLL_S)
    return sorted(found, key=str)


def _threads(before: Started) -> set[threading.Thread]:
    new = set(threading.enumerate()) - before.threads
    return {one for one in new if one.is_alive() and not one.name.startswith(tuple(LASTING_THREADS))}


def _lasting_children(shared: Collection[processes.Process]) -> set[int]:
    """Return the shared processes, the watchdog of processes.py, and multiprocessing's resource tracker."""
    watchdog, tracker = processes.watchdog(), getattr(resource_tracker._resource_tracker, "_pid", None)
    helpers = {pid for pid in (None if watchdog is None else watchdog.pid, tracker) if pid is not None}
    return helpers | {process.pid for process in processes.live() if process in shared}


def _lasting_descriptors() -> set[int]:
    """Return the descriptors of the whole run: the claims of ports, and the pipes to the helpers."""
    watchdog, tracker = processes.watchdog(), getattr(resource_tracker._resource_tracker, "_fd", None)
    pipe = watchdog.stdin.fileno() if watchdog is not None and watchdog.stdin is not None else None
    return {*ports.descriptors(), *(number for number in (pipe, tracker) if number is not None)}


def _children() -> Iterator[int]:
    for thread in os.listdir("/proc/self/task"):
        with suppress(FileNotFoundError, ProcessLookupError):  # a thread that ended meanwhile
            yield from map(int, Path(f"/proc/self/task/{thread}/children").read_text().split())


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()[:200]
    except FileNotFoundError:
        return "ended"


def _end(pid: int) -> str:
    """Kill and reap a child; return how it was found."""
    for process in processes.live():
        if process.pid == pid:
            how = "still runs" if process.running else "ended and is not stopped"
            process.kill()
            return how
    with suppress(ChildProcessError):
        if os.waitpid(pid, os.WNOHANG) != (0, 0):
            return "ended and nothing waited for it"
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    return "still runs"


def _descriptors() -> Iterator[tuple[str, str]]:
    for number in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):  # that of the listing itself
            yield number, os.readlink(f"/proc/self/fd/{number}")


def _open_since(before: Started, listening: Collection[int]) -> set[tuple[str, str]]:
    new = set(_descriptors()) - before.descriptors
    new = {one for one in new if int(one[0]) > STANDARD}  # pytest redirects these for each phase of a test
    if new:
        lasting = _lasting_descriptors()
        new = {one for one in new if int(one[0]) not in lasting and not _is_shared(one[1], listening)}
    return new


def _is_shared(target: str, listening: Collection[int]) -> bool:
    found = _tcp_socket(target) if _shared_ports or listening else None
    if found is None:
        return False
    is_listener = found.listens and found.port in listening
    return is_listener or not _shared_ports.isdisjoint((found.port, found.remote_port))


class _TcpSocket(NamedTuple):
    """A TCP socket of this process."""

    port: int
    remote_port: int
    listens: bool


def _tcp_socket(target: str) -> _TcpSocket | None:
    """Return the TCP socket to which a descriptor refers; None where it refers to something else."""
    if target.startswith("socket:["):
        inode = target[8:-1]
        for table in ("tcp", "tcp6"):
            for line in Path(f"/proc/self/net/{table}").read_text().splitlines()[1:]:
                fields = line.split()
                if fields[9] == inode:
                    local, remote = (int(end.rpartition(":")[2], 16) for end in fields[1:3])
                    return _TcpSocket(local, remote, fields[3] == LISTENING)
    return None


def _described(target: str) -> str:
    """Say of a socket where it listens, of others to what they refer."""
    found = _tcp_socket(target)
    if found is None:
        return target
    return f"a socket that {'listens on' if found.listens else 'is bound to'} TCP port {found.port}"
