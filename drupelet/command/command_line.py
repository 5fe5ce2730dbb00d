"""Run a command's work: output, Ctrl-C, errors, and exit status.

| event | output | exit status |
|---|---|---|
| the work is done | its own | its result, 0 as a rule |
| a wrong option, file or setting (`ConfigurationError`) | one sentence | 2 |
| a Python package is missing | one sentence with the remedy | 2 |
| the work failed (`CommandFailed`) | one sentence | 1 |
| standard output fails (full, closed) | one sentence | 1 |
| the reader of the output has ended, such as `head` | nothing | 141, as shells report a program that SIGPIPE ended |
| Ctrl-C, if it is no clean stop | nothing | 130 |

Output that standard error refuses is lost without an error: a broker does not stop for a log line.
Does not contain: argparse, a part's own errors, imports that cost time or memory.
Source: https://docs.python.org/3/library/signal.html#note-on-sigpipe
"""

from __future__ import annotations

import errno
import io
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

from drupelet.command.interrupts import interruptible
from drupelet.errors import CommandFailed, ConfigurationError, reason
from drupelet.printable import printable

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

FAILED, BAD_USAGE, INTERRUPTED, NOBODY_READS = 1, 2, 130, 141


class OutputLost(BaseException):
    """Standard output fails; no `Exception`, so that no caller takes it for an error of its own files."""

    def __init__(self, error: OSError) -> None:
        super().__init__("standard output is closed" if error.errno == errno.EBADF else reason(error))
        self.nobody_reads = error.errno == errno.EPIPE


class _Output(io.FileIO):
    """Standard output; raises the first failure, drops later output."""

    _lost = False

    def write(self, data: ReadableBuffer, /) -> int:
        if self._lost:
            return memoryview(data).nbytes
        try:
            return super().write(data)
        except OSError as error:
            self._lost = True
            raise OutputLost(error) from None


class _Errors(io.FileIO):
    """Standard error; drops output that it refuses."""

    def write(self, data: ReadableBuffer, /) -> int:
        try:
            return super().write(data)
        except OSError:
            return memoryview(data).nbytes


def run(program: str, work: Callable[[], int], *, extra: str = "", trouble: int | None = None) -> int:
    """Do a command's work; return its exit status.

    `extra` of the installation has the packages that it needs. `trouble` replaces every status of the table except the
    work's own, if statuses have another meaning, as for Nagios.
    """
    with _own_streams():
        try:
            return _run_and_flush(program, work, extra)
        except _EndOfWork as ended:
            return ended.status if trouble is None else trouble
        except SystemExit as ended:  # argparse: its own help, or what it refused
            if trouble is not None and ended.code:
                raise SystemExit(trouble) from None
            raise


class _EndOfWork(Exception):
    """The work did not end by itself; its output is complete."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


def _run_and_flush(program: str, work: Callable[[], int], extra: str) -> int:
    """Do the work, and flush its output, also if it ends by an exception, as --help does."""
    try:
        with interruptible():
            try:
                return _run_and_report(program, work, extra)
            finally:
                sys.stdout.flush()
    except OutputLost as lost:
        if lost.nobody_reads:
            raise _EndOfWork(NOBODY_READS) from None
        raise _fail(program, f"cannot write the output: {lost}", FAILED) from None
    except KeyboardInterrupt:
        raise _EndOfWork(INTERRUPTED) from None


def announce(line: str) -> None:
    """Print on standard output that a service is ready; if that fails, report it on standard error and go on."""
    try:
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()
    except OutputLost as lost:
        sys.stderr.write(f"{line}; standard output cannot be told: {lost}\n")


def _run_and_report(program: str, work: Callable[[], int], extra: str) -> int:
    try:
        return work()
    except ConfigurationError as error:
        raise _fail(program, str(error), BAD_USAGE) from None
    except CommandFailed as error:
        raise _fail(program, str(error), FAILED) from None
    except ModuleNotFoundError as error:
        from drupelet.installation import missing_package  # noqa: PLC0415 - for a mistake alone

        raise _fail(program, missing_package(str(error.name), extra), BAD_USAGE) from None


def _fail(program: str, sentence: str, status: int) -> _EndOfWork:
    sys.stderr.write(f"{program}: " + "\n".join(map(printable, sentence.split("\n"))) + "\n")
    return _EndOfWork(status)


@contextmanager
def _own_streams() -> Iterator[None]:
    """Standard output and error as above, where they are the process's own and no test's."""
    before = sys.stdout, sys.stderr
    if sys.stdout is sys.__stdout__:
        sys.stdout = _stream(_Output, sys.stdout, os.O_RDONLY)  # a closed one: each write to it fails
    if sys.stderr is sys.__stderr__:
        sys.stderr = _stream(_Errors, sys.stderr, os.O_WRONLY)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


def _stream(kind: type[io.FileIO], stream: TextIO | None, flags: int) -> TextIO:
    """Return a stream of this class on the same descriptor; reopen a closed one before a data file gets it."""
    if stream is None or not isinstance(stream, io.TextIOWrapper):
        raw = kind(os.open(os.devnull, flags), "w", closefd=False)
        return io.TextIOWrapper(io.BufferedWriter(raw), "utf-8", "backslashreplace", line_buffering=True)
    stream.flush()
    return io.TextIOWrapper(
        io.BufferedWriter(kind(stream.fileno(), "w", closefd=False)),
        stream.encoding,
        "backslashreplace",  # a name that this terminal cannot encode is no error
        line_buffering=stream.line_buffering or stream.write_through or kind is _Errors,
    )
