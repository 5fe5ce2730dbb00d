r"""PURE: parse mosquitto's notice of a packet above `max_packet_size`, and find its client.

A client chooses its id, so a line proves a client only if the id cannot be a part of another line.

| the whole line, after mosquitto's time | client |
|---|---|
| `Client ID disconnected due to oversize packet.` (2.0) | ID |
| `Client ID [ADDRESS:PORT] disconnected: oversize packet.` (2.1) | ID |
| the same with blanks or unprintable characters in ID, or more than CLIENT_ID_BYTES_MAX | ambiguous: none |
| the same with `<unknown>`: no CONNECT was read | none |
| any other | no such notice |

ADDRESS is that of an IP peer, or the path of a Unix socket; neither has brackets, so it ends the id for certain.

Times are arguments, in seconds of one clock. Does not contain: metrics, the log.
Source: mosquitto 2.0.11 and 2.1.2, src/loop.c, do_disconnect; 2.1.2, src/net.c, net__socket_get_address;
mosquitto.conf(5), log_timestamp_format.
"""

from __future__ import annotations

import math
import re
from typing import NamedTuple

from drupelet.printable import quote

CLIENT_ID_BYTES_MAX = 256
CLIENTS_MAX = 8  # named at a time, so that invented ids fill neither log nor page
LOGGED_EVERY_S = 10.0
SHOWN_S = 300.0
AMBIGUOUS = "the client id in mosquitto's line has blanks or unprintable characters, so it may name another device"
UNNAMED = "the client had not sent its id yet"
_NOTICE = re.compile(
    rb"(?:[0-9TZ:+./ -]{1,40}: )?Client (?:"
    rb"(?P<id>.+) disconnected due to oversize packet\."
    rb"|(?P<id_2_1>.+) \[[^\[\]\x00-\x1f]{1,256}:[0-9]{1,5}\] disconnected: oversize packet\.)",
    re.DOTALL,
)
_UNKNOWN = b"<unknown>"


class OversizePacket(NamedTuple):
    """A packet that was too large; `client_id` is None where the line proves none, and `reason` says why."""

    client_id: str | None
    reason: str = ""


def oversize_packet(line: bytes) -> OversizePacket | None:
    """Return the oversized packet of a line of mosquitto's log; None for any other line."""
    found = _NOTICE.fullmatch(line)
    if found is None:
        return None
    raw: bytes = found["id"] or found["id_2_1"]
    if raw == _UNKNOWN:
        return OversizePacket(None, UNNAMED)
    try:
        client_id = raw.decode()
    except UnicodeDecodeError:
        return OversizePacket(None, AMBIGUOUS)
    if len(raw) > CLIENT_ID_BYTES_MAX or " " in client_id or not client_id.isprintable():
        return OversizePacket(None, AMBIGUOUS)
    return OversizePacket(client_id)


class OversizeClients:
    """The clients with recent oversized packets: at most CLIENTS_MAX by name, the newest ones."""

    def __init__(self) -> None:
        self._seen_s: dict[str | None, float] = {}  # the oldest first; None: a client that no line proves
        self._unnamed_s = -math.inf  # when a newer client last replaced one
        self._logged: set[str | None] = set()
        self._logged_since_s = -math.inf

    def note_packet(self, client_id: str | None, now_s: float) -> bool:
        """Note such a packet; return whether to log it: at most CLIENTS_MAX lines in LOGGED_EVERY_S."""
        self._seen_s.pop(client_id, None)
        self._seen_s[client_id] = now_s
        if len(self._seen_s) > CLIENTS_MAX:
            self._unnamed_s = self._seen_s.pop(next(iter(self._seen_s)))
        if now_s - self._logged_since_s >= LOGGED_EVERY_S:
            self._logged, self._logged_since_s = set(), now_s
        if client_id in self._logged or len(self._logged) >= CLIENTS_MAX:
            return False
        self._logged.add(client_id)
        return True

    def note(self, now_s: float) -> str | None:
        """Return in one line the clients of the last SHOWN_S, or None."""
        recent = [client for client, seen_s in self._seen_s.items() if now_s - seen_s <= SHOWN_S]
        if not recent:
            return None
        names = [f"device {quote(client)}" for client in recent if client is not None]
        if None in recent:
            names.append("a device that mosquitto's log does not name for sure")
        if now_s - self._unnamed_s <= SHOWN_S:
            names.append("others")
        verb = "sends" if len(names) == 1 else "send"
        return f"{', '.join(names)} {verb} packets that are larger than mosquitto's max_packet_size"
