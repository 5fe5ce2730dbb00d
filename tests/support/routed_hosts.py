"""Several hosts of one site on this machine, any two of which can be cut off from each other (root).

```
 namespace A              namespace of the router (clients live there, too)             namespace B
 198.51.100.1 on lo ── link0 ═══ 1 ── rules ── 198.51.100.254 on lo ── 2 ═══ link0 ── 198.51.100.2 on lo
```
A cut drops what one group of addresses sends to another, silently, as a dead switch does: connections stay, and what
was under way is sent again when the cut is mended. Whoever is in the router's namespace reaches all, always.
Nothing has a name outside: all of it goes with the processes that hold the namespaces.

Must never come in: clients, brokers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Self

from tests.support.linked_hosts import INTERFACE, Host

ROUTER_ADDRESS = "198.51.100.254"
Addresses = Sequence[str]


class RoutedHosts:
    """A context manager; `hosts` by name, each with the addresses that it was given."""

    def __init__(self, directory: Path, addresses: Mapping[str, Addresses]) -> None:
        """Logs go to `directory`."""
        self.addresses = {name: tuple(mine) for name, mine in addresses.items()}
        self.hosts = {name: Host(name, directory) for name in addresses}
        self.router = Host("router", directory)
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            for host in (self.router, *self.hosts.values()):
                stack.enter_context(host)
            self.router.run("ip", "address", "add", f"{ROUTER_ADDRESS}/32", "dev", "lo")
            self.router.run("sh", "-c", "echo 1 >/proc/sys/net/ipv4/ip_forward")
            for number, name in enumerate(self.hosts, 1):
                self._join(str(number), self.hosts[name], self.addresses[name])
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _join(self, link: str, host: Host, addresses: Addresses) -> None:
        host.run("ip", "link", "add", INTERFACE, "type", "veth", "peer", "name", link, "netns", str(self.router.pid))
        host.run("ip", "link", "set", "dev", INTERFACE, "up")
        self.router.run("ip", "link", "set", "dev", link, "up")
        for address in addresses:
            host.run("ip", "address", "add", f"{address}/32", "dev", "lo")
            self.router.run("ip", "route", "add", f"{address}/32", "dev", link)
        way = ["via", ROUTER_ADDRESS, "dev", INTERFACE, "onlink", "src", addresses[0]]
        host.run("ip", "route", "add", "default", *way)

    def cut(self, some: Addresses, others: Addresses) -> None:
        """Let nothing through between them, in either direction, until `mend`."""
        self._rules("add", some, others)

    def mend(self, some: Addresses, others: Addresses) -> None:
        """Take such a cut back."""
        self._rules("del", some, others)

    def _rules(self, act: str, some: Addresses, others: Addresses) -> None:
        for one in some:
            for other in others:
                for sender, receiver in ((one, other), (other, one)):
                    self.router.run("ip", "rule", act, "from", sender, "to", receiver, "blackhole")
