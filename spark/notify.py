"""What a job tells systemd: ready, stopping, its state in one line, and that it moves.

Own code, as no library fits: the ones with a wheel (systemd-watchdog, sd-notify) know no STOPPING=1, sdnotify has no
wheel, cysystemd brings 2 MB. What the state is must not come in here. Source: sd_notify(3).
"""

import os
import socket

from spark.logs import log


def tell(*assignments: str) -> None:
    """Send one datagram of `NAME=value` lines to the socket that systemd named in the environment, if there is one."""
    name = os.environ.get("NOTIFY_SOCKET", "")
    if not name:
        return
    message = "\n".join(assignment.replace("\n", " ") for assignment in assignments)
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
            sock.sendto(message.encode(), "\0" + name[1:] if name.startswith("@") else name)
    except OSError as error:
        log("warning", "notify_failed", message=message, reason=error)
