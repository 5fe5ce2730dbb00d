"""The bench of the mirror for real, in small: a link between two hosts that can be cut, and one cell over it."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from tests.benchmarks.mirror.bulk import bulk
from tests.benchmarks.mirror.cells import MIRROR, Cell
from tests.benchmarks.mirror.lab import Lab
from tests.support import runtimes
from tests.support.linked_hosts import CENTER_ADDRESS, Link, LinkedHosts
from tests.support.waiting import CALL_S, wait_until

pytestmark = pytest.mark.root

LINK = Link("small", 0.010, 0.0, 20_000_000)
PORT, SHORT_S = 5001, 1.0
SCALE = 0.05


def answered() -> bytes:
    """Take one connection and send back what came."""
    with socket.create_server((CENTER_ADDRESS, PORT)) as server:
        server.settimeout(CALL_S)
        connection, _ = server.accept()
        with connection:
            connection.settimeout(CALL_S)
            content = b""
            while len(content) < 2:
                content += connection.recv(1)
                connection.send(content[-1:])
            return content


def listens() -> bool:
    """Whether the server is there; nobody connects, as it takes one connection."""
    return f":{PORT:04X} " in Path("/proc/thread-self/net/tcp").read_text()


def talked(hosts: LinkedHosts) -> list[bytes]:
    """A byte over the link, one while it is cut, which comes once it is mended."""
    with socket.create_connection((CENTER_ADDRESS, PORT), timeout=CALL_S) as connection:
        connection.send(b"1")
        found = [connection.recv(1)]
        hosts.cut()
        connection.send(b"2")
        connection.settimeout(SHORT_S)
        with pytest.raises(TimeoutError):
            connection.recv(1)
        hosts.mend()
        connection.settimeout(CALL_S)
        return [*found, connection.recv(1)]


@pytest.mark.parametrize("link", [LINK, Link("one more", 0.02, 0.0, 1_000_000)], ids=lambda link: link.name)
def test_a_link_carries_and_is_cut_and_mended(tmp_path: Path, link: Link) -> None:
    with LinkedHosts(tmp_path) as hosts:
        hosts.use(Link("unshaped"))
        hosts.use(link)
        server = hosts.center.submit(answered)
        wait_until(lambda: hosts.center.call(listens), CALL_S, "the server listens")
        assert hosts.edge.call(talked, hosts) == [b"1", b"2"]
        assert server.result() == b"12"
        assert hosts.edge.counters().sent > 100
        assert hosts.center.counters().received > 100


@pytest.mark.night  # it tests a benchmark and no promise; the link, which other tests use, is tested above
def test_a_small_cell_is_measured(tmp_path: Path) -> None:
    cell = Cell("bulk-a", LINK, seconds=2.0, warm_s=0.5)
    program = runtimes.console_script("edge-mirror")
    with Lab(tmp_path, program, {}, print, SCALE) as lab:
        lab.use(cell.link)
        found = bulk(lab, cell, MIRROR)
    assert found["health"] == "ok"
    assert found["records_per_s"] > 0
    assert 0.05 < found["wire_per_payload"] < 1.5
    assert 0 < found["link_used"] < 1.2
    assert found["rss_mb"] > 10
