"""The abusers' process: many connections that all do the same, at the lowest priority.

`python -m tests.abuse.abusers PORT SECONDS CASE`. It begins at a line on its standard input. What the broker closes is
opened again. Prints what was sent, answered and closed as JSON; `revealed` counts answers with a name that strangers
must not see.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import resource
import selectors
import socket
import sys
import time
from collections import deque

from tests.abuse.cases import cases
from tests.abuse.frames import HIDDEN, Case, Talk
from tests.abuse.strangers import CLOSING

RECEIVED_AT_ONCE = 1 << 18
TALKED_MIN = 10
RECEIVED_BYTES_MIN = 1 << 18  # behind a log-in
PATIENCE = 10  # with a machine that has others to do
GONE = (errno.ECONNRESET, errno.EPIPE, errno.ENOTCONN, errno.ECONNREFUSED)


class Abuser:
    """One connection, what it is sending, and what it says then."""

    def __init__(self, sock: socket.socket, data: bytes | memoryview, talk: Talk | None) -> None:
        self.sock = sock
        self.left = memoryview(data)
        self.talk = talk
        self.ends = False


class Crowd:
    """All connections of one case."""

    def __init__(self, port: int, case: Case) -> None:
        self.port = port
        self.case = case
        payload = memoryview(case.payload())
        self.payload = payload[: -case.cut] if case.cut else payload
        self.slow: deque[tuple[float, Abuser]] = deque()  # who sends its next byte when, the first first
        self.selector = selectors.DefaultSelector()
        self.open = 0
        self.counts = {
            "opened": 0,
            "closed": 0,
            "sent_bytes": 0,
            "received_bytes": 0,
            "requests": 0,
            "talked": 0,
            "revealed": 0,
        }

    def run(self, seconds: float) -> dict[str, int]:
        """Abuse for so long, up to PATIENCE times as long where the broker talks or closes, until it did."""
        begin = time.monotonic()
        allowed = float(self.case.connections)
        while (now := time.monotonic()) - begin < seconds * (PATIENCE if self._still_begins() else 1):
            allowed_now = allowed + (now - begin) * self.case.reopened
            while self.open < self.case.connections and self.counts["opened"] < allowed_now:
                self._connect()
            for key, events in self.selector.select(0.05):
                self._serve(key.data, events)
            while self.slow and self.slow[0][0] <= now:
                self._drip(self.slow.popleft()[1], now)
        return self.counts

    def _still_begins(self) -> bool:
        if self.case.talk is not None:
            return self.counts["talked"] < TALKED_MIN
        if self.case.first:
            return self.counts["received_bytes"] < RECEIVED_BYTES_MIN
        return self.case.grows in CLOSING and not self.counts["closed"]

    def _connect(self) -> None:
        sock = socket.socket()
        sock.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            sock.connect(("127.0.0.1", self.port))
        self.open += 1
        self.counts["opened"] += 1
        talk = self.case.talk() if self.case.talk is not None else None
        abuser = Abuser(sock, self.case.first or self.payload, talk)
        if self.case.pace_s:
            abuser.left = self.payload[: self.case.ahead]
        if talk is not None:
            self._say(abuser, None)
        self.selector.register(sock, selectors.EVENT_READ | selectors.EVENT_WRITE, abuser)

    def _serve(self, abuser: Abuser, events: int) -> None:
        try:
            if events & selectors.EVENT_WRITE:
                self._write(abuser)
            if events & selectors.EVENT_READ and self.case.reads and abuser.sock.fileno() >= 0:
                self._read(abuser)
        except BlockingIOError:
            return
        except OSError as error:
            self._gone(abuser, error)

    def _gone(self, abuser: Abuser, error: OSError) -> None:
        if error.errno not in GONE:
            raise error
        self._close(abuser)

    def _read(self, abuser: Abuser) -> None:
        data = abuser.sock.recv(RECEIVED_AT_ONCE)
        self.counts["received_bytes"] += len(data)
        self.counts["revealed"] += HIDDEN in data
        if not data:
            self._close(abuser)
        elif abuser.talk is not None and not abuser.ends:
            self._say(abuser, data)
            self.selector.modify(abuser.sock, selectors.EVENT_READ | selectors.EVENT_WRITE, abuser)

    def _say(self, abuser: Abuser, heard: bytes | None) -> None:
        """Have it say something to what it has heard; its last word ends it."""
        assert abuser.talk is not None
        try:
            abuser.left = memoryview(next(abuser.talk) if heard is None else abuser.talk.send(heard))
        except StopIteration as stop:
            abuser.left, abuser.ends = memoryview(stop.value), True

    def _write(self, abuser: Abuser) -> None:
        """Send what the kernel takes, and see what comes next."""
        if abuser.left:
            sent = abuser.sock.send(abuser.left)
            self.counts["sent_bytes"] += sent
            abuser.left = abuser.left[sent:]
            if abuser.left:
                return
            self.counts["requests"] += 1
        if abuser.ends:
            self.counts["talked"] += 1
            self._close(abuser)
        elif abuser.talk is None and not self.case.cut and not self.case.pace_s and self.payload:
            abuser.left = self.payload
        else:
            self._watch(abuser)

    def _watch(self, abuser: Abuser) -> None:
        """Send no more for now; go on reading, or only hold the connection."""
        self.selector.modify(abuser.sock, selectors.EVENT_READ, abuser)
        if not self.case.reads:
            self.selector.unregister(abuser.sock)
        if self.case.pace_s:
            abuser.left = self.payload[self.case.ahead :]
            self.slow.append((time.monotonic() + self.case.pace_s, abuser))

    def _drip(self, abuser: Abuser, now: float) -> None:
        """Send one byte."""
        if abuser.sock.fileno() < 0 or not abuser.left:
            return
        try:
            abuser.sock.send(abuser.left[:1])
        except OSError as error:
            self._gone(abuser, error)
            return
        self.counts["sent_bytes"] += 1
        abuser.left = abuser.left[1:]
        self.slow.append((now + self.case.pace_s, abuser))

    def _close(self, abuser: Abuser) -> None:
        with contextlib.suppress(KeyError):
            self.selector.unregister(abuser.sock)
        abuser.sock.close()
        self.open -= 1
        self.counts["closed"] += 1


def main() -> None:
    """Abuse as the command line says."""
    port, seconds, name = int(sys.argv[1]), float(sys.argv[2]), sys.argv[3]
    os.nice(19)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(8192, hard), hard))
    case = next(case for case in cases() if case.name == name)
    crowd = Crowd(port, case)
    print("ready", flush=True)
    sys.stdin.readline()
    print(json.dumps(crowd.run(seconds)), flush=True)


if __name__ == "__main__":
    main()
