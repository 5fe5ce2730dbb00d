"""Runs the command `edge-mirror audit`: progress on standard error, the tables or JSON, the exit status.

Does not contain: the audit (runner.py), the parser of its options.
"""

from __future__ import annotations

import json
import sys
import time

from drupelet.errors import CommandFailed
from drupelet.ledger import LEDGER_TOPIC
from mirror.audit import runner as audits
from mirror.audit.compare.account import AuditResult
from mirror.audit.compare.matching import Side
from mirror.audit.digest.selection import Only
from mirror.audit.report import as_json as shown_as_json
from mirror.audit.report import sentences, tables
from mirror.config import Config

QUIET_S = 2.0
TERMINAL_S, LOG_S = 0.5, 15.0


async def audit(config: Config, ways: audits.Ways, only: Only | None, *, as_json: bool, may_double: bool) -> int:
    """Audit, and print the accounts; exit status 0 where all is proven, 1 where something differs."""
    progress = Progress()
    try:
        found = await audits.audit(config, ways, only, progress.report)
    finally:
        progress.end()
    _check_selection(config, only, found)
    if as_json:
        print(json.dumps(shown_as_json(found, may_double=may_double)))
    else:
        print(tables(found.accounts))
        print("", *found.remarks, *sentences(found, may_double=may_double), sep="\n")
    return 0 if found.is_proven(may_double=may_double) else 1


def _check_selection(config: Config, only: Only | None, found: AuditResult) -> None:
    """Raise CommandFailed if nothing was audited: a misspelt pattern would prove nothing."""
    if found.unread:
        return
    if only is not None and not found.accounts:
        raise CommandFailed(f"nothing was audited: the source has no {only} that is mirrored")
    if only is None and all(account.facts["source"].topic == LEDGER_TOPIC for account in found.accounts):
        raise CommandFailed(f"nothing was audited: no topic of the source matches {config.topics!r}")


async def digests(config: Config, side: Side, only: Only | None, *, each: bool) -> int:
    """Print the digests of one end."""
    progress = Progress()
    try:
        async for line in audits.tell_digests(side, config, only, each=each, report=progress.report):
            sys.stdout.write(f"{line}\n")
    finally:
        progress.end()
    return 0


class Progress:
    """Reports a long audit's progress on standard error: on a terminal one line that changes, else one each LOG_S."""

    def __init__(self) -> None:
        self._out = sys.stderr
        self._is_terminal = self._out.isatty()
        self._said_at = time.monotonic() + QUIET_S - self._every_s
        self._has_said = False

    @property
    def _every_s(self) -> float:
        return TERMINAL_S if self._is_terminal else LOG_S

    def report(self, name: str, done: int, of: int) -> None:
        """Report how far a partition is read, in offsets."""
        now = time.monotonic()
        if now - self._said_at < self._every_s:
            return
        self._said_at = now
        text = f"{name}: {min(1.0, done / of) if of else 1:.0%} of {of} offsets read"
        self._out.write(f"\r{text:<78}" if self._is_terminal else f"{text}\n")
        self._out.flush()
        self._has_said = self._is_terminal

    def end(self) -> None:
        """Clear the line."""
        if self._has_said:
            self._out.write(f"\r{'':<78}\r")
