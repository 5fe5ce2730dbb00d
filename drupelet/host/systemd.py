"""Notify systemd of a service: ready, stopping, its state in one line, and keep-alives.

No library fits: those with a wheel (systemd-watchdog, sd-notify) lack STOPPING=1, sdnotify has no
wheel, cysystemd needs 2 MB. Does not contain: the state, the rule by which a part is alive.
Source: sd_notify(3), sd_watchdog_enabled(3).
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterable, Mapping

from drupelet.printable import printable


class Notifier:
    """Sends to systemd's socket in the environment; without one it does nothing."""

    def __init__(self, environment: Mapping[str, str], failed: Callable[..., None]) -> None:
        """`failed` writes a log line of the fields `message` and `error`, when a datagram could not be sent."""
        name = environment.get("NOTIFY_SOCKET", "")
        self._address = "\0" + name[1:] if name.startswith("@") else name
        self._failed = failed
        ours = environment.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        self.watchdog_s = int(environment.get("WATCHDOG_USEC", "0")) / 1e6 if ours and name else 0.0

    def notify(self, *assignments: str) -> None:
        """Send one datagram of `NAME=value` lines; like libsystemd's it waits while systemd's queue is full."""
        if not self._address:
            return
        message = "\n".join(printable(assignment.replace("\n", " ")) for assignment in assignments)
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
                sock.sendto(message.encode(), self._address)
        except OSError as error:
            self._failed(message=message, error=error)

    async def keep_alive(self, beat: Callable[[], Iterable[str]]) -> None:
        """Send the result of `beat` at half of the unit's WatchdogSec, without end; return at once if it has none."""
        import asyncio  # noqa: PLC0415 - a part without a loop tells systemd too

        while self.watchdog_s:
            self.notify(*beat())
            await asyncio.sleep(self.watchdog_s / 2)


def alive(status: Callable[[], str]) -> Callable[[], Iterable[str]]:
    """Return the beat of a service that lives while its loop runs: an absent peer is no reason for a restart."""
    return lambda: ("WATCHDOG=1", f"STATUS={status()}")
