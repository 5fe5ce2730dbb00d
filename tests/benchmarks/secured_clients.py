"""Raw clients over TLS: handshakes without end, log-ins, many idle connections, one honest client beside them.

`python -m tests.benchmarks.secured_clients` reads a Door and a Flood as JSON from standard input, as a password is
in it, and prints what came of it.
Every handshake is a full one, as no session is kept, and counts once ApiVersions is answered behind it: with TLS 1.3 a
client is ready before the broker has looked at its certificate.

Lives here: these clients. Must never come in: what is compared with what (secured.py).
"""

from __future__ import annotations

import json
import os
import socket
import ssl
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from itertools import count
from typing import Any, NamedTuple

from edge_broker.protocol.api import FETCH, SASL_AUTHENTICATE, SASL_HANDSHAKE
from edge_broker.protocol.codec import decode, encode
from edge_broker.protocol.message import Message
from edge_broker.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from edge_broker.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from edge_broker.protocol.messages.sasl_handshake import SaslHandshakeRequest
from tests.benchmarks.load import FETCH_VERSION, ask, batch_of, connect, error_of, frame, produce_frame
from tests.support.scram import ScramClient, plain

THREADS = 8
MOVING = 50  # connections that move their bytes at once
RECORD_BYTES = 1_000_000
_API_VERSIONS = struct.pack(">ihhih5s", 15, 18, 0, 7, 5, b"bench")


class Door(NamedTuple):
    """How to get in: a port on this machine, the CA's file, a client's certificate and key or neither, and a log-in.

    `mechanism` is PLAIN or SCRAM's, empty: none.
    """

    port: int
    authority: str
    certificate: str = ""
    key: str = ""
    mechanism: str = ""
    user: str = ""
    password: str = ""

    def context(self) -> ssl.SSLContext:
        """What every connection of one client uses."""
        context = ssl.create_default_context(cafile=self.authority)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        if self.certificate:
            context.load_cert_chain(self.certificate, self.key)
        return context

    def enter(self, context: ssl.SSLContext) -> socket.socket:
        """A connection that has shaken hands and logged in."""
        connection = context.wrap_socket(connect(self.port), server_hostname="localhost")
        if self.mechanism:
            self._log_in(connection)
        return connection

    def _log_in(self, connection: socket.socket) -> None:
        ask(connection, _old_frame(SASL_HANDSHAKE, 1, SaslHandshakeRequest(mechanism=self.mechanism)))
        if self.mechanism == "PLAIN":
            _token(connection, plain(self.user, self.password))
            return
        client = ScramClient(self.mechanism, self.user, self.password, os.urandom(12).hex())
        if not client.verifies(_token(connection, client.final(_token(connection, client.first)))):
            raise RuntimeError("the broker does not know the password")


def _old_frame(api_key: int, version: int, request: Message) -> bytes:
    """A request whose header has no tags."""
    body = struct.pack(">hhih5s", api_key, version, 7, 5, b"bench") + b"".join(encode(request, version))
    return struct.pack(">i", len(body)) + body


def _token(connection: socket.socket, token: bytes) -> bytes:
    answer = ask(connection, _old_frame(SASL_AUTHENTICATE, 1, SaslAuthenticateRequest(auth_bytes=token)))
    response = decode(SaslAuthenticateResponse, 1, memoryview(answer), 4)
    if response.error_code:
        raise RuntimeError(f"a log-in failed: {response.error_message}")
    return response.auth_bytes


class Flood(NamedTuple):
    """Connections that only come in and go: so many a second, 0 for as many as there can be."""

    seconds: float
    per_second: float = 0


class Flooded(NamedTuple):
    """How many came in, and in what time."""

    entered: int
    seconds: float


def flood(door: Door, wanted: Flood) -> Flooded:
    """Come in and go, from several threads."""
    context, numbers, begin = door.context(), count(), time.perf_counter()
    end = begin + wanted.seconds

    def work(_thread: int) -> int:
        entered = 0
        for number in numbers:
            now = time.perf_counter()
            due = begin + number / wanted.per_second if wanted.per_second else now
            if max(now, due) >= end:
                break
            time.sleep(max(due - now, 0))
            with door.enter(context) as connection:
                ask(connection, _API_VERSIONS)
            entered += 1
        return entered

    with ThreadPoolExecutor(THREADS) as threads:
        entered = sum(threads.map(work, range(THREADS)))
    return Flooded(entered, time.perf_counter() - begin)


class Flooding:
    """A flood in a process of its own."""

    def __init__(self, door: Door, wanted: Flood) -> None:
        command = [sys.executable, "-m", "tests.benchmarks.secured_clients"]
        self._child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._told = json.dumps({"door": door._asdict(), "flood": wanted._asdict()})
        self._s_max = wanted.seconds + 60

    def begin(self) -> None:
        """Let it loose."""
        assert self._child.stdin is not None
        self._child.stdin.write(self._told + "\n")
        self._child.stdin.flush()

    def result(self) -> Flooded:
        """What came of it, once it is over."""
        output, _ = self._child.communicate(timeout=self._s_max)
        if self._child.returncode != 0:
            raise RuntimeError("a flood failed; what it said is above")
        return Flooded(**json.loads(output))

    def kill(self) -> None:
        """End it, if it has not ended, and reap it."""
        if self._child.poll() is None:
            self._child.kill()
        self._child.wait()


@contextmanager
def flooding(door: Door, wanted: Flood) -> Iterator[Flooding]:
    """A flood that is ready, not begun."""
    one = Flooding(door, wanted)
    try:
        yield one
    finally:
        one.kill()


def honest(door: Door, topic: str, seconds: float, each_s: float) -> list[float]:
    """One client sends a record of 100 B each so often, acks=1, and waits for its answer; each latency in ms."""
    request, latencies = produce_frame(topic, 0, batch_of(1, 100), 1), []
    with door.enter(door.context()) as connection:
        begin = time.perf_counter()
        for number in range(int(seconds / each_s)):
            time.sleep(max(begin + number * each_s - time.perf_counter(), 0))
            sent = time.perf_counter()
            _produce(connection, request)
            latencies.append((time.perf_counter() - sent) * 1000)
    return latencies


def _produce(connection: socket.socket, request: bytes) -> None:
    error = error_of(ask(connection, request))
    if error:
        raise RuntimeError(f"a produce request was answered with error {error}")


class Crowd:
    """Connections of clients that have come in and do nothing, until they move a megabyte."""

    def __init__(self, door: Door, clients: int, stack: ExitStack) -> None:
        context = door.context()
        with ThreadPoolExecutor(THREADS) as threads:
            entered = threads.map(lambda _: stack.enter_context(door.enter(context)), range(clients))
            self._connections = list(entered)

    def move(self, topic: str) -> None:
        """Each sends a record of RECORD_BYTES and fetches one, MOVING at a time."""
        request = produce_frame(topic, 0, batch_of(1, RECORD_BYTES), 1)
        partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=RECORD_BYTES)
        fetch = FetchRequest(
            max_wait_ms=10_000,
            min_bytes=1,
            max_bytes=RECORD_BYTES,
            topics=[FetchTopic(topic=topic, partitions=[partition])],
        )
        fetch_frame = frame(FETCH, FETCH_VERSION, fetch)

        def both(connection: socket.socket) -> int:
            _produce(connection, request)
            return len(ask(connection, fetch_frame))

        with ThreadPoolExecutor(MOVING) as threads:
            least = min(threads.map(both, self._connections))
        if least < RECORD_BYTES:
            raise RuntimeError(f"a fetch brought {least} bytes")


def main() -> int:
    """Be one flood."""
    told: dict[str, Any] = json.loads(sys.stdin.readline())
    print(json.dumps(flood(Door(**told["door"]), Flood(**told["flood"]))._asdict()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
