"""The abusers' process: many connections that all send the same, at the lowest priority.

`python -m tests.abuse.abusers PORT SECONDS CASE`. What the broker closes is opened again, REOPENED_A_SECOND at most.
Prints what was sent, answered and closed as JSON.
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

from tests.abuse.frames import Case, cases

REOPENED_A_SECOND = 500
RECEIVED_AT_ONCE = 1 << 18


class Abuser:
    """One connection and how far it is."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.position = 0
        self.done = False


class Crowd:
    """All connections of one case."""

    def __init__(self, port: int, case: Case) -> None:
        self.port = port
        self.case = case
        self.payload = memoryview(case.payload())
        if case.cut:
            self.payload = self.payload[: -case.cut]
        self.selector = selectors.DefaultSelector()
        self.open = 0
        self.counts = {"opened": 0, "closed": 0, "sent_bytes": 0, "received_bytes": 0, "requests": 0}

    def run(self, seconds: float) -> dict[str, int]:
        """Abuse for so long."""
        begin = time.monotonic()
        allowed = float(self.case.connections)
        while (now := time.monotonic()) - begin < seconds:
            allowed_now = allowed + (now - begin) * REOPENED_A_SECOND
            while self.open < self.case.connections and self.counts["opened"] < allowed_now:
                self._connect()
            for key, events in self.selector.select(0.05):
                self._serve(key.data, events)
        return self.counts

    def _connect(self) -> None:
        sock = socket.socket()
        sock.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            sock.connect(("127.0.0.1", self.port))
        self.open += 1
        self.counts["opened"] += 1
        self.selector.register(sock, selectors.EVENT_READ | selectors.EVENT_WRITE, Abuser(sock))

    def _serve(self, abuser: Abuser, events: int) -> None:
        try:
            if events & selectors.EVENT_WRITE and not self._write(abuser):
                self._watch(abuser)
            if events & selectors.EVENT_READ and self.case.reads:
                received = len(abuser.sock.recv(RECEIVED_AT_ONCE))
                self.counts["received_bytes"] += received
                if not received:
                    self._close(abuser)
        except BlockingIOError:
            return
        except OSError as error:
            if error.errno not in (errno.ECONNRESET, errno.EPIPE, errno.ENOTCONN, errno.ECONNREFUSED):
                raise
            self._close(abuser)

    def _write(self, abuser: Abuser) -> bool:
        """Send what the kernel takes; False when there is nothing to send any more."""
        if not self.payload:
            return False
        sent = abuser.sock.send(self.payload[abuser.position :])
        self.counts["sent_bytes"] += sent
        abuser.position += sent
        if abuser.position == len(self.payload):
            self.counts["requests"] += 1
            abuser.position = 0
            return not self.case.cut
        return True

    def _watch(self, abuser: Abuser) -> None:
        """Send no more; go on reading, or only hold the connection."""
        self.selector.modify(abuser.sock, selectors.EVENT_READ, abuser)
        if not self.case.reads:
            self.selector.unregister(abuser.sock)

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
    print(json.dumps(crowd.run(seconds)), flush=True)


if __name__ == "__main__":
    main()
