"""A power cut of all boards within the ensemble's first half minute; ZooKeeper's check of snapshots stays on.

The cut is played: all processes are killed, and each snapshot goes that nothing has synced, as ZooKeeper syncs its log
and its epochs alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import count
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from tests.support import runtimes
from tests.support.first_start import start_servers
from tests.support.waiting import CALL_S, wait_until
from tests.support.zookeeper import ZooKeeperEnsemble, ZooKeeperServer

LINES: list[Callable[[], list[str]]] = [lambda: [f"{runtimes.old_kafka_jars()}/*"], lambda: []]
numbers = count(1)


class Site:
    """An ensemble, and what its disks have surely."""

    def __init__(self, directory: Path, jars: list[str]) -> None:
        self.ensemble = ZooKeeperEnsemble(directory, jars=jars)
        self.synced: frozenset[Path] = frozenset()

    @property
    def servers(self) -> list[ZooKeeperServer]:
        return self.ensemble.servers

    def start(self) -> None:
        self.synced |= start_servers(self.servers)

    def start_without_sync(self) -> None:
        for server in self.servers:
            server.spawn()
        for server in self.servers:
            wait_until(server.serves, server.ready_s, f"{server.name} serves", seen=server.log_tail)

    def cut_power(self) -> list[str]:
        """Kill all, and take what no disk has; return the names of what went."""
        for server in self.servers:
            server.kill()
        lost = [path for server in self.servers for path in server.data.rglob("snapshot.*") if path not in self.synced]
        for path in lost:
            path.unlink()
        return [path.name for path in lost]

    def write(self) -> str:
        """A node, as brokers make them."""
        path = f"/node-{next(numbers)}"
        client = self._client()
        try:
            client.create(path, b"kept")
        finally:
            client.stop()
            client.close()
        return path

    def has(self, paths: Iterable[str]) -> bool:
        client = self._client()
        try:
            return all(client.get(path)[0] == b"kept" for path in paths)
        finally:
            client.stop()
            client.close()

    def _client(self) -> KazooClient:
        client = KazooClient(self.ensemble.connect)
        client.start(CALL_S)
        return client

    def kill(self) -> None:
        for server in self.servers:
            server.kill()


@pytest.fixture(params=LINES, ids=["3.8", "3.9"])
def site(tmp_path: Path, request: pytest.FixtureRequest) -> Iterable[Site]:
    site = Site(tmp_path, request.param())
    yield site
    site.kill()


def test_an_ensemble_whose_data_was_synced_before_the_first_write_comes_back(site: Site) -> None:
    site.start()
    path = site.write()
    site.cut_power()
    site.start()
    assert site.has([path])


def test_without_that_sync_it_never_does(site: Site) -> None:
    """So the order is needed; where this test fails, ZooKeeper syncs its first snapshot itself by now."""
    site.start_without_sync()
    site.write()
    assert "snapshot.0" in site.cut_power()
    server = site.servers[0]
    server.spawn()
    server.wait(60)
    assert "No snapshot found, but there are log entries" in server.log_path.read_text()


def test_a_cut_before_the_sync_leaves_an_empty_ensemble_that_starts_in_the_same_order(site: Site) -> None:
    site.start_without_sync()
    assert "snapshot.0" in site.cut_power()
    site.start()
    path = site.write()
    site.cut_power()
    site.start()
    assert site.has([path])


def test_cuts_after_every_start_take_nothing(site: Site) -> None:
    """Also where later snapshots, which nothing syncs either, go each time."""
    site.start()
    paths = []
    for _ in range(2):
        paths.append(site.write())
        site.cut_power()
        site.start_without_sync()
        assert site.has(paths)
