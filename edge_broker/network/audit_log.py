"""The bounds of log lines that clients can bring about by connections, log-ins and requests: by event and by source.

| lines of one event in a window of WINDOW_S | written |
|---|---|
| the first LINES_MAX of a source | yes |
| more of it | no: counted, and summed at the window's end |
| of a source beyond HOSTS_MAX addresses or PRINCIPALS_MAX principals | as of one source, `others` |

A source is the principal that logged in, or the client's address. A name that exists has its own source, so that a
flood of guesses at other names hides none at this one. A window begins with the first line after the last window; its
sums are written by a timer, or at a stop, so that no count waits for another line. After a crash the sums of at most
WINDOW_S are missing.

Does not contain: changes of rights and users, and log-ins of super users, which have no bound
(storage/metadata/security_log.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from drupelet.observe.log_window import LogWindow, Timers
from edge_broker.broker.effects import AuditLine
from edge_broker.network.log_lines import LINES_MAX, log_line

HOSTS_MAX = 128
PRINCIPALS_MAX = 512
SUMS_MAX = 20  # lines of sums of one event; the rest is one more
OTHERS = "others"


class _Source:
    """One source's lines of one event in this window; `tally` counts for one request in progress."""

    __slots__ = ("lines", "summed", "tally")

    def __init__(self) -> None:
        self.lines = self.summed = 0
        self.tally: list[int] | None = None

    @property
    def left_out(self) -> int:
        return self.summed + (self.tally[0] if self.tally is not None else 0)


class AuditLog:
    """The lines of this window; owned by the loop."""

    def __init__(self, loop: Timers) -> None:
        self._window = LogWindow(loop, self._write_sums)
        self._events: dict[str, dict[str, _Source]] = {}
        self._places: Counter[tuple[str, bool]] = Counter()

    def line(self, level: str, event: str, **fields: object) -> None:
        """Write a line about a connection whose address and port are its `client`, or count it."""
        self._add(level, AuditLine(event, fields))

    def add(self, audited: AuditLine) -> None:
        """Write the line, or count it."""
        self._add("info", audited)

    def _add(self, level: str, audited: AuditLine) -> None:
        self._window.begin()
        source = self._source(audited)
        if audited.tally is not None:
            source.summed, source.tally = source.left_out, audited.tally
        elif source.lines < LINES_MAX:
            source.lines += 1
            log_line(level, audited.event, **audited.fields)
        else:
            source.summed += 1

    def end_window(self) -> None:
        """Write the sums of this window, and forget it."""
        self._window.end()

    def _write_sums(self, seconds: str) -> None:
        for event, sources in self._events.items():
            counts = Counter({name: one.left_out for name, one in sources.items() if one.left_out})
            most = counts.most_common(SUMS_MAX)
            for name, count in most:
                log_line("info", "audit-summed", of=event, source=name, left_out=count, seconds=seconds)
            if len(counts) > len(most):
                rest = {"sources": len(counts) - len(most), "left_out": counts.total() - sum(n for _, n in most)}
                log_line("info", "audit-summed", of=event, **rest, seconds=seconds)
        self._events.clear()
        self._places.clear()

    def _source(self, audited: AuditLine) -> _Source:
        sources = self._events.setdefault(audited.event, {})
        name = audited.source or source_of(audited.fields)
        if name not in sources:
            is_principal = name.startswith("User:")
            place = audited.event, is_principal
            if self._places[place] >= (PRINCIPALS_MAX if is_principal else HOSTS_MAX):
                name = OTHERS
            else:
                self._places[place] += 1
        found = sources.get(name)
        if found is None:
            found = sources[name] = _Source()
        return found


def source_of(fields: Mapping[str, object]) -> str:
    """Return the principal of an event's fields, or its address if unauthenticated; empty without both."""
    principal = str(fields.get("principal", ""))
    if principal and principal != "User:ANONYMOUS":
        return principal
    return str(fields.get("host") or str(fields.get("client", "")).rpartition(":")[0])
