"""Run the programs of mtools, e2fsprogs and OpenSSH; report a missing one in one sentence.

Contains: finding and running them. Does not contain: their requests (`fat`, `ext`, `host_key`).
"""

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from drupelet.errors import ConfigurationError
from hardware.flash.errors import FlashError

PACKAGES = {
    "mcopy": "mtools",
    "mmd": "mtools",
    "mdir": "mtools",
    "debugfs": "e2fsprogs",
    "ssh-keygen": "openssh-client",
}
SEARCH = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])
TIMEOUT_S = 300  # a slow card may have to take a large file of the user's own


def program(name: str) -> str:
    """Find a program; raises ConfigurationError that names the package."""
    found = shutil.which(name, path=SEARCH)
    if found is None:
        raise ConfigurationError(f"{name} is not installed: `sudo apt install {PACKAGES[name]}`.")
    return found


def run(
    words: Sequence[str], content: bytes = b"", files: tuple[int, ...] = ()
) -> "subprocess.CompletedProcess[bytes]":
    """Run a program with `content` as its standard input and these files open; the caller checks its status."""
    environment = {**os.environ, "LC_ALL": "C.UTF-8", "MTOOLSRC": "/dev/null", "MTOOLS_SKIP_CHECK": "1"}
    command = [program(words[0]), *words[1:]]
    try:
        return subprocess.run(  # noqa: S603 - a list of words, no shell
            command,
            input=content,
            capture_output=True,
            check=False,
            timeout=TIMEOUT_S,
            env=environment,
            pass_fds=files,
        )
    except subprocess.TimeoutExpired as error:
        raise FlashError(
            f"{words[0]} did not end within {TIMEOUT_S} s: the card may be broken, try another."
        ) from error


@contextmanager
def memory_file(content: bytes = b"") -> Iterator[int]:
    """Return a file in memory that ends with this process; other users cannot open it."""
    file = os.memfd_create("edge-board")
    try:
        os.fchmod(file, 0o600)
        with open(file, "wb", closefd=False) as written:
            written.write(content)
        yield file
    finally:
        os.close(file)
