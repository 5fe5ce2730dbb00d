"""Files that a person names are read whole, and a pipe never for ever."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from drupelet.command.config_check import read_text
from drupelet.errors import ConfigurationError
from drupelet.kafka.security import Security, security_from
from drupelet.tls import file_reads
from drupelet.tls.file_reads import AT_ONCE_S, read_named
from drupelet.tls.secret_files import first_line

SAYS = "it is a pipe that no program has written and closed"


@pytest.fixture
def fifo(tmp_path: Path) -> Path:
    path = tmp_path / "pipe"
    os.mkfifo(path, 0o600)
    return path


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """The waits are as short as a test needs."""
    monkeypatch.setattr(file_reads, "FIFO_WAIT_S", 0.05)
    monkeypatch.setattr(file_reads, "SHELL_WAIT_S", 0.1)


@contextmanager
def writes(path: Path, *pieces: bytes) -> Iterator[None]:
    """A program that writes these into a pipe once it is read, and ends."""

    def write() -> None:
        with path.open("wb", buffering=0) as file:
            for piece in pieces:
                file.write(piece)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        yield
    finally:
        writer.join()


@pytest.mark.parametrize("content", [b"", b"x", b"y" * 300_000])
def test_a_file_is_read_whole_or_its_first_bytes(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "f"
    path.write_bytes(content)
    assert read_named(path) == content
    assert read_named(path, 70_000) == content[:70_000]


@pytest.mark.parametrize("pieces", [(b"secret\n",), (b"sec", b"ret\n"), (b"y" * 300_000,)])
def test_a_pipe_with_a_writer_is_read_to_its_end(fifo: Path, pieces: tuple[bytes, ...]) -> None:
    with writes(fifo, *pieces):
        assert read_named(fifo) == b"".join(pieces)


@pytest.mark.usefixtures("soon")
def test_a_pipe_without_a_writer_is_refused_with_a_remedy(fifo: Path) -> None:
    with pytest.raises(TimeoutError, match=f"{SAYS} within 0.05 s; start the program that writes it, or name a file"):
        read_named(fifo)


@pytest.mark.usefixtures("soon")
@pytest.mark.parametrize("written", [b"", b"half of it"])
def test_a_pipe_whose_writer_does_not_end_is_refused(fifo: Path, written: bytes) -> None:
    """An empty one may also be the reader's own descriptor that a mistaken redirection opened for both."""
    writer = os.open(fifo, os.O_RDWR)
    try:
        os.write(writer, written)
        with pytest.raises(TimeoutError, match=SAYS):
            read_named(fifo)
    finally:
        os.close(writer)


@pytest.mark.usefixtures("soon")
def test_the_pipe_of_a_shell_has_a_bound_too() -> None:
    read, write = os.pipe()
    try:
        with pytest.raises(TimeoutError, match=f"{SAYS} within 0.1 s"):
            read_named(f"/dev/fd/{read}")
    finally:
        os.close(read)
        os.close(write)


def test_a_service_that_runs_waits_for_no_pipe(fifo: Path) -> None:
    began_s = time.monotonic()
    with pytest.raises(TimeoutError, match=f"{SAYS} yet"):
        read_named(fifo, wait_s=AT_ONCE_S)
    assert time.monotonic() - began_s < file_reads.FIFO_WAIT_S / 2


@pytest.mark.usefixtures("soon")
@pytest.mark.parametrize(
    ("read", "sentence"),
    [
        (lambda path: first_line(path, "edge.metrics.token.file"), f"edge.metrics.token.file is .*, {SAYS}"),
        (read_text, f"pipe cannot be read: {SAYS}"),
    ],
)
def test_each_reader_says_which_file_is_the_pipe(fifo: Path, read: Callable[[Path], object], sentence: str) -> None:
    with pytest.raises(ConfigurationError, match=sentence.replace(f", {SAYS}", f", which cannot be read: {SAYS}")):
        read(fifo)


def test_a_password_file_that_became_a_pipe_costs_a_service_no_time(tmp_path: Path) -> None:
    path = tmp_path / "password"
    path.write_text("s3cret\n")
    path.chmod(0o600)
    values = {"security_protocol": "SASL_SSL", "sasl_username": "x", "sasl_password_file": str(path)}
    found = security_from(values, tmp_path, str)
    assert found.password is not None
    assert found.password.text() == "s3cret"
    path.unlink()
    os.mkfifo(path, 0o600)
    with pytest.raises(ConfigurationError, match=f"{SAYS} yet"):
        found.password.text()


@pytest.mark.parametrize("which", ["ca_file", "cert_file", "key_file"])
def test_a_certificate_that_became_a_pipe_is_refused_before_openssl_opens_it(fifo: Path, which: str) -> None:
    with pytest.raises(ConfigurationError, match=f"{fifo} is no file"):
        Security("SSL", **{which: str(fifo)}).context()


def test_a_shell_s_process_substitution_is_read(tmp_path: Path) -> None:
    code = "import sys; from drupelet.tls.secret_files import first_line; print(first_line(sys.argv[1], 'key'))"
    script = '"$0" -c "$1" <(sleep 0.2; echo s3cret)'
    ran = subprocess.run(
        ["bash", "-c", script, sys.executable, code], capture_output=True, text=True, timeout=60, check=False
    )
    assert (ran.returncode, ran.stdout) == (0, "s3cret\n"), ran.stderr
