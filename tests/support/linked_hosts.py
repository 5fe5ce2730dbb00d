"""Two hosts with a bad link between them on this machine: network namespaces, veth pairs, link_emulator.py (root).

```
 namespace EDGE                     namespace of the link                    namespace CENTER
 192.0.2.1 on lo ── link0 ════════ a ── link_emulator ── b ════════ link0 ── 192.0.2.2 on lo
```
An unshaped link is one veth pair between the two hosts. Addresses stay when the link is changed, so that servers do.
TCP is reno, and remembers nothing of earlier connections. Each host knows the other's card: on a real road ARP ends at
the first router, and would here cost a round trip of the whole link, and bytes on an idle one. Nothing has a name
outside: all of it goes with the processes that hold the namespaces, which the watchdog of processes.py ends whatever
happens.

Must never come in: clients, brokers, what is measured.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, ParamSpec, Self, TypeVar

from tests.support import link_emulator
from tests.support.processes import Process

INTERFACE = "link0"
EDGE_ADDRESS, CENTER_ADDRESS = "192.0.2.1", "192.0.2.2"
THREADS = 16
_CLONE_NEWNET = 0x40000000
_CARDS = ("02:00:00:00:00:01", "02:00:00:00:00:02")
_SETTINGS = {"tcp_congestion_control": "reno", "tcp_no_metrics_save": "1"}
# What a card would do for the kernel, and a raw socket does not (linux/ethtool.h): sums and segments.
_SIOCETHTOOL = 0x8946
_OFFLOADS = {"SRXCSUM": 0x15, "STXCSUM": 0x17, "STSO": 0x1F, "SGSO": 0x24, "SGRO": 0x2C}

Arguments = ParamSpec("Arguments")
Found = TypeVar("Found")


@dataclass(frozen=True, slots=True)
class Link:
    """A link, the same in both directions: seconds one way, share of frames lost, bits per second (0: unshaped)."""

    name: str
    delay_s: float = 0.0
    loss: float = 0.0
    rate_bps: int = 0
    queue_bytes: int = 256 * 1024

    @property
    def round_trip_s(self) -> float:
        """Both ways, without what waits."""
        return 2 * self.delay_s

    @property
    def is_shaped(self) -> bool:
        """Whether an emulator is needed."""
        return self.rate_bps > 0


class Counters(NamedTuple):
    """Bytes that an interface has received and sent, headers of Ethernet included."""

    received: int
    sent: int

    def since(self, earlier: Counters) -> Counters:
        """What came since then."""
        return Counters(self.received - earlier.received, self.sent - earlier.sent)

    @property
    def both(self) -> int:
        """Both ways together."""
        return self.received + self.sent


class Host:
    """A network namespace, held by a process; what runs in it is started with `inside` before its command."""

    def __init__(self, name: str, directory: Path) -> None:
        """Name it, for the logs in `directory`."""
        command = ["unshare", "--net", "--", "sh", "-c", "ip link set lo up && echo ready && exec sleep infinity"]
        self._holder = Process(f"host-{name}", command, directory, ready="ready")
        self._threads: ThreadPoolExecutor | None = None

    def __enter__(self) -> Self:
        self._holder.start()
        self._threads = ThreadPoolExecutor(THREADS, initializer=self._enter)
        return self

    def __exit__(self, *_: object) -> None:
        self._holder.kill()
        assert self._threads is not None
        self._threads.shutdown(cancel_futures=True)

    @property
    def pid(self) -> int:
        """The process that holds it."""
        return self._holder.pid

    @property
    def inside(self) -> list[str]:
        """What goes before a command that is to run here; the process keeps its id."""
        return ["nsenter", f"--net=/proc/{self.pid}/ns/net", "--"]

    def run(self, *words: str) -> str:
        """Run a short command here; subprocess.CalledProcessError when it fails."""
        return subprocess.run([*self.inside, *words], check=True, capture_output=True, text=True).stdout

    def call(self, function: Callable[Arguments, Found], *words: Arguments.args, **named: Arguments.kwargs) -> Found:
        """Call a function in a thread that is here, and return what it returns; so are threads that it starts."""
        return self.submit(function, *words, **named).result()

    def submit(
        self, function: Callable[Arguments, Found], *words: Arguments.args, **named: Arguments.kwargs
    ) -> Future[Found]:
        """The same without waiting; THREADS at a time."""
        assert self._threads is not None
        return self._threads.submit(function, *words, **named)

    def counters(self, interface: str = INTERFACE) -> Counters:
        """What an interface has moved."""
        for line in Path(f"/proc/{self.pid}/net/dev").read_text().splitlines():
            name, _, numbers = line.partition(":")
            if name.strip() == interface:
                columns = numbers.split()
                return Counters(int(columns[0]), int(columns[8]))
        raise LookupError(f"{interface} is not in /proc/{self.pid}/net/dev")

    def _enter(self) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        with Path(f"/proc/{self.pid}/ns/net").open("rb") as namespace:
            if libc.setns(namespace.fileno(), _CLONE_NEWNET) != 0:
                number = ctypes.get_errno()
                raise OSError(number, f"setns: {os.strerror(number)}; network namespaces need root")


def _without_offloads(interface: str) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        for command in _OFFLOADS.values():
            value = ctypes.create_string_buffer(struct.pack("II", command, 0))
            request = struct.pack("16sP", interface.encode(), ctypes.addressof(value))
            fcntl.ioctl(sock, _SIOCETHTOOL, request.ljust(40, b"\0"))


class LinkedHosts:
    """EDGE and CENTER; `use` puts a link between them in place of the one before."""

    def __init__(self, directory: Path) -> None:
        """Logs go to `directory`."""
        self._directory = directory
        self.edge = Host("edge", directory)
        self.center = Host("center", directory)
        self._between = Host("link", directory)
        self._emulator: Process | None = None
        self._has_link = self._is_shaped = False
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            for host in (self.edge, self.center, self._between):
                stack.enter_context(host)
            for host, address in ((self.edge, EDGE_ADDRESS), (self.center, CENTER_ADDRESS)):
                host.run("ip", "address", "add", f"{address}/32", "dev", "lo")
                for name, value in _SETTINGS.items():
                    host.run("sh", "-c", f"echo {value} >/proc/sys/net/ipv4/{name}")
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._remove()
        self._stack.close()

    def use(self, link: Link) -> None:
        """Take the link away that is there, and put another in its place; connections over it do not survive that."""
        self._remove()
        ends = [(self.edge, CENTER_ADDRESS, _CARDS), (self.center, EDGE_ADDRESS, _CARDS[::-1])]
        if link.is_shaped:
            for (host, *_), name in zip(ends, ("a", "b"), strict=True):
                self._pair(host, self._between, name)
        else:
            self._pair(self.edge, self.center, INTERFACE)
        for host, far, (card, far_card) in ends:
            host.run("ip", "link", "set", "dev", INTERFACE, "address", card, "up")
            host.run("ip", "route", "add", f"{far}/32", "dev", INTERFACE)
            host.run("ip", "neighbour", "add", far, "lladdr", far_card, "dev", INTERFACE, "nud", "permanent")
            if link.is_shaped:
                host.call(_without_offloads, INTERFACE)
        self._has_link, self._is_shaped = True, link.is_shaped
        if link.is_shaped:
            self._emulate(link)

    @staticmethod
    def _pair(host: Host, other: Host, name: str) -> None:
        """A veth pair: INTERFACE in one namespace and `name` in the other, which is up."""
        peer = ["peer", "name", name, "netns", str(other.pid)]
        host.run("ip", "link", "add", INTERFACE, "type", "veth", *peer)
        other.run("ip", "link", "set", "dev", name, "up")

    def _emulate(self, link: Link) -> None:
        for name in ("a", "b"):
            self._between.call(_without_offloads, name)
        numbers = (link.delay_s * 1e3, link.loss, link.rate_bps, link.queue_bytes)
        command = [*self._between.inside, sys.executable, str(link_emulator.__file__), "a", "b", *map(str, numbers)]
        self._emulator = Process("link", command, self._directory, ready=link_emulator.READY).start()

    def _remove(self) -> None:
        if self._emulator is not None:
            self._emulator.kill()
            self._emulator = None
        if self._has_link:
            self.edge.run("ip", "link", "delete", "dev", INTERFACE)
            if self._is_shaped:
                self.center.run("ip", "link", "delete", "dev", INTERFACE)
            self._has_link = False

    def cut(self) -> None:
        """Let nothing through a shaped link any more."""
        self._signal(signal.SIGUSR1)

    def mend(self) -> None:
        """Let all through again."""
        self._signal(signal.SIGUSR2)

    def _signal(self, number: signal.Signals) -> None:
        if self._emulator is None:
            raise RuntimeError("an unshaped link cannot be cut")
        self._emulator.check()
        self._emulator.send_signal(number)
