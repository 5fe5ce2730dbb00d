"""systemd's end of sd_notify(3): a real datagram socket that remembers what it was told.

It reads all the while, as systemd does: whoever tells it something waits once net.unix.max_dgram_qlen datagrams (10
with most kernels) lie unread, and a broker that waits there answers nobody.

Nothing of our parts is imported here.
"""

from __future__ import annotations

import socket
import tempfile
import threading
import uuid
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.support.waiting import Deadline


class NotifySocket:
    """A context manager; every message is a dict of its assignments, in the order of their coming."""

    def __init__(self, *, abstract: bool = False) -> None:
        """Listen at a path of its own, or at an abstract name."""
        self._directory = tempfile.TemporaryDirectory()  # a short path: sun_path holds 108 bytes
        name = f"drupelet-{uuid.uuid4()}" if abstract else str(Path(self._directory.name) / "notify")
        self.address = f"@{name}" if abstract else name
        self.messages: list[dict[str, str]] = []
        self._taken = 0
        self._come = threading.Condition()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind("\0" + name if abstract else name)
        self._reader = threading.Thread(target=self._read, name="notify-socket", daemon=True)
        self._reader.start()

    def _read(self) -> None:
        while datagram := self._socket.recv(65536):  # an empty one, or a shut socket, is the end
            with self._come:
                self.messages.append(dict(line.split("=", 1) for line in datagram.decode().split("\n")))
                self._come.notify_all()

    def environment(self, *, watchdog_ms: int = 0) -> dict[str, str]:
        """Return what systemd puts into a service's environment."""
        watchdog = {"WATCHDOG_USEC": str(watchdog_ms * 1000)} if watchdog_ms else {}
        return {"NOTIFY_SOCKET": self.address, **watchdog}

    def _next(self, seconds: float) -> dict[str, str] | None:
        with self._come:
            if not self._come.wait_for(lambda: len(self.messages) > self._taken, seconds):
                return None
            self._taken += 1
            return self.messages[self._taken - 1]

    def receive(self, deadline_s: float = 30.0) -> dict[str, str]:
        """Return the next message; raises DeadlineError when none comes in time."""
        return self.wait_until(lambda _: True, "a message", deadline_s)

    def wait_for(self, name: str, value: str = "1", deadline_s: float = 30.0) -> dict[str, str]:
        """Return the next message that assigns `value` to `name`; raises DeadlineError when none comes in time."""
        return self.wait_until(lambda message: message.get(name) == value, f"{name}={value}", deadline_s)

    def wait_until(
        self, wanted: Callable[[dict[str, str]], bool], what: str, deadline_s: float = 30.0
    ) -> dict[str, str]:
        """Return the next message that is wanted; raises DeadlineError when none comes in time."""
        deadline = Deadline(deadline_s)
        while (message := self._next(deadline.left_s)) is not None:
            if wanted(message):
                return message
        raise deadline.error(what, f"{len(self.messages)} messages, at the end {self.messages[-5:]}")

    def last(self) -> dict[str, str] | None:
        """Return the message that came last."""
        return self.messages[-1] if self.messages else None

    def drain(self, quiet_s: float) -> list[dict[str, str]]:
        """Return what comes until nothing has come for `quiet_s`."""
        found = []
        while (message := self._next(quiet_s)) is not None:
            found.append(message)
        return found

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._reader.join()
        self._socket.close()
        self._directory.cleanup()
