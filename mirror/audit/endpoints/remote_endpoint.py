"""Reads an end of an audit from the output of `audit --digests-of`: a file, or a command that runs near the cluster.

If ranges differ, the command runs again with `--each --only …` appended, for the digests of each record.
Does not contain: comparisons, and what a difference means.
"""

from __future__ import annotations

import asyncio
import contextlib
import shlex
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import Protocol

from drupelet.errors import CommandFailed, reason
from mirror.audit.compare.matching import Side
from mirror.audit.digest.digests import Parts, Range
from mirror.audit.digest.partition_facts import Facts
from mirror.audit.digest.selection import Only
from mirror.audit.endpoints.digest_lines import LINE_BYTES_MAX, All, BadLine, Begin, Line, Unread, read_line
from mirror.audit.endpoints.endpoint import UnreadError


class ToldEnd:
    """The output of `audit --digests-of`, line by line."""

    def __init__(self, side: Side, told_by: LineSource, only: Only | None = None) -> None:
        self.side = side
        self.at_ms = 0
        self.cluster_id: str | None = None
        self._told_by = told_by
        self._only = only
        self._lines: AsyncGenerator[str] | None = None
        self._line: Facts | Range | Unread | All | None = None
        self._now: Facts | None = None
        self._count = 0

    async def open(self) -> None:
        """Read the first line, and what follows it."""
        more = ("--only", str(self._only)) if self._only is not None and self._told_by.may_ask else ()
        self._lines = self._told_by.lines(more)
        begin = self._begin(await anext(self._lines, None))
        self.at_ms, self.cluster_id = begin.at_ms, begin.cluster_id or None
        self._line = await self._read()

    def _begin(self, line: str | None) -> Begin:
        begin = self._parse(line or "")
        if not isinstance(begin, Begin):
            raise self._bad("it has no first line as `audit --digests-of` writes it")
        if begin.side != self.side:
            raise self._bad(f"it is of the {begin.side}: give it as --{begin.side}-digests or --{begin.side}-by")
        if begin.asked and begin.asked != str(self._only):
            raise self._bad(f"it is of {begin.asked} alone: make it without --only")
        return begin

    def _parse(self, line: str) -> Line:
        try:
            return read_line(line)
        except BadLine as error:
            raise self._bad(str(error)) from error

    def _bad(self, why: str) -> CommandFailed:
        return CommandFailed(f"the digests of the {self.side} ({self._told_by.name}) cannot be used: {why}")

    async def _read(self) -> Facts | Range | Unread | All:
        assert self._lines is not None
        line = await anext(self._lines, None)
        if line is None:
            raise self._bad("they are cut off, and would prove less than they seem to")
        found = self._parse(line)
        if isinstance(found, Begin | Parts):
            raise self._bad("a line has no place there")
        if isinstance(found, All) and found.partitions != self._count:
            raise self._bad(f"{self._count} partitions were told instead of {found.partitions}")
        return found

    async def next(self) -> Facts | None:
        """Go on to the next partition."""
        found = await self._next()
        while self._only is not None and found is not None and found[:2] != self._only[:2]:
            found = await self._next()
        return found

    async def _next(self) -> Facts | None:
        while isinstance(self._line, Range | Unread):
            self._line = await self._read()
        self._now = self._line if isinstance(self._line, Facts) else None
        if self._now is not None:
            self._count += 1
            self._line = await self._read()
        return self._now

    async def range(self) -> Range | None:
        """Return the next range."""
        found = self._line
        if isinstance(found, Unread):
            raise UnreadError(self.side, found.why)
        if not isinstance(found, Range):
            return None
        self._line = await self._read()
        return found

    async def read_again(self, first: int, end: int) -> Sequence[Range]:
        """Run the command for these offsets, with each record's digest."""
        return [one for one in await self._request(first, end) if isinstance(one, Range) and one.records]

    async def parts(self, offset: int) -> Parts | None:
        """Run the command for that record's parts."""
        return next((one for one in await self._request(offset, offset + 1) if isinstance(one, Parts)), None)

    async def _request(self, first: int, end: int) -> list[Line]:
        if not self._told_by.may_ask or self._now is None:
            return []
        only = Only(self._now.topic, self._now.partition, first, end)
        lines = self._told_by.lines(("--each", "--only", str(only)))
        try:
            async with contextlib.aclosing(lines):
                return [self._parse(line) async for line in lines]
        except CommandFailed as error:
            raise UnreadError(self.side, f"the {self.side} cannot be read again: {error}") from error

    async def close(self) -> None:
        """End the command."""
        if self._lines is not None:
            await self._lines.aclose()


class LineSource(Protocol):
    """The source of the lines."""

    name: str
    may_ask: bool

    def lines(self, more: Sequence[str]) -> AsyncGenerator[str]:
        """Return all lines; `more` are arguments appended to a command's own."""


class File:
    """A file."""

    may_ask = False

    def __init__(self, path: Path) -> None:
        self.name = str(path)
        self._path = path

    async def lines(self, more: Sequence[str]) -> AsyncGenerator[str]:
        """Return the file's lines."""
        assert not more
        try:
            with self._path.open(encoding="utf-8", errors="replace") as file:
                while line := file.readline(LINE_BYTES_MAX):
                    yield line
        except OSError as error:
            raise CommandFailed(f"{self._path} cannot be read: {reason(error)}") from error


class Command:
    """A command line of the shell; its standard error is for the person."""

    may_ask = True

    def __init__(self, command: str) -> None:
        self.name = command
        self._command = command

    async def lines(self, more: Sequence[str]) -> AsyncGenerator[str]:
        """Return the lines that it writes; raises CommandFailed if its exit status is not 0."""
        process = await asyncio.create_subprocess_shell(
            " ".join([self._command, *map(shlex.quote, more)]),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            limit=LINE_BYTES_MAX,
        )
        assert process.stdout is not None
        try:
            while line := await process.stdout.readline():
                yield line.decode("utf-8", "replace")
            status = await process.wait()
            if status:
                raise CommandFailed(f"`{self.name}` ended with status {status}")
        except ValueError as error:  # of the reader's limit
            raise CommandFailed(f"`{self.name}` wrote a line of more than {LINE_BYTES_MAX} bytes") from error
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    process.terminate()
                await process.wait()
