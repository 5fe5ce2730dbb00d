"""What the gateway tells systemd: ready, stopping, its state in one line, and that its event loop turns.

A peer that is away is no reason for a new process, so the watchdog asks for the loop alone; STATUS says what is wrong.
Own code, as no library fits: the ones with a wheel (systemd-watchdog, sd-notify) know no STOPPING=1, sdnotify has no
wheel, cysystemd brings 2 MB. What the state is must not come in here. Source: sd_notify(3), sd_watchdog_enabled(3).
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Mapping

from gateway.logfmt import Log

_log = Log("gateway")


class Notifier:
    """Sends to the socket that systemd named in the environment; without one nothing happens."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        """Read where systemd listens, and how soon it misses us."""
        name = environment.get("NOTIFY_SOCKET", "")
        self._address = "\0" + name[1:] if name.startswith("@") else name
        ours = environment.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        self._watchdog_s = int(environment.get("WATCHDOG_USEC", "0")) / 1e6 if ours and name else 0.0

    def tell(self, *assignments: str) -> None:
        """Send one datagram of `NAME=value` lines; like libsystemd's it waits while systemd's queue is full."""
        if not self._address:
            return
        message = "\n".join(assignment.replace("\n", " ") for assignment in assignments)
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
                sock.sendto(message.encode(), self._address)
        except OSError as error:
            _log.warning("notify_failed", message=message, error=error)

    async def keep_alive(self, status: Callable[[], str]) -> None:
        """Send WATCHDOG=1 and the status at half of the unit's WatchdogSec; return where it has none."""
        while self._watchdog_s:
            self.tell("WATCHDOG=1", f"STATUS={status()}")
            await asyncio.sleep(self._watchdog_s / 2)
