"""systemd's end of sd_notify(3): a real datagram socket that remembers what it was told.

Nothing of our parts is imported here.
"""

from __future__ import annotations

import socket
import tempfile
import time
import uuid
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.support.processes import DeadlineError


class NotifySocket:
    """A context manager; every message is a dict of its assignments, in the order of their coming."""

    def __init__(self, *, abstract: bool = False) -> None:
        """Listen at a path of its own, or at an abstract name."""
        self._directory = tempfile.TemporaryDirectory()  # a short path: sun_path holds 108 bytes
        name = f"drupelet-{uuid.uuid4()}" if abstract else str(Path(self._directory.name) / "notify")
        self.address = f"@{name}" if abstract else name
        self.messages: list[dict[str, str]] = []
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind("\0" + name if abstract else name)

    def environment(self, *, watchdog_ms: int = 0) -> dict[str, str]:
        """Return what systemd puts into a service's environment."""
        watchdog = {"WATCHDOG_USEC": str(watchdog_ms * 1000)} if watchdog_ms else {}
        return {"NOTIFY_SOCKET": self.address, **watchdog}

    def receive(self, deadline_s: float) -> dict[str, str]:
        """Return the next message; raises TimeoutError when none comes in time."""
        self._socket.settimeout(max(deadline_s, 0.001))
        lines = self._socket.recv(65536).decode().split("\n")
        self.messages.append(dict(line.split("=", 1) for line in lines))
        return self.messages[-1]

    def wait_for(self, name: str, value: str = "1", deadline_s: float = 30.0) -> dict[str, str]:
        """Return the next message that assigns `value` to `name`; raises DeadlineError when none comes in time."""
        end = time.monotonic() + deadline_s
        try:
            while True:
                message = self.receive(end - time.monotonic())
                if message.get(name) == value:
                    return message
        except TimeoutError:
            raise DeadlineError(f"no {name}={value} within {deadline_s:g} s; heard {self.messages}") from None

    def drain(self, quiet_s: float) -> list[dict[str, str]]:
        """Return what comes until nothing has come for `quiet_s`."""
        before = len(self.messages)
        try:
            while True:
                self.receive(quiet_s)
        except TimeoutError:
            return self.messages[before:]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()
        self._directory.cleanup()
