"""The least that TLS costs a process: it takes a client's requests and drops them, or encrypts and sends.

| way | how |
|---|---|
| MemoryBIO | as the broker does, without a loop, frames, turns, answers |
| SSLSocket | OpenSSL at the socket itself, from Python |
| s_server | the same in C: the command `openssl s_server`, which takes alone |
| no TLS | as many bytes through the socket alone, which the others have to be held against |

`python -m tests.benchmarks.secured_floor PORT WAY BYTES CERTIFICATE KEY` is such a process; BYTES, unless 0, are sent.
The other end sends the records of TLS that the client sends for which it stands, as fast as it can.

Lives here: these processes, their loads. Must never come in: brokers.
"""

from __future__ import annotations

import socket
import ssl
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple, cast

import psutil

from tests.support.certificates import Authority
from tests.support.ports import can_connect, free_port
from tests.support.waiting import wait_until

REQUESTS, RECORDS = 6000, 64  # of 1 KB in each request or answer
READ_BYTES, PIECE_BYTES = 262_144, 16_384
REPEATS = 5
READY_S = 10
NONE, IN_MEMORY, AT_SOCKET, IN_C = "no TLS", "MemoryBIO", "SSLSocket", "s_server"


class Load(NamedTuple):
    """A request or an answer of 64 KB as records of TLS; those of the clients were counted at the broker."""

    name: str
    parts: tuple[int, ...]
    ways: tuple[str, ...] = (NONE, IN_MEMORY, AT_SOCKET, IN_C)
    given: bool = False


LOADS = (
    Load("produce 1 KB, Java", (4, 50, *(16_350,) * 4)),
    Load("produce 1 KB, librdkafka", (5, 5, *(12, 1000) * 54, 10_300)),
    Load("fetch 1 KB", (PIECE_BYTES,) * 4, (NONE, IN_MEMORY, AT_SOCKET), given=True),
)


def floors(authority: Authority, scale: float, pythons: Mapping[str, Sequence[str]]) -> dict[str, float]:
    """CPU time in us for a record, of each load by each way: the median of REPEATS.

    `pythons` serve in turn; what each is called goes behind its rows.
    """
    pair = authority.sign("floor", "DNS:localhost")
    trust = ssl.create_default_context(cafile=str(authority.certificate))
    requests = int(REQUESTS * scale)
    found: dict[str, list[float]] = {}
    for load in LOADS:
        for way in load.ways:
            for _ in range(REPEATS):
                for called, python in pythons.items():
                    took = _cpu_s(load, way, requests, pair, trust, python)
                    found.setdefault(f"{load.name}, {way}{called}", []).append(took)
    return {row: median(took) / (requests * RECORDS) * 1e6 for row, took in found.items()}


def _cpu_s(
    load: Load, way: str, requests: int, pair: tuple[Path, Path], trust: ssl.SSLContext, python: Sequence[str]
) -> float:
    size = requests * sum(load.parts)
    with _server(way, size if load.given else 0, pair, python) as (port, cpu_s):
        before = cpu_s()
        with socket.create_connection(("127.0.0.1", port)) as raw:
            if load.given:
                _drop(raw if way == NONE else trust.wrap_socket(raw, server_hostname="localhost"))
            else:
                if way == NONE:
                    request = bytes(sum(load.parts))
                    for _ in range(requests):
                        raw.sendall(request)
                else:
                    _send(raw, trust, load.parts, requests)
                raw.shutdown(socket.SHUT_WR)
                _drop(raw)  # until it has been taken
        return cpu_s() - before


def _drop(raw: socket.socket) -> None:
    buffer = bytearray(READ_BYTES)
    while raw.recv_into(buffer):
        pass


def _send(raw: socket.socket, trust: ssl.SSLContext, parts: tuple[int, ...], requests: int) -> None:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = trust.wrap_bio(incoming, outgoing, server_hostname="localhost")
    _shake_hands(raw, tls, incoming, outgoing)
    data = [bytes(part) for part in parts]
    for _ in range(requests):
        for part in data:
            tls.write(part)
        raw.sendall(outgoing.read())


def _shake_hands(raw: socket.socket, tls: ssl.SSLObject, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO) -> None:
    while True:
        try:
            tls.do_handshake()
        except ssl.SSLWantReadError:
            raw.sendall(outgoing.read())
            incoming.write(raw.recv(PIECE_BYTES))
        else:
            raw.sendall(outgoing.read())
            return


@contextmanager
def _server(
    way: str, size: int, pair: tuple[Path, Path], python: Sequence[str]
) -> Iterator[tuple[int, Callable[[], float]]]:
    """A process that serves one way: its port, and what gives its CPU seconds."""
    port = free_port()
    if way == IN_C:
        command = [
            *python[:-1],
            "openssl",
            "s_server",
            "-quiet",
            "-accept",
            port,
            "-cert",
            pair[0],
            "-key",
            pair[1],
            "-num_tickets",
            0,
        ]
    else:
        command = [*python, "-m", "tests.benchmarks.secured_floor", port, way, size, *pair]
    words = [str(word) for word in command]
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:

        def cpu_s() -> float:
            times = psutil.Process(process.pid).cpu_times()
            return float(times.user + times.system)

        try:
            wait_until(lambda: can_connect(port), READY_S, f"{way} listens")
            yield port, cpu_s
        finally:
            process.kill()


def serve(port: int, way: str, size: int, certificate: str, key: str) -> None:
    """Serve connections one after the other, without end; who only looks whether somebody listens is one, too."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    context.num_tickets = 0
    with socket.create_server(("127.0.0.1", port)) as listening:
        while True:
            raw, _ = listening.accept()
            with raw, suppress(OSError):
                if way == IN_MEMORY:
                    _in_memory(raw, context, size)
                elif way == NONE:
                    _at_socket(raw, size)
                else:
                    with context.wrap_socket(raw, server_side=True) as tls:
                        _at_socket(tls, size)


def _at_socket(raw: socket.socket, size: int) -> None:
    if size:
        data = bytes(PIECE_BYTES if isinstance(raw, ssl.SSLSocket) else 4 * PIECE_BYTES)
        for _ in range(size // len(data)):
            raw.sendall(data)
    else:
        _drop(raw)


def _in_memory(raw: socket.socket, context: ssl.SSLContext, size: int) -> None:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context.wrap_bio(incoming, outgoing, server_side=True)
    while True:
        try:
            tls.do_handshake()
            break
        except ssl.SSLWantReadError:
            if outgoing.pending:
                raw.sendall(outgoing.read())
            got = raw.recv(PIECE_BYTES)
            if not got:
                return
            incoming.write(got)
    raw.sendall(outgoing.read())
    if size:
        _give(raw, tls, outgoing, size)
    else:
        _take(raw, tls, incoming)


def _give(raw: socket.socket, tls: ssl.SSLObject, outgoing: ssl.MemoryBIO, size: int) -> None:
    data = bytes(PIECE_BYTES)
    for _ in range(size // PIECE_BYTES // 4):
        pieces = []
        for _ in range(4):
            tls.write(data)
            pieces.append(outgoing.read())
        raw.sendmsg(pieces)


def _take(raw: socket.socket, tls: ssl.SSLObject, incoming: ssl.MemoryBIO) -> None:
    read = cast(Any, tls)._sslobj.read
    cipher, plain = memoryview(bytearray(READ_BYTES)), memoryview(bytearray(READ_BYTES))
    while got := raw.recv_into(cipher):
        for position in range(0, got, PIECE_BYTES):
            incoming.write(cipher[position : min(position + PIECE_BYTES, got)])
            filled = 0
            with suppress(ssl.SSLWantReadError):
                while True:
                    filled += read(READ_BYTES, plain[filled:])


if __name__ == "__main__":
    serve(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), *sys.argv[4:])
