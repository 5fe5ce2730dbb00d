"""Runs the small programs of mtools and e2fsprogs, whose absence is one sentence.

Here: finding and running them. Never here: what they are asked (`fat`, `ext`).
"""

import os
import shutil
import subprocess
from collections.abc import Sequence

from drupelet.errors import ConfigurationError
from hardware.flash.errors import FlashError

PACKAGES = {"mcopy": "mtools", "mmd": "mtools", "mdir": "mtools", "debugfs": "e2fsprogs"}
SEARCH = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])
TIMEOUT_S = 300  # a slow card may have to take a large file of the user's own


def program(name: str) -> str:
    """Find a program of mtools or e2fsprogs; raises ConfigurationError that names the package."""
    found = shutil.which(name, path=SEARCH)
    if found is None:
        raise ConfigurationError(f"{name} is not installed: `sudo apt install {PACKAGES[name]}`.")
    return found


def run(words: Sequence[str], content: bytes = b"") -> "subprocess.CompletedProcess[bytes]":
    """Run a program with `content` on its standard input; its exit status is for the caller to judge."""
    environment = {**os.environ, "LC_ALL": "C.UTF-8", "MTOOLSRC": "/dev/null", "MTOOLS_SKIP_CHECK": "1"}
    command = [program(words[0]), *words[1:]]
    try:
        return subprocess.run(  # noqa: S603 - a list of words, no shell
            command, input=content, capture_output=True, check=False, timeout=TIMEOUT_S, env=environment
        )
    except subprocess.TimeoutExpired as error:
        raise FlashError(
            f"{words[0]} did not end within {TIMEOUT_S} s: the card may be broken, try another."
        ) from error
