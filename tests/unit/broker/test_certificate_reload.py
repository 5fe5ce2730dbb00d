"""A whole broker whose certificate is replaced while it runs: by a new one, by what cannot be used, by a mended one."""

from __future__ import annotations

import re
import shlex
import socket
import ssl
import subprocess
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from edge_broker.protocol.api import API_VERSIONS
from edge_broker.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tests.support.certificates import Authority
from tests.support.raw_client import TIMEOUT_S, RawClient
from tests.support.secured_edge import SecuredEdge
from tests.support.waiting import CALL_S, wait_until

DAYS = 365  # further away than the end that /health warns of
RELOADED_S = 20


class Board:
    """A broker with TLS, and the CA of its certificates."""

    def __init__(self, directory: Path) -> None:
        self._authority = Authority(directory / "ca", days=DAYS)
        self.keystore = directory / "keystore.pem"
        self.first = self.put("first")
        self.trust_store = self._authority.certificate
        settings = {"ssl.client.auth": "requested", "ssl.truststore.location": str(self.trust_store)}
        self.broker = SecuredEdge(directory, keystore=self.keystore, settings=settings)

    def put(self, name: str, change: Callable[[str], str] = str, mode: int = 0o640) -> bytes:
        """Put a new key and certificate where the broker's are, by a rename; the certificate as DER."""
        made = self._authority.store(name, "DNS:localhost,IP:127.0.0.1", days=DAYS)
        new = self.keystore.with_suffix(".new")
        new.write_text(change(made.read_text()))
        new.chmod(mode)
        new.replace(self.keystore)
        return ssl.PEM_cert_to_DER_cert(made.with_suffix(".pem").read_text())

    @contextmanager
    def connected(self, port: int) -> Iterator[tuple[RawClient, bytes]]:
        """A connection by TLS, and the certificate that was shown, as DER."""
        context = ssl.create_default_context(cafile=str(self._authority.certificate))
        with (
            socket.create_connection(("127.0.0.1", port), TIMEOUT_S) as plain,
            context.wrap_socket(plain, server_hostname="localhost") as secured,
        ):
            yield RawClient(secured), secured.getpeercert(binary_form=True) or b""

    def shown(self, port: int) -> bytes:
        """The certificate that a new connection gets."""
        with self.connected(port) as (client, certificate):
            assert answers(client)
        return certificate

    def health(self) -> str:
        """What /health says, with its status 200."""
        url = self.broker.metrics_url.replace("/metrics", "/health")
        with urllib.request.urlopen(url, timeout=CALL_S) as answer:
            return str(answer.read().decode()).strip()


def answers(client: RawClient) -> bool:
    request = ApiVersionsRequest(client_software_name="test", client_software_version="1")
    answer = client.ask(API_VERSIONS, request)
    assert isinstance(answer, ApiVersionsResponse)
    return bool(answer.api_keys)


@pytest.fixture(scope="module")
def board(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Board]:
    board = Board(tmp_path_factory.mktemp("board"))
    with board.broker:
        yield board


def test_new_connections_get_the_new_certificate_and_open_ones_live_on(board: Board) -> None:
    ports = board.broker.tls_port, board.broker.both_port
    with board.connected(ports[0]) as (client, certificate):
        assert certificate == board.first
        second = board.put("second")
        for port in ports:
            wait_until(lambda port=port: board.shown(port) == second, RELOADED_S, "the new certificate")  # type: ignore[misc]
        assert answers(client)
        for listener in ("TLS", "BOTH"):
            assert f"certificate_read listener={listener}" in board.broker.log_tail()
        assert board.health() == "ok"


def test_what_cannot_be_used_leaves_the_old_one_and_is_told(board: Board) -> None:
    before = board.shown(board.broker.tls_port)
    with board.connected(board.broker.tls_port) as (client, _):
        board.put("spoilt", lambda text: text[: len(text) // 2])
        wait_until(lambda: board.health() != "ok", RELOADED_S, "the warning")
        told = board.health()
        assert told.startswith("ok, but ")
        assert str(board.keystore) in told
        assert "cannot be read" in told
        assert "the certificate from before is used" in told
        assert "cannot be read" in board.broker.log_tail()
        assert board.shown(board.broker.tls_port) == before
        assert answers(client)
        mended = board.put("mended")
        wait_until(lambda: board.health() == "ok", RELOADED_S, board.health)
        assert board.shown(board.broker.tls_port) == mended
        assert answers(client)


def test_the_command_that_health_gives_mends_a_key_that_everybody_may_read(board: Board) -> None:
    before = board.shown(board.broker.tls_port)
    new = board.put("exposed", mode=0o644)
    wait_until(lambda: board.health() != "ok", RELOADED_S, "the warning")
    told = board.health()
    assert told.startswith("ok, but the key store is refused: ssl.keystore.location is ")
    assert told.count("key store") == 1, "two listeners have it"
    assert told.endswith("the certificate from before is used")
    assert board.shown(board.broker.tls_port) == before
    command = re.search(r"`(chmod [^`]+)`", told)
    assert command, told
    subprocess.run(shlex.split(command[1]), check=True)
    wait_until(lambda: board.health() == "ok", RELOADED_S, board.health)
    assert board.shown(board.broker.tls_port) == new


def test_a_trust_store_that_others_may_change_is_named_by_health_and_log(board: Board) -> None:
    wait_until(lambda: board.health() == "ok", RELOADED_S, board.health)
    mode = board.trust_store.stat().st_mode
    board.trust_store.chmod(0o666)
    wait_until(lambda: board.health() != "ok", RELOADED_S, "the warning")
    told = board.health()
    named = f"ssl.truststore.location is {board.trust_store}, which other users of this host may change: "
    assert told.startswith(f"ok, but {named}")
    assert told.count("may change") == 1, "two listeners have it"
    assert named in board.broker.log_tail()
    assert board.shown(board.broker.tls_port)
    board.trust_store.chmod(mode)
    wait_until(lambda: board.health() == "ok", RELOADED_S, board.health)
