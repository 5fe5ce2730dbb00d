"""Asks each server of a `zookeeper.connect` whether it answers, all at once and within a bound.

| the server | is |
|---|---|
| answers `srvr`, or says that the word is off, or ends the connection (TLS) | well |
| refuses the connection, or cannot be reached or resolved | silent |
| accepts the connection and sends nothing, as a process that hangs | silent |
| says that it does not serve requests, as without a majority | silent |

Does not contain: sessions (network/cluster/zookeeper_client.py), checks of the text (ensemble.py).
Source: ZooKeeper Administrator's Guide, "The Four Letter Words".
"""

from __future__ import annotations

import errno
import os
import selectors
import socket
import time
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from drupelet.addresses import endpoint_text, host_and_port

PORT = 2181
WORD = b"srvr"
NOT_SERVING = b"not currently serving"
ANSWER_BYTES_MAX = 4096
SILENT_S = 2.0
"""How long all servers have to answer, together."""


class Server(NamedTuple):
    """One server of an ensemble."""

    host: str
    port: int

    @property
    def text(self) -> str:
        """HOST:PORT."""
        return endpoint_text(self.host, self.port)


def servers_of(connect: str) -> list[Server]:
    """Return the servers of a connect string, without its path, each once; those that cannot be read are left out."""
    found = []
    for text in connect.partition("/")[0].split(","):
        server = text.strip()
        has_port = ":" in server.rpartition("]")[2] if server.startswith("[") else ":" in server
        try:
            found.append(Server(*host_and_port(server if has_port else f"{server}:{PORT}")))
        except ValueError:
            continue
    return list(dict.fromkeys(found))


def silent_servers(servers: Iterable[Server], within_s: float = SILENT_S) -> dict[Server, str]:
    """Return the servers that do not answer within this time, and why; blocks for so long at most, names aside."""
    return _Probe(list(servers), time.monotonic() + within_s).silent


class _Probe:
    """One connection for each address of each server."""

    def __init__(self, servers: list[Server], until_s: float) -> None:
        self._selector = selectors.DefaultSelector()
        self._asked: set[socket.socket] = set()
        self.silent = dict.fromkeys(servers, "it does not answer in time")
        try:
            for server in servers:
                self._connect(server)
            while self._selector.get_map() and (left_s := until_s - time.monotonic()) > 0:
                for key, _ in self._selector.select(left_s):
                    assert isinstance(key.fileobj, socket.socket)
                    self._socket_ready(key.fileobj, key.data)
        finally:
            for key in list(self._selector.get_map().values()):
                assert isinstance(key.fileobj, socket.socket)
                self._end(key.fileobj)
            self._selector.close()

    def _connect(self, server: Server) -> None:
        try:
            addresses = list(_addresses(server))
        except OSError as error:
            self.silent[server] = f"its name cannot be resolved: {error.strerror}"
            return
        for family, address in addresses:
            sock = socket.socket(family, socket.SOCK_STREAM)
            sock.setblocking(False)
            code = sock.connect_ex(address)
            if code in (0, errno.EINPROGRESS):
                self._selector.register(sock, selectors.EVENT_WRITE, server)
            else:
                self.silent[server] = _reason(code)
                sock.close()

    def _socket_ready(self, sock: socket.socket, server: Server) -> None:
        if server not in self.silent:
            self._end(sock)  # another address of it has answered
        elif sock in self._asked:
            self._read(sock, server)
        elif (code := sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)) != 0:
            self.silent[server] = _reason(code)
            self._end(sock)
        else:
            self._ask(sock, server)

    def _ask(self, sock: socket.socket, server: Server) -> None:
        self._asked.add(sock)
        self.silent[server] = "it accepts a connection and does not answer"
        try:
            sock.send(WORD)
        except OSError:
            self._well(sock, server)
        else:
            self._selector.modify(sock, selectors.EVENT_READ, server)

    def _read(self, sock: socket.socket, server: Server) -> None:
        try:
            piece = sock.recv(ANSWER_BYTES_MAX)
        except OSError:  # it was reset, by a live server
            piece = b""
        if NOT_SERVING in piece:
            self.silent[server] = "it does not serve requests, as without a majority"
            self._end(sock)
        else:
            self._well(sock, server)

    def _well(self, sock: socket.socket, server: Server) -> None:
        del self.silent[server]
        self._end(sock)

    def _end(self, sock: socket.socket) -> None:
        self._selector.unregister(sock)
        sock.close()


def _addresses(server: Server) -> Iterator[tuple[int, tuple[str, int]]]:
    for family, _, _, _, address in socket.getaddrinfo(server.host, server.port, type=socket.SOCK_STREAM):
        yield family, address[:2] if family == socket.AF_INET else address  # type: ignore[misc]


def _reason(code: int) -> str:
    return os.strerror(code).lower()
