"""What every command does around its work: its output, Ctrl-C, what it could not do, and its exit status.

| what happens | it says | exit status |
|---|---|---|
| the work is done | what it has to | what it returns, 0 as a rule |
| a wrong option, file or setting (`ConfigurationError`) | one sentence | 2 |
| a Python package is missing | one sentence with what brings it | 2 |
| it could not do what was asked (`CommandFailed`) | one sentence | 1 |
| standard output takes no more (full, closed) | one sentence | 1 |
| who read the output has gone, as `head` does | nothing | 141, as shells say it of a program that SIGPIPE ended |
| Ctrl-C, where it does not mean a clean stop | nothing | 130 |

What cannot be said on standard error is lost, and nothing fails for it: a broker does not stop for a log line.
Must never come in: argparse, a part's own errors, and anything that costs time or memory to import.
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
    """Standard output takes no more; no `Exception`, so that nobody takes it for a fault of his own files."""

    def __init__(self, error: OSError) -> None:
        super().__init__("standard output is closed" if error.errno == errno.EBADF else reason(error))
        self.nobody_reads = error.errno == errno.EPIPE


class _Output(io.FileIO):
    """Standard output; the first failure is raised, what comes after it is dropped."""

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
    """Standard error; what it does not take is dropped."""

    def write(self, data: ReadableBuffer, /) -> int:
        try:
            return super().write(data)
        except OSError:
            return memoryview(data).nbytes


def run(program: str, work: Callable[[], int], *, extra: str = "", trouble: int | None = None) -> int:
    """Do a command's work; its exit status.

    `extra` of the installation brings the packages that it needs. `trouble` is the status of all that the table has but
    the work's own, where statuses mean something else, as to Nagios.
    """
    with _own_streams():
        try:
            return _flushed(program, work, extra)
        except _EndOfWork as ended:
            return ended.status if trouble is None else trouble
        except SystemExit as ended:  # argparse: its own help, or what it refused
            if trouble is not None and ended.code:
                raise SystemExit(trouble) from None
            raise


class _EndOfWork(Exception):
    """The work did not end by itself; what there was to say is said."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


def _flushed(program: str, work: Callable[[], int], extra: str) -> int:
    """Do the work, and write out what it said, also where it ends by an exception, as --help does."""
    try:
        with interruptible():
            try:
                return _judged(program, work, extra)
            finally:
                sys.stdout.flush()
    except OutputLost as lost:
        if lost.nobody_reads:
            raise _EndOfWork(NOBODY_READS) from None
        raise _fail(program, f"cannot write the output: {lost}", FAILED) from None
    except KeyboardInterrupt:
        raise _EndOfWork(INTERRUPTED) from None


def announce(line: str) -> None:
    """Say on standard output that a service is ready; one that cannot say so serves all the same, and says that."""
    try:
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()
    except OutputLost as lost:
        sys.stderr.write(f"{line}; standard output cannot be told: {lost}\n")


def _judged(program: str, work: Callable[[], int], extra: str) -> int:
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
    """A stream of our kind on the same descriptor; one that was closed is given another, before a data file gets it."""
    if stream is None or not isinstance(stream, io.TextIOWrapper):
        raw = kind(os.open(os.devnull, flags), "w", closefd=False)
        return io.TextIOWrapper(io.BufferedWriter(raw), "utf-8", "backslashreplace", line_buffering=True)
    stream.flush()
    return io.TextIOWrapper(
        io.BufferedWriter(kind(stream.fileno(), "w", closefd=False)),
        stream.encoding,
        "backslashreplace",  # a name that is no text, or no text of this terminal, ends nothing
        line_buffering=stream.line_buffering or stream.write_through or kind is _Errors,
    )
