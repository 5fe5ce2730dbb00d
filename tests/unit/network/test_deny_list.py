"""A whole broker whose deny list changes while clients are connected."""

from __future__ import annotations

import socket
import ssl
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.certificates import Authority
from tests.support.processes import EdgeBroker
from tests.support.raw_client import TIMEOUT_S, RawClient
from tests.support.runtimes import openssl
from tests.support.waiting import CALL_S, wait_until
from tests.unit.broker.test_certificate_reload import answers

DAYS = 365
SOON_S = 20  # of a busy machine; the broker looks each second


class Board:
    """A broker whose clients show certificates, with a deny list that names nobody."""

    def __init__(self, directory: Path) -> None:
        self.authority = Authority(directory / "ca", days=DAYS)
        for name in ("pump", "press"):
            self.authority.sign(name, "DNS:localhost", days=DAYS)
        self.denied = directory / "denied"
        self.deny("# nobody\n")
        self.broker = EdgeBroker(
            directory,
            protocol="SSL",
            settings={
                "ssl.keystore.location": str(self.authority.store("broker", "DNS:localhost,IP:127.0.0.1", days=DAYS)),
                "ssl.truststore.location": str(self.authority.certificate),
                "ssl.client.auth": "required",
                "edge.deny.list.file": str(self.denied),
            },
        )

    def deny(self, text: str) -> None:
        """Put a list where the broker's is, by a rename."""
        new = self.denied.with_suffix(".new")
        new.write_text(text)
        new.chmod(0o644)
        new.replace(self.denied)

    def serial(self, name: str) -> str:
        """The line that openssl prints of a certificate."""
        command = [openssl(), "x509", "-in", self.authority.directory / f"{name}.pem", "-noout", "-serial"]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    @contextmanager
    def connected(self, name: str) -> Iterator[RawClient]:
        """A connection with the certificate of this name."""
        context = ssl.create_default_context(cafile=str(self.authority.certificate))
        context.load_cert_chain(*(self.authority.directory / f"{name}.{ending}" for ending in ("pem", "key")))
        host, _, port = self.broker.bootstrap.rpartition(":")
        with (
            socket.create_connection((host, int(port)), TIMEOUT_S) as plain,
            context.wrap_socket(plain, server_hostname="localhost") as secured,
        ):
            yield RawClient(secured)

    def lets_in(self, name: str) -> bool:
        """Whether a new connection is served."""
        try:
            with self.connected(name) as client:
                return answers(client)
        except (ConnectionError, ssl.SSLError):
            return False

    def health(self) -> str:
        """What /health says, with its status 200."""
        with urllib.request.urlopen(self.broker.metrics_url.replace("/metrics", "/health"), timeout=CALL_S) as answer:
            return str(answer.read().decode()).strip()


@pytest.fixture(scope="module")
def board(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Board]:
    board = Board(tmp_path_factory.mktemp("board"))
    with board.broker:
        yield board


def test_a_denied_certificate_is_out_at_once_also_where_it_is_idle(board: Board) -> None:
    with board.connected("pump") as pump, board.connected("press") as press:
        assert answers(pump)
        pump.connection.settimeout(SOON_S)
        board.deny(board.serial("pump"))
        assert pump.is_closed_by_the_broker()
        assert not board.lets_in("pump")
        assert answers(press)
    log = board.broker.log_tail(200)
    assert 'connection_denied principal="User:CN=pump"' in log
    assert "deny_list_read entries=1 ended=1" in log
    wait_until(lambda: "handshake_failed" in board.broker.log_tail(200), SOON_S, board.broker.log_tail)
    assert "line 1 of edge.deny.list.file denies the certificate of serial=" in board.broker.log_tail(200)


def test_a_line_that_says_nothing_is_named_and_the_list_from_before_holds(board: Board) -> None:
    board.deny(board.serial("pump"))
    wait_until(lambda: not board.lets_in("pump"), SOON_S, "the denial")
    board.deny("# found again\npump\n")
    wait_until(lambda: board.health() != "ok", SOON_S, board.health)
    told = board.health()
    assert told.startswith(
        f"ok, but edge.deny.list.file is {board.denied}, of which line 2 is 'pump': write serial=HEX"
    )
    assert told.endswith("; until then the list from before holds")
    assert "deny_list_refused" in board.broker.log_tail()
    assert not board.lets_in("pump")
    board.deny("# found again\n")
    wait_until(lambda: board.lets_in("pump"), SOON_S, board.health)
    wait_until(lambda: board.health() == "ok", SOON_S, board.health)
