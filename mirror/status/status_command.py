"""Runs `edge-mirror status`: queries the mirror at its metrics port, else its group at the source, and prints it.

| exit status | means |
|---|---|
| 0 | well |
| 1 | a problem exists, a lag exceeds `--max-lag` or `--max-age`, or no state can be read |
| 2 | bad usage or configuration |
| 3 | the mirror does not answer at its metrics port; the state by its group is printed |

Contains: the choice of the queried side, the repetition, the terminal. Does not contain: the figures (report.py), their
text (status_text.py). If the mirror answers, no client is imported: that takes long on a Pi.
"""

from __future__ import annotations

import asyncio
import http.client
import shutil
import sys
import time
from typing import NamedTuple

from drupelet.addresses import host_and_port
from drupelet.errors import CommandFailed, reason
from mirror.config import Config
from mirror.status.report import Report, beyond, read
from mirror.status.status_text import text

WELL, BEHIND, NOT_RUNNING = 0, 1, 3
ANSWER_S = 10.0
REPORT_BYTES_MAX = 64 << 20
AGAIN_S = 2.0


class StatusOptions(NamedTuple):
    """The options: `lag_max` in records, `lag_s_max` in seconds; None: any."""

    as_json: bool = False
    watch: bool = False
    lag_max: int | None = None
    lag_s_max: int | None = None


class StatusResult(NamedTuple):
    """The result: `running` is None if no mirror was queried, `note` says why the report is not the mirror's own."""

    report: Report | None
    running: bool | None
    note: str = ""


def status(config: Config, wanted: StatusOptions) -> int:
    """Print the mirror's state, with `watch` repeatedly; return the exit status."""
    screen = _Screen(is_repeated=wanted.watch)
    while True:
        try:
            told = _read_status(config)
        except CommandFailed as error:
            if not wanted.watch:
                raise
            told = StatusResult(None, None, str(error))
        said = [] if told.report is None else beyond(told.report, wanted.lag_max, wanted.lag_s_max)
        _show(told, said, screen, wanted)
        if not wanted.watch:
            return _status(told, said)
        time.sleep(AGAIN_S)


def _show(told: StatusResult, said: list[str], screen: _Screen, wanted: StatusOptions) -> None:
    notes = [*([told.note] if told.note else []), *said]
    if told.report is None:
        print(*notes, sep="\n", file=sys.stderr)
    elif wanted.as_json:
        print(told.report.as_json(running=told.running, note=told.note, beyond=said), flush=True)
    else:
        rows = None if screen.rows is None else screen.rows - len(notes)
        screen.show("\n".join([text(told.report, rows), *([""] if notes else []), *notes]))


def _status(told: StatusResult, said: list[str]) -> int:
    if told.running is False:
        return NOT_RUNNING
    report = told.report
    troubled = report is None or report.troubles or any(one.trouble for one in report.partitions)
    return BEHIND if said or troubled else WELL


def _read_status(config: Config) -> StatusResult:
    if not config.metrics:
        note = "Told by the source; the mirror itself is asked where --metrics or the file of --config names its port."
        return StatusResult(_by_source(config), None, note)
    try:
        return StatusResult(_by_mirror(config), running=True)
    except OSError as error:
        running, why = False, f"No process answers at {config.metrics} ({reason(error)}): the mirror does not run"
    except ValueError as error:
        running, why = True, f"The mirror at {config.metrics} is of another version ({error})"
    if not config.source:
        return StatusResult(None, running, f"{why}.")
    return StatusResult(_by_source(config), running, f"{why}; this is what its group at the source tells.")


def _by_mirror(config: Config) -> Report:
    """Query the mirror itself; raises OSError if no server answers, ValueError if its answer is no report."""
    host, port = host_and_port(config.metrics)
    connection = http.client.HTTPConnection(host, port, timeout=ANSWER_S)
    token = config.metrics_access.token().decode()
    try:
        connection.request("GET", "/status", headers={"Authorization": f"Bearer {token}"} if token else {})
        answer = connection.getresponse()
        body = answer.read(REPORT_BYTES_MAX)
    except http.client.HTTPException as error:
        raise ValueError(f"its answer is no HTTP: {type(error).__name__}") from error
    finally:
        connection.close()
    if answer.status == http.client.UNAUTHORIZED:
        raise CommandFailed(f"the mirror at {config.metrics} wants a token: set metrics_token_file to a file with it")
    if answer.status != http.client.OK:
        raise ValueError(f"it has no /status: {answer.status} {answer.reason}")
    return read(body)


def _by_source(config: Config) -> Report:
    from mirror.errors import SourceError  # noqa: PLC0415 - and below, the protocol
    from mirror.status.group_report import standing  # noqa: PLC0415

    try:
        return asyncio.run(standing(config))
    except SourceError as error:
        raise CommandFailed(f"the source does not answer: {error}") from error


class _Screen:
    """Standard output; `is_repeated`: each report overwrites the last on a terminal, else has its time before it."""

    def __init__(self, *, is_repeated: bool) -> None:
        self._lines = 0
        self._is_repeated = is_repeated
        self._is_terminal = sys.stdout.isatty()

    @property
    def rows(self) -> int | None:
        """The number of lines with room; None: any number."""
        return shutil.get_terminal_size().lines - 1 if self._is_repeated and self._is_terminal else None

    def show(self, said: str) -> None:
        """Print a report."""
        if not self._is_repeated:
            print(said)
        elif self._is_terminal:
            width = shutil.get_terminal_size().columns
            up = f"\x1b[{self._lines}F" if self._lines else ""
            lines = said.split("\n")[: self.rows]
            sys.stdout.write(up + "".join(f"{line[:width]}\x1b[K\n" for line in lines) + "\x1b[J")
            self._lines = len(lines)
        else:
            sys.stdout.write(f"{time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())}\n{said}\n\n")
        sys.stdout.flush()
