"""Prints when users logged in at mosquitto, from its journal, as a JSON object with `now` and `log_ins`.

Run as root by the role `mosquitto`. The argument is a JSON object: each user, and the second in which it was made;
earlier log-ins were by another password. A second that is still to come bounds nothing, as the clock was ahead then.
`log_ins` has for each user that logged in:

| field | meaning |
|---|---|
| `first_log_in`, `last_log_in` | time of the first, day of the last |
| `first`, `last` | their numbers in the order of the journal, as clocks of boards jump |
| `connected` | how many of its clients the journal shows as connected |

A client chooses its id, so a line counts only where mosquitto itself wrote the user's name: at the end of a whole line.
mosquitto 2.0 truncates its lines to 1,000 bytes, and journald splits at 48 KiB. Source: mosquitto 2.0, connect.c.
"""

import json
import re
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from typing import Any

UNIT = "mosquitto.service"
JOURNAL = [
    "journalctl",
    "--quiet",
    "--output=cat",
    f"_SYSTEMD_UNIT={UNIT}",
    "_TRANSPORT=stdout",
    "+",
    "_PID=1",
    f"UNIT={UNIT}",
]
TIMEOUT_S = 60
LINE_BYTES_MAX = 900
CONNECTED = re.compile(rb"(\d+): New client connected from \S+ as (.*) \(p\d, c\d, k\d+, u'([^']*)'\)\.", re.DOTALL)
# A client's id may look like an end itself: mosquitto's own words are the last ones of a whole line.
ENDED = re.compile(
    rb"\d+: (?:Client (.*)(?: closed its connection| disconnected| disconnected: [^:]*| disconnected due to [^:]*"
    rb"| disconnected, not authorised| been disconnected by administrative action| has exceeded timeout, disconnecting"
    rb"| already connected, closing old connection)|Bad socket read/write on client (.*): [^:]*)\.",
    re.DOTALL,
)
# Systemd's word: mosquitto's own is of log_type information, which also tells of each autosave.
STARTED = re.compile(rb"Start(?:ing|ed) mosquitto[.]service")


def log_ins(lines: Iterable[bytes], made: Mapping[str, int]) -> dict[str, dict[str, Any]]:
    """Return the log-ins of the users in `made`; a user that never logged in has none."""
    found: dict[str, dict[str, Any]] = {}
    clients: dict[bytes, str] = {}
    for number, whole in enumerate(lines):
        line = whole.rstrip(b"\n")
        if STARTED.match(line):
            clients.clear()
        elif connected := CONNECTED.fullmatch(line):
            user, second = connected[3].decode("utf-8", "replace"), int(connected[1])
            clients[connected[2]] = user
            if len(line) <= LINE_BYTES_MAX and user in made and second >= made[user]:
                one = found.setdefault(user, {"first": number, "first_log_in": text_of(second)})
                one.update(last=number, last_log_in=text_of(second).partition("T")[0])
        elif ended := ENDED.fullmatch(line):
            clients.pop(ended[1] or ended[2], None)
    for user, one in found.items():
        one["connected"] = list(clients.values()).count(user)
    return found


def past_only(made: Mapping[str, int], now: int) -> dict[str, int]:
    """Return when users were made, 0 for those that a clock ahead of time made later than now."""
    return {user: second if second <= now else 0 for user, second in made.items()}


def text_of(second: int) -> str:
    """Return a time as edge-broker prints it, or the number where no calendar has it."""
    try:
        return time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(second))
    except (OverflowError, ValueError, OSError):
        return str(second)


def main() -> None:
    """Read the journal, unless there are no users to look for."""
    now = int(time.time())
    made = past_only(json.loads(sys.argv[1]), now)
    found: dict[str, dict[str, Any]] = {}
    if made:
        with subprocess.Popen(JOURNAL, stdout=subprocess.PIPE) as journal:  # noqa: S603
            found = log_ins(journal.stdout or (), made)
            if journal.wait(TIMEOUT_S):
                sys.exit(f"{' '.join(JOURNAL)} ends with status {journal.returncode}.")
    print(json.dumps({"now": now, "log_ins": found}))


if __name__ == "__main__":
    main()
