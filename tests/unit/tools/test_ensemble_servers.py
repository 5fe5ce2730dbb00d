"""Which servers of an ensemble answer, against sockets of a test's own making."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from edge_broker.configuration.ensemble_servers import Server, servers_of, silent_servers
from tests.support.ports import free_port

WITHIN_S = 0.3


@contextmanager
def a_server(serve: Callable[[socket.socket], object]) -> Iterator[Server]:
    """Accept one connection and hand it to `serve`."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def run() -> None:
            with listening.accept()[0] as connection:
                serve(connection)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        yield Server("127.0.0.1", listening.getsockname()[1])
        thread.join(10)
        assert not thread.is_alive()


def answer(text: bytes) -> Callable[[socket.socket], object]:
    """Read the word, answer so."""

    def serve(connection: socket.socket) -> None:
        assert connection.recv(4) == b"srvr"
        connection.sendall(text)

    return serve


@pytest.mark.parametrize(
    "serve",
    [
        answer(b"Zookeeper version: 3.9.5\nMode: follower\n"),
        answer(b"srvr is not executed because it is not in the whitelist.\n"),
        lambda connection: connection.close(),  # as a port that speaks TLS
    ],
    ids=["answers", "word is off", "ends the connection"],
)
def test_a_server_that_lives_answers(serve: Callable[[socket.socket], object]) -> None:
    with a_server(serve) as server:
        assert silent_servers([server], 5.0) == {}


def test_a_server_without_a_majority_does_not_serve() -> None:
    with a_server(answer(b"This ZooKeeper instance is not currently serving requests\n")) as server:
        assert silent_servers([server], 5.0) == {server: "it does not serve requests, as without a majority"}


def test_a_port_that_nothing_listens_at() -> None:
    server = Server("127.0.0.1", free_port())
    assert silent_servers([server], WITHIN_S) == {server: "connection refused"}


def test_a_process_that_hangs_is_silent_and_costs_others_nothing() -> None:
    with socket.create_server(("127.0.0.1", 0)) as hangs, a_server(answer(b"Mode: leader\n")) as well:
        silent = Server("127.0.0.1", hangs.getsockname()[1])
        began = time.monotonic()
        found = silent_servers([silent, well], WITHIN_S)
        assert time.monotonic() - began < 10 * WITHIN_S
    assert found == {silent: "it accepts a connection and does not answer"}


def test_one_address_of_a_name_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """As `localhost`, which is ::1 too."""
    with a_server(answer(b"Mode: leader\n")) as well:
        kind = (socket.AF_INET, socket.SOCK_STREAM, 0, "")
        addresses = [(*kind, ("127.0.0.1", port)) for port in (free_port(), well.port, free_port())]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: addresses)
        assert silent_servers([Server("pi-1.local", 2181)], 5.0) == {}


def test_a_name_that_is_none_is_named() -> None:
    server = Server("no-such-host.invalid", 2181)
    (why,) = silent_servers([server], WITHIN_S).values()
    assert why.startswith("its name cannot be resolved: ")


@pytest.mark.parametrize(
    ("connect", "servers"),
    [
        ("a:1,b:2/drupelet", [("a", 1), ("b", 2)]),
        ("a, b ,a", [("a", 2181), ("b", 2181)]),
        ("[::1],[fe80::1]:5", [("::1", 2181), ("fe80::1", 5)]),
        ("", []),
        ("a:x,b:1", [("b", 1)]),
    ],
)
def test_servers_of_a_connect_string(connect: str, servers: list[tuple[str, int]]) -> None:
    assert servers_of(connect) == servers
    assert [each.text for each in servers_of("[::1]:5")] == ["[::1]:5"]
